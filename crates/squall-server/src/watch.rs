//! `/squall/v1/watch`: a WebSocket that sends changes of runs, leases and the request log.
//!
//! Nothing is queued. At each tick, the client gets the differences from the state that it was sent
//! last. A slow client misses samples, but costs no memory.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use axum::{
    extract::{
        Extension, State,
        ws::{Message, WebSocket, WebSocketUpgrade, rejection::WebSocketUpgradeRejection},
    },
    http::StatusCode,
    response::Response,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use squall_control::driving::LiveReport;
use squall_report::report::hosts::HostsReport;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::{
    Refusal,
    api::{Asked, Operation, Routes, ports::LeaseRow},
    connection::Connection,
    runs::{Live, RunRow, lock},
    service::Service,
    threads::blocking,
};

/// Time after which a client that does not read is disconnected.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// Subprotocol of the WebSocket. The server must select one, because otherwise a browser that
/// offers its token as a subprotocol closes the socket.
pub const PROTOCOL: &str = "squall.v1";
/// Maximum number of sockets at once, because each keeps the last state of its runs.
const MAX_SOCKETS: usize = 256;

pub fn routes() -> Routes {
    let doc = Operation::new("runs", "Watch changes of runs, leases and requests over a WebSocket")
        .query::<Query>();
    Routes::new().get("/squall/v1/watch", watch, doc.status(101))
}

#[derive(Deserialize, JsonSchema)]
struct Query {
    /// `all`, or names of runs separated by commas; this renews their own leases.
    runs: Option<String>,
    /// Milliseconds between two samples, 100 to 60,000 [default: 500].
    every_ms: Option<u64>,
    /// 1: send requests, too.
    log: Option<u8>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum ClientMessage {
    Watch { runs: Runs },
    Renew { lease: String },
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Runs {
    All(String),
    These(BTreeSet<String>),
}

async fn watch(
    State(service): State<Arc<Service>>,
    Extension(connection): Extension<Arc<Connection>>,
    Asked(query): Asked<Query>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Refusal> {
    let upgrade =
        upgrade.map_err(|error| Refusal::bad_request("bad_request", error.body_text()))?;
    let every = Duration::from_millis(query.every_ms.unwrap_or(500).clamp(100, 60_000));
    // Refuse now, because otherwise the connection is closed as soon as another client needs its
    // slot.
    if let Some(most) = connection.is_not_kept() {
        return Err(too_many(format!(
            "{most} connections are open, which is the limit (512, or a quarter of the files that \
             the daemon may open)\n  try to close some, or start it with a higher ulimit -n \
             (LimitNOFILE= of a service)"
        )));
    }
    let place = service.watchers.clone().try_acquire_owned();
    let Ok(place) = place else {
        return Err(too_many(format!(
            "{MAX_SOCKETS} WebSockets are open, which is the limit\n  try again later"
        )));
    };
    let runs = match query.runs.as_deref() {
        None | Some("" | "all") => None,
        Some(list) => Some(list.split(',').map(|id| id.trim().to_owned()).collect()),
    };
    let log = query.log.unwrap_or(0) > 0;
    // 64 KiB instead of tungstenite's default of 64 MiB, because clients send only short commands.
    let upgrade = upgrade.protocols([PROTOCOL]).max_message_size(64 << 10).max_frame_size(64 << 10);
    Ok(upgrade.on_upgrade(move |socket| async move {
        let watcher = Watcher {
            last_log: log.then_some(0),
            service,
            runs,
            sent_state: BTreeMap::new(),
            leases: Vec::new(),
            kept: BTreeSet::new(),
        };
        watcher.run(socket, every).await;
        drop(place);
    }))
}

fn too_many(message: String) -> Refusal {
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_watchers", message)
}

pub fn places() -> Arc<tokio::sync::Semaphore> {
    Arc::new(tokio::sync::Semaphore::new(MAX_SOCKETS))
}

/// A message to a client, with the fields that [`crate::Client`] reads.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum WatchEvent {
    /// Sent first: the live runs.
    Hello {
        runs: Vec<RunRow>,
    },
    Run {
        run: Box<RunRow>,
    },
    Ended {
        id: String,
    },
    /// Names that correspond to the indices in rows.
    Names {
        run: String,
        ports: Vec<String>,
        streams: Vec<String>,
    },
    /// Only rows that have changed.
    Sample {
        run: String,
        t_s: f64,
        ports: Vec<WatchedPort>,
        streams: Vec<WatchedStream>,
        #[serde(default)]
        sources: Vec<WatchedSource>,
        #[serde(default)]
        hosts: Vec<WatchedHosts>,
    },
    #[serde(other)]
    Other,
}

/// Index; tx_pps, tx_bps_l1, rx_pps, rx_bps_l1; frames sent, received and dropped so far.
pub type WatchedPort = (usize, f64, f64, f64, f64, u64, u64, u64);
/// Index; tx_pps, rx_pps; frames sent, received and lost so far; latency in nanoseconds: p50 and
/// p99 of the last period, and the maximum so far; p99 of the departure error.
pub type WatchedStream = (
    usize,
    f64,
    f64,
    u64,
    Option<u64>,
    Option<u64>,
    Option<u64>,
    Option<u64>,
    Option<u64>,
    Option<u64>,
);

/// Name; unit of the counts; number due and number sent so far; lag in seconds; whether the lag
/// exceeds the verdict's limit. Sources that send as fast as possible have no row.
pub type WatchedSource = (String, String, u64, u64, f64, bool);

/// Group of hosts; its hosts, and those that have started; hosts by state, of IPv4, or of IPv6 if the
/// group has no IPv4; whether the states are those of IPv6.
pub type WatchedHosts = (String, u64, u64, BTreeMap<String, u64>, bool);

struct Watcher {
    service: Arc<Service>,
    /// `None`: all.
    runs: Option<BTreeSet<String>>,
    sent_state: BTreeMap<String, SentState>,
    leases: Vec<LeaseRow>,
    /// Leases that this client renews for as long as the socket is open.
    kept: BTreeSet<String>,
    /// Number of the last request log entry that was sent.
    last_log: Option<u64>,
}

/// The state of a run as sent to the client.
struct SentState {
    row: RunRow,
    names: Value,
    latest: Option<Arc<LiveReport>>,
    ports: Vec<Value>,
    streams: Vec<Value>,
}

impl Watcher {
    async fn run(mut self, mut socket: WebSocket, every: Duration) {
        let mut ticks = interval(every);
        // The default, Burst, would send a slow client all missed ticks at once, which costs it
        // even more time.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut changes, mut ending) =
            (self.service.runs.changes(), self.service.ending.subscribe());
        let hello: Vec<_> = self.live().iter().map(|live| live.row()).collect();
        let mut messages = vec![json!({ "type": "hello", "runs": hello })];
        loop {
            for message in messages.drain(..) {
                let sent =
                    timeout(SEND_TIMEOUT, socket.send(Message::Text(message.to_string().into())))
                        .await;
                if !matches!(sent, Ok(Ok(()))) {
                    return;
                }
            }
            tokio::select! {
                _ = ticks.tick() => messages = self.messages(true).await,
                _ = changes.changed() => messages = self.messages(false).await,
                // Drop the guard that `wait_for` returns, because it is not Send and must not live
                // across an await.
                () = async { _ = ending.wait_for(|ending| *ending).await } => return,
                received = socket.recv() => match received {
                    Some(Ok(Message::Text(text))) => messages.extend(self.receive(&text)),
                    Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                    Some(Ok(_)) => {}
                },
            }
        }
    }

    fn receive(&mut self, text: &str) -> Option<Value> {
        let wrong = |message: String| {
            Some(
                json!({ "type": "error", "error": { "status": 400, "code": "bad_request", "message": message, "details": [] } }),
            )
        };
        match serde_json::from_str(text) {
            Ok(ClientMessage::Watch { runs: Runs::All(all) }) if all == "all" => self.runs = None,
            Ok(ClientMessage::Watch { runs: Runs::All(one) }) => self.runs = Some([one].into()),
            Ok(ClientMessage::Watch { runs: Runs::These(runs) }) if runs.len() <= 1000 => {
                self.runs = Some(runs)
            }
            Ok(ClientMessage::Watch { .. }) => return wrong("more than 1000 runs".into()),
            Ok(ClientMessage::Renew { lease }) => {
                if lock(&self.service.leases).renew(self.service.now(), &lease).is_none() {
                    return wrong(format!("there is no lease {lease:?}"));
                }
                self.kept.insert(lease);
            }
            Err(error) => return wrong(error.to_string()),
        }
        None
    }

    fn live(&self) -> Vec<Arc<Live>> {
        let wanted =
            |live: &Arc<Live>| self.runs.as_ref().is_none_or(|runs| runs.contains(&live.row().id));
        self.service.runs.all().into_iter().filter(wanted).collect()
    }

    /// Returns the changes since the last call. Includes samples only on a tick.
    async fn messages(&mut self, tick: bool) -> Vec<Value> {
        let mut messages = Vec::new();
        let live = self.live();
        if tick {
            if self.runs.is_some() {
                live.iter().for_each(|live| self.service.renew_own_lease(live));
            }
            let now = self.service.now();
            let mut leases = lock(&self.service.leases);
            self.kept.retain(|lease| leases.renew(now, lease).is_some());
        }
        for live in &live {
            let row = live.row();
            let sent_state = self.sent_state.entry(row.id.clone()).or_insert_with(|| {
                messages.push(json!({ "type": "run", "run": row }));
                SentState {
                    row: row.clone(),
                    names: Value::Null,
                    latest: None,
                    ports: vec![],
                    streams: vec![],
                }
            });
            // Compares without the elapsed time, because it differs at each tick.
            if (RunRow { elapsed_s: 0.0, ..sent_state.row.clone() })
                != (RunRow { elapsed_s: 0.0, ..row.clone() })
            {
                messages.push(json!({ "type": "run", "run": row }));
                sent_state.row = row;
            }
            if let Some(latest) = live.latest().filter(|_| tick) {
                sent_state.sample(latest, &mut messages);
            }
        }
        let gone: Vec<_> = self
            .sent_state
            .keys()
            .filter(|id| !live.iter().any(|live| live.row().id == **id))
            .cloned()
            .collect();
        for id in gone {
            self.sent_state.remove(&id);
            // The history has the final row, because the run is no longer live.
            let (service, known) = (self.service.clone(), id.clone());
            if let Ok(Some(run)) = blocking(move || service.history.run(&known)).await {
                messages.push(json!({ "type": "run", "run": run }));
            }
            messages.push(json!({ "type": "ended", "id": id }));
        }
        let leases = self.service.lease_rows();
        let timeless = |rows: &[LeaseRow]| {
            rows.iter().map(|row| LeaseRow { expires_s: None, ..row.clone() }).collect::<Vec<_>>()
        };
        // Compares without the remaining time, because it differs at each tick.
        if timeless(&leases) != timeless(&self.leases) {
            messages.push(json!({ "type": "leases", "leases": leases }));
            self.leases = leases;
        }
        if let Some(last) = self.last_log.filter(|_| tick) {
            let mut entries = self.service.log.latest(100, last);
            entries.reverse();
            if let Some(newest) = entries.last() {
                self.last_log = Some(newest.n);
                messages.push(json!({ "type": "log", "entries": entries }));
            }
        }
        messages
    }
}

impl SentState {
    /// Adds the rows that differ from those sent before, and the names if they have changed.
    fn sample(&mut self, latest: Arc<LiveReport>, messages: &mut Vec<Value>) {
        if self.latest.as_ref().is_some_and(|old| Arc::ptr_eq(old, &latest)) {
            return;
        }
        let (sample, report) = (&latest.sample, &latest.report);
        let ports: Vec<_> = report.ports.iter().map(|port| &port.name).collect();
        let streams: Vec<_> = report.streams.iter().map(|stream| &stream.name).collect();
        let names =
            json!({ "type": "names", "run": self.row.id, "ports": ports, "streams": streams });
        if names != self.names {
            messages.push(names.clone());
            (self.names, self.ports, self.streams) = (names, Vec::new(), Vec::new());
        }
        let ports = report.ports.iter().enumerate().map(|(i, port)| {
            let now = sample
                .ports
                .get(i)
                .filter(|now| now.name == port.name)
                .cloned()
                .unwrap_or_default();
            let rates = [now.tx_pps, now.tx_bps_l1, now.rx_pps, now.rx_bps_l1].map(short);
            let row: WatchedPort = (
                i,
                rates[0],
                rates[1],
                rates[2],
                rates[3],
                port.tx.packets,
                port.rx.packets,
                port.drops(),
            );
            json!(row)
        });
        let streams = report.streams.iter().enumerate().map(|(i, stream)| {
            let now = sample
                .streams
                .get(i)
                .filter(|now| now.name == stream.name)
                .cloned()
                .unwrap_or_default();
            let rx = stream.rx.as_ref();
            let max = rx.and_then(|rx| rx.latency_ns.as_ref()).map(|latency| latency.max);
            let row: WatchedStream = (
                i,
                short(now.tx_pps),
                short(now.rx_pps),
                stream.tx_packets,
                rx.map(|rx| rx.packets),
                rx.map(|rx| rx.lost),
                now.latency_p50_ns,
                now.latency_p99_ns,
                max,
                now.late_p99_ns,
            );
            json!(row)
        });
        let (ports, streams): (Vec<_>, Vec<_>) = (ports.collect(), streams.collect());
        let sources: Vec<WatchedSource> = report
            .progress()
            .map(|at| (at.name.into(), at.unit.into(), at.due, at.sent, at.lag_s, at.is_behind))
            .collect();
        let hosts: Vec<WatchedHosts> = report.hosts.iter().map(hosts_row).collect();
        let changed = |new: &[Value], old: &[Value]| -> Vec<Value> {
            new.iter()
                .enumerate()
                .filter(|(i, row)| old.get(*i) != Some(row))
                .map(|(_, row)| row.clone())
                .collect()
        };
        messages.push(json!({
            "type": "sample", "run": self.row.id, "t_s": sample.t_s,
            "ports": changed(&ports, &self.ports), "streams": changed(&streams, &self.streams),
            "sources": sources, "hosts": hosts,
        }));
        (self.ports, self.streams, self.latest) = (ports, streams, Some(latest));
    }
}

fn hosts_row(group: &HostsReport) -> WatchedHosts {
    let ipv6 = group.ipv6.as_ref().filter(|_| group.states.is_empty());
    let states = ipv6.map_or(&group.states, |ipv6| &ipv6.states);
    (group.name.clone(), group.hosts, group.started, states.clone(), ipv6.is_some())
}

/// Rounds a rate to a tenth, because charts have no finer resolution, and the text is half as long.
fn short(rate: f64) -> f64 {
    (rate * 10.0).round() / 10.0
}

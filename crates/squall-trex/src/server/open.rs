//! Records of individual flows: those open now, or snapshots at the interval given in a start
//! request; and ignored senders.

use std::{
    collections::VecDeque,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::{Duration, Instant},
};

use serde_json::{Map, Value, json};
use squall::{FlowInfo, FlowState, Ignored, OpenFlow};
use squall_units::{MacAddr, Nanos};

use super::{Answer, Refusal, Server, id_of};
use crate::rpc::Params;

/// Maximum flow ends in one snapshot, which bounds its text to some megabytes.
const MOST: usize = 20_000;
/// Maximum flow ends in all snapshots that are kept.
const KEPT: usize = 40_000;
/// Maximum ignored addresses of each kind.
const MOST_IGNORED: usize = 1000;
/// Maximum clients in one request.
const MOST_CLIENTS: u64 = 65_536;
/// Minimum interval between snapshots, seconds.
const SHORTEST: f64 = 0.1;

/// Snapshots of a profile's open flows.
#[derive(Default)]
pub struct FlowSnapshots {
    /// Interval in the start request; `None`: snapshots are taken only on request.
    every: Option<Duration>,
    due: Option<Instant>,
    kept: VecDeque<Snapshot>,
    /// Number of the next snapshot.
    number: u64,
}

struct Snapshot {
    number: u64,
    flows: Vec<(usize, OpenFlow)>,
}

impl FlowSnapshots {
    /// Resets the snapshots at a start.
    pub fn begin(&mut self, seconds: f64) {
        let asked = seconds.is_finite() && seconds > 0.0;
        self.every = asked.then(|| Duration::from_secs_f64(seconds.clamp(SHORTEST, 86_400.0)));
        self.due = self.every.map(|every| Instant::now() + every);
        self.kept.clear();
    }

    pub fn is_due(&self, now: Instant) -> bool {
        self.due.is_some_and(|due| now >= due)
    }

    /// Keeps a snapshot; `None`: too many flows, so its number is skipped.
    fn keep(&mut self, flows: Option<Vec<(usize, OpenFlow)>>) {
        self.due = self.every.map(|every| Instant::now() + every);
        self.kept.extend(flows.map(|flows| Snapshot { number: self.number, flows }));
        self.number += 1;
        let all = |kept: &VecDeque<Snapshot>| {
            kept.iter().map(|snapshot| snapshot.flows.len()).sum::<usize>()
        };
        while self.kept.len() > 1 && all(&self.kept) > KEPT {
            self.kept.pop_front();
        }
    }
}

impl Snapshot {
    /// Converts to one JSON object per end: a flow has the same name at both ends.
    fn to_json(&self) -> Vec<Value> {
        let of = |server: bool| {
            let ends = self.flows.iter().map(|(_, flow)| flow);
            let ends = ends.filter(|flow| flow.tcp.passive == server);
            let mut all: Map<String, Value> =
                ends.map(|flow| (name(&flow.tcp), described(flow))).collect();
            all.insert("index".into(), json!(self.number));
            Value::Object(all)
        };
        vec![of(false), of(true)]
    }
}

/// Name of a flow: the client's address first.
fn name(tcp: &FlowInfo) -> String {
    let ends = [(tcp.tuple.local, tcp.tuple.local_port), (tcp.tuple.remote, tcp.tuple.remote_port)];
    let [local, remote] = ends.map(|(ip, port)| SocketAddr::new(ip, port));
    if tcp.passive { format!("{remote}-{local}") } else { format!("{local}-{remote}") }
}

/// Describes a flow. Times are in whole milliseconds, as in TRex, and short ones also in
/// microseconds. Fields that are not in the flow's record are omitted.
fn described(flow: &OpenFlow) -> Value {
    let tcp = &flow.tcp;
    let millis = |time: Nanos| time.0 / 1_000_000;
    let micros = |time: Nanos| time.0 / 1_000;
    let mut options = String::new();
    for (on, name) in
        [(tcp.timestamps, "/timestamps"), (tcp.sack, "/sack"), (tcp.wscale.is_some(), "/wscale")]
    {
        options += if on { name } else { "" };
    }
    let mut all = json!({
        "origin": if tcp.passive { "server" } else { "client" },
        "state": number(tcp.state),
        "options": options,
        "rto": millis(tcp.rto), "rtt": millis(tcp.srtt), "rttvar": millis(tcp.rttvar),
        "rtt_usec": micros(tcp.srtt), "rttvar_usec": micros(tcp.rttvar),
        "snd_cwnd": tcp.cwnd, "snd_wnd": tcp.send_window, "rcv_space": tcp.receive_window,
        "snd_mss": tcp.mss,
    });
    if let Some((send, receive)) = tcp.wscale {
        (all["snd_wscale"], all["rcv_wscale"]) = (json!(send), json!(receive));
    }
    if let Some(ssthresh) = tcp.ssthresh {
        all["snd_ssthresh"] = json!(ssthresh);
    }
    if let Some((phase, pace)) = tcp.bbr {
        (all["bbr_phase"], all["pacing_rate"]) = (json!(phase), json!(pace));
    }
    if let Some(lasted) = flow.lasted {
        all["duration"] = json!(millis(lasted));
    }
    all
}

/// The number that BSD assigns to a TCP state.
fn number(state: FlowState) -> u8 {
    match state {
        FlowState::Closed | FlowState::Udp => 0,
        FlowState::SynSent => 2,
        FlowState::SynReceived => 3,
        FlowState::Established => 4,
        FlowState::CloseWait => 5,
        FlowState::FinWait1 => 6,
        FlowState::Closing => 7,
        FlowState::LastAck => 8,
        FlowState::FinWait2 => 9,
        FlowState::TimeWait => 10,
    }
}

impl Server {
    pub(super) fn flow_info(&mut self, params: &Params<'_>) -> Answer {
        let id = id_of(params).to_owned();
        let from = params.get("index").and_then(Value::as_u64).unwrap_or(0);
        let asks = self.loaded(&id)?.snapshots.every.is_none();
        if asks && self.has_open_flows(&id) {
            let flows = self.open_flows(&id)?;
            let snapshots = &mut self.loaded(&id)?.snapshots;
            let snapshot = Snapshot { number: snapshots.number, flows };
            snapshots.number += 1;
            return Ok(json!(snapshot.to_json()));
        }
        let kept = self.loaded(&id)?.snapshots.kept.iter();
        let wanted = kept.filter(|snapshot| snapshot.number >= from);
        Ok(json!(wanted.flat_map(Snapshot::to_json).collect::<Vec<_>>()))
    }

    /// Open flows of one profile, selected by its servers: no two profiles share a server.
    fn open_flows(&self, id: &str) -> Result<Vec<(usize, OpenFlow)>, Refusal> {
        let mut flows = Vec::new();
        self.traffic.with(|run| {
            flows = run.open_flows(MOST);
            Ok(())
        })?;
        if flows.len() > MOST {
            return Err(Refusal::failed(format!(
                "more than {MOST} ends of flows are open: expected fewer for a list of them"
            )));
        }
        let active = self.playing().find(|(own, _)| *own == id);
        let is_its = |flow: &FlowInfo| {
            let of = &flow.tuple;
            let (server, port) = match flow.passive {
                true => (of.local, of.local_port),
                false => (of.remote, of.remote_port),
            };
            active.is_some_and(|(_, active)| active.serves(server, port))
        };
        flows.retain(|(_, flow)| is_its(&flow.tcp));
        Ok(flows)
    }

    /// Takes a snapshot of a profile's flows when one is due.
    pub(super) fn snapshot_if_due(&mut self, id: &str) {
        if self.loaded(id).is_ok_and(|profile| profile.snapshots.is_due(Instant::now())) {
            let flows = self.open_flows(id);
            if let Ok(profile) = self.loaded(id) {
                profile.snapshots.keep(flows.ok());
            }
        }
    }

    // Clients

    /// Lets clients begin flows, or stops them.
    pub(super) fn enable_clients(&mut self, params: &Params<'_>) -> Answer {
        let (on, known) = (params.flag("is_enable"), self.flow_clients());
        let mut clients = self.ignored().clients.clone();
        for ip in asked_clients(params)?.into_iter().filter(|ip| has(&known, *ip)) {
            match on {
                true => clients.remove(&IpAddr::V4(ip)),
                false => clients.insert(IpAddr::V4(ip)),
            };
        }
        self.ignore(Ignored { clients, ..self.ignored().clone() })
    }

    /// Collects the states of clients, for the next request that fetches them.
    pub(super) fn ask_clients(&mut self, params: &Params<'_>) -> Answer {
        let known = self.flow_clients();
        let state = |ip| match self.ignored().clients.contains(&IpAddr::V4(ip)) {
            true => "Inactive",
            false => "Active",
        };
        let one = |ip: Ipv4Addr| {
            let mut info = match has(&known, ip) {
                true => json!({ "Found": 1, "state": state(ip) }),
                false => json!({ "Found": 0 }),
            };
            if has(&known, ip) && self.has_tunnel(ip) {
                info["tunnel_type"] = json!("GTP");
            }
            (u32::from(ip).to_string(), info)
        };
        let info = asked_clients(params)?.into_iter().map(one).collect();
        if let Some(flows) = &mut self.flows {
            flows.clients = Some(Value::Object(info));
        }
        Ok(json!({}))
    }

    pub(super) fn pull_clients(&mut self) -> Answer {
        let info = self.flows.as_mut().and_then(|flows| flows.clients.take());
        info.ok_or_else(|| Refusal { code: -32003, text: "nobody has asked for clients".into() })
    }

    // Ignored senders

    pub(super) fn ignored_macs(&self) -> Answer {
        let number =
            |mac: &MacAddr| mac.0.iter().fold(0u64, |all, octet| all << 8 | u64::from(*octet));
        let macs = self.ignored().macs.iter();
        Ok(json!(macs.map(|mac| json!({ "mac_addr": number(mac) })).collect::<Vec<_>>()))
    }

    pub(super) fn ignored_ips(&self) -> Answer {
        let number = |ip: &IpAddr| match ip {
            IpAddr::V4(ip) => Some(json!({ "ip": u32::from(*ip) })),
            IpAddr::V6(_) => None,
        };
        Ok(json!(self.ignored().ips.iter().filter_map(number).collect::<Vec<_>>()))
    }

    pub(super) fn ignore_macs(&mut self, params: &Params<'_>) -> Answer {
        let macs = numbers(params, "mac_list", "mac_addr", 1 << 48)?;
        let macs = macs.into_iter().map(|mac| {
            let [_, _, octets @ ..] = mac.to_be_bytes();
            MacAddr(octets)
        });
        let macs = macs.collect();
        self.ignore(Ignored { macs, ..self.ignored().clone() })
    }

    pub(super) fn ignore_ips(&mut self, params: &Params<'_>) -> Answer {
        let ips = numbers(params, "ip_list", "ip", 1 << 32)?;
        let ips = ips.into_iter().map(|ip| IpAddr::V4(Ipv4Addr::from(ip as u32))).collect();
        self.ignore(Ignored { ips, ..self.ignored().clone() })
    }

    pub(super) fn ignore(&mut self, senders: Ignored) -> Answer {
        if let Some(flows) = &mut self.flows {
            flows.ignored = senders;
        }
        self.ignore_in_run()?;
        Ok(json!({}))
    }

    /// Applies the ignored senders to the current run, if any.
    pub(super) fn ignore_in_run(&self) -> Result<(), Refusal> {
        let senders = self.ignored().clone();
        Ok(self.traffic.with(|run| {
            run.ignore(senders);
            Ok(())
        })?)
    }
}

fn has(ranges: &[(Ipv4Addr, Ipv4Addr)], ip: Ipv4Addr) -> bool {
    ranges.iter().any(|(first, last)| (*first..=*last).contains(&ip))
}

/// The clients that a request names, one by one.
fn asked_clients(params: &Params<'_>) -> Result<Vec<Ipv4Addr>, Refusal> {
    let number = |value: &Value, key: &str| {
        let ip = value[key].as_u64().and_then(|ip| u32::try_from(ip).ok());
        let wrong = || format!("attr: {key}: expected an IPv4 address as a number");
        ip.ok_or_else(|| Refusal::parameters(wrong()))
    };
    let (first, last) = match params.flag("is_range") {
        true => ("client_start_ip", "client_end_ip"),
        false => ("client_ip", "client_ip"),
    };
    let mut all = Vec::new();
    for one in params.list("attr")? {
        let (first, last) = (number(one, first)?, number(one, last)?);
        let count = u64::from(last.saturating_sub(first)) + 1;
        if last < first || all.len() as u64 + count > MOST_CLIENTS {
            let text = format!("attr: expected 1 to {MOST_CLIENTS} clients, the first one first");
            return Err(Refusal::parameters(text));
        }
        all.extend((first..=last).map(Ipv4Addr::from));
    }
    Ok(all)
}

fn numbers(params: &Params<'_>, list: &str, key: &str, below: u64) -> Result<Vec<u64>, Refusal> {
    let all = params.list(list)?;
    if all.len() > MOST_IGNORED {
        let text = format!("{list} of {}: expected at most {MOST_IGNORED}", all.len());
        return Err(Refusal::parameters(text));
    }
    let number = |value: &Value| value[key].as_u64().filter(|number| *number < below);
    let wrong = || Refusal::parameters(format!("{list}: {key}: expected numbers below {below}"));
    all.iter().map(|value| number(value).ok_or_else(wrong)).collect()
}

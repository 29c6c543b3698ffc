//! The state of a daemon's runs, as received from the daemon.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use squall_report::render::{PortRow, StreamRow};
use squall_server::{
    RunRow, RunState, WatchEvent, WatchedHosts, WatchedPort, WatchedSource, WatchedStream,
};

/// Maximum number of ended runs to show.
const OVER: usize = 3;

#[derive(Debug, Default)]
pub struct Picture {
    /// Active runs, oldest first, followed by the runs that ended last.
    pub runs: Vec<Seen>,
    /// Speed in bits per second, by interface.
    links: BTreeMap<String, u64>,
}

#[derive(Debug)]
pub struct Seen {
    pub row: RunRow,
    /// Time of the latest sample.
    t_s: Option<f64>,
    ports: Vec<(String, WatchedPort)>,
    streams: Vec<(String, WatchedStream)>,
    sources: Vec<WatchedSource>,
    pub hosts: Vec<WatchedHosts>,
}

impl Picture {
    /// Applies an event. Returns whether there is a new active run.
    pub fn apply(&mut self, update: WatchEvent) -> bool {
        match update {
            WatchEvent::Hello { runs } => {
                // Drop active runs: their end may have been missed, or the daemon may have been
                // restarted.
                self.runs.retain(|seen| seen.row.state.is_over());
                let any = !runs.is_empty();
                runs.into_iter().for_each(|row| _ = self.put(row));
                return any;
            }
            WatchEvent::Run { run } => return self.put(*run),
            WatchEvent::Names { run, ports, streams } => {
                if let Some(seen) = self.find(&run) {
                    seen.ports =
                        ports.into_iter().map(|name| (name, WatchedPort::default())).collect();
                    seen.streams =
                        streams.into_iter().map(|name| (name, WatchedStream::default())).collect();
                }
            }
            WatchEvent::Sample { run, t_s, ports, streams, sources, hosts } => {
                if let Some(seen) = self.find(&run) {
                    (seen.t_s, seen.sources, seen.hosts) = (Some(t_s), sources, hosts);
                    seen.row.elapsed_s = t_s;
                    ports
                        .into_iter()
                        .for_each(|row| _ = seen.ports.get_mut(row.0).map(|port| port.1 = row));
                    streams.into_iter().for_each(|row| {
                        _ = seen.streams.get_mut(row.0).map(|stream| stream.1 = row)
                    });
                }
            }
            // Forget a run that ended without a final state.
            WatchEvent::Ended { id } => {
                self.runs.retain(|seen| seen.row.id != id || seen.row.state.is_over())
            }
            WatchEvent::Other => {}
        }
        false
    }

    /// Updates a run. Returns whether it is a new active run.
    pub fn put(&mut self, row: RunRow) -> bool {
        let over = row.state.is_over();
        let new = match self.find(&row.id) {
            Some(seen) => {
                // Ignore a response that was sent before the run ended.
                if over || !seen.row.state.is_over() {
                    seen.row = row;
                }
                false
            }
            None => {
                let (ports, streams) = (Vec::new(), Vec::new());
                let (sources, hosts) = (Vec::new(), Vec::new());
                self.runs.push(Seen { row, t_s: None, ports, streams, sources, hosts });
                !over
            }
        };
        self.runs.sort_by(|a, b| {
            (a.row.state.is_over(), &a.row.id).cmp(&(b.row.state.is_over(), &b.row.id))
        });
        let mut old =
            self.runs.iter().filter(|seen| seen.row.state.is_over()).count().saturating_sub(OVER);
        self.runs.retain(|seen| {
            let keep = old == 0 || !seen.row.state.is_over();
            old -= usize::from(!keep);
            keep
        });
        new
    }

    /// Updates the link speeds from the daemon's list of ports.
    pub fn links(&mut self, ports: &Value) {
        let speed = |port: &Value| {
            Some((port["interface"].as_str()?.to_owned(), port["speed_bps"].as_u64()?))
        };
        self.links = ports["ports"].as_array().into_iter().flatten().filter_map(speed).collect();
    }

    /// Whether each active run has figures.
    pub fn has_all(&self) -> bool {
        self.runs.iter().all(|seen| seen.t_s.is_some() || seen.row.state.is_over())
    }

    fn find(&mut self, id: &str) -> Option<&mut Seen> {
        self.runs.iter_mut().find(|seen| seen.row.id == id)
    }

    /// Link speed of the port with this name.
    fn speed(&self, seen: &Seen, name: &str) -> Option<u64> {
        let port = seen.row.ports.iter().find(|port| port.name == name)?;
        self.links.get(&squall_machine::ports::interface_of(&port.address)?).copied()
    }

    pub fn ports(&self, seen: &Seen) -> Vec<PortRow> {
        let row = |(name, port): &(String, WatchedPort)| PortRow {
            name: name.clone(),
            tx_pps: port.1,
            tx_bps_l1: port.2,
            rx_pps: port.3,
            rx_bps_l1: port.4,
            sent: Some(port.5),
            received: Some(port.6),
            drops: port.7,
            speed_bps: self.speed(seen, name),
        };
        seen.ports.iter().map(row).collect()
    }

    /// The state as one line of JSON.
    pub fn json(&self, url: &str) -> Value {
        let port = |seen: &Seen, name: &str, port: &WatchedPort| {
            json!({
                "name": name, "tx_pps": port.1, "tx_bps_l1": port.2, "rx_pps": port.3, "rx_bps_l1": port.4,
                "tx_packets": port.5, "rx_packets": port.6, "drops": port.7, "speed_bps": self.speed(seen, name),
            })
        };
        let stream = |name: &str, stream: &WatchedStream| {
            json!({
                "name": name, "tx_pps": stream.1, "rx_pps": stream.4.map(|_| stream.2), "tx_packets": stream.3,
                "rx_packets": stream.4, "lost": stream.5, "latency_p50_ns": stream.6, "latency_p99_ns": stream.7,
                "latency_max_ns": stream.8, "late_p99_ns": stream.9,
            })
        };
        let run = |seen: &Seen| {
            let mut run = json!(seen.row);
            run["t_s"] = json!(seen.t_s);
            run["ports"] = seen.ports.iter().map(|(name, row)| port(seen, name, row)).collect();
            let source = |(name, unit, due, sent, lag_s, lags): &WatchedSource| {
                json!({
                    "name": name, "unit": unit, "due": due, "sent": sent, "lag_s": lag_s,
                    "behind": lags,
                })
            };
            run["sources"] = seen.sources.iter().map(source).collect();
            let hosts = |(name, hosts, started, states, ipv6): &WatchedHosts| json!({ "name": name, "hosts": hosts, "started": started, "states": states, "ipv6": ipv6 });
            run["hosts"] = seen.hosts.iter().map(hosts).collect();
            run["streams"] = seen.streams.iter().map(|(name, row)| stream(name, row)).collect();
            run
        };
        json!({ "url": url, "runs": self.runs.iter().map(run).collect::<Vec<_>>() })
    }
}

impl Seen {
    pub fn streams(&self) -> Vec<StreamRow> {
        let row = |(name, stream): &(String, WatchedStream)| StreamRow {
            name: name.clone(),
            tx_pps: stream.1,
            rx_pps: stream.4.map(|_| stream.2),
            lost: stream.5,
            p50_ns: stream.6,
            p99_ns: stream.7,
            max_ns: stream.8,
            late_p99_ns: stream.9,
        };
        self.streams.iter().map(row).collect()
    }

    /// Sources that are later, or miss more frames, than the verdict permits.
    pub fn lagging(&self) -> impl Iterator<Item = &WatchedSource> {
        let goes_on = self.row.state == RunState::Running;
        self.sources.iter().filter(move |source| goes_on && source.5)
    }

    pub fn stream_name(&self, i: usize) -> Option<&str> {
        self.streams.get(i).map(|(name, _)| name.as_str())
    }

    /// Numbers of ports and streams shown.
    pub fn rows(&self) -> (usize, usize) {
        (self.ports.len(), self.streams.len())
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use squall_server::{RunKind, RunPort};

    pub fn run(id: &str, state: RunState) -> RunRow {
        RunRow {
            id: id.into(),
            name: format!("run {id}"),
            note: String::new(),
            kind: RunKind::Streams,
            parts: Vec::new(),
            state,
            verdict: None,
            passed: None,
            error: None,
            owner: "alice".into(),
            lease: None,
            started: "2026-11-22T12:00:00Z".into(),
            ended: None,
            elapsed_s: 0.0,
            duration_s: None,
            ports: vec![
                RunPort { name: "A".into(), address: "af_packet:eth1".into() },
                RunPort { name: "B".into(), address: "loop:0".into() },
            ],
            streams: 2,
            mult: Some(1.0),
            sent_all: false,
            lapses: 0,
            test: None,
            cluster: None,
        }
    }

    pub fn event(text: &str) -> WatchEvent {
        serde_json::from_str(text).expect(text)
    }

    /// One run that has two ports and two streams.
    pub fn picture() -> Picture {
        let mut picture = Picture::default();
        assert!(picture.apply(WatchEvent::Hello { runs: vec![run("r-1", RunState::Running)] }));
        assert!(!picture.has_all());
        picture.apply(event(
            r#"{"type":"names","run":"r-1","ports":["A","B"],"streams":["web","dns"]}"#,
        ));
        picture.apply(event(
            r#"{"type":"sample","run":"r-1","t_s":1.5,"ports":[[0,1000.5,672000,0,0,1500,0,3],[1,0,0,990,665280,0,1490,0]],
                "streams":[[0,1000,990,1500,1490,10,2000,5000,9000,350],[1,5,0,7,null,null,null,null,null,null]]}"#,
        ));
        picture
    }

    #[test]
    fn rows_have_the_latest_sample() {
        let mut picture = picture();
        assert!(picture.has_all());
        picture.apply(event(
            r#"{"type":"sample","run":"r-1","t_s":2,"ports":[],"streams":[[1,6,0,9,null,null,null,null,null,1]]}"#,
        ));
        // Samples for an unknown run and unknown rows.
        picture.apply(event(
            r#"{"type":"sample","run":"r-9","t_s":2,"ports":[[0,1,1,1,1,1,1,1]],"streams":[]}"#,
        ));
        picture.apply(event(
            r#"{"type":"sample","run":"r-1","t_s":2,"ports":[[7,1,1,1,1,1,1,1]],"streams":[]}"#,
        ));
        picture.apply(event(r#"{"type":"leases","leases":[]}"#));
        picture.links(
            &json!({ "ports": [{ "interface": "eth1", "speed_bps": 10_000_000_000_u64 }, { "interface": null }] }),
        );
        let seen = &picture.runs[0];
        let (ports, streams) = (picture.ports(seen), seen.streams());
        assert_eq!(
            (ports[0].tx_pps, ports[0].drops, ports[0].speed_bps),
            (1000.5, 3, Some(10_000_000_000))
        );
        assert_eq!((ports[1].received, ports[1].speed_bps), (Some(1490), None));
        assert_eq!(
            (streams[0].lost, streams[0].max_ns, streams[0].rx_pps),
            (Some(10), Some(9000), Some(990.0))
        );
        assert_eq!(
            (streams[1].tx_pps, streams[1].rx_pps, streams[1].late_p99_ns),
            (6.0, None, Some(1))
        );
        let line = picture.json("https://a");
        let run = &line["runs"][0];
        assert_eq!(
            (&run["id"], &run["state"], &run["t_s"]),
            (&json!("r-1"), &json!("running"), &json!(2.0))
        );
        assert_eq!(run["ports"][0]["speed_bps"], 10_000_000_000_u64);
        assert_eq!(
            (&run["streams"][0]["lost"], &run["streams"][1]["rx_pps"]),
            (&json!(10), &Value::Null)
        );
    }

    #[test]
    fn active_runs_come_before_the_last_that_ended() {
        let mut picture = picture();
        for i in 2..8 {
            assert!(picture.apply(WatchEvent::Run {
                run: Box::new(run(&format!("r-{i}"), RunState::Running))
            }));
            assert!(
                !picture.apply(WatchEvent::Run {
                    run: Box::new(run(&format!("r-{i}"), RunState::Done))
                })
            );
            picture.apply(WatchEvent::Ended { id: format!("r-{i}") });
        }
        let shown = |picture: &Picture| {
            picture.runs.iter().map(|seen| seen.row.id.clone()).collect::<Vec<_>>()
        };
        assert_eq!(shown(&picture), ["r-1", "r-5", "r-6", "r-7"]);
        // A late answer does not revive an ended run.
        picture.put(run("r-7", RunState::Stopping));
        assert_eq!(picture.runs[3].row.state, RunState::Done);
        picture.apply(WatchEvent::Ended { id: "r-1".into() });
        assert_eq!(shown(&picture), ["r-5", "r-6", "r-7"]);
        // The daemon was restarted.
        picture.apply(WatchEvent::Hello { runs: vec![run("r-9", RunState::Running)] });
        assert_eq!(shown(&picture), ["r-9", "r-5", "r-6", "r-7"]);
    }
}

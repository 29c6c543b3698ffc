//! `/metrics`, in the text format of Prometheus.

use std::{fmt::Write, sync::Arc, sync::atomic::Ordering};

use axum::{
    extract::State,
    http::header,
    response::{IntoResponse, Response},
};

use crate::{
    Refusal,
    api::{Operation, Routes},
    runs::{RunRow, lock},
    service::Service,
    threads::blocking,
};

/// Streams of a run that are told; with more, their sums alone.
const STREAMS: usize = 1000;

pub fn routes() -> Routes {
    let says = Operation::new("daemon", "Counters of live runs and of the daemon, for Prometheus");
    Routes::new().get("/metrics", metrics, says.gives_octets("text/plain"))
}

async fn metrics(State(service): State<Arc<Service>>) -> Result<Response, Refusal> {
    let text = blocking(move || Ok(text(&service))).await?;
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response())
}

#[derive(Default)]
struct Families(Vec<(&'static str, &'static str, &'static str, String)>);

impl Families {
    /// One line of the family, which is told of when it comes first.
    fn add(&mut self, name: &'static str, kind: &'static str, help: &'static str, labels: &[(&str, &str)], value: f64) {
        let at = match self.0.iter().position(|family| family.0 == name) {
            Some(at) => at,
            None => {
                self.0.push((name, kind, help, String::new()));
                self.0.len() - 1
            }
        };
        let lines = &mut self.0[at].3;
        lines.push_str(name);
        for (i, (label, value)) in labels.iter().enumerate() {
            _ = write!(lines, "{}{label}=\"{}\"", if i == 0 { "{" } else { "," }, escaped(value));
        }
        _ = writeln!(lines, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    fn text(self) -> String {
        let family = |(name, kind, help, lines)| format!("# HELP {name} {help}\n# TYPE {name} {kind}\n{lines}");
        self.0.into_iter().map(family).collect()
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn text(service: &Service) -> String {
    let mut all = Families::default();
    all.add(
        "squall_uptime_seconds",
        "gauge",
        "Since the daemon started.",
        &[("version", env!("CARGO_PKG_VERSION"))],
        service.since.elapsed().as_secs_f64(),
    );
    let live = service.runs.all();
    all.add("squall_runs", "gauge", "Runs that go on.", &[], live.len() as f64);
    let started = service.runs.started.load(Ordering::Relaxed);
    all.add("squall_runs_started_total", "counter", "Runs since the daemon started.", &[], started as f64);
    all.add("squall_leases", "gauge", "Leases of ports.", &[], lock(&service.leases).all().count() as f64);
    for (status, count) in service.log.counts() {
        let status = status.to_string();
        all.add(
            "squall_requests_total",
            "counter",
            "Requests by status of the reply.",
            &[("status", &status)],
            count as f64,
        );
    }
    for live in live {
        let row = live.row();
        let labels =
            [("run", row.id.as_str()), ("name", &row.name), ("kind", row.kind.word()), ("state", row.state.word())];
        all.add("squall_run_state", "gauge", "1 for the state that a run is in.", &labels, 1.0);
        let labels = [("run", row.id.as_str())];
        all.add("squall_run_elapsed_seconds", "gauge", "Since the run started.", &labels, row.elapsed_s);
        if let Some(moment) = live.moment() {
            run(&mut all, &row, &moment.report);
        }
    }
    all.text()
}

fn run(all: &mut Families, row: &RunRow, report: &squall::report::Report) {
    for port in &report.ports {
        let labels = [("port", port.name.as_str()), ("run", &row.id)];
        let mut count = |name, help, value: u64| all.add(name, "counter", help, &labels, value as f64);
        count("squall_port_tx_packets_total", "Frames that the port took for good.", port.tx.packets);
        count("squall_port_tx_octets_total", "Octets of them, with FCS.", port.tx.octets);
        count("squall_port_tx_errors_total", "Frames that the port refused.", port.tx.errors);
        count("squall_port_rx_packets_total", "Frames received.", port.rx.packets);
        count("squall_port_rx_octets_total", "Octets of them, with FCS.", port.rx.octets);
        for (reasons, name, help) in [
            (&port.tx.not_sent, "squall_port_not_sent_packets_total", "Frames that were due and not sent, by reason."),
            (&port.rx.drops, "squall_port_rx_dropped_packets_total", "Frames lost on receiving, by reason."),
        ] {
            for (reason, value) in reasons {
                let labels = [("port", port.name.as_str()), ("run", &row.id), ("reason", reason)];
                all.add(name, "counter", help, &labels, *value as f64);
            }
        }
    }
    for stream in report.streams.iter().take(STREAMS) {
        let labels = [("stream", stream.name.as_str()), ("run", &row.id)];
        all.add(
            "squall_stream_tx_packets_total",
            "counter",
            "Frames sent of a stream.",
            &labels,
            stream.tx_packets as f64,
        );
        let Some(rx) = &stream.rx else { continue };
        let counts = [
            ("squall_stream_rx_packets_total", "Frames received of a stream.", rx.packets),
            ("squall_stream_duplicate_packets_total", "Frames that came again.", rx.duplicates),
            ("squall_stream_reordered_packets_total", "Frames that came late (RFC 4737).", rx.reordered),
        ];
        for (name, help, value) in counts {
            all.add(name, "counter", help, &labels, value as f64);
        }
        // It may shrink: what is on its way counts as lost until it comes.
        all.add("squall_stream_lost_packets_total", "gauge", "Gaps in the sequence so far.", &labels, rx.lost as f64);
        let Some(latency) = &rx.latency_ns else { continue };
        for (quantile, ns) in [
            ("0.5", latency.p50),
            ("0.9", latency.p90),
            ("0.99", latency.p99),
            ("0.999", latency.p999),
            ("1", latency.max),
        ] {
            let labels = [("stream", stream.name.as_str()), ("run", &row.id), ("quantile", quantile)];
            all.add(
                "squall_stream_latency_seconds",
                "gauge",
                "One-way delay since the start (RFC 7679).",
                &labels,
                ns as f64 / 1e9,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_cannot_break_out_of_their_line() {
        let mut all = Families::default();
        all.add("a", "gauge", "A.", &[("stream", "x\"} 1\nb 2\\")], 0.5);
        all.add("a", "gauge", "A.", &[], 1.0);
        assert_eq!(all.text(), "# HELP a A.\n# TYPE a gauge\na{stream=\"x\\\"} 1\\nb 2\\\\\"} 0.5\na 1\n");
    }
}

//! `/metrics` for Prometheus: its text format, or OpenMetrics if the client accepts that.

use std::{
    fmt::{self, Write as _},
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant, SystemTime},
};

use axum::{
    extract::State,
    http::{HeaderMap, header},
    response::{IntoResponse, Response},
};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text},
    metrics::MetricType,
    registry::Registry,
};
use squall::report::{
    Distribution, PortReport, Report, StreamReport, StreamRx,
    flows::{RoleReport, RolesReport, TemplateReport, TlsReport},
};

use crate::{
    Refusal,
    api::{Operation, Routes},
    cluster::ClusterProgress,
    runs::{RunRow, lock},
    service::Service,
    threads::blocking,
};

/// Maximum number of streams to export, because each stream adds many series. For runs with more
/// streams, only sums are exported.
const STREAMS: usize = 1000;
/// Maximum number of templates of flows to export.
const TEMPLATES: usize = 100;
/// Time for which the series of a run stay after its end, long enough for several scrapes of its
/// last values.
pub const STAY: Duration = Duration::from_secs(300);
/// Maximum number of ended runs whose series stay, because one run may have thousands of series.
pub const STAYING: usize = 16;

/// The exported part of an ended run. Kept instead of its report, which may have tens of thousands
/// of streams with all their bins.
#[derive(Default)]
pub struct Figures {
    ports: Vec<PortReport>,
    streams: Vec<StreamReport>,
    templates: Vec<TemplateReport>,
}

impl Figures {
    pub fn of(report: &Report) -> Self {
        let received = |rx: &StreamRx| {
            Box::new(StreamRx {
                known_by: rx.known_by,
                packets: rx.packets,
                duplicates: rx.duplicates,
                reordered: rx.reordered,
                lost: rx.lost,
                latency_ns: rx.latency_ns.as_ref().map(in_buckets),
                ..StreamRx::default()
            })
        };
        let streams = report.streams.iter().take(STREAMS).map(|stream| StreamReport {
            name: stream.name.clone(),
            tx_packets: stream.tx_packets,
            rx: stream.rx.as_deref().map(received),
            ..StreamReport::default()
        });
        let templates = templates(report).iter().take(TEMPLATES).map(|template| TemplateReport {
            name: template.name.clone(),
            roles: RolesReport {
                client: template.roles.client.as_ref().map(exported),
                server: template.roles.server.as_ref().map(exported),
            },
        });
        Self {
            ports: report.ports.clone(),
            streams: streams.collect(),
            templates: templates.collect(),
        }
    }
}

fn templates(report: &Report) -> &[TemplateReport] {
    report.flows.as_ref().map_or(&[], |flows| &flows.templates)
}

/// The exported figures.
fn exported(role: &RoleReport) -> RoleReport {
    let times = |of: &Option<Distribution>| of.as_ref().map(in_buckets);
    RoleReport {
        attempted: role.attempted,
        completed: role.completed,
        failed: role.failed.clone(),
        active: role.active,
        received_octets: role.received_octets,
        sent_octets: role.sent_octets,
        http: role.http.clone(),
        setup_ns: times(&role.setup_ns),
        first_byte_ns: times(&role.first_byte_ns),
        first_byte_from_start_ns: times(&role.first_byte_from_start_ns),
        transaction_ns: times(&role.transaction_ns),
        tls: role
            .tls
            .as_ref()
            .map(|tls| TlsReport { handshake_ns: times(&tls.handshake_ns), ..tls.clone() }),
        http2: role.http2.clone(),
        http3: role.http3.clone(),
        ..RoleReport::default()
    }
}

pub fn routes() -> Routes {
    let doc = Operation::new("daemon", "Get counters of runs and of the daemon, for Prometheus");
    Routes::new().get("/metrics", metrics, doc.gives_octets("text/plain"))
}

async fn metrics(
    State(service): State<Arc<Service>>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let accept =
        headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let open = accept.contains("application/openmetrics-text");
    let text = blocking(move || {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(all(&service)));
        let mut text = String::new();
        text::encode(&mut text, &registry).map_err(|error| Refusal::internal(error.to_string()))?;
        Ok(if open { text } else { plain(&text) })
    })
    .await?;
    let kind = match open {
        true => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        false => "text/plain; version=0.0.4; charset=utf-8",
    };
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

/// Converts OpenMetrics to Prometheus' text format. There, a counter's family has the same name as
/// its samples (with `_total`), and there are no units and no end mark.
fn plain(open: &str) -> String {
    let (mut text, mut help) = (String::with_capacity(open.len()), None);
    for line in open.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            // Kept until TYPE, because HELP comes first, and TYPE determines the name.
            (Some("#"), Some("HELP"), Some(_), text_of_help) => help = text_of_help,
            (Some("#"), Some("TYPE"), Some(name), Some(kind)) => {
                let (suffix, kind) = match kind {
                    "counter" => ("_total", "counter"),
                    "info" => ("_info", "gauge"),
                    kind => ("", kind),
                };
                _ = writeln!(text, "# HELP {name}{suffix} {}", help.take().unwrap_or_default());
                _ = writeln!(text, "# TYPE {name}{suffix} {kind}");
            }
            (Some("#"), ..) => {}
            _ => {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    text
}

/// All metric families of one scrape.
#[derive(Debug, Default)]
struct Families(Vec<Family>);

#[derive(Debug)]
struct Family {
    name: &'static str,
    help: &'static str,
    kind: MetricType,
    samples: Vec<(Labels, Value)>,
}

type Labels = Vec<(&'static str, String)>;
type Label<'a> = (&'static str, &'a str);

#[derive(Debug)]
enum Value {
    Count(u64),
    Number(f64),
    /// The value 1, with informative labels.
    Info,
    /// Sum, count, and cumulative counts by bound.
    Histogram(f64, u64, Vec<(f64, u64)>),
}

impl Families {
    fn add(
        &mut self,
        name: &'static str,
        help: &'static str,
        kind: MetricType,
        labels: &Labels,
        value: Value,
    ) {
        let at = match self.0.iter().position(|family| family.name == name) {
            Some(at) => at,
            None => {
                self.0.push(Family { name, help, kind, samples: Vec::new() });
                self.0.len() - 1
            }
        };
        self.0[at].samples.push((labels.clone(), value));
    }

    /// Adds a counter. OpenMetrics requires the suffix `_total` on its samples.
    fn count(&mut self, name: &'static str, help: &'static str, labels: &Labels, value: u64) {
        self.add(name, help, MetricType::Counter, labels, Value::Count(value));
    }

    fn gauge(&mut self, name: &'static str, help: &'static str, labels: &Labels, value: f64) {
        self.add(name, help, MetricType::Gauge, labels, Value::Number(value));
    }
}

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for family in &self.0 {
            let mut encoder =
                encoder.encode_descriptor(family.name, family.help, None, family.kind)?;
            for (labels, value) in &family.samples {
                match value {
                    Value::Info => encoder.encode_info(labels)?,
                    // The encoder would write an empty set of labels as `{}`.
                    value if labels.is_empty() => value.encode(family.kind, &mut encoder)?,
                    value => value.encode(family.kind, &mut encoder.encode_family(labels)?)?,
                }
            }
        }
        Ok(())
    }
}

impl Value {
    fn encode(&self, kind: MetricType, encoder: &mut MetricEncoder<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => encoder.encode_counter::<NoLabelSet, u64, f64>(count, None),
            Self::Number(number) if matches!(kind, MetricType::Counter) => {
                encoder.encode_counter::<NoLabelSet, f64, f64>(number, None)
            }
            Self::Number(number) => encoder.encode_gauge(number),
            Self::Histogram(sum, count, buckets) => {
                encoder.encode_histogram::<NoLabelSet>(*sum, *count, buckets, None)
            }
            Self::Info => Ok(()),
        }
    }
}

fn all(service: &Service) -> Families {
    let mut all = Families::default();
    let none = Labels::new();
    let version = vec![("version", env!("CARGO_PKG_VERSION").to_owned())];
    all.add("squall_build", "The daemon's version", MetricType::Info, &version, Value::Info);
    let live = service.runs.all();
    all.gauge("squall_runs", "Running runs", &none, live.len() as f64);
    let started = service.runs.started.load(Ordering::Relaxed);
    all.count("squall_runs_started", "Runs since the daemon started", &none, started);
    all.gauge(
        "squall_leases",
        "Leases of ports",
        &none,
        lock(&service.leases).all().count() as f64,
    );
    for (status, count) in service.log.counts() {
        let labels = vec![("status", status.to_string())];
        all.count("squall_requests", "Requests by status of the reply", &labels, count);
    }
    process(&mut all, service.started);
    for live in live {
        let latest = live.latest();
        let figures = latest.as_ref().map(|latest| {
            let report = &latest.report;
            (&*report.ports, &*report.streams, templates(report))
        });
        run(&mut all, &live.row(), figures);
    }
    for (row, figures) in service.runs.lately(Instant::now()) {
        let figures = (&*figures.ports, &*figures.streams, &*figures.templates);
        run(&mut all, &row, Some(figures));
    }
    all
}

type RunFigures<'a> = (&'a [PortReport], &'a [StreamReport], &'a [TemplateReport]);

fn run(all: &mut Families, row: &RunRow, figures: Option<RunFigures<'_>>) {
    let of = |more: &[Label<'_>]| -> Labels {
        let run = [("run", row.id.as_str())];
        run.iter().chain(more).map(|(name, value)| (*name, (*value).to_owned())).collect()
    };
    let labels = of(&[("name", &row.name), ("kind", row.kind.word()), ("state", row.state.word())]);
    all.gauge("squall_run_state", "1 for the state of a run, current or final", &labels, 1.0);
    all.gauge("squall_run_elapsed_seconds", "Time since the run started", &of(&[]), row.elapsed_s);
    if let Some(test) = &row.test {
        let labels = of(&[("method", &test.method)]);
        all.gauge(
            "squall_test_trials",
            "Trials that a standard test has begun",
            &labels,
            test.trial as f64,
        );
        let help = "Trials that a standard test takes, as estimated before its start";
        all.gauge("squall_test_estimated_trials", help, &labels, test.estimate.trials as f64);
    }
    if let Some(cluster) = &row.cluster {
        nodes(all, cluster, of);
    }
    let Some((ports, streams, templates)) = figures else { return };
    for port in ports {
        let interface = squall_machine::ports::interface_of(&port.address).unwrap_or_default();
        let here = [("port", port.name.as_str()), ("interface", interface.as_str())];
        let labels = of(&here);
        let mut count = |name, help, value| all.count(name, help, &labels, value);
        count("squall_port_tx_packets", "Frames that the port accepted", port.tx.packets);
        count("squall_port_tx_bytes", "Octets of the frames sent, with FCS", port.tx.octets);
        count("squall_port_tx_errors", "Frames that the port refused", port.tx.errors);
        count("squall_port_rx_packets", "Frames received", port.rx.packets);
        count("squall_port_rx_bytes", "Octets of the frames received, with FCS", port.rx.octets);
        for (reasons, name, help) in [
            (
                &port.tx.not_sent,
                "squall_port_not_sent_packets",
                "Frames that were due and not sent, by reason",
            ),
            (
                &port.rx.drops,
                "squall_port_rx_dropped_packets",
                "Frames lost on receiving, by reason",
            ),
        ] {
            for (reason, value) in reasons {
                all.count(name, help, &of(&[here[0], here[1], ("reason", reason)]), *value);
            }
        }
    }
    for stream in streams.iter().take(STREAMS) {
        let labels = of(&[("stream", &stream.name)]);
        all.count(
            "squall_stream_tx_packets",
            "Frames sent of a stream",
            &labels,
            stream.tx_packets,
        );
        let Some(rx) = &stream.rx else { continue };
        let mut count = |name, help, value| all.count(name, help, &labels, value);
        count("squall_stream_rx_packets", "Frames received of a stream", rx.packets);
        if rx.is_signed() {
            count("squall_stream_duplicate_packets", "Duplicate frames (RFC 5560)", rx.duplicates);
            count("squall_stream_reordered_packets", "Reordered frames (RFC 4737)", rx.reordered);
        }
        // A gauge, because the value can decrease: frames in flight count as lost until they
        // arrive.
        all.gauge(
            "squall_stream_lost_packets",
            "Gaps in the sequence so far",
            &labels,
            rx.lost as f64,
        );
        if let Some(latency) = &rx.latency_ns {
            let help = "One-way delay since the start (RFC 7679)";
            all.add(
                "squall_stream_latency_seconds",
                help,
                MetricType::Histogram,
                &labels,
                seconds(latency),
            );
        }
    }
    for template in templates.iter().take(TEMPLATES) {
        let TemplateReport { name, roles } = template;
        for (side, role) in [("client", &roles.client), ("server", &roles.server)] {
            let Some(role) = role else { continue };
            let here = [("template", name.as_str()), ("side", side)];
            flows(all, role, |more| of(&[&here[..], more].concat()));
        }
    }
}

/// Adds the metrics of a template's flows at one end.
fn flows(all: &mut Families, role: &RoleReport, of: impl Fn(&[Label<'_>]) -> Labels) {
    let labels = of(&[]);
    all.gauge("squall_flow_active", "Open flows", &labels, role.active as f64);
    let mut count = |name, help, value| all.count(name, help, &labels, value);
    count("squall_flow_attempted", "Flows that started", role.attempted);
    count("squall_flow_completed", "Flows that ended normally", role.completed);
    count("squall_flow_received_bytes", "Application data received", role.received_octets);
    count("squall_flow_sent_bytes", "Application data sent", role.sent_octets);
    for (name, help, kind, counts) in [
        ("squall_flow_failed", "Flows that failed, by reason", "reason", &role.failed),
        ("squall_flow_http_responses", "HTTP responses by class", "class", &role.http),
    ] {
        for (word, n) in counts {
            all.count(name, help, &of(&[(kind, word)]), *n);
        }
    }
    let (setup, tls) = (role.setup_ns.as_ref(), role.tls.as_ref());
    for (name, help, times) in [
        ("squall_flow_setup_seconds", "From the SYN to the end of the handshake", setup),
        (
            "squall_flow_tls_handshake_seconds",
            "From the end of TCP's handshake to the end of that of TLS",
            tls.and_then(|tls| tls.handshake_ns.as_ref()),
        ),
        (
            "squall_flow_first_byte_seconds",
            "From a request to the first octet of its answer",
            role.first_byte_ns.as_ref(),
        ),
        (
            "squall_flow_first_byte_from_start_seconds",
            "From the start of a flow to the first octet of its first answer",
            role.first_byte_from_start_ns.as_ref(),
        ),
        (
            "squall_flow_transaction_seconds",
            "From a request to the last octet of its answer",
            role.transaction_ns.as_ref(),
        ),
    ] {
        if let Some(times) = times {
            all.add(name, help, MetricType::Histogram, &labels, seconds(times));
        }
    }
    if let Some(tls) = tls {
        let help = "TLS handshakes";
        for (resumed, n) in
            [("no", tls.handshakes.saturating_sub(tls.resumed)), ("yes", tls.resumed)]
        {
            all.count("squall_flow_tls_handshakes", help, &of(&[("resumed", resumed)]), n);
        }
        let help = "TLS sessions with early data (0-RTT): offered by clients, of these accepted or refused";
        for (outcome, n) in [
            ("offered", tls.early_offered),
            ("accepted", tls.early_accepted),
            ("refused", tls.early_refused),
        ] {
            all.count("squall_flow_tls_early_data", help, &of(&[("outcome", outcome)]), n);
        }
    }
    // Two types with the same fields.
    macro_rules! heads {
        ($of:expr) => {{
            let of = $of;
            let sent = (of.head_octets_sent, of.compressed_octets_sent, &of.resets_sent);
            let received =
                (of.head_octets_received, of.compressed_octets_received, &of.resets_received);
            (of.streams, [("sent", sent), ("received", received)])
        }};
    }
    let http2 = role.http2.as_ref().map(|of| ("2", heads!(of)));
    let http3 = role.http3.as_ref().map(|of| ("3", heads!(of)));
    for (version, (streams, directions)) in http2.into_iter().chain(http3) {
        let help = "Streams of HTTP/2 and HTTP/3";
        all.count("squall_flow_http_streams", help, &of(&[("version", version)]), streams);
        for (direction, (octets, compressed, resets)) in directions {
            let here = [("version", version), ("direction", direction)];
            let help = "Octets of header fields before compression (HPACK, QPACK)";
            all.count("squall_flow_http_field_bytes", help, &of(&here), octets);
            let help = "Octets of header fields after compression";
            all.count("squall_flow_http_compressed_field_bytes", help, &of(&here), compressed);
            for (code, n) in resets {
                let help = "Streams that were reset, by error code";
                let labels = of(&[here[0], here[1], ("code", code)]);
                all.count("squall_flow_http_resets", help, &labels, *n);
            }
        }
    }
}

/// Adds the metrics of a run over several machines: totals, and figures for each node.
fn nodes(all: &mut Families, cluster: &ClusterProgress, of: impl Fn(&[Label<'_>]) -> Labels) {
    let (sent, received) = ("Frames sent", "Frames received");
    let lost = "Gaps in the sequences so far";
    let (tx, rx) = ("Current rate of frames sent", "Current rate of frames received");
    let labels = of(&[("inventory", &cluster.inventory)]);
    let whole = &cluster.all;
    all.count("squall_cluster_tx_packets", sent, &labels, whole.tx_packets);
    all.count("squall_cluster_rx_packets", received, &labels, whole.rx_packets);
    all.gauge("squall_cluster_lost_packets", lost, &labels, whole.lost as f64);
    all.gauge("squall_cluster_tx_packets_per_second", tx, &labels, whole.tx_pps);
    all.gauge("squall_cluster_rx_packets_per_second", rx, &labels, whole.rx_pps);
    for node in &cluster.nodes {
        let labels = of(&[("node", &node.name)]);
        let figures = &node.figures;
        let up = if node.why.is_none() { 1.0 } else { 0.0 };
        all.gauge("squall_node_up", "0 for a node that is lost", &labels, up);
        all.count("squall_node_tx_packets", sent, &labels, figures.tx_packets);
        all.count("squall_node_rx_packets", received, &labels, figures.rx_packets);
        all.gauge("squall_node_lost_packets", lost, &labels, figures.lost as f64);
        all.gauge("squall_node_tx_packets_per_second", tx, &labels, figures.tx_pps);
        all.gauge("squall_node_rx_packets_per_second", rx, &labels, figures.rx_pps);
        if let Some(bound) = node.clock_bound_ns {
            let help = "Largest error of what is known of the node's clock";
            all.gauge("squall_node_clock_bound_seconds", help, &labels, bound as f64 / 1e9);
        }
    }
}

/// One microsecond to ten seconds, three bounds per decade: from delays within a machine to those
/// across the world.
const BOUNDS_NS: [u64; 22] = [
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
];

/// Merges the bins within each bucket of [`seconds`], because the reports of ended runs would take
/// much memory otherwise.
fn in_buckets(of: &Distribution) -> Distribution {
    let mut bins: Vec<(u64, u64, u64)> = Vec::new();
    for &(lower, upper, count) in &of.bins {
        let bucket =
            |upper: u64| BOUNDS_NS.partition_point(|&bound| bound < upper.saturating_sub(1));
        match bins.last_mut().filter(|last| bucket(last.1) == bucket(upper)) {
            Some(last) => (last.1, last.2) = (upper, last.2 + count),
            None => bins.push((lower, upper, count)),
        }
    }
    Distribution { bins, count: of.count, mean: of.mean, ..Distribution::default() }
}

/// Converts delays to a histogram in seconds. A bin that straddles a bound counts above it, so the
/// error is at most the width of a bin.
fn seconds(of: &Distribution) -> Value {
    let mut buckets: Vec<(f64, u64)> = BOUNDS_NS.iter().map(|&ns| (ns as f64 / 1e9, 0)).collect();
    buckets.push((f64::INFINITY, 0));
    for &(_, upper, count) in &of.bins {
        let at = BOUNDS_NS.partition_point(|&bound| bound < upper.saturating_sub(1));
        buckets[at].1 += count;
    }
    let count = of.bins.iter().map(|(.., count)| count).sum();
    Value::Histogram(of.mean * count as f64 / 1e9, count, buckets)
}

/// The metrics that Prometheus' client libraries export for every process.
fn process(all: &mut Families, started: SystemTime) {
    // USER_HZ of Linux: 100 on all architectures that Squall supports.
    const TICKS: f64 = 100.0;
    let none = Labels::new();
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Skip the name, because it may contain spaces and parentheses. Field 3 and later follow it
    // (proc(5)).
    let fields: Vec<&str> =
        stat.rsplit_once(')').map_or(Vec::new(), |(_, rest)| rest.split_whitespace().collect());
    let field = |number: usize| fields.get(number - 3).and_then(|text| text.parse::<f64>().ok());
    if let (Some(user), Some(system)) = (field(14), field(15)) {
        let (name, help) = ("process_cpu_seconds", "User and system CPU time");
        all.add(name, help, MetricType::Counter, &none, Value::Number((user + system) / TICKS));
    }
    if let Some(threads) = field(20) {
        all.gauge("process_threads", "Threads", &none, threads);
    }
    if let Some(octets) = field(23) {
        all.gauge("process_virtual_memory_bytes", "Virtual memory", &none, octets);
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident =
        |line: &str| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse::<f64>().ok();
    if let Some(kib) = status.lines().find_map(resident) {
        all.gauge("process_resident_memory_bytes", "Resident memory", &none, kib * 1024.0);
    }
    // The kernel lists each open descriptor in this directory as a link (proc(5)).
    if let Ok(open) = std::fs::read_dir("/proc/self/fd") {
        // Minus one, because reading this directory uses a descriptor, too.
        all.gauge(
            "process_open_fds",
            "Open file descriptors",
            &none,
            open.count().saturating_sub(1) as f64,
        );
    }
    if let Some(most) = rustix::process::getrlimit(rustix::process::Resource::Nofile).current {
        all.gauge("process_max_fds", "Maximum number of open file descriptors", &none, most as f64);
    }
    let since = started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    all.gauge("process_start_time_seconds", "Start time, since 1970", &none, since.as_secs_f64());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(all: Families) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(all));
        let mut text = String::new();
        text::encode(&mut text, &registry).expect("a string takes all");
        text
    }

    #[test]
    fn both_formats_have_the_same_samples_and_labels_cannot_break_out_of_their_line() {
        let mut all = Families::default();
        all.count("a", "A", &vec![("stream", "x\"} 1\nb 2\\".to_owned())], 5);
        all.gauge("b", "B", &Labels::new(), 0.5);
        all.add("c", "C", MetricType::Info, &vec![("version", "7".to_owned())], Value::Info);
        let open = encoded(all);
        assert!(
            open.contains("# TYPE a counter\na_total{stream=\"x\\\"} 1\\nb 2\\\\\"} 5\n"),
            "{open}"
        );
        assert!(open.ends_with("# EOF\n"));
        assert_eq!(
            plain(&open),
            "# HELP a_total A\n# TYPE a_total counter\na_total{stream=\"x\\\"} 1\\nb 2\\\\\"} \
             5\n# HELP b B\n# TYPE b gauge\nb 0.5\n# HELP c_info C\n# TYPE c_info \
             gauge\nc_info{version=\"7\"} 1\n"
        );
    }

    #[test]
    fn flows_have_the_figures_of_their_protocols() {
        let times =
            Distribution { count: 1, bins: vec![(900, 1_001, 1)], ..Distribution::default() };
        let role = RoleReport {
            attempted: 7,
            failed: [("reset".to_owned(), 2)].into(),
            first_byte_from_start_ns: Some(times),
            tls: Some(TlsReport {
                handshakes: 5,
                resumed: 3,
                early_accepted: 2,
                ..Default::default()
            }),
            http2: Some(squall::report::flows::Http2Report {
                streams: 9,
                head_octets_sent: 100,
                compressed_octets_sent: 30,
                resets_received: [("CANCEL".to_owned(), 1)].into(),
                ..Default::default()
            }),
            ..RoleReport::default()
        };
        let mut all = Families::default();
        flows(&mut all, &exported(&role), |more| {
            more.iter().map(|(name, value)| (*name, (*value).to_owned())).collect()
        });
        let text = plain(&encoded(all));
        for line in [
            "squall_flow_attempted_total 7",
            "squall_flow_failed_total{reason=\"reset\"} 2",
            "squall_flow_first_byte_from_start_seconds_count 1",
            "squall_flow_tls_handshakes_total{resumed=\"yes\"} 3",
            "squall_flow_tls_early_data_total{outcome=\"accepted\"} 2",
            "squall_flow_http_streams_total{version=\"2\"} 9",
            "squall_flow_http_compressed_field_bytes_total{version=\"2\",direction=\"sent\"} 30",
            "squall_flow_http_resets_total{version=\"2\",direction=\"received\",code=\"CANCEL\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn a_distribution_is_a_histogram_of_seconds() {
        let of = Distribution {
            count: 6,
            mean: 2_000.0,
            bins: vec![(900, 1_001, 1), (1_001, 1_010, 2), (20_000_000_000, 20_000_000_100, 3)],
            ..Distribution::default()
        };
        let Value::Histogram(sum, count, buckets) = seconds(&of) else { panic!("no histogram") };
        assert_eq!((count, buckets[0], buckets[1]), (6, (1e-6, 1), (2.5e-6, 2)));
        assert!((sum - 12e-6).abs() < 1e-12);
        assert_eq!(buckets.last(), Some(&(f64::INFINITY, 3)));
        assert!(BOUNDS_NS.is_sorted());
        // The form that is kept for an ended run gives the same buckets.
        let kept = in_buckets(&of);
        assert_eq!(kept.bins.len(), 3);
        let many: Vec<_> = (0..2_000).map(|i| (i * 997, (i + 1) * 997, i)).collect();
        let many = Distribution { bins: many, mean: 7.0, ..Distribution::default() };
        let Value::Histogram(sum, count, buckets) = seconds(&many) else { panic!("no histogram") };
        let kept = in_buckets(&many);
        assert!(kept.bins.len() <= BOUNDS_NS.len() + 1);
        let Value::Histogram(kept_sum, kept_count, kept_buckets) = seconds(&kept) else {
            panic!("no histogram")
        };
        assert_eq!((kept_sum, kept_count, kept_buckets), (sum, count, buckets));
    }
}

//! `--fail-if 'loss_ratio > 0.1 % or latency.p99 > 50us'`: a criterion that is checked on a report.
//!
//! ```text
//! expression = all { "or" all }
//! all        = one { "and" one }
//! one        = "not" one | "(" expression ")" | [ name "." ] term [ operator value ]
//! name       = letters, digits and "_" | '"' anything '"' | "'" anything "'"
//! operator   = ">" | ">=" | "<" | "<=" | "==" | "!="
//! ```
//! A boolean term (`valid`) needs no comparison, or is compared with `true` or `false`; all other
//! terms need a comparison. A value is a number and the unit of its term: counts `0`, `10k`; shares
//! `0.1 %`, `50 ppm`, `1e-3`; times `50us`, `1.5 ms`; rates `10 kpps`, `10 kcps`, `1 Gbps`. A
//! response class (`http.5xx`) is a count, or a share of all responses: `1 %`, `50 ppm`.
//!
//! **Where it is evaluated.** An expression with a stream term is evaluated on each stream and on
//! each measured flow, and fails if it holds on any of them; run terms have the same value
//! everywhere. `total.` before a count makes it a sum over the run. A value that a stream does not
//! measure is unknown. Terms of hosts are evaluated on each group. Unknown is no failure, but a criterion that is unknown everywhere fails,
//! because a check without data must not pass. So does a criterion on a stream that measures and
//! received nothing. Template terms are evaluated on each template at each end that Squall played.
//! `total.` before them means all templates together, at the clients' end if there were clients. If
//! `or` joins stream and template terms, each part of it is a separate criterion, because neither
//! has the other's figures.
//!
//! A name before a term (`web.failed`, `"my web".http.5xx`) selects one stream, template or flow. A
//! part in which all terms have the same name is evaluated only there, at each end that Squall
//! played. In other parts, a named term has the same value for every stream and template: that at
//! the clients' end if there were clients.

use std::fmt;

use squall_units::edit_distance;

use super::{
    CaptureReport, Distribution, ReceivedFlowReport, Report, SequenceReport, StreamReport,
    StreamRx,
    flows::{FlowsReport, RoleReport},
    hosts::{HostCdpReport, HostLldpReport, HostsReport},
    routes::RoutesReport,
};

/// A parsed criterion.
///
/// ```
/// use squall_report::report::{Report, StreamReport, StreamRx, fail_if::FailIf};
///
/// let fail_if = FailIf::parse("loss > 0").unwrap();
/// let rx = StreamRx { packets: 97, lost: 3, ..StreamRx::default() };
/// let stream = StreamReport { name: "web".into(), rx: Some(rx.into()), ..StreamReport::default() };
/// let report = Report { streams: vec![stream], ..Report::default() };
/// assert_eq!(fail_if.check(&report), ["stream \"web\": loss = 3 (fail if loss > 0)"]);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct FailIf {
    text: String,
    root: Expr,
    /// Verb that precedes the criterion in messages.
    verb: &'static str,
}

/// The result of one evaluation.
struct Finding {
    text: String,
    /// True if the criterion holds, false if its value is unknown.
    holds: bool,
}

impl Finding {
    fn holds(text: String) -> Self {
        Self { text, holds: true }
    }

    fn unknown(text: String) -> Self {
        Self { text, holds: false }
    }
}

impl FailIf {
    /// Parses a criterion.
    ///
    /// # Errors
    /// The text is not a criterion; the error has the column, the text found there, the expected
    /// text, and similar names.
    pub fn parse(text: &str) -> Result<Self, FailIfError> {
        let mut parser = Parser { text, at: 0 };
        let root = parser.expression(0)?;
        parser.space();
        if parser.at < text.len() {
            return Err(parser.error_here("\"and\", \"or\" or the end", "loss > 0 or not valid"));
        }
        Ok(Self { text: text.trim().into(), root, verb: "fail if" })
    }

    /// Parses a criterion that ends a run as soon as it holds.
    ///
    /// ```
    /// use squall_report::report::fail_if::FailIf;
    ///
    /// assert!(FailIf::parse_abort("failed_ratio > 5 % and attempted > 100").is_ok());
    /// let refused = FailIf::parse_abort("loss > 0").unwrap_err();
    /// assert!(refused.to_string().contains("only known at the end"));
    /// ```
    ///
    /// # Errors
    /// The same as of [`FailIf::parse`], or a term that has no value before the run has ended.
    pub fn parse_abort(text: &str) -> Result<Self, FailIfError> {
        let criterion = Self { verb: "abort if", ..Self::parse(text)? };
        let mut refused = None;
        criterion.root.visit(&mut |asked| {
            let late = AT_THE_END.iter().find(|(names, ..)| names.contains(&asked.term.name()));
            refused = refused.take().or(late.map(|late| (asked.term, late)));
        });
        let Some((term, (_, why, hint))) = refused else {
            return Ok(criterion);
        };
        let name = term.to_string();
        let at = text.find(&name).unwrap_or(0);
        let expected =
            format!("a term that is known during the run ({name} is only known at the end: {why})");
        let parser = Parser { text, at };
        Err(parser.error(
            &name,
            &expected,
            &format!("{hint}; or --fail-if, which is evaluated at the end"),
        ))
    }

    /// Returns the first violation in the report of a running run. As long as a value is unknown,
    /// it is not a violation.
    pub fn holds_so_far(&self, report: &Report) -> Option<String> {
        self.find(report).into_iter().find(|finding| finding.holds).map(|finding| finding.text)
    }

    /// Whether it has terms that only a receiver of streams measures.
    pub fn needs_receiver(&self) -> bool {
        self.root.any_term(&|asked| match asked.term {
            Term::Stream(name) => {
                let of_sender = ["tx", "tx_pps", "rate_error", "not_sent", "no_host", "no_route"];
                !of_sender.contains(&name)
            }
            Term::Spread(spread, _) => spread != "departure_error",
            _ => false,
        })
    }

    /// Whether it uses percentiles or other statistics that need complete histograms.
    pub fn needs_histograms(&self) -> bool {
        self.root.any_term(&|a| a.term.is_of_histogram())
    }

    /// Returns a sentence for each violation, at most ten, and then the number of further ones.
    /// Empty if the report passes.
    pub fn check(&self, report: &Report) -> Vec<String> {
        let findings = self.find(report);
        let more = findings.len().saturating_sub(10);
        let mut violations: Vec<String> =
            findings.into_iter().take(10).map(|finding| finding.text).collect();
        if more > 0 {
            let what = match report {
                Report { received_flows: Some(_), .. } => "flows",
                _ if self.root.any_term(&Asked::is_of_template) => "templates",
                _ if self.root.any_term(&Asked::is_of_hosts) => "groups of hosts",
                _ => "streams",
            };
            violations.push(format!("{more} more {what} ({} {})", self.verb, self.text));
        }
        violations
    }

    fn find(&self, report: &Report) -> Vec<Finding> {
        let run = RunTotals::new(report);
        // A capture has no streams, so stream terms are those of the capture.
        if report.capture.is_some() {
            return self.once(&self.root, &run);
        }
        let kinds = [Asked::is_of_stream, Asked::is_of_template, Asked::is_of_hosts];
        let kinds = kinds.iter().filter(|kind| self.root.any_term(*kind)).count();
        let separate = kinds > 1 || self.root.any_term(&|asked| asked.name.is_some());
        let parts = match &self.root {
            Expr::Or(parts) if separate => &parts[..],
            root => std::slice::from_ref(root),
        };
        parts.iter().flat_map(|part| self.each(part, &run)).collect()
    }

    /// Evaluates a part that has only run terms, or is on a capture.
    fn once(&self, part: &Expr, run: &RunTotals<'_>) -> Vec<Finding> {
        match part.holds(run, None) {
            Some(true) => {
                let values = part.values(run, None);
                vec![Finding::holds(format!("{values} ({} {})", self.verb, self.text))]
            }
            Some(false) => Vec::new(),
            None => {
                let why = format!("cannot evaluate {}: no value was measured", self.text);
                vec![Finding::unknown(why)]
            }
        }
    }

    /// Evaluates a part on each stream and flow, or on each template, depending on its terms.
    fn each(&self, part: &Expr, run: &RunTotals<'_>) -> Vec<Finding> {
        let report = run.report;
        let names = names_of(report);
        if let Some(name) = part.names().into_iter().find(|name| !names.contains(name)) {
            let why = unknown_name(name, &names);
            return vec![Finding::unknown(format!("cannot evaluate {}: {why}", self.text))];
        }
        let only = part.only_name();
        let anywhere = |asked: &Asked| asked.name.is_none() || only.is_some();
        let of_streams = part.any_term(&|asked| asked.is_of_stream() && anywhere(asked));
        let of_templates = part.any_term(&|asked| asked.is_of_template() && anywhere(asked));
        let of_hosts = part.any_term(&|asked| asked.is_of_hosts() && anywhere(asked));
        if !of_streams && !of_templates && !of_hosts {
            return self.once(part, run);
        }
        let flows = report.received_flows.iter().flat_map(|all| &all.flows).map(Subject::Flow);
        let streams =
            report.streams.iter().map(Subject::Stream).chain(flows).filter(|_| of_streams);
        let templates = report.flows.iter().flat_map(subjects).filter(|_| of_templates);
        let (mut violations, mut decided) = (Vec::new(), false);
        let hosts = report.hosts.iter().map(Subject::Hosts).filter(|_| of_hosts);
        for subject in
            streams.chain(templates).chain(hosts).filter(|s| only.is_none_or(|n| n == s.name()))
        {
            let why = match (part.holds(run, Some(subject)), subject) {
                (Some(true), _) => {
                    let values = part.values(run, Some(subject));
                    let text = format!("{subject}: {values} ({} {})", self.verb, self.text);
                    violations.push(Finding::holds(text));
                    continue;
                }
                (Some(false), _) => {
                    decided = true;
                    continue;
                }
                (None, Subject::Stream(stream))
                    if stream.tx_packets > 0
                        && stream.rx.as_ref().is_some_and(|rx| rx.packets == 0) =>
                {
                    format!("none of its {} frames arrived", stream.tx_packets)
                }
                (None, Subject::Silent(_)) => "it had no flows".into(),
                (None, _) => continue,
            };
            let text = format!("{subject}: cannot evaluate {}: {why}", self.text);
            violations.push(Finding::unknown(text));
        }
        if violations.is_empty() && !decided {
            let why = match (of_streams, of_templates) {
                (true, _) => "no stream measured it; set latency = true on a stream and receive it",
                (_, true) => "no template measured it; a [[template]] must open or serve flows",
                _ => "no hosts measured it; a [[host]] must use the protocol",
            };
            return vec![Finding::unknown(format!("cannot evaluate {}: {why}", self.text))];
        }
        violations
    }
}

impl FailIf {
    /// Checks, before a run, that all names in the criterion exist.
    ///
    /// # Errors
    /// A name that is not in `names`; the error lists the most similar ones.
    pub fn find_names(&self, names: &[&str]) -> Result<(), String> {
        match self.root.names().into_iter().find(|name| !names.contains(name)) {
            Some(name) => Err(format!("{}: {}", self.text, unknown_name(name, names))),
            None => Ok(()),
        }
    }
}

impl fmt::Display for FailIf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The object on which an expression is evaluated.
#[derive(Clone, Copy)]
enum Subject<'a> {
    Stream(&'a StreamReport),
    Flow(&'a ReceivedFlowReport),
    /// Name of the template, the end, and its flows at that end.
    Template(&'a str, &'static str, &'a RoleReport),
    /// A template that has no flows.
    Silent(&'a str),
    Hosts(&'a HostsReport),
}

/// Each template at each end. Templates without flows are included only if there were clients: a
/// server need not have had anything to do.
fn subjects(load: &FlowsReport) -> impl Iterator<Item = Subject<'_>> {
    let begun = load.total.client.is_some();
    load.templates.iter().flat_map(move |template| {
        let ends = [("client", &template.roles.client), ("server", &template.roles.server)];
        let ends = ends
            .into_iter()
            .filter_map(|(end, role)| Some(Subject::Template(&template.name, end, role.as_ref()?)));
        let silent = begun && template.roles.client.is_none() && template.roles.server.is_none();
        ends.chain(silent.then_some(Subject::Silent(&template.name)))
    })
}

impl<'a> Subject<'a> {
    fn name(self) -> &'a str {
        match self {
            Self::Stream(stream) => &stream.name,
            Self::Flow(flow) => &flow.name,
            Self::Template(name, ..) | Self::Silent(name) => name,
            Self::Hosts(group) => &group.name,
        }
    }
}

/// Names that a term may refer to.
fn names_of(report: &Report) -> Vec<&str> {
    let flows = report.received_flows.iter().flat_map(|all| &all.flows).map(|f| f.name.as_str());
    let templates = report.flows.iter().flat_map(|f| &f.templates).map(|t| t.name.as_str());
    let hosts = report.hosts.iter().map(|group| group.name.as_str());
    let streams = report.streams.iter().map(|s| s.name.as_str());
    streams.chain(templates).chain(flows).chain(hosts).collect()
}

/// Message for an unknown name, with similar names.
fn unknown_name(name: &str, names: &[&str]) -> String {
    let mut near: Vec<_> = names.iter().map(|n| (edit_distance(name, n), *n)).collect();
    near.sort_unstable();
    near.dedup();
    let near: Vec<_> = near.iter().take(3).map(|(_, name)| format!("{name:?}")).collect();
    let there_is = if near.is_empty() { "nothing".to_owned() } else { near.join(", ") };
    format!("no stream, template or group of hosts is called {name:?}; the nearest: {there_is}")
}

impl fmt::Display for Subject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stream(stream) => write!(f, "stream {:?}", stream.name),
            Self::Flow(flow) => write!(f, "flow {}", flow.name),
            Self::Template(name, end, _) => write!(f, "template {name:?} ({end})"),
            Self::Silent(name) => write!(f, "template {name:?}"),
            Self::Hosts(group) => write!(f, "hosts {:?}", group.name),
        }
    }
}

/// Why a text is not a criterion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailIfError {
    text: String,
    /// Position in characters, 1-based.
    pub column: usize,
    pub found: String,
    pub expected: String,
    pub hint: String,
}

impl std::error::Error for FailIfError {}

impl fmt::Display for FailIfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found =
            if self.found.is_empty() { "the end".into() } else { format!("{:?}", self.found) };
        writeln!(f, "column {}: found {found}, expected {}", self.column, self.expected)?;
        writeln!(f, "  {}", self.text)?;
        let marks = self.found.chars().count().clamp(1, 40);
        writeln!(f, "  {}{}", " ".repeat(self.column - 1), "^".repeat(marks))?;
        write!(f, "  try {}", self.hint)
    }
}

// --- terms
// -------------------------------------------------------------------------------------------------------

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Term {
    Run(&'static str),
    Stream(&'static str),
    Spread(&'static str, &'static str),
    Template(&'static str),
    TemplateSpread(&'static str, &'static str),
    /// All templates together.
    Total(&'static str),
    Hosts(&'static str),
    HostsSpread(&'static str, &'static str),
}

/// Name, kind and meaning of the terms of a run. Users read this as the reference.
const RUN_TERMS: &[(&str, Kind, &str)] = &[
    ("elapsed", Kind::Time, "time since the start of the run"),
    ("valid", Kind::Bool, "the verdict: the generator kept its schedule and the counters agree"),
    ("errors", Kind::Count, "frames that a port refused with an error, all ports"),
    ("rx.drops", Kind::Count, "frames lost between an interface and the process, all ports"),
    ("drops", Kind::Count, "packets that a capture lost, in the kernel or in squall"),
    ("plr", Kind::Share, "packet loss ratio of a capture: drops / packets accepted by the filter"),
    ("total.tx", Kind::Count, "frames sent, all ports"),
    ("total.rx", Kind::Count, "frames received, all ports"),
    ("total.not_sent", Kind::Count, "frames that were due and did not leave, all ports"),
    ("total.loss", Kind::Count, "frames lost, all streams that measure it"),
    ("total.loss_ratio", Kind::Share, "total.loss / frames sent by those streams"),
    ("total.duplicates", Kind::Count, "duplicates, all streams that measure them"),
    ("total.reordered", Kind::Count, "reordered frames, all streams that measure them"),
];

const STREAM_TERMS: &[(&str, Kind, &str)] = &[
    ("tx", Kind::Count, "frames sent"),
    ("tx_pps", Kind::Rate, "achieved rate over the stream's active time"),
    ("rate_error", Kind::Share, "|achieved - requested| / requested; unknown for rate = \"max\""),
    ("not_sent", Kind::Count, "frames that were due and did not leave"),
    ("no_host", Kind::Count, "of these, frames for which no host had an address"),
    ("no_route", Kind::Count, "of these, frames for which the router had learnt no route"),
    ("rx", Kind::Count, "frames received, without duplicates"),
    ("loss", Kind::Count, "frames sent and never received (RFC 7680)"),
    ("loss_ratio", Kind::Share, "loss / sent"),
    ("duplicates", Kind::Count, "RFC 5560"),
    ("reordered", Kind::Count, "Type-P-Reordered (RFC 4737)"),
    ("jitter", Kind::Time, "smoothed interarrival jitter at the end (RFC 3550)"),
    ("rx_pps", Kind::Rate, "of a flow: mean rate from its first to its last frame"),
    ("routes_lossy", Kind::Count, "routes of the stream that lost frames"),
    ("routes_down", Kind::Count, "routes of which the last frame did not arrive"),
    ("loss_of_connectivity", Kind::Time, "longest loss of connectivity of a route (RFC 6412)"),
    ("convergence", Kind::Time, "longest convergence of a route from one port to another"),
];

const SPREADS: &[(&str, &str)] = &[
    ("latency", "one-way delay (RFC 7679)"),
    ("ipdv", "delay variation, magnitude (RFC 3393)"),
    ("arrival_gap", "gap between consecutive frames of the stream at the receiver"),
    ("gap", "the same"),
    ("departure_error", "actual minus due time of departure"),
];

const TEMPLATE_TERMS: &[(&str, Kind, &str)] = &[
    ("attempted", Kind::Count, "flows that began (client), or were accepted (server)"),
    ("completed", Kind::Count, "flows that ended normally"),
    ("failed", Kind::Count, "flows that failed, for any reason"),
    ("failed_ratio", Kind::Share, "failed / attempted"),
    ("not_begun", Kind::Count, "flows that were due and did not begin"),
    ("late", Kind::Count, "of these, flows for which the generator was late"),
    ("requests_asked", Kind::Count, "requests that the flows that began were to make"),
    ("requests_sent", Kind::Count, "requests that were sent"),
    ("requests_answered", Kind::Count, "requests whose answer arrived as a whole"),
    ("active", Kind::Count, "flows that were open at the end"),
    ("peak_active", Kind::Count, "most flows that were open at one time"),
    ("cps", Kind::Cps, "flows per second that began, at full load (without ramps and drain)"),
    ("completed_cps", Kind::Cps, "flows per second that completed, in the same time"),
    ("cps_error", Kind::Share, "|cps - requested| / requested; unknown if no cps was requested"),
    ("goodput", Kind::Bits, "application data received, bits per second, over the whole run"),
    ("retransmits", Kind::Count, "retransmitted TCP segments"),
    ("retransmit_ratio", Kind::Share, "retransmits / segments sent"),
    ("tls_failed", Kind::Count, "TLS sessions that failed, in the handshake or later"),
    ("resets", Kind::Count, "flows that the other end reset"),
    ("http.1xx", Kind::CountOrShare, "HTTP responses by class; > 1 % is a share of all responses"),
    ("http.2xx", Kind::CountOrShare, "the same"),
    ("http.3xx", Kind::CountOrShare, "the same"),
    ("http.4xx", Kind::CountOrShare, "the same"),
    ("http.5xx", Kind::CountOrShare, "the same"),
];

const TEMPLATE_SPREADS: &[(&str, &str)] = &[
    ("setup", "from a flow's SYN to the end of its handshake"),
    ("first_byte", "from a request to the first octet of its answer"),
    ("first_byte_from_start", "from a flow's start to the first octet of its first answer"),
    ("transaction", "from a request to the last octet of its answer"),
    ("duration", "from a flow's start to its end"),
    ("tls_handshake", "from the end of the TCP handshake to the end of the TLS handshake"),
    ("duration_from_due", "from the time when a flow was due to its end"),
];

const HOSTS_TERMS: &[(&str, Kind, &str)] = &[
    ("hosts.started", Kind::Count, "hosts of a group that started"),
    ("hosts.bound", Kind::Count, "of these, hosts that have an address at the end"),
    ("hosts.bound_rate", Kind::Cps, "addresses per second, from the first start to the last one"),
    ("hosts.failed", Kind::Count, "hosts that failed, for any reason"),
    ("hosts.failed_ratio", Kind::Share, "hosts.failed / hosts.started"),
    ("hosts.retransmissions", Kind::Count, "messages of DHCP and DHCPv6 that were repeated"),
    ("hosts.expired", Kind::Count, "leases that ended, of DHCP and DHCPv6"),
    (
        "hosts.ignored",
        Kind::Count,
        "messages of DHCP, DHCPv6 and neighbor discovery that were ignored, for any reason",
    ),
    ("hosts.conflicts", Kind::Count, "addresses that were given up: another host had them"),
    ("hosts.echo_lost", Kind::Count, "echo requests without a reply"),
    ("hosts.dns_nxdomain", Kind::Count, "names that do not exist, of those that hosts asked for"),
    ("hosts.dns_failed", Kind::Count, "errors of DNS servers, and truncated answers"),
    ("hosts.dns_timeouts", Kind::Count, "questions to DNS servers without an answer"),
    ("hosts.neighbors", Kind::Count, "neighbors of LLDP and CDP at the end"),
    (
        "hosts.unconfirmed",
        Kind::Count,
        "leases that no DHCPv6 server confirmed, or that one refused",
    ),
    ("hosts.icmp_errors", Kind::Count, "errors of ICMP that hosts received"),
    ("hosts.sessions_opened", Kind::Count, "sessions of PPPoE that carried IPv4"),
    ("hosts.lacp_up", Kind::Count, "times that frames could be sent over a link of LACP"),
    ("hosts.lacp_down", Kind::Count, "times that they no longer could"),
    ("hosts.sessions_ended", Kind::Count, "sessions of PPPoE that ended, for any reason"),
];

const HOSTS_SPREADS: &[(&str, &str)] = &[
    ("offer", "from a host's first DISCOVER to its offer"),
    ("dora", "from a host's first DISCOVER to its address"),
    ("echo_rtt", "from a host's echo request to the reply"),
    ("resolve", "from a host's question to a DNS server to the answer"),
    ("confirm", "from a host's first Confirm of DHCPv6 to the reply"),
    ("lacp_link", "from the start, or the end of a link of LACP, to the next one"),
    ("pppoe_session", "from a host's first PADI to its PADS"),
    ("pppoe_open", "from a host's first PADI to its address"),
];

const STATISTICS: &[&str] = &["min", "mean", "stddev", "p50", "p90", "p95", "p99", "p999", "max"];

/// Terms that have no value before the run has ended, with the reason and an alternative.
const AT_THE_END: &[(&[&str], &str, &str)] = &[
    (
        &["loss", "loss_ratio", "total.loss", "total.loss_ratio"],
        "frames in flight count as lost until they arrive",
        "rx.drops > 0, reordered > 0, rx < 900 and tx > 1000",
    ),
    (
        &["routes_lossy", "routes_down", "loss_of_connectivity", "convergence"],
        "frames of routes are compared with those sent",
        "rx < 900 and tx > 1000",
    ),
    (&["valid"], "the verdict judges the whole run", "not_sent > 0, departure_error.p99 > 1ms"),
    (
        &["rate_error", "cps", "completed_cps", "cps_error"],
        "the rate is that of the whole run, or of its steady part",
        "not_sent > 0, tx_pps < 10 kpps, not_begun > 0",
    ),
];

/// All terms with their meanings, one per line, for `--help` and the reference.
pub fn reference() -> String {
    let mut text = String::new();
    let mut line = |name: &str, what: &str| text += &format!("{name:<22} {what}\n");
    for (name, _, what) in STREAM_TERMS {
        line(name, what);
    }
    for (name, what) in SPREADS {
        line(&format!("{name}.STAT"), what);
    }
    for (name, _, what) in TEMPLATE_TERMS {
        line(name, what);
    }
    for (name, what) in TEMPLATE_SPREADS {
        line(&format!("{name}.STAT"), what);
    }
    for (name, _, what) in HOSTS_TERMS {
        line(name, what);
    }
    for (name, what) in HOSTS_SPREADS {
        line(&format!("{name}.STAT"), what);
    }
    for (name, _, what) in RUN_TERMS {
        line(name, what);
    }
    line("total.TERM", "of all templates together: attempted, completed, failed, cps ...");
    line("NAME.TERM", "of one stream, template or group: web.failed, \"my web\".latency.p99");
    text += &format!("{:<22} {}\n", "STAT", STATISTICS.join(", "));
    text
}

impl Term {
    fn find(name: &str) -> Option<Self> {
        if let Some((name, ..)) = RUN_TERMS.iter().find(|(n, ..)| *n == name) {
            return Some(Self::Run(name));
        }
        if let Some((name, ..)) = STREAM_TERMS.iter().find(|(n, ..)| *n == name) {
            return Some(Self::Stream(name));
        }
        if let Some((name, ..)) = TEMPLATE_TERMS.iter().find(|(n, ..)| *n == name) {
            return Some(Self::Template(name));
        }
        if let Some((name, ..)) = HOSTS_TERMS.iter().find(|(n, ..)| *n == name) {
            return Some(Self::Hosts(name));
        }
        let (spread, statistic) = name.split_once('.')?;
        if spread == "total" {
            return TEMPLATE_TERMS
                .iter()
                .find(|(n, ..)| *n == statistic)
                .map(|(name, ..)| Self::Total(name));
        }
        let statistic = STATISTICS.iter().find(|s| **s == statistic)?;
        if let Some((spread, _)) = TEMPLATE_SPREADS.iter().find(|(n, _)| *n == spread) {
            return Some(Self::TemplateSpread(spread, statistic));
        }
        if let Some((spread, _)) = HOSTS_SPREADS.iter().find(|(n, _)| *n == spread) {
            return Some(Self::HostsSpread(spread, statistic));
        }
        let (spread, _) = SPREADS.iter().find(|(n, _)| *n == spread)?;
        Some(Self::Spread(spread, statistic))
    }

    /// The term's name without the statistic, and without `total.` for templates.
    fn name(self) -> &'static str {
        match self {
            Self::Run(name) | Self::Stream(name) | Self::Template(name) | Self::Total(name) => name,
            Self::Spread(name, _) | Self::TemplateSpread(name, _) => name,
            Self::Hosts(name) | Self::HostsSpread(name, _) => name,
        }
    }

    fn all_names() -> impl Iterator<Item = String> {
        let spreads = SPREADS.iter().chain(TEMPLATE_SPREADS).chain(HOSTS_SPREADS);
        let spreads = spreads.flat_map(|(s, _)| STATISTICS.iter().map(move |q| format!("{s}.{q}")));
        let totals = TEMPLATE_TERMS.iter().map(|(n, ..)| format!("total.{n}"));
        let terms = STREAM_TERMS.iter().chain(TEMPLATE_TERMS).chain(HOSTS_TERMS).chain(RUN_TERMS);
        terms.map(|(n, ..)| (*n).to_owned()).chain(totals).chain(spreads)
    }

    fn kind(self) -> Kind {
        let lookup = |table: &[(&str, Kind, &str)], name: &str| {
            table.iter().find(|(n, ..)| *n == name).map_or(Kind::Count, |(_, kind, _)| *kind)
        };
        match self {
            Self::Run(name) => lookup(RUN_TERMS, name),
            Self::Stream(name) => lookup(STREAM_TERMS, name),
            Self::Template(name) | Self::Total(name) => lookup(TEMPLATE_TERMS, name),
            Self::Hosts(name) => lookup(HOSTS_TERMS, name),
            Self::Spread(..) | Self::TemplateSpread(..) | Self::HostsSpread(..) => Kind::Time,
        }
    }

    /// Whether each stream, template or group has a value of its own.
    fn is_of_one(self) -> bool {
        self.is_of_stream() || self.is_of_template() || self.is_of_hosts()
    }

    fn is_of_histogram(self) -> bool {
        matches!(self, Self::Spread(..) | Self::TemplateSpread(..) | Self::HostsSpread(..))
    }

    fn is_of_stream(self) -> bool {
        matches!(self, Self::Stream(_) | Self::Spread(..))
    }

    fn is_of_template(self) -> bool {
        matches!(self, Self::Template(_) | Self::TemplateSpread(..))
    }

    fn is_of_hosts(self) -> bool {
        matches!(self, Self::Hosts(_) | Self::HostsSpread(..))
    }

    /// The value: 1 for yes, nanoseconds for times. `None` if it was not measured.
    fn value(self, run: &RunTotals<'_>, subject: Option<Subject<'_>>) -> Option<f64> {
        match (self, subject) {
            (Self::Run(name), _) => run.value(name),
            (Self::Stream(name), None) => capture_value(name, run.report.capture.as_ref()?),
            (Self::Total(name), _) => template_value(name, run.total()?),
            (Self::Template(name), Some(Subject::Template(_, _, role))) => {
                template_value(name, role)
            }
            (Self::TemplateSpread(spread, statistic), Some(Subject::Template(_, _, role))) => {
                template_spread(spread, role).and_then(|d| statistic_of(statistic, d))
            }
            (Self::Hosts(name), Some(Subject::Hosts(group))) => hosts_value(name, group),
            (Self::HostsSpread(spread, statistic), Some(Subject::Hosts(group))) => {
                hosts_spread(spread, group).and_then(|d| statistic_of(statistic, d))
            }
            (Self::Template(_) | Self::TemplateSpread(..), _) | (Self::Spread(..), None) => None,
            (Self::Hosts(_) | Self::HostsSpread(..), _) => None,
            (Self::Stream(name), Some(Subject::Stream(stream))) => stream_value(name, stream),
            (Self::Stream(name), Some(Subject::Flow(flow))) => flow_value(name, flow),
            (
                Self::Stream(_),
                Some(Subject::Template(..) | Subject::Silent(_) | Subject::Hosts(_)),
            ) => None,
            (Self::Spread(spread, statistic), Some(subject)) => {
                let distribution = match subject {
                    Subject::Stream(stream) => stream_spread(spread, stream),
                    Subject::Flow(flow) => flow_spread(spread, flow),
                    Subject::Template(..) | Subject::Silent(_) | Subject::Hosts(_) => None,
                };
                distribution.and_then(|d| statistic_of(statistic, d))
            }
        }
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(name) | Self::Stream(name) | Self::Template(name) | Self::Hosts(name) => {
                f.write_str(name)
            }
            Self::Spread(spread, statistic)
            | Self::TemplateSpread(spread, statistic)
            | Self::HostsSpread(spread, statistic) => write!(f, "{spread}.{statistic}"),
            Self::Total(name) => write!(f, "total.{name}"),
        }
    }
}

/// A term in a criterion.
#[derive(Clone, Debug, PartialEq)]
struct Asked {
    /// Restricts the term to the stream, template or flow of that name.
    name: Option<String>,
    term: Term,
    /// Whether the count is a share of all responses.
    share: bool,
}

impl Asked {
    fn is_of_stream(&self) -> bool {
        self.term.is_of_stream()
    }

    fn is_of_template(&self) -> bool {
        self.term.is_of_template()
    }

    fn is_of_hosts(&self) -> bool {
        self.term.is_of_hosts()
    }

    fn value(&self, run: &RunTotals<'_>, subject: Option<Subject<'_>>) -> Option<f64> {
        let subject = match (&self.name, subject) {
            (Some(name), Some(subject)) if name == subject.name() => Some(subject),
            (Some(name), _) => Some(run.named(name, self.term)?),
            (None, subject) => subject,
        };
        let value = self.term.value(run, subject)?;
        if !self.share {
            return Some(value);
        }
        let role = match (self.term, subject) {
            (Term::Template(_), Some(Subject::Template(_, _, role))) => role,
            (Term::Total(_), _) => run.total()?,
            _ => return None,
        };
        let all: u64 = role.http.values().sum();
        (all > 0).then(|| value / all as f64)
    }

    fn print(&self, value: f64) -> String {
        let kind = if self.share { Kind::Share } else { self.term.kind() };
        kind.print(value)
    }
}

/// Sums over up to 10,000 streams, computed once rather than for each stream.
struct RunTotals<'a> {
    report: &'a Report,
    /// Sent, lost, duplicates, reordered. `None` if no stream measures.
    measured: Option<[u64; 4]>,
    /// Whether any stream has sequence numbers, which reveal duplicates and reordering.
    numbered: bool,
}

impl<'a> RunTotals<'a> {
    fn new(report: &'a Report) -> Self {
        let flows = report.received_flows.iter().flat_map(|all| &all.flows).filter_map(numbered);
        let measured = report
            .streams
            .iter()
            .filter_map(|s| {
                s.rx.as_ref().map(|rx| {
                    [s.tx_packets.max(rx.packets + rx.lost), rx.lost, rx.duplicates, rx.reordered]
                })
            })
            .chain(flows.map(|s| [s.unique_packets + s.lost, s.lost, s.duplicates, s.reordered]))
            .reduce(|a, b| std::array::from_fn(|i| a[i].saturating_add(b[i])));
        let signed = |s: &StreamReport| s.rx.as_deref().is_some_and(StreamRx::is_signed);
        let flows = report.received_flows.iter().flat_map(|all| &all.flows);
        let numbered =
            report.streams.iter().any(signed) || flows.filter_map(numbered).next().is_some();
        Self { report, measured, numbered }
    }

    /// All templates together, at the clients' end if there were clients.
    fn total(&self) -> Option<&'a RoleReport> {
        let total = &self.report.flows.as_ref()?.total;
        total.client.as_ref().or(total.server.as_ref())
    }

    /// The stream, flow, template or group of that name, whichever has the term. A template is evaluated at the clients' end if
    /// there were clients.
    fn named(&self, name: &str, term: Term) -> Option<Subject<'a>> {
        let report = self.report;
        if term.is_of_hosts() {
            return report.hosts.iter().map(Subject::Hosts).find(|s| s.name() == name);
        }
        if term.is_of_template() {
            return report.flows.iter().flat_map(subjects).find(|s| s.name() == name);
        }
        let flows = report.received_flows.iter().flat_map(|all| &all.flows).map(Subject::Flow);
        report.streams.iter().map(Subject::Stream).chain(flows).find(|s| s.name() == name)
    }

    fn value(&self, name: &str) -> Option<f64> {
        let ports = &self.report.ports;
        let sum = |f: fn(&super::PortReport) -> u64| Some(ports.iter().map(f).sum::<u64>() as f64);
        let measured = |i: usize| self.measured.map(|m| m[i] as f64);
        match name {
            "elapsed" => Some(self.report.duration_s * 1e9),
            "valid" => Some(f64::from(u8::from(self.report.verdict.valid))),
            "errors" => sum(|p| p.tx.errors),
            "rx.drops" => sum(|p| p.rx.drops.values().sum()),
            "drops" => Some(self.report.capture.as_ref()?.lost as f64),
            "plr" => Some(self.report.capture.as_ref()?.loss_ratio),
            "total.tx" => sum(|p| p.tx.packets),
            "total.rx" => sum(|p| p.rx.packets),
            "total.not_sent" => sum(|p| p.tx.not_sent.values().sum()),
            "total.loss" => measured(1),
            "total.loss_ratio" => Some(measured(1)? / measured(0).filter(|sent| *sent > 0.0)?),
            "total.duplicates" => measured(2).filter(|_| self.numbered),
            "total.reordered" => measured(3).filter(|_| self.numbered),
            _ => unreachable!("{name} is in RUN_TERMS and has no value"),
        }
    }
}

fn stream_value(name: &str, stream: &StreamReport) -> Option<f64> {
    let rx = |f: fn(&StreamRx) -> f64| stream.rx.as_deref().map(f);
    let signed = |f: fn(&StreamRx) -> f64| stream.rx.as_deref().filter(|rx| rx.is_signed()).map(f);
    match name {
        "tx" => Some(stream.tx_packets as f64),
        "tx_pps" => Some(stream.tx_pps),
        "rate_error" => stream.rate_error().map(f64::abs),
        "not_sent" => Some(stream.not_sent.values().sum::<u64>() as f64),
        "no_host" | "no_route" => Some(stream.not_sent.get(name).copied().unwrap_or(0) as f64),
        "rx" => rx(|rx| rx.packets as f64),
        "loss" => rx(|rx| rx.lost as f64),
        "loss_ratio" => rx(|rx| rx.loss_ratio),
        "duplicates" => signed(|rx| rx.duplicates as f64),
        "reordered" => signed(|rx| rx.reordered as f64),
        "jitter" => stream.rx.as_ref().and_then(|rx| rx.jitter_ns),
        "rx_pps" => None,
        "routes_lossy" => routes(stream).map(|routes| routes.lossy as f64),
        "routes_down" => routes(stream).map(|routes| routes.down as f64),
        "loss_of_connectivity" => routes(stream).and_then(|routes| {
            let longest = routes.loss_of_connectivity.map_or(0.0, |times| times.full_s);
            routes.resolution_s.map(|_| longest * 1e9)
        }),
        "convergence" => routes(stream)?.convergence.map(|times| times.full_s * 1e9),
        _ => unreachable!("{name} is in STREAM_TERMS and has no value"),
    }
}

fn routes(stream: &StreamReport) -> Option<&RoutesReport> {
    stream.rx.as_ref()?.routes.as_deref()
}

/// The value of a stream term for a capture.
fn capture_value(name: &str, capture: &CaptureReport) -> Option<f64> {
    match name {
        "loss" => Some(capture.lost as f64),
        "loss_ratio" => Some(capture.loss_ratio),
        "rx" => Some(capture.received as f64),
        _ => None,
    }
}

fn stream_spread<'a>(spread: &str, stream: &'a StreamReport) -> Option<&'a Distribution> {
    let rx = stream.rx.as_ref();
    match spread {
        "latency" => rx?.latency_ns.as_ref(),
        "ipdv" => rx?.ipdv_ns.as_ref(),
        "arrival_gap" | "gap" => rx?.arrival_gap_ns.as_ref(),
        "departure_error" => stream.departure_error_ns.as_ref(),
        _ => unreachable!("{spread} is in SPREADS and has no value"),
    }
}

/// Sequence figures of a flow. `None` for Squall's own flows, which have them in the stream.
fn numbered(flow: &ReceivedFlowReport) -> Option<&SequenceReport> {
    flow.sequence.as_ref().filter(|s| s.kind != "squall")
}

fn flow_value(name: &str, flow: &ReceivedFlowReport) -> Option<f64> {
    let numbered = numbered(flow);
    match name {
        "rx" => Some(flow.packets as f64),
        "rx_pps" => Some(flow.pps),
        "loss" => numbered.map(|s| s.lost as f64),
        "loss_ratio" => numbered.map(|s| s.loss_ratio),
        "duplicates" => numbered.map(|s| s.duplicates as f64),
        "reordered" => numbered.map(|s| s.reordered as f64),
        "jitter" => numbered.and_then(|s| s.jitter_ns),
        // All other terms are measured only by the sender.
        _ => None,
    }
}

fn flow_spread<'a>(spread: &str, flow: &'a ReceivedFlowReport) -> Option<&'a Distribution> {
    match spread {
        "arrival_gap" | "gap" => flow.arrival_gap_ns.as_ref(),
        "latency" => numbered(flow)?.latency_ns.as_ref(),
        "ipdv" => numbered(flow)?.ipdv_ns.as_ref(),
        _ => None,
    }
}

fn template_value(name: &str, role: &RoleReport) -> Option<f64> {
    let count = |n: u64| Some(n as f64);
    let share = |n: u64, of: u64| (of > 0).then(|| n as f64 / of as f64);
    match name {
        "attempted" => count(role.attempted),
        "completed" => count(role.completed),
        "failed" => count(role.failures()),
        "failed_ratio" => share(role.failures(), role.attempted),
        "not_begun" => count(role.missed()),
        "late" => count(role.not_begun.get("late").copied().unwrap_or(0)),
        "requests_asked" => count(role.requests.as_ref()?.asked),
        "requests_sent" => count(role.requests.as_ref()?.sent),
        "requests_answered" => count(role.requests.as_ref()?.answered),
        "active" => count(role.active),
        "peak_active" => count(role.peak_active),
        "cps" => Some(role.achieved_cps()),
        "completed_cps" => role.steady.as_ref().map(|steady| steady.completed_cps),
        "cps_error" => role
            .asked_cps
            .filter(|asked| *asked > 0.0)
            .map(|asked| (role.achieved_cps() - asked).abs() / asked),
        "goodput" => Some(role.goodput_bps),
        "retransmits" => count(role.retransmits()),
        "retransmit_ratio" => {
            share(role.retransmits(), role.tcp.get("segments_out").copied().unwrap_or(0))
        }
        "tls_failed" => count(role.tls.as_ref()?.failed.values().sum()),
        "resets" => count(role.failed.get("reset").copied().unwrap_or(0)),
        // Without responses, the shares of response classes are unknown.
        _ if name.starts_with("http.") => {
            (!role.http.is_empty()).then(|| role.http.get(&name[5..]).copied().unwrap_or(0) as f64)
        }
        _ => unreachable!("{name} is in TEMPLATE_TERMS and has no value"),
    }
}

fn hosts_value(name: &str, group: &HostsReport) -> Option<f64> {
    let count = |n: u64| Some(n as f64);
    let ipv6 = group.ipv6.as_ref();
    let dhcp6 = ipv6.and_then(|of| of.dhcp.as_ref());
    // Hosts with both families count by their IPv4, as everywhere.
    let only_ipv6 = ipv6.filter(|_| group.states.is_empty());
    match name {
        "hosts.started" => count(group.started),
        "hosts.bound" => {
            let states = only_ipv6.map_or(&group.states, |of| &of.states);
            let with_address = ["bound", "renewing", "rebinding", "deprecated"];
            count(with_address.iter().filter_map(|state| states.get(*state)).sum())
        }
        "hosts.bound_rate" => group.bound_rate.or(only_ipv6.and_then(|of| of.address_rate)),
        "hosts.failed" => count(failed_hosts(group)),
        "hosts.failed_ratio" => {
            (group.started > 0).then(|| failed_hosts(group) as f64 / group.started as f64)
        }
        "hosts.retransmissions" => {
            count(group.retransmissions + dhcp6.map_or(0, |of| of.retransmissions))
        }
        "hosts.expired" => count(group.expired + dhcp6.map_or(0, |of| of.expired)),
        "hosts.ignored" => {
            let reasons = [Some(&group.ignored), ipv6.map(|of| &of.ignored)];
            count(reasons.into_iter().flatten().flat_map(|of| of.values()).sum())
        }
        "hosts.conflicts" => count(group.arp.conflicts + ipv6.map_or(0, |of| of.nd.duplicates)),
        "hosts.echo_lost" => count(group.echo.lost),
        "hosts.dns_nxdomain" => count(group.dns.as_ref()?.nxdomain),
        "hosts.dns_failed" => {
            let dns = group.dns.as_ref()?;
            count(dns.failed.values().sum::<u64>() + dns.truncated)
        }
        "hosts.dns_timeouts" => count(group.dns.as_ref()?.timeouts),
        "hosts.neighbors" => {
            let lldp = group.lldp.as_ref().map(HostLldpReport::neighbors_found);
            let cdp = group.cdp.as_ref().map(HostCdpReport::neighbors_found);
            (lldp.is_some() || cdp.is_some()).then(|| (lldp.unwrap_or(0) + cdp.unwrap_or(0)) as f64)
        }
        "hosts.unconfirmed" => {
            let dhcp = group.ipv6.as_ref()?.dhcp.as_ref()?;
            count(dhcp.unconfirmed + dhcp.refused)
        }
        "hosts.icmp_errors" => count(group.echo.errors.values().sum()),
        "hosts.lacp_up" => count(group.lacp.as_ref()?.up),
        "hosts.lacp_down" => count(group.lacp.as_ref()?.down),
        "hosts.sessions_opened" => count(group.pppoe.as_ref()?.opened),
        "hosts.sessions_ended" => count(group.pppoe.as_ref()?.ended.values().sum()),
        _ => unreachable!("{name} is in HOSTS_TERMS and has no value"),
    }
}

/// Hosts of a group that failed, at least.
fn failed_hosts(group: &HostsReport) -> u64 {
    let ipv4: u64 = group.failed.values().sum();
    let ipv6: u64 = group.ipv6.iter().flat_map(|of| of.failed.values()).sum();
    if group.states.is_empty() {
        // Only hosts that were authenticated begin with IPv6, so none is in both.
        ipv4 + ipv6
    } else {
        // A host with both families may have failed over each.
        ipv4.max(ipv6)
    }
}

fn hosts_spread<'a>(spread: &str, group: &'a HostsReport) -> Option<&'a Distribution> {
    match spread {
        "offer" => group.offer_ns.as_ref(),
        "dora" => group.dora_ns.as_ref(),
        "echo_rtt" => group.echo.rtt_ns.as_ref(),
        "resolve" => group.dns.as_ref()?.time_ns.as_ref(),
        "confirm" => group.ipv6.as_ref()?.dhcp.as_ref()?.confirm_ns.as_ref(),
        "lacp_link" => group.lacp.as_ref()?.up_ns.as_ref(),
        "pppoe_session" => group.pppoe.as_ref()?.session_ns.as_ref(),
        "pppoe_open" => group.pppoe.as_ref()?.open_ns.as_ref(),
        _ => unreachable!("{spread} is in HOSTS_SPREADS and has no value"),
    }
}

fn template_spread<'a>(spread: &str, role: &'a RoleReport) -> Option<&'a Distribution> {
    match spread {
        "setup" => role.setup_ns.as_ref(),
        "first_byte" => role.first_byte_ns.as_ref(),
        "first_byte_from_start" => role.first_byte_from_start_ns.as_ref(),
        "transaction" => role.transaction_ns.as_ref(),
        "duration" => role.duration_ns.as_ref(),
        "tls_handshake" => role.tls.as_ref()?.handshake_ns.as_ref(),
        "duration_from_due" => role.duration_from_due_ns.as_ref(),
        _ => unreachable!("{spread} is in TEMPLATE_SPREADS and has no value"),
    }
}

fn statistic_of(statistic: &str, d: &Distribution) -> Option<f64> {
    if d.count == 0 {
        return None;
    }
    Some(match statistic {
        "min" => d.min as f64,
        "mean" => d.mean,
        "stddev" => d.stddev,
        "p50" => d.p50 as f64,
        "p90" => d.p90 as f64,
        // Reports of earlier versions lack p95.
        "p95" => Some(d.p95).filter(|p95| *p95 > 0 || d.p90 == 0)? as f64,
        "p99" => d.p99 as f64,
        "p999" => d.p999 as f64,
        "max" => d.max as f64,
        _ => unreachable!("{statistic} is in STATISTICS and has no value"),
    })
}

// --- values
// ------------------------------------------------------------------------------------------------------

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Bool,
    Count,
    Share,
    /// A count, or with `%` or `ppm` a share of the total.
    CountOrShare,
    Time,
    Rate,
    Cps,
    Bits,
}

impl Kind {
    /// Suffixes and their factors. Times require a unit, because a plain 50 could be in any of
    /// four.
    fn units(self) -> &'static [(&'static str, f64)] {
        match self {
            Self::Bool => &[],
            Self::Count => &[("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9)],
            Self::Share => &[("", 1.0), ("%", 1e-2), ("ppm", 1e-6)],
            Self::CountOrShare => {
                &[("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9), ("%", 1e-2), ("ppm", 1e-6)]
            }
            Self::Time => {
                &[("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("μs", 1e3), ("ms", 1e6), ("s", 1e9)]
            }
            Self::Rate => &[("pps", 1.0), ("kpps", 1e3), ("Mpps", 1e6), ("", 1.0)],
            Self::Cps => {
                &[("", 1.0), ("k", 1e3), ("M", 1e6), ("cps", 1.0), ("kcps", 1e3), ("Mcps", 1e6)]
            }
            Self::Bits => &[("bps", 1.0), ("kbps", 1e3), ("Mbps", 1e6), ("Gbps", 1e9)],
        }
    }

    fn expected(self) -> (&'static str, &'static str) {
        match self {
            Self::Bool => ("true or false", "valid == false, or not valid"),
            Self::Count => ("a count", "loss > 0, not_sent >= 10k; a share is loss_ratio > 0.1 %"),
            Self::Share => {
                ("a share", "loss_ratio > 0.1 %, rate_error > 100 ppm, loss_ratio > 1e-3")
            }
            Self::CountOrShare => {
                ("a count, or a share in % or ppm", "http.5xx > 0, http.4xx > 1 %")
            }
            Self::Time => ("a time with its unit (ns, us, ms, s)", "latency.p99 > 50us"),
            Self::Rate => ("a rate in pps, kpps or Mpps", "tx_pps < 10 kpps"),
            Self::Cps => (
                "flows per second",
                "cps < 10k, completed_cps < 9.9 kcps; a share is cps_error > 1 %",
            ),
            Self::Bits => ("a rate in bps, kbps, Mbps or Gbps", "goodput < 1 Gbps"),
        }
    }

    fn print(self, value: f64) -> String {
        use crate::render::human;
        match self {
            Self::Bool => (value != 0.0).to_string(),
            Self::Count | Self::CountOrShare => human::count(value as u64),
            Self::Share => human::ratio(value),
            Self::Time => human::ns(value),
            Self::Rate => human::si(value, "pps"),
            Self::Cps => human::si(value, ""),
            Self::Bits => human::si(value, "b/s"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Gt,
    Ge,
    Lt,
    Le,
    Eq,
    Ne,
}

// Longer operators first, because ">=" begins with ">".
const OPS: &[(&str, Op)] =
    &[(">=", Op::Ge), ("<=", Op::Le), ("==", Op::Eq), ("!=", Op::Ne), (">", Op::Gt), ("<", Op::Lt)];

impl Op {
    fn holds(self, a: f64, b: f64) -> bool {
        match self {
            Self::Gt => a > b,
            Self::Ge => a >= b,
            Self::Lt => a < b,
            Self::Le => a <= b,
            Self::Eq => a == b,
            Self::Ne => a != b,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Expr {
    Or(Vec<Expr>),
    And(Vec<Expr>),
    Not(Box<Expr>),
    Compare(Asked, Op, f64),
}

impl Expr {
    /// Evaluates in Kleene's three-valued logic, where `None` is unknown.
    fn holds(&self, run: &RunTotals<'_>, stream: Option<Subject<'_>>) -> Option<bool> {
        // A single part equal to `winner` determines the result. Otherwise, a single unknown part
        // makes it unknown.
        let fold = |parts: &[Self], winner: bool| {
            let mut result = Some(!winner);
            for part in parts {
                match part.holds(run, stream) {
                    Some(v) if v == winner => return Some(winner),
                    Some(_) => {}
                    None => result = None,
                }
            }
            result
        };
        match self {
            Self::Or(parts) => fold(parts, true),
            Self::And(parts) => fold(parts, false),
            Self::Not(inner) => inner.holds(run, stream).map(|v| !v),
            Self::Compare(term, op, bound) => term.value(run, stream).map(|v| op.holds(v, *bound)),
        }
    }

    fn visit<'a>(&'a self, f: &mut impl FnMut(&'a Asked)) {
        match self {
            Self::Or(parts) | Self::And(parts) => parts.iter().for_each(|p| p.visit(f)),
            Self::Not(inner) => inner.visit(f),
            Self::Compare(asked, ..) => f(asked),
        }
    }

    fn any_term(&self, test: &impl Fn(&Asked) -> bool) -> bool {
        let mut any = false;
        self.visit(&mut |asked| any |= test(asked));
        any
    }

    /// Names in the expression.
    fn names(&self) -> Vec<&str> {
        let mut names = Vec::new();
        self.visit(&mut |asked| names.extend(asked.name.as_deref()));
        names
    }

    /// The name that all stream and template terms have in common, if any.
    fn only_name(&self) -> Option<&str> {
        let mut names = self.names();
        names.dedup();
        let [name] = names[..] else { return None };
        let unnamed = self.any_term(&|asked| asked.name.is_none() && asked.term.is_of_one());
        (!unnamed).then_some(name)
    }

    /// `loss = 12, latency.p99 = 60.0 µs`
    fn values(&self, run: &RunTotals<'_>, subject: Option<Subject<'_>>) -> String {
        let mut seen: Vec<(&Asked, String)> = Vec::new();
        let only = self.only_name();
        self.visit(&mut |asked| {
            if seen.iter().all(|(other, _)| *other != asked) {
                let value = asked.value(run, subject);
                seen.push((asked, value.map_or("unknown".into(), |v| asked.print(v))));
            }
        });
        let shown = seen.iter().map(|(asked, value)| match &asked.name {
            // If all terms have this name, it is already at the start of the sentence.
            Some(name) if only.is_none() => format!("{name:?}.{} = {value}", asked.term),
            _ => format!("{} = {value}", asked.term),
        });
        shown.collect::<Vec<_>>().join(", ")
    }
}

// --- parser
// ------------------------------------------------------------------------------------------------------

/// Maximum depth of recursion. Deeper nesting is an attempt to exhaust the stack.
const MAX_DEPTH: usize = 32;

struct Parser<'a> {
    text: &'a str,
    /// Offset in octets.
    at: usize,
}

impl<'a> Parser<'a> {
    fn expression(&mut self, depth: usize) -> Result<Expr, FailIfError> {
        let mut parts = vec![self.all(depth)?];
        while self.keyword("or") {
            parts.push(self.all(depth)?);
        }
        Ok(single_or(parts, Expr::Or))
    }

    fn all(&mut self, depth: usize) -> Result<Expr, FailIfError> {
        let mut parts = vec![self.one(depth)?];
        while self.keyword("and") {
            parts.push(self.one(depth)?);
        }
        Ok(single_or(parts, Expr::And))
    }

    fn one(&mut self, depth: usize) -> Result<Expr, FailIfError> {
        if depth > MAX_DEPTH {
            return Err(self.error_here("at most 32 levels of nesting", "fewer parentheses"));
        }
        if self.keyword("not") {
            return Ok(Expr::Not(Box::new(self.one(depth + 1)?)));
        }
        if self.symbol("(") {
            let inner = self.expression(depth + 1)?;
            if !self.symbol(")") {
                return Err(self.error_here("\")\"", "(loss > 0 or not valid) and total.tx > 0"));
            }
            return Ok(inner);
        }
        let (name, term) = self.term()?;
        let asked = |share| Asked { name: name.map(str::to_owned), term, share };
        self.space();
        let Some((symbol, op)) = OPS.iter().find(|(symbol, _)| self.rest().starts_with(symbol))
        else {
            if term.kind() == Kind::Bool {
                return Ok(Expr::Compare(asked(false), Op::Ne, 0.0));
            }
            let hint =
                if self.rest().starts_with('=') { "==, not =" } else { term.kind().expected().1 };
            return Err(self.error_here("a comparison: > >= < <= == !=", hint));
        };
        self.at += symbol.len();
        let (bound, unit) = self.value(term.kind())?;
        let share = term.kind() == Kind::CountOrShare && matches!(unit, "%" | "ppm");
        Ok(Expr::Compare(asked(share), *op, bound))
    }

    /// A term, and the name before it if there is one.
    fn term(&mut self) -> Result<(Option<&'a str>, Term), FailIfError> {
        self.space();
        let quoted = self.quoted()?;
        let word = self.take(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.');
        if word.is_empty() {
            return Err(self.error_here("a term", "loss > 0"));
        }
        let (name, term) = match (quoted, word.split_once('.')) {
            (Some(_), _) => (quoted, word),
            // A word that is a term is not taken as a name, so a stream named "total" must be
            // quoted.
            (None, Some((name, term))) if Term::find(word).is_none() => (Some(name), term),
            (None, _) => (None, word),
        };
        if let Some(found) = Term::find(term).filter(|found| name.is_none() || found.is_of_one()) {
            return Ok((name, found));
        }
        self.at -= word.len();
        let spreads = || SPREADS.iter().chain(TEMPLATE_SPREADS).chain(HOSTS_SPREADS);
        let (expected, hint) = match spreads().find(|(s, _)| *s == word || *s == term) {
            Some(_) => (
                "a statistic of it".to_owned(),
                STATISTICS.iter().map(|s| format!("{word}.{s}")).collect(),
            ),
            None if quoted.is_some() => {
                ("a term of a stream or template".to_owned(), nearest(word, None))
            }
            None => ("a term".to_owned(), nearest(word, name)),
        };
        Err(self.error(word, &expected, &(hint.join(", ") + &known())))
    }

    /// A quoted name and the dot that follows it.
    fn quoted(&mut self) -> Result<Option<&'a str>, FailIfError> {
        let Some(mark) = self.rest().chars().next().filter(|c| matches!(c, '"' | '\'')) else {
            return Ok(None);
        };
        self.at += 1;
        let name = self.take(|c| c != mark);
        let end = format!("{mark}.");
        if !self.rest().starts_with(&end) {
            let expected = format!("{end} and a term after the name");
            return Err(self.error_here(&expected, "\"my web\".failed > 0"));
        }
        self.at += end.len();
        Ok(Some(name))
    }

    /// A value, and its unit.
    fn value(&mut self, kind: Kind) -> Result<(f64, &'a str), FailIfError> {
        self.space();
        let start = self.at;
        let (expected, hint) = kind.expected();
        if kind == Kind::Bool {
            return match self.take(|c| c.is_ascii_alphanumeric()) {
                "true" => Ok((1.0, "")),
                "false" => Ok((0.0, "")),
                other => {
                    self.at = start;
                    Err(self.error(
                        if other.is_empty() { self.next_word() } else { other },
                        expected,
                        hint,
                    ))
                }
            };
        }
        let number = self.number();
        let gap = self.at;
        self.space();
        let unit = match self.rest().starts_with('%') {
            true => self.take(|c| c == '%'),
            false => self.take(char::is_alphabetic),
        };
        // In `loss > 0 or ...`, the word after the number is not a unit.
        let unit = if matches!(unit, "and" | "or") {
            self.at = gap;
            ""
        } else {
            unit
        };
        let value =
            number.replace('_', "").parse::<f64>().ok().filter(|v| v.is_finite() && *v >= 0.0);
        let factor = kind.units().iter().find(|(u, _)| *u == unit).map(|(_, factor)| *factor);
        match (value, factor) {
            (Some(0.0), None) if unit.is_empty() => Ok((0.0, "")),
            (Some(value), Some(factor)) => Ok((value * factor, unit)),
            _ => {
                let end = self.at;
                self.at = start;
                let found =
                    if end > start { self.text[start..end].trim_end() } else { self.next_word() };
                Err(self.error(found, expected, hint))
            }
        }
    }

    /// Digits, `_`, `.`, and an exponent: `1e-3`.
    fn number(&mut self) -> &'a str {
        let start = self.at;
        self.take(|c| c.is_ascii_digit() || c == '.' || c == '_');
        let mut exponent = self.rest().chars();
        if self.at > start && matches!(exponent.next(), Some('e' | 'E')) {
            let sign = usize::from(matches!(exponent.clone().next(), Some('-' | '+')));
            if exponent.nth(sign).is_some_and(|c| c.is_ascii_digit()) {
                self.at += 1 + sign;
                self.take(|c| c.is_ascii_digit());
            }
        }
        &self.text[start..self.at]
    }

    fn keyword(&mut self, word: &str) -> bool {
        self.space();
        let Some(after) = self.rest().strip_prefix(word) else { return false };
        let ends = !after.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.');
        self.at += if ends { word.len() } else { 0 };
        ends
    }

    fn symbol(&mut self, symbol: &str) -> bool {
        self.space();
        let found = self.rest().starts_with(symbol);
        self.at += if found { symbol.len() } else { 0 };
        found
    }

    fn space(&mut self) {
        self.take(char::is_whitespace);
    }

    fn take(&mut self, test: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let len = rest.find(|c| !test(c)).unwrap_or(rest.len());
        self.at += len;
        &rest[..len]
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn next_word(&self) -> &'a str {
        self.rest().split_whitespace().next().unwrap_or("")
    }

    fn error_here(&mut self, expected: &str, hint: &str) -> FailIfError {
        self.space();
        self.error(self.next_word(), expected, hint)
    }

    fn error(&self, found: &str, expected: &str, hint: &str) -> FailIfError {
        FailIfError {
            text: self.text.into(),
            column: self.text[..self.at].chars().count() + 1,
            found: found.into(),
            expected: expected.into(),
            hint: hint.into(),
        }
    }
}

fn single_or(mut parts: Vec<Expr>, join: fn(Vec<Expr>) -> Expr) -> Expr {
    if parts.len() == 1 { parts.remove(0) } else { join(parts) }
}

/// All terms, a line for each kind.
fn known() -> String {
    let listed = |terms: &[(&str, Kind, &str)], spreads: &[(&str, &str)]| {
        let names = terms.iter().map(|(name, ..)| (*name).to_owned());
        names
            .chain(spreads.iter().map(|(name, _)| format!("{name}.STAT")))
            .collect::<Vec<_>>()
            .join(", ")
    };
    format!(
        "\n  of a stream: {}\n  of a template: {}\n  of the run: {}, and total. before terms of a \
         template\n  STAT is {}; the name of a stream or template can precede a term: \
         web.failed, \"my web\".failed",
        listed(STREAM_TERMS, SPREADS),
        listed(TEMPLATE_TERMS, TEMPLATE_SPREADS),
        listed(RUN_TERMS, &[]),
        STATISTICS.join(", ")
    )
}

/// The three terms with the fewest edits from `word`. `name` is the stream or template whose name
/// may precede them.
fn nearest(word: &str, name: Option<&str>) -> Vec<String> {
    let named = name.into_iter().flat_map(|name| {
        Term::all_names().filter(|n| !n.starts_with("total.")).map(move |n| format!("{name}.{n}"))
    });
    let mut names: Vec<_> =
        Term::all_names().chain(named).map(|n| (edit_distance(word, &n), n)).collect();
    names.sort();
    names.into_iter().take(3).map(|(_, n)| n).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{
        PortReport, Verdict,
        hosts::{HostDhcp6Report, HostIpv6Report, HostNdReport},
    };

    fn stream(name: &str, tx: u64, lost: u64, p99: u64) -> StreamReport {
        let latency = Distribution {
            count: tx - lost,
            p99,
            max: 2 * p99,
            mean: 10.5,
            ..Distribution::default()
        };
        StreamReport {
            name: name.into(),
            tx_packets: tx,
            tx_pps: 990.0,
            asked_pps: Some(1000.0),
            rx: Some(Box::new(StreamRx {
                packets: tx - lost,
                lost,
                loss_ratio: lost as f64 / tx as f64,
                latency_ns: (tx > lost).then_some(latency),
                ..StreamRx::default()
            })),
            ..StreamReport::default()
        }
    }

    fn report() -> Report {
        let mut port = PortReport { name: "A".into(), ..PortReport::default() };
        port.rx.drops.insert("ring full".into(), 7);
        Report {
            verdict: Verdict::default(),
            ports: vec![port],
            streams: vec![stream("web", 1000, 10, 60_000), stream("dns", 1000, 0, 20_000)],
            ..Report::default()
        }
    }

    fn check(text: &str) -> Vec<String> {
        FailIf::parse(text).unwrap_or_else(|e| panic!("{e}")).check(&report())
    }

    #[test]
    fn a_criterion_is_checked_on_each_stream() {
        assert_eq!(check("loss>0"), ["stream \"web\": loss = 10 (fail if loss>0)"]);
        assert_eq!(check("loss > 10"), [""; 0]);
        assert_eq!(check("loss >= 10").len(), 1);
        assert_eq!(check("loss_ratio > 0.9 %").len(), 1);
        assert_eq!(check("loss_ratio > 1 %").len(), 0);
        assert_eq!(check("loss_ratio >= 1e-2").len(), 1);
        assert_eq!(check("loss_ratio > 9999ppm").len(), 1);
        assert_eq!(check("rate_error > 0.5%").len(), 2);
        assert_eq!(check("tx_pps < 1 kpps").len(), 2);
        assert_eq!(
            check("latency.p99 > 50us"),
            ["stream \"web\": latency.p99 = 60.0 µs (fail if latency.p99 > 50us)"]
        );
        assert_eq!(check("latency.max > 0.1 ms").len(), 1);
        assert_eq!(check("loss != 10").len(), 1);
    }

    #[test]
    fn criteria_are_checked_on_routes_where_there_are_any() {
        use super::super::routes::RouteTimes;
        let mut report = report();
        let mut routes = RoutesReport { resolution_s: Some(0.01), ..RoutesReport::default() };
        let mut check = |routes: &RoutesReport, text: &str| {
            let rx = report.streams[0].rx.as_mut().unwrap();
            rx.routes = Some(Box::new(routes.clone()));
            FailIf::parse(text).unwrap().check(&report).len()
        };
        assert_eq!(check(&routes, "loss_of_connectivity > 0 or routes_down > 0"), 0);
        (routes.lossy, routes.down) = (3, 1);
        routes.loss_of_connectivity = RouteTimes::of(vec![0.2, 0.3]);
        assert_eq!(check(&routes, "loss_of_connectivity > 299 ms"), 1);
        assert_eq!(check(&routes, "loss_of_connectivity > 301 ms"), 0);
        assert_eq!(check(&routes, "routes_lossy > 2 and routes_down == 1"), 1);
        // No route has changed its port: unknown.
        assert_eq!(check(&routes, "convergence > 1 s"), 1);
        routes.convergence = RouteTimes::of(vec![0.4]);
        assert_eq!(check(&routes, "convergence > 1 s"), 0);
        assert!(FailIf::parse_abort("routes_down > 0").is_err());
    }

    #[test]
    fn and_binds_stronger_than_or() {
        assert_eq!(check("loss > 0 and latency.p99 > 1ms or loss == 0").len(), 1);
        assert_eq!(check("loss > 0 and (latency.p99 > 1ms or loss == 0)").len(), 0);
        assert_eq!(check("not (loss == 0 or latency.p99 < 50us)").len(), 1);
    }

    #[test]
    fn terms_of_the_run_are_checked_once() {
        assert_eq!(check("rx.drops > 0"), ["rx.drops = 7 (fail if rx.drops > 0)"]);
        assert_eq!(
            check("total.loss_ratio > 0.4 %"),
            ["total.loss_ratio = 0.500 % (fail if total.loss_ratio > 0.4 %)"]
        );
        assert_eq!(check("valid").len(), 1);
        assert_eq!(check("not valid or errors > 0").len(), 0);
        assert_eq!(check("valid == false").len(), 0);
        assert_eq!(check("valid != false").len(), 1);
    }

    #[test]
    fn a_check_that_looked_at_nothing_fails() {
        let mut none = report();
        for stream in &mut none.streams {
            stream.rx = None;
        }
        let check = |text: &str, report: &Report| FailIf::parse(text).unwrap().check(report);
        assert!(
            check("loss > 0", &none)[0]
                .starts_with("cannot evaluate loss > 0: no stream measured it")
        );
        assert!(check("total.loss > 0", &none)[0].starts_with("cannot evaluate"));
        assert_eq!(check("loss > 0", &Report::default()).len(), 1);
        // A single measured stream suffices: the other one was not to be measured.
        none.streams[1] = stream("dns", 10, 0, 5);
        assert_eq!(check("loss > 0", &none).len(), 0);
        // A measured stream that lost everything has no latency, so the criterion cannot pass.
        none.streams[0] = stream("gone", 10, 10, 5);
        assert_eq!(
            check("latency.p99 > 1s", &none),
            ["stream \"gone\": cannot evaluate latency.p99 > 1s: none of its 10 frames \
              arrived"]
        );
    }

    #[test]
    fn a_criterion_is_checked_on_a_capture() {
        let capture = CaptureReport {
            received: 1000,
            lost: 5,
            loss_ratio: 0.005,
            ..CaptureReport::default()
        };
        let report = Report { capture: Some(capture), ..Report::default() };
        let check = |text: &str| FailIf::parse(text).unwrap().check(&report);
        assert_eq!(check("loss>0"), ["loss = 5 (fail if loss>0)"]);
        assert_eq!(check("drops > 5 or plr > 0.5 %"), [""; 0]);
        assert_eq!(check("plr >= 0.5 %").len(), 1);
        assert!(check("latency.p99 > 1s")[0].starts_with("cannot evaluate"));
    }

    #[test]
    fn ten_thousand_violations_are_ten_and_a_count() {
        let many = Report { streams: vec![stream("s", 5, 1, 1); 10_000], ..Report::default() };
        let violations = FailIf::parse("loss > 0").unwrap().check(&many);
        assert_eq!(violations.len(), 11);
        assert_eq!(violations[10], "9990 more streams (fail if loss > 0)");
    }

    #[test]
    fn errors_say_where_what_and_what_to_try() {
        let error = |text: &str| FailIf::parse(text).unwrap_err();
        let e = error("loss > 0 and latncy.p99 > 5us");
        assert_eq!((e.column, e.found.as_str()), (14, "latncy.p99"));
        assert!(e.hint.starts_with("latency.p99"), "{e}");
        assert!(
            e.hint.contains("of a template: attempted, ") && e.hint.contains(", setup.STAT, "),
            "{e}"
        );
        assert!(e.to_string().contains("\n               ^^^^^^^^^^\n"), "{e}");
        assert!(error("latency > 5us").hint.contains("latency.p99"));
        assert_eq!(error("latency.p99 > 5").found, "5");
        assert_eq!(error("loss > 1 %").found, "1 %");
        assert!(error("loss > 1 %").hint.contains("loss_ratio"));
        assert_eq!(error("loss = 1").hint, "==, not =");
        assert_eq!(error("loss > -1").found, "-1");
        assert_eq!(error("loss > 1 valid").found, "1 valid");
        assert_eq!(error("valid loss > 1").column, 7);
        assert_eq!(error("(loss > 1").expected, "\")\"");
        assert!(error("valid == 3").expected.contains("true"));
        for text in [
            "",
            "and",
            "loss",
            "loss >",
            "((((",
            "loss > 0 or",
            "loss > 1e999",
            "µ",
            "loss > 0 µ",
            "not",
        ] {
            assert!(!error(text).to_string().is_empty());
        }
        error(&"(".repeat(100_000));
        error(&"not ".repeat(100_000));
    }

    #[test]
    fn every_term_has_a_value_and_a_line_in_the_reference() {
        let report = report();
        let run = RunTotals::new(&report);
        let reference = reference();
        for name in Term::all_names() {
            let term = Term::find(&name).unwrap();
            assert_eq!(term.to_string(), name);
            term.value(&run, Some(Subject::Stream(&report.streams[0])));
            term.value(&run, Some(Subject::Template("web", "client", &RoleReport::default())));
            term.value(&run, Some(Subject::Hosts(&HostsReport::default())));
            let shown = match term {
                Term::Spread(s, _) | Term::TemplateSpread(s, _) | Term::HostsSpread(s, _) => {
                    format!("{s}.STAT")
                }
                Term::Total(_) => "total.TERM".into(),
                _ => name,
            };
            assert!(reference.lines().any(|l| l.starts_with(&shown)), "{shown}");
        }
    }

    fn loaded() -> Report {
        use super::super::flows::{RequestsReport, RolesReport, SteadyReport, TemplateReport};
        let web = RoleReport {
            attempted: 1000,
            completed: 990,
            failed: [("reset".to_owned(), 10)].into(),
            cps: 90.0,
            asked_cps: Some(100.0),
            steady: Some(SteadyReport {
                attempted_cps: 99.0,
                completed_cps: 98.0,
                ..SteadyReport::default()
            }),
            requests: Some(RequestsReport { asked: 4000, sent: 3990, answered: 3980 }),
            setup_ns: Some(Distribution { count: 1000, p99: 2_000_000, ..Distribution::default() }),
            tcp: [
                ("segments_out".to_owned(), 5000),
                ("retransmit_rto".to_owned(), 5),
                ("retransmit_octets".into(), 99),
            ]
            .into(),
            ..RoleReport::default()
        };
        let client = |role: RoleReport| RolesReport { client: Some(role), server: None };
        let template = |name: &str, role: RoleReport| TemplateReport {
            name: name.into(),
            roles: client(role),
        };
        let dns = RoleReport { attempted: 10, completed: 10, active: 0, ..RoleReport::default() };
        let load = FlowsReport {
            templates: vec![template("web", web.clone()), template("dns", dns)],
            total: client(RoleReport { attempted: 1010, ..web }),
            ..FlowsReport::default()
        };
        Report { flows: Some(load), ..Report::default() }
    }

    #[test]
    fn templates_are_looked_at_each_and_together() {
        let report = loaded();
        let check =
            |text: &str| FailIf::parse(text).unwrap_or_else(|e| panic!("{e}")).check(&report);
        assert_eq!(
            check("failed > 0"),
            ["template \"web\" (client): failed = 10 (fail if failed > 0)"]
        );
        assert_eq!(check("failed_ratio > 1 % or not_begun > 0"), [""; 0]);
        assert_eq!(check("failed_ratio >= 1 %").len(), 1);
        assert_eq!(check("completed < 100").len(), 1);
        assert_eq!(
            check("cps < 100 cps and cps > 95"),
            ["template \"web\" (client): cps = 99.0 (fail if cps < 100 cps and cps > 95)"]
        );
        assert_eq!(check("cps_error > 0.9 %").len(), 1);
        assert_eq!(check("cps_error > 1.1 %"), [""; 0]);
        assert_eq!(check("setup.p99 > 1 ms").len(), 1);
        assert_eq!(check("retransmits > 4 and retransmit_ratio >= 0.1 %").len(), 1);
        assert_eq!(check("resets > 9").len(), 1);
        assert_eq!(check("requests_asked != 4000 or requests_sent != 3990"), [""; 0]);
        assert_eq!(check("requests_answered < 4000").len(), 1);
        assert_eq!(check("total.attempted != 1010 or total.active > 0"), [""; 0]);
        assert_eq!(
            check("total.failed > 9 and goodput < 1 Mbps").len(),
            2,
            "total.failed is that of the run"
        );
        assert!(
            check("transaction.p99 > 1 s")[0]
                .starts_with("cannot evaluate transaction.p99 > 1 s: no template")
        );
    }

    #[test]
    fn classes_of_responses_are_a_count_or_a_share() {
        let mut report = loaded();
        let http = [("2xx".to_owned(), 995), ("5xx".into(), 5)];
        if let Some(role) = &mut report.flows.as_mut().unwrap().templates[0].roles.client {
            role.http = http.clone().into();
        }
        report.flows.as_mut().unwrap().total.client.as_mut().unwrap().http = http.into();
        let check =
            |text: &str| FailIf::parse(text).unwrap_or_else(|e| panic!("{e}")).check(&report);
        assert_eq!(
            check("http.5xx > 4"),
            ["template \"web\" (client): http.5xx = 5 (fail if http.5xx > 4)"]
        );
        assert_eq!(check("http.5xx > 5 or http.4xx > 0"), [""; 0]);
        assert_eq!(
            check("http.5xx > 0.4 %"),
            ["template \"web\" (client): http.5xx = 0.500 % (fail if http.5xx > 0.4 %)"]
        );
        assert_eq!(check("http.5xx > 0.6 % or total.http.5xx > 5001 ppm"), [""; 0]);
        assert_eq!(check("total.http.5xx > 0.1 % and total.http.2xx < 1 k").len(), 1);
        assert!(
            check("dns.http.5xx > 0")[0]
                .starts_with("cannot evaluate dns.http.5xx > 0: no template measured it")
        );
        let e = FailIf::parse("http.5xx > 1 ms").unwrap_err();
        assert_eq!(
            (e.found.as_str(), e.expected.as_str()),
            ("1 ms", Kind::CountOrShare.expected().0)
        );
    }

    #[test]
    fn a_name_before_a_term_asks_one_stream_or_template() {
        let mut both = Report { streams: report().streams, ..loaded() };
        both.flows.as_mut().unwrap().templates[1].name = "my dns".into();
        both.streams[1].name = "and more".into();
        let check = |text: &str| FailIf::parse(text).unwrap_or_else(|e| panic!("{e}")).check(&both);
        assert_eq!(
            check("web.failed > 0"),
            ["template \"web\" (client): failed = 10 (fail if web.failed > 0)"]
        );
        assert_eq!(check("\"my dns\".failed > 0"), [""; 0]);
        assert_eq!(check("'my dns'.attempted == 10").len(), 1);
        // The stream of that name has other terms as well.
        assert_eq!(check("web.loss > 9"), ["stream \"web\": loss = 10 (fail if web.loss > 9)"]);
        assert_eq!(check("web.latency.p99 > 1ms"), [""; 0]);
        assert_eq!(check("\"and more\".loss > 0"), [""; 0]);
        // With two names, each is looked up. Terms without a name are evaluated on each stream.
        assert_eq!(
            check("web.failed > 9 and \"my dns\".failed == 0"),
            ["\"web\".failed = 10, \"my dns\".failed = 0 (fail if web.failed > 9 and \
                 \"my dns\".failed == 0)"]
        );
        assert_eq!(check("web.failed > 9 and completed > 0").len(), 2);
        assert_eq!(check("web.failed > 10 or \"my dns\".completed == 10").len(), 1);
        assert_eq!(check("web.failed > 9 and total.failed > 9").len(), 1);
        assert_eq!(
            check("wbe.failed > 0 or web.failed > 0"),
            [
                "cannot evaluate wbe.failed > 0 or web.failed > 0: no stream, template or group \
                 of hosts is called \"wbe\"; the nearest: \"web\", \"my dns\", \"and more\"",
                "template \"web\" (client): failed = 10 (fail if wbe.failed > 0 or web.failed > 0)",
            ]
        );
        let parsed = |text: &str| FailIf::parse(text).unwrap();
        assert_eq!(parsed("web.failed > 0 and loss > 0").find_names(&["dns", "web"]), Ok(()));
        assert_eq!(
            parsed("wbe.failed > 0").find_names(&["dns", "web"]).unwrap_err(),
            "wbe.failed > 0: no stream, template or group of hosts is called \"wbe\"; the nearest: \"web\", \"dns\""
        );
    }

    #[test]
    fn a_name_must_precede_a_term_of_a_stream_or_template() {
        let error = |text: &str| FailIf::parse(text).unwrap_err();
        assert!(
            error("web.faild > 0").hint.starts_with("web.failed, "),
            "{}",
            error("web.faild > 0")
        );
        assert!(error("web.latency > 5us").hint.starts_with("web.latency.min"));
        assert_eq!(error("\"web\".valid").found, "valid");
        assert_eq!(error("web.total.failed > 0").found, "web.total.failed");
        assert_eq!(error("\"web > 0").column, 9);
        assert_eq!(error("\"web\" > 0").expected, "\". and a term after the name");
    }

    #[test]
    fn a_criterion_that_ends_a_run_asks_only_what_is_known_by_then() {
        for text in ["loss > 0", "tx > 0 and valid", "failed > 1 or total.loss_ratio > 0"] {
            assert!(FailIf::parse_abort(text).is_err(), "{text}");
        }
        let refused = FailIf::parse_abort("tx > 10 and cps_error > 1 %").unwrap_err();
        assert_eq!((refused.column, refused.found.as_str()), (13, "cps_error"));
        assert!(refused.to_string().contains("only known at the end"), "{refused}");
        let abort = |text: &str| FailIf::parse_abort(text).unwrap_or_else(|e| panic!("{e}"));
        assert!(abort("latency.p99 > 1ms and elapsed > 2 s").needs_histograms());
        assert!(!abort("failed > 0").needs_histograms());

        let report = Report { duration_s: 2.5, ..report() };
        assert_eq!(
            abort("rx < 1000 and elapsed > 2 s").holds_so_far(&report).unwrap(),
            "stream \"web\": rx = 990, elapsed = 2.50 s (abort if rx < 1000 and elapsed > 2 s)"
        );
        assert_eq!(abort("rx < 1000 and elapsed > 3 s").holds_so_far(&report), None);
        // While a run continues, an unknown value is no violation; at the end, it is.
        let nothing = Report::default();
        assert_eq!(abort("failed > 0").holds_so_far(&nothing), None);
        assert_eq!(abort("failed > 0").check(&nothing).len(), 1);
    }

    #[test]
    fn p95_is_that_of_the_report_or_unknown() {
        let mut report = report();
        let latency = report.streams[0].rx.as_mut().unwrap().latency_ns.as_mut().unwrap();
        (latency.p90, latency.p95) = (40_000, 55_000);
        let old = Report { streams: vec![report.streams[0].clone()], ..Report::default() };
        assert_eq!(
            FailIf::parse("web.latency.p95 > 50us").unwrap().check(&report),
            ["stream \"web\": latency.p95 = 55.0 µs (fail if web.latency.p95 > 50us)"]
        );
        let mut old = old;
        old.streams[0].rx.as_mut().unwrap().latency_ns.as_mut().unwrap().p95 = 0;
        assert!(
            FailIf::parse("latency.p95 > 50us").unwrap().check(&old)[0]
                .starts_with("cannot evaluate")
        );
    }

    #[test]
    fn a_template_that_had_no_flow_fails_what_is_asked_of_it() {
        let mut report = loaded();
        if let Some(load) = &mut report.flows {
            load.templates[1].roles.client = None;
        }
        let check = |text: &str| FailIf::parse(text).unwrap().check(&report);
        assert_eq!(
            check("failed > 10"),
            ["template \"dns\": cannot evaluate failed > 10: it had no flows"]
        );
        assert_eq!(check("valid and total.failed > 10"), [""; 0]);
        assert!(
            FailIf::parse("failed > 0").unwrap().check(&Report::default())[0]
                .contains("a [[template]] must")
        );
        assert!(
            FailIf::parse("total.failed > 0").unwrap().check(&Report::default())[0]
                .starts_with("cannot evaluate")
        );
    }

    #[test]
    fn streams_and_templates_of_one_run_are_asked_by_one_criterion() {
        let both = Report { streams: report().streams, ..loaded() };
        let check = |text: &str| FailIf::parse(text).unwrap().check(&both);
        assert_eq!(check("loss > 10 or failed > 10"), [""; 0]);
        assert_eq!(check("loss > 9 or failed > 9").len(), 2);
        assert_eq!(
            check("loss > 9 or failed > 10"),
            ["stream \"web\": loss = 10 (fail if loss > 9 or failed > 10)"]
        );
    }

    #[test]
    fn flows_are_looked_at_as_streams_are() {
        use super::super::ReceivedFlowsReport;
        let gap = Distribution { count: 9, stddev: 40_000.0, ..Distribution::default() };
        let sequence = SequenceReport {
            kind: "rtp".into(),
            lost: 2,
            jitter_ns: Some(900.0),
            ..SequenceReport::default()
        };
        let flow = |name: &str, sequence: Option<SequenceReport>| ReceivedFlowReport {
            name: name.into(),
            arrival_gap_ns: Some(gap.clone()),
            sequence,
            ..ReceivedFlowReport::default()
        };
        let flows = ReceivedFlowsReport {
            flows: vec![flow("a", None), flow("b", Some(sequence))],
            ..ReceivedFlowsReport::default()
        };
        let report = Report { received_flows: Some(flows), ..Report::default() };
        let check = |text: &str| FailIf::parse(text).unwrap().check(&report);
        assert_eq!(check("loss > 1"), ["flow b: loss = 2 (fail if loss > 1)"]);
        assert_eq!(check("gap.stddev > 30us").len(), 2);
        assert_eq!(check("jitter > 1us or gap.stddev > 50us"), [""; 0]);
        assert_eq!(check("total.loss > 1").len(), 1);
        assert_eq!(check("latency.p99 > 1us").len(), 1, "nobody measured it");
    }

    #[test]
    fn groups_of_hosts_are_looked_at_each() {
        let dora = Distribution { count: 900, p99: 4_000_000, ..Distribution::default() };
        let group = HostsReport {
            name: "subscribers".into(),
            started: 1000,
            states: [("bound".into(), 890), ("renewing".into(), 10), ("failed".into(), 100)].into(),
            failed: [("no_offer".into(), 90), ("nak".into(), 10)].into(),
            dora_ns: Some(dora),
            ..HostsReport::default()
        };
        let servers = HostsReport { name: "servers".into(), started: 1, ..HostsReport::default() };
        let report = Report { hosts: vec![group, servers], ..loaded() };
        let check = |text: &str| FailIf::parse(text).unwrap().check(&report);
        assert_eq!(
            check("hosts.failed > 0"),
            ["hosts \"subscribers\": hosts.failed = 100 (fail if hosts.failed > 0)"]
        );
        assert_eq!(check("hosts.failed_ratio > 10 % or subscribers.hosts.bound != 900"), [""; 0]);
        assert_eq!(
            check("dora.p99 > 3 ms"),
            ["hosts \"subscribers\": dora.p99 = 4.00 ms (fail if dora.p99 > 3 ms)"]
        );
        assert_eq!(check("hosts.failed > 99 or failed > 9").len(), 2, "a template's, too");
        assert!(check("echo_rtt.max > 1 s")[0].contains("no hosts measured it"));
        assert!(check("subscriber.hosts.failed > 0")[0].contains("the nearest: \"subscribers\""));
    }

    #[test]
    fn terms_of_hosts_count_what_is_of_ipv6() {
        let dhcp = HostDhcp6Report { retransmissions: 40, expired: 5, ..Default::default() };
        let ipv6 = HostIpv6Report {
            states: [("bound".into(), 70), ("deprecated".into(), 9), ("failed".into(), 21)].into(),
            failed: [("no_advertise".into(), 20), ("no_router".into(), 1)].into(),
            address_rate: Some(250.0),
            ignored: [("wrong_xid".into(), 3)].into(),
            nd: HostNdReport { duplicates: 2, ..Default::default() },
            dhcp: Some(dhcp),
            ..Default::default()
        };
        let only = HostsReport {
            started: 100,
            failed: [("rejected".into(), 4)].into(),
            ignored: [("truncated".into(), 1)].into(),
            ipv6: Some(ipv6),
            ..HostsReport::default()
        };
        for (name, value) in [
            ("hosts.bound", 79.0),
            ("hosts.bound_rate", 250.0),
            ("hosts.failed", 25.0),
            ("hosts.failed_ratio", 0.25),
            ("hosts.retransmissions", 40.0),
            ("hosts.expired", 5.0),
            ("hosts.ignored", 4.0),
            ("hosts.conflicts", 2.0),
        ] {
            assert_eq!(hosts_value(name, &only), Some(value), "{name}");
        }
        // All hosts have both families, and a host may have failed over each.
        let both = HostsReport {
            states: [("bound".into(), 90), ("failed".into(), 10)].into(),
            failed: [("no_offer".into(), 10)].into(),
            bound_rate: Some(500.0),
            ..only
        };
        for (name, value) in
            [("hosts.bound", 90.0), ("hosts.bound_rate", 500.0), ("hosts.failed", 21.0)]
        {
            assert_eq!(hosts_value(name, &both), Some(value), "{name}");
        }
    }

    #[test]
    fn neighbors_that_the_report_does_not_list_count() {
        let listed = vec![Default::default(); 2];
        let lldp = HostLldpReport { neighbors: listed, neighbor_count: 4096, ..Default::default() };
        // A report of an older version has only the list.
        let cdp = HostCdpReport { neighbors: vec![Default::default(); 3], ..Default::default() };
        let group = HostsReport { lldp: Some(lldp), cdp: Some(cdp), ..HostsReport::default() };
        assert_eq!(hosts_value("hosts.neighbors", &group), Some(4099.0));
        assert_eq!(hosts_value("hosts.neighbors", &HostsReport::default()), None);
    }
}

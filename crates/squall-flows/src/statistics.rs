//! Outcomes of flows. Values from several workers can be merged.

use std::{collections::BTreeMap, sync::Arc};

use squall_apps::{Http2Counts, Http3Counts};
use squall_program::pace::Pacing;
use squall_stats::Histogram;
use squall_tcp::{Counters, Reason, UnmatchedCounters};
use squall_units::Nanos;

use crate::{HostedFlow, Second, Tally};

/// Results of one side (clients or servers) on one worker, or of several merged.
#[derive(Clone, Debug, Default)]
pub struct Statistics {
    /// Per template, in the load's order.
    pub templates: Vec<TemplateStatistics>,
    pub link: LinkStatistics,
    /// Packets that belong to no flow.
    pub strays: UnmatchedCounters,
    /// Clients that ran out of ports, by pool.
    pub exhausted: Vec<Exhausted>,
    /// Failed conversations of scripts, at most [`MOST_FAILED`].
    pub failed: Vec<FailedConversation>,
    /// Conversations of scripts whose servers completed.
    pub served: Served,
    /// Conversations of scripts whose clients are hosts, if they have begun or were refused. Empty
    /// in a snapshot during the run.
    pub hosted: Vec<HostedFlow>,
    /// Time from the start of the load.
    pub elapsed: Nanos,
    /// Time from the start until the last flow was due, or until now. Clients only.
    pub arrivals: Nanos,
    /// Time under full load: after the ramp up, before the ramp down, the limit or the stop.
    /// Clients only.
    pub steady: Nanos,
    /// Flows that began and ended in each whole second: clients, then servers. Empty until the side
    /// is over.
    pub seconds: [Vec<Second>; 2],
    /// How well the schedule of arrivals was kept. Clients only.
    pub pacing: Pacing,
    /// Whether all flows have begun and ended.
    pub over: bool,
}

/// A failed flow of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FailedConversation {
    /// Its 0-based number, over all of the load's [`crate::Script`]s.
    pub number: u32,
    /// Whether its client failed; otherwise its server did.
    pub client: bool,
    pub failure: Failure,
}

/// A set of conversations, one bit per number over all of the load's [`crate::Script`]s. A script
/// may have 65,000 conversations, for which a list of numbers would take up to 32 times as much
/// memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Served(Vec<u64>);

impl Served {
    pub fn has(&self, number: u32) -> bool {
        self.0.get(number as usize / 64).is_some_and(|bits| bits >> (number % 64) & 1 == 1)
    }

    pub(crate) fn add(&mut self, number: u32) {
        let at = number as usize / 64;
        if at >= self.0.len() {
            self.0.resize(at + 1, 0);
        }
        self.0[at] |= 1 << (number % 64);
    }

    fn merge(&mut self, other: &Self) {
        self.0.resize(self.0.len().max(other.0.len()), 0);
        self.0.iter_mut().zip(&other.0).for_each(|(sum, added)| *sum |= added);
    }
}

/// Maximum number of failed conversations stored: both ends of as many conversations as a script
/// may have, which are 65,000 because program numbers have 16 bits (ADR 0029).
pub const MOST_FAILED: usize = 1 << 17;

/// The flows of one template, by role. A side with a single role leaves the other empty.
#[derive(Clone, Debug, Default)]
pub struct TemplateStatistics {
    pub client: FlowStatistics,
    pub server: FlowStatistics,
}

/// The flows of one template in one role.
///
/// `attempted = established + failed before it + in progress`; `due = attempted + not_begun +
/// waiting`. Every flow is in one of these counters.
#[derive(Clone, Debug, Default)]
pub struct FlowStatistics {
    /// Flows that began: a SYN or first datagram was passed to the link (clients), or was received
    /// and accepted (servers).
    pub attempted: u64,
    /// Flows whose handshake completed; over UDP, all of them.
    pub established: u64,
    /// Flows that both sides closed after the program had completed.
    pub completed: u64,
    /// Flows that ended in any other way, by [`Failure::name`].
    pub failed: Failures,
    /// Deviations of peers from their programs, by [`squall_apps::ProtocolError::name`].
    pub protocol_errors: BTreeMap<&'static str, u64>,
    /// Counted only for clients whose programs have a known number of requests. Without that
    /// number, `sent` and `answered` would have nothing to be compared with.
    pub requests: Requests,
    /// The program's own counters, by name.
    pub counted: Vec<(Arc<str>, u64)>,
    /// Arrivals that were due but did not begin.
    pub not_begun: NotBegun,
    /// Arrivals that are due but are waiting: for their next hop, for addresses and ports, or for
    /// their turn. 0 at the end.
    pub waiting: u64,
    /// Flows that are open now.
    pub active: u64,
    /// Maximum number of flows open at the same time; if merged, the sum of the workers' peaks,
    /// which is an upper bound because these may have been at different times.
    pub peak: u64,
    /// Time from the SYN to the end of the handshake, in nanoseconds.
    pub setup: Histogram,
    /// Time from a request to the first octet of its response, in nanoseconds.
    pub first_byte: Histogram,
    /// Time from the start of a flow to the first octet of its first response, in nanoseconds.
    pub first_byte_from_start: Histogram,
    /// Time from a request to the last octet of its response, in nanoseconds.
    pub transaction: Histogram,
    /// Time from the start of a completed flow to its end, in nanoseconds.
    pub duration: Histogram,
    /// Time from when a completed flow was due to its end, in nanoseconds. Includes the time that
    /// the flow waited to begin, which a late generator would otherwise hide ("coordinated
    /// omission").
    pub corrected: Histogram,
    /// Octets of application data: received, and sent. Over TCP, sent octets count once they are
    /// acknowledged.
    pub received_octets: u64,
    pub sent_octets: u64,
    /// Acknowledged octets of headers of the PROXY protocol, which TCP counts as data.
    pub proxied_octets: u64,
    /// The counters within [`Statistics::steady`]. Clients only.
    pub steady: Tally,
    /// HTTP responses by status class: 1xx to 5xx.
    pub http: [u64; 5],
    /// The stack's counters.
    pub tcp: Counters,
    /// TLS figures, only for templates that use TLS.
    pub tls: Option<Box<TlsStatistics>>,
    /// HTTP/2 figures, only for templates that use HTTP/2.
    pub http2: Option<Box<Http2Counts>>,
    /// HTTP/3 figures, only for templates that use HTTP/3.
    pub http3: Option<Box<Http3Counts>>,
}

/// Requests of flows, over TCP or UDP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// Requests in the programs of all flows that began, and followed redirects. These are added
    /// because a redirect costs a request that is not in the program.
    pub asked: u64,
    /// Requests that were sent completely.
    pub sent: u64,
    pub answered: u64,
}

impl Requests {
    fn merge(&mut self, other: Self) {
        self.asked += other.asked;
        self.sent += other.sent;
        self.answered += other.answered;
    }
}

/// TLS sessions of one template's flows in one role.
#[derive(Clone, Debug, Default)]
pub struct TlsStatistics {
    /// Completed handshakes, and those among them that resumed an earlier session.
    pub handshakes: u64,
    pub resumed: u64,
    /// Sessions whose client sent early data (clients only), and those whose server accepted or
    /// refused them, with their octets.
    pub early_offered: u64,
    pub early_accepted: u64,
    pub early_octets_accepted: u64,
    pub early_refused: u64,
    pub early_octets_refused: u64,
    /// Sessions that failed, in the handshake or later, by reason.
    pub failed: BTreeMap<String, u64>,
    /// Sessions whose peer closed TCP without a close_notify.
    pub truncated: u64,
    /// Time from the end of the TCP handshake to the end of the TLS handshake, in nanoseconds.
    pub handshake: Histogram,
    /// Handshakes by cipher suite.
    pub ciphers: BTreeMap<&'static str, u64>,
    /// Plaintext octets that programs sent.
    pub sent_octets: u64,
}

/// Arrivals that did not begin, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NotBegun([u64; NotBegun::NAMES.len()]);

impl NotBegun {
    /// `late`: the generator was too slow. `ports_exhausted`: all tried tuples were in use.
    /// `unresolved`: no reply for the next hop. `limit`: too many open flows. `full`: the flow table has
    /// no room. `disabled`: all tried clients are disabled. `no_host`: the clients or the servers
    /// are hosts, none of which has an address and a resolved gateway.
    pub const NAMES: [&'static str; 7] =
        ["late", "ports_exhausted", "unresolved", "limit", "full", "disabled", "no_host"];
    pub(crate) const LATE: usize = 0;
    pub(crate) const PORTS: usize = 1;
    pub(crate) const UNRESOLVED: usize = 2;
    pub(crate) const LIMIT: usize = 3;
    pub(crate) const FULL: usize = 4;
    pub(crate) const DISABLED: usize = 5;
    pub(crate) const NO_HOST: usize = 6;

    pub fn late(&self) -> u64 {
        self.0[Self::LATE]
    }

    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Nonzero counts by name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        Self::NAMES.into_iter().zip(self.0).filter(|(_, n)| *n > 0)
    }

    pub(crate) fn add(&mut self, why: usize, n: u64) {
        self.0[why] += n;
    }

    fn merge(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, added)| *sum += added);
    }
}

/// Failed flows, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failures([u64; Failure::ALL.len()]);

/// Why a flow failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Failure {
    /// Both sides closed before the program had completed.
    Unfinished,
    /// The program aborted it after unexpected data.
    Aborted,
    /// Still open at the end of the drain time.
    Stopped,
    Reset,
    Refused,
    Unreachable,
    ConnectTimeout,
    Timeout,
    KeepaliveTimeout,
    /// No datagram in either direction for too long, before the program had completed (UDP).
    Idle,
    /// The own end is a host that lost its address.
    AddressLost,
}

/// Frames of one side that belong to no flow, or were lost before they reached one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStatistics {
    pub frames_received: u64,
    /// Received frames for other hosts: other MAC or IP addresses, tags or tunnels, or not IP.
    pub not_ours: u64,
    /// Received frames that are invalid: truncated, or with wrong lengths or checksums in tunnel
    /// headers.
    pub malformed: u64,
    /// Received frames accepted with an unverified TCP or UDP checksum: the sending host left it to its
    /// NIC, and the frame never passed one.
    pub checksum_unverified: u64,
    /// Received frames from addresses that are [ignored](crate::Ignored).
    pub ignored: u64,
    pub frames_sent: u64,
    /// Packets not sent because no reply for their next hop has arrived yet. The stack sends them again.
    pub unresolved: u64,
    /// Packets longer than the port's frames.
    pub too_long: u64,
    /// Packets of hosts that had lost their addresses.
    pub address_lost: u64,
    pub arp_requests_sent: u64,
    pub arp_requests_answered: u64,
    pub nd_solicitations_sent: u64,
    pub nd_solicitations_answered: u64,
    pub echoes_answered: u64,
    /// Replies dropped because the queue was full.
    pub answers_dropped: u64,
    /// Next hops that replied, and next hops that did not reply to any request.
    pub resolved: u64,
    pub resolution_failed: u64,
    /// Frames relayed to the port's other workers, which have their flows; and frames dropped
    /// because the queue of such a worker was full.
    pub relayed: u64,
    pub relay_dropped: u64,
    /// Flows from addresses outside of all client pools, to a port that several templates' servers
    /// share: a device has translated the address, and the first template's server was chosen.
    pub unknown_clients: u64,
}

/// Port exhaustion in a client pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exhausted {
    /// Number of addresses at which a flow found no free port.
    pub addresses: u64,
    /// Number of flows that did not begin for this reason.
    pub flows: u64,
}

impl Failure {
    pub const ALL: [Self; 11] = [
        Self::Unfinished,
        Self::Aborted,
        Self::Stopped,
        Self::Reset,
        Self::Refused,
        Self::Unreachable,
        Self::ConnectTimeout,
        Self::Timeout,
        Self::KeepaliveTimeout,
        Self::Idle,
        Self::AddressLost,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Unfinished => "unfinished",
            Self::Aborted => "aborted",
            Self::Stopped => "stopped",
            Self::Reset => "reset",
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::ConnectTimeout => "connect_timeout",
            Self::Timeout => "timeout",
            Self::KeepaliveTimeout => "keepalive_timeout",
            Self::Idle => "idle",
            Self::AddressLost => "address_lost",
        }
    }

    /// `None` for success; `finished`: whether the program had completed; `aborted`: why this side
    /// is aborting flows, if it is.
    pub(crate) fn of(reason: Reason, finished: bool, aborted: Option<Self>) -> Option<Self> {
        Some(match reason {
            // Because UDP has no FIN, only the idle timeout shows a server that its client has
            // ended.
            Reason::Closed | Reason::Idle if finished => return None,
            Reason::Closed => Self::Unfinished,
            Reason::Aborted if aborted.is_some() => return aborted,
            // Not counted as a failure, because a program may end with a reset deliberately.
            Reason::Aborted if finished => return None,
            Reason::Aborted => Self::Aborted,
            Reason::Reset => Self::Reset,
            Reason::Refused => Self::Refused,
            Reason::Unreachable => Self::Unreachable,
            Reason::ConnectTimeout => Self::ConnectTimeout,
            Reason::Timeout => Self::Timeout,
            Reason::KeepaliveTimeout => Self::KeepaliveTimeout,
            Reason::Idle => Self::Idle,
        })
    }
}

impl Failures {
    pub fn get(&self, failure: Failure) -> u64 {
        self.0[failure as usize]
    }

    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Nonzero counts by name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<'_> {
        Failure::ALL.iter().map(|f| (f.name(), self.get(*f))).filter(|(_, n)| *n > 0)
    }

    pub(crate) fn count(&mut self, failure: Failure) {
        self.0[failure as usize] += 1;
    }
}

impl FlowStatistics {
    /// Number of arrivals that were due.
    pub fn due(&self) -> u64 {
        self.attempted + self.not_begun.total() + self.waiting
    }

    pub fn is_empty(&self) -> bool {
        self.due() == 0
    }

    /// Adds the counters of another worker or template.
    pub fn merge(&mut self, other: &Self) {
        self.attempted += other.attempted;
        self.established += other.established;
        self.completed += other.completed;
        self.failed.0.iter_mut().zip(other.failed.0).for_each(|(sum, added)| *sum += added);
        add(&mut self.protocol_errors, &other.protocol_errors);
        self.requests.merge(other.requests);
        for (name, n) in &other.counted {
            match self.counted.iter_mut().find(|(known, _)| known == name) {
                Some((_, sum)) => *sum += n,
                None => self.counted.push((name.clone(), *n)),
            }
        }
        self.not_begun.merge(&other.not_begun);
        self.waiting += other.waiting;
        self.active += other.active;
        self.peak += other.peak;
        self.setup.merge(&other.setup);
        self.first_byte.merge(&other.first_byte);
        self.first_byte_from_start.merge(&other.first_byte_from_start);
        self.transaction.merge(&other.transaction);
        self.duration.merge(&other.duration);
        self.corrected.merge(&other.corrected);
        self.received_octets += other.received_octets;
        self.sent_octets += other.sent_octets;
        self.proxied_octets += other.proxied_octets;
        self.steady.attempted += other.steady.attempted;
        self.steady.completed += other.steady.completed;
        self.steady.received_octets += other.steady.received_octets;
        self.http.iter_mut().zip(other.http).for_each(|(sum, added)| *sum += added);
        self.tcp.add(&other.tcp);
        if let Some(added) = &other.tls {
            self.tls.get_or_insert_default().merge(added);
        }
        if let Some(added) = &other.http2 {
            self.http2.get_or_insert_default().merge(added);
        }
        if let Some(added) = &other.http3 {
            self.http3.get_or_insert_default().merge(added);
        }
    }

    /// The counters under their TRex names (ASTF), for users of TRex; a counter that TRex lacks has
    /// Squall's name.
    pub fn trex(&self, server: bool) -> BTreeMap<&'static str, u64> {
        let before = [Failure::Refused, Failure::ConnectTimeout, Failure::Unreachable];
        let before = before.iter().map(|f| self.failed.get(*f)).sum::<u64>();
        let ended = self.completed + self.failed.total();
        let tcp = &self.tcp;
        BTreeMap::from([
            ("m_active_flows", self.active),
            ("m_est_flows", self.established.saturating_sub(ended - before)),
            (if server { "tcps_accepts" } else { "tcps_connattempt" }, self.attempted),
            ("tcps_connects", self.established),
            ("tcps_closed", ended),
            ("tcps_drops", self.failed.total() - before),
            ("tcps_conndrops", before),
            ("tcps_timeoutdrop", tcp.timeout),
            ("tcps_keepdrops", tcp.keepalive_timeout),
            ("tcps_rcvbyte", self.received_octets),
            ("tcps_sndbyte", tcp.sent),
            ("tcps_rcvackbyte", tcp.acked),
            ("tcps_rcvtotal", tcp.segments_in),
            ("tcps_sndtotal", tcp.segments_out),
            ("tcps_sndrexmitpack", tcp.retransmits()),
            ("tcps_sndrexmitbyte", tcp.retransmit_octets),
            ("tcps_rexmttimeo", tcp.rto_timeouts),
            ("tcps_sndprobe", tcp.window_probes),
            ("tcps_keepprobe", tcp.keepalive_probes),
            ("tcps_sndacks", tcp.acks_out),
            ("tcps_rcvdupack", tcp.duplicate_acks),
            ("tcps_rcvacktoomuch", tcp.acks_too_far),
            ("tcps_rcvduppack", tcp.duplicate_segments),
            ("tcps_rcvoopack", tcp.out_of_order),
            ("tcps_rcvpackafterwin", tcp.out_of_window),
            ("tcps_pawsdrop", tcp.paws_drops),
            ("err_client_port_exhausted", self.not_begun.0[NotBegun::PORTS]),
        ])
    }

    /// A copy without histograms, cheap enough to take once per second.
    pub(crate) fn light(&self) -> Self {
        let none = Histogram::new;
        Self {
            setup: none(),
            first_byte: none(),
            first_byte_from_start: none(),
            transaction: none(),
            duration: none(),
            corrected: none(),
            protocol_errors: self.protocol_errors.clone(),
            counted: self.counted.clone(),
            tcp: self.tcp.clone(),
            tls: self.tls.as_ref().map(|tls| Box::new(tls.light())),
            http2: self.http2.clone(),
            http3: self.http3.clone(),
            ..*self
        }
    }
}

impl TlsStatistics {
    /// Maximum number of reasons stored as text: the text depends on the peer, so their number
    /// would otherwise be unbounded.
    const MAX_REASONS: usize = 32;

    pub(crate) fn fail(&mut self, why: String) {
        let known = self.failed.len() < Self::MAX_REASONS || self.failed.contains_key(&why);
        *self.failed.entry(if known { why } else { "others".into() }).or_default() += 1;
    }

    fn merge(&mut self, other: &Self) {
        self.handshakes += other.handshakes;
        self.resumed += other.resumed;
        self.early_offered += other.early_offered;
        self.early_accepted += other.early_accepted;
        self.early_octets_accepted += other.early_octets_accepted;
        self.early_refused += other.early_refused;
        self.early_octets_refused += other.early_octets_refused;
        for (why, n) in &other.failed {
            *self.failed.entry(why.clone()).or_default() += n;
        }
        self.truncated += other.truncated;
        self.handshake.merge(&other.handshake);
        add(&mut self.ciphers, &other.ciphers);
        self.sent_octets += other.sent_octets;
    }

    fn light(&self) -> Self {
        Self {
            handshake: Histogram::new(),
            failed: self.failed.clone(),
            ciphers: self.ciphers.clone(),
            ..*self
        }
    }
}

impl Statistics {
    /// Adds the counters of another worker, or of the other side.
    pub fn merge(&mut self, other: &Self) {
        if self.templates.len() < other.templates.len() {
            self.templates.resize_with(other.templates.len(), TemplateStatistics::default);
        }
        for (sum, added) in self.templates.iter_mut().zip(&other.templates) {
            sum.client.merge(&added.client);
            sum.server.merge(&added.server);
        }
        self.link.merge(&other.link);
        self.strays.add(&other.strays);
        if self.exhausted.len() < other.exhausted.len() {
            self.exhausted.resize(other.exhausted.len(), Exhausted::default());
        }
        for (sum, added) in self.exhausted.iter_mut().zip(&other.exhausted) {
            sum.addresses += added.addresses;
            sum.flows += added.flows;
        }
        self.failed.extend_from_slice(&other.failed);
        self.failed.sort_unstable();
        self.failed.truncate(MOST_FAILED);
        self.served.merge(&other.served);
        self.hosted.extend_from_slice(&other.hosted);
        self.elapsed = self.elapsed.max(other.elapsed);
        self.arrivals = self.arrivals.max(other.arrivals);
        self.steady = self.steady.max(other.steady);
        self.pacing.merge(other.pacing);
        for (sum, added) in self.seconds.iter_mut().zip(&other.seconds) {
            sum.resize(sum.len().max(added.len()), Second::default());
            for (sum, added) in sum.iter_mut().zip(added) {
                sum.attempted += added.attempted;
                sum.completed += added.completed;
            }
        }
        self.over &= other.over;
    }

    /// All templates merged: clients, then servers.
    pub fn total(&self) -> TemplateStatistics {
        let mut total = TemplateStatistics::default();
        for template in &self.templates {
            total.client.merge(&template.client);
            total.server.merge(&template.server);
        }
        total
    }

    /// Number of open flows.
    pub fn active(&self) -> u64 {
        self.templates.iter().map(|t| t.client.active + t.server.active).sum()
    }
}

impl LinkStatistics {
    pub fn merge(&mut self, other: &Self) {
        for ((_, sum), (_, added)) in self.fields_mut().into_iter().zip(other.iter()) {
            *sum += added;
        }
    }

    /// All counters, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        let mut copy = *self;
        copy.fields_mut().map(|(name, n)| (name, *n)).into_iter()
    }

    /// Destructures `self` without `..`: the compiler then reports a counter without a name.
    fn fields_mut(&mut self) -> [(&'static str, &mut u64); 20] {
        let Self {
            frames_received,
            not_ours,
            malformed,
            checksum_unverified,
            ignored,
            frames_sent,
            unresolved,
            too_long,
            address_lost,
            arp_requests_sent,
            arp_requests_answered,
            nd_solicitations_sent,
            nd_solicitations_answered,
            echoes_answered,
            answers_dropped,
            resolved,
            resolution_failed,
            relayed,
            relay_dropped,
            unknown_clients,
        } = self;
        [
            ("frames_received", frames_received),
            ("not_ours", not_ours),
            ("malformed", malformed),
            ("checksum_unverified", checksum_unverified),
            ("ignored", ignored),
            ("frames_sent", frames_sent),
            ("unresolved", unresolved),
            ("too_long", too_long),
            ("address_lost", address_lost),
            ("arp_requests_sent", arp_requests_sent),
            ("arp_requests_answered", arp_requests_answered),
            ("nd_solicitations_sent", nd_solicitations_sent),
            ("nd_solicitations_answered", nd_solicitations_answered),
            ("echoes_answered", echoes_answered),
            ("answers_dropped", answers_dropped),
            ("resolved", resolved),
            ("resolution_failed", resolution_failed),
            ("relayed", relayed),
            ("relay_dropped", relay_dropped),
            ("unknown_clients", unknown_clients),
        ]
    }
}

fn add(sum: &mut BTreeMap<&'static str, u64>, added: &BTreeMap<&'static str, u64>) {
    for (name, n) in added {
        *sum.entry(name).or_default() += n;
    }
}

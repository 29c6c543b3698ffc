//! What became of the flows: values, which workers' shares of add up.

use std::{collections::BTreeMap, sync::Arc};

use squall_program::pace::Pacing;
use squall_stats::Histogram;
use squall_tcp::{Counters, Reason, Strays};
use squall_units::Nanos;

use crate::{Second, Tally};

/// Of one side (clients or servers) of one worker, or of all of them merged.
#[derive(Clone, Debug, Default)]
pub struct Statistics {
    /// By template, in the load's order.
    pub templates: Vec<TemplateStatistics>,
    pub link: LinkStatistics,
    /// Packets that belong to no flow.
    pub strays: Strays,
    /// Clients that ran out of ports, by pool.
    pub exhausted: Vec<Exhausted>,
    /// Conversations of scripts that failed, at most [`MOST_FAILED`].
    pub failed: Vec<FailedConversation>,
    /// Conversations of scripts whose servers came to their end.
    pub served: Served,
    /// Since its beginning.
    pub elapsed: Nanos,
    /// From its beginning until the last flow was due, or until now. Of clients.
    pub arrivals: Nanos,
    /// How long all of the load was asked for: behind the ramp up, before the ramp down, the limit
    /// or the stop. Of clients.
    pub steady: Nanos,
    /// What began and ended in each whole second: of clients, of servers. Only when all is over.
    pub seconds: [Vec<Second>; 2],
    /// How the schedule of arrivals was kept. Of clients.
    pub pacing: Pacing,
    /// Open flows have been waited for, and the last of them is gone.
    pub over: bool,
}

/// A flow of a conversation that did not end as it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FailedConversation {
    /// Its number in the load's [`crate::Script`]s, one behind the other, from 0.
    pub number: u32,
    /// Told by its client.
    pub client: bool,
    pub failure: Failure,
}

/// Conversations by their numbers in the load's [`crate::Script`]s, a bit for each.
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
        self.0.iter_mut().zip(&other.0).for_each(|(mine, theirs)| *mine |= theirs);
    }
}

/// So many failed conversations are kept: both ends of as many as a script may have.
pub const MOST_FAILED: usize = 1 << 17;

/// One template's flows, by role. A side that has one role only leaves the other empty.
#[derive(Clone, Debug, Default)]
pub struct TemplateStatistics {
    pub client: FlowStatistics,
    pub server: FlowStatistics,
}

/// Flows of one template in one role.
///
/// `attempted = established + failed before it + still on the way`;
/// `due = attempted + not_begun + waiting`. Nothing else is lost.
#[derive(Clone, Debug, Default)]
pub struct FlowStatistics {
    /// Begun: a SYN or first datagram was handed on (clients), or came and was accepted (servers).
    pub attempted: u64,
    /// The handshake was done; of UDP, at once.
    pub established: u64,
    /// Ended as they should: both sides closed, the program came to its end.
    pub completed: u64,
    /// Ended otherwise, by [`Failure::name`].
    pub failed: Failures,
    /// What peers did that their programs do not say, by [`squall_apps::ProtocolError::name`].
    pub protocol_errors: BTreeMap<&'static str, u64>,
    /// Of clients whose programs say beforehand how many they make.
    pub requests: Requests,
    /// Counters of the program's own, by their names.
    pub counted: Vec<(Arc<str>, u64)>,
    /// Arrivals that were due and did not begin.
    pub not_begun: NotBegun,
    /// Arrivals that are due now, and wait: for their next hop, for addresses and ports, or for
    /// their turn. None at the end.
    pub waiting: u64,
    /// Open now.
    pub active: u64,
    /// Open at once at most; of several workers the sum of their peaks.
    pub peak: u64,
    /// From the SYN to the end of the handshake, nanoseconds.
    pub setup: Histogram,
    /// From a request to the first octet of its answer, nanoseconds.
    pub first_byte: Histogram,
    /// From a request to the last octet of its answer, nanoseconds.
    pub transaction: Histogram,
    /// From the beginning of the flow to its end, of those that completed, nanoseconds.
    pub duration: Histogram,
    /// The same from the instant at which the flow was due: with the time it waited to begin, which
    /// a generator that is late would leave out ("coordinated omission").
    pub corrected: Histogram,
    /// Octets of application data received, and those sent, over TCP those that were acknowledged.
    pub received_octets: u64,
    pub sent_octets: u64,
    /// What was counted in [`Statistics::steady`]; of clients.
    pub steady: Tally,
    /// HTTP responses by class of their status: 1xx to 5xx.
    pub http: [u64; 5],
    /// What the stack counted.
    pub tcp: Counters,
    /// Of templates with TLS.
    pub tls: Option<Box<TlsStatistics>>,
}

/// Requests of flows, over TCP or UDP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// Of all flows that began, by their programs, and redirections that were followed.
    pub asked: u64,
    /// Handed over as a whole.
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
    /// That were completed; of these, of earlier sessions.
    pub handshakes: u64,
    pub resumed: u64,
    /// Sessions that failed, in the handshake or later, by what was wrong.
    pub failed: BTreeMap<String, u64>,
    /// The peer closed without saying so inside of the session.
    pub truncated: u64,
    /// From the end of TCP's handshake to that of TLS, nanoseconds.
    pub handshake: Histogram,
    /// Handshakes by cipher suite.
    pub ciphers: BTreeMap<&'static str, u64>,
    /// What programs sent, before it was encrypted.
    pub sent_octets: u64,
}

/// Why arrivals did not begin, and how many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NotBegun([u64; NotBegun::NAMES.len()]);

impl NotBegun {
    /// `late`: the generator was the bound. `ports_exhausted`: all tuples that were tried were
    /// busy. `unresolved`: nobody answers for the next hop. `limit`: of flows at once. `full`:
    /// there is no room for more flows. `disabled`: all clients that were tried begin none.
    pub const NAMES: [&'static str; 6] =
        ["late", "ports_exhausted", "unresolved", "limit", "full", "disabled"];
    pub(crate) const LATE: usize = 0;
    pub(crate) const PORTS: usize = 1;
    pub(crate) const UNRESOLVED: usize = 2;
    pub(crate) const LIMIT: usize = 3;
    pub(crate) const FULL: usize = 4;
    pub(crate) const DISABLED: usize = 5;

    pub fn late(&self) -> u64 {
        self.0[Self::LATE]
    }

    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Those that there were, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        Self::NAMES.into_iter().zip(self.0).filter(|(_, n)| *n > 0)
    }

    pub(crate) fn add(&mut self, why: usize, n: u64) {
        self.0[why] += n;
    }

    fn merge(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(mine, theirs)| *mine += theirs);
    }
}

/// Why flows failed, and how many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failures([u64; Failure::ALL.len()]);

/// Why a flow did not end as it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Failure {
    /// Both sides closed, but before the program had come to its end.
    Unfinished,
    /// The program ended it: it met what it did not expect.
    Aborted,
    /// It was open when the drain time was over.
    Stopped,
    Reset,
    Refused,
    Unreachable,
    ConnectTimeout,
    Timeout,
    KeepaliveTimeout,
    /// Nothing went either way for too long, in the midst of a program (UDP).
    Idle,
}

/// Frames of one side that are no flow's, or got lost on the way to one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStatistics {
    pub frames_received: u64,
    /// Of these, for nobody here: other MAC or IP addresses, tags or tunnels, or no IP at all.
    pub not_ours: u64,
    /// Of these, no valid frame: cut short, wrong lengths or checksums of tunnels.
    pub malformed: u64,
    /// Of these, taken although nobody here has verified their TCP or UDP checksum: the host that
    /// sent them left it to its NIC.
    pub checksum_unverified: u64,
    /// Of these, from addresses that are [ignored](crate::Ignored).
    pub ignored: u64,
    pub frames_sent: u64,
    /// Packets that were not sent because nobody has answered for their next hop yet (they are sent
    /// again).
    pub unresolved: u64,
    /// Packets that did not fit the port's frames.
    pub too_long: u64,
    pub arp_requests_sent: u64,
    pub arp_requests_answered: u64,
    pub nd_solicitations_sent: u64,
    pub nd_solicitations_answered: u64,
    pub echoes_answered: u64,
    /// Answers that were not sent: more were asked for at once than there is room for.
    pub answers_dropped: u64,
    /// Next hops that answered, and that did not after all tries.
    pub resolved: u64,
    pub resolution_failed: u64,
    /// Frames of flows that other workers of the port have, which were handed to them; and frames
    /// that were dropped, as these had too many of them waiting.
    pub relayed: u64,
    pub relay_dropped: u64,
    /// Flows to a port that servers of several templates share, from addresses that are none of
    /// their clients': a device has translated them, and the first template's server was taken.
    pub unknown_clients: u64,
}

/// Of a pool of clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exhausted {
    /// Addresses at which a flow found no free port.
    pub addresses: u64,
    /// Flows that were not begun for it.
    pub flows: u64,
}

impl Failure {
    pub const ALL: [Self; 10] = [
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
        }
    }

    /// `None` for a flow that ended as it should, if its program had come to its end (`finished`).
    pub(crate) fn of(reason: Reason, finished: bool, stopping: bool) -> Option<Self> {
        Some(match reason {
            // A server over UDP is never told of its client's end.
            Reason::Closed | Reason::Idle if finished => return None,
            Reason::Closed => Self::Unfinished,
            Reason::Aborted if stopping => Self::Stopped,
            // As programs that end by a reset on purpose.
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

    /// Those that there were, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<'_> {
        Failure::ALL.iter().map(|f| (f.name(), self.get(*f))).filter(|(_, n)| *n > 0)
    }

    pub(crate) fn count(&mut self, failure: Failure) {
        self.0[failure as usize] += 1;
    }
}

impl FlowStatistics {
    /// Arrivals that were due.
    pub fn due(&self) -> u64 {
        self.attempted + self.not_begun.total() + self.waiting
    }

    pub fn is_empty(&self) -> bool {
        self.due() == 0
    }

    /// Adds those of another worker, or another template.
    pub fn merge(&mut self, other: &Self) {
        self.attempted += other.attempted;
        self.established += other.established;
        self.completed += other.completed;
        self.failed.0.iter_mut().zip(other.failed.0).for_each(|(mine, theirs)| *mine += theirs);
        add(&mut self.protocol_errors, &other.protocol_errors);
        self.requests.merge(other.requests);
        for (name, n) in &other.counted {
            match self.counted.iter_mut().find(|(known, _)| known == name) {
                Some((_, mine)) => *mine += n,
                None => self.counted.push((name.clone(), *n)),
            }
        }
        self.not_begun.merge(&other.not_begun);
        self.waiting += other.waiting;
        self.active += other.active;
        self.peak += other.peak;
        self.setup.merge(&other.setup);
        self.first_byte.merge(&other.first_byte);
        self.transaction.merge(&other.transaction);
        self.duration.merge(&other.duration);
        self.corrected.merge(&other.corrected);
        self.received_octets += other.received_octets;
        self.sent_octets += other.sent_octets;
        self.steady.attempted += other.steady.attempted;
        self.steady.completed += other.steady.completed;
        self.steady.received_octets += other.steady.received_octets;
        self.http.iter_mut().zip(other.http).for_each(|(mine, theirs)| *mine += theirs);
        self.tcp.add(&other.tcp);
        if let Some(theirs) = &other.tls {
            self.tls.get_or_insert_default().merge(theirs);
        }
    }

    /// The counters under TRex's names (ASTF), which those who come from there look for; where it
    /// has none, ours.
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

    /// Without histograms: cheap enough for once a second.
    pub(crate) fn light(&self) -> Self {
        let none = Histogram::new;
        Self {
            setup: none(),
            first_byte: none(),
            transaction: none(),
            duration: none(),
            corrected: none(),
            protocol_errors: self.protocol_errors.clone(),
            counted: self.counted.clone(),
            tcp: self.tcp.clone(),
            tls: self.tls.as_ref().map(|tls| Box::new(tls.light())),
            ..*self
        }
    }
}

impl TlsStatistics {
    /// Peers can have many ways to be wrong: of so many the words are kept.
    const MOST_WORDS: usize = 32;

    pub(crate) fn fail(&mut self, why: String) {
        let known = self.failed.len() < Self::MOST_WORDS || self.failed.contains_key(&why);
        *self.failed.entry(if known { why } else { "others".into() }).or_default() += 1;
    }

    fn merge(&mut self, other: &Self) {
        self.handshakes += other.handshakes;
        self.resumed += other.resumed;
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
    /// Adds those of another worker, or of the other side.
    pub fn merge(&mut self, other: &Self) {
        if self.templates.len() < other.templates.len() {
            self.templates.resize_with(other.templates.len(), TemplateStatistics::default);
        }
        for (mine, theirs) in self.templates.iter_mut().zip(&other.templates) {
            mine.client.merge(&theirs.client);
            mine.server.merge(&theirs.server);
        }
        self.link.merge(&other.link);
        self.strays.add(&other.strays);
        if self.exhausted.len() < other.exhausted.len() {
            self.exhausted.resize(other.exhausted.len(), Exhausted::default());
        }
        for (mine, theirs) in self.exhausted.iter_mut().zip(&other.exhausted) {
            mine.addresses += theirs.addresses;
            mine.flows += theirs.flows;
        }
        self.failed.extend_from_slice(&other.failed);
        self.failed.sort_unstable();
        self.failed.truncate(MOST_FAILED);
        self.served.merge(&other.served);
        self.elapsed = self.elapsed.max(other.elapsed);
        self.arrivals = self.arrivals.max(other.arrivals);
        self.steady = self.steady.max(other.steady);
        self.pacing.merge(other.pacing);
        for (mine, theirs) in self.seconds.iter_mut().zip(&other.seconds) {
            mine.resize(mine.len().max(theirs.len()), Second::default());
            for (mine, theirs) in mine.iter_mut().zip(theirs) {
                mine.attempted += theirs.attempted;
                mine.completed += theirs.completed;
            }
        }
        self.over &= other.over;
    }

    /// Of all templates together: clients, servers.
    pub fn total(&self) -> TemplateStatistics {
        let mut total = TemplateStatistics::default();
        for template in &self.templates {
            total.client.merge(&template.client);
            total.server.merge(&template.server);
        }
        total
    }

    /// Open flows.
    pub fn active(&self) -> u64 {
        self.templates.iter().map(|t| t.client.active + t.server.active).sum()
    }
}

impl LinkStatistics {
    pub fn merge(&mut self, other: &Self) {
        for ((_, mine), (_, theirs)) in self.fields_mut().into_iter().zip(other.iter()) {
            *mine += theirs;
        }
    }

    /// All counters, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        let mut copy = *self;
        copy.fields_mut().map(|(name, n)| (name, *n)).into_iter()
    }

    fn fields_mut(&mut self) -> [(&'static str, &mut u64); 19] {
        let Self {
            frames_received,
            not_ours,
            malformed,
            checksum_unverified,
            ignored,
            frames_sent,
            unresolved,
            too_long,
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

fn add(mine: &mut BTreeMap<&'static str, u64>, theirs: &BTreeMap<&'static str, u64>) {
    for (name, n) in theirs {
        *mine.entry(name).or_default() += n;
    }
}

//! The state machine of a peer (RFC 4271 section 8), with up to two connections.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use squall_units::{Nanos, below, mix};

use crate::{
    AddPath, Capabilities, Families, Family, HEADER, Learner, MOST, MOST_EXTENDED, Notification,
    RestartCapability, UpdateFaults, cease,
    message::{self, Header, Kind, Open, Refresh, end_of_rib},
    notification::code,
    update::{UpdateContext, read_update},
};

/// Settings of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerSettings {
    /// Number of the own autonomous system.
    pub asn: u32,
    pub identifier: Ipv4Addr,
    /// Number of the peer's; `None`: any, from its OPEN.
    pub peer_asn: Option<u32>,
    /// The peer's number has to be another one.
    pub is_external: bool,
    /// Offered hold time, seconds: 0, or at least 3. 0: connections end by TCP only.
    pub hold: u16,
    /// Time between KEEPALIVEs, at least a second. `None`, or not less than the hold time that was
    /// agreed on: a third of that.
    pub keepalive: Option<u16>,
    /// `ConnectRetryTime`: between two attempts, and after an error.
    pub connect_retry: Nanos,
    /// Waits for the peer's connection, and opens none.
    pub passive: bool,
    pub families: Families,
    /// Offered directions of several paths (RFC 7911), by the index of the family.
    pub add_path: [Option<AddPath>; 2],
    /// Time after which the peer can expect this side back after a restart, 0 to 4095 seconds
    /// (RFC 4724); `None`: no graceful restarts.
    pub restart: Option<u16>,
    /// Offers numbers of four octets (RFC 6793).
    pub four_octet: bool,
    /// Offers messages of up to 65,535 octets (RFC 8654).
    pub extended_messages: bool,
    /// Next hops of the announced routes.
    pub ipv4: Option<Ipv4Addr>,
    pub ipv6: Option<Ipv6Addr>,
    /// Seed of the jitter of timers.
    pub seed: u64,
}

impl Default for PeerSettings {
    /// The hold time is that of section 10. It suggests 120 s for `ConnectRetryTime`; here it is
    /// 5 s, because a test waits for it.
    fn default() -> Self {
        Self {
            asn: 0,
            identifier: Ipv4Addr::UNSPECIFIED,
            peer_asn: None,
            is_external: false,
            hold: 90,
            keepalive: None,
            connect_retry: Nanos(5 * Nanos::SECOND.0),
            passive: false,
            families: [true, false],
            add_path: [None; 2],
            restart: None,
            four_octet: true,
            extended_messages: true,
            ipv4: None,
            ipv6: None,
            seed: 0,
        }
    }
}

impl PeerSettings {
    pub(crate) fn next_hop(&self, family: Family) -> Option<IpAddr> {
        match family {
            Family::Ipv4 => self.ipv4.map(IpAddr::V4),
            Family::Ipv6 => self.ipv6.map(IpAddr::V6),
        }
    }
}

/// The side that opened a connection: this one (active), or the peer (passive).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    Active,
    Passive,
}

impl Way {
    const BOTH: [Self; 2] = [Self::Active, Self::Passive];

    fn other(self) -> Self {
        match self {
            Self::Active => Self::Passive,
            Self::Passive => Self::Active,
        }
    }
}

/// States of RFC 4271 section 8.2.2. With two connections, the later state counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    Idle,
    Connect,
    Active,
    OpenSent,
    OpenConfirm,
    Established,
}

impl State {
    pub fn name(self) -> &'static str {
        match self {
            Self::Idle => "Idle",
            Self::Connect => "Connect",
            Self::Active => "Active",
            Self::OpenSent => "OpenSent",
            Self::OpenConfirm => "OpenConfirm",
            Self::Established => "Established",
        }
    }
}

/// An event of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input<'a> {
    Start,
    /// Ends the connections with a NOTIFICATION; the session then waits for `Start`.
    Stop(Notification),
    /// Ends the connections as a router does that restarts: without a NOTIFICATION. The session
    /// comes back after the time, and says that it has restarted (RFC 4724 section 4.1).
    Restart {
        after: Nanos,
    },
    /// Asks the peer for its routes again (RFC 2918), if it can answer.
    Refresh,
    /// A TCP connection is open, after [`Output::Connect`], or opened by the peer when
    /// [`Session::accepts`] was true.
    Opened(Way),
    /// The next octets of a connection.
    Octets(Way, &'a [u8]),
    /// A connection has ended, or could not be opened.
    Ended(Way, EndReason),
    /// The time of [`Session::next_due`] has come.
    Timer,
}

/// Why TCP ended a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndReason {
    Closed,
    Reset,
    Refused,
    Unreachable,
    /// No local port or no room for the connection was free.
    NoPort,
    Timeout,
    /// The peer has opened another connection in its place.
    Replaced,
}

/// An action for the caller. After `Close` and `Abort` it passes no further input of the
/// connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Open a connection to the peer: [`Way::Active`].
    Connect,
    Send(Way, Vec<u8>),
    /// Announce the routes of the family from the first one on, and send `end` after the last one.
    Feed {
        family: Family,
        end: Vec<u8>,
    },
    /// Announce the routes of the family again, after everything that waits: `begin`, the routes,
    /// `end`. Both messages may be empty. Several requests that wait are one.
    Refeed {
        family: Family,
        begin: Vec<u8>,
        end: Vec<u8>,
    },
    /// Stop announcing routes.
    Unfeed,
    /// Close the connection after the messages that were sent.
    Close(Way),
    /// Reset the connection, or give up the attempt to open it.
    Abort(Way),
}

/// Settings that both sides of a session have agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    pub families: Families,
    /// Sent and received routes have path identifiers.
    pub add_path_send: Families,
    pub add_path_receive: Families,
    pub four_octet: bool,
    pub is_internal: bool,
    /// The longest message, octets.
    pub most: usize,
    /// Seconds; 0: none.
    pub hold: u16,
    /// The peer answers requests for its routes, and marks the begin and end of its answer.
    pub refresh: bool,
    pub enhanced_refresh: bool,
    pub peer_asn: u32,
    pub peer_identifier: Ipv4Addr,
}

impl Default for Negotiated {
    fn default() -> Self {
        Self {
            families: [true, false],
            add_path_send: [false; 2],
            add_path_receive: [false; 2],
            four_octet: false,
            is_internal: false,
            most: MOST,
            hold: 0,
            refresh: false,
            enhanced_refresh: false,
            peer_asn: 0,
            peer_identifier: Ipv4Addr::UNSPECIFIED,
        }
    }
}

/// Messages by their type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageCounters {
    pub opens: u64,
    pub updates: u64,
    pub notifications: u64,
    pub keepalives: u64,
    pub refreshes: u64,
}

impl MessageCounters {
    fn count(&mut self, kind: Kind) {
        *match kind {
            Kind::Open => &mut self.opens,
            Kind::Update => &mut self.updates,
            Kind::Notification => &mut self.notifications,
            Kind::Keepalive => &mut self.keepalives,
            Kind::RouteRefresh => &mut self.refreshes,
        } += 1;
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages of the caller only as far as [`Session::count_updates`] and
    /// [`Session::count_message`] were called.
    pub sent: MessageCounters,
    pub received: MessageCounters,
    pub faults: UpdateFaults,
    /// How often the session became established, and how often it then ended.
    pub ups: u64,
    pub downs: u64,
}

/// Why a connection has ended last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LastError {
    Sent(Notification),
    Received(Notification),
    Tcp(EndReason),
}

/// Time for an OPEN to arrive (section 8.2.2: "a HoldTimer value of 4 minutes is suggested").
const LARGE_HOLD: Nanos = Nanos(240 * Nanos::SECOND.0);
/// Time after a restarted peer is back for it to announce its stale routes, and for this side to
/// wait for the peer's routes after its own restart; RFC 4724 sections 4.1 and 4.2 leave both to
/// the configuration, and FRR's defaults are these.
const RESTART_LIMIT: Nanos = Nanos(360 * Nanos::SECOND.0);
/// Time after the start of a session in which a peer cannot have restarted and be back. If both
/// sides connect at once, the second connection may arrive when the first one is established.
const SOONEST_RESTART: Nanos = Nanos::SECOND;

/// Whether connections are opened and accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Until `Start`.
    Stopped,
    /// In Idle until the time of the next attempt.
    Waiting,
    Running,
}

/// A TCP connection of a session.
#[derive(Debug)]
struct Connection {
    /// `OpenSent` or later.
    state: State,
    /// The beginning of a message.
    pending: Vec<u8>,
    hold_due: Option<Nanos>,
    keepalive_due: Option<Nanos>,
    /// Valid from `OpenConfirm` on.
    agreed: Negotiated,
    /// The peer's capability, if this side has it, too.
    restart: Option<RestartCapability>,
    /// Families whose routes have all been announced.
    ended: Families,
}

/// The session with one peer.
#[derive(Debug)]
pub struct Session {
    settings: PeerSettings,
    phase: Phase,
    /// A connection is being opened.
    is_connecting: bool,
    retry_due: Option<Nanos>,
    /// By [`Way`].
    connections: [Option<Connection>; 2],
    /// The next OPEN says that this side has restarted.
    has_restarted: bool,
    /// Families whose routes wait for those of the peer after a restart, and until when.
    deferred: Families,
    deferred_until: Option<Nanos>,
    /// Families with stale routes, and until when.
    stale: Families,
    stale_until: Option<Nanos>,
    /// Random numbers that were drawn.
    draws: u64,
    counters: Counters,
    established_at: Option<Nanos>,
    last_error: Option<LastError>,
}

impl Session {
    pub fn new(settings: PeerSettings) -> Self {
        Self {
            settings,
            phase: Phase::Stopped,
            is_connecting: false,
            retry_due: None,
            connections: [None, None],
            has_restarted: false,
            deferred: [false; 2],
            deferred_until: None,
            stale: [false; 2],
            stale_until: None,
            draws: 0,
            counters: Counters::default(),
            established_at: None,
            last_error: None,
        }
    }

    /// Takes a step. Appends what the caller has to do to `out`, in order. Received routes go to
    /// `rib`.
    pub fn handle(
        &mut self,
        now: Nanos,
        input: Input<'_>,
        out: &mut Vec<Output>,
        rib: &mut impl Learner,
    ) {
        match input {
            // Start events are ignored in the other states (section 8.2.2).
            Input::Start if self.phase == Phase::Stopped => self.connect(now, out),
            Input::Start => {}
            Input::Stop(notification) => self.stop(now, &notification, out, rib),
            Input::Restart { after } => self.restart(now, after, out, rib),
            Input::Refresh => self.ask_again(out),
            Input::Opened(way) => self.opened(now, way, out, rib),
            Input::Octets(way, octets) => self.receive(now, way, octets, out, rib),
            Input::Ended(way, reason) => self.ended(now, way, reason, out, rib),
            Input::Timer => self.run_timers(now, out, rib),
        }
    }

    /// When [`Input::Timer`] is due; `None`: never.
    pub fn next_due(&self) -> Option<Nanos> {
        let connections = self.connections.iter().flatten();
        let of_connections = connections.flat_map(|it| [it.hold_due, it.keepalive_due]);
        of_connections
            .chain([self.retry_due, self.deferred_until, self.stale_until])
            .flatten()
            .min()
    }

    /// Whether a connection of the peer may be accepted now. If there already is one of the peer,
    /// it is first to be reset and ended with [`EndReason::Replaced`].
    pub fn accepts(&self) -> bool {
        let may_be_replaced = |it: &Connection| it.state == State::Established && it.is_graceful();
        self.phase == Phase::Running && self.connection(Way::Passive).is_none_or(may_be_replaced)
    }

    pub fn state(&self) -> State {
        let connections = self.connections.iter().flatten().map(|connection| connection.state);
        connections.max().unwrap_or(match self.phase {
            Phase::Running if self.is_connecting => State::Connect,
            Phase::Running => State::Active,
            Phase::Stopped | Phase::Waiting => State::Idle,
        })
    }

    /// The established connection, and the settings that were negotiated for it.
    pub fn established(&self) -> Option<(Way, &Negotiated)> {
        Way::BOTH.into_iter().find_map(|way| {
            let it = self.connection(way)?;
            (it.state == State::Established).then_some((way, &it.agreed))
        })
    }

    /// Whether routes wait for those of the peer, after a restart of this side.
    pub fn is_deferring(&self) -> bool {
        self.deferred.contains(&true)
    }

    /// Whether those of a family do.
    pub fn is_deferred(&self, family: Family) -> bool {
        self.deferred[family.index()]
    }

    /// Whether the session waits for [`Input::Start`].
    pub fn is_stopped(&self) -> bool {
        self.phase == Phase::Stopped
    }

    /// Since when the session is established.
    pub fn established_at(&self) -> Option<Nanos> {
        self.established_at
    }

    pub fn settings(&self) -> &PeerSettings {
        &self.settings
    }

    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Counts UPDATEs that the caller has sent.
    pub fn count_updates(&mut self, count: u64) {
        self.counters.sent.updates += count;
    }

    /// Counts a message that the caller has sent: one of [`Output::Feed`] or [`Output::Refeed`].
    pub fn count_message(&mut self, message: &[u8]) {
        if let Some(kind) = message.get(HEADER - 1).copied().and_then(Kind::of) {
            self.counters.sent.count(kind);
        }
    }

    pub fn last_error(&self) -> Option<&LastError> {
        self.last_error.as_ref()
    }

    // Connections begin.

    fn connect(&mut self, now: Nanos, out: &mut Vec<Output>) {
        self.phase = Phase::Running;
        self.is_connecting = !self.settings.passive;
        self.retry_due = None;
        if self.is_connecting {
            self.retry_due = Some(now + self.jittered(self.settings.connect_retry));
            out.push(Output::Connect);
        }
    }

    fn opened(&mut self, now: Nanos, way: Way, out: &mut Vec<Output>, rib: &mut impl Learner) {
        let expected = match way {
            Way::Active => self.is_connecting,
            Way::Passive => self.phase == Phase::Running,
        };
        if !expected || self.connection(way).is_some() {
            return out.push(Output::Abort(way));
        }
        if way == Way::Active {
            self.is_connecting = false;
        }
        // RFC 4724 section 5: the peer has restarted before this side has noticed.
        // A connection that comes sooner was opened at the same time: it collides.
        let is_restart = self.established_at.is_some_and(|since| now >= since + SOONEST_RESTART);
        if let Some(old) = self.connection(way.other())
            && old.state == State::Established
            && old.is_graceful()
            && is_restart
        {
            out.push(Output::Abort(way.other()));
            self.last_error = Some(LastError::Tcp(EndReason::Replaced));
            self.take_connection(now, way.other(), true, out, rib);
        }
        if !self.is_connecting {
            self.retry_due = None;
        }
        let open = self.open().octets();
        self.send(way, Kind::Open, open, out);
        self.connections[way as usize] = Some(Connection {
            state: State::OpenSent,
            pending: Vec::new(),
            hold_due: Some(now + LARGE_HOLD),
            keepalive_due: None,
            agreed: Negotiated::default(),
            restart: None,
            ended: [false; 2],
        });
    }

    fn open(&self) -> Open {
        let PeerSettings { asn, identifier, hold, families, add_path, .. } = self.settings;
        let restart = self.settings.restart.map(|seconds| RestartCapability {
            restarting: self.has_restarted,
            seconds,
            families: families.map(|has| has.then_some(self.has_restarted)),
        });
        let capabilities = Capabilities {
            families,
            other_families: false,
            asn: self.settings.four_octet.then_some(asn),
            add_path,
            restart,
            refresh: true,
            enhanced_refresh: true,
            extended_messages: self.settings.extended_messages,
        };
        Open { asn, hold, identifier, capabilities }
    }

    // Connections end.

    fn stop(
        &mut self,
        now: Nanos,
        notification: &Notification,
        out: &mut Vec<Output>,
        rib: &mut impl Learner,
    ) {
        for way in Way::BOTH {
            if self.connection(way).is_some() {
                self.notify(way, notification.clone(), out);
                self.take_connection(now, way, false, out, rib);
            }
        }
        self.end_attempt(out);
        self.drop_stale(rib);
        (self.phase, self.retry_due, self.has_restarted) = (Phase::Stopped, None, false);
    }

    fn restart(&mut self, now: Nanos, after: Nanos, out: &mut Vec<Output>, rib: &mut impl Learner) {
        if self.phase == Phase::Stopped {
            return;
        }
        for way in Way::BOTH {
            if self.connection(way).is_some() {
                out.push(Output::Abort(way));
                self.take_connection(now, way, false, out, rib);
            }
        }
        self.end_attempt(out);
        self.drop_stale(rib);
        self.has_restarted = self.settings.restart.is_some();
        (self.phase, self.retry_due) = (Phase::Waiting, Some(now + after));
    }

    fn ended(
        &mut self,
        now: Nanos,
        way: Way,
        reason: EndReason,
        out: &mut Vec<Output>,
        rib: &mut impl Learner,
    ) {
        if self.connection(way).is_some() {
            self.note_error(way, LastError::Tcp(reason));
            self.take_connection(now, way, true, out, rib);
        } else if way == Way::Active && self.is_connecting {
            self.note_error(way, LastError::Tcp(reason));
            self.is_connecting = false;
        } else {
            return;
        }
        // Section 8.2.2 goes to Idle from most states, where connections of the peer would be
        // refused. To listen at once is as if the session was started again at once.
        self.rest(now, Phase::Running);
    }

    /// Ends a connection with a NOTIFICATION about an error.
    fn fail(
        &mut self,
        now: Nanos,
        way: Way,
        error: Notification,
        out: &mut Vec<Output>,
        rib: &mut impl Learner,
    ) {
        self.notify(way, error, out);
        self.take_connection(now, way, false, out, rib);
        self.rest(now, Phase::Waiting);
    }

    /// Sends a NOTIFICATION and closes the connection.
    fn notify(&mut self, way: Way, notification: Notification, out: &mut Vec<Output>) {
        self.send(way, Kind::Notification, notification.octets(), out);
        out.push(Output::Close(way));
        self.note_error(way, LastError::Sent(notification));
    }

    /// Notes why a connection has ended, unless the session goes on with the other one.
    fn note_error(&mut self, way: Way, error: LastError) {
        if self.connection(way.other()).is_none() {
            self.last_error = Some(error);
        }
    }

    /// Removes a connection; `lost`: without a NOTIFICATION of either side.
    fn take_connection(
        &mut self,
        now: Nanos,
        way: Way,
        lost: bool,
        out: &mut Vec<Output>,
        rib: &mut impl Learner,
    ) {
        let Some(connection) = self.connections[way as usize].take() else { return };
        if connection.state != State::Established {
            return;
        }
        out.push(Output::Unfeed);
        self.counters.downs += 1;
        self.established_at = None;
        (self.deferred, self.deferred_until) = ([false; 2], None);
        // RFC 4724 section 4.2.
        let kept = connection.restart.filter(|_| lost);
        for family in Family::ALL.into_iter().filter(|it| connection.agreed.families[it.index()]) {
            let is_kept = kept.is_some_and(|kept| kept.families[family.index()].is_some());
            // Routes that were stale before have ended.
            if std::mem::replace(&mut self.stale[family.index()], is_kept) && is_kept {
                rib.swept(family);
            }
            if is_kept { rib.stale(family) } else { rib.cleared(family) }
        }
        let restarts = kept.filter(|_| self.stale.contains(&true));
        self.stale_until =
            restarts.map(|kept| now + Nanos(u64::from(kept.seconds) * Nanos::SECOND.0));
    }

    /// Without a connection and an attempt to open one: waits for the next attempt.
    fn rest(&mut self, now: Nanos, phase: Phase) {
        if self.phase == Phase::Stopped || self.is_connecting {
            return;
        }
        if self.connections.iter().any(Option::is_some) {
            self.retry_due = None;
            return;
        }
        self.phase = phase;
        // An attempt that failed early is repeated when its time is over, not before.
        let is_listening = phase == Phase::Running && self.settings.passive;
        if is_listening {
            self.retry_due = None;
        } else if self.retry_due.is_none_or(|due| due <= now) || phase == Phase::Waiting {
            self.retry_due = Some(now + self.jittered(self.settings.connect_retry));
        }
    }

    fn end_attempt(&mut self, out: &mut Vec<Output>) {
        if std::mem::take(&mut self.is_connecting) {
            out.push(Output::Abort(Way::Active));
        }
    }

    fn drop_stale(&mut self, rib: &mut impl Learner) {
        for family in Family::ALL {
            if std::mem::take(&mut self.stale[family.index()]) {
                rib.cleared(family);
            }
        }
        self.stale_until = None;
    }

    // Messages.

    fn receive(
        &mut self,
        now: Nanos,
        way: Way,
        mut octets: &[u8],
        out: &mut Vec<Output>,
        rib: &mut impl Learner,
    ) {
        let Some(connection) = &mut self.connections[way as usize] else { return };
        let mut pending = std::mem::take(&mut connection.pending);
        loop {
            let Some(connection) = &mut self.connections[way as usize] else { return };
            let is_pending = !pending.is_empty();
            let begun = if is_pending { &pending[..] } else { octets };
            let header = match Header::read(begun, connection.agreed.most) {
                Ok(header) => header,
                Err(error) => return self.fail(now, way, error, out, rib),
            };
            if let Some(header) = header.filter(|header| begun.len() >= header.len) {
                let body = &begun[HEADER..header.len];
                let result = self.message(now, way, header.kind, body, out, rib);
                if let Err(error) = result {
                    return self.fail(now, way, error, out, rib);
                }
                // A pending message ends where it is complete.
                if is_pending { pending.clear() } else { octets = &octets[header.len..] }
            } else if octets.is_empty() {
                connection.pending = pending;
                return;
            } else {
                let wanted = header.map_or(HEADER, |header| header.len);
                let missing = wanted - pending.len();
                let (more, rest) = octets.split_at(missing.min(octets.len()));
                pending.extend_from_slice(more);
                octets = rest;
            }
        }
    }

    /// Handles a message.
    ///
    /// # Errors
    /// The NOTIFICATION that ends the connection.
    fn message(
        &mut self,
        now: Nanos,
        way: Way,
        kind: Kind,
        body: &[u8],
        out: &mut Vec<Output>,
        rib: &mut impl Learner,
    ) -> Result<(), Notification> {
        self.counters.received.count(kind);
        let Some(connection) = &mut self.connections[way as usize] else { return Ok(()) };
        match (connection.state, kind) {
            (_, Kind::Notification) => {
                let received = Notification::read(body).unwrap_or(Notification::new(0, 0));
                self.note_error(way, LastError::Received(received));
                out.push(Output::Close(way));
                self.take_connection(now, way, false, out, rib);
                self.rest(now, Phase::Waiting);
                Ok(())
            }
            (State::OpenSent, Kind::Open) => self.opened_by(now, way, &Open::read(body)?, out),
            (State::OpenConfirm, Kind::Keepalive) => {
                connection.restart_hold(now);
                self.establish(now, way, out, rib);
                Ok(())
            }
            (State::Established, Kind::Keepalive) => {
                connection.restart_hold(now);
                Ok(())
            }
            (State::Established, Kind::Update) => {
                connection.restart_hold(now);
                let context = connection.update_context();
                let ended = read_update(body, &context, &mut self.counters.faults, rib)?;
                if let Some(family) = ended {
                    connection.ended[family.index()] = true;
                    self.end_of_rib(family, out, rib);
                }
                Ok(())
            }
            (State::Established, Kind::RouteRefresh) => {
                let Negotiated { families, enhanced_refresh, .. } = connection.agreed;
                let request = message::read_route_refresh(body, enhanced_refresh)?;
                // Requests for another family are ignored (RFC 2918 section 4).
                let request = request.filter(|(family, _)| families[family.index()]);
                if let Some((family, subtype)) = request {
                    self.refresh(now, way, family, subtype, out, rib);
                }
                Ok(())
            }
            // RFC 6608 section 3.
            (state, _) => Err(Notification::new(
                code::FSM,
                match state {
                    State::OpenSent => 1,
                    State::OpenConfirm => 2,
                    _ => 3,
                },
            )),
        }
    }

    /// Handles the peer's OPEN.
    fn opened_by(
        &mut self,
        now: Nanos,
        way: Way,
        open: &Open,
        out: &mut Vec<Output>,
    ) -> Result<(), Notification> {
        let (agreed, restart) = self.negotiate(open)?;
        // Section 6.8: only connections in OpenConfirm collide, and one that is established stays.
        match self.connection(way.other()).map(|other| other.state) {
            Some(State::OpenConfirm) => {
                // The connection stays that the side with the higher identifier has opened. If
                // they are equal, the higher number decides (RFC 6286 section 2.3).
                let own = (self.settings.identifier, self.settings.asn);
                let is_own = own > (open.identifier, open.asn);
                let stays = if is_own { Way::Active } else { Way::Passive };
                if stays != way {
                    return Err(Notification::cease(cease::COLLISION));
                }
                self.notify(way.other(), Notification::cease(cease::COLLISION), out);
                self.connections[way.other() as usize] = None;
            }
            Some(State::Established) => return Err(Notification::cease(cease::COLLISION)),
            _ => {}
        }
        self.send(way, Kind::Keepalive, message::keepalive(), out);
        let keepalive = self.keepalive_interval(agreed.hold);
        if let Some(connection) = &mut self.connections[way as usize] {
            connection.state = State::OpenConfirm;
            (connection.agreed, connection.restart) = (agreed, restart);
            connection.restart_hold(now);
            connection.keepalive_due = keepalive.map(|interval| now + interval);
        }
        Ok(())
    }

    /// Checks an OPEN (section 6.2), and finds what both sides have in common.
    fn negotiate(
        &self,
        open: &Open,
    ) -> Result<(Negotiated, Option<RestartCapability>), Notification> {
        let own = &self.settings;
        let error = |subcode| Err(Notification::new(code::OPEN, subcode));
        let is_internal = open.asn == own.asn;
        let is_other = own.peer_asn.is_some_and(|expected| expected != open.asn);
        // 0 is reserved (RFC 7607).
        if open.asn == 0 || is_other || own.is_external && is_internal {
            return error(2);
        }
        // RFC 6286 section 2.2.
        let is_own = is_internal && open.identifier == own.identifier;
        if open.identifier.is_unspecified() || is_own {
            return error(3);
        }
        if matches!(open.hold, 1 | 2) {
            return error(6);
        }
        let peer = &open.capabilities;
        let offered = match peer.families {
            [false, false] => [!peer.other_families, false],
            offered => offered,
        };
        let both = |one: Families, other: Families| [one[0] && other[0], one[1] && other[1]];
        let families = both(own.families, offered);
        if families == [false, false] {
            // RFC 5492 section 5: the capabilities that are missing.
            let mut missing = Vec::new();
            let wanted = Capabilities { families: own.families, ..Capabilities::default() };
            wanted.write(&mut missing);
            return Err(Notification::with(code::OPEN, 7, &missing));
        }
        let sends = |paths: [Option<AddPath>; 2]| paths.map(|it| it.is_some_and(|it| it.send));
        let receives =
            |paths: [Option<AddPath>; 2]| paths.map(|it| it.is_some_and(|it| it.receive));
        let extended = own.extended_messages && peer.extended_messages;
        let agreed = Negotiated {
            families,
            add_path_send: both(sends(own.add_path), receives(peer.add_path)),
            add_path_receive: both(receives(own.add_path), sends(peer.add_path)),
            four_octet: own.four_octet && peer.asn.is_some(),
            is_internal,
            most: if extended { MOST_EXTENDED } else { MOST },
            hold: own.hold.min(open.hold),
            refresh: peer.refresh,
            enhanced_refresh: peer.enhanced_refresh,
            peer_asn: open.asn,
            peer_identifier: open.identifier,
        };
        Ok((agreed, peer.restart.filter(|_| own.restart.is_some())))
    }

    fn establish(&mut self, now: Nanos, way: Way, out: &mut Vec<Output>, rib: &mut impl Learner) {
        let Some(connection) = &mut self.connections[way as usize] else { return };
        connection.state = State::Established;
        let (families, restart) = (connection.agreed.families, connection.restart);
        self.established_at = Some(now);
        self.counters.ups += 1;
        self.end_attempt(out);
        self.retry_due = None;

        // RFC 4724 section 4.2: routes end that the peer has not kept while it restarted.
        for family in Family::ALL {
            let is_kept = families[family.index()]
                && restart.is_some_and(|it| it.families[family.index()] == Some(true));
            if self.stale[family.index()] && !is_kept {
                self.stale[family.index()] = false;
                rib.cleared(family);
            }
        }
        self.stale_until = self.stale.contains(&true).then_some(now + RESTART_LIMIT);

        // Section 4.1: after its restart, a router announces routes once it has those of its peers,
        // except of those that have restarted, too.
        let waits = restart.filter(|it| std::mem::take(&mut self.has_restarted) && !it.restarting);
        self.has_restarted = false;
        for family in Family::ALL.into_iter().filter(|family| families[family.index()]) {
            if waits.is_some_and(|it| it.families[family.index()].is_some()) {
                self.deferred[family.index()] = true;
                self.deferred_until = Some(now + RESTART_LIMIT);
            } else {
                out.push(Output::Feed { family, end: end_of_rib(family) });
            }
        }
    }

    fn end_of_rib(&mut self, family: Family, out: &mut Vec<Output>, rib: &mut impl Learner) {
        self.sweep(family, rib);
        if std::mem::take(&mut self.deferred[family.index()]) {
            out.push(Output::Feed { family, end: end_of_rib(family) });
        }
        if !self.deferred.contains(&true) {
            self.deferred_until = None;
        }
    }

    fn sweep(&mut self, family: Family, rib: &mut impl Learner) {
        if std::mem::take(&mut self.stale[family.index()]) {
            rib.swept(family);
        }
        if !self.stale.contains(&true) {
            self.stale_until = None;
        }
    }

    fn ask_again(&mut self, out: &mut Vec<Output>) {
        let Some((way, agreed)) = self.established().filter(|(_, agreed)| agreed.refresh) else {
            return;
        };
        let families = agreed.families;
        for family in Family::ALL.into_iter().filter(|family| families[family.index()]) {
            let request = message::route_refresh(family, Refresh::Request);
            self.send(way, Kind::RouteRefresh, request, out);
        }
    }

    /// Handles a ROUTE-REFRESH (RFC 2918, RFC 7313 section 4).
    fn refresh(
        &mut self,
        now: Nanos,
        way: Way,
        family: Family,
        subtype: Refresh,
        out: &mut Vec<Output>,
        rib: &mut impl Learner,
    ) {
        let Some(connection) = self.connection(way) else { return };
        let Connection { agreed, restart, ended, .. } = connection;
        let restarts = restart.is_some_and(|it| it.families[family.index()].is_some());
        match subtype {
            // The routes are deferred until the end of a restart: they follow then.
            Refresh::Request if self.deferred[family.index()] => {}
            Refresh::Request => {
                let mark = |subtype| match agreed.enhanced_refresh {
                    true => message::route_refresh(family, subtype),
                    false => Vec::new(),
                };
                let (begin, end) = (mark(Refresh::Begin), mark(Refresh::End));
                out.push(Output::Refeed { family, begin, end });
            }
            // With graceful restarts, not before the end of the family.
            Refresh::Begin | Refresh::End if restarts && !ended[family.index()] => {}
            Refresh::Begin => {
                self.stale[family.index()] = true;
                self.stale_until = Some(now + RESTART_LIMIT);
                rib.stale(family);
            }
            Refresh::End => self.sweep(family, rib),
        }
    }

    // Timers.

    fn run_timers(&mut self, now: Nanos, out: &mut Vec<Output>, rib: &mut impl Learner) {
        let is_due = |due: Option<Nanos>| due.is_some_and(|due| due <= now);
        for way in Way::BOTH {
            let Some(connection) = self.connection(way) else { continue };
            let hold = connection.agreed.hold;
            if is_due(connection.hold_due) {
                self.fail(now, way, Notification::new(code::HOLD_TIMER, 0), out, rib);
            } else if is_due(connection.keepalive_due) {
                self.send(way, Kind::Keepalive, message::keepalive(), out);
                let interval = self.keepalive_interval(hold);
                if let Some(connection) = &mut self.connections[way as usize] {
                    connection.keepalive_due = interval.map(|interval| now + interval);
                }
            }
        }
        if is_due(self.retry_due) {
            self.end_attempt(out);
            self.connect(now, out);
        }
        if is_due(self.stale_until) {
            let is_up = self.established_at.is_some();
            for family in Family::ALL.into_iter().filter(|it| self.stale[it.index()]) {
                if is_up { rib.swept(family) } else { rib.cleared(family) }
            }
            (self.stale, self.stale_until) = ([false; 2], None);
        }
        if is_due(self.deferred_until) {
            for family in Family::ALL.into_iter().filter(|it| self.deferred[it.index()]) {
                out.push(Output::Feed { family, end: end_of_rib(family) });
            }
            (self.deferred, self.deferred_until) = ([false; 2], None);
        }
    }

    /// At least a second (section 4.4).
    fn keepalive_interval(&mut self, hold: u16) -> Option<Nanos> {
        let third = Nanos(u64::from(hold) * Nanos::SECOND.0 / 3);
        let own = self.settings.keepalive.filter(|own| *own < hold);
        let interval = own.map_or(third, |own| Nanos(u64::from(own) * Nanos::SECOND.0));
        (hold > 0).then(|| self.jittered(interval).max(Nanos::SECOND))
    }

    /// 0.75 to 1 of a time (section 10).
    fn jittered(&mut self, time: Nanos) -> Nanos {
        self.draws += 1;
        let off = below(mix(self.settings.seed, self.draws), time.0 / 4 + 1);
        time - Nanos(off)
    }

    // Helpers.

    fn connection(&self, way: Way) -> Option<&Connection> {
        self.connections[way as usize].as_ref()
    }

    /// Octets that wait for the rest of their message.
    #[cfg(test)]
    pub(crate) fn pending_octets(&self) -> usize {
        self.connections.iter().flatten().map(|connection| connection.pending.len()).sum()
    }

    fn send(&mut self, way: Way, kind: Kind, message: Vec<u8>, out: &mut Vec<Output>) {
        self.counters.sent.count(kind);
        out.push(Output::Send(way, message));
    }
}

impl Connection {
    fn restart_hold(&mut self, now: Nanos) {
        let hold = Nanos(u64::from(self.agreed.hold) * Nanos::SECOND.0);
        self.hold_due = (self.agreed.hold > 0).then(|| now + hold);
    }

    /// Whether both sides restart gracefully, with a family at least.
    fn is_graceful(&self) -> bool {
        self.restart.is_some_and(|restart| restart.families.iter().any(Option::is_some))
    }

    fn update_context(&self) -> UpdateContext {
        UpdateContext {
            families: self.agreed.families,
            paths: self.agreed.add_path_receive,
            wide: self.agreed.four_octet,
            internal: self.agreed.is_internal,
        }
    }
}

#[cfg(test)]
mod tests;

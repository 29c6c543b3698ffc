//! The DHCPv4 client of one host (RFC 2131 section 4.4). Times and random numbers are arguments.

use std::net::Ipv4Addr;

use squall_units::{MacAddr, Nanos, below};

use crate::{
    Fault, Faults, OptionTemplate, ValueTemplate,
    dhcp_message::{Kind, Message},
};

/// The client's timers and limits. The defaults are those of RFC 2131.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DhcpTimers {
    /// Time before the first retransmission; it doubles with each further one (section 4.1).
    pub first: Nanos,
    /// Longest time between retransmissions.
    pub longest: Nanos,
    /// A random time between -`spread` and +`spread` is added to each of them.
    pub spread: Nanos,
    /// Number of DISCOVER messages without an offer after which the client has failed. The RFC has
    /// no limit; without one, a host that gets no answer would never have a result.
    pub discovers: u8,
    /// Number of REQUEST messages without an answer after which the client begins again (section
    /// 3.1.5).
    pub requests: u8,
    /// Number of times that it begins again before it has failed.
    pub restarts: u8,
    /// Pause after a DECLINE (section 3.1.5).
    pub declined: Nanos,
    /// Shortest time between two requests for a renewal (section 4.4.5).
    pub renewal: Nanos,
}

impl Default for DhcpTimers {
    fn default() -> Self {
        Self {
            first: Nanos(4_000_000_000),
            longest: Nanos(64_000_000_000),
            spread: Nanos(1_000_000_000),
            discovers: 5,
            requests: 5,
            restarts: 3,
            declined: Nanos(10_000_000_000),
            renewal: Nanos(60_000_000_000),
        }
    }
}

impl DhcpTimers {
    /// Time to the next retransmission after `tries` transmissions. `chance` is uniform.
    fn delay(&self, tries: u8, chance: u64) -> Nanos {
        let doublings = u32::from(tries.saturating_sub(1)).min(32);
        let base = self.first.0.saturating_mul(1 << doublings).min(self.longest.0);
        let spread = self.spread.0.min(base);
        Nanos(base - spread + below(chance, 2 * spread + 1))
    }
}

/// How a client begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DhcpBegin {
    /// With a DISCOVER (section 4.4.1).
    #[default]
    Discover,
    /// With a REQUEST for the address that it had before (section 4.4.2).
    Reboot,
    /// With an INFORM, because its address is static, with a prefix of this length (section
    /// 4.4.3).
    Inform(u8),
}

/// Settings that all clients of a group share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientSettings {
    pub begin: DhcpBegin,
    /// The address that the first host requests or has; that of each further one is the next.
    pub first: Option<Ipv4Addr>,
    /// Length of the lease that clients ask for, in seconds.
    pub lease: Option<u32>,
    /// Clients ask for an exchange of two messages, and servers agree to it (RFC 4039).
    pub rapid_commit: bool,
    /// Clients ask for answers by broadcast.
    pub broadcast: bool,
    /// Further options. Clients send all of them in DISCOVER, REQUEST and INFORM, and only their
    /// identifier in RELEASE and DECLINE (section 4.4 table 5); servers in OFFER and ACK.
    pub options: Vec<OptionTemplate>,
    /// The clients reach servers through a relay agent with this address, which the group emulates
    /// (RFC 1542 section 4.1).
    pub relay: Option<Ipv4Addr>,
    /// Circuit and remote identifier that the agent adds (RFC 3046 section 2.0).
    pub circuit: Option<ValueTemplate>,
    pub remote: Option<ValueTemplate>,
}

/// The states of RFC 2131 figure 5, and those that a host may have around them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DhcpState {
    /// INIT, before the host has started.
    #[default]
    Init,
    Selecting,
    Requesting,
    /// The client has requested the address that it had before.
    Rebooting,
    /// The client has a static address, and asks for the other parameters.
    Informing,
    /// The server has acknowledged; the host examines whether another one has the address.
    Checking,
    Bound,
    Renewing,
    Rebinding,
    /// Another host had the address; the client waits before it begins again.
    Declined,
    Released,
    Failed,
}

impl DhcpState {
    pub const ALL: [(Self, &'static str); 12] = [
        (Self::Init, "init"),
        (Self::Selecting, "selecting"),
        (Self::Requesting, "requesting"),
        (Self::Rebooting, "rebooting"),
        (Self::Informing, "informing"),
        (Self::Checking, "checking"),
        (Self::Bound, "bound"),
        (Self::Renewing, "renewing"),
        (Self::Rebinding, "rebinding"),
        (Self::Declined, "declined"),
        (Self::Released, "released"),
        (Self::Failed, "failed"),
    ];

    /// The state's name.
    pub fn word(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// Whether the host may use its address.
    pub fn has_address(self) -> bool {
        matches!(self, Self::Bound | Self::Renewing | Self::Rebinding | Self::Informing)
    }

    /// Whether the host has started, and is neither configured nor has failed.
    pub fn is_pending(self) -> bool {
        use DhcpState::{Checking, Declined, Informing, Rebooting, Requesting, Selecting};
        matches!(self, Selecting | Requesting | Rebooting | Informing | Checking | Declined)
    }
}

/// Why a client has no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DhcpFailure {
    /// No server has made an offer.
    NoOffer,
    /// No server answered the request, or the INFORM.
    NoAck,
    /// Servers refused the request.
    Nak,
    /// Another host had each address that servers gave.
    Conflict,
    /// The lease ended, and no server gave another.
    Expired,
}

impl DhcpFailure {
    pub fn word(self) -> &'static str {
        match self {
            Self::NoOffer => "no_offer",
            Self::NoAck => "no_ack",
            Self::Nak => "nak",
            Self::Conflict => "conflict",
            Self::Expired => "expired",
        }
    }
}

/// A message to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub message: Message,
    /// The host sends from its own address and to the server alone; otherwise from 0.0.0.0 to all.
    pub unicast: Option<Ipv4Addr>,
    pub retransmission: bool,
}

/// A change that a step has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DhcpEvent {
    /// An offer was accepted, this time after the first message.
    Offered(Nanos),
    /// The address was acknowledged. The host must examine whether another host has it, and call
    /// [`DhcpClient::checked`].
    Acknowledged,
    /// The host is configured, this time after the first message.
    Bound(Nanos),
    /// The lease was extended.
    Renewed,
    /// A lease ended, and the host must no longer use its address.
    Expired,
    /// A server refused, and the host must no longer use its address.
    Refused,
    /// The message was ignored, for this reason.
    Ignored(&'static str),
}

/// The outcome of a step: a message to send, and a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DhcpStep {
    pub send: Option<Request>,
    pub event: Option<DhcpEvent>,
}

impl DhcpStep {
    fn ignored(reason: &'static str) -> Self {
        Self { send: None, event: Some(DhcpEvent::Ignored(reason)) }
    }
}

/// The arguments of a client's step.
#[derive(Clone, Copy, Debug)]
pub struct DhcpContext<'a> {
    pub now: Nanos,
    /// A uniform random number, another one for each step.
    pub chance: u64,
    pub mac: MacAddr,
    pub timers: &'a DhcpTimers,
    pub settings: &'a ClientSettings,
    /// The address that the host requests or has ([`ClientSettings::first`]).
    pub own: Option<Ipv4Addr>,
    pub faults: Faults,
    /// Whether the host examines an address before it uses it (section 4.4.1).
    pub check: bool,
}

/// The client of one host. It keeps no settings, because there may be a million of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DhcpClient {
    state: DhcpState,
    failure: Option<DhcpFailure>,
    /// Transmissions of the current message.
    tries: u8,
    /// Times that it has begun again since it was bound last.
    restarts: u8,
    secs: u16,
    xid: u32,
    address: Option<Ipv4Addr>,
    server: Option<Ipv4Addr>,
    mask: Option<Ipv4Addr>,
    router: Option<Ipv4Addr>,
    dns: Option<Ipv4Addr>,
    /// When the first message was sent, and the first and the last of the current kind.
    began: Nanos,
    requested: Nanos,
    sent: Nanos,
    /// When the next timer is due; `None`: no timer runs.
    due: Option<Nanos>,
    /// T1, T2, and the end of the lease; `None`: the lease is infinite.
    renews: Option<(Nanos, Nanos, Nanos)>,
    /// Length of the lease in seconds.
    lease: u32,
}

const INFINITE: u32 = u32::MAX;

impl DhcpClient {
    pub fn state(&self) -> DhcpState {
        self.state
    }

    /// Why it has failed.
    pub fn failure(&self) -> Option<DhcpFailure> {
        self.failure
    }

    /// The address, if the host may use it.
    pub fn address(&self) -> Option<Ipv4Addr> {
        self.address.filter(|_| self.state.has_address())
    }

    /// The address that the host must examine, or may use.
    pub fn candidate(&self) -> Option<Ipv4Addr> {
        self.address.filter(|_| self.state.has_address() || self.state == DhcpState::Checking)
    }

    pub fn server(&self) -> Option<Ipv4Addr> {
        self.server
    }

    pub fn router(&self) -> Option<Ipv4Addr> {
        self.router
    }

    /// The first DNS server.
    pub fn dns(&self) -> Option<Ipv4Addr> {
        self.dns
    }

    pub fn mask(&self) -> Option<Ipv4Addr> {
        self.mask
    }

    /// T1, T2 and the end of the lease; `None`: it has no end.
    pub fn lease(&self) -> Option<[Nanos; 3]> {
        self.renews.map(|(renews, rebinds, ends)| [renews, rebinds, ends])
    }

    /// Length of the lease in seconds; `None`: the host has none, or one without an end.
    pub fn lease_seconds(&self) -> Option<u32> {
        self.renews.filter(|_| self.address().is_some()).map(|_| self.lease)
    }

    /// When [`DhcpClient::timer`] must be called next.
    pub fn due(&self) -> Option<Nanos> {
        self.due
    }

    /// Sends the first message. The random pause of section 4.4.1 before it is the caller's,
    /// because a group of hosts starts at a rate.
    pub fn start(&mut self, cx: &DhcpContext<'_>) -> DhcpStep {
        *self = Self { began: cx.now, ..Self::default() };
        let first = match (cx.settings.begin, cx.own) {
            (DhcpBegin::Reboot, Some(_)) => DhcpState::Rebooting,
            (DhcpBegin::Inform(_), Some(_)) => DhcpState::Informing,
            _ => return self.restart(cx),
        };
        (self.state, self.address, self.xid) = (first, cx.own, cx.chance as u32);
        if let DhcpBegin::Inform(prefix) = cx.settings.begin {
            self.mask = Some(crate::mask_of(prefix));
        }
        DhcpStep { send: self.repeat(cx), event: None }
    }

    /// Gives the address back. No server answers a RELEASE (section 4.4.6).
    pub fn release(&mut self, cx: &DhcpContext<'_>) -> DhcpStep {
        // The server has bound an address that the host still examines.
        let has_lease = self.state.has_address() || self.state == DhcpState::Checking;
        if !has_lease || self.is_informed(cx) {
            return DhcpStep::default();
        }
        let message = Message {
            ciaddr: self.address.unwrap_or(Ipv4Addr::UNSPECIFIED),
            server: self.server,
            ..Message::new(Kind::Release, cx.chance as u32, cx.mac)
        };
        (self.state, self.due) = (DhcpState::Released, None);
        let send = Request { message, unicast: self.server, retransmission: false };
        DhcpStep { send: Some(send), event: None }
    }

    /// The result of the examination of the address, or a later conflict (RFC 5227 section 2.4).
    pub fn checked(&mut self, cx: &DhcpContext<'_>, conflict: bool) -> DhcpStep {
        match self.state {
            DhcpState::Checking if !conflict => {
                let event = self.use_address(cx);
                DhcpStep { send: None, event }
            }
            state if conflict && state.has_address() && self.is_informed(cx) => {
                self.fail(DhcpFailure::Conflict);
                DhcpStep::default()
            }
            state if conflict && (state == DhcpState::Checking || state.has_address()) => {
                if state.has_address() {
                    // The loss of an address in use is the start of another acquisition.
                    self.began = cx.now + cx.timers.declined;
                }
                self.decline(cx)
            }
            _ => DhcpStep::default(),
        }
    }

    /// Whether the address is not of a server.
    fn is_informed(&self, cx: &DhcpContext<'_>) -> bool {
        matches!(cx.settings.begin, DhcpBegin::Inform(_))
    }

    fn decline(&mut self, cx: &DhcpContext<'_>) -> DhcpStep {
        let message = Message {
            requested: self.address,
            server: self.server,
            ..Message::new(Kind::Decline, self.xid, cx.mac)
        };
        (self.state, self.failure) = (DhcpState::Declined, Some(DhcpFailure::Conflict));
        self.due = Some(cx.now + cx.timers.declined);
        let send = Request { message, unicast: None, retransmission: false };
        DhcpStep { send: Some(send), event: None }
    }

    /// Runs the timer, if it is due.
    pub fn timer(&mut self, cx: &DhcpContext<'_>) -> DhcpStep {
        if self.due.is_none_or(|due| due > cx.now) {
            return DhcpStep::default();
        }
        self.due = None;
        let quiet = |send| DhcpStep { send, event: None };
        match self.state {
            DhcpState::Selecting if self.tries < cx.timers.discovers => quiet(self.discover(cx)),
            DhcpState::Selecting => {
                self.fail(self.failure.unwrap_or(DhcpFailure::NoOffer));
                DhcpStep::default()
            }
            DhcpState::Requesting | DhcpState::Rebooting | DhcpState::Informing
                if self.tries < cx.timers.requests =>
            {
                quiet(self.repeat(cx))
            }
            // The RFC lets a client use its former lease, or default parameters, if no server
            // answers. A host would then be configured that no server knows.
            DhcpState::Requesting | DhcpState::Rebooting => self.again(cx, DhcpFailure::NoAck),
            DhcpState::Informing => {
                self.fail(DhcpFailure::NoAck);
                DhcpStep::default()
            }
            DhcpState::Declined => self.again(cx, DhcpFailure::Conflict),
            DhcpState::Bound | DhcpState::Renewing | DhcpState::Rebinding => self.renew(cx),
            DhcpState::Init | DhcpState::Checking | DhcpState::Released | DhcpState::Failed => {
                DhcpStep::default()
            }
        }
    }

    /// Handles a message to this host's hardware address.
    pub fn receive(&mut self, cx: &DhcpContext<'_>, message: &Message) -> DhcpStep {
        if message.xid != self.xid {
            return DhcpStep::ignored("wrong_xid");
        }
        let faults = cx.faults;
        match (self.state, message.kind) {
            (_, Kind::Offer) if faults.has(Fault::IgnoreOffer) => {
                DhcpStep::ignored(Fault::IgnoreOffer.word())
            }
            (_, Kind::Nak) if faults.has(Fault::IgnoreNak) => {
                DhcpStep::ignored(Fault::IgnoreNak.word())
            }
            (DhcpState::Selecting, Kind::Offer) => self.offered(cx, message),
            (DhcpState::Selecting, Kind::Ack) if message.rapid && cx.settings.rapid_commit => {
                match message.server {
                    Some(_) => self.acknowledged(cx, message),
                    None => DhcpStep::ignored("no_server"),
                }
            }
            (DhcpState::Requesting, Kind::Ack) if message.server != self.server => {
                DhcpStep::ignored("wrong_server")
            }
            (DhcpState::Informing, Kind::Ack) => self.informed(cx, message),
            (
                DhcpState::Requesting
                | DhcpState::Rebooting
                | DhcpState::Renewing
                | DhcpState::Rebinding,
                Kind::Ack,
            ) => self.acknowledged(cx, message),
            (DhcpState::Requesting, Kind::Nak) if message.server != self.server => {
                DhcpStep::ignored("wrong_server")
            }
            (DhcpState::Requesting | DhcpState::Rebooting, Kind::Nak) => {
                let step = self.again(cx, DhcpFailure::Nak);
                DhcpStep { event: Some(DhcpEvent::Refused), ..step }
            }
            (DhcpState::Renewing | DhcpState::Rebinding, Kind::Nak) => {
                // A lease that is taken back is the start of another acquisition.
                (self.began, self.restarts) = (cx.now, 0);
                let step = self.again(cx, DhcpFailure::Nak);
                DhcpStep { event: Some(DhcpEvent::Refused), ..step }
            }
            (_, Kind::Offer) => DhcpStep::ignored("late_offer"),
            (_, Kind::Ack) => DhcpStep::ignored("late_ack"),
            (_, Kind::Nak) => DhcpStep::ignored("late_nak"),
            _ => DhcpStep::ignored("not_a_reply"),
        }
    }

    fn offered(&mut self, cx: &DhcpContext<'_>, message: &Message) -> DhcpStep {
        let Some(server) = message.server else { return DhcpStep::ignored("no_server") };
        if !is_usable(message.yiaddr) {
            return DhcpStep::ignored("bad_address");
        }
        if message.lease == Some(0) {
            return DhcpStep::ignored("zero_lease");
        }
        (self.address, self.server) = (Some(message.yiaddr), Some(server));
        (self.state, self.tries) = (DhcpState::Requesting, 0);
        let event = DhcpEvent::Offered(cx.now.saturating_sub(self.began));
        DhcpStep { send: self.repeat(cx), event: Some(event) }
    }

    /// The server has only given other parameters than an address (section 4.4.3).
    fn informed(&mut self, cx: &DhcpContext<'_>, message: &Message) -> DhcpStep {
        self.server = message.server;
        self.mask = message.mask.or(self.mask);
        (self.router, self.dns) = (message.router, message.dns);
        self.tries = 0;
        DhcpStep { send: None, event: self.use_address(cx) }
    }

    fn acknowledged(&mut self, cx: &DhcpContext<'_>, message: &Message) -> DhcpStep {
        if !is_usable(message.yiaddr) {
            return DhcpStep::ignored("bad_address");
        }
        let renewed = self.state.has_address();
        let is_fixed = renewed || self.state == DhcpState::Rebooting;
        if is_fixed && self.address != Some(message.yiaddr) {
            return DhcpStep::ignored("bad_address");
        }
        self.renews = match message.lease {
            None => return DhcpStep::ignored("no_lease"),
            Some(0) => return DhcpStep::ignored("zero_lease"),
            Some(INFINITE) => None,
            Some(lease) => Some(self.times(cx.now, lease, message)),
        };
        self.lease = message.lease.unwrap_or_default();
        self.address = Some(message.yiaddr);
        self.server = message.server.or(self.server);
        self.mask = message.mask.or(self.mask);
        self.router = message.router.or(self.router);
        self.dns = message.dns.or(self.dns);
        if renewed {
            (self.tries, self.restarts, self.failure) = (0, 0, None);
            self.bind();
            return DhcpStep { send: None, event: Some(DhcpEvent::Renewed) };
        }
        if cx.faults.has(Fault::Decline) {
            return self.decline(cx);
        }
        if cx.faults.has(Fault::KeepLease) {
            self.renews = None;
        }
        let event = if cx.check {
            (self.state, self.due) = (DhcpState::Checking, None);
            Some(DhcpEvent::Acknowledged)
        } else {
            self.use_address(cx)
        };
        DhcpStep { send: None, event }
    }

    /// The host is configured. Only now is the count of restarts cleared: a client whose addresses
    /// all belong to other hosts would otherwise decline them forever.
    fn use_address(&mut self, cx: &DhcpContext<'_>) -> Option<DhcpEvent> {
        (self.tries, self.restarts, self.failure) = (0, 0, None);
        self.bind();
        Some(DhcpEvent::Bound(cx.now.saturating_sub(self.began)))
    }

    fn bind(&mut self) {
        self.state = DhcpState::Bound;
        self.due = self.renews.map(|(renews, ..)| renews);
    }

    /// T1, T2 and the end of the lease. They count from the first transmission of the request
    /// (section 4.4.1), because the answer may be to any of them; if that lease would be over, from
    /// the last. Times that are not in order are replaced by the defaults of section 4.4.5.
    fn times(&self, now: Nanos, lease: u32, message: &Message) -> (Nanos, Nanos, Nanos) {
        let seconds = |seconds: u32| Nanos(u64::from(seconds) * Nanos::SECOND.0);
        let lease = seconds(lease);
        let default = (Nanos(lease.0 / 2), Nanos(lease.0 / 8 * 7));
        let t1 = message.renewal.map_or(default.0, seconds);
        let t2 = message.rebinding.map_or(default.1, seconds);
        let in_order = t1.0 > 0 && t1 <= t2 && t2 <= lease;
        let (t1, t2) = if in_order { (t1, t2) } else { default };
        let from = if self.requested + lease > now { self.requested } else { self.sent };
        (from + t1, from + t2, from + lease)
    }

    /// At T1 the client asks its server, at T2 any server, and at the end of the lease it begins
    /// again (section 4.4.5).
    fn renew(&mut self, cx: &DhcpContext<'_>) -> DhcpStep {
        let Some((_, rebinds, expires)) = self.renews else { return DhcpStep::default() };
        if cx.now >= expires {
            (self.began, self.restarts) = (cx.now, 0);
            let step = self.again(cx, DhcpFailure::Expired);
            return DhcpStep { event: Some(DhcpEvent::Expired), ..step };
        }
        let (next, until) = match cx.now >= rebinds {
            true => (DhcpState::Rebinding, expires),
            false => (DhcpState::Renewing, rebinds),
        };
        if self.state != next {
            (self.tries, self.xid) = (0, cx.chance as u32);
        }
        self.state = next;
        let half = Nanos(until.saturating_sub(cx.now).0 / 2);
        self.due = Some((cx.now + half.max(cx.timers.renewal)).min(until));
        let began = if self.tries == 0 { cx.now } else { self.requested };
        let message = Message {
            ciaddr: self.address.unwrap_or(Ipv4Addr::UNSPECIFIED),
            secs: seconds_since(began, cx.now),
            lease: cx.settings.lease,
            ..Message::new(Kind::Request, self.xid, cx.mac)
        };
        let unicast = self.server.filter(|_| next == DhcpState::Renewing);
        DhcpStep { send: Some(self.sent(cx, message, unicast)), event: None }
    }

    /// Returns to INIT, or fails.
    fn again(&mut self, cx: &DhcpContext<'_>, why: DhcpFailure) -> DhcpStep {
        if self.restarts >= cx.timers.restarts {
            self.fail(why);
            return DhcpStep::default();
        }
        self.restarts += 1;
        self.failure = Some(why);
        self.restart(cx)
    }

    fn fail(&mut self, why: DhcpFailure) {
        (self.state, self.failure, self.due) = (DhcpState::Failed, Some(why), None);
        self.address = None;
    }

    fn restart(&mut self, cx: &DhcpContext<'_>) -> DhcpStep {
        (self.state, self.tries) = (DhcpState::Selecting, 0);
        (self.address, self.server, self.renews) = (None, None, None);
        self.xid = cx.chance as u32;
        DhcpStep { send: self.discover(cx), event: None }
    }

    fn discover(&mut self, cx: &DhcpContext<'_>) -> Option<Request> {
        self.secs = seconds_since(self.began, cx.now);
        let message = Message {
            secs: self.secs,
            broadcast: cx.settings.broadcast,
            requested: cx.own,
            lease: cx.settings.lease,
            rapid: cx.settings.rapid_commit,
            ..Message::new(Kind::Discover, self.xid, cx.mac)
        };
        Some(self.retried(cx, message))
    }

    /// The message of the state, for the first time or again.
    fn repeat(&mut self, cx: &DhcpContext<'_>) -> Option<Request> {
        let new = |kind| Message {
            broadcast: cx.settings.broadcast,
            ..Message::new(kind, self.xid, cx.mac)
        };
        let message = match self.state {
            // It repeats the `secs` of the DISCOVER (section 4.4.1).
            DhcpState::Requesting => Message {
                secs: self.secs,
                requested: self.address,
                server: self.server,
                lease: cx.settings.lease,
                ..new(Kind::Request)
            },
            // Without a server (section 4.4.2).
            DhcpState::Rebooting => Message {
                secs: seconds_since(self.began, cx.now),
                requested: self.address,
                lease: cx.settings.lease,
                ..new(Kind::Request)
            },
            DhcpState::Informing => Message {
                secs: seconds_since(self.began, cx.now),
                ciaddr: self.address.unwrap_or(Ipv4Addr::UNSPECIFIED),
                ..Message::new(Kind::Inform, self.xid, cx.mac)
            },
            _ => return None,
        };
        Some(self.retried(cx, message))
    }

    /// Sends a message that is repeated after the times of section 4.1.
    fn retried(&mut self, cx: &DhcpContext<'_>, message: Message) -> Request {
        let sent = self.sent(cx, message, None);
        self.due = Some(cx.now + cx.timers.delay(self.tries, cx.chance.rotate_left(32)));
        sent
    }

    fn sent(
        &mut self,
        cx: &DhcpContext<'_>,
        message: Message,
        unicast: Option<Ipv4Addr>,
    ) -> Request {
        let retransmission = self.tries > 0;
        if !retransmission {
            self.requested = cx.now;
        }
        self.tries = self.tries.saturating_add(1);
        self.sent = cx.now;
        Request { message, unicast, retransmission }
    }
}

/// The `secs` field of a message.
fn seconds_since(began: Nanos, now: Nanos) -> u16 {
    let elapsed = now.saturating_sub(began).0 / Nanos::SECOND.0;
    u16::try_from(elapsed).unwrap_or(u16::MAX)
}

/// Whether a host can have this address.
fn is_usable(address: Ipv4Addr) -> bool {
    let first = address.octets()[0];
    first != 0 && first != 127 && first < 224
}

#[cfg(test)]
mod tests;

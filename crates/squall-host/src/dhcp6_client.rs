//! The DHCPv6 client of one host (RFC 9915 sections 15 and 18.2). Times and random numbers are
//! arguments.

use std::net::Ipv6Addr;

use squall_units::{MacAddr, Nanos, below};

use crate::dhcp6_message::{Association, INFINITE, Kind6, Lease6, Message6, duid_of, status};

/// The parameters of retransmission (section 15); 0: no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retransmission {
    /// IRT and MRT.
    pub first: Nanos,
    pub longest: Nanos,
    /// MRC and MRD.
    pub count: u8,
    pub duration: Nanos,
}

const fn retransmission(first: u64, longest: u64, count: u8, duration: u64) -> Retransmission {
    const SECOND: u64 = Nanos::SECOND.0;
    Retransmission {
        first: Nanos(first * SECOND),
        longest: Nanos(longest * SECOND),
        count,
        duration: Nanos(duration * SECOND),
    }
}

impl Retransmission {
    /// The time to the next transmission, after `before`, which is 0 after the first transmission.
    /// `positive`: the random part of the first one is not negative, so that a client hears servers
    /// for at least IRT (section 18.2.1).
    fn next(&self, before: Nanos, chance: u64, positive: bool) -> Nanos {
        let random = |base: u64| base - base / 10 + below(chance, base / 5 + 1);
        if before == Nanos::ZERO {
            let base = self.first.0;
            return match positive {
                true => Nanos(base + 1 + below(chance, base / 10)),
                false => Nanos(random(base)),
            };
        }
        // 2 * RT + RAND * RT.
        let next = before.0.saturating_add(random(before.0));
        match self.longest.0 {
            0 => Nanos(next),
            longest if next > longest => Nanos(random(longest)),
            _ => Nanos(next),
        }
    }
}

/// The client's timers (section 7.6) and limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dhcp6Timers {
    /// `SOL_MAX_DELAY`, `CNF_MAX_DELAY` and `INF_MAX_DELAY`. A group of hosts starts at a rate, so
    /// the pause before the first message is 0 by default.
    pub delay: Nanos,
    /// The RFC has no limit for Solicit and Information-request. Here, 5 messages are the limit, so
    /// that each host has a result.
    pub solicit: Retransmission,
    pub request: Retransmission,
    pub confirm: Retransmission,
    pub renew: Retransmission,
    pub rebind: Retransmission,
    pub information: Retransmission,
    pub release: Retransmission,
    pub decline: Retransmission,
    /// Number of times that the client begins again before it has failed.
    pub restarts: u8,
}

impl Default for Dhcp6Timers {
    fn default() -> Self {
        Self {
            delay: Nanos::ZERO,
            solicit: retransmission(1, 3600, 5, 0),
            request: retransmission(1, 30, 10, 0),
            confirm: retransmission(1, 4, 0, 10),
            renew: retransmission(10, 600, 0, 0),
            rebind: retransmission(10, 600, 0, 0),
            information: retransmission(1, 3600, 5, 0),
            release: retransmission(1, 0, 4, 0),
            decline: retransmission(1, 0, 4, 0),
            restarts: 3,
        }
    }
}

/// The leases that the clients of a group request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dhcp6Settings {
    pub timers: Dhcp6Timers,
    /// Whether they want an address (`IA_NA`), and a delegated prefix (`IA_PD`) of this length; 0
    /// is any length. With neither, they request other configuration only.
    pub address: bool,
    pub prefix: Option<u8>,
    pub rapid_commit: bool,
    /// Whether clients wait for the offers of all servers until the first retransmission is due
    /// (section 18.2.1), and not only for the first offer.
    pub collect: bool,
    /// The link fails for a moment this long after a client got its leases, and again at this
    /// interval, which is at least 1 ms; `None`: never.
    pub flap: Option<Nanos>,
}

impl Default for Dhcp6Settings {
    fn default() -> Self {
        Self {
            timers: Dhcp6Timers::default(),
            address: true,
            prefix: None,
            rapid_commit: false,
            collect: true,
            flap: None,
        }
    }
}

impl Dhcp6Settings {
    fn is_stateless(&self) -> bool {
        !self.address && self.prefix.is_none()
    }
}

/// The states of a client, by the message that it sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dhcp6State {
    #[default]
    Init,
    Soliciting,
    Requesting,
    /// It has no lease yet, and asks for other configuration.
    Informing,
    /// The server has replied; the host examines whether another one has the address.
    Checking,
    Bound,
    Confirming,
    Renewing,
    Rebinding,
    /// It has the configuration that it asked for.
    Informed,
    Declining,
    Releasing,
    Released,
    Failed,
}

impl Dhcp6State {
    pub const ALL: [(Self, &'static str); 14] = [
        (Self::Init, "init"),
        (Self::Soliciting, "soliciting"),
        (Self::Requesting, "requesting"),
        (Self::Informing, "informing"),
        (Self::Checking, "checking"),
        (Self::Bound, "bound"),
        (Self::Confirming, "confirming"),
        (Self::Renewing, "renewing"),
        (Self::Rebinding, "rebinding"),
        (Self::Informed, "informed"),
        (Self::Declining, "declining"),
        (Self::Releasing, "releasing"),
        (Self::Released, "released"),
        (Self::Failed, "failed"),
    ];

    /// The state's name.
    pub fn word(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// Whether the host may use its leases.
    pub fn has_lease(self) -> bool {
        matches!(self, Self::Bound | Self::Confirming | Self::Renewing | Self::Rebinding)
    }

    /// Whether the client has started and has no result yet.
    pub fn is_pending(self) -> bool {
        matches!(
            self,
            Self::Soliciting
                | Self::Requesting
                | Self::Informing
                | Self::Checking
                | Self::Declining
                | Self::Releasing
        )
    }
}

/// Why a client has no lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dhcp6Failure {
    /// No server has made an offer.
    NoAdvertise,
    /// The server did not reply.
    NoReply,
    /// Servers have neither an address nor a prefix for the client.
    NoLease,
    /// The server knows the client on no link, or has no binding for it.
    Refused,
    /// Another host had each address that servers gave.
    Duplicate,
    /// The lease ended, and no server gave another.
    Expired,
}

impl Dhcp6Failure {
    pub fn word(self) -> &'static str {
        match self {
            Self::NoAdvertise => "no_advertise",
            Self::NoReply => "no_reply",
            Self::NoLease => "no_lease",
            Self::Refused => "refused",
            Self::Duplicate => "duplicate",
            Self::Expired => "expired",
        }
    }
}

/// A change that a step has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dhcp6Event {
    /// An offer was accepted, this time after the first Solicit.
    Advertised(Nanos),
    /// A reply has an address, which the host must examine. It then calls [`Dhcp6Client::checked`].
    Acknowledged,
    /// The leases may be used, this time after the first Solicit.
    Bound(Nanos),
    /// Other configuration has come, this time after the first request.
    Informed(Nanos),
    /// Leases were extended.
    Renewed,
    /// A server has confirmed the leases, this time after the first Confirm or Rebind.
    Confirmed(Nanos),
    /// No server has answered whether the leases suit the link, so the client keeps them.
    Unconfirmed,
    /// The preferred lifetime has ended.
    Deprecated,
    /// A lease has ended.
    Expired,
    /// A server refused.
    Refused,
    /// The message was ignored, for this reason.
    Ignored(&'static str),
}

/// A message to send, to all servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request6 {
    pub message: Message6,
    pub retransmission: bool,
}

/// The outcome of a step: a message to send, and a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dhcp6Step {
    pub send: Option<Request6>,
    pub event: Option<Dhcp6Event>,
}

impl Dhcp6Step {
    fn ignored(reason: &'static str) -> Self {
        Self { send: None, event: Some(Dhcp6Event::Ignored(reason)) }
    }

    fn event(event: Dhcp6Event) -> Self {
        Self { send: None, event: Some(event) }
    }
}

/// The arguments of a client's step.
#[derive(Clone, Copy, Debug)]
pub struct Dhcp6Context<'a> {
    pub now: Nanos,
    /// A uniform random number, another one for each step.
    pub chance: u64,
    pub mac: MacAddr,
    pub settings: &'a Dhcp6Settings,
    /// Whether the host examines an address before it uses it.
    pub check: bool,
}

/// Never, and forever.
const FOREVER: Nanos = Nanos(u64::MAX);
/// The identifier of the client's identity associations: it has one of each kind.
const IAID: u32 = 1;
/// Range of `SOL_MAX_RT` and `INF_MAX_RT` in seconds (sections 21.24 and 21.25).
const MAX_RT: std::ops::RangeInclusive<u32> = 60..=86_400;
/// `IRT_DEFAULT` and `IRT_MINIMUM` in seconds (section 21.23).
const REFRESH_DEFAULT: u32 = 86_400;
const REFRESH_MINIMUM: u32 = 600;

/// The client of one host. It keeps no settings, because there may be a million of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dhcp6Client {
    state: Dhcp6State,
    failure: Option<Dhcp6Failure>,
    /// Transmissions of the current message.
    tries: u8,
    /// Times that it has begun again since it was bound last.
    restarts: u8,
    /// Preference of the best offer.
    preference: u8,
    is_preferred: bool,
    /// Whether it may be on another link.
    moved: bool,
    xid: u32,
    /// `SOL_MAX_RT` and `INF_MAX_RT` in seconds, if a server has set them.
    sol_max_rt: Option<u32>,
    inf_max_rt: Option<u32>,
    server: Option<Box<[u8]>>,
    address: Option<Ipv6Addr>,
    prefix: Option<(Ipv6Addr, u8)>,
    /// When the first Solicit, and the first message of the current kind, was sent.
    began: Nanos,
    requested: Nanos,
    /// The last time between transmissions (RT), and when the next one is due.
    interval: Nanos,
    retry: Option<Nanos>,
    /// T1, T2, the end of the preferred and of the valid lifetime.
    renews: Nanos,
    rebinds: Nanos,
    deprecates: Nanos,
    expires: Nanos,
    /// The valid lifetime in seconds.
    valid: u32,
    /// When the link fails next.
    flaps: Option<Nanos>,
}

impl Dhcp6Client {
    pub fn state(&self) -> Dhcp6State {
        self.state
    }

    /// Why it has failed.
    pub fn failure(&self) -> Option<Dhcp6Failure> {
        self.failure
    }

    /// The address, if the host may use it.
    pub fn address(&self) -> Option<Ipv6Addr> {
        self.address.filter(|_| self.state.has_lease())
    }

    /// The address that the host must examine, or may use.
    pub fn candidate(&self) -> Option<Ipv6Addr> {
        self.address.filter(|_| self.state.has_lease() || self.state == Dhcp6State::Checking)
    }

    /// The delegated prefix and its length.
    pub fn prefix(&self) -> Option<(Ipv6Addr, u8)> {
        self.prefix.filter(|_| self.state.has_lease())
    }

    /// T1, T2, the end of the preferred and of the valid lifetime, if the host has a lease.
    pub fn lease(&self) -> Option<[Nanos; 4]> {
        let times = [self.renews, self.rebinds, self.deprecates, self.expires];
        Some(times).filter(|_| self.state.has_lease())
    }

    /// Valid lifetime of the lease in seconds, from the last reply on; `u32::MAX`: without an end.
    pub fn lease_seconds(&self) -> Option<u32> {
        Some(self.valid).filter(|_| self.state.has_lease())
    }

    pub fn is_preferred(&self) -> bool {
        self.state.has_lease() && self.is_preferred
    }

    /// When [`Dhcp6Client::timer`] must be called next.
    pub fn due(&self) -> Option<Nanos> {
        let ends = || {
            let deprecates = if self.is_preferred { self.deprecates } else { FOREVER };
            let renews = if self.state == Dhcp6State::Bound { self.renews } else { FOREVER };
            let rebinds = match self.state {
                Dhcp6State::Bound | Dhcp6State::Renewing => self.rebinds,
                _ => FOREVER,
            };
            let flaps = self.flaps.unwrap_or(FOREVER);
            [deprecates, renews, rebinds, self.expires, flaps]
                .into_iter()
                .min()
                .filter(|end| *end < FOREVER)
        };
        let ends = self.state.has_lease().then(ends).flatten();
        self.retry.into_iter().chain(ends).min()
    }

    /// Begins with Solicit, or with Information-request (sections 18.2.1 and 18.2.6).
    pub fn start(&mut self, cx: &Dhcp6Context<'_>) -> Dhcp6Step {
        *self = Self { began: cx.now, ..Self::default() };
        let state = match cx.settings.is_stateless() {
            true => Dhcp6State::Informing,
            false => Dhcp6State::Soliciting,
        };
        self.enter(state, cx);
        match cx.settings.timers.delay.0 {
            0 => Dhcp6Step { send: Some(self.transmit(cx)), event: None },
            delay => {
                self.retry = Some(cx.now + Nanos(below(cx.chance, delay + 1)));
                Dhcp6Step::default()
            }
        }
    }

    /// The host may have moved to another link, and asks whether its address suits (section
    /// 18.2.3); with a prefix, it asks for its extension, with the timers of Confirm (section
    /// 18.2.12).
    pub fn confirm(&mut self, cx: &Dhcp6Context<'_>) -> Dhcp6Step {
        if !self.state.has_lease() {
            return Dhcp6Step::default();
        }
        let state = match self.prefix {
            Some(_) => Dhcp6State::Rebinding,
            None => Dhcp6State::Confirming,
        };
        self.enter(state, cx);
        self.moved = true;
        match cx.settings.timers.delay.0 {
            0 => Dhcp6Step { send: Some(self.transmit(cx)), event: None },
            delay => {
                self.retry = Some(cx.now + Nanos(below(cx.chance, delay + 1)));
                Dhcp6Step::default()
            }
        }
    }

    /// Gives the leases back (section 18.2.7).
    pub fn release(&mut self, cx: &Dhcp6Context<'_>) -> Dhcp6Step {
        // The server has bound an address that the host still examines.
        if !self.state.has_lease() && self.state != Dhcp6State::Checking {
            return Dhcp6Step::default();
        }
        self.enter(Dhcp6State::Releasing, cx);
        Dhcp6Step { send: Some(self.transmit(cx)), event: None }
    }

    /// The result of the examination of the address. One that another host has is declined (section
    /// 18.2.8).
    pub fn checked(&mut self, cx: &Dhcp6Context<'_>, duplicate: bool) -> Dhcp6Step {
        match self.state {
            Dhcp6State::Checking if duplicate => {
                self.failure = Some(Dhcp6Failure::Duplicate);
                self.enter(Dhcp6State::Declining, cx);
                Dhcp6Step { send: Some(self.transmit(cx)), event: None }
            }
            Dhcp6State::Checking => self.bind(cx),
            _ => Dhcp6Step::default(),
        }
    }

    /// Runs the timer, if it is due.
    pub fn timer(&mut self, cx: &Dhcp6Context<'_>) -> Dhcp6Step {
        if self.due().is_none_or(|due| due > cx.now) {
            return Dhcp6Step::default();
        }
        if self.state.has_lease() {
            if self.expires <= cx.now {
                self.began = cx.now;
                self.restarts = 0;
                let step = self.again(cx, Dhcp6Failure::Expired);
                return Dhcp6Step { event: Some(Dhcp6Event::Expired), ..step };
            }
            if self.is_preferred && self.deprecates <= cx.now {
                self.is_preferred = false;
                return Dhcp6Step::event(Dhcp6Event::Deprecated);
            }
            if let (Some(_), Some(interval)) =
                (self.flaps.filter(|at| *at <= cx.now), cx.settings.flap)
            {
                self.flaps = Some(cx.now + interval);
                // A client that still asks goes on: if each failure began with the first message
                // again, an interval below CNF_MAX_RD would never lead back to T1 and T2.
                if !self.is_confirming() {
                    return self.confirm(cx);
                }
            }
            let next = match self.state {
                Dhcp6State::Bound | Dhcp6State::Renewing if self.rebinds <= cx.now => {
                    Some(Dhcp6State::Rebinding)
                }
                Dhcp6State::Bound if self.renews <= cx.now => Some(Dhcp6State::Renewing),
                _ => None,
            };
            if let Some(next) = next {
                self.enter(next, cx);
                return Dhcp6Step { send: Some(self.transmit(cx)), event: None };
            }
        }
        match self.retry.is_some_and(|at| at <= cx.now) {
            true => self.retransmit(cx),
            false => Dhcp6Step::default(),
        }
    }

    /// Whether it asks if its leases suit the link.
    fn is_confirming(&self) -> bool {
        self.state == Dhcp6State::Confirming || self.state == Dhcp6State::Rebinding && self.moved
    }

    /// The time between transmissions is over.
    fn retransmit(&mut self, cx: &Dhcp6Context<'_>) -> Dhcp6Step {
        if self.state == Dhcp6State::Informed {
            // The configuration must be renewed (section 21.23).
            self.began = cx.now;
            self.enter(Dhcp6State::Informing, cx);
        }
        let soliciting = self.state == Dhcp6State::Soliciting;
        // An offer was kept until the first retransmission.
        if soliciting && self.server.is_some() {
            return self.request(cx);
        }
        let rules = self.rules(cx.settings);
        let is_over = rules.duration > Nanos::ZERO && cx.now >= self.requested + rules.duration;
        if self.tries == 0 || !(is_over || rules.count > 0 && self.tries >= rules.count) {
            return Dhcp6Step { send: Some(self.transmit(cx)), event: None };
        }
        self.retry = None;
        match self.state {
            Dhcp6State::Soliciting => {
                self.fail(self.failure.unwrap_or(Dhcp6Failure::NoAdvertise));
                Dhcp6Step::default()
            }
            Dhcp6State::Informing => {
                self.fail(Dhcp6Failure::NoReply);
                Dhcp6Step::default()
            }
            Dhcp6State::Requesting => self.again(cx, Dhcp6Failure::NoReply),
            // Without an answer, the client keeps its leases (section 18.2.3).
            Dhcp6State::Confirming | Dhcp6State::Rebinding => {
                self.state = Dhcp6State::Bound;
                Dhcp6Step::event(Dhcp6Event::Unconfirmed)
            }
            Dhcp6State::Declining => self.again(cx, Dhcp6Failure::Duplicate),
            Dhcp6State::Releasing => {
                self.state = Dhcp6State::Released;
                Dhcp6Step::default()
            }
            _ => Dhcp6Step::default(),
        }
    }

    /// Handles a message to this host's port.
    pub fn receive(&mut self, cx: &Dhcp6Context<'_>, message: &Message6) -> Dhcp6Step {
        match message.kind {
            // Authentication is not supported, so any sender could reconfigure hosts (section
            // 18.2.11).
            Kind6::Reconfigure => return Dhcp6Step::ignored("reconfigure"),
            Kind6::Advertise | Kind6::Reply => {}
            _ => return Dhcp6Step::ignored("not_a_reply"),
        }
        if message.xid != self.xid {
            return Dhcp6Step::ignored("wrong_xid");
        }
        if message.client.as_deref() != Some(&*duid_of(cx.mac)) {
            return Dhcp6Step::ignored("wrong_client");
        }
        let Some(server) = &message.server else { return Dhcp6Step::ignored("no_server") };
        let set = |field: &mut Option<u32>, value: Option<u32>| {
            *field = value.filter(|value| MAX_RT.contains(value)).or(*field);
        };
        match (message.kind, self.state) {
            (Kind6::Advertise, Dhcp6State::Soliciting) => {
                set(&mut self.sol_max_rt, message.sol_max_rt);
                self.advertised(cx, message, server)
            }
            (Kind6::Advertise, _) => Dhcp6Step::ignored("late_advertise"),
            (_, Dhcp6State::Soliciting) if !message.rapid_commit || !cx.settings.rapid_commit => {
                Dhcp6Step::ignored("no_rapid_commit")
            }
            (_, Dhcp6State::Soliciting | Dhcp6State::Requesting) => {
                set(&mut self.sol_max_rt, message.sol_max_rt);
                if self.state == Dhcp6State::Requesting && self.server.as_ref() != Some(server) {
                    return Dhcp6Step::ignored("wrong_server");
                }
                self.replied(cx, message, server)
            }
            (_, Dhcp6State::Renewing | Dhcp6State::Rebinding) => {
                set(&mut self.sol_max_rt, message.sol_max_rt);
                self.renewed(cx, message, server)
            }
            (_, Dhcp6State::Confirming) => match message.status {
                Some(status::NOT_ON_LINK) => self.begin_again(cx),
                _ => {
                    (self.state, self.retry) = (Dhcp6State::Bound, None);
                    let after = cx.now.saturating_sub(self.requested);
                    Dhcp6Step::event(Dhcp6Event::Confirmed(after))
                }
            },
            (_, Dhcp6State::Informing) => {
                set(&mut self.inf_max_rt, message.inf_max_rt);
                let refresh = message.refresh.unwrap_or(REFRESH_DEFAULT).max(REFRESH_MINIMUM);
                self.state = Dhcp6State::Informed;
                self.retry = Some(after(cx.now, refresh)).filter(|at| *at < FOREVER);
                Dhcp6Step::event(Dhcp6Event::Informed(cx.now.saturating_sub(self.began)))
            }
            // The reply ends the exchange, whatever its status (sections 18.2.10.2 and 18.2.10.3).
            (_, Dhcp6State::Releasing) => {
                (self.state, self.retry) = (Dhcp6State::Released, None);
                Dhcp6Step::default()
            }
            (_, Dhcp6State::Declining) => self.again(cx, Dhcp6Failure::Duplicate),
            _ => Dhcp6Step::ignored("late_reply"),
        }
    }

    /// An offer (section 18.2.9).
    fn advertised(
        &mut self,
        cx: &Dhcp6Context<'_>,
        message: &Message6,
        server: &[u8],
    ) -> Dhcp6Step {
        let Some(leases) = usable(cx.settings, message) else {
            self.failure = Some(Dhcp6Failure::NoLease);
            return Dhcp6Step::ignored("no_lease");
        };
        let preference = message.preference.unwrap_or(0);
        if self.server.is_none() || preference > self.preference {
            (self.server, self.preference) = (Some(server.into()), preference);
            (self.address, self.prefix) = (leases.address(), leases.prefix());
        }
        // A preference of 255 ends the wait for better offers; after the first retransmission, any
        // offer does.
        if cx.settings.collect && preference < 255 && self.tries <= 1 {
            return Dhcp6Step::default();
        }
        self.request(cx)
    }

    fn request(&mut self, cx: &Dhcp6Context<'_>) -> Dhcp6Step {
        let event = Dhcp6Event::Advertised(cx.now.saturating_sub(self.began));
        self.enter(Dhcp6State::Requesting, cx);
        Dhcp6Step { send: Some(self.transmit(cx)), event: Some(event) }
    }

    /// A reply to Request, or to Solicit with rapid commit (section 18.2.10.1).
    fn replied(&mut self, cx: &Dhcp6Context<'_>, message: &Message6, server: &[u8]) -> Dhcp6Step {
        let of = |one: &Option<Association>| one.as_ref().and_then(|one| one.status);
        let all = [message.status, of(&message.addresses), of(&message.prefixes)];
        if all.contains(&Some(status::NOT_ON_LINK)) {
            let step = self.again(cx, Dhcp6Failure::Refused);
            return Dhcp6Step { event: Some(Dhcp6Event::Refused), ..step };
        }
        let Some(leases) = usable(cx.settings, message) else {
            let none = [Some(status::NO_ADDRESSES), Some(status::NO_PREFIX)];
            if all.iter().any(|status| none.contains(status)) {
                let step = self.again(cx, Dhcp6Failure::NoLease);
                return Dhcp6Step { event: Some(Dhcp6Event::Refused), ..step };
            }
            // The retransmission is the pause that the RFC wants.
            return Dhcp6Step::ignored("no_lease");
        };
        self.server = Some(server.into());
        self.take(cx.now, &leases);
        self.retry = None;
        if cx.check && self.address.is_some() {
            self.state = Dhcp6State::Checking;
            return Dhcp6Step::event(Dhcp6Event::Acknowledged);
        }
        self.bind(cx)
    }

    fn bind(&mut self, cx: &Dhcp6Context<'_>) -> Dhcp6Step {
        (self.state, self.retry) = (Dhcp6State::Bound, None);
        (self.restarts, self.failure) = (0, None);
        self.flaps = cx.settings.flap.map(|interval| cx.now + interval);
        Dhcp6Step::event(Dhcp6Event::Bound(cx.now.saturating_sub(self.began)))
    }

    /// A reply to Renew or Rebind.
    fn renewed(&mut self, cx: &Dhcp6Context<'_>, message: &Message6, server: &[u8]) -> Dhcp6Step {
        let of = |one: &Option<Association>| one.as_ref().and_then(|one| one.status);
        let all = [message.status, of(&message.addresses), of(&message.prefixes)];
        if all.contains(&Some(status::NO_BINDING)) {
            // The server has lost the binding, and gives it again if it is requested.
            self.server = Some(server.into());
            self.enter(Dhcp6State::Requesting, cx);
            let send = Some(self.transmit(cx));
            return Dhcp6Step { send, event: Some(Dhcp6Event::Refused) };
        }
        let leases = match usable(cx.settings, message) {
            Some(leases) => leases,
            None if self.is_withdrawn(message) => return self.begin_again(cx),
            None => return Dhcp6Step::ignored("no_lease"),
        };
        let before = (self.address, self.prefix);
        if before != (leases.address(), leases.prefix()) {
            // The host's address would change without an examination; it begins again instead.
            return self.begin_again(cx);
        }
        self.server = Some(server.into());
        self.take(cx.now, &leases);
        (self.state, self.retry) = (Dhcp6State::Bound, None);
        Dhcp6Step::event(match self.moved {
            true => Dhcp6Event::Confirmed(cx.now.saturating_sub(self.requested)),
            false => Dhcp6Event::Renewed,
        })
    }

    /// Whether a server ends one of the leases at once, by a valid lifetime of 0 (section
    /// 18.2.10.1).
    fn is_withdrawn(&self, message: &Message6) -> bool {
        let ends = |association: &Option<Association>, own: Option<(Ipv6Addr, u8)>| {
            let of = association.iter().filter(|one| one.id == IAID);
            of.flat_map(|one| &one.leases)
                .any(|lease| lease.valid == 0 && own == Some((lease.address, lease.length)))
        };
        ends(&message.addresses, self.address.map(|address| (address, 128)))
            || ends(&message.prefixes, self.prefix)
    }

    /// A server no longer has the leases of the client, which begins again with Solicit.
    fn begin_again(&mut self, cx: &Dhcp6Context<'_>) -> Dhcp6Step {
        self.began = cx.now;
        let step = self.again(cx, Dhcp6Failure::Refused);
        Dhcp6Step { event: Some(Dhcp6Event::Refused), ..step }
    }

    /// Takes over leases and their times. A T1 or T2 of 0 is the client's choice (section 21.4): 0.5
    /// and 0.8 of the shortest preferred lifetime.
    fn take(&mut self, now: Nanos, leases: &Leases) {
        (self.address, self.prefix) = (leases.address(), leases.prefix());
        let all = || [leases.of_address, leases.of_prefix].into_iter().flatten();
        let preferred = all().map(|lease| lease.preferred).min().unwrap_or(0);
        let valid = all().map(|lease| lease.valid).min().unwrap_or(0);
        let share = |part: u64| match preferred {
            INFINITE => INFINITE,
            // At least a second, so that no server can make a client send as fast as it answers.
            _ => (u64::from(preferred) * part / 10).max(1) as u32,
        };
        let of = |given: u32, part| if given == 0 { share(part) } else { given };
        let (t1, t2) = (of(leases.t1, 5), of(leases.t2, 8));
        self.renews = after(now, t1.min(t2));
        self.rebinds = after(now, t2);
        self.deprecates = after(now, preferred);
        (self.expires, self.valid) = (after(now, valid), valid);
        self.is_preferred = preferred > 0;
    }

    /// Begins with a message of another kind.
    fn enter(&mut self, state: Dhcp6State, cx: &Dhcp6Context<'_>) {
        (self.state, self.tries, self.interval) = (state, 0, Nanos::ZERO);
        (self.requested, self.retry, self.moved) = (cx.now, None, false);
        self.xid = cx.chance as u32 & 0x00ff_ffff;
    }

    /// Begins again with Solicit, or fails.
    fn again(&mut self, cx: &Dhcp6Context<'_>, why: Dhcp6Failure) -> Dhcp6Step {
        if self.restarts >= cx.settings.timers.restarts {
            self.fail(why);
            return Dhcp6Step::default();
        }
        self.restarts += 1;
        self.failure = Some(why);
        (self.server, self.address, self.prefix, self.preference) = (None, None, None, 0);
        self.enter(Dhcp6State::Soliciting, cx);
        Dhcp6Step { send: Some(self.transmit(cx)), event: None }
    }

    fn fail(&mut self, why: Dhcp6Failure) {
        (self.state, self.failure, self.retry) = (Dhcp6State::Failed, Some(why), None);
        (self.address, self.prefix) = (None, None);
    }

    /// The retransmission of the current message.
    fn rules(&self, settings: &Dhcp6Settings) -> Retransmission {
        let timers = &settings.timers;
        let limited = |rules: Retransmission, seconds: Option<u32>| Retransmission {
            longest: seconds.map_or(rules.longest, |seconds| after(Nanos::ZERO, seconds)),
            ..rules
        };
        match self.state {
            Dhcp6State::Soliciting => limited(timers.solicit, self.sol_max_rt),
            Dhcp6State::Informing => limited(timers.information, self.inf_max_rt),
            Dhcp6State::Confirming => timers.confirm,
            Dhcp6State::Rebinding if self.moved => timers.confirm,
            Dhcp6State::Renewing => timers.renew,
            Dhcp6State::Rebinding => timers.rebind,
            Dhcp6State::Releasing => timers.release,
            Dhcp6State::Declining => timers.decline,
            _ => timers.request,
        }
    }

    /// Makes the message of the current state, and sets the timer for the next one.
    fn transmit(&mut self, cx: &Dhcp6Context<'_>) -> Request6 {
        // The first message of an exchange has an elapsed time of 0 (section 21.9).
        if self.tries == 0 {
            self.requested = cx.now;
        }
        let rules = self.rules(cx.settings);
        let chance = cx.chance.rotate_left(32);
        let positive = self.state == Dhcp6State::Soliciting;
        self.interval = rules.next(self.interval, chance, positive);
        let next = cx.now + self.interval;
        self.retry = Some(match rules.duration.0 {
            0 => next,
            duration => next.min(self.requested + Nanos(duration)),
        });
        let elapsed = cx.now.saturating_sub(self.requested).0 / 10_000_000;
        let message = Message6 {
            client: Some(duid_of(cx.mac)),
            elapsed: Some(u16::try_from(elapsed).unwrap_or(u16::MAX)),
            ..self.message(cx.settings)
        };
        let retransmission = self.tries > 0;
        self.tries = self.tries.saturating_add(1);
        Request6 { message, retransmission }
    }

    fn message(&self, settings: &Dhcp6Settings) -> Message6 {
        let (kind, to_server) = match self.state {
            Dhcp6State::Soliciting => (Kind6::Solicit, false),
            Dhcp6State::Informing => (Kind6::InformationRequest, false),
            Dhcp6State::Confirming => (Kind6::Confirm, false),
            Dhcp6State::Rebinding => (Kind6::Rebind, false),
            Dhcp6State::Renewing => (Kind6::Renew, true),
            Dhcp6State::Releasing => (Kind6::Release, true),
            Dhcp6State::Declining => (Kind6::Decline, true),
            _ => (Kind6::Request, true),
        };
        let association = |lease: Option<(Ipv6Addr, u8)>| Association {
            id: IAID,
            // The lifetimes that a client wants are not a server's concern (section 21.6).
            leases: lease
                .map(|(address, length)| Lease6 { address, length, preferred: 0, valid: 0 })
                .into_iter()
                .collect(),
            ..Association::default()
        };
        let hint = settings.prefix.filter(|length| *length > 0);
        let hint = hint.map(|length| (Ipv6Addr::UNSPECIFIED, length));
        // A client declines and confirms addresses alone, and releases the leases that it has.
        let (addresses, prefixes) = match self.state {
            Dhcp6State::Informing => (false, false),
            Dhcp6State::Confirming | Dhcp6State::Declining => (true, false),
            Dhcp6State::Releasing => (self.address.is_some(), self.prefix.is_some()),
            _ => (settings.address, settings.prefix.is_some()),
        };
        Message6 {
            server: self.server.clone().filter(|_| to_server),
            addresses: addresses.then(|| association(self.address.map(|one| (one, 128)))),
            prefixes: prefixes.then(|| association(self.prefix.or(hint))),
            rapid_commit: kind == Kind6::Solicit && settings.rapid_commit,
            ..Message6::new(kind, self.xid)
        }
    }
}

/// The usable leases of a message.
#[derive(Clone, Copy, Debug)]
struct Leases {
    of_address: Option<Lease6>,
    of_prefix: Option<Lease6>,
    /// The earlier ones of both associations; 0: unspecified.
    t1: u32,
    t2: u32,
}

impl Leases {
    fn address(&self) -> Option<Ipv6Addr> {
        self.of_address.map(|lease| lease.address)
    }

    fn prefix(&self) -> Option<(Ipv6Addr, u8)> {
        self.of_prefix.map(|lease| (lease.address, lease.length))
    }
}

/// The leases that the client wants; `None`: there is none. One of two is better than none.
fn usable(settings: &Dhcp6Settings, message: &Message6) -> Option<Leases> {
    let chosen = |association: &Option<Association>, is_wanted: bool| {
        let one = association.as_ref().filter(|one| is_wanted && one.id == IAID)?;
        // A client must discard an association whose T1 is after its T2.
        if one.t1 > one.t2 && one.t2 > 0 {
            return None;
        }
        let fits = |lease: &&Lease6| {
            lease.valid > 0
                && lease.preferred <= lease.valid
                && is_unicast(lease.address)
                && (1..=128).contains(&lease.length)
        };
        Some((*one.leases.iter().find(fits)?, one.t1, one.t2))
    };
    let addresses = chosen(&message.addresses, settings.address);
    let prefixes = chosen(&message.prefixes, settings.prefix.is_some());
    if addresses.is_none() && prefixes.is_none() {
        return None;
    }
    let earliest = |part: fn(&(Lease6, u32, u32)) -> u32| {
        let given = [&addresses, &prefixes].into_iter().flatten().map(part);
        given.filter(|seconds| *seconds > 0).min().unwrap_or(0)
    };
    Some(Leases {
        of_address: addresses.map(|one| one.0),
        of_prefix: prefixes.map(|one| one.0),
        t1: earliest(|one| one.1),
        t2: earliest(|one| one.2),
    })
}

fn is_unicast(address: Ipv6Addr) -> bool {
    let not_unicast = address.is_unspecified() || address.is_loopback() || address.is_multicast();
    !not_unicast && !address.is_unicast_link_local()
}

fn after(now: Nanos, seconds: u32) -> Nanos {
    match seconds {
        INFINITE => FOREVER,
        _ => now + Nanos(u64::from(seconds) * Nanos::SECOND.0),
    }
}

#[cfg(test)]
mod tests;

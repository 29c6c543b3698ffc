//! A host of PPPoE (RFC 2516 section 5): the discovery of an access concentrator, and a session of
//! PPP with it.

use std::net::Ipv4Addr;

use squall_units::{MacAddr, Nanos};

use crate::{
    PADI, PADO, PADR, PADS, PADT, PPP_IPV4, PPP_IPV6, PPPOE_DISCOVERY, PPPOE_SESSION, PppContext,
    PppEvent, PppLink, PppRole, PppSettings, PppStep, PppoePacket, PppoeTags, ppp_word,
    pppoe_message::{AC_COOKIE, HOST_UNIQ, RELAY_SESSION_ID, SERVICE_NAME, push_tag},
};

const BROADCAST: MacAddr = MacAddr([0xff; 6]);
/// Octets of a cookie or of a relay's tag that are stored and sent back at most.
const LONGEST_TAG: usize = 512;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PppoeClientSettings {
    /// Service-Name; empty: any.
    pub service: String,
    /// AC-Name of the only access concentrator whose offers count; empty: any.
    pub ac_name: String,
    /// Time until a PADI or PADR is repeated for the first time; it doubles each time (section 5.1
    /// has no figure), up to `longest`.
    pub first: Nanos,
    pub longest: Nanos,
    /// PADIs, and PADRs to one access concentrator, without an answer, at least 1.
    pub tries: u8,
    /// Times that the host begins again in a row, after a refusal or the end of its session.
    pub restarts: u8,
    pub ppp: PppSettings,
}

impl Default for PppoeClientSettings {
    fn default() -> Self {
        Self {
            service: String::new(),
            ac_name: String::new(),
            first: Nanos(5_000_000_000),
            longest: Nanos(60_000_000_000),
            tries: 5,
            restarts: 3,
            ppp: PppSettings::default(),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PppoeState {
    #[default]
    Init,
    /// A PADI was sent.
    Discovery,
    /// A PADR was sent.
    Request,
    /// PPP is negotiated.
    Session,
    Open,
    /// PPP is terminated, because the host ends.
    Terminating,
    /// The host begins again after a pause.
    Waiting,
    /// The session was ended by the host.
    Closed,
    Failed,
}

impl PppoeState {
    pub const ALL: [(Self, &'static str); 9] = [
        (Self::Init, "init"),
        (Self::Discovery, "discovery"),
        (Self::Request, "request"),
        (Self::Session, "session"),
        (Self::Open, "open"),
        (Self::Terminating, "terminating"),
        (Self::Waiting, "waiting"),
        (Self::Closed, "closed"),
        (Self::Failed, "failed"),
    ];
}

/// Arguments of each step.
#[derive(Clone, Copy, Debug)]
pub struct PppoeContext<'a> {
    pub now: Nanos,
    /// A random number.
    pub chance: u64,
    /// Number of the host, from 1.
    pub number: u32,
    pub settings: &'a PppoeClientSettings,
}

/// A frame to send, without its VLAN tags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PppoeFrame {
    pub to: MacAddr,
    /// The name for counters.
    pub word: &'static str,
    /// EtherType, and what follows it.
    pub kind: u16,
    pub octets: Vec<u8>,
    pub retransmission: bool,
}

impl PppoeFrame {
    pub(crate) fn discovery(to: MacAddr, code: u8, session: u16, tags: &[u8]) -> Self {
        let packet = PppoePacket { code, session, payload: tags };
        let mut octets = Vec::new();
        packet.write(&mut octets);
        let (word, kind) = (packet.word(), PPPOE_DISCOVERY);
        Self { to, word, kind, octets, retransmission: false }
    }

    /// A packet of PPP in a session.
    pub(crate) fn session(to: MacAddr, session: u16, protocol: u16, packet: &[u8]) -> Self {
        let payload = [&protocol.to_be_bytes(), packet].concat();
        let mut octets = Vec::new();
        PppoePacket { code: 0, session, payload: &payload }.write(&mut octets);
        let word = ppp_word(protocol, packet);
        Self { to, word, kind: PPPOE_SESSION, octets, retransmission: false }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PppoeEvent {
    /// The session has its number, this long after the first PADI.
    Session(Nanos),
    /// IPv4 can be used, this long after the first PADI, or in a session that negotiates again,
    /// after it no longer could.
    Up(Nanos),
    Up6,
    Down,
    /// The session has ended, for this reason.
    Ended(&'static str),
    /// The host has given up, for this reason.
    Failed(&'static str),
    Ignored(&'static str),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PppoeStep {
    pub send: Vec<PppoeFrame>,
    pub events: Vec<PppoeEvent>,
}

impl PppoeStep {
    /// The step of a received packet, which `handle` refuses with a reason or adds to the step.
    pub(crate) fn of_packet(handle: impl FnOnce(&mut Self) -> Result<(), &'static str>) -> Self {
        let mut step = Self::default();
        if let Err(reason) = handle(&mut step) {
            step.events.push(PppoeEvent::Ignored(reason));
        }
        step
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PppoeClient {
    state: PppoeState,
    due: Option<Nanos>,
    /// The last interval, and the messages sent in this state.
    interval: Nanos,
    sent: u8,
    restarts: u8,
    /// Host-Uniq of this attempt.
    uniq: u32,
    server: MacAddr,
    session: u16,
    cookie: Option<Box<[u8]>>,
    relay: Option<Box<[u8]>>,
    /// The first PADI of this attempt, or the begin of another negotiation in its session.
    begun: Nanos,
    link: PppLink,
}

impl PppoeClient {
    pub fn state(&self) -> PppoeState {
        self.state
    }

    pub fn due(&self) -> Option<Nanos> {
        self.due.into_iter().chain(self.link.due()).min()
    }

    /// The address that the server gave, and that of the server.
    pub fn addresses(&self) -> Option<(Ipv4Addr, Ipv4Addr)> {
        (self.state == PppoeState::Open && self.link.is_up()).then(|| self.link.addresses())
    }

    /// The MAC address of the server and the number of the session.
    pub fn session(&self) -> (MacAddr, u16) {
        (self.server, self.session)
    }

    pub fn link(&self) -> &PppLink {
        &self.link
    }

    /// Begins with the discovery.
    pub fn start(&mut self, cx: &PppoeContext<'_>) -> PppoeStep {
        *self = Self::default();
        let mut step = PppoeStep::default();
        self.discover(cx, &mut step);
        step
    }

    /// Runs the timers that are due.
    pub fn timer(&mut self, cx: &PppoeContext<'_>) -> PppoeStep {
        let mut step = PppoeStep::default();
        if self.due.is_some_and(|due| due <= cx.now) {
            self.due = None;
            let tries = cx.settings.tries.max(1);
            match self.state {
                PppoeState::Discovery if self.sent >= tries => self.fail("no_pado", &mut step),
                PppoeState::Discovery => self.send_padi(cx, &mut step),
                // Another concentrator may answer a new PADI (section 5.3).
                PppoeState::Request if self.sent >= tries => self.again(cx, "no_pads", &mut step),
                PppoeState::Request => self.send_padr(cx, &mut step),
                PppoeState::Waiting => self.discover(cx, &mut step),
                _ => {}
            }
        }
        if self.link.due().is_some_and(|due| due <= cx.now) {
            let of_link = self.link.timer(&ppp(cx));
            self.follow(cx, of_link, &mut step);
        }
        step
    }

    /// Handles a packet of the discovery from `from`.
    pub fn receive_discovery(
        &mut self,
        cx: &PppoeContext<'_>,
        from: MacAddr,
        octets: &[u8],
    ) -> PppoeStep {
        PppoeStep::of_packet(|step| self.discovery(cx, from, octets, step))
    }

    fn discovery(
        &mut self,
        cx: &PppoeContext<'_>,
        from: MacAddr,
        octets: &[u8],
        step: &mut PppoeStep,
    ) -> Result<(), &'static str> {
        let packet = PppoePacket::parse(octets)?;
        let tags = PppoeTags::parse(packet.payload)?;
        let is_own = tags.host_uniq == Some(&self.uniq.to_be_bytes()[..]);
        match (packet.code, self.state) {
            (PADO, PppoeState::Discovery) => {
                if !is_own {
                    return Err("wrong_host_uniq");
                }
                let (service, name) = (cx.settings.service.as_bytes(), &cx.settings.ac_name);
                if !service.is_empty() && !tags.services().any(|offered| offered == service) {
                    return Err("wrong_service");
                }
                if !name.is_empty() && tags.ac_name != Some(name.as_bytes()) {
                    return Err("wrong_ac_name");
                }
                if let Some(error) = tags.error {
                    return Err(error);
                }
                if packet.session != 0 {
                    return Err("wrong_session");
                }
                let stored = [tags.cookie, tags.relay];
                if stored.into_iter().flatten().any(|tag| tag.len() > LONGEST_TAG) {
                    return Err("giant_tag");
                }
                [self.cookie, self.relay] = stored.map(|tag| tag.map(Box::from));
                self.server = from;
                self.state = PppoeState::Request;
                (self.sent, self.interval) = (0, Nanos::ZERO);
                self.send_padr(cx, step);
            }
            (PADS, PppoeState::Request) => {
                if from != self.server {
                    return Err("wrong_server");
                }
                if !is_own {
                    return Err("wrong_host_uniq");
                }
                if tags.error.is_some() || packet.session == 0 {
                    self.again(cx, "refused", step);
                    return Ok(());
                }
                self.session = packet.session;
                self.state = PppoeState::Session;
                self.due = None;
                let after = cx.now.saturating_sub(self.begun);
                step.events.push(PppoeEvent::Session(after));
                let of_link = self.link.start(&ppp(cx));
                self.follow(cx, of_link, step);
            }
            (PADT, PppoeState::Session | PppoeState::Open | PppoeState::Terminating) => {
                if from != self.server || packet.session != self.session {
                    return Err("wrong_session");
                }
                // Nothing more may be sent in the session (section 5.5). Servers also end sessions so
                // after a refusal, whose reason says more.
                self.end_link(cx, self.link.reason().unwrap_or("padt"), step);
            }
            (PADO | PADS | PADT, _) => return Err("unexpected"),
            _ => return Err("not_for_hosts"),
        }
        Ok(())
    }

    /// Handles a packet of a session from `from`, unless it is one of IPv4 or IPv6, which the
    /// result then has.
    pub fn receive_session<'a>(
        &mut self,
        cx: &PppoeContext<'_>,
        from: MacAddr,
        octets: &'a [u8],
    ) -> (PppoeStep, Option<&'a [u8]>) {
        let mut step = PppoeStep::default();
        let mut carried = None;
        match self.of_session(from, octets) {
            Ok((PPP_IPV4, packet)) if self.link.is_up() => carried = Some(packet),
            Ok((PPP_IPV6, packet)) if self.link.is_up6() => carried = Some(packet),
            Ok((protocol, packet)) => {
                let of_link = self.link.receive(&ppp(cx), protocol, packet);
                self.follow(cx, of_link, &mut step);
            }
            Err(reason) => step.events.push(PppoeEvent::Ignored(reason)),
        }
        (step, carried)
    }

    fn of_session<'a>(
        &self,
        from: MacAddr,
        octets: &'a [u8],
    ) -> Result<(u16, &'a [u8]), &'static str> {
        let packet = PppoePacket::parse(octets)?;
        let state = self.state;
        if !matches!(state, PppoeState::Session | PppoeState::Open | PppoeState::Terminating) {
            return Err("unexpected");
        }
        if from != self.server || packet.session != self.session || packet.code != 0 {
            return Err("wrong_session");
        }
        let (protocol, rest) = packet.payload.split_first_chunk::<2>().ok_or("truncated")?;
        Ok((u16::from_be_bytes(*protocol), rest))
    }

    /// Begins to end the session. [`PppoeState::Closed`] follows when the server has confirmed it,
    /// or after the Terminate-Requests.
    pub fn stop(&mut self, cx: &PppoeContext<'_>) -> PppoeStep {
        let mut step = PppoeStep::default();
        self.due = None;
        match self.state {
            PppoeState::Session | PppoeState::Open => {
                self.state = PppoeState::Terminating;
                let of_link = self.link.terminate(&ppp(cx), "closed");
                self.follow(cx, of_link, &mut step);
            }
            // A host that never began, because its port is closed (802.1X), has nothing to end.
            PppoeState::Init | PppoeState::Failed | PppoeState::Terminating => {}
            _ => self.state = PppoeState::Closed,
        }
        step
    }

    fn discover(&mut self, cx: &PppoeContext<'_>, step: &mut PppoeStep) {
        (self.state, self.begun) = (PppoeState::Discovery, cx.now);
        (self.sent, self.interval, self.session) = (0, Nanos::ZERO, 0);
        (self.cookie, self.relay) = (None, None);
        self.uniq = (cx.chance >> 16) as u32;
        self.send_padi(cx, step);
    }

    fn send_padi(&mut self, cx: &PppoeContext<'_>, step: &mut PppoeStep) {
        let tags = self.tags(cx);
        self.send(cx, PppoeFrame::discovery(BROADCAST, PADI, 0, &tags), step);
    }

    fn send_padr(&mut self, cx: &PppoeContext<'_>, step: &mut PppoeStep) {
        let mut tags = self.tags(cx);
        for (kind, tag) in [(AC_COOKIE, &self.cookie), (RELAY_SESSION_ID, &self.relay)] {
            if let Some(tag) = tag {
                push_tag(&mut tags, kind, tag);
            }
        }
        self.send(cx, PppoeFrame::discovery(self.server, PADR, 0, &tags), step);
    }

    fn tags(&self, cx: &PppoeContext<'_>) -> Vec<u8> {
        let mut tags = Vec::new();
        push_tag(&mut tags, SERVICE_NAME, cx.settings.service.as_bytes());
        push_tag(&mut tags, HOST_UNIQ, &self.uniq.to_be_bytes());
        tags
    }

    fn send(&mut self, cx: &PppoeContext<'_>, frame: PppoeFrame, step: &mut PppoeStep) {
        let settings = cx.settings;
        self.interval = match self.sent {
            0 => settings.first,
            _ => Nanos(self.interval.0.saturating_mul(2)).min(settings.longest.max(settings.first)),
        };
        let retransmission = self.sent > 0;
        self.sent = self.sent.saturating_add(1);
        self.due = Some(cx.now + self.interval);
        step.send.push(PppoeFrame { retransmission, ..frame });
    }

    /// Takes over the packets and events of the link.
    fn follow(&mut self, cx: &PppoeContext<'_>, of_link: PppStep, step: &mut PppoeStep) {
        for (protocol, packet) in of_link.send {
            step.send.push(PppoeFrame::session(self.server, self.session, protocol, &packet));
        }
        for event in of_link.events {
            match event {
                PppEvent::Up => {
                    self.state = PppoeState::Open;
                    self.restarts = 0;
                    step.events.push(PppoeEvent::Up(cx.now.saturating_sub(self.begun)));
                }
                PppEvent::Up6 => step.events.push(PppoeEvent::Up6),
                PppEvent::Down => {
                    if self.state == PppoeState::Open {
                        (self.state, self.begun) = (PppoeState::Session, cx.now);
                    }
                    step.events.push(PppoeEvent::Down);
                }
                PppEvent::Ended(reason) => {
                    step.send.push(self.padt());
                    self.end_link(cx, reason, step);
                }
                PppEvent::Ignored(reason) => step.events.push(PppoeEvent::Ignored(reason)),
            }
        }
    }

    fn padt(&self) -> PppoeFrame {
        let mut tags = Vec::new();
        push_tag(&mut tags, HOST_UNIQ, &self.uniq.to_be_bytes());
        PppoeFrame::discovery(self.server, PADT, self.session, &tags)
    }

    /// The session is over.
    fn end_link(&mut self, cx: &PppoeContext<'_>, reason: &'static str, step: &mut PppoeStep) {
        if self.link.is_up() {
            step.events.push(PppoeEvent::Down);
        }
        self.link = PppLink::default();
        step.events.push(PppoeEvent::Ended(reason));
        if self.state == PppoeState::Terminating {
            (self.state, self.due) = (PppoeState::Closed, None);
        } else {
            self.again(cx, reason, step);
        }
    }

    /// Begins again after a pause, unless that was tried too often.
    fn again(&mut self, cx: &PppoeContext<'_>, reason: &'static str, step: &mut PppoeStep) {
        if self.restarts >= cx.settings.restarts {
            return self.fail(reason, step);
        }
        // The pause grows as that between two PADIs.
        let pause = cx.settings.first.0.saturating_mul(1 << self.restarts.min(16));
        self.restarts += 1;
        self.state = PppoeState::Waiting;
        self.due = Some(cx.now + Nanos(pause).min(cx.settings.longest.max(cx.settings.first)));
    }

    fn fail(&mut self, reason: &'static str, step: &mut PppoeStep) {
        *self = Self { state: PppoeState::Failed, ..Self::default() };
        step.events.push(PppoeEvent::Failed(reason));
    }
}

fn ppp<'a>(cx: &PppoeContext<'a>) -> PppContext<'a> {
    let (settings, role) = (&cx.settings.ppp, PppRole::Client);
    PppContext { now: cx.now, chance: cx.chance, number: cx.number, role, settings }
}

#[cfg(test)]
mod tests;

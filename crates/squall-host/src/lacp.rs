//! Link aggregation: the Link Aggregation Control Protocol of IEEE 802.1AX-2014 section 6.4 for one
//! port, with its receive, periodic, selection, mux and transmit machines, and the Marker Protocol's
//! responder (section 6.5).
//!
//! Ports with the same system and key form an aggregate if their partner is the same one. Each port
//! has an aggregator of its own, so that ports with different partners are in different aggregates.

use squall_units::{MacAddr, Nanos};

/// EtherType and group address of the slow protocols (annex 57A of IEEE 802.3).
pub const SLOW_PROTOCOLS: u16 = 0x8809;
pub const SLOW_GROUP: MacAddr = MacAddr([1, 0x80, 0xc2, 0, 0, 2]);

const LACP: u8 = 1;
const MARKER: u8 = 2;
const MARKER_REQUEST: u8 = 1;
const MARKER_RESPONSE: u8 = 2;
/// Octets of an LACPDU and of a Marker PDU after the EtherType.
const PDU_LEN: usize = 110;

/// Bits of the state (section 6.4.2.3 m).
pub const ACTIVITY: u8 = 1;
pub const SHORT_TIMEOUT: u8 = 2;
pub const AGGREGATION: u8 = 4;
pub const SYNCHRONIZATION: u8 = 8;
pub const COLLECTING: u8 = 16;
pub const DISTRIBUTING: u8 = 32;
pub const DEFAULTED: u8 = 64;
pub const EXPIRED: u8 = 128;

/// The names of the bits, lowest first.
pub const STATE_WORDS: [&str; 8] = [
    "activity",
    "short_timeout",
    "aggregation",
    "synchronization",
    "collecting",
    "distributing",
    "defaulted",
    "expired",
];

/// The announcement of one end about its port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LacpInfo {
    pub system_priority: u16,
    pub system: MacAddr,
    pub key: u16,
    pub port_priority: u16,
    pub port: u16,
    pub state: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LacpSettings {
    /// The port, with the bits [`ACTIVITY`], [`SHORT_TIMEOUT`] and [`AGGREGATION`] of its state.
    pub actor: LacpInfo,
    /// Intervals at which LACPDUs are sent (section 6.4.4): 1 s if the partner has the short timeout,
    /// otherwise 30 s.
    pub fast_periodic: Nanos,
    pub slow_periodic: Nanos,
    /// Times after which what the partner announced expires: 3 s and 90 s.
    pub short_timeout: Nanos,
    pub long_timeout: Nanos,
    /// Time for further ports of the aggregate before a selected port attaches: 2 s.
    pub aggregate_wait: Nanos,
    /// Time within which a port and its partner have to agree (churn detection): 60 s.
    pub churn: Nanos,
}

impl Default for LacpSettings {
    fn default() -> Self {
        let actor = LacpInfo {
            system_priority: 0x8000,
            system: MacAddr::default(),
            key: 1,
            port_priority: 0x8000,
            port: 1,
            state: ACTIVITY | SHORT_TIMEOUT | AGGREGATION,
        };
        Self {
            actor,
            fast_periodic: Nanos(1_000_000_000),
            slow_periodic: Nanos(30_000_000_000),
            short_timeout: Nanos(3_000_000_000),
            long_timeout: Nanos(90_000_000_000),
            aggregate_wait: Nanos(2_000_000_000),
            churn: Nanos(60_000_000_000),
        }
    }
}

/// States of the receive machine (section 6.4.12).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LacpReceive {
    #[default]
    Initialize,
    Expired,
    Defaulted,
    Current,
}

impl LacpReceive {
    pub fn word(self) -> &'static str {
        match self {
            Self::Initialize => "initialize",
            Self::Expired => "expired",
            Self::Defaulted => "defaulted",
            Self::Current => "current",
        }
    }
}

/// States of the mux machine with independent control (section 6.4.15).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LacpMux {
    #[default]
    Detached,
    Waiting,
    Attached,
    Collecting,
    Distributing,
}

impl LacpMux {
    pub fn word(self) -> &'static str {
        match self {
            Self::Detached => "detached",
            Self::Waiting => "waiting",
            Self::Attached => "attached",
            Self::Collecting => "collecting",
            Self::Distributing => "distributing",
        }
    }
}

/// Changes in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LacpEvent {
    /// Frames may be sent over the link, this long after the start or after it last went down.
    Up(Nanos),
    /// They no longer may.
    Down,
    /// The partner's announcements have expired.
    Expired,
    /// There is no partner.
    Defaulted,
    /// The end and its partner, or these the other way around, do not agree within
    /// [`LacpSettings::churn`].
    ActorChurn,
    PartnerChurn,
}

/// PDUs to send, with their names, and changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LacpStep {
    pub send: Vec<(&'static str, Vec<u8>)>,
    pub events: Vec<LacpEvent>,
    /// Why the received PDU was ignored.
    pub ignored: Option<&'static str>,
}

/// One port of an aggregate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LacpPort {
    receive: LacpReceive,
    mux: LacpMux,
    selected: bool,
    /// The port is kept out of its aggregate ([`LacpPort::set_standby`]).
    standby: bool,
    actor: LacpInfo,
    partner: LacpInfo,
    /// `NTT`: an LACPDU has to be sent.
    need_to_transmit: bool,
    /// `current_while_timer`, `periodic_timer` and `wait_while_timer`.
    current: Option<Nanos>,
    periodic: Option<Nanos>,
    wait: Option<Nanos>,
    /// FAST_PERIODIC, not SLOW_PERIODIC.
    is_fast: bool,
    /// Churn timers of the actor and of the partner, and whether these are in churn.
    churn: [Option<Nanos>; 2],
    churning: [bool; 2],
    /// The last transmissions, oldest first.
    sent: [Option<Nanos>; 3],
    /// Begin of the time without a link.
    down: Nanos,
    is_started: bool,
}

impl LacpPort {
    pub fn receive_state(&self) -> LacpReceive {
        self.receive
    }

    pub fn mux_state(&self) -> LacpMux {
        self.mux
    }

    pub fn is_selected(&self) -> bool {
        self.selected
    }

    /// Own announcements, and those of the partner.
    pub fn ends(&self) -> (&LacpInfo, &LacpInfo) {
        (&self.actor, &self.partner)
    }

    /// Whether frames may be sent over the link.
    pub fn is_up(&self) -> bool {
        self.is_started && self.mux == LacpMux::Distributing
    }

    pub fn due(&self) -> Option<Nanos> {
        let timers = [self.current, self.periodic, self.wait, self.churn[0], self.churn[1]];
        let limited = self.need_to_transmit.then_some(self.sent[0].unwrap_or(Nanos::ZERO));
        timers.into_iter().flatten().chain(limited).min()
    }

    /// BEGIN: the port is enabled.
    pub fn start(&mut self, now: Nanos, settings: &LacpSettings) -> LacpStep {
        let mut step = LacpStep::default();
        let bits = ACTIVITY | SHORT_TIMEOUT | AGGREGATION;
        let state = settings.actor.state & bits;
        *self = Self {
            actor: LacpInfo { state, ..settings.actor },
            partner: default_partner(),
            down: now,
            is_started: true,
            standby: self.standby,
            ..Self::default()
        };
        for churn in &mut self.churn {
            *churn = Some(now + settings.churn);
        }
        // INITIALIZE and PORT_DISABLED lead to EXPIRED once the port is enabled.
        self.expire(now, settings);
        self.settle(now, settings, &mut step);
        step
    }

    /// Runs the timers that are due.
    pub fn timer(&mut self, now: Nanos, settings: &LacpSettings) -> LacpStep {
        let mut step = LacpStep::default();
        if !self.is_started {
            return step;
        }
        if self.current.take_if(|due| *due <= now).is_some() {
            match self.receive {
                LacpReceive::Current => {
                    step.events.push(LacpEvent::Expired);
                    self.expire(now, settings);
                }
                _ => self.assume_no_partner(&mut step),
            }
        }
        if self.periodic.take_if(|due| *due <= now).is_some() {
            // PERIODIC_TX.
            self.need_to_transmit = true;
        }
        for (end, event) in [LacpEvent::ActorChurn, LacpEvent::PartnerChurn].into_iter().enumerate()
        {
            if self.churn[end].take_if(|due| *due <= now).is_some() {
                self.churning[end] = true;
                step.events.push(event);
            }
        }
        self.settle(now, settings, &mut step);
        step
    }

    /// Handles what follows the Ethernet header of a frame of a slow protocol.
    pub fn receive(&mut self, now: Nanos, octets: &[u8], settings: &LacpSettings) -> LacpStep {
        let mut step = LacpStep::default();
        if !self.is_started {
            step.ignored = Some("unexpected");
            return step;
        }
        if octets.first() == Some(&MARKER) {
            match marker_response(octets) {
                Ok(response) => step.send.push(("marker_response", response)),
                Err(reason) => step.ignored = Some(reason),
            }
            return step;
        }
        match parse(octets) {
            Ok((actor, _))
                if actor.system == self.actor.system && actor.port == self.actor.port =>
            {
                step.ignored = Some("looped_back");
            }
            Ok((actor, partner)) => {
                self.current_pdu(now, &actor, &partner, settings);
                self.settle(now, settings, &mut step);
            }
            Err(reason) => step.ignored = Some(reason),
        }
        step
    }

    /// Keeps the port out of its aggregate, or lets it back in. A port on standby still announces
    /// itself, but not as in sync (`STANDBY` of section 6.4.8). This outlasts a stop and a start.
    pub fn set_standby(&mut self, now: Nanos, standby: bool, settings: &LacpSettings) -> LacpStep {
        let mut step = LacpStep::default();
        self.standby = standby;
        if self.is_started {
            self.selected &= !standby;
            self.settle(now, settings, &mut step);
        }
        step
    }

    /// The port is disabled. Nothing is sent: the partner finds out by its timeout. The states stay
    /// those of the end, because the report of the run has them.
    pub fn stop(&mut self) {
        let Self { receive, mux, selected, standby, actor, partner, .. } = *self;
        *self = Self { receive, mux, selected, standby, actor, partner, ..Self::default() };
    }

    /// EXPIRED: the partner has a short time to announce itself.
    fn expire(&mut self, now: Nanos, settings: &LacpSettings) {
        self.receive = LacpReceive::Expired;
        self.partner.state &= !SYNCHRONIZATION;
        self.partner.state |= SHORT_TIMEOUT;
        self.actor.state |= EXPIRED;
        self.current = Some(now + settings.short_timeout);
    }

    /// DEFAULTED: update_Default_Selected, recordDefault.
    fn assume_no_partner(&mut self, step: &mut LacpStep) {
        self.receive = LacpReceive::Defaulted;
        let default = default_partner();
        if !same_link(&self.partner, &default) {
            self.selected = false;
        }
        self.partner = default;
        self.actor.state = self.actor.state & !EXPIRED | DEFAULTED;
        step.events.push(LacpEvent::Defaulted);
    }

    /// CURRENT: update_Selected, update_NTT, recordPDU (section 6.4.9).
    fn current_pdu(
        &mut self,
        now: Nanos,
        actor: &LacpInfo,
        partner: &LacpInfo,
        settings: &LacpSettings,
    ) {
        if !same_link(actor, &self.partner) {
            self.selected = false;
        }
        let bits = ACTIVITY | SHORT_TIMEOUT | SYNCHRONIZATION | AGGREGATION;
        let knows = |own: &LacpInfo| {
            let of = |one: &LacpInfo| LacpInfo { state: one.state & bits, ..*one };
            of(partner) == of(own)
        };
        self.need_to_transmit |= !knows(&self.actor);
        // matched: the partner knows this port, or is individual, and will keep the link active.
        let own = LacpInfo { state: self.actor.state & AGGREGATION, ..self.actor };
        let seen = LacpInfo { state: partner.state & AGGREGATION, ..*partner };
        let matched = seen == own || actor.state & AGGREGATION == 0;
        let active = actor.state & ACTIVITY != 0
            || self.actor.state & ACTIVITY != 0 && partner.state & ACTIVITY != 0;
        self.partner = *actor;
        if !(matched && active && actor.state & SYNCHRONIZATION != 0) {
            self.partner.state &= !SYNCHRONIZATION;
        }
        self.actor.state &= !(DEFAULTED | EXPIRED);
        self.receive = LacpReceive::Current;
        let is_short = self.actor.state & SHORT_TIMEOUT != 0;
        let timeout = if is_short { settings.short_timeout } else { settings.long_timeout };
        self.current = Some(now + timeout);
    }

    /// Selection, mux, periodic and transmit machines, after a change.
    fn settle(&mut self, now: Nanos, settings: &LacpSettings, step: &mut LacpStep) {
        while self.step_mux(now, settings, step) {}
        // Each port has an aggregator, so that any partner is selected (section 6.4.14.2), as soon
        // as the port is free of the one before.
        let is_known = matches!(self.receive, LacpReceive::Current | LacpReceive::Defaulted);
        if !self.selected && !self.standby && self.mux == LacpMux::Detached && is_known {
            self.selected = true;
            while self.step_mux(now, settings, step) {}
        }
        self.update_churn(now, settings);
        self.update_periodic(now, settings);
        self.transmit(now, settings, step);
    }

    /// One transition of the mux machine. Returns whether there was one.
    fn step_mux(&mut self, now: Nanos, settings: &LacpSettings, step: &mut LacpStep) -> bool {
        let synchronized = self.partner.state & SYNCHRONIZATION != 0;
        let collects = self.partner.state & COLLECTING != 0;
        let next = match self.mux {
            LacpMux::Detached if self.selected => LacpMux::Waiting,
            LacpMux::Waiting if !self.selected => LacpMux::Detached,
            LacpMux::Waiting if self.wait.is_some_and(|due| due <= now) => LacpMux::Attached,
            LacpMux::Attached if !self.selected => LacpMux::Detached,
            LacpMux::Attached if synchronized => LacpMux::Collecting,
            LacpMux::Collecting if !self.selected || !synchronized => LacpMux::Attached,
            LacpMux::Collecting if collects => LacpMux::Distributing,
            LacpMux::Distributing if !self.selected || !synchronized || !collects => {
                LacpMux::Collecting
            }
            _ => return false,
        };
        if self.mux == LacpMux::Distributing {
            self.down = now;
            step.events.push(LacpEvent::Down);
        }
        self.mux = next;
        let before = self.actor.state;
        let bits = SYNCHRONIZATION | COLLECTING | DISTRIBUTING;
        self.actor.state &= !bits;
        self.wait = None;
        match next {
            LacpMux::Detached => {}
            LacpMux::Waiting => self.wait = Some(now + settings.aggregate_wait),
            LacpMux::Attached => self.actor.state |= SYNCHRONIZATION,
            LacpMux::Collecting => self.actor.state |= SYNCHRONIZATION | COLLECTING,
            LacpMux::Distributing => {
                self.actor.state |= bits;
                step.events.push(LacpEvent::Up(now.saturating_sub(self.down)));
            }
        }
        self.need_to_transmit |= self.actor.state != before;
        true
    }

    /// Churn detection (section 6.4.17): each end has to be in sync.
    fn update_churn(&mut self, now: Nanos, settings: &LacpSettings) {
        for (end, state) in [self.actor.state, self.partner.state].into_iter().enumerate() {
            if state & SYNCHRONIZATION != 0 {
                (self.churn[end], self.churning[end]) = (None, false);
            } else if self.churn[end].is_none() && !self.churning[end] {
                self.churn[end] = Some(now + settings.churn);
            }
        }
    }

    /// The periodic machine (section 6.4.13).
    fn update_periodic(&mut self, now: Nanos, settings: &LacpSettings) {
        let active = (self.actor.state | self.partner.state) & ACTIVITY != 0;
        if !active {
            self.periodic = None;
            return;
        }
        let is_fast = self.partner.state & SHORT_TIMEOUT != 0;
        let interval = if is_fast { settings.fast_periodic } else { settings.slow_periodic };
        let changes = std::mem::replace(&mut self.is_fast, is_fast) != is_fast;
        if self.periodic.is_none() || changes {
            // SLOW_PERIODIC leads to PERIODIC_TX when the partner has the short timeout, because
            // its announcements would expire within the slow interval.
            self.need_to_transmit |= self.periodic.is_some() && is_fast;
            self.periodic = Some(now + interval);
        }
    }

    /// The transmit machine (section 6.4.16): three LACPDUs at most in a fast interval.
    fn transmit(&mut self, now: Nanos, settings: &LacpSettings, step: &mut LacpStep) {
        let active = (self.actor.state | self.partner.state) & ACTIVITY != 0;
        if !active {
            self.need_to_transmit = false;
        }
        if !self.need_to_transmit || self.sent[0].is_some_and(|due| due > now) {
            return;
        }
        self.need_to_transmit = false;
        // Each place has the time from which on its transmission no longer counts.
        self.sent = [self.sent[1], self.sent[2], Some(now + settings.fast_periodic)];
        step.send.push(("lacpdu", write(&self.actor, &self.partner)));
    }
}

/// `Partner_Admin`: the assumption about a partner that does not speak LACP. Its link is individual.
fn default_partner() -> LacpInfo {
    LacpInfo::default()
}

/// Whether a port has the same partner as before (update_Selected).
fn same_link(a: &LacpInfo, b: &LacpInfo) -> bool {
    let of = |one: &LacpInfo| LacpInfo { state: one.state & AGGREGATION, ..*one };
    of(a) == of(b)
}

/// An LACPDU after the EtherType (section 6.4.2.3).
pub fn write(actor: &LacpInfo, partner: &LacpInfo) -> Vec<u8> {
    let mut out = vec![LACP, 1];
    for (kind, info) in [(1, actor), (2, partner)] {
        out.extend([kind, 20]);
        out.extend_from_slice(&info.system_priority.to_be_bytes());
        out.extend_from_slice(&info.system.0);
        out.extend_from_slice(&info.key.to_be_bytes());
        out.extend_from_slice(&info.port_priority.to_be_bytes());
        out.extend_from_slice(&info.port.to_be_bytes());
        out.extend([info.state, 0, 0, 0]);
    }
    // Collector information without a delay, and the terminator.
    out.extend([3, 16]);
    out.resize(PDU_LEN, 0);
    out
}

/// Parses an LACPDU. Returns what its sender announces about its own port and about this one.
///
/// # Errors
/// The reason for which the PDU is ignored. Versions and reserved fields are not examined
/// (section 6.4.2.3).
pub fn parse(octets: &[u8]) -> Result<(LacpInfo, LacpInfo), &'static str> {
    if *octets.first().ok_or("truncated")? != LACP {
        return Err("other_protocol");
    }
    let octets = octets.get(..PDU_LEN).ok_or("truncated")?;
    let info = |at: usize, kind: u8| {
        let of = &octets[at..at + 20];
        if of[..2] != [kind, 20] {
            return Err("bad_tlv");
        }
        let word = |at: usize| u16::from_be_bytes([of[at], of[at + 1]]);
        let system = of[4..].first_chunk::<6>().ok_or("truncated")?;
        Ok(LacpInfo {
            system_priority: word(2),
            system: MacAddr(*system),
            key: word(10),
            port_priority: word(12),
            port: word(14),
            state: of[16],
        })
    };
    let (actor, partner) = (info(2, 1)?, info(22, 2)?);
    if octets[42..44] != [3, 16] {
        return Err("bad_tlv");
    }
    Ok((actor, partner))
}

/// The response to a Marker PDU (section 6.5.4.2).
fn marker_response(octets: &[u8]) -> Result<Vec<u8>, &'static str> {
    let octets = octets.get(..PDU_LEN).ok_or("truncated")?;
    match octets[2..4] {
        [MARKER_REQUEST, 16] => {
            let mut response = octets.to_vec();
            response[2] = MARKER_RESPONSE;
            Ok(response)
        }
        [MARKER_RESPONSE, 16] => Err("marker_response"),
        _ => Err("bad_tlv"),
    }
}

/// The set bits of a state by their names.
pub fn state_words(state: u8) -> impl Iterator<Item = &'static str> {
    STATE_WORDS
        .into_iter()
        .enumerate()
        .filter(move |(bit, _)| state >> bit & 1 != 0)
        .map(|one| one.1)
}

#[cfg(test)]
mod tests;

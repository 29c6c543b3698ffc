//! One end of a PPP link (RFC 1661 section 3): LCP, then authentication by PAP (RFC 1334) or CHAP
//! with MD5 (RFC 1994), then IPCP (RFC 1332) with addresses of name servers (RFC 1877) and IPV6CP
//! (RFC 5072).
//!
//! A client authenticates, and gets its address; a server demands the authentication, and gives the
//! address.

use std::net::{Ipv4Addr, Ipv6Addr};

use md5::{Digest, Md5};
use squall_units::Nanos;

use crate::{
    Automaton, CHAP, IPCP, IPV6CP, LCP, PAP, PPP_IPV4, PPP_IPV6, PppActions, PppOutput, PppPacket,
    PppTimers,
    ppp_message::{
        CODE_REJECT, CONFIGURE_ACK, CONFIGURE_NAK, CONFIGURE_REJECT, CONFIGURE_REQUEST,
        DISCARD_REQUEST, ECHO_REPLY, ECHO_REQUEST, PROTOCOL_REJECT, TERMINATE_ACK,
        TERMINATE_REQUEST, options, push_option,
    },
};

/// Highest MRU over PPPoE (RFC 2516 section 7), and the lowest that is accepted: a smaller one could
/// not carry the packets of LCP.
pub const HIGHEST_MRU: u16 = 1_492;
pub const LOWEST_MRU: u16 = 128;

/// Options of LCP (RFC 1661 section 6).
const MRU: u8 = 1;
const AUTHENTICATION: u8 = 3;
const MAGIC: u8 = 5;
/// CHAP with MD5 (RFC 1994 section 3).
const CHAP_MD5: u8 = 5;
/// Options of IPCP.
const ADDRESS: u8 = 3;
const NAME_SERVERS: [u8; 2] = [129, 131];
/// The option of IPV6CP.
const INTERFACE: u8 = 1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PppSettings {
    /// Octets of a packet that the end can receive: [`LOWEST_MRU`] to [`HIGHEST_MRU`].
    pub mru: u16,
    pub timers: PppTimers,
    /// Methods that a client accepts, or a server demands.
    pub auth: PppAuth,
    /// `{}` is the number of the host, in both. A server accepts any number.
    pub identity: String,
    pub password: String,
    /// Time after which a request of PAP, a challenge or a response is repeated, 3 s, and the
    /// longest time for the authentication, 30 s.
    pub auth_interval: Nanos,
    pub auth_wait: Nanos,
    /// Longest time from the begin, or that of another negotiation, to an address, 60 s.
    pub wait: Nanos,
    /// Interval between Echo-Requests (section 5.8), 30 s, and those without a reply after which
    /// the link is down, 3; zero: none.
    pub echo: Nanos,
    pub echo_failures: u8,
    /// Ask for the addresses of name servers.
    pub name_servers: bool,
    /// Negotiate IPv6.
    pub ipv6: bool,
}

impl Default for PppSettings {
    fn default() -> Self {
        Self {
            mru: HIGHEST_MRU,
            timers: PppTimers::default(),
            auth: PppAuth::Any,
            identity: String::new(),
            password: String::new(),
            auth_interval: Nanos(3_000_000_000),
            auth_wait: Nanos(30_000_000_000),
            wait: Nanos(60_000_000_000),
            echo: Nanos(30_000_000_000),
            echo_failures: 3,
            name_servers: false,
            ipv6: false,
        }
    }
}

/// Methods of authentication.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PppAuth {
    #[default]
    None,
    Pap,
    Chap,
    /// A client accepts both; a server demands CHAP.
    Any,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PppRole {
    Client,
    /// With its own address, then the address of the client.
    Server(Ipv4Addr, Ipv4Addr),
}

/// Arguments of each step.
#[derive(Clone, Copy, Debug)]
pub struct PppContext<'a> {
    pub now: Nanos,
    /// A random number.
    pub chance: u64,
    /// Number of the host, from 1.
    pub number: u32,
    pub role: PppRole,
    pub settings: &'a PppSettings,
}

/// Phases of a link (section 3.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PppPhase {
    #[default]
    Dead,
    Establish,
    Authenticate,
    Network,
    Terminate,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PppEvent {
    /// IPv4 can be used, or IPv6.
    Up,
    Up6,
    /// IPv4 no longer can.
    Down,
    /// The link has ended, for this reason.
    Ended(&'static str),
    /// A packet was ignored, for this reason.
    Ignored(&'static str),
}

/// Packets to send, with the numbers of their protocols, and changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PppStep {
    pub send: Vec<(u16, Vec<u8>)>,
    pub events: Vec<PppEvent>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PppLink {
    phase: PppPhase,
    lcp: Automaton,
    ipcp: Automaton,
    ipv6cp: Automaton,
    /// Own options, which the peer may change; 0: it rejected them.
    mru: u16,
    magic: u32,
    demand: PppAuth,
    address: Option<Ipv4Addr>,
    name_servers: [Option<Ipv4Addr>; 2],
    interface: u64,
    /// Options of the peer.
    peer_mru: u16,
    peer_magic: u32,
    prove: PppAuth,
    peer_address: Option<Ipv4Addr>,
    peer_interface: u64,
    /// When to repeat the own packet of the authentication, and when to give up.
    auth_due: Option<Nanos>,
    auth_end: Option<Nanos>,
    auth_id: u8,
    /// The challenge that was sent, or the response.
    secret: [u8; 16],
    responded: bool,
    /// When the link has to be up.
    end: Option<Nanos>,
    echo_due: Option<Nanos>,
    echo_id: u8,
    unanswered: u8,
    /// Identifier of the last rejection.
    reject_id: u8,
    /// Why the link is terminated.
    reason: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Layer {
    Lcp,
    Ipcp,
    Ipv6cp,
}

impl Layer {
    fn protocol(self) -> u16 {
        match self {
            Self::Lcp => LCP,
            Self::Ipcp => IPCP,
            Self::Ipv6cp => IPV6CP,
        }
    }
}

impl PppLink {
    pub fn phase(&self) -> PppPhase {
        self.phase
    }

    /// Whether IPv4 packets can be sent.
    pub fn is_up(&self) -> bool {
        self.ipcp.is_opened()
    }

    /// Whether IPv6 packets can be sent.
    pub fn is_up6(&self) -> bool {
        self.ipv6cp.is_opened()
    }

    /// The own address, and that of the peer.
    pub fn addresses(&self) -> (Ipv4Addr, Ipv4Addr) {
        let known = |address: Option<Ipv4Addr>| address.unwrap_or(Ipv4Addr::UNSPECIFIED);
        (known(self.address), known(self.peer_address))
    }

    /// Name servers that the peer has named.
    pub fn name_servers(&self) -> impl Iterator<Item = Ipv4Addr> {
        self.name_servers.into_iter().flatten().filter(|address| !address.is_unspecified())
    }

    /// The link-local address (RFC 5072 section 5).
    pub fn link_local(&self) -> Ipv6Addr {
        Ipv6Addr::from_bits(0xfe80 << 112 | u128::from(self.interface))
    }

    /// Octets of a packet that the peer can receive.
    pub fn peer_mru(&self) -> u16 {
        self.peer_mru
    }

    /// Why the link is being terminated, if it is.
    pub fn reason(&self) -> Option<&'static str> {
        Some(self.reason).filter(|reason| !reason.is_empty())
    }

    pub fn due(&self) -> Option<Nanos> {
        let layers = [self.lcp.due(), self.ipcp.due(), self.ipv6cp.due()];
        let own = [self.auth_due, self.auth_end, self.end, self.echo_due];
        layers.into_iter().chain(own).flatten().min()
    }

    /// The lower layer is up: the link is established.
    pub fn start(&mut self, cx: &PppContext<'_>) -> PppStep {
        let mut step = PppStep::default();
        *self = Self {
            phase: PppPhase::Establish,
            mru: cx.settings.mru,
            magic: magic(cx.chance),
            demand: match (cx.role, cx.settings.auth) {
                (PppRole::Client, _) => PppAuth::None,
                (PppRole::Server(..), PppAuth::Any) => PppAuth::Chap,
                (PppRole::Server(..), auth) => auth,
            },
            peer_mru: HIGHEST_MRU,
            end: Some(cx.now + cx.settings.wait),
            ..Self::default()
        };
        self.lcp.open(cx.now, &cx.settings.timers);
        let actions = self.lcp.up(cx.now, &cx.settings.timers);
        self.act(cx, Layer::Lcp, actions, None, &mut step);
        step
    }

    /// Begins to terminate the link. [`PppEvent::Ended`] comes when the peer has confirmed it.
    pub fn terminate(&mut self, cx: &PppContext<'_>, reason: &'static str) -> PppStep {
        let mut step = PppStep::default();
        self.close(cx, reason, &mut step);
        step
    }

    /// Runs the timers that are due.
    pub fn timer(&mut self, cx: &PppContext<'_>) -> PppStep {
        let mut step = PppStep::default();
        let (now, timers) = (cx.now, &cx.settings.timers);
        let is_due = |due: Option<Nanos>| due.is_some_and(|due| due <= now);
        let actions = self.lcp.timer(now, timers);
        self.act(cx, Layer::Lcp, actions, None, &mut step);
        let actions = self.ipcp.timer(now, timers);
        self.act(cx, Layer::Ipcp, actions, None, &mut step);
        let actions = self.ipv6cp.timer(now, timers);
        self.act(cx, Layer::Ipv6cp, actions, None, &mut step);
        if is_due(self.auth_end) {
            self.close(cx, "auth_timeout", &mut step);
        }
        if is_due(self.end) {
            self.close(cx, "ppp_timeout", &mut step);
        }
        if is_due(self.auth_due) {
            self.send_auth(cx, &mut step);
        }
        if is_due(self.echo_due) {
            if self.unanswered >= cx.settings.echo_failures {
                self.close(cx, "echo_timeout", &mut step);
            } else {
                self.unanswered += 1;
                self.echo_id = self.echo_id.wrapping_add(1);
                self.echo_due = Some(now + cx.settings.echo);
                let magic = self.magic.to_be_bytes();
                send(&mut step, LCP, ECHO_REQUEST, self.echo_id, &magic);
            }
        }
        step
    }

    /// Handles a packet of a control protocol, or one of an unknown protocol. `octets` follow the
    /// number of the protocol.
    pub fn receive(&mut self, cx: &PppContext<'_>, protocol: u16, octets: &[u8]) -> PppStep {
        let mut step = PppStep::default();
        if self.phase == PppPhase::Dead {
            ignore(&mut step, "unexpected");
            return step;
        }
        let known = matches!(protocol, LCP | PAP | CHAP | IPCP | IPV6CP);
        if !known || protocol == IPV6CP && !cx.settings.ipv6 {
            if self.lcp.is_opened() && !matches!(protocol, PPP_IPV4 | PPP_IPV6) {
                self.reject_protocol(protocol, octets, &mut step);
            }
            ignore(&mut step, "unknown_protocol");
            return step;
        }
        let packet = match PppPacket::parse(octets) {
            Ok(packet) => packet,
            Err(reason) => {
                ignore(&mut step, reason);
                return step;
            }
        };
        match protocol {
            LCP => self.layer(cx, Layer::Lcp, &packet, &mut step),
            // Packets of later phases are discarded (section 3.4).
            _ if !self.lcp.is_opened() => ignore(&mut step, "wrong_phase"),
            PAP => self.pap(cx, &packet, &mut step),
            CHAP => self.chap(cx, &packet, &mut step),
            _ if self.phase != PppPhase::Network => ignore(&mut step, "wrong_phase"),
            IPCP => self.layer(cx, Layer::Ipcp, &packet, &mut step),
            _ => self.layer(cx, Layer::Ipv6cp, &packet, &mut step),
        }
        step
    }

    fn close(&mut self, cx: &PppContext<'_>, reason: &'static str, step: &mut PppStep) {
        (self.auth_due, self.auth_end, self.end, self.echo_due) = (None, None, None, None);
        if matches!(self.phase, PppPhase::Terminate | PppPhase::Dead) {
            return;
        }
        self.reason = reason;
        self.phase = PppPhase::Terminate;
        let actions = self.lcp.close(cx.now, &cx.settings.timers);
        self.act(cx, Layer::Lcp, actions, None, step);
    }

    fn automaton(&mut self, layer: Layer) -> &mut Automaton {
        match layer {
            Layer::Lcp => &mut self.lcp,
            Layer::Ipcp => &mut self.ipcp,
            Layer::Ipv6cp => &mut self.ipv6cp,
        }
    }

    /// Carries out what an automaton wants. `answer`: code, identifier and options.
    fn act(
        &mut self,
        cx: &PppContext<'_>,
        layer: Layer,
        actions: PppActions,
        answer: Option<(u8, u8, &[u8])>,
        step: &mut PppStep,
    ) {
        if actions.down {
            match layer {
                Layer::Lcp => self.lower_down(step),
                Layer::Ipcp => step.events.push(PppEvent::Down),
                Layer::Ipv6cp => {}
            }
            // IPv4 is negotiated again. Each Ack resets the count up to Max-Configure, so a
            // peer that sends no acceptable request itself would never let it end.
            let negotiates = matches!(self.phase, PppPhase::Establish | PppPhase::Network);
            if negotiates && layer != Layer::Ipv6cp {
                self.end.get_or_insert(cx.now + cx.settings.wait);
            }
        }
        let protocol = layer.protocol();
        for output in actions.send.into_iter().flatten() {
            let id = self.automaton(layer).id();
            match output {
                PppOutput::ConfigureRequest => {
                    let options = self.request(layer);
                    send(step, protocol, CONFIGURE_REQUEST, id, &options);
                }
                PppOutput::TerminateRequest => send(step, protocol, TERMINATE_REQUEST, id, &[]),
                PppOutput::ConfigureAnswer | PppOutput::TerminateAck => {
                    if let Some((code, id, data)) = answer {
                        send(step, protocol, code, id, data);
                    }
                }
            }
        }
        match layer {
            Layer::Lcp if actions.up => self.established(cx, step),
            Layer::Ipcp if actions.up => {
                if self.addresses().0.is_unspecified() {
                    self.close(cx, "no_address", step);
                } else {
                    self.end = None;
                    step.events.push(PppEvent::Up);
                }
            }
            Layer::Ipv6cp if actions.up => step.events.push(PppEvent::Up6),
            _ => {}
        }
        if actions.finished {
            match layer {
                Layer::Lcp => {
                    let reason = if self.reason.is_empty() { "lcp_timeout" } else { self.reason };
                    self.lower_down(step);
                    *self = Self::default();
                    step.events.push(PppEvent::Ended(reason));
                }
                Layer::Ipcp => self.close(cx, "no_ipcp", step),
                // IPv4 goes on without it.
                Layer::Ipv6cp => {}
            }
        }
    }

    /// LCP is no longer opened.
    fn lower_down(&mut self, step: &mut PppStep) {
        if self.ipcp.is_opened() {
            step.events.push(PppEvent::Down);
        }
        (self.ipcp, self.ipv6cp) = (Automaton::default(), Automaton::default());
        (self.auth_due, self.auth_end, self.echo_due) = (None, None, None);
        if self.phase != PppPhase::Terminate {
            self.phase = PppPhase::Establish;
        }
    }

    /// This-Layer-Up of LCP: authentication, if one end demands it.
    fn established(&mut self, cx: &PppContext<'_>, step: &mut PppStep) {
        self.end.get_or_insert(cx.now + cx.settings.wait);
        if cx.settings.echo > Nanos::ZERO {
            self.echo_due = Some(cx.now + cx.settings.echo);
        }
        self.unanswered = 0;
        if self.demand == PppAuth::None && self.prove == PppAuth::None {
            self.network(cx, step);
            return;
        }
        self.phase = PppPhase::Authenticate;
        self.auth_id = self.auth_id.wrapping_add(1);
        self.responded = false;
        self.auth_end = Some(cx.now + cx.settings.auth_wait);
        if self.demand == PppAuth::Chap {
            let [a, b] = [cx.chance, !cx.chance.rotate_left(17)].map(u64::to_be_bytes);
            self.secret[..8].copy_from_slice(&a);
            self.secret[8..].copy_from_slice(&b);
        }
        self.send_auth(cx, step);
    }

    fn network(&mut self, cx: &PppContext<'_>, step: &mut PppStep) {
        self.phase = PppPhase::Network;
        (self.auth_due, self.auth_end) = (None, None);
        let asked = cx.settings.name_servers.then_some(Ipv4Addr::UNSPECIFIED);
        (self.address, self.name_servers) = match cx.role {
            PppRole::Client => (None, [asked; 2]),
            PppRole::Server(own, _) => (Some(own), [None; 2]),
        };
        let timers = &cx.settings.timers;
        self.ipcp.open(cx.now, timers);
        let actions = self.ipcp.up(cx.now, timers);
        self.act(cx, Layer::Ipcp, actions, None, step);
        if cx.settings.ipv6 {
            self.interface = interface(cx.chance);
            self.ipv6cp.open(cx.now, timers);
            let actions = self.ipv6cp.up(cx.now, timers);
            self.act(cx, Layer::Ipv6cp, actions, None, step);
        }
    }

    /// A packet of LCP or of a network control protocol (section 5).
    fn layer(
        &mut self,
        cx: &PppContext<'_>,
        layer: Layer,
        packet: &PppPacket<'_>,
        step: &mut PppStep,
    ) {
        let (now, timers, id) = (cx.now, &cx.settings.timers, packet.id);
        let is_current = self.automaton(layer).awaits(id);
        match packet.code {
            CONFIGURE_REQUEST => {
                let Some(asked) = options(packet.data) else {
                    return ignore(step, "bad_options");
                };
                let rejects = self.automaton(layer).rejects(timers);
                let (code, data) = self.judge(cx, layer, &asked, packet.data, rejects);
                let good = code == CONFIGURE_ACK;
                let state = self.automaton(layer).state();
                let actions = self.automaton(layer).configure_request(now, good, timers);
                let is_refused = matches!(state, crate::PppState::Closed);
                let answer =
                    if is_refused { (TERMINATE_ACK, id, &[][..]) } else { (code, id, &data[..]) };
                self.act(cx, layer, actions, Some(answer), step);
            }
            CONFIGURE_ACK => {
                // An Ack repeats the options of the request without a change (section 5.2).
                if !is_current || packet.data != self.request(layer) {
                    return ignore(step, "wrong_ack");
                }
                let actions = self.automaton(layer).configure_ack(now, timers);
                self.act(cx, layer, actions, Some((TERMINATE_ACK, id, &[])), step);
            }
            CONFIGURE_NAK | CONFIGURE_REJECT => {
                if !is_current {
                    return ignore(step, "wrong_identifier");
                }
                let Some(refused) = options(packet.data) else {
                    return ignore(step, "bad_options");
                };
                let is_reject = packet.code == CONFIGURE_REJECT;
                if let Some(reason) = self.refused(cx, layer, &refused, is_reject) {
                    return self.close(cx, reason, step);
                }
                let actions = self.automaton(layer).configure_nak(now, timers);
                self.act(cx, layer, actions, Some((TERMINATE_ACK, id, &[])), step);
            }
            TERMINATE_REQUEST => {
                if layer == Layer::Lcp && self.reason.is_empty() {
                    self.reason = "terminated";
                }
                let actions = self.automaton(layer).terminate_request(now, timers);
                self.act(cx, layer, actions, Some((TERMINATE_ACK, id, &[])), step);
                if layer == Layer::Lcp && self.lcp.state() == crate::PppState::Stopping {
                    (self.phase, self.end) = (PppPhase::Terminate, None);
                } else if layer == Layer::Lcp {
                    // Before the link is opened, the negotiation goes on (table of section 4.1).
                    if self.phase != PppPhase::Terminate {
                        self.reason = "";
                    }
                }
            }
            TERMINATE_ACK => {
                let actions = self.automaton(layer).terminate_ack(now, timers);
                self.act(cx, layer, actions, None, step);
            }
            CODE_REJECT => {
                // Without one of these codes, nothing can be agreed.
                let needs = packet.data.first().is_some_and(|code| (1..=7).contains(code));
                if !needs {
                    return ignore(step, "code_reject");
                }
                let actions = self.automaton(layer).rejected(now, timers);
                self.act(cx, layer, actions, None, step);
            }
            PROTOCOL_REJECT if layer == Layer::Lcp => self.protocol_rejected(cx, packet, step),
            ECHO_REQUEST if layer == Layer::Lcp => {
                let from = packet.data.first_chunk::<4>().map(|magic| u32::from_be_bytes(*magic));
                if !self.lcp.is_opened() {
                    ignore(step, "wrong_phase");
                } else if self.magic != 0 && from == Some(self.magic) {
                    ignore(step, "looped_back");
                } else if let Some(data) = packet.data.get(4..) {
                    let data = [&self.magic.to_be_bytes(), data].concat();
                    send(step, LCP, ECHO_REPLY, id, &data);
                } else {
                    ignore(step, "truncated");
                }
            }
            ECHO_REPLY if layer == Layer::Lcp => {
                if id == self.echo_id && self.unanswered > 0 {
                    self.unanswered = 0;
                } else {
                    ignore(step, "wrong_identifier");
                }
            }
            DISCARD_REQUEST if layer == Layer::Lcp => {}
            _ => {
                // Send-Code-Reject, with the packet (section 5.6).
                self.reject_id = self.reject_id.wrapping_add(1);
                let octets = packet.octets();
                send(step, layer.protocol(), CODE_REJECT, self.reject_id, self.fitting(&octets, 4));
            }
        }
    }

    fn protocol_rejected(
        &mut self,
        cx: &PppContext<'_>,
        packet: &PppPacket<'_>,
        step: &mut PppStep,
    ) {
        let Some(protocol) = packet.data.first_chunk::<2>().map(|two| u16::from_be_bytes(*two))
        else {
            return ignore(step, "truncated");
        };
        if !self.lcp.is_opened() {
            return ignore(step, "wrong_phase");
        }
        let layer = match protocol {
            LCP => Layer::Lcp,
            IPCP => Layer::Ipcp,
            IPV6CP => Layer::Ipv6cp,
            _ => return ignore(step, "protocol_reject"),
        };
        let actions = self.automaton(layer).rejected(cx.now, &cx.settings.timers);
        self.act(cx, layer, actions, None, step);
    }

    fn reject_protocol(&mut self, protocol: u16, octets: &[u8], step: &mut PppStep) {
        self.reject_id = self.reject_id.wrapping_add(1);
        let data = [&protocol.to_be_bytes(), self.fitting(octets, 6)].concat();
        send(step, LCP, PROTOCOL_REJECT, self.reject_id, &data);
    }

    /// As much of a rejected packet as the peer can receive after a head of `head` octets.
    fn fitting<'a>(&self, octets: &'a [u8], head: usize) -> &'a [u8] {
        &octets[..octets.len().min(usize::from(self.peer_mru).saturating_sub(head))]
    }

    /// The options of the own request.
    fn request(&self, layer: Layer) -> Vec<u8> {
        let mut out = Vec::new();
        match layer {
            Layer::Lcp => {
                if self.mru != 0 {
                    push_option(&mut out, MRU, &self.mru.to_be_bytes());
                }
                match self.demand {
                    PppAuth::None => {}
                    PppAuth::Pap => push_option(&mut out, AUTHENTICATION, &PAP.to_be_bytes()),
                    PppAuth::Chap | PppAuth::Any => push_option(&mut out, AUTHENTICATION, &chap()),
                }
                if self.magic != 0 {
                    push_option(&mut out, MAGIC, &self.magic.to_be_bytes());
                }
            }
            Layer::Ipcp => {
                push_option(&mut out, ADDRESS, &self.addresses().0.octets());
                for (kind, address) in NAME_SERVERS.into_iter().zip(self.name_servers) {
                    if let Some(address) = address {
                        push_option(&mut out, kind, &address.octets());
                    }
                }
            }
            Layer::Ipv6cp => push_option(&mut out, INTERFACE, &self.interface.to_be_bytes()),
        }
        out
    }

    /// Judges a request of the peer, and takes its options over if all are acceptable. Returns the
    /// code and the options of the answer. `rejects`: naks did not help.
    fn judge(
        &mut self,
        cx: &PppContext<'_>,
        layer: Layer,
        asked: &[(u8, &[u8])],
        data: &[u8],
        rejects: bool,
    ) -> (u8, Vec<u8>) {
        let (mut naks, mut rejected) = (Vec::new(), Vec::new());
        let mut next = self.clone();
        if layer == Layer::Lcp {
            (next.peer_mru, next.peer_magic, next.prove) = (HIGHEST_MRU, 0, PppAuth::None);
        }
        let mut has_address = false;
        for (kind, value) in asked {
            // A better value of the option. `Some(None)`: the option is rejected.
            let instead = match layer {
                Layer::Lcp => next.judge_lcp(cx, *kind, value),
                Layer::Ipcp => {
                    has_address |= *kind == ADDRESS;
                    next.judge_ipcp(cx, *kind, value)
                }
                Layer::Ipv6cp => next.judge_ipv6cp(cx, *kind, value),
            };
            match instead {
                None => {}
                Some(Some(better)) if !rejects => push_option(&mut naks, *kind, &better),
                Some(_) => push_option(&mut rejected, *kind, value),
            }
        }
        // A server names the address of a client that did not ask for one (section 5.3).
        if let (Layer::Ipcp, false, false, PppRole::Server(_, peer)) =
            (layer, has_address, rejects, cx.role)
        {
            push_option(&mut naks, ADDRESS, &peer.octets());
        }
        match (rejected.is_empty(), naks.is_empty()) {
            (false, _) => (CONFIGURE_REJECT, rejected),
            (true, false) => (CONFIGURE_NAK, naks),
            (true, true) => {
                *self = next;
                (CONFIGURE_ACK, data.to_vec())
            }
        }
    }

    fn judge_lcp(
        &mut self,
        cx: &PppContext<'_>,
        kind: u8,
        value: &[u8],
    ) -> Option<Option<Vec<u8>>> {
        match (kind, value) {
            (MRU, [high, low]) => {
                self.peer_mru = u16::from_be_bytes([*high, *low]);
                let better = self.peer_mru.clamp(LOWEST_MRU, HIGHEST_MRU);
                (better != self.peer_mru).then(|| Some(better.to_be_bytes().to_vec()))
            }
            (AUTHENTICATION, [high, low, rest @ ..]) if cx.role == PppRole::Client => {
                let method = match (u16::from_be_bytes([*high, *low]), rest) {
                    (PAP, []) => PppAuth::Pap,
                    (CHAP, [CHAP_MD5]) => PppAuth::Chap,
                    _ => PppAuth::None,
                };
                let accepts = cx.settings.auth;
                match accepts {
                    PppAuth::None => Some(None),
                    _ if method == PppAuth::None
                        || method != accepts && accepts != PppAuth::Any =>
                    {
                        let pap = accepts == PppAuth::Pap;
                        Some(Some(if pap { PAP.to_be_bytes().to_vec() } else { chap().to_vec() }))
                    }
                    _ => {
                        self.prove = method;
                        None
                    }
                }
            }
            (MAGIC, [a, b, c, d]) => {
                self.peer_magic = u32::from_be_bytes([*a, *b, *c, *d]);
                // The own number comes back on a link in a loop (section 6.4).
                let good = self.peer_magic != 0 && self.peer_magic != self.magic;
                (!good).then(|| Some(magic(cx.chance.rotate_left(29)).to_be_bytes().to_vec()))
            }
            // Also the compression of address and protocol fields, which PPPoE does without
            // (RFC 2516 section 7).
            _ => Some(None),
        }
    }

    fn judge_ipcp(
        &mut self,
        cx: &PppContext<'_>,
        kind: u8,
        value: &[u8],
    ) -> Option<Option<Vec<u8>>> {
        let Some(value) = value.first_chunk::<4>().filter(|_| value.len() == 4) else {
            return Some(None);
        };
        let asked = Ipv4Addr::from(*value);
        let better = match (kind, cx.role) {
            (ADDRESS, PppRole::Server(_, peer)) => Some(peer),
            (ADDRESS, PppRole::Client) if !asked.is_unspecified() => Some(asked),
            // The server itself, as a home gateway does.
            (kind, PppRole::Server(own, _)) if NAME_SERVERS.contains(&kind) => Some(own),
            _ => None,
        };
        let Some(better) = better else { return Some(None) };
        if kind == ADDRESS {
            self.peer_address = Some(asked);
        }
        (better != asked).then(|| Some(better.octets().to_vec()))
    }

    fn judge_ipv6cp(
        &mut self,
        cx: &PppContext<'_>,
        kind: u8,
        value: &[u8],
    ) -> Option<Option<Vec<u8>>> {
        match (kind, value.first_chunk::<8>()) {
            (INTERFACE, Some(id)) if value.len() == 8 => {
                self.peer_interface = u64::from_be_bytes(*id);
                let good = self.peer_interface != 0 && self.peer_interface != self.interface;
                (!good).then(|| Some(interface(cx.chance.rotate_left(13)).to_be_bytes().to_vec()))
            }
            _ => Some(None),
        }
    }

    /// Changes the own options as the peer wants it. Returns the reason if there is no agreement.
    fn refused(
        &mut self,
        cx: &PppContext<'_>,
        layer: Layer,
        refused: &[(u8, &[u8])],
        is_reject: bool,
    ) -> Option<&'static str> {
        for (kind, value) in refused {
            let address = value.first_chunk::<4>().map(|four| Ipv4Addr::from(*four));
            match (layer, *kind) {
                (Layer::Lcp, MRU) if is_reject => self.mru = 0,
                (Layer::Lcp, MRU) => {
                    if let [high, low] = value {
                        let wanted = u16::from_be_bytes([*high, *low]);
                        self.mru = wanted.clamp(LOWEST_MRU, cx.settings.mru.max(LOWEST_MRU));
                    }
                }
                (Layer::Lcp, MAGIC) if is_reject => self.magic = 0,
                (Layer::Lcp, MAGIC) => self.magic = magic(cx.chance),
                (Layer::Lcp, AUTHENTICATION) if self.demand != PppAuth::None => {
                    let wanted = match *value {
                        [high, low] if u16::from_be_bytes([*high, *low]) == PAP => PppAuth::Pap,
                        [high, low, CHAP_MD5] if u16::from_be_bytes([*high, *low]) == CHAP => {
                            PppAuth::Chap
                        }
                        _ => PppAuth::None,
                    };
                    let any = cx.settings.auth == PppAuth::Any && wanted != PppAuth::None;
                    if is_reject || !any {
                        return Some("no_auth_method");
                    }
                    self.demand = wanted;
                }
                (Layer::Ipcp, ADDRESS) if is_reject => return Some("no_address"),
                (Layer::Ipcp, ADDRESS) if cx.role == PppRole::Client => {
                    self.address = address.or(self.address);
                }
                (Layer::Ipcp, kind) => {
                    for (own, server) in NAME_SERVERS.into_iter().zip(&mut self.name_servers) {
                        if own == kind && server.is_some() {
                            *server = address.filter(|_| !is_reject);
                        }
                    }
                }
                (Layer::Ipv6cp, INTERFACE) => {
                    let wanted = value.first_chunk::<8>().map(|id| u64::from_be_bytes(*id));
                    self.interface = match wanted {
                        Some(wanted) if !is_reject && wanted != 0 => wanted,
                        _ => interface(cx.chance),
                    };
                }
                // Options that were never asked for.
                _ => {}
            }
        }
        None
    }

    /// Sends the own packet of the authentication, and again after a time.
    fn send_auth(&mut self, cx: &PppContext<'_>, step: &mut PppStep) {
        self.auth_due = Some(cx.now + cx.settings.auth_interval);
        match (self.demand, self.prove) {
            (PppAuth::Chap, _) => {
                let data = [&[16], &self.secret[..], b"squall"].concat();
                send(step, CHAP, 1, self.auth_id, &data);
            }
            (PppAuth::None, PppAuth::Pap) => {
                let identity = text(&cx.settings.identity, cx.number);
                let password = text(&cx.settings.password, cx.number);
                let data = [
                    &[identity.len() as u8],
                    &identity[..],
                    &[password.len() as u8],
                    &password[..],
                ];
                send(step, PAP, 1, self.auth_id, &data.concat());
            }
            // A Success may be lost: the authenticator answers each response (RFC 1994 section 4.1).
            (PppAuth::None, PppAuth::Chap) if self.responded => self.respond(cx, step),
            // The other end sends first.
            _ => self.auth_due = None,
        }
    }

    fn respond(&self, cx: &PppContext<'_>, step: &mut PppStep) {
        let identity = text(&cx.settings.identity, cx.number);
        send(step, CHAP, 2, self.auth_id, &[&[16], &self.secret[..], &identity].concat());
    }

    /// RFC 1334 section 2.
    fn pap(&mut self, cx: &PppContext<'_>, packet: &PppPacket<'_>, step: &mut PppStep) {
        match packet.code {
            1 if self.demand == PppAuth::Pap => {
                let Some((identity, password)) = credentials(packet.data) else {
                    return ignore(step, "bad_length");
                };
                let good = password_of(cx.settings, identity).is_some_and(|own| own == password);
                // An Ack may be lost, so that each request is answered, in any phase.
                let code = if good { 2 } else { 3 };
                send(step, PAP, code, packet.id, &[0]);
                self.judged(cx, good, step);
            }
            2 | 3 if self.prove == PppAuth::Pap && self.phase == PppPhase::Authenticate => {
                if packet.id != self.auth_id {
                    return ignore(step, "wrong_identifier");
                }
                self.judged(cx, packet.code == 2, step);
            }
            _ => ignore(step, "unexpected"),
        }
    }

    /// RFC 1994 section 4.
    fn chap(&mut self, cx: &PppContext<'_>, packet: &PppPacket<'_>, step: &mut PppStep) {
        let value = || {
            let (len, rest) = packet.data.split_first()?;
            rest.split_at_checked(usize::from(*len)).filter(|(value, _)| !value.is_empty())
        };
        match packet.code {
            1 if self.prove == PppAuth::Chap => {
                let Some((challenge, _)) = value() else { return ignore(step, "bad_length") };
                let password = text(&cx.settings.password, cx.number);
                self.auth_id = packet.id;
                self.secret = digest(packet.id, &password, challenge);
                self.responded = true;
                self.respond(cx, step);
                if self.phase == PppPhase::Authenticate {
                    self.auth_due = Some(cx.now + cx.settings.auth_interval);
                }
            }
            2 if self.demand == PppAuth::Chap => {
                let Some((response, name)) = value() else { return ignore(step, "bad_length") };
                if packet.id != self.auth_id {
                    return ignore(step, "wrong_identifier");
                }
                let good = password_of(cx.settings, name)
                    .is_some_and(|own| digest(self.auth_id, &own, &self.secret)[..] == *response);
                send(step, CHAP, if good { 3 } else { 4 }, packet.id, &[]);
                self.judged(cx, good, step);
            }
            3 | 4 if self.prove == PppAuth::Chap && self.responded => {
                if packet.id != self.auth_id {
                    return ignore(step, "wrong_identifier");
                }
                self.judged(cx, packet.code == 3, step);
            }
            _ => ignore(step, "unexpected"),
        }
    }

    /// The authentication has succeeded, or failed.
    fn judged(&mut self, cx: &PppContext<'_>, good: bool, step: &mut PppStep) {
        if !good {
            self.close(cx, "auth_rejected", step);
        } else if self.phase == PppPhase::Authenticate {
            self.network(cx, step);
        }
    }
}

fn send(step: &mut PppStep, protocol: u16, code: u8, id: u8, data: &[u8]) {
    step.send.push((protocol, PppPacket { code, id, data }.octets()));
}

fn ignore(step: &mut PppStep, reason: &'static str) {
    step.events.push(PppEvent::Ignored(reason));
}

fn text(text: &str, number: u32) -> Vec<u8> {
    text.replace("{}", &number.to_string()).into_bytes()
}

/// The password of an identity, if a server knows it.
fn password_of(settings: &PppSettings, identity: &[u8]) -> Option<Vec<u8>> {
    let Some((before, after)) = settings.identity.split_once("{}") else {
        let is_known = identity == settings.identity.as_bytes();
        return is_known.then(|| settings.password.clone().into_bytes());
    };
    let number = identity.strip_prefix(before.as_bytes())?.strip_suffix(after.as_bytes())?;
    let number: u32 = std::str::from_utf8(number).ok()?.parse().ok()?;
    Some(text(&settings.password, number))
}

/// Identity and password of a request of PAP.
fn credentials(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = data.split_first()?;
    let (identity, rest) = rest.split_at_checked(usize::from(*len))?;
    let (len, rest) = rest.split_first()?;
    Some((identity, rest.get(..usize::from(*len))?))
}

/// RFC 1994 section 4.1: the digest of identifier, password and challenge.
fn digest(id: u8, password: &[u8], challenge: &[u8]) -> [u8; 16] {
    Md5::new_with_prefix([id]).chain_update(password).chain_update(challenge).finalize().into()
}

fn chap() -> [u8; 3] {
    let [high, low] = CHAP.to_be_bytes();
    [high, low, CHAP_MD5]
}

/// A magic number is not 0.
fn magic(chance: u64) -> u32 {
    (chance >> 32) as u32 | 1
}

/// A random interface identifier, which is not unique in the world (RFC 5072 section 4.1).
fn interface(chance: u64) -> u64 {
    (chance & !(1 << 57)) | 1
}

#[cfg(test)]
mod tests;

//! An access concentrator of PPPoE (RFC 2516 section 5), with one session for each client and
//! addresses in memory.

use std::{
    collections::{BTreeSet, HashMap},
    net::Ipv4Addr,
};

use md5::{Digest, Md5};
use squall_units::{MacAddr, Nanos};

use crate::{
    PADI, PADO, PADR, PADS, PADT, PPP_IPV4, PPP_IPV6, PppContext, PppEvent, PppLink, PppPhase,
    PppRole, PppSettings, PppStep, PppoeEvent, PppoeFrame, PppoePacket, PppoeStep, PppoeTags,
    pppoe_message::{
        AC_COOKIE, AC_NAME, AC_SYSTEM_ERROR, HOST_UNIQ, RELAY_SESSION_ID, SERVICE_NAME,
        SERVICE_NAME_ERROR, push_tag,
    },
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PppoeServerSettings {
    /// AC-Name.
    pub ac_name: String,
    /// The service; empty: any.
    pub service: String,
    /// The address of the server, and those that it gives.
    pub address: Ipv4Addr,
    pub first: Ipv4Addr,
    pub count: u32,
    pub ppp: PppSettings,
}

/// Argument of each step.
#[derive(Clone, Copy, Debug)]
pub struct PppoeServerContext<'a> {
    pub now: Nanos,
    /// A random number.
    pub chance: u64,
    pub settings: &'a PppoeServerSettings,
}

#[derive(Debug)]
pub struct PppoeServer {
    /// Key of the cookies.
    key: u64,
    sessions: HashMap<MacAddr, Session>,
    clients: HashMap<Ipv4Addr, MacAddr>,
    timers: BTreeSet<(Nanos, MacAddr)>,
    /// The last number of a session, the addresses that were given at least once, and those of
    /// them that are free.
    last: u16,
    given: u32,
    free: Vec<Ipv4Addr>,
    /// Addresses of clients whose sessions have changed.
    changed: Vec<Ipv4Addr>,
}

#[derive(Debug)]
struct Session {
    number: u16,
    address: Ipv4Addr,
    uniq: Option<Box<[u8]>>,
    /// When the PADR came, or another negotiation began.
    begun: Nanos,
    due: Option<Nanos>,
    link: PppLink,
}

impl PppoeServer {
    /// `key`: a random number.
    pub fn new(key: u64) -> Self {
        Self {
            key,
            sessions: HashMap::new(),
            clients: HashMap::new(),
            timers: BTreeSet::new(),
            last: 0,
            given: 0,
            free: Vec::new(),
            changed: Vec::new(),
        }
    }

    pub fn due(&self) -> Option<Nanos> {
        self.timers.first().map(|(due, _)| *due)
    }

    /// Sessions in each phase of PPP, and those of them that carry IPv4.
    pub fn sessions(&self) -> impl Iterator<Item = (PppPhase, bool)> {
        self.sessions.values().map(|of| (of.link.phase(), of.link.is_up()))
    }

    /// The client with this address, and the number of its session.
    pub fn client(&self, address: Ipv4Addr) -> Option<(MacAddr, u16)> {
        let mac = self.clients.get(&address)?;
        let session = self.sessions.get(mac)?;
        session.link.is_up().then_some((*mac, session.number))
    }

    /// Removes the addresses of clients for which [`PppoeServer::client`] may differ since the last
    /// call.
    pub fn take_changed(&mut self) -> impl Iterator<Item = Ipv4Addr> + use<> {
        std::mem::take(&mut self.changed).into_iter()
    }

    /// The link of a client.
    pub fn link(&self, client: MacAddr) -> Option<(&PppLink, u16)> {
        self.sessions.get(&client).map(|session| (&session.link, session.number))
    }

    /// The links of all clients: MAC address, number of the session, and state, in any order.
    pub fn links(&self) -> impl Iterator<Item = (MacAddr, u16, &PppLink)> {
        self.sessions.iter().map(|(mac, session)| (*mac, session.number, &session.link))
    }

    /// Runs the timers that are due, `most` of them at most.
    pub fn timer(&mut self, cx: &PppoeServerContext<'_>, most: usize) -> PppoeStep {
        let mut step = PppoeStep::default();
        for number in 0..most {
            let Some((_, mac)) = self.timers.first().copied().filter(|(due, _)| *due <= cx.now)
            else {
                break;
            };
            self.timers.pop_first();
            let Some(session) = self.sessions.get_mut(&mac) else { continue };
            session.due = None;
            // Sessions whose timers are due at once must not draw the same numbers.
            let chance = cx.chance.rotate_left(number as u32);
            let of_link = session.link.timer(&ppp(cx, chance, session.address));
            self.follow(cx, mac, of_link, &mut step);
        }
        step
    }

    /// Handles a packet of the discovery from `from`.
    pub fn receive_discovery(
        &mut self,
        cx: &PppoeServerContext<'_>,
        from: MacAddr,
        octets: &[u8],
    ) -> PppoeStep {
        PppoeStep::of_packet(|step| self.discovery(cx, from, octets, step))
    }

    fn discovery(
        &mut self,
        cx: &PppoeServerContext<'_>,
        from: MacAddr,
        octets: &[u8],
        step: &mut PppoeStep,
    ) -> Result<(), &'static str> {
        let packet = PppoePacket::parse(octets)?;
        let tags = PppoeTags::parse(packet.payload)?;
        if from.0[0] & 1 != 0 {
            return Err("bad_source");
        }
        let own = cx.settings.service.as_bytes();
        let asked = tags.services().next().ok_or("no_service_name");
        let serves = |asked: &[u8]| asked.is_empty() || own.is_empty() || asked == own;
        match packet.code {
            PADI => {
                let asked = asked?;
                if !serves(asked) {
                    return Err("wrong_service");
                }
                let mut answer = Vec::new();
                push_tag(&mut answer, AC_NAME, cx.settings.ac_name.as_bytes());
                push_tag(&mut answer, SERVICE_NAME, own);
                if asked != own {
                    push_tag(&mut answer, SERVICE_NAME, asked);
                }
                echo(&mut answer, &tags);
                push_tag(&mut answer, AC_COOKIE, &self.cookie(from));
                step.send.push(PppoeFrame::discovery(from, PADO, 0, &answer));
            }
            PADR => {
                let asked = asked?;
                // Only an owner of the address can have the cookie (section 5.2 of the RFC).
                if tags.cookie != Some(&self.cookie(from)[..]) {
                    return Err("wrong_cookie");
                }
                self.request(cx, from, (asked, serves(asked)), &tags, step);
            }
            PADT => {
                let session = self.sessions.get(&from).filter(|of| of.number == packet.session);
                session.ok_or("wrong_session")?;
                self.remove(from, "padt", step);
            }
            _ => return Err("not_for_servers"),
        }
        Ok(())
    }

    fn request(
        &mut self,
        cx: &PppoeServerContext<'_>,
        from: MacAddr,
        (asked, serves): (&[u8], bool),
        tags: &PppoeTags<'_>,
        step: &mut PppoeStep,
    ) {
        let mut answer = Vec::new();
        push_tag(&mut answer, SERVICE_NAME, asked);
        echo(&mut answer, tags);
        if let Some(session) = self.sessions.get(&from) {
            // A PADR that was repeated, because the PADS was lost.
            if session.uniq.as_deref() == tags.host_uniq {
                step.send.push(PppoeFrame::discovery(from, PADS, session.number, &answer));
                return;
            }
            self.remove(from, "replaced", step);
        }
        let address = if serves { self.allot(cx.settings) } else { None };
        let Some(address) = address else {
            let (kind, text) = match serves {
                true => (AC_SYSTEM_ERROR, &b"no address is free"[..]),
                false => (SERVICE_NAME_ERROR, &b"unknown service"[..]),
            };
            push_tag(&mut answer, kind, text);
            step.send.push(PppoeFrame::discovery(from, PADS, 0, &answer));
            return;
        };
        // 0 and 65535 are no numbers of sessions (section 4).
        self.last = if self.last >= 0xfffe { 1 } else { self.last + 1 };
        let number = self.last;
        step.send.push(PppoeFrame::discovery(from, PADS, number, &answer));
        step.events.push(PppoeEvent::Session(Nanos::ZERO));
        let mut link = PppLink::default();
        let of_link = link.start(&ppp(cx, cx.chance, address));
        let uniq = tags.host_uniq.map(Box::from);
        let session = Session { number, address, uniq, begun: cx.now, due: None, link };
        self.sessions.insert(from, session);
        self.clients.insert(address, from);
        self.follow(cx, from, of_link, step);
    }

    /// Handles a packet of a session from `from`, unless it is one of IPv4 or IPv6, which the
    /// result then has.
    pub fn receive_session<'a>(
        &mut self,
        cx: &PppoeServerContext<'_>,
        from: MacAddr,
        octets: &'a [u8],
    ) -> (PppoeStep, Option<&'a [u8]>) {
        let mut step = PppoeStep::default();
        let parsed = PppoePacket::parse(octets).and_then(|packet| {
            let session = self.sessions.get_mut(&from);
            let session = session.filter(|of| of.number == packet.session && packet.code == 0);
            let session = session.ok_or("wrong_session")?;
            let (protocol, rest) = packet.payload.split_first_chunk::<2>().ok_or("truncated")?;
            Ok((session, u16::from_be_bytes(*protocol), rest))
        });
        match parsed {
            Ok((session, PPP_IPV4, packet)) if session.link.is_up() => {
                // Others are spoofed: each client has one address.
                let is_own = packet.get(12..16) == Some(&session.address.octets());
                if is_own {
                    return (step, Some(packet));
                }
                step.events.push(PppoeEvent::Ignored("wrong_source"));
            }
            Ok((session, PPP_IPV6, packet)) if session.link.is_up6() => {
                return (step, Some(packet));
            }
            Ok((session, protocol, packet)) => {
                let of_link =
                    session.link.receive(&ppp(cx, cx.chance, session.address), protocol, packet);
                self.follow(cx, from, of_link, &mut step);
            }
            Err(reason) => step.events.push(PppoeEvent::Ignored(reason)),
        }
        (step, None)
    }

    /// Takes over the packets and events of a link.
    fn follow(
        &mut self,
        cx: &PppoeServerContext<'_>,
        client: MacAddr,
        of_link: PppStep,
        step: &mut PppoeStep,
    ) {
        let Some(session) = self.sessions.get(&client) else { return };
        let number = session.number;
        if !of_link.events.is_empty() {
            self.changed.push(session.address);
        }
        for (protocol, packet) in of_link.send {
            step.send.push(PppoeFrame::session(client, number, protocol, &packet));
        }
        for event in of_link.events {
            match event {
                PppEvent::Up => {
                    let begun = self.sessions.get(&client).map_or(cx.now, |of| of.begun);
                    step.events.push(PppoeEvent::Up(cx.now.saturating_sub(begun)));
                }
                PppEvent::Up6 => step.events.push(PppoeEvent::Up6),
                PppEvent::Down => {
                    if let Some(session) = self.sessions.get_mut(&client) {
                        session.begun = cx.now;
                    }
                    step.events.push(PppoeEvent::Down);
                }
                PppEvent::Ended(reason) => {
                    step.send.push(PppoeFrame::discovery(client, PADT, number, &[]));
                    self.remove(client, reason, step);
                }
                PppEvent::Ignored(reason) => step.events.push(PppoeEvent::Ignored(reason)),
            }
        }
        let Some(session) = self.sessions.get_mut(&client) else { return };
        let due = session.link.due();
        if due != session.due {
            if let Some(before) = session.due {
                self.timers.remove(&(before, client));
            }
            session.due = due;
            self.timers.extend(due.map(|due| (due, client)));
        }
    }

    fn remove(&mut self, client: MacAddr, reason: &'static str, step: &mut PppoeStep) {
        let Some(session) = self.sessions.remove(&client) else { return };
        if let Some(due) = session.due {
            self.timers.remove(&(due, client));
        }
        self.clients.remove(&session.address);
        self.changed.push(session.address);
        self.free.push(session.address);
        step.events.push(PppoeEvent::Ended(reason));
    }

    /// An address that no session has.
    fn allot(&mut self, settings: &PppoeServerSettings) -> Option<Ipv4Addr> {
        // Each address is given once before one is given again.
        if self.given < settings.count {
            self.given += 1;
            return Some(Ipv4Addr::from_bits(settings.first.to_bits() + self.given - 1));
        }
        self.free.pop()
    }

    fn cookie(&self, client: MacAddr) -> [u8; 16] {
        Md5::new_with_prefix(self.key.to_be_bytes()).chain_update(client.0).finalize().into()
    }
}

/// The tags that an answer repeats (section 5.2).
fn echo(answer: &mut Vec<u8>, tags: &PppoeTags<'_>) {
    for (kind, tag) in [(HOST_UNIQ, tags.host_uniq), (RELAY_SESSION_ID, tags.relay)] {
        if let Some(tag) = tag {
            push_tag(answer, kind, tag);
        }
    }
}

fn ppp<'a>(cx: &PppoeServerContext<'a>, chance: u64, peer: Ipv4Addr) -> PppContext<'a> {
    let role = PppRole::Server(cx.settings.address, peer);
    PppContext { now: cx.now, chance, number: 0, role, settings: &cx.settings.ppp }
}

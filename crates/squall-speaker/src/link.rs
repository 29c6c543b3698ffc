//! The link layer of routers: addresses, frames around packets, answers to neighbors.

use std::{
    collections::{HashMap, HashSet},
    net::{IpAddr, Ipv6Addr},
};

use squall_host::{
    Answer, Arp, FrameQueue, NeighborCache, NeighborMessage, echo_reply, link_local, solicited_node,
};
use squall_tcp::{ClassId, Output, Tuple};
use squall_units::{Cut, MacAddr, Nanos, be16};

const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;
const TCP: u8 = 6;
const BROADCAST: MacAddr = MacAddr([255; 6]);
const ALL_NODES: MacAddr = MacAddr([0x33, 0x33, 0, 0, 0, 1]);
/// Frames that may wait for the port: TCP waits then, and other sources of the port have room.
pub(crate) const MOST_FRAMES: usize = 512;

/// Own addresses with their MAC addresses, and those of neighbors.
#[derive(Debug, Default)]
pub(crate) struct Link {
    own: HashMap<IpAddr, MacAddr>,
    macs: HashSet<MacAddr>,
    pub neighbors: NeighborCache,
}

/// A received frame.
pub(crate) enum Received<'a> {
    /// A TCP segment to an own address.
    Segment(&'a [u8]),
    /// Handled, or of no interest; whether it was sent to an own MAC address.
    Other { is_own: bool },
}

impl Link {
    /// Adds the addresses of a router.
    pub fn add(&mut self, mac: MacAddr, addresses: impl Iterator<Item = IpAddr>) {
        self.macs.insert(mac);
        for address in addresses {
            self.own.insert(address, mac);
            if address.is_ipv6() {
                self.own.insert(link_local(mac).into(), mac);
            }
        }
    }

    /// Handles a frame: learns the sender, and answers requests for an own address.
    pub fn receive<'a>(
        &mut self,
        now: Nanos,
        frame: &'a [u8],
        out: &mut FrameQueue,
    ) -> Received<'a> {
        let Some((head, packet)) = frame.split_first_chunk::<14>() else {
            return Received::Other { is_own: false };
        };
        let [t0, t1, t2, t3, t4, t5, f0, f1, f2, f3, f4, f5, ..] = *head;
        let (to, from) = (MacAddr([t0, t1, t2, t3, t4, t5]), MacAddr([f0, f1, f2, f3, f4, f5]));
        let is_own = self.macs.contains(&to);
        let other = Received::Other { is_own };
        if !is_own && to.0[0] & 1 == 0 || self.macs.contains(&from) {
            return other;
        }
        match be16(head, 12) {
            ARP => self.receive_arp(now, packet, out),
            IPV6 if let Some(message) = NeighborMessage::parse(packet) => {
                self.receive_neighbor(now, &message, from, out);
            }
            IPV4 | IPV6 if is_own => return self.receive_packet(now, packet, (to, from), out),
            _ => {}
        }
        other
    }

    fn receive_packet<'a>(
        &mut self,
        now: Nanos,
        packet: &'a [u8],
        (to, from): (MacAddr, MacAddr),
        out: &mut FrameQueue,
    ) -> Received<'a> {
        let other = Received::Other { is_own: true };
        let Some((source, destination, protocol)) = ends(packet) else { return other };
        if self.own.get(&destination) != Some(&to) {
            return other;
        }
        if protocol == TCP {
            // Its sender is on the link: answers need no request for its address.
            if self.neighbors.known(source) != Some(from) {
                self.neighbors.learn(source, from);
            }
            return Received::Segment(packet);
        }
        let mut reply = Vec::new();
        if echo_reply(packet, &mut reply) {
            let kind = if source.is_ipv4() { IPV4 } else { IPV6 };
            push(now, (from, to), kind, &reply, out);
        }
        other
    }

    fn receive_arp(&mut self, now: Nanos, packet: &[u8], out: &mut FrameQueue) {
        let Some(arp) = Arp::parse(packet) else { return };
        if !arp.sender.is_unspecified() && !self.own.contains_key(&arp.sender.into()) {
            self.neighbors.learn(arp.sender.into(), arp.sender_mac);
        }
        if let Some(mac) = self.own.get(&arp.target.into()).filter(|_| arp.request) {
            let reply = Arp {
                request: false,
                sender_mac: *mac,
                sender: arp.target,
                target_mac: arp.sender_mac,
                target: arp.sender,
            };
            push(now, (arp.sender_mac, *mac), ARP, &reply.octets(), out);
        }
    }

    fn receive_neighbor(
        &mut self,
        now: Nanos,
        message: &NeighborMessage,
        from: MacAddr,
        out: &mut FrameQueue,
    ) {
        if !message.solicitation {
            if !self.own.contains_key(&message.target.into()) {
                self.neighbors.learn(message.target.into(), message.mac.unwrap_or(from));
            }
            return;
        }
        if !message.source.is_unspecified() {
            self.neighbors.learn(message.source.into(), message.mac.unwrap_or(from));
        }
        if let Some(mac) = self.own.get(&message.target.into()) {
            let (reply, to_one) = message.advertise(*mac);
            let to = if to_one { from } else { ALL_NODES };
            push(now, (to, *mac), IPV6, &reply.octets(), out);
        }
    }

    /// Sends the requests for addresses that are due. Returns whether one was given up.
    pub fn ask(
        &mut self,
        now: Nanos,
        local_of: impl Fn(IpAddr) -> Option<IpAddr>,
        out: &mut FrameQueue,
    ) -> bool {
        let mut any_silent = false;
        while let Some(question) = self.neighbors.question(now) {
            let Ok(address) = question else {
                any_silent = true;
                continue;
            };
            let Some(local) = local_of(address) else { continue };
            let Some(mac) = self.own.get(&local).copied() else { continue };
            match (local, address) {
                (IpAddr::V4(local), IpAddr::V4(address)) => {
                    let request = Arp {
                        request: true,
                        sender_mac: mac,
                        sender: local,
                        target_mac: MacAddr::default(),
                        target: address,
                    };
                    push(now, (BROADCAST, mac), ARP, &request.octets(), out);
                }
                (IpAddr::V6(local), IpAddr::V6(address)) => {
                    let message = NeighborMessage::solicit(local, mac, address);
                    let (_, to) = solicited_node(address);
                    push(now, (to, mac), IPV6, &message.octets(), out);
                }
                _ => {}
            }
        }
        any_silent
    }
}

/// Source, destination and protocol of an IP packet. Extension headers of IPv6 are no protocol that
/// a router here speaks.
fn ends(packet: &[u8]) -> Option<(IpAddr, IpAddr, u8)> {
    match packet.first()? >> 4 {
        4 => {
            let header = packet.first_chunk::<20>()?;
            let address = |at: usize| header[at..].first_chunk::<4>().map(|it| IpAddr::from(*it));
            Some((address(12)?, address(16)?, header[9]))
        }
        6 => {
            let header = packet.first_chunk::<40>()?;
            let address = |at: usize| {
                let octets = header[at..].first_chunk::<16>()?;
                Some(IpAddr::from(Ipv6Addr::from(*octets)))
            };
            Some((address(8)?, address(24)?, header[6]))
        }
        _ => None,
    }
}

fn push(
    due: Nanos,
    (to, from): (MacAddr, MacAddr),
    kind: u16,
    packet: &[u8],
    out: &mut FrameQueue,
) {
    out.push(due, |frame| {
        frame.extend(to.0);
        frame.extend(from.0);
        frame.extend(kind.to_be_bytes());
        frame.extend_from_slice(packet);
    });
}

/// Puts packets of the stack into the queue of the port, with their headers.
pub(crate) struct FrameOutput<'a> {
    link: &'a mut Link,
    queue: &'a mut FrameQueue,
    now: Nanos,
    /// The packet that the stack writes now, and its ends.
    packet: &'a mut Vec<u8>,
    ends: Option<Tuple>,
}

impl<'a> FrameOutput<'a> {
    pub fn new(
        link: &'a mut Link,
        queue: &'a mut FrameQueue,
        now: Nanos,
        packet: &'a mut Vec<u8>,
    ) -> Self {
        Self { link, queue, now, packet, ends: None }
    }

    /// Queues the packet that was written last. One to a neighbor whose MAC address is not known is
    /// dropped: TCP sends it again.
    pub fn flush(&mut self) {
        let Some(ends) = self.ends.take() else { return };
        let Some(from) = self.link.own.get(&ends.local).copied() else { return };
        let Answer::Mac(to) = self.link.neighbors.find(self.now, ends.remote) else { return };
        let kind = if ends.local.is_ipv4() { IPV4 } else { IPV6 };
        push(self.now, (to, from), kind, self.packet, self.queue);
    }
}

impl Output for FrameOutput<'_> {
    fn packet(&mut self, _: ClassId, flow: &Tuple, len: usize, _: Cut) -> Option<&mut [u8]> {
        self.flush();
        if self.queue.len() >= MOST_FRAMES {
            return None;
        }
        self.ends = Some(*flow);
        self.packet.resize(len, 0);
        Some(&mut self.packet[..])
    }
}

//! A host on a link, which answers requests to it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use squall_units::MacAddr;

use crate::{Arp, Echo, NeighborMessage, echo_reply};

pub(crate) const IPV4: u16 = 0x0800;
pub(crate) const ARP: u16 = 0x0806;
pub(crate) const IPV6: u16 = 0x86dd;
const TAGS: [u16; 3] = [0x8100, 0x88a8, 0x9100];
const ALL_NODES: MacAddr = MacAddr([0x33, 0x33, 0, 0, 0, 1]);
/// Ethernet's shortest frame, in octets without FCS.
pub(crate) const MIN_FRAME: usize = 60;

/// A host with one MAC address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    pub mac: MacAddr,
    /// VLAN tags of its frames, outermost first: TPID, then priority and VLAN id.
    pub tags: Vec<(u16, u16)>,
    pub ipv4: Vec<Ipv4Addr>,
    pub ipv6: Vec<Ipv6Addr>,
}

/// How a host reacts to a received frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// Addresses of a sender on the link, if the frame reveals them.
    pub neighbor: Option<(IpAddr, MacAddr)>,
    /// The frame to send in reply.
    pub reply: Option<Vec<u8>>,
    /// The echo request that the frame answers.
    pub echo: Option<Echo>,
}

impl Host {
    /// Processes a received frame.
    pub fn handle(&self, frame: &[u8]) -> Response {
        let Some((destination, source, kind, packet)) = self.parse(frame) else {
            return Response::default();
        };
        match kind {
            ARP => self.handle_arp(packet),
            IPV6 if let Some(message) = NeighborMessage::parse(packet) => {
                self.handle_neighbor(&message, source)
            }
            IPV4 | IPV6 if destination == self.mac && self.has(packet) => {
                let mut reply = Vec::new();
                match echo_reply(packet, &mut reply) {
                    true => Response {
                        reply: Some(self.frame(source, kind, &reply)),
                        ..Response::default()
                    },
                    false => Response { echo: Echo::of_reply(packet), ..Response::default() },
                }
            }
            _ => Response::default(),
        }
    }

    fn handle_arp(&self, packet: &[u8]) -> Response {
        let Some(arp) = Arp::parse(packet) else { return Response::default() };
        let asked = arp.request && self.ipv4.contains(&arp.target);
        let reply = Arp {
            request: false,
            sender_mac: self.mac,
            sender: arp.target,
            target_mac: arp.sender_mac,
            target: arp.sender,
        };
        Response {
            neighbor: Some((arp.sender.into(), arp.sender_mac)),
            reply: asked.then(|| self.frame(arp.sender_mac, ARP, &reply.octets())),
            echo: None,
        }
    }

    fn handle_neighbor(&self, message: &NeighborMessage, source: MacAddr) -> Response {
        if !message.solicitation {
            let mac = message.mac.unwrap_or(source);
            return Response {
                neighbor: Some((message.target.into(), mac)),
                ..Response::default()
            };
        }
        let answer = || {
            let (reply, to_one) = message.advertise(self.mac);
            self.frame(if to_one { source } else { ALL_NODES }, IPV6, &reply.octets())
        };
        let asked = self.ipv6.contains(&message.target);
        Response { reply: asked.then(answer), ..Response::default() }
    }

    /// As [`parse`]; `None` also if the host itself sent the frame.
    fn parse<'a>(&self, frame: &'a [u8]) -> Option<(MacAddr, MacAddr, u16, &'a [u8])> {
        parse(frame, &self.tags).filter(|(_, source, ..)| *source != self.mac)
    }

    /// Makes a frame from this host.
    pub fn frame(&self, to: MacAddr, kind: u16, packet: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        begin_frame(&mut frame, (to, self.mac), &self.tags, kind);
        frame.extend_from_slice(packet);
        frame.resize(frame.len().max(MIN_FRAME), 0);
        frame
    }

    /// Whether an IP packet is addressed to the host.
    fn has(&self, packet: &[u8]) -> bool {
        match packet.first().map(|first| first >> 4) {
            Some(4) => self.ipv4.iter().any(|v4| packet.get(16..20) == Some(&v4.octets())),
            Some(6) => self.ipv6.iter().any(|v6| packet.get(24..40) == Some(&v6.octets())),
            _ => false,
        }
    }
}

/// Destination, source, EtherType and packet of a frame with these VLAN tags; `None` if its tags
/// differ.
pub(crate) fn parse<'a>(
    frame: &'a [u8],
    tags: &[(u16, u16)],
) -> Option<(MacAddr, MacAddr, u16, &'a [u8])> {
    let (head, mut rest) = frame.split_first_chunk::<12>()?;
    let (destination, source) = (head.first_chunk::<6>()?, head.last_chunk::<6>()?);
    let word = |at: &[u8]| Some(u16::from_be_bytes(*at.first_chunk::<2>()?));
    for (_, tag) in tags {
        word(rest).filter(|kind| TAGS.contains(kind))?;
        if word(rest.get(2..)?)? & 0x0fff != tag & 0x0fff {
            return None;
        }
        rest = rest.get(4..)?;
    }
    let kind = word(rest)?;
    Some((MacAddr(*destination), MacAddr(*source), kind, rest.get(2..)?))
}

/// Appends the headers of a frame from `from` to `to`.
pub(crate) fn begin_frame(
    out: &mut Vec<u8>,
    (to, from): (MacAddr, MacAddr),
    tags: &[(u16, u16)],
    kind: u16,
) {
    out.extend_from_slice(&to.0);
    out.extend_from_slice(&from.0);
    for (tpid, tag) in tags {
        out.extend_from_slice(&tpid.to_be_bytes());
        out.extend_from_slice(&tag.to_be_bytes());
    }
    out.extend_from_slice(&kind.to_be_bytes());
}

/// The link-local address derived from a MAC address (RFC 4291 appendix A).
pub fn link_local(mac: MacAddr) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac.0;
    let pair = |high, low| u16::from_be_bytes([high, low]);
    Ipv6Addr::new(0xfe80, 0, 0, 0, pair(a ^ 2, b), pair(c, 0xff), pair(0xfe, d), pair(e, f))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
    const PEER: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

    fn host(tags: Vec<(u16, u16)>) -> Host {
        let ipv6 = vec![link_local(MAC)];
        Host { mac: MAC, tags, ipv4: vec![[10, 0, 0, 1].into()], ipv6 }
    }

    fn peer() -> Host {
        let ipv6 = vec![link_local(PEER)];
        Host { mac: PEER, tags: Vec::new(), ipv4: vec![[10, 0, 0, 9].into()], ipv6 }
    }

    #[test]
    fn a_mac_address_gives_an_address_on_the_link() {
        assert_eq!(link_local(MAC), "fe80::ff:fe00:1".parse::<Ipv6Addr>().unwrap());
    }

    #[test]
    fn a_solicitation_for_its_address_is_answered_and_for_no_other() {
        let ask = |target| {
            let message = NeighborMessage::solicit(link_local(PEER), PEER, target);
            host(Vec::new()).handle(&peer().frame(ALL_NODES, IPV6, &message.octets())).reply
        };
        let reply = ask(link_local(MAC)).expect("an answer");
        let known = peer().handle(&reply).neighbor;
        assert_eq!(known, Some((link_local(MAC).into(), MAC)));
        assert_eq!(ask(link_local(PEER)), None);
    }

    #[test]
    fn an_echo_request_is_answered_in_the_vlan_alone() {
        let echo =
            Echo { source: [10, 0, 0, 9].into(), destination: [10, 0, 0, 1].into(), id: 7, seq: 8 };
        let tagged = host(vec![(0x8100, 7)]);
        let plain = peer().frame(MAC, IPV4, &echo.request());
        assert_eq!(tagged.handle(&plain), Response::default());
        let asks = Host { tags: vec![(0x8100, 7)], ..peer() };
        let reply = tagged.handle(&asks.frame(MAC, IPV4, &echo.request())).reply;
        assert_eq!(asks.handle(&reply.expect("an answer")).echo, Some(echo));
        let other = asks.frame(PEER, IPV4, &echo.request());
        assert_eq!(tagged.handle(&other), Response::default(), "its MAC address is another");
    }
}

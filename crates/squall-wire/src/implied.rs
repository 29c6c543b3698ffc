//! Defaults that depend on inner headers, and warnings about frames that break such a rule:
//! receivers must drop neighbor discovery that could have crossed a router, receive a group only at
//! its address, and recognize ERSPAN only after a GRE sequence number.

use crate::{
    frame::Frame,
    header::{FieldDef, Presence, Proto},
    options::OptionSet,
    packet::{Arg, Content, Opt, Packet, Value},
};

const BROADCAST: u128 = 0xffff_ffff_ffff;
/// 224.0.0.1, 224.0.0.2, 224.0.0.22: all hosts, all routers, routers of IGMPv3.
const ALL_HOSTS: u128 = 0xe000_0001;
const ALL_ROUTERS: u128 = 0xe000_0002;
const REPORTS: u128 = 0xe000_0016;

impl Packet {
    /// The default of `field` in layer `i` that follows from the inner layers; `None`: the header's
    /// own default applies.
    pub(crate) fn implied(&self, i: usize, field: &FieldDef) -> Option<u128> {
        match (self.layers[i].header.proto, field.name) {
            // An ARP request is a broadcast (RFC 826); RFC 1112 §6.4 maps groups to MAC addresses.
            (Proto::Eth, "dst") => {
                let next = (i + 1..self.layers.len())
                    .find(|&i| self.layers[i].header.proto != Proto::Vlan)?;
                match self.layers[next].header.proto {
                    Proto::Arp if self.number(next, "op") == 1 => Some(BROADCAST),
                    Proto::Ipv4 => {
                        self.igmp_in(next)?;
                        let group = self.number(next, "dst");
                        (group >> 28 == 0xe).then_some(0x0100_5e00_0000 | group & 0x7f_ffff)
                    }
                    _ => None,
                }
            }
            // Version 3 uses Internetwork Control (RFC 3376 §4).
            (Proto::Ipv4, "dscp") => {
                let igmp = self.igmp_in(i)?;
                let longer = self.layers.get(igmp + 1).map(|layer| layer.header.name);
                let third = self.number(igmp, "type") == 0x22 || longer == Some("igmp3_query");
                third.then_some(48)
            }
            // RFC 2236 §2, RFC 3376 §4.
            (Proto::Ipv4, "ttl") => self.igmp_in(i).map(|_| 1),
            (Proto::Ipv4, "dst") => {
                let igmp = self.igmp_in(i)?;
                match (self.number(igmp, "type"), self.number(igmp, "group")) {
                    (0x11, 0) => Some(ALL_HOSTS),
                    (0x11 | 0x12 | 0x16, group) if group >> 28 == 0xe => Some(group),
                    (0x17, _) => Some(ALL_ROUTERS),
                    (0x22, _) => Some(REPORTS),
                    _ => None,
                }
            }
            // ERSPAN types II and III require a sequence number in GRE's header
            // (draft-foschiano-erspan-03 §4.2, 4.3). Without one it is type I, which has no header.
            (Proto::Gre, "s") => {
                let inside = self.layers.get(i + 1)?.header.name;
                matches!(inside, "erspan" | "erspan3").then_some(1)
            }
            // An IGMPv3 report has the number of records in this field (RFC 3376 §4.2); by default
            // none follow.
            (Proto::Igmp, "group") => (self.number(i, "type") == 0x22).then_some(0),
            // RFC 4861 §4, RFC 2710 §3, RFC 3810 §5.
            (Proto::Ipv6, "hop_limit") => {
                let extends = |proto| {
                    matches!(
                        proto,
                        Proto::HopOpts | Proto::DstOpts | Proto::Routing | Proto::Fragment
                    )
                };
                let next =
                    (i + 1..self.layers.len()).find(|&i| !extends(self.layers[i].header.proto))?;
                if self.layers[next].header.proto != Proto::Icmpv6 {
                    return None;
                }
                match self.number(next, "type") {
                    133..=137 => Some(255),
                    130..=132 | 143 => Some(1),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// Removes values that [`implied`](Self::implied) would provide. Inner layers first, because
    /// outer values depend on them.
    pub(crate) fn forget_implied(&mut self) {
        for i in (0..self.layers.len()).rev() {
            for name in ["dst", "ttl", "hop_limit", "group", "dscp", "s"] {
                let Some((index, field)) = self.layers[i].header.field(name) else { continue };
                let usual = Value::Number(self.implied(i, field).unwrap_or(field.default));
                if let Content::Fields(set) = &mut self.layers[i].content {
                    set.retain(|(other, value)| *other != index || *value != usual);
                }
            }
            let usual = Value::Options(self.implied_options(i));
            if let Content::Fields(set) = &mut self.layers[i].content {
                set.retain(|(_, value)| *value != usual);
            }
        }
    }

    /// The default options of layer `i`: IGMPv2 and IGMPv3 carry Router Alert (RFC 2236 §2, RFC
    /// 3376 §4).
    pub(crate) fn implied_options(&self, i: usize) -> Vec<Opt> {
        let usual = self.layers[i].header.usual;
        if !usual.is_empty() {
            return crate::syntax::usual_options(self.layers[i].header, usual);
        }
        let alerts = self.igmp_in(i).is_some_and(|igmp| self.number(igmp, "type") != 0x12);
        let def = OptionSet::Ipv4.defs().iter().find(|def| def.name == "router-alert");
        def.filter(|_| alerts)
            .map(|def| Opt::Known(def, vec![Arg::Number(0)]))
            .into_iter()
            .collect()
    }

    /// The index of the IGMP layer directly inside the IPv4 header in layer `i`.
    fn igmp_in(&self, i: usize) -> Option<usize> {
        let proto = |i: usize| self.layers.get(i).map(|layer| layer.header.proto);
        (proto(i) == Some(Proto::Ipv4) && proto(i + 1) == Some(Proto::Igmp)).then_some(i + 1)
    }

    /// The value with which a field in layer `i` is built.
    fn number(&self, i: usize, name: &str) -> u128 {
        match self.layers[i].value_of(name) {
            Some(Value::Number(number)) => *number,
            // A field that only one type has determines the type.
            _ if name == "type"
                && let Some(Presence::FirstOctet(types)) = self.layers[i]
                    .set()
                    .map(|(field, _)| field.presence)
                    .find(|presence| matches!(presence, Presence::FirstOctet(_))) =>
            {
                types[0].into()
            }
            _ => {
                let (_, field) =
                    self.layers[i].header.field(name).expect("the table has the field");
                self.implied(i, field).unwrap_or(field.default)
            }
        }
    }
}

/// Reasons why receivers would drop the frame as invalid, each with a suggestion; empty for a frame
/// that obeys the rules above.
///
/// ```
/// # use squall_wire::{Packet, warnings};
/// let packet = Packet::parse("eth/ipv4(ttl=64)/igmp").unwrap();
/// let frame = packet.build(None, &|_| unreachable!(), 0).unwrap();
/// assert!(warnings(&frame)[0].ends_with("try ttl=1"));
/// ```
pub fn warnings(frame: &Frame) -> Vec<String> {
    let at = |i: usize| frame.layers.get(i);
    let octet = |i: usize, offset: usize| {
        at(i).and_then(|layer| frame.bytes.get(layer.offset + offset)).copied()
    };
    let mut warnings = Vec::new();
    for (i, layer) in frame.layers.iter().enumerate() {
        let next = at(i + 1).map(|layer| layer.header.proto);
        match (layer.header.proto, next) {
            (Proto::Ipv4, Some(Proto::Igmp)) => match octet(i, 8) {
                Some(ttl) if ttl != 1 => {
                    warnings.push(format!(
                        "IGMP with a TTL of {ttl} is invalid (RFC 2236 §2): receivers may drop \
                         it; try ttl=1"
                    ));
                }
                _ => {}
            },
            (Proto::Ipv6, Some(Proto::Icmpv6)) => match (octet(i + 1, 0), octet(i, 7)) {
                (Some(133..=137), Some(limit)) if limit != 255 => warnings.push(format!(
                    "neighbor discovery with a hop limit of {limit} is invalid (RFC 4861 §7): \
                     receivers drop it; try hop_limit=255"
                )),
                _ => {}
            },
            _ => {}
        }
        let to_a_group = match (layer.header.proto, next) {
            (Proto::Eth, Some(Proto::Ipv4)) => {
                octet(i + 1, 16).is_some_and(|octet| octet >> 4 == 0xe)
            }
            (Proto::Eth, Some(Proto::Ipv6)) => octet(i + 1, 24) == Some(0xff),
            _ => false,
        };
        if to_a_group && octet(i, 0).is_some_and(|octet| octet & 1 == 0) {
            warnings.push(
                "a packet to a multicast group in a frame to a unicast MAC address is invalid \
                 (RFC 1112 §6.4, RFC 2464 §7): receivers may drop it; try eth(dst=01:00:5e:...) \
                 or eth(dst=33:33:...)"
                    .into(),
            );
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(text: &str) -> Frame {
        let none = |_: &str| unreachable!("no file is named");
        Packet::parse(text).unwrap().build(None, &none, 0).unwrap()
    }

    fn octets(text: &str) -> Vec<u8> {
        built(text).bytes
    }

    #[test]
    fn outer_headers_have_the_values_that_a_protocol_requires() {
        for (short, long) in [
            ("eth/arp", "eth(dst=ff:ff:ff:ff:ff:ff)/arp"),
            ("eth/vlan/arp(op=request)", "eth(dst=ff:ff:ff:ff:ff:ff)/vlan/arp"),
            (
                "eth/ipv4/igmp(group=239.129.2.3)",
                "eth(dst=01:00:5e:01:02:03)/ipv4(ttl=1,dst=239.129.2.3,options=[router-alert(0)])/\
                 igmp(group=239.129.2.3)",
            ),
            (
                "eth/ipv4/igmp(type=query,group=0.0.0.0)",
                "eth(dst=01:00:5e:00:00:01)/ipv4(ttl=1,dst=224.0.0.1,options=[router-alert(0)])/\
                 igmp(type=query,group=0.0.0.0)",
            ),
            (
                "eth/ipv4/igmp(type=leave)",
                "eth(dst=01:00:5e:00:00:02)/ipv4(ttl=1,dst=224.0.0.2,options=[router-alert(0)])/\
                 igmp(type=leave)",
            ),
            (
                "eth/ipv4/igmp(type=v3-report)",
                "eth(dst=01:00:5e:00:00:16)/ipv4(dscp=cs6,ttl=1,dst=224.0.0.22,options=[router-alert(0)])/\
                 igmp(type=v3-report,group=0.0.0.0)",
            ),
            (
                "eth/ipv4/igmp(type=v1-report,group=224.0.0.9)",
                "eth(dst=01:00:5e:00:00:09)/ipv4(ttl=1,dst=224.0.0.9,options=[])/\
                 igmp(type=v1-report,group=224.0.0.9)",
            ),
            (
                "eth/ipv6/icmpv6(type=neighbor-solicit)",
                "eth/ipv6(hop_limit=255)/icmpv6(type=neighbor-solicit)",
            ),
            (
                "eth/ipv6/hopopts/icmpv6(type=mld-report)",
                "eth/ipv6(hop_limit=1)/hopopts/icmpv6(type=mld-report)",
            ),
            ("eth/ipv4/gre/erspan/eth/ipv4/udp", "eth/ipv4/gre(seq=0)/erspan/eth/ipv4/udp"),
            ("eth/ipv4/gre(key=7)/erspan3/eth", "eth/ipv4/gre(key=7,s=1)/erspan3/eth"),
        ] {
            assert_eq!(octets(short), octets(long), "{short}");
            assert_eq!(warnings(&built(short)), Vec::<String>::new(), "{short}");
        }
        // Explicit values do not change, and other packets keep their defaults.
        let set = octets("eth(dst=02:00:00:00:00:09)/ipv4(ttl=64,dst=10.0.0.1,options=[])/igmp");
        assert_eq!(
            (&set[..6], set[14], set[22], &set[30..34]),
            (&[2, 0, 0, 0, 0, 9][..], 0x45, 64, &[10, 0, 0, 1][..])
        );
        assert_eq!(octets("eth/ipv6/icmpv6(type=echo-request)")[21], 64);
        assert_eq!(octets("eth/ipv4/gre(s=0)/erspan/eth")[34..40], [0, 0, 0x88, 0xbe, 0x10, 0]);
        assert_eq!(octets("eth/ipv4/gre/ipv4/udp")[34..38], [0, 0, 8, 0]);
        assert_ne!(octets("eth/arp(op=reply)")[..6], [0xff; 6]);
    }

    #[test]
    fn implied_values_are_not_in_a_frames_text() {
        for (packet, text) in [
            ("eth/ipv4/gre/erspan/eth/ipv4/udp", "gre(seq=0)/erspan/"),
            ("eth/ipv4/gre(seq=9)/erspan3/eth/ipv4/udp", "gre(seq=9)/erspan3/"),
            ("eth/ipv4/gre(s=0)/erspan/eth/ipv4/udp", "gre(s=0)/erspan/"),
        ] {
            let octets = octets(packet);
            let read = Packet::of_frame(&octets).unwrap();
            assert!(read.to_string().contains(text), "{read}");
            assert_eq!(built(&read.to_string()).bytes, octets, "{read}");
        }
    }

    #[test]
    fn frames_that_receivers_drop_give_a_warning() {
        for (text, expected) in [
            ("eth/ipv4(ttl=64)/igmp", "TTL of 64"),
            ("eth/ipv6(hop_limit=64)/icmpv6(type=neighbor-advert)", "hop limit of 64"),
            ("eth/ipv4(dst=239.1.2.3)/udp", "in a frame to a unicast MAC address"),
            ("eth/ipv6(dst=ff02::1)/udp", "in a frame to a unicast MAC address"),
        ] {
            let found = warnings(&built(text));
            assert!(found.len() == 1 && found[0].contains(expected), "{text}: {found:?}");
        }
        for text in [
            "eth/ipv4/udp",
            "eth(dst=01:00:5e:01:02:03)/ipv4(dst=239.1.2.3)/udp",
            "eth",
            "eth/ipv6/tcp",
        ] {
            assert_eq!(warnings(&built(text)), Vec::<String>::new(), "{text}");
        }
    }
}

//! Observes the link of a router: counts the packets of OSPF and IS-IS, and keeps the LSAs and LSPs
//! that it receives.
//!
//! BIRD counts no packets and does not show the octets of LSAs, and FRR's JSON of a database mixes
//! LSPs. All their frames pass through Squall, so the link knows better. Frames are untagged.

pub mod fragments;
pub mod lsdb;
pub mod senders;

/// A protocol whose packets are observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Ospf2,
    Ospf3,
    Isis,
}

const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
/// Protocol number of OSPF (RFC 2328 section 4.3).
const OSPF: u8 = 89;
/// The header of LLC in a frame of IS-IS, and the discriminator of its protocol (ISO/IEC 10589).
const ISIS: [u8; 4] = [0xfe, 0xfe, 0x03, 0x83];

impl Protocol {
    /// The packet of this protocol in `frame`; `None`: it has none, or a fragment of one.
    pub fn packet(self, frame: &[u8]) -> Option<&[u8]> {
        let rest = frame.get(14..)?;
        let word =
            |at: usize| rest.get(at..at + 2).map(|it| usize::from(it[0]) << 8 | usize::from(it[1]));
        match self {
            Self::Ospf2 => {
                let header = 4 * usize::from(rest.first()? & 15);
                let is_whole = word(6)? & 0x3fff == 0;
                let is_of_protocol =
                    frame[12..14] == IPV4 && rest.get(9) == Some(&OSPF) && is_whole;
                // Short frames are padded, so the packet has its own length.
                let packet = rest.get(header..word(2)?.min(rest.len()))?;
                is_of_protocol.then_some(packet)
            }
            Self::Ospf3 => {
                let is_of_protocol = frame[12..14] == IPV6 && rest.get(6) == Some(&OSPF);
                let packet = rest.get(40..(40 + word(4)?).min(rest.len()))?;
                is_of_protocol.then_some(packet)
            }
            Self::Isis => {
                let length = usize::from(frame[12]) << 8 | usize::from(frame[13]);
                let is_of_protocol = length <= 1_500 && rest.get(..4) == Some(&ISIS);
                let packet = rest.get(3..length.min(rest.len()))?;
                is_of_protocol.then_some(packet)
            }
        }
    }
}

/// Packets of OSPF in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OspfCounts {
    /// By their type: hello, database description, request, update, acknowledgment.
    pub packets: [u64; 5],
    /// LSAs in updates, and headers in acknowledgments.
    pub lsas: u64,
    pub acknowledged: u64,
    /// LSAs in updates by their type (RFC 2328 section A.4.1, RFC 5250), or function code (RFC 5340
    /// section A.4.2.1).
    pub kinds: [u64; 12],
}

impl OspfCounts {
    pub fn count(&mut self, packet: &[u8]) {
        let Some(kind) = packet.get(1).filter(|kind| (1..=5).contains(*kind)) else { return };
        self.packets[usize::from(*kind) - 1] += 1;
        for lsa in Lsas::of(packet) {
            self.lsas += 1;
            if let Some(count) = self.kinds.get_mut(usize::from(lsa.kind)) {
                *count += 1;
            }
        }
        if *kind == 5
            && let Some(headers) = packet.get(body(packet)..)
        {
            self.acknowledged += (headers.len() / LSA_HEADER) as u64;
        }
    }
}

/// Octets of the header of an LSA, in both versions.
const LSA_HEADER: usize = 20;

/// Octets of the header of a packet.
fn body(packet: &[u8]) -> usize {
    if packet.first() == Some(&3) { 16 } else { 24 }
}

/// An LSA in an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lsa<'a> {
    /// Its type, or function code.
    pub kind: u8,
    /// With its header.
    pub octets: &'a [u8],
}

/// The LSAs of an update; none in other packets.
pub struct Lsas<'a> {
    rest: &'a [u8],
    is_v3: bool,
    left: u32,
}

impl<'a> Lsas<'a> {
    pub fn of(packet: &'a [u8]) -> Self {
        let is_v3 = packet.first() == Some(&3);
        let update = packet.get(body(packet)..).filter(|_| packet.get(1) == Some(&4));
        let parts = update.and_then(|update| update.split_first_chunk::<4>());
        let (left, rest) =
            parts.map_or((0, &[][..]), |(left, rest)| (u32::from_be_bytes(*left), rest));
        Self { rest, is_v3, left }
    }
}

impl<'a> Iterator for Lsas<'a> {
    type Item = Lsa<'a>;

    fn next(&mut self) -> Option<Lsa<'a>> {
        self.left = self.left.checked_sub(1)?;
        let length = self.rest.get(18..20)?;
        let length = usize::from(length[0]) << 8 | usize::from(length[1]);
        let (octets, rest) = self.rest.split_at_checked(length.max(LSA_HEADER))?;
        self.rest = rest;
        // In version 3, the upper bits are flags, and no code above 255 is assigned.
        let code =
            if self.is_v3 { (octets[2] & 0x1f == 0).then_some(octets[3]) } else { Some(octets[3]) };
        Some(Lsa { kind: code.unwrap_or(0), octets })
    }
}

/// Packets of IS-IS in one direction, of level 1 and of level 2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IsisCounts {
    pub broadcast_hellos: [u64; 2],
    pub point_to_point_hellos: [u64; 2],
    pub lsps: [u64; 2],
    pub csnps: [u64; 2],
    pub psnps: [u64; 2],
}

impl IsisCounts {
    pub fn count(&mut self, packet: &[u8]) {
        let Some(kind) = packet.get(4).map(|kind| kind & 31) else { return };
        let of = match kind {
            15 | 16 => &mut self.broadcast_hellos,
            18 | 20 => &mut self.lsps,
            24 | 25 => &mut self.csnps,
            26 | 27 => &mut self.psnps,
            17 => {
                // One hello is for all levels of the circuit.
                let levels = packet.get(8).map_or(0, |levels| levels & 3);
                self.point_to_point_hellos[0] += u64::from(levels & 1);
                self.point_to_point_hellos[1] += u64::from(levels >> 1);
                return;
            }
            _ => return,
        };
        let level = usize::from(matches!(kind, 16 | 20 | 25 | 27));
        of[level] += 1;
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// An update of OSPFv2 with LSAs of these types and lengths.
    pub fn update(lsas: &[(u8, usize)]) -> Vec<u8> {
        let mut packet = vec![0; 24];
        (packet[0], packet[1]) = (2, 4);
        packet.extend((lsas.len() as u32).to_be_bytes());
        for (kind, length) in lsas {
            let mut lsa = vec![0; *length];
            lsa[3] = *kind;
            lsa[18..20].copy_from_slice(&(*length as u16).to_be_bytes());
            packet.extend(lsa);
        }
        packet
    }

    fn frame(ethertype: [u8; 2], rest: &[u8]) -> Vec<u8> {
        [&[2; 12][..], &ethertype, rest].concat()
    }

    #[test]
    fn a_packet_is_found_by_its_own_length() {
        let mut ipv4 = vec![0; 20];
        (ipv4[0], ipv4[3], ipv4[9]) = (0x45, 22, OSPF);
        ipv4.extend([2, 1, 0, 0, 0]);
        let of = |octets: &[u8]| Protocol::Ospf2.packet(octets).map(<[u8]>::to_vec);
        assert_eq!(of(&frame(IPV4, &ipv4)), Some(vec![2, 1]));
        assert_eq!(of(&frame(IPV6, &ipv4)), None);
        let mut fragment = frame(IPV4, &ipv4);
        fragment[14 + 7] = 1;
        assert_eq!(of(&fragment), None, "it has no header of OSPF");
        (fragment[14 + 6], fragment[14 + 7]) = (0x20, 0);
        assert_eq!(of(&fragment), None, "it is not whole");
        let mut ipv6 = vec![0; 40];
        (ipv6[5], ipv6[6]) = (2, OSPF);
        ipv6.extend([3, 1, 0]);
        assert_eq!(Protocol::Ospf3.packet(&frame(IPV6, &ipv6)), Some(&[3, 1][..]));
        let pdu = [&ISIS[..], &[1, 2, 3], &[0; 9]].concat();
        assert_eq!(Protocol::Isis.packet(&frame([0, 7], &pdu)), Some(&[0x83, 1, 2, 3][..]));
        for cut in 0..30 {
            for protocol in [Protocol::Ospf2, Protocol::Ospf3, Protocol::Isis] {
                let short = &frame(IPV4, &ipv4)[..cut];
                assert_eq!(protocol.packet(short).map_or(0, <[u8]>::len), 0, "{cut}");
            }
        }
    }

    #[test]
    fn packets_and_lsas_are_counted_by_kind() {
        let mut counts = OspfCounts::default();
        let packet = update(&[(1, 36), (5, 36), (5, 36)]);
        counts.count(&packet);
        counts.count(&packet[..packet.len() - 1]);
        for kind in 0..8 {
            counts.count(&[2, kind]);
        }
        counts.count(&[[2, 5].as_slice(), &[0; 22 + 40]].concat());
        // The third LSA of the second update is cut off.
        assert_eq!(counts.packets, [1, 1, 1, 3, 2]);
        assert_eq!((counts.lsas, counts.acknowledged), (5, 2));
        assert_eq!((counts.kinds[1], counts.kinds[5]), (2, 3));

        let mut v3 = OspfCounts::default();
        let mut packet = vec![0; 16];
        (packet[0], packet[1]) = (3, 4);
        let lsas = update(&[(9, 20), (4, 20)]).split_off(24);
        packet.extend(lsas);
        packet[16 + 4 + 2] = 0x20;
        v3.count(&packet);
        assert_eq!((v3.lsas, v3.kinds[9], v3.kinds[4]), (2, 1, 1));
    }

    #[test]
    fn an_update_that_promises_more_lsas_than_it_has_ends() {
        let mut packet = update(&[(1, 20)]);
        packet[24..28].copy_from_slice(&u32::MAX.to_be_bytes());
        assert_eq!(Lsas::of(&packet).count(), 1);
        // A length below that of the header.
        packet[28 + 19] = 3;
        assert_eq!(Lsas::of(&packet).map(|lsa| lsa.octets.len()).collect::<Vec<_>>(), [20]);
    }

    #[test]
    fn packets_of_is_is_are_counted_at_their_level() {
        let mut counts = IsisCounts::default();
        for (kind, levels) in [
            (15, 0),
            (16, 0),
            (16, 0),
            (17, 3),
            (17, 2),
            (18, 0),
            (20, 0),
            (24, 0),
            (27, 0),
            (9, 0),
        ] {
            counts.count(&[0x83, 27, 1, 0, kind, 1, 0, 0, levels]);
        }
        counts.count(&[0x83]);
        let expected = IsisCounts {
            broadcast_hellos: [1, 2],
            point_to_point_hellos: [1, 2],
            lsps: [1, 1],
            csnps: [1, 0],
            psnps: [0, 1],
        };
        assert_eq!(counts, expected);
    }
}

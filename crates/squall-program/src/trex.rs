//! How TRex recognizes the frames of its streams: a header at the end, or a mark in the IP header.
//!
//! Streams with latency end with TRex's `flow_stat_payload_header` instead of a signature: 16
//! octets, little-endian: magic 0xab (8 bits), flow_seq (8), hw_id (16), seq (32), time_stamp (64).
//! Because it has no checksum, a receiver accepts it only if a stream of the run has its hw_id.
//!
//! Other streams with statistics carry a mark: the IPv4 identification and the lowest bit of the
//! type of service; in IPv6 the flow label and the lowest bit of the traffic class. It needs no
//! payload and identifies only the packet group.

use std::{
    ops::Range,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
};

use squall_units::{TREX_GROUPS, TREX_HW_IDS, TREX_MAGIC, TrexMark};
use squall_wire::{Frame, checksum};

/// TRex begins just below 2^32: the counter wraps early, so that errors in handling the wrap show
/// at once.
const FIRST_SEQUENCE: u32 = u32::MAX - 1;

/// A parsed header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub mark: TrexMark,
    /// Index of the frame in its stream, modulo 2^32.
    pub sequence: u32,
    /// Time on the sender's clock: in nanoseconds from Squall, in CPU ticks from TRex.
    pub time: u64,
}

impl Header {
    /// The header as two big-endian halves, like a signature.
    #[inline]
    pub fn halves(self) -> (u64, u64) {
        let sequence = self.sequence.wrapping_add(FIRST_SEQUENCE);
        let TrexMark { hw_id, flow_seq } = self.mark;
        let high = u64::from(TREX_MAGIC) | u64::from(flow_seq) << 8 | u64::from(hw_id) << 16;
        ((high | u64::from(sequence) << 32).swap_bytes(), self.time.swap_bytes())
    }

    /// Reads the header at the end of `frame` (octets without FCS).
    #[inline]
    pub fn read(frame: &[u8]) -> Option<Self> {
        let octets = u128::from_le_bytes(*frame.last_chunk()?);
        let hw_id = (octets >> 16) as u16;
        if octets as u8 != TREX_MAGIC || hw_id >= TREX_HW_IDS {
            return None;
        }
        Some(Self {
            mark: TrexMark { hw_id: hw_id as u8, flow_seq: (octets >> 8) as u8 },
            sequence: ((octets >> 32) as u32).wrapping_sub(FIRST_SEQUENCE),
            time: (octets >> 64) as u64,
        })
    }
}

/// The mark of a packet group, or the common mark of all streams with latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark(u16);

/// Marks of groups. TRex counts from 0xff00 because its NIC filters match the upper octet; further
/// groups use the rest of the range that it reserves.
const GROUPS: Range<u16> = 0xff00..0xffff;
const MORE_GROUPS: u16 = u16::MAX - TREX_GROUPS;

impl Mark {
    pub const LATENCY: Self = Self(u16::MAX);

    /// The mark of a packet group.
    ///
    /// # Panics
    /// If `number` is not below [`TREX_GROUPS`].
    pub fn of_group(number: u16) -> Self {
        assert!(number < TREX_GROUPS, "a number below {TREX_GROUPS}");
        match GROUPS.len() as u16 {
            few if number < few => Self(GROUPS.start + number),
            few => Self(MORE_GROUPS + number - few),
        }
    }

    /// The number of the packet group.
    #[inline]
    pub fn group(self) -> Option<u16> {
        match self.0 {
            id if GROUPS.contains(&id) => Some(id - GROUPS.start),
            id @ MORE_GROUPS..0xff00 => Some(id - MORE_GROUPS + GROUPS.len() as u16),
            _ => None,
        }
    }

    /// Reads the mark of an IP packet.
    #[inline]
    pub fn read(packet: &[u8]) -> Option<Self> {
        let &[version, class, high, low, id @ ..]: &[u8; 6] = packet.first_chunk()?;
        match version >> 4 {
            4 if class & 1 == 1 => Some(Self(u16::from_be_bytes(id))),
            6 if class & V6_MASK == V6_BIT => Some(Self(u16::from_be_bytes([high, low]))),
            _ => None,
        }
    }
}

/// The lowest bit of the traffic class. The other bits in its octet belong to the flow label, and
/// are 0 in a mark.
const V6_BIT: u8 = 0x10;
const V6_MASK: u8 = 0x1f;

/// Headers between Ethernet and IP that receivers parse.
const BEFORE_IP: [&str; 4] = ["vlan", "mpls", "pppoe", "ppp"];

/// The position of a mark: in the outermost IP header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkPlace {
    ip: usize,
    /// Length of the header.
    len: usize,
    v6: bool,
}

impl MarkPlace {
    /// `None` if no IP header follows the tags that receivers parse.
    pub fn of(frame: &Frame) -> Option<Self> {
        let known = |layer: &&squall_wire::LayerAt| BEFORE_IP.contains(&layer.header.name);
        let (ethernet, layers) = frame.layers.split_first()?;
        let layer = layers.iter().find(|layer| !known(layer))?;
        if ethernet.header.name != "eth" {
            return None;
        }
        let v6 = match layer.header.name {
            "ipv4" => false,
            "ipv6" => true,
            _ => return None,
        };
        Some(Self { ip: layer.offset, len: layer.len, v6 })
    }

    /// Writes the mark into `frame`, and updates the checksum of an IPv4 header.
    pub fn write(self, frame: &mut [u8], Mark(id): Mark) {
        let packet = &mut frame[self.ip..self.ip + self.len];
        if self.v6 {
            packet[1] = packet[1] & !V6_MASK | V6_BIT;
            packet[2..4].copy_from_slice(&id.to_be_bytes());
            return;
        }
        packet[1] |= 1;
        packet[4..6].copy_from_slice(&id.to_be_bytes());
        packet[10..12].fill(0);
        let sum = !checksum::fold(checksum::sum(packet));
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
    }

    /// Whether any of these bits, counted from the start of the frame, belongs to the mark.
    pub fn overlaps(self, bits: &Range<usize>) -> bool {
        let first = self.ip * 8;
        let own = if self.v6 { [11..16, 16..32] } else { [15..16, 32..48] };
        own.iter().any(|own| bits.start < first + own.end && first + own.start < bits.end)
    }
}

/// Maps hw_ids and packet groups to streams: written when streams are added, read by all receivers.
#[derive(Debug)]
pub struct HwIds {
    headers: [AtomicU32; TREX_HW_IDS as usize],
    groups: [AtomicU32; TREX_GROUPS as usize],
    /// Whether any stream has a mark. If none has, receivers skip the search.
    marks: AtomicBool,
}

/// Marks a number that no stream has.
const FREE: u32 = u32::MAX;

impl Default for HwIds {
    fn default() -> Self {
        Self {
            headers: [const { AtomicU32::new(FREE) }; TREX_HW_IDS as usize],
            groups: [const { AtomicU32::new(FREE) }; TREX_GROUPS as usize],
            marks: AtomicBool::new(false),
        }
    }
}

impl HwIds {
    pub fn set(&self, hw_id: u8, stream: u16) {
        self.headers[usize::from(hw_id)].store(stream.into(), Ordering::Relaxed);
    }

    #[inline]
    pub fn stream(&self, hw_id: u8) -> Option<u16> {
        u16::try_from(self.headers[usize::from(hw_id)].load(Ordering::Relaxed)).ok()
    }

    pub fn set_group(&self, number: u16, stream: u16) {
        self.groups[usize::from(number)].store(stream.into(), Ordering::Relaxed);
        self.marks.store(true, Ordering::Relaxed);
    }

    /// Whether any stream is recognized by its mark.
    #[inline]
    pub fn has_groups(&self) -> bool {
        self.marks.load(Ordering::Relaxed)
    }

    #[inline]
    pub fn stream_of_group(&self, number: u16) -> Option<u16> {
        u16::try_from(self.groups[usize::from(number)].load(Ordering::Relaxed)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn octets(header: Header) -> Vec<u8> {
        let (high, low) = header.halves();
        [high.to_be_bytes(), low.to_be_bytes()].concat()
    }

    #[test]
    fn octets_are_those_of_the_structure() {
        // Written by hand according to TRex's trex_stl_fs.h. In the third frame seq has wrapped to
        // 0.
        let mark = TrexMark { hw_id: 5, flow_seq: 2 };
        let time = 0x0102_0304_0506_0708;
        assert_eq!(
            octets(Header { mark, sequence: 2, time }),
            [0xab, 2, 5, 0, 0, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1]
        );
        assert_eq!(octets(Header { mark, sequence: 0, time })[4..8], [0xfe, 0xff, 0xff, 0xff]);
    }

    #[test]
    fn a_header_that_was_written_is_read() {
        for k in 0..1000u64 {
            let r = squall_units::mix(3, k);
            let mark = TrexMark { hw_id: r as u8 & 127, flow_seq: (r >> 8) as u8 };
            let header = Header { mark, sequence: (r >> 32) as u32, time: squall_units::mix(4, k) };
            assert_eq!(Header::read(&octets(header)), Some(header));
        }
    }

    fn frame(text: &str) -> Frame {
        let packet = squall_wire::Packet::parse(text).unwrap();
        packet.build(None, &|_| unreachable!(), 0).unwrap()
    }

    #[test]
    fn each_group_has_a_mark_of_its_own_in_the_range_that_trex_reserves() {
        let ids: Vec<u16> = (0..TREX_GROUPS).map(|group| Mark::of_group(group).0).collect();
        assert_eq!((ids[0], ids[254], ids[255], ids[1022]), (0xff00, 0xfffe, 0xfc00, 0xfeff));
        for (group, id) in (0..).zip(&ids) {
            assert_eq!(Mark(*id).group(), Some(group));
        }
        assert_eq!([0xfbff, 0xffff].map(|id| Mark(id).group()), [None, None]);
    }

    #[test]
    fn a_mark_that_was_written_is_read_and_the_checksum_is_right() {
        for (text, at, octets) in [
            ("eth/ipv4(tos=4,id=7)/tcp", 14, [0x45, 5, 0, 40, 0xff, 3]),
            ("eth/vlan/vlan/ipv4/udp", 22, [0x45, 1, 0, 28, 0xff, 3]),
            ("eth/mpls/ipv4/udp", 18, [0x45, 1, 0, 28, 0xff, 3]),
            // The flow label loses its upper 4 bits.
            (
                "eth/ipv6(traffic_class=0x20,flow_label=0xabcde)/udp",
                14,
                [0x62, 0x10, 0xff, 3, 0, 8],
            ),
        ] {
            let mut frame = frame(text);
            frame.fill_checksums();
            let place = MarkPlace::of(&frame).expect(text);
            place.write(&mut frame.bytes, Mark::of_group(3));
            assert_eq!(frame.bytes[at..at + 6], octets, "{text}");
            assert_eq!(Mark::read(&frame.bytes[at..]), Some(Mark::of_group(3)), "{text}");
            // `dissect` lists only correct checksums.
            let listed = Frame::dissect(frame.bytes.clone()).checksums;
            assert_eq!(listed.len(), frame.checksums.len(), "{text}");
        }
        assert_eq!(Mark::read(&[0x45, 0, 0, 40, 0xff, 3]), None, "without the bit");
        assert_eq!(Mark::read(&[0x60, 0x1f, 0xff, 3, 0, 8]), None, "another flow label");
        assert_eq!(Mark::read(&[0x45, 1, 0, 40, 0xff]), None, "cut");
        for text in ["eth", "eth/arp", "eth/mpls/eth/ipv4/udp"] {
            assert_eq!(MarkPlace::of(&frame(text)), None, "{text}");
        }
    }

    #[test]
    fn fields_that_vary_are_found_to_overlap_a_mark() {
        let overlaps = |text: &str, name: &str| {
            let frame = frame(text);
            let field = frame.field(name).unwrap();
            MarkPlace::of(&frame).unwrap().overlaps(&(field.bit..field.bit + field.bits))
        };
        for (text, names, expected) in [
            ("eth/vlan/ipv4/udp", ["ipv4.id", "ipv4.tos"], true),
            ("eth/vlan/ipv4/udp", ["ipv4.length", "ipv4.dst"], false),
            ("eth/ipv6/udp", ["ipv6.flow_label", "ipv6.traffic_class"], true),
            ("eth/ipv6/udp", ["ipv6.length", "ipv6.src"], false),
        ] {
            for name in names {
                assert_eq!(overlaps(text, name), expected, "{text}: {name}");
            }
        }
    }

    #[test]
    fn another_magic_or_hw_id_is_no_header() {
        let mut good =
            octets(Header { mark: TrexMark { hw_id: 127, flow_seq: 1 }, sequence: 0, time: 0 });
        assert!(Header::read(&good).is_some());
        good[2] = 128;
        assert_eq!(Header::read(&good), None);
        good[..3].copy_from_slice(&[0xaa, 1, 127]);
        assert_eq!(Header::read(&good), None);
        assert_eq!(Header::read(&good[1..]), None);
    }
}

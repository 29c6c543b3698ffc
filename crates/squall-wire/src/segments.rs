//! Segmentation of GSO frames (one TCP segment, or a run of UDP datagrams, with more payload than a
//! frame can hold), as performed by a NIC or the kernel.

use squall_units::{be16, be32};

use crate::{
    checksum,
    tcp_flags::{CWR, FIN, PSH},
};

const ETHERNET: usize = 14;
const IPV6: usize = 40;
const UDP: usize = 8;

/// The frames into which a GSO frame is segmented, octet for octet as by Linux. Lengths and
/// checksums are computed for each frame, TCP sequence numbers advance, IPv4 identifications are
/// incremented, FIN and PSH are set only in the last frame, CWR only in the first. All other fields
/// are copied.
#[derive(Clone, Copy, Debug)]
pub struct Segments<'a> {
    octets: &'a [u8],
    size: usize,
    network: usize,
    transport: usize,
    payload: usize,
}

impl<'a> Segments<'a> {
    /// `octets` (without FCS) are Ethernet, any VLAN tags, IPv4 or IPv6, and TCP or UDP with its
    /// header from octet `transport` to `payload`. Each frame takes the next `size` octets of
    /// payload.
    ///
    /// # Panics
    /// If the offsets are inconsistent or outside of the frame, or `size` is 0.
    pub fn new(octets: &'a [u8], size: usize, transport: usize, payload: usize) -> Self {
        let tagged = |at: usize| matches!(octets[at - 2..at], [0x81, 0x00] | [0x88, 0xa8]);
        let mut network = ETHERNET;
        while tagged(network) {
            network += 4;
        }
        assert!(size > 0, "a segment has payload");
        assert!(
            network + 20 <= transport && transport + UDP <= payload && payload <= octets.len(),
            "headers lie in their order"
        );
        Self { octets, size, network, transport, payload }
    }

    /// Number of frames; at least one.
    pub fn count(&self) -> usize {
        (self.octets.len() - self.payload).div_ceil(self.size).max(1)
    }

    /// Length of frame `i` without FCS.
    pub fn len_of(&self, i: usize) -> usize {
        self.payload + (self.octets.len() - self.payload - i * self.size).min(self.size)
    }

    /// Writes frame `i`.
    ///
    /// # Panics
    /// If there is no frame `i`, or `frame.len()` is not that of [`Segments::len_of`].
    pub fn write(&self, i: usize, frame: &mut [u8]) {
        let Self { octets, size, network, transport, payload } = *self;
        frame[..payload].copy_from_slice(&octets[..payload]);
        let taken = frame.len() - payload;
        frame[payload..].copy_from_slice(&octets[payload + i * size..][..taken]);
        let addresses = if octets[network] >> 4 == 4 {
            let header = &mut frame[network..];
            let len = header.len() as u16;
            put(header, 2, len);
            let id = be16(header, 4).wrapping_add(i as u16);
            put(header, 4, id);
            put(header, 10, 0);
            let sum = !checksum::fold(checksum::sum(&header[..transport - network]));
            put(header, 10, sum);
            network + 12..network + 20
        } else {
            let len = (frame.len() - network - IPV6) as u16;
            put(&mut frame[network..], 4, len);
            network + 8..network + 40
        };
        let addresses = checksum::sum(&frame[addresses]);
        let segment = &mut frame[transport..];
        let len = segment.len();
        if payload - transport == UDP {
            put(segment, 4, len as u16);
            put(segment, 6, 0);
            let sum = !checksum::fold(addresses + 17 + len as u64 + checksum::sum(segment));
            put(segment, 6, if sum == 0 { 0xffff } else { sum });
        } else {
            let sequence = be32(segment, 4);
            segment[4..8].copy_from_slice(&sequence.wrapping_add((i * size) as u32).to_be_bytes());
            segment[13] &= if i > 0 { !CWR } else { 0xff };
            segment[13] &= if i + 1 < self.count() { !(FIN | PSH) } else { 0xff };
            put(segment, 16, 0);
            let sum = !checksum::fold(addresses + 6 + len as u64 + checksum::sum(segment));
            put(segment, 16, sum);
        }
    }

    /// Calls `each` for every frame in order, written into `buffer`.
    pub fn for_each(&self, buffer: &mut Vec<u8>, mut each: impl FnMut(&[u8])) {
        for i in 0..self.count() {
            buffer.resize(self.len_of(i), 0);
            self.write(i, buffer);
            each(buffer);
        }
    }
}

fn put(octets: &mut [u8], at: usize, value: u16) {
    octets[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Frame, Packet};

    fn frames(packet: &str, len: usize, size: usize) -> (Frame, Vec<Frame>) {
        let whole =
            Packet::parse(packet).unwrap().build(Some(len), &|_| unreachable!(), 1).unwrap();
        let transport = whole.layers.last().unwrap().offset;
        let mut frames = Vec::new();
        let cut = Segments::new(&whole.bytes, size, transport, whole.payload);
        cut.for_each(&mut Vec::new(), |frame| frames.push(Frame::dissect(frame.to_vec())));
        (whole, frames)
    }

    fn values(frames: &[Frame], field: &str) -> Vec<u128> {
        frames.iter().map(|f| f.value(&f.field(field).unwrap())).collect()
    }

    #[test]
    fn a_tcp_segment_is_cut_as_rfc_9293_numbers_it() {
        let packet =
            "eth/ipv4(id=65535)/tcp(seq=4294967000,flags=FPAC,options=[mss(1460)])/payload(random)";
        let (whole, frames) = frames(packet, 58 + 2500, 1000);
        assert_eq!(frames.iter().map(|f| f.bytes.len()).collect::<Vec<_>>(), [1058, 1058, 558]);
        assert_eq!(values(&frames, "ipv4.id"), [65_535, 0, 1]);
        assert_eq!(values(&frames, "tcp.seq"), [4_294_967_000, 704, 1704]);
        // The flags of the three frames: CWR ACK; ACK; ACK PSH FIN.
        assert_eq!(values(&frames, "tcp.flags"), [0x90, 0x10, 0x19]);
        let payload: Vec<u8> = frames.iter().flat_map(|f| f.bytes[58..].to_vec()).collect();
        assert_eq!(payload, whole.bytes[58..]);
    }

    #[test]
    fn every_frame_has_its_own_lengths_and_checksums() {
        for packet in [
            "eth/ipv4/tcp/payload(random)",
            "eth/vlan(id=7)/vlan(id=8)/ipv6/tcp/payload(random)",
            "eth/ipv4/udp/payload(random)",
            "eth/vlan(id=7)/ipv6/udp/payload(random)",
        ] {
            for len in [100, 1000, 1999, 2000, 2001, 9000] {
                let (whole, frames) = frames(packet, len, 333);
                for frame in &frames {
                    // Wrong lengths and checksums are not listed.
                    let listed = |f: &Frame| (f.checksums.len(), f.lengths.len());
                    assert_eq!(
                        listed(frame),
                        listed(&whole),
                        "{packet} {len}: {}",
                        frame.summary()
                    );
                }
            }
        }
    }

    /// A checksum of 0 would mean "no checksum" (RFC 768).
    #[test]
    fn a_udp_checksum_of_0_is_sent_as_ffff() {
        let mut seen = false;
        for port in 0..=u16::MAX {
            let mut octets = [0; 45];
            octets[12] = 8;
            octets[14] = 0x45;
            octets[34..36].copy_from_slice(&port.to_be_bytes());
            let mut frame = [0; 45];
            Segments::new(&octets, 10, 34, 42).write(0, &mut frame);
            assert_ne!(frame[40..42], [0, 0]);
            seen |= frame[40..42] == [0xff, 0xff];
        }
        assert!(seen);
    }
}

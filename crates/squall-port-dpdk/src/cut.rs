//! TCP GSO frames for a device that cuts them: the request to the device, and the checksums that it
//! completes.

use squall_port::{Cut, Offload, network_header};

use crate::shim::DeviceCut;

/// Octets of an mbuf's buffer in front of a frame (RTE_PKTMBUF_HEADROOM); lengths of buffers have 16
/// bits.
const HEADROOM: u32 = 128;

/// DPDK has no request to cut UDP into datagrams: its UDP_SEG makes IP fragments.
pub const OFFLOAD: Offload =
    Offload { max_frame: u16::MAX as u32 - HEADROOM, tcp: u16::MAX as u32, udp: 0 };

const TCP_CHECKSUM: usize = 16;
const TCP: u64 = 6;

/// How the device cuts `frame`, which has the TCP headers that `cut` names. Leaves the sum of the
/// pseudo-header, without the length, in the place of its TCP checksum, and 0 in that of its IPv4
/// checksum: the device adds the rest for each piece (rte_mbuf_core.h, RTE_MBUF_F_TX_TCP_SEG).
pub fn device_cut(frame: &mut [u8], cut: Cut) -> DeviceCut {
    // One segment is a plain frame with its own checksums.
    if cut.is_whole() || frame.len() <= usize::from(cut.payload) + usize::from(cut.size) {
        return DeviceCut::default();
    }
    let (network, transport) = (network_header(frame), usize::from(cut.transport));
    let ipv4 = frame[network] >> 4 == 4;
    let addresses = if ipv4 { network + 12..network + 20 } else { network + 8..network + 40 };
    let words = frame[addresses].as_chunks::<2>().0.iter();
    let mut sum = words.map(|word| u64::from(u16::from_be_bytes(*word))).sum::<u64>() + TCP;
    // Twice, because the sum of 17 words has at most 21 bits.
    for _ in 0..2 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let at = transport + TCP_CHECKSUM;
    frame[at..at + 2].copy_from_slice(&(sum as u16).to_be_bytes());
    if ipv4 {
        frame[network + 10..network + 12].fill(0);
    }
    DeviceCut {
        size: cut.size,
        l2: network as u8,
        l3: (transport - network) as u8,
        l4: cut.payload - cut.transport,
        ipv6: u8::from(!ipv4),
    }
}

#[cfg(test)]
mod tests {
    use squall_wire::Segments;

    use super::*;

    /// Adds `octets` to a sum of 16-bit words.
    fn add(sum: &mut u64, octets: &[u8]) {
        for pair in octets.chunks(2) {
            *sum += u64::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u64::from(*low));
        }
    }

    fn checksum(mut sum: u64) -> [u8; 2] {
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        (!(sum as u16)).to_be_bytes()
    }

    /// The pieces that a device makes of the frame, with lengths, sequence numbers, flags,
    /// identifications and checksums.
    fn cut_by_device(frame: &[u8], cut: DeviceCut) -> Vec<Vec<u8>> {
        let (l2, l3, l4) = (usize::from(cut.l2), usize::from(cut.l3), usize::from(cut.l4));
        let headers = l2 + l3 + l4;
        let pieces = frame[headers..].chunks(cut.size.into());
        let last = pieces.len() - 1;
        let piece = |(i, payload): (usize, &[u8])| {
            let mut out = frame[..headers].to_vec();
            out.extend(payload);
            let len = out.len() - l2;
            if cut.ipv6 != 0 {
                out[l2 + 4..l2 + 6].copy_from_slice(&((len - l3) as u16).to_be_bytes());
            } else {
                out[l2 + 2..l2 + 4].copy_from_slice(&(len as u16).to_be_bytes());
                let id = u16::from_be_bytes([out[l2 + 4], out[l2 + 5]]).wrapping_add(i as u16);
                out[l2 + 4..l2 + 6].copy_from_slice(&id.to_be_bytes());
                let mut sum = 0;
                add(&mut sum, &out[l2..l2 + l3]);
                out[l2 + 10..l2 + 12].copy_from_slice(&checksum(sum));
            }
            let tcp = l2 + l3;
            let sequence = u32::from_be_bytes(*out[tcp + 4..].first_chunk().unwrap())
                .wrapping_add((i * usize::from(cut.size)) as u32);
            out[tcp + 4..tcp + 8].copy_from_slice(&sequence.to_be_bytes());
            if i != last {
                // FIN and PSH
                out[tcp + 13] &= !0x09;
            }
            if i != 0 {
                // CWR
                out[tcp + 13] &= !0x80;
            }
            // The field holds the sum of the pseudo-header without the length.
            let mut sum = (out.len() - tcp) as u64;
            add(&mut sum, &out[tcp..]);
            out[tcp + 16..tcp + 18].copy_from_slice(&checksum(sum));
            out
        };
        pieces.enumerate().map(piece).collect()
    }

    fn tcp_frame(ipv6: bool, tags: usize, payload: usize) -> (Vec<u8>, Cut) {
        let mut frame = vec![2; 12];
        frame.extend([0x81, 0, 0, 7].repeat(tags));
        frame.extend(if ipv6 { [0x86, 0xdd] } else { [8, 0] });
        let network = frame.len();
        frame.resize(network + if ipv6 { 40 } else { 20 }, 0);
        frame[network] = if ipv6 { 0x60 } else { 0x45 };
        frame[network + if ipv6 { 6 } else { 9 }] = 6;
        let addresses = if ipv6 { network + 8..network + 40 } else { network + 12..network + 20 };
        for (octet, value) in frame[addresses].iter_mut().zip((0..=255).cycle().skip(0xf1)) {
            *octet = value;
        }
        let transport = frame.len();
        frame.extend((0..32_u8).map(|i| i.wrapping_mul(7).wrapping_add(200)));
        frame[transport + 12] = 8 << 4;
        // CWR, ACK, PSH, FIN
        frame[transport + 13] = 0x99;
        let start = frame.len();
        frame.extend((0..payload).map(|i| (i * 31 % 251) as u8));
        let cut = Cut { size: 1000, transport: transport as u8, payload: start as u8 };
        (frame, cut)
    }

    #[test]
    fn a_device_makes_the_frames_that_the_engine_would_make() {
        for (ipv6, tags) in [(false, 0), (true, 0), (false, 2), (true, 1)] {
            let (mut frame, cut) = tcp_frame(ipv6, tags, 3501);
            let segments =
                Segments::new(&frame, cut.size.into(), cut.transport.into(), cut.payload.into());
            let mut wanted = Vec::new();
            for i in 0..segments.count() {
                let mut octets = vec![0; segments.len_of(i)];
                segments.write(i, &mut octets);
                wanted.push(octets);
            }
            assert_eq!(wanted.len(), 4);
            let request = device_cut(&mut frame, cut);
            assert_eq!(cut_by_device(&frame, request), wanted, "IPv6 {ipv6}, {tags} tags");
            // The slot may be sent again.
            assert_eq!(device_cut(&mut frame, cut), request);
            assert_eq!(cut_by_device(&frame, request), wanted);
        }
    }

    #[test]
    fn a_frame_of_one_segment_keeps_its_checksums() {
        let (frame, cut) = tcp_frame(false, 0, 1000);
        for cut in [cut, Cut::WHOLE] {
            let mut sent = frame.clone();
            assert_eq!(device_cut(&mut sent, cut), DeviceCut::default());
            assert_eq!(sent, frame);
        }
    }
}

//! Datagrams that were joined to one packet: by a host for the NIC that would cut it (UDP GSO), as
//! it arrives from an interface of the same machine, or by the port's host (UDP GRO). Unlike joined
//! segments, they are not one: each is a message.

use squall_units::be16;

const UDP: u8 = 17;
const UDP_HEADER: usize = 8;

/// Calls `each` with each datagram of `packet`, an IP packet, as a packet of its own with `size`
/// octets of payload; the last has the rest. Checksums stay those of the whole. Packets without UDP
/// are passed on unchanged. `buffer` keeps its memory from call to call.
pub fn split(packet: &[u8], size: u16, buffer: &mut Vec<u8>, mut each: impl FnMut(&[u8])) {
    let splits = |(_, payload): &(&[u8], &[u8])| size > 0 && !payload.is_empty();
    let Some((headers, payload)) = parts(packet).filter(splits) else { return each(packet) };
    let transport = headers.len() - UDP_HEADER;
    // The length in IPv4 counts its own header, that in IPv6 does not.
    let (at, before) = if headers[0] >> 4 == 4 { (2, 0) } else { (4, transport) };
    for datagram in payload.chunks(size.into()) {
        buffer.clear();
        buffer.extend_from_slice(headers);
        buffer.extend_from_slice(datagram);
        let len = buffer.len();
        put_length(buffer, at, len - before);
        put_length(buffer, transport + 4, len - transport);
        each(buffer);
    }
}

/// Headers and payload of a UDP packet, without padding.
fn parts(packet: &[u8]) -> Option<(&[u8], &[u8])> {
    let (protocol, transport, len) = match packet.first()? >> 4 {
        4 if packet.len() >= 20 => {
            (packet[9], usize::from(packet[0] & 0xf) * 4, usize::from(be16(packet, 2)))
        }
        6 if packet.len() >= 40 => (packet[6], 40, 40 + usize::from(be16(packet, 4))),
        _ => return None,
    };
    let whole = packet.get(..len).filter(|_| protocol == UDP && transport >= 20)?;
    whole.split_at_checked(transport + UDP_HEADER)
}

fn put_length(packet: &mut [u8], at: usize, len: usize) {
    // The whole packet has a length of 16 bits.
    packet[at..at + 2].copy_from_slice(&(len as u16).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(packet: &[u8], size: u16) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        split(packet, size, &mut Vec::new(), |packet| found.push(packet.to_vec()));
        found
    }

    /// A packet with the payload `b"abcdefgh"`, and padding.
    fn packet(v6: bool, protocol: u8) -> Vec<u8> {
        let mut packet = vec![0; if v6 { 40 } else { 20 }];
        if v6 {
            (packet[0], packet[5], packet[6]) = (0x60, 16, protocol);
        } else {
            (packet[0], packet[3], packet[9]) = (0x45, 36, protocol);
        }
        packet.extend_from_slice(b"\x13\x88\x01\xbb\0\x10\0\0abcdefgh");
        packet.extend_from_slice(&[0; 4]);
        packet
    }

    #[test]
    fn each_datagram_has_its_length_and_the_last_has_the_rest() {
        for v6 in [false, true] {
            let found = all(&packet(v6, UDP), 3);
            let at = if v6 { 40 } else { 20 };
            let payloads: Vec<&[u8]> = found.iter().map(|packet| &packet[at + 8..]).collect();
            assert_eq!(payloads, [&b"abc"[..], b"def", b"gh"]);
            for (packet, len) in found.iter().zip([3, 3, 2]) {
                assert_eq!(packet[..at][if v6 { 5 } else { 3 }], len + if v6 { 8 } else { 28 });
                assert_eq!(packet[at..at + 8], [0x13, 0x88, 1, 0xbb, 0, len + 8, 0, 0]);
            }
        }
    }

    #[test]
    fn other_packets_are_passed_on_unchanged() {
        for packet in [packet(false, 6), packet(true, 6), vec![], vec![0x45; 21], vec![0x60; 40]] {
            assert_eq!(all(&packet, 3), [packet]);
        }
        assert_eq!(all(&packet(false, UDP), 0), [packet(false, UDP)]);
    }
}

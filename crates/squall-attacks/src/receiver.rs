//! A receiver for tests, independent of the code that makes frames: turns frames into the streams
//! of both ends. It behaves like Linux, or as an evasion assumes.

use std::collections::BTreeMap;

use squall_units::{be16, be32};

/// The data that a standard receiver accepts from frames.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Received {
    /// Streams, or payloads of datagrams, by the last octet of the sender's MAC address.
    pub data: BTreeMap<u8, Vec<Vec<u8>>>,
    /// Ends that have sent a FIN.
    pub closed: Vec<u8>,
    /// The reason for each dropped packet.
    pub dropped: Vec<&'static str>,
}

#[derive(Default)]
pub(crate) struct Receiver {
    routers: u8,
    received: Received,
    /// By sender, identification and protocol.
    fragments: BTreeMap<(u8, u32, u8), Vec<Fragment>>,
    streams: BTreeMap<u8, Stream>,
}

/// Offset, octets, and the more-fragments flag.
type Fragment = (usize, Vec<u8>, bool);

#[derive(Default)]
struct Stream {
    next: u32,
    octets: Vec<u8>,
    /// Octets received out of order, by their distance from the first octet. Each has the start of
    /// its segment.
    early: BTreeMap<u64, (u8, u64)>,
    stamp: Option<u32>,
    fin: Option<u64>,
}

/// The Internet checksum (RFC 1071), word by word.
fn is_right(parts: &[&[u8]]) -> bool {
    let octets: Vec<u8> = parts.concat();
    let sum: u64 =
        octets.chunks(2).map(|w| u64::from(w[0]) << 8 | u64::from(*w.get(1).unwrap_or(&0))).sum();
    sum.is_multiple_of(0xffff) && sum != 0
}

impl Receiver {
    /// A receiver `routers` hops away. Packets with a smaller TTL do not reach it.
    pub fn beyond(routers: u8) -> Self {
        Receiver { routers, ..Receiver::default() }
    }

    pub fn receive<'a>(mut self, frames: impl IntoIterator<Item = &'a [u8]>) -> Received {
        for frame in frames {
            let from = frame[11];
            let mut at = 12;
            while [0x8100, 0x88a8].contains(&usize::from(be16(frame, at))) {
                at += 4;
            }
            self.network(from, usize::from(be16(frame, at)), &frame[at + 2..]);
        }
        assert!(self.fragments.values().all(|f| f.is_empty()), "fragments are left over");
        for (from, stream) in self.streams {
            assert!(stream.early.is_empty(), "octets are missing");
            self.received.data.entry(from).or_default().push(stream.octets);
        }
        self.received
    }

    fn network(&mut self, from: u8, ethertype: usize, packet: &[u8]) {
        let (mut protocol, mut at, ttl, id, mut offset, mut more);
        let addresses;
        match ethertype {
            0x0800 => {
                let header = usize::from(packet[0] & 15) * 4;
                assert!(is_right(&[&packet[..header]]), "checksum of IPv4");
                assert_eq!(usize::from(be16(packet, 2)), packet.len());
                (protocol, at, ttl) = (packet[9], header, packet[8]);
                (id, offset, more) = (
                    u32::from(be16(packet, 4)),
                    usize::from(be16(packet, 6)) & 0x1fff,
                    packet[6] & 0x20 != 0,
                );
                addresses = &packet[12..20];
            }
            0x86dd => {
                assert_eq!(usize::from(be16(packet, 4)) + 40, packet.len());
                (protocol, at, ttl, offset, more) = (packet[6], 40, packet[7], 0, false);
                let mut number = 0;
                addresses = &packet[8..40];
                while [0, 60, 44].contains(&protocol) {
                    let header = &packet[at..];
                    if protocol == 44 {
                        (offset, more, number) = (
                            usize::from(be16(header, 2)) >> 3,
                            header[3] & 1 != 0,
                            be32(header, 4),
                        );
                        at += 8;
                    } else {
                        at += 8 + usize::from(header[1]) * 8;
                    }
                    protocol = header[0];
                }
                id = number;
            }
            other => panic!("EtherType {other:#x}"),
        }
        if ttl <= self.routers {
            return self.received.dropped.push("ttl");
        }
        let mut body = packet[at..].to_vec();
        if offset > 0 || more {
            assert!(
                !more || body.len().is_multiple_of(8),
                "fragments but the last carry multiples of eight octets"
            );
            let list = self.fragments.entry((from, id, protocol)).or_default();
            list.push((offset * 8, body, more));
            list.sort();
            let Some(end) = list.iter().find(|f| !f.2).map(|f| f.0 + f.1.len()) else { return };
            let mut whole = vec![None; end];
            for (start, octets, _) in list.iter() {
                for (i, &octet) in octets.iter().enumerate() {
                    assert!(
                        whole[start + i].is_none_or(|o| o == octet),
                        "fragments that overlap are the same"
                    );
                    whole[start + i] = Some(octet);
                }
            }
            let Some(octets) = whole.into_iter().collect() else { return };
            body = octets;
            list.clear();
        }
        let pseudo = [addresses, &(body.len() as u32).to_be_bytes(), &[0, 0, 0, protocol]].concat();
        match protocol {
            47 => {
                assert_eq!(body[..2], [0, 0]);
                self.network(from, usize::from(be16(&body, 2)), &body[4..]);
            }
            6 if !is_right(&[&pseudo, &body]) => self.received.dropped.push("checksum"),
            6 => self.segment(from, &body),
            17 => {
                assert!(is_right(&[&pseudo, &body]) && body[6..8] != [0, 0], "checksum of UDP");
                assert_eq!(usize::from(be16(&body, 4)), body.len());
                self.received.data.entry(from).or_default().push(body[8..].to_vec());
            }
            1 | 58 => {
                let pseudo = if protocol == 1 { vec![] } else { pseudo };
                assert!(is_right(&[&pseudo, &body]), "checksum of ICMP");
                self.received.data.entry(from).or_default().push(body[8..].to_vec());
            }
            _ => self.received.data.entry(from).or_default().push(body),
        }
    }

    fn segment(&mut self, from: u8, segment: &[u8]) {
        let (sequence, flags) = (be32(segment, 4), segment[13]);
        let header = usize::from(segment[12] >> 4) * 4;
        let payload = &segment[header..];
        let stamp = segment[20..header].windows(10).find(|o| o[..2] == [8, 10]).map(|o| be32(o, 2));
        if flags & 2 != 0 {
            let stream = Stream { next: sequence.wrapping_add(1), stamp, ..Stream::default() };
            assert!(self.streams.insert(from, stream).is_none(), "a second SYN");
            return;
        }
        let stream = self.streams.get_mut(&from).expect("a SYN came first");
        if let (Some(last), Some(stamp)) = (stream.stamp, stamp) {
            if (stamp.wrapping_sub(last) as i32) < 0 && last.wrapping_sub(stamp) > 1 << 20 {
                return self.received.dropped.push("paws");
            }
            stream.stamp = Some(last.max(stamp));
        }
        let done = stream.octets.len() as u64;
        let distance = i64::from(sequence.wrapping_sub(stream.next) as i32);
        if distance.abs() > 1 << 20 {
            return self.received.dropped.push("window");
        }
        assert_eq!(flags & 4, 0, "a RST in the window");
        assert_ne!(flags & 16, 0, "an ACK");
        let start = done.checked_add_signed(distance).expect("nothing before the first octet");
        let end = start + payload.len() as u64;
        for (i, &octet) in payload.iter().enumerate() {
            let at = start + i as u64;
            // Existing data stays unless its segment began later. BSD does so, and Linux agrees for
            // data that is covered completely.
            if at >= done && stream.early.get(&at).is_none_or(|&(_, began)| start < began) {
                stream.early.insert(at, (octet, start));
            }
        }
        if flags & 1 != 0 {
            stream.fin = Some(end);
        }
        while let Some((octet, _)) = stream.early.remove(&(stream.octets.len() as u64)) {
            stream.octets.push(octet);
            stream.next = stream.next.wrapping_add(1);
        }
        if stream.fin == Some(stream.octets.len() as u64) {
            stream.fin = None;
            stream.next = stream.next.wrapping_add(1);
            self.received.closed.push(from);
        }
        // An acknowledgment must cover exactly the data received so far.
        let acknowledged = be32(segment, 8);
        if let Some(other) =
            self.streams.iter().find(|(mac, _)| **mac != from).map(|(_, stream)| stream)
            && sequence != other.next
        {
            assert!(
                acknowledged.wrapping_sub(other.next) as i32 <= 0,
                "what has not come is acknowledged"
            );
        }
    }
}

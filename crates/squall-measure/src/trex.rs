//! Frames with TRex's header or mark, counted in the same way as by TRex's receiver.

use std::sync::Arc;

use squall_program::{
    signature::Signature,
    trex::{Header, HwIds, Mark},
};

use crate::flow::{Headers, Link, ethertype};

/// Frames with TRex's header that are part of no stream, by the categories of TRex.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrexErrors {
    /// Frames sent before the last start of their stream.
    pub old_flow: u64,
    /// Frames whose flow_seq is neither the current nor the previous one.
    pub bad_header: u64,
}

/// The state of each hw_id at one receive queue.
#[derive(Clone, Debug)]
pub(crate) struct TrexFlows {
    ids: Arc<HwIds>,
    flows: Vec<Flow>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    stream: u16,
    /// flow_seq of the stream, learned from its first frame because the sender may be on another
    /// machine.
    flow_seq: Option<u8>,
    /// flow_seq of the stream that used the hw_id before.
    before: Option<u8>,
}

impl TrexFlows {
    pub fn new(ids: Arc<HwIds>) -> Self {
        Self { ids, flows: Vec::new() }
    }

    #[inline]
    pub fn knows(&self, octets: &[u8]) -> bool {
        Header::read(octets).is_some_and(|header| self.ids.stream(header.mark.hw_id).is_some())
    }

    /// The stream whose mark a frame of link type `link` has.
    #[inline]
    pub fn marked(&self, octets: &[u8], link: Link) -> Option<u16> {
        if !self.ids.has_groups() {
            return None;
        }
        let mark = Mark::read(octets.get(network(octets, link)?..)?)?;
        self.ids.stream_of_group(mark.group()?)
    }

    #[inline]
    pub fn read(&mut self, octets: &[u8], errors: &mut TrexErrors) -> Option<Signature> {
        let header = Header::read(octets)?;
        let stream = self.ids.stream(header.mark.hw_id)?;
        let hw_id = usize::from(header.mark.hw_id);
        if hw_id >= self.flows.len() {
            self.flows.resize(hw_id + 1, Flow { stream, ..Flow::default() });
        }
        let flow = &mut self.flows[hw_id];
        if flow.stream != stream {
            *flow = Flow { stream, flow_seq: None, before: flow.flow_seq.or(flow.before) };
        }
        let found = header.mark.flow_seq;
        if flow.flow_seq.is_none() && flow.before != Some(found) {
            flow.flow_seq = Some(found);
        }
        if flow.flow_seq == Some(found) {
            return Some(Signature {
                key: 0,
                stream,
                sequence: header.sequence,
                time: header.time,
            });
        }
        match flow.before == Some(found) {
            true => errors.old_flow += 1,
            false => errors.bad_header += 1,
        }
        None
    }
}

/// The offset of the IP header.
#[inline]
fn network(octets: &[u8], link: Link) -> Option<usize> {
    const ETHERNET_HEADER: usize = 14;
    // Most frames are plain Ethernet and IPv4. Parsing others takes a few tens of nanoseconds.
    let plain = link == Link::Ethernet
        && octets.get(12..ETHERNET_HEADER) == Some(&ethertype::IPV4.to_be_bytes());
    if plain {
        return Some(ETHERNET_HEADER);
    }
    let headers = Headers::parse(octets, link);
    headers.key.is_ip().then_some(headers.network as usize)
}

#[cfg(test)]
mod tests {
    use squall_program::trex::MarkPlace;
    use squall_units::{Cut, Nanos, TrexMark};
    use squall_wire::Packet;

    use super::*;
    use crate::{Measure, Receiver};

    fn frame(hw_id: u8, flow_seq: u8, sequence: u32, time: u64) -> Vec<u8> {
        let mark = TrexMark { hw_id, flow_seq };
        let (high, low) = Header { mark, sequence, time }.halves();
        [[0; 44].as_slice(), &high.to_be_bytes(), &low.to_be_bytes()].concat()
    }

    #[test]
    fn counters_are_those_of_trexs_receiver() {
        let ids = Arc::new(HwIds::default());
        ids.set(5, 9);
        let mut rx = Receiver::new(&Measure { trex: Some(ids.clone()), ..Measure::default() });
        let mut take = |flow_seq, sequences: &[u32]| {
            let frames: Vec<_> =
                sequences.iter().map(|s| frame(5, flow_seq, *s, 1000 + u64::from(*s))).collect();
            let each = |(i, f): (usize, _)| (f, 60, Nanos(2000 + i as u64));
            rx.observe_all(frames.iter().map(Vec::as_slice).enumerate().map(each));
            rx.clone()
        };
        // 3 and 4 are skipped; 3 arrives late, 7 twice, and 4 never.
        let seen = take(2, &[0, 1, 2, 5, 3, 6, 7, 7]);
        let stream = seen.stream(9).expect("frames of hw_id 5");
        let counts = stream.sequence.counts();
        assert_eq!((stream.packets, stream.sequence.lost(8), stream.sequence.gaps()), (8, 1, 1));
        assert_eq!((counts.reordered, counts.duplicates), (1, 1));
        assert_eq!(stream.delay.summary().min_ns, 998);
        // A frame with another flow_seq is bad.
        assert_eq!(take(3, &[8]).trex, TrexErrors { old_flow: 0, bad_header: 1 });
        // The stream restarts under another number; late frames of the previous start are old.
        ids.set(5, 10);
        take(2, &[8]);
        let seen = take(3, &[0, 1]);
        assert_eq!(seen.trex, TrexErrors { old_flow: 1, bad_header: 1 });
        assert_eq!(seen.stream(10).map(|stream| stream.packets), Some(2));
        assert_eq!(seen.stream(9).map(|stream| stream.packets), Some(8));
        // No stream has this hw_id.
        let mut other = Receiver::new(&Measure { trex: Some(ids), ..Measure::default() });
        other.observe(&frame(6, 1, 0, 0), 60, Nanos(0));
        assert_eq!((other.unsigned, other.trex), (1, TrexErrors::default()));
    }

    fn marked(text: &str, group: u16) -> Vec<u8> {
        let mut frame =
            Packet::parse(text).unwrap().build(Some(62), &|_| unreachable!(), 0).unwrap();
        MarkPlace::of(&frame).unwrap().write(&mut frame.bytes, Mark::of_group(group));
        frame.bytes
    }

    fn receiver(groups: &[(u16, u16)]) -> Receiver {
        let ids = Arc::new(HwIds::default());
        groups.iter().for_each(|(group, stream)| ids.set_group(*group, *stream));
        Receiver::new(&Measure { trex: Some(ids), key: Some(0), ..Measure::default() })
    }

    #[test]
    fn frames_are_known_by_their_mark_after_tags_and_in_ipv6() {
        let frames = [
            marked("eth/ipv4/tcp", 3),
            marked("eth/vlan/ipv4/udp", 3),
            marked("eth/vlan/vlan/ipv4/udp", 1022),
            marked("eth/ipv6/udp", 3),
            marked("eth/mpls/ipv4/udp", 3),
        ];
        let mut each = receiver(&[(3, 7), (1022, 1)]);
        frames.iter().for_each(|frame| each.observe(frame, 62, Nanos(5)));
        let mut all = receiver(&[(3, 7), (1022, 1)]);
        all.observe_all(frames.iter().map(|frame| (&frame[..], 62, Nanos(5))));
        for rx in [each, all] {
            let counts = |stream| rx.stream(stream).map(|s| (s.packets, s.octets, s.marked));
            assert_eq!(counts(7), Some((4, 4 * 66, 4)));
            assert_eq!(counts(1), Some((1, 66, 1)));
            assert_eq!((rx.packets, rx.unsigned), (5, 0));
            // Copies cannot be distinguished, and order and delay are unknown.
            let counters = rx.stream(7).unwrap().counters();
            assert_eq!((counters.unique, counters.missing, counters.delay.count), (4, 0, 0));
            assert_eq!(rx.without_histograms().stream(7).unwrap().counters().unique, 4);
            assert!(frames.iter().all(|frame| rx.is_of_a_stream(frame)));
        }
    }

    #[test]
    fn other_marks_and_what_only_looks_like_one_is_nobodys() {
        let other = marked("eth/ipv4/tcp", 4);
        let mut bare = marked("eth/ipv4/tcp", 3);
        bare[15] &= !1;
        let inner = [&[0; 12][..], &[8, 6], &marked("eth/ipv4/tcp", 3)[14..]].concat();
        let cut = &marked("eth/ipv4/tcp", 3)[..19];
        let mut rx = receiver(&[(3, 7)]);
        for frame in [&other[..], &bare, &inner, cut, &[]] {
            rx.observe(frame, 60, Nanos(5));
            assert!(!rx.is_of_a_stream(frame));
        }
        assert_eq!((rx.unsigned, rx.streams().count()), (5, 0));
        // A mark of no stream is ignored.
        let mut none = receiver(&[]);
        none.observe(&marked("eth/ipv4/tcp", 0), 60, Nanos(5));
        assert_eq!((none.unsigned, none.streams().count()), (1, 0));
    }

    #[test]
    fn a_signature_goes_before_a_mark() {
        let mut signed = marked("eth/ipv4", 3);
        let (high, low) = Signature { key: 0, stream: 2, sequence: 0, time: 1 }.halves();
        signed[46..54].copy_from_slice(&high.to_be_bytes());
        signed[54..].copy_from_slice(&low.to_be_bytes());
        let mut rx = receiver(&[(3, 7)]);
        rx.observe(&signed, 60, Nanos(5));
        assert_eq!(rx.streams().map(|(n, s)| (n, s.marked)).collect::<Vec<_>>(), [(2, 0)]);
    }

    #[test]
    fn frames_that_were_joined_are_counted_each() {
        let joined = [&marked("eth/ipv4/udp", 3)[..42], &[0; 24]].concat();
        let cut = Cut { size: 8, transport: 34, payload: 42 };
        let mut rx = receiver(&[(3, 7)]);
        rx.observe_joined(&joined, 66, cut, Nanos(5));
        let stream = rx.stream(7).unwrap();
        assert_eq!((stream.packets, stream.octets, rx.unsigned), (3, 3 * 54, 0));
    }
}

//! Frames with TRex's header, counted as TRex's receiver counts them.

use std::sync::Arc;

use squall_program::{
    signature::Signature,
    trex::{Header, HwIds},
};

/// Frames with TRex's header that belong to no stream, as TRex counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrexErrors {
    /// Of the time before the last start of their stream.
    pub old_flow: u64,
    /// With a flow_seq that is neither that of now nor that of before.
    pub bad_header: u64,
}

/// What one receiving queue knows of each hw_id.
#[derive(Clone, Debug)]
pub(crate) struct TrexFlows {
    ids: Arc<HwIds>,
    flows: Vec<Flow>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    stream: u16,
    /// The flow_seq of the stream: that of the first frame, as the sender may be another machine.
    flow_seq: Option<u8>,
    /// That of the stream which had the hw_id before.
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
            return Some(Signature { stream, sequence: header.sequence, time: header.time });
        }
        match flow.before == Some(found) {
            true => errors.old_flow += 1,
            false => errors.bad_header += 1,
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use squall_units::{Nanos, TrexMark};

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
        // 3 and 4 are passed over, 3 comes late, 7 twice, 4 never.
        let seen = take(2, &[0, 1, 2, 5, 3, 6, 7, 7]);
        let stream = seen.stream(9).expect("frames of hw_id 5");
        let counts = stream.sequence.counts();
        assert_eq!((stream.packets, stream.sequence.lost(8), stream.sequence.gaps()), (8, 1, 1));
        assert_eq!((counts.reordered, counts.duplicates), (1, 1));
        assert_eq!(stream.delay.summary().min_ns, 998);
        // Another flow_seq in the middle is garbage.
        assert_eq!(take(3, &[8]).trex, TrexErrors { old_flow: 0, bad_header: 1 });
        // The stream starts again under another number; what is late of the time before is old.
        ids.set(5, 10);
        take(2, &[8]);
        let seen = take(3, &[0, 1]);
        assert_eq!(seen.trex, TrexErrors { old_flow: 1, bad_header: 1 });
        assert_eq!(seen.stream(10).map(|stream| stream.packets), Some(2));
        assert_eq!(seen.stream(9).map(|stream| stream.packets), Some(8));
        // An hw_id that no stream has.
        let mut other = Receiver::new(&Measure { trex: Some(ids), ..Measure::default() });
        other.observe(&frame(6, 1, 0, 0), 60, Nanos(0));
        assert_eq!((other.unsigned, other.trex), (1, TrexErrors::default()));
    }
}

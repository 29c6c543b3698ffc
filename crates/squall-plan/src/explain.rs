//! A human-readable preview of a plan: its first frames, in order and decoded.

use std::{cmp::Reverse, collections::BinaryHeap};

use squall_program::{Cursor, Run, Scratch, Timeline};
use squall_units::{Nanos, Picos, TxMeta};
use squall_wire::Frame;

use crate::Plan;

/// A frame that the run would send.
#[derive(Clone, Debug)]
pub struct Preview {
    pub stream: usize,
    /// Index of the frame in its stream.
    pub index: u64,
    /// Departure time since the start of the run.
    pub due: Picos,
    /// Octets without FCS.
    pub octets: Vec<u8>,
    /// A summary in the format of `tcpdump -n`.
    pub summary: String,
}

/// The first `count` frames of the plan, in order of departure. Streams that send as fast as
/// possible alternate at time 0. Streams that others start are not included.
pub fn preview(plan: &Plan, count: usize) -> Vec<Preview> {
    let mut scratch = Scratch::default();
    let mut lines: Vec<(usize, Cursor, Timeline)> = plan
        .streams
        .iter()
        .enumerate()
        .filter_map(|(i, s)| {
            let (first, by) = plan.division(i)?.share(0, 1);
            // Leave out a stream whose schedule cannot be divided.
            let timeline = s.timeline(s.start).share(first, by)?;
            Some((i, s.program.cursor(first, by, i as u32 + 1), timeline))
        })
        .collect();
    let mut next: BinaryHeap<_> = (0..lines.len())
        .filter(|&i| plan.streams[lines[i].0].self_start && !plan.streams[lines[i].0].waits)
        .filter_map(|i| Some(Reverse((lines[i].2.due()?, lines[i].1.next, i))))
        .collect();
    let mut shown = Vec::new();
    while shown.len() < count {
        let Some(Reverse((due, index, line))) = next.pop() else { break };
        let (stream, cursor, timeline) = &mut lines[line];
        let stream = *stream;
        let program = &plan.streams[stream].program;
        let len = program.sizes().at(index);
        let mut octets = vec![0; len as usize];
        let mut meta = [TxMeta { len, due: due.as_nanos(), ..TxMeta::default() }];
        let (slots, stride) = (&mut octets[..], len as usize);
        program.fill(
            cursor,
            &mut scratch,
            (slots, stride, &mut meta),
            &Run { start: 0, count: 1 },
            None::<Nanos>,
        );
        timeline.advance(len);
        next.extend(timeline.due().map(|due| Reverse((due, cursor.next, line))));
        let summary = Frame::dissect(octets.clone()).summary();
        shown.push(Preview { stream, index, due, octets, summary });
    }
    shown
}

//! Attacks and background as a single capture, with frames in time order. It is generated while it
//! is read, so memory use does not grow with the number of frames.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    io::{self, Read},
    sync::Arc,
};

use squall_attacks::{End, suite::Suite, wire};
use squall_pcap::PcapFormat;
use squall_rules::RuleSet;
use squall_units::Nanos;

/// A frame and its departure time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timed {
    pub at: Nanos,
    pub from: End,
    /// Octets without FCS.
    pub octets: Vec<u8>,
}

impl Timed {
    /// `begin` is the start of the attack to which the frame belongs.
    pub fn of(frame: wire::Frame, begin: Nanos) -> Self {
        Timed {
            at: Nanos(begin.0.saturating_add(frame.at.0)),
            from: frame.from,
            octets: frame.octets,
        }
    }
}

/// Frames in time order, generated while they are read.
pub type Timeline = Box<dyn Iterator<Item = Timed> + Send>;

/// A sequence of items that have a duration and may overlap: attacks in quick succession, or
/// conversations of a template.
pub trait Overlapping {
    /// Lower bound for the start of item `nth` and of all later items. `None` after the last item.
    fn earliest(&self, nth: usize) -> Option<Nanos>;

    /// The frames of item `nth` in order of time. `None` after the last item.
    fn frames(&self, nth: usize) -> Option<Vec<Timed>>;
}

/// Merges the frames of all items.
pub struct Frames<O> {
    made: O,
    next: usize,
    /// Frames of items that have started, ordered by time, then by item index, then by index within
    /// the item.
    pending: BinaryHeap<Reverse<(Nanos, usize, usize, Timed)>>,
}

impl<O: Overlapping> Frames<O> {
    pub fn new(made: O) -> Self {
        Frames { made, next: 0, pending: BinaryHeap::new() }
    }
}

impl<O: Overlapping> Iterator for Frames<O> {
    type Item = Timed;

    fn next(&mut self) -> Option<Timed> {
        while let Some(earliest) = self.made.earliest(self.next) {
            if self.pending.peek().is_some_and(|Reverse((at, ..))| *at < earliest) {
                break;
            }
            let Some(frames) = self.made.frames(self.next) else { break };
            let numbered = frames.into_iter().enumerate();
            self.pending.extend(
                numbered.map(|(number, timed)| Reverse((timed.at, self.next, number, timed))),
            );
            self.next += 1;
        }
        self.pending.pop().map(|Reverse((.., timed))| timed)
    }
}

/// The inputs for the attacks of one section.
#[derive(Clone)]
pub struct Made {
    pub rules: Arc<RuleSet>,
    pub suite: Arc<Suite>,
    pub wire: wire::Settings,
    /// Selects the attacks that are sent as frames.
    pub which: fn(&squall_attacks::suite::Attack, &wire::Settings) -> bool,
}

impl Overlapping for Made {
    fn earliest(&self, nth: usize) -> Option<Nanos> {
        self.suite.attacks.get(nth).map(|attack| attack.begin)
    }

    fn frames(&self, nth: usize) -> Option<Vec<Timed>> {
        let attack = self.suite.attacks.get(nth)?;
        if !(self.which)(attack, &self.wire) {
            return Some(Vec::new());
        }
        // Attacks that cannot be encoded were already counted when the labels were made.
        let (frames, _) = attack.frames(&self.rules, &self.wire).unwrap_or_default();
        Some(frames.into_iter().map(|frame| Timed::of(frame, attack.begin)).collect())
    }
}

/// Several timelines, merged into one.
pub struct Merged {
    lines: Vec<std::iter::Peekable<Timeline>>,
}

impl Merged {
    pub fn new(lines: Vec<Timeline>) -> Self {
        Merged { lines: lines.into_iter().map(Iterator::peekable).collect() }
    }
}

impl Iterator for Merged {
    type Item = Timed;

    fn next(&mut self) -> Option<Timed> {
        let first = self
            .lines
            .iter_mut()
            .enumerate()
            .filter_map(|(i, line)| line.peek().map(|timed| (timed.at, i)));
        let (_, line) = first.min()?;
        self.lines[line].next()
    }
}

/// A timeline, read as a pcap file with nanosecond timestamps.
pub struct Capture<I> {
    frames: I,
    buffer: Vec<u8>,
    at: usize,
    header_written: bool,
}

impl<I: Iterator<Item = Timed>> Capture<I> {
    pub fn new(frames: I) -> Self {
        Capture { frames, buffer: Vec::new(), at: 0, header_written: false }
    }
}

impl<I: Iterator<Item = Timed>> Read for Capture<I> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        const ROOM: usize = 64 << 10;
        if self.at == self.buffer.len() {
            self.buffer.clear();
            self.at = 0;
            let format = PcapFormat::default();
            if !self.header_written {
                self.header_written = true;
                format.write_header(&mut self.buffer)?;
            }
            while self.buffer.len() < ROOM {
                let Some(frame) = self.frames.next() else { break };
                format.write_packet(
                    &mut self.buffer,
                    frame.at.0,
                    frame.octets.len() as u32,
                    &frame.octets,
                )?;
            }
        }
        let n = into.len().min(self.buffer.len() - self.at);
        into[..n].copy_from_slice(&self.buffer[self.at..self.at + n]);
        self.at += n;
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(times: &[u64]) -> Timeline {
        let frame =
            |at: u64| Timed { at: Nanos(at), from: End::Client, octets: vec![at as u8; 60] };
        Box::new(times.iter().map(|&at| frame(at)).collect::<Vec<_>>().into_iter())
    }

    #[test]
    fn timelines_are_one_capture_in_the_order_of_time() {
        let merged = Merged::new(vec![line(&[1, 5, 9]), line(&[2, 3, 10]), line(&[])]);
        let mut octets = Vec::new();
        Capture::new(merged).read_to_end(&mut octets).unwrap();
        let mut reader = squall_pcap::CaptureReader::from_read(&octets[..]).unwrap();
        let mut times = Vec::new();
        while let Some(packet) = reader.next().unwrap() {
            times.push((packet.time_ns, packet.data[0]));
        }
        assert_eq!(times, [1, 2, 3, 5, 9, 10].map(|at| (at, at as u8)));
    }
}

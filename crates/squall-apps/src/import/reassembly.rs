//! Reassembles one direction of a conversation.

use std::ops::Range;

use super::SideReport;

/// Time and number of a packet, which define the order of packets.
pub type Instant = (u64, u64);

/// The data of one side.
#[derive(Debug, Default)]
pub struct Stream {
    /// The sequence number of the SYN.
    pub first_seq: Option<u32>,
    /// The sequence number of offset 0, once known.
    origin: Option<u32>,
    /// Chunks by offset, without overlaps.
    chunks: Vec<Chunk>,
    /// All octets, in order of arrival.
    octets: Vec<u8>,
    /// Where the side's stream ends according to its FIN, and the time of the FIN.
    fin: Option<(i64, Instant)>,
    pub report: SideReport,
}

/// The octets of one packet.
#[derive(Clone, Debug, PartialEq)]
pub struct Chunk {
    /// Offset in the stream; for a datagram, its number.
    at: i64,
    /// Length in the stream; fewer octets may have been captured.
    len: u32,
    range: Range<usize>,
    time: Instant,
    /// Whether the sender had no further data at that time (PSH).
    push: bool,
}

/// A part of a side's ordered data.
#[derive(Debug, PartialEq)]
pub enum StreamPart {
    Octets {
        range: Range<usize>,
        push: bool,
    },
    /// Octets that the capture lacks.
    Missing {
        octets: u64,
    },
    Fin,
}

impl Stream {
    pub fn memory(&self) -> (usize, u64) {
        (self.chunks.len(), self.octets.len() as u64)
    }

    pub fn chunks_since(&self, before: usize) -> u64 {
        self.chunks.len().saturating_sub(before) as u64
    }

    pub fn octets(&self) -> &[u8] {
        &self.octets
    }

    pub fn is_silent(&self) -> bool {
        self.chunks.is_empty()
    }

    pub fn has_fin(&self) -> bool {
        self.fin.is_some()
    }

    pub fn datagram(&mut self, time: Instant, payload: &[u8], len: u32) {
        if len == 0 {
            self.report.empty += 1;
            return;
        }
        self.report.octets += payload.len() as u64;
        let at = self.chunks.len() as i64;
        let range = self.keep(payload);
        self.chunks.push(Chunk { at, len, range, time, push: true });
    }

    /// Adds `len` octets from `seq` on, of which `payload` was captured.
    pub fn segment(
        &mut self,
        time: Instant,
        seq: u32,
        payload: &[u8],
        len: u32,
        fin: bool,
        push: bool,
    ) {
        let origin = *self.origin.get_or_insert(match self.first_seq {
            Some(syn) => syn.wrapping_add(1),
            None => seq,
        });
        // The offset nearest to the known end of the data: sequence numbers wrap after 4 GiB.
        let end = self.chunks.last().map_or(0, Chunk::end);
        let near = origin.wrapping_add(end as u32);
        let at = end + i64::from(seq.wrapping_sub(near) as i32);
        if self.first_seq.is_some() && at < 0 {
            // A segment of an earlier connection, from before the SYN.
            return;
        }
        if fin {
            self.fin.get_or_insert((at + i64::from(len), time));
        }
        if len > 0 {
            self.insert(time, at, payload, len, push);
        }
    }

    /// Inserts octets; the first copy of each octet is kept.
    fn insert(&mut self, time: Instant, at: i64, payload: &[u8], len: u32, push: bool) {
        let end = at + i64::from(len);
        let (before, last) = (self.chunks.len(), self.chunks.last().map_or(at, |chunk| chunk.at));
        let mut place = at;
        let mut index = self.chunks.partition_point(|chunk| chunk.end() <= at);
        while place < end {
            let next = self.chunks.get(index);
            let free = next.map_or(end, |chunk| chunk.at.min(end));
            if place < free {
                let part = |place: i64| (place - at).clamp(0, payload.len() as i64) as usize;
                let captured = &payload[part(place)..part(free)];
                self.report.octets += captured.len() as u64;
                let range = self.keep(captured);
                // PSH belongs to the last octet.
                let push = push && free == end;
                self.chunks.insert(
                    index,
                    Chunk { at: place, len: (free - place) as u32, range, time, push },
                );
                place = free;
                index += 1;
            } else if let Some(chunk) = next {
                let to = chunk.end().min(end);
                let known = &self.octets[chunk.range.clone()];
                let differ = (place..to).filter(|&octet| {
                    let of = |octets: &[u8], begin: i64| octets.get((octet - begin) as usize).copied();
                    matches!((of(known, chunk.at), of(payload, at)), (Some(first), Some(now)) if first != now)
                });
                self.report.conflicting += differ.count() as u64;
                self.report.again += (to - place) as u64;
                place = to;
                index += 1;
            }
        }
        self.report.out_of_order += u64::from(at < last && self.chunks.len() > before);
    }

    fn keep(&mut self, octets: &[u8]) -> Range<usize> {
        let from = self.octets.len();
        self.octets.extend_from_slice(octets);
        from..self.octets.len()
    }

    /// All data in order. The time of each part is the earliest of that part and those after it:
    /// data captured late must have been sent before the data that follows it.
    pub fn in_order(&self, datagrams: bool) -> Vec<(Instant, StreamPart)> {
        let mut parts = vec![];
        let first = if self.first_seq.is_some() {
            0
        } else {
            self.chunks.first().map_or(0, |chunk| chunk.at)
        };
        let mut place = first;
        for chunk in &self.chunks {
            if chunk.at > place && !datagrams {
                parts.push((chunk.time, StreamPart::Missing { octets: (chunk.at - place) as u64 }));
            }
            parts.push((
                chunk.time,
                StreamPart::Octets { range: chunk.range.clone(), push: chunk.push },
            ));
            let missing = chunk.len as usize - chunk.range.len();
            if missing > 0 {
                parts.push((chunk.time, StreamPart::Missing { octets: missing as u64 }));
            }
            place = chunk.end();
        }
        if let Some((end, time)) = self.fin {
            if end > place {
                parts.push((time, StreamPart::Missing { octets: (end - place) as u64 }));
            }
            parts.push((time, StreamPart::Fin));
        }
        let mut earliest = (u64::MAX, u64::MAX);
        for (time, _) in parts.iter_mut().rev() {
            earliest = earliest.min(*time);
            *time = earliest;
        }
        parts
    }
}

impl Chunk {
    fn end(&self) -> i64 {
        self.at + i64::from(self.len)
    }
}

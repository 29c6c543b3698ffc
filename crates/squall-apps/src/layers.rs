//! Common parts of the layers between flows and programs: the PROXY protocol, TLS, HTTP/2 and
//! HTTP/3.

use std::{collections::VecDeque, fmt};

use squall_tcp::FlowId;

use crate::ProgramId;

/// Gives a program its part of a layer. `programs`: by number; `None`: without the layer.
pub(crate) fn set<T>(programs: &mut Vec<Option<T>>, program: ProgramId, own: T) {
    let at = usize::from(program.0);
    if programs.len() <= at {
        programs.resize_with(at + 1, || None);
    }
    programs[at] = Some(own);
}

/// Whether a program has the layer.
#[inline]
pub(crate) fn has<T>(programs: &[Option<T>], program: ProgramId) -> bool {
    programs.get(usize::from(program.0)).is_some_and(Option::is_some)
}

/// Copies octets that are kept until they are acknowledged, from position `from` on.
///
/// # Panics
/// If these octets are not kept any more.
pub(crate) fn copy_kept(kept: &VecDeque<u8>, from: usize, out: &mut [u8]) {
    let (first, second) = kept.as_slices();
    let in_first = first.len().saturating_sub(from).min(out.len());
    let (head, tail) = out.split_at_mut(in_first);
    if in_first > 0 {
        head.copy_from_slice(&first[from..from + in_first]);
    }
    let skip = from.saturating_sub(first.len());
    tail.copy_from_slice(&second[skip..skip + tail.len()]);
}

/// The connections of a layer: one for each of its flows, at a place that stays the same.
pub(crate) struct Slab<T> {
    /// By flow: its place + 1, or 0. A vector, because each event of a flow looks here, and numbers
    /// of flows are small: a free one is used again.
    places: Vec<u32>,
    all: Vec<Option<Box<T>>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { places: Vec::new(), all: Vec::new(), free: Vec::new() }
    }
}

/// Prints no keys.
impl<T> fmt::Debug for Slab<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slab").field("flows", &self.len()).finish_non_exhaustive()
    }
}

impl<T> Slab<T> {
    /// Gives a flow a place; its connection is to be [`put`](Self::put) there.
    pub fn reserve(&mut self, flow: FlowId) -> u32 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.all.push(None);
            self.all.len() as u32 - 1
        });
        let at = flow.0 as usize;
        if self.places.len() <= at {
            self.places.resize(at + 1, 0);
        }
        self.places[at] = place + 1;
        place
    }

    pub fn add(&mut self, flow: FlowId, connection: T) {
        let place = self.reserve(flow);
        self.put(place, Box::new(connection));
    }

    /// Takes out the connection of a flow for one of its events, and its place: to be
    /// [`put`](Self::put) back, or [`remove`](Self::remove)d.
    #[inline]
    pub fn take(&mut self, flow: FlowId) -> Option<(u32, Box<T>)> {
        let place = self.places.get(flow.0 as usize)?.checked_sub(1)?;
        Some((place, self.all[place as usize].take()?))
    }

    #[inline]
    pub fn put(&mut self, place: u32, connection: Box<T>) {
        self.all[place as usize] = Some(connection);
    }

    /// Frees the place of a flow whose connection was taken out.
    pub fn remove(&mut self, flow: FlowId) {
        let place = self.places.get_mut(flow.0 as usize).map(std::mem::take);
        self.free.extend(place.and_then(|place| place.checked_sub(1)));
    }

    /// The connection at this place.
    pub fn get(&self, place: u32) -> Option<&T> {
        self.all.get(place as usize)?.as_deref()
    }

    /// Number of flows.
    pub fn len(&self) -> usize {
        self.all.len() - self.free.len()
    }

    /// Memory usage in bytes. `of`: that of a connection, itself included.
    pub fn memory(&self, of: impl Fn(&T) -> usize) -> usize {
        self.all.iter().flatten().map(|connection| of(connection)).sum::<usize>()
            + self.all.capacity() * size_of::<usize>()
            + self.places.capacity() * size_of::<u32>()
    }
}

/// Sent octets that cannot be made twice, while they may still be asked for.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    octets: VecDeque<u8>,
    /// The offset of the first among all sent octets.
    begins: u32,
}

impl Kept {
    #[cfg(feature = "tls")]
    pub fn len(&self) -> usize {
        self.octets.len()
    }

    /// The offset after the last octet.
    pub fn end(&self) -> u32 {
        self.begins.wrapping_add(self.octets.len() as u32)
    }

    /// Adds octets. Returns the offset of the first.
    pub fn push(&mut self, octets: &[u8]) -> u32 {
        let begins = self.end();
        self.octets.extend(octets);
        begins
    }

    /// Drops the first `n` octets, at most all.
    pub fn drop_first(&mut self, n: usize) {
        let n = n.min(self.octets.len());
        self.begins = self.begins.wrapping_add(n as u32);
        if n == self.octets.len() {
            // Free the memory of idle connections.
            self.octets = VecDeque::new();
        } else {
            self.octets.drain(..n);
        }
    }

    /// Drops all but the last `n` octets.
    pub fn keep_last(&mut self, n: usize) {
        self.drop_first(self.octets.len().saturating_sub(n));
    }

    /// Copies octets from this offset on.
    ///
    /// # Panics
    /// If these octets are not kept any more.
    pub fn copy(&self, from: u32, out: &mut [u8]) {
        copy_kept(&self.octets, from.wrapping_sub(self.begins) as usize, out);
    }

    /// Memory usage in bytes.
    pub fn memory(&self) -> usize {
        self.octets.capacity()
    }
}

#[cfg(feature = "tls")]
impl Kept {
    /// The offset of the first octet.
    pub fn begins(&self) -> u32 {
        self.begins
    }

    /// Drops the last `n` octets, which were not sent.
    pub fn take_back(&mut self, n: usize) {
        self.octets.truncate(self.octets.len().saturating_sub(n));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_free_again_after_the_flow_that_had_it() {
        let mut slab = Slab::default();
        slab.add(FlowId(7), 'a');
        slab.add(FlowId(8), 'b');
        let (place, taken) = slab.take(FlowId(7)).expect("it is there");
        assert_eq!((place, *taken, slab.get(0), slab.get(1)), (0, 'a', None, Some(&'b')));
        assert!(slab.take(FlowId(7)).is_none(), "it is out");
        slab.put(place, taken);
        assert_eq!(slab.get(0), Some(&'a'));
        slab.take(FlowId(7));
        slab.remove(FlowId(7));
        assert_eq!((slab.len(), slab.reserve(FlowId(9))), (1, 0));
        assert!(slab.get(0).is_none() && slab.get(9).is_none(), "reserved, and never there");
    }

    #[test]
    fn kept_octets_are_found_by_their_offset_also_after_it_has_wrapped() {
        let mut kept = Kept { begins: u32::MAX - 1, ..Kept::default() };
        assert_eq!((kept.push(b"abc"), kept.push(b"def")), (u32::MAX - 1, 1));
        let at = |kept: &Kept, from, out: &mut [u8]| {
            kept.copy(from, out);
            String::from_utf8(out.to_vec()).expect("letters")
        };
        assert_eq!(at(&kept, u32::MAX, &mut [0; 4]), "bcde");
        kept.drop_first(2);
        assert_eq!((kept.len(), kept.end()), (4, 4));
        assert_eq!(at(&kept, 0, &mut [0; 4]), "cdef");
        kept.keep_last(3);
        assert_eq!((at(&kept, 1, &mut [0; 3]), kept.len()), ("def".into(), 3));
        kept.keep_last(9);
        kept.drop_first(9);
        assert_eq!((kept.len(), kept.end(), kept.memory()), (0, 4, 0));
    }
}

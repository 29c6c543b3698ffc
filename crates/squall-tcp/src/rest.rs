//! Flows at rest: open flows that wait with nothing to send, as most of a million users do. Their
//! records are packed: state that the flows of a template have in common is stored once.
//!
//! A flow keeps its number, so applications and timers notice nothing. [`Numbers`] has where it is.

use std::collections::HashMap;

use crate::{
    StateParts,
    addresses::{Addresses6, Packed},
    core::addresses,
    flow::{Bits, Duration, Flow},
    packet::Key,
    wheel::OUT,
};

/// Where a flow is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Index of its record.
    Record(u32),
    /// Its row in [`Rest`].
    Rest(u32),
    /// No flow has this number.
    Free,
}

/// Where the flows are, by their numbers, and their entries in the wheel.
pub(crate) struct Numbers {
    entries: Vec<Entry>,
    /// Head of the list of free numbers.
    free: u32,
}

/// 6 octets.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Halves of a number, the lower one first: index of a record, [`REST`] and a row, or [`FREE`]
    /// and the next free number.
    at: [u16; 2],
    /// Slot of the flow's entry in the wheel. The entry outlives the flow: the next one with this
    /// number takes it over.
    slot: u16,
}

const FREE: u32 = 1 << 31;
const REST: u32 = 1 << 30;
const NONE: u32 = u32::MAX;

impl Entry {
    #[inline(always)]
    fn at(self) -> u32 {
        u32::from(self.at[1]) << 16 | u32::from(self.at[0])
    }

    #[inline(always)]
    fn set(&mut self, at: u32) {
        self.at = [at as u16, (at >> 16) as u16];
    }
}

impl Numbers {
    pub fn new() -> Self {
        Self { entries: Vec::new(), free: NONE }
    }

    pub fn memory(&self) -> usize {
        self.entries.len() * size_of::<Entry>()
    }

    /// The numbers of flows are below this.
    #[inline]
    pub fn count(&self) -> usize {
        self.entries.len()
    }

    /// Gives a free number to a record. Also returns the slot of its entry in the wheel.
    #[inline]
    pub fn take(&mut self, record: u32) -> (u32, u16) {
        let number = self.free;
        if number == NONE {
            self.entries.push(Entry { at: [0; 2], slot: OUT });
            let number = self.entries.len() as u32 - 1;
            self.set(number, Place::Record(record));
            return (number, OUT);
        }
        let entry = &mut self.entries[number as usize];
        let next = entry.at() & !FREE;
        self.free = if next == NONE & !FREE { NONE } else { next };
        entry.set(record);
        (number, entry.slot)
    }

    /// Frees a number, and returns the slot of its entry in the wheel.
    #[inline]
    pub fn give(&mut self, number: u32) -> u16 {
        let entry = &mut self.entries[number as usize];
        entry.set(self.free | FREE);
        self.free = number;
        entry.slot
    }

    pub fn set(&mut self, number: u32, place: Place) {
        self.entries[number as usize].set(match place {
            Place::Record(record) => record,
            Place::Rest(row) => row | REST,
            Place::Free => unreachable!("numbers are freed by `give`"),
        });
    }

    /// The record of a flow that is not at rest.
    #[inline(always)]
    pub fn record(&self, number: u32) -> Option<u32> {
        let at = self.entries.get(number as usize)?.at();
        (at < REST).then_some(at)
    }

    #[inline]
    pub fn place(&self, number: u32) -> Place {
        match self.entries.get(number as usize).map(|entry| entry.at()) {
            Some(at) if at < REST => Place::Record(at),
            Some(at) if at < FREE => Place::Rest(at & !REST),
            _ => Place::Free,
        }
    }

    #[inline]
    pub fn slot(&mut self, number: u32) -> &mut u16 {
        &mut self.entries[number as usize].slot
    }
}

/// The state of one flow at rest.
#[derive(Clone, Copy, Debug)]
struct Row {
    local: u32,
    remote: u32,
    local_port: u16,
    remote_port: u16,
    /// SND.UNA, too.
    snd_nxt: u32,
    rcv_nxt: u32,
    ts_recent: u32,
    srtt: Duration,
    rttvar: Duration,
    rtx_at: u32,
    app_at: u32,
    own: [u32; 3],
    /// Index of its [`Common`]; in a free row, the next free one.
    common: u32,
}

/// The state that many flows at rest have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Common {
    bits: Bits,
    class: u16,
    mss: u16,
    upper: u16,
    snd_wnd: u32,
    /// Octets from RCV.NXT to the advertised edge.
    room: u32,
    cwnd: u32,
    state: [u32; 3],
}

/// Maximum number of different [`Common`]s. More would show that flows have little in common, and
/// packing them would save nothing.
const MOST_COMMON: usize = 1 << 16;

pub(crate) struct Rest {
    rows: Vec<Row>,
    /// Head of the list of free rows.
    free: u32,
    /// Each with the number of its rows.
    common: Vec<(Common, u32)>,
    spare: Vec<u32>,
    places: HashMap<Common, u32>,
    /// The last one used.
    last: u32,
}

impl Rest {
    pub fn new() -> Self {
        let (rows, common, spare) = (Vec::new(), Vec::new(), Vec::new());
        Self { rows, free: NONE, common, spare, places: HashMap::new(), last: NONE }
    }

    pub fn memory(&self) -> usize {
        self.rows.len() * size_of::<Row>()
            + self.common.capacity() * size_of::<(Common, u32)>()
            + self.places.capacity() * size_of::<(Common, u32)>()
            + self.spare.capacity() * 4
    }

    /// Packs a flow that has nothing outstanding and nothing to send, with the parts of its state,
    /// and returns its row; `None`: it has too little in common with others.
    pub fn pack<S>(&mut self, f: &Flow<S>, state: StateParts) -> Option<u32> {
        let common = self.place(&Common {
            bits: f.bits,
            class: f.class,
            mss: f.mss,
            upper: f.upper,
            snd_wnd: f.snd_wnd,
            room: f.rcv_adv.wrapping_sub(f.rcv_nxt),
            cwnd: f.cwnd,
            state: state.common,
        })?;
        self.common[common as usize].1 += 1;
        let row = Row {
            local: f.local,
            remote: f.remote,
            local_port: f.local_port,
            remote_port: f.remote_port,
            snd_nxt: f.snd_nxt,
            rcv_nxt: f.rcv_nxt,
            ts_recent: f.ts_recent,
            srtt: f.srtt,
            rttvar: f.rttvar,
            rtx_at: f.rtx_at,
            app_at: f.app_at,
            own: state.own,
            common,
        };
        if self.free == NONE {
            self.rows.push(row);
            return Some(self.rows.len() as u32 - 1);
        }
        let place = self.free;
        self.free = std::mem::replace(&mut self.rows[place as usize], row).common;
        Some(place)
    }

    fn place(&mut self, common: &Common) -> Option<u32> {
        if self
            .common
            .get(self.last as usize)
            .is_some_and(|(last, rows)| *rows > 0 && last == common)
        {
            return Some(self.last);
        }
        let place = match self.places.get(common) {
            Some(place) => *place,
            None if self.places.len() >= MOST_COMMON => return None,
            None => {
                let place = self.spare.pop().unwrap_or(self.common.len() as u32);
                match self.common.get_mut(place as usize) {
                    Some(spare) => *spare = (*common, 0),
                    None => self.common.push((*common, 0)),
                }
                self.places.insert(*common, place);
                place
            }
        };
        self.last = place;
        Some(place)
    }

    /// A copy of the flow's record, without its number.
    pub fn get<S: Default>(&self, row: u32, state: impl FnOnce(&StateParts) -> S) -> Flow<S> {
        let row = &self.rows[row as usize];
        let (common, _) = &self.common[row.common as usize];
        Flow {
            local: row.local,
            remote: row.remote,
            local_port: row.local_port,
            remote_port: row.remote_port,
            class: common.class,
            mss: common.mss,
            bits: common.bits,
            snd_una: row.snd_nxt,
            snd_nxt: row.snd_nxt,
            snd_wnd: common.snd_wnd,
            rcv_nxt: row.rcv_nxt,
            rcv_adv: row.rcv_nxt.wrapping_add(common.room),
            cwnd: common.cwnd,
            ts_recent: row.ts_recent,
            srtt: row.srtt,
            rttvar: row.rttvar,
            rtx_at: row.rtx_at,
            app_at: row.app_at,
            upper: common.upper,
            state: state(&StateParts { own: row.own, common: common.state }),
            ..Flow::new()
        }
    }

    /// Frees a row.
    pub fn release(&mut self, row: u32) {
        let place = &mut self.rows[row as usize];
        let common = std::mem::replace(&mut place.common, self.free);
        self.free = row;
        let (key, rows) = &mut self.common[common as usize];
        *rows -= 1;
        if *rows == 0 {
            self.places.remove(key);
            self.spare.push(common);
        }
    }

    pub fn key(&self, row: u32, addresses6: &Addresses6) -> Key {
        let row = &self.rows[row as usize];
        let (common, _) = &self.common[row.common as usize];
        let packed = Packed { local: row.local, remote: row.remote, upper: common.upper };
        Key {
            addresses: addresses(common.bits.has(Bits::V6), packed, addresses6),
            local_port: row.local_port,
            remote_port: row.remote_port,
            udp: false,
        }
    }

    /// Ticks of the protocol timer and of the application's, if they run.
    pub fn deadlines(&self, row: u32) -> [Option<u32>; 2] {
        let row = &self.rows[row as usize];
        let bits = self.common[row.common as usize].0.bits;
        [bits.has(Bits::RTX).then_some(row.rtx_at), bits.has(Bits::APP).then_some(row.app_at)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(n: u32) -> Flow<u32> {
        let mut f = Flow::new();
        (f.local, f.remote, f.local_port, f.remote_port) = (n, n + 1, n as u16, 80);
        (f.class, f.mss, f.upper, f.bits) = (3, 1460, 7, Bits(Bits::V6 | Bits::TIMESTAMPS));
        (f.snd_una, f.snd_nxt, f.rcv_nxt) = (n * 5, n * 5, n * 7);
        (f.rcv_adv, f.snd_wnd, f.cwnd) = (f.rcv_nxt.wrapping_add(65_535), 40_000, 14_600 + n % 2);
        (f.ts_recent, f.rtx_at, f.app_at, f.state) = (n * 11, n * 13, n * 17, n);
        (f.srtt, f.rttvar) = (Duration::from_micros(n), Duration::from_micros(2 * n));
        f
    }

    fn state(parts: &StateParts) -> u32 {
        parts.own[1] ^ parts.common[2]
    }

    #[test]
    fn packed_flows_come_back_as_they_were_and_their_rows_are_used_again() {
        let mut rest = Rest::new();
        let pack = |rest: &mut Rest, n| {
            let parts = StateParts { own: [0, n ^ 9, 0], common: [0, 0, 9] };
            rest.pack(&flow(n), parts).expect("room")
        };
        for _ in 0..3 {
            let rows: Vec<_> = (0..100).map(|n| pack(&mut rest, n)).collect();
            assert_eq!((rest.rows.len(), rest.places.len()), (100, 2));
            for (n, row) in (0..).zip(&rows) {
                let back = rest.get(*row, state);
                assert_eq!(format!("{back:?}"), format!("{:?}", flow(n)));
            }
            rows.iter().for_each(|row| rest.release(*row));
            assert_eq!((rest.places.len(), rest.common.len(), rest.spare.len()), (0, 2, 2));
        }
        assert!(size_of::<Row>() == 52 && size_of::<Entry>() == 6);
    }

    #[test]
    fn flows_with_nothing_in_common_are_not_packed() {
        let mut rest = Rest::new();
        let mut packed = 0;
        for n in 0..MOST_COMMON as u32 + 10 {
            let parts = StateParts { own: [0; 3], common: [n, 0, 0] };
            packed += usize::from(rest.pack(&flow(2), parts).is_some());
        }
        assert_eq!(packed, MOST_COMMON);
    }

    #[test]
    fn free_numbers_are_used_again_with_their_entries_in_the_wheel() {
        let mut numbers = Numbers::new();
        assert_eq!([10, 11, 12].map(|record| numbers.take(record).0), [0, 1, 2]);
        *numbers.slot(1) = 77;
        numbers.set(2, Place::Rest(5));
        let place = |numbers: &Numbers, n| (numbers.record(n), numbers.place(n));
        assert_eq!(place(&numbers, 0), (Some(10), Place::Record(10)));
        assert_eq!(place(&numbers, 2), (None, Place::Rest(5)));
        assert_eq!(place(&numbers, 3), (None, Place::Free));
        assert_eq!((numbers.give(0), numbers.give(1)), (OUT, 77));
        assert_eq!(place(&numbers, 1), (None, Place::Free));
        assert_eq!([20, 21, 22].map(|record| numbers.take(record)), [(1, 77), (0, OUT), (3, OUT)]);
        assert_eq!((place(&numbers, 1).0, numbers.count()), (Some(20), 4));
    }
}

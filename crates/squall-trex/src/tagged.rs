//! Tagged packet groups: packets that TRex counts by their group, and by their VLAN tags on arrival.
//!
//! The packets end with a header of 16 octets, in the byte order of TRex's x86: magic, group,
//! sequence number, reserved (`tpg_payload_header` of TRex v3.08). A device may change the tags on
//! the way; the header stays the same.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use serde_json::{Value, json};
use squall_engine::{Frames, MakeSink, Sink};
use squall_units::{FCS_LEN, get_be16};
use squall_wire::Segments;

/// Length of the header, and the offset of its sequence number.
pub const HEADER: usize = 16;
pub const SEQUENCE: usize = 8;
const MAGIC: u32 = 0xe50b_5cc1;
/// Maximum unknown tags that are listed, as in TRex.
const MOST_UNKNOWN: usize = 10;
const TAG: u16 = 0x8100;
const SERVICE_TAG: u16 = 0x88a8;

/// The header of a group, with sequence number 0.
pub fn header(group: u32) -> [u8; HEADER] {
    let mut octets = [0; HEADER];
    octets[..4].copy_from_slice(&MAGIC.to_le_bytes());
    octets[4..8].copy_from_slice(&group.to_le_bytes());
    octets
}

/// Reads the group and the sequence number from the end of a frame.
fn read(octets: &[u8]) -> Option<(u32, u32)> {
    let header: &[u8; HEADER] = octets.last_chunk()?;
    let word = |at: usize| {
        u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
    };
    (word(0) == MAGIC).then(|| (word(4), word(SEQUENCE)))
}

/// VLAN tags of a packet, the outermost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tag {
    One(u16),
    Two(u16, u16),
}

impl Tag {
    /// # Errors
    /// The type or a VLAN is not known to TRex.
    pub fn from_json(tag: &Value) -> Result<Self, String> {
        let vlan = |value: &Value| {
            let id = value.as_u64().filter(|id| (1..=4094).contains(id));
            id.map(|id| id as u16).ok_or_else(|| format!("VLAN {value}: expected 1 to 4094"))
        };
        let value = &tag["value"];
        match (tag["type"].as_str(), value["vlans"].as_array().map(Vec::as_slice)) {
            (Some("Dot1Q"), _) => Ok(Self::One(vlan(&value["vlan"])?)),
            (Some("QinQ"), Some([outer, inner])) => Ok(Self::Two(vlan(outer)?, vlan(inner)?)),
            (Some("QinQ"), _) => Err("QinQ: expected two vlans".into()),
            _ => Err(format!("type = {}: expected Dot1Q or QinQ", tag["type"])),
        }
    }

    pub fn to_json(self) -> Value {
        match self {
            Self::One(vlan) => json!({ "type": "Dot1Q", "value": { "vlan": vlan } }),
            Self::Two(outer, inner) => {
                json!({ "type": "QinQ", "value": { "vlans": [outer, inner] } })
            }
        }
    }

    fn of(octets: &[u8]) -> Option<Self> {
        let is_tag = |at: usize| matches!(get_be16(octets, at), Some(TAG | SERVICE_TAG));
        let vlan = |at: usize| get_be16(octets, at + 2).map(|tag| tag & 0xfff);
        match (is_tag(12), is_tag(16)) {
            (true, true) => Some(Self::Two(vlan(12)?, vlan(16)?)),
            (true, false) => Some(Self::One(vlan(12)?)),
            _ => None,
        }
    }
}

/// The class of a received packet within its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// The index of its tag in the list.
    Tag(u16),
    /// A tag that is not in the list.
    Unknown,
    Untagged,
}

/// Counters of a group and class; octets include the FCS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counter {
    packets: u64,
    octets: u64,
    /// Packets missing so far, by their sequence numbers.
    missing: u64,
    ahead: u64,
    below: u64,
    reordered: u64,
    duplicates: u64,
    next: u32,
}

impl Counter {
    /// Counts a packet. Sequence numbers of unknown tags are not examined, because packets of
    /// several tags are counted together.
    fn add(&mut self, sequence: u32, octets: u64, (unknown, multicast): (bool, bool)) {
        let next = sequence.wrapping_add(1);
        if multicast && self.packets == 0 {
            // A receiver joins a multicast stream at any packet.
            self.next = next;
        } else if !unknown {
            if sequence >= self.next {
                self.missing += u64::from(sequence - self.next);
                self.ahead += u64::from(sequence > self.next);
                self.next = next;
            } else {
                self.below += 1;
                if next == self.next {
                    self.duplicates += 1;
                } else {
                    self.reordered += 1;
                    self.missing = self.missing.saturating_sub(1);
                }
            }
        }
        self.packets += 1;
        self.octets += octets;
    }

    /// Whether clients see the same figures: TRex joins adjacent tags of which this holds.
    fn looks_like(&self, other: &Self) -> bool {
        Self { next: 0, ..*self } == Self { next: 0, ..*other }
    }

    fn to_json(self, class: Class) -> Value {
        let mut all = json!({ "pkts": self.packets, "bytes": self.octets });
        if class != Class::Unknown {
            all["seq_err"] = json!(self.missing);
            all["seq_err_too_big"] = json!(self.ahead);
            all["seq_err_too_small"] = json!(self.below);
            all["ooo"] = json!(self.reordered);
            all["dup"] = json!(self.duplicates);
        }
        all
    }
}

/// Tags by index. A tag that was removed leaves its index empty.
#[derive(Clone, Debug, Default)]
pub struct Tags {
    all: Vec<Option<Tag>>,
    index: HashMap<Tag, u16>,
}

impl Tags {
    /// # Errors
    /// A tag is listed twice, or there are too many.
    pub fn new(tags: impl Iterator<Item = Result<Tag, String>>) -> Result<Self, String> {
        let mut all = Self::default();
        for tag in tags {
            // The end of a range of tags is a number of 16 bits, too.
            let index = u16::try_from(all.len()).ok().filter(|index| *index < u16::MAX);
            let index = index.ok_or("more than 65,535 tags")?;
            all.all.push(None);
            all.set(index, Some(tag?))?;
        }
        Ok(all)
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Replaces the tag at an index.
    ///
    /// # Errors
    /// There is no such index, or the tag is at another one.
    pub fn set(&mut self, index: u16, tag: Option<Tag>) -> Result<(), String> {
        let count = self.len();
        let place = self.all.get_mut(usize::from(index)).ok_or_else(|| {
            format!("tag_id = {index}: expected less than the number of tags, {count}")
        })?;
        if let Some(tag) = tag
            && self.index.contains_key(&tag)
        {
            return Err(format!("tag {} is in the list already", tag.to_json()));
        }
        if let Some(before) = std::mem::replace(place, tag) {
            self.index.remove(&before);
        }
        if let Some(tag) = tag {
            self.index.insert(tag, index);
        }
        Ok(())
    }

    /// Tags in the order of their indices.
    pub fn list(&self) -> &[Option<Tag>] {
        &self.all
    }
}

/// Counters of a port that receives.
#[derive(Debug, Default)]
pub struct Received {
    groups: u32,
    tags: Tags,
    counters: HashMap<(u32, Class), Counter>,
    unknown: Vec<(Tag, u32)>,
}

impl Received {
    pub fn new(groups: u32, tags: Tags) -> Self {
        Self { groups, tags, ..Self::default() }
    }

    pub fn set_tags(&mut self, tags: Tags) {
        self.tags = tags;
    }

    /// Counts one frame without FCS; `len` is its length on the wire, also without FCS.
    fn count(&mut self, octets: &[u8], len: u32) {
        let Some((group, sequence)) = read(octets) else { return };
        let tag = Tag::of(octets);
        let known = tag.and_then(|tag| self.tags.index.get(&tag).copied());
        let class = match (tag, known) {
            (None, _) => Class::Untagged,
            (_, Some(index)) => Class::Tag(index),
            (Some(tag), None) => {
                if self.unknown.len() < MOST_UNKNOWN {
                    self.unknown.push((tag, group));
                }
                Class::Unknown
            }
        };
        if group < self.groups {
            let multicast = octets.first().is_some_and(|first| first & 1 == 1);
            self.counters.entry((group, class)).or_default().add(
                sequence,
                u64::from(len + FCS_LEN),
                (class == Class::Unknown, multicast),
            );
        }
    }

    fn counter(&self, group: u32, class: Class) -> Counter {
        self.counters.get(&(group, class)).copied().unwrap_or_default()
    }

    /// The counters of a class, under the name that clients expect.
    pub fn shown(&self, group: u32, class: Class) -> (String, Value) {
        let name = match class {
            Class::Tag(index) => index.to_string(),
            Class::Unknown => "unknown_tag".into(),
            Class::Untagged => "untagged".into(),
        };
        (name, self.counter(group, class).to_json(class))
    }

    /// The counters of the tag `first` and of the tags after it, before `end`, that look the same.
    pub fn section(&self, group: u32, first: u16, end: u16) -> (String, Value) {
        let counter = self.counter(group, Class::Tag(first));
        let same = |tag: &u16| self.counter(group, Class::Tag(*tag)).looks_like(&counter);
        let last = (first + 1..end).take_while(same).last();
        let name = last.map_or(first.to_string(), |last| format!("{first}-{last}"));
        (name, counter.to_json(Class::Tag(first)))
    }

    pub fn clear(&mut self, group: u32, classes: impl Iterator<Item = Class>) {
        for class in classes {
            self.counters.remove(&(group, class));
        }
    }

    pub fn unknown(&self) -> Value {
        let one = |(tag, group): &(Tag, u32)| json!({ "tag": tag.to_json(), "tpgid": group });
        self.unknown.iter().map(one).collect()
    }

    pub fn clear_unknown(&mut self) {
        self.unknown.clear();
    }
}

/// The counters of a port, which its receive queues share: a group's sequence goes through any of
/// them. Nothing is locked while the port does not count.
#[derive(Clone, Debug, Default)]
pub struct PortReceiver(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    counts: AtomicBool,
    received: Mutex<Received>,
}

impl PortReceiver {
    /// Starts with these counters, or stops.
    pub fn set(&self, received: Option<Received>) {
        let counts = received.is_some();
        *self.lock() = received.unwrap_or_default();
        self.0.counts.store(counts, Ordering::Release);
    }

    pub fn counts(&self) -> bool {
        self.0.counts.load(Ordering::Acquire)
    }

    pub fn lock(&self) -> MutexGuard<'_, Received> {
        self.0.received.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn sinks(&self) -> MakeSink {
        let own = self.clone();
        Arc::new(move |_queue| Box::new(Listener { port: own.clone(), segment: Vec::new() }))
    }
}

/// Counts the frames of one receive queue.
struct Listener {
    port: PortReceiver,
    /// Buffer for segments of joined frames.
    segment: Vec<u8>,
}

impl Sink for Listener {
    fn take(&mut self, frames: &mut Frames<'_>) {
        if !self.port.counts() {
            return;
        }
        let mut received = self.port.lock();
        for (octets, frame) in frames.batch().iter().filter(|(_, frame)| !frame.outgoing) {
            let cut = frame.cut;
            // The header is at the end, so a truncated frame has none.
            if octets.len() < frame.wire_len as usize {
                continue;
            }
            if cut.is_whole() {
                received.count(octets, frame.wire_len);
                continue;
            }
            let (transport, payload) = (cut.transport.into(), cut.payload.into());
            Segments::new(octets, cut.size.into(), transport, payload)
                .for_each(&mut self.segment, |octets| received.count(octets, octets.len() as u32));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame of 80 octets with these tags.
    fn frame(vlans: &[u16], group: u32, sequence: u32) -> Vec<u8> {
        let mut octets = vec![2; 12];
        for vlan in vlans {
            octets.extend([0x81, 0x00]);
            octets.extend((0x2000 | vlan).to_be_bytes());
        }
        octets.extend([0x08, 0x00]);
        octets.resize(80 - HEADER, 0x45);
        octets.extend(header(group));
        let at = octets.len() - HEADER + SEQUENCE;
        octets[at..at + 4].copy_from_slice(&sequence.to_le_bytes());
        octets
    }

    fn received() -> Received {
        let tags = [Tag::One(7), Tag::Two(7, 9), Tag::One(8), Tag::One(9)];
        Received::new(2, Tags::new(tags.into_iter().map(Ok)).expect("four tags"))
    }

    fn count(received: &mut Received, vlans: &[u16], sequences: &[u32]) {
        for sequence in sequences {
            received.count(&frame(vlans, 1, *sequence), 80);
        }
    }

    #[test]
    fn packets_are_counted_by_their_tags() {
        let mut received = received();
        count(&mut received, &[7], &[0, 1]);
        count(&mut received, &[7, 9], &[0]);
        count(&mut received, &[77], &[5, 3]);
        count(&mut received, &[], &[0]);
        // A group that was not asked for, and a frame without the header.
        received.count(&frame(&[7], 2, 0), 80);
        received.count(&[0; 80], 80);
        let figures = |of: (String, Value)| (of.0, of.1["pkts"].clone(), of.1["bytes"].clone());
        let tag = |index| figures(received.shown(1, Class::Tag(index)));
        assert_eq!(tag(0), ("0".into(), json!(2), json!(168)));
        assert_eq!(tag(1), ("1".into(), json!(1), json!(84)));
        assert_eq!(figures(received.shown(1, Class::Untagged)).1, json!(1));
        let (name, unknown) = received.shown(1, Class::Unknown);
        assert_eq!((name.as_str(), unknown), ("unknown_tag", json!({ "pkts": 2, "bytes": 168 })));
        let listed = json!([
            { "tag": { "type": "Dot1Q", "value": { "vlan": 77 } }, "tpgid": 1 },
            { "tag": { "type": "Dot1Q", "value": { "vlan": 77 } }, "tpgid": 1 },
        ]);
        assert_eq!(received.unknown(), listed);
    }

    #[test]
    fn losses_duplicates_and_order_are_those_of_the_sequence_numbers() {
        let mut received = received();
        // 2 and 3 are missing; 3 comes later; 6 comes twice.
        count(&mut received, &[7], &[0, 1, 4, 5, 3, 6, 6]);
        let (_, found) = received.shown(1, Class::Tag(0));
        let expected = json!({ "pkts": 7, "bytes": 588, "seq_err": 1, "seq_err_too_big": 1,
            "seq_err_too_small": 2, "ooo": 1, "dup": 1 });
        assert_eq!(found, expected);
    }

    #[test]
    fn adjacent_tags_with_the_same_counters_are_one_section() {
        let mut received = received();
        count(&mut received, &[7, 9], &[0, 1]);
        count(&mut received, &[8], &[0, 1]);
        let names = [(0, 4), (1, 4), (3, 4)].map(|(first, end)| received.section(1, first, end).0);
        assert_eq!(names, ["0", "1-2", "3"]);
        received.clear(1, [Class::Tag(1), Class::Tag(2)].into_iter());
        assert_eq!(received.section(1, 0, 4).0, "0-3");
    }

    #[test]
    fn a_tag_has_one_index() {
        let mut tags = Tags::new([Tag::One(7), Tag::One(8)].into_iter().map(Ok)).expect("two");
        assert!(tags.set(0, Some(Tag::One(8))).expect_err("taken").contains("already"));
        tags.set(1, None).expect("there");
        tags.set(0, Some(Tag::One(8))).expect("free");
        assert_eq!(tags.list(), [Some(Tag::One(8)), None]);
        assert!(tags.set(2, None).expect_err("two tags").contains("tag_id = 2"));
        for (tag, why) in [
            (json!({ "type": "Dot1Q", "value": { "vlan": 4095 } }), "1 to 4094"),
            (json!({ "type": "QinQ", "value": { "vlans": [1] } }), "two"),
            (json!({ "type": "VxLAN" }), "VxLAN"),
        ] {
            assert!(Tag::from_json(&tag).expect_err("invalid").contains(why), "{tag}");
        }
    }

    #[test]
    fn the_end_of_the_longest_list_of_tags_has_16_bits() {
        let tags = |count: u32| {
            let tag = |number: u32| Ok(Tag::Two((number >> 12) as u16, (number & 0xfff) as u16));
            Tags::new((0..count).map(tag))
        };
        let longest = tags(65_535).expect("as many as there can be");
        assert_eq!(longest.len(), usize::from(u16::MAX));
        let received = Received::new(1, longest);
        assert_eq!(received.section(0, u16::MAX - 1, u16::MAX).0, "65534");
        assert!(tags(65_536).expect_err("one more").contains("65,535"));
    }
}

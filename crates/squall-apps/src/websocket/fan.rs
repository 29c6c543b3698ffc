//! Messages that go to all connections of a group (`ws_fan_out`).
//!
//! A group keeps the frames of its messages once, in a ring; its members send from there, each at
//! its own pace.

use std::collections::{BTreeMap, HashMap, VecDeque};

use squall_tcp::FlowId;

use super::{Kind, MAX_MESSAGE, message_header};

/// Octets of frames from the oldest that a member may send or send again to the newest. Members that
/// need older ones are late, and end.
/// The longest message and its header fit.
pub(crate) const RING: u64 = MAX_MESSAGE + 10;

/// The groups of all programs of a worker.
#[derive(Clone, Debug, Default)]
pub(crate) struct Groups {
    /// By the numbers of program and group.
    places: HashMap<(u16, u32), u32>,
    all: Vec<Option<Box<Group>>>,
    free: Vec<u32>,
}

#[derive(Clone, Debug, Default)]
struct Group {
    of: (u16, u32),
    /// Octets of frames, and the offset of the first of them among all.
    ring: VecDeque<u8>,
    begins: u64,
    /// Number of messages so far.
    messages: u64,
    /// Ordered, so that equal runs wake them in the same order.
    members: BTreeMap<FlowId, Member>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Member {
    /// The offset up to which frames were sent, and the number of messages then.
    sent: u64,
    messages: u64,
    /// The offset from which on octets may be asked for again.
    needs: u64,
    /// Whether it will run because of a message.
    woken: bool,
}

/// Frames that a member may send now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frames {
    /// The lower half of the offset, which [`Groups::copy`] takes.
    pub nth: u32,
    pub octets: u32,
    pub messages: u32,
}

/// A member needs octets that are older than [`RING`] allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Late;

impl Groups {
    /// Adds a connection to a group, of which it gets all later messages. Returns the group's place.
    pub fn join(&mut self, program: u16, group: u32, id: FlowId) -> u32 {
        let Self { places, all, free } = self;
        let place = *places.entry((program, group)).or_insert_with(|| {
            let place = free.pop().unwrap_or_else(|| {
                all.push(None);
                all.len() as u32 - 1
            });
            let of = (program, group);
            all[place as usize] = Some(Box::new(Group { of, ..Group::default() }));
            place
        });
        let group = self.group(place);
        let end = group.end();
        let messages = group.messages;
        group.members.insert(id, Member { sent: end, needs: end, messages, woken: false });
        place
    }

    /// Removes a member whose flow has ended.
    pub fn leave(&mut self, place: u32, id: FlowId) {
        let group = self.group(place);
        group.members.remove(&id);
        if group.members.is_empty() {
            let of = group.of;
            self.places.remove(&of);
            self.all[place as usize] = None;
            self.free.push(place);
        }
    }

    /// Adds a message, and gives the members that have to run for it to `wake`.
    pub fn push(&mut self, place: u32, kind: Kind, payload: &[u8], mut wake: impl FnMut(FlowId)) {
        let group = self.group(place);
        let mut header = Vec::new();
        message_header(kind, payload.len() as u32, &mut header);
        group.ring.extend(header.iter().chain(payload));
        group.messages += 1;
        if group.ring.len() as u64 > RING {
            group.trim();
        }
        for (id, member) in &mut group.members {
            if !std::mem::replace(&mut member.woken, true) {
                wake(*id);
            }
        }
    }

    /// The frames that a member has not sent. `unacknowledged`: octets of its flow that may be asked
    /// for again, at least those of its frames.
    ///
    /// # Errors
    /// The member is late.
    pub fn next(
        &mut self,
        place: u32,
        id: FlowId,
        unacknowledged: u32,
    ) -> Result<Option<Frames>, Late> {
        let group = self.group(place);
        let (end, messages) = (group.end(), group.messages);
        let Some(member) = group.members.get_mut(&id) else { return Ok(None) };
        member.woken = false;
        member.needs = member.needs.max(member.sent.saturating_sub(unacknowledged.into()));
        if end - member.needs > RING {
            return Err(Late);
        }
        let octets = (end - member.sent) as u32;
        let frames = Frames {
            nth: member.sent as u32,
            octets,
            messages: (messages - member.messages) as u32,
        };
        Ok(Some(frames).filter(|_| octets > 0))
    }

    /// The member has sent what [`next`](Self::next) returned.
    pub fn sent(&mut self, place: u32, id: FlowId, frames: Frames) {
        if let Some(member) = self.group(place).members.get_mut(&id) {
            member.sent += u64::from(frames.octets);
            member.messages += u64::from(frames.messages);
        }
    }

    /// All data of a member's flow is acknowledged.
    pub fn acknowledged(&mut self, place: u32, id: FlowId) {
        if let Some(member) = self.group(place).members.get_mut(&id) {
            member.needs = member.sent;
        }
    }

    /// Copies octets of frames from `offset` after `nth`.
    ///
    /// # Panics
    /// If no member needs them any more.
    pub fn copy(&self, place: u32, nth: u32, offset: u32, out: &mut [u8]) {
        let group = self.all[place as usize].as_ref().expect("a member's group");
        let from = nth.wrapping_add(offset).wrapping_sub(group.begins as u32) as usize;
        crate::layers::copy_kept(&group.ring, from, out);
    }

    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Memory usage in bytes.
    pub fn memory(&self) -> usize {
        let of = |group: &Group| {
            size_of::<Group>()
                + group.ring.capacity()
                + group.members.len() * size_of::<(FlowId, Member)>()
        };
        self.all.iter().flatten().map(|group| of(group)).sum::<usize>()
            + self.all.capacity() * size_of::<usize>()
            + self.places.capacity() * size_of::<((u16, u32), u32)>()
    }

    fn group(&mut self, place: u32) -> &mut Group {
        self.all[place as usize].as_mut().expect("a member's group")
    }
}

impl Group {
    /// The offset after the last frame.
    fn end(&self) -> u64 {
        self.begins + self.ring.len() as u64
    }

    /// Drops the octets that no member needs. Late members need theirs until they have ended, which
    /// is soon, because the last message wakes them.
    fn trim(&mut self) {
        let needs = self.members.values().map(|member| member.needs).min().unwrap_or(self.end());
        self.ring.drain(..(needs - self.begins) as usize);
        self.begins = needs;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: usize = 1000;

    /// Adds messages, and returns the members that were woken.
    fn push(groups: &mut Groups, place: u32, messages: usize) -> Vec<FlowId> {
        let mut woken = Vec::new();
        for _ in 0..messages {
            groups.push(place, Kind::Text, &[b'a'; MESSAGE], |id| woken.push(id));
        }
        woken
    }

    #[test]
    fn members_get_later_messages_at_their_own_pace_and_late_ones_end() {
        let mut groups = Groups::default();
        let (quick, slow) = (FlowId(1), FlowId(2));
        let place = groups.join(0, 7, quick);
        assert_eq!(groups.join(0, 7, slow), place);
        assert_ne!(groups.join(0, 8, FlowId(3)), place);
        assert_eq!(push(&mut groups, place, 3), [quick, slow], "once each");
        let frames = groups.next(place, quick, 0).expect("in time").expect("frames");
        // A header of 4 octets (RFC 6455 section 5.2).
        assert_eq!((frames.messages, frames.octets), (3, 3 * (MESSAGE as u32 + 4)));
        groups.sent(place, quick, frames);
        assert_eq!(groups.next(place, quick, frames.octets), Ok(None));
        let mut octets = [0; 6];
        groups.copy(place, frames.nth, MESSAGE as u32 + 4, &mut octets);
        assert_eq!(octets, [0x81, 126, 3, 0xe8, b'a', b'a']);

        // One more than a ring has room for, since the slow one has taken any.
        let all = RING as usize / (MESSAGE + 4) - 2;
        for _ in 0..all {
            assert_eq!(push(&mut groups, place, 1), [quick]);
            let frames = groups.next(place, quick, 0).expect("in time").expect("frames");
            groups.sent(place, quick, frames);
        }
        groups.copy(place, 0, 0, &mut octets);
        assert_eq!(octets[0], 0x81, "the slow one may ask for all of them");
        assert_eq!(groups.next(place, slow, 0), Err(Late));
        groups.leave(place, slow);
        groups.acknowledged(place, quick);
        push(&mut groups, place, 1);
        assert!(groups.memory() < 3 << 20);
        let kept = groups.all[place as usize].as_ref().expect("a group").ring.len();
        assert_eq!(kept, MESSAGE + 4, "what nobody needs is dropped");
        groups.leave(place, quick);
        assert_eq!(groups.len(), 1);
    }
}

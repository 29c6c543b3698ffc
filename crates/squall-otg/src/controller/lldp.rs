//! LLDP instances of ports (IEEE 802.1AB-2016), which the threads of their interfaces run.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use squall_control::driving::lock;
use squall_host::{
    Speaker, SpeakerTimers,
    lldp::{LLDP, LldpId, Lldpdu, NEAREST_BRIDGE},
};
use squall_units::Nanos;

use super::dhcp;
use crate::LldpInfo;

/// Announcements that a new instance sends a second apart, and those for a new neighbor
/// (`txFastInit` and `msgFastTx`, section 9.2.5).
const FAST: u8 = 4;
/// Neighbors of an instance at most.
const MOST: usize = 4096;
/// Octets of an LLDPDU at most: it fits any Ethernet. Interfaces may have longer frames, with which
/// a peer could fill the memory.
const MOST_OCTETS: usize = 1500;
/// Octets of the shortest frame without FCS.
const MIN_FRAME: usize = 60;

/// An LLDP instance.
pub struct LldpAgent {
    pub info: LldpInfo,
    timers: SpeakerTimers,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    speaker: Speaker,
    /// Whether the announcement of the end is due.
    ends: bool,
    counters: LldpCounters,
    neighbors: BTreeMap<(LldpId, LldpId), LldpNeighbor>,
    /// Neighbors found so far.
    found: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LldpCounters {
    pub received: u64,
    pub sent: u64,
    /// Received frames with any error, and those of them that were discarded.
    pub errors: u64,
    pub discarded: u64,
    /// TLVs that were discarded, and those that this end does not know.
    pub discarded_tlvs: u64,
    pub unknown_tlvs: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LldpNeighbor {
    /// Its number among the neighbors of the instance, from 1.
    pub number: u64,
    pub unit: Lldpdu,
    /// Times of its first and of its last announcement.
    pub first: Nanos,
    pub last: Nanos,
}

impl LldpNeighbor {
    fn is_over(&self, now: Nanos) -> bool {
        now >= self.last + Nanos(u64::from(self.unit.ttl) * Nanos::SECOND.0)
    }
}

impl LldpAgent {
    /// An instance whose first announcement is due at `now`.
    pub fn new(info: &LldpInfo, now: Nanos) -> Self {
        let timers =
            SpeakerTimers { interval: info.interval, fast: FAST, fast_interval: Nanos::SECOND };
        let mut state = State::default();
        state.speaker.start(now, &timers);
        Self { info: info.clone(), timers, state: Mutex::new(state) }
    }

    /// Handles a received frame.
    pub fn receive(&self, now: Nanos, frame: &[u8]) {
        let Some((head, payload)) = frame.split_first_chunk::<14>() else { return };
        if head[12..] != LLDP.to_be_bytes() || head[6..12] == self.info.mac.0 {
            return;
        }
        let mut state = lock(&self.state);
        // A stopped instance has no neighbors.
        if state.speaker.due().is_none() {
            return;
        }
        let State { speaker, counters, neighbors, found, .. } = &mut *state;
        counters.received += 1;
        neighbors.retain(|_, neighbor| !neighbor.is_over(now));
        let unit = Lldpdu::parse(payload).ok().filter(|_| payload.len() <= MOST_OCTETS);
        let key = unit.as_ref().map(|unit| (unit.chassis.clone(), unit.port.clone()));
        // A full table discards further neighbors (`statsFramesDiscardedTotal`).
        let (Some(unit), Some(key)) =
            (unit, key.filter(|key| neighbors.len() < MOST || neighbors.contains_key(key)))
        else {
            counters.errors += 1;
            counters.discarded += 1;
            return;
        };
        counters.errors += u64::from(unit.discarded > 0);
        counters.discarded_tlvs += u64::from(unit.discarded);
        counters.unknown_tlvs += u64::from(unit.reserved) + unit.organizations.len() as u64;
        if unit.ttl == 0 {
            neighbors.remove(&key);
            return;
        }
        if let Some(known) = neighbors.get_mut(&key) {
            (known.unit, known.last) = (unit, now);
            return;
        }
        *found += 1;
        neighbors.insert(key, LldpNeighbor { number: *found, unit, first: now, last: now });
        speaker.speed_up(now, &self.timers);
    }

    /// Appends an announcement that is due to `out`.
    pub fn turn(&self, now: Nanos, out: &mut Vec<Vec<u8>>) {
        let mut state = lock(&self.state);
        if std::mem::take(&mut state.ends) {
            out.push(self.frame(0));
        } else if state.speaker.timer(now, &self.timers) {
            out.push(self.frame(self.info.unit.ttl));
        } else {
            return;
        }
        state.counters.sent += 1;
    }

    fn frame(&self, ttl: u16) -> Vec<u8> {
        let mut frame = [NEAREST_BRIDGE.0, self.info.mac.0].concat();
        frame.extend(LLDP.to_be_bytes());
        Lldpdu { ttl, ..self.info.unit.clone() }.write(&mut frame);
        frame.resize(frame.len().max(MIN_FRAME), 0);
        frame
    }

    pub fn counters(&self) -> LldpCounters {
        lock(&self.state).counters
    }

    /// The neighbors at `now`, in the order in which they were found.
    pub fn neighbors(&self, now: Nanos) -> Vec<LldpNeighbor> {
        let state = lock(&self.state);
        let current = state.neighbors.values().filter(|neighbor| !neighbor.is_over(now));
        let mut neighbors: Vec<_> = current.cloned().collect();
        neighbors.sort_by_key(|neighbor| neighbor.number);
        neighbors
    }

    /// Ends the instance and forgets its neighbors. A last announcement is due, with a time to live
    /// of 0.
    fn stop(&self) {
        let mut state = lock(&self.state);
        state.ends = state.speaker.stop();
        state.neighbors.clear();
    }
}

/// Ends instances, while the threads of their interfaces still run.
pub fn stop(agents: &[Arc<LldpAgent>]) {
    agents.iter().for_each(|agent| agent.stop());
    let have_ended = || agents.iter().all(|agent| !lock(&agent.state).ends);
    dhcp::wait_until(dhcp::RELEASE_TIMEOUT, have_ended);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{Config, translate};

    fn seconds(seconds: u64) -> Nanos {
        Nanos(seconds * Nanos::SECOND.0)
    }

    /// Two instances, which begin at 100 s.
    fn agents() -> [LldpAgent; 2] {
        let instance = |name: &str, port: &str, chassis: &str| {
            json!({
                "name": name, "connection": { "port_name": port }, "advertisement_interval": 5,
                "hold_time": 120,
                "chassis_id": { "mac_address_subtype": { "value": chassis } },
            })
        };
        let config = json!({
            "ports": [{ "name": "p1", "location": "va" }, { "name": "p2", "location": "vb" }],
            "lldp": [
                instance("a", "p1", "00:00:01:01:01:01"), instance("b", "p2", "00:00:01:01:01:02"),
            ],
        });
        let translated = translate(&Config::from_json(&config).unwrap()).unwrap();
        [0, 1].map(|number| LldpAgent::new(&translated.lldp[number], seconds(100)))
    }

    /// Both send their announcements at `now`, and receive them. Returns the numbers of frames.
    fn exchange(agents: &[LldpAgent; 2], now: Nanos) -> [usize; 2] {
        [0, 1].map(|from| {
            let mut frames = Vec::new();
            agents[from].turn(now, &mut frames);
            frames.iter().for_each(|frame| agents[1 - from].receive(now, frame));
            frames.len()
        })
    }

    #[test]
    fn two_instances_are_neighbors_until_one_of_them_ends() {
        let agents = agents();
        assert_eq!(exchange(&agents, seconds(100)), [1, 1]);
        // Each is a new neighbor of the other while announcements are a second apart: the first
        // instance, which has sent before it heard the second one, sends its next one at once.
        let mut times = [Vec::new(), Vec::new()];
        for tenth in 1001..1300 {
            let counts = exchange(&agents, Nanos(tenth * 100_000_000));
            for (times, count) in times.iter_mut().zip(counts) {
                times.extend((count > 0).then_some(tenth));
            }
        }
        assert_eq!(times[0], [1001, 1010, 1020, 1070, 1120, 1170, 1220, 1270]);
        assert_eq!(times[1], [1010, 1020, 1030, 1080, 1130, 1180, 1230, 1280]);
        let found = agents[0].neighbors(seconds(130));
        let [neighbor] = &found[..] else { panic!("{found:?}") };
        assert_eq!((neighbor.first, neighbor.last), (seconds(100), seconds(128)));
        assert_eq!((neighbor.number, neighbor.unit.ttl), (1, 120));
        assert_eq!(neighbor.unit.chassis.chassis(), "00:00:01:01:01:02");
        assert_eq!(neighbor.unit.port.port(), "p2");
        assert_eq!(neighbor.unit.system.as_deref(), Some("squall"));
        let counters = agents[0].counters();
        let expected = LldpCounters { received: 9, sent: 9, ..LldpCounters::default() };
        assert_eq!(counters, expected);

        agents[1].stop();
        assert!(lock(&agents[1].state).ends);
        assert_eq!(exchange(&agents, seconds(130)), [0, 1]);
        assert!(!lock(&agents[1].state).ends && agents[0].neighbors(seconds(130)).is_empty());
        assert_eq!(exchange(&agents, seconds(140)), [1, 0], "the other one goes on");
        assert!(agents[1].neighbors(seconds(140)).is_empty(), "it has stopped");
    }

    #[test]
    fn neighbors_that_fall_silent_are_over_after_their_time_to_live() {
        let agents = agents();
        exchange(&agents, seconds(100));
        assert_eq!(agents[0].neighbors(Nanos(seconds(220).0 - 1)).len(), 1);
        assert!(agents[0].neighbors(seconds(220)).is_empty());
    }

    #[test]
    fn frames_with_errors_are_counted_and_those_of_other_protocols_are_not() {
        let [a, b] = agents();
        let mut frames = Vec::new();
        b.turn(seconds(100), &mut frames);
        let frame = &frames[0];
        a.receive(seconds(100), &frame[..20]);
        let other = [&frame[..12], &[8, 0], &frame[14..]].concat();
        a.receive(seconds(100), &other);
        b.receive(seconds(100), frame);
        a.receive(seconds(100), &frame[..9]);
        // After the mandatory TLVs (9, 5 and 4 octets): one that is reserved, one of an
        // organization, and one that is too short.
        let tlvs = [18, 0, 254, 4, 0, 0x80, 0xc2, 1, 14, 1, 0];
        a.receive(seconds(100), &[&frame[..14 + 18], &tlvs[..]].concat());
        let expected = LldpCounters {
            received: 2,
            sent: 0,
            errors: 2,
            discarded: 1,
            discarded_tlvs: 1,
            unknown_tlvs: 2,
        };
        assert_eq!(a.counters(), expected);
        assert_eq!(b.counters(), LldpCounters { sent: 1, ..LldpCounters::default() });
    }
}

//! One neighbor over IPv6: address resolution and unreachability detection (RFC 4861 sections 7.2
//! and 7.3).

use squall_units::{MacAddr, Nanos, below};

use crate::{NdTimers, NeighborMessage};

/// The states of section 7.3.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reachability {
    /// Its MAC address is not known yet.
    Incomplete,
    Reachable,
    Stale,
    Delay,
    Probe,
}

/// An action on a neighbor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeighborAction {
    /// Solicit the address by multicast.
    Multicast,
    /// Solicit the neighbor itself.
    Unicast(MacAddr),
    /// The neighbor did not answer, and must be forgotten.
    Unreachable,
}

/// A neighbor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbor {
    state: Reachability,
    mac: MacAddr,
    pub is_router: bool,
    sent: u8,
    due: Option<Nanos>,
}

impl Neighbor {
    /// A neighbor that is to be resolved.
    pub fn unknown(now: Nanos) -> Self {
        Self {
            state: Reachability::Incomplete,
            mac: MacAddr::default(),
            is_router: false,
            sent: 0,
            due: Some(now),
        }
    }

    /// A neighbor whose MAC address a message has given that answers nothing (section 7.3.3).
    pub fn stale(mac: MacAddr) -> Self {
        Self { state: Reachability::Stale, mac, due: None, ..Self::unknown(Nanos::ZERO) }
    }

    pub fn state(&self) -> Reachability {
        self.state
    }

    /// The MAC address, if it is known.
    pub fn mac(&self) -> Option<MacAddr> {
        Some(self.mac).filter(|_| self.state != Reachability::Incomplete)
    }

    /// When [`Neighbor::timer`] must be called next.
    pub fn due(&self) -> Option<Nanos> {
        self.due
    }

    /// The MAC address for a packet that is sent now; `None`: the packet must wait.
    pub fn send(&mut self, now: Nanos, timers: &NdTimers) -> Option<MacAddr> {
        match self.state {
            Reachability::Incomplete => return None,
            // The first packet to a neighbor that may be gone starts its examination; until then
            // it costs nothing.
            Reachability::Stale => {
                self.state = Reachability::Delay;
                self.due = Some(now + timers.delay);
            }
            _ => {}
        }
        Some(self.mac)
    }

    /// Runs the timer, if it is due.
    pub fn timer(&mut self, now: Nanos, timers: &NdTimers) -> Option<NeighborAction> {
        if self.due.is_none_or(|due| due > now) {
            return None;
        }
        let limit = match self.state {
            Reachability::Incomplete => timers.multicast_solicits,
            Reachability::Delay => {
                (self.state, self.sent) = (Reachability::Probe, 0);
                timers.unicast_solicits
            }
            Reachability::Probe => timers.unicast_solicits,
            Reachability::Reachable | Reachability::Stale => {
                (self.state, self.due) = (Reachability::Stale, None);
                return None;
            }
        };
        if self.sent >= limit {
            self.due = None;
            return Some(NeighborAction::Unreachable);
        }
        self.sent += 1;
        self.due = Some(now + timers.retransmission);
        Some(match self.state {
            Reachability::Incomplete => NeighborAction::Multicast,
            _ => NeighborAction::Unicast(self.mac),
        })
    }

    /// The neighbor has advertised itself (section 7.2.5). `chance` is uniform. Returns whether its
    /// MAC address has become known.
    pub fn advertised(
        &mut self,
        now: Nanos,
        chance: u64,
        message: &NeighborMessage,
        timers: &NdTimers,
    ) -> bool {
        let has = |flag: u8| message.flags & flag != 0;
        let solicited = has(NeighborMessage::SOLICITED);
        if self.state == Reachability::Incomplete {
            let Some(mac) = message.mac else { return false };
            self.mac = mac;
            self.is_router = has(NeighborMessage::ROUTER);
            match solicited {
                true => self.confirm(now, chance, timers),
                false => self.become_stale(),
            }
            return true;
        }
        let other = message.mac.filter(|mac| *mac != self.mac);
        if other.is_some() && !has(NeighborMessage::OVERRIDE) {
            // Another host may have the address, too; the old one is examined on the next packet.
            if self.state == Reachability::Reachable {
                self.become_stale();
            }
            return false;
        }
        self.mac = message.mac.unwrap_or(self.mac);
        self.is_router = has(NeighborMessage::ROUTER);
        if solicited {
            self.confirm(now, chance, timers);
        } else if other.is_some() {
            self.become_stale();
        }
        false
    }

    /// The neighbor has sent a message of its own with its MAC address (sections 7.2.3 and 6.3.4).
    /// Returns whether its MAC address has become known.
    pub fn learn(&mut self, mac: MacAddr) -> bool {
        let new = self.state == Reachability::Incomplete;
        if new || self.mac != mac {
            self.mac = mac;
            self.become_stale();
        }
        new
    }

    /// An upper layer has had an answer through the neighbor (section 7.3.1).
    pub fn confirm(&mut self, now: Nanos, chance: u64, timers: &NdTimers) {
        if self.state == Reachability::Incomplete && self.mac == MacAddr::default() {
            return;
        }
        let base = timers.reachable.0;
        (self.state, self.sent) = (Reachability::Reachable, 0);
        // MIN_RANDOM_FACTOR 0.5 and MAX_RANDOM_FACTOR 1.5.
        self.due = Some(now + Nanos(base / 2 + below(chance, base + 1)));
    }

    fn become_stale(&mut self) {
        (self.state, self.sent, self.due) = (Reachability::Stale, 0, None);
    }
}

#[cfg(test)]
mod tests {
    use NeighborAction::{Multicast, Unicast, Unreachable};

    use super::*;

    const A: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
    const B: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
    const BEGIN: Nanos = Nanos(5_000_000_000);
    const S: u8 = NeighborMessage::SOLICITED;
    const O: u8 = NeighborMessage::OVERRIDE;
    const R: u8 = NeighborMessage::ROUTER;

    fn message(mac: Option<MacAddr>, flags: u8) -> NeighborMessage {
        let address = "fe80::1".parse().unwrap();
        NeighborMessage {
            solicitation: false,
            source: address,
            destination: address,
            target: address,
            mac,
            flags,
        }
    }

    fn at(seconds: f64) -> Nanos {
        BEGIN + Nanos::from_secs_f64(seconds)
    }

    /// A reachable neighbor with MAC address A.
    fn reachable() -> Neighbor {
        let mut neighbor = Neighbor::unknown(BEGIN);
        neighbor.timer(BEGIN, &NdTimers::default());
        get(&mut neighbor, Some(A), S);
        assert_eq!(neighbor.state(), Reachability::Reachable);
        neighbor
    }

    fn get(neighbor: &mut Neighbor, mac: Option<MacAddr>, flags: u8) -> bool {
        neighbor.advertised(BEGIN, 0, &message(mac, flags), &NdTimers::default())
    }

    /// All actions until the timers end, with the time before each in seconds.
    fn played(neighbor: &mut Neighbor, mut now: Nanos) -> Vec<(NeighborAction, f64)> {
        let timers = NdTimers::default();
        let mut actions = Vec::new();
        while let Some(due) = neighbor.due() {
            assert_eq!(neighbor.timer(due.saturating_sub(Nanos(1)), &timers), None, "too early");
            let waited = (due - now).as_secs_f64();
            if let Some(action) = neighbor.timer(due, &timers) {
                actions.push((action, waited));
                now = due;
            }
        }
        actions
    }

    #[test]
    fn three_multicast_solicitations_a_second_apart_resolve_or_give_up() {
        let mut neighbor = Neighbor::unknown(BEGIN);
        assert_eq!(neighbor.send(BEGIN, &NdTimers::default()), None, "the packet waits");
        let expected = [(Multicast, 0.0), (Multicast, 1.0), (Multicast, 1.0), (Unreachable, 1.0)];
        assert_eq!(played(&mut neighbor, BEGIN), expected);
    }

    #[test]
    fn an_answer_makes_it_reachable_for_half_to_one_and_a_half_of_30_seconds() {
        for (chance, expected) in [(0, 15.0), (u64::MAX / 2, 30.0), (u64::MAX, 45.0)] {
            let mut neighbor = Neighbor::unknown(BEGIN);
            neighbor.timer(BEGIN, &NdTimers::default());
            let answer = message(Some(A), S | R);
            assert!(neighbor.advertised(BEGIN, chance, &answer, &NdTimers::default()));
            assert!(neighbor.is_router);
            let lasts = (neighbor.due().unwrap() - BEGIN).as_secs_f64();
            assert!((lasts - expected).abs() < 0.001, "{lasts} s, expected {expected} s");
            assert_eq!(played(&mut neighbor, BEGIN), []);
            assert_eq!(neighbor.state(), Reachability::Stale);
        }
    }

    #[test]
    fn an_unsolicited_answer_resolves_but_does_not_prove_the_way_to_it() {
        let mut neighbor = Neighbor::unknown(BEGIN);
        assert!(!get(&mut neighbor, None, S), "without a MAC address");
        assert_eq!(neighbor.state(), Reachability::Incomplete);
        assert!(get(&mut neighbor, Some(A), O));
        assert_eq!(neighbor.state(), Reachability::Stale);
    }

    #[test]
    fn a_packet_to_a_stale_neighbor_is_followed_by_three_probes_after_5_seconds() {
        let mut neighbor = Neighbor::stale(A);
        assert_eq!(neighbor.due(), None, "nothing is sent to it");
        assert_eq!(neighbor.send(BEGIN, &NdTimers::default()), Some(A));
        assert_eq!(neighbor.state(), Reachability::Delay);
        let expected =
            [(Unicast(A), 5.0), (Unicast(A), 1.0), (Unicast(A), 1.0), (Unreachable, 1.0)];
        assert_eq!(played(&mut neighbor, BEGIN), expected);
    }

    #[test]
    fn a_probe_that_is_answered_makes_it_reachable_again() {
        let mut neighbor = Neighbor::stale(A);
        neighbor.send(BEGIN, &NdTimers::default());
        neighbor.timer(at(5.0), &NdTimers::default());
        assert_eq!(neighbor.state(), Reachability::Probe);
        get(&mut neighbor, None, S);
        assert_eq!(neighbor.state(), Reachability::Reachable, "the MAC address may be left out");
    }

    #[test]
    fn an_upper_layer_that_has_answers_makes_probes_superfluous() {
        let mut neighbor = Neighbor::stale(A);
        neighbor.send(BEGIN, &NdTimers::default());
        neighbor.confirm(at(1.0), 0, &NdTimers::default());
        assert_eq!(neighbor.state(), Reachability::Reachable);
        assert_eq!(neighbor.due(), Some(at(16.0)));
    }

    #[test]
    fn another_mac_address_counts_only_with_the_flag_override() {
        let timers = NdTimers::default();
        let mut neighbor = reachable();
        get(&mut neighbor, Some(B), S);
        assert_eq!(neighbor.state(), Reachability::Stale, "it is examined");
        assert_eq!(neighbor.send(BEGIN, &timers), Some(A));
        let mut neighbor = reachable();
        get(&mut neighbor, Some(B), O);
        assert_eq!(
            (neighbor.state(), neighbor.send(BEGIN, &timers)),
            (Reachability::Stale, Some(B))
        );
        let mut neighbor = reachable();
        get(&mut neighbor, Some(B), S | O);
        assert_eq!(
            (neighbor.state(), neighbor.send(BEGIN, &timers)),
            (Reachability::Reachable, Some(B))
        );
        let mut neighbor = Neighbor::stale(A);
        get(&mut neighbor, Some(B), S);
        assert_eq!((neighbor.state(), neighbor.mac), (Reachability::Stale, A), "already stale");
    }

    #[test]
    fn the_same_mac_address_without_a_question_changes_nothing() {
        for flags in [0, O] {
            let mut neighbor = reachable();
            let before = neighbor;
            get(&mut neighbor, Some(A), flags);
            assert_eq!(neighbor, before);
        }
    }

    #[test]
    fn a_message_of_its_own_gives_its_mac_address() {
        let mut neighbor = Neighbor::unknown(BEGIN);
        assert!(neighbor.learn(A));
        assert_eq!(neighbor.state(), Reachability::Stale);
        let mut neighbor = reachable();
        assert!(!neighbor.learn(A));
        assert_eq!(neighbor.state(), Reachability::Reachable);
        neighbor.learn(B);
        assert_eq!((neighbor.state(), neighbor.mac), (Reachability::Stale, B));
    }

    #[test]
    fn a_router_that_becomes_a_host_is_no_router() {
        let mut neighbor = reachable();
        get(&mut neighbor, Some(A), S | R);
        assert!(neighbor.is_router);
        get(&mut neighbor, Some(A), S);
        assert!(!neighbor.is_router);
    }

    /// A neighbor in this state at the begin.
    fn in_state(state: Reachability) -> Neighbor {
        let timers = NdTimers::default();
        let mut neighbor = Neighbor::stale(A);
        if state != Reachability::Stale {
            neighbor.send(BEGIN, &timers);
        }
        if state == Reachability::Probe {
            neighbor.timer(at(5.0), &timers);
        }
        assert_eq!(neighbor.state(), state);
        neighbor
    }

    #[test]
    fn further_packets_do_not_prolong_the_time_before_the_first_probe() {
        let timers = NdTimers::default();
        let mut neighbor = in_state(Reachability::Delay);
        for second in 1..5 {
            assert_eq!(neighbor.send(at(f64::from(second)), &timers), Some(A));
        }
        assert_eq!(neighbor.due(), Some(at(5.0)), "DELAY_FIRST_PROBE_TIME");
    }

    #[test]
    fn packets_are_sent_while_a_neighbor_is_probed() {
        let timers = NdTimers::default();
        let mut neighbor = in_state(Reachability::Probe);
        assert_eq!(neighbor.send(at(5.5), &timers), Some(A));
        assert_eq!(neighbor.due(), Some(at(6.0)), "RETRANS_TIMER");
    }

    #[test]
    fn a_packet_to_a_reachable_neighbor_changes_no_timer() {
        let mut neighbor = reachable();
        let due = neighbor.due();
        assert_eq!(neighbor.send(at(1.0), &NdTimers::default()), Some(A));
        assert_eq!((neighbor.state(), neighbor.due()), (Reachability::Reachable, due));
    }

    #[test]
    fn an_answer_before_the_first_probe_makes_it_superfluous() {
        let mut neighbor = in_state(Reachability::Delay);
        neighbor.advertised(at(3.0), 0, &message(None, S), &NdTimers::default());
        assert_eq!(neighbor.state(), Reachability::Reachable);
        assert_eq!(neighbor.due(), Some(at(18.0)), "half of REACHABLE_TIME at least");
    }

    #[test]
    fn each_confirmation_begins_the_reachable_time_again() {
        let timers = NdTimers::default();
        let mut neighbor = reachable();
        for second in [5.0, 10.0, 15.0] {
            neighbor.confirm(at(second), u64::MAX / 2, &timers);
            let lasts = neighbor.due().unwrap() - at(second);
            assert!((lasts.as_secs_f64() - 30.0).abs() < 0.001, "{lasts:?}");
        }
    }

    #[test]
    fn an_answer_to_the_last_solicitation_counts_until_its_time_is_over() {
        let timers = NdTimers::default();
        let mut neighbor = Neighbor::unknown(BEGIN);
        for second in 0..3 {
            assert_eq!(neighbor.timer(at(f64::from(second)), &timers), Some(Multicast));
        }
        let last = at(3.0) - Nanos(1);
        assert_eq!(neighbor.timer(last, &timers), None);
        assert!(neighbor.advertised(last, 0, &message(Some(A), S), &timers));
        assert_eq!(neighbor.timer(at(3.0), &timers), None);
        assert_eq!(neighbor.mac(), Some(A));
    }

    #[test]
    fn numbers_and_times_of_solicitations_are_settable() {
        let timers = NdTimers {
            multicast_solicits: 2,
            unicast_solicits: 1,
            retransmission: Nanos(500_000_000),
            delay: Nanos(2_000_000_000),
            reachable: Nanos(8_000_000_000),
            ..NdTimers::default()
        };
        let mut neighbor = Neighbor::unknown(BEGIN);
        let mut acts = Vec::new();
        while let Some(due) = neighbor.due() {
            acts.extend(neighbor.timer(due, &timers).map(|act| (act, (due - BEGIN).0 / 1_000_000)));
        }
        assert_eq!(acts, [(Multicast, 0), (Multicast, 500), (Unreachable, 1000)]);
        let mut neighbor = Neighbor::stale(A);
        neighbor.send(BEGIN, &timers);
        let mut acts = Vec::new();
        while let Some(due) = neighbor.due() {
            acts.extend(neighbor.timer(due, &timers).map(|act| (act, (due - BEGIN).0 / 1_000_000)));
        }
        assert_eq!(acts, [(Unicast(A), 2000), (Unreachable, 2500)]);
        let mut neighbor = Neighbor::stale(A);
        neighbor.confirm(BEGIN, 0, &timers);
        assert_eq!(neighbor.due(), Some(at(4.0)));
    }

    #[test]
    fn another_mac_address_in_the_middle_of_probes_ends_them() {
        let mut neighbor = in_state(Reachability::Probe);
        assert!(!neighbor.learn(B));
        assert_eq!((neighbor.state(), neighbor.due()), (Reachability::Stale, None));
    }
}

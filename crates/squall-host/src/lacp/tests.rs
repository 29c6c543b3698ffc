//! Two ports of a link, in virtual time.

use proptest::prelude::*;
use squall_units::SplitMix64;

use super::*;

fn millis(millis: u64) -> Nanos {
    Nanos(millis * 1_000_000)
}

fn seconds(seconds: u64) -> Nanos {
    millis(seconds * 1000)
}

fn settings(number: u8, state: u8) -> LacpSettings {
    let default = LacpSettings::default();
    let system = MacAddr([2, 0, 0, 0, 0, number]);
    let actor = LacpInfo { system, port: number.into(), state, ..default.actor };
    LacpSettings { actor, ..default }
}

const FAST: u8 = ACTIVITY | SHORT_TIMEOUT | AGGREGATION;

/// Two ports, whose PDUs arrive at once.
struct Link {
    ports: [LacpPort; 2],
    settings: [LacpSettings; 2],
    now: Nanos,
    random: SplitMix64,
    loss: u64,
    repeats: u64,
    /// PDUs that are on the way at the same time arrive in any order.
    shuffles: bool,
    queue: Vec<(usize, Vec<u8>)>,
    /// LACPDUs and events of each port with their times.
    sent: [Vec<Nanos>; 2],
    events: [Vec<(Nanos, LacpEvent)>; 2],
}

impl Link {
    fn new(states: [u8; 2]) -> Self {
        Self {
            ports: Default::default(),
            settings: [settings(1, states[0]), settings(2, states[1])],
            now: seconds(100),
            random: SplitMix64(4),
            loss: 0,
            repeats: 0,
            shuffles: false,
            queue: Vec::new(),
            sent: Default::default(),
            events: Default::default(),
        }
    }

    fn started(states: [u8; 2]) -> Self {
        let mut link = Self::new(states);
        link.step(0, LacpPort::start);
        link.step(1, LacpPort::start);
        link.exchange();
        link
    }

    fn step(
        &mut self,
        end: usize,
        act: impl FnOnce(&mut LacpPort, Nanos, &LacpSettings) -> LacpStep,
    ) {
        let step = act(&mut self.ports[end], self.now, &self.settings[end]);
        for (word, octets) in step.send {
            assert_eq!((word, octets.len()), ("lacpdu", 110));
            self.sent[end].push(self.now);
            let draw = self.random.draw() % 100;
            let copies =
                if draw < self.loss { 0 } else { 1 + u64::from(draw < self.loss + self.repeats) };
            (0..copies).for_each(|_| self.queue.push((1 - end, octets.clone())));
        }
        self.events[end].extend(step.events.into_iter().map(|event| (self.now, event)));
    }

    fn exchange(&mut self) {
        while !self.queue.is_empty() {
            let most = if self.shuffles { self.queue.len() as u64 } else { 1 };
            let (end, octets) = self.queue.remove((self.random.draw() % most) as usize);
            self.step(end, |port, now, settings| port.receive(now, &octets, settings));
        }
    }

    fn run(&mut self, until: Nanos) {
        loop {
            let due =
                self.ports.iter().enumerate().filter_map(|(end, port)| Some((port.due()?, end)));
            let Some((due, end)) = due.min().filter(|(due, _)| *due <= until) else { break };
            assert!(due >= self.now, "a timer is in the past: {:?}", self.ports[end]);
            self.now = due;
            self.step(end, LacpPort::timer);
            self.exchange();
        }
        self.now = until;
    }

    /// From now on, no PDU arrives.
    fn cut(&mut self) {
        self.loss = 100;
        self.queue.clear();
    }

    /// Times of the LACPDUs of an end after `begin`, in milliseconds.
    fn times(&self, end: usize, begin: Nanos) -> Vec<u64> {
        let after = self.sent[end].iter().filter(|at| **at > begin);
        after.map(|at| (at.0 - begin.0) / 1_000_000).collect()
    }

    fn events(&self, end: usize) -> Vec<LacpEvent> {
        self.events[end].iter().map(|(_, event)| *event).collect()
    }
}

#[test]
fn two_active_ports_distribute_after_the_wait_for_further_ports() {
    let mut link = Link::started([FAST, FAST]);
    assert_eq!((link.sent[0].len(), link.ports[0].mux_state()), (0, LacpMux::Detached));
    // The first PDU is due after a fast interval.
    for wait in [seconds(101), millis(102_999)] {
        link.run(wait);
        assert!(link.ports.iter().all(|port| port.mux_state() == LacpMux::Waiting), "{wait}");
    }
    link.run(seconds(103));
    for (end, port) in link.ports.iter().enumerate() {
        assert!(port.is_up() && port.is_selected(), "{port:?}");
        assert_eq!(port.receive_state(), LacpReceive::Current);
        let (actor, partner) = port.ends();
        let bits = FAST | SYNCHRONIZATION | COLLECTING | DISTRIBUTING;
        assert_eq!((actor.state, partner.state), (bits, bits));
        assert_eq!(partner.system, link.settings[1 - end].actor.system);
        let [LacpEvent::Up(after)] = link.events(end)[..] else {
            panic!("{:?}", link.events);
        };
        assert!(after >= seconds(3) && after < seconds(4), "{after:?}");
    }
}

#[test]
fn a_port_announces_itself_each_second_to_a_partner_with_the_short_timeout() {
    let mut link = Link::started([FAST, FAST]);
    link.run(seconds(110));
    link.run(seconds(120));
    assert_eq!(link.times(0, seconds(110)).len(), 10);
    // The interval is that of the partner's timeout, not of the own one.
    let mut link = Link::started([FAST & !SHORT_TIMEOUT, FAST]);
    link.run(seconds(130));
    link.run(seconds(190));
    assert_eq!(link.times(0, seconds(130)).len(), 60, "to a partner with the short timeout");
    assert_eq!(link.times(1, seconds(130)).len(), 2, "and to one with the long timeout");
}

#[test]
fn announcements_expire_after_three_seconds_and_are_forgotten_three_seconds_later() {
    let mut link = Link::started([FAST, FAST]);
    link.run(seconds(110));
    let last = *link.sent[1].last().expect("the partner announced itself");
    link.cut();
    let before = link.events[0].len();
    link.run(seconds(130));
    let seen: Vec<_> = link.events[0][before..].iter().map(|(at, e)| (at.0 - last.0, *e)).collect();
    let second = 1_000_000_000;
    let expected = [
        (3 * second, LacpEvent::Expired),
        (3 * second, LacpEvent::Down),
        (6 * second, LacpEvent::Defaulted),
    ];
    assert_eq!(seen[..3], expected);
    let port = &link.ports[0];
    assert_eq!(
        (port.receive_state(), port.ends().1.system),
        (LacpReceive::Defaulted, MacAddr::default())
    );
    assert!(!port.is_up());
    assert_eq!(port.ends().0.state & (DEFAULTED | EXPIRED), DEFAULTED);
}

#[test]
fn with_the_long_timeout_it_expires_after_ninety_seconds() {
    let slow = FAST & !SHORT_TIMEOUT;
    let mut link = Link::started([slow, slow]);
    link.run(seconds(150));
    assert!(link.ports[0].is_up());
    let last = *link.sent[1].last().expect("the partner announced itself");
    link.cut();
    link.run(Nanos(last.0 + seconds(90).0 - 1));
    assert!(link.ports[0].is_up());
    link.run(last + seconds(90));
    assert_eq!(link.ports[0].receive_state(), LacpReceive::Expired);
    // The short timeout while it is expired, and a PDU each second.
    let begin = link.now;
    link.run(begin + seconds(3));
    assert_eq!(link.ports[0].receive_state(), LacpReceive::Defaulted);
    assert!(link.times(0, begin).len() >= 3, "{:?}", link.times(0, begin));
}

#[test]
fn a_port_without_a_partner_is_defaulted_after_three_seconds_and_stays_individual() {
    let mut link = Link::new([FAST, FAST]);
    link.step(0, LacpPort::start);
    link.cut();
    link.run(millis(102_999));
    assert_eq!(link.ports[0].receive_state(), LacpReceive::Expired);
    assert_eq!(link.times(0, seconds(100)), [1000, 2000], "the fast interval");
    link.run(seconds(170));
    assert_eq!(link.ports[0].mux_state(), LacpMux::Attached, "it never collects");
    assert_eq!(link.events(0), [LacpEvent::Defaulted, LacpEvent::PartnerChurn]);
    assert_eq!(link.events[0][1].0, seconds(160), "60 s after the begin");
    assert_eq!(link.times(0, seconds(110)), [23_000, 53_000], "the slow interval from then on");
}

#[test]
fn two_passive_ports_are_silent_and_one_active_port_is_enough() {
    let passive = FAST & !ACTIVITY;
    let mut link = Link::started([passive, passive]);
    link.run(seconds(200));
    assert_eq!((link.sent[0].len(), link.sent[1].len()), (0, 0));
    assert!(!link.ports[0].is_up());
    let mut link = Link::started([passive, FAST]);
    link.run(seconds(110));
    assert!(link.ports.iter().all(LacpPort::is_up), "{:?}", link.ports);
}

#[test]
fn a_port_on_standby_announces_itself_out_of_sync_until_it_is_let_back_in() {
    let mut link = Link::started([FAST, FAST]);
    link.run(seconds(110));
    link.step(0, |port, now, settings| port.set_standby(now, true, settings));
    link.exchange();
    link.run(seconds(120));
    let [own, other] = &link.ports;
    assert!(!own.is_up() && !own.is_selected() && !other.is_up());
    assert_eq!((own.mux_state(), other.mux_state()), (LacpMux::Detached, LacpMux::Attached));
    assert_eq!(other.ends().1.state & (SYNCHRONIZATION | COLLECTING), 0);
    assert_eq!(link.times(0, seconds(111)).len(), 9, "one each second");
    // It outlasts a stop and a start.
    link.ports[0].stop();
    link.step(0, LacpPort::start);
    link.run(seconds(140));
    assert!(!link.ports[0].is_up());
    link.step(0, |port, now, settings| port.set_standby(now, false, settings));
    link.run(seconds(150));
    assert!(link.ports.iter().all(LacpPort::is_up), "{:?}", link.ports);
}

#[test]
fn at_most_three_pdus_leave_in_a_fast_interval() {
    let mut link = Link::new([FAST, FAST]);
    link.step(0, LacpPort::start);
    link.queue.clear();
    // Each PDU has a wrong image of the port, which asks for an answer.
    let actor = settings(2, FAST).actor;
    for number in 0..20 {
        link.now = seconds(100) + millis(number * 10);
        let other = LacpInfo { key: number as u16, ..actor };
        let pdu = write(&actor, &other);
        link.step(0, |port, now, settings| port.receive(now, &pdu, settings));
    }
    assert_eq!(link.sent[0].len(), 3);
    assert_eq!(link.ports[0].due(), Some(seconds(101)), "when the first no longer counts");
    link.queue.clear();
    link.now = seconds(101);
    link.step(0, LacpPort::timer);
    assert_eq!(link.sent[0].len(), 4);
}

#[test]
fn a_port_leaves_its_aggregate_for_another_partner() {
    let mut link = Link::started([FAST, FAST]);
    link.run(seconds(110));
    let other = LacpInfo { state: FAST, ..settings(9, FAST).actor };
    let pdu = write(&other, &LacpInfo::default());
    link.step(0, |port, now, settings| port.receive(now, &pdu, settings));
    link.queue.clear();
    assert_eq!((link.ports[0].mux_state(), link.ports[0].is_selected()), (LacpMux::Waiting, true));
    assert_eq!(link.events(0).last(), Some(&LacpEvent::Down));
    assert_eq!(link.ports[0].ends().1.system, other.system);
}

#[test]
fn a_partner_that_does_not_agree_is_in_churn_after_a_minute() {
    let mut link = Link::new([FAST, FAST]);
    link.step(0, LacpPort::start);
    let actor = settings(2, FAST).actor;
    // The partner never takes the port into its aggregate.
    while link.now < seconds(165) {
        link.queue.clear();
        let pdu = write(&actor, link.ports[0].ends().0);
        link.step(0, |port, now, settings| port.receive(now, &pdu, settings));
        link.now = link.now + seconds(1);
        link.step(0, LacpPort::timer);
    }
    assert_eq!(link.ports[0].mux_state(), LacpMux::Attached);
    assert_eq!(link.events[0], [(seconds(160), LacpEvent::PartnerChurn)]);
}

/// The first port receives a PDU of a partner in sync, which has these further bits and knows the
/// port.
fn receive_state(link: &mut Link, state: u8) {
    let actor = settings(2, state | SYNCHRONIZATION).actor;
    let pdu = write(&actor, link.ports[0].ends().0);
    link.step(0, |port, now, settings| port.receive(now, &pdu, settings));
    link.queue.clear();
}

/// A port with the long timeout that has started, and whose PDUs arrive nowhere.
fn slow_port() -> Link {
    let mut link = Link::new([FAST & !SHORT_TIMEOUT, FAST]);
    link.step(0, LacpPort::start);
    link.cut();
    link
}

#[test]
fn a_partner_that_changes_to_the_long_timeout_gets_the_next_pdu_thirty_seconds_later() {
    let mut link = slow_port();
    receive_state(&mut link, FAST);
    let change = millis(105_300);
    link.run(change);
    assert_eq!(link.times(0, seconds(102)), [1000, 2000, 3000], "FAST_PERIODIC");
    receive_state(&mut link, FAST & !SHORT_TIMEOUT);
    link.run(change + seconds(61));
    assert_eq!(link.times(0, change), [30_000, 60_000], "SLOW_PERIODIC begins with the change");
}

#[test]
fn a_partner_that_changes_to_the_short_timeout_gets_a_pdu_at_once_and_then_each_second() {
    let mut link = slow_port();
    receive_state(&mut link, FAST & !SHORT_TIMEOUT);
    let change = millis(115_300);
    link.run(change);
    let before = link.sent[0].len();
    receive_state(&mut link, FAST);
    assert_eq!(link.sent[0].len(), before + 1, "PERIODIC_TX");
    receive_state(&mut link, FAST);
    assert_eq!(link.sent[0].len(), before + 1, "once");
    link.run(change + seconds(3));
    assert_eq!(link.times(0, change), [1000, 2000, 3000]);
}

#[test]
fn a_partner_that_becomes_active_gets_pdus_and_a_passive_one_no_more_of_them() {
    let mut link = Link::new([FAST & !ACTIVITY & !SHORT_TIMEOUT, FAST]);
    link.step(0, LacpPort::start);
    link.cut();
    link.run(seconds(110));
    assert_eq!(link.sent[0], [], "NO_PERIODIC");
    receive_state(&mut link, FAST);
    link.run(seconds(120));
    assert_eq!(link.times(0, seconds(115)), [1000, 2000, 3000, 4000, 5000]);
    receive_state(&mut link, FAST & !ACTIVITY);
    link.run(seconds(130));
    assert_eq!(link.times(0, seconds(120)), []);
}

#[test]
fn a_port_on_standby_is_itself_in_churn_after_a_minute_and_no_more_when_it_is_let_back_in() {
    let mut link = Link::started([FAST, FAST]);
    link.run(seconds(110));
    let churn = |link: &Link, end: usize| -> Vec<(Nanos, LacpEvent)> {
        let is_churn = |of: &&(Nanos, LacpEvent)| {
            matches!(of.1, LacpEvent::ActorChurn | LacpEvent::PartnerChurn)
        };
        link.events[end].iter().filter(is_churn).copied().collect()
    };
    let set = |link: &mut Link, standby| {
        link.step(0, |port, now, settings| port.set_standby(now, standby, settings));
        link.exchange();
    };
    set(&mut link, true);
    link.run(seconds(170));
    assert_eq!(churn(&link, 0), [(seconds(170), LacpEvent::ActorChurn)]);
    assert_eq!(churn(&link, 1), [(seconds(170), LacpEvent::PartnerChurn)]);
    // Once it was found, it is not found again before both have agreed.
    link.run(seconds(300));
    set(&mut link, false);
    link.run(seconds(310));
    assert!(link.ports.iter().all(LacpPort::is_up));
    assert_eq!((churn(&link, 0).len(), churn(&link, 1).len()), (1, 1));
    set(&mut link, true);
    link.run(seconds(370));
    assert_eq!(churn(&link, 0)[1..], [(seconds(370), LacpEvent::ActorChurn)]);
}

#[test]
fn a_port_that_agrees_within_the_minute_is_in_no_churn() {
    let mut link = slow_port();
    link.run(millis(159_500));
    receive_state(&mut link, FAST & !SHORT_TIMEOUT);
    link.run(seconds(230));
    let churn = [LacpEvent::ActorChurn, LacpEvent::PartnerChurn];
    assert!(!link.events(0).iter().any(|event| churn.contains(event)), "{:?}", link.events[0]);
}

#[test]
fn a_port_that_loses_its_selection_while_it_waits_waits_anew() {
    let mut link = slow_port();
    receive_state(&mut link, FAST);
    link.run(millis(101_500));
    assert_eq!(link.ports[0].mux_state(), LacpMux::Waiting);
    link.step(0, |port, now, settings| port.set_standby(now, true, settings));
    assert_eq!(link.ports[0].mux_state(), LacpMux::Detached);
    link.step(0, |port, now, settings| port.set_standby(now, false, settings));
    link.run(millis(103_499));
    assert_eq!(link.ports[0].mux_state(), LacpMux::Waiting, "aggregate_wait_time begins again");
    link.run(millis(103_500));
    assert_eq!(link.ports[0].mux_state(), LacpMux::Collecting);
}

#[test]
fn each_pdu_restarts_the_timeout_and_one_while_expired_makes_it_current_again() {
    let mut link = Link::new([FAST, FAST]);
    link.step(0, LacpPort::start);
    link.cut();
    for _ in 0..5 {
        receive_state(&mut link, FAST);
        let until = link.now + millis(2_900);
        link.run(until);
        assert_eq!(link.ports[0].receive_state(), LacpReceive::Current);
    }
    let until = link.now + seconds(3);
    link.run(until);
    assert_eq!(link.ports[0].receive_state(), LacpReceive::Expired);
    assert_eq!(link.ports[0].ends().0.state & EXPIRED, EXPIRED);
    receive_state(&mut link, FAST);
    assert_eq!(link.ports[0].receive_state(), LacpReceive::Current);
    assert_eq!(link.ports[0].ends().0.state & (EXPIRED | DEFAULTED), 0);
    assert!(!link.events(0).contains(&LacpEvent::Defaulted));
}

#[test]
fn all_times_are_settable() {
    let mut link = Link::new([FAST, FAST]);
    for settings in &mut link.settings {
        (settings.fast_periodic, settings.short_timeout) = (millis(100), millis(300));
        (settings.aggregate_wait, settings.churn) = (millis(200), millis(900));
    }
    link.step(0, LacpPort::start);
    link.step(1, LacpPort::start);
    link.exchange();
    link.run(millis(100_299));
    assert!(!link.ports.iter().any(LacpPort::is_up));
    link.run(millis(100_300));
    assert!(link.ports.iter().all(LacpPort::is_up));
    link.run(millis(100_950));
    let last = *link.sent[1].last().expect("the partner announced itself");
    link.cut();
    let before = link.events[0].len();
    link.run(seconds(103));
    let after = |at: Nanos| (at.0 - last.0) / 1_000_000;
    let seen: Vec<_> = link.events[0][before..].iter().map(|(at, of)| (after(*at), *of)).collect();
    assert_eq!(seen[0], (300, LacpEvent::Expired));
    assert_eq!(seen[2], (600, LacpEvent::Defaulted));
    assert!(seen.contains(&(1200, LacpEvent::PartnerChurn)), "900 ms later: {seen:?}");
}

#[test]
fn a_lost_collecting_bit_ends_the_distribution_alone() {
    let mut link = Link::started([FAST, FAST]);
    link.run(seconds(110));
    let mut actor = *link.ports[1].ends().0;
    actor.state &= !(COLLECTING | DISTRIBUTING);
    let pdu = write(&actor, link.ports[0].ends().0);
    link.step(0, |port, now, settings| port.receive(now, &pdu, settings));
    assert_eq!(link.ports[0].mux_state(), LacpMux::Collecting);
    link.run(seconds(112));
    assert!(link.ports[0].is_up());
}

#[test]
fn markers_are_answered_and_own_pdus_of_a_loop_are_ignored() {
    let mut port = LacpPort::default();
    let settings = settings(1, FAST);
    let mut marker = vec![2, 1, 1, 16, 0, 1, 2, 0, 0, 0, 0, 9, 0, 0, 0, 5, 0, 0];
    marker.resize(110, 0);
    assert_eq!(port.receive(seconds(1), &marker, &settings).ignored, Some("unexpected"));
    let own = port.start(seconds(1), &settings);
    assert_eq!(own.send, [], "the first PDU is due a second later");
    let step = port.receive(seconds(1), &marker, &settings);
    assert_eq!((step.send[0].0, step.send[0].1[2]), ("marker_response", 2));
    assert_eq!(step.send[0].1[4..18], marker[4..18]);
    let response = step.send[0].1.clone();
    assert_eq!(port.receive(seconds(1), &response, &settings).ignored, Some("marker_response"));
    let loopback = write(&settings.actor, &LacpInfo::default());
    assert_eq!(port.receive(seconds(1), &loopback, &settings).ignored, Some("looped_back"));
    let mut bad = loopback.clone();
    bad[23] = 19;
    assert_eq!(port.receive(seconds(1), &bad, &settings).ignored, Some("bad_tlv"));
    assert_eq!(port.receive(seconds(1), &bad[..60], &settings).ignored, Some("truncated"));
    assert_eq!(port.receive(seconds(1), &[10; 110], &settings).ignored, Some("other_protocol"));
}

#[test]
fn a_port_that_ends_keeps_its_states_for_the_report_and_does_nothing_more() {
    let mut link = Link::started([FAST, FAST]);
    link.run(seconds(110));
    let before = link.ports[0];
    link.ports[0].stop();
    let after = link.ports[0];
    assert_eq!(
        (after.mux_state(), after.receive_state(), after.is_selected()),
        (LacpMux::Distributing, LacpReceive::Current, true)
    );
    assert_eq!((after.ends(), after.due(), after.is_up()), (before.ends(), None, false));
    let pdu = write(link.ports[1].ends().0, after.ends().0);
    let step = link.ports[0].receive(seconds(111), &pdu, &link.settings[0]);
    assert_eq!(step, LacpStep { ignored: Some("unexpected"), ..LacpStep::default() });
    assert_eq!(link.ports[0].timer(seconds(300), &link.settings[0]), LacpStep::default());
}

#[test]
fn the_words_of_a_state_are_those_of_its_bits() {
    let words: Vec<_> = state_words(ACTIVITY | SYNCHRONIZATION | EXPIRED).collect();
    assert_eq!(words, ["activity", "synchronization", "expired"]);
}

proptest! {
    #[test]
    fn both_ports_are_up_again_after_loss_duplication_and_reordering(
        seed: u64, loss in 0u64..100, repeats in 0u64..30, shuffles: bool, a in 0u8..8, b in 0u8..8,
    ) {
        let mut link = Link::new([a | AGGREGATION, b | AGGREGATION]);
        (link.random, link.loss, link.repeats) = (SplitMix64(seed), loss, repeats);
        link.shuffles = shuffles;
        link.step(0, LacpPort::start);
        link.step(1, LacpPort::start);
        link.exchange();
        link.run(seconds(400));
        (link.loss, link.repeats, link.shuffles) = (0, 0, false);
        link.run(seconds(600));
        let active = (a | b) & ACTIVITY != 0;
        for port in &link.ports {
            prop_assert_eq!(port.is_up(), active, "{:?}", link.ports);
        }
    }

    #[test]
    fn no_pdu_makes_it_panic_and_pdus_read_back(
        octets in proptest::collection::vec(any::<u8>(), 0..130), keys: (u16, u16), state: u8,
    ) {
        let settings = settings(1, FAST);
        let mut port = LacpPort::default();
        port.start(seconds(1), &settings);
        port.receive(seconds(2), &octets, &settings);
        prop_assert!(port.due().is_some_and(|due| due > seconds(1)));
        let actor = LacpInfo { key: keys.0, port: keys.1, state, ..settings.actor };
        let partner = LacpInfo { key: keys.1, ..actor };
        prop_assert_eq!(parse(&write(&actor, &partner)), Ok((actor, partner)));
    }
}

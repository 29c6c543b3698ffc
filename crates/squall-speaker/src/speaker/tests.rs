use std::{cell::Cell, collections::BTreeSet, net::Ipv6Addr, sync::Arc};

use squall_bgp::{AddPath, Family, LastError, PathSegment, RouteAttributes, SegmentKind};
use squall_host::{Arp, Echo, Host};

use super::*;
use crate::{Prefixes, RouteSets};

const MS: u64 = 1_000_000;

/// Two speakers on a link, in virtual time.
struct Pair {
    speakers: [Speaker; 2],
    queues: [FrameQueue; 2],
    now: Nanos,
    /// Every frame of this number is lost; 0: none.
    loss: u64,
    frames: u64,
    /// Frames that waited at once at most.
    most: usize,
    /// The window of side 2 is closed.
    is_closed: bool,
}

impl Pair {
    fn new(one: SpeakerSettings, two: SpeakerSettings) -> Self {
        let mut pair = Self {
            speakers: [one, two].map(|settings| Speaker::new(settings).expect("a usual MTU")),
            queues: Default::default(),
            now: Nanos::SECOND,
            loss: 0,
            frames: 0,
            most: 0,
            is_closed: false,
        };
        pair.start(0).start(1);
        pair
    }

    fn start(&mut self, side: usize) -> &mut Self {
        self.speakers[side].start(self.now, &mut self.queues[side]);
        self
    }

    fn order(&mut self, side: usize, order: Order) {
        self.speakers[side].order(self.now, order, &mut self.queues[side]);
    }

    fn peer(&self, side: usize, number: usize) -> &Peer {
        &self.speakers[side].peers()[number]
    }

    /// Runs until `done`, or panics after `most`.
    fn until(&mut self, most: Nanos, done: impl Fn(&Self) -> bool) -> &mut Self {
        let end = self.now + most;
        while !done(self) {
            if self.exchange() {
                continue;
            }
            let due = self.speakers.iter().filter_map(Speaker::next_due).min();
            let due = due.filter(|due| *due <= end).expect("it is done before the end");
            self.now = self.now.max(due);
        }
        self
    }

    /// Runs for a time.
    fn run(&mut self, time: Nanos) -> &mut Self {
        let end = self.now + time;
        loop {
            if self.exchange() {
                continue;
            }
            match self.speakers.iter().filter_map(Speaker::next_due).min() {
                Some(due) if due <= end => self.now = self.now.max(due),
                _ => break,
            }
        }
        self.now = end;
        self
    }

    /// Passes the frames of both sides, and runs their timers. Returns whether there were any.
    fn exchange(&mut self) -> bool {
        let mut any = false;
        for from in [0, 1] {
            let speaker = &mut self.speakers[from];
            if speaker.next_due().is_some_and(|due| due <= self.now) {
                speaker.advance(self.now, &mut self.queues[from]);
                any |= !self.queues[from].is_empty();
                self.most = self.most.max(self.queues[from].len());
            }
        }
        for from in [0, 1] {
            let [one, two] = &mut self.queues;
            let (sent, answers) = if from == 0 { (one, two) } else { (two, one) };
            for _ in 0..sent.len() {
                let Some((frame, _)) = sent.first() else { break };
                self.frames += 1;
                if self.loss == 0 || !self.frames.is_multiple_of(self.loss) {
                    let is_tcp = frame[12..14] == [8, 0] && frame[23] == 6;
                    let closes = self.is_closed && from == 1 && is_tcp;
                    let mut frame = frame.to_vec();
                    if closes {
                        frame[48..50].fill(0);
                    }
                    // The checksum is then that of another window.
                    self.speakers[1 - from].receive(self.now, (&frame, closes), answers);
                }
                sent.pop();
                any = true;
            }
        }
        // A frame takes time.
        self.now = self.now + Nanos(if any { 1000 } else { 0 });
        any
    }

    fn is_settled(&self) -> bool {
        self.speakers.iter().all(Speaker::is_settled)
    }
}

fn ranges(count: u32, length: u8) -> Prefixes {
    Arc::new(move || -> Box<dyn Iterator<Item = Prefix>> {
        let step = 1 << (32 - u32::from(length));
        Box::new((0..count).map(move |number| Prefix {
            address: std::net::Ipv4Addr::from_bits(0x1000_0000 + number * step).into(),
            length,
        }))
    })
}

fn wide(count: u32) -> Prefixes {
    Arc::new(move || -> Box<dyn Iterator<Item = Prefix>> {
        Box::new((0..count).map(|number| Prefix {
            address: Ipv6Addr::from_bits((0x2001_0db8 << 96) + (u128::from(number) << 80)).into(),
            length: 48,
        }))
    })
}

fn group(prefixes: Prefixes) -> SpeakerGroup {
    let attributes = RouteAttributes::default();
    SpeakerGroup { attributes, prefixes, sets: None, is_announced: true, peers: None, path: None }
}

fn ipv4(side: u8, number: u32) -> IpAddr {
    std::net::Ipv4Addr::from_bits(0x0a00_0000 + (u32::from(side) << 16) + number).into()
}

fn ipv6(side: u8, number: u32) -> IpAddr {
    Ipv6Addr::from_bits((0xfd00 << 112) + (u128::from(side) << 32) + u128::from(number)).into()
}

/// `count` routers of side 1 or 2, each with a session to its counterpart.
fn side(side: u8, count: u32, groups: Vec<SpeakerGroup>) -> SpeakerSettings {
    let router = |number: u32| {
        let [.., high, low] = number.to_be_bytes();
        let session = PeerSettings {
            asn: 65_000 + u32::from(side),
            identifier: std::net::Ipv4Addr::from_bits(u32::from(side) << 16 | number),
            families: [true, true],
            ipv4: Some(std::net::Ipv4Addr::from_bits(0x0a00_0000 + number)),
            ipv6: Some(Ipv6Addr::from_bits((0xfd00 << 112) + u128::from(number))),
            passive: side == 2,
            seed: u64::from(number) << 8 | u64::from(side),
            ..PeerSettings::default()
        };
        SpeakerRouter {
            mac: MacAddr([2, 0, 0, side, high, low]),
            addresses: vec![ipv4(side, number), ipv6(side, number)],
            peers: vec![SpeakerPeer { address: ipv4(3 - side, number), session }],
        }
    };
    let routers = (1..=count).map(router).collect();
    SpeakerSettings { routers, groups, seed: side.into(), ..SpeakerSettings::default() }
}

fn learnt(peer: &Peer) -> BTreeSet<String> {
    peer.learnt.iter().map(|route| format!("{}#{}", route.prefix, route.path)).collect()
}

#[test]
fn two_speakers_learn_the_routes_of_each_other() {
    let mut one = side(1, 1, vec![group(ranges(3, 24)), group(wide(2))]);
    let mut two = side(2, 1, vec![group(ranges(1, 16))]);
    for settings in [&mut one, &mut two] {
        let add_path = [Some(AddPath { send: true, receive: true }); 2];
        settings.routers[0].peers[0].session.add_path = add_path;
    }
    let mut pair = Pair::new(one, two);
    pair.until(Nanos::SECOND, Pair::is_settled);
    let expected =
        ["16.0.0.0/24#1", "16.0.1.0/24#1", "16.0.2.0/24#1", "2001:db8:1::/48#2", "2001:db8::/48#2"];
    assert_eq!(learnt(pair.peer(1, 0)), expected.map(String::from).into());
    assert_eq!(learnt(pair.peer(0, 0)), ["16.0.0.0/16#1".to_owned()].into());
    assert_eq!(pair.peer(1, 0).learnt.ends, 2);
    assert_eq!((pair.peer(0, 0).announced, pair.peer(1, 0).announced), (5, 1));
    // One UPDATE for each group, and the ends of both families.
    assert_eq!(pair.peer(0, 0).session.counters().sent.updates, 4);
    assert_eq!(pair.peer(1, 0).session.counters().received.updates, 4);
    pair.run(Nanos(300 * Nanos::SECOND.0));
    assert_eq!(pair.peer(0, 0).session.counters().ups, 1, "keepalives keep it up");
}

#[test]
fn groups_of_some_peers_have_their_own_paths_and_attributes() {
    let of = |peers: &[usize], path, med| SpeakerGroup {
        attributes: RouteAttributes { med: Some(med), ..RouteAttributes::default() },
        peers: Some(peers.to_vec()),
        path: Some(path),
        ..group(ranges(2, 24))
    };
    let mut one = side(1, 2, vec![of(&[0], 70, 5), of(&[0, 1], 80, 6)]);
    let mut two = side(2, 2, vec![]);
    two.attributes = true;
    for router in one.routers.iter_mut().chain(&mut two.routers) {
        router.peers[0].session.add_path = [Some(AddPath { send: true, receive: true }); 2];
    }
    let mut pair = Pair::new(one, two);
    pair.until(Nanos(10 * Nanos::SECOND.0), Pair::is_settled);
    let meds = |pair: &Pair, number: usize| -> BTreeSet<_> {
        let learnt = &pair.peer(1, number).learnt;
        let med =
            |route: &squall_bgp::LearntRoute| learnt.attributes(route).unwrap().attributes.med;
        learnt.iter().map(|route| (route.path, med(&route))).collect()
    };
    assert_eq!(meds(&pair, 0), [(70, Some(5)), (80, Some(6))].into());
    assert_eq!(meds(&pair, 1), [(80, Some(6))].into());
    pair.order(0, Order::Withdraw(0));
    pair.run(Nanos::SECOND);
    let routes = [0, 1].map(|number| pair.peer(1, number).learnt.routes(Family::Ipv4));
    assert_eq!(routes, [2, 2]);
    assert_eq!([0, 1].map(|number| pair.peer(0, number).withdrawn), [2, 0]);
}

/// As many sets as this, each with its number as MED and a route of IPv4, and the last one also with
/// one of IPv6.
struct Meds(u32);

impl RouteSets for Meds {
    fn count(&self) -> usize {
        self.0 as usize
    }

    fn attributes(&self, set: usize) -> RouteAttributes {
        let path = PathSegment { kind: SegmentKind::Sequence, numbers: vec![7, set as u32] };
        RouteAttributes { med: Some(set as u32), further: vec![path], ..Default::default() }
    }

    fn prefixes(&self, set: usize) -> Box<dyn Iterator<Item = Prefix> + '_> {
        let bits = 0x1000_0000 + (set as u32) * 256;
        let ipv4 = Prefix { address: std::net::Ipv4Addr::from_bits(bits).into(), length: 24 };
        let ipv6 = wide(1)().filter(move |_| set + 1 == self.count());
        Box::new([ipv4].into_iter().chain(ipv6))
    }

    fn set_of(&self, prefix: Prefix) -> usize {
        match prefix.address {
            IpAddr::V4(address) => ((address.to_bits() - 0x1000_0000) / 256) as usize,
            IpAddr::V6(_) => self.count() - 1,
        }
    }
}

#[test]
fn the_routes_of_a_group_have_the_attributes_of_their_sets() {
    const COUNT: u32 = 3_000;
    let all: Prefixes = Arc::new(|| -> Box<dyn Iterator<Item = Prefix>> {
        Box::new(ranges(COUNT, 24)().chain(wide(1)()))
    });
    let of = SpeakerGroup { sets: Some(Arc::new(Meds(COUNT))), ..group(all) };
    let mut two = side(2, 1, vec![]);
    two.attributes = true;
    let mut pair = Pair::new(side(1, 1, vec![of]), two);
    let most = Cell::new(0);
    pair.until(Nanos(10 * Nanos::SECOND.0), |pair| {
        most.set(most.get().max(pair.speakers[0].stack.app().connections.own_updates()));
        pair.is_settled()
    });
    assert!((120 << 10..=128 << 10).contains(&most.get()), "{} octets are kept", most.get());
    let are_of_their_sets = |pair: &Pair| {
        let learnt = &pair.peer(1, 0).learnt;
        let own = Meds(COUNT);
        learnt.iter().all(|route| {
            let found = &learnt.attributes(&route).unwrap().attributes;
            let set = own.set_of(route.prefix) as u32;
            let path = PathSegment { kind: SegmentKind::Sequence, numbers: vec![65_001, 7, set] };
            (found.med, &found.path) == (Some(set), &vec![path])
        })
    };
    let routes = |pair: &Pair| Family::ALL.map(|family| pair.peer(1, 0).learnt.routes(family));
    assert_eq!((routes(&pair), are_of_their_sets(&pair)), ([3_000, 1], true));
    assert_eq!(pair.peer(0, 0).announced, 3_001);
    // An UPDATE for each set and family, and the ends of both families.
    assert_eq!(pair.peer(0, 0).session.counters().sent.updates, 3_003);

    // A few are announced with their attributes. For many sets, all routes are announced again.
    for (count, announced) in [(2, 2), (1_500, 3_001)] {
        let some = || ranges(COUNT, 24)().take(count).collect();
        pair.order(0, Order::Routes(0, UpdateKind::Withdraw, some()));
        pair.run(Nanos::SECOND);
        assert_eq!(routes(&pair), [3_000 - count as u64, 1]);
        let before = pair.peer(0, 0).announced;
        pair.order(0, Order::Routes(0, UpdateKind::Announce, some()));
        pair.run(Nanos::SECOND);
        assert_eq!((routes(&pair), are_of_their_sets(&pair)), ([3_000, 1], true));
        assert_eq!(pair.peer(0, 0).announced - before, announced);
    }
    // Routes that are still withdrawn stay so.
    let some = |count| ranges(COUNT, 24)().take(count).collect();
    pair.order(0, Order::Routes(0, UpdateKind::Withdraw, some(2_000)));
    pair.run(Nanos::SECOND);
    pair.order(0, Order::Routes(0, UpdateKind::Announce, some(1_500)));
    pair.run(Nanos::SECOND);
    assert_eq!((routes(&pair), are_of_their_sets(&pair)), ([2_500, 1], true));
    pair.order(0, Order::Withdraw(0));
    pair.run(Nanos::SECOND);
    assert_eq!(routes(&pair), [0, 0]);
    pair.order(0, Order::Announce(0));
    pair.run(Nanos::SECOND);
    assert_eq!((routes(&pair), are_of_their_sets(&pair)), ([3_000, 1], true));
}

#[test]
fn sessions_over_ipv6_carry_both_families() {
    let mut settings = [side(1, 1, vec![group(ranges(3, 24))]), side(2, 1, vec![group(wide(2))])];
    for (settings, other) in settings.iter_mut().zip([2, 1]) {
        settings.routers[0].peers[0].address = ipv6(other, 1);
    }
    let [one, two] = settings;
    let mut pair = Pair::new(one, two);
    pair.until(Nanos::SECOND, Pair::is_settled);
    let routes = |side, family| pair.peer(side, 0).learnt.routes(family);
    assert_eq!((routes(1, Family::Ipv4), routes(0, Family::Ipv6)), (3, 2));
}

#[test]
fn a_million_routes_arrive_and_are_packed_once() {
    let mut pair = Pair::new(side(1, 1, vec![group(ranges(1_000_000, 28))]), side(2, 1, vec![]));
    pair.until(Nanos(10 * Nanos::SECOND.0), Pair::is_settled);
    let learnt = &pair.peer(1, 0).learnt;
    assert_eq!((learnt.routes(Family::Ipv4), learnt.announced), (1_000_000, 1_000_000));
    assert_eq!(learnt.ends, 2);
    assert_eq!(pair.speakers[0].stack.app().packed_len(), 1);
}

#[test]
fn a_thousand_sessions_share_the_packed_routes() {
    let mut pair = Pair::new(side(1, 1000, vec![group(ranges(2000, 24))]), side(2, 1000, vec![]));
    pair.until(Nanos(20 * Nanos::SECOND.0), Pair::is_settled);
    let of = pair.speakers[1].peers();
    assert!(of.iter().all(|peer| peer.learnt.routes(Family::Ipv4) == 2000));
    assert_eq!(pair.speakers[0].stack.app().packed_len(), 1);
    assert_eq!(pair.speakers[0].tcp().established, 1000);
}

#[test]
fn routes_arrive_over_a_link_that_loses_frames() {
    let mut pair = Pair::new(side(1, 3, vec![group(ranges(50_000, 24))]), side(2, 3, vec![]));
    pair.loss = 53;
    pair.until(Nanos(120 * Nanos::SECOND.0), Pair::is_settled);
    let of = pair.speakers[1].peers();
    assert!(of.iter().all(|peer| peer.learnt.routes(Family::Ipv4) == 50_000));
    assert!(pair.speakers[0].tcp().retransmits() > 0);
}

#[test]
fn orders_withdraw_and_announce_groups() {
    let groups = vec![group(ranges(5000, 24)), group(wide(10))];
    let mut pair = Pair::new(side(1, 2, groups), side(2, 2, vec![]));
    pair.until(Nanos(10 * Nanos::SECOND.0), Pair::is_settled);
    let routes = |pair: &Pair, number: usize| {
        Family::ALL.map(|family| pair.peer(1, number).learnt.routes(family))
    };
    pair.order(0, Order::Withdraw(0));
    // A second time changes nothing.
    pair.order(0, Order::Withdraw(0));
    assert!(!pair.speakers[0].is_acknowledged());
    pair.until(Nanos::SECOND, |pair| pair.speakers[0].is_acknowledged());
    assert_eq!((routes(&pair, 0), routes(&pair, 1)), ([0, 10], [0, 10]));
    assert_eq!(pair.peer(0, 0).withdrawn, 5000);
    pair.order(0, Order::Announce(0));
    pair.run(Nanos::SECOND);
    assert_eq!((routes(&pair, 0), routes(&pair, 1)), ([5000, 10], [5000, 10]));
    // A session that comes up later gets the groups that are announced then.
    pair.order(0, Order::Withdraw(1));
    pair.order(0, Order::Stop(1, Notification::new(6, 42)));
    pair.run(Nanos::SECOND);
    assert_eq!(routes(&pair, 1), [0, 0]);
    let first_up = pair.peer(0, 1).first_up;
    assert!(first_up.is_some_and(|time| time < pair.now));
    let received = LastError::Received(Notification::new(6, 42));
    assert_eq!(pair.peer(1, 1).session.last_error(), Some(&received));
    pair.order(0, Order::Start(1));
    pair.run(Nanos(20 * Nanos::SECOND.0));
    assert_eq!((routes(&pair, 0), routes(&pair, 1)), ([5000, 0], [5000, 0]));
    assert_eq!(pair.peer(0, 1).first_up, first_up);
}

#[test]
fn some_routes_of_a_group_are_withdrawn_and_announced_alone() {
    let mut pair = Pair::new(side(1, 2, vec![group(ranges(5000, 24))]), side(2, 2, vec![]));
    pair.until(Nanos(10 * Nanos::SECOND.0), Pair::is_settled);
    let routes = |pair: &Pair| [0, 1].map(|of| pair.peer(1, of).learnt.routes(Family::Ipv4));
    let some = |count| ranges(count, 24)().collect::<Vec<_>>();
    let order = |kind, count| Order::Routes(0, kind, some(count));
    pair.order(0, order(UpdateKind::Withdraw, 10));
    pair.order(0, order(UpdateKind::Announce, 3));
    pair.run(Nanos::SECOND);
    assert_eq!((routes(&pair), pair.peer(0, 0).withdrawn), ([4993, 4993], 10));
    // Only changes are sent, and a session that comes up later does not get the withdrawn ones.
    pair.order(0, order(UpdateKind::Withdraw, 10));
    pair.order(0, Order::Stop(1, Notification::cease(cease::RESET)));
    pair.run(Nanos::SECOND);
    assert_eq!((routes(&pair), pair.peer(0, 0).withdrawn), ([4990, 0], 13));
    pair.order(0, Order::Start(1));
    pair.run(Nanos(20 * Nanos::SECOND.0));
    assert_eq!(routes(&pair), [4990, 4990]);
    // An order for the group is for all of its routes.
    let before = pair.peer(0, 0).announced;
    pair.order(0, Order::Announce(0));
    pair.run(Nanos::SECOND);
    assert_eq!((routes(&pair), pair.peer(0, 0).announced), ([5000, 5000], before + 10));
    pair.order(0, Order::Withdraw(0));
    pair.order(0, order(UpdateKind::Announce, 3));
    pair.run(Nanos::SECOND);
    assert_eq!(routes(&pair), [0, 0], "the group is withdrawn");
}

#[test]
fn a_refresh_announces_everything_again() {
    let mut pair = Pair::new(side(1, 1, vec![group(ranges(5000, 24))]), side(2, 1, vec![]));
    pair.until(Nanos(10 * Nanos::SECOND.0), Pair::is_settled);
    pair.order(1, Order::Refresh(0));
    pair.run(Nanos::SECOND);
    let learnt = &pair.peer(1, 0).learnt;
    assert_eq!((learnt.announced, learnt.routes(Family::Ipv4)), (10_000, 5000));
}

#[test]
fn requests_while_frames_wait_are_answered_by_one_feed() {
    let groups = vec![group(ranges(3, 24)), group(ranges(2, 16))];
    let mut pair = Pair::new(side(1, 1, groups), side(2, 1, vec![]));
    pair.until(Nanos::SECOND, Pair::is_settled);
    let sent = |pair: &Pair| {
        let peer = pair.peer(0, 0);
        (peer.announced, peer.session.counters().sent.refreshes)
    };
    assert_eq!(sent(&pair), (5, 0));
    let request = [&[0xff; 16][..], &[0, 23, 5, 0, 1, 0, 1]].concat();
    let now = pair.now;
    for _ in 0..1000 {
        let speaker = &mut pair.speakers[0];
        speaker.stack.app_mut().handle(now, 0, Input::Octets(Way::Active, &request));
        speaker.run(now);
    }
    assert_eq!(sent(&pair), (10, 2), "the first answer, with both marks");
    pair.run(Nanos::SECOND);
    assert_eq!(sent(&pair), (15, 4), "one for all others");
    assert_eq!(pair.peer(1, 0).learnt.routes(Family::Ipv4), 5);
}

#[test]
fn orders_send_no_routes_that_are_deferred() {
    let of = SpeakerGroup { is_announced: false, ..group(ranges(3, 24)) };
    let mut settings = [side(1, 1, vec![of]), side(2, 1, vec![])];
    for settings in &mut settings {
        settings.routers[0].peers[0].session.restart = Some(60);
    }
    let [one, two] = settings;
    let mut pair = Pair::new(one, two);
    pair.until(Nanos::SECOND, Pair::is_settled);
    pair.order(0, Order::Restart(0, Nanos::SECOND));
    pair.until(Nanos(10 * Nanos::SECOND.0), |pair| pair.peer(0, 0).session.is_deferring());
    pair.order(0, Order::Announce(0));
    pair.run(Nanos::SECOND);
    assert!(!pair.peer(0, 0).session.is_deferring());
    // Once for IPv4: the family has one feed.
    assert_eq!((pair.peer(0, 0).announced, pair.peer(1, 0).learnt.routes(Family::Ipv4)), (3, 3));
}

#[test]
fn a_port_in_use_is_no_silent_neighbor() {
    let mut pair = Pair::new(side(1, 1, vec![]), side(2, 1, vec![]));
    let has_connected = |pair: &Pair| pair.speakers[0].opened == 1;
    pair.until(Nanos::SECOND, has_connected);
    let now = pair.now;
    let speaker = &mut pair.speakers[0];
    speaker.opened = 0;
    speaker.connect(now, 0);
    let error = speaker.peers()[0].session.last_error();
    assert_eq!(error, Some(&LastError::Tcp(EndReason::NoPort)));
}

#[test]
fn a_new_mac_address_of_a_neighbor_is_learnt_from_its_segments() {
    let mut pair = Pair::new(side(1, 1, vec![]), side(2, 1, vec![]));
    pair.until(Nanos::SECOND, Pair::is_settled);
    let new = MacAddr([2, 9, 9, 9, 9, 9]);
    let mut frame = [0; 54];
    frame[..6].copy_from_slice(&[2, 0, 0, 1, 0, 1]);
    frame[6..12].copy_from_slice(&new.0);
    (frame[12], frame[14], frame[23]) = (8, 0x45, 6);
    frame[26..34].copy_from_slice(&[10, 2, 0, 1, 10, 1, 0, 1]);
    let link = &mut pair.speakers[0].link;
    assert_ne!(link.neighbors.known(ipv4(2, 1)), Some(new));
    link.receive(pair.now, &frame, &mut pair.queues[0]);
    assert_eq!(link.neighbors.known(ipv4(2, 1)), Some(new));
}

#[test]
fn a_stop_ends_all_sessions_with_a_cease() {
    let mut pair = Pair::new(side(1, 3, vec![group(ranges(10, 24))]), side(2, 3, vec![]));
    pair.until(Nanos(10 * Nanos::SECOND.0), Pair::is_settled);
    let now = pair.now;
    pair.speakers[0].stop(now, &mut pair.queues[0]);
    assert!(!pair.speakers[0].is_settled());
    pair.until(Nanos::SECOND, |pair| pair.speakers[0].is_settled());
    for peer in pair.speakers[1].peers() {
        let received = LastError::Received(Notification::cease(cease::SHUTDOWN));
        assert_eq!(peer.session.last_error(), Some(&received));
        assert_eq!(peer.learnt.routes(Family::Ipv4), 0);
    }
}

#[test]
fn a_connection_with_a_closed_window_does_not_outlive_its_session_for_long() {
    let mut pair = Pair::new(side(1, 1, vec![group(ranges(10, 24))]), side(2, 1, vec![]));
    pair.until(Nanos(10 * Nanos::SECOND.0), Pair::is_settled);
    pair.is_closed = true;
    pair.order(0, Order::Withdraw(0));
    pair.run(Nanos::SECOND);
    // The withdrawal has closed the window, so that the NOTIFICATION waits.
    pair.order(0, Order::Stop(0, Notification::cease(cease::SHUTDOWN)));
    pair.run(Nanos::SECOND);
    assert!(!pair.speakers[0].stack.app().connections.is_empty());
    pair.run(Nanos(5 * Nanos::SECOND.0));
    assert!(pair.speakers[0].stack.app().connections.is_empty());
    assert_eq!(pair.peer(1, 0).session.last_error(), Some(&LastError::Tcp(EndReason::Reset)));
}

#[test]
fn a_graceful_restart_keeps_the_routes() {
    let mut settings = [side(1, 1, vec![group(ranges(100, 24))]), side(2, 1, vec![])];
    for settings in &mut settings {
        settings.routers[0].peers[0].session.restart = Some(60);
    }
    let [one, two] = settings;
    let mut pair = Pair::new(one, two);
    pair.until(Nanos::SECOND, Pair::is_settled);
    pair.order(0, Order::Restart(0, Nanos(10 * Nanos::SECOND.0)));
    pair.run(Nanos(5 * Nanos::SECOND.0));
    assert_eq!(pair.peer(0, 0).session.state(), State::Idle);
    assert_eq!(pair.peer(1, 0).session.state(), State::Active);
    assert_eq!(pair.peer(1, 0).learnt.routes(Family::Ipv4), 100, "they are stale");
    pair.run(Nanos(10 * Nanos::SECOND.0));
    assert_eq!(pair.peer(1, 0).session.state(), State::Established);
    let learnt = &pair.peer(1, 0).learnt;
    assert_eq!((learnt.routes(Family::Ipv4), learnt.announced), (100, 200));
    assert_eq!(learnt.ends, 4);
}

#[test]
fn both_sides_may_open_the_connection() {
    let mut two = side(2, 20, vec![]);
    for router in &mut two.routers {
        router.peers[0].session.passive = false;
    }
    let mut pair = Pair::new(side(1, 20, vec![group(ranges(10, 24))]), two);
    pair.until(Nanos(30 * Nanos::SECOND.0), Pair::is_settled);
    pair.run(Nanos(200 * Nanos::SECOND.0));
    for side in [0, 1] {
        for peer in pair.speakers[side].peers() {
            assert_eq!(peer.session.state(), State::Established);
            assert_eq!(peer.session.counters().downs, 0);
        }
        assert_eq!(pair.speakers[side].stack.active(), 20, "one connection each");
    }
}

#[test]
fn a_neighbor_that_does_not_answer_is_unreachable() {
    let mut pair = Pair::new(side(1, 1, vec![]), SpeakerSettings::default());
    pair.run(Nanos(20 * Nanos::SECOND.0));
    let session = &pair.peer(0, 0).session;
    assert_eq!(session.last_error(), Some(&LastError::Tcp(EndReason::Unreachable)));
    assert!(session.state() < State::OpenSent && session.state() > State::Idle);
}

#[test]
fn a_router_whose_peer_is_not_configured_is_refused() {
    let mut two = side(2, 1, vec![]);
    two.routers[0].peers.clear();
    let mut pair = Pair::new(side(1, 1, vec![]), two);
    pair.run(Nanos::SECOND);
    let error = pair.peer(0, 0).session.last_error();
    assert_eq!(error, Some(&LastError::Tcp(EndReason::Refused)));
}

#[test]
fn own_addresses_answer_and_others_do_not() {
    let mut speaker = Speaker::new(side(1, 2, vec![])).unwrap();
    let mut queue = FrameQueue::default();
    let asker = Host {
        mac: MacAddr([2, 9, 9, 9, 9, 9]),
        ipv4: vec![[10, 2, 0, 1].into()],
        ..Host::default()
    };
    let mut ask = |frame: Vec<u8>| {
        let is_own = speaker.receive(Nanos::SECOND, (&frame, false), &mut queue);
        let reply = queue.first().map(|(frame, _)| frame.to_vec());
        queue.pop();
        (is_own, reply)
    };
    let arp = |target: [u8; 4]| {
        let request = Arp {
            request: true,
            sender_mac: asker.mac,
            sender: [10, 2, 0, 1].into(),
            target_mac: MacAddr::default(),
            target: target.into(),
        };
        asker.frame(MacAddr([255; 6]), 0x0806, &request.octets())
    };
    let (is_own, reply) = ask(arp([10, 1, 0, 2]));
    let mac = MacAddr([2, 0, 0, 1, 0, 2]);
    let known = asker.handle(&reply.expect("a reply")).neighbor;
    assert_eq!((is_own, known), (false, Some(([10, 1, 0, 2].into(), mac))));
    assert_eq!(ask(arp([10, 1, 0, 3])), (false, None));

    let echo =
        |destination: IpAddr| Echo { source: [10, 2, 0, 1].into(), destination, id: 1, seq: 2 };
    let request = echo(ipv4(1, 2));
    let (is_own, reply) = ask(asker.frame(mac, 0x0800, &request.request()));
    assert_eq!((is_own, asker.handle(&reply.expect("a reply")).echo), (true, Some(request)));
    // Another router's MAC address, and one that no router has.
    let other = MacAddr([2, 0, 0, 1, 0, 1]);
    assert_eq!(ask(asker.frame(other, 0x0800, &request.request())), (true, None));
    let unknown = MacAddr([2, 0, 0, 1, 0, 9]);
    assert_eq!(ask(asker.frame(unknown, 0x0800, &request.request())), (false, None));
}

#[test]
fn the_queue_of_the_port_keeps_room_for_others() {
    // Their first windows have four times as many frames.
    let mut pair = Pair::new(side(1, 200, vec![group(ranges(5000, 24))]), side(2, 200, vec![]));
    pair.until(Nanos(20 * Nanos::SECOND.0), Pair::is_settled);
    // An answer of another protocol may come on top.
    assert!((MOST_FRAMES..MOST_FRAMES + 10).contains(&pair.most), "{}", pair.most);
}

#[test]
fn the_same_seed_gives_the_same_frames() {
    let frames = || {
        let mut pair = Pair::new(side(1, 5, vec![group(ranges(1000, 24))]), side(2, 5, vec![]));
        pair.run(Nanos(100 * MS));
        (pair.frames, pair.now, pair.speakers[0].tcp().clone())
    };
    assert_eq!(frames(), frames());
}

use std::sync::Arc;

use squall_bgp::RouteAttributes;
use squall_router::{Bgp, Daemon, Flap, GroupAttributes, GroupPart, Neighbor, Origin, RouteRange};

use super::*;

const MS: u64 = 1_000_000;
const BEGIN: Nanos = Nanos(7 * Nanos::SECOND.0);

fn s(seconds: u64) -> Nanos {
    Nanos(seconds * Nanos::SECOND.0)
}

fn range(first: [u8; 4], length: u8, count: u32) -> Prefixes {
    Prefixes::Range(RouteRange { first: first.into(), length, count })
}

fn group(name: &str, prefixes: Prefixes) -> RouteGroup {
    RouteGroup {
        name: name.into(),
        attributes: GroupAttributes::default(),
        prefixes: vec![prefixes],
        flap: None,
        single: false,
    }
}

/// `count` routers from 10.0.SIDE.1 on in AS 6500SIDE, with sessions to those of the other side.
fn settings(side: u8, count: u8, groups: Vec<RouteGroup>) -> RouterSettings {
    let other = 3 - side;
    let asn = 65_000 + u32::from(other);
    let neighbor = |number: u8| Neighbor { address: [10, 0, other, number].into(), asn };
    RouterSettings {
        daemon: Daemon::Native(Copies { count: count.into(), asn_step: 0 }),
        mac: MacAddr([2, 0, 0, 0, side, 1]),
        ipv4: Some(([10, 0, side, 1].into(), 16)),
        ipv6: None,
        router_id: [10, 0, side, 1].into(),
        bgp: Some(Bgp {
            asn: 65_000 + u32::from(side),
            neighbors: (1..=if count == 1 { 3 } else { 1 }).map(neighbor).collect(),
            hold: s(9),
            password: None,
        }),
        ospf: None,
        ospf3: None,
        isis: None,
        igp: squall_router::Igp::default(),
        hello: s(10),
        dead: s(40),
        rip: false,
        ripng: false,
        rip_update: s(30),
        bfd: None,
        groups,
        graceful_restart: false,
        configuration: None,
    }
}

fn step(at: u64, order: RouterOrder, duration: Option<u64>) -> Step {
    Step { at: s(at), order, duration: duration.map(s), every: None, times: None }
}

/// Routers on a link, in virtual time.
struct Pair {
    routers: [NativeRouter; 2],
    queues: [FrameQueue; 2],
    now: Nanos,
}

/// Side 1 is one router with the groups and steps, whose neighbors are three routers of side 2.
fn pair(groups: Vec<RouteGroup>, steps: &[Step]) -> Pair {
    let link = |number| LinkSettings { number, mtu: 1500, seed: number as u64, begin: BEGIN };
    let expected = Some(groups.clone());
    let one = NativeRouter::of(settings(1, 1, groups), steps, None, &link(0));
    let two = settings(2, 3, vec![group("routes", range([10, 9, 0, 0], 24, 1))]);
    let two = NativeRouter::of(two, &[], expected, &link(1));
    Pair { routers: [one, two], queues: Default::default(), now: Nanos::ZERO }
}

impl Pair {
    /// Runs until `seconds` after the start.
    fn run(&mut self, seconds: f64) -> &mut Self {
        let end = BEGIN + Nanos::from_secs_f64(seconds);
        loop {
            let mut any = false;
            for (router, queue) in self.routers.iter_mut().zip(&mut self.queues) {
                router.advance(self.now, queue);
            }
            for from in [0, 1] {
                let [one, two] = &mut self.queues;
                let (sent, answers) = if from == 0 { (one, two) } else { (two, one) };
                for _ in 0..sent.len() {
                    let Some((frame, _)) = sent.first() else { break };
                    self.routers[1 - from].receive(self.now, (frame, false), answers);
                    sent.pop();
                    any = true;
                }
            }
            // A frame takes time.
            self.now = self.now + Nanos(if any { 1000 } else { 0 });
            let next = self.routers.iter().filter_map(NativeRouter::next_due).min();
            match next {
                _ if any => {}
                Some(next) if next <= end => self.now = self.now.max(next),
                _ => break,
            }
        }
        self.now = self.now.max(end);
        self
    }

    fn state(&self, side: usize) -> DaemonState {
        self.routers[side].state()
    }

    /// Routes that the sessions of side 2 have learnt.
    fn learnt(&self) -> Vec<u64> {
        self.state(1).protocols.iter().map(|one| one.imported).collect()
    }
}

#[test]
fn routers_exchange_routes_and_report_their_sessions() {
    let mut pair = pair(vec![group("routes", range([16, 0, 0, 0], 24, 2000))], &[]);
    assert_eq!(pair.routers[0].next_due(), Some(BEGIN), "nothing is sent before the start");
    pair.run(5.0);
    let (one, two) = (pair.state(0), pair.state(1));
    assert_eq!(pair.learnt(), [2000; 3]);
    let names = |state: &DaemonState| -> Vec<_> {
        state.protocols.iter().map(|one| (one.name.clone(), one.neighbor.clone())).collect()
    };
    let of = |name: &str, neighbor: &str| (name.to_owned(), neighbor.to_owned());
    assert_eq!(names(&one)[2], of("bgp3", "10.0.2.3"));
    assert_eq!(names(&two)[2], of("bgp1@10.0.2.3", "10.0.1.1"));
    let first = &one.protocols[0];
    assert_eq!((&*first.state, first.is_up), ("Established", true));
    assert_eq!((first.imported, first.exported), (1, 2000));
    assert!(one.up_after.iter().all(|(_, after)| *after < s(1)), "{:?}", one.up_after);
    let sums = one.sessions.expect("they are known");
    assert_eq!((sums.sessions, sums.up, sums.imported, sums.most_imported), (3, 3, 3, 1));
    assert_eq!((sums.ever_up, sums.not_kept), (3, 0));
    assert_eq!((sums.exported, one.downs), (6000, 0));
    assert!(sums.sent.opens >= 3 && sums.received.opens >= 3, "{sums:?}");
    assert!(sums.all_up_after.is_some() && sums.acknowledged_after.is_some(), "{sums:?}");
    let updates: u64 = one.protocols.iter().map(|one| one.session.unwrap().sent.updates).sum();
    assert_eq!(updates, sums.sent.updates);
}

#[test]
fn many_learnt_routes_become_destinations_in_several_turns() {
    const COUNT: usize = 3 * SHARED_AT_ONCE;
    let steps = [step(20, RouterOrder::Withdraw(GroupPart::default()), None)];
    let mut pair = pair(vec![group("routes", range([16, 0, 0, 0], 24, COUNT as u32))], &steps);
    let (destinations, table) = LearntTable::with_places(2 * COUNT as u32);
    let [one, two] = pair.routers;
    pair.routers = [one, two.sharing(Some(destinations))];
    // Three sessions have learnt each route.
    pair.run(10.0);
    assert_eq!((pair.learnt(), table.bound() as usize), (vec![COUNT as u64; 3], COUNT));
    pair.run(30.0);
    assert_eq!((pair.learnt(), table.bound()), (vec![0; 3], 0));

    // A turn takes some of the changes, and the next one follows at once.
    let mut router = pair.routers.into_iter().nth(1).expect("two routers");
    let prefix = |number: usize| {
        let address = Ipv4Addr::from_bits(0x1000_0000 + 256 * number as u32).into();
        of_speaker(Prefix { address, length: 24 })
    };
    let changes = (0..COUNT).map(|number| LearntChange { prefix: prefix(number), is_learnt: true });
    router.changes = changes.collect::<Vec<_>>().into_iter();
    for turn in 1..=3 {
        assert_eq!(router.next_due(), Some(Nanos::ZERO));
        router.advance(pair.now, &mut FrameQueue::default());
        assert_eq!(table.bound() as usize, turn * SHARED_AT_ONCE);
    }
    assert!(router.next_due().is_some_and(|due| due > pair.now));
}

#[test]
fn the_end_of_the_run_ends_the_sessions_and_keeps_the_state() {
    let mut pair = pair(vec![group("routes", range([16, 0, 0, 0], 24, 5))], &[]);
    pair.run(5.0);
    let now = pair.now;
    let before = pair.state(1);
    pair.routers[1].stop(now, &mut pair.queues[1]);
    assert!(!pair.routers[1].is_over());
    pair.run(8.0);
    assert!(pair.routers[1].is_over() && pair.routers[1].next_due().is_none());
    let after = pair.state(1);
    assert_eq!((after.protocols, after.downs), (before.protocols, 0));
    assert_eq!(after.compared, Some((5, 0)));
    let error = &pair.state(0).protocols[0].error;
    assert_eq!(error, "Received: Cease: Administrative Shutdown (6/2)");
}

#[test]
fn a_prefix_of_two_groups_is_compared_as_two_routes() {
    let of = |name| group(name, range([16, 0, 0, 0], 24, 2));
    let mut pair = pair(vec![of("one"), of("two")], &[]);
    assert_eq!(pair.run(5.0).routers[1].compare(), Some((4, 0)));
}

#[test]
fn a_neighbor_that_is_gone_does_not_hold_the_end_of_the_run() {
    let mut pair = pair(vec![group("routes", range([16, 0, 0, 0], 24, 5))], &[]);
    pair.run(5.0);
    pair.routers[1].is_silent = true;
    let now = pair.now;
    pair.routers[0].stop(now, &mut pair.queues[0]);
    assert!(!pair.run(5.9).routers[0].is_over());
    assert!(pair.run(6.1).routers[0].is_over());
}

#[test]
fn steps_withdraw_groups_and_single_routes() {
    let mut edge = group("edge", range([16, 0, 0, 0], 24, 10));
    edge.single = true;
    let part = |name: &str, count| GroupPart { group: Some(name.into()), count };
    let steps = [
        step(5, RouterOrder::Withdraw(part("edge", Some(4))), Some(10)),
        step(6, RouterOrder::Withdraw(part("core", None)), None),
        step(7, RouterOrder::Announce(part("edges", None)), None),
    ];
    let mut pair = pair(vec![edge, group("core", range([17, 0, 0, 0], 24, 100))], &steps);
    assert_eq!(pair.run(4.9).learnt(), [110; 3]);
    assert_eq!(pair.run(5.5).learnt(), [106; 3]);
    assert_eq!(pair.run(6.5).learnt(), [6; 3]);
    assert_eq!(pair.state(0).sessions.unwrap().exported, 18);
    assert_eq!(pair.run(16.0).learnt(), [10; 3]);
    let state = pair.state(0);
    let withdrawn: Vec<_> = state.groups.iter().map(|group| group.withdrawn).collect();
    assert_eq!((withdrawn, state.downs), (vec![0, 100], 0));
    let [first, second, wrong, back] = &state.steps[..] else { panic!("{:?}", state.steps) };
    assert_eq!((first.routes, second.routes, back.routes), (4, 100, 4));
    assert_eq!((first.begun, second.begun, back.begun), (s(5), s(6), s(15)));
    let acknowledged = first.acknowledged.expect("it is acknowledged");
    let (begun, last) = first.sent.expect("frames are sent");
    assert!(begun == s(5) && last >= begun, "{first:?}");
    assert!(acknowledged > s(5) && acknowledged < s(6), "{first:?}");
    assert!(wrong.error.as_ref().is_some_and(|why| why.contains("no group \"edges\"")));
    // An order comes at once.
    let now = pair.now;
    pair.routers[0].order(now, RouterOrder::Withdraw(GroupPart::default()), None);
    assert_eq!(pair.run(17.0).learnt(), [0; 3]);
    assert!(pair.state(0).steps[4].due.is_live);
}

#[test]
fn routes_flap_at_their_rate() {
    let mut edge = group("edge", range([16, 0, 0, 0], 24, 10));
    edge.flap = Some(Flap { gap: Nanos(500 * MS), down: s(2) });
    let mut pair = pair(vec![edge], &[]);
    // 4 are down at any time: one is withdrawn each 0.5 s, for 2 s.
    assert_eq!(pair.run(10.25).learnt(), [6; 3]);
    assert_eq!(pair.state(0).groups[0].flaps, 20);
}

#[test]
fn sessions_that_steps_end_are_not_counted() {
    let neighbor = Some([10, 0, 2, 2].into());
    let notify = RouterOrder::Notify { neighbor, code: 6, subcode: 9, data: vec![1] };
    let down = RouterOrder::Down { neighbor, message: "works".into() };
    let steps = [
        step(5, down, Some(2)),
        step(20, notify, Some(1)),
        step(40, RouterOrder::Silent, Some(20)),
        step(100, RouterOrder::Restart, None),
    ];
    let mut pair = pair(vec![group("routes", range([16, 0, 0, 0], 24, 5))], &steps);
    let states =
        |pair: &Pair| -> Vec<_> { pair.state(0).protocols.iter().map(|one| one.is_up).collect() };
    assert_eq!(states(pair.run(6.0)), [true, false, true]);
    let error = |pair: &Pair| pair.state(1).protocols[1].error.clone();
    assert_eq!(error(&pair), "Received: Cease: Administrative Shutdown (6/2)");
    assert_eq!(states(pair.run(19.0)), [true; 3]);
    pair.run(20.5);
    assert_eq!(error(&pair), "Received: Cease: Hard Reset (6/9)");
    assert_eq!(states(pair.run(39.0)), [true; 3]);
    // The hold time is 9 s.
    let dropped = pair.routers[0].stats().dropped;
    assert_eq!(states(pair.run(55.0)), [false; 3]);
    assert!(pair.routers[0].stats().dropped > dropped);
    assert_eq!(states(pair.run(99.0)), [true; 3]);
    assert_eq!(states(pair.run(100.5)), [false; 3]);
    assert_eq!(states(pair.run(130.0)), [true; 3]);
    assert_eq!(pair.state(0).downs, 0);
    // A session that ends later has no excuse.
    let down = RouterOrder::Down { neighbor: None, message: String::new() };
    pair.routers[1].order(s(137), down, None);
    pair.run(131.0);
    assert_eq!(pair.state(0).downs, 3);
    // The neighbors have no such steps.
    assert_eq!(pair.state(1).downs, 8);
}

#[test]
fn copies_follow_each_other() {
    let mut one = settings(1, 3, vec![]);
    one.ipv6 = Some(("fd00::ffff".parse().unwrap(), 64));
    one.mac = MacAddr([2, 0, 0, 0, 0, 255]);
    one.graceful_restart = true;
    let of = speaker_settings(&one, Copies { count: 3, asn_step: 10 }, 1500, 1);
    let last = &of.routers[2];
    assert_eq!(last.mac, MacAddr([2, 0, 0, 0, 1, 1]));
    assert_eq!(last.addresses, [IpAddr::from([10, 0, 1, 3]), "fd00::1:1".parse().unwrap()]);
    let session = last.peers[0].session;
    assert_eq!((session.asn, session.peer_asn), (65_021, Some(65_002)));
    assert_eq!((session.identifier, session.hold), ([10, 0, 1, 3].into(), 9));
    assert_eq!((session.families, session.restart), ([true, true], Some(120)));
    assert_ne!(session.seed, of.routers[1].peers[0].session.seed);
    let router = NativeRouter::of(
        one,
        &[],
        None,
        &LinkSettings { number: 0, mtu: 1500, seed: 0, begin: BEGIN },
    );
    let has = |mac| router.has_mac(MacAddr(mac));
    assert!(has([2, 0, 0, 0, 0, 255]) && has([2, 0, 0, 0, 1, 1]));
    assert!(!has([2, 0, 0, 0, 0, 254]) && !has([2, 0, 0, 0, 1, 2]));
}

#[test]
fn attributes_and_prefixes_are_those_of_the_group() {
    let mut edge = group("edge", range([10, 0, 0, 0], 24, 2));
    let list: Arc<[Prefix]> = [Prefix::parse("2001:db8::/32").unwrap()].into();
    edge.prefixes.push(Prefixes::List(list));
    edge.attributes = GroupAttributes {
        med: Some(5),
        prepend: 2,
        communities: vec![(65_001, 7)],
        as_path: vec![65_010],
        origin: Some(Origin::Incomplete),
        next_hop: Some([10, 0, 0, 9].into()),
    };
    let of = super::group(&edge);
    let routes: Vec<_> = (of.prefixes)().map(|prefix| prefix.to_string()).collect();
    assert_eq!(routes, ["10.0.0.0/24", "10.0.1.0/24", "2001:db8::/32"]);
    assert_eq!(by_family(&edge), [2, 1]);
    let expected = RouteAttributes {
        origin: squall_bgp::Origin::Incomplete,
        prepend: 2,
        as_path: vec![65_010],
        next_hop: Some([10, 0, 0, 9].into()),
        med: Some(5),
        communities: vec![(65_001, 7)],
        ..RouteAttributes::default()
    };
    assert_eq!(of.attributes, expected);
}

#[test]
fn a_text_for_the_neighbor_has_its_length_before_it() {
    assert!(shutdown("").data.is_empty());
    assert_eq!(shutdown("works").data, *b"\x05works");
    assert_eq!((shutdown("works").code, shutdown("works").subcode), (6, 2));
}

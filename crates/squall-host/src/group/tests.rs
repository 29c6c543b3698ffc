//! Groups that talk to each other, in virtual time.

use proptest::prelude::*;
use squall_units::SplitMix64;

use std::sync::Arc;

use super::*;
use crate::{
    EAPOL, GroupVersion, LldpSettings, MembershipTimers, QuerierSettings, SourceFilter,
    SupplicantSettings,
};

pub(super) const BEGIN: Nanos = Nanos(5_000_000_000);

pub(super) fn seconds(seconds: f64) -> Nanos {
    Nanos((seconds * 1e9) as u64)
}

/// Hosts with these addresses, whose MAC addresses begin with 02:00:00:`third`.
pub(super) fn settings(count: u32, third: u8, addressing: Addressing) -> GroupSettings {
    GroupSettings {
        count,
        mac: MacAddr([2, 0, 0, third, 0, 1]),
        addressing,
        seed: 7,
        ..GroupSettings::default()
    }
}

fn dhcp(count: u32) -> GroupSettings {
    settings(count, 1, Addressing::Dhcp(DhcpTimers::default()))
}

pub(super) fn fixed(count: u32, third: u8, first: [u8; 4]) -> GroupSettings {
    settings(count, third, Addressing::Static { first: first.into(), prefix: 16 })
}

fn server(addresses: u32) -> GroupSettings {
    let server = ServerSettings {
        address: [10, 0, 0, 1].into(),
        prefix: 16,
        router: Some([10, 0, 0, 1].into()),
        first: [10, 0, 1, 0].into(),
        count: addresses,
        lease: 1000,
        ..ServerSettings::default()
    };
    GroupSettings { server: Some(server), ..fixed(1, 2, [10, 0, 0, 1]) }
}

/// Groups on one link, whose frames reach all others after 1 ms unless they are lost.
pub(super) struct Link {
    pub(super) groups: Vec<HostGroup>,
    pub(super) now: Nanos,
    pub(super) random: SplitMix64,
    /// Percent.
    pub(super) loss: u64,
    pub(super) repeats: u64,
    frames: u64,
}

impl Link {
    pub(super) fn of(settings: impl IntoIterator<Item = GroupSettings>) -> Self {
        let groups = settings.into_iter().map(|one| HostGroup::new(one, BEGIN)).collect();
        Self { groups, now: BEGIN, random: SplitMix64(9), loss: 0, repeats: 0, frames: 0 }
    }

    /// Goes on until `until`, or until all groups are settled and nothing is on the way.
    pub(super) fn run(&mut self, until: Option<Nanos>) {
        let mut queues: Vec<_> = self.groups.iter().map(|_| FrameQueue::default()).collect();
        loop {
            for (group, out) in self.groups.iter_mut().zip(&mut queues) {
                while group.advance(self.now, out) {}
            }
            let mut wire: Vec<(usize, Vec<u8>)> = Vec::new();
            for (from, out) in queues.iter_mut().enumerate() {
                while let Some((frame, _)) = out.first() {
                    self.frames += 1;
                    if self.random.draw() % 100 >= self.loss {
                        let copies = 1 + u64::from(self.random.draw() % 100 < self.repeats);
                        for _ in 0..copies {
                            let at = self.random.draw() as usize % (wire.len() + 1);
                            let at = if self.repeats > 0 { at } else { wire.len() };
                            wire.insert(at, (from, frame.to_vec()));
                        }
                    }
                    out.pop();
                }
            }
            let any = !wire.is_empty();
            let due = self.groups.iter().filter_map(HostGroup::next_due).min();
            let settled = self.groups.iter().all(HostGroup::is_settled);
            if !any && until.is_none() && settled {
                return;
            }
            self.now = match any {
                true => self.now + Nanos(1_000_000),
                false => due.unwrap_or(Nanos(u64::MAX)).max(self.now),
            };
            if until.is_some_and(|until| self.now > until) {
                self.now = until.unwrap();
                return;
            }
            assert!(any || due.is_some(), "nothing is due, and hosts are not settled");
            for (from, frame) in wire {
                for (to, group) in self.groups.iter_mut().enumerate().filter(|to| to.0 != from) {
                    group.receive(self.now, (&frame, false), &mut queues[to]);
                }
            }
        }
    }

    pub(super) fn of_group(&self, group: usize) -> GroupStatistics {
        self.groups[group].statistics(true)
    }

    fn in_state(&self, group: usize, state: DhcpState) -> u64 {
        let states = self.of_group(group).states;
        states.iter().find(|(one, _)| *one == state).map_or(0, |(_, count)| *count)
    }

    pub(super) fn stop(&mut self) {
        let now = self.now;
        self.groups.iter_mut().for_each(|group| group.stop(now));
        self.run(None);
    }
}

#[test]
fn each_client_gets_an_address_and_the_server_counts_the_same() {
    let mut link = Link::of([dhcp(1000), server(1000)]);
    link.run(None);
    let (clients, server) = (link.of_group(0), link.of_group(1));
    assert_eq!((clients.started, clients.bound), (1000, 1000));
    assert_eq!(clients.sent, BTreeMap::from([("discover", 1000), ("request", 1000)]));
    assert_eq!(clients.received, BTreeMap::from([("offer", 1000), ("ack", 1000)]));
    assert_eq!((clients.offer.count(), clients.dora.count()), (1000, 1000));
    assert_eq!((clients.offer.min(), clients.dora.max()), (2_000_000, 4_000_000));
    let (counters, leases) = server.server.unwrap();
    assert_eq!((counters.discovers, counters.acks, leases), (1000, 1000, 1000));
    let mut addresses: Vec<_> = (0..1000).map(|host| link.groups[0].address(host)).collect();
    addresses.sort();
    addresses.dedup();
    assert_eq!((addresses.len(), addresses.contains(&None)), (1000, false));
}

#[test]
fn hosts_start_at_their_rate_and_not_when_others_are_bound() {
    let mut link = Link::of([GroupSettings { setup: Some(100), ..dhcp(50) }]);
    link.run(Some(BEGIN + seconds(0.2)));
    assert_eq!(link.of_group(0).started, 21, "without any answer");
    link.run(Some(BEGIN + seconds(0.495)));
    assert_eq!(link.of_group(0).started, 50);
}

#[test]
fn hosts_without_a_server_fail_with_the_reason_after_five_messages() {
    let mut link = Link::of([dhcp(20)]);
    link.run(None);
    let counted = link.of_group(0);
    assert_eq!(counted.failed, BTreeMap::from([("no_offer", 20)]));
    assert_eq!((counted.sent["discover"], counted.retransmissions), (100, 80));
    let elapsed = (link.now - BEGIN).as_secs_f64();
    assert!((119.0..=129.0).contains(&elapsed), "4 + 8 + 16 + 32 + 64 s, not {elapsed}");
}

#[test]
fn hosts_for_which_the_server_has_no_address_fail_and_the_others_are_bound() {
    let mut link = Link::of([dhcp(30), server(10)]);
    link.run(None);
    assert_eq!(link.in_state(0, DhcpState::Failed), 20);
    assert_eq!(link.of_group(0).bound, 10);
    assert_eq!(link.of_group(1).server.unwrap().0.exhausted, 100);
}

#[test]
fn leases_are_renewed_at_half_their_time_and_released_at_the_end() {
    let mut link = Link::of([GroupSettings { release: true, ..dhcp(10) }, server(10)]);
    link.run(Some(BEGIN + seconds(1600.0)));
    let counted = link.of_group(0);
    assert_eq!((counted.renewed, counted.expired), (30, 0), "at 500, 1000 and 1500 s");
    link.stop();
    assert_eq!(link.of_group(0).sent["release"], 10);
    assert_eq!(link.of_group(1).server.unwrap().1, 0);
    assert_eq!(link.in_state(0, DhcpState::Released), 10);
}

#[test]
fn a_lease_ends_if_the_server_is_gone() {
    let mut link = Link::of([dhcp(5), server(10)]);
    link.run(Some(BEGIN + seconds(1.0)));
    link.groups.pop();
    link.run(Some(BEGIN + seconds(1005.0)));
    assert_eq!(link.of_group(0).expired, 5);
    assert!((0..5).all(|host| link.groups[0].address(host).is_none()));
}

#[test]
fn hosts_answer_arp_and_echo_requests_for_their_addresses_alone() {
    let pings = PingSettings {
        target: Some([10, 0, 5, 3].into()),
        rate: 100,
        count: 4,
        timeout: seconds(1.0),
    };
    let asks = GroupSettings { ping: Some(pings), ..fixed(3, 1, [10, 0, 0, 1]) };
    let mut link = Link::of([asks, fixed(10, 2, [10, 0, 5, 0])]);
    link.run(None);
    let (asks, answers) = (link.of_group(0), link.of_group(1));
    assert_eq!((asks.echo.sent, asks.echo.received, asks.echo.lost), (12, 12, 0));
    assert_eq!((answers.echo.answered, asks.echo.rtt.min()), (12, 2_000_000));
    assert_eq!((asks.arp.requests, answers.arp.answered), (1, 1), "once for the group");
    // Three requests in the first turn wait for ARP, then 100 a second.
    let elapsed = (link.now - BEGIN).as_secs_f64();
    assert!((0.08..0.2).contains(&elapsed), "{elapsed} s");
}

#[test]
fn echo_requests_without_an_answer_are_lost_and_a_silent_neighbor_is_named() {
    let pings = PingSettings {
        target: Some([10, 0, 9, 9].into()),
        rate: 100,
        count: 2,
        timeout: seconds(1.0),
    };
    let asks = GroupSettings { ping: Some(pings), ..fixed(3, 1, [10, 0, 0, 1]) };
    let mut link = Link::of([asks.clone(), fixed(1, 2, [10, 0, 5, 0])]);
    link.run(None);
    let counted = link.of_group(0);
    assert_eq!((counted.echo.sent, counted.echo.unresolved, counted.arp.unresolved), (0, 3, 1));
    let mut lossy = Link::of([asks, fixed(1, 2, [10, 0, 9, 9])]);
    lossy.run(Some(BEGIN + seconds(0.0105)));
    lossy.loss = 100;
    lossy.run(None);
    let counted = lossy.of_group(0);
    assert_eq!(counted.echo.sent, 6);
    assert_eq!(counted.echo.received + counted.echo.lost, 6);
    assert!(counted.echo.lost >= 4, "{counted:?}");
}

#[test]
fn hosts_of_another_vlan_are_not_here() {
    let tagged = |group: GroupSettings, vlan| GroupSettings { tags: vec![(0x8100, vlan)], ..group };
    let mut link = Link::of([tagged(dhcp(5), 7), tagged(server(5), 8)]);
    link.run(Some(BEGIN + seconds(2.0)));
    assert_eq!(link.of_group(0).bound, 0);
    let mut link = Link::of([tagged(dhcp(5), 7), tagged(server(5), 7)]);
    link.run(None);
    assert_eq!(link.of_group(0).bound, 5);
}

#[test]
fn an_address_of_another_host_is_declined_and_the_next_one_taken() {
    let conflict = ConflictTimers { announcements: 1, ..ConflictTimers::default() };
    let clients = GroupSettings { conflict, ..dhcp(3) };
    // The first two addresses of the server belong to hosts that it does not know.
    let mut link = Link::of([clients, server(10), fixed(2, 3, [10, 0, 1, 0])]);
    link.run(None);
    let counted = link.of_group(0);
    assert_eq!((counted.bound, counted.arp.conflicts, counted.sent["decline"]), (3, 2, 2));
    assert_eq!(link.of_group(1).server.unwrap().0.declines, 2);
    let addresses: Vec<_> = (0..3).filter_map(|host| link.groups[0].address(host)).collect();
    assert!(addresses.iter().all(|address| address.octets()[3] >= 2), "{addresses:?}");
}

#[test]
fn two_groups_that_probe_for_the_same_addresses_have_them_once() {
    let probes = |third| GroupSettings {
        conflict: ConflictTimers::default(),
        ..fixed(20, third, [10, 0, 1, 0])
    };
    let mut link = Link::of([probes(1), probes(2)]);
    link.run(None);
    for host in 0..20 {
        let owners = (0..2).filter(|group| link.groups[*group].address(host).is_some()).count();
        assert!(owners <= 1, "host {host}");
    }
    let failed = link.in_state(0, DhcpState::Failed) + link.in_state(1, DhcpState::Failed);
    assert!(failed >= 20);
    assert!(link.of_group(0).arp.probes > 0);
}

#[test]
fn the_records_of_a_hundred_thousand_hosts_are_small() {
    assert!(size_of::<HostRecord>() <= 256, "{} octets", size_of::<HostRecord>());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_host_is_bound_or_has_failed_whatever_happens_to_frames(
        seed: u64, loss in 0u64..100, repeats in 0u64..50, hosts in 1u32..40, pool in 1u32..60,
        probes in 0u8..3,
    ) {
        let conflict = ConflictTimers { probes, ..ConflictTimers::SILENT };
        let mut link = Link::of([GroupSettings { conflict, seed, ..dhcp(hosts) }, server(pool)]);
        (link.loss, link.repeats, link.random) = (loss, repeats, SplitMix64(seed));
        link.run(None);
        let counted = link.of_group(0);
        let of = |state| link.in_state(0, state);
        let bound = of(DhcpState::Bound) + of(DhcpState::Renewing) + of(DhcpState::Rebinding);
        prop_assert_eq!(bound + of(DhcpState::Failed), u64::from(hosts));
        prop_assert_eq!(counted.failed.values().sum::<u64>(), of(DhcpState::Failed));
        let mut addresses: Vec<_> = (0..hosts).filter_map(|h| link.groups[0].address(h)).collect();
        prop_assert_eq!(addresses.len() as u64, bound);
        addresses.sort();
        addresses.dedup();
        prop_assert_eq!(addresses.len() as u64, bound);
        if loss == 0 && pool >= hosts {
            prop_assert_eq!(bound, u64::from(hosts));
        }
    }

    #[test]
    fn no_octets_make_a_group_panic(
        octets in proptest::collection::vec(any::<u8>(), 0..400), kind in 0usize..4, at in 0usize..60,
    ) {
        let mut link = Link::of([dhcp(4), server(4)]);
        link.run(None);
        let now = link.now;
        let mut out = FrameQueue::default();
        // A frame to a host, with headers that lead to each parser.
        let mut frame = vec![2, 0, 0, 1, 0, 1, 2, 0, 0, 9, 0, 9];
        let starts: [&[u8]; 4] = [
            &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1],
            &[8, 0, 0x45, 0, 1, 0, 0, 0, 0, 0, 64, 17, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 67, 0, 68],
            &[8, 0, 0x45, 0, 0, 60, 0, 0, 0, 0, 64, 1],
            &[],
        ];
        frame.extend(starts[kind]);
        frame.truncate(frame.len().max(at));
        frame.extend(octets);
        for group in &mut link.groups {
            group.receive(now, (&frame, true), &mut out);
            group.receive(now, (&frame[..frame.len().min(at)], false), &mut out);
        }
    }
}

fn services(host: GroupSettings, services: ServiceSettings) -> GroupSettings {
    GroupSettings { services, ..host }
}

fn multicast(count: u32) -> MulticastSettings {
    MulticastSettings {
        ranges: vec![(Ipv4Addr::new(239, 1, 0, 0).into(), count)],
        each: None,
        filters: [SourceFilter::any(), SourceFilter::any()],
        timers: [MembershipTimers::of(GroupVersion::Three); 2],
        rate: None,
        hold: None,
    }
}

fn members(hosts: u32, of: MulticastSettings) -> GroupSettings {
    let multicast = Some(Arc::new(of));
    services(fixed(hosts, 3, [10, 0, 5, 1]), ServiceSettings { multicast, ..Default::default() })
}

fn querier() -> GroupSettings {
    let queriers = Some([QuerierSettings::default(); 2]);
    services(fixed(1, 4, [10, 0, 0, 1]), ServiceSettings { queriers, ..Default::default() })
}

/// Multicast figures of a group.
fn seen(group: &HostGroup) -> MulticastStatistics {
    group.statistics(true).multicast.unwrap()
}

#[test]
fn a_querier_has_the_groups_that_hosts_join_and_forgets_those_that_they_leave() {
    let hold = Some(seconds(300.0));
    let of = MulticastSettings { rate: Some(1000), hold, ..multicast(5000) };
    let mut link = Link::of([querier(), members(1, of)]);
    link.run(Some(BEGIN + seconds(5.5)));
    let groups = |link: &Link| link.groups[0].statistics(true).querier.unwrap().groups;
    assert_eq!(groups(&link), 5000, "5000 joins at 1000/s");
    // Longer than members without an answer are remembered: they answer the general queries.
    link.run(Some(BEGIN + seconds(299.0)));
    assert_eq!(groups(&link), 5000);
    assert!(seen(&link.groups[1]).received["general_query"] >= 3);
    link.run(Some(BEGIN + seconds(310.0)));
    assert_eq!(groups(&link), 0, "all have left, and no other host answered");
    let counted = seen(&link.groups[1]);
    assert_eq!((counted.joined, counted.left), (5000, 5000));
    assert!(link.groups[1].is_settled());
}

#[test]
fn lost_and_repeated_reports_lose_no_group_for_longer_than_a_query_interval() {
    let mut link = Link::of([querier(), members(20, multicast(10))]);
    (link.loss, link.repeats) = (20, 20);
    link.run(Some(BEGIN + seconds(1000.0)));
    assert_eq!(link.groups[0].statistics(true).querier.unwrap().groups, 10);
}

#[test]
fn each_host_joins_its_part_of_the_groups_in_turn() {
    let of = MulticastSettings { each: Some(3), ..multicast(7) };
    let mut link = Link::of([querier(), members(3, of)]);
    link.run(Some(BEGIN + seconds(2.0)));
    let counted = seen(&link.groups[1]);
    // 9 memberships: the last host has the last group, and the first two again.
    assert_eq!((counted.joined, counted.groups), (9, 7));
}

#[test]
fn hosts_leave_at_the_end_if_they_give_addresses_back() {
    let settings = GroupSettings { release: true, ..members(2, multicast(3)) };
    let mut link = Link::of([querier(), settings]);
    link.run(Some(BEGIN + seconds(3.0)));
    let now = link.now;
    link.groups[1].stop(now);
    link.run(Some(now + seconds(5.0)));
    assert_eq!(seen(&link.groups[1]).left, 6);
    assert_eq!(link.groups[0].statistics(true).querier.unwrap().groups, 0);
}

#[test]
fn frames_of_groups_are_counted_by_membership_with_the_delays_of_join_and_leave() {
    let of = MulticastSettings { hold: Some(seconds(10.0)), ..multicast(2) };
    let mut group = HostGroup::new(members(1, of), BEGIN);
    let mut out = FrameQueue::default();
    let frame = |last: u8| {
        let mut frame = vec![1, 0, 0x5e, 1, 0, last, 2, 9, 9, 9, 9, 9, 8, 0, 0x45, 0, 0, 20];
        frame.extend([0, 0, 0, 0, 9, 17, 0, 0, 10, 0, 0, 1, 239, 1, 0, last]);
        frame
    };
    let mut receive = |group: &mut HostGroup, at: f64, last| {
        let at = BEGIN + seconds(at);
        while group.advance(at, &mut out) {}
        assert!(!group.receive(at, (&frame(last), false), &mut out), "it is not for hosts alone");
    };
    receive(&mut group, 0.0, 0);
    receive(&mut group, 0.25, 0);
    receive(&mut group, 0.5, 1);
    receive(&mut group, 0.75, 9);
    // The host leaves both.
    receive(&mut group, 10.0, 9);
    receive(&mut group, 10.5, 1);
    receive(&mut group, 11.0, 1);
    let counted = seen(&group);
    assert_eq!((counted.groups, counted.groups_received), (2, 2));
    assert_eq!((counted.frames, counted.frames_after_leave, counted.unexpected), (3, 2, 2));
    assert_eq!((counted.join.count(), counted.leave.count()), (2, 1));
    assert_eq!(counted.join.max(), seconds(0.5).0);
    assert_eq!(counted.leave.max(), seconds(1.0).0);
}

#[test]
fn speakers_are_each_others_neighbors_until_they_end() {
    let lldp = LldpSettings { system: "host-{}".into(), ..LldpSettings::default() };
    let with = |settings| {
        let lldp = Some(lldp.clone());
        services(settings, ServiceSettings { lldp, ..ServiceSettings::default() })
    };
    let nothing = GroupSettings { addressing: Addressing::None, ..with(fixed(4, 3, [0; 4])) };
    let mut link = Link::of([with(fixed(1, 4, [10, 0, 0, 1])), nothing]);
    link.run(Some(BEGIN + seconds(100.0)));
    let of = |link: &Link, i: usize| link.groups[i].statistics(true).lldp.unwrap();
    let found = of(&link, 0);
    let names: Vec<_> = found.neighbors.all().map(|(_, _, name)| name.to_owned()).collect();
    assert_eq!(names, ["host-1", "host-2", "host-3", "host-4"]);
    assert_eq!(of(&link, 1).neighbors.len(), 1);
    let now = link.now;
    link.groups[1].stop(now);
    link.run(Some(now + seconds(1.0)));
    let found = of(&link, 0);
    assert_eq!((found.neighbors.len(), found.neighbors.ended), (0, 4));
    assert_eq!(of(&link, 1).shutdowns, 4);
}

/// An authenticator with EAP-MD5 for one host, which answers by the identifiers of RFC 3748.
fn authenticator(frame: &[u8], accept: bool) -> Option<Vec<u8>> {
    let eap = |code: u8, id: u8, data: &[u8]| {
        let len = (4 + data.len()) as u8;
        let mut frame = frame[6..12].to_vec();
        frame.extend([2, 0, 0, 9, 0, 9, 0x88, 0x8e, 2, 0, 0, len, code, id, 0, len]);
        frame.extend(data);
        frame
    };
    match frame[15] {
        1 => Some(eap(1, 10, &[1])),
        0 if frame[22] == 1 => Some(eap(1, 11, &[4, 2, 0xaa, 0xbb])),
        0 => Some(eap(if accept { 3 } else { 4 }, 11, &[])),
        _ => None,
    }
}

#[test]
fn hosts_send_nothing_else_before_they_are_authenticated_and_log_off_at_the_end() {
    let auth = Some(SupplicantSettings {
        identity: "user{}".into(),
        password: "secret".into(),
        attempts: 1,
        ..SupplicantSettings::default()
    });
    let lldp = Some(LldpSettings::default());
    let protocols = ServiceSettings { auth, lldp, ..ServiceSettings::default() };
    for accept in [true, false] {
        let settings = GroupSettings { release: true, ..services(dhcp(3), protocols.clone()) };
        let mut group = HostGroup::new(settings, BEGIN);
        let (mut out, mut now) = (FrameQueue::default(), BEGIN);
        let mut kinds = Vec::new();
        for _ in 0..20 {
            while group.advance(now, &mut out) {}
            now = now + Nanos(1_000_000);
            while let Some((frame, _)) = out.first() {
                let frame = frame.to_vec();
                out.pop();
                let kind = u16::from_be_bytes([frame[12], frame[13]]);
                kinds.push(kind);
                if kind == EAPOL
                    && let Some(answer) = authenticator(&frame, accept)
                {
                    assert!(group.receive(now, (&answer, false), &mut out));
                }
            }
        }
        let counted = group.statistics(true);
        let auth = counted.auth.unwrap();
        assert_eq!(kinds.iter().filter(|kind| **kind == EAPOL).count(), 9, "start, two answers");
        if !accept {
            assert!(kinds.iter().all(|kind| *kind == EAPOL), "{kinds:x?}");
            assert_eq!(counted.failed, [("rejected", 3)].into());
            assert!(group.is_settled());
            assert_eq!(counted.states.iter().find(|(s, _)| *s == DhcpState::Failed).unwrap().1, 3);
            continue;
        }
        assert_eq!((auth.authenticated, auth.time.count()), (3, 3));
        assert_eq!(counted.sent["discover"], 3);
        group.stop(now);
        while group.advance(now, &mut out) {}
        let mut logoffs = 0;
        while let Some((frame, _)) = out.first() {
            logoffs += usize::from(frame[12..16] == [0x88, 0x8e, 2, 2]);
            out.pop();
        }
        assert_eq!(logoffs, 3);
    }
}

#[test]
fn a_host_whose_port_is_closed_begins_again_when_it_is_open() {
    let auth = Some(SupplicantSettings { held_period: seconds(1.0), ..Default::default() });
    let protocols = ServiceSettings { auth, ..ServiceSettings::default() };
    let mut group = HostGroup::new(services(fixed(1, 3, [10, 0, 0, 1]), protocols), BEGIN);
    let (mut out, mut now) = (FrameQueue::default(), BEGIN);
    let mut pass = |group: &mut HostGroup, now: Nanos, accept: bool| {
        while group.advance(now, &mut out) {}
        while let Some((frame, _)) = out.first() {
            let frame = frame.to_vec();
            out.pop();
            if frame[12..14] == [0x88, 0x8e]
                && let Some(answer) = authenticator(&frame, accept)
            {
                group.receive(now, (&answer, false), &mut out);
            }
        }
    };
    pass(&mut group, now, true);
    assert!(group.address(0).is_some());
    // The authenticator asks again, and refuses.
    let mac = group.mac(0).0;
    let mut request = mac.to_vec();
    request.extend([2, 0, 0, 9, 0, 9, 0x88, 0x8e, 2, 0, 0, 5, 1, 10, 0, 5, 1]);
    let mut queue = FrameQueue::default();
    group.receive(now, (&request, false), &mut queue);
    assert!(group.address(0).is_some(), "the port stays open meanwhile");
    let mut refuse = mac.to_vec();
    refuse.extend([2, 0, 0, 9, 0, 9, 0x88, 0x8e, 2, 0, 0, 4, 4, 10, 0, 4]);
    group.receive(now, (&refuse, false), &mut queue);
    assert_eq!(group.address(0), None);
    now = now + seconds(1.0);
    pass(&mut group, now, true);
    assert!(group.address(0).is_some());
    assert_eq!(group.statistics(true).auth.unwrap().authenticated, 2);
}

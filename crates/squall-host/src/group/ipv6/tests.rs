//! Hosts and routers that talk to each other over IPv6, in virtual time.

use std::{net::IpAddr, sync::Arc};

use proptest::prelude::*;
use squall_units::SplitMix64;

use super::{
    super::{
        Addressing, GroupSettings,
        tests::{BEGIN, Link, seconds, settings},
    },
    *,
};
use crate::{
    Association, GroupVersion, HostTable, Kind6, Lease6, MembershipTimers, MulticastSettings,
    PrefixInformation, QuerierSettings, ServiceSettings, SourceFilter, mld,
};

fn ipv6(count: u32, third: u8, addressing: Ipv6Addressing) -> GroupSettings {
    let ipv6 = Ipv6Settings {
        addressing,
        identifier: InterfaceIdentifier::Eui64,
        gateway: None,
        timers: NdTimers::default(),
        dhcp: None,
        router: None,
        server: None,
    };
    GroupSettings { ipv6: Some(ipv6), ..settings(count, third, Addressing::None) }
}

fn slaac(count: u32) -> GroupSettings {
    ipv6(count, 1, Ipv6Addressing::Slaac)
}

fn fixed(count: u32, third: u8, first: &str) -> GroupSettings {
    ipv6(count, third, Ipv6Addressing::Static { first: first.parse().unwrap(), prefix: 64 })
}

fn stable(group: GroupSettings) -> GroupSettings {
    let ipv6 = group.ipv6.unwrap();
    let ipv6 = Ipv6Settings { identifier: InterfaceIdentifier::Stable, ..ipv6 };
    GroupSettings { ipv6: Some(ipv6), ..group }
}

/// The group starts when others have their addresses.
fn later(group: GroupSettings) -> GroupSettings {
    GroupSettings { start: seconds(5.0), ..group }
}

/// A router with these prefixes; their lifetimes are 200 and 100 seconds.
fn router(prefixes: &[&str]) -> GroupSettings {
    let prefix = |text: &&str| PrefixInformation {
        prefix: text.parse().unwrap(),
        length: 64,
        on_link: true,
        autonomous: true,
        valid: 200,
        preferred: 100,
    };
    let router = RouterSettings {
        prefixes: prefixes.iter().map(prefix).collect(),
        ..RouterSettings::default()
    };
    let group = ipv6(1, 2, Ipv6Addressing::Slaac);
    let ipv6 = Ipv6Settings { router: Some(router), ..group.ipv6.unwrap() };
    GroupSettings { ipv6: Some(ipv6), ..group }
}

fn of(link: &Link, group: usize) -> Ipv6Statistics {
    link.of_group(group).ipv6.expect("the group has IPv6")
}

fn in_state(link: &Link, state: Ipv6State) -> u64 {
    of(link, 0).states.iter().find(|(one, _)| *one == state).map_or(0, |(_, count)| *count)
}

fn addresses(link: &Link) -> Vec<Ipv6Addr> {
    let group = &link.groups[0];
    (0..group.settings.count).filter_map(|host| group.ipv6_address(host)).collect()
}

#[test]
fn hosts_make_addresses_with_the_prefix_of_the_router() {
    let mut link = Link::of([slaac(200), router(&["2001:db8:1::"])]);
    link.run(None);
    assert_eq!(in_state(&link, Ipv6State::Bound), 200);
    let counted = of(&link, 0);
    assert_eq!((counted.addresses, counted.address.count()), (200, 200));
    assert_eq!(counted.nd.probes, 400, "one for each address");
    assert_eq!(addresses(&link)[0], "2001:db8:1::ff:fe01:1".parse::<Ipv6Addr>().unwrap());
    // 1 s for each of two addresses, and up to a second before each, and before the answer.
    let longest = Nanos(counted.address.max()).as_secs_f64();
    assert!((2.0..=4.6).contains(&longest), "{longest} s");
}

#[test]
fn each_host_solicits_once_and_hears_an_answer_of_its_own() {
    let group = GroupSettings { setup: Some(10), ..slaac(50) };
    let mut link = Link::of([group, router(&["2001:db8:1::"])]);
    link.run(None);
    let (hosts, router) = (of(&link, 0), of(&link, 1));
    assert_eq!(hosts.nd.router_solicitations, 50);
    assert_eq!(hosts.router.count(), 50);
    assert!(router.nd.advertised > 50, "also to all: {}", router.nd.advertised);
    assert!(Nanos(hosts.router.max()).as_secs_f64() <= 0.51, "MAX_RA_DELAY_TIME");
}

#[test]
fn hosts_without_a_router_fail_after_three_solicitations() {
    let mut link = Link::of([slaac(5)]);
    link.run(None);
    let counted = of(&link, 0);
    assert_eq!(counted.failed, BTreeMap::from([("no_router", 5)]));
    assert_eq!(counted.nd.router_solicitations, 15);
    let elapsed = (link.now - BEGIN).as_secs_f64();
    assert!((10.0..=11.0).contains(&elapsed), "1 s and 4 + 4 + 1 s, not {elapsed}");
}

#[test]
fn hosts_that_have_failed_get_addresses_from_a_late_router() {
    let late = GroupSettings { start: seconds(20.0), ..router(&["2001:db8:1::"]) };
    let mut link = Link::of([slaac(5), late]);
    link.run(Some(BEGIN + seconds(15.0)));
    assert_eq!(in_state(&link, Ipv6State::Failed), 5);
    link.run(Some(BEGIN + seconds(25.0)));
    assert_eq!(in_state(&link, Ipv6State::Bound), 5);
    assert_eq!(of(&link, 0).failed, BTreeMap::new());
}

#[test]
fn a_router_without_a_prefix_is_a_reason() {
    let mut link = Link::of([slaac(3), router(&[])]);
    link.run(None);
    assert_eq!(of(&link, 0).failed, BTreeMap::from([("no_prefix", 3)]));
}

#[test]
fn addresses_of_two_prefixes_are_made_and_of_no_more() {
    let mut link = Link::of([slaac(4), router(&["2001:db8:1::", "2001:db8:2::", "2001:db8:3::"])]);
    link.run(Some(BEGIN + seconds(10.0)));
    assert_eq!((of(&link, 0).addresses, in_state(&link, Ipv6State::Bound)), (8, 4));
}

#[test]
fn addresses_become_deprecated_and_end_without_the_router() {
    let mut link = Link::of([slaac(4), router(&["2001:db8:1::"])]);
    link.run(Some(BEGIN + seconds(10.0)));
    link.groups.pop();
    link.run(Some(BEGIN + seconds(150.0)));
    assert_eq!(in_state(&link, Ipv6State::Deprecated), 4);
    assert_eq!(addresses(&link).len(), 4, "they may still be used");
    link.run(Some(BEGIN + seconds(250.0)));
    assert_eq!((addresses(&link).len(), of(&link, 0).ended), (0, 4));
}

#[test]
fn stable_identifiers_differ_between_prefixes_and_not_between_runs() {
    let run = || {
        let mut link = Link::of([stable(slaac(50)), router(&["2001:db8:1::", "2001:db8:2::"])]);
        link.run(Some(BEGIN + seconds(10.0)));
        addresses(&link)
    };
    let first = run();
    assert_eq!((first.len(), &first), (50, &run()));
    assert!(first.iter().all(|one| one.octets()[11..13] != [0xff, 0xfe]), "{first:?}");
    let mut different = first.clone();
    different.dedup();
    assert_eq!(different.len(), 50);
}

#[test]
fn an_address_of_another_host_is_a_duplicate_and_a_stable_identifier_is_made_anew() {
    let mut first = Link::of([slaac(3), router(&["2001:db8:1::"])]);
    first.run(None);
    let owner = fixed(1, 7, &addresses(&first)[0].to_string());
    let mut link = Link::of([later(slaac(3)), owner, router(&["2001:db8:1::"])]);
    link.run(None);
    assert_eq!(of(&link, 0).failed, BTreeMap::from([("duplicate", 1)]));
    assert_eq!((of(&link, 0).nd.duplicates, in_state(&link, Ipv6State::Bound)), (1, 2));
    let mut first = Link::of([stable(slaac(3)), router(&["2001:db8:1::"])]);
    first.run(None);
    let taken = addresses(&first)[0];
    let owner = fixed(1, 7, &taken.to_string());
    let mut link = Link::of([later(stable(slaac(3))), owner, router(&["2001:db8:1::"])]);
    link.run(None);
    assert_eq!((of(&link, 0).nd.duplicates, in_state(&link, Ipv6State::Bound)), (1, 3));
    assert_ne!(addresses(&link)[0], taken);
}

#[test]
fn hosts_answer_solicitations_and_echo_requests_for_their_addresses_alone() {
    let ping = PingSettings {
        target: Some("2001:db8::1:3".parse().unwrap()),
        rate: 100,
        count: 4,
        timeout: seconds(1.0),
    };
    let asks = GroupSettings { ping: Some(ping), ..fixed(3, 1, "2001:db8::2:0") };
    // Hosts that still examine their addresses answer no solicitation.
    let mut link = Link::of([later(asks), fixed(10, 2, "2001:db8::1:0")]);
    link.run(None);
    let (asks, answers) = (link.of_group(0), link.of_group(1));
    assert_eq!((asks.echo.sent, asks.echo.received, asks.echo.lost), (12, 12, 0));
    assert_eq!((answers.echo.answered, asks.echo.rtt.min()), (12, 2_000_000));
    let (asks, answers) = (of(&link, 0).nd, of(&link, 1).nd);
    assert_eq!((asks.requests, answers.answered), (1, 1), "once for the group");
}

#[test]
fn datagrams_to_closed_ports_get_errors_of_icmpv6() {
    let group = GroupSettings { icmp_errors: true, ..fixed(1, 1, "2001:db8::1") };
    let mut link = Link::of([group]);
    link.run(None);
    let source: Ipv6Addr = "2001:db8::9".parse().unwrap();
    let own = link.groups[0].ipv6_address(0).unwrap();
    let mut datagram = vec![0x60, 0, 0, 0, 0, 8, 17, 64];
    datagram.extend(source.octets());
    datagram.extend(own.octets());
    datagram.extend([0x12, 0x34, 0, 9, 0, 8, 0, 0]);
    let peer = crate::Host { mac: MacAddr([2, 0, 0, 9, 9, 9]), ..Default::default() };
    let frame = peer.frame(link.groups[0].mac(0), IPV6, &datagram);
    let (now, mut out) = (link.now, FrameQueue::default());
    link.groups[0].receive(now, (&frame, false), &mut out);
    let error = IcmpError::parse(&out.first().unwrap().0[14..]).unwrap();
    assert_eq!((error.word, error.code), ("unreachable", 4));
    let error = out.first().unwrap().0[14..].to_vec();
    assert_eq!(link.of_group(0).echo.errors_sent, 1);
    // An error is no reason for another one.
    let frame = peer.frame(link.groups[0].mac(0), IPV6, &error);
    out = FrameQueue::default();
    link.groups[0].receive(now, (&frame, false), &mut out);
    assert!(out.is_empty());
}

#[test]
fn hosts_ping_through_the_router_that_has_advertised_itself() {
    let ping = PingSettings { target: None, rate: 100, count: 3, timeout: seconds(1.0) };
    let group = GroupSettings { ping: Some(ping), ..slaac(5) };
    let mut link = Link::of([group, router(&["2001:db8:1::"])]);
    link.run(None);
    let counted = link.of_group(0);
    assert_eq!((counted.echo.sent, counted.echo.received), (15, 15));
    assert_eq!(of(&link, 0).nd.requests, 0, "the advertisement has its MAC address");
}

#[test]
fn a_silent_target_is_unresolved_after_three_solicitations() {
    let ping = PingSettings {
        target: Some("2001:db8::9".parse().unwrap()),
        rate: 100,
        count: 2,
        timeout: seconds(1.0),
    };
    let mut link = Link::of([GroupSettings { ping: Some(ping), ..fixed(2, 1, "2001:db8::1:0") }]);
    link.run(None);
    let counted = link.of_group(0);
    assert_eq!((counted.echo.sent, counted.echo.unresolved), (0, 2));
    assert_eq!((of(&link, 0).nd.requests, of(&link, 0).nd.unresolved), (3, 1));
}

#[test]
fn a_gateway_that_falls_silent_is_examined_and_given_up() {
    let ping = PingSettings {
        target: Some("2001:db8::1:0".parse().unwrap()),
        rate: 1,
        count: 100,
        timeout: seconds(1.0),
    };
    let asks = GroupSettings { ping: Some(ping), ..fixed(1, 1, "2001:db8::2:0") };
    let mut link = Link::of([asks, fixed(1, 2, "2001:db8::1:0")]);
    link.run(Some(BEGIN + seconds(5.0)));
    assert!(link.of_group(0).echo.received >= 2);
    link.groups.pop();
    // Reachable for at most 45 s, then 5 s of delay, and three probes.
    link.run(Some(BEGIN + seconds(70.0)));
    let nd = of(&link, 0).nd;
    assert_eq!(nd.unreachable, 1, "{nd:?}");
}

fn clients(count: u32, dhcp: Dhcp6Settings) -> GroupSettings {
    let group = ipv6(count, 1, Ipv6Addressing::Dhcp);
    let ipv6 = Ipv6Settings { dhcp: Some(dhcp), ..group.ipv6.unwrap() };
    GroupSettings { ipv6: Some(ipv6), ..group }
}

fn first_offer() -> Dhcp6Settings {
    Dhcp6Settings { collect: false, ..Dhcp6Settings::default() }
}

/// A server with this many addresses and prefixes, and leases of 1000 s.
fn server(count: u32) -> GroupSettings {
    let server = Server6Settings {
        identifier: crate::duid_of(MacAddr([4; 6])),
        first: "2001:db8::1:0".parse().unwrap(),
        count,
        prefixes: Some(("2001:db8:100::".parse().unwrap(), 56, count)),
        preferred: 800,
        valid: 1000,
        ..Server6Settings::default()
    };
    let group = fixed(1, 2, "2001:db8::1");
    let ipv6 = Ipv6Settings { server: Some(server), ..group.ipv6.unwrap() };
    GroupSettings { ipv6: Some(ipv6), ..group }
}

#[test]
fn each_client_gets_an_address_and_the_server_counts_the_same() {
    let mut link = Link::of([clients(300, first_offer()), server(300)]);
    link.run(None);
    let (counted, server) = (of(&link, 0), of(&link, 1).server.unwrap());
    let dhcp = counted.dhcp.unwrap();
    assert_eq!(in_state(&link, Ipv6State::Bound), 300);
    assert_eq!(dhcp.sent, BTreeMap::from([("solicit", 300), ("request", 300)]));
    assert_eq!(dhcp.received, BTreeMap::from([("advertise", 300), ("reply", 300)]));
    assert_eq!((dhcp.advertise.count(), dhcp.lease.count(), dhcp.bound), (300, 300, 300));
    assert_eq!((server.0.solicits, server.0.replies, server.1), (300, 300, 300));
    let mut all = addresses(&link);
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 300);
    assert_eq!(counted.nd.probes, 600, "each address is examined");
}

#[test]
fn clients_get_prefixes_with_rapid_commit_in_two_messages() {
    let dhcp =
        Dhcp6Settings { address: false, prefix: Some(56), rapid_commit: true, ..first_offer() };
    let mut link = Link::of([clients(5, dhcp), server(5)]);
    link.run(None);
    let counted = of(&link, 0).dhcp.unwrap();
    assert_eq!((counted.prefixes, counted.sent["solicit"], counted.sent.len()), (5, 5, 1));
    assert_eq!((counted.rapid_replies, counted.ignored_offers), (5, 0));
    assert_eq!(link.groups[0].dhcp6_lease_seconds(4), Some(1000));
    let mut all: Vec<_> = (0..5).filter_map(|i| link.groups[0].delegated_prefix(i)).collect();
    all.sort();
    all.dedup();
    assert!(all.len() == 5 && all.iter().all(|one| one.1 == 56), "{all:?}");
    assert_eq!(in_state(&link, Ipv6State::Bound), 5);
}

#[test]
fn hosts_with_addresses_of_routers_ask_for_other_configuration() {
    let dhcp = Dhcp6Settings { address: false, ..Dhcp6Settings::default() };
    let group = slaac(5);
    let ipv6 = Ipv6Settings { dhcp: Some(dhcp), ..group.ipv6.clone().unwrap() };
    let group = GroupSettings { ipv6: Some(ipv6), ..group };
    let late = GroupSettings { mac: MacAddr([2, 0, 0, 3, 0, 1]), ..server(1) };
    let mut link = Link::of([group, router(&["2001:db8:1::"]), late]);
    link.run(None);
    assert_eq!(of(&link, 0).dhcp.unwrap().informed, 5);
    assert_eq!(in_state(&link, Ipv6State::Bound), 5);
}

#[test]
fn leases_are_renewed_at_half_their_time_and_released_at_the_end() {
    let group = GroupSettings { release: true, setup: Some(10), ..clients(10, first_offer()) };
    let mut link = Link::of([group, server(10)]);
    link.run(Some(BEGIN + seconds(1300.0)));
    let dhcp = of(&link, 0).dhcp.unwrap();
    assert_eq!((dhcp.renewed, dhcp.expired), (30, 0), "each 400 s");
    link.stop();
    assert_eq!(of(&link, 0).dhcp.unwrap().sent["release"], 10);
    assert_eq!(of(&link, 1).server.unwrap().1, 0);
    assert_eq!((in_state(&link, Ipv6State::Released), addresses(&link).len()), (10, 0));
}

#[test]
fn a_release_that_is_lost_is_repeated() {
    let group = GroupSettings { release: true, ..clients(3, first_offer()) };
    let mut link = Link::of([group, server(3)]);
    link.run(None);
    link.loss = 100;
    link.stop();
    assert_eq!(of(&link, 0).dhcp.unwrap().sent["release"], 12, "four times each");
    assert_eq!(in_state(&link, Ipv6State::Released), 3);
}

/// Delivers a reply to the last Solicit of a host, with a rapid commit: this address is its lease.
fn give(link: &mut Link, host: u32, address: &str) {
    let (mac, own) = (link.groups[0].mac(host), link.groups[0].ipv6_at(host, None).unwrap());
    let read = |frame: &Vec<u8>| {
        let packet = frame.get(14..).filter(|_| frame[6..12] == mac.0)?;
        Message6::parse(Datagram6::parse(packet, false)?.payload).ok()
    };
    let solicit = link.sent_frames().iter().rev().find_map(read).expect("the host has asked");
    assert_eq!(solicit.kind, Kind6::Solicit);
    let address = address.parse().unwrap();
    let lease = Lease6 { address, length: 128, preferred: 800, valid: 1000 };
    let association = Association { id: 1, leases: vec![lease], ..Association::default() };
    let reply = Message6 {
        client: solicit.client,
        server: Some(crate::duid_of(MacAddr([4; 6]))),
        rapid_commit: true,
        addresses: Some(association),
        ..Message6::new(Kind6::Reply, solicit.xid)
    };
    let mut frame = Vec::new();
    begin_frame(&mut frame, (mac, MacAddr([4; 6])), &[], IPV6);
    reply.write("fe80::4".parse().unwrap(), own, &mut frame);
    let now = link.now;
    link.groups[0].receive(now, (&frame, false), &mut FrameQueue::default());
}

#[test]
fn leases_that_come_after_the_release_of_their_host_are_given_back() {
    let dhcp = Dhcp6Settings { rapid_commit: true, ..first_offer() };
    let mut link = Link::of([GroupSettings { release: true, ..clients(1, dhcp) }]);
    link.run(Some(BEGIN + seconds(5.0)));
    link.stop();
    assert_eq!(of(&link, 0).dhcp.unwrap().sent.get("release"), None);
    give(&mut link, 0, "2001:db8::1:0");
    assert_eq!(of(&link, 0).dhcp.unwrap().sent.get("release"), Some(&1));
}

#[test]
fn leases_that_are_still_examined_are_given_back_at_the_end() {
    let group = GroupSettings { release: true, ..clients(1, first_offer()) };
    let mut link = Link::of([group, server(1)]);
    // The examination takes a second.
    for _ in 0..20 {
        let until = link.now + seconds(0.5);
        if in_state(&link, Ipv6State::Checking) == 0 {
            link.run(Some(until));
        }
    }
    assert_eq!(in_state(&link, Ipv6State::Checking), 1);
    link.stop();
    assert_eq!(of(&link, 0).dhcp.unwrap().sent["release"], 1);
    assert_eq!(of(&link, 1).server.unwrap().1, 0);
}

#[test]
fn an_address_that_a_server_gives_to_two_hosts_is_declined_by_the_second() {
    let dhcp = Dhcp6Settings { rapid_commit: true, ..first_offer() };
    let given = "2001:db8::1:0".parse::<Ipv6Addr>().unwrap();
    for (probes, declined, second) in [(1, Some(&1), None), (0, None, Some(given))] {
        let group = clients(2, dhcp);
        let timers = NdTimers { probes, ..NdTimers::default() };
        let ipv6 = Ipv6Settings { timers, ..group.ipv6.unwrap() };
        let mut link = Link::of([GroupSettings { ipv6: Some(ipv6), ..group }]);
        link.run(Some(BEGIN + seconds(2.5)));
        give(&mut link, 0, "2001:db8::1:0");
        assert_eq!(of(&link, 0).nd.duplicates, 0);
        give(&mut link, 1, "2001:db8::1:0");
        let counted = of(&link, 0);
        assert_eq!(counted.nd.duplicates, 1);
        assert_eq!(counted.dhcp.unwrap().sent.get("decline"), declined);
        link.run(Some(link.now + seconds(1.5)));
        let has = |host| link.groups[0].ipv6_address(host);
        assert_eq!([has(0), has(1)], [Some(given), second]);
        assert_eq!(link.groups[0].ipv6_owner(given).unwrap().0, u32::from(probes == 0));
    }
}

#[test]
fn bindings_of_clients_that_are_gone_end_without_a_message() {
    let mut link = Link::of([server(4), clients(4, first_offer())]);
    link.run(None);
    link.groups.pop();
    link.groups[0].advance(BEGIN + seconds(1010.0), &mut FrameQueue::default());
    assert_eq!(of(&link, 0).server.unwrap().1, 0);
}

#[test]
fn after_a_failure_of_the_link_leases_are_confirmed_or_kept() {
    let dhcp = Dhcp6Settings { flap: Some(seconds(60.0)), ..first_offer() };
    let mut link = Link::of([clients(20, dhcp), server(20)]);
    link.run(Some(BEGIN + seconds(130.0)));
    let (counted, served) = (of(&link, 0).dhcp.unwrap(), of(&link, 1).server.unwrap().0);
    assert_eq!((counted.sent["confirm"], served.confirms), (40, 40));
    assert_eq!((counted.confirm.count(), counted.unconfirmed, counted.refused), (40, 0, 0));
    link.groups.pop();
    link.run(Some(BEGIN + seconds(200.0)));
    let counted = of(&link, 0).dhcp.unwrap();
    assert_eq!((counted.unconfirmed, counted.bound), (20, 20));
    assert_eq!(in_state(&link, Ipv6State::Bound), 20, "they keep their addresses");
}

#[test]
fn addresses_of_another_link_are_given_up_after_a_failure_of_the_link() {
    let dhcp = Dhcp6Settings { flap: Some(seconds(60.0)), ..first_offer() };
    let mut link = Link::of([clients(5, dhcp), server(20)]);
    link.run(Some(BEGIN + seconds(30.0)));
    let begin = link.now;
    // The hosts are now at the link of another server.
    let mut other = server(20);
    let server = other.ipv6.as_mut().unwrap().server.as_mut().unwrap();
    server.first = "2001:db8:2::1:0".parse().unwrap();
    server.prefixes = None;
    link.groups[1] = HostGroup::new(other, begin);
    link.run(Some(BEGIN + seconds(90.0)));
    let counted = of(&link, 0).dhcp.unwrap();
    assert_eq!((counted.refused, counted.bound), (5, 10));
    let net: Ipv6Addr = "2001:db8:2::".parse().unwrap();
    let moved = |address: &Ipv6Addr| masked(*address, 64) == net;
    assert_eq!(addresses(&link).iter().filter(|address| moved(address)).count(), 5);
}

#[test]
fn a_lease_ends_if_the_server_is_gone() {
    let mut link = Link::of([clients(4, first_offer()), server(4)]);
    link.run(None);
    link.groups.pop();
    link.run(Some(BEGIN + seconds(1010.0)));
    assert_eq!((of(&link, 0).dhcp.unwrap().expired, addresses(&link).len()), (4, 0));
    link.run(None);
    assert_eq!(of(&link, 0).failed, BTreeMap::from([("expired", 4)]));
}

#[test]
fn an_address_of_another_host_is_declined_and_the_next_one_taken() {
    // The first two addresses of the server belong to hosts that it does not know.
    let clients = later(clients(3, first_offer()));
    let mut link = Link::of([clients, server(10), fixed(2, 3, "2001:db8::1:0")]);
    link.run(None);
    let counted = of(&link, 0);
    assert_eq!(in_state(&link, Ipv6State::Bound), 3);
    assert_eq!((counted.nd.duplicates, counted.dhcp.unwrap().sent["decline"]), (2, 2));
    assert_eq!(of(&link, 1).server.unwrap().0.declines, 2);
}

#[test]
fn records_are_small() {
    assert!(size_of::<Ipv6Record>() <= 256, "{} octets", size_of::<Ipv6Record>());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_host_is_bound_or_has_failed_whatever_happens_to_frames(
        seed: u64, loss in 0u64..100, repeats in 0u64..50, hosts in 1u32..30, identifiers: bool,
    ) {
        let group = GroupSettings { seed, ..slaac(hosts) };
        let group = if identifiers { stable(group) } else { group };
        let mut link = Link::of([group, router(&["2001:db8:1::"])]);
        (link.loss, link.repeats, link.random) = (loss, repeats, SplitMix64(seed));
        link.run(None);
        let bound = in_state(&link, Ipv6State::Bound);
        let failed = in_state(&link, Ipv6State::Failed);
        prop_assert_eq!(bound + failed, u64::from(hosts));
        prop_assert_eq!(of(&link, 0).failed.values().sum::<u64>(), failed);
        let mut all = addresses(&link);
        all.sort();
        all.dedup();
        prop_assert_eq!(all.len() as u64, bound);
    }

    #[test]
    fn no_octets_make_a_group_panic(
        octets in proptest::collection::vec(any::<u8>(), 0..200), kind in 133u8..138, valid: bool,
    ) {
        let mut link = Link::of([slaac(3), router(&["2001:db8:1::"])]);
        link.run(None);
        let mut frame = vec![0x33, 0x33, 0, 0, 0, 1, 2, 0, 0, 9, 0, 9, 0x86, 0xdd];
        frame.extend([0x60, 0, 0, 0, 0, octets.len() as u8 + 4, 58, 255, 0xfe, 0x80]);
        frame.extend([0; 13]);
        frame.extend([9, 0xff, 2]);
        frame.extend([0; 13]);
        frame.extend([1, kind, 0, 0, 0]);
        frame.extend(&octets);
        if valid {
            let (header, body) = frame[14..].split_at(40);
            let sum = crate::packets::pseudo(header, body.len()) + squall_wire::checksum::sum(body);
            let check = !squall_wire::checksum::fold(sum);
            frame[56..58].copy_from_slice(&check.to_be_bytes());
        }
        let now = link.now;
        let mut out = FrameQueue::default();
        for group in &mut link.groups {
            group.receive(now, (&frame, false), &mut out);
            prop_assert!(group.advance(now, &mut out) || out.len() < 100);
        }
    }

    #[test]
    fn every_client_is_bound_or_has_failed_whatever_happens_to_frames(
        seed: u64, loss in 0u64..100, repeats in 0u64..50, hosts in 1u32..20, pool in 1u32..30,
        rapid_commit: bool, release: bool,
    ) {
        let dhcp = Dhcp6Settings { rapid_commit, ..Dhcp6Settings::default() };
        let group = GroupSettings { seed, release, ..clients(hosts, dhcp) };
        let mut link = Link::of([group, server(pool)]);
        (link.loss, link.repeats, link.random) = (loss, repeats, SplitMix64(seed));
        link.run(None);
        let bound = in_state(&link, Ipv6State::Bound) + in_state(&link, Ipv6State::Deprecated);
        let failed = in_state(&link, Ipv6State::Failed);
        prop_assert_eq!(bound + failed, u64::from(hosts));
        prop_assert_eq!(of(&link, 0).failed.values().sum::<u64>(), failed);
        let mut all = addresses(&link);
        all.sort();
        all.dedup();
        prop_assert_eq!(all.len() as u64, bound);
        if loss == 0 && pool >= hosts {
            prop_assert_eq!(bound, u64::from(hosts));
        }
        link.stop();
        let released = in_state(&link, Ipv6State::Released);
        prop_assert_eq!(released, if release { bound } else { 0 });
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_querier_of_mld_learns_and_forgets_all_groups_whatever_happened_to_frames(
        seed: u64, loss in 0u64..100, repeats in 0u64..50, hosts in 1u32..6, groups in 1u32..12,
        older: bool,
    ) {
        let version = if older { GroupVersion::Two } else { GroupVersion::Three };
        let multicast = MulticastSettings {
            ranges: vec![("ff3e::1".parse().unwrap(), groups)],
            each: None,
            filters: [SourceFilter::any(), SourceFilter::any()],
            timers: [MembershipTimers::of(version); 2],
            rate: None,
            hold: None,
        };
        let members = ServiceSettings { multicast: Some(Arc::new(multicast)), ..Default::default() };
        let queriers = Some([QuerierSettings::default(); 2]);
        let querier = ServiceSettings { queriers, ..ServiceSettings::default() };
        let with = |services, group| GroupSettings { services, release: true, ..group };
        let mut link = Link::of([
            with(querier, fixed(1, 2, "2001:db8::1")),
            with(members, fixed(hosts, 1, "2001:db8::1:0")),
        ]);
        (link.loss, link.repeats, link.random) = (loss, repeats, SplitMix64(seed));
        let known = |link: &Link| link.of_group(0).querier.unwrap().groups;
        let seen = |link: &Link| link.of_group(1).multicast.unwrap();
        let all = u64::from(hosts * groups);
        link.run(Some(BEGIN + seconds(300.0)));
        prop_assert_eq!((seen(&link).joined, seen(&link).left), (all, 0));
        (link.loss, link.repeats) = (0, 0);
        link.run(Some(BEGIN + seconds(600.0)));
        prop_assert_eq!(known(&link), u64::from(groups));
        link.loss = loss;
        let now = link.now;
        link.groups[1].stop(now);
        link.run(Some(now + seconds(300.0)));
        prop_assert_eq!((seen(&link).left, known(&link)), (all, 0));
    }
}

#[test]
fn hosts_are_shared_with_the_router_that_advertised_itself_until_their_prefix_ends() {
    let mut link = Link::of([slaac(20), router(&["2001:db8:1::"])]);
    let settings = link.groups[0].settings().clone();
    let table = HostTable::new(settings.count, (settings.mac, settings.mac_step), &[]).over_ipv6();
    let table = Arc::new(table);
    link.groups[0] = HostGroup::new(settings, BEGIN).sharing(table.clone());
    link.run(Some(BEGIN + seconds(10.0)));
    assert_eq!((table.bound(), table.losses()), (20, 0));
    let gateway = link.groups[1].mac(0);
    for number in 0..20 {
        let host = table.get(number).unwrap();
        let address = link.groups[0].ipv6_address(number).map(IpAddr::V6);
        assert_eq!((Some(host.address), host.next_hop), (address, gateway));
    }
    // Without the router, prefixes end.
    link.groups.pop();
    link.run(Some(BEGIN + seconds(300.0)));
    assert_eq!((table.bound(), table.losses()), (0, 20));
}

#[test]
fn memberships_are_reported_from_the_address_that_the_host_has() {
    let multicast = MulticastSettings {
        ranges: vec![("ff3e::1".parse().unwrap(), 1)],
        each: None,
        filters: [SourceFilter::any(), SourceFilter::any()],
        timers: [MembershipTimers::of(GroupVersion::Three); 2],
        rate: None,
        hold: None,
    };
    let multicast = Some(Arc::new(multicast));
    let services = ServiceSettings { multicast, ..ServiceSettings::default() };
    let group = GroupSettings { services, ..stable(fixed(1, 1, "2001:db8::1")) };
    let mut link = Link::of([group]);
    link.run(Some(BEGIN + seconds(5.0)));
    let (frames, own) = (link.sent_frames(), link.groups[0].ipv6_at(0, None).unwrap());
    let source = |frame: &Vec<u8>| Some(mld::parse(frame.get(14..)?).ok()?.0);
    let sources: Vec<Ipv6Addr> = frames.iter().filter_map(source).collect();
    assert!(!sources.is_empty() && sources.iter().all(|source| *source == own), "{sources:?}");
    assert_ne!(own, link_local(link.groups[0].mac(0)));
}

#[test]
fn solicitations_without_an_answer_are_counted() {
    let mut group = HostGroup::new(router(&["2001:db8:1::"]), BEGIN);
    let mac = MacAddr([4; 6]);
    let mut frame = Vec::new();
    begin_frame(&mut frame, (group_mac(ALL_ROUTERS.into()), mac), &[], IPV6);
    frame.extend(router_solicitation("fe80::4".parse().unwrap(), mac));
    group.receive(BEGIN, (&frame, false), &mut FrameQueue::default());
    let ignored = group.statistics(false).ipv6.unwrap().ignored;
    assert_eq!(ignored, BTreeMap::from([("unanswered_solicitation", 1)]), "it has not started");
}

#[test]
fn shared_hosts_follow_a_router_that_announces_another_mac_address() {
    let mut link = Link::of([slaac(5), router(&["2001:db8:1::"])]);
    let settings = link.groups[0].settings().clone();
    let table = HostTable::new(5, (settings.mac, settings.mac_step), &[]).over_ipv6();
    let table = Arc::new(table);
    link.groups[0] = HostGroup::new(settings, BEGIN).sharing(table.clone());
    link.run(Some(BEGIN + seconds(10.0)));
    assert_eq!(table.bound(), 5);
    let (now, router) = (link.now, link.groups[1].ipv6_at(0, None).unwrap());
    let announcement = |mac| NeighborMessage {
        solicitation: false,
        source: router,
        destination: ALL_NODES,
        target: router,
        mac: Some(mac),
        flags: NeighborMessage::ROUTER | NeighborMessage::OVERRIDE,
    };
    let solicitation = |mac| NeighborMessage::solicit(router, mac, "fe80::9".parse().unwrap());
    let (one, other) = (MacAddr([4; 6]), MacAddr([6; 6]));
    for (mac, message) in [(one, announcement(one)), (other, solicitation(other))] {
        let mut frame = Vec::new();
        begin_frame(&mut frame, (group_mac(ALL_NODES.into()), mac), &[], IPV6);
        frame.extend(message.octets());
        link.groups[0].receive(now, (&frame, false), &mut FrameQueue::default());
        assert!((0..5).all(|host| table.get(host).is_some_and(|host| host.next_hop == mac)));
    }
    assert_eq!(table.losses(), 0);
}

#[test]
fn shared_hosts_leave_a_router_whose_lifetime_has_ended() {
    let mut link = Link::of([slaac(5)]);
    let settings = link.groups[0].settings().clone();
    let table = HostTable::new(5, (settings.mac, settings.mac_step), &[]).over_ipv6();
    let table = Arc::new(table);
    link.groups[0] = HostGroup::new(settings, BEGIN).sharing(table.clone());
    link.run(Some(BEGIN + seconds(3.0)));
    let advertise = |link: &mut Link, number: u8, lifetime| {
        let mac = MacAddr([4, 0, 0, 0, 0, number]);
        let prefixes = router(&["2001:db8:1::"]).ipv6.unwrap().router.unwrap().prefixes;
        let prefixes = prefixes.into_iter().map(|of| PrefixInformation { valid: 9000, ..of });
        let prefixes = prefixes.collect();
        let router = RouterSettings { lifetime, prefixes, ..RouterSettings::default() };
        let mut frame = Vec::new();
        begin_frame(&mut frame, (group_mac(ALL_NODES.into()), mac), &[], IPV6);
        frame.extend(router.advertisement(link_local(mac), mac, ALL_NODES).octets());
        let now = link.now;
        link.groups[0].receive(now, (&frame, false), &mut FrameQueue::default());
    };
    let hops = |link: &mut Link, after: f64| {
        link.run(Some(link.now + seconds(after)));
        let mut hops: Vec<u8> =
            (0..5).filter_map(|host| Some(table.get(host)?.next_hop.0[5])).collect();
        hops.dedup();
        (hops, table.bound())
    };
    advertise(&mut link, 1, 100);
    advertise(&mut link, 2, 500);
    assert_eq!(hops(&mut link, 10.0), (vec![1], 5));
    assert_eq!(hops(&mut link, 95.0), (vec![2], 5), "the other router");
    assert_eq!(table.losses(), 0, "addresses are not lost with a router");
    advertise(&mut link, 2, 0);
    assert_eq!(hops(&mut link, 1.0), (vec![], 0), "none");
    assert_eq!(link.groups[0].ipv6_address(0).map(|_| ()), Some(()), "the host keeps its own");
    advertise(&mut link, 1, 100);
    assert_eq!(hops(&mut link, 1.0), (vec![1], 5));
}

#[test]
fn hosts_with_a_silent_router_are_shared_when_it_answers() {
    let own = fixed(3, 1, "2001:db8::5");
    let ipv6 = Ipv6Settings { gateway: "2001:db8::1".parse().ok(), ..own.ipv6.clone().unwrap() };
    let own = GroupSettings { ipv6: Some(ipv6), ..own };
    let table = Arc::new(HostTable::new(3, (own.mac, own.mac_step), &[]).over_ipv6());
    let mut link = Link::of([own.clone()]);
    link.groups[0] = HostGroup::new(own, BEGIN).sharing(table.clone());
    link.run(Some(BEGIN + seconds(20.0)));
    assert_eq!(table.bound(), 0);
    link.groups.push(HostGroup::new(fixed(1, 2, "2001:db8::1"), link.now));
    link.run(Some(link.now + seconds(10.0)));
    assert_eq!(table.bound(), 3);
}

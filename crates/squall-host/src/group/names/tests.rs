//! Hosts that ask for names, answer for names, and have names, in virtual time.

use std::sync::Arc;

use proptest::prelude::*;
use squall_units::SplitMix64;

use super::{
    super::{
        Addressing, GroupSettings, ServiceSettings,
        tests::{BEGIN, Link, fixed, seconds, settings},
    },
    *,
};
use crate::{
    ClientSettings, DhcpTimers, DnsZone, InterfaceIdentifier, Ipv6Addressing, Ipv6Settings,
    MdnsSettings, NameTemplate, NdTimers, OptionTemplate, ServerSettings, ValueTemplate,
    dns::{
        A, AAAA, ANY, DnsRecord, INTERNET, TRUNCATED, write_header, write_question, write_record,
    },
};

fn asks(group: GroupSettings, names: &[&str], more: ResolverSettings) -> GroupSettings {
    let names = names.iter().map(|name| NameTemplate::new(name).unwrap()).collect();
    let resolver = Some(Arc::new(ResolverSettings { names, ..more }));
    GroupSettings { services: ServiceSettings { resolver, ..ServiceSettings::default() }, ..group }
}

fn of_server(address: [u8; 4]) -> ResolverSettings {
    ResolverSettings { server: Some(address.into()), rate: 1000, ..ResolverSettings::default() }
}

/// A DNS server, whose address is 10.0.0.1.
fn server() -> GroupSettings {
    let mut zone = DnsZone::new(60);
    assert!(zone.add("*.example", [10, 0, 0, 9].into()));
    let services = ServiceSettings { zone: Some(Arc::new(zone)), ..ServiceSettings::default() };
    GroupSettings { services, ..fixed(1, 2, [10, 0, 0, 1]) }
}

fn of(link: &Link, group: usize) -> DnsStatistics {
    link.of_group(group).dns.expect("the group asks")
}

#[test]
fn hosts_ask_the_server_that_dhcp_gave_in_turn_and_at_their_rate() {
    let rules = ResolverSettings { rate: 100, count: 5, ..ResolverSettings::default() };
    let clients = settings(10, 1, Addressing::Dhcp(DhcpTimers::default()));
    let clients = asks(clients, &["www{}.example", "q{q}.example"], rules);
    let dhcp = ServerSettings {
        address: [10, 0, 0, 1].into(),
        prefix: 16,
        first: [10, 0, 1, 0].into(),
        count: 100,
        ..ServerSettings::default()
    };
    let option = OptionTemplate { code: 6, value: ValueTemplate::hex("0a0000010a000002").unwrap() };
    let options = ClientSettings { options: vec![option], ..ClientSettings::default() };
    let server = GroupSettings { server: Some(dhcp), dhcp: options, ..server() };
    let mut link = Link::of([clients, server]);
    link.run(None);
    let (asked, served) = (of(&link, 0), link.of_group(1).dns_server.unwrap());
    assert_eq!((asked.asked, asked.sent, asked.answered), (50, 50, 50), "{asked:?}");
    assert_eq!((served.queries, served.answered), (50, 50));
    assert_eq!((asked.time.count(), asked.time.max()), (50, 2_000_000));
    let elapsed = (link.now - BEGIN).as_secs_f64();
    assert!((0.49..0.55).contains(&elapsed), "50 at 100/s, not {elapsed} s");
}

#[test]
fn outcomes_are_counted_by_kind() {
    let rules = ResolverSettings { kinds: vec![A, AAAA], count: 6, ..of_server([10, 0, 0, 1]) };
    let names = ["www.example", "no.such.name", "other.example"];
    let mut link = Link::of([asks(fixed(2, 1, [10, 0, 7, 1]), &names, rules), server()]);
    link.run(None);
    let asked = of(&link, 0);
    assert_eq!((asked.answered, asked.empty, asked.nxdomain), (4, 4, 4), "{asked:?}");
    assert_eq!(link.of_group(0).arp.requests, 1, "one server, one request");
}

#[test]
fn questions_without_an_answer_are_repeated_once_and_given_up_after_ten_seconds() {
    let mut silent = server();
    silent.services.zone = None;
    let rules = ResolverSettings { count: 3, ..of_server([10, 0, 0, 1]) };
    let mut link = Link::of([asks(fixed(5, 1, [10, 0, 7, 1]), &["a.example"], rules), silent]);
    link.run(None);
    let asked = of(&link, 0);
    assert_eq!((asked.asked, asked.sent, asked.timeouts), (15, 30, 15), "{asked:?}");
    assert_eq!(asked.retransmissions, 15);
    let elapsed = (link.now - BEGIN).as_secs_f64();
    assert!((10.0..10.1).contains(&elapsed), "{elapsed} s");
}

#[test]
fn a_server_that_is_not_there_or_not_known_is_a_reason() {
    let there = |rules| {
        let mut link = Link::of([asks(fixed(4, 1, [10, 0, 7, 1]), &["a.example"], rules)]);
        link.run(None);
        let asked = of(&link, 0);
        (asked.unresolved, asked.no_server, asked.sent)
    };
    assert_eq!(there(of_server([10, 0, 0, 1])), (4, 0, 0), "no MAC address");
    assert_eq!(there(of_server([192, 0, 2, 1])), (0, 4, 0), "no gateway");
    assert_eq!(there(ResolverSettings::default()), (0, 4, 0), "no DHCP");
}

#[test]
fn answers_of_another_address_are_ignored() {
    let rules = of_server([10, 0, 0, 1]);
    let mut link = Link::of([asks(fixed(1, 1, [10, 0, 7, 1]), &["a.example"], rules), server()]);
    link.run(Some(BEGIN + Nanos(1_500_000)));
    let mut packet = Vec::new();
    let addresses = ([10, 0, 0, 2].into(), [10, 0, 7, 1].into());
    write_datagram(addresses, (DNS_PORT, 50_000), &mut packet, |out| out.extend([0; 12]));
    let peer = crate::Host { mac: MacAddr([2, 0, 0, 9, 9, 9]), ..Default::default() };
    let frame = peer.frame(link.groups[0].mac(0), IPV4, &packet);
    let now = link.now;
    assert!(link.groups[0].receive(now, (&frame, false), &mut FrameQueue::default()));
    assert_eq!(of(&link, 0).ignored, BTreeMap::from([("wrong_server", 1)]));
}

fn named(count: u32, third: u8, first: [u8; 4]) -> GroupSettings {
    let mdns = Some(MdnsSettings { name: "host-{}".into(), ttl: 120 });
    GroupSettings {
        services: ServiceSettings { mdns, ..ServiceSettings::default() },
        ..fixed(count, third, first)
    }
}

fn names(link: &Link, group: usize) -> Vec<Vec<u8>> {
    let of = &link.groups[group];
    (0..of.settings.count).map(|host| of.own_name(host).unwrap().octets().to_vec()).collect()
}

#[test]
fn hosts_probe_and_announce_their_names_and_give_them_up_at_the_end() {
    let mut link = Link::of([named(3, 1, [10, 0, 0, 1])]);
    link.run(Some(BEGIN + seconds(5.0)));
    let mdns = link.of_group(0).mdns.unwrap();
    assert_eq!((mdns.owned, mdns.probes, mdns.announcements), (3, 9, 6));
    let frames = link.sent_frames();
    assert!(frames.iter().all(|frame| frame[..6] == [1, 0, 0x5e, 0, 0, 0xfb]), "224.0.0.251");
    assert!(frames.iter().all(|frame| frame[22] == 255), "a TTL of 255 (RFC 6762 section 11)");
    link.stop();
    let mdns = link.of_group(0).mdns.unwrap();
    assert_eq!((mdns.owned, mdns.goodbyes), (0, 3));
}

#[test]
fn of_two_hosts_with_one_name_one_takes_another() {
    let mut link = Link::of([named(4, 1, [10, 0, 0, 1]), named(4, 2, [10, 0, 9, 1])]);
    link.run(Some(BEGIN + seconds(30.0)));
    let [one, other] = [0, 1].map(|group| link.of_group(group).mdns.unwrap());
    assert_eq!((one.owned, other.owned), (4, 4));
    assert!(one.conflicts + other.conflicts >= 4, "{one:?} {other:?}");
    let mut all = [names(&link, 0), names(&link, 1)].concat();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 8, "{all:?}");
}

#[test]
fn an_announced_name_is_defended_against_a_late_host() {
    let late = GroupSettings { start: seconds(5.0), ..named(2, 2, [10, 0, 9, 1]) };
    let mut link = Link::of([named(2, 1, [10, 0, 0, 1]), late]);
    link.run(Some(BEGIN + seconds(20.0)));
    let [one, other] = [0, 1].map(|group| link.of_group(group).mdns.unwrap());
    assert_eq!((one.owned, one.conflicts), (2, 0), "{one:?}");
    assert_eq!((other.owned, other.conflicts), (2, 2), "{other:?}");
    assert_eq!(names(&link, 0)[0], b"\x06host-1\x05local\0");
    assert_eq!(names(&link, 1)[0], b"\x08host-1-2\x05local\0");
}

#[test]
fn a_host_without_ipv4_does_not_answer_a_question_over_it() {
    let ipv6 = Ipv6Settings {
        addressing: Ipv6Addressing::Static { first: "2001:db8::5".parse().unwrap(), prefix: 64 },
        identifier: InterfaceIdentifier::Eui64,
        gateway: None,
        timers: NdTimers::default(),
        dhcp: None,
        router: None,
        server: None,
    };
    let hosts = GroupSettings {
        addressing: Addressing::None,
        ipv6: Some(ipv6),
        ..named(1, 1, [10, 0, 0, 1])
    };
    let mut link = Link::of([hosts]);
    link.run(Some(BEGIN + seconds(10.0)));
    assert_eq!(link.of_group(0).mdns.unwrap().owned, 1);
    let name = names(&link, 0).remove(0);
    let peer = crate::Host { mac: MacAddr([2, 0, 0, 9, 9, 9]), ..Default::default() };
    // From the port of multicast DNS, with the bit that asks for unicast; and by a resolver.
    let mut ask = |from: IpAddr, port, class| {
        let to = mdns::group_of(from);
        let mut packet = Vec::new();
        write_datagram((from, to), (port, MDNS_PORT), &mut packet, |out| {
            write_header(9, 0, [1, 0, 0, 0], out);
            write_question(&name, ANY, class, out);
        });
        let kind = if from.is_ipv4() { IPV4 } else { IPV6 };
        let frame = peer.frame(group_mac(to), kind, &packet);
        let (now, mut out) = (link.now, FrameQueue::default());
        link.groups[0].receive(now, (&frame, false), &mut out);
        out.len()
    };
    let questions = [(MDNS_PORT, INTERNET | 0x8000), (40_000, INTERNET)];
    for (port, class) in questions {
        assert_eq!(ask([10, 0, 9, 9].into(), port, class), 0, "{port}");
    }
    for (port, class) in questions {
        assert_eq!(ask("fe80::9".parse().unwrap(), port, class), 1, "{port}");
    }
    let mdns = link.of_group(0).mdns.unwrap();
    assert_eq!((mdns.unicast, mdns.ignored), (2, BTreeMap::from([("no_address", 2)])));
}

#[test]
fn a_question_for_unicast_is_answered_by_multicast_a_quarter_of_the_validity_after_the_last_time() {
    let mut settings = [named(1, 1, [10, 0, 0, 1]), named(1, 1, [10, 0, 0, 1])];
    settings[1].services.mdns.as_mut().unwrap().ttl = 2;
    let [mut link, mut short] = settings.map(|of| Link::of([of]));
    let (mac, group) = (MacAddr([2, 0, 0, 9, 9, 9]), group_mac(mdns::MDNS_GROUP.into()));
    let ask = |link: &mut Link, at: f64, port, class| {
        link.run(Some(BEGIN + seconds(at)));
        let name = names(link, 0).remove(0);
        let addresses = ([10, 0, 9, 9].into(), mdns::MDNS_GROUP.into());
        let mut packet = Vec::new();
        write_datagram(addresses, (port, MDNS_PORT), &mut packet, |out| {
            write_header(9, 0, [1, 0, 0, 0], out);
            write_question(&name, A, class, out);
        });
        let frame = crate::Host { mac, ..Default::default() }.frame(group, IPV4, &packet);
        let (now, mut out) = (link.now, FrameQueue::default());
        link.groups[0].receive(now, (&frame, false), &mut out);
        assert_eq!(out.len(), 1);
        MacAddr(*out.first().unwrap().0.first_chunk().unwrap())
    };
    // The last announcement is at most 2 s old at 3 s, and the validity is 120 s.
    let unicast = INTERNET | 0x8000;
    assert_eq!(ask(&mut link, 20.0, MDNS_PORT, unicast), mac);
    assert_eq!(ask(&mut link, 40.0, 40_000, INTERNET), mac, "a resolver of unicast DNS");
    assert_eq!(ask(&mut link, 40.0, MDNS_PORT, unicast), group, "RFC 6762 section 5.4");
    assert_eq!(ask(&mut link, 41.0, MDNS_PORT, unicast), mac);
    let mdns = link.of_group(0).mdns.unwrap();
    assert_eq!((mdns.unicast, mdns.answered), (3, 1));
    // A quarter of 2 s is less than the second in which a record is multicast only once.
    let to = [20.0, 20.25, 20.75].map(|at| ask(&mut short, at, MDNS_PORT, unicast));
    assert_eq!(to, [group, mac, mac]);
    let mdns = short.of_group(0).mdns.unwrap();
    assert_eq!((mdns.unicast, mdns.answered), (2, 1));
}

#[test]
fn a_question_in_parts_is_answered_half_a_second_later_unless_its_asker_knows_the_answer() {
    for knows in [false, true] {
        let mut link = Link::of([named(1, 1, [10, 0, 0, 1])]);
        link.run(Some(BEGIN + seconds(10.0)));
        let name = names(&link, 0).remove(0);
        let send = |link: &mut Link, write: &dyn Fn(&mut Vec<u8>)| {
            let addresses = ([10, 0, 9, 9].into(), mdns::MDNS_GROUP.into());
            let mut packet = Vec::new();
            write_datagram(addresses, (MDNS_PORT, MDNS_PORT), &mut packet, |out| write(out));
            let mac = MacAddr([2, 0, 0, 9, 9, 9]);
            let group = group_mac(mdns::MDNS_GROUP.into());
            let frame = crate::Host { mac, ..Default::default() }.frame(group, IPV4, &packet);
            let (now, mut out) = (link.now, FrameQueue::default());
            link.groups[0].receive(now, (&frame, false), &mut out);
            assert_eq!(out.len(), 0, "nothing at once");
        };
        send(&mut link, &|out| {
            write_header(0, TRUNCATED, [1, 0, 0, 0], out);
            write_question(&name, A, INTERNET, out);
        });
        link.run(Some(BEGIN + seconds(10.3)));
        if knows {
            send(&mut link, &|out| {
                write_header(0, 0, [0, 1, 0, 0], out);
                let record = DnsRecord { kind: A, class: INTERNET, ttl: 120, data: &[10, 0, 0, 1] };
                write_record(&name, &record, out);
            });
        }
        let frames = link.sent_frames().len();
        link.run(Some(BEGIN + seconds(10.399)));
        assert_eq!(link.sent_frames().len(), frames, "RFC 6762 section 7.2");
        link.run(Some(BEGIN + seconds(10.6)));
        let answers = u64::from(!knows);
        assert_eq!(link.sent_frames().len() - frames, answers as usize);
        assert_eq!(link.of_group(0).mdns.unwrap().answered, answers);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn each_question_has_an_outcome_whatever_is_lost(seed: u64, loss in 0..90u64, repeats in 0..50u64) {
        let rules = ResolverSettings { count: 4, ..of_server([10, 0, 0, 1]) };
        let group = asks(fixed(20, 1, [10, 0, 7, 1]), &["w{q}.example", "no"], rules);
        let mut link = Link::of([group, server()]);
        (link.random, link.loss, link.repeats) = (SplitMix64(seed), loss, repeats);
        link.run(None);
        let asked = of(&link, 0);
        let outcomes = asked.answered + asked.nxdomain + asked.timeouts;
        prop_assert_eq!(asked.asked, outcomes, "{:?}", asked);
        prop_assert_eq!(asked.asked + asked.unresolved, 80);
    }

    #[test]
    fn every_host_has_a_name_whatever_happens_to_frames(
        seed: u64, loss in 0..100u64, repeats in 0..50u64, hosts in 1..10u32,
    ) {
        let group = |third: u8| GroupSettings {
            seed: seed ^ u64::from(third),
            ..named(hosts, third, [10, 0, third, 1])
        };
        let mut link = Link::of([group(1), group(2)]);
        (link.random, link.loss, link.repeats) = (SplitMix64(seed), loss, repeats);
        link.run(Some(BEGIN + seconds(60.0)));
        for number in 0..2 {
            let of = link.of_group(number).mdns.unwrap();
            prop_assert_eq!(of.owned, u64::from(hosts), "{:?}", of);
            let table = &link.groups[number].services.as_ref().unwrap().names.table;
            prop_assert_eq!(table.len(), hosts as usize, "former names are forgotten");
        }
        let mut all = [names(&link, 0), names(&link, 1)].concat();
        all.sort();
        all.dedup();
        // If probes and announcements are lost, two hosts may keep one name.
        prop_assert!(loss > 0 || all.len() == 2 * hosts as usize);
    }
}

use super::*;
use crate::{
    Calls, Daemon, DaemonCall, Flap, GroupPart, Neighbor, OrderError, RouterOrder, Steered,
    bird::tests::{group, settings},
};
use squall_units::Nanos;

/// Every protocol, with a group of each family, as plans make them for FRR.
fn all() -> RouterSettings {
    let mut edge = group("edge", [198, 51, 100, 0].into(), 32);
    edge.attributes.as_path = vec![65010, 65020];
    edge.attributes.origin = Some(Origin::Egp);
    edge.attributes.next_hop = Some([10, 0, 0, 3].into());
    edge.flap = Some(Flap { gap: Nanos::SECOND, down: Nanos::SECOND });
    let plain = GroupAttributes {
        next_hop: Some("2001:db8::3".parse().unwrap()),
        ..GroupAttributes::default()
    };
    let mut six = group("six", "2001:db8:1::".parse().unwrap(), 48);
    six.attributes = plain;
    let mut settings = RouterSettings {
        daemon: Daemon::Frr,
        ipv6: Some(("2001:db8::1".parse().unwrap(), 64)),
        router_id: [192, 168, 1, 1].into(),
        ospf3: Some([0, 0, 0, 1].into()),
        isis: Some(Isis {
            area: "49.0001".into(),
            levels: [true, true],
            metric: 15,
            point_to_point: true,
        }),
        ripng: true,
        groups: vec![edge, six],
        ..settings()
    };
    settings.groups.iter_mut().for_each(|group| group.single = true);
    if let Some(bgp) = &mut settings.bgp {
        bgp.password = Some("secret".into());
        bgp.neighbors.push(Neighbor { address: "2001:db8::2".parse().unwrap(), asn: 65001 });
    }
    settings
}

fn has(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(text.lines().any(|one| one == *line), "{line}\n{text}");
    }
}

#[test]
fn a_process_runs_for_each_protocol_and_zebra_is_the_first() {
    let names = |settings: &RouterSettings| -> Vec<&str> {
        processes(settings).into_iter().map(Process::name).collect()
    };
    assert_eq!(
        names(&all()),
        ["zebra", "bfdd", "bgpd", "ospfd", "ospf6d", "isisd", "ripd", "ripngd"]
    );
    let only = RouterSettings {
        bgp: None,
        ospf: None,
        ospf3: None,
        rip: false,
        ripng: false,
        bfd: None,
        ..all()
    };
    assert_eq!(names(&only), ["zebra", "isisd"]);
    let asked: Vec<_> = questions(&only).into_iter().map(|(_, text)| text).collect();
    let of_isis = ["show isis neighbor json", "show isis neighbor", "show isis database"];
    assert_eq!(asked, [&KERNEL[..], &of_isis].concat());
}

#[test]
fn bgp_has_its_neighbors_and_the_attributes_of_each_group() {
    let text = configuration(&all(), Process::Bgpd, 1_500);
    let edge = "route-map OWN permit 1\n match metric 1\n set tag 1\n set metric 7\n set as-path \
                prepend 65001 65010 65020\n set community 65001:3\n set origin egp\nexit\n";
    let six = "route-map OWN permit 2\n match metric 2\n set tag 2\n set metric 0\n set origin \
               igp\nexit\n";
    let own = "route-map TO4 permit 1\n match tag 1\n set ip next-hop 10.0.0.3\nexit\n";
    let own6 =
        "route-map TO6 permit 2\n match tag 2\n set ipv6 next-hop global 2001:db8::3\nexit\n";
    for part in [edge, six, own, own6, "route-map TO4 permit 2\n match tag 2\nexit\n"] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    has(
        &text,
        &[
            "route-map TO4 deny 65535",
            "router bgp 65001",
            " bgp router-id 192.168.1.1",
            " no bgp ebgp-requires-policy",
            " neighbor 10.0.0.2 remote-as 65002",
            " neighbor 10.0.0.2 timers 30 90",
            " neighbor 10.0.0.2 password secret",
            " neighbor 10.0.0.2 bfd profile squall",
            " address-family ipv4 unicast",
            "  redistribute kernel route-map OWN",
            "  neighbor 10.0.0.2 activate",
            "  neighbor 10.0.0.2 route-map TO4 out",
            "  neighbor 2001:db8::2 route-map TO6 out",
        ],
    );
    let without = RouterSettings { groups: Vec::new(), ..all() };
    let text = configuration(&without, Process::Bgpd, 1_500);
    assert!(!text.contains("redistribute") && text.contains("route-map TO4 deny"), "{text}");
}

#[test]
fn is_is_has_a_system_id_of_the_router_id() {
    let text = configuration(&all(), Process::Isisd, 1_500);
    has(
        &text,
        &[
            "hostname squall",
            "router isis squall",
            " net 49.0001.1921.6800.1001.00",
            " lsp-gen-interval 1",
            " redistribute ipv4 kernel level-1",
            " redistribute ipv6 kernel level-2",
            " ip router isis squall",
            " ipv6 router isis squall",
            " isis circuit-type level-1-2",
            " isis hello-interval 10",
            " isis hello-multiplier 4",
            " isis metric 15",
            " isis network point-to-point",
            " isis bfd profile squall",
        ],
    );
    assert!(!text.contains("lsp-mtu"), "{text}");
    let isis = Isis { area: "49".into(), levels: [false, true], metric: 10, point_to_point: false };
    let one = RouterSettings { isis: Some(isis), ipv6: None, bfd: None, ..all() };
    let text = configuration(&one, Process::Isisd, 1_400);
    let lines = [" net 49.1921.6800.1001.00", " isis circuit-type level-2-only", " lsp-mtu 1397"];
    has(&text, &lines);
    for absent in ["ipv6", "level-1", "is-type", "bfd", "point-to-point"] {
        assert!(!text.contains(absent), "{absent}\n{text}");
    }
}

#[test]
fn the_other_protocols_have_their_areas_and_times() {
    let of = |process| configuration(&all(), process, 1_500);
    has(
        &of(Process::Ospfd),
        &[
            " ospf router-id 192.168.1.1",
            " redistribute kernel",
            "interface eth0",
            " ip ospf hello-interval 10",
            " ip ospf dead-interval 40",
            " ip ospf bfd",
            " ip ospf bfd profile squall",
            " ip ospf area 0.0.0.0",
        ],
    );
    has(&of(Process::Ospf6d), &[" ipv6 ospf6 area 0.0.0.1", " ipv6 ospf6 bfd profile squall"]);
    has(&of(Process::Ripd), &["router rip", " version 2", " timers basic 30 180 120"]);
    has(&of(Process::Ripngd), &["router ripng", " network eth0", " redistribute kernel"]);
    has(&of(Process::Bfdd), &[" profile squall", "  transmit-interval 100"]);
}

#[test]
fn routes_are_in_the_main_table_and_sessions_are_commands() {
    let settings = all();
    let mut steered = Steered::new(&settings);
    let initial = steered.initial();
    assert!(initial.starts_with("route replace blackhole 198.51.100.0/32 table 254 metric 1\n"));
    assert!(initial.contains("route replace blackhole 2001:db8:1::/48 table 254 metric 2\n"));
    let mut give = |order: RouterOrder| steered.calls(&settings, &[], &order);
    let part = GroupPart { group: Some("six".into()), count: Some(1) };
    let calls = give(RouterOrder::Withdraw(part)).unwrap();
    let line = "route del blackhole 2001:db8:1::/48 table 254 metric 2\n";
    assert_eq!((calls.calls, calls.routes), (vec![DaemonCall::Kernel(line.into())], 1));
    let flapped = "route del blackhole 198.51.100.0/32 table 254 metric 1\n";
    let vty = |process, lines: &[&str]| {
        DaemonCall::Vty(process, lines.iter().map(|line| (*line).to_owned()).collect())
    };
    let set = |process, place, line| vty(process, &["configure terminal", place, line, "end"]);
    let address = "10.0.0.2".parse().ok();
    let down = give(RouterOrder::Down { neighbor: address, message: "bye now".into() }).unwrap();
    let shutdown = "neighbor 10.0.0.2 shutdown message bye now";
    assert_eq!(down.calls, [set(Process::Bgpd, "router bgp 65001", shutdown)]);
    assert_eq!(down.ends, ["bgp1"]);
    let up = give(RouterOrder::Up { neighbor: None }).unwrap();
    assert_eq!(
        up.calls,
        [
            set(Process::Bgpd, "router bgp 65001", "no neighbor 10.0.0.2 shutdown"),
            set(Process::Bgpd, "router bgp 65001", "no neighbor 2001:db8::2 shutdown"),
            set(Process::Ospfd, "interface eth0", "ip ospf area 0.0.0.0"),
            set(Process::Ospf6d, "interface eth0", "ipv6 ospf6 area 0.0.0.1"),
            set(Process::Isisd, "interface eth0", "no isis passive"),
            set(Process::Ripd, "router rip", "network eth0"),
            set(Process::Ripngd, "router ripng", "network eth0"),
        ]
    );
    // A bar with a space would be a filter.
    for (message, expected) in [(" a |  b | c\t|", " message a |b |c |"), (" ", "")] {
        let down = RouterOrder::Down { neighbor: address, message: message.into() };
        let line = format!("neighbor 10.0.0.2 shutdown{expected}");
        let lines = ["configure terminal", "router bgp 65001", &line, "end"];
        assert_eq!(give(down).unwrap().calls, [vty(Process::Bgpd, &lines)]);
    }
    let down = give(RouterOrder::Down { neighbor: None, message: String::new() }).unwrap();
    assert_eq!(down.calls[2], set(Process::Ospfd, "interface eth0", "no ip ospf area 0.0.0.0"));
    assert_eq!(down.calls[4], set(Process::Isisd, "interface eth0", "isis passive"));
    let refresh = give(RouterOrder::Refresh { neighbor: address }).unwrap();
    assert_eq!(refresh.calls, [vty(Process::Bgpd, &["clear bgp 10.0.0.2 soft in"])]);
    let silent: Result<Calls, _> = give(RouterOrder::Silent);
    assert_eq!(silent.unwrap().calls, [DaemonCall::Link(false)]);
    let restart = give(RouterOrder::Restart).unwrap_err();
    assert_eq!(restart, OrderError::NotBird { action: "restart" });
    assert_eq!(steered.flap(Nanos::SECOND), flapped);
}

#[test]
fn a_reply_ends_with_three_zero_octets_and_a_code() {
    let done = "one\ntwo\n\0\0\0\0";
    assert_eq!(reply(done), Some(done.len()));
    for end in 0..done.len() {
        assert_eq!(reply(&done[..end]), None, "{end}");
    }
    assert_eq!((text(done), refusal(done)), ("one\ntwo\n", None));
    assert_eq!(reply("\0\0\0\0\0\0\0\x02"), Some(4), "the first of two replies");
    let unknown = "% Unknown command: foo\n\0\0\0\x02";
    assert_eq!(refusal(unknown).as_deref(), Some("% Unknown command: foo"));
    assert_eq!(refusal("\0\0\0\x02").as_deref(), Some("it does not know the command"));
}

/// Replies of FRR 8.4.4 to the questions, shortened.
const REPLIES: [(&str, &str); 11] = [
    (
        "show ip route summary json",
        r#"{"routes":[{"fib":2,"rib":2,"fibOffLoaded":0,"fibTrapped":0,"type":"kernel"},
        {"fib":1,"rib":1,"type":"connected"},{"fib":0,"rib":1,"type":"rip"},
        {"fib":1,"rib":2,"type":"ospf"},{"fib":0,"rib":3,"type":"isis"}],
        "routesTotal":9,"routesTotalFib":4}"#,
    ),
    (
        "show ipv6 route summary json",
        r#"{"routes":[{"fib":3,"rib":3,"type":"kernel"},{"fib":0,"rib":1,"type":"ripng"},
        {"fib":1,"rib":2,"type":"ospf6"},{"fib":0,"rib":4,"type":"isis"}],"routesTotal":10}"#,
    ),
    (
        "show bfd peers json",
        r#"[{"multihop":false,"peer":"2001:db8::2","status":"up","uptime":15},
        {"multihop":false,"peer":"10.0.0.2","status":"down","downtime":26}]"#,
    ),
    (
        "show bgp neighbors json",
        r#"{"10.0.0.2":{"remoteAs":65002,"bgpState":"Established",
        "lastResetDueTo":"Waiting for peer OPEN","addressFamilyInfo":{"ipv4Unicast":{
        "updateGroupId":1,"acceptedPrefixCounter":7,"sentPrefixCounter":2}}},
        "2001:db8::2":{"remoteAs":65001,"bgpState":"Active","lastNotificationReason":
        "Cease/BFD Down","lastResetDueTo":"BGP Notification send","addressFamilyInfo":{
        "ipv6Unicast":{"updateGroupId":3,"acceptedPrefixCounter":0}}}}"#,
    ),
    (
        "show ip ospf neighbor json",
        r#"{"neighbors":{"10.0.0.2":[{"priority":1,"state":"Full\/Backup","nbrState":"Full\/Backup",
        "converged":"Full","role":"Backup","address":"10.0.0.2","ifaceName":"eth0:10.0.0.1"}]}}"#,
    ),
    (
        "show ipv6 ospf6 neighbor json",
        r#"{"neighbors":[{"neighborId":"10.0.0.2","priority":1,"state":"ExStart"}]}"#,
    ),
    (
        "show isis neighbor json",
        r#"{"areas":[{"area":"squall","circuits":[{"circuit":2,"adj":"r2","interface":"eth0",
        "level":2,"state":"Up","expires-in":"3s","snpa":"4a28.e7c9.b684"}]}]}"#,
    ),
    (
        "show isis neighbor",
        "Area squall:\n  System Id           Interface   L  State        Holdtime SNPA\n r2          \
         \x20       eth0        1  Initializing  9        4a28.e7c9.b684\n r2                  eth0   \
         \x20    2  Up            3        4a28.e7c9.b684\n r3      eth0  3  Up   8   2020.2020.2020\n",
    ),
    (
        "show isis database",
        "Area squall:\nIS-IS Level-1 link-state database:\nLSP ID   PduLen  SeqNumber   Chksum  \
         Holdtime  ATT/P/OL\nr1.00-00   *   95   0x2   0x1  1085  0/0/0\n    1 LSPs\n\nIS-IS Level-2 \
         link-state database:\nr1.00-00  *  95  0x2  0x1  1085  0/0/0\n    3 LSPs\n\n",
    ),
    (
        "show ip rip status",
        "Routing Protocol is \"rip\"\n  Sending updates every 5 seconds with +/-50%, next due in 4 \
         seconds\n",
    ),
    ("show ipv6 ripng status", ""),
];

fn states(replies: &[(&'static str, &str)]) -> Vec<ProtocolState> {
    states_of(&all(), replies)
}

fn states_of(settings: &RouterSettings, replies: &[(&'static str, &str)]) -> Vec<ProtocolState> {
    let replies = replies.iter().map(|(question, text)| (*question, format!("{text}\0\0\0\0")));
    protocols(settings, &replies.collect())
}

#[test]
fn states_come_from_the_process_of_each_protocol() {
    let found = states(&REPLIES);
    let brief: Vec<_> = found
        .iter()
        .map(|one| (&*one.name, &*one.kind, &*one.state, one.is_up, one.imported, one.exported))
        .collect();
    assert_eq!(
        brief,
        [
            ("bfd1", "BFD", "1 of 2 up", true, 0, 0),
            ("bgp1", "BGP", "Established", true, 7, 2),
            ("bgp2", "BGP", "Active", false, 0, 0),
            ("ospf4", "OSPF", "Running", true, 2, 2),
            ("ospf6", "OSPF", "ExStart", false, 2, 3),
            ("isis1", "IS-IS", "Running", true, 7, 5),
            ("rip4", "RIP", "Running", true, 1, 2),
            ("rip6", "RIPng", "start", false, 1, 3),
        ]
    );
    assert_eq!((&*found[1].neighbor, &*found[1].error), ("10.0.0.2", ""));
    assert_eq!((&*found[2].neighbor, &*found[2].error), ("2001:db8::2", "Cease/BFD Down"));
    let isis = found.iter().find(|one| one.kind == "IS-IS").expect("it is configured");
    let brief = |of: &LinkNeighbor| (of.state.clone(), of.is_up, of.levels);
    assert_eq!(isis.lsps, [1, 3]);
    let neighbors: Vec<_> = isis.neighbors.iter().map(brief).collect();
    assert_eq!(
        neighbors,
        [
            ("Initializing".into(), false, [true, false]),
            ("Up".into(), true, [false, true]),
            ("Up".into(), true, [true, true]),
        ]
    );
    assert_eq!(kernel_routes([REPLIES[0].1, REPLIES[1].1]), 5);
    // IS-IS has no routes of an IP version that it does not speak.
    let found = states_of(&RouterSettings { ipv6: None, ..all() }, &REPLIES);
    assert_eq!((&*found[5].name, found[5].exported), ("isis1", 2));
}

#[test]
fn a_protocol_without_neighbors_is_alone_and_one_without_a_reply_is_down() {
    let alone = [
        ("show ip ospf neighbor json", "{\"neighbors\":{}}"),
        ("show isis neighbor json", r#"{"areas":[{"area":"squall","circuits":[{"circuit":2}]}]}"#),
        ("show ip route summary json", "not json"),
    ];
    let expected = ["0 of 0 up", "", "", "Alone", "Alone", "Alone", "start", "start"];
    let found = states(&alone);
    assert_eq!(found.len(), expected.len());
    for (one, state) in found.iter().zip(expected) {
        assert_eq!((&*one.state, one.is_up), (state, one.kind == "BFD"), "{}", one.name);
    }
}

use super::*;
use crate::{DaemonState, Flap, Neighbor, Prefix, Prefixes, RouteRange};

/// The reply of BIRD 2.0.12 to [`SHOW`], shortened.
const REPLY: &str = "\
2002-Name       Proto      Table      State  Since         Info
1002-device1    Device     ---        up     11:57:14.013  \n\
1006-
1002-bfd1       BFD        ---        up     11:57:14.013  \n\
1006-
1002-bgp1       BGP        ---        up     11:57:14.962  Established   \n\
1006-  BGP state:          Established
     Neighbor address: 10.0.0.2
     Neighbor AS:      65002
   Channel ipv4
     State:          UP
     Routes:         3 imported, 2 exported, 1 preferred
     Route change stats:     received   rejected   filtered    ignored   accepted
       Import updates:              3          0          0          0          3
 \n\
1002-bgp2       BGP        ---        start  11:57:14.013  Active        Socket: Connection refused
1006-  BGP state:          Active
     Neighbor address: 2001:db8::2
     Last error:       Socket: Connection refused
   Channel ipv6
     State:          DOWN
 \n\
1002-ospf4      OSPF       master4    up     11:57:14.013  Alone
1006-  Channel ipv4
     Routes:         1 imported, 2 exported, 0 preferred
 \n\
1002-static4    Static     master4    up     11:57:14.013  \n\
1006-  Channel ipv4
     Routes:         2 imported, 0 exported, 2 preferred
 \n\
0000 \n";

#[test]
fn states_are_those_of_the_routing_protocols() {
    let found = protocols(REPLY);
    let brief: Vec<_> = found
        .iter()
        .map(|one| (&*one.name, &*one.kind, &*one.state, one.is_up, one.imported, one.exported))
        .collect();
    assert_eq!(
        brief,
        [
            ("bfd1", "BFD", "up", true, 0, 0),
            ("bgp1", "BGP", "Established", true, 3, 2),
            ("bgp2", "BGP", "Active", false, 0, 0),
            ("ospf4", "OSPF", "Alone", false, 1, 2),
        ]
    );
    assert_eq!((&*found[1].neighbor, &*found[2].neighbor), ("10.0.0.2", "2001:db8::2"));
    assert_eq!(found[2].error, "Socket: Connection refused");
}

#[test]
fn sessions_end_with_their_daemon() {
    let mut state = DaemonState { protocols: protocols(REPLY), downs: 1, ..DaemonState::default() };
    state.fail("signal 9".into());
    assert_eq!((state.downs, state.failed.as_deref()), (3, Some("signal 9")));
    assert!(state.protocols.iter().all(|one| !one.is_up && one.state == "ended"), "{state:?}");
    assert_eq!(state.protocols[1].imported, 3, "routes that it had learnt stay");
}

#[test]
fn a_session_that_a_step_ends_is_not_counted_as_one_that_went_down() {
    let mut state = DaemonState::default();
    let up = protocols(REPLY);
    let fallen = |name: &str| {
        let mut all = protocols(REPLY);
        all.iter_mut().filter(|one| one.name == name).for_each(|one| one.is_up = false);
        all
    };
    state.update(up.clone(), Nanos(5));
    state.excuse(vec!["bgp1".into()]);
    state.update(fallen("bgp1"), Nanos(6));
    assert_eq!(state.downs, 0);
    state.update(up.clone(), Nanos(7));
    assert_eq!(state.up_after, [("bfd1".into(), Nanos(5)), ("bgp1".into(), Nanos(5))]);
    // It is back, and falls again without a step.
    state.update(fallen("bgp1"), Nanos(8));
    assert_eq!(state.downs, 1);
}

#[test]
fn a_silence_excuses_sessions_until_their_protocols_have_come_back() {
    let up = protocols(REPLY);
    let fallen = || -> Vec<_> {
        protocols(REPLY).into_iter().map(|one| ProtocolState { is_up: false, ..one }).collect()
    };
    let sessions = up.iter().filter(|one| one.is_up).count() as u64;
    let silent = |talk: u64, end: u64| {
        let mut state = DaemonState::default();
        state.update(up.clone(), Nanos(5));
        state.excuse(up.iter().map(|one| one.name.clone()).collect());
        state.update(up.clone(), Nanos(talk));
        state.end_excuses(Nanos(90));
        state.update(fallen(), Nanos(end));
        state.downs
    };
    // The hold time began before the end of the silence.
    assert_eq!(silent(10, 100), 0);
    assert_eq!(silent(10, 101), sessions, "that is no longer the silence");

    // The longest hold time or dead interval of the protocols counts.
    let mut own = settings();
    assert_eq!(own.recovery(), own.bgp.as_ref().unwrap().hold.max(own.dead));
    own.bgp = None;
    assert_eq!(own.recovery(), own.dead);
    own.ospf = None;
    own.ospf3 = None;
    assert_eq!(own.recovery(), Nanos::ZERO);
    own.configuration = Some("# mine".into());
    assert_eq!(own.recovery(), Nanos(240 * Nanos::SECOND.0));
}

#[test]
fn a_reply_ends_with_a_code_and_a_space() {
    let greeting = "0001 BIRD 2.0.12 ready.\n";
    assert_eq!(reply(greeting), Some(greeting.len()));
    assert_eq!(reply(REPLY), Some(REPLY.len()));
    for end in (0..REPLY.len()).filter(|end| REPLY.is_char_boundary(*end)) {
        assert_eq!(reply(&REPLY[..end]), None, "{end}");
    }
}

pub(crate) fn settings() -> RouterSettings {
    let second = Nanos::SECOND;
    RouterSettings {
        daemon: crate::Daemon::Bird,
        mac: squall_units::MacAddr([2, 0, 0, 0, 0, 1]),
        ipv4: Some(([10, 0, 0, 1].into(), 24)),
        ipv6: None,
        router_id: [10, 0, 0, 1].into(),
        bgp: Some(Bgp {
            asn: 65001,
            neighbors: vec![Neighbor { address: [10, 0, 0, 2].into(), asn: 65002 }],
            hold: Nanos(90 * second.0),
            password: Some("a \"b\"".into()),
        }),
        ospf: Some([0, 0, 0, 0].into()),
        ospf3: None,
        isis: None,
        igp: crate::Igp::default(),
        hello: Nanos(10 * second.0),
        dead: Nanos(40 * second.0),
        rip: true,
        ripng: false,
        rip_update: Nanos(30 * second.0),
        bfd: Some(Nanos(100_000_000)),
        groups: vec![group("routes", [192, 0, 2, 0].into(), 25)],
        graceful_restart: false,
        configuration: None,
    }
}

/// Two routes from `first` on.
pub(crate) fn group(name: &str, first: std::net::IpAddr, length: u8) -> RouteGroup {
    RouteGroup {
        name: name.into(),
        attributes: GroupAttributes {
            med: Some(7),
            prepend: 1,
            communities: vec![(65001, 3)],
            ..GroupAttributes::default()
        },
        prefixes: vec![Prefixes::Range(RouteRange { first, length, count: 2 })],
        flap: None,
        single: false,
    }
}

#[test]
fn a_configuration_has_each_protocol_and_route() {
    let text = configuration(&settings());
    for line in [
        "router id 10.0.0.1;",
        "  local as 65001;",
        "  neighbor 10.0.0.2 as 65002;",
        "  password \"a b\";",
        "  area 0.0.0.0 { interface \"eth0\" { type broadcast; hello 10; dead 40; bfd on; }; };",
        "  route 192.0.2.128/25 blackhole;",
    ] {
        assert!(text.lines().any(|one| one == line), "{line}\n{text}");
    }
    let filter = "export filter { if proto = \"group1_4\" then { bgp_med = 7; bgp_path.prepend(65001); \
                  bgp_community.add((65001,3)); accept; } if source = RTS_STATIC then accept; \
                  reject; }; next hop self;";
    assert!(text.contains(filter) && !text.contains("ospf6") && !text.contains("rip6"), "{text}");
    let own = RouterSettings { configuration: Some("# mine".into()), ..settings() };
    assert_eq!(configuration(&own), "# mine");
}

#[test]
fn single_routes_are_in_the_kernel_s_table_and_their_metric_gives_their_attributes() {
    let mut edge = group("edge", [198, 51, 100, 0].into(), 32);
    edge.attributes.as_path = vec![65010, 65020];
    edge.attributes.origin = Some(Origin::Egp);
    edge.attributes.next_hop = Some([10, 0, 0, 3].into());
    edge.flap = Some(Flap { gap: Nanos(1), down: Nanos(1) });
    let six = Prefix { address: "2001:db8::".parse().unwrap(), length: 48 };
    edge.prefixes.push(Prefixes::List([six].into()));
    let plain = RouteGroup { attributes: GroupAttributes::default(), ..edge.clone() };
    let plain = RouteGroup { name: "plain".into(), flap: None, single: false, ..plain };
    let mut settings = settings();
    settings.groups.extend([edge, plain]);
    settings.graceful_restart = true;
    let text = configuration(&settings);
    let filter = "if source = RTS_INHERIT && krt_metric = 2 then { bgp_med = 7; \
                  bgp_path.prepend(65020); bgp_path.prepend(65010); bgp_path.prepend(65001); \
                  bgp_community.add((65001,3)); bgp_origin = ORIGIN_EGP; bgp_next_hop = 10.0.0.3; \
                  accept; } if source = RTS_STATIC || source = RTS_INHERIT then accept; reject; };";
    assert!(text.contains(filter) && !text.contains("next hop self"), "{text}");
    for line in [
        "  ipv4 { import all; export where source = RTS_STATIC || source = RTS_INHERIT; };",
        "protocol kernel kernel6 { kernel table 100; learn; scan time 60; netlink rx buffer \
         33554432; ipv6 { preference 200; import all; export none; }; }",
        "protocol static group3_6 {",
        "  route 2001:db8::/48 blackhole;",
        "  graceful restart on;",
    ] {
        assert!(text.lines().any(|one| one == line), "{line}\n{text}");
    }
    assert!(!text.contains("group2_") && !text.contains("group1_6"), "{text}");
    assert_eq!(text.matches("route 198.51.100.0/32").count(), 1, "of the group `plain` only");
}

#[test]
fn errors_have_codes_of_their_own() {
    assert_eq!(refusal("0009-group1_4: disabled\n0000 \n"), None);
    assert_eq!(refusal("9001 syntax error\n").as_deref(), Some("syntax error"));
    let failed = "8006-bgp1: reload failed\n0000 \n";
    assert_eq!(refusal(failed).as_deref(), Some("bgp1: reload failed"));
    assert_eq!(imported(REPLY), 3 + 1 + 2);
}

#[test]
fn neighbors_of_ospf_are_lines_of_a_table() {
    let reply = "1013-ospf4:\n Router ID   \tPri\t     State     \tDTime\tInterface  Router IP\n \
                 10.0.0.2    \t  1\t    Full/BDR   \t38.123\teth0       10.0.0.2\n 10.0.0.3    \t  \
                 0\t   2-Way/Other \t31.000\teth0       10.0.0.3\n0000 \n";
    let brief = |one: &LinkNeighbor| (one.state.clone(), one.is_up);
    let found: Vec<_> = neighbors(reply).iter().map(brief).collect();
    assert_eq!(found, [("Full".into(), true), ("2-Way".into(), false)]);
    assert_eq!(neighbors("1013-ospf4: is not up\n0000 \n"), []);
    let asked = |settings: &RouterSettings| neighbor_questions(settings);
    assert_eq!(asked(&settings()), [("ospf4", "show ospf neighbors ospf4\n")]);
    let own = RouterSettings { configuration: Some("# mine".into()), ..settings() };
    assert_eq!(asked(&own), []);
}

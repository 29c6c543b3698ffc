//! Hosts between the two ends of a link in memory, on virtual time, from the profile to the report.

use squall::{
    Format, Profile, Session,
    report::{Report, hosts::HostsReport},
};

/// Runs the groups, which are on the ports C and S of a link.
fn run(link: &str, shared: &str, groups: &str) -> Report {
    let pid = std::process::id();
    let text = format!(
        "{shared}\n[ports]\nC = \"loop:{link}-{pid},virtual\"\nS = \"loop:{link}-{pid},virtual\"\n{groups}"
    );
    let profile =
        Profile::parse(&text, "hosts.toml", Format::Toml).unwrap_or_else(|e| panic!("{e}\n{text}"));
    Session::new(profile).open().unwrap().start().unwrap().finish().unwrap()
}

fn group<'a>(report: &'a Report, name: &str) -> &'a HostsReport {
    report.hosts.iter().find(|group| group.name == name).unwrap()
}

fn clients(more: &str) -> String {
    format!("[[host]]\nname = \"clients\"\nport = \"C\"\n{more}\n")
}

fn server(more: &str) -> String {
    format!(
        "[[host]]\nname = \"server\"\nport = \"S\"\nipv4 = \"10.0.0.1/16\"\nserve = \
         \"10.0.1.0-10.0.8.255\"\n{more}\n"
    )
}

#[test]
fn leases_of_the_server_are_the_addresses_of_the_clients() {
    let clients = clients("count = 2000\nsetup = \"1000/s\"\narp = \"silent\"");
    let report = run("leases", "", &(clients + &server("arp = \"silent\"")));
    let (clients, server) = (group(&report, "clients"), group(&report, "server"));
    assert_eq!((clients.started, clients.bound), (2000, 2000), "{clients:?}");
    assert_eq!(clients.states, [("bound".to_owned(), 2000)].into());
    let leases = server.server.unwrap();
    assert_eq!((leases.leases, leases.acks, leases.naks), (2000, 2000, 0));
    assert_eq!((clients.sent["discover"], clients.retransmissions), (2000, 0));
    let rate = clients.bound_rate.unwrap();
    assert!((rate - 1000.0).abs() < 2.0, "started at 1000/s, bound at {rate}/s");
    assert_eq!(clients.dora_ns.as_ref().unwrap().count, 2000);
    let sent: u64 = report.ports.iter().map(|port| port.tx.packets).sum();
    assert_eq!(sent, 8000, "four messages each");
    assert!(report.verdict.valid, "{:?}", report.verdict);
}

#[test]
fn a_run_with_a_duration_renews_and_releases_leases() {
    let clients = clients("count = 50\nrelease = true\narp = \"silent\"");
    let report = run("renews", "duration = \"100 s\"", &(clients + &server("lease = \"60 s\"")));
    let (clients, server) = (group(&report, "clients"), group(&report, "server"));
    assert_eq!((clients.renewed, clients.expired), (150, 0), "at 30, 60 and 90 s: {clients:?}");
    assert_eq!(clients.states, [("released".to_owned(), 50)].into());
    let leases = server.server.unwrap();
    assert_eq!((leases.releases, leases.leases), (50, 0), "{leases:?}");
}

#[test]
fn hosts_without_a_server_fail_and_the_run_ends() {
    let report = run("alone", "", &clients("count = 7\nretry = \"1 s\"\ntries = 3"));
    let clients = group(&report, "clients");
    assert_eq!(clients.failed, [("no_offer".to_owned(), 7)].into());
    assert_eq!((clients.sent["discover"], clients.retransmissions), (21, 14));
    assert!(report.verdict.reasons[0].to_string().starts_with("not-done: hosts \"clients\""));
    // Until the last message left.
    assert!((2.0..4.0).contains(&report.duration_s), "1 + 2 s, not {}", report.duration_s);
}

#[test]
fn a_run_of_hosts_lasts_until_its_end_and_not_until_their_last_frame() {
    let port = format!("loop:lasts-{}", std::process::id());
    let text = format!(
        "duration = \"300 ms\"\n[ports]\nC = \"{port}\"\nS = \"{port}\"\n[[host]]\nport = \"C\"\nipv4 = \
         \"10.0.0.2/24\"\n"
    );
    let profile = Profile::parse(&text, "hosts.toml", Format::Toml).unwrap();
    let report = Session::new(profile).open().unwrap().start().unwrap().finish().unwrap();
    assert!(report.duration_s >= 0.3, "{} s", report.duration_s);
}

#[test]
fn hosts_ping_their_gateway_through_the_addresses_of_dhcp() {
    let clients = clients("count = 20\nping = \"gateway\"\nping_rate = 1000\nping_count = 5");
    let report = run("pings", "", &(clients + &server("gateway = \"10.0.0.1\"")));
    let (clients, server) = (group(&report, "clients"), group(&report, "server"));
    assert_eq!((clients.echo.sent, clients.echo.received), (100, 100), "{clients:?}");
    assert_eq!((server.echo.answered, clients.echo.lost), (100, 0));
    assert_eq!((clients.arp.requests, server.arp.answered), (1, 1));
}

#[test]
fn streams_and_hosts_share_a_port() {
    let stream = "[[stream]]\nname = \"web\"\nport = \"C\"\npacket = \"eth/ipv4/udp\"\nrate = \
                  \"1 kpps\"\nlatency = true\n";
    let groups = clients("count = 100\nsetup = \"100/s\"") + &server("") + stream;
    let report = run("shared", "duration = \"5 s\"", &groups);
    assert_eq!(group(&report, "clients").bound, 100);
    assert_eq!(report.streams[0].tx_packets, 5000);
    assert_eq!(report.streams[0].rx.as_ref().map(|rx| rx.packets), Some(5000));
}

/// Clients of DHCP with flows through the server's host, which routes to the servers of the flows.
fn web(clients: &str, template: &str) -> String {
    let server = server("mac = \"02:00:00:00:99:01\"\ngateway = \"10.0.0.1\"");
    format!(
        "{}{server}[flows]\nclients = \"C\"\nservers = \"S\"\nserver_network = {{ mac = \
         \"02:00:00:00:99:01\" }}\n[[template]]\nname = \"web\"\napp = \"http\"\nclients = \
         \"host:clients\"\nservers = \"48.0.0.1-48.0.0.4\"\n{template}\n",
        self::clients(clients),
    )
}

#[test]
fn flows_begin_from_the_addresses_that_dhcp_gave_and_hosts_release_them_at_the_end() {
    let groups = web("count = 50\nsetup = \"100/s\"\nrelease = true", "cps = 200");
    let report = run("web", "duration = \"3 s\"", &groups);
    let hosts = group(&report, "clients");
    assert_eq!((hosts.bound, hosts.states.get("released")), (50, Some(&50)), "{hosts:?}");
    let flows = report.flows.as_ref().unwrap().total.client.clone().unwrap();
    let missed = flows.not_begun.values().sum::<u64>();
    assert_eq!((flows.attempted + missed, flows.failed.len()), (600, 0), "{flows:?}");
    assert!(missed < 10, "only before the first host had an address: {:?}", flows.not_begun);
    assert_eq!((flows.completed, flows.active), (flows.attempted, 0));
}

#[test]
fn flows_of_hosts_without_a_server_are_counted_with_the_reason() {
    let groups = web("count = 5\nvlan = 9\nretry = \"1 s\"\ntries = 2", "cps = 100");
    let report = run("noweb", "duration = \"5 s\"", &groups);
    let flows = report.flows.as_ref().unwrap().total.client.clone().unwrap();
    assert_eq!((flows.attempted, flows.not_begun), (0, [("no_host".to_owned(), 500)].into()));
}

#[test]
fn pools_of_hosts_are_checked() {
    let wrong = |from: &str, to: &str| {
        let text = format!(
            "[ports]\nC = \"loop:x,virtual\"\nS = \"loop:x,virtual\"\n{}",
            web("", "cps = 1").replace(from, to)
        );
        let profile = Profile::parse(&text, "hosts.toml", Format::Toml).unwrap();
        Session::new(profile).plan_only().err().unwrap().to_string()
    };
    let text = wrong("host:clients", "host:client");
    assert!(text.contains("there are no hosts \"client\""), "{text}");
    let text = wrong("host:clients", "host:server");
    assert!(text.contains("hosts \"server\" of another port"), "{text}");
    let text = wrong("48.0.0.1-48.0.0.4", "host:clients");
    assert!(text.contains("hosts can be clients, not servers"), "{text}");
    let text =
        wrong("servers = \"S\"", "servers = \"S\"\nclient_network = { wrap = [\"vlan 7\"] }");
    assert!(text.contains("an encapsulation of their own"), "{text}");
}

#[test]
fn the_time_from_a_join_to_the_first_frame_of_a_stream_is_measured() {
    let members = "[[host]]\nname = \"members\"\nport = \"C\"\nipv4 = \"10.0.5.1/16\"\n\
                   join = \"239.1.0.1-239.1.0.4\"\njoin_rate = \"10/s\"\njoin_time = \"2 s\"\n\
                   start = \"0.05 s\"\n";
    let querier =
        "[[host]]\nname = \"querier\"\nport = \"S\"\nipv4 = \"10.0.0.1/16\"\nquerier = \"60 s\"\n";
    // A frame each 100 ms, to one of the four groups.
    let stream = "[[stream]]\nport = \"S\"\npacket = \"eth(dst=01:00:5e:01:00:02)/ipv4(dst=239.1.0.2)/udp\"\n\
                  rate = \"10 pps\"\nlatency = true\n";
    let report = run("joins", "duration = \"5 s\"", &(members.to_owned() + querier + stream));
    let seen = group(&report, "members").multicast.clone().unwrap();
    assert_eq!((seen.joined, seen.left, seen.groups, seen.groups_received), (4, 4, 4, 1));
    // The second join is at 0.15 s, and the next frame at 0.2 s; its end is at 2.15 s.
    let join = seen.join_ns.clone().unwrap();
    assert_eq!(join.count, 1);
    assert!((49_000_000..=52_000_000).contains(&join.max), "{join:?}");
    assert_eq!(seen.frames, 20, "from 0.2 to 2.1 s");
    assert!(seen.frames_after_leave >= 25, "the loop goes on: {seen:?}");
    assert_eq!(seen.received["general_query"], 2, "of IGMP and of MLD");
    let leave = seen.leave_ns.unwrap();
    assert!(
        (2_749_000_000..=2_751_000_000).contains(&leave.max),
        "the last is at 4.9 s: {leave:?}"
    );
    assert_eq!(group(&report, "querier").querier.clone().unwrap().groups, 0);
    let rx = report.streams[0].rx.as_ref().unwrap();
    assert_eq!(rx.packets, report.streams[0].tx_packets, "the stream keeps its frames");
}

#[test]
fn speakers_on_both_ends_list_each_other() {
    let speaker = |name: &str, port: &str, count: u32| {
        format!(
            "[[host]]\nname = \"{name}\"\nport = \"{port}\"\ncount = {count}\nipv4 = \"none\"\nlldp = \
             \"30 s\"\nlldp_name = \"{name}-{{}}\"\n"
        )
    };
    let groups = speaker("left", "C", 3) + &speaker("right", "S", 1);
    let report = run("lldp", "duration = \"35 s\"", &groups);
    let of = |name| group(&report, name).lldp.clone().unwrap();
    let names: Vec<_> = of("right").neighbors.into_iter().map(|of| of.system).collect();
    // Groups end one after the other, and a speaker announces its end.
    assert!(names.is_empty() || names == ["left-1", "left-2", "left-3"], "{names:?}");
    // 4 at the start, one after 30 s, and the end.
    assert_eq!((of("left").sent / 3 >= 5, of("left").shutdowns), (true, 3));
    assert!(of("right").received >= 15);
}

#[test]
fn two_ports_form_an_aggregate_with_their_partner() {
    let name = format!("lag-{}", std::process::id());
    let mut text = String::from("duration = \"10 s\"\n[ports]\n");
    for (port, link) in [("A1", 1), ("A2", 2), ("B1", 1), ("B2", 2)] {
        text += &format!("{port} = \"loop:{name}{link},virtual\"\n");
    }
    for (port, rate) in [("A1", "fast"), ("A2", "fast"), ("B1", "slow"), ("B2", "slow")] {
        let (system, number) = port.split_at(1);
        let system = if system == "A" { 1 } else { 2 };
        text += &format!(
            "[[host]]\nname = \"{port}\"\nport = \"{port}\"\nipv4 = \"none\"\nlacp = \
             \"active\"\nlacp_rate = \"{rate}\"\nlacp_key = {system}0\nlacp_port = {number}\n\
             lacp_system = \"02:00:00:00:00:0{system}\"\n"
        );
    }
    let profile = Profile::parse(&text, "hosts.toml", Format::Toml).unwrap();
    let report = Session::new(profile).open().unwrap().start().unwrap().finish().unwrap();
    let of = |name| group(&report, name).lacp.clone().unwrap();
    for number in 1..=2 {
        let (a, b) = (of(&format!("A{number}")), of(&format!("B{number}")));
        assert_eq!((a.up, b.up, a.down, b.down), (1, 1, 0, 0), "{a:?}");
        assert_eq!((a.partner.system, a.partner.key), ("02:00:00:00:00:02".to_owned(), 20));
        assert_eq!((a.partner.port, b.partner.port), (number, number));
        // A wants a PDU each second, B one each 30 s.
        assert!(b.sent["lacpdu"] >= 10 && a.sent["lacpdu"] <= 6, "{a:?} {b:?}");
        let up = a.up_ns.unwrap();
        assert!((2_000_000_000..4_100_000_000).contains(&up.max), "{up:?}");
    }
}

/// Clients and an access concentrator.
fn pppoe(clients: &str, server: &str) -> String {
    format!(
        "[[host]]\nname = \"clients\"\nport = \"C\"\nidentity = \"user{{}}\"\npassword = \
         \"secret\"\n{clients}\n[[host]]\nname = \"server\"\nport = \"S\"\nipv4 = \"10.0.0.1/16\"\nserve \
         = \"10.0.1.0-10.0.8.255\"\nidentity = \"user{{}}\"\npassword = \"secret\"\n{server}\n"
    )
}

#[test]
fn sessions_of_pppoe_have_addresses_of_the_server_and_carry_pings() {
    for method in ["none", "pap", "chap"] {
        let clients = "count = 200\nsetup = \"1000/s\"\npppoe = \"any\"\nvlan = 7\nppp_dns = true\nipv6cp \
                       = true\nping = \"gateway\"\nping_rate = 1000\nrelease = true";
        let server = format!("vlan = 7\npppoe = \"{method}\"\nipv6cp = true");
        let report = run(&format!("pppoe-{method}"), "", &pppoe(clients, &server));
        let (clients, server) = (group(&report, "clients"), group(&report, "server"));
        assert_eq!((clients.bound, clients.failed.len()), (200, 0), "{clients:?}");
        assert_eq!(clients.states, [("released".to_owned(), 200)].into());
        assert_eq!((clients.echo.sent, clients.echo.received), (600, 600));
        assert_eq!((server.echo.answered, clients.arp.requests), (600, 0));
        let (of, at) = (clients.pppoe.as_ref().unwrap(), server.pppoe.as_ref().unwrap());
        assert_eq!((of.opened, of.opened6, at.opened), (200, 200, 200));
        assert_eq!(of.ended, [("closed".to_owned(), 200)].into());
        assert_eq!(at.ended, [("padt".to_owned(), 200)].into(), "{:?}", at.states);
        assert_eq!((of.retransmissions, of.name_servers.len(), of.ignored.len()), (0, 1, 0));
        assert_eq!(of.open_ns.as_ref().map(|open| open.count), Some(200));
        assert!(report.verdict.valid, "{:?}", report.verdict);
    }
}

#[test]
fn clients_of_pppoe_fail_with_the_reason() {
    let clients = "count = 3\npppoe = \"chap\"\nretry = \"1 s\"\ntries = 2\nrestarts = 0";
    let failed = |name: &str, clients: &str, server: &str| {
        let report = run(name, "", &pppoe(clients, server));
        group(&report, "clients").failed.clone().into_iter().next()
    };
    let server = "pppoe = \"any\"";
    let none = failed("nopado", &format!("{clients}\nvlan = 9"), server);
    assert_eq!(none, Some(("no_pado".to_owned(), 3)));
    let other = failed("noauth", clients, "pppoe = \"pap\"");
    assert_eq!(other, Some(("padt".to_owned(), 3)), "the server has no method of theirs");
    let groups = pppoe(clients, server).replacen("secret", "wrong", 1);
    let report = run("rejected", "", &groups);
    let of = group(&report, "clients");
    assert_eq!(of.failed, [("auth_rejected".to_owned(), 3)].into(), "{of:?}");
}

#[test]
fn flows_do_not_begin_in_sessions_of_pppoe() {
    let groups = web("pppoe = \"none\"", "cps = 1");
    let text = format!("[ports]\nC = \"loop:x,virtual\"\nS = \"loop:x,virtual\"\n{groups}");
    let profile = Profile::parse(&text, "hosts.toml", Format::Toml).unwrap();
    let text = Session::new(profile).plan_only().err().unwrap().to_string();
    assert!(text.contains("sessions of PPPoE, which flows cannot use"), "{text}");
}

#[test]
fn a_supplicant_without_an_authenticator_fails_and_sends_nothing_else() {
    let host = "[[host]]\nname = \"clients\"\nport = \"C\"\ncount = 4\nauth = \"md5\"\nidentity = \
                \"user\"\npassword = \"secret\"\nauth_start = \"2 s\"\nauth_starts = 2\n";
    let report = run("dot1x", "", host);
    let clients = group(&report, "clients");
    assert_eq!(clients.failed, [("no_authenticator".to_owned(), 4)].into());
    let auth = clients.auth.clone().unwrap();
    assert_eq!(auth.sent, [("start".to_owned(), 8)].into());
    let sent: u64 = report.ports.iter().map(|port| port.tx.packets).sum();
    assert_eq!(sent, 8);
}

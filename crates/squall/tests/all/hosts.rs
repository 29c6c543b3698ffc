//! Hosts between the two ends of a link in memory, on virtual time, from the profile to the report.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use squall::{
    Format, HostSearch, Profile, RunOptions, Session,
    host_table::HostQuestion,
    report::{Report, fail_if::FailIf, hosts::HostsReport},
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
fn hosts_choose_link_local_addresses_that_differ_on_both_ends() {
    let hosts = |name, port| {
        format!(
            "[[host]]\nname = \"{name}\"\nport = \"{port}\"\ncount = 200\nipv4 = \"link-local\"\n"
        )
    };
    let groups = hosts("clients", "C") + &hosts("server", "S");
    let report = run("chosen", "duration = \"12 s\"", &groups);
    for name in ["clients", "server"] {
        let group = group(&report, name);
        assert_eq!(group.states, [("bound".to_owned(), 200)].into());
        assert!(group.arp.probes >= 600, "three for each address: {:?}", group.arp);
        assert_eq!(group.failed, [].into());
    }
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

/// Frames that a run captured.
struct Captured(std::path::PathBuf);

impl Captured {
    fn new(name: &str) -> Self {
        let file = format!("squall-hosts-{name}-{}.pcap", std::process::id());
        Self(std::env::temp_dir().join(file))
    }

    /// Keys of the profile that make the capture.
    fn keys(&self) -> String {
        format!("duration = \"3 s\"\n[run]\nforce = true\ncapture = {:?}\n", self.0)
    }

    fn frames(&self) -> Vec<Vec<u8>> {
        let mut reader = squall_pcap::CaptureReader::open(&self.0).unwrap();
        let mut frames = Vec::new();
        while let Some(packet) = reader.next().unwrap() {
            frames.push(packet.data.to_vec());
        }
        frames
    }
}

impl Drop for Captured {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// MAC addresses and leases of all DHCPACK, whose frames have a VLAN tag.
fn leases(frames: &[Vec<u8>]) -> BTreeMap<[u8; 6], [u8; 4]> {
    leases_at(frames, 18)
}

/// MAC addresses and leases of all DHCPACK, whose packets begin at octet `ip` of their frames.
fn leases_at(frames: &[Vec<u8>], ip: usize) -> BTreeMap<[u8; 6], [u8; 4]> {
    // The type of message is the first option.
    let is_ack =
        |of: &&[u8]| of.get(20..22) == Some(&[0, 67]) && of.get(268..271) == Some(&[53, 1, 5]);
    let lease = |of: &[u8]| (of[56..62].try_into().unwrap(), of[44..48].try_into().unwrap());
    frames.iter().filter_map(|of| of.get(ip..)).filter(is_ack).map(lease).collect()
}

const GATEWAY_MAC: [u8; 6] = [2, 0, 0, 0, 0x99, 1];

#[test]
fn frames_of_a_stream_carry_exactly_the_leases_of_its_hosts() {
    let captured = Captured::new("leases");
    let clients = clients("count = 50\nsetup = \"100/s\"\nvlan = 7\nrelease = true");
    let server = server("vlan = 7\nmac = \"02:00:00:00:99:01\"\ngateway = \"10.0.0.1\"");
    let stream = "[[stream]]\nname = \"web\"\nport = \"C\"\nsrc = \"host:clients\"\npacket = \
                  \"eth/ipv4(dst=48.0.0.1)/udp\"\nrate = \"1 kpps\"\nlatency = true\n";
    let report = run("carry", &captured.keys(), &(clients + &server + stream));
    let hosts = group(&report, "clients");
    assert_eq!((hosts.bound, hosts.states.get("released")), (50, Some(&50)), "{hosts:?}");
    let (web, rx) = (&report.streams[0], report.streams[0].rx.clone().unwrap());
    let held = web.not_sent["no_host"];
    assert_eq!((web.not_sent.len(), web.tx_packets + held), (1, 3000), "{web:?}");
    assert!(held < 20, "only before the first host has an address: {held}");
    assert_eq!((rx.packets, rx.lost, rx.reordered), (web.tx_packets, 0, 0));
    assert!(report.verdict.valid, "{:?}", report.verdict);

    let frames = captured.frames();
    let leases = leases(&frames);
    assert_eq!(leases.len(), 50);
    let mut turns: BTreeMap<[u8; 6], u64> = BTreeMap::new();
    for frame in frames.iter().filter(|of| of[34..38] == [48, 0, 0, 1]) {
        let mac: [u8; 6] = frame[6..12].try_into().unwrap();
        assert_eq!((&frame[..6], &frame[12..16]), (&GATEWAY_MAC[..], &[0x81, 0, 0, 7][..]));
        assert_eq!(frame[30..34], leases[&mac], "the address of its host");
        let words = frame[18..38].chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1]));
        let sum: u32 = words.sum();
        assert_eq!((sum >> 16) + (sum & 0xffff), 0xffff, "its checksum is right");
        *turns.entry(mac).or_default() += 1;
    }
    assert_eq!((turns.len(), turns.values().sum::<u64>()), (50, web.tx_packets));
    // The first hosts sent while the others had no address yet. On virtual time, a batch of frames
    // may leave before the next message of an exchange is received.
    let last = turns.values().copied().min().unwrap();
    assert!(last >= 2000 / 50, "hosts take turns: {turns:?}");
}

#[test]
fn frames_go_to_the_hosts_that_have_an_address() {
    let captured = Captured::new("to");
    let clients = clients("count = 20\nvlan = 7");
    let server = server("vlan = 7\nmac = \"02:00:00:00:99:01\"\ngateway = \"10.0.0.1\"");
    let stream = |name: &str, packet: &str| {
        format!(
            "[[stream]]\nname = {name:?}\nport = \"S\"\ndst = \"host:clients\"\npacket = \
             \"{packet}/vlan(id=7)/ipv4(src=48.0.0.1)/udp\"\nrate = \"200 pps\"\nlatency = true\n"
        )
    };
    let streams = stream("direct", "eth") + &stream("router", "eth(dst=02:00:00:00:00:aa)");
    let report = run("to", &captured.keys(), &(clients + &server + &streams));
    let frames = captured.frames();
    let leases = leases(&frames);
    let mut to_router = 0;
    for frame in frames.iter().filter(|of| of[30..34] == [48, 0, 0, 1]) {
        let mac: [u8; 6] = frame[..6].try_into().unwrap();
        let lease: [u8; 4] = frame[34..38].try_into().unwrap();
        match leases.get(&mac) {
            Some(own) => assert_eq!(lease, *own),
            None => {
                assert_eq!(mac, [2, 0, 0, 0, 0, 0xaa]);
                assert!(leases.values().any(|own| *own == lease));
                to_router += 1;
            }
        }
    }
    let [direct, router] = &report.streams[..] else { panic!("two streams") };
    assert!(direct.tx_packets > 550, "{direct:?}");
    assert_eq!(router.tx_packets, to_router);
    assert_eq!(direct.rx.as_ref().map(|rx| rx.lost), Some(0));
}

#[test]
fn a_stream_of_hosts_without_addresses_sends_nothing_and_says_why() {
    let stream = "[[stream]]\nname = \"web\"\nport = \"C\"\nsrc = \"host:clients\"\npacket = \
                  \"eth/ipv4/udp\"\nrate = \"100 pps\"\nmode = { burst = 300 }\n";
    let clients = clients("count = 5\nretry = \"1 s\"\ntries = 2");
    let report = run("nobody", "", &(clients.clone() + stream));
    let web = &report.streams[0];
    assert_eq!((web.tx_packets, &web.not_sent), (0, &[("no_host".to_owned(), 300)].into()));
    let reasons = report.verdict.reasons.iter().map(ToString::to_string).collect::<Vec<_>>();
    let reason = "not-done: stream \"web\": none of 300 frames was sent: no host had an address";
    assert!(reasons.iter().any(|of| of.starts_with(reason)), "{reasons:?}");
    let violated = |criterion: &str| FailIf::parse(criterion).unwrap().check(&report);
    assert_eq!(violated("no_host > 299").len(), 1);
    assert_eq!(violated("no_host > 300").len(), 0);
    // It says so also if the frames would go to routes that a router has learnt.
    let routes = "dst = \"learnt:r1\"\n[[router]]\nname = \"r1\"\nport = \"S\"\ndaemon = \
                  \"native\"\nipv4 = \"10.0.0.1/24\"\nasn = 65001\nneighbors = \"10.0.0.2 as \
                  65002\"\n";
    let stream = stream.replace("eth/", "eth(dst=02:00:00:00:00:09)/");
    let report = run("nobody-learnt", "", &(clients + &stream + routes));
    let web = &report.streams[0];
    assert_eq!((web.tx_packets, &web.not_sent), (0, &[("no_host".to_owned(), 300)].into()));
}

#[test]
fn streams_of_hosts_are_checked() {
    let wrong = |stream: &str, more: &str| {
        let text = format!(
            "[ports]\nC = \"loop:x,virtual\"\nS = \"loop:x,virtual\"\n{}[[stream]]\nname = \
             \"web\"\nrate = 1\n{stream}\n",
            clients(more)
        );
        let planned = Profile::parse(&text, "hosts.toml", Format::Toml)
            .map(|profile| Session::new(profile).plan_only().err().unwrap().to_string());
        planned.unwrap_or_else(|error| error.to_string())
    };
    let packet = "packet = \"eth/ipv4/udp\"";
    for (stream, more, expected) in [
        (format!("port = \"C\"\nsrc = \"10.0.0.1\"\n{packet}"), "", "is not a group of hosts"),
        (format!("port = \"C\"\nsrc = \"host:client\"\n{packet}"), "", "no hosts \"client\""),
        (format!("port = \"S\"\nsrc = \"host:clients\"\n{packet}"), "", "are on port C"),
        (
            format!("port = \"C\"\nsrc = \"host:clients\"\n{packet}"),
            "ipv4 = \"none\"\nlldp = \"30 s\"",
            "have no addresses",
        ),
        (
            format!("port = \"C\"\nsrc = \"host:clients\"\n{packet}"),
            "ipv6 = \"slaac\"",
            "has no ipv6.src",
        ),
        (
            format!("port = \"C\"\nsrc = \"host:clients\"\n{packet}"),
            "ipv4 = \"10.0.0.2/24\"",
            "have no gateway",
        ),
        (
            "port = \"C\"\nsrc = \"host:clients\"\npacket = \"eth/ipv6/udp\"".into(),
            "",
            "has no ipv4.src",
        ),
        (
            "port = \"C\"\nsrc = \"host:clients\"\npacket = \"eth/ipv4(src=10.0.0.9)/udp\"".into(),
            "",
            "the packet sets ipv4.src",
        ),
        (
            "port = \"C\"\nsrc = \"host:clients\"\npacket = \"eth/vlan(id=5)/ipv4/udp\"".into(),
            "vlan = 7",
            "has VLAN 5, but the hosts \"clients\" have VLAN 7",
        ),
        (
            format!(
                "port = \"C\"\nsrc = \"host:clients\"\n{packet}\n[[stream.vary]]\nfield = \
                 \"ipv4.src\"\nop = \"increment\"\nmax = 5"
            ),
            "",
            "a field program writes ipv4.src",
        ),
    ] {
        let text = wrong(&stream, more);
        assert!(text.contains(expected), "{expected}: {text}");
    }
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
fn flows_and_streams_have_the_ipv6_addresses_of_hosts_with_the_router_s_prefix() {
    let captured = Captured::new("ipv6");
    let router = "[[host]]\nname = \"router\"\nport = \"S\"\nmac = \"02:00:00:00:99:01\"\nipv6 = \
                  \"2001:db8:1::1/64\"\nadvertise = \"2001:db8:1::/64\"\n";
    let stream = "[[stream]]\nname = \"up\"\nport = \"C\"\nsrc = \"host:clients\"\npacket = \
                  \"eth/ipv6(dst=2001:db8:48::9)/udp\"\nrate = \"100 pps\"\nlatency = true\n";
    let clients = clients("count = 20\nipv6 = \"slaac\"");
    let flows = "[flows]\nclients = \"C\"\nservers = \"S\"\nserver_network = { mac = \
                 \"02:00:00:00:99:01\" }\n[[template]]\nname = \"web\"\napp = \"http\"\nclients = \
                 \"host:clients\"\nservers = \"2001:db8:48::1\"\ncps = 100\n";
    let shared = captured.keys().replace("3 s", "6 s");
    let report = run("flows6", &shared, &(clients + router + stream + flows));
    let hosts = group(&report, "clients").ipv6.clone().unwrap();
    assert_eq!(hosts.addresses, 20);
    let flows = report.flows.as_ref().unwrap().total.client.clone().unwrap();
    assert_eq!((flows.failed.len(), flows.completed), (0, flows.attempted), "{flows:?}");
    assert!(flows.attempted > 250, "{flows:?}");
    let up = &report.streams[0];
    assert!(up.tx_packets > 250, "{up:?}");
    assert_eq!(up.rx.as_ref().map(|rx| (rx.packets, rx.lost)), Some((up.tx_packets, 0)));
    let frames = captured.frames();
    let of_stream = frames.iter().filter(|of| of.get(38..54) == Some(&v6("2001:db8:48::9")));
    let mut senders = BTreeSet::new();
    for frame in of_stream {
        assert_eq!((&frame[..6], &frame[22..30]), (&GATEWAY_MAC[..], &v6("2001:db8:1::")[..8]));
        // The interface identifier is made of the MAC address (RFC 4291 appendix A).
        assert_eq!(
            (frame[30] ^ 2, &frame[31..33], &frame[35..38]),
            (frame[6], &frame[7..9], &frame[9..12])
        );
        senders.insert(frame[6..12].to_vec());
    }
    assert_eq!(senders.len(), 20);
    assert!(report.verdict.valid, "{:?}", report.verdict);
}

fn v6(text: &str) -> [u8; 16] {
    text.parse::<std::net::Ipv6Addr>().unwrap().octets()
}

#[test]
fn flows_of_hosts_without_a_server_are_counted_with_the_reason() {
    let groups = web("count = 5\nvlan = 9\nretry = \"1 s\"\ntries = 2", "cps = 100");
    let report = run("noweb", "duration = \"5 s\"", &groups);
    let flows = report.flows.as_ref().unwrap().total.client.clone().unwrap();
    assert_eq!((flows.attempted, flows.not_begun), (0, [("no_host".to_owned(), 500)].into()));
}

/// Hosts with addresses of DHCP that are servers of flows. Their gateway is a client, whose MAC
/// address all clients have.
fn served(hosts: &str, template: &str) -> String {
    format!(
        "[[host]]\nname = \"dhcp\"\nport = \"C\"\nipv4 = \"10.0.0.1/16\"\nserve = \
         \"10.0.1.0-10.0.8.255\"\ngateway = \"10.0.9.1\"\n[[host]]\nname = \"web\"\nport = \
         \"S\"\n{hosts}\n[flows]\nclients = \"C\"\nservers = \"S\"\ndrain = \"100 ms\"\n\
         [[template]]\nname = \"web\"\nclients = \"10.0.9.1-10.0.9.50\"\nservers = \
         \"host:web\"\n{template}\n"
    )
}

/// Receivers of packets to TCP port 80, as MAC and IP address, in frames without tags.
fn receivers(frames: &[Vec<u8>]) -> BTreeSet<([u8; 6], [u8; 4])> {
    let is_request = |of: &&Vec<u8>| of.get(12..14) == Some(&[8, 0]) && of[36..38] == [0, 80];
    let of = |of: &Vec<u8>| (of[..6].try_into().unwrap(), of[30..34].try_into().unwrap());
    frames.iter().filter(is_request).map(of).collect()
}

#[test]
fn flows_go_to_the_addresses_that_dhcp_gave_and_hosts_release_them_at_the_end() {
    let captured = Captured::new("served");
    let hosts = "count = 20\nsetup = \"20/s\"\nrelease = true";
    let groups = served(hosts, "app = \"http-get\"\ncps = 200");
    let report = run("served", &captured.keys(), &groups);
    let hosts = group(&report, "web");
    assert_eq!((hosts.bound, hosts.states.get("released")), (20, Some(&20)), "{hosts:?}");
    let total = report.flows.as_ref().unwrap().total.clone();
    let (client, server) = (total.client.unwrap(), total.server.unwrap());
    let missed = client.not_begun.get("no_host").copied().unwrap_or_default();
    assert_eq!(client.attempted + missed, 600, "{client:?}");
    assert!(missed < 10, "only before the first host had an address: {missed}");
    for end in [&client, &server] {
        assert_eq!((end.completed, end.failed.len()), (client.attempted, 0), "{end:?}");
    }
    assert!(report.verdict.valid, "{:?}", report.verdict);
    let frames = captured.frames();
    let leases: BTreeSet<_> = leases_at(&frames, 14).into_iter().collect();
    assert_eq!((receivers(&frames), leases.len()), (leases, 20));
}

#[test]
fn flows_to_hosts_without_addresses_are_counted_with_the_reason() {
    let hosts = "count = 5\nvlan = 9\nretry = \"1 s\"\ntries = 2";
    let report =
        run("unserved", "duration = \"5 s\"", &served(hosts, "app = \"http-get\"\ncps = 100"));
    let flows = report.flows.as_ref().unwrap().total.client.clone().unwrap();
    assert_eq!((flows.attempted, flows.not_begun), (0, [("no_host".to_owned(), 500)].into()));
    let reasons: Vec<_> = report.verdict.reasons.iter().map(ToString::to_string).collect();
    assert!(reasons.iter().any(|of| of.contains("did not start (no_host 500)")), "{reasons:?}");
}

#[test]
fn a_server_whose_address_another_host_takes_loses_its_flows_and_has_others_at_its_next_one() {
    let captured = Captured::new("taken");
    let waits = "client = [\"send \\\"ping\\\"\", \"recv 4\", \"delay 10 s\"]\nserver = [\"recv \
                 4\", \"send \\\"pong\\\"\", \"wait_peer_close\"]\nlisten = 80\ncps = 20\nstart = \
                 \"0.5 s\"";
    let groups = served("count = 2\ndecline_wait = \"100 ms\"", waits);
    // After 1 s, it says that the address of the first host is its own.
    let other = "[[host]]\nname = \"other\"\nport = \"C\"\nipv4 = \"10.0.1.0/16\"\nstart = \
                 \"1 s\"\n";
    let report = run("taken", &captured.keys(), &(groups + other));
    let hosts = group(&report, "web");
    assert_eq!((hosts.bound, hosts.arp.conflicts), (3, 1), "{hosts:?}");
    let server = report.flows.as_ref().unwrap().total.server.clone().unwrap();
    let lost = server.failed["address_lost"];
    assert!((4..=6).contains(&lost), "half of those that began in 0.5 s: {server:?}");
    let addresses: Vec<_> =
        receivers(&captured.frames()).into_iter().map(|(mac, to)| (mac[5], to)).collect();
    assert_eq!(addresses, [(1, [10, 0, 1, 0]), (1, [10, 0, 1, 2]), (2, [10, 0, 1, 1])]);
}

#[test]
fn external_clients_have_the_address_family_of_hosts_that_serve_them() {
    for (keys, v4) in [("", true), ("ipv6 = \"slaac\"", false)] {
        let text = format!(
            "[ports]\nS = \"loop:x,virtual\"\n[[host]]\nname = \"web\"\nport = \"S\"\n{keys}\n\
             [flows]\nservers = \"S\"\n[[template]]\napp = \"http-get\"\nplay = \
             \"servers\"\nservers = \"host:web\"\n"
        );
        let profile = Profile::parse(&text, "hosts.toml", Format::Toml).unwrap();
        let plan = Session::new(profile).plan_only().unwrap().plan;
        let load = &plan.flows.as_ref().unwrap().load;
        let clients = &load.clients[load.templates[0].clients];
        assert_eq!(clients.ranges[0].first().is_ipv4(), v4);
    }
}

#[test]
fn hosts_have_flows_with_hosts() {
    let group = |name: &str, port: &str, keys: &str| {
        format!("[[host]]\nname = \"{name}\"\nport = \"{port}\"\nvlan = 7\n{keys}\n")
    };
    for (link, clients, servers) in [
        (
            "both4",
            "ipv4 = \"10.0.0.2/16\"\ngateway = \"10.0.0.3\"",
            "ipv4 = \"10.0.0.3/16\"\ngateway = \"10.0.0.2\"",
        ),
        (
            "both6",
            "ipv6 = \"2001:db8::2/64\"\ngateway6 = \"2001:db8::3\"",
            "ipv6 = \"2001:db8::3/64\"\ngateway6 = \"2001:db8::2\"",
        ),
    ] {
        let groups = group("clients", "C", clients) + &group("servers", "S", servers);
        let flows = "[flows]\nclients = \"C\"\nservers = \"S\"\n[[template]]\nname = \
                     \"web\"\napp = \"http-get\"\nclients = \"host:clients\"\nservers = \
                     \"host:servers\"\ncps = 100\nstart = \"3 s\"\n";
        let report = run(link, "duration = \"5 s\"", &(groups + flows));
        let total = report.flows.as_ref().unwrap().total.clone();
        let (client, server) = (total.client.unwrap(), total.server.unwrap());
        assert_eq!((client.attempted, client.completed), (200, 200), "{client:?}");
        assert_eq!((server.attempted, server.completed), (200, 200), "{server:?}");
        assert!(report.verdict.valid, "{:?}", report.verdict);
    }
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
    let text =
        wrong("name = \"clients\"\n", "name = \"clients\"\nipv4 = \"none\"\nlldp = \"9 s\"\n");
    assert!(text.contains("hosts \"clients\" have no addresses"), "{text}");
    let text = wrong("name = \"clients\"\n", "name = \"clients\"\nipv6 = \"slaac\"\n");
    assert!(text.contains("addresses of different families"), "{text}");
    let text = wrong("48.0.0.1-48.0.0.4", "host:clients");
    assert!(text.contains("its servers are the hosts \"clients\" of another port"), "{text}");
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
fn frames_of_hosts_and_flows_are_in_the_fingerprint_of_their_port() {
    let groups = clients("count = 20\nrelease = true\narp = \"silent\"")
        + &server("arp = \"silent\"")
        + "[flows]\nclients = \"C\"\nservers = \"S\"\n[[template]]\nname = \"web\"\napp = \
           \"http\"\nclients = \"16.0.0.1-16.0.0.9\"\nservers = \"48.0.0.1\"\ncps = 100\n";
    let pid = std::process::id();
    let text = format!(
        "duration = \"2 s\"\n[ports]\nC = \"loop:print-{pid},virtual\"\nS = \
         \"loop:print-{pid},virtual\"\n{groups}"
    );
    let profile = Profile::parse(&text, "hosts.toml", Format::Toml).unwrap();
    let options = RunOptions { fingerprint: Some(true), ..RunOptions::default() };
    let session = Session::new(profile).with(options).unwrap();
    let report = session.open().unwrap().start().unwrap().finish().unwrap();
    let [clients, servers] = &report.ports[..] else { panic!("two ports") };
    for (from, to) in [(clients, servers), (servers, clients)] {
        assert_eq!(from.tx.packets, to.rx.packets, "{}", from.name);
        assert_eq!(from.tx.fingerprint, to.rx.fingerprint, "{}", from.name);
        assert_ne!(from.tx.fingerprint, Some("0".repeat(32)), "{}", from.name);
    }
}

#[test]
fn a_search_reads_hosts_in_parts_and_finds_those_of_one_reading() {
    let pid = std::process::id();
    let hosts = clients("count = 20000\nipv4 = \"10.0.0.1/8\"\narp = \"silent\"");
    let text = format!(
        "duration = \"1 s\"\n[ports]\nC = \"loop:search-{pid},virtual\"\nS = \
         \"loop:search-{pid},virtual\"\n{hosts}"
    );
    let profile = Profile::parse(&text, "hosts.toml", Format::Toml).unwrap();
    let mut run = Session::new(profile).open().unwrap().start().unwrap();
    while !run.wait(Duration::from_secs(1)) {}
    let filter = "state=bound address=10.0.78.0/24".parse().unwrap();
    let question = HostQuestion { filter, offset: 2, limit: 3 };
    let (mut search, mut parts) = (HostSearch::new(question.clone()), 1);
    while !run.search_hosts(&mut search) {
        parts += 1;
    }
    let page = search.into_page();
    assert_eq!(page, run.hosts(&question));
    // The last host has 10.0.78.32.
    assert_eq!((parts, page.total, page.matching), (3, 20_000, 33));
    let numbers: Vec<u32> = page.rows.iter().map(|row| row.number).collect();
    assert_eq!(numbers, [19_970, 19_971, 19_972]);
    run.finish().unwrap();
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
fn hosts_ask_the_server_on_the_other_end_for_names() {
    let keys = "count = 20\nresolve = [\"www{}.test\", \"none\"]\nresolve_rate = 1000\nresolve_count = 4\n";
    let clients = clients(&format!("{keys}dns_server = \"10.0.0.1\""));
    let report = run("names", "", &(clients + &server("answers = \"*.test=10.0.0.9\"")));
    let dns = group(&report, "clients").dns.clone().unwrap();
    assert_eq!((dns.asked, dns.answered, dns.nxdomain, dns.timeouts), (80, 40, 40, 0), "{dns:?}");
    assert_eq!(dns.time_ns.unwrap().count, 80);
    let served = group(&report, "server").dns_server.clone().unwrap();
    assert_eq!((served.queries, served.answered, served.nxdomain), (80, 40, 40));
    assert!(report.verdict.valid, "{:?}", report.verdict);
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
    let of = |name: String| group(&report, &name).lacp.clone().unwrap();
    for number in 1..=2 {
        let (a, b) = (of(format!("A{number}")), of(format!("B{number}")));
        assert_eq!((a.up, b.up, a.down, b.down), (1, 1, 0, 0), "{a:?}");
        assert_eq!((&*a.partner.system, a.partner.key), ("02:00:00:00:00:02", 20));
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
fn flows_go_through_sessions_of_pppoe() {
    let captured = Captured::new("sessions");
    let keys = "vlan = 7\npppoe = \"chap\"";
    let clients = format!("count = 20\nsetup = \"100/s\"\nrelease = true\n{keys}");
    let flows = "[flows]\nclients = \"C\"\nservers = \"S\"\n[[template]]\nname = \"web\"\napp = \
                 \"http-get\"\nclients = \"host:clients\"\nservers = \"host:server\"\ncps = \
                 100\nstart = \"1 s\"\n";
    let report = run("sessions", &captured.keys(), &(pppoe(&clients, keys) + flows));
    let hosts = group(&report, "clients");
    assert_eq!(hosts.states, [("released".to_owned(), 20)].into(), "{hosts:?}");
    let total = report.flows.as_ref().unwrap().total.clone();
    for end in [total.client.unwrap(), total.server.unwrap()] {
        assert_eq!((end.attempted, end.completed), (200, 200), "{end:?}");
    }
    assert!(report.verdict.valid, "{:?}", report.verdict);

    // Ethernet and a tag, 6 octets of PPPoE, the protocol of PPP, IPv4 and TCP.
    let frames = captured.frames();
    let is_of_flow = |of: &&Vec<u8>| {
        of.get(16..20) == Some(&[0x88, 0x64, 0x11, 0]) && of[24..26] == [0, 0x21] && of[35] == 6
    };
    let word = |frame: &[u8], at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let mut sessions: BTreeMap<u16, BTreeSet<Vec<u8>>> = BTreeMap::new();
    let mut longest = 0;
    for frame in frames.iter().filter(is_of_flow) {
        assert_eq!((&frame[12..16], word(frame, 22)), (&[0x81, 0, 0, 7][..], word(frame, 28) + 2));
        longest = longest.max(word(frame, 28));
        let (mac, address) = match frame[38..42] == [10, 0, 0, 1] {
            true => (&frame[..6], &frame[42..46]),
            false => (&frame[6..12], &frame[38..42]),
        };
        sessions.entry(word(frame, 20)).or_default().insert([mac, address].concat());
    }
    assert_eq!((sessions.len(), longest), (20, 1492));
    assert!(sessions.values().all(|clients| clients.len() == 1), "{sessions:?}");
}

#[test]
fn names_are_asked_for_and_answered_in_sessions_of_pppoe() {
    let clients = "count = 20\npppoe = \"any\"\nppp_dns = true\nresolve = [\"www{}.test\", \
                   \"none\"]\nresolve_rate = 1000\nresolve_count = 4\nanswers = \
                   \"*.test=10.0.0.9\"";
    let server = "pppoe = \"pap\"\nanswers = \"*.test=10.0.0.9\"";
    // The server's host also asks the clients, as flows to which their own protocol answers.
    let flows = "[flows]\nclients = \"S\"\n[[template]]\nname = \"asks\"\napp = \"dns\"\nclients \
                 = \"host:server\"\nservers = \"host:clients\"\ncps = 100\nstart = \"1 s\"\n";
    let groups = pppoe(clients, server) + flows;
    let report = run("sessions-names", "duration = \"2 s\"", &groups);
    let dns = group(&report, "clients").dns.clone().unwrap();
    assert_eq!((dns.asked, dns.answered, dns.nxdomain, dns.timeouts), (80, 40, 40, 0), "{dns:?}");
    let served = |name| group(&report, name).dns_server.clone().unwrap();
    let of = served("server");
    assert_eq!((of.queries, of.answered, of.nxdomain), (80, 40, 40));
    assert_eq!((served("clients").queries, served("clients").answered), (100, 100));
    let flows = report.flows.as_ref().unwrap().total.client.clone().unwrap();
    assert_eq!((flows.attempted, flows.completed), (100, 100), "{flows:?}");
    assert!(report.verdict.valid, "{:?}", report.verdict);
}

#[test]
fn streams_leave_in_sessions_of_pppoe_and_come_as_frames_of_the_concentrator() {
    let captured = Captured::new("session-streams");
    let keys = "vlan = 7\npppoe = \"chap\"";
    let clients = format!("count = 20\nsetup = \"100/s\"\nrelease = true\n{keys}");
    let stream = |ends: &str, packet: &str| {
        format!(
            "[[stream]]\n{ends}\npacket = \"{packet}\"\nrate = \"200 pps\"\nsize = \
             \"imix:3b2d1f\"\nlatency = true\n"
        )
    };
    let up = stream("port = \"C\"\nsrc = \"host:clients\"", "eth/ipv4(dst=48.0.0.1)/udp");
    let down = "eth/vlan(id=7)/ipv4(src=48.0.0.1)/udp";
    let down = stream("port = \"S\"\ndst = \"host:clients\"", down);
    let report = run("session-streams", &captured.keys(), &(pppoe(&clients, keys) + &up + &down));
    let hosts = group(&report, "clients");
    assert_eq!(hosts.states, [("released".to_owned(), 20)].into(), "they waited for the frames");
    for stream in &report.streams {
        let rx = stream.rx.as_ref().unwrap();
        assert!(stream.tx_packets > 500, "{stream:?}");
        assert_eq!((rx.packets, rx.lost), (stream.tx_packets, 0));
    }
    assert!(report.verdict.valid, "{:?}", report.verdict);

    // Ethernet and a tag, 6 octets of PPPoE, the protocol of PPP, IPv4 and UDP.
    let frames = captured.frames();
    let is_of_stream = |of: &&Vec<u8>| {
        of.get(16..20) == Some(&[0x88, 0x64, 0x11, 0]) && of[24..26] == [0, 0x21] && of[35] == 17
    };
    let word = |frame: &[u8], at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let mut sessions: BTreeMap<u16, BTreeSet<Vec<u8>>> = BTreeMap::new();
    let (mut counts, mut lengths) = ([0, 0], BTreeSet::new());
    for frame in frames.iter().filter(is_of_stream) {
        assert_eq!((&frame[12..16], word(frame, 22)), (&[0x81, 0, 0, 7][..], word(frame, 28) + 2));
        lengths.insert(word(frame, 28));
        let is_down = frame[38..42] == [48, 0, 0, 1];
        counts[usize::from(is_down)] += 1;
        let (client, server, address) = match is_down {
            true => (&frame[..6], &frame[6..12], &frame[42..46]),
            false => (&frame[6..12], &frame[..6], &frame[38..42]),
        };
        sessions.entry(word(frame, 20)).or_default().insert([client, server, address].concat());
    }
    assert_eq!(counts, [report.streams[0].tx_packets, report.streams[1].tx_packets]);
    assert_eq!((sessions.len(), lengths.len()), (20, 3), "{lengths:?}");
    assert!(sessions.values().all(|ends| ends.len() == 1), "{sessions:?}");
}

#[test]
fn streams_in_sessions_are_checked() {
    for (ends, packet, expected) in [
        ("port = \"S\"\nsrc = \"host:server\"", "eth/ipv4/udp", "are an access concentrator"),
        (
            "port = \"C\"\nsrc = \"host:clients\"",
            "eth/pppoe(session=5)/ppp/ipv4/udp",
            "the packet sets pppoe.session",
        ),
        ("port = \"C\"\nsrc = \"host:clients\"", "eth/pppoe/ppp/ipv6/udp", "has no ipv4.src"),
    ] {
        let stream = format!("[[stream]]\n{ends}\npacket = \"{packet}\"\nrate = 1\n");
        let groups = pppoe("pppoe = \"any\"", "pppoe = \"any\"") + &stream;
        let text = format!("[ports]\nC = \"loop:x,virtual\"\nS = \"loop:x,virtual\"\n{groups}");
        let profile = Profile::parse(&text, "hosts.toml", Format::Toml).unwrap();
        let text = Session::new(profile).plan_only().err().unwrap().to_string();
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

#[test]
fn attacks_leave_in_sessions_of_pppoe_and_come_as_frames_of_the_concentrator() {
    let keys = "vlan = 7\npppoe = \"chap\"";
    let clients = format!("count = 10\nsetup = \"100/s\"\nrelease = true\n{keys}");
    let attack = |what: &str| {
        format!(
            "[[attack]]\nname = \"attack\"\nport = \"C\"\nport2 = \"S\"\nclients = \
             \"host:clients\"\nstart = \"1 s\"\nrate = 20\n{what}\n"
        )
    };
    // The servers are no hosts; they are the concentrator's host.
    let others = "template = \"syn-scan\"\ninside = \"48.0.0.1-48.0.0.20\"\noptions = { ports = \
                  \"80\" }";
    let own = "template = \"syn-scan\"\nservers = \"host:server\"\noptions = { ports = \"1-20\" }";
    for (link, what, server) in
        [("session-attacks", others, [48, 0, 0]), ("session-servers", own, [10, 0, 0])]
    {
        let captured = Captured::new(link);
        let groups = pppoe(&clients, keys) + &attack(what);
        let (report, labels) = run_attacks(link, &captured.keys(), &groups);
        let hosts = group(&report, "clients");
        assert_eq!(hosts.states, [("released".to_owned(), 10)].into(), "after the last frame");
        let scan = &report.attacks[0];
        assert_eq!((scan.attacks, scan.frames, scan.unsent.len()), (20, 40, 0), "{scan:?}");
        let passed = scan.passage.as_ref().map(|of| (of.as_frames, of.passed, of.altered));
        assert_eq!(passed, (what == others).then_some((20, 20, 0)), "{scan:?}");
        assert!(report.verdict.valid, "{:?}", report.verdict);

        // Ethernet and a tag, 6 octets of PPPoE, the protocol of PPP, IPv4 and TCP.
        let frames = captured.frames();
        let is_of_attack = |of: &&Vec<u8>| {
            of.get(16..20) == Some(&[0x88, 0x64, 0x11, 0]) && of[24..26] == [0, 0x21] && of[35] == 6
        };
        let word = |frame: &[u8], at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
        let mut sessions: BTreeMap<u16, BTreeSet<Vec<u8>>> = BTreeMap::new();
        let (mut counts, mut sent) = ([0, 0], BTreeSet::new());
        for frame in frames.iter().filter(is_of_attack) {
            assert_eq!(frame[12..16], [0x81, 0, 0, 7]);
            assert_eq!(word(frame, 22), word(frame, 28) + 2);
            assert!(is_tcp_right(&[&frame[..18], &frame[26..]].concat()), "{frame:?}");
            let is_down = frame[38..41] == server;
            counts[usize::from(is_down)] += 1;
            let (client, concentrator, address) = match is_down {
                true => (&frame[..6], &frame[6..12], &frame[42..46]),
                false => (&frame[6..12], &frame[..6], &frame[38..42]),
            };
            sent.insert(format!("{}.{}.{}.{}", address[0], address[1], address[2], address[3]));
            let ends = [client, concentrator, address].concat();
            sessions.entry(word(frame, 20)).or_default().insert(ends);
        }
        assert_eq!((counts, sessions.len()), ([20, 20], 10));
        assert!(sessions.values().all(|ends| ends.len() == 1), "{sessions:?}");
        let labeled: BTreeSet<_> = labels.iter().map(|of| of["source"].clone()).collect();
        assert_eq!((labels.len(), labeled), (20, sent));
    }
}

#[test]
fn packets_of_rules_fit_into_sessions_and_their_alerts_are_owed() {
    let file = std::env::temp_dir().join(format!("squall-sessions-{}.rules", std::process::id()));
    let rule = "alert udp any any -> any 9000 (msg:\"T\"; content:\"squall\"; dsize:1600; \
                sid:1;)\n";
    std::fs::write(&file, rule).unwrap();
    let keys = "pppoe = \"pap\"\nmru = 1400";
    let attack = format!(
        "[[attack]]\nname = \"attack\"\nport = \"C\"\nclients = \"host:clients\"\nstart = \"1 \
         s\"\nrules = {file:?}\n"
    );
    let captured = Captured::new("session-rules");
    let groups = pppoe(&format!("count = 10\nsetup = \"100/s\"\n{keys}"), keys) + &attack;
    let (report, labels) = run_attacks("session-rules", &captured.keys(), &groups);
    std::fs::remove_file(&file).unwrap();
    let owed = labels.iter().map(|of| (of["frames"].as_str(), of["alerts"].as_str()));
    assert_eq!(owed.collect::<Vec<_>>(), [("2", "1")], "{:?}", report.attacks);
    let frames = captured.frames();
    let is_udp = |of: &&Vec<u8>| of[12..16] == [0x88, 0x64, 0x11, 0] && of[31] == 17;
    let lengths = frames.iter().filter(is_udp).map(|of| u16::from_be_bytes([of[24], of[25]]));
    // 1608 octets in fragments, the first one with a multiple of eight.
    assert_eq!(lengths.collect::<Vec<_>>(), [20 + 1376, 20 + 1608 - 1376]);
}

#[test]
fn attacks_in_sessions_are_checked() {
    for (ends, mru, expected) in [
        ("port = \"S\"\nclients = \"host:server\"", 1492, "only has sessions with its clients"),
        ("port = \"C\"\nclients = \"host:clients\"", 575, "have mru = 575"),
    ] {
        let attack = format!("[[attack]]\nname = \"scan\"\n{ends}\ntemplate = \"syn-scan\"\n");
        let clients = format!("pppoe = \"any\"\nmru = {mru}");
        let groups = pppoe(&clients, "pppoe = \"any\"") + &attack;
        let text = format!("[ports]\nC = \"loop:x,virtual\"\nS = \"loop:x,virtual\"\n{groups}");
        let profile = Profile::parse(&text, "hosts.toml", Format::Toml).unwrap();
        let text = Session::new(profile).check_only().err().unwrap().to_string();
        assert!(text.contains(expected), "{expected}: {text}");
    }
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

/// Clients of DHCP in VLAN 7 that attack servers, which are reached through the server's host.
fn attackers(clients: &str, attack: &str) -> String {
    let server = server("vlan = 7\nmac = \"02:00:00:00:99:01\"\ngateway = \"10.0.0.1\"");
    format!(
        "{}{server}[[attack]]\nname = \"attack\"\nport = \"C\"\nport2 = \"S\"\nclients = \
         \"host:clients\"\nstart = \"1 s\"\n{attack}\n",
        self::clients(&format!("vlan = 7\n{clients}")),
    )
}

/// As [`run`], with labels: all columns of each, by name.
fn run_attacks(link: &str, shared: &str, groups: &str) -> (Report, Vec<BTreeMap<String, String>>) {
    let pid = std::process::id();
    let ports = format!("C = \"loop:{link}-{pid},virtual\"\nS = \"loop:{link}-{pid},virtual\"");
    let text = format!("{shared}\n[ports]\n{ports}\n{groups}");
    let profile =
        Profile::parse(&text, "hosts.toml", Format::Toml).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let labels = std::env::temp_dir().join(format!("squall-hosts-{link}-{pid}.csv"));
    let mut session = Session::new(profile);
    session.options.labels = Some(labels.clone());
    let report = session.open().unwrap().start().unwrap().finish().unwrap();
    let text = std::fs::read_to_string(&labels).unwrap();
    std::fs::remove_file(&labels).unwrap();
    let mut lines = text.lines().map(|line| line.split(',').map(str::to_owned));
    let names: Vec<_> = lines.next().unwrap().collect();
    (report, lines.map(|line| names.iter().cloned().zip(line).collect()).collect())
}

/// Whether the checksums of an IPv4 packet of TCP at offset 18 are right.
fn is_tcp_right(frame: &[u8]) -> bool {
    let sum = |octets: &[u8]| -> u32 {
        let words = octets.chunks(2);
        words.map(|w| u32::from(w[0]) << 8 | u32::from(*w.get(1).unwrap_or(&0))).sum()
    };
    let fold = |sum: u32| (sum >> 16) + (sum & 0xffff);
    let packet = &frame[18..18 + usize::from(u16::from_be_bytes([frame[20], frame[21]]))];
    let segment = &packet[20..];
    let pseudo = sum(&packet[12..20]) + 6 + segment.len() as u32;
    fold(sum(&packet[..20])) == 0xffff && fold(fold(pseudo + sum(segment))) == 0xffff
}

#[test]
fn attacks_leave_from_the_leases_of_hosts_and_labels_have_these() {
    let captured = Captured::new("attacks");
    let attack = "template = \"syn-scan\"\nrate = 20\ninside = \"48.0.0.1-48.0.0.20\"\noptions = { \
                  ports = \"80\" }";
    let groups = attackers("count = 10\nsetup = \"100/s\"\nrelease = true", attack);
    let (report, labels) = run_attacks("attacks", &captured.keys(), &groups);
    let hosts = group(&report, "clients");
    assert_eq!((hosts.bound, hosts.states.get("released")), (10, Some(&10)), "{hosts:?}");
    let scan = &report.attacks[0];
    assert_eq!((scan.attacks, scan.frames, scan.unsent.len()), (20, 40, 0), "{scan:?}");
    let passage = scan.passage.as_ref().unwrap();
    assert_eq!((passage.as_frames, passage.passed, passage.altered), (20, 20, 0), "{passage:?}");
    assert!(report.verdict.valid, "{:?}", report.verdict);

    let frames = captured.frames();
    let leases = leases(&frames);
    let owner = |address: &[u8]| *leases.iter().find(|(_, lease)| lease[..] == *address).unwrap().0;
    let mut turns: BTreeMap<[u8; 6], u64> = BTreeMap::new();
    let mut sent = BTreeSet::new();
    let (mut there, mut back) = (0, 0);
    for frame in frames.iter().filter(|of| of[16..18] == [8, 0] && of[27] == 6) {
        assert_eq!(frame[12..16], [0x81, 0, 0, 7]);
        assert!(is_tcp_right(frame), "{frame:?}");
        if frame[34] == 48 {
            let mac: [u8; 6] = frame[6..12].try_into().unwrap();
            assert_eq!((&frame[..6], &frame[30..34]), (&GATEWAY_MAC[..], &leases[&mac][..]));
            let [a, b, c, d] = leases[&mac];
            sent.insert((format!("{a}.{b}.{c}.{d}"), format!("48.0.0.{}", frame[37])));
            *turns.entry(mac).or_default() += 1;
            there += 1;
        } else {
            // The server's answer, from no host: to the MAC address of the host.
            assert_eq!((frame[30], &frame[6..12]), (48, &[2, 0, 0, 0, 0, 2][..]));
            assert_eq!(frame[..6], owner(&frame[34..38]));
            back += 1;
        }
    }
    assert_eq!((there, back), (20, 20));
    assert_eq!((turns.len(), turns.values().max()), (10, Some(&2)), "hosts take turns");
    let labeled: BTreeSet<_> =
        labels.iter().map(|of| (of["source"].clone(), of["destination"].clone())).collect();
    assert_eq!((labels.len(), labeled), (20, sent));
}

#[test]
fn an_attack_whose_hosts_have_no_address_sends_nothing_and_says_why() {
    let attack = "template = \"syn-scan\"\nrate = 20\noptions = { ports = \"1-20\" }";
    // The other host serves no addresses.
    let groups = attackers("count = 5\nretry = \"1 s\"\ntries = 2", attack)
        .replace("serve = \"10.0.1.0-10.0.8.255\"", "");
    let (report, labels) = run_attacks("noattack", "duration = \"4 s\"", &groups);
    let scan = &report.attacks[0];
    assert_eq!((scan.attacks, &scan.unsent), (20, &[("no_host".to_owned(), 20)].into()));
    assert_eq!(labels.len(), 0, "{labels:?}");
    let not_sent: u64 =
        report.sources.iter().filter_map(|source| source.not_sent.get("no_host")).sum();
    assert_eq!(not_sent, scan.frames);
    let reasons = report.verdict.reasons.iter().map(ToString::to_string).collect::<Vec<_>>();
    let reason = "not-done: attack \"attack\": none of 20 attacks was sent: no host had an address";
    assert!(reasons.iter().any(|of| of.starts_with(reason)), "{reasons:?}");
}

#[test]
fn a_lease_that_ends_in_mid_run_ends_the_attacks_of_its_host_with_the_reason() {
    let captured = Captured::new("lost");
    // Conversations of about half a second, so that each host has some at any time.
    let attack = "template = \"http-brute-force\"\nrate = 20\ngap = \"50 ms\"\ninside = \
                  \"48.0.0.1-48.0.0.50\"\noptions = { count = \"40\" }";
    // Another host announces the address of a client, which has to give it up (RFC 5227).
    let intruder = "[[host]]\nname = \"intruder\"\nport = \"S\"\nvlan = 7\nipv4 = \
                    \"10.0.1.2/16\"\nstart = \"2 s\"\n";
    let groups = attackers("count = 5\nsetup = \"100/s\"", attack) + intruder;
    let (report, labels) = run_attacks("lost", &captured.keys().replace("3 s", "5 s"), &groups);
    assert_eq!(group(&report, "clients").bound, 5);
    let attacks = &report.attacks[0];
    let lost = attacks.unsent["address_lost"];
    assert!(lost > 0 && attacks.unsent.len() == 1, "{attacks:?}");
    let cut: Vec<_> = labels.iter().filter(|of| of["note"] == "cut short: address_lost").collect();
    assert_eq!((cut.len() as u64, labels.len()), (lost, 40), "{labels:?}");
    assert!(cut.iter().all(|of| of["source"] == "10.0.1.2"), "{cut:?}");
    let frames: u64 = labels.iter().map(|of| of["frames"].parse::<u64>().unwrap()).sum();
    let not_sent: u64 =
        report.sources.iter().filter_map(|source| source.not_sent.get("address_lost")).sum();
    assert!(not_sent > 0);
    assert_eq!(frames + not_sent, attacks.frames);
    // Nothing leaves from the address after it was lost, and other hosts go on.
    let all = captured.frames();
    let tcp = all.iter().filter(|of| of[16..18] == [8, 0] && of[27] == 6);
    assert_eq!(tcp.count() as u64, frames);
    let after = labels.iter().filter(|of| of["begin"].parse::<f64>().unwrap() >= 2.1);
    let sources: BTreeSet<_> = after.map(|of| of["source"].as_str()).collect();
    assert_eq!((sources.len(), sources.contains("10.0.1.2")), (4, false), "{sources:?}");
    assert!(report.verdict.valid, "{:?}", report.verdict);
}

#[test]
fn rules_that_exclude_the_address_of_a_host_owe_no_alert() {
    let file = std::env::temp_dir().join(format!("squall-hosts-{}.rules", std::process::id()));
    let rules = "alert udp $EXTERNAL_NET any -> $HOME_NET 9000 (msg:\"T\"; content:\"squall\"; sid:1;)\n\
                 alert icmp $EXTERNAL_NET any -> $HOME_NET any (msg:\"E\"; itype:3; sid:2;)\n";
    std::fs::write(&file, rules).unwrap();
    let run = |link: &str, more: &str| {
        let attack = format!("rules = {file:?}\nrate = 10\nrepeat = 3\n{more}");
        let groups = attackers("count = 3\nsetup = \"100/s\"", &attack);
        run_attacks(link, "duration = \"3 s\"", &groups)
    };
    let owed = |labels: &[BTreeMap<String, String>]| -> Vec<(String, String)> {
        labels.iter().map(|of| (of["sid"].clone(), of["alerts"].clone())).collect()
    };
    // The addresses of DHCP are inside, but those of the rule's clients are outside.
    let (report, labels) = run("inside", "");
    let attacks = &report.attacks[0];
    assert_eq!((attacks.unseen, labels.len()), (3, 3), "{attacks:?}");
    // The error of ICMP quotes a packet to its sender.
    assert_eq!(attacks.left_out.get("own_address"), Some(&3), "{attacks:?}");
    assert!(owed(&labels).iter().all(|of| *of == ("1".into(), "0".into())), "{labels:?}");
    let net = "variables = { HOME_NET = \"48.0.0.0/8\", EXTERNAL_NET = \"!$HOME_NET\" }";
    let (report, labels) = run("outside", &format!("{net}\ninside = \"48.0.0.1-48.0.0.9\""));
    assert_eq!(report.attacks[0].unseen, 0);
    assert_eq!(owed(&labels), vec![("1".to_owned(), "1".to_owned()); 3]);
    assert!(labels.iter().all(|of| of["source"].starts_with("10.0.1.")), "{labels:?}");
    std::fs::remove_file(&file).unwrap();
}

/// A live attack with conversations over TCP and UDP, and with echo requests as frames.
fn live_attack(file: &std::path::Path, clients: &str) -> String {
    let rules = "alert tcp any any -> any 8080 (msg:\"T\"; flow:to_server,established; \
                 content:\"squall\"; sid:1;)\n\
                 alert udp any any -> any 9000 (msg:\"U\"; content:\"squall\"; sid:2;)\n\
                 alert icmp any any -> any any (msg:\"I\"; itype:8; content:\"squall\"; sid:3;)\n";
    std::fs::write(file, rules).unwrap();
    let servers = "{ mac = \"02:00:00:00:99:01\", wrap = \"vlan 7\" }";
    let attack =
        format!("rules = {file:?}\nlive = true\nrate = 30\nrepeat = 4\nserver_network = {servers}");
    attackers(clients, &attack)
}

#[test]
fn live_attacks_begin_from_the_leases_of_hosts_and_labels_have_these() {
    let file = std::env::temp_dir().join(format!("squall-live-{}.rules", std::process::id()));
    let captured = Captured::new("live");
    let groups = live_attack(&file, "count = 3\nsetup = \"100/s\"\nrelease = true");
    let (report, labels) = run_attacks("live", &captured.keys(), &groups);
    std::fs::remove_file(&file).unwrap();
    let hosts = group(&report, "clients");
    assert_eq!((hosts.bound, hosts.states.get("released")), (3, Some(&3)), "{hosts:?}");
    let attacks = &report.attacks[0];
    assert_eq!((attacks.attacks, attacks.unsent.len(), labels.len()), (12, 0, 12), "{attacks:?}");
    let passage = attacks.passage.as_ref().unwrap();
    let counts = (passage.conversations, passage.as_frames, passage.passed);
    assert_eq!(counts, (12, 4, 12), "{passage:?}");
    assert!(labels.iter().all(|of| of["alerts"] == "1"), "{labels:?}");
    assert!(report.verdict.valid, "{:?}", report.verdict);

    // The first segments of connections, datagrams, and echo requests, as they were sent.
    let frames = captured.frames();
    let leases = leases(&frames);
    let address = |at: &[u8]| format!("{}.{}.{}.{}", at[0], at[1], at[2], at[3]);
    let mut sent = BTreeSet::new();
    for frame in frames.iter().filter(|of| of[16..18] == [8, 0] && of[34..36] == [198, 19]) {
        let mac: [u8; 6] = frame[6..12].try_into().unwrap();
        assert_eq!((&frame[..6], &frame[12..16]), (&GATEWAY_MAC[..], &[0x81, 0, 0, 7][..]));
        assert_eq!(frame[30..34], leases[&mac], "{frame:?}");
        sent.insert((frame[27].to_string(), address(&frame[30..34]), address(&frame[34..38])));
    }
    let labeled: BTreeSet<_> = labels
        .iter()
        .map(|of| (of["protocol"].clone(), of["source"].clone(), of["destination"].clone()))
        .collect();
    assert_eq!(labeled, sent);
    let sources: BTreeSet<_> = labels.iter().map(|of| of["source"].as_str()).collect();
    assert_eq!(sources.len(), 3, "hosts take turns: {sources:?}");
}

#[test]
fn live_attacks_whose_hosts_have_no_address_send_nothing_and_say_why() {
    let file = std::env::temp_dir().join(format!("squall-nolive-{}.rules", std::process::id()));
    let groups = live_attack(&file, "count = 2\nretry = \"1 s\"\ntries = 2")
        .replace("serve = \"10.0.1.0-10.0.8.255\"", "");
    let (report, labels) = run_attacks("nolive", "duration = \"4 s\"", &groups);
    std::fs::remove_file(&file).unwrap();
    let attacks = &report.attacks[0];
    assert_eq!((attacks.attacks, &attacks.unsent), (12, &[("no_host".to_owned(), 12)].into()));
    assert_eq!((labels.len(), attacks.passage.is_none()), (0, true), "{labels:?} {attacks:?}");
    let reasons = report.verdict.reasons.iter().map(ToString::to_string).collect::<Vec<_>>();
    let reason = "not-done: attack \"attack\": none of 12 attacks was sent: no host had an address";
    assert!(reasons.iter().any(|of| of.starts_with(reason)), "{reasons:?}");
}

/// Attacks over TCP of five hosts, each with one, without answers: there is no port of servers. The
/// second rule matches only answers.
fn unanswered(file: &std::path::Path) -> String {
    let rules = "alert tcp any any -> any 8080 (msg:\"T\"; content:\"squall\"; sid:1;)\n\
                 alert tcp any 8080 -> any any (flow:to_client,established; content:\"b\"; sid:2;)\n";
    std::fs::write(file, rules).unwrap();
    format!(
        "[[attack]]\nname = \"attack\"\nport = \"C\"\nclients = \"host:clients\"\nstart = \"1 \
         s\"\nrules = {file:?}\nlive = true\nrate = 50\nrepeat = 5\n"
    )
}

#[test]
fn a_lease_that_ends_in_mid_run_ends_the_live_attacks_of_its_host_with_the_reason() {
    let file = std::env::temp_dir().join(format!("squall-lostlive-{}.rules", std::process::id()));
    let captured = Captured::new("lostlive");
    let server = server("vlan = 7\nmac = \"02:00:00:00:99:01\"\ngateway = \"10.0.0.1\"");
    // It announces the address of a client, which has to give it up (RFC 5227).
    let intruder = "[[host]]\nname = \"intruder\"\nport = \"S\"\nvlan = 7\nipv4 = \
                    \"10.0.1.2/16\"\nstart = \"1500 ms\"\n";
    let clients = clients("vlan = 7\ncount = 5\nsetup = \"100/s\"");
    let groups = clients + &server + intruder + &unanswered(&file);
    let (report, labels) = run_attacks("lostlive", &captured.keys(), &groups);
    std::fs::remove_file(&file).unwrap();
    let attacks = &report.attacks[0];
    let unsent = [("address_lost", 1), ("stopped", 4)].map(|(why, n)| (why.to_owned(), n));
    assert_eq!((attacks.attacks, &attacks.unsent), (5, &unsent.into()), "{labels:?}");
    assert_eq!(attacks.left_out, [("needs_server".to_owned(), 5)].into());
    assert!(attacks.passage.is_none(), "nothing is known of the servers");
    let cut: Vec<_> = labels.iter().filter(|of| of["note"] == "cut short: address_lost").collect();
    assert_eq!((labels.len(), cut.len()), (5, 1), "{labels:?}");
    assert_eq!(cut[0]["source"].as_str(), "10.0.1.2");
    assert!(labels.iter().all(|of| of["alerts"] == "0"), "{labels:?}");

    // The others repeat their first segments.
    let frames = captured.frames();
    let mut counts: BTreeMap<u8, u64> = BTreeMap::new();
    for frame in frames.iter().filter(|of| of[16..18] == [8, 0] && of[27] == 6) {
        assert_eq!((&frame[..6], &frame[30..33]), (&GATEWAY_MAC[..], &[10, 0, 1][..]));
        *counts.entry(frame[33]).or_default() += 1;
    }
    assert_eq!((counts.len(), counts.remove(&2)), (5, Some(1)), "{counts:?}");
    assert!(counts.values().all(|count| *count > 1), "{counts:?}");
}

#[test]
fn live_attacks_leave_in_sessions_of_pppoe() {
    let file = std::env::temp_dir().join(format!("squall-pppoelive-{}.rules", std::process::id()));
    let captured = Captured::new("pppoelive");
    let keys = "vlan = 7\npppoe = \"chap\"";
    let clients = format!("count = 5\nsetup = \"100/s\"\n{keys}");
    let groups = pppoe(&clients, keys) + &unanswered(&file);
    let (report, labels) = run_attacks("pppoelive", &captured.keys(), &groups);
    std::fs::remove_file(&file).unwrap();
    let unsent = &report.attacks[0].unsent;
    assert_eq!((unsent, labels.len()), (&[("stopped".to_owned(), 5)].into(), 5), "{labels:?}");
    let owes_nothing =
        |of: &BTreeMap<String, String>| of["alerts"] == "0" && of["note"] == "cut short: stopped";
    assert!(labels.iter().all(owes_nothing), "{labels:?}");
    let frames = captured.frames();
    let mut sent: BTreeMap<String, BTreeSet<[u8; 2]>> = BTreeMap::new();
    let is_tcp = |of: &&Vec<u8>| {
        of.get(16..20) == Some(&[0x88, 0x64, 0x11, 0]) && of[24..26] == [0, 0x21] && of[35] == 6
    };
    for frame in frames.iter().filter(is_tcp) {
        assert_eq!(frame[12..16], [0x81, 0, 0, 7]);
        let source = frame[38..42].iter().map(u8::to_string).collect::<Vec<_>>().join(".");
        sent.entry(source).or_default().insert([frame[20], frame[21]]);
    }
    let sources: BTreeSet<_> = labels.iter().map(|of| of["source"].clone()).collect();
    assert_eq!(sent.keys().cloned().collect::<BTreeSet<_>>(), sources);
    let sessions: BTreeSet<_> = sent.values().flatten().collect();
    assert_eq!((sessions.len(), sent.values().map(BTreeSet::len).sum::<usize>()), (5, 5));
}

#[test]
fn attacks_between_hosts_have_the_addresses_of_both_and_leave_through_their_gateways() {
    let captured = Captured::new("between");
    let router = "[[host]]\nname = \"router\"\nport = \"C\"\nvlan = 7\nmac = \
                  \"02:00:00:00:88:01\"\nipv4 = \"10.0.0.254/16\"\n";
    let servers = "[[host]]\nname = \"servers\"\nport = \"S\"\nvlan = 7\nmac = \
                   \"02:00:00:00:77:01\"\ncount = 3\nipv4 = \"10.0.0.50/16\"\ngateway = \
                   \"10.0.0.254\"\n";
    let attack = "servers = \"host:servers\"\ntemplate = \"syn-scan\"\nrate = 20\noptions = { \
                  ports = \"1-6\" }";
    let groups = attackers("count = 2\nsetup = \"100/s\"", attack) + router + servers;
    let (report, labels) = run_attacks("between", &captured.keys(), &groups);
    assert_eq!((report.attacks[0].unsent.len(), labels.len()), (0, 6), "{:?}", report.attacks);
    assert_eq!(report.attacks[0].passage, None, "no end has addresses of its own");
    let frames = captured.frames();
    let leases = leases(&frames);
    let (mut there, mut back) = (0, 0);
    for frame in frames.iter().filter(|of| of[16..18] == [8, 0] && of[27] == 6) {
        assert!(is_tcp_right(frame));
        let from: [u8; 6] = frame[6..12].try_into().unwrap();
        let server = |mac: &[u8]| [10, 0, 0, 50 + mac[5] - 1];
        if let Some(lease) = leases.get(&from) {
            assert_eq!((&frame[..6], &frame[30..34]), (&GATEWAY_MAC[..], &lease[..]));
            assert!((50..53).contains(&frame[37]));
            there += 1;
        } else {
            assert_eq!(
                (&frame[..6], &frame[30..34]),
                (&[2, 0, 0, 0, 0x88, 1][..], &server(&from)[..])
            );
            assert!(leases.values().any(|lease| lease[..] == frame[34..38]));
            back += 1;
        }
    }
    assert_eq!((there, back), (6, 6));
    assert!(labels.iter().all(|of| of["destination"].starts_with("10.0.0.5")), "{labels:?}");
}

#[test]
fn attacks_have_the_ipv6_addresses_of_hosts_without_ipv4() {
    let captured = Captured::new("attacks6");
    let router = "[[host]]\nname = \"router\"\nport = \"S\"\nmac = \"02:00:00:00:99:01\"\nipv6 = \
                  \"2001:db8:1::1/64\"\nadvertise = \"2001:db8:1::/64\"\n";
    let attack = "[[attack]]\nname = \"scan\"\nport = \"C\"\nport2 = \"S\"\nclients = \
                  \"host:clients\"\ntemplate = \"ping-sweep\"\nstart = \"6 s\"\nrate = 20\ninside = \
                  \"2001:db8:48::1-2001:db8:48::8\"\n";
    let clients = clients("count = 4\nipv6 = \"slaac\"");
    let shared = captured.keys().replace("3 s", "8 s");
    let (report, labels) = run_attacks("attacks6", &shared, &(clients + router + attack));
    let scan = &report.attacks[0];
    assert_eq!((scan.attacks, scan.unsent.len()), (8, 0), "{scan:?}");
    assert_eq!(scan.passage.as_ref().map(|of| (of.passed, of.altered)), Some((8, 0)), "{scan:?}");
    let sources: BTreeSet<_> = labels.iter().map(|of| of["source"].as_str()).collect();
    assert_eq!((labels.len(), sources.len()), (8, 4));
    assert!(sources.iter().all(|of| of.starts_with("2001:db8:1:0:")), "{sources:?}");
}

#[test]
fn attacks_of_hosts_are_checked() {
    let wrong = |from: &str, to: &str| {
        let groups = attackers("count = 2", "template = \"syn-scan\"");
        assert!(groups.contains(from), "{groups}");
        let text = format!(
            "[ports]\nC = \"loop:x,virtual\"\nS = \"loop:x,virtual\"\n{}",
            groups.replacen(from, to, 1)
        );
        let planned = Profile::parse(&text, "hosts.toml", Format::Toml)
            .map(|profile| Session::new(profile).check_only().err().unwrap().to_string());
        planned.unwrap_or_else(|error| error.to_string())
    };
    let attack = "template = \"syn-scan\"";
    for (from, to, expected) in [
        ("\"host:clients\"", "\"10.0.0.1\"", "is not a group of hosts"),
        ("\"host:clients\"", "\"host:client\"", "there are no hosts \"client\""),
        ("\"host:clients\"", "\"host:server\"", "these hosts are on port S"),
        (attack, "template = \"syn-scan\"\nservers = \"host:clients\"", "are on port C"),
        (
            attack,
            "template = \"syn-scan\"\nlive = true\nservers = \"host:server\"",
            "the servers of live conversations cannot be hosts",
        ),
        (attack, "template = \"syn-scan\"\nwrap = \"vlan 9\"", "an encapsulation of their own"),
        (attack, "template = \"syn-scan\"\nbackground = \"a.pcap\"", "mixed with a background"),
        (attack, "template = \"syn-scan\"\nfamily = 6", "addresses of the other family"),
        (
            attack,
            "template = \"syn-scan\"\noptions = { clients = \"10.0.0.9\" }",
            "the option clients of the template",
        ),
        ("port2 = \"S\"", "servers = \"host:clients\"", "are the same hosts"),
        (
            "name = \"clients\"\n",
            "name = \"clients\"\nipv4 = \"none\"\nlldp = \"9 s\"\n",
            "no addresses",
        ),
    ] {
        let text = wrong(from, to);
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

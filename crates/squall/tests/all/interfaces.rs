//! Flows whose addresses have interfaces of their own, between the two ends of a link in memory, with
//! the frames of a capture as the truth.

use std::{collections::BTreeMap, net::Ipv4Addr};

use squall::{Format, Profile, Session};
use squall_options::CaptureOptions;
use squall_units::be16;

/// Each client has a VLAN, a router or a tunnel, and the servers' side has the reverse.
const PROFILE: &str = r#"
[ports]
C = "loop:LINK,virtual,max_frame=1518"
S = "loop:LINK,virtual,max_frame=1518"

[flows]
clients = "C"
servers = "S"
limit   = 60

[flows.client_network]
mac      = "02:00:00:00:01:00"
next_hop = "02:00:00:00:02:00"
[[flows.client_network.interface]]
addresses = "16.0.0.2"
mac       = "02:00:00:00:01:02"
next_hop  = "02:00:00:00:02:02"
wrap      = "vlan 7 priority 5"
[[flows.client_network.interface]]
addresses = ["16.0.0.3"]
wrap      = ["vlan 9", "gtp-u 10.0.0.1 10.0.0.2 77 78"]

[flows.server_network]
mac = "02:00:00:00:02:00"
[[flows.server_network.interface]]
peers    = "16.0.0.2"
mac      = "02:00:00:00:02:02"
next_hop = "02:00:00:00:01:02"
wrap     = "vlan 7"
[[flows.server_network.interface]]
peers    = "16.0.0.3"
next_hop = "02:00:00:00:01:00"
wrap     = ["vlan 9", "gtp-u 10.0.0.2 10.0.0.1 78 77"]

[[template]]
name    = "web"
app     = "http-get"
clients = "16.0.0.1-16.0.0.3"
servers = "48.0.0.1"
cps     = 100
"#;

#[test]
fn frames_have_the_headers_of_the_interface_of_their_client() {
    let pid = std::process::id();
    let file = std::env::temp_dir().join(format!("squall-interfaces-{pid}.pcap"));
    let text = PROFILE.replace("LINK", &format!("interfaces-{pid}"));
    let profile = Profile::parse(&text, "interfaces.toml", Format::Toml).unwrap();
    let mut session = Session::new(profile);
    session.options.capture =
        Some(CaptureOptions { file: Some(file.clone()), ..CaptureOptions::default() });
    let report = session.open().unwrap().start().unwrap().finish().unwrap();
    let client = report.flows.as_ref().unwrap().total.client.clone().unwrap();
    assert_eq!((client.completed, client.failed.len()), (60, 0), "{client:?}");
    let mut capture = squall_pcap::CaptureReader::open(&file).unwrap();
    // Packets with their headers, by client and direction.
    let mut found: BTreeMap<(Ipv4Addr, bool), BTreeMap<Vec<u8>, u64>> = BTreeMap::new();
    let mut longest = 0;
    while let Some(packet) = capture.next().unwrap() {
        let frame = packet.data;
        longest = longest.max(frame.len());
        // The addresses of the innermost packet: both pools are unlike all other octets.
        let addresses = frame.windows(8).position(|octets| {
            octets[..3] == [16, 0, 0] && octets[4..7] == [48, 0, 0]
                || octets[..3] == [48, 0, 0] && octets[4..7] == [16, 0, 0]
        });
        let Some(at) = addresses else { continue };
        let from_client = frame[at] == 16;
        let client = if from_client { frame[at + 3] } else { frame[at + 7] };
        let Some(head) = frame[..at].len().checked_sub(12).map(|end| &frame[..end]) else {
            continue;
        };
        // Lengths and checksums of the tunnel vary.
        let mut head = head.to_vec();
        if head.len() > 18 {
            assert_eq!(usize::from(be16(frame, 20)), frame.len() - 18, "the outer IPv4");
            assert_eq!(usize::from(be16(frame, 42)), frame.len() - 38, "UDP");
            assert_eq!(usize::from(be16(frame, 48)), frame.len() - 54, "GTP-U");
            for at in [20, 28, 42, 48] {
                head[at..at + 2].fill(0);
            }
        }
        let key = (Ipv4Addr::new(16, 0, 0, client), from_client);
        *found.entry(key).or_default().entry(head).or_default() += 1;
    }
    std::fs::remove_file(&file).unwrap();
    let ethernet = |to: u16, from: u16| {
        let mac = |last: u16| [&[2, 0, 0, 0][..], &last.to_be_bytes()].concat();
        [mac(to), mac(from)].concat()
    };
    let tunnel = |source: u8, destination: u8, teid: u8| {
        let ip = [0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, source, 10, 0, 0];
        let udp = [destination, 8, 0x68, 8, 0x68, 0, 0, 0, 0];
        [&ip[..], &udp, &[0x30, 255, 0, 0, 0, 0, 0, teid]].concat()
    };
    let tag = |octets: [u8; 2]| [&[0x81, 0], &octets[..], &[8, 0]].concat();
    let expected = [
        (1, true, [ethernet(0x200, 0x100), vec![8, 0]].concat()),
        (1, false, [ethernet(0x100, 0x200), vec![8, 0]].concat()),
        (2, true, [ethernet(0x202, 0x102), tag([0xa0, 7])].concat()),
        (2, false, [ethernet(0x102, 0x202), tag([0, 7])].concat()),
        (3, true, [ethernet(0x200, 0x100), tag([0, 9]), tunnel(1, 2, 77)].concat()),
        (3, false, [ethernet(0x100, 0x200), tag([0, 9]), tunnel(2, 1, 78)].concat()),
    ];
    // The segments of responses leave room for the longest headers.
    assert_eq!(longest, 1518);
    let clients = [1, 2, 3].map(|client| Ipv4Addr::new(16, 0, 0, client));
    assert!(found.keys().all(|(client, _)| clients.contains(client)), "{found:02x?}");
    for (client, from_client, head) in expected {
        let heads = &found[&(clients[client - 1], from_client)];
        assert_eq!(heads.keys().collect::<Vec<_>>(), [&head], "{client} {from_client}");
        // 20 flows have three packets each way: SYN, request, FIN; SYN-ACK, response, FIN.
        assert!(heads[&head] >= 60, "{}", heads[&head]);
    }
}

#[test]
fn interfaces_that_cannot_be_are_refused_with_their_place() {
    let wrong = |from: &str, to: &str| {
        let text = PROFILE.replace("LINK", "no-interfaces").replacen(from, to, 1);
        let profile = Profile::parse(&text, "interfaces.toml", Format::Toml);
        match profile {
            Ok(profile) => Session::new(profile).plan_only().err().unwrap().to_string(),
            Err(errors) => errors.to_string(),
        }
    };
    for (from, to, why) in [
        ("addresses = \"16.0.0.2\"", "peers = \"16.0.0.2\"\naddresses = \"16.0.0.2\"", "either"),
        ("addresses = \"16.0.0.2\"", "addresses = \"16.0.0.2-16.0.0.3\"", "two interfaces"),
        ("addresses = \"16.0.0.2\"", "addresses = \"here\"", "here"),
        ("\"vlan 7 priority 5\"", "\"mpls 7\"", "only vlan"),
        ("\"vlan 7 priority 5\"", "\"vlan 4096\"", "4096"),
        ("next_hop = \"02:00:00:00:01:02\"", "", "next_hop"),
    ] {
        let text = wrong(from, to);
        assert!(text.contains(why), "{to}: {text}");
    }
}

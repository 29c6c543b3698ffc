//! Plays the conversations of a capture on Squall's own TCP/UDP stack, between the two ends of a
//! link in memory.

use std::path::PathBuf;

use serde_json::json;
use squall::{
    Profile, Session,
    report::{Report, source::SourceKind},
};
use squall_pcap::{LinkType, PcapFormat, PcapWriter};
use squall_wire::tcp_flags::{ACK, FIN, PSH, SYN};

/// A segment from client `client` to its server if `there`, otherwise in the reverse direction.
fn segment(client: u8, there: bool, seq: u32, ack: u32, flags: u8, octets: &[u8]) -> Vec<u8> {
    let ends = [([10, 0, 0, client], 40_000u16), ([10, 9, 0, 1], 80)];
    let [(src, sport), (dst, dport)] = if there { ends } else { [ends[1], ends[0]] };
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0];
    frame.extend((40 + octets.len() as u16).to_be_bytes());
    frame.extend([0, 0, 0, 0, 64, 6, 0, 0]);
    frame.extend(src.into_iter().chain(dst));
    frame.extend(sport.to_be_bytes().into_iter().chain(dport.to_be_bytes()));
    frame.extend(seq.to_be_bytes().into_iter().chain(ack.to_be_bytes()));
    frame.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    frame.extend(octets);
    frame
}

/// A capture of six conversations. The third has no start, and the fifth has a gap.
fn capture(name: &str, both_directions: bool) -> PathBuf {
    let path =
        std::env::temp_dir().join(format!("squall-stateful-{name}-{}.pcap", std::process::id()));
    let format =
        PcapFormat { nanoseconds: true, link_type: LinkType::ETHERNET, ..PcapFormat::default() };
    let mut writer = PcapWriter::create(&path, format).unwrap();
    for client in 1..=6u8 {
        let answer = vec![client; 300 * usize::from(client)];
        let end = 5001 + answer.len() as u32;
        let mut packets = vec![
            segment(client, true, 1000, 0, SYN, b""),
            segment(client, false, 5000, 1001, SYN | ACK, b""),
            segment(client, true, 1001, 5001, ACK, b""),
            segment(client, true, 1001, 5001, ACK | PSH, b"what"),
            segment(client, false, 5001, 1005, ACK, &answer[..100]),
            segment(client, false, 5101, 1005, ACK, &answer[100..200]),
            segment(client, false, 5201, 1005, ACK | PSH, &answer[200..]),
            segment(client, true, 1005, end, ACK | FIN, b""),
            segment(client, false, end, 1006, ACK | FIN, b""),
            segment(client, true, 1006, end + 1, ACK, b""),
        ];
        match client {
            3 => drop(packets.drain(..3)),
            5 => drop(packets.remove(5)),
            _ => {}
        }
        let from_client = |packet: &[u8]| packet[27] == 0;
        for (i, packet) in
            (0..).zip(&packets).filter(|(_, packet)| both_directions || from_client(packet))
        {
            let time = 1_700_000_000_000_000_000 + u64::from(client) * 10_000_000 + i * 100_000;
            writer.write(time, packet.len() as u32, packet).unwrap();
        }
    }
    writer.finish().unwrap();
    path
}

fn played(name: &str, replay: serde_json::Value) -> Report {
    played_from(capture(name, true), name, replay)
}

fn played_from(path: PathBuf, name: &str, mut replay: serde_json::Value) -> Report {
    replay["capture"] = json!(path);
    let port = format!("loop:stateful-{name}");
    let profile = json!({
        "ports": { "A": port, "B": port }, "flows": { "clients": "A", "servers": "B", "replay": replay },
    });
    let profile = Profile::from_value(&profile, "test").unwrap();
    let report = Session::new(profile).open().unwrap().start().unwrap().finish().unwrap();
    std::fs::remove_file(path).unwrap();
    report
}

#[test]
fn a_capture_of_one_direction_is_refused() {
    let both = played("both", json!({})).flows.unwrap().conversations.unwrap();
    assert_eq!(both.one_sided, 0);
    let one =
        played_from(capture("one", false), "one", json!({})).flows.unwrap().conversations.unwrap();
    assert_eq!((one.found, one.one_sided), (6, 6), "{one:?}");
    let text = squall_report::render::conversations(&one);
    let line = "one-sided: the capture has only one direction of 6 conversations";
    assert!(text.iter().any(|text| text.starts_with(line)), "{text:?}");
}

#[test]
fn whole_conversations_are_played_and_the_others_reported() {
    let load = played("whole", json!({})).flows.unwrap();
    let report = load.conversations.unwrap();
    assert_eq!((report.found, report.playable), (6, 4));
    let why = report.not_played.iter().map(|(why, n)| (why.as_str(), *n)).collect::<Vec<_>>();
    assert_eq!(why, [("holes", 1), ("mid_stream", 1)]);
    assert_eq!(report.not_played_first.iter().map(|note| note.number).collect::<Vec<_>>(), [3, 5]);
    assert_eq!((report.octets_as_captured, report.failed_first.len()), (Some(true), 0));
    let (client, server) = (load.total.client.unwrap(), load.total.server.unwrap());
    assert_eq!((client.completed, server.completed), (4, 4));
    assert_eq!((client.received_octets, server.received_octets), (300 * (1 + 2 + 4 + 6), 16));
}

#[test]
fn clients_and_a_server_stand_for_the_captured_ones_in_each_loop() {
    let replay = json!({
        "clients": "fd00::1-fd00::2", "server": "[fd00:1::1]:8080", "topspeed": true, "loops": 2,
        "incomplete": "zeros", "tcp": { "time_wait": "0 s" },
    });
    let load = played("mapped", replay).flows.unwrap();
    let report = load.conversations.unwrap();
    assert_eq!(
        (report.found, report.playable, report.octets_as_captured),
        (6, 6, Some(true)),
        "{report:?}"
    );
    assert_eq!(
        report.kinds.iter().map(|kind| kind.name.as_str()).collect::<Vec<_>>(),
        ["TCP 8080"]
    );
    assert_eq!(load.total.client.unwrap().received_octets, 2 * 300 * (1 + 2 + 3 + 4 + 5 + 6));
}

/// The attacks use the same server and port as the capture.
#[test]
fn live_attacks_run_with_the_conversations_of_a_capture() {
    let file = capture("attacked", true);
    let rules = file.with_extension("rules");
    let rule = "alert tcp any any -> any 80 (msg:\"word\"; flow:established,to_server; \
                content:\"kookaburra\"; sid:2; rev:3;)\n";
    std::fs::write(&rules, rule).unwrap();
    let profile = json!({
        "ports": { "A": "loop:stateful-attacked", "B": "loop:stateful-attacked" },
        "stream": [{ "port": "A", "packet": "eth/ipv4/udp", "rate": 100, "mode": { "burst": 100 } }],
        "flows": { "clients": "A", "servers": "B", "replay": { "capture": file, "loops": 2 } },
        "attack": [{
            "port": "A", "port2": "B", "rules": [rules], "repeat": 20, "rate": 100,
            "inside": "10.0.0.100-10.0.0.120", "outside": "10.9.0.1",
        }],
    });
    let run = |profile: &Profile| Session::new(profile.clone()).open().unwrap().start().unwrap();
    let mut profile = Profile::from_value(&profile, "test").unwrap();
    let report = run(&profile).finish().unwrap();
    let load = report.flows.as_ref().unwrap();
    let clients: Vec<_> = load
        .templates
        .iter()
        .map(|one| (one.name.as_str(), one.roles.client.as_ref().unwrap().completed))
        .collect();
    assert_eq!(clients, [("TCP 80", 8), ("TCP 80 of attacks", 20)]);
    let played = load.conversations.as_ref().unwrap();
    assert_eq!((played.playable, played.octets_as_captured), (4, Some(true)), "{played:?}");
    let passage = report.attacks[0].passage.as_ref().unwrap();
    assert_eq!((passage.conversations, passage.passed), (20, 20), "{passage:?}");
    let kinds = report.sources.iter().map(|source| (source.name.as_str(), source.kind));
    let kinds: Vec<_> = kinds.filter(|(_, kind)| *kind != SourceKind::Streams).collect();
    let expected = [("TCP 80", SourceKind::Flows), ("TCP 80 of attacks", SourceKind::Attacks)];
    assert_eq!(kinds, expected);

    // Flows from a script stay the same when other parts of the profile change.
    let mut changed = run(&profile);
    profile.streams[0].rate = "200pps".parse().unwrap();
    changed.change(profile.clone()).unwrap();
    drop(changed.finish().unwrap());

    std::fs::remove_file(rules).unwrap();
    std::fs::remove_file(file).unwrap();
}

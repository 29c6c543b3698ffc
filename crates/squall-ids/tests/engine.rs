//! Tests rules on frames through the public interface.

use proptest::prelude::*;
use squall_ids::{Alert, Compiled, Engine, Settings, never_raised};
use squall_rules::{EngineVersion, Reader, RuleSet, Variables};
use squall_units::Nanos;
use squall_wire::tcp_flags::{ACK, FIN, PSH, SYN};

const CLIENT: [u8; 4] = [203, 0, 113, 1];
const SERVER: [u8; 4] = [192, 168, 1, 1];

/// Builds the frames of one connection.
struct Conversation {
    frames: Vec<Vec<u8>>,
    client_port: u16,
    server_port: u16,
    /// Next sequence numbers of client and server.
    next: [u32; 2],
}

impl Conversation {
    /// Begins a connection with a handshake.
    fn open(server_port: u16) -> Self {
        let mut conversation =
            Conversation { frames: vec![], client_port: 40_000, server_port, next: [1000, 5000] };
        conversation.segment(0, SYN, b"");
        conversation.next[0] += 1;
        conversation.segment(1, SYN | ACK, b"");
        conversation.next[1] += 1;
        conversation.segment(0, ACK, b"");
        conversation
    }

    fn segment(&mut self, from: usize, flags: u8, payload: &[u8]) {
        let mut tcp = vec![];
        let ports = [self.client_port, self.server_port];
        tcp.extend(ports[from].to_be_bytes());
        tcp.extend(ports[1 - from].to_be_bytes());
        tcp.extend(self.next[from].to_be_bytes());
        let acknowledged = if flags & ACK != 0 { self.next[1 - from] } else { 0 };
        tcp.extend(acknowledged.to_be_bytes());
        tcp.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        tcp.extend(payload);
        let (source, destination) = if from == 0 { (CLIENT, SERVER) } else { (SERVER, CLIENT) };
        self.frames.push(ip(source, destination, 6, 0, &tcp));
    }

    /// Sends parts from one end, each in a segment that the other end acknowledges.
    fn send(mut self, from: usize, parts: &[&[u8]]) -> Self {
        for part in parts {
            self.segment(from, PSH | ACK, part);
            self.next[from] += part.len() as u32;
            self.segment(1 - from, ACK, b"");
        }
        self
    }

    fn close(mut self) -> Vec<Vec<u8>> {
        for from in [0, 1] {
            self.segment(from, FIN | ACK, b"");
            self.next[from] += 1;
        }
        self.segment(0, ACK, b"");
        self.frames
    }
}

/// An Ethernet frame with an IPv4 packet. `fragment` is the field with flags and fragment offset.
fn ip(
    source: [u8; 4],
    destination: [u8; 4],
    protocol: u8,
    fragment: u16,
    octets: &[u8],
) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    frame.extend([0x45, 0]);
    frame.extend((20 + octets.len() as u16).to_be_bytes());
    frame.extend([0, 7]);
    frame.extend(fragment.to_be_bytes());
    frame.extend([64, protocol, 0, 0]);
    frame.extend(source);
    frame.extend(destination);
    frame.extend(octets);
    frame
}

fn udp(ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let mut udp = vec![];
    udp.extend(ports.0.to_be_bytes());
    udp.extend(ports.1.to_be_bytes());
    udp.extend((8 + payload.len() as u16).to_be_bytes());
    udp.extend([0, 0]);
    udp.extend(payload);
    udp
}

fn set(rules: &str) -> RuleSet {
    let set = RuleSet::parse(rules, &Variables::standard());
    assert!(set.problems.is_empty(), "{:?}", set.problems);
    set
}

fn alerts(set: &RuleSet, frames: &[Vec<u8>]) -> Vec<Alert> {
    let compiled = Compiled::new(set);
    let which: Vec<usize> = (0..set.rules.len()).collect();
    let settings = Settings { checksums: false, ..Settings::default() };
    let (mut engine, refused) = Engine::new(&compiled, &which, settings);
    assert!(refused.is_empty(), "{refused:?}");
    for (index, frame) in frames.iter().enumerate() {
        engine.frame(Nanos(index as u64 * 1_000_000), frame);
    }
    engine.finish();
    engine.alerts()
}

/// The sids of all alerts in order.
fn sids(rules: &str, frames: &[Vec<u8>]) -> Vec<u32> {
    let set = set(rules);
    alerts(&set, frames).iter().map(|alert| set.rules[alert.rule].sid).collect()
}

const PLAIN: &str = r#"alert tcp any any -> any 7000 (msg:"m"; flow:to_server,established; content:"needle"; sid:1;)"#;

#[test]
fn a_content_is_found_across_segments_and_reported_in_the_direction_of_its_sender() {
    let rules = set(PLAIN);
    let found = alerts(&rules, &Conversation::open(7000).send(0, &[b"nee", b"dle"]).close());
    let [alert] = &found[..] else { panic!("{found:?}") };
    assert_eq!((alert.source.to_string(), alert.source_port), ("203.0.113.1".into(), 40_000));
    assert_eq!(
        (alert.destination.to_string(), alert.destination_port),
        ("192.168.1.1".into(), 7000)
    );
    assert!(alerts(&rules, &Conversation::open(7000).send(1, &[b"needle"]).close()).is_empty());
    assert!(alerts(&rules, &Conversation::open(7001).send(0, &[b"needle"]).close()).is_empty());
}

#[test]
fn a_rule_on_a_packets_size_looks_at_single_packets() {
    let rule = r#"alert tcp any any -> any 7000 (msg:"m"; dsize:6; content:"needle"; sid:1;)"#;
    assert_eq!(sids(rule, &Conversation::open(7000).send(0, &[b"needle"]).close()), [1]);
    assert!(sids(rule, &Conversation::open(7000).send(0, &[b"nee", b"dle"]).close()).is_empty());
}

#[test]
fn without_a_handshake_segments_are_inspected_alone_and_nothing_is_established() {
    let stateless = r#"alert tcp any any -> any 7000 (msg:"m"; content:"needle"; sid:2;)"#;
    let mut conversation =
        Conversation { frames: vec![], client_port: 40_000, server_port: 7000, next: [1000, 5000] };
    conversation.segment(0, PSH | ACK, b"a needle");
    assert_eq!(sids(&format!("{PLAIN}\n{stateless}"), &conversation.frames), [2]);
}

#[test]
fn unacknowledged_data_is_inspected_at_the_end() {
    let mut conversation = Conversation::open(7000);
    conversation.segment(0, PSH | ACK, b"needle");
    assert_eq!(sids(PLAIN, &conversation.frames), [1]);
}

#[test]
fn octets_outside_of_the_window_are_no_part_of_the_stream() {
    let mut conversation = Conversation::open(7000);
    conversation.next[0] += 100_000;
    conversation.segment(0, PSH | ACK, b"xx");
    conversation.next[0] -= 100_000;
    assert_eq!(sids(PLAIN, &conversation.send(0, &[b"needle"]).close()), [1]);
}

#[test]
fn a_depth_counts_from_the_beginning_of_the_chunk() {
    let rule =
        r#"alert tcp any any -> any 7000 (msg:"m"; content:"ab"; depth:2; content:"yz"; sid:1;)"#;
    assert_eq!(sids(rule, &Conversation::open(7000).send(0, &[b"a", b"bc", b"yz"]).close()), [1]);
    assert!(sids(rule, &Conversation::open(7000).send(0, &[b"xabyz"]).close()).is_empty());
    // 2,560 octets fill a chunk, so later data is inspected in another chunk, and in its packet.
    let long = [b'.'; 1400];
    let far = Conversation::open(7000).send(0, &[&long, &long, b"..", b"abyz"]).close();
    assert_eq!(sids(rule, &far), [1]);
}

#[test]
fn a_bit_set_by_one_rule_is_read_by_another_in_any_order_in_the_file() {
    let rules = r#"
alert tcp any any -> any 7000 (msg:"reads"; flowbits:isset,b; content:"two"; dsize:3; sid:1;)
alert tcp any any -> any 7000 (msg:"sets"; flowbits:set,b; flowbits:noalert; content:"one"; dsize:3; sid:2;)
alert tcp any any -> any 7000 (msg:"sets"; flowbits:set,c; content:"two"; dsize:3; sid:3;)
alert tcp any any -> any 7000 (msg:"in the same packet"; flowbits:isset,c; content:"two"; dsize:3; sid:4;)"#;
    let frames = Conversation::open(7000).send(0, &[b"one", b"two"]).close();
    assert_eq!(sids(rules, &frames), [3, 1, 4]);
    assert_eq!(sids(rules, &Conversation::open(7000).send(0, &[b"two", b"one"]).close()), [3, 4]);
}

#[test]
fn the_last_acknowledgment_of_the_handshake_is_established_only_with_data() {
    let rule =
        r#"alert tcp any any -> any 7000 (msg:"m"; flow:to_server,established; ack:5001; sid:1;)"#;
    assert!(sids(rule, &Conversation::open(7000).frames).is_empty());
    let mut conversation = Conversation::open(7000);
    conversation.frames.pop();
    conversation.segment(0, PSH | ACK, b"x");
    assert_eq!(sids(rule, &conversation.frames), [1]);
}

#[test]
fn a_rule_of_addresses_alerts_once_in_each_direction() {
    let frames = Conversation::open(7000).send(0, &[b"a"]).send(1, &[b"b"]).close();
    assert_eq!(sids(r#"alert ip any any -> any any (msg:"m"; sid:1;)"#, &frames), [1, 1]);
}

#[test]
fn a_flow_that_a_pass_rule_matched_raises_no_further_alerts() {
    let pass = r#"pass tcp any any -> any 7000 (msg:"p"; flow:established; content:"hay"; sid:9;)"#;
    let rules = format!("{PLAIN}\n{pass}");
    assert!(sids(&rules, &Conversation::open(7000).send(0, &[b"hay needle"]).close()).is_empty());
    assert_eq!(sids(&rules, &Conversation::open(7000).send(0, &[b"needle"]).close()), [1]);
}

#[test]
fn a_packet_has_at_most_the_alerts_that_the_settings_allow() {
    let rules: Vec<String> = (1..=20)
        .map(|sid| {
            format!(
                r#"alert udp any any -> any 7000 (msg:"m"; content:"a"; priority:{}; sid:{sid};)"#,
                1 + sid % 2
            )
        })
        .collect();
    let found = sids(&rules.join("\n"), &[ip(CLIENT, SERVER, 17, 0, &udp((1, 7000), b"a"))]);
    assert_eq!(found, [2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 1, 3, 5, 7, 9]);
}

#[test]
fn fragments_are_put_together_and_a_fragment_is_a_packet_without_ports() {
    let rules = r#"
alert udp any any -> any 7000 (msg:"whole"; content:"needle"; sid:1;)
alert ip any any -> any any (msg:"fragment"; fragbits:M; sid:2;)"#;
    let datagram = udp((1, 7000), b"a needle");
    let first = ip(CLIENT, SERVER, 17, 0x2000, &datagram[..8]);
    let last = ip(CLIENT, SERVER, 17, 1, &datagram[8..]);
    assert_eq!(sids(rules, &[last.clone(), first.clone()]), [2, 1]);
    assert_eq!(sids(rules, &[last]), [0; 0]);
}

#[test]
fn an_answer_to_an_echo_makes_its_flow_established() {
    let rule = r#"alert icmp any any -> any any (msg:"m"; itype:0; icmp_id:7; flow:to_client,established; sid:1;)"#;
    let echo = |kind| [kind, 0, 0, 0, 0, 7, 0, 1, 1, 2, 3, 4];
    let request = ip(CLIENT, SERVER, 1, 0, &echo(8));
    let reply = ip(SERVER, CLIENT, 1, 0, &echo(0));
    assert_eq!(sids(rule, &[request, reply.clone()]), [1]);
    assert!(sids(rule, &[reply]).is_empty());
}

#[test]
fn a_filter_raises_matches_after_its_count() {
    let rule = r#"alert udp any any -> any 7000 (msg:"m"; content:"a"; detection_filter:track by_src, count 3, seconds 60; sid:1;)"#;
    let frames: Vec<_> =
        (0..5).map(|port| ip(CLIENT, SERVER, 17, 0, &udp((port + 1, 7000), b"a"))).collect();
    assert_eq!(sids(rule, &frames), [1, 1]);
}

#[test]
fn tests_of_a_request_and_of_the_stream_are_both_needed() {
    let rule = r#"alert tcp any any -> any 80 (msg:"m"; flow:to_server,established; content:"/a b"; http_uri; content:"%20b"; sid:1;)"#;
    let request = |uri: &str| format!("GET {uri} HTTP/1.1\r\nHost: h\r\n\r\n").into_bytes();
    assert_eq!(sids(rule, &Conversation::open(80).send(0, &[&request("/a%20b")]).close()), [1]);
    assert!(sids(rule, &Conversation::open(80).send(0, &[&request("/a+b")]).close()).is_empty());
    assert!(sids(rule, &Conversation::open(80).send(0, &[&request("/a%20c")]).close()).is_empty());
}

#[test]
fn both_directions_of_a_transaction_are_tested_together() {
    let rule = r#"alert http any any => any any (msg:"m"; http.uri; content:"/x"; http.stat_code; content:"404"; sid:1;)"#;
    let conversation = |status: &str| {
        let answer = format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n");
        Conversation::open(80)
            .send(0, &[b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n"])
            .send(1, &[answer.as_bytes()])
            .close()
    };
    assert_eq!(sids(rule, &conversation("404")), [1]);
    assert!(sids(rule, &conversation("200")).is_empty());
}

#[test]
fn a_rule_that_cannot_be_looked_for_is_refused_and_the_others_are_not() {
    let rules = set(&format!(
        "{PLAIN}\n{}",
        r#"alert tcp any any -> any 7000 (msg:"m"; content:"a"; pcre:"/(?<x/"; sid:2;)"#
    ));
    let compiled = Compiled::new(&rules);
    let (_, refused) = Engine::new(&compiled, &[0, 1, 7], Settings::default());
    assert_eq!(refused.iter().map(|refused| refused.rule).collect::<Vec<_>>(), [1, 7]);
    assert!(refused[0].text.contains("(?<x"), "{}", refused[0].text);
}

fn by(engine: EngineVersion, rules: &str, frames: &[Vec<u8>]) -> Vec<u32> {
    with(Settings::of(engine), rules, frames)
}

fn with(settings: Settings, rules: &str, frames: &[Vec<u8>]) -> Vec<u32> {
    let set = set(rules);
    let compiled = Compiled::new(&set);
    let which: Vec<usize> = (0..set.rules.len()).collect();
    let settings = Settings { checksums: false, ..settings };
    let (mut engine, _) = Engine::new(&compiled, &which, settings);
    for (index, frame) in frames.iter().enumerate() {
        engine.frame(Nanos(index as u64 * 1_000_000), frame);
    }
    engine.finish();
    engine.alerts().iter().map(|alert| set.rules[alert.rule].sid).collect()
}

#[test]
fn snort_looks_at_packets_and_at_the_stream_and_reports_few_rules_a_packet() {
    // The packet with "needle" has no "hay", but the stream has both.
    let rule = r#"alert tcp any any -> any 7000 (msg:"m"; flow:to_server,established; content:"needle"; content:!"hay"; sid:1;)"#;
    let frames = Conversation::open(7000).send(0, &[b"hay", b"needle"]).close();
    assert!(by(EngineVersion::Suricata8, rule, &frames).is_empty());
    assert_eq!(by(EngineVersion::Snort2, rule, &frames), [1]);
    let many: String = (1..=20)
        .map(|sid| format!("alert udp any any -> any 9 (msg:\"m\"; content:\"x\"; sid:{sid};)\n"))
        .collect();
    let frames = [ip(CLIENT, SERVER, 17, 0, &udp((40_000, 9), b"x"))];
    let reported = EngineVersion::ALL.map(|engine| by(engine, &many, &frames).len());
    assert_eq!(reported, [15, 15, 5, 3]);
}

#[test]
fn rules_that_suricata_never_raises_are_not_raised() {
    for rule in [
        r#"alert tcp any 443 -> any any (msg:"m"; flow:to_client,established; ssl_state:server_hello; sid:1;)"#,
        r#"alert tcp any any -> any 21 (msg:"m"; flow:to_server,established; content:"PORT"; ftpbounce; sid:2;)"#,
        r#"alert tcp any any -> any 7000 (msg:"m"; content:"s3t",offset -1; sid:3;)"#,
    ] {
        let set = set(rule);
        assert!(never_raised(EngineVersion::Suricata8, &set.rules[0]).is_some(), "{rule}");
        assert!(never_raised(EngineVersion::Snort2, &set.rules[0]).is_none(), "{rule}");
    }
    let before = r#"alert tcp any any -> any 7000 (msg:"m"; content:"s3t",offset -1; sid:3;)"#;
    let frames = Conversation::open(7000).send(0, &[b"s3t"]).close();
    assert!(by(EngineVersion::Suricata8, before, &frames).is_empty());
    // The rule matches once in its packet and once in the stream.
    assert_eq!(by(EngineVersion::Snort2, before, &frames), [3, 3]);
    for rule in [
        r#"alert tcp any any -> any 443 (msg:"m"; flow:to_server,established; ssl_state:client_hello; sid:1;)"#,
        r#"alert ftp any any -> any any (msg:"m"; flow:to_server,established; ftpbounce; sid:2;)"#,
    ] {
        assert!(never_raised(EngineVersion::Suricata8, &set(rule).rules[0]).is_none(), "{rule}");
    }
}

#[test]
fn ber_is_looked_at_in_the_packet_that_carries_it() {
    let rule = r#"alert tcp any any -> any 88 (msg:"m"; flow:to_server,established; content:"j"; depth:1; asn1:bitstring_overflow,relative_offset 0; sid:1;)"#;
    let whole = Conversation::open(88).send(0, &[b"j\x03\x01\xff"]).close();
    let cut = Conversation::open(88).send(0, &[b"j\x03", b"\x01\xff"]).close();
    assert_eq!((sids(rule, &whole), sids(rule, &cut)), (vec![1], vec![]));
    assert_eq!(by(EngineVersion::Snort2, rule, &cut), [1]);
}

#[test]
fn of_many_rules_those_are_found_that_few_would_find() {
    let many: Vec<String> = (100..400)
        .map(|sid| {
            format!(
                r#"alert tcp any any -> any any (msg:"m"; content:"word{sid}"; nocase; sid:{sid};)"#
            )
        })
        .collect();
    let rules = format!("{PLAIN}\n{}", many.join("\n"));
    let frames = Conversation::open(7000).send(0, &[b"needle WORD1", b"23 word200"]).close();
    assert_eq!(sids(&rules, &frames), [1, 123, 200]);
}

const SURICATA: [EngineVersion; 2] = [EngineVersion::Suricata7, EngineVersion::Suricata8];

#[test]
fn a_protocol_that_is_not_known_yet_is_not_another_one() {
    let rule = r#"alert tcp any any -> any 7000 (msg:"m"; flow:to_server,established; app-layer-protocol:!http; content:"needle"; sid:1;)"#;
    let silent = Conversation::open(7000).send(0, &[b"needle"]).close();
    let answered = Conversation::open(7000).send(0, &[&[b'a'; 64]]).send(1, &[&[b'b'; 64]]);
    let answered = answered.send(0, &[b"needle"]).close();
    let http = Conversation::open(7000).send(0, &[b"GET /needle HTTP/1.1\r\n\r\n"]).close();
    for engine in SURICATA {
        let found = [&silent, &answered, &http].map(|frames| by(engine, rule, frames));
        assert_eq!(found, [vec![], vec![1], vec![]], "{engine}");
    }
    // The first datagram determines the protocol.
    let rule = r#"alert udp any any -> any 9 (msg:"m"; app-layer-protocol:!dns; content:"needle"; sid:1;)"#;
    let datagram = [ip(CLIENT, SERVER, 17, 0, &udp((40_000, 9), b"needle"))];
    assert_eq!(SURICATA.map(|engine| by(engine, rule, &datagram)), [vec![1], vec![1]]);
}

#[test]
fn the_size_of_a_stream_counts_its_syn() {
    let rule = r#"alert tcp any any -> any 7000 (msg:"m"; flow:to_server,established; stream_size:server,=,1; content:"needle"; sid:1;)"#;
    let first = Conversation::open(7000).send(0, &[b"needle"]).send(1, &[b"x"]).close();
    let second = Conversation::open(7000).send(1, &[b"x"]).send(0, &[b"needle"]).close();
    for engine in EngineVersion::ALL {
        assert_eq!(by(engine, rule, &first), [1], "{engine}");
        assert!(by(engine, rule, &second).is_empty(), "{engine}");
    }
}

#[test]
fn suricata_7_gives_up_if_the_first_decoded_data_does_not_match() {
    // "bm8=" decodes to "no", "bmVlZGxl" to "needle".
    let rule = r#"alert tcp any any -> any 7000 (msg:"m"; flow:to_server,established; content:"|0d 0a|"; base64_decode:relative; base64_data; content:"needle"; sid:1;)"#;
    let later = Conversation::open(7000).send(0, &[b"x\r\nbm8 \r\nbmVlZGxl"]).close();
    let first = Conversation::open(7000).send(0, &[b"x\r\nbmVlZGxl"]).close();
    assert_eq!(SURICATA.map(|engine| by(engine, rule, &later)), [vec![], vec![1]]);
    assert_eq!(SURICATA.map(|engine| by(engine, rule, &first)), [vec![1], vec![1]]);
}

#[test]
fn suricata_7_inspects_whole_mails_and_suricata_8_each_command() {
    let over_commands = r#"alert tcp any any -> any 25 (msg:"m"; flow:to_server,established; content:"MAIL FROM"; content:"RCPT TO"; distance:0; sid:1;)"#;
    let command = r#"alert tcp any any -> any 25 (msg:"m"; flow:to_server,established; content:"MAIL FROM"; sid:2;)"#;
    let rules = format!("{over_commands}\n{command}");
    let frames = Conversation::open(25)
        .send(1, &[b"220 h ESMTP\r\n"])
        .send(0, &[b"EHLO c\r\n"])
        .send(1, &[b"250 h\r\n"])
        .send(0, &[b"MAIL FROM:<a@b>\r\n"])
        .send(1, &[b"250 ok\r\n"])
        .send(0, &[b"RCPT TO:<c@d>\r\n"])
        .send(1, &[b"250 ok\r\n"])
        .send(0, &[b"QUIT\r\n"])
        .send(1, &[b"221 bye\r\n"])
        .close();
    let sorted = |mut found: Vec<u32>| {
        found.sort_unstable();
        found
    };
    let found = SURICATA.map(|engine| sorted(by(engine, &rules, &frames)));
    assert_eq!(found, [vec![1, 2], vec![2]]);
}

#[test]
fn only_suricata_8_knows_its_new_protocols_and_blanks_in_uris() {
    let pop3 = r#"alert tcp any 110 -> any any (msg:"m"; flow:to_client,established; app-layer-protocol:pop3; content:"+OK"; sid:1;)"#;
    let frames = Conversation::open(110).send(1, &[b"+OK ready\r\n"]).send(0, &[b"QUIT\r\n"]);
    let frames = frames.send(1, &[b"+OK bye\r\n"]).close();
    let found = SURICATA.map(|engine| by(engine, pop3, &frames).is_empty());
    assert_eq!(found, [true, false]);
    let uri = r#"alert http any any -> any 80 (msg:"m"; flow:to_server,established; http.uri; content:"/a b"; sid:1;)"#;
    let frames = Conversation::open(80).send(0, &[b"GET /a b HTTP/1.1\r\nHost: h\r\n\r\n"]).close();
    assert_eq!(SURICATA.map(|engine| by(engine, uri, &frames)), [vec![], vec![1]]);
}

#[test]
fn every_view_covers_engines_with_other_chunks() {
    let rule = r#"alert tcp any any -> any 25 (msg:"m"; flow:to_server,established; content:"MAIL FROM"; content:"needle"; distance:0; sid:1;)"#;
    let frames = Conversation::open(25)
        .send(0, &[b"EHLO c\r\n", b"MAIL FROM:<a@b>\r\n", b"NOOP needle\r\n", b"QUIT\r\n"])
        .close();
    let settings = Settings::of(EngineVersion::Suricata8);
    assert!(with(settings.clone(), rule, &frames).is_empty());
    assert!(!with(Settings { every_view: true, ..settings.clone() }, rule, &frames).is_empty());
    let of_packets = rule.replace("established", "established,only_stream");
    let one = Conversation::open(25).send(0, &[b"nothing of it"]).close();
    let every = Settings { every_view: true, ..settings };
    assert!(with(every, &of_packets, &one).is_empty());
}

/// The record of Suricata 8.0.6's alerts on a capture made from the community rules of 2021.
fn record() -> Result<std::path::PathBuf, String> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/oracle/ids");
    let folder =
        std::path::PathBuf::from(std::env::var_os("IDS_ORACLE").unwrap_or_else(|| root.into()));
    match folder.join("s2.pcap.xz").try_exists() {
        Ok(true) => Ok(folder),
        _ => Err(format!(
            "no record in {} (not in this project): IDS_ORACLE names another folder",
            folder.display()
        )),
    }
}

fn unpacked(path: &std::path::Path) -> Vec<u8> {
    let out = std::process::Command::new("xz").arg("-dc").arg(path).output().expect("xz runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    out.stdout
}

/// Sid, source, source port, destination, destination port.
type Pair = (u32, String, u16, String, u16);

#[test]
fn the_record_of_suricata_8_is_matched_and_all_its_rules_load() {
    let folder = match record() {
        Ok(folder) => folder,
        Err(why) => return println!("SKIPPED: {why}"),
    };
    let text = |name: &str| String::from_utf8_lossy(&unpacked(&folder.join(name))).into_owned();
    let reader = Reader { engine: Some(EngineVersion::Suricata8), ..Reader::default() };
    let set = reader.parse(&text("snort2-2021-all.rules.xz"), &Variables::standard());
    let unloadable: Vec<u32> =
        text("s2.unloadable.txt.xz").lines().filter_map(|line| line.trim().parse().ok()).collect();
    let wrongly: Vec<_> = set
        .problems
        .iter()
        .filter(|one| !one.sid.is_some_and(|sid| unloadable.contains(&sid)))
        .collect();
    assert!(wrongly.is_empty(), "refused, but Suricata 8 loads them: {wrongly:?}");
    assert!(set.problems.len() >= 10, "of {} that it does not load", unloadable.len());

    let compiled = Compiled::new(&set);
    let which: Vec<usize> =
        (0..set.rules.len()).filter(|&index| !unloadable.contains(&set.rules[index].sid)).collect();
    for (capture, alerts, most_wrong) in
        [("s2.pcap.xz", "s2.alerts.tsv.xz", 1), ("s2n.pcap.xz", "s2n.alerts.tsv.xz", 0)]
    {
        let (mut engine, refused) =
            Engine::new(&compiled, &which, Settings::of(EngineVersion::Suricata8));
        assert!(refused.is_empty(), "{refused:?}");
        let octets = unpacked(&folder.join(capture));
        let mut packets = squall_pcap::CaptureReader::from_read(&octets[..]).unwrap();
        while let Some(packet) = packets.next().unwrap() {
            engine.frame(Nanos(packet.time_ns), packet.data);
        }
        engine.finish();
        let found: std::collections::BTreeSet<Pair> = engine
            .alerts()
            .iter()
            .map(|alert| {
                let sid = set.rules[alert.rule].sid;
                let (source, destination) =
                    (alert.source.to_string(), alert.destination.to_string());
                (sid, source, alert.source_port, destination, alert.destination_port)
            })
            .collect();
        let recorded: std::collections::BTreeSet<Pair> = text(alerts)
            .lines()
            .skip(1)
            .map(|line| {
                let columns: Vec<&str> = line.split('\t').collect();
                let number = |at: usize| columns[at].parse().unwrap();
                let port = |at: usize| u16::try_from(number(at)).unwrap();
                (number(0), columns[2].into(), port(3), columns[4].into(), port(5))
            })
            .collect();
        assert!(recorded.len() > 400, "{capture}: {} recorded", recorded.len());
        let missed: Vec<_> = recorded.difference(&found).collect();
        assert!(missed.is_empty(), "{capture}: missed {missed:?}");
        let wrong = found.difference(&recorded).count();
        assert!(wrong <= most_wrong, "{capture}: {wrong} too many");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_content_is_found_in_any_segmentation(
        before in proptest::collection::vec(any::<u8>(), 0..200),
        after in proptest::collection::vec(any::<u8>(), 0..200),
        cut in 1usize..16,
    ) {
        let octets = [&before[..], b"needle", &after[..]].concat();
        let parts: Vec<&[u8]> = octets.chunks(cut).collect();
        prop_assert_eq!(sids(PLAIN, &Conversation::open(7000).send(0, &parts).close()), [1]);
    }

    #[test]
    fn a_capture_that_is_cut_and_changed_anywhere_is_read(
        frame in 0usize..12,
        cut in 0usize..80,
        octet in any::<u8>(),
        flip in any::<bool>(),
    ) {
        let mut frames = Conversation::open(80).send(0, &[b"GET /x HTTP/1.1\r\n", b"Host: h\r\n\r\n"]).send(1, &[b"HTTP/1.1 200 OK\r\n\r\nx"]).close();
        let frame = frame % frames.len();
        let cut = cut % frames[frame].len();
        if flip {
            frames[frame][cut] ^= octet;
        } else {
            frames[frame].truncate(cut);
        }
        let rules = format!("{PLAIN}\n{}", r#"alert http any any -> any any (msg:"m"; http.uri; content:"/x"; sid:2;)"#);
        sids(&rules, &frames);
    }

    #[test]
    fn any_octets_are_a_frame(octets in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut frame = vec![0; 12];
        frame.extend([8, 0, 0x45]);
        frame.extend(octets);
        sids(PLAIN, &[frame]);
    }
}

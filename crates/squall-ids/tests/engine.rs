//! Rules on frames, as an engine's user sees them.

use proptest::prelude::*;
use squall_ids::{Alert, Compiled, Dialect, Engine, Settings};
use squall_rules::{RuleSet, Variables};
use squall_units::Nanos;
use squall_wire::tcp_flags::{ACK, FIN, PSH, SYN};

const CLIENT: [u8; 4] = [203, 0, 113, 1];
const SERVER: [u8; 4] = [192, 168, 1, 1];

/// Frames of one connection, as they are written down one by one.
struct Talk {
    frames: Vec<Vec<u8>>,
    client_port: u16,
    server_port: u16,
    /// Next sequence numbers of client and server.
    next: [u32; 2],
}

impl Talk {
    /// With a handshake.
    fn open(server_port: u16) -> Self {
        let mut talk =
            Talk { frames: vec![], client_port: 40_000, server_port, next: [1000, 5000] };
        talk.segment(0, SYN, b"");
        talk.next[0] += 1;
        talk.segment(1, SYN | ACK, b"");
        talk.next[1] += 1;
        talk.segment(0, ACK, b"");
        talk
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

    /// What one end says, each part a segment that the other end acknowledges.
    fn say(mut self, from: usize, parts: &[&[u8]]) -> Self {
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

/// An Ethernet frame with an IPv4 packet; `fragment`: the field of bits and offset.
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

/// The sids of all alerts, in their order.
fn sids(rules: &str, frames: &[Vec<u8>]) -> Vec<u32> {
    let set = set(rules);
    alerts(&set, frames).iter().map(|alert| set.rules[alert.rule].sid).collect()
}

const PLAIN: &str = r#"alert tcp any any -> any 7000 (msg:"m"; flow:to_server,established; content:"needle"; sid:1;)"#;

#[test]
fn a_content_is_found_across_segments_and_told_of_in_the_direction_of_who_sent_it() {
    let rules = set(PLAIN);
    let found = alerts(&rules, &Talk::open(7000).say(0, &[b"nee", b"dle"]).close());
    let [alert] = &found[..] else { panic!("{found:?}") };
    assert_eq!((alert.source.to_string(), alert.source_port), ("203.0.113.1".into(), 40_000));
    assert_eq!(
        (alert.destination.to_string(), alert.destination_port),
        ("192.168.1.1".into(), 7000)
    );
    assert!(alerts(&rules, &Talk::open(7000).say(1, &[b"needle"]).close()).is_empty());
    assert!(alerts(&rules, &Talk::open(7001).say(0, &[b"needle"]).close()).is_empty());
}

#[test]
fn a_rule_on_a_packets_size_looks_at_single_packets() {
    let rule = r#"alert tcp any any -> any 7000 (msg:"m"; dsize:6; content:"needle"; sid:1;)"#;
    assert_eq!(sids(rule, &Talk::open(7000).say(0, &[b"needle"]).close()), [1]);
    assert!(sids(rule, &Talk::open(7000).say(0, &[b"nee", b"dle"]).close()).is_empty());
}

#[test]
fn without_a_handshake_a_segment_is_looked_at_by_itself_and_nothing_is_established() {
    let stateless = r#"alert tcp any any -> any 7000 (msg:"m"; content:"needle"; sid:2;)"#;
    let mut talk =
        Talk { frames: vec![], client_port: 40_000, server_port: 7000, next: [1000, 5000] };
    talk.segment(0, PSH | ACK, b"a needle");
    assert_eq!(sids(&format!("{PLAIN}\n{stateless}"), &talk.frames), [2]);
}

#[test]
fn what_is_not_acknowledged_is_looked_at_when_nothing_follows() {
    let mut talk = Talk::open(7000);
    talk.segment(0, PSH | ACK, b"needle");
    assert_eq!(sids(PLAIN, &talk.frames), [1]);
}

#[test]
fn octets_outside_of_the_window_are_no_part_of_the_stream() {
    let mut talk = Talk::open(7000);
    talk.next[0] += 100_000;
    talk.segment(0, PSH | ACK, b"xx");
    talk.next[0] -= 100_000;
    assert_eq!(sids(PLAIN, &talk.say(0, &[b"needle"]).close()), [1]);
}

#[test]
fn a_depth_counts_from_the_beginning_of_what_is_looked_at_together() {
    let rule =
        r#"alert tcp any any -> any 7000 (msg:"m"; content:"ab"; depth:2; content:"yz"; sid:1;)"#;
    assert_eq!(sids(rule, &Talk::open(7000).say(0, &[b"a", b"bc", b"yz"]).close()), [1]);
    assert!(sids(rule, &Talk::open(7000).say(0, &[b"xabyz"]).close()).is_empty());
    // 2,560 octets are enough to look at: what follows is looked at by itself, and a packet by
    // itself as well.
    let long = [b'.'; 1400];
    let far = Talk::open(7000).say(0, &[&long, &long, b"..", b"abyz"]).close();
    assert_eq!(sids(rule, &far), [1]);
}

#[test]
fn a_bit_set_by_one_rule_is_read_by_another_whatever_their_order_in_the_file() {
    let rules = r#"
alert tcp any any -> any 7000 (msg:"reads"; flowbits:isset,b; content:"two"; dsize:3; sid:1;)
alert tcp any any -> any 7000 (msg:"sets"; flowbits:set,b; flowbits:noalert; content:"one"; dsize:3; sid:2;)
alert tcp any any -> any 7000 (msg:"sets"; flowbits:set,c; content:"two"; dsize:3; sid:3;)
alert tcp any any -> any 7000 (msg:"in the same packet"; flowbits:isset,c; content:"two"; dsize:3; sid:4;)"#;
    let frames = Talk::open(7000).say(0, &[b"one", b"two"]).close();
    assert_eq!(sids(rules, &frames), [3, 1, 4]);
    assert_eq!(sids(rules, &Talk::open(7000).say(0, &[b"two", b"one"]).close()), [3, 4]);
}

#[test]
fn the_acknowledgment_that_ends_the_handshake_is_not_established_unless_it_carries_something() {
    let rule =
        r#"alert tcp any any -> any 7000 (msg:"m"; flow:to_server,established; ack:5001; sid:1;)"#;
    assert!(sids(rule, &Talk::open(7000).frames).is_empty());
    let mut talk = Talk::open(7000);
    talk.frames.pop();
    talk.segment(0, PSH | ACK, b"x");
    assert_eq!(sids(rule, &talk.frames), [1]);
}

#[test]
fn a_rule_of_addresses_alerts_once_in_each_direction() {
    let frames = Talk::open(7000).say(0, &[b"a"]).say(1, &[b"b"]).close();
    assert_eq!(sids(r#"alert ip any any -> any any (msg:"m"; sid:1;)"#, &frames), [1, 1]);
}

#[test]
fn who_is_let_pass_is_told_of_no_more() {
    let pass = r#"pass tcp any any -> any 7000 (msg:"p"; flow:established; content:"hay"; sid:9;)"#;
    let rules = format!("{PLAIN}\n{pass}");
    assert!(sids(&rules, &Talk::open(7000).say(0, &[b"hay needle"]).close()).is_empty());
    assert_eq!(sids(&rules, &Talk::open(7000).say(0, &[b"needle"]).close()), [1]);
}

#[test]
fn a_packet_has_no_more_alerts_than_the_settings_say() {
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
fn a_filter_lets_through_what_comes_after_its_count() {
    let rule = r#"alert udp any any -> any 7000 (msg:"m"; content:"a"; detection_filter:track by_src, count 3, seconds 60; sid:1;)"#;
    let frames: Vec<_> =
        (0..5).map(|port| ip(CLIENT, SERVER, 17, 0, &udp((port + 1, 7000), b"a"))).collect();
    assert_eq!(sids(rule, &frames), [1, 1]);
}

#[test]
fn what_a_rule_asks_of_a_request_and_of_the_stream_are_both_needed() {
    let rule = r#"alert tcp any any -> any 80 (msg:"m"; flow:to_server,established; content:"/a b"; http_uri; content:"%20b"; sid:1;)"#;
    let request = |uri: &str| format!("GET {uri} HTTP/1.1\r\nHost: h\r\n\r\n").into_bytes();
    assert_eq!(sids(rule, &Talk::open(80).say(0, &[&request("/a%20b")]).close()), [1]);
    assert!(sids(rule, &Talk::open(80).say(0, &[&request("/a+b")]).close()).is_empty());
    assert!(sids(rule, &Talk::open(80).say(0, &[&request("/a%20c")]).close()).is_empty());
}

#[test]
fn both_directions_of_a_transaction_are_asked_for_together() {
    let rule = r#"alert http any any => any any (msg:"m"; http.uri; content:"/x"; http.stat_code; content:"404"; sid:1;)"#;
    let talk = |status: &str| {
        let answer = format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n");
        Talk::open(80)
            .say(0, &[b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n"])
            .say(1, &[answer.as_bytes()])
            .close()
    };
    assert_eq!(sids(rule, &talk("404")), [1]);
    assert!(sids(rule, &talk("200")).is_empty());
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

fn dialect(rules: &str, frames: &[Vec<u8>], dialect: Dialect) -> Vec<u32> {
    let set = set(rules);
    let compiled = Compiled::new(&set);
    let which: Vec<usize> = (0..set.rules.len()).collect();
    let settings = Settings { checksums: false, ..Settings::of(dialect) };
    let (mut engine, _) = Engine::new(&compiled, &which, settings);
    for (index, frame) in frames.iter().enumerate() {
        engine.frame(Nanos(index as u64 * 1_000_000), frame);
    }
    engine.finish();
    engine.alerts().iter().map(|alert| set.rules[alert.rule].sid).collect()
}

#[test]
fn snort_looks_at_packets_and_at_the_stream_and_tells_of_three_rules_a_packet() {
    // What was acknowledged late is another chunk of the stream: the content stands at its
    // beginning only in its packet.
    let rule = r#"alert tcp any any -> any 7000 (msg:"m"; flow:to_server,established; content:"needle"; content:!"hay"; sid:1;)"#;
    let frames = Talk::open(7000).say(0, &[b"hay", b"needle"]).close();
    assert!(dialect(rule, &frames, Dialect::Suricata).is_empty());
    assert_eq!(dialect(rule, &frames, Dialect::Snort), [1]);
    let many: String = (1..=5)
        .map(|sid| format!("alert udp any any -> any 9 (msg:\"m\"; content:\"x\"; sid:{sid};)\n"))
        .collect();
    let frames = [ip(CLIENT, SERVER, 17, 0, &udp((40_000, 9), b"x"))];
    assert_eq!(dialect(&many, &frames, Dialect::Suricata).len(), 5);
    assert_eq!(dialect(&many, &frames, Dialect::Snort).len(), 3);
}

#[test]
fn what_suricata_never_raises_is_not_raised() {
    for rule in [
        r#"alert tcp any 443 -> any any (msg:"m"; flow:to_client,established; ssl_state:server_hello; sid:1;)"#,
        r#"alert tcp any any -> any 21 (msg:"m"; flow:to_server,established; content:"PORT"; ftpbounce; sid:2;)"#,
        r#"alert tcp any any -> any 7000 (msg:"m"; content:"s3t",offset -1; sid:3;)"#,
    ] {
        let set = set(rule);
        assert!(Dialect::Suricata.never(&set.rules[0]).is_some(), "{rule}");
        assert!(Dialect::Snort.never(&set.rules[0]).is_none(), "{rule}");
    }
    let before = r#"alert tcp any any -> any 7000 (msg:"m"; content:"s3t",offset -1; sid:3;)"#;
    let frames = Talk::open(7000).say(0, &[b"s3t"]).close();
    assert!(dialect(before, &frames, Dialect::Suricata).is_empty());
    // In its packet, and again in the stream.
    assert_eq!(dialect(before, &frames, Dialect::Snort), [3, 3]);
    for rule in [
        r#"alert tcp any any -> any 443 (msg:"m"; flow:to_server,established; ssl_state:client_hello; sid:1;)"#,
        r#"alert ftp any any -> any any (msg:"m"; flow:to_server,established; ftpbounce; sid:2;)"#,
    ] {
        assert!(Dialect::Suricata.never(&set(rule).rules[0]).is_none(), "{rule}");
    }
}

#[test]
fn ber_is_looked_at_in_the_packet_that_carries_it() {
    let rule = r#"alert tcp any any -> any 88 (msg:"m"; flow:to_server,established; content:"j"; depth:1; asn1:bitstring_overflow,relative_offset 0; sid:1;)"#;
    let whole = Talk::open(88).say(0, &[b"j\x03\x01\xff"]).close();
    let cut = Talk::open(88).say(0, &[b"j\x03", b"\x01\xff"]).close();
    assert_eq!((sids(rule, &whole), sids(rule, &cut)), (vec![1], vec![]));
    assert_eq!(dialect(rule, &cut, Dialect::Snort), [1]);
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
    let frames = Talk::open(7000).say(0, &[b"needle WORD1", b"23 word200"]).close();
    assert_eq!(sids(&rules, &frames), [1, 123, 200]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn however_a_stream_is_cut_what_is_in_it_is_found(
        before in proptest::collection::vec(any::<u8>(), 0..200),
        after in proptest::collection::vec(any::<u8>(), 0..200),
        cut in 1usize..16,
    ) {
        let octets = [&before[..], b"needle", &after[..]].concat();
        let parts: Vec<&[u8]> = octets.chunks(cut).collect();
        prop_assert_eq!(sids(PLAIN, &Talk::open(7000).say(0, &parts).close()), [1]);
    }

    #[test]
    fn a_capture_that_is_cut_and_changed_anywhere_is_read(
        frame in 0usize..12,
        cut in 0usize..80,
        octet in any::<u8>(),
        flip in any::<bool>(),
    ) {
        let mut frames = Talk::open(80).say(0, &[b"GET /x HTTP/1.1\r\n", b"Host: h\r\n\r\n"]).say(1, &[b"HTTP/1.1 200 OK\r\n\r\nx"]).close();
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

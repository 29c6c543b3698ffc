//! Solves rules from text and examines the result.

use squall_rules::{RuleSet, Variables};

use super::*;

fn rules(text: &str) -> RuleSet {
    let rules = RuleSet::parse(text, &Variables::standard());
    assert!(rules.problems.is_empty(), "{:?}", rules.problems);
    rules
}

fn solved(rules: &RuleSet, rule: usize, sample: u32) -> Solution {
    Solver::new(rules, Settings::default()).solve(rule, sample).unwrap_or_else(|unsolved| {
        panic!("{}: {:?}, {unsolved}", rules.rules[rule].text, unsolved.reason)
    })
}

fn reason(text: &str) -> Reason {
    let rules = rules(text);
    Solver::new(&rules, Settings::default()).solve(0, 0).unwrap_err().reason
}

/// Whether rule `rule` matches if segments have at most `mss` octets.
fn is_seen(rules: &RuleSet, solution: &Solution, mss: u16) -> bool {
    let mut which = solution.setters.clone();
    which.push(solution.rule);
    which.sort_unstable();
    which.dedup();
    let together: Vec<&Rule> = which.iter().map(|&index| &rules.rules[index]).collect();
    let ends = endpoints_of(&together, 3, &Hosts::default()).unwrap();
    let compiled = squall_ids::Compiled::new(rules);
    let (mut engine, refused) =
        squall_ids::Engine::new(&compiled, &which, squall_ids::Settings::default());
    assert!(refused.is_empty(), "{refused:?}");
    let settings = wire::Settings { mss, ..wire::Settings::default() };
    let mut from = Nanos(1_000_000_000);
    for exchange in &solution.exchanges {
        for frame in wire::frames(exchange, &ends, &settings).unwrap() {
            engine.frame(Nanos(from.0 + frame.at.0), &frame.octets);
        }
        from = Nanos(from.0 + 60_000_000);
    }
    engine.finish();
    engine.alerts().iter().any(|alert| alert.rule == solution.rule)
}

const PLAIN: &[&str] = &[
    r#"alert tcp $EXTERNAL_NET any -> $HOME_NET 7777 (msg:"a"; flow:to_server,established; content:"BEGIN"; depth:5; content:"|00 01|"; distance:2; within:9; sid:1;)"#,
    r#"alert tcp $HOME_NET 31337 -> $EXTERNAL_NET any (msg:"b"; flow:to_client,established; content:"welcome"; nocase; content:!"goodbye"; sid:2;)"#,
    r#"alert udp any any -> any 5555 (msg:"c"; content:"ping"; offset:4; depth:12; dsize:>20; sid:3;)"#,
    r#"alert tcp $HOME_NET any -> $EXTERNAL_NET $HTTP_PORTS (msg:"d"; flow:to_server,established; content:"/gate/in.php?"; http_uri; content:"id="; distance:0; http_uri; content:"User-Agent|3A 20|Evil"; http_header; sid:4;)"#,
    r#"alert tcp $EXTERNAL_NET any -> $HOME_NET 9999 (msg:"f"; flow:to_server,established; content:"LEN"; byte_jump:2,0,relative; content:"TAIL"; within:4; sid:6;)"#,
];

const OTHERS: &[&str] = &[
    r#"alert http $HOME_NET any -> $EXTERNAL_NET any (msg:"e"; flow:established,to_server; http.method; content:"POST"; http.uri; content:".php"; endswith; bsize:12; http.request_body; content:"cmd="; depth:4; isdataat:20,relative; sid:5;)"#,
    r#"alert tcp $HOME_NET any -> $EXTERNAL_NET 80 (msg:"g"; flow:to_server,established; content:"/a"; http_uri; pcre:"/^\/a[a-f0-9]{16}\.(gif|png)$/U"; content:!"Referer"; http_header; sid:7;)"#,
    r#"alert tcp any any -> any 80 (msg:"h"; flow:to_server,established; content:"GET /x HTTP/1.1|0D 0A|Host|3A| "; content:"Accept"; http_header; sid:8;)"#,
    r#"alert icmp any any -> any any (msg:"i"; itype:8; icode:0; icmp_id:77; content:"abcd"; dsize:12; sid:9;)"#,
    r#"alert tcp any any -> any any (msg:"j"; flags:SF; window:1024; sid:10;)"#,
    r#"alert tcp any any -> any 6000 (msg:"k"; flow:to_server,established; content:"N"; depth:1; byte_test:4,>,1000,3,relative,little; byte_extract:1,0,n,relative; isdataat:n; sid:11;)"#,
    r#"alert tcp any any -> any 6001 (msg:"l"; flow:to_server,established; content:"user="; pcre:"/^[a-z]{3}\d{40,}/R"; sid:12;)"#,
];

#[test]
fn rules_of_all_kinds_are_solved_and_seen() {
    for text in PLAIN.iter().chain(OTHERS) {
        let rules = rules(text);
        for sample in 0..2 {
            let solution = solved(&rules, 0, sample);
            assert!(is_seen(&rules, &solution, 1460), "{text}");
        }
    }
}

#[test]
fn samples_differ_and_the_same_sample_is_the_same() {
    for text in PLAIN {
        let rules = rules(text);
        assert_eq!(solved(&rules, 0, 0), solved(&rules, 0, 0));
    }
    let rules = rules(OTHERS[1]);
    let samples: std::collections::BTreeSet<Vec<u8>> = (0..4)
        .map(|sample| {
            let turns = solved(&rules, 0, sample).exchanges[0].turns.clone();
            turns.iter().flat_map(|turn| turn.octets.bytes().to_vec()).collect()
        })
        .collect();
    assert!(samples.len() >= 3, "{}", samples.len());
}

#[test]
fn segments_of_eight_octets_are_seen_as_well() {
    for text in PLAIN.iter().filter(|text| !text.contains("dsize")) {
        let rules = rules(text);
        assert!(is_seen(&rules, &solved(&rules, 0, 0), 8), "{text}");
    }
}

#[test]
fn without_a_required_octet_the_rule_does_not_match() {
    for text in PLAIN {
        let rules = rules(text);
        let solution = solved(&rules, 0, 0);
        let turns = &solution.exchanges[0].turns;
        let required: Vec<(usize, usize)> = turns
            .iter()
            .enumerate()
            .flat_map(|(turn, sent)| {
                let of_contents =
                    sent.octets.origins().iter().enumerate().filter(|(_, origin)| match origin {
                        Origin::Option(option) => {
                            let range = rules.rules[0].options[usize::from(*option)].clone();
                            rules.rules[0].text[range].trim_start().starts_with("content")
                        }
                        _ => false,
                    });
                of_contents.map(move |(at, _)| (turn, at)).collect::<Vec<_>>()
            })
            .collect();
        assert!(required.len() > 3, "{text}");
        for &(turn, at) in &required {
            let mut other = solution.clone();
            let octets: &mut Octets = &mut other.exchanges[0].turns[turn].octets;
            let byte = octets.bytes()[at];
            // Another octet that the protocol allows as well.
            let changed = if byte.eq_ignore_ascii_case(&b'q') { b'w' } else { b'q' };
            octets.set(at, changed, Origin::Free);
            assert!(!is_seen(&rules, &other, 1460), "{text}: octet {at} of turn {turn}");
        }
    }
}

#[test]
fn the_setter_of_a_bit_comes_first_in_the_same_flow() {
    let rules = rules(concat!(
        r#"alert tcp any any -> any 7000 (msg:"asks"; flow:to_server,established; flowbits:isset,second; content:"third"; sid:1;)"#,
        "\n",
        r#"alert tcp any 7000 -> any any (msg:"sets"; flow:to_client,established; flowbits:isset,first; content:"answer"; flowbits:set,second; flowbits:noalert; sid:2;)"#,
        "\n",
        r#"alert tcp any any -> any [7000,7001] (msg:"sets"; flow:to_server,established; content:"question"; flowbits:set,first; noalert; sid:3;)"#,
        "\n",
        r#"alert tcp any any -> any 7000 (msg:"asks in vain"; flow:to_server,established; flowbits:isset,nobody; content:"x"; sid:4;)"#,
    ));
    let solution = solved(&rules, 0, 0);
    assert_eq!(solution.setters, [2, 1]);
    assert_eq!(solution.exchanges.len(), 1);
    assert!(is_seen(&rules, &solution, 1460));
    let solver = Solver::new(&rules, Settings::default());
    assert_eq!(solver.solve(1, 0).unwrap_err().reason, Reason::Silent);
    assert_eq!(solver.solve(3, 0).unwrap_err().reason, Reason::NoSetter);
    let explanation = explain(&rules, &solution).to_string();
    assert!(
        explanation.contains("content:\"third\"") && explanation.contains("rule 3, played before"),
        "{explanation}"
    );
}

#[test]
fn the_number_of_events_is_that_of_the_count() {
    for (text, flows) in [
        (
            r#"alert tcp any any -> any 7000 (msg:"t"; flow:to_server,established; content:"login"; depth:5; detection_filter:track by_src,count 4,seconds 60; sid:1;)"#,
            5,
        ),
        (
            r#"alert tcp any any -> any 7000 (msg:"t"; flow:to_server,established; content:"login"; depth:5; threshold:type threshold,track by_src,count 3,seconds 60; sid:1;)"#,
            3,
        ),
        (
            r#"alert tcp any any -> any 7000 (msg:"t"; flow:to_server,established; content:"login"; depth:5; threshold:type limit,track by_src,count 3,seconds 60; sid:1;)"#,
            1,
        ),
        (
            r#"alert udp any any -> any 7000 (msg:"t"; content:"login"; depth:5; detection_filter:track by_dst,count 4,seconds 60; sid:1;)"#,
            1,
        ),
    ] {
        let rules = rules(text);
        let solution = solved(&rules, 0, 0);
        assert_eq!(solution.exchanges.len(), flows, "{text}");
        let mut ports: Vec<u16> =
            solution.exchanges.iter().map(|exchange| exchange.client_port).collect();
        ports.dedup();
        assert_eq!(ports.len(), flows);
    }
}

#[test]
fn unsolvable_rules_have_a_reason() {
    let unsolved = |options: &str| {
        reason(&format!(
            "alert tcp any any -> any 7000 (msg:\"x\"; flow:to_server,established; {options} \
             sid:1;)"
        ))
    };
    assert_eq!(unsolved(r#"content:"abc"; content:!"b";"#), Reason::Contradiction);
    assert_eq!(
        unsolved(
            r#"content:"abcdef"; content:"g"; distance:0; within:1; isdataat:!8; content:"hij"; distance:4;"#
        ),
        Reason::Contradiction
    );
    assert_eq!(
        reason(
            r#"alert tcp [10.0.0.1,!10.0.0.1,192.0.2.1] any -> 2001:db8::1 any (msg:"x"; flow:to_server,established; content:"a"; sid:1;)"#
        ),
        Reason::NoAddress
    );
}

#[test]
fn a_rule_that_would_take_for_ever_ends() {
    let contents: String = (0..30).map(|_| "content:\"aa\"; distance:0; within:40; ").collect();
    let text = format!(
        "alert tcp any any -> any 7000 (msg:\"x\"; flow:to_server,established; {contents} \
         content:\"b\"; distance:0; within:1; isdataat:!3,relative; content:\"ccccc\"; \
         distance:0; sid:1;)"
    );
    let rules = rules(&text);
    let solver = Solver::new(&rules, Settings { steps: 5_000, ..Settings::default() });
    assert!(matches!(
        solver.solve(0, 0).unwrap_err().reason,
        Reason::TooLong | Reason::Contradiction
    ));
}

#[test]
fn dns_answers_are_distinguished_from_questions() {
    let rules = rules(
        r#"alert udp $EXTERNAL_NET 53 -> $HOME_NET any (msg:"a"; content:"|07|example|03|com"; content:"|C0 0C 00 01 00 01|"; distance:0; sid:1;)"#,
    );
    let solution = solved(&rules, 0, 0);
    let answer = solution.exchanges[0]
        .turns
        .iter()
        .find(|turn| turn.from == squall_rules::End::Server)
        .unwrap();
    assert_eq!(answer.octets.bytes()[2] & 0x80, 0x80, "{:02x?}", answer.octets.bytes());
}

#[test]
fn messages_of_icmp_that_a_rule_names_are_those_of_ipv4() {
    let spec = Hosts { family: Some(6), ..Hosts::default() };
    for (text, family) in [
        (r#"alert icmp any any -> any any (msg:"a"; itype:8; sid:1;)"#, 4),
        (r#"alert icmp any any -> any any (msg:"b"; icode:3; content:"x"; sid:2;)"#, 4),
        (r#"alert icmp any any -> any any (msg:"c"; content:"x"; sid:3;)"#, 6),
        (r#"alert icmp any any -> any any (msg:"d"; itype:>127; sid:4;)"#, 6),
        (r#"alert icmp fd00::/8 any -> any any (msg:"e"; itype:3; sid:5;)"#, 6),
    ] {
        let rules = rules(text);
        let ends = endpoints_of(&[&rules.rules[0]], 0, &spec).unwrap();
        assert_eq!(ends.client.is_ipv4(), family == 4, "{text}");
    }
}

#[test]
fn negative_offsets_and_empty_numbers_are_made_for_engines_that_accept_them() {
    for text in [
        r#"alert tcp any any -> any 7000 (msg:"a"; flow:to_server,established; content:"s3t",offset -1; sid:1;)"#,
        r#"alert tcp any any -> any 7000 (msg:"b"; flow:to_server,established; content:!"s3t",offset -3,depth 9; content:"x"; sid:2;)"#,
        r#"alert tcp any 443 -> any any (msg:"c"; flow:to_client,established; ssl_state:server_hello; sid:3;)"#,
    ] {
        let rules = rules(text);
        let never = Solver::new(&rules, Settings::default()).solve(0, 0).unwrap_err();
        assert_eq!(never.reason, Reason::EngineNever, "{text}");
        let snort = Settings { engine: EngineVersion::Snort2, ..Settings::default() };
        assert!(Solver::new(&rules, snort).solve(0, 0).is_ok(), "{text}");
    }
}

#[test]
fn the_failing_option_is_explained_with_the_closest_attempt() {
    let rules =
        rules(r#"alert udp any any -> any 7000 (msg:"a"; content:"abc"; vlan.id:300; sid:1;)"#);
    let unsolved = Solver::new(&rules, Settings::default()).solve(0, 0).unwrap_err();
    let explanation =
        explain_unsolved(&rules, &unsolved, "not_verified".into(), EngineVersion::Suricata8);
    assert_eq!(explanation.option.as_deref(), Some("vlan.id:300"), "{explanation}");
    assert!(explanation.strategy.is_some() && !explanation.flows.is_empty(), "{explanation}");
    let text = explanation.to_string();
    assert!(text.contains("best attempt: ") && text.contains("from content:\"abc\""), "{text}");
}

#[test]
fn a_near_miss_contains_the_required_octets_nowhere() {
    for (pattern, port) in [
        ("MAIL FROM", 25),
        ("RCPT TO", 25),
        ("EHLO", 25),
        ("Host:", 80),
        ("User-Agent", 80),
        (" HTTP/1.1", 80),
    ] {
        let pattern_in_rule = pattern.replace(':', "|3a|");
        let rules = rules(&format!(
            r#"alert tcp any any -> any {port} (msg:"a"; flow:to_server,established; content:"{pattern_in_rule}"; nocase; sid:1;)"#
        ));
        for engine in EngineVersion::ALL {
            let solver = Solver::new(&rules, Settings { engine, ..Settings::default() });
            let solution = solver.solve(0, 0).unwrap_or_else(|why| panic!("{pattern}: {why}"));
            let Some(twin) = crate::near_miss(&solution, &rules, &solver) else {
                panic!("{pattern}: no twin for {engine}");
            };
            let data: Vec<u8> = twin
                .exchanges
                .iter()
                .flat_map(|exchange| &exchange.turns)
                .filter(|turn| turn.from == squall_rules::End::Client)
                .flat_map(|turn| turn.octets.bytes().to_ascii_lowercase())
                .collect();
            let pattern = pattern.to_ascii_lowercase();
            assert!(
                !data.windows(pattern.len()).any(|window| window == pattern.as_bytes()),
                "{pattern} for {engine}: {}",
                String::from_utf8_lossy(&data)
            );
        }
    }
}

#[test]
fn an_unknown_protocol_is_played_until_detection_ends_and_a_silent_server_stays_silent() {
    for text in [
        r#"alert tcp any any -> any 7000 (msg:"a"; flow:to_server,established; app-layer-protocol:!http; content:"needle"; sid:1;)"#,
        r#"alert tcp any any -> any 7000 (msg:"b"; flow:to_server,established; app-layer-protocol:!tls; content:"needle"; depth:6; sid:2;)"#,
        r#"alert tcp any any -> any 7000 (msg:"c"; flow:to_client,established; app-layer-protocol:failed; content:"needle"; sid:3;)"#,
        r#"alert udp any any -> any 7000 (msg:"d"; app-layer-protocol:!dns; content:"needle"; sid:4;)"#,
    ] {
        assert!(!solved(&rules(text), 0, 0).exchanges[0].turns.is_empty(), "{text}");
    }
    let silent = r#"alert tcp any any -> any 7000 (msg:"e"; flow:to_server,established; stream_size:server,=,1; content:"needle"; sid:5;)"#;
    let solution = solved(&rules(silent), 0, 0);
    let from_server = |turn: &&crate::Turn| turn.from == squall_rules::End::Server;
    assert_eq!(solution.exchanges[0].turns.iter().filter(from_server).count(), 0);
    // If the server is silent, engines never give up detection.
    let both = silent.replace("content", "app-layer-protocol:!http; content");
    assert_eq!(reason(&both), Reason::NotVerified);
}

#[test]
fn contents_after_a_transform_after_a_content_are_played() {
    for text in [
        r#"alert http any any -> any any (msg:"a"; flow:to_server,established; http.uri; content:"/Needle"; to_lowercase; content:"hay"; sid:1;)"#,
        r#"alert dns any any -> any any (msg:"b"; dns.query; content:"needle"; dotprefix; content:".squall.example"; endswith; sid:2;)"#,
        r#"alert http any any -> any any (msg:"c"; flow:to_server,established; http.uri; content:"/a"; startswith; url_decode; content:"b c"; sid:3;)"#,
    ] {
        solved(&rules(text), 0, 0);
    }
}

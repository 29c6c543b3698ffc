//! Tests rules that engines read in a particular way.

use squall_rules::*;

fn rule(options: &str) -> Rule {
    let set = RuleSet::parse(
        &format!("alert tcp any any -> any any ({options} sid:1;)"),
        &Variables::standard(),
    );
    assert!(set.problems.is_empty(), "{:?}", set.problems);
    set.rules.into_iter().next().unwrap()
}

fn contents(inspection: &Inspection) -> Vec<&Content> {
    let content = |step: &'_ Step| matches!(step.operation, Operation::Content(_));
    assert!(inspection.steps.iter().all(content));
    inspection
        .steps
        .iter()
        .filter_map(|step| {
            if let Operation::Content(content) = &step.operation { Some(content) } else { None }
        })
        .collect()
}

fn buffers(rule: &Rule) -> Vec<(Buffer, usize)> {
    rule.inspections.iter().map(|inspection| (inspection.buffer, inspection.steps.len())).collect()
}

#[test]
fn a_modifier_moves_its_content_and_relative_options_follow_it() {
    let rule = rule(
        r#"content:"a"; http_uri; isdataat:5,relative; content:"b"; content:"c"; http_uri; distance:1;"#,
    );
    assert_eq!(buffers(&rule), [(Buffer::HttpUri, 3), (Buffer::Payload, 1)]);
    let Operation::Content(last) = &rule.inspections[0].steps[2].operation else { panic!() };
    assert_eq!((last.pattern.as_slice(), last.distance), (b"c".as_slice(), Some(Number::Is(1))));
    assert_eq!(rule.dialect, Dialect::Snort2);
}

#[test]
fn a_byte_test_that_is_not_relative_looks_into_the_payload() {
    let rule = rule(r#"content:"a"; http_uri; byte_test:1,>,1,0; byte_test:1,>,1,0,relative;"#);
    assert_eq!(buffers(&rule), [(Buffer::HttpUri, 1), (Buffer::Payload, 2)]);
}

#[test]
fn a_sticky_buffer_lasts_until_another_and_a_flag_of_an_expression_selects_its_own() {
    let rule = rule(r#"file_data; content:"a"; pcre:"/b/U"; pcre:"/c/R"; pkt_data; content:"d";"#);
    assert_eq!(buffers(&rule), [(Buffer::FileData, 2), (Buffer::HttpUri, 1), (Buffer::Payload, 1)]);
}

#[test]
fn a_buffer_named_again_goes_on_unless_there_are_several_of_it() {
    let rule_of =
        rule(r#"http.uri; content:"a"; http.method; content:"b"; http.uri; content:"c";"#);
    assert_eq!(buffers(&rule_of), [(Buffer::HttpUri, 2), (Buffer::HttpMethod, 1)]);
    let rule_of = rule(r#"dns.query; content:"a"; dns.query; content:"b";"#);
    assert_eq!(buffers(&rule_of), [(Buffer::DnsQuery, 1), (Buffer::DnsQuery, 1)]);
    let rule_of = rule(r#"http.uri; content:"a"; http.uri; to_lowercase; content:"b";"#);
    assert_eq!(buffers(&rule_of), [(Buffer::HttpUri, 1), (Buffer::HttpUri, 1)]);
    assert_eq!(rule_of.inspections[1].transforms[0].is, Transform::ToLowercase);
}

#[test]
fn no_octet_after_a_content_makes_it_the_last() {
    let of = rule(r#"content:"/x"; http_uri; depth:2; isdataat:!1,relative; nocase;"#);
    let content = contents(&of.inspections[0])[0];
    assert!(content.endswith && content.nocase && content.depth == Some(Number::Is(2)));
    let after_an_expression = rule(r#"pcre:"/x/"; isdataat:!1,relative;"#);
    assert_eq!(after_an_expression.inspections[0].steps.len(), 2);
}

#[test]
fn parameters_after_a_content_in_snort_3_equal_separate_options() {
    let of = rule(
        r#"content:!"a|00|",nocase,offset 1,depth 8,fast_pattern; content:"b",distance -2,within 4;"#,
    );
    assert_eq!(of.dialect, Dialect::Snort3);
    let [first, second] = contents(&of.inspections[0])[..] else { panic!() };
    let expected = Content {
        pattern: b"a\0".to_vec(),
        negated: true,
        nocase: true,
        fast_pattern: true,
        offset: Some(Number::Is(1)),
        depth: Some(Number::Is(8)),
        ..Content::default()
    };
    assert_eq!(first, &expected);
    assert_eq!((second.distance, second.within), (Some(Number::Is(-2)), Some(Number::Is(4))));
}

#[test]
fn a_rule_of_snort_3_needs_no_addresses_and_goes_on_until_its_parenthesis_closes() {
    let text = "alert http (\n  msg:\"m\"; # said\n  # of nobody\n  http_uri; \
                content:\"/a\",nocase;\n  sid:5;\n)\nalert tcp (\nalert tcp any any -> any any \
                (sid:6;)";
    let set = RuleSet::parse(text, &Variables::none());
    assert_eq!(set.problems.len(), 1, "{:?}", set.problems);
    assert_eq!((set.problems[0].place.line, set.problems[0].reason), (7, Reason::Syntax));
    assert_eq!(
        set.rules.iter().map(|rule| (rule.sid, rule.place.line)).collect::<Vec<_>>(),
        [(5, 1), (6, 8)]
    );
    assert_eq!(set.rules[0].header.protocol, Protocol::Application(Application::Http));
    assert_eq!(buffers(&set.rules[0]), [(Buffer::HttpUri, 1)]);
}

#[test]
fn disabled_rules_are_read_on_request() {
    let text = "# alert tcp any any -> any any (msg:\"off\"; sid:1;)\n# alert me (when it is \
                done)\n#nothing\n";
    assert!(RuleSet::parse(text, &Variables::none()).rules.is_empty());
    let set = Reader { disabled: true, ..Reader::default() }.parse(text, &Variables::none());
    assert_eq!((set.rules.len(), set.problems.len()), (1, 0));
    assert!(set.rules[0].disabled);
}

#[test]
fn a_semicolon_in_quotes_ends_nothing_and_one_with_a_backslash_neither() {
    let of = rule(r#"msg:"a; b"; content:"c\;d"; pcre:"/e\;f;g/";"#);
    assert_eq!((of.msg.as_str(), of.options.len()), ("a; b", 4));
    assert_eq!(
        contents(&Inspection {
            steps: of.inspections[0].steps[..1].to_vec(),
            ..of.inspections[0].clone()
        })[0]
            .pattern,
        b"c;d"
    );
    assert_eq!(&of.text[of.options[0].clone()], "msg:\"a; b\"");
}

#[test]
fn files_include_others_and_cycles_are_problems() {
    let directory = std::env::temp_dir().join(format!("squall-rules-{}", std::process::id()));
    std::fs::create_dir_all(directory.join("more")).unwrap();
    let line = |sid: u32| format!("alert tcp any any -> $NET 80 (sid:{sid};)\n");
    std::fs::write(
        directory.join("a.rules"),
        format!("ipvar NET 10.0.0.0/8\n{}include more/b.rules\n{}", line(1), line(2)),
    )
    .unwrap();
    std::fs::write(
        directory.join("more/b.rules"),
        format!("{}include ../a.rules\ninclude none.rules\n", line(3)),
    )
    .unwrap();
    let set = RuleSet::read(&[&directory], &Variables::none());
    std::fs::remove_dir_all(&directory).unwrap();
    assert_eq!(set.rules.iter().map(|rule| rule.sid).collect::<Vec<_>>(), [1, 3, 2]);
    assert_eq!(
        set.problems.iter().map(|problem| (problem.reason, problem.place.line)).collect::<Vec<_>>(),
        [(Reason::Include, 2), (Reason::Include, 3)]
    );
    assert_eq!(set.files.len(), 2);
}

#[test]
fn files_in_utf_16_are_read() {
    let file = std::env::temp_dir().join(format!("squall-rules-wide-{}.rules", std::process::id()));
    let text =
        "\u{feff}alert tcp any any -> any 80 (sid:1;)\r\nalert tcp any any -> any 81 (sid:2;)\r\n";
    for unit in [u16::to_le_bytes, u16::to_be_bytes] {
        std::fs::write(&file, text.encode_utf16().flat_map(unit).collect::<Vec<_>>()).unwrap();
        let set = RuleSet::read(&[&file], &Variables::none());
        assert_eq!((set.rules.len(), set.problems.len()), (2, 0));
    }
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn the_newer_of_two_rules_with_one_sid_is_taken() {
    let line =
        |port: u16, rev: u32| format!("alert tcp any any -> any {port} (sid:1; rev:{rev};)\n");
    let set = RuleSet::parse(&[line(1, 1), line(2, 3), line(3, 2)].concat(), &Variables::none());
    assert_eq!(set.rules.iter().map(|rule| rule.place.line).collect::<Vec<_>>(), [2]);
    assert_eq!(
        set.problems.iter().map(|problem| (problem.reason, problem.place.line)).collect::<Vec<_>>(),
        [(Reason::Duplicate, 1), (Reason::Duplicate, 3)]
    );
}

#[test]
fn a_problem_has_a_position_and_a_hint() {
    let set = RuleSet::parse(
        "alert tcp any any -> any any (msg:\"x\"; htpp.uri; content:\"a\"; sid:7;)",
        &Variables::none(),
    );
    let problem = &set.problems[0];
    assert_eq!(
        (problem.reason, problem.column, problem.sid),
        (Reason::UnknownKeyword, Some(40), Some(7))
    );
    assert!(problem.text.contains("http.uri"), "{}", problem.text);
}

#[test]
fn a_content_longer_than_any_packet_is_refused_with_its_column() {
    let rule = |octets: usize| {
        let long = "x".repeat(octets);
        format!(
            "alert tcp any any -> any any (msg:\"x\"; content:\"a\"; content:\"{long}\"; sid:7;)"
        )
    };
    let set = RuleSet::parse(
        &[rule(65_535), rule(65_536).replace("sid:7", "sid:8")].join("\n"),
        &Variables::none(),
    );
    assert_eq!((set.rules.len(), set.problems.len()), (1, 1), "{:?}", set.problems);
    let problem = &set.problems[0];
    assert_eq!(
        (problem.reason, problem.place.line, problem.column, problem.sid),
        (Reason::BadValue, 2, Some(53), Some(8))
    );
    assert!(
        problem.text.contains("65536 octets") && problem.text.contains("at most 65535"),
        "{}",
        problem.text
    );
}

#[test]
fn no_option_has_room_for_more_negations_than_a_stack_has() {
    let marks = "!".repeat(70_000);
    for option in ["ttl", "urilen", "dsize", "itype", "bsize", "tls.cert_chain_len"] {
        let text =
            format!("alert tcp any any -> any any (http.uri; {option}:{marks}[[a]]; sid:1;)");
        let set = RuleSet::parse(&text, &Variables::none());
        assert_eq!((set.rules.len(), set.problems.len()), (0, 1), "{option}");
    }
    let set = RuleSet::parse(
        &format!("alert tcp {marks}any any -> any any (sid:1;)"),
        &Variables::none(),
    );
    assert!(set.problems[0].text.contains("deep"), "{}", set.problems[0].text);
}

/// The problems reported when `engine` reads a rule with these options; empty if it loads the rule.
fn refused(engine: EngineVersion, header: &str, options: &str) -> Vec<(Reason, String)> {
    let reader = Reader { engine: Some(engine), ..Reader::default() };
    let set =
        reader.parse(&format!("alert {header} (msg:\"m\"; {options} sid:1;)"), &Variables::none());
    assert_eq!(set.rules.len() + set.problems.len(), 1);
    set.problems.into_iter().map(|problem| (problem.reason, problem.text)).collect()
}

#[test]
fn a_named_engine_refuses_what_that_version_does_not_load() {
    use EngineVersion::*;
    const TCP: &str = "tcp any any -> any 80";
    for (header, options, loaded_by) in [
        (TCP, r#"content:"a"; nocase; depth:1;"#, &[Suricata7, Suricata8, Snort2][..]),
        (TCP, r#"content:"a",nocase,depth 1;"#, &[Snort3]),
        (TCP, r#"content:"a"; http_uri;"#, &[Suricata7, Suricata8, Snort2, Snort3]),
        (TCP, r#"http_uri; content:"a";"#, &[Snort3]),
        (TCP, r#"file_data; content:"a"; content:"b"; http_header;"#, &[Snort2, Snort3]),
        (TCP, r#"pcre:"/a/U";"#, &[Suricata7, Suricata8, Snort2]),
        (TCP, r#"bufferlen:>5;"#, &[Snort3]),
        ("http any any -> any any", r#"http.uri; content:"a";"#, &[Suricata7, Suricata8]),
        ("ldap any any -> any any", r#"ldap.request.operation:0;"#, &[Suricata8]),
        ("tcp any any => any 80", r#"content:"a";"#, &[Suricata8]),
        ("http", r#"http_uri; content:"a";"#, &[Snort3]),
        (TCP, r#"http.request_body; from_base64; content:"a";"#, &[Suricata8]),
        (TCP, r#"http.request_body; entropy:value >= 7;"#, &[Suricata8]),
        (TCP, r#"app-layer-protocol:!http;"#, &[Suricata7, Suricata8]),
        (TCP, r#"app-layer-protocol:http,final;"#, &[Suricata8]),
        (TCP, r#"ssh.softwareversion:"x";"#, &[Suricata7]),
        (TCP, r#"content:"a"; requires: version >= 8;"#, &[Suricata8]),
        (TCP, r#"igmp.type:17;"#, &[]),
    ] {
        for engine in EngineVersion::ALL {
            let problems = refused(engine, header, options);
            assert_eq!(
                problems.is_empty(),
                loaded_by.contains(&engine),
                "{engine}: {header} {options}: {problems:?}"
            );
            for (reason, text) in problems {
                let names_it = text.contains(&engine.to_string());
                assert!(reason == Reason::NotLoaded && names_it, "{options}: {reason:?} {text}");
            }
        }
        // If no engine is chosen, the rule is read in the dialect in which it was written.
        if !loaded_by.is_empty() {
            let line = format!("alert {header} (msg:\"m\"; {options} sid:1;)");
            let set = RuleSet::parse(&line, &Variables::none());
            assert!(set.problems.is_empty(), "{options}: {:?}", set.problems);
        }
    }
}

#[test]
fn contents_after_a_transform_apply_to_its_output_and_those_before_do_not() {
    let text = r#"alert http any any -> any any (msg:"m"; http.uri; content:"A"; to_lowercase; strip_whitespace; content:"b"; sid:1;)"#;
    let set = RuleSet::parse(text, &Variables::none());
    assert!(set.problems.is_empty(), "{:?}", set.problems);
    let transforms: Vec<Vec<Transform>> = set.rules[0]
        .inspections
        .iter()
        .map(|inspection| inspection.transforms.iter().map(|one| one.is.clone()).collect())
        .collect();
    assert_eq!(transforms, [vec![], vec![Transform::ToLowercase, Transform::StripWhitespace]]);
    assert_eq!(buffers(&set.rules[0]), [(Buffer::HttpUri, 1), (Buffer::HttpUri, 1)]);
    let late = text.replace(r#"content:"b";"#, r#"content:"b"; to_md5; content:"c";"#);
    let set = RuleSet::parse(&late, &Variables::none());
    assert_eq!(set.problems[0].reason, Reason::Contradiction, "{:?}", set.problems);
}

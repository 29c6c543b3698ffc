//! Properties that hold for any lines, numbers and addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use squall_rules::{Place, Reader, RuleSet, Variables};

fn word() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "alert",
        "drop",
        "tcp",
        "udp",
        "http",
        "any",
        "->",
        "<>",
        "$HOME_NET",
        "$NOBODY",
        "80",
        "[80,!81]",
        "(",
        ")",
        ";",
        "msg:\"x\";",
        "sid:7;",
        "sid:8;",
        "rev:2;",
        "sid:0;",
        "content:\"ab|00|\";",
        "content:!\"c\"",
        "nocase;",
        "depth:4;",
        "depth:1;",
        "within:9;",
        "distance:1;",
        "http_uri;",
        "http.uri;",
        "to_lowercase;",
        "file_data;",
        "pkt_data;",
        "pcre:\"/a/Ri\";",
        "isdataat:2,relative;",
        "byte_test:2,>,3,0,relative;",
        "byte_extract:1,0,n;",
        "dsize:>3;",
        "flags:S,12;",
        "flowbits:set,a;",
        "threshold:type limit,track by_src,count 1,seconds 2;",
        "unknown;",
        "\\",
        "#",
        "\"",
        "include x",
        "metadata:service http;",
        "\n",
        "\n",
        "\n",
        "\r\n",
        "\\\n",
    ])
    .prop_map(str::to_owned)
}

proptest! {
    #[test]
    fn a_line_gives_a_rule_or_a_problem_and_never_both(words in prop::collection::vec(word(), 0..60), disabled: bool) {
        let text = words.join(" ");
        let set = Reader { disabled, ..Reader::default() }.parse(&text, &Variables::standard());
        let mut places: Vec<Place> = set.rules.iter().map(|rule| rule.place).collect();
        places.extend(set.problems.iter().map(|problem| problem.place));
        let count = places.len();
        places.sort();
        places.dedup();
        prop_assert_eq!(places.len(), count);
        // If no line is continued, each line gives a rule or a problem.
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let joined = |line: &&str| line.ends_with('\\') || line.contains('(') && !line.ends_with(')');
        if !disabled && !lines.iter().any(joined) {
            let expected = lines.iter().filter(|line| !line.is_empty() && !line.starts_with('#')).count();
            prop_assert_eq!(count, expected, "{}", text);
        }
    }

    #[test]
    fn a_rule_read_again_from_its_text_is_the_same(words in prop::collection::vec(word(), 0..12)) {
        let options: String = words.iter().filter(|word| word.ends_with(';')).map(String::as_str).collect();
        let line = format!("alert tcp any any -> any any ({options} sid:9;)");
        let set = RuleSet::parse(&line, &Variables::standard());
        prop_assert_eq!(set.rules.len() + set.problems.len(), 1);
        for rule in &set.rules {
            prop_assert_eq!(&RuleSet::parse(&rule.text, &Variables::standard()).rules, &set.rules);
            prop_assert!(rule.inspections.iter().flat_map(|one| &one.steps).all(|step| usize::from(step.option) < rule.options.len()));
        }
    }

    #[test]
    fn ports_are_those_that_the_list_names(ranges in prop::collection::vec((any::<u16>(), any::<u16>(), any::<bool>()), 1..8), port: u16) {
        let ranges: Vec<_> = ranges.into_iter().map(|(one, other, not)| (one.min(other), one.max(other), not)).collect();
        let element = |&(first, last, not): &(u16, u16, bool)| format!("{}{first}:{last}", if not { "!" } else { "" });
        let text = format!("[{}]", ranges.iter().map(element).collect::<Vec<_>>().join(","));
        let ports = Variables::none().ports(&text).unwrap();
        let inside = |not: bool| ranges.iter().any(|range| range.2 == not && (range.0..=range.1).contains(&port));
        let only_exclusions = ranges.iter().all(|range| range.2);
        prop_assert_eq!(ports.contains(port.into()), (only_exclusions || inside(false)) && !inside(true));
    }

    #[test]
    fn a_network_holds_the_addresses_that_begin_as_it_does(bits: u32, length in 0u32..=32, address: u32) {
        let text = format!("{}/{length}", Ipv4Addr::from(bits));
        let same = (bits ^ address).leading_zeros() >= length;
        let set = Variables::none().addresses(&text).unwrap();
        prop_assert_eq!(set.contains(IpAddr::V4(address.into())), same);
        prop_assert!(!set.contains(IpAddr::V6(Ipv6Addr::LOCALHOST)));
        let others = Variables::none().addresses(&format!("!{text}")).unwrap();
        prop_assert_eq!(others.contains(IpAddr::V4(address.into())), !same);
    }

    #[test]
    fn a_network_of_version_6_holds_the_addresses_that_begin_as_it_does(bits: u128, length in 0u32..=128, address: u128) {
        let text = format!("{}/{length}", Ipv6Addr::from(bits));
        let same = (bits ^ address).leading_zeros() >= length;
        prop_assert_eq!(Variables::none().addresses(&text).unwrap().contains(IpAddr::V6(address.into())), same);
    }

    #[test]
    fn a_content_holds_the_octets_that_were_written(octets in prop::collection::vec(any::<u8>(), 1..40), hexadecimal in prop::collection::vec(any::<bool>(), 40)) {
        let mut text = String::new();
        for (octet, hexadecimal) in octets.iter().zip(hexadecimal) {
            match octet {
                b';' | b'"' | b'\\' | b':' => text.extend(['\\', char::from(*octet)]),
                b' '..=b'~' if !hexadecimal && *octet != b'|' => text.push(char::from(*octet)),
                octet => text.push_str(&format!("|{octet:02X}|")),
            }
        }
        let line = format!("alert tcp any any -> any any (content:\"{text}\"; sid:1;)");
        let set = RuleSet::parse(&line, &Variables::none());
        prop_assert!(set.problems.is_empty(), "{:?}", set.problems);
        let squall_rules::Operation::Content(content) = &set.rules[0].inspections[0].steps[0].operation else { panic!() };
        prop_assert_eq!(&content.pattern, &octets);
    }
}

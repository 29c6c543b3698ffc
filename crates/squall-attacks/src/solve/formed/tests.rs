use squall_rules::End::{self, Client, Server};
use squall_rules::{RuleSet, Variables};

use super::{MessageFormat, Octets, Origin};
use crate::solve::Settings;
use crate::{Solution, Solver};

fn closed(format: MessageFormat, from: End, octets: &[u8]) -> Option<Vec<u8>> {
    format.close(from, Octets::of(octets, Origin::Option(0))).map(|octets| octets.bytes().to_vec())
}

#[test]
fn a_hello_of_each_protocol_is_a_message_that_needs_no_closing() {
    use MessageFormat::*;
    for format in [Dns, Nbns, Tftp, Dhcp, Isakmp, Xtacacs, Pptp, Wccp] {
        for from in [Client, Server] {
            let hello = format.hello(from).unwrap_or_else(|| panic!("{format:?} of {from:?}"));
            assert_eq!(
                closed(format, from, hello.bytes()),
                Some(hello.bytes().to_vec()),
                "{format:?} of {from:?}"
            );
        }
    }
}

#[test]
fn a_question_of_dns_gets_the_rest_of_its_name_a_type_and_a_class() {
    let header = [0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    let whole =
        closed(MessageFormat::Dns, Client, &[&header[..], b"\x07version\x04bind\x00"].concat())
            .unwrap();
    assert_eq!(&whole[12..], b"\x07version\x04bind\0\0\x01\0\x01");
    let open =
        closed(MessageFormat::Dns, Client, &[&header[..], b"\x07version\x05bi"].concat()).unwrap();
    assert_eq!(&open[12..], b"\x07version\x05biaaa\0\0\x01\0\x01");
}

#[test]
fn responses_of_name_services_are_marked_as_such() {
    let flags = |format: MessageFormat, from: End| -> Vec<u16> {
        let closed =
            format.forms(from).into_iter().filter_map(|form| format.close(from, form.octets()));
        closed.map(|octets| u16::from_be_bytes([octets.bytes()[2], octets.bytes()[3]])).collect()
    };
    assert!(flags(MessageFormat::Dns, Client).iter().all(|flags| flags & 0x8000 == 0));
    let answers = flags(MessageFormat::Dns, Server);
    assert!(answers.len() >= 5 && answers.iter().all(|&flags| flags == 0x8180), "{answers:x?}");
    assert_eq!(flags(MessageFormat::Nbns, Client), [0x0110, 0x2810, 0x8500]);
}

#[test]
fn a_dns_text_has_the_length_of_its_record() {
    let question = b"\x12\x34\x81\x80\0\x01\0\x01\0\0\0\0\x01a\0\0\x10\0\x01";
    let record = b"\xc0\x0c\0\x10\0\x01\0\0\0\0\x01\0\xff";
    let whole = closed(MessageFormat::Dns, Server, &[&question[..], record].concat()).unwrap();
    assert_eq!(whole.len(), question.len() + 12 + 256);
}

#[test]
fn octets_that_cannot_be_a_dns_message_are_none() {
    // Thousands of records in 20 octets.
    assert_eq!(
        closed(MessageFormat::Dns, Client, &[0, 0, 1, 0, 0, 1, 0x9e, 0x98, 0, 0, 0, 0]),
        None
    );
    // A name that points to itself.
    assert_eq!(
        closed(MessageFormat::Dns, Client, &[0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0xc0, 12]),
        None
    );
    // Data after the last record.
    assert_eq!(
        closed(MessageFormat::Dns, Client, b"\0\0\x01\0\0\x01\0\0\0\0\0\0\0\0\x01\0\x01xyz"),
        None
    );
}

#[test]
fn strings_of_tftp_are_ended() {
    assert_eq!(closed(MessageFormat::Tftp, Client, b"\0\x02").unwrap(), b"\0\x02file.bin\0octet\0");
    assert_eq!(
        closed(MessageFormat::Tftp, Client, b"\0\x01admin.dll").unwrap(),
        b"\0\x01admin.dll\0octet\0"
    );
    assert_eq!(closed(MessageFormat::Tftp, Client, b"\0\x01a\0oct").unwrap(), b"\0\x01a\0oct\0");
    assert_eq!(
        closed(MessageFormat::Tftp, Client, b"\0\x01a\0octet\0").unwrap(),
        b"\0\x01a\0octet\0"
    );
}

#[test]
fn pcom_has_its_length_and_its_sum() {
    let whole = closed(MessageFormat::Pcom, Client, b"\0\x01\x65\0\0\0/00ID").unwrap();
    // 0x30 + 0x30 + 0x49 + 0x44.
    assert_eq!(whole, b"\0\x01\x65\0\x08\0/00IDED\r");
}

#[test]
fn isakmp_has_its_own_length_and_its_payloads_theirs() {
    let mut header = vec![1_u8; 16];
    header.extend([11, 0x10, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let whole = closed(
        MessageFormat::Isakmp,
        Client,
        &[&header[..], &[0, 0, 0, 12, 0, 0, 0, 1, 1, 0, 0x60, 2]].concat(),
    );
    let whole = whole.unwrap();
    assert_eq!((whole.len(), &whole[24..28]), (40, &[0, 0, 0, 40][..]));
}

fn solved(rule: &str) -> Solution {
    let set = RuleSet::parse(rule, &Variables::standard());
    assert!(set.problems.is_empty(), "{:?}", set.problems);
    Solver::new(&set, Settings::default()).solve(0, 0).unwrap()
}

fn last_message(solution: &Solution) -> &[u8] {
    solution.exchanges.last().unwrap().turns.last().unwrap().octets.bytes()
}

#[test]
fn contents_of_a_name_are_in_the_question() {
    let solution = solved(
        r#"alert udp any any -> any 53 (content:"|08|squallab|03|com|00|"; byte_test:1,!&,0xF8,2; sid:1;)"#,
    );
    let message = last_message(&solution);
    assert_eq!(&message[4..12], [0, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(&message[12..], b"\x08squallab\x03com\0\0\x01\0\x01");
}

#[test]
fn contents_of_a_header_are_in_the_header() {
    let solution = solved(
        r#"alert udp any 53 -> any any (flow:to_client; content:"|85 80 00 01 00 01 00 00 00 00|";
            content:"|C0 0C 00 01 00 01 00 00 00 05 00 04|"; sid:1;)"#
            .replace('\n', " ")
            .as_str(),
    );
    let message = last_message(&solution);
    assert_eq!(&message[2..12], [0x85, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
    assert_eq!(message[message.len() - 16..][..2], [0xc0, 12]);
}

#[test]
fn required_defects_are_made() {
    let solution = solved(
        r#"alert udp any any -> any 53 (dsize:20; content:"|9E 98|"; depth:2; offset:6; sid:1;)"#,
    );
    assert_eq!(last_message(&solution).len(), 20);
    assert_eq!(&last_message(&solution)[6..8], [0x9e, 0x98]);
}

#[test]
fn contents_that_end_the_http_header_are_its_end() {
    let solution = solved(
        r#"alert tcp any any -> any 80 (flow:to_server,established; content:"/gate"; http_uri;
            content:"|0D 0A|Pragma: none|0D 0A 0D 0A|"; sid:1;)"#
            .replace('\n', " ")
            .as_str(),
    );
    let request = solution.exchanges[0].turns.iter().find(|turn| turn.from == Client).unwrap();
    assert!(request.octets.bytes().ends_with(b"\r\nPragma: none\r\n\r\n"));
    let ends = request.octets.bytes().windows(4).filter(|window| *window == b"\r\n\r\n").count();
    assert_eq!(ends, 1);
}

#[test]
fn a_near_miss_is_as_well_formed_as_its_attack() {
    let text = r#"alert udp any any -> any 53 (content:"|0B|squallab-07|03|com|00|"; sid:1;)"#;
    let set = RuleSet::parse(text, &Variables::standard());
    let solver = Solver::new(&set, Settings::default());
    for sample in 0..4 {
        let solution = solver.solve(0, sample).unwrap();
        let miss = crate::near_miss(&solution, &set, &solver).unwrap();
        for exchange in [&solution.exchanges[0], &miss.exchanges[0]] {
            assert!(
                exchange
                    .turns
                    .iter()
                    .all(|turn| MessageFormat::Dns.is_well_formed(turn.from, &turn.octets)),
                "{sample}"
            );
        }
    }
}

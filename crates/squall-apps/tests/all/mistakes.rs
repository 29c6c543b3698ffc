//! Errors in programs: the instruction's number, its text, and the expected form.

use std::collections::BTreeMap;

use proptest::prelude::*;
use squall_apps::{Apps, Instruction, Message, Program, Role, Transport};

fn error(role: Role, transport: Transport, lines: &[&str]) -> String {
    let messages =
        BTreeMap::from([("hello".to_string(), "hi".parse::<Message>().expect("a message"))]);
    match Program::parse("p", role, transport, lines.iter().copied(), messages) {
        Ok(_) => panic!("{lines:?} is right"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_mistake_names_place_found_and_expected() {
    let client = |lines: &[&str]| error(Role::Client, Transport::Tcp, lines);
    let server = |lines: &[&str]| error(Role::Server, Transport::Tcp, lines);
    let udp = |lines: &[&str]| error(Role::Client, Transport::Udp, lines);
    for (found, expected) in [
        (client(&[]), r#"program "p": the program has no instructions"#),
        (
            client(&["recv 1", "reciv 1"]),
            r#"program "p", instruction 2: "reciv 1" is not an instruction; expected one of connect,"#,
        ),
        (client(&["recv 0"]), "instruction 1: octets to receive is 0; expected at least 1"),
        (client(&["recv ten"]), "expected octets, less than 4 GiB; try recv 1460"),
        (client(&["recv 1 within soon"]), "expected a duration; try within 2 s"),
        (
            client(&["delay uniform 5 ms 1 ms"]),
            "the shortest delay is 5000000; expected at most the longest",
        ),
        (client(&["delay 3 days"]), "expected a duration; try delay 10 ms"),
        (client(&["delay 25 h"]), "the delay is 90000000000000; expected at most 24 h"),
        (
            client(&["recv 1", "connect"]),
            "instruction 2: `connect` can only be the first instruction",
        ),
        (client(&["accept"]), "`accept` is only for the program of a server"),
        (server(&["http_response"]), "`http_response` is only for the program of a client"),
        (udp(&["send hello"]), "`send` is for TCP flows; try `send_packet`"),
        (client(&["recv_packets 1"]), "`recv_packets` is for UDP flows; try `recv`"),
        (client(&["send bye"]), r#"no message is named "bye"; there are hello"#),
        (client(&["send \"\""]), "the message has no octets"),
        (client(&["send \"a"]), "expected a closing quote"),
        (client(&[r#"send "\q""#]), r#"message: "\\q" is not an escape"#),
        (
            client(&[r#"send "${x}""#]),
            "message: ${x} is not a mark; expected random:ALPHABET:WIDTH",
        ),
        (client(&[r#"send "${client""#]), r#"message: "${" is not closed"#),
        (
            client(&[r#"send "${random:hex:0}""#]),
            "the width of a mark is 0; expected 1..=1,000,000",
        ),
        (client(&[r#"send "${template:host}""#]), "${template:host} has no value"),
        (client(&[r#"send "${variable:x}""#]), r#"variable "x" is never given a value"#),
        (
            client(&["set x 1", "set y 1", r#"send "${variable:x}${variable:y}""#]),
            r#"instruction 3: message: two variables, "x" and "y"; expected at most one"#,
        ),
        (client(&["recv_until \"\""]), "the length of the pattern is 0; expected 1..=255"),
        (client(&["jump there"]), r#"label "there" does not exist; there are none"#),
        (
            client(&["label a", "recv 1", "label a"]),
            r#"instruction 3: label "a" is already at instruction 1"#,
        ),
        (
            client(&["jump in", "loop 3", "label in", "recv 1", "end"]),
            "instruction 1: a jump into the loop of instruction 2",
        ),
        (client(&["recv 1", "end"]), "instruction 2: `end` without `loop`"),
        (client(&["loop 3", "recv 1"]), "instruction 1: the loop has no `end`"),
        (client(&["loop 200000", "set x 1", "end"]), "instruction 2: this loop never waits"),
        (client(&["label a", "close", "jump a"]), "this loop never waits"),
        (
            udp(&["wait_peer_close", "send_packet hello"]),
            "over UDP, `wait_peer_close` can only be the last instruction",
        ),
        (udp(&["loop forever", "send_packet hello", "end"]), "this loop never waits"),
        (
            udp(&["loop 3000", "loop 3000", "send_packet hello", "end", "end"]),
            "this loop never waits",
        ),
        (
            udp(&["label a", "send_packet hello", "add x 1", "jump a if x != 0"]),
            "this loop never waits",
        ),
        (client(&["close", "send hello"]), "instruction 2: a message after `close`"),
        (
            client(&["rate 1 kB", r#"send "${client}""#]),
            "with a rate, each message needs the same length in all flows",
        ),
        (
            client(&["rate 1 B every 1 us", r#"send "${repeat:99999999:x}""#]),
            "at most 1,048,576 ticks per message",
        ),
        (client(&["rate 1 kB every 2 s"]), "the tick is 2000000000; expected 1 ns to 1 s"),
        (
            client(&[
                "set a 1", "set b 1", "set c 1", "set d 1", "set e 1", "set f 1", "set g 1",
                "set h 1", "set i 1",
            ]),
            "9 variables and nested counted loops; expected at most 8",
        ),
        (client(&["count pages elapsed t"]), r#"variable "t" is never given a value"#),
        (client(&["count"]), "expected a counter and what is added to it"),
        (client(&["count pages -1"]), "expected a whole number"),
        (client(&["begin"]), "`begin` without a template"),
        (client(&["begin two pages"]), "expected a name of letters"),
        (server(&["begin page"]), "`begin` is only for the program of a client"),
        (client(&["loop forever", "count pages", "end"]), "this loop never waits"),
        (server(&["http_serve 204 a/b 10"]), "the status is 204; expected 200..=599"),
        (
            udp(&["recv_packets 1", "recv_packet_octets 5"]),
            "the program has both `recv_packets` and `recv_packet_octets`",
        ),
        (
            udp(&[r#"send_packet "${repeat:65528:x}""#]),
            "the message has 65528 octets; expected at most 65527",
        ),
        (
            client(&[r#"send "${repeat:2000000000:x}""#]),
            "its length is 2000000000; expected 1..=1,072,693,248",
        ),
    ] {
        assert!(found.contains(expected), "{found:?} lacks {expected:?}");
    }
}

#[test]
fn instructions_round_trip_through_text() {
    for line in [
        "connect",
        "accept",
        r#"send "a\r\n\x00\"\\\$${random:hex:8:flow:x}${repeat:7:\x7dab}""#,
        "send hello",
        "recv 10",
        "recv 10 within 1.5 s",
        r#"recv_until "\r\n within 2 s" within 3 s"#,
        "delay 10 ms",
        "delay uniform 1 ms 5 ms",
        "delay exponential 10 ms",
        "set x 5",
        "set x random 1 10",
        "add x -5",
        "count pages",
        "count octets 1460",
        "count rounds x",
        "count waited elapsed x",
        "next page",
        r#"next "template \"2\"""#,
        "begin page",
        r#"begin "a page""#,
        "begin",
        "label a.b-c_d",
        "jump a",
        "jump a if x >= 5",
        "loop 3",
        "loop until x == 5",
        "loop forever",
        "end",
        "close",
        "reset",
        "wait_peer_close",
        "rate 125000 every 10 ms",
        "rate 0",
        "send_packet hello",
        "recv_packets 3",
        "recv_packets 3 take id = hex8 at 12 within 1 s",
        "recv_packet_octets 300 within 1 s",
        "keepalive 30 s",
        "http_response",
        "http_response head within 2 s",
        "http_serve 200 text/html 1024",
    ] {
        let instruction: Instruction = line.parse().expect(line);
        assert_eq!(instruction.to_string(), line);
    }
    for (line, same) in [
        ("  recv   64 KiB  ", "recv 65536"),
        ("delay uniform 1ms 5ms", "delay uniform 1 ms 5 ms"),
        ("delay uniform 1 ms 5ms", "delay uniform 1 ms 5 ms"),
        ("rate 1 MB", "rate 1000000 every 10 ms"),
        ("rate 0 every 1 ms", "rate 0"),
        ("http_serve 200 text/html 1 KiB", "http_serve 200 text/html 1024"),
        (
            r#"send "${random:hex:8:sending}${counter:5:0:1}""#,
            r#"send "${random:hex:8}${counter:5}""#,
        ),
    ] {
        let instruction: Instruction = line.parse().expect(line);
        assert_eq!(instruction.to_string(), same);
        assert_eq!(same.parse(), Ok(instruction), "{line}");
    }
}

#[test]
fn templates_fill_marks_that_have_values() {
    let program =
        Program::client("p").message("m", "to ${template:host}\n".parse().expect("a message"));
    let program =
        program.push(r#"send "${template:host}${template:port}""#.parse().expect("an instruction"));
    // An incomplete program.
    let error = program.clone().build().expect_err("a template").to_string();
    assert!(
        error.contains("${template:host} has no value; give it one in the template"),
        "{error}"
    );
    let mut values = BTreeMap::from([("host".to_string(), "a.test".to_string())]);
    let bare = Program {
        name: "p".into(),
        role: Role::Client,
        transport: Transport::Tcp,
        instructions: vec![
            r#"send "${template:host}:${template:port}""#.parse().expect("an instruction"),
        ],
        messages: BTreeMap::new(),
    };
    let error = bare.clone().with_values(&values).expect_err("a value lacks").to_string();
    assert!(
        error.contains("instruction 1: message: ${template:port} has no value; there are host"),
        "{error}"
    );
    values.insert("port".into(), "80".into());
    let filled = bare.with_values(&values).expect("all values");
    assert_eq!(filled.instructions[0].to_string(), r#"send "a.test:80""#);
    assert_eq!(filled.check(), Ok(()));
}

#[test]
#[should_panic(expected = "is not a server's program")]
fn a_client_cannot_listen() {
    let mut apps = Apps::new(1, ());
    let program = apps.add(&Program::client("c").recv(1).build().expect("right")).expect("right");
    let any = "0.0.0.0".parse().expect("an address");
    apps.listen(squall_apps::Listener {
        program,
        class: squall_tcp::ClassId(0),
        addresses: any..=any,
        ports: 1..=1,
        peers: None,
    });
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn any_text_parses_or_is_refused(
        lines in prop::collection::vec(
            "(send|recv|recv_until|delay|set|add|jump|loop|label|rate|recv_packets|http_serve|close|end)( [a-z0-9\"$\\\\{}:|.=<>-]{0,8}){0,5}",
            0..6,
        ),
    ) {
        for (role, transport) in [(Role::Client, Transport::Tcp), (Role::Server, Transport::Udp)] {
            let texts = lines.iter().map(String::as_str);
            if let Ok(program) = Program::parse("x", role, transport, texts, BTreeMap::new()) {
                for instruction in &program.instructions {
                    prop_assert_eq!(&instruction.to_string().parse::<Instruction>().expect("what was written"), instruction);
                }
            }
        }
    }

    #[test]
    fn messages_round_trip_through_text(text in "(\\$\\{(random|counter|flow|client|choice|repeat|variable)(:[a-z0-9|]{1,6}){0,4}\\}|\\\\[rnt0x$\"\\\\]|[ -~]|é){0,12}") {
        if let Ok(message) = text.parse::<Message>() {
            let written = message.to_string();
            let read: Message = written.parse().expect("what was written");
            prop_assert_eq!(&read, &message, "{:?} and {:?}", text, written);
        }
    }
}

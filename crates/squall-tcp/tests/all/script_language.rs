//! The language of packet scripts: errors name their position.

#[allow(dead_code, reason = "what plays scripts is not needed to read them")]
#[path = "../runner/script.rs"]
mod script;

use script::{ACK, Action, Awaited, Gone, PSH, SYN, Script, Segment, Target, TcpOption, Verb};
use squall_units::Nanos;

const HEAD: &str = "// RFC 9293 3.5: a rule.\nlinux: yes\n";

fn parse(steps: &str) -> Script {
    Script::parse("a.pkt", &format!("{HEAD}{steps}")).expect("a good script")
}

fn error(text: &str) -> String {
    Script::parse("a.pkt", text).expect_err("a wrong script").to_string()
}

/// The error of one step after [`HEAD`].
fn step_error(step: &str) -> String {
    error(&format!("{HEAD}{step}\n"))
}

#[test]
fn a_script_parses_to_its_steps() {
    let script = parse(
        "tunables: sack=off mss=900\nisn: 4294967290\ntolerance: .01\n\n+.1 < S 0:0(0) win 65535 \
         <mss 1460,sackOK,TS val 7 ecr *,nop,wscale 7> // a comment\n@squall +0~+.5 > P. \
         1:101(100) ack 1 <nop,nop,sack 1:3 5:7>\n+1 gone keepalive-timeout\n+0 send 20\n",
    );
    assert_eq!(
        (script.rule.as_str(), script.isn, script.tolerance),
        ("RFC 9293 3.5: a rule.", 4_294_967_290, Nanos(10_000_000))
    );
    assert_eq!(script.tunables.len(), 2);
    let options = vec![
        TcpOption::Mss(Some(1460)),
        TcpOption::SackPermitted,
        TcpOption::Timestamps { value: Some(7), echo: None },
        TcpOption::Nop,
        TcpOption::WindowScale(Some(7)),
    ];
    let syn =
        Segment { flags: SYN, window: Some(65_535), options: Some(options), ..Segment::default() };
    assert_eq!(script.steps[0].action, Action::Inject(syn));
    let sack = vec![TcpOption::Nop, TcpOption::Nop, TcpOption::Sack(vec![(1, 3), (5, 7)])];
    let push = Segment {
        flags: PSH | ACK,
        start: 1,
        end: 101,
        ack: Some(1),
        options: Some(sack),
        ..Segment::default()
    };
    assert_eq!(script.steps[1].action, Action::Expect(push));
    assert_eq!(script.steps[1].target, Target::Squall);
    assert_eq!(
        (script.steps[1].time.from, script.steps[1].time.to),
        (Nanos::ZERO, Nanos(500_000_000))
    );
    assert_eq!(script.steps[2].action, Action::Await(Awaited::Gone(Gone::KeepaliveTimeout)));
    assert_eq!(script.steps[3].action, Action::Do(Verb::Send(20)));
}

#[test]
fn errors_name_place_found_and_expected() {
    for (step, expected) in [
        ("+.1 shout", "a.pkt:3:5: found \"shout\", expected `<` (inject), `>` (expect), `quiet`"),
        ("+.1 < X 0:0(0)", "a.pkt:3:7: found \"X\", expected flags out of `FSRP.UEW`"),
        ("+.1 < S 0:10(9)", "a.pkt:3:14: found \"9\", expected 10, end minus start"),
        ("+.1 < S 0:0(0) win 65536", "a.pkt:3:20: found \"65536\", expected a window (0..=65535)"),
        (
            "+.1 > . 1:1(0)",
            "a.pkt:3:15: found the end of the line, expected `ack`, as the flags have `.`",
        ),
        ("+.1 > S 0:0(0) <mss 1460,what 3>", "a.pkt:3:26: found \"what\", expected an option"),
        ("+.1 > S 0:0(0) <mss 1460", "a.pkt:3:25: found the end of the line, expected `,`"),
        (
            "+.1 > 0x . 1:1(0) ack 1",
            "a.pkt:3:7: found \"0x\", expected how many segments (1..=4000)",
        ),
        ("+.5~+.1 > S 0:0(0)", "expected a time that is not before the first"),
        ("+x quiet", "a.pkt:3:2: found \"x\", expected seconds"),
        ("+999999999 quiet", "expected seconds"),
        ("+0 gone fishing", "a.pkt:3:9: found \"fishing\", expected why: `closed`, `aborted`"),
        ("+0 listen now", "a.pkt:3:11: found \"now\", expected the end of the line"),
        ("+0 < icmp too-big", "expected an MTU (0..=65535)"),
        (
            "+0 < icmp somewhere",
            "a.pkt:3:11: found \"somewhere\", expected `too-big MTU`, `net-unreachable`",
        ),
        ("+0 < [loud] S 0:0(0)", "found \"loud\", expected `noecn`"),
        ("+0 < S 0:0(0) <hex 123>", "expected pairs of hexadecimal digits"),
        ("quiet", "a.pkt:3:1: found \"quiet\", expected `linux:`, `linux-differs:`"),
        ("", "expected at least one step (+0 listen)"),
        ("@linux +0 quiet", "expected a line `linux-differs: what; verdict: RFC section says ...`"),
    ] {
        let found = step_error(step);
        assert!(found.contains(expected), "{step:?}: {found}");
    }
}

#[test]
fn a_head_has_its_rule_and_the_linux_line() {
    for (text, expected) in [
        (
            "linux: yes\n+0 listen\n",
            "a.pkt:1:1: found \"linux:\", expected a comment that names the rule and its RFC",
        ),
        (
            "// A rule.\nlinux: yes\n+0 listen\n",
            "expected a comment that names the rule and its RFC",
        ),
        (
            "// RFC 1: a rule.\n+0 listen\n",
            "a.pkt:2:1: found \"+0\", expected first a line `linux: yes`",
        ),
        (
            "// RFC 1: a rule.\nlinux: perhaps\n",
            "a.pkt:2:8: found \"perhaps\", expected `yes` or `no (why)`",
        ),
        ("// RFC 1: a rule.\nlinux: no\n", "expected `(`"),
        ("// RFC 1: a rule.\nlinux: no ()\n", "expected why, and `)` at the end of the line"),
        (
            "// RFC 1: a rule.\nlinux: yes\nlinux-differs: it does\n+0 listen\n",
            "expected `what; verdict: RFC section says",
        ),
        (
            "// RFC 1: a rule.\nlinux: yes\nlinux-differs: it does; verdict: RFC 1 forbids it\n+0 \
             listen\n",
            "expected steps of Linux alone (@linux +.1 ...) that show how it does",
        ),
        (
            "// RFC 1: a rule.\nlinux: yes\nfamily: v5\n",
            "a.pkt:3:9: found \"v5\", expected `v4` or `v6`",
        ),
        (
            "// RFC 1: a rule.\nlinux: yes\ntunables: sack\n",
            "a.pkt:3:11: found \"sack\", expected `name=value`",
        ),
        ("", "a.pkt:1:1: found the end of the line, expected at least one step"),
    ] {
        let found = error(text);
        assert!(found.contains(expected), "{text:?}: {found}");
    }
}

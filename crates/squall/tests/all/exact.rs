//! Rates and counts on virtual time, where they must be exact to the frame. Hours pass in seconds.

use squall::{Format, Profile, Session, report::Report};

const IMIX: [u64; 12] = [64, 594, 64, 64, 594, 64, 1518, 594, 64, 64, 594, 64];

fn run(text: &str, cores: usize) -> Report {
    let profile =
        Profile::parse(text, "exact.toml", Format::Toml).unwrap_or_else(|e| panic!("{e}"));
    let session = Session {
        options: squall::RunOptions {
            cores: Some(cores),
            receive: Some(false),
            ..Default::default()
        },
        ..Session::new(profile)
    };
    session.open().unwrap_or_else(|e| panic!("{e}")).start().unwrap().finish().unwrap()
}

/// When the last frame was due, in whole nanoseconds.
fn last_due_ns(report: &Report) -> u128 {
    (report.duration_s * 1e9).round() as u128
}

#[test]
fn two_hours_at_odd_rates_are_exact_to_the_frame_and_the_nanosecond() {
    const HOURS_PS: u128 = 2 * 3600 * 1_000_000_000_000;
    // Each rate as text, and as num / den frames per second.
    for (rate, num, den) in [
        ("3 pps", 3, 1),
        ("1000/7 pps", 1000, 7),
        ("333.3 pps", 3333, 10),
        ("2999.999 pps", 2_999_999, 1000),
    ] {
        let stream = format!("[[stream]]\npacket = \"eth/ipv4/udp\"\nrate = \"{rate}\"\n");
        let text = format!("duration = \"2 h\"\n[ports]\nA = \"null:virtual\"\n{stream}");
        for cores in [1, 2] {
            let report = run(&text, cores);
            // Frame k is due at k·den/num seconds. Frames due before the end are sent.
            let (num, den): (u128, u128) = (num, den);
            let frames = (7200 * num).div_ceil(den);
            assert_eq!(u128::from(report.ports[0].tx.packets), frames, "{rate} on {cores}");
            let last_ps = (frames - 1) * den * 1_000_000_000_000 / num;
            assert!(last_ps < HOURS_PS);
            assert_eq!(last_due_ns(&report), last_ps / 1000, "{rate} on {cores}");
            assert!(report.ports[0].tx.not_sent.is_empty());
        }
    }
}

#[test]
fn a_criterion_of_abort_if_that_holds_at_the_end_fails_the_run() {
    let text = "duration = \"1 s\"\n[ports]\nA = \"null:virtual\"\n[run]\nabort_if = \"tx > 999\"\n\
                [[stream]]\nname = \"web\"\npacket = \"eth/ipv4/udp\"\nrate = \"1 kpps\"\n";
    let profile = |text: &str| Profile::parse(text, "exact.toml", Format::Toml).unwrap();
    let judged = |text: &str| {
        Session::new(profile(text)).open().unwrap().start().unwrap().finish().unwrap().verdict
    };
    let verdict = judged(text);
    assert_eq!(verdict.failed, ["stream \"web\": tx = 1,000 (abort if tx > 999)"]);
    assert!(judged(&text.replace("999", "1000")).failed.is_empty());

    let refused = |text: &str| Session::new(profile(text)).open().and_then(|o| o.start()).err();
    let unnamed = refused(&text.replace("tx >", "wbe.tx >")).unwrap().to_string();
    assert!(unnamed.contains("nearest: \"web\""), "{unnamed}");
    let early = refused(&text.replace("tx >", "loss >")).unwrap().to_string();
    assert!(early.contains("only known at the end"), "{early}");
}

#[test]
fn two_hours_of_imix_at_a_bit_rate_are_exact_too() {
    for (rate, extra, cores) in [("1.7 Mbps l1", 20, 1), ("1.7 Mbps l1", 20, 2), ("1.3 Mbps", 0, 1)]
    {
        let text = format!(
            "duration = \"2 h\"\n[ports]\nA = \"null:virtual\"\n[[stream]]\npacket = \
             \"eth/ipv4/udp\"\nsize = \"imix\"\nrate = \"{rate}\"\n"
        );
        let report = run(&text, cores);
        let bps: u128 = if extra == 20 { 1_700_000 } else { 1_300_000 };
        // A frame is due when the bits before it have been sent at the rate. It is sent if it is
        // due before the end.
        let bits = |len: u64| u128::from(len + extra) * 8;
        let cycle: u128 = IMIX.iter().map(|len| bits(*len)).sum();
        let end = 7200 * bps;
        let (mut frames, mut octets, mut before) =
            (end / cycle * 12, end / cycle * 4342, end / cycle * cycle);
        let mut last = 0;
        for len in IMIX.iter().cycle() {
            if before >= end {
                break;
            }
            (frames, octets, last) = (frames + 1, octets + u128::from(*len), before);
            before += bits(*len);
        }
        let tx = &report.ports[0].tx;
        assert_eq!(
            (u128::from(tx.packets), u128::from(tx.octets)),
            (frames, octets),
            "{rate} on {cores}"
        );
        // Gaps have fractions of picoseconds, so even the last of millions of frames is exact to
        // the nanosecond.
        assert_eq!(last_due_ns(&report), last * 1_000_000_000 / bps, "{rate} on {cores}");
    }
}

#[test]
fn the_rate_of_on_and_off_times_is_as_asked_however_short_the_run() {
    for law in ["departures = { on = \"5 s\", off = \"5 s\" }", "departures = \"constant\""] {
        for duration in ["100 ms", "5 s", "9 s", "12 s", "1 h"] {
            let text = format!(
                "duration = \"{duration}\"\n[ports]\nA = \"null:virtual\"\n[[stream]]\npacket = \
                 \"eth/ipv4/udp\"\nrate = \"1 kpps\"\n{law}\n"
            );
            let report = run(&text, 1);
            let error = report.streams[0].rate_error().unwrap();
            assert!(error.abs() < 1e-6, "{law}, {duration}: {error}");
        }
    }
}

#[test]
fn bursts_with_gaps_do_not_drift() {
    let text = "[ports]\nA = \"null:virtual\"\n[[stream]]\npacket = \"eth/ipv4/udp\"\nrate = \"3 \
                kpps\"\nmode = { bursts = 20_000, packets = 7, gap = \"333 ms\" }\n";
    let report = run(text, 1);
    assert_eq!(report.ports[0].tx.packets, 140_000);
    // 139,999 gaps of 1/3 ms, and 19,999 gaps of 333 ms.
    assert_eq!(last_due_ns(&report), 139_999 * 1_000_000 / 3 + 19_999 * 333_000_000);
}

#[test]
fn ten_thousand_streams_of_mixed_rates_are_each_exact() {
    let rate = |i: u64| 1 + i * 7 % 97;
    let mut text = "duration = \"5 s\"\n[ports]\nA = \"null:virtual\"\n".to_owned();
    for i in 0..10_000 {
        text += &format!(
            "[[stream]]\npacket = \"eth/ipv4/udp(sport={})\"\nrate = \"{} pps\"\n",
            1 + i,
            rate(i)
        );
    }
    for cores in [1, 2] {
        let report = run(&text, cores);
        assert_eq!(report.streams.len(), 10_000);
        for (i, stream) in (0..).zip(&report.streams) {
            assert_eq!(
                (stream.name.as_str(), stream.tx_packets),
                (format!("stream {}", i + 1).as_str(), 5 * rate(i))
            );
            assert!(stream.not_sent.is_empty());
        }
        assert_eq!(report.ports[0].tx.packets, (0..10_000).map(|i| 5 * rate(i)).sum::<u64>());
    }
}

/// On real time, frames of streams that get no turn are counted per stream.
#[test]
fn ten_thousand_streams_in_real_time_miss_none_silently() {
    let mut text = "duration = \"300 ms\"\n[ports]\nA = \"null:\"\n".to_owned();
    for i in 0..10_000 {
        text +=
            &format!("[[stream]]\npacket = \"eth/ipv4/udp(sport={})\"\nrate = \"10 pps\"\n", 1 + i);
    }
    let report = run(&text, 1);
    for stream in &report.streams {
        let missed: u64 = stream.not_sent.values().sum();
        assert_eq!(stream.tx_packets + missed, 3, "{}: {:?}", stream.name, stream.not_sent);
    }
    assert_eq!(
        report.ports[0].tx.packets,
        report.streams.iter().map(|s| s.tx_packets).sum::<u64>()
    );
}

#[test]
fn streams_without_a_rate_share_the_port_evenly() {
    let mut text = "packets = 100_000\n[ports]\nA = \"null:\"\n".to_owned();
    for sport in 1..=50 {
        text += &format!("[[stream]]\npacket = \"eth/ipv4/udp(sport={sport})\"\nrate = \"max\"\n");
    }
    let report = run(&text, 1);
    assert_eq!(report.ports[0].tx.packets, 100_000);
    let counts: Vec<u64> = report.streams.iter().map(|s| s.tx_packets).collect();
    // A turn lasts for a batch of frames.
    assert!(counts.iter().all(|count| count.abs_diff(2000) <= 64), "{counts:?}");
}

/// Even if a machine is always late, the frames sent in a run with a frame count are the first ones
/// by due time.
#[test]
fn a_counted_run_in_real_time_has_the_frames_that_it_has_in_virtual_time() {
    // No machine sends 4e9 frames per second, so all frames but the first are late.
    let mut streams = String::new();
    for i in 1..=20 {
        streams += &format!(
            "[[stream]]\nport = \"A\"\npacket = \"eth/ipv4/udp(sport={i})\"\nrate = \"{i}00 \
             Mpps\"\n[[stream.vary]]\nfield = \"ipv4.id\"\nop = \"increment\"\nmax = 65535\n"
        );
    }
    let run = |address: &str| {
        let text = format!("packets = 20_011\n[ports]\nA = \"{address}\"\n{streams}");
        let profile = Profile::parse(&text, "exact.toml", Format::Toml).unwrap();
        let session = Session {
            options: squall::RunOptions {
                cores: Some(1),
                fingerprint: Some(true),
                receive: Some(false),
                ..Default::default()
            },
            ..Session::new(profile)
        };
        session.open().unwrap().start().unwrap().finish().unwrap().ports.remove(0).tx
    };
    let (real, exact) = (run("null:"), run("null:virtual"));
    assert_eq!((real.packets, exact.packets), (20_011, 20_011));
    assert_eq!(real.fingerprint, exact.fingerprint);
}

/// Pages with three parts, each of which is loaded by a separate flow.
#[test]
fn flows_that_others_begin_are_counted_and_read_back_from_what_is_written() {
    let text = r#"
duration = "3 s"
ports.A = "loop:pages,virtual"
flows = { clients = "A", servers = "A" }
[[template]]
name = "page"
clients = "16.0.0.0/24"
servers = "48.0.0.1"
listen = 80
cps = 10
client = ["loop 3", 'begin "a part"', "count parts", "end"]
server = ["wait_peer_close"]
[[template]]
name = "a part"
clients = "16.0.0.0/24"
servers = "48.0.0.1"
listen = 80
called = true
client = ['send "x"', "recv 5000"]
server = ["recv 1", 'send "${repeat:5000:x}"', "count served 5000"]
"#;
    let parse = |text: &str| Profile::parse(text, "pages.toml", Format::Toml).expect("sound");
    let profile = parse(text);
    let again = parse(&profile.to_toml());
    for profile in [profile, again] {
        let report = Session::new(profile).open().expect("it opens").start().unwrap();
        let flows = report.finish().unwrap().flows.expect("flows");
        let [page, part] = &flows.templates[..] else { panic!("two templates") };
        let (page, parts, served) = (
            page.roles.client.as_ref().expect("clients"),
            part.roles.client.as_ref().expect("clients"),
            part.roles.server.as_ref().expect("servers"),
        );
        assert_eq!((page.completed, page.counters["parts"]), (30, 90));
        assert_eq!((parts.asked, parts.completed, parts.received_octets), (Some(90), 90, 450_000));
        assert_eq!((served.completed, served.counters["served"]), (90, 450_000));
        assert_eq!(flows.total.client.as_ref().and_then(|all| all.asked_cps), None);
    }
}

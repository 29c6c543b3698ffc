//! Runs that cannot keep their schedule.

mod calibration;

use std::time::Instant;

use squall::{
    Format, Profile, Session,
    report::{ReasonCode, Report},
};

fn run(profile: &str) -> Report {
    let profile = Profile::parse(profile, "late", Format::Toml).unwrap();
    Session::new(profile).open().unwrap().start().unwrap().finish().unwrap()
}

#[test]
fn a_late_sender_still_sends_exactly_the_frames_that_were_due() {
    // Two streams that take turns, with a higher rate than any machine can reach.
    let profile = r#"
        duration = "5 ms"
        ports = { A = "null:" }
        [[stream]]
        packet = "eth/ipv4/udp"
        rate = "100 Mpps"
        [[stream]]
        packet = "eth/ipv4/tcp"
        rate = "100 Mpps"
    "#;
    let report = run(profile);
    // A machine that is too busy to send them within 100 ms after the end reports that.
    let sent = |s: &squall::report::StreamReport| {
        s.tx_packets + s.not_sent.get("late").copied().unwrap_or(0)
    };
    assert_eq!(report.streams.iter().map(sent).collect::<Vec<_>>(), [500_000, 500_000]);
}

/// On any machine, the requested load takes more than ten times the duration.
#[test]
fn a_run_that_cannot_keep_its_rate_is_not_longer_and_accounts_for_what_is_missing() {
    let text = "duration = \"200 ms\"\nports = { A = \"null:\" }\n[[stream]]\npacket = \
                \"eth/ipv4/udp\"\nrate = \"5 Gpps\"\n";
    calibration::measure(|| {
        let begun = Instant::now();
        let report = run(text);
        let took = begun.elapsed();
        let tx = &report.ports[0].tx;
        assert_eq!(tx.packets + tx.not_sent["late"], 1_000_000_000);
        if !report.verdict.has(ReasonCode::GeneratorBound) {
            // The process had no CPU time.
            assert!(report.verdict.has(ReasonCode::Starved), "{:?}", report.verdict);
            return Err(String::from("starved"));
        }
        let (most, duration_s) = (calibration::time_to_count(1_000_000_000), report.duration_s);
        // 20 ms before the start, and 100 ms after the end.
        if took < most && duration_s < 0.5 {
            Ok(())
        } else {
            Err(format!("{took:?} for {duration_s} s, counting takes {most:?}"))
        }
    });
}

/// A run on virtual time sends everything that is due, so it gives the expected number.
#[test]
fn frames_of_several_lengths_that_are_missing_are_those_that_the_rate_asked_for() {
    let tx = |port: &str, cores: usize| {
        let text = format!(
            "duration = \"5 ms\"\nports = {{ A = \"{port}\" }}\n[[stream]]\npacket = \
             \"eth/ipv4/udp\"\nsize = [64, 1518]\nrate = \"4 Tbps\"\n"
        );
        let profile = Profile::parse(&text, "late", Format::Toml).unwrap();
        let session = Session {
            options: squall::RunOptions { cores: Some(cores), ..Default::default() },
            ..Session::new(profile)
        };
        session.open().unwrap().start().unwrap().finish().unwrap().ports[0].tx.clone()
    };
    let due = tx("null:virtual", 1).packets;
    for cores in [1, 3] {
        let tx = tx("null:,queues=3", cores);
        assert_eq!(
            tx.packets + tx.not_sent.get("late").copied().unwrap_or(0),
            due,
            "{cores} workers"
        );
    }
}

#[test]
fn a_run_as_fast_as_the_port_goes_ends_on_time_too() {
    calibration::measure(|| {
        let report = run("duration = \"200 ms\"\nports = { A = \"null:\" }\n[[stream]]\npacket = \
                          \"eth/ipv4/udp\"\nrate = \"max\"\n");
        // Only a busy machine may make the verdict invalid.
        let starved = |reason: &squall::report::Reason| reason.code == ReasonCode::Starved;
        assert!(report.verdict.reasons.iter().all(starved), "{:?}", report.verdict);
        let duration_s = report.duration_s;
        if duration_s < 0.4 { Ok(()) } else { Err(format!("{duration_s} s")) }
    });
}

#[test]
fn a_port_that_takes_no_more_is_named_as_the_limit() {
    // The second port of the link does not receive until its ring of one frame is read, and every
    // other call refuses that. If the run got no CPU time, it shows nothing about the port, so it
    // is repeated.
    let profile = "duration = \"200 ms\"\n[ports]\nA = \
                      \"loop:full-port,full=0.99,ring=1\"\n[[stream]]\npacket = \
                      \"eth/ipv4/udp\"\nrate = \"5 Gpps\"\n";
    let mut runs = (0..20).map(|_| run(profile));
    let had_cpu = |report: &Report| !report.verdict.has(ReasonCode::Starved);
    let report = runs.find(had_cpu).expect("one of twenty runs has a CPU to itself");
    assert!(
        report.verdict.has(ReasonCode::PortBound),
        "{:?} {:?}",
        report.verdict,
        report.ports[0].tx
    );
    assert!(!report.verdict.has(ReasonCode::GeneratorBound), "{:?}", report.verdict);
}

#[test]
fn a_stream_that_never_started_is_reported() {
    let stream = |name: &str, more: &str| {
        format!(
            "[[stream]]\nname = \"{name}\"\npacket = \"eth/ipv4/udp\"\nrate = \"1 kpps\"\n{more}\n"
        )
    };
    let text = "duration = \"10 ms\"\nports = { A = \"null:virtual\" }\n".to_owned()
        + &stream("first", "mode = { burst = 11 }\nnext = \"second\"")
        + &stream("second", "self_start = false");
    let report = run(&text);
    assert!(report.verdict.valid);
    assert_eq!(
        report.notes,
        ["stream \"second\" never started: \"first\", which names it as next, did not end"]
    );
}

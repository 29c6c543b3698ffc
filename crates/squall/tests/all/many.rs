//! Profiles with many streams.

use std::{
    fmt::Write,
    time::{Duration, Instant},
};

use squall::{Format, Profile, Session};

/// `count` streams of two frames each. If they are `chained`, each starts the one before it.
fn session(count: usize, chained: bool, port: &str) -> Session {
    let mut text = format!("ports = {{ A = \"{port}\" }}\n");
    for i in 0..count {
        let (a, b, c) = (i >> 16, i >> 8 & 255, i & 255);
        write!(
            text,
            "[[stream]]\nname = \"{i}\"\npacket = \"eth/ipv4(dst=10.{a}.{b}.{c})/udp\"\nrate = \
             1000\nmode = {{ burst = 2 }}\n"
        )
        .unwrap();
        if chained && i > 0 {
            writeln!(text, "next = \"{}\"", i - 1).unwrap();
        }
        if chained && i + 1 < count {
            text += "self_start = false\n";
        }
    }
    Session::new(Profile::parse(&text, "many.toml", Format::Toml).unwrap())
}

#[test]
fn a_sample_has_the_counters_of_all_streams() {
    const MANY: usize = 2000;
    let mut run = session(MANY, false, "null:").open().unwrap().start().unwrap();
    while !run.wait(Duration::from_millis(20)) {}
    let sent = |report: &squall::report::Report| -> Vec<u64> {
        report.streams.iter().map(|stream| stream.tx_packets).collect()
    };
    assert_eq!(sent(&run.sample().1), [2; MANY]);
    assert_eq!(sent(&run.finish().unwrap()), [2; MANY]);
}

#[test]
fn a_tick_is_a_point_of_the_series_with_the_rates_of_ports_only() {
    const MANY: usize = 100;
    let mut run = session(MANY, false, "null:").open().unwrap().start().unwrap();
    while !run.wait(Duration::from_millis(20)) {}
    run.tick();
    let [point] = run.series() else { panic!("{:?}", run.series()) };
    // The first point counts from the start on.
    let sent = point.ports[0].tx_pps * point.t_s;
    assert!((sent - 2.0 * MANY as f64).abs() < 1e-6, "{sent}");
    assert!(point.streams.is_empty());
    // Nothing has been sent since then.
    run.tick();
    assert_eq!(run.series()[1].ports[0].tx_pps, 0.0);
    assert_eq!(run.finish().unwrap().series.len(), 2);
}

/// In quadratic time, the search for endless cycles takes several times as long as reading the
/// profile.
#[test]
fn a_long_chain_is_opened_in_linear_time() {
    // Other programs may take the CPU from one of the two: one of several attempts suffices.
    let times = (0..5).map(|_| {
        let begun = Instant::now();
        let session = session(50_000, true, "null:virtual");
        let read = begun.elapsed();
        let opened = session.open().unwrap();
        assert_eq!(opened.plan().workers.len(), 1);
        (begun.elapsed() - read, read)
    });
    let slow: Vec<_> = times.take_while(|(opening, read)| *opening >= 2 * *read).collect();
    assert!(slow.len() < 5, "{slow:?}");
}

#[test]
fn planning_ends_when_nobody_needs_the_plan() {
    let resolved = session(10, false, "null:").resolve(&|_, _| true).unwrap();
    assert!(resolved.clone().open(&|| false).is_ok());
    let error = resolved.open(&|| true).err().expect("it is cancelled").to_string();
    assert!(error.contains("nobody waits for the plan"), "{error}");
}

//! Runs that cannot keep to their schedule.

use squall::{Format, Profile, Session};

#[test]
fn who_falls_behind_still_sends_what_was_due_in_time_and_nothing_that_was_not() {
    // More than any machine fills, in two streams, which then take turns.
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
    let profile = Profile::parse(profile, "late", Format::Toml).unwrap();
    let report = Session::new(profile).open().unwrap().start().unwrap().finish().unwrap();
    let sent: Vec<u64> = report.streams.iter().map(|s| s.tx_packets).collect();
    assert_eq!(sent, [500_000, 500_000]);
}

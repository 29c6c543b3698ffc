#![no_main]
//! An engine's log in any format: reading terminates, each line is an alert, another event, an
//! error or a part of one of these, and the counts in a score are consistent.

use libfuzzer_sys::fuzz_target;
use squall_attacks::{
    Label,
    labels::Kind,
    score::{Scorer, Settings, alerts},
};
use squall_units::Nanos;

fuzz_target!(|data: &[u8]| {
    let lines = data.split(|&octet| octet == b'\n').count() as u64;
    let label = |attack: u64, kind| Label {
        attack,
        begin: Nanos(1_700_000_000_000_000_000 + attack),
        end: Nanos(1_700_000_001_000_000_000),
        protocol: 6,
        source: [10, 0, 0, 1].into(),
        source_port: 1,
        destination: [10, 0, 0, 2].into(),
        destination_port: 2,
        kind,
        gid: 1,
        sid: 1,
        rev: 1,
        msg: String::new(),
        also: vec![],
        alerts: u32::from(kind == Kind::Attack),
        frames: 1,
        name: String::new(),
        note: String::new(),
    };
    let labels = vec![label(0, Kind::Attack), label(1, Kind::NearMiss), label(2, Kind::Attack)];
    let mut scorer = Scorer::new(labels, Settings { shift_ns: -1 });
    let mut reader = alerts::Reader::new(data).year(2023);
    let read = scorer.read(&mut reader);
    assert!(read.lines <= lines && read.skipped.saturating_add(read.bad) <= lines + 1);
    assert!(read.errors.iter().all(|error| (1..=lines).contains(&error.line) && error.column > 0));
    let score = scorer.finish();
    assert_eq!(score.alerts, read.alerts);
    assert_eq!(score.counts.attacks, score.counts.hit + score.counts.missed);
    let listed = score.outside as u128
        + score.counts.alerts_own as u128
        + score.counts.near_miss_alerts as u128
        + score.counts.collateral as u128;
    // Sums saturate at the maximum.
    assert!(listed == score.alerts as u128 || score.alerts == u64::MAX, "{score:?}");
    let mut csv = vec![];
    score.write_csv(&mut csv).unwrap();
    assert_eq!(csv.iter().filter(|&&octet| octet == b'\n').count(), 1 + score.rules.len());
});

//! Workers are interchangeable. On 1, 2, 3 and 8 workers, a profile has the same frames, the fields
//! of each stream have the same sequence of values, and receive counters have the same sums.

use std::{collections::BTreeMap, fs, path::Path};

use squall::{Format, Placement, Plan, Profile, Session, report::Report};
use squall_profile::{Mode, Op, Stop};
use squall_program::{Run, Scratch};
use squall_units::TxMeta;

const WORKERS: [usize; 4] = [1, 2, 3, 8];

/// Every golden profile, and a profile for each of its streams alone, which all workers then share.
fn profiles() -> Vec<(String, Profile)> {
    let folder =
        fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden")).unwrap();
    let mut paths: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|suffix| suffix == "toml"));
    paths.sort();
    let mut profiles = Vec::new();
    for path in paths {
        let whole = Profile::load(path.to_str().unwrap()).unwrap_or_else(|e| panic!("{e}"));
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        for stream in &whole.streams {
            let mut alone = whole.clone();
            let mut stream = stream.clone();
            (stream.next, stream.self_start) = (None, true);
            if stream.mode == Mode::Continuous {
                stream.mode = Mode::Burst(100);
            }
            (alone.stop, alone.streams) = (Stop::default(), vec![stream.clone()]);
            profiles.push((format!("{name}, {:?} alone", stream.name), alone));
        }
        profiles.push((name, whole));
    }
    assert!(profiles.len() > 100, "{}", profiles.len());
    profiles
}

fn session(profile: &Profile, address: &str, cores: usize) -> Session {
    let mut profile = profile.clone();
    profile.ports[0].address = address.into();
    Session {
        options: squall::RunOptions {
            cores: Some(cores),
            fingerprint: Some(true),
            clock: Some(squall_options::Clock::Virtual),
            ..Default::default()
        },
        ..Session::new(profile)
    }
}

fn run(session: Session) -> Report {
    session.open().unwrap_or_else(|e| panic!("{e}")).start().unwrap().finish().unwrap()
}

#[test]
fn every_operation_is_among_the_golden_profiles() {
    let mut seen = BTreeMap::new();
    for vary in profiles().iter().flat_map(|(_, p)| &p.streams).flat_map(|s| &s.vary) {
        let mut op = &vary.op;
        if let Op::After { then, .. } = op {
            seen.insert("after", ());
            op = then;
        }
        let name = match op {
            Op::Step { step, .. } if *step < 0 => "decrement",
            Op::Step { .. } => "increment",
            Op::List { .. } => "list",
            Op::Random { limit: None, .. } => "random",
            Op::Random { .. } => "random with a limit",
            Op::Weighted { .. } => "weighted",
            Op::After { .. } => "after after",
        };
        seen.insert(name, ());
    }
    let all =
        ["after", "decrement", "increment", "list", "random", "random with a limit", "weighted"];
    assert_eq!(seen.into_keys().collect::<Vec<_>>(), all);
}

/// Number of frames and octets of each stream.
fn counts(report: &Report) -> Vec<(String, u64, u64)> {
    report.streams.iter().map(|s| (s.name.clone(), s.tx_packets, s.tx_octets)).collect()
}

#[test]
fn the_frames_of_any_number_of_workers_are_those_of_one() {
    for (name, profile) in profiles() {
        let one = run(session(&profile, "loop:union,virtual", 1));
        for workers in WORKERS {
            let name = format!("{name} on {workers} workers");
            let other = run(session(&profile, "loop:union,virtual", workers));
            let (tx, rx) = (&other.ports[0].tx, &other.ports[0].rx);
            assert_eq!(tx.fingerprint, one.ports[0].tx.fingerprint, "{name}");
            assert_eq!(
                (tx.packets, tx.octets, &tx.fingerprint),
                (rx.packets, rx.octets, &rx.fingerprint),
                "{name}"
            );
            assert_eq!(counts(&other), counts(&one), "{name}");
            for seen in other.streams.iter().filter_map(|s| s.rx.as_ref()) {
                assert_eq!((seen.lost, seen.duplicates), (0, 0), "{name}");
            }
        }
    }
}

/// The first frames of a stream in one run, and the others in a run that continues it.
#[test]
fn the_frames_of_two_runs_are_those_of_one() {
    let print = |report: &Report| {
        let text = report.ports[0].tx.fingerprint.clone().unwrap();
        u128::from_str_radix(&text, 16).unwrap()
    };
    let mut continued = 0;
    for (name, profile) in profiles().into_iter().filter(|(_, profile)| {
        matches!(&profile.streams[..], [alone]
            if alone.stages.is_empty() && alone.duration.is_none() && alone.segment.is_none())
    }) {
        let address = "loop:continued,virtual";
        let whole = run(session(&profile, address, 1));
        let all = whole.ports[0].tx.packets;
        for (workers, sent) in [(1, all / 3), (1, all - 1), (3, all / 2)] {
            let mut first = profile.clone();
            first.stop.packets = Some(sent.max(1));
            let first = run(session(&first, address, 1));
            let mut rest = profile.clone();
            rest.streams[0].sent = first.ports[0].tx.packets;
            if rest.streams[0].sent == all {
                continue;
            }
            let rest = run(session(&rest, address, workers));
            let name = format!("{name}, {sent} of {all} and the rest on {workers} workers");
            assert_eq!(first.ports[0].tx.packets + rest.ports[0].tx.packets, all, "{name}");
            assert_eq!(print(&first).wrapping_add(print(&rest)), print(&whole), "{name}");
            for seen in rest.streams.iter().filter_map(|s| s.rx.as_ref()) {
                assert_eq!((seen.lost, seen.duplicates), (0, 0), "{name}");
            }
            continued += 1;
        }
    }
    assert!(continued > 100, "{continued}");
}

/// Parts run on separate machines that have different numbers of workers.
#[test]
fn the_parts_of_a_profile_together_send_the_frames_of_the_whole() {
    let print = |report: &Report| {
        let text = report.ports[0].tx.fingerprint.clone().unwrap();
        u128::from_str_radix(&text, 16).unwrap()
    };
    let (mut divided, mut refused) = (0, 0);
    for (name, profile) in profiles() {
        let one = run(session(&profile, "loop:parts,virtual", 1));
        for of in [2, 3] {
            let part = |part: u32| {
                let mut session = session(&profile, "loop:parts,virtual", part as usize);
                session.options.part = Some(format!("{part}/{of}").parse().unwrap());
                session.open().map(|opened| opened.start().unwrap().finish().unwrap())
            };
            let parts: Vec<Report> = match (1..=of).map(part).collect() {
                Ok(parts) => parts,
                Err(error) => {
                    assert!(error.to_string().contains("a part cannot count"), "{name}: {error}");
                    refused += 1;
                    continue;
                }
            };
            let sum = |of: fn(&Report) -> u64| parts.iter().map(of).sum::<u64>();
            assert_eq!(
                (sum(|part| part.ports[0].tx.packets), sum(|part| part.ports[0].tx.octets)),
                (one.ports[0].tx.packets, one.ports[0].tx.octets),
                "{name} in {of} parts"
            );
            let prints = parts.iter().map(print).fold(0, u128::wrapping_add);
            assert_eq!(prints, print(&one), "{name} in {of} parts");
            let named = parts.into_iter().enumerate().map(|(i, part)| (i.to_string(), part));
            let whole = squall_report::merge::whole(named.collect()).unwrap();
            assert_eq!(counts(&whole), counts(&one), "{name} in {of} parts");
            divided += 1;
        }
    }
    assert!(divided > 10 * refused && divided > 200, "{divided} divided, {refused} refused");
}

/// The frames of a stream that worker `worker` makes, up to index `end`: (index, due time, octets).
fn frames(plan: &Plan, stream: usize, worker: usize, end: u64) -> Vec<(u64, u64, Vec<u8>)> {
    let Some((first, by)) = plan.share(stream, worker) else { return Vec::new() };
    let s = &plan.streams[stream];
    let (mut cursor, mut scratch) = (s.program.cursor(first, by, 1), Scratch::default());
    let whole = s.timeline(s.start);
    let share = whole.clone().share(first, by);
    let (mut timeline, walks) = share.map_or((whole, true), |share| (share, false));
    let mut at = if walks { 0 } else { first };
    let mut made = Vec::new();
    while let Some(due) = timeline.due().filter(|_| at < end) {
        let len = s.program.sizes().at(at);
        if at % by == first {
            let mut octets = vec![0xa5; len as usize];
            let mut meta = [TxMeta { len, due: due.as_nanos(), ..TxMeta::default() }];
            let (slots, stride) = (&mut octets[..], len as usize);
            s.program.fill(
                &mut cursor,
                &mut scratch,
                (slots, stride, &mut meta),
                &Run { start: 0, count: 1 },
                None,
            );
            made.push((at, due.0, octets));
        }
        timeline.advance(len);
        at += if walks { 1 } else { by };
    }
    made
}

#[test]
fn each_stream_has_the_sequence_and_the_instants_that_it_has_on_one_worker() {
    let mut shared = 0;
    for (name, profile) in profiles() {
        let plan = |workers| {
            session(&profile, "null:virtual", workers)
                .plan_only()
                .unwrap_or_else(|e| panic!("{e}"))
                .plan
        };
        let one = plan(1);
        for workers in WORKERS {
            let many = plan(workers);
            assert_eq!(many.streams.len(), one.streams.len());
            for stream in 0..one.streams.len() {
                shared += usize::from(many.streams[stream].placement == Placement::Shared);
                let mut together: Vec<_> =
                    (0..workers).flat_map(|w| frames(&many, stream, w, 90)).collect();
                together.sort();
                assert!(
                    together == frames(&one, stream, 0, 90),
                    "{name}, stream {stream} on {workers} workers"
                );
            }
        }
    }
    assert!(shared > 100, "only {shared} streams were shared");
}

/// Each queue of the loop loses or duplicates every tenth of its own frames. That is a tenth of all
/// frames if their number is a multiple of ten times each number of queues.
#[test]
fn loss_and_duplicates_add_up_over_the_workers_that_receive() {
    const FRAMES: u64 = 240 * 50;
    for (fault, lost, duplicates) in [
        ("drop=1/10", FRAMES / 10, 0),
        ("dup=1/10", 0, FRAMES / 10),
        ("drop=1/10,dup=1/9,seed=3", FRAMES / 10, FRAMES / 10),
    ] {
        for clock in ["", ",virtual"] {
            for workers in WORKERS {
                let address = format!("loop:adds-up,{fault}{clock}");
                let signed = "packet = \"eth/ipv4/udp\"\nsize = 64\nlatency = true\n";
                let text = format!(
                    "ports = {{ A = \"{address}\" }}\n[[stream]]\n{signed}rate = \"5 Mpps\"\nmode \
                     = {{ burst = {FRAMES} }}\n"
                );
                let profile = Profile::parse(&text, "union", Format::Toml).unwrap();
                let session = Session {
                    options: squall::RunOptions { cores: Some(workers), ..Default::default() },
                    ..Session::new(profile)
                };
                let opened = session.open().unwrap();
                let receivers = opened.plan().workers.iter().filter(|w| !w.rx.is_empty()).count();
                assert_eq!(receivers, workers, "a queue for each");
                let report = opened.start().unwrap().finish().unwrap();
                let seen = report.streams[0].rx.as_ref().unwrap();
                let name = format!("{address} on {workers} workers");
                assert_eq!(
                    (report.streams[0].tx_packets, seen.lost, seen.duplicates),
                    (FRAMES, lost, duplicates),
                    "{name}"
                );
                assert_eq!(seen.packets, FRAMES - lost + duplicates, "{name}");
                let received: u64 = report.workers.iter().map(|w| w.rx_packets).sum();
                assert_eq!(received, seen.packets, "{name}");
            }
        }
    }
}

#[test]
fn the_total_of_one_stream_is_divided_among_workers_and_exact() {
    let text = |stop: &str, more: &str| {
        format!(
            "{stop}\nports = {{ A = \"loop:divided,virtual\" }}\n[[stream]]\npacket = \
             \"eth/ipv4/udp\"\nrate = \"1 Mpps\"\n{more}\n[[stream.vary]]\nfield = \
             \"ipv4.src\"\nop = \"random\"\nmax = \"10.0.0.0\"\n"
        )
    };
    for (stop, more, frames, sharers) in [
        ("packets = 1001", "size = 64", 1001, 8),
        ("packets = 1001", "size = \"imix\"", 1001, 8),
        ("packets = 1001", "size = 64\nmode = { burst = 7 }", 7, 7),
        // The total of 64_001 octets is reached within a frame, which is the last one.
        ("octets = 64_001", "size = 64", 1001, 8),
        ("octets = 64_001\npackets = 999", "size = 64", 999, 8),
        ("octets = 64_001", "size = \"imix\"", 176, 1),
        ("packets = 1001", "size = 64\nlate = \"drop\"", 1001, 1),
    ] {
        let profile = Profile::parse(&text(stop, more), "union", Format::Toml)
            .unwrap_or_else(|e| panic!("{e}"));
        let one = run(session(&profile, "loop:divided,virtual", 1));
        let many = run(session(&profile, "loop:divided,virtual", 8));
        let name = format!("{stop}, {more}: {:?}", many.notes);
        assert_eq!((one.ports[0].tx.packets, many.ports[0].tx.packets), (frames, frames), "{name}");
        assert_eq!(one.ports[0].tx.fingerprint, many.ports[0].tx.fingerprint, "{name}");
        assert_eq!(many.workers.iter().filter(|w| w.tx_packets > 0).count(), sharers, "{name}");
        assert_eq!(
            many.notes.iter().any(|note| note.contains("one core sends")),
            sharers == 1,
            "{name}"
        );
    }
}

/// On real time, each worker runs at its own speed.
#[test]
fn workers_that_share_a_stream_without_a_rate_send_the_frames_of_one() {
    let text = "packets = 10_007\nports = { A = \"null:\" }\n[[stream]]\npacket = \
                \"eth/ipv4/udp\"\nrate = \"max\"\n[[stream.vary]]\nfield = \"ipv4.id\"\nop = \
                \"increment\"\nmax = 65535\n";
    let profile = Profile::parse(text, "union", Format::Toml).unwrap();
    let sent = |cores| {
        let session = Session {
            options: squall::RunOptions {
                cores: Some(cores),
                fingerprint: Some(true),
                ..Default::default()
            },
            ..Session::new(profile.clone())
        };
        let tx = run(session).ports.remove(0).tx;
        (tx.packets, tx.fingerprint)
    };
    assert_eq!(sent(1).0, 10_007);
    assert!(WORKERS.iter().all(|&workers| sent(workers) == sent(1)));
}

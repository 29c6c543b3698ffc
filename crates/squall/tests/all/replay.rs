//! Replays of captures: the frames that arrive, their times, and the counters. All are on virtual
//! time, into captures.

use std::{
    io::Write,
    path::{Path, PathBuf},
    time::Duration,
};

use proptest::prelude::*;
use squall::{Profile, Session, report::Report};
use squall_pcap::{CaptureReader, LinkType, PcapFormat, PcapWriter};
use squall_profile::{Located, Replay, SpeedUnit, TooLong};
use squall_replay::Gap;
use squall_units::Nanos;

/// A directory that is removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("squall-replay-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A capture of these packets, given as (nanoseconds, octets).
    fn capture(&self, name: &str, packets: &[(u64, Vec<u8>)]) -> PathBuf {
        self.capture_of(name, LinkType::ETHERNET, packets)
    }

    fn capture_of(&self, name: &str, link_type: LinkType, packets: &[(u64, Vec<u8>)]) -> PathBuf {
        let path = self.path(name);
        let format = PcapFormat { nanoseconds: true, link_type, ..PcapFormat::default() };
        let mut writer = PcapWriter::create(&path, format).unwrap();
        for (time, octets) in packets {
            writer.write(*time, octets.len() as u32, octets).unwrap();
        }
        writer.finish().unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn read(path: &Path) -> Vec<(u64, Vec<u8>)> {
    let mut reader = CaptureReader::open(path).unwrap();
    let mut packets = Vec::new();
    while let Some(packet) = reader.next().unwrap() {
        packets.push((packet.time_ns, packet.data.to_vec()));
    }
    packets
}

/// Frames of different lengths, each with its number in it.
fn frames(count: usize, gap: u64) -> Vec<(u64, Vec<u8>)> {
    (0..count)
        .map(|i| {
            let mut octets = vec![0x55; 60 + i * 37 % 900];
            octets[14..22].copy_from_slice(&(i as u64).to_be_bytes());
            (1_700_000_000_000_000_000 + i as u64 * gap, octets)
        })
        .collect()
}

fn plain(files: &[&Path]) -> Replay {
    let files = files.iter().map(|path| Located::from(path.to_str().unwrap()));
    Replay { name: "replay".into(), files: files.collect(), ..Replay::default() }
}

fn speed(of: SpeedUnit, text: &str) -> Option<(SpeedUnit, Located)> {
    Some((of, text.into()))
}

/// Replays captures on ports, given as (name, address), without receiving.
fn session<A: Into<String>>(
    replay: Replay,
    ports: impl IntoIterator<Item = (&'static str, A)>,
) -> Session {
    let mut session = Session::new(Profile::listening(ports));
    let port2 = (session.profile.ports.len() > 1).then_some(1);
    session.profile.replays = vec![Replay { port2, ..replay }];
    session.options.receive = Some(false);
    session
}

fn run(replay: Replay, ports: &[&str]) -> Report {
    let names = ["A", "B"].into_iter().zip(ports.iter().copied());
    let mut session = session(replay, names);
    // Each run overwrites the file.
    session.options.force = Some(true);
    session.open().unwrap().start().unwrap().finish().unwrap()
}

/// The frames that `replay` writes into a capture, and the report.
fn sent(folder: &Folder, replay: Replay) -> (Vec<(u64, Vec<u8>)>, Report) {
    let out = folder.path("out.pcap");
    let report = run(replay, &[&format!("pcap:{}", out.display())]);
    (read(&out), report)
}

fn octets(packets: &[(u64, Vec<u8>)]) -> Vec<&[u8]> {
    packets.iter().map(|(_, octets)| octets.as_slice()).collect()
}

fn times(packets: &[(u64, Vec<u8>)]) -> Vec<u64> {
    packets.iter().map(|(time, _)| time - packets[0].0).collect()
}

#[test]
fn a_capture_is_sent_octet_for_octet_at_its_own_instants() {
    let folder = Folder::new("own");
    let packets = frames(3000, 12_345);
    let (out, report) = sent(&folder, plain(&[&folder.capture("in.pcap", &packets)]));
    assert_eq!(octets(&out), octets(&packets));
    assert_eq!(times(&out), times(&packets));
    let replay = report.replays[0].clone();
    assert_eq!((replay.packets, replay.loops, replay.read.packets), (3000, 1, 3000));
    assert_eq!(replay.octets, packets.iter().map(|p| p.1.len() as u64).sum::<u64>());
    assert_eq!(
        (replay.ports[0].attempted, replay.ports[0].successful, replay.ports[0].failed),
        (3000, 3000, 0)
    );
    assert_eq!(report.ports[0].tx.packets, 3000);
}

#[test]
fn loops_follow_each_other_with_their_delay_and_a_limit_ends_in_their_midst() {
    let folder = Folder::new("loops");
    let packets = frames(10, 1000);
    let replay = Replay {
        loops: 3,
        loop_delay: Nanos(500),
        limit: Some(25),
        ..plain(&[&folder.capture("in.pcap", &packets)])
    };
    for preload in [false, true] {
        let (out, report) = sent(&folder, Replay { preload, ..replay.clone() });
        let all: Vec<&[u8]> = octets(&packets).into_iter().cycle().take(25).collect();
        assert_eq!(octets(&out), all);
        // Between the last frame of a loop and the first frame of the next there is only the delay.
        let due: Vec<u64> = (0..25).map(|i| i / 10 * (9000 + 500) + i % 10 * 1000).collect();
        assert_eq!(times(&out), due);
        assert_eq!(report.replays[0].clone().loops, 2, "preload: {preload}");
    }
}

#[test]
fn loops_at_top_speed_keep_their_delay() {
    let folder = Folder::new("top-loops");
    let packets = frames(10, 1000);
    let capture = folder.capture("in.pcap", &packets);
    for (of, text, preload) in [
        (SpeedUnit::Rate, "max", false),
        (SpeedUnit::Rate, "max", true),
        // One picosecond between frames.
        (SpeedUnit::Rate, "1000000 Mpps", true),
    ] {
        let replay = Replay {
            speed: speed(of, text),
            preload,
            loops: 3,
            loop_delay: Nanos(500_000),
            ..plain(&[&capture])
        };
        let (out, report) = sent(&folder, replay.clone());
        assert_eq!(
            times(&out),
            (0..30).map(|i| i / 10 * 500_000).collect::<Vec<_>>(),
            "{of:?} {text}, {preload}"
        );
        assert_eq!(report.replays[0].clone().loops, 3);
        // A run may end during a delay.
        let mut session = session(replay, vec![("A", "null:virtual")]);
        session.profile.stop.duration = Some(Nanos(700_000));
        let report = session.open().unwrap().start().unwrap().finish().unwrap();
        assert_eq!(report.ports[0].tx.packets, 20);
    }
}

#[test]
fn any_rate_is_kept_to_the_frame_in_every_way_of_reading() {
    let folder = Folder::new("rates");
    let capture = folder.capture("in.pcap", &frames(700, 3_333));
    let mbps = |mbps: u64| match Gap::from_bps(mbps * 1_000_000, 1, false) {
        Gap::PerOctet { num, den, .. } => Gap::PerOctet { num, den, extra: 0 },
        gap => gap,
    };
    let gaps = [
        (Gap::from_pps(1, 1), SpeedUnit::Rate, "1 pps"),
        (Gap::from_pps(333, 10), SpeedUnit::Rate, "33.3 pps"),
        (Gap::from_pps(100_000, 1), SpeedUnit::Rate, "100 kpps"),
        (mbps(1), SpeedUnit::Mbps, "1"),
        (mbps(300), SpeedUnit::Mbps, "300"),
    ];
    for (gap, of, text) in gaps {
        for (preload, together) in [(false, 1), (true, 1), (true, 7)] {
            let speed = speed(of, text);
            let replay = Replay { speed, together, preload, loops: 3, ..plain(&[&capture]) };
            let (out, _) = sent(&folder, replay);
            assert_eq!(out.len(), 2100);
            let mut lag = 0.0;
            for (i, (time, octets)) in out.iter().enumerate() {
                if i % together as usize == 0 {
                    let error = (time - out[0].0) as f64 - lag;
                    assert!(
                        error.abs() <= 1.0,
                        "{gap:?}, {together} at once, frame {i}: {error} ns off"
                    );
                }
                lag += gap.seconds(octets.len() as f64) * 1e9;
            }
        }
    }
}

#[test]
fn captures_read_too_late_are_reported_if_a_rate_requires_their_frames() {
    let folder = Folder::new("dry");
    let octets = std::fs::read(folder.capture("in.pcap", &frames(3_000, 1_000))).unwrap();
    let pipe = folder.path("pipe.pcap");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for speed in [speed(SpeedUnit::Rate, "50 kpps"), None] {
        // The pipe delivers these octets, then stays open for a while.
        let (pipe, octets) = (pipe.clone(), octets.clone());
        let replay = Replay { speed, ..plain(&[&pipe]) };
        let asks_for_a_rate = replay.speed.is_some();
        let writer = std::thread::spawn(move || {
            let mut pipe = std::fs::File::create(pipe).unwrap();
            pipe.write_all(&octets).unwrap();
            std::thread::sleep(Duration::from_secs(2));
        });
        let mut session = session(replay, [("A", "null:")]);
        session.profile.stop.duration = Some(Nanos(500_000_000));
        let report = session.open().unwrap().start().unwrap().finish().unwrap();
        let replay = &report.replays[0];
        assert!(replay.packets < 5_000, "{}", replay.packets);
        assert!(replay.starved_s > 0.0, "{asks_for_a_rate}");
        writer.join().unwrap();
        let read_too_late = report
            .verdict
            .reasons
            .iter()
            .any(|reason| reason.text.contains("captures were not read in time"));
        assert_eq!(read_too_late, asks_for_a_rate, "{:?}", report.verdict);
        assert!(!read_too_late || !report.verdict.valid);
    }
}

#[test]
fn ten_hours_drift_by_nothing() {
    let folder = Folder::new("drift");
    // 10 h, 0 min, 1.000000007 s.
    let span = 36_001_000_000_007u64;
    let packets: Vec<_> =
        frames(5, 1).into_iter().zip([0, 2_000, 5_000_000_000, span - 1, span]).collect();
    let packets: Vec<_> =
        packets.into_iter().map(|((t, octets), at)| (t - t % 1_000_000_000 + at, octets)).collect();
    let capture = folder.capture("in.pcap", &packets);
    let (out, _) = sent(&folder, plain(&[&capture]));
    assert_eq!(times(&out), [0, 2_000, 5_000_000_000, span - 1, span]);
    let speed = speed(SpeedUnit::Captured, "3");
    let (out, _) = sent(&folder, Replay { speed, ..plain(&[&capture]) });
    assert_eq!(times(&out), [0, 666, 1_666_666_666, (span - 1) / 3, span / 3]);
}

#[test]
fn several_files_go_one_after_the_other_or_by_their_times() {
    let folder = Folder::new("files");
    let all = frames(400, 1000);
    let part = |odd: usize| all.iter().skip(odd).step_by(2).cloned().collect::<Vec<_>>();
    let (even, odd) = (folder.capture("even.pcap", &part(0)), folder.capture("odd.pcap", &part(1)));
    let (out, _) = sent(&folder, Replay { merge: true, ..plain(&[&odd, &even]) });
    assert_eq!((octets(&out), times(&out)), (octets(&all), times(&all)));
    let (out, _) = sent(&folder, plain(&[&odd, &even]));
    let one_by_one: Vec<_> = part(1).into_iter().chain(part(0)).collect();
    assert_eq!(octets(&out), octets(&one_by_one));
    // The second capture begins where the first ends.
    assert_eq!(times(&out)[199..202], [398_000, 398_000, 400_000]);
}

#[test]
fn packets_before_the_damage_are_sent_and_the_damage_is_reported() {
    let folder = Folder::new("damaged");
    let packets = frames(50, 1000);
    let capture = folder.capture("in.pcap", &packets);
    let mut file = std::fs::read(&capture).unwrap();
    file.truncate(file.len() - 10);
    std::fs::write(&capture, file).unwrap();
    for preload in [false, true] {
        let (out, report) = sent(&folder, Replay { preload, loops: 2, ..plain(&[&capture]) });
        assert_eq!(octets(&out), octets(&packets[..49]));
        let fault = report.replays[0].clone().fault.unwrap();
        assert!(fault.contains("in.pcap") && fault.contains("after packet 49"), "{fault}");
    }
}

#[test]
fn frames_that_are_too_long_are_left_out_or_cut_and_counted() {
    let folder = Folder::new("long");
    let packets = frames(100, 1000);
    let long = packets.iter().filter(|p| p.1.len() > 300).count() as u64;
    let capture = folder.capture("in.pcap", &packets);
    for (too_long, sent, truncated) in
        [(TooLong::Skip, 100 - long, 0), (TooLong::Truncate, 100, long)]
    {
        let port = format!("loop:replay-{sent},virtual,max_frame=300");
        let report = run(Replay { too_long, ..plain(&[&capture]) }, &[&port]);
        let replay = report.replays[0].clone();
        assert_eq!((replay.packets, replay.ports[0].truncated), (sent, truncated));
        assert_eq!(replay.read.too_long, 100 - sent);
        assert_eq!(report.ports[0].tx.packets, sent);
    }
}

#[test]
fn only_wanted_packets_are_sent() {
    let folder = Folder::new("wanted");
    let packets = frames(40, 1000);
    let capture = folder.capture("in.pcap", &packets);
    let replay = Replay {
        include: Some("1-10,30-".into()),
        exclude: Some("2,31-39".into()),
        filter: Some("len > 100".into()),
        ..plain(&[&capture])
    };
    let (out, report) = sent(&folder, replay);
    let wanted = |i: usize| {
        [1, 3, 4, 5, 6, 7, 8, 9, 10, 30, 40].contains(&(i + 1)) && packets[i].1.len() > 100
    };
    let expected: Vec<&[u8]> =
        (0..40).filter(|&i| wanted(i)).map(|i| packets[i].1.as_slice()).collect();
    assert_eq!(octets(&out), expected);
    assert_eq!(report.replays[0].clone().read.unwanted, 40 - expected.len() as u64);
}

#[test]
fn packets_without_an_ethernet_header_get_one() {
    let folder = Folder::new("raw");
    let packet: Vec<u8> = [&[0x45, 0, 0, 28][..], &[0; 24]].concat();
    let capture = folder.capture_of("in.pcap", LinkType(101), &[(0, packet.clone())]);
    let (out, _) = sent(&folder, plain(&[&capture]));
    assert_eq!((&out[0].1[12..14], &out[0].1[14..]), (&[8, 0][..], packet.as_slice()));
}

#[test]
fn a_replay_that_cannot_be_says_why() {
    let folder = Folder::new("mistakes");
    let empty = folder.capture("empty.pcap", &[]);
    let out = folder.path("out.pcap");
    let (packets, report) = sent(&folder, Replay { loops: 0, limit: Some(5), ..plain(&[&empty]) });
    assert!(packets.is_empty());
    let fault = report.replays[0].clone().fault.unwrap();
    assert!(fault.contains("no packets to send"), "{fault}");
    let port = format!("pcap:{}", out.display());
    let port = port.replace("out.pcap", "other.pcap");
    let refused =
        |replay: Replay| session(replay, [("A", &*port)]).open().err().unwrap().to_string();
    let missing = refused(plain(&[&folder.path("none.pcap")]));
    assert!(
        missing.starts_with("cannot read ")
            && missing.ends_with("none.pcap: there is no such file"),
        "{missing}"
    );
    let once = refused(Replay { loops: 2, ..plain(&[Path::new("-")]) });
    assert!(once.contains("can only be read once") && once.contains("--preload"), "{once}");
}

/// UDP packets of flows in both directions: client 10.1.0.k, port 1000 + k; server 10.2.0.1, port
/// 53.
fn conversations(count: usize) -> Vec<(u64, Vec<u8>)> {
    (0..count)
        .map(|i| {
            let (client, server) = ([10, 1, 0, (i / 4) as u8], [10, 2, 0, 1]);
            let (client_port, server_port) = (1000 + (i / 4) as u16, 53u16);
            let back = i % 4 % 2 == 1;
            let (src, dst) = if back { (server, client) } else { (client, server) };
            let (sport, dport) =
                if back { (server_port, client_port) } else { (client_port, server_port) };
            let mut octets = vec![0; 60];
            octets[12] = 8;
            octets[14..34].copy_from_slice(&[
                0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
            ]);
            octets[26..30].copy_from_slice(&src);
            octets[30..34].copy_from_slice(&dst);
            octets[34..36].copy_from_slice(&sport.to_be_bytes());
            octets[36..38].copy_from_slice(&dport.to_be_bytes());
            octets[38..40].copy_from_slice(&26u16.to_be_bytes());
            octets[42..46].copy_from_slice(&(i as u32).to_be_bytes());
            (i as u64 * 1000, octets)
        })
        .collect()
}

fn number(octets: &[u8]) -> u32 {
    u32::from_be_bytes(octets[42..46].try_into().unwrap())
}

#[test]
fn clients_and_servers_leave_by_their_ports_in_the_order_of_the_capture() {
    let folder = Folder::new("two");
    let packets = conversations(400);
    let capture = folder.capture("in.pcap", &packets);
    let outs = [folder.path("a.pcap"), folder.path("b.pcap")];
    let ports = outs.each_ref().map(|path| format!("pcap:{}", path.display()));
    let report = run(plain(&[&capture]), &[&ports[0], &ports[1]]);
    let [clients, servers] = outs.each_ref().map(|path| read(path));
    assert!(
        clients.iter().all(|p| p.1[26..28] == [10, 1])
            && servers.iter().all(|p| p.1[26..28] == [10, 2])
    );
    let mut both: Vec<_> = clients.iter().chain(&servers).map(|p| (p.0, number(&p.1))).collect();
    both.sort_unstable();
    assert_eq!(both.iter().map(|p| p.1).collect::<Vec<_>>(), (0..400).collect::<Vec<_>>());
    let replay = report.replays[0].clone();
    assert_eq!((replay.ports[0].successful, replay.ports[1].successful), (200, 200));
    let flows = replay.flows.unwrap();
    assert_eq!((flows.flows, flows.flow_packets, flows.non_flow_packets), (200, 400, 0));
}

#[test]
fn each_loop_has_its_own_flows_with_unique_addresses_and_the_same_without() {
    let folder = Folder::new("unique");
    let capture = folder.capture("in.pcap", &conversations(40));
    let flows_of = |unique: Option<u64>, preload: bool| {
        let (out, report) =
            sent(&folder, Replay { unique, preload, loops: 6, ..plain(&[&capture]) });
        let flows = report.replays[0].clone().flows.unwrap();
        let tuples: std::collections::HashSet<Vec<u8>> =
            out.iter().map(|p| p.1[26..38].to_vec()).collect();
        assert_eq!(flows.flow_packets, 240);
        assert_eq!(flows.flows, tuples.len() as u64, "{unique:?}");
        flows.flows
    };
    for preload in [false, true] {
        assert_eq!(
            [None, Some(1), Some(2), Some(6)].map(|unique| flows_of(unique, preload)),
            [20, 120, 60, 20]
        );
    }
}

#[test]
fn unsent_packets_are_in_no_flow() {
    let folder = Folder::new("partly");
    let capture = folder.capture("in.pcap", &conversations(400));
    let (_, report) = sent(&folder, Replay { limit: Some(6), ..plain(&[&capture]) });
    let flows = report.replays[0].clone().flows.unwrap();
    assert_eq!((flows.flows, flows.flow_packets), (4, 6));
    // When the time is over, the reader is many loops ahead. A loop takes 399 us, and its first
    // frame is due with the last one of the loop before. So 4 frames of the next loop are due
    // within another 4 us.
    for loops in [0, 20] {
        let port = format!("pcap:{}", folder.path(&format!("stopped-{loops}.pcap")).display());
        let mut session = session(Replay { loops: 0, ..plain(&[&capture]) }, [("A", port)]);
        session.profile.stop.duration = Some(squall_units::Nanos(loops * 399_000 + 4_000));
        let replay = session.open().unwrap().start().unwrap().finish().unwrap().replays.remove(0);
        let flows = replay.flows.unwrap();
        assert_eq!((replay.loops, flows.flow_packets), (loops, loops * 400 + 4));
    }
}

#[test]
fn long_packets_leave_in_fragments_if_requested() {
    let folder = Folder::new("fragments");
    let mut packet = conversations(1)[0].1.clone();
    packet.resize(1014, 7);
    packet[16..18].copy_from_slice(&1000u16.to_be_bytes());
    packet[38..40].copy_from_slice(&980u16.to_be_bytes());
    let capture = folder.capture("in.pcap", &[(0, packet)]);
    let port = "loop:replay-fragments,virtual,max_frame=518";
    let report = run(Replay { too_long: TooLong::Fragment, ..plain(&[&capture]) }, &[port]);
    let replay = report.replays[0].clone();
    assert_eq!((replay.packets, replay.edited.unwrap().added, replay.read.too_long), (3, 2, 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A chunk may end at any frame, and a loop may begin at any frame in a chunk.
    #[test]
    fn reading_ahead_and_from_memory_send_the_same(
        lens in prop::collection::vec(14..1500usize, 1..400), loops in 1..6u64, limit in prop::option::of(1..1500u64),
    ) {
        let folder = Folder::new("same");
        let packets: Vec<_> = lens.iter().enumerate().map(|(i, &len)| (i as u64 * 777, vec![i as u8; len])).collect();
        let capture = folder.capture("in.pcap", &packets);
        let replay = Replay { loops, limit, ..plain(&[&capture]) };
        let (read, _) = sent(&folder, replay.clone());
        let (kept, _) = sent(&folder, Replay { preload: true, ..replay });
        let count = (lens.len() as u64 * loops).min(limit.unwrap_or(u64::MAX)) as usize;
        let all: Vec<&[u8]> = octets(&packets).into_iter().cycle().take(count).collect();
        prop_assert_eq!(octets(&read), all);
        prop_assert_eq!(read, kept);
    }
}

//! Every frame passed to a tap is in a file or counted by reason: formats, rotation, compression,
//! policies.

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    thread,
};

use squall_capture::{
    Capture, Compression, Counters, Format, GsoFrames, OnFull, Options, Outcome, PreTrigger,
    Rotate, Stop, Tap,
};
use squall_pcap::{CaptureReader, InterfaceFormat};
use squall_port::{Cut, Filter, RxBatch, RxFrame};
use squall_units::Nanos;

/// A temporary directory for the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("squall-capture-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn options(file: &Path) -> Options {
    Options {
        file: Some(file.to_owned()),
        interfaces: vec![InterfaceFormat {
            name: Some("eth1".into()),
            ..InterfaceFormat::default()
        }],
        virtual_time: true,
        // A test may write several captures to one file.
        permit: squall_port::output::Permit::FORCE,
        ..Options::default()
    }
}

const MS: u64 = 1_000_000;

/// Frame `k`: its octets begin with its number, and its length varies with it.
fn octets(k: u64) -> Vec<u8> {
    let mut octets = vec![k as u8; 60 + (k % 7) as usize * 100];
    octets[..8].copy_from_slice(&k.to_be_bytes());
    octets
}

/// Gives frames `from..to` to `tap`, one per ms, in batches.
fn give(tap: &mut Tap, from: u64, to: u64) {
    let numbers: Vec<u64> = (from..to).collect();
    for batch in numbers.chunks(64) {
        let mut base = Vec::new();
        let mut frames = Vec::new();
        for &k in batch {
            let octets = octets(k);
            let len = octets.len() as u32;
            frames.push(RxFrame {
                offset: base.len(),
                len,
                wire_len: len,
                time: Nanos(k * MS),
                ..RxFrame::default()
            });
            base.extend(octets);
        }
        tap.take(&RxBatch { base: &base, frames: &frames });
    }
}

/// The numbers of the frames in a file, each with captured octets, octets on the wire, and time.
fn read(path: impl AsRef<Path>) -> Vec<(u64, usize, u32, u64)> {
    let mut reader = CaptureReader::open(path).unwrap();
    let mut found = Vec::new();
    while let Some(packet) = reader.next().unwrap() {
        let number = u64::from_be_bytes(packet.data[..8].try_into().unwrap());
        found.push((number, packet.data.len(), packet.wire_len, packet.time_ns));
    }
    found
}

fn sum(reasons: &[(&str, u64)]) -> u64 {
    reasons.iter().map(|(_, n)| n).sum()
}

fn adds_up(c: &Counters, sent: u64, name: &str) {
    assert_eq!(c.received, sent, "{name}: {c:?}");
    assert_eq!(c.received, c.written + sum(&c.dropped) + sum(&c.unwanted), "{name}: {c:?}");
}

fn run(options: Options, frames: u64) -> Outcome {
    let capture = Capture::start(options).unwrap();
    let mut tap = capture.taps(0)();
    give(&mut tap, 0, frames);
    tap.finish();
    capture.finish()
}

#[test]
fn every_frame_is_in_the_files_whatever_their_form() {
    let folder = Folder::new("forms");
    let formats =
        [Format::Pcapng, Format::Pcap { nanoseconds: true }, Format::Pcap { nanoseconds: false }];
    let rotations = [
        Rotate::default(),
        Rotate { packets: Some(333), ..Rotate::default() },
        Rotate { octets: Some(100_000), ..Rotate::default() },
        Rotate { time: Some(Nanos(500 * MS)), ..Rotate::default() },
    ];
    for (i, format) in formats.into_iter().enumerate() {
        for (j, rotate) in rotations.into_iter().enumerate() {
            for (k, compress) in
                [None, Some("zstd:3"), Some("gz"), Some("lz4")].into_iter().enumerate()
            {
                for snaplen in [squall_capture::SNAPLEN, 77] {
                    let name = format!("{format:?}, {rotate:?}, {compress:?}, {snaplen}");
                    let suffix = ["", ".zst", ".gz", ".lz4"][k];
                    let file = folder.file(&format!("{i}{j}{k}{snaplen}.cap{suffix}"));
                    let compress = compress.map(|text| text.parse::<Compression>().unwrap());
                    let outcome =
                        run(Options { format, rotate, compress, snaplen, ..options(&file) }, 4000);
                    adds_up(&outcome.counters, 4000, &name);
                    assert_eq!((outcome.counters.written, outcome.error), (4000, None), "{name}");
                    let mut found = Vec::new();
                    for file in &outcome.files {
                        let packets = read(&file.name);
                        assert_eq!(packets.len() as u64, file.packets, "{name}: {}", file.name);
                        assert_eq!(fs::metadata(&file.name).unwrap().len(), file.octets, "{name}");
                        let most = rotate.octets.filter(|_| compress.is_none());
                        assert!(
                            most.is_none_or(|most| file.octets <= most),
                            "{name}: {}",
                            file.octets
                        );
                        assert!(rotate.packets.is_none_or(|most| file.packets <= most), "{name}");
                        found.extend(packets);
                    }
                    let expected = (0..4000).map(|k| {
                        let len = octets(k).len();
                        (k, len.min(snaplen as usize), len as u32, k * MS)
                    });
                    assert!(found.iter().copied().eq(expected), "{name}: {} found", found.len());
                    let files = match j {
                        1 => Some(13),
                        3 => Some(8),
                        _ => None,
                    };
                    assert!(
                        files.is_none_or(|n| outcome.files.len() == n),
                        "{name}: {}",
                        outcome.files.len()
                    );
                    assert_eq!(
                        outcome.files.len() == 1,
                        j == 0 || (j == 2 && compress.is_some()),
                        "{name}: {:?}",
                        outcome.files.len()
                    );
                }
            }
        }
    }
}

#[test]
fn a_ring_keeps_the_newest_files() {
    let folder = Folder::new("ring");
    let rotate = Rotate { packets: Some(100), ring: Some(3), ..Rotate::default() };
    let outcome = run(Options { rotate, ..options(&folder.file("x.pcapng")) }, 1050);
    adds_up(&outcome.counters, 1050, "ring");
    let c = &outcome.counters;
    assert_eq!((c.files, c.removed_files, c.removed_packets), (11, 8, 800));
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 3);
    let found: Vec<_> =
        outcome.files.iter().flat_map(|file| read(&file.name)).map(|p| p.0).collect();
    assert_eq!(found, (800..1050).collect::<Vec<_>>());
}

#[test]
fn a_capture_ends_at_its_count_its_size_or_its_files() {
    let folder = Folder::new("stop");
    let file = folder.file("x.pcapng");
    let rotate = Rotate { packets: Some(100), ..Rotate::default() };
    for (stop, rotate, most, why) in [
        (Stop { packets: Some(1234), ..Stop::default() }, Rotate::default(), 1234, "packets"),
        (Stop { octets: Some(50_000), ..Stop::default() }, Rotate::default(), 200, "octets"),
        (Stop { files: Some(3), ..Stop::default() }, rotate, 300, "files"),
    ] {
        let outcome = run(Options { stop, rotate, ..options(&file) }, 3000);
        adds_up(&outcome.counters, 3000, why);
        assert_eq!(outcome.ended_by, Some(why));
        let found: Vec<_> =
            outcome.files.iter().flat_map(|file| read(&file.name)).map(|p| p.0).collect();
        assert_eq!(found, (0..found.len() as u64).collect::<Vec<_>>(), "{why}");
        assert_eq!(outcome.counters.written, found.len() as u64, "{why}");
        assert!(found.len() as u64 <= most && found.len() > 100, "{why}: {}", found.len());
        assert_eq!(outcome.counters.dropped, [], "{why}");
        let octets: u64 = outcome.files.iter().map(|f| f.octets).sum();
        assert!(stop.octets.is_none_or(|most| octets <= most + 200), "{octets}");
    }
}

/// The pipe is not read until everything is sent. By then the buffer and the pipe are full, and
/// each further packet is counted with a reason.
#[test]
fn a_slow_file_drops_packets_by_policy() {
    const SENT: u64 = 20_000;
    /// Octets that a pipe holds (pipe(7)).
    const PIPE: u64 = 64 << 10;
    let folder = Folder::new("slow");
    for (on_full, reason) in [
        (OnFull::DropNewest, "buffer_full"),
        (OnFull::DropOldest, "buffer_full_oldest"),
        (OnFull::Truncate(64), "buffer_full"),
        (OnFull::Wait, ""),
    ] {
        let name = format!("{on_full:?}");
        let file = folder.file("fifo");
        assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
        let fifo = file.clone();
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let reader = thread::spawn(move || {
            let mut file = fs::File::open(fifo).unwrap();
            // With this policy, a reader that waits for the end would block the capture.
            if on_full != OnFull::Wait {
                wait.recv().unwrap();
            }
            let mut all = Vec::new();
            file.read_to_end(&mut all).unwrap();
            all
        });
        let capture =
            Capture::start(Options { on_full, buffer: 1 << 20, ..options(&file) }).unwrap();
        let mut tap = capture.taps(0)();
        give(&mut tap, 0, SENT);
        tap.finish();
        go.send(()).unwrap();
        let outcome = capture.finish();
        let copy = folder.file("copy");
        fs::write(&copy, reader.join().unwrap()).unwrap();
        let found = read(&copy);
        fs::remove_file(&file).unwrap();
        adds_up(&outcome.counters, SENT, &name);
        assert_eq!(found.len() as u64, outcome.counters.written, "{name}");
        assert!(found.windows(2).all(|w| w[0].0 < w[1].0), "{name}");
        let lost: Vec<_> = outcome.counters.dropped.iter().map(|(reason, _)| *reason).collect();
        assert_eq!(lost, if reason.is_empty() { vec![] } else { vec![reason] }, "{name}");
        let last = found.last().unwrap().0;
        match on_full {
            // The reader began after all frames were given. It gets the first ones, as many as the
            // buffer holds, and after them those that fit when the pipe was read: it may take one
            // or two of the writer's last chunks.
            OnFull::DropNewest => {
                let octets = |packets: &[(u64, usize, u32, u64)]| {
                    packets.iter().map(|p| p.1 as u64).sum::<u64>()
                };
                let first = (0..).zip(&found).take_while(|(i, p)| p.0 == *i).count();
                let (first, kept, buffer) =
                    (octets(&found[..first]), octets(&found), outcome.counters.buffer);
                assert!(
                    first >= buffer * 3 / 4,
                    "{name}: {first} octets came first, in a buffer of {buffer}"
                );
                assert!(kept <= buffer + 2 * PIPE, "{name}: {kept} octets in a buffer of {buffer}");
            }
            OnFull::DropOldest | OnFull::Wait => assert_eq!(last, SENT - 1, "{name}"),
            OnFull::Truncate(most) => {
                let cut =
                    found.iter().filter(|p| p.1 == most as usize && p.2 > most).count() as u64;
                // Some truncated packets may have been dropped later.
                assert!(
                    cut > 1000 && cut <= outcome.counters.truncated,
                    "{name}: {cut} {:?}",
                    outcome.counters
                );
            }
        }
    }
}

#[test]
fn a_full_disk_is_reported_at_once() {
    // The header is written immediately.
    let error = Capture::start(options(Path::new("/dev/full"))).err().unwrap().to_string();
    assert!(error.contains("cannot write /dev/full: no space left"), "{error}");
}

#[test]
fn several_queues_are_one_file_in_order_of_time() {
    let folder = Folder::new("order");
    for taps in [2, 5] {
        let file = folder.file(&format!("{taps}.pcapng"));
        let names = (0..taps).map(|i| InterfaceFormat {
            name: Some(format!("eth{i}")),
            ..InterfaceFormat::default()
        });
        let capture =
            Capture::start(Options { interfaces: names.collect(), ..options(&file) }).unwrap();
        let mut all: Vec<_> = (0..taps).map(|i| capture.taps(i)()).collect();
        // Each tap gets a share that depends on the tap's number and on the round.
        let mut from = 0;
        for round in 0..2000 {
            let to = from + 1 + (round * 7) % 40;
            give(&mut all[round as usize % taps], from, to);
            from = to;
        }
        all.iter_mut().for_each(|tap| tap.finish());
        let outcome = capture.finish();
        adds_up(&outcome.counters, from, "order");
        assert_eq!(outcome.counters.out_of_order, 0);
        assert!(read(&file).into_iter().map(|p| p.0).eq(0..from));
        let reader = CaptureReader::open(&file).unwrap();
        drop(reader);
    }
}

/// Times 0 to 20 s, one frame per ms; frame 10,000 is the trigger.
#[test]
fn packets_before_the_trigger_are_kept_exactly() {
    let folder = Folder::new("trigger");
    let file = folder.file("x.pcapng");
    // ld [4]; jeq #10000, 0, 1; ret 1; ret 0: frames begin with their number.
    let insn = |code, jt, jf, k| squall_bpf::classic::Instruction { code, jt, jf, k };
    let program = vec![
        insn(0x20, 0, 0, 4),
        insn(0x15, 0, 1, 10_000),
        insn(0x06, 0, 0, 1),
        insn(0x06, 0, 0, 0),
    ];
    let program = squall_bpf::classic::Filter::new(program).unwrap();
    let filter = Arc::new(Filter { program, ..Filter::all(1) });
    let trigger =
        |keep, after| Some(PreTrigger { keep: Nanos(keep), after, filters: vec![filter.clone()] });
    let all = 20_000;
    for (pre_trigger, from, to) in [
        (trigger(2_000 * MS, Some(Nanos(1_000 * MS))), 8_000, 11_000),
        (trigger(0, None), 10_000, all),
        (trigger(3_000 * MS, None), 7_000, all),
        (trigger(60_000 * MS, Some(Nanos(0))), 0, 10_000),
    ] {
        let outcome = run(Options { pre_trigger, ..options(&file) }, all);
        adds_up(&outcome.counters, all, "trigger");
        assert_eq!((outcome.triggered_ns, outcome.kept_from_ns), (Some(10_000 * MS), None));
        assert_eq!(outcome.counters.dropped, []);
        let found: Vec<_> = read(&file).into_iter().map(|p| p.0).collect();
        assert_eq!(
            (found.first().copied(), found.len() as u64),
            (Some(from), to - from),
            "{:?}",
            outcome.counters
        );
        assert!(found.into_iter().eq(from..to), "{from} {to}");
    }
    // The buffer holds only some seconds: the report shows that, and the kept packets have no gap
    // until the end.
    let outcome = run(
        Options { pre_trigger: trigger(60_000 * MS, None), buffer: 1 << 20, ..options(&file) },
        all,
    );
    let found: Vec<_> = read(&file).into_iter().map(|p| p.0).collect();
    let first = found[0];
    assert!(first > 1_000 && first < 10_000, "{first}");
    // After the trigger the writer may be slower than this test, in which case drops are counted.
    adds_up(&outcome.counters, all, "small");
    assert_eq!(outcome.kept_from_ns.map(|ns| ns <= first * MS), Some(true));
    assert!(found.iter().copied().take((10_000 - first) as usize).eq(first..10_000));
    // Without a trigger, no packet is wanted.
    let outcome = run(Options { pre_trigger: trigger(2_000 * MS, None), ..options(&file) }, 5_000);
    adds_up(&outcome.counters, 5_000, "none");
    assert_eq!((outcome.counters.written, read(&file).len()), (0, 0));
}

fn gso_frame() -> (Vec<u8>, Cut) {
    let text = "eth/ipv4(src=10.0.0.1,dst=10.0.0.2)/tcp(flags=PA)/payload(random)";
    let packet = squall_wire::Packet::parse(text).unwrap();
    let frame = packet.build(Some(54 + 10_000), &|_| unreachable!(), 1).unwrap();
    (frame.bytes.clone(), Cut { size: 1460, transport: 34, payload: 54 })
}

#[test]
fn gso_frames_are_cut_or_kept_and_counted() {
    let folder = Folder::new("gso");
    let file = folder.file("x.pcapng");
    let (octets, cut) = gso_frame();
    for (gso_frames, present, written) in [
        (GsoFrames::Cut, octets.len(), 7),
        (GsoFrames::Cut, 96, 7),
        (GsoFrames::Cut, 40, 1),
        (GsoFrames::Keep, octets.len(), 1),
    ] {
        let capture = Capture::start(Options { gso_frames, ..options(&file) }).unwrap();
        let mut tap = capture.taps(0)();
        let len = octets.len() as u32;
        let frame = RxFrame { len: present as u32, wire_len: len, cut, ..RxFrame::default() };
        tap.take(&RxBatch { base: &octets, frames: &[frame] });
        tap.finish();
        let outcome = capture.finish();
        let c = &outcome.counters;
        adds_up(c, if gso_frames == GsoFrames::Cut { 7 } else { 1 }, "gso");
        assert_eq!((c.gso_frames, c.segments, c.written), (1, 7, written));
        let mut reader = CaptureReader::open(&file).unwrap();
        let (mut data, mut captured, mut packets) = (0, 0, 0);
        while let Some(packet) = reader.next().unwrap() {
            data += packet.wire_len - 54;
            captured += packet.data.len();
            packets += 1;
            if present == octets.len() {
                let frame = squall_wire::Frame::dissect(packet.data.to_vec());
                assert_eq!(
                    frame.checksums.len(),
                    if written == 1 { frame.checksums.len() } else { 2 }
                );
            }
        }
        assert_eq!(packets, written);
        match (written, present) {
            (7, 96) => assert_eq!((data, captured, c.unsummed), (10_000, 7 * 54 + 42, 7)),
            (_, 40) => assert_eq!(c.dropped, [("headers_missing", 6)]),
            _ => assert_eq!(data, 10_000),
        }
    }
}

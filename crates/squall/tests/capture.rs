//! The counter matrix for captures. Over ports, formats, rotation, compression, policies, filters
//! and snap lengths, every sent frame is either written or counted as lost for some reason, and the
//! files match the report. This is not the full product: each value in each dimension is combined
//! with several values in the others.

mod harness;

use std::{
    error::Error,
    fs,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use harness::{Outcome, Skipped, Test, same};
use squall::{
    Format as Language, Profile, Session,
    report::{CaptureReport, Report},
};
use squall_capture::{Method, Rotate};
use squall_options::{CaptureOptions, Count, Octets, ReceivedFlows, Time};
use squall_pcap::CaptureReader;

const TESTS: &[(&str, Test)] = &[
    ("a_capture_of_a_loop_has_what_was_sent", || matrix(LOOP)),
    ("a_capture_of_a_file_has_what_is_in_it", || matrix(FILE)),
    ("a_capture_by_af_packet_has_what_was_sent", || matrix(AF_PACKET)),
    ("a_capture_by_two_receive_queues_has_what_was_sent", || matrix(AF_PACKET_TWO_QUEUES)),
    ("a_capture_by_af_xdp_has_what_was_sent", || matrix(AF_XDP)),
    ("what_a_full_ring_loses_is_told_by_name", a_full_ring),
    ("gso_frames_are_written_as_what_they_become", gso_frames),
    ("ports_of_different_links_are_each_read_as_what_they_are", different_links),
    ("unseen_frames_of_another_run_are_refused", with_a_local_sender),
    ("each_sample_says_what_is_written_and_lost", samples),
];

/// A link on which the test captures.
#[derive(Clone, Copy)]
struct Link {
    sender: &'static str,
    receiver: &'static str,
    lab: bool,
    bpf: bool,
}

const LOOP: Link =
    Link { sender: "loop:capture", receiver: "loop:capture", lab: false, bpf: false };
const FILE: Link = Link { sender: "", receiver: "", lab: false, bpf: false };
const AF_PACKET: Link =
    Link { sender: "af_packet:veth-a", receiver: "af_packet:veth-b", lab: true, bpf: false };
const AF_PACKET_TWO_QUEUES: Link = Link { receiver: "af_packet:veth-b,rx_queues=2", ..AF_PACKET };
const AF_XDP: Link = Link {
    sender: "af_packet:veth-a",
    receiver: "af_xdp:veth-b,take=all,ring=16384",
    lab: true,
    bpf: true,
};

/// Frames in each of the four streams. The filter accepts three of them.
const EACH: u64 = 1500;
/// Length of a frame in octets, without FCS.
const LEN: u64 = 196;
const FILTER: &str = "udp port 9";

/// Options of the capture.
#[derive(Clone, Copy, Default)]
struct Way {
    suffix: &'static str,
    compress: Option<Method>,
    rotate: Rotate,
    on_full: Option<&'static str>,
    /// Size of the buffer in octets; 0: the default.
    buffer: u64,
    filter: bool,
    snaplen: u32,
    /// Impairments at the receiver: (options, number of frames lost, number of frames duplicated).
    faults: Option<(&'static str, u64, u64)>,
}

fn ways() -> Vec<Way> {
    let rotate = |packets, octets, ring| Rotate { packets, octets, ring, ..Rotate::default() };
    let way = |suffix, compress| Way { suffix, compress, ..Way::default() };
    vec![
        Way { filter: true, ..way("pcapng", None) },
        Way { rotate: rotate(Some(700), None, None), snaplen: 96, ..way("pcapng", None) },
        Way {
            rotate: rotate(None, Some(300_000), None),
            on_full: Some("drop-oldest"),
            ..way("pcap", None)
        },
        Way {
            compress: Some(Method::Zstd),
            snaplen: 96,
            filter: true,
            on_full: Some("truncate:64"),
            ..way("pcap", None)
        },
        Way {
            rotate: rotate(Some(1000), None, Some(2)),
            filter: true,
            ..way("pcapng", Some(Method::Gzip))
        },
        Way { on_full: Some("wait"), snaplen: 60, ..way("pcapng", Some(Method::Lz4)) },
        // Little memory and a slow writer.
        Way { buffer: 1, filter: true, ..way("pcapng", Some(Method::Gzip)) },
        Way {
            buffer: 1,
            on_full: Some("drop-oldest"),
            snaplen: 128,
            ..way("pcap", Some(Method::Zstd))
        },
        Way { faults: Some(("drop=1/10", EACH * 4 / 10, 0)), ..way("pcapng", None) },
        Way {
            faults: Some(("dup=1/10", 0, EACH * 4 / 10)),
            compress: Some(Method::Zstd),
            ..way("pcap", None)
        },
    ]
}

/// A directory that is removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new() -> std::io::Result<Self> {
        let path =
            std::env::temp_dir().join(format!("squall-capture-matrix-{}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn matrix(link: Link) -> Outcome {
    enter(link)?;
    let folder = Folder::new()?;
    for (number, way) in ways().into_iter().enumerate() {
        let of_file = link.sender.is_empty();
        if way.faults.is_some() && (link.lab || of_file) {
            continue;
        }
        let name = format!("{}, way {number}", if of_file { "a file" } else { link.receiver });
        let report =
            if of_file { of_a_file(&folder, way)? } else { of_a_link(link, &folder, way)? };
        check(&name, &report, way)?;
        for file in fs::read_dir(&folder.0)? {
            fs::remove_file(file?.path())?;
        }
    }
    Ok(())
}

fn enter(link: Link) -> Outcome {
    if link.lab {
        squall_port_linux::lab::enter_private(&squall_port_linux::lab::LabOptions::default())?;
    }
    if link.bpf {
        squall_port_linux::Permissions::of_this_process().xdp_programs().map_err(Skipped)?;
    }
    Ok(())
}

/// Four streams that differ in their UDP ports.
fn profile(sender: &str, receiver: Option<&str>) -> Result<Profile, Box<dyn Error>> {
    let mut text = format!("[ports]\nA = \"{sender}\"\n");
    text += &receiver.map_or(String::new(), |address| format!("B = \"{address}\"\n"));
    for (sport, dport) in [(1, 9), (2, 10), (3, 9), (4, 9)] {
        text += &format!(
            "[[stream]]\nport = \"A\"\npacket = \"eth/ipv4/udp(sport={sport}, \
             dport={dport})\"\nsize = {}\nrate = \"10 kpps\"\nmode = {{ burst = {EACH} }}\n",
            LEN + 4
        );
    }
    parse(&text)
}

fn parse(text: &str) -> Result<Profile, Box<dyn Error>> {
    Ok(Profile::parse(text, "matrix.toml", Language::Toml).map_err(|e| format!("{e}\n{text}"))?)
}

fn capture(folder: &Folder, way: Way) -> CaptureOptions {
    let compressed = way.compress.map_or(String::new(), |method| format!(".{}", method.suffix()));
    let file = folder.0.join(format!("out.{}{compressed}", way.suffix));
    // A previous capture of the same test may have left the file.
    let _ = std::fs::remove_file(&file);
    CaptureOptions {
        file: Some(file),
        format: Some(way.suffix.into()),
        rotate_octets: way.rotate.octets.map(Octets),
        rotate_packets: way.rotate.packets.map(Count),
        ring: way.rotate.ring,
        compress: way.compress.map(|method| method.suffix().into()),
        on_full: way.on_full.map(str::to_owned),
        snaplen: Some(way.snaplen).filter(|&octets| octets > 0),
        buffer: Some(Octets(way.buffer)).filter(|octets| octets.0 > 0),
        ..CaptureOptions::default()
    }
}

/// Adds a capture to `session`.
fn capturing(mut session: Session, capture: CaptureOptions) -> Session {
    session.options.capture = Some(capture);
    session
}

fn run(session: Session) -> Result<Report, Box<dyn Error>> {
    let mut run = Session {
        options: squall::RunOptions {
            cores: Some(1),
            linger: Some(squall_options::Time::from_millis(30)),
            ..session.options.clone()
        },
        ..session
    }
    .open()?
    .start()?;
    if run.plan().streams.is_empty() {
        run.wait(Duration::from_millis(20));
        run.stop();
    }
    Ok(run.finish()?)
}

fn of_a_link(link: Link, folder: &Folder, way: Way) -> Result<Report, Box<dyn Error>> {
    let faults = way.faults.map_or(String::new(), |(faults, _, _)| format!(",{faults}"));
    let receiver = format!("{}{faults}", link.receiver);
    let filter = way.filter.then(|| FILTER.to_owned());
    run(Session {
        options: squall::RunOptions {
            filter,
            capture: Some(capture(folder, way)),
            ..Default::default()
        },
        ..Session::new(profile(link.sender, Some(&receiver))?)
    })
}

/// Writes the sender's streams to a file, then captures from that file.
fn of_a_file(folder: &Folder, way: Way) -> Result<Report, Box<dyn Error>> {
    let file = folder.0.join("in.pcap");
    let _ = std::fs::remove_file(&file);
    let address = format!("pcap:{}", file.display());
    let sent = run(Session::new(profile(&address, None)?))?;
    let session = Session::new(Profile::listening([("A", format!("{address},read"))]));
    let filter = way.filter.then(|| FILTER.to_owned());
    let session = Session {
        options: squall::RunOptions {
            clock: Some(squall_options::Clock::Virtual),
            filter,
            capture: Some(capture(folder, way)),
            ..session.options.clone()
        },
        ..session
    };
    Ok(Report { streams: sent.streams, ..run(session)? })
}

fn check(name: &str, report: &Report, way: Way) -> Outcome {
    let capture = report.capture.as_ref().ok_or("nothing was captured")?;
    let sent = |number: usize| report.streams[number].tx_packets;
    same(name, "sent", (0..4).map(sent).collect(), vec![EACH; 4])?;
    let wanted = if way.filter { sent(0) + sent(2) + sent(3) } else { (0..4).map(sent).sum() };
    let (_, vanished, twice) = way.faults.unwrap_or_default();
    same(name, "received", capture.received, wanted - vanished + twice)?;
    agrees(name, capture)?;
    if let Some(accepted) = capture.accepted {
        same(name, "accepted", accepted, capture.received)?;
    }
    if way.on_full == Some("wait") {
        same(name, "lost by who waits", capture.lost, 0)?;
    }
    if capture.truncated == 0 {
        let kept = if way.snaplen == 0 { LEN } else { LEN.min(way.snaplen.into()) };
        same(name, "octets", capture.written_octets, capture.written_packets * kept)?;
    }
    Ok(())
}

/// Checks that the counters agree with each other and with the files.
fn agrees(name: &str, capture: &CaptureReport) -> Outcome {
    let sum = |reasons: &std::collections::BTreeMap<String, u64>| reasons.values().sum::<u64>();
    let lost = sum(&capture.dropped) + sum(&capture.dropped_by_kernel);
    same(name, "lost", capture.lost, lost)?;
    same(name, "error", &capture.error, &None)?;
    same(
        name,
        "received",
        capture.received,
        capture.written_packets + lost + sum(&capture.unwanted),
    )?;
    let of_files: u64 = capture.files.iter().map(|file| file.packets).sum();
    same(name, "in files", of_files + capture.removed_packets, capture.written_packets)?;
    for file in &capture.files {
        same(&file.name, "octets", fs::metadata(&file.name)?.len(), file.octets)?;
        let mut reader = CaptureReader::open(&file.name)?;
        while reader.next()?.is_some() {}
        same(&file.name, "packets", reader.packets(), file.packets)?;
        same_by_capinfos(file)?;
    }
    // The final counters are in the last file.
    if let Some(last) = capture.files.last().filter(|_| capture.format == "pcapng") {
        let mut reader = CaptureReader::open(&last.name)?;
        while reader.next()?.is_some() {}
        let all = reader.interfaces();
        let accepted = all.iter().filter_map(|i| i.accepted).sum::<u64>();
        let delivered = all.iter().filter_map(|i| i.delivered).sum::<u64>();
        same(&last.name, "isb_filteraccept", accepted, capture.received)?;
        same(
            &last.name,
            "isb_usrdeliv",
            delivered,
            capture.received - sum(&capture.dropped_by_kernel),
        )?;
        let received = all.iter().filter_map(|i| i.received).sum::<u64>();
        same(
            &last.name,
            "isb_ifrecv",
            received,
            capture.arrived.unwrap_or(0).max(capture.received),
        )?;
    }
    Ok(())
}

/// Compares the file with capinfos' output, if Wireshark's tools are installed and can read such
/// files.
fn same_by_capinfos(file: &squall::report::CaptureFile) -> Outcome {
    let reported =
        std::process::Command::new("capinfos").args(["-c", "-M", "-T", "-r", &file.name]).output();
    let reported =
        reported.ok().filter(|reported| reported.status.success() && !file.name.ends_with("lz4"));
    let count =
        |text: &str| text.trim().rsplit('\t').next().and_then(|count| count.parse::<u64>().ok());
    match reported.and_then(|reported| count(&String::from_utf8_lossy(&reported.stdout))) {
        Some(packets) => same(&file.name, "packets by capinfos", packets, file.packets),
        None => Ok(()),
    }
}

/// The only worker is busy sending, so the ring is not read meanwhile.
fn a_full_ring() -> Outcome {
    enter(AF_PACKET)?;
    let folder = Folder::new()?;
    let text = "[ports]\nA = \"af_packet:veth-a\"\nB = \
                \"af_packet:veth-b,block=4096,blocks=2\"\n[[stream]]\nport = \"A\"\npacket = \
                \"eth/ipv4/udp\"\nsize = 100\nrate = \"max\"\nmode = { burst = 200_000 }\n";
    let way = Way { suffix: "pcapng", ..Way::default() };
    let report = run(capturing(Session::new(parse(text)?), capture(&folder, way)))?;
    let capture = report.capture.as_ref().ok_or("nothing was captured")?;
    same("a full ring", "received", capture.received, report.ports[0].tx.packets)?;
    same("a full ring", "accepted", capture.accepted, Some(capture.received))?;
    same("a full ring", "arrived", capture.arrived, Some(capture.received))?;
    same(
        "a full ring",
        "it loses",
        capture.dropped_by_kernel.get("ring_full").is_some_and(|n| *n > 0),
        true,
    )?;
    agrees("a full ring", capture)
}

fn gso_frames() -> Outcome {
    enter(AF_PACKET)?;
    let folder = Folder::new()?;
    let text = "[ports]\nA = \"af_packet:veth-a\"\nB = \"af_packet:veth-b\"\n[[stream]]\nport = \
                \"A\"\npacket = \"eth/ipv4/tcp(flags=PA)/payload(random)\"\nsize = 58458\nsegment \
                = 1460\nrate = \"5000 pps\"\nmode = { burst = 200 }\n";
    for (gso_frames, received) in [("cut", 200 * 40), ("keep", 200)] {
        let mut capture = capture(&folder, Way { suffix: "pcapng", ..Way::default() });
        capture.gso_frames = Some(gso_frames.into());
        let report = run(capturing(Session::new(parse(text)?), capture))?;
        let capture = report.capture.as_ref().ok_or("nothing was captured")?;
        let name = gso_frames.to_owned();
        same(&name, "sent", report.ports[0].tx.packets, 200 * 40)?;
        same(&name, "accepted", capture.accepted, Some(200))?;
        same(&name, "received", capture.received, received)?;
        agrees(&name, capture)?;
    }
    Ok(())
}

/// A sender that bypasses the queueing discipline is refused, and the error names it; a sender that
/// uses it is captured.
fn with_a_local_sender() -> Outcome {
    enter(AF_PACKET)?;
    let folder = Folder::new()?;
    let listen = |direction: &str| -> Result<Session, Box<dyn Error>> {
        let capture = capture(&folder, Way { suffix: "pcapng", ..Way::default() });
        let address = format!("af_packet:veth-a,direction={direction}");
        Ok(Session {
            options: squall::RunOptions {
                cores: Some(1),
                capture: Some(capture),
                ..Default::default()
            },
            ..Session::new(squall_machine::ports::listening(&[address])?)
        })
    };
    let sender = || -> Result<_, Box<dyn Error>> {
        let text = "[ports]\nA = \"af_packet:veth-a\"\n[[stream]]\npacket = \
                    \"eth/ipv4/udp\"\nrate = \"100 pps\"\n";
        Ok(Session {
            options: squall::RunOptions { cores: Some(1), ..Default::default() },
            ..Session::new(parse(text)?)
        }
        .open()?
        .start()?)
    };
    let run = sender()?;
    for direction in ["both", "out"] {
        let refused = listen(direction)?
            .open()
            .map(drop)
            .expect_err("its frames would be missing")
            .to_string();
        same(
            direction,
            "hint",
            refused.contains("sends on veth-a") && refused.contains("bypass=0"),
            true,
        )?;
    }
    listen("in")?.open()?;
    run.stop();
    run.finish()?;
    // The sender has ended, so the capture can begin.
    listen("both")?.open()?;
    Ok(())
}

/// Frames on one port begin with an Ethernet header, those on the other with a Linux cooked header.
fn different_links() -> Outcome {
    enter(AF_PACKET)?;
    let with_any = || -> Result<Session, Box<dyn Error>> {
        let mut profile = profile("af_packet:veth-a", Some("af_packet:veth-b"))?;
        let mut any = profile.ports[1].clone();
        (any.name, any.address) = ("C".into(), "af_packet:any".into());
        profile.ports.push(any);
        Ok(Session::new(profile))
    };
    let mut session = with_any()?;
    session.options.received_flows = Some(ReceivedFlows::Measured(true));
    let report = run(session)?;
    let flows = &report.received_flows.as_ref().ok_or("no flows were looked at")?.flows;
    for port in ["B", "C"] {
        let mut found: Vec<_> = flows
            .iter()
            .filter(|f| f.port == port)
            .map(|f| (f.src_port, f.dst_port, f.packets))
            .collect();
        found.sort_unstable();
        let expected =
            [(1, 9), (2, 10), (3, 9), (4, 9)].map(|(src, dst)| (Some(src), Some(dst), EACH));
        same(port, "flows", found, expected.to_vec())?;
    }

    let folder = Folder::new()?;
    let mut of_both = capture(&folder, Way { suffix: "pcapng", ..Way::default() });
    of_both.trigger = Some("udp dst port 10".into());
    of_both.pre_trigger = Some(Time::from_secs(60));
    let mut session = capturing(with_any()?, of_both);
    // Only the port for all interfaces sees the trigger.
    session.profile.ports.remove(1);
    let report = run(session)?;
    let capture = report.capture.as_ref().ok_or("nothing was captured")?;
    same("any", "triggered", capture.triggered.is_some(), true)?;
    same("any", "written", capture.written_packets, 4 * EACH)?;
    agrees("any", capture)
}

fn samples() -> Outcome {
    let folder = Folder::new()?;
    let capture = capture(&folder, Way { suffix: "pcapng", ..Way::default() });
    let session = capturing(Session::new(profile(LOOP.sender, Some(LOOP.receiver))?), capture);
    let mut run = Session {
        options: squall::RunOptions { cores: Some(1), ..session.options.clone() },
        ..session
    }
    .open()?
    .start()?;
    while !run.wait(Duration::from_millis(20)) {}
    // The last frames are written to the file within 100 ms.
    let deadline = Instant::now() + Duration::from_secs(60);
    let (mut rates, mut written) = (0, 0);
    while written < 4 * EACH && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
        let (sample, report) = run.sample();
        let captured = sample.capture.ok_or("a sample of a capture says nothing of it")?;
        let before = std::mem::replace(
            &mut written,
            report.capture.map_or(0, |capture| capture.written_packets),
        );
        same(
            "a sample",
            "has a rate",
            captured.written_pps > 0.0 && captured.written_bps > 0.0,
            written > before,
        )?;
        same(
            "a sample",
            "dropped",
            (captured.dropped_by_kernel, captured.dropped, captured.files),
            (0, 0, 1),
        )?;
        rates += u64::from(written > before);
    }
    same("samples", "written", written, 4 * EACH)?;
    same("samples", "one saw it", rates > 0, true)?;
    let report = run.finish()?;
    same(
        "the report",
        "samples",
        report.series.iter().all(|sample| sample.capture.is_some()),
        true,
    )?;
    agrees("the report", report.capture.as_ref().ok_or("nothing was captured")?)
}

fn main() -> ExitCode {
    harness::main(TESTS)
}

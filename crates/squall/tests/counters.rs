//! The counter matrix: every kind of port, in every mode, at several rates. The number of frames
//! sent equals the number that the interface counted, and the number received; if frames are lost,
//! a counter has their number and reason. Also tests the golden profiles: the frames in
//! tests/golden arrive on every kind of port, on real time as on virtual time.
//!
//! Each test runs in its own process, because a process may only enter a private network while it
//! has one thread.

mod harness;

use std::{collections::BTreeMap, error::Error, fs, path::Path, process::ExitCode, time::Duration};

use harness::{Outcome, Skipped, Test, same};
use squall::{
    Format, Profile, Session,
    report::{KnownBy, ReasonCode, Report},
};
use squall_machine::kinds::Wanted;

const TESTS: &[(&str, Test)] = &[
    ("null_takes_what_is_due", || matrix(&NULL)),
    ("a_loop_delivers_what_it_takes", || matrix(&LOOP)),
    ("a_loop_on_virtual_time_does_so_exactly", || matrix(&VIRTUAL_LOOP)),
    ("a_capture_has_what_was_sent", || matrix(&PCAP)),
    ("af_packet_counts_what_the_interface_counts", || matrix(&AF_PACKET)),
    ("golden_frames_arrive_over_a_loop", || golden(&LOOP)),
    ("golden_frames_arrive_in_a_capture", || golden(&PCAP)),
    ("golden_frames_arrive_over_af_packet", || golden(&AF_PACKET)),
    ("af_xdp_counts_what_the_interface_counts", || matrix(&AF_XDP)),
    ("golden_frames_arrive_over_af_xdp", || golden(&AF_XDP)),
    ("golden_frames_arrive_over_xdp_live", || golden(&XDP_LIVE)),
    ("dpdk_rings_deliver_what_they_take", || matrix(&DPDK_RING)),
    ("golden_frames_arrive_over_a_ring_of_dpdk", || golden(&DPDK_RING)),
    ("golden_frames_arrive_over_a_tap_of_dpdk", || golden(&DPDK_TAP)),
    ("gso_frames_count_as_what_they_become", gso_frames),
    ("xdp_live_counts_what_the_interface_counts", || matrix(&XDP_LIVE)),
    ("what_the_kernel_makes_at_full_speed_a_program_on_the_peer_counts", live_at_full_speed),
    ("frames_made_in_the_kernel_pause_change_their_rate_and_stop", live_control),
    (
        "a_rate_that_workers_cannot_share_in_the_kernel_is_refused_and_nothing_changes",
        live_shared_rate,
    ),
    ("a_peer_that_does_not_poll_is_told_with_what_to_do", live_without_napi),
    ("marked_frames_are_counted_over_af_packet", || marked(&AF_PACKET)),
    ("marked_frames_are_counted_over_af_xdp", || marked(&AF_XDP)),
    ("marked_frames_that_the_kernel_makes_are_counted", || marked(&XDP_LIVE)),
    ("marked_frames_that_a_port_leaves_to_the_host_are_refused", marked_and_unseen),
    ("what_a_loop_loses_on_purpose_is_explained", faults),
    ("what_af_packet_loses_on_purpose_is_no_difference_of_counters", faults_on_an_interface),
    ("a_full_receiver_over_af_packet_is_named", a_full_receiver_over_af_packet_is_named),
    ("a_run_stops_at_its_packets_octets_or_duration", stops),
    ("two_ports_share_a_count_in_the_order_of_time", two_ports_share_a_count_in_the_order_of_time),
];

/// A row of the matrix: a sending port with a receiving port.
struct Link {
    sender: &'static str,
    to: To,
    /// Whether it connects the two interfaces of a private lab.
    lab: bool,
    needs: Needs,
    /// Whether the sender cannot carry some profiles, and reports that.
    partly: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum To {
    Nowhere,
    /// Frames go into a file. The address is completed with its name.
    File,
    /// The sending port receives its own frames.
    Itself,
    Port(&'static str),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Needs {
    Nothing,
    /// Permission to load BPF programs.
    Bpf,
    /// The C shim and DPDK.
    Dpdk,
}

const NULL: Link =
    Link { sender: "null:", to: To::Nowhere, lab: false, needs: Needs::Nothing, partly: false };
const PCAP: Link =
    Link { sender: "pcap:", to: To::File, lab: false, needs: Needs::Nothing, partly: false };
const LOOP: Link = Link {
    sender: "loop:matrix",
    to: To::Port("loop:matrix"),
    lab: false,
    needs: Needs::Nothing,
    partly: false,
};
const VIRTUAL_LOOP: Link = Link {
    sender: "loop:matrix,virtual",
    to: To::Port("loop:matrix,virtual"),
    lab: false,
    needs: Needs::Nothing,
    partly: false,
};
const AF_PACKET: Link = Link {
    sender: "af_packet:veth-a",
    to: To::Port("af_packet:veth-b"),
    lab: true,
    needs: Needs::Nothing,
    partly: false,
};
/// Without `take`, frames to other addresses are left to the host.
const AF_XDP: Link = Link {
    sender: "af_xdp:veth-a",
    to: To::Port("af_xdp:veth-b,take=all,ring=32768"),
    lab: true,
    needs: Needs::Bpf,
    partly: false,
};
/// The receiver's XDP program makes the peer poll. Nothing limits the sender, so this link is not
/// tested at the full rate.
const XDP_LIVE: Link = Link {
    sender: "xdp_live:veth-a",
    to: To::Port("af_xdp:veth-b,take=all,ring=32768"),
    lab: true,
    needs: Needs::Bpf,
    partly: true,
};
const DPDK_RING: Link = Link {
    sender: "dpdk:vdev=net_ring0,mtu=9216",
    to: To::Itself,
    lab: false,
    needs: Needs::Dpdk,
    partly: false,
};
/// Accepts frames of at most 1522 octets.
const DPDK_TAP: Link = Link {
    sender: "dpdk:vdev=net_tap0;iface=sqtap0",
    to: To::Port("af_packet:sqtap0"),
    lab: true,
    needs: Needs::Dpdk,
    partly: true,
};

impl Link {
    /// Enters the lab if the link needs one. Returns the sender's address.
    fn enter(&self) -> Result<String, Box<dyn Error>> {
        if self.lab {
            squall_port_linux::lab::enter_private(&squall_port_linux::lab::LabOptions::default())?;
        }
        match self.needs {
            Needs::Nothing => {}
            Needs::Bpf => {
                squall_port_linux::Permissions::of_this_process().xdp_programs().map_err(Skipped)?
            }
            Needs::Dpdk => {
                let opened = squall_machine::ports::open(self.sender, Wanted::default());
                opened.map(drop).map_err(|why| Skipped(one_line(&why)))?;
            }
        }
        let file =
            std::env::temp_dir().join(format!("squall-counters-{}.pcap", std::process::id()));
        Ok(if self.is_file() { format!("pcap:{}", file.display()) } else { self.sender.to_owned() })
    }

    fn is_file(&self) -> bool {
        self.to == To::File
    }

    /// The address of the receiving port, if it is a separate port.
    fn receiver(&self) -> Option<&'static str> {
        if let To::Port(address) = self.to { Some(address) } else { None }
    }

    fn receives(&self) -> bool {
        matches!(self.to, To::Port(_) | To::Itself)
    }
}

/// Reads the file that was written at `address`, then removes it.
fn read_back(address: &str) -> Result<Report, Box<dyn Error>> {
    let listened = Session::new(Profile::listening([("A", format!("{address},read"))]));
    let read = run_session(Session {
        options: squall::RunOptions {
            clock: Some(squall_options::Clock::Virtual),
            linger: Some(Default::default()),
            ..listened.options.clone()
        },
        ..listened
    })?;
    fs::remove_file(address.trim_start_matches("pcap:"))?;
    Ok(read)
}

/// (name, stream keys, number of frames at 100 pps, 10 kpps and max); 0: as many as fit into the
/// duration.
const MODES: [(&str, [u64; 3]); 4] = [
    ("continuous", [20, 3000, 0]),
    ("burst", [20, 3000, 50_000]),
    ("bursts", [20, 3000, 50_000]),
    ("chain", [20, 3000, 50_000]),
];
const RATES: [&str; 3] = ["100 pps", "10 kpps", "max"];

fn matrix(link: &Link) -> Outcome {
    let sender = link.enter()?;
    for (mode, counts) in MODES {
        for (rate, count) in RATES.into_iter().zip(counts) {
            let name = format!("{sender}, {mode}, {rate}");
            if sender.starts_with("xdp_live") && rate == "max" {
                continue;
            }
            let report = match run(&profile(mode, rate, count, &sender, link.receiver()), None) {
                Err(error) if link.partly && error.is::<squall::Error>() => {
                    println!("{name}: not there: {}", one_line(&*error));
                    continue;
                }
                report => report?,
            };
            check(&report, &name, count, link.receives())?;
            if link.is_file() {
                let read = read_back(&sender)?;
                let (tx, rx) = (&report.ports[0].tx, &read.ports[0].rx);
                same(
                    &name,
                    "frames in the file",
                    (rx.packets, rx.octets),
                    (tx.packets, tx.octets),
                )?;
                same(&name, "their octets", &rx.fingerprint, &tx.fingerprint)?;
            }
        }
    }
    Ok(())
}

/// Tests that the frames of each golden profile, as received at the end of the link, equal those
/// sent to a null port on virtual time. Signatures contain the departure time, which differs
/// between runs; for streams with signatures, received frames must equal sent ones instead.
fn golden(link: &Link) -> Outcome {
    let sender = link.enter()?;
    let folder =
        fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden"))?;
    let mut profiles: Vec<_> =
        fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    profiles.retain(|path| path.extension().is_some_and(|suffix| suffix == "toml"));
    profiles.sort();
    same("tests/golden", "profiles are there", profiles.len() >= 12, true)?;
    let all = profiles.len();
    let mut sent = 0;
    for path in profiles {
        let name = format!("{}, {sender}", path.file_name().unwrap_or_default().display());
        let signed = Profile::load(&path)?;
        let mut bare = signed.clone();
        bare.streams.iter_mut().for_each(|stream| stream.latency = false);
        let report = match run_golden(link, &sender, &bare) {
            Err(error) if link.partly && error.is::<squall::Error>() => {
                println!("{name}: not there: {}", one_line(&*error));
                continue;
            }
            report => report?,
        };
        let mut on_paper = bare.clone();
        on_paper.ports[0].address = "null:virtual".into();
        let on_paper = run_session(Session {
            options: squall::RunOptions {
                clock: Some(squall_options::Clock::Virtual),
                ..Default::default()
            },
            ..Session::new(on_paper)
        })?;
        check_golden(&name, &report, Some(&on_paper))?;
        if bare != signed {
            check_golden(&name, &run_golden(link, &sender, &signed)?, None)?;
        }
        sent += 1;
    }
    println!("{sender}: {sent} of {all} profiles arrived as they are on paper");
    same(&sender, "some profile can be sent", sent > 0, true)
}

fn one_line(error: &dyn Error) -> String {
    error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The report of the sending port, with the frames received at the other end.
fn run_golden(link: &Link, sender: &str, profile: &Profile) -> Result<Report, Box<dyn Error>> {
    let mut profile = profile.clone();
    profile.ports[0].address = sender.to_owned();
    if let Some(receiver) = link.receiver() {
        let mut other = profile.ports[0].clone();
        (other.name, other.address) = ("receiver".into(), receiver.into());
        profile.ports.push(other);
    }
    let mut report = run_session(Session::new(profile.clone()))?;
    // A machine that is preempted at the end of the run leaves frames unsent and reports that, so
    // try again.
    for _ in 0..3 {
        let late = report.ports[0].tx.not_sent.contains_key("late");
        if !late || !report.verdict.reasons.iter().any(|reason| is_bound(reason.code)) {
            break;
        }
        println!("{sender}: once more: {:?}", report.verdict.reasons);
        report = run_session(Session::new(profile.clone()))?;
    }
    if link.is_file() {
        report.ports[0].rx = read_back(sender)?.ports[0].rx.clone();
    }
    Ok(report)
}

fn check_golden(name: &str, report: &Report, on_paper: Option<&Report>) -> Outcome {
    let (tx, rx) = (&report.ports[0].tx, &report.ports.last().ok_or("no port")?.rx);
    same(name, "not sent", tx.not_sent.values().sum::<u64>(), 0)?;
    same(name, "received", (rx.packets, rx.octets), (tx.packets, tx.octets))?;
    same_hash(name, report)?;
    for (stream, seen) in report.streams.iter().filter_map(|s| Some((s, s.rx.as_ref()?))) {
        let of = format!("{name}, stream {}", stream.name);
        let found = (seen.packets, seen.lost, seen.duplicates, seen.reordered);
        same(&of, "received, lost, duplicates, reordered", found, (stream.tx_packets, 0, 0, 0))?;
    }
    let Some(on_paper) = on_paper else { return Ok(()) };
    let counts = |r: &Report| -> Vec<_> {
        r.streams.iter().map(|s| (s.name.clone(), s.tx_packets, s.tx_octets)).collect()
    };
    same(name, "frames of each stream", counts(report), counts(on_paper))?;
    same(name, "fingerprint on paper", &rx.fingerprint, &on_paper.ports[0].tx.fingerprint)
}

fn profile(mode: &str, rate: &str, count: u64, sender: &str, receiver: Option<&str>) -> String {
    let stream = |name: &str, more: String| {
        format!(
            "[[stream]]\nname = \"{name}\"\nport = \"A\"\npacket = \"eth/ipv4/udp\"\nsize = \
             100\nrate = \"{rate}\"\nlatency = true\n{more}\n"
        )
    };
    let streams = match mode {
        "continuous" => stream("one", String::new()),
        "burst" => stream("one", format!("mode = {{ burst = {count} }}")),
        "bursts" => stream(
            "one",
            format!("mode = {{ bursts = 4, packets = {}, gap = \"2 ms\" }}", count / 4),
        ),
        _ => {
            let half = format!("mode = {{ burst = {} }}\n", count / 2);
            stream("one", format!("{half}next = \"two\""))
                + &stream("two", half + "self_start = false")
        }
    };
    let duration = match (mode, rate) {
        ("continuous", "100 pps") => "duration = \"200 ms\"\n",
        ("continuous", "10 kpps") => "duration = \"300 ms\"\n",
        ("continuous", _) => "duration = \"150 ms\"\n",
        _ => "",
    };
    let receiver = receiver.map_or(String::new(), |address| format!("B = \"{address}\"\n"));
    format!("{duration}[ports]\nA = \"{sender}\"\n{receiver}{streams}")
}

fn run(text: &str, cores: impl Into<Option<usize>>) -> Result<Report, Box<dyn Error>> {
    let profile =
        Profile::parse(text, "matrix.toml", Format::Toml).map_err(|e| format!("{e}\n{text}"))?;
    run_session(Session {
        options: squall::RunOptions { cores: cores.into(), ..Default::default() },
        ..Session::new(profile)
    })
}

fn run_session(session: Session) -> Result<Report, Box<dyn Error>> {
    let session = Session {
        options: squall::RunOptions {
            fingerprint: Some(true),
            linger: session.options.linger.or(Some(squall_options::Time::from_millis(30))),
            ..session.options.clone()
        },
        ..session
    };
    let mut run = session.open()?.start()?;
    if run.plan().streams.is_empty() {
        run.wait(Duration::from_millis(20));
        run.stop();
    }
    Ok(run.finish()?)
}

/// Asserts that all due frames were sent, counted by the interface, and received.
fn check(report: &Report, name: &str, count: u64, received: bool) -> Outcome {
    let tx = &report.ports[0].tx;
    let not_sent: u64 = tx.not_sent.values().sum();
    if count > 0 {
        // On a busy machine, a timed run may end late. It counts the frames that were due in that
        // time.
        same(name, "sent and not sent", tx.packets + not_sent, count)?;
    } else if tx.packets == 0 {
        return Err(format!("{name}: nothing was sent").into());
    }
    same(name, "octets", tx.octets, tx.packets * 100)?;
    same(
        name,
        "sum of the streams",
        report.streams.iter().map(|s| s.tx_packets).sum(),
        tx.packets,
    )?;
    same(name, "errors", tx.errors, 0)?;
    let differ: Vec<_> = report.verdict.reasons.iter().filter(|r| !is_bound(r.code)).collect();
    same(name, "the verdict's reasons", differ, Vec::new())?;
    if received {
        let rx = &report.ports.last().expect("a port receives").rx;
        same(name, "received", (rx.packets, rx.octets), (tx.packets, tx.octets))?;
        same_hash(name, report)?;
        for stream in report.streams.iter().filter(|s| s.tx_packets > 0) {
            let seen = stream
                .rx
                .as_ref()
                .ok_or_else(|| format!("{name}: stream {} was not seen", stream.name))?;
            let of = format!("{name}, stream {}", stream.name);
            same(&of, "packets", seen.packets, stream.tx_packets)?;
            same(
                &of,
                "lost, duplicates, reordered",
                (seen.lost, seen.duplicates, seen.reordered),
                (0, 0, 0),
            )?;
        }
    }
    for port in &report.ports {
        if let Some(interface) = &port.interface {
            same(name, "the interface's surplus", port.interface_surplus(), Some((0, 0)))?;
            // Octets without FCS. If an XDP program takes the frames, veth counts only octets after
            // the Ethernet header. A DPDK ring counts no octets.
            let octets = port.tx.octets - 4 * port.tx.packets;
            let after_header = octets - 14 * port.tx.packets;
            let counted = match interface.tx_octets {
                of_packets if name.contains("xdp") && of_packets == after_header => octets,
                0 if name.contains("net_ring") => octets,
                counted => counted,
            };
            same(name, "the interface's octets", counted, octets)?;
        }
    }
    Ok(())
}

/// Asserts that received and sent frames have the same hash. Frames that the kernel generates are
/// not hashed.
fn same_hash(name: &str, report: &Report) -> Outcome {
    let (tx, rx) = (
        &report.ports[0].tx.fingerprint,
        &report.ports.last().expect("a port receives").rx.fingerprint,
    );
    if tx.is_none() && name.contains("xdp_live") {
        return Ok(());
    }
    same(name, "fingerprint", rx, tx)
}

/// Whether this reason can only be due to a busy machine.
fn is_bound(code: ReasonCode) -> bool {
    matches!(
        code,
        ReasonCode::GeneratorBound
            | ReasonCode::PortBound
            | ReasonCode::Starved
            | ReasonCode::Burst
    )
}

/// GSO frames on every kind of port: frames on the wire are counted at the requested rate, each
/// with its octets. A veth passes GSO frames on whole and counts them as such.
fn gso_frames() -> Outcome {
    squall_port_linux::lab::enter_private(&squall_port_linux::lab::LabOptions::default())?;
    const TCP: &str = "eth/ipv4/tcp(flags=PA)/payload(random)";
    // (packet, stream keys, number of GSO frames, segments per GSO frame, octets per GSO frame on
    // the wire)
    let cases = [
        (
            TCP,
            "size = 58458\nsegment = 1460\nmode = { burst = 300 }\nrate = \"max\"",
            300,
            40,
            40 * 1518,
        ),
        (
            TCP,
            "size = 10000\nsegment = 1460\nmode = { burst = 70 }\nrate = \"70 kpps\"",
            70,
            7,
            10_000 + 6 * 58,
        ),
        (
            "eth/ipv6/udp",
            "size = 1217\nsegment = 18\nmode = { burst = 50 }\nrate = \"max\"",
            50,
            64,
            1217 + 63 * 66,
        ),
        // By default, a frame has as many segments as fit.
        (
            "eth/vlan(id=3)/ipv4/tcp",
            "segment = 1000\nmode = { burst = 20 }\nrate = \"1 Gbps\"",
            20,
            65,
            65 * 1062,
        ),
    ];
    for (packet, more, gso, each, octets) in cases {
        let mut prints = Vec::new();
        for (sender, receiver, offloaded) in [
            ("null:", None, false),
            ("loop:gso", Some("loop:gso"), false),
            ("loop:gso,virtual,ring=70", Some("loop:gso,virtual,ring=70"), false),
            ("af_packet:veth-a", Some("af_packet:veth-b"), true),
        ] {
            let name = format!("{sender}, {packet}, {more}");
            let receiver_line =
                receiver.map_or(String::new(), |address| format!("B = \"{address}\"\n"));
            let text = format!(
                "[ports]\nA = \"{sender}\"\n{receiver_line}[[stream]]\nport = \"A\"\npacket = \
                 \"{packet}\"\n{more}\n"
            );
            let report = run(&text, None)?;
            let (tx, stream) = (&report.ports[0].tx, &report.streams[0]);
            same(&name, "sent", (tx.packets, tx.octets), (gso * each, gso * octets))?;
            same(
                &name,
                "of the stream",
                (stream.tx_packets, stream.tx_octets),
                (tx.packets, tx.octets),
            )?;
            same(&name, "GSO frames", (tx.gso_frames, tx.segments), (gso, tx.packets))?;
            same(&name, "not sent", tx.not_sent.len(), 0)?;
            let differ: Vec<_> = report
                .verdict
                .reasons
                .iter()
                .filter(|r| format!("{r:?}").contains("ounters"))
                .collect();
            same(&name, "the verdict's reasons", differ.len(), 0)?;
            if sender.contains("virtual")
                && let Some(error) = stream.rate_error()
            {
                same(&name, "the rate is off by a millionth", error.abs() < 1e-6, true)?;
            }
            if receiver.is_some() {
                let rx = &report.ports[1].rx;
                same(&name, "received", (rx.packets, rx.octets), (tx.packets, tx.octets))?;
                same(&name, "fingerprint", &rx.fingerprint, &tx.fingerprint)?;
                same(&name, "whole", rx.gso_frames, if offloaded { gso } else { 0 })?;
            }
            for port in report.ports.iter().filter(|port| port.interface.is_some()) {
                same(&name, "the interface's surplus", port.interface_surplus(), Some((0, 0)))?;
            }
            prints.push(tx.fingerprint.clone());
        }
        prints.dedup();
        same(packet, "fingerprints over all ports", prints.len(), 1)?;
    }
    Ok(())
}

/// Several streams with different lengths, with and without gaps, sent by one worker and by two.
fn live_at_full_speed() -> Outcome {
    XDP_LIVE.enter()?;
    let stream = |size: &str, more: &str| {
        format!("[[stream]]\nport = \"A\"\npacket = \"eth/ipv4/udp\"\nsize = {size}\n{more}\n")
    };
    let streams = stream("64", "rate = \"max\"")
        + &stream("[64, 594, 1518]", "rate = \"20 kpps\"")
        + &stream("1518", "rate = \"max\"\nmode = { burst = 1000 }");
    // The run is long enough to survive a preemption of some tenths of a second. If a burst without
    // gaps has not left when the time is over, no counter has it.
    for cores in [1, 2] {
        let sink = squall_port_linux::sink::Sink::attach("veth-b", false)?;
        let report = run(
            &format!("duration = \"1 s\"\n[ports]\nA = \"xdp_live:veth-a\"\n{streams}"),
            cores,
        )?;
        let tx = &report.ports[0].tx;
        // The kernel may hand over the last frames in a thread that waits for a CPU.
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while sink.seen().frames < tx.packets && std::time::Instant::now() < until {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let seen = sink.seen();
        let name = format!("xdp_live on {cores} workers");
        same(
            &name,
            "at the peer",
            (seen.frames, seen.octets),
            (tx.packets, tx.octets - 4 * tx.packets),
        )?;
        same(&name, "of the burst", report.streams[2].tx_packets + unsent(&report, 2), 1000)?;
        same(
            &name,
            "of the paced stream",
            report.streams[1].tx_packets + unsent(&report, 1),
            20_000,
        )?;
        same(&name, "of the whole", tx.packets, report.streams.iter().map(|s| s.tx_packets).sum())?;
        if report.streams[0].tx_packets < 1000 {
            return Err(
                format!("{name}: {} frames without gaps", report.streams[0].tx_packets).into()
            );
        }
    }
    Ok(())
}

/// Frames that have a mark and no signature. Two workers share the first stream.
fn marked(link: &Link) -> Outcome {
    let sender = link.enter()?;
    let stream = |name: &str, packet: &str, rate: &str, group: u32| {
        format!(
            "[[stream]]\nname = \"{name}\"\nport = \"A\"\npacket = \"{packet}\"\nrate = \
             \"{rate}\"\nlate = \"catch-up\"\ntrex_group = {group}\n"
        )
    };
    let receiver = link.receiver().ok_or("a receiver")?;
    let text = format!("duration = \"200 ms\"\n[ports]\nA = \"{sender}\"\nB = \"{receiver}\"\n")
        + &stream("short", "eth/ipv4/tcp", "20 kpps", 0)
        + &stream("tagged", "eth/vlan/ipv4/tcp", "1 kpps", 300)
        + &stream("v6", "eth/ipv6/tcp", "1 kpps", 1022)
        + "[[stream]]\nname = \"plain\"\nport = \"A\"\npacket = \"eth/ipv4(id=0xff00)/tcp\"\nrate = \
           \"1 kpps\"\nlate = \"catch-up\"\n";
    let report = run(&text, 2)?;
    // Frames are late if the machine had no CPU at the end of the run.
    let late = |number: usize| report.streams[number].not_sent.get("late").copied().unwrap_or(0);
    for (number, due) in [4000, 200, 200].into_iter().enumerate() {
        let stream = &report.streams[number];
        let rx = stream.rx.as_ref().ok_or("counted")?;
        let name = format!("{sender}, {}", stream.name);
        same(&name, "sent and late", stream.tx_packets + late(number), due)?;
        let sent = (stream.tx_packets, stream.tx_octets);
        same(&name, "received", (rx.packets, rx.octets), sent)?;
        same(&name, "known by", rx.known_by, KnownBy::Mark)?;
        same(&name, "lost", (rx.lost, rx.duplicates), (0, 0))?;
    }
    let plain = report.streams[3].tx_packets;
    same(&sender, "of no stream, sent and late", plain + late(3), 200)?;
    same(&sender, "of no stream", report.ports[1].rx.unsigned_packets, plain)
}

/// A run whose marks the receiver cannot see is refused, because all of its frames would seem lost.
fn marked_and_unseen() -> Outcome {
    AF_XDP.enter()?;
    let text = "duration = \"10 ms\"\n[ports]\nA = \"af_packet:veth-a\"\nB = \"af_xdp:veth-b\"\n[[stream]]\n\
                name = \"short\"\nport = \"A\"\npacket = \"eth/ipv4/tcp\"\nrate = \"1 kpps\"\n";
    same("without a mark", "runs", run(text, None).is_ok(), true)?;
    let Err(why) = run(&format!("{text}trex_group = 1\n"), None) else {
        return Err("it was not refused".into());
    };
    let why = why.to_string();
    same(&why, "the reason", why.contains("try af_xdp:veth-b,take=all"), true)
}

fn unsent(report: &Report, stream: usize) -> u64 {
    report.streams[stream].not_sent.values().sum()
}

fn live_control() -> Outcome {
    XDP_LIVE.enter()?;
    let sink = squall_port_linux::sink::Sink::attach("veth-b", false)?;
    let text = "[ports]\nA = \"xdp_live:veth-a\"\n[[stream]]\nname = \"one\"\npacket = \
                \"eth/ipv4/udp\"\nrate = \"5 kpps\"\n";
    let parsed =
        |text: &str| Profile::parse(text, "live.toml", Format::Toml).map_err(|e| e.to_string());
    let mut run = Session::new(parsed(text)?).open()?.start()?;
    let wait = || std::thread::sleep(Duration::from_millis(120));
    wait();
    run.pause(Some("one"))?;
    // A worker that supervises a generator reads its mailbox only every 10 ms.
    wait();
    let (_, paused) = run.sample();
    wait();
    let (_, still) = run.sample();
    same("paused", "frames", still.ports[0].tx.packets, paused.ports[0].tx.packets)?;
    same("paused", "frames at the peer", sink.seen().frames, paused.ports[0].tx.packets)?;
    run.resume(None)?;
    wait();
    let (_, going) = run.sample();
    if going.ports[0].tx.packets <= still.ports[0].tx.packets {
        return Err("nothing left after the pause".into());
    }
    run.change(parsed(&text.replace("5 kpps", "20 kpps"))?)?;
    wait();
    run.stop();
    let report = run.finish()?;
    same("stopped", "frames at the peer", sink.seen().frames, report.ports[0].tx.packets)?;
    let late = report.streams[0].departure_error_ns.as_ref().ok_or("no departures")?;
    same("stopped", "departures", late.count, report.streams[0].tx_packets)
}

fn live_shared_rate() -> Outcome {
    XDP_LIVE.enter()?;
    let _sink = squall_port_linux::sink::Sink::attach("veth-b", false)?;
    let text = "[ports]\nA = \"xdp_live:veth-a\"\n[[stream]]\nname = \"one\"\npacket = \
                \"eth/ipv4/udp\"\nsize = [64, 1518]\nrate = \"2 kpps\"\n";
    let parsed =
        |text: &str| Profile::parse(text, "live.toml", Format::Toml).map_err(|e| e.to_string());
    let mut run = Session {
        options: squall::RunOptions { cores: Some(2), ..Default::default() },
        ..Session::new(parsed(text)?)
    }
    .open()?
    .start()?;
    let refused = run
        .change(parsed(&text.replace("2 kpps", "2 Mbps"))?)
        .map_err(|e| (e.exit_status(), e.to_string()));
    let is_named = matches!(&refused, Err((2, text)) if text.contains("frames per second"));
    same("two workers", "a remedy is named", is_named, true)?;
    run.change(parsed(&text.replace("2 kpps", "1 kpps"))?)?;
    std::thread::sleep(Duration::from_millis(300));
    run.stop();
    let report = run.finish()?;
    same("two workers", "rate at the end", report.streams[0].asked_pps, Some(1000.0))?;
    // 300 ms, of which some 50 ms pass before the kernel generates frames. A preempted machine
    // catches up.
    let most = report.duration_s * 2_000.0 + 2.0;
    same("two workers", "no more than asked", report.streams[0].tx_packets as f64 <= most, true)
}

fn live_without_napi() -> Outcome {
    XDP_LIVE.enter()?;
    let report = run(&profile("continuous", "10 kpps", 0, "xdp_live:veth-a", None), 1)?;
    let (tx, reasons) = (&report.ports[0].tx, format!("{:?}", report.verdict.reasons));
    same("without polling", "frames", tx.packets, 0)?;
    same(
        "without polling",
        "refused",
        tx.not_sent.get("interface_refused").is_some_and(|n| *n > 0),
        true,
    )?;
    same("without polling", "advice", reasons.contains("gro on"), true)?;
    // Streams that the port cannot carry are refused before the run begins.
    let text = "[ports]\nA = \"xdp_live:veth-a\"\n[[stream]]\npacket = \"eth/ipv4/udp\"\nrate = \
                \"1 kpps\"\ndepartures = \"poisson\"\n";
    let planned =
        Session::new(Profile::parse(text, "live.toml", Format::Toml).map_err(|e| e.to_string())?)
            .plan_only();
    let why = planned.err().ok_or("what cannot be made inside the kernel was planned")?.to_string();
    same(
        "planned",
        "advice",
        why.contains("gaps that are not constant") && why.contains("try "),
        true,
    )
}

/// Sends some 10,000 frames over a loop to the port itself with one impairment, and checks the
/// counters.
fn faults() -> Outcome {
    // The number is not a multiple of ten, so the last frame is not held back: it would have to
    // wait for a next frame, and never arrive.
    const FRAMES: u64 = 10_005;
    // (impairment, sent, refused, received by the port, lost, duplicates, reordered)
    let cases = [
        ("drop=1/10", FRAMES, 0, 9005, 1000, 0, 0),
        ("dup=1/10", FRAMES, 0, 11_005, 0, 1000, 0),
        ("reorder=1/10", FRAMES, 0, FRAMES, 0, 0, 1000),
        ("corrupt=1/10", FRAMES, 0, FRAMES, 0, 0, 0),
        ("full=1/10", FRAMES, 0, FRAMES, 0, 0, 0),
        ("refuse=1/10", 9005, 1000, 9005, 0, 0, 0),
        ("drop=1/10,dup=1/9,refuse=1/4", 7504, 2501, 7504, 750, 750, 0),
    ];
    for (fault, sent, refused, received, lost, duplicates, reordered) in cases {
        for clock in ["", ",virtual"] {
            let address = format!("loop:faulty,{fault}{clock}");
            let text = format!(
                "[ports]\nA = \"{address}\"\n[[stream]]\nname = \"one\"\npacket = \
                 \"eth/ipv4/udp\"\nsize = 64\nrate = \"1 Mpps\"\nmode = {{ burst = {FRAMES} \
                 }}\nlatency = true\n"
            );
            let report = run(&text, 1)?;
            let (port, stream) = (&report.ports[0], &report.streams[0]);
            let seen = stream.rx.as_ref().ok_or("nothing was seen")?;
            same(&address, "sent", port.tx.packets, sent)?;
            let reasons: BTreeMap<String, u64> =
                if refused > 0 { [("fault".to_owned(), refused)].into() } else { BTreeMap::new() };
            same(&address, "not sent", &port.tx.not_sent, &reasons)?;
            same(&address, "not sent of the stream", &stream.not_sent, &reasons.into())?;
            same(&address, "received", port.rx.packets, received)?;
            if fault.starts_with("corrupt") {
                // A frame counts as unsigned if the flipped bit is in its signature, and as signed
                // if it is in other octets.
                same(&address, "unsigned are lost", port.rx.unsigned_packets, seen.lost)?;
                // The signature has 16 of the 60 octets.
                if !(200..=330).contains(&seen.lost) {
                    return Err(
                        format!("{address}: {} of 1000 signatures were hit", seen.lost).into()
                    );
                }
            } else {
                same(&address, "unsigned", port.rx.unsigned_packets, 0)?;
                let found = (seen.lost, seen.duplicates, seen.reordered);
                same(
                    &address,
                    "lost, duplicates, reordered",
                    found,
                    (lost, duplicates, reordered),
                )?;
                same(&address, "loss ratio", (seen.loss_ratio * sent as f64).round() as u64, lost)?;
            }
            // Impairments of the network must not affect the verdict on the generator. On a busy
            // machine the generator may still be late.
            let mut reasons = report.verdict.reasons.clone();
            reasons.retain(|reason| !is_bound(reason.code));
            same(&address, "reasons", reasons.is_empty(), refused == 0)?;
            if refused > 0
                && !report
                    .verdict
                    .reasons
                    .iter()
                    .any(|r| r.text.contains(&format!("{refused} frames")))
            {
                return Err(
                    format!("{address}: the verdict says {:?}", report.verdict.reasons).into()
                );
            }
        }
    }
    partly_refused_gso_frames()
}

/// When a GSO frame is refused in part, exactly the segments that have left are counted.
fn partly_refused_gso_frames() -> Outcome {
    for faults in ["refuse=1/90", "refuse=1/90,full=1/7"] {
        for clock in ["", ",virtual"] {
            let address = format!("loop:refusing,ring=64,{faults}{clock}");
            let text = format!(
                "[ports]\nA = \"{address}\"\n[[stream]]\nport = \"A\"\npacket = \
                 \"eth/ipv4/tcp\"\nsize = 5898\nsegment = 1460\nmode = {{ burst = 500 }}\nrate = \
                 \"max\"\n"
            );
            let report = run(&text, 1)?;
            let (port, stream) = (&report.ports[0], &report.streams[0]);
            same(
                &address,
                "octets",
                (port.rx.packets, port.rx.octets),
                (port.tx.packets, port.tx.octets),
            )?;
            same(
                &address,
                "of the stream",
                (stream.tx_packets, stream.tx_octets),
                (port.tx.packets, port.tx.octets),
            )?;
            let refused = port.tx.not_sent.get("fault").copied().unwrap_or(0);
            same(&address, "sent and refused", port.tx.packets + refused, 500 * 4)?;
            same(&address, "some in their midst", refused > 0 && refused % 4 != 0, true)?;
            let unsent = port.tx.not_sent.clone();
            same(&address, "of the stream, not sent", &stream.not_sent, &unsent.into())?;
        }
    }
    Ok(())
}

/// The receiver has no errors if impairments remove or add frames that the kernel counted.
fn faults_on_an_interface() -> Outcome {
    squall_port_linux::lab::enter_private(&squall_port_linux::lab::LabOptions::default())?;
    for fault in ["drop=1/10", "dup=1/10", "drain=1kpps,buffer=8"] {
        let receiver = format!("af_packet:veth-b,{fault}");
        let text = profile("burst", "10 kpps", 1000, "af_packet:veth-a", Some(&receiver));
        let report = run(&text, 1)?;
        let port = &report.ports[1];
        same(fault, "frames changed in number", port.rx.packets != 1000, true)?;
        same(fault, "the interface's surplus", port.interface_surplus(), Some((0, 0)))?;
        let differ = report.verdict.reasons.iter().any(|r| r.code == ReasonCode::CountersDiffer);
        same(fault, "counters differ", differ, false)?;
    }
    Ok(())
}

/// A burst is not read, and the ring is too small for it. The kernel's drop counter has the
/// difference.
fn a_full_receiver_over_af_packet_is_named() -> Outcome {
    squall_port_linux::lab::enter_private(&squall_port_linux::lab::LabOptions::default())?;
    // A single worker that sends without pause is too late to receive some frames.
    let text = profile(
        "burst",
        "max",
        200_000,
        "af_packet:veth-a",
        Some("af_packet:veth-b,block=4096,blocks=2"),
    );
    let report = run(&text, 1)?;
    let (tx, rx) = (&report.ports[0].tx, &report.ports[1].rx);
    let drops: u64 = rx.drops.values().sum();
    same("a small ring", "sent", tx.packets, 200_000)?;
    same("a small ring", "received and dropped", rx.packets + drops, tx.packets)?;
    same(
        "a small ring",
        "the interface's surplus",
        report.ports[1].interface_surplus(),
        Some((0, 0)),
    )?;
    same("a small ring", "lost", report.streams[0].rx.as_ref().map_or(0, |rx| rx.lost), drops)?;
    if drops == 0 {
        return Err("the ring was not too small: the test proves nothing".into());
    }
    same("a small ring", "valid", report.verdict.valid, false)?;
    if !report
        .verdict
        .reasons
        .iter()
        .any(|r| r.code == ReasonCode::ReceiverBound && r.text.contains(&drops.to_string()))
    {
        return Err(format!("the verdict says {:?}", report.verdict.reasons).into());
    }
    Ok(())
}

/// Stop conditions are exact on real time too.
fn stops() -> Outcome {
    let stream =
        "[[stream]]\npacket = \"eth/ipv4/udp\"\nrate = \"50 kpps\"\nsize = [64, 100, 300]\n";
    for address in ["loop:stops", "loop:stops,virtual", "null:", "null:virtual"] {
        let run = |stop: &str, streams: &str| {
            run(&format!("{stop}\n[ports]\nA = \"{address}\"\n{streams}"), 1)
        };
        let report = run("packets = 777", stream)?;
        same(address, "packets", report.ports[0].tx.packets, 777)?;
        same(address, "not sent", report.ports[0].tx.not_sent.len(), 0)?;
        // 215 × 464 octets, then 64 and 100: the frame that reaches the count is the last.
        let report = run("octets = 99_900", stream)?;
        same(address, "octets", report.ports[0].tx.octets, 215 * 464 + 64 + 100)?;
        // Two streams share the total.
        let report = run("packets = 1001", &(stream.to_owned() + stream))?;
        same(address, "packets of two", report.ports[0].tx.packets, 1001)?;
        // Frames due from 0 to 99.99 ms are sent; one due exactly at the end is not.
        let report = run("duration = \"100 ms\"", &stream.replace("50 kpps", "9990 pps"))?;
        let tx = &report.ports[0].tx;
        same(address, "duration", tx.packets + tx.not_sent.values().sum::<u64>(), 999)?;
        // The run ends at the first limit that is reached.
        let report = run("duration = \"100 ms\"\npackets = 10", stream)?;
        same(address, "packets before the duration", report.ports[0].tx.packets, 10)?;
    }
    Ok(())
}

fn two_ports_share_a_count_in_the_order_of_time() -> Outcome {
    let stream = |port, rate| {
        format!("[[stream]]\nport = \"{port}\"\npacket = \"eth/ipv4/udp\"\nrate = \"{rate}\"\n")
    };
    for (end, counts) in [("packets = 1001", (1000, 1)), ("octets = 64192", (1001, 2))] {
        for cores in [1, 2] {
            let ports = "[ports]\nA = \"null:virtual\"\nB = \"null:virtual\"\n";
            let report = run(
                &format!("{end}\n{ports}{}{}", stream("A", "1 kpps"), stream("B", "1 pps")),
                cores,
            )?;
            same(end, "packets", (report.ports[0].tx.packets, report.ports[1].tx.packets), counts)?;
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    harness::main(TESTS)
}

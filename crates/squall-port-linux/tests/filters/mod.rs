//! Tests of filters in the kernel, directions, and interfaces that are not Ethernet.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    time::Duration,
};

use squall_bpf::classic;
use squall_port::{BATCH, Filter, RxQueue, Tags, TxQueue};
use squall_port_linux::filter::{FilterError, compile, mentions_vlan};
use squall_units::Nanos;
use squall_wire::Packet;

use super::{Outcome, Skipped, enter, port, receive, receive_frames, send, send_gso_frames};

/// Expressions for which the kernel sees other octets than a file has, and some for which it does
/// not.
const EXPRESSIONS: [&str; 29] = [
    "",
    "udp",
    "tcp",
    "ip",
    "ip6",
    "arp",
    "vlan",
    "vlan 5",
    "vlan 6",
    "vlan and udp",
    "vlan 5 and udp port 53",
    "vlan and vlan",
    "vlan 5 and vlan 6",
    "vlan and vlan and ip6",
    "not vlan",
    "udp or vlan",
    "not udp",
    "udp port 53",
    "udp port 54 or (vlan and udp port 54)",
    "ip[6:2] & 0x1fff != 0",
    "ip[6] & 0x20 != 0",
    "greater 199",
    "less 90",
    "ether[12:2] = 0x8100",
    "ether dst 02:00:00:00:00:09",
    "ip6 and udp",
    // With libpcap's optimizer, these would match no frame, all frames and no frame, respectively.
    "len >= 2147483648 & 2147483648 or len < 0 | 2147483648",
    "len <= 4294967295 & 2147483647 and len > 2147483647 + 0",
    "1/2=1/3&&1>4/5&&1>6/7",
];

fn traffic() -> Vec<Vec<u8>> {
    let tags = ["", "vlan(id=5)/", "vlan(id=6)/", "vlan(id=5)/vlan(id=6)/"];
    let rest = [
        "ipv4/udp(dport=53)",
        "ipv4/udp(dport=54)",
        "ipv4/tcp(dport=53)",
        "ipv6/udp(dport=53)",
        "ipv6/tcp",
        "arp",
    ];
    let mut frames = Vec::new();
    for tag in tags {
        for rest in rest {
            for len in [90, 99, 203] {
                let text = format!("eth(dst=02:00:00:00:00:09)/{tag}{rest}/payload(random)");
                let text = if rest == "arp" {
                    text.trim_end_matches("/payload(random)").to_owned()
                } else {
                    text
                };
                let packet = Packet::parse(&text).unwrap_or_else(|e| panic!("{text}: {e}"));
                let mut frame = packet
                    .build(Some(len), &|_| unreachable!(), len as u64)
                    .expect("it fits")
                    .bytes;
                let network = 14 + 4 * tag.matches('/').count();
                frames.push(frame.clone());
                if tag.matches('/').count() == 2 {
                    // The outer tag has the EtherType of IEEE 802.1ad.
                    frame[12..14].copy_from_slice(&[0x88, 0xa8]);
                    frames.push(frame.clone());
                }
                if rest.starts_with("ipv4") {
                    // The first fragment, and a later one.
                    for fragment in [[0x20, 0], [0, 100]] {
                        frame[network + 6..network + 8].copy_from_slice(&fragment);
                        frames.push(frame.clone());
                    }
                }
            }
        }
    }
    // A frame without IP, and one with a tag before a protocol that Linux does not know.
    frames.extend([
        [&[2; 12][..], &[0x88, 0xb5], &[7; 50]].concat(),
        [&[2; 12][..], &[0x81, 0, 0, 5, 9, 9], &[7; 50]].concat(),
    ]);
    frames
}

fn send_frames(tx: &mut dyn TxQueue, frames: &[Vec<u8>]) -> Outcome {
    for chunk in frames.chunks(BATCH) {
        let mut batch = tx.lend(chunk.len());
        for (i, octets) in chunk.iter().enumerate() {
            batch.frame(i, octets.len(), Nanos::ZERO).copy_from_slice(octets);
        }
        let mut left = chunk.len();
        while left > 0 {
            left -= tx.send(left)?;
        }
    }
    Ok(())
}

/// Compiles the filter in the same way as a session.
fn filter(
    expression: &str,
    link_type: u16,
    snaplen: u32,
) -> Result<Filter, Box<dyn std::error::Error>> {
    let program = match compile(expression, link_type, snaplen) {
        Err(FilterError::NoLibrary(why)) => return Err(Skipped(why).into()),
        other => other?,
    };
    let tags =
        if link_type == 1 && !mentions_vlan(expression) { Tags::Aside } else { Tags::InPlace };
    Ok(Filter { expression: expression.to_owned(), snaplen, program, tags })
}

struct Tcpdump(Child);

impl Tcpdump {
    /// Returns when tcpdump is listening.
    fn start(expression: &str) -> Result<Self, Box<dyn std::error::Error>> {
        let mut command = Command::new("tcpdump");
        command.args([
            "-O",
            "-i",
            "veth-b",
            "-Q",
            "in",
            "-n",
            "--immediate-mode",
            "-w",
            "/dev/null",
            expression,
        ]);
        if std::fs::read_to_string("/proc/self/status")?.contains("\nUid:\t0") {
            command.args(["-Z", "root"]);
        }
        let child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn();
        let mut child = child.map_err(|error| Skipped(format!("no tcpdump: {error}")))?;
        let mut lines = BufReader::new(child.stderr.as_mut().expect("piped"));
        let mut line = String::new();
        while !line.contains("listening on") {
            line.clear();
            if lines.read_line(&mut line)? == 0 {
                return Err(Skipped(format!("tcpdump {expression:?} does not listen")).into());
            }
        }
        Ok(Self(child))
    }

    /// Packets that the kernel's filter passed to it; on a busy machine tcpdump has not read all of
    /// them when it ends.
    fn end(mut self) -> Result<u64, Box<dyn std::error::Error>> {
        Command::new("kill").args(["-INT", &self.0.id().to_string()]).status()?;
        let lines = BufReader::new(self.0.stderr.take().expect("piped")).lines();
        let mut taken = None;
        for line in lines {
            if let Some((n, "received by filter")) = line?.split_once(" packets ") {
                taken = n.trim().parse().ok();
            }
        }
        self.0.wait()?;
        Ok(taken.ok_or("tcpdump says how many packets its filter took")?)
    }
}

/// Number of frames from `rx` that pass the filter; `left`: the filter, if the port left filtering
/// to the engine.
fn count(rx: &mut dyn RxQueue, left: Option<&Filter>) -> std::io::Result<u64> {
    let (mut n, mut silent) = (0, 0);
    while silent < 50 {
        let batch = rx.receive()?;
        n += batch
            .iter()
            .filter(|(o, f)| left.is_none_or(|filter| filter.keep(o, f.wire_len) > 0))
            .count() as u64;
        silent = if batch.frames.is_empty() { silent + 1 } else { 0 };
        if silent > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    Ok(n)
}

pub fn the_kernel_and_tcpdump_filter_alike() -> Outcome {
    enter()?;
    let frames = traffic();
    let mut tx = port("af_packet:veth-a")?.open_tx(0, 300)?;
    for expressions in EXPRESSIONS.chunks(9) {
        let mut listeners = Vec::new();
        for &expression in expressions {
            let filter = filter(expression, 1, 262_144)?;
            let mut b = port("af_packet:veth-b,blocks=4,block=128")?;
            assert!(b.set_filter(&filter)?, "the kernel filters");
            let kernel = b.open_rx(0)?;
            let user = port("af_packet:veth-b,blocks=4,block=128")?.open_rx(0)?;
            listeners.push((expression, filter, kernel, user, Tcpdump::start(expression)?));
        }
        send_frames(&mut *tx, &frames)?;
        std::thread::sleep(Duration::from_millis(100));
        for (expression, filter, mut kernel, mut user, tcpdump) in listeners {
            let (kernel, user, tcpdump) =
                (count(&mut *kernel, None)?, count(&mut *user, Some(&filter))?, tcpdump.end()?);
            assert_eq!(kernel, tcpdump, "{expression:?}: ours and tcpdump's");
            // A filter cannot see the tag, which the kernel has stripped; that case is tested
            // below.
            if expression != "ether[12:2] = 0x8100" {
                assert_eq!(user, tcpdump, "{expression:?}: in user space and tcpdump's");
            }
        }
    }
    Ok(())
}

pub fn the_engine_runs_programs_too_long_for_the_kernel() -> Outcome {
    enter()?;
    let frames = traffic();
    let mut tx = port("af_packet:veth-a")?.open_tx(0, 300)?;
    let chain = filter("ip protochain 17 or ip6 protochain 17", 1, 262_144)?;
    // A program with more instructions than BPF_MAXINSNS; it takes UDP over IPv4.
    let insn = |code, jt, jf, k| classic::Instruction { code, jt, jf, k };
    let mut long = vec![insn(0x04, 0, 0, 0); 5000];
    long.extend([
        insn(0x30, 0, 0, 23),
        insn(0x15, 0, 1, 17),
        insn(0x06, 0, 0, 300),
        insn(0x06, 0, 0, 0),
    ]);
    let long = Filter { program: classic::Filter::new(long)?, ..chain.clone() };
    // Tags are removed first. Later fragments lack the UDP header, but have its protocol number.
    let is_udp = |frame: &&Vec<u8>, versions: &[u8]| {
        let is_tag = |at: usize| matches!(frame[at..at + 2], [0x81, 0] | [0x88, 0xa8]);
        let at = if is_tag(12) { 18 } else { 14 };
        let version = frame[at] >> 4;
        !is_tag(at - 2)
            && versions.contains(&version)
            && frame[at + if version == 4 { 9 } else { 6 }] == 17
    };
    for (filter, versions) in [(chain, &[4, 6][..]), (long, &[4])] {
        let mut b = port("af_packet:veth-b,blocks=4,block=128")?;
        assert!(!b.set_filter(&filter)?, "left to the engine");
        let mut rx = b.open_rx(0)?;
        send_frames(&mut *tx, &frames)?;
        let expected = frames.iter().filter(|frame| is_udp(frame, versions)).count() as u64;
        assert!(expected > 0 && expected < frames.len() as u64);
        assert_eq!(count(&mut *rx, Some(&filter))?, expected);
    }
    Ok(())
}

pub fn a_filter_shortens_gso_frames_and_tagged_ones_alike() -> Outcome {
    enter()?;
    for snaplen in [20, 60, 100, 2000] {
        let mut b = port("af_packet:veth-b")?;
        assert!(b.set_filter(&Filter::all(snaplen))?);
        let mut cut = b.open_rx(0)?;
        let mut whole = port("af_packet:veth-b")?.open_rx(0)?;
        send_gso_frames(&mut *port("af_packet:veth-a")?.open_tx(0, 65_300)?)?;
        let (cut, whole) = (receive_frames(&mut *cut)?, receive_frames(&mut *whole)?);
        assert_eq!(cut.len(), whole.len());
        assert!(whole.iter().any(|(_, cut, _)| !cut.is_whole()), "there are GSO frames");
        for (cut, whole) in cut.iter().zip(&whole) {
            assert_eq!(
                (cut.1, cut.2),
                (whole.1, whole.2),
                "cut in the same way, of the same length"
            );
            let kept = whole.0.len().min(snaplen as usize);
            // If a frame lacks a checksum, both results lack it.
            assert!(cut.0 == whole.0[..kept], "the first {snaplen} octets, tags counted");
        }
    }
    Ok(())
}

pub fn filtered_queues_share_the_frames() -> Outcome {
    enter()?;
    // Blocks are partly filled if the sender waits for its CPU.
    let mut b = port("af_packet:veth-b,rx_queues=3,blocks=64")?;
    assert!(b.set_filter(&filter("udp and ip[15] & 1 = 1", 1, 262_144)?)?);
    let mut tx = port("af_packet:veth-a")?.open_tx(0, 60)?;
    // Frames arrive while the queues open one after the other: none may get another's frames.
    let mut queues = Vec::new();
    for queue in 0..3 {
        queues.push(b.open_rx(queue)?);
    }
    send(&mut *tx, 4000)?;
    let mut all = Vec::new();
    for queue in &mut queues {
        all.extend(receive(&mut **queue)?);
        assert_eq!(queue.drops().iter().map(|(_, n)| n).sum::<u64>(), 0);
    }
    all.sort_unstable();
    assert!(
        all.into_iter().eq((0..4000).filter(|n| n % 2 == 1)),
        "each frame that is taken is in one of the queues"
    );
    Ok(())
}

/// How many of this test's frames were received, and how many of these this host had sent.
fn directions(rx: &mut dyn RxQueue) -> std::io::Result<(usize, usize)> {
    let (mut all, mut out, mut silent) = (0, 0, 0);
    while silent < 50 {
        let batch = rx.receive()?;
        let own = || batch.iter().filter(|(octets, _)| octets[..6] == [2, 0, 0, 0, 0, 1]);
        (all, out) = (all + own().count(), out + own().filter(|(_, frame)| frame.outgoing).count());
        silent = if batch.frames.is_empty() { silent + 1 } else { 0 };
        if silent > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    Ok((all, out))
}

pub fn each_direction_has_its_frames() -> Outcome {
    enter()?;
    let _ = Command::new("ip").args(["link", "set", "lo", "up"]).status();
    // On a loopback interface sent frames also arrive, and `both` shows each frame once.
    let cases = [
        ("veth-a", "", 20, 0),
        ("veth-a", ",direction=in", 20, 0),
        ("veth-a", ",direction=out", 30, 30),
        ("veth-a", ",direction=both", 50, 30),
        ("veth-a", ",direction=both,promisc=0,rx_queues=1", 50, 30),
        ("lo", "", 30, 0),
        ("lo", ",direction=out", 30, 30),
        ("lo", ",direction=both", 30, 0),
    ];
    for (interface, options, all, out) in cases {
        // Packet sockets do not see frames that bypass the qdisc.
        let mut a = port(&format!("af_packet:{interface},bypass=0{options}"))?;
        let mut filtered = port(&format!("af_packet:{interface}{options}"))?;
        assert!(filtered.set_filter(&filter("ether dst 02:00:00:00:00:01", 1, 262_144)?)?);
        let (mut plain, mut filtered) = (a.open_rx(0)?, filtered.open_rx(0)?);
        send(&mut *a.open_tx(0, 60)?, 30)?;
        if interface != "lo" {
            send(&mut *port("af_packet:veth-b")?.open_tx(0, 60)?, 20)?;
        }
        assert_eq!(directions(&mut *plain)?, (all, out), "{interface}{options}");
        assert_eq!(directions(&mut *filtered)?, (all, out), "{interface}{options} with a filter");
    }
    let bad = port("af_packet:veth-a,direction=up")
        .map(drop)
        .expect_err("up is no direction")
        .to_string();
    assert!(bad.contains("in, out or both"), "{bad}");
    Ok(())
}

pub fn frames_of_all_interfaces_name_their_interface() -> Outcome {
    enter()?;
    let mut any = port("af_packet:any")?;
    assert_eq!((any.facts().link_type, any.facts().tx_queues), (276, 0));
    let refused = any.open_tx(0, 60).map(drop).expect_err("nothing is sent to all").to_string();
    assert!(refused.contains("receives only"), "{refused}");
    let mut filtered = port("af_packet:any")?;
    assert!(filtered.set_filter(&filter("udp", 276, 262_144)?)?, "by what the kernel has");
    let (mut any, mut filtered) = (any.open_rx(0)?, filtered.open_rx(0)?);
    let frames = [
        Packet::parse("eth(dst=02:00:00:00:00:01)/ipv4/udp/payload(random)")?
            .build(Some(80), &|_| unreachable!(), 1)?
            .bytes,
        Packet::parse("eth(dst=02:00:00:00:00:01)/ipv4/tcp/payload(random)")?
            .build(Some(80), &|_| unreachable!(), 1)?
            .bytes,
        Packet::parse("eth/vlan(id=5)/ipv4/udp/payload(random)")?
            .build(Some(80), &|_| unreachable!(), 1)?
            .bytes,
    ];
    send_frames(&mut *port("af_packet:veth-a")?.open_tx(0, 80)?, &frames)?;
    send_frames(&mut *port("af_packet:veth-b")?.open_tx(0, 80)?, &frames[..1])?;
    let got = receive_frames(&mut *any)?;
    assert_eq!(got.len(), 4);
    let interface = |i: usize| u32::from_be_bytes(got[i].0[4..8].try_into().expect("four"));
    assert!(
        interface(0) == interface(1)
            && interface(1) == interface(2)
            && interface(3) != interface(0),
        "which one"
    );
    // Protocol, type of hardware, a host that is not this one, six octets of address.
    assert_eq!((&got[0].0[..2], &got[0].0[8..12]), (&[8, 0][..], &[0, 1, 3, 6][..]));
    assert_eq!(got[0].0[12..18], frames[0][6..12], "the sender's address");
    assert!(got[0].0[20..] == frames[0][14..] && got[0].2 == 86);
    assert_eq!(
        (&got[2].0[..2], &got[2].0[20..24]),
        (&[0x81, 0][..], &[0, 5, 8, 0][..]),
        "a tag stays"
    );
    assert!(got[2].0[24..] == frames[2][18..]);
    assert_eq!(receive_frames(&mut *filtered)?.len(), 3);
    Ok(())
}

pub fn a_stopped_queue_delivers_the_frames_that_it_counted() -> Outcome {
    enter()?;
    let mut b = port("af_packet:veth-b,blocks=4,block=128,retire=200")?;
    let mut rx = b.open_rx(0)?;
    let mut tx = port("af_packet:veth-a")?.open_tx(0, 60)?;
    // More frames than the ring holds, none of which is read.
    send(&mut *tx, 20_000)?;
    rx.stop()?;
    send(&mut *tx, 100)?;
    let received = rx.received().expect("the kernel counts");
    let given = {
        let mut given = 0;
        for _ in 0..400 {
            let n = rx.receive()?.frames.len() as u64;
            given += n;
            if n == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        given
    };
    let lost: u64 = rx.drops().iter().map(|(_, n)| n).sum();
    assert!(lost > 0 && given > 0);
    assert_eq!((received, rx.received()), (20_000, Some(20_000)), "what came before the stop");
    assert_eq!(
        given + lost,
        received,
        "each is given or named as lost, those of the open block too"
    );
    Ok(())
}

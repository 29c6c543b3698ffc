//! Tests of af_xdp over a veth pair. If this user may not load programs, the other end receives
//! through packet sockets.

use std::{
    convert::Infallible,
    error::Error,
    io::{BufRead, BufReader, Write},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use squall_port::{
    Cut, Hosts, Port, SendError, Timestamps,
    conformance::{Bench, check},
};
use squall_port_linux::lab::{self, LabOptions};
use squall_units::{Nanos, signature_check};
use squall_wire::Packet;

use crate::{Outcome, Skipped, enter, port, receive, send};

/// Room for all frames that a test sends before it receives.
const RING: &str = ",ring=32768";

/// The receiving port: `af_xdp` with `options`, if this user may load programs.
fn receiver(options: &str) -> String {
    let may = port("af_xdp:veth-b").is_ok_and(|port| port.facts().rx_queues > 0);
    if may { format!("af_xdp:veth-b{options}") } else { "af_packet:veth-b".into() }
}

/// Skips the test if this user may not receive.
fn need_programs() -> Outcome {
    match port("af_xdp:veth-b")?.facts().rx_queues {
        0 => Err(Skipped("needs the right to load BPF programs".into()).into()),
        _ => Ok(()),
    }
}

pub fn af_xdp_conforms() -> Outcome {
    enter()?;
    let b = receiver(RING);
    let open = &mut || Ok((port("af_xdp:veth-a")?, Some(port(&b)?)));
    check(Bench { open, stored: false });
    Ok(())
}

pub fn af_xdp_conforms_in_generic_mode_too() -> Outcome {
    lab::enter_private(&LabOptions { mtu: 1500, queues: 1 })?;
    let b = receiver(&format!(",mode=generic,take=all{RING}"));
    let open = &mut || {
        Ok((port("af_xdp:veth-a,batch=7,tx_ring=64,need_wakeup=0,rx_queues=0")?, Some(port(&b)?)))
    };
    check(Bench { open, stored: false });
    Ok(())
}

pub fn af_xdp_exchanges_frames_with_a_packet_socket() -> Outcome {
    enter()?;
    let open = &mut || Ok((port("af_xdp:veth-a,zerocopy=0")?, Some(port("af_packet:veth-b")?)));
    check(Bench { open, stored: false });
    let b = receiver(RING);
    let open = &mut || Ok((port("af_packet:veth-a")?, Some(port(&b)?)));
    check(Bench { open, stored: false });
    Ok(())
}

pub fn af_xdp_sends_and_receives_on_one_queue() -> Outcome {
    enter()?;
    need_programs()?;
    for rx_first in [true, false] {
        let (mut a, mut b) = (port("af_xdp:veth-a")?, port("af_xdp:veth-b")?);
        let open = |p: &mut Box<dyn Port>| -> std::io::Result<_> {
            if rx_first {
                let rx = p.open_rx(0)?;
                return Ok((p.open_tx(0, 60)?, rx));
            }
            Ok((p.open_tx(0, 60)?, p.open_rx(0)?))
        };
        let ((mut a_tx, mut a_rx), (mut b_tx, mut b_rx)) = (open(&mut a)?, open(&mut b)?);
        assert!(a.open_tx(0, 60).is_err() && a.open_rx(0).is_err(), "each is open already");
        for _ in 0..20 {
            send(&mut *a_tx, 500)?;
            send(&mut *b_tx, 300)?;
            assert!(receive(&mut *b_rx)?.into_iter().eq(0..500));
            assert!(receive(&mut *a_rx)?.into_iter().eq(0..300));
        }
        a_tx.finish()?;
        // Closes one direction; the other stays open.
        drop(a_rx);
        drop(b_tx);
        send(&mut *a_tx, 500)?;
        assert!(receive(&mut *b_rx)?.into_iter().eq(0..500));
    }
    Ok(())
}

pub fn af_xdp_queues_are_all_received_from() -> Outcome {
    lab::enter_private(&LabOptions { mtu: 1500, queues: 3 })?;
    need_programs()?;
    for rx_queues in [1, 2] {
        let (mut a, mut b) = (
            port("af_xdp:veth-a,rx_queues=0")?,
            port(&format!("af_xdp:veth-b,rx_queues={rx_queues}"))?,
        );
        assert_eq!((a.facts().tx_queues, b.facts().rx_queues), (3, rx_queues));
        let mut rx = (0..rx_queues).map(|q| b.open_rx(q)).collect::<Result<Vec<_>, _>>()?;
        for queue in 0..3 {
            let mut tx = a.open_tx(queue, 60)?;
            send(&mut *tx, 1000)?;
            let mut all: Vec<u32> = Vec::new();
            for rx in &mut rx {
                all.extend(receive(&mut **rx)?);
            }
            all.sort_unstable();
            assert!(all.into_iter().eq(0..1000), "queue {queue} of {rx_queues}");
        }
    }
    Ok(())
}

pub fn losses_of_a_full_af_xdp_ring_are_counted() -> Outcome {
    enter()?;
    need_programs()?;
    for mode in ["native", "generic"] {
        let (mut a, mut b) =
            (port("af_xdp:veth-a")?, port(&format!("af_xdp:veth-b,ring=256,mode={mode}"))?);
        let mut rx = b.open_rx(0)?;
        send(&mut *a.open_tx(0, 60)?, 20_000)?;
        let received = receive(&mut *rx)?;
        assert!(received.into_iter().eq(0..256), "what came first is there");
        let drops = rx.drops();
        assert_eq!(drops.iter().map(|d| d.1).sum::<u64>(), 20_000 - 256, "{drops:?}");
        assert_eq!(rx.drops(), drops, "counts are not forgotten when read");
    }
    Ok(())
}

pub fn all_counters_agree_over_af_xdp() -> Outcome {
    enter()?;
    let (mut a, mut b) = (port("af_xdp:veth-a")?, port(&receiver(""))?);
    let (mut tx, mut rx) = (a.open_tx(0, 60)?, b.open_rx(0)?);
    let received = std::thread::scope(|scope| {
        let receiver = scope.spawn(|| -> std::io::Result<Vec<u32>> {
            let (mut numbers, deadline) = (Vec::new(), Instant::now() + Duration::from_secs(60));
            while numbers.last() != Some(&299_999) && Instant::now() < deadline {
                numbers.extend(receive(&mut *rx)?);
            }
            Ok(numbers)
        });
        let outcome = send(&mut *tx, 300_000);
        outcome.map(|()| receiver.join().expect("the receiver does not panic"))
    })??;
    tx.finish()?;
    let lost: u64 = rx.drops().iter().map(|d| d.1).sum();
    assert!(received.is_sorted(), "in order");
    assert_eq!(received.len() as u64 + lost, 300_000, "{:?}", rx.drops());
    let (tx, rx) = (
        a.interface_counters().expect("veth counts"),
        b.interface_counters().expect("veth counts"),
    );
    // A veth whose peer has a native XDP program does not count the Ethernet header in its octets.
    let octets = [46, 60].map(|len| 300_000 * len);
    assert!(tx.tx_packets == 300_000 && octets.contains(&tx.tx_octets), "{tx:?}");
    assert!(rx.rx_packets == 300_000 && octets.contains(&rx.rx_octets), "{rx:?}");
    Ok(())
}

pub fn no_frame_that_af_xdp_takes_passes_while_it_opens() -> Outcome {
    enter()?;
    need_programs()?;
    let mut a = port("af_packet:veth-a")?;
    let mut tx = a.open_tx(0, 60)?;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                send(&mut *tx, 64)?;
                // Leaves CPU time to the kernel threads that free the last closed queue.
                std::thread::sleep(Duration::from_micros(100));
            }
            Ok::<_, SendError>(())
        });
        let received = || -> Outcome {
            for _ in 0..5 {
                let mut b = port("af_xdp:veth-b,take=all")?;
                let mut rx = b.open_rx(0)?;
                let deadline = Instant::now() + Duration::from_secs(60);
                while rx.receive()?.frames.is_empty() {
                    assert!(Instant::now() < deadline, "frames come");
                }
                let notes = b.notes().join("\n");
                assert!(!notes.contains("passed on"), "{notes}");
            }
            Ok(())
        };
        let outcome = received();
        over.store(true, Ordering::Relaxed);
        sender.join().expect("the sender does not panic")?;
        outcome
    })
}

pub fn af_xdp_passes_frames_for_the_host() -> Outcome {
    enter()?;
    need_programs()?;
    for mode in ["native", "generic"] {
        let (mut a, mut b, mut host) = (
            port("af_packet:veth-a")?,
            port(&format!("af_xdp:veth-b,mode={mode}"))?,
            port("af_packet:veth-b")?,
        );
        let (mut tx, mut rx, mut host_rx) = (a.open_tx(0, 60)?, b.open_rx(0)?, host.open_rx(0)?);
        let own = b.facts().mac.expect("veth has one").0;
        let broadcast = [0xff; 6];
        let other = [2, 9, 9, 9, 9, 9];
        let cases = [
            (own, false, false),
            (broadcast, false, false),
            (own, true, true),
            (other, false, true),
        ];
        for (to, signed, taken) in cases {
            let mut batch = tx.lend(1);
            let frame = batch.frame(0, 60, Nanos::ZERO);
            frame.fill(0);
            frame[..6].copy_from_slice(&to);
            frame[12..14].copy_from_slice(&[0x88, 0xb5]);
            if signed {
                let (high, low): (u64, u64) = (3, 7 << 40);
                frame[44..52].copy_from_slice(
                    &(u64::from(signature_check(high, low)) << 32 | high).to_be_bytes(),
                );
                frame[52..].copy_from_slice(&low.to_be_bytes());
            }
            assert_eq!(tx.send(1)?, 1);
            let (at_port, at_host) = (receive(&mut *rx)?.len(), receive(&mut *host_rx)?.len());
            assert_eq!(
                (at_port, at_host),
                (usize::from(taken), usize::from(!taken)),
                "{to:?}, signed {signed}, {mode}"
            );
        }
        let notes = b.notes().join("\n");
        assert!(notes.contains("2 frames were for the host"), "{notes}");
        let counters =
            [&b, &host].map(|port| port.interface_counters().expect("veth counts").rx_packets);
        assert_eq!(counters[0], counters[1] - 2, "they are not the port's");
    }
    Ok(())
}

fn run(command: &str) -> Result<String, Box<dyn Error>> {
    let output = Command::new("sh").args(["-c", command]).output()?;
    if !output.status.success() {
        return Err(format!("{command}: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Opens the port at `address` to receive, prints "ready", and holds it until killed.
pub fn hold(address: &str) -> Result<Infallible, Box<dyn Error>> {
    let mut port = port(address)?;
    let mut rx = port.open_rx(0)?;
    println!("ready");
    loop {
        rx.receive()?;
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Opens the port at `address` to receive, and closes it.
pub fn open_and_close(address: &str) -> Outcome {
    let mut port = port(address)?;
    let rx = port.open_rx(0)?;
    println!("open");
    drop(rx);
    println!("closed: {}", port.notes().join("; "));
    Ok(())
}

/// A child, killed when dropped, so that a failing test leaves no process.
struct Holder(Child);

impl Holder {
    fn start(
        command: &mut Command,
    ) -> Result<(Self, BufReader<std::process::ChildStdout>), Box<dyn Error>> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let output = BufReader::new(child.stdout.take().expect("it was asked for"));
        Ok((Self(child), output))
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn expect_line(output: &mut impl BufRead, wanted: &str) -> Outcome {
    let mut line = String::new();
    output.read_line(&mut line)?;
    if line.trim() == wanted {
        return Ok(());
    }
    let mut rest = String::new();
    std::io::Read::read_to_string(output, &mut rest)?;
    Err(format!("{wanted:?} did not come, but {line}{rest}").into())
}

pub fn the_host_answers_while_af_xdp_receives() -> Outcome {
    enter()?;
    need_programs()?;
    if run("command -v ip && command -v unshare").is_err() {
        return Err(Skipped("needs ip and unshare".into()).into());
    }
    // The other end is in another namespace: the kernel must not answer itself.
    let this_test = std::env::current_exe()?;
    let script = "echo up; read go; ip addr add 10.99.0.2/24 dev veth-b; ip link set veth-b arp \
                  on up; exec \"$0\" --hold $1";
    for mode in ["native", "generic"] {
        let mut command = Command::new("unshare");
        command
            .args(["-n", "sh", "-c", script])
            .arg(&this_test)
            .arg(format!("af_xdp:veth-b,mode={mode}"));
        let (mut holder, mut output) = Holder::start(&mut command)?;
        expect_line(&mut output, "up")?;
        run(&format!("ip link set veth-b netns {}", holder.0.id()))?;
        holder.0.stdin.as_mut().expect("it was asked for").write_all(b"go\n")?;
        expect_line(&mut output, "ready")?;
        run("ip link set veth-a arp on up; ip addr replace 10.99.0.1/24 dev veth-a")?;
        // No program listens on the port: the host can only refuse if ARP and TCP reach it.
        let refused =
            std::net::TcpStream::connect_timeout(&"10.99.0.2:9".parse()?, Duration::from_secs(20));
        assert_eq!(
            refused.expect_err("nobody listens").kind(),
            std::io::ErrorKind::ConnectionRefused,
            "{mode}"
        );
        drop(holder);
        // Both interfaces disappear with the namespace.
        let deadline = Instant::now() + Duration::from_secs(60);
        while run("ip link show veth-a").is_ok() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        run("ip link add veth-a type veth peer name veth-b && ip link set veth-a up && ip link \
             set veth-b up")?;
    }
    Ok(())
}

pub fn af_xdp_killed_leaves_no_program() -> Outcome {
    enter()?;
    need_programs()?;
    let program = || run("ip link show veth-b").map(|text| text.contains("xdp"));
    for mode in ["native", "generic"] {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--hold", &format!("af_xdp:veth-b,take=all,mode={mode}")]);
        let (holder, mut output) = Holder::start(&mut command)?;
        expect_line(&mut output, "ready")?;
        assert!(program()?, "the program is on the interface");
        let second =
            port("af_xdp:veth-b")?.open_rx(0).err().expect("another process has it").to_string();
        assert!(second.contains("another XDP program"), "{second}");
        // Sends SIGKILL.
        drop(holder);
        let deadline = Instant::now() + Duration::from_secs(60);
        while program()? && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(!program()?, "the program went with the process");
        let (mut a, mut host) = (port("af_packet:veth-a")?, port("af_packet:veth-b")?);
        let mut rx = host.open_rx(0)?;
        send(&mut *a.open_tx(0, 60)?, 100)?;
        assert_eq!(receive(&mut *rx)?.len(), 100, "the host has its frames again");
    }
    Ok(())
}

pub fn af_xdp_without_bpf_only_sends_and_notes_it() -> Outcome {
    enter()?;
    let mut a = port("af_xdp:veth-a")?;
    if a.facts().rx_queues > 0 {
        println!(
            "af_xdp_without_bpf_only_sends_and_notes_it: this user may load programs; nobody, who \
             may not, is next"
        );
        return Ok(());
    }
    let mut b = port("af_packet:veth-b")?;
    let mut rx = b.open_rx(0)?;
    send(&mut *a.open_tx(0, 60)?, 1000)?;
    assert!(receive(&mut *rx)?.into_iter().eq(0..1000));
    let error = a.open_rx(0).err().expect("no program, no receiving");
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
    for text in [error.to_string(), a.notes().join("\n")] {
        assert!(text.contains("sends only") && text.contains("CAP_BPF"), "{text}");
    }
    Ok(())
}

pub fn af_xdp_reports_a_bad_frame_and_a_link_that_goes_down() -> Outcome {
    enter()?;
    let mut a = port("af_xdp:veth-a,on_link_down=stop")?;
    let max_frame = a.facts().max_frame;
    let mut tx = a.open_tx(0, max_frame)?;
    let mut batch = tx.lend(3);
    batch.frame(0, 13, Nanos::ZERO);
    batch.frame(1, max_frame as usize, Nanos::ZERO).fill(0x55);
    assert!(matches!(tx.send(2), Err(SendError::Frame("too_short"))));
    assert_eq!(tx.send(1)?, 1);
    assert_eq!(a.interface_counters().expect("veth counts").tx_packets, 1);
    lab::set_down("veth-b")?;
    let lost = (0..100_000).find_map(|_| send(&mut *tx, 1).err()).expect("nothing can leave");
    assert!(
        matches!(&lost, SendError::Port(e) if e.kind() == std::io::ErrorKind::NetworkDown),
        "{lost}"
    );
    assert!(lost.to_string().contains("veth-a"), "{lost}");
    Ok(())
}

pub fn af_xdp_waits_for_the_link_and_goes_on() -> Outcome {
    enter()?;
    need_programs()?;
    crate::waits_for_the_link(port("af_xdp:veth-a,rx_queues=0")?, port("af_xdp:veth-b,take=all")?)
}

pub fn an_af_xdp_receiver_delivers_its_frames_and_reports_that_its_link_went_down() -> Outcome {
    enter()?;
    need_programs()?;
    crate::delivers_frames_and_reports_the_end("af_xdp:veth-b,take=all,on_link_down=stop")
}

pub fn an_af_xdp_receiver_reports_that_the_interface_is_gone() -> Outcome {
    enter()?;
    need_programs()?;
    let mut b = port("af_xdp:veth-b")?;
    let mut rx = b.open_rx(0)?;
    if run("ip link del veth-a").is_err() {
        return Err(Skipped("needs ip".into()).into());
    }
    // A new interface with the same name is a different interface.
    run("ip link add veth-b type veth peer veth-a && ip link set veth-b up")?;
    let deadline = Instant::now() + Duration::from_secs(60);
    let error = loop {
        match rx.receive() {
            Ok(_) => {}
            Err(error) => break error,
        }
        assert!(Instant::now() < deadline, "it never says that its interface is gone");
        std::thread::sleep(Duration::from_micros(100));
    };
    assert_eq!(error.to_string(), "veth-b: the interface is gone");
    Ok(())
}

pub fn frames_that_the_driver_drops_are_offered_again_then_counted() -> Outcome {
    lab::enter_private(&LabOptions { mtu: 1500, queues: 1 })?;
    if run("ip link set veth-b mtu 1000").is_err() {
        return Err(Skipped("needs ip".into()).into());
    }
    let (mut a, mut b) = (port("af_xdp:veth-a,rx_queues=0,tx_ring=64")?, port("af_packet:veth-b")?);
    let (mut tx, mut rx) = (a.open_tx(0, 1514)?, b.open_rx(0)?);
    // Three of these, including the first, are longer than the peer accepts.
    let lengths = [1514usize, 60, 60, 1300, 60, 1514];
    for round in 0..3 {
        let mut batch = tx.lend(lengths.len());
        assert_eq!(batch.len(), lengths.len());
        for (i, len) in lengths.into_iter().enumerate() {
            let frame = batch.frame(i, len, Nanos::ZERO);
            frame.fill(0);
            frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
            frame[56..60].copy_from_slice(&(10 * round + i as u32).to_be_bytes());
        }
        let (mut sent, mut dropped, deadline) = (0, 0, Instant::now() + Duration::from_secs(60));
        while sent + dropped < lengths.len() && Instant::now() < deadline {
            match tx.send(lengths.len() - sent - dropped) {
                Ok(taken) => sent += taken,
                Err(SendError::Frame("dropped_by_driver")) => dropped += 1,
                Err(error) => return Err(error.into()),
            }
        }
        assert_eq!((sent, dropped), (3, 3));
        assert!(receive(&mut *rx)?.into_iter().eq([1, 2, 4].map(|i| 10 * round + i)), "in order");
    }
    // Frames that were given up while the driver drops them do not leave later; a shorter frame is
    // tried again.
    let mut batch = tx.lend(2);
    batch.frame(0, 1200, Nanos::ZERO).fill(2);
    batch.frame(1, 60, Nanos::ZERO).fill(2);
    assert_eq!(tx.send(2)?, 0);
    send(&mut *tx, 10)?;
    tx.finish()?;
    assert!(receive(&mut *rx)?.into_iter().eq(0..10));
    assert_eq!(a.interface_counters().expect("veth counts").tx_packets, 19);
    Ok(())
}

pub fn a_queue_has_one_owner() -> Outcome {
    enter()?;
    let (mut one, mut two) =
        (port("af_xdp:veth-a,rx_queues=0")?, port("af_xdp:veth-a,rx_queues=0")?);
    let tx = one.open_tx(0, 60)?;
    let error = two.open_tx(0, 60).err().expect("it is taken").to_string();
    assert!(error.contains("another AF_XDP socket owns queue 0"), "{error}");
    drop((tx, one));
    two.open_tx(0, 60)?;
    Ok(())
}

pub fn bad_af_xdp_options_are_reported() -> Outcome {
    enter()?;
    for (address, wanted) in [
        ("af_xdp:veth-a,mode=fast", "mode=fast, expected native or generic"),
        ("af_xdp:veth-a,timestamps=nic", "timestamps=nic, expected kernel or hardware"),
        ("af_xdp:veth-a,timestamps=hardware,mode=generic", "only a program in the driver"),
        ("af_xdp:veth-a,take=some", "take=some, expected test, signed, udp/PORT or all"),
        ("af_xdp:veth-a,queue=7", "queue=7, expected at most 0"),
        ("af_xdp:veth-a,moderation=1s", "moderation=1s, expected a number from 0 to 10000"),
        ("af_xdp:veth-a,rx_queues=257", "rx_queues=257, expected a number from 0 to 256"),
        ("af_xdp:veth-a,blocks=7", "unknown option blocks"),
        ("af_xdp:veht-a", "did you mean veth-a?"),
    ] {
        let error = port(address).err().expect("a mistake").to_string();
        assert!(error.contains(wanted), "{error}");
    }
    let error = port("af_xdp:veth-a,zerocopy=1,rx_queues=0")?
        .open_tx(0, 60)
        .err()
        .expect("veth copies")
        .to_string();
    assert!(
        error.contains("does not support zero-copy") && error.contains("zerocopy=0"),
        "{error}"
    );
    let mut port = port("af_xdp:veth-a,rx_queues=0")?;
    port.open_tx(0, 60)?;
    let notes = port.notes().join("\n");
    assert!(notes.contains("frames are copied"), "{notes}");
    Ok(())
}

pub fn without_a_clock_of_the_nic_the_program_stamps_with_a_note() -> Outcome {
    enter()?;
    need_programs()?;
    let (mut a, mut b) =
        (port("af_xdp:veth-a,rx_queues=0")?, port("af_xdp:veth-b,timestamps=hardware")?);
    assert_eq!(b.facts().timestamps, Timestamps::Kernel);
    let (mut tx, mut rx) = (a.open_tx(0, 60)?, b.open_rx(0)?);
    send(&mut *tx, 100)?;
    assert!(receive(&mut *rx)?.into_iter().eq(0..100));
    let notes = b.notes().join("\n");
    assert!(notes.contains("not of the NIC: the driver has no clock"), "{notes}");
    Ok(())
}

pub fn a_driver_without_rules_is_named() -> Outcome {
    enter()?;
    let refused = |address: &str| port(address).err().expect(address).to_string();
    for steer in ["flows", "udp/5002"] {
        let text = refused(&format!("af_xdp:veth-b,queue=0,steer={steer}"));
        let wanted = "veth-b: steer: the driver veth has no rules for flows";
        assert!(text.contains(wanted) && text.contains("os error 95"), "{text}");
        assert!(text.contains("try it without steer"), "{text}");
    }
    for address in ["af_xdp:veth-b,steer=flows", "af_xdp:veth-b,queue=0,rx_queues=0,steer=flows"] {
        assert!(refused(address).contains("steer=flows needs queue=N"), "{address}");
    }
    let text = refused("af_xdp:veth-b,queue=0,steer=udp/1-100");
    assert!(text.contains("expected flows, udp/PORT"), "{text}");
    Ok(())
}

/// With a driver in place of that of a veth, which keeps its rules in a file.
pub fn a_nic_has_rules_while_a_port_receives() -> Outcome {
    lab::enter_private(&LabOptions { mtu: 1500, queues: 2 })?;
    need_programs()?;
    let folder = std::env::temp_dir().join(format!("squall-nic-rules-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let (library, rules) = (folder.join("rules.so"), folder.join("rules"));
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/af_xdp/rules.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", source, "-ldl", "-o"]).arg(&library);
    let compiled = compiler.status().map_err(|error| Skipped(format!("cc: {error}")))?;
    assert!(compiled.success());
    std::fs::write(&rules, [0; 4096])?;
    let child = |mode: &str, address: &str| -> std::io::Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([mode, address]).env("LD_PRELOAD", &library).env("SQUALL_TEST_RULES", &rules);
        Ok(command)
    };
    let lines = |address: &str| -> Result<Vec<String>, Box<dyn Error>> {
        let output = child("--open-and-close", address)?.output()?;
        Ok(String::from_utf8(output.stdout)?.lines().map(str::to_owned).collect())
    };
    let of_udp = "af_xdp:veth-b,queue=1,steer=udp/5002";
    let wanted = [
        "set 15: type 2 10:13&ff 11:8a&ff -> 1",
        "set 14: type 6 34:13&ff 35:8a&ff -> 1",
        "open",
        "deleted 15",
        "deleted 14",
    ];
    let all = lines(of_udp)?;
    assert_eq!(all[..5], wanted);
    assert!(all[5].contains("2 rules of the NIC give frames to queue 1"), "{}", all[5]);
    // Too many rules for the NIC: none is left.
    let all = lines("af_xdp:veth-b,queue=1,steer=udp/1-32")?;
    assert_eq!(all.len(), 32);
    assert!(all[15].starts_with("set 0: ") && all[31] == "deleted 0", "{all:?}");
    // A killed process leaves its rules, and the next one removes them.
    let (holder, mut output) = Holder::start(&mut child("--hold", of_udp)?)?;
    for line in &wanted[..2] {
        expect_line(&mut output, line)?;
    }
    expect_line(&mut output, "ready")?;
    drop(holder);
    let all = lines("af_xdp:veth-b,queue=0,steer=tcp/80")?;
    let wanted = [
        "deleted 15",
        "deleted 14",
        "set 15: type 1 10:00&ff 11:50&ff -> 0",
        "set 14: type 5 34:00&ff 35:50&ff -> 0",
        "open",
    ];
    assert_eq!(all[..5], wanted);
    assert!(all[7].contains("removed rules that a killed run had left: 15, 14"), "{}", all[7]);
    std::fs::remove_dir_all(&folder)?;
    let namespace = std::os::unix::fs::MetadataExt::ino(&std::fs::metadata("/proc/self/ns/net")?);
    for folder in [std::path::PathBuf::from("/run/lock"), std::env::temp_dir()] {
        let user = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self")?);
        let record = format!("squall-steer-{namespace}-veth-b.{user}.rules");
        let _ = std::fs::remove_file(folder.join(record));
    }
    Ok(())
}

pub fn flows_over_veth_get_gso_frames_whole() -> Outcome {
    lab::enter_private(&LabOptions { mtu: 1500, queues: 1 })?;
    need_programs()?;
    let text = "eth/ipv4(id=7)/tcp(flags=PA)/payload(random)";
    let frame = Packet::parse(text)?.build(Some(54 + 20_001), &|_| unreachable!(), 1)?;
    let cut = Cut { size: 1460, transport: 34, payload: 54 };
    for (shared, datagrams) in [(false, false), (true, false), (false, true)] {
        let mut a = port("af_packet:veth-a")?;
        let mut b = port("af_xdp:veth-b,take=all")?;
        b.serve(&Hosts { shared, datagrams, ..Hosts::default() })?;
        let cuts = shared || datagrams;
        let (mut tx, mut rx) = (a.open_tx(0, 65_535)?, b.open_rx(0)?);
        for cut in [cut, Cut::WHOLE] {
            let octets = if cut.is_whole() { &frame.bytes[..1514] } else { &frame.bytes };
            let mut batch = tx.lend(1);
            batch.frame(0, octets.len(), Nanos::ZERO).copy_from_slice(octets);
            batch.meta[0].cut = cut;
            while tx.send(1)? == 0 {}
        }
        tx.finish()?;
        let segments = cut.segments(frame.bytes.len() as u32);
        // A port that hosts share with streams, or with UDP, is in the driver, where a veth cuts.
        let wanted = if cuts { segments as usize + 1 } else { 2 };
        let (mut received, start) = (Vec::new(), Instant::now());
        while received.len() < wanted && start.elapsed() < Duration::from_secs(10) {
            let batch = rx.receive()?;
            received.extend(batch.iter().map(|(octets, frame)| (octets.to_vec(), frame.cut)));
        }
        assert_eq!(received.len(), wanted);
        if cuts {
            assert!(received.iter().all(|(octets, cut)| octets.len() <= 1514 && cut.is_whole()));
        } else {
            let payload = usize::from(cut.payload);
            assert_eq!((received[0].0.len(), received[0].1), (frame.bytes.len(), cut));
            assert!(received[0].0[payload..] == frame.bytes[payload..]);
            assert_eq!((received[1].0.len(), received[1].1), (1514, Cut::WHOLE));
        }
    }
    Ok(())
}

pub fn the_driver_stamps_departures_and_may_be_asked_to_launch() -> Outcome {
    enter()?;
    // A veth ignores the launch time, but the kernel checks the request, and would refuse a bad
    // one.
    for options in ["tx_stamps", "launch=200", "tx_stamps,launch=200"] {
        let (mut a, mut b) =
            (port(&format!("af_xdp:veth-a,rx_queues=0,{options}"))?, port("af_packet:veth-b")?);
        let (mut tx, mut rx) = (a.open_tx(0, 60)?, b.open_rx(0)?);
        for number in 0..100u32 {
            let mut batch = tx.lend(1);
            let frame = batch.frame(0, 60, squall_port::monotonic());
            frame.fill(0);
            frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
            frame[56..].copy_from_slice(&number.to_be_bytes());
            assert_eq!(tx.send(1)?, 1);
        }
        tx.finish()?;
        assert!(receive(&mut *rx)?.into_iter().eq(0..100), "{options}");
        let notes = a.notes().join("\n");
        if options.contains("tx_stamps") {
            assert!(notes.contains("stamped 100 frames"), "{notes}");
            let mean = notes.split("100 frames: ").nth(1).and_then(|rest| rest.split(' ').next());
            let mean: f64 = mean.expect("a number").parse()?;
            assert!((0.0..100_000.0).contains(&mean), "on the engine's clock: {notes}");
        }
    }
    Ok(())
}

/// The bound holds on a busy machine, too: there the second frame is sent later.
pub fn a_moderated_queue_hands_over_the_next_frame_later() -> Outcome {
    enter()?;
    need_programs()?;
    let (mut a, mut b) =
        (port("af_xdp:veth-a,rx_queues=0")?, port("af_xdp:veth-b,moderation=10000")?);
    let mut tx = a.open_tx(0, 60)?;
    let mut rx = match b.open_rx(0) {
        Err(error) if error.to_string().contains("Linux 6.13") => {
            return Err(Skipped(error.to_string()).into());
        }
        opened => opened?,
    };
    let mut arrival = || -> Result<Nanos, Box<dyn Error>> {
        send(&mut *tx, 1)?;
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(10) {
            if let Some((_, frame)) = rx.receive()?.iter().next() {
                return Ok(frame.time);
            }
        }
        Err("no frame came".into())
    };
    let (first, second) = (arrival()?, arrival()?);
    assert!(second >= first + Nanos(9_000_000), "{first:?} {second:?}");
    Ok(())
}

pub fn af_xdp_polls_and_kicks_as_asked() -> Outcome {
    enter()?;
    let b = receiver(",busy_poll=20,busy_budget=32,need_wakeup=0,rx_queues=1");
    let sender = if b.starts_with("af_xdp") {
        "af_xdp:veth-a,need_wakeup=0,busy_poll=20"
    } else {
        "af_xdp:veth-a"
    };
    let (mut a, mut b) = (port(sender)?, port(&b)?);
    let (mut tx, mut rx) = (a.open_tx(0, 60)?, b.open_rx(0)?);
    send(&mut *tx, 5000)?;
    assert!(receive(&mut *rx)?.into_iter().eq(0..5000));
    Ok(())
}

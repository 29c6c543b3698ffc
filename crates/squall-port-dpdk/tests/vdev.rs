//! Tests with DPDK's virtual devices. Each test runs in its own process, because DPDK starts only
//! once per process; tests with interfaces also run in a network namespace.

use std::{
    io,
    process::{Command, ExitCode, Stdio},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use squall_port::{
    Address, BATCH, Hosts, InterfaceCounters, Port, PortFacts, RxQueue, SendError, TxQueue,
    conformance::{Bench, Ends, check},
};
use squall_port_linux::lab::{self, LabOptions};
use squall_units::Nanos;

type Outcome = Result<(), Box<dyn std::error::Error>>;

type Test = fn() -> Outcome;

const TESTS: &[(&str, Test)] = &[
    ("null_conforms", null_conforms),
    ("ring_conforms", ring_conforms),
    ("memif_in_one_process_conforms", memif_in_one_process_conforms),
    ("memif_between_two_processes_carries_all", memif_between_two_processes_carries_all),
    ("pcap_conforms", pcap_conforms),
    ("af_packet_conforms", af_packet_conforms),
    ("af_packet_receives_all", af_packet_receives_all),
    ("af_xdp_conforms", af_xdp_conforms),
    ("af_xdp_receives_all", af_xdp_receives_all),
    ("tap_conforms_outwards", tap_conforms_outwards),
    ("tap_conforms_inwards", tap_conforms_inwards),
    (
        "a_slot_that_the_other_port_still_has_is_not_lent",
        a_slot_that_the_other_port_still_has_is_not_lent,
    ),
    (
        "a_queue_may_close_before_its_frames_are_received",
        a_queue_may_close_before_its_frames_are_received,
    ),
    ("several_queues_send_and_are_counted_together", several_queues_send_and_are_counted_together),
    ("rss_of_several_queues_is_reported", rss_of_several_queues_is_reported),
    ("a_driver_that_refuses_rules_is_named", a_driver_that_refuses_rules_is_named),
    ("a_tap_reads_the_rules_of_all_kinds", a_tap_reads_the_rules_of_all_kinds),
    ("a_driver_gets_the_rules_and_their_end", a_driver_gets_the_rules_and_their_end),
    ("a_port_can_be_opened_again_and_not_twice", a_port_can_be_opened_again_and_not_twice),
    ("frames_of_the_queues_own_memory_are_lent", frames_of_the_queues_own_memory_are_lent),
    ("jumbo_frames_pass_whole", jumbo_frames_pass_whole),
    ("the_process_is_left_as_it_was", the_process_is_left_as_it_was),
    ("a_killed_process_leaves_nothing", a_killed_process_leaves_nothing),
    ("a_missing_other_end_is_reported", a_missing_other_end_is_reported),
    ("mistakes_are_reported_with_what_to_try", mistakes_are_reported_with_what_to_try),
    (
        "without_the_shim_the_error_has_build_instructions",
        without_the_shim_the_error_has_build_instructions,
    ),
];

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--run", name] => return run(name),
        ["--echo", address] => return report("echo", echo(address)),
        ["--hold", address] => return report("hold", hold(address)),
        ["--steer", address] => return report("steer", steer(address)),
        _ => {}
    }
    if arguments.iter().any(|a| a == "--list") {
        TESTS.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let filter = arguments.iter().find(|a| !a.starts_with('-')).map_or("", String::as_str);
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for (name, _) in TESTS.iter().filter(|(name, _)| name.contains(filter)) {
        let status = this_test(&["--run", name]).status().expect("a test can run itself");
        match status.code() {
            Some(0) => {
                println!("test {name} ... ok");
                passed += 1;
            }
            // 77: automake's exit status of a skipped test.
            Some(77) => skipped += 1,
            _ => {
                println!("test {name} ... FAILED ({status})");
                failed += 1;
            }
        }
    }
    // In libtest's format, for scripts that add up the results.
    let verdict = if failed == 0 { "ok" } else { "FAILED" };
    println!("\ntest result: {verdict}. {passed} passed; {failed} failed; {skipped} ignored");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn this_test(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a test knows where it is"));
    command.args(arguments);
    command
}

/// The reason why a test cannot run here.
#[derive(Debug)]
struct Skip(String);

impl std::fmt::Display for Skip {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Skip {}

fn run(name: &str) -> ExitCode {
    let Some((_, test)) = TESTS.iter().find(|(known, _)| *known == name) else {
        return ExitCode::FAILURE;
    };
    report(name, needs_shim(name).and_then(|()| test()))
}

fn report(name: &str, outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<Skip>() => {
            println!("SKIPPED: {name}: {error}");
            ExitCode::from(77)
        }
        Err(error) => {
            println!("{name}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Skips a test if the shim is missing, unless the test checks that case.
fn needs_shim(name: &str) -> Outcome {
    if name == "without_the_shim_the_error_has_build_instructions" {
        return Ok(());
    }
    // Requests more hugepages than exist, so that DPDK does not start: with its threads, the
    // process could not enter a namespace.
    match squall_port_dpdk::open(&"dpdk:vdev=net_null0,huge=1000000".parse()?) {
        Err(error) if error.to_string().contains("make dpdk") => {
            Err(Skip(error.to_string().replace('\n', " ")).into())
        }
        _ => Ok(()),
    }
}

fn enter() -> Outcome {
    match lab::enter_private(&LabOptions { mtu: 1500, queues: 8 }) {
        Ok(_) => Ok(()),
        Err(error) => Err(Skip(error.to_string().replace('\n', " ")).into()),
    }
}

fn port(address: &str) -> io::Result<Box<dyn Port>> {
    let address: Address = address.parse()?;
    if let Some(port) = squall_port::open(&address)? {
        return Ok(port);
    }
    if let Some(port) = squall_port_linux::open(&address)? {
        return Ok(port);
    }
    Ok(squall_port_dpdk::open(&address)?.expect("a port of this crate"))
}

fn null_conforms() -> Outcome {
    check(Bench { open: &mut || Ok((port("dpdk:vdev=net_null0")?, None)), stored: false });
    Ok(())
}

/// Both ends of a ring, which links a device to itself: frames are passed by pointer.
fn ring(options: &str) -> io::Result<Ends> {
    let ring = Arc::new(Mutex::new(port(&format!("dpdk:vdev=net_ring0{options}"))?));
    let facts = ring.lock().expect("no test has panicked").facts().clone();
    let end = || Box::new(RingEnd { facts: facts.clone(), ring: ring.clone() }) as Box<dyn Port>;
    Ok((end(), Some(end())))
}

struct RingEnd {
    facts: PortFacts,
    ring: Arc<Mutex<Box<dyn Port>>>,
}

impl Port for RingEnd {
    fn facts(&self) -> &PortFacts {
        &self.facts
    }

    fn open_tx(&mut self, queue: u32, max_frame: u32) -> io::Result<Box<dyn TxQueue>> {
        self.ring.lock().expect("no test has panicked").open_tx(queue, max_frame)
    }

    fn open_rx(&mut self, queue: u32) -> io::Result<Box<dyn RxQueue>> {
        self.ring.lock().expect("no test has panicked").open_rx(queue)
    }

    fn interface_counters(&self) -> Option<InterfaceCounters> {
        self.ring.lock().expect("no test has panicked").interface_counters()
    }
}

fn ring_conforms() -> Outcome {
    check(Bench { open: &mut || ring(""), stored: false });
    Ok(())
}

fn memif_in_one_process_conforms() -> Outcome {
    // A new name for each test, because the driver (22.11) keeps the server's socket until the
    // process ends.
    let mut number = 0;
    let open = &mut || {
        number += 1;
        let name = format!("squall-test-{}-{number}", std::process::id());
        let server = port(&format!("dpdk:vdev=net_memif0;role=server;socket={name}"))?;
        Ok((port(&format!("dpdk:vdev=net_memif1;role=client;socket={name}"))?, Some(server)))
    };
    check(Bench { open, stored: false });
    Ok(())
}

fn memif_between_two_processes_carries_all() -> Outcome {
    const FRAMES: u32 = 100_000;
    let name = format!("squall-test-{}", std::process::id());
    let server = format!("dpdk:vdev=net_memif0;role=server;socket={name},wait=20");
    let mut echo = Running(this_test(&["--echo", &server]).stdin(Stdio::null()).spawn()?);
    std::thread::sleep(Duration::from_millis(500));
    let mut client = port(&format!("dpdk:vdev=net_memif0;role=client;socket={name},wait=20"))?;
    let (mut tx, mut rx) = (client.open_tx(0, 60)?, client.open_rx(0)?);
    let mut numbers = vec![];
    let mut next = 0;
    let deadline = Instant::now() + Duration::from_secs(60);
    // Sends only as many frames as the rings hold, because the echo needs room in its own ring.
    while (numbers.len() as u32) < FRAMES && Instant::now() < deadline {
        if next - (numbers.len() as u32) < 512 && next < FRAMES {
            next += send(&mut *tx, next, (FRAMES - next).min(BATCH as u32))?;
        }
        numbers.extend(receive_once(&mut *rx)?);
    }
    assert!(numbers.into_iter().eq(0..FRAMES), "every frame came back, in order");
    let counters = client.interface_counters().expect("memif counts");
    assert_eq!((counters.tx_packets, counters.rx_packets), (FRAMES.into(), FRAMES.into()));
    echo.0.kill()?;
    Ok(())
}

/// A child that is killed at the end of the test.
struct Running(std::process::Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends received frames back.
fn echo(address: &str) -> Outcome {
    let mut port = port(address)?;
    let (mut tx, mut rx) = (port.open_tx(0, 1518)?, port.open_rx(0)?);
    loop {
        let received = rx.receive()?;
        let mut frames = received.iter();
        while frames.len() > 0 {
            let mut batch = tx.lend(frames.len());
            let mut left = batch.len();
            for i in 0..left {
                let (octets, _) = frames.next().expect("no more was lent");
                batch.frame(i, octets.len(), Nanos::ZERO).copy_from_slice(octets);
            }
            while left > 0 {
                left -= tx.send(left)?;
            }
        }
    }
}

/// Opens a port and holds it until killed.
fn hold(address: &str) -> Outcome {
    let mut port = port(address)?;
    let _tx = port.open_tx(0, 60)?;
    println!("open");
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

fn pcap_conforms() -> Outcome {
    let folder = std::env::temp_dir().join(format!("squall-dpdk-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    // The first port writes the file, and the second reads it only when the link is opened again; a
    // check that sends nothing does not open the link again.
    let mut calls = 0;
    let mut written: Option<std::path::PathBuf> = None;
    let open = &mut || {
        const HEADER: u64 = 24;
        calls += 1;
        let full = |file: &std::path::PathBuf| {
            std::fs::metadata(file).is_ok_and(|file| file.len() > HEADER)
        };
        if let Some(file) = written.take().filter(full) {
            let read = format!("dpdk:vdev=net_pcap{calls};rx_pcap={}", file.display());
            return Ok((port("null:")?, Some(port(&read)?)));
        }
        let file = folder.join(format!("{calls}.pcap"));
        std::fs::write(&file, "")?;
        let write = format!("dpdk:vdev=net_pcap{calls};tx_pcap={}", file.display());
        written = Some(file);
        Ok((port(&write)?, Some(port("null:")?)))
    };
    check(Bench { open, stored: true });
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

fn af_packet_conforms() -> Outcome {
    enter()?;
    let open = &mut || {
        let sender = port("dpdk:vdev=net_af_packet0;iface=veth-a")?;
        Ok((sender, Some(port("af_packet:veth-b")?)))
    };
    check(Bench { open, stored: false });
    Ok(())
}

fn af_packet_receives_all() -> Outcome {
    // The common suite does not apply: it has other VLAN tags too, and the driver restores all of
    // them as 802.1Q.
    receives_all("dpdk:vdev=net_af_packet0;iface=veth-b", 128)
}

fn af_xdp_conforms() -> Outcome {
    enter()?;
    // A new queue for each test, because the driver (22.11) keeps its socket until the process
    // ends.
    let mut queue = 0;
    let open = &mut || {
        let sender = port(&format!("dpdk:vdev=net_af_xdp0;iface=veth-a;start_queue={queue}"))?;
        queue += 1;
        Ok((sender, Some(port("af_packet:veth-b")?)))
    };
    check(Bench { open, stored: false });
    Ok(())
}

fn af_xdp_receives_all() -> Outcome {
    // The common suite does not apply: it sends more frames at a time than the ring's 2048, and a
    // veth drops frames for which its peer has no room.
    receives_all("dpdk:vdev=net_af_xdp0;iface=veth-b", 1024)
}

/// Sends frames to `address`, which is at veth-b, with at most `window` of them in flight.
fn receives_all(address: &str, window: u32) -> Outcome {
    const FRAMES: u32 = 20_000;
    lab::enter_private(&LabOptions { mtu: 1500, queues: 1 })
        .map_err(|e| Skip(e.to_string().replace('\n', " ")))?;
    let (mut a, mut b) = (port("af_packet:veth-a")?, port(address)?);
    let (mut tx, mut rx) = (a.open_tx(0, 1518)?, b.open_rx(0)?);
    let mut numbers = vec![];
    let mut next = 0;
    let deadline = Instant::now() + Duration::from_secs(60);
    while (numbers.len() as u32) < FRAMES && Instant::now() < deadline {
        if next - (numbers.len() as u32) < window && next < FRAMES {
            next += send(&mut *tx, next, (FRAMES - next).min(BATCH as u32))?;
        }
        numbers.extend(receive_once(&mut *rx)?);
    }
    assert!(numbers.into_iter().eq(0..FRAMES), "all, in order; drops: {:?}", rx.drops());
    let tagged: Vec<u8> = (0..100)
        .map(|i| {
            if i == 12 {
                0x81
            } else if i == 13 {
                0
            } else {
                i
            }
        })
        .collect();
    tx.lend(1).frame(0, 100, Nanos::ZERO).copy_from_slice(&tagged);
    assert_eq!(tx.send(1)?, 1);
    loop {
        assert!(Instant::now() < deadline, "the frame arrives");
        if let Some((octets, frame)) = rx.receive()?.iter().next() {
            assert_eq!((octets, frame.wire_len), (&tagged[..], 100), "its tag is where it was");
            return Ok(());
        }
    }
}

fn tap_conforms_outwards() -> Outcome {
    enter()?;
    let open =
        &mut || Ok((port("dpdk:vdev=net_tap0;iface=sqtap0")?, Some(port("af_packet:sqtap0")?)));
    check(Bench { open, stored: false });
    Ok(())
}

fn tap_conforms_inwards() -> Outcome {
    enter()?;
    let open = &mut || {
        let tap = port("dpdk:vdev=net_tap0;iface=sqtap0")?;
        Ok((port("af_packet:sqtap0")?, Some(tap)))
    };
    check(Bench { open, stored: false });
    Ok(())
}

/// Sends `n` frames of 60 octets, numbered from `first` on. Returns the number taken.
fn send(tx: &mut dyn TxQueue, first: u32, n: u32) -> Result<u32, SendError> {
    let mut batch = tx.lend(n as usize);
    let n = batch.len();
    for i in 0..n {
        let frame = batch.frame(i, 60, Nanos::ZERO);
        frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5]);
        frame[14..56].fill(0);
        frame[56..60].copy_from_slice(&(first + i as u32).to_be_bytes());
    }
    Ok(tx.send(n)? as u32)
}

/// The numbers of the frames of one batch.
fn receive_once(rx: &mut dyn RxQueue) -> io::Result<Vec<u32>> {
    let number = |octets: &[u8]| u32::from_be_bytes(octets[56..60].try_into().expect("four"));
    Ok(rx.receive()?.iter().map(|(octets, _)| number(octets)).collect())
}

fn a_slot_that_the_other_port_still_has_is_not_lent() -> Outcome {
    let (mut a, b) = ring("")?;
    let mut b = b.expect("two ends");
    let (mut tx, mut rx) = (a.open_tx(0, 60)?, b.open_rx(0)?);
    let mut sent = 0;
    // Sends without receiving, until the slots or the ring are full.
    loop {
        match send(&mut *tx, sent, 64)? {
            0 => break,
            n => sent += n,
        }
    }
    assert!(sent > 500, "a ring holds more than {sent}");
    tx.finish()?;
    let mut numbers = vec![];
    while (numbers.len() as u32) < sent {
        numbers.extend(receive_once(&mut *rx)?);
        // Returned slots are used again at once.
        sent += send(&mut *tx, sent, if sent < 20_000 { 64 } else { 0 })?;
    }
    assert!(numbers.into_iter().eq(0..sent), "no frame was written over");
    Ok(())
}

fn a_queue_may_close_before_its_frames_are_received() -> Outcome {
    for _ in 0..20 {
        let (mut a, b) = ring("")?;
        let mut b = b.expect("two ends");
        let (mut tx, mut rx) = (a.open_tx(0, 60)?, b.open_rx(0)?);
        assert_eq!(send(&mut *tx, 0, 64)?, 64);
        drop((tx, a));
        assert!(receive_once(&mut *rx)?.into_iter().eq(0..64), "what was sent stays");
    }
    Ok(())
}

fn several_queues_send_and_are_counted_together() -> Outcome {
    const FRAMES: u32 = 200_000;
    let mut a = port("dpdk:vdev=net_null0,queues=4")?;
    assert_eq!(a.facts().tx_queues, 4);
    let queues = (0..4).map(|q| a.open_tx(q, 60)).collect::<io::Result<Vec<_>>>()?;
    std::thread::scope(|scope| {
        for mut tx in queues {
            scope.spawn(move || {
                let mut sent = 0;
                while sent < FRAMES {
                    sent += send(&mut *tx, sent, FRAMES - sent).expect("null takes all");
                }
                tx.finish().expect("all is sent");
            });
        }
    });
    assert_eq!(a.interface_counters().expect("null counts").tx_packets, 4 * u64::from(FRAMES));
    Ok(())
}

fn rss_of_several_queues_is_reported() -> Outcome {
    let note = |address: &str| Ok::<_, Box<dyn std::error::Error>>(port(address)?.notes().concat());
    let two = note("dpdk:vdev=net_null0,queues=1,rx_queues=2")?;
    assert!(two.contains("entries) spreads flows over 2 queues"), "{two}");
    // The driver does not report the length of its key, which then stays unchanged.
    assert!(!two.contains("both directions"), "{two}");
    let one = note("dpdk:vdev=net_null0,queues=1,rx_queues=1")?;
    assert!(!one.contains("RSS"), "{one}");
    Ok(())
}

fn a_driver_that_refuses_rules_is_named() -> Outcome {
    for device in ["net_null0", "net_ring0"] {
        let address = format!("dpdk:vdev={device},rx_queues=1,steer=udp/5002");
        let mut port = port(&address)?;
        let refused = port.open_rx(0).err().expect("no rules").to_string();
        let wanted = format!(
            "the driver {} refuses a rule for UDP datagrams of IPv4 to port 5002: Function not \
             implemented",
            device.trim_end_matches('0')
        );
        assert!(refused.contains(&wanted) && refused.contains("try it without steer"), "{refused}");
        assert!(port.open_tx(0, 60).is_ok(), "it still sends");
    }
    let refused = port("dpdk:vdev=net_null0,steer=flows").err().expect("no queue").to_string();
    assert!(refused.contains("steer=flows without a receive queue"), "{refused}");
    let mut port = port("dpdk:vdev=net_null1,rx_queues=1,steer=flows")?;
    let refused = port.open_rx(0).err().expect("no flows").to_string();
    assert!(refused.contains("no flows have their ends on this port"), "{refused}");
    Ok(())
}

/// Opens a port that serves two pools, and closes it.
fn steer(address: &str) -> Outcome {
    let mut port = port(address)?;
    let range = |first: &str, last: &str| -> Result<_, std::net::AddrParseError> {
        Ok(first.parse()?..=last.parse()?)
    };
    let addresses = vec![range("10.0.0.0", "10.0.1.255")?, range("fd00::8", "fd00::9")?];
    port.serve(&Hosts { addresses, ..Hosts::default() })?;
    let queues = 0..port.facts().rx_queues;
    let _rx = queues.map(|queue| port.open_rx(queue)).collect::<io::Result<Vec<_>>>()?;
    Ok(())
}

fn a_driver_gets_the_rules_and_their_end() -> Outcome {
    let output = |command: &mut Command| -> Result<String, Box<dyn std::error::Error>> {
        let done = command.output().map_err(|error| Skip(error.to_string()))?;
        let text = String::from_utf8_lossy(&done.stdout).into_owned();
        let errors = String::from_utf8_lossy(&done.stderr).into_owned();
        if done.status.success() { Ok(text) } else { Err((text + &errors).into()) }
    };
    let folder = std::env::temp_dir().join(format!("squall-rules-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let library = folder.join("rules.so");
    let flags = output(Command::new("pkg-config").args(["--cflags", "libdpdk"]))?;
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/rules.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC"]).args(flags.split_whitespace()).arg(source);
    output(compiler.arg("-o").arg(&library))?;
    let rules = |address: &str| -> Result<Vec<String>, Box<dyn std::error::Error>> {
        let text = output(this_test(&["--steer", address]).env("LD_PRELOAD", &library))?;
        Ok(text.lines().map(str::to_owned).collect())
    };
    let null = "dpdk:vdev=net_null0,queues=1,rx_queues";
    let solicited = "24:ff&ff 25:02&ff 26:00&ff 27:00&ff 28:00&ff 29:00&ff 30:00&ff 31:00&ff \
                     32:00&ff 33:00&ff 34:00&ff 35:01&ff 36:ff&ff";
    let pool = "24:fd&ff 25:00&ff 26:00&ff 27:00&ff 28:00&ff 29:00&ff 30:00&ff 31:00&ff 32:00&ff \
                33:00&ff 34:00&ff 35:00&ff 36:00&ff 37:00&ff 38:00&ff 39:08&fe";
    let wanted = [
        "isolate 1",
        "rule eth ipv4 16:0a&ff 17:00&ff 18:00&fe -> rss 0 1",
        "rule eth 12:08&ff 13:06&ff -> 0",
        &format!("rule eth ipv6 {pool} -> rss 0 1"),
        &format!("rule eth ipv6 {solicited} -> rss 0 1"),
        "flush",
    ];
    assert_eq!(rules(&format!("{null}=2,steer=flows"))?, wanted);
    let wanted = [
        "isolate 1",
        "rule eth ipv4 udp 2:13&ff 3:8a&ff -> 0",
        "rule eth ipv6 udp 2:13&ff 3:8a&ff -> 0",
        "flush",
    ];
    assert_eq!(rules(&format!("{null}=1,steer=udp/5002"))?, wanted);
    let tcp = rules(&format!("{null}=1,steer=tcp/80"))?;
    assert_eq!(tcp[1], "rule eth ipv4 tcp 2:00&ff 3:50&ff -> 0");
    assert!(rules(&format!("{null}=1"))?.is_empty(), "without the option, no rules");
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

/// The driver reads a rule before it passes it to the kernel, which may lack the classifier
/// `flower`: it must then be the kernel that refuses.
fn a_tap_reads_the_rules_of_all_kinds() -> Outcome {
    enter()?;
    let address = |text: &str| text.parse::<std::net::IpAddr>();
    for (number, (steer, addresses)) in [
        ("udp/5002", vec![]),
        ("tcp/80-81", vec![]),
        ("flows", vec![address("10.0.0.0")?..=address("10.0.0.255")?]),
        ("flows", vec![address("fd00::")?..=address("fd00::ff")?]),
    ]
    .into_iter()
    .enumerate()
    {
        let address = format!("dpdk:vdev=net_tap{number};iface=sqtap{number},steer={steer}");
        let mut port = port(&address)?;
        port.serve(&Hosts { addresses, ..Hosts::default() })?;
        if let Err(error) = port.open_rx(0).map(drop) {
            let error = error.to_string();
            assert!(error.contains("the driver net_tap refuses a rule for"), "{error}");
            assert!(error.contains("Kernel too old for flower support"), "{error}");
        }
    }
    Ok(())
}

fn a_port_can_be_opened_again_and_not_twice() -> Outcome {
    let first = port("dpdk:vdev=net_null0")?;
    let error = port("dpdk:vdev=net_null0").err().expect("the name is taken").to_string();
    assert!(error.contains("net_null0 is open already"), "{error}");
    let _second = port("dpdk:vdev=net_null1")?;
    drop(first);
    for _ in 0..300 {
        let mut again = port("dpdk:vdev=net_null0")?;
        assert_eq!(send(&mut *again.open_tx(0, 60)?, 0, 64)?, 64);
        assert!(again.open_tx(0, 60).is_err_and(|e| e.to_string().contains("already open")));
    }
    let error =
        port("dpdk:vdev=net_null5,memory=1024").err().expect("DPDK runs already").to_string();
    assert!(error.contains("first dpdk port") && error.contains("started DPDK already"), "{error}");
    Ok(())
}

fn frames_of_the_queues_own_memory_are_lent() -> Outcome {
    // Room for copies of a batch of frames of the default MTU.
    const COPIES: usize = BATCH * 1536;
    let lent = |rx: &mut dyn RxQueue| -> io::Result<bool> {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let batch = rx.receive()?;
            if batch.frames.is_empty() {
                assert!(Instant::now() < deadline, "a frame arrives");
                continue;
            }
            return Ok(batch.base.len() != COPIES);
        }
    };
    let mut null = port("dpdk:vdev=net_null0,rx_queues=1")?;
    let mut rx = null.open_rx(0)?;
    // More batches than the pool has mbufs for: each batch is freed by the next call.
    for _ in 0..1000 {
        assert!(lent(&mut *rx)?);
    }
    drop((rx, null));
    // The frames of a ring are those of the sender, in its memory.
    let (mut a, b) = ring("")?;
    let (mut tx, mut rx) = (a.open_tx(0, 60)?, b.expect("two ends").open_rx(0)?);
    assert_eq!(send(&mut *tx, 0, 64)?, 64);
    assert!(!lent(&mut *rx)?);
    Ok(())
}

fn jumbo_frames_pass_whole() -> Outcome {
    assert_eq!(ring(",mtu=9000")?.0.facts().max_frame, 9018);
    check(Bench { open: &mut || ring(",mtu=9000"), stored: false });
    Ok(())
}

fn the_process_is_left_as_it_was() -> Outcome {
    let seen = |what: &str| -> io::Result<Vec<String>> {
        let status = std::fs::read_to_string("/proc/thread-self/status")?;
        Ok(status.lines().filter(|line| line.starts_with(what)).map(str::to_owned).collect())
    };
    // The C library installs handlers for the first two real-time signals when the first thread
    // starts.
    std::thread::spawn(|| {}).join().expect("it does nothing");
    let before = (seen("Cpus_allowed")?, seen("SigCgt")?, seen("SigIgn")?, seen("SigBlk")?);
    let _port = port("dpdk:vdev=net_null0")?;
    let after = (seen("Cpus_allowed")?, seen("SigCgt")?, seen("SigIgn")?, seen("SigBlk")?);
    assert_eq!(before, after, "this thread is not pinned, and no signal is taken");
    for task in std::fs::read_dir("/proc/self/task")? {
        let status = std::fs::read_to_string(task?.path().join("status"))?;
        let cpus = before.0.iter().all(|line| status.contains(line.as_str()));
        assert!(cpus, "nor are DPDK's threads: {status}");
    }
    Ok(())
}

fn a_killed_process_leaves_nothing() -> Outcome {
    // An MTU that no driver would choose, so that any change is noticed.
    lab::enter_private(&LabOptions { mtu: 1700, queues: 8 })
        .map_err(|e| Skip(e.to_string().replace('\n', " ")))?;
    let socket = std::env::temp_dir().join(format!("squall-memif-{}", std::process::id()));
    let memif = format!(
        "dpdk:vdev=net_memif0;role=server;socket={};socket-abstract=no,wait=0",
        socket.display()
    );
    let leftovers = || -> Vec<String> {
        let names = |folder: &str| {
            std::fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path())
        };
        let folders = ["/dev/hugepages", "/run/dpdk", "/var/run/dpdk", "/tmp/dpdk", "/dev/shm"];
        let mut all: Vec<_> =
            folders.into_iter().flat_map(names).map(|p| p.display().to_string()).collect();
        // Other processes of this machine may start DPDK meanwhile.
        all.retain(|name| !name.ends_with("/dpdk/squall"));
        let flags = |name: &str| {
            std::fs::read_to_string(format!("/sys/class/net/{name}/flags")).unwrap_or_default()
        };
        let interfaces = squall_port_linux::list_interfaces().into_iter().flatten();
        all.extend(
            interfaces.map(|i| format!("{} mtu {} flags {}", i.name, i.mtu, flags(&i.name).trim())),
        );
        all.sort();
        all
    };
    let before = leftovers();
    for address in [
        "dpdk:vdev=net_tap0;iface=sqtap0",
        "dpdk:vdev=net_af_xdp0;iface=veth-a",
        "dpdk:vdev=net_af_packet0;iface=veth-a",
        &memif,
        &memif,
    ] {
        let mut child = Running(this_test(&["--hold", address]).stdout(Stdio::piped()).spawn()?);
        let mut line = String::new();
        let out = child.0.stdout.take().expect("it is piped");
        io::BufRead::read_line(&mut io::BufReader::new(out), &mut line)?;
        assert_eq!(line, "open\n", "{address}: a socket left behind is no obstacle");
        child.0.kill()?;
        child.0.wait()?;
        for _ in 0..3000 {
            if leftovers() == before {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(leftovers(), before, "{address}");
    }
    // The host's traffic passes, so no XDP program is left.
    check(Bench {
        open: &mut || Ok((port("af_packet:veth-b")?, Some(port("af_packet:veth-a")?))),
        stored: false,
    });
    std::fs::remove_file(&socket)
        .or_else(|e| if e.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(e) })?;
    Ok(())
}

fn a_missing_other_end_is_reported() -> Outcome {
    let name = format!("squall-test-{}", std::process::id());
    let mut alone =
        port(&format!("dpdk:vdev=net_memif0;role=server;socket={name},wait=1,on_link_down=stop"))?;
    let mut tx = alone.open_tx(0, 60)?;
    let deadline = Instant::now() + Duration::from_secs(60);
    let lost = loop {
        assert!(Instant::now() < deadline, "a link that stays down is reported");
        match send(&mut *tx, 0, 1) {
            Ok(taken) => assert_eq!(taken, 0, "nobody takes frames"),
            Err(error) => break error,
        }
    };
    assert!(
        matches!(&lost, SendError::Port(e) if e.kind() == io::ErrorKind::NetworkDown),
        "{lost}"
    );
    assert!(lost.to_string().contains("the link went down"), "{lost}");
    drop((tx, alone));
    let mut alone = port(&format!("dpdk:vdev=net_memif1;role=server;socket={name}-b,wait=0"))?;
    let mut tx = alone.open_tx(0, 60)?;
    let link = alone.link().expect("a memif has a link");
    for _ in 0..10_000 {
        assert_eq!(send(&mut *tx, 0, 1)?, 0, "it waits for the other end");
    }
    assert_eq!(link.state(), squall_port::LinkState::Down);
    assert!(!link.events()[0].up);
    Ok(())
}

fn mistakes_are_reported_with_what_to_try() -> Outcome {
    for (address, words) in [
        ("dpdk:vdev=net_nosuch0", &["net_nosuch0", "net_ring0"][..]),
        ("dpdk:ffff:ff:1f.0", &["ffff:ff:1f.0", "vfio-pci"]),
        ("dpdk:vdev=net_pcap0;rx_pcap=/nonexistent/x.pcap", &["net_pcap0", "DPDK's log"]),
        ("dpdk:vdev=net_null0,queues=100", &[]),
        ("dpdk:vdev=net_ring0,queues=200", &["has at most"]),
        (
            "dpdk:vdev=net_null0,timestamps=hardware",
            &["timestamps=hardware", "does not support it"],
        ),
        ("dpdk:vdev=net_null0,launch=20", &["launch", "does not support it"]),
        ("dpdk:vdev=net_null0,tso=1", &["tso=1", "does not cut TCP frames"]),
        ("dpdk:vdev=net_null0,timestamps=never", &["expected process or hardware"]),
        ("dpdk:vdev=net_null0,bacth=3", &["unknown option bacth"]),
        ("dpdk:vdev=net_null0,mtu=20", &["expected a number from 68"]),
    ] {
        match port(address) {
            Ok(_) => assert!(words.is_empty(), "{address} opens"),
            Err(error) => {
                let error = error.to_string();
                assert!(!words.is_empty(), "{error}");
                assert!(error.contains(address), "{error}");
                assert!(words.iter().all(|word| error.contains(word)), "{address}: {error}");
            }
        }
    }
    let mut null = port("dpdk:vdev=net_null0")?;
    let mut tx = null.open_tx(0, 60)?;
    tx.lend(2).frame(0, 13, Nanos::ZERO);
    assert!(matches!(tx.send(1), Err(SendError::Frame("too_short"))));
    Ok(())
}

fn without_the_shim_the_error_has_build_instructions() -> Outcome {
    let error = {
        // SAFETY: no other thread runs in this process.
        unsafe { std::env::set_var("SQUALL_DPDK_SHIM", "/nonexistent/libsquall_dpdk.so") };
        port("dpdk:vdev=net_null0").err().expect("there is no shim").to_string()
    };
    assert!(
        error.contains("SQUALL_DPDK_SHIM=/nonexistent") && error.contains("make dpdk"),
        "{error}"
    );
    let wrong = std::env::temp_dir().join(format!("squall-noshim-{}.so", std::process::id()));
    std::fs::write(&wrong, "no library")?;
    // SAFETY: as above.
    unsafe { std::env::set_var("SQUALL_DPDK_SHIM", &wrong) };
    let error = port("dpdk:vdev=net_null0").err().expect("that is no library").to_string();
    std::fs::remove_file(&wrong)?;
    assert!(error.contains("cannot load") && error.contains("make dpdk"), "{error}");
    Ok(())
}

//! Tests af_packet over a veth pair, and the lab with that pair: as this user and, if that is root,
//! also as an ordinary user.
//!
//! Each test runs in its own process, because entering a namespace requires a single thread.

mod af_xdp;
mod filters;
mod xdp_live;

use std::{
    error::Error,
    os::unix::process::CommandExt,
    process::{Command, ExitCode},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use squall_port::{
    Address, Cut, Port, RxQueue, SendError, TxQueue,
    conformance::{Bench, check},
};
use squall_port_linux::{
    InterfaceState,
    lab::{self, INTERFACES, Lab, LabError, LabHere, LabOptions},
    list_interfaces, open,
};
use squall_units::Nanos;
use squall_wire::{Packet, Segments};

type Outcome = Result<(), Box<dyn Error>>;

type Test = fn() -> Outcome;

const TESTS: &[(&str, Test)] = &[
    ("af_packet_conforms", af_packet_conforms),
    ("through_the_qdisc_af_packet_conforms_too", through_the_qdisc_af_packet_conforms_too),
    ("the_kernel_and_tcpdump_filter_alike", filters::the_kernel_and_tcpdump_filter_alike),
    (
        "the_engine_runs_programs_too_long_for_the_kernel",
        filters::the_engine_runs_programs_too_long_for_the_kernel,
    ),
    (
        "a_filter_shortens_gso_frames_and_tagged_ones_alike",
        filters::a_filter_shortens_gso_frames_and_tagged_ones_alike,
    ),
    ("filtered_queues_share_the_frames", filters::filtered_queues_share_the_frames),
    ("each_direction_has_its_frames", filters::each_direction_has_its_frames),
    (
        "frames_of_all_interfaces_name_their_interface",
        filters::frames_of_all_interfaces_name_their_interface,
    ),
    (
        "a_stopped_queue_delivers_the_frames_that_it_counted",
        filters::a_stopped_queue_delivers_the_frames_that_it_counted,
    ),
    ("several_receive_queues_share_the_frames", several_receive_queues_share_the_frames),
    ("the_kernel_and_the_engine_cut_alike", the_kernel_and_the_engine_cut_alike),
    ("a_receiver_knows_how_a_gso_frame_is_cut", a_receiver_knows_how_a_gso_frame_is_cut),
    ("only_a_frame_that_cannot_be_cut_is_refused", only_a_frame_that_cannot_be_cut_is_refused),
    ("losses_of_a_full_ring_are_counted", losses_of_a_full_ring_are_counted),
    (
        "half_a_million_frames_at_full_speed_all_arrive",
        half_a_million_frames_at_full_speed_all_arrive,
    ),
    ("a_frame_shorter_than_its_header_is_refused", a_frame_shorter_than_its_header_is_refused),
    ("sending_waits_for_the_link_and_goes_on", sending_waits_for_the_link_and_goes_on),
    ("a_link_that_must_not_go_down_ends_sending", a_link_that_must_not_go_down_ends_sending),
    ("an_interface_that_is_gone_is_a_lost_port", an_interface_that_is_gone_is_a_lost_port),
    (
        "frames_that_the_peer_never_takes_are_given_up_with_a_reason",
        frames_that_the_peer_never_takes_are_given_up_with_a_reason,
    ),
    (
        "a_receiver_of_single_frames_delivers_them_and_reports_it_too",
        a_receiver_of_single_frames_delivers_them_and_reports_it_too,
    ),
    (
        "a_lab_in_the_own_namespace_is_made_once_and_removed",
        a_lab_in_the_own_namespace_is_made_once_and_removed,
    ),
    (
        "a_receiver_delivers_its_frames_and_reports_that_its_link_went_down",
        a_receiver_delivers_its_frames_and_reports_that_its_link_went_down,
    ),
    ("a_wrong_interface_names_near_ones", a_wrong_interface_names_near_ones),
    ("without_permission_the_capability_is_named", without_permission_the_capability_is_named),
    ("the_lab_is_quiet", the_lab_is_quiet),
    ("interfaces_are_listed_with_their_facts", interfaces_are_listed_with_their_facts),
    ("a_lab_stays_until_taken_down", a_lab_stays_until_taken_down),
    (
        "another_process_with_the_id_of_a_lab_is_no_lab",
        another_process_with_the_id_of_a_lab_is_no_lab,
    ),
    ("af_xdp_conforms", af_xdp::af_xdp_conforms),
    ("af_xdp_conforms_in_generic_mode_too", af_xdp::af_xdp_conforms_in_generic_mode_too),
    (
        "af_xdp_exchanges_frames_with_a_packet_socket",
        af_xdp::af_xdp_exchanges_frames_with_a_packet_socket,
    ),
    ("af_xdp_sends_and_receives_on_one_queue", af_xdp::af_xdp_sends_and_receives_on_one_queue),
    ("af_xdp_queues_are_all_received_from", af_xdp::af_xdp_queues_are_all_received_from),
    ("losses_of_a_full_af_xdp_ring_are_counted", af_xdp::losses_of_a_full_af_xdp_ring_are_counted),
    ("all_counters_agree_over_af_xdp", af_xdp::all_counters_agree_over_af_xdp),
    (
        "no_frame_that_af_xdp_takes_passes_while_it_opens",
        af_xdp::no_frame_that_af_xdp_takes_passes_while_it_opens,
    ),
    ("af_xdp_passes_frames_for_the_host", af_xdp::af_xdp_passes_frames_for_the_host),
    ("the_host_answers_while_af_xdp_receives", af_xdp::the_host_answers_while_af_xdp_receives),
    ("af_xdp_killed_leaves_no_program", af_xdp::af_xdp_killed_leaves_no_program),
    (
        "af_xdp_without_bpf_only_sends_and_notes_it",
        af_xdp::af_xdp_without_bpf_only_sends_and_notes_it,
    ),
    (
        "af_xdp_reports_a_bad_frame_and_a_link_that_goes_down",
        af_xdp::af_xdp_reports_a_bad_frame_and_a_link_that_goes_down,
    ),
    ("af_xdp_waits_for_the_link_and_goes_on", af_xdp::af_xdp_waits_for_the_link_and_goes_on),
    ("a_driver_without_rules_is_named", af_xdp::a_driver_without_rules_is_named),
    ("a_nic_has_rules_while_a_port_receives", af_xdp::a_nic_has_rules_while_a_port_receives),
    (
        "an_af_xdp_receiver_delivers_its_frames_and_reports_that_its_link_went_down",
        af_xdp::an_af_xdp_receiver_delivers_its_frames_and_reports_that_its_link_went_down,
    ),
    (
        "an_af_xdp_receiver_reports_that_the_interface_is_gone",
        af_xdp::an_af_xdp_receiver_reports_that_the_interface_is_gone,
    ),
    ("a_queue_has_one_owner", af_xdp::a_queue_has_one_owner),
    (
        "frames_that_the_driver_drops_are_offered_again_then_counted",
        af_xdp::frames_that_the_driver_drops_are_offered_again_then_counted,
    ),
    ("flows_over_veth_get_gso_frames_whole", af_xdp::flows_over_veth_get_gso_frames_whole),
    (
        "without_a_clock_of_the_nic_the_program_stamps_with_a_note",
        af_xdp::without_a_clock_of_the_nic_the_program_stamps_with_a_note,
    ),
    ("af_xdp_polls_and_kicks_as_asked", af_xdp::af_xdp_polls_and_kicks_as_asked),
    (
        "a_moderated_queue_hands_over_the_next_frame_later",
        af_xdp::a_moderated_queue_hands_over_the_next_frame_later,
    ),
    ("bad_af_xdp_options_are_reported", af_xdp::bad_af_xdp_options_are_reported),
    (
        "the_driver_stamps_departures_and_may_be_asked_to_launch",
        af_xdp::the_driver_stamps_departures_and_may_be_asked_to_launch,
    ),
    ("xdp_live_conforms", xdp_live::xdp_live_conforms),
    (
        "frames_leave_when_they_are_due_and_can_be_taken_back",
        xdp_live::frames_leave_when_they_are_due_and_can_be_taken_back,
    ),
    (
        "a_peer_without_napi_and_a_link_that_goes_down_are_reported",
        xdp_live::a_peer_without_napi_and_a_link_that_goes_down_are_reported,
    ),
    (
        "frames_that_are_due_while_the_link_is_down_have_that_reason",
        xdp_live::frames_that_are_due_while_the_link_is_down_have_that_reason,
    ),
    ("an_unattended_call_ends_by_itself", xdp_live::an_unattended_call_ends_by_itself),
];

/// Environment variable with the user that a test runs as, for messages.
const USER: &str = "TEST_USER";

/// The reason why a test cannot run here.
#[derive(Debug)]
struct Skipped(String);

impl std::fmt::Display for Skipped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Skipped {}

/// uid and gid of nobody.
const NOBODY_UID: u32 = 65_534;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--run", name] => return run(name),
        ["--hold", address] => {
            let Err(error) = af_xdp::hold(address);
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
        ["--open-and-close", address] => {
            return af_xdp::open_and_close(address)
                .map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
        }
        // Prints the state of an offload in the lab.
        ["--has", interface, offload] => {
            let on = list_interfaces().is_ok_and(|all| {
                let offloads =
                    all.into_iter().filter(|i| i.name == interface).flat_map(|i| i.offloads);
                offloads.into_iter().any(|o| o.name == offload && o.on)
            });
            println!("{interface}: {offload} {}", if on { "on" } else { "off" });
            return ExitCode::SUCCESS;
        }
        ["--exec", name, ref argv @ ..] => {
            eprintln!("{}", Lab::exec(name, lab::Inside::Lab, argv));
            return ExitCode::FAILURE;
        }
        _ => {}
    }
    if arguments.iter().any(|a| a == "--list") {
        TESTS.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let filter = arguments.iter().find(|a| !a.starts_with('-')).map_or("", String::as_str);
    let root =
        std::fs::metadata("/proc/self").is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0);
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for (name, _) in TESTS.iter().filter(|(name, _)| name.contains(filter)) {
        for as_nobody in [false, true] {
            if as_nobody && !root {
                continue;
            }
            let mut command =
                Command::new(std::env::current_exe().expect("a test knows where it is"));
            command.args(["--run", name]);
            if as_nobody {
                command
                    .uid(NOBODY_UID)
                    .gid(NOBODY_UID)
                    .current_dir("/")
                    .env_remove("XDG_RUNTIME_DIR");
            }
            let user = if as_nobody { "as nobody" } else { "as this user" };
            command.env(USER, user);
            match command.status() {
                Ok(status) if status.success() => {
                    println!("test {name} ({user}) ... ok");
                    passed += 1;
                }
                // 77: automake's exit status of a skipped test.
                Ok(status) if status.code() == Some(77) => skipped += 1,
                Ok(status) => {
                    println!("test {name} ({user}) ... FAILED ({status})");
                    failed += 1;
                }
                Err(error) => {
                    println!("SKIPPED: {name} ({user}): {error}");
                    skipped += 1;
                }
            }
        }
    }
    // In libtest's format, for scripts that add up the results.
    let verdict = if failed == 0 { "ok" } else { "FAILED" };
    println!("\ntest result: {verdict}. {passed} passed; {failed} failed; {skipped} ignored");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(name: &str) -> ExitCode {
    let Some((_, test)) = TESTS.iter().find(|(known, _)| *known == name) else {
        return ExitCode::FAILURE;
    };
    match test() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error)
            if error.is::<Skipped>()
                || error
                    .downcast_ref::<LabError>()
                    .is_some_and(|e| matches!(e, LabError::Forbidden { .. })) =>
        {
            println!("SKIPPED: {name} ({}): {error}", std::env::var(USER).unwrap_or_default());
            ExitCode::from(77)
        }
        Err(error) => {
            println!("{name}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn enter() -> Result<(), LabError> {
    lab::enter_private(&LabOptions::default()).map(drop)
}

fn port(address: &str) -> std::io::Result<Box<dyn Port>> {
    Ok(open(&address.parse::<Address>()?)?.expect("a port of this crate"))
}

fn af_packet_conforms() -> Outcome {
    enter()?;
    for frames in ["", ",frames=1"] {
        let open = &mut || {
            Ok((
                port("af_packet:veth-a")?,
                Some(port(&format!("af_packet:veth-b,blocks=512{frames}"))?),
            ))
        };
        check(Bench { open, stored: false });
    }
    Ok(())
}

fn through_the_qdisc_af_packet_conforms_too() -> Outcome {
    enter()?;
    let open = &mut || {
        Ok((
            port("af_packet:veth-b,bypass=0,batch=7")?,
            Some(port("af_packet:veth-a,block=128,retire=10")?),
        ))
    };
    check(Bench { open, stored: false });
    Ok(())
}

/// Sends 60-octet frames until `n` are taken; each carries its number, and belongs to one of 16
/// flows.
fn send(tx: &mut dyn TxQueue, n: u32) -> Result<(), SendError> {
    let mut next = 0;
    while next < n {
        let mut batch = tx.lend((n - next) as usize);
        let mut left = batch.len();
        for i in 0..left {
            let number = next + i as u32;
            let frame = batch.frame(i, 60, Nanos::ZERO);
            frame.fill(0);
            frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
            // IPv4 and UDP headers, because the kernel's fanout distinguishes flows by them.
            frame[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
            frame[16..18].copy_from_slice(&[0, 46]);
            frame[22..24].copy_from_slice(&[64, 17]);
            frame[26..34].copy_from_slice(&[10, 0, 0, (number % 16) as u8, 10, 0, 1, 1]);
            frame[56..60].copy_from_slice(&number.to_be_bytes());
        }
        while left > 0 {
            left -= tx.send(left)?;
        }
        next += batch_len(next, n);
    }
    Ok(())
}

fn batch_len(next: u32, n: u32) -> u32 {
    (n - next).min(squall_port::BATCH as u32)
}

/// The numbers of the received frames, until none arrives for 50 ms.
fn receive(rx: &mut dyn RxQueue) -> std::io::Result<Vec<u32>> {
    let mut numbers = Vec::new();
    let mut silent = 0;
    while silent < 50 {
        let batch = rx.receive()?;
        numbers.extend(
            batch
                .iter()
                .map(|(octets, _)| u32::from_be_bytes(octets[56..60].try_into().expect("four"))),
        );
        silent = if batch.frames.is_empty() { silent + 1 } else { 0 };
        if silent > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    Ok(numbers)
}

fn several_receive_queues_share_the_frames() -> Outcome {
    enter()?;
    for queues in [2, 5] {
        let (mut a, mut b) = (
            port("af_packet:veth-a")?,
            port(&format!("af_packet:veth-b,rx_queues={queues},blocks=128,retire=20"))?,
        );
        let mut queues =
            (0..queues).map(|queue| b.open_rx(queue)).collect::<std::io::Result<Vec<_>>>()?;
        send(&mut *a.open_tx(0, 60)?, 10_000)?;
        let queues =
            queues.iter_mut().map(|rx| receive(&mut **rx)).collect::<std::io::Result<Vec<_>>>()?;
        // There are 16 flows, each in one of the queues.
        assert!(queues.iter().filter(|q| !q.is_empty()).count() > 1, "one queue has all");
        for queue in &queues {
            for flow in 0..16 {
                let numbers: Vec<_> = queue.iter().filter(|n| *n % 16 == flow).collect();
                assert!(
                    numbers.is_empty() || numbers.len() == 625,
                    "a flow is in one queue: {}",
                    numbers.len()
                );
                assert!(numbers.is_sorted(), "in order");
            }
        }
        let mut all = queues.concat();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..10_000), "each frame is in one of the queues");
    }
    Ok(())
}

/// GSO frames (text, octets), and the payload length of their segments.
const GSO_FRAMES: [(&str, usize, u16); 12] = [
    ("eth/ipv4(id=65530)/tcp(seq=4294960000,flags=FPAC)/payload(random)", 65_000, 1460),
    (
        "eth/ipv4(tos=3)/tcp(flags=SPAUEC,options=[mss(1460),nop,timestamp(7,8)])/payload(random)",
        20_001,
        1000,
    ),
    ("eth/vlan(id=7)/ipv4(flags=DF)/tcp(flags=PA)/payload(random)", 9000, 1448),
    ("eth/ipv6/tcp(flags=PA)/payload(random)", 60_000, 1440),
    ("eth/vlan(id=8)/ipv6/tcp(flags=FA)/payload(random)", 1500, 100),
    ("eth/ipv4(id=7)/udp/payload(random)", 42 + 64 * 18, 18),
    ("eth/ipv4(id=65535)/udp/payload(random)", 65_000, 1472),
    ("eth/vlan(id=7)/ipv4/udp/payload(random)", 46 + 999, 333),
    ("eth/ipv6/udp/payload(random)", 62 + 63 * 999 + 1, 999),
    // A frame no longer than one segment leaves as it is, with its checksum.
    ("eth/ipv4(id=9)/tcp(flags=FPAC)/payload(random)", 1000, 946),
    ("eth/ipv4(id=9)/udp/payload(random)", 1000, 1000),
    ("eth/ipv6/tcp(flags=FPAC)/payload(random)", 1000, 999),
];

fn gso_frame(index: usize) -> (Vec<u8>, Cut) {
    let (text, len, size) = GSO_FRAMES[index];
    let packet = Packet::parse(text).expect("packet text");
    let frame =
        packet.build(Some(len), &|_| unreachable!(), index as u64).expect("the headers fit");
    let transport = frame
        .layers
        .iter()
        .find(|l| matches!(l.header.name, "tcp" | "udp"))
        .expect("one of both")
        .offset;
    (frame.bytes, Cut { size, transport: transport as u8, payload: frame.payload as u8 })
}

fn segments((octets, cut): &(Vec<u8>, Cut)) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let segments = Segments::new(octets, cut.size.into(), cut.transport.into(), cut.payload.into());
    segments.for_each(&mut Vec::new(), |frame| frames.push(frame.to_vec()));
    frames
}

/// Sends all GSO frames in order, with plain frames between them, three times.
fn send_gso_frames(tx: &mut dyn TxQueue) -> Result<Vec<(Vec<u8>, Cut)>, SendError> {
    send_gso_frames_and(tx, |_| Ok(()))
}

/// As [`send_gso_frames`], but calls `wait` with the number of frames sent so far before it sends
/// more.
fn send_gso_frames_and(
    tx: &mut dyn TxQueue,
    mut wait: impl FnMut(usize) -> Result<(), SendError>,
) -> Result<Vec<(Vec<u8>, Cut)>, SendError> {
    let mut sent = Vec::new();
    for round in 0..3 {
        for index in 0..GSO_FRAMES.len() {
            let mut frames = vec![gso_frame(index)];
            if round > 0 {
                frames.push((frames[0].0[..100].to_vec(), Cut::WHOLE));
            }
            let mut batch = tx.lend(frames.len());
            assert_eq!(batch.len(), frames.len(), "an idle queue has room");
            for (i, (octets, cut)) in frames.iter().enumerate() {
                batch.frame(i, octets.len(), Nanos::ZERO).copy_from_slice(octets);
                batch.meta[i].cut = *cut;
            }
            let mut left = frames.len();
            while left > 0 {
                left -= tx.send(left)?;
            }
            sent.extend(frames);
            wait(sent.len())?;
        }
    }
    tx.finish()?;
    Ok(sent)
}

/// Receives into `frames` until there are `count`, or none arrives for 10 s.
fn receive_until(
    rx: &mut dyn RxQueue,
    frames: &mut Vec<(Vec<u8>, Cut, u32)>,
    count: usize,
) -> std::io::Result<()> {
    let mut last = Instant::now();
    while frames.len() < count && last.elapsed() < Duration::from_secs(10) {
        let batch = rx.receive()?;
        frames.extend(
            batch.iter().map(|(octets, frame)| (octets.to_vec(), frame.cut, frame.wire_len)),
        );
        if batch.frames.is_empty() {
            std::thread::sleep(Duration::from_micros(100));
        } else {
            last = Instant::now();
        }
    }
    Ok(())
}

/// All frames that arrive within 50 ms.
fn receive_frames(rx: &mut dyn RxQueue) -> std::io::Result<Vec<(Vec<u8>, Cut, u32)>> {
    let mut frames = Vec::new();
    let mut empty = 0;
    while empty < 50 {
        let batch = rx.receive()?;
        frames.extend(
            batch.iter().map(|(octets, frame)| (octets.to_vec(), frame.cut, frame.wire_len)),
        );
        empty = if batch.frames.is_empty() { empty + 1 } else { 0 };
        if batch.frames.is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    Ok(frames)
}

/// On an interface without offloads the kernel segments frames itself; its result equals
/// [`Segments`] octet for octet.
fn the_kernel_and_the_engine_cut_alike() -> Outcome {
    enter()?;
    let off = ["tx", "tso", "tx-udp-segmentation", "gso", "sg"]
        .into_iter()
        .flat_map(|feature| [feature, "off"]);
    match Command::new("ethtool").args(["-K", "veth-a"]).args(off).output() {
        Ok(done) if done.status.success() => {}
        other => {
            return Err(Skipped(format!("ethtool -K veth-a tx off ...: {other:?}")).into());
        }
    }
    for bypass in ["", ",bypass=0"] {
        let (mut a, mut b) =
            (port(&format!("af_packet:veth-a{bypass}"))?, port("af_packet:veth-b,blocks=2048")?);
        let (mut tx, mut rx) = (a.open_tx(0, 65_535)?, b.open_rx(0)?);
        let sent = send_gso_frames(&mut *tx)?;
        let expected: Vec<_> = sent
            .iter()
            .flat_map(|f| if f.1.is_whole() { vec![f.0.clone()] } else { segments(f) })
            .collect();
        let received = receive_frames(&mut *rx)?;
        assert_eq!(received.len(), expected.len());
        for (i, (found, expected)) in received.iter().zip(&expected).enumerate() {
            assert_eq!(found.1, Cut::WHOLE);
            assert!(
                found.0 == *expected,
                "frame {i}:\n{:02x?}\n{:02x?}",
                &found.0[..80.min(found.0.len())],
                &expected[..80.min(expected.len())]
            );
        }
    }
    Ok(())
}

fn a_receiver_knows_how_a_gso_frame_is_cut() -> Outcome {
    enter()?;
    for (gro, known) in [
        (",retire=1", true),
        (",gro=0,retire=1", false),
        (",frames=1", true),
        (",gro=0,frames=1", false),
    ] {
        let (mut a, mut b) = (port("af_packet:veth-a")?, port(&format!("af_packet:veth-b{gro}"))?);
        let (mut tx, mut rx) = (a.open_tx(0, 65_535)?, b.open_rx(0)?);
        // With `frames=1` long frames wait in the socket's receive queue, whose size
        // net.core.rmem_max limits for unprivileged users. The number in flight depends on
        // net.core.wmem_max.
        let mut received = Vec::new();
        let sent = send_gso_frames_and(&mut *tx, |count| {
            Ok(receive_until(&mut *rx, &mut received, count)?)
        })?;
        received.extend(receive_frames(&mut *rx)?);
        assert_eq!(received.len(), sent.len(), "veth hands them on whole");
        for (i, (found, sent)) in received.iter().zip(&sent).enumerate() {
            assert_eq!(
                (found.0.len(), found.2 as usize),
                (sent.0.len(), sent.0.len()),
                "nothing is cut off: {i}"
            );
            let joined = sent.1.segments(sent.0.len() as u32) > 1;
            assert_eq!(found.1, if known && joined { sent.1 } else { Cut::WHOLE }, "{i}");
            if known && joined {
                assert!(segments(&(found.0.clone(), found.1)) == segments(sent), "{i}");
            }
        }
    }
    Ok(())
}

fn only_a_frame_that_cannot_be_cut_is_refused() -> Outcome {
    enter()?;
    let (mut a, mut b) = (port("af_packet:veth-a")?, port("af_packet:veth-b")?);
    let (mut tx, mut rx) = (a.open_tx(0, 65_535)?, b.open_rx(0)?);
    let good = gso_frame(0);
    // Many more datagrams than the kernel allows in one GSO frame.
    let (octets, cut) = gso_frame(6);
    let bad = (octets, Cut { size: 18, ..cut });
    let mut batch = tx.lend(3);
    for (i, (octets, cut)) in [&good, &bad, &good].into_iter().enumerate() {
        batch.frame(i, octets.len(), Nanos::ZERO).copy_from_slice(octets);
        batch.meta[i].cut = *cut;
    }
    assert_eq!(tx.send(3)?, 1);
    let refused = tx.send(2);
    assert!(matches!(refused, Err(SendError::Frame("not_cut"))), "{refused:?}");
    assert_eq!(tx.send(1)?, 1);
    assert_eq!(receive_frames(&mut *rx)?.len(), 2);
    assert!(a.open_tx(1, 65_554).is_err(), "no IPv4 packet is as long");
    Ok(())
}

fn losses_of_a_full_ring_are_counted() -> Outcome {
    enter()?;
    for frames in ["", ",frames=1"] {
        let (mut a, mut b) = (
            port("af_packet:veth-a")?,
            port(&format!("af_packet:veth-b,blocks=2,block=128{frames}"))?,
        );
        let mut rx = b.open_rx(0)?;
        send(&mut *a.open_tx(0, 60)?, 20_000)?;
        let received = receive(&mut *rx)?;
        let drops = rx.drops();
        assert!(drops[0].1 > 0, "two blocks are not enough: {drops:?}");
        assert_eq!(received.len() as u64 + drops[0].1, 20_000, "{drops:?}");
        assert_eq!(rx.drops(), drops, "counts are not forgotten when read");
    }
    Ok(())
}

fn half_a_million_frames_at_full_speed_all_arrive() -> Outcome {
    enter()?;
    let (mut a, mut b) = (port("af_packet:veth-a")?, port("af_packet:veth-b")?);
    let (mut tx, mut rx) = (a.open_tx(0, 60)?, b.open_rx(0)?);
    let sent = AtomicBool::new(false);
    let received = std::thread::scope(|scope| {
        let receiver = scope.spawn(|| -> std::io::Result<Vec<u32>> {
            let mut numbers = Vec::new();
            while !sent.load(Ordering::Acquire) {
                numbers.extend(receive(&mut *rx)?);
            }
            numbers.extend(receive(&mut *rx)?);
            Ok(numbers)
        });
        let outcome = send(&mut *tx, 500_000);
        sent.store(true, Ordering::Release);
        outcome.map(|()| receiver.join().expect("the receiver does not panic"))
    })??;
    assert!(received.into_iter().eq(0..500_000), "all, in order; drops: {:?}", rx.drops());
    let (tx, rx) = (
        a.interface_counters().expect("veth counts"),
        b.interface_counters().expect("veth counts"),
    );
    assert_eq!((tx.tx_packets, tx.tx_octets), (500_000, 500_000 * 60));
    assert_eq!((rx.rx_packets, rx.rx_octets), (500_000, 500_000 * 60));
    Ok(())
}

fn a_frame_shorter_than_its_header_is_refused() -> Outcome {
    enter()?;
    let mut a = port("af_packet:veth-a")?;
    let mut tx = a.open_tx(0, 60)?;
    tx.lend(1).frame(0, 13, Nanos::ZERO);
    assert!(matches!(tx.send(1), Err(SendError::Frame("too_short"))));
    // max_frame includes a VLAN tag, which this frame does not have.
    let max_frame = a.facts().max_frame;
    let mut tx = a.open_tx(1, max_frame)?;
    tx.lend(1).frame(0, max_frame as usize, Nanos::ZERO).fill(0x55);
    assert!(matches!(tx.send(1), Err(SendError::Frame("too_long"))));
    assert_eq!(a.interface_counters().expect("veth counts").tx_packets, 0);
    Ok(())
}

/// Waits until the port reports that its link is `up` (or down).
fn wait_for_link(port: &dyn Port, up: bool) {
    let link = port.link().expect("an interface has a link");
    let deadline = Instant::now() + Duration::from_secs(60);
    while link.is_up() != up {
        assert!(Instant::now() < deadline, "{}: the link is never seen {up}", port.facts().address);
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// The link's changes so far: up or down.
fn changes(port: &dyn Port) -> Vec<bool> {
    port.link().expect("an interface has a link").events().iter().map(|event| event.up).collect()
}

fn sending_waits_for_the_link_and_goes_on() -> Outcome {
    enter()?;
    waits_for_the_link(port("af_packet:veth-a")?, port("af_packet:veth-b")?)?;
    // With the bypass the kernel does not refuse frames without a carrier.
    waits_for_the_link(port("af_packet:veth-a,bypass=0")?, port("af_packet:veth-b,frames=1")?)
}

/// `a` sends, `b` receives: the two interfaces of the lab.
fn waits_for_the_link(mut a: Box<dyn Port>, mut b: Box<dyn Port>) -> Outcome {
    let (mut rx, mut tx) = (b.open_rx(0)?, a.open_tx(0, 60)?);
    send(&mut *tx, 100)?;
    assert!(receive(&mut *rx)?.into_iter().eq(0..100));
    // First the peer's interface goes down, then the sender's.
    for (flaps, end) in [(1, "veth-b"), (2, "veth-a")] {
        let down = std::thread::spawn(move || lab::set_down(end));
        // No call fails while the link goes down; frames taken then may be lost.
        while a.link().expect("it has a link").is_up() || !down.is_finished() {
            let mut batch = tx.lend(3);
            (0..batch.len()).for_each(|i| batch.frame(i, 60, Nanos::ZERO).fill(0));
            tx.send(3)?;
        }
        down.join().expect("it ends")?;
        wait_for_link(&*b, false);
        if !a.facts().address.contains("bypass=0") {
            for _ in 0..1000 {
                tx.lend(1).frame(0, 60, Nanos::ZERO).fill(0);
                assert_eq!(tx.send(1)?, 0, "nothing is taken, and nothing is an error");
            }
        }
        receive(&mut *rx)?;
        lab::set_up(end)?;
        wait_for_link(&*a, true);
        wait_for_link(&*b, true);
        send(&mut *tx, 100)?;
        assert!(receive(&mut *rx)?.into_iter().eq(0..100), "after {end} came up again");
        for port in [&a, &b] {
            assert_eq!(changes(&**port), [false, true].repeat(flaps));
            let events = port.link().expect("it has a link").events();
            assert!(events.windows(2).all(|pair| pair[0].at <= pair[1].at));
        }
    }
    Ok(())
}

fn a_link_that_must_not_go_down_ends_sending() -> Outcome {
    enter()?;
    let open = |end| port(&format!("af_packet:{end},on_link_down=stop"));
    let (mut a, mut b) = (open("veth-a")?, open("veth-b")?);
    let (mut from_a, mut from_b) = (a.open_tx(0, 60)?, b.open_tx(0, 60)?);
    lab::set_down("veth-b")?;
    for (end, tx) in [("veth-a", &mut from_a), ("veth-b", &mut from_b)] {
        let lost = (0..100_000).find_map(|_| send(&mut **tx, 1).err()).expect("nothing can leave");
        assert!(
            matches!(&lost, SendError::Port(e) if e.kind() == std::io::ErrorKind::NetworkDown),
            "{lost}"
        );
        assert!(
            lost.to_string().contains(end) && lost.to_string().contains("on_link_down=stop"),
            "{lost}"
        );
    }
    let error = port("af_packet:veth-b").err().expect("the interface is down").to_string();
    assert!(error.contains("ip link set veth-b up"), "{error}");
    let error = port("af_packet:veth-a,on_link_down=pause")
        .err()
        .expect("there is no such way")
        .to_string();
    assert!(error.contains("wait or stop"), "{error}");
    Ok(())
}

fn an_interface_that_is_gone_is_a_lost_port() -> Outcome {
    enter()?;
    let (mut a, mut b) = (port("af_packet:veth-a")?, port("af_packet:veth-b")?);
    let (mut tx, mut rx) = (a.open_tx(0, 60)?, b.open_rx(0)?);
    send(&mut *tx, 10)?;
    let deleted = Command::new("ip").args(["link", "del", "veth-a"]).status();
    if !deleted.is_ok_and(|status| status.success()) {
        return Err(Skipped("needs ip".into()).into());
    }
    let lost = (0..100_000).find_map(|_| send(&mut *tx, 1).err()).expect("nothing can leave");
    assert!(
        matches!(&lost, SendError::Port(e) if e.kind() == std::io::ErrorKind::NotFound),
        "{lost}"
    );
    assert_eq!(lost.to_string(), "port lost: veth-a: the interface is gone");
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

fn frames_that_the_peer_never_takes_are_given_up_with_a_reason() -> Outcome {
    lab::enter_private(&LabOptions { mtu: 1500, queues: 1 })?;
    let shorter = Command::new("ip").args(["link", "set", "veth-b", "mtu", "1000"]).status();
    if !shorter.is_ok_and(|status| status.success()) {
        return Err(Skipped("needs ip".into()).into());
    }
    let (mut a, mut b) = (port("af_packet:veth-a")?, port("af_packet:veth-b")?);
    let (mut tx, mut rx) = (a.open_tx(0, 1514)?, b.open_rx(0)?);
    let lengths = [1514usize, 60, 1300, 60];
    let (mut sent, mut dropped) = (0, 0);
    let deadline = Instant::now() + Duration::from_secs(60);
    for _ in 0..10 {
        let mut batch = tx.lend(lengths.len());
        for (i, len) in lengths.into_iter().enumerate() {
            batch.frame(i, len, Nanos::ZERO).fill(0);
        }
        let mut left = lengths.len();
        while left > 0 {
            assert!(Instant::now() < deadline, "{sent} sent, {dropped} dropped");
            match tx.send(left) {
                Ok(n) => (sent, left) = (sent + n, left - n),
                Err(SendError::Frame("dropped_by_driver")) => {
                    (dropped, left) = (dropped + 1, left - 1)
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
    assert_eq!((sent, dropped), (20, 20));
    assert_eq!(receive_frames(&mut *rx)?.len(), 20);
    Ok(())
}

fn a_lab_in_the_own_namespace_is_made_once_and_removed() -> Outcome {
    enter()?;
    let ip = |arguments: &str| {
        let done = Command::new("ip").args(arguments.split(' ')).status();
        if done.is_ok_and(|status| status.success()) {
            Ok(())
        } else {
            Err(Skipped("needs ip".into()))
        }
    };
    let options = LabOptions::default();
    // A private lab is kept, and removed only with its namespace.
    lab::make_here(&options)?;
    assert_eq!(lab::here()?, Some(LabHere { removable: false }));
    assert!(!lab::remove_here()?);
    ip("link del veth-a")?;
    assert_eq!(lab::here()?, None);
    for _ in 0..2 {
        lab::make_here(&options)?;
    }
    let made: Vec<_> = list_interfaces()?.into_iter().filter(|found| found.of_lab).collect();
    assert_eq!(made.len(), 2);
    assert!(made.iter().all(|found| found.state == InterfaceState::Up), "{made:?}");
    assert_eq!(lab::here()?, Some(LabHere { removable: true }));
    assert!(lab::remove_here()? && !lab::remove_here()?);
    assert_eq!(lab::here()?, None);
    // Interfaces that only have the name are not touched.
    ip("link add veth-a type veth peer name other")?;
    let refused = lab::make_here(&options).expect_err("the name is taken").to_string();
    assert!(refused.contains("veth-a exists already"), "{refused}");
    assert!(!lab::remove_here()?);
    Ok(())
}

fn a_receiver_delivers_its_frames_and_reports_that_its_link_went_down() -> Outcome {
    enter()?;
    delivers_frames_and_reports_the_end("af_packet:veth-b,on_link_down=stop")
}

fn a_receiver_of_single_frames_delivers_them_and_reports_it_too() -> Outcome {
    enter()?;
    delivers_frames_and_reports_the_end("af_packet:veth-b,frames=1,on_link_down=stop")
}

/// `address` is a port on veth-b.
fn delivers_frames_and_reports_the_end(address: &str) -> Outcome {
    let (mut a, mut b) = (port("af_packet:veth-a")?, port(address)?);
    let (mut tx, mut rx) = (a.open_tx(0, 60)?, b.open_rx(0)?);
    send(&mut *tx, 100)?;
    lab::set_down("veth-b")?;
    let mut came = 0;
    let deadline = Instant::now() + Duration::from_secs(60);
    let error = loop {
        match rx.receive() {
            Ok(batch) => came += batch.frames.len(),
            Err(error) => break error,
        }
        assert!(
            Instant::now() < deadline,
            "{address} never says that its interface was taken down"
        );
        std::thread::sleep(Duration::from_micros(100));
    };
    assert!(came >= 100, "{came}");
    assert_eq!(error.kind(), std::io::ErrorKind::NetworkDown);
    assert_eq!(error.to_string(), "veth-b: the link went down, and on_link_down=stop");
    Ok(())
}

fn a_wrong_interface_names_near_ones() -> Outcome {
    enter()?;
    let error = port("af_packet:veht-a").err().expect("there is no such interface").to_string();
    assert!(
        error.contains("did you mean veth-a?")
            && error.contains("lo, ")
            && error.contains("veth-b"),
        "{error}"
    );
    let error = port("af_packet:quite-else").err().expect("there is no such interface").to_string();
    assert!(!error.contains("did you mean"), "{error}");
    let error = port("af_packet:veth-a,bacth=3").err().expect("there is no such option");
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{error}");
    Ok(())
}

fn without_permission_the_capability_is_named() -> Outcome {
    match port("af_packet:lo") {
        Ok(_) => println!(
            "without_permission_the_capability_is_named: this user has it; nobody, who has not, \
             is next"
        ),
        Err(error) => {
            assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied, "{error}");
            let error = error.to_string();
            assert!(
                error.contains("setcap cap_net_raw+ep") && error.contains("squall lab"),
                "{error}"
            );
        }
    }
    Ok(())
}

fn the_lab_is_quiet() -> Outcome {
    enter()?;
    let ports = [port("af_packet:veth-a")?, port("af_packet:veth-b")?];
    std::thread::sleep(Duration::from_millis(2500));
    for port in &ports {
        let counters = port.interface_counters().expect("veth counts");
        assert_eq!((counters.tx_packets, counters.rx_packets), (0, 0), "{counters:?}");
    }
    Ok(())
}

fn interfaces_are_listed_with_their_facts() -> Outcome {
    lab::enter_private(&LabOptions { mtu: 4000, queues: 3 })?;
    let all = list_interfaces()?;
    let names: Vec<_> = all.iter().map(|i| i.name.as_str()).collect();
    assert_eq!(names, ["lo", "veth-a", "veth-b"]);
    let veth = &all[1];
    assert_eq!(
        (veth.driver.as_str(), veth.mtu, veth.tx_queues, veth.rx_queues),
        ("veth", 4000, 3, 3)
    );
    assert_eq!(
        (veth.state, veth.speed_bps),
        (InterfaceState::Up, None),
        "the speed of a veth means nothing"
    );
    assert!(veth.mac.is_some() && veth.ethernet && veth.timestamping.software_rx, "{veth:?}");
    assert_eq!(
        (&veth.bus[..], veth.numa_node, veth.timestamping.clock, veth.rss_entries),
        ("", None, None, 0)
    );
    let on = |name| veth.offloads.iter().find(|o| o.name == name).map(|o| o.on);
    assert_eq!(
        (on("tx_checksum"), on("tso"), on("gro"), on("rx_vlan")),
        (Some(true), Some(true), Some(false), Some(true))
    );
    if let Some(channels) = veth.channels {
        assert_eq!((channels.tx, channels.rx, channels.max_tx, channels.max_rx), (3, 3, 3, 3));
    }
    // Kernels report it since 6.3.
    if let Some(features) = veth.xdp.features {
        assert!(
            features.native && features.redirect && features.multi_buffer && !features.zero_copy,
            "{features:?}"
        );
        assert!(!all[0].xdp.features.is_some_and(|lo| lo.native), "{:?}", all[0]);
    }
    assert!(veth.xdp.programs.is_empty(), "{veth:?}");
    let facts = port("af_packet:veth-a")?.facts().clone();
    assert_eq!((facts.max_frame, facts.mac, facts.speed_bps), (4018, veth.mac, None));
    Ok(())
}

fn a_lab_stays_until_taken_down() -> Outcome {
    let name = format!("test-{}", std::process::id());
    // The process that holds the lab reports the kernel's refusal as text.
    if let Err(error) = Lab::up(&name, &LabOptions::default(), None) {
        if error.to_string().contains("user namespace") {
            return Err(Skipped(error.to_string()).into());
        }
        return Err(error.into());
    }
    let outcome = std::panic::catch_unwind(|| {
        assert!(
            Lab::up(&name, &LabOptions::default(), None)
                .is_err_and(|e| e.to_string().contains("is up already"))
        );
        assert!(Lab::list().expect("a list").iter().any(|lab| lab.name == name));
        for _ in 0..2 {
            let seen = in_lab(&name, &["cat", "/proc/net/dev"]);
            assert!(INTERFACES.iter().all(|i| seen.contains(i)), "{seen}");
        }
        let seen = in_lab(&name, &["ls", "/sys/class/net"]);
        assert!(seen.contains("veth-a"), "sysfs shows the lab: {seen}");
        let this_test = std::env::current_exe().expect("a test knows where it is");
        for interface in INTERFACES {
            let seen = in_lab(&name, &[&this_test.to_string_lossy(), "--has", interface, "gro"]);
            assert_eq!(
                seen.trim(),
                format!("{interface}: gro on"),
                "its peer takes frames from XDP only then"
            );
        }
    });
    Lab::down(&name)?;
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
    let error = Lab::down(&name).expect_err("it is down").to_string();
    assert!(error.contains("is not up"), "{error}");
    Ok(())
}

/// The output of a command that runs in the lab, in a child of this process.
fn in_lab(name: &str, argv: &[&str]) -> String {
    let this_test = std::env::current_exe().expect("a test knows where it is");
    let output = Command::new(this_test)
        .args(["--exec", name])
        .args(argv)
        .output()
        .expect("a test can run itself");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn another_process_with_the_id_of_a_lab_is_no_lab() -> Outcome {
    let name = format!("stale-{}", std::process::id());
    for bad in ["", "a/b", "..", "a b", &"x".repeat(33)] {
        assert!(
            Lab::find(bad).is_err_and(|e| e.to_string().contains("expected a name")),
            "{bad:?}"
        );
    }
    // Simulates an earlier process that had this process's id.
    let directory = lab::state_directory()?;
    std::fs::write(directory.join(format!("lab-{name}")), format!("{} 1\n", std::process::id()))?;
    let error = Lab::down(&name).expect_err("that lab is gone").to_string();
    assert!(error.contains("is not up"), "{error}");
    assert!(!directory.join(format!("lab-{name}")).exists(), "what is stale is cleared");
    Ok(())
}

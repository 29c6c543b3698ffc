//! A link that goes down during a run and comes up again. On every kind of port that has a link,
//! sending waits and continues, frames that are due meanwhile are counted as such, and the report
//! has the times. Also tests a link that stays down.
//!
//! Each test runs in its own process, because a process may only enter a private network while it
//! has one thread.

mod harness;

use std::{
    process::{Command, ExitCode},
    thread::sleep,
    time::{Duration, Instant},
};

use harness::{Outcome, Skipped, Test, same};
use squall::{
    Format, Profile, Run, Session,
    report::{LinkEvent, ReasonCode, Report},
};
use squall_port_linux::lab::{self, LabOptions};
use squall_profile::Replay;

const TESTS: &[(&str, Test)] = &[
    ("streams_over_af_packet_wait_for_the_link", || {
        streams("af_packet:veth-a", "af_packet:veth-b")
    }),
    ("streams_over_af_xdp_wait_for_the_link", || {
        streams("af_xdp:veth-a,rx_queues=0", "af_xdp:veth-b,take=all")
    }),
    ("streams_over_xdp_live_wait_for_the_link", || {
        streams("xdp_live:veth-a", "af_xdp:veth-b,take=all")
    }),
    ("a_run_that_ends_by_a_count_keeps_its_count", count),
    ("captures_over_af_packet_wait_for_the_link", || captures("af_packet:veth-a")),
    ("captures_over_xdp_live_wait_for_the_link", || captures("xdp_live:veth-a")),
    ("flows_go_on_when_the_link_is_up_again", flows),
    ("a_link_that_must_not_go_down_ends_the_run", || {
        ends("af_packet:veth-a,on_link_down=stop", false)
    }),
    ("an_interface_that_is_deleted_ends_the_run", || ends("af_packet:veth-a", true)),
    ("an_interface_that_is_deleted_ends_a_run_over_xdp_live", || ends("xdp_live:veth-a", true)),
    ("what_the_peer_never_takes_is_named_as_such", too_long_for_the_peer),
    ("a_receiver_whose_link_was_down_is_not_valid", || {
        receiver("veth-d", &["down"], &["up"], ReasonCode::LinkDown)
    }),
    ("a_receiver_that_lost_its_carrier_is_not_valid", || {
        receiver("veth-c", &["down"], &["up"], ReasonCode::LinkDown)
    }),
    ("a_receiver_whose_mtu_was_lowered_is_not_valid", || {
        receiver("veth-d", &["mtu", "500"], &["mtu", "1500"], ReasonCode::ReceiverBound)
    }),
];

fn main() -> ExitCode {
    harness::main(TESTS)
}

const PPS: u64 = 2000;

fn enter(address: &str) -> Outcome {
    lab::enter_private(&LabOptions { mtu: 1500, queues: 1 })?;
    if !address.starts_with("af_packet") {
        squall_port_linux::Permissions::of_this_process().xdp_programs().map_err(Skipped)?;
    }
    Ok(())
}

fn start(text: &str) -> Result<Run, Box<dyn std::error::Error>> {
    let profile = Profile::parse(text, "link.toml", Format::Toml).map_err(|e| e.to_string())?;
    Ok(Session::new(profile).open()?.start()?)
}

fn stream(from: &str, to: &str, more: &str) -> String {
    format!(
        "[ports]\nA = \"{from}\"\nB = \"{to}\"\n[[stream]]\nport = \"A\"\npacket = \
         \"eth/ipv4/udp\"\nlatency = true\nrate = \"{PPS} pps\"\n{more}\n"
    )
}

/// Waits until `now` returns true; on timeout fails with the last report.
fn until(
    what: &str,
    run: &mut Run,
    mut now: impl FnMut(&Report) -> bool,
) -> Result<Report, Box<dyn std::error::Error>> {
    let begun = Instant::now();
    loop {
        let (_, report) = run.sample();
        if now(&report) {
            return Ok(report);
        }
        if begun.elapsed() > Duration::from_secs(60) {
            return Err(format!("{what}: never; {:?}", report.ports).into());
        }
        sleep(Duration::from_millis(5));
    }
}

fn sends_more(what: &str, run: &mut Run) -> Result<Report, Box<dyn std::error::Error>> {
    let sent = run.sample().1.ports[0].tx.packets;
    until(what, run, |report| report.ports[0].tx.packets > sent + 100)
}

fn link_down(report: &Report) -> u64 {
    report.ports[0].tx.not_sent.get("link_down").copied().unwrap_or(0)
}

fn changes(report: &Report) -> Vec<bool> {
    report.ports[0].link_events.iter().map(|event| event.up).collect()
}

/// Total time in seconds for which the link was down.
fn down_s(events: &[LinkEvent]) -> f64 {
    events.chunks_exact(2).map(|pair| pair[1].t_s - pair[0].t_s).sum()
}

/// Sets `end` down and up again while `run` sends.
fn flap(run: &mut Run, end: &str) -> Outcome {
    let before = changes(&run.sample().1).len();
    lab::set_down(end)?;
    until("the link is down", run, |report| changes(report).len() == before + 1)?;
    sleep(Duration::from_millis(200));
    let (_, still) = run.sample();
    sleep(Duration::from_millis(50));
    same(
        end,
        "nothing leaves while it is down",
        run.sample().1.ports[0].tx.packets,
        still.ports[0].tx.packets,
    )?;
    lab::set_up(end)?;
    until("the link is up", run, |report| changes(report).len() == before + 2)?;
    Ok(())
}

fn streams(from: &str, to: &str) -> Outcome {
    enter(from)?;
    let mut run = start(&stream(from, to, ""))?;
    sends_more("before", &mut run)?;
    flap(&mut run, "veth-b")?;
    sends_more("after the peer's end was down", &mut run)?;
    flap(&mut run, "veth-a")?;
    sends_more("after our end was down", &mut run)?;
    run.stop();
    let report = run.finish()?;
    let (a, b, s) = (&report.ports[0], &report.ports[1], &report.streams[0]);
    same(from, "changes of the link", changes(&report), vec![false, true, false, true])?;
    same(from, "of the receiver's", b.link_events.len(), 4)?;
    // A busy worker may notice a change late, but only once. The number of due frames follows from
    // the rate.
    let expected = down_s(&a.link_events) * PPS as f64;
    let missing = link_down(&report) as f64;
    let slack = 0.3 * expected + 0.05 * PPS as f64;
    same(
        from,
        &format!("{missing} of {expected:.0} were due"),
        (missing - expected).abs() < slack,
        true,
    )?;
    same(
        from,
        "the stream says so, too",
        s.not_sent.get("link_down"),
        a.tx.not_sent.get("link_down"),
    )?;
    let rx = s.rx.as_ref().ok_or("nothing was measured")?;
    // Frames that the kernel had already accepted when its end went down may be lost.
    same(from, &format!("{} lost", rx.lost), rx.lost < PPS / 20, true)?;
    same(from, "named", report.verdict.has(ReasonCode::LinkDown), true)?;
    for code in [ReasonCode::PortLost, ReasonCode::PortRefused] {
        same(
            from,
            &format!("no {code}: {:?}", report.verdict.reasons),
            report.verdict.has(code),
            false,
        )?;
    }
    Ok(())
}

fn count() -> Outcome {
    enter("af_packet")?;
    let mut run =
        start(&format!("packets = 1500\n{}", stream("af_packet:veth-a", "af_packet:veth-b", "")))?;
    sends_more("before", &mut run)?;
    flap(&mut run, "veth-b")?;
    let report = run.finish()?;
    same("count", "frames", report.ports[0].tx.packets, 1500)
}

fn session(replay: Replay, from: &str) -> Session {
    let mut session = Session::new(Profile::listening([("A", from)]));
    session.profile.replays = vec![replay];
    session.options.receive = Some(false);
    session
}

fn captures(from: &str) -> Outcome {
    enter(from)?;
    let path = std::env::temp_dir().join(format!("squall-link-{}.pcap", std::process::id()));
    // Frames for one second, at intervals of a millisecond.
    let mut file = vec![
        0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 1, 0, 0, 0,
    ];
    for number in 0..1000u32 {
        for word in [1, number * 1000, 60, 60] {
            file.extend(word.to_le_bytes());
        }
        file.extend([2; 60]);
    }
    std::fs::write(&path, file)?;
    let replay = Replay {
        loops: 0,
        files: vec![path.to_str().ok_or("a path")?.into()],
        ..Replay::default()
    };
    // A veth accepts XDP frames only if its peer uses NAPI.
    squall_port_linux::set_gro("veth-b", true)?;
    let mut run = session(replay, from).open()?.start()?;
    let ended = captures_flap(&mut run);
    run.stop();
    let report = run.finish();
    std::fs::remove_file(&path)?;
    ended?;
    let report = report?;
    same(from, "changes of the link", changes(&report), vec![false, true])?;
    let expected = down_s(&report.ports[0].link_events) * 1000.0;
    let missing = link_down(&report) as f64;
    same(
        from,
        &format!("{missing} of {expected:.0} were due"),
        (missing - expected).abs() < 0.3 * expected + 50.0,
        true,
    )?;
    same(from, "named", report.verdict.has(ReasonCode::LinkDown), true)?;
    same(from, "no port is lost", report.verdict.has(ReasonCode::PortLost), false)
}

fn captures_flap(run: &mut Run) -> Outcome {
    sends_more("before", run)?;
    flap(run, "veth-b")?;
    sends_more("after", run).map(drop)
}

fn flows() -> Outcome {
    enter("af_packet")?;
    let mut run = start(
        "[ports]\nC = \"af_packet:veth-a,frames=1\"\nS = \
         \"af_packet:veth-b,frames=1\"\n[flows]\nclients = \"C\"\nservers = \
         \"S\"\n[[template]]\ncps = 200\nname = \"web\"\nclients = \"16.0.0.0/16\"\nservers = \
         \"48.0.0.1\"\nlisten = 80\nclient = ['send \"ping\"', 'recv 4', 'close']\nserver = ['recv \
         4', 'send \"pong\"', 'wait_peer_close']\n",
    )?;
    let completed = |report: &Report| {
        report
            .flows
            .as_ref()
            .and_then(|load| load.total.client.as_ref())
            .map_or(0, |client| client.completed)
    };
    until("flows", &mut run, |report| completed(report) > 50)?;
    lab::set_down("veth-b")?;
    until("the link is down", &mut run, |report| changes(report) == [false])?;
    let report = until("frames are lost", &mut run, |report| link_down(report) > 20)?;
    lab::set_up("veth-b")?;
    let before = completed(&report);
    until("flows complete again", &mut run, |report| completed(report) > before + 100)?;
    run.stop();
    let report = run.finish()?;
    same("flows", "changes of the link", changes(&report), vec![false, true])?;
    same("flows", "named", report.verdict.has(ReasonCode::LinkDown), true)?;
    same("flows", "no port is lost", report.verdict.has(ReasonCode::PortLost), false)
}

/// The link goes down or the interface is deleted, and the run ends by itself.
fn ends(from: &str, delete: bool) -> Outcome {
    enter(from)?;
    if from.starts_with("xdp_live") {
        squall_port_linux::set_gro("veth-b", true)?;
    }
    let mut run = start(&stream(from, "af_packet:veth-b,on_link_down=stop", ""))?;
    sends_more("before", &mut run)?;
    if delete {
        let deleted = Command::new("ip").args(["link", "del", "veth-a"]).status();
        if !deleted.is_ok_and(|status| status.success()) {
            return Err(Skipped("needs ip".into()).into());
        }
    } else {
        lab::set_down("veth-b")?;
    }
    same(from, "the run ends by itself", run.wait(Duration::from_secs(60)), true)?;
    let report = run.finish()?;
    let why = report.verdict.reasons.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    same(from, "a lost port", report.verdict.has(ReasonCode::PortLost), true)?;
    let words = if delete { "gone" } else { "on_link_down=stop" };
    same(from, &why, why.contains(words), true)?;
    same(from, "the last change", changes(&report), vec![false])
}

fn too_long_for_the_peer() -> Outcome {
    enter("af_packet")?;
    let shorter = Command::new("ip").args(["link", "set", "veth-b", "mtu", "1000"]).status();
    if !shorter.is_ok_and(|status| status.success()) {
        return Err(Skipped("needs ip".into()).into());
    }
    let more = "size = 1400\n";
    let report = start(&format!(
        "duration = \"1 s\"\n{}",
        stream("af_packet:veth-a", "af_packet:veth-b", more)
    ))?
    .finish()?;
    let not_sent = &report.ports[0].tx.not_sent;
    let dropped = not_sent.get("dropped_by_driver").copied().unwrap_or(0);
    same("too long", "frames that left", report.ports[0].tx.packets, 0)?;
    same("too long", &format!("{not_sent:?}"), dropped > 0, true)?;
    same("too long", "named", report.verdict.has(ReasonCode::PortRefused), true)
}

/// A bridge connects the receiver, so the sender does not see events at the receiver. Frames lost
/// there look as if a device had lost them.
fn receiver(interface: &str, fault: &[&str], mended: &[&str], code: ReasonCode) -> Outcome {
    enter("af_packet")?;
    let ip = |arguments: &[&str]| -> Outcome {
        let done = Command::new("ip").args(arguments).status();
        if !done.is_ok_and(|status| status.success()) {
            return Err(Skipped(format!("needs ip {}", arguments.join(" "))).into());
        }
        Ok(())
    };
    for step in [
        "link add veth-c type veth peer name veth-d",
        "link add bridge type bridge",
        "link set veth-b master bridge",
        "link set veth-c master bridge",
        "link set bridge up",
        "link set veth-c up",
        "link set veth-d up",
    ] {
        ip(&step.split(' ').collect::<Vec<_>>())?;
    }
    let set = |what: &[&str]| ip(&[&["link", "set", interface], what].concat());
    let mut run =
        start(&stream("af_packet:veth-a", "af_packet:veth-d", "size = 1000\nname = \"s\""))?;
    let arrived = |report: &Report| report.ports[1].rx.packets;
    // It takes a moment until a bridge forwards frames.
    until("frames arrive", &mut run, |report| arrived(report) > 100)?;
    set(fault)?;
    let noticed =
        |report: &Report| report.ports[1].link_events.len() + report.ports[1].mtu_changes.len();
    until("the fault is seen", &mut run, |report| noticed(report) == 1)?;
    sends_more("meanwhile", &mut run)?;
    set(mended)?;
    let before = arrived(&until("its end is seen", &mut run, |report| noticed(report) == 2)?);
    until("frames arrive again", &mut run, |report| arrived(report) > before + 100)?;
    run.stop();
    let report = run.finish()?;
    let lost = report.streams[0].rx.as_ref().map_or(0, |rx| rx.lost);
    same(interface, &format!("{lost} lost"), lost > 0, true)?;
    let mut reasons = report.verdict.reasons.iter().filter(|reason| reason.code == code);
    let reason = reasons.next().ok_or_else(|| format!("{:?}", report.verdict))?;
    same(
        interface,
        &reason.text,
        reason.text.contains("port B") && reason.text.contains(" s to "),
        true,
    )
}

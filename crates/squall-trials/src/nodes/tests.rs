use std::{fs, path::PathBuf};

use squall_method::{ArrivedRange, LossPeriods, Measured, MethodError, Runner, Trial};
use squall_profile::Format;

use super::*;
use crate::{Place, Trials};
use squall::report::{
    Distribution, NodeClock, PortReport, Sample, StartReport, StreamReport, StreamRx, StreamSample,
    Verdict, VerdictStatus,
};

type Checked = Result<(), Box<dyn std::error::Error>>;

/// Short timeouts, so tests of a hanging controller end soon, but long enough that a busy machine
/// starts a shell in time.
const SHORT: Limits = Limits {
    ready: Duration::from_secs(10),
    silent: Duration::from_secs(10),
    begin: Duration::from_secs(10),
    more: Duration::from_secs(1),
    end: Duration::from_secs(5),
};

const PROFILE: &str = r#"
    ports = { A = "null:", B = "null:" }
    [[stream]]
    name = "A to B"
    port = "A"
    packet = "eth/ipv4/udp"
    rate = 1
"#;

/// A shell script in place of the controller. It writes the requests that it gets to the file
/// `asked`.
struct Fake {
    folder: PathBuf,
    nodes: Nodes,
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn ready() -> String {
    let port = |node: &str, speed: Option<u64>| serde_json::json!({"node": node, "address": "af_packet:eth1", "speed_bps": speed});
    let ports = serde_json::json!([
        ["A", [port("one", Some(1_000_000_000)), port("two", Some(10_000_000_000))]],
        ["B", [port("three", None)]],
    ]);
    let version = env!("CARGO_PKG_VERSION");
    serde_json::json!({"ready": {"version": version, "ports": ports}}).to_string()
}

/// `answers`: shell commands for each trial, run in a directory that has the files of `done`.
fn fake(name: &str, answers: &str, done: &[(&str, String)]) -> Result<Fake, Error> {
    let folder =
        std::env::temp_dir().join(format!("squall-fake-nodes-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    for (name, text) in done {
        fs::write(folder.join(name), format!("{text}\n")).expect("a file");
    }
    let script = format!(
        "echo '{}'; while read -r ask; do echo \"$ask\" >> asked; {answers}; done; echo gone >> \
         asked",
        ready()
    );
    let mut command = Command::new("sh");
    command.args(["-c", &script]).current_dir(&folder);
    Ok(Fake { folder, nodes: Nodes::within(SHORT, command, &|| false)? })
}

fn profile() -> Profile {
    Profile::parse(PROFILE, "lab/test.toml", Format::Toml).expect("a profile")
}

fn run(fake: &mut Fake, stop: &dyn Fn() -> bool) -> Result<Measured, MethodError> {
    let options = RunOptions::default();
    let place = Place::Nodes(&mut fake.nodes);
    let mut trials = Trials::new(profile(), options, place, stop).expect("trials");
    let rig = trials.rig(Some("1000pps".parse().expect("a rate"))).expect("a rig");
    let trial = Trial { seconds: true, ..rig.trial("throughput, 64".into(), 64, 1.0, 2.0) };
    trials.run(&trial)
}

fn text(done: Result<Measured, MethodError>) -> String {
    done.expect_err("it cannot be measured").to_string()
}

fn port(name: &str, address: &str, sent: u64, received: u64) -> PortReport {
    let mut port = PortReport { name: name.into(), address: address.into(), ..Default::default() };
    (port.tx.packets, port.rx.packets) = (sent, received);
    port
}

fn report(
    part: Option<&str>,
    ports: [(&str, u64, u64); 2],
    stream: StreamReport,
    pps: [f64; 2],
) -> Report {
    let name = stream.name.clone();
    let sample = |t_s: f64| Sample {
        t_s,
        streams: vec![StreamSample {
            name: name.clone(),
            tx_pps: pps[0],
            rx_pps: pps[1],
            ..StreamSample::default()
        }],
        ..Sample::default()
    };
    let named = ports.into_iter().zip(["A", "B"]);
    Report {
        part: part.map(Into::into),
        ports: named.map(|((to, sent, got), name)| port(name, to, sent, got)).collect(),
        streams: vec![stream],
        series: [0.45, 0.95, 1.45, 2.0].map(sample).into(),
        clock: Some(NodeClock { bound_ns: 50_000, ..NodeClock::default() }),
        verdict: Verdict { status: VerdictStatus::Valid, valid: true, ..Verdict::default() },
        ..Report::default()
    }
}

/// Two nodes have sent 1000 frames each. A third one has received 1990 of these.
fn reports() -> BTreeMap<&'static str, Report> {
    let sent = || StreamReport {
        name: "A to B".into(),
        port: "A".into(),
        tx_packets: 1000,
        ..StreamReport::default()
    };
    let gap = Distribution { count: 1989, mean: 1e6, ..Distribution::default() };
    let rx = StreamRx {
        ports: vec!["B".into()],
        packets: 1990,
        latency_bound_ns: Some(50_000),
        arrival_gap_ns: Some(gap),
        ..StreamRx::default()
    };
    let received = StreamReport { tx_packets: 0, rx: Some(rx.into()), ..sent() };
    let (here, elsewhere) = ("af_packet:eth1", "elsewhere:x");
    let sender =
        |part| report(Some(part), [(here, 1000, 0), (elsewhere, 0, 0)], sent(), [500.0, 0.0]);
    BTreeMap::from([
        ("one", sender("1/2")),
        ("two", sender("2/2")),
        ("three", report(None, [(elsewhere, 0, 0), (here, 0, 1990)], received, [0.0, 995.0])),
    ])
}

fn done(reports: &BTreeMap<&str, Report>, lost: &[(&str, &str)]) -> String {
    let lost: BTreeMap<_, _> = lost.iter().copied().collect();
    serde_json::json!({"done": {"reports": reports, "lost": lost}}).to_string()
}

const TRIAL: &str = "echo '{\"elapsed\": null}'; echo '{\"elapsed\": -0.1}'; echo '{\"elapsed\": \
                     1.0}'; cat done";

#[test]
fn reports_of_nodes_merge_into_one_trial() -> Checked {
    let mut fake = fake("one", TRIAL, &[("done", done(&reports(), &[]))])?;
    let measured = run(&mut fake, &|| false)?;
    assert!(measured.kept(), "{:?}", measured.not_kept);
    let lane = &measured.lanes[0];
    assert_eq!((lane.sent, lane.received, lane.lost), (2000, 1990, 10));
    assert_eq!(lane.delay_bound_ns, Some(100_000), "of the sender's clock and the receiver's");
    assert_eq!(lane.output_fps, Some(1000.0));
    let ports: Vec<_> = measured.ports.iter().map(|p| (&*p.name, p.sent, p.received)).collect();
    assert_eq!(ports, [("A", 2000, 0), ("B", 0, 1990)]);
    let second = Second { sent: 1000, received: 995 };
    assert_eq!(lane.seconds, [second, second]);
    // The controller runs another trial, with the same ports and the files next to the profile.
    run(&mut fake, &|| false)?;
    let asked = fs::read_to_string(fake.folder.join("asked"))?;
    assert_eq!(asked.lines().count(), 2);
    let ask: Value = serde_json::from_str(asked.lines().next().unwrap_or_default())?;
    let ask = &ask["trial"];
    assert_eq!((&ask["label"], &ask["folder"]), (&"throughput, 64".into(), &"lab".into()));
    assert_eq!(ask["profile"]["stream"][0]["rate"], "1 kpps");
    assert_eq!(ask["profile"]["ports"]["A"], "elsewhere:one+two");
    Ok(())
}

#[test]
fn nodes_that_share_a_port_add_up_and_hide_what_is_lost_in_sequence() -> Checked {
    let mut reports = reports();
    let mut other = reports["three"].clone();
    reports.get_mut("three").expect("it is there").part = Some("1/2".into());
    other.part = Some("2/2".into());
    reports.insert("four", other);
    for name in ["three", "four"] {
        let report = reports.get_mut(name).expect("it is there");
        let rx = report.streams[0].rx.as_mut().expect("it has received");
        rx.packets = 980;
        let (first, end) = if name == "three" { (3, 1700) } else { (900, 1990) };
        rx.arrived = Some(ArrivedRange { first, end, losses: Some(LossPeriods::default()) });
        rx.arrival_gap_ns.as_mut().expect("gaps").mean = 2e6;
    }
    let mut fake = fake("shared", TRIAL, &[("done", done(&reports, &[]))])?;
    let measured = run(&mut fake, &|| false)?;
    let lane = &measured.lanes[0];
    assert_eq!((lane.received, lane.lost), (1960, 40));
    // Three frames were lost before the first one that arrived and ten after the last one; all
    // others in a single period.
    let periods = LossPeriods { periods: 3, longest: 27, longest_from: 4, first: 0, last: 1999 };
    assert_eq!(lane.losses(), Some(periods));
    assert_eq!(lane.output_fps, Some(1000.0));
    Ok(())
}

#[test]
fn frames_that_go_to_ports_of_two_nodes_are_lost_at_each() -> Checked {
    let mut reports = reports();
    let mut other = reports["three"].clone();
    other.ports.reverse();
    other.ports.iter_mut().for_each(|port| port.name = format!("{}2", port.name));
    let rx = other.streams[0].rx.as_mut().expect("it has received");
    (rx.ports[0], rx.packets) = ("A2".into(), 1500);
    reports.insert("four", other);
    let mut fake = fake("flood", TRIAL, &[("done", done(&reports, &[]))])?;
    let measured = run(&mut fake, &|| false)?;
    let lane = &measured.lanes[0];
    assert_eq!(lane.lost, 10, "the port that saw most counts");
    let of: Vec<_> = lane.receivers.iter().map(|one| (&*one.port, one.lost)).collect();
    assert_eq!(of, [("A2", 500), ("B", 10)]);
    Ok(())
}

#[test]
fn a_trial_without_a_node_or_with_a_late_one_is_not_counted() -> Checked {
    let mut all = reports();
    all.remove("three");
    let lost = [("three", "its daemon is gone")];
    let late = StartReport { at_ns: 0, error_ns: Some(25_000_000) };
    let mut on_time = reports();
    on_time.get_mut("two").expect("it is there").start = Some(late);
    let files = [("1", done(&all, &lost)), ("2", done(&on_time, &[]))];
    let mut fake = fake("lost", "cat $(wc -l < asked)", &files)?;
    let measured = run(&mut fake, &|| false)?;
    let named = measured.not_kept.iter().any(|why| why == "node \"three\": its daemon is gone");
    assert!(named, "{:?}", measured.not_kept);
    let measured = run(&mut fake, &|| false)?;
    assert_eq!(measured.not_kept, ["node \"two\" began 25.0 ms after the agreed start"]);
    Ok(())
}

#[test]
fn a_node_that_is_gone_ends_the_test_and_is_named() -> Checked {
    let refused = r#"{"refused": {"text": "node \"three\": Ray has no machine", "usage": false}}"#;
    let mut fake = fake("gone", "cat refused", &[("refused", refused.into())])?;
    let Err(MethodError::Environment(text)) = run(&mut fake, &|| false) else {
        panic!("it goes on")
    };
    assert_eq!(text, "node \"three\": Ray has no machine");
    Ok(())
}

#[test]
fn a_controller_that_dies_hangs_or_answers_nonsense_ends_the_test() -> Checked {
    let script = "echo Ray has a word >&2; echo 'squall: node one: gone' >&2; exit 3";
    for (name, answers, expected) in [
        ("dies", script, "node one: gone"),
        ("killed", "kill -9 $$", "signal: 9"),
        ("hangs", "sleep 60", "did not answer while a trial ran"),
        ("talks", "while :; do echo '{\"elapsed\": 9}'; sleep 0.05; done", "a trial ended"),
        ("nonsense", "echo hello", "\"hello\""),
        ("other", "echo '{\"done\": {\"reports\": 7}}'", "invalid type"),
    ] {
        let mut fake = fake(name, answers, &[])?;
        if name == "hangs" {
            fake.nodes.limits.silent = Duration::from_millis(500);
        }
        let began = Instant::now();
        let found = text(run(&mut fake, &|| false));
        assert!(found.contains(expected) && !found.contains("Ray"), "{name}: {found}");
        assert!(began.elapsed() < Duration::from_secs(20), "{name}: {:?}", began.elapsed());
        // No further trial is possible.
        assert!(run(&mut fake, &|| false).is_err(), "{name}");
    }
    Ok(())
}

#[test]
fn a_controller_that_does_not_start_says_why() {
    let start = |script: &str, ready: Duration| {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Nodes::within(Limits { ready, ..SHORT }, command, &|| false)
            .err()
            .expect("it does not start")
    };
    let error = start("echo 'squall: lab.toml: no node' >&2; exit 2", SHORT.ready);
    assert!(matches!(&error, Error::Usage(text) if text == "lab.toml: no node"), "{error}");
    let error = start("echo 'squall: no Ray' >&2; exit 3", SHORT.ready);
    assert!(matches!(&error, Error::Environment(text) if text == "no Ray"), "{error}");
    let silent = start("sleep 60", Duration::from_millis(300)).to_string();
    assert!(silent.contains("did not answer until the nodes are up"), "{silent}");
    let old = start(r#"echo '{"ready": {"version": "0.0.1", "ports": []}}'"#, SHORT.ready);
    assert!(old.to_string().contains("its Python package is 0.0.1"), "{old}");
    let none = Nodes::start(Command::new("/nowhere/python"), &|| false).err();
    assert!(none.is_some_and(|error| error.to_string().contains("/nowhere/python")));
}

#[test]
fn a_stop_reaches_the_nodes_and_the_controller_ends_with_the_test() -> Checked {
    // Stop during the trial, as a signal would.
    let answers = "case $ask in *stop*) cat done;; *) echo '{\"elapsed\": 0.5}';; esac";
    let mut fake = fake("stop", answers, &[("done", done(&reports(), &[]))])?;
    let folder = fake.folder.clone();
    let asked = || fs::read_to_string(folder.join("asked")).unwrap_or_default();
    assert_eq!(run(&mut fake, &|| asked().contains("trial")), Err(MethodError::Stopped));
    assert!(asked().ends_with("{\"stop\":{}}\n"), "{}", asked());
    let pid = fake.nodes.controller.id();
    fake.nodes.requests = None;
    assert!(wait(&mut fake.nodes.controller, SHORT.end).is_some(), "{pid} goes on");
    assert!(asked().ends_with("gone\n"), "at the end of its input: {}", asked());
    Ok(())
}

#[test]
fn ports_are_those_of_the_inventory() -> Checked {
    let fake = fake("ports", "true", &[])?;
    assert_eq!(
        fake.nodes.places_text(),
        "A = one/af_packet:eth1 + two/af_packet:eth1, B = three/af_packet:eth1"
    );
    let mut known = profile();
    fake.nodes.place(&mut known)?;
    assert_eq!(fake.nodes.speeds(&known), [Some(11_000_000_000), None]);
    let mut other = profile();
    other.ports[1].name = "C".into();
    let error = fake.nodes.place(&mut other).expect_err("it is not there").to_string();
    assert!(error.contains("no port \"C\": it has A, B"), "{error}");
    for address in ["loop:x,virtual", "pcap:a.pcap", "null:virtual"] {
        assert!(has_own_time(address), "{address}");
    }
    let at =
        |address: &str| NodePort { node: "x".into(), address: address.into(), speed_bps: Some(7) };
    assert_eq!(at("af_packet:eth1,speed=10Gbps").speed_bps(), Some(10_000_000_000));
    assert_eq!(at("af_packet:eth1").speed_bps(), Some(7));
    Ok(())
}

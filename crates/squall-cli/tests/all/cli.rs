//! Tests of the command line interface: arguments, files, text and exit status.

use std::{
    fs,
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use serde_json::Value;

fn squall(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_squall"));
    // The machine may be too busy for a valid run, which most tests do not need.
    command.args(args).stdin(Stdio::null()).env("SQUALL_ALLOW_INVALID", "1");
    command
}

/// Exit status, standard output, standard error.
///
/// # Panics
/// If the command has not ended after a minute.
fn run(args: &[&str]) -> (i32, String, String) {
    let mut child = squall(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let id = child.id().to_string();
    let (done, wait) = std::sync::mpsc::channel::<()>();
    let guard = std::thread::spawn(move || {
        if wait.recv_timeout(Duration::from_secs(60))
            == Err(std::sync::mpsc::RecvTimeoutError::Timeout)
        {
            let _ = Command::new("kill").args(["-KILL", &id]).status();
        }
    });
    drop(child.stdin.take());
    let output = child.wait_with_output().unwrap();
    drop(done);
    guard.join().unwrap();
    assert!(output.status.code().is_some(), "{args:?} was killed: {}", output.status);
    outcome(&output)
}

fn outcome(output: &Output) -> (i32, String, String) {
    let text = |octets: &[u8]| String::from_utf8(octets.to_vec()).unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(!err.contains("panicked") && !err.contains("defect"), "{err}");
    (output.status.code().unwrap_or(-1), out, err)
}

#[test]
fn the_version_names_what_a_build_has() {
    let (status, out, _) = outcome(&squall(&["--version"]).output().unwrap());
    assert_eq!(status, 0);
    let lines: Vec<_> = out.lines().collect();
    let version = lines[0].strip_prefix(concat!("squall ", env!("CARGO_PKG_VERSION"))).unwrap();
    // A build from a source archive has no commit.
    let commit = version.trim_start_matches(" (").trim_end_matches(')');
    assert!(commit.chars().all(|c| c.is_ascii_hexdigit()), "{out}");
    assert_eq!(lines[1], "features: +attacks +dpdk +server +tls");
    assert!(lines[2].starts_with("library: "), "{out}");
}

/// Checks the output of the dynamic linker, unless the binary is static. Dependencies of system
/// libraries are ignored: they vary between machines.
#[test]
fn the_command_needs_no_library_but_those_of_c_and_the_compiler() {
    let output = squall(&["--version"]).env("LD_TRACE_LOADED_OBJECTS", "1").output().unwrap();
    let listed = String::from_utf8(output.stdout).unwrap();
    let known = [
        "linux-vdso",
        "ld-linux",
        "ld-musl",
        "libc.",
        "libm.",
        "libgcc_s.",
        "libpthread.",
        "libdl.",
        "librt.",
    ];
    for line in listed.lines().filter(|line| line.starts_with('\t')) {
        let name = line.split_whitespace().next().unwrap().rsplit('/').next().unwrap();
        assert!(known.iter().any(|known| name.starts_with(known)), "{name} is needed:\n{listed}");
    }
}

/// The JSON report that a successful command prints on standard output.
fn report(args: &[&str]) -> Value {
    let (status, out, err) = run(&[args, &["--json", "-", "--quiet"]].concat());
    assert_eq!((status, err.as_str()), (0, ""), "{args:?}");
    serde_json::from_str(&out).unwrap()
}

/// A file name unique to this process.
fn file(name: &str) -> String {
    let folder =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("cli-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    folder.join(name).to_string_lossy().into_owned()
}

fn profile(name: &str, text: &str) -> String {
    let path = file(name);
    fs::write(&path, text).unwrap();
    path
}

const BOTH_WAYS: &str = r#"
[ports]
A = "loop:both,virtual"
B = "loop:both,virtual"
[[stream]]
name = "there"
port = "A"
packet = "eth/ipv4/udp"
size = "imix"
rate = "100 kpps"
mode = { burst = 1200 }
latency = true
[[stream]]
name = "back"
port = "B"
packet = "eth/ipv4/udp"
rate = "50 kpps"
mode = { burst = 500 }
"#;

#[test]
fn a_profile_runs_and_every_frame_is_counted_where_it_left_and_where_it_came() {
    let report = report(&[
        "run",
        &profile("both.toml", BOTH_WAYS),
        "--fail-if",
        "loss > 0",
        "--fail-if",
        "not valid",
    ]);
    let port =
        |i: usize| (&report["ports"][i]["tx"]["packets"], &report["ports"][i]["rx"]["packets"]);
    assert_eq!(port(0), (&1200.into(), &500.into()));
    assert_eq!(port(1), (&500.into(), &1200.into()));
    // 64, 594 and 1518 octets, weighted 7:4:1.
    assert_eq!(report["ports"][0]["tx"]["octets"], 100 * (7 * 64 + 4 * 594 + 1518));
    assert_eq!(
        (&report["streams"][0]["rx"]["lost"], &report["streams"][1]["rx"]),
        (&0.into(), &Value::Null)
    );
    assert!(
        report["command"].as_str().unwrap().starts_with("squall run "),
        "{}",
        report["command"]
    );
}

#[test]
fn a_profile_comes_from_standard_input_too_and_its_ports_can_be_put_elsewhere() {
    let mut child = squall(&[
        "run",
        "-",
        "--port",
        "A=null:virtual",
        "--port",
        "B=null:virtual",
        "--json",
        "-",
        "-q",
    ])
    .stdin(Stdio::piped())
    .stdout(Stdio::piped())
    .stderr(Stdio::piped())
    .spawn()
    .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), BOTH_WAYS.as_bytes()).unwrap();
    // `null:virtual` is a port named "virtual", which runs in real time.
    let (status, out, err) = outcome(&child.wait_with_output().unwrap());
    assert_eq!((status, err.as_str()), (0, ""));
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["ports"][0]["address"], "null:virtual");
    assert_eq!(report["ports"][0]["tx"]["packets"], 1200);
}

#[test]
fn a_count_ends_the_run_on_the_frame_and_owes_nothing() {
    let report =
        report(&["send", "-p", "null:", "--packet", "eth/ipv4/udp", "-r", "200kpps", "-n", "5000"]);
    assert_eq!(report["ports"][0]["tx"]["packets"], 5000);
    assert_eq!(report["ports"][0]["tx"]["not_sent"], serde_json::json!({}));
}

#[test]
fn options_come_from_the_command_line_and_else_from_the_profile() {
    let text = "packets = 100\n[run]\ncores = 1\ngap_bins = \"4:500us\"\nreceived_flows = \
                true\nfingerprint = true\nlinger = 0.01\n[ports]\nA = \
                \"loop:options,virtual\"\n[[stream]]\nname = \"web\"\npacket = \
                \"eth/ipv4/udp\"\nrate = \"1 kpps\"\n";
    let path = profile("options.toml", text);
    let bins = |report: &Value| report["ports"][0]["rx"]["arrival_gap_bins"]["counts"].clone();
    let of_profile = report(&["run", &path]);
    assert_eq!(bins(&of_profile), serde_json::json!([0, 0, 99, 0]));
    assert_eq!(of_profile["received_flows"]["flows"][0]["packets"], 100);
    assert!(of_profile["ports"][0]["tx"]["fingerprint"].is_string());
    let capture = file("options.pcapng");
    let capture: &[&str] = &["--capture", &capture, "--filter", "udp"];
    let more = ["--histogram", "2:1ms", "--fingerprint=false", "-n", "20"];
    let over = report(&[&["run", &path], capture, &more].concat());
    assert_eq!(bins(&over), serde_json::json!([0, 19]));
    assert!(over["ports"][0]["tx"]["fingerprint"].is_null());
    assert_eq!(over["capture"]["written_packets"], 20);
    let send_only = report(&["run", &path, "--receive", "false"]);
    assert_eq!(send_only["ports"][0]["rx"]["packets"], 0);
}

#[test]
fn frames_sent_into_a_file_are_received_from_it_and_a_missing_frame_is_lost() {
    let path = file("sent.pcap");
    let sent = report(&[
        "send",
        "-p",
        &format!("pcap:{path}"),
        "--packet",
        "eth/ipv4/udp",
        "-r",
        "1Mpps",
        "-n",
        "1000",
        "--latency",
        "--fingerprint",
    ]);
    assert_eq!(sent["ports"][0]["tx"]["packets"], 1000);
    let read = format!("pcap:{path},read");
    let received = report(&["recv", "-p", &read, "--fingerprint", "--histogram", "4:500ns"]);
    assert_eq!(received["ports"][0]["rx"]["fingerprint"], sent["ports"][0]["tx"]["fingerprint"]);
    assert_eq!(received["streams"][0]["rx"]["lost"], 0);
    assert_eq!(
        received["ports"][0]["rx"]["arrival_gap_bins"]["counts"],
        serde_json::json!([0, 0, 999, 0])
    );

    // Remove the fifth frame. The file has a header of 24 octets, followed by records of 16 and 60
    // octets.
    let mut octets = fs::read(&path).unwrap();
    octets.drain(24 + 4 * 76..24 + 5 * 76);
    // Shift the times by 100 s, as if the capture came from another clock.
    octets[24..].chunks_mut(76).for_each(|record| record[0] += 100);
    fs::write(&path, octets).unwrap();
    let received = report(&["recv", "-p", &read]);
    let rx = &received["streams"][0]["rx"];
    assert!(rx["latency_ns"].is_null() && rx["ipdv_ns"]["max"] == 0, "{rx}");
    assert_eq!(
        (&received["streams"][0]["name"], &rx["packets"], &rx["lost"]),
        (&"stream 1".into(), &999.into(), &1.into())
    );
    let (status, out, err) = run(&["recv", "-p", &read, "--fail-if", "loss > 0"]);
    assert_eq!(status, 1);
    assert!(err.contains("stream \"stream 1\": loss = 1 (fail if loss > 0)"), "{err}");
    assert!(out.contains("999"), "{out}");
}

#[test]
fn a_criterion_that_is_not_met_is_status_1_and_a_sentence() {
    let (status, _, err) = run(&[
        "send",
        "-p",
        "loop:lossy,virtual,drop=0.1",
        "--packet",
        "eth/ipv4/udp",
        "-r",
        "1Mpps",
        "-n",
        "1000",
        "--latency",
        "-q",
        "--fail-if",
        "loss > 0",
    ]);
    assert_eq!(status, 1);
    assert!(
        err.starts_with("squall: failed: stream \"stream 1\": loss = ") && err.lines().count() == 1,
        "{err}"
    );
}

#[test]
fn errors_of_the_user_are_status_2_with_a_location() {
    let wrong = profile("wrong.toml", &BOTH_WAYS.replace("50 kpps", "50 kpp"));
    let good = profile("good.toml", BOTH_WAYS);
    let frame = ["--packet", "eth/ipv4/udp", "-n", "1"];
    let send = |rest: &[&'static str]| [&["send"], rest, &frame].concat();
    let of_clients = ["--port", "loop:cli-mistakes", "--clients", "10.0.1.1", "--users", "3"];
    let http = |rest: &[&'static str]| {
        [&["flows", "http", "--url", "http://10.0.0.2/"], &of_clients[..], rest].concat()
    };
    let app = |rest: &[&'static str]| {
        [&["flows", "app", "http", "--servers", "10.0.0.2"], &of_clients[..], rest].concat()
    };
    let serve = |rest: &[&'static str]| {
        [&["flows", "serve", "--port", "loop:cli-mistakes", "--servers", "10.0.0.2"], rest].concat()
    };
    let cases: Vec<(Vec<&str>, &str)> = vec![
        (vec!["run", &wrong], "wrong.toml:17:8  stream \"back\": rate = \"50 kpp\" is not a rate"),
        (vec!["run", "nowhere.toml"], "squall: cannot read nowhere.toml: there is no such file"),
        (vec!["run", &good, "--port", "C=null:"], "the profile has no port \"C\"\n  it has A, B"),
        (vec!["run", &good, "--mult", "fast"], "expected a factor"),
        (vec!["run", &good, "--fail-if", "lss > 0"], "try loss"),
        (
            vec!["run", &good, "--json", "/nowhere/r.json"],
            "cannot write /nowhere/r.json: there is no such folder\n  try mkdir -p /nowhere",
        ),
        (vec!["run", &good, "--cores", "0"], "--cores"),
        (vec!["fly"], "unrecognized subcommand"),
        (vec!["send", "-p", "null:", "-r", "1kpps"], "--packet"),
        (vec!["send", "-p", "null:", "--packet", "eth"], "--rate"),
        (
            vec!["send", "-p", "null:", "--packet", "eth/ipv5", "-n", "1"],
            "squall send: --packet  packet says \"ipv5\"",
        ),
        (
            send(&["-p", "lop:0"]),
            "unknown kind \"lop\"\n  try xdp_live:IFACE, af_xdp:IFACE, af_packet:IFACE, ",
        ),
        (send(&["-p", "loop:0,rng=1"]), "unknown option rng"),
        (
            send(&["-p", "null:", "--size", "tiny"]),
            "squall send: --size  size = \"tiny\" is not a frame length",
        ),
        (send(&["-p", "null:", "--late", "later"]), "squall send: --late"),
        (send(&["-p", "null:", "-v", "ipv4.src"]), "expected FIELD=OP"),
        (
            send(&["-p", "null:", "-v", "ipv4.src=randm:1-2"]),
            "--vary ipv4.src=randm:1-2  op = \"randm\"",
        ),
        (send(&["-p", "null:", "-v", "ipv4.sorc=random:1-2"]), "\"ipv4.sorc\""),
        (
            vec!["send", "-p", "pcap:x.pcap", "--packet", "eth/ipv4/udp", "-r", "1kpps"],
            "without an end never ends",
        ),
        (
            send(&["-p", "null:", "-r", "1kpps", "--capture", "x.pcapng"]),
            "--capture has no effect, because nothing is received",
        ),
        (vec!["replay", "in.pcap", "-i", "null:", "-o", "out.pcap"], "try -i pcap:FILE"),
        (vec!["import", "in.pcap", "-q", "-v"], "cannot be used with"),
        (vec!["recv"], "--port"),
        (
            vec!["recv", "-p", "pcap:nowhere.pcap,read"],
            "cannot read nowhere.pcap: there is no such file",
        ),
        (
            vec!["lab", "exec", "never-made", "--", "true"],
            "cannot use lab \"never-made\": it is not up",
        ),
        (vec!["capture", "--port", "null:", "--count", "0"], "'--count <N>': expected 1 or more"),
        (
            vec!["capture", "--port", "null:", "--rotate-time", "0s"],
            "expected a time above 0, such as 100ms",
        ),
        (
            vec!["capture", "-i", "lo", "-i", "af_packet:lo", "-w", "x.pcapng"],
            "port af_packet:lo is given twice",
        ),
        (
            vec!["capture", "-i", "null:", "-w", "x.zst", "--compress", "gz"],
            "try a name that ends in .gz",
        ),
        (
            vec!["capture", "-i", "null:", "--compress", "gz"],
            "gz compresses files, and no file is written",
        ),
        (
            vec!["capture", "-i", "null:", "-w", "x.pcapng", "--precision", "us"],
            "try --format pcap",
        ),
        (
            vec!["capture", "-i", "null:", "-w", "x.pcapng", "--print-time", "date"],
            "try it with --print",
        ),
        (vec!["recv", "-p", "null:", "--udp", "0"], "0 is not in 1..=65535"),
        (vec!["recv", "-p", "null:", "--tcp", "0"], "0 is not in 1..=65535"),
        (vec!["recv", "-p", "null:", "--interval", "0"], "expected a time above 0, such as 100ms"),
        (vec!["recv", "-p", "null:", "--duration", "0s"], "expected a time above 0, such as 100ms"),
        (vec!["recv", "-p", "null:", "--top", "0"], "'--top <N>': expected 1 or more"),
        (vec!["recv", "-p", "null:", "--flows", "0"], "'--flows <N>': expected 1 or more"),
        (
            vec!["recv", "-p", "null:", "--flows", "1000000000000"],
            "more than the memory of this machine",
        ),
        (vec!["recv", "-p", "lo", "-p", "lo"], "port lo is given twice"),
        (
            vec!["capture", "--port", "null:", "--buffer", "999TB"],
            "more than the memory of this machine",
        ),
        (http(&["-o", "body=9"]), "--option body has no effect here: the servers are external"),
        (http(&["-o", "url=http://10.0.0.9/"]), "--url sets it already"),
        (
            http(&["-n", "100"]),
            "--count has no effect here: it counts frames of streams; try --flows",
        ),
        (http(&["--tls-option", "client_ca=x.pem"]), "--tls-option client_ca has no effect here"),
        (http(&["--pipeline", "4"]), "try --requests 4"),
        (http(&["--poisson"]), "spacing = \"poisson\" has no effect"),
        (http(&["--streams", "2"]), "--http2"),
        (http(&["--migrate-after", "3"]), "--http3"),
        (http(&["--http3", "--migrate-to", "address"]), "--migrate-after"),
        (http(&["--http2-fallback"]), "--http2"),
        (http(&["--http2", "--http2-fallback"]), "no end can choose HTTP/1.1"),
        (http(&["--http2", "--http3"]), "cannot be used with"),
        (http(&["--http3", "--tls-option", "versions=1.2"]), "HTTP/3 needs TLS 1.3"),
        (http(&["--http3", "--tls-option", "alpn=h2"]), "tls.alpn lacks \"h3\""),
        (
            http(&["--http2", "--requests", "3", "--streams", "2"]),
            "try --requests 4, or fewer streams",
        ),
        (http(&["--tcp", "udp_idle=1s"]), "tcp.udp_idle has no effect"),
        (http(&["--wrap2", "vlan 7"]), "--wrap2"),
        (app(&["--wrap2", "vlan 7"]), "--port2 <ADDR>"),
        (app(&["--gateway2", "48.0.0.254"]), "--port2 <ADDR>"),
        (app(&["-o", "body=9"]), "try --port2 to run them as well"),
        (
            serve(&["-o", "requests=9"]),
            "--option requests has no effect here: the clients are external",
        ),
        (serve(&["--body", "9", "-o", "body=8"]), "--body sets it already"),
        (serve(&["--tls-option", "ca=x.pem"]), "try client_ca"),
        (serve(&["--tls-option", "client_certificate=x.pem"]), "try certificate"),
        (
            serve(&["--proxy-protocol", "v1", "--proxy-option", "sources=10.0.0.0/24"]),
            "proxy_protocol has settings of clients, but its clients are external",
        ),
        (serve(&["--proxy-protocol", "v3"]), "is not a version of the PROXY protocol"),
        (serve(&["--app", "mix", "--listen", "80"]), "listen = 80 has no effect on a mix"),
    ];
    for (args, expected) in cases {
        let (status, out, err) = run(&args);
        assert_eq!((status, out.as_str()), (2, ""), "{args:?}: {err}");
        assert!(err.contains(expected), "{args:?}: {expected:?} is not in\n{err}");
    }
}

/// Errors of a first day, each with the hint that it must have.
#[test]
fn first_mistakes_are_answered_with_what_to_try() {
    let send = ["send", "--port", "loop:first", "--packet", "eth/ipv4/udp", "-n", "5"];
    let hosts = ["hosts", "arp", "-i", "loop:first-hosts", "--address"];
    for (args, expected) in [
        ([&send[..], &["--size", "20"]].concat(), "try --size 64, or"),
        (
            [&send[..], &["--fail-if", "loss > 0"]].concat(),
            "no stream is measured\n  try --latency",
        ),
        ([&hosts[..], &["10.0.0.2"]].concat(), "try \"10.0.0.2/24\""),
        (vec!["recv", "--port", "pcap:web.pcap"], "try pcap:web.pcap,read"),
        (vec!["test", "rfc2544", "--port", "A=nosuch0"], "no interface \"nosuch0\""),
        (vec!["cluster", "up", "nowhere.toml"], "cannot read nowhere.toml"),
        (vec!["run", "nowhere.toml", "--nodes", "none.toml"], "cannot read nowhere.toml"),
    ] {
        let (status, out, err) = run(&args);
        assert!(status == 2 && out.is_empty() && err.contains(expected), "{args:?}: {err}");
    }
}

#[test]
fn the_python_of_trex_profiles_is_named_as_elsewhere_and_a_missing_scapy_too() {
    use std::os::unix::fs::PermissionsExt;
    let program = profile(
        "ether.py",
        "from trex_stl_lib.api import *\n\ndef register():\n    return Ether()\n",
    );
    let with = |python: &str| {
        let plan = ["plan", program.as_str(), "--trex", "-i", "null:"];
        outcome(&squall(&plan).env("SQUALL_PYTHON", python).output().unwrap())
    };
    let (status, _, err) = with("/nowhere/python");
    assert!(status == 3 && err.contains("cannot run /nowhere/python"), "{err}");
    // A Python that sees no installed package.
    let bare = profile("python", "#!/bin/sh\nexec python3 -I -S \"$@\"\n");
    fs::set_permissions(&bare, fs::Permissions::from_mode(0o755)).unwrap();
    let (status, _, err) = with(&bare);
    assert!(
        status == 3 && err.contains("scapy is missing in ") && err.contains("--trex-lib"),
        "{err}"
    );
}

#[test]
fn frames_that_come_back_are_not_those_that_arrived() {
    let send = ["send", "--port", "loop:back-a", "--to", "loop:back-b", "--packet", "eth/ipv4/udp"];
    let report = report(&[&send[..], &["-r", "1kpps", "-n", "20", "--latency"]].concat());
    let notes = report["notes"].to_string();
    assert!(notes.contains("its frames arrived only at A, the port that sent them"), "{notes}");
}

#[test]
fn hosts_that_reach_nothing_are_not_valid() {
    let ping = ["hosts", "ping", "-i", "loop:lonely", "--address", "10.0.0.2/24", "--to"];
    let args = [&ping[..], &["10.0.0.9", "--requests", "1", "-q"]].concat();
    let output = squall(&args).env_remove("SQUALL_ALLOW_INVALID").output().unwrap();
    let (status, _, err) = outcome(&output);
    assert_eq!(status, 4, "{err}");
    assert!(err.starts_with("squall: not valid: not-done: hosts"), "{err}");
    assert!(err.lines().all(|line| line.len() < 150), "{err}");
}

#[test]
fn an_interface_that_is_not_there_is_status_3() {
    for args in [
        &["send", "-p", "nope0", "--packet", "eth/ipv4/udp", "-n", "1"][..],
        &["recv", "-p", "af_packet:nope0"],
    ] {
        let (status, out, err) = run(args);
        assert_eq!((status, out.as_str()), (3, ""), "{err}");
        assert!(err.starts_with("squall: ") && err.contains("no interface \"nope0\""), "{err}");
    }
}

#[test]
fn json_on_standard_output_is_alone_there_and_the_summary_gives_way() {
    let path = profile("alone.toml", BOTH_WAYS);
    let (status, out, err) = run(&["run", &path, "--json", "-"]);
    assert_eq!(status, 0);
    assert!(serde_json::from_str::<Value>(&out).is_ok() && err.contains("VALID"), "{err}");
    let html = file("alone.html");
    let (status, out, err) = run(&["run", &path, "--quiet", "--report", &html]);
    assert_eq!((status, out.as_str(), err.as_str()), (0, "", ""));
    assert!(fs::read_to_string(&html).unwrap().starts_with("<!doctype html>"));
}

#[test]
fn the_same_seed_sends_the_same_frames_and_another_seed_others() {
    let path = profile(
        "seed.toml",
        "[ports]\nA = \"null:\"\n[[stream]]\npacket = \"eth/ipv4/udp\"\nrate = \"max\"\nmode = { \
         burst = 500 }\nvary = [{ field = \"ipv4.src\", op = \"random\", min = \"16.0.0.0\", max \
         = \"16.255.255.255\" }]\n",
    );
    let print = |seed, cores| {
        let report = report(&["run", &path, "--seed", seed, "--cores", cores, "--fingerprint"]);
        report["ports"][0]["tx"]["fingerprint"].as_str().unwrap().to_owned()
    };
    // A stream at maximum rate is divided at frame boundaries, not by time. 500 is not a multiple
    // of 64.
    let one = print("1", "1");
    assert_eq!(one, print("1", "2"));
    assert_ne!(one, print("2", "1"));
}

#[test]
fn the_profile_that_send_prints_sends_the_same() {
    let args = [
        "send",
        "-p",
        "null:",
        "--packet",
        "eth/ipv4/udp(dport=53)",
        "--size",
        "64,594",
        "-r",
        "500kpps",
        "-n",
        "300",
        "-v",
        "ipv4.src=random:16.0.0.1-16.0.0.254",
        "-v",
        "udp.sport=increment:1024-2000:step=3",
        "--latency",
        "--seed",
        "9",
    ];
    let (status, toml, err) = run(&[&args[..], &["--print-profile"]].concat());
    assert_eq!((status, err.as_str()), (0, ""));
    let path = profile("printed.toml", &toml);
    let print = |args: &[&str]| {
        // Use virtual time, because signatures contain departure times.
        let report = report(&[args, &["--fingerprint", "--clock", "virtual"]].concat());
        (
            report["ports"][0]["tx"]["packets"].clone(),
            report["ports"][0]["tx"]["fingerprint"].clone(),
        )
    };
    assert_eq!(print(&args), print(&["run", &path]));
}

#[test]
fn a_plan_sends_nothing_makes_no_file_and_needs_no_interface() {
    let path = profile("plan.toml", BOTH_WAYS);
    let capture = file("never.pcap");
    let a = format!("A=pcap:{capture}");
    let args = [
        "plan",
        &path,
        "--port",
        &a,
        "--port",
        "B=af_packet:nope0",
        "--mult",
        "50%",
        "--frames",
        "3",
    ];
    // A relative rate on a port without a known speed is also an error in a plan.
    assert_eq!(run(&args).0, 2);
    let args = [
        "plan",
        &path,
        "--port",
        &a,
        "--port",
        "B=af_packet:nope0",
        "--mult",
        "0.5",
        "--frames",
        "3",
    ];
    let (status, out, err) = run(&args);
    assert_eq!((status, err.as_str()), (0, ""));
    assert!(
        out.contains("port B: not opened, typical values assumed: af_packet:nope0: no interface")
            && out.contains("UDP"),
        "{out}"
    );
    assert!(!fs::exists(&capture).unwrap());
    let (_, out, _) = run(&[&args[..], &["--json", "-"]].concat());
    let plan: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(plan["streams"][0]["asked_pps"].as_f64().unwrap().round(), 50_000.0);
    assert_eq!(plan["streams"][0]["frames"], 1200);
    assert_eq!(
        (&plan["ports"][1]["opened"], plan["frames"].as_array().unwrap().len()),
        (&false.into(), 3)
    );
    let frames = plan["frames"].as_array().unwrap();
    assert_eq!((&frames[0]["due_ps"], frames[0]["hex"].as_str().unwrap().len()), (&0.into(), 120));
}

#[test]
fn a_plan_of_flows_shows_templates_and_pools_and_what_they_lack() {
    let text = r#"
ports = { A = "loop:plan-flows", B = "loop:plan-flows" }
flows = { clients = "A", servers = "B", cps = 30_000 }
pool = [{ name = "few", addresses = "16.0.0.1", ports = "1024-2023" }, { name = "one", addresses = "48.0.0.1" }]
template = [
  { name = "web", clients = "few", servers = "one", app = "http", weight = 2 },
  { name = "names", clients = "few", servers = "one", app = "dns", weight = 1 },
]
"#;
    let path = profile("plan-flows.toml", text);
    let (status, out, err) = run(&["plan", &path]);
    assert_eq!((status, err.as_str()), (0, ""), "{out}");
    assert!(
        out.contains("web") && out.contains("2/3 of the total") && out.contains("20.0 k"),
        "{out}"
    );
    assert!(
        out.contains("note: template \"web\"") && !out.contains("note: template \"names\""),
        "{out}"
    );
    let (_, out, _) = run(&["plan", &path, "--json", "-"]);
    let plan: Value = serde_json::from_str(&out).unwrap();
    let template = &plan["flows"]["templates"][1];
    assert_eq!(
        (&template["asked_cps"], &template["combinations"]),
        (&10_000.0.into(), &1000.into())
    );
    assert_eq!((&template["transport"], &template["listen"]), (&"udp".into(), &53.into()));
    assert_eq!(plan["flows"]["pools"][0]["addresses"], 1);
    let most = plan["flows"]["max_flows"].as_u64().unwrap();
    assert!((1 << 21..=1 << 28).contains(&most), "{most}");
    assert_eq!(plan["flows"]["max_flows_octets"], 170 * most);

    let larger = text.replace("cps = 30_000", "cps = 30_000, max_flows = \"3M\"");
    let path = profile("plan-flows.toml", &larger);
    let (_, out, _) = run(&["plan", &path]);
    let line = "room for 3,000,000 flows per worker and port, which would take 510 MB (max_flows)";
    assert!(out.contains(line), "{out}");
}

/// Starts a command that runs until a signal. Returns once it sends.
fn endless(args: &[&str]) -> Child {
    let child = squall(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Wait for the signal handlers: an earlier signal would kill the process.
    let listens = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(caught.trim(), 16).unwrap() & (1 << (2 - 1)) != 0
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    while !listens() && Instant::now() < deadline {
        sleep(Duration::from_millis(10));
    }
    sleep(Duration::from_millis(400));
    child
}

fn signal(child: &Child, name: &str) {
    assert!(Command::new("kill").args([name, &child.id().to_string()]).status().unwrap().success());
}

#[test]
fn the_first_signal_stops_and_reports() {
    for (name, args) in [
        (
            "-INT",
            &[
                "send",
                "-p",
                "null:",
                "--packet",
                "eth/ipv4/udp",
                "-r",
                "10kpps",
                "--json",
                "-",
                "-q",
            ][..],
        ),
        ("-TERM", &["recv", "-p", "loop:nobody", "--json", "-", "-q"]),
    ] {
        let child = endless(args);
        signal(&child, name);
        // Nothing else ends the run.
        let (status, out, err) = outcome(&child.wait_with_output().unwrap());
        assert_eq!((status, err.as_str()), (0, ""), "{args:?}");
        let report: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(report["ports"][0]["tx"]["packets"].as_u64() > Some(0), args[0] == "send");
        assert!(report["duration_s"].as_f64() > Some(0.1), "{}", report["duration_s"]);
    }
}

/// Requests a rate above the capacity of any machine.
#[test]
fn a_run_that_is_not_valid_says_so_with_its_status() {
    let args = [
        "send",
        "-p",
        "null:",
        "--packet",
        "eth/ipv4/udp",
        "-r",
        "5Gpps",
        "--duration",
        "50ms",
        "-q",
    ];
    let status = |more: &[&str]| {
        let mut command = squall(&[&args[..], more].concat());
        let (status, out, err) =
            outcome(&command.env_remove("SQUALL_ALLOW_INVALID").output().unwrap());
        assert_eq!(out, "");
        (status, err.starts_with("squall: not valid: "))
    };
    assert_eq!(status(&[]), (4, true));
    assert_eq!(status(&["--allow-invalid"]), (0, false));
    assert_eq!(status(&["--fail-if", "not valid"]).0, 1);
}

#[test]
fn a_run_stopped_before_its_requested_end_is_interrupted() {
    let send = [
        "send",
        "-p",
        "null:",
        "--packet",
        "eth/ipv4/udp",
        "-r",
        "1kpps",
        "-d",
        "60s",
        "--json",
        "-",
        "-q",
    ];
    let recv = ["recv", "-p", "loop:nobody", "-d", "60s", "--json", "-", "-q"];
    for (name, ended_by, expected, args) in [
        ("-INT", "sigint", 130, &send[..]),
        ("-TERM", "sigterm", 143, &send[..]),
        ("-HUP", "sighup", 129, &send[..]),
        ("-INT", "sigint", 130, &recv[..]),
    ] {
        let child = endless(args);
        signal(&child, name);
        let (status, out, err) = outcome(&child.wait_with_output().unwrap());
        assert_eq!((status, err.as_str()), (expected, ""), "{args:?}");
        let report: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(
            (&report["asked"]["duration_s"], &report["cut_short"]),
            (&60.0.into(), &true.into())
        );
        assert_eq!(report["verdict"]["ended_by"], ended_by);
        assert_ne!(report["verdict"]["status"], "valid");
        assert!(report["duration_s"].as_f64() < Some(60.0), "{}", report["duration_s"]);
    }
}

#[test]
fn the_second_signal_aborts() {
    // A receiving run continues for a while after the first signal.
    let mut child = endless(&[
        "send",
        "-p",
        "loop:abort",
        "--packet",
        "eth/ipv4/udp",
        "-r",
        "10kpps",
        "--linger",
        "60s",
        "--json",
        "-",
    ]);
    signal(&child, "-INT");
    // Two signals that are pending at once are one, so wait for the note about the first.
    let printed = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut lines = std::io::BufRead::lines(printed);
    assert!(lines.any(|line| line.unwrap().contains("press Ctrl-C again")));
    signal(&child, "-INT");
    let (status, out, _) = outcome(&child.wait_with_output().unwrap());
    assert_eq!((status, out.as_str()), (130, ""));
}

/// Attacks are solved before the run, and the seed must reach the solver.
#[test]
fn attacks_are_made_with_the_seed_of_the_command_line() {
    let path = profile(
        "attack-seed.toml",
        "[ports]\nA = \"null:\"\n[[attack]]\ntemplate = \"udp-scan\"\nport = \"A\"\noptions = { \
         count = \"3\", jitter = \"50\" }\n",
    );
    let print = |seed: &str| {
        let clock = ["--clock", "virtual", "--fingerprint", "-q", "--json", "-"];
        let (status, out, err) = run(&[&["run", &path, "--seed", seed][..], &clock].concat());
        assert_eq!(status, 0, "{err}");
        let report: Value = serde_json::from_str(&out).unwrap();
        report["ports"][0]["tx"]["fingerprint"].as_str().unwrap().to_owned()
    };
    assert_eq!(print("1"), print("1"));
    assert_ne!(print("1"), print("2"));
}

#[test]
fn a_run_without_a_terminal_prints_a_line_a_second() {
    let (status, out, err) = run(&[
        "send",
        "-p",
        "null:",
        "--packet",
        "eth/ipv4/udp",
        "-r",
        "1kpps",
        "--duration",
        "1200ms",
    ]);
    assert_eq!(status, 0);
    // A busy machine may be a little late.
    assert!(err.starts_with("t=1.") && err.contains("s  A tx "), "{err}");
    assert!(err.lines().count() <= 2, "{err}");
    assert!(out.contains("VALID"), "{out}");
}

#[test]
fn the_demo_ends_with_a_report() {
    let (json, html) = (file("demo.json"), file("demo.html"));
    // Request a low rate, so the test passes when other tests run at the same time.
    let (status, out, err) =
        run(&["demo", "-d", "500ms", "--mult", "0.1", "--json", &json, "--report", &html]);
    assert_eq!(status, 0, "{err}");
    assert!(out.contains(&html) && out.contains("Next: "), "{out}");
    let report: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    let sent = |i: usize| report["ports"][i]["tx"]["packets"].as_u64().unwrap();
    // A machine that was suspended reports the frames that were not sent.
    let late = |i: usize| report["ports"][i]["tx"]["not_sent"]["late"].as_u64().unwrap_or(0);
    let due: [u64; 2] = std::array::from_fn(|i| sent(i) + late(i));
    assert_eq!(due, [1250, 1250], "{}", report["verdict"]);
    assert_eq!(
        report["streams"].as_array().unwrap().iter().filter(|s| s["rx"]["lost"] == 0).count(),
        4
    );
    assert!(fs::read_to_string(&html).unwrap().contains("imix A to B"));
}

#[test]
fn a_lab_is_made_used_and_taken_down() {
    let name = format!("cli-{}", std::process::id());
    let (status, out, err) = run(&["lab", "up", &name]);
    if status == 3 {
        println!("SKIPPED: {err}");
        return;
    }
    assert_eq!(status, 0, "{err}");
    assert!(out.contains("veth-a and veth-b"), "{out}");
    let checks = || {
        assert_eq!(run(&["lab", "up", &name]).0, 2);
        assert!(run(&["lab", "list"]).1.contains(&name));
        let (status, out, err) =
            run(&["lab", "exec", &name, "--", "sh", "-c", "echo out; echo err >&2; exit 7"]);
        assert_eq!((status, out.as_str(), err.as_str()), (7, "out\n", "err\n"));
        let args = [
            "lab",
            "exec",
            &name,
            "--",
            env!("CARGO_BIN_EXE_squall"),
            "send",
            "-p",
            "veth-a",
            "--to",
            "veth-b",
        ];
        let rest = [
            "--packet",
            "eth/ipv4/udp",
            "-r",
            "1kpps",
            "-n",
            "100",
            "--latency",
            "-q",
            "--fail-if",
            "loss > 0",
        ];
        let (status, _, err) = run(&[&args[..], &rest].concat());
        assert_eq!((status, err.as_str()), (0, ""));
    };
    let checked = std::panic::catch_unwind(checks);
    assert_eq!(run(&["lab", "down", &name]).0, 0);
    if let Err(failed) = checked {
        std::panic::resume_unwind(failed);
    }
    assert!(!run(&["lab", "list"]).1.contains(&name));
}

/// Removes a lab when the test ends, even if it panics.
struct Taken<'a>(&'a str);

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        run(&["lab", "down", self.0]);
    }
}

/// Path of haproxy's libraries, if it is unpacked next to the binary and not installed.
fn unpacked() -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    let found =
        std::env::split_paths(&path).find_map(|folder| folder.join("haproxy").canonicalize().ok());
    let libraries = found.and_then(|found| Some(found.parent()?.parent()?.join("lib")));
    let folders = libraries.and_then(|folder| std::fs::read_dir(folder).ok()).into_iter().flatten();
    let folders = folders.flatten().map(|folder| folder.path());
    folders
        .filter(|folder| folder.to_string_lossy().ends_with("-linux-gnu"))
        .map(|folder| folder.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(":")
}

/// The output of `lab up --device`. If the machine does not meet the requirements, prints the
/// reason and returns `None`.
fn lab_with(name: &str, device: &str, more: &[&str]) -> Option<String> {
    let args = [&["lab", "up", name, "--device", device], more].concat();
    let (status, out, err) = match device {
        "haproxy" => outcome(&squall(&args).env("LD_LIBRARY_PATH", unpacked()).output().unwrap()),
        _ => run(&args),
    };
    if status == 3 {
        println!("SKIPPED: {device}: {err}");
        return None;
    }
    assert_eq!(status, 0, "{device}: {err}");
    Some(out)
}

/// The report of this program when run in the lab.
fn report_in(lab: &str, args: &[&str]) -> Value {
    let squall = ["lab", "exec", lab, "--", env!("CARGO_BIN_EXE_squall")];
    let (_, out, err) =
        run(&[&squall[..], args, &["--json", "-", "--allow-invalid", "-q"]].concat());
    serde_json::from_str(&out).unwrap_or_else(|_| panic!("{args:?}: {out}{err}"))
}

/// Frames sent and received, per stream. A busy machine may lose some.
fn carried(report: &Value) -> Vec<(u64, u64)> {
    let streams = report["streams"].as_array().expect("streams");
    let count = |value: &Value| value.as_u64().unwrap_or(0);
    let of = |s: &Value| (count(&s["tx_packets"]), count(&s["rx"]["packets"]));
    streams.iter().map(of).collect()
}

#[test]
fn every_device_carries_the_frames_of_its_profile_both_ways() {
    let devices = ["router", "bridge", "nat", "firewall", "reference,delay=1ms"];
    let versions = [&[][..], &["--ipv6"]];
    for (device, version) in devices.into_iter().flat_map(|one| versions.map(|v| (one, v))) {
        let name = format!("dev-{}", std::process::id());
        let profile = std::env::temp_dir().join(format!("{name}.toml"));
        let profile = profile.to_str().unwrap();
        let Some(out) = lab_with(&name, device, &[&["--profile", profile][..], version].concat())
        else {
            continue;
        };
        let taken = Taken(&name);
        assert!(out.contains(&format!("veth-a - {device} - veth-b")), "{out}");
        // The forwarder of the reference device may wait for a CPU.
        let linger = if device.starts_with("reference") { "2s" } else { "200ms" };
        let report = report_in(&name, &["run", profile, "-d", "1s", "--linger", linger]);
        std::fs::remove_file(profile).unwrap();
        let carried = carried(&report);
        assert_eq!(carried.len(), 2, "two ways");
        for (sent, received) in carried {
            assert!(sent > 0 && sent == received, "{device}: {sent} and {received}: {report}");
        }
        // The printed command, split into words.
        let line = out.lines().find(|line| line.contains("squall send --port veth-a")).unwrap();
        let packet = line.split('\'').nth(1).unwrap();
        let send = ["send", "-p", "veth-a", "--to", "veth-b", "--packet", packet];
        let report = report_in(&name, &[&send[..], &["-r", "1kpps", "-n", "100"]].concat());
        assert_eq!(report["ports"][0]["tx"]["packets"], 100, "{device}");
        drop(taken);
    }
}

#[test]
fn a_nat_and_a_firewall_pass_from_b_to_a_only_what_belongs_to_a_flow_from_a() {
    for device in ["nat", "firewall"] {
        let name = format!("shut-{device}-{}", std::process::id());
        let Some(_) = lab_with(&name, device, &[]) else { continue };
        let _taken = Taken(&name);
        let lost = |from: &str, to: &str, packet: &str| {
            let send = ["send", "-p", from, "--to", to, "-r", "1kpps", "-n", "100", "--latency"];
            // ICMP errors quote the rejected frames.
            let more = ["--packet", packet, "--filter", "udp"];
            carried(&report_in(&name, &[&send[..], &more].concat()))[0]
        };
        let to_a =
            "eth(dst=02:00:00:00:0b:01)/ipv4(src=198.18.2.2,dst=198.18.2.1)/udp(sport=9,dport=7)";
        let to_a =
            if device == "nat" { to_a.into() } else { to_a.replace("198.18.2.1", "198.18.1.2") };
        // Use another port: the NAT would take a flow with the same port for a flow to itself.
        let other = to_a.replace("dport=7", "dport=8");
        assert_eq!(lost("veth-b", "veth-a", &other), (100, 0), "{device}");
        let to_b =
            "eth(dst=02:00:00:00:0a:01)/ipv4(src=198.18.1.2,dst=198.18.2.2)/udp(sport=7,dport=9)";
        assert_eq!(lost("veth-a", "veth-b", to_b), (100, 100), "{device}");
        assert_eq!(lost("veth-b", "veth-a", &to_a), (100, 100), "{device}: the flow is known now");
    }
}

#[test]
fn a_reference_device_loses_exactly_what_its_faults_say() {
    let name = format!("ref-{}", std::process::id());
    let Some(_) = lab_with(&name, "reference,lose=gilbert:1/100:1/10,table=1", &[]) else { return };
    let _taken = Taken(&name);
    let packet = "eth/ipv4/udp";
    let send = ["send", "-p", "veth-a", "--to", "veth-b", "--packet", packet, "-r", "2kpps"];
    let more = ["-n", "1100", "--latency", "--linger", "2s"];
    let report = report_in(&name, &[&send[..], &more].concat());
    // 100 of every 110 frames pass, and the last loss burst has ended.
    assert_eq!(carried(&report), [(1100, 1000)]);
    // The device's table has room only for the earlier flow.
    let other = "eth/ipv4/udp(sport=7)";
    let send = ["send", "-p", "veth-a", "--to", "veth-b", "--packet", other, "-r", "2kpps"];
    let report = report_in(&name, &[&send[..], &["-n", "50", "--latency"]].concat());
    assert_eq!(carried(&report), [(50, 0)]);
}

#[test]
fn haproxy_carries_connections_from_a_to_b() {
    let name = format!("ha-{}", std::process::id());
    let Some(out) = lab_with(&name, "haproxy", &[]) else { return };
    let _taken = Taken(&name);
    assert!(out.contains("squall flows serve"), "{out}");
    let squall = ["lab", "exec", &name, "--", env!("CARGO_BIN_EXE_squall"), "flows"];
    let serve = ["serve", "--port", "veth-b", "--servers", "198.18.2.2", "-d", "20s", "-q"];
    let mut server = Command::new(env!("CARGO_BIN_EXE_squall"))
        .args(squall)
        .args(serve)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    // The server may need a moment to start, so retry.
    let done = (0..20).map(|_| {
        let clients = ["flows", "http", "--url", "http://198.18.1.1/", "--port", "veth-a"];
        let load = ["--clients", "198.18.1.10-198.18.1.19", "--cps", "20", "-d", "500ms"];
        let report = report_in(&name, &[&clients[..], &load].concat());
        report["flows"]["templates"][0]["client"]["completed"].as_u64().unwrap_or(0)
    });
    let most = done.into_iter().find(|done| *done == 10);
    server.kill().unwrap();
    server.wait().unwrap();
    assert_eq!(most, Some(10));
}

#[test]
fn a_device_is_gone_with_its_lab_even_if_that_was_killed() {
    let name = format!("gone-{}", std::process::id());
    let Some(_) = lab_with(&name, "reference", &[]) else { return };
    let list = run(&["lab", "list"]).1;
    let line = list.lines().find(|line| line.starts_with(&name)).expect(&list);
    let holder: u32 = line.split_whitespace().last().unwrap().parse().unwrap();
    let descendants = || -> Vec<u32> {
        let mut all = vec![holder];
        let mut next = 0;
        while let Some(pid) = all.get(next) {
            let children = format!("/proc/{pid}/task/{pid}/children");
            let children = std::fs::read_to_string(children).unwrap_or_default();
            all.extend(children.split_whitespace().map(|pid| pid.parse::<u32>().unwrap()));
            next += 1;
        }
        all
    };
    let all = descendants();
    assert_eq!(all.len(), 3, "the lab's, the device's, the forwarder's");
    assert!(Command::new("kill").args(["-9", &holder.to_string()]).status().unwrap().success());
    let is_there = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.starts_with(" Z"))
    };
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while all.iter().any(is_there) && std::time::Instant::now() < deadline {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(!all.iter().any(is_there));
    assert!(!run(&["lab", "list"]).1.contains(&name));
    assert_eq!(run(&["lab", "down", &name]).0, 2, "it is not up any more");
}

#[test]
fn a_device_that_cannot_be_made_says_what_to_install() {
    for (device, expected) in [
        ("switch", "expected router, bridge, nat, firewall, haproxy, reference"),
        ("router,drop=0.1", "takes no faults"),
        ("reference,drain=1kpps", "drain also needs buffer"),
    ] {
        let (status, _, err) = run(&["lab", "up", "never-made", "--device", device]);
        assert_eq!(status, 2, "{err}");
        assert!(err.contains(expected), "{err}");
    }
    let (status, _, err) =
        run(&["lab", "up", "never-made", "--device", "haproxy", "--profile", "/dev/null"]);
    assert!(status == 2 && err.contains("carries connections"), "{err}");
}

#[test]
fn generators_are_counted_where_their_frames_arrive() {
    let tools = "squall,tcpreplay,trafgen,iperf3,trex";
    let args =
        ["compare", "generators", "--tools", tools, "--sizes", "100", "--rates", "1kpps,max"];
    let html = std::env::temp_dir().join(format!("generators-{}.html", std::process::id()));
    let page = html.to_str().unwrap();
    let more = ["-d", "400ms", "--rounds", "2", "--json", "-", "--report", page, "-q"];
    let (status, out, err) = run(&[&args[..], &more].concat());
    if status == 3 {
        println!("SKIPPED: {err}");
        return;
    }
    assert_eq!(status, 0, "{err}");
    let result: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(result["schema"], "squall-generators/1");
    let tools = result["tools"].as_array().unwrap();
    for tool in tools {
        let (name, why) = (&tool["name"], &tool["why_not"]);
        let steps: Vec<&Value> =
            result["steps"].as_array().unwrap().iter().filter(|s| s["tool"] == *name).collect();
        if let Some(why) = why.as_str() {
            // TRex is never compared here, on any machine.
            let kind = if name == "trex" { "not compared" } else { "SKIPPED" };
            println!("{kind}: {name}: {why}");
            assert!(why.contains("try ") || name == "trex", "{why}");
            assert!(steps.is_empty());
            continue;
        }
        assert_eq!(steps.len(), 2, "{name}");
        for step in steps {
            for round in step["rounds"].as_array().unwrap() {
                assert_eq!(round["failed"], Value::Null, "{name}: {step}");
                let arrived = round["arrived"].as_u64().unwrap();
                let claimed = round["claimed"].as_u64().unwrap();
                // A veth loses no frames, so the number of arrivals must match the claim. iperf3
                // adds a control connection.
                assert!(claimed > 0 && claimed.abs_diff(arrived) <= 50, "{name}: {step}");
            }
            let (mean, l2) = (step["mean_pps"].as_f64().unwrap(), step["bps_l2"].as_f64().unwrap());
            assert!((l2 - mean * 800.0).abs() < 1.0, "{step}");
        }
    }
    assert!(std::fs::read_to_string(&html).unwrap().contains("Frames of 100 octets"));
    std::fs::remove_file(html).unwrap();
    assert_eq!(run(&["compare", "generators", "--tools", "none"]).0, 2);
    assert_eq!(run(&["compare", "generators", "--rates", "50%"]).0, 2);
}

#[test]
fn experiments_are_listed_with_their_papers() {
    let (status, out, err) = run(&["experiment", "--list"]);
    assert_eq!(status, 0, "{err}");
    for expected in ["ntg\n", "trex\n", "WorldCIS 2020", "short form", "--full"] {
        assert!(out.contains(expected), "{expected}: {out}");
    }
    let (status, _, err) = run(&["experiment", "nothing"]);
    assert!(status == 2 && err.contains("cannot find experiment") && err.contains("ntg"), "{err}");
    assert_eq!(run(&["experiment"]).0, 2);
    let (status, _, err) = run(&["experiment", "ntg", "--tools", "nothing"]);
    assert!(status == 2 && err.contains("no generator"), "{err}");
}

#[test]
fn interfaces_are_listed_with_what_works_on_them() {
    let (status, out, _) = run(&["ports", "--json", "-"]);
    assert_eq!(status, 0);
    let ports: Value = serde_json::from_str(&out).unwrap();
    let lo = ports["interfaces"]
        .as_array()
        .unwrap()
        .iter()
        .find(|i| i["name"] == "lo")
        .expect("every machine has lo");
    let works = lo["ports"].as_array().unwrap().iter().any(|kind| kind == "af_packet");
    assert_eq!(works, lo["why_not"]["af_packet"] == Value::Null, "{lo:#}");
    assert!(
        lo["offloads"]["gro"]["on"].is_boolean()
            && lo["xdp"]["programs"].as_array().unwrap().is_empty(),
        "{lo:#}"
    );
    assert!(ports["process"]["capabilities"].is_array());
    assert!(run(&["ports"]).1.starts_with("INTERFACE"));
    let (status, out, _) = run(&["ports", "lo"]);
    assert!(
        status == 0 && out.starts_with("lo\n  driver") && out.contains("\n  af_packet "),
        "{out}"
    );
    let (status, _, err) = run(&["ports", "nosuch0"]);
    assert!(status == 3 && err.contains("nosuch0") && err.contains("lo"), "{err}");
}

/// Runs a script in a user and network namespace. Returns `None` if the machine does not permit it.
fn in_a_namespace(script: &str) -> Option<(i32, String, String)> {
    let path =
        std::path::Path::new(env!("CARGO_BIN_EXE_squall")).parent().unwrap().display().to_string();
    let output = Command::new("unshare")
        .args(["-Urn", "sh", "-c", script])
        .env("PATH", format!("{path}:{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap()))
        .env("SQUALL_ALLOW_INVALID", "1")
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let outcome = outcome(&output);
    if outcome.2.contains("unshare") {
        println!("SKIPPED: no namespace: {}", outcome.2);
        return None;
    }
    Some(outcome)
}

/// A veth pair without addresses, on which the kernel would send frames of its own.
const VETH: &str = "ip link add a0 type veth peer name b0 && ip link set a0 addrgenmode none && \
                    ip link set b0 addrgenmode none && ip link set a0 up && ip link set b0 up && \
                    sleep 0.1";

#[test]
fn an_interface_that_is_lost_ends_the_run_with_status_3_and_what_came_is_kept() {
    let kept = file("lost.pcapng");
    for (command, port, lost, why) in [
        (
            "recv",
            "b0,on_link_down=stop",
            "link set b0 down",
            "b0: the link went down, and on_link_down=stop",
        ),
        ("recv", "b0", "link del a0", "b0: the interface is gone"),
        (&format!("capture -w {kept}"), "b0", "link del a0", "b0: the interface is gone"),
    ] {
        let script = format!(
            "{VETH} || exit; (for _ in $(seq 300); do sleep 0.1; [ $(wc -l < /proc/net/packet) -lt 2 ] \
             || break; done; sleep 3; squall send -p a0 --packet eth/ipv4/udp -r 1kpps -n 50 -q; ip \
             {lost}) & squall {command} --port {port} -q --json - -d 50s"
        );
        let Some((status, out, err)) = in_a_namespace(&script) else { return };
        assert_eq!(status, 3, "{err}");
        assert!(err.contains(why), "{err}");
        let report: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(report["ports"][0]["rx"]["packets"], 50, "{report}");
        assert!(report["duration_s"].as_f64().is_some_and(|s| s < 40.0), "{report}");
    }
    let (status, out, err) = run(&["info", &kept, "--json", "-"]);
    assert_eq!(status, 0, "{err}");
    assert_eq!(
        serde_json::from_str::<Value>(&out).unwrap()["files"][0]["traffic"]["packets"],
        50,
        "{out}"
    );
}

#[test]
fn a_bare_name_takes_a_kind_and_says_why() {
    let send = "squall send -p a0 --to b0 --packet eth/ipv4/udp -r 1kpps -n 50 --latency \
                --fail-if 'loss > 0' --json -";
    let Some((status, out, err)) = in_a_namespace(&format!("{VETH} && {send}")) else { return };
    assert_eq!(status, 0, "{err}");
    let report: Value = serde_json::from_str(&out).unwrap();
    let notes: Vec<&str> =
        report["notes"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    for (i, name) in ["a0", "b0"].into_iter().enumerate() {
        let address = report["ports"][i]["address"].as_str().unwrap();
        assert!(address.ends_with(&format!(":{name}")), "{address}");
        let taken = format!("{name}: taken as {address}: ");
        assert!(
            notes.iter().any(|note| note.starts_with(&taken) && note.len() > taken.len()),
            "{notes:?}"
        );
    }
    // Only send, with options that only one kind has, and a speed.
    let script = "ip link add d0 type veth peer name e0 && ip link set d0 up && ip link set e0 up \
                  && sleep 0.1 && squall send -p d0,bypass=0,speed=1Gbps --packet eth/ipv4/udp -r \
                  10% -n 20 -q --json -";
    let Some((status, out, err)) = in_a_namespace(script) else { return };
    assert_eq!(status, 0, "{err}");
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["ports"][0]["address"], "af_packet:d0,bypass=0,speed=1Gbps");
    let note = report["notes"][0].as_str().unwrap();
    assert!(
        note.contains("af_xdp not taken: ") && note.contains("unknown option bypass"),
        "{note}"
    );
    // The kernel also sends frames to announce its addresses.
    assert!(report["ports"][0]["interface"]["tx_packets"].as_u64() >= Some(20), "{report}");
    // A sender may use a port faster than packet sockets, but not with more workers than queues.
    for (more, expected) in [("", "af_"), ("--cores 3", "af_packet:a0")] {
        let send = format!(
            "{VETH} && squall send -p a0 --packet eth/ipv4/udp -r 1kpps -n 50 {more} -q --json -"
        );
        let Some((status, out, err)) = in_a_namespace(&send) else { return };
        assert_eq!(status, 0, "{err}");
        let report: Value = serde_json::from_str(&out).unwrap();
        let port = &report["ports"][0];
        assert_eq!(
            (&port["tx"]["packets"], &port["interface"]["tx_packets"]),
            (&50.into(), &50.into()),
            "{report:#}"
        );
        assert!(port["address"].as_str().unwrap().starts_with(expected), "{report:#}");
    }
    // An interface that is down cannot be opened with any kind of port. The reason is that of the
    // last kind tried.
    let down = "squall send -p lo --packet eth/ipv4/udp -r 1 -n 1 -q";
    let Some((status, _, err)) = in_a_namespace(down) else { return };
    assert!(status == 3 && err.contains("lo is down\n  try: ip link set lo up"), "{err}");
}

#[test]
fn receive_queues_are_spread_over_as_many_workers_as_are_asked_for() {
    let (status, out, err) = run(&[
        "recv",
        "-p",
        "loop:spread,queues=3",
        "--cores",
        "3",
        "-d",
        "50ms",
        "-q",
        "--json",
        "-",
    ]);
    assert_eq!(status, 0, "{err}");
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["workers"].as_array().unwrap().len(), 3, "{report:#}");
    let (status, _, err) = run(&["recv", "-p", "loop:spread", "--cpus", "4000"]);
    assert!(status == 2 && err.contains("CPU 4000"), "{err}");
}

#[test]
fn a_port_that_cannot_receive_is_not_waited_for() {
    for address in ["af_xdp:b0", "af_xdp:b0,rx_queues=0"] {
        for command in [
            format!("recv -p {address}"),
            format!("send -p a0 --to {address} --packet eth/ipv4/udp -r 1kpps"),
        ] {
            let Some((status, _, err)) =
                in_a_namespace(&format!("{VETH} && squall {command} -n 1 -d 100ms -q"))
            else {
                return;
            };
            if err.contains("CONFIG_XDP_SOCKETS") {
                println!("SKIPPED: {err}");
                return;
            }
            assert!(
                status >= 2 && err.contains("cannot receive") && err.contains("try "),
                "{address}: {status} {err}"
            );
        }
    }
}

#[test]
fn the_doctor_tries_each_kind_of_port_and_what_should_work_does() {
    let (status, out, err) = run(&["doctor", "--json", "-"]);
    assert_eq!(status, 0, "{out}{err}");
    let value: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(value["schema"], "squall-doctor/1");
    let findings = value["findings"].as_array().unwrap();
    let of = |topic: &str| -> Vec<(&str, &str)> {
        let of_topic = findings.iter().filter(|finding| finding["topic"] == topic);
        of_topic.map(|f| (f["name"].as_str().unwrap(), f["state"].as_str().unwrap())).collect()
    };
    let ports = of("ports");
    let kinds: Vec<_> = squall_machine::kinds::KINDS.iter().map(|kind| kind.name).collect();
    assert_eq!(ports.iter().map(|(name, _)| *name).collect::<Vec<_>>(), kinds);
    for kind in ["loop", "null", "pcap"] {
        assert!(ports.contains(&(kind, "ok")), "{out}");
    }
    // Packet sockets work wherever a lab does.
    if of("permissions").contains(&("private lab", "ok")) {
        assert!(ports.contains(&("af_packet", "ok")), "{out}");
    }
    let text = run(&["doctor"]).1;
    for word in ["CPU and clock", "Permissions", "Kernel", "Libraries", "Ports", "loop"] {
        assert!(text.contains(word), "{text}");
    }
}

#[test]
fn the_doctor_examines_a_card_and_sends_nothing() {
    let (status, out, err) = run(&["doctor", "--nic", "lo"]);
    assert_eq!(status, 0, "{out}{err}");
    for word in ["Link", "Queues", "Time", "Offloads", "XDP", "DPDK", "zero copy", "huge pages"] {
        assert!(out.contains(word), "{out}");
    }
    assert!(!out.contains("Ports:"), "{out}");
    let (status, _, err) = run(&["doctor", "--nic", "nosuch0"]);
    assert!(status == 3 && err.contains("nosuch0") && err.contains("try one of: "), "{err}");
}

#[test]
fn a_probe_measures_what_works_in_a_lab_of_its_own_or_on_a_named_interface() {
    let Some((status, out, err)) = in_a_namespace("squall ports --probe --time 300ms --json -")
    else {
        return;
    };
    assert_eq!(status, 0, "{err}");
    assert!(err.contains("in a private lab, veth-a and veth-b"), "{err}");
    let probe: Value = serde_json::from_str(&out).unwrap();
    let measured = probe["measured"].as_array().unwrap();
    let of = |direction: &str| -> Vec<&Value> {
        measured.iter().filter(|m| m["kind"] == "af_packet" && m["does"] == direction).collect()
    };
    assert_eq!((of("send").len(), of("receive").len()), (2, 2), "{probe:#}");
    for m in of("send") {
        // The second interface receives all frames that the first sends.
        assert!(m["sent"].as_u64() > Some(0) && m["sent"] == m["received"], "{m:#}");
    }
    assert_eq!(probe["bare_name_takes"]["receive"], "af_packet");
    // On a named interface, the frames and their destination are announced first.
    let script = format!("{VETH} && squall ports --probe a0 --time 50ms");
    let Some((status, out, err)) = in_a_namespace(&script) else { return };
    assert_eq!(status, 0, "{err}");
    assert!(
        err.contains("probing on a0") && err.contains("type=0x88b5") && err.contains("own address"),
        "{err}"
    );
    assert!(out.contains("af_packet  sends") && !out.contains("receives  "), "{out}");
}

#[test]
fn a_probe_stops_on_request_and_prints_its_results() {
    // A single measurement would take an hour. The shell ignores signals for a process in the
    // background until that handles them, so one that comes too early would be lost.
    let script = "squall ports --probe --time 3600s & sleep 5; kill -INT $!; wait $!";
    let Some((status, out, err)) = in_a_namespace(script) else { return };
    assert_eq!(status, 0, "{err}");
    assert!(out.contains("  sends") && err.contains("stopped"), "{out}{err}");
}

#[test]
fn completions_and_pages_name_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let (status, out, _) = run(&["completions", shell]);
        assert_eq!(status, 0);
        assert!(out.contains("recv") && out.contains("fail-if"), "{shell}");
    }
    let folder = file("man");
    assert_eq!(run(&["man", &folder]).0, 0);
    let page = fs::read_to_string(format!("{folder}/squall-send.1")).unwrap();
    assert!(page.contains("\\-\\-vary") && page.contains("Examples:"), "{page}");
    assert!(run(&["man"]).1.contains(".TH squall 1"));
}

#[test]
fn a_closed_pipe_is_no_error() {
    let mut child = squall(&["completions", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let (status, _, err) = outcome(&child.wait_with_output().unwrap());
    assert_eq!((status, err.as_str()), (0, ""));
}

/// A capture with 200 packets of RTP and 200 without numbers. Packets 50 to 52 of RTP are missing,
/// and packet 70 is duplicated.
fn numbered_capture(name: &str) -> String {
    let path = file(name);
    let mut octets = Vec::new();
    octets.extend(
        [0xa1b2_3c4du32, 0x0004_0002, 0, 0, 65535, 1].iter().flat_map(|word| word.to_le_bytes()),
    );
    let mut put = |port: u16, payload: &[u8], time: u64| {
        let mut frame =
            vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0];
        frame.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend(
            [port, 6000, 8 + payload.len() as u16, 0].iter().flat_map(|word| word.to_be_bytes()),
        );
        frame[16..18].copy_from_slice(&(28 + payload.len() as u16).to_be_bytes());
        frame.extend(payload);
        let header =
            [time / 1_000_000_000, time % 1_000_000_000, frame.len() as u64, frame.len() as u64];
        octets.extend(header.iter().flat_map(|word| (*word as u32).to_le_bytes()));
        octets.extend(frame);
    };
    for k in 0..200u32 {
        let time = 1_700_000_000_000_000_000 + u64::from(k) * 20_000_000;
        let media = [
            &[0x80, 0][..],
            &(k as u16).to_be_bytes(),
            &(160 * k).to_be_bytes(),
            &[1, 2, 3, 4],
            &[0; 160],
        ]
        .concat();
        if !(50..53).contains(&k) {
            put(5004, &media, time);
        }
        if k == 70 {
            put(5004, &media, time + 5000);
        }
        put(7, &[0; 30], time + 1_000_000);
    }
    fs::write(&path, octets).unwrap();
    path
}

#[test]
fn recv_separates_flows_and_reads_sequence_numbers_of_other_tools() {
    let path = numbered_capture("numbered.pcap");
    let port = format!("pcap:{path},read");
    let all = report(&["recv", "--port", &port, "--histogram", "4:10ms"]);
    let flows = &all["received_flows"];
    assert_eq!(
        (flows["by"].as_str(), flows["flows"].as_array().map(Vec::len)),
        (Some("flow"), Some(2))
    );
    let rtp = &flows["flows"][0];
    assert_eq!(
        (rtp["name"].as_str(), rtp["packets"].as_u64()),
        (Some("10.0.0.1:5004 > 10.0.0.2:6000 UDP"), Some(198))
    );
    let sequence = &rtp["sequence"];
    assert_eq!((sequence["kind"].as_str(), sequence["lost"].as_u64()), (Some("rtp"), Some(3)));
    assert_eq!(
        (sequence["duplicates"].as_u64(), sequence["restarts"].as_u64()),
        (Some(1), Some(0))
    );
    assert_eq!(sequence["patterns"]["loss_period_packets"]["max"].as_u64(), Some(3));
    assert_eq!(sequence["jitter_ns"].as_f64(), Some(0.0));
    assert_eq!(rtp["arrival_gap_ns"]["max"].as_u64(), Some(80_000_000));
    assert_eq!(rtp["arrival_gap_bins"]["beyond"].as_u64(), Some(1));
    assert_eq!(rtp["bursts"]["count"].as_u64(), Some(1), "the copy came 5 us later");
    let other = &flows["flows"][1];
    assert!(
        other["sequence"].is_null() && other["arrival_gap_ns"]["stddev"].as_f64() == Some(0.0),
        "{other}"
    );
    assert_eq!(
        (flows["sources"][0]["packets"].as_u64(), flows["sources"][0]["flows"].as_u64()),
        (Some(398), Some(2))
    );
    assert_eq!(all["ports"][0]["rx"]["timestamp_resolution_ns"].as_u64(), Some(5000));
    let sources = report(&["recv", "--port", &port, "--by", "source"]);
    assert_eq!(
        (
            &sources["received_flows"]["flows"][0]["name"],
            sources["received_flows"]["flows"][0]["packets"].as_u64()
        ),
        (&"10.0.0.1".into(), Some(398))
    );
    let few = report(&["recv", "--port", &port, "--flows", "1"]);
    assert_eq!(
        (
            few["received_flows"]["flows"].as_array().map(Vec::len),
            few["received_flows"]["rest"]["packets"].as_u64()
        ),
        (Some(1), Some(200))
    );
    let (status, out, err) = run(&["recv", "--port", &port, "--fail-if", "loss > 2"]);
    assert_eq!(status, 1, "{out}");
    assert!(err.contains("flow 10.0.0.1:5004 > 10.0.0.2:6000 UDP: loss = 3"), "{err}");
    assert!(
        out.contains("rtp") && out.contains("FLOW") && out.contains("timestamps: virtual"),
        "{out}"
    );
}

#[test]
fn stages_of_a_load_are_given_on_the_command_line() {
    let stages = |args: &[&str]| {
        let flows = ["flows", "http", "--url", "http://10.0.0.2/", "-p", "null:"];
        let all = [&flows[..], &["--clients", "10.0.0.1"], args, &["--print-profile"]].concat();
        let (status, out, err) = run(&all);
        (status, if status == 0 { out } else { err })
    };
    let (status, toml) = stages(&["--stage", "2s:100", "--stage", "500ms:0"]);
    assert_eq!(status, 0, "{toml}");
    assert!(toml.contains(r#"{ duration = "2 s", to = 100.0 }"#), "{toml}");
    assert!(toml.contains(r#"{ duration = "500 ms", to = 0.0 }"#), "{toml}");
    let (status, toml) = stages(&["--users", "10", "--stage", "2s:10"]);
    assert!(status == 0 && toml.contains("users = 10"), "{toml}");
    let (status, err) = stages(&["--stage", "100"]);
    assert!(status == 2 && err.contains("expected TIME:LEVEL"), "{err}");
    let (status, err) = stages(&["--stage", "2s:100", "--ramp-up", "1s"]);
    assert!(status == 2 && err.contains("cannot be used with"), "{err}");
}

#[test]
fn servers_of_both_families_are_served_together() {
    let serve = |servers: &[&str]| {
        let args = ["flows", "serve", "-p", "null:", "--listen", "8080", "--print-profile"];
        let given = servers.iter().flat_map(|servers| ["--servers", *servers]);
        let (status, out, err) = run(&args.into_iter().chain(given).collect::<Vec<_>>());
        assert_eq!(status, 0, "{err}");
        let path = profile("families.toml", &out);
        let (status, plan, err) = run(&["plan", &path, "--json", "-"]);
        assert_eq!(status, 0, "{err}");
        let plan: Value = serde_json::from_str(&plan).unwrap();
        let templates = plan["flows"]["templates"].as_array().unwrap().clone();
        assert!(templates.iter().all(|template| template["listen"] == 8080), "{templates:?}");
        templates.iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(serve(&["10.0.2.1-10.0.2.9"]), ["http"]);
    assert_eq!(serve(&["fd00::1", "fd00::7-fd00::9"]), ["http"]);
    assert_eq!(serve(&["fd00::1", "10.0.2.1", "10.0.3.0/24"]), ["http IPv4", "http IPv6"]);
}

#[test]
fn a_signal_ends_planning_without_a_run() {
    let path = std::env::temp_dir().join(format!("squall-many-{}.toml", std::process::id()));
    let stream = |i: u32| {
        let (a, b, c) = (i >> 16, i >> 8 & 255, i & 255);
        format!("[[stream]]\npacket = \"eth/ipv4(dst=10.{a}.{b}.{c})/udp\"\nrate = 1\n")
    };
    let streams: String = (0..100_000).map(stream).collect();
    fs::write(&path, format!("ports = {{ A = \"null:\" }}\n{streams}")).unwrap();
    let child = squall(&["run", path.to_str().unwrap(), "--duration", "60s", "--json", "-"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Signals are caught after the profile is read and before the streams are planned, which takes
    // seconds. SIGHUP, the lowest bit, is the last of them.
    let status = format!("/proc/{}/status", child.id());
    let caught = || {
        let status = fs::read_to_string(&status).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap() & 1 == 1
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    while !caught() {
        assert!(Instant::now() < deadline, "signals are not caught");
        sleep(Duration::from_millis(1));
    }
    Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    let (status, out, err) = outcome(&child.wait_with_output().unwrap());
    fs::remove_file(path).unwrap();
    assert_eq!((status, out.as_str()), (143, ""), "{err}");
    assert!(err.contains("before the start"), "{err}");
}

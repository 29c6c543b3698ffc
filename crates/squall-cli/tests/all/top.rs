//! Tests `squall top` with a running daemon.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::PathBuf,
    process::{Child, ChildStdout, Command, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use squall_server::{Client, Verify};

/// A daemon with a directory of its own, where `squall top` finds it.
struct Daemon {
    child: Child,
    url: String,
    /// Parent of the data directory.
    state: PathBuf,
}

fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("top-{name}-{}", std::process::id()));
    _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

impl Daemon {
    fn start(state: PathBuf, listen: &str, token: &str) -> Self {
        let data = state.join("squall");
        let mut command = Command::new(env!("CARGO_BIN_EXE_squall"));
        command
            .args([
                "serve", "--grpc", "off", "--json", "--listen", listen, "--token", token, "--data",
            ])
            .arg(&data);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let bound: Value = serde_json::from_str(&line).expect("it says where it listens");
        Self { child, url: bound["https"].as_str().unwrap().to_owned(), state }
    }

    fn token(&self) -> String {
        fs::read_to_string(self.state.join("squall/token")).unwrap().trim().to_owned()
    }

    fn client(&self) -> Client {
        Client::new(
            &self.url,
            Some(self.token()),
            &Verify::File(self.state.join("squall/cert.pem")),
        )
        .unwrap()
    }

    fn post(&self, path: &str, body: Value) -> Value {
        let (tell, receiver) = mpsc::channel();
        let client = self.client();
        client.post(path.into(), body, move |answer| tell.send(answer).unwrap());
        receiver.recv().unwrap().unwrap()
    }

    /// Starts a run and returns its name.
    fn run(&self, link: &str) -> String {
        let profile = format!(
            "[ports]\nA = \"loop:{link}\"\nB = \"loop:{link}\"\n[[stream]]\nname = \"web\"\nport \
             = \"A\"\npacket = \"eth/ipv4/udp\"\nrate = \"1 kpps\"\nlatency = true\n"
        );
        let started = self.post(
            "/squall/v1/runs",
            json!({ "profile": profile, "name": "evening", "owner": "alice" }),
        );
        started["run"]["id"].as_str().unwrap().to_owned()
    }

    fn top(&self, args: &[&str]) -> Command {
        self.squall(&[&["top"], args].concat())
    }

    /// The program, with this daemon's directory as that of the user.
    fn squall(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_squall"));
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
            .env("XDG_STATE_HOME", &self.state)
            .env("XDG_CONFIG_HOME", &self.state)
            .env_remove("SQUALL_TOKEN");
        command
    }

    fn end(&mut self) {
        signal(&self.child, "-TERM");
        self.child.wait().unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
        _ = fs::remove_dir_all(&self.state);
    }
}

fn signal(child: &Child, which: &str) {
    Command::new("kill").args([which, &child.id().to_string()]).status().unwrap();
}

/// Exit status, standard output, standard error.
fn outcome(mut command: Command) -> (i32, String, String) {
    let output = command.output().unwrap();
    let text = |octets: Vec<u8>| String::from_utf8(octets).unwrap();
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

#[test]
fn one_look_has_all_runs_with_their_figures() {
    let daemon = Daemon::start(folder("once"), "127.0.0.1:0", "always");
    let (status, out, err) = outcome(daemon.top(&[&daemon.url, "--once"]));
    assert_eq!((status, err.as_str()), (0, ""));
    assert_eq!(
        serde_json::from_str::<Value>(&out).unwrap(),
        json!({ "url": daemon.url, "runs": [] })
    );
    let run = daemon.run("once");
    // The first sample arrives after half a second, so wait for it.
    let (status, out, err) = outcome(daemon.top(&[&daemon.url, "--once", "--json"]));
    assert_eq!((status, err.as_str(), out.lines().count()), (0, "", 1));
    let look: Value = serde_json::from_str(&out).unwrap();
    let seen = &look["runs"][0];
    assert_eq!(
        (&seen["id"], &seen["name"], &seen["owner"]),
        (&json!(run), &json!("evening"), &json!("alice"))
    );
    assert!(seen["t_s"].as_f64().unwrap() > 0.1, "{seen}");
    assert_eq!(
        (&seen["ports"][1]["name"], &seen["streams"][0]["name"]),
        (&json!("B"), &json!("web"))
    );
    assert!(seen["streams"][0]["rx_pps"].as_f64().unwrap() > 100.0, "{seen}");
    assert!(seen["streams"][0]["latency_p99_ns"].as_u64().unwrap() > 0, "{seen}");
    daemon.post(&format!("/squall/v1/runs/{run}/stop"), json!({}));
}

#[test]
fn a_rejected_client_gets_the_reason_and_a_hint() {
    let daemon = Daemon::start(folder("refused"), "127.0.0.1:0", "always");
    let other = folder("refused-other");
    let refused = |command: &mut Command, expected: i32, parts: &[&str]| {
        let output = command.output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(expected), "{command:?}\n{err}");
        parts
            .iter()
            .for_each(|part| assert!(err.contains(part), "{command:?}: {part:?} in\n{err}"));
    };
    let url = daemon.url.as_str();
    refused(
        daemon.top(&["127.0.0.1:9", "--once"]).env("HOME", "/"),
        3,
        &["https://127.0.0.1:9", "squall serve"],
    );
    refused(
        &mut daemon.top(&[url, "--once", "--token", "wrong"]),
        3,
        &["the token is wrong", "--token"],
    );
    refused(daemon.top(&[url, "--once"]).env("SQUALL_TOKEN", "wrong"), 3, &["the token is wrong"]);
    // From another directory, the certificate is seen for the first time, and there is no token.
    let stranger = |args: &[&str]| {
        let mut command = daemon.top(args);
        command.env("XDG_STATE_HOME", other.join("none")).env("XDG_CONFIG_HOME", &other);
        command
    };
    refused(&mut stranger(&[url, "--once"]), 3, &["the token is missing"]);
    let known = fs::read_to_string(other.join("squall/known_daemons")).unwrap();
    let fingerprint = known.trim().split(' ').nth(1).unwrap();
    let (token, file) =
        (daemon.token(), daemon.state.join("squall/cert.pem").to_string_lossy().into_owned());
    for verify in [fingerprint, &file, "false"] {
        let (status, _, err) =
            outcome(stranger(&[url, "--once", "--token", &token, "--verify", verify]));
        assert_eq!((status, err.as_str()), (0, ""), "{verify}");
    }
    let wrong = format!("sha256:{}", "0".repeat(64));
    refused(
        &mut stranger(&[url, "--once", "--verify", &wrong]),
        3,
        &["wrong certificate", &wrong, fingerprint],
    );
    refused(&mut stranger(&[url, "--once", "--verify", "true"]), 3, &["not trusted", "--verify"]);
    refused(&mut stranger(&[url, "--once", "--verify", "/nowhere"]), 2, &["/nowhere", "PEM"]);
    let digit = if fingerprint.ends_with('0') { "1" } else { "0" };
    let changed = format!("{}{digit}\n", known.trim().strip_suffix(|_: char| true).unwrap());
    fs::write(other.join("squall/known_daemons"), changed).unwrap();
    refused(
        &mut stranger(&[url, "--once", "--token", &token]),
        3,
        &["first seen", "remove line 1 of"],
    );
    refused(
        &mut stranger(&[&url.replace("https", "http"), "--once"]),
        3,
        &["does not use plain HTTP", "try https://"],
    );
    refused(&mut stranger(&["ftp://a", "--once"]), 2, &["expected https://HOST:PORT"]);
    refused(&mut stranger(&["--every", "1ms", "--once"]), 2, &["100ms"]);
    fs::remove_dir_all(other).unwrap();
}

fn lines(out: ChildStdout) -> mpsc::Receiver<Value> {
    let (tell, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines() {
            if tell.send(serde_json::from_str(&line.unwrap()).unwrap()).is_err() {
                return;
            }
        }
    });
    receiver
}

#[test]
fn it_ends_when_its_output_is_closed() {
    let daemon = Daemon::start(folder("head"), "127.0.0.1:0", "auto");
    let mut top = daemon.top(&[&daemon.url, "--every", "100ms"]).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(top.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let status = loop {
        if let Some(status) = top.try_wait().unwrap() {
            break status;
        }
        assert!(Instant::now() < deadline, "it goes on");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!((status.code(), line.is_empty()), (Some(0), false));
}

#[test]
fn lines_follow_what_goes_on_and_a_daemon_that_was_away_is_found_again() {
    let mut daemon = Daemon::start(folder("lines"), "127.0.0.1:0", "auto");
    let mut top = daemon.top(&[&daemon.url, "--every", "100ms"]).spawn().unwrap();
    let looks = lines(top.stdout.take().unwrap());
    let until = |what: &dyn Fn(&Value) -> bool| {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let look = looks.recv_timeout(Duration::from_secs(60)).expect("a line");
            if what(&look) {
                return;
            }
            assert!(Instant::now() < deadline, "{look}");
        }
    };
    until(&|look| look["runs"] == json!([]));
    let run = daemon.run("lines");
    until(&|look| look["runs"][0]["streams"][0]["tx_packets"].as_u64().is_some_and(|n| n > 100));
    daemon.post(&format!("/squall/v1/runs/{run}/pause"), json!({}));
    until(&|look| look["runs"][0]["state"] == "paused");
    daemon.post(&format!("/squall/v1/runs/{run}/stop"), json!({}));
    until(&|look| look["runs"][0]["state"] == "done");
    let (state, listen) =
        (daemon.state.clone(), daemon.url.trim_start_matches("https://").to_owned());
    daemon.end();
    // Another daemon at the same address and with the same directory, which must not be removed
    // when the first daemon is dropped.
    daemon.state = folder("lines-ended");
    let again = Daemon::start(state, &listen, "auto");
    let second = again.run("lines");
    until(&|look| look["runs"].as_array().unwrap().iter().any(|run| run["id"] == json!(second)));
    signal(&top, "-INT");
    assert_eq!(top.wait().unwrap().code(), Some(0));
    let mut err = String::new();
    top.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert!(err.contains("reconnecting") && err.contains("is back"), "{err}");
}

#[test]
fn orders_of_routers_need_a_run_with_routers() {
    let daemon = Daemon::start(folder("routers"), "127.0.0.1:0", "always");
    let routers = |args: &[&str]| {
        let url = ["--daemon", &daemon.url];
        outcome(daemon.squall(&[&["routers"][..], args, &url[..]].concat()))
    };
    let (status, _, err) = routers(&["show"]);
    assert_eq!(status, 3);
    assert!(err.contains("cannot show routers: no live run of"), "{err}");
    let run = daemon.run("routers");
    let (status, _, err) = routers(&["order", "talk"]);
    assert!(status == 3 && err.contains("cannot order routers: no live run of"), "{err}");
    // The daemon names missing parts of the run, and values that it cannot understand.
    let deadline = Instant::now() + Duration::from_secs(30);
    let order = ["order", "withdraw", "--router", "r1", "--group", "edge", "--run", &run];
    loop {
        let (status, _, err) = routers(&order);
        assert_ne!(status, 0);
        if err.contains("there is no router \"r1\"") {
            break;
        }
        assert!(Instant::now() < deadline, "{err}");
    }
    let order = ["order", "up", "--router", "r1", "--count", "1", "--run", &run];
    let (status, _, err) = routers(&order);
    assert!(status != 0 && err.contains("count has no effect with action = \"up\""), "{err}");
    let (status, _, err) = routers(&["order", "drop"]);
    assert!(status == 2 && err.contains("withdraw"), "{err}");
    let (status, out, _) = routers(&["show", "--run", &run, "--json"]);
    assert_eq!((status, out.trim()), (0, "[]"));
    let (status, _, err) = routers(&["show", "--run", &run, "--router", "r1"]);
    assert!(status == 2 && err.contains("has no router \"r1\""), "{err}");
}

#[test]
fn hosts_of_the_one_live_run_are_listed_and_one_shows_its_events() {
    let daemon = Daemon::start(folder("hosts"), "127.0.0.1:0", "always");
    let show = |args: &[&str]| {
        let url = ["hosts", "show", "--daemon", &daemon.url];
        outcome(daemon.squall(&[&url, args].concat()))
    };
    let (status, _, err) = show(&[]);
    assert_eq!(status, 3);
    assert!(err.contains("cannot show hosts: no live run of"), "{err}");

    let profile = "duration = \"1 h\"\n[ports]\nA = \"loop:h\"\n[[host]]\nname = \"web\"\nport = \
                   \"A\"\ncount = 40\nipv4 = \"10.0.0.2/16\"\narp = \"silent\"\n";
    daemon.post("/squall/v1/runs", json!({ "profile": profile }));
    let bound = "40 to 40 of 40 hosts";
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let (status, out, err) = show(&["--filter", "state=bound", "--offset", "39"]);
        assert_eq!((status, err.as_str()), (0, ""));
        if out.contains(bound) {
            assert!(out.contains("02:53:00:00:00:28  bound  10.0.0.41/16"), "{out}");
            break;
        }
        assert!(Instant::now() < deadline, "{out}");
    }
    let (_, out, _) = show(&["17"]);
    assert!(out.starts_with("host 17 of web on A, 02:53:00:00:00:11\n"), "{out}");
    assert!(out.contains("state  bound     10.0.0.18"), "{out}");
    let (_, out, _) = show(&["17", "--group", "web", "--json"]);
    let detail: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(detail["host"]["ipv4"]["address"], "10.0.0.18/16");
    let (status, _, err) = show(&["41"]);
    assert!(status == 3 && err.contains("the run has \"web\" with 40 hosts"), "{err}");

    // squall top has the hosts by state.
    let look = loop {
        let (_, out, _) = outcome(daemon.top(&[&daemon.url, "--once", "--json"]));
        let look: Value = serde_json::from_str(&out).unwrap();
        if look["runs"][0]["hosts"][0]["states"]["bound"] == 40 {
            break look;
        }
        assert!(Instant::now() < deadline, "{look}");
    };
    assert_eq!(look["runs"][0]["hosts"][0]["name"], "web");
}

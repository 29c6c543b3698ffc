//! Tests options of other tools, endless files, and messages that must appear only once.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("options-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Exit status, standard output, standard error.
    fn run(&self, args: &[&str]) -> (i32, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_squall"));
        let done = command.args(args).current_dir(&self.0).stdin(Stdio::null()).output().unwrap();
        let text = |octets: Vec<u8>| String::from_utf8(octets).unwrap();
        (done.status.code().unwrap_or(-1), text(done.stdout), text(done.stderr))
    }

    /// Sends `count` frames into a capture, one per millisecond.
    fn capture(&self, name: &str, octet: &str, count: &str) {
        let port = format!("pcap:{name}");
        let packet = format!("eth/ipv4/udp/text(\"{octet}\")");
        let args = [
            "send", "--port", &port, "--packet", &packet, "--rate", "1kpps", "--count", count, "-q",
        ];
        assert_eq!(self.run(&args), (0, String::new(), String::new()));
    }

    fn packets(&self, name: &str) -> Vec<(u64, Vec<u8>)> {
        let mut reader = squall_pcap::CaptureReader::open(self.0.join(name)).unwrap();
        let mut packets = Vec::new();
        while let Some(packet) = reader.next().unwrap() {
            packets.push((packet.time_ns, packet.data.to_vec()));
        }
        packets
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn options_of_tcpreplay_mean_here_what_they_mean_there() {
    let folder = Folder::new("tcpreplay");
    folder.capture("in.pcap", "there", "4");
    folder.capture("back.pcap", "back", "3");
    // tcpreplay's debug level must not be parsed as a duration.
    for option in [&["-d", "5"][..], &["-d5"], &["--dbug=5"], &["-d"]] {
        let (status, _, err) =
            folder.run(&[&["replay", "in.pcap", "-i", "null:"], option].concat());
        assert!(status == 2 && err.contains("--duration 10s"), "{option:?}: {err}");
    }
    let tap = [
        "replay",
        "--dualfile",
        "in.pcap",
        "back.pcap",
        "-i",
        "pcap:1.pcap",
        "-I",
        "pcap:2.pcap",
        "-q",
        "-P",
        "-T",
        "nano",
    ];
    let (status, out, err) = folder.run(&tap);
    assert!(status == 0 && out.starts_with("PID: ") && err.is_empty(), "{out}{err}");
    assert_eq!(folder.packets("1.pcap"), folder.packets("in.pcap"));
    assert_eq!(folder.packets("2.pcap"), folder.packets("back.pcap"));
    let (status, _, err) = folder.run(&["replay", "-2", "in.pcap", "-i", "null:", "-I", "null:"]);
    assert!(status == 2 && err.contains("there are 1"), "{err}");
    let (status, out, _) = folder.run(&["replay", "--listnics"]);
    assert!(status == 0 && out.starts_with("INTERFACE"), "{out}");
    // The packets were longer on the wire than their captured parts.
    assert_eq!(folder.run(&["edit", "in.pcap", "cut.pcap", "--snaplen", "20", "-q"]).0, 0);
    for (option, expected) in [(&[][..], 20), (&["--pktlen"], folder.packets("in.pcap")[0].1.len())]
    {
        let args =
            [&["replay", "cut.pcap", "-i", "pcap:out.pcap", "-q", "--force"], option].concat();
        assert_eq!(folder.run(&args).0, 0);
        assert_eq!(folder.packets("out.pcap")[0].1.len(), expected);
    }
    let (status, _, err) = folder.run(&[
        "replay",
        "in.pcap",
        "-i",
        "null:",
        "-p",
        "2",
        "-L",
        "4",
        "--stats",
        "1",
        "--allow-invalid",
    ]);
    assert!(status == 0 && err.contains("t=1.0s"), "{err}");
}

#[test]
fn options_of_tcprewrite_and_tcpprep_mean_here_what_they_mean_there() {
    let folder = Folder::new("tcprewrite");
    folder.capture("in.pcap", "x", "4");
    for names in [["-i", "-o"], ["--infile", "--outfile"]] {
        let args = ["edit", names[0], "in.pcap", names[1], "out.pcap", "-q"];
        assert_eq!(folder.run(&args).0, 0);
        assert_eq!(folder.packets("out.pcap"), folder.packets("in.pcap"));
        fs::remove_file(folder.0.join("out.pcap")).unwrap();
    }
    assert_eq!(folder.run(&["edit", "-i", "in.pcap"]).0, 2);
    let prep =
        ["prep", "in.pcap", "-o", "x.cache", "-a", "client", "--no-arg-comment", "-C", "x", "-q"];
    assert_eq!(folder.run(&prep).0, 0);
    let cache = fs::read(folder.0.join("x.cache")).unwrap();
    // As written by tcpprep 4.4.3: the comment begins with the newline after the command line,
    // which is missing here.
    assert_eq!((&cache[22..24], &cache[24..26]), (&[0, 2][..], &b"\nx"[..]));
}

#[test]
fn files_without_an_end_are_refused() {
    let folder = Folder::new("endless");
    for args in [
        &["attack", "/dev/zero"][..],
        &["score", "--labels", "/dev/zero", "--alerts", "/dev/zero"],
        &["prep", "-S", "/dev/zero"],
        &[
            "send",
            "--port",
            "null:",
            "--packet",
            "eth/file(\"/dev/zero\")",
            "--rate",
            "1kpps",
            "--count",
            "1",
        ],
        &[
            "send",
            "--port",
            "null:",
            "--packet",
            "eth/ipv4",
            "--vary",
            "ipv4.src=file:/dev/zero",
            "--rate",
            "1kpps",
            "--count",
            "1",
        ],
        &["info", "--hash", "/dev/zero"],
    ] {
        let (status, _, err) = folder.run(args);
        assert_eq!(status, 2, "{args:?}: {err}");
    }
}

#[test]
fn a_name_of_70_000_characters_is_planned_and_run() {
    let folder = Folder::new("name");
    let name = "n".repeat(70_000);
    let stream = format!(
        "[[stream]]\nname = \"{name}\"\npacket = \"eth/ipv4/udp\"\nrate = \"1 kpps\"\nmode = {{ \
         burst = 3 }}\n"
    );
    fs::write(folder.0.join("long.toml"), format!("[ports]\nA = \"pcap:out.pcap\"\n{stream}"))
        .unwrap();
    for command in ["plan", "run"] {
        let (status, out, err) = folder.run(&[command, "long.toml"]);
        assert_eq!((status, err.contains("defect")), (0, false), "{command}");
        assert!(
            out.lines().any(|line| line.starts_with("nnn") && line.chars().count() < 500),
            "{command}"
        );
    }
}

#[test]
fn a_null_port_next_to_a_file_runs_in_virtual_time() {
    let folder = Folder::new("null");
    let profile = "[ports]\nA = \"pcap:out.pcap\"\nB = \"null:\"\n[[stream]]\nname = \"a\"\nport \
                   = \"A\"\npacket = \"eth/ipv4/udp\"\nrate = \"1 pps\"\nmode = { burst = 1000 }\n";
    fs::write(folder.0.join("both.toml"), profile).unwrap();
    // In real time, this run would take a quarter of an hour.
    let (status, out, err) = folder.run(&["run", "both.toml"]);
    assert!(status == 0 && folder.packets("out.pcap").len() == 1000, "{out}{err}");
}

#[test]
fn frames_counted_as_sent_into_a_file_are_in_the_file() {
    let folder = Folder::new("full");
    let send = |port: &str| {
        format!(
            "send --port {port} --packet eth/ipv4/udp --rate 1kpps --count 10000 --json \
             report.json --force"
        )
    };
    let (status, _, err) = folder.run(&send("pcap:/dev/full").split(' ').collect::<Vec<_>>());
    assert!(
        status == 3 && err.contains("cannot write /dev/full: no space left on device"),
        "{err}"
    );
    // Mount a private disk of 256 KiB.
    let script = format!(
        "mkdir disk && mount -t tmpfs -o size=256k none disk && {{ {} {}; echo $? > status; cp \
         disk/out.pcap .; }}",
        env!("CARGO_BIN_EXE_squall"),
        send("pcap:disk/out.pcap")
    );
    let made =
        Command::new("unshare").args(["-rm", "sh", "-c", &script]).current_dir(&folder.0).output();
    if !made.is_ok_and(|made| made.status.success()) || !folder.0.join("status").exists() {
        eprintln!("SKIPPED: no namespace for a disk of our own");
        return;
    }
    let report: serde_json::Value =
        serde_json::from_slice(&fs::read(folder.0.join("report.json")).unwrap()).unwrap();
    let packets = folder.packets("out.pcap").len();
    assert!(
        packets > 0 && report["ports"][0]["tx"]["packets"] == packets,
        "{packets} in the file: {}",
        report["ports"][0]
    );
    assert_eq!(fs::read_to_string(folder.0.join("status")).unwrap().trim(), "3");
}

#[test]
fn frames_that_taps_miss_are_noted() {
    let folder = Folder::new("taps");
    let squall = env!("CARGO_BIN_EXE_squall");
    let script = format!(
        "ip link add d0 type veth peer name d1 && ip link set d0 up && ip link set d1 up && for q \
         in in out both; do {squall} capture -i d0 -Q $q --duration 50ms --allow-invalid -w \
         $q.pcapng > $q.txt 2>&1 || exit; done"
    );
    let done =
        Command::new("unshare").args(["-rn", "sh", "-c", &script]).current_dir(&folder.0).output();
    if !done.is_ok_and(|done| done.status.success()) {
        eprintln!("SKIPPED: no namespace of our own, or no pair of interfaces in it");
        return;
    }
    for (direction, expected) in [("in", 0), ("out", 1), ("both", 1)] {
        let text = fs::read_to_string(folder.0.join(format!("{direction}.txt"))).unwrap();
        assert_eq!(
            text.matches("the queueing discipline").count(),
            expected,
            "{direction}: {text}"
        );
    }
}

#[test]
fn secrets_are_of_flows_with_tls_and_a_run_without_keeps_an_earlier_file() {
    let folder = Folder::new("key-log");
    let keys = folder.0.join("keys.txt");
    fs::write(&keys, "earlier").unwrap();
    let run = |more: &[&str]| {
        let ports = ["flows", "app", "http", "--port", "loop:key-log", "--port2", "loop:key-log"];
        let ends = ["--clients", "16.0.0.1-16.0.0.9", "--servers", "48.0.0.1", "--cps", "50"];
        let rest = ["--flows", "5", "--key-log", "keys.txt", "-q", "--allow-invalid"];
        folder.run(&[&ports[..], &ends, &rest, more].concat())
    };
    let (status, _, err) = run(&[]);
    assert!(status == 2 && err.contains("keys.txt: no flows of the profile use TLS"), "{err}");
    assert_eq!(fs::read_to_string(&keys).unwrap(), "earlier");
    let (status, _, err) = run(&["--tls"]);
    assert_eq!(status, 0, "{err}");
    let text = fs::read_to_string(&keys).unwrap();
    assert!(text.contains("CLIENT_TRAFFIC_SECRET_0 ") && !text.contains("earlier"), "{text}");
}

#[test]
fn a_note_appears_once_where_both_outputs_are_seen() {
    let folder = Folder::new("note");
    let squall = env!("CARGO_BIN_EXE_squall");
    let script = format!(
        "{squall} send --port lo --packet eth/ipv4/udp --rate 1kpps --count 5 --allow-invalid 2>&1"
    );
    let script = format!("ip link set lo up && {script}");
    let done =
        Command::new("unshare").args(["-rn", "sh", "-c", &script]).current_dir(&folder.0).output();
    let Some(done) = done.ok().filter(|done| done.status.success()) else {
        eprintln!("SKIPPED: no namespace of our own");
        return;
    };
    let text = String::from_utf8(done.stdout).unwrap();
    assert_eq!(text.matches("lo: taken as").count(), 1, "{text}");
}

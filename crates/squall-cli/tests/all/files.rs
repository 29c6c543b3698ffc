//! Tests output files that exist already, and full disks.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
};

struct Folder(PathBuf);

const SQUALL: &str = env!("CARGO_BIN_EXE_squall");

impl Folder {
    fn new(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("files-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Exit status, standard output and standard error of `line`, run in a shell.
    fn run(&self, line: &str) -> (i32, String, String) {
        let line = line.replace("squall ", &format!("{SQUALL} "));
        let mut command = Command::new("sh");
        let command = command.args(["-c", &line]).current_dir(&self.0).stdin(Stdio::null());
        let done = command.env_remove("SQUALL_ALLOW_INVALID").output().unwrap();
        let text = |octets: Vec<u8>| String::from_utf8_lossy(&octets).into_owned();
        (done.status.code().unwrap_or(-1), text(done.stdout), text(done.stderr))
    }

    /// Runs `line` with a private file system of `size` mounted at `disk`. Returns `None` if the
    /// machine does not permit it.
    fn on_disk(&self, size: &str, line: &str) -> Option<(i32, String, String)> {
        let line = line.replace("squall ", &format!("{SQUALL} "));
        let script = format!(
            "mkdir -p disk && mount -t tmpfs -o size={size} none disk && touch mounted && {line}"
        );
        let made = Command::new("unshare")
            .args(["-rm", "sh", "-c", &script])
            .current_dir(&self.0)
            .stdin(Stdio::null())
            .output();
        if !self.0.join("mounted").exists() {
            eprintln!("SKIPPED: no namespace for a disk of our own");
            return None;
        }
        let done = made.unwrap();
        let text = |octets: Vec<u8>| String::from_utf8_lossy(&octets).into_owned();
        Some((done.status.code().unwrap_or(-1), text(done.stdout), text(done.stderr)))
    }

    fn octets(&self, name: &str) -> Vec<u8> {
        fs::read(self.0.join(name)).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const SEND: &str = "--packet eth/ipv4/udp --rate 1kpps --count 10 -q";

#[test]
fn commands_that_write_packets_overwrite_no_file_without_force() {
    let folder = Folder::new("force");
    let send = format!("squall send --port pcap:in.pcap {SEND}");
    assert_eq!(folder.run(&send).0, 0);
    let before = folder.octets("in.pcap");
    fs::copy(folder.0.join("in.pcap"), folder.0.join("kept.pcap")).unwrap();
    let profile = "capture = \"kept.pcap\"\n";
    fs::write(folder.0.join("run.toml"), format!("[ports]\nA = \"loop:kept,virtual\"\n[run]\n{profile}[[stream]]\npacket = \"eth/ipv4/udp\"\nrate = 1000\nmode = {{ burst = 3 }}\n")).unwrap();
    for line in [
        format!("squall send --port pcap:kept.pcap {SEND}"),
        "squall replay in.pcap -i pcap:kept.pcap -q".into(),
        "squall replay in.pcap in.pcap -i pcap:new.pcap -I pcap:kept.pcap -q".into(),
        "squall capture -i pcap:in.pcap,read -w kept.pcap -q".into(),
        "squall edit in.pcap kept.pcap --ttl=-1 -q".into(),
        "squall run run.toml -q".into(),
    ] {
        let (status, _, err) = folder.run(&line);
        assert_eq!(status, 2, "{line}: {err}");
        assert!(err.contains("kept.pcap") && err.contains("--force"), "{line}: {err}");
        assert_eq!(folder.octets("kept.pcap"), before, "{line}");
        // With --force, every command replaces the file.
        let (status, _, err) = folder.run(&format!("{line} --force"));
        assert_eq!(status, 0, "{line}: {err}");
        fs::copy(folder.0.join("in.pcap"), folder.0.join("kept.pcap")).unwrap();
    }
    // An input file is never overwritten.
    let (status, _, err) = folder.run("squall edit in.pcap in.pcap --force");
    assert!(status == 2 && err.contains("both input and output"), "{err}");
    // Devices and pipes have no contents to lose.
    let devices = "squall replay in.pcap -i pcap:/dev/null -q && mkfifo pipe && { cat pipe > \
                   piped.pcap & } && squall replay in.pcap -i pcap:pipe -q && wait";
    assert_eq!(folder.run(devices).0, 0);
    assert_eq!(folder.octets("piped.pcap").len(), before.len());
    assert_eq!(
        folder.run(&format!(": > empty.pcap; squall send --port pcap:empty.pcap {SEND}")).0,
        0
    );
}

#[test]
fn output_known_to_take_more_than_half_of_a_disk_is_refused() {
    let folder = Folder::new("half");
    // A disk of 1 MB, and captures of 1.6 MB and 0.4 MB.
    for (name, count) in [("large", 1600), ("small", 400)] {
        let line = format!(
            "squall send --port pcap:{name}.pcap --packet eth/ipv4/udp --size 1000 --rate 1kpps \
             --count {count} -q"
        );
        assert_eq!(folder.run(&line).0, 0);
    }
    for (line, status, text) in [
        (
            "send --port pcap:disk/x.pcap --packet eth/ipv4/udp --size 1000 --rate 1kpps -d 1600ms",
            2,
            "1.6 MB",
        ),
        (
            "send --port pcap:disk/x.pcap --packet eth/ipv4/udp --size 1000 --rate 1kpps -n 400 -q",
            0,
            "",
        ),
        (
            "send --port pcap:disk/x.pcap --packet eth/ipv4/udp --size 1000 --rate 1kpps -n 1600 -q --force",
            0,
            "",
        ),
        ("replay large.pcap -i pcap:disk/x.pcap", 2, "1.6 MB"),
        ("replay small.pcap -i pcap:disk/x.pcap -l 4", 2, "1.6 MB"),
        ("replay small.pcap -i pcap:disk/x.pcap -l 4 -L 500 -q", 0, ""),
        ("edit large.pcap disk/x.pcap", 2, "1.6 MB"),
        ("edit large.pcap disk/x.pcap --packets 1-400 -q", 0, ""),
        ("edit small.pcap disk/x.pcap -q", 0, ""),
    ] {
        let Some((found, _, err)) = folder.on_disk("2m", &format!("squall {line}")) else { return };
        assert_eq!(found, status, "{line}: {err}");
        assert!(err.contains(text), "{line}: {err}");
        assert!(status == 0 || err.contains("more than half of the 2.1 MB that are free"), "{err}");
    }
}

#[test]
fn output_of_unknown_size_stops_with_a_report_when_a_disk_is_95_percent_full() {
    let folder = Folder::new("full");
    let made = "squall send --port pcap:in.pcap --packet eth/ipv4/udp --size 1400 --rate 10kpps \
                --count 7000 -q";
    assert_eq!(folder.run(made).0, 0);
    // 9.8 MB, through a pipe or over a port, to a disk of 8 MiB.
    for (line, written) in [
        ("cat in.pcap | squall edit - disk/x.pcap --json r.json", "packets_written"),
        (
            "squall capture -i pcap:in.pcap,read -w disk/x.pcap --json r.json --allow-invalid",
            "capture",
        ),
    ] {
        let measured =
            format!("{{ {line}; echo $? > status; }}; cp disk/x.pcap . ; df -P disk | tail -1");
        let Some((_, out, err)) = folder.on_disk("8m", &measured) else { return };
        assert_eq!(
            fs::read_to_string(folder.0.join("status")).unwrap().trim(),
            "3",
            "{line}: {err}"
        );
        assert!(err.contains("the disk is 95 % full"), "{line}: {err}");
        let report: serde_json::Value = serde_json::from_slice(&folder.octets("r.json")).unwrap();
        let count = match written {
            "capture" => &report["capture"]["written_packets"],
            of => &report[of],
        };
        let mut reader = squall_pcap::CaptureReader::open(folder.0.join("x.pcap")).unwrap();
        let mut packets = 0;
        while reader.next().unwrap().is_some() {
            packets += 1;
        }
        assert!(packets > 3000 && *count == packets, "{line}: {packets} in the file, not {count}");
        // Buffers are flushed after the disk was last checked.
        let used = out.split_whitespace().find_map(|word| word.strip_suffix('%')).expect("of df");
        assert!((90..=99).contains(&used.parse::<u32>().unwrap()), "{line}: {out}");
    }
}

#[test]
fn a_report_that_cannot_be_written_is_printed() {
    let folder = Folder::new("report");
    for line in [
        format!("squall send --port null: {SEND} --allow-invalid --json /dev/full"),
        format!("squall send --port null: {SEND} --allow-invalid --report /dev/full"),
    ] {
        let (status, out, err) = folder.run(&line);
        assert_eq!(status, 3, "{line}: {err}");
        assert!(
            err.contains("cannot write /dev/full: no space left on device")
                && err.contains("printed"),
            "{err}"
        );
        let report: serde_json::Value = serde_json::from_str(&out).expect("the report");
        assert_eq!(report["ports"][0]["tx"]["packets"], 10);
    }
    // If packets go to standard output, the report goes to standard error.
    let send = format!("squall send --port pcap:in.pcap {SEND}");
    assert_eq!(folder.run(&send).0, 0);
    let (status, out, err) =
        folder.run("squall edit in.pcap - --json /dev/full -q | squall info - -q --json -");
    assert_eq!(status, 0, "{out}{err}");
    assert!(err.contains("\"packets_written\": 10") && err.contains("/dev/full"), "{err}");
    // The report also goes there if standard output cannot be written.
    let (status, _, err) =
        folder.run(&format!("squall send --port null: {SEND} --json - > /dev/full"));
    assert!(status == 3 && err.contains("\"schema\""), "{err}");
}

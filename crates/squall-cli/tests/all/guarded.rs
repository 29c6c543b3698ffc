//! What neither another user of the machine nor the text of a stranger brings the command to do.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::{
        fs::{MetadataExt, PermissionsExt},
        process::CommandExt,
    },
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use serde_json::Value;

struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

fn serve(data: &PathBuf, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_squall"));
    command
        .args(["serve", "--listen", "127.0.0.1:0", "--grpc", "off", "--json", "--data"])
        .arg(data)
        .args(more);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// Not below the build's folder, which other users may not be able to enter.
fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("squall-{name}-{}", std::process::id()));
    _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, PermissionsExt::from_mode(0o755)).unwrap();
    folder
}

#[test]
fn a_daemon_that_root_starts_for_a_user_is_that_users_with_what_its_ports_need() {
    if !is_root() {
        println!("SKIPPED: needs root");
        return;
    }
    let nobody = fs::read_to_string("/etc/passwd").unwrap();
    let nobody =
        nobody.lines().find_map(|line| line.strip_prefix("nobody:")).expect("nobody is known");
    let uid: u32 = nobody.split(':').nth(1).unwrap().parse().unwrap();
    let folder = folder("user");
    let data = folder.join("data");
    let mut daemon =
        Ends(serve(&data, &["--user", "nobody", "--allow", "af_packet:eth1"]).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(daemon.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    if line.is_empty() {
        let mut said = String::new();
        std::io::Read::read_to_string(&mut daemon.0.stderr.take().unwrap(), &mut said).unwrap();
        panic!("it does not serve: {said}");
    }
    let bound: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(fs::metadata(bound["token_file"].as_str().unwrap()).unwrap().uid(), uid);
    // Of all of its threads.
    for thread in fs::read_dir(format!("/proc/{}/task", daemon.0.id())).unwrap() {
        let status = fs::read_to_string(thread.unwrap().path().join("status")).unwrap();
        let of = |key: &str| {
            status
                .lines()
                .find_map(|line| line.strip_prefix(key))
                .unwrap_or_default()
                .trim()
                .to_owned()
        };
        assert_eq!(of("Uid:").split_whitespace().collect::<Vec<_>>(), vec![uid.to_string(); 4]);
        assert!(!of("Groups:").split_whitespace().any(|group| group == "0"), "{status}");
        let only = format!("{:016x}", 1u64 << 13);
        assert_eq!(
            (of("CapPrm:"), of("CapEff:"), of("CapBnd:")),
            (only.clone(), only.clone(), only),
            "CAP_NET_RAW"
        );
        assert_eq!((of("CapInh:"), of("NoNewPrivs:")), ("0".repeat(16), "1".into()));
    }
    drop(daemon);
    // What root's daemon has left is not another user's.
    let of_root = folder.join("root");
    fs::create_dir(&of_root).unwrap();
    fs::write(of_root.join("token"), "secret").unwrap();
    let refused = serve(&of_root, &["--user", "nobody"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("chown"), "{refused:?}");
    for (user, why) in [("no-such-user", "does not exist"), ("root", "is root")] {
        let refused = serve(&data, &["--user", user]).output().unwrap();
        assert_eq!(refused.status.code(), Some(2), "{user}");
        assert!(String::from_utf8_lossy(&refused.stderr).contains(why), "{refused:?}");
    }
    fs::remove_dir_all(folder).unwrap();
}

/// Such a binary is one for whom the kernel sets AT_SECURE, as with file capabilities.
#[test]
fn a_binary_that_gives_its_user_rights_takes_no_code_from_them() {
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let without = |line: &str| line.split(' ').nth(1) == Some("/tmp") && line.contains("nosuid");
    if !is_root() || mounts.lines().any(without) {
        println!("SKIPPED: needs root, and a /tmp that is not mounted nosuid");
        return;
    }
    let folder = folder("elevated");
    let binary = folder.join("squall");
    // By another process: what this one has open for writing, a test beside this one may hand down
    // to a child of its own, and until that has begun the copy is a busy text file.
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_squall")).arg(&binary).status();
    assert!(copied.unwrap().success());
    fs::set_permissions(&binary, PermissionsExt::from_mode(0o2755)).unwrap();
    let send = |address: &str, shim: bool| {
        let mut command = Command::new(&binary);
        command.args([
            "send",
            "--port",
            address,
            "--packet",
            "eth/ipv4/udp",
            "--size",
            "64",
            "--rate",
            "1kpps",
            "--duration",
            "10ms",
        ]);
        if shim {
            command.env("SQUALL_DPDK_SHIM", &binary);
        }
        let said = command.uid(4242).gid(4242).current_dir("/").output().unwrap();
        (said.status.code(), String::from_utf8_lossy(&said.stderr).into_owned())
    };
    for (address, shim) in
        [("dpdk:vdev=net_null0", true), ("dpdk:vdev=net_null0,eal=-d;/tmp/any.so", false)]
    {
        let (status, said) = send(address, shim);
        assert!(status != Some(0) && said.contains("file capabilities"), "{address}: {said}");
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn names_and_messages_of_strangers_do_not_steer_the_terminal() {
    let folder = folder("terminal");
    let evil = "\x1b]0;owned\x07\x1b[2J\u{9b}31m\u{202e}";
    let capture = folder.join(format!("{evil}.pcap"));
    fs::write(&capture, "no capture").unwrap();
    let labels = folder.join("labels.csv");
    let header = "attack,begin,end,protocol,source,source_port,destination,destination_port,kind,\
                  gid,sid,rev,msg,also,alerts,frames,name,note";
    let message = format!("{evil}\n  1:2  0 of 9  another rule");
    let label = format!(
        "{header}\n0,1700000000.0,1700000000.1,6,10.1.0.1,4,10.1.0.2,80,attack,1,1,1,\"{message}\"\
         ,,1,1,,\n"
    );
    fs::write(&labels, label).unwrap();
    let alerts = folder.join("eve.json");
    fs::write(&alerts, "{\"event_type\":\"flow\"}\n").unwrap();
    let [capture, labels, alerts] = [&capture, &labels, &alerts].map(|path| path.to_str().unwrap());
    let unknown = format!("--{evil}");
    let told: [(&[&str], &str); 5] = [
        (&["info", capture], ".pcap"),
        (
            &[
                "send",
                "--port",
                &format!("pcap:{capture}/x"),
                "--packet",
                "eth/ipv4/udp",
                "--size",
                "64",
                "--count",
                "1",
            ],
            ".pcap",
        ),
        (&["score", "--labels", labels, "--alerts", alerts], "another rule"),
        (&["score", "--labels", capture, "--alerts", alerts], ".pcap"),
        (&["info", &unknown], "unexpected argument"),
    ];
    for (arguments, part) in told {
        let said = Command::new(env!("CARGO_BIN_EXE_squall"))
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&said.stdout).into_owned()
            + &String::from_utf8_lossy(&said.stderr);
        assert!(text.contains(part), "{arguments:?}: {text}");
        let steers = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
        assert!(!text.contains(steers), "{arguments:?}: {text:?}");
        assert!(!text.lines().any(|line| line.starts_with("  1:2")), "a line of its own: {text}");
    }
    fs::remove_dir_all(folder).unwrap();
}

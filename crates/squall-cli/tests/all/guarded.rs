//! Protection against other users of the machine and against hostile text.

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

use serde_json::{Value, json};

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

/// A directory outside the build directory, which other users may not be able to access.
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
    let entry = fs::read_to_string("/etc/passwd").unwrap();
    let entry =
        entry.lines().find_map(|line| line.strip_prefix("nobody:")).expect("nobody is known");
    let uid: u32 = entry.split(':').nth(1).unwrap().parse().unwrap();
    let folder = folder("user");
    let data = folder.join("data");
    let mut daemon =
        Ends(serve(&data, &["--user", "nobody", "--allow", "af_packet:eth1"]).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(daemon.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    if line.is_empty() {
        let mut stderr = String::new();
        std::io::Read::read_to_string(&mut daemon.0.stderr.take().unwrap(), &mut stderr).unwrap();
        panic!("it does not serve: {stderr}");
    }
    let bound: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(fs::metadata(bound["token_file"].as_str().unwrap()).unwrap().uid(), uid);
    // Check all threads.
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
    // root's daemon does not give its data directory to another user.
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

/// The kernel sets AT_SECURE for a set-group-ID binary, as it does for one with file capabilities.
#[test]
fn a_binary_with_privileges_loads_no_code_of_its_user() {
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let without = |line: &str| line.split(' ').nth(1) == Some("/tmp") && line.contains("nosuid");
    if !is_root() || mounts.lines().any(without) {
        println!("SKIPPED: needs root, and a /tmp that is not mounted nosuid");
        return;
    }
    let folder = folder("elevated");
    let binary = folder.join("squall");
    // Copy in another process: if this process had the file open for writing while a parallel test
    // forks, the copy could not be executed (ETXTBSY) until that test's child calls exec.
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
        let output = command.uid(4242).gid(4242).current_dir("/").output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for (address, shim) in
        [("dpdk:vdev=net_null0", true), ("dpdk:vdev=net_null0,eal=-d;/tmp/any.so", false)]
    {
        let (status, output) = send(address, shim);
        assert!(status != Some(0) && output.contains("file capabilities"), "{address}: {output}");
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn foreign_names_and_messages_do_not_control_the_terminal() {
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
    let cases: [(&[&str], &str); 5] = [
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
    for (arguments, part) in cases {
        let output = Command::new(env!("CARGO_BIN_EXE_squall"))
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert!(text.contains(part), "{arguments:?}: {text}");
        let steers = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
        assert!(!text.contains(steers), "{arguments:?}: {text:?}");
        assert!(!text.lines().any(|line| line.starts_with("  1:2")), "a line of its own: {text}");
    }
    fs::remove_dir_all(folder).unwrap();
}

/// Puts escape sequences into each text of a profile: into all texts of one profile, into one text
/// per table (which reaches later checks and hints), and into names of a profile that runs.
#[test]
fn no_text_of_a_profile_controls_the_terminal() {
    const EVIL: &str = "\u{1b}[31mx\u{9b}1m\u{7}\u{7f}";
    let folder = folder("escapes");
    let schema = squall_profile::schema();
    let mut profiles = vec![filled(&schema, EVIL)];
    let tables = schema["properties"].as_object().unwrap();
    for (key, table) in tables {
        let items = &table["items"];
        let texts = texts_alone(if items.is_object() { items } else { table }, EVIL);
        let rows = |rows: &[Value]| match items.is_object() {
            true => json!({ "ports": { "A": "loop:0" }, key: rows }),
            false => json!({ "ports": { "A": "loop:0" }, key: rows[0] }),
        };
        // At most 200 errors of a profile are reported, and each row causes several.
        profiles.extend(texts.chunks(if items.is_object() { 25 } else { 1 }).map(rows));
    }
    assert!(profiles.len() > 20, "the schema has texts");
    let names = json!({
        "ports": { "A": "loop:escapes" }, "packets": 3,
        "stream": [{ "name": EVIL, "group": EVIL, "packet": "eth/ipv4/udp", "rate": "1 kpps" }],
    });
    profiles.push(names.clone());
    let printed = |(number, profile): (usize, &Value)| {
        let path = folder.join(format!("{number}.json"));
        fs::write(&path, profile.to_string()).unwrap();
        let command = if *profile == names { "run" } else { "plan" };
        let output = Command::new(env!("CARGO_BIN_EXE_squall"))
            .args([command, path.to_str().unwrap()])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        let steers = text.chars().find(|c| c.is_control() && *c != '\n');
        assert_eq!(steers, None, "{command} {profile}: {text:?}");
        usize::from(text.contains("[31m"))
    };
    let printed = &printed;
    let profiles: Vec<_> = profiles.iter().enumerate().collect();
    let shown: usize = std::thread::scope(|scope| {
        let half = profiles.chunks(profiles.len().div_ceil(4));
        let threads: Vec<_> = half
            .map(|part| scope.spawn(move || part.iter().map(|one| printed(*one)).sum::<usize>()))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    // Most texts of hosts, such as identities, are in no message.
    assert!(shown * 3 > profiles.len(), "texts are shown: {shown} of {}", profiles.len());
    fs::remove_dir_all(folder).unwrap();
}

/// A value of `schema` with all optional parts, in which every string is `text`.
fn filled(schema: &Value, text: &str) -> Value {
    if let Some(choice) = schema["oneOf"].as_array().or(schema["anyOf"].as_array()) {
        return filled(&choice[choice.len() - 1], text);
    }
    let kind = match &schema["type"] {
        Value::Array(kinds) if kinds.contains(&json!("string")) => "string",
        Value::Array(kinds) => kinds[0].as_str().unwrap_or_default(),
        kind => kind.as_str().unwrap_or_default(),
    };
    match kind {
        "object" => match schema["properties"].as_object() {
            Some(all) => all.iter().map(|(key, one)| (key.clone(), filled(one, text))).collect(),
            None => json!({ text: text }),
        },
        "array" => json!([filled(&schema["items"], text)]),
        "string" => json!(text),
        "boolean" => json!(true),
        _ => json!(1),
    }
}

/// Values of `schema`, each with one string set to `text`.
fn texts_alone(schema: &Value, text: &str) -> Vec<Value> {
    let Some(all) = schema["properties"].as_object() else { return vec![filled(schema, text)] };
    let mut found = vec![json!({ text: text })];
    for (key, one) in all {
        let items = &one["items"];
        let below = match (one["properties"].is_object(), items["properties"].is_object()) {
            (true, _) => texts_alone(one, text),
            (_, true) => texts_alone(items, text).into_iter().map(|one| json!([one])).collect(),
            _ => vec![filled(one, text)],
        };
        found.extend(below.into_iter().map(|value| json!({ key: value })));
    }
    found
}

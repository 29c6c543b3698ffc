//! `squall recv` beside the tools whose numbers it reads, on the loopback of a network namespace of its own.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::PathBuf,
    process::{Command, Stdio},
};

use serde_json::Value;

/// Runs `script` in a private namespace with the loopback up, `$SQUALL` the binary and `$DIR` a folder; the folder.
/// `None`, and why, where that does not work here.
fn private(name: &str, tools: &[&str], script: &str) -> Option<PathBuf> {
    let there =
        |tool: &&&str| Command::new("sh").args(["-c", &format!("command -v {tool}")]).stdout(Stdio::null()).status();
    if let Some(missing) = tools.iter().find(|tool| !there(tool).is_ok_and(|status| status.success())) {
        println!("SKIPPED: needs {missing}\n  try scripts/setup system");
        return None;
    }
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("recv-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let mut sandbox = Command::new("unshare");
    sandbox.args(["--net", "--map-root-user", "timeout", "60", "sh", "-c"]);
    sandbox.arg(format!("ip link set lo up || exit 77\n{script}")).env("SQUALL", env!("CARGO_BIN_EXE_squall"));
    let output = sandbox.env("DIR", &folder).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if said.contains("unshare failed") || output.status.code() == Some(77) {
        assert!(fs::metadata("/proc/self").unwrap().uid() != 0, "root can have a namespace: {said}");
        println!("SKIPPED: no private network here: {said}");
        return None;
    }
    assert!(output.status.success(), "{}\n{said}\n{}", output.status, String::from_utf8_lossy(&output.stdout));
    Some(folder)
}

fn json(folder: &std::path::Path, name: &str) -> Value {
    let text = fs::read_to_string(folder.join(name)).unwrap();
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{name}: {e}\n{text}"))
}

/// The flow whose packets are numbered in this way.
fn numbered<'a>(report: &'a Value, kind: &str) -> &'a Value {
    let flows = report["flows"]["flows"].as_array().unwrap();
    let mut of_kind = flows.iter().filter(|flow| flow["sequence"]["kind"] == kind);
    let one = of_kind.next().unwrap_or_else(|| panic!("no flow is {kind}: {flows:#?}"));
    assert!(of_kind.next().is_none(), "{flows:#?}");
    one
}

fn figure(flow: &Value, key: &str) -> u64 {
    flow["sequence"][key].as_u64().unwrap_or_else(|| panic!("{key} of {flow:#}"))
}

/// As iperf3's client counts, sees and loses, with a counter of 32 bits and of 64.
#[test]
fn iperf3_is_counted_as_it_counts_itself_and_what_is_dropped_is_lost() {
    let script = |port: &str, options: &str| {
        format!(
            "$SQUALL recv --port {port} --udp 5201 --duration 4s --json $DIR/recv.json --quiet & R=$!
            iperf3 -s -1 >/dev/null 2>&1 & sleep 1
            iperf3 -c 127.0.0.1 -u -b 8M -l 500 -t 1 {options} --json > $DIR/iperf.json || exit 1
            wait $R"
        )
    };
    for (name, port, options) in [
        ("iperf3", "af_packet:lo", ""),
        ("iperf3-wide", "af_packet:lo", "--udp-counters-64bit"),
        ("iperf3-lossy", "af_packet:lo,drop=1/10", ""),
    ] {
        let Some(folder) = private(name, &["iperf3", "ip", "unshare"], &script(port, options)) else { return };
        let (report, iperf) = (json(&folder, "recv.json"), json(&folder, "iperf.json"));
        let flow = numbered(&report, "iperf3");
        let sent = iperf["end"]["sum"]["packets"].as_u64().unwrap();
        let [unique, lost] = ["unique_packets", "lost"].map(|key| figure(flow, key));
        assert!(sent > 1000, "{iperf:#}");
        match port.contains("drop") {
            // It counts what its timer saw, and may have sent a few more.
            false => assert!(lost == 0 && (sent..sent + 5).contains(&unique), "{name}: {sent} {flow:#}"),
            // Before the first and behind the last, nobody knows of the lost.
            true => {
                assert!((sent - 2..sent + 5).contains(&(unique + lost)), "{sent} {flow:#}");
                assert_eq!(flow["sequence"]["patterns"]["loss_period_packets"]["max"].as_u64(), Some(1), "{flow:#}");
                assert!((sent / 10 - 3..=sent / 10 + 3).contains(&lost), "{sent} {flow:#}");
            }
        }
        assert_eq!(["duplicates", "reordered", "restarts"].map(|key| figure(flow, key)), [0; 3], "{flow:#}");
        assert!(
            flow["sequence"]["latency_ns"]["p50"].as_u64().is_some_and(|ns| ns < 100_000_000),
            "one clock: {flow:#}"
        );
        fs::remove_dir_all(folder).unwrap();
    }
}

/// MGEN twice: the second begins anew at 0, from the same port.
#[test]
fn mgen_is_recognised_and_that_it_begins_anew_is_no_loss() {
    let script = "$SQUALL recv --port af_packet:lo --udp 5000 --duration 7s --json $DIR/recv.json --quiet & R=$!
        sleep 1
        for i in 1 2; do
            timeout -s INT 2 mgen event 'ON 1 UDP SRC 4000 DST 127.0.0.1/5000 PERIODIC [500 100]' >/dev/null 2>&1
        done
        wait $R";
    let Some(folder) = private("mgen", &["mgen", "ip", "unshare"], script) else { return };
    let report = json(&folder, "recv.json");
    let flow = numbered(&report, "mgen");
    assert_eq!(
        ["lost", "duplicates", "reordered", "unnumbered_packets"].map(|key| figure(flow, key)),
        [0; 4],
        "{flow:#}"
    );
    assert_eq!((figure(flow, "restarts"), flow["sequence"]["clock"].as_str()), (1, Some("wall")), "{flow:#}");
    assert_eq!(Some(figure(flow, "unique_packets")), flow["packets"].as_u64());
    assert!(flow["packets"].as_u64() > Some(1000), "{flow:#}");
    fs::remove_dir_all(folder).unwrap();
}

//! Tests `squall recv` with the tools whose sequence numbers it reads, on the loopback interface of
//! a network namespace.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::PathBuf,
    process::{Command, Stdio},
};

use serde_json::Value;

/// Runs `script` in a private namespace with the loopback interface up. `$SQUALL` is the binary,
/// and `$DIR` a directory. Returns the directory. If the machine does not permit this, prints the
/// reason and returns `None`.
fn private(name: &str, tools: &[&str], script: &str) -> Option<PathBuf> {
    let there = |tool: &&&str| {
        Command::new("sh")
            .args(["-c", &format!("command -v {tool}")])
            .stdout(Stdio::null())
            .status()
    };
    if let Some(missing) =
        tools.iter().find(|tool| !there(tool).is_ok_and(|status| status.success()))
    {
        println!("SKIPPED: needs {missing}\n  try scripts/setup system");
        return None;
    }
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("recv-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let mut sandbox = Command::new("unshare");
    sandbox.args(["--net", "--map-root-user", "timeout", "60", "sh", "-c"]);
    sandbox
        .arg(format!("ip link set lo up || exit 77\n{script}"))
        .env("SQUALL", env!("CARGO_BIN_EXE_squall"));
    let output = sandbox.env("DIR", &folder).stdin(Stdio::null()).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    if stderr.contains("unshare failed") || output.status.code() == Some(77) {
        assert!(
            fs::metadata("/proc/self").unwrap().uid() != 0,
            "root can have a namespace: {stderr}"
        );
        println!("SKIPPED: no private network here: {stderr}");
        return None;
    }
    assert!(
        output.status.success(),
        "{}\n{stderr}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout)
    );
    Some(folder)
}

fn json(folder: &std::path::Path, name: &str) -> Value {
    let text = fs::read_to_string(folder.join(name)).unwrap();
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{name}: {e}\n{text}"))
}

/// The flow that has sequence numbers of this kind.
fn numbered<'a>(report: &'a Value, kind: &str) -> &'a Value {
    let flows = report["received_flows"]["flows"].as_array().unwrap();
    let mut of_kind = flows.iter().filter(|flow| flow["sequence"]["kind"] == kind);
    let one = of_kind.next().unwrap_or_else(|| panic!("no flow is {kind}: {flows:#?}"));
    assert!(of_kind.next().is_none(), "{flows:#?}");
    one
}

fn figure(flow: &Value, key: &str) -> u64 {
    flow["sequence"][key].as_u64().unwrap_or_else(|| panic!("{key} of {flow:#}"))
}

/// Tests 32-bit and 64-bit counters. Frames that are dropped, duplicated or delayed on purpose must
/// be counted exactly.
#[test]
fn iperf3_is_counted_as_it_counts_itself_and_faults_are_counted_exactly() {
    let script = |options: &str| {
        format!(
            "$SQUALL capture --port af_packet:lo -w $DIR/iperf.pcap --filter 'udp port 5201' \
             --duration 8s --quiet & C=$!
            $SQUALL recv --port af_packet:lo --udp 5201 --duration 8s --json $DIR/recv.json \
             --quiet & R=$!
            iperf3 -s -1 >/dev/null 2>&1 &
            for _ in $(seq 70); do
                [ $(awk '$6 == 1' /proc/net/packet | wc -l) -ge 2 ] &&
                    grep -qs ':1451 [0-9A-F]*:0000 0A' /proc/net/tcp /proc/net/tcp6 && break
                sleep 0.1
            done
            iperf3 -c 127.0.0.1 -u -b 8M -l 500 -t 1 {options} --json > $DIR/iperf.json || exit 1
            wait $R && wait $C || exit 1
            for fault in drop=1/10 dup=1/20 reorder=1/50; do
                $SQUALL recv --port pcap:$DIR/iperf.pcap,read,$fault --json \
             $DIR/${{fault%=*}}.json --quiet || exit 1
            done"
        )
    };
    for (name, options) in [("iperf3", ""), ("iperf3-wide", "--udp-counters-64bit")] {
        let Some(folder) = private(name, &["iperf3", "ip", "unshare"], &script(options)) else {
            return;
        };
        let (report, iperf) = (json(&folder, "recv.json"), json(&folder, "iperf.json"));
        let flow = numbered(&report, "iperf3");
        let sent = iperf["end"]["sum"]["packets"].as_u64().unwrap();
        let [unique, lost] = ["unique_packets", "lost"].map(|key| figure(flow, key));
        // iperf3 reports the count when its timer expires, and may send a few more packets after
        // that.
        assert!(
            sent > 1000 && lost == 0 && (sent..sent + 5).contains(&unique),
            "{name}: {sent} {flow:#}"
        );
        assert_eq!(
            ["duplicates", "reordered", "restarts"].map(|key| figure(flow, key)),
            [0; 3],
            "{flow:#}"
        );
        assert!(
            flow["sequence"]["latency_ns"]["p50"].as_u64().is_some_and(|ns| ns < 100_000_000),
            "one clock: {flow:#}"
        );
        // The first two frames of the file are handshakes and the last frame has a number, so every
        // tenth frame has a number.
        let figures = |fault: &str| {
            let report = json(&folder, &format!("{fault}.json"));
            let all = report["ports"][0]["rx"]["packets"].as_u64().unwrap();
            let keys = ["lost", "duplicates", "reordered"];
            (all, keys.map(|key| figure(numbered(&report, "iperf3"), key)))
        };
        let frames = unique + 2;
        let uncounted = u64::from(frames.is_multiple_of(10));
        assert_eq!(
            figures("drop"),
            (frames - frames / 10, [frames / 10 - uncounted, 0, 0]),
            "{name}"
        );
        assert_eq!(figures("dup"), (frames + frames / 20, [0, frames / 20, 0]), "{name}");
        let (all, [lost, duplicates, reordered]) = figures("reorder");
        assert_eq!((all, lost, duplicates), (frames, 0, 0), "{name}");
        assert!(
            (frames / 50 - 1..=frames / 50).contains(&reordered),
            "the last has nobody to pass it: {reordered}"
        );
        fs::remove_dir_all(folder).unwrap();
    }
}

/// Runs MGEN twice. The second run restarts its numbers at 0 from the same port.
#[test]
fn mgen_is_recognized_and_a_restart_is_no_loss() {
    let script =
        "$SQUALL recv --port af_packet:lo --udp 5000 --duration 10s --json $DIR/recv.json \
                  --quiet & R=$!
        for _ in $(seq 70); do
            [ $(awk '$6 == 1' /proc/net/packet | wc -l) -ge 1 ] && break; sleep 0.1
        done
        for i in 1 2; do
            timeout -s INT 2 mgen event 'ON 1 UDP SRC 4000 DST 127.0.0.1/5000 PERIODIC [500 100]' \
                  >/dev/null 2>&1
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
    assert_eq!(
        (figure(flow, "restarts"), flow["sequence"]["clock"].as_str()),
        (1, Some("wall")),
        "{flow:#}"
    );
    assert_eq!(Some(figure(flow, "unique_packets")), flow["packets"].as_u64());
    assert!(flow["packets"].as_u64() > Some(1000), "{flow:#}");
    fs::remove_dir_all(folder).unwrap();
}

#!/usr/bin/env python3
"""squall compare captures, for real: one step in a private lab. It checks counts, not speeds: the
requested frames were sent and arrived, the tools' files hold as many packets as the reports claim,
and a false report is detected. It is repeated with a capture as data, and as an ordinary user as
far as a user namespace permits. Leaves nothing on the machine.
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

UNPRIVILEGED_UID = 65534
# Slow enough for any machine that runs tests. Losses on a busy machine are counted, but are not
# errors of the tools.
STEP = {"--pps": "5k", "--duration": "500ms", "--rounds": "1"}


class Failed(Exception):
    pass


def expect(good, what):
    if not good:
        raise Failed(what)


def compare(squall, *arguments, step=STEP, **options):
    step = [word for pair in step.items() for word in pair]
    command = [squall, "compare", "captures", *step, *arguments, "--json", "-", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, **options)
    if done.returncode == 3 and "no lab" in done.stderr:
        print(f"SKIPPED: no lab: {' '.join(done.stderr.split())}")
        sys.exit(0)
    expect(done.returncode == 0, f"exit status {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


def check(step):
    """Check the counts of a step's run."""
    name = f"{step['tool']}, {step['data']}"
    (run,) = step["rounds"]
    expect(run["failed"] is None, f"{name}: {run['failed']}")
    # 2500 frames were due; fewer are sent if the machine was stopped.
    expect(500 < run["sent"] <= 2501, f"{name}: {run['sent']} sent")
    expect(run["arrived"] + run["interface_dropped"] == run["sent"], f"{name}: {run}")
    expect(run["in_file"] <= run["arrived"] and run["cut"] == 0, f"{name}: {run}")
    missing = run["arrived"] - run["in_file"]
    expect(
        abs(run["plr"] - missing / run["arrived"]) < 1e-9,
        f"{name}: PLR {run['plr']}, {missing} missing",
    )
    expect(
        run["peak_memory_octets"] > 1 << 20, f"{name}: {run['peak_memory_octets']} octets of memory"
    )
    return run


def tools_tell_the_truth(squall, folder):
    tools = ["squall", "tcpdump"] + (["dumpcap"] if shutil.which("dumpcap") else [])
    report = folder / "compare.html"
    result = compare(
        squall,
        "--tools",
        ",".join(tools),
        "--data",
        "mixed,60",
        "--report",
        str(report),
        "--write",
        str(folder),
    )
    cells = [(s["data"], s["tool"]) for s in result["steps"]]
    expect(cells == [(d, t) for d in ["mixed", "60"] for t in tools], cells)
    lengths = [(d["percentiles"]["min"], d["percentiles"]["max"]) for d in result["data"]]
    expect(lengths == [(60, 1514), (60, 60)], lengths)
    for step in result["steps"]:
        run = check(step)
        expect(
            run["claim"]["captured"] == run["in_file"], f"{step['tool']}: {run['disagreements']}"
        )
        expect(step["honest"] == (not run["disagreements"]), step)
        expect(step["honest"], f"{step['tool']}: {run['disagreements']}")
    page = report.read_text()
    for plot in ["Packet loss ratio against rate", "bins of RFC 2819"]:
        expect(plot in page, f"the page has no plot {plot}")
    expect(not list(folder.glob("*.pcap")), f"{list(folder.iterdir())} were left")


def rounds_off_the_requested_rate_do_not_count(squall, folder):
    """Check a rate that any machine can send, and one that no machine can."""
    result = compare(
        squall, "--tools", "tcpdump", "--data", "60", "--write", str(folder),
        step={"--rates": "1Mbps,900Gbps", "--duration": "200ms", "--rounds": "2"},
    )  # fmt: skip
    expect([s["asked"] for s in result["steps"]] == ["1 Mbps", "900 Gbps"], result["steps"])
    for step in result["steps"]:
        rounds = step["rounds"]
        expect(len(rounds) == 2, f"{len(rounds)} rounds: {step}")
        # Recompute the figures from the interfaces' counters.
        counted = [r["plr"] for r in rounds if near(r, step) and r["failed"] is None]
        expect(step["rounds_counted"] == len(counted), step)
        if counted:
            spread = step["plr_spread"]
            expect([spread["min"], spread["max"]] == [min(counted), max(counted)], step)
            expect(abs(step["plr"] - sum(counted) / len(counted)) < 1e-9, step)
    fastest = result["steps"][1]
    expect(fastest["sender_bound"] and fastest["rounds_counted"] == 0, fastest)
    expect(fastest["plr"] is None and fastest["plr_spread"] is None, fastest)


def near(run, step):
    """Return whether a round was sent at the requested rate."""
    pps = run["arrived"] / run["sending_s"]
    bps = 8 * (run["arrived_octets"] + 4 * run["arrived"]) / run["sending_s"]
    pairs = [(pps, step["asked_pps"]), (bps, step["asked_bps"])]
    return any(actual >= 0.98 * asked and asked >= 0.98 * actual for actual, asked in pairs)


def a_capture_is_data_and_a_liar_is_found_out(squall, folder):
    made = [
        "send",
        "--port",
        f"pcap:{folder}/data.pcap",
        "--packet",
        "eth/ipv4/udp",
        "--size",
        "imix",
        "--rate",
        "max",
    ]
    subprocess.run([squall, *made, "--count", "100", "--quiet"], check=True, timeout=60)
    liar = folder / "liar"
    liar.write_text(
        "#!/bin/sh\ntrap : INT\ntcpdump -i $1 -Z root -w $2 2>/dev/null\necho 999999 packets captured\n"
    )
    liar.chmod(0o755)
    template = f"liar={liar} {{interface}} {{file}}"
    data = ["--data", str(folder / "data.pcap"), "--write", str(folder)]
    result = compare(
        squall,
        "--tools",
        "tcpdump",
        "--tool",
        template,
        "--tool",
        "none=absent {interface} {file}",
        *data,
    )
    expect(result["data"][0]["packets"] == 100, result["data"])
    honest, lying = result["steps"]
    check(honest)
    run = check(lying)
    expect(lying["honest"] is False and "999999" in run["disagreements"][0], lying)
    expect("not installed" in result["tools"][2]["why_not"], result["tools"])


def ctrl_c_ends_it_with_what_was_measured(squall, folder):
    out = folder / "partly.json"
    command = [
        squall,
        "compare",
        "captures",
        "--tools",
        "tcpdump",
        "--data",
        "60",
        "--pps",
        "1k",
        "--duration",
        "300ms",
    ]
    process = subprocess.Popen(
        [*command, "--rounds", "1000", "--json", str(out), "--write", str(folder)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    seen = 0
    for line in process.stderr:
        seen += "arrived" in line
        if seen == 2:
            process.send_signal(signal.SIGINT)
            break
    process.stderr.read()
    expect(process.wait(30) == 0, f"exit status {process.returncode}")
    result = json.loads(out.read_text())
    expect(
        result["interrupted"] and len(result["steps"][0]["rounds"]) >= 2,
        "what was measured is not there",
    )
    expect(not list(folder.glob("*.pcap")), "a file was left")
    time.sleep(0.2)
    expect(
        str(folder)
        not in subprocess.run(["ps", "axo", "args"], capture_output=True, text=True).stdout,
        "a tool was left",
    )


TESTS = [
    tools_tell_the_truth,
    rounds_off_the_requested_rate_do_not_count,
    a_capture_is_data_and_a_liar_is_found_out,
    ctrl_c_ends_it_with_what_was_measured,
]


def as_an_ordinary_user(squall, folder):
    """Compare only squall: XDP is not available, and tcpdump, which believes it is root, fails to
    drop privileges.
    """
    shutil.copy(squall, folder / "squall")
    (folder / "work").mkdir()
    for path in [folder, folder / "squall", folder / "work"]:
        path.chmod(0o777)
    result = compare(
        str(folder / "squall"), "--tools", "squall", "--data", "60", "--write", str(folder / "work"),
        user=UNPRIVILEGED_UID, group=UNPRIVILEGED_UID, extra_groups=[], cwd=folder / "work",
        env={"PATH": os.environ["PATH"], "TMPDIR": str(folder / "work")},
    )  # fmt: skip
    check(result["steps"][0])
    expect(any("af_packet" in note for note in result["notes"]), result["notes"])


def main():
    squall = os.path.abspath(os.environ.get("SQUALL", "target/debug/squall"))
    if shutil.which("tcpdump") is None:
        print("SKIPPED: tcpdump is not installed (apt-get install tcpdump)")
        return 0
    if os.getuid() != 0:
        print("SKIPPED: needs root: tcpdump does not start in a user namespace")
        return 0
    failed = 0
    for test in [*TESTS, as_an_ordinary_user]:
        with tempfile.TemporaryDirectory(prefix="squall-compare-test-") as temporary:
            try:
                test(squall, pathlib.Path(temporary))
                print(f"ok      {test.__name__}")
            except (Failed, subprocess.SubprocessError) as error:
                failed += 1
                print(f"FAILED  {test.__name__}: {error}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())

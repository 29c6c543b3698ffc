#!/usr/bin/env python3
"""The cost of a 64-octet frame on one core without a device: Squall on `null` and dpdk-testpmd on
net_null, alternating.

    cycles.py [--rounds 5] [--seconds 2]

Needs `cargo build --release -p squall-bench` and Debian's dpdk. The unit is CPU time in TSC cycles,
on which other programs have little influence; a ratio compares figures of the same round. net_null
accepts frames and returns none (`no-rx`), like `null`. testpmd's txonly sends one template; its
flowgen varies an address and updates the IPv4 checksum.
"""

import argparse
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import time

BENCH = pathlib.Path(__file__).resolve().parents[2] / "target/release/squall-bench"
# The output is read line by line: one of the lines shows that the tool has started.
TESTPMD = [
    "stdbuf",
    "-oL",
    "dpdk-testpmd",
    "-l",
    "0,1",
    "--no-huge",
    "-m",
    "256",
    "--no-pci",
    "--no-telemetry",
]
TESTPMD += ["--file-prefix=squall-cycles"]
TESTPMD += [
    "--vdev=net_null0,no-rx=1",
    "--",
    "--txpkts=64",
    "--nb-cores=1",
    "--total-num-mbufs=16384",
    "--auto-start",
]
CASES = {
    "testpmd txonly": "txonly",
    "testpmd flowgen": "flowgen",
    "squall template": "engine-1-stream",
    "squall 2 fields, max": "engine-1-stream-2-variables-max",
    "squall 2 fields, paced": "engine-1-stream-2-variables",
    "squall 2 fields, made ahead": "engine-1-stream-2-variables-made-ahead",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2)
    args = parser.parse_args()
    if not shutil.which("dpdk-testpmd"):
        sys.exit("cycles: no dpdk-testpmd: apt-get install dpdk")
    ghz = counter_ghz()
    found: dict[str, list[float]] = {name: [] for name in CASES}
    for _ in range(args.rounds):
        for name, case in CASES.items():
            ns = (
                testpmd(case, args.seconds)
                if name.startswith("testpmd")
                else squall(case, args.seconds)
            )
            found[name].append(ns * ghz)
    print(
        "| what | cycles a frame | testpmd txonly / it | testpmd flowgen / it |\n|---|---|---|---|"
    )
    for name, cycles in found.items():
        ratios = [
            statistics.median(
                peer / own for peer, own in zip(found[peer_name], cycles, strict=True)
            )
            for peer_name in ("testpmd txonly", "testpmd flowgen")
        ]
        spread = f"{statistics.median(cycles):.1f} ({min(cycles):.1f}..{max(cycles):.1f})"
        print(f"| {name} | {spread} | {ratios[0]:.2f} | {ratios[1]:.2f} |")


def counter_ghz() -> float:
    """Return the rate of the time stamp counter, as measured by the kernel."""
    found = re.search(r"cpu MHz\s*: ([\d.]+)", pathlib.Path("/proc/cpuinfo").read_text())
    return float(found[1]) / 1000 if found else float("nan")


def testpmd(mode: str, seconds: float) -> float:
    command = [*TESTPMD, f"--forward-mode={mode}"]
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdin and process.stdout
    log = []
    for line in process.stdout:
        log.append(line)
        if "Press enter" in line:
            break
    before = cpu_ns(process.pid)
    time.sleep(seconds)
    used = cpu_ns(process.pid) - before
    # testpmd ends at the end of its input.
    rest, _ = process.communicate("\n")
    sent = re.search(r"Accumulated forward statistics.*?TX-packets: (\d+)", rest, re.S)
    if not sent or int(sent[1]) == 0:
        sys.exit(f"cycles: {' '.join(command)}: {(''.join(log) + rest)[-800:]}")
    return used / int(sent[1])


def cpu_ns(pid: int) -> float:
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * 1e9 / os.sysconf("SC_CLK_TCK")


def squall(case: str, seconds: float) -> float:
    # Assumes about 20 ns per frame.
    frames = str(int(seconds / 20e-9))
    done = subprocess.run(
        [str(BENCH), "--once", case, frames], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


if __name__ == "__main__":
    main()

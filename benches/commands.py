#!/usr/bin/env python3
"""Compares the instructions that commands of one or more binaries execute per frame or connection,
on virtual time. Callgrind counts them, so other work of the machine does not matter.

    RUSTFLAGS="--cfg rustix_use_libc" cargo build --release -p squall-cli --target-dir
    target/counted
    commands.py BINARY [BINARY...]

The flag makes rustix use libc: it would otherwise call the kernel's vDSO directly, which valgrind
hides. Start-up costs cancel out: each figure is the difference between a longer and a shorter run.
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

PACKET = "eth/ipv4(src=16.0.0.1,dst=48.0.0.1)/udp"
SEND = ["send", "--packet", PACKET, "--rate", "1mpps", "--port"]
VARY = ["--vary", "ipv4.src=random:16.0.0.1-18.0.0.254", "--vary", "udp.sport=increment:1-65535"]
REPLAY = ["replay", "in.pcap", "--pps", "1000000", "-l", "0", "--port"]
LINK, POOLS = "loop:counted,virtual", ["--clients", "16.0.0.0/24", "--servers", "48.0.0.1"]
FLOWS = ["--port", LINK, "--port2", LINK, *POOLS, "--users", "500", "--flows"]
# Arguments of a command without the final number of frames or connections, and two such numbers.
CASES = {
    "null": ([*SEND, "null:virtual", "--count"], 100_000, 400_000),
    "null, two fields": ([*SEND, "null:virtual", *VARY, "--count"], 100_000, 400_000),
    "loop, latency": ([*SEND, LINK, "--size", "128", "--latency", "--count"], 50_000, 200_000),
    "replay, null": ([*REPLAY, "null:virtual", "--limit"], 40_000, 160_000),
    "replay, loop": ([*REPLAY, LINK, "--limit"], 40_000, 160_000),
    "flows exchange": (["flows", "app", "exchange", *FLOWS], 4_000, 20_000),
    "flows http": (["flows", "app", "http", *FLOWS], 4_000, 20_000),
}


def main(binaries: list[str]) -> None:
    if not binaries:
        sys.exit(__doc__)
    if not shutil.which("valgrind"):
        sys.exit("commands: no valgrind: apt-get install valgrind")
    paths = [pathlib.Path(binary).resolve() for binary in binaries]
    with tempfile.TemporaryDirectory() as folder:
        made = ["send", "--port", "pcap:in.pcap", "--packet", f"{PACKET}/zeros(40)"]
        counted = ["--rate", "1kpps", "--count", "40000", "-q"]
        subprocess.run([paths[0], *made, *counted], cwd=folder, check=True)
        for case, (arguments, few, many) in CASES.items():
            each = [
                (count(path, arguments, many, folder) - count(path, arguments, few, folder))
                / (many - few)
                for path in paths
            ]
            figures = {"instructions": [round(one, 1) for one in each]}
            ratios = {"ratios": [round(one / each[0], 3) for one in each]}
            print(json.dumps({"case": case} | figures | ratios), flush=True)


def count(binary: pathlib.Path, arguments: list[str], number: int, folder: str) -> int:
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", binary]
    command += [*arguments, str(number), "-q"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    found = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode != 0 or not found:
        sys.exit(f"commands: {' '.join(map(str, command))}: {done.stderr.strip()[-300:]}")
    return int(found[1])


if __name__ == "__main__":
    main(sys.argv[1:])

#!/usr/bin/env python3
"""CPU time per captured packet of `squall capture` and tcpdump, by turns, over a veth pair.

    capture.py [--squall FILE] [--old FILE] [--rounds 5] [--pps 300000] [--seconds 3] [--size 64]

The frames have 60 octets without FCS by default. The time is that of all threads of the tool while
frames arrive, by the scheduler's count, without its start and end: the kernel's work on arriving
frames belongs to the sender. Files are in memory. Prints the median, and the ratio to tcpdump
within a round, as the median over the rounds.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import time

from lab import MAC_SINK, PORT_A, PORT_B, Lab
from tools import add_binaries, binaries

# tcpdump gets a partly filled block after a second.
SETTLE_S = 1.3


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of all threads of a process."""
    ns = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            ns += int((task / "schedstat").read_text().split()[0])
        except OSError:  # the thread has just ended
            continue
    return ns / 1e9


def captured(path: pathlib.Path) -> int:
    done = subprocess.run(
        ["capinfos", "-c", "-M", "-T", "-r", str(path)], capture_output=True, text=True, check=True
    )
    return int(done.stdout.split()[-1])


def measure(lab: Lab, command: list[str], o: argparse.Namespace) -> float:
    """Return the CPU microseconds per packet."""
    path, packets = lab.folder / "captured", int(o.pps * o.seconds)
    tool = lab.receiver(*command, "-w", str(path))
    try:
        time.sleep(SETTLE_S)
        # `ip netns exec` and `taskset` have become the tool.
        pid = tool._process.pid
        before = cpu_s(pid)
        packet = f"eth(dst={MAC_SINK})/ipv4(src=10.0.0.1,dst=10.0.0.2)/udp(sport=1000,dport=2000)"
        sending = ["send", "-q", "--allow-invalid", "--port", f"af_packet:{PORT_A}"]
        sending += ["--packet", packet, "--size", str(o.size), "--rate", f"{o.pps}pps"]
        sender = lab.sender(str(o.squall), *sending, "--count", str(packets))
        while sender.running():
            time.sleep(0.05)
        time.sleep(SETTLE_S)
        used = cpu_s(pid) - before
    finally:
        tool.stop()
    found = captured(path)
    path.unlink()
    if found < packets:
        print(f"{command[0]}: {found} of {packets} packets", flush=True)
    return used * 1e6 / max(found, 1)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_binaries(parser)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pps", type=int, default=300_000)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--size", type=int, default=64)
    o = parser.parse_args()
    own = ["capture", "-q", "--allow-invalid", "--force", "--port", f"af_packet:{PORT_B}"]
    tools = {"tcpdump": ["tcpdump", "-i", PORT_B, "-n", "-Z", "root", "-B", "65536"]}
    for name, squall in binaries(o).items():
        tools[name] = [str(squall), *own]
        tools[f"{name}, pcap"] = [str(squall), *own, "-F", "pcap"]
    with Lab() as lab:
        rounds = [
            {name: measure(lab, command, o) for name, command in tools.items()}
            for _ in range(o.rounds)
        ]
    for name in tools:
        found = [one[name] for one in rounds]
        ratio = statistics.median(one[name] / one["tcpdump"] for one in rounds)
        line = {
            "tool": name,
            "cpu_us_per_packet": round(statistics.median(found), 3),
            "least": round(min(found), 3),
            "most": round(max(found), 3),
            "of_tcpdump": round(ratio, 2),
        }
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Compares the CPU time of several sources on one pair of ports to that of each source alone:
streams with latency, a capture and HTTP flows over a loop, all at the maximum rate of one worker.

The worker's CPU time is divided by the sum of what the same frames and connections cost alone.

    mix.py [--rounds 3] [--seconds 3] [--out FILE]
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

SQUALL = pathlib.Path(__file__).resolve().parents[1] / "target/release/squall"
PORTS = '[ports]\nA = "loop:mix"\nB = "loop:mix"\n'
STREAM = """[[stream]]
name = "s"
port = "A"
packet = "eth/ipv4(src=10.1.0.1,dst=10.1.0.2)/udp"
size = 128
latency = true
rate = "max"
"""
REPLAY = """[[replay]]
name = "r"
port = "A"
files = "again.pcap"
rate = "max"
loops = 0
preload = true
"""
FLOWS = """[flows]
clients = "A"
servers = "B"
[[template]]
name = "t"
clients = "16.0.0.0/16"
servers = "48.0.0.1"
app = "http"
users = 500
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--out", type=pathlib.Path)
    o = parser.parse_args()
    rounds = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        packet = "eth/ipv4(src=10.9.0.1,dst=10.9.0.2)/udp(dport=9)/zeros(40)"
        made = ["--port", f"pcap:{folder}/again.pcap", "--packet", packet]
        subprocess.run(
            [SQUALL, "send", *made, "--rate", "1 kpps", "--count", "40000", "-q"], check=True
        )
        for _ in range(o.rounds):
            costs = {}
            for what, profile in [("streams", STREAM), ("replays", REPLAY), ("flows", FLOWS)]:
                cpu, done = run(folder, profile, o.seconds)
                costs[what] = cpu / done[what]
            cpu, done = run(folder, STREAM + REPLAY + FLOWS, o.seconds)
            parts = sum(done[what] * cost for what, cost in costs.items())
            one = {"cpu_s": cpu, "parts_cpu_s": parts, "ratio": cpu / parts, "done": done}
            rounds.append(one | {f"{what}_ns": cost * 1e9 for what, cost in costs.items()})
            print(json.dumps(rounds[-1]), flush=True)
    ratio = statistics.median(one["ratio"] for one in rounds)
    print(f"a mix takes {ratio:.2f} times the CPU time of its parts")
    if o.out:
        o.out.write_text("".join(json.dumps(one) + "\n" for one in rounds))


def run(folder: pathlib.Path, profile: str, seconds: int) -> tuple[float, dict[str, int]]:
    """Run a profile; return the workers' CPU time, and the numbers of frames and connections."""
    (folder / "mix.toml").write_text(f'duration = "{seconds} s"\n{PORTS}{profile}')
    command = [SQUALL, "run", "mix.toml", "-q", "--cores", "1", "--allow-invalid"]
    subprocess.run([*command, "--json", "mix.json"], cwd=folder, check=True)
    report = json.loads((folder / "mix.json").read_text())
    flows = report["flows"]["templates"] if report.get("flows") else []
    done = {
        "streams": sum(one["tx_packets"] for one in report["streams"]),
        "replays": sum(one["packets"] for one in report["replays"]),
        "flows": sum(one["client"]["completed"] for one in flows),
    }
    return sum(worker["cpu_s"] for worker in report["workers"]), done


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Replaces Python with `squall.cluster` (``SQUALL_PYTHON``): views of two nodes until SIGINT, then
the report of a real run of the profile, on the ports of the profile."""

import json
import os
import select
import signal
import subprocess
import sys

EVERY_S = 0.2


def view(count: int) -> dict[str, object]:
    one = {"tx_pps": 500.0, "rx_pps": 0, "tx_packets": 100 * count, "rx_packets": 0, "lost": 0}
    two = {"tx_pps": 0, "rx_pps": 450.0, "tx_packets": 0, "rx_packets": 90 * count, "lost": 3}
    nodes = [
        {"name": "one", "state": "running", "why": None, "clock_bound_ns": 120_000, **one},
        {"name": "two", "state": "lost", "why": "silent for 2 s", "clock_bound_ns": None, **two},
    ]
    whole = {key: one[key] + two[key] for key in one}
    return {"t_s": EVERY_S * count, "all": whole, "nodes": nodes}


def main() -> None:
    # Arguments after ``-c TEXT``.
    _, profile, *words = sys.argv[3:]
    report = next(word for word in words if word.startswith("--json="))
    stopped: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: stopped.append(number))
    count = 0
    while not stopped:
        count += 1
        print(json.dumps(view(count)), file=sys.stderr, flush=True)
        if select.select([0], [], [], EVERY_S)[0]:
            sys.exit("the daemon has ended")
    short = ["--duration", "200 ms", "--quiet", "--allow-invalid", report]
    subprocess.run([os.environ["SQUALL"], "run", profile, *short], check=True)


if __name__ == "__main__":
    main()

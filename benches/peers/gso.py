#!/usr/bin/env python3
"""Throughput over one veth in octets per second, at the receiving interface: plain frames of 1514
octets compared to GSO frames that the kernel would segment into such frames, alternating.

    sudo python3 benches/peers/gso.py [--squall target/release/squall] [--rounds 7] [--seconds 2]

Prints the median and range of each, and of their ratio per round. The receiving stack drops the
frames as early as possible.
"""

import argparse
import json
import os
import pathlib
import statistics
import time

from lab import IP_A, IP_SINK, MAC_SINK, PORT_A, Lab

HEADERS = f"eth(dst={MAC_SINK})/ipv4(src={IP_A},dst={IP_SINK})"
CASES = {
    "plain": ["--packet", f"{HEADERS}/tcp(flags=A)", "--size", "1518"],
    "tcp": ["--packet", f"{HEADERS}/tcp(flags=A)", "--segment", "1460"],
    "udp": ["--packet", f"{HEADERS}/udp", "--segment", "1472"],
}


def gigabits(lab: Lab, squall: str, case: str, seconds: float) -> float:
    """Return the rate of received octets without FCS. Headers of a GSO frame count once, which is
    less than on a wire.
    """
    sender = lab.sender(
        squall, "send", "--port", f"af_packet:{PORT_A}", "--rate", "max", "--quiet", *CASES[case]
    )
    try:
        time.sleep(0.5)
        before = lab.received()
        time.sleep(seconds)
        after = lab.received()
    finally:
        sender.stop()
    if after.packets == before.packets:
        raise SystemExit(f"gso: {case}: nothing came\n{sender.output()}")
    return (after.octets - before.octets) * 8e-9 / (after.at_s - before.at_s)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    root = pathlib.Path(__file__).resolve().parents[2]
    parser.add_argument("--squall", default=str(root / "target/release/squall"))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2)
    arguments = parser.parse_args()
    found = {case: [] for case in CASES}
    load = os.getloadavg()[0]
    with Lab() as lab:
        for _ in range(arguments.rounds):
            for case in CASES:
                found[case].append(gigabits(lab, arguments.squall, case, arguments.seconds))
    for case, rates in found.items():
        ratios = [rate / plain for rate, plain in zip(rates, found["plain"])]
        print(
            f"{case:6} {statistics.median(rates):6.2f} Gb/s ({min(rates):.2f} to {max(rates):.2f}), "
            f"{statistics.median(ratios):5.2f} times plain ({min(ratios):.2f} to {max(ratios):.2f})"
        )
    print(json.dumps({"load": load, "rounds": arguments.rounds, "gbps": found}))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Gaps of a steady stream, measured by `squall recv` and tcpdump on one interface at the same time.

    gaps.py [--rates 1000,10000,50000] [--rounds 5] [--seconds 3] [--squall PATH] [--out FILE]

Both read the same frames, timestamped by the kernel: the standard deviation in squall's report must
not be larger than that of tcpdump's timestamps (--time-stamp-precision=nano). Prints the median of
both and of their ratio for each rate.
"""

import argparse
import json
import os
import pathlib
import statistics
import struct
import sys
import time

import numpy as np

from lab import IP_A, IP_SINK, MAC_A, MAC_SINK, PORT_A, PORT_B, Lab

ROOT = pathlib.Path(__file__).resolve().parents[2]


def stamps(file: pathlib.Path) -> np.ndarray:
    """Return the timestamps of a pcap with nanoseconds, in this machine's byte order."""
    octets = file.read_bytes()
    assert struct.unpack_from("=I", octets)[0] == 0xA1B23C4D, "a capture with nanoseconds"
    times, at = [], 24
    while at + 16 <= len(octets):
        seconds, ns, length = struct.unpack_from("=III", octets, at)
        if at + 16 + length > len(octets):
            break
        times.append(seconds * 1_000_000_000 + ns)
        at += 16 + length
    return np.array(times, np.int64)


def measure(lab: Lab, squall: str, rate: int, seconds: float) -> dict[str, float]:
    pcap, report = lab.folder / "gaps.pcap", lab.folder / "gaps.json"
    precise = "--time-stamp-precision=nano"
    dump = lab.receiver("tcpdump", "-i", PORT_B, "-w", str(pcap), precise, "-s", "96", "-U", "udp")
    port = f"af_packet:{PORT_B}"
    recv = lab.receiver(
        squall, "recv", "--port", port, "--filter", "udp", "--json", str(report), "-q"
    )
    time.sleep(1)
    packet = (
        f"eth(src={MAC_A},dst={MAC_SINK})/ipv4(src={IP_A},dst={IP_SINK})/udp(sport=1024,dport=9)"
    )
    what = ("--packet", packet, "--rate", str(rate), "--duration", f"{seconds}s")
    send = lab.sender(squall, "send", "--port", f"af_packet:{PORT_A}", *what, "-q")
    while send.running():
        time.sleep(0.05)
    # tcpdump loses packets in a block of its ring that the kernel has not delivered yet.
    time.sleep(2.5)
    dump.stop()
    recv.stop()
    gaps = np.diff(stamps(pcap))
    flow = json.loads(report.read_text())["received_flows"]["flows"][0]
    own = flow["arrival_gap_ns"]
    if own["count"] != len(gaps):
        # The two have not measured the same frames.
        print(
            f"{rate} pps: tcpdump has {len(gaps)} gaps, squall {own['count']}: left out",
            file=sys.stderr,
        )
    return {
        "rate": rate,
        "gaps_tcpdump": len(gaps),
        "gaps_squall": own["count"],
        "sd_tcpdump_ns": float(gaps.std()),
        "sd_squall_ns": own["stddev"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rates", default="1000,10000,50000")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument(
        "--squall", default=os.environ.get("SQUALL", str(ROOT / "target/release/squall"))
    )
    parser.add_argument("--out", type=pathlib.Path)
    o = parser.parse_args()
    records = []
    with Lab() as lab:
        for _ in range(o.rounds):
            records += [measure(lab, o.squall, int(rate), o.seconds) for rate in o.rates.split(",")]
    print(f"{'rate':>8} {'gaps':>9} {'tcpdump SD':>12} {'squall SD':>12} {'ratio':>7}")
    for rate in map(int, o.rates.split(",")):
        mine = [r for r in records if r["rate"] == rate and r["gaps_tcpdump"] == r["gaps_squall"]]
        if not mine:
            print(f"{rate:>8} no round in which both had all")
            continue
        ratio = statistics.median(r["sd_squall_ns"] / r["sd_tcpdump_ns"] for r in mine)
        tcpdump, squall = (
            statistics.median(r[f"sd_{tool}_ns"] for r in mine) for tool in ("tcpdump", "squall")
        )
        gaps = statistics.median(r["gaps_squall"] for r in mine)
        print(
            f"{rate:>8} {gaps:>9.0f} {tcpdump / 1e3:>9.3f} us {squall / 1e3:>9.3f} us {ratio:>7.4f}"
        )
    if o.out:
        o.out.write_text("".join(json.dumps(record) + "\n" for record in records))


if __name__ == "__main__":
    main()

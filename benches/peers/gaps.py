#!/usr/bin/env python3
"""Gaps of a steady stream.

    gaps.py [--rates 1000,10000,50000] [--rounds 5] [--seconds 3] [--squall PATH] [--out FILE]
    gaps.py --senders squall,squall-low-cpu,trafgen,trafgen-gap,tcpreplay --rates 1000,10000

The first form measures them by `squall recv` and tcpdump on one interface at the same time. Both
read the same frames, timestamped by the kernel: the standard deviation in squall's report must not
be larger than that of tcpdump's timestamps (--time-stamp-precision=nano). Prints the median of both
and of their ratio for each rate.

The second form compares senders, by turns, with tcpdump as the receiver. Prints for each sender and
rate the CPUs that it uses (CPU seconds per second, without its start), the rate, the share of gaps
within 10 % of the gap asked for, their standard deviation, and the median and 95th percentile of
their errors: medians over the rounds. `squall@FILE` is the same with another binary: old and new are
`squall@OLD,squall@NEW`.
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

from lab import IP_A, IP_SINK, MAC_A, MAC_SINK, PORT_A, PORT_B, Lab, Process, wait_for
from tools import tcpreplay, trafgen

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


# Time from the start of a sender to its measurement: it has set up its memory by then.
START_S = 0.7
# Frames without FCS of 60 octets.
KIND = "60"


def sender(lab: Lab, name: str, squall: str, rate: int) -> Process:
    """Start the sender with this name (see the top) over vA, for longer than it is measured."""
    if tool := {"trafgen": trafgen, "tcpreplay": tcpreplay}.get(name):
        return tool(lab, KIND, rate)
    if name == "trafgen-gap":
        # A rate makes trafgen send a second's frames at once, and then wait.
        return trafgen(lab, KIND, None, "--gap", f"{10**9 // rate}ns")
    kind, _, binary = name.partition("@")
    precision = kind.removeprefix("squall").removeprefix("-") or "balanced"
    packet = (
        f"eth(src={MAC_A},dst={MAC_SINK})/ipv4(src={IP_A},dst={IP_SINK})/udp(sport=5001,dport=5002)"
    )
    what = ("--packet", packet, "--rate", str(rate), "--duration", "600s", "--cores", "1")
    how = ("--port", f"af_packet:{PORT_A}", "--precision", precision, "--quiet")
    return lab.sender(binary or squall, "send", *what, *how)


def compare(lab: Lab, name: str, squall: str, rate: int, seconds: float) -> dict[str, object]:
    """Measure one sender once."""
    pcap = lab.folder / "gaps.pcap"
    before = lab.received().packets
    sending = sender(lab, name, squall, rate)
    wait_for(lambda: lab.received().packets > before, f"a frame of {name}")
    time.sleep(START_S)
    precise = "--time-stamp-precision=nano"
    # The ring holds what the machine's other work keeps tcpdump from reading.
    dump = lab.receiver(
        "tcpdump", "-i", PORT_B, "-w", str(pcap), precise, "-s", "96", "-B", "65536", "udp"
    )
    wait_for(lambda: "listening" in dump.output(), "tcpdump")
    began, cpu_s = time.monotonic(), sending.cpu_s()
    time.sleep(seconds)
    used, took = sending.cpu_s() - cpu_s, time.monotonic() - began
    sending.stop()
    # tcpdump loses packets in a block of its ring that the kernel has not delivered yet.
    time.sleep(1)
    dump.stop()
    times = stamps(pcap)
    gaps, gap = np.diff(times), 1e9 / rate
    errors = np.abs(gaps - gap)
    return {
        "sender": name,
        "rate": rate,
        "cpus": used / took,
        "pps": len(gaps) / (times[-1] - times[0]) * 1e9,
        "within_10_percent": float((errors <= gap / 10).mean()),
        "sd_us": float(gaps.std()) / 1e3,
        "error_p50_us": float(np.quantile(errors, 0.5)) / 1e3,
        "error_p95_us": float(np.quantile(errors, 0.95)) / 1e3,
    }


def compare_all(lab: Lab, o: argparse.Namespace) -> list[dict[str, object]]:
    rates, names = [int(rate) for rate in o.rates.split(",")], o.senders.split(",")
    columns = ("cpus", "pps", "within_10_percent", "sd_us", "error_p50_us", "error_p95_us")
    records = []
    for rate in rates:
        for _ in range(o.rounds):
            records += [compare(lab, name, o.squall, rate, o.seconds) for name in names]
    print(f"{'rate':>7}  {'sender':24} {' '.join(f'{column:>17}' for column in columns)}")
    for rate in rates:
        for name in names:
            mine = [r for r in records if r["rate"] == rate and r["sender"] == name]
            values = [statistics.median(r[column] for r in mine) for column in columns]
            print(f"{rate:>7}  {name[-24:]:24} {' '.join(f'{value:>17.3f}' for value in values)}")
    return records


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rates", default="1000,10000,50000")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--senders", help="compare these senders")
    parser.add_argument(
        "--squall", default=os.environ.get("SQUALL", str(ROOT / "target/release/squall"))
    )
    parser.add_argument("--out", type=pathlib.Path)
    o = parser.parse_args()
    if o.senders:
        with Lab() as lab:
            records = compare_all(lab, o)
        write(o.out, records)
        return
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
    write(o.out, records)


def write(out: pathlib.Path | None, records: list[dict[str, object]]) -> None:
    if out:
        out.write_text("".join(json.dumps(record) + "\n" for record in records))


if __name__ == "__main__":
    main()

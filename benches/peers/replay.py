#!/usr/bin/env python3
"""Captures replayed by squall and by tcpreplay, alternating, over a veth pair.

    replay.py [--rounds 5] [--packets 14000] [--loops 50] [--squall PATH] [--out FILE]

speed: as fast as possible, preloaded: frames/s by the receiving interface's counter, over the time
that each tool reports. The capture is IMIX-like, with 1,200 flows; squall uses af_packet, af_xdp
and xdp_live, with and without --unique-ip. First the receiving host passes the frames up its stack
(and polls, for xdp_live: GRO on), then an XDP program counts them: on veth the sender's CPU does
the receiver's work, which is most of the total.

timing: a capture with gaps from 2 us to 5 s, replayed with its own timing, alternating. Measured
are the deviations of frames from their capture times (kernel timestamps at the receiver, relative
to the most common offset), the deviation of the last frame from the first, and the lateness that
squall reports, which includes the whole system call.

Prints medians, and their ratios to tcpreplay's median in the same run.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import sys
import time

import numpy as np

from gaps import stamps
from lab import PORT_A, PORT_B, Lab, run, wait_for

ROOT = pathlib.Path(__file__).resolve().parents[2]


def make(squall: str, file: pathlib.Path, packets: int) -> None:
    packet = "eth(dst=02:00:00:00:00:02)/ipv4(src=10.1.0.1,dst=10.2.0.1)/udp(dport=53)"
    flows = ["--vary", "udp.sport=increment:1024-2223"]
    run(
        squall,
        "send",
        "--port",
        f"pcap:{file}",
        "--packet",
        packet,
        *flows,
        "--size",
        "imix",
        "--rate",
        "100kpps",
        "--count",
        str(packets),
        "-q",
    )


def gaps(squall: str, file: pathlib.Path, folder: pathlib.Path) -> None:
    """Write a capture with equal numbers of gaps of 2 us, 20 us, 200 us and 2 ms, and fewer longer
    ones up to 5 s."""
    parts = []
    for rate, count in [
        ("500kpps", 1000),
        ("50kpps", 1000),
        ("5kpps", 1000),
        ("500pps", 1000),
        ("50pps", 100),
        ("0.2pps", 2),
    ]:
        part = folder / f"gap-{rate}.pcap"
        run(
            squall,
            "send",
            "--port",
            f"pcap:{part}",
            "--packet",
            "eth/ipv4/udp",
            "--rate",
            rate,
            "--count",
            str(count),
            "-q",
        )
        parts.append(str(part))
    run(squall, "replay", *parts, "-i", f"pcap:{file}", "-q")


def inside(lab: Lab, *command: str) -> str:
    """Run a command without pinning: it sends and receives on separate threads."""
    return run("ip", "netns", "exec", lab.a, *command)


WAYS = {
    "tcpreplay": None,
    "squall af_packet": "af_packet",
    "squall af_xdp": "af_xdp",
    "squall xdp_live": "xdp_live",
}


def speed(
    lab: Lab, squall: str, capture: pathlib.Path, loops: int, rounds: int
) -> dict[str, list[dict[str, float]]]:
    found: dict[str, list[dict[str, float]]] = {}
    for _ in range(rounds):
        for name, kind in WAYS.items():
            for unique in [False, True]:
                before = lab.received().packets
                if kind is None:
                    more = ["--unique-ip"] if unique else []
                    text = inside(
                        lab,
                        "tcpreplay",
                        "-i",
                        PORT_A,
                        "-t",
                        "-K",
                        "-l",
                        str(loops),
                        *more,
                        str(capture),
                    )
                    seconds = float(re.search(r"sent in ([0-9.]+) seconds", text)[1])
                    flows = float(re.search(r"Flows: (\d+) flows", text)[1])
                else:
                    report = lab.folder / "replay.json"
                    more = ["--unique-ip"] if unique else []
                    inside(
                        lab,
                        squall,
                        "replay",
                        str(capture),
                        "-i",
                        f"{kind}:{PORT_A}",
                        "-t",
                        "-K",
                        "-l",
                        str(loops),
                        "-q",
                        "--json",
                        str(report),
                        *more,
                    )
                    result = json.loads(report.read_text())
                    seconds, flows = result["duration_s"], result["replay"]["flows"]["flows"]
                row = {"pps": (lab.received().packets - before) / seconds, "fps": flows / seconds}
                found.setdefault(name + (" --unique-ip" if unique else ""), []).append(row)
    return found


def timing(lab: Lab, squall: str, capture: pathlib.Path) -> dict[str, dict[str, float]]:
    due, found = stamps(capture), {}
    for name, kind in WAYS.items():
        seen, report = lab.folder / "seen.pcap", lab.folder / "timing.json"
        dump = lab.receiver(
            "tcpdump",
            "-i",
            PORT_B,
            "-w",
            str(seen),
            "--time-stamp-precision=nano",
            "-s",
            "96",
            "-U",
            "udp",
        )
        time.sleep(1)
        if kind is None:
            inside(lab, "tcpreplay", "-i", PORT_A, str(capture))
        else:
            inside(
                lab,
                squall,
                "replay",
                str(capture),
                "-i",
                f"{kind}:{PORT_A}",
                "-q",
                "--json",
                str(report),
            )
        # tcpdump loses packets in a block of its ring that the kernel has not delivered yet.
        time.sleep(2.5)
        dump.stop()
        came = stamps(seen)
        if len(came) != len(due):
            raise SystemExit(
                f"replay: {name}: {len(came)} of {len(due)} frames were seen\n  try again on a quieter machine"
            )
        error = (came - came[0]) - (due - due[0])
        off = np.abs(error - np.median(error)) / 1e3
        row = {
            "median_us": float(np.median(off)),
            "p99_us": float(np.percentile(off, 99)),
            "drift_us": float(error[-1]) / 1e3,
        }
        if kind is not None:
            row["late_us"] = (
                json.loads(report.read_text())["ports"][0]["tx"]["departure_error_ns"]["p50"] / 1e3
            )
        found[name] = row
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--packets", type=int, default=14_000)
    parser.add_argument("--loops", type=int, default=50)
    parser.add_argument("--squall", default=str(ROOT / "target/release/squall"))
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    found: dict[str, dict[str, list[dict[str, float]]]] = {}
    with Lab() as lab:
        capture, slow = lab.folder / "imix.pcap", lab.folder / "gaps.pcap"
        make(args.squall, capture, args.packets)
        gaps(args.squall, slow, lab.folder)
        run("ip", "netns", "exec", lab.b, "ethtool", "-K", PORT_B, "gro", "on")
        found["to a host"] = speed(lab, args.squall, capture, args.loops, args.rounds)
        sink = lab.receiver(
            os.environ.get("SQUALL_SINK", str(ROOT / "target/release/examples/xdp_sink")),
            PORT_B,
            "600",
        )
        wait_for(lambda: "ready" in sink.output(), "the XDP program on the peer")
        found["to an XDP program"] = speed(lab, args.squall, capture, args.loops, args.rounds)
        sink.stop()
        timed = timing(lab, args.squall, slow)
    for where, rows in found.items():
        median = {
            name: {k: statistics.median(row[k] for row in of) for k in ("pps", "fps")}
            for name, of in rows.items()
        }
        base = {unique: median["tcpreplay" + unique] for unique in ("", " --unique-ip")}
        print(f"{where:32} {'kpps':>7} {'of tcpreplay':>13} {'kfps':>9} {'of tcpreplay':>13}")
        for name, row in median.items():
            of = base[" --unique-ip" if name.endswith("--unique-ip") else ""]
            rates = f"{row['pps'] / 1e3:7.0f} {row['pps'] / of['pps']:12.2f}x"
            print(f"{name:32} {rates} {row['fps'] / 1e3:9.2f} {row['fps'] / of['fps']:12.2f}x")
        print()
    print(
        f"{'own timing, gaps of 2 us to 5 s':32} {'off by':>10} {'p99':>10} {'drift':>10}   said to be late by"
    )
    for name, row in timed.items():
        late = f"{row['late_us']:.1f} us" if "late_us" in row else "-"
        print(
            f"{name:32} {row['median_us']:7.1f} us {row['p99_us']:7.1f} us {row['drift_us']:7.1f} us   {late}"
        )
    if args.out:
        args.out.write_text(json.dumps({"speed": found, "timing": timed}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

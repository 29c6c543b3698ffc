#!/usr/bin/env python3
"""Frames generated in the kernel (xdp_live) compared to tcpreplay, and the accuracy of their gaps,
over a veth pair.

The receiver is an XDP program that counts frames and records their arrival times (examples/xdp_sink
of squall-port-linux), the same for every sender. Two fields vary in Squall's frames; tcpreplay
repeats its capture (-tK). Rounds take turns, figures are medians, ratios are taken within a round.

    live.py [--rounds 5] [--seconds 3] [--kinds 60,1514] [--gaps 10000,2000] [--realtime] [--out
    FILE]

On a busy machine, --realtime runs the senders with real-time priority (chrt -f): without it,
scheduling delays hide the accuracy of pacing.
"""

import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import tools
from lab import IP_SINK, MAC_A, MAC_SINK, PORT_A, PORT_B, Lab, Process

RUNS = pathlib.Path(__file__).resolve().parents[1] / "runs"
TARGET = pathlib.Path(__file__).resolve().parents[2] / "target/release"
# Prefix of Squall's command only, because the gaps are compared to no other tool.
PREFIX: list[str] = []
VARIED = (
    "--vary",
    "ipv4.src=random:16.0.0.1-16.0.255.254",
    "--vary",
    "udp.sport=increment:1024-65535",
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=["60", "1514"])
    parser.add_argument(
        "--gaps", type=lambda text: [int(gap) for gap in text.split(",")], default=[10_000, 2_000]
    )
    parser.add_argument("--realtime", action="store_true")
    parser.add_argument("--out", type=pathlib.Path)
    o = parser.parse_args()
    PREFIX.extend(["chrt", "-f", "50"] if o.realtime else [])
    out = o.out or RUNS / f"{datetime.date.today()}-live.json"
    senders = {"squall xdp_live": squall}
    if tools.installed("tcpreplay"):
        senders["tcpreplay -tK"] = tcpreplay
    else:
        print("SKIPPED: tcpreplay: it is not installed", file=sys.stderr)
    records: list[dict] = []
    with out.open("w") as file, Lab() as lab:
        print(json.dumps(tools.host()), file=file)
        cases = [
            (name, kind, None, r) for kind in o.kinds for r in range(o.rounds) for name in senders
        ]
        cases += [("squall xdp_live", "60", gap, r) for gap in o.gaps for r in range(o.rounds)]
        for name, kind, gap, round_ in cases:
            about = {
                "tool": name,
                "kind": kind,
                "gap_ns": gap,
                "round": round_,
                "load": os.getloadavg()[0],
            }
            records.append(about | measure(lab, senders[name], kind, gap, o.seconds))
            print(json.dumps(records[-1]), file=file, flush=True)
            print(json.dumps(records[-1]), file=sys.stderr)
    print(table(records))


def squall(lab: Lab, kind: str, gap_ns: int | None) -> Process:
    packet = f"eth(src={MAC_A},dst={MAC_SINK})/ipv4(dst={IP_SINK})/udp(dport={tools.DPORT})"
    rate = f"{1_000_000_000 // gap_ns}pps" if gap_ns else "max"
    return lab.sender(
        *PREFIX,
        *(
            tools.squall_binary(),
            "send",
            "--port",
            f"xdp_live:{PORT_A}",
            "--packet",
            packet,
            *VARIED,
        ),
        *(
            "--size",
            str(int(kind) + 4),
            "--rate",
            rate,
            "--duration",
            "600s",
            "--cores",
            "1",
            "--quiet",
        ),
    )


def tcpreplay(lab: Lab, kind: str, _: int | None) -> Process:
    return tools.tcpreplay(lab, kind, None)


def measure(lab: Lab, start, kind: str, gap_ns: int | None, seconds: float) -> dict:
    gaps = [f"gaps={gap_ns}"] if gap_ns else []
    sink = os.environ.get("SQUALL_SINK", str(TARGET / "examples/xdp_sink"))
    # A program on the peer makes the veth poll, so it starts first. The first second, a warm-up, is
    # not counted.
    with subprocess.Popen(
        ["ip", "netns", "exec", lab.b, sink, PORT_B, str(seconds), *gaps, "after=1.0"],
        stdout=subprocess.PIPE,
        text=True,
    ) as receiver:
        assert receiver.stdout is not None
        receiver.stdout.readline()
        tool = start(lab, kind, gap_ns)
        try:
            time.sleep(1.0)
            cpu, began = tool.cpu_s(), time.monotonic()
            text = receiver.stdout.read()
            cpu, lasted = tool.cpu_s() - cpu, time.monotonic() - began
            record = json.loads(text) | {"cpu_cores": cpu / lasted}
            # Without the receiver's program no frame can leave and the sender ends, which shows
            # only as a frame count of 0.
            return record if record["frames"] else {"error": tool.output().strip()[-300:]}
        finally:
            tool.stop()


def table(records: list[dict]) -> str:
    good = [r for r in records if "error" not in r]
    lines = [" ".join(["live.py", *sys.argv[1:]]), ""]
    lines += [
        "| octets | tool | kpps | Gb/s | CPU cores | xdp_live / tool |",
        "|---|---|---|---|---|---|",
    ]
    speed = [r for r in good if r["gap_ns"] is None]
    for kind, tool in sorted(
        {(r["kind"], r["tool"]) for r in speed}, key=lambda k: (int(k[0]), k[1])
    ):
        mine = {r["round"]: r for r in speed if (r["kind"], r["tool"]) == (kind, tool)}
        own = {r["round"]: r for r in speed if (r["kind"], r["tool"]) == (kind, "squall xdp_live")}
        ratios = [
            own[i]["pps"] / mine[i]["pps"] for i in own.keys() & mine.keys() if mine[i]["pps"]
        ]
        octets = [r["octets"] / r["seconds"] * 8e-9 for r in mine.values()]
        kpps = spread([r["pps"] / 1e3 for r in mine.values()], "{:.0f}")
        cpu = spread([r["cpu_cores"] for r in mine.values()], "{:.2f}")
        lines.append(
            f"| {kind} | {tool} | {kpps} | {spread(octets, '{:.2f}')} | {cpu} | {spread(ratios, '{:.2f}')} |"
        )
    lines += ["", "| gap us | within 250 ns | mean error ppm | CPU cores |", "|---|---|---|---|"]
    for gap in sorted({r["gap_ns"] for r in good if r["gap_ns"]}, reverse=True):
        mine = [r for r in good if r["gap_ns"] == gap]
        within = spread([100 * r["within_250_ns"] for r in mine], "{:.1f} %")
        mean = spread([r["mean_error_ppm"] for r in mine], "{:+.1f}")
        lines.append(
            f"| {gap / 1e3:g} | {within} | {mean} | {spread([r['cpu_cores'] for r in mine], '{:.2f}')} |"
        )
    failed = sorted({f"- {r['tool']}: {r['error']}" for r in records if "error" in r})
    return "\n".join(lines + (["", "Not measured:", *failed] if failed else []))


def spread(found: list[float], form: str) -> str:
    """Return the median, with minimum and maximum in brackets."""
    return (
        f"{form} ({form}..{form})".format(statistics.median(found), min(found), max(found))
        if found
        else "-"
    )


if __name__ == "__main__":
    main()

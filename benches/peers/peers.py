#!/usr/bin/env python3
"""Squall compared to its peers in one run: maximum rate and rate accuracy over a veth pair.

Each round runs every tool once, one at a time, so that a slow minute of the machine affects all of
them. Figures are medians over the rounds, ratios are taken within a round. Rates are computed from
the receiving interface's counters and the receiving kernel's timestamps, never from a tool's own
report.

    peers.py speed [--kinds 60,imix,1514] [--rounds 5] [--seconds 3] [--tools a,b] [--out FILE]
    peers.py accuracy [--rates 1000,10000,25000,70000,100000] [--rounds 5] [--seconds 10] [--tools
    a,b] [--out FILE]
    peers.py table FILE...

FILE gets one JSON object per line: the host, then each measurement.
"""

import argparse
import collections
import datetime
import itertools
import json
import os
import pathlib
import shutil
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator

import numpy as np

import tools
from lab import PORT_B, Lab, Process

RUNS = pathlib.Path(__file__).resolve().parents[1] / "runs"
# Warm-up in seconds, in which a tool opens its socket and fills its rings and caches.
WARM_UP_S = 1.0

Record = dict[str, object]


def main() -> None:
    o = arguments()
    if o.what == "table":
        for file in o.files:
            print(table([json.loads(line) for line in file.read_text().splitlines()]))
        return
    available = tools.SPEED if o.what == "speed" else tools.ACCURACY
    chosen = [name for name in (o.tools or available) if present(name, available)]
    out = o.out or RUNS / f"{datetime.date.today()}-{o.what}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    records: list[Record] = []
    with out.open("w") as file, Lab() as lab:
        measurements = speed(lab, chosen, o) if o.what == "speed" else accuracy(lab, chosen, o)
        for record in itertools.chain(
            [tools.host(versions={name: version(name) for name in chosen})], measurements
        ):
            records.append(record)
            print(json.dumps(record), file=file, flush=True)
            print(json.dumps(record), file=sys.stderr)
    print(table(records))
    print(f"\n{out}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="what", required=True)
    names: Callable[[str], list[str]] = lambda text: text.split(",")
    for what, seconds in (("speed", 3.0), ("accuracy", 10.0)):
        command = commands.add_parser(what)
        command.add_argument("--rounds", type=int, default=5)
        command.add_argument("--seconds", type=float, default=seconds)
        command.add_argument("--tools", type=names)
        command.add_argument("--out", type=pathlib.Path)
        if what == "speed":
            command.add_argument("--kinds", type=names, default=["60", "imix", "1514"])
        else:
            command.add_argument(
                "--rates", type=names, default=["1000", "10000", "25000", "70000", "100000"]
            )
    commands.add_parser("table").add_argument("files", type=pathlib.Path, nargs="+")
    return parser.parse_args()


def present(name: str, available: dict[str, tools.Tool]) -> bool:
    if name not in available:
        raise SystemExit(f"peers: no tool {name!r} here: expected one of {', '.join(available)}")
    if not tools.installed(name):
        print(f"SKIPPED: {name}: no program {tools.program(name)}", file=sys.stderr)
        return False
    return True


def speed(lab: Lab, chosen: list[str], o: argparse.Namespace) -> Iterator[Record]:
    for kind, round_, name in itertools.product(o.kinds, range(o.rounds), chosen):
        about: Record = {"what": "speed", "tool": name, "kind": kind, "round": round_}
        yield about | attempt(
            lambda: tools.SPEED[name](lab, kind, None), lambda tool: _speed(lab, tool, o.seconds)
        )


def _speed(lab: Lab, tool: Process, seconds: float) -> Record:
    time.sleep(WARM_UP_S)
    cpu, before = tool.cpu_s(), lab.received()
    time.sleep(seconds)
    after, cpu = lab.received(), tool.cpu_s() - cpu
    lasted, packets = after.at_s - before.at_s, after.packets - before.packets
    return {
        "pps": packets / lasted,
        "bps_l2": (after.octets - before.octets) * 8 / lasted,
        "cpu_s_per_mpkt": cpu / packets * 1e6 if packets else None,
        "rx_dropped": after.dropped - before.dropped,
        "ran_to_the_end": tool.running(),
    }


def accuracy(lab: Lab, chosen: list[str], o: argparse.Namespace) -> Iterator[Record]:
    for pps, round_, name in itertools.product(map(int, o.rates), range(o.rounds), chosen):
        about: Record = {"what": "accuracy", "tool": name, "asked_pps": pps, "round": round_}
        start: Callable[[], Process] = lambda: tools.ACCURACY[name](lab, "60", pps)
        yield about | attempt(start, lambda tool: _accuracy(lab, tool, pps, o.seconds))


def _accuracy(lab: Lab, tool: Process, pps: int, seconds: float) -> Record:
    time.sleep(WARM_UP_S)
    capture = lab.folder / "gaps.pcap"
    # Headers only, in nanoseconds, with a buffer for several seconds: it loses nothing at 100 kpps.
    tcpdump = lab.receiver(
        *("tcpdump", "-i", PORT_B, "-n", "-Z", "root", "-s", "60", "-B", "65536"),
        *("--time-stamp-precision=nano", "-w", str(capture), "udp"),
    )
    try:
        time.sleep(0.5)
        cpu, started = tool.cpu_s(), time.monotonic()
        time.sleep(seconds)
        cpu = (tool.cpu_s() - cpu) / (time.monotonic() - started)
    finally:
        tcpdump.stop()
    at_ns = timestamps(capture)
    if len(at_ns) < 3:
        return {"error": f"{len(at_ns)} frames arrived"}
    gaps_us = np.diff(at_ns) / 1e3
    due_us = 1e6 / pps
    p1, p50, p99, p999 = np.percentile(gaps_us, (1, 50, 99, 99.9))
    return {
        "frames": len(at_ns),
        "error_ratio": (due_us / gaps_us.mean()) - 1,
        # Least squares: a stall of the machine at the end of a capture must not change the rate.
        "fitted_error_ratio": due_us
        / (np.polyfit(np.arange(len(at_ns)), at_ns - at_ns[0], 1)[0] / 1e3)
        - 1,
        "gap_sd_us": gaps_us.std(),
        "gap_p1_us": p1,
        "gap_p50_us": p50,
        "gap_p99_us": p99,
        "gap_p999_us": p999,
        "gap_max_us": gaps_us.max(),
        "within_10_percent": float((abs(gaps_us - due_us) <= due_us * 0.1).mean()),
        "cpu_cores": cpu,
        "capture_dropped": int(
            next(iter(numbers(tcpdump.output(), "packets dropped by kernel")), 0)
        ),
        "ran_to_the_end": tool.running(),
    }


def attempt(start: Callable[[], Process], measure: Callable[[Process], Record]) -> Record:
    """Return the result of `measure` for a tool; a failure of the tool is also recorded."""
    try:
        tool = start()
    except tools.Unsuited as why:
        return {"unsuited": str(why)}
    except RuntimeError as why:
        return {"error": str(why)}
    try:
        record = measure(tool)
        if not record.get("ran_to_the_end", True):
            record = {"error": f"it ended early: {tool.output().strip()[-300:]}"}
    finally:
        tool.stop()
    return {
        key: float(value) if isinstance(value, np.floating) else value
        for key, value in record.items()
    }


def timestamps(capture: pathlib.Path) -> np.ndarray:
    """Arrival times in ns of a nanosecond pcap whose records have one length, as the frames of one
    stream do."""
    octets = np.fromfile(capture, dtype=np.uint8)
    if len(octets) < 40:
        return np.array([], dtype=np.int64)
    magic, included = (
        struct.unpack("<I", octets[:4].tobytes())[0],
        int(octets[32:36].view("<u4")[0]),
    )
    assert magic == 0xA1B23C4D, (
        f"tcpdump wrote {magic:#x}, not a nanosecond capture of this byte order"
    )
    record_len = 16 + included
    count = (len(octets) - 24) // record_len
    records = octets[24 : 24 + count * record_len].reshape(count, record_len)
    heads = records[:, :16].copy().view("<u4")
    assert (heads[:, 2] == included).all(), "frames of another stream are in the capture"
    return heads[:, 0].astype(np.int64) * 1_000_000_000 + heads[:, 1]


def numbers(text: str, before: str) -> Iterator[int]:
    """Yield the numbers at the start of lines that end with `before`."""
    return (int(line.split()[0]) for line in text.splitlines() if line.endswith(before))


def version(name: str) -> str:
    """Return the version of the tool's Debian package, or of Squall from its own output."""
    if name == "squall":
        printed = subprocess.run(
            [tools.squall_binary(), "--version"], capture_output=True, text=True, check=False
        )
        return printed.stdout.strip()
    path = pathlib.Path(shutil.which(tools.program(name)) or "").resolve()
    owner = subprocess.run(
        ["dpkg", "-S", str(path)], capture_output=True, text=True, check=False
    ).stdout
    package = owner.partition(":")[0]
    shown = subprocess.run(
        ["dpkg-query", "-W", package], capture_output=True, text=True, check=False
    )
    return " ".join(shown.stdout.split())


def table(records: list[Record]) -> str:
    """Return Markdown. A cell is the median of the rounds, with minimum and maximum in brackets."""
    about = records[0]
    blocks = [
        f"{about['started']}, {about['cpus']} x {about['cpu']}, kernel {about['kernel']}, commit {about['commit']}\n"
        f"`{about['command']}`"
    ]
    for kind, rows in grouped(of(records, "speed"), "kind").items():
        lines = [
            f"### Top speed, {f'{kind} octets' if kind.isdigit() else kind} (without FCS)\n",
            "| tool | kpps | Gb/s (L2, without FCS) | CPU s/Mpkt | squall / tool |",
            "|---|---|---|---|---|",
        ]
        for tool, mine in sorted(
            grouped(rows, "tool").items(), key=lambda item: -median(item[1], "pps")
        ):
            ratio = spread(ratios(rows, tool, "pps"), "{:.2f}")
            cells = (cell(mine, "pps", "{:.0f}", 1e-3), cell(mine, "bps_l2", "{:.2f}", 1e-9))
            lines.append(
                f"| {tool} | {' | '.join(cells)} | {cell(mine, 'cpu_s_per_mpkt', '{:.2f}')} | {ratio} |"
            )
        blocks.append("\n".join(lines))
    for pps, rows in grouped(of(records, "accuracy"), "asked_pps").items():
        lines = [
            f"### Rate accuracy, {pps} pps of 60 octets\n",
            "| tool | mean error % | fitted error % | gap SD us | p1 | p50 | p99 | p99.9 | within 10 % | CPU cores | capture lost |",
            "|---|---|---|---|---|---|---|---|---|---|---|",
        ]
        for tool, mine in sorted(
            grouped(rows, "tool").items(), key=lambda item: median(item[1], "gap_sd_us")
        ):
            cells = [
                cell(mine, key, "{:+.4f}", 100) for key in ("error_ratio", "fitted_error_ratio")
            ]
            cells += [cell(mine, "gap_sd_us", "{:.1f}")]
            cells += [f"{median(mine, f'gap_{p}_us'):.1f}" for p in ("p1", "p50", "p99", "p999")]
            cells += [
                f"{100 * median(mine, 'within_10_percent'):.0f} %",
                f"{median(mine, 'cpu_cores'):.2f}",
            ]
            lines.append(
                f"| {tool} | {' | '.join(cells)} | {sum(int(r['capture_dropped']) for r in mine)} |"
            )
        blocks.append("\n".join(lines))
    failed = {
        f"- {r['tool']}: {r.get('error') or r['unsuited']}"
        for r in records
        if "error" in r or "unsuited" in r
    }
    return "\n\n".join(blocks + (["\n".join(["Not measured:", *sorted(failed)])] if failed else []))


def of(records: list[Record], what: str) -> list[Record]:
    return [r for r in records if r["what"] == what and "error" not in r and "unsuited" not in r]


def grouped(records: Iterable[Record], key: str) -> dict[str, list[Record]]:
    groups: dict[str, list[Record]] = collections.defaultdict(list)
    for record in records:
        groups[str(record[key])].append(record)
    return groups


def values(records: Iterable[Record], key: str) -> list[float]:
    return [float(r[key]) for r in records if r.get(key) is not None]


def median(records: Iterable[Record], key: str) -> float:
    return statistics.median(values(records, key) or [float("nan")])


def cell(records: Iterable[Record], key: str, form: str, scale: float = 1) -> str:
    return spread([scale * value for value in values(records, key)], form)


def spread(found: list[float], form: str) -> str:
    if not found:
        return "-"
    return f"{form} ({form}..{form})".format(statistics.median(found), min(found), max(found))


def ratios(rows: list[Record], tool: str, key: str) -> list[float]:
    """Return Squall's figure divided by the tool's, per round."""
    own = {r["round"]: float(r[key]) for r in rows if r["tool"] == "squall"}
    peer = {r["round"]: float(r[key]) for r in rows if r["tool"] == tool}
    return [own[round_] / peer[round_] for round_ in own.keys() & peer.keys() if peer[round_]]


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""`squall info` against capinfos and tshark, on the golden captures: packets, octets, times, order,
lengths, IP flows.

Needs tshark and capinfos; $SQUALL is target/debug/squall unless set.
"""

import collections
import json
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests/golden"


def run(*command: object) -> str:
    return subprocess.run(
        [str(word) for word in command], check=True, capture_output=True, text=True, timeout=120
    ).stdout


def capinfos(capture: pathlib.Path) -> dict[str, str]:
    # A machine-readable table with raw numbers: one line of names, one of values.
    head, values = run(
        "capinfos", "-T", "-M", "-S", "-c", "-d", "-u", "-a", "-e", "-o", capture
    ).splitlines()[:2]
    return dict(zip(head.split("\t"), values.split("\t"), strict=True))


def tshark(capture: pathlib.Path) -> tuple[dict[int, int], dict[str, tuple[int, int]]]:
    """Return the number of packets of each length, and the packets and octets of IPv4 and IPv6
    directly after the link header and any tags and labels.
    """
    lengths: collections.Counter[int] = collections.Counter()
    shares: dict[str, tuple[int, int]] = {}
    fields = ["-e", "frame.len", "-e", "frame.protocols"]
    for line in run("tshark", "-n", "-r", capture, "-T", "fields", *fields).splitlines():
        length, protocols = line.split("\t")
        lengths[int(length)] += 1
        names = [
            name
            for name in protocols.split(":")
            if name not in ("eth", "ethertype", "vlan", "ieee8021ad", "mpls")
        ]
        if names and names[0] in ("ip", "ipv6"):
            name = {"ip": "IPv4", "ipv6": "IPv6"}[names[0]]
            packets, octets = shares.get(name, (0, 0))
            shares[name] = (packets + 1, octets + int(length))
    return dict(lengths), shares


def check(squall: pathlib.Path, capture: pathlib.Path) -> list[str]:
    info = json.loads(run(squall, "info", "--quiet", "--json", "-", capture))["files"][0]
    traffic, capinfos_of = info["traffic"], capinfos(capture)
    lengths, shares = tshark(capture)
    wrong = []

    def same(what: str, found: object, expected: object) -> None:
        if found != expected:
            wrong.append(f"{capture.name}: {what}: {found}, expected {expected}")

    same("packets", traffic["packets"], int(capinfos_of["Number of packets"]))
    same("octets", traffic["octets"], int(capinfos_of["Data size (bytes)"]))
    same("strict order", traffic["order"]["strict"], capinfos_of["Strict time order"] == "True")
    same(
        "duration",
        f"{traffic['duration_s']:.6f}",
        f"{float(capinfos_of['Capture duration (seconds)']):.6f}",
    )
    same("lengths", {length: n for length, n in traffic["lengths"]["counts"]}, lengths)
    same(
        "packets of all bins",
        sum(b["packets"] for b in traffic["lengths"]["bins"]),
        traffic["packets"],
    )
    network = [p for p in traffic["protocols"] if p["layer"] == "network"]
    if capture.stem != "wrong":  # readers differ about headers that contradict themselves
        found = {
            p["name"]: (p["packets"], p["octets"]) for p in network if p["name"] in ("IPv4", "IPv6")
        }
        same("IPv4 and IPv6", found, shares)
    same("packets of all network protocols", sum(p["packets"] for p in network), traffic["packets"])
    same("packets of the series", sum(traffic["series"]["packets"]), traffic["packets"])
    flows = traffic["flows"]
    same(
        "flow and other packets",
        flows["flow_packets"] + flows["non_flow_packets"],
        traffic["packets"],
    )
    return wrong


def main() -> None:
    missing = [tool for tool in ("tshark", "capinfos") if not shutil.which(tool)]
    if missing:
        print(f"SKIPPED: needs {' and '.join(missing)}")
        return
    squall = pathlib.Path(os.environ.get("SQUALL", ROOT / "target/debug/squall"))
    captures = sorted(GOLDEN.glob("*.pcap"))
    wrong = [line for capture in captures for line in check(squall, capture)]
    print("\n".join(wrong) or f"info: {len(captures)} captures as capinfos and tshark see them")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()

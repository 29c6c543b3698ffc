#!/usr/bin/env python3
"""Hosts over a link in memory: DHCP exchanges per CPU second with Squall's own server, memory of the
clients, and answers to ARP requests and neighbor solicitations at a rate.

Client and server share the worker, so the figure is for both ends. CPU time and memory are those of
the process; the difference between a long and a short run leaves the start-up out.

    hosts.py [--clients 100000] [--rate 200000] [--seconds 5] [--out FILE]

$SQUALL is target/release/squall unless set.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
SQUALL = os.environ.get("SQUALL", str(ROOT / "target/release/squall"))
# Least exchanges per CPU second, and most megabytes for 100,000 clients.
EXCHANGES, MEMORY = 50_000, 256

DORA = """
[ports]
C = "loop:bench"
S = "loop:bench"
[[host]]
name  = "clients"
port  = "C"
count = {clients}
arp   = "silent"
[[host]]
port  = "S"
ipv4  = "10.0.0.1/8"
serve = "10.1.0.0-10.16.255.255"
"""
# The stream asks for each host in turn.
ASKED = """
duration = "{{seconds}} s"
[ports]
C = "loop:bench"
S = "loop:bench"
[[host]]
name  = "hosts"
port  = "C"
count = 100000
{address}
[[stream]]
port   = "S"
packet = "{packet}"
rate   = "{{rate}} pps"
start_delay = "500 ms"
[[stream.vary]]
field = "{field}"
op    = "increment"
min   = "{first}"
max   = "{last}"
"""
ARP = ASKED.format(
    address='ipv4 = "10.1.0.0/8"\narp = "silent"',
    packet="eth(dst=ff:ff:ff:ff:ff:ff)/arp(op=1,spa=10.0.0.1,tpa=10.1.0.0)",
    field="arp.tpa",
    first="10.1.0.0",
    last="10.2.134.159",
)
ND = ASKED.format(
    address='ipv6 = "2001:db8::1:0/64"\ndad = 0',
    packet="eth(dst=33:33:00:00:00:01)/ipv6(src=2001:db8::1,dst=ff02::1)"
    "/icmpv6(target=2001:db8::1:0)",
    field="icmpv6.target",
    first="2001:db8::1:0",
    last="2001:db8::2:869f",
)


def run(profile: str) -> tuple[dict, float, int]:
    """Return the report, CPU seconds, and the largest resident memory in octets."""
    with tempfile.TemporaryDirectory(prefix="squall-hosts-") as folder:
        path, report = pathlib.Path(folder) / "p.toml", pathlib.Path(folder) / "r.json"
        path.write_text(profile)
        argv = [SQUALL, "run", str(path), "-q", "--json", str(report)]
        child = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)
        error = child.stderr.read()
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode not in (0, 4):
            sys.exit(f"hosts.py: {' '.join(argv)}: {child.returncode}\n{error}")
        whole = json.loads(report.read_text())
        return whole, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024


def verdict(report: dict) -> str:
    """Return `valid`, or why it is not."""
    found = report["verdict"]
    return found["status"] if found["valid"] else found["reasons"][0]["text"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, default=100_000)
    parser.add_argument("--rate", type=int, default=200_000, help="requests per second")
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--out")
    args = parser.parse_args()
    few = max(1, args.clients // 10)
    _, base_s, base = run(DORA.format(clients=few))
    report, used_s, used = run(DORA.format(clients=args.clients))
    clients = report["hosts"][0]
    rate = (args.clients - few) / (used_s - base_s)
    figures = {
        "clients": args.clients,
        "bound": clients["bound"],
        "exchanges_per_cpu_s": round(rate),
        "resident_mb": round(used / 1e6, 1),
        "octets_per_client": round((used - base) / (args.clients - few)),
    }
    for kind, profile in [("arp", ARP), ("nd", ND)]:
        asked, asked_s, _ = run(profile.format(seconds=args.seconds, rate=args.rate))
        sent, group = asked["streams"][0]["tx_packets"], asked["hosts"][0]
        of = group["arp"] if kind == "arp" else group["ipv6"]["nd"]
        figures |= {
            f"{kind}_requests": sent,
            f"{kind}_answered": of["answered"],
            f"{kind}_per_s": args.rate,
            f"{kind}_cpu_us": round(1e6 * asked_s / max(1, sent), 2),
            f"{kind}_verdict": verdict(asked),
        }
    for name, value in figures.items():
        print(f"{name:22} {value}")
    if args.out:
        pathlib.Path(args.out).write_text(json.dumps(figures) + "\n")
    if rate < EXCHANGES or used > MEMORY * 1e6 * max(1, args.clients / 100_000):
        sys.exit(f"hosts.py: expected {EXCHANGES} exchanges per CPU second and {MEMORY} MB at most")


if __name__ == "__main__":
    main()

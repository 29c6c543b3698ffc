#!/usr/bin/env python3
"""Flow connections per CPU second on a port shared by several workers, compared to one worker.

Squall is both ends, in one process: over a loop, and over a veth pair in a private namespace by
af_packet and af_xdp. The CPU time is that of the worker threads. On veth the sender's system call
also receives the frame, so that time includes the kernel's work. Rounds alternate, ratios are taken
within a round. With fewer CPUs than threads only CPU time is printed, because elapsed time then
includes waiting for a CPU.

    workers.py [--rounds 5] [--seconds 10] [--workers 1,2] [--kinds loop,af_packet,af_xdp]
               [--users 500] [--out FILE]
"""

import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import tools
from lab import run

RUNS = pathlib.Path(__file__).resolve().parents[1] / "runs"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument(
        "--workers",
        type=lambda text: [int(n) for n in text.split(",")],
        default=[1, 2],
        help="of each port; the first is what the others are compared with",
    )
    parser.add_argument(
        "--kinds", type=lambda text: text.split(","), default=["loop", "af_packet", "af_xdp"]
    )
    parser.add_argument("--users", type=int, default=500, help="who begin again at once")
    parser.add_argument("--out", type=pathlib.Path)
    o = parser.parse_args()
    out = o.out or RUNS / f"{datetime.date.today()}-workers.json"
    records: list[dict] = []
    namespace = f"squall-workers-{os.getpid()}"
    make(namespace, max(o.workers))
    try:
        with out.open("w") as file, tempfile.TemporaryDirectory() as folder:
            print(json.dumps(tools.host()), file=file)
            for kind in o.kinds:
                for round_ in range(o.rounds):
                    for workers in o.workers:
                        about = {"kind": kind, "round": round_, "workers": workers}
                        report = pathlib.Path(folder) / "report.json"
                        records.append(about | measure(namespace, kind, workers, report, o))
                        print(json.dumps(records[-1]), file=file, flush=True)
                        print(json.dumps(records[-1]), file=sys.stderr)
    finally:
        subprocess.run(("ip", "netns", "del", namespace), check=False)
    print(table(records, o.workers[0]))


def make(namespace: str, queues: int) -> None:
    run("ip", "netns", "add", namespace)
    inside = ("ip", "-n", namespace)
    count = ("numtxqueues", str(queues), "numrxqueues", str(queues))
    run(*inside, "link", "add", "vA", *count, "type", "veth", "peer", "name", "vB", *count)
    for port in ("vA", "vB"):
        off = f"echo 1 > /proc/sys/net/ipv6/conf/{port}/disable_ipv6"
        run("ip", "netns", "exec", namespace, "sh", "-c", off)
        run(*inside, "link", "set", port, "up")


def measure(
    namespace: str, kind: str, workers: int, report: pathlib.Path, o: argparse.Namespace
) -> dict:
    ports, cores = ("loop:w", "loop:w"), workers
    if kind != "loop":
        # Each port has its own workers, except that the workers of a loop have a queue for both
        # ends.
        queues = f",rx_queues={workers}"
        ports, cores = (f"{kind}:vA{queues}", f"{kind}:vB{queues}"), 2 * workers
    argv = (
        *("ip", "netns", "exec", namespace),
        *(
            tools.squall_binary(),
            "flows",
            "app",
            "exchange",
            "--port",
            ports[0],
            "--port2",
            ports[1],
        ),
        *("--clients", "16.0.0.1-16.0.0.250", "--servers", "48.0.0.1-48.0.0.8"),
        *("--users", str(o.users), "-d", f"{o.seconds}s", "--cores", str(cores)),
        *("-q", "--allow-invalid", "--json", str(report)),
    )
    run(*map(str, argv))
    read = json.loads(report.read_text())
    shares = [worker["tx_packets"] for worker in read["workers"]]
    # Number of workers per port: on veth each end has its own.
    if kind != "loop":
        shares = shares[:workers]
    links = read["flows"]["links"]
    done = read["flows"]["total"]["client"]["completed"]
    cpu = sum(worker["cpu_s"] for worker in read["workers"])
    return {
        "connections": done,
        "per_cpu_s": done / cpu,
        "largest_share": max(shares) / sum(shares),
        "relayed": sum(link["counters"]["relayed"] for link in links)
        / sum(link["counters"]["frames_received"] for link in links),
    }


def table(records: list[dict], first: int) -> str:
    lines = [
        "| kind | workers | connections per CPU second | of one worker's | spread | largest share | relayed |",
        "|---|---|---|---|---|---|---|",
    ]
    for kind in dict.fromkeys(record["kind"] for record in records):
        of_kind = [record for record in records if record["kind"] == kind]
        alone = {r["round"]: r["per_cpu_s"] for r in of_kind if r["workers"] == first}
        for workers in dict.fromkeys(record["workers"] for record in of_kind):
            own = [record for record in of_kind if record["workers"] == workers]
            ratios = [record["per_cpu_s"] / alone[record["round"]] for record in own]
            median = lambda key: statistics.median(record[key] for record in own)  # noqa: E731
            lines.append(
                f"| {kind} | {workers} | {median('per_cpu_s'):.0f} | {statistics.median(ratios):.2f} | "
                f"{min(ratios):.2f}-{max(ratios):.2f} | {median('largest_share'):.2f} | {median('relayed'):.3f} |"
            )
    return "\n".join(lines)


main()

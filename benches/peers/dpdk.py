#!/usr/bin/env python3
"""CPU cycles per 64-octet frame on DPDK's net_null, one core: Squall and dpdk-testpmd alternate in
one run.

    dpdk.py [--rounds 5] [--seconds 3] [--out FILE]

net_null accepts frames and drops them, so the figure is the cost of building frames and passing
them on. It is the CPU time of the sending thread, on which other programs have little influence,
times the frequency of the CPU's counter, divided by the frames sent; medians over the rounds,
ratios within a round. testpmd's txonly sends one frame, txonly --txonly-multi-flow varies the
source address, flowgen varies the destination address and its IPv4 checksum; none of them has a UDP
checksum. FILE gets one JSON object per line: the host, then each measurement.
"""

import argparse
import json
import os
import pathlib
import pty
import re
import select
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import tools

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Squall's EAL options on machines without hugepages, used for both tools.
MEMORY = ["--no-huge", "--no-shconf", "--no-telemetry", "--iova-mode=va", "-m", "512"]
TIMEOUT_S = 30.0

Record = dict[str, object]


class Broken(Exception):
    """A tool did not do what its arguments request."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--out", type=pathlib.Path)
    o = parser.parse_args()
    if shutil.which("dpdk-testpmd") is None:
        sys.exit("dpdk.py: no dpdk-testpmd: scripts/setup dpdk")
    subprocess.run([str(ROOT / "scripts/dpdk")], check=True)
    hertz = counter_hertz()
    records: list[Record] = [host(hertz)]
    for number in range(o.rounds):
        for name, measure in CASES.items():
            packets, cpu_s = measure(o.seconds)
            cycles = cpu_s * hertz / packets
            record: Record = {
                "round": number,
                "case": name,
                "cycles_per_frame": round(cycles, 1),
                "packets": packets,
            }
            print(json.dumps(record), file=sys.stderr)
            records.append(record)
    if o.out:
        o.out.parent.mkdir(parents=True, exist_ok=True)
        o.out.write_text("".join(json.dumps(record) + "\n" for record in records))
    print(table(records))


def squall(port: str, *vary: str) -> Callable[[float], tuple[int, float]]:
    def measure(seconds: float) -> tuple[int, float]:
        # The difference between a long and a short run cancels the cost of start and end.
        long, short = (squall_run(port, seconds + more, vary) for more in (0.5, -0.5 * seconds))
        return long[0] - short[0], long[1] - short[1]

    return measure


def squall_run(port: str, seconds: float, vary: tuple[str, ...]) -> tuple[int, float]:
    options = [word for v in vary for word in ("--vary", v)]
    command = [
        tools.squall_binary(),
        "send",
        "--port",
        port,
        "--packet",
        "eth/ipv4/udp",
        "--size",
        "64",
        "--rate",
        "max",
    ]
    command += [*options, "--cores", "1", "--duration", f"{seconds}s", "--quiet", "--json", "-"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=seconds + TIMEOUT_S, check=False
    )
    if done.returncode != 0:
        raise Broken(f"{' '.join(command)}: {done.stderr}")
    report = json.loads(done.stdout)
    return report["ports"][0]["tx"]["packets"], report["cpu"]["user_s"] + report["cpu"]["system_s"]


def testpmd(mode: str, *options: str) -> Callable[[float], tuple[int, float]]:
    def measure(seconds: float) -> tuple[int, float]:
        eal = [*MEMORY, "--no-pci", f"--lcores={lcores()}", "--vdev", "net_null0,no-rx=1"]
        own = [
            "-i",
            f"--forward-mode={mode}",
            "--nb-cores=1",
            "--total-num-mbufs=16384",
            "--burst=64",
            *options,
        ]
        # The output goes to a pseudoterminal: testpmd would fully buffer output to a pipe.
        controller, its = pty.openpty()
        process = subprocess.Popen(
            ["dpdk-testpmd", *eal, "--", *own],
            text=True,
            stdin=subprocess.PIPE,
            stdout=its,
            stderr=its,
        )
        try:
            worker = Worker(process.pid)
            before = worker.cpu_s()
            enter(process, "start")
            worker.wait(lambda: worker.cpu_s() > before)
            time.sleep(seconds)
            enter(process, "stop")
            text = read_until(controller, "Accumulated forward statistics", "TX-total", "+++")
            cpu_s = worker.cpu_s() - before
            enter(process, "quit")
            read_until(controller, "Bye...")
            process.wait(TIMEOUT_S)
        finally:
            process.kill()
            os.close(controller)
            os.close(its)
        sent = re.findall(r"TX-packets: (\d+)", text)
        if not sent:
            raise Broken(f"testpmd {mode}: {text[-2000:]}")
        return int(sent[-1]), cpu_s

    return measure


def read_until(terminal: int, *marks: str) -> str:
    """Return the output up to the last of `marks`, which appear in this order."""
    end, text, at = time.monotonic() + TIMEOUT_S, "", 0
    for mark in marks:
        while text.find(mark, at) < 0:
            if not select.select([terminal], [], [], max(0.0, end - time.monotonic()))[0]:
                raise Broken(f"testpmd does not say {mark!r}: {text[-2000:]}")
            text += os.read(terminal, 65536).decode(errors="replace")
        at = text.find(mark, at) + len(mark)
    return text


def enter(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdin is not None
    process.stdin.write(word + "\n")
    process.stdin.flush()


class Worker:
    """The forwarding thread of a testpmd process."""

    def __init__(self, pid: int) -> None:
        self.tasks = pathlib.Path(f"/proc/{pid}/task")
        self.path: pathlib.Path | None = None
        self.wait(self._find)

    def _find(self) -> bool:
        for task in self.tasks.iterdir() if self.tasks.exists() else []:
            # Names of the thread: lcore-worker-1 (22.11), dpdk-worker1 (23.11).
            if re.match(r"(lcore|dpdk|rte)-worker", (task / "comm").read_text()):
                self.path = task
        return self.path is not None

    def cpu_s(self) -> float:
        assert self.path is not None
        return int((self.path / "schedstat").read_text().split()[0]) * 1e-9

    def wait(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + TIMEOUT_S
        while not condition():
            if time.monotonic() > end:
                raise Broken("testpmd does not start, or does not stop")
            time.sleep(0.05)


def lcores() -> str:
    """Two logical cores for testpmd, chosen by the system: no thread is pinned."""
    cpus = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    return f"0@({cpus}),1@({cpus})"


TWO_FIELDS = ("ipv4.src=random:16.0.0.0-18.0.0.254", "udp.sport=increment:1024-65535")

CASES: dict[str, Callable[[float], tuple[int, float]]] = {
    "squall, one template": squall("dpdk:vdev=net_null0"),
    "testpmd txonly": testpmd("txonly"),
    "squall, two fields and checksums": squall("dpdk:vdev=net_null0", *TWO_FIELDS),
    "testpmd txonly, multi-flow": testpmd("txonly", "--txonly-multi-flow"),
    "testpmd flowgen": testpmd("flowgen"),
    "squall null:, one template": squall("null:"),
    "squall null:, two fields and checksums": squall("null:", *TWO_FIELDS),
}


def counter_hertz() -> float:
    """Return the rate of the CPU's time stamp counter; on a virtual machine, /proc/cpuinfo shows
    it."""
    mhz = [float(l.partition(":")[2]) for l in open("/proc/cpuinfo") if l.startswith("cpu MHz")]
    return statistics.median(mhz) * 1e6


def host(hertz: float) -> Record:
    version = subprocess.run(
        ["pkg-config", "--modversion", "libdpdk"], capture_output=True, text=True, check=False
    )
    return tools.host(hertz=hertz, dpdk=version.stdout.strip())


def table(records: list[Record]) -> str:
    by_case = {
        name: [float(str(r["cycles_per_frame"])) for r in records if r.get("case") == name]
        for name in CASES
    }
    lines = [
        "| net_null, 64 octets | cycles a frame | lowest to highest | of txonly |",
        "|---|---|---|---|",
    ]
    for name, cycles in by_case.items():
        ratios = [one / other for one, other in zip(cycles, by_case["testpmd txonly"])]
        spread = f"{min(cycles):.1f} to {max(cycles):.1f}"
        lines.append(
            f"| {name} | {statistics.median(cycles):.1f} | {spread} | {statistics.median(ratios):.2f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()

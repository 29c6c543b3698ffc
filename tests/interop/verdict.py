#!/usr/bin/env python3
"""The verdict matrix: squall send, replay and flows through devices of known behavior, during
disturbances.

A device passes an evenly paced stream of the requested rate without loss, so every drop is caused
by the generator. Therefore a run is never VALID if the device has dropped a frame, whatever
happened meanwhile; if it is not VALID, it names a cause that matches the disturbance; and its exit
status agrees. Cells are devices (a policer and a buffer in the port's address, nftables' limit and
tbf on a bridge) x ports x sources x disturbances. Nothing is assumed about the machine: on a busy
one fewer runs are VALID, and nothing else changes.

By default, a sample of cells runs for at most --seconds. With --full each cell runs, and then
--quiet-runs runs of each port at half of its maximum rate, of which at least 95 % must be VALID;
only on a quiet machine is that required. --burner keeps every CPU busy all the time. Needs root for
all ports except loops; a missing tool is reported once.
"""

import argparse
import collections
import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from tools import Failed, run

# Other scripts and concurrent tests set this variable, which disables the verdict.
os.environ.pop("SQUALL_ALLOW_INVALID", None)

ROOT = pathlib.Path(__file__).resolve().parents[2]
SQUALL = str(pathlib.Path(os.environ.get("SQUALL", ROOT / "target/debug/squall")).absolute())

# The requested rate; the device passes 1.5 times as much, and a burst of 4 ms.
PPS, SIZE = 10_000, 1000
LIMIT, DEPTH = 15_000, 40
CPS = 2000
FLOW_LIMIT, FLOW_DEPTH = 3000, 20
# Many slow, evenly spaced sources: the device sees their sum.
MANY, SLOW = 40, 20
# A rate in frames/s that no port reaches.
FASTEST = 40_000_000
MANY_KINDS = ["streams", "replays", "templates", "attacks"]
# Loads driven by timers of flows: calls of 50 packets/s, users with pauses.
LOADS = {
    "flows": ["app", "dns", "--cps", CPS],
    "rtp": ["app", "rtp", "-o", "packets=50", "--cps", 47],
    "think": ["app", "dns", "--users", 15, "--think", "10 ms"],
    "users": ["app", "exchange", "--users", 10, "--think", "10 ms", "--poisson"],
}
# Frames per second that a device passes, and its burst size.
LIMITS = {
    "flows": (FLOW_LIMIT, FLOW_DEPTH),
    "rtp": (4000, 40),
    "think": (FLOW_LIMIT, FLOW_DEPTH),
    "users": (12_000, 80),
    **{f"many {kind}": (1200, 15) for kind in MANY_KINDS},
}
PACKET = "eth(src=02:00:00:00:00:01,dst=02:00:00:00:00:02)/ipv4(src=10.0.0.1,dst=10.0.0.2)/udp"

KERNEL = ["af_packet", "af_xdp", "xdp_live"]
# Disturbances at the receiving end of the bridge, which the sender cannot detect, and how they end.
RECEIVER = {
    "receiver-down": ("ip link set b0 down", "ip link set b0 up"),
    "receiver-carrier": ("ip link set b1 down", "ip link set b1 up"),
    "receiver-mtu": ("ip link set b0 mtu 500", "ip link set b0 mtu 1500"),
}
STALLS = ["quiet", "stop-1ms", "stop-9ms", "stop-50ms", "quota", "burner"]
SIGNALS = {"SIGINT": 130, "SIGTERM": 143, "SIGHUP": 129}

# Causes that a run may name if it, or the machine, did not keep up.
GENERATOR = {"generator-bound", "starved", "not-done", "burst"}
# For each disturbance outside the generator, at least one of these reasons must be named.
CAUSES = {
    "flap": {"link-down"},
    "deleted": {"port-lost", "link-down"},
    "mtu": {"port-refused", "port-lost", "counters-differ"},
    "full-disk": {"port-refused", "port-lost"},
    "receiver-stopped": {"receiver-bound"},
    "receiver-down": {"link-down"},
    "receiver-carrier": {"link-down"},
    "receiver-mtu": {"receiver-bound"},
}


@dataclasses.dataclass(frozen=True)
class Cell:
    port: str
    source: str
    device: str
    disturbance: str

    def __str__(self) -> str:
        return f"{self.source} over {self.port}, {self.device}, {self.disturbance}"


def cells() -> list[Cell]:
    """Return all cells, the most useful first: a sample that ends early has covered each
    disturbance once."""
    devices = ["police", "buffer"]
    made = [
        Cell("loop", source, device, stall)
        for stall in STALLS
        for source in ["streams", "flows"]
        for device in devices
    ]
    for port, stall in itertools.product(KERNEL, STALLS):
        made += [Cell(port, "streams", device, stall) for device in ["nft", "tbf", *devices]]
        made += [Cell(port, "replay", device, stall) for device in ["nft", "tbf"]]
        if port != "xdp_live":
            made += [Cell(port, "flows", "nft", stall)]
    for port, source, name in itertools.product(
        ["loop", *KERNEL], ["streams", "replay", "flows"], SIGNALS
    ):
        if (port, source) != ("xdp_live", "flows"):
            made.append(Cell(port, source, "none", name))
    for port, source in itertools.product(KERNEL, ["streams", "replay"]):
        made += [Cell(port, source, "none", what) for what in ["flap", "deleted", "mtu"]]
    for kind, stall in itertools.product(MANY_KINDS, STALLS):
        made += [Cell("loop", f"many {kind}", device, stall) for device in ["police", "buffer"]]
        made += [Cell("af_packet", f"many {kind}", "nft", stall)]
    for load, stall in itertools.product(["rtp", "think", "users"], STALLS):
        made += [Cell("loop", load, device, stall) for device in ["police", "buffer"]]
        made += [Cell("af_packet", load, "nft", stall)]
    made += [Cell("af_packet", "streams", "none", "receiver-stopped")]
    for port, what in itertools.product(["af_packet", "af_xdp"], RECEIVER):
        made.append(Cell(port, "streams", "none", what))
    made += [Cell("pcap", source, "none", "full-disk") for source in ["streams", "replay"]]
    return made


def sample(chance: random.Random) -> list[Cell]:
    """Return first two cells that have failed before, then one cell per disturbance, then the
    others."""
    first = [
        Cell("af_packet", "streams", "nft", "quiet"),
        Cell("af_packet", "streams", "nft", "stop-9ms"),
        Cell("loop", "many replays", "police", "stop-9ms"),
        Cell("loop", "rtp", "police", "stop-9ms"),
    ]
    rest = [cell for cell in cells() if cell not in first]
    chance.shuffle(rest)
    kinds = [
        next(cell for cell in rest if cell.disturbance == kind)
        for kind in sorted({c.disturbance for c in rest})
    ]
    return first + kinds + [cell for cell in rest if cell not in kinds]


def many(
    kind: str, ports: list[str], seconds: str, capture: pathlib.Path, pps: float = SLOW
) -> str:
    """Return a profile of many evenly spaced sources on one port, with `pps` each."""
    lines = [f'duration = "{seconds}"', "[ports]", f'A = "{ports[0]}"', f'B = "{ports[1]}"']
    if kind == "templates":
        lines += ["[[pool]]", 'name = "clients"', 'addresses = "10.9.0.0/24"']
        lines += ["[[pool]]", 'name = "servers"', 'addresses = "10.8.0.1"']
        lines += ["[flows]", 'clients = "A"', 'servers = "B"']
    for number in range(MANY):
        start = f"{number * 1e9 / (MANY * pps):.0f} ns"
        one = {
            "streams": ["[[stream]]", f'packet = "{PACKET}"', f"size = {SIZE}"]
            + [f'rate = "{pps} pps"', f'start_delay = "{start}"', 'port = "A"', "latency = true"],
            "replays": ["[[replay]]", f'files = "{capture}"', f'rate = "{pps} pps"', "loops = 0"]
            + [f'start = "{start}"', 'port = "A"'],
            "templates": [
                "[[template]]",
                'app = "dns"',
                f"cps = {pps}",
                f"listen = {2000 + number}",
            ]
            + [f'start = "{start}"', 'clients = "clients"', 'servers = "servers"'],
            "attacks": ["[[attack]]", 'template = "udp-flood"', f"rate = {pps}"]
            + [f'start = "{start}"', 'port = "A"', "repeat = 100"],
        }[kind]
        lines += [one[0], f'name = "{kind} {number}"', *one[1:]]
    return "\n".join(lines) + "\n"


# --- the network
# ---------------------------------------------------------------------------------------------------


class Network:
    """a0 - a1 (bridge) b1 - b0 in a namespace. If set, frames to b0 pass a policer in the bridge or
    a queue before b1.
    """

    STEPS = """
        sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1
        ip link add a0 type veth peer name a1
        ip link add b0 type veth peer name b1
        ip link add br0 type bridge mcast_snooping 0
        ip link set a1 master br0
        ip link set b1 master br0
        for i in a0 a1 b0 b1 br0; do ip link set $i up; done
        for i in a0 a1 b0 b1; do ethtool -K $i gro on; done"""

    def __init__(self) -> None:
        self.name: str | None = None
        self.made = 0

    def fresh(self) -> None:
        self.close()
        self.made += 1
        name = f"sq-verdict-{os.getpid()}-{self.made}"
        run("ip", "netns", "add", name)
        self.name = name
        self.shell(self.STEPS)
        # A bridge starts to forward frames some time after its links are up.
        for link in ["a1", "b1"]:
            until = time.monotonic() + 10
            while "state forwarding" not in self.shell(f"bridge link show dev {link}").stdout:
                if time.monotonic() > until:
                    raise Failed(f"{link} is not forwarding after 10 s")
                time.sleep(0.02)

    def shell(self, text: str) -> subprocess.CompletedProcess[str]:
        return run(*self.command("sh", "-ec", text))

    def command(self, *argv: object) -> list[str]:
        return ["ip", "netns", "exec", str(self.name), *map(str, argv)]

    def close(self) -> None:
        if self.name:
            subprocess.run(["ip", "netns", "del", self.name], capture_output=True, check=False)
            self.name = None

    def put(self, device: str, source: str) -> None:
        """Set up a device: clear all rules and their counters, and add the rules of this device."""
        self.shell(
            "tc qdisc del dev b1 root 2>/dev/null || true; nft flush ruleset 2>/dev/null || true"
        )
        limit, depth = LIMITS.get(source, (LIMIT, DEPTH))
        if device == "nft":
            self.shell(
                "nft add table bridge t; nft add chain bridge t f '{ type filter hook forward priority 0; }'; "
                f"nft add rule bridge t f oifname b1 limit rate over {limit}/second burst {depth} packets counter drop"
            )
        elif device == "tbf":
            rate, octets = 8 * LIMIT * SIZE, DEPTH * SIZE
            self.shell(f"tc qdisc add dev b1 root tbf rate {rate} burst {octets} limit {octets}")

    def dropped(self, device: str) -> int:
        if device == "nft":
            rules = json.loads(self.shell("nft -j list chain bridge t f").stdout)["nftables"]
            parts = [part for rule in rules for part in rule.get("rule", {}).get("expr", [])]
            return next(part["counter"]["packets"] for part in parts if "counter" in part)
        return json.loads(self.shell("tc -s -j qdisc show dev b1").stdout)[0]["drops"]


# --- disturbances
# --------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def stopped_now_and_then(process: subprocess.Popen[str], pause_s: float, chance: random.Random):
    """Stop the process for `pause_s` several times per second."""
    over = threading.Event()

    def disturb() -> None:
        while not over.wait(chance.uniform(0.05, 0.15)) and process.poll() is None:
            process.send_signal(signal.SIGSTOP)
            time.sleep(pause_s)
            process.send_signal(signal.SIGCONT)

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def quota_group() -> pathlib.Path | None:
    """Create a control group with a quota of 0.2 CPUs, if this process is permitted to."""
    for base, quota in [
        (pathlib.Path("/sys/fs/cgroup"), {"cpu.max": "20000 100000"}),
        (
            pathlib.Path("/sys/fs/cgroup/cpu"),
            {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "20000"},
        ),
    ]:
        group = base / f"squall-verdict-{os.getpid()}"
        try:
            group.mkdir(exist_ok=True)
            for file, text in quota.items():
                # In a directory that is not a control group, writing would create the file.
                if not (group / file).exists():
                    raise FileNotFoundError(file)
                (group / file).write_text(text)
            return group
        except OSError:
            with contextlib.suppress(OSError):
                group.rmdir()
    return None


@contextlib.contextmanager
def burners():
    """Run an endless loop on each CPU, at nice 0."""
    loop = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(loop) for _ in os.sched_getaffinity(0)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


# --- a run
# ---------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Outcome:
    report: dict
    status: int
    output: str
    dropped: int | None

    @property
    def verdict(self) -> str:
        return self.report["verdict"]["status"]

    @property
    def codes(self) -> set[str]:
        return {reason["code"] for reason in self.report["verdict"]["reasons"]}

    @property
    def lost(self) -> int:
        return sum((stream.get("rx") or {}).get("lost", 0) for stream in self.report["streams"])


class Matrix:
    def __init__(self, folder: pathlib.Path, seconds: float, chance: random.Random):
        self.folder, self.seconds, self.chance = folder, seconds, chance
        self.network = Network()
        self.missing: set[str] = set()
        self.before = 0
        self.capture = folder / "in.pcap"
        run(
            SQUALL,
            "send",
            "-p",
            f"pcap:{self.capture}",
            "--packet",
            PACKET,
            "-s",
            SIZE,
            "-r",
            f"{PPS}pps",
            "-n",
            PPS,
            "-q",
        )

    def lacks(self, cell: Cell) -> str | None:
        """Return the reason why the cell cannot be tested on this machine."""
        if cell.port in KERNEL:
            tools = ["ip", "bridge", "ethtool", "tc", *(["nft"] if cell.device == "nft" else [])]
            if os.getuid() != 0:
                return "what is not a loop needs root"
            lacking = [tool for tool in tools if not shutil.which(tool)]
            if lacking:
                return f"needs {', '.join(lacking)} (apt-get install iproute2 ethtool nftables)"
        if cell.disturbance == "quota" and quota_group() is None:
            return "a quota of CPU time needs a control group that can be written"
        if (cell.port, cell.source) == ("loop", "replay") and cell.device != "none":
            return "a replay receives nothing"
        return None

    def arguments(self, cell: Cell) -> list[str]:
        """Return the command. If a disturbance needs time, the command runs until it is stopped."""
        until_ended = ["flap", "deleted", *RECEIVER, *SIGNALS]
        seconds = f"{60 if cell.disturbance in until_ended else self.seconds}s"
        here, there = ("a0", "b0") if cell.port in KERNEL else ("v", "v")
        limit, depth = LIMITS.get(cell.source, (LIMIT, DEPTH))
        device = {
            "police": f",police={limit}pps,burst={depth}",
            "buffer": f",drain={limit}pps,buffer={depth}",
        }
        fault = device.get(cell.device, "")
        if cell.port == "pcap":
            to = ["-p" if cell.source == "streams" else "-i", "pcap:/dev/full"]
        elif cell.source == "streams":
            sink = cell.port if cell.port == "loop" or cell.disturbance in RECEIVER else "af_packet"
            to = ["-p", f"{cell.port}:{here}", "--to", f"{sink}:{there}{fault}", "--latency"]
        elif cell.source == "replay":
            to = ["-i", f"{cell.port}:{here}"]
        elif cell.source.startswith("many "):
            ports = [f"{cell.port}:{here}", f"{cell.port}:{there}{fault}"]
            profile = self.folder / "many.toml"
            profile.write_text(many(cell.source.split()[1], ports, seconds, self.capture))
            return ["run", str(profile)]
        else:
            to = ["--port", f"{cell.port}:{here}", "--port2", f"{cell.port}:{there}{fault}"]
        match cell.source:
            case "streams":
                return [
                    "send",
                    *to,
                    "--packet",
                    PACKET,
                    "-s",
                    str(SIZE),
                    "-r",
                    f"{PPS}pps",
                    "-d",
                    seconds,
                ]
            case "replay":
                return [
                    "replay",
                    str(self.capture),
                    *to,
                    "--pps",
                    str(PPS),
                    "-l",
                    "0",
                    "--duration",
                    seconds,
                ]
            case _:
                hosts = ["--clients", "10.9.0.0/24", "--servers", "10.8.0.1"]
                load = [str(word) for word in LOADS[cell.source]]
                return ["flows", *load, *to, *hosts, "-d", seconds]

    def try_(self, cell: Cell) -> Outcome | None:
        kernel = cell.port in KERNEL
        if kernel:
            if self.network.name is None:
                self.network.fresh()
            self.network.put(cell.device, cell.source)
        report = self.folder / "report.json"
        report.unlink(missing_ok=True)
        command = [SQUALL, *self.arguments(cell), "-q", "--json", str(report)]
        wrapped = self.network.command(*command) if kernel else command
        self.before = self.forwarded() if kernel else 0
        with contextlib.ExitStack() as disturbed:
            if cell.disturbance == "burner":
                disturbed.enter_context(burners())
            if cell.disturbance == "mtu":
                self.network.shell("ip link set a1 mtu 600")
            process = subprocess.Popen(
                wrapped, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            try:
                self.disturb(cell, process, disturbed)
                _, output = process.communicate(timeout=60)
            finally:
                if process.poll() is None:
                    process.send_signal(signal.SIGCONT)
                    process.kill()
                    process.communicate()
        if (
            cell.disturbance == "full-disk"
            and process.returncode == 3
            and "no space left" in output
        ):
            # The error occurred before the start, so there is no report.
            return None
        if cell.disturbance in STALLS and process.returncode == 3 and "did not start" in output:
            # The process had so little CPU time that its port could not be opened, as the message
            # shows.
            return None
        try:
            read = json.loads(report.read_text())
        except (OSError, ValueError) as error:
            raise Failed(
                f"no report: {error}; exit status {process.returncode}: {output}"
            ) from error
        dropped = self.dropped(cell, read)
        if cell.disturbance in ["flap", "deleted", "mtu", *RECEIVER]:
            self.network.close()
        return Outcome(read, process.returncode, output, dropped)

    def disturb(
        self, cell: Cell, process: subprocess.Popen[str], disturbed: contextlib.ExitStack
    ) -> None:
        kind = cell.disturbance
        if kind.startswith("stop-"):
            pause_s = int(kind[5:-2]) / 1000
            disturbed.enter_context(stopped_now_and_then(process, pause_s, self.chance))
        elif kind == "quota":
            (quota_group() / "cgroup.procs").write_text(str(process.pid))
        elif kind in ["flap", "deleted", *RECEIVER, *SIGNALS]:
            self.wait_for_traffic(cell, process)
            if kind in RECEIVER:
                begin, end = RECEIVER[kind]
                self.network.shell(begin)
                time.sleep(0.3)
                self.network.shell(end)
                time.sleep(0.3)
                process.send_signal(signal.SIGINT)
            elif kind == "flap":
                self.network.shell("ip link set a1 down")
                time.sleep(0.3)
                self.network.shell("ip link set a1 up")
                time.sleep(0.5)
                # A run that waited for the link continues; others have ended.
                process.send_signal(signal.SIGINT)
            elif kind == "deleted":
                self.network.shell("ip link del a0")
            else:
                process.send_signal(getattr(signal, kind))

    def wait_for_traffic(self, cell: Cell, process: subprocess.Popen[str]) -> None:
        """Wait until frames have left; on a loop, which cannot be observed from outside, until its
        workers have started.
        """
        until = time.monotonic() + 30
        while process.poll() is None and time.monotonic() < until:
            if cell.port in KERNEL:
                if self.forwarded() > self.before + 100:
                    return
            elif len(list(pathlib.Path(f"/proc/{process.pid}/task").iterdir())) > 1:
                time.sleep(0.3)
                return
            time.sleep(0.01)
        _, output = (
            process.communicate(timeout=10) if process.poll() is not None else ("", "it runs")
        )
        raise Failed(f"no traffic: exit status {process.returncode}: {output}")

    def forwarded(self) -> int:
        """Return the number of frames that have arrived at the bridge."""
        return int(self.network.shell("cat /sys/class/net/a1/statistics/rx_packets").stdout)

    def dropped(self, cell: Cell, report: dict) -> int | None:
        """Return the number of frames that the device has dropped; `None` without a device."""
        if cell.device in ["nft", "tbf"]:
            return self.network.dropped(cell.device)
        if cell.device == "none":
            return None
        name = {"police": "the policer dropped ", "buffer": "the buffer dropped "}[cell.device]
        counts = [note.split(name)[1].split() for note in report["notes"] if name in note]
        if not counts:
            raise Failed(f"no note of the device: {report['notes']}")
        return sum(int(words[0]) for words in counts)

    def receiver_stopped(self) -> list[str]:
        """Stop a separate receiver until its ring is full, then let it continue. The sender is not
        the cause, and does not report it."""
        if self.network.name is None:
            self.network.fresh()
        self.network.put("none", "")
        report = self.folder / "received.json"
        report.unlink(missing_ok=True)
        receive = [
            SQUALL,
            "recv",
            "-p",
            "af_packet:b0,blocks=2,block=128",
            "-d",
            "60s",
            "-q",
            "--json",
            report,
        ]
        listener = subprocess.Popen(
            self.network.command(*receive), stderr=subprocess.PIPE, text=True
        )
        try:
            until = time.monotonic() + 30
            while (
                not self.network.shell("cat /proc/net/packet").stdout.count("\n") > 1
                and time.monotonic() < until
            ):
                time.sleep(0.02)
            # The receiver also has to bind its socket, to make a ring for it, and to start.
            time.sleep(1)
            listener.send_signal(signal.SIGSTOP)
            send = [
                "send",
                "-p",
                "af_packet:a0",
                "--packet",
                PACKET,
                "-s",
                SIZE,
                "-r",
                "2kpps",
                "-n",
                2000,
                "-l",
                "-q",
            ]
            run(*self.network.command(SQUALL, *send), ok=(0, 4))
            listener.send_signal(signal.SIGCONT)
            time.sleep(0.3)
            listener.send_signal(signal.SIGINT)
            _, output = listener.communicate(timeout=30)
        finally:
            listener.kill()
            listener.wait()
        codes = {reason["code"] for reason in json.loads(report.read_text())["verdict"]["reasons"]}
        return (
            [] if "receiver-bound" in codes else [f"the receiver names {sorted(codes)}: {output}"]
        )


def wrong(cell: Cell, outcome: Outcome) -> list[str]:
    """Return the contradictions between the outcome and the guarantees of a verdict."""
    found = []
    verdict, codes = outcome.report["verdict"], outcome.codes

    def claim(good: bool, what: str) -> None:
        if not good:
            found.append(what)

    if cell.disturbance in SIGNALS:
        # A run that was disturbed may also be not valid for other reasons.
        claim(outcome.verdict != "valid", f"valid after {cell.disturbance}")
        claim(
            verdict["ended_by"] == cell.disturbance.lower(),
            f"ended by {verdict['ended_by']} after {cell.disturbance}",
        )
        claim(outcome.report["cut_short"], f"not cut short by {cell.disturbance}")
        claim(
            outcome.status == SIGNALS[cell.disturbance],
            f"exit status {outcome.status} after {cell.disturbance}",
        )
        return found
    # A lost port is an error of the environment.
    expected_status = {"valid": 0, "not-valid": 3 if "port-lost" in codes else 4}.get(
        outcome.verdict
    )
    if verdict["ended_by"] == "sigint" and "port-lost" not in codes:
        expected_status = 130
    claim(
        verdict["valid"] == (outcome.verdict == "valid"),
        f"valid is {verdict['valid']}, status {outcome.verdict}",
    )
    claim(outcome.status == expected_status, f"{outcome.verdict}, exit status {outcome.status}")
    claim(outcome.verdict != "not-valid" or bool(codes), "not valid, and no reason")
    claim(outcome.verdict != "valid" or not codes, f"valid, with reasons {sorted(codes)}")
    if cell.disturbance in CAUSES:
        claim(outcome.verdict == "not-valid", f"{outcome.verdict} though {cell.disturbance}")
        claim(
            bool(codes & CAUSES[cell.disturbance]), f"{cell.disturbance} is called {sorted(codes)}"
        )
    elif outcome.verdict == "valid":
        claim(outcome.dropped == 0, f"VALID, and the device dropped {outcome.dropped}")
        claim(outcome.lost == 0, f"VALID, and {outcome.lost} were lost")
        for source in outcome.report["sources"]:
            name, asked, sent = source["name"], source["asked"], source["sent"]
            claim(sent >= asked * 0.999 - 1, f"VALID, and {name} sent {sent} of {asked}")
            failed = {why: n for why, n in source["failed"].items() if why != "stopped"}
            claim(not failed, f"VALID, and of {name} failed {failed}")
        for port in outcome.report["ports"]:
            pacing = port["tx"]["pacing"]
            surplus = pacing["left"] - pacing["due"] if pacing else 0
            claim(
                not pacing or surplus <= pacing["allowed"],
                f"VALID, and port {port['name']} sent {surplus} {pacing and pacing['unit']} too many",
            )
    else:
        claim(bool(codes & GENERATOR), f"{cell.disturbance} is called {sorted(codes)}")
        claim("port-bound" not in codes, "the port is blamed for the machine")
    return found


# --- all of them
# ---------------------------------------------------------------------------------------------------


def go_through(matrix: Matrix, chosen: list[Cell], until: float) -> bool:
    counts: collections.Counter[str] = collections.Counter()
    causes: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    good, longest = True, 0.0
    for cell in chosen:
        if time.monotonic() + longest > until:
            break
        lack = matrix.lacks(cell)
        if lack:
            if lack not in matrix.missing:
                print(f"SKIPPED: {lack}", flush=True)
            matrix.missing.add(lack)
            continue
        begun = time.monotonic()
        try:
            if cell.disturbance == "receiver-stopped":
                problems = matrix.receiver_stopped()
                counts["tried"] += 1
            else:
                outcome = matrix.try_(cell)
                counts["tried"] += 1
                problems = wrong(cell, outcome) if outcome else []
                counts[outcome.verdict if outcome else "refused"] += 1
                if outcome:
                    counts["with loss at the device"] += bool(outcome.dropped)
                    causes[cell.disturbance].update(outcome.codes or ["none"])
                if problems:
                    reasons = [reason["text"] for reason in outcome.report["verdict"]["reasons"]]
                    problems.append(
                        f"dropped {outcome.dropped}, lost {outcome.lost}; it says {reasons} {outcome.output.strip()}"
                    )
        except (Failed, subprocess.TimeoutExpired, KeyError) as error:
            problems = [f"{type(error).__name__} {error}"]
            matrix.network.close()
        longest = max(longest, time.monotonic() - begun)
        for problem in problems:
            print(f"FAILED  {cell}: {problem}", flush=True)
        good &= not problems
    print(", ".join(f"{count} {what}" for what, count in counts.items()))
    for disturbance, names in sorted(causes.items()):
        print(
            f"  {disturbance:16} {', '.join(f'{name} {count}' for name, count in names.most_common())}"
        )
    return good


def quiet_runs(matrix: Matrix, runs: int) -> bool:
    """Check that at half of a port's maximum rate on a quiet machine at least 95 of 100 runs are
    VALID, with one stream and with 40: a verdict is only useful if that is so. Runs with more than
    15 % steal time are listed separately, with their reasons, and do not count.
    """
    if os.getloadavg()[0] > 0.3 * len(os.sched_getaffinity(0)):
        print(f"SKIPPED: runs on a quiet machine: its load is {os.getloadavg()[0]:.1f}")
        return True
    good = True
    for port in ["loop", *KERNEL]:
        cell = Cell(port, "streams", "none", "quiet")
        if matrix.lacks(cell):
            continue
        base = matrix.arguments(cell)
        base = base[: base.index("-r")]
        if port in KERNEL:
            matrix.network.fresh()
        prefix = matrix.network.command() if port in KERNEL else []
        profile = matrix.folder / "many.toml"
        sink = "loop" if port == "loop" else "af_packet"
        ports = [f"{port}:a0", f"{sink}:b0"] if port in KERNEL else ["loop:v", "loop:v"]

        def one(pps, seconds):
            rate = "max" if pps is None else f"{pps}pps"
            return [*base, "-r", rate, "-d", f"{seconds}s"]

        def forty(pps, seconds):
            each = (pps or FASTEST) // MANY
            profile.write_text(many("streams", ports, f"{seconds}s", matrix.capture, each))
            return ["run", str(profile)]

        def report(command, ok):
            return json.loads(run(*prefix, SQUALL, *command, "-q", "--json", "-", ok=ok).stdout)

        for sources, command in [(1, one), (MANY, forty)]:
            fastest = report(command(None, 1), (0, 4))
            sent = sum(stream["tx_packets"] for stream in fastest["streams"])
            half = int(sent / fastest["duration_s"] / 2)
            done = [report(command(half, matrix.seconds), (0, 4)) for _ in range(runs)]
            good &= enough_valid(f"{port}, {sources} streams", half, done)
    return good


def enough_valid(what: str, pps: int, reports: list[dict]) -> bool:
    valid = [report["verdict"]["valid"] for report in reports]
    steal = [report["contention"]["steal_s"] / report["duration_s"] for report in reports]
    quiet = [v for v, part in zip(valid, steal, strict=True) if part <= 0.15]
    reasons = collections.Counter(
        r["text"] for report in reports for r in report["verdict"]["reasons"]
    )
    enough = sum(quiet) >= 0.95 * len(quiet)
    print(
        f"{'ok     ' if enough else 'FAILED '} {what} at {pps} pps, half of what it can do: "
        f"{sum(valid)} of {len(reports)} VALID, {sum(quiet)} of {len(quiet)} with at most 15 % steal",
        flush=True,
    )
    for text, count in reasons.most_common(3):
        print(f"  {count} times: {text}")
    return enough


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=17)
    parser.add_argument("--seconds", type=float, default=22, help="for a sample (default 22)")
    parser.add_argument("--full", action="store_true", help="all cells")
    parser.add_argument("--only", default="", help="cells whose name has this in it")
    parser.add_argument("--burner", action="store_true", help="keep every CPU busy meanwhile")
    parser.add_argument("--quiet-runs", type=int, default=100)
    parser.add_argument("--no-cells", action="store_true", help="the quiet runs alone")
    given = parser.parse_args()
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    chance = random.Random(given.seed)
    until = time.monotonic() + (float("inf") if given.full or given.only else given.seconds)
    chosen = cells() if given.full or given.only else sample(chance)
    chosen = [cell for cell in chosen if given.only in str(cell)]
    with (
        tempfile.TemporaryDirectory(prefix="squall-verdict-") as folder,
        contextlib.ExitStack() as stack,
    ):
        matrix = Matrix(pathlib.Path(folder), 2 if given.full or given.no_cells else 0.6, chance)
        stack.callback(matrix.network.close)
        if given.burner:
            stack.enter_context(burners())
        try:
            good = given.no_cells or go_through(matrix, chosen, until)
            if given.no_cells or (given.full and not given.burner and not given.only):
                good &= quiet_runs(matrix, given.quiet_runs)
        finally:
            for base in ["/sys/fs/cgroup", "/sys/fs/cgroup/cpu"]:
                with contextlib.suppress(OSError):
                    pathlib.Path(base, f"squall-verdict-{os.getpid()}").rmdir()
    print(f"seed {given.seed}: {'ok' if good else 'FAILED'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

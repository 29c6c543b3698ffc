"""A private veth pair for measurements, and the processes that send over it.

Both ends are in network namespaces that `Lab` creates and removes at its end, so nothing leaves the
machine.
"""

import itertools
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass

PORT_A, PORT_B = "vA", "vB"
MAC_A, MAC_B = "02:00:00:00:00:0a", "02:00:00:00:00:0b"
IP_A, IP_B = "10.9.0.1", "10.9.0.2"
# Not assigned to any interface: the receiving stack drops the frame as early as possible, at the
# same cost for every tool.
MAC_SINK, IP_SINK = "02:00:00:00:00:ff", "10.9.0.99"

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Counters:
    """The counters of the receiving interface at the time `at_s`."""

    at_s: float
    packets: int
    octets: int
    dropped: int


class Lab:
    """vA in one namespace, vB in another. The sender is pinned to the last CPU, a receiver to the
    first.
    """

    def __init__(self) -> None:
        self.a, self.b = (f"squall-bench-{os.getpid()}-{end}" for end in "ab")
        self.rx_cpu, self.tx_cpu = min(os.sched_getaffinity(0)), max(os.sched_getaffinity(0))

    def __enter__(self) -> "Lab":
        if os.geteuid() != 0:
            raise SystemExit(
                "peers: making network namespaces needs root here\n  try: sudo make bench"
            )
        # In memory, so reading a capture does not wait for a disk.
        shm = "/dev/shm" if os.path.isdir("/dev/shm") else None
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="squall-bench-", dir=shm))
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _make(self) -> None:
        run("ip", "netns", "add", self.a)
        run("ip", "netns", "add", self.b)
        run(
            "ip",
            "link",
            "add",
            PORT_A,
            "netns",
            self.a,
            "type",
            "veth",
            "peer",
            "name",
            PORT_B,
            "netns",
            self.b,
        )
        ends = ((self.a, PORT_A, MAC_A, IP_A), (self.b, PORT_B, MAC_B, IP_B))
        for namespace, port, mac, ip in ends:
            run(
                "ip",
                "netns",
                "exec",
                namespace,
                "sysctl",
                "-qw",
                "net.ipv6.conf.all.disable_ipv6=1",
            )
            run("ip", "-n", namespace, "link", "set", port, "address", mac)
            run("ip", "-n", namespace, "addr", "add", f"{ip}/24", "dev", port)
            run("ip", "-n", namespace, "link", "set", "lo", "up")
            run("ip", "-n", namespace, "link", "set", port, "up")
        for ip, mac in ((IP_B, MAC_B), (IP_SINK, MAC_SINK)):
            run(
                "ip",
                "-n",
                self.a,
                "neigh",
                "replace",
                ip,
                "lladdr",
                mac,
                "dev",
                PORT_A,
                "nud",
                "permanent",
            )
        # Keeps a process in the namespace: reading /proc/PID/net/dev is many times faster than
        # running `ip -s link`.
        self._resident = subprocess.Popen(["ip", "netns", "exec", self.b, "sleep", "infinity"])
        wait_for(lambda: PORT_B in self._dev(), "the receiving namespace")

    def __exit__(self, *_: object) -> None:
        if resident := getattr(self, "_resident", None):
            resident.kill()
            resident.wait()
        for namespace in (self.a, self.b):
            subprocess.run(
                ["ip", "netns", "del", namespace], stderr=subprocess.DEVNULL, check=False
            )
        shutil.rmtree(self.folder, ignore_errors=True)

    def received(self) -> Counters:
        fields = self._dev()[PORT_B]
        return Counters(time.monotonic(), packets=fields[1], octets=fields[0], dropped=fields[3])

    def _dev(self) -> dict[str, list[int]]:
        lines = pathlib.Path(f"/proc/{self._resident.pid}/net/dev").read_text().splitlines()[2:]
        named = (line.partition(":") for line in lines)
        return {name.strip(): [int(field) for field in fields.split()] for name, _, fields in named}

    def sender(self, *command: str, env: dict[str, str] | None = None) -> "Process":
        return Process(
            ["ip", "netns", "exec", self.a, "taskset", "-c", str(self.tx_cpu), *command],
            self.folder,
            env,
        )

    def receiver(self, *command: str) -> "Process":
        return Process(
            ["ip", "netns", "exec", self.b, "taskset", "-c", str(self.rx_cpu), *command],
            self.folder,
        )


class Process:
    """A running tool with all its children, in a session that is stopped as a whole."""

    _number = itertools.count()

    def __init__(
        self, command: list[str], folder: pathlib.Path, env: dict[str, str] | None = None
    ) -> None:
        self.log = folder / f"{next(Process._number)}.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=env,
            )

    def running(self) -> bool:
        return self._process.poll() is None

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def cpu_s(self) -> float:
        """Return the CPU seconds of the session so far, user and system."""
        ticks = 0
        for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:  # it has just ended
                continue
            if int(fields[3]) == self._process.pid:
                ticks += int(fields[11]) + int(fields[12])
        return ticks / TICKS_PER_S

    def stop(self) -> None:
        for number, timeout_s in ((signal.SIGINT, 3), (signal.SIGTERM, 1), (signal.SIGKILL, 3)):
            try:
                os.killpg(self._process.pid, number)
            except ProcessLookupError:
                break
            try:
                self._process.wait(timeout_s)
                break
            except subprocess.TimeoutExpired:
                continue
        self._process.poll()


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"peers: {' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def wait_for(condition, what: str, at_most_s: float = 10) -> None:
    end = time.monotonic() + at_most_s
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{what} did not come within {at_most_s:.0f} s")
        time.sleep(0.02)

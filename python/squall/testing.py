"""Clusters on one machine, for tests: nodes in network namespaces, each with its own Ray, as on
separate machines.

::

    with squall.testing.local_cluster(3) as cluster:
        inventory = cluster.ports(A="node1/af_packet:eth1", B="node2/af_packet:eth1")
        cluster.run("squall", "run", "load.toml", "--nodes", str(inventory))
        cluster.cut("node2")
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import shlex
import shutil
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ._binary import find_binary
from ._errors import PortError
from .cluster._daemon import KEPT

__all__ = ["LocalCluster", "Machine", "local_cluster"]

#: A shared address space prefix (RFC 6598), which this machine is unlikely to use.
CONTROL = "100.90.0"
#: The script that takes the place of ssh.
ENTER = """
import json, socket, sys
with socket.socket(socket.AF_UNIX) as door:
    door.connect({socket!r})
    door.sendall(json.dumps([sys.stdin.read(), *sys.argv[1:]]).encode() + b"\\n")
    status, out, err = json.load(door.makefile())
sys.stdout.write(out)
sys.stderr.write(err)
sys.exit(status)
"""
#: The init process of a simulated machine, which reaps orphaned processes.
REAPER = """
import os, time
while True:
    try:
        os.wait()
    except ChildProcessError:
        time.sleep(0.1)
"""


@dataclasses.dataclass(frozen=True)
class Machine:
    """Namespaces that simulate a machine: network, PIDs, mounts and host name.

    Attributes
    ----------
    name : str
    address : str
        Address on the control network.
    pid : int
        The init process of its namespaces; commands join these.
    """

    name: str
    address: str
    pid: int
    process: subprocess.Popen[bytes]

    @property
    def mac(self) -> str:
        """MAC address of its port ``eth1``."""
        return f"02:00:00:00:00:{int(self.address.rpartition('.')[2]):02x}"

    def command(self, *argv: str) -> list[str]:
        """Return the command that runs `argv` on this machine."""
        return ["nsenter", "-t", str(self.pid), "-n", "-m", "-u", "-p", "--", *argv]

    def run(self, *argv: str, timeout: float = 60) -> str:
        """Run a command on this machine; return its standard output.

        Raises
        ------
        PortError
            The command failed.
        """
        return _run(self.command(*argv), timeout)

    def outside(self, *argv: str) -> str:
        """Like `run`, but only in the network namespace: process IDs are those of the caller."""
        return _run(["nsenter", "-t", str(self.pid), "-n", "--", *argv], 60)

    def counter(self, interface: str, name: str = "rx_packets") -> int:
        """Read a counter of one of the machine's interfaces."""
        links = json.loads(self.run("ip", "-j", "-s", "link", "show", interface))
        return int(links[0]["stats64"][name[:2]][name[3:]])


@dataclasses.dataclass
class LocalCluster:
    """The cluster yielded by `local_cluster`.

    Attributes
    ----------
    nodes : mapping of str to Machine
        ``node1`` ... The controller and Ray's head run on the first one.
    switch : Machine
        Two bridges between them: ``control``, and ``test`` for their ports ``eth1``. The switch
        side of node1's port is ``test-1``, that of its control link ``control-1``.
    folder : pathlib.Path
    inventory : pathlib.Path
        Inventory of the nodes, without ports.
    """

    nodes: Mapping[str, Machine]
    switch: Machine
    folder: pathlib.Path
    inventory: pathlib.Path
    environment: Mapping[str, str]

    def ports(self, **places: str | Sequence[str]) -> pathlib.Path:
        """Write an inventory with these ports: ``A="node1/af_packet:eth1"``."""
        text = f"{self.inventory.read_text()}\n[ports]\n"
        text += "".join(f"{name} = {json.dumps(place)}\n" for name, place in places.items())
        file = self.folder / f"ports-{'-'.join(places)}-{time.monotonic_ns()}.toml"
        file.write_text(text)
        return file

    def popen(self, *argv: str, **options: Any) -> subprocess.Popen[str]:
        """Start a command on the controller's machine."""
        command = self.nodes["node1"].command("env", *self._set(), *argv)
        return subprocess.Popen(command, text=True, **options)

    def run(self, *argv: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        """Run a command on the controller's machine; any exit status is accepted."""
        command = self.nodes["node1"].command("env", *self._set(), *argv)
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout)

    def python(self, *arguments: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        """Run ``python -m squall.cluster`` on the controller's machine."""
        return self.run(sys.executable, "-m", "squall.cluster", *arguments, timeout=timeout)

    def cut(self, node: str) -> None:
        """Take down a node's control link."""
        self._link(node, "down")

    def mend(self, node: str) -> None:
        """Bring a node's control link up again."""
        self._link(node, "up")

    def _link(self, node: str, state: str) -> None:
        number = list(self.nodes).index(node) + 1
        self.switch.run("ip", "link", "set", f"control-{number}", state)

    def _set(self) -> list[str]:
        return [f"{name}={value}" for name, value in self.environment.items()]


@contextlib.contextmanager
def local_cluster(
    nodes: int, *, dashboard: bool = False, ray: bool = True, lease: str = "2 s", up: bool = True
) -> Iterator[LocalCluster]:
    """Create a cluster of namespaces, with real Ray and real daemons. All of it ends with the
    block, or with this process, even if it is killed.

    Parameters
    ----------
    nodes : int
    dashboard : bool
        Start Ray's dashboard, on loopback of node1.
    ray : bool
        Start Ray on the machines.
    lease : str
    up : bool
        Also start the nodes (`squall cluster up`). Otherwise each run starts its own nodes.

    Raises
    ------
    PortError
        Root, `ip`, `nsenter` or `unshare` is required and missing; the message names it.
    """
    for command in ("ip", "bridge", "nsenter", "unshare", "mount"):
        if shutil.which(command) is None:
            raise PortError(f"local_cluster: cannot find {command}\n  try apt-get install iproute2")
    if os.geteuid() != 0:
        raise PortError("local_cluster: namespaces of several machines need root")
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sq-")))
        made = [
            stack.enter_context(_machine(name, address))
            for name, address in [
                ("switch", ""),
                *((f"node{i}", f"{CONTROL}.{i}") for i in range(1, nodes + 1)),
            ]
        ]
        switch, machines = made[0], {machine.name: machine for machine in made[1:]}
        _wire(switch, list(machines.values()))
        environment = {
            "XDG_STATE_HOME": str(folder / "state"),
            "SQUALL": os.path.abspath(find_binary()),
            "SQUALL_PYTHON": sys.executable,
        }
        stack.enter_context(_Door(folder / "door", machines, environment))
        inventory = _inventory(folder, list(machines.values()), dashboard, lease)
        cluster = LocalCluster(machines, switch, folder, inventory, environment)
        if ray:
            stack.callback(cluster.python, "down", str(inventory))
            only = [] if up else ["--only-ray"]
            done = cluster.python("up", str(inventory), *only, timeout=300)
            if done.returncode:
                raise PortError(f"local_cluster: {done.stderr.strip() or done.stdout.strip()}")
        yield cluster


@contextlib.contextmanager
def _machine(name: str, address: str) -> Iterator[Machine]:
    """Create namespaces until the block ends: the kernel ends all their processes with the init
    process."""
    # Ray keeps sockets and logs in /tmp/ray, where it would also find those of Ray processes on the
    # host.
    script = (
        "mkdir -p /tmp/ray && mount -t tmpfs ray /tmp/ray && mount --make-private /tmp/ray &&"
        f" hostname {name} && ip link set lo up && echo $(cut -d' ' -f1 /proc/self/stat) &&"
        f" exec {shlex.join([sys.executable, '-I', '-S', '-c', REAPER])}"
    )
    unshare = ["unshare", "--net", "--mount", "--uts", "--pid", "--fork"]
    unshare += ["--mount-proc", "--kill-child"]
    process = subprocess.Popen(
        [*KEPT, "--kill", *unshare, "sh", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdin is not None and process.stdout is not None
        if not process.stdout.readline().strip():
            raise PortError(f"local_cluster: no namespaces for {name}")
        yield Machine(name, address, _first(process.pid), process)
    finally:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.close()
        process.wait(20)
        process.stdout.close()


def _first(keeper: int) -> int:
    """Return the init process of the namespaces: the child of the keeper's child."""
    pid = keeper
    for _ in range(2):
        pid = int(pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
    return pid


def _wire(switch: Machine, machines: Sequence[Machine]) -> None:
    for bridge in ("control", "test"):
        switch.run("ip", "link", "add", bridge, "type", "bridge", "stp_state", "0")
        switch.run("ip", "link", "set", bridge, "up")
    for number, machine in enumerate(machines, 1):
        for bridge, interface in (("control", "control"), ("test", "eth1")):
            end = f"{bridge}-{number}"
            peer = ["peer", "name", interface, "netns", str(machine.pid)]
            switch.outside("ip", "link", "add", end, "type", "veth", *peer)
            switch.run("ip", "link", "set", end, "master", bridge, "up")
        machine.run("ip", "link", "set", "eth1", "address", machine.mac)
        # Static entry: the switch would flood a frame for a node that has not sent yet.
        switch.run("bridge", "fdb", "add", machine.mac, "dev", f"test-{number}", "master", "static")
        machine.run("sysctl", "-qw", "net.ipv6.conf.eth1.disable_ipv6=1")
        machine.run("ip", "addr", "add", f"{machine.address}/24", "dev", "control")
        for interface in ("control", "eth1"):
            machine.run("ip", "link", "set", interface, "up")


def _inventory(
    folder: pathlib.Path,
    machines: Sequence[Machine],
    dashboard: bool,
    lease: str,
) -> pathlib.Path:
    enter = folder / "enter"
    enter.write_text(f"#!{sys.executable} -IS\n{ENTER.format(socket=str(folder / 'door'))}")
    enter.chmod(0o755)
    text = (
        f'[cluster]\nname = "local"\nlease = "{lease}"\n\n'
        f'[cluster.start]\nhead = "{machines[0].address}"\npython = "{sys.executable}"\n'
        f'reach = "{enter} {{name}}"\ndashboard = {str(dashboard).lower()}\n\n'
    )
    for machine in machines:
        text += f'[node.{machine.name}]\naddress = "{machine.address}"\n\n'
    file = folder / "inventory.toml"
    file.write_text(text)
    return file


class _Door(socketserver.ThreadingUnixStreamServer):
    """Takes the place of sshd: runs commands from outside the namespaces, because processes inside
    cannot see those of other machines."""

    daemon_threads = True

    def __init__(
        self, path: pathlib.Path, machines: Mapping[str, Machine], environment: Mapping[str, str]
    ) -> None:
        super().__init__(str(path), _Request)
        self.machines, self.environment = machines, environment
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class _Request(socketserver.StreamRequestHandler):
    """A request: standard input of the command, the machine's name, and the command's arguments."""

    server: _Door

    def handle(self) -> None:
        text, name, *argv = json.loads(self.rfile.readline())
        words = [f"{key}={value}" for key, value in self.server.environment.items()]
        done = subprocess.run(
            self.server.machines[name].command("env", *words, *argv),
            input=text,
            capture_output=True,
            text=True,
            timeout=120,
        )
        self.wfile.write(json.dumps([done.returncode, done.stdout, done.stderr]).encode())


def _run(command: list[str], timeout: float) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    if done.returncode:
        raise PortError(f"{shlex.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout

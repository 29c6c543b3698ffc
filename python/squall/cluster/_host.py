"""Starts and stops Ray on one machine. It is stopped by process ID: ``ray stop`` would end every
Ray on the machine, including those of other users.

``squall cluster up`` runs ``python -m squall.cluster host up|down`` on each machine through
``reach`` (ssh). Parameters, among them Ray's token, are read from standard input, because arguments
are visible to all users of a machine.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import secrets
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Mapping
from typing import Any

from .._errors import Error
from ._inventory import Inventory

__all__ = ["Host", "down", "environment", "up"]

#: Maximum seconds until Ray serves, and until it has ended.
START_S, END_S = 90.0, 15.0
RUNNING = "Ray runtime started"


@dataclasses.dataclass(frozen=True)
class Host:
    """Settings for Ray on one machine.

    Attributes
    ----------
    cluster : str
    name : str
        Name of the node; ``head`` on the controller's machine.
    address : str
        Address of this machine on which all services of Ray listen.
    head : str or None
        ``HOST:PORT`` of the head; None: the head is on this machine.
    port : int
        TCP port of the head.
    node : bool
        Whether the inventory has a node on this machine.
    """

    cluster: str
    name: str
    address: str
    head: str | None
    port: int
    dashboard: bool
    object_store_mb: int
    worker_ports: tuple[int, int] | None
    environment: Mapping[str, str]

    def arguments(self) -> list[str]:
        """Return the arguments for ``ray``."""
        words = ["start", "--block", "--disable-usage-stats", "--include-log-monitor=false"]
        words += [f"--node-ip-address={self.address}"]
        if self.head is None:
            words += ["--head", f"--port={self.port}"]
            words += [f"--include-dashboard={str(self.dashboard).lower()}"]
            words += ["--dashboard-host=127.0.0.1"] if self.dashboard else []
        else:
            words += [f"--address={self.head}"]
        # Only node actors run here, and they request no CPU, so one prestarted worker is enough.
        words += ["--num-cpus=1", f"--object-store-memory={self.object_store_mb << 20}"]
        if self.worker_ports is not None:
            first, last = self.worker_ports
            words += [f"--min-worker-port={first}", f"--max-worker-port={last}"]
        return words


def up(host: Host) -> dict[str, Any]:
    """Start Ray on this machine, unless it is running.

    Raises
    ------
    Error
        Ray does not start; the message has the end of its log.
    """
    folder = _folder(host.cluster, host.name)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if (pid := _running(folder)) is not None:
        return {"pid": pid, "started": False}
    log = folder / "ray.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [_ray(), *host.arguments()],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "NO_COLOR": "1", **host.environment},
        )
    (folder / "ray.pid").write_text(f"{process.pid} {_started(process.pid)}")
    end = time.monotonic() + START_S
    while RUNNING not in log.read_text(errors="replace"):
        if process.poll() is not None or time.monotonic() > end:
            why = "ended" if process.poll() is not None else f"is not up after {START_S:.0f} s"
            words = log.read_text(errors="replace")[-2000:].strip()
            down(host.cluster, host.name)
            raise Error(f"{host.name}: Ray {why}\n  {words}")
        time.sleep(0.1)
    return {"pid": process.pid, "started": True}


def down(cluster: str, name: str) -> dict[str, Any]:
    """Stop the Ray that `up` started on this machine, with all its processes."""
    folder = _folder(cluster, name)
    pid = _running(folder)
    if pid is not None:
        family = _descendants(pid)
        os.kill(pid, signal.SIGTERM)
        _until_gone(family, END_S)
        # Kill processes that were started meanwhile, or that are slow to end.
        for member in family | _descendants(pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(member, signal.SIGKILL)
    (folder / "ray.pid").unlink(missing_ok=True)
    return {"pid": pid, "stopped": pid is not None}


def _folder(cluster: str, name: str) -> pathlib.Path:
    state = os.environ.get("XDG_STATE_HOME")
    base = pathlib.Path(state) if state else pathlib.Path.home() / ".local/state"
    return base / "squall/cluster" / cluster / name


def _ray() -> str:
    """Return the path of the command ``ray`` of this Python installation."""
    for folder in (pathlib.Path(sys.executable).parent, sysconfig.get_path("scripts")):
        command = pathlib.Path(folder) / "ray"
        if os.access(command, os.X_OK):
            return str(command)
    raise Error(
        f"{sys.executable} has no Ray\n  try {sys.executable} -m pip install 'squall[cluster]'"
    )


def _running(folder: pathlib.Path) -> int | None:
    """Return the process ID of the Ray that `up` started, if it still belongs to that process: IDs
    are reused."""
    try:
        pid, started = (folder / "ray.pid").read_text().split()
    except (OSError, ValueError):
        return None
    return int(pid) if _started(int(pid)) == started else None


def _started(pid: int) -> str | None:
    """Return the start time of a process, in clock ticks; None if there is no such process."""
    try:
        state, _, _, *rest = _stat(pid)
    except OSError:
        return None
    return None if state == "Z" else rest[16]


def _stat(pid: int) -> list[str]:
    """Return the fields of the process's stat file from the state on: proc(5), field 3."""
    text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    return text.rpartition(")")[2].split()


def _descendants(pid: int) -> set[int]:
    """Return a process, the processes of its session, and their children."""
    parents: dict[int, int] = {}
    found = {pid}
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            _, parent, _, session, *_ = _stat(int(entry.name))
            parents[int(entry.name)] = int(parent)
            if int(session) == pid:
                found.add(int(entry.name))
    grown = True
    while grown:
        more = {child for child, parent in parents.items() if parent in found} - found
        found |= more
        grown = bool(more)
    return found


def _until_gone(pids: set[int], seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end and any(_started(pid) is not None for pid in pids):
        time.sleep(0.05)


def environment(inventory: Inventory) -> dict[str, str]:
    """Return environment variables to set before Ray is imported or started: certificates, and the
    token of a cluster that `squall cluster up` starts. For an existing cluster, the user sets the
    token.
    """
    found = {"RAY_USAGE_STATS_ENABLED": "0"}
    if inventory.tls is not None:
        found.update(inventory.tls.environment())
    if inventory.start is not None:
        found.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=_token(inventory.name))
    return found


def _token(cluster: str) -> str:
    """Return the cluster's token, from a private file of this user on the controller's machine."""
    folder = _folder(cluster, "head")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = folder / "token"
    with contextlib.suppress(FileExistsError):
        with os.fdopen(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as new:
            new.write(secrets.token_hex(32))
    return file.read_text()


def main(action: str) -> int:
    """Run `squall cluster up` or `down` on this machine, and print one line of JSON."""
    table = json.load(sys.stdin)
    try:
        if action == "up":
            answer = up(Host(**table))
        else:
            answer = down(table["cluster"], table["name"])
    except Error as error:
        answer = {"error": str(error)}
    print(json.dumps(answer), flush=True)
    return 3 if "error" in answer else 0

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
import errno
import os
import pathlib
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Mapping
from typing import Any

from .._errors import Error
from ._inventory import Inventory

__all__ = ["Host", "down", "environment", "reason", "remove_token", "up"]

#: Maximum seconds until Ray serves, until it has ended, and until the head's port answers.
START_S, END_S, CONNECT_S = 90.0, 15.0, 5.0
RUNNING = "Ray runtime started"
#: Where Ray keeps sockets and logs, unless RAY_TMPDIR names another place.
SESSIONS = "/tmp/ray"
#: Folder of a session in the command lines of Ray's processes.
SESSION = re.compile(r"--session[-_]dir=([^\0]+)")
#: Prefixes of lines of Ray's logs: time, level and place.
LOGGED = re.compile(r"^\[?\d{4}-\d\d-\d\d [\d:,]+\s*(?:\w+ [\d ]+\]|\w+)\s+\S+:\d+(?: --|:)\s+")


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
        It does not start; the message has the reason, and where its log is.
    """
    folder = _folder(host.cluster, host.name)
    if (pid := _running(folder)) is not None:
        if any(_is(member, "raylet") for member in _descendants(pid)):
            return {"pid": pid, "started": False}
        # It has lost its main process, and ends within a second or not at all.
        down(host.cluster, host.name)
    _check_addresses(host)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
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
            late = process.poll() is None
            why = f"it is not up after {START_S:.0f} s; " if late else ""
            words = log.read_bytes()
            down(host.cluster, host.name)
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            log.write_bytes(words)
            raise Error(
                f"cannot start Ray on {host.address}: {why}{reason(words.decode(errors='replace'))}"
                f"\n  try its log: {log}"
            )
        time.sleep(0.1)
    return {"pid": process.pid, "started": True}


def down(cluster: str, name: str) -> dict[str, Any]:
    """Stop the Ray that `up` started here, with all its processes, and remove its files: sessions
    with their logs and sockets, and its own log."""
    folder = _folder(cluster, name)
    pid = _running(folder)
    sessions = _sessions(folder)
    if pid is not None:
        family = _descendants(pid)
        sessions |= {session for member in family for session in _session_of(member)}
        os.kill(pid, signal.SIGTERM)
        _until_gone(family, END_S)
        # Kill processes that were started meanwhile, or that are slow to end.
        for member in family | _descendants(pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(member, signal.SIGKILL)
    for session in sessions:
        _remove_session(session)
    for file in ("ray.pid", "ray.log"):
        (folder / file).unlink(missing_ok=True)
    _remove_empty(folder, folder.parent)
    return {"pid": pid, "stopped": pid is not None}


def remove_token(cluster: str) -> None:
    """Remove the token of a cluster that is down on all machines. A machine that could not be
    reached needs it to join again."""
    folder = _folder(cluster, "head")
    (folder / "token").unlink(missing_ok=True)
    _remove_empty(folder, folder.parent)


def reason(text: str) -> str:
    """The reason for a failure, from the output of Ray or Python: one line, without a trace."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"(Error|Exception)\b.*:|\berror:", line)]
    # The last error of a trace has the reason. Without one, the last line has.
    found = (errors or lines or ["it printed nothing"])[-1]
    return LOGGED.sub("", found)[:500]


def _check_addresses(host: Host) -> None:
    """Check what Ray would report after a minute, in a trace.

    Raises
    ------
    Error
        The address is not of this machine, the head's port is taken, or the head does not answer.
    """
    family = socket.AF_INET6 if ":" in host.address else socket.AF_INET
    port = host.port if host.head is None else 0
    with socket.socket(family, socket.SOCK_STREAM) as trial:
        # As Ray does: connections of an earlier head that are still closing do not count.
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((host.address, port))
        except OSError as error:
            hint = "correct the address in the inventory"
            if error.errno == errno.EADDRINUSE:
                hint = "another port below [cluster.start], or squall cluster down"
            where = f"{host.address}:{port}" if port else host.address
            raise Error(f"cannot start Ray on {where}: {error.strerror}\n  try {hint}") from None
    if host.head is not None:
        address, _, head_port = host.head.rpartition(":")
        try:
            socket.create_connection((address, int(head_port)), CONNECT_S).close()
        except OSError as error:
            raise Error(
                f"cannot start Ray on {host.address}: it does not reach the head at {host.head}:"
                f" {error}\n  try a head address that the nodes reach, and open its port"
            ) from None


def _session_of(pid: int) -> set[pathlib.Path]:
    """Folders of sessions in the command line of a process."""
    with contextlib.suppress(OSError):
        words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
        return {pathlib.Path(folder) for folder in SESSION.findall(words)}
    return set()


def _sessions(folder: pathlib.Path) -> set[pathlib.Path]:
    """Folders of the sessions that `up` has begun as a head here: their names end in its process
    number. Also if that process has ended."""
    try:
        pid, _ = (folder / "ray.pid").read_text().split()
    except (OSError, ValueError):
        return set()
    return set(pathlib.Path(os.environ.get("RAY_TMPDIR") or SESSIONS).glob(f"session_*_{pid}"))


def _remove_session(session: pathlib.Path) -> None:
    shutil.rmtree(session, ignore_errors=True)
    latest = session.parent / "session_latest"
    with contextlib.suppress(OSError):
        if pathlib.Path(os.readlink(latest)) == session:
            latest.unlink()
    if not any(session.parent.glob("session_*")):
        # The address of the head, for processes without one; no other Ray is here.
        (session.parent / "ray_current_cluster").unlink(missing_ok=True)
        _remove_empty(session.parent)


def _remove_empty(*folders: pathlib.Path) -> None:
    # It is not empty if a token, or another machine of the cluster, is left.
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


def _is(pid: int, name: str) -> bool:
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == name
    return False


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
        f"{sys.executable} has no Ray\n"
        f"  try {sys.executable} -m pip install '.[cluster]' in Squall's source folder"
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

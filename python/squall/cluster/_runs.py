"""``squall run PROFILE --nodes INVENTORY``: a run on nodes, up to its report."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from .._binary import find_binary
from .._errors import Error
from .._report import Report
from ._control import Control, Member, NodeLost, Peer, Settings
from ._host import environment
from ._inventory import Inventory
from ._live import Live, Steps
from ._profiles import Job, job

__all__ = ["command", "merged", "over_nodes", "perform", "run", "upload"]

#: Octets per piece of an uploaded file, and maximum seconds for each piece.
PIECE, UPLOAD_S = 4 << 20, 30.0


def command(args: argparse.Namespace, inventory: Inventory) -> int:
    """Run the command. The exit status is that of `squall report` for the reports of all nodes."""
    options = json.loads(args.options)
    with _folder(args.keep) as folder:
        control = over_nodes(
            args.profile,
            inventory,
            options,
            args.on_loss,
            folder,
            Live(args.live),
            args.for_daemon,
            Steps(args.live == "text", sys.stderr),
        )
        _tell(control)
        done = merged(control, folder, args.report)
    if control.interrupted is not None:
        return 128 + control.interrupted
    return done.returncode


def run(
    profile: str | os.PathLike[str],
    nodes: Inventory | str | os.PathLike[str],
    *,
    on_loss: str = "end",
    keep: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Report:
    """Run a profile on the nodes of an inventory. Return the report of the whole run.

    Parameters
    ----------
    profile, nodes : path
        Files. `nodes` may also be an `Inventory`.
    on_loss : str
        If a node is lost: ``end`` the run on all nodes, ``continue`` on the others, or ``resume``,
        which also continues on the node when it is reached again. The report is then not valid, and
        names the missing nodes.
    keep : path, optional
        Save the report and the log of each node in this directory.
    **options
        Options of the run, as `squall.run` has them.

    Raises
    ------
    InventoryError, ProfileError
        A file has errors.
    NodeLost, Refused
        A node is not ready: nothing was sent.
    """
    inventory = nodes if isinstance(nodes, Inventory) else Inventory.load(nodes)
    os.environ.update(environment(inventory))
    with _folder(keep) as folder:
        control = over_nodes(profile, inventory, options, on_loss, folder, None)
        quietly = ["--json", "-", "--quiet", "--allow-invalid"]
        done = merged(control, folder, quietly, stdout=subprocess.PIPE)
    return Report.from_json(done.stdout)


def over_nodes(
    profile: str | os.PathLike[str],
    inventory: Inventory,
    options: dict[str, Any],
    on_loss: str,
    folder: pathlib.Path,
    live: Live | None,
    within: str | None = None,
    step: Callable[[str], object] = lambda _: None,
) -> Control:
    """Run a profile; the nodes' reports and logs are then in `folder`. Files that the profile names
    must be in the directory `within`, if it is given. `step` is called with a message after each
    step."""
    from ._ray import Connected

    work = job(inventory, profile, options, pathlib.Path(profile).stem, within)
    settings = Settings(inventory.lease_s, on_loss, max_drift_ppb=inventory.max_drift_ppm * 1000)
    with Connected(inventory) as cluster:
        stays = {node for node in inventory.nodes if cluster.found(inventory.nodes[node])}
        peers = cluster.peers([part.node for part in work.parts], stays=False, step=step)
        step(f"{len(peers)} nodes are up: {', '.join(peer.name for peer in peers)}")
        try:
            # Ray prints messages about dying workers to stdout, which may be used for a report.
            with contextlib.redirect_stdout(sys.stderr):
                return asyncio.run(perform(peers, work, settings, folder, live, step))
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
        finally:
            cluster.end(peer for peer in peers if peer.name not in stays)
            step("nodes that were started for the run have ended")


async def perform(
    peers: Sequence[Peer],
    work: Job,
    settings: Settings,
    folder: pathlib.Path,
    live: Live | None = None,
    step: Callable[[str], object] = lambda _: None,
) -> Control:
    """Perform a job, and keep the reports and logs of its nodes in `folder`."""
    control = Control(peers, settings, live, step=step)
    task = asyncio.current_task()
    assert task is not None

    def came(number: int) -> None:
        # A second signal ends the run without waiting for reports.
        task.cancel() if control.interrupted else control.interrupt(number)

    # Python handles signals only in the main thread; in another thread, the caller must end the
    # run.
    main = threading.current_thread() is threading.main_thread()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if main else ():
        asyncio.get_running_loop().add_signal_handler(number, came, number)
    try:
        await asyncio.gather(*(upload(peer, work.files) for peer in peers))
        await control.run(work.parts)
        if live is not None:
            live.last(control)
    finally:
        await asyncio.gather(
            *(_keep(member, folder) for member in control.members.values()),
            return_exceptions=True,
        )
    return control


def merged(
    control: Control, folder: pathlib.Path, arguments: Sequence[str], **how: Any
) -> subprocess.CompletedProcess[str]:
    """Merge the reports of the nodes with `squall report`. The result is not valid if the controller
    missed a node, even if the report of that node is valid."""
    reported = [member for member in control.members.values() if member.report is not None]
    if not reported:
        why = "; ".join(f"{node}: {why}" for node, why in control.lost().items())
        raise Error(f"no node has a report: {why}\n  try squall cluster status")
    files = [str(folder / f"{member.name}.json") for member in reported]
    missing = [f"--missing={node}={why}" for node, why in control.lost().items()]
    argv = [find_binary(), "report", *files, *missing, *arguments]
    return subprocess.run(argv, text=True, **how)


def _tell(control: Control) -> None:
    for node, why in control.lost().items():
        print(f"squall: node {node!r} is missing from the results: {why}", file=sys.stderr)
    if control.ending is not None:
        print(f"squall: the run was ended: {control.ending}", file=sys.stderr)


@contextlib.contextmanager
def _folder(kept: str | os.PathLike[str] | None) -> Iterator[pathlib.Path]:
    if kept is not None:
        folder = pathlib.Path(kept)
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="squall-cluster-") as temporary:
        yield pathlib.Path(temporary)


async def upload(peer: Peer, files: Mapping[str, pathlib.Path]) -> None:
    """Store files on a node, under the names that its profile uses."""
    for name, path in files.items():
        with path.open("rb") as file:
            piece = file.read(PIECE)
            while True:
                following = file.read(PIECE)
                answer = await peer.call("put", name, piece, not following, timeout=UPLOAD_S)
                if "refused" in answer:
                    raise Error(f"node {peer.name!r} does not take {path}: {answer['refused'][0]}")
                if not following:
                    break
                piece = following


async def _keep(member: Member, folder: pathlib.Path) -> None:
    if member.report is not None:
        (folder / f"{member.name}.json").write_text(json.dumps(member.report))
    if not member.gone:
        with contextlib.suppress(NodeLost):
            log = await member.peer.call("log", 0, timeout=5.0)
            (folder / f"{member.name}.log").write_bytes(log)

"""``python -m squall.cluster trials INVENTORY``: trials of a standard test, one after the other on
the same nodes. The peer process is ``squall test --nodes`` (`crates/squall-trials/src/nodes.rs`),
which makes the profiles and evaluates the reports.

Input is one JSON object per line: a trial, or a request to stop the current one::

    {"trial": {"label": "...", "profile": {...}, "folder": ".", "options": {...}, "linger_s": 2}}
    {"stop": {}}

Output is one JSON object per line: that the nodes are up, the progress of a trial, its outcome::

    {"ready": {"version": "...", "ports": [["A", [{"node": ..., "address": ..., "speed_bps": ...}]]]}}
    {"elapsed": -0.2}
    {"done": {"reports": {"one": {...}}, "lost": {"two": "why"}}}
    {"refused": {"text": "why", "usage": false}}
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import json
import os
import pathlib
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any, Protocol

from .._errors import Error
from .._native import __version__
from ._clocks import Clock
from ._control import Control, NodeLost, Peer, Settings
from ._inventory import Inventory
from ._node import Refused
from ._profiles import Job, check_ports, divided
from ._runs import upload

__all__ = ["Reach", "Trials", "command"]

#: Seconds between progress messages; and between heartbeats to nodes from one trial to the next: a
#: node without heartbeats ends after 90 s.
PULSE_S, REST_S = 0.25, 10.0
#: Number of attempts to start a trial, if no node has begun it.
STARTS = 3
#: Maximum length of a run's name in a node's list, in characters; longer names are truncated.
NAME = 60
ANSWER_S = 10.0


class Reach(Protocol):
    """Access to nodes: through Ray, or simulated in tests."""

    def peers(self) -> list[Peer]:
        """Return all nodes that have ports, and start missing ones.

        Raises
        ------
        NodeLost
            A node cannot be started.
        """

    def again(self, names: Sequence[str]) -> list[Peer]:
        """Restart the named nodes that were started for the test. Return all nodes."""


def command(args: argparse.Namespace, inventory: Inventory, up: Callable[[], None]) -> int:
    """Run the command. `up` is called when the nodes are up."""
    out = _answers()
    if args.port:
        check_ports(inventory, args.port, args.profile)
        # Start only the nodes whose ports are used.
        ports = {name: inventory.ports[name] for name in inventory.ports if name in args.port}
        inventory = dataclasses.replace(inventory, ports=ports)
    if args.dry_run:
        _write(out, {"ready": ready(inventory, {})})
        return 0
    from ._ray import Connected

    with Connected(inventory) as cluster, contextlib.redirect_stdout(sys.stderr):
        reach = _ByRay(cluster, inventory)
        try:
            trials = Trials(inventory, reach, lambda answer: _write(out, answer))
            up()
            asyncio.run(trials.serve(_listen))
        finally:
            reach.end()
    return 0


def ready(inventory: Inventory, speeds: Mapping[tuple[str, str], int | None]) -> dict[str, Any]:
    """Return the nodes of each port. `speeds` has link speeds in b/s, by node and address."""
    ports = [
        (
            name,
            [
                {
                    "node": place.node,
                    "address": place.address,
                    "speed_bps": speeds.get((place.node, place.address)),
                }
                for place in places
            ],
        )
        for name, places in inventory.ports.items()
    ]
    return {"version": __version__, "ports": ports}


class Trials:
    """Runs trials on request.

    Parameters
    ----------
    inventory : Inventory
    reach : Reach
    send : callable
        Called with each output object.
    """

    def __init__(
        self, inventory: Inventory, reach: Reach, send: Callable[[dict[str, Any]], object]
    ) -> None:
        self._inventory, self._reach, self._send = inventory, reach, send
        self._peers = {peer.name: peer for peer in reach.peers()}
        self._clocks: dict[str, Clock] = {}
        #: Nodes to check before the next trial.
        self._lost: set[str] = set()
        #: Files already on each node: name, modification time, size.
        self._files: dict[str, set[tuple[str, int, int]]] = {}
        self._control: Control | None = None
        self._stopping = False
        self._asked: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()

    async def serve(
        self, listen: Callable[[Callable[[dict[str, Any] | None], None]], None]
    ) -> None:
        """Run until the end of the input. `listen` is called with a function that takes each line,
        and None at the end."""
        loop = asyncio.get_running_loop()
        self._send({"ready": ready(self._inventory, await self._speeds())})
        listen(lambda line: _later(loop, self._came, line))
        while (trial := await self._next()) is not None:
            pulse = asyncio.create_task(self._pulse())
            answer = await self._answer(trial)
            pulse.cancel()
            self._send(answer)

    def _came(self, line: dict[str, Any] | None) -> None:
        if line is not None and "trial" in line:
            self._stopping = False
            self._asked.put_nowait(line["trial"])
            return
        # Also at the end of the input, end a running trial on all nodes.
        self._stopping = True
        if self._control is not None:
            self._control.stop("stopped")
        if line is None:
            self._asked.put_nowait(None)

    async def _next(self) -> dict[str, Any] | None:
        while True:
            try:
                return await asyncio.wait_for(self._asked.get(), REST_S)
            except asyncio.TimeoutError:
                await asyncio.gather(*(self._visit(peer) for peer in self._peers.values()))

    async def _visit(self, peer: Peer) -> None:
        """Send a heartbeat to a node and read its clock, between trials."""
        try:
            await peer.call("beat", time.monotonic_ns(), timeout=ANSWER_S)
            exchange = await peer.clock(ANSWER_S)
            if peer.name in self._clocks:
                self._clocks[peer.name].add(exchange)
        except NodeLost:
            self._lost.add(peer.name)

    async def _pulse(self) -> None:
        while True:
            control = self._control
            known = control is not None and control.start_ns is not None
            self._send({"elapsed": control.elapsed_s() if control and known else None})
            await asyncio.sleep(PULSE_S)

    async def _answer(self, trial: dict[str, Any]) -> dict[str, Any]:
        try:
            control = await self._begun(trial)
        except Refused as error:
            return {"refused": {"text": str(error), "usage": error.status == 400}}
        except (Error, OSError) as error:
            return {"refused": {"text": str(error), "usage": not isinstance(error, NodeLost)}}
        finally:
            self._control = None
        lost = control.lost()
        self._lost |= set(lost)
        members = control.members.values()
        reports = {m.name: m.report for m in members if m.report is not None}
        return {"done": {"reports": reports, "lost": lost}}

    async def _begun(self, trial: dict[str, Any]) -> Control:
        """Run a trial to its end; retry its start if nodes were not ready."""
        left = STARTS
        # Runs of an earlier test whose controller died hold their ports until their leases expire.
        free = time.monotonic() + self._inventory.lease_s + 1
        while True:
            try:
                return await self._once(trial)
            except NodeLost as error:
                left -= 1
                named = set(error.node.split(", ")) & set(self._peers)
                self._lost |= named or set(self._peers)
                if left == 0 or self._stopping:
                    raise
            except Refused as error:
                # The start time had passed, or a port is not free yet: retry.
                if error.status != 409 or time.monotonic() > free or self._stopping:
                    raise
                await asyncio.sleep(0.5)

    async def _once(self, trial: dict[str, Any]) -> Control:
        self._control = None
        await self._look_after()
        folder = pathlib.Path(trial["folder"]).resolve()
        options, name = trial["options"], trial["label"][:NAME]
        work = divided(self._inventory, trial["profile"], folder, options, name)
        await asyncio.gather(*(self._upload(part.node, work) for part in work.parts))
        settings = Settings(
            self._inventory.lease_s,
            max_drift_ppb=self._inventory.max_drift_ppm * 1000,
            linger_s=trial["linger_s"],
        )
        peers = [self._peers[part.node] for part in work.parts]
        control = self._control = Control(peers, settings, clocks=self._clocks)
        if self._stopping:
            control.stop("stopped")
        await control.run(work.parts)
        return control

    async def _look_after(self) -> None:
        """Replace nodes that were lost."""
        if not self._lost:
            return
        for name in self._lost:
            self._clocks.pop(name, None)
            self._files.pop(name, None)
        # Ray's calls block, so they run on a thread; the event loop keeps handling messages.
        peers = await asyncio.to_thread(self._reach.again, sorted(self._lost))
        self._peers = {peer.name: peer for peer in peers}
        self._lost.clear()

    async def _upload(self, node: str, work: Job) -> None:
        """Upload the files that the node does not have yet."""
        known = self._files.setdefault(node, set())

        def mark(name: str) -> tuple[str, int, int]:
            found = work.files[name].stat()
            return name, found.st_mtime_ns, found.st_size

        new = {name: path for name, path in work.files.items() if mark(name) not in known}
        await upload(self._peers[node], new)
        known |= {mark(name) for name in new}

    async def _speeds(self) -> dict[tuple[str, str], int | None]:
        rows = await asyncio.gather(*(_ports(peer) for peer in self._peers.values()))
        known = {
            (node, row["interface"]): row["speed_bps"]
            for node, table in zip(self._peers, rows)
            for row in table
        }
        places = [place for places in self._inventory.ports.values() for place in places]
        return {
            (place.node, place.address): known.get((place.node, _interface(place.address)))
            for place in places
        }


def _later(loop: asyncio.AbstractEventLoop, function: Callable[[Any], None], value: Any) -> None:
    # The event loop may end before the input does.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(function, value)


async def _ports(peer: Peer) -> list[dict[str, Any]]:
    """Return the interfaces of a node; none if it does not list them."""
    answer = await peer.call("ask", "GET", "/ports", timeout=ANSWER_S)
    return list(answer["ok"]["ports"]) if "ok" in answer else []


def _interface(address: str) -> str:
    """Return the interface of an address: ``eth1`` for ``af_packet:eth1,fanout=2``."""
    kind, colon, rest = address.partition(":")
    return (rest if colon else kind).partition(",")[0]


class _ByRay:
    """Nodes as actors of Ray."""

    #: Maximum seconds until the name of an ended actor can be reused.
    FREE_S = 15.0

    def __init__(self, cluster: Any, inventory: Inventory) -> None:
        self._cluster, self._names = cluster, inventory.senders()
        self._stays = {name for name in self._names if cluster.found(inventory.nodes[name])}
        self._made: list[Any] = []

    def peers(self) -> list[Peer]:
        """Return the nodes as in `Reach.peers`."""
        self._made = self._cluster.peers(self._names, stays=False)
        return list(self._made)

    def again(self, names: Sequence[str]) -> list[Peer]:
        """Restart nodes as in `Reach.again`."""
        ended = set(names) - self._stays
        self._cluster.end(peer for peer in self._made if peer.name in ended)
        until = time.monotonic() + self.FREE_S
        while True:
            try:
                return self.peers()
            except NodeLost as error:
                if not error.gone or time.monotonic() > until:
                    raise
                time.sleep(0.2)

    def end(self) -> None:
        """End the nodes that were started for the test."""
        self._cluster.end(peer for peer in self._made if peer.name not in self._stays)


def _listen(came: Callable[[dict[str, Any] | None], None]) -> None:
    """Read lines of standard input on a thread: it can be a pipe, a file or a terminal."""

    def read() -> None:
        with contextlib.suppress(ValueError):
            for line in sys.stdin:
                came(json.loads(line))
        came(None)

    threading.Thread(target=read, daemon=True).start()


def _answers() -> IO[str]:
    """Return a copy of standard output for output objects only. Everything else that Ray and its
    workers print goes to stderr."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return out


def _write(out: IO[str], answer: dict[str, Any]) -> None:
    out.write(json.dumps(answer) + "\n")
    out.flush()

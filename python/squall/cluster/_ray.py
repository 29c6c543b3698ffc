"""Ray: connects to a cluster, and creates and calls node actors. No other module imports Ray."""

from __future__ import annotations

import asyncio
import contextlib
import os
import json
import shlex
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

from .._errors import Error
from ._clocks import Exchange
from ._control import NodeLost, Peer
from ._echo import Where, ask, renew
from ._host import CONNECT_S, Host, down, environment, reason, remove_token, up
from ._inventory import Inventory, NodeEntry
from ._node import Node

try:
    import ray
    import ray.exceptions
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
except ImportError:
    raise Error(
        f"cannot import Ray with {sys.executable}: {sys.exc_info()[1]}\n"
        f"  try {sys.executable} -m pip install '.[cluster]' in Squall's source folder"
    ) from None

__all__ = ["Connected", "RayPeer", "Rays"]

NAMESPACE = "squall"
#: Maximum seconds for creating an actor with its daemon, for ending it, and until the name of an
#: ended one is free.
CREATE_S, END_S, FREE_S = 60.0, 10.0, 20.0
#: Maximum seconds until Ray knows of the end and of the new start of a machine.
MACHINE_S = 60.0
#: Seconds after which an actor without a heartbeat ends. A controller may send none for less than
#: that, while it opens ports or fetches reports.
FORGOTTEN_S = 90.0
#: Threads of an actor: with a single one, fetching a report would delay heartbeats.
THREADS = 4
#: Time limit of a UDP answer, and number of consecutive missing answers after which the clock is
#: read through Ray, until a renewal is answered.
ECHO_S, ECHOES = 0.1, 3


class RayPeer(Peer):
    """A node's actor, as a peer of the controller."""

    def __init__(self, name: str, actor: Any) -> None:
        self.name, self.actor = name, actor
        #: UDP address of its clock; None: not known yet.
        self.echo: Where | None = None
        self._unheard = 0

    @property
    def by_udp(self) -> bool:
        """Whether the clock is read over UDP; if not, through Ray."""
        return self.echo is not None and self._unheard < ECHOES

    async def clock(self, timeout: float) -> Exchange:
        """Like `Peer.clock`. If UDP is blocked, for example by a firewall, the clock is read
        through Ray."""
        if self.echo is None or not self.by_udp:
            return await super().clock(timeout)
        try:
            exchange = await ask(self.echo, min(timeout, ECHO_S))
        except (OSError, asyncio.TimeoutError):
            self._unheard += 1
            return await super().clock(timeout)
        self._unheard = 0
        return exchange

    async def renew(
        self, ticket: int, every_s: float, on_answer: Callable[[Exchange], object]
    ) -> None:
        """As `Peer`, over UDP."""

        def answered(exchange: Exchange) -> None:
            self._unheard = 0
            on_answer(exchange)

        if self.echo is not None:
            await renew(self.echo, ticket, every_s, answered)

    async def call(self, method: str, *arguments: Any, timeout: float) -> Any:
        """Call a method as in `Peer.call`."""
        try:
            reference = getattr(self.actor, method).remote(*arguments)
            return await asyncio.wait_for(asyncio.wrap_future(reference.future()), timeout)
        except asyncio.TimeoutError:
            raise NodeLost(self.name, f"no answer to {method} within {timeout:g} s") from None
        except ray.exceptions.RayError as error:
            raise NodeLost(self.name, _brief(error), gone=_has_ended(error)) from None


class SquallNode(Node):
    """A node in a worker process of Ray. The process ends on request, or, unless it `stays`, some
    time after the controller's last heartbeat. Ray also ends it when the controller is gone, but
    only detects that by its connection."""

    def __init__(
        self, entry: NodeEntry, lease_s: float, ports: tuple[str, ...], stays: bool
    ) -> None:
        address: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        super().__init__(entry, lease_s, ports, address)
        if not stays:
            threading.Thread(target=self._until_forgotten, daemon=True).start()

    def end(self) -> None:
        """End like `Node.end`, without a request to Ray: its head may have died."""
        super().end()
        # Exit only after the answer has been sent.
        threading.Timer(0.2, os._exit, (0,)).start()

    def _until_forgotten(self) -> None:
        while time.monotonic() - self.last_heartbeat_s < FORGOTTEN_S:
            time.sleep(1)
        self.end()


class Connected:
    """This process as a driver of the inventory's Ray cluster."""

    def __init__(self, inventory: Inventory) -> None:
        self.inventory = inventory
        address = inventory.ray or ""
        options: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
        if inventory.start is not None:
            address = f"{inventory.start.head}:{inventory.start.port}"
            options["_node_ip_address"] = inventory.start.head
        _reachable(address)
        # Ray prints 30 lines for each worker that ends, also for one that was asked to. Errors of
        # calls have the reasons.
        ray._private.worker._worker_logs_enabled = False
        try:
            ray.init(
                address=address,
                namespace=NAMESPACE,
                **options,
            )
        except (
            ConnectionError,
            RuntimeError,
            ValueError,
            OSError,
            ray.exceptions.RayError,
        ) as error:
            raise Error(
                f"cannot connect to Ray at {address}: {_brief(error)}\n  try squall cluster up, or"
                f" on this machine: ray start --address={address}"
            ) from None

    def __enter__(self) -> Connected:
        return self

    def __exit__(self, *_: object) -> None:
        ray.shutdown()

    def machines(self) -> list[dict[str, Any]]:
        """Return the machines in Ray's format."""
        return list(ray.nodes())  # type: ignore[no-untyped-call]

    def found(self, entry: NodeEntry) -> RayPeer | None:
        """Return the node's actor; None if it does not exist."""
        with contextlib.suppress(ValueError):
            return RayPeer(entry.name, ray.get_actor(_actor(entry.name), namespace=NAMESPACE))
        return None

    def peers(
        self,
        names: Iterable[str],
        stays: bool,
        step: Callable[[str], object] = lambda _: None,
        replace: bool = False,
    ) -> list[RayPeer]:
        """The actors of nodes; missing ones are made. With `stays` they outlive this process, until
        `squall cluster down`. With `replace`, dead ones are replaced; the others are only asked
        whether they live. `step` is called with a message for each node that is up.

        Raises
        ------
        NodeLost
            An actor cannot be made; the message has a hint. New actors of this call are ended.
        """
        entries = [self.inventory.nodes[name] for name in names]
        found = {entry.name: self.found(entry) for entry in entries}
        made: list[RayPeer] = []
        try:
            for name, why in self._dead(filter(None, found.values())) if replace else ():
                step(f"node {name} is dead and is replaced: {why}")
                self._remove(found[name])
                found[name] = None
            peers = []
            for entry in entries:
                peer = found[entry.name]
                if peer is None:
                    peer = self._make(entry, stays)
                    made.append(peer)
                peers.append(peer)
            for peer in peers:
                self._greet(peer)
                if peer in made:
                    step(f"node {peer.name} is up")
        except BaseException:
            self.end(made)
            raise
        return peers

    def again(self, names: Iterable[str], ended: Iterable[str]) -> list[RayPeer]:
        """As `peers`, for one run, after a new start of the `ended` ones."""
        for name in ended:
            self._remove(self.found(self.inventory.nodes[name]))
        return self.peers(names, stays=False)

    def _dead(self, peers: Iterable[RayPeer]) -> list[tuple[str, str]]:
        """The actors that do not live, or whose daemons do not, with reasons."""
        asked = [(peer, peer.actor.hello.remote()) for peer in peers]
        until, dead = time.monotonic() + CREATE_S, []
        for peer, reference in asked:
            try:
                left = max(0.0, until - time.monotonic())
                if not ray.get(reference, timeout=left)["alive"]:
                    dead.append((peer.name, "its daemon has ended"))
            except ray.exceptions.GetTimeoutError:
                dead.append((peer.name, f"no answer within {CREATE_S:.0f} s"))
            except ray.exceptions.RayError as error:
                dead.append((peer.name, _brief(error)))
        return dead

    def _remove(self, peer: RayPeer | None) -> None:
        """End an actor, and wait until its name is free."""
        if peer is None:
            return
        self.end([peer])
        with contextlib.suppress(ray.exceptions.RayError, ValueError):
            ray.kill(peer.actor)
        until = time.monotonic() + FREE_S
        while self.found(self.inventory.nodes[peer.name]) is not None:
            if time.monotonic() > until:
                raise NodeLost(
                    peer.name,
                    f"Ray has not ended it after {FREE_S:.0f} s\n  try squall cluster down, and up"
                    " again",
                )
            time.sleep(0.2)

    def end(self, peers: Iterable[RayPeer]) -> None:
        """End daemons and actors, within a time limit for all of them. Unreachable ones end when
        this process does, unless they were created to stay.
        """
        asked = {peer.actor.end.remote(): peer for peer in peers}
        done, _ = ray.wait(list(asked), num_returns=len(asked), timeout=END_S)
        for reference in done:
            with contextlib.suppress(ray.exceptions.RayError, ValueError):
                ray.kill(asked[reference].actor)

    def _make(self, entry: NodeEntry, stays: bool) -> RayPeer:
        # An interface is allowed with any port options.
        ports = tuple(
            place.address.partition(",")[0]
            for places in self.inventory.ports.values()
            for place in places
            if place.node == entry.name
        )
        where = self._where(entry)
        actor = (
            ray.remote(SquallNode)
            .options(
                name=_actor(entry.name),
                lifetime="detached" if stays else None,
                num_cpus=0,
                max_restarts=0,
                max_concurrency=THREADS,
                **where,
            )
            .remote(entry, self.inventory.lease_s, ports, stays)
        )
        return RayPeer(entry.name, actor)

    def _where(self, entry: NodeEntry) -> dict[str, Any]:
        """The resource that binds an actor to the node's machine."""

        def is_here(machine: dict[str, Any]) -> bool:
            if entry.ray_id is not None:
                return bool(machine["NodeID"] == entry.ray_id)
            if entry.resource is not None:
                return entry.resource in machine["Resources"]
            return bool(machine["NodeManagerAddress"] == entry.address)

        until = time.monotonic() + MACHINE_S
        while True:
            alive = [machine for machine in self.machines() if machine["Alive"]]
            here = [machine for machine in alive if is_here(machine)]
            # A machine whose Ray was started again is listed twice until Ray notices the end of the
            # first one.
            if len(here) <= 1 or time.monotonic() > until:
                break
            time.sleep(0.5)
        if here:
            strategy = NodeAffinitySchedulingStrategy(here[-1]["NodeID"], soft=False)
            return {"scheduling_strategy": strategy}
        known = ", ".join(sorted(str(machine["NodeManagerAddress"]) for machine in alive))
        sought = entry.address or entry.resource or entry.ray_id
        raise NodeLost(
            entry.name,
            f"Ray has no live machine {sought!r}; it has {known}\n  try ray start"
            " --address=HEAD:PORT there, or correct the inventory",
        )

    def _greet(self, peer: RayPeer) -> dict[str, Any]:
        try:
            hello: dict[str, Any] = ray.get(peer.actor.hello.remote(), timeout=CREATE_S)
        except ray.exceptions.GetTimeoutError:
            raise NodeLost(peer.name, f"not up after {CREATE_S:.0f} s") from None
        except ray.exceptions.RayError as error:
            raise NodeLost(peer.name, _brief(error), gone=True) from None
        if not hello["alive"]:
            raise NodeLost(peer.name, "its daemon has ended\n  try squall cluster up")
        peer.echo = hello["echo"]
        return hello


def _reachable(address: str) -> None:
    """Check that the head's port answers: Ray itself would retry for minutes."""
    host, colon, port = address.rpartition(":")
    if not colon:
        return
    try:
        socket.create_connection((host, int(port)), CONNECT_S).close()
    except OSError as error:
        raise Error(
            f"cannot connect to Ray at {address}: {error}\n  try squall cluster up, or correct ray"
            " in the inventory"
        ) from None


class Rays:
    """Ray on this machine and on all nodes, unless the inventory names a cluster.

    Parameters
    ----------
    inventory : Inventory
    step : callable
        Called with a message after each step.
    """

    def __init__(self, inventory: Inventory, step: Callable[[str], object]) -> None:
        self._inventory, self._step = inventory, step
        #: Machines on which `up` has started Ray.
        self._started: list[Host] = []

    def up(self) -> None:
        """Start Ray where it is not up.

        Raises
        ------
        Error
            It does not start somewhere; the message has a hint.
        """
        if self._inventory.start is None:
            return
        head, *others = _hosts(self._inventory)
        self._note(head, up(head), f"Ray's head {head.address}:{head.port}")
        failed = []
        for host, answer in self._all(others, "up"):
            if "error" in answer:
                failed.append(NodeLost(host.name, answer["error"]))
            else:
                self._note(host, answer, f"Ray on {host.name} ({host.address})")
        if failed:
            # One error, and all machines that are up are known by now.
            raise failed[0]

    def undo(self) -> None:
        """Stop Ray where `up` has started it."""
        self._down(self._started)
        self._started = []

    def down(self) -> bool:
        """Stop the Ray that `up` has started, now or earlier, and remove its files. Returns False
        if a machine cannot be reached."""
        if self._inventory.start is None:
            return True
        if reached := self._down(_hosts(self._inventory)):
            remove_token(self._inventory.name)
        return reached

    def _note(self, host: Host, answer: dict[str, Any], what: str) -> None:
        if answer["started"]:
            self._started.append(host)
        self._step(f"{what} is up" if answer["started"] else f"{what} was up")

    def _down(self, hosts: Iterable[Host]) -> bool:
        # The head last: the others end at once, instead of looking for it.
        head = [host for host in hosts if host.head is None]
        reached = True
        for host, answer in self._all([host for host in hosts if host.head is not None], "down"):
            reached = reached and "error" not in answer
            self._step(f"Ray on {host.name}: {answer.get('error') or 'is down'}")
        for host in head:
            down(host.cluster, host.name)
            self._step(f"Ray's head {host.address} is down")
        return reached

    def _all(self, hosts: list[Host], action: str) -> Iterator[tuple[Host, dict[str, Any]]]:
        """The answers of machines to an action, in the order in which they come."""
        with ThreadPoolExecutor(16) as pool:
            asked = {pool.submit(_on, self._inventory, host, action): host for host in hosts}
            for done in as_completed(asked):
                yield asked[done], done.result()


def _hosts(inventory: Inventory) -> list[Host]:
    """Return all machines. The head's machine is first: if it also has a node, it is started only
    once."""
    start = inventory.start
    assert start is not None

    def host(name: str, address: str, head: str | None) -> Host:
        return Host(
            inventory.name,
            name,
            address,
            head,
            start.port,
            start.dashboard,
            start.object_store_mb,
            start.worker_ports,
            environment(inventory),
        )

    head = f"{start.head}:{start.port}"
    rest = {n.address: n.name for n in inventory.nodes.values() if n.address != start.head}
    return [host("head", start.head, None)] + [
        host(name, str(address), head) for address, name in rest.items()
    ]


def _on(inventory: Inventory, host: Host, action: str) -> dict[str, Any]:
    """Run `_host` on a node's machine, within a time limit."""
    start = inventory.start
    assert start is not None
    reach = start.reach.format(name=host.name, address=host.address)
    table = json.dumps({**vars(host), "environment": dict(host.environment)})
    command = [start.python, "-m", "squall.cluster", "host", action]
    words = shlex.split(reach)
    # ssh passes its arguments to a shell, so they are quoted; other commands pass them unchanged.
    if words and os.path.basename(words[0]) == "ssh":
        words.append(shlex.join(command))
    else:
        words += command
    try:
        done = subprocess.run(words, input=table, capture_output=True, text=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"error": f"cannot run {reach}: {reason(str(error))}"}
    try:
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        return {"error": f"cannot run {start.python} there: {reason(done.stderr or done.stdout)}"}
    return answer


def _actor(node: str) -> str:
    return f"squall:{node}"


def _has_ended(error: ray.exceptions.RayError) -> bool:
    """Whether an actor has ended. An unavailable one may only be out of reach for a while."""
    unavailable = isinstance(error, ray.exceptions.ActorUnavailableError)
    return isinstance(error, ray.exceptions.RayActorError) and not unavailable


def _brief(error: BaseException) -> str:
    """Return the line of a Ray error that has the reason; the others are Ray's own stack trace."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    errors = [line for line in lines if "Error:" in line]
    return (errors or lines or [type(error).__name__])[-1 if errors else 0]

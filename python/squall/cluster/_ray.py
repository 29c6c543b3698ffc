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
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .._errors import Error
from ._clocks import Exchange
from ._control import NodeLost, Peer
from ._echo import Where, ask, renew
from ._host import Host, down, environment, up
from ._inventory import Inventory, NodeEntry
from ._node import Node

try:
    import ray
    import ray.exceptions
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
except ImportError:
    raise Error(
        f"cannot import Ray with {sys.executable}: {sys.exc_info()[1]}\n"
        f"  try {sys.executable} -m pip install 'squall[cluster]'"
    ) from None

__all__ = ["Connected", "RayPeer", "bring_down", "bring_up"]

NAMESPACE = "squall"
#: Maximum seconds until the head's port answers.
CONNECT_S = 5.0
#: Maximum seconds for creating an actor with its daemon, and for ending both.
CREATE_S, END_S = 60.0, 10.0
#: Seconds without a heartbeat after which an actor ends. A controller sends none while it opens
#: ports or fetches reports, which takes less than that.
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

    async def renew(self, ticket: int, every_s: float, heard: Callable[[Exchange], object]) -> None:
        """Like `Peer.renew`, over UDP."""

        def answered(exchange: Exchange) -> None:
            self._unheard = 0
            heard(exchange)

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

    def peers(self, names: Iterable[str], stays: bool) -> list[RayPeer]:
        """Return the actors of nodes, and create missing ones. With `stays` they outlive this
        process, until `squall cluster down`.

        Raises
        ------
        NodeLost
            An actor cannot be created; the message has a hint.
        """
        entries = [self.inventory.nodes[name] for name in names]
        peers = [self.found(entry) or self._make(entry, stays) for entry in entries]
        for peer in peers:
            self._greet(peer)
        return peers

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
        """Return the Ray resource that pins an actor to the node's machine."""
        alive = [machine for machine in self.machines() if machine["Alive"]]
        known = ", ".join(sorted(str(machine["NodeManagerAddress"]) for machine in alive))
        for machine in alive:
            if entry.ray_id is not None:
                here = machine["NodeID"] == entry.ray_id
            elif entry.resource is not None:
                here = entry.resource in machine["Resources"]
            else:
                here = machine["NodeManagerAddress"] == entry.address
            if here:
                strategy = NodeAffinitySchedulingStrategy(machine["NodeID"], soft=False)
                return {"scheduling_strategy": strategy}
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
            raise NodeLost(
                peer.name, "its daemon has ended\n  try squall cluster down, and up again"
            )
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


def bring_up(inventory: Inventory) -> Iterator[str]:
    """Start Ray on this machine and on all nodes, unless the inventory names an existing cluster.
    Yields one message per step.
    """
    if inventory.start is None:
        return
    head, *others = _hosts(inventory)
    up(head)
    yield f"head {head.address}:{head.port} is up"
    with ThreadPoolExecutor(16) as pool:
        for host, answer in zip(others, pool.map(lambda h: _on(inventory, h, "up"), others)):
            if "error" in answer:
                raise NodeLost(host.name, answer["error"])
            yield f"node {host.name} ({host.address}) is up"


def bring_down(inventory: Inventory) -> Iterator[str]:
    """Stop the Ray that `bring_up` started. Yields one message per step."""
    if inventory.start is None:
        return
    head, *others = _hosts(inventory)
    with ThreadPoolExecutor(16) as pool:
        for host, answer in zip(others, pool.map(lambda h: _on(inventory, h, "down"), others)):
            yield f"node {host.name}: {answer.get('error') or 'is down'}"
    down(head.cluster, head.name)
    yield f"head {head.address} is down"


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
        return {"error": f"{reach}: {error}"}
    try:
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        return {"error": f"{shlex.join(words)}: {(done.stderr or done.stdout).strip()[-500:]}"}
    return answer


def _actor(node: str) -> str:
    return f"squall:{node}"


def _has_ended(error: ray.exceptions.RayError) -> bool:
    """Return whether an actor has ended. An unavailable one may only be unreachable for a while."""
    unavailable = isinstance(error, ray.exceptions.ActorUnavailableError)
    return isinstance(error, ray.exceptions.RayActorError) and not unavailable


def _brief(error: BaseException) -> str:
    """Return the line of a Ray error that has the reason; the others are Ray's own stack trace."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    errors = [line for line in lines if "Error:" in line]
    return (errors or lines or [type(error).__name__])[-1 if errors else 0]

"""The controller of a run on nodes: clocks, a simultaneous start, heartbeats, reports. Independent
of Ray: it calls nodes through `Peer`.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import secrets
import signal
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from .._errors import Error
from ._clocks import Clock, Exchange, Mapping
from ._node import OVER, Refused

__all__ = ["Control", "Member", "NodeLost", "Part", "Peer", "Settings"]

T = TypeVar("T")

#: Number of clock exchanges with a node, both before and after a run.
EXCHANGES = 20
#: Time limits of slow calls: opening ports and compiling, and fetching a report.
PREPARE_S, FETCH_S = 60.0, 60.0
#: Number of heartbeats per lease.
BEATS = 4
#: Seconds between two renewals of a lease; the minimum for each node of the run, because 2,000 per
#: second take the controller a tenth of a CPU; and the minimum number per lease.
RENEW_S, RENEW_NODE_S, RENEWALS = 0.05, 0.0005, 8
#: Seconds after a lease until a silent node is lost. By then its traffic has ended. An answer may
#: be that late although the lease was renewed: after its link was down, a node asks for the
#: controller's MAC address only once per second (retrans_time_ms in arp(7)).
GRACE_S = 1.5
#: Maximum seconds for which a node waits with paused traffic for the controller (``resume``).
PAUSE_S = 30.0


class NodeLost(Error):
    """A node does not answer, or has disappeared."""

    def __init__(self, node: str, why: str, gone: bool = False) -> None:
        super().__init__(f"node {node!r}: {why}")
        self.node, self.why, self.gone = node, why, gone


class Peer(Protocol):
    """The controller's connection to a node."""

    name: str

    async def call(self, method: str, *arguments: Any, timeout: float) -> Any:
        """Call a method of `Node`, and return its answer.

        Raises
        ------
        NodeLost
            No answer came within `timeout` seconds, or none is possible (`gone`).
        """

    async def clock(self, timeout: float) -> Exchange:
        """Read the node's clock by the fastest available path; by default like any other call.

        Raises
        ------
        NodeLost
            As `call`.
        """
        c0 = time.monotonic_ns()
        n_in, n_out = await self.call("clock", timeout=timeout)
        return Exchange(c0, n_in, n_out, time.monotonic_ns())

    async def renew(
        self, ticket: int, every_s: float, on_answer: Callable[[Exchange], object]
    ) -> None:
        """Renew the lease of a run, in addition to heartbeats, until canceled. `on_answer` is called
        with each answer. By default there is no such way.
        """


@dataclasses.dataclass(frozen=True)
class Part:
    """A node's part of a run: the request for its daemon, and whether the node sends. A node that
    only receives cannot know when the run is over.
    """

    node: str
    body: dict[str, Any]
    sends: bool = True


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of a run on nodes.

    Attributes
    ----------
    lease_s : float
    on_loss : str
        ``end`` the run of all nodes when one is lost, ``continue`` on the others, or ``resume``:
        also on the node, whose traffic is paused meanwhile, for at most `PAUSE_S`.
    lead_s : float
        Minimum time between the order to start and the start; it grows with the number of nodes and
        their round-trip times. A node that has not answered within half of it ends the run.
    linger_s : float
        How long nodes receive after the last frame has been sent.
    """

    lease_s: float = 2.0
    on_loss: str = "end"
    lead_s: float = 1.0
    max_drift_ppb: float = 100_000.0
    linger_s: float = 0.0


class Member:
    """A node that takes part in a run."""

    def __init__(self, peer: Peer, max_drift_ppb: float) -> None:
        self.peer, self.name = peer, peer.name
        self.clock = Clock(max_drift_ppb)
        self.mapping: Mapping | None = None
        self.run: str | None = None
        self.state = "idle"
        self.row: dict[str, Any] = {}
        #: Rates and counts from the latest heartbeat.
        self.now: dict[str, Any] = {}
        self.report: dict[str, Any] | None = None
        #: Reason why the node's state is no longer known.
        self.lost: str | None = None
        self.gone = False
        #: Maximum seconds without an answer; after that the node is lost.
        self.silence_limit_s = float("inf")
        #: Longer silences, as the time when each began and its length in seconds.
        self.silences: list[tuple[float, float]] = []
        self.last_answer_s = time.monotonic()
        #: Ticket that renews the run's lease; None: only heartbeats renew it.
        self.ticket: int | None = None
        #: Departure time of the latest renewal that was answered.
        self.renewed_ns = 0
        self.sends = True
        #: Departure time of the heartbeat that `row` answers.
        self.asked_ns = 0

    @property
    def over(self) -> bool:
        """Whether the node's run is known to have ended."""
        return self.run is None or self.gone or self.state in OVER

    @property
    def bound_ns(self) -> int | None:
        """The error bound of the node's clock; None if it is unknown."""
        return None if self.mapping is None else self.mapping.bound_ns

    @property
    def silent(self) -> bool:
        """Whether the node has not answered for too long."""
        return time.monotonic() - self.last_answer_s > self.silence_limit_s

    async def exchange(self, timeout: float) -> int:
        """Read the node's clock. Return the time that it showed."""
        exchange = await self.peer.clock(timeout)
        self.clock.add(exchange)
        self._answered()
        return exchange.n_out

    def renewed(self, exchange: Exchange) -> None:
        """Record the answer to a renewal, which includes a clock reading."""
        self.clock.add(exchange)
        self.renewed_ns = exchange.c0
        self._answered()

    def took(self, c0: int, answer: dict[str, Any], horizon_ns: int) -> None:
        """Record the answer to a heartbeat that was sent at `c0`."""
        self.clock.add(Exchange(c0, answer["n_in"], answer["n_out"], time.monotonic_ns()))
        self.mapping = self.clock.mapping(answer["n_out"], horizon_ns)
        self._answered()
        if "run" in answer:
            self.row, self.state, self.asked_ns = answer["run"], answer["run"]["state"], c0
            self.now = answer["now"]
        elif not answer["alive"] and self.run is not None:
            self.gone, self.lost = True, "its daemon is gone"
        elif "refused" in answer:
            self.lost = answer["refused"][0]

    def _answered(self) -> None:
        now = time.monotonic()
        if self.silent and not self.over:
            self.silences.append((self.last_answer_s, now - self.last_answer_s))
        self.last_answer_s = now
        if not self.gone:
            self.lost = None


class Control:
    """The controller of one run.

    Parameters
    ----------
    peers : sequence of Peer
    settings : Settings
    watch : callable, optional
        Called with this controller after each round of heartbeats.
    clocks : dict, optional
        Clocks of nodes from earlier runs, by name; this run adds its own exchanges.
    step : callable, optional
        Called with a message after each step.
    """

    def __init__(
        self,
        peers: Sequence[Peer],
        settings: Settings,
        watch: Callable[[Control], object] | None = None,
        clocks: dict[str, Clock] | None = None,
        step: Callable[[str], object] = lambda _: None,
    ) -> None:
        self.settings, self._watch, self._step = settings, watch, step
        self.members = {peer.name: Member(peer, settings.max_drift_ppb) for peer in peers}
        if clocks is not None:
            for name, member in self.members.items():
                member.clock = clocks.setdefault(name, member.clock)
        for member in self.members.values():
            member.silence_limit_s = settings.lease_s + GRACE_S + (PAUSE_S if self._resumes else 0)
        #: The start in cluster time.
        self.start_ns: int | None = None
        #: The reason why the run was ended early, and the signal, if a signal ended it.
        self.ending: str | None = None
        self.interrupted: int | None = None
        self._beats: list[asyncio.Task[None]] = []

    # The whole

    async def run(self, parts: Sequence[Part]) -> None:
        """Prepare all nodes, start them simultaneously, monitor them, and fetch the reports.

        Raises
        ------
        Refused
            A node cannot do its part, or not in time: nothing was sent on any node.
        NodeLost
            A node does not answer: nothing was sent on any node.
        """
        try:
            await self.measure()
            bounds = [member.bound_ns or 0 for member in self.members.values()]
            self._step(f"clocks are known within {max(bounds) / 1e3:.0f} us")
            await self.prepare(parts)
            await self._until_ready()
            self._step("all nodes are ready")
            await self._go()
            self._step(f"traffic starts in {-self.elapsed_s():.1f} s")
            await self._until_over()
            self._step(f"traffic has ended{f': {self.ending}' if self.ending else ''}")
            await self.collect()
            reports = sum(member.report is not None for member in self.members.values())
            self._step(f"{reports} of {len(self.members)} nodes have reported")
        finally:
            await self.end()

    async def measure(self) -> None:
        """Read all clocks, a few nodes at a time: too many simultaneous exchanges would delay each
        other."""
        members = list(self.members.values())
        if len(members) <= 16:
            for member in members:
                await self._read(member, EXCHANGES)
        else:
            exchanges = max(4, min(EXCHANGES, 2000 // len(members)))
            await _all(self._read(member, exchanges) for member in members)

    async def prepare(self, parts: Sequence[Part]) -> None:
        """Give each node its part. The node opens its ports and compiles, but sends nothing yet."""
        # Distinguishes the frames of this run from late frames of earlier runs.
        key = secrets.randbelow(0xFFFF) + 1
        await _all(self._prepare(self.members[part.node], part, key) for part in parts)

    async def collect(self) -> None:
        """Fetch the reports of all nodes that answer, and read their clocks once again."""
        await _all(self._fetch(member) for member in self._running())

    def stop(self, why: str) -> None:
        """End the run on all nodes; `run` then collects the reports."""
        if self.ending is None:
            self.ending = why

    def interrupt(self, number: int) -> None:
        """Handle a signal: end the run and report."""
        self.interrupted = number
        self.stop(signal.Signals(number).name)

    async def end(self) -> None:
        """Stop runs that are still active, and the heartbeats."""
        await self._stop_all()
        for task in self._beats:
            task.cancel()
        await asyncio.gather(*self._beats, return_exceptions=True)

    def lost(self) -> dict[str, str]:
        """Nodes whose results are missing or incomplete, with the reasons."""
        found = {}
        for member in self._running():
            if member.report is None:
                found[member.name] = member.lost or f"its run {member.state}, without a report"
            elif member.silences:
                began_s, lasted = member.silences[0]
                at = began_s - (self.start_ns or 0) / 1e9
                found[member.name] = f"it was silent for {lasted:.1f} s after {at:.1f} s"
            elif lapses := member.row.get("lapses"):
                times = "once" if lapses == 1 else f"{lapses} times"
                found[member.name] = f"its lease expired {times}, and its traffic was paused"
            elif member.state == "interrupted":
                found[member.name] = f"its run was interrupted: {member.row.get('error')}"
        return found

    def elapsed_s(self) -> float:
        """Return the seconds since the start; negative before it."""
        if self.start_ns is None:
            return 0.0
        return (time.monotonic_ns() - self.start_ns) / 1e9

    # Steps of a run

    @property
    def _resumes(self) -> bool:
        return self.settings.on_loss == "resume"

    def _running(self) -> list[Member]:
        return [member for member in self.members.values() if member.run is not None]

    @property
    def _horizon_ns(self) -> int:
        """Return the time for which a mapping is used before it is replaced."""
        return round((self.settings.lease_s + GRACE_S) * 1e9)

    async def _read(self, member: Member, exchanges: int) -> None:
        for _ in range(exchanges):
            at_ns = await member.exchange(self.settings.lease_s)
        member.mapping = member.clock.mapping(at_ns, self._horizon_ns)

    async def _prepare(self, member: Member, part: Part, key: int) -> None:
        body = {**part.body, "hold": True, "key": key}
        if self._resumes:
            body["pause_s"] = PAUSE_S
        answer = await member.peer.call("start", body, member.mapping, timeout=PREPARE_S)
        row = _answer(member, answer)["run"]
        member.run, member.row, member.state = row["id"], row, row["state"]
        member.ticket = answer.get("ticket")
        member.sends = part.sends
        member.last_answer_s = time.monotonic()
        # Start heartbeats now: opening the ports of other nodes may take longer than this node's
        # lease lasts.
        self._beats.append(asyncio.create_task(self._beat(member), name=f"beat {member.name}"))

    async def _until_ready(self) -> None:
        end = time.monotonic() + PREPARE_S
        while True:
            waited = [member for member in self._running() if member.state != "ready"]
            if not waited:
                return
            for member in waited:
                if member.over or member.silent:
                    why = member.row.get("error") or member.lost or member.state
                    raise NodeLost(member.name, f"not ready: {why}")
            if time.monotonic() > end or self.ending:
                names = ", ".join(member.name for member in waited)
                raise NodeLost(names, self.ending or f"not ready within {PREPARE_S:.0f} s")
            await asyncio.sleep(0.02)

    async def _go(self) -> None:
        """Agree on a start time. If a node does not confirm in time, the run ends on all nodes
        before it."""
        members = self._running()
        trip = max(member.clock.width_ns or 0 for member in members) / 1e9
        lead = self.settings.lead_s + 4 * trip + 0.002 * len(members)
        self.start_ns = time.monotonic_ns() + round(lead * 1e9)
        await _all(self._order(member, lead / 2) for member in members)

    async def _order(self, member: Member, timeout: float) -> None:
        answer = await member.peer.call(
            "ask", "POST", f"/runs/{member.run}/go", {"at_ns": self.start_ns}, timeout=timeout
        )
        _answer(member, answer)

    async def _until_over(self) -> None:
        while not all(member.over or member.silent for member in self._running()):
            if self._watch is not None:
                self._watch(self)
            for member in self._running():
                if self._is_lost(member) and self.settings.on_loss == "end":
                    self.stop(f"node {member.name!r} was lost: {member.lost}")
            # A node that only receives cannot know when the others have sent everything.
            if self.ending is not None or self._all_sent():
                await self._stop_all()
                # The nodes receive the frames in transit, and write their reports.
                await self._settled(self.settings.lease_s + self.settings.linger_s + 5)
                return
            await asyncio.sleep(0.05)
        if any(not member.over for member in self._running()):
            # A node that is only silent may answer again, so wait for the length of a lease.
            await asyncio.sleep(self.settings.lease_s)
            await self._settled(self.settings.lease_s)

    def _all_sent(self) -> bool:
        """Return whether all nodes have reported, after the start, that they have nothing left to
        send."""
        start_ns = self.start_ns
        # Nodes that only receive or answer run for their duration, or until they are stopped.
        if start_ns is None or not any(member.sends for member in self._running()):
            return False
        return all(
            member.over
            or not member.sends
            or member.silent
            or (member.asked_ns > start_ns and bool(member.row.get("sent_all")))
            for member in self._running()
        )

    async def _settled(self, timeout_s: float) -> None:
        """Wait until the runs of all nodes that answer have ended, or until the time limit."""
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            if all(member.over or member.silent for member in self._running()):
                return
            await asyncio.sleep(0.05)

    async def _stop_all(self) -> None:
        live = [member for member in self._running() if not member.over]
        await asyncio.gather(*(self._stop(member) for member in live), return_exceptions=True)

    async def _stop(self, member: Member) -> None:
        await member.peer.call(
            "ask", "POST", f"/runs/{member.run}/stop", timeout=self.settings.lease_s
        )

    async def _fetch(self, member: Member) -> None:
        if member.gone or (member.silent and not member.over):
            return
        try:
            answer = await member.peer.call(
                "ask", "GET", f"/runs/{member.run}/report", timeout=FETCH_S
            )
            member.report = _answer(member, answer)
            await self._read(member, 4)
        except (NodeLost, Refused) as error:
            member.lost = member.lost or str(error)

    # Heartbeats

    async def _beat(self, member: Member) -> None:
        every = self.settings.lease_s / BEATS
        renewals = asyncio.create_task(self._renew(member), name=f"renew {member.name}")
        try:
            while not member.over:
                began = time.monotonic()
                await self._once(member)
                await asyncio.sleep(max(0.0, began + every - time.monotonic()))
        finally:
            renewals.cancel()

    async def _renew(self, member: Member) -> None:
        """Renew the lease more often than the heartbeats, which run over TCP: after an outage, TCP
        may wait for seconds before it retransmits."""
        if member.ticket is not None:
            every = max(RENEW_S, RENEW_NODE_S * len(self.members))
            every = min(every, self.settings.lease_s / RENEWALS)
            await member.peer.renew(member.ticket, every, member.renewed)

    async def _narrow(self, member: Member) -> None:
        """Read the clock of a node that answers no renewals. Heartbeats wait for the daemon and for
        a CPU, these exchanges do not, so they narrow the error bound."""
        if time.monotonic_ns() - member.renewed_ns < self.settings.lease_s * 1e9 / BEATS:
            return
        for _ in range(min(4, 48 // len(self.members))):
            await member.exchange(self.settings.lease_s)

    async def _once(self, member: Member) -> None:
        c0 = time.monotonic_ns()
        try:
            answer = await member.peer.call(
                "beat", c0, member.run, member.mapping, timeout=self.settings.lease_s
            )
            member.took(c0, answer, self._horizon_ns)
            await self._narrow(member)
        except NodeLost as error:
            member.gone = member.gone or error.gone
            # A node that answers renewals is not lost: only this connection is slow.
            if member.gone or member.renewed_ns < c0:
                member.lost = error.why

    def _is_lost(self, member: Member) -> bool:
        """Whether the node's traffic has ended without a request."""
        if member.gone or (member.silent and not member.over):
            member.lost = member.lost or f"silent for {member.silence_limit_s:g} s"
            return True
        if member.state == "interrupted" and self.ending is None:
            member.lost = member.lost or f"its run was interrupted: {member.row.get('error')}"
            return True
        return False


def _answer(member: Member, answer: dict[str, Any]) -> Any:
    if "refused" in answer:
        message, status, code = answer["refused"]
        raise Refused(f"node {member.name!r}: {message}", status, code)
    return answer["ok"]


async def _all(work: Iterable[Awaitable[T]]) -> list[T]:
    """Await all; the first exception cancels the others."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks, return_exceptions=True)
        raise

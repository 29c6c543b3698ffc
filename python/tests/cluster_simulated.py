"""Nodes without daemons, for the controller's own logic: clocks with offsets and drift, delays,
states of a run, and errors on demand: ``silent`` (no answers), ``slow`` (answers to renewals only),
``gone`` and others.
"""

import asyncio
import random
import time
from collections.abc import Callable
from typing import Any

from squall.cluster._clocks import Exchange, Mapping
from squall.cluster._control import NodeLost, Peer


class Engine:
    """A simulated node whose clock has a known offset and drift."""

    def __init__(self, name: str, report: Any = None, sends_s: float = 0.3) -> None:
        rng = random.Random(name)
        self.name, self.report, self.sends_s = name, report, sends_s
        self.offset_ns, self.drift_ppb = rng.randrange(-(10**15), 10**15), rng.uniform(-5e4, 5e4)
        self.since = time.monotonic_ns()
        self.state, self.at_ns, self.stopped = "none", 0, False
        self.stopped_ns = 0
        self.error: str | None = None
        self.mapping: Mapping | None = None
        #: Difference between the agreed start and the real one.
        self.start_error_ns: int | None = None
        self.fails: dict[str, Any] = {}
        #: Requests and uploads that the node has received, and the number of heartbeats.
        self.bodies: list[dict[str, Any]] = []
        self.files: list[str] = []
        self.beats = self.renewals = 0

    def clock(self) -> tuple[int, int]:
        now = self.local(time.monotonic_ns())
        return now, now

    def local(self, ns: int) -> int:
        return ns + self.offset_ns + round(self.drift_ppb * 1e-9 * (ns - self.since))

    def start(self, body: dict[str, Any], mapping: Mapping) -> dict[str, Any]:
        assert body["hold"]
        self.bodies.append(body)
        if "start" in self.fails:
            return {"refused": self.fails["start"]}
        self.mapping, self.state = mapping, "ready"
        return {"ok": {"run": self.row()}, "ticket": 7}

    def beat(
        self, sent_ns: int, run: str | None = None, mapping: Mapping | None = None
    ) -> dict[str, Any]:
        came, _ = self.clock()
        self.beats += 1
        if mapping is not None:
            self.mapping = mapping
        answer: dict[str, Any] = {"n_in": came, "late": False, "alive": "daemon" not in self.fails}
        if answer["alive"] and run is not None:
            now = {"tx_pps": 1000.0, "rx_pps": 0.0, "tx_packets": 1, "rx_packets": 0, "lost": 0}
            answer.update(run=self.row(), now=now)
        answer["n_out"], _ = self.clock()
        return answer

    def ask(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        what = path.rpartition("/")[2]
        if what in self.fails:
            return {"refused": self.fails[what]}
        if what == "go":
            assert self.mapping is not None
            true = time.monotonic_ns()
            error = self.mapping.cluster(self.local(true)) - true
            assert abs(error) <= self.mapping.bound_ns
            self.start_error_ns, self.at_ns, self.state = error, body["at_ns"], "running"
        elif what == "stop":
            self.stopped, self.state = self.state == "ready", "done"
            self.stopped_ns = self.stopped_ns or time.monotonic_ns()
        elif what == "report":
            return {"ok": self.report}
        elif what == "ports":
            return {"ok": {"ports": [{"interface": "eth1", "speed_bps": 10**9}]}}
        return {"ok": self.row()}

    def put(self, name: str, content: bytes, last: bool) -> dict[str, Any]:
        self.files.append(name)
        return {"ok": None}

    def row(self) -> dict[str, Any]:
        sent = self.state == "running" and (
            time.monotonic_ns() > self.at_ns + round(self.sends_s * 1e9)
        )
        return {"id": "r-1", "state": self.state, "sent_all": sent, "error": self.error}


class Simulated(Peer):
    """A peer without processes."""

    def __init__(self, engine: Engine, delay_s: float = 0.0005) -> None:
        self.engine, self.name, self.delay_s = engine, engine.name, delay_s
        self.rng = random.Random(engine.name)

    async def call(self, method: str, *arguments: Any, timeout: float) -> Any:
        if "gone" in self.engine.fails:
            raise NodeLost(self.name, "its process has ended", gone=True)
        try:
            return await asyncio.wait_for(self._answer(method, arguments), timeout)
        except asyncio.TimeoutError:
            raise NodeLost(self.name, f"no answer to {method} within {timeout:g} s") from None

    async def renew(self, ticket: int, every_s: float, heard: Callable[[Exchange], object]) -> None:
        assert ticket == 7
        while True:
            if not {"silent", "gone"} & set(self.engine.fails):
                c0, now = time.monotonic_ns(), self.engine.clock()
                self.engine.renewals += 1
                heard(Exchange(c0, *now, time.monotonic_ns()))
            await asyncio.sleep(every_s)

    async def _answer(self, method: str, arguments: tuple[Any, ...]) -> Any:
        await self._under_way()
        answer = getattr(self.engine, method)(*arguments)
        await self._under_way()
        return answer

    async def _under_way(self) -> None:
        await asyncio.sleep(self.rng.uniform(0.1, 1) * self.delay_s)
        while {"silent", "slow"} & set(self.engine.fails):
            await asyncio.sleep(0.02)

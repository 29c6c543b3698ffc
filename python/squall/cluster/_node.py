"""The processes of a node: its daemon, its clock, and the renewal of leases. Independent of Ray;
`_ray` makes an actor of `Node`.

A run's lease is renewed only by the controller's heartbeats and renewals: no timer of the node can
keep traffic alive. When they stop, the daemon ends the traffic within the lease.
"""

from __future__ import annotations

import os
import platform
import socket
import threading
import time
import urllib.parse
from typing import Any

from .._errors import Error, ServerError
from .._http import Http
from ._clocks import Mapping
from ._daemon import Daemon
from ._echo import Echo
from ._inventory import NodeEntry
from ._renewals import Renewals, is_late

__all__ = ["OVER", "Node", "Refused"]

#: States of a run that has ended.
OVER = ("done", "failed", "interrupted")


class Refused(Error):
    """A node's daemon refuses a request.

    Attributes
    ----------
    status : int
    code : str
    """

    def __init__(self, message: str, status: int, code: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


class _Skew:
    """This machine's clock, plus an artificial error.

    CLOCK_MONOTONIC is read here and not by a request to the daemon: both processes are on one
    machine and share that clock, and a request would only widen the error bound.
    """

    def __init__(self, offset_ns: int, drift_ppb: float) -> None:
        self.offset_ns, self.drift_ppb, self.since = offset_ns, drift_ppb, time.monotonic_ns()

    def now(self) -> int:
        local = time.monotonic_ns()
        return local + self.offset_ns + round(self.drift_ppb * 1e-9 * (local - self.since))

    def engine(self, mapping: Mapping) -> Mapping:
        """Convert a mapping of this clock to a mapping of the engine's clock."""
        if not self.offset_ns and not self.drift_ppb:
            return mapping
        return mapping.perturbed(self.offset_ns, self.drift_ppb, self.since)


class Node:
    """A node, as called by its controller. Answers are plain values, also refusals, because not
    every exception can be sent between processes.
    """

    def __init__(
        self,
        entry: NodeEntry,
        lease_s: float,
        ports: tuple[str, ...] = (),
        address: str = "127.0.0.1",
    ) -> None:
        self.entry, self.lease_s = entry, lease_s
        self._clock = _Skew(entry.clock_offset_ns, entry.clock_drift_ppb)
        #: A message that was in transit for longer renews nothing: its controller may have died.
        self._limit_ns = lease_s * 0.5e9
        self._renewals = Renewals(self._limit_ns)
        #: Runs with a pending renewal that is not yet passed on to the daemon.
        self._asked: set[str] = set()
        self._wake, self._ended = threading.Condition(), False
        self._echo = Echo(address, entry.clock_port, self._clock.now, self._renewed)
        self._daemon = Daemon(entry.squall, entry.data, lease_s, (*entry.allow, *ports))
        # With a short timeout: a daemon that hangs must not delay the heartbeat that would detect
        # it.
        self._quick = Http(self._daemon.http.url, self._daemon.http.token, None, lease_s / 2)
        self._check_clock()
        #: Time of the controller's last heartbeat.
        self.last_heartbeat_s = time.monotonic()
        threading.Thread(target=self._pass_on, name="renewals", daemon=True).start()

    def hello(self) -> dict[str, Any]:
        """Return name, machine and version of the node."""
        return {
            "node": self.entry.name,
            "host": socket.gethostname(),
            "kernel": platform.release(),
            "cpus": len(os.sched_getaffinity(0)),
            "pid": os.getpid(),
            "daemon_pid": self._daemon.process.pid,
            "version": self._daemon.info.get("version"),
            "data": str(self._daemon.data),
            "lease_s": self.lease_s,
            "alive": self._daemon.alive(),
            "echo": self._echo.where,
        }

    def clock(self) -> tuple[int, int]:
        """Return the node's times of the question's arrival and of the answer's departure."""
        now = self._clock.now()
        self.last_heartbeat_s = time.monotonic()
        return now, now

    def beat(
        self, sent_ns: int, run: str | None = None, mapping: Mapping | None = None
    ) -> dict[str, Any]:
        """Handle a heartbeat: renew the lease of `run`, update its clock, and return its state.

        A heartbeat that was in transit for too long renews nothing: its controller may have died.
        """
        came = self._clock.now()
        self.last_heartbeat_s = time.monotonic()
        late = mapping is not None and is_late(mapping, sent_ns, came, self._limit_ns)
        answer: dict[str, Any] = {"n_in": came, "late": late, "alive": self._daemon.alive()}
        if run is not None and not late:
            answer.update(self._renew(run, mapping))
        answer["n_out"] = self._clock.now()
        return answer

    def ask(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """Forward a request to the daemon: ``{"ok": JSON}`` or ``{"refused": (message, status,
        code)}``."""
        return self._answer(self._daemon.http, method, path, body)

    def start(self, body: dict[str, Any], mapping: Mapping | None) -> dict[str, Any]:
        """Start a run. From now on its lease is renewed by `beat`, and by renewals with the
        `ticket` in the answer."""
        clock = {} if mapping is None else {"clock": self._clock.engine(mapping).table()}
        answer = self.ask("POST", "/runs", {**body, **clock, "ttl_s": self.lease_s})
        if "ok" in answer and mapping is not None:
            answer["ticket"] = self._renewals.add(answer["ok"]["run"]["id"], mapping)
        return answer

    def put(self, name: str, content: bytes, last: bool) -> dict[str, Any]:
        """Store a file that profiles can refer to. It arrives in pieces, because Ray's object
        memory is small."""
        path = self._daemon.data / f"upload-{urllib.parse.quote(name, safe='')}"
        with path.open("ab") as file:
            file.write(content)
        if not last:
            return {"ok": None}
        try:
            with path.open("rb") as file:
                target = f"/squall/v1/files/{urllib.parse.quote(name)}"
                self._daemon.http.send("PUT", target, upload=file)
        except ServerError as error:
            return {"refused": (str(error), error.status, error.code)}
        finally:
            path.unlink()
        return {"ok": None}

    def log(self, offset: int) -> bytes:
        """Return the daemon's log from `offset` on, at most 1 MB."""
        with self._daemon.log.open("rb") as file:
            file.seek(offset)
            return file.read(1 << 20)

    def end(self) -> None:
        """End the daemon, and all traffic with it."""
        self._echo.close()
        with self._wake:
            self._ended = True
            self._wake.notify()
        self._quick.close()
        self._daemon.end()

    def _renew(self, run: str, mapping: Mapping | None) -> dict[str, Any]:
        if mapping is not None:
            self._renewals.measured(run, mapping)
            clock = self._clock.engine(mapping).table()
            self._answer(self._quick, "PUT", f"/runs/{run}/clock", clock)
        answer = self._answer(self._quick, "GET", f"/runs/{run}/stats")
        if "ok" not in answer:
            return {"refused": answer["refused"]}
        stats = answer["ok"]
        # The report so far stays on the node: with many streams it is large.
        return {"run": stats["run"], "now": _now(stats["sample"], stats["report"])}

    def _renewed(self, ticket: int, sent_ns: int, came_ns: int) -> None:
        """Handle a renewal. Another thread calls the daemon, because the answer must leave at the
        time that it reports."""
        run = self._renewals.accept(ticket, sent_ns, came_ns)
        if run is not None:
            self.last_heartbeat_s = time.monotonic()
            with self._wake:
                self._asked.add(run)
                self._wake.notify()

    def _pass_on(self) -> None:
        """Pass renewals on to the daemon, where any request for a run renews its lease. Those that
        arrive while the daemon is busy are combined."""
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._asked or self._ended)
                if self._ended:
                    return
                runs, self._asked = self._asked, set()
            for run in runs:
                answer = self._answer(self._quick, "GET", f"/runs/{urllib.parse.quote(run)}")
                if "ok" in answer and answer["ok"]["state"] in OVER:
                    self._renewals.remove(run)

    def _answer(self, http: Http, method: str, path: str, body: Any = None) -> dict[str, Any]:
        try:
            reply = http.send(method, f"/squall/v1{path}", body)
            return {"ok": reply.json() if reply.body else None}
        except ServerError as error:
            gone = "" if self._daemon.alive() else f"\n  {self._daemon.last_words()}"
            return {"refused": (f"{error}{gone}", error.status, error.code)}
        except Error as error:
            return {"refused": (str(error), 400, type(error).__name__)}

    def _check_clock(self) -> None:
        """Check that the daemon reads the same clock as this process: a time namespace could shift
        either."""
        before = time.monotonic_ns()
        engine = self._daemon.ask("GET", "/clock")["monotonic_ns"]
        after = time.monotonic_ns()
        if not before <= engine <= after:
            self.end()
            raise Error(
                f"node {self.entry.name!r}: the clock of its daemon differs by about"
                f" {(engine - after) / 1e9:.3f} s from that of its Ray worker\n"
                "  try both in one time namespace (one container)"
            )


def _now(sample: dict[str, Any] | None, report: dict[str, Any] | None) -> dict[str, Any]:
    """Return the part of a node's state for the live view: rates and counts."""
    ports = (report or {}).get("ports", [])
    rates = (sample or {}).get("ports", [])
    streams = (sample or {}).get("streams", [])
    return {
        "tx_pps": sum(port["tx_pps"] for port in rates),
        "rx_pps": sum(port["rx_pps"] for port in rates),
        "tx_packets": sum(port["tx"]["packets"] for port in ports),
        "rx_packets": sum(port["rx"]["packets"] for port in ports),
        "lost": sum(stream["lost"] for stream in streams),
    }

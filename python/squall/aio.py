"""Sessions of a daemon for asyncio: `connect`. Methods that wait for the daemon are coroutines;
everything else is as with `squall.connect`, which is blocking.

>>> import squall.aio
>>> async def web(url: str) -> int:
...     async with await squall.aio.connect(url) as client:
...         report = await client.run("web.toml")
...     return report.streams["web"].rx.lost
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import decimal
import json
import os
import pathlib
import threading
import time
import urllib.parse
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, Protocol, TypeVar

from . import _keywords
from ._http import Http, Reply, Verify
from ._options import RunOptions
from ._profile import Frame, Profile, Stream, Vary, _plain
from ._generated import HostDetail, HostPage, Sample
from ._report import Report
from ._routers import RouterControl
from ._session import Interrupted, Progress
from ._values import read
from ._errors import Error, PortError, ServerError
from .test import Result

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = [
    "Client",
    "DaemonPort",
    "InventoryInfo",
    "Lease",
    "LeaseInfo",
    "Run",
    "RunInfo",
    "Session",
    "StoredFile",
    "Test",
    "connect",
]

T = TypeVar("T")
Path = str | os.PathLike[str]

API = "/squall/v1"
DEFAULT_URL = "https://127.0.0.1:8443"
#: Interval in seconds at which the end of a run is polled. The first is short, because most runs in
#: tests are short.
POLL_FIRST_S, POLL_INTERVAL_S = 0.02, 0.25


class Channel(Protocol):
    """How requests are sent and how to wait: blocking, or with an event loop. All other logic is
    shared by both, and is in this module."""

    http: Http

    async def send(self, method: str, path: str, body: Any = None, **more: Any) -> Reply: ...
    async def sleep(self, seconds: float) -> None: ...


class Held(Protocol):
    """A lease known only by its ID."""

    @property
    def id(self) -> str: ...


class _ThreadChannel:
    """Sends requests on threads, so they do not block the event loop."""

    def __init__(self, http: Http) -> None:
        self.http = http

    async def send(self, method: str, path: str, body: Any = None, **more: Any) -> Reply:
        return await asyncio.to_thread(self.http.send, method, path, body, **more)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@dataclasses.dataclass(frozen=True)
class RunInfo:
    """A run as listed by the daemon, live or from the history.

    Attributes
    ----------
    id, name : str
    kind : str
        ``streams``, ``replay``, ``flows``, ``attacks``, ``capture``, ``otg`` or ``test``.
    state : str
        ``starting``, ``ready`` (held until `Run.go`), ``running``, ``paused``, ``stopping``,
        ``done``, ``failed`` or ``interrupted``.
    verdict : dict or None
        As in a report: whether the results can be trusted.
    passed : bool or None
        Result of the `fail_if` conditions; None if there are none.
    error : str or None
    owner, lease : str or None
    started, ended : str or None
        RFC 3339.
    elapsed_s, duration_s : float or None
    ports : tuple of dict
        ``name`` and ``address``.
    streams : int
    mult : float or None
        Factor on the profile's rates; None if a total rate was requested.
    sent_all : bool or None
        All of its own frames are sent; it continues to receive those of other nodes.
    lapses : int or None
        Number of times that its lease expired and its traffic was paused.
    test : dict or None
        Progress of a standard test: as in `Test.progress`.
    cluster : dict or None
        For a run on several machines: ``inventory``, ``t_s`` since the start, rates and counts of
        all nodes together (``all``), and of each (``nodes``) with its ``state``, ``why`` if it is
        lost, and ``clock_bound_ns``.
    """

    id: str
    name: str
    kind: str
    state: str
    verdict: Mapping[str, Any] | None
    passed: bool | None
    error: str | None
    owner: str | None
    lease: str | None
    started: str | None
    ended: str | None
    elapsed_s: float | None
    duration_s: float | None
    ports: tuple[Mapping[str, str], ...]
    streams: int | None
    mult: float | None
    sent_all: bool | None
    lapses: int | None
    test: Mapping[str, Any] | None
    cluster: Mapping[str, Any] | None

    @property
    def over(self) -> bool:
        """Whether the run has ended."""
        return self.state in ("done", "failed", "interrupted")


@dataclasses.dataclass(frozen=True)
class LeaseInfo:
    """A lease: its owner, its ports, and when it expires unless renewed."""

    id: str
    owner: str | None
    ports: tuple[str, ...]
    ttl_s: float | None
    expires_s: float | None


@dataclasses.dataclass(frozen=True)
class DaemonPort:
    """A port of the daemon's machine.

    Attributes
    ----------
    address : str
        Port address as in profiles: ``"af_packet:eth1"``.
    interface, kind, mac, note : str or None
    state : str
        ``up``, ``down`` or ``unknown``.
    mtu, speed_bps : int or None
    backends : tuple of str
    lease : dict or None
        ``id``, ``owner`` and ``expires_s``.
    run : str or None
        The run that uses the port.
    """

    address: str
    interface: str | None
    kind: str | None
    state: str | None
    mac: str | None
    mtu: int | None
    speed_bps: int | None
    backends: tuple[str, ...]
    lease: Mapping[str, Any] | None
    run: str | None
    note: str | None


@dataclasses.dataclass(frozen=True)
class InventoryInfo:
    """An inventory of the daemon: nodes for runs on several machines.

    Attributes
    ----------
    name : str
    nodes : tuple of str
    ports : tuple of dict
        ``name``, and the ``places`` where it is: ``"NODE/ADDRESS"``.
    """

    name: str
    nodes: tuple[str, ...]
    ports: tuple[Mapping[str, Any], ...]


@dataclasses.dataclass(frozen=True)
class StoredFile:
    """A file stored by the daemon: ``name``, ``size`` in bytes, ``modified`` (RFC 3339), ``kind``."""

    name: str
    size: int
    modified: str | None
    kind: str | None


def _known(kind: type[T], table: Mapping[str, Any]) -> T:
    """Convert a daemon's response to a dataclass: newer daemons send additional fields, older ones
    fewer."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        value = table.get(field.name)
        values[field.name] = tuple(value or ()) if str(field.type).startswith("tuple") else value
    return kind(**values)


class _Keeper:
    """Renews leases on a separate thread, each as long as its holder is referenced."""

    def __init__(self, http: Http) -> None:
        self._http = http
        self._held: dict[str, tuple[weakref.ref[Any], float, float]] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def hold(self, lease: str, holder: object, ttl_s: float) -> None:
        """Renew `lease` three times per lifetime, until `holder` is garbage-collected or `drop` is
        called."""
        with self._lock:
            self._held[lease] = (weakref.ref(holder), ttl_s / 3, time.monotonic() + ttl_s / 3)
            if self._thread is None:
                # The thread holds no reference to clients, and ends with the last lease.
                self._thread = threading.Thread(
                    target=self._renew, name="squall-leases", daemon=True
                )
                self._thread.start()
        self._wake.set()

    def drop(self, lease: str | None) -> None:
        with self._lock:
            if lease is not None:
                self._held.pop(lease, None)
        self._wake.set()

    def _renew(self) -> None:
        while True:
            self._wake.clear()
            with self._lock:
                now = time.monotonic()
                self._held = {
                    key: held for key, held in self._held.items() if held[0]() is not None
                }
                if not self._held:
                    self._thread = None
                    return
                due = [key for key, (_, _, at) in self._held.items() if at <= now]
                for key in due:
                    holder, every, _ = self._held[key]
                    self._held[key] = (holder, every, now + every)
                # Wake up at least every 5 s, so a lease whose holder is gone is not renewed for
                # long.
                wait = min(min(at for _, _, at in self._held.values()) - now, 5.0)
            for key in due:
                try:
                    self._http.send("POST", f"{API}/leases/{_quoted(key)}/renew")
                except ServerError as error:
                    # The lease has expired, or its run is over. An unreachable daemon is retried:
                    # it may respond again before the lease expires.
                    if error.status:
                        self.drop(key)
                except Error:
                    self.drop(key)
            self._wake.wait(max(wait, 0.01))


class Client:
    """A connection to a daemon, made by `connect`. As a context manager, it closes the connection
    on exit and releases the leases.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._keeper = _Keeper(channel.http)
        self._leases: dict[str, weakref.ref[Lease]] = {}
        self.url = channel.http.url
        #: The daemon's version at the time of the connection.
        self.version = ""
        self._lease_s = 30.0

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Release the leases acquired by this client, and close its connections. Runs that have a
        lease of their own continue until it expires.
        """
        held, self._leases = self._leases, {}
        for reference in held.values():
            lease = reference()
            if lease is not None:
                with contextlib.suppress(Error):
                    await lease.release()
        self._channel.http.close()

    async def _ask(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        reply = await self._channel.send(method, API + path, body, **more)
        return reply.json() if reply.body else None

    async def _hello(self) -> None:
        info = await self.info()
        if not info.get("authorized", True):
            raise ServerError(
                f"{self.url} needs a token\n  try token=, or set SQUALL_TOKEN to the contents of the daemon's token file",
                401,
                "unauthorized",
            )
        self.version = str(info.get("version", ""))
        self._lease_s = float(info.get("lease_s") or self._lease_s)

    async def info(self) -> dict[str, Any]:
        """Return information about the daemon: ``version``, ``uptime_s``, ``lease_s``, ``otg``
        ..."""
        table: dict[str, Any] = await self._ask("GET", "/info")
        return table

    # Runs

    def session(
        self,
        profile: Profile | Path,
        *,
        name: str | None = None,
        lease: Held | str | None = None,
        detached: bool = False,
        ttl: float | None = None,
        fail_if: Sequence[str] = (),
        node: str | None = None,
        cluster_clock: Mapping[str, float] | None = None,
        hold: bool = False,
        nodes: str | None = None,
        on_loss: str | None = None,
        **options: Unpack[RunOptions],
    ) -> Session:
        """Create a profile with options for its runs on the daemon; see also `squall.Session`.

        Parameters
        ----------
        profile : Profile or path
            A path is that of a local file; files named in the profile are those of the daemon
            (`upload`).
        name : str, optional
            Name of the run in the history.
        lease : Lease or its id, optional
            A lease that includes the ports. Default: the run has its own lease, which is renewed as
            long as the `Run` object exists.
        detached : bool
            The run continues to its end without a client, so it must have an end.
        ttl : seconds, optional
            How long the run's own lease lasts after its last renewal. Default: the daemon's
            setting.
        fail_if : sequence of str
            Conditions that must not hold at the end: ``["loss > 0"]``. The result is in `RunInfo`.
        node : str, optional
            Name of this node in the report, if several daemons share the run.
        cluster_clock : mapping, optional
            The common clock of these daemons: ``shift_ns``, ``drift_ppb``, ``at_ns``, ``bound_ns``.
            Common time is local time (`Client.clock`), plus the shift, plus the drift times the
            time since `at_ns`. The bound is the maximum error of the result.
        hold : bool
            Open the ports, then wait for `Run.go` before sending.
        nodes : str, optional
            Run on the nodes of this inventory of the daemon (`inventories`), whose port names match
            those of the profile. `RunInfo.cluster` then has the rates and counts of all nodes
            together (``all``) and of each (``nodes``).
        on_loss : str, optional
            If a node is lost: ``end`` the run on all nodes (default), ``continue`` on the others, or
            ``resume``, which also continues on the node when it is reached again.
        **options
            As in `squall.Session`: see `RunOptions`. File names are those of the daemon.
        """
        body: dict[str, Any] = {
            **_profile(profile),
            "name": name,
            "owner": _owner(),
            "lease": _id(lease),
            "detached": detached or None,
            "ttl_s": ttl,
            "fail_if": list(fail_if) or None,
            "node": node,
            "clock": dict(cluster_clock) if cluster_clock is not None else None,
            "hold": hold or None,
            "nodes": nodes,
            "on_loss": on_loss,
            "options": _plain(options) or None,
        }
        return Session(self, "/runs", _given(body))

    async def inventories(self) -> tuple[InventoryInfo, ...]:
        """Return the daemon's inventories, on whose nodes runs are possible: see `session`."""
        rows = (await self._ask("GET", "/inventories"))["inventories"]
        return tuple(_known(InventoryInfo, row) for row in rows)

    async def clock(self) -> tuple[int, int]:
        """Read the clock that the daemon's runs use, and its wall clock.

        Returns
        -------
        tuple of int
            Nanoseconds of ``CLOCK_MONOTONIC``, and since 1970-01-01 UTC, read just before the
            response is sent.
        """
        now = await self._ask("GET", "/clock")
        return int(now["monotonic_ns"]), int(now["unix_ns"])

    async def run(
        self,
        profile: Profile | Path,
        *,
        every: float = 0.5,
        progress: Progress | None = None,
        **more: Any,
    ) -> Report:
        """Run a profile to its end. `more` is as in `session`."""
        return await self.session(profile, **more).run(every=every, progress=progress)

    async def send(
        self,
        port: str,
        packet: Frame,
        *,
        rate: float | str,
        count: int | None = None,
        size: int | str | Iterable[int] | Mapping[str, Any] | None = None,
        segment: int | None = None,
        vary: Iterable[Vary] | None = None,
        latency: bool = False,
        progress: Progress | None = None,
        **more: Any,
    ) -> Report:
        """Send frames of one kind on one port, like `squall.send`. `more` is as in `session`."""
        stream = Stream(
            packet=packet,
            rate=rate,
            size=size,
            segment=segment,
            vary=vary,
            latency=latency,
            mode=None if count is None else {"burst": count},
        )
        profile = Profile(ports={"A": port}, streams=[stream])
        return await self.run(profile, progress=progress, **more)

    def capture(
        self,
        port: str | Iterable[str],
        *,
        file: str | None = None,
        filter: str | None = None,
        duration_s: float | None = None,
        lease: Held | str | None = None,
        **more: Any,
    ) -> Session:
        """Create a capture session: start it, send, stop it, `finish`; the file is then among
        `files`.

        Parameters
        ----------
        port : str or iterable of str
        file : str, optional
            Name of the file on the daemon.
        filter : str, optional
            Capture only matching packets (tcpdump syntax).
        duration_s, lease
            As in `squall.capture` and `session`.
        **more
            Options of a capture (`squall.CaptureOptions`), and ``name`` and ``received_flows`` of
            the daemon's API.
        """
        body = {
            "ports": [port] if isinstance(port, str) else list(port),
            "owner": _owner(),
            "file": file,
            "filter": filter,
            "duration_s": duration_s,
            "lease": _id(lease),
            **_plain(more),
        }
        return Session(self, "/captures", _given(body))

    async def start_test(
        self,
        method: str,
        profile: Profile | Path | None = None,
        *,
        name: str | None = None,
        lease: Held | str | None = None,
        detached: bool = False,
        ttl: float | None = None,
        **more: Any,
    ) -> Test:
        """Start a standard test in the daemon.

        Parameters
        ----------
        method : str
            ``"rfc2544"``, ...
        profile : Profile or path, optional
            Default: UDP, or flows, between `ports`.
        name, lease, detached, ttl
            As in `session`.
        **more
            ``ports`` (addresses by name), ``max_rate``, ``quick``, ``repeats``, ``rest``,
            ``journal`` (a file of the daemon) and ``options`` are as in `squall.test.run`; all
            others are settings of the method.

        Raises
        ------
        ProfileError
            A setting is unknown or invalid, or the profile lacks a part that the method needs.
        PortError
            A port is leased by another holder.
        """
        body = {
            **_test(method, profile, more),
            "name": name,
            "owner": _owner(),
            "lease": _id(lease),
            "detached": detached or None,
            "ttl_s": ttl,
        }
        given = _given(body)
        table = await self._ask("POST", "/tests", given)
        own = lease is None and not detached
        return Test(Run(self, table["run"], renewed=own, ttl=ttl))

    async def test(
        self,
        method: str,
        profile: Profile | Path | None = None,
        *,
        every: float = 0.5,
        progress: Callable[[Mapping[str, Any]], object] | None = None,
        **more: Any,
    ) -> Result:
        """Run a standard test on the daemon to its end. `more` is as in `start_test`.

        Parameters
        ----------
        every : seconds
            Interval between calls of `progress`.
        progress : callable, optional
            Called with the result of `Test.progress`.
        """
        test = await self.start_test(method, profile, **more)
        try:
            while not await test.wait(every):
                if progress is not None:
                    progress(await test.progress())
            return await test.finish()
        except BaseException:
            if not more.get("detached"):
                with contextlib.suppress(Error):
                    await test.stop()
            raise

    async def estimate_test(
        self, method: str, profile: Profile | Path | None = None, **more: Any
    ) -> dict[str, Any]:
        """Estimate ``trials`` and ``seconds`` of a standard test of a device that carries half of
        the highest rate. `more` is as in `start_test`. Nothing is sent.
        """
        body = _test(method, profile, more)
        given = _given(body)
        table: dict[str, Any] = await self._ask("POST", "/tests/estimate", given)
        return table

    async def runs(
        self,
        *,
        state: str | None = None,
        kind: str | None = None,
        q: str | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> tuple[RunInfo, ...]:
        """List live and ended runs, newest first.

        Parameters
        ----------
        state, kind : str, optional
            Only runs in this state or of this kind.
        q : str, optional
            Only runs with this text in their names.
        before : str, optional
            Only runs older than the one with this ID; for paging, that of the last run of a page.
        limit : int
        """
        asked = {"state": state, "kind": kind, "q": q, "before": before, "limit": limit}
        return tuple(
            _known(RunInfo, run) for run in (await self._ask("GET", "/runs", query=asked))["runs"]
        )

    async def attach(self, id: str) -> Run:
        """Return a live or ended run. It continues when the object is discarded."""
        return Run(self, await self._ask("GET", f"/runs/{_quoted(id)}"), renewed=False)

    async def report(self, id: str) -> Report:
        """Fetch the report of a run, also from the history."""
        reply = await self._channel.send("GET", f"{API}/runs/{_quoted(id)}/report")
        return Report.from_json(reply.body.decode())

    async def rename(self, id: str, name: str | None = None, note: str | None = None) -> RunInfo:
        """Change the name or the note of a run."""
        body = {
            key: value for key, value in {"name": name, "note": note}.items() if value is not None
        }
        return _known(RunInfo, await self._ask("PATCH", f"/runs/{_quoted(id)}", body))

    async def forget(self, id: str) -> None:
        """Remove an ended run from the history."""
        await self._ask("DELETE", f"/runs/{_quoted(id)}")

    # Ports and leases

    async def ports(self) -> tuple[DaemonPort, ...]:
        """List the ports of the daemon's machine, and their leases."""
        return tuple(
            _known(DaemonPort, port) for port in (await self._ask("GET", "/ports"))["ports"]
        )

    async def leases(self) -> tuple[LeaseInfo, ...]:
        """List all leases, including those of other users."""
        return tuple(
            _known(LeaseInfo, lease) for lease in (await self._ask("GET", "/leases"))["leases"]
        )

    async def acquire(
        self, *ports: str, owner: str | None = None, ttl: float | None = None, force: bool = False
    ) -> Lease:
        """Lease ports for later runs. The lease is renewed in the background until it is released
        or the process ends.

        Parameters
        ----------
        *ports : str
            Addresses.
        owner : str, optional
            Name of the holder, as shown to others. Default: user and host.
        ttl : seconds, optional
            How long the lease lasts after its last renewal. Default: the daemon's setting.
        force : bool
            Take the ports from their holder, and stop the run that uses them.

        Raises
        ------
        PortError
            A port is leased by another holder; the message names it.
        """
        if force:
            await self.release(*ports)
        body = {"ports": list(ports), "owner": owner or _owner(), "ttl_s": ttl}
        body = _given(body)
        lease = Lease(self, _known(LeaseInfo, await self._ask("POST", "/leases", body)))
        self._leases[lease.id] = weakref.ref(lease)
        return lease

    async def release(self, *ports: str) -> None:
        """Revoke the leases of ports. A run that uses them stops."""
        await self._ask("POST", "/leases/release", {"ports": list(ports)})

    # Files

    async def files(self) -> tuple[StoredFile, ...]:
        """List the files that the daemon's profiles, replays and attacks can use, and the captures
        that it wrote.
        """
        return tuple(
            _known(StoredFile, file) for file in (await self._ask("GET", "/files"))["files"]
        )

    async def upload(self, file: Path, name: str | None = None) -> str:
        """Upload a file to the daemon. Return its name there.

        Parameters
        ----------
        file : path
        name : str, optional
            Default: the base name of the file.
        """
        name = name or pathlib.Path(file).name
        with open(file, "rb") as source:
            await self._channel.send("PUT", f"{API}/files/{_quoted(name)}", upload=source)
        return name

    async def download(self, name: str, to: Path | None = None) -> pathlib.Path:
        """Download a file of the daemon. Return its local path.

        Parameters
        ----------
        name : str
        to : path, optional
            A file or a directory. Default: the current directory.
        """
        target = pathlib.Path(to) if to is not None else pathlib.Path()
        if target.is_dir():
            target /= pathlib.PurePosixPath(name).name
        # Write to a temporary name in the same directory and rename at the end, so `target` is
        # never incomplete.
        part = target.with_name(target.name + ".part")
        try:
            with part.open("wb") as sink:
                await self._channel.send("GET", f"{API}/files/{_quoted(name)}", into=sink)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
        return target

    async def remove(self, name: str) -> None:
        """Delete a file of the daemon."""
        await self._ask("DELETE", f"/files/{_quoted(name)}")

    async def packets(
        self, file: str, *, first: int = 0, count: int = 100, filter: str | None = None
    ) -> dict[str, Any]:
        """List packets of a capture stored by the daemon: ``total``, and ``packets`` with ``n``,
        ``t_s``, ``len``, ``source``, ``destination``, ``protocol`` and ``info``.
        """
        query = {"from": first, "count": count, "filter": filter}
        table: dict[str, Any] = await self._ask(
            "GET", f"/captures/{_quoted(file)}/packets", query=query
        )
        return table

    # Profiles and attacks

    async def check(self, profile: Profile | Path) -> dict[str, Any]:
        """Check a profile on the daemon: ``ok``, ``problems``, ``profile``, ``summary``."""
        table: dict[str, Any] = await self._ask("POST", "/profiles/check", _profile(profile))
        return table

    async def plan(self, profile: Profile | Path) -> str:
        """Return the plan of a profile, in the form that ``squall plan`` prints."""
        return str((await self._ask("POST", "/plan", _profile(profile)))["text"])

    async def solve(self, rules: str, *, every: float = 0.2, **options: Any) -> dict[str, Any]:
        """Solve intrusion detection rules: find the attacks that can be made from them, and the
        reason why the other rules cannot be solved.

        Parameters
        ----------
        rules : str
            Rule text, or the name of a file of the daemon.
        every : seconds
            Interval between requests for the result.
        **options
            As in the daemon's API.

        Returns
        -------
        dict
            ``counts``, and ``rules`` with ``sid``, ``msg``, ``solved``, ``why`` ...
        """
        given = {"rules": rules} if "(" in rules else {"file": rules}
        job = (await self._ask("POST", "/attacks/solve", {**given, "options": options}))["job"]
        while True:
            table: dict[str, Any] = await self._ask("GET", f"/attacks/jobs/{_quoted(str(job))}")
            if table.get("state") in ("done", "failed"):
                return table
            await self._channel.sleep(every)

    async def score(self, labels: str, alerts: str) -> dict[str, Any]:
        """Compare alerts to the ground truth of attacks. Both arguments name files of the
        daemon."""
        table: dict[str, Any] = await self._ask(
            "POST", "/attacks/score", {"labels": labels, "alerts": alerts}
        )
        return table


class Lease:
    """Leased ports, from `Client.acquire`. As a context manager, it releases them on exit."""

    def __init__(self, client: Client, info: LeaseInfo) -> None:
        self._client = client
        self.id = info.id
        self.owner = info.owner
        self.ports = info.ports
        self.ttl_s = info.ttl_s or client._lease_s
        client._keeper.hold(self.id, self, self.ttl_s)

    async def __aenter__(self) -> Lease:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.release()

    async def renew(self) -> None:
        """Renew the lease now. It is also renewed in the background, three times per lifetime."""
        await self._client._ask("POST", f"/leases/{_quoted(self.id)}/renew")

    async def release(self) -> None:
        """Release the ports; runs that use them stop. Further calls have no effect."""
        self._client._keeper.drop(self.id)
        self._client._leases.pop(self.id, None)
        with contextlib.suppress(ServerError):
            await self._client._ask("DELETE", f"/leases/{_quoted(self.id)}")


class Session:
    """A profile with options for its runs on the daemon, from `Client.session`.

    As a context manager, it ends unfinished runs on exit, except detached ones.
    """

    def __init__(self, client: Client, path: str, body: dict[str, Any]) -> None:
        self._client = client
        self._path = path
        self._body = body
        self._runs: weakref.WeakSet[Run] = weakref.WeakSet()

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._body.get("detached"):
            return
        for run in list(self._runs):
            try:
                await run.close()
            except Exception:
                # Do not let an error in closing the runs replace one raised in the block.
                if kind is None:
                    raise

    async def start(self) -> Run:
        """Start the run: the daemon opens the ports and starts.

        Raises
        ------
        ProfileError
            The profile has errors.
        PortError
            A port cannot be opened, or is leased by another holder.
        """
        table = await self._client._ask("POST", self._path, self._body)
        own = "lease" not in self._body and not self._body.get("detached")
        run = Run(self._client, table.get("run", table), renewed=own, ttl=self._body.get("ttl_s"))
        self._runs.add(run)
        return run

    async def run(self, *, every: float = 0.5, progress: Progress | None = None) -> Report:
        """Start, wait for the end that the profile sets, and return the report.

        Raises
        ------
        Interrupted
            Ctrl-C, without asyncio: a `KeyboardInterrupt` with the report so far. A task that is
            canceled stops the run, and is canceled.
        """
        async with self:
            run = await self.start()
            try:
                while not await run.wait(every):
                    if progress is not None:
                        progress(await run.sample())
            except KeyboardInterrupt as interrupt:
                await run.stop()
                raise Interrupted(await run.finish()) from interrupt
            return await run.finish()


class Run:
    """A run of the daemon, from `Session.start` or `Client.attach`.

    It has the methods of `squall.Run`. The run's lease is renewed as long as this object exists;
    after the process dies, the daemon stops the run.
    """

    def __init__(
        self, client: Client, table: Mapping[str, Any], *, renewed: bool, ttl: float | None = None
    ) -> None:
        self._client = client
        self._info = _known(RunInfo, table)
        self._report: Report | None = None
        if renewed and self._info.lease and not self._info.over:
            client._keeper.hold(self._info.lease, self, ttl or client._lease_s)

    @property
    def id(self) -> str:
        """The run's ID on the daemon."""
        return self._info.id

    async def info(self) -> RunInfo:
        """Return the current state of the run."""
        self._info = _known(RunInfo, await self._ask("GET", ""))
        if self._info.over:
            self._client._keeper.drop(self._info.lease)
        return self._info

    async def elapsed_s(self) -> float:
        """Return the seconds since the run was started."""
        return float((await self.info()).elapsed_s or 0.0)

    async def sample(self) -> Sample:
        """Return the latest rates, which the daemon samples four times per second. Empty before the
        first sample.
        """
        table = (await self._ask("GET", "/stats"))["sample"]
        if table is None:
            table = {"t_s": 0.0, "ports": [], "streams": [], "capture": None, "flows": []}
        return read(Sample, table)

    async def samples(self, every: float = 0.5) -> AsyncIterator[Sample]:
        """Yield each sample once, until the run is over."""
        last = None
        while not await self.wait(every):
            sample = await self.sample()
            if sample.t_s != last:
                last = sample.t_s
                yield sample

    async def report(self) -> Report:
        """Return the report so far, without series."""
        end = time.monotonic() + 5
        while True:
            report = (await self._ask("GET", "/stats"))["report"]
            if report is not None:
                return Report.from_json(json.dumps(report))
            if time.monotonic() > end:
                raise ServerError(f"run {self.id}: the daemon has no report yet", 0, "no_report")
            await self._client._channel.sleep(POLL_FIRST_S)

    async def hosts(self, filter: str = "", *, offset: int = 0, limit: int = 100) -> HostPage:
        """Return the emulated hosts of the run in their present state.

        Parameters
        ----------
        filter : str
            Terms that must all match: ``state=bound``, ``group=subscribers``, ``number=17-40``,
            ``mac=02:00``, ``address=10.0.1.0/24``, ``failure=no_offer``. A text without a key may
            be in any of them. A value with spaces is in quotes: ``group="hosts 1"``.
        offset : int
            Number of matching hosts to skip.
        limit : int
            Maximum number of hosts, 1 to 10,000.

        Raises
        ------
        ServerError
            The filter has errors.
        """
        query = urllib.parse.urlencode({"filter": filter, "offset": offset, "limit": limit})
        return read(HostPage, await self._ask("GET", f"/hosts?{query}"))

    async def host(self, number: int, group: str | None = None) -> HostDetail:
        """Return host `number` (from 1) of a group, with its last events. `group` may be omitted
        if the run has only one.

        Raises
        ------
        ServerError
            There is no such host.
        """
        query = "" if group is None else "?" + urllib.parse.urlencode({"group": group})
        return read(HostDetail, await self._ask("GET", f"/hosts/{number}{query}"))

    async def pause(self, stream: str | None = None) -> None:
        """Pause a stream, a stream group, a template, or everything.

        Raises
        ------
        UnknownStream
            The message lists similar names.
        """
        await self._ask("POST", "/pause", {} if stream is None else {"stream": stream})

    async def resume(self, stream: str | None = None) -> None:
        """Resume a paused stream, stream group, template, or everything.

        Raises
        ------
        UnknownStream
            The message lists similar names.
        """
        await self._ask("POST", "/resume", {} if stream is None else {"stream": stream})

    def router(self, name: str) -> RouterControl[Coroutine[Any, Any, None]]:
        """Return the orders of a router of the run: ``await run.router("r1").withdraw("edge")``. Each
        order raises `ServerError` if there is no such router."""

        async def send(order: dict[str, Any]) -> None:
            await self._ask("POST", "/routers", {"router": name, **order})

        return RouterControl(send)

    async def change(self, profile: Profile | Path) -> None:
        """Switch the run to another profile with the same ports.

        Raises
        ------
        ProfileError
            The profile has errors; the run is unchanged.
        """
        await self._ask("POST", "/change", _profile(profile))

    async def multiply(self, by: float | str) -> None:
        """Set all rates to those of the profile times `by` (``2``, ``"50 %"``), or to a total rate
        (``"1 Mpps"``).

        Raises
        ------
        ProfileError
            The rates cannot be scaled by `by`; the run is unchanged.
        """
        if isinstance(by, int | float):
            # Without an exponent, which str() uses for small numbers (1e-05).
            by = format(decimal.Decimal(repr(by)), "f")
        await self._ask("POST", "/rate", {"mult": by})

    async def set_rate(self, stream: str, rate: float | str) -> None:
        """Set a stream's rate (``"1 Mpps"``; a number is in frames per second). The factor of
        `multiply` applies to it.

        Raises
        ------
        UnknownStream
            There is no such stream.
        ProfileError
            The rate is invalid, or a port cannot send it; the run is unchanged.
        """
        text = rate if isinstance(rate, str) else f"{rate} pps"
        await self._ask("POST", "/rate", {"stream": stream, "rate": text})

    async def set_load(
        self,
        template: str | None = None,
        *,
        cps: float | None = None,
        active: int | None = None,
        bandwidth: str | None = None,
        users: int | None = None,
        weight: int | None = None,
    ) -> None:
        """Change the load from now on, like `squall.Run.set_load`.

        Raises
        ------
        UnknownStream
            There is no such template.
        ProfileError
            The profile uses another kind; the run is unchanged.
        """
        asked = {
            "cps": cps,
            "active": active,
            "bandwidth": bandwidth,
            "users": users,
            "weight": weight,
        }
        given = _given(asked)
        if len(given) != 1:
            raise ValueError("expected exactly one of cps, active, bandwidth, users and weight")
        await self._ask("POST", "/rate", {"template": template, **given})

    async def trigger(self) -> None:
        """Trigger a capture that is waiting for its trigger."""
        await self._ask("POST", "/trigger")

    async def go(self, at_ns: int) -> None:
        """Start sending in a run that was started with ``hold=True``: the first frame is due when
        the clock of the run reads `at_ns`.

        Raises
        ------
        ServerError
            This time has passed (``too-late``), or the run is not held (``not-ready``).
        """
        await self._ask("POST", "/go", {"at_ns": at_ns})

    async def set_clock(self, clock: Mapping[str, float]) -> None:
        """Update the clock shared with other runs: see `Client.session`."""
        await self._ask("PUT", "/clock", dict(clock))

    async def stop(self) -> None:
        """Stop sending. `finish` then returns the report."""
        await self._ask("POST", "/stop")

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end, at most `timeout` seconds (None: no limit). Return whether the run has
        ended.
        """
        if timeout is not None and not timeout >= 0:
            raise ValueError(f"timeout = {timeout!r}: not a time to wait")
        end = None if timeout is None else time.monotonic() + timeout
        nap = POLL_FIRST_S
        while True:
            if self._report is not None or (await self.info()).over:
                return True
            left = POLL_INTERVAL_S if end is None else end - time.monotonic()
            if left <= 0:
                return False
            await self._client._channel.sleep(min(nap, left))
            nap = min(nap * 1.5, POLL_INTERVAL_S)

    async def finish(self) -> Report:
        """Wait for the end that the profile sets, and return the report. If it has no end, call
        `stop` first.

        Raises
        ------
        PortError
            The run failed without a report; the message has the reason.
        """
        if self._report is None:
            await self.wait()
            # Without a verdict there is no report: the run failed, or the daemon was killed before
            # its end.
            if self._info.verdict is None:
                raise PortError(
                    self._info.error or f"run {self.id} failed, and the daemon has no reason"
                )
            report = await self._client.report(self.id)
            # The daemon may list a run as ended shortly before its report is available.
            end = time.monotonic() + 1
            while report.duration_s != self._info.elapsed_s and time.monotonic() < end:
                await self._client._channel.sleep(POLL_FIRST_S)
                report = await self._client.report(self.id)
            self._report = report
        return self._report

    async def close(self) -> None:
        """End the run if it is still active. `finish` still returns the report."""
        if self._report is None:
            if not (await self.info()).over:
                with contextlib.suppress(ServerError):
                    # The run may end by itself before the request arrives.
                    await self.stop()
            await self.finish()

    async def html(self) -> str:
        """Return the report as one page with plots."""
        reply = await self._client._channel.send(
            "GET", f"{API}/runs/{_quoted(self.id)}/report.html"
        )
        return reply.body.decode()

    async def profile(self) -> str:
        """Return the text of the profile with which the run was started."""
        reply = await self._client._channel.send("GET", f"{API}/runs/{_quoted(self.id)}/profile")
        return reply.body.decode()

    async def _ask(self, method: str, path: str, body: Any = None) -> Any:
        return await self._client._ask(method, f"/runs/{_quoted(self.id)}{path}", body)


class Test:
    """A standard test of the daemon, from `Client.start_test`.

    As long as this object exists, the lease of its ports is renewed.
    """

    def __init__(self, run: Run) -> None:
        self._run = run

    @property
    def id(self) -> str:
        """The ID of the test's run on the daemon."""
        return self._run.id

    async def info(self) -> RunInfo:
        """Return the current state of the test's run."""
        return await self._run.info()

    async def progress(self) -> Mapping[str, Any]:
        """Return the progress: ``trial`` (its number), ``label``, ``estimate`` (``trials``,
        ``seconds``), ``bounds`` of the current search (``passed``, ``failed``: fractions of the
        highest load), ``latest`` trials and ``journal``.
        """
        return (await self._run.info()).test or {}

    async def result(self) -> Result:
        """Return the result so far; before the end, its status is ``stopped``."""
        path = f"{API}/runs/{_quoted(self.id)}/report"
        reply = await self._run._client._channel.send("GET", path)
        return Result(reply.body.decode())

    async def stop(self) -> None:
        """Stop the test. `finish` then returns the result so far."""
        await self._run.stop()

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end, at most `timeout` seconds (None: no limit). Return whether the test has
        ended.
        """
        return await self._run.wait(timeout)

    async def finish(self) -> Result:
        """Wait for the end, and return the result.

        Raises
        ------
        PortError
            The test failed without a result; the message has the reason.
        """
        await self.wait()
        info = await self.info()
        if info.verdict is None:
            raise PortError(info.error or f"test {self.id} failed, and the daemon has no reason")
        return await self.result()


async def connect(
    url: str = DEFAULT_URL,
    token: str | None = None,
    *,
    verify: Verify = None,
    timeout: float = 30.0,
) -> Client:
    """Connect to a daemon, like `squall.connect`, for asyncio.

    Raises
    ------
    ServerError
        No daemon answers, it has an unexpected certificate, or the token is wrong.
    """
    return await _connected(
        _ThreadChannel(await asyncio.to_thread(Http, url, token, verify, timeout))
    )


async def _connected(channel: Channel) -> Client:
    client = Client(channel)
    await client._hello()
    return client


def _profile(profile: Profile | Path) -> dict[str, Any]:
    """Return the profile as in a request: a file as its text, so that errors refer to its lines."""
    if isinstance(profile, Profile):
        return {"profile": profile._table()}
    path = pathlib.Path(profile)
    kinds = {".toml": "toml", ".yaml": "yaml", ".yml": "yaml", ".json": "json"}
    if path.suffix not in kinds:
        raise ValueError(
            f"profile {os.fspath(path)!r}: expected a file name that ends in {', '.join(kinds)}"
        )
    return {"profile": path.read_text(encoding="utf-8"), "format": kinds[path.suffix]}


def _test(method: str, profile: Profile | Path | None, more: dict[str, Any]) -> dict[str, Any]:
    """Encode a test for a request. Arguments of a single method become its settings."""
    settings = dict(more)
    names = ("ports", "max_rate", "quick", "repeats", "journal", "options")
    common = {name: settings.pop(name, None) for name in names}
    rest = settings.pop("rest", None)
    return {
        **({} if profile is None else _profile(profile)),
        **common,
        "rest_s": rest,
        "method": method,
        "settings": settings,
    }


def _given(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that are not None; the daemon has defaults for the others."""
    return {key: value for key, value in arguments.items() if value is not None}


def _id(lease: Held | str | None) -> str | None:
    return lease if lease is None or isinstance(lease, str) else lease.id


def _owner() -> str:
    import getpass
    import socket

    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (OSError, KeyError):
        return f"process {os.getpid()}"


def _quoted(part: str) -> str:
    return urllib.parse.quote(part, safe="")


globals().update(_keywords.name_the_nearest(globals(), "squall.aio"))

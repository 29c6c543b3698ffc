"""Sessions of a daemon: `squall.connect`. The classes have the methods of those in `squall.aio`,
but block until each result is available.

>>> import squall
>>> def lost(url: str) -> int:
...     with squall.connect(url) as client:
...         return client.run("web.toml").streams["web"].rx.lost
"""

from __future__ import annotations

import pathlib
import time
import types
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from . import _keywords, aio
from ._http import Http, Reply, Verify
from ._options import RunOptions
from ._profile import Frame, Profile, Vary
from ._generated import HostDetail, HostPage, Sample
from ._report import Report
from ._routers import RouterControl
from ._session import Progress
from .aio import DEFAULT_URL, DaemonPort, Held, InventoryInfo, LeaseInfo, Path, RunInfo, StoredFile
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


def connect(
    url: str = DEFAULT_URL,
    token: str | None = None,
    *,
    verify: Verify = None,
    timeout: float = 30.0,
) -> Client:
    """Connect to a daemon (``squall serve``). Its runs are used like local ones:
    ``client.run(profile)`` corresponds to ``squall.run(profile)``.

    Parameters
    ----------
    url : str
        ``https://HOST:PORT``, ``http://...`` (a daemon with ``--plain``), or ``unix:PATH``: the
        socket of a daemon on this machine, for which root and the user that started it need no
        token.
    token : str, optional
        Default: ``SQUALL_TOKEN``, or, for a daemon on this machine, the token in its directory, if
        it is readable.
    verify : optional
        How to check the daemon's certificate. None: by the certificate in the directory of a local
        daemon, or by the system's authorities; if neither applies, it is trusted on first use, and
        must then stay the same (``~/.config/squall/known_daemons``). ``"sha256:AB:CD..."``: by this
        fingerprint. A path: by the certificates in this file (PEM). True: by the system's
        authorities only. False: not at all.
    timeout : seconds
        Limit for connecting, and for each wait for a response.

    Raises
    ------
    ServerError
        No daemon answers, it has an unexpected certificate, or the token is wrong.
    ValueError
        `url` or `verify` is invalid.
    """
    return Client(_now(aio._connected(_Blocking(Http(url, token, verify, timeout)))))


class _Blocking:
    """Sends blocking requests, so that coroutines built on it never suspend."""

    def __init__(self, http: Http) -> None:
        self.http = http

    async def send(self, method: str, path: str, body: Any = None, **more: Any) -> Reply:
        return self.http.send(method, path, body, **more)

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def _now(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends, as is any coroutine on a `_Blocking` channel. Return its
    result."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    coroutine.close()
    raise AssertionError("a blocking channel does not wait")


class Client:
    def __init__(self, core: aio.Client) -> None:
        self._core = core

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        return self._core.url

    @property
    def version(self) -> str:
        return self._core.version

    def close(self) -> None:
        _now(self._core.close())

    def info(self) -> dict[str, Any]:
        return _now(self._core.info())

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
        return Session(
            self._core.session(
                profile,
                name=name,
                lease=lease,
                detached=detached,
                ttl=ttl,
                fail_if=fail_if,
                node=node,
                cluster_clock=cluster_clock,
                hold=hold,
                nodes=nodes,
                on_loss=on_loss,
                **options,
            )
        )

    def inventories(self) -> tuple[InventoryInfo, ...]:
        return _now(self._core.inventories())

    def clock(self) -> tuple[int, int]:
        return _now(self._core.clock())

    def run(
        self,
        profile: Profile | Path,
        *,
        every: float = 0.5,
        progress: Progress | None = None,
        **more: Any,
    ) -> Report:
        return _now(self._core.run(profile, every=every, progress=progress, **more))

    def send(
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
        return _now(
            self._core.send(
                port,
                packet,
                rate=rate,
                count=count,
                size=size,
                segment=segment,
                vary=vary,
                latency=latency,
                progress=progress,
                **more,
            )
        )

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
        return Session(
            self._core.capture(
                port,
                file=file,
                filter=filter,
                duration_s=duration_s,
                lease=lease,
                **more,
            )
        )

    def start_test(
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
        return Test(
            _now(
                self._core.start_test(
                    method, profile, name=name, lease=lease, detached=detached, ttl=ttl, **more
                )
            )
        )

    def test(
        self,
        method: str,
        profile: Profile | Path | None = None,
        *,
        every: float = 0.5,
        progress: Callable[[Mapping[str, Any]], object] | None = None,
        **more: Any,
    ) -> Result:
        return _now(self._core.test(method, profile, every=every, progress=progress, **more))

    def estimate_test(
        self, method: str, profile: Profile | Path | None = None, **more: Any
    ) -> dict[str, Any]:
        return _now(self._core.estimate_test(method, profile, **more))

    def runs(
        self,
        *,
        state: str | None = None,
        kind: str | None = None,
        q: str | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> tuple[RunInfo, ...]:
        return _now(self._core.runs(state=state, kind=kind, q=q, before=before, limit=limit))

    def attach(self, id: str) -> Run:
        return Run(_now(self._core.attach(id)))

    def report(self, id: str) -> Report:
        return _now(self._core.report(id))

    def rename(self, id: str, name: str | None = None, note: str | None = None) -> RunInfo:
        return _now(self._core.rename(id, name, note))

    def forget(self, id: str) -> None:
        _now(self._core.forget(id))

    def ports(self) -> tuple[DaemonPort, ...]:
        return _now(self._core.ports())

    def leases(self) -> tuple[LeaseInfo, ...]:
        return _now(self._core.leases())

    def acquire(
        self, *ports: str, owner: str | None = None, ttl: float | None = None, force: bool = False
    ) -> Lease:
        return Lease(_now(self._core.acquire(*ports, owner=owner, ttl=ttl, force=force)))

    def release(self, *ports: str) -> None:
        _now(self._core.release(*ports))

    def files(self) -> tuple[StoredFile, ...]:
        return _now(self._core.files())

    def upload(self, file: Path, name: str | None = None) -> str:
        return _now(self._core.upload(file, name))

    def download(self, name: str, to: Path | None = None) -> pathlib.Path:
        return _now(self._core.download(name, to))

    def remove(self, name: str) -> None:
        _now(self._core.remove(name))

    def packets(
        self, file: str, *, first: int = 0, count: int = 100, filter: str | None = None
    ) -> dict[str, Any]:
        return _now(self._core.packets(file, first=first, count=count, filter=filter))

    def check(self, profile: Profile | Path) -> dict[str, Any]:
        return _now(self._core.check(profile))

    def plan(self, profile: Profile | Path) -> str:
        return _now(self._core.plan(profile))

    def solve(self, rules: str, *, every: float = 0.2, **options: Any) -> dict[str, Any]:
        return _now(self._core.solve(rules, every=every, **options))

    def score(self, labels: str, alerts: str) -> dict[str, Any]:
        return _now(self._core.score(labels, alerts))


class Lease:
    def __init__(self, core: aio.Lease) -> None:
        self._core = core

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    @property
    def id(self) -> str:
        return self._core.id

    @property
    def owner(self) -> str | None:
        return self._core.owner

    @property
    def ports(self) -> tuple[str, ...]:
        return self._core.ports

    def renew(self) -> None:
        _now(self._core.renew())

    def release(self) -> None:
        _now(self._core.release())


class Session:
    def __init__(self, core: aio.Session) -> None:
        self._core = core

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        _now(self._core.__aexit__(kind))

    def start(self) -> Run:
        return Run(_now(self._core.start()))

    def run(self, *, every: float = 0.5, progress: Progress | None = None) -> Report:
        return _now(self._core.run(every=every, progress=progress))


class Run:
    def __init__(self, core: aio.Run) -> None:
        self._core = core

    @property
    def id(self) -> str:
        return self._core.id

    def info(self) -> RunInfo:
        return _now(self._core.info())

    @property
    def elapsed_s(self) -> float:
        return _now(self._core.elapsed_s())

    def sample(self) -> Sample:
        return _now(self._core.sample())

    def samples(self, every: float = 0.5) -> Iterator[Sample]:
        waited = self._core.samples(every)
        while True:
            try:
                yield _now(waited.__anext__())  # type: ignore[arg-type]
            except StopAsyncIteration:
                return

    def report(self) -> Report:
        return _now(self._core.report())

    def hosts(self, filter: str = "", *, offset: int = 0, limit: int = 100) -> HostPage:
        return _now(self._core.hosts(filter, offset=offset, limit=limit))

    def host(self, number: int, group: str | None = None) -> HostDetail:
        return _now(self._core.host(number, group))

    def pause(self, stream: str | None = None) -> None:
        _now(self._core.pause(stream))

    def resume(self, stream: str | None = None) -> None:
        _now(self._core.resume(stream))

    def router(self, name: str) -> RouterControl[None]:
        control = self._core.router(name)
        return RouterControl(lambda order: _now(control._send(order)))

    def change(self, profile: Profile | Path) -> None:
        _now(self._core.change(profile))

    def multiply(self, by: float | str) -> None:
        _now(self._core.multiply(by))

    def set_rate(self, stream: str, rate: float | str) -> None:
        _now(self._core.set_rate(stream, rate))

    def set_load(
        self,
        template: str | None = None,
        *,
        cps: float | None = None,
        active: int | None = None,
        bandwidth: str | None = None,
        users: int | None = None,
        weight: int | None = None,
    ) -> None:
        _now(
            self._core.set_load(
                template, cps=cps, active=active, bandwidth=bandwidth, users=users, weight=weight
            )
        )

    def trigger(self) -> None:
        _now(self._core.trigger())

    def go(self, at_ns: int) -> None:
        _now(self._core.go(at_ns))

    def set_clock(self, clock: Mapping[str, float]) -> None:
        _now(self._core.set_clock(clock))

    def stop(self) -> None:
        _now(self._core.stop())

    def wait(self, timeout: float | None = None) -> bool:
        return _now(self._core.wait(timeout))

    def finish(self) -> Report:
        return _now(self._core.finish())

    def close(self) -> None:
        _now(self._core.close())

    def html(self) -> str:
        return _now(self._core.html())

    def profile(self) -> str:
        return _now(self._core.profile())


class Test:
    def __init__(self, core: aio.Test) -> None:
        self._core = core

    @property
    def id(self) -> str:
        return self._core.id

    def info(self) -> RunInfo:
        return _now(self._core.info())

    def progress(self) -> Mapping[str, Any]:
        return _now(self._core.progress())

    def result(self) -> Result:
        return _now(self._core.result())

    def stop(self) -> None:
        _now(self._core.stop())

    def wait(self, timeout: float | None = None) -> bool:
        return _now(self._core.wait(timeout))

    def finish(self) -> Result:
        return _now(self._core.finish())


def _explain(these: type, as_those: type) -> None:
    for name, what in vars(these).items():
        explained = getattr(as_those, name, None)
        if isinstance(what, types.FunctionType) and not what.__doc__:
            what.__doc__ = explained.__doc__
    these.__doc__ = as_those.__doc__


for _these, _those in [
    (Client, aio.Client),
    (Lease, aio.Lease),
    (Session, aio.Session),
    (Run, aio.Run),
    (Test, aio.Test),
]:
    _explain(_these, _those)


globals().update(_keywords.name_the_nearest(globals(), "squall.remote"))

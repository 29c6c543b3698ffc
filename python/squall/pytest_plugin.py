"""Pytest plugin: traffic in tests, with the reports of runs attached to failures. pytest loads it
automatically.

Fixtures: ``squall`` (this package, with its runs recorded; with ``--squall-url``, runs on a
daemon), ``veth_pair`` (a pair of virtual interfaces, in a network namespace of the test).
Functions: `assert_no_loss`, `assert_latency`, `assert_rate`, which are also methods of the fixture.

>>> def test_nothing_is_lost(squall, veth_pair):
...     profile = squall.Profile(ports={"A": veth_pair.a, "B": veth_pair.b}, duration="1 s")
...     profile.add(squall.Stream(name="web", port="A", packet="eth/ipv4/udp", rate="10 kpps", latency=True))
...     report = squall.run(profile)
...     squall.assert_no_loss(report)
...     squall.assert_rate(report, tol=0.01)
...     squall.assert_latency(report, p99="<5 ms")
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import dataclasses
import itertools
import os
import pathlib
import re
import shutil
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any, Protocol

import pytest

import squall as package

from ._errors import Error
from ._generated import Distribution, StreamReport
from ._report import Report

__all__ = ["Traffic", "VethPair", "assert_latency", "assert_no_loss", "assert_rate"]

KEY = pytest.StashKey["Traffic"]()
CLONE_NEWNET = 0x40000000
#: Number of latest frames kept per recorded interface, and maximum octets of each.
FRAMES, SNAPLEN = 10_000, 256


class _Reporting(Protocol):
    def report(self) -> Report: ...


# Assertions


def assert_no_loss(of: Report | _Reporting, stream: str | None = None) -> None:
    """Assert that all frames of `stream`, or of all streams with ``latency``, have arrived.

    Parameters
    ----------
    of : Report or run
        During a run, frames in transit do not count as lost.

    Raises
    ------
    AssertionError
        The message has the sent, received and lost frames of each stream.
    UnknownStream
        There is no such stream.
    ValueError
        No stream was measured.

    Examples
    --------
    >>> import squall
    >>> from squall.pytest_plugin import assert_no_loss
    >>> report = squall.send("loop:plugin,virtual,drop=1/10", "eth/ipv4/udp", rate="1 kpps", count=100, latency=True)
    >>> assert_no_loss(report)
    Traceback (most recent call last):
    ...
    AssertionError: frames were lost
      stream 'stream 1': sent 100, received 90, lost 10 (10 %)
    """
    __tracebackhide__ = True
    lossy = [one for one in _measured(of, stream) if one.rx is not None and one.rx.lost]
    if lossy:
        raise AssertionError("frames were lost" + "".join(f"\n  {_loss(one)}" for one in lossy))


def assert_latency(
    of: Report | _Reporting, stream: str | None = None, **limits: str | float
) -> None:
    """Assert limits of the one-way delay of `stream`, or of all streams with ``latency``.

    Parameters
    ----------
    **limits
        ``min``, ``mean``, ``p50``, ``p90``, ``p95``, ``p99``, ``p999``, ``max``, ``stddev``: ``"<50us"``,
        ``"<= 1 ms"``, ``">100ns"``, ``"50us"`` (at most), or a number of nanoseconds (at most).

    Raises
    ------
    AssertionError
        The message has the measured and the expected values.
    UnknownStream, ValueError
        As `assert_no_loss`; `ValueError` also if a limit is invalid.

    Examples
    --------
    >>> import squall
    >>> from squall.pytest_plugin import assert_latency
    >>> report = squall.send("loop:plugin,virtual,delay=10000", "eth/ipv4/udp", rate="1 kpps", count=100, latency=True)
    >>> assert_latency(report, p99="<50us", min=">= 10 us")
    >>> assert_latency(report, max="<5us")
    Traceback (most recent call last):
    ...
    AssertionError: latency is out of range
      stream 'stream 1': max 10.0 us, expected < 5 us
    """
    __tracebackhide__ = True
    if not limits:
        raise ValueError('assert_latency: expected a limit, such as p99="<50us"')
    asked = [(name, *_limit(name, limit)) for name, limit in limits.items()]
    wrong = []
    for one in _measured(of, stream):
        delay = None if one.rx is None else one.rx.latency_ns
        for name, holds, ns, text in asked:
            found = None if delay is None else float(getattr(delay, name))
            if found is None:
                wrong.append(f"stream {one.name!r}: nothing arrived, expected {name} {text}")
            elif not holds(found, ns):
                wrong.append(f"stream {one.name!r}: {name} {_time(found)}, expected {text}")
    if wrong:
        raise AssertionError("latency is out of range" + "".join(f"\n  {line}" for line in wrong))


def assert_rate(
    of: Report | _Reporting,
    tol: float = 0.01,
    stream: str | None = None,
    *,
    pps: float | None = None,
) -> None:
    """Assert that streams left, and those with ``latency`` arrived, at the requested rate.

    Parameters
    ----------
    tol : float
        Relative tolerance: 0.01 allows 1 % more or less.
    stream : str, optional
        Default: all streams.
    pps : float, optional
        Expected rate. Default: that of the profile.

    Raises
    ------
    AssertionError
        The message has the measured and the expected rates.
    UnknownStream
        There is no such stream.
    ValueError
        A stream has no requested rate (``max``).

    Examples
    --------
    >>> import squall
    >>> from squall.pytest_plugin import assert_rate
    >>> report = squall.send("loop:plugin,virtual", "eth/ipv4/udp", rate="1 kpps", count=100)
    >>> assert_rate(report)
    >>> assert_rate(report, pps=1100)
    Traceback (most recent call last):
    ...
    AssertionError: rates differ from those expected (tolerance 1 %)
      stream 'stream 1': sent 1,000 pps, expected 1,100 pps: -9.1 %
    """
    __tracebackhide__ = True
    wrong = []
    for one in _streams(of, stream):
        expected = one.asked_pps if pps is None else pps
        if expected is None:
            raise ValueError(f"stream {one.name!r} has no requested rate (max)\n  try pps=")
        found = [("sent", one.tx_pps)]
        if one.rx is not None and one.tx_packets:
            # Scale the sent rate by the received fraction, because the receiver's own rate has no
            # start time.
            found.append(("received", one.tx_pps * one.rx.packets / one.tx_packets))
        for what, rate in found:
            if abs(rate - expected) > tol * expected:
                wrong.append(
                    f"stream {one.name!r}: {what} {rate:,.0f} pps, expected {expected:,.0f} pps: {(rate / expected - 1) * 100:+.1f} %"
                )
    if wrong:
        raise AssertionError(
            f"rates differ from those expected (tolerance {tol * 100:g} %)"
            + "".join(f"\n  {line}" for line in wrong)
        )


# Fixtures

_ASSERTS: dict[str, Any] = {
    "assert_no_loss": assert_no_loss,
    "assert_latency": assert_latency,
    "assert_rate": assert_rate,
}


class Traffic:
    """The package ``squall`` as a fixture, with the assert functions of this module. A failure
    shows the reports of its runs.

    Attributes
    ----------
    client : Client or None
        Client of the daemon of ``--squall-url``.
    reports : list of Report
        Reports of the test's runs so far.
    name : str
        Unique among all tests and xdist workers.
    """

    def __init__(self, name: str, client: package.Client | None) -> None:
        self.name, self.client = name, client
        self.reports: list[Report] = []
        self.recordings: list[_Recording] = []
        self._runs: list[Any] = []
        self._number = itertools.count(1)

    def __getattr__(self, name: str) -> Any:
        return _ASSERTS.get(name) or getattr(package, name)

    def Session(self, profile: Any, **options: Any) -> Any:  # noqa: N802: as the package has it
        """Return a `squall.Session`, or one of the daemon; its runs end with the test at the
        latest."""
        if self.client is None:
            return _Watched(package.Session(profile, **options), self)
        return _Watched(self.client.session(profile, **{"name": self.name, **options}), self)

    def start(self, profile: Any, **options: Any) -> Any:
        """Start a run, which ends with the test at the latest."""
        return self.Session(profile, **options).start()

    def run(
        self, profile: Any, *, every: float = 0.25, progress: Any = None, **options: Any
    ) -> Report:
        """Run a profile to its end, like `squall.run`."""
        return self._kept(
            self.Session(profile, **options)._session.run(every=every, progress=progress)
        )

    def send(self, port: str, packet: Any, **options: Any) -> Report:
        """Send frames of one kind, like `squall.send`."""
        return self._kept((self.client or package).send(port, packet, **options))

    def loop(self, *flags: str, **options: object) -> str:
        """Return the address of an unused in-memory link: ``squall.loop("virtual",
        drop="1/10")``."""
        name = f"loop:{self.name}-{next(self._number)}"
        return ",".join([name, *flags, *(f"{key}={value}" for key, value in options.items())])

    def _kept(self, report: Report) -> Report:
        self.reports.append(report)
        return report

    def _all(self) -> list[Report]:
        """Return the reports of ended runs, and of running ones so far."""
        going = []
        for run in self._runs:
            if run._report is None:
                with contextlib.suppress(Error):
                    going.append(run._run.report())
        return self.reports + going

    def _close(self) -> None:
        for recording in self.recordings:
            recording.close()
        for run in self._runs:
            run.close()


class _Watched:
    """A session whose runs are recorded."""

    def __init__(self, session: Any, traffic: Traffic) -> None:
        self._session, self._traffic = session, traffic

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def __enter__(self) -> _Watched:
        return self

    def __exit__(self, *why: Any) -> None:
        self._session.__exit__(*why)

    def start(self) -> Any:
        run = _WatchedRun(self._session.start(), self._traffic)
        self._traffic._runs.append(run)
        return run

    def run(self, **more: Any) -> Report:
        return self._traffic._kept(self._session.run(**more))


class _WatchedRun:
    """A run whose report is kept for failures."""

    def __init__(self, run: Any, traffic: Traffic) -> None:
        self._run, self._traffic = run, traffic
        self._report: Report | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._run, name)

    def finish(self) -> Report:
        if self._report is None:
            self._report = self._traffic._kept(self._run.finish())
        return self._report

    def close(self) -> None:
        if self._report is None:
            self._run.close()


@dataclasses.dataclass(frozen=True)
class VethPair:
    """Two interfaces connected to each other.

    Attributes
    ----------
    a, b : str
        Port addresses for profiles: ``"af_packet:veth-a"``.
    interfaces : tuple of str
        Interface names, for other tools; empty if the ports are those of a daemon.
    """

    a: str
    b: str
    interfaces: tuple[str, ...]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("squall", "traffic (squall)")
    group.addoption("--squall-url", metavar="URL", help="run on this daemon: https://host:8443")
    group.addoption(
        "--squall-token", metavar="TOKEN", help="the daemon's token (default: $SQUALL_TOKEN)"
    )
    group.addoption(
        "--squall-verify", metavar="WHAT", help="certificate check: sha256:..., a file, or 'no'"
    )
    group.addoption(
        "--squall-ports",
        metavar="A,B",
        help="two linked ports of the daemon, for veth_pair",
    )
    group.addoption(
        "--squall-artifacts",
        metavar="FOLDER",
        help="keep reports (JSON, HTML) and captures of failed tests",
    )
    group.addoption(
        "--squall-capture",
        action="store_true",
        help="capture both ends of veth_pair, for --squall-artifacts",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "squall_capture: capture both ends of veth_pair, as --squall-capture does"
    )


@pytest.fixture(scope="session")
def _squall_client(request: pytest.FixtureRequest) -> Iterator[package.Client | None]:
    url = request.config.getoption("--squall-url")
    if url is None:
        yield None
        return
    option = request.config.getoption("--squall-verify")
    verify = False if option == "no" else option
    with package.connect(url, request.config.getoption("--squall-token"), verify=verify) as client:
        yield client


@pytest.fixture
def squall(
    request: pytest.FixtureRequest, _squall_client: package.Client | None
) -> Iterator[Traffic]:
    """Provide the package ``squall``. Runs end with the test; failures show their reports."""
    traffic = Traffic(_unique(request.node.nodeid), _squall_client)
    request.node.stash[KEY] = traffic
    try:
        yield traffic
    finally:
        traffic._close()


@pytest.fixture
def veth_pair(request: pytest.FixtureRequest, squall: Traffic) -> Iterator[VethPair]:
    """Provide two connected interfaces in a network namespace of the test: no other test sees their
    frames.

    The test's thread is in this namespace, and so are the programs and threads that it starts. With
    ``--squall-url`` the ports are the two of ``--squall-ports``. The test is skipped if the kernel
    does not permit this user to create network namespaces.
    """
    ports = request.config.getoption("--squall-ports")
    if squall.client is not None:
        if ports is None or ports.count(",") != 1:
            pytest.skip(
                "veth_pair: a daemon's ports are needed\n  try --squall-ports=A,B with two linked ports"
            )
        a, b = ports.split(",")
        with squall.client.acquire(a, b, owner=squall.name):
            yield VethPair(a, b, ())
        return
    with _network() as why:
        if why is not None:
            pytest.skip(
                f"veth_pair: {why}\n  try root, or: squall lab up; squall lab exec -- pytest"
            )
        names = ("veth-a", "veth-b")
        _ip("link", "add", names[0], "type", "veth", "peer", "name", names[1])
        for name in names:
            _ip("link", "set", name, "up")
        if request.config.getoption("--squall-capture") or request.node.get_closest_marker(
            "squall_capture"
        ):
            squall.recordings.extend(_Recording(name) for name in names)
        yield VethPair(f"af_packet:{names[0]}", f"af_packet:{names[1]}", names)
        # End the runs before the namespace is removed, so no run reports a lost port.
        squall._close()


@contextlib.contextmanager
def _network() -> Iterator[str | None]:
    """Move this thread into a new network namespace. Yields the reason if that fails."""
    if shutil.which("ip") is None:
        yield "cannot find `ip` (iproute2)"
        return
    libc = ctypes.CDLL(None, use_errno=True)
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.unshare(CLONE_NEWNET) != 0:
            yield f"cannot create a network: {os.strerror(ctypes.get_errno())}"
            return
        try:
            # Disable IPv6: packets that the kernel sends itself would be counted with Squall's.
            with contextlib.suppress(OSError):
                for which in ("all", "default"):
                    pathlib.Path(f"/proc/sys/net/ipv6/conf/{which}/disable_ipv6").write_text("1")
            yield None
        finally:
            if libc.setns(home, CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "cannot return to the thread's network")
    finally:
        os.close(home)


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, timeout=30)
    if done.returncode:
        raise RuntimeError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


class _Recording:
    """The latest frames received by an interface. Frames that Squall's ports send there are not
    included: they bypass the kernel's taps.
    """

    def __init__(self, interface: str) -> None:
        self.interface = interface
        self.frames: collections.deque[tuple[float, int, bytes]] = collections.deque(maxlen=FRAMES)
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self._socket.bind((interface, 0))
        self._socket.settimeout(0.1)
        self._over = False
        self._thread = threading.Thread(
            target=self._record, name=f"record-{interface}", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._over = True
        self._thread.join()
        self._socket.close()

    def write(self, path: pathlib.Path) -> None:
        """Write the frames to a pcap file with microsecond timestamps."""
        with path.open("wb") as file:
            file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, SNAPLEN, 1))
            for at, length, octets in list(self.frames):
                file.write(
                    struct.pack("<IIII", int(at), int(at % 1 * 1e6), len(octets), length) + octets
                )

    def _record(self) -> None:
        buffer = bytearray(1 << 17)
        while not self._over:
            try:
                length = self._socket.recv_into(buffer)
            except TimeoutError:
                continue
            except OSError:
                return
            self.frames.append((time.time(), length, bytes(buffer[: min(length, SNAPLEN)])))


# Failures


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    outcome = yield
    result: pytest.TestReport = outcome.get_result()
    traffic = item.stash.get(KEY, None)
    if traffic is None or result.when != "call" or not result.failed:
        return
    reports = traffic._all()
    for number, report in enumerate(reports, 1):
        of = f" (run {number} of {len(reports)})" if len(reports) > 1 else ""
        result.sections.append((f"squall{of}", report.summary()))
    folder = item.config.getoption("--squall-artifacts")
    if folder is None:
        if reports:
            result.sections.append(
                ("squall artifacts", "try --squall-artifacts=FOLDER to keep reports and captures")
            )
        return
    try:
        kept = _keep(pathlib.Path(folder), traffic, reports)
    except OSError as error:
        kept = [f"cannot be written: {error}"]
    result.sections.append(("squall artifacts", "\n".join(kept)))


def _keep(folder: pathlib.Path, traffic: Traffic, reports: Iterable[Report]) -> list[str]:
    """Write the parts that exist. Return their file names."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for number, report in enumerate(reports, 1):
        page, figures = (folder / f"{traffic.name}-{number}{end}" for end in (".html", ".json"))
        report.to_html(page)
        figures.write_text(report.to_json(), encoding="utf-8")
        written += [page, figures]
    for recording in traffic.recordings:
        path = folder / f"{traffic.name}-{recording.interface}.pcap"
        recording.write(path)
        written.append(path)
    return [str(path) for path in written]


def _unique(node: str) -> str:
    """Return a readable name, unique to this test, for files and links."""
    words = re.sub(r"[^A-Za-z0-9_.]+", "-", node.partition("::")[2] or node).strip("-")[:80]
    return "-".join(
        filter(None, [words, os.environ.get("PYTEST_XDIST_WORKER", ""), str(os.getpid())])
    )


# Helpers of the assert functions


def _report(of: Report | _Reporting) -> Report:
    return of if isinstance(of, Report) else of.report()


def _streams(of: Report | _Reporting, stream: str | None) -> list[StreamReport]:
    report = _report(of)
    chosen = list(report.streams) if stream is None else [report.streams[stream]]
    if not chosen:
        raise ValueError("the report has no streams")
    return chosen


def _measured(of: Report | _Reporting, stream: str | None) -> list[StreamReport]:
    chosen = [one for one in _streams(of, stream) if one.rx is not None]
    if not chosen:
        what = "no stream is" if stream is None else f"stream {stream!r} is not"
        raise ValueError(f"{what} measured\n  try latency=True in the stream")
    return chosen


def _loss(one: StreamReport) -> str:
    assert one.rx is not None
    return f"stream {one.name!r}: sent {one.tx_packets:,}, received {one.rx.packets:,}, lost {one.rx.lost:,} ({one.rx.loss_ratio * 100:.3g} %)"


_UNITS = {"ns": 1, "us": 1e3, "µs": 1e3, "μs": 1e3, "ms": 1e6, "s": 1e9}
_HOLDS: Mapping[str, Callable[[float, float], bool]] = {
    "<": lambda found, limit: found < limit,
    "<=": lambda found, limit: found <= limit,
    ">": lambda found, limit: found > limit,
    ">=": lambda found, limit: found >= limit,
}


def _limit(name: str, limit: str | float) -> tuple[Callable[[float, float], bool], float, str]:
    """Parse a limit: return the comparison, the limit in nanoseconds, and the limit as text."""
    known = [
        field.name
        for field in dataclasses.fields(Distribution)
        if field.name not in ("count", "bins")
    ]
    if name not in known:
        raise ValueError(f"assert_latency: unknown figure {name!r}: expected {', '.join(known)}")
    if isinstance(limit, int | float):
        return _HOLDS["<="], float(limit), f"<= {_time(float(limit))}"
    parsed = re.fullmatch(r"\s*(<=|>=|<|>|)\s*([0-9.]+(?:e-?\d+)?)\s*(\w+)\s*", limit)
    if not parsed or parsed[3] not in _UNITS:
        raise ValueError(f'{name} = {limit!r}: expected "<50us", "<= 1 ms", ">100ns" ...')
    how = parsed[1] or "<="
    return _HOLDS[how], float(parsed[2]) * _UNITS[parsed[3]], f"{how} {parsed[2]} {parsed[3]}"


def _time(ns: float) -> str:
    for unit, factor in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= factor:
            return (
                f"{ns / factor:.3g} {unit}" if ns / factor >= 100 else f"{ns / factor:.1f} {unit}"
            )
    return f"{ns:.0f} ns"

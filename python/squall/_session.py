"""Runs of a profile, up to the report."""

from __future__ import annotations

import decimal
import json
import os
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from . import _native
from ._edit import Edits
from ._plan import Plan
from ._options import RunOptions
from ._profile import Frame, Profile, Replay, Stream, Vary, _plain
from ._generated import HostDetail, HostPage, Sample
from ._report import Report
from ._routers import RouterControl
from ._values import read

if TYPE_CHECKING:
    # typing.Unpack exists only from Python 3.11 on.
    from typing_extensions import Unpack

__all__ = ["Interrupted", "Run", "Session", "plan", "recv", "run", "send"]

Progress: TypeAlias = Callable[[Sample], object]


class Interrupted(KeyboardInterrupt):
    """Ctrl-C interrupted a blocking run. The run was stopped cleanly, and has a report.

    Attributes
    ----------
    report : Report
    """

    report: Report

    def __init__(self, report: Report) -> None:
        super().__init__("the run was interrupted; the exception has the report so far")
        self.report = report


class Session:
    """A profile with run options.

    As a context manager, it ends unfinished runs on exit.

    Parameters
    ----------
    profile : Profile or path
        What to send, or the file of a profile. The session keeps a copy; later changes to `profile`
        have no effect.
    **options
        Run options: see `RunOptions`.

    Raises
    ------
    ProfileError
        The profile has errors.
    TypeError
        An option is unknown; the message suggests the most similar one.
    ValueError
        An option has an invalid value.

    Examples
    --------
    >>> import squall
    >>> profile = squall.Profile(ports={"A": "loop:session,virtual,drop=1/10"})
    >>> profile.add(squall.Stream(name="web", packet="eth/ipv4/udp", rate="1 kpps", mode={"burst": 100}, latency=True))
    >>> with squall.Session(profile) as session:
    ...     report = session.run()
    >>> report.streams["web"].tx_packets, report.streams["web"].rx.lost
    (100, 10)
    """

    def __init__(
        self,
        profile: Profile | str | os.PathLike[str],
        **options: Unpack[RunOptions],
    ) -> None:
        if not isinstance(profile, Profile):
            profile = Profile.load(profile)
        self._native = _native.Session(profile._checked(), _json(options))
        self._runs: weakref.WeakSet[Run] = weakref.WeakSet()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for run in list(self._runs):
            try:
                run.close()
            except Exception:
                # Do not let an error in closing the runs replace one raised in the block.
                if kind is None:
                    raise

    def plan(self) -> Plan:
        """Plan the run without sending. Opens the ports only as far as necessary, then closes them.

        Raises
        ------
        ProfileError
            An address is invalid, or a port cannot send the profile.
        """
        return Plan._from(self._native.plan())

    def start(self) -> Run:
        """Open the ports and start; the first frame is due about 20 ms later.

        Raises
        ------
        ProfileError
            An address is invalid, or a port cannot send the profile.
        PortError
            A port cannot be opened.
        """
        run = Run(self._native.start())
        self._runs.add(run)
        return run

    def run(self, *, every: float = 0.25, progress: Progress | None = None) -> Report:
        """Start, wait for the end that the profile sets, and return the report. Other threads can
        run meanwhile.

        Parameters
        ----------
        every : seconds
            Interval between samples of the report's series. A run in virtual time has no samples.
        progress : callable, optional
            Called with each `Sample`.

        Raises
        ------
        Interrupted
            Ctrl-C: a `KeyboardInterrupt` with the report so far. An endless profile is ended like
            this.
        ProfileError, PortError
            As `start`; `PortError` also if a port is lost.
        """
        with self:
            return _watched(self.start(), every, progress)


class Run:
    """A run in progress: `Session.start` returns it.

    All methods can be called from any thread. After `finish` they raise `Error`, except `finish`
    itself, which returns the report again.

    Examples
    --------
    >>> import squall
    >>> profile = squall.Profile(ports={"A": "loop:run"})
    >>> profile.add(squall.Stream(name="web", packet="eth/ipv4/udp", rate="1 kpps"))
    >>> with squall.Session(profile) as session:
    ...     run = session.start()
    ...     run.wait(0.2)
    ...     run.pause("web")
    ...     profile.streams[0].rate = "2 kpps"
    ...     run.change(profile)
    ...     run.resume("web")
    ...     run.stop()
    ...     report = run.finish()
    False
    >>> report.streams["web"].tx_packets > 10
    True
    """

    def __init__(self, native: _native.Run) -> None:
        self._native = native
        self._report: Report | None = None

    @property
    def virtual_time(self) -> bool:
        """Whether the run uses virtual time, and takes as little time as the machine allows."""
        return self._native.virtual_time

    @property
    def elapsed_s(self) -> float:
        """Seconds since the first frame was due; 0 with virtual time."""
        return self._native.elapsed_s

    def sample(self) -> Sample:
        """Return the rates over the time after the previous sample. Each sample is a point of the
        report's series."""
        text, _ = self._native.sample()
        return read(Sample, json.loads(text))

    def report(self) -> Report:
        """Return the report so far, without series. Takes a sample, which becomes a point of the
        final report's series.
        """
        _, report = self._native.sample()
        return Report._from(report)

    def hosts(self, filter: str = "", *, offset: int = 0, limit: int = 100) -> HostPage:
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
        ValueError
            The filter has errors, or `limit` is not in its range.
        """
        if not 1 <= limit <= 10_000:
            raise ValueError(f"limit = {limit}: expected 1 to 10000")
        return read(HostPage, json.loads(self._native.hosts(filter, offset, limit)))

    def host(self, number: int, group: str | None = None) -> HostDetail:
        """Return host `number` (from 1) of a group, with its last events. `group` may be omitted
        if the run has only one.

        Raises
        ------
        Error
            There is no such host.
        """
        return read(HostDetail, json.loads(self._native.host(number, group)))

    def pause(self, stream: str | None = None) -> None:
        """Pause a stream, a stream group, a template, a replay, or everything. Frames that would
        have been due in the pause are due later.

        A paused template starts no new flows; open flows continue.

        Raises
        ------
        UnknownStream
            The message lists similar names.
        """
        self._native.pause(stream)

    def resume(self, stream: str | None = None) -> None:
        """Resume a paused stream, stream group, template, replay, or everything.

        Raises
        ------
        UnknownStream
            The message lists similar names.
        """
        self._native.resume(stream)

    def router(self, name: str) -> RouterControl[None]:
        """Return the orders of a router of the run: ``run.router("r1").withdraw("edge")``. Each order
        raises `Error` if there is no such router."""
        return RouterControl(lambda order: self._native.order(name, json.dumps(order)))

    def change(self, profile: Profile) -> None:
        """Switch the run to another profile with the same ports.

        Streams with the same name and frames continue, at their new rate; others are added and
        removed. Templates can differ only in their rates (`cps`, `weight`, `users`, `active_limit`)
        and in the load in ``[flows]``.

        Raises
        ------
        ProfileError
            The profile has errors; the run is unchanged.
        """
        self._native.change(profile._checked())

    def multiply(self, by: float | str) -> None:
        """Set all rates to those of the profile times `by`, like the option ``mult`` of `Session`.

        Raises
        ------
        ProfileError
            The rates cannot be scaled by `by`; the run is unchanged.
        """
        if isinstance(by, int | float):
            by = format(decimal.Decimal(repr(by)), "f")
        self._native.multiply(by)

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
        """Change the load of `template` from now on, or (None) that of all templates with a weight.

        Parameters
        ----------
        cps, active, bandwidth, users, weight
            Exactly one, of the kind that the profile uses: for a template `cps`, `users` or
            `weight`; for all `cps`, `active` (open flows) or `bandwidth` (``"1 Gbps"``).

        Raises
        ------
        UnknownStream
            There is no such template.
        ProfileError
            The profile uses another kind; the run is unchanged.
        """
        self._native.set_load(
            template, cps=cps, active=active, bandwidth=bandwidth, users=users, weight=weight
        )

    def stop(self) -> None:
        """Stop sending. `finish` then returns the report."""
        self._native.stop()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until everything is sent, at most `timeout` seconds (None: no limit). Return whether
        it is.

        Ctrl-C raises `KeyboardInterrupt`, and the run continues.
        """
        return self._native.wait(timeout)

    def finish(self) -> Report:
        """Wait for the end that the profile sets, then for frames in transit, and return the
        report.

        If the profile has no end, call `stop` first.

        Raises
        ------
        PortError
            A port was lost and no report can be made.
        """
        if self._report is None:
            self._report = Report._from(self._native.finish())
        return self._report

    def close(self) -> None:
        """End the run if it is still active. `finish` still returns the report."""
        if self._report is None:
            self.stop()
            self.finish()


def _json(options: RunOptions) -> str:
    return json.dumps(_plain(options))


def _watched(run: Run, every: float, progress: Progress | None) -> Report:
    """Wait until `run` ends, or Ctrl-C ends it, and return its report. Calls `progress` with each
    sample."""
    try:
        while not run.wait(None if run.virtual_time else every):
            sample = run.sample()
            if progress is not None:
                progress(sample)
    except KeyboardInterrupt as interrupt:
        run.stop()
        raise Interrupted(run.finish()) from interrupt
    return run.finish()


def run(
    profile: Profile | str | os.PathLike[str],
    *,
    every: float = 0.25,
    progress: Progress | None = None,
    **options: Unpack[RunOptions],
) -> Report:
    """Run a profile, or the file of one, to its end. See `RunOptions` for the options, and
    `Session.run` for `every` and `progress`.

    Examples
    --------
    >>> import squall
    >>> profile = squall.Profile(ports={"A": "null:,virtual"})
    >>> profile.add(squall.Stream(packet="eth/ipv4/udp", rate="70 kpps"))
    >>> squall.run(profile, duration="10 s").ports["A"].tx.packets
    700000
    """
    return Session(profile, **options).run(every=every, progress=progress)


def plan(
    profile: Profile | str | os.PathLike[str],
    **options: Unpack[RunOptions],
) -> Plan:
    """Return the plan of a profile, or of the file of one. Nothing is sent.

    Parameters
    ----------
    profile : Profile or path
    **options
        Options that affect the plan: ``cores``, ``mult``, ``part``, ``seed`` ...: see
        `RunOptions`.

    Returns
    -------
    Plan

    Raises
    ------
    ProfileError
        The profile has errors, or a port cannot send it.
    TypeError
        An option is unknown; the message suggests the most similar one.

    Examples
    --------
    >>> import squall
    >>> profile = squall.Profile(ports={"A": "null:,virtual"}, duration="1 s")
    >>> profile.add(squall.Stream(name="web", packet="eth/ipv4/udp", rate="1 kpps"))
    >>> squall.plan(profile, mult=2).streams["web"].asked_pps
    2000.0
    """
    return Session(profile, **options).plan()


def send(
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
    **options: Unpack[RunOptions],
) -> Report:
    """Send frames of one kind on one port. Without `count` and ``duration``, runs until Ctrl-C.

    Parameters
    ----------
    port : str
        Port address: ``"af_packet:eth1"``, ``"loop:0"``, ``"pcap:out.pcap"``.
    packet, rate, size, segment, vary, latency
        As in `Stream`.
    count : int, optional
        Number of frames; with `segment`, of GSO frames.
    progress
        As in `Session.run`.
    **options
        ``duration``, ``seed``, ``clock`` ...: see `RunOptions`.

    Examples
    --------
    >>> import squall
    >>> report = squall.send("loop:send,virtual", "eth/ipv4(dst=48.0.0.1)/udp(dport=53)", rate="1 kpps", count=10)
    >>> report.ports["A"].tx.packets, report.ports["A"].rx.packets
    (10, 10)
    """
    mode = None if count is None else {"burst": count}
    stream = Stream(
        packet=packet, rate=rate, mode=mode, size=size, segment=segment, vary=vary, latency=latency
    )
    profile = Profile(ports={"A": port}, streams=[stream])
    return run(profile, progress=progress, **options)


def replay(
    files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    port: str,
    port2: str | None = None,
    *,
    multiplier: float | str | None = None,
    pps: float | str | None = None,
    pps_multi: int = 1,
    mbps: float | str | None = None,
    rate: str | None = None,
    ramp: str | None = None,
    topspeed: bool = False,
    max_gap: float | None = None,
    loops: int = 1,
    loop_delay: float = 0.0,
    limit: int | None = None,
    duration: float | None = None,
    merge: bool = False,
    preload: bool = False,
    unique_ip: bool | int = False,
    flow_stats: bool = True,
    flow_expiry: float | None = None,
    split: tuple[Literal["cache", "auto", "cidr", "regex", "mac", "port"], str] | None = None,
    reverse: bool = False,
    filter: str | None = None,
    include: str | None = None,
    exclude: str | None = None,
    too_long: Literal["skip", "truncate", "fragment"] = "skip",
    edits: Edits | None = None,
    cpus: Sequence[int] | None = None,
    clock: Literal["real", "virtual"] | None = None,
    fingerprint: bool = False,
    force: bool = False,
    every: float = 0.25,
    progress: Progress | None = None,
) -> Report:
    """Replay captures: with captured timing, at a given rate, or as fast as the port allows.

    Parameters
    ----------
    files : path or sequence of paths
        pcap or pcapng, compressed or not; one after the other, or, with `merge`, in timestamp
        order.
    port, port2 : str
        Port addresses: ``"af_packet:eth1"``, ``"pcap:out.pcap"``. With `port2`, clients' packets
        leave on `port` and servers' packets on `port2`, in the order of the captures.
    multiplier, pps, mbps, rate, ramp, topspeed
        At most one; by default as captured. ``mbps`` counts frames without FCS; ``rate`` is a
        string such as ``"10 kpps"`` or ``"1 Gbps"`` (with FCS), ``ramp`` one such as
        ``"1kpps..10kpps:30s"``.
    pps_multi : int
        With `pps`, the number of frames sent back to back.
    max_gap : seconds, optional
        Upper limit of captured gaps; longer ones are shortened to it.
    loops : int
        Number of times to send the captures; 0: endless.
    loop_delay : seconds
    limit : int, optional
        Number of frames in total.
    duration : seconds, optional
    preload : bool
        Read everything into memory once, before the first frame leaves.
    unique_ip : bool or int
        Change the addresses in each loop, or in every N-th loop.
    flow_stats, flow_expiry
        Whether to count flows, and the idle time in seconds (as captured) that ends a flow.
    split : (kind, text), optional
        Rule that splits packets over the ports: ``("auto", "bridge")``, ``("cidr", "10.0.0.0/8")``,
        ``("cache", "file.cache")``, ``("port", "")``; default ``("auto", "first")``. `reverse`
        swaps the ports.
    filter, include, exclude : str, optional
        Packets to send: by a filter (tcpdump syntax), and by number (``"1-5,9"``).
    too_long
        How to treat frames longer than the port allows.
    edits : dict, optional
        Edits of the frames: names and values as in `edit`.
    cpus, clock, fingerprint, force, every, progress
        As in `Session` and `Session.run`.

    Returns
    -------
    Report
        ``report.replays`` has the counts.

    Raises
    ------
    ValueError
        More than one speed is given, or an invalid one.
    Error
        A capture cannot be opened. A damaged one is sent up to the damage: see
        ``report.replays[0].fault``.

    Examples
    --------
    >>> import squall
    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> report = squall.send(f"pcap:{folder}/in.pcap", "eth/ipv4/udp", rate="1 kpps", count=100)
    >>> report = squall.replay(folder / "in.pcap", f"pcap:{folder}/out.pcap", pps=10, loops=3)
    >>> replay = report.replays[0]
    >>> replay.packets, replay.loops, replay.flows.flows, round(report.duration_s, 1)
    (300, 3, 1, 29.9)
    """
    speeds = {"multiplier": multiplier, "pps": pps, "mbps": mbps, "rate": rate, "ramp": ramp}
    asked = {kind: str(value) for kind, value in speeds.items() if value is not None}
    if topspeed:
        asked["topspeed"] = "max"
    if len(asked) > 1:
        raise ValueError(f"{' and '.join(asked)} were given: expected at most one speed")
    if "pps" in asked:
        asked = {"rate": f"{asked['pps']} pps"}
    elif topspeed:
        asked = {"rate": "max"}
    one = Replay(
        name="replay",
        files=files,
        merge=merge or None,
        port="A",
        port2=None if port2 is None else "B",
        together=pps_multi,
        longest_gap=max_gap,
        loops=loops,
        loop_delay=loop_delay,
        limit=limit,
        preload=preload,
        split=None if split is None or port2 is None else {split[0]: split[1]},
        reverse=reverse or None,
        unique_ip=int(unique_ip) or None,
        flow_stats=flow_stats,
        flow_expiry=flow_expiry,
        filter=filter,
        include=include,
        exclude=exclude,
        too_long=too_long,
        edit=edits,
        multiplier=asked.get("multiplier"),
        rate=asked.get("rate"),
        mbps=asked.get("mbps"),
        ramp=asked.get("ramp"),
    )
    ports = {"A": port} if port2 is None else {"A": port, "B": port2}
    session = Session(
        Profile(ports=ports, replays=[one], duration=duration),
        cpus=cpus,
        clock=clock,
        receive=False,
        fingerprint=fingerprint,
        force=force,
    )
    return session.run(every=every, progress=progress)


def recv(
    port: str | Sequence[str],
    *,
    duration: float | None = None,
    count: int | None = None,
    filter: str | None = None,
    by: Literal["flow", "source", "none"] = "flow",
    flows: int = 10_000,
    sequence: Literal["auto", "squall", "mgen", "crude", "trex", "iperf3", "rtp", "none"] = "auto",
    interval: float = 0.1,
    burst_gap: float = 10e-6,
    cores: int | None = None,
    cpus: Sequence[int] | None = None,
    gap_bins: tuple[int, int] | None = None,
    every: float = 0.25,
    progress: Progress | None = None,
) -> Report:
    """Receive without sending. Without `duration` and `count`, runs until Ctrl-C, or until the end
    of a file.

    Parameters
    ----------
    port : str or sequence of str
        Port addresses: ``"af_packet:eth1"``, ``"pcap:in.pcap,read"``. They are also the ports'
        names in the report.
    duration : seconds, optional
    count : int, optional
        Stop soon after this number of frames.
    filter : str, optional
        Receive only matching frames (tcpdump syntax).
    by : {"flow", "source", "none"}
        What to measure separately.
    flows : int
        Maximum number of flows in each receive queue; further ones are counted as one.
    sequence
        Kind of sequence numbers to read, from the first packet on; ``auto`` detects the kind
        first.
    interval, burst_gap : seconds
        Length of the intervals for peak rates; maximum gap between the frames of a burst.
    cores, cpus, gap_bins, every, progress
        As in `Session` and `Session.run`.

    Returns
    -------
    Report
        ``report.received_flows`` has the measurements of each flow.

    Raises
    ------
    Interrupted
        Ctrl-C: a `KeyboardInterrupt` with the report so far.

    Examples
    --------
    >>> import squall
    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "recv.pcap"
    >>> report = squall.send(f"pcap:{file}", "eth/ipv4/udp", rate="1 kpps", count=100, latency=True)
    >>> report = squall.recv(f"pcap:{file},read")
    >>> report.ports[0].rx.packets, report.streams[0].rx.lost, report.received_flows.flows[0].sequence.kind
    (100, 0, 'squall')
    """
    addresses = [port] if isinstance(port, str) else list(port)
    options: RunOptions = {
        "filter": filter,
        "cores": cores,
        "cpus": cpus,
        "gap_bins": gap_bins,
        "received_flows": {
            "by": by,
            "limit": flows,
            "sequence": sequence,
            "interval": interval,
            "burst_gap": burst_gap,
        },
    }
    native = _native.Session.listen(addresses, _json(options))
    run = Run(native.start())
    start, due, seen, idle = time.monotonic(), every, -1, 0
    try:
        while duration is None or time.monotonic() - start < duration:
            time.sleep(
                0.05
                if duration is None
                else max(min(0.05, duration - (time.monotonic() - start)), 0)
            )
            received = run._native.received
            if count is not None and received >= count:
                break
            # A file has ended when no more frames arrive.
            idle = idle + 1 if run.virtual_time and received == seen else 0
            seen = received
            if idle >= 6:
                break
            if not run.virtual_time and run.elapsed_s >= due:
                sample = run.sample()
                due += every
                if progress is not None:
                    progress(sample)
    except KeyboardInterrupt as interrupt:
        run.stop()
        raise Interrupted(run.finish()) from interrupt
    run.stop()
    return run.finish()

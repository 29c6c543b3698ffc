"""TRex's stateless API on top of Squall: scripts for ``trex.stl.api`` run with few changes.

It works in process (``server="local"``), or with a daemon (``server="https://host:8443"``). Port
numbers are the indexes of ``ports=``.

>>> from squall.trex import *
>>> client = STLClient(ports=["loop:trex-a", "loop:trex-b"])
>>> client.connect()
>>> client.reset(ports=[0, 1])
>>> packet = STLPktBuilder(pkt="eth/ipv4(src=16.0.0.1,dst=48.0.0.1)/udp(dport=12)")
>>> ids = client.add_streams(STLStream(packet=packet, mode=STLTXSingleBurst(pps=10_000, total_pkts=100)), ports=[0])
>>> client.start(ports=[0], mult="2")
>>> client.wait_on_traffic(ports=[0])
>>> stats = client.get_stats()
>>> stats[0]["opackets"], stats["total"]["obytes"]
(100, 6400)
>>> client.disconnect()

Differences from TRex: ports count only while traffic runs (a port that does not send receives as
long as another one sends). Source and destination MAC are those of the packet. In a stream with
statistics, latency is measured on every frame with room for a signature of 16 octets at the end of
the payload; other frames are counted by TRex's marks, and `STLFlowLatencyStats` refuses them.
Frames are made as by `squall serve --trex` and `squall run --trex`: checksums are correct only
where an instruction sets them.
"""

from __future__ import annotations

import itertools
import json
import pathlib
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from . import _native, _stl, remote
from ._errors import Error
from ._generated import Distribution, Sample
from ._profile import Profile, Stream, Vary
from ._report import Report
from ._session import Session
from ._stl import (
    CTRexVmInsFixHwCs,
    STLArgumentError,
    STLError,
    STLFlowLatencyStats,
    STLFlowStats,
    STLPktBuilder,
    STLProfile,
    STLScVmRaw,
    STLStream,
    STLStreamDstMAC_ARP,
    STLStreamDstMAC_CFG_FILE,
    STLStreamDstMAC_PKT,
    STLTimeoutError,
    STLTXCont,
    STLTXMultiBurst,
    STLTXSingleBurst,
    STLVM,
    STLVmFixChecksumHw,
    STLVmFixIcmpv6,
    STLVmFixIpv4,
    STLVmFlowVar,
    STLVmFlowVarRepeatableRandom,
    STLVmFlowVarRepetableRandom,
    STLVmTrimPktSize,
    STLVmTupleGen,
    STLVmWrFlowVar,
    STLVmWrMaskFlowVar,
    TRexArgumentError,
    TRexError,
    TRexTimeoutError,
)

__all__ = [
    "CTRexVmInsFixHwCs",
    "STLArgumentError",
    "STLClient",
    "STLError",
    "STLFlowLatencyStats",
    "STLFlowStats",
    "STLPktBuilder",
    "STLProfile",
    "STLScVmRaw",
    "STLStream",
    "STLStreamDstMAC_ARP",
    "STLStreamDstMAC_CFG_FILE",
    "STLStreamDstMAC_PKT",
    "STLTXCont",
    "STLTXMultiBurst",
    "STLTXSingleBurst",
    "STLTimeoutError",
    "STLVM",
    "STLVmFixChecksumHw",
    "STLVmFixIcmpv6",
    "STLVmFixIpv4",
    "STLVmFlowVar",
    "STLVmFlowVarRepeatableRandom",
    "STLVmFlowVarRepetableRandom",
    "STLVmTrimPktSize",
    "STLVmTupleGen",
    "STLVmWrFlowVar",
    "STLVmWrMaskFlowVar",
    "TRexArgumentError",
    "TRexError",
    "TRexTimeoutError",
]

_T = TypeVar("_T")


# The client


class _Run(Protocol):
    """A run, in this process or on a daemon."""

    def sample(self) -> Sample: ...
    def report(self) -> Report: ...
    def pause(self, stream: str | None = None) -> None: ...
    def resume(self, stream: str | None = None) -> None: ...
    def change(self, profile: Profile) -> None: ...
    def stop(self) -> None: ...
    def wait(self, timeout: float | None = None) -> bool: ...
    def finish(self) -> Report: ...


class STLClient:
    """TRex's client.

    Parameters
    ----------
    username : str
        Holder of the daemon's ports, as shown to other users.
    server : str
        ``"local"``: in this process. Otherwise the address of a daemon: ``"https://host:8443"``,
        ``"host"``.
    ports : sequence of str
        Port addresses; the index is the port number: ``["af_packet:eth1", "af_packet:eth2"]``.
        Default for a daemon: all its ports that are up.
    token, verify
        As in `squall.connect`.
    **ignored
        Further arguments of TRex's client: ``sync_port``, ``async_port``, ``verbose_level`` ...
    """

    def __init__(
        self,
        username: str | None = None,
        server: str = "local",
        *_: Any,
        ports: Sequence[str] | None = None,
        token: str | None = None,
        verify: Any = None,
        **ignored: Any,
    ) -> None:
        self._username, self._server, self._token, self._verify = username, server, token, verify
        self._addresses = list(ports or ())
        self._daemon: remote.Client | None = None
        self._leases: dict[int, remote.Lease] = {}
        self._connected = False
        self._streams: dict[int, dict[int, STLStream]] = {}
        self._numbers = itertools.count(1)
        self._run: _Run | None = None
        #: Rate factor of each port that sends.
        self._active: dict[int, float] = {}
        self._groups: dict[tuple[int, int], int] = {}
        self._paused: set[int] = set()
        #: Ports that were idle when the run started, but may send later.
        self._idle: list[int] = []
        self._past: list[dict[str, Any]] = []
        self._cleared: dict[str, Any] = {}
        self._rates: dict[int, dict[str, float]] = {}
        self._duration: float | None = None
        self._speeds: dict[int, float | None] = {}
        self._lock = threading.RLock()

    def __enter__(self) -> STLClient:
        self.connect()
        return self

    def __exit__(self, *_: object) -> None:
        self.disconnect()

    # Ports

    def connect(self) -> None:
        """Connect to the daemon; has no effect in process."""
        if self._server != "local":
            try:
                self._daemon = remote.connect(self._server, self._token, verify=self._verify)
            except (Error, ValueError) as error:
                raise TRexError(str(error)) from error
            found = {port.address: port for port in self._daemon.ports()}
            if not self._addresses:
                self._addresses = [address for address, port in found.items() if port.state == "up"]
            self._speeds = {
                i: float(found[address].speed_bps or 0) or None
                for i, address in enumerate(self._addresses)
                if address in found
            }
        if not self._addresses:
            raise TRexArgumentError(
                'STLClient: expected ports\n  try ports=["af_packet:eth1", "af_packet:eth2"]'
            )
        self._streams = {port: {} for port in self.get_all_ports()}
        self._connected = True

    def disconnect(self, stop_traffic: bool = True, release_ports: bool = True) -> None:
        """Stop all traffic, and release the ports."""
        if not self._connected:
            return
        if stop_traffic:
            self.stop()
        if release_ports:
            self.release()
        if self._daemon is not None:
            self._daemon.close()
        self._connected = False

    def is_connected(self) -> bool:
        return self._connected

    def get_all_ports(self) -> list[int]:
        return list(range(len(self._addresses)))

    def get_port_count(self) -> int:
        return len(self._addresses)

    def get_acquired_ports(self) -> list[int]:
        return self.get_all_ports() if self._daemon is None else sorted(self._leases)

    def get_active_ports(self) -> list[int]:
        """Return the ports that send or are paused."""
        self._look()
        return sorted(self._active)

    def get_transmitting_ports(self) -> list[int]:
        return [port for port in self.get_active_ports() if port not in self._paused]

    def get_paused_ports(self) -> list[int]:
        return [port for port in self.get_active_ports() if port in self._paused]

    def is_traffic_active(self, ports: int | Iterable[int] | None = None) -> bool:
        return bool(set(self._ports(ports, self.get_all_ports())) & set(self.get_active_ports()))

    def get_warnings(self) -> list[str]:
        """Return an empty list: problems are raised as errors."""
        return []

    def acquire(
        self, ports: int | Iterable[int] | None = None, force: bool = False, **_: Any
    ) -> None:
        """Lease ports of a daemon; with `force` take them from their holders."""
        if self._daemon is None:
            return
        for port in self._ports(ports, self.get_all_ports()):
            if port in self._leases:
                continue
            try:
                self._leases[port] = self._daemon.acquire(
                    self._addresses[port], force=force, owner=self._username
                )
            except Error as error:
                raise TRexError(f"port {port}: {error}") from error

    def release(self, ports: int | Iterable[int] | None = None) -> None:
        """Release ports."""
        for port in self._ports(ports, list(self._leases)):
            lease = self._leases.pop(port, None)
            if lease is not None:
                lease.release()

    def reset(self, ports: int | Iterable[int] | None = None, **_: Any) -> None:
        """Acquire the ports, stop their traffic, remove their streams, and clear their
        statistics.
        """
        chosen = self._ports(ports, self.get_all_ports())
        self.acquire(chosen, force=True)
        self.stop(chosen)
        self.remove_all_streams(chosen)
        self.clear_stats(chosen)

    def set_port_attr(self, ports: int | Iterable[int] | None = None, **_: Any) -> None:
        """Do nothing: a port's address decides whether it receives frames for other hosts."""

    def set_service_mode(
        self, ports: int | Iterable[int] | None = None, enabled: bool = True, **_: Any
    ) -> None:
        """Do nothing: Squall has no service mode."""

    # Streams

    def add_streams(
        self,
        streams: STLStream | STLProfile | Sequence[STLStream],
        ports: int | Iterable[int] | None = None,
    ) -> list[int] | int:
        """Add streams to ports. Return a list of their numbers, or the number of a single
        stream."""
        if isinstance(streams, STLProfile):
            streams = streams.get_streams()
        given = [streams] if isinstance(streams, STLStream) else list(streams)
        if not all(isinstance(stream, STLStream) for stream in given):
            raise TRexArgumentError(f"add_streams: expected STLStream, found {given!r}")
        chosen = self._ports(ports, self.get_acquired_ports())
        if set(chosen) & set(self.get_active_ports()):
            raise TRexError(f"ports {chosen} are sending: add streams before start()")
        ids = []
        for stream in given:
            ids.append(stream.id if stream.id is not None else next(self._numbers))
            for port in chosen:
                self._streams[port][ids[-1]] = stream
        return ids[0] if isinstance(streams, STLStream) else ids

    def remove_all_streams(self, ports: int | Iterable[int] | None = None) -> None:
        for port in self._ports(ports, self.get_acquired_ports()):
            self._streams[port] = {}

    def remove_streams(
        self, stream_id_list: int | Sequence[int], ports: int | Iterable[int] | None = None
    ) -> None:
        ids = [stream_id_list] if isinstance(stream_id_list, int) else list(stream_id_list)
        for port in self._ports(ports, self.get_acquired_ports()):
            for number in ids:
                self._streams[port].pop(number, None)

    def load_profile(
        self, filename: str, ports: int | Iterable[int] | None = None, **tunables: Any
    ) -> list[int] | int:
        """Load the streams of a TRex Python profile."""
        return self.add_streams(STLProfile.load_py(filename, **tunables).get_streams(), ports)

    # Traffic

    def start(
        self,
        ports: int | Iterable[int] | None = None,
        mult: float | str = "1",
        force: bool = False,
        duration: float = -1,
        total: bool = False,
        **_: Any,
    ) -> None:
        """Start the streams of ports.

        Parameters
        ----------
        ports : int or list of int, optional
        mult : str
            ``"2"``: twice the streams' rates. ``"1mpps"``, ``"50%"``, ``"2gbps"`` (L2),
            ``"2gbpsl1"``: the total rate of each port.
        force : bool
            Stop traffic of the ports first.
        duration : seconds
            -1: until `stop`, or until all bursts are sent.
        total : bool
            `mult` is the total of all ports.
        """
        chosen = self._ports(ports, self.get_acquired_ports())
        with self._lock:
            busy = set(chosen) & set(self.get_active_ports())
            if busy and not force:
                raise TRexError(f"ports {sorted(busy)} are sending\n  try force=True, or update()")
            if busy:
                self.stop(sorted(busy))
            empty = [
                port for port in chosen if not any(s.enabled for s in self._streams[port].values())
            ]
            if empty:
                raise TRexError(f"ports {empty} have no streams")
            factors = {
                port: self._factor(port, mult, len(chosen) if total else 1) for port in chosen
            }
            limit = None if duration is None or duration < 0 else float(duration)
            if self._run is not None:
                if limit is not None or self._duration is not None:
                    raise TRexError(
                        "other ports are sending, and a duration applies to all ports\n  try one start(), or stop() first"
                    )
                self._change({**self._active, **factors})
                return
            self._active, self._paused, self._duration = factors, set(), limit
            self._idle = [
                port for port, streams in self._streams.items() if streams and port not in factors
            ]
            try:
                self._run = self._session(self._profile()).start()
            except Error as error:
                self._active = {}
                raise error if isinstance(error, TRexError) else TRexError(str(error)) from error

    def update(
        self,
        ports: int | Iterable[int] | None = None,
        mult: float | str = "1",
        total: bool = False,
        **_: Any,
    ) -> None:
        """Change the rate during traffic; ``"5kpps+"`` and ``"10%-"`` are relative to the current
        rate. Streams with latency keep their own rates, here and in `start`.
        """
        chosen = self._ports(ports, self.get_active_ports())
        with self._lock:
            silent = set(chosen) - set(self.get_active_ports())
            if silent or not chosen:
                raise TRexError(
                    f"ports {sorted(silent)} are not sending" if silent else "no port is sending"
                )
            self._change(
                {
                    **self._active,
                    **{
                        port: self._factor(port, mult, len(chosen) if total else 1)
                        for port in chosen
                    },
                }
            )

    def pause(self, ports: int | Iterable[int] | None = None, **_: Any) -> None:
        """Pause ports. Frames that would have been due in the pause are due later."""
        for port in self._ports(ports, self.get_transmitting_ports()):
            self._running().pause(_group(port))
            self._paused.add(port)

    def resume(self, ports: int | Iterable[int] | None = None, **_: Any) -> None:
        for port in self._ports(ports, self.get_paused_ports()):
            self._running().resume(_group(port))
            self._paused.discard(port)

    def stop(
        self, ports: int | Iterable[int] | None = None, rx_delay_ms: int | None = None
    ) -> None:
        """Stop ports. Frames in transit are still counted."""
        with self._lock:
            active = self.get_active_ports()
            left = {
                port: factor
                for port, factor in self._active.items()
                if port not in self._ports(ports, active)
            }
            if self._run is None or len(left) == len(self._active):
                return
            if left:
                self._change(left)
                return
            self._run.stop()
            self._end()

    def wait_on_traffic(
        self,
        ports: int | Iterable[int] | None = None,
        timeout: float | None = None,
        rx_delay_ms: int | None = None,
    ) -> None:
        """Wait until everything is sent and received.

        Raises
        ------
        TRexTimeoutError
            Traffic has not ended after `timeout` seconds.
        """
        run = self._run
        if run is None or not set(self._ports(ports, self.get_active_ports())) & set(self._active):
            return
        if not run.wait(timeout):
            raise TRexTimeoutError(f"traffic has not ended after {timeout} s")
        with self._lock:
            if self._run is run:
                self._end()

    # Statistics

    def get_stats(
        self, ports: int | Iterable[int] | None = None, sync_now: bool = True
    ) -> dict[Any, Any]:
        """Return the counters since `clear_stats`, and rates, in TRex's format.

        Returns
        -------
        dict
            By port, and ``"total"``: ``opackets``, ``ipackets``, ``obytes``, ``ibytes`` (with FCS),
            ``oerrors``, ``ierrors``, ``tx_pps``, ``rx_pps``, ``tx_bps``, ``rx_bps`` (L2),
            ``tx_bps_L1``, ``rx_bps_L1``, ``tx_util``, ``rx_util``. ``"global"``: sums.
            ``"flow_stats"`` and ``"latency"`` (microseconds) by ``pg_id``.
        """
        with self._lock:
            counts = self._counted()
            chosen = self._ports(ports, self.get_acquired_ports())
            return _shaped(
                counts,
                self._cleared,
                {port: self._rates.get(port, {}) for port in chosen},
                self._speed,
            )

    def get_pgid_stats(self, pgid_list: Sequence[int] | None = None) -> dict[str, Any]:
        """Return only the statistics by ``pg_id``."""
        stats = self.get_stats()
        return {
            kind: {
                k: v
                for k, v in stats[kind].items()
                if not pgid_list or k == "global" or k in pgid_list
            }
            for kind in ("flow_stats", "latency")
        }

    def get_active_pgids(self) -> dict[str, list[int]]:
        used = [
            s.flow_stats
            for port in self._streams.values()
            for s in port.values()
            if s.flow_stats is not None
        ]
        return {
            "flow_stats": sorted({stats.pg_id for stats in used if not stats._latency}),
            "latency": sorted({stats.pg_id for stats in used if stats._latency}),
        }

    def clear_stats(self, ports: int | Iterable[int] | None = None, **_: Any) -> None:
        """Reset the counters to 0; those by ``pg_id`` for all ports. Latency statistics accumulate
        until the traffic ends.
        """
        with self._lock:
            counts = self._counted()
            for port in self._ports(ports, self.get_acquired_ports()):
                self._cleared[f"port {port}"] = counts["ports"].get(port, {})
            self._cleared["streams"] = counts["streams"]
            if self._run is None:
                # Counts of ended runs by ``pg_id`` are dropped: they cannot be subtracted from
                # those of later runs.
                self._past = [{**past, "streams": {}} for past in self._past]
                self._cleared.pop("streams")

    # Internals

    def _ports(self, ports: int | Iterable[int] | None, default: Sequence[int]) -> list[int]:
        if not self._connected:
            raise TRexError("not connected\n  try connect()")
        chosen = (
            list(default) if ports is None else [ports] if isinstance(ports, int) else list(ports)
        )
        for port in chosen:
            if port not in range(len(self._addresses)):
                raise TRexArgumentError(f"port {port!r}: expected 0 to {len(self._addresses) - 1}")
        return chosen

    def _session(self, profile: Profile) -> Any:
        if self._daemon is None:
            return Session(profile)
        if len(set(lease.id for lease in self._leases.values())) == 1 == len(self._addresses):
            return self._daemon.session(profile, lease=next(iter(self._leases.values())))
        # A run has a single lease for all ports: release the leases of single ports first.
        if self._leases:
            self.release()
        lease = self._daemon.acquire(*self._addresses, owner=self._username)
        self._leases = dict.fromkeys(self.get_all_ports(), lease)
        return self._daemon.session(profile, lease=lease)

    def _profile(self) -> Profile:
        """Return the profile of the active ports, with their streams at the current rates."""
        ports = {f"port{i}": address for i, address in enumerate(self._addresses)}
        profile = Profile(ports=ports, duration=self._duration)
        groups = self._numbered_groups()
        for port, factor in self._active.items():
            of_port = {number: group for (of, number), group in groups.items() if of == port}
            made = _translated(port, self._streams[port], factor, self._speed(port), of_port)
            profile.add(*made)
        for port in self._idle:
            profile.add(*_placeholders(port, self._streams[port].values()))
        return profile

    def _numbered_groups(self) -> dict[tuple[int, int], int]:
        """Return the numbers in TRex's marks, by port and stream: a stream keeps its number during
        traffic."""
        groups = {of: number for of, number in self._groups.items() if of[0] in self._active}
        used = set(groups.values())
        free = (number for number in itertools.count() if number not in used)
        for port in self._active:
            for number, stream in self._streams[port].items():
                if stream.flow_stats is not None and (port, number) not in groups:
                    groups[port, number] = next(free)
        self._groups = groups
        return groups

    def _factor(self, port: int, mult: float | str, share: int) -> float:
        """Return the factor that `mult` implies for the rates of a port's streams."""
        text = str(mult).replace(" ", "").lower()
        parsed = re.fullmatch(r"([0-9.]+(?:e-?\d+)?)([kmgt]?)(pps|bps|bpsl1|%)?([+-]?)", text)
        if not parsed or (parsed[2] and not parsed[3]) or (parsed[2] and parsed[3] == "%"):
            raise TRexArgumentError(
                f'mult = {mult!r}: expected "2", "1mpps", "10gbps", "10gbpsl1", "50%" ...'
            )
        value = float(parsed[1]) * {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}[parsed[2]]
        unit = {None: None, "pps": "pps", "bps": "bps_L2", "bpsl1": "bps_L1", "%": "percentage"}[
            parsed[3]
        ]
        now = self._active.get(port, 1.0)
        if unit is None:
            factor = value
        elif unit == "percentage" and parsed[4]:
            factor = now * value / 100
        else:
            factor = self._share(port, unit, value / share)
        factor = {"": factor, "+": now + factor, "-": now - factor}[parsed[4]]
        if not factor > 0:
            raise TRexArgumentError(f"mult = {mult!r}: the rate must be above 0")
        return factor

    def _share(self, port: int, unit: str, value: float) -> float:
        """Convert a total rate to a factor on the rates of a port's streams."""
        streams = self._streams[port]
        if any(stream.size is not None and stream.mode.unit != unit for stream in streams.values()):
            raise TRexArgumentError(
                f"a rate in {unit} and streams with a size of Squall in another unit\n"
                "  try streams in the same unit, or STLVmTrimPktSize"
            )
        return _asked(_native.trex_factor, _json(streams), unit, value, self._speed(port))

    def _speed(self, port: int) -> float | None:
        """Return the link speed of a port in bits per second; None if it is unknown."""
        if port not in self._speeds:
            interface = self._addresses[port].partition(":")[2].partition(",")[0]
            try:
                mbps = int(pathlib.Path("/sys/class/net", interface, "speed").read_text())
            except (OSError, ValueError):
                mbps = 0
            self._speeds[port] = mbps * 1e6 if mbps > 0 else None
        return self._speeds[port]

    def _running(self) -> _Run:
        if self._run is None:
            raise TRexError("no port is sending")
        return self._run

    def _change(self, active: dict[int, float]) -> None:
        before, self._active = self._active, active
        try:
            self._running().change(self._profile())
        except Error as error:
            self._active = before
            raise error if isinstance(error, TRexError) else TRexError(str(error)) from error

    def _look(self) -> None:
        """End the run if it has sent everything."""
        run = self._run
        if run is not None and run.wait(0):
            with self._lock:
                if self._run is run:
                    self._end()

    def _end(self) -> None:
        run, self._run = self._running(), None
        self._active, self._paused, self._duration, self._rates = {}, set(), None, {}
        try:
            self._past.append(_counts(run.finish(), self._of))
        except Error as error:
            raise TRexError(str(error)) from error

    def _counted(self) -> dict[str, Any]:
        """Return the totals over all runs so far."""
        self._look()
        parts = list(self._past)
        if self._run is not None:
            sample = self._run.sample()
            self._rates = {_number_of(port.name): vars(port) for port in sample.ports}
            rates = {stream.name: vars(stream) for stream in sample.streams}
            parts.append(_counts(self._run.report(), self._of, rates))
        return _sum(parts)

    def _of(self, name: str) -> tuple[int, STLFlowStats | None]:
        """Return the port of a stream in a report, and which statistics the stream has."""
        port, number = _named(name)
        stream = self._streams.get(port, {}).get(number)
        return port, None if stream is None else stream.flow_stats


def _group(port: int) -> str:
    return f"port {port}"


def _name(port: int, number: int, stream: STLStream) -> str:
    return f"{port}.{number} {stream.name or ''}".rstrip()


def _named(name: str) -> tuple[int, int]:
    port, _, rest = name.partition(".")
    return int(port), int(rest.partition(" ")[0])


def _number_of(port: str) -> int:
    return int(port.removeprefix("port"))


def _translated(
    port: int,
    streams: Mapping[int, STLStream],
    factor: float,
    speed: float | None = None,
    groups: Mapping[int, int] | None = None,
) -> list[Stream]:
    """Convert the streams of a port to Squall's form, with Squall's native library.

    ``groups`` has the numbers in TRex's marks, by stream.
    """
    names = {number: _name(port, number, stream) for number, stream in streams.items()}
    made = _asked(
        _native.trex_streams,
        _json(streams),
        json.dumps(names),
        f"port{port}",
        factor,
        speed,
        json.dumps(groups or {}),
    )
    sizes = {names[number]: stream.size for number, stream in streams.items()}
    translated = []
    for table in json.loads(made):
        table["vary"] = [Vary(**law) for law in table.get("vary", ())] or None
        if sizes[table["name"]] is not None:
            table["size"] = sizes[table["name"]]
        translated.append(Stream(**table, group=_group(port)))
    return translated


def _json(streams: Mapping[int, STLStream]) -> str:
    """Return the streams in the JSON of TRex's clients, with their packets' MAC addresses."""
    numbered = _stl.numbered(streams)
    for stream in numbered.values():
        stream["flags"] = stream["flags"] & ~6 | 3
    return json.dumps(numbered)


def _asked(what: Callable[..., _T], *arguments: Any) -> _T:
    try:
        return what(*arguments)
    except ValueError as error:
        raise TRexArgumentError(str(error)) from error


def _placeholders(port: int, streams: Iterable[STLStream]) -> list[Stream]:
    """Return two streams that wait for each other and never send: they make the run open the port
    for sending, for frames as long as those of `streams`.
    """
    octets = max((_octets(stream) for stream in streams), default=64)
    pair = [f"{port}.0 idle {which}" for which in "ab"]
    return [
        Stream(
            name=name,
            port=f"port{port}",
            packet="eth/ipv4/udp",
            size=octets,
            rate=1,
            mode={"burst": 1},
            self_start=False,
            next=other,
        )
        for name, other in zip(pair, reversed(pair), strict=True)
    ]


def _octets(stream: STLStream) -> int:
    """Return the frame length with FCS, at least 64 octets."""
    return max(len(stream.packet.octets()) + 4, 64)


def _counts(
    report: Report, of: Any, rates: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, Any]:
    """Return the counters of a report: by port, and by ``pg_id``."""
    ports = {
        _number_of(port.name): {
            "opackets": port.tx.packets,
            "obytes": port.tx.octets,
            "oerrors": port.tx.errors + sum(port.tx.not_sent.values()),
            "ipackets": port.rx.packets,
            "ibytes": port.rx.octets,
            "ierrors": sum(port.rx.drops.values()),
        }
        for port in report.ports
    }
    streams: dict[tuple[int, int], dict[str, Any]] = {}
    for stream in report.streams:
        port, stats = of(stream.name)
        if stats is None or stream.rx is None:
            continue
        rx = stream.rx
        now = (rates or {}).get(stream.name, {})
        entry = streams.setdefault(
            (stats.pg_id, port), {"counts": {}, "rates": {}, "latency": None, "jitter": None}
        )
        octets = stream.tx_octets / stream.tx_packets if stream.tx_packets else 0.0
        _add(
            entry["counts"],
            {
                "tx_pkts": stream.tx_packets,
                "tx_bytes": stream.tx_octets,
                "rx_bytes": rx.octets,
                "dropped": rx.lost,
                "dup": rx.duplicates,
                "out_of_order": rx.reordered,
                "rx_pkts": rx.packets,
            },
        )
        tx_pps, rx_pps = float(now.get("tx_pps", 0.0)), float(now.get("rx_pps", 0.0))
        _add(
            entry["rates"],
            {
                "tx_pps": tx_pps,
                "rx_pps": rx_pps,
                "tx_bps": tx_pps * octets * 8,
                "rx_bps": rx_pps * octets * 8,
            },
        )
        entry["rx_ports"] = sorted({*entry.get("rx_ports", ()), *map(_number_of, rx.ports)})
        if stats._latency and rx.latency_ns is not None:
            entry["latency"], entry["jitter"] = rx.latency_ns, rx.jitter_ns
    return {"ports": ports, "streams": streams}


def _add(into: dict[str, Any], more: Mapping[str, Any]) -> None:
    for key, value in more.items():
        into[key] = into.get(key, 0) + value


def _sum(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    ports: dict[int, dict[str, int]] = {}
    streams: dict[tuple[int, int], dict[str, Any]] = {}
    for part in parts:
        for port, counts in part["ports"].items():
            _add(ports.setdefault(port, {}), counts)
        for key, entry in part["streams"].items():
            into = streams.setdefault(key, {"counts": {}, "rates": {}, "rx_ports": []})
            _add(into["counts"], entry["counts"])
            into["rates"] = entry["rates"]
            into["rx_ports"] = sorted({*into["rx_ports"], *entry.get("rx_ports", ())})
            # Use those of the latest run: distributions of two runs cannot be merged.
            into["latency"], into["jitter"] = entry["latency"], entry["jitter"]
    return {"ports": ports, "streams": streams}


def _shaped(
    counts: Mapping[str, Any],
    cleared: Mapping[str, Any],
    rates: Mapping[int, Mapping[str, float]],
    speed: Any,
) -> dict[Any, Any]:
    """Return the statistics in TRex's format."""
    keys = ["opackets", "ipackets", "obytes", "ibytes", "oerrors", "ierrors"]
    stats: dict[Any, Any] = {}
    for port, now in rates.items():
        before = cleared.get(f"port {port}", {})
        one: dict[str, float] = {
            key: counts["ports"].get(port, {}).get(key, 0) - before.get(key, 0) for key in keys
        }
        for side in ("tx", "rx"):
            one[f"{side}_pps"] = now.get(f"{side}_pps", 0.0)
            one[f"{side}_bps"] = now.get(f"{side}_bps_l2", 0.0)
            one[f"{side}_bps_L1"] = now.get(f"{side}_bps_l1", 0.0)
            line = speed(port)
            one[f"{side}_util"] = one[f"{side}_bps_L1"] / line * 100 if line else 0.0
        stats[port] = one
    total: dict[str, float] = {}
    for one in list(stats.values()):
        _add(total, one)
    stats["total"] = total or dict.fromkeys(keys, 0)
    stats["global"] = {
        "tx_pps": total.get("tx_pps", 0.0),
        "rx_pps": total.get("rx_pps", 0.0),
        "tx_bps": total.get("tx_bps", 0.0),
        "rx_bps": total.get("rx_bps", 0.0),
        "rx_drop_bps": max(total.get("tx_bps", 0.0) - total.get("rx_bps", 0.0), 0.0),
        "queue_full": total.get("oerrors", 0),
        "cpu_util": 0.0,
        "rx_cpu_util": 0.0,
        "bw_per_core": 0.0,
    }
    flows: dict[Any, Any] = {
        "global": {"rx_err": dict.fromkeys(rates, 0), "tx_err": dict.fromkeys(rates, 0)}
    }
    latency: dict[Any, Any] = {"global": {"old_flow": 0, "bad_hdr": 0}}
    for (pg_id, port), entry in counts["streams"].items():
        before = cleared.get("streams", {}).get((pg_id, port), {}).get("counts", {})
        now = {key: value - before.get(key, 0) for key, value in entry["counts"].items()}
        flow = flows.setdefault(pg_id, {})
        sides = {"tx": [port], "rx": entry["rx_ports"][:1] or [port]}
        values = {
            **{k: now[k] for k in ("tx_pkts", "tx_bytes", "rx_pkts", "rx_bytes")},
            **entry["rates"],
        }
        for side in ("tx", "rx"):
            values[f"{side}_bps_l1"] = values[f"{side}_bps"] + values[f"{side}_pps"] * 160
        for key, value in values.items():
            zero: dict[Any, float] = {**dict.fromkeys(rates, 0), "total": 0}
            by_port = flow.setdefault(key, zero)
            for at in sides[key[:2]]:
                by_port[at] = by_port.get(at, 0) + value
            by_port["total"] += value
        if entry["latency"] is not None:
            errors = {key: now[key] for key in ("dropped", "dup", "out_of_order")}
            latency[pg_id] = {
                "err_cntrs": {
                    **errors,
                    "seq_too_high": 0,
                    "seq_too_low": errors["dup"] + errors["out_of_order"],
                },
                "latency": _latency(entry["latency"], entry["jitter"]),
            }
    stats["flow_stats"], stats["latency"] = flows, latency
    return stats


def _latency(delay: Distribution, jitter_ns: float | None) -> dict[str, Any]:
    """Return the delays in microseconds, with TRex's histogram: a key is the lower bound of its
    range, with one significant digit.
    """
    histogram: dict[int, int] = {}
    for lower, _, count in delay.bins.tolist():
        us = int(lower) // 1000
        scale = 10 ** (len(str(us)) - 1)
        key = 0 if us < 10 else us // scale * scale
        histogram[key] = histogram.get(key, 0) + int(count)
    return {
        "average": delay.mean / 1e3,
        "total_min": delay.min / 1e3,
        "total_max": delay.max / 1e3,
        "last_max": delay.max / 1e3,
        "jitter": (jitter_ns or 0.0) / 1e3,
        "histogram": histogram,
    }

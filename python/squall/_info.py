"""What is in captures. The fields are those of ``schemas/info.schema.json``; octets are on the wire
**without** FCS.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _native
from ._report import Cpu, Distribution, Memory
from ._values import Arrays, Figures, read

Counts = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class FileFault:
    """What ended the reading before the end of the file, and where it begins; all before it is
    counted.
    """

    offset: int
    text: str


@dataclass(frozen=True)
class InterfaceInfo:
    """An interface of a capture. ``snaplen`` 0 is no limit; ``packets`` are those in the file,
    whatever a filter left out; ``received`` and what was dropped are the capturing program's
    counts, if it wrote them.
    """

    name: str | None
    link_type: str
    link_type_number: int
    resolution: str
    snaplen: int
    packets: int
    received: int | None
    dropped_by_interface: int | None
    dropped_by_system: int | None


@dataclass(frozen=True)
class Order:
    """Whether time stamps ascend: ``strict`` if no packet is earlier than the one before it."""

    strict: bool
    backward_packets: int
    largest_backward_ns: int
    untimed_packets: int


@dataclass(frozen=True)
class LengthBin:
    """Packets of ``start`` to ``end`` octets, both inclusive; the last bin has no end."""

    start: int
    end: int | None
    packets: int
    octets: int


@dataclass(frozen=True, eq=False)
class Lengths(Arrays):
    """Octets on the wire, without FCS.

    Attributes
    ----------
    counts : ndarray of uint64, shape (n, 2)
        Length and packets, ascending, none empty.
    """

    min: int
    mean: float
    stddev: float
    p50: int
    p90: int
    p99: int
    max: int
    bins: tuple[LengthBin, ...]
    counts: Counts = field(repr=False)


@dataclass(frozen=True)
class ProtocolShare:
    """``layer`` is ``network`` (these sum to all packets), ``transport`` (these sum to IP) or
    ``tag`` (VLAN, MPLS).
    """

    layer: str
    name: str
    packets: int
    octets: int
    packet_share: float
    octet_share: float


@dataclass(frozen=True)
class PortShare:
    """Packets from or to a port of TCP or UDP."""

    port: int
    packets: int
    octets: int


@dataclass(frozen=True)
class HostShare:
    """Packets from and to an address."""

    address: str
    tx_packets: int
    tx_octets: int
    rx_packets: int
    rx_octets: int


@dataclass(frozen=True)
class FlowRow:
    """One direction: ``10.0.0.1:53 > 10.0.0.2:5353 UDP``. ``start_s`` counts from the first packet
    of the capture.
    """

    flow: str
    packets: int
    octets: int
    start_s: float
    duration_s: float


@dataclass(frozen=True)
class Flows:
    """Flows: one direction each.

    Attributes
    ----------
    unique, conversations : int
        Different ones, and with both directions as one.
    begun, expired, active : int
        With those that began anew after they had expired; `active` is None if none expires.
    limit, overflow_packets : int
        Maximum number of flows tracked, and packets of the flows beyond it.
    top : tuple of FlowRow
        Those with most octets.
    """

    unique: int
    conversations: int
    begun: int
    expired: int
    active: int | None
    per_second: float
    expiry_s: float | None
    flow_packets: int
    non_flow_packets: int
    limit: int
    overflow_packets: int
    top: tuple[FlowRow, ...]
    packets_per_flow: Distribution | None
    octets_per_flow: Distribution | None
    duration_ns: Distribution | None


@dataclass(frozen=True)
class ChecksumCount:
    """Checksums that are right, and that are not."""

    good: int
    bad: int


@dataclass(frozen=True, eq=False)
class TrafficSeries(Arrays):
    """Counts over time, each uint64[n], in points of ``width_s`` from the first packet on."""

    width_s: float
    packets: Counts = field(repr=False)
    octets: Counts = field(repr=False)
    new_flows: Counts = field(repr=False)


@dataclass(frozen=True)
class Traffic:
    """Packets and what is known of them.

    Attributes
    ----------
    octets, octets_captured : int
        On the wire, and those that are in the file.
    first_ns, last_ns : int, optional
        The earliest and the latest packet, since 1970.
    mean_pps, mean_bps : float
        Over the duration; 0 without one.
    peak_second_packets, peak_second_octets : int
        In the best of the seconds counted from the first packet on.
    gap_ns : Distribution, optional
        From each packet to the next.
    checksums, duplicates : optional
        Only when asked for.
    """

    packets: int
    octets: int
    octets_captured: int
    cut_packets: int
    first_ns: int | None
    last_ns: int | None
    first: str | None
    last: str | None
    duration_s: float
    mean_pps: float
    mean_bps: float
    peak_second_packets: int
    peak_second_octets: int
    order: Order
    lengths: Lengths
    gap_ns: Distribution | None
    protocols: tuple[ProtocolShare, ...]
    tcp_ports: tuple[PortShare, ...]
    udp_ports: tuple[PortShare, ...]
    hosts: tuple[HostShare, ...]
    flows: Flows
    fragments: int
    malformed_packets: int
    cut_header_packets: int
    checksums: dict[str, ChecksumCount] | None
    duplicates: int | None
    series: TrafficSeries


@dataclass(frozen=True)
class FileInfo:
    """One file, and what is in it. ``fault`` is None if it was read to its end."""

    path: str
    size_octets: int | None
    format: str | None
    compression: str | None
    interfaces: tuple[InterfaceInfo, ...]
    fault: FileFault | None
    stopped: bool
    sha256: str | None
    traffic: Traffic


@dataclass(frozen=True, eq=False, repr=False)
class Info(Figures[_native.Info]):
    """What is in some captures.

    Attributes
    ----------
    files : tuple of FileInfo
    total : Traffic, optional
        All files together, if there are several.
    elapsed_s, cpu, memory
        What the reading cost.
    """

    schema: str
    command: str
    squall_version: str
    filter: str | None
    files: tuple[FileInfo, ...]
    total: Traffic | None
    notes: tuple[str, ...]
    elapsed_s: float
    cpu: Cpu
    memory: Memory
    _inner: _native.Info = field(init=False, repr=False, compare=False)
    _core = _native.Info

    @classmethod
    def _from(cls, native: _native.Info) -> Info:
        info = read(cls, json.loads(native.to_json(), object_hook=_with_names))
        object.__setattr__(info, "_inner", native)
        return info

    @property
    def traffic(self) -> Traffic:
        """Of all files: the total, or the only one's."""
        return self.total or self.files[0].traffic

    def summary(self) -> str:
        """The figures as text."""
        return self._inner.summary()

    def table(self) -> str:
        """A line for each file."""
        return self._inner.table()

    def __eq__(self, other: object) -> bool:
        return self.to_dict() == other.to_dict() if isinstance(other, Info) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return self.summary()

    def __repr__(self) -> str:
        files = "1 capture" if len(self.files) == 1 else f"{len(self.files)} captures"
        return (
            f"<squall.Info: {files}, {self.traffic.packets} packets, {self.traffic.octets} octets>"
        )


def _with_names(table: dict[str, Any]) -> dict[str, Any]:
    """``from`` is a word of Python's."""
    if "from" in table and "to" in table:
        table["start"], table["end"] = table.pop("from"), table.pop("to")
    return table


def info(
    path: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    filter: str | None = None,
    bins: str = "rmon",
    flow_expiry_s: float | None = None,
    max_flows: int = 1 << 19,
    top: int = 10,
    checksums: bool = False,
    duplicates: int = 0,
    hash: bool = False,
) -> Info:
    """Summarize captures: packets, rates, protocols, lengths, gaps, flows.

    A faulty file raises nothing: it is summarized as far as it can be read, and ``files[i].fault``
    says what is wrong and where.

    Parameters
    ----------
    path : path or iterable of paths
        pcap or pcapng, compressed or not.
    filter : str, optional
        Looks only at what this takes, in the language of tcpdump: ``"udp port 53"``.
    bins : str
        Of lengths: ``"rmon"`` (RFC 2819), ``"wireshark"``, a width (``"100"``), or edges
        (``"64,128,1500"``).
    flow_expiry_s : float, optional
        A flow that is idle for longer has ended, and its next packet begins another.
    max_flows : int
        Maximum number of flows tracked: 88 octets of memory each.
    top : int
        Rows in the lists of flows, hosts and ports.
    checksums : bool
        Verifies those of IPv4, TCP, UDP, ICMP and ICMPv6.
    duplicates : int
        Count packets identical to one of this number of packets before them.
    hash : bool
        The SHA-256 of each file, for which it is read once more.

    Returns
    -------
    Info

    Raises
    ------
    OSError
        A file that is not there or cannot be read.
    ProfileError
        A filter that says nothing.

    Examples
    --------
    >>> import pathlib, squall, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "a.pcap"
    >>> sent = squall.send(f"pcap:{file}", "eth/ipv4/udp(dport=53)", rate="1 kpps", count=11, size=128)
    >>> info = squall.info(file)
    >>> info.traffic.packets, info.traffic.lengths.max, info.traffic.duration_s, info.traffic.flows.unique
    (11, 124, 0.01, 1)
    """
    paths = [path] if isinstance(path, (str, os.PathLike)) else list(path)
    if not paths:
        raise ValueError("there is no file to read")
    native = _native.info(
        [os.fspath(p) for p in paths],
        filter=filter,
        bins=bins,
        flow_expiry_s=flow_expiry_s,
        max_flows=max_flows,
        top=top,
        checksums=checksums,
        duplicates=duplicates,
        hash=hash,
    )
    return Info._from(native)

"""Capture statistics; octets are those on the wire **without** FCS."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from . import _native
from ._generated import InfoFigures, Traffic
from ._values import Figures, read

__all__ = ["Info", "info"]


@dataclass(frozen=True, eq=False, repr=False)
class Info(InfoFigures, Figures[_native.Info]):
    """Statistics of one or more captures, with the fields of `InfoFigures`."""

    _inner: _native.Info = field(init=False, repr=False, compare=False)
    _core = _native.Info

    @classmethod
    def _from(cls, native: _native.Info) -> Info:
        info = read(cls, json.loads(native.to_json(), object_hook=_with_names))
        object.__setattr__(info, "_inner", native)
        return info

    @property
    def traffic(self) -> Traffic:
        """Statistics of all files: the total, or those of the only file."""
        return self.total or self.files[0].traffic

    def summary(self) -> str:
        """Return the figures as text."""
        return self._inner.summary()

    def table(self) -> str:
        """Return a table with one line per file."""
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
    """Rename ``from`` and ``to``: ``from`` is a keyword of Python."""
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

    A damaged file raises no exception: it is read up to the damage, and ``files[i].fault`` has the
    error and its position.

    Parameters
    ----------
    path : path or iterable of paths
        pcap or pcapng, compressed or not.
    filter : str, optional
        Read only matching packets (tcpdump syntax): ``"udp port 53"``.
    bins : str
        Length bins: ``"rmon"`` (RFC 2819), ``"wireshark"``, a width (``"100"``), or edges
        (``"64,128,1500"``).
    flow_expiry_s : float, optional
        End a flow that is idle for longer; its next packet starts a new flow.
    max_flows : int
        Maximum number of flows tracked, at 88 bytes of memory each.
    top : int
        Number of rows in the lists of flows, hosts and ports.
    checksums : bool
        Verify the checksums of IPv4, TCP, UDP, ICMP and ICMPv6.
    duplicates : int
        Count packets that are identical to one of the previous N packets.
    hash : bool
        Compute the SHA-256 of each file, which reads it a second time.

    Returns
    -------
    Info

    Raises
    ------
    OSError
        A file is missing or cannot be read.
    ProfileError
        The filter is invalid.

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

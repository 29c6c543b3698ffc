"""Capturing received packets into files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Literal

from . import _native
from ._report import Report


def capture(
    port: str | Iterable[str],
    file: str | os.PathLike[str],
    *,
    filter: str | None = None,
    duration_s: float | None = None,
    count: int | None = None,
    snaplen: int | None = None,
    format: Literal["pcapng", "pcap", "pcap-us"] = "pcapng",
    compress: str | None = None,
    rotate_octets: int | None = None,
    rotate_s: float | None = None,
    rotate_count: int | None = None,
    ring_files: int | None = None,
    buffer: int = 64 << 20,
    on_full: Literal["drop-newest", "drop-oldest"] = "drop-newest",
    force: bool = False,
) -> Report:
    """Capture the packets that arrive on one or more ports into a file. Without `count` and
    `duration_s`, until Ctrl-C, or until the files that are read end.

    Parameters
    ----------
    port : str or iterable of str
        Addresses: ``"af_packet:eth1"``, ``"pcap:in.pcap,read"``.
    file : path
        With `rotate_octets`, `rotate_s` or `rotate_count`, the name for several numbered files.
    filter : str, optional
        Capture only matching packets (tcpdump's language): ``"udp port 53"``.
    count : int, optional
        Stop after this number of packets.
    snaplen : int, optional
        Keep at most this many octets of each packet.
    compress : str, optional
        ``"zstd"``, ``"gz"`` or ``"lz4"``, with a level: ``"zstd:3"``.
    rotate_octets, rotate_s, rotate_count : optional
        Start a new file after this many bytes, seconds or packets.
    ring_files : int, optional
        Keep only this number of files, the newest.
    buffer : int
        Size in bytes of the buffer between the wire and the file.
    on_full : str
        Packets to lose when the buffer is full: new ones, or those that have waited longest.
    force : bool
        Overwrite `file` if it exists, and fill its disk to more than 95 %.

    Returns
    -------
    Report
        ``report.capture`` has the packets written, and those lost with the reason.

    Raises
    ------
    PortError
        A port or a file cannot be opened.
    ProfileError
        A filter or an address is wrong, or the file exists.

    Examples
    --------
    >>> import pathlib, squall, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> sent = squall.send(f"pcap:{folder}/in.pcap", "eth/ipv4/udp", rate="1 kpps", count=10)
    >>> report = squall.capture(f"pcap:{folder}/in.pcap,read", folder / "out.pcapng")
    >>> report.capture.received, report.capture.written_packets, report.capture.lost
    (10, 10, 0)
    """
    ports = [port] if isinstance(port, str) else list(port)
    options = {
        "file": os.fspath(file),
        "snaplen": snaplen,
        "packets": count,
        "format": format,
        "compress": compress,
        "rotate_octets": rotate_octets,
        "rotate_s": rotate_s,
        "rotate_packets": rotate_count,
        "ring": ring_files,
        "buffer": buffer,
        "on_full": on_full,
    }
    run = {"capture": options, "filter": filter, "force": force}
    return Report._from(_native.capture(ports, json.dumps(run), duration_s))

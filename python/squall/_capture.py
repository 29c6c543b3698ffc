"""Capturing received packets into files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from . import _native
from ._keywords import unknown
from ._options import CaptureOptions, CaptureSettings
from ._profile import _plain
from ._report import Report

if TYPE_CHECKING:
    # typing.Unpack exists only from Python 3.11 on.
    from typing_extensions import Unpack


def capture(
    port: str | Iterable[str],
    file: str | os.PathLike[str],
    *,
    filter: str | None = None,
    duration_s: float | None = None,
    force: bool = False,
    **options: Unpack[CaptureSettings],
) -> Report:
    """Capture received packets of one or more ports into a file. Without `packets` and
    `duration_s`, runs until Ctrl-C, or until the end of the files that are read.

    Parameters
    ----------
    port : str or iterable of str
        Addresses: ``"af_packet:eth1"``, ``"pcap:in.pcap,read"``.
    file : path
        With `rotate_octets`, `rotate_s` or `rotate_packets`, the base name of several numbered
        files.
    filter : str, optional
        Capture only matching packets (tcpdump syntax): ``"udp port 53"``.
    force : bool
        Overwrite `file` if it exists, and fill its disk to more than 95 %.
    **options
        As in `CaptureOptions`.

    Returns
    -------
    Report
        ``report.capture`` has the packets written, and the packets lost by reason.

    Raises
    ------
    PortError
        A port or a file cannot be opened.
    ProfileError
        A filter or an address is invalid, or the file exists.

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
    known = ["port", "file", "filter", "duration_s", "force", *CaptureSettings.__annotations__]
    if not options.keys() <= set(known):
        raise TypeError(unknown("capture", options, known))
    asked: CaptureOptions = {"file": file, **options}
    run = {"capture": asked, "filter": filter, "force": force}
    return Report._from(_native.capture(ports, json.dumps(_plain(run)), duration_s))

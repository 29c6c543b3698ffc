"""Splits captures over two ports, like tcpprep."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

from . import _native

__all__ = ["Prepared", "prep"]


@dataclass(frozen=True)
class Prepared:
    """Contents of a cache file that `prep` wrote.

    Attributes
    ----------
    primary, secondary, skipped : int
        Number of packets that leave on the clients' port, on the servers' port, and that are not
        sent.
    fault : str or None
        Why the capture could not be read to its end; the cache covers the packets before that.
    """

    primary: int
    secondary: int
    skipped: int
    fault: str | None


def prep(
    file: str | os.PathLike[str],
    cache: str | os.PathLike[str],
    *,
    split: tuple[Literal["auto", "cidr", "regex", "mac", "port"], str] = ("auto", "first"),
    reverse: bool = False,
    non_ip: bool = False,
    include: str | None = None,
    exclude: str | None = None,
    comment: str = "",
) -> Prepared:
    """Split a capture over two ports, and write each packet's port to a cache file in tcpprep's
    format.

    Parameters
    ----------
    file : path
        pcap or pcapng, compressed or not.
    cache : path
        The file to write. Pass it to `replay` as ``split=("cache", path)``, or to `edit` as
        ``cache``.
    split : (kind, text)
        Rule that assigns packets to a side: ``("auto", "bridge")``, ``("cidr", "10.0.0.0/8")``,
        ``("regex", "^10[.]")``, ``("mac", "02:00:00:00:00:01")``, ``("port", "")``.
    reverse : bool
        Swap the two ports.
    non_ip : bool
        Send non-IP packets on the primary port.
    include, exclude : str, optional
        At most one. Send only these packets, or all but these: ``"S:10.0.0.0/8"``, ``"P:1-5,9"``,
        ``"F:tcp port 80"``.
    comment : str
        Comment to store in the cache file.

    Returns
    -------
    Prepared

    Raises
    ------
    ProfileError
        The capture cannot be read, a host cannot be classified, or a rule is invalid.
    PortError
        The cache file cannot be written.

    Examples
    --------
    >>> import pathlib, squall, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> sent = squall.send(f"pcap:{folder}/in.pcap", "eth/ipv4/udp", rate="1 kpps", count=10)
    >>> squall.prep(folder / "in.pcap", folder / "in.cache", include="P:1-4")
    Prepared(primary=4, secondary=0, skipped=6, fault=None)
    """
    done = _native.prep(
        os.fspath(file),
        os.fspath(cache),
        split=split,
        reverse=reverse,
        non_ip=non_ip,
        include=include,
        exclude=exclude,
        comment=comment,
    )
    return Prepared(*done)

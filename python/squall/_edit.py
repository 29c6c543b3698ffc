"""Rewriting, merging and splitting captures."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import TypeAlias, Union

from . import _native
from ._generated import Edited
from ._values import read

EditValue: TypeAlias = Union[str, int, float]
Edits: TypeAlias = Mapping[str, Union[EditValue, Iterable[EditValue]]]


def asked_edits(edits: Edits | None) -> list[tuple[str, str]]:
    """Return the edits as pairs of name and text; a list becomes one pair per item."""
    asked = []
    for name, value in (edits or {}).items():
        values = [value] if isinstance(value, (str, int, float)) else value
        asked += [(name, str(one)) for one in values]
    return asked


def edit(
    files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    edits: Edits | None = None,
    *,
    merge: bool = False,
    split_count: int | None = None,
    split_time: float | None = None,
    split_flows: bool = False,
    cache: str | os.PathLike[str] | None = None,
    force: bool = False,
) -> Edited:
    """Rewrite captures (addresses, ports, tags, lengths, link types, times), merge or split them.

    A damaged file raises no exception: the packets before the damage are written, and
    ``inputs[i].fault`` has the error and its position.

    Parameters
    ----------
    files : path or iterable of paths
        pcap or pcapng, compressed or not; read one after the other, or, with `merge`, in timestamp
        order.
    out : path
    edits : dict, optional
        Options of ``squall edit --help`` by name, with ``_`` for ``-``:
    merge : bool
    split_count, split_time, split_flows
        At most one: start a new file after this number of packets, after this number of seconds, or
        for each conversation.
    cache : path, optional
        The sender of each packet (client or server), as written by ``squall prep`` or tcpprep.
    force : bool
        Overwrite `out` if it exists, and allow it to fill more than half of the free space of its
        disk.

    Returns
    -------
    Edited

    Raises
    ------
    ProfileError
        An edit is unknown, a value is invalid (the message names the expected one), or `out`
        exists.
    PortError
        A file cannot be opened or written.

    Examples
    --------
    >>> import pathlib, squall, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> sent = squall.send(f"pcap:{folder}/in.pcap", "eth/ipv4(ttl=64)/udp", rate="1 kpps", count=10)
    >>> edited = squall.edit(folder / "in.pcap", folder / "out.pcap", {"ttl": "-1", "packets": "1-4"})
    >>> edited.packets_written, [(done.operation, done.changed) for done in edited.operations if done.changed]
    (4, [('ttl', 4)])
    """
    inputs = [files] if isinstance(files, (str, os.PathLike)) else list(files)
    if not inputs:
        raise ValueError("there is no file to read")
    text = _native.edit(
        [os.fspath(file) for file in inputs],
        os.fspath(out),
        edits=asked_edits(edits),
        merge=merge,
        split_count=split_count,
        split_time_ns=None if split_time is None else round(split_time * 1e9),
        split_flows=split_flows,
        cache=None if cache is None else os.fspath(cache),
        force=force,
    )
    return read(Edited, json.loads(text))

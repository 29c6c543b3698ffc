"""Attacks from rules, and how an engine did on them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from . import _native
from ._profile import Attack, Profile, Time
from ._report import Report
from ._session import Progress, Session

__all__ = ["Score", "attack", "score"]

Path = str | os.PathLike[str]


def attack(
    rules: Path | Iterable[Path],
    port: str = "pcap:attacks.pcap",
    port2: str | None = None,
    *,
    labels: Path | None = None,
    duration: Time | None = None,
    seed: int | None = None,
    clock: Literal["real", "virtual"] | None = None,
    progress: Progress | None = None,
    **more: Any,
) -> Report:
    """Makes traffic from rules that raises their alerts, and sends it.

    Parameters
    ----------
    rules : path or iterable of paths
        Files of rules of Snort 2, Snort 3 or Suricata, or folders of such.
    port, port2 : str
        Addresses: clients stand at `port`, servers at `port2` if there is one. Default: a file,
        ``attacks.pcap``.
    labels : path, optional
        Where the ground truth is written: as JSONL if it ends so, else as CSV.
    duration, seed
        As those of `Profile`.
    clock, progress
        As those of `Session` and `Session.run`.
    **more
        As those of `Attack`: ``rate``, ``sid``, ``near_miss``, ``evasion`` ...

    Returns
    -------
    Report
        ``report.attacks[0]`` tells what was solved and, with `port2`, what passed.

    Raises
    ------
    ProfileError
        An argument is wrong, no rule is chosen.
    PortError
        A file cannot be read, a port does not open.
    """
    ports = {"A": port} if port2 is None else {"A": port, "B": port2}
    one = Attack(name="attack", rules=rules, port="A", port2=None if port2 is None else "B", **more)
    profile = Profile(ports=ports, attacks=[one], duration=duration, seed=seed)
    return Session(profile, clock=clock, receive=port2 is not None, labels=labels).run(
        progress=progress
    )


@dataclass(frozen=True)
class Score:
    """What an engine found of attacks.

    Attributes
    ----------
    counts : dict of str to int
        Conversations: ``attacks``, ``hit``, ``missed``, ``near_misses``, ``near_misses_alerted``,
        ``benign``, ``benign_alerted`` ...; alerts: ``alerts_own``, ``collateral``, ``duplicates``.
    rates : dict of str to float or None
        ``detection``, ``precision``, ``f1``, ``false_positive`` ..., 0 to 1; None where there was
        nothing to divide by.
    rules : tuple of dict
        The same by rule, with ``gid``, ``sid``, ``msg`` and latencies in nanoseconds.
    """

    counts: Mapping[str, int]
    rates: Mapping[str, float | None]
    rules: tuple[Mapping[str, Any], ...]
    _all: dict[str, Any] = field(repr=False, compare=False)
    _texts: tuple[str, str] = field(repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """All figures, as ``squall score --json`` writes them."""
        return self._all

    def to_html(self) -> str:
        """One page with plots."""
        return self._texts[1]

    def summary(self) -> str:
        """What the command line prints."""
        return self._texts[0]


def score(labels: Path, alerts: Path | Iterable[Path], *, shift: float = 0.0) -> Score:
    """Compares the alerts of an intrusion detection with the ground truth of attacks.

    Parameters
    ----------
    labels : path
        What `attack` wrote.
    alerts : path or iterable of paths
        Suricata's eve.json or fast.log, Snort's alert_fast or alert_csv.
    shift : seconds
        Added to the times of alerts, where clocks differ.

    Raises
    ------
    ProfileError
        A file is no such file.
    PortError
        A file cannot be read.
    """
    files = [alerts] if isinstance(alerts, str | os.PathLike) else list(alerts)
    text, summary, page = _native.score(
        os.fspath(labels), [os.fspath(file) for file in files], shift
    )
    figures: dict[str, Any] = json.loads(text)
    return Score(
        figures["counts"], figures["rates"], tuple(figures["rules"]), figures, (summary, page)
    )

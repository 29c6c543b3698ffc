"""Attacks made from rules, and the score of a detection engine."""

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
    """Generate and send traffic that triggers the alerts of rules.

    Parameters
    ----------
    rules : path or iterable of paths
        Rule files for Snort 2, Snort 3 or Suricata, or directories of rule files.
    port, port2 : str
        Port addresses: clients run on `port`, servers on `port2` if given. Default: a file,
        ``attacks.pcap``.
    labels : path, optional
        Write the ground truth to this file: JSONL if its name ends in .jsonl or .json, else CSV.
    duration, seed
        As in `Profile`.
    clock, progress
        As in `Session` and `Session.run`.
    **more
        As in `Attack`: ``rate``, ``sid``, ``near_miss``, ``evasion`` ...

    Returns
    -------
    Report
        ``report.attacks[0]`` has the solved rules and, with `port2`, the attacks that arrived.

    Raises
    ------
    ProfileError
        An argument is invalid, or no rule is selected.
    PortError
        A file cannot be read, or a port cannot be opened.
    """
    ports = {"A": port} if port2 is None else {"A": port, "B": port2}
    one = Attack(name="attack", rules=rules, port="A", port2=None if port2 is None else "B", **more)
    profile = Profile(ports=ports, attacks=[one], duration=duration, seed=seed)
    return Session(profile, clock=clock, receive=port2 is not None, labels=labels).run(
        progress=progress
    )


@dataclass(frozen=True)
class Score:
    """The attacks that an engine detected and missed.

    Attributes
    ----------
    counts : dict of str to int
        Conversations: ``attacks``, ``hit``, ``missed``, ``near_misses``, ``near_misses_alerted``,
        ``benign``, ``benign_alerted`` ...; alerts: ``alerts_own``, ``collateral``, ``duplicates``.
    rates : dict of str to float or None
        ``detection``, ``precision``, ``f1``, ``false_positive`` ..., 0 to 1; None if the divisor is
        0.
    rules : tuple of dict
        The counts and rates of each rule, with ``gid``, ``sid``, ``msg`` and latencies in
        nanoseconds.
    """

    counts: Mapping[str, int]
    rates: Mapping[str, float | None]
    rules: tuple[Mapping[str, Any], ...]
    _all: dict[str, Any] = field(repr=False, compare=False)
    _texts: tuple[str, str] = field(repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Return all figures, in the form that ``squall score --json`` writes."""
        return self._all

    def to_html(self) -> str:
        """Return one HTML page with plots."""
        return self._texts[1]

    def summary(self) -> str:
        """Return the text that the command line prints."""
        return self._texts[0]


def score(labels: Path, alerts: Path | Iterable[Path], *, shift: float = 0.0) -> Score:
    """Compare the alerts of an intrusion detection system with the ground truth of attacks.

    Parameters
    ----------
    labels : path
        The ground truth that `attack` wrote.
    alerts : path or iterable of paths
        Suricata's eve.json or fast.log, Snort's alert_fast or alert_csv.
    shift : seconds
        Offset to add to the times of alerts, if the clocks differ.

    Raises
    ------
    ProfileError
        A file has another format.
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

"""Standard tests of network devices, with a verdict.

Each function runs one method with the streams (or flows) of a profile. The method sets frame sizes
and rates, the profile everything else. A trial in which the generator missed its schedule is
repeated and never counted; if it keeps missing the schedule, the verdict is ``generator_bound``.

>>> import squall, squall.test
>>> profile = squall.Profile(ports={"A": "loop:test,virtual,drain=10kpps,buffer=50"})
>>> profile.add(squall.Stream(name="A", packet="eth/ipv4/udp", rate="1 kpps"))
>>> result = squall.test.rfc2544(
...     profile, max_rate="100kpps", tests=["throughput"], frame_sizes=[64], trial_s=1
... )
>>> result.status, 9950 < result.figures["throughput/64"] <= 10000
('measured', True)
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

from . import _native
from ._profile import Profile, Time, _plain

__all__ = [
    "Result",
    "ab",
    "bufferbloat",
    "capacity",
    "mlrsearch",
    "rfc2544",
    "rfc2889",
    "rfc3918",
    "rfc6349",
    "rfc8219",
    "rfc8239",
    "rfc9411",
    "run",
    "soak",
    "tst009",
    "y1564",
]


class Result:
    """The result of a method, by the schema ``squall.test/1``.

    Attributes
    ----------
    data : dict
        The whole result, in the form that ``squall test --json`` writes.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self.data: dict[str, Any] = json.loads(text)

    @property
    def status(self) -> str:
        """The status: ``measured``, ``passed``, ``failed``, ``generator_bound`` or ``stopped``."""
        return str(self.data["verdict"]["status"])

    @property
    def verdict(self) -> list[str]:
        """The verdict, as sentences."""
        return list(self.data["verdict"]["text"])

    @property
    def figures(self) -> dict[str, float]:
        """Figures by name, such as ``throughput/64``; their units are in ``data``."""
        return {figure["name"]: figure["value"] for figure in self.data["figures"]}

    @property
    def trials(self) -> list[dict[str, Any]]:
        """All trials, including repetitions."""
        return list(self.data["trials"])

    def compare(self, baseline: Result, tolerance: float = 0.01) -> list[dict[str, Any]]:
        """Compare the figures to those of an earlier result.

        Parameters
        ----------
        baseline : Result
        tolerance : float
            Relative difference up to which two values count as equal.

        Returns
        -------
        list of dict
            ``name``, ``unit``, ``before``, ``now``, ``change``, ``regressed``, ``improved``.
            ``change`` is None if only ``before`` is 0.
        """
        text = _native.render_test(
            self._text, "changes", against=baseline._text, tolerance=tolerance
        )
        return list(json.loads(text))

    def write(self, path: str | os.PathLike[str], baseline: Result | None = None) -> None:
        """Write the result to a file: JSON, HTML, CSV (trials) or JUnit (``.xml``), by the file
        name's extension.

        Raises
        ------
        ValueError
            The extension is unknown.
        """
        kinds = {".html": "html", ".csv": "csv", ".xml": "junit", ".txt": "text"}
        ending = os.path.splitext(os.fspath(path))[1]
        if ending == ".json":
            text = self._text
        elif ending in kinds:
            against = None if baseline is None else baseline._text
            text = _native.render_test(self._text, kinds[ending], against=against, tolerance=0.01)
        else:
            raise ValueError(f"{os.fspath(path)!r}: expected .json, .html, .csv, .xml or .txt")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def export(self, form: str) -> str:
        """Export the result in the format of another program.

        Parameters
        ----------
        form : str
            ``"csit"``: a test case of FD.io CSIT, with NDR and PDR of one frame size.
            ``"nfvbench"``: a result of NFVbench, with the throughput of each frame size.

        Returns
        -------
        str
            JSON.

        Raises
        ------
        ValueError
            The format cannot represent the result.
        """
        if form not in ("csit", "nfvbench"):
            raise ValueError(f'form {form!r}: expected "csit" or "nfvbench"')
        return _native.render_test(self._text, form, against=None, tolerance=0.01)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Result:
        """Read a file written by `write` or ``squall test --json``."""
        with open(path, encoding="utf-8") as file:
            return cls(file.read())

    def __repr__(self) -> str:
        return (
            f"<squall.test.Result {self.data['method']} {self.status}: {'; '.join(self.verdict)}>"
        )


def run(
    method: str,
    profile: Profile,
    *,
    max_rate: str | None = None,
    quick: bool = False,
    repeats: int = 2,
    rest: float | None = None,
    journal: str | os.PathLike[str] | None = None,
    options: dict[str, Any] | None = None,
    progress: Callable[[dict[str, Any]], object] | None = None,
    nodes: str | os.PathLike[str] | None = None,
    **settings: Any,
) -> Result:
    """Run a method by name.

    Parameters
    ----------
    method : str
        ``"rfc2544"``, ...
    profile : Profile
        Streams, or flows, between ports.
    max_rate : str, optional
        The maximum rate of a port: ``"1 Gbps"`` on the line, ``"100 kpps"``. Default: the capacity
        of its link.
    quick : bool
        Short trials and few repetitions, where not set explicitly.
    repeats : int
        Maximum number of repetitions of a trial in which the generator missed its schedule.
    rest : seconds, optional
        Time between trials. Default: 5, with `quick` 0.2.
    journal : path, optional
        Write each trial to this file; if it has trials of the same test, resume after them.
    options : dict, optional
        Options of each run, as in `squall.run`.
    progress : callable, optional
        Called after each trial, with ``trial``, ``measured``, ``attempt``.
    nodes : path, optional
        Run the trials on the nodes of this inventory (`squall.cluster`), with the ports that it
        defines.
    **settings
        Settings of the method, as in ``squall test METHOD --help``, with ``_`` for ``-``.

    Returns
    -------
    Result

    Raises
    ------
    ProfileError
        A setting is unknown or invalid, or the profile lacks a part that the method needs.
    PortError
        A port cannot be opened, or a node does not answer.
    """
    on_progress = None if progress is None else (lambda text: progress(json.loads(text)))
    text = _native.run_test(
        json.dumps({method: settings}),
        profile._checked(),
        options=json.dumps(options or {}),
        max_rate=max_rate,
        quick=quick,
        repeats=repeats,
        rest_s=(0.2 if quick else 5.0) if rest is None else float(rest),
        journal=None if journal is None else os.fspath(journal),
        progress=on_progress,
        controller=_controller(nodes, profile),
    )
    return Result(text)


def ab(
    a: Profile,
    b: Profile,
    *,
    duration: Time | None = None,
    repeats: int = 2,
    rest: float = 0.0,
    options: dict[str, Any] | None = None,
    progress: Callable[[dict[str, Any]], object] | None = None,
    nodes: str | os.PathLike[str] | None = None,
    **settings: Any,
) -> Result:
    """Compare two profiles in alternating trials: better, worse, or not significantly different.

    Parameters
    ----------
    a, b : Profile
    duration : seconds or str, optional
        Length of a trial. Default: the duration in the profiles.
    rest : seconds
        Time between trials.
    repeats, options, progress, nodes
        As in `run`.
    **settings
        ``pairs``, ``primary``, ``level``, ``effect``, ``fail_if_worse``, ``resampling_seed``.

    Returns
    -------
    Result
        One figure per metric: its difference.
    """
    on_progress = None if progress is None else (lambda text: progress(json.loads(text)))
    ends = {} if duration is None else {"duration": _plain(duration)}
    text = _native.run_ab(
        a._checked(),
        b._checked(),
        settings=json.dumps(settings),
        options=json.dumps({**(options or {}), **ends}),
        repeats=repeats,
        rest_s=float(rest),
        progress=on_progress,
        controller=_controller(nodes, a),
    )
    return Result(text)


def _controller(nodes: str | os.PathLike[str] | None, profile: Profile) -> list[str] | None:
    """Return the command that runs trials on nodes; None without nodes."""
    if nodes is None:
        return None
    command = [sys.executable, "-m", "squall.cluster", "trials", os.fspath(nodes)]
    return command + [f"--port={port}" for port in profile.ports]


def rfc2544(profile: Profile, **settings: Any) -> Result:
    """Run RFC 2544 and RFC 9004: throughput, latency, frame loss, back-to-back, recovery, reset.

    See `run` for the arguments.
    """
    return run("rfc2544", profile, **settings)


def mlrsearch(profile: Profile, **settings: Any) -> Result:
    """Run RFC 9971: several loss ratios in one search, such as NDR and PDR.

    See `run` for the arguments.
    """
    return run("mlrsearch", profile, **settings)


def y1564(profile: Profile, **settings: Any) -> Result:
    """Run ITU-T Y.1564: configuration and performance of Ethernet services.

    See `run` for the arguments.
    """
    return run("y1564", profile, **settings)


def rfc6349(profile: Profile, **settings: Any) -> Result:
    """Run RFC 6349: TCP throughput relative to the path's capacity.

    See `run` for the arguments.
    """
    return run("rfc6349", profile, **settings)


def rfc9411(profile: Profile, **settings: Any) -> Result:
    """Run RFC 9411: firewalls and intrusion prevention systems, with HTTP and HTTPS.

    See `run` for the arguments.
    """
    return run("rfc9411", profile, **settings)


def bufferbloat(profile: Profile, **settings: Any) -> Result:
    """Measure latency under load (RRUL): the delay of streams while TCP connections fill the path.

    See `run` for the arguments.
    """
    return run("bufferbloat", profile, **settings)


def capacity(profile: Profile, **settings: Any) -> Result:
    """Measure connections per second, concurrent connections, goodput, and flow table size.

    See `run` for the arguments.
    """
    return run("capacity", profile, **settings)


def rfc2889(profile: Profile, **settings: Any) -> Result:
    """Run RFC 2889 for switches: meshed throughput, congestion, addresses, broadcast.

    See `run` for the arguments.
    """
    return run("rfc2889", profile, **settings)


def rfc3918(profile: Profile, **settings: Any) -> Result:
    """Run RFC 3918 for IP multicast: throughput, latency, join and leave delay, group capacity.

    See `run` for the arguments.
    """
    return run("rfc3918", profile, **settings)


def rfc8219(profile: Profile, **settings: Any) -> Result:
    """Run RFC 8219 for IPv6 transition: throughput, latency, delay variation, frame loss.

    See `run` for the arguments.
    """
    return run("rfc8219", profile, **settings)


def rfc8239(profile: Profile, **settings: Any) -> Result:
    """RFC 8239: data center switches: line rate, buffers, microbursts, incast.

    See `run` for the arguments.
    """
    return run("rfc8239", profile, **settings)


def soak(profile: Profile, **settings: Any) -> Result:
    """Run a constant load for hours: drift of loss and latency, availability.

    See `run` for the arguments.
    """
    return run("soak", profile, **settings)


def tst009(profile: Profile, **settings: Any) -> Result:
    """Run ETSI GS NFV-TST 009: throughput with loss verification.

    See `run` for the arguments.
    """
    return run("tst009", profile, **settings)

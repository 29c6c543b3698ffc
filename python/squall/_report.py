"""Results: the figures of ``_generated`` and their methods. Names include the units; octets are L2
with FCS.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from . import _native, _notebook
from ._generated import (
    CaptureSeries,
    PortSeries,
    ReportFigures,
    Sample,
    StreamSeries,
    TemplateSeries,
)
from ._values import Figures, read

__all__ = ["Report", "Series", "whole"]

Counts = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float64]
S = TypeVar("S")


@dataclass(frozen=True, eq=False)
class Series:
    """All samples of a run as columns; row i of each column was taken at ``t_s[i]``.

    Attributes
    ----------
    t_s : ndarray of float64, shape (n,)
        Seconds since the first frame was due, ascending.
    ports : dict of str to PortSeries
    streams : dict of str to StreamSeries
        Of two streams with the same name (one removed and added again), the later one.
    capture : CaptureSeries or None
        Present only for captures.
    flows : dict of str to TemplateSeries
        Present only for flows: by template and end, ``"web (client)"``.
    """

    t_s: Floats
    ports: Mapping[str, PortSeries]
    streams: Mapping[str, StreamSeries]
    capture: CaptureSeries | None
    flows: Mapping[str, TemplateSeries]

    def to_pandas(self) -> Any:
        """Return a ``pandas.DataFrame``: rows by `t_s`, columns by kind, name and quantity, as in
        ``frame["ports", "A", "tx_pps"]``.

        Raises
        ------
        ImportError
            pandas is not installed.
        """
        return _notebook.series_frame(self)

    def plot(self, quantity: str = "tx_pps", ax: Any = None, **kwargs: Any) -> Any:
        """Plot a quantity over time for each port, stream or template that has it.

        Parameters
        ----------
        quantity : str
            A field of `PortSeries`, `StreamSeries` or `TemplateSeries`.
        ax : matplotlib.axes.Axes, optional
            Default: the current one.
        **kwargs
            Passed to ``Axes.plot``.

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        ValueError
            No port, stream or template has that quantity, or the run has no samples, as in virtual
            time.
        ImportError
            matplotlib is not installed.
        """
        return _notebook.plot_series(self, quantity, ax, kwargs)


@dataclass(frozen=True, eq=False, repr=False)
class Report(ReportFigures, Figures[_native.Report]):
    """The results of a run: the figures of `ReportFigures`.

    Examples
    --------
    >>> import squall
    >>> report = squall.send("loop:report,virtual", "eth/ipv4/udp", rate="1 Mpps", count=1000, latency=True)
    >>> report
    <squall.Report: 1 port, 1 stream, 1000 packets sent, valid>
    >>> stream = report.streams["stream 1"]
    >>> stream.tx_packets, stream.rx.lost, report.ports["A"].rx.octets
    (1000, 0, 64000)
    """

    _inner: _native.Report = field(init=False, repr=False, compare=False)
    _core = _native.Report

    @classmethod
    def _from(cls, native: _native.Report) -> Report:
        text, octets = native.parts()
        rows = np.frombuffer(octets, np.uint64).reshape(-1, 3)
        report = read(cls, json.loads(text, object_hook=functools.partial(_with_bins, rows)))
        object.__setattr__(report, "_inner", native)
        return report

    @functools.cached_property
    def series(self) -> tuple[Sample, ...]:
        """The samples taken during the run. `series_arrays` is faster for many samples."""
        return tuple(read(Sample, sample) for sample in self.to_dict()["series"])

    def series_arrays(self) -> Series:
        """Return the samples taken during the run, as columns.

        Examples
        --------
        >>> import squall
        >>> profile = squall.Profile(ports={"A": "loop:series"}, duration="0.2 s")
        >>> profile.add(squall.Stream(name="web", packet="eth/ipv4/udp", rate="1 kpps"))
        >>> series = squall.run(profile, every=0.05).series_arrays()
        >>> series.t_s.dtype, series.t_s.shape == series.streams["web"].tx_pps.shape
        (dtype('float64'), True)
        """
        t_s, ports, streams, capture, flows = self._inner.series()
        return Series(
            np.frombuffer(t_s, np.float64),
            _columns(PortSeries, ports),
            _columns(StreamSeries, streams),
            # The series of a capture has no name.
            _columns(CaptureSeries, capture).get(""),
            _columns(TemplateSeries, flows),
        )

    def summary(self, width: int = 100, color: bool = False) -> str:
        """Return the report as text tables, `width` columns wide (at least 60), with or without
        ANSI colors."""
        return self._inner.summary(width, color)

    def plot(self) -> Any:
        """Plot the rates over time and, for streams with `latency`, the one-way delay.

        A run in virtual time has no samples, so there is no plot of rates.

        Returns
        -------
        matplotlib.figure.Figure

        Raises
        ------
        ImportError
            matplotlib is not installed.
        """
        return _notebook.plot_report(self)

    def _repr_html_(self) -> str:
        return _notebook.report_html(self)

    def __str__(self) -> str:
        return self.summary()

    def __repr__(self) -> str:
        def some(n: int, what: str) -> str:
            return f"{n} {what}" if n == 1 else f"{n} {what}s"

        sent = sum(port.tx.packets for port in self.ports)
        verdict = (
            "valid"
            if self.verdict.valid
            else "NOT valid: " + "; ".join(map(str, self.verdict.reasons))
        )
        counts = [
            some(len(self.ports), "port"),
            some(len(self.streams), "stream"),
            some(sent, "packet") + " sent",
        ]
        return f"<squall.Report: {', '.join(counts)}, {verdict}>"


def _with_bins(rows: Counts, table: dict[str, Any]) -> dict[str, Any]:
    """Replace references to histograms by their rows."""
    if "bins" in table:
        [[first, end, _]] = table["bins"]
        table["bins"] = rows[first:end]
    return table


def _columns(kind: type[S], table: Iterable[tuple[str, str, bytes]]) -> dict[str, S]:
    columns: dict[str, dict[str, Floats]] = {}
    for name, quantity, octets in table:
        columns.setdefault(name, {})[quantity] = np.frombuffer(octets, np.float64)
    known = [f.name for f in fields(kind)]  # type: ignore[arg-type]
    return {name: kind(**{q: values[q] for q in known}) for name, values in columns.items()}


def whole(reports: Mapping[str, Report] | Iterable[Report]) -> Report:
    """Return the merged report of a run that several machines shared: parts of a profile, or nodes
    with different ports.

    Parameters
    ----------
    reports : mapping of str to Report, or iterable of Report
        One from each part or node, by name. In an iterable: named by the node, or by a 1-based
        index.

    Raises
    ------
    ValueError
        There is no report, or the reports are from different runs.

    Examples
    --------
    >>> import squall
    >>> half = dict(port="null:virtual", packet="eth/ipv4/udp", rate="1 Mpps", count=500)
    >>> parts = [squall.send(**half, part=part) for part in ("1/2", "2/2")]
    >>> squall.whole(parts).ports["1/A"].tx.packets
    250
    """
    named = reports.items() if isinstance(reports, Mapping) else _by_node(reports)
    return Report._from(_native.whole([(name, report._inner) for name, report in named]))


def _by_node(reports: Iterable[Report]) -> Iterable[tuple[str, Report]]:
    return ((report.node or str(number), report) for number, report in enumerate(reports, 1))

"""Methods of statistics: base classes of those in ``_generated``."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from . import _notebook
from ._errors import printable
from ._values import ByName

Counts = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float64]


class ReasonMethods:
    code: str
    text: str
    hint: str

    def __str__(self) -> str:
        return printable(f"{self.code}: {self.text}" + (f"; try: {self.hint}" if self.hint else ""))


class DistributionMethods:
    bins: Counts

    def histogram(self) -> tuple[Counts, Counts]:
        """Return the histogram in the form of ``numpy.histogram``, for
        ``matplotlib.pyplot.stairs``.

        Returns
        -------
        counts : ndarray of uint64, shape (n,)
            A gap between two bins becomes a bin with count 0.
        edges : ndarray of uint64, shape (n + 1,)
            In ns, ascending.

        Examples
        --------
        >>> import squall
        >>> report = squall.send("loop:bins,virtual", "eth/ipv4/udp", rate="1 kpps", count=100, latency=True)
        >>> gaps = report.streams[0].rx.arrival_gap_ns
        >>> gaps.count, gaps.min, gaps.max
        (99, 1000000, 1000000)
        >>> counts, edges = gaps.histogram()
        >>> counts, edges.shape, edges.dtype
        (array([99], dtype=uint64), (2,), dtype('uint64'))
        """
        lower, upper, count = self.bins.T
        edges = np.unique(np.concatenate([lower, upper]))
        counts = np.zeros(len(edges) - 1, np.uint64)
        counts[np.searchsorted(edges, lower)] = count
        return counts, edges

    def plot(self, ax: Any = None, cumulative: bool = False, **kwargs: Any) -> Any:
        """Plot the histogram, or the empirical distribution function.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Default: the current one.
        cumulative : bool
            Plot the empirical distribution function instead of counts.
        **kwargs
            Passed to ``Axes.stairs`` or ``Axes.step``.

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        ImportError
            matplotlib is not installed.
        """
        return _notebook.plot_distribution(self, ax, cumulative, kwargs)  # type: ignore[arg-type]

    def _repr_html_(self) -> str:
        return _notebook.distribution_html(self)  # type: ignore[arg-type]


class ColumnMethods:
    flows: ByName[Any]

    def column(self, name: str) -> Floats:
        """Return a field of all flows, float64[n]; NaN where it is None. Names such as
        ``sequence.lost`` select nested fields.

        Raises
        ------
        AttributeError
            Flows have no such field.

        Examples
        --------
        >>> import squall
        >>> import pathlib, tempfile
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "flows.pcap"
        >>> report = squall.send(f"pcap:{file}", "eth/ipv4/udp(dport=53)", rate="1 kpps", count=10)
        >>> flows = squall.recv(f"pcap:{file},read").received_flows
        >>> flows.flows[0].dst_port, flows.flows[0].packets, flows.column("pps").round()
        (53, 10, array([1000.]))
        """

        def value(item: Any) -> float:
            for part in name.split("."):
                if item is None:
                    return float("nan")
                item = getattr(item, part)
            return float("nan") if item is None else float(item)

        return np.fromiter(map(value, self.flows), np.float64, len(self.flows))

"""Results as tables and plots, for notebooks. pandas, Arrow and matplotlib are optional."""

from __future__ import annotations

import dataclasses
import html
import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._generated import Distribution
    from ._report import Report, Series

__all__: list[str] = []

#: Percentile columns of a table, as fields of a distribution.
PERCENTILES = ("min", "p50", "p90", "p99", "p999", "max")
_ROWS = 50


def optional(module: str, package: str | None = None) -> ModuleType:
    """Import an optional module.

    Raises
    ------
    ImportError
        The module is missing; the message has the command that installs it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = package or module.partition(".")[0]
        raise ImportError(f"cannot import {module}: {error}; try pip install {name}") from error


def records(items: Iterable[Any]) -> list[dict[str, Any]]:
    """Return one flat row per dataclass: nested fields are named ``rx.lost``,
    ``rx.latency_ns.p99``; arrays are left out.
    """
    return [dict(_flat(item, "")) for item in items]


def _flat(item: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for field in dataclasses.fields(item):
        if field.init:
            yield from _flat_value(getattr(item, field.name), prefix + field.name)


def _flat_value(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    if value is None or isinstance(value, bool | int | float | str):
        yield name, value
    elif dataclasses.is_dataclass(value):
        yield from _flat(value, name + ".")
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from _flat_value(part, f"{name}.{key}")
    elif isinstance(value, tuple) and all(isinstance(part, str) for part in value):
        yield name, ", ".join(value)


def frame(items: Iterable[Any]) -> Any:
    pandas = optional("pandas")
    table = pandas.DataFrame.from_records(records(items))
    return table.set_index("name") if "name" in table else table


def arrow(items: Iterable[Any]) -> Any:
    rows = records(items)
    # A row whose parent field is None lacks its nested columns, so the columns of all rows are
    # merged.
    names = dict.fromkeys(name for row in rows for name in row)
    return optional("pyarrow").table({name: [row.get(name) for row in rows] for name in names})


def series_frame(series: Series) -> Any:
    """Return a frame with rows by time, and columns by kind, name and quantity."""
    pandas = optional("pandas")
    named: list[tuple[str, str, Any]] = [
        (kind, name, columns)
        for kind in ("ports", "streams", "flows")
        for name, columns in getattr(series, kind).items()
    ]
    if series.capture is not None:
        named.append(("capture", "", series.capture))
    columns = {
        (kind, name, field.name): getattr(columns, field.name)
        for kind, name, columns in named
        for field in dataclasses.fields(columns)
    }
    index = pandas.Index(series.t_s, name="t_s")
    table = pandas.DataFrame(dict(enumerate(columns.values())), index=index)
    table.columns = pandas.MultiIndex.from_tuples(columns, names=["kind", "name", "quantity"])
    return table


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return an HTML table; numbers are right-aligned, with digit grouping."""

    def cell(value: Any) -> str:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return f"<td style='text-align:left'>{html.escape('' if value is None else str(value))}</td>"
        text = f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"
        return f"<td style='text-align:right'>{text}</td>"

    head = "".join(f"<th>{html.escape(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(map(cell, row))}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def items_html(items: Sequence[Any]) -> str:
    """Return the first rows of `records` as HTML."""
    rows = records(items[:_ROWS])
    columns = list(dict.fromkeys(name for row in rows for name in row))
    more = len(items) - len(rows)
    note = f"<p>and {more:,} more</p>" if more > 0 else ""
    return table(columns, ([row.get(column) for column in columns] for row in rows)) + note


def distribution_html(values: Distribution) -> str:
    columns = ["count", "mean", "stddev", *PERCENTILES]
    return table(columns, [[getattr(values, column) for column in columns]])


def report_html(report: Report) -> str:
    verdict = report.verdict
    word = "VALID" if verdict.valid else verdict.status.replace("_", " ").upper()
    color = "#2e7d32" if verdict.valid else "#c62828"
    reasons = "".join(f"<li>{html.escape(str(reason))}</li>" for reason in verdict.reasons)
    ports = [
        (port.name, port.tx.packets, port.tx.octets, port.rx.packets, port.rx.octets)
        for port in report.ports
    ]
    text = (
        f"<p><b style='color:{color}'>{html.escape(word)}</b> {report.duration_s:.6g} s</p>"
        + (f"<ul>{reasons}</ul>" if reasons else "")
        + table(["port", "tx packets", "tx octets", "rx packets", "rx octets"], ports)
    )
    if len(report.streams):
        rows = []
        for stream in report.streams[:_ROWS]:
            rx = stream.rx
            delay = rx.latency_ns if rx else None
            rows.append(
                (
                    stream.name,
                    stream.tx_packets,
                    stream.tx_pps,
                    rx.packets if rx else None,
                    rx.lost if rx else None,
                    *(getattr(delay, p) if delay else None for p in ("p50", "p99")),
                )
            )
        columns = ["stream", "tx packets", "tx pps", "rx packets", "lost", "delay p50 ns", "p99 ns"]
        text += table(columns, rows)
    return text


def plot_distribution(values: Distribution, ax: Any, cumulative: bool, kwargs: Any) -> Any:
    pyplot = optional("matplotlib.pyplot")
    ax = ax or pyplot.gca()
    counts, edges = values.histogram()
    if cumulative:
        # Step at the upper edge of each bin, so the curve is never above the exact one.
        share = counts.cumsum() / max(values.count, 1)
        ax.step([edges[0], *edges[1:]], [0.0, *share], where="post", **kwargs)
        ax.set_ylabel("share of values")
    else:
        ax.stairs(counts, edges, fill=True, **kwargs)
        ax.set_ylabel("values")
    ax.set_xlabel("ns")
    return ax


def plot_series(series: Series, quantity: str, ax: Any, kwargs: Any) -> Any:
    pyplot = optional("matplotlib.pyplot")
    ax = ax or pyplot.gca()
    drawn = 0
    for columns in (series.ports, series.streams, series.flows):
        for name, values in columns.items():
            if hasattr(values, quantity):
                ax.plot(series.t_s, getattr(values, quantity), label=name, **kwargs)
                drawn += 1
        if drawn:
            break
    if not drawn and series.t_s.size == 0:
        raise ValueError(
            "the run has no samples, because it ran in virtual time or was shorter than `every`"
        )
    if not drawn:
        known = sorted(
            {
                field.name
                for columns in (series.ports, series.streams, series.flows)
                for values in columns.values()
                for field in dataclasses.fields(values)
            }
        )
        raise ValueError(f"no quantity {quantity!r}; there are {', '.join(known)}")
    ax.set(xlabel="s", ylabel=quantity)
    ax.legend()
    return ax


def plot_report(report: Report) -> Any:
    pyplot = optional("matplotlib.pyplot")
    delays = {
        stream.name: stream.rx.latency_ns
        for stream in report.streams
        if stream.rx and stream.rx.latency_ns
    }
    series = report.series_arrays()
    # Runs in virtual time have no samples.
    sampled = series.t_s.size > 0
    panels = sampled + bool(delays)
    if not panels:
        figure, ax = pyplot.subplots()
        ax.set_axis_off()
        ax.text(0.5, 0.5, "no samples and no delays to plot", ha="center", va="center")
        return figure
    figure, [axes] = pyplot.subplots(1, panels, squeeze=False, layout="constrained")
    figure.set_size_inches(2 + 4 * panels, 4)
    if sampled:
        plot_series(series, "tx_pps", axes[0], {})
        axes[0].set_title("sent, frames/s")
    for name, values in delays.items():
        plot_distribution(values, axes[-1], True, {"label": name})
    if delays:
        axes[-1].set(title="one-way delay", xscale="log")
        axes[-1].legend()
    return figure

"""The live view of a run on nodes: totals, and one line per node."""

from __future__ import annotations

import json
import sys
import time
from typing import IO, Any

from ._control import Control, Member

#: Counters of which the live view shows the sum over all nodes.
KEYS = ("tx_pps", "rx_pps", "tx_packets", "rx_packets", "lost")

__all__ = ["Live", "snapshot", "text"]


def snapshot(control: Control) -> dict[str, Any]:
    """Return values for JSON: sums over all nodes, and the values of each node."""
    nodes = [_node(member) for member in control.members.values()]
    return {
        "t_s": round(control.elapsed_s(), 3),
        "all": {key: sum(node[key] for node in nodes) for key in KEYS},
        "nodes": nodes,
    }


def text(table: dict[str, Any]) -> list[str]:
    """Return the table for a terminal, as lines."""
    every = {"name": f"{len(table['nodes'])} nodes", "state": f"{table['t_s']:.1f} s"}
    rows = [{**every, **table["all"], "clock_bound_ns": None, "why": None}, *table["nodes"]]
    head = f"{'NODE':14} {'STATE':12} {'TX':>12} {'RX':>12} {'SENT':>14} {'RECEIVED':>14}"
    head += f" {'GAPS':>8} CLOCK"
    return [head, *(_line(row) for row in rows)]


class Live:
    """Shows a run once per second, as ``text`` or ``json``, or not at all (``off``)."""

    def __init__(self, form: str, out: IO[str] = sys.stderr) -> None:
        self._form, self._out = form, out
        self._next, self._drawn = 0.0, 0

    def __call__(self, control: Control) -> None:
        now = time.monotonic()
        if self._form == "off" or now < self._next or control.elapsed_s() <= 0:
            return
        self._next = now + 1.0
        self._show(control)

    def last(self, control: Control) -> None:
        """Show the final state of the run."""
        if self._form != "off":
            self._show(control)

    def _show(self, control: Control) -> None:
        table = snapshot(control)
        if self._form == "json":
            print(json.dumps(table), file=self._out, flush=True)
            return
        lines = text(table)
        if self._out.isatty() and self._drawn:
            # Overwrite the lines of the previous table.
            self._out.write(f"\x1b[{self._drawn}A\x1b[J")
        self._drawn = len(lines)
        print("\n".join(lines), file=self._out, flush=True)


def _node(member: Member) -> dict[str, Any]:
    return {
        "name": member.name,
        "state": "lost" if member.lost else member.state,
        "why": member.lost,
        "clock_bound_ns": member.bound_ns,
        **{key: member.now.get(key, 0) for key in KEYS},
    }


def _line(row: dict[str, Any]) -> str:
    bound = row["clock_bound_ns"]
    clock = "" if bound is None else f"{bound / 1e3:.0f} us"
    return (
        f"{row['name']:14.14} {row['state']:12.12} {_rate(row['tx_pps']):>12}"
        f" {_rate(row['rx_pps']):>12} {row['tx_packets']:>14,.0f} {row['rx_packets']:>14,.0f}"
        f" {row['lost']:>8,.0f}"
        f" {row['why'] or clock}"
    ).rstrip()


def _rate(pps: float) -> str:
    for factor, unit in ((1e6, "Mpps"), (1e3, "kpps")):
        if pps >= factor:
            return f"{pps / factor:.3g} {unit}"
    return f"{pps:.3g} pps"

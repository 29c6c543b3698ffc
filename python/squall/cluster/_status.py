"""The state of a cluster: machines, nodes, clocks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ._control import EXCHANGES, Member, NodeLost
from ._inventory import Inventory, NodeEntry

if TYPE_CHECKING:
    from ._ray import Connected

__all__ = ["status", "text"]

ANSWER_S = 5.0


async def status(cluster: Connected, inventory: Inventory) -> dict[str, Any]:
    """Return the state as values for JSON."""
    nodes = await asyncio.gather(
        *(_node(cluster, inventory, entry) for entry in inventory.nodes.values())
    )
    machines = [
        {"address": m["NodeManagerAddress"], "id": m["NodeID"], "alive": m["Alive"]}
        for m in cluster.machines()
    ]
    return {"cluster": inventory.name, "machines": machines, "nodes": list(nodes)}


async def _node(cluster: Connected, inventory: Inventory, entry: NodeEntry) -> dict[str, Any]:
    row: dict[str, Any] = {"name": entry.name, "ports": list(inventory.own_ports(entry.name))}
    peer = cluster.found(entry)
    if peer is None:
        return {**row, "state": "down"}
    member = Member(peer, inventory.max_drift_ppm * 1000)
    try:
        hello = await peer.call("hello", timeout=ANSWER_S)
        peer.echo = hello["echo"]
        for _ in range(EXCHANGES):
            at_ns = await member.exchange(ANSWER_S)
        answer = await peer.call("ask", "GET", "/runs?state=live", timeout=ANSWER_S)
    except NodeLost as error:
        return {**row, "state": "lost", "why": error.why}
    mapping = member.clock.mapping(at_ns)
    live = [run["id"] for run in answer.get("ok", {"runs": []})["runs"]]
    return {
        **row,
        "state": "up" if hello["alive"] else "without daemon",
        **{key: hello[key] for key in ("host", "version", "cpus", "pid", "daemon_pid", "data")},
        "clock_shift_ns": mapping.shift_ns,
        "clock_bound_ns": mapping.bound_ns,
        "clock_by": "udp" if peer.by_udp else "ray",
        "runs": live,
    }


def text(table: dict[str, Any]) -> str:
    """Return the state as text."""
    alive = sum(machine["alive"] for machine in table["machines"])
    lines = [
        f"cluster {table['cluster']}: {alive} machines of Ray, {len(table['nodes'])} nodes",
        f"{'NODE':12} {'STATE':14} {'HOST':16} {'PORTS':12} {'CLOCK':>14} {'BOUND':>10}  RUNS",
    ]
    for node in table["nodes"]:
        clock, bound = node.get("clock_shift_ns"), node.get("clock_bound_ns")
        shown = "-" if clock is None else f"{clock / 1e6:+.3f} ms"
        within = "-" if bound is None else f"{bound / 1e3:.0f} us"
        why = node.get("why") or ", ".join(node.get("runs", ())) or "-"
        ports = ",".join(node["ports"]) or "-"
        lines.append(
            f"{node['name']:12} {node['state']:14} {node.get('host', '-'):16} {ports:12}"
            f" {shown:>14} {within:>10}  {why}"
        )
    return "\n".join(lines)

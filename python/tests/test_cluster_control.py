"""The controller of a run over nodes, with nodes that are simulated."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from cluster_simulated import Engine, Simulated
from squall.cluster import NodeLost, Refused
from squall.cluster._control import GRACE_S, PAUSE_S, Control, Part, Settings
from squall.cluster._live import snapshot, text

LEASE = Settings(lease_s=1.0)


def nodes(count: int, **more: Any) -> list[Engine]:
    return [Engine(f"node{i}", report={"of": i}, **more) for i in range(count)]


def control(
    engines: list[Engine], settings: Settings = LEASE, watch: Callable[..., object] | None = None
) -> Control:
    return Control([Simulated(engine) for engine in engines], settings, watch)


def run(of: Control) -> Control:
    asyncio.run(of.run([Part(name, {"profile": {}}) for name in of.members]))
    return of


def test_all_start_at_one_instant_within_their_bounds_and_all_report() -> None:
    engines = nodes(5)
    seen = []
    done = run(control(engines, watch=lambda c: seen.append(snapshot(c))))
    assert len({engine.at_ns for engine in engines}) == 1
    # Each simulated engine computes its error when it gets the order to start.
    assert all(engine.start_error_ns is not None for engine in engines)
    assert [m.report for m in done.members.values()] == [{"of": i} for i in range(5)]
    assert done.lost() == {} and done.ending is None
    assert seen[-1]["all"]["tx_pps"] == 5000
    assert len(text(seen[-1])) == 7


@pytest.mark.parametrize("what", ["start", "go"])
def test_a_node_that_refuses_keeps_the_run_from_beginning_anywhere(what: str) -> None:
    engines = nodes(4)
    engines[2].fails[what] = ("the instant has passed", 409, "too-late")
    with pytest.raises(Refused, match="node 'node2': the instant has passed"):
        run(control(engines))
    for engine in engines:
        assert engine.state in ("none", "ready") or engine.state == "done"
        # Nodes that had a start time were stopped before it.
        assert engine.at_ns == 0 or 0 < engine.stopped_ns < engine.at_ns


def test_a_node_that_does_not_answer_to_go_keeps_the_run_from_beginning() -> None:
    engines = nodes(3)
    of = control(engines)
    calls = of.members["node1"].peer

    async def call(method: str, *arguments: Any, timeout: float) -> Any:
        if method == "ask" and arguments[1].endswith("/go"):
            engines[1].fails["silent"] = True
        return await Simulated.call(calls, method, *arguments, timeout=timeout)  # type: ignore[arg-type]

    calls.call = call  # type: ignore[method-assign]
    with pytest.raises(NodeLost, match="node 'node1': no answer to ask"):
        run(of)
    assert [engines[i].state for i in (0, 2)] == ["done", "done"]
    assert time.monotonic_ns() < engines[0].at_ns + 2_000_000_000


@pytest.mark.parametrize(
    ("fault", "why"),
    [("gone", "its process has ended"), ("daemon", "its daemon is gone"), ("silent", "no answer")],
)
def test_a_lost_node_ends_the_others_and_is_named(fault: str, why: str) -> None:
    engines = nodes(3, sends_s=30)

    def watch(of: Control) -> None:
        if of.elapsed_s() > 0.3:
            engines[1].fails[fault] = True

    began = time.monotonic()
    done = run(control(engines, watch=watch))
    assert time.monotonic() - began < 15
    assert list(done.lost()) == ["node1"] and why in done.lost()["node1"]
    assert done.ending is not None and "node1" in done.ending
    assert [m.report for m in done.members.values()] == [{"of": 0}, None, {"of": 2}]


def test_the_others_go_on_to_their_end_if_asked() -> None:
    engines = nodes(3, sends_s=2)

    def watch(of: Control) -> None:
        if of.elapsed_s() > 0.3:
            engines[1].fails["gone"] = True

    done = run(control(engines, Settings(lease_s=1.0, on_loss="continue"), watch))
    assert done.ending is None and list(done.lost()) == ["node1"]
    assert time.monotonic_ns() > engines[0].at_ns + 2_000_000_000


def test_a_node_that_was_silent_for_too_long_is_named() -> None:
    engines = nodes(2, sends_s=6)

    def watch(of: Control) -> None:
        engines[1].fails.pop("silent", None)
        if 0.3 < of.elapsed_s() < 0.3 + LEASE.lease_s + GRACE_S + 0.5:
            engines[1].fails["silent"] = True

    done = run(control(engines, Settings(lease_s=1.0, on_loss="continue"), watch))
    assert "silent for" in done.lost()["node1"]
    assert done.members["node1"].report == {"of": 1}


def test_slow_calls_change_nothing_while_renewals_are_answered() -> None:
    engines = nodes(3, sends_s=4)

    def watch(of: Control) -> None:
        engines[1].fails.pop("slow", None)
        if 0.3 < of.elapsed_s() < 0.3 + LEASE.lease_s + GRACE_S + 0.5:
            engines[1].fails["slow"] = True

    done = run(control(engines, watch=watch))
    assert done.ending is None and done.lost() == {}
    assert all(engine.renewals > 40 for engine in engines)


def test_a_node_whose_run_was_interrupted_is_lost_and_named() -> None:
    engines = nodes(3, sends_s=30)

    def watch(of: Control) -> None:
        if of.elapsed_s() > 0.3:
            engines[1].state, engines[1].error = "interrupted", "its lease has expired"

    done = run(control(engines, watch=watch))
    assert done.lost() == {"node1": "its run was interrupted: its lease has expired"}
    assert done.ending is not None and "node1" in done.ending
    assert done.members["node1"].report == {"of": 1}


def test_a_silent_node_is_waited_for_if_it_may_resume() -> None:
    engines = nodes(2, sends_s=6)
    silent_s = LEASE.lease_s + GRACE_S + 0.5

    def watch(of: Control) -> None:
        engines[1].fails.pop("silent", None)
        if 0.3 < of.elapsed_s() < 0.3 + silent_s:
            engines[1].fails["silent"] = True
        elif of.elapsed_s() > 0.3 + silent_s:
            engines[1].more = {"lapses": 1}

    done = run(control(engines, Settings(lease_s=1.0, on_loss="resume"), watch))
    assert done.ending is None and all(m.report for m in done.members.values())
    assert done.lost() == {"node1": "its lease expired once, and its traffic was paused"}
    assert all(engine.bodies[0]["pause_s"] == PAUSE_S for engine in engines)


def test_nodes_that_only_answer_run_until_they_are_stopped() -> None:
    engines = nodes(2)

    def watch(of: Control) -> None:
        if of.elapsed_s() > 0.6:
            of.stop("by request")

    done = control(engines, watch=watch)
    asyncio.run(done.run([Part(name, {"profile": {}}, sends=False) for name in done.members]))
    assert done.ending == "by request"
    assert all(engine.stopped_ns > engine.at_ns for engine in engines)


def test_a_signal_ends_all_and_reports() -> None:
    engines = nodes(3, sends_s=30)

    def watch(of: Control) -> None:
        if of.elapsed_s() > 0.2:
            of.interrupt(2)

    done = run(control(engines, watch=watch))
    assert (done.ending, done.interrupted) == ("SIGINT", 2)
    assert all(m.report for m in done.members.values())


def test_a_thousand_nodes_start_and_report_within_ten_seconds() -> None:
    engines = nodes(1000, sends_s=0.2)
    # CPU time, because other programs may use the machine.
    began = time.process_time()
    done = run(control(engines, Settings(lease_s=8.0)))
    took = time.process_time() - began
    assert len({engine.at_ns for engine in engines}) == 1
    assert done.lost() == {} and took < 10, f"{took:.1f} s"

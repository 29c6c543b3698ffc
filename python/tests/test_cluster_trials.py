"""Trials of a test over nodes that are simulated."""

import asyncio
import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from cluster_simulated import Engine, Simulated
from squall.cluster import Inventory, NodeLost, _trials
from squall.cluster._control import Peer
from squall.cluster._trials import Trials

TEXT = """
[cluster]
ray = "10.0.0.1:6379"
lease = "1 s"
[node.one]
address = "10.0.0.11"
[node.two]
address = "10.0.0.12"
[ports]
A = "one/af_packet:eth1,fanout=2"
B = "two/null:"
"""
INVENTORY = Inventory.parse(TEXT)
TRIAL = {
    "label": "throughput, 64 octets, " * 5,
    "profile": {"ports": {"A": "", "B": ""}, "stream": [{"name": "s", "port": "A"}]},
    "folder": ".",
    "options": {"seed": 7},
    "linger_s": 0.0,
}


class Reach:
    """Engines by name; `again` replaces those that are named, unless they cannot be reached."""

    def __init__(self, engines: Sequence[Engine]) -> None:
        self.engines = {engine.name: engine for engine in engines}
        self.ended: list[list[str]] = []
        self.dead = ""

    def peers(self) -> list[Peer]:
        return [Simulated(engine) for engine in self.engines.values()]

    def again(self, names: Sequence[str]) -> list[Peer]:
        self.ended.append(list(names))
        if self.dead:
            raise NodeLost(self.dead, "Ray has no live machine")
        for name in names:
            self.engines[name] = Engine(name, report={"of": name, "new": True})
        return self.peers()


class Other:
    """The other side of the trials."""

    def __init__(self, reach: Reach) -> None:
        self.answers: list[dict[str, Any]] = []
        self.trials = Trials(INVENTORY, reach, self.answers.append)
        self.task = asyncio.create_task(self.trials.serve(self._listen))

    def _listen(self, came: Callable[[Any], None]) -> None:
        self.came = came

    async def until(self, what: str, count: int = 1) -> dict[str, Any]:
        """Return the last answer of this kind, once there have been `count` of them."""
        for _ in range(2000):
            if len(found := [one[what] for one in self.answers if what in one]) >= count:
                answer: dict[str, Any] = found[-1]
                return answer
            await asyncio.sleep(0.01)
        raise AssertionError(f"no {what} within 20 s: {self.answers}")

    async def trial(self, **more: Any) -> dict[str, Any]:
        """Return the outcome of a trial: `done` or `refused`."""
        del self.answers[:]
        self.came({"trial": {**TRIAL, **more}})
        for _ in range(2000):
            if self.answers and not {"done", "refused"}.isdisjoint(self.answers[-1]):
                return self.answers[-1]
            await asyncio.sleep(0.01)
        raise AssertionError(f"no answer within 20 s: {self.answers[-3:]}")


def engines(**more: Any) -> list[Engine]:
    return [Engine(name, report={"of": name}, **more) for name in ("one", "two")]


def play(reach: Reach, script: Callable[[Other], Coroutine[Any, Any, None]]) -> Other:
    """Run a script against the trials, then end their input."""

    async def played() -> Other:
        test = Other(reach)
        await test.until("ready")
        await script(test)
        test.came(None)
        await asyncio.wait_for(test.task, 20)
        return test

    return asyncio.run(played())


def test_trials_run_one_after_the_other_on_the_same_nodes_with_the_same_clocks() -> None:
    reach = Reach(engines())

    async def script(test: Other) -> None:
        ports = test.answers[0]["ready"]["ports"]
        assert ports[0][1] == [
            {"node": "one", "address": "af_packet:eth1,fanout=2", "speed_bps": 10**9}
        ]
        assert ports[1][1][0]["speed_bps"] is None
        expected = {"done": {"reports": {n: {"of": n} for n in ("one", "two")}, "lost": {}}}
        assert await test.trial() == expected
        clocks = dict(test.trials._clocks)
        elapsed = [one["elapsed"] for one in test.answers if "elapsed" in one]
        assert elapsed[0] is None and any(known is not None and known >= 0 for known in elapsed)
        assert await test.trial() == expected
        assert test.trials._clocks == clocks and set(clocks) == {"one", "two"}

    play(reach, script)
    one, two = (engine.bodies for engine in reach.engines.values())
    assert len(one) == len(two) == 2 and reach.ended == []
    assert one[0]["profile"]["ports"] == {"A": "af_packet:eth1,fanout=2", "B": "elsewhere:two"}
    assert two[0]["profile"]["ports"] == {"A": "elsewhere:one", "B": "null:"}
    assert one[0]["options"] == {"seed": 7} and len(one[0]["name"]) == 60


@pytest.mark.parametrize("line", [{"stop": {}}, None])
def test_a_trial_that_is_stopped_ends_on_all_nodes(line: dict[str, Any] | None) -> None:
    reach = Reach(engines(sends_s=60))

    async def script(test: Other) -> None:
        test.came({"trial": TRIAL})
        while not any((one.get("elapsed") or -1) > 0.1 for one in test.answers):
            await asyncio.sleep(0.01)
        began = time.monotonic()
        test.came(line)
        assert (await test.until("done"))["lost"] == {}
        assert time.monotonic() - began < 10

    play(reach, script)
    assert [engine.state for engine in reach.engines.values()] == ["done", "done"]


def test_a_node_that_is_lost_is_named_and_made_anew_for_the_next_trial() -> None:
    reach = Reach(engines(sends_s=2))

    async def script(test: Other) -> None:
        test.came({"trial": TRIAL})
        while not any((one.get("elapsed") or -1) > 0.1 for one in test.answers):
            await asyncio.sleep(0.01)
        reach.engines["two"].fails["daemon"] = True
        done = await test.until("done")
        assert done == {"reports": {"one": {"of": "one"}}, "lost": {"two": "its daemon is gone"}}
        again = await test.trial()
        assert again["done"]["lost"] == {}
        assert again["done"]["reports"]["two"] == {"of": "two", "new": True}

    play(reach, script)
    assert reach.ended == [["two"]]


def test_a_node_that_cannot_be_made_anew_refuses_the_trial() -> None:
    reach = Reach(engines())

    async def script(test: Other) -> None:
        reach.engines["two"].fails["gone"] = True
        reach.dead = "two"
        refused = (await test.trial())["refused"]
        assert refused == {"text": "node 'two': Ray has no live machine", "usage": False}

    play(reach, script)


@pytest.mark.parametrize(
    ("status", "again", "usage"), [(400, False, True), (422, False, False), (409, True, False)]
)
def test_a_refusal_of_a_node_is_reported_and_a_passing_one_is_tried_again(
    status: int, again: bool, usage: bool
) -> None:
    reach = Reach(engines())

    async def script(test: Other) -> None:
        reach.engines["two"].fails["start"] = ("no such port", status, "x")
        began = time.monotonic()
        refused = (await test.trial())["refused"]
        assert refused == {"text": "node 'two': no such port", "usage": usage}
        assert (len(reach.engines["two"].bodies) > 1) == again
        # A retry lasts at least a lease, because an earlier run may hold the ports.
        assert not again or time.monotonic() - began > INVENTORY.lease_s
        del reach.engines["two"].fails["start"]
        assert "done" in await test.trial()

    play(reach, script)


def test_files_go_to_each_node_once_unless_they_change(tmp_path: pathlib.Path) -> None:
    reach = Reach(engines())
    file = tmp_path / "frames.pcap"
    file.write_bytes(b"1")
    stream = {"name": "s", "port": "A", "pcap": "frames.pcap#1"}
    trial = {"profile": {**TRIAL["profile"], "stream": [stream]}, "folder": str(tmp_path)}  # type: ignore[dict-item]

    async def script(test: Other) -> None:
        for _ in range(2):
            assert "done" in await test.trial(**trial)
        file.write_bytes(b"22")
        assert "done" in await test.trial(**trial)

    play(reach, script)
    for engine in reach.engines.values():
        assert len(engine.files) == 2
        assert engine.bodies[0]["profile"]["stream"][0]["pcap"] == f"{engine.files[0]}#1"


def test_nodes_hear_of_their_controller_between_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_trials, "REST_S", 0.05)
    reach = Reach(engines())

    async def script(test: Other) -> None:
        assert "done" in await test.trial()
        before = reach.engines["two"].beats
        while reach.engines["two"].beats < before + 3:
            await asyncio.sleep(0.01)
        reach.engines["two"].fails["gone"] = True
        while not test.trials._lost:
            await asyncio.sleep(0.01)
        # A node that was lost meanwhile is replaced.
        assert (await test.trial())["done"]["lost"] == {}

    play(reach, script)
    assert reach.ended == [["two"]]


def test_a_dry_run_needs_no_ray_and_checks_the_inventory(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "lab.toml"
    file.write_text(TEXT)
    # An import of Ray would fail here.
    (tmp_path / "ray.py").write_text("raise ImportError('it is not needed')")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "squall.cluster", "trials", str(file), "--dry-run", *words]
        return subprocess.run(command, capture_output=True, text=True, env=environment)

    done = run("--port=B")
    assert done.returncode == 0, done.stderr
    [[name, [place]]] = json.loads(done.stdout)["ready"]["ports"]
    assert (name, place["node"], place["speed_bps"]) == ("B", "two", None)
    done = run("--port=C", "--profile=load.toml")
    assert done.returncode == 2 and "load.toml: the inventory has no port 'C'" in done.stderr

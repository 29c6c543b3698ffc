"""A node without Ray: its daemon ends with its owner, and its traffic with the heartbeats."""

import asyncio
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

import squall.cluster._node
from conftest import until
from squall.cluster._clocks import Exchange, Mapping
from squall.cluster._daemon import Daemon, DaemonError
from squall.cluster._echo import renew
from squall.cluster._inventory import NodeEntry
from squall.cluster._node import Node
from test_remote import binary

LEASE_S = 1.0
PROFILE = {
    "ports": {"A": "null:"},
    "stream": [{"name": "web", "packet": "eth/ipv4/udp", "rate": "100 pps"}],
}
SAME = Mapping(0, 0.0, 0, 1000)


@pytest.fixture(autouse=True)
def program(monkeypatch: pytest.MonkeyPatch) -> str:
    found = binary()
    if found is None:
        pytest.skip("SKIPPED: there is no squall: $SQUALL, target/debug/squall")
    monkeypatch.setenv("SQUALL", str(found))
    return str(found)


@pytest.fixture
def node() -> Iterator[Node]:
    node = Node(NodeEntry("one"), LEASE_S)
    yield node
    node.end()


def begin(node: Node) -> str:
    return str(node.ask("POST", "/runs", {"profile": PROFILE, "ttl_s": LEASE_S})["ok"]["run"]["id"])


def state(node: Node, run: str) -> str:
    """Return the run's state in the list, because a request for the run itself would renew its
    lease."""
    rows = node.ask("GET", "/runs")["ok"]["runs"]
    return str(next(row["state"] for row in rows if row["id"] == run))


def exists(pid: int) -> bool:
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_heartbeats_keep_a_run_and_without_them_it_ends_within_the_lease(node: Node) -> None:
    run = begin(node)
    end = time.monotonic() + 2.5 * LEASE_S
    while time.monotonic() < end:
        answer = node.beat(time.monotonic_ns(), run)
        time.sleep(LEASE_S / 4)
    assert answer["run"]["state"] == "running"
    assert answer["now"]["tx_packets"] > 0
    until(lambda: state(node, run) == "interrupted", 2 * LEASE_S + 3)


def test_a_heartbeat_that_was_long_under_way_renews_nothing(node: Node) -> None:
    run = begin(node)
    old = time.monotonic_ns() - round(0.6 * LEASE_S * 1e9)
    for _ in range(20):
        answer = node.beat(old, run, SAME)
        assert answer["late"] and "run" not in answer
        time.sleep(0.1)
    until(lambda: state(node, run) == "interrupted")


def test_renewals_over_udp_keep_a_run_without_heartbeats(node: Node) -> None:
    answer = node.start({"profile": PROFILE}, SAME)
    run = answer["ok"]["run"]["id"]

    async def some() -> None:
        exchanges: list[Exchange] = []
        task = asyncio.create_task(
            renew(node.hello()["echo"], answer["ticket"], 0.05, exchanges.append)
        )
        await asyncio.sleep(2.5 * LEASE_S)
        task.cancel()
        assert len(exchanges) > 10

    asyncio.run(some())
    assert state(node, run) == "running"
    until(lambda: state(node, run) == "interrupted", 2 * LEASE_S + 3)


def test_a_run_pauses_when_renewals_stop_and_resumes_with_the_next(node: Node) -> None:
    answer = node.start({"profile": PROFILE, "pause_s": 30}, SAME)
    run = answer["ok"]["run"]["id"]
    until(lambda: state(node, run) == "paused", 2 * LEASE_S + 3)
    node._renewed(answer["ticket"], time.monotonic_ns(), time.monotonic_ns())
    until(lambda: state(node, run) == "running", 1)
    stats = node.beat(time.monotonic_ns(), run)
    assert stats["run"]["lapses"] == 1
    node.ask("POST", f"/runs/{run}/stop")


def test_recorded_renewals_keep_no_run(node: Node) -> None:
    answer = node.start({"profile": PROFILE}, SAME)
    sent_ns = time.monotonic_ns()

    def over() -> bool:
        node._renewed(answer["ticket"], sent_ns, time.monotonic_ns())
        return state(node, answer["ok"]["run"]["id"]) == "interrupted"

    until(over)


def test_a_beat_has_the_clock_around_its_work_and_skew_shows(
    program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    skewed = Node(NodeEntry("one", clock_offset_ns=10**12, clock_drift_ppb=50_000), LEASE_S)
    try:
        before = time.monotonic_ns()
        answer = skewed.beat(before)
        after = time.monotonic_ns()
        assert before + 10**12 <= answer["n_in"] <= answer["n_out"] <= after + 10**12 + 10**6
    finally:
        skewed.end()


def test_a_refusal_is_an_answer(node: Node) -> None:
    message, status, code = node.ask("POST", "/runs", {"profile": "x = 1"})["refused"]
    assert (status, code) == (400, "ProfileError") and "x" in message
    assert node.ask("GET", "/runs/r-1")["refused"][1:] == (404, "not_found")


def test_a_killed_daemon_is_noticed(node: Node) -> None:
    pid = node._daemon.process.pid
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGKILL)
    until(lambda: not node.beat(time.monotonic_ns())["alive"])
    assert node.ask("GET", "/info")["refused"][2] == "unreachable"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("before", [None, signal.SIGSTOP, signal.SIGKILL])
def test_a_daemon_ends_with_its_owner_and_so_does_its_folder(
    number: int, before: int | None
) -> None:
    owner = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, time; from squall.cluster._daemon import Daemon;"
            " d = Daemon(); print(d.process.pid, d.data, flush=True);"
            " time.sleep(100)",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    pid, data = owner.stdout.readline().split()
    keeper = int(pid)
    daemon = int(pathlib.Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()[0])
    if before is not None:
        os.kill(daemon, before)
    if before == signal.SIGKILL:
        until(lambda: not exists(keeper))
        # The directory remains, because its owner reads the log there.
        assert pathlib.Path(data).exists()
    owner.send_signal(number)
    owner.wait(10)
    until(lambda: not exists(daemon) and not exists(keeper))
    until(lambda: not pathlib.Path(data).exists())
    owner.stdout.close()


def test_a_daemon_ends_with_its_keeper() -> None:
    daemon = Daemon()
    keeper = daemon.process.pid
    child = int(pathlib.Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()[0])
    os.kill(keeper, signal.SIGKILL)
    until(lambda: not exists(child))
    daemon.end()
    assert not daemon.data.exists()


def test_a_daemon_that_does_not_start_says_why(tmp_path: pathlib.Path) -> None:
    with pytest.raises(DaemonError, match="does not start:\n  .*no-such-option"):
        Daemon(allow=["--no-such-option"])


def test_nothing_of_squall_imports_ray() -> None:
    code = "import sys, squall, squall.cluster, squall.testing; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_files_come_in_pieces(node: Node) -> None:
    assert node.put("a.pcap", b"12", last=False) == {"ok": None}
    assert node.put("a.pcap", b"34", last=True) == {"ok": None}
    [file] = node.ask("GET", "/files")["ok"]["files"]
    assert (file["name"], file["size"]) == ("a.pcap", 4)
    assert squall.cluster._node is not None

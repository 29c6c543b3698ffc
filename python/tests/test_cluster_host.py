"""Ray on one machine: refused addresses, reasons of failures, and the files that `down` removes."""

import io
import os
import pathlib
import re
import socket
import subprocess
import sys

import pytest

import squall
from squall.cluster._host import Host, down, reason, remove_token, up
from squall.cluster._live import Steps

TRACE = """
[2026-11-29 05:05:31,022 W 9 9] rpc_client.h:153: Failed to connect to GCS
Traceback (most recent call last):
  File "ray/scripts.py", line 12, in start
    node = Node()
ray.exceptions.RaySystemError: System error: the first
During handling of the above exception, another exception occurred:
RuntimeError: Failed to start the GCS server: address in use
"""


@pytest.fixture
def place(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / "ray"))
    return tmp_path


def host(address: str = "127.0.0.1", port: int = 6379, head: str | None = None) -> Host:
    return Host("lab", "head", address, head, port, False, 80, None, {})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (TRACE, "RuntimeError: Failed to start the GCS server: address in use"),
        ("one\n  two  \n\n", "two"),
        ("[2026-11-29 05:05:31,022 W 9 9] rpc_client.h:153: no route\n", "no route"),
        ("/usr/bin/python3: Error while finding module specification", None),
        ("", "it printed nothing"),
    ],
)
def test_a_reason_is_one_line_without_a_trace(text: str, why: str | None) -> None:
    assert reason(text) == (text if why is None else why)


def test_a_taken_port_is_refused_at_once(place: pathlib.Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            squall.Error, match=rf"127\.0\.0\.1:{port}: .*in use\n  try another port"
        ):
            up(host(port=port))


def test_an_address_of_another_machine_is_refused(place: pathlib.Path) -> None:
    with pytest.raises(squall.Error, match=r"192\.0\.2\.1:6379: .*\n  try correct the address"):
        up(host("192.0.2.1"))


def test_a_head_that_does_not_answer_is_named(place: pathlib.Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(squall.Error, match=rf"does not reach the head at 127\.0\.0\.1:{port}"):
        up(host(head=f"127.0.0.1:{port}"))


def test_down_removes_what_an_ended_ray_has_left_and_nothing_else(place: pathlib.Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    state, ray = place / "state/squall/cluster/lab/head", place / "ray"
    for folder in (state, ray / f"session_1_{ended.pid}/logs", ray / "session_2_1"):
        folder.mkdir(parents=True)
    for file in (state / "ray.log", state / "token", ray / "ray_current_cluster"):
        file.write_text("x")
    (state / "ray.pid").write_text(f"{ended.pid} 1")
    os.symlink(ray / f"session_1_{ended.pid}", ray / "session_latest")

    assert down("lab", "head") == {"pid": None, "stopped": False}
    assert [file.name for file in state.iterdir()] == ["token"]
    # The session of another Ray stays, and the file that names its head.
    assert sorted(file.name for file in ray.iterdir()) == ["ray_current_cluster", "session_2_1"]
    remove_token("lab")
    assert not state.parent.exists()


def test_steps_have_the_seconds_since_the_start() -> None:
    out = io.StringIO()
    Steps(True, out)("Ray is up")
    Steps(False, out)("hidden")
    assert re.fullmatch(r" +0\.\d s  Ray is up\n", out.getvalue())

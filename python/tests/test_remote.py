"""`squall.remote` against a real daemon. `squall.aio` has the same logic, and is tested only where
waiting differs."""

import asyncio
import contextlib
import functools
import hashlib
import http.server
import json
import os
import pathlib
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import squall
import squall.aio
import squall.test
from conftest import Address, until
from squall import _http
from squall.trex import STLClient, STLPktBuilder, STLStream, STLTXSingleBurst

UDP = "eth/ipv4/udp"
LEASE_S = 2.0
CONTROLLER = pathlib.Path(__file__).parent / "cluster_controller.py"


def binary() -> pathlib.Path | None:
    given = os.environ.get("SQUALL")
    built = pathlib.Path(__file__).parents[2] / "target/debug/squall"
    found = pathlib.Path(given) if given else built
    return found if found.exists() else None


class Daemon:
    def __init__(self, data: pathlib.Path, *arguments: str) -> None:
        squall = binary()
        if squall is None:
            pytest.skip("SKIPPED: there is no squall: $SQUALL, target/debug/squall")
        self.data = data
        self.log = (data / "log").open("w")
        environment = {**os.environ, "SQUALL_PYTHON": str(CONTROLLER)}
        command = [
            str(squall),
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--grpc",
            "off",
            "--data",
            str(data),
            "--json",
            *arguments,
        ]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self.log, text=True, env=environment
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, (data / "log").read_text()
        self.url = json.loads(line)["https"]
        self.token = (data / "token").read_text().strip()

    def fingerprint(self) -> str:
        der = ssl.PEM_cert_to_DER_cert((self.data / "cert.pem").read_text())
        return "sha256:" + hashlib.sha256(der).hexdigest()

    def connect(self, **more: Any) -> squall.Client:
        return squall.connect(
            self.url, **{"token": self.token, "verify": self.fingerprint(), **more}
        )

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(10)
        self.log.close()


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    data = tmp_path_factory.mktemp("daemon")
    lab = data / "lab.toml"
    lab.write_text('[node.one]\n[node.two]\n[ports]\nA = ["one/eth1", "two/eth1"]\n')
    given = ("--token", "always", "--lease", f"{LEASE_S:g}s", "--inventory", str(lab))
    daemon = Daemon(data, *given)
    yield daemon
    daemon.end()


@pytest.fixture
def client(daemon: Daemon) -> Iterator[squall.Client]:
    with daemon.connect() as client:
        yield client


@pytest.fixture(autouse=True)
def config(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Return a directory in which the certificate seen first is remembered."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("SQUALL_TOKEN", raising=False)
    return tmp_path / "config"


def stream(name: str = "web", **more: Any) -> squall.Stream:
    return squall.Stream(**{"name": name, "packet": UDP, "rate": "1 kpps", "latency": True, **more})


def profile(address: str, *streams: squall.Stream, **more: Any) -> squall.Profile:
    return squall.Profile(**{"ports": {"A": address}, "streams": streams or [stream()], **more})


# Runs


def test_a_daemons_report_is_that_of_a_run_in_process(client: squall.Client, loop: Address) -> None:
    once = profile(loop("virtual", drop="1/10"), stream(mode={"burst": 1000}, size="imix"))
    here, there = squall.run(once, fingerprint=True), client.run(once, fingerprint=True)
    assert there.ports["A"].tx.fingerprint == here.ports["A"].tx.fingerprint is not None
    local, remote = here.streams["web"].rx, there.streams["web"].rx
    assert (
        local is not None
        and remote is not None
        and (remote.lost, remote.latency_ns) == (local.lost, local.latency_ns)
    )
    assert squall.Report.from_json(there.to_json()).to_dict() == there.to_dict()


def test_a_held_run_begins_at_its_instant(client: squall.Client, loop: Address) -> None:
    once = profile(loop(), stream(mode={"burst": 50}))
    shift = 3_600_000_000_000
    clock = {"shift_ns": shift, "bound_ns": 500}
    with client.session(once, node="n1", cluster_clock=clock, hold=True) as session:
        run = session.start()
        assert run.info().state == "ready"
        with pytest.raises(squall.ServerError) as late:
            run.go(client.clock()[0] + shift - 1)
        assert late.value.code == "too-late"
        run.set_clock({**clock, "bound_ns": 900})
        at = client.clock()[0] + shift + 1_000_000_000
        run.go(at)
        with pytest.raises(squall.ServerError) as again:
            run.go(at)
        assert again.value.code == "not-ready"
        assert run.wait(20)
        report = run.finish()
    assert client.clock()[0] + shift > at
    assert report.streams["web"].tx_packets == 50
    assert report.node == "n1"
    assert report.clock is not None
    assert report.clock.bound_ns == 900
    assert report.start is not None
    assert report.start.at_ns == at
    assert report.start.error_ns is not None
    assert report.start.error_ns >= 0


def test_a_node_leaves_out_what_is_elsewhere(client: squall.Client, loop: Address) -> None:
    ports = {"A": loop(), "B": "elsewhere:node2"}
    streams = [stream("here", port="A", mode={"burst": 9}), stream("there", port="B")]
    report = client.run(squall.Profile(ports=ports, streams=streams, duration="100 ms"))
    assert (report.streams["here"].tx_packets, report.streams["there"].tx_packets) == (9, 0)
    assert report.ports["B"].address == "elsewhere:node2"


def test_a_standard_test_of_a_daemon_finds_what_one_in_process_finds(
    client: squall.Client, loop: Address
) -> None:
    device = profile(loop("virtual", drain="10kpps", buffer="50"))
    asked: dict[str, Any] = {
        "max_rate": "100kpps",
        "rest": 0,
        "tests": ["throughput"],
        "frame_sizes": [64],
        "trial_s": 1,
    }
    here = squall.test.rfc2544(device, **asked)
    there = client.test("rfc2544", device, **asked)
    assert there.status == here.status == "measured"
    assert there.figures == here.figures
    estimate = client.estimate_test("rfc2544", device, **asked)
    assert estimate["trials"] > 1 and estimate["seconds"] >= estimate["trials"]
    with pytest.raises(squall.ProfileError, match="trials_s"):
        client.start_test("rfc2544", device, trials_s=1)


def test_a_standard_test_is_followed_and_stopped(client: squall.Client, loop: Address) -> None:
    test = client.start_test(
        "soak",
        ports={"A": loop()},
        max_rate="1kpps",
        rest=0,
        duration_s=600,
        trial_s=0.2,
        options={"linger": "10ms"},
    )
    until(lambda: test.progress()["trial"] >= 2)
    assert test.info().kind == "test" and test.progress()["latest"][0]["sent"] > 0
    assert test.result().status == "stopped" and not test.wait(0)
    test.stop()
    result = test.finish()
    assert result.status == "stopped" and len(result.trials) >= 1
    assert test.progress()["status"] == "stopped"


def test_a_daemon_is_reached_by_its_socket(tmp_path: pathlib.Path, loop: Address) -> None:
    daemon = Daemon(tmp_path)
    try:
        with squall.connect(f"unix:{tmp_path / 'socket'}") as client:
            report = client.run(profile(loop("virtual"), stream(mode={"burst": 100})))
            assert report.streams["web"].tx_packets == 100
    finally:
        daemon.end()
    with pytest.raises(squall.ServerError, match="(?s)unix:.*squall serve"):
        squall.connect(f"unix:{tmp_path / 'socket'}")
    with pytest.raises(ValueError, match="unix:PATH"):
        squall.connect("unix:")


def test_a_run_is_changed_while_it_goes_on(client: squall.Client, loop: Address) -> None:
    load = profile(loop(), stream("a"), stream("b"))
    with client.session(load, name="changes") as session:
        run = session.start()
        until(lambda: run.report().streams["a"].tx_packets > 0)
        run.pause("a")

        def paused() -> bool:
            before = run.report().streams
            until(lambda: run.report().streams["b"].tx_packets > before["b"].tx_packets)
            return run.report().streams["a"].tx_packets == before["a"].tx_packets

        # The latest samples of the daemon may be from before.
        until(paused)
        run.resume("a")
        load.streams[1].rate = "3 kpps"
        run.change(load)
        until(lambda: run.report().streams["b"].asked_pps == 3000)
        run.multiply(0.5)
        until(lambda: run.report().streams["b"].asked_pps == 1500)
        run.set_rate("a", "700 pps")
        # Half of the profile's current rate.
        until(lambda: run.report().streams["a"].asked_pps == 350)
        until(lambda: run.sample().streams["b"].tx_pps > 0)
        assert run.elapsed_s > 0 and not run.wait(0)
        assert {info.id for info in client.runs(state="live")} == {run.id}
    report = run.finish()
    assert report.streams["a"].rx is not None and report.streams["a"].rx.lost == 0
    [info] = client.runs(q="changes")
    assert (info.state, info.streams, info.over) == ("done", 2, True)
    assert "<html" in run.html() and "kpps" in run.profile()
    assert client.rename(run.id, name="changed").name == "changed"
    client.forget(run.id)
    with pytest.raises(squall.ServerError, match="no run") as gone:
        client.attach(run.id)
    assert (gone.value.status, gone.value.code) == (404, "not_found")


def test_mistakes_are_those_of_a_run_in_process(
    client: squall.Client, loop: Address, tmp_path: pathlib.Path
) -> None:
    with pytest.raises(squall.ProfileError, match="12 Gbp") as wrong:
        client.run(profile(loop(), stream(rate="12 Gbp")))
    assert [mistake.path for mistake in wrong.value.diagnostics] == ["stream[0].rate"]
    path = tmp_path / "wrong.toml"
    path.write_text('[ports]\nA = "loop:0"\n[[stream]]\npacket = "eth/ipv4/udp"\nrate = "fast"\n')
    with pytest.raises(squall.ProfileError) as wrong:
        client.run(path)
    assert wrong.value.diagnostics[0].line == 5
    with pytest.raises(squall.PortError, match="no-such-if"):
        client.run(profile("af_packet:no-such-if", stream(mode={"burst": 1})))
    with client.session(profile(loop(), stream("web"), stream("dns"))) as session:
        run = session.start()
        with pytest.raises(squall.UnknownStream, match="web"):
            run.pause("wbe")
        with pytest.raises(squall.ProfileError):
            run.change(profile(loop(), stream(rate="fast")))
        with pytest.raises(squall.Error, match='there is no router "r1"'):
            run.router("r1").announce(count=1)
        with pytest.raises(ValueError, match="one of cps"):
            run.set_load()
        with pytest.raises(ValueError, match="not a time to wait"):
            run.wait(-1)
    with pytest.raises(squall.Error, match="over"):
        run.pause()


def test_ctrl_c_ends_a_run_of_the_daemon_and_leaves_its_report(
    client: squall.Client, loop: Address
) -> None:
    threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(squall.Interrupted) as caught:
        client.run(profile(loop()))
    web = caught.value.report.streams["web"]
    assert web.rx is not None and web.tx_packets == web.rx.packets > 0


def test_progress_sees_samples_on_the_way(client: squall.Client, loop: Address) -> None:
    samples: list[squall.Sample] = []
    client.run(profile(loop(), duration="1 s"), every=0.3, progress=samples.append)
    assert any(sample.ports["A"].tx_pps > 0 for sample in samples if len(sample.ports))


# Leases


def test_a_ports_lease_is_one_users_until_it_is_given_back(
    daemon: Daemon, client: squall.Client, loop: Address
) -> None:
    address = loop()
    with client.acquire(address, owner="alice") as lease:
        assert [held.owner for held in client.leases() if held.id == lease.id] == ["alice"]
        with daemon.connect() as other:
            with pytest.raises(squall.PortError, match="alice"):
                other.acquire(address)
            with pytest.raises(squall.PortError, match="alice"):
                other.run(profile(address, stream(mode={"burst": 1})))
        # Wait longer than the lease lasts: it is renewed meanwhile.
        time.sleep(LEASE_S * 1.5)
        assert (
            client.run(profile(address, stream(mode={"burst": 5})), lease=lease)
            .streams["web"]
            .tx_packets
            == 5
        )
        with daemon.connect() as other:
            taken = other.acquire(address, owner="bob", force=True)
            assert {held.owner for held in client.leases() if address in held.ports} == {"bob"}
            taken.release()
    assert not [held for held in client.leases() if address in held.ports]


def test_a_run_goes_on_as_long_as_its_client_lives_and_no_longer(
    daemon: Daemon, client: squall.Client, loop: Address
) -> None:
    address = loop()
    script = f"""
import squall, sys, time
client = squall.connect({daemon.url!r}, {daemon.token!r}, verify={daemon.fingerprint()!r})
profile = squall.Profile(ports={{"A": {address!r}}})
profile.add(squall.Stream(packet="eth/ipv4/udp", rate="100 pps"))
run = client.session(profile).start()
print(run.id, flush=True)
time.sleep(60)
"""
    other = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout is not None
        id = other.stdout.readline().strip()
        assert id
        time.sleep(LEASE_S * 1.5)
        # The list renews no lease, unlike a request for the run.
        assert id in {info.id for info in client.runs(state="live")}
    finally:
        other.kill()
        other.wait()
    until(lambda: id not in {info.id for info in client.runs(state="live")})
    assert not [held for held in client.leases() if address in held.ports]


def test_a_detached_run_goes_on_without_its_client(
    daemon: Daemon, client: squall.Client, loop: Address
) -> None:
    with daemon.connect() as other:
        run = other.session(profile(loop(), stream(mode={"burst": 500})), detached=True).start()
    until(lambda: client.attach(run.id).wait(0))
    assert client.report(run.id).streams["web"].tx_packets == 500


def test_ports_of_the_machine_are_listed(client: squall.Client) -> None:
    ports = client.ports()
    assert all(port.address and port.state in ("up", "down", "unknown") for port in ports)


# Files and captures


def test_files_go_up_and_come_down_whole(client: squall.Client, tmp_path: pathlib.Path) -> None:
    source = tmp_path / "some file.bin"
    source.write_bytes(os.urandom(300_000))
    assert client.upload(source) == "some file.bin"
    assert {"some file.bin": 300_000}.items() <= {
        file.name: file.size for file in client.files()
    }.items()
    back = client.download("some file.bin", tmp_path / "back.bin")
    assert back.read_bytes() == source.read_bytes()
    client.remove("some file.bin")
    with pytest.raises(squall.ServerError):
        client.download("some file.bin", tmp_path / "none.bin")
    assert not list(tmp_path.glob("none*"))
    for name in ("../token", "/etc/passwd"):
        with pytest.raises(squall.Error):
            client.download(name, tmp_path / "stolen")


def test_a_replay_of_an_uploaded_capture_is_captured(
    client: squall.Client, loop: Address, tmp_path: pathlib.Path
) -> None:
    capture = tmp_path / "in.pcap"
    squall.send(f"pcap:{capture}", UDP, rate="1 kpps", count=50)
    client.upload(capture)
    with client.session(
        profile(loop(), stream(mode={"burst": 30})), capture={"file": "out.pcapng"}
    ) as session:
        report = session.run()
    assert report.capture is not None and report.capture.written_packets == 30
    assert squall.info(client.download("out.pcapng", tmp_path)).traffic.packets == 30


def test_the_daemon_looks_into_profiles_captures_and_rules(
    client: squall.Client, loop: Address, tmp_path: pathlib.Path
) -> None:
    good = profile(loop(), stream(mode={"burst": 3}))
    assert client.check(good)["ok"] and "burst of 3" in client.plan(good)
    written = tmp_path / "wrong.toml"
    written.write_text(good.to_toml().replace("1 kpps", "fast"))
    wrong = client.check(written)
    assert not wrong["ok"] and "not a rate" in wrong["problems"][0]["message"]
    capture = tmp_path / "looked at.pcap"
    squall.send(f"pcap:{capture}", UDP, rate="1 kpps", count=50)
    client.upload(capture)
    looked = client.packets("looked at.pcap")
    assert looked["total"] == 50 and looked["packets"][0]["protocol"] == "UDP"
    rule = 'alert http any any -> any any (msg:"page"; http.uri; content:"/nobody"; sid:%d;)'
    solved = client.solve(f"{rule % 1}\n{rule % 2}\n")
    assert solved["counts"]["solved"] == 2 and {each["sid"] for each in solved["rules"]} == {1, 2}
    with client.capture(loop(), file="received.pcapng", duration_s=0.2) as session:
        assert session.run().capture is not None
    assert "received.pcapng" in {file.name for file in client.files()}


# Access


def test_without_the_token_there_is_no_answer(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    for token in (None, "wrong"):
        with pytest.raises(squall.ServerError, match="needs a token") as refused:
            squall.connect(daemon.url, token, verify=daemon.fingerprint())
        assert refused.value.status == 401
    monkeypatch.setenv("SQUALL_TOKEN", daemon.token)
    squall.connect(daemon.url, verify=False).close()


def test_the_daemon_of_this_machine_is_known_by_its_folder(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch, config: pathlib.Path
) -> None:
    monkeypatch.setattr(_http, "_data_folders", lambda: [daemon.data])
    with squall.connect(daemon.url) as client:
        assert client.version == squall.__version__
    assert not config.exists()


def test_a_certificate_is_trusted_when_first_seen_and_has_to_stay(
    daemon: Daemon, config: pathlib.Path
) -> None:
    squall.connect(daemon.url, daemon.token).close()
    known = config / "squall/known_daemons"
    name = daemon.url.removeprefix("https://")
    assert known.read_text() == f"{name} {daemon.fingerprint()}\n"
    squall.connect(daemon.url, daemon.token).close()
    known.write_text(f"{name} sha256:{'0' * 64}\n")
    with pytest.raises(squall.ServerError, match="remove line 1 of") as refused:
        squall.connect(daemon.url, daemon.token)
    assert refused.value.code == "tls"


def test_a_certificate_that_is_not_the_one_is_refused(daemon: Daemon) -> None:
    with pytest.raises(squall.ServerError, match="unexpected certificate"):
        squall.connect(daemon.url, daemon.token, verify="sha256:" + "AB:" * 31 + "CD")
    with pytest.raises(squall.ServerError, match="verify"):
        squall.connect(daemon.url, daemon.token, verify=True)
    squall.connect(daemon.url, daemon.token, verify=daemon.data / "cert.pem").close()
    with pytest.raises(ValueError, match="expected True"):
        squall.connect(daemon.url, daemon.token, verify="no-such-file.pem")


@pytest.mark.parametrize(
    "url", ["ftp://x", "https://", "https://a:b", "https://a/b/c", "https://me@a"]
)
def test_a_url_that_says_nothing_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"url|Port"):
        squall.connect(url)


def test_an_unreachable_daemon_is_an_error() -> None:
    for url in ("https://127.0.0.1:1", "http://127.0.0.1:1"):
        with pytest.raises(squall.ServerError, match="squall serve") as error:
            squall.connect(url)
        assert error.value.code == "unreachable"


# With an event loop


def test_runs_of_asyncio_go_side_by_side(daemon: Daemon, loop: Address) -> None:
    async def both() -> list[int]:
        async with await squall.aio.connect(
            daemon.url, daemon.token, verify=daemon.fingerprint()
        ) as client:

            async def one(packets: int) -> int:
                address = f"{loop()}-{packets}"
                report = await client.run(profile(address, stream(mode={"burst": packets})))
                return report.streams["web"].tx_packets

            return list(await asyncio.gather(*map(one, (10, 20, 30))))

    assert asyncio.run(both()) == [10, 20, 30]


def test_a_canceled_task_stops_its_run(
    daemon: Daemon, client: squall.Client, loop: Address
) -> None:
    async def cancelled() -> None:
        async with await squall.aio.connect(
            daemon.url, daemon.token, verify=daemon.fingerprint()
        ) as other:
            task = asyncio.create_task(other.run(profile(loop()), name="cancelled"))
            while not await other.runs(q="cancelled", state="live"):
                await asyncio.sleep(0.05)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    asyncio.run(cancelled())
    # A start that was canceled before its answer leaves a run whose lease is not renewed.
    until(lambda: [info.over for info in client.runs(q="cancelled")] == [True])


def test_samples_come_while_it_runs(daemon: Daemon, loop: Address) -> None:
    async def seen() -> list[float]:
        async with await squall.aio.connect(
            daemon.url, daemon.token, verify=daemon.fingerprint()
        ) as client:
            run = await client.session(profile(loop(), duration="1 s")).start()
            return [sample.t_s async for sample in run.samples(0.1)]

    times = asyncio.run(seen())
    assert len(times) >= 2 and times == sorted(set(times))


# TRex's verbs, and the plugin


def test_trexs_verbs_drive_a_daemon(daemon: Daemon, loop: Address) -> None:
    with STLClient(
        "carol", daemon.url, ports=[loop()], token=daemon.token, verify=daemon.fingerprint()
    ) as client:
        client.reset()
        client.add_streams(
            STLStream(
                packet=STLPktBuilder(pkt=UDP), mode=STLTXSingleBurst(pps=1000, total_pkts=50)
            ),
            ports=[0],
        )
        client.start(ports=[0], mult="2")
        client.wait_on_traffic(ports=[0], timeout=20)
        assert client.get_stats()[0]["opackets"] == client.get_stats()[0]["ipackets"] == 50


def test_the_plugins_runs_are_those_of_the_daemon(
    daemon: Daemon, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile("""
    def test_it(squall):
        assert squall.client is not None
        profile = squall.Profile(ports={"A": squall.loop("virtual", drop="1/2")})
        profile.add(squall.Stream(name="web", packet="eth/ipv4/udp", rate="1 kpps", mode={"burst": 10}, latency=True))
        squall.assert_no_loss(squall.run(profile))
    """)
    arguments = [
        f"--squall-url={daemon.url}",
        f"--squall-token={daemon.token}",
        f"--squall-verify={daemon.fingerprint()}",
    ]
    result = pytester.runpytest_inprocess("-q", "-p", "no:cacheprovider", *arguments)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*sent 10, received 5, lost 5*"])


# The transport, against a server that behaves as no Squall daemon does


class _Odd(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    asked: list[str] = []

    def do_GET(self) -> None:  # noqa: N802
        type(self).asked.append(self.path)
        body = {
            "/squall/v1/info": b'{"version": "9", "authorized": true}',
            "/squall/v1/files": b"<html>",
        }.get(self.path, b"{}")
        status = 500 if self.path.endswith("/ports") else 200
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        # As a daemon that closes idle connections.
        self.close_connection = self.path.endswith("/leases")

    def log_message(self, *_: object) -> None:
        pass


def test_a_run_over_nodes_has_their_rows_and_one_report(client: squall.Client) -> None:
    (lab,) = client.inventories()
    assert (lab.name, lab.nodes) == ("lab", ("one", "two"))
    assert lab.ports == ({"name": "A", "places": ["one/eth1", "two/eth1"]},)
    session = client.session(profile("loop:unused"), nodes="lab", on_loss="continue")
    with session:
        run = session.start()
        # The run is running slightly before the first view of its nodes is stored.
        until(lambda: (run.info().cluster or {}).get("nodes"))
        assert run.info().state == "running"
        table = run.info().cluster
        assert table is not None and table["on_loss"] == "continue"
        assert [node["name"] for node in table["nodes"] if node["why"]] == ["two"]
        assert table["all"]["lost"] == 3
        with pytest.raises(squall.Error, match="several machines cannot be changed"):
            run.pause()
        # Wait longer than the lease lasts: the object renews it.
        assert not run.wait(LEASE_S * 1.5)
        run.stop()
        report = run.finish()
    assert report.streams["web"].tx_packets > 0
    assert run.info().state == "done"
    with pytest.raises(squall.Error, match='no inventory "lap"\n  try lab'):
        client.run(profile("loop:unused"), nodes="lap")


@pytest.fixture
def odd() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Odd)
    _Odd.asked = []
    thread = threading.Thread(target=functools.partial(server.serve_forever, 0.01))
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_answers_that_are_none_of_a_daemon_are_errors(odd: str) -> None:
    with squall.connect(odd) as client:
        assert client.version == "9"
        with pytest.raises(squall.ServerError, match="not JSON") as error:
            client.files()
        with pytest.raises(squall.ServerError, match="answered 500") as error:
            client.ports()
        assert error.value.status == 500


def test_a_connection_that_was_closed_meanwhile_is_not_used_and_nothing_is_asked_twice(
    odd: str,
) -> None:
    http = _http.Http(odd, None, None, 5)
    for _ in range(3):
        http.send("GET", "/squall/v1/leases")
        # The thread of the server closes the connection after its answer.
        time.sleep(0.5)
    assert _Odd.asked == ["/squall/v1/leases"] * 3
    http.close()

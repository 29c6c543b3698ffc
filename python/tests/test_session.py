import contextlib
import datetime
import gc
import os
import pathlib
import signal
import threading
import time
from typing import Any

import numpy as np
import pytest

import squall
from conftest import Address, still, until

UDP = "eth/ipv4/udp"


def stream(name: str = "web", **more: Any) -> squall.Stream:
    return squall.Stream(**{"name": name, "packet": UDP, "rate": "1 kpps", **more})


def profile(address: str, *streams: squall.Stream, **more: Any) -> squall.Profile:
    return squall.Profile(**{"ports": {"A": address}, "streams": streams or [stream()], **more})


def test_what_is_sent_into_a_loop_comes_out_of_it(loop: Address) -> None:
    streams = [
        stream("a", latency=True, mode={"burst": 1000}),
        stream("b", size=1518, mode={"burst": 10}),
    ]
    report = squall.run(profile(loop("virtual"), *streams))
    port = report.ports["A"]
    assert (port.tx.packets, port.tx.octets) == (1010, 1000 * 64 + 10 * 1518)
    assert (port.rx.packets, port.rx.octets) == (port.tx.packets, port.tx.octets)
    assert port.rx.unsigned_packets == 10
    a, b = report.streams
    assert (a.tx_packets, a.rx and a.rx.packets, a.rx and a.rx.lost) == (1000, 1000, 0)
    assert (b.tx_packets, b.rx) == (10, None)
    assert report.verdict.valid, report.verdict.reasons


@pytest.mark.parametrize(("drop", "lost"), [("1/10", range(100, 101)), ("0.1", range(50, 160))])
def test_what_a_link_drops_is_reported_as_lost(loop: Address, drop: str, lost: range) -> None:
    address = loop("virtual", drop=drop)
    report = squall.run(profile(address, stream(latency=True, mode={"burst": 1000})))
    rx = report.streams["web"].rx
    assert rx is not None
    assert rx.lost in lost
    assert rx.lost == 1000 - rx.packets == 1000 - report.ports["A"].rx.packets
    assert rx.loss_ratio == rx.lost / 1000


def test_the_plan_shows_the_frames_that_the_port_then_gets(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "out.pcap"
    sources = squall.vary("ipv4.src", "random", min="16.0.0.0", max="18.0.0.254")
    session = squall.Session(
        profile(
            f"pcap:{path}",
            stream(vary=[sources], size="imix", mode={"burst": 50}),
            stream("b", mode={"burst": 9}),
        )
    )
    plan = session.plan()
    assert not path.exists(), "a plan opens nothing for good"
    assert plan.virtual_time
    frames = plan.frames(1000)
    assert len(frames) == 59
    assert session.run().ports["A"].tx.packets == 59

    scapy = pytest.importorskip("scapy.all")
    # Compare exactly: scapy gives times as decimals.
    captured = [(int(p.time * 10**9), bytes(p)) for p in scapy.rdpcap(str(path))]
    assert captured == [(frame.due_ns, frame.octets) for frame in frames]
    varied = {frame.octets[26:30] for frame in frames if frame.stream == "web"}
    assert len(varied) > 40
    assert all(16 <= source[0] <= 18 for source in varied)


def test_a_plan_tells_streams_workers_and_notes(loop: Address) -> None:
    streams = [
        stream("web", size=128, mode={"burst": 10}),
        stream("dns", latency=True, start_delay="1 ms"),
    ]
    plan = squall.Session(
        profile(loop("virtual"), *streams, duration="1 s"), cores=1, mult="2"
    ).plan()
    web, dns = plan.streams
    assert (web.name, web.port, web.mean_size, web.packets, web.asked_pps) == (
        "web",
        "A",
        128.0,
        10,
        2000.0,
    )
    assert (dns.packets, dns.start_ns, dns.latency, web.latency) == (None, 1_000_000, True, False)
    assert plan.ports["A"].address == loop("virtual")
    assert (plan.duration_s, plan.packets, plan.seed) == (1.0, None, 1)
    assert [worker.tx for worker in plan.workers] == [(("A", 0),)]
    assert web.workers == dns.workers == (0,)


def test_the_same_seed_gives_the_same_octets_and_another_gives_others(loop: Address) -> None:
    sources = squall.vary("ipv4.src", "random", min="16.0.0.0", max="18.0.0.254")

    def fingerprint(seed: int, cores: int = 1) -> str:
        mix = profile(
            loop("virtual"),
            stream(vary=[sources], size={"uniform": "64-1518"}, mode={"burst": 500}),
        )
        mix.seed = seed
        report = squall.run(mix, fingerprint=True, cores=cores)
        tx, rx = report.ports["A"].tx.fingerprint, report.ports["A"].rx.fingerprint
        assert tx is not None
        assert tx == rx
        return tx

    assert fingerprint(1) == fingerprint(1) == fingerprint(1, cores=2)
    assert fingerprint(1) != fingerprint(2)


@pytest.mark.parametrize(("mult", "pps"), [(2, 2000), (0.5, 500), ("3 kpps", 3000), (1e-2, 10)])
def test_a_multiplier_is_over_all_rates(loop: Address, mult: Any, pps: float) -> None:
    report = squall.run(profile(loop("virtual"), stream(mode={"burst": 100})), mult=mult)
    assert report.streams["web"].tx_pps == pytest.approx(pps)


def test_a_rate_changes_while_running_and_nothing_starts_anew(loop: Address) -> None:
    load = profile(loop(), stream(latency=True))
    with squall.Session(load) as session:
        run = session.start()
        until(lambda: run.report().streams["web"].tx_packets >= 20)
        load.streams[0].rate = "5 kpps"
        run.change(load)
        run.sample()

        def rate() -> float:
            time.sleep(0.3)
            return run.sample().streams["web"].tx_pps

        until(lambda: rate() == pytest.approx(5000, rel=0.2))
        run.stop()
        web = run.finish().streams["web"]
    assert web.rx is not None
    assert (web.rx.packets, web.rx.lost, web.rx.duplicates, web.rx.reordered) == (
        web.tx_packets,
        0,
        0,
        0,
    )


def test_a_paused_stream_sends_nothing_until_it_is_resumed(loop: Address) -> None:
    with squall.Session(profile(loop(), stream("a"), stream("b"))) as session:
        run = session.start()
        until(lambda: run.report().streams["a"].tx_packets > 0)
        run.pause("a")
        still(lambda: run.report().streams["a"].tx_packets)
        before = run.report().streams
        until(lambda: run.report().streams["b"].tx_packets > before["b"].tx_packets + 50)
        after = run.report().streams
        assert after["a"].tx_packets == before["a"].tx_packets
        run.resume("a")
        until(lambda: run.report().streams["a"].tx_packets > after["a"].tx_packets)
        run.pause()
        run.resume()
        run.stop()
        assert run.wait(5)


def test_a_group_is_paused_as_one(loop: Address) -> None:
    with squall.Session(
        profile(loop(), stream("a", group="g"), stream("b", group="g"), stream("c"))
    ) as session:
        run = session.start()
        until(lambda: all(s.tx_packets > 0 for s in run.report().streams))
        run.pause("g")
        still(lambda: [s.tx_packets for s in run.report().streams][:2])
        before = [s.tx_packets for s in run.report().streams]
        until(lambda: run.report().streams["c"].tx_packets > before[2] + 50)
        after = [s.tx_packets for s in run.report().streams]
        assert after[:2] == before[:2]
        run.resume("g")
        until(
            lambda: all(s.tx_packets > n for s, n in zip(run.report().streams, after, strict=True))
        )
        run.stop()
        assert run.wait(5)


def test_streams_come_and_go_while_running(loop: Address) -> None:
    load = profile(loop(), stream("a"))
    with squall.Session(load) as session:
        run = session.start()
        until(lambda: run.report().streams["a"].tx_packets > 0)
        load.add(stream("b", latency=True))
        run.change(load)
        until(lambda: run.report().streams["b"].tx_packets > 0)
        del load.streams[0]
        run.change(load)
        with pytest.raises(squall.UnknownStream, match="'b'"):
            run.pause("a")
        run.stop()
        report = run.finish()
    assert report.streams.names == ("a", "b")
    b = report.streams["b"]
    assert (b.port, b.asked_pps, b.rx and b.rx.lost) == ("A", 1000, 0)


def test_a_stream_may_come_back_with_other_frames(loop: Address) -> None:
    load = profile(loop(), stream(latency=True), stream("jumbo", size=9000, mode={"burst": 1}))
    with squall.Session(load) as session:
        run = session.start()
        until(lambda: run.report().streams["web"].tx_packets > 0)
        load.streams[0].size = 9000
        run.change(load)
        until(lambda: run.report().streams["web"].tx_packets > 10)
        run.stop()
        report = run.finish()
    before, _, after = report.streams
    assert before.name == after.name and report.streams["web"] is after
    assert after.tx_octets == 9000 * after.tx_packets
    assert all(
        s.rx is not None and (s.rx.lost, s.rx.octets) == (0, s.tx_octets) for s in (before, after)
    )


def test_an_unknown_stream_lists_the_nearest(loop: Address) -> None:
    with squall.Session(profile(loop(), stream("web"), stream("dns"))) as session:
        run = session.start()
        with pytest.raises(
            squall.UnknownStream, match="no stream or template is called 'wbe': there is 'web'"
        ) as caught:
            run.pause("wbe")
        assert caught.value.name == "wbe"
        run.stop()
        with pytest.raises(squall.UnknownStream, match="there is 'web', 'dns'"):
            run.finish().streams["x"]


def test_orders_are_for_routers_of_the_run(loop: Address) -> None:
    with squall.Session(profile(loop(), stream("web"))) as session:
        run = session.start()
        with pytest.raises(squall.ProfileError, match='there is no router "r1"'):
            run.router("r1").withdraw("edge", count=100, duration="5 s")
        with pytest.raises(squall.ProfileError, match='there is no router "r1"'):
            run.router("r1").notify(6, 9, data=b"\x00", neighbor="10.0.0.2")
        with pytest.raises(squall.ProfileError, match="code"):
            run.router("r1").notify(0)
        with pytest.raises(squall.ProfileError, match="duration"):
            run.router("r1").down(duration="soon")
        with pytest.raises(squall.ProfileError, match="is not an address"):
            run.router("r1").up("here")
        run.stop()


def test_a_page_of_hosts_has_a_limit(loop: Address) -> None:
    with squall.Session(profile(loop(), stream())) as session:
        run = session.start()
        assert run.hosts(limit=1).total == 0
        for limit in (0, 10_001):
            with pytest.raises(ValueError, match=f"limit = {limit}: expected 1 to 10000"):
                run.hosts(limit=limit)
        run.stop()


def test_a_change_that_is_refused_changes_nothing(loop: Address) -> None:
    load = profile(loop())
    with squall.Session(load) as session:
        run = session.start()
        with pytest.raises(squall.ProfileError, match="ports cannot change"):
            run.change(profile("null:"))
        with pytest.raises(squall.ProfileError, match="not a rate"):
            run.change(profile(loop(), stream(rate="fast")))
        with pytest.raises(squall.ProfileError, match="opened for frames of at most 64"):
            run.change(profile(loop(), stream(), stream("jumbo", size=9000)))
        before = run.report().streams["web"].tx_packets
        until(lambda: run.report().streams["web"].tx_packets > before)


def test_leaving_the_session_ends_its_runs(loop: Address) -> None:
    with squall.Session(profile(loop())) as session:
        run = session.start()
    sent = run.finish().ports["A"].tx.packets
    assert run.finish().ports["A"].tx.packets == sent
    with pytest.raises(squall.Error, match="the run has ended"):
        run.pause()
    run.close()


def test_a_run_that_nobody_holds_ends(loop: Address) -> None:
    def threads() -> set[str]:
        found = set()
        for task in os.listdir("/proc/self/task"):
            # A thread may end between the listing and the reading.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if pathlib.Path(f"/proc/self/task/{task}/comm").read_text().startswith("squall-"):
                    found.add(task)
        return found

    others = threads()
    session = squall.Session(profile(loop()))
    run = session.start()
    run.sample()
    started = threads() - others
    assert started
    del run
    gc.collect()
    until(lambda: not started & threads())


def test_waiting_ends_with_its_time(loop: Address) -> None:
    with squall.Session(profile(loop())) as session:
        run = session.start()
        start = time.monotonic()
        assert run.wait(0.1) is False
        assert 0.1 <= time.monotonic() - start < 1
        assert 0 < run.elapsed_s < 2
        with pytest.raises(ValueError, match="not a time to wait"):
            run.wait(-1)


def test_other_threads_go_on_while_one_runs(loop: Address) -> None:
    ticks: list[float] = []

    def tick() -> None:
        for _ in range(10):
            time.sleep(0.01)
            ticks.append(time.monotonic())

    timer = threading.Thread(target=tick)
    timer.start()
    squall.run(profile(loop(), duration="2 s"))
    assert len(ticks) == 10
    timer.join()


def test_ctrl_c_ends_a_run_cleanly_and_leaves_its_report(loop: Address) -> None:
    threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(squall.Interrupted) as caught:
        squall.run(profile(loop(), stream(latency=True)))
    assert isinstance(caught.value, KeyboardInterrupt)
    web = caught.value.report.streams["web"]
    assert web.rx is not None
    assert web.tx_packets == web.rx.packets > 0


def test_progress_sees_what_becomes_the_series(loop: Address) -> None:
    samples: list[squall.Sample] = []
    report = squall.run(profile(loop(), duration="1 s"), every=0.05, progress=samples.append)
    assert len(samples) >= 2
    assert list(report.series) == samples


def test_sending_takes_frames_a_count_or_a_duration(loop: Address) -> None:
    frame = bytes(60)
    assert squall.send(loop("virtual"), frame, rate="1 kpps", count=7).ports["A"].rx.packets == 7
    assert (
        squall.send(loop("virtual"), UDP, rate=1000, duration=0.5, size=128).ports["A"].rx.octets
        == 500 * 128
    )


def test_a_port_that_does_not_open_is_an_error_of_the_machine() -> None:
    with pytest.raises(squall.PortError, match="no-such-if"):
        squall.run(profile("af_packet:no-such-if", stream(mode={"burst": 1})))


@pytest.mark.parametrize("address", ["no-such-kind:x", "loop:0,colour=red"])
def test_an_address_that_says_nothing_is_a_mistake_in_the_profile(address: str) -> None:
    with pytest.raises(squall.ProfileError) as caught:
        squall.run(profile(address))
    assert len(caught.value.diagnostics) == 1


def test_a_run_without_an_end_is_refused_on_virtual_time(loop: Address) -> None:
    with pytest.raises(squall.ProfileError, match="never ends"):
        squall.run(profile(loop("virtual")))


@pytest.mark.parametrize("wrong", [{"clock": "fast"}, {"mult": "quick"}, {"linger": -1}])
def test_a_wrong_argument_is_refused(loop: Address, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=str(next(iter(wrong.values())))):
        squall.Session(profile(loop()), **wrong)


def test_an_option_that_there_is_not_is_refused_with_the_nearest(loop: Address) -> None:
    wrong: dict[str, Any] = {"durtion": 1}
    with pytest.raises(TypeError, match='no option "durtion"\n  did you mean "duration"'):
        squall.Session(profile(loop()), **wrong)


def test_settings_of_a_run_are_arguments_of_run_too(loop: Address, tmp_path: pathlib.Path) -> None:
    report = squall.run(
        profile(loop("virtual"), stream()),
        duration=datetime.timedelta(seconds=2),
        packets="2k",
        octets="1 MB",
        seed=7,
        filter="udp",
        received_flows=True,
        capture=tmp_path / "out.pcapng",
        cpus="0",
    )
    asked = report.asked
    assert (asked.packets, asked.octets, asked.duration_s) == (2000, 1_000_000, 2.0)
    assert report.seed == 7
    assert report.received_flows is not None and report.capture is not None
    assert report.capture.written_packets == report.ports["A"].rx.packets > 0


def test_gaps_are_counted_in_equal_bins_where_asked_for(loop: Address) -> None:
    report = squall.run(profile(loop("virtual"), stream(mode={"burst": 11})), gap_bins=(4, 500_000))
    bins = report.ports["A"].rx.arrival_gap_bins
    assert bins is not None
    assert (bins.width_ns, bins.counts.tolist(), bins.beyond) == (500_000, [0, 0, 10, 0], 0)
    assert bins.counts.dtype == np.uint64


def test_conversations_of_a_capture_are_played_again(loop: Address) -> None:
    address = loop()
    capture = pathlib.Path(__file__).parents[2] / "tests/golden/import/web-and-datagrams.pcap"
    replay = {"capture": str(capture), "topspeed": True}
    flows = {"clients": "A", "servers": "B", "replay": replay}
    report = squall.run(squall.Profile(ports={"A": address, "B": address}, flows=flows))
    assert report.flows is not None and report.flows.conversations is not None
    played, clients = report.flows.conversations, report.flows.total.client
    assert clients is not None and played.found == played.playable == clients.completed > 0
    assert played.octets_as_captured


def test_a_load_is_changed_while_it_runs(loop: Address) -> None:
    address = loop()
    load = squall.Profile(
        ports={"A": address, "B": address}, flows={"clients": "A", "servers": "B"}
    )
    load.add(squall.Pool(name="c", addresses="16.0.0.0/24"))
    load.add(squall.Template(name="web", clients="c", servers="48.0.0.1", app="dns", cps=0.01))
    with squall.Session(load) as session:
        run = session.start()

        def begun() -> int:
            sampled = run.sample()
            return sum(row.attempted_cps > 0 for row in sampled.flows)

        until(begun)
        run.set_load("web", cps=500)
        run.multiply(2)
        until(begun)
        run.pause("web")
        run.resume("web")
        with pytest.raises(squall.UnknownStream, match="there is 'web'"):
            run.set_load("wbe", cps=1)
        with pytest.raises(squall.ProfileError, match="has cps"):
            run.set_load("web", users=1)
        with pytest.raises(ValueError, match="one of cps"):
            run.set_load("web")
        until(begun)
        # Steady rates need samples over at least 0.1 s.
        time.sleep(0.3)
        run.stop()
        report = run.finish()
    assert report.flows is not None and report.flows.total.client is not None
    client = report.flows.total.client
    assert client.asked_cps == 1000 and client.completed == client.attempted
    assert client.steady is not None and client.steady.completed_cps > 0
    series = report.series_arrays().flows["web (client)"]
    assert np.nanmax(series.attempted_cps) > 0 and series.active.shape == (len(report.series),)


def test_flows_of_a_capture_are_arrays_and_named(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "flows.pcap"
    squall.send(f"pcap:{path}", "eth/ipv4/udp(dport=53)", rate="1 kpps", count=100, latency=True)
    report = squall.recv(f"pcap:{path},read", gap_bins=(4, 500_000))
    flows = report.received_flows
    assert flows is not None and len(flows.flows) == 1
    flow = flows.flows[0]
    assert (flow.packets, flow.dst_port, flow.protocol) == (100, 53, "UDP")
    assert flow.sequence is not None and (flow.sequence.kind, flow.sequence.stream) == ("squall", 0)
    assert flow.arrival_gap_ns is not None and flow.arrival_gap_ns.stddev == 0
    assert flow.arrival_gap_bins is not None and list(flow.arrival_gap_bins.counts) == [0, 0, 99, 0]
    assert flows.column("packets").dtype == np.float64
    assert np.isnan(flows.column("sequence.jitter_ns")).all()
    assert report.streams[0].rx is not None and report.streams[0].rx.lost == 0
    assert squall.Report.from_json(report.to_json()).to_dict() == report.to_dict()
    only = squall.recv(f"pcap:{path},read", filter="udp port 54").received_flows
    assert only is not None and len(only.flows) == 0
    with pytest.raises(ValueError, match="expected flow"):
        squall.recv("null:", by="port")  # type: ignore[arg-type]


def test_a_capture_is_sent_again_at_the_asked_speed(tmp_path: pathlib.Path) -> None:
    capture, out = tmp_path / "in.pcap", tmp_path / "out.pcap"
    squall.send(
        f"pcap:{capture}",
        UDP,
        rate="1 kpps",
        count=50,
        vary=[squall.vary("udp.sport", "increment", min=1000, max=1009)],
    )
    report = squall.replay(capture, f"pcap:{out}", pps=100.5, loops=4, unique_ip=True)
    [replay] = report.replays
    assert replay.flows is not None
    assert (replay.packets, replay.flows.flows) == (200, 40)
    assert replay.ports[0].successful == report.ports["A"].tx.packets == 200
    assert report.duration_s == pytest.approx(199 / 100.5)
    assert squall.info(out).traffic.packets == 200


def test_a_replay_has_one_speed_and_says_what_is_wrong(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match="pps and mbps"):
        squall.replay("x.pcap", "null:", pps=1, mbps=1)
    with pytest.raises(squall.Error, match=r"cannot read .*none\.pcap: there is no such file"):
        squall.replay(tmp_path / "none.pcap", "null:")
    with pytest.raises(squall.Error, match="expected one of auto, cache"):
        squall.replay("x.pcap", "null:", "null:", split=("magic", ""))  # type: ignore[arg-type]

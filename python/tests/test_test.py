"""`squall.test`: standard tests of a device with known behavior, in virtual time."""

import json
import pathlib
from typing import Any

import pytest

import squall
import squall.test


def rig(device: str) -> squall.Profile:
    profile = squall.Profile(ports={"A": f"loop:test-test,virtual,{device}"})
    profile.add(squall.Stream(name="A", packet="eth/ipv4/udp", rate="1 kpps"))
    return profile


SETTINGS: dict[str, Any] = {
    "max_rate": "20kpps",
    "tests": ["throughput", "back-to-back"],
    "frame_sizes": [64, 512],
    "trial_s": 1,
    "bursts": 2,
}


def test_figures_are_those_of_the_device_and_a_worse_one_is_a_regression(
    tmp_path: pathlib.Path,
) -> None:
    seen: list[dict[str, Any]] = []
    before = squall.test.rfc2544(rig("drain=10kpps,buffer=80"), progress=seen.append, **SETTINGS)
    assert before.status == "measured" and len(seen) == len(before.trials)
    for size in (64, 512):
        assert 9950 < before.figures[f"throughput/{size}"] <= 10000
        assert abs(before.figures[f"buffer/{size}"] - 80) <= 1
    now = squall.test.rfc2544(rig("drain=9kpps,buffer=80"), **SETTINGS)
    worse = {one["name"] for one in now.compare(before) if one["regressed"]}
    assert {"throughput/64", "throughput/512"} <= worse
    assert not any(one["regressed"] for one in before.compare(before))
    for ending, text in {
        "json": "squall.test/1",
        "html": "<html",
        "xml": "failure",
        "csv": "sent",
    }.items():
        now.write(tmp_path / f"result.{ending}", before)
        assert text in (tmp_path / f"result.{ending}").read_text()
    assert squall.test.Result.load(tmp_path / "result.json").figures == now.figures
    with pytest.raises(ValueError, match="expected .json"):
        now.write(tmp_path / "result.doc")


def test_a_stopped_test_goes_on_from_its_journal(tmp_path: pathlib.Path) -> None:
    journal = tmp_path / "journal"

    class Enough(Exception):
        pass

    def stop(trial: dict[str, Any]) -> None:
        if len(journal.read_text().splitlines()) == 4:
            raise Enough

    device = rig("drain=10kpps,buffer=80")
    with pytest.raises(Enough):
        squall.test.rfc2544(device, journal=journal, progress=stop, **SETTINGS)
    seen: list[dict[str, Any]] = []
    done = squall.test.rfc2544(device, journal=journal, progress=seen.append, **SETTINGS)
    assert len(done.trials) == len(seen) + 3
    assert done.figures == squall.test.rfc2544(device, **SETTINGS).figures
    with pytest.raises(squall.ProfileError, match="journal of another test"):
        squall.test.rfc2544(device, journal=journal, **{**SETTINGS, "trial_s": 2})


def test_mistakes_are_named() -> None:
    with pytest.raises(squall.ProfileError, match="frame_size"):
        squall.test.rfc2544(rig("delay=1"), max_rate="1kpps", frame_size=[64])
    with pytest.raises(squall.ProfileError, match="no flows"):
        squall.test.capacity(rig("delay=1"))
    with pytest.raises(squall.ProfileError, match="link is not known"):
        squall.test.rfc2544(rig("delay=1"))
    with pytest.raises(squall.ProfileError, match="resolution"):
        squall.test.rfc2544(rig("delay=1"), max_rate="1kpps", resolution=0)


def test_connections_that_the_device_cannot_hold_are_found() -> None:
    profile = squall.Profile(
        ports={
            "A": "loop:test-flows,virtual,drain=20Mbps,buffer=50000,delay=100000",
            "B": "loop:test-flows,virtual,drain=20Mbps,buffer=50000,delay=100000",
        },
        flows={"clients": "A", "servers": "B"},
    )
    profile.add(
        squall.Template(
            name="web", clients="16.0.0.1-16.0.3.254", servers="48.0.0.1", app="http", cps=1
        )
    )
    found = squall.test.capacity(profile, of=["cps"], max_cps=4000, quick=True, object_octets=1000)
    # 20 Mb/s of connections that each need about 10 kbit in each direction.
    assert 1000 < found.figures["cps"] < 2500, found


def connections(device: str) -> squall.Profile:
    """Clients on A, servers on B, and a stream each way."""
    port = f"loop:test-connections,virtual,{device}"
    profile = squall.Profile(ports={"A": port, "B": port}, flows={"clients": "A", "servers": "B"})
    profile.add(
        squall.Template(
            name="web", clients="16.0.0.1-16.0.3.254", servers="48.0.0.1", app="http", cps=1
        )
    )
    for name, port in (("there", "A"), ("back", "B")):
        profile.add(
            squall.Stream(name=name, port=port, packet="eth/ipv4/udp", rate="1 kpps", latency=True)
        )
    return profile


def test_a_search_finds_both_ratios_at_once() -> None:
    goals = [
        {"name": name, "loss_ratio": ratio, "final_s": 1, "sum_s": 3, "exceed_ratio": 0.5}
        for name, ratio in (("NDR", 0), ("PDR", 0.05))
    ]
    found = squall.test.mlrsearch(
        rig("drain=10kpps,buffer=20"), max_rate="20kpps", frame_sizes=[64], goal=goals
    )
    # Conditional throughput is the received rate, and a trial of 1 s also receives the buffer's 20.
    ndr, pdr = found.figures["NDR/64"], found.figures["PDR/64"]
    assert 9900 < ndr <= pdr and 10000 < pdr <= 10020, found


def test_throughput_is_written_in_the_formats_of_other_programs() -> None:
    found = squall.test.mlrsearch(
        rig("drain=10kpps,buffer=20"), max_rate="20kpps", frame_sizes=[64], quick=True
    )
    case = json.loads(found.export("csit"))
    ndr = case["result"]["ndr"]["lower"]["rate"]
    assert case["test_type"] == "ndrpdr" and ndr["unit"] == "pps"
    assert ndr["value"] == found.figures["NDR/64"]
    network = json.loads(found.export("nfvbench"))["benchmarks"]["network"]
    pdr = network["service_chain"]["EXT"]["result"]["result"]["64"]["pdr"]
    assert abs(pdr["rate_pps"] - found.figures["PDR/64"]) < 1
    with pytest.raises(ValueError, match="expected"):
        found.export("xml")
    soak = squall.test.soak(rig("drain=10kpps,buffer=20"), max_rate="1kpps", quick=True)
    with pytest.raises(ValueError, match="cannot write a result of NFVbench"):
        soak.export("nfvbench")


def test_a_service_that_loses_frames_is_not_activated() -> None:
    def activated(device: str) -> squall.test.Result:
        service = {
            "stream": "A",
            "cir_bps": 5e6,
            "frame_size": 512,
            "ftd_ms": 10,
            "policed": False,
        }
        return squall.test.y1564(rig(device), service=[service], step_s=1, performance_s=0)

    assert activated("delay=1000000").status == "passed"
    lossy = activated("drop=1/100")
    assert lossy.status == "failed" and lossy.verdict, lossy
    late = activated("delay=20000000")
    assert late.status == "failed", late


def test_tcp_reaches_what_the_path_makes_possible() -> None:
    profile = connections("drain=20Mbps,buffer=50000,delay=2000000")
    # Connections that start together overrun the buffer: only a transfer of seconds amortizes that.
    settings: dict[str, Any] = {"connections": [4], "transfer_s": 5, "quick": True}
    found = squall.test.rfc6349(profile, max_rate="100Mbps", **settings)
    assert found.figures["mtu/to-clients"] == found.figures["mtu/to-servers"] == 1500
    # 2 ms, plus the transmission time of 128 octets at 20 Mb/s, in each direction.
    assert abs(found.figures["rtt"] - 2 * (2_000_000 + 128 * 8 * 50)) < 10_000, found
    for direction in ("to-servers", "to-clients"):
        assert 19.9e6 < found.figures[f"bottleneck/{direction}"] <= 20e6
        assert 1.0 <= found.figures[f"transfer_time_ratio/{direction}/4"] < 1.3
        assert found.figures[f"tcp_throughput/{direction}/4"] <= 20e6 * 1460 / 1518


def test_a_firewall_is_measured_by_connections() -> None:
    profile = connections("drain=20Mbps,buffer=50000,delay=100000")
    found = squall.test.rfc9411(
        profile,
        quick=True,
        max_cps=4000,
        max_concurrent=300,
        object_octets=[1000],
        tests=["cps", "throughput", "latency", "concurrent"],
    )
    assert 1000 < found.figures["cps/1000"] < 2500
    assert 15e6 < found.figures["throughput/1000"] < 20e6
    assert found.figures["concurrent"] == 300
    assert found.figures["latency.first_byte/1000/1"] > 200_000


def test_a_device_that_takes_longer_is_worse_and_the_same_one_is_not() -> None:
    def timed(device: str) -> squall.Profile:
        profile = rig(device)
        profile.streams[0].latency = True
        profile.streams[0].mode = {"burst": 100}
        return profile

    slow = squall.test.ab(timed("delay=1000000"), timed("delay=1200000"), pairs=6)
    assert any("worse" in text and "delay_mean" in text for text in slow.verdict), slow
    assert len(slow.trials) == 12
    same = squall.test.ab(timed("delay=1000000"), timed("delay=1000000"), pairs=6)
    assert not any("worse" in text or "better" in text for text in same.verdict), same
    failed = squall.test.ab(
        timed("delay=1000000"), timed("delay=1200000"), pairs=6, fail_if_worse=True
    )
    assert failed.status == "failed"

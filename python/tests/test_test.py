"""`squall.test`: standard tests of a device of which all is known, in virtual time."""

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
    for ending, said in {
        "json": "squall.test/1",
        "html": "<html",
        "xml": "failure",
        "csv": "sent",
    }.items():
        now.write(tmp_path / f"result.{ending}", before)
        assert said in (tmp_path / f"result.{ending}").read_text()
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
    # 20 Mbit/s of connections that take some 10 kbit each way.
    assert 1000 < found.figures["cps"] < 2500, found

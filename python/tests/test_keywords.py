"""Exported names, and unknown keywords."""

import inspect
import pathlib
from typing import Any

import pytest

import squall
import squall.aio

LOOP = "loop:keywords,virtual"


def test_an_unknown_keyword_names_the_nearest_in_every_function() -> None:
    stream = squall.Stream(packet="eth/ipv4/udp", rate="1 kpps")
    profile = squall.Profile({"A": "null:,virtual"}, [stream], duration="1 s")
    run: Any = squall.Session(profile).start
    calls: list[tuple[Any, dict[str, Any], str]] = [
        (squall.Stream, {"pakcet": "eth"}, "Stream.*'pakcet': did you mean 'packet'"),
        (squall.Template, {"lisen": 80}, "Template.*did you mean 'listen'"),
        (squall.Profile, {"stream": []}, "Profile.*did you mean 'streams'"),
        (squall.info, {"path": "x", "filtr": "udp"}, r"info\(\).*did you mean 'filter'"),
        (squall.edit, {"files": "x", "out": "y", "merg": True}, "did you mean 'merge'"),
        (squall.prep, {"file": "x", "cache": "y", "revers": True}, "did you mean 'reverse'"),
        (squall.score, {"labels": "x", "alerts": "y", "shfit": 1}, "did you mean 'shift'"),
        (squall.capture, {"port": LOOP, "file": "x", "snaplne": 1}, "did you mean 'snaplen'"),
        (squall.ports, {"interfaces": "lo"}, "did you mean 'interface'"),
        (squall.compare, {"tols": "squall"}, "did you mean 'tools'"),
        (squall.recv, {"port": LOOP, "cuont": 1}, "did you mean 'count'"),
        (squall.connect, {"url": "x", "tokn": "y"}, "did you mean 'token'"),
        (squall.plan, {"profile": profile, "coers": 2}, 'did you mean "cores"'),
        (squall.run, {"profile": profile, "coers": 2}, 'did you mean "cores"'),
        (squall.Profile.from_toml, {"text": "", "orign": "x"}, "did you mean 'origin'"),
        (run().set_load, {"weigth": 2}, "Run.set_load.*did you mean 'weight'"),
    ]
    for function, keywords, message in calls:
        with pytest.raises(TypeError, match=message):
            function(**keywords)


def test_where_nothing_is_near_the_keywords_are_listed() -> None:
    with pytest.raises(TypeError, match="'zzz': expected interface$"):
        squall.ports(zzz=1)  # type: ignore[call-arg]


def test_signatures_stay_those_that_were_written() -> None:
    assert list(inspect.signature(squall.ports).parameters) == ["interface"]
    assert list(inspect.signature(squall.Stream).parameters)[:3] == ["name", "port", "group"]
    assert inspect.iscoroutinefunction(squall.aio.Client.close)


def test_ports_are_those_of_the_machine() -> None:
    lo = squall.ports()["lo"]
    assert lo.mtu > 0 and set(lo.ports).isdisjoint(lo.why_not)
    with pytest.raises(squall.PortError, match='no interface "nosuch"'):
        squall.ports("nosuch")


def test_a_plan_is_text_too() -> None:
    profile = squall.Profile(ports={"A": LOOP}, duration="1 s")
    profile.add(squall.Stream(name="web", packet="eth/ipv4/udp", rate="1 kpps"))
    plan = squall.plan(profile, mult=3)
    assert plan.streams["web"].asked_pps == 3000
    assert "web" in plan.summary(0) and "3.00 kpps" in plan.summary(0)
    assert len(plan.summary(2, hex=True)) > len(plan.summary(2)) > len(plan.summary(0))


def test_a_capture_is_split_as_a_replay_then_is(tmp_path: pathlib.Path) -> None:
    capture, cache = tmp_path / "in.pcap", tmp_path / "in.cache"
    for net, mode in ("10.0.0", "wb"), ("20.0.0", "ab"):
        one = tmp_path / "one.pcap"
        squall.send(f"pcap:{one}", f"eth/ipv4(src={net}.1)/udp", rate="1 kpps", count=5, force=True)
        octets = one.read_bytes()
        capture.open(mode).write(octets if mode == "wb" else octets[24:])
    prepared = squall.prep(capture, cache, split=("cidr", "10.0.0.0/8"), exclude="P:1")
    assert (prepared.primary, prepared.secondary, prepared.skipped) == (4, 5, 1)
    a, b = tmp_path / "a.pcap", tmp_path / "b.pcap"
    report = squall.replay(
        capture, f"pcap:{a}", f"pcap:{b}", split=("cache", str(cache)), topspeed=True
    )
    assert [port.tx.packets for port in report.ports] == [4, 5]
    with pytest.raises(squall.ProfileError, match="expected auto, cidr, regex, mac or port"):
        squall.prep(capture, cache, split=("cdir", "10.0.0.0/8"))  # type: ignore[arg-type]
    with pytest.raises(squall.ProfileError, match="at most one"):
        squall.prep(capture, cache, include="P:1", exclude="P:2")


def test_a_comparison_that_cannot_be_is_an_error(tmp_path: pathlib.Path) -> None:
    with pytest.raises(squall.PortError, match="cannot run"):
        squall.compare(executable=tmp_path / "nosuch")

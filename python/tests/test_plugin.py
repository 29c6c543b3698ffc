import os
from typing import Any

import pytest

import squall
from squall.pytest_plugin import _unique, assert_latency, assert_no_loss, assert_rate

LOSSY = """
def test_lossy(squall):
    address = squall.loop("virtual", drop="1/10")
    report = squall.send(address, "eth/ipv4/udp", rate="1 kpps", count=100, latency=True)
    squall.assert_no_loss(report)
"""


@pytest.fixture
def report(loop: Any) -> squall.Report:
    return squall.send(
        loop("virtual", delay=10_000), "eth/ipv4/udp", rate="1 kpps", count=100, latency=True
    )


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return pytester.runpytest_inprocess("-q", "-p", "no:cacheprovider", *arguments)


def test_a_failure_shows_what_the_run_came_to_and_keeps_its_report(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(LOSSY)
    result = run(pytester, "--squall-artifacts=kept")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*frames were lost*", "*stream 'stream 1': sent 100, received 90, lost 10*"]
    )
    result.stdout.fnmatch_lines(
        ["*- squall -*", "*- squall artifacts -*", "kept/test_lossy-*-1.html"]
    )
    kept = sorted(path.suffix for path in (pytester.path / "kept").iterdir())
    assert kept == [".html", ".json"]
    [figures] = (pytester.path / "kept").glob("*.json")
    rx = squall.Report.from_json(figures.read_text()).streams[0].rx
    assert rx is not None and rx.lost == 10


def test_a_test_that_passes_keeps_nothing_and_its_runs_end(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
    import threading

    def test_a_run_is_left_alone(squall):
        profile = squall.Profile(ports={"A": squall.loop()})
        profile.add(squall.Stream(name="web", packet="eth/ipv4/udp", rate="1 kpps", latency=True))
        run = squall.start(profile)
        assert not run.wait(0.1)
        squall.assert_no_loss(run)
        test_a_run_is_left_alone.run = run

    def test_it_is_over_then():
        import squall, pytest
        with pytest.raises(squall.Error, match="has ended"):
            test_a_run_is_left_alone.run.pause()
    """)
    result = run(pytester, "--squall-artifacts=kept")
    result.assert_outcomes(passed=2)
    assert not (pytester.path / "kept").exists()


def test_a_run_that_goes_on_shows_what_it_has_come_to(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
    def test_it(squall):
        profile = squall.Profile(ports={"A": squall.loop()})
        profile.add(squall.Stream(name="web", packet="eth/ipv4/udp", rate="1 kpps"))
        squall.start(profile).wait(0.1)
        assert False
    """)
    result = run(pytester)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*- squall -*", "*web*", "*--squall-artifacts=FOLDER*"])


def test_workers_of_xdist_have_names_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    node = "tests/test_a.py::TestIt::test_it[/a b/-1]"
    alone = _unique(node)
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw3")
    assert (
        alone == f"TestIt-test_it-a-b-1-{os.getpid()}"
        and _unique(node) == f"TestIt-test_it-a-b-1-gw3-{os.getpid()}"
    )


def test_a_pair_of_interfaces_is_the_tests_own(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
    import os, socket
    import pytest

    HOME = os.readlink("/proc/thread-self/ns/net")

    @pytest.mark.parametrize("again", range(2))
    @pytest.mark.squall_capture
    def test_both_ends_see_all(squall, veth_pair, again):
        assert os.readlink("/proc/thread-self/ns/net") != HOME
        assert {name for _, name in socket.if_nameindex()} == {"lo", *veth_pair.interfaces}
        profile = squall.Profile(ports={"A": veth_pair.a, "B": veth_pair.b})
        profile.add(squall.Stream(name="web", port="A", packet="eth/ipv4/udp", rate="1 kpps", mode={"burst": 200}, latency=True))
        report = squall.run(profile)
        squall.assert_no_loss(report)
        squall.assert_latency(report, "web", p50="<1 s")
        assert report.ports["B"].interface.rx_packets == 200
        assert again == 0

    def test_it_is_gone_afterwards():
        assert os.readlink("/proc/thread-self/ns/net") == HOME
        assert "veth-a" not in {name for _, name in socket.if_nameindex()}
    """)
    result = run(pytester, "-rs", "--squall-artifacts=kept")
    if result.parseoutcomes().get("skipped"):
        pytest.skip(f"SKIPPED: {next(line for line in result.outlines if 'veth_pair:' in line)}")
    result.assert_outcomes(passed=2, failed=1)
    a, b = sorted((pytester.path / "kept").glob("*.pcap"))
    assert a.name.endswith("veth-a.pcap")
    assert squall.info(b).traffic.packets == 200


def test_without_the_right_to_make_networks_a_pair_is_skipped_with_a_reason(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile("def test_it(veth_pair): pass")
    pytester.makeconftest("""
    import squall.pytest_plugin as plugin, contextlib

    @contextlib.contextmanager
    def forbidden():
        yield "no network of its own: Operation not permitted"

    plugin._network = forbidden
    """)
    result = run(pytester, "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*veth_pair: no network of its own: Operation not permitted*"])


def test_limits_of_latency_are_compared_as_they_say(report: squall.Report) -> None:
    assert_latency(report, p99="<= 10us", min=">=10us", max="10 us", mean=10_000)
    for limit in ("<10us", "9.9us", ">10us", ">= 0.011 ms"):
        with pytest.raises(AssertionError, match="p99 10.0 us, expected"):
            assert_latency(report, p99=limit)


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ({}, "expected a limit"),
        ({"p98": "<1us"}, "unknown figure 'p98'"),
        ({"p99": "<1 parsec"}, 'expected "<50us"'),
        ({"p99": "soon"}, '"<= 1 ms"'),
    ],
)
def test_a_limit_that_says_nothing_is_refused(report: squall.Report, limits: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        assert_latency(report, **limits)


def test_rates_are_compared_with_what_was_asked_for(report: squall.Report, loop: Any) -> None:
    assert_rate(report, tol=1e-6)
    with pytest.raises(AssertionError, match=r"sent 1,000 pps, expected 990 pps: \+1.0 %"):
        assert_rate(report, tol=0.01, pps=990)
    lossy = squall.send(
        loop("virtual", drop="1/10"), "eth/ipv4/udp", rate="1 kpps", count=100, latency=True
    )
    with pytest.raises(AssertionError, match=r"received 900 pps, expected 1,000 pps: -10.0 %"):
        assert_rate(lossy)
    assert_rate(lossy, tol=0.11)


def test_what_was_not_measured_is_no_success(loop: Any) -> None:
    unmeasured = squall.send(loop("virtual"), "eth/ipv4/udp", rate="1 kpps", count=1)
    with pytest.raises(ValueError, match="latency=True"):
        assert_no_loss(unmeasured)
    with pytest.raises(squall.UnknownStream, match="there is 'stream 1'"):
        assert_no_loss(unmeasured, "web")

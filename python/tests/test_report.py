import dataclasses
import json
import pathlib
import typing
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import squall
from conftest import Address


@pytest.fixture
def report(loop: Address) -> squall.Report:
    """Return a report with loss, duplicates, disorder, and a stream that measures nothing."""
    profile = squall.Profile(ports={"A": loop(dup="1/10", reorder="1/7", drop="1/9", delay=5000)})
    for name, latency in [("web", True), ("dns", True), ("bare", False)]:
        profile.add(
            squall.Stream(
                name=name, packet="eth/ipv4/udp", rate="20 kpps", departures="exponential", mode={"burst": 500},
                latency=latency,
            )
        )  # fmt: skip
    return squall.run(profile, linger=0.05, every=10)


def each(
    value: Any, path: tuple[Any, ...] = ()
) -> Iterator[tuple[tuple[Any, ...], squall.Distribution]]:
    """Return all distributions in a report, and the way to each in its JSON."""
    if isinstance(value, squall.Distribution):
        yield path, value
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from each(getattr(value, field.name), (*path, field.name))
    elif isinstance(value, squall.ByName):
        for i, item in enumerate(value):
            yield from each(item, (*path, i))


def test_fields_are_those_of_the_schema() -> None:
    schema = squall.Report.json_schema()
    tables = {"Report": schema, **schema["$defs"]}
    for name, table in tables.items():
        # Skip enumerations of strings, which are plain str in Python.
        if "properties" not in table:
            continue
        names = {f.name for f in dataclasses.fields(getattr(squall, name)) if f.init}
        # Properties that are built on request.
        names |= {"series"} if name == "Report" else set()
        assert names == table["properties"].keys(), name


def test_series_have_the_columns_of_their_samples() -> None:
    for series, sample in [
        (squall.PortSeries, squall.PortSample),
        (squall.StreamSeries, squall.StreamSample),
    ]:
        names = [
            [f.name for f in dataclasses.fields(typing.cast(Any, kind))]
            for kind in (series, sample)
        ]
        assert ["name", *names[0]] == names[1]
    capture = [
        [f.name for f in dataclasses.fields(kind)]
        for kind in (squall.CaptureSeries, squall.CaptureSample)
    ]
    assert capture[0] == capture[1]


def test_each_histogram_is_an_array_of_what_the_json_says(report: squall.Report) -> None:
    table, found = report.to_dict(), set()
    for path, distribution in each(report):
        expected = table
        for step in path:
            expected = expected[step]
        found.add(path[-1])
        assert distribution.bins.dtype == np.uint64
        assert distribution.bins.tolist() == expected["bins"]
        assert {k: v for k, v in expected.items() if k != "bins"} == {
            f.name: getattr(distribution, f.name)
            for f in dataclasses.fields(distribution)
            if f.name != "bins"
        }
    in_time = {"arrival_gap_ns", "departure_error_ns", "latency_ns", "ipdv_ns"}
    in_packets = {
        f"{what}_packets"
        for what in ("loss_distance", "loss_period", "n_reordering", "reordering_extent")
    }
    assert found == in_time | in_packets


def test_a_histogram_has_one_edge_more_than_counts_and_loses_none(report: squall.Report) -> None:
    for _, distribution in each(report):
        counts, edges = distribution.histogram()
        assert counts.shape == (len(edges) - 1,)
        assert counts.dtype == edges.dtype == np.uint64
        assert (np.diff(edges.astype(np.int64)) > 0).all()
        assert counts.sum() == distribution.count
        assert edges[0] <= distribution.min and distribution.max < edges[-1]
        assert not distribution.bins.flags.writeable


def test_a_report_is_the_same_after_json(report: squall.Report) -> None:
    again = squall.Report.from_json(report.to_json())
    assert again.to_dict() == report.to_dict()
    assert again.streams["bare"] == report.streams["bare"]
    assert str(again) == str(report)
    with pytest.raises(ValueError, match="this is not a report"):
        squall.Report.from_json(json.dumps({"schema": "squall-report/1"}))


def test_ports_and_streams_are_found_by_name_and_number(report: squall.Report) -> None:
    assert report.streams.names == ("web", "dns", "bare")
    assert report.streams["dns"] is report.streams[1] is report.streams[-2]
    assert [s.name for s in report.streams[1:]] == ["dns", "bare"]
    assert "dns" in report.streams and "x" not in report.streams
    with pytest.raises(KeyError, match="there is 'A'"):
        report.ports["B"]


def test_results_cannot_be_changed(report: squall.Report) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        report.ports["A"].tx.packets = 0  # type: ignore[misc]


def test_series_are_columns_over_time(loop: Address) -> None:
    profile = squall.Profile(ports={"A": loop()})
    profile.add(squall.Stream(name="a", packet="eth/ipv4/udp", rate="2 kpps", latency=True))
    with squall.Session(profile) as session:
        run = session.start()
        for _ in range(2):
            run.wait(0.1)
            run.sample()
        profile.add(squall.Stream(name="b", packet="eth/ipv4/udp", rate="1 kpps"))
        run.change(profile)
        # Long enough that a busy machine sends a frame of each stream.
        run.wait(0.5)
        last = run.sample()
        run.stop()
        report = run.finish()
    series = report.series_arrays()
    assert series.t_s.shape == (3,) and (np.diff(series.t_s) > 0).all()
    assert series.t_s[-1] == last.t_s
    for columns in [*series.ports.values(), *series.streams.values()]:
        assert {(x.dtype, x.shape) for x in vars(columns).values()} == {
            (np.dtype(np.float64), (3,))
        }
    assert series.ports["A"].tx_pps[-1] == last.ports["A"].tx_pps
    assert series.streams["a"].latency_p99_ns[-1] == last.streams["a"].latency_p99_ns
    # The stream has no values before it was added.
    assert np.isnan(series.streams["b"].tx_pps).tolist() == [True, True, False]
    assert report.series[-1] == last


def test_a_run_without_samples_has_empty_columns(report: squall.Report) -> None:
    series = report.series_arrays()
    assert (series.t_s.shape, series.ports, series.streams) == ((0,), {}, {})


def test_the_page_and_the_summary_name_the_streams(
    report: squall.Report, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "report.html"
    report.to_html(path)
    page = path.read_text(encoding="utf-8")
    assert page.lower().startswith("<!doctype html>") and "dns" in page
    assert "dns" in report.summary() and str(report) == report.summary()
    assert max(map(len, report.summary(width=100).splitlines())) <= 100
    assert "\x1b[" in report.summary(color=True) and "\x1b[" not in report.summary()

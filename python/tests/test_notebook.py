"""Results as tables and plots, and the notebook of the examples."""

import json
import pathlib
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot

import squall

matplotlib.use("agg")


@pytest.fixture(scope="module")
def report() -> squall.Report:
    profile = squall.Profile(ports={"A": "loop:notebook"}, duration="0.3 s")
    for name, rate in [("web", "2 kpps"), ("<dns>", "1 kpps")]:
        profile.add(squall.Stream(name=name, packet="eth/ipv4/udp", rate=rate, latency=True))
    return squall.run(profile, every=0.1)


def received(report: squall.Report, name: str) -> tuple[Any, Any]:
    rx = report.streams[name].rx
    assert rx is not None
    assert rx.latency_ns is not None
    return rx, rx.latency_ns


def test_a_report_and_its_parts_are_tables_in_a_notebook(report: squall.Report) -> None:
    text = report._repr_html_()
    assert "&lt;dns&gt;" in text
    assert "<dns>" not in text
    assert f"{report.ports[0].tx.packets:,}" in text
    assert "rx.latency_ns.p99" in report.streams._repr_html_()
    assert f"{received(report, 'web')[1].count:,}" in received(report, "web")[1]._repr_html_()


def test_streams_are_a_frame_and_an_arrow_table(report: squall.Report) -> None:
    frame = report.streams.to_pandas()
    assert list(frame.index) == ["web", "<dns>"]
    assert frame.loc["web", "tx_packets"] == report.streams["web"].tx_packets
    assert frame.loc["web", "rx.latency_ns.p99"] == received(report, "web")[1].p99
    table = report.streams.to_arrow()
    assert table.column("rx.lost").to_pylist() == [
        received(report, name)[0].lost for name in ("web", "<dns>")
    ]


def test_a_series_is_a_frame_by_time(report: squall.Report) -> None:
    series = report.series_arrays()
    frame = series.to_pandas()
    assert frame.index.name == "t_s"
    np.testing.assert_array_equal(frame["streams", "web", "tx_pps"], series.streams["web"].tx_pps)


def test_what_is_plotted_are_the_figures(report: squall.Report) -> None:
    delay = received(report, "web")[1]
    _, ax = pyplot.subplots()
    assert delay.plot(ax) is ax
    _, ax = pyplot.subplots()
    [line] = delay.plot(ax, cumulative=True).lines
    assert line.get_ydata()[0] == 0
    assert line.get_ydata()[-1] == pytest.approx(1)
    figure = report.plot()
    assert [line.get_label() for line in figure.axes[0].lines] == ["A"]
    assert [line.get_label() for line in figure.axes[1].lines] == ["web", "<dns>"]
    with pytest.raises(ValueError, match="there are .*tx_pps"):
        report.series_arrays().plot("speed")
    pyplot.close("all")


def test_a_run_in_virtual_time_is_plotted_without_rates() -> None:
    run: dict[str, Any] = dict(
        port="loop:plot,virtual", packet="eth/ipv4/udp", rate="1 Mpps", count=1000
    )
    report = squall.send(**run, latency=True)
    assert [ax.get_title() for ax in report.plot().axes] == ["one-way delay"]
    with pytest.raises(ValueError, match="no samples"):
        report.series_arrays().plot()
    [ax] = squall.send(**run).plot().axes
    assert not ax.lines
    pyplot.close("all")


def test_the_notebook_of_the_examples_runs(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = pathlib.Path(__file__).parents[2] / "examples/notebooks/first-look.ipynb"
    notebook = json.loads(file.read_text())
    names: dict[str, Any] = {}
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(code) > 4
    for cell in code:
        assert not cell["outputs"], "outputs are not kept"
        exec(compile("".join(cell["source"]), str(file), "exec"), names)
    assert names["report"].verdict is not None

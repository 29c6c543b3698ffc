import dataclasses
import pathlib

import numpy as np
import pytest

import squall


@pytest.fixture
def capture(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "a.pcap"
    squall.send(f"pcap:{path}", "eth/ipv4/udp(dport=53)", rate="1 kpps", count=100, size=128)
    return path


def test_fields_of_what_is_in_a_capture_are_those_of_the_schema() -> None:
    schema = squall.Info.json_schema()
    renamed = {"Series": squall.TrafficSeries}
    for name, table in {"Info": schema, **schema["$defs"]}.items():
        kind = renamed.get(name) or getattr(squall, name)
        names = {f.name for f in dataclasses.fields(kind) if f.init}
        if name == "LengthBin":
            names = names - {"start", "end"} | {"from", "to"}
        assert names == table["properties"].keys(), name


def test_counts_of_a_capture_are_arrays(capture: pathlib.Path, tmp_path: pathlib.Path) -> None:
    info = squall.info(capture, checksums=True, hash=True, bins="100", duplicates=5)
    [file] = info.files
    traffic = info.traffic
    assert (file.format, file.compression, file.fault, traffic.packets) == ("pcap", None, None, 100)
    assert file.sha256 is not None and len(file.sha256) == 64
    assert (
        traffic.lengths.counts.tolist() == [[124, 100]]
        and traffic.lengths.counts.dtype == np.uint64
    )
    assert [(b.start, b.end, b.packets) for b in traffic.lengths.bins] == [
        (0, 99, 0),
        (100, None, 100),
    ]
    assert traffic.checksums is not None and traffic.checksums["udp"] == squall.ChecksumCount(
        good=100, bad=0
    )
    assert traffic.gap_ns is not None and (traffic.gap_ns.min, traffic.gap_ns.max) == (
        1_000_000,
        1_000_000,
    )
    assert [(p.port, p.packets) for p in traffic.udp_ports if p.port == 53] == [(53, 100)]
    assert traffic.series.packets.sum() == 100
    again = squall.Info.from_json(info.to_json())
    assert again == info and again.traffic == info.traffic
    assert str(info) == info.summary() and "100" in repr(info) and str(capture) in info.table()
    info.to_html(tmp_path / "a.html")
    assert "Packets by length" in (tmp_path / "a.html").read_text()


def test_several_captures_have_a_total_and_a_filter_chooses(capture: pathlib.Path) -> None:
    info = squall.info([capture, str(capture)])
    assert info.total is not None and info.traffic is info.total
    assert (info.total.packets, info.total.flows.unique) == (200, 1)
    assert squall.info(capture, filter="udp port 54").traffic.packets == 0
    with pytest.raises(squall.ProfileError):
        squall.info(capture, filter="nothing at all")


def test_a_damaged_capture_is_read_up_to_its_damage(
    capture: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    capture.write_bytes(capture.read_bytes()[:-1])
    [file] = squall.info(capture).files
    assert file.traffic.packets == 99
    assert file.fault is not None and file.fault.offset == 24 + 99 * (16 + 124)
    with pytest.raises(FileNotFoundError, match="none.pcap"):
        squall.info(tmp_path / "none.pcap")
    with pytest.raises(ValueError, match="expected rmon"):
        squall.info(capture, bins="x")
    with pytest.raises(ValueError, match="no file"):
        squall.info([])

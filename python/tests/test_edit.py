"""`squall.edit`, and edits on the way of a replay."""

import pathlib

import pytest

import squall


@pytest.fixture
def capture(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "in.pcap"
    squall.send(
        f"pcap:{path}", "eth/ipv4(ttl=64)/udp(sport=1000,dport=80)", rate="1 kpps", count=10
    )
    return path


def test_a_capture_is_rewritten_and_the_result_has_counts(
    capture: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    done = squall.edit(
        capture,
        tmp_path / "out.pcap",
        {"ttl": "-1", "portmap": ["80:8080", "1000:2000"], "fixcsum": True},
    )
    assert (done.packets_read, done.packets_written, done.packets_changed) == (10, 10, 10)
    changed = {operation.operation: operation.changed for operation in done.operations}
    assert (changed["ttl"], changed["portmap"]) == (10, 10)
    assert (
        squall.info(
            tmp_path / "out.pcap", filter="udp and src port 2000 and dst port 8080"
        ).traffic.packets
        == 10
    )


def test_captures_are_merged_and_split(capture: pathlib.Path, tmp_path: pathlib.Path) -> None:
    done = squall.edit([capture, capture], tmp_path / "out.pcap", merge=True, split_count=7)
    assert [output.packets for output in done.outputs] == [7, 7, 6]


def test_frames_are_edited_on_their_way(capture: pathlib.Path, tmp_path: pathlib.Path) -> None:
    out = tmp_path / "out.pcap"
    report = squall.replay(capture, f"pcap:{out}", edits={"enet_vlan": "add", "enet_vlan_tag": 7})
    [replay] = report.replays
    assert replay.edited is not None
    assert replay.edited.changed == 10
    assert squall.info(out, filter="vlan 7").traffic.packets == 10


@pytest.mark.parametrize(
    ("edits", "message"),
    [
        ({"tttl": 1}, "is not an edit"),
        ({"ttl": "x"}, "expected 1 to 255"),
        ({"fixcsum": 3}, "true or false"),
    ],
)
def test_errors_of_edits_name_what_was_expected(
    capture: pathlib.Path, tmp_path: pathlib.Path, edits: squall.Edits, message: str
) -> None:
    with pytest.raises(squall.ProfileError, match=message):
        squall.edit(capture, tmp_path / "out.pcap", edits)


def test_captures_are_split_in_one_way_only(capture: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match="one of split_count"):
        squall.edit(capture, tmp_path / "out.pcap", split_count=1, split_flows=True)

import base64
import itertools
import pathlib
from typing import Any

import pytest
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1Q, Ether
from scapy.utils import wrpcap

import squall
from conftest import still, until
from squall import trex
from squall.trex import (
    STLClient,
    STLFlowLatencyStats,
    STLFlowStats,
    STLPktBuilder,
    STLProfile,
    STLScVmRaw,
    STLStream,
    STLTXCont,
    STLTXMultiBurst,
    STLTXSingleBurst,
    STLVmFixIpv4,
    STLVmFlowVar,
    STLVmTupleGen,
    STLVmWrFlowVar,
    STLVmWrMaskFlowVar,
)

_number = itertools.count()
BASE = Ether() / IP(src="16.0.0.1", dst="48.0.0.1") / UDP(dport=12, sport=1025) / (b"x" * 22)


@pytest.fixture
def client() -> Any:
    """Two ports, each of which receives its own frames."""
    n = next(_number)
    client = STLClient(ports=[f"loop:trex-{n}-a", f"loop:trex-{n}-b"])
    client.connect()
    client.reset()
    yield client
    client.disconnect()


def burst(packets: int = 100, pps: float = 10_000, **more: Any) -> STLStream:
    return STLStream(
        packet=STLPktBuilder(pkt=BASE), mode=STLTXSingleBurst(pps=pps, total_pkts=packets), **more
    )


def frames(packet: Any, *instructions: Any, count: int = 4) -> list[Any]:
    """Return the frames that the engine makes from a packet and a field engine, dissected by
    scapy."""
    stream = STLStream(
        packet=STLPktBuilder(pkt=packet, vm=STLScVmRaw(list(instructions))),
        mode=STLTXCont(pps=1000),
    )
    made = trex._translated(0, {1: stream}, 1.0)
    session = squall.Session(
        squall.Profile(ports={"port0": "null:,virtual"}, streams=made, duration="1 s")
    )
    return [Ether(frame.octets) for frame in session.plan().frames(count)]


def test_bursts_are_sent_received_and_counted_by_port_and_group(client: STLClient) -> None:
    ids = client.add_streams(
        [burst(flow_stats=STLFlowLatencyStats(pg_id=7)), burst(50, flow_stats=STLFlowStats(5))],
        ports=[0],
    )
    client.add_streams(burst(10), ports=1)
    assert len(set(ids)) == 2  # type: ignore[arg-type]
    client.clear_stats()
    client.start(ports=[0, 1], mult="1")
    client.wait_on_traffic(ports=[0, 1], timeout=20)
    stats = client.get_stats()
    assert (stats[0]["opackets"], stats[0]["ipackets"], stats[1]["opackets"]) == (150, 150, 10)
    assert stats["total"]["obytes"] == stats["total"]["ibytes"] == 160 * (len(BASE) + 4)
    assert stats["flow_stats"][7]["tx_pkts"] == {0: 100, 1: 0, "total": 100}
    assert stats["flow_stats"][5]["rx_pkts"]["total"] == 50 and 5 not in stats["latency"]
    seven = stats["latency"][7]
    assert seven["err_cntrs"] == {
        "dropped": 0,
        "dup": 0,
        "out_of_order": 0,
        "seq_too_high": 0,
        "seq_too_low": 0,
    }
    assert (
        0
        < seven["latency"]["total_min"]
        <= seven["latency"]["average"]
        <= seven["latency"]["total_max"]
    )
    assert sum(seven["latency"]["histogram"].values()) == 100


def test_a_short_packet_keeps_its_lengths_and_padding_comes_after_it() -> None:
    packet = Ether() / IP() / UDP(sport=5, dport=6) / b"abc"
    for frame in frames(packet):
        assert (len(frame), frame[IP].len, frame[UDP].len, bytes(frame[UDP].payload)[:3]) == (
            60,
            31,
            11,
            b"abc",
        )
        assert bytes(frame)[:45] == bytes(packet) and bytes(frame)[45:] == bytes(15)


def test_packets_without_room_for_a_signature_are_counted_by_marks(client: STLClient) -> None:
    def short(group: int, packet: Any, packets: int = 100) -> STLStream:
        mode = STLTXSingleBurst(pps=10_000, total_pkts=packets)
        packet = STLPktBuilder(pkt=Ether() / packet / TCP())
        return STLStream(packet=packet, mode=mode, flow_stats=STLFlowStats(group))

    client.add_streams([short(1, IP()), short(1, IP(), 50), short(2, IPv6())], ports=[0])
    client.add_streams(short(3, IP()), ports=[1])
    # Ports that start and end while others send keep separate marks.
    client.add_streams(STLStream(packet=STLPktBuilder(pkt=BASE), mode=STLTXCont(pps=10)), ports=[0])
    client.start(ports=[0])
    client.start(ports=[1])
    counts = {1: 150, 2: 100, 3: 100}
    until(
        lambda: (
            {group: client.get_stats()["flow_stats"][group]["rx_pkts"]["total"] for group in counts}
            == counts
        )
    )
    client.stop()
    flows = client.get_stats()["flow_stats"]
    assert {group: flows[group]["tx_pkts"]["total"] for group in counts} == counts
    assert flows[1]["rx_bytes"]["total"] == 150 * 64 and flows[2]["rx_bytes"]["total"] == 100 * 78
    assert all(part["counts"]["dropped"] == 0 for part in client._counted()["streams"].values())
    late = STLStream(
        packet=STLPktBuilder(pkt=Ether() / IP() / TCP()), flow_stats=STLFlowLatencyStats(4)
    )
    client.remove_all_streams()
    client.add_streams(late, ports=[0])
    with pytest.raises(trex.TRexArgumentError, match="statistics need 16 octets of payload"):
        client.start(ports=[0])


def test_counters_go_on_over_runs_until_they_are_cleared(client: STLClient) -> None:
    client.add_streams(burst(flow_stats=STLFlowStats(1)), ports=[0])
    for sent in (100, 200):
        client.start(ports=[0])
        client.wait_on_traffic(timeout=20)
        assert (
            client.get_stats()[0]["opackets"]
            == client.get_stats()["flow_stats"][1]["tx_pkts"]["total"]
            == sent
        )
    client.clear_stats()
    assert client.get_stats()[0]["opackets"] == 0 and 1 not in client.get_stats()["flow_stats"]


@pytest.mark.parametrize(
    ("mode", "mult", "pps"),
    [
        ({"pps": 1000}, "2", 2000),
        ({"pps": 1000}, "5kpps", 5000),
        ({"pps": 1000}, "1mbpsl1", 1e6 / 8 / 84),
        ({"bps_L2": 1e6}, "1", 1e6 / 8 / 64),
        ({"bps_L1": 1e6}, "1kpps", 1000),
    ],
)
def test_a_multiplier_is_a_factor_or_what_the_streams_come_to(
    client: STLClient, mode: Any, mult: str, pps: float
) -> None:
    packet = Ether() / IP() / UDP() / (b"x" * 18)
    client.add_streams(
        STLStream(packet=STLPktBuilder(pkt=packet), mode=STLTXCont(**mode)), ports=[0]
    )
    client.start(ports=[0], mult=mult)
    [stream] = client._profile().streams
    assert stream.rate is not None and client._run is not None
    asked = client._run.report().streams[0].asked_pps
    assert asked == pytest.approx(pps, rel=1e-3)
    client.update(mult="500pps+")
    assert client._run.report().streams[0].asked_pps == pytest.approx(pps + 500, rel=1e-3)
    client.update(mult="50%-")
    assert client._run.report().streams[0].asked_pps == pytest.approx((pps + 500) / 2, rel=1e-3)


def test_a_multiplier_leaves_streams_with_latency(client: STLClient) -> None:
    packet = STLPktBuilder(pkt=Ether() / IP() / UDP() / (b"x" * 18))
    measured = STLFlowLatencyStats(pg_id=1)
    client.add_streams(
        [
            STLStream(packet=packet, mode=STLTXCont(pps=100), flow_stats=measured),
            STLStream(packet=packet, mode=STLTXCont(pps=1)),
        ],
        ports=[0],
    )
    with pytest.raises(trex.TRexError, match="100 pps together"):
        client.start(ports=[0], mult="50pps")
    client.start(ports=[0], mult="700pps")
    assert client._run is not None
    for rate in (600, 1200):
        asked = [stream.asked_pps for stream in client._run.report().streams]
        assert asked == pytest.approx([100, rate], rel=1e-3)
        client.update(mult="1300pps")


def test_ports_are_paused_resumed_and_stopped_one_by_one(client: STLClient) -> None:
    for port in (0, 1):
        client.add_streams(
            STLStream(packet=STLPktBuilder(pkt=BASE), mode=STLTXCont(pps=2000)), ports=[port]
        )
    client.start(ports=[0])
    client.start(ports=[1])
    assert client.get_active_ports() == [0, 1]
    with pytest.raises(trex.TRexError, match="are sending"):
        client.start(ports=[0])
    client.pause(ports=[0])
    assert (client.get_paused_ports(), client.get_transmitting_ports()) == ([0], [1])
    still(lambda: client.get_stats()[0]["opackets"])
    before = client.get_stats()
    until(lambda: client.get_stats()[1]["opackets"] > before[1]["opackets"] + 100)
    after = client.get_stats()
    assert after[0]["opackets"] == before[0]["opackets"]
    until(lambda: client.get_stats()[1]["tx_pps"] > 0)
    client.resume(ports=[0])
    until(lambda: client.get_stats()[0]["opackets"] > after[0]["opackets"])
    client.stop(ports=[1])
    assert client.get_active_ports() == [0]
    client.stop()
    stopped = client.get_stats()
    assert stopped[0]["opackets"] > after[0]["opackets"] and client.get_active_ports() == []
    assert client.get_stats()["total"]["opackets"] == stopped["total"]["opackets"]


def test_traffic_ends_with_its_duration_and_a_wait_with_its_timeout(client: STLClient) -> None:
    client.add_streams(
        STLStream(packet=STLPktBuilder(pkt=BASE), mode=STLTXCont(pps=1000)), ports=[0]
    )

    def sent() -> int:
        client.clear_stats()
        client.start(ports=[0], duration=1)
        with pytest.raises(trex.STLTimeoutError, match="not ended after 0.01 s"):
            client.wait_on_traffic(timeout=0.01)
        client.wait_on_traffic(timeout=20)
        assert not client.is_traffic_active()
        return int(client.get_stats()[0]["opackets"])

    # Fewer frames if the machine is too busy to send them in time.
    until(lambda: sent() == 1000)


def test_a_stream_starts_the_next(client: STLClient) -> None:
    first = burst(5, name="first", next="second", isg=1000.0)
    second = STLStream(
        name="second",
        packet=STLPktBuilder(pkt="eth/ipv4/udp"),
        self_start=False,
        mode=STLTXMultiBurst(pps=1000, pkts_per_burst=4, count=3, ibg=10.0),
    )
    client.add_streams([first, second], ports=[0])
    client.start(ports=[0])
    client.wait_on_traffic(timeout=20)
    assert client.get_stats()[0]["opackets"] == 5 + 12
    client.remove_all_streams()
    client.add_streams(burst(next="third"), ports=[0])
    with pytest.raises(trex.TRexArgumentError, match="no such stream"):
        client.start(ports=[0])


def test_a_field_engine_changes_what_it_names() -> None:
    up = STLVmFlowVar(
        name="src", min_value="16.0.0.1", max_value="16.0.0.254", size=4, step=2, op="inc"
    )
    down = STLVmFlowVar(name="port", min_value=1000, max_value=2000, size=2, op="dec")
    seen = frames(
        BASE,
        up,
        STLVmWrFlowVar(fv_name="src", pkt_offset="IP.src"),
        STLVmFixIpv4(offset="IP"),
        down,
        STLVmWrFlowVar(fv_name="port", pkt_offset="UDP.sport", add_val=5),
    )
    assert [frame[IP].src for frame in seen] == ["16.0.0.1", "16.0.0.3", "16.0.0.5", "16.0.0.7"]
    assert [frame[UDP].sport for frame in seen] == [2005, 2004, 2003, 2002]
    for frame in seen:
        right = IP(bytes(frame[IP]))
        del right.chksum
        assert IP(bytes(right)).chksum == frame[IP].chksum


def test_names_find_the_second_layer_of_a_kind_and_fields_of_bits() -> None:
    packet = Ether() / Dot1Q(vlan=1) / Dot1Q(vlan=2) / IP() / UDP() / (b"x" * 20)
    inner = STLVmFlowVar(name="v", min_value=0, max_value=3, size=1)
    seen = frames(
        packet,
        inner,
        STLVmWrMaskFlowVar("v", "802.1Q:1.vlan", pkt_cast_size=2, mask=0x0FFF, shift=4),
    )
    assert [frame[Dot1Q][1].vlan for frame in seen] == [0, 16, 32, 48]
    assert [frame[Dot1Q].vlan for frame in seen] == [1] * 4


def test_a_variable_that_is_written_twice_is_the_same_in_both_places() -> None:
    either = STLVmFlowVar(name="x", min_value=0, max_value=0xFFFFFFFF, size=4, op="random")
    seen = frames(
        BASE, either, STLVmWrFlowVar("x", "IP.src"), STLVmWrFlowVar("x", "IP.dst"), count=20
    )
    assert all(frame[IP].src == frame[IP].dst for frame in seen)
    assert len({frame[IP].src for frame in seen}) > 10


def test_a_tuple_is_each_address_with_a_port_and_then_the_next_port() -> None:
    clients = STLVmTupleGen(
        name="t", ip_min="16.0.0.1", ip_max="16.0.0.2", port_min=1025, port_max=1030
    )
    seen = frames(
        BASE, clients, STLVmWrFlowVar("t.ip", "IP.src"), STLVmWrFlowVar("t.port", "UDP.sport")
    )
    assert [(frame[IP].src, frame[UDP].sport) for frame in seen] == [
        ("16.0.0.1", 1025),
        ("16.0.0.2", 1025),
        ("16.0.0.1", 1026),
        ("16.0.0.2", 1026),
    ]


def test_a_profile_of_trex_is_read_as_it_is(tmp_path: pathlib.Path, client: STLClient) -> None:
    path = tmp_path / "one.py"
    path.write_text("""
from trex_stl_lib.api import *

class STLS1(object):
    def get_streams(self, direction=0, packets=3, **kwargs):
        base = Ether()/IP(src="16.0.0.1", dst="48.0.0.1")/UDP(dport=12, sport=1025)
        vm = STLScVmRaw([STLVmFlowVar("s", min_value=1, max_value=9, size=2), STLVmWrFlowVar("s", "UDP.sport")])
        return [STLStream(packet=STLPktBuilder(pkt=base/(20*"x"), vm=vm), mode=STLTXSingleBurst(total_pkts=packets, pps=1000))]

def register():
    return STLS1()
""")
    client.load_profile(str(path), ports=[0], packets=7)
    client.start(ports=[0])
    client.wait_on_traffic(timeout=20)
    assert client.get_stats()[0]["opackets"] == 7
    path.write_text("def register(: pass")
    with pytest.raises(trex.TRexError, match="SyntaxError"):
        client.load_profile(str(path))


def _capture(path: pathlib.Path, *packets: tuple[float, Any]) -> pathlib.Path:
    timed = []
    for at, packet in packets:
        packet.time = at
        timed.append(packet)
    wrpcap(str(path), timed)
    return path


def _talk(*ends: str) -> list[tuple[float, Any]]:
    """Return packets 1 ms apart: "1>2" is from 10.0.0.1 to 10.0.0.2."""
    packets = []
    for number, pair in enumerate(ends):
        source, destination = pair.split(">")
        ether = Ether(src=f"02:00:00:00:00:0{source}", dst=f"02:00:00:00:00:0{destination}")
        ip = IP(src=f"10.0.0.{source}", dst=f"10.0.0.{destination}")
        packets.append((1 + number / 1000, ether / ip / UDP() / (b"%d" % number * 20)))
    return packets


def test_a_capture_is_a_chain_of_streams(tmp_path: pathlib.Path) -> None:
    packets = _talk("1>2", "2>1", "1>2")
    path = _capture(tmp_path / "talk.pcap", *packets)
    captured = STLProfile.load_pcap(path, speedup=2, loop_count=3)
    assert isinstance(captured, STLProfile)
    streams = [stream.to_json() for stream in captured.get_streams()]
    assert [stream["isg"] for stream in streams] == pytest.approx([0, 500, 500])
    assert [(s["name"], s["next"], s["action_count"]) for s in streams] == [
        (1, 2, 0),
        (2, 3, 0),
        (3, 1, 3),
    ]
    assert [stream["self_start"] for stream in streams] == [True, False, False]
    sent = [base64.b64decode(stream["packet"]["binary"]) for stream in streams]
    assert sent == [bytes(packet) for _, packet in packets]
    gaps = STLProfile.load_pcap(path, ipg_usec=10, packet_hook=lambda octets: octets[:60])
    assert isinstance(gaps, STLProfile)
    assert [stream.to_json()["isg"] for stream in gaps.get_streams()] == pytest.approx([10] * 3)
    assert {len(stream.packet.octets()) for stream in gaps.get_streams()} == {60}


def test_the_two_sides_of_a_capture_begin_and_end_together(tmp_path: pathlib.Path) -> None:
    path = _capture(tmp_path / "talk.pcap", *_talk("1>2", "2>1", "3>2", "2>3", "1>2"))
    for mode in ("IP", "MAC"):
        sides = STLProfile.load_pcap(path, split_mode=mode)
        assert isinstance(sides, tuple)
        first, second = ([s.to_json() for s in side.get_streams()] for side in sides)
        assert [stream["isg"] for stream in first] == pytest.approx([1000, 2000, 2000])
        # An empty pause stream lasts until the first side has ended.
        assert [stream["isg"] for stream in second] == pytest.approx([2000, 1000, 2000])
        assert [stream["flags"] >> 3 for stream in second] == [0, 1, 0]
        assert [stream["next"] for stream in second] == [2, 1, "delay_stream"]


@pytest.mark.parametrize(
    ("ends", "options", "why"),
    [
        (["1>2", "2>3", "3>1"], {"split_mode": "IP"}, "cannot be split"),
        (["1>2", "1>2"], {"split_mode": "IP"}, "one direction"),
        (["1>2"], {"split_mode": "port"}, "expected 'MAC' or 'IP'"),
        (["1>2"], {"speedup": 0}, "speedup = 0"),
        (["1>2"], {"ipg_usec": 0.0001}, "ipg_usec = 0.0001"),
        (["1>2"], {"min_ipg_usec": -1}, "min_ipg_usec = -1"),
        (["1>2"], {"loop_count": -1}, "loop_count = -1"),
        ([], {}, "empty"),
    ],
)
def test_a_capture_that_is_no_profile_is_refused(
    tmp_path: pathlib.Path, ends: list[str], options: dict[str, Any], why: str
) -> None:
    path = tmp_path / "talk.pcap"
    if ends:
        _capture(path, *_talk(*ends))
    else:
        path.write_bytes(bytes.fromhex("d4c3b2a102000400000000000000000000ffff0001000000"))
    with pytest.raises(trex.TRexError, match=why):
        STLProfile.load_pcap(path, **options)
    with pytest.raises(trex.TRexError, match="none.pcap"):
        STLProfile.load_pcap(tmp_path / "none.pcap")


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (lambda c: c.start(ports=[0]), "no streams"),
        (lambda c: c.start(ports=[9]), "expected 0 to 1"),
        (lambda c: c.start(ports=[0], mult="fast"), "no streams|expected .2., .1mpps"),
        (lambda c: c.update(mult="2"), "no port is sending"),
        (lambda c: STLTXCont(pps=1, bps_L1=1), "expected one of"),
        (lambda c: STLVmFlowVar("x", size=3), "expected 1, 2, 4 or 8"),
        (lambda c: STLPktBuilder(), "expected pkt"),
        (lambda c: frames(BASE, STLVmWrFlowVar("x", "IP.src")), "no variable is called 'x'"),
        (
            lambda c: frames(BASE, STLVmFlowVar("x"), STLVmWrFlowVar("x", "IP.colour")),
            "has no field 'colour'",
        ),
        (
            lambda c: frames(BASE, STLVmFlowVar("x"), STLVmWrFlowVar("x", "TCP.sport")),
            "no such layer",
        ),
        (lambda c: STLClient().connect(), "expected ports"),
    ],
)
def test_unsupported_features_are_errors(client: STLClient, wrong: Any, why: str) -> None:
    with pytest.raises(trex.TRexError, match=why):
        wrong(client)

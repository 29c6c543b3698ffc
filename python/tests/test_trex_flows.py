"""Profiles of TRex's flows without TRex's library."""

import base64
import pathlib
from collections.abc import Callable
from typing import Any

import pytest
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.l2 import Ether
from scapy.utils import wrpcap
from squall import _astf, _stl
from squall._astf import (
    ASTFAssociationRule,
    ASTFCapInfo,
    ASTFCmdDelay,
    ASTFError,
    ASTFErrorBadParamCombination,
    ASTFErrorBadTG,
    ASTFErrorOverlapIP,
    ASTFErrorWrongType,
    ASTFGlobalInfo,
    ASTFGlobalInfoPerTemplate,
    ASTFIPGen,
    ASTFIPGenDist,
    ASTFProfile,
    ASTFProgram,
    ASTFTCPClientTemplate,
    ASTFTCPServerTemplate,
    ASTFTemplate,
)

#: Values of the wrong type, as a profile may have them.
FIVE: Any = 5
NINE: Any = "9"
CLIENT, SERVER = "16.0.0.1", "48.0.0.1"


def pools(first: str = "16.0.0.0", last: str = "16.0.0.255") -> ASTFIPGen:
    return ASTFIPGen(
        dist_client=ASTFIPGenDist([first, last]),
        dist_server=ASTFIPGenDist(["48.0.0.0", "48.0.255.255"], "rand"),
    )


def sides() -> tuple[ASTFProgram, ASTFProgram]:
    client, server = ASTFProgram(), ASTFProgram(side="s")
    client.send("GET")
    client.recv(4)
    server.recv(3)
    server.send(b"page")
    return client, server


def template(port: int = 80, ip_gen: ASTFIPGen | None = None, **more: Any) -> ASTFTemplate:
    client, server = sides()
    return ASTFTemplate(
        ASTFTCPClientTemplate(ip_gen or pools(), client, port, **more),
        ASTFTCPServerTemplate(server, ASTFAssociationRule(port)),
    )


def commands(tell: Callable[[ASTFProgram], Any], stream: bool = True) -> list[dict[str, Any]]:
    program = ASTFProgram(stream=stream)
    tell(program)
    made: list[dict[str, Any]] = program.to_json()["commands"]
    return made


def datagram(of_client: bool, data: str, at: float) -> Any:
    ends = (CLIENT, SERVER) if of_client else (SERVER, CLIENT)
    ports = (1000, 53) if of_client else (53, 1000)
    packet = Ether() / IP(src=ends[0], dst=ends[1]) / UDP(sport=ports[0], dport=ports[1]) / data
    packet.time = at
    return packet


def segment(of_client: bool, flags: str, seq: int, data: str = "") -> Any:
    ends = (CLIENT, SERVER) if of_client else (SERVER, CLIENT)
    ports = (1000, 80) if of_client else (80, 1000)
    head = TCP(sport=ports[0], dport=ports[1], flags=flags, seq=seq)
    return Ether() / IP(src=ends[0], dst=ends[1]) / head / data


def of_capture(folder: pathlib.Path, packets: list[Any], **more: Any) -> dict[str, Any]:
    path = folder / "flow.pcap"
    wrpcap(str(path), packets)
    caps = [ASTFCapInfo(file=str(path), **more)]
    return ASTFProfile(default_ip_gen=pools(), cap_list=caps).to_json()


def test_both_sides_share_buffers_pools_and_programs() -> None:
    made = ASTFProfile(
        default_ip_gen=pools(), templates=[template(cps=2, limit=5, cont=True), template(81)]
    ).to_json()
    assert made["buf_list"] == [base64.b64encode(text).decode() for text in (b"GET", b"page")]
    assert made["program_list"] == [
        {"commands": [{"name": "tx", "buf_index": 0}, {"name": "rx", "min_bytes": 4}]},
        {"commands": [{"name": "rx", "min_bytes": 3}, {"name": "tx", "buf_index": 1}]},
    ]
    first, second = made["templates"]
    indices = {"dist_client": {"index": 0}, "dist_server": {"index": 1}}
    assert first["client_template"] == {
        "program_index": 0,
        "ip_gen": indices,
        "cluster": {},
        "port": 80,
        "cps": 2,
        "limit": 5,
        "cont": True,
    }
    assert first["server_template"] == {"program_index": 1, "assoc": [{"port": 80}]}
    assert second["client_template"]["ip_gen"] == indices and "tg_id" not in second


def test_pools_have_the_default_offset_and_the_side_that_they_are_of() -> None:
    made = ASTFProfile(default_ip_gen=pools(), templates=template()).to_json()
    assert made["ip_gen_dist_list"] == [
        {
            "ip_start": "16.0.0.0",
            "ip_end": "16.0.0.255",
            "distribution": "seq",
            "dir": "c",
            "ip_offset": "1.0.0.0",
        },
        {
            "ip_start": "48.0.0.0",
            "ip_end": "48.0.255.255",
            "distribution": "rand",
            "dir": "s",
            "ip_offset": "1.0.0.0",
        },
    ]


def test_variables_and_labels_are_numbers_and_distances() -> None:
    def loop(program: ASTFProgram) -> None:
        program.set_var("times", 3)
        program.set_tick_var("since")
        program.set_label("again")
        program.send("x")
        program.jmp_nz("times", "again")
        program.jmp_dp("since", "again", 2)
        program.jmp_gt("times", "end", 1)
        program.add_stats("C", 1)
        program.set_label("end")

    assert commands(loop)[3:6] == [
        {"name": "jmp_nz", "id": 0, "offset": -1},
        {"name": "jmp_dp", "id": 0, "offset": -2, "duration": 2.0},
        {"name": "jmp_cmp", "id": 0, "offset": 2, "cmp_op": "gt", "cmp_val": 1},
    ]
    assert commands(loop)[6] == {"name": "add_stats", "stats_id": 2, "val": 1}


def test_waits_add_up_until_they_are_cleared() -> None:
    def wait(program: ASTFProgram) -> None:
        program.recv_msg(2)
        program.recv_msg(3, clear=True)
        program.recv_msg(4)

    assert [command["min_pkts"] for command in commands(wait, stream=False)] == [2, 5, 4]


def test_gaps_of_datagrams_are_delays_within_limits_and_long_ones_keep_both_sides(
    tmp_path: pathlib.Path,
) -> None:
    of_client = [("a", 1e9), ("b", 1e9 + 0.25), ("c", 1e9 + 0.250_03), ("d", 1e9 + 3)]
    packets = [datagram(True, data, at) for data, at in of_client]
    packets += [datagram(False, data, 1e9 + 4) for data in "xy"]
    made = of_capture(tmp_path, packets, s_delay=ASTFCmdDelay(90), udp_mtu=1500)
    client, server = (program["commands"] for program in made["program_list"])
    assert [command.get("usec", command["name"]) for command in client[2:]] == [
        "tx_msg",
        250_000,
        "tx_msg",
        "tx_msg",
        700_000,
        "tx_msg",
        "rx_msg",
    ]
    assert client[0] == server[0] == {"name": "keepalive", "msec": 1_400_000}
    assert [command["name"] for command in server[1:]] == ["rx_msg", "delay", "tx_msg", "tx_msg"]
    assert made["templates"][0]["client_template"]["port"] == 53


def test_segments_are_joined_until_the_other_side_answers(tmp_path: pathlib.Path) -> None:
    opening = [
        segment(True, "S", 2**32 - 2),
        segment(False, "SA", 50),
        segment(True, "A", 2**32 - 1),
    ]
    data = [segment(True, "A", 2**32 - 1, "abc"), segment(True, "PA", 2, "de")]
    answer = [segment(False, "PA", 51, "fgh"), segment(True, "FA", 4), segment(False, "FA", 54)]
    made = of_capture(tmp_path, opening + data + answer, cps=7)
    assert [base64.b64decode(text) for text in made["buf_list"]] == [b"abcde", b"fgh"]
    assert made["program_list"][1]["commands"][0] == {"name": "rx", "min_bytes": 5}
    assert made["templates"][0]["client_template"]["cps"] == 7
    with pytest.raises(ASTFError, match=r"packet 4: sequence number 2, expected 4294967295"):
        of_capture(tmp_path, opening + data[1:] + answer)


def test_settings_are_those_of_their_section() -> None:
    info, own = ASTFGlobalInfo(), ASTFGlobalInfoPerTemplate()
    info.tcp.mss, info.ipv6.src_msb = 1400, "ff02::1"
    assert info.to_json() == {
        "ipv6": {"src_msb": [0xFF, 2, *[0] * 13, 1]},
        "tcp": {"mss": 1400},
    }
    with pytest.raises(AttributeError, match=r"tcp\.delay_ack_msec: expected one of initwnd, mss"):
        own.tcp.delay_ack_msec = 50
    with pytest.raises(ASTFErrorWrongType, match="tcp: mss = '9': expected int"):
        info.tcp.mss = "9"
    with pytest.raises(ASTFErrorWrongType, match="expected ASTFGlobalInfoPerTemplate"):
        template(glob_info=info)


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: ASTFProgram(color="x"), TypeError, "color"),  # type: ignore[call-arg]
        (lambda: ASTFCapInfo(file="x", cpss=1), TypeError, "cpss"),  # type: ignore[call-arg]
        (
            lambda: commands(lambda p: p.send(FIVE)),
            ASTFErrorWrongType,
            "buf = 5: expected bytes or str",
        ),
        (lambda: commands(lambda p: p.recv(NINE)), ASTFErrorWrongType, "bytes = '9': expected int"),
        (lambda: commands(lambda p: p.send_msg("x")), ASTFError, "the command tx_msg of UDP"),
        (lambda: commands(lambda p: p.jmp("up")), ASTFError, "no label is called 'up'"),
        (lambda: template(cont=1), ASTFErrorWrongType, "cont = 1: expected bool"),
        (
            lambda: ASTFCapInfo(file="x", cps=1, l7_percent=5),
            ASTFErrorBadParamCombination,
            "cps and",
        ),
        (lambda: ASTFCapInfo(file="x", s_delay=FIVE), ASTFErrorWrongType, "s_delay = 5"),
        (lambda: pools("16.0.0.9", "16.0.0.1"), ASTFError, "the last is below the first"),
    ],
)
def test_an_error_names_the_parameter(make: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as found:
        make()
    assert text in str(found.value)


def test_templates_differ_in_port_and_their_pools_do_not_overlap() -> None:
    with pytest.raises(ASTFError, match="two templates have port 80"):
        ASTFProfile(default_ip_gen=pools(), templates=[template(), template()])
    both = [template(), template(81, pools("16.0.0.100", "16.0.1.0"))]
    with pytest.raises(ASTFErrorOverlapIP, match=r"16\.0\.0\.100 to 16\.0\.1\.0"):
        ASTFProfile(default_ip_gen=pools(), templates=both).to_json()
    client, server = sides()
    client.set_next_template("none")
    one = ASTFTemplate(ASTFTCPClientTemplate(pools(), client), ASTFTCPServerTemplate(server))
    with pytest.raises(ASTFErrorBadTG, match="no group is called 'none'"):
        ASTFProfile(default_ip_gen=pools(), templates=one).to_json()


FLOWS = """
from trex.astf.api import *
import argparse

class Prof:
    def get_profile(self, tunables, **kwargs):
        parser = argparse.ArgumentParser()
        parser.add_argument("--rate", type=int, default=1)
        rate = parser.parse_args(tunables).rate
        ips = ASTFIPGen(ASTFIPGenDist(["16.0.0.0", "16.0.0.9"]), ASTFIPGenDist(["48.0.0.0", "48.0.0.9"]))
        return ASTFProfile(default_ip_gen=ips, cap_list=[ASTFCapInfo(file="dns.pcap", cps=rate)])

def register():
    return Prof()
"""
STREAMS = """
from trex_stl_lib.api import *

class Prof:
    def get_streams(self, direction=0, **kwargs):
        return [STLStream(packet=STLPktBuilder(pkt_buffer=bytes(60)), mode=STLTXCont(pps=5))]

def register():
    return Prof()
"""


def test_profiles_of_flows_and_of_streams_load_in_one_process(tmp_path: pathlib.Path) -> None:
    wrpcap(str(tmp_path / "dns.pcap"), [datagram(True, "q", 1), datagram(False, "a", 2)])
    (tmp_path / "flows.py").write_text(FLOWS)
    (tmp_path / "streams.py").write_text(STREAMS)
    for rate in (3, 4):
        flows = _astf.ASTFProfile.load(tmp_path / "flows.py", rate=rate).to_json()
        assert flows["templates"][0]["client_template"]["cps"] == rate
        [stream] = _stl.STLProfile.load(tmp_path / "streams.py").get_streams()
        assert stream.to_json()["mode"]["rate"]["value"] == 5.0
    with pytest.raises(_stl.TRexError, match="does not take these tunables"):
        _astf.ASTFProfile.load(tmp_path / "flows.py", speed=1)
    (tmp_path / "dns.pcap").unlink()
    with pytest.raises(ASTFError, match=r"cannot find the capture .*dns\.pcap"):
        _astf.ASTFProfile.load(tmp_path / "flows.py")

import datetime
import ipaddress
import pathlib
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

import squall
from conftest import Address

TEXT = """
seed = 7
duration = "10 s"

[ports]
B = "loop:b"
A = "loop:a"

[[stream]]
name = "web"
port = "A"
packet = "eth/ipv4(dst=48.0.0.1)/udp(dport=53)"
size = {weights = [[64, 7], [594, 4]]}
rate = "1.5 Gbps"
mode = {bursts = 5, packets = 4, gap = "1 ms"}
next = "bare"
latency = true
[[stream.vary]]
field = "ipv4.src"
op = "random"
min = "16.0.0.0"
max = "18.0.0.254"

[[stream]]
name = "bare"
port = "B"
hex = "020000000001 020000000002 88b5"
rate = 1000
self_start = false
"""


def web(**more: Any) -> squall.Stream:
    return squall.Stream(**{"name": "web", "packet": "eth/ipv4/udp", "rate": 1000, **more})


def of(*streams: squall.Stream, **more: Any) -> squall.Profile:
    return squall.Profile(**{"ports": {"A": "loop:0"}, "streams": streams, **more})


def test_keywords_give_what_the_same_text_gives() -> None:
    source = squall.vary(
        "ipv4.src", "random", min=ipaddress.IPv4Address("16.0.0.0"), max="18.0.0.254"
    )
    profile = squall.Profile(
        ports={"B": "loop:b", "A": "loop:a"}, seed=7, duration=datetime.timedelta(seconds=10)
    )
    profile.add(
        squall.Stream(
            name="web",
            port="A",
            packet="eth/ipv4(dst=48.0.0.1)/udp(dport=53)",
            size={"weights": [[64, 7], [594, 4]]},
            rate="1.5 Gbps",
            mode={"bursts": 5, "packets": 4, "gap": "1 ms"},
            next="bare",
            latency=True,
            vary=[source],
        ),
        squall.Stream(
            name="bare",
            port="B",
            packet=bytes.fromhex("02000000000102000000000288b5"),
            rate=1000,
            self_start=False,
        ),
    )
    assert profile.to_toml() == squall.Profile.from_toml(TEXT).to_toml()


def test_text_that_was_read_reads_back_to_the_same() -> None:
    profile = squall.Profile.from_toml(TEXT)
    assert [stream.name for stream in profile.streams] == ["web", "bare"]
    assert list(profile.ports) == ["B", "A"]
    assert squall.Profile.from_toml(profile.to_toml()).to_dict() == profile.to_dict()
    assert squall.Profile.from_dict(profile.to_dict()) == profile


@pytest.mark.parametrize("extension", ["toml", "yaml", "json"])
def test_a_file_is_read_in_the_format_of_its_extension(
    tmp_path: pathlib.Path, extension: str
) -> None:
    path = tmp_path / f"load.{extension}"
    path.write_text(
        {
            "toml": '[ports]\nA = "loop:0"\n[[stream]]\nname = "web"\npacket = "eth/ipv4/udp"\nrate = 1000\n',
            "yaml": "ports: {A: 'loop:0'}\nstream: [{name: web, packet: eth/ipv4/udp, rate: 1000}]\n",
            "json": '{"ports": {"A": "loop:0"}, "stream": [{"name": "web", "packet": "eth/ipv4/udp", "rate": 1000}]}',
        }[extension]
    )
    assert squall.Profile.load(path).to_dict() == of(web()).to_dict()


def test_each_octets_like_object_is_a_frame() -> None:
    frame = bytes(range(60))

    class Packet:
        def __bytes__(self) -> bytes:
            return frame

    kinds: list[Any] = [frame, bytearray(frame), memoryview(frame), Packet()]
    assert {of(web(packet=kind)).to_dict()["stream"][0]["hex"] for kind in kinds} == {frame.hex()}


def test_a_packet_of_scapy_is_a_frame() -> None:
    scapy = pytest.importorskip("scapy.all")
    packet = (
        scapy.Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
        / scapy.IP(dst="48.0.0.1")
        / scapy.UDP()
    )
    plan = squall.Session(of(web(packet=packet))).plan()
    assert plan.frames(1)[0].octets == bytes(packet).ljust(60, b"\0")


def test_numbers_of_numpy_are_numbers() -> None:
    profile = of(
        web(size=np.arange(64, 67), rate=np.float32(2.5), mode={"burst": np.int64(5)}),
        seed=np.uint64(3),
    )
    table = profile.to_dict()
    assert table["seed"] == 3
    assert (
        table["stream"][0] | {"size": [64, 65, 66], "rate": "2.5 pps", "mode": {"burst": 5}}
        == table["stream"][0]
    )


def test_addresses_of_ipv6_keep_all_their_digits() -> None:
    last = ipaddress.IPv6Address("2001:db8::ffff:ffff:ffff:fffd")
    six = squall.vary(
        "ipv6.src", "increment", min=int(ipaddress.IPv6Address("2001:db8::1")), max=last
    )
    table = of(web(packet="eth/ipv6/udp", vary=[six])).to_dict()
    assert (
        table["stream"][0]["vary"][0] | {"min": "2001:db8::1", "max": str(last)}
        == table["stream"][0]["vary"][0]
    )


def test_a_value_that_no_profile_has_is_refused() -> None:
    with pytest.raises(TypeError, match="a profile cannot contain object"):
        of(web(rate=object())).check()
    with pytest.raises(TypeError, match="packet or hex, not both"):
        of(web(packet=bytes(60), hex="00")).check()


def test_all_mistakes_come_at_once_and_name_their_keys() -> None:
    with pytest.raises(squall.ProfileError) as caught:
        of(web(rate="12 Gbp"), web(name="dns", port="C")).check()
    rate, port = caught.value.diagnostics
    assert (rate.origin, rate.line, rate.path) == ("<python>", 0, "stream[0].rate")
    assert 'stream "web": rate = "12 Gbp" is not a rate' in rate.message
    assert port.path == "stream[1].port"
    assert rate.message in str(caught.value) and port.message in str(caught.value)


def test_mistakes_in_a_text_have_line_and_column_until_the_profile_is_changed() -> None:
    with pytest.raises(squall.ProfileError) as caught:
        squall.Profile.from_toml("x = [\n", origin="load.toml")
    assert (caught.value.diagnostics[0].origin, caught.value.diagnostics[0].line) == (
        "load.toml",
        1,
    )

    # Only the plan finds this one, long after reading.
    profile = squall.Profile.from_toml(
        TEXT.replace("loop:a", "loop:a,speed=1Gbps").replace('port = "B"', 'port = "A"'),
        origin="load.toml",
    )
    with pytest.raises(squall.ProfileError) as caught:
        squall.Session(profile).plan()
    assert (caught.value.diagnostics[0].origin, caught.value.diagnostics[0].line) == (
        "load.toml",
        14,
    )
    profile.streams[0].name = "changed"
    with pytest.raises(squall.ProfileError) as caught:
        squall.Session(profile).plan()
    assert (caught.value.diagnostics[0].origin, caught.value.diagnostics[0].line) == ("<python>", 0)


def test_a_missing_file_is_a_mistake_with_its_name(tmp_path: pathlib.Path) -> None:
    with pytest.raises(
        squall.ProfileError, match=r"cannot read .*missing\.toml: there is no such file"
    ):
        squall.Profile.load(tmp_path / "missing.toml")


def test_keywords_are_those_of_the_schema() -> None:
    def names(kind: Any) -> set[str]:
        return {f.name for f in fields(kind) if not f.name.startswith("_")}

    def keys(*path: str) -> set[str]:
        table = squall.Profile.schema()
        for step in path:
            table = table[step]
        return set(table) - {"$schema"}

    stream = ("properties", "stream", "items", "properties")
    lists = {"stream", "template", "pool", "attack", "replay", "host", "router"}
    assert names(squall.Profile) == keys("properties") - lists - {"schema"} | {
        f"{name}s" for name in lists
    }
    assert names(squall.Stream) == keys(*stream)
    assert names(squall.Vary) == keys(*stream, "vary", "items", "properties")
    assert names(squall.Template) == keys("properties", "template", "items", "properties")
    assert names(squall.Pool) == keys("properties", "pool", "items", "properties")
    assert names(squall.Attack) == keys("properties", "attack", "items", "properties")
    assert names(squall.Replay) == keys("properties", "replay", "items", "properties")
    assert names(squall.HostGroup) == keys("properties", "host", "items", "properties")
    assert names(squall.Router) == keys("properties", "router", "items", "properties")


def test_each_object_goes_to_its_list_and_others_are_refused() -> None:
    profile = squall.Profile(ports={"A": "null:"})
    profile.add(squall.HostGroup(ipv4="10.0.0.2/24"), squall.Router(ipv4="10.0.0.1/24"))
    assert (len(profile.hosts), len(profile.routers), profile.streams) == (1, 1, [])
    stream = squall.Stream(packet="eth/ipv4/udp", rate="1 kpps")
    with pytest.raises(TypeError, match="cannot add Vary to a profile: expected Stream, "):
        profile.add(stream, squall.vary("ipv4.src", "random"))
    assert profile.streams == []


def test_flows_run_and_are_reported(loop: Address) -> None:
    profile = squall.Profile(
        ports={"A": loop(), "B": loop()}, flows={"clients": "A", "servers": "B"}
    )
    profile.add(squall.Pool(name="clients", addresses="16.0.0.1-16.0.0.9"))
    profile.add(
        squall.Template(
            name="ping",
            clients="clients",
            servers="48.0.0.1",
            listen=7,
            users=5,
            limit=50,
            client=['send "ping"', "recv 4"],
            server=["recv 4", 'send "pong"'],
        )
    )
    report = squall.run(squall.Profile.from_toml(profile.to_toml()))
    assert report.flows is not None
    client = report.flows.templates["ping"].client
    assert client is not None and client.transaction_ns is not None
    assert (client.attempted, client.completed, client.failed, client.received_octets) == (
        50,
        50,
        {},
        200,
    )
    assert client.transaction_ns.count == 50


EXAMPLES = sorted((pathlib.Path(__file__).parents[2] / "examples" / "profiles").glob("*.toml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_code_of_a_profile_makes_the_same_profile(path: pathlib.Path) -> None:
    profile = squall.Profile.load(path)
    made: dict[str, Any] = {}
    exec(profile.to_python(), made)
    assert made["profile"].to_dict() == profile.to_dict()


def test_the_code_of_a_profile_keeps_text_as_it_is() -> None:
    text = 'a "b" \\ \n\t\x01 é \N{WIND BLOWING FACE} {x}'
    profile = of(
        web(name=text, group="${x}", vary=[squall.vary("ipv4.src", "list", values=["10.0.0.1", 7])])
    )
    made: dict[str, Any] = {}
    exec(profile.to_python(), made)
    assert made["profile"].to_dict() == profile.to_dict()
    assert made["profile"].streams[0].name == text

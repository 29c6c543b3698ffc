"""Patterns of fields, all in one run, and the fill of frames."""

import ipaddress
import struct

import pytest
from conftest import from_mac, interface, mac
from test_headers import checked, ethernet, last

COUNT = 8


def value(flow, number):
    flow.packet.ethernet().ipv4().udp()
    last(flow).src_port.value = 7


def values(flow, number):
    flow.packet.ethernet().ipv4().udp()
    last(flow).src_port.values = [10, 30, 20]


def increment(flow, number):
    flow.packet.ethernet().ipv4().udp()
    pattern = last(flow).src_port.increment
    pattern.start, pattern.step, pattern.count = 100, 5, 3


def decrement(flow, number):
    flow.packet.ethernet().ipv4().udp()
    pattern = last(flow).src_port.decrement
    pattern.start, pattern.step, pattern.count = 100, 7, 4


def random(flow, number):
    flow.packet.ethernet().ipv4().udp()
    pattern = flow.packet[1].src.random
    pattern.min, pattern.max, pattern.count, pattern.seed = "10.0.0.10", "10.0.0.20", COUNT, 3


def ipv4_increment(flow, number):
    flow.packet.ethernet().ipv4()
    pattern = last(flow).src.increment
    pattern.start, pattern.step, pattern.count = "10.0.0.255", "0.0.1.1", 4


def ipv6_increment(flow, number):
    flow.packet.ethernet().ipv6()
    pattern = last(flow).src.increment
    pattern.start, pattern.step, pattern.count = "2001:db8::ffff", "::1", 3


def mac_increment(flow, number):
    flow.packet.ethernet().ipv4()
    pattern = flow.packet[0].dst.increment
    pattern.start, pattern.step, pattern.count = "02:00:00:00:05:ff", "00:00:00:00:00:01", 4


def vlan_values(flow, number):
    flow.packet.ethernet().vlan().ipv4()
    flow.packet[1].id.values = [4, 2]


def bad_checksum(flow, number):
    flow.packet.ethernet().ipv4().udp()
    flow.packet[1].header_checksum.generated = "bad"


def custom_checksum(flow, number):
    flow.packet.ethernet().ipv4().udp()
    last(flow).checksum.custom = 0x1234


def two_fields(flow, number):
    flow.packet.ethernet().ipv4().udp()
    last(flow).src_port.values = [1, 2]
    last(flow).dst_port.values = [1, 2, 3]


def payload_fixed(flow, number):
    flow.packet.ethernet()
    flow.payload.fixed.pattern = "deadbeef"


def payload_increment(flow, number):
    flow.packet.ethernet()
    flow.payload.choice = "increment_byte"


def payload_decrement_word(flow, number):
    flow.packet.ethernet()
    flow.payload.choice = "decrement_word"


CASES = [
    value, values, increment, decrement, random, ipv4_increment, ipv6_increment, mac_increment, vlan_values, bad_checksum,
    custom_checksum, two_fields, payload_fixed, payload_increment, payload_decrement_word,
]  # fmt: skip


@pytest.fixture(scope="session")
def captured(shared):
    config = shared.config(capture=True)
    for number, build in enumerate(CASES):
        flow = shared.flow(
            config, build.__name__, COUNT, pps=500, metrics=not build.__name__.startswith("payload")
        )
        build(flow, number)
        flow.packet[0].src.value = mac(number)
        if build.__name__.startswith("payload"):
            flow.packet[0].ether_type.value = 0x88B5
    before = interface("veth-b", "rx_packets")
    shared.api.set_config(config)
    shared.capture("start")
    shared.transmit("start")
    wanted = COUNT * len(CASES)
    shared.until(lambda: shared.ports("p2")["p2"].frames_rx >= wanted, "all frames have come")
    shared.capture("stop")
    assert interface("veth-b", "rx_packets") - before == wanted
    return shared.frames()


@pytest.fixture
def frames_of(captured):
    def of(build):
        found = [frame.octets for frame in from_mac(captured, CASES.index(build))]
        assert len(found) == COUNT
        return found

    return of


def ports(found, at=34):
    return [struct.unpack_from(">H", frame, at)[0] for frame in found]


def test_a_value(frames_of):
    assert ports(frames_of(value)) == [7] * COUNT


def test_values_in_turn(frames_of):
    assert ports(frames_of(values)) == [10, 30, 20, 10, 30, 20, 10, 30]


def test_an_increment(frames_of):
    assert ports(frames_of(increment)) == [100, 105, 110, 100, 105, 110, 100, 105]


def test_a_decrement(frames_of):
    assert ports(frames_of(decrement)) == [100, 93, 86, 79, 100, 93, 86, 79]


def test_random_values_in_their_range(frames_of):
    found = [ipaddress.ip_address(frame[26:30]) for frame in frames_of(random)]
    assert all(
        ipaddress.ip_address("10.0.0.10") <= address <= ipaddress.ip_address("10.0.0.20")
        for address in found
    )
    assert len(set(found)) > 1


def test_addresses_of_ipv4_count_with_carry(frames_of):
    found = [str(ipaddress.ip_address(frame[26:30])) for frame in frames_of(ipv4_increment)]
    assert found == ["10.0.0.255", "10.0.2.0", "10.0.3.1", "10.0.4.2"] * 2
    for frame in frames_of(ipv4_increment):
        checked(frame)


def test_addresses_of_ipv6_count_with_carry(frames_of):
    found = [str(ipaddress.ip_address(frame[22:38])) for frame in frames_of(ipv6_increment)]
    assert found[:4] == ["2001:db8::ffff", "2001:db8::1:0", "2001:db8::1:1", "2001:db8::ffff"]


def test_mac_addresses_count(frames_of):
    assert [frame[4:6].hex() for frame in frames_of(mac_increment)] == [
        "05ff",
        "0600",
        "0601",
        "0602",
    ] * 2


def test_vlan_ids_vary(frames_of):
    assert [frame[15] for frame in frames_of(vlan_values)] == [4, 2] * 4


def test_a_bad_checksum_is_bad(frames_of):
    for frame in frames_of(bad_checksum):
        with pytest.raises(AssertionError):
            checked(frame)


def test_a_custom_checksum_is_sent_as_given(frames_of):
    assert ports(frames_of(custom_checksum), 40) == [0x1234] * COUNT


def test_fields_vary_side_by_side(frames_of):
    found = frames_of(two_fields)
    assert list(zip(ports(found), ports(found, 36))) == [
        (1, 1),
        (2, 2),
        (1, 3),
        (2, 1),
        (1, 2),
        (2, 3),
        (1, 1),
        (2, 2),
    ]
    for frame in found:
        checked(frame)


def test_a_fixed_payload_is_repeated(frames_of):
    for frame in frames_of(payload_fixed):
        assert frame[14:-4] == (b"\xde\xad\xbe\xef" * 25)[: len(frame) - 18]


def test_an_incrementing_payload(frames_of):
    for frame in frames_of(payload_increment):
        assert frame[14:-4] == bytes(range(len(frame) - 18))


def test_a_payload_of_decrementing_words(frames_of):
    for frame in frames_of(payload_decrement_word):
        words = struct.unpack(f">{(len(frame) - 18) // 2}H", frame[14:-4])
        assert all(a - 1 == b for a, b in zip(words, words[1:]))

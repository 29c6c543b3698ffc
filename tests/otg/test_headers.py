"""Every header, octet by octet: one run, whose capture all tests use."""

import struct

import pytest
from conftest import from_mac, mac
from scapy.all import IP, TCP, UDP, Ether, IPv6, raw

SIZE = 128


def ethernet(flow, number):
    flow.packet.ethernet()
    header = flow.packet[-1]
    header.src.value = mac(number)
    header.dst.value = "02:00:00:00:01:00"
    return header


def last(flow):
    return flow.packet[-1]


def plain(flow, number):
    ethernet(flow, number).ether_type.value = 0x88B5


def vlan(flow, number):
    ethernet(flow, number)
    flow.packet.vlan()
    last(flow).id.value, last(flow).priority.value, last(flow).cfi.value = 100, 3, 1
    flow.packet.ipv4()


def vlans(flow, number):
    ethernet(flow, number)
    flow.packet.vlan()
    last(flow).id.value, last(flow).tpid.value = 200, 0x88A8
    flow.packet.vlan()
    last(flow).id.value = 300
    flow.packet.ipv4()


def ipv4(flow, number):
    ethernet(flow, number)
    flow.packet.ipv4()
    header = last(flow)
    header.src.value, header.dst.value = "10.0.0.1", "10.0.0.2"
    header.time_to_live.value, header.identification.value, header.dont_fragment.value = 7, 77, 1
    header.protocol.value = 61
    header.priority.dscp.phb.value, header.priority.dscp.ecn.value = 46, 1


def ipv4_raw(flow, number):
    ethernet(flow, number)
    flow.packet.ipv4()
    last(flow).priority.raw.value = 0xA5


def ipv4_tos(flow, number):
    ethernet(flow, number)
    flow.packet.ipv4()
    tos = last(flow).priority.tos
    tos.precedence.value, tos.delay.value = 5, 1


def ipv6(flow, number):
    ethernet(flow, number)
    flow.packet.ipv6()
    header = last(flow)
    header.src.value, header.dst.value = "2001:db8::1", "2001:db8::2"
    header.traffic_class.value, header.flow_label.value, header.hop_limit.value = 9, 0x12345, 3
    header.next_header.value = 59


def udp(flow, number):
    ethernet(flow, number)
    flow.packet.ipv4().udp()
    last(flow).src_port.value, last(flow).dst_port.value = 5000, 6000


def udp6(flow, number):
    ethernet(flow, number)
    flow.packet.ipv6().udp()
    last(flow).src_port.value, last(flow).dst_port.value = 5001, 6001


def tcp(flow, number):
    ethernet(flow, number)
    flow.packet.ipv4().tcp()
    header = last(flow)
    header.src_port.value, header.dst_port.value = 80, 8080
    header.seq_num.value, header.ack_num.value, header.window.value = 1000, 2000, 300
    header.ctl_syn.value, header.ctl_ack.value = 1, 1


def icmp(flow, number):
    ethernet(flow, number)
    flow.packet.ipv4().icmp()
    echo = last(flow).echo
    echo.identifier.value, echo.sequence_number.value = 11, 12


def icmpv6(flow, number):
    ethernet(flow, number)
    flow.packet.ipv6().icmpv6()
    echo = last(flow).echo
    echo.identifier.value, echo.sequence_number.value = 13, 14


def arp(flow, number):
    ethernet(flow, number)
    flow.packet.arp()
    header = last(flow)
    header.operation.value = 2
    header.sender_hardware_addr.value, header.sender_protocol_addr.value = mac(number), "10.0.0.9"
    header.target_protocol_addr.value = "10.0.0.8"


def gre(flow, number):
    ethernet(flow, number)
    flow.packet.ipv4().gre().ipv4()
    last(flow).src.value = "172.16.0.1"


def mpls(flow, number):
    ethernet(flow, number)
    flow.packet.mpls()
    last(flow).label.value, last(flow).traffic_class.value, last(flow).time_to_live.value = (
        16000,
        5,
        33,
    )
    flow.packet.mpls()
    last(flow).label.value = 17000
    flow.packet.ipv4()


def vxlan(flow, number):
    ethernet(flow, number)
    flow.packet.ipv4().udp().vxlan()
    last(flow).vni.value = 0xABCDE
    flow.packet.ethernet()
    last(flow).src.value = "02:00:00:00:02:01"
    flow.packet.ipv4()


def gtpv1(flow, number):
    ethernet(flow, number)
    flow.packet.ipv4().udp().gtpv1()
    last(flow).teid.value = 0x01020304
    flow.packet.ipv4()


def gtpv2(flow, number):
    ethernet(flow, number)
    flow.packet.ipv4().udp().gtpv2()
    last(flow).teid.value, last(flow).teid_flag.value = 0x05060708, 1


def ppp(flow, number):
    ethernet(flow, number).ether_type.value = 0x880B
    flow.packet.ppp()
    last(flow).protocol_type.value = 0x21


def igmpv1(flow, number):
    ethernet(flow, number)
    flow.packet.ipv4().igmpv1()
    last(flow).group_address.value = "239.1.2.3"


def custom(flow, number):
    ethernet(flow, number).ether_type.value = 0x88B5
    flow.packet.custom()
    last(flow).bytes = "0a0b0c0d0e0f"


def pfcpause(flow, number):
    flow.packet.pfcpause()
    header = last(flow)
    header.src.value = mac(number)
    header.class_enable_vector.value, header.pause_class_3.value = 8, 0x1234


def ethernetpause(flow, number):
    flow.packet.ethernetpause()
    last(flow).src.value, last(flow).time.value = mac(number), 0x4321


CASES = [
    plain, vlan, vlans, ipv4, ipv4_raw, ipv4_tos, ipv6, udp, udp6, tcp, icmp, icmpv6, arp, gre, mpls, vxlan, gtpv1, gtpv2,
    ppp, igmpv1, custom, pfcpause, ethernetpause,
]  # fmt: skip


@pytest.fixture(scope="session")
def captured(shared):
    config = shared.config(capture=True)
    for number, build in enumerate(CASES):
        build(shared.flow(config, build.__name__, packets=3, pps=500, size=SIZE), number)
    metrics, found = shared.run(config)
    return metrics, found


@pytest.fixture
def frames_of(captured):
    def of(build):
        metrics, found = captured
        assert (metrics[build.__name__].frames_tx, metrics[build.__name__].frames_rx) == (3, 3)
        found = [frame.octets for frame in from_mac(found, CASES.index(build))]
        assert [len(frame) for frame in found] == [SIZE] * 3
        return found

    return of


def checked(frame):
    """Return the frame as dissected by scapy, and the same frame with checksums and lengths
    computed by scapy."""
    packet = Ether(frame[:-4])
    again = Ether(frame[:-4])
    layer = again
    while layer:
        for field in ("chksum", "len", "plen"):
            if field in layer.fields and not (isinstance(layer, UDP) and layer.chksum == 0):
                layer.delfieldval(field)
        layer = layer.payload
    assert raw(again) == frame[:-4]
    return packet


def test_ethernet(frames_of):
    for frame in frames_of(plain):
        assert frame[:14].hex() == "02000000010002000000000088b5"


def test_vlan(frames_of):
    for frame in frames_of(vlan):
        assert frame[12:18].hex() == "810070640800"


def test_two_vlans(frames_of):
    for frame in frames_of(vlans):
        assert frame[12:22].hex() == "88a800c88100012c0800"


def test_ipv4(frames_of):
    for frame in frames_of(ipv4):
        packet = checked(frame)[IP]
        assert (packet.src, packet.dst, packet.ttl, packet.id, packet.proto) == (
            "10.0.0.1",
            "10.0.0.2",
            7,
            77,
            61,
        )
        assert (packet.tos, int(packet.flags), packet.len) == (46 << 2 | 1, 2, SIZE - 18)


def test_ipv4_priority_raw(frames_of):
    assert {frame[15] for frame in frames_of(ipv4_raw)} == {0xA5}


def test_ipv4_priority_tos(frames_of):
    assert {frame[15] for frame in frames_of(ipv4_tos)} == {5 << 5 | 1 << 4}


def test_ipv6(frames_of):
    for frame in frames_of(ipv6):
        packet = checked(frame)[IPv6]
        assert (packet.src, packet.dst, packet.tc, packet.fl, packet.hlim) == (
            "2001:db8::1",
            "2001:db8::2",
            9,
            0x12345,
            3,
        )
        assert packet.plen == SIZE - 18 - 40


def test_udp(frames_of):
    for frame in frames_of(udp):
        packet = checked(frame)[UDP]
        assert (packet.sport, packet.dport, packet.len) == (5000, 6000, SIZE - 18 - 20)


def test_udp_over_ipv6(frames_of):
    for frame in frames_of(udp6):
        packet = checked(frame)[UDP]
        assert (packet.sport, packet.dport, packet.chksum != 0) == (5001, 6001, True)


def test_tcp(frames_of):
    for frame in frames_of(tcp):
        packet = checked(frame)[TCP]
        assert (packet.sport, packet.dport, packet.seq, packet.ack, packet.window) == (
            80,
            8080,
            1000,
            2000,
            300,
        )
        assert str(packet.flags) == "SA"


def test_icmp(frames_of):
    for frame in frames_of(icmp):
        assert (frame[23], frame[34], struct.unpack(">HH", frame[38:42])) == (1, 8, (11, 12))
        checked(frame)


def test_icmpv6(frames_of):
    for frame in frames_of(icmpv6):
        assert (frame[20], frame[54], struct.unpack(">HH", frame[58:62])) == (58, 128, (13, 14))


def test_arp(frames_of):
    for frame in frames_of(arp):
        sender = f"0200000000{CASES.index(arp):02x}"
        assert (
            frame[12:42].hex() == "08060001080006040002" + sender + "0a0000090000000000000a000008"
        )


def test_gre(frames_of):
    for frame in frames_of(gre):
        assert (frame[23], frame[34:38].hex(), frame[50:54].hex()) == (47, "00000800", "ac100001")


def test_mpls(frames_of):
    for frame in frames_of(mpls):
        labels = [(16000 << 12 | 5 << 9 | 33), (17000 << 12 | 1 << 8)]
        assert frame[12:14].hex() == "8847"
        assert struct.unpack(">I", frame[14:18])[0] == labels[0]
        assert struct.unpack(">I", frame[18:22])[0] & 0xFFFFFF00 == labels[1]


def test_vxlan(frames_of):
    for frame in frames_of(vxlan):
        assert struct.unpack(">H", frame[36:38])[0] == 4789
        assert (frame[42:50].hex(), frame[56:62].hex()) == ("080000000abcde00", "020000000201")


def test_gtpv1(frames_of):
    for frame in frames_of(gtpv1):
        assert (struct.unpack(">H", frame[36:38])[0], frame[46:50].hex()) == (2152, "01020304")


def test_gtpv2(frames_of):
    for frame in frames_of(gtpv2):
        assert (struct.unpack(">H", frame[36:38])[0], frame[46:50].hex()) == (2123, "05060708")


def test_ppp(frames_of):
    for frame in frames_of(ppp):
        assert frame[12:18].hex() == "880bff030021"


def test_igmpv1(frames_of):
    for frame in frames_of(igmpv1):
        assert (frame[23], frame[34], frame[38:42].hex()) == (2, 0x11, "ef010203")


def test_custom_octets(frames_of):
    for frame in frames_of(custom):
        assert frame[14:20].hex() == "0a0b0c0d0e0f"


def test_pfc_pause(frames_of):
    for frame in frames_of(pfcpause):
        assert frame[:6].hex() == "0180c2000001"
        assert frame[12:26].hex() == "8808010100080000000000001234"


def test_ethernet_pause(frames_of):
    for frame in frames_of(ethernetpause):
        assert (frame[:6].hex(), frame[12:18].hex()) == ("0180c2000001", "880800014321")

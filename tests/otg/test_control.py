"""Control of traffic, captures and links; metrics; changes of a configuration."""

import collections
import subprocess
import time

import pytest
from conftest import frames, from_mac, interface, mac, refused


def simple(otg, packets=None, pps=1000, capture=False, **options):
    config = otg.config(capture)
    otg.flow(config, packets=packets, pps=pps, **options).packet.ethernet().ipv4().udp()
    return config


def test_a_pause_keeps_what_was_counted_and_resume_goes_on(otg):
    otg.api.set_config(simple(otg))
    otg.transmit("start")
    otg.until(lambda: otg.flows("f")["f"].frames_tx > 20, "it sends")
    otg.transmit("pause")
    paused = otg.settled("f")["f"]
    assert (paused.transmit, paused.frames_tx > 20) == ("paused", True)
    time.sleep(0.2)
    assert otg.flows("f")["f"].frames_tx == paused.frames_tx
    otg.transmit("resume")
    otg.until(lambda: otg.flows("f")["f"].frames_tx > paused.frames_tx, "it goes on")
    otg.transmit("stop")
    stopped = otg.settled("f")["f"]
    assert stopped.frames_rx == stopped.frames_tx > paused.frames_tx


def test_start_clears_counters_and_stop_does_not(otg):
    otg.api.set_config(simple(otg, packets=30))
    for _ in range(2):
        otg.transmit("start")
        found = otg.finished("f")["f"]
        assert (found.frames_tx, found.frames_rx) == (30, 30)
    otg.transmit("stop")
    assert otg.flows("f")["f"].frames_tx == 30


def test_one_of_two_flows_is_started_and_stopped(otg):
    config = simple(otg)
    otg.flow(config, "g", packets=None).packet.ethernet().ipv4().udp()
    otg.api.set_config(config)
    otg.transmit("start", "f")
    otg.until(lambda: otg.flows("f")["f"].frames_tx > 10, "f sends")
    assert (otg.flows("g")["g"].frames_tx, otg.flows("g")["g"].transmit) == (0, "stopped")
    otg.transmit("start", "g")
    otg.until(lambda: otg.flows("g")["g"].frames_tx > 10, "g sends")
    otg.transmit("stop", "f")
    assert {name: m.transmit for name, m in otg.settled("f").items()} == {"f": "stopped"}
    assert otg.flows("g")["g"].transmit == "started"


def test_counters_of_ports_are_those_of_the_interfaces(otg):
    otg.api.set_config(simple(otg, packets=200, pps=5000, size=100))
    before = {name: interface("veth-b", name) for name in ("rx_packets", "rx_bytes")}
    otg.transmit("start")
    otg.finished("f")
    found = otg.ports()
    kernel = {name: interface("veth-b", name) - count for name, count in before.items()}
    assert found["p1"].frames_tx == found["p2"].frames_rx == kernel["rx_packets"] == 200
    # The interface counts no FCS.
    assert found["p1"].bytes_tx == found["p2"].bytes_rx == kernel["rx_bytes"] + 4 * 200
    assert (found["p1"].location, found["p1"].link) == ("veth-a", "up")


def test_metrics_have_the_columns_that_are_asked_for(otg):
    otg.api.set_config(simple(otg, packets=5))
    otg.transmit("start")
    otg.finished("f")
    asked = otg.api.metrics_request()
    asked.port.port_names, asked.port.column_names = ["p1"], ["frames_tx", "location"]
    (metric,) = otg.api.get_metrics(asked).port_metrics
    reported = metric.serialize("dict")
    assert (
        reported["frames_tx"] in (5, "5")
        and reported["location"] == "veth-a"
        and "frames_rx" not in reported
    )
    reported = otg.flows("f", metric_names=["frames_tx"])["f"].serialize("dict")
    assert reported["name"] == "f" and "bytes_tx" not in reported


def test_only_flows_with_metrics_are_listed(otg):
    config = simple(otg, packets=5)
    otg.flow(config, "silent", packets=5, metrics=False).packet.ethernet().ipv4().udp()
    otg.api.set_config(config)
    otg.transmit("start")
    otg.finished()
    assert list(otg.flows()) == ["f"]
    otg.until(lambda: otg.ports("p1")["p1"].frames_tx == 10, "both are sent")


def test_loss_is_none_where_all_arrives(otg):
    config = simple(otg, packets=50)
    config.flows[0].metrics.loss = True
    otg.api.set_config(config)
    otg.transmit("start")
    assert otg.finished("f")["f"].loss == 0


def test_loss_is_all_where_nothing_arrives(otg):
    config = simple(otg, packets=50)
    config.flows[0].metrics.loss = True
    config.flows[0].tx_rx.port.rx_names = ["p1"]  # frames of p1 arrive at p2
    otg.api.set_config(config)
    otg.transmit("start")
    found = otg.finished("f")["f"]
    assert (found.frames_tx, found.frames_rx, found.loss) == (50, 0, 100)


def test_latency_is_measured(otg):
    config = simple(otg, packets=50)
    config.flows[0].metrics.latency.enable = True
    config.flows[0].metrics.latency.mode = "cut_through"
    otg.api.set_config(config)
    otg.transmit("start")
    latency = otg.finished("f")["f"].latency
    assert 0 < latency.minimum_ns <= latency.average_ns <= latency.maximum_ns < 10e9


def test_timestamps_are_of_the_first_and_the_last_frame(otg):
    config = simple(otg, packets=50, pps=500)
    config.flows[0].metrics.timestamps = True
    otg.api.set_config(config)
    otg.transmit("start")
    stamps = otg.finished("f")["f"].timestamps
    # At least 45 of 98 ms, because after a stall frames leave at up to twice the rate.
    assert stamps.last_timestamp_ns - stamps.first_timestamp_ns > 0.045e9


def test_rates_are_reported_during_the_run(otg):
    otg.api.set_config(simple(otg, pps=1000))
    otg.transmit("start")
    otg.until(lambda: otg.flows("f")["f"].frames_tx_rate > 100, "there is a rate")
    metric = otg.ports("p1")["p1"]
    assert metric.frames_tx_rate > 0 and metric.bytes_tx_rate > 0 and metric.transmit == "started"


def test_a_capture_has_what_tcpdump_sees(otg, tmp_path):
    otg.api.set_config(simple(otg, packets=40, capture=True, size=200))
    seen = tmp_path / "seen.pcap"
    # -B: KiB; in immediate mode each frame has 64 of them, and the usual ring holds 32.
    dump = [
        "tcpdump",
        "-i",
        "veth-b",
        "-Z",
        "root",
        "-U",
        "--immediate-mode",
        "-B",
        "8192",
        "-w",
        str(seen),
    ]
    listener = subprocess.Popen(dump, stderr=subprocess.PIPE, text=True)
    try:
        for line in listener.stderr:
            if "listening on" in line:
                break
        otg.capture("start")
        otg.transmit("start")
        otg.finished("f")
        otg.capture("stop")
        # 40 frames of 196 octets, each after a header of 16.
        otg.until(lambda: seen.stat().st_size >= 24 + 40 * 212, "tcpdump has seen all")
    finally:
        listener.terminate()
        listener.wait(10)
    found = [frame.octets[:-4] for frame in otg.frames()]
    data, captured, at = seen.read_bytes(), [], 24
    while at < len(data):
        length = int.from_bytes(data[at + 8 : at + 12], "little")
        captured.append(data[at + 16 : at + 16 + length])
        at += 16 + length
    assert found == captured and len(found) == 40


def test_a_capture_keeps_only_what_its_filter_wants(otg):
    config = otg.config(capture=True)
    for number in (1, 2):
        flow = otg.flow(config, f"f{number}", packets=10)
        flow.packet.ethernet().ipv4().udp()
        flow.packet[0].src.value = mac(number)
    config.captures[0].filters.ethernet()
    config.captures[0].filters[-1].src.value = mac(2).replace(":", "")
    _, found = otg.run(config)
    assert len(found) == 10 == len(from_mac(found, 2))


def test_a_capture_is_cut_to_its_packet_size(otg):
    config = simple(otg, packets=5, capture=True, size=500)
    config.captures[0].packet_size = 100
    _, found = otg.run(config)
    assert [(len(frame.octets), frame.length) for frame in found] == [(100, 500)] * 5


def test_a_capture_comes_as_pcapng(otg):
    config = simple(otg, packets=5, capture=True)
    config.captures[0].format = "pcapng"
    otg.api.set_config(config)
    otg.capture("start")
    otg.transmit("start")
    otg.finished("f")
    otg.capture("stop")
    request = otg.api.capture_request()
    request.port_name = "p2"
    octets = otg.api.get_capture(request).read()
    assert octets[:4].hex() == "0a0d0d0a"


def test_a_capture_is_taken_on_the_sending_port_too(otg):
    config = simple(otg, packets=5)
    config.captures.add(name="there", port_names=["p1"], format="pcap")
    back = otg.flow(config, "back", packets=7)
    back.packet.ethernet().ipv4().udp()
    back.packet[0].src.value = mac(9)
    back.tx_rx.port.tx_name, back.tx_rx.port.rx_names = "p2", ["p1"]
    otg.api.set_config(config)
    otg.capture("start", "p1")
    otg.transmit("start")
    otg.finished()
    otg.capture("stop", "p1")
    assert len(from_mac(otg.frames("p1"), 9)) == 7


def test_a_second_capture_begins_anew(otg):
    otg.api.set_config(simple(otg, packets=5, capture=True))
    for _ in range(2):
        otg.capture("start")
        assert otg.ports("p2")["p2"].capture == "started"
        otg.transmit("start")
        otg.finished("f")
        otg.capture("stop")
        assert otg.ports("p2")["p2"].capture == "stopped"
        assert len(otg.frames()) == 5


def test_a_link_goes_down_and_up(otg):
    otg.api.set_config(otg.config())
    control = otg.api.control_state()
    control.port.link.port_names, control.port.link.state = ["p1"], "down"
    otg.api.set_control_state(control)
    try:
        otg.until(lambda: otg.ports("p1")["p1"].link == "down", "the link is down")
        flags = subprocess.run(
            ["ip", "-br", "link", "show", "veth-a"], capture_output=True, text=True, check=True
        ).stdout
        assert "UP" not in flags.split("<")[1].split(">")[0].split(",")
    finally:
        control.port.link.state = "up"
        otg.api.set_control_state(control)
    otg.until(lambda: otg.ports("p1")["p1"].link == "up", "the link is up")


def test_a_port_says_when_its_link_changed_last(otg):
    otg.api.set_config(otg.config())
    # If the link has not changed since the start, the time of the last change is unknown.
    assert "last_change" not in otg.ports("p1")["p1"].serialize("dict")
    control = otg.api.control_state()
    seen = []
    for state in ("down", "up"):
        control.port.link.port_names, control.port.link.state = ["p1"], state
        before = time.time_ns()
        otg.api.set_control_state(control)
        # Both ends of the pair show the change.
        for port in ("p1", "p2"):
            otg.until(lambda: otg.ports(port)[port].link == state, f"the link of {port} is {state}")
            changed = otg.until(
                lambda: (
                    (otg.ports(port)[port].last_change or 0) > before
                    and otg.ports(port)[port].last_change
                ),
                "it is told when",
            )
            assert changed < time.time_ns()
            seen.append(changed)
    assert seen[0] < seen[2] and seen[1] < seen[3]
    asked = otg.api.metrics_request()
    asked.port.port_names, asked.port.column_names = ["p1"], ["frames_tx"]
    (metric,) = otg.api.get_metrics(asked).port_metrics
    assert "last_change" not in metric.serialize("dict")


def test_protocols_start_and_stop_without_a_word(otg):
    otg.api.set_config(otg.config())
    control = otg.api.control_state()
    for state in ("start", "stop"):
        control.protocol.all.state = state
        otg.api.set_control_state(control)


def test_get_config_returns_the_config_that_was_set(otg):
    config = simple(otg, packets=5, capture=True)
    config.layer1.add(name="l1", port_names=["p1"], speed="speed_10_gbps", mtu=1500)
    otg.api.set_config(config)
    assert otg.api.get_config().serialize("dict") == config.serialize("dict")


def test_the_version_says_who_answers(otg):
    version = otg.api.get_version()
    assert version.app_version and version.api_spec_version
    assert otg.api.check_version_compatibility() is None  # it raises


def test_a_flow_changes_its_rate_while_it_sends(otg):
    config = simple(otg, pps=100)
    otg.api.set_config(config)
    otg.transmit("start")
    otg.until(lambda: otg.flows("f")["f"].frames_tx > 5, "it sends")
    update = otg.api.config_update()
    update.flows.property_names = [update.flows.RATE]
    config.flows[0].rate.pps = 4000
    update.flows.flows.append(config.flows[0])
    otg.api.update_config(update)
    before = otg.flows("f")["f"]
    assert before.transmit == "started"
    otg.until(
        lambda: otg.flows("f")["f"].frames_tx > before.frames_tx + 400,
        "it sends faster",
        timeout_s=4,
    )
    assert otg.api.get_config().flows[0].rate.pps == 4000


def test_a_flow_changes_its_size(otg):
    config = simple(otg, packets=5, capture=True)
    otg.api.set_config(config)
    update = otg.api.config_update()
    update.flows.property_names = [update.flows.SIZE]
    config.flows[0].size.fixed = 333
    update.flows.flows.append(config.flows[0])
    otg.api.update_config(update)
    otg.capture("start")
    otg.transmit("start")
    otg.finished("f")
    otg.capture("stop")
    assert [frame.length for frame in otg.frames()] == [333] * 5


def test_a_flow_is_appended_and_deleted(otg):
    otg.api.set_config(simple(otg, packets=5))
    other = otg.api.config()
    append = otg.api.config_append()
    flow = otg.flow(other, "more", packets=6)
    flow.packet.ethernet().ipv4().udp()
    append.config_append_list.add().flows.append(flow)
    otg.api.append_config(append)
    otg.transmit("start")
    assert {name: m.frames_tx for name, m in otg.finished().items()} == {"f": 5, "more": 6}
    delete = otg.api.config_delete()
    delete.config_delete_list.add().flows = ["f"]
    otg.api.delete_config(delete)
    assert [flow.name for flow in otg.api.get_config().flows] == ["more"]
    assert list(otg.flows()) == ["more"]


def test_metrics_by_tags(otg):
    config = otg.config()
    flow = otg.flow(config, packets=30)
    _, _, udp = flow.packet.ethernet().ipv4().udp()
    udp.dst_port.values = [5000, 6000, 7000]
    udp.dst_port.metric_tags.add(name="port", offset=0, length=16)
    otg.api.set_config(config)
    otg.transmit("start")
    otg.finished("f")
    asked = otg.api.metrics_request()
    asked.flow.flow_names, asked.flow.tagged_metrics.include = ["f"], True
    (metric,) = otg.api.get_metrics(asked).flow_metrics
    found = {}
    for tagged in metric.tagged_metrics:
        (tag,) = tagged.tags
        found[int(tag.value.hex, 16)] = (tag.name, tagged.frames_tx, tagged.frames_rx)
    assert found == {5000: ("port", 10, 10), 6000: ("port", 10, 10), 7000: ("port", 10, 10)}


def test_metrics_by_tags_of_received_frames(otg):
    config = otg.config(capture=True)
    flow = otg.flow(config, packets=60)
    _, vlan, _, udp = flow.packet.ethernet().vlan().ipv4().udp()
    flow.packet[0].src.value = mac(1)
    vlan.id.values = [10, 20]
    vlan.id.metric_tags.add(name="sent")
    udp.dst_port.increment.start, udp.dst_port.increment.count = 5000, 6
    _, tag, _, port = flow.egress_packet.ethernet().vlan().ipv4().udp()
    tag.id.metric_tags.add(name="came")
    port.dst_port.metric_tags.add(name="low", offset=13, length=3)
    _, found = otg.run(config)
    asked = otg.api.metrics_request()
    asked.flow.tagged_metrics.include = True
    (metric,) = otg.api.get_metrics(asked).flow_metrics
    reported = {}
    for tagged in metric.tagged_metrics:
        values = {tag.name: int(tag.value.hex, 16) for tag in tagged.tags}
        assert "frames_tx" not in tagged.serialize("dict")
        reported[values["sent"], values["came"], values["low"]] = tagged.frames_rx
    frames = [frame.octets for frame in from_mac(found, 1)]
    assert len(frames) == 60 == sum(reported.values())
    counted = collections.Counter(
        (int.from_bytes(f[14:16], "big") & 0xFFF, int.from_bytes(f[40:42], "big") & 7)
        for f in frames
    )
    assert (
        reported == {(vlan, vlan, low): count for (vlan, low), count in counted.items()}
        and len(reported) == 6
    )


def device(config, port, number, version=4):
    made = config.devices.add(name=f"d{number}")
    ethernet = made.ethernets.add(name=f"eth{number}", mac=mac(number))
    ethernet.connection.port_name = port
    mine, other = (
        f"10.1.0.{n}" if version == 4 else f"2001:db8:1::{n}" for n in (number, 3 - number)
    )
    addresses = ethernet.ipv4_addresses if version == 4 else ethernet.ipv6_addresses
    addresses.add(
        name=f"ip{number}", address=mine, gateway=other, prefix=24 if version == 4 else 64
    )


@pytest.mark.parametrize("version", [4, 6])
def test_devices_find_each_other_and_their_flows_have_their_addresses(otg, version):
    config = otg.config(capture=True)
    device(config, "p1", 1, version)
    device(config, "p2", 2, version)
    flow = otg.flow(config, packets=10)
    flow.tx_rx.device.tx_names, flow.tx_rx.device.rx_names = ["ip1"], ["ip2"]
    (flow.packet.ethernet().ipv4 if version == 4 else flow.packet.ethernet().ipv6)()
    metrics, found = otg.run(config)
    assert (metrics["f"].frames_tx, metrics["f"].frames_rx) == (10, 10)
    kind = "0800" if version == 4 else "86dd"
    sent = [frame.octets for frame in from_mac(found, 1) if frame.length == 100]
    assert len(sent) == 10
    for frame in sent:
        assert (frame[:6].hex(), frame[12:14].hex()) == (mac(2).replace(":", ""), kind)
        if version == 4:
            assert frame[26:34].hex() == "0a0100010a010002"
        else:
            assert (
                frame[22:54].hex() == "20010db8000100000000000000000001"
                "20010db8000100000000000000000002"
            )


def test_a_dhcp_client_gets_an_address_of_a_server_and_gives_it_back(otg):
    config = otg.config()
    device(config, "p2", 2)
    server = config.devices[0].dhcp_server.ipv4_interfaces.add(name="server", ipv4_name="ip2")
    pool = server.address_pools.add(
        name="pool", start_address="10.1.0.100", count=5, prefix_length=24, lease_time=600
    )
    pool.options.router_address = "10.1.0.2"
    client = config.devices.add(name="d1").ethernets.add(name="eth1", mac=mac(1))
    client.connection.port_name = "p1"
    client.dhcpv4_interfaces.add(name="client")
    otg.api.set_config(config)

    def protocols(state):
        control = otg.api.control_state()
        control.protocol.all.state = state
        otg.api.set_control_state(control)

    def leases():
        request = otg.api.states_request()
        request.dhcpv4_leases.dhcp_server_names = ["server"]
        return otg.api.get_states(request).dhcpv4_leases[0].leases

    def interface():
        request = otg.api.states_request()
        request.dhcpv4_interfaces.dhcp_client_names = []
        return otg.api.get_states(request).dhcpv4_interfaces[0]

    protocols("start")
    try:
        end = time.monotonic() + 30
        while interface().ipv4_address is None:
            assert time.monotonic() < end
            time.sleep(0.1)
        found = interface()
        assert (found.dhcp_client_name, found.ipv4_address) == ("client", "10.1.0.100")
        assert (found.prefix_length, found.gateway_address) == (24, "10.1.0.2")
        assert found.lease_time == 600 and 290 <= found.renew_time <= 300
        (lease,) = leases()
        assert (lease.address, lease.client_id) == ("10.1.0.100", mac(1))
        assert 590 <= lease.valid_time <= 600
    finally:
        protocols("stop")
    assert not leases(), "the client gave its address back"
    request = otg.api.metrics_request()
    request.dhcpv4_client.client_names = ["client"]
    counted = otg.api.get_metrics(request).dhcpv4client_metrics[0]
    # A DISCOVER before the link is up is repeated.
    assert counted.discovers_sent >= 1 and counted.releases_sent == 1
    assert (counted.offers_received, counted.acks_received, counted.nacks_received) == (1, 1, 0)
    request = otg.api.metrics_request()
    request.dhcpv4_server.column_names = ["acks_sent", "releases_received"]
    served = otg.api.get_metrics(request).dhcpv4server_metrics[0]
    assert (served.acks_sent, served.releases_received) == (1, 1)


def protocols(otg, state):
    control = otg.api.control_state()
    control.protocol.all.state = state
    otg.api.set_control_state(control)


def test_a_dhcpv6_client_gets_an_address_and_a_prefix_and_gives_them_back(otg):
    config = otg.config()
    device(config, "p2", 2, version=6)
    server = config.devices[0].dhcp_server.ipv6_interfaces.add(name="server", ipv6_name="ip2")
    pools = server.leases.add(lease_time=600).ia_type.ianapd
    pools.iana.start_address, pools.iana.size = "2001:db8:1::100", 5
    pools.iapd.start_prefix_address = "2001:db8:100::"
    pools.iapd.configured_prefix_len = pools.iapd.advertised_prefix_len = 56
    client = config.devices.add(name="d1").ethernets.add(name="eth1", mac=mac(1))
    client.connection.port_name = "p1"
    client.dhcpv6_interfaces.add(name="client").ia_type.ianapd.t1 = 302400
    otg.api.set_config(config)

    def leases():
        request = otg.api.states_request()
        request.dhcpv6_leases.dhcp_server_names = ["server"]
        return otg.api.get_states(request).dhcpv6_leases[0].leases

    def interface():
        request = otg.api.states_request()
        request.dhcpv6_interfaces.dhcp_client_names = []
        return otg.api.get_states(request).dhcpv6_interfaces[0]

    protocols(otg, "start")
    try:
        otg.until(lambda: len(interface().ia_addresses), "the client has an address")
        found = interface()
        assert found.dhcp_client_name == "client"
        (address,), (prefix,) = found.ia_addresses, found.iapd_addresses
        assert (address.address, address.lease_time) == ("2001:db8:1::100", 600)
        assert (prefix.address, prefix.prefix_length) == ("2001:db8:100::", 56)
        by_address, by_prefix = leases()
        assert (by_address.address, by_prefix.address) == ("2001:db8:1::100", "2001:db8:100::/56")
        assert by_address.client_id == "00030001" + mac(1).replace(":", "")
        assert 500 <= by_address.valid_time <= 600 and by_address.renew_time <= 300
    finally:
        protocols(otg, "stop")
    assert not leases(), "the client gave its leases back"
    request = otg.api.metrics_request()
    request.dhcpv6_client.client_names = ["client"]
    counted = otg.api.get_metrics(request).dhcpv6client_metrics[0]
    # A Solicit before the link is up is repeated.
    assert counted.solicits_sent >= 1 and counted.releases_sent >= 1
    assert counted.advertisements_received >= 1 and counted.nacks_received == 0
    assert (counted.rapid_commit_solicits_sent, counted.reconfigures_received) == (0, 0)
    request = otg.api.metrics_request()
    request.dhcpv6_server.column_names = ["requests_received", "releases_received"]
    served = otg.api.get_metrics(request).dhcpv6server_metrics[0]
    assert served.requests_received >= 1 and served.releases_received >= 1


def test_lldp_instances_are_neighbors_until_the_protocols_stop(otg):
    config = otg.config()
    for number in (1, 2):
        instance = config.lldp.add(name=f"lldp{number}", hold_time=120, advertisement_interval=5)
        instance.connection.port_name = f"p{number}"
        instance.chassis_id.mac_address_subtype.value = mac(number)
        instance.system_name.value = f"system {number}"
    otg.api.set_config(config)

    def neighbors():
        request = otg.api.states_request()
        request.lldp_neighbors.lldp_names = []
        return otg.api.get_states(request).lldp_neighbors

    protocols(otg, "start")
    try:
        otg.until(lambda: len(neighbors()) == 2, "both have a neighbor")
        for number, neighbor in zip((2, 1), neighbors()):
            assert neighbor.lldp_name == f"lldp{3 - number}"
            assert (neighbor.chassis_id_type, neighbor.chassis_id) == ("mac_address", mac(number))
            assert (neighbor.port_id_type, neighbor.port_id) == ("interface_name", f"p{number}")
            assert (neighbor.system_name, neighbor.ttl) == (f"system {number}", 120)
            (capability,) = neighbor.capabilities
            assert capability.capability_name == "station_only" and capability.capability_enabled
        request = otg.api.metrics_request()
        request.lldp.lldp_names = ["lldp1"]

        def counted():
            return otg.api.get_metrics(request).lldp_metrics[0]

        otg.until(lambda: min(counted().frames_tx, counted().frames_rx) >= 2, "frames both ways")
        assert (counted().frames_error_rx, counted().tlvs_unknown) == (0, 0)
    finally:
        protocols(otg, "stop")
    assert not neighbors()


def test_lags_come_up_carry_flows_and_go_out_of_sync(otg):
    config = otg.config()
    for number in (1, 2):
        lag = config.lags.add(name=f"lag{number}", min_links=1)
        lag.protocol.lacp.actor_system_id = f"0{number}:01:01:01:01:01"
        lag.protocol.lacp.actor_key = number
        member = lag.ports.add(port_name=f"p{number}")
        member.lacp.actor_port_number = 1
        member.ethernet.name, member.ethernet.mac = f"eth{number}", mac(number)
    flow = otg.flow(config, packets=50)
    flow.tx_rx.port.tx_name, flow.tx_rx.port.rx_names = "lag1", ["lag2"]
    otg.api.set_config(config)

    def lacp():
        request = otg.api.metrics_request()
        request.lacp.lag_names = []
        return {one.lag_name: one for one in otg.api.get_metrics(request).lacp_metrics}

    def lags():
        request = otg.api.metrics_request()
        request.lag.lag_names = []
        return {one.name: one for one in otg.api.get_metrics(request).lag_metrics}

    def are(status):
        return all(one.oper_status == status for one in lags().values())

    assert are("down") and not lacp()["lag1"].collecting
    protocols(otg, "start")
    try:
        otg.until(lambda: are("up"), "both are up")
        found = lacp()["lag1"]
        assert (found.system_id, found.partner_id) == ("01:01:01:01:01:01", "02:01:01:01:01:01")
        assert (found.oper_key, found.partner_key) == (1, 2)
        assert (found.activity, found.timeout, found.synchronization) == (
            "active",
            "short",
            "in_sync",
        )
        assert found.aggregatable and found.collecting and found.distributing
        assert found.lag_member_port_name == "p1" and found.lacp_rx_errors == 0
        otg.transmit("start")
        metrics = otg.finished()
        assert (metrics["f"].frames_tx, metrics["f"].frames_rx) == (50, 50)
        assert lags()["lag1"].frames_tx == 50 and lags()["lag2"].frames_rx >= 50

        control = otg.api.control_state()
        control.protocol.lacp.admin.state = "down"
        control.protocol.lacp.admin.lag_member_names = ["p1"]
        otg.api.set_control_state(control)
        otg.until(lambda: are("down"), "both are out of sync")
        assert lacp()["lag1"].synchronization == "out_sync"
        control = otg.api.control_state()
        control.protocol.lacp.admin.state = "up"
        otg.api.set_control_state(control)
        otg.until(lambda: are("up"), "both are in sync again")

        control = otg.api.control_state()
        control.protocol.lacp.member_ports.state = "down"
        otg.api.set_control_state(control)
        otg.until(lambda: are("down"), "both are silent")
        control.protocol.lacp.member_ports.lag_member_names = ["p9"]
        assert "p9" in "".join(refused(lambda: otg.api.set_control_state(control)).errors)
    finally:
        protocols(otg, "stop")


@pytest.mark.parametrize("version", [4, 6])
def test_loopbacks_answer_through_their_interface(otg, version):
    config = otg.config()
    device(config, "p1", 1, version)
    device(config, "p2", 2, version)
    address = "192.0.2.1" if version == 4 else "2001:db8:2::1"
    router = config.devices[1]
    loopbacks = router.ipv4_loopbacks if version == 4 else router.ipv6_loopbacks
    loopbacks.add(name="loopback", eth_name="eth2", address=address)
    otg.api.set_config(config)
    mine = "10.1.0.1" if version == 4 else "2001:db8:1::1"
    asked = [("ip1", address), ("loopback", mine)]
    assert ping(otg, version, *asked) == [(*pair, "succeeded") for pair in asked]


def ping(otg, version, *pairs):
    """Return the results of echo requests: for each pair, from an address of a device to an
    address."""
    action = otg.api.control_action()
    requests = (action.protocol.ipv4 if version == 4 else action.protocol.ipv6).ping.requests
    for source, target in pairs:
        requests.add(src_name=source, dst_ip=target)
    answer = otg.api.set_control_action(action).response.protocol
    responses = (answer.ipv4 if version == 4 else answer.ipv6).ping.responses
    return [(response.src_name, response.dst_ip, response.result) for response in responses]


@pytest.mark.parametrize("version", [4, 6])
def test_devices_ping_and_say_who_answers(otg, version):
    config = otg.config(capture=True)
    device(config, "p1", 1, version)
    device(config, "p2", 2, version)
    otg.api.set_config(config)
    otg.capture("start")
    near = "10.1.0.{}" if version == 4 else "2001:db8:1::{}"
    # A host outside the prefix is reached through the gateway, which is the other device and
    # forwards nothing.
    far = "10.9.0.1" if version == 4 else "2001:db8:9::1"
    asked = [
        ("ip1", near.format(2)),
        ("ip2", near.format(1)),
        ("ip1", near.format(77)),
        ("ip1", far),
    ]
    found = ping(otg, version, *asked)
    assert found == [
        (*pair, result)
        for pair, result in zip(asked, ["succeeded", "succeeded", "failed", "failed"])
    ]
    started = time.monotonic()
    assert ping(otg, version, asked[1]) == [(*asked[1], "succeeded")]
    assert time.monotonic() - started < 3, "an answer is not waited for when it has come"
    assert ping(otg, version) == []
    otg.capture("stop")
    at, request = (34, 8) if version == 4 else (54, 128)
    echoes = [
        frame.octets
        for frame in from_mac(otg.frames(), 1)
        if frame.octets[12:14].hex() == ("0800" if version == 4 else "86dd")
    ]
    echoes = [octets for octets in echoes if octets[at] == request]
    # One request for the neighbor; hosts beyond the gateway are retried once per second; a device
    # without a MAC address sends none.
    targets = collections.Counter(
        octets[30:34] if version == 4 else octets[38:54] for octets in echoes
    )
    assert len(targets) == 2 and max(targets.values()) >= 3, targets
    assert all(octets[:6].hex() == mac(2).replace(":", "") for octets in echoes)
    assert otg.ports("p1")["p1"].transmit == "stopped"


def test_a_ping_that_cannot_be_sent_is_refused_with_its_place(otg):
    config = otg.config()
    device(config, "p1", 1)
    config.ports.add(name="memory", location="loop:otg-ping")
    device(config, "memory", 3)
    otg.api.set_config(config)
    wrong = 'protocol.ipv4.ping.requests[1].src_name: cannot find IPv4 address "nobody"'
    assert refused(lambda: ping(otg, 4, ("ip1", "10.1.0.2"), ("nobody", "10.1.0.2"))).errors == [
        wrong
    ]
    assert "requests[0].src_name" in "".join(
        refused(lambda: ping(otg, 6, ("ip1", "2001:db8:1::2"))).errors
    )
    assert "loop:otg-ping" in "".join(refused(lambda: ping(otg, 4, ("ip3", "10.1.0.2"))).errors)
    action = otg.api.control_action()
    action.protocol.bgp.notification.names = ["b"]
    error = refused(lambda: otg.api.set_control_action(action))
    assert error.errors[0].startswith('names: cannot find BGP session "b"'), error.errors


def test_what_a_port_cannot_do_is_refused_or_warned_of_with_its_place(otg):
    config = otg.config()
    config.egress_only_tracking.add(port_name="p2")
    error = refused(lambda: otg.api.set_config(config))
    assert "egress_only_tracking: not supported" in "".join(error.errors)
    otg.api.set_config(otg.config())
    asked = otg.api.metrics_request()
    asked.egress_only_tracking.port_names = ["p2"]
    error = refused(lambda: otg.api.get_metrics(asked))
    assert "egress_only_tracking: not supported" in "".join(error.errors)
    config = otg.config()
    layer1 = config.layer1.add(name="l1", port_names=["p1"])
    layer1.flow_control.ieee_802_3x
    (warning,) = otg.api.set_config(config).warnings
    assert warning.startswith("layer1[0].flow_control: has no effect"), warning


def test_bad_configs_are_refused_with_their_places_and_the_one_before_stays(otg):
    otg.api.set_config(simple(otg, packets=5))
    bad = otg.config()
    otg.flow(bad).packet.ethernet().ipv4().udp()
    otg.flow(bad, "g").packet.ethernet().macsec()
    otg.flow(bad, "h").tx_rx.port.tx_name = "p3"
    error = refused(lambda: otg.api.set_config(bad))
    reported = "\n".join(error.errors)
    assert (error.code, error.kind) in ((400, "validation"), (3, "validation"))
    assert "flows[1].packet[1]" in reported and "not supported" in reported
    assert "flows[2].tx_rx" in reported and "p3" in reported
    assert [flow.name for flow in otg.api.get_config().flows] == ["f"]


def test_names_that_are_not_there_are_refused(otg):
    otg.api.set_config(simple(otg, packets=5, capture=True))
    asked = otg.api.metrics_request()
    asked.flow.flow_names = ["nobody"]
    assert "nobody" in "".join(refused(lambda: otg.api.get_metrics(asked)).errors)
    assert "nobody" in "".join(refused(lambda: otg.transmit("start", "nobody")).errors)
    assert "nobody" in "".join(refused(lambda: otg.capture("start", "nobody")).errors)
    request = otg.api.capture_request()
    request.port_name = "nobody"
    assert "nobody" in "".join(refused(lambda: otg.api.get_capture(request)).errors)


def test_two_things_of_one_name_are_refused(otg):
    config = otg.config()
    otg.flow(config, "same")
    otg.flow(config, "same")
    assert "same" in "".join(refused(lambda: otg.api.set_config(config)).errors)


def test_a_port_that_is_not_there_is_refused(otg):
    config = otg.api.config()
    config.ports.add(name="p", location="no-such-interface")
    flow = config.flows.add(name="f")
    flow.tx_rx.port.tx_name = "p"

    def go():
        otg.api.set_config(config)
        otg.transmit("start")

    assert "no-such-interface" in "".join(refused(go).errors)
    otg.api.set_config(otg.config())


def test_nothing_set_is_an_empty_config(otg):
    otg.api.set_config(otg.api.config())
    assert otg.api.get_config().serialize("dict") == {}
    assert otg.flows() == {} and otg.ports() == {}


def test_a_capture_that_is_empty_is_a_file_without_frames(otg):
    otg.api.set_config(otg.config(capture=True))
    otg.capture("start")
    otg.capture("stop")
    assert (
        frames(
            otg.api.get_capture(otg.api.capture_request().deserialize({"port_name": "p2"})).read()
        )
        == []
    )

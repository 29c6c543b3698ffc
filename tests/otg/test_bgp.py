"""BGP of devices: sessions between two of them, over the pair of interfaces.

The statements are those of the public conformance suite of Open Traffic Generator: prefixes are
installed with their attributes, withdrawn and announced by name, and traffic between them arrives.
"""

import pytest
from conftest import mac, refused
from test_control import protocols

AS_NUMBERS = {1: 65001, 2: 65002}


def session(config, number, version=4, kind="ebgp"):
    """Add a device with a session to the other device. Return the session."""
    other = f"10.2.0.{3 - number}" if version == 4 else f"2001:db8:2::{3 - number}"
    device = config.devices.add(name=f"d{number}")
    ethernet = device.ethernets.add(name=f"eth{number}", mac=mac(number))
    ethernet.connection.port_name = f"p{number}"
    ethernet.ipv4_addresses.add(
        name=f"ip4-{number}", address=f"10.2.0.{number}", gateway=f"10.2.0.{3 - number}", prefix=24
    )
    ethernet.ipv6_addresses.add(
        name=f"ip6-{number}",
        address=f"2001:db8:2::{number}",
        gateway=f"2001:db8:2::{3 - number}",
        prefix=64,
    )
    device.bgp.router_id = f"192.0.2.{number}"
    if version == 4:
        interface = device.bgp.ipv4_interfaces.add(ipv4_name=f"ip4-{number}")
    else:
        interface = device.bgp.ipv6_interfaces.add(ipv6_name=f"ip6-{number}")
    number_of_as = AS_NUMBERS[number] if kind == "ebgp" else 65000
    peer = interface.peers.add(
        name=f"bgp{number}", peer_address=other, as_type=kind, as_number=number_of_as
    )
    peer.learned_information_filter.unicast_ipv4_prefix = True
    peer.learned_information_filter.unicast_ipv6_prefix = True
    return peer


def ranges(peer, number):
    """Add a range of each IP version: three networks of IPv4, and two of IPv6."""
    ipv4 = peer.v4_routes.add(name=f"r4-{number}")
    ipv4.addresses.add(address=f"{100 + number}.1.0.0", prefix=24, count=3, step=2)
    ipv6 = peer.v6_routes.add(name=f"r6-{number}")
    ipv6.addresses.add(address=f"2001:db8:{100 + number}::", prefix=48, count=2)
    return ipv4, ipv6


@pytest.fixture
def bgp(otg):
    """The steps of these tests; protocols stop after the test."""
    yield Bgp(otg)
    protocols(otg, "stop")


class Bgp:
    def __init__(self, otg):
        self.otg, self.api = otg, otg.api

    def start(self, config, version=4):
        self.api.set_config(config)
        protocols(self.otg, "start")
        self.until_state("up", version)

    def metrics(self, version=4, **request):
        asked = self.api.metrics_request()
        of = asked.bgpv4 if version == 4 else asked.bgpv6
        of.peer_names = request.get("names", [])
        of.column_names = request.get("columns", [])
        answer = self.api.get_metrics(asked)
        found = answer.bgpv4_metrics if version == 4 else answer.bgpv6_metrics
        return {metric.name: metric for metric in found}

    def until_state(self, state, version=4, names=("bgp1", "bgp2")):
        def are():
            found = self.metrics(version)
            return all(found[name].session_state == state for name in names)

        self.otg.until(are, f"sessions are {state}")

    def prefixes(self, name, **filters):
        """Return the routes of IPv4 and IPv6 that a session has learnt, by their networks."""
        asked = self.api.states_request()
        asked.bgp_prefixes.bgp_peer_names = [name]
        for key, value in filters.items():
            if key == "prefix_filters":
                asked.bgp_prefixes.prefix_filters = value
            else:
                getattr(asked.bgp_prefixes, key).add(**value)
        (state,) = self.api.get_states(asked).bgp_prefixes
        assert state.bgp_peer_name == name
        found = {f"{it.ipv4_address}/{it.prefix_length}": it for it in state.ipv4_unicast_prefixes}
        for it in state.ipv6_unicast_prefixes:
            found[f"{it.ipv6_address}/{it.prefix_length}"] = it
        return found

    def until_learnt(self, name, networks):
        self.otg.until(
            lambda: set(self.prefixes(name)) == set(networks), f"{name} has learnt {networks}"
        )

    def routes(self, state, *names):
        control = self.api.control_state()
        control.protocol.route.state = state
        control.protocol.route.names = list(names)
        self.api.set_control_state(control)

    def peers(self, state, *names):
        control = self.api.control_state()
        control.protocol.bgp.peers.state = state
        control.protocol.bgp.peers.peer_names = list(names)
        self.api.set_control_state(control)


NETWORKS = {
    number: [
        *(f"{100 + number}.1.{third}.0/24" for third in (0, 2, 4)),
        f"2001:db8:{100 + number}::/48",
        f"2001:db8:{100 + number + 1}::/48",
    ]
    for number in (1, 2)
}


@pytest.mark.parametrize("version", [4, 6])
def test_prefixes_of_external_peers_are_installed_with_their_attributes(otg, bgp, version):
    config = otg.config()
    for number in (1, 2):
        peer = session(config, number, version)
        for route in ranges(peer, number):
            route.advanced.multi_exit_discriminator = 50
            route.advanced.origin = "egp"
            route.communities.add(type="manual_as_number", as_number=1, as_custom=2)
            route.communities.add(type="no_export")
            community = route.extended_communities.add().transitive_2octet_as_type
            community.route_target_subtype.set(global_2byte_as=258, local_4byte_admin=7)
            route.as_path.as_set_mode = "include_as_set"
            # The receiver's own number does not make a difference.
            route.as_path.segments.add(type="as_seq", as_numbers=[1112, AS_NUMBERS[3 - number]])
    bgp.start(config, version)
    for number in (1, 2):
        other = 3 - number
        bgp.until_learnt(f"bgp{number}", NETWORKS[other])
        for network, prefix in bgp.prefixes(f"bgp{number}").items():
            assert (prefix.origin, prefix.multi_exit_discriminator) == ("egp", 50)
            assert [(it.type, it.as_number, it.as_custom) for it in prefix.communities] == [
                ("manual_as_number", 1, 2),
                ("no_export", 0xFFFF, 0xFF01),
            ]
            assert [it.raw for it in prefix.extended_communities] == ["0002010200000007"]
            assert [(it.type, it.as_numbers) for it in prefix.as_path.segments] == [
                ("as_set", [AS_NUMBERS[other]]),
                ("as_seq", [1112, AS_NUMBERS[number]]),
            ]
            # LOCAL_PREF is for internal peers only.
            assert prefix.local_preference is None
            if "::" in network:
                assert prefix.ipv6_next_hop == f"2001:db8:2::{other}"
            else:
                assert prefix.ipv4_next_hop == f"10.2.0.{other}"

    def ends():
        return [metric.end_of_rib_received for metric in bgp.metrics(version).values()]

    otg.until(lambda: ends() == [2, 2], "both families have ended")
    for metric in bgp.metrics(version).values():
        assert (metric.routes_advertised, metric.routes_received) == (5, 5)
        assert (metric.route_withdraws_sent, metric.route_withdraws_received) == (0, 0)
        assert (metric.fsm_state, metric.session_flap_count) == ("established", 0)
        assert metric.opens_sent >= 1 and metric.opens_received >= 1
        assert metric.keepalives_sent >= 1 and metric.keepalives_received >= 1
        # A range is an UPDATE, and so is the end of each family.
        assert (metric.updates_sent, metric.updates_received) == (4, 4)
    assert not bgp.metrics(10 - version), "the sessions are of the other IP version"
    protocols(otg, "stop")
    for name, metric in bgp.metrics(version).items():
        assert (metric.session_state, metric.fsm_state) == ("down", "idle")
        assert metric.routes_received == 5, "counters stay"
        assert not bgp.prefixes(name)


def test_prefixes_of_internal_peers_have_the_local_preference(otg, bgp):
    config = otg.config()
    for number in (1, 2):
        peer = session(config, number, kind="ibgp")
        peer.as_number_width = "two" if number == 1 else "four"
        ipv4, ipv6 = ranges(peer, number)
        ipv4.advanced.local_preference = 70
        ipv4.next_hop_mode, ipv4.next_hop_ipv4_address = "manual", "10.2.0.99"
        ipv6.as_path.segments.add(type="as_seq", as_numbers=[7, 8])
    bgp.start(config)
    bgp.until_learnt("bgp2", NETWORKS[1])
    found = bgp.prefixes("bgp2")
    ipv4, ipv6 = found["101.1.2.0/24"], found["2001:db8:101::/48"]
    assert (ipv4.local_preference, ipv6.local_preference) == (70, 100)
    assert (ipv4.ipv4_next_hop, ipv4.origin) == ("10.2.0.99", "igp")
    assert ipv4.multi_exit_discriminator is None and not ipv4.as_path.segments
    assert [(it.type, it.as_numbers) for it in ipv6.as_path.segments] == [("as_seq", [7, 8])]


def test_ranges_are_withdrawn_and_announced_by_name(otg, bgp):
    config = otg.config()
    for number in (1, 2):
        ranges(session(config, number), number)
    bgp.start(config)
    bgp.until_learnt("bgp2", NETWORKS[1])
    bgp.routes("withdraw", "r4-1")
    bgp.until_learnt("bgp2", NETWORKS[1][3:])
    found = bgp.metrics(columns=["route_withdraws_sent", "route_withdraws_received"])
    assert (found["bgp1"].route_withdraws_sent, found["bgp1"].route_withdraws_received) == (3, 0)
    assert (found["bgp2"].route_withdraws_sent, found["bgp2"].route_withdraws_received) == (0, 3)
    assert "routes_received" not in found["bgp1"].serialize("dict")
    bgp.routes("advertise", "r4-1")
    bgp.until_learnt("bgp2", NETWORKS[1])
    assert bgp.metrics(names=["bgp2"])["bgp2"].routes_received == 8
    # Without names, all ranges.
    bgp.routes("withdraw")
    bgp.until_learnt("bgp1", [])
    bgp.until_learnt("bgp2", [])
    error = refused(lambda: bgp.routes("withdraw", "r4-9"))
    assert 'cannot find range of routes "r4-9"' in "".join(error.errors)


def test_states_are_filtered(otg, bgp):
    config = otg.config()
    for number in (1, 2):
        peer = session(config, number)
        ipv4, _ = ranges(peer, number)
        if number == 1:
            ipv4.advanced.origin = "incomplete"
        else:
            peer.learned_information_filter.unicast_ipv6_prefix = False
    bgp.start(config)
    ipv4 = NETWORKS[1][:3]
    # Routes of IPv6 are not in the states of the second session.
    bgp.until_learnt("bgp2", ipv4)
    bgp.until_learnt("bgp1", NETWORKS[2])
    assert set(bgp.prefixes("bgp1", prefix_filters=["ipv4_unicast"])) == set(NETWORKS[2][:3])
    filtered = bgp.prefixes("bgp2", ipv4_unicast_filters={"addresses": ["101.1.2.0"]})
    assert list(filtered) == ["101.1.2.0/24"]
    by_origin = bgp.prefixes("bgp2", ipv4_unicast_filters={"origin": "incomplete"})
    assert list(by_origin) == ipv4
    assert not bgp.prefixes("bgp2", ipv4_unicast_filters={"prefix_length": 25})


def test_sessions_go_down_and_come_back_up(otg, bgp):
    config = otg.config()
    for number in (1, 2):
        ranges(session(config, number), number)
    bgp.start(config)
    bgp.until_learnt("bgp2", NETWORKS[1])
    bgp.peers("down", "bgp1")
    bgp.until_state("down")
    found = bgp.metrics()
    assert found["bgp1"].fsm_state == "idle"
    assert found["bgp1"].notifications_sent >= 1 and found["bgp2"].notifications_received >= 1
    assert not bgp.prefixes("bgp2"), "routes end with their session"
    bgp.peers("up", "bgp1")
    bgp.until_state("up")
    bgp.until_learnt("bgp2", NETWORKS[1])
    assert bgp.metrics()["bgp2"].session_flap_count == 1


def test_a_notification_ends_a_session_that_comes_back(otg, bgp):
    config = otg.config()
    for number in (1, 2):
        session(config, number)
    bgp.start(config)
    before = bgp.metrics()["bgp2"].notifications_received
    action = otg.api.control_action()
    action.protocol.bgp.notification.names = ["bgp1"]
    action.protocol.bgp.notification.cease.subcode = "out_of_resources_code6_subcode8"
    otg.api.set_control_action(action)
    otg.until(lambda: bgp.metrics()["bgp2"].session_flap_count == 1, "the session ends")
    assert bgp.metrics()["bgp2"].notifications_received > before
    bgp.until_state("up")


def test_a_graceful_restart_keeps_the_routes(otg, bgp):
    config = otg.config()
    for number in (1, 2):
        peer = session(config, number)
        ranges(peer, number)
        peer.graceful_restart.set(enable_gr=True, restart_time=60, enable_notification=False)
    bgp.start(config)
    bgp.until_learnt("bgp2", NETWORKS[1])
    before = bgp.metrics()["bgp2"].notifications_received
    action = otg.api.control_action()
    action.protocol.bgp.initiate_graceful_restart.peer_names = ["bgp1"]
    action.protocol.bgp.initiate_graceful_restart.restart_delay = 3
    otg.api.set_control_action(action)
    otg.until(lambda: bgp.metrics()["bgp2"].session_flap_count == 1, "the session ends")
    assert bgp.metrics()["bgp2"].notifications_received == before
    assert set(bgp.prefixes("bgp2")) == set(NETWORKS[1]), "they are stale"
    bgp.until_state("up")
    otg.until(lambda: bgp.metrics()["bgp2"].routes_received == 10, "all are announced again")
    assert set(bgp.prefixes("bgp2")) == set(NETWORKS[1])


def test_a_link_that_is_down_ends_sessions_by_their_hold_time(otg, bgp):
    config = otg.config()
    for number in (1, 2):
        peer = session(config, number)
        ranges(peer, number)
        peer.advanced.hold_time_interval, peer.advanced.keep_alive_interval = 3, 1
    bgp.start(config)
    bgp.until_learnt("bgp2", NETWORKS[1])

    def link(state):
        control = otg.api.control_state()
        control.port.link.port_names, control.port.link.state = ["p1"], state
        otg.api.set_control_state(control)

    link("down")
    try:
        bgp.until_state("down")
        assert not bgp.prefixes("bgp2")
    finally:
        link("up")
    bgp.until_state("up")
    bgp.until_learnt("bgp2", NETWORKS[1])


def test_paths_have_identifiers_and_one_side_waits(otg, bgp):
    config = otg.config()
    for number in (1, 2):
        peer = session(config, number)
        peer.capability.ipv4_unicast_add_path = True
        peer.advanced.passive_mode = number == 2
        for path in (5, 6) if number == 1 else ():
            route = peer.v4_routes.add(name=f"path{path}")
            route.addresses.add(address="101.1.0.0", prefix=24)
            route.add_path.path_id = path
    bgp.start(config)
    wanted = {"addresses": ["101.1.0.0"], "path_id": 6}
    otg.until(lambda: bgp.metrics()["bgp2"].routes_received == 2, "two paths")
    (prefix,) = bgp.prefixes("bgp2", ipv4_unicast_filters=wanted).values()
    assert prefix.path_id == 6
    bgp.routes("withdraw", "path6")
    otg.until(lambda: bgp.metrics()["bgp2"].route_withdraws_received == 1, "one is left")
    assert bgp.prefixes("bgp2")["101.1.0.0/24"].path_id == 5


def test_flows_between_prefixes_go_to_the_gateway(otg, bgp):
    config = otg.config(capture=True)
    for number in (1, 2):
        ranges(session(config, number), number)
    flow = otg.flow(config, packets=20)
    flow.tx_rx.device.tx_names, flow.tx_rx.device.rx_names = ["r4-1"], ["r4-2"]
    flow.packet.ethernet().ipv4()
    flow.packet[1].src.value, flow.packet[1].dst.value = "101.1.0.1", "102.1.0.1"
    bgp.start(config)
    otg.capture("start")
    otg.transmit("start")
    metrics = otg.finished()
    otg.capture("stop")
    assert (metrics["f"].frames_tx, metrics["f"].frames_rx) == (20, 20)
    sent = [frame.octets for frame in otg.frames() if frame.octets[26:30].hex() == "65010001"]
    assert len(sent) == 20
    assert {octets[:6].hex() for octets in sent} == {mac(2).replace(":", "")}
    assert {octets[30:34].hex() for octets in sent} == {"66010001"}


def test_unsupported_parts_and_orders_before_the_start_are_refused(otg):
    config = otg.config()
    peer = session(config, 1)
    peer.advanced.md5_key = "secret"
    peer.capability.evpn = True
    peer.graceful_restart.enable_llgr = True
    error = refused(lambda: otg.api.set_config(config))
    at = "devices[0].bgp.ipv4_interfaces[0].peers[0]"
    reported = "\n".join(error.errors)
    for place in ("advanced.md5_key", "capability.evpn", "graceful_restart.enable_llgr"):
        assert f"{at}.{place}: not supported" in reported
    config = otg.config()
    ranges(session(config, 1), 1)
    otg.api.set_config(config)
    bgp = Bgp(otg)
    assert bgp.metrics()["bgp1"].session_state == "down"
    assert not bgp.prefixes("bgp1")
    for call in (lambda: bgp.routes("withdraw"), lambda: bgp.peers("down", "bgp1")):
        assert "protocols are not started" in "".join(refused(call).errors)
    assert 'BGP session "x"' in "".join(refused(lambda: bgp.peers("down", "x")).errors)
    action = otg.api.control_action()
    action.protocol.bgp.initiate_graceful_restart.peer_names = ["bgp1"]
    error = refused(lambda: otg.api.set_control_action(action))
    assert "graceful_restart.enable_gr" in "".join(error.errors)

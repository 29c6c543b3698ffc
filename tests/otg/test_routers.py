"""OSPF and IS-IS of devices: routers on both ends of the pair of interfaces.

The statements are those of the public conformance suite of Open Traffic Generator: sessions come
up, each router has the LSAs or LSPs of the other with its routes, and traffic between the ranges
arrives. Ranges are withdrawn and announced by name, and routers taken down and up.

Routers of all protocols run at once, for all tests: most of the time is that of LSAs, which may
change every 5 s only (RFC 2328 appendix B).
"""

import pwd
import shutil

import pytest
import snappi
from conftest import GRPC, HTTPS, Otg, mac, refused
from test_control import protocols

NETWORKS = 200
SYSTEM_IDS = {1: "640000000001", 2: "650000000001"}


def has_frr():
    found = shutil.which("zebra") or shutil.which("zebra", path="/usr/lib/frr:/usr/libexec/frr")
    try:
        pwd.getpwnam("frr")
    except KeyError:
        return False
    return found is not None


needs_frr = pytest.mark.skipif(not has_frr(), reason="needs FRR and its user: apt-get install frr")


@pytest.fixture(scope="module")
def clients():
    """A client of each transport, which share the session of the daemon."""
    if not HTTPS:
        pytest.fail("there is no daemon: use tests/otg/run")
    https = snappi.api(location=HTTPS, verify=False, version_check=True)
    grpc = snappi.api(location=GRPC, transport="grpc", version_check=True)
    grpc.request_timeout = 60
    yield Routers(https), Routers(grpc)
    for client in (https, grpc):
        client.close()


@pytest.fixture(scope="module")
def running(clients):
    """The clients, while two devices with routers of all protocols run."""
    https, _ = clients
    config = https.otg.config()
    for number in (1, 2):
        made = device(config, number)
        ospf(made, number)
        if has_frr():
            isis(made, number)
    for name in ("r4", "r6", *(("s4", "s6") if has_frr() else ())):
        flow(config, name)
    https.api.set_config(config)
    before = https.metrics("ospfv2")
    assert {name: of.full_state_count for name, of in before.items()} == {"two1": 0, "two2": 0}
    protocols(https.otg, "start")
    yield clients
    https.otg.transmit("stop")
    protocols(https.otg, "stop")
    assert all(of.full_state_count == 0 for of in https.metrics("ospfv3").values())
    assert not any(of.router_lsas for of in https.lsas("ospfv3_lsas").values())
    stopped = refused(lambda: https.control("route", "withdraw", "r4-1"))
    assert "protocols are not started" in "".join(stopped.errors)
    https.api.set_config(https.api.config())


def device(config, number):
    """Add a device with an interface, and return it."""
    made = config.devices.add(name=f"d{number}")
    ethernet = made.ethernets.add(name=f"eth{number}", mac=mac(number))
    ethernet.connection.port_name = f"p{number}"
    other = 3 - number
    ethernet.ipv4_addresses.add(
        name=f"ip4-{number}", address=f"10.3.0.{number}", gateway=f"10.3.0.{other}", prefix=24
    )
    ethernet.ipv6_addresses.add(
        name=f"ip6-{number}",
        address=f"2001:db8:3::{number}",
        gateway=f"2001:db8:3::{other}",
        prefix=64,
    )
    return made


def ospf(made, number):
    """Add a router of each version of OSPF to a device, and ranges of each."""
    two = made.ospfv2
    two.name, two.store_lsa = f"two{number}", True
    # BIRD misses the first packet that is longer than its buffer.
    two.lsa_retransmit_time = 2
    interface = two.interfaces.add(name=f"x{number}", ipv4_name=f"ip4-{number}")
    interface.network_type.choice = interface.network_type.POINT_TO_POINT
    interface.advanced.routing_metric = 2
    interface.advanced.hello_interval, interface.advanced.dead_interval = 1, 4
    interface.authentication.md5s.add(key_id=1, key="secret")
    # Without an origin, routes are those of another area.
    range4 = two.v4_routes.add(name=f"r4-{number}", metric=10)
    range4.addresses.add(address=f"{number}0.10.10.1", prefix=32)
    external = two.v4_routes.add(name=f"e4-{number}", metric=7)
    external.addresses.add(address=f"{100 + number}.1.0.0", prefix=24, count=2, step=2)
    external.route_origin.choice = "external_type_1"
    # The LSA of a router with this number of networks is sent in fragments.
    inside = two.v4_routes.add(name=f"i4-{number}", metric=3)
    inside.addresses.add(address=f"{number}0.64.0.0", prefix=24, count=NETWORKS)
    inside.route_origin.choice = "intra_area"

    three = made.ospfv3
    three.router_id.custom = f"{number}.{number}.{number}.{number}"
    instance = three.instances.add(name=f"three{number}", store_lsa=True)
    instance.lsa_retransmit_time = 2
    interface = instance.interfaces.add(name=f"y{number}", ipv6_name=f"ip6-{number}")
    # One of two routers has to be the designated one.
    interface.network_type.broadcast.priority = number - 1
    interface.advanced.hello_interval, interface.advanced.dead_interval = 1, 4
    interface.advanced.link_metric = 20 + number
    range6 = instance.v6_routes.add(name=f"r6-{number}", metric=10)
    range6.addresses.add(address=f"{number}:{number}:{number}::1", prefix=64)
    inside = instance.v6_routes.add(name=f"i6-{number}", metric=3)
    inside.addresses.add(address=f"{number}:9::", prefix=64, count=NETWORKS)
    inside.route_origin.choice = "intra_area"


def isis(made, number):
    """Add a router of IS-IS to a device, and a range of each IP version."""
    router = made.isis
    router.name, router.system_id = f"isis{number}", SYSTEM_IDS[number]
    router.basic.ipv4_te_router_id = f"10.3.0.{number}"
    router.basic.hostname, router.basic.learned_lsp_filter = router.name, True
    router.advanced.area_addresses = ["490001"]
    router.advanced.lsp_refresh_rate, router.advanced.enable_attached_bit = 900, False
    interface = router.interfaces.add(eth_name=f"eth{number}", name=f"z{number}")
    interface.network_type, interface.level_type = "point_to_point", "level_1_2"
    for level in (interface.l1_settings, interface.l2_settings):
        level.hello_interval, level.dead_interval, level.priority = 1, 4, 0
    range4 = router.v4_routes.add(name=f"s4-{number}", link_metric=10)
    range4.addresses.add(address=f"{number}0.20.20.1", prefix=32)
    range6 = router.v6_routes.add(name=f"s6-{number}", link_metric=11)
    range6.addresses.add(address=f"2001:db8:{100 + number}::", prefix=48)


def flow(config, name):
    """Add a flow from the range of this name of one router to that of the other."""
    made = config.flows.add(name=name)
    made.tx_rx.device.tx_names = [f"{name}-1"]
    made.tx_rx.device.rx_names = [f"{name}-2"]
    packet = made.packet.ethernet()
    (packet.ipv4() if name.endswith("4") else packet.ipv6()).udp()
    made.size.fixed, made.rate.pps = 128, 1000
    made.duration.fixed_packets.packets = 50
    made.metrics.enable = True


class Routers:
    def __init__(self, client):
        self.api, self.otg = client, Otg(client)

    def metrics(self, protocol, *names, columns=()):
        asked = self.api.metrics_request()
        of = getattr(asked, protocol)
        of.router_names, of.column_names = list(names), list(columns)
        found = getattr(self.api.get_metrics(asked), f"{protocol}_metrics")
        return {metric.name: metric for metric in found}

    def lsas(self, protocol):
        asked = self.api.states_request()
        getattr(asked, protocol).router_names = []
        return {of.router_name: of for of in getattr(self.api.get_states(asked), protocol)}

    def lsps(self):
        """Return the prefixes of each LSP's identifier and level, by the router that has them."""
        asked = self.api.states_request()
        asked.isis_lsps.isis_router_names = []
        found = {}
        for of in self.api.get_states(asked).isis_lsps:
            lsps = found[of.isis_router_name] = {}
            for lsp in of.lsps:
                prefixes = lsps.setdefault((lsp.lsp_id, lsp.pdu_type), {})
                for tlv in lsp.tlvs.extended_ipv4_reachability_tlvs:
                    for one in tlv.prefixes:
                        prefixes[f"{one.ipv4_address}/{one.prefix_length}"] = one.metric
                for tlv in lsp.tlvs.ipv6_reachability_tlvs:
                    for one in tlv.prefixes:
                        prefixes[f"{one.ipv6_address}/{one.prefix_length}"] = one.metric
        return found

    def control(self, kind, state, *names):
        control = self.api.control_state()
        if kind == "route":
            control.protocol.route.state = state
            control.protocol.route.names = list(names)
        else:
            routers = getattr(control.protocol, kind).routers
            routers.state, routers.router_names = state, list(names)
        self.api.set_control_state(control)


def summaries(of):
    """Return routes of other areas and of other systems, with their originators and metrics."""
    found = [
        (lsa.header.advertising_router_id, lsa.header.lsa_id, lsa.metric)
        for lsa in of.network_summary_lsas
    ]
    for lsa in of.external_as_lsas:
        kind = (lsa.header.advertising_router_id, lsa.metric, lsa.metric_type, lsa.network_mask)
        found.append(kind)
    return sorted(found, key=str)


def links(of):
    """Return the links of the only router LSA."""
    (lsa,) = of.router_lsas
    return sorted((link.type, link.metric) for link in lsa.links)


def prefixes(of):
    return [
        (lsa.header.advertising_router_id, lsa.address_prefix, lsa.prefix_length, lsa.metric)
        for lsa in of.inter_area_prefix_lsas
    ]


def test_routers_of_ospf_have_the_lsas_of_each_other(running):
    https, grpc = running

    def full(client):
        return all(
            of.full_state_count == 1 and of.lsa_sent >= 2 and of.lsa_received >= 2
            for protocol in ("ospfv2", "ospfv3")
            for of in client.metrics(protocol).values()
        )

    https.otg.until(lambda: full(https), "all routers have a full neighbor")

    def has_lsas(client):
        two, three = client.lsas("ospfv2_lsas"), client.lsas("ospfv3_lsas")
        return all(
            summaries(two[f"two{number}"])
            == sorted(
                [(f"10.3.0.{other}", f"{other}0.10.10.1", 10)]
                + [(f"10.3.0.{other}", 7, 1, "255.255.255.0")] * 2,
                key=str,
            )
            and links(two[f"two{number}"])
            == [("point_to_point", 2), ("stub", 2), *[("stub", 3)] * NETWORKS]
            and prefixes(three[f"three{number}"])
            == [(f"{other}.{other}.{other}.{other}", f"{other}:{other}:{other}::", 64, 10)]
            and links(three[f"three{number}"]) == [("transit", 20 + other)]
            and [lsa.metric for lsa in three[f"three{number}"].intra_area_prefix_lsas].count(3)
            == NETWORKS
            for number, other in ((1, 2), (2, 1))
        )

    https.otg.until(lambda: has_lsas(https), "all routers have the LSAs of the others")
    assert full(grpc) and has_lsas(grpc)
    (brief,) = https.metrics("ospfv2", "two1", columns=["hellos_sent", "dbd_received"]).values()
    assert brief.hellos_sent > 1 and brief.dbd_received > 0 and brief.full_state_count is None
    unknown = refused(lambda: https.control("ospfv3", "down", "two1"))
    assert "cannot find router" in "".join(unknown.errors)


def isis_has_lsps(client, ranges=2):
    """Whether both routers have the LSPs of the other. The second one has this number of ranges."""
    found = client.lsps()
    for number, other in ((1, 2), (2, 1)):
        wanted = {f"{other}0.20.20.1/32": 10, f"2001:db8:{100 + other}::/48": 11}
        lsps = found[f"isis{number}"]
        keys = {(f"{SYSTEM_IDS[other]}-00-00", level) for level in ("level_1", "level_2")}
        count = ranges if other == 2 else 2
        if set(lsps) != keys or any(
            len(wanted.items() & lsps[key].items()) != count for key in keys
        ):
            return False
    return True


@needs_frr
def test_routers_of_isis_have_the_lsps_of_each_other(running):
    https, grpc = running

    def up(client):
        return all(
            min(of.l1_sessions_up, of.l2_sessions_up) == 1
            and min(of.l1_database_size, of.l2_database_size) >= 2
            for of in client.metrics("isis").values()
        )

    https.otg.until(lambda: up(https), "sessions are up at both levels")
    https.otg.until(lambda: isis_has_lsps(https), "all routers have the LSPs of the others")
    assert up(grpc) and isis_has_lsps(grpc)


def test_traffic_between_ranges_arrives(running):
    https, _ = running
    https.otg.transmit("start")
    found = https.otg.finished()
    assert len(found) == (4 if has_frr() else 2)
    for name, of in found.items():
        assert (of.frames_tx, of.frames_rx) == (50, 50), name


def test_ranges_of_ospf_are_withdrawn_by_name(running):
    https, _ = running
    https.control("route", "withdraw", "e4-2", "r6-2")

    def withdrawn():
        two, three = https.lsas("ospfv2_lsas")["two1"], https.lsas("ospfv3_lsas")
        return (
            not two.external_as_lsas
            and len(two.network_summary_lsas) == 1
            and not prefixes(three["three1"])
            and prefixes(three["three2"])
        )

    https.otg.until(withdrawn, "ranges are withdrawn")


@needs_frr
def test_a_range_of_isis_is_withdrawn_and_announced_by_name(running):
    https, _ = running
    https.control("route", "withdraw", "s6-2")
    https.otg.until(lambda: isis_has_lsps(https, ranges=1), "a range is withdrawn")
    https.control("route", "advertise", "s6-2")
    https.otg.until(lambda: isis_has_lsps(https), "it is announced again")


def test_routers_are_taken_down_and_up_by_name(running):
    https, _ = running
    for protocol, name, column in [
        ("ospfv2", "two1", "full_state_count"),
        *([("isis", "isis1", "l2_sessions_up")] if has_frr() else []),
    ]:
        https.control(protocol, "down", name)
        https.otg.until(
            lambda protocol=protocol, name=name, column=column: (
                getattr(https.metrics(protocol)[name], column) == 0
            ),
            f"{name} is down",
        )
    assert not https.lsas("ospfv2_lsas")["two1"].router_lsas
    assert all(of.full_state_count == 1 for of in https.metrics("ospfv3").values())
    https.control("ospfv2", "up", "two1")
    if has_frr():
        assert not https.lsps()["isis1"]
        https.control("isis", "up", "isis1")
        https.otg.until(lambda: isis_has_lsps(https), "IS-IS is up, with all LSPs")
    https.otg.until(
        lambda: https.lsas("ospfv2_lsas")["two1"].router_lsas, "OSPF is up, and has learnt again"
    )


def test_what_daemons_cannot_do_is_refused_with_its_path(clients):
    for client in clients:
        config = client.otg.config()
        made = device(config, 1)
        made.ospfv2.name = "two"
        interface = made.ospfv2.interfaces.add(name="x", ipv4_name="ip4-1")
        interface.network_type.choice = "point_to_multipoint"
        made.isis.name, made.isis.system_id = "isis", SYSTEM_IDS[1]
        interface = made.isis.interfaces.add(eth_name="eth1", name="z")
        interface.authentication.auth_type = "md5"
        errors = refused(lambda config=config, client=client: client.api.set_config(config)).errors
        for path in (
            "devices[0].ospfv2.interfaces[0].network_type.point_to_multipoint: not supported",
            "devices[0].isis.interfaces[0].authentication: not supported",
        ):
            assert any(error.startswith(path) for error in errors), errors

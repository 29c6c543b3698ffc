#!/usr/bin/env python3
"""Devices and ports of Open Traffic Generator, driven by a stock snappi, against lldpd, Kea and
BIRD over a veth pair: lldpd has the LLDP instance as a neighbor until protocols stop, and the instance
has lldpd; Kea's file has the leases that the DHCPv6 client has, and none after the stop; BIRD has
the routes of the BGP sessions with their attributes, and the sessions have those of BIRD. It also
has the routes of the device's routers of OSPF, with their kinds and metrics.

Needs root, ip and snappi; parts need lldpd, kea-dhcp6 and bird; $SQUALL is target/debug/squall
unless set.
"""

import contextlib
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from flows import LOCAL, REMOTE, SQUALL, V4, V6, inside, network, wait
from host_services import neighbor_daemon, unpacked
from hosts import Kea
from tools import Failed, run, same

MAC = "02:53:00:00:00:07"
OWN, OWN6 = "10.77.0.9", "fd77::9"

BIRD = f"""
log "{{folder}}/bird.log" all;
router id 192.0.2.1;
protocol device {{{{ }}}}
protocol static {{{{ ipv4; route 203.0.113.0/24 blackhole; }}}}
protocol static {{{{ ipv6; route 2001:db8:f::/48 blackhole; }}}}
template bgp speaker {{{{
  passive on; graceful restart on;
  ipv4 {{{{ import all; export where source = RTS_STATIC; next hop self; add paths on; }}}};
  ipv6 {{{{ import all; export where source = RTS_STATIC; next hop self; }}}};
}}}}
protocol bgp b4 from speaker {{{{ local {V4} as 65002; neighbor {OWN} as 65001; }}}}
protocol bgp b6 from speaker {{{{ local {V6} as 65002; neighbor {OWN6} as 65002; }}}}
protocol ospf v2 o4 {{{{
  ipv4 {{{{ import all; export where source = RTS_STATIC; }}}};
  area 0 {{{{ interface "vb" {{{{ hello 1; dead 4; cost 10; }}}}; }}}};
}}}}
protocol ospf v3 o6 {{{{
  ipv6 {{{{ import all; export none; }}}};
  area 0 {{{{ interface "vb" {{{{ hello 1; dead 4; cost 10; }}}}; }}}};
}}}}
"""
# The ranges of the routers, and their kinds and metrics in BIRD, with that of its interface.
OSPF = {"10.50.0.0/24": "IA (150/20)", "10.51.0.0/24": "E1 (150/17)", "fd50::/48": "IA (150/21)"}


class Client:
    """snappi in the namespace of the daemon. It starts protocols, prints states as a line of JSON,
    waits for a line, stops the protocols, and prints metrics as another line."""

    def __init__(self, url, part):
        argv = inside(LOCAL, sys.executable, __file__, part, url)
        self.process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def next(self):
        line = self.process.stdout.readline()
        if not line.startswith("{"):
            raise Failed(f"the client printed {line!r}")
        return json.loads(line)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.process.stdin.close()
        self.process.wait(60)

    def stop(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.next()


@contextlib.contextmanager
def daemon(folder):
    """The URL of a daemon next to the interface va."""
    run("ip", "-n", LOCAL, "link", "set", "lo", "up")
    argv = [SQUALL, *"serve --listen 127.0.0.1:0 --grpc 127.0.0.1:0 --json --allow va".split()]
    with (folder / "daemon.log").open("w") as log:
        process = subprocess.Popen(
            inside(LOCAL, *argv, "--data", folder / "data"),
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        line = process.stdout.readline()
        if not line.startswith("{"):
            raise Failed(f"the daemon does not start: {(folder / 'daemon.log').read_text()}")
        yield json.loads(line)["https"]
    finally:
        process.terminate()
        process.wait(10)


def lldp_peers(folder, url, lldpd, environment):
    with neighbor_daemon(folder, lldpd, environment) as ask, Client(url, "lldp") as client:
        found = client.next()["neighbors"]

        def of_lldpd():
            entry = ask("show", "neighbors").get("lldp", {}).get("interface", {}).get("vb")
            return (entry or {}).get("chassis", {}).get("tester") and entry

        wait("lldpd has the neighbor", of_lldpd)
        entry = of_lldpd()
        chassis, port = entry["chassis"]["tester"], entry["port"]
        same("chassis", chassis["id"], {"type": "local", "value": "rack 4"})
        same("port", port["id"], {"type": "ifname", "value": "eth4"})
        same("time to live", port["ttl"], "60")
        own = ask("show", "chassis")["local-chassis"]["chassis"]
        ((name, own),) = own.items()
        same("neighbors", len(found), 1)
        same("name of lldpd", found[0]["system_name"], name)
        same("chassis of lldpd", found[0]["chassis_id"], own["id"]["value"])
        same("its kind", found[0]["chassis_id_type"], "mac_address")
        same("description of lldpd", found[0]["system_description"], own["descr"])
        counted = client.stop()
        same("frames with errors", (counted["frames_error_rx"], counted["tlvs_discard"]), (0, 0))
        wait("lldpd forgets the neighbor", lambda: not of_lldpd())


def dhcp_peers(folder, url):
    subnet = {
        "subnet": "fd77::/64",
        "pools": [{"pool": "fd77::1000 - fd77::1fff"}],
        "pd-pools": [{"prefix": "2001:db8:100::", "prefix-len": 40, "delegated-len": 56}],
    }
    with Kea(folder, 6, subnet) as kea, Client(url, "dhcp") as client:
        leases = client.next()["leases"]
        same("leases in Kea's file", {kind: at for (_, kind), at in kea.rows().items()}, leases)
        same("clients in Kea's file", {duid for duid, _ in kea.rows()}, {f"00:03:00:01:{MAC}"})
        counted = client.stop()
        same("refusals", counted["nacks_received"], 0)
        wait("Kea has no lease", lambda: not kea.rows())


def bgp_peers(folder, url, program, environment):
    config, control = folder / "bird.conf", folder / "bird.ctl"
    config.write_text(BIRD.format(folder=folder))
    environment = {**os.environ, **environment}
    bird = subprocess.Popen(
        inside(REMOTE, program, "-f", "-c", config, "-s", control), env=environment
    )
    birdc = pathlib.Path(program).with_name("birdc")

    def ask(*what):
        return run(birdc, "-s", control, *what, env=environment).stdout

    def ospf_routes():
        """Routes that OSPF has learnt from the device, with their kinds and metrics."""
        rows = [line.split() for line in ask("show", "route").splitlines() if " [o" in line]
        found = {row[0]: " ".join(row[-3:-1]) for row in rows}
        return {network: found[network] for network in OSPF if network in found}

    try:
        wait("BIRD starts", control.exists)
        with Client(url, "bgp") as client:
            learnt = client.next()["learnt"]
            # Paths to internal peers have no number.
            for name, path, preference in [("external", [65002], None), ("internal", [], 100)]:
                found = learnt[name]
                same(f"routes of {name}", sorted(found), ["2001:db8:f::/48", "203.0.113.0/24"])
                for network, (segments, local) in found.items():
                    same(f"path of {network}", segments, path)
                    same(f"local preference of {network}", local, preference)
            for network, expected in [
                ("198.51.100.0/24", ["BGP.as_path: 65001 1112", "BGP.med: 50", "BGP.origin: EGP"]),
                ("198.51.101.0/24", ["BGP.as_path: 65001 1112", "BGP.community: (1,2)"]),
                ("2001:db8:1::/48", ["BGP.local_pref: 70", f"BGP.next_hop: {OWN6}"]),
            ]:
                text = ask("show", "route", "all", network)
                for attribute in expected:
                    if attribute not in text:
                        raise Failed(f"{network}: no {attribute} in {text}")
            wait("BIRD has the routes of OSPF", lambda: ospf_routes() == OSPF)
            counted = client.stop()
            same("withdrawn routes", counted["route_withdraws_sent"], 0)
            # A router that ends flushes its LSAs.
            wait("BIRD has lost the routes of OSPF", lambda: not ospf_routes())
            wait("BIRD has no session", lambda: "Established" not in ask("show", "protocols"))
            if "198.51.100.0" in ask("show", "route"):
                raise Failed("BIRD still has a route")
        log = (folder / "bird.log").read_text()
        if "Received: Administrative shutdown" not in log:
            raise Failed(f"no CEASE in {log}")
    finally:
        bird.terminate()
        bird.wait(10)


def until(good):
    """Return the first true value, within a minute."""
    end = time.monotonic() + 60
    while not (found := good()):
        if time.monotonic() > end:
            raise Failed("waited for 60 s")
        time.sleep(0.1)
    return found


def client(part, url):
    """One part of the test, in the namespace of the daemon."""
    import snappi

    api = snappi.api(location=url, verify=False)
    config = api.config()
    config.ports.add(name="p1", location="va")
    {"lldp": lldp_config, "dhcp": dhcp_config, "bgp": bgp_config}[part](config)
    api.set_config(config)

    def protocols(state):
        control = api.control_state()
        control.protocol.all.state = state
        api.set_control_state(control)

    def states(kind):
        request = api.states_request()
        getattr(request, kind)  # This chooses it.
        return getattr(api.get_states(request), kind)

    def metrics(kind, member):
        request = api.metrics_request()
        getattr(request, kind)
        return getattr(api.get_metrics(request), member)[0].serialize("dict")

    protocols("start")
    if part == "lldp":
        found = until(lambda: states("lldp_neighbors"))
        shown = {"neighbors": [neighbor.serialize("dict") for neighbor in found]}
    elif part == "bgp":

        def learnt():
            peers = {peer.bgp_peer_name: routes_of(peer) for peer in states("bgp_prefixes")}
            return all(len(routes) == 2 for routes in peers.values()) and peers

        shown = {"learnt": until(learnt)}
        # BIRD announces a route of the static protocol, and its networks.
        until(lambda: "203.0.113.0" in str(states("ospfv2_lsas")[0].external_as_lsas))
    else:
        found = until(lambda: (of := states("dhcpv6_interfaces")[0]).ia_addresses and of)
        prefix = found.iapd_addresses[0].address
        shown = {"leases": {"0": found.ia_addresses[0].address, "2": prefix}}
    print(json.dumps(shown), flush=True)
    sys.stdin.readline()
    protocols("stop")
    kinds = {
        "lldp": ("lldp", "lldp_metrics"),
        "dhcp": ("dhcpv6_client", "dhcpv6client_metrics"),
        "bgp": ("bgpv4", "bgpv4_metrics"),
    }
    counted = metrics(*kinds[part])
    words = ["name", "session_state", "fsm_state"]
    counts = {key: value if key in words else int(value) for key, value in counted.items()}
    print(json.dumps(counts), flush=True)


def routes_of(peer):
    """The paths and local preferences of learnt routes by their networks."""
    ipv4 = [(route.ipv4_address, route) for route in peer.ipv4_unicast_prefixes]
    ipv6 = [(route.ipv6_address, route) for route in peer.ipv6_unicast_prefixes]
    return {
        f"{address}/{route.prefix_length}": (
            [number for segment in route.as_path.segments for number in segment.as_numbers],
            route.local_preference,
        )
        for address, route in ipv4 + ipv6
    }


def lldp_config(config):
    instance = config.lldp.add(name="lldp", hold_time=60, advertisement_interval=5)
    instance.connection.port_name = "p1"
    instance.chassis_id.local_subtype = "rack 4"
    instance.port_id.interface_name_subtype.value = "eth4"
    instance.system_name.value = "tester"


def bgp_config(config):
    device = config.devices.add(name="d1")
    ethernet = device.ethernets.add(name="eth1", mac=MAC)
    ethernet.connection.port_name = "p1"
    ethernet.ipv4_addresses.add(name="ip4", address=OWN, gateway=V4, prefix=16)
    ethernet.ipv6_addresses.add(name="ip6", address=OWN6, gateway=V6, prefix=64)
    device.bgp.router_id = "192.0.2.9"
    external = device.bgp.ipv4_interfaces.add(ipv4_name="ip4").peers.add(
        name="external", peer_address=V4, as_type="ebgp", as_number=65001
    )
    internal = device.bgp.ipv6_interfaces.add(ipv6_name="ip6").peers.add(
        name="internal", peer_address=V6, as_type="ibgp", as_number=65002
    )
    for peer in (external, internal):
        peer.learned_information_filter.set(unicast_ipv4_prefix=True, unicast_ipv6_prefix=True)
    external.capability.ipv4_unicast_add_path = True
    routes = external.v4_routes.add(name="r4")
    routes.addresses.add(address="198.51.100.0", prefix=24, count=2)
    routes.advanced.multi_exit_discriminator, routes.advanced.origin = 50, "egp"
    routes.communities.add(type="manual_as_number", as_number=1, as_custom=2)
    routes.as_path.as_set_mode = "prepend_to_first_segment"
    routes.as_path.segments.add(type="as_seq", as_numbers=[1112])
    routes = internal.v6_routes.add(name="r6")
    routes.addresses.add(address="2001:db8:1::", prefix=48)
    routes.advanced.local_preference = 70
    ospf_config(device)


def ospf_config(device):
    """A router of each version of OSPF, with routes of another area, and external ones."""
    two = device.ospfv2
    two.name, two.store_lsa = "two", True
    interface = two.interfaces.add(name="x", ipv4_name="ip4")
    three = device.ospfv3.instances.add(name="three")
    interface6 = three.interfaces.add(name="y", ipv6_name="ip6")
    for one in (interface, interface6):
        one.advanced.hello_interval, one.advanced.dead_interval = 1, 4
    two.v4_routes.add(name="o4", metric=10).addresses.add(address="10.50.0.0", prefix=24)
    external = two.v4_routes.add(name="e4", metric=7)
    external.addresses.add(address="10.51.0.0", prefix=24)
    external.route_origin.choice = "external_type_1"
    three.v6_routes.add(name="o6", metric=11).addresses.add(address="fd50::", prefix=48)


def dhcp_config(config):
    ethernet = config.devices.add(name="d1").ethernets.add(name="eth1", mac=MAC)
    ethernet.connection.port_name = "p1"
    ethernet.dhcpv6_interfaces.add(name="client").ia_type.ianapd.t1 = 302400


def main():
    if os.geteuid() != 0:
        print("SKIPPED: needs root for network namespaces")
        return
    if importlib.util.find_spec("snappi") is None:
        print("SKIPPED: snappi is not installed (scripts/setup python)")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        try:
            network()
            with daemon(folder) as url:
                lldpd, environment = unpacked("lldpd")
                if lldpd is None:
                    print("SKIPPED: lldpd is not installed (scripts/setup system)")
                else:
                    lldp_peers(folder, url, lldpd, environment)
                if unpacked("kea-dhcp6")[0] is None:
                    print("SKIPPED: kea-dhcp6 is not installed (scripts/setup system)")
                else:
                    dhcp_peers(folder, url)
                program, environment = unpacked("bird")
                if program is None:
                    print("SKIPPED: bird is not installed (scripts/setup system)")
                else:
                    bgp_peers(folder, url, program, environment)
        finally:
            for namespace in [LOCAL, REMOTE]:
                subprocess.run(["ip", "netns", "del", namespace], check=False)
    print("otg: neighbors, leases and routes as the peers have them")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        client(*sys.argv[1:])
    else:
        main()

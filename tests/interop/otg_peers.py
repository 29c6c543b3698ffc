#!/usr/bin/env python3
"""Devices and ports of Open Traffic Generator, driven by a stock snappi, against lldpd and Kea over
a veth pair: lldpd has the LLDP instance as a neighbor until protocols stop, and the instance has
lldpd; Kea's file has the leases that the DHCPv6 client has, and none after the stop.

Needs root, ip and snappi; parts need lldpd and kea-dhcp6; $SQUALL is target/debug/squall unless
set.
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

from flows import LOCAL, REMOTE, SQUALL, inside, network, wait
from host_services import neighbor_daemon, unpacked
from hosts import Kea
from tools import Failed, run, same

MAC = "02:53:00:00:00:07"


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
    {"lldp": lldp_config, "dhcp": dhcp_config}[part](config)
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
    else:
        found = until(lambda: (of := states("dhcpv6_interfaces")[0]).ia_addresses and of)
        prefix = found.iapd_addresses[0].address
        shown = {"leases": {"0": found.ia_addresses[0].address, "2": prefix}}
    print(json.dumps(shown), flush=True)
    sys.stdin.readline()
    protocols("stop")
    kind = ("lldp", "lldp_metrics") if part == "lldp" else ("dhcpv6_client", "dhcpv6client_metrics")
    counted = metrics(*kind)
    counts = {key: value if key == "name" else int(value) for key, value in counted.items()}
    print(json.dumps(counts), flush=True)


def lldp_config(config):
    instance = config.lldp.add(name="lldp", hold_time=60, advertisement_interval=5)
    instance.connection.port_name = "p1"
    instance.chassis_id.local_subtype = "rack 4"
    instance.port_id.interface_name_subtype.value = "eth4"
    instance.system_name.value = "tester"


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
        finally:
            for namespace in [LOCAL, REMOTE]:
                subprocess.run(["ip", "netns", "del", namespace], check=False)
    print("otg: neighbors and leases as the peers have them")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        client(*sys.argv[1:])
    else:
        main()

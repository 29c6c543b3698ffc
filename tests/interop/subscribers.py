#!/usr/bin/env python3
"""Subscribers: hosts that get their addresses from dnsmasq on a Linux router, each with HTTP flows to
nginx, which is behind the router, and a stream of frames. The router's nftables let only addresses of
its DHCP range pass. nginx's clients are dnsmasq's leases, its requests are the flows of the report, the
router receives the stream's frames from each lease in turn, and drops nothing. Other hosts with leases
are servers, from which curl gets a page each. With --full: 500 subscribers.

Needs root, nginx, dnsmasq, nft and curl; $SQUALL is target/debug/squall unless set.
"""

import collections
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

from flows import NGINX, SQUALL, inside, wait
from tools import Failed, run, same

LOCAL = f"sq-subs-{os.getpid()}"
ROUTER, WEB = f"{LOCAL}-router", f"{LOCAL}-web"
RULES = """
table inet subscribers {
  set senders {
    type ipv4_addr
    flags dynamic
    size 4096
  }
  chain forward {
    type filter hook forward priority 0; policy drop;
    iifname "ra" udp dport 9000 add @senders { ip saddr counter } drop
    ct state established counter accept
    iifname "ra" ip saddr 10.76.4.0/22 tcp dport 80 counter accept
    iifname "rc" ip daddr 10.76.4.0/22 tcp dport 80 counter accept
    counter comment "dropped"
  }
}
"""
PROFILE = """
duration = "{seconds} s"

[ports]
A = "af_packet:va"

[[host]]
name = "subscribers"
port = "A"
count = {count}
setup = "{rate}/s"
# dnsmasq offers an address again before it is requested: the later host gets a NAK.
restarts = 50

[[stream]]
name = "uplink"
port = "A"
src = "host:subscribers"
packet = "eth/ipv4(dst=10.79.0.2)/udp(dport=9000)"
rate = "{cps} pps"
start_delay = "{start} s"

[flows]
clients = "A"
max_delay = "60 s"

[[template]]
name = "web"
app = "http"
clients = "host:subscribers"
servers = "10.79.0.2"
cps = {cps}
start = "{start} s"
options = {{ url = "http://10.79.0.2/small", close = true }}
"""


SERVED = """
duration = "60 s"

[ports]
A = "af_packet:va"

[[host]]
name = "web"
port = "A"
count = 5
mac = "02:76:00:00:00:01"
release = true
restarts = 50

[flows]
servers = "A"

[[template]]
name = "pages"
app = "http-get"
play = "servers"
servers = "host:web"
"""


def link(a, namespace_a, b, namespace_b):
    peer = ["type", "veth", "peer", "name", b, "netns", namespace_b]
    run("ip", "link", "add", a, "netns", namespace_a, *peer)
    run("ip", "-n", namespace_a, "link", "set", a, "up")
    run("ip", "-n", namespace_b, "link", "set", b, "up")


def network(folder):
    for namespace in [LOCAL, ROUTER, WEB]:
        run("ip", "netns", "add", namespace)
        run(*inside(namespace, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1"))
        run(*inside(namespace, "sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1"))
    link("va", LOCAL, "ra", ROUTER)
    link("rc", ROUTER, "vc", WEB)
    run("ip", "-n", ROUTER, "addr", "add", "10.76.0.1/16", "dev", "ra")
    run("ip", "-n", ROUTER, "addr", "add", "10.79.0.1/24", "dev", "rc")
    run("ip", "-n", WEB, "addr", "add", "10.79.0.2/24", "dev", "vc")
    run("ip", "-n", WEB, "route", "add", "default", "via", "10.79.0.1")
    run(*inside(ROUTER, "sysctl", "-qw", "net.ipv4.ip_forward=1"))
    (folder / "rules").write_text(RULES)
    run(*inside(ROUTER, "nft", "-f", folder / "rules"))


def servers(folder, stack):
    """Start dnsmasq on the router, and nginx."""
    dnsmasq = [
        "dnsmasq",
        "--keep-in-foreground",
        "--conf-file=/dev/null",
        "--port=0",
        "--user=root",
        "--no-ping",
        f"--log-facility={folder / 'dnsmasq.log'}",
        f"--pid-file={folder / 'dnsmasq.pid'}",
        f"--dhcp-leasefile={folder / 'leases'}",
        "--dhcp-range=10.76.4.0,10.76.7.255,255.255.0.0,1h",
        "--dhcp-lease-max=2000",
        "--dhcp-authoritative",
        "--interface=ra",
    ]
    (folder / "www").mkdir()
    (folder / "www" / "small").write_bytes(os.urandom(100))
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder, more=""))
    folder.chmod(0o755)
    nginx = ["nginx", "-p", folder, "-c", folder / "nginx.conf", "-g", "user root;"]
    for namespace, argv in [(ROUTER, dnsmasq), (WEB, nginx)]:
        stack.append(subprocess.Popen(inside(namespace, *argv)))
    log = folder / "dnsmasq.log"
    wait("dnsmasq starts", lambda: log.exists() and "started" in log.read_text())
    wait("nginx listens", lambda: ":80 " in run(*inside(WEB, "ss", "-ltn")).stdout)


def counters():
    """Packets by the comment of their rule, or its last match."""
    table = run(*inside(ROUTER, "nft", "-j", "list", "table", "inet", "subscribers")).stdout
    found = {}
    for entry in json.loads(table)["nftables"]:
        rule = entry.get("rule")
        for part in rule["expr"] if rule else []:
            if "counter" in part:
                found[rule.get("comment", len(found))] = part["counter"]["packets"]
    return found


def senders():
    """The stream's frames that the router received, by their address."""
    listed = run(
        *inside(ROUTER, "nft", "-j", "list", "set", "inet", "subscribers", "senders")
    ).stdout
    sets = [entry["set"] for entry in json.loads(listed)["nftables"] if "set" in entry]
    elements = [one["elem"] for one in sets[0].get("elem", [])]
    return {one["val"]: one["counter"]["packets"] for one in elements}


def subscribers(folder, count):
    rate, cps = max(20, count // 4), max(40, count)
    # Enough for the leases of the last hosts, also on a busy machine.
    start = count / rate + 3
    profile, report = folder / "subscribers.toml", folder / "report.json"
    profile.write_text(
        PROFILE.format(count=count, rate=rate, cps=cps, start=start, seconds=start + 3)
    )
    run(*inside(LOCAL, SQUALL, "run", profile, "-q", "--json", report), ok=(0, 4))
    found = json.loads(report.read_text())
    group, flows = found["hosts"][0], found["flows"]["total"]["client"]
    same("subscribers", group["states"], {"bound": count})
    same("failed flows", (flows["failed"], flows["active"]), ({}, 0))
    same("flows that did not begin", set(flows["not_begun"]) - {"late"}, set())
    rows = [line.split() for line in (folder / "leases").read_text().splitlines()]
    leases = {fields[2] for fields in rows if len(fields) >= 3}
    same("leases", len(leases), count)
    clients = collections.Counter(
        line.split()[0] for line in (folder / "access.log").read_text().splitlines()
    )
    same("nginx's clients are the leases", set(clients), leases)
    same("requests", clients.total(), flows["completed"])
    if max(clients.values()) - min(clients.values()) > 1:
        raise Failed(f"clients did not take turns: {clients}")
    uplink, received = found["streams"][0], senders()
    same("senders of the stream are the leases", set(received), leases)
    same("frames of the stream", sum(received.values()), uplink["tx_packets"])
    same("frames not sent", set(uplink["not_sent"]) - {"late"}, set())
    if max(received.values()) - min(received.values()) > 1:
        raise Failed(f"hosts did not take turns: {received}")
    same("packets that the router dropped", counters()["dropped"], 0)


def leases_of(folder, mac):
    """Addresses that dnsmasq has leased to MAC addresses that begin with `mac`."""
    rows = [line.split() for line in (folder / "leases").read_text().splitlines()]
    return {fields[2] for fields in rows if len(fields) >= 3 and fields[1].startswith(mac)}


def served(folder):
    """Hosts are servers at the addresses that dnsmasq gives them, and give them back at the end."""
    profile, report = folder / "served.toml", folder / "served.json"
    profile.write_text(SERVED)
    argv = inside(LOCAL, SQUALL, "run", profile, "-q", "--json", report)
    hosts = "02:76:00:00:00"
    process = subprocess.Popen(argv)
    try:
        wait("the servers have leases", lambda: len(leases_of(folder, hosts)) == 5, 20)
        for address in sorted(leases_of(folder, hosts)):
            retries = ["--retry", 20, "--retry-delay", 1, "--retry-all-errors"]
            url = f"http://{address}/page"
            run(*inside(WEB, "curl", "-sSf", "--max-time", 30, *retries, "-o", "/dev/null", url))
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)
    found = json.loads(report.read_text())
    server = found["flows"]["total"]["server"]
    same("pages served", (server["completed"] >= 5, server["failed"]), (True, {}))
    same("servers", found["hosts"][0]["states"], {"released": 5})
    same("leases of servers at the end", leases_of(folder, hosts), set())


def main():
    if os.geteuid() != 0:
        return print("SKIPPED: needs root")
    for tool in ["nginx", "dnsmasq", "nft", "curl"]:
        if shutil.which(tool) is None:
            return print(f"SKIPPED: needs {tool}")
    count = 500 if "--full" in sys.argv[1:] else 20
    stack = []
    with tempfile.TemporaryDirectory(prefix="squall-subscribers-") as name:
        folder = pathlib.Path(name)
        try:
            network(folder)
            servers(folder, stack)
            subscribers(folder, count)
            served(folder)
        except Failed as failed:
            sys.exit(f"FAILED: {failed}")
        finally:
            for process in stack:
                process.terminate()
                process.wait(10)
            for namespace in [LOCAL, ROUTER, WEB]:
                subprocess.run(["ip", "netns", "del", namespace], check=False)
    print(
        f"subscribers: {count} by DHCP through a router with nftables, with flows to nginx; curl "
        "got pages of hosts with leases"
    )


if __name__ == "__main__":
    main()

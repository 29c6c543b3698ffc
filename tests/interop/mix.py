#!/usr/bin/env python3
"""One profile with every kind of source on one pair of ports, over a Linux router, with nginx as
another host: three streams with latency, a capture with its own timing, flows of three kinds to
nginx, and live attacks between hosts of the same pools. The counts of every source are exact, the
labels match tcpdump's capture, and no other frame counts as an attack.

Needs root, nginx and tcpdump; $SQUALL is target/debug/squall unless set.
"""

import collections
import csv
import ipaddress
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile

from flows import NGINX, inside, wait
from tools import Failed, run, same, slowness, wait_idle

ROOT = pathlib.Path(__file__).resolve().parents[2]
SQUALL = pathlib.Path(os.environ.get("SQUALL", ROOT / "target/debug/squall")).absolute()
LOCAL = f"sq-mix-{os.getpid()}"
ROUTER, WEB = f"{LOCAL}-router", f"{LOCAL}-web"
RULES = """
alert tcp $HOME_NET any -> $EXTERNAL_NET 7000 (msg:"word"; flow:established,to_server; content:"kookaburra"; sid:1;)
alert http $HOME_NET any -> $EXTERNAL_NET any (msg:"page"; flow:established,to_server; http.uri; content:"/squall-mix/"; sid:2;)
alert udp $HOME_NET any -> $EXTERNAL_NET 9000 (msg:"datagram"; content:"|01 02 03|"; depth:3; sid:3;)
"""
# Addresses of streams and of the capture. No host has them, so the router needs static neighbor
# entries.
STREAMS = {"10.76.9.1": "A", "10.78.9.1": "B"}


def link(a, namespace_a, b, namespace_b):
    peer = ["type", "veth", "peer", "name", b, "netns", namespace_b]
    run("ip", "link", "add", a, "netns", namespace_a, *peer)
    run("ip", "-n", namespace_a, "link", "set", a, "up")
    run("ip", "-n", namespace_b, "link", "set", b, "up")


def mac(namespace, name):
    return run(*inside(namespace, "cat", f"/sys/class/net/{name}/address")).stdout.strip()


def network():
    for namespace in [LOCAL, ROUTER, WEB]:
        run("ip", "netns", "add", namespace)
        run(*inside(namespace, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1"))
        run(*inside(namespace, "sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1"))
    link("va", LOCAL, "ra", ROUTER)
    link("vb", LOCAL, "rb", ROUTER)
    link("rc", ROUTER, "vc", WEB)
    for name, address in [("ra", "10.76.0.1/16"), ("rb", "10.78.0.1/16"), ("rc", "10.79.0.1/24")]:
        run("ip", "-n", ROUTER, "addr", "add", address, "dev", name)
    run("ip", "-n", WEB, "addr", "add", "10.79.0.2/24", "dev", "vc")
    run("ip", "-n", WEB, "route", "add", "default", "via", "10.79.0.1")
    run(*inside(ROUTER, "sysctl", "-qw", "net.ipv4.ip_forward=1"))
    for address, port in STREAMS.items():
        # Not the MAC address of the interface itself: af_xdp passes frames for that address to the
        # host if they have no signature.
        lladdr, router_port = f"02:00:00:00:09:0{port.lower()}", "ra" if port == "A" else "rb"
        station = ["neigh", "add", address, "lladdr", lladdr, "dev", router_port]
        run("ip", "-n", ROUTER, *station)


def stream(name, port, size, rate, count):
    source, destination = ["10.76.9.1", "10.78.9.1"][:: 1 if port == "A" else -1]
    gateway = mac(ROUTER, "ra" if port == "A" else "rb")
    return f"""
[[stream]]
name = "{name}"
port = "{port}"
packet = "eth(dst={gateway})/ipv4(src={source},dst={destination})/udp(sport=5000,dport=80)"
size = {size}
rate = "{rate}"
mode = {{ burst = {count} }}
latency = true
"""


PROFILE = """
[ports]
A = "{kind}:va"
B = "{kind}:vb"

[[replay]]
name = "again"
port = "A"
files = "again.pcap"
start = "300 ms"

[flows]
clients = "A"
max_delay = "60 s"
client_network = { gateway = "10.76.0.1" }

[[template]]
name = "small"
clients = "10.76.1.1-10.76.1.50"
servers = "10.79.0.2"
app = "http"
cps = 150
limit = 300
options = { url = "http://10.79.0.2/small", close = true }

[[template]]
name = "page"
clients = "10.76.1.1-10.76.1.50"
servers = "10.79.0.2"
app = "http"
cps = 40
limit = 80
options = { url = "http://10.79.0.2/page", requests = 5 }

[[template]]
name = "users"
clients = "10.76.2.1-10.76.2.10"
servers = "10.79.0.2"
app = "http"
users = 5
limit = 60
options = { url = "http://10.79.0.2/page" }

[[attack]]
rules = "mix.rules"
port = "A"
port2 = "B"
rate = 30
repeat = 17
variables = { HOME_NET = "10.76.1.0/24", EXTERNAL_NET = "10.78.1.0/24" }
inside = "10.76.1.1-10.76.1.50"
outside = "10.78.1.1-10.78.1.5"
server_network = { gateway = "10.78.0.1" }
"""
# Expected streams: name, port, size, rate, frames.
WANTED = [
    ("there", "A", 128, "4 kpps", 8000),
    ("back", "B", 256, "2 kpps", 4000),
    ("large", "A", 1400, "200 pps", 400),
]
REPLAYED, ATTACKS = 1000, 51


class Frame:
    """A captured frame: its time, and the addresses of both ends."""

    def __init__(self, at, octets):
        self.at, self.protocol, self.ends = at, None, None
        if octets[12:14] == b"\x08\x00":
            head = 14 + (octets[14] & 15) * 4
            self.protocol = octets[23]
            ports = struct.unpack_from("!HH", octets, head) if self.protocol in (6, 17) else (0, 0)
            hosts = [str(ipaddress.ip_address(octets[i : i + 4])) for i in (26, 30)]
            self.ends = (hosts[0], ports[0], hosts[1], ports[1])


def frames(path):
    octets = path.read_bytes()
    order = "<" if octets[:4] in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1") else ">"
    parts = 1e9 if octets[:4] in (b"\x4d\x3c\xb2\xa1", b"\xa1\xb2\x3c\x4d") else 1e6
    at = 24
    while at + 16 <= len(octets):
        seconds, part, length, _ = struct.unpack_from(f"{order}IIII", octets, at)
        yield Frame(seconds + part / parts, octets[at + 16 : at + 16 + length])
        at += 16 + length


def mixed(folder, kind):
    (folder / "mix.rules").write_text(RULES)
    gateway = mac(ROUTER, "ra")
    packet = f"eth(dst={gateway})/ipv4(src=10.76.9.1,dst=10.78.9.1)/udp(sport=7,dport=9)/zeros(50)"
    again = ["--port", f"pcap:{folder}/again.pcap", "--packet", packet]
    run(SQUALL, "send", *again, "--rate", "1 kpps", "--count", REPLAYED, "-q", "--force")
    profile, report, truth = folder / "mix.toml", folder / "report.json", folder / "truth.csv"
    ports = PROFILE.replace("{kind}", kind)
    profile.write_text(ports + "".join(stream(*one) for one in WANTED))
    (folder / "access.log").write_text("")
    capture = folder / "mix.pcap"
    # On the router's side: a tap does not see frames that its own interface sends without a qdisc.
    listen = ["tcpdump", "-i", "ra", "-w", capture, "-s", "96", "-B", "65536", "--immediate-mode"]
    tcpdump = subprocess.Popen(
        inside(ROUTER, *listen), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        while "listening" not in tcpdump.stderr.readline():
            if tcpdump.poll() is not None:
                raise Failed("tcpdump does not start")
        run(*inside(LOCAL, SQUALL, "run", profile, "-q", "--json", report, "--labels", truth))
        wait_idle(tcpdump)
    finally:
        tcpdump.terminate()
        tcpdump.wait()
    report = json.loads(report.read_text())
    for source in report["sources"]:
        same(f"{source['name']}: sent", source["sent"], source["asked"])
    for name, _, _, _, count in WANTED:
        one = next(one for one in report["streams"] if one["name"] == name)
        seen = (one["tx_packets"], one["rx"]["packets"], one["rx"]["lost"], one["rx"]["duplicates"])
        same(name, seen, (count, count, 0, 0))
        same(f"{name}: delays", one["rx"]["latency_ns"]["count"], count)
    same(
        "replayed",
        [(one["name"], one["packets"]) for one in report["replays"]],
        [("again", REPLAYED)],
    )
    templates = {one["name"]: one["client"] for one in report["flows"]["templates"]}
    asked = {"small": (300, 1), "page": (80, 5), "users": (60, 1)}
    for name, (flows, requests) in asked.items():
        role = templates[name]
        found = (role["attempted"], role["completed"], role["failed"], role["http"])
        same(name, found, (flows, flows, {}, {"2xx": flows * requests}))
    log = re.findall(r'"GET (\S+) HTTP/1.1" (\d+)', (folder / "access.log").read_text())
    expected = {("/small", "200"): 300, ("/page", "200"): 80 * 5 + 60}
    same("nginx says", dict(collections.Counter(log)), expected)
    passage = report["attacks"][0]["passage"]
    same("attacks passed", (passage["passed"], passage["conversations"]), (ATTACKS, ATTACKS))
    # Frames that belong to neither a stream nor a host are those of the capture.
    unsigned = sum(port["rx"]["unsigned_packets"] for port in report["ports"])
    same("of nobody", unsigned, REPLAYED)
    for port, interface in [("A", "va"), ("B", "vb")]:
        one = next(one for one in report["ports"] if one["name"] == port)
        for way in ["tx", "rx"]:
            # The kernel counts a GSO frame as one.
            whole = one[way]["packets"] - one[way]["segments"] + one[way]["gso_frames"]
            same(f"{interface} {way}", whole, one["interface"][f"{way}_packets"])
    labelled(list(csv.DictReader(truth.open())), list(frames(capture)))


def labelled(labels, seen):
    """Check that each attack is in the capture with the addresses and time of its label, and that
    there are no other frames between these ends.
    """
    same("labels", len(labels), ATTACKS)
    first = {}
    for frame in seen:
        first.setdefault((frame.protocol, frame.ends), frame.at)
    attacks = set()
    for label in labels:
        ends = (
            label["source"],
            int(label["source_port"]),
            label["destination"],
            int(label["destination_port"]),
        )
        at = first.get((int(label["protocol"]), ends))
        if at is None:
            raise Failed(f"no frame of {label}")
        if not -0.05 < at - float(label["begin"]) < slowness():
            raise Failed(f"{at - float(label['begin']):.3f} s behind its label: {label}")
        attacks |= {(int(label["protocol"]), ends), (int(label["protocol"]), ends[2:] + ends[:2])}
    attacked = ipaddress.ip_network("10.78.1.0/24")
    for frame in seen:
        if frame.protocol not in (6, 17) or (frame.protocol, frame.ends) in attacks:
            continue
        if any(ipaddress.ip_address(frame.ends[i]) in attacked for i in (0, 2)):
            raise Failed(f"between attacked hosts, and of no attack: {frame.ends}")


def prints(folder):
    """Check that the frames over veth equal those in a file, except for the times in signatures."""
    found = {}
    for kind in ["pcap", "af_packet", "af_xdp"]:
        address = f"pcap:{folder}/prints.pcap" if kind == "pcap" else f"{kind}:va"
        profile, report = folder / "prints.toml", folder / "prints.json"
        streams = "".join(stream(*one) for one in WANTED if one[1] == "A")
        profile.write_text(
            f'[ports]\nA = "{address}"\n[[replay]]\nname = "again"\nfiles = "again.pcap"\n'
            f'[[attack]]\nrules = "mix.rules"\nrate = 30\n{streams}'
        )
        command = [SQUALL, "run", profile, "-q", "--fingerprint", "--json", report]
        run(*inside(LOCAL, *command))
        tx = json.loads(report.read_text())["ports"][0]["tx"]
        found[kind] = (tx["packets"], tx["fingerprint"])
    same("fingerprints", len(set(found.values())), 1)


def main():
    if os.geteuid() != 0:
        return print("SKIPPED: needs root")
    for tool in ["nginx", "tcpdump"]:
        if shutil.which(tool) is None:
            return print(f"SKIPPED: needs {tool}")
    with tempfile.TemporaryDirectory(prefix="squall-mix-") as name:
        folder = pathlib.Path(name)
        (folder / "www").mkdir()
        for file, octets in [("small", 100), ("page", 32 * 1024)]:
            (folder / "www" / file).write_bytes(os.urandom(octets))
        (folder / "nginx.conf").write_text(NGINX.format(folder=folder, more=""))
        os.chmod(folder, 0o755)
        nginx = None
        try:
            network()
            argv = ["nginx", "-p", folder, "-c", folder / "nginx.conf", "-g", "user root;"]
            nginx = subprocess.Popen(inside(WEB, *argv))
            listening = lambda: ":80 " in run(*inside(WEB, "ss", "-ltn")).stdout
            wait("nginx listens", lambda: nginx.poll() is not None or listening())
            if nginx.poll() is not None:
                raise Failed("nginx does not listen")
            mixed(folder, "af_packet")
            print("ok: streams, a capture, flows to nginx and live attacks by one pair of ports")
            mixed(folder, "af_xdp")
            prints(folder)
        except Failed as failed:
            sys.exit(f"FAILED: {failed}")
        finally:
            if nginx:
                nginx.terminate()
                nginx.wait(10)
            for namespace in [LOCAL, ROUTER, WEB]:
                subprocess.run(["ip", "netns", "del", namespace], check=False)
    print("ok: the same by af_xdp; and the same octets by either, and to a file")


if __name__ == "__main__":
    main()

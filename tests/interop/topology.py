#!/usr/bin/env python3
"""Labs of several nodes (squall lab up --topology): the topologies of docs/guide/labs.md carry
packets, a cut link moves them to another way, by OSPF and by static routes, as the counters of the
interfaces show; errors have a place; and nothing is left, whichever process of a lab is killed.
The chain is also made as another user.

Parts need bird; $SQUALL is target/debug/squall unless set.
"""

import concurrent.futures
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from host_services import unpacked
from tools import Failed, background, run, same

ROOT = pathlib.Path(__file__).resolve().parents[2]
SQUALL = os.environ.get("SQUALL") or str(ROOT / "target/debug/squall")
GUIDE = ROOT / "docs/guide/labs.md"
OTHER_USER = 65534
# Only a machine that is very busy takes this long.
LIMIT_S = 60
NUMBERS = itertools.count()
# Python of the system: the other user may not have permission to read that of this script.
PYTHON = shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable

# Sends echo requests to an address, one after the other. Ends with 1 if one has no answer within a
# second; otherwise it prints the shortest round trip in milliseconds.
PING = """
import socket, struct, sys, time
address, count = sys.argv[1], int(sys.argv[2])
v6 = ":" in address
family, protocol = (socket.AF_INET6, 58) if v6 else (socket.AF_INET, 1)
request, reply = (128, 129) if v6 else (8, 0)
echo = socket.socket(family, socket.SOCK_RAW, protocol)
fastest = 1e9
for number in range(count):
    head = struct.pack(">BBHHH", request, 0, 0, 77, number)
    # The kernel makes the checksum of ICMPv6.
    total = sum(struct.unpack(">4H", head))
    total = ~(total + (total >> 16)) & 0xFFFF
    head = head[:2] + (b"\\0\\0" if v6 else struct.pack(">H", total)) + head[4:]
    sent = time.monotonic()
    try:
        echo.sendto(head, (address, 0))
        while True:
            echo.settimeout(max(0.001, sent + 1 - time.monotonic()))
            got = echo.recv(2000)
            got = got if v6 else got[(got[0] & 15) * 4 :]
            if got[0] == reply and got[4:8] == head[4:8]:
                break
            if time.monotonic() > sent + 1:
                sys.exit(1)
    except OSError:
        sys.exit(1)
    fastest = min(fastest, time.monotonic() - sent)
print(fastest * 1e3)
"""


def wait(what, condition, seconds=LIMIT_S):
    until = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > until:
            raise Failed(f"{what}: not within {seconds} s")
        time.sleep(0.05)
    return found


def topologies(folder):
    """Write the topologies of the guide to files, and return their paths by name."""
    blocks = re.findall(r"```toml\n# (\S+\.toml)\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    for name, text in blocks:
        (folder / name).write_text(text)
    return {name.removesuffix(".toml"): folder / name for name, _ in blocks}


class Lab:
    """A lab that is up inside a with block."""

    def __init__(self, topology, squall=SQUALL, **options):
        self.topology, self.squall, self.options = topology, squall, options
        self.name = f"{pathlib.Path(topology).stem}-{os.getpid()}-{next(NUMBERS)}"

    def run(self, *argv, ok=(0,)):
        return run(self.squall, "lab", *argv, ok=ok, **self.options)

    def inside(self, node, *argv, ok=(0,)):
        return self.run("exec", self.name, "--node", node, "--", *argv, ok=ok)

    def status(self):
        return json.loads(self.run("status", self.name, "--json", "-").stdout)

    def link(self, end, state):
        self.run("link", end, state, "--lab", self.name)

    def interface(self, end):
        node, interface = end.split(":")
        found = next(one for one in self.status()["nodes"] if one["name"] == node)
        return next(one for one in found["interfaces"] if one["name"] == interface)

    def pings(self, node, address, count=1):
        """Whether all echo requests are answered."""
        argv = [PYTHON, "-c", PING, address, count]
        return self.inside(node, *argv, ok=(0, 1)).returncode == 0

    def __enter__(self):
        self.state = json.loads(
            self.run("up", self.name, "--topology", self.topology, "--json", "-").stdout
        )
        return self

    def __exit__(self, *_):
        self.run("down", self.name, ok=(0, 2))


def a_chain(path, **options):
    with Lab(path, **options) as lab:
        same("nodes", [node["name"] for node in lab.state["nodes"]], ["h1", "r1", "r2", "h2"])
        same("links", [link["up"] for link in lab.state["links"]], [True] * 3)
        for address in ["10.0.3.2", "2001:db8:3::2"]:
            wait(f"answers of {address}", lambda at=address: lab.pings("h1", at, 5))
        # A cut link: the other end notices. Addresses of IPv6 and static routes come back with it.
        lab.link("r1:eth1", "down")
        wait("r2 has no carrier", lambda: lab.interface("r2:eth0")["state"] == "no carrier")
        same("state", lab.interface("r1:eth1")["state"], "down")
        same("links", [link["up"] for link in lab.status()["links"]], [True, False, True])
        same("an answer over a cut link", lab.pings("h1", "10.0.3.2"), False)
        lab.link("r1:eth1", "up")
        both = ["10.0.3.2", "2001:db8:3::2"]
        wait("both answer again", lambda: all(lab.pings("h1", address) for address in both))
        unknown = lab.run("exec", lab.name, "--node", "r9", "--", "true", ok=(2,)).stderr
        if 'no node "r9"; it has h1, r1, r2, h2' not in unknown:
            raise Failed(unknown)
        unknown = lab.run("link", "r1:eth9", "down", "--lab", lab.name, ok=(2,)).stderr
        if 'no interface "eth9"; it has eth0, eth1' not in unknown:
            raise Failed(unknown)
        again = lab.run("up", lab.name, "--topology", path, ok=(2,)).stderr
        if "it is up already" not in again:
            raise Failed(again)


# Ways of two-paths.toml: the interfaces of r1.
SHORT, LONG = "r1:eth1", "r1:eth2"
PINGS = 20


def way(lab):
    """Return the interface of r1 by which echo requests from h1 to h2 leave, or None while not all
    of them are answered."""
    before = [lab.interface(end)["tx_packets"] for end in [SHORT, LONG]]
    if not lab.pings("h1", "10.0.4.2", PINGS):
        return None
    after = [lab.interface(end)["tx_packets"] for end in [SHORT, LONG]]
    # Other packets are those of OSPF, at most a few in this time.
    used = [end for end, a, b in zip([SHORT, LONG], before, after) if b - a >= PINGS]
    return used[0] if len(used) == 1 else None


def two_ways(path, **options):
    with Lab(path, **options) as lab:
        wait("OSPF uses the short way", lambda: way(lab) == SHORT)
        protocols = next(one for one in lab.status()["nodes"] if one["name"] == "r1")["daemon"]
        (ospf,) = protocols["protocols"]
        same("protocol", (ospf["kind"], ospf["up"]), ("OSPF", True))
        if ospf["routes_learnt"] < 4:
            raise Failed(f"routes of r1: {ospf}")
        lab.link(SHORT, "down")
        wait("OSPF uses the long way", lambda: way(lab) == LONG)
        before = lab.interface("r2:eth0")["rx_packets"]
        wait("answers over the long way", lambda: lab.pings("h1", "10.0.4.2", PINGS))
        same("packets on the cut way", lab.interface("r2:eth0")["rx_packets"] - before, 0)


def a_second_choice(text, folder):
    """Static routes with metrics, in place of OSPF: the kernel itself takes the other way."""
    routes = {
        "r1": ["10.0.4.0/24 via 10.0.12.2", "10.0.4.0/24 via 10.0.13.3 metric 20"],
        "r2": ["10.0.4.0/24 via 10.0.24.4", "10.0.1.0/24 via 10.0.12.1"],
        "r3": ["10.0.4.0/24 via 10.0.34.4", "10.0.1.0/24 via 10.0.13.1"],
        "r4": ["10.0.1.0/24 via 10.0.24.2", "10.0.1.0/24 via 10.0.34.3 metric 20"],
    }
    for name, of_node in routes.items():
        ospf = f'name = "{name}"\nkind = "router"\nospf = "0.0.0.0"'
        if ospf not in text:
            raise Failed(f"the guide has no router {name}")
        own = f'name = "{name}"\nkind = "router"\nroutes = {json.dumps(of_node)}'
        text = text.replace(ospf, own)
    path = folder / "static.toml"
    path.write_text(text.replace("cost = 100\n", ""))
    with Lab(path) as lab:
        wait("r1 uses the short way", lambda: way(lab) == SHORT)
        # r4 has to change, too: its link to r2 is cut as well, at the end of r2.
        lab.link("r2:eth1", "down")
        lab.link("r2:eth0", "down")
        wait("r1 uses the long way", lambda: way(lab) == LONG)
        lab.link("r2:eth0", "up")
        lab.link("r2:eth1", "up")
        wait("r1 uses the short way again", lambda: way(lab) == SHORT)


def subscribers(path):
    with Lab(path) as lab:
        wait("an answer of the server", lambda: lab.pings("subscriber", "10.0.2.2", 3))
        details = lab.inside("access", "ip", "-d", "-j", "link", "show", "dev", "br0").stdout
        bridge = json.loads(details)[0]["linkinfo"]["info_data"]
        same("snooping", (bridge["mcast_snooping"], bridge["mcast_querier"]), (1, 1))
        shaped = lab.inside("edge", "tc", "qdisc", "show", "dev", "eth0").stdout
        if "tbf" not in shaped or "100Mbit" not in shaped:
            raise Failed(f"the rate of edge:eth0: {shaped}")
        arguments = "hosts ping -i veth-a --address 10.0.1.100/24 --gateway 10.0.1.1 --count 50"
        argv = [SQUALL, *arguments.split(), "--to", "10.0.2.2", "--rate", "1000", "--quiet"]
        before = lab.interface("server:eth0")["rx_packets"]
        done = lab.run("exec", lab.name, "--", *argv, "--requests", 2, "--json", "-", ok=(0, 4))
        (group,) = json.loads(done.stdout)["hosts"]
        echo = group["echo"]
        same("echo requests", (echo["sent"], echo["received"] + echo["lost"]), (100, 100))
        # A reply may be late on a busy machine, but the server has got the request.
        if echo["received"] < 50 or lab.interface("server:eth0")["rx_packets"] - before < 100:
            raise Failed(f"echo requests of emulated subscribers: {echo}")


FAULTY = """
[[node]]
name = "a"
kind = "host"
sysctl = "net.ipv4.tcp_sack=0"

[[node]]
name = "b"
kind = "host"

[[link]]
ends = ["a:eth0 10.0.0.1/24", "b:eth0 10.0.0.2/24"]
faults = "delay=20ms"
"""
SERVE = """
import socket
server = socket.create_server(("10.0.0.2", 7))
print("ready", flush=True)
connection, _ = server.accept()
while data := connection.recv(65536):
    connection.sendall(data)
"""
TALK = """
import socket
data = bytes(range(256)) * 400
with socket.create_connection(("10.0.0.2", 7), timeout=30) as connection:
    connection.sendall(data)
    connection.shutdown(socket.SHUT_WR)
    back = b""
    while part := connection.recv(65536):
        back += part
print(back == data)
"""


def a_link_with_faults(folder):
    path = folder / "faulty.toml"
    path.write_text(FAULTY)
    with Lab(path) as lab:
        # The first request waits for ARP.
        fastest = float(lab.inside("a", PYTHON, "-c", PING, "10.0.0.2", 3).stdout)
        if fastest < 40:
            raise Failed(f"round trip of {fastest} ms over a link of 20 ms each way")
        same("sysctl", lab.inside("a", "cat", "/proc/sys/net/ipv4/tcp_sack").stdout, "0\n")
        # TCP's segments have complete checksums, which the forwarder does not make.
        python = [PYTHON, "-c"]
        serve = [SQUALL, "lab", "exec", lab.name, "--node", "b", "--", *python, SERVE]
        with background(serve, stdout=subprocess.PIPE, text=True) as server:
            same("server", server.stdout.readline(), "ready\n")
            same("TCP", lab.inside("a", *python, TALK).stdout, "True\n")
        [link] = lab.status()["links"]
        same("a link with a forwarder", (link["up"], link.get("reason")), (True, None))
        pid, _ = (pathlib.Path(link["log"]).parent / "process").read_text().split()
        os.kill(int(pid), signal.SIGKILL)
        is_down = lambda: not lab.status()["links"][0]["up"]
        wait("a link whose forwarder was killed is down", is_down)
        shown = lab.run("status", lab.name).stdout
        if "link a:eth0 - b:eth0 is down: its forwarder has ended: see /" not in shown:
            raise Failed(shown)


def mistakes(folder):
    wrong = FAULTY.replace("b:eth0", "c:eth0").replace("20ms", "20 parsecs")
    for text, expected in [
        (wrong, 'wrong.toml:12:31  link 1: end "c:eth0 10.0.0.2/24" has the unknown node "c"'),
        (FAULTY.replace("delay=20ms", "delay=20 parsecs"), "wrong.toml:13:10  link 1: faults"),
        (FAULTY.replace("10.0.0.2", "10.0.0.1"), "10.0.0.1, which is already that of a:eth0"),
    ]:
        path = folder / "wrong.toml"
        path.write_text(text)
        found = run(SQUALL, "lab", "up", "never-made", "--topology", path, ok=(2,)).stderr
        if expected not in found or "\n  " not in found:
            raise Failed(f"expected {expected} and what to try:\n{found}")
    # A configuration that BIRD refuses is an error of the whole lab, of which nothing remains.
    (folder / "bad.conf").write_text("protocol nonsense {}\n")
    path.write_text('[[node]]\nname = "r"\nkind = "router"\nconfig = "bad.conf"\n')
    if shutil.which("bird"):
        name = f"refused-{os.getpid()}"
        environment = os.environ | unpacked("bird")[1]
        found = run(SQUALL, "lab", "up", name, "--topology", path, ok=(3,), env=environment).stderr
        if "cannot set up node r" not in found or "syntax error" not in found:
            raise Failed(found)
        wait("the processes of a refused lab end", lambda: not holders(name))


def holders(name):
    """Return the processes whose command line contains a name."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if name.encode() in (process / "cmdline").read_bytes().split(b"\0"):
                found.append(process.name)
        except OSError:
            pass
    return found


def tree(pid):
    """Return a process and its descendants."""
    all_of, at = [pid], 0
    while at < len(all_of):
        children = pathlib.Path(f"/proc/{all_of[at]}/task/{all_of[at]}/children")
        try:
            all_of += map(int, children.read_text().split())
        except OSError:
            pass
        at += 1
    return all_of


def lives(pid):
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def wait_for_end(processes):
    wait("the processes end", lambda: not any(map(lives, processes)))


def nothing_is_left(path, **options):
    for killed in ["a node", "the lab"]:
        with Lab(path, **options) as lab:
            lab_process = lab.state["process"]
            processes = tree(lab_process)
            nodes = [node["process"] for node in lab.state["nodes"]]
            if not set(nodes) < set(processes):
                raise Failed(f"nodes {nodes}, processes {processes}")
            victim = nodes[1] if killed == "a node" else lab_process
            gone = tree(victim)
            os.kill(victim, signal.SIGKILL)
            wait_for_end(gone)
            if killed == "a node":
                status = lab.status()
                same("runs", [one["runs"] for one in status["nodes"]].count(False), 1)
                ended = lab.inside("r1", "true", ok=(2,)).stderr
                if "has ended" not in ended:
                    raise Failed(ended)
                lab.run("down", lab.name)
            else:
                lab.run("down", lab.name, ok=(2,))
            wait_for_end(processes)
            if lab.name in lab.run("list").stdout:
                raise Failed("the lab is listed")
            folders = [pathlib.Path(f"/tmp/squall-{os.getuid()}")]
            if runtime := os.environ.get("XDG_RUNTIME_DIR"):
                folders.append(pathlib.Path(runtime) / "squall")
            left = [str(one) for folder in folders for one in folder.glob(f"*{lab.name}*")]
            same("files of the lab", left, [])


def has_labs(squall, name_of_user, **options):
    """Whether the user can make labs on this machine."""
    name = f"probe-{os.getpid()}"
    up = run(squall, "lab", "up", name, ok=(0, 3), **options)
    if up.returncode == 3:
        print(f"SKIPPED: no lab for {name_of_user}: {up.stderr.strip()}")
        return False
    run(squall, "lab", "down", name, **options)
    return True


def as_other_user(topology):
    """Make the chain as another user, with copies of the files."""
    with tempfile.TemporaryDirectory() as temporary:
        place = pathlib.Path(temporary)
        place.chmod(0o755)
        squall = shutil.copy(SQUALL, place / "squall")
        path = shutil.copy(topology, place / "chain.toml")

        account = {"user": OTHER_USER, "group": OTHER_USER, "extra_groups": []}
        options = {"env": {"PATH": os.environ["PATH"]}, "cwd": "/", **account}
        if has_labs(squall, "nobody", **options):
            a_chain(path, squall=squall, **options)


def main():
    if not shutil.which("ip"):
        print("SKIPPED: ip is not installed (apt-get install iproute2)")
        return
    with tempfile.TemporaryDirectory(prefix="squall-topology-") as temporary:
        folder = pathlib.Path(temporary)
        paths = topologies(folder)
        same("topologies of the guide", sorted(paths), ["chain", "subscribers", "two-paths"])
        if not has_labs(SQUALL, f"user {os.getuid()}"):
            return
        bird, environment = unpacked("bird")
        options = {"env": os.environ | environment}
        # OSPF waits most of its time: a router changes its announcements at most every 5 s.
        with concurrent.futures.ThreadPoolExecutor(1) as executor:
            if bird:
                ospf = executor.submit(two_ways, paths["two-paths"], **options)
            a_chain(paths["chain"])
            mistakes(folder)
            a_second_choice(paths["two-paths"].read_text(), folder)
            subscribers(paths["subscribers"])
            a_link_with_faults(folder)
            if bird:
                nothing_is_left(paths["two-paths"], **options)
            else:
                print("SKIPPED: bird is not installed (scripts/setup system)")
                nothing_is_left(paths["chain"])
            if os.getuid() == 0:
                as_other_user(paths["chain"])
            if bird:
                ospf.result()
    print("topology: labs of nodes carry packets, change ways, and leave nothing")


if __name__ == "__main__":
    try:
        main()
    except Failed as error:
        print(f"FAILED: {error}")
        sys.exit(1)

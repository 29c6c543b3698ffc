#!/usr/bin/env python3
"""Native routers of squall (daemon = "native") against BIRD and ExaBGP over a veth pair: BIRD has the
routes of several routers with their attributes, also after steps, and gets a CEASE at the end of the
run. ExaBGP has the routes and their withdrawal. The report has the sessions and the routes of both.

With --full also a million routes to BIRD, and a thousand sessions between two ports in memory.

Needs root and ip; parts need bird and exabgp; $SQUALL is target/debug/squall unless set.
"""

import ipaddress
import json
import os
import pathlib
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time

import exabgp
from flows import LOCAL, REMOTE, SQUALL, V4, inside, network, wait
from host_services import unpacked
from hosts import server
from routers import birdc
from tools import Failed, run, same

FIRST, ROUTERS = 9, 3
PEERS = "203.0.113.0/24"


def peer(routers):
    """A configuration of BIRD with a session for each router."""
    sessions = "".join(
        f"protocol bgp b{number} {{ local {V4} as 65100; neighbor 10.77.0.{FIRST + number} as "
        f"{65001 + number}; passive on; error wait time 1, 2;\n  ipv4 {{ import all; export where source = RTS_STATIC; }}; }}\n"
        for number in range(routers)
    )
    return (
        f"log stderr all;\nrouter id {V4};\nprotocol device {{ scan time 1; }}\n"
        f"protocol static {{ ipv4; route {PEERS} blackhole; }}\n{sessions}"
    )


def profile(routers, seconds, more):
    return f"""
duration = "{seconds} s"
[ports]
A = "af_packet:va"
[[router]]
name = "r1"
daemon = "native"
count = {routers}
asn_step = 1
ipv4 = "10.77.0.{FIRST}/16"
asn = 65001
neighbors = "{V4} as 65100"
{more}"""


STEPS = """
med = 7
prepend = 1
communities = "65001:42"
routes = "16.0.0.0/24 x 1000"
[[router.group]]
name = "edge"
routes = "198.51.100.0/32 x 100"
as_path = "4200000001"
[[router.group]]
name = "dump"
routes = "mrt:dump"
attributes = "mrt"
[[router.step]]
at = "5 s"
action = "withdraw"
group = "edge"
count = 30
[[router.step]]
at = "8 s"
action = "notify"
code = 6
subcode = 4
duration = "1 s"
"""


def dump():
    """An MRT file (RFC 6396) with 100.100.0.0/24 to 100.100.2.0/24 of a peer. The first and the last have
    the same attributes."""

    def record(subtype, body):
        return struct.pack(">IHHI", 0, 13, subtype, len(body)) + body

    def route(third, attributes):
        entry = struct.pack(">HIH", 0, 0, len(attributes)) + attributes
        return record(2, bytes([0, 0, 0, 0, 24, 100, 100, third, 0, 1]) + entry)

    peers = bytes([0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 10, 0, 0, 1, 0, 0, 0xFD, 0xE8])
    origin, path = [0x40, 1, 1, 1], [0x40, 2, 12, 2, 1, 0, 0, 0, 7, 1, 1, 0, 0, 0, 9]
    next_hop, med = [0x40, 3, 4, 10, 0, 0, 1], [0x80, 4, 4, 0, 0, 0, 5]
    community = [0xC0, 8, 4, 0, 1, 0, 2]
    large = [0xC0, 32, 12, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3]
    all_of_them = bytes([*origin, *path, *next_hop, *med, *community, *large])
    first, second = all_of_them, bytes([0x40, 1, 1, 0, *path, *next_hop])
    return record(1, peers) + route(0, first) + route(1, second) + route(2, first)


def finished(folder, text):
    """Run a profile to its end. Return its report."""
    path, report = folder / "profile.toml", folder / "report.json"
    path.write_text(text)
    report.unlink(missing_ok=True)
    run(*inside(LOCAL, SQUALL, "run", path, "-q", "--json", report))
    return json.loads(report.read_text())


def with_steps(folder, bird, environment):
    """BIRD has the routes of each router before and after the steps."""
    config, control = folder / "peer.conf", folder / "peer"
    config.write_text(peer(ROUTERS))
    path, report = folder / "profile.toml", folder / "report.json"
    path.write_text(profile(ROUTERS, 30, STEPS))
    (folder / "dump").write_bytes(dump())

    def imported():
        text = birdc(control, bird, environment, "show", "protocols", "all", '"b*"')
        return [int(found) for found in re.findall(r"Routes:\s+(\d+) imported", text)]

    def are(count):
        return lambda: imported() == [count] * ROUTERS

    argv = [bird, "-f", "-c", config, "-s", control]
    with server(argv, folder / "peer.log", control.exists, env=environment):
        process = subprocess.Popen(
            inside(LOCAL, SQUALL, "run", path, "-q", "--json", report),
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            wait("BIRD has the routes", are(1103))
            text = birdc(control, bird, environment, "show", "route", "all", "198.51.100.99/32")
            for attribute in [
                "BGP.as_path: 65003 65003 4200000001",
                "BGP.med: 7",
                "BGP.community: (65001,42)",
                "BGP.next_hop: 10.77.0.11",
            ]:
                if attribute not in text:
                    raise Failed(f"no {attribute} in {text}")
            text = birdc(control, bird, environment, "show", "route", "all", "100.100.2.0/24")
            for attribute in [
                "BGP.origin: EGP",
                "BGP.as_path: 65003 65003 7 {9}",
                "BGP.med: 5",
                "BGP.community: (1,2)",
                "BGP.large_community: (1, 2, 3)",
                "BGP.next_hop: 10.77.0.11",
            ]:
                if attribute not in text:
                    raise Failed(f"no {attribute} in {text}")
            wait("30 routes are withdrawn", are(1073))
            wait("the sessions end", lambda: not any(imported()))
            wait("the sessions are back", are(1073))
        finally:
            _, errors = process.communicate(timeout=60)
        if not report.exists():
            raise Failed(f"squall: {process.returncode}: {errors}")
        wait("the sessions end with the run", lambda: not any(imported()))
    [router] = json.loads(report.read_text())["routers"]
    same("failed", router["failed"], None)
    sums = router["sessions"]
    same("sessions", (sums["sessions"], sums["up"], router["downs"]), (ROUTERS, ROUTERS, 0))
    same("routes", (sums["imported"], sums["exported"]), (ROUTERS, ROUTERS * 1073))
    steps = [(step["action"], step["routes"], step["error"]) for step in router["steps"]]
    same("steps", steps, [("withdraw", 30, None), ("notify", 0, None), ("up", 0, None)])
    if router["steps"][0]["acknowledged_s"] is None:
        raise Failed(f"not acknowledged: {router['steps'][0]}")
    log = (folder / "peer.log").read_text()
    for word in ["Received: Administrative shutdown", "Received: Administrative reset"]:
        if word not in log:
            raise Failed(f"no {word} in {log}")
    for word in ["Invalid", "Malformed", "<ERR>"]:
        if word in log:
            raise Failed(f"{word} in {log}")


# A route of ExaBGP with COMMUNITIES of three octets.
MALFORMED = "route 198.18.9.0/24 next-hop self attribute [ 0x08 0xc0 0x000102 ];"

DEVICE = """
med = 7
communities = "65001:42"
routes = "16.0.0.0/24 x 1000"
[[router.group]]
name = "edge"
routes = "198.51.100.0/32 x 100"
as_path = "4200000001"
[[router.step]]
at = "4 s"
action = "withdraw"
group = "edge"
duration = "2 s"
every = "4 s"
"""


def with_exabgp(folder):
    """ExaBGP has the routes with and without those of a step, and the router those of ExaBGP."""
    path, report = folder / "profile.toml", folder / "report.json"
    path.write_text(profile(1, 300, DEVICE))
    report.unlink(missing_ok=True)
    ranges = {f"16.{number >> 8}.{number & 255}.0/24" for number in range(1000)}
    edge = {f"198.51.100.{number}/32" for number in range(100)}
    process = subprocess.Popen(
        inside(LOCAL, SQUALL, "run", path, "-q", "--json", report),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        own = f"10.77.0.{FIRST}"
        with exabgp.device(folder, own, (65100, 65001), MALFORMED) as device:
            routes = {}

            def has(expected):
                # The step may change them before they are read again.
                routes.clear()
                routes.update(device.routes())
                return set(routes) == expected

            wait("ExaBGP has the routes", lambda: has(ranges | edge))
            for route, path_of in [
                ("16.0.7.0/24", [65001]),
                ("198.51.100.7/32", [65001, 4200000001]),
            ]:
                found = routes[route]
                same(f"path of {route}", found["as-path"], path_of)
                same(f"MED of {route}", found["med"], 7)
                same(f"communities of {route}", found["community"], [[65001, 42]])
            # The step is repeated, so that both states come again and again.
            wait("a group is withdrawn", lambda: has(ranges))
            device.withdraw()
            # A whole cycle later, the router has had the withdrawal.
            wait("the group is back", lambda: has(ranges | edge))
            wait("it is withdrawn again", lambda: has(ranges))
            wait("it is back again", lambda: has(ranges | edge))
            process.send_signal(signal.SIGINT)
            process.wait(60)
    finally:
        process.kill()
        _, errors = process.communicate(timeout=60)
    if not report.exists():
        raise Failed(f"squall: {process.returncode}: {errors}")
    [router] = json.loads(report.read_text())["routers"]
    same("failed", (router["failed"], router["downs"]), (None, 0))
    [session] = router["protocols"]
    same("learnt", session["imported"], 1)
    # Two routes, the malformed one, and a withdrawal.
    if session["received"]["updates"] < 4:
        raise Failed(f"UPDATEs of ExaBGP: {session['received']}")
    reason = {
        "reason": "malformed COMMUNITIES",
        "source": "RFC 7606 section 7.8",
        "treatment": "treat-as-withdraw",
        "updates": 1,
    }
    expected = {"withdrawn": 1, "discarded": 0, "other_families": 0, "reasons": [reason]}
    same("errors in UPDATEs", router["sessions"]["faults"], expected)


def a_million_routes(folder, bird, environment):
    """The time until BIRD has acknowledged a million routes, and until it has them."""
    config, control = folder / "million.conf", folder / "million"
    config.write_text(peer(1))

    def routes():
        text = birdc(control, bird, environment, "show", "route", "count")
        return int(re.search(r"Total: (\d+) of", text)[1])

    argv = [bird, "-f", "-c", config, "-s", control]
    path, report = folder / "profile.toml", folder / "report.json"
    path.write_text(profile(1, 20, 'routes = "16.0.0.0/24 x 1000000"\n'))
    with server(argv, folder / "million.log", control.exists, env=environment):
        begin = time.monotonic()
        command = inside(LOCAL, SQUALL, "run", path, "-q", "--json", report)
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            wait("BIRD has them", lambda: process.poll() is not None or routes() > 1_000_000, 60)
            took = time.monotonic() - begin
            process.wait(60)
    [router] = json.loads(report.read_text())["routers"]
    same("announced", router["sessions"]["exported"], 1_000_000)
    [session] = router["protocols"]
    after = session["acknowledged_after_s"]
    closed = router["sessions"]["closed_windows"]
    print(
        f"1,000,000 routes: BIRD has them after {took:.2f} s, and acknowledged them {after:.2f} s "
        f"after Established; its window was closed {closed} times"
    )


def a_thousand_sessions(folder):
    """1,000 routers at one end of a link in memory, and one with as many neighbors at the other."""
    count = 1000
    first = ipaddress.IPv4Address("10.1.0.1")
    neighbors = ", ".join(f'"{first + number} as {65100 + number}"' for number in range(count))
    text = f"""
duration = "20 s"
[ports]
A = "loop:native"
B = "loop:native"
[[router]]
name = "many"
port = "A"
daemon = "native"
count = {count}
asn_step = 1
ipv4 = "10.1.0.1/8"
asn = 65100
neighbors = "10.0.0.1 as 65001"
routes = "16.0.0.0/24 x 1000"
[[router]]
name = "one"
port = "B"
daemon = "native"
ipv4 = "10.0.0.1/8"
asn = 65001
neighbors = [{neighbors}]
expect = "many"
"""
    report = finished(folder, text)
    many, one = report["routers"]
    sums = many["sessions"]
    same("up", (sums["up"], one["sessions"]["up"]), (count, count))
    same("routes", one["sessions"]["imported"], count * 1000)
    same("missing", (one["expected"]["missing"], one["expected"]["extra"]), (0, 0))
    memory = report["memory"]["peak_rss_octets"] / 2**20
    print(
        f"1,000 sessions with 1,000 routes each: all up after {sums['all_up_after_s']:.2f} s, "
        f"acknowledged {sums['acknowledged_after_s']:.2f} s after Established at most; "
        f"both ends take {memory:.0f} MiB, of which the 1,000,000 learnt routes are the most"
    )


def main():
    if os.geteuid() != 0:
        print("SKIPPED: needs root for network namespaces")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        try:
            network()
            if "--full" in sys.argv[1:]:
                a_thousand_sessions(folder)
            if exabgp.program() is None:
                print("SKIPPED: exabgp is not installed (scripts/setup system)")
            else:
                with_exabgp(folder)
            bird, environment = unpacked("bird")
            if bird is None:
                print("SKIPPED: bird is not installed (scripts/setup system)")
                return
            with_steps(folder, bird, environment)
            if "--full" in sys.argv[1:]:
                a_million_routes(folder, bird, environment)
        finally:
            for namespace in [LOCAL, REMOTE]:
                subprocess.run(["ip", "netns", "del", namespace], check=False)
    print("native routers: sessions and routes as the peers have them")


if __name__ == "__main__":
    try:
        main()
    except Failed as error:
        print(f"FAILED: {error}")
        sys.exit(1)

#!/usr/bin/env python3
"""Routers of squall against real ones over a veth pair: BIRD for every protocol, GoBGP and ExaBGP for
BGP. The routes that the peer has are those of the profile, the report has the routes of the peer, and tshark
finds nothing malformed. With --full also convergence, and a million routes.

Needs root and ip; parts need bird (at both ends), gobgpd, exabgp, tcpdump and tshark; $SQUALL is
target/debug/squall unless set.
"""

import contextlib
import csv
import datetime
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

import exabgp
from flows import LOCAL, REMOTE, SQUALL, V4, V6, inside, network, wait
from host_services import unpacked
from hosts import captured, server
from tools import Failed, run, same

ROUTER, ROUTER6 = "10.77.0.9", "fd77::9"
# Routes of the router and of the peer: BIRD keeps a table for each protocol.
ROUTES, PEERS = ("198.51.100.0/25", "198.51.100.128/25"), "203.0.113.0/24"
ROUTES6, PEERS6 = ("2001:db8:1::/48", "2001:db8:2::/48"), "2001:db8:f::/48"

PEER = (
    f"""
log stderr all;
router id {V4};
protocol device {{ scan time 1; }}
ipv4 table bgp4; ipv6 table bgp6; ipv4 table ospf4; ipv6 table ospf6; ipv4 table rip4; ipv6 table rip6;
protocol bfd {{ interface "vb" {{ interval 100 ms; multiplier 5; }}; }}
protocol bgp b4 {{ local as 65002; neighbor {ROUTER} as 65001; connect delay time 1; bfd on;
  ipv4 {{ table bgp4; import all; export all; next hop self; }}; }}
protocol bgp b6 {{ local as 65002; neighbor {ROUTER6} as 65001; connect delay time 1; bfd on;
  ipv6 {{ table bgp6; import all; export all; next hop self; }}; }}
protocol ospf v2 o4 {{ ipv4 {{ table ospf4; import all; export all; }};
  area 0 {{ interface "vb" {{ hello 1; dead 3; wait 2; bfd on; }}; }}; }}
protocol ospf v3 o6 {{ ipv6 {{ table ospf6; import all; export all; }};
  area 0 {{ interface "vb" {{ hello 1; dead 3; wait 2; bfd on; }}; }}; }}
protocol rip r4 {{ ipv4 {{ table rip4; import all; export all; }}; interface "vb" {{ update time 1; }}; }}
protocol rip ng r6 {{ ipv6 {{ table rip6; import all; export all; }}; interface "vb" {{ update time 1; }}; }}
"""
    + "".join(
        f"protocol static {{ ipv4 {{ table {table}; }}; route {PEERS} blackhole; }}\n"
        for table in ("bgp4", "ospf4", "rip4")
    )
    + "".join(
        f"protocol static {{ ipv6 {{ table {table}; }}; route {PEERS6} blackhole; }}\n"
        for table in ("bgp6", "ospf6", "rip6")
    )
)

# BFD ends a session after three intervals without a frame. A busy machine can miss three of 100 ms,
# and no session may go down.
ALL = f"""
[[router]]
name = "r1"
ipv4 = "{ROUTER}/16"
ipv6 = "{ROUTER6}/64"
asn = 65001
neighbors = ["{V4} as 65002", "{V6} as 65002"]
med = 7
prepend = 1
communities = "65001:42"
ospf = "0.0.0.0"
ospf3 = "0.0.0.0"
hello = "1 s"
dead = "3 s"
rip = true
ripng = true
rip_update = "1 s"
bfd = "1 s"
routes = ["198.51.100.0/25 x 2", "2001:db8:1::/48 x 2"]
"""

BGP = f"""
[[router]]
name = "r1"
ipv4 = "{ROUTER}/16"
asn = 65001
neighbors = "{V4} as 65002"
routes = "{{routes}}"
"""

# Start of the streams, seconds, when the sessions are up.
START = 6

GOBGP = f"""
[global.config]
as = 65002
router-id = "{V4}"
[[neighbors]]
[neighbors.config]
neighbor-address = "{ROUTER}"
peer-as = 65001
"""


def started(folder, text, environment, seconds=60):
    """Start a run of a profile, with its report in report.json."""
    profile, report = folder / "profile.toml", folder / "report.json"
    profile.write_text(f'duration = "{seconds} s"\n[ports]\nA = "af_packet:va"\n{text}')
    report.unlink(missing_ok=True)
    argv = inside(LOCAL, SQUALL, "run", profile, "-q", "--json", report)
    environment = {**os.environ, **environment}
    return subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, env=environment)


@contextlib.contextmanager
def running(folder, text, environment, seconds=60):
    """Run a profile until the block ends; the list gets the routers of its report."""
    process = started(folder, text, environment, seconds)
    routers = []
    try:
        yield process, routers
    finally:
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    report = (folder / "report.json").read_text()
    if not report:
        raise Failed(f"squall: {process.returncode}: {errors}")
    routers.extend(json.loads(report)["routers"])


def birdc(control, bird, environment, *command):
    client = pathlib.Path(bird).with_name("birdc")
    return run(client, "-s", control, *command, env={**os.environ, **environment}).stdout


def control_of(process):
    """The control socket of the BIRD of a run's only router."""
    return pathlib.Path(tempfile.gettempdir(), f"squall-router-{process.pid}-0", "control")


def wait_for_imports(process, bird, environment, routes):
    """Wait until the BIRD of the run's router has a route by each protocol, and Squall has asked it
    for their numbers. The report then shows whether it has."""
    control = control_of(process)
    show = ("show", "route", "protocol")

    def learnt():
        return all(
            route in birdc(control, bird, environment, *show, protocol)
            for protocol, route in routes.items()
        )

    with contextlib.suppress(Failed):
        wait("the router has the routes of its peer", learnt, 10)
    time.sleep(2)


def every_protocol(folder, bird, environment):
    """The tables of BIRD have the routes of the profile, and the report those of BIRD."""
    config = folder / "peer.conf"
    config.write_text(PEER)

    def table(name):
        text = birdc(folder / "peer", bird, environment, "show", "route", "table", name, "all")
        return set(re.findall(r"^(\S+/\d+) ", text, re.MULTILINE)), text

    def learnt():
        names = [
            (f"{kind}{version}", version) for kind in ("bgp", "ospf", "rip") for version in "46"
        ]
        return all(
            set(ROUTES if version == "4" else ROUTES6) <= table(name)[0] for name, version in names
        )

    argv = [bird, "-f", "-c", config, "-s", folder / "peer"]
    up = (folder / "peer").exists
    peer = server(argv, folder / "peer.log", up, env=environment)
    frames = captured(folder / "routers.pcap", "ip or ip6")
    with peer, frames, running(folder, ALL, environment) as (process, routers):
        wait("BIRD has the routes", lambda: process.poll() is not None or learnt(), 60)
        _, text = table("bgp4")
        # The routes of the peer come at their own pace.
        expected = dict.fromkeys(("bgp1", "ospf4", "rip4"), PEERS)
        expected |= dict.fromkeys(("bgp2", "ospf6", "rip6"), PEERS6)
        wait_for_imports(process, bird, environment, expected)
    for attribute in ("BGP.as_path: 65001 65001", "BGP.med: 7", "(65001,42)"):
        if attribute not in text:
            raise Failed(f"{attribute} is not in {text}")
    [router] = routers
    found = {
        one["name"]: (one["up"], one["imported"] >= 1 or one["kind"] == "BFD", one["exported"])
        for one in router["protocols"]
    }
    expected = {
        name: (True, True, 2) for name in ("bgp1", "bgp2", "ospf4", "ospf6", "rip4", "rip6")
    }
    same("protocols", found, {**expected, "bfd1": (True, True, 0)})
    same("failures", (router["failed"], router["downs"], router["dropped"]), (None, 0, 0))


def gobgp(folder, gobgpd, environment, bird, bird_environment):
    """GoBGP has the routes of the profile."""
    config = folder / "gobgp.toml"
    config.write_text(GOBGP)
    client = pathlib.Path(gobgpd).resolve().with_name("gobgp")

    def ask(*what):
        return run(*inside(REMOTE, client, *what, "-j"), env={**os.environ, **environment}).stdout

    def rib():
        return set(json.loads(ask("global", "rib")))

    argv = [gobgpd, "-f", config, "--log-plain", "-l", "info"]
    log = folder / "gobgp.log"
    with server(argv, log, lambda: "Add a peer" in log.read_text(), env=environment):
        for route in (PEERS, exabgp.WITHDRAWN):
            ask("global", "rib", "add", route)
        text = BGP.format(routes="198.51.100.0/25 x 2")
        with running(folder, text, bird_environment) as (process, routers):
            wait(
                "GoBGP has the routes",
                lambda: process.poll() is not None or rib() == {*ROUTES, PEERS, exabgp.WITHDRAWN},
            )
            control = control_of(process)

            def imported():
                show = ("show", "route", "protocol", "bgp1")
                text = birdc(control, bird, bird_environment, *show)
                return {route for route in (PEERS, exabgp.WITHDRAWN) if route in text}

            wait("the router has the routes", lambda: imported() == {PEERS, exabgp.WITHDRAWN})
            ask("global", "rib", "del", exabgp.WITHDRAWN)
            wait("the router has the withdrawal", lambda: imported() == {PEERS})
            wait_for_imports(process, bird, bird_environment, {"bgp1": PEERS})
    [router] = routers
    [bgp] = router["protocols"]
    same("BGP", (bgp["state"], bgp["imported"], bgp["exported"]), ("Established", 1, 2))


def with_exabgp(folder, bird, environment):
    """ExaBGP has the routes of the profile, and the report has those of ExaBGP."""
    text = BGP.format(routes="198.51.100.0/25 x 2")
    with (
        running(folder, text, environment) as (process, routers),
        exabgp.device(folder, ROUTER, (65002, 65001)) as device,
    ):
        wait("ExaBGP has the routes", lambda: set(device.routes()) == set(ROUTES))
        wait_for_imports(process, bird, environment, {"bgp1": exabgp.WITHDRAWN})
        device.withdraw()
        control = control_of(process)

        def learnt():
            text = birdc(control, bird, environment, "show", "route", "protocol", "bgp1")
            return exabgp.KEPT in text and exabgp.WITHDRAWN not in text

        wait("the router has the withdrawal", learnt)
        for attributes in device.routes().values():
            same("attributes", (attributes["origin"], attributes["as-path"]), ("igp", [65001]))
        # Squall asks BIRD once a second.
        time.sleep(2)
        # Before ExaBGP ends.
        process.send_signal(signal.SIGINT)
        process.wait(30)
    [router] = routers
    [bgp] = router["protocols"]
    same("BGP", (bgp["imported"], bgp["exported"]), (1, 2))


def a_daemon_that_dies_is_reported(folder, environment):
    """The run is not valid, and says why; nothing is left of the daemon."""
    text = BGP.format(routes=PEERS)
    with running(folder, text, environment, 3) as (process, routers):
        wait("the daemon starts", lambda: daemons(process.pid))
        for pid in daemons(process.pid):
            os.kill(pid, signal.SIGKILL)
        process.wait(30)
    [router] = routers
    same("failure", router["failed"], "signal 9")
    same(
        "exit status",
        json.loads((folder / "report.json").read_text())["verdict"]["status"],
        "not-valid",
    )


def nothing_is_left_of_a_killed_run(folder, environment):
    """The kernel ends the daemon with Squall."""
    process = started(folder, BGP.format(routes=PEERS), environment)
    try:
        wait("the daemon starts", lambda: daemons(process.pid))
        [daemon] = daemons(process.pid)
    finally:
        process.kill()
        process.communicate(timeout=30)
    wait("the daemon ends", lambda: not pathlib.Path(f"/proc/{daemon}").exists(), 5)


def daemons(pid):
    """The descendants of a process that run BIRD as a daemon: before, Squall lets another BIRD
    check the configuration."""
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, task.read_text().split()):
                comm = pathlib.Path(f"/proc/{child}/comm").read_text().strip()
                argv = pathlib.Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
                found += [child] if comm == "bird" and b"-f" in argv else []
                found += daemons(child)
    return found


def convergence(folder, bird, environment):
    """A Linux router has two ways to some prefixes, and loses one without seeing it: for each route,
    the loss of connectivity of a stream to all of them is the time until the kernel has the other
    way. Return false if the sessions were up too late, or one went down on a busy machine.
    """
    spaces = [f"{LOCAL}-{name}" for name in ("dut", "wire")]
    dut, wire = spaces
    count, rate = 20, 1000
    config, profile, report = (folder / name for name in ("dut.conf", "dut.toml", "dut.json"))
    table = folder / "routes.csv"
    config.write_text(
        "log stderr all; router id 10.9.0.1; protocol device { scan time 1; }\n"
        "protocol kernel { ipv4 { export all; import none; }; }\n"
        'protocol bfd { interface "da", "db" { interval 200 ms; multiplier 5; }; }\n'
        + "".join(
            f"protocol bgp {name} {{ local as 65000; neighbor 10.{number}.0.9 as 6500{number}; bfd on;\n"
            f"  connect delay time 1; ipv4 {{ preference {300 - number}; import all; export none; }}; }}\n"
            for number, name in ((1, "a"), (2, "b"))
        )
    )
    routers = "".join(
        f'[[router]]\nname = "r{number}"\nport = "{port}"\nipv4 = "10.{number}.0.9/24"\n'
        f'asn = 6500{number}\nneighbors = "10.{number}.0.1 as 65000"\nbfd = "200 ms"\n'
        f'routes = "198.51.100.0/24 x {count}"\n'
        for number, port in ((1, "A"), (2, "B"))
    )
    stream = (
        f'[[stream]]\nname = "web"\nport = "C"\nsize = 128\nrate = "{count * rate} pps"\n'
        f'latency = true\nstart_delay = "{START} s"\ndst = "routes:r1"\n'
        'packet = "eth(dst=02:00:00:00:0c:01)/ipv4(src=10.3.0.2)/udp"\n'
    )
    ports = '[ports]\nA = "af_packet:la"\nB = "af_packet:lb"\nC = "af_packet:lc"\n'
    profile.write_text(f'duration = "{START + 6} s"\n{ports}{routers}{stream}')
    monitors = [folder / "links", folder / "routes"]
    with contextlib.ExitStack() as stack:
        for space in spaces:
            run("ip", "netns", "add", space)
            stack.callback(subprocess.run, ["ip", "netns", "del", space], check=False)
        # Between A and the router is a bridge, whose port is cut.
        for near, far, space in [("la", "wa", wire), ("lb", "db", dut), ("lc", "dc", dut)]:
            run("ip", "-n", LOCAL, "link", "add", near, "type", "veth", "peer", far, "netns", space)
            run("ip", "-n", LOCAL, "link", "set", near, "arp", "off", "up")
        run("ip", "-n", wire, "link", "add", "wb", "type", "veth", "peer", "da", "netns", dut)
        run("ip", "-n", wire, "link", "add", "br0", "type", "bridge", "mcast_snooping", "0")
        for name in ("wa", "wb"):
            run("ip", "-n", wire, "link", "set", name, "master", "br0", "up")
        run("ip", "-n", wire, "link", "set", "br0", "up")
        run("ip", "-n", dut, "link", "set", "dc", "address", "02:00:00:00:0c:01")
        run(*inside(dut, "sysctl", "-qw", "net.ipv4.ip_forward=1"))
        for number, name in enumerate(("da", "db", "dc"), 1):
            run("ip", "-n", dut, "addr", "add", f"10.{number}.0.1/24", "dev", name)
            run("ip", "-n", dut, "link", "set", name, "up")

        def begin(argv, output):
            process = subprocess.Popen(
                argv, stdout=output, stderr=output, env={**os.environ, **environment}
            )
            stack.callback(process.wait, 10)
            stack.callback(process.terminate)

        for space, what, file in zip((wire, dut), ("link", "route"), monitors):
            begin(inside(space, "ip", "-ts", "monitor", what), stack.enter_context(file.open("w")))
        log = stack.enter_context((folder / "dut.log").open("w"))
        begin(inside(dut, bird, "-f", "-c", config, "-s", folder / "dut"), log)
        squall = subprocess.Popen(
            inside(LOCAL, SQUALL, "run", profile, "-q", "--json", report, "--routes-csv", table),
            env={**os.environ, **environment},
            stderr=subprocess.PIPE,
            text=True,
        )
        stack.callback(squall.wait, 30)
        stack.callback(squall.terminate)
        begun = time.monotonic()
        last = f"198.51.{99 + count}.0/24 via 10.1.0.9"
        wait("both routers", lambda: last in monitors[1].read_text())
        if time.monotonic() - begun > START - 0.5:
            return False
        time.sleep(START + 2 - (time.monotonic() - begun))
        run("ip", "-n", wire, "link", "set", "wb", "nomaster")
        squall.communicate(timeout=60)
        wait("the other route", lambda: "via 10.2.0.9" in monitors[1].read_text())

    def instant(file, text):
        [*_, line] = [line for line in file.read_text().splitlines() if re.search(text, line)]
        return datetime.datetime.fromisoformat(line[1:27])

    cut = instant(monitors[0], r"\] Deleted .* wb@")
    with table.open() as rows:
        found = {row["prefix"]: row for row in csv.DictReader(rows)}
    result = json.loads(report.read_text())
    [_, other] = result["routers"]
    if other["downs"] > 0 or any(row["first_port"] != "A" for row in found.values()):
        return False
    for number in range(100, 100 + count):
        prefix = f"198.51.{number}.0/24"
        route = rf"\] {re.escape(prefix)} via 10\.2\.0\.9"
        expected = (instant(monitors[1], route) - cut).total_seconds()
        row = found.pop(prefix)
        same(
            f"{prefix}: ports", (row["first_port"], row["last_port"], row["up"]), ("A", "B", "true")
        )
        for key in ("loss_of_connectivity_s", "convergence_s"):
            # Frames that were late at the sender, and the time of a message, are some milliseconds.
            if abs(float(row[key]) - expected) > 0.1 * expected + 0.005:
                raise Failed(f"{prefix}: {key} = {row[key]}, {expected} s in the kernel")
    same("further routes", found, {})
    routes = result["streams"][0]["rx"]["routes"]
    times = routes["loss_of_connectivity"]
    print(f"{count} routes: first {times['first_s']:.3f} s, full {times['full_s']:.3f} s")
    same(
        "ports",
        routes["ports"],
        [{"port": "A", "first": count, "last": 0}, {"port": "B", "first": 0, "last": count}],
    )
    return True


def a_million_routes(folder, bird, environment):
    """The time from the start of the daemon until the peer has all routes."""
    config = folder / "peer.conf"
    config.write_text(
        f"log stderr all; router id {V4}; protocol device {{ scan time 1; }}\n"
        f"protocol bgp b4 {{ local as 65002; neighbor {ROUTER} as 65001; connect delay time 1;\n"
        "  ipv4 { import all; export none; }; }\n"
    )

    def routes():
        text = birdc(folder / "peer", bird, environment, "show", "route", "count")
        return int(re.search(r"Total: (\d+) of", text)[1])

    argv = [bird, "-f", "-c", config, "-s", folder / "peer"]
    (folder / "peer").unlink(missing_ok=True)
    up = (folder / "peer").exists
    text = BGP.format(routes="16.0.0.0/24 x 1000000")
    with server(argv, folder / "peer.log", up, env=environment):
        begin = time.monotonic()
        with running(folder, text, environment) as (process, routers):
            wait("BIRD has them", lambda: process.poll() is not None or routes() == 1_000_000, 60)
            took = time.monotonic() - begin
    print(
        f"1,000,000 routes: {took:.1f} s, {routers[0]['cpu_s']:.1f} s of CPU time of the router's BIRD"
    )


def main():
    if os.geteuid() != 0:
        print("SKIPPED: needs root for network namespaces")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        bird, environment = unpacked("bird")
        if bird is None:
            print("SKIPPED: bird is not installed (scripts/setup system)")
            return
        try:
            network()
            every_protocol(folder, bird, environment)
            go, go_environment = unpacked("gobgpd")
            if go is None:
                print("SKIPPED: gobgpd is not installed (scripts/setup system)")
            else:
                gobgp(folder, go, go_environment, bird, environment)
            if exabgp.program() is None:
                print("SKIPPED: exabgp is not installed (scripts/setup system)")
            else:
                with_exabgp(folder, bird, environment)
            a_daemon_that_dies_is_reported(folder, environment)
            nothing_is_left_of_a_killed_run(folder, environment)
            if "--full" in sys.argv[1:]:
                # The streams must not begin before the router has the routes.
                if not any(convergence(folder, bird, environment) for _ in range(3)):
                    raise Failed("convergence: the sessions are not up, or do not stay up")
                a_million_routes(folder, bird, environment)
        finally:
            for namespace in [LOCAL, REMOTE]:
                subprocess.run(["ip", "netns", "del", namespace], check=False)
    print("routers: sessions and routes as the peers have them")


if __name__ == "__main__":
    try:
        main()
    except Failed as error:
        print(f"FAILED: {error}")
        sys.exit(1)

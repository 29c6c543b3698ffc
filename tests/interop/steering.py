#!/usr/bin/env python3
"""Steps and live orders of a router against BIRD over a veth pair: the routes that BIRD has are those
of each step. A group is withdrawn as a whole, and a part of another one; routes flap at their rate;
sessions go down and up; the daemon restarts, and BIRD keeps its routes (RFC 4724). A live order from
Python does the same, and one from the command line for a run of a daemon. With --full also silence, attributes of groups, and 10,000 single routes.

Needs root, ip and bird; $SQUALL is target/debug/squall unless set.
"""

import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

from flows import LOCAL, REMOTE, SQUALL, V4, V6, inside, network, wait
from host_services import unpacked
from hosts import server
from routers import ROUTER, ROUTER6, birdc, daemons, running, started
from tools import Failed, run, same, slowness

PEER = f"""
log stderr all;
debug protocols {{ events }};
router id {V4};
protocol device {{ scan time 1; }}
protocol bgp b4 {{ local as 65002; neighbor {ROUTER} as 65001; connect delay time 1;
  connect retry time 1; error wait time 1, 1; ipv4 {{ import all; export none; }}; }}
protocol bgp b6 {{ local as 65002; neighbor {ROUTER6} as 65001; connect delay time 1;
  connect retry time 1; error wait time 1, 1; ipv6 {{ import all; export none; }}; }}
"""

HEAD = f"""
[[router]]
name = "r1"
ipv4 = "{ROUTER}/16"
ipv6 = "{ROUTER6}/64"
asn = 65001
neighbors = ["{V4} as 65002", "{V6} as 65002"]
"""

EDGE, FLAP = 200, 10
GROUPS = """
routes = ["198.51.100.0/26 x 3", "2001:db8:1::/48 x 2"]

[[router.group]]
name = "edge"
routes = "203.0.113.0/32 x 200"
single = true

[[router.group]]
name = "flap"
routes = "192.0.2.0/32 x 10"
flap = "20 routes/s"
flap_down = "200 ms"
"""

# Seconds, of a machine that is not slow: the sessions are up before, and a state lasts long enough to
# be seen.
STEPS = (
    (3.0, 'action = "withdraw"\ngroup = "routes"', 0.7),
    (4.4, 'action = "withdraw"\ngroup = "edge"\ncount = 50', 0.7),
    (5.8, f'action = "down"\nneighbor = "{V4}"\nmessage = "maintenance"', 0.7),
)


def tables(steps, slow):
    """The tables of steps, at times for a machine that is slower by this factor."""
    table = '[[router.step]]\nat = "{} ms"\n{}\n'
    return "".join(
        table.format(round(1000 * at * slow), keys)
        + (f'duration = "{round(1000 * lasts * slow)} ms"\n' if lasts else "")
        for at, keys, lasts in steps
    )


class Peer:
    """The BIRD at the other end, and its routes."""

    def __init__(self, folder, bird, environment):
        self.folder, self.bird, self.environment = folder, bird, environment
        self.control, self.log = folder / "peer", folder / "peer.log"

    def started(self, text=PEER):
        config = self.folder / "peer.conf"
        config.write_text(text)
        self.control.unlink(missing_ok=True)
        argv = [self.bird, "-f", "-c", config, "-s", self.control]
        return server(argv, self.log, self.control.exists, env=self.environment)

    def ask(self, *what):
        return birdc(self.control, self.bird, self.environment, *what)

    def routes(self):
        """The prefixes of its tables."""
        return set(re.findall(r"^(\S+/\d+) ", self.ask("show", "route"), re.MULTILINE))

    def counts(self):
        """How many routes it has of each group: core of IPv4 and IPv6, edge, flap."""
        firsts = ("198.51.100.", "2001:db8:1::", "203.0.113.", "192.0.2.")
        routes = self.routes()
        # The second prefix of the IPv6 group is 2001:db8:2::/48.
        six = sum(":" in route for route in routes)
        four = [sum(route.startswith(first) for route in routes) for first in firsts]
        return (four[0], six, four[2], four[3])

    def withdrawals(self):
        """Withdrawals of IPv4 routes that it has received in the present session."""
        text = self.ask("show", "protocols", "all", "b4")
        return int(re.search(r"Import withdraws:\s+(\d+)", text)[1])


def seen(peer, what, expected, process, seconds=30):
    """Wait until the peer has these numbers of routes of the core and of the edge."""

    def come():
        if process.poll() is not None:
            raise Failed(f"{what}: the run has ended")
        return peer.counts()[:3] == expected

    wait(f"{what}: {expected}", come, seconds)


def each_step_and_order(folder, peer):
    """The peer has the routes of each step and order, one after the other, and the report has them."""
    slow = slowness()
    text = HEAD + GROUPS + tables(STEPS, slow)
    with peer.started(), driven(folder, text, peer.environment) as (process, order, routers):
        for what, expected in [
            ("all", (3, 2, 200)),
            ("the group is withdrawn", (0, 0, 200)),
            ("it is back", (3, 2, 200)),
            ("50 routes are withdrawn", (3, 2, 150)),
            ("they are back", (3, 2, 200)),
            ("the session is down", (0, 2, 0)),
            ("it is up", (3, 2, 200)),
        ]:
            seen(peer, what, expected, process)
        if order:
            each_order(peer, process, order)
        flaps(peer)
    [router] = routers
    found = [
        (
            step["action"],
            step["group"] or step["neighbor"],
            step["by"],
            step["routes"],
            step["error"],
        )
        for step in router["steps"]
    ]
    expected = [
        ("withdraw", "routes", "profile", 5, None),
        ("announce", "routes", "profile", 5, None),
        ("withdraw", "edge", "profile", 50, None),
        ("announce", "edge", "profile", 50, None),
        ("down", V4, "profile", 0, None),
        ("up", V4, "profile", 0, None),
    ]
    if order:
        expected += [
            ("withdraw", "edge", "order", 100, None),
            ("announce", "edge", "order", 100, None),
        ]
    same("steps", found, expected)
    due = []
    for at, _, lasts in STEPS:
        begin = round(1000 * at * slow)
        due += [begin, begin + round(1000 * lasts * slow)]
    same("due", [round(1000 * step["due_s"]) for step in router["steps"][:6]], due)
    for step in router["steps"]:
        if not step["due_s"] <= step["begun_s"] <= step["acknowledged_s"]:
            raise Failed(f"a step was acknowledged before it was due: {step}")
    same("sessions that fell by themselves", router["downs"], 0)
    groups = {group["name"]: group for group in router["groups"]}
    same("edge", (groups["edge"]["routes"], groups["edge"]["withdrawn"]), (EDGE, 0))
    if "maintenance" not in peer.log.read_text():
        raise Failed("the peer has not received the message of the session that went down")


def each_order(peer, process, order):
    """Orders from Python, and those that a router refuses."""
    same("an order", order("withdraw", group="edge", count=100), "done")
    seen(peer, "100 routes are withdrawn", (3, 2, 100), process)
    same("an order", order("announce", group="edge"), "done")
    seen(peer, "they are back", (3, 2, 200), process)
    refused = order("withdraw", group="edges")
    if "there is no group" not in refused:
        raise Failed(f"an order for a group that is not there: {refused}")
    refused = order("withdraw", group="routes", count=1)
    if "single = true" not in refused:
        raise Failed(f"a count for a group of the daemon: {refused}")


def flaps(peer):
    """Routes of the group flap at their rate, each of them, and come back."""
    missing = set()
    every = {f"192.0.2.{number}/32" for number in range(FLAP)}

    def all_seen():
        missing.update(every - peer.routes())
        return missing == every

    # A program that comes late announces routes again before their withdrawal has left.
    for _ in range(5):
        begin, before = time.monotonic(), peer.withdrawals()
        wait("each route flaps", all_seen)
        time.sleep(max(0, begin + 1.5 - time.monotonic()))
        count, took = peer.withdrawals() - before, time.monotonic() - begin
        # 20 per second; the two questions themselves take some time.
        if 0.8 * 20 * took - 4 <= count <= 1.2 * 20 * took + 4:
            return
    raise Failed(f"{count} withdrawals in {took:.2f} s, expected 20 per second")


def a_restart_keeps_the_routes(folder, peer):
    """The peer keeps the routes while the daemon restarts; withdrawn ones stay withdrawn."""
    # All routes are seen before the first step, although the sessions need some seconds.
    steps = ((6.0, 'action = "withdraw"\ngroup = "more"', None), (7.0, 'action = "restart"', None))
    more = '[[router.group]]\nname = "more"\nroutes = "203.0.113.0/24"\n'
    text = HEAD + 'routes = ["198.51.100.0/26 x 3", "2001:db8:1::/48 x 2"]\n' + more
    text += tables(steps, slowness())
    with peer.started(), running(folder, text, peer.environment) as (process, routers):
        seen(peer, "all", (3, 2, 1), process)
        wait("the daemon", lambda: daemons(process.pid))
        [before] = daemons(process.pid)
        seen(peer, "one group", (3, 2, 0), process)
        fewest = (3, 2)

        def restarted():
            nonlocal fewest
            fewest = min(fewest, peer.counts()[:2])
            return [pid for pid in daemons(process.pid) if pid != before] and up()

        def up():
            text = peer.ask("show", "protocols")
            return len(re.findall(r"BGP .* Established", text)) == 2

        wait("the sessions after the restart", restarted)
        seen(peer, "the same routes", (3, 2, 0), process)
        same("fewest routes during the restart", fewest, (3, 2))
    [router] = routers
    step = router["steps"][-1]
    same("restart", (step["action"], step["error"]), ("restart", None))
    same("failure", (router["failed"], router["downs"]), (None, 0))
    if "graceful restart" not in peer.log.read_text().lower():
        raise Failed("the peer has not seen a graceful restart")


ORDER_SCRIPT = """
import json, sys
import squall

profile = squall.Profile.load(sys.argv[1])
with squall.Session(profile) as session:
    run = session.start()
    router = run.router("r1")
    for line in sys.stdin:
        action, keys = json.loads(line)
        try:
            getattr(router, action)(**keys)
            print("done", flush=True)
        except squall.Error as error:
            print(json.dumps(str(error)), flush=True)
    run.stop()
    report = run.finish()
print(json.dumps(json.loads(report.to_json())))
"""


@contextlib.contextmanager
def driven(folder, text, environment):
    """Run a profile from Python until the block ends, with a function for orders; the list gets the
    routers of its report. Without the package, the command line runs it, and the function is None."""
    if subprocess.run(
        [sys.executable, "-c", "import squall"], capture_output=True, check=False
    ).returncode:
        print("SKIPPED: the package is not built (maturin develop): no live orders")
        with running(folder, text, environment) as (process, routers):
            yield process, None, routers
        return
    profile, script = folder / "driven.toml", folder / "driven.py"
    profile.write_text(f'duration = "60 s"\n[ports]\nA = "af_packet:va"\n{text}')
    script.write_text(ORDER_SCRIPT)
    process = subprocess.Popen(
        inside(LOCAL, sys.executable, script, profile),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )

    def order(action, **keys):
        process.stdin.write(json.dumps([action, keys]) + "\n")
        process.stdin.flush()
        return process.stdout.readline().strip()

    routers = []
    try:
        yield process, order, routers
    finally:
        output, errors = process.communicate(timeout=30)
    if process.returncode:
        raise Failed(f"squall: {errors}")
    routers.extend(json.loads(output.splitlines()[-1])["routers"])


def steered_from_the_command_line(folder, peer):
    """`squall routers order` changes the routes of a run of a daemon, and `show` has the change."""
    run("ip", "-n", LOCAL, "link", "set", "lo", "up")
    serve = ["serve", "--listen", "127.0.0.1:0", "--grpc", "off", "--json"]
    serve += ["--data", folder / "daemon", "--allow", "af_packet:va"]
    environment = {**os.environ, **peer.environment}
    profile = f'duration = "5 min"\n[ports]\nA = "af_packet:va"\n{HEAD}{GROUPS}'
    with peer.started():
        daemon = subprocess.Popen(
            inside(LOCAL, SQUALL, *serve),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        try:
            socket = json.loads(daemon.stdout.readline())["socket"]
            curl = ["curl", "-sS", "--fail-with-body", "--unix-socket", socket]
            curl += ["-H", "content-type: application/json", "-d", json.dumps({"profile": profile})]
            run(*curl, "http://localhost/squall/v1/runs")
            seen(peer, "all", (3, 2, 200), daemon)

            def routers(*argv, ok=(0,)):
                return run(SQUALL, "routers", *argv, "--daemon", f"unix:{socket}", ok=ok)

            def has_begun():
                """The run has its first report, by which orders find their router."""
                return routers("show", "--json", ok=range(10)).stdout.strip() not in ("", "[]")

            wait("the first report", has_begun)
            routers("order", "withdraw", "--group", "edge", "--count", "100")
            seen(peer, "100 routes are withdrawn", (3, 2, 100), daemon)

            def shown():
                [router] = json.loads(routers("show", "--json").stdout)
                groups = {group["name"]: group["withdrawn"] for group in router["groups"]}
                return groups["edge"] == 100 and all(one["up"] for one in router["protocols"])

            wait("show has the routes and the sessions", shown)
            if "withdraw edge at " not in (text := routers("show", "--router", "r1").stdout):
                raise Failed(f"show does not have the step: {text}")
            routers("order", "announce", "--router", "r1")
            seen(peer, "they are back", (3, 2, 200), daemon)
            refused = routers("order", "withdraw", "--group", "edges", ok=(2, 3)).stderr
            if "there is no group" not in refused:
                raise Failed(f"an order for a group that is not there: {refused}")
        finally:
            daemon.terminate()
            daemon.wait(timeout=30)


def nothing_is_left_of_a_killed_run(folder, peer):
    """The kernel ends the program that changes routes with Squall, as the daemon."""

    def children(pid):
        found = []
        for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
            for child in map(int, task.read_text().split()):
                found += [child, *children(child)]
        return found

    def is_batch(pid):
        return b"-force" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")

    process = started(folder, HEAD + GROUPS, peer.environment)
    left = []
    try:
        wait("the daemon starts", lambda: daemons(process.pid))
        wait("ip starts", lambda: any(map(is_batch, children(process.pid))))
        left = children(process.pid)
    finally:
        process.kill()
        process.communicate(timeout=30)
    wait("all end", lambda: not any(pathlib.Path(f"/proc/{pid}").exists() for pid in left), 5)


def silence(folder, peer):
    """A silent router loses its session by the peer's timer, and has it again when it talks."""
    text = HEAD + 'hold = "3 s"\nroutes = ["198.51.100.0/26 x 3", "2001:db8:1::/48 x 2"]\n'
    text += '[[router.step]]\nat = "5 s"\naction = "silent"\nduration = "8 s"\n'
    with peer.started(), running(folder, text, peer.environment) as (process, routers):
        seen(peer, "all", (3, 2, 0), process)
        seen(peer, "the sessions are gone", (0, 0, 0), process)
        seen(peer, "they are back", (3, 2, 0), process, 60)
    [router] = routers
    same("steps", [step["action"] for step in router["steps"]], ["silent", "talk"])
    same("sessions that fell by themselves", router["downs"], 0)
    if router["dropped"] == 0:
        raise Failed("no frame was dropped while the router was silent")


def attributes(folder, peer):
    """The routes of each group have its attributes, also those of the kernel's table."""
    groups = "".join(
        f'[[router.group]]\nname = "{name}"\nroutes = ["{four}", "{six}"]\nsingle = {single}\n'
        'med = 9\nprepend = 0\ncommunities = "65001:9"\nas_path = "65010 65020"\n'
        'origin = "incomplete"\nnext_hop = "10.77.0.8"\n'
        for name, four, six, single in (
            ("whole", "203.0.113.0/25", "2001:db8:2::/48", "false"),
            ("single", "203.0.113.128/25", "2001:db8:3::/48", "true"),
        )
    )
    text = HEAD + 'med = 7\nprepend = 1\nroutes = "198.51.100.0/26"\n' + groups
    with peer.started(), running(folder, text, peer.environment) as (process, _):

        def have_all():
            if process.poll() is not None:
                raise Failed("the run has ended before all routes were there")
            return len(peer.routes()) == 5

        wait("all", have_all)

        def of(prefix):
            text = peer.ask("show", "route", "for", prefix, "all")
            values = (re.search(rf"BGP\.{name}: (.*)", text) for name in ATTRIBUTES)
            return [value and value[1].strip() for value in values]

        same("router", of("198.51.100.0/26"), ["65001 65001", "IGP", "7", None, ROUTER])
        expected = ["65001 65010 65020", "Incomplete", "9", "(65001,9)"]
        for prefix in ("203.0.113.0/25", "203.0.113.128/25"):
            same(prefix, of(prefix), [*expected, "10.77.0.8"])
        # The next hop is of the other family, so it is the router.
        for prefix in ("2001:db8:2::/48", "2001:db8:3::/48"):
            same(prefix, of(prefix)[:-1], expected)
            if not of(prefix)[-1].startswith(ROUTER6):
                raise Failed(f"{prefix}: next hop {of(prefix)[-1]}")


ATTRIBUTES = ("as_path", "origin", "med", "community", "next_hop")


def many_single_routes(folder, peer):
    """Half of 10,000 single routes go and come back; none is lost on the way to the daemon."""
    text = HEAD + '[[router.group]]\nname = "many"\nroutes = "16.0.0.0/24 x 10000"\n'
    text += '[[router.step]]\nat = "5 s"\naction = "withdraw"\ncount = 5000\nduration = "3 s"\n'
    with peer.started(), running(folder, text, peer.environment) as (process, routers):

        def have(number):
            if process.poll() is not None:
                raise Failed(f"{number} routes: the run has ended")
            return len(peer.routes()) == number

        for number in (10_000, 5_000, 10_000):
            wait(f"{number} routes", lambda number=number: have(number))
    [router] = routers
    for step in router["steps"]:
        took = step["acknowledged_s"] - step["begun_s"]
        print(f"{step['action']}: {step['routes']} single routes in {took * 1e3:.0f} ms")
    same("routes", [step["routes"] for step in router["steps"]], [5000, 5000])


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
        peer = Peer(folder, bird, environment)
        try:
            network()
            each_step_and_order(folder, peer)
            a_restart_keeps_the_routes(folder, peer)
            steered_from_the_command_line(folder, peer)
            nothing_is_left_of_a_killed_run(folder, peer)
            if "--full" in sys.argv[1:]:
                silence(folder, peer)
                attributes(folder, peer)
                many_single_routes(folder, peer)
        finally:
            for namespace in [LOCAL, REMOTE]:
                subprocess.run(["ip", "netns", "del", namespace], check=False)
    print("steering: the peer has the routes of each step")


if __name__ == "__main__":
    try:
        main()
    except Failed as error:
        print(f"FAILED: {error}")
        sys.exit(1)

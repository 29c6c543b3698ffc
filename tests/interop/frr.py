#!/usr/bin/env python3
"""Routers of squall that are FRR, and BIRD, against FRR over a veth pair: IS-IS, BGP, RIP and BFD,
with the same routes at both ends. A process that is killed ends the run, and nothing is left of a
run that is killed. With --full also OSPF, which takes FRR 15 s, steps that change routes and
sessions, and GoBGP as the device.

Needs root, ip and FRR; parts need bird and gobgpd; $SQUALL is target/debug/squall unless set.
"""

import contextlib
import json
import os
import pathlib
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from flows import LOCAL, REMOTE, V4, V6, inside, network, wait
from host_services import unpacked
from hosts import captured, server
from routers import (
    GOBGP,
    PEERS,
    PEERS6,
    ROUTER,
    ROUTER6,
    ROUTES,
    ROUTES6,
    running,
    started,
    wait_for_imports,
)
from tools import Failed, run, same

BIRD, BIRD6 = "10.77.0.10", "fd77::10"  # the router that is BIRD
BIRDS, BIRDS6 = "198.51.101.0/24", "2001:db8:3::/48"
ALL = ("zebra", "bfdd", "bgpd", "ospfd", "ospf6d", "isisd", "ripd", "ripngd")

# The device. It announces routes of its kernel, and has BFD for all neighbors.
DEVICE = {
    "zebra": "",
    "bfdd": "bfd\n profile test\n  receive-interval 1000\n  transmit-interval 1000\n"
    "  detect-multiplier 5\n exit\nexit\n",
    "bgpd": f"router bgp 65002\n bgp router-id {V4}\n no bgp ebgp-requires-policy\n"
    " no bgp default ipv4-unicast\n"
    + "".join(
        f" neighbor {address} remote-as {asn}\n neighbor {address} timers connect 1\n"
        f" neighbor {address} bfd profile test\n"
        for address, asn in [(ROUTER, 65001), (ROUTER6, 65001), (BIRD, 65003), (BIRD6, 65003)]
    )
    + "".join(
        f" address-family {family} unicast\n  redistribute kernel\n"
        + "".join(f"  neighbor {address} activate\n" for address in addresses)
        + " exit-address-family\n"
        for family, addresses in [("ipv4", (ROUTER, BIRD)), ("ipv6", (ROUTER6, BIRD6))]
    )
    + "exit\n",
    # Without pauses between the instances of an LSA, which are 5 s by default.
    "ospfd": f"router ospf\n ospf router-id {V4}\n timers throttle lsa all 0\n"
    " timers lsa min-arrival 0\n redistribute kernel\nexit\ninterface vb\n"
    " ip ospf hello-interval 1\n ip ospf dead-interval 4\n ip ospf bfd\n ip ospf bfd profile test\n"
    " ip ospf area 0.0.0.0\nexit\n",
    "ospf6d": f"router ospf6\n ospf6 router-id {V4}\n redistribute kernel\nexit\ninterface vb\n"
    " ipv6 ospf6 hello-interval 1\n ipv6 ospf6 dead-interval 4\n ipv6 ospf6 area 0.0.0.0\nexit\n",
    "isisd": "router isis test\n net 49.0001.0000.0000.0002.00\n lsp-gen-interval 1\n"
    + "".join(
        f" redistribute {family} kernel level-{level}\n"
        for family in ("ipv4", "ipv6")
        for level in (1, 2)
    )
    + "exit\ninterface vb\n ip router isis test\n ipv6 router isis test\n"
    " isis hello-interval 1\n isis hello-multiplier 4\n isis bfd\n isis bfd profile test\nexit\n",
    "ripd": "router rip\n version 2\n network vb\n redistribute kernel\nexit\n",
    "ripngd": "router ripng\n network vb\n redistribute kernel\nexit\n",
}

# BFD ends a session after three intervals without a frame. A busy machine can miss three of 200 ms,
# and no session may go down.
FRR = f"""
[[router]]
name = "r1"
daemon = "frr"
ipv4 = "{ROUTER}/16"
ipv6 = "{ROUTER6}/64"
asn = 65001
neighbors = ["{V4} as 65002", "{V6} as 65002"]
med = 7
prepend = 1
communities = "65001:42"
isis = "49.0001"
hello = "1 s"
dead = "4 s"
rip = true
ripng = true
rip_update = "5 s"
bfd = "1 s"
routes = ["198.51.100.0/25 x 2", "2001:db8:1::/48 x 2"]
"""

AS_BIRD = f"""
[[router]]
name = "r2"
ipv4 = "{BIRD}/16"
ipv6 = "{BIRD6}/64"
asn = 65003
neighbors = ["{V4} as 65002", "{V6} as 65002"]
rip = true
rip_update = "5 s"
bfd = "1 s"
routes = ["{BIRDS}", "{BIRDS6}"]
"""

STEERED = f"""
[[router]]
name = "r1"
ipv4 = "{ROUTER}/16"
asn = 65001
neighbors = "{V4} as 65002"
isis = "49.0001"
isis_level = "2"
isis_network = "broadcast"
hello = "1 s"
dead = "4 s"
[[router.group]]
name = "edge"
routes = ["198.51.100.0/25 x 2"]
as_path = "65010"
[[router.step]]
at = "15 s"
action = "withdraw"
count = 1
duration = "5 s"
[[router.step]]
at = "25 s"
action = "down"
message = "maintenance"
duration = "8 s"
[[router.step]]
at = "40 s"
action = "refresh"
"""


def programs():
    """The folder of FRR's programs, and the environment for its libraries."""
    found = shutil.which("zebra") or shutil.which("zebra", path="/usr/lib/frr:/usr/libexec/frr")
    if found is None:
        return None, {}
    folder = pathlib.Path(found).resolve().parent
    libraries = [*folder.parent.glob("*-linux-gnu"), *folder.parent.glob("*-linux-gnu/frr")]
    return folder, {"LD_LIBRARY_PATH": ":".join(map(str, libraries))}


@contextlib.contextmanager
def users():
    """The namespaces have the user of FRR, even if the machine does not: `ip netns exec` binds
    these files over those of /etc."""
    with contextlib.suppress(KeyError):
        pwd.getpwnam("frr")
        yield
        return
    folders = [pathlib.Path("/etc/netns", name) for name in (LOCAL, REMOTE)]
    more = {
        "passwd": "frr:x:64901:64901::/nonexistent:/usr/sbin/nologin\n",
        "group": "frr:x:64901:\nfrrvty:x:64902:frr\n",
    }
    parent_was_there = folders[0].parent.exists()
    try:
        for folder in folders:
            folder.mkdir(parents=True)
            for name, lines in more.items():
                (folder / name).write_text(pathlib.Path("/etc", name).read_text() + lines)
        yield
    finally:
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
        if not parent_was_there:
            with contextlib.suppress(OSError):
                folders[0].parent.rmdir()


def ask(folder, process, command):
    """The reply of a process of FRR on its vty socket."""
    with socket.socket(socket.AF_UNIX) as vty:
        vty.settimeout(10)
        vty.connect(str(folder / f"{process}.vty"))
        for line in ("enable", command):
            vty.sendall(line.encode() + b"\0")
            reply = b""
            # It ends with three zero octets and a code.
            while reply[-4:-1] != b"\0\0\0":
                part = vty.recv(65536)
                if not part:
                    raise Failed(f"{process} has closed its socket: {reply}")
                reply += part
    return reply.split(b"\0")[0].decode()


def table(folder, version):
    """The routes of FRR by protocol."""
    text = ask(folder, "zebra", f"show {'ip' if version == 4 else 'ipv6'} route json")
    found = {}
    for prefix, entries in json.loads(text or "{}").items():
        for entry in entries:
            found.setdefault(entry["protocol"], set()).add(prefix)
    return found


@contextlib.contextmanager
def device(folder, binaries, environment, processes=ALL):
    """FRR in the peer's namespace; the folder has its vty sockets."""
    folder = folder / "device"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name in processes:
        (folder / f"{name}.conf").write_text(DEVICE[name])
    run("chown", "-R", "64901" if not has_user() else "frr", folder)
    folder.chmod(0o755)
    with contextlib.ExitStack() as stack:
        for prefix in (PEERS, PEERS6):
            run("ip", "-n", REMOTE, "route", "add", "blackhole", prefix)
            stack.callback(run, "ip", "-n", REMOTE, "route", "del", "blackhole", prefix)
        for name in processes:
            # Its files of other places end with it: the namespace of mounts is its own.
            own = 'for p in /var/run /var/tmp; do mount -t tmpfs frr $p; done; exec "$@"'
            argv = ["sh", "-c", own, "sh", binaries / name, "-f", folder / f"{name}.conf"]
            argv += [
                "-i",
                folder / f"{name}.pid",
                "-z",
                folder / "zserv.api",
                "--vty_socket",
                folder,
                "-P",
                "0",
            ]
            argv += ["-u", "frr", "-g", "frr", "--log", "stdout"]
            argv += ["--bfdctl", folder / "bfdd.sock"] if name == "bfdd" else []
            ready = (folder / f"{name}.vty").exists
            stack.enter_context(server(argv, folder / f"{name}.log", ready, environment))
        for name in processes:
            log = (folder / f"{name}.log").read_text()
            if "on config line" in log:
                raise Failed(f"{name} of the device: {log}")
        yield folder


def has_user():
    with contextlib.suppress(KeyError):
        return pwd.getpwnam("frr") is not None
    return False


def files_of(process, number=0):
    """The folder of the files of a router's daemon."""
    return pathlib.Path(tempfile.gettempdir(), f"squall-router-{process.pid}-{number}")


def alive(process):
    if process.poll() is not None:
        raise Failed(f"squall: {process.returncode}: {process.stderr.read()}")
    return True


def every_protocol(folder, binaries, environment, bird, with_ospf):
    """The tables of both ends have the routes of the other by each protocol, and the report has
    their numbers."""
    with_bird = bird[0] is not None
    text = FRR + ('ospf = "0.0.0.0"\nospf3 = "0.0.0.0"\n' if with_ospf else "")
    text += AS_BIRD if with_bird else ""
    environment = {**environment, "LD_LIBRARY_PATH": libraries(environment, bird[1])}
    ospf = {4: ("ospf",), 6: ("ospf6",)} if with_ospf else {4: (), 6: ()}
    protocols = {4: ("bgp", "isis", "rip", *ospf[4]), 6: ("bgp", "isis", "ripng", *ospf[6])}
    processes = [one for one in ALL if with_ospf or "ospf" not in one]

    def missing(of, expected):
        """Routes that a table does not have."""
        found = {version: table(of, version) for version in (4, 6)}
        return {
            f"{protocol} {version}": left
            for version, routes in expected.items()
            for protocol in protocols[version]
            if (left := set(routes) - found[version].get(protocol, set()))
        }

    frames = captured(folder / "frr.pcap", "")
    with (
        device(folder, binaries, environment, processes) as peer,
        frames,
        running(folder, text, environment) as (process, routers),
    ):
        own = files_of(process)
        # BGP of the router keeps its routes to itself.
        kept = {"bgp 4", "bgp 6"}

        def has(of, expected, skip=frozenset()):
            is_there = alive(process) and (of / "zebra.vty").exists()
            return is_there and not set(missing(of, expected)) - skip

        peer_routes, own_routes = {4: [PEERS], 6: [PEERS6]}, {4: ROUTES, 6: ROUTES6}
        try:
            wait("the device has the routes", lambda: has(peer, own_routes))
            # If the first request of RIPng was too early, the next update tells, after 15 to 45 s
            # (RFC 2080 section 2.5).
            wait("the router has the routes", lambda: has(own, peer_routes, kept), 75)
        except Failed as error:
            left = missing(peer, own_routes), missing(own, peer_routes)
            raise Failed(f"{error}: {left}\n{logs(own)}") from error
        bgp = ask(peer, "bgpd", f"show bgp ipv4 unicast {ROUTES[0]} json")

        def has_received(version):
            summary = json.loads(ask(own, "bgpd", f"show bgp ipv{version} unicast summary json"))
            return alive(process) and any(one["pfxRcd"] for one in summary["peers"].values())

        wait("the router has received by BGP", lambda: has_received(4) and has_received(6))
        if with_bird:
            wait(
                "the device has the routes of BIRD",
                lambda: (
                    alive(process)
                    and BIRDS in table(peer, 4)["bgp"] & table(peer, 4)["rip"]
                    and BIRDS6 in table(peer, 6)["bgp"]
                ),
            )

        def has_bfd():
            peers = json.loads(ask(peer, "bfdd", "show bfd peers json"))
            up = {one["peer"] for one in peers if one["status"] == "up"}
            return alive(process) and {ROUTER, ROUTER6} <= up

        wait("both sessions of BFD are up", has_bfd)
    [path] = json.loads(bgp)["paths"]
    found = (path["aspath"]["string"], path["metric"], path["community"]["string"], path["origin"])
    same("attributes", found, ("65001 65001", 7, "65001:42", "IGP"))
    router, *others = routers
    found = {
        one["name"]: (one["kind"], one["up"], one["imported"] >= 1, one["exported"])
        for one in router["protocols"]
        if one["name"] != "bfd1"
    }
    expected = {
        "bgp1": ("BGP", True, True, 2),
        "bgp2": ("BGP", True, True, 2),
        **({one: ("OSPF", True, True, 2) for one in ("ospf4", "ospf6")} if with_ospf else {}),
        "isis1": ("IS-IS", True, True, 4),
        "rip4": ("RIP", True, True, 2),
        "rip6": ("RIPng", True, True, 2),
    }
    same("protocols", found, expected)
    same("daemon", (router["daemon"], router["failed"], router["downs"]), ("FRR", None, 0))
    for other in others:
        states = {one["name"]: one["up"] for one in other["protocols"]}
        expected = {"bgp1": True, "bgp2": True, "rip4": True, "bfd1": True}
        same("BIRD", (other["daemon"], states, other["failed"]), ("BIRD", expected, None))


def bird_with_ospf(folder, binaries, environment, bird):
    """FRR has the routes of BIRD by OSPF, and BIRD those of FRR."""
    text = f'''
[[router]]
name = "r2"
ipv4 = "{BIRD}/16"
ipv6 = "{BIRD6}/64"
ospf = "0.0.0.0"
ospf3 = "0.0.0.0"
hello = "1 s"
dead = "4 s"
routes = ["{BIRDS}", "{BIRDS6}"]
'''
    environment = {**environment, "LD_LIBRARY_PATH": libraries(environment, bird[1])}
    with (
        device(folder, binaries, environment, ("zebra", "bfdd", "ospfd", "ospf6d")) as peer,
        running(folder, text, environment) as (process, routers),
    ):
        for version, protocol, route in [(4, "ospf", BIRDS), (6, "ospf6", BIRDS6)]:
            wait(
                f"the device has {route}",
                lambda v=version, p=protocol, r=route: (
                    alive(process) and r in table(peer, v).get(p, set())
                ),
            )
        expected = {"ospf4": PEERS, "ospf6": PEERS6}
        wait_for_imports(process, bird[0], environment, expected)
    [router] = routers
    found = {one["name"]: (one["up"], one["imported"] >= 1) for one in router["protocols"]}
    same("OSPF", found, {"ospf4": (True, True), "ospf6": (True, True)})


def libraries(*environments):
    paths = [one["LD_LIBRARY_PATH"] for one in environments if "LD_LIBRARY_PATH" in one]
    return ":".join(paths)


def logs(folder):
    with contextlib.suppress(OSError):
        return (folder / "log").read_text()[-4000:]
    return ""


def steps(folder, binaries, environment):
    """The device sees each step of the profile."""
    first = ROUTES[0]

    def routes(peer):
        found = table(peer, 4)
        return found.get("bgp", set()), found.get("isis", set())

    with (
        device(folder, binaries, environment, ("zebra", "bfdd", "bgpd", "isisd")) as peer,
        running(folder, STEERED, environment) as (process, routers),
    ):

        def seen(what, condition):
            wait(what, lambda: alive(process) and condition(*routes(peer)), 20)

        seen("all routes", lambda bgp, isis: set(ROUTES) <= bgp & isis)
        seen("one is withdrawn", lambda bgp, isis: first not in bgp | isis)
        seen("it is back", lambda bgp, isis: first in bgp & isis)
        seen("sessions are down", lambda bgp, isis: not bgp and not isis)
        why = json.loads(ask(peer, "bgpd", f"show bgp neighbors {ROUTER} json"))[ROUTER]
        seen("they are back", lambda bgp, isis: set(ROUTES) <= bgp & isis)
        # The report has a step when it has been carried out.
        time.sleep(10)
    same("message", why.get("lastShutdownDescription"), "maintenance")
    [router] = routers
    found = [(one["action"], one["routes"], one["error"]) for one in router["steps"]]
    expected = [
        ("withdraw", 1, None),
        ("announce", 1, None),
        ("down", 0, None),
        ("up", 0, None),
        ("refresh", 0, None),
    ]
    same("steps", found, expected)
    if any(one["acknowledged_s"] is None for one in router["steps"]):
        raise Failed(f"steps: {router['steps']}")
    same("downs", router["downs"], 0)


ISIS = f'[[router]]\nname = "r1"\nipv4 = "{ROUTER}/16"\nisis = "49.0001"\nhello = "1 s"\n'


def processes_below(pid):
    """The descendants of a process: their numbers and programs."""
    found = {}
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, task.read_text().split()):
                found[child] = pathlib.Path(f"/proc/{child}/comm").read_text().strip()
                found |= processes_below(child)
    return found


def has_frr(process):
    return alive(process) and {"zebra", "isisd"} <= set(processes_below(process.pid).values())


def a_process_that_dies_is_reported(folder, environment):
    """The run is not valid, and says which one died; it does not end before its time."""
    with running(folder, ISIS, environment, 3) as (process, routers):
        wait("FRR starts", lambda: has_frr(process))
        for pid, name in processes_below(process.pid).items():
            if name == "isisd":
                os.kill(pid, signal.SIGKILL)
        wait("the others end", lambda: "zebra" not in processes_below(process.pid).values(), 3)
        process.wait(30)
    [router] = routers
    same("failure", router["failed"].split(":")[:2], ["isisd", " signal 9"])
    verdict = json.loads((folder / "report.json").read_text())["verdict"]
    same("verdict", verdict["status"], "not-valid")


def nothing_is_left_of_a_killed_run(folder, environment):
    """The kernel ends all processes and the namespace with Squall."""
    process = started(folder, ISIS, environment)
    try:
        wait("FRR starts", lambda: has_frr(process))
        left = processes_below(process.pid)
        [zebra] = [pid for pid, name in left.items() if name == "zebra"]
        space = os.stat(f"/proc/{zebra}/ns/net").st_ino
    finally:
        process.kill()
        process.communicate(timeout=30)
        shutil.rmtree(files_of(process), ignore_errors=True)
    wait("they end", lambda: not any(pathlib.Path(f"/proc/{pid}").exists() for pid in left), 5)

    def spaces():
        for path in pathlib.Path("/proc").glob("[0-9]*/ns/net"):
            with contextlib.suppress(OSError):
                yield path.stat().st_ino

    wait("its namespace ends", lambda: space not in spaces(), 5)


def gobgp(folder, gobgpd, environment, frr_environment):
    """GoBGP has the routes of the profile."""
    config = folder / "gobgp.toml"
    config.write_text(GOBGP)
    client = pathlib.Path(gobgpd).resolve().with_name("gobgp")
    environment = {**os.environ, **environment}

    def rib():
        argv = inside(REMOTE, client, "global", "rib", "-j")
        return set(json.loads(run(*argv, env=environment).stdout))

    log = folder / "gobgp.log"
    argv = [gobgpd, "-f", config, "--log-plain", "-l", "info"]
    with server(argv, log, lambda: "Add a peer" in log.read_text(), env=environment):
        run(*inside(REMOTE, client, "global", "rib", "add", PEERS), env=environment)
        text = (
            f'[[router]]\nname = "r1"\ndaemon = "frr"\nipv4 = "{ROUTER}/16"\nasn = 65001\n'
            f'neighbors = "{V4} as 65002"\nroutes = "198.51.100.0/25 x 2"\n'
        )
        with running(folder, text, frr_environment) as (process, routers):
            wait("GoBGP has the routes", lambda: alive(process) and rib() == {*ROUTES, PEERS})
            time.sleep(1)
    [router] = routers
    [bgp] = router["protocols"]
    same("BGP", (bgp["state"], bgp["imported"], bgp["exported"]), ("Established", 1, 2))


def main():
    if os.geteuid() != 0:
        print("SKIPPED: needs root for network namespaces")
        return
    binaries, environment = programs()
    if binaries is None:
        print("SKIPPED: FRR is not installed (scripts/setup system)")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        # The user of FRR reads its files there.
        folder.chmod(0o755)
        try:
            with users():
                network()
                bird = unpacked("bird")
                if bird[0] is None:
                    print("SKIPPED: bird is not installed (scripts/setup system)")
                full = "--full" in sys.argv[1:]
                every_protocol(folder, binaries, environment, bird, full)
                a_process_that_dies_is_reported(folder, environment)
                nothing_is_left_of_a_killed_run(folder, environment)
                if full and bird[0] is not None:
                    bird_with_ospf(folder, binaries, environment, bird)
                if full:
                    steps(folder, binaries, environment)
                    go, go_environment = unpacked("gobgpd")
                    if go is None:
                        print("SKIPPED: gobgpd is not installed (scripts/setup system)")
                    else:
                        gobgp(folder, go, go_environment, environment)
        finally:
            for namespace in [LOCAL, REMOTE]:
                subprocess.run(["ip", "netns", "del", namespace], check=False)
    print("frr: sessions and routes as the peers have them")


if __name__ == "__main__":
    try:
        main()
    except Failed as error:
        print(f"FAILED: {error}")
        sys.exit(1)

#!/usr/bin/env python3
"""BGP sessions of squall-speaker with BIRD and GoBGP, over a TAP interface in a private namespace: they
have the announced routes with their attributes, and the speaker has their routes. Sessions run over
IPv4 and IPv6, and end with a NOTIFICATION.

With --full also a million routes, and the time until the peer has them.

Needs root, ip and nsenter; parts need bird and gobgpd. The example "speak" is in the folder $EXAMPLES
or built by cargo.
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

from flows import ROOT, V4, V6, wait  # the addresses of the peer
from host_services import unpacked
from tools import Failed, run, same

OWN, OWN6 = "10.77.0.9", "fd77::9"
PEERS, PEERS6 = "203.0.113.0/24", "2001:db8:f::/48"

BIRD = """
log "{folder}/bird.log" all;
router id 192.0.2.1;
protocol device {{ scan time 1; }}
protocol static {{ ipv4; route {PEERS} blackhole; }}
protocol static {{ ipv6; route {PEERS6} blackhole; }}
protocol bgp speaker {{
  local {peer} as 65002; neighbor {own} as 65001; passive on; graceful restart on; {more}
  ipv4 {{ import all; export where source = RTS_STATIC; next hop self; {add_path} }};
  ipv6 {{ import all; export where source = RTS_STATIC; next hop self; {add_path} }};
}}
"""

GOBGP = f"""
[global.config]
as = 65002
router-id = "192.0.2.1"
[[neighbors]]
[neighbors.config]
neighbor-address = "{OWN}"
peer-as = 65001
[neighbors.transport.config]
passive-mode = true
[[neighbors.afi-safis]]
[neighbors.afi-safis.config]
afi-safi-name = "ipv4-unicast"
[[neighbors.afi-safis]]
[neighbors.afi-safis.config]
afi-safi-name = "ipv6-unicast"
"""


def example():
    built = os.environ.get("EXAMPLES")
    if built is None:
        run("cargo", "build", "-q", "-p", "squall-speaker", "--example", "speak", cwd=ROOT)
        built = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"), "debug/examples")
    return pathlib.Path(built, "speak")


class Speaker:
    """A speaker against a command in its namespace. It stops at the end of the block."""

    def __init__(self, folder, version, routes, command, environment):
        self.log = (folder / "speak.log").open("w+")
        argv = [str(word) for word in [example(), version, routes, *command]]
        self.process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env={**os.environ, **environment},
        )
        self.pid = self.line().split()[1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        try:
            self.process.wait(30)
        finally:
            self.process.kill()
            self.process.wait()

    def line(self):
        line = self.process.stdout.readline()
        if not line:
            self.log.seek(0)
            raise Failed(f"speak: {self.process.wait(10)}: {self.log.read()}")
        return line.strip()

    def announced(self):
        """Wait until everything is acknowledged. Return the speaker's line."""
        line = self.line()
        if not line.startswith("announced: Established"):
            raise Failed(line)
        return line

    def learnt(self):
        """The numbers of routes of IPv4 and IPv6 that the speaker has learnt."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return tuple(map(int, re.search(r"learnt (\d+) and (\d+)", self.line()).groups()))

    def inside(self, *argv, **options):
        """Run a command in the namespace of the peer."""
        return run("nsenter", "-t", self.pid, "-n", *argv, **options)


def bird(folder, program, environment, version, routes, **options):
    """A speaker with BIRD as its peer, and a function that asks BIRD."""
    own, peer = (OWN, V4) if version == 4 else (OWN6, V6)
    values = {"add_path": "", "more": "", **options}
    config, control = folder / "bird.conf", folder / "bird.ctl"
    control.unlink(missing_ok=True)
    config.write_text(
        BIRD.format(folder=folder, own=own, peer=peer, PEERS=PEERS, PEERS6=PEERS6, **values)
    )
    command = [program, "-f", "-c", config, "-s", control]
    client = pathlib.Path(program).with_name("birdc")

    def ask(*what):
        return run(client, "-s", control, *what, env={**os.environ, **environment}).stdout

    return Speaker(folder, version, routes, command, environment), ask


def count(text):
    return int(re.search(r"Total: (\d+) of", text)[1])


def with_bird(folder, program, environment, version, **options):
    """BIRD has all routes with their attributes, and the speaker has BIRD's."""
    speaker, ask = bird(folder, program, environment, version, 3000, **options)
    with speaker:
        speaker.announced()
        # 3,000 and 2, and the static ones.
        wait("BIRD has the routes", lambda: count(ask("show", "route", "count")) == 3004)
        wait("the speaker has the peer's", lambda: speaker.learnt() == (1, 1))
        for route in ["16.11.183.0/24", "2001:db8:2::/48"]:
            text = ask("show", "route", "all", route)
            for attribute in [
                "BGP.as_path: 65001 65001 4200000001",
                "BGP.med: 7",
                "BGP.community: (65001,42)",
                "BGP.large_community: (65001, 1, 2)",
                "BGP.origin: IGP",
            ]:
                if attribute not in text:
                    raise Failed(f"{route}: no {attribute} in {text}")
    log = (folder / "bird.log").read_text()
    if "Received: Administrative shutdown" not in log:
        raise Failed(f"no CEASE in {log}")
    for word in ["Invalid", "Malformed", "<ERR>"]:
        if word in log:
            raise Failed(f"{word} in {log}")
    (folder / "bird.log").unlink()


def with_gobgp(folder, program, environment):
    """GoBGP has all routes, and the speaker has GoBGP's."""
    config = folder / "gobgp.toml"
    config.write_text(GOBGP)
    client = pathlib.Path(program).resolve().with_name("gobgp")
    command = [program, "-f", config, "--log-plain", "-l", "warn"]
    with Speaker(folder, 4, 3000, command, environment) as speaker:

        def ask(*what):
            return speaker.inside(client, *what, env={**os.environ, **environment}).stdout

        def up():
            with contextlib.suppress(Failed):
                return bool(ask("neighbor"))
            return False

        wait("GoBGP starts", up)
        ask("global", "rib", "add", PEERS)
        ask("global", "rib", "add", PEERS6, "-a", "ipv6")
        speaker.announced()
        wait("the speaker has the peer's", lambda: speaker.learnt() == (1, 1))
        tables = {
            family: json.loads(ask("global", "rib", "-a", family, "-j"))
            for family in ["ipv4", "ipv6"]
        }
        same(
            "routes",
            {name: len(table) for name, table in tables.items()},
            {"ipv4": 3001, "ipv6": 3},
        )
        [path] = tables["ipv6"]["2001:db8:2::/48"]
        attributes = {attribute["type"]: attribute for attribute in path["attrs"]}
        same("MED", attributes[4]["metric"], 7)
        same("AS_PATH", attributes[2]["as_paths"][0]["asns"], [65001, 65001, 4200000001])
        ask("global", "rib", "del", PEERS6, "-a", "ipv6")
        wait("the speaker has the withdrawal", lambda: speaker.learnt() == (1, 0))


def a_million_routes(folder, program, environment):
    """The time until BIRD has acknowledged a million routes, and until it has them."""
    speaker, ask = bird(folder, program, environment, 4, 1_000_000)
    with speaker:
        begin = time.monotonic()
        line = speaker.announced()
        total = 1_000_004
        wait("BIRD has the routes", lambda: count(ask("show", "route", "count")) == total, 60)
        print(f"1,000,000 routes: {time.monotonic() - begin:.2f} s until BIRD has them; {line}")


def main():
    if os.geteuid() != 0:
        print("SKIPPED: needs root for network namespaces")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        program, environment = unpacked("bird")
        if program is None:
            print("SKIPPED: bird is not installed (scripts/setup system)")
        else:
            for version in [4, 6]:
                with_bird(folder, program, environment, version)
                more = {"add_path": "add paths rx;", "more": "enable extended messages on;"}
                with_bird(folder, program, environment, version, **more)
            if "--full" in sys.argv:
                a_million_routes(folder, program, environment)
        program, environment = unpacked("gobgpd")
        if program is None:
            print("SKIPPED: gobgpd is not installed (scripts/setup system)")
        else:
            with_gobgp(folder, program, environment)
    print("speaker: routes as the peers have them")


if __name__ == "__main__":
    try:
        main()
    except Failed as error:
        print(f"FAILED: {error}")
        sys.exit(1)

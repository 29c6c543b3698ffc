#!/usr/bin/env python3
"""The controller of many nodes, which are simulated: how long 1,000 take to prepare, start and
report; how long their reports take to merge; and the CPU time that their heartbeats cost the
controller, each node once per second, without Ray and through it.

    .venv/bin/python benches/cluster.py [--squall target/release/squall] [--nodes 1000] [--seconds 20]

The reports are those of real runs, of part 1 to N of one profile: the sum is checked. With Ray, the
nodes share a few worker processes, whose CPU time is not the controller's and is not counted.
"""

import argparse
import asyncio
import json
import os
import pathlib
import secrets
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python/tests"))

import squall  # noqa: E402
from cluster_simulated import Engine, Simulated  # noqa: E402
from squall.cluster._control import Control, Part, Settings  # noqa: E402

PACKETS, STREAMS = 100_000, 4
WORKERS = 4


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--squall", default=str(ROOT / "target/release/squall"))
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=20)
    options = parser.parse_args()
    began = time.monotonic()
    reports = runs(options.nodes)
    print(f"{options.nodes} runs of parts: {time.monotonic() - began:.1f} s (the nodes' work)")
    whole(options, reports)
    beats("without Ray", options, peers(options, reports))
    try:
        import ray
    except ImportError:
        print("SKIPPED: with Ray: it is not installed")
        return
    ray.init(num_cpus=WORKERS, include_dashboard=False, object_store_memory=80 << 20)
    try:
        beats("with Ray", options, ray_peers(ray, options))
    finally:
        ray.shutdown()


def runs(nodes):
    profile = squall.Profile(ports={"A": "loop:cluster,virtual"})
    for i in range(STREAMS):
        burst = {"burst": PACKETS // STREAMS}
        profile.add(squall.Stream(name=f"s{i}", packet="eth/ipv4/udp", rate="1 Mpps", mode=burst))
    return [squall.run(profile, part=f"{i}/{nodes}").to_dict() for i in range(1, nodes + 1)]


def peers(options, reports):
    engines = (
        Engine(f"node{i}", reports[i % len(reports)], options.seconds) for i in range(options.nodes)
    )
    return [Simulated(engine) for engine in engines]


def whole(options, reports):
    """Perform a run, from the first request to the report of the whole."""
    began = time.monotonic()
    control = Control(
        [Simulated(Engine(f"node{i}", report, 0.1)) for i, report in enumerate(reports)],
        Settings(lease_s=8.0),
    )
    asyncio.run(control.run([Part(name, {}) for name in control.members]))
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for name, member in control.members.items():
            files.append(pathlib.Path(folder) / f"{name}.json")
            files[-1].write_text(json.dumps(member.report))
        merge = [options.squall, "report", *map(str, files), "--json", "-", "--quiet"]
        done = subprocess.run([*merge, "--allow-invalid"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    sent = sum(stream["tx_packets"] for stream in json.loads(done.stdout)["streams"])
    assert sent == PACKETS, sent
    print(
        f"prepare, start, report: {started - began:.2f} s; merge: {time.monotonic() - started:.2f} s;"
        f" {sent} packets in the whole"
    )


def beats(what, options, peers):
    """Run for some seconds with a lease of 4 s: one heartbeat per second."""
    control = Control(peers, Settings(lease_s=4.0))
    used = []

    def watch(of):
        if of.elapsed_s() > 1:
            used.append((time.monotonic(), time.process_time()))

    control._watch = watch
    asyncio.run(control.run([Part(name, {}) for name in control.members]))
    (began, before), (ended, after) = used[0], used[-1]
    share = (after - before) / (ended - began)
    bounds = sorted(member.bound_ns for member in control.members.values())
    print(
        f"{what}: {len(peers)} nodes cost the controller {share:.2f} of a CPU;"
        f" clocks within {bounds[len(bounds) // 2] / 1e6:.2f} ms (median);"
        f" lost {len(control.lost())}"
    )


def ray_peers(ray, options):
    from squall.cluster._ray import RayPeer

    class Many:
        """Several simulated nodes in one process."""

        def __init__(self, names, seconds):
            sys.path.insert(0, str(ROOT / "python/tests"))
            from cluster_simulated import Engine

            self.engines = {name: Engine(name, {"of": name}, seconds) for name in names}

        def call(self, name, method, *arguments):
            return getattr(self.engines[name], method)(*arguments)

    class Peer(RayPeer):
        async def call(self, method, *arguments, timeout):
            return await super().call("call", self.name, method, *arguments, timeout=timeout)

    names = [f"node{i}" for i in range(options.nodes)]
    shares = [names[i::WORKERS] for i in range(WORKERS)]
    kind = ray.remote(Many)
    actors = [kind.remote(share, options.seconds) for share in shares]
    return [Peer(name, actor) for actor, share in zip(actors, shares) for name in share]


if __name__ == "__main__":
    # A private token: by default, Ray would write one into the home directory.
    os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_AUTH_MODE="token")
    os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    main()

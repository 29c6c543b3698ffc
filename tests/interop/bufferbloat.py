#!/usr/bin/env python3
"""`squall test bufferbloat` through bridge.py: its queue is the truth, and its counters show that the
load has filled it.
"""

import json
import os
import pathlib
import subprocess
import sys

from methods import Failed, Lab, expect, figure

HERE = pathlib.Path(__file__).resolve()
SQUALL = os.environ.get("SQUALL", str(HERE.parents[2] / "target/debug/squall"))

# One end of each pair is a port of the test, the other one is the device's.
PAIRS = """
set -e
for i in 0 1; do
  ip link add p$i type veth peer name s$i
  for side in p$i s$i; do
    echo 1 > /proc/sys/net/ipv6/conf/$side/disable_ipv6
    ip link set $side arp off up
  done
done
"""

# Frames per second in each direction, and frames that wait.
RATE, QUEUE = 1000, 50


def tested(lab, *arguments):
    """The result of a test between the pairs, and the counters of the device."""
    device = [lab.squall, "lab", "exec", lab.name, "--", sys.executable]
    device += [str(HERE.with_name("bridge.py")), "s0", "s1"]
    device += ["--rate", str(RATE), "--queue", str(QUEUE)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(device, **pipes) as bridge:
        try:
            expect(bridge.stdout.readline() == "ready\n", "the bridge is not ready")
            ports = ["--port", "A=af_packet:p0", "--port", "B=af_packet:p1"]
            command = ["bufferbloat", *ports, "--quick", "--rest", "0.05", "--linger", "200ms"]
            command += ["--json", "-", *arguments]
            done = lab.exec(lab.squall, "test", *command, timeout=120)
        finally:
            counters, _ = bridge.communicate(timeout=10)
    expect(done.returncode in (0, 1, 4), f"{done.returncode}: {done.stderr}")
    return json.loads(done.stdout), json.loads(counters)


def the_load_adds_the_queue_of_the_device_to_the_latency(lab):
    found, counters = tested(lab, "--max-increase-ms", "5")
    status = found["verdict"]["status"]
    if status == "generator_bound":
        return
    expect(status == "failed", f"50 ms of queue are more than 5 ms: {found['verdict']}")
    full = QUEUE / RATE * 1e9
    for stream, way in (("A to B", "a"), ("B to A", "b")):
        idle = figure(found, f"idle.mean/{stream}")["value"]
        loaded = figure(found, f"loaded.p99/{stream}")["value"]
        expect(counters[way]["dropped_queue"] > 0, f"the queue was full: {counters[way]}")
        expect(idle < full / 4, f"{stream}: {idle} ns without load")
        # A frame waits for at most the whole queue; the process of the device adds some time.
        expect(0.8 * full < loaded < 1.5 * full, f"{stream}: {loaded} ns of {full} ns")
    increase = figure(found, "increase")["value"]
    expect(0.5 * full < increase < 3 * full, f"{increase} ns of two queues of {full} ns")
    # Data frames have 1460 octets of payload, and leave the queue at its rate.
    for direction in ("down", "up"):
        goodput = figure(found, f"goodput.{direction}")["value"]
        most = RATE * 1460 * 8
        expect(0.3 * most < goodput < 1.05 * most, f"{direction}: {goodput} of {most} bit/s")
    lines = [len(one["points"]) for one in found["plots"][0]["series"]]
    expect(lines and min(lines) >= 10, f"a time series: {lines}")


def one_direction_leaves_the_other_queue_empty(lab):
    found, counters = tested(lab, "--up", "0", "--load-s", "2")
    if found["verdict"]["status"] == "generator_bound":
        return
    up, down = (figure(found, f"loaded.mean/{s}")["value"] for s in ("A to B", "B to A"))
    expect(up < down / 2, f"downloads fill the queue from B to A: {up} and {down} ns")
    names = [one["name"] for one in found["figures"]]
    expect("goodput.up" not in names, names)
    expect(counters["b"]["dropped_queue"] > 0, counters["b"])


class Pairs(Lab):
    """A lab with the pairs of interfaces."""

    def __enter__(self):
        up = self.run("up", self.name)
        if up.returncode == 3:
            print(f"SKIPPED: {up.stderr.strip()}")
            return None
        expect(up.returncode == 0, f"lab up: {up.stderr}")
        made = self.exec("sh", "-c", PAIRS)
        if made.returncode != 0:
            self.run("down", self.name)
            print(f"SKIPPED: pairs of interfaces: {made.stderr.strip()}")
            return None
        return self


def main():
    with Pairs(SQUALL) as lab:
        if lab is None:
            return
        the_load_adds_the_queue_of_the_device_to_the_latency(lab)
        one_direction_leaves_the_other_queue_empty(lab)
    print("bufferbloat: the queue of the device, by its own counters")
    return 0


if __name__ == "__main__":
    try:
        main()
    except Failed as failed:
        sys.exit(f"FAILED: {failed}")

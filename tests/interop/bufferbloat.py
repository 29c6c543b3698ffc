#!/usr/bin/env python3
"""`squall test bufferbloat` through bridge.py: its queue gives the true delay, and its counters
show that the load has filled the queue. With --full, also a load in one direction.
"""

import json
import os
import pathlib
import sys

from methods import LINKS, Device, Failed, Lab, expect, figure

HERE = pathlib.Path(__file__).resolve()
SQUALL = os.environ.get("SQUALL", str(HERE.parents[2] / "target/debug/squall"))

# Frames per second in each direction, and frames that fit in the queue.
RATE, QUEUE = 1000, 50


def tested(lab, *arguments):
    """Run a test between the links. Return its result, and the counters of the device."""
    ports = ["--port", "A=af_packet:p0", "--port", "B=af_packet:p1"]
    command = [
        "bufferbloat",
        *ports,
        "--quick",
        "--rest",
        "0.05",
        "--linger",
        "200ms",
        "--json",
        "-",
    ]
    with Device(lab, "--rate", str(RATE), "--queue", str(QUEUE)) as device:
        done = lab.exec(lab.squall, "test", *command, *arguments, timeout=120)
    expect(done.returncode in (0, 1, 4), f"{done.returncode}: {done.stderr}")
    return json.loads(done.stdout), device.ways


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
        # A frame waits for at most the full queue; the process of the device adds some time.
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


def main():
    with Lab(SQUALL, script=LINKS) as lab:
        if lab is None:
            return
        the_load_adds_the_queue_of_the_device_to_the_latency(lab)
        if "--full" in sys.argv[1:]:
            one_direction_leaves_the_other_queue_empty(lab)
    print("bufferbloat: the queue of the device, by its own counters")
    return 0


if __name__ == "__main__":
    try:
        main()
    except Failed as failed:
        sys.exit(f"FAILED: {failed}")

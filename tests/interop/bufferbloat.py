#!/usr/bin/env python3
"""`squall test bufferbloat` through bridge.py: its queue gives the true delay, and its counters
show that the load has filled the queue. With --full, also a load in one
direction, and each queue discipline that the kernel has.
"""

import json
import os
import pathlib
import sys
import tempfile

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


# A rate at which frames of 1,500 octets leave at the rate of the bridge's queue, and both directions
# of the flows through the lab's router.
SHAPED = "12Mbps"
FLOWS = """
[flows]
clients = "A"
servers = "B"
client_network = { gateway = ["198.18.1.1"] }
server_network = { gateway = ["198.18.2.1"] }

[[template]]
name = "http"
clients = "198.18.1.10-198.18.1.99"
servers = "198.18.2.10"
app = "http"
cps = 1
"""
# Any kernel has pfifo.
DISCIPLINES = ["pfifo", "fq_codel", "fq", "sfq", "codel", "pie"]


def shaped(discipline):
    """The result of a test through a router with that discipline; None if the kernel lacks it."""
    device = f"router,rate={SHAPED},queue={discipline},limit={QUEUE}"
    with tempfile.TemporaryDirectory() as folder:
        profile = pathlib.Path(folder) / "rig.toml"
        lab = Lab(SQUALL, "--device", device, "--profile", str(profile))
        up = lab.run("up", lab.name, *lab.device)
        if up.returncode != 0:
            expect("does not take the queue discipline" in up.stderr, up.stderr)
            print(f"not in this kernel: {discipline}")
            return None
        try:
            profile.write_text(profile.read_text() + FLOWS)
            test = ["bufferbloat", profile, "--quick", "--rest", "0.05", "--linger", "200ms"]
            done = lab.exec(lab.squall, "test", *test, "--json", "-", timeout=120)
            counters = lab.run("exec", lab.name, "--device", "--", "tc", "-s", "qdisc")
        finally:
            lab.run("down", lab.name)
    expect(done.returncode in (0, 4), f"{discipline}: {done.returncode}: {done.stderr}")
    expect(f"qdisc {discipline} 10:" in counters.stdout, counters.stdout)
    found = json.loads(done.stdout)
    named = found["host"].get("device of the lab")
    expect(named == device, f"the result names the device: {named}")
    return found


def queue_disciplines_of_the_kernel_are_named(full):
    increases = {}
    for discipline in DISCIPLINES if full else ["pfifo"]:
        found = shaped(discipline)
        if found and found["verdict"]["status"] != "generator_bound":
            increases[discipline] = figure(found, "increase")["value"]
    full_queues = 2 * QUEUE * 1514 * 8 / 12e6 * 1e9
    if "pfifo" in increases:
        increase = increases["pfifo"]
        expect(0.2 * full_queues < increase < 2 * full_queues, f"{increase} of {full_queues} ns")
        for fair in ("fq_codel", "fq", "sfq"):
            # A stream of few frames does not wait for the queues of other flows.
            if fair in increases:
                expect(increases[fair] < increase / 2, increases)
    shown = ", ".join(f"{name} {ns / 1e6:.1f} ms" for name, ns in increases.items())
    print(f"bufferbloat: queue disciplines add {shown or 'unknown (the machine is busy)'}")


def main():
    queue_disciplines_of_the_kernel_are_named("--full" in sys.argv[1:])
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

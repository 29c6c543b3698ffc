#!/usr/bin/env python3
"""`squall test rfc8239` through switch.py, whose queues and counters are the truth. With --full also
pairs of ports, head-of-line blocking, line rate, and incast.
"""

import json
import os
import pathlib
import subprocess
import sys

from methods import Failed, Lab, expect, figure

HERE = pathlib.Path(__file__).resolve()
SQUALL = os.environ.get("SQUALL", str(HERE.parents[2] / "target/debug/squall"))

# Frames per second of each port, and frames of each egress queue.
RATE, QUEUE = 500, 20


def links(ports):
    return f"""
set -e
for i in $(seq 0 {ports - 1}); do
  ip link add p$i type veth peer name s$i
  for end in p$i s$i; do
    echo 1 > /proc/sys/net/ipv6/conf/$end/disable_ipv6
    ip link set $end arp off up
  done
  # A veth passes segments of TCP on uncut, which are too long for the switch.
  ethtool -K p$i tso off 2>&1 || true
done
"""


def tested(lab, ports, test, *arguments, device=()):
    """The result of a test, and the counters of the switch by interface."""
    switch = [sys.executable, str(HERE.parent / "switch.py"), *(f"s{i}" for i in range(ports))]
    switch += ["--rate", str(RATE), "--queue", str(QUEUE), *device]
    command = [lab.squall, "lab", "exec", lab.name, "--", *switch]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
    expect(process.stdout.readline() == "ready\n", "the switch does not start")
    run = ["rfc8239", "--tests", test, "--max-rate", f"{RATE}pps", "--frame-sizes", "128"]
    run += [f"--port={chr(ord('A') + i)}=af_packet:p{i}" for i in range(ports)]
    run += ["--quick", "--rest", "0.05", "--linger", "100ms", "--json", "-"]
    # Twice the queue at most, so that the first trial of a search is short.
    run += ["--overload-s", "0.8", "--burst-s", "0.1"]
    try:
        done = lab.exec(lab.squall, "test", *run, *arguments, timeout=300)
    finally:
        counters, _ = process.communicate(timeout=10)
    expect(done.returncode in (0, 4), f"{done.returncode}: {done.stderr}")
    return json.loads(done.stdout), json.loads(counters)


def is_queue(one, expected, within):
    """A generator that was late gives a lower bound."""
    text = f"{one} of {expected} frames"
    if one["limit"] == "device":
        expect(abs(one["value"] - expected) <= within, text)
    else:
        expect(one["limit"] == "generator" and one["value"] <= expected + within, text)


def buffers_are_the_queues_of_the_switch(lab, ports):
    found, counters = tested(lab, ports, "buffering", "--oversubscription", "0.1")
    names = ["buffer/128", "buffer.port/B", f"buffer.device/{chr(ord('A') + ports - 1)}"]
    names += ["buffer.pair"] if ports >= 6 else []
    for name in names:
        is_queue(figure(found, name), QUEUE, 2)
    deepest = max(one["deepest"] for one in counters.values())
    expect(QUEUE - 1 <= deepest <= QUEUE + 1, f"a queue was full: {counters}")
    expect(sum(one.get("dropped_queue", 0) for one in counters.values()) > 0, counters)


def microbursts_fill_the_queue(lab, ports):
    found, counters = tested(lab, ports, "microburst")
    last = chr(ord("A") + ports - 1)
    ingress = ports - 1
    # The egress port forwards the frames of one ingress port meanwhile.
    expected = QUEUE / (ingress - 1) * ingress
    is_queue(figure(found, f"microburst.{last}/128"), expected, 2 * ingress)
    expect(counters[f"s{ports - 1}"]["dropped_queue"] > 0, counters)


def only_a_switch_that_blocks_is_found_to(lab, ports):
    for device in ((), ("--ingress", "10")):
        found, counters = tested(lab, ports, "head-of-line", device=device)
        if found["verdict"]["status"] == "generator_bound":
            continue
        lost = figure(found, "head_of_line.loss/128")["value"]
        expect((lost > 0.01) == bool(device), f"{device}: {lost}, {counters}")


def no_frame_is_lost_at_line_rate(lab, ports):
    found, counters = tested(lab, ports, "line-rate")
    dropped = sum(one.get("dropped_queue", 0) for one in counters.values())
    lost = [one["value"] for one in found["figures"] if ".loss/" in one["name"]]
    if dropped == 0:
        expect(max(lost, default=0) == 0, found["figures"])


def bursts_wait_in_the_queue_that_tcp_fills(lab, ports):
    found, _ = tested(lab, ports, "incast", "--burst-frames", "5", "--connections", "2")
    if found["verdict"]["status"] == "generator_bound":
        return
    alone, shared = (figure(found, f"incast.goodput/{n}")["value"] for n in (0, ports - 2))
    most = RATE * 1460 * 8
    expect(0.2 * most < alone <= 1.05 * most, f"{alone} of {most} bit/s")
    expect(0 < shared <= 1.05 * most, f"{shared} of {most} bit/s")
    full = QUEUE / RATE * 1e9
    latency = figure(found, f"incast.latency/{ports - 2}")["value"]
    expect(0.1 * full < latency < 2 * full, f"{latency} ns in a queue of {full} ns")


def main():
    full = "--full" in sys.argv[1:]
    ports = 6 if full else 3
    with Lab(SQUALL, script=links(ports)) as lab:
        if lab is None:
            return
        buffers_are_the_queues_of_the_switch(lab, ports)
        microbursts_fill_the_queue(lab, 3)
        print("rfc8239: buffers and microbursts are those of the switch")
        if full:
            only_a_switch_that_blocks_is_found_to(lab, 4)
            no_frame_is_lost_at_line_rate(lab, 4)
            bursts_wait_in_the_queue_that_tcp_fills(lab, 4)
            print("rfc8239: line rate, head-of-line blocking and incast")


if __name__ == "__main__":
    try:
        main()
    except Failed as failed:
        sys.exit(f"FAILED: {failed}")

#!/usr/bin/env python3
"""`squall test` on paths that are dead, slower in one direction, or translated. The device is
bridge.py, whose counters are the ground truth, or the lab's router and NAT with a limit of the
kernel. With --full also both directions, both protocols, and a router.
"""

import json
import os
import pathlib
import sys

from methods import LINKS, Device, Failed, Lab, expect, figure

HERE = pathlib.Path(__file__).resolve()

FRAMES = 20


def run(lab, method, *arguments):
    common = ["--quick", "--rest", "0.05", "--linger", "100ms", "--json", "-"]
    return lab.exec(lab.squall, "test", method, *arguments, *common, timeout=300)


def over_pairs(lab, method, *arguments):
    ports = ["--port", "A=af_packet:p0", "--port", "B=af_packet:p1"]
    return run(lab, method, *ports, *arguments)


def found(done, *statuses):
    """Return the result. Status 4: the generator set the limit, as on a busy machine."""
    expect(done.returncode in (statuses or (0, 4)), f"{done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


def a_dead_direction_is_an_error_and_no_throughput_of_0(lab):
    search = ["--tests", "throughput", "--frame-sizes", "128", "--max-rate", "1kpps"]
    with Device(lab, "--dead", "a") as device:
        done = over_pairs(lab, "rfc2544", *search)
    expect(done.returncode == 3 and not done.stdout, f"{done.returncode}: {done.stdout}")
    for text in ("nothing came through", "from A to B 0 of 20", "from B to A 20 of 20", "\n  try "):
        expect(text in done.stderr, f"{text!r}: {done.stderr}")
    a, b = device.ways["a"], device.ways["b"]
    expect(a["dropped_dead"] == 2 * FRAMES, f"two attempts, and no trial: {a}")
    expect(b["forwarded"] == 2 * FRAMES, b)
    # The method uses the other direction only.
    with Device(lab, "--dead", "b"):
        one_way = found(over_pairs(lab, "rfc2544", *search, "--one-way", "--trial-s", "0.2"))
    expect(figure(one_way, "throughput/128")["value"] > 0, one_way["figures"])


def connections_over_a_dead_path_are_an_error(lab):
    with Device(lab, "--dead", "both"):
        done = over_pairs(lab, "capacity", "--of", "cps", "--gateway", "198.18.0.1")
    expect(done.returncode == 3, f"{done.returncode}: {done.stderr}")
    for text in ("connections from A to B 0 of 10", "ARP for 198.18.0.1 was not answered"):
        expect(text in done.stderr, f"{text!r}: {done.stderr}")


def transfers_are_compared_with_the_bottleneck_of_their_direction(lab, full):
    rates = {"to-servers": 1200, "to-clients": 400}
    path = ["--max-rate", "2kpps", "--trial-s", "0.2", "--baseline-s", "0.2", "--transfer-s", "0.5"]
    path += ["--connections", "2", "--repeats", "1"]
    tested = list(rates) if full else ["to-clients"]
    with Device(lab, "--rate", ":".join(map(str, rates.values())), "--queue", "10"):
        result = found(over_pairs(lab, "rfc6349", *path, "--direction", ",".join(tested)))
        low = ["--direction", "to-clients", "--bottleneck-bps", str(100 * 1518 * 8)]
        refused = found(over_pairs(lab, "rfc6349", *path, *low), 1, 4) if full else None
    for direction in tested:
        rate = rates[direction]
        bottleneck = figure(result, f"bottleneck/{direction}")
        frames = bottleneck["value"] / 8 / 1518
        expect(frames <= 1.01 * rate, f"{direction}: {frames} of {rate} frames/s")
        if bottleneck["limit"] != "device":
            continue
        expect(frames > 0.9 * rate, f"{direction}: {frames} of {rate} frames/s")
        name = f"transfer_time_ratio/{direction}/2"
        ratios = [one["value"] for one in result["figures"] if one["name"] == name]
        if not ratios:
            # On a busy machine no transfer is valid.
            expect(result["verdict"]["status"] == "generator_bound", result["verdict"])
            continue
        expect(0.97 < ratios[0] < 2, f"{direction}: {ratios}")
        throughput = figure(result, f"tcp_throughput/{direction}/2")["value"]
        expect(throughput <= 1.03 * rate * 1460 * 8, f"{direction}: {throughput} bit/s")
    if refused and refused["verdict"]["status"] != "generator_bound":
        # Given a quarter of the rate as the bottleneck, TCP would be faster than possible.
        text = " ".join(refused["verdict"]["text"])
        expect(refused["verdict"]["status"] == "failed" and "refused" in text, refused["verdict"])
        rated = [one for one in refused["figures"] if one["name"].startswith("tcp_")]
        expect(not rated, rated)


# Maximum number of entries in the device's flow table, set by a packet filter rule.
ENTRIES = 300
FULL = f"""
table inet full {{
  chain through {{
    type filter hook forward priority -10;
    meta l4proto udp ct state new ct count over {ENTRIES} counter drop
    meta l4proto tcp ct state new ct count over {ENTRIES} counter drop
  }}
}}
"""


def the_table_of_a_nat_and_none_of_a_router(squall, full):
    table = ["--of", "table", "--max-table", "500", "--table-cps", "2000", "--recovery-s", "0"]
    table += ["--repeats", "1"]
    for device in ("nat", "router") if full else ("nat",):
        with Lab(squall, "--device", device) as lab:
            if lab is None:
                continue
            network = ["--port", "A=veth-a", "--port", "B=veth-b", "--gateway", "198.18.1.1"]
            network += ["--gateway2", "198.18.2.1", "--clients", "198.18.1.10-198.18.1.99"]
            network += ["--servers", "198.18.2.10"]
            if device == "nat":
                made = lab.run("exec", lab.name, "--device", "--", "nft", FULL)
                if made.returncode != 0:
                    print(f"SKIPPED: the table of a NAT: {made.stderr.strip()}")
                    continue
            for protocol in ("udp", "tcp") if full else ("udp",):
                done = run(lab, "capacity", *network, *table, "--table-protocol", protocol)
                result = figure(found(done), "table")
                if device == "router":
                    expect(result["value"] == 500 or result["limit"] == "generator", result)
                elif result["limit"] == "device":
                    expect(result["value"] == ENTRIES, f"{protocol}: {result} of {ENTRIES}")
                else:
                    expect(result["limit"] == "generator", result)
                    expect(result["value"] <= ENTRIES, f"{protocol}: {result} of {ENTRIES}")
            print(f"capacity: the flow table of a {device}")


def main():
    full = "--full" in sys.argv[1:]
    squall = os.environ.get("SQUALL") or str(HERE.parents[2] / "target/debug/squall")
    the_table_of_a_nat_and_none_of_a_router(squall, full)
    with Lab(squall, script=LINKS) as lab:
        if lab is None:
            return
        a_dead_direction_is_an_error_and_no_throughput_of_0(lab)
        connections_over_a_dead_path_are_an_error(lab)
        print("a dead path is an error")
        transfers_are_compared_with_the_bottleneck_of_their_direction(lab, full)
        print("rfc6349: each direction with its own bottleneck")


if __name__ == "__main__":
    try:
        main()
    except Failed as failed:
        sys.exit(f"FAILED: {failed}")

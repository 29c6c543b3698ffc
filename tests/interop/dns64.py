#!/usr/bin/env python3
"""`squall test rfc8219 --tests dns64` against dns64_server.py, whose rate and counters are the truth.
With --full a server whose answers lack the record now and then, and one of twice the rate.
"""

import json
import os
import pathlib
import subprocess
import sys

from methods import Failed, Lab, expect, figure

HERE = pathlib.Path(__file__).resolve()
SQUALL = os.environ.get("SQUALL", str(HERE.parents[2] / "target/debug/squall"))

# The device's own address in the lab, and clients in its network.
SERVER, CLIENTS = "2001:2:0:1::1", "2001:2:0:1::100-2001:2:0:1::1ff"


def tested(lab, *server):
    """The result, and the counters of the server."""
    script = [sys.executable, str(HERE.parent / "dns64_server.py"), SERVER, *server]
    command = [lab.squall, "lab", "exec", lab.name, "--device", "--", *script]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
    expect(process.stdout.readline() == "ready\n", "the server does not start")
    test = ["rfc8219", "--tests", "dns64", "--port", "A=veth-a", "--clients", CLIENTS]
    test += ["--servers", SERVER, "--quick", "--trial-s", "0.5", "--dns-repetitions", "1"]
    test += ["--dns-max-qps", "2000", "--resolution", "0.02", "--dns-timeout-s", "0.3"]
    test += ["--rest", "0.05", "--json", "-"]
    try:
        done = lab.exec(lab.squall, "test", *test, timeout=120)
    finally:
        counters, _ = process.communicate(timeout=10)
    expect(done.returncode in (0, 1, 4), f"{done.returncode}: {done.stderr}")
    return json.loads(done.stdout), json.loads(counters)


def the_rate_is_that_of_the_server(lab, rate, burst=5):
    found, counters = tested(lab, "--rate", str(rate), "--burst", str(burst))
    value = figure(found, "dns64")
    # A trial takes half a second, and the server answers a burst beyond its rate in it.
    most = rate + burst / 0.5
    expect(value["value"] <= most, f"{value} of {rate} queries/s")
    if value["limit"] == "device":
        expect(value["value"] > 0.95 * rate, f"{value} of {rate} queries/s")
        expect(counters["dropped"] > 0, counters)
    asked = sum(one["measured"]["flows"]["attempted"] for one in found["trials"])
    expect(0 <= counters["queries"] - asked <= 20, f"{asked} and the path: {counters}")
    expect(counters["names"] == counters["queries"], f"each name once: {counters}")
    answered = sum(one["measured"]["flows"]["completed"] for one in found["trials"])
    expect(0 <= counters["answered"] - answered <= 20, f"{answered}: {counters}")
    expect(not counters.get("other_types"), counters)


def an_answer_without_the_record_is_none(lab):
    found, counters = tested(lab, "--rate", "1000", "--empty", "3")
    expect(counters["empty"] > 0, counters)
    value = figure(found, "dns64")
    expect(value["value"] < 20, f"a third of the answers are empty: {value}")


def main():
    with Lab(SQUALL, "--device", "router") as lab:
        if lab is None:
            return
        the_rate_is_that_of_the_server(lab, 400)
        if "--full" in sys.argv[1:]:
            the_rate_is_that_of_the_server(lab, 800)
            an_answer_without_the_record_is_none(lab)
    print("rfc8219: the rate of a DNS64 server, by its own counters")


if __name__ == "__main__":
    try:
        main()
    except Failed as failed:
        sys.exit(f"FAILED: {failed}")

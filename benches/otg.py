#!/usr/bin/env python3
"""The daemon's speed for Open Traffic Generator clients: the time to set 4,096 flows and to get
their metrics, over HTTPS and gRPC, and the rate lost while 50 clients poll five times per second.
The clients share the daemon's CPUs, so their own work is part of the cost; in the last case they
run at the lowest priority (nice 19), which approximates clients on another machine.

    target/otg/snappi-1.62.0/bin/python benches/otg.py [--squall target/release/squall] [--seconds
    3]

Needs root, to create a lab. Times start with a request that is already encoded and end with the
last octet of the reply: decoding in the client library is not included.
"""

import argparse
import gzip
import http.client
import json
import os
import pathlib
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
FLOWS, CLIENTS, HERTZ = 4096, 50, 5
ROUNDS = 7


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--squall", default=str(ROOT / "target/release/squall"))
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument(
        "--ports",
        nargs=2,
        default=["af_packet:veth-a", "af_packet:veth-b"],
        help="of the lab, null:, loop:X",
    )
    parser.add_argument(
        "--inside", nargs=3, metavar=("HTTPS", "GRPC", "PID"), help=argparse.SUPPRESS
    )
    options = parser.parse_args()
    if options.inside:
        return measure(*options.inside, options.ports, options.seconds)
    lab = f"bench-otg-{os.getpid()}"
    inside = [options.squall, "lab", "exec", lab, "--"]
    subprocess.run([options.squall, "lab", "up", lab], check=True, stdout=subprocess.DEVNULL)
    try:
        with tempfile.TemporaryDirectory() as data:
            serve = [
                options.squall,
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--grpc",
                "127.0.0.1:0",
                "--data",
                data,
                "--json",
            ]
            daemon = subprocess.Popen([*inside, *serve], stdout=subprocess.PIPE, text=True)
            try:
                bound = json.loads(daemon.stdout.readline())
                command = [
                    sys.executable,
                    __file__,
                    "--seconds",
                    str(options.seconds),
                    "--ports",
                    *options.ports,
                ]
                command += ["--inside", bound["https"], bound["grpc"], str(daemon.pid)]
                return subprocess.run([*inside, *command], check=False).returncode
            finally:
                daemon.terminate()
                daemon.wait(10)
    finally:
        subprocess.run([options.squall, "lab", "down", lab], check=False, stdout=subprocess.DEVNULL)


def config(ports, flows, pps):
    def flow(number):
        address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
        return {
            "name": f"flow {number}",
            "tx_rx": {"choice": "port", "port": {"tx_name": "p1", "rx_names": ["p2"]}},
            "packet": [
                {
                    "choice": "ethernet",
                    "ethernet": {"src": {"choice": "value", "value": "02:00:00:00:00:01"}},
                },
                {"choice": "ipv4", "ipv4": {"src": {"choice": "value", "value": address}}},
                {
                    "choice": "udp",
                    "udp": {
                        "src_port": {
                            "choice": "increment",
                            "increment": {"start": 1000, "count": 100},
                        }
                    },
                },
            ],
            "size": {"choice": "fixed", "fixed": 100},
            "rate": {"choice": "pps", "pps": pps},
            "duration": {"choice": "continuous"},
            "metrics": {"enable": True, "latency": {"enable": True}},
        }

    named = [{"name": name, "location": location} for name, location in zip(("p1", "p2"), ports)]
    return {"ports": named, "flows": [flow(number) for number in range(flows)]}


class Https:
    """A persistent HTTPS connection."""

    def __init__(self, url):
        host, port = url.removeprefix("https://").rsplit(":", 1)
        self.to = http.client.HTTPSConnection(
            host, int(port), context=ssl._create_unverified_context(), timeout=60
        )

    def post(self, path, body, unpacked=True):
        # Send requests as snappi does.
        self.to.request(
            "POST", path, body, {"content-type": "application/json", "accept-encoding": "gzip"}
        )
        reply = self.to.getresponse()
        octets = reply.read()
        assert reply.status == 200, octets[:500]
        return (
            gzip.decompress(octets)
            if unpacked and reply.headers["content-encoding"] == "gzip"
            else octets
        )


START, STOP = (
    json.dumps(
        {
            "choice": "traffic",
            "traffic": {"choice": "flow_transmit", "flow_transmit": {"state": state}},
        }
    )
    for state in ("start", "stop")
)
METRICS = json.dumps({"choice": "flow", "flow": {}})


def timed(what, times=5):
    spans = []
    for _ in range(times):
        since = time.monotonic()
        what()
        spans.append(time.monotonic() - since)
        time.sleep(0.15)  # the daemon repeats an answer for up to 100 ms
    return {
        "median_ms": round(statistics.median(spans) * 1e3, 1),
        "worst_ms": round(max(spans) * 1e3, 1),
    }


def measure(https, grpc_at, pid, ports, seconds):
    import grpc
    from google.protobuf import json_format
    from snappi import otg_pb2

    many = config(ports, FLOWS, 5)
    text = json.dumps(many)
    client = Https(https)
    found = {"flows": FLOWS, "config_json_octets": len(text)}
    found["https_set_config"] = timed(lambda: client.post("/config", text), 3)
    client.post("/control/state", START)
    time.sleep(1)
    found["https_metrics"] = timed(lambda: client.post("/monitor/metrics", METRICS))
    found["https_metrics_octets"] = len(client.post("/monitor/metrics", METRICS))
    client.post("/control/state", STOP)
    largest = [("grpc.max_receive_message_length", 64 << 20)]
    with grpc.insecure_channel(grpc_at, options=largest) as channel:
        octets = json_format.ParseDict(
            {"config": many}, otg_pb2.SetConfigRequest()
        ).SerializeToString()
        asked = json_format.ParseDict(
            {"metrics_request": json.loads(METRICS)}, otg_pb2.GetMetricsRequest()
        ).SerializeToString()
        found["grpc_set_config"] = timed(
            lambda: channel.unary_unary("/otg.Openapi/SetConfig")(octets), 3
        )
        client.post("/control/state", START)
        time.sleep(1)
        found["grpc_metrics"] = timed(lambda: channel.unary_unary("/otg.Openapi/GetMetrics")(asked))
        client.post("/control/state", STOP)
    print(json.dumps(found), flush=True)
    # At maximum rate, where the cost of polling shows as lost rate. Alternating, because the
    # machine's speed varies over time.
    for flows, nice in ((16, 0), (256, 0), (FLOWS, 0), (FLOWS, 19)):
        client.post("/config", json.dumps(config(ports, flows, 1_000_000_000 // flows)))
        client.post("/control/state", START)
        time.sleep(1)
        alone, polled, replies = [], [], 0
        for _ in range(ROUNDS):
            alone.append(sent(client, pid, seconds))
            stop, counts = threading.Event(), []
            polling = [
                threading.Thread(target=poll, args=(https, stop, counts, nice))
                for _ in range(CLIENTS)
            ]
            for thread in polling:
                thread.start()
            time.sleep(0.5)
            polled.append(sent(client, pid, seconds))
            stop.set()
            for thread in polling:
                thread.join()
            replies += sum(counts)
        client.post("/control/state", STOP)
        middle = [statistics.median(rate for rate, _ in rounds) for rounds in (alone, polled)]
        cost = {"cost": round(1 - middle[1] / middle[0], 4)}
        for name, rounds in (("alone", alone), ("polled", polled)):
            cost[f"{name}_pps"] = [round(rate) for rate, _ in rounds]
            cost[f"{name}_waited"] = round(statistics.median(waited for _, waited in rounds), 4)
        polls = {"clients": CLIENTS, "nice": nice, "hz": HERTZ, "flows": flows, "replies": replies}
        print(json.dumps({**polls, **cost}), flush=True)
    return 0


def sent(client, pid, seconds):
    """Return the frames/s that p1 sends, and the fraction of time that the engine's worker waited
    for a CPU used by others."""
    asked = json.dumps({"choice": "port", "port": {"port_names": ["p1"]}})
    threads = pathlib.Path(f"/proc/{pid}/task").iterdir()
    (worker,) = [thread for thread in threads if (thread / "comm").read_text() == "squall-0\n"]

    def now():
        (metric,) = json.loads(client.post("/monitor/metrics", asked))["port_metrics"]
        waited = int((worker / "schedstat").read_text().split()[1])
        return int(metric["frames_tx"]), waited, time.monotonic()

    before = now()
    time.sleep(seconds)
    frames, waited, span = (after - before for after, before in zip(now(), before))
    return frames / span, waited / 1e9 / span


def poll(https, stop, counts, nice):
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), nice)
    client, count, due = Https(https), 0, time.monotonic()
    while not stop.is_set():
        client.post("/monitor/metrics", METRICS, unpacked=False)
        count += 1
        due += 1 / HERTZ
        time.sleep(max(0, due - time.monotonic()))
    counts.append(count)


if __name__ == "__main__":
    sys.exit(main())

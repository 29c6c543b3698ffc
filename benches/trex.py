#!/usr/bin/env python3
"""The speed of squall serve --trex for TRex's stock client: the time to add 10,000 streams,
relative to a server that accepts everything at once, and the daemon's CPU time in it; the time to
get 256 packet groups; and the rate lost while 8 clients poll twice per second.

    .venv/bin/python benches/trex.py [--squall target/release/squall] [--rounds 5]

Needs TRex's client: TREX_ORACLE names its directory (tests/interop/trex_oracle.py).
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

warnings.simplefilter("ignore")
ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/interop"))
from trex_oracle import ASYNC, SYNC, skipped, unpack  # noqa: E402

STREAMS, GROUPS, CLIENTS, HERTZ = 10_000, 256, 8, 2


def cpu(pid):
    """Return the CPU seconds of a process and its threads."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def streams_of(api, number, group=None):
    packet = api.STLPktBuilder(pkt=api.Ether() / api.IP() / api.UDP() / ("x" * 30))
    mode = api.STLTXCont(pps=1)
    one = lambda i: api.STLStream(packet=packet, mode=mode, flow_stats=group and group(i + 1))
    return [one(i) for i in range(number)]


class Accepts:
    """A connection stub that accepts everything immediately, as a baseline."""

    def __init__(self, rpc):
        self.rpc, self.before = rpc, rpc.send_raw_msg

    def __enter__(self):
        def accepted(message, retry=0):
            if self.rpc.zipper.is_compressed(message):
                message = self.rpc.zipper.decompress(message)
            asked = json.loads(message)
            batch = asked if isinstance(asked, list) else [asked]
            answers = [{"jsonrpc": "2.0", "id": one["id"], "result": {"data": []}} for one in batch]
            return json.dumps(answers if isinstance(asked, list) else answers[0]).encode()

        self.rpc.send_raw_msg = accepted

    def __exit__(self, *_):
        self.rpc.send_raw_msg = self.before


def add(client, streams):
    begun = time.perf_counter()
    client.add_streams(streams, ports=[0])
    return time.perf_counter() - begun


def polls(api):
    client = api.STLClient(sync_port=SYNC, async_port=ASYNC, verbose_level="critical")
    client.connect()
    # Wait until the run has ended.
    while True:
        client.get_stats()
        time.sleep(1 / HERTZ)


def measure(api, pid, rounds):
    client = api.STLClient(sync_port=SYNC, async_port=ASYNC, verbose_level="critical")
    client.connect()
    client.reset()
    streams = streams_of(api, STREAMS)
    rpc = client.conn.rpc
    whole, own, alone = [], [], []
    for _ in range(rounds):
        client.reset(ports=[0])
        before = cpu(pid)
        whole.append(add(client, streams))
        own.append(cpu(pid) - before)
        client.reset(ports=[0])
        with Accepts(rpc):
            alone.append(add(client, streams))
        client.ports[0].streams = {}
    ratio = statistics.median(a / b for a, b in zip(whole, alone))
    print(
        f"{STREAMS} streams: {statistics.median(whole):.2f} s, {ratio:.2f} times of a server that "
        f"accepts at once; of the daemon's CPU {statistics.median(own):.2f} s"
    )
    client.reset()
    for port in (0, 1):
        group = lambda i, port=port: api.STLFlowStats(pg_id=i + port * GROUPS // 2)
        client.add_streams(streams_of(api, GROUPS // 2, group), ports=[port])
    client.start(ports=[0, 1], mult="20kpps")
    time.sleep(1)
    params = {"pgids": list(range(1, GROUPS + 1))}
    message = rpc.create_jsonrpc_v2("get_pgid_stats", params, rpc.api_h)[1]
    took, whole = [], []
    for _ in range(50):
        # The client's thread for events uses the same socket.
        with rpc.lock:
            begun = time.perf_counter()
            rpc.send_raw_msg(message.encode())
            took.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        rpc.transmit("get_pgid_stats", params)
        whole.append(time.perf_counter() - begun)
    print(
        f"statistics of {GROUPS} packet groups: {statistics.median(took) * 1e3:.1f} ms, with the "
        f"client's own work {statistics.median(whole) * 1e3:.1f} ms"
    )
    client.stop()
    client.reset()
    # At maximum rate, alternating with and without other clients that poll.
    client.add_streams(streams_of(api, 1), ports=[0])
    client.start(ports=[0], mult="100mpps", force=True)
    time.sleep(2)

    def rate():
        first, since = client.get_stats(ports=[0])[0]["opackets"], time.perf_counter()
        time.sleep(3)
        last, until = client.get_stats(ports=[0])[0]["opackets"], time.perf_counter()
        return (last - first) / (until - since)

    costs = []
    for _ in range(rounds):
        quiet = rate()
        others = [
            subprocess.Popen(["nice", "-n", "19", sys.executable, __file__, "--poll"])
            for _ in range(CLIENTS)
        ]
        # Wait until the clients are connected.
        time.sleep(6)
        busy = rate()
        for other in others:
            other.terminate()
            other.wait()
        costs.append(1 - busy / ((quiet + rate()) / 2))
    client.stop()
    print(
        f"{CLIENTS} clients that ask {HERTZ} times a second: {statistics.median(costs) * 100:.1f} % "
        f"of {quiet / 1e6:.1f} Mpps ({', '.join(f'{cost * 100:.1f}' for cost in costs)})"
    )
    client.disconnect()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--squall", default=str(ROOT / "target/release/squall"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--poll", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if skipped():
        return
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        library = os.environ.get("TREX_LIBRARY") or unpack(folder)
        sys.path.insert(0, str(library))
        os.environ["TREX_LIBRARY"] = str(library)
        from trex.stl import api

        if options.poll:
            return polls(api)
        argv = [options.squall, "serve", "--listen", "127.0.0.1:0", "--grpc", "off", "--json"]
        argv += ["--data", str(folder / "data"), "--trex", "null:,null:"]
        argv += ["--trex-sync", str(SYNC), "--trex-async", str(ASYNC)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
        with subprocess.Popen(argv, **pipes) as daemon:
            try:
                daemon.stdout.readline()
                measure(api, daemon.pid, options.rounds)
            finally:
                daemon.terminate()


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""TRex's stock Python client and console, unchanged, drive `squall serve --trex` in a lab: connect,
reset, the shipped profiles loaded, started at 1,000 frames a second and stopped, with counters as
the receiving interface has them; two clients and a port that one takes away; pause, update,
statistics, latency. A dozen of the profiles; all of them with --full.

Without the client and its profiles (trex_oracle.py) this is skipped. Broken messages are sent without the client, too.
"""

import glob
import json
import os
import pathlib
import random
import sys
import time
import warnings
import zlib

from tools import Failed, in_a_lab, same
from trex_oracle import ASYNC, SQUALL, SYNC, daemon, run_console, skipped, unpack

warnings.simplefilter("ignore")
# Of the shipped files, those that are no profiles of streams.
NONE = {"stl/imix_wlc.py", "stl/tpg_tags_conf.py"}
# What each shows: lengths, chains, tags, randoms, tuples, masks, statistics.
SOME = [
    "stl/bench.py",
    "stl/burst_3st_loop_x_times.py",
    "stl/dependent_vars_all.py",
    "stl/flow_stats_latency.py",
    "stl/hlt/hlt_framesize_vm.py",
    "stl/hlt/hlt_ip_ranges.py",
    "stl/imix.py",
    "stl/pcap_with_vm.py",
    "stl/udp_1pkt_mac_mask2.py",
    "stl/udp_1pkt_mpls_vm.py",
    "stl/udp_1pkt_tuple_gen.py",
    "stl/udp_rand_len_9k.py",
]


def arrived(interface):
    return int(pathlib.Path(f"/sys/class/net/{interface}/statistics/rx_packets").read_text())


def settle(client, port):
    """Until what was sent has arrived."""
    before, until = None, time.monotonic() + 5
    while time.monotonic() < until:
        now = client.get_stats(ports=[port])[port]["ipackets"]
        if now == before:
            return
        before = now
        time.sleep(0.1)


def one_profile(api, client, name):
    client.reset(ports=[0, 1])
    profile = api.STLProfile.load(name, direction=0, port_id=0)
    streams = profile.get_streams()
    client.add_streams(streams, ports=[0])
    client.clear_stats(ports=[0, 1])
    before = arrived("veth-b")
    client.start(ports=[0], mult="1kpps", duration=1, force=True)
    client.wait_on_traffic(ports=[0], timeout=20)
    settle(client, 1)
    stats = client.get_stats()
    sent, came = stats[0]["opackets"], arrived("veth-b") - before
    # The kernel's own, of IPv6 say, are few.
    if not sent or not sent <= came <= sent + 20 or not sent <= stats[1]["ipackets"] <= came:
        raise Failed(f"{sent} sent, {stats[1]['ipackets']} received, {came} at the interface")
    groups = {
        s.fields["flow_stats"]["stream_id"]
        for s in streams
        if s.fields["flow_stats"].get("enabled")
    }
    for group in groups:
        flow = stats["flow_stats"][group]
        if not flow["tx_pkts"][0] or flow["tx_pkts"][0] != flow["rx_pkts"][1]:
            raise Failed(f"group {group}: {flow['tx_pkts']} sent, {flow['rx_pkts']} received")
        if group in stats["latency"]:
            told = stats["latency"][group]
            same(f"errors of group {group}", sum(told["err_cntrs"].values()), 0)
            low, mean, high = (
                told["latency"][key] for key in ("total_min", "average", "total_max")
            )
            if not 0 < low <= mean <= high:
                raise Failed(f"latency of group {group}: {low} <= {mean} <= {high}")
    if not came:
        raise Failed("nothing came")


def profiles(api, client, full, argv=()):
    names = SOME
    if full:
        names = sorted(glob.glob("stl/*.py") + glob.glob("stl/hlt/*.py"))
        names = [
            name
            for name in names
            if name not in NONE and (not argv or any(a in name for a in argv))
        ]
    wrong = []
    for name in names:
        try:
            one_profile(api, client, name)
        except (Failed, api.STLError, AttributeError, KeyError) as error:
            wrong.append(f"{name}: {str(error).strip()}")
    if wrong:
        raise Failed(f"{len(wrong)} of {len(names)} profiles:\n" + "\n".join(wrong))
    print(f"{len(names)} profiles as TRex's client wants them")


def controls(api, client):
    """Pause, resume, update, stop, both ports at once, a rate as a share."""
    client.reset(ports=[0, 1])
    packet = api.STLPktBuilder(
        pkt=api.Ether() / api.IP(src="16.0.0.1", dst="48.0.0.1") / api.UDP(dport=12) / (b"x" * 30)
    )
    for port in (0, 1):
        client.add_streams(api.STLStream(packet=packet, mode=api.STLTXCont(pps=1000)), ports=[port])
    client.clear_stats()
    client.start(ports=[0, 1])
    time.sleep(0.5)
    client.pause(ports=[0, 1])
    time.sleep(0.1)
    at = client.get_stats()[0]["opackets"]
    time.sleep(0.3)
    same("while paused", client.get_stats()[0]["opackets"], at)
    client.resume(ports=[0, 1])
    client.update(ports=[0], mult="2")
    time.sleep(1.2)
    rate = client.get_stats()[0]["tx_pps"]
    if not 1500 < rate < 2500:
        raise Failed(f"{rate} frames a second after an update to 2,000")
    client.stop(ports=[0, 1])
    settle(client, 1)
    stats = client.get_stats()
    same("frames of port 0", stats[1]["ipackets"] - stats[0]["opackets"] in range(20), True)
    same("frames of port 1", stats[0]["ipackets"] - stats[1]["opackets"] in range(20), True)
    if client.is_traffic_active():
        raise Failed("traffic is active after stop")
    client.get_xstats(0)
    print("pause, resume, update, stop as TRex's client wants them")


def two(api, client):
    """What one has, another gets by force only."""
    client.reset(ports=[0, 1])
    other = api.STLClient(
        username="other", sync_port=SYNC, async_port=ASYNC, verbose_level="critical"
    )
    other.connect()
    try:
        try:
            other.acquire(ports=[0])
            raise Failed("a port of somebody else was acquired")
        except api.STLError:
            pass
        other.acquire(ports=[0], force=True)
        time.sleep(1)
        same("ports of the first", client.get_acquired_ports(), [1])
    finally:
        other.disconnect()
    client.acquire(ports=[0, 1], force=True)
    print("a port taken away by force is known to both clients")


def many(api, client):
    """10,000 streams: the server's own time."""
    client.reset(ports=[0])
    packet = api.STLPktBuilder(pkt=api.Ether() / api.IP() / api.UDP())
    streams = [api.STLStream(packet=packet, mode=api.STLTXCont(pps=1)) for _ in range(10_000)]
    client.add_streams(streams, ports=[0])
    same("streams", len(client.get_port(0).streams), 10_000)
    client.remove_all_streams(ports=[0])


def console(folder):
    lines = ["connect", "portattr"]
    lines += ["start -f stl/udp_1pkt_simple.py -m 100pps -d 1 -p 0 --force"]
    run_console(folder, [*lines, "stats", "streams", "ping", "stop -a"])
    print("TRex's console in batch mode")


def broken():
    """Messages that are none: each is answered, and the server goes on."""
    sys.path.insert(
        0, str(next(pathlib.Path(sys.path[0]).parents[2].glob("external_libs/pyzmq-ctypes")))
    )
    import zmq

    chance = random.Random(7)
    whole = json.dumps(
        {"jsonrpc": "2.0", "id": "1", "method": "get_version", "params": {}}
    ).encode()
    packed = b"\xab\xe8\x5c\xea" + len(whole).to_bytes(4, "big") + zlib.compress(whole)
    messages = [
        b"",
        b"{",
        b"[]",
        b"[1,2]",
        b"null",
        b"[" * 5000,
        packed[:20],
        packed[:8] + b"\xff" * 30,
    ]
    messages += [b"\xab\xe8\x5c\xea\xff\xff\xff\xff" + zlib.compress(b"\0" * 10_000_000)]
    for _ in range(200):
        octets = bytearray(chance.choice([whole, packed]))
        for _ in range(chance.randint(1, 4)):
            octets[chance.randrange(len(octets))] = chance.randrange(256)
        messages.append(bytes(octets))
    socket = zmq.Context().socket(zmq.REQ)
    socket.setsockopt(zmq.RCVTIMEO, 5000)
    socket.connect(f"tcp://127.0.0.1:{SYNC}")
    for message in [*messages, whole]:
        socket.send(message)
        answer = socket.recv()
    same("the last answer", json.loads(answer)["result"]["version"], "v3.08")
    socket.close()
    print(f"{len(messages)} broken messages answered")


def inside(folder, argv):
    library = unpack(folder)
    os.chdir(folder / "trex")
    sys.path.insert(0, str(library))
    from trex.stl import api

    try:
        with daemon(folder):
            client = api.STLClient(sync_port=SYNC, async_port=ASYNC, verbose_level="critical")
            client.connect()
            controls(api, client)
            two(api, client)
            profiles(api, client, "--full" in argv, [a for a in argv if a[0] != "-"])
            if "--full" in argv:
                many(api, client)
            client.disconnect()
            console(folder)
            broken()
    except Failed as error:
        print(f"FAILED: {error}")
        return 1
    return 0


if __name__ == "__main__":
    if skipped():
        sys.exit(0)
    sys.exit(in_a_lab(SQUALL, __file__, inside))

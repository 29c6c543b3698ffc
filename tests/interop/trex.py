#!/usr/bin/env python3
"""TRex's stock Python client and console, unchanged, drive `squall serve --trex` in a lab: connect,
reset, load the shipped profiles, start them at 1,000 frames/s and stop them, with the same counters
as the receiving interface; two clients, one of which takes a port from the other; pause, update,
statistics, latency; fields that drivers of test frameworks read; addresses of ports, which Linux
pings. By default a dozen of the profiles and one of the example scripts are used, with --full all
of them.

Skipped without the client and its profiles (trex_oracle.py), except for malformed messages.
"""

import base64
import glob
import ipaddress
import json
import os
import pathlib
import random
import socket
import statistics
import struct
import sys
import threading
import time
import warnings
import zlib

from tools import Failed, in_a_lab, run, same
from trex_record import erf_file
from trex_oracle import (
    ASYNC,
    SQUALL,
    SYNC,
    Terminal,
    daemon,
    run_console,
    run_examples,
    has_client,
    unpack,
)

warnings.simplefilter("ignore")
# Shipped files that are not stream profiles.
NONE = {"stl/imix_wlc.py", "stl/tpg_tags_conf.py"}
# Profiles that together cover lengths, chains, tags, random values, tuples, masks and statistics.
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
# Example scripts that check their results. The others are for Python 2, or need features that
# Squall does not support (name spaces), or DHCP servers and routers on the other side.
EXAMPLES = [
    ["stl_flow_stats"],
    ["stl_flow_latency_stats"],
    ["stl_simple_burst"],
    ["stl_profile"],
    ["stl_simple_console_like"],
    ["hlt_udp_simple", "-d", "3"],
]


def arrived(interface):
    return int(pathlib.Path(f"/sys/class/net/{interface}/statistics/rx_packets").read_text())


def settle(client):
    """Wait until all frames that the ports have sent have arrived and their number stays the same.
    On a busy machine the receiver may be late."""
    before, same_for, until = None, 0, time.monotonic() + 10
    while same_for < 3 and time.monotonic() < until:
        stats = client.get_stats(ports=[0, 1])
        now = [stats[port]["ipackets"] for port in (0, 1)]
        missing = any(now[1 - port] < stats[port]["opackets"] for port in (0, 1))
        same_for = same_for + 1 if now == before and not missing else 0
        before = now
        time.sleep(0.1)


def one_profile(api, client, name):
    client.reset(ports=[0, 1])
    # Streams of tagged packet groups need the feature on.
    is_tagged = "/tpg_" in name
    if is_tagged:
        tags = [{"type": "Dot1Q", "value": {"vlan": vlan}} for vlan in range(1, 11)]
        client.enable_tpg(num_tpgids=16, tags=tags, rx_ports=[1])
    try:
        sends_what_it_asks(api, client, name)
    finally:
        if is_tagged:
            client.stop(ports=[0])
            client.disable_tpg()


def sends_what_it_asks(api, client, name):
    profile = api.STLProfile.load(name, direction=0, port_id=0)
    streams = profile.get_streams()
    client.add_streams(streams, ports=[0])
    client.clear_stats(ports=[0, 1])
    before = arrived("veth-b")
    # Streams with latency keep their own rate, up to 1,000 packets/s.
    measured = any(s.fields["flow_stats"].get("rule_type") == "latency" for s in streams)
    client.start(ports=[0], mult="2kpps" if measured else "1kpps", duration=1, force=True)
    client.wait_on_traffic(ports=[0], timeout=20)
    settle(client)
    stats = client.get_stats()
    sent, came = stats[0]["opackets"], arrived("veth-b") - before
    # The kernel sends few packets itself, such as those of IPv6.
    if not sent or not sent <= came <= sent + 20 or not sent <= stats[1]["ipackets"] <= came:
        raise Failed(f"{sent} sent, {stats[1]['ipackets']} received, {came} at the interface")
    groups = {
        s.fields["flow_stats"]["stream_id"]
        for s in streams
        if s.fields["flow_stats"].get("enabled") and s.fields["flow_stats"]["rule_type"] != "tpg"
    }
    for group in groups:
        flow = stats["flow_stats"][group]
        if not flow["tx_pkts"][0] or flow["tx_pkts"][0] != flow["rx_pkts"][1]:
            raise Failed(f"group {group}: {flow['tx_pkts']} sent, {flow['rx_pkts']} received")
        if group in stats["latency"]:
            latency_of = stats["latency"][group]
            same(f"errors of group {group}", sum(latency_of["err_cntrs"].values()), 0)
            low, mean, high = (
                latency_of["latency"][key] for key in ("total_min", "average", "total_max")
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
    """Test pause, resume, update, stop, both ports at once, and a rate in percent."""
    client.reset(ports=[0, 1])
    packet = api.STLPktBuilder(
        pkt=api.Ether() / api.IP(src="16.0.0.1", dst="48.0.0.1") / api.UDP(dport=12) / (b"x" * 30)
    )
    numbers = {}
    for port in (0, 1):
        stream = api.STLStream(packet=packet, mode=api.STLTXCont(pps=1000))
        numbers[port] = client.add_streams(stream, ports=[port])
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
    rate_becomes(client, 1.4, 2.6, "after an update to 2,000")
    client.update_streams(port=0, mult="500pps", stream_ids=[numbers[0]])
    rate_becomes(client, 0.3, 0.8, "after an update of the stream to 500")
    client.stop(ports=[0, 1])
    settle(client)
    stats = client.get_stats()
    same("frames of port 0", stats[1]["ipackets"] - stats[0]["opackets"] in range(20), True)
    same("frames of port 1", stats[0]["ipackets"] - stats[1]["opackets"] in range(20), True)
    if client.is_traffic_active():
        raise Failed("traffic is active after stop")
    client.get_xstats(0)
    print("pause, resume, update, stop as TRex's client wants them")


def until(what, holds, seconds=30):
    """Wait until the condition is true."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise Failed(f"{what}: not within {seconds} s")
        time.sleep(0.1)


def figures(api, client):
    """Test figures that must not be constants: the load of the threads, the recent maximum delay, a
    link that is down.
    """

    def share():
        return client.get_stats()["global"]["cpu_util"]

    client.reset(ports=[0, 1])
    until("no load", lambda: share() < 3)
    packet = api.Ether() / api.IP(src="16.0.0.1", dst="48.0.0.1") / api.UDP(dport=12) / (b"x" * 30)
    # No multiplier changes the rate of a stream with latency.
    streams = [
        api.STLStream(
            packet=api.STLPktBuilder(pkt=packet), mode=api.STLTXCont(pps=100), flow_stats=stats
        )
        for stats in (api.STLFlowLatencyStats(pg_id=3), None)
    ]
    client.add_streams(streams, ports=[0])
    client.start(ports=[0], mult="40kpps")
    until("load", lambda: share() > 5, 60)
    cpu = client.get_util_stats()["cpu"]
    same("a thread sends on port 0", any(0 in thread["ports"] for thread in cpu), True)
    most = max(max(thread["history"]) for thread in cpu)
    same("of 100 percent at most", 5 < most <= 100, True)
    per_core = lambda: client.get_stats()["global"]["bw_per_core"]
    until("bandwidth per core", lambda: 0 < per_core() < 1000)
    client.stop(ports=[0])
    settle(client)
    delays = [client.get_stats()["latency"][3]["latency"] for _ in range(3)]
    same("the longest delay of all", delays[0]["last_max"] <= delays[0]["total_max"], True)
    same("the longest delay where nothing comes", delays[2]["last_max"], 0)
    client.clear_stats()
    client.start(ports=[0], mult="1kpps", duration=1)
    client.wait_on_traffic(ports=[0], timeout=20)
    delay = client.get_stats()["latency"][3]["latency"]
    if not 0 < delay["last_max"] <= delay["total_max"]:
        raise Failed(f"delays after the counters were cleared: {delay}")
    until("no load again", lambda: share() < 3)
    client.reset(ports=[0, 1])
    builder = api.STLPktBuilder(pkt=packet)
    first = api.STLTXSingleBurst(pps=1000, total_pkts=100)
    second = api.STLTXSingleBurst(pps=2000, total_pkts=200)
    chain = [
        api.STLStream(name="one", packet=builder, mode=first, next="two"),
        api.STLStream(name="two", packet=builder, mode=second, isg=5000, self_start=False),
    ]
    client.add_streams(chain, ports=[0])
    same("the check of the streams", bool(client.ports[0].validate()), True)
    graph = client.ports[0].get_profile()
    same("the highest rate of a chain", graph["rate"]["max_pps"], 2000)
    same("its duration", graph["graph"]["expected_duration"], 205_000)

    def link():
        client.ports[0].sync()
        return client.ports[0].get_ts_attr()["link"]["up"]

    same("the link", link(), True)
    run("ip", "link", "set", "veth-b", "down")
    until("the link is down", lambda: not link())
    run("ip", "link", "set", "veth-b", "up")
    until("the link is up again", link)
    print("CPU utilization, delays of late and links as they are")


def driven(api, client):
    """Use the server as test frameworks do: a total rate of both ports with a latency stream, all
    packets of rate and duration, an HdrHistogram; traffic that one client starts and another stops,
    with counters from the difference of two snapshots.
    """

    def stream(port, group=None, vm=None, packet=None):
        if packet is None:
            packet = api.Ether() / api.IP(src=f"10.10.{port}.2", dst="20.20.20.2", proto=61)
            packet = packet / (b"x" * 26)
        stats = None if group is None else api.STLFlowLatencyStats(pg_id=group)
        packet = api.STLPktBuilder(pkt=packet, vm=vm)
        # No multiplier changes the rate of a stream with latency.
        mode = api.STLTXCont(pps=9000 if group is None else 100)
        return api.STLStream(packet=packet, flow_stats=stats, mode=mode)

    client.reset(ports=[0, 1])
    random = api.STLScVmRaw(
        [
            api.STLVmFlowVarRepeatableRandom(
                "dst", min_value="20.0.0.0", max_value="20.1.134.159", size=4, limit=2**24 - 1
            ),
            api.STLVmWrFlowVar("dst", pkt_offset="IP.dst"),
            api.STLVmFixIpv4(offset="IP"),
        ]
    )
    for port in (0, 1):
        client.add_streams([stream(port, vm=random), stream(port, port)], ports=[port])
    try:
        short = api.Ether() / api.IPv6() / api.UDP() / (b"x" * 15)
        client.add_streams(stream(0, 2, packet=short), ports=[0])
        raise Failed("a packet without room for its statistics was taken")
    except api.STLError as error:
        same("why", "16 octets of payload, and the packet has 15" in str(error), True)
    client.clear_stats()
    client.start(ports=[0, 1], mult="1000pps", duration=2, core_mask=api.STLClient.CORE_MASK_PIN)
    client.wait_on_traffic(ports=[0, 1])
    stats = client.get_stats()
    for port in (0, 1):
        same(f"packets of port {port}", stats[port]["opackets"], 2000)
        same(f"lost from port {port}", stats[1 - port]["ipackets"] - 2000 in range(20), True)
        same(f"recorded of port {port}", recorded(stats["latency"][port]["latency"]["hdrh"]), 200)

    # Both ports must accept frames of the length that one of them sends.
    client.reset(ports=[0, 1])
    jumbo = api.Ether() / api.IP(src="10.10.0.2", dst="20.20.20.2", proto=61) / (b"x" * 8962)
    client.add_streams(stream(0, 3, packet=jumbo), ports=[0])
    client.add_streams(stream(1), ports=[1])
    client.clear_stats()
    client.start(ports=[0, 1], mult="200pps", duration=1)
    client.wait_on_traffic(ports=[0, 1])
    stats = client.get_stats()
    same("long packets", (stats[0]["opackets"], stats[1]["opackets"]), (100, 200))
    same("recorded of them", recorded(stats["latency"][3]["latency"]["hdrh"]), 100)

    client.reset(ports=[0, 1])
    for port in (0, 1):
        client.add_streams(stream(port), ports=[port])
    client.start(ports=[0, 1], mult="500pps")
    before = [dict(client.ports[port].get_xstats().reference_stats) for port in (0, 1)]
    client.disconnect(stop_traffic=False, release_ports=True)
    time.sleep(1)
    other = api.STLClient(sync_port=SYNC, async_port=ASYNC, verbose_level="critical")
    other.connect()
    other.acquire(force=True)
    other.stop(ports=[0, 1])
    now = [other.get_xstats(port) for port in (0, 1)]
    for port in (0, 1):
        sent = now[port]["tx_good_packets"] - before[port]["tx_good_packets"]
        came = now[1 - port]["rx_good_packets"] - before[1 - port]["rx_good_packets"]
        if not 400 < sent <= came <= sent + 20:
            raise Failed(f"{sent} packets of port {port} after a second at 500, {came} arrived")
    other.disconnect()
    client.connect()
    client.acquire(force=True)
    print("counters of a driver: all packets, latency as a histogram, starts and stops apart")


def segments(api, client):
    """Run trials as in searches for the maximum rate: each kind of traffic is a chain of bursts
    with pauses, with and without latency, with gratuitous ARP, a packet cache, and a second thread
    that requests all statistics during the run."""
    seconds, rate, flows = 2, 2000, 64

    def varied(names, packet):
        """Vary fields so that each value counts the flows. Variables in a MAC address use its last
        two octets."""
        commands = []
        for name, low, place in names:
            commands.append(
                api.STLVmFlowVar(name, low, low, low + flows - 1, size=4 if low > 65535 else 2)
            )
            write = api.STLVmWrFlowVar(name, pkt_offset=place)
            if low == 0:
                write = api.STLVmWrMaskFlowVar(name, place, 2, 0xFFFF, offset_fixup=4)
            commands.append(write)
        layer = "UDP" if packet.haslayer("UDP") else "TCP" if packet.haslayer("TCP") else None
        if layer:
            kind = getattr(api.CTRexVmInsFixHwCs, f"L4_TYPE_{layer}")
            commands.append(api.STLVmFixChecksumHw("IP", layer, kind))
        commands = api.STLScVmRaw(list_of_commands=commands, cache_size=flows)
        return api.STLPktBuilder(pkt=packet, vm=commands)

    macs, hosts = ("00:16:3e:01:00:00", "00:16:3e:02:00:00"), ("10.0.0.1", "10.1.0.1")
    client.reset(ports=[0, 1])
    client.set_port_attr(ports=[0, 1], promiscuous=True)
    info = client.get_port_info(ports=[0, 1])
    same("a speed", [port["speed"] > 0 for port in info], [True, True])
    same("room for groups", [port["rx"]["counters"] >= 127 for port in info], [True, True])
    asked = {}
    for port in (0, 1):
        mac, other = macs[port], macs[1 - port]
        source, target = hosts[port], hosts[1 - port]
        first, last = (int(ipaddress.ip_address(host)) for host in (source, target))
        streams = []
        for layer, latency in [("UDP", False), ("UDP", True), ("TCP", False), ("TCP", True)]:
            packet = api.Ether(src=mac, dst=other) / api.IP(src=source, dst=target)
            packet = packet / getattr(api, layer)(sport=32768, dport=53) / ("x" * 60)
            names = [("ip_src", first, "IP.src"), ("ip_dst", last, "IP.dst")]
            names += [("mac_src", 0, "Ether.src"), ("mac_dst", 0, "Ether.dst")]
            names += [("from", 32768, f"{layer}.sport"), ("to", 53, f"{layer}.dport")]
            packet = varied(names, packet)
            pps = 100.0 if latency else rate / 2 - 100.0
            # Half a second, a pause as long as one packet, which is not sent, and the rest.
            for part, (lasts, sent) in enumerate([(0.5, True), (0, False), (1, True)]):
                group = 1000 + len(asked) if sent else 0
                count = int(pps * lasts) if sent else 1
                if sent:
                    asked[group] = (port, latency, count)
                name = f"{port}-{layer}-{latency}-{part}"
                following = None if part == 2 else f"{port}-{layer}-{latency}-{part + 1}"
                stats = api.STLFlowLatencyStats if latency else api.STLFlowStats
                streams.append(
                    api.STLStream(
                        packet=packet,
                        flow_stats=stats(pg_id=group),
                        mode=api.STLTXSingleBurst(pps=pps if sent else 1.0, total_pkts=count),
                        name=name,
                        next=following,
                        dummy_stream=not sent,
                        isg=0.0 if part == 0 else 1e5,
                        self_start=part == 0,
                    )
                )
        arp = api.Ether(src=mac, dst="ff:ff:ff:ff:ff:ff")
        arp = arp / api.ARP(op=2, hwsrc=mac, psrc=source, hwdst="ff:ff:ff:ff:ff:ff", pdst=source)
        names = [("psrc", first, "ARP.psrc"), ("pdst", first, "ARP.pdst")]
        names += [("src", 0, "Ether.src"), ("hwsrc", 0, "ARP.hwsrc")]
        bursts = api.STLTXMultiBurst(pkts_per_burst=16, ibg=0.4e6, count=3, pps=1000.0)
        streams.append(api.STLStream(packet=varied(names, arp), mode=bursts, isg=1e5))
        profile = api.STLProfile(streams)
        profile.to_json()
        client.add_streams(streams=profile.get_streams(), ports=port)
    groups = list(asked)
    client.clear_events()
    client.clear_stats(ports=[0, 1])
    over, seen = threading.Event(), []

    def ask():
        while not over.wait(0.2):
            client.get_util_stats()
            seen.append(client.get_stats(ports=[0, 1], sync_now=True)["total"]["opackets"])
            client.get_pgid_stats(groups)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        pin = api.STLClient.CORE_MASK_PIN
        client.start(ports=[0, 1], force=True, duration=seconds, total=False, core_mask=pin)
        client.wait_on_traffic(ports=[0, 1], timeout=30)
    finally:
        over.set()
        asking.join()
    same("figures of meanwhile", len(seen) > 3 and seen == sorted(seen), True)
    stats = client.get_stats(sync_now=True)
    for group, (port, latency, count) in asked.items():
        of = stats["flow_stats"][group]
        found = (of["tx_pkts"][port], of["rx_pkts"][1 - port])
        same(f"sent and received of group {group}", found, (count, count))
        if latency:
            of = stats["latency"][group]
            same(f"lost of group {group}", of["err_cntrs"]["dropped"], 0)
            same(f"a delay of group {group}", of["latency"]["average"] > 0, True)
    all_of_port = sum(count for port, _, count in asked.values() if port == 0) + 48
    same("all packets", [stats[port]["opackets"] for port in (0, 1)], [all_of_port] * 2)
    same("warnings", client.get_warnings(), [])
    print("chains of bursts as searches for a rate build them")


def rate_becomes(client, low, high, when):
    """Wait until the rate of port 0 is `low` to `high` times that of port 1, which sends 1,000
    frames/s: a busy machine sends less on both. Both are averages over about a second."""
    for _ in range(40):
        time.sleep(0.5)
        rates = [client.get_stats()[port]["tx_pps"] for port in (0, 1)]
        if low * rates[1] < rates[0] < high * rates[1]:
            return
    raise Failed(f"{rates} frames a second of both ports {when}")


def together(api, client):
    """Check that ports start simultaneously, later than the answer to their start."""
    client.reset(ports=[0, 1])
    packet = api.Ether() / api.IP(dst="48.0.0.1") / api.UDP(dport=77) / (b"x" * 30)
    for port in (0, 1):
        mode = api.STLTXSingleBurst(total_pkts=20, pps=100)
        stream = api.STLStream(packet=api.STLPktBuilder(pkt=packet), mode=mode)
        client.add_streams(stream, ports=[port])
    client.set_service_mode(ports=[0, 1])
    capture = client.start_capture(rx_ports=[0, 1], limit=100, bpf_filter="udp port 77")
    client.clear_stats()
    client.start(ports=[0, 1], force=True, synchronized=True)
    same("packets before the instant", client.get_stats()["total"]["opackets"], 0)
    same("ports that send or will", client.get_active_ports(), [0, 1])
    client.wait_on_traffic(ports=[0, 1], timeout=30)
    same("packets", client.get_stats()["total"]["opackets"], 40)
    packets = []
    client.stop_capture(capture["id"], packets)
    times = [[one["ts"] for one in packets if one["port"] == port] for port in (0, 1)]
    # Compare the ports packet by packet. A busy machine is late for some of them.
    differences = sorted(abs(a - b) for a, b in zip(*times))
    if not len(differences) == 20 or not differences[5] < 0.005:
        raise Failed(f"packets of two ports that start at one instant leave {differences} s apart")
    client.set_service_mode(ports=[0, 1], enabled=False)
    print("two ports start at one instant")


def recorded(text):
    """Decode a histogram in HdrHistogram's V2 format."""
    octets = base64.b64decode(text)
    same("cookie", octets[:4].hex(), "1c849314")
    plain = zlib.decompress(octets[8:])
    same("cookie", plain[:4].hex(), "1c849313")
    total, number, shift = 0, 0, 0
    for octet in plain[40:]:
        number |= (octet & 127) << shift
        shift += 7
        if octet < 128:
            # Even numbers are counts; odd ones are runs of zeros.
            total += 0 if number & 1 else number >> 1
            number = shift = 0
    return total


def two(api, client):
    """Check that a client gets a port of another one only by force."""
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
    """Check that 10,000 streams are added within a time limit."""
    client.reset(ports=[0])
    packet = api.STLPktBuilder(pkt=api.Ether() / api.IP() / api.UDP())
    streams = [api.STLStream(packet=packet, mode=api.STLTXCont(pps=1)) for _ in range(10_000)]
    client.add_streams(streams, ports=[0])
    same("streams", len(client.get_port(0).streams), 10_000)
    client.remove_all_streams(ports=[0])


def console(folder):
    lines = ["connect", "portattr"]
    lines += ["start -f stl/udp_1pkt_simple.py -m 100pps -d 1 -p 0 --force"]
    lines += ["stats", "stats -m", "streams", "ping", "stop -a", "service -p 0 1"]
    lines += ["l3 -p 0 --src 10.99.0.1 --dst 10.99.0.2", "arp -p 0"]
    # The console cannot capture in batch mode, so these lines are typed. The first two are for ARP.
    typed = ["capture record start --tx 0 --rx 0 --limit 100 -f icmp"]
    typed += ["ping -p 0 -d 10.99.0.2 -n 2", "capture show"]
    typed += ["capture record stop --id 3 -o ./pings.pcap", "capture clear", "service -p 0 1 --off"]
    output = run_console(folder, lines, typed)
    same("pings answered", output.count("Reply from 10.99.0.2"), 2)
    recorded = (folder / "trex/pings.pcap").read_bytes().count(b"\x0a\x63\x00\x02")
    same("addresses in the capture", recorded, 4)
    print("TRex's console in batch mode")


def screen(folder):
    """The console in a terminal: its screens show traffic, and another console takes the ports."""
    with Terminal(folder, "-f") as first:
        first.waits_for("trex>")
        first.types("start -f stl/flow_stats_latency.py -m 100pps -p 0\n", "trex>")
        first.types("tui\n", "navigation panel")
        # Escape leads to the keys for screens.
        first.types("\x1b", "browse:")
        for key, shown in (("u", "Mbuf Util"), ("s", "Streams Statistics"), ("l", "Max latency")):
            first.types(key, shown)
        first.types("h", "Counters")
        first.types("q", "trex>")
        with Terminal(folder, "-r") as reader:
            reader.waits_for("read-only")
            reader.types("stats -g\n", "total_tx_L2")
        with Terminal(folder, "-a", "0", "1", "-f") as second:
            second.waits_for("trex>")
            first.types("stop -p 0\n", "read-only")
            second.types("stop -p 0\n", "SUCCESS")
        # Ctrl-C.
        first.types("\x03", "Exiting|KeyboardInterrupt")
    print("TRex's console in a terminal")


def broken():
    """Check that each malformed message is answered, and that the server continues."""
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
    asks = zmq.Context().socket(zmq.REQ)
    asks.setsockopt(zmq.RCVTIMEO, 5000)
    asks.connect(f"tcp://127.0.0.1:{SYNC}")
    for message in [*messages, whole]:
        asks.send(message)
        answer = asks.recv()
    same("the last answer", json.loads(answer)["result"]["version"], "v3.08")
    asks.close()
    print(f"{len(messages)} broken messages answered")


def services(api, client, folder):
    """Use service mode: captures of both directions, receive queues, packets sent singly, and with
    them the client's own ARP, ping and IPv6 scan of this machine at the other end."""
    from scapy.all import ICMP, IP, UDP, Ether, wrpcap

    client.reset()
    run("ip", "link", "set", "veth-b", "arp", "on")
    run("ip", "addr", "add", "10.99.0.2/24", "dev", "veth-b")
    pathlib.Path("/proc/sys/net/ipv6/conf/veth-b/disable_ipv6").write_text("0")
    run("ip", "addr", "add", "fe80::b/64", "dev", "veth-b", "nodad")
    try:
        client.start_capture(rx_ports=[1])
        raise Failed("a capture without service mode")
    except api.TRexError as error:
        same("why", "service" in str(error), True)
    client.set_service_mode(ports=[0, 1])
    packet = Ether() / IP(src="16.0.0.1", dst="48.0.0.1") / UDP(dport=12, sport=1025) / ("x" * 30)
    stream = api.STLStream(
        packet=api.STLPktBuilder(pkt=packet), mode=api.STLTXSingleBurst(total_pkts=50, pps=500)
    )
    client.add_streams(stream, ports=[0])
    sent = client.start_capture(tx_ports=[0], limit=1000, bpf_filter="udp port 12")
    came = client.start_capture(rx_ports=[1], limit=20, mode="cyclic", bpf_filter="udp")
    client.set_rx_queue(ports=[1], size=30)
    client.start(ports=[0], force=True)
    client.wait_on_traffic(ports=[0], timeout=20)
    time.sleep(0.5)
    states = {state["id"]: state for state in client.get_capture_status().values()}
    same("states", {state["state"] for state in states.values()}, {"ACTIVE"})
    for capture, number, origin in ((sent, 50, "TX"), (came, 20, "RX")):
        packets = []
        client.stop_capture(capture["id"], packets)
        same(f"{origin} captured", len(packets), number)
        same("origins", {one["origin"] for one in packets}, {origin})
        for one in packets:
            same("octets", bytes(one["binary"])[14:], bytes(packet)[14:])
        times = [one["ts"] for one in packets]
        same("order", times, sorted(times))
        # Use the median: a pause of the machine causes one long gap, followed by short ones.
        gap = statistics.median(b - a for a, b in zip(times, times[1:]))
        same("gaps of 2 ms", 0.0015 < gap < 0.0025, True)
    queued = client.ports[1].get_rx_queue_pkts().data()
    same("the queue keeps the last", len(queued), 30)
    client.remove_rx_queue(ports=[1])
    same("captures left", client.get_capture_status(), {})

    echo = Ether(dst="ff:ff:ff:ff:ff:ff") / IP(src="16.0.0.1", dst="48.0.0.1") / ICMP()
    capture = client.start_capture(tx_ports=[0], rx_ports=[1], limit=100, bpf_filter="icmp")
    pushed = client.push_packets(ports=[0], pkts=[echo] * 3, ipg_usec=1000)
    same("pushed", bool(pushed), True)
    time.sleep(0.3)
    packets = []
    client.stop_capture(capture["id"], packets)
    origins = sorted(one["origin"] for one in packets)
    same("seen at both ends", origins, ["RX"] * 3 + ["TX"] * 3)

    client.set_l3_mode(port=0, src_ipv4="10.99.0.1", dst_ipv4="10.99.0.2")
    client.resolve(ports=[0])
    layers = client.get_port_attr(port=0)
    same("resolved", layers["dest"] != "unconfigured" and layers["arp"] != "unresolved", True)
    mac = pathlib.Path("/sys/class/net/veth-b/address").read_text().strip()
    same("the other end's", client.ports[0].get_layer_cfg()["ether"]["dst"], mac)
    replies = client.ping_ip(src_port=0, dst_ip="10.99.0.2", count=3, interval_sec=0.1)
    same("pings", [one.state for one in replies], [one.SUCCESS for one in replies])
    same("round trips, ms", all(0 < one.rtt < 500 for one in replies), True)
    found = client.scan6(ports=[0], timeout=2)
    macs = {one["mac"] for one in found[0]}
    same("IPv6 scan", mac in macs, True)
    client.set_l2_mode(port=0, dst_mac=mac)
    client.set_service_mode(ports=[0, 1], enabled=False)

    # A capture in the daemon's directory is sent three times, a packet per ms; no other file is
    # accepted.
    wrpcap(str(folder / "data/files/remote.pcap"), [packet] * 20)
    client.reset()
    client.clear_stats()
    client.push_remote("remote.pcap", ports=[0], ipg_usec=1000, count=3)
    client.wait_on_traffic(ports=[0], timeout=20)
    stats = client.get_stats()
    same("frames of a capture", (stats[0]["opackets"], stats[1]["ipackets"]), (60, 60))
    client.push_remote("remote.pcap", ports=[0], ipg_usec=1000, count=0)
    client.stop(ports=[0])
    # Packets of odd interfaces leave at the adjacent port.
    (folder / "data/files/both.erf").write_bytes(erf_file([0, 1, 1, 0, 1]))
    client.clear_stats()
    client.push_remote("both.erf", ports=[0], ipg_usec=1000, count=2, is_dual=True)
    client.wait_on_traffic(ports=[0], timeout=20)
    stats = client.get_stats()
    same("frames of both directions", [stats[port]["opackets"] for port in (0, 1)], [4, 6])
    try:
        client.push_remote("/etc/hostname", ports=[0])
        raise Failed("a file of the machine was sent")
    except api.TRexError as error:
        same("why", "outside" in str(error), True)
    client.reset()
    print(
        "captures, queues, pushed packets, a capture sent, ARP, ping, IPv6 scan as TRex's client wants them"
    )


def pings(target):
    """Return the number of answers to two echo requests from this machine's kernel."""
    six = ":" in target
    family, protocol = (socket.AF_INET6, 58) if six else (socket.AF_INET, 1)
    place = (target, 0, 0, socket.if_nametoindex("veth-b")) if six else (target, 0)
    answered = 0
    with socket.socket(family, socket.SOCK_RAW, protocol) as raw:
        for number in range(2):
            body = struct.pack("!HH", os.getpid() & 0xFFFF, number) + b"squall" * 8
            head = bytes([128 if six else 8, 0])
            words = struct.unpack(f"!{len(body) // 2 + 1}H", head + body)
            total = sum(words)
            total = (total & 0xFFFF) + (total >> 16)
            total = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
            # The kernel sets the checksum of ICMPv6.
            raw.sendto(head + struct.pack("!H", 0 if six else total) + body, place)
            until = time.monotonic() + 1
            while (left := until - time.monotonic()) > 0:
                raw.settimeout(left)
                try:
                    packet, (source, *_) = raw.recvfrom(2048)
                except TimeoutError:
                    break
                packet = packet if six else packet[(packet[0] & 15) * 4 :]
                answer = (129 if six else 0) == packet[0] and packet[4:] == body
                if answer and source.split("%")[0] == str(ipaddress.ip_address(target)):
                    answered += 1
                    break
    return answered


def answers_arp(target, mac, vlan=None):
    """Return whether this MAC address answers ARP for the address."""
    own = bytes.fromhex(
        pathlib.Path("/sys/class/net/veth-b/address").read_text().strip().replace(":", "")
    )
    asker, asked = (ipaddress.ip_address(text).packed for text in ("10.98.0.2", target))
    tag = b"" if vlan is None else struct.pack("!HH", 0x8100, vlan)
    arp = struct.pack("!HHHBBH", 0x0806, 1, 0x0800, 6, 4, 1) + own + asker + bytes(6) + asked
    answer = struct.pack("!H", 2) + bytes.fromhex(mac.replace(":", "")) + asked
    every = 3
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(every)) as raw:
        raw.bind(("veth-b", every))
        raw.send(b"\xff" * 6 + own + tag + arp + bytes(18))
        until = time.monotonic() + 1
        while (left := until - time.monotonic()) > 0:
            raw.settimeout(left)
            try:
                if answer in raw.recv(2048):
                    return True
            except TimeoutError:
                break
    return False


def hosts(api, client):
    """Check that a port with addresses answers Linux at the other end: in service mode or not, in
    its VLAN, while it sends, and no longer once its addresses are removed."""

    run("ip", "neigh", "flush", "dev", "veth-b")
    client.reset()
    client.set_service_mode(ports=[0])
    client.set_l3_mode(port=0, src_ipv4="10.99.0.1", dst_ipv4="10.99.0.2")
    same("pings in service mode", pings("10.99.0.1"), 2)
    client.conf_ipv6(port=0, enabled=True, src_ipv6="fd99::1")
    client.set_service_mode(ports=[0], enabled=False)
    own = pathlib.Path("/sys/class/net/veth-a/address").read_text().strip()
    found = run("ip", "neigh", "show", "10.99.0.1", "dev", "veth-b").stdout
    same("the MAC address that ARP found", own in found, True)
    run("ip", "addr", "add", "fd99::2/64", "dev", "veth-b", "nodad")
    octets = [int(octet, 16) for octet in own.split(":")]
    octets = [octets[0] ^ 2, *octets[1:3], 0xFF, 0xFE, *octets[3:]]
    link = "fe80::" + ":".join(f"{a:02x}{b:02x}" for a, b in zip(octets[::2], octets[1::2]))
    packet = api.STLPktBuilder(pkt=api.Ether() / api.IP() / api.UDP() / (b"x" * 30))
    client.add_streams(api.STLStream(packet=packet, mode=api.STLTXCont(pps=200)), ports=[0])
    client.start(ports=[0])
    same("pings while it sends", pings("10.99.0.1"), 2)
    same("pings of its IPv6 address", pings("fd99::1"), 2)
    same("pings of that on the link", pings(link), 2)
    same("pings of another's address", pings("10.99.0.7"), 0)
    client.stop(ports=[0])
    same("IPv6 of the port", client.ports[0].get_layer_cfg()["ipv6"]["src"], "fd99::1")

    client.set_service_mode(ports=[0])
    client.set_vlan(ports=[0], vlan=7)
    client.ports[0].set_l3_mode("10.98.0.1", "10.98.0.2")
    same("who has it, in the VLAN", answers_arp("10.98.0.1", own, vlan=7), True)
    same("who has it, out of the VLAN", answers_arp("10.98.0.1", own), False)
    client.clear_vlan(ports=[0])
    client.set_l3_mode(port=0, src_ipv4="10.99.0.1", dst_ipv4="10.99.0.2")
    same("pings out of it", pings("10.99.0.1"), 2)
    client.conf_ipv6(port=0, enabled=False)
    client.set_l2_mode(port=0, dst_mac="00:00:00:01:00:00")
    same("pings of a port without addresses", pings("10.99.0.1"), 0)
    client.set_service_mode(ports=[0], enabled=False)
    print("a port with addresses answers ARP, neighbor discovery and pings")


def nodes(api, client):
    """Check that nodes of a port answer Linux at the other end, with their own MAC addresses and
    VLANs, and that commands which need a name space are refused with the reason."""
    first, second = "02:00:00:00:07:01", "02:00:00:00:07:02"
    run("ip", "neigh", "flush", "dev", "veth-b")
    client.reset()
    client.set_service_mode(ports=[0])
    commands = api.NSCmds()
    for mac, address in ((first, "10.99.0.11"), (second, "10.98.0.12")):
        commands.add_node(mac)
        commands.set_ipv4(mac, address, "10.99.0.2")
    commands.set_vlan(second, [7])
    commands.set_ipv6(first, True)
    client.set_namespace_start(0, commands)
    same("results", client.wait_for_async_results(0), [None] * 6)
    found = client.set_namespace(0, method="get_nodes")["result"]["nodes"]
    same("nodes", sorted(found), [first, second])
    info = client.set_namespace(0, method="get_nodes_info", macs_list=[second])
    same("VLAN of a node", info["result"]["nodes"][0]["vlan"]["tags"], [7])
    same("pings of a node", pings("10.99.0.11"), 2)
    found = run("ip", "neigh", "show", "10.99.0.11", "dev", "veth-b").stdout
    same("its MAC address", first in found, True)
    same("pings of it on the link", pings("fe80::ff:fe00:701"), 2)
    same("who has the other, in its VLAN", answers_arp("10.98.0.12", second, vlan=7), True)
    same("who has it, out of it", answers_arp("10.98.0.12", second), False)
    meta = client.set_namespace(0, method="counters_get_meta")["result"]["data"]
    values = client.set_namespace(0, method="counters_get_values")["result"][""]
    counts = {one["name"]: values[str(one["id"])] for one in meta}
    same("answers are counted", counts["tx_frames"] >= 6, True)
    try:
        client.set_namespace(0, method="add_shared_ns")
        raise Failed("a name space was added")
    except api.TRexError as error:
        same("why", "without a name space" in str(error), True)
    client.namespace_remove_all(ports=[0])
    same("pings of a node that was removed", pings("10.99.0.11"), 0)
    client.set_service_mode(ports=[0], enabled=False)
    print("nodes answer ARP, neighbor discovery and pings")


def tagged(api, client):
    """Check that tagged packet groups are counted by VLAN tags, those of Squall and of another TRex,
    and that their packets have TRex's octets."""
    import scapy.all as scapy

    vlans = [[5], [6, 7], [], [9]]

    def packet(tags):
        packet = scapy.Ether()
        for tag in tags:
            packet /= scapy.Dot1Q(vlan=tag)
        return packet / scapy.IP(src="16.0.0.1", dst="48.0.0.1") / scapy.UDP(dport=12) / (b"x" * 40)

    client.reset(ports=[0, 1])
    known = [
        {"type": "Dot1Q", "value": {"vlan": 5}},
        {"type": "QinQ", "value": {"vlans": [6, 7]}},
    ]
    client.enable_tpg(num_tpgids=4, tags=known, rx_ports=[1])
    mode = api.STLTXSingleBurst(pps=500, total_pkts=100)
    for group, tags in enumerate(vlans):
        builder = api.STLPktBuilder(pkt=packet(tags))
        stats = api.STLTaggedPktGroup(tpgid=group)
        client.add_streams(api.STLStream(packet=builder, mode=mode, flow_stats=stats), ports=[0])
    sniffer = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    sniffer.bind(("veth-b", 0))
    sniffer.setsockopt(socket.SOL_SOCKET, 33, 1 << 22)  # SO_RCVBUFFORCE
    sniffer.settimeout(3)
    for _ in range(2):
        client.start(ports=[0], force=True)
        client.wait_on_traffic(ports=[0], timeout=20)
    settle(client)
    seen = {group: [] for group in range(4)}
    while any(len(sequences) < 200 for sequences in seen.values()):
        magic, group, sequence, rest = struct.unpack("<IIII", sniffer.recv(2048)[-16:])
        if magic == 0xE50B5CC1:
            same("reserved", rest, 0)
            seen[group].append(sequence)
    sniffer.close()
    for group, sequences in seen.items():
        same(f"sequence numbers of group {group}", sequences, list(range(200)))

    def counts(group):
        stats, _ = client.get_tpg_stats(1, group, 0, 2, unknown_tag=True, untagged=True)
        return {tag: of["pkts"] for tag, of in stats["1"][str(group)].items() if of["pkts"]}

    found = [counts(group) for group in range(4)]
    same("by tags", found, [{"0": 200}, {"1": 200}, {"untagged": 200}, {"unknown_tag": 200}])
    sent = client.get_tpg_tx_stats(0, 1)["0"]["1"]
    octets = len(packet(vlans[1])) + 4
    same("sent", (sent["pkts"], sent["bytes"]), (200, 200 * octets))
    unknown = client.get_tpg_unknown_tags(1)["1"][0]
    same("unknown", unknown, {"tag": {"type": "Dot1Q", "value": {"vlan": 9}}, "tpgid": 3})

    # Packets of another TRex: number 1 is missing, 4 comes twice.
    client.remove_all_streams(ports=[0])
    client.clear_tpg_stats(1, 0, max_tag=2)
    builder = api.STLPktBuilder(pkt=packet([]))
    waits = api.STLStream(packet=builder, mode=api.STLTXSingleBurst(pps=1, total_pkts=1), isg=60e6)
    client.add_streams(waits, ports=[0])
    client.start(ports=[0], force=True)
    sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    sender.bind(("veth-a", 0))
    for sequence in (0, 2, 3, 4, 4):
        header = struct.pack("<IIII", 0xE50B5CC1, 0, sequence, 0)
        sender.send(bytes(packet([5]))[:-16] + header)
    sender.close()
    settle(client)
    stats, _ = client.get_tpg_stats(1, 0, 0, 1)
    errors = {key: stats["1"]["0"]["0"][key] for key in ("pkts", "seq_err", "dup", "ooo")}
    same("of another sender", errors, {"pkts": 5, "seq_err": 1, "dup": 1, "ooo": 0})
    client.stop(ports=[0])
    client.disable_tpg()
    same("disabled", client.get_tpg_status()["enabled"], False)
    client.reset(ports=[0, 1])
    print("tagged packet groups are counted by their tags")


def held(api, client):
    """Check that a profile with a burst cannot be paused, as in TRex, and that a paused stream sends
    nothing."""
    packet = api.STLPktBuilder(pkt=api.Ether() / api.IP() / api.UDP(dport=12) / (b"x" * 30))
    client.reset(ports=[0, 1])
    modes = [api.STLTXSingleBurst(pps=100, total_pkts=9999), api.STLTXCont(pps=100)]
    burst, steady = client.add_streams(
        [api.STLStream(packet=packet, mode=mode) for mode in modes], ports=[0]
    )
    client.start(ports=[0])
    for pause in (
        lambda: client.pause_streams(port=0, stream_ids=[steady]),
        lambda: client.pause(ports=[0]),
    ):
        try:
            pause()
            raise Failed("a profile with a burst was paused")
        except api.TRexError as error:
            same("why", "is a burst" in str(error), True)
    client.stop(ports=[0])
    client.remove_streams(burst, ports=[0])
    client.start(ports=[0])
    client.pause_streams(port=0, stream_ids=[steady])
    time.sleep(0.1)
    at = client.get_stats()[0]["opackets"]
    time.sleep(0.3)
    same("while paused", client.get_stats()[0]["opackets"], at)
    client.resume_streams(port=0, stream_ids=[steady])
    until("packets of a stream that was resumed", lambda: client.get_stats()[0]["opackets"] > at)
    client.stop(ports=[0])
    print("only profiles without end can be paused")


def headers(api, client):
    """Test packets with TRex's own header: those from Squall, and those from another TRex
    server."""
    import scapy.all as scapy

    packet = scapy.Ether() / scapy.IP(src="16.0.0.1", dst="48.0.0.1") / scapy.UDP(dport=12)

    def start(mode, **more):
        client.reset(ports=[0, 1])
        stats = api.STLFlowLatencyStats(pg_id=5)
        builder = api.STLPktBuilder(pkt=packet / (b"x" * 40))
        client.add_streams(
            api.STLStream(packet=builder, mode=mode, flow_stats=stats, **more), ports=[0]
        )
        client.clear_stats()
        client.start(ports=[0], force=True)

    sniffer = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    sniffer.bind(("veth-b", 0))
    sniffer.settimeout(3)
    start(api.STLTXSingleBurst(pps=500, total_pkts=200))
    client.wait_on_traffic(ports=[0], timeout=20)
    settle(client)
    seen = []
    while len(seen) < 200:
        frame = sniffer.recv(2048)
        if frame[12:14] == b"\x08\x00" and frame[36:38] == b"\x00\x0c":
            read = scapy.Ether(frame)
            same("identification", (read[scapy.IP].id, read[scapy.IP].tos & 1), (0xFFFF, 1))
            seen.append(struct.unpack("<BBHIQ", frame[-16:]))
    sniffer.close()
    same("magic, flow_seq, hw_id", {header[:3] for header in seen}, {(0xAB, 2, 0)})
    wanted = [(0xFFFFFFFE + i) & 0xFFFFFFFF for i in range(200)]
    same("sequence numbers", [header[3] for header in seen], wanted)
    stats = client.get_stats()
    flow, latency_of = stats["flow_stats"][5], stats["latency"][5]
    same("packets of the group", (flow["tx_pkts"][0], flow["rx_pkts"][1]), (200, 200))
    same("errors of the group", sum(latency_of["err_cntrs"].values()), 0)
    if not 0 < latency_of["latency"]["total_min"] <= latency_of["latency"]["total_max"]:
        raise Failed(f"latency: {latency_of['latency']}")

    # A stream that waits, and packets of another TRex with the same stream.
    start(api.STLTXSingleBurst(pps=1, total_pkts=1), isg=60e6)
    sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    sender.bind(("veth-a", 0))
    packet[scapy.IP].id, packet[scapy.IP].tos = 0xFFFF, 1

    def send(flow_seq, hw_id, sequence):
        header = struct.pack("<BBHIQ", 0xAB, flow_seq, hw_id, sequence, 123456)
        sender.send(bytes(packet / (b"x" * 24 + header)))

    # Sequence number 0 arrives late, 1 arrives twice.
    for sequence in (0xFFFFFFFE, 0xFFFFFFFF, 1, 0, 1, 2):
        send(9, 0, sequence)
    send(8, 0, 3)  # another flow
    send(2, 0, 3)  # the previous start
    send(9, 1, 3)  # no such stream
    settle(client)
    stats = client.get_stats()
    same("packets of another sender", stats["flow_stats"][5]["rx_pkts"][1], 6)
    errors = stats["latency"][5]["err_cntrs"]
    found = {key: errors[key] for key in ("dup", "out_of_order", "seq_too_high", "seq_too_low")}
    expected = {"dup": 1, "out_of_order": 1, "seq_too_high": 1, "seq_too_low": 2}
    same("errors of another sender", found, expected)
    sender.close()
    client.stop(ports=[0])
    print("TRex's own header is sent and read")


def short(api, client):
    """Check that packets without room for a signature are counted per group by TRex's mark, and so
    are packets with that mark from another TRex server, but no others.
    """
    import scapy.all as scapy

    ether = scapy.Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
    tcp = scapy.TCP(sport=1025, dport=12)
    packets = [
        (7, ether / scapy.IP(src="16.0.0.1", dst="48.0.0.1", tos=8, id=1) / tcp / (b"x" * 6)),
        (7, ether / scapy.IP(src="16.0.0.2", dst="48.0.0.1") / tcp / (b"x" * 6)),
        (8, ether / scapy.Dot1Q(vlan=5) / scapy.IP(src="16.0.0.3", dst="48.0.0.1") / tcp),
        (9, ether / scapy.IPv6(src="2001:db8::1", dst="2001:db8::2") / tcp),
        # With room for a signature, the mark is only for other TRex servers.
        (10, ether / scapy.IP(src="16.0.0.4", dst="48.0.0.1") / tcp / (b"x" * 16)),
    ]
    client.reset(ports=[0, 1])
    for group, packet in packets:
        for port, shift in ((0, 0), (1, 10)):
            stats = api.STLFlowStats(pg_id=group + shift)
            builder = api.STLPktBuilder(pkt=packet)
            mode = api.STLTXSingleBurst(pps=500, total_pkts=100)
            client.add_streams(
                api.STLStream(packet=builder, mode=mode, flow_stats=stats), ports=[port]
            )
    client.clear_stats()
    sniffer = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    sniffer.bind(("veth-b", 0))
    sniffer.setsockopt(socket.SOL_SOCKET, 33, 1 << 22)  # SO_RCVBUFFORCE
    sniffer.settimeout(3)
    client.start(ports=[0, 1], force=True)
    client.wait_on_traffic(ports=[0, 1], timeout=20)
    settle(client)
    flows = client.get_stats()["flow_stats"]
    for group, packets_of in ((7, 200), (8, 100), (9, 100), (10, 100)):
        for port, shift in ((0, 0), (1, 10)):
            flow = flows[group + shift]
            counts = (flow["tx_pkts"][port], flow["rx_pkts"][1 - port], flow["rx_pkts"][port])
            same(f"packets of group {group + shift}", counts, (packets_of, packets_of, 0))
            octets = (flow["tx_bytes"][port], flow["rx_bytes"][1 - port])
            same(f"octets of group {group + shift}", octets[0], octets[1])
    # The kernel removes tags from frames, so marks are read only from the other frames.
    marks = {"16.0.0.1": set(), "16.0.0.2": set(), "16.0.0.3": set(), "2001:db8::1": set()}
    seen = 0
    while seen < 400:
        frame = scapy.Ether(sniffer.recv(2048))
        if scapy.IPv6 in frame and frame[scapy.IPv6].src in marks:
            ip = frame[scapy.IPv6]
            marks[ip.src].add((ip.tc & 1, ip.fl))
        elif scapy.IP in frame and frame[scapy.IP].src in marks:
            ip = frame[scapy.IP]
            whole = scapy.IP(bytes(ip))
            del whole.chksum
            same("checksum", scapy.IP(bytes(whole)).chksum, ip.chksum)
            marks[ip.src].add((ip.tos & 1, ip.id))
        else:
            continue
        seen += 1
    sniffer.close()
    same("one mark each", [len(found) for found in marks.values()], [1, 1, 1, 1])
    found = {mark for marks_of in marks.values() for mark in marks_of}
    same("different marks", len(found), 4)
    same("the mark of the first group", marks["16.0.0.1"], {(1, 0xFF00)})
    same("in TRex's range", all(bit == 1 and 0xFF00 <= id < 0xFF0F for bit, id in found), True)

    # A stream that waits, and packets of another TRex with the same stream.
    client.reset(ports=[0, 1])
    stats, mode = api.STLFlowStats(pg_id=5), api.STLTXSingleBurst(pps=1, total_pkts=1)
    builder = api.STLPktBuilder(pkt=packets[0][1])
    client.add_streams(
        api.STLStream(packet=builder, mode=mode, flow_stats=stats, isg=60e6), ports=[0]
    )
    client.clear_stats()
    client.start(ports=[0], force=True)
    sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    sender.bind(("veth-a", 0))
    for id, tos, times in ((0xFF00, 1, 6), (0xFF00, 0, 2), (0xFF01, 1, 2), (0x1234, 1, 2)):
        other = packets[0][1].copy()
        other[scapy.IP].id, other[scapy.IP].tos = id, tos
        for _ in range(times):
            sender.send(bytes(other))
    sender.close()
    settle(client)
    same("of another sender", client.get_stats()["flow_stats"][5]["rx_pkts"][1], 6)
    client.stop(ports=[0])
    print("short packets are counted by TRex's marks")


def vxlan(api, client):
    """Check that a group inside VXLAN is counted at the receiving end of the tunnel, and after its
    end."""
    import scapy.all as scapy

    def packet(inside):
        inner = scapy.Ether() / scapy.IP(src="16.0.0.1", dst="48.0.0.1") / scapy.UDP(dport=9)
        inner = bytes(inner / (b"x" * 20))
        if inside:
            return scapy.Ether(inner)
        outer = scapy.Ether() / scapy.IP(src="10.0.0.1", dst="10.0.0.2")
        header = b"\x08" + bytes(5) + b"\x2a\x00"
        return outer / scapy.UDP(sport=1337, dport=4789) / (header + inner)

    client.reset(ports=[0, 1])
    # As in TRex with this driver, which has no ports of VXLAN.
    try:
        client.set_port_attr(ports=[0, 1], vxlan_fs=[4789])
        raise Failed("ports of VXLAN are not refused")
    except api.TRexError as error:
        same("the reason", "net_i40e" in str(error), True)
    for port, inside in ((0, False), (1, True)):
        stats = api.STLFlowStats(pg_id=20 + port, vxlan=True)
        builder = api.STLPktBuilder(pkt=packet(inside))
        mode = api.STLTXSingleBurst(pps=500, total_pkts=100)
        stream = api.STLStream(packet=builder, mode=mode, flow_stats=stats)
        client.add_streams(stream, ports=[port])
    client.clear_stats()
    client.start(ports=[0, 1], force=True)
    client.wait_on_traffic(ports=[0, 1], timeout=20)
    settle(client)
    flows = client.get_stats()["flow_stats"]
    for port in (0, 1):
        flow = flows[20 + port]
        same(f"group {20 + port}", (flow["tx_pkts"][port], flow["rx_pkts"][1 - port]), (100, 100))
    print("groups inside of VXLAN are counted")


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
            driven(api, client)
            segments(api, client)
            two(api, client)
            together(api, client)
            services(api, client, folder)
            hosts(api, client)
            nodes(api, client)
            tagged(api, client)
            held(api, client)
            short(api, client)
            vxlan(api, client)
            profiles(api, client, "--full" in argv, [a for a in argv if a[0] != "-"])
            if "--full" in argv:
                many(api, client)
            # This test is last: when a link comes up again, the kernel sends packets.
            figures(api, client)
            client.disconnect()
            broken()
        with daemon(folder):
            console(folder)
            screen(folder)
        with daemon(folder, payload="trex"):
            client = api.STLClient(sync_port=SYNC, async_port=ASYNC, verbose_level="critical")
            client.connect()
            headers(api, client)
            short(api, client)
            vxlan(api, client)
            client.disconnect()
        run_examples(folder, "stl", EXAMPLES if "--full" in argv else EXAMPLES[:1])
    except Failed as error:
        print(f"FAILED: {error}")
        return 1
    return 0


if __name__ == "__main__":
    if not has_client():
        sys.exit(0)
    sys.exit(in_a_lab(SQUALL, __file__, inside))

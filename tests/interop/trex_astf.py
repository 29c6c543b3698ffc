#!/usr/bin/env python3
"""TRex's stock ASTF client, unchanged, drives `squall serve --trex-mode astf` in a lab: shipped
profiles are loaded, played and stopped, with equal counters of clients and servers and no error
counters; updates, template groups, latency at the same time, profiles by name, the console. By
default some of the profiles are used, with --full all that TRex's simulator accepts.

Skipped without the client and its profiles (trex_oracle.py).
"""

import collections
import contextlib
import glob
import ipaddress
import os
import pathlib
import socket
import socketserver
import struct
import subprocess
import sys
import threading
import time
import warnings

from tools import Failed, in_a_lab, same, slowness
from trex_oracle import (
    ASYNC,
    LIKE,
    SQUALL,
    SYNC,
    Terminal,
    captures,
    daemon,
    run_console,
    run_examples,
    has_client,
    unpack,
)

warnings.simplefilter("ignore")
# Profiles that the client or the simulator rejects.
NONE = {
    "gtpu_topo",
    "gtpu_topo_latency",
    "http_by_l7_percent",
    "http_simple_rss",
    "param_mss_err",
    "param_mss_err2",
    "udp_topo",
    "wrapping_it_up_example",
}
# One side resets data that the other has not accepted yet, or both reset at the end of their time.
RESET = {"http_manual_commands_connect_rst", "http_eflow2", "http_eflow3", "http_eflow4"}
# More flows than a busy machine with two CPUs can handle: flows are dropped on arrival, and counted
# as errors.
HEAVY = {"emix2", "ftp_multiple_flows_sim", "param_ipv6_rss", "res", "sfr", "sfr_full"}
HEAVY |= {"sfr_full_2k", "sfr_full_nat", "sfr_single", "http_high_active_flows"}
# UDP flows longer than the run, which ends them early.
CUT = {"emix2", "sfr_full", "sfr_full_2k", "sfr_full_nat"}
# Profiles that together cover the features: captures, loops and clocks, several templates on one
# port, IPv6, tunables, UDP.
SOME = ["http_eflow4", "http_simple", "http_reverse2", "param_ipv6", "param_tcp_no_timestamp"]
SOME += ["shared_port", "template_groups", "udp_sip"]


def one_profile(client, name):
    client.load_profile(f"astf/{name}.py")
    client.clear_stats()
    # Run at a tenth of the nominal rate if the machine is the bottleneck.
    client.start(mult=0.1 if name in HEAVY else 1, duration=2)
    client.wait_on_traffic(timeout=60)
    stats = client.get_stats()
    c, s = stats["traffic"]["client"], stats["traffic"]["server"]
    pairs = [
        ("tcps_connects", "tcps_accepts"),
        ("udps_connects", "udps_accepts"),
        ("tcps_sndbyte", "tcps_rcvbyte"),
        ("tcps_rcvbyte", "tcps_sndbyte"),
        ("udps_sndbyte", "udps_rcvbyte"),
        ("udps_rcvbyte", "udps_sndbyte"),
    ]
    # Packets in transit are lost when flows are aborted at the end.
    cut = c.get("tcps_drops", 0) + s.get("tcps_drops", 0) and name not in RESET or name in CUT
    for one, other in pairs:
        # The server counts an accept for every datagram; the clients send none.
        if name in ("udp_latency", "video_stream") and one == "udps_connects":
            continue
        if c.get(one, 0) != s.get(other, 0) and not (cut and "byte" in one):
            raise Failed(f"{one} of clients {c.get(one)}, {other} of servers {s.get(other)}")
    lost = stats["total"]["opackets"] - stats["total"]["ipackets"]
    if lost > 0:
        raise Failed(f"{lost} frames were sent and did not arrive")
    _, errors = client.is_traffic_stats_error(stats["traffic"])
    wrong = {}
    for side, found in errors.items():
        if found and not (name in HEAVY or (name in RESET and set(found) <= {"tcps_conndrops"})):
            wrong[side] = {key: stats["traffic"][side][key] for key in found}
    if wrong:
        error = Failed(f"errors: {wrong}")
        error.counters = [key for found in wrong.values() for key in found]
        raise error
    begun = c.get("tcps_connattempt", 0) + c.get("udps_connects", 0)
    if not begun:
        raise Failed("no flows")
    client.clear_profile()


def is_only_late(error):
    """Return whether a profile failed only because the busy generator started flows too late."""
    return set(getattr(error, "counters", ())) == {"err_c_nf_throttled"}


def played(client, name):
    """Play a profile, up to three times if the machine was too busy."""
    for left in (2, 1, 0):
        try:
            return one_profile(client, name)
        except Failed as error:
            if not left or not is_only_late(error):
                raise
            print(f"{name}: the generator was too slow ({error}): once more")
            client.reset()


def profiles(api, client, names):
    wrong = []
    for name in names:
        try:
            played(client, name)
        except (Failed, api.TRexError) as error:
            wrong.append(f"{name}: {str(error).strip()}")
            client.reset()
    if wrong:
        raise Failed(f"{len(wrong)} of {len(names)} profiles:\n" + "\n".join(wrong))
    print(f"{len(names)} profiles of flows as TRex's client wants them")


def controls(api, client):
    """Test a changed rate, a stop, groups, latency, a second profile, and refused settings."""
    client.reset()
    client.load_profile("astf/template_groups.py")
    same("groups", client.get_tg_names(), ["1x", "2x"])
    begun = time.monotonic()
    client.start(mult=10, latency_pps=200)
    time.sleep(1.2)
    client.update(50)
    for _ in range(40):
        time.sleep(0.5)
        stats = client.get_stats()["traffic"]["client"]
        if stats["m_tx_pps_r"] > 100:
            break
    else:
        raise Failed(f"{stats['m_tx_pps_r']} packets a second after an update to 150")
    while time.monotonic() - begun < 2.7:
        time.sleep(0.1)
    client.stop()
    lasted, most = (
        client.get_stats()["traffic"]["client"]["m_traffic_duration"],
        time.monotonic() - begun,
    )
    if not 2 < lasted < most:
        raise Failed(f"the traffic lasted {lasted} s, expected 2.7 to {most:.1f} s")
    groups = client.get_traffic_tg_stats(["1x", "2x"])
    once, twice = (groups[name]["client"]["udps_connects"] for name in ("1x", "2x"))
    same("the second group begins twice as often", abs(twice - 2 * once) <= 2, True)
    latency = client.get_latency_stats()
    for port in (0, 1):
        sent, came = latency[1 - port]["stats"]["m_tx_pkt_ok"], latency[port]["stats"]["m_pkt_ok"]
        if not 100 < sent == came or not latency[port]["hist"]["s_avg"] > 0:
            raise Failed(f"latency at port {port}: {came} of {sent}: {latency[port]['hist']}")
    same(
        "cores",
        client.get_traffic_distribution("16.0.0.1", "16.0.0.9", "1.0.0.0", False),
        {0: {0: {"start": "16.0.0.1", "end": "16.0.0.9"}}},
    )
    client.load_profile("astf/udp1.py", pid_input="other")
    separate_groups(api, client)
    client.clear_profile(pid_input="other")
    same("profiles", client.get_profiles(), ["_"])
    client.reset()
    client.start_latency(mult=100)
    time.sleep(1.2)
    came = client.get_latency_stats()[1]["stats"]["m_pkt_ok"]
    client.stop_latency()
    if not came > 20:
        raise Failed(f"{came} packets of latency alone")
    print("update, stop, groups, latency, profiles by name as TRex's client wants them")


def until(what, holds, seconds=30):
    """Wait until the condition is true. Return its last result."""
    end = time.monotonic() + seconds
    while not (found := holds()):
        if time.monotonic() > end:
            raise Failed(f"{what}: not within {seconds} s")
        time.sleep(0.2)
    return found


def held(api, clients=10, cps=20, port=80):
    """Return a profile of flows that exchange data and then stay open for a while."""
    client, server = api.ASTFProgram(), api.ASTFProgram()
    client.send(b"x" * 3000)
    client.recv(2000)
    client.delay(2_000_000)
    server.recv(3000)
    server.send(b"y" * 2000)
    server.delay(2_500_000)
    ips = [("16.0.0.1", f"16.0.0.{clients}"), ("48.0.0.1", "48.0.0.9")]
    ips = [api.ASTFIPGenDist(ip_range=ends, distribution="seq") for ends in ips]
    ips = api.ASTFIPGen(dist_client=ips[0], dist_server=ips[1])
    template = api.ASTFTemplate(
        client_template=api.ASTFTCPClientTemplate(program=client, ip_gen=ips, cps=cps, port=port),
        server_template=api.ASTFTCPServerTemplate(
            program=server, assoc=api.ASTFAssociationRule(port=port)
        ),
    )
    return api.ASTFProfile(default_ip_gen=ips, templates=template)


def several(api, client):
    """Check that profiles join others, and end by time or by a stop; one of them does so twice."""

    def counters(pid):
        stats = client.get_stats(pid_input=pid)["traffic"]
        return stats["client"], stats["server"]

    def ended(pid, asked):
        """Check that all flows of a profile have ended well, and no other flows are counted with
        them."""
        clients, servers = counters(pid)
        # On a busy machine some flows begin too late.
        begun = asked - clients.get("err_c_nf_throttled", 0)
        names = ("tcps_connattempt", "tcps_connects", "tcps_closed")
        same(f"flows of {pid}", [clients.get(name) for name in names], [begun] * 3)
        found = [servers.get(name) for name in ("tcps_accepts", "tcps_closed")]
        same(f"flows at the servers of {pid}", found, [begun] * 2)
        same(f"octets of {pid}", clients["tcps_sndbyte"], servers["tcps_rcvbyte"])
        _, errors = client.is_traffic_stats_error({"client": clients, "server": servers})
        errors = {name for found in errors.values() for name in found}
        same(f"errors of {pid}", errors - {"err_c_nf_throttled"}, set())

    client.reset()
    client.load_profile(held(api, port=80), pid_input="long")
    client.load_profile(held(api, port=81, clients=5), pid_input="short")
    client.load_profile("astf/udp1.py", pid_input="udp")
    client.load_profile(held(api, port=80), pid_input="same")
    client.start(mult=1, pid_input="long")
    time.sleep(1)
    client.start(mult=2, duration=2, pid_input="short")
    client.start(mult=10, pid_input="udp")
    try:
        client.start(pid_input="same")
        raise Failed("two profiles have the same servers and port")
    except api.TRexError as error:
        same("why", "port 80" in str(error), True)
    flows = {pid: set(client.get_flow_info(profile_id=pid)) for pid in ("long", "short")}
    ports = {
        pid: {name.rsplit(":", 1)[1] for name in names if name != "next_index"}
        for pid, names in flows.items()
    }
    same("servers of open flows", ports, {"long": {"80"}, "short": {"81"}})
    client.wait_on_traffic(timeout=30, profile_id="short")
    ended("short", 80)
    rest = counters("long")[0]
    same("others go on", rest["m_active_flows"] > 20 and "tcps_drops" not in rest, True)
    client.update(5, pid_input="udp")
    # Runs concurrently with the other profile.
    client.start(mult=1, duration=1, pid_input="short")
    client.wait_on_traffic(timeout=30, profile_id="short")
    ended("short", 20)
    client.stop(pid_input="long")
    long, short = (counters(pid)[0] for pid in ("long", "short"))
    begun = long["tcps_connattempt"]
    same("flows of 7 s and more", begun > 100, True)
    ended("long", begun + long.get("err_c_nf_throttled", 0))
    total = client.get_stats(is_sum=True)["traffic"]["client"]
    same("the sum", total["tcps_connattempt"], begun + short["tcps_connattempt"])
    same(
        "udp goes on",
        counters("udp")[0]["m_active_flows"] >= 0,
        True,
    )
    # The only profile that is left. Its flows are aborted when it is stopped.
    client.start(mult=1, pid_input="same", nc=True)
    time.sleep(1.5)
    at = time.monotonic()
    client.stop(pid_input="same")
    # Each would take 2.5 s alone.
    same("they were not waited for", time.monotonic() - at < 2 * slowness(), True)
    cut, served = counters("same")
    same("flows that were cut", cut["tcps_closed"] == cut["tcps_connattempt"] >= 20, True)
    same("none is open", [cut.get("m_active_flows", 0), served.get("m_active_flows", 0)], [0, 0])
    client.stop(pid_input="udp")
    clients, servers = counters("udp")
    same("flows over UDP", clients["udps_connects"], servers["udps_accepts"])
    same("octets over UDP", clients["udps_sndbyte"], servers["udps_rcvbyte"])
    client.reset()
    print("several profiles at a time as TRex's client wants them")


def videos(client):
    """Check flows that start further flows, one per part of a video, in the quality that the rate
    of the previous part allows; programs have counters."""
    client.reset()
    short = ["--video_time", "3", "--chunk_time", "0.5", "--buffer_time", "1.5"]
    client.load_profile("astf/video_stream.py", tunables={"tunables": short})
    groups = client.get_tg_names()

    def played(mult, duration):
        client.start(mult=mult, duration=duration)
        client.wait_on_traffic(timeout=60)
        clients, servers = (client.get_stats()["traffic"][side] for side in ("client", "server"))
        parts = clients["udps_connects"] * 6
        found = [clients.get(f"tcps_{name}") for name in ("connattempt", "connects", "closed")]
        same("parts of the videos", found, [parts] * 3)
        same("parts served", servers["tcps_accepts"], parts)
        same("octets", clients["tcps_rcvbyte"], servers["tcps_sndbyte"])
        stats = client.get_traffic_tg_stats(groups)
        parts = {name: stats[name]["client"].get("tcps_connects", 0) for name in groups}
        counted = client.get_dynamic_traffic_stats()
        same("counters of all", client.get_dynamic_traffic_stats(is_sum=True), counted)
        # B: milliseconds for parts; A: number of pauses of the video.
        same("time for parts", counted["client"]["B"] > 0, True)
        return parts, counted["client"].get("A", 0)

    parts, still = played(mult=3, duration=2)
    same("all in the best quality", parts, {**dict.fromkeys(groups, 0), groups[0]: 36})
    same("videos that stood still", still, 0)
    client.clear_stats()
    tc = ["tc", "qdisc", "add", "dev", "veth-b", "root", "tbf", "rate", "2mbit"]
    subprocess.run([*tc, "burst", "20kb", "latency", "400ms"], check=True)
    try:
        parts, still = played(mult=1, duration=1)
    finally:
        subprocess.run(["tc", "qdisc", "del", "dev", "veth-b", "root"], check=True)
    same("the first part in the best quality, then worse", parts[groups[0]], 1)
    same("parts", sum(parts.values()), 6)
    same("it stood still", still > 0, True)
    client.reset()
    print("videos whose parts are flows of their own, as fast as the link is")


def one_by_one(api, client):
    """Check the list of open flows, by address and at an interval; it is empty without a run."""
    client.reset()
    client.load_profile(held(api))
    same("flows before the start", client.get_flow_info(), {})
    client.start(mult=1)
    flows = until("40 open flows", lambda: len(f := client.get_flow_info()) >= 38 and f)
    active = client.get_stats()["traffic"]["client"]["m_active_flows"]
    if not len(flows) / 2 < active < len(flows) * 2:
        raise Failed(f"{len(flows)} flows are listed, and {active} open")
    sure = 0
    for name, ends in flows.items():
        source, destination = name.split("-")
        if not source.startswith("16.0.0.") or not destination.startswith("48.0.0."):
            raise Failed(f"a flow is called {name}")
        origins = [end["origin"] for end in ends]
        # A flow that has just begun has no peer yet.
        same(f"ends of {name}", origins in (["client", "server"], ["client"], ["server"]), True)
        for end in ends:
            same(f"options of {name}", end["options"], "/timestamps/sack/wscale")
            if end["state"] == 4 and len(ends) == 2 and end["rtt_usec"] > 0:
                sure += 1
                same(f"{name}: {end}", end["rto"] >= end["rtt"] and end["snd_cwnd"] > 1000, True)
                same(f"the window of {name}", end["rcv_space"] > 1000 < end["snd_wnd"], True)
        lasted = [end["duration"] for end in ends if end["origin"] == "client"]
        if lasted and not 0 <= lasted[0] < 60_000:
            raise Failed(f"{name} has lasted {lasted[0]} ms")
    if sure < len(flows):
        raise Failed(f"{sure} established ends of {len(flows)} flows: {next(iter(flows.items()))}")
    first = client.get_flow_info(index=0)["next_index"]
    same("the index goes on", client.get_flow_info(index=first)["next_index"] > first, True)
    client.stop()
    same("flows after the stop", client.get_flow_info(), {})
    client.start(mult=1, dump_interval=0.3)
    looks = lambda: client.get_flow_info(index=0)
    longest = lambda found: max((len(f) for k, f in found.items() if k != "next_index"), default=0)
    found = until("several looks at a flow", lambda: longest(f := looks()) >= 6 and f)
    rest = client.get_flow_info(index=found["next_index"])
    same("fewer looks from the index on", longest(rest) < longest(found), True)
    client.stop()
    print("open flows one by one as TRex's client wants them")


def ignored(api, client):
    """Check that frames with ignored addresses belong to no flow, even if they are set during a
    run."""

    def connects(seconds=1.5):
        before = client.get_stats()["traffic"]["client"]
        time.sleep(seconds)
        after = client.get_stats()["traffic"]["client"]
        names = ("tcps_connattempt", "tcps_connects")
        return [after.get(name, 0) - before.get(name, 0) for name in names]

    client.reset()
    client.load_profile(held(api, clients=2))
    same("nobody", client.get_ignored_macs_ips(), {"ips": [], "macs": []})
    client.set_ignored_macs_ips(ip_list=["16.0.0.1"])
    same("an address", client.get_ignored_macs_ips()["ips"], ["16.0.0.1"])
    client.start(mult=1)
    # One of two clients is answered.
    until("half of the flows connect", lambda: 0.2 < (n := connects())[1] / max(n[0], 1) < 0.8)
    mac = client.ports[1].get_layer_cfg()["ether"]["src"]
    client.set_ignored_macs_ips(mac_list=[mac])
    same("a MAC address", client.get_ignored_macs_ips(), {"ips": [], "macs": [mac]})
    until("no flow connects", lambda: (n := connects())[0] > 5 and n[1] == 0)
    client.set_ignored_macs_ips()
    until("all flows connect", lambda: (n := connects())[0] > 5 and n[1] >= n[0] * 0.8)
    client.stop()
    print("addresses that are ignored")


def clients(api, client):
    """Check that disabled clients start no flow until they are enabled again."""

    def number(ip):
        return int(ipaddress.ip_address(ip))

    def begun():
        """Return the number of open flows per client."""
        names = (name.split(":")[0] for name in client.get_flow_info())
        return collections.Counter(names)

    client.reset()
    client.load_profile(held(api, clients=4))
    client.start(mult=1)
    known = client.get_clients_info([number("16.0.0.2"), number("16.0.0.9")]).data()
    active, unknown = {"Found": 1, "state": "Active"}, {"Found": 0}
    expected = {str(number("16.0.0.2")): active, str(number("16.0.0.9")): unknown}
    same("clients", known, expected)
    until("all begin flows", lambda: len(begun()) == 4)
    client.set_client_enable([number("16.0.0.2")], False)
    client.set_client_enable_range(number("16.0.0.3"), number("16.0.0.4"), False)
    info = client.get_clients_info_range(number("16.0.0.1"), number("16.0.0.4")).data()
    states = [info[str(number(f"16.0.0.{n}"))]["state"] for n in (1, 2, 3, 4)]
    same("states", states, ["Active", "Inactive", "Inactive", "Inactive"])
    # Open flows continue.
    until("only the first begins flows", lambda: set(begun()) == {"16.0.0.1"})
    same("the first has all flows", begun()["16.0.0.1"] > 20, True)
    client.set_client_enable([number("16.0.0.4")], True)
    until("the fourth does so again", lambda: set(begun()) == {"16.0.0.1", "16.0.0.4"})
    client.stop()
    client.start(mult=1)
    until("all begin flows after another start", lambda: len(begun()) == 4)
    client.stop()
    print("single clients off and on as TRex's client wants them")


def filtered(api, client):
    """Check service mode for some protocols: captures have only these, and flows ignore them."""

    def captured(port):
        """Return whether clients of a server on that port get answers, and the ports in a
        capture."""
        client.load_profile(held(api, port=port))
        client.clear_stats()
        client.start(mult=1)
        capture = client.start_capture(rx_ports=[1], limit=1000)["id"]
        counter = lambda: client.get_stats()["traffic"]["client"]
        until("flows", lambda: counter().get("tcps_connattempt", 0) > 20)
        packets = []
        client.stop_capture(capture, packets)
        connects = counter().get("tcps_connects", 0)
        client.stop()
        ports = {
            struct.unpack("!H", p["binary"][36:38])[0] for p in packets if p["binary"][23] == 6
        }
        return connects > 10, ports & {80, 179}

    client.reset()
    client.set_service_mode(enabled=True)
    same("all is captured, and heard", captured(80), (True, {80}))
    client.set_service_mode(enabled=False, filtered=True, mask=3)
    status = client.ports[0].sync() and client.ports[0].is_service_filtered_mode_on()
    same("the mode", bool(status), True)
    same("of another port nothing is captured", captured(80), (True, set()))
    same("BGP is captured, and for no flow", captured(179), (False, {179}))
    client.set_service_mode(enabled=False)
    try:
        client.start_capture(rx_ports=[1], limit=10)
        raise Failed("a capture without service mode was taken")
    except api.TRexError:
        pass
    print("service mode, also for some protocols")


def busy(api, client):
    """Check the load of the daemon's threads: low without traffic, high with it."""
    share = lambda: client.get_stats()["global"]["cpu_util"]
    now = lambda: client.get_util_stats()["cpu"][0]
    client.reset()
    until("no load", lambda: share() < 3)
    until("a thread is idle", lambda: now()["ports"] == [-1, -1])
    client.load_profile(held(api, clients=200, cps=4000))
    client.start(mult=1)
    until("load", lambda: share() > 10, 60)
    stats = client.get_stats()["global"]
    same("the latest second", 0 < stats["cpu_util_raw"] <= 100, True)
    per_core = 2 * stats["tx_bps"] / 1e9 * 100 / stats["cpu_util"]
    # There may be several cores, and the figures are sampled at different times.
    if not per_core / 20 < stats["bw_per_core"] < per_core * 3:
        raise Failed(f"{stats['bw_per_core']} Gb/s per core, about {per_core}")
    history = now()
    same("20 values at most", 1 < len(history["history"]) <= 20, True)
    same("ports", history["ports"][0], 0)
    if not 10 < max(history["history"]) <= 100:
        raise Failed(f"a thread under load: {history}")
    same("clients", (stats["total_clients"], stats["total_servers"]), (200, 9))
    same("flows asked for", stats["tx_expected_cps"], 4000)
    client.stop()
    until("no load again", lambda: share() < 3)
    print("CPU utilization: 0 idle, more with load")


def separate_groups(api, client):
    """Check flows that one client starts and another stops."""
    client.start(mult=50, nc=True, block=True)
    before = dict(client.ports[0].get_xstats().reference_stats)
    client.disconnect(stop_traffic=False, release_ports=True)
    other = api.ASTFClient(sync_port=SYNC, async_port=ASYNC, verbose_level="critical")
    other.connect()
    other.acquire(force=True)
    time.sleep(1)
    other.stop()
    sent = other.get_xstats(0)["tx_good_packets"] - before["tx_good_packets"]
    same("packets of flows that went on", sent > 20, True)
    other.disconnect()
    client.connect()
    client.acquire(force=True)


def exchanges(api, last_server="48.0.0.4"):
    """Short flows: 100 octets one way, 1000 the other."""
    client, server = api.ASTFProgram(), api.ASTFProgram()
    client.send(b"x" * 100)
    client.recv(1000)
    server.recv(100)
    server.send(b"y" * 1000)
    ips = [("16.0.0.1", "16.0.0.20"), ("48.0.0.1", last_server)]
    ips = [api.ASTFIPGenDist(ip_range=ends, distribution="seq") for ends in ips]
    ips = api.ASTFIPGen(dist_client=ips[0], dist_server=ips[1])
    template = api.ASTFTemplate(
        client_template=api.ASTFTCPClientTemplate(program=client, ip_gen=ips, cps=50),
        server_template=api.ASTFTCPServerTemplate(program=server),
    )
    return api.ASTFProfile(default_ip_gen=ips, templates=template)


@contextlib.contextmanager
def stateful(api, folder, ports, options=()):
    """A client that has acquired the ports of a daemon of its own."""
    with daemon(folder, "astf", ports=ports, options=options):
        client = api.ASTFClient(sync_port=SYNC, async_port=ASYNC, verbose_level="critical")
        client.connect()
        client.reset()
        try:
            yield client
        finally:
            client.disconnect()


def received(interface):
    return int(pathlib.Path(f"/sys/class/net/{interface}/statistics/rx_packets").read_text())


def several_ports(api, folder):
    """One and two pairs of ports on two cores: equal counters at both ends of each pair, which the
    interfaces confirm."""
    subprocess.run("ip link add veth-c type veth peer name veth-d".split(), check=True)
    for name in "cd":
        subprocess.run(f"ip link set veth-{name} up".split(), check=True)
    for letters, cores in (("ab", 2), ("abcd", 1)):
        names = [f"veth-{letter}" for letter in letters]
        options = ["--trex-cores", str(cores)]
        with stateful(api, folder, [f"af_packet:{name}" for name in names], options) as client:
            same("ports", client.get_all_ports(), list(range(len(names))))
            client.load_profile(exchanges(api))
            client.clear_stats()
            before = [received(name) for name in names]
            client.start(mult=10, latency_pps=50)
            time.sleep(2)
            flows = client.get_flow_info()
            client.stop()
            stats = client.get_stats()
            clients, servers = (stats["traffic"][side] for side in ("client", "server"))
            begun = clients["tcps_connattempt"]
            same("the rate is that of all pairs", 300 < begun <= 1500, True)
            found = [clients.get("tcps_connects"), servers.get("tcps_accepts")]
            same(f"flows on {letters}", found, [begun] * 2)
            for one, other in (("sndbyte", "rcvbyte"), ("rcvbyte", "sndbyte")):
                same(one, clients[f"tcps_{one}"], servers[f"tcps_{other}"])
            same("octets", clients["tcps_rcvbyte"], 1000 * begun)
            errors = client.is_traffic_stats_error(stats["traffic"])[1]
            errors = {name for found in errors.values() for name in found}
            same("errors", errors - {"err_c_nf_throttled"}, set())
            latency = client.get_latency_stats()
            for port, name in enumerate(names):
                sent = stats[port ^ 1]["opackets"]
                came = (stats[port]["ipackets"], received(name) - before[port])
                # The kernel's own packets, such as those of IPv6, are few.
                if not 100 < sent == came[0] <= came[1] <= sent + 50:
                    raise Failed(f"port {port}: {sent} were sent to it, {came} arrived")
                of = [latency[port]["stats"]["m_pkt_ok"], latency[port ^ 1]["stats"]["m_tx_pkt_ok"]]
                same(f"latency at port {port}", of[0] == of[1] > 20, True)
            sent = sum(stats[port]["opackets"] for port in range(len(names)))
            same("the total", stats["total"]["opackets"], sent)
            known = client.get_traffic_distribution("16.0.0.1", "16.0.0.20", "1.0.0.0", False)
            same("ports of clients", list(known), list(range(0, len(names), 2)))
            ranges = [found for cores in known.values() for found in cores.values()]
            ranges = [
                (ipaddress.ip_address(r["start"]), ipaddress.ip_address(r["end"])) for r in ranges
            ]
            ends = [name.split(":")[0] for name in flows if name != "next_index"]
            for end in map(ipaddress.ip_address, ends):
                same(f"{end} is of a core", any(a <= end <= b for a, b in ranges), True)
    print("one and two pairs of ports on two cores: each port's counters, and the interfaces'")


def frames_of(clients, interface="veth-b", seconds=10):
    """Return a frame of an IPv4 packet from each of these clients that the interface receives from
    now on, and its outermost VLAN tag. The packet may be inside others."""
    until, found = time.monotonic() + seconds * slowness(), {}
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as tap:
        # PACKET_AUXDATA of packet(7): the kernel takes the tag out of the frame.
        tap.setsockopt(263, 8, 1)
        tap.bind((interface, 0))
        tap.settimeout(0.2)
        while found.keys() != set(clients):
            if time.monotonic() > until:
                raise Failed(f"no frames of {set(clients) - found.keys()}")
            with contextlib.suppress(TimeoutError):
                frame, extra, _, origin = tap.recvmsg(2048, 256)
                # The servers of each client are 48.0.0.0/16.
                heads = {c: socket.inet_aton(c) + bytes([48, 0]) for c in clients}
                of = [client for client, head in heads.items() if head in frame]
                if origin[2] != socket.PACKET_OUTGOING:
                    found |= dict.fromkeys(of, (frame, tag_of(extra)))
    return found


def tag_of(extra):
    """Return the VLAN tag in the ancillary data of a frame, a tpacket_auxdata of packet(7)."""
    for level, kind, data in extra:
        if (level, kind) == (263, 8):
            status, _, _, _, _, tag, _ = struct.unpack("IIIHHHH", data)
            # TP_STATUS_VLAN_VALID.
            return tag & 4095 if status & 16 else None
    return None


def headers(api, client):
    """Check on the wire that clients of a topology have its addresses and VLANs, and that clients
    with tunnels are in them, which change while flows are active."""
    from trex.astf.trex_astf_client import Tunnel
    from trex.astf.tunnels_topo import TunnelsTopo

    client.reset()
    at = [client.ports[port].get_layer_cfg()["ether"]["src"] for port in (0, 1)]
    octets = lambda mac: bytes.fromhex(mac.replace(":", ""))
    topology = api.ASTFTopology()
    topology.add_vif("0.1", "02:00:00:00:07:01", src_ipv4="5.5.5.5", vlan=7)
    topology.add_gw("0.1", "16.0.0.1", "16.0.0.2", "02:00:00:00:08:01")
    topology.add_gw("0", "16.0.0.3", "16.0.0.3", at[1])
    client.topo_load(topology)
    client.topo_resolve()
    ips = [f"16.0.0.{number}" for number in range(1, 5)]
    client.load_profile(held(api, clients=4))
    client.start(mult=1)
    found = frames_of(ips)
    client.stop()
    for ip in ips[:2]:
        frame, tag = found[ip]
        same(f"addresses of {ip}", frame[:12], octets("02:00:00:00:08:01" + "02:00:00:00:07:01"))
        same(f"VLAN of {ip}", tag, 7)
    for ip in ips[2:]:
        frame, tag = found[ip]
        same(f"headers of {ip}", (frame[:12], tag), (octets(at[1] + at[0]), None))
    client.topo_clear()
    tunnels = TunnelsTopo()
    context = {"src_ip": "1.1.1.11", "dst_ip": "12.2.2.2", "sport": 5000, "version": 4}
    context |= {"initial_teid": 7, "teid_jump": 2, "tunnel_type": 1, "activate": True}
    tunnels.add_tunnel_ctx(ips[0], ips[3], **context)
    client.activate_tunnel(loopback=True)
    client.tunnels_topo_load(tunnels)
    client.clear_stats()
    client.start(mult=1)

    def outer(ip):
        """Return version, ends, ports and TEID of a client's tunnel."""
        frame, tag = frames_of([ip])[ip]
        same("no VLAN", tag, None)
        version = frame[14] >> 4
        ends, udp = (frame[26:34], 34) if version == 4 else (frame[22:54], 54)
        return version, ends, struct.unpack("!HH", frame[udp : udp + 4]), frame[udp + 12 : udp + 16]

    ends = socket.inet_aton("1.1.1.11") + socket.inet_aton("12.2.2.2")
    for number, ip in enumerate(ips):
        expected = (4, ends, (5000, 2152), struct.pack("!I", 7 + 2 * number))
        same(f"the tunnel of {ip}", outer(ip), expected)
    record = Tunnel("fd00::1", "fd00::2", 5001, 99, 6)
    client.update_tunnel_client_record({int(ipaddress.ip_address(ips[1])): record}, 1)
    ends = b"".join(socket.inet_pton(socket.AF_INET6, end) for end in ("fd00::1", "fd00::2"))
    expected = (6, ends, (5001, 2152), struct.pack("!I", 99))
    until("another tunnel", lambda: outer(ips[1]) == expected)
    client.stop()
    stats = client.get_stats()["traffic"]
    clients, servers = stats["client"], stats["server"]
    found = [clients.get("tcps_connects"), servers.get("tcps_accepts"), servers.get("tcps_closed")]
    same("flows in tunnels", found, [clients["tcps_connattempt"]] * 3)
    same("octets in tunnels", clients["tcps_sndbyte"], servers["tcps_rcvbyte"])
    client.tunnels_topo_clear()
    tunnels_of_some(client, context)
    client.activate_tunnel(activate=False)
    client.reset()
    print("topologies and tunnels of clients, on the wire")


def tunnels_of_some(client, context):
    """Check on the wire that latency is measured in the tunnel of a client, and that a client which
    the topology has off begins flows when it is switched on, in a tunnel with the flow's port."""
    from trex.astf.tunnels_topo import TunnelsTopo

    last = "16.0.0.4"
    tunnels = TunnelsTopo()
    tunnels.add_tunnel_ctx("16.0.0.1", "16.0.0.3", **context)
    tunnels.add_tunnel_ctx(last, last, **{**context, "sport": 0, "activate": False})
    tunnels.add_tunnel_ctx("16.0.0.9", "16.0.0.9", **context)
    tunnels.add_tunnel_latency(0, "16.0.0.9", "48.0.0.9")
    client.tunnels_topo_load(tunnels)
    client.clear_stats()
    client.start(mult=1, latency_pps=100)
    frame, _ = frames_of(["16.0.0.9"])["16.0.0.9"]
    # After the headers of Ethernet, IPv4, UDP and GTP-U: IPv4 from octet 50 on.
    same("TEID and protocol", (frame[46:50], frame[59]), (struct.pack("!I", 7), 1))
    same("the checksum of IPv4", sum(struct.unpack("!10H", frame[50:70])) % 0xFFFF, 0)
    key = int(ipaddress.ip_address(last))
    state = lambda: client.get_clients_info([key]).data()[str(key)]
    same("a client that is off", state(), {"Found": 1, "state": "Inactive", "tunnel_type": "GTP"})
    client.set_client_enable([key], True)
    frame, _ = frames_of([last])[last]
    same("the source ports outside and inside", frame[34:36], frame[70:72])
    client.stop()
    latency = client.get_latency_stats()
    for port in (0, 1):
        sent, came = latency[port ^ 1]["stats"]["m_tx_pkt_ok"], latency[port]["stats"]["m_pkt_ok"]
        same(f"latency in a tunnel to port {port}", sent == came > 0, True)
    client.tunnels_topo_clear()


def screen(folder):
    """The console in a terminal: its screens show flows and their latency, and it shows the flows of
    template groups."""
    with Terminal(folder, "-f") as console:
        console.waits_for("trex>")
        console.types("start -f astf/template_groups.py -m 10 -l 100\n", "trex>")
        console.types("template_group names\n", "trex>")
        console.types("tui\n", "navigation panel")
        # Escape leads to the keys for screens.
        console.types("\x1b", "browse:")
        console.types("t", "connattempt")
        for key, shown in (("l", "Latency Statistics"), ("v", "Histogram"), ("v", "Counters")):
            console.types(key, shown)
        console.types("q", "trex>")
        console.types("stop\n", "SUCCESS")
    print("TRex's console in a terminal")


class Peer(socketserver.BaseRequestHandler):
    """A server on Linux's own TCP."""

    served = 0

    def handle(self):
        left = 100
        while left and (data := self.request.recv(left)):
            left -= len(data)
        self.request.sendall(b"y" * 1000)
        while self.request.recv(1):
            pass
        type(self).served += not left


def external_ends(api, folder):
    """Clients against a server on Linux's TCP, and a client on it against the servers; the other port
    is a dummy."""

    def host(interface, address, peers):
        # Interfaces of a lab answer no ARP.
        subprocess.run(f"ip link set {interface} arp on".split(), check=True)
        subprocess.run(f"ip addr add {address}/32 dev {interface}".split(), check=True)
        subprocess.run(f"ip route add {peers} dev {interface}".split(), check=True)

    host("veth-b", "48.0.0.1", "16.0.0.0/8")
    socketserver.ThreadingTCPServer.allow_reuse_address = True
    with (
        socketserver.ThreadingTCPServer(("48.0.0.1", 80), Peer) as server,
        stateful(api, folder, ["af_packet:veth-a", "dummy"]) as client,
    ):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        same("ports", client.get_all_ports(), [0])
        client.load_profile(exchanges(api, last_server="48.0.0.1"))
        client.start(mult=2, duration=2)
        client.wait_on_traffic(timeout=60)
        stats = client.get_stats()["traffic"]
        begun = stats["client"]["tcps_connattempt"]
        same("flows", 50 < begun == stats["client"]["tcps_closed"], True)
        same("octets", stats["client"]["tcps_rcvbyte"], 1000 * begun)
        same("servers of its own", [key for key in stats["server"] if "accepts" in key], [])
        server.shutdown()
        until("the server has served all", lambda: Peer.served == begun)
    subprocess.run("ip addr flush dev veth-b".split(), check=True)
    host("veth-a", "16.0.0.1", "48.0.0.0/8")
    with stateful(api, folder, ["dummy", "af_packet:veth-b"]) as client:
        same("ports", client.get_all_ports(), [1])
        client.load_profile(exchanges(api))
        client.start()
        for number in range(20):
            source, server = ("16.0.0.1", 0), (f"48.0.0.{1 + number % 4}", 80)
            with socket.create_connection(server, 20, source) as peer:
                peer.sendall(b"x" * 100)
                came = b""
                while data := peer.recv(4096):
                    came += data
            same("what a server answered", came, b"y" * 1000)
        until("all are counted", lambda: served(client).get("tcps_closed") == 20)
        client.stop()
        same("flows", [served(client)[f"tcps_{n}"] for n in ("accepts", "rcvbyte")], [20, 2000])
    subprocess.run("ip addr flush dev veth-a".split(), check=True)
    print("clients against another server, servers for another client; the other port is a dummy")


def served(client):
    return client.get_stats()["traffic"]["server"]


def inside(folder, argv):
    library = unpack(folder)
    os.chdir(folder / "trex")
    sys.path.insert(0, str(library))
    from trex.astf import api

    names = [pathlib.Path(path).stem for path in sorted(glob.glob("astf/*.py"))]
    names = [name for name in names if name not in NONE]
    chosen = [arg for arg in argv if arg[0] != "-"]
    if chosen or "--full" not in argv:
        names = chosen or SOME
    captures(folder, [] if names == SOME else LIKE)
    try:
        with daemon(folder, "astf"):
            client = api.ASTFClient(sync_port=SYNC, async_port=ASYNC, verbose_level="critical")
            client.connect()
            client.reset()
            controls(api, client)
            several(api, client)
            videos(client)
            one_by_one(api, client)
            ignored(api, client)
            clients(api, client)
            filtered(api, client)
            busy(api, client)
            headers(api, client)
            profiles(api, client, names)
            client.disconnect()
            run_console(
                folder, ["connect", "start -f astf/udp1.py -m 5 -d 1", "stats", "stats -c", "stop"]
            )
            print("TRex's console in batch mode")
            screen(folder)
        several_ports(api, folder)
        external_ends(api, folder)
        if "--full" in argv:
            run_examples(folder, "astf", [["astf_example"]])
    except (Failed, api.TRexError) as error:
        print(f"FAILED: {error}")
        return 1
    return 0


if __name__ == "__main__":
    if not has_client():
        sys.exit(0)
    sys.exit(in_a_lab(SQUALL, __file__, inside))

#!/usr/bin/env python3
"""TRex's stock client of flows (ASTF), unchanged, drives `squall serve --trex-mode astf` in a lab:
shipped profiles loaded, played and stopped, with equal counters of clients and servers and none of
errors; updates, template groups, latency beside, profiles by name, the console. Some of the
profiles; all of them that TRex's simulator takes with --full.

Without the client and its profiles (trex_oracle.py) this is skipped.
"""

import glob
import os
import pathlib
import sys
import time
import warnings

from tools import Failed, in_a_lab, same
from trex_oracle import ASYNC, LIKE, SQUALL, SYNC, captures, daemon, run_console, skipped, unpack

warnings.simplefilter("ignore")
# Those that the client or the simulator refuses, too.
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
# Flows that flows begin: refused, with the reason.
REFUSED = {"video_stream"}
# One side resets what the other has not accepted yet, or both when their time is over.
RESET = {"http_manual_commands_connect_rst", "http_eflow2", "http_eflow3", "http_eflow4"}
# More than a busy machine of two CPUs plays: arrivals are given up, and counted as errors.
HEAVY = {"emix2", "ftp_multiple_flows_sim", "param_ipv6_rss", "res", "sfr", "sfr_full"}
HEAVY |= {"sfr_full_2k", "sfr_full_nat", "sfr_single", "http_high_active_flows"}
# Flows of datagrams that are longer than the run, which cuts them.
CUT = {"emix2", "sfr_full", "sfr_full_2k", "sfr_full_nat"}
# What each shows: captures, loops and clocks, several templates on one port, IPv6, tunables, UDP.
SOME = ["http_eflow4", "http_simple", "http_reverse2", "param_ipv6", "param_tcp_no_timestamp"]
SOME += ["shared_port", "template_groups", "udp_sip"]


def one_profile(client, name):
    client.load_profile(f"astf/{name}.py")
    client.clear_stats()
    # At a tenth where the machine is the bound.
    client.start(mult=0.1 if name in HEAVY else 1, duration=2)
    client.wait_on_traffic(timeout=60)
    stats = client.get_stats()
    c, s = stats["traffic"]["client"], stats["traffic"]["server"]
    begun = c.get("tcps_connattempt", 0) + c.get("udps_connects", 0)
    if not begun:
        raise Failed("no flows")
    pairs = [
        ("tcps_connects", "tcps_accepts"),
        ("udps_connects", "udps_accepts"),
        ("tcps_sndbyte", "tcps_rcvbyte"),
        ("tcps_rcvbyte", "tcps_sndbyte"),
        ("udps_sndbyte", "udps_rcvbyte"),
        ("udps_rcvbyte", "udps_sndbyte"),
    ]
    # What is on its way when flows are aborted at the end is lost.
    cut = c.get("tcps_drops", 0) + s.get("tcps_drops", 0) and name not in RESET or name in CUT
    for one, other in pairs:
        # Its server is accepted by every datagram.
        if name == "udp_latency" and one == "udps_connects":
            continue
        if c.get(one, 0) != s.get(other, 0) and not (cut and "byte" in one):
            raise Failed(f"{one} of clients {c.get(one)}, {other} of servers {s.get(other)}")
    _, errors = client.is_traffic_stats_error(stats["traffic"])
    for side, found in errors.items():
        if found and not (name in HEAVY or (name in RESET and set(found) <= {"tcps_conndrops"})):
            raise Failed(
                f"errors of {side}s: { {key: stats['traffic'][side][key] for key in found} }"
            )
    lost = stats["total"]["opackets"] - stats["total"]["ipackets"]
    if lost > 0:
        raise Failed(f"{lost} frames were sent and did not arrive")
    client.clear_profile()


def profiles(api, client, names):
    wrong = []
    for name in names:
        try:
            one_profile(client, name)
            if name in REFUSED:
                wrong.append(f"{name}: it was taken")
        except (Failed, api.TRexError) as error:
            if name not in REFUSED or "not supported" not in str(error):
                wrong.append(f"{name}: {str(error).strip()}")
            client.reset()
    if wrong:
        raise Failed(f"{len(wrong)} of {len(names)} profiles:\n" + "\n".join(wrong))
    print(f"{len(names)} profiles of flows as TRex's client wants them")


def controls(api, client):
    """A rate that changes, a stop, groups, latency, a second profile, what is refused."""
    client.reset()
    client.load_profile("astf/template_groups.py")
    same("groups", client.get_tg_names(), ["1x", "2x"])
    client.start(mult=10, latency_pps=200)
    time.sleep(1.2)
    client.update(50)
    time.sleep(1.5)
    stats = client.get_stats()["traffic"]["client"]
    if not stats["m_tx_pps_r"] > 100:
        raise Failed(f"{stats['m_tx_pps_r']} packets a second after an update to 150")
    try:
        client.load_profile("astf/udp1.py", pid_input="other")
        client.start(pid_input="other", block=False)
        raise Failed("a second profile of flows was started")
    except api.TRexError as error:
        same("why", "one profile of flows" in str(error), True)
    client.stop()
    lasted = client.get_stats()["traffic"]["client"]["m_traffic_duration"]
    if not 2 < lasted < 30:
        raise Failed(f"the traffic of 2.7 s lasted {lasted} s")
    groups = client.get_traffic_tg_stats(["1x", "2x"])
    once, twice = (groups[name]["client"]["udps_connects"] for name in ("1x", "2x"))
    same("the second group begins twice as often", abs(twice - 2 * once) <= 2, True)
    latency = client.get_latency_stats()
    for port in (0, 1):
        sent, came = latency[1 - port]["stats"]["m_tx_pkt_ok"], latency[port]["stats"]["m_pkt_ok"]
        if not 100 < sent == came or not latency[port]["hist"]["s_avg"] > 0:
            raise Failed(f"latency at port {port}: {came} of {sent}: {latency[port]['hist']}")
    apart(api, client)
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


def apart(api, client):
    """Flows that one client starts and another stops."""
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
            profiles(api, client, names)
            client.disconnect()
            run_console(folder, ["connect", "start -f astf/udp1.py -m 5 -d 1", "stats", "stop"])
            print("TRex's console in batch mode")
    except (Failed, api.TRexError) as error:
        print(f"FAILED: {error}")
        return 1
    return 0


if __name__ == "__main__":
    if skipped():
        sys.exit(0)
    sys.exit(in_a_lab(SQUALL, __file__, inside))

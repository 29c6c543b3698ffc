#!/usr/bin/env python3
"""Hosts of squall with sessions of PPPoE and with LACP over a veth pair: an access concentrator made
with Scapy (pppoe_server.py) has the sessions and memberships of the report, two ports of squall form
an aggregate, and tshark finds nothing malformed and the same states.

Needs root, ip, tcpdump, tshark and scapy; $SQUALL is target/debug/squall unless set.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

from flows import LOCAL, REMOTE, SQUALL, inside, network
from hosts import captured
from tools import Failed, run, same, wait_idle

HOSTS = 5
SERVER = pathlib.Path(__file__).with_name("pppoe_server.py")


def report_of(folder, namespace, name, text):
    """Run a profile in a namespace; return the groups by name."""
    profile, report = folder / f"{name}.toml", folder / f"{name}.json"
    profile.write_text(text)
    argv = inside(namespace, SQUALL, "run", profile, "-q", "--json", report)
    process = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)

    def groups():
        error = process.communicate(timeout=120)[1]
        if not report.exists():
            raise Failed(f"{name}: {error}")
        return {group["name"]: group for group in json.loads(report.read_text())["hosts"]}

    return groups


def pppoe(folder, method):
    """The sessions at both ends are the same, and each host pings through its session."""
    argv = inside(REMOTE, sys.executable, SERVER, "vb", method, "secret{}")
    server = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    same("the server", server.stdout.readline().strip(), "ready")
    text = f"""
        [ports]
        A = "af_packet:va"

        [[host]]
        name = "good"
        count = {HOSTS}
        pppoe = "any"
        identity = "user{{}}"
        password = "secret{{}}"
        ppp_dns = true
        ppp_echo = "200 ms"
        ping = "gateway"
        ping_rate = 10
        join = "239.9.0.1-239.9.0.3"
        release = true

        [[host]]
        name = "bad"
        pppoe = "{method}"
        identity = "user1"
        password = "wrong"
        restarts = 0
    """
    try:
        with captured(folder / f"{method}.pcap", "ether proto 0x8863 or ether proto 0x8864"):
            groups = report_of(folder, LOCAL, method, text)()
        # Until it has counted the last frames.
        wait_idle(server)
    finally:
        server.terminate()
    seen = json.loads(server.communicate(timeout=10)[0].splitlines()[-1])
    counts = seen["counts"]
    good, bad = groups["good"], groups["bad"]
    same("with an address", (good["bound"], good["failed"]), (HOSTS, {}))
    same("refused", bad["failed"], {"auth_rejected": 1})
    same("accepted and refused", (counts["accepted"], counts["rejected"]), (HOSTS, 1))
    same("pings", (counts["pings"], good["echo"]["received"]), (3 * HOSTS, 3 * HOSTS))
    sessions = good["pppoe"]
    same("ends", (sessions["ended"], counts["padt"]), ({"closed": HOSTS}, HOSTS + 1))
    same("sessions that are left", seen["open"], [])
    groups = [f"239.9.0.{number}" for number in (1, 2, 3)]
    hosts = sorted({host for host, _ in seen["joined"]})
    same("hosts with memberships", len(hosts), HOSTS)
    members = [[host, group] for host in hosts for group in groups]
    same("memberships", (seen["joined"], seen["members"]), (members, []))
    joined = good["multicast"]["joined"], good["multicast"]["left"]
    same("memberships of the report", joined, (len(members), len(members)))
    same("name servers", sessions["name_servers"], ["10.78.0.53", "10.78.0.54"])
    replies = sessions["received"].get("echo_reply", 0)
    if not 0 < replies <= counts["echo"]:
        raise Failed(f"{replies} replies of {counts['echo']} to echo requests of LCP")
    same("ignored", sessions["ignored"], {})
    for name in ["wrong_cookie", "wrong_session", "wrong_source", "wrong_report"]:
        same(name, counts.get(name, 0), 0)


def aggregate(folder):
    """Two ports distribute to each other, as tshark reads their PDUs."""
    text = """
        duration = "8 s"
        [ports]
        A = "af_packet:{port}"
        [[host]]
        name = "{port}"
        ipv4 = "none"
        lacp = "active"
        lacp_key = {key}
        mac = "02:00:00:00:00:0{key}"
    """
    frames = folder / "lacp.pcap"
    with captured(frames, "ether proto 0x8809"):
        runs = [
            report_of(folder, namespace, port, text.format(port=port, key=key))
            for namespace, port, key in [(LOCAL, "va", 1), (REMOTE, "vb", 2)]
        ]
        groups = {name: group["lacp"] for one in runs for name, group in one().items()}
    for name, key in [("va", 2), ("vb", 1)]:
        lacp = groups[name]
        same("links", (lacp["up"], lacp["partner"]["key"]), (1, key))
        same("system", lacp["partner"]["system"], f"02:00:00:00:00:0{key}")
        same("ignored", lacp["ignored"], {})
    fields = ["-T", "fields", "-e", "lacp.actor.key", "-e", "lacp.actor.state", "-e", "frame.len"]
    rows = run("tshark", "-r", frames, "-Y", "lacp", *fields).stdout.splitlines()
    rows = [row.split("\t") for row in rows]
    same("length", {row[2] for row in rows}, {"124"})
    # Activity, short timeout, aggregation, synchronization, collecting and distributing. A capture
    # does not have the frames that Squall sends from the same interface.
    up = {int(row[0]) for row in rows if int(row[1], 0) == 0x3F}
    same("distributing ports", up, {1})


def main():
    if os.geteuid() != 0:
        print("SKIPPED: needs root for network namespaces")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        try:
            network()
            try:
                import scapy.layers.ppp  # noqa: F401
            except ImportError:
                print("SKIPPED: scapy is not installed")
            else:
                for method in ["pap", "chap"]:
                    pppoe(folder, method)
            aggregate(folder)
        finally:
            for namespace in [LOCAL, REMOTE]:
                subprocess.run(["ip", "netns", "del", namespace], check=False)
    print("sessions: those of the access concentrator, and an aggregate of two ports")


if __name__ == "__main__":
    main()

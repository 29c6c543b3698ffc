#!/usr/bin/env python3
"""Hosts of squall that authenticate, speak LLDP and CDP and join groups, against hostapd, lldpd and a Linux
bridge over a veth pair: hostapd accepts hosts with the password, lldpd's neighbors are the speakers, the
bridge's groups are the memberships, and tshark finds nothing malformed.

Needs root and ip; parts need hostapd, lldpd, tcpdump and tshark; $SQUALL is target/debug/squall unless
set.
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

from flows import LOCAL, REMOTE, SQUALL, V4, inside, network, wait
from hosts import captured, server
from tools import Failed, run, same


@contextlib.contextmanager
def running(folder, text, seconds=60):
    """Run a profile; the dictionary gets its groups at the end."""
    profile, report = folder / "profile.toml", folder / "report.json"
    profile.write_text(f'duration = "{seconds} s"\n[ports]\nA = "af_packet:va"\n{text}')
    report.unlink(missing_ok=True)
    argv = inside(LOCAL, SQUALL, "run", profile, "-q", "--json", report)
    process = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)
    groups = {}
    try:
        yield process, groups
    finally:
        process.terminate()
        process.wait(30)
    groups.update({group["name"]: group for group in json.loads(report.read_text())["hosts"]})


def authentication(folder, hostapd, environment):
    """Hosts with the password are authenticated, and only these send anything else."""
    users, config, log = folder / "users", folder / "hostapd.conf", folder / "hostapd.log"
    users.write_text("".join(f'"user{i + 1}" MD5 "secret{i + 1}"\n' for i in range(10)))
    config.write_text(
        "interface=vb\ndriver=wired\nieee8021x=1\neapol_version=2\neap_server=1\n"
        f"eap_user_file={users}\nlogger_stdout=-1\nlogger_stdout_level=1\n"
    )
    text = """
        [[host]]
        name = "good"
        count = 10
        ipv4 = "10.77.8.1/16"
        auth = "md5"
        identity = "user{}"
        password = "secret{}"
        release = true

        [[host]]
        name = "bad"
        count = 2
        auth = "md5"
        identity = "user{}"
        password = "wrong"
        auth_tries = 1
    """
    frames = folder / "dot1x.pcap"
    # Hostapd's output to a file is buffered otherwise.
    argv = ["stdbuf", "-oL", hostapd, config]
    started = server(argv, log, lambda: "AP-ENABLED" in log.read_text(), env=environment)
    with started, captured(frames, "ether[6:2] = 0x0253"):
        with running(folder, text) as (process, groups):

            def accepted():
                return len(re.findall("CTRL-EVENT-EAP-SUCCESS", log.read_text()))

            wait(
                "hostapd accepts the hosts", lambda: process.poll() is not None or accepted() >= 10
            )
            refused = "CTRL-EVENT-EAP-FAILURE"
            wait(
                "hostapd refuses the others", lambda: len(re.findall(refused, log.read_text())) >= 2
            )
        same("accepted by hostapd", accepted(), groups["good"]["auth"]["authenticated"])
    same("authenticated", groups["good"]["auth"]["authenticated"], 10)
    same("logged off", groups["good"]["auth"]["sent"]["logoff"], 10)
    same("with an address", groups["good"]["bound"], 10)
    same("refused", groups["bad"]["failed"], {"rejected": 2})
    other = "eth.src[0:3] == 02:53:01 and not eapol"
    same("other frames of refused hosts", run("tshark", "-r", frames, "-Y", other).stdout, "")


def neighbor_discovery(folder, lldpd, environment):
    """Lldpd lists the speakers until they end, and the report has lldpd."""
    passwd, group, log = folder / "passwd", folder / "group", folder / "lldpd.log"
    # Lldpd gives up its rights to a user that its package makes.
    user = "_lldpd:x:64999:64999::/run/lldpd:/usr/sbin/nologin\n"
    passwd.write_text(pathlib.Path("/etc/passwd").read_text() + user)
    group.write_text(pathlib.Path("/etc/group").read_text() + "_lldpd:x:64999:\n")
    client = pathlib.Path(lldpd).with_name("lldpcli")
    script = f"""
        mount --bind {passwd} /etc/passwd && mount --bind {group} /etc/group &&
        mount -t tmpfs none /run && mkdir -p /run/lldpd &&
        exec {lldpd} -d -c -H 0 -I vb -L {client} -u {folder}/lldpd.sock
    """

    def ask(*what):
        argv = [client, "-u", f"{folder}/lldpd.sock", "-f", "json", *what]
        return json.loads(run(*argv, env=environment, ok=(0, 1)).stdout or "{}")

    def names():
        found = ask("show", "neighbors").get("lldp", {}).get("interface", [])
        entries = found if isinstance(found, list) else [found]
        return {name for entry in entries for of in entry.values() for name in of["chassis"]}

    text = """
        [[host]]
        name = "speakers"
        count = 5
        ipv4 = "none"
        lldp = "30 s"
        lldp_name = "squall-{}"

        [[host]]
        name = "phones"
        count = 3
        ipv4 = "10.77.8.1/16"
        cdp = "1 s"
        cdp_hold = "3 s"
        cdp_name = "phone-{}"
    """
    both = "ether proto 0x88cc or ether dst 01:00:0c:cc:cc:cc"
    argv = ["unshare", "-m", "--propagation", "private", "sh", "-c", script]
    started = server(argv, log, lambda: "libevent" in log.read_text(), env=environment)
    with started, captured(folder / "lldp.pcap", both):
        ask("resume")
        ask("configure", "lldp", "tx-interval", "1")
        with running(folder, text) as (process, groups):
            expected = {f"squall-{i + 1}" for i in range(5)}
            expected |= {f"phone-{i + 1}" for i in range(3)}
            wait(
                "lldpd has the speakers", lambda: process.poll() is not None or names() == expected
            )
            time.sleep(1.5)
        wait("lldpd forgets them", lambda: not names())
    lldp = groups["speakers"]["lldp"]
    same("announcements of the end", lldp["shutdowns"], 5)
    same("neighbors of the speakers", len(lldp["neighbors"]), 1)
    cdp = groups["phones"]["cdp"]
    same("last announcements by CDP", cdp["shutdowns"], 3)
    same("neighbors by CDP", len(cdp["neighbors"]), 1)
    wrong = "cdp.checksum.status == 0"
    same("checksums", run("tshark", "-r", folder / "lldp.pcap", "-Y", wrong).stdout, "")


def snooping(folder):
    """The bridge's groups are the memberships, and it forwards these groups alone."""
    v4, v6, members = 20, 5, 3
    timers = (
        "mcast_startup_query_interval 100 mcast_query_interval 300 mcast_query_response_interval 50"
    )
    # The bridge floods unknown groups for a response time after it has become a querier, so its timers
    # are set before.
    for command in [
        f"link add br0 type bridge mcast_igmp_version 3 mcast_mld_version 2 {timers}",
        "link set br0 type bridge mcast_snooping 1 mcast_querier 1",
        "addr flush dev vb",
        "link set vb master br0",
        f"addr add {V4}/16 dev br0",
        "link set br0 up",
    ]:
        run("ip", "-n", REMOTE, *command.split())
    text = f"""
        [[host]]
        name = "v4"
        count = {members}
        ipv4 = "10.77.9.1/16"
        join = "239.9.0.1-239.9.0.{v4}"
        join_rate = 500
        release = true

        [[host]]
        name = "v6"
        ipv4 = "none"
        join = "ff3e::1-ff3e::{v6}"
        release = true
    """
    expected = {f"239.9.0.{i + 1}" for i in range(v4)} | {f"ff3e::{i + 1}" for i in range(v6)}

    def groups_of_bridge():
        rows = json.loads(
            run("bridge", "-n", REMOTE, "-j", "mdb", "show", "dev", "br0").stdout or "[]"
        )
        entries = [entry for row in rows for entry in row["mdb"] if entry["port"] == "vb"]
        return {entry["grp"] for entry in entries if entry["grp"].startswith(("239.9.", "ff3e:"))}

    send = "import socket; s = socket.socket(2, 2)\n"
    send += f"s.setsockopt(0, 32, socket.inet_aton('{V4}'))\n"
    targets = [f"239.9.0.{i + 1}" for i in range(v4)] + ["239.9.9.9"]
    send += f"for group in {targets}: s.sendto(b'?', (group, 9))"
    queries = "igmp or icmp6"
    with captured(folder / "groups.pcap", queries):
        with running(folder, text) as (process, groups):
            done = process.poll
            wait(
                "the bridge has the groups",
                lambda: done() is not None or groups_of_bridge() == expected,
            )
            # Answers to a general query of the bridge.
            time.sleep(4)
            same("groups of the bridge", groups_of_bridge(), expected)
            run(*inside(REMOTE, sys.executable, "-c", send))
            time.sleep(0.3)
        wait("the bridge forgets the groups", lambda: not groups_of_bridge())
    one, other = groups["v4"]["multicast"], groups["v6"]["multicast"]
    same("memberships", (one["joined"], one["left"]), (v4 * members, v4 * members))
    same("groups with a frame", (one["groups_received"], one["frames"]), (v4, v4))
    same("frames of other groups", one["unexpected"], 0)
    for of in [one, other]:
        if of["received"].get("general_query", 0) < 1 or of["sent"].get("v3_report", 0) < 2:
            raise Failed(f"{of}: no general query of the bridge, or no answer")
    same("ignored", (one["ignored"], other["ignored"]), ({}, {}))


def unpacked(name):
    """A server that is installed or unpacked, and the environment for its libraries."""
    found = shutil.which(name)
    if found is None:
        return None, {}
    libraries = pathlib.Path(found).parents[1].glob("lib/*-linux-gnu")
    return found, {"LD_LIBRARY_PATH": ":".join(map(str, libraries))}


def main():
    if os.geteuid() != 0:
        print("SKIPPED: needs root for network namespaces")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        try:
            network()
            for program, test in [("hostapd", authentication), ("lldpd", neighbor_discovery)]:
                binary, environment = unpacked(program)
                if binary is None:
                    print(f"SKIPPED: {program} is not installed (scripts/setup system)")
                else:
                    test(folder, binary, environment)
            snooping(folder)
        finally:
            for namespace in [LOCAL, REMOTE]:
                subprocess.run(["ip", "netns", "del", namespace], check=False)
    print("hosts: users, neighbors and groups as the peers have them")


if __name__ == "__main__":
    try:
        main()
    except Failed as error:
        print(f"FAILED: {error}")
        sys.exit(1)

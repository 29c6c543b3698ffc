#!/usr/bin/env python3
"""squall replay against the kernel, tcpdump and tcpreplay, in a private namespace: the received
frames are the capture, octet for octet, in order, on one and on two ports; the counters of the
interface match the report and the request, with any combination of options; tcpreplay's figures for
the same capture are the same. Needs root.
"""

import json
import os
import pathlib
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time

from tools import Failed, run, same

SQUALL = os.environ.get("SQUALL", "target/debug/squall")
NAMESPACE = f"sq-replay-{os.getpid()}"
PEER = f"{NAMESPACE}-peer"


def inside(namespace, *argv):
    return ["ip", "netns", "exec", namespace, *[str(a) for a in argv]]


def network():
    for namespace in [NAMESPACE, PEER]:
        run("ip", "netns", "add", namespace)
        run(*inside(namespace, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1"))
    for a, b in [("va", "vb"), ("vc", "vd")]:
        run(
            "ip",
            "link",
            "add",
            a,
            "netns",
            NAMESPACE,
            "type",
            "veth",
            "peer",
            "name",
            b,
            "netns",
            PEER,
        )
        run("ip", "-n", NAMESPACE, "link", "set", a, "up")
        run("ip", "-n", PEER, "link", "set", b, "up")
        # Without GRO, a veth accepts no frames from xdp_live.
        run(*inside(PEER, "ethtool", "-K", b, "gro", "on"))


def packets(path):
    """Yield (nanoseconds, octets) for each packet of a little-endian pcap."""
    data = path.read_bytes()
    unit = {b"\xd4\xc3\xb2\xa1": 1000, b"\x4d\x3c\xb2\xa1": 1}[data[:4]]
    at, found = 24, []
    while at + 16 <= len(data):
        seconds, fraction, length, _ = struct.unpack_from("<IIII", data, at)
        found.append((seconds * 10**9 + fraction * unit, data[at + 16 : at + 16 + length]))
        at += 16 + length
    return found


class Watched:
    """tcpdump on interfaces of the peer, running inside a with block."""

    def __init__(self, folder, *links):
        self.files = [folder / f"{link}.pcap" for link in links]
        self.links = links

    def __enter__(self):
        self.dumps = []
        for link, file in zip(self.links, self.files):
            file.unlink(missing_ok=True)
            argv = inside(
                PEER,
                "tcpdump",
                "-Z",
                "root",
                "-B",
                "32768",
                "-U",
                "-n",
                "-i",
                link,
                "--nano",
                "-w",
                file,
            )
            self.dumps.append(subprocess.Popen(argv, stderr=subprocess.PIPE, text=True))
        for dump in self.dumps:
            while "listening" not in (line := dump.stderr.readline()):
                same("tcpdump runs", line != "", True)
        return self

    def wait(self, count):
        """Wait until `count` packets are written: tcpdump loses the packets in its ring when it is
        stopped."""
        until = time.monotonic() + 30
        while sum(len(packets(file)) for file in self.files if file.stat().st_size) < count:
            if time.monotonic() > until:
                return
            time.sleep(0.1)

    def __exit__(self, *_):
        for dump in self.dumps:
            dump.send_signal(signal.SIGINT)
            reported = dump.communicate(timeout=30)[1]
            same("tcpdump lost", re.search(r"(\d+) packets dropped by kernel", reported)[1], "0")

    def packets(self):
        return [packets(file) for file in self.files]


def replay(folder, capture, *argv, ok=(0,)):
    report = folder / "report.json"
    run(*inside(NAMESPACE, SQUALL, "replay", capture, "-q", "--json", report, *argv), ok=ok)
    return json.loads(report.read_text())


def make(folder):
    """Make 2,000 frames of many lengths, 200 us apart, from 200 flows in both directions."""
    parts = []
    for i, (src, dst, more) in enumerate(
        [
            ("10.1.0.0", "10.2.0.1", "udp.sport=increment:1024-1123"),
            ("10.2.0.1", "10.1.0.0", "udp.dport=increment:1024-1123"),
        ]
    ):
        field, port = ("ipv4.src", "dport=53") if i == 0 else ("ipv4.dst", "sport=53")
        part = folder / f"part{i}.pcap"
        packet = f"eth(dst=02:00:00:00:00:0{i + 1})/ipv4(src={src},dst={dst})/udp({port})"
        vary = ["--vary", more, "--vary", f"{field}=increment:10.1.0.1-10.1.0.100"]
        argv = [
            "--packet",
            packet,
            *vary,
            "--size",
            "64-1400",
            "--rate",
            "5kpps",
            "--count",
            "1000",
            "-q",
        ]
        run(SQUALL, "send", "--port", f"pcap:{part}", *argv)
        parts.append(part)
    capture = folder / "in.pcap"
    run(SQUALL, "replay", *parts, "--merge", "-i", f"pcap:{capture}", "-q")
    same("packets made", len(packets(capture)), 2000)
    return capture


def arrives(folder, capture):
    """Check that frames arrive unchanged and in order: on one port, and on two in the order of the
    capture.
    """
    expected = [octets for _, octets in packets(capture)]
    for port in ["af_packet:va", "af_xdp:va", "xdp_live:va"]:
        for more in [["-t"], ["-t", "-K", "-l", "3"], ["-p", "20000"], ["-M", "50"], ["-x", "2"]]:
            with Watched(folder, "vb") as watched:
                report = replay(folder, capture, "-i", port, *more)
                loops = 3 if "-l" in more else 1
                watched.wait(2000 * loops)
            what = f"{port} {' '.join(more)}"
            same(
                f"{what}: frames",
                [octets for _, octets in watched.packets()[0]] == expected * loops,
                True,
            )
            tx = report["ports"][0]
            same(
                f"{what}: successful", report["replays"][0]["ports"][0]["successful"], 2000 * loops
            )
            same(f"{what}: interface", tx["interface"]["tx_packets"], 2000 * loops)
    for kind, more in [
        (kind, more) for kind in ["af_packet", "xdp_live"] for more in [["-t"], ["-p", "20000"]]
    ]:
        with Watched(folder, "vb", "vd") as watched:
            replay(
                folder,
                capture,
                "-i",
                f"{kind}:va",
                "-I",
                f"{kind}:vc",
                "--cidr",
                "10.1.0.0/16",
                *more,
            )
            watched.wait(2000)
        clients, servers = watched.packets()
        by_address = [
            [o for o in expected if o[26:28] == net] for net in (b"\x0a\x01", b"\x0a\x02")
        ]
        same("clients", [o for _, o in clients] == by_address[0], True)
        same("servers", [o for _, o in servers] == by_address[1], True)
        both = [octets for _, octets in sorted([*clients, *servers], key=lambda packet: packet[0])]
        same(f"two ports {kind} {' '.join(more)}: order", both == expected, True)
    print("what arrives is the capture, in order, on one port and on two")


# Keys in which a source reports frames that were not sent when due.
LATE_KEYS = ["lag_s", "moved_s", "unread_s", "starved_s", "not_sent"]


def exact(folder, capture):
    """Check that no option cancels the rate of another: within a second, the exact number of frames
    or octets (to the frame) leaves.
    """
    ways = [
        [],
        ["-K"],
        ["--unique-ip"],
        ["-K", "--unique-ip"],
        ["-I", "af_packet:vc"],
        ["-I", "af_packet:vc", "-K", "--unique-ip"],
    ]
    ways = [("af_packet:va", way) for way in ways]
    for option, value in [("-p", "1"), ("-p", "5000"), ("-M", "1"), ("-M", "30")]:
        live = [("xdp_live:va", ["-K", "--unique-ip"])] if value in ("5000", "30") else []
        for port, way in ways + live:
            what = f"{port} {option} {value} {' '.join(way)}"
            # Exact to the frame, except for frames that a stall of the machine has delayed, which
            # are reported: a run of one second cannot make up for all of them.
            for _ in range(5):
                report = replay(
                    folder, capture, "-i", port, "-l", "0", "--duration", "1", option, value, *way
                )
                interfaces = [port["interface"] for port in report["ports"]]
                packets, octets = (
                    sum(i[name] for i in interfaces) for name in ("tx_packets", "tx_octets")
                )
                # With an octet limit, the frame in which the limit is reached is sent completely.
                asked = int(value) if option == "-p" else float(value) * 1e6 / 8
                sent, most = (packets, asked) if option == "-p" else (octets, asked + 1499)
                if asked <= sent <= most:
                    break
                # Frames not read by the end are not counted; only the time spent waiting for them
                # is.
                lag = max(s["lag_s"] + s["unread_s"] for s in report["sources"])
                missing = sum(sum(source["not_sent"].values()) for source in report["sources"])
                each = 1 if option == "-p" else 1518
                least = asked * (1 - lag) - (missing + 2) * each
                late = [{name: s[name] for name in LATE_KEYS} for s in report["sources"]]
                same(f"{what}: {sent} of {asked}, {late}", least <= sent <= most, True)
            same(f"{what}: counters agree", "counters-differ" in str(report["verdict"]), False)
    print("rates: as asked to the frame, in every way of reading and sending")


def as_tcpreplay(folder, capture):
    """Check that the output has the same numbers as that of tcpreplay, in the same lines."""
    with Watched(folder, "vb") as by_tcpreplay:
        reported = run(*inside(NAMESPACE, "tcpreplay", "-i", "va", "-t", "-K", capture)).stdout
        by_tcpreplay.wait(2000)
    with Watched(folder, "vb") as by_squall:
        late = run(
            *inside(NAMESPACE, SQUALL, "replay", capture, "-i", "af_packet:va", "-t", "-K")
        ).stdout
        by_squall.wait(2000)
    same(
        "frames",
        [o for _, o in by_squall.packets()[0]] == [o for _, o in by_tcpreplay.packets()[0]],
        True,
    )
    lines = [
        r"Actual: (\d+) packets \((\d+) bytes\)",
        r"Flows: (\d+) flows",
        r"Successful packets: +(\d+)",
        r"Failed packets: +(\d+)",
    ]
    for line in [*lines, r"Truncated packets: +(\d+)"]:
        same(line, re.search(line, late).groups(), re.search(line, reported).groups())
    order = [
        re.match(r"\s*(Actual|Rated|Flows|Statistics|Successful|Failed|Truncated|Retried)", line)
        for line in late.splitlines()
    ]
    names = [found[1] for found in order if found]
    same(
        "order of lines",
        names,
        ["Actual", "Rated", "Flows", "Statistics", "Successful", "Failed", "Truncated", "Retried"],
    )
    print("tcpreplay says the same of the same capture")


def ends(folder, capture):
    """Check that Ctrl-C ends a replay with a report, and that a damaged capture is sent up to the
    damage."""
    report = folder / "stopped.json"
    # Frames that a port holds until they are due do not leave after Ctrl-C.
    for port, speed in [
        ("af_packet:va", ["-p", "1000"]),
        ("xdp_live:va", ["-p", "1000"]),
        ("xdp_live:va", ["-t", "-K"]),
    ]:
        argv = inside(
            NAMESPACE, SQUALL, "replay", capture, "-i", port, *speed, "-l", "0", "--json", report
        )
        sender = subprocess.Popen(
            argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        while "pps" not in (line := sender.stderr.readline()):
            same("it runs", line != "", True)
        sender.send_signal(signal.SIGINT)
        same("exit status", sender.wait(timeout=30), 0)
        reported = json.loads(report.read_text())
        same(
            f"{port} {speed}: counted",
            reported["replays"][0]["packets"],
            reported["ports"][0]["interface"]["tx_packets"],
        )
        same("something was sent", reported["replays"][0]["packets"] > 0, True)
    damaged = folder / "damaged.pcap"
    damaged.write_bytes(capture.read_bytes()[:-7])
    reported = replay(folder, damaged, "-i", "af_packet:va", "-t", ok=(2,))
    same("before the damage", reported["ports"][0]["interface"]["tx_packets"], 1999)
    same("the damage is reported", "after packet 1999" in reported["replays"][0]["fault"], True)
    print("a replay that is stopped, or whose capture is damaged, reports what it has sent")


def main():
    if os.geteuid() != 0:
        print("SKIPPED: squall replay against tcpreplay: needs root")
        return 0
    # Each CPU delivers veth's frames on its own, so on a busy machine one may overtake another.
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    try:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            network()
            capture = make(folder)
            arrives(folder, capture)
            exact(folder, capture)
            as_tcpreplay(folder, capture)
            ends(folder, capture)
    except Failed as failed:
        print(f"replay.py: {failed}", file=sys.stderr)
        return 1
    finally:
        for namespace in [NAMESPACE, PEER]:
            subprocess.run(["ip", "netns", "del", namespace], check=False, capture_output=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

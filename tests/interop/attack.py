#!/usr/bin/env python3
"""squall attack over a real network. For every rule, the payloads of both ends over a veth pair,
sent by Squall's TCP and UDP and as prepared frames, match those in the capture of the same attacks.
The same holds next to a hundred times as much other traffic, none of which is lost. A device that
blocks the attacks of one rule is reported by sid. tshark finds no wrong checksum and, unless a rule
asks for it, no malformed packet.

Needs root, tcpdump and tshark; $SQUALL is target/debug/squall unless set.
"""

import collections
import csv
import ipaddress
import json
import os
import pathlib
import select
import socket
import struct
import subprocess
import sys
import tempfile

from tools import Failed, run, same, wait_idle

ROOT = pathlib.Path(__file__).resolve().parents[2]
SQUALL = os.environ.get("SQUALL", str(ROOT / "target/debug/squall"))
RULES = ROOT / "crates/squall-attacks/tests/rules"
EXAMPLES = ROOT / "examples/rules/web.rules"
NAMESPACE = f"sq-attack-{os.getpid()}"


def inside(*argv):
    return ["ip", "netns", "exec", NAMESPACE, *[str(word) for word in argv]]


def network():
    run("ip", "netns", "add", NAMESPACE)
    run(*inside("sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1"))
    for pair in [("va", "ba"), ("vb", "bb"), ("vc", "vd")]:
        run("ip", "-n", NAMESPACE, "link", "add", pair[0], "type", "veth", "peer", "name", pair[1])
    # The device in the middle: a bridge that filters.
    run("ip", "-n", NAMESPACE, "link", "add", "name", "br0", "type", "bridge")
    for name in ["ba", "bb"]:
        run("ip", "-n", NAMESPACE, "link", "set", name, "master", "br0")
    for name in ["va", "ba", "vb", "bb", "vc", "vd", "br0"]:
        run("ip", "-n", NAMESPACE, "link", "set", name, "up")


def packets(path):
    """Yield the frames of a pcap with timestamps in nanoseconds or microseconds."""
    octets = path.read_bytes()
    at = 24
    order = "<" if octets[:4] in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1") else ">"
    while at + 16 <= len(octets):
        _, _, length, _ = struct.unpack_from(f"{order}IIII", octets, at)
        yield octets[at + 16 : at + 16 + length]
        at += 16 + length


def payloads_by_flow(path):
    """Return the payloads of each end, by flow: TCP reassembled by sequence numbers, UDP as
    datagrams, other protocols as packets."""
    streams = collections.defaultdict(dict)
    first = {}
    others = collections.defaultdict(list)
    for frame in packets(path):
        if len(frame) < 34 or frame[12:14] != b"\x08\x00":
            continue
        header = (frame[14] & 15) * 4
        length = struct.unpack_from("!H", frame, 16)[0]
        packet = frame[14 : 14 + length]
        fragment = struct.unpack_from("!H", packet, 6)[0] & 0x3FFF
        ends = (ipaddress.ip_address(packet[12:16]), ipaddress.ip_address(packet[16:20]))
        payload = packet[header:]
        if packet[9] == 6 and not fragment and len(payload) >= 20:
            ports = struct.unpack_from("!HH", payload)
            sequence = struct.unpack_from("!I", payload, 4)[0]
            flags = payload[13]
            flow = (6, ends[0], ports[0], ends[1], ports[1])
            if flags & 2:
                first[flow] = sequence + 1
            data = payload[(payload[12] >> 4) * 4 :]
            if data and flow in first:
                streams[flow].setdefault((sequence - first[flow]) % 2**32, data)
            elif data or not flow[0]:
                others[flow].append(data)
        elif packet[9] == 17 and not fragment:
            flow = (
                17,
                ends[0],
                *struct.unpack_from("!H", payload, 0),
                ends[1],
                *struct.unpack_from("!H", payload, 2),
            )
            others[flow].append(payload[8:])
        else:
            others[(packet[9], *ends)].append(payload)
    whole = {}
    for flow, pieces in streams.items():
        stream = b""
        for offset in sorted(pieces):
            if offset <= len(stream) < offset + len(pieces[offset]):
                stream += pieces[offset][len(stream) - offset :]
        whole[flow] = stream
    return {**whole, **{flow: b"\0".join(all_of) for flow, all_of in others.items()}}


def labels(path):
    with open(path) as file:
        return list(csv.DictReader(file))


def ends(label):
    return tuple(ipaddress.ip_address(label[key]) for key in ("source", "destination"))


class Captured:
    """A capture of frames, of which `octets` are kept; 0: all."""

    def __init__(self, interface, path, octets=0):
        # In immediate mode each frame takes the room of the longest one. Whole frames can have
        # 64 KiB, so this buffer has room for 2048. A busy machine is late by hundreds.
        self.argv = inside(
            *["tcpdump", "-i", interface, "-w", path, "-s", octets],
            *["-B", "131072", "--immediate-mode"],
        )

    def __enter__(self):
        self.tcpdump = subprocess.Popen(
            self.argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        while "listening" not in self.tcpdump.stderr.readline():
            if self.tcpdump.poll() is not None:
                raise Failed("tcpdump does not start")
        return self

    def __exit__(self, *_):
        # Wait until tcpdump has read the frames that the kernel has captured.
        wait_idle(self.tcpdump)
        self.tcpdump.terminate()
        self.tcpdump.wait()


def attack(folder, *argv, rules=RULES):
    report = folder / "report.json"
    run(*inside(SQUALL, "attack", rules, *argv, "-q", "--json", report))
    return json.loads(report.read_text())


def same_payloads(folder, what, expected, *argv):
    """Send the same attacks over the veth pair, and check that the receiver's capture has the same
    payloads.
    """
    capture = folder / "live.pcap"
    # Captured on the bridge: a tap does not see frames that its own interface sends without a
    # qdisc.
    with Captured("ba", capture):
        report = attack(
            folder,
            "-i",
            "af_packet:va",
            "-I",
            "af_packet:vb",
            "--rate",
            500,
            "--labels",
            folder / "live.csv",
            *argv,
        )
    one = report["attacks"][0]
    same(f"{what}: left out", one["left_out"], {})
    same(
        f"{what}: labels",
        labels(folder / "live.csv")[0].keys(),
        labels(folder / "file.csv")[0].keys(),
    )
    same(
        f"{what}: attacks",
        one["attacks"],
        len({label["attack"] for label in labels(folder / "file.csv")}),
    )
    received = payloads_by_flow(capture)
    missing, other = [], []
    for flow, octets in expected.items():
        if flow not in received:
            missing.append(flow)
        elif received[flow] != octets:
            other.append((flow, octets[:80], received[flow][:80]))
    if missing or other:
        raise Failed(
            f"{what}: of {len(expected)} flows {len(missing)} missing {missing[:3]}, {len(other)} others {other[:3]}"
        )
    return report


def payloads(folder):
    report = attack(
        folder, "-i", f"pcap:{folder}/file.pcap", "--labels", folder / "file.csv", "--rate", 500
    )
    one = report["attacks"][0]
    if one["solved"] < 300:
        raise Failed(f"rules solved: {one['solved']}, expected 300 at least")
    expected = payloads_by_flow(folder / "file.pcap")
    report = same_payloads(folder, "live", expected)
    passage = report["attacks"][0]["passage"]
    same("live: passed", (passage["passed"], passage["blocked"]), (passage["conversations"], {}))
    same("live: octets", report["flows"]["conversations"]["octets_as_captured"], True)
    same_payloads(folder, "frames", expected, "--frames")
    return one["solved"]


def among_others(folder):
    """Send attacks among a hundred times as many other frames, and check that none is lost."""
    profile = folder / "scenario.toml"
    profile.write_text(f"""
duration = "5 s"
[ports]
A = "af_packet:va"
B = "af_packet:vb"
load = "af_packet:vc"
sink = "af_packet:vd"
[[attack]]
rules = {json.dumps(str(EXAMPLES))}
port = "A"
port2 = "B"
rate = 20
repeat = 9
shuffle = true
[[stream]]
name = "clean"
port = "load"
packet = "eth/ipv4(src=10.1.0.1,dst=10.2.0.1)/udp(sport=5000,dport=5001)"
size = 128
rate = "20 kpps"
latency = true
""")
    report, truth = folder / "report.json", folder / "truth.csv"
    run(*inside(SQUALL, "run", profile, "-q", "--json", report, "--labels", truth))
    report = json.loads(report.read_text())
    one, stream = report["attacks"][0], report["streams"][0]
    same(
        "among others: passed",
        (one["passage"]["passed"], one["passage"]["blocked"]),
        (one["passage"]["conversations"], {}),
    )
    same("among others: labels", len({label["attack"] for label in labels(truth)}), one["attacks"])
    same(
        "among others: clean load",
        (stream["rx"]["lost"], stream["rx"]["packets"]),
        (0, stream["tx_packets"]),
    )
    if stream["tx_packets"] < 20 * one["frames"]:
        raise Failed(f"among others: {stream['tx_packets']} frames beside {one['frames']}")


def on_one_pair(folder):
    """Send attacks, streams both ways, a capture and flows of three applications on the same two
    ports. Each is complete, the counters of ports and interfaces are the sum of all, and the
    attacks are in tcpdump's capture where their labels point."""
    profile, capture = folder / "mix.toml", folder / "mix.pcap"
    again = folder / "again.pcap"
    octets = "eth(src=02:00:00:00:0a:01,dst=02:00:00:00:0a:02)/ipv4(src=10.8.0.1,dst=10.8.1.1)/udp"
    run(
        SQUALL,
        "send",
        "-p",
        f"pcap:{again}",
        "--packet",
        octets,
        "--rate",
        "1 kpps",
        "--count",
        "1500",
        "-q",
    )
    flows = """
[flows]
clients = "A"
servers = "B"
max_delay = "60 s"
[[template]]
name = "web"
clients = "10.9.0.0/24"
servers = "10.9.1.1"
app = "http"
cps = 200
limit = 400
options = { body = "4 KiB" }
[[template]]
name = "names"
clients = "10.9.0.0/24"
servers = "10.9.1.2"
app = "dns"
cps = 100
limit = 200
[[template]]
name = "bulk"
clients = "10.9.0.0/24"
servers = "10.9.1.1"
listen = 81
app = "http"
cps = 10
limit = 20
options = { body = "200 KiB" }
[[replay]]
name = "again"
port = "A"
files = "again.pcap"
start = "500 ms"
"""
    stream = """
[[stream]]
name = "%s"
port = "%s"
packet = "eth(src=%s,dst=%s)/ipv4(src=10.9.0.1,dst=10.9.1.1)/udp(sport=5000,dport=80)"
size = 128
rate = "4 kpps"
mode = { burst = 8000 }
latency = true
"""
    # A bridge learns each of these addresses on its own side.
    stations = ["02:00:00:00:0a:01", "02:00:00:00:0a:02"]
    for live in [True, False]:
        profile.write_text(f"""
[ports]
A = "af_packet:va"
B = "af_packet:vb"
[[attack]]
rules = {json.dumps(str(EXAMPLES))}
port = "A"
port2 = "B"
rate = 30
live = {str(live).lower()}
{flows}
{stream % ("there", "A", *stations)}
{stream % ("back", "B", *reversed(stations))}
""")
        report, truth = folder / "report.json", folder / "truth.csv"
        # Only the addresses are read. There are 10,000 frames a second.
        with Captured("ba", capture, octets=96):
            argv = [SQUALL, "run", profile, "-q", "--json", report, "--labels", truth]
            run(*inside(*argv), ok=(0, 4))
        report = json.loads(report.read_text())
        what = "on one pair, " + ("live" if live else "frames")
        for stream_report in report["streams"]:
            same(f"{what}: {stream_report['name']}", stream_report["tx_packets"], 8000)
            same(f"{what}: {stream_report['name']}", stream_report["rx"]["packets"], 8000)
        one = report["attacks"][0]
        passage = one["passage"]
        same(
            f"{what}: passed",
            (passage["passed"], passage["blocked"]),
            (passage["conversations"], {}),
        )
        of = {one["name"]: one["client"] for one in report["flows"]["templates"]}
        for name, flows_of_it in [("web", 400), ("names", 200), ("bulk", 20)]:
            client = of[name]
            same(f"{what}: {name}", (client["completed"], client["failed"]), (flows_of_it, {}))
        same(f"{what}: 2xx", (of["web"]["http"]["2xx"], of["bulk"]["http"]["2xx"]), (400, 20))
        replays = {one["name"]: one["packets"] for one in report["replays"]}
        same(f"{what}: replayed", replays["again"], 1500)
        for source in report["sources"]:
            same(f"{what}: {source['name']}", source["sent"], source["asked"])
        for port in report["ports"]:
            interface = port["interface"]
            for way in ["tx", "rx"]:
                counters = port[way]
                # The kernel counts a GSO frame as one.
                whole = counters["packets"] - counters["segments"] + counters["gso_frames"]
                same(f"{what}: {port['name']} {way}", whole, interface[f"{way}_packets"])
        same(
            f"{what}: all counted",
            report["ports"][0]["tx"]["packets"] + report["ports"][1]["tx"]["packets"],
            report["ports"][0]["rx"]["packets"] + report["ports"][1]["rx"]["packets"],
        )
        seen = collections.Counter()
        for frame in packets(capture):
            if frame[12:14] == b"\x08\x00":
                seen[frozenset((frame[26:30], frame[30:34]))] += 1
        for label in labels(truth):
            hosts = frozenset(address.packed for address in ends(label))
            if seen[hosts] < 1:
                raise Failed(f"{what}: nothing in the capture between the hosts of {label}")
            if not live:
                same(f"{what}: frames of {label['sid']}", seen[hosts], int(label["frames"]))


def device():
    """Forward frames between ba and bb, except HTTP GET requests and frames that contain
    "kookaburras"."""
    sockets = {}
    for name in ["ba", "bb"]:
        sockets[name] = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        sockets[name].bind((name, 0))
    other = {sockets["ba"]: sockets["bb"], sockets["bb"]: sockets["ba"]}
    print("ready", flush=True)
    while True:
        for ready in select.select(list(other), [], [])[0]:
            frame, address = ready.recvfrom(65536)
            if (
                address[2] != socket.PACKET_OUTGOING
                and b"GET /" not in frame
                and b"kookaburra" not in frame
            ):
                other[ready].send(frame)


def blocked(folder):
    """Check the report when a device drops the attacks of some rules."""
    for name in ["ba", "bb"]:
        run("ip", "-n", NAMESPACE, "link", "set", name, "nomaster")
        run("ip", "-n", NAMESPACE, "link", "set", name, "promisc", "on")
    between = subprocess.Popen(
        inside(sys.executable, __file__, "device"), stdout=subprocess.PIPE, text=True
    )
    try:
        same("device", between.stdout.readline(), "ready\n")
        argv = ["-i", "af_packet:va", "-I", "af_packet:vb", "--rate", 50]
        report = attack(folder, *argv, "--near-miss", "also", rules=EXAMPLES)
        one_way(folder, argv)
    finally:
        between.kill()
        between.wait()
    passage = report["attacks"][0]["passage"]
    gets = {rule["sid"] for rule in passage["rules"] if rule["blocked"]}
    same("blocked: rules", gets, {9100001, 9100002, 9100003, 9100004})
    for rule in passage["rules"]:
        expected = (0, 1) if rule["sid"] in gets else (1, 0)
        same(f"blocked: {rule['sid']} {rule['msg']}", (rule["passed"], rule["blocked"]), expected)


def one_way(folder, argv):
    """Check attacks without answers: their sender cannot know whether they arrived, so the receiver
    decides.
    """
    rules = folder / "one-way.rules"
    rules.write_text("""
alert udp any any -> any 111 (msg:"dropped"; content:"kookaburra"; sid:1; rev:1;)
alert udp any any -> any 112 (msg:"handed on"; content:"lyrebird"; sid:2; rev:1;)
alert icmp any any -> any any (msg:"dropped"; itype:8; content:"kookaburra"; sid:3; rev:1;)
alert icmp any any -> any any (msg:"handed on"; itype:8; content:"lyrebird"; sid:4; rev:1;)
""")
    for how in [[], ["--frames"]]:
        report = attack(folder, *argv, *how, "--repeat", 3, rules=rules)
        passage = report["attacks"][0]["passage"]
        found = {rule["sid"]: (rule["passed"], rule["blocked"]) for rule in passage["rules"]}
        same(f"one way {how}", found, {1: (0, 3), 2: (3, 0), 3: (0, 3), 4: (3, 0)})
        same(f"one way {how}: why", passage["blocked"], {"not_received": 6})


def well_formed(folder):
    """Check that tshark finds no error in the examples' attacks, none of which asks for a malformed
    packet."""
    capture = folder / "examples.pcap"
    run(
        SQUALL,
        "attack",
        EXAMPLES,
        "-i",
        f"pcap:{capture}",
        "-q",
        "--near-miss",
        "also",
        "--labels",
        folder / "e.csv",
    )
    checks = [
        word for name in ("ip", "tcp", "udp") for word in ("-o", f"{name}.check_checksum:TRUE")
    ]
    wrong = "_ws.malformed || ip.checksum.status == 0 || tcp.checksum.status == 0 || udp.checksum.status == 0"
    same("tshark", run("tshark", "-r", capture, *checks, "-Y", wrong).stdout, "")


def main():
    if sys.argv[1:] == ["device"]:
        device()
    if os.geteuid() != 0:
        print("SKIPPED: needs root for a network namespace (as nobody)")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        try:
            network()
            solved = payloads(folder)
            among_others(folder)
            on_one_pair(folder)
            blocked(folder)
            well_formed(folder)
        finally:
            subprocess.run(["ip", "netns", "delete", NAMESPACE], capture_output=True)
    print(
        f"attack: {solved} rules over a veth pair as in their capture, live and as frames; among others; through a device"
    )
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as failed:
        print(f"attack: {failed}")
        sys.exit(1)

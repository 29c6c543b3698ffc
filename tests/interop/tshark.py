#!/usr/bin/env python3
"""tshark's findings in the golden captures: no malformed frame, no wrong checksum, no expert error,
except those that a profile makes on purpose. Needs only tshark.
"""

import collections
import pathlib
import shutil
import subprocess
import sys

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden"

OPTIONS = [
    "-n",
    "-o",
    "ip.check_checksum:TRUE",
    "-o",
    "udp.check_checksum:TRUE",
    "-o",
    "tcp.check_checksum:TRUE",
]
# Show fragments instead of reassembling them.
OPTIONS += ["-o", "ip.defragment:FALSE", "-o", "ipv6.defragment:FALSE"]
# An MPLS header does not show that Ethernet follows, so the labels of tunnels.toml are listed.
OPTIONS += ["-d", "mpls.label==100-101,pwethnocw"]

LAYERS = ("ip", "udp", "tcp", "icmp", "icmpv6", "igmp", "gre")
BAD = "0"  # status of a checksum; 1 is good, 2 unverified, 3 not present

# Severity from which an expert item is an error; those below are notes (a SYN, a retransmission)
# and warnings.
ERROR = 8388608

# Deliberate errors: frame -> a part of each of tshark's messages about it.
DELIBERATE = {
    "wrong": {
        1: {"ip checksum", "Bad checksum"},
        2: {"udp checksum", "Bad checksum"},
        3: {"tcp checksum", "Bad checksum"},
        4: {"icmp checksum"},
        5: {"icmpv6 checksum"},
        6: {"igmp checksum", "Bad checksum"},
        7: {"IPv4 total length exceeds packet length"},
        8: {"Bad length value 2000 > IP payload length", "Malformed Packet"},
        9: {"Bad length value 7 < 8"},
        10: {"Bogus IP header length"},
        11: {"IPv4 total length exceeds packet length", "Malformed Packet"},
        14: {"Bogus IPv6 version"},
        15: {"udp checksum", "Bad checksum"},
        16: {"udp checksum", "Bad checksum"},
        17: {"udp checksum", "Bad checksum"},
    }
}

# Layers that tshark must have verified as good: a change of its options must not silently disable
# the check.
VERIFIED = {
    "headers-ipv4": {"ip", "udp", "tcp", "icmp", "igmp"},
    "headers-ipv6": {"udp", "tcp", "icmpv6"},
    "tunnels": {"ip", "udp", "tcp", "icmp", "gre"},
    "fields": {"ip", "udp", "tcp"},
    "latency": {"ip", "udp", "tcp"},
}


def remarks(capture):
    """Return tshark's findings, as frame -> messages; and the layers with correct checksums, with
    counts."""
    fields = ["frame.number", "_ws.expert.severity", "_ws.expert.message"] + [
        f"{x}.checksum.status" for x in LAYERS
    ]
    command = [
        "tshark",
        *OPTIONS,
        "-r",
        str(capture),
        "-T",
        "fields",
        "-E",
        "separator=/t",
        "-E",
        "aggregator=;",
    ]
    for field in fields:
        command += ["-e", field]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"tshark: {done.stderr}")
    found, good = collections.defaultdict(set), collections.Counter()
    for line in done.stdout.splitlines():
        number, severities, messages, *statuses = line.split("\t")
        severities = [int(s) for s in severities.split(";") if s]
        messages = messages.split(";")
        if len(messages) != len(severities):  # a message with a semicolon in it
            messages = [" ".join(messages)] * len(severities)
        for severity, message in zip(severities, messages):
            if severity >= ERROR or "alformed" in message:
                found[int(number)].add(message)
        for layer, status in zip(LAYERS, statuses):
            values = status.split(";")
            good[layer] += values.count("1")
            if BAD in values:
                found[int(number)].add(f"{layer} checksum")
    return found, good


def faults(capture):
    """Return lines about differences between tshark's findings and the expected ones."""
    found, good = remarks(capture)
    name = capture.stem
    expected = DELIBERATE.get(name, {})
    for frame in sorted(found.keys() | expected.keys()):
        found_remarks, wanted = found.get(frame, set()), expected.get(frame, set())
        for remark in sorted(found_remarks):
            if not any(part in remark for part in wanted):
                yield f"frame {frame}: {remark}"
        for part in sorted(wanted):
            if not any(part in remark for remark in found_remarks):
                yield f"frame {frame}: {part!r} was expected, and is not said"
    for layer in sorted(VERIFIED.get(name, set())):
        if good[layer] == 0:
            yield f"no {layer} checksum was looked at"


def main():
    if shutil.which("tshark") is None:
        print("SKIPPED: tshark is not installed (apt-get install tshark)")
        return 0
    captures = sorted(GOLDEN.glob("*.pcap"))
    if not captures:
        print(f"no captures in {GOLDEN}")
        return 1
    failed = 0
    for capture in captures:
        wrong = list(faults(capture))
        failed += bool(wrong)
        print(f"{'FAILED' if wrong else 'ok':7} {capture.name}")
        for line in wrong:
            print(f"        {line}")
    print(f"{len(captures) - failed} passed, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())

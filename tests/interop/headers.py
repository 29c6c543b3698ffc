#!/usr/bin/env python3
"""Headers compared with other implementations, from one list of examples
(tests/headers/examples.txt): the same octets as scapy's, and a dissection by tshark in which
nothing is malformed.

Needs tshark and scapy; $SQUALL is target/debug/squall unless set.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from tools import Failed

ROOT = pathlib.Path(__file__).resolve().parents[2]
SQUALL = pathlib.Path(os.environ.get("SQUALL", ROOT / "target/debug/squall")).absolute()
EXAMPLES = ROOT / "tests/headers/examples.txt"
# Protocols that tshark cannot recognize by their octets.
PORTS = ["-d", "udp.port==4790,vxlan", "-d", "udp.port==5247,capwap.data"]
SHORTEST = 60


def examples():
    lines = EXAMPLES.read_text().splitlines()
    split = [[part.strip() for part in line.split(" | ")] for line in lines if line[:1] != "#"]
    return [(packet, scapy, layer) for packet, scapy, layer in split]


def frames(folder):
    """Return the octets of each example, and a capture with all of them."""
    capture = folder / "examples.pcap"
    streams = "".join(
        f'[[stream]]\nname = "{i}"\npacket = {json.dumps(packet)}\nrate = "1 pps"\n'
        f'mode = {{ burst = 1 }}\nstart_delay = "{i} ms"\n'
        for i, (packet, _, _) in enumerate(examples())
    )
    profile = folder / "examples.toml"
    profile.write_text(f'[ports]\nA = "pcap:{capture}"\n{streams}')
    subprocess.run([SQUALL, "run", profile, "-q", "--allow-invalid"], check=True)
    octets, found = capture.read_bytes(), []
    at = 24
    while at < len(octets):
        length = int.from_bytes(octets[at + 8 : at + 12], "little")
        found.append(octets[at + 16 : at + 16 + length])
        at += 16 + length
    return capture, found


def by_scapy(expression):
    import scapy.all as scapy
    from scapy.contrib import bfd, erspan, geneve, gtp, gtp_v2, igmpv3, lldp, mqtt, ospf, roce

    names = dict(vars(scapy))
    for more in [bfd, erspan, geneve, gtp, gtp_v2, igmpv3, lldp, mqtt, ospf, roce]:
        names |= vars(more)
    packet = eval(expression, names)  # noqa: S307 (a file of this repository)
    layer = packet
    # Replace addresses that scapy takes from its host by Squall's defaults.
    while layer:
        for kind, values in {
            "Ethernet": {"src": "02:00:00:00:00:01", "dst": "02:00:00:00:00:02"},
            "IP": {"src": "198.18.0.1", "dst": "198.19.0.1", "id": 0},
            "IPv6": {"src": "2001:2::1", "dst": "2001:2::2"},
        }.items():
            for field, value in values.items():
                if layer.name == kind and field not in layer.fields:
                    setattr(layer, field, value)
        layer = layer.payload
    octets = bytes(packet)
    return octets + bytes(max(0, SHORTEST - len(octets)))


def main():
    if shutil.which("tshark") is None:
        return print("SKIPPED: needs tshark")
    try:
        import scapy  # noqa: F401
    except ImportError:
        return print("SKIPPED: needs scapy")
    wrong = []
    with tempfile.TemporaryDirectory(prefix="squall-headers-") as name:
        capture, found = frames(pathlib.Path(name))
        all_of_them = examples()
        if len(found) != len(all_of_them):
            raise Failed(f"{len(found)} frames of {len(all_of_them)}")
        fields = ["-T", "fields", "-e", "frame.protocols", "-e", "_ws.malformed"]
        done = subprocess.run(
            ["tshark", "-n", "-r", capture, *PORTS, *fields], capture_output=True, text=True
        )
        lines = done.stdout.split("\n")
    for (packet, scapy_text, layer), octets, line in zip(all_of_them, found, lines):
        protocols, _, malformed = line.partition("\t")
        if malformed.strip():
            wrong.append(f"{packet}: tshark: {malformed} in {protocols}")
        if layer not in protocols.split(":"):
            wrong.append(f"{packet}: tshark: {protocols}, expected {layer}")
        if scapy_text != "-":
            expected = by_scapy(scapy_text)
            if expected != octets:
                wrong.append(f"{packet}:\n  ours  {octets.hex()}\n  scapy {expected.hex()}")
    if wrong:
        sys.exit("FAILED: " + "\n".join(wrong))
    scapys = sum(text != "-" for _, text, _ in all_of_them)
    print(f"ok: {len(found)} headers dissected by tshark, {scapys} with the octets of scapy")


if __name__ == "__main__":
    main()

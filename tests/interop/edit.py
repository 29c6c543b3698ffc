#!/usr/bin/env python3
"""`squall edit` and tcprewrite (Debian's tcpreplay) on the same captures, octet for octet, for
every operation that means the same in both. Needs tcprewrite and tcpprep.

Where tcprewrite 4.4.3 differs, and why it is not compared:
- It writes 33:33 over the first two octets of both MAC addresses of every IPv6 frame, whatever the
options: these four octets are not compared, nor is IPv6 in cases with MAC address options. (Squall
changes only what an option asks for.)
- A frame whose IPv4 destination is a multicast group, or becomes one, gets that group's MAC
address, even with --enet-dmac and if no address changes: Squall adapts the MAC address only to a
new IP address, and not with --enet-dmac.
- An IP packet shorter than its frame (Ethernet padding) gets the frame's length in its IP header,
whatever the options: no frame here is padded. For the same reason --efcs is compared only by
length, on frames that have an FCS to remove.
- With --enet-vlan=add without all of tag, CFI and priority, and with --dlt=hdlc without
--hdlc-address and --hdlc-control, the frames change, but their lengths in the file do not. So these
options are given. hdlc keeps 0x8100 as the protocol of a tagged packet but removes the tag: tagged
frames are not compared.
- --fixlen=del and --dlt=pppserial fail with an error.
- --fixlen=trunc and --mtu-trunc leave the UDP length unchanged, longer than the packet: only TCP is
compared.
- Two --pnat options and --endpoints change an ARP request's addresses in reverse, because
tcprewrite guesses its direction.
- --seed, --enet-mac-seed, --tcp-sequence and --fuzz-seed draw different numbers; tcp-sequence
shifts both directions by the same amount and leaves SACK blocks unchanged, which then acknowledge
octets that were never sent.
- It rejects 8000,8080,88888:80, an example of its manual; Squall reads 8000,8080:80.
"""

import os
import pathlib
import shutil
import socket
import struct
import subprocess
import sys
import tempfile

TOOL = os.environ.get("SQUALL", "target/debug/squall")
CLIENT, SERVER = "020000000001", "020000000002"


class Failed(Exception):
    pass


def run(*argv, timeout=120):
    done = subprocess.run(
        [str(a) for a in argv], capture_output=True, text=True, timeout=timeout, check=False
    )
    if done.returncode != 0:
        raise Failed(f"{' '.join(map(str, argv))}: exit status {done.returncode}: {done.stderr}")
    return done.stdout


def checksum(octets):
    words = struct.unpack(f">{(len(octets) + 1) // 2}H", octets + b"\0" * (len(octets) % 2))
    total = sum(words)
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def eth(kind, packet, back=False, dst=None):
    macs = (CLIENT, SERVER) if back else (SERVER, CLIENT)
    return bytes.fromhex((dst or macs[0]) + macs[1]) + struct.pack(">H", kind) + packet


def ip(protocol, segment, at, v6=False, back=False, ends=None):
    """Return an IP packet; the checksum of `segment` is filled in at offset `at`."""
    ends = ends or (("2001:db8::1", "2001:db8::2") if v6 else ("10.0.0.1", "10.0.0.2"))
    src, dst = (
        socket.inet_pton(socket.AF_INET6 if v6 else socket.AF_INET, end)
        for end in (ends[::-1] if back else ends)
    )
    pseudo = b"" if protocol == 1 else src + dst + struct.pack(">II", len(segment), protocol)
    right = checksum(pseudo + segment) or (0xFFFF if protocol == 17 else 0)
    segment = segment[:at] + struct.pack(">H", right) + segment[at + 2 :]
    if v6:
        return struct.pack(">IHBB", 6 << 28, len(segment), protocol, 64) + src + dst + segment
    header = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(segment), 7, 0, 64, protocol, 0) + src + dst
    return header[:10] + struct.pack(">H", checksum(header)) + header[12:] + segment


def udp(sport, dport, payload, **how):
    return ip(17, struct.pack(">HHHH", sport, dport, 8 + len(payload), 0) + payload, 6, **how)


def tcp(sport, dport, numbers, flags, payload, **how):
    return ip(
        6,
        struct.pack(">HHIIBBHHH", sport, dport, *numbers, 0x50, flags, 1000, 0, 0) + payload,
        16,
        **how,
    )


def arp(operation):
    return (
        struct.pack(">HHBBH", 1, 0x800, 6, 4, operation)
        + bytes.fromhex(CLIENT)
        + bytes([10, 0, 0, 1])
        + bytes(6)
        + bytes([10, 0, 0, 2])
    )


PING = struct.pack(">BBHHH", 8, 0, 0, 1, 1) + b"ping" * 6


def ipv4():
    return [
        eth(0x800, udp(1234, 53, b"question")),
        eth(0x800, udp(53, 1234, b"an answer", back=True), back=True),
        eth(0x800, tcp(40000, 80, (100, 0), 2, b"")),
        eth(0x800, tcp(80, 40000, (900, 101), 0x12, b"", back=True), back=True),
        eth(0x800, tcp(40000, 80, (101, 901), 0x18, b"x" * 1400)),
        eth(0x800, ip(1, PING, 2)),
    ]


def group():
    return [
        eth(0x800, udp(5353, 5353, b"all", ends=("10.0.0.1", "224.0.0.251")), dst="01005e0000fb")
    ]


def ipv6():
    return [
        eth(0x86DD, udp(1234, 53, b"question", v6=True)),
        eth(0x86DD, udp(53, 1234, b"an answer", v6=True, back=True), back=True),
        eth(0x86DD, tcp(40000, 80, (101, 901), 0x18, b"y" * 333, v6=True)),
    ]


def tagged():
    tag = struct.pack(">HH", 0x6064, 0x800)
    twice = struct.pack(">HHHH", 0x6064, 0x8100, 7, 0x800)
    return [
        eth(0x8100, tag + udp(1234, 8080, b"tagged")),
        eth(0x88A8, twice + udp(1234, 8080, b"twice")),
    ]


def wrong():
    """Return packets with wrong checksums, and with missing ones."""
    packets = [bytearray(eth(0x800, udp(1234, 53, b"question"))) for _ in range(2)]
    packets[0][24:26] = b"\x11\x11"
    packets[0][40:42] = b"\x12\x34"
    packets[1][40:42] = bytes(2)
    return [bytes(packet) for packet in packets]


def cut():
    return [
        eth(0x800, tcp(40000, 80, (101, 901), 0x18, b"z" * 300)),
        eth(0x86DD, tcp(40000, 80, (101, 901), 0x18, b"z" * 300, v6=True)),
    ]


def write(path, packets, kept=65535):
    with open(path, "wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for number, packet in enumerate(packets):
            captured = packet[:kept]
            file.write(
                struct.pack(
                    "<IIII", 1_700_000_000 + number, number * 1000, len(captured), len(packet)
                )
                + captured
            )


def read(path):
    data, packets, at = path.read_bytes(), [], 24
    while at < len(data):
        seconds, fraction, captured, length = struct.unpack("<IIII", data[at : at + 16])
        octets = bytearray(data[at + 16 : at + 16 + captured])
        # Octets that tcprewrite writes into each IPv6 frame: see above.
        for place in (12, 16, 20):
            if octets[place : place + 2] == b"\x86\xdd":
                octets[0:2] = octets[6:8] = b"??"
        packets.append(((seconds, fraction), length, bytes(octets)))
        at += 16 + captured
    return data[20:24], packets


IPV4, ALL = "ipv4 group", "ipv4 group ipv6 arp"
# Options of both programs, and their variants. With "sides" tcprewrite gets a tcpprep cache, while
# Squall detects the sides; with "cache" both get it, with the sides swapped.
CASES = [
    (["--enet-dmac=00:11:22:33:44:55"], "ipv4 arp tagged"),
    (["--enet-smac=00:11:22:33:44:55"], "ipv4 group arp tagged"),
    (
        [
            "--enet-dmac=00:11:22:33:44:55,00:11:22:33:44:66",
            "--enet-smac=00:77:22:33:44:55,00:77:22:33:44:66",
        ],
        "sides",
    ),
    (["--enet-dmac=00:11:22:33:44:55", "--skipl2broadcast"], "ipv4 group arp tagged"),
    (["--enet-subsmac=02:00:00:00:00:01,aa:bb:cc:dd:ee:ff"], "ipv4 group arp tagged"),
    (
        ["--enet-vlan=add", "--enet-vlan-tag=5", "--enet-vlan-cfi=1", "--enet-vlan-pri=3"],
        ALL + " tagged",
    ),
    (
        [
            "--enet-vlan=add",
            "--enet-vlan-tag=5",
            "--enet-vlan-cfi=0",
            "--enet-vlan-pri=7",
            "--enet-vlan-proto=802.1ad",
        ],
        ALL + " tagged",
    ),
    (["--enet-vlan=add", "--enet-vlan-tag=5"], "tagged"),
    (["--enet-vlan=del"], ALL + " tagged"),
    (["--dlt=hdlc"], ALL),
    (["--efcs"], "fcs"),
    (["--ttl=9"], ALL + " tagged"),
    (["--ttl=+250"], ALL + " tagged"),
    (["--ttl=-100"], ALL + " tagged"),
    (["--tos=184"], ALL + " tagged"),
    (["--tclass=184"], ALL),
    (["--flowlabel=74565"], ALL),
    (["--tos=3", "--tclass=3", "--ttl=7"], ALL),
    (["--pnat=10.0.0.0/24:172.16.0.0/12"], ALL + " tagged"),
    (["-N", "10.0.0.2/32:9.9.9.9/32,10.0.0.0/8:11.0.0.0/8,224.0.0.0/4:225.0.0.0/8"], ALL),
    (["-b", "--pnat=0.0.0.0/0:9.0.0.0/8"], IPV4),
    (["--pnat=[2001:db8::/32]:[fd00:1::/32]"], ALL),
    (["-S", "10.0.0.1/32:9.9.9.9/32"], IPV4),
    (["-D", "10.0.0.1/32:9.9.9.9/32"], IPV4),
    (["-S", "10.0.0.0/8:9.0.0.0/8", "-D", "10.0.0.0/8:8.0.0.0/8"], IPV4),
    (["-e", "1.1.1.1:2.2.2.2"], "sides"),
    (["--pnat=10.0.0.0/24:1.1.1.0/24", "--pnat=10.0.0.0/24:2.2.2.0/24"], "sides"),
    (["-e", "1.1.1.1:2.2.2.2", "--enet-smac=00:77:22:33:44:55,00:77:22:33:44:66"], "cache"),
    (["--enet-dmac=00:11:22:33:44:55"], "cache"),
    (["-r", "53:5353,8080:80"], ALL + " tagged"),
    (["-r", "1000-2000:7,53:9,40000:1"], ALL + " tagged"),
    (["--fixcsum"], "wrong " + ALL),
    (["--ttl=9"], "cut"),
    (["--fixlen=pad"], "cut"),
    (["-F", "trunc"], "cut"),
    (["--mtu-trunc", "--mtu=100"], "tcp"),
    (
        [
            "--pnat=10.0.0.0/24:172.16.0.0/12",
            "--portmap=80:8080",
            "--ttl=-1",
            "--enet-dmac=00:11:22:33:44:55",
        ],
        "ipv4 arp tagged",
    ),
]


def packets_of(what):
    made = {
        "ipv4": ipv4,
        "ipv6": ipv6,
        "group": group,
        "arp": lambda: [eth(0x806, arp(1), dst="f" * 12)],
        "tagged": tagged,
        "wrong": wrong,
        "cut": cut,
        "tcp": lambda: [ipv4()[4], ipv6()[2]],
        "sides": lambda: ipv4()[:5],
        "cache": ipv4,
        "fcs": lambda: [packet + b"\xde\xad\xbe\xef" for packet in ipv4() + ipv6()],
    }
    return [packet for word in what.split() for packet in made[word]()]


def compare(folder, options, what):
    source, by_tcprewrite, by_squall = (
        folder / "in.pcap",
        folder / "theirs.pcap",
        folder / "ours.pcap",
    )
    write(source, packets_of(what), 100 if what == "cut" else 65535)
    more, both = [], []
    if what in ("sides", "cache"):
        how = "--port" if what == "sides" else "--cidr=10.0.0.2/32"
        run("tcpprep", how, f"--pcap={source}", f"--cachefile={folder / 'cache'}")
        more = [f"--cachefile={folder / 'cache'}"]
        both = more if what == "cache" else []
    if "--dlt=hdlc" in options:
        more += ["--hdlc-address=0x0f", "--hdlc-control=0"]
    run("tcprewrite", f"--infile={source}", f"--outfile={by_tcprewrite}", *options, *more)
    run(TOOL, "edit", "--quiet", "--force", source, by_squall, *options, *both)
    (tcprewrite_link, tcprewrite_packets), (squall_link, squall_packets) = (
        read(by_tcprewrite),
        read(by_squall),
    )
    if tcprewrite_link != squall_link or len(tcprewrite_packets) != len(squall_packets):
        raise Failed(
            f"link type and packets {squall_link}, {len(squall_packets)}, by tcprewrite {tcprewrite_link}, {len(tcprewrite_packets)}"
        )
    for number, (a, b) in enumerate(zip(squall_packets, tcprewrite_packets), 1):
        if "--efcs" in options:
            # After removing the FCS, tcprewrite reduces the IP length by the same amount.
            a, b = a[:2] + (len(a[2]),), b[:2] + (len(b[2]),)
        if a != b:
            at = (
                [i for i, (x, y) in enumerate(zip(a[2], b[2])) if x != y]
                if isinstance(a[2], bytes)
                else []
            )
            raise Failed(f"packet {number}: {a}, by tcprewrite {b}; octets {at}")
    return len(squall_packets)


def main():
    lacking = [tool for tool in ("tcprewrite", "tcpprep") if shutil.which(tool) is None]
    if lacking:
        print(f"SKIPPED: {', '.join(lacking)} not installed (scripts/setup system)")
        return 0
    failed = 0
    for options, what in CASES:
        with tempfile.TemporaryDirectory() as folder:
            try:
                packets = compare(pathlib.Path(folder), options, what)
                print(f"ok      {' '.join(options)}: {packets} packets ({what})")
            except (Failed, subprocess.SubprocessError, OSError) as error:
                failed += 1
                print(f"FAILED  {' '.join(options)} ({what}): {error}")
    print(f"{len(CASES) - failed} of {len(CASES)} the same")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())

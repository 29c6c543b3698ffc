#!/usr/bin/env python3
"""Captures that Squall writes, read by capinfos, tshark and tcpdump; captures of other tools,
compressed and cut, read by Squall; and one-line summaries of packets, compared with tcpdump's.
Needs tshark (with capinfos and editcap), tcpdump and the examples `captures` and `lines`, from the
folder $EXAMPLES or built by cargo; compressors are optional.
"""

import os
import pathlib
import random
import shutil
import socket
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
FRAMES = 40
LENGTHS = [42 + 37 * i for i in range(FRAMES)]


class Failed(Exception):
    pass


def expect(found, wanted, what):
    if found != wanted:
        raise Failed(f"{what}: {found!r}, expected {wanted!r}")


def run(*argv, **options):
    done = subprocess.run(
        [str(a) for a in argv], capture_output=True, text=True, timeout=120, check=False, **options
    )
    if done.returncode != 0:
        raise Failed(f"{' '.join(map(str, argv))}: exit status {done.returncode}: {done.stderr}")
    return done.stdout


def tshark(path, *fields):
    asked = [x for field in fields for x in ("-e", field)]
    out = run(
        "tshark",
        "-n",
        "-r",
        path,
        "-T",
        "fields",
        "-E",
        "separator=/t",
        "-E",
        "occurrence=f",
        *asked,
    )
    return [line.split("\t") for line in out.splitlines()]


def packets_in(path):
    """Return the packets as Squall reads them (number, time, original length, captured length, link
    type), and the errors that it finds.
    """
    lines = run(TOOL, "read", path).splitlines()
    packets = [line.split(" ", 4) for line in lines if line[0].isdigit()]
    return packets, [line for line in lines if not line[0].isdigit()]


def written_captures_are_read_by_all(folder):
    run(TOOL, "write", folder)
    for name, precision, snap in [
        ("us", "microseconds", 262144),
        ("ns", "nanoseconds", 262144),
        ("snap", "nanoseconds", 96),
    ]:
        path = folder / f"{name}.pcap"
        infos = run("capinfos", "-M", path)
        for text in ("Number of packets:   40", precision, "Encapsulation = Ethernet"):
            expect(text in infos, True, f"capinfos of {name}: {text} in {infos}")
        rows = tshark(path, "frame.time_epoch", "frame.len", "frame.cap_len", "udp.length")
        times = [1_700_000_000_000_000_000 + i * 1_000_001 for i in range(FRAMES)]
        expect([int(r[1]) for r in rows], LENGTHS, f"{name}: lengths")
        expect([int(r[2]) for r in rows], [min(n, snap) for n in LENGTHS], f"{name}: captured")
        kept = times if precision == "nanoseconds" else [t // 1000 * 1000 for t in times]
        expect([int(r[0].replace(".", "")) for r in rows], kept, f"{name}: times")
        lines = run("tcpdump", "-n", "-t", "-r", path).splitlines()
        expect(
            lines[1], "IP 198.18.0.1.49184 > 198.19.0.1.5001: UDP, length 37", f"{name}: tcpdump"
        )
        expect(len(lines), FRAMES, f"{name}: tcpdump's packets")
    for name in ("raw", "ipv4"):
        rows = tshark(folder / f"{name}.pcap", "frame.len", "ip.src")
        expect(rows, [[str(n - 14), "198.18.0.1"] for n in LENGTHS], name)


def a_pcapng_with_every_option_is_understood(folder):
    run(TOOL, "write", folder)
    path = folder / "all.pcapng"
    infos = run("capinfos", "-M", path)
    for text in (
        "Number of packets:   40",
        "Capture hardware:    a machine of 2 cores",
        "Capture oper-sys:    Linux 6.18",
        "Capture application: squall of the tests",
        "Capture comment:     all that can be said",
        "Number of interfaces in file: 2",
        "Name = eth1",
        "Description = the wire",
        "Filter string = udp port 9",
        "Speed = 10000000000",
        "Operating system = Linux 6.18",
        "Encapsulation = Raw IP",
        "Time precision = nanoseconds (9)",
        "Number of stat entries = 1",
    ):
        expect(text in infos, True, f"capinfos: {text!r} in {infos}")
    fields = [
        "frame.interface_id",
        "frame.packet_flags_direction",
        "frame.len",
        "frame.cap_len",
        "frame.comment",
    ]
    rows = tshark(path, *fields)
    for i, row in enumerate(rows):
        length = LENGTHS[i] - i % 2 * 14
        wanted = [
            str(i % 2),
            "0x0000000%d" % (1 + i % 2),
            str(length),
            str(min(length, 96) if i % 2 else length),
        ]
        got = [row[0], row[1].lower(), row[2], row[3]]
        if not got[1].startswith("0x"):
            got[1] = "0x%08x" % int(got[1])
        expect(got, wanted, f"frame {i + 1}")
        expect("lost before" in row[4], i == 8, f"comment of frame {i + 1}: {row[4]}")
    expect(len(rows), FRAMES, "tshark's packets")
    # libpcap reads only one link type per file, so it either counts the packets of both interfaces,
    # or refuses the file for that reason.
    done = subprocess.run(
        ["tcpdump", "-n", "-t", "-r", path], capture_output=True, text=True, timeout=60, check=False
    )
    expect(
        done.returncode == 0 or "different from the type of the first interface" in done.stderr,
        True,
        done.stderr,
    )
    # editcap keeps all options of the file.
    run("editcap", path, folder / "again.pcapng")
    packets, wrong = packets_in(folder / "again.pcapng")
    expect((len(packets), wrong), (FRAMES, []), "what editcap wrote")


def captures_that_others_wrote_are_read(folder):
    run(TOOL, "write", folder)
    source = folder / "ns.pcap"
    wanted, _ = packets_in(source)
    known = [
        line.split()
        for line in subprocess.run(
            ["editcap", "-F"], capture_output=True, text=True
        ).stderr.splitlines()
    ]
    for kind in [
        name
        for name in ("pcap", "nsecpcap", "pcapng", "modpcap")
        if any(k[:1] == [name] for k in known)
    ]:
        path = folder / f"editcap.{kind}"
        run("editcap", "-F", kind, source, path)
        packets, wrong = packets_in(path)
        expect([p[2:] for p in packets], [p[2:] for p in wanted], kind)
        expect(wrong, [], kind)


def compressed_captures_are_read_as_their_tools_read_them(folder):
    run(TOOL, "write", folder)
    source = folder / "ns.pcap"
    whole, _ = packets_in(source)
    chance = random.Random(4)
    tools = {"gzip": "gz", "zstd": "zst", "lz4": "lz4", "xz": "xz", "bzip2": "bz2"}
    for tool in tools:
        if shutil.which(tool) is None:
            print(f"SKIPPED: {tool} is not installed")
            continue
        packed = folder / f"packed.{tools[tool]}"
        for level in ("-1", "-9"):
            packed.write_bytes(
                subprocess.run([tool, level, "-c", source], capture_output=True, check=True).stdout
            )
            packets, wrong = packets_in(packed)
            expect((packets, wrong), (whole, []), f"{tool} {level}")
        # Two complete halves, concatenated.
        data, half = source.read_bytes(), source.stat().st_size // 2
        parts = [
            subprocess.run([tool, "-c"], input=d, capture_output=True, check=True).stdout
            for d in (data[:half], data[half:])
        ]
        packed.write_bytes(b"".join(parts))
        expect(packets_in(packed), (whole, []), f"{tool} in two members")
        # From a truncated file, Squall reads at least as much as the tool itself decompresses.
        large = folder / "large"
        record = struct.pack("<IIII", 1_700_000_000, 0, 700, 700)
        large.write_bytes(data[:24] + b"".join(record + chance.randbytes(700) for _ in range(3000)))
        # Blocks of 64 KiB, as in captures; the tool's default is larger than this file.
        blocks = ["-B4"] if tool == "lz4" else []
        full = subprocess.run([tool, *blocks, "-c", large], capture_output=True, check=True).stdout
        packed.write_bytes(full[: len(full) * 2 // 3])
        got = subprocess.run([tool, "-d", "-c", packed], capture_output=True, check=False).stdout
        (folder / "got.pcap").write_bytes(got)
        expected = len(packets_in(folder / "got.pcap")[0])
        packets, wrong = packets_in(packed)
        expect(
            len(packets) >= expected,
            True,
            f"{tool} cut: {len(packets)} packets, by the tool {expected}",
        )
        expect("was cut off" in wrong[0], True, f"{tool} cut: {wrong}")
        print(f"        {tool}, cut: {len(packets)} packets, of what {tool} -d gives {expected}")


def faults_are_found_where_wireshark_finds_them(folder):
    run(TOOL, "write", folder)
    data = (folder / "us.pcap").read_bytes()
    for cut in (30, 500, 5000, len(data) - 1):
        path = folder / "cut.pcap"
        path.write_bytes(data[:cut])
        done = subprocess.run(
            ["tshark", "-n", "-r", path], capture_output=True, text=True, timeout=60, check=False
        )
        expect("cut short" in done.stderr, True, done.stderr)
        packets, wrong = packets_in(path)
        expect(len(packets), len(done.stdout.splitlines()), f"cut at {cut}")
        expect(len(wrong), 2, f"cut at {cut}: {wrong}")


def eth(kind, packet):
    return bytes.fromhex("020000000002020000000001") + struct.pack(">H", kind) + packet


def llc(packet):
    return eth(len(packet), packet.ljust(46, b"\0"))


def ip4(protocol, packet, src="10.0.0.1", dst="10.0.0.2"):
    addresses = socket.inet_aton(src) + socket.inet_aton(dst)
    header = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(packet), 1, 0, 64, protocol, 0) + addresses
    total = sum(struct.unpack(">10H", header))
    total = (total & 0xFFFF) + (total >> 16)
    return eth(
        0x800,
        header[:10]
        + struct.pack(">H", ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF)
        + header[12:]
        + packet,
    )


def udp(sport, dport, payload, **addresses):
    return ip4(17, struct.pack(">HHHH", sport, dport, 8 + len(payload), 0) + payload, **addresses)


def tcp(payload, flags=0x18, options=b""):
    return ip4(
        6,
        struct.pack(">HHIIBBHHH", 40000, 80, 1, 1, 80 + 4 * len(options), flags, 100, 0, 0)
        + options
        + payload,
    )


def dns(identifier, flags, counts, rest):
    return struct.pack(">HHHHHH", identifier, flags, *counts) + rest


def name(text):
    return b"".join(bytes([len(label)]) + label.encode() for label in text.split(".")) + b"\0"


def varied_packets():
    """Return packets for which tcpdump and Squall print exactly the same."""
    www = name("www.example.com") + struct.pack(">HH", 1, 1)
    cname = b"\xc0\x0c" + struct.pack(">HHIH", 5, 1, 60, 6) + b"\3cdn\xc0\x10"
    address = b"\xc0\x2d" + struct.pack(">HHIH", 1, 1, 60, 4) + bytes([93, 184, 216, 34])
    dhcp = (
        bytes([1, 1, 6, 0])
        + bytes(24)
        + bytes.fromhex("020000000001")
        + bytes(202)
        + bytes.fromhex("63825363350101ff")
    )
    bridge = bytes.fromhex("8000001122334455")
    tree = bridge + bytes(4) + bridge + struct.pack(">HHHHH", 0x8001, 0, 20 << 8, 2 << 8, 15 << 8)
    lldp = (
        bytes.fromhex("020704001122334455")
        + b"\4\5\5eth0"
        + bytes.fromhex("06020078")
        + b"\x0a\7switch1\0\0"
    )
    options = bytes.fromhex("020405b40402080a00000001000000020103030701010501")[:20]
    ping = struct.pack(">BBHHH", 8, 0, 0, 7, 1) + bytes(20)
    return [
        udp(40000, 53, dns(4660, 0x100, (1, 0, 0, 0), www)),
        udp(53, 40000, dns(4660, 0x8180, (1, 2, 0, 0), www + cname + address)),
        udp(
            53,
            40000,
            dns(4661, 0x8583, (1, 0, 1, 0), name("no.example") + struct.pack(">HH", 28, 1)),
        ),
        udp(68, 67, dhcp, src="0.0.0.0", dst="255.255.255.255"),
        udp(123, 123, bytes([0x23]) + bytes(47)),
        udp(1, 4000, b"x" * 30),
        llc(b"\x42\x42\3" + bytes(5) + tree),
        llc(b"\x42\x42\3" + bytes([0, 0, 2, 2, 0x3C]) + tree + b"\0"),
        eth(0x88CC, lldp),
        eth(0x888E, b"\2\3\0\x5f" + b"\2" * 95),
        eth(0x8809, b"\1\1" + bytes(108)),
        ip4(50, struct.pack(">II", 1, 2) + bytes(20)),
        ip4(89, b"\2\1\0\x2c" + bytes(40)),
        ip4(103, b"\x20\0\0\0"),
        tcp(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
        tcp(b"", flags=2, options=options),
        tcp(b"", flags=0x14),
        ip4(1, ping),
        ip4(1, bytes([3, 3]) + bytes(6) + udp(1, 4000, b"")[14:]),
        ip4(1, bytes([11, 0]) + bytes(6) + udp(1, 4000, b"")[14:]),
        ip4(2, bytes.fromhex("16000904ef010203")),
        ip4(2, bytes.fromhex("1700f8fbef010203")),
        llc(b"\xaa\xaa\3\0\0\0\x08\0" + udp(1, 4000, b"y")[14:]),
    ]


def lines_are_those_of_tcpdump(folder):
    packets = varied_packets()
    links = {"eth": (1, packets)}
    network = [p[14:] for p in packets if p[12:14] == b"\x08\0"]
    links["raw"] = (101, network)
    links["null"] = (0, [b"\2\0\0\0" + p for p in network])
    links["loop"] = (108, [b"\0\0\0\2" + p for p in network])
    links["sll"] = (113, [bytes.fromhex("00000001000602000000000900000800") + p for p in network])
    links["ppp"] = (9, [b"\xff\3\0\x21" + p for p in network])
    links["wifi"] = (105, [b"\x08\1" + bytes(22) + b"\xaa\xaa\3\0\0\0\x08\0" + p for p in network])
    for kind, (number, list_of) in links.items():
        path = folder / f"{kind}.pcap"
        records = b"".join(
            struct.pack("<IIII", 1_700_000_000, 0, len(p), len(p)) + p for p in list_of
        )
        path.write_bytes(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, number) + records)
        expected = [
            line.rstrip()
            for line in run("tcpdump", "-n", "-t", "-S", "-r", path).splitlines()
            if not line.startswith("\t")
        ]
        mine = run(TOOL.parent / "lines", path).splitlines()
        for number, (their, my) in enumerate(zip(expected, mine), 1):
            if kind == "ppp":
                their = their.removeprefix("PPP, ")
            expect(my, their, f"{kind}, packet {number}")
        expect(len(mine), len(expected), f"{kind}: lines")


TESTS = [
    written_captures_are_read_by_all,
    a_pcapng_with_every_option_is_understood,
    captures_that_others_wrote_are_read,
    compressed_captures_are_read_as_their_tools_read_them,
    faults_are_found_where_wireshark_finds_them,
    lines_are_those_of_tcpdump,
]


def main():
    built = os.environ.get("EXAMPLES")
    tools = ["tshark", "capinfos", "editcap", "tcpdump", *([] if built else ["cargo"])]
    lacking = [tool for tool in tools if shutil.which(tool) is None]
    if lacking:
        print(f"SKIPPED: {', '.join(lacking)} not installed (scripts/setup system)")
        return 0
    global TOOL
    if not built:
        run(
            "cargo",
            "build",
            "--quiet",
            "--workspace",
            "--example",
            "captures",
            "--example",
            "lines",
            cwd=ROOT,
        )
        built = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug/examples"
    TOOL = pathlib.Path(built) / "captures"
    failed = 0
    for test in TESTS:
        with tempfile.TemporaryDirectory() as folder:
            try:
                test(pathlib.Path(folder))
                print(f"ok      {test.__name__}")
            except (Failed, subprocess.SubprocessError, IndexError) as error:
                failed += 1
                print(f"FAILED  {test.__name__}: {error!r}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())

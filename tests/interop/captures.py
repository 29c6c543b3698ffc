#!/usr/bin/env python3
"""Captures that Squall writes, as capinfos, tshark and tcpdump read them; and captures that others wrote, compressed and
cut, as Squall reads them. Needs tshark (with capinfos and editcap), tcpdump and cargo; of the compressors what there is."""

import os
import pathlib
import random
import shutil
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
    done = subprocess.run([str(a) for a in argv], capture_output=True, text=True, timeout=120, check=False, **options)
    if done.returncode != 0:
        raise Failed(f"{' '.join(map(str, argv))}: exit status {done.returncode}: {done.stderr}")
    return done.stdout


def tshark(path, *fields):
    asked = [x for field in fields for x in ("-e", field)]
    out = run("tshark", "-n", "-r", path, "-T", "fields", "-E", "separator=/t", "-E", "occurrence=f", *asked)
    return [line.split("\t") for line in out.splitlines()]


def ours(path):
    """What Squall reads: number, time, length on the wire, length captured, link type; and what it finds wrong."""
    lines = run(TOOL, "read", path).splitlines()
    packets = [line.split(" ", 4) for line in lines if line[0].isdigit()]
    return packets, [line for line in lines if not line[0].isdigit()]


def written_captures_are_read_by_all(folder):
    run(TOOL, "write", folder)
    for name, precision, snap in [("us", "microseconds", 262144), ("ns", "nanoseconds", 262144), ("snap", "nanoseconds", 96)]:
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
        expect(lines[1], "IP 198.18.0.1.49184 > 198.19.0.1.5001: UDP, length 37", f"{name}: tcpdump")
        expect(len(lines), FRAMES, f"{name}: tcpdump's packets")
    for name in ("raw", "ipv4"):
        rows = tshark(folder / f"{name}.pcap", "frame.len", "ip.src")
        expect(rows, [[str(n - 14), "198.18.0.1"] for n in LENGTHS], name)


def a_pcapng_with_all_that_can_be_said_is_understood(folder):
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
    fields = ["frame.interface_id", "frame.packet_flags_direction", "frame.len", "frame.cap_len", "frame.comment"]
    rows = tshark(path, *fields)
    for i, row in enumerate(rows):
        length = LENGTHS[i] - i % 2 * 14
        wanted = [str(i % 2), "0x0000000%d" % (1 + i % 2), str(length), str(min(length, 96) if i % 2 else length)]
        got = [row[0], row[1].lower(), row[2], row[3]]
        if not got[1].startswith("0x"):
            got[1] = "0x%08x" % int(got[1])
        expect(got, wanted, f"frame {i + 1}")
        expect("lost before" in row[4], i == 8, f"comment of frame {i + 1}: {row[4]}")
    expect(len(rows), FRAMES, "tshark's packets")
    # libpcap takes one link type for all of a file: both interfaces' packets are counted, or refused with that reason.
    done = subprocess.run(["tcpdump", "-n", "-t", "-r", path], capture_output=True, text=True, timeout=60, check=False)
    expect(done.returncode == 0 or "different from the type of the first interface" in done.stderr, True, done.stderr)
    # editcap drops nothing of it.
    run("editcap", path, folder / "again.pcapng")
    packets, wrong = ours(folder / "again.pcapng")
    expect((len(packets), wrong), (FRAMES, []), "what editcap wrote")


def captures_that_others_wrote_are_read(folder):
    run(TOOL, "write", folder)
    source = folder / "ns.pcap"
    wanted, _ = ours(source)
    known = [line.split() for line in subprocess.run(["editcap", "-F"], capture_output=True, text=True).stderr.splitlines()]
    for kind in [name for name in ("pcap", "nsecpcap", "pcapng", "modpcap") if any(k[:1] == [name] for k in known)]:
        path = folder / f"editcap.{kind}"
        run("editcap", "-F", kind, source, path)
        packets, wrong = ours(path)
        expect([p[2:] for p in packets], [p[2:] for p in wanted], kind)
        expect(wrong, [], kind)


def compressed_captures_are_read_as_their_tools_read_them(folder):
    run(TOOL, "write", folder)
    source = folder / "ns.pcap"
    whole, _ = ours(source)
    chance = random.Random(4)
    tools = {"gzip": "gz", "zstd": "zst", "lz4": "lz4", "xz": "xz", "bzip2": "bz2"}
    for tool in tools:
        if shutil.which(tool) is None:
            print(f"SKIPPED: {tool} is not installed")
            continue
        packed = folder / f"packed.{tools[tool]}"
        for level in ("-1", "-9"):
            packed.write_bytes(subprocess.run([tool, level, "-c", source], capture_output=True, check=True).stdout)
            packets, wrong = ours(packed)
            expect((packets, wrong), (whole, []), f"{tool} {level}")
        # Two halves, each by itself, one behind the other.
        data, half = source.read_bytes(), source.stat().st_size // 2
        parts = [subprocess.run([tool, "-c"], input=d, capture_output=True, check=True).stdout for d in (data[:half], data[half:])]
        packed.write_bytes(b"".join(parts))
        expect(ours(packed), (whole, []), f"{tool} in two members")
        # What a larger one gives when it is cut is what the tool itself gets out of it, at least.
        large = folder / "large"
        record = struct.pack("<IIII", 1_700_000_000, 0, 700, 700)
        large.write_bytes(data[:24] + b"".join(record + chance.randbytes(700) for _ in range(3000)))
        # Of 64 KiB as what captures writes has them; the tool's own are larger than this file.
        blocks = ["-B4"] if tool == "lz4" else []
        full = subprocess.run([tool, *blocks, "-c", large], capture_output=True, check=True).stdout
        packed.write_bytes(full[: len(full) * 2 // 3])
        got = subprocess.run([tool, "-d", "-c", packed], capture_output=True, check=False).stdout
        (folder / "got.pcap").write_bytes(got)
        theirs = len(ours(folder / "got.pcap")[0])
        packets, wrong = ours(packed)
        expect(len(packets) >= theirs, True, f"{tool} cut: {len(packets)} packets, by the tool {theirs}")
        expect("was cut off" in wrong[0], True, f"{tool} cut: {wrong}")
        print(f"        {tool}, cut: {len(packets)} packets, of what {tool} -d gives {theirs}")


def faults_are_found_where_wireshark_finds_them(folder):
    run(TOOL, "write", folder)
    data = (folder / "us.pcap").read_bytes()
    for cut in (30, 500, 5000, len(data) - 1):
        path = folder / "cut.pcap"
        path.write_bytes(data[:cut])
        done = subprocess.run(["tshark", "-n", "-r", path], capture_output=True, text=True, timeout=60, check=False)
        expect("cut short" in done.stderr, True, done.stderr)
        packets, wrong = ours(path)
        expect(len(packets), len(done.stdout.splitlines()), f"cut at {cut}")
        expect(len(wrong), 2, f"cut at {cut}: {wrong}")


TESTS = [
    written_captures_are_read_by_all,
    a_pcapng_with_all_that_can_be_said_is_understood,
    captures_that_others_wrote_are_read,
    compressed_captures_are_read_as_their_tools_read_them,
    faults_are_found_where_wireshark_finds_them,
]


def main():
    lacking = [tool for tool in ("tshark", "capinfos", "editcap", "tcpdump", "cargo") if shutil.which(tool) is None]
    if lacking:
        print(f"SKIPPED: {', '.join(lacking)} not installed (scripts/setup system)")
        return 0
    global TOOL
    run("cargo", "build", "--quiet", "-p", "squall-pcap", "--example", "captures", cwd=ROOT)
    TOOL = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug/examples/captures"
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

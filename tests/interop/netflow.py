#!/usr/bin/env python3
"""Flows as counted by a NetFlow collector: squall replay over a veth pair, with new addresses in
each of 100 loops, and softflowd on the other end, which exports to nfcapd. The flows in nfdump
match the replay's report and its addresses.

Needs root, softflowd and nfcapd (Debian: nfdump); $SQUALL is target/debug/squall unless set.
"""

import collections
import ipaddress
import json
import os
import pathlib
import random
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
SQUALL = pathlib.Path(os.environ.get("SQUALL", ROOT / "target/debug/squall")).absolute()
NAMESPACE = f"sq-netflow-{os.getpid()}"
LOOPS = 100
PROBE, COLLECTOR = 9995, 9996


class Failed(Exception):
    pass


def same(what: str, squall_flows: object, expected: object) -> None:
    if squall_flows != expected:
        raise Failed(f"{what}: found {squall_flows}, expected {expected}")


def run(*command: object, timeout: float = 120) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, timeout=timeout)
    if done.returncode != 0:
        raise Failed(
            f"{' '.join(words)}: exit status {done.returncode}: {done.stdout}{done.stderr}"
        )
    return done.stdout


def inside(*command: object) -> list[str]:
    return ["ip", "netns", "exec", NAMESPACE, *[str(word) for word in command]]


def wait(what: str, come, seconds: float = 30) -> None:
    until = time.monotonic() + seconds
    while not come():
        if time.monotonic() > until:
            raise Failed(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.05)


# --- the capture
# ---------------------------------------------------------------------------------------------------


def sum16(octets: bytes) -> int:
    octets += b"\0" * (len(octets) % 2)
    total = sum(struct.unpack(f">{len(octets) // 2}H", octets))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def frame(src: str, dst: str, protocol: int, segment: bytes, checksum_at: int) -> bytes:
    """Return a frame with correct checksums, and a few octets of data."""
    source, destination = ipaddress.ip_address(src), ipaddress.ip_address(dst)
    pseudo = source.packed + destination.packed + struct.pack(">HH", protocol, len(segment))
    total = ~sum16(pseudo + segment) & 0xFFFF or 0xFFFF
    segment = segment[:checksum_at] + struct.pack(">H", total) + segment[checksum_at + 2 :]
    macs = bytes.fromhex("020000000002020000000001")
    if source.version == 6:
        head = struct.pack(">IHBB", 6 << 28, len(segment), protocol, 64)
        return macs + b"\x86\xdd" + head + source.packed + destination.packed + segment
    head = (
        struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(segment), 1, 0x4000, 64, protocol, 0)
        + source.packed
        + destination.packed
    )
    head = head[:10] + struct.pack(">H", ~sum16(head) & 0xFFFF) + head[12:]
    return macs + b"\x08\x00" + head + segment


def capture(path: pathlib.Path) -> tuple[int, int]:
    """Write TCP and UDP conversations over IPv4 and IPv6, some without an answer. Return the
    numbers of IP packets and flows."""
    chance = random.Random(5)
    frames: list[bytes] = []
    flows = set()
    for number in range(30):
        six = number % 5 == 0
        client = f"2001:db8:1::{number + 1}" if six else f"10.1.{number}.{chance.randrange(1, 255)}"
        server = (
            f"2001:db8:2::{chance.randrange(1, 5)}"
            if six
            else chance.choice(["192.0.2.7", "10.2.0.1", "172.16.0.9"])
        )
        ports = (20000 + number, chance.choice([53, 80, 443]))
        tcp = number % 2 == 0
        for _ in range(chance.randrange(1, 5)):
            for src, dst, (sport, dport) in [
                (client, server, ports),
                (server, client, ports[::-1]),
            ]:
                if src == server and number % 7 == 0:
                    continue
                flows.add((src, dst, sport, dport))
                if tcp:
                    # Without SYN and FIN: softflowd has separate timeouts for them, which are not
                    # tested here.
                    head = struct.pack(">HHIIBBHHH", sport, dport, 1, 1, 0x50, 0x18, 1000, 0, 0)
                    frames.append(frame(src, dst, 6, head + b"data", 16))
                else:
                    head = struct.pack(">HHHH", sport, dport, 12, 0)
                    frames.append(frame(src, dst, 17, head + b"data", 6))
    # ARP is not a flow, and must not be counted as one.
    arp = bytes.fromhex("ffffffffffff0200000000010806" + "0001080006040001") + bytes(20)
    packets = len(frames)
    records = [
        struct.pack("<IIII", 1000, i, len(f), len(f)) + f for i, f in enumerate([arp, *frames])
    ]
    path.write_bytes(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1) + b"".join(records))
    return packets, len(flows)


# --- the collector
# -------------------------------------------------------------------------------------------------


def queue_of(port: int) -> tuple[int, int]:
    """Return the octets that wait in the UDP socket of `port` in this namespace, and the number of
    datagrams that it has dropped."""
    for line in pathlib.Path("/proc/net/udp").read_text().splitlines()[1:]:
        words = line.split()
        if int(words[1].split(":")[1], 16) == port:
            return int(words[4].split(":")[1], 16), int(words[-1])
    raise Failed(f"nobody listens on UDP port {port}")


def relay() -> None:
    """Relay datagrams to nfcapd one by one. softflowd sends all its flows at once in several
    hundred datagrams, and nfcapd's queue has room for a few dozen, so on a busy machine the others
    would be lost. The relay sends each datagram after nfcapd has read the previous one. It ends
    when its input has ended and its queue is empty, and prints the number of drops."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as given,
    ):
        # SO_RCVBUFFORCE, which is not limited by net.core.rmem_max.
        taken.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)
        taken.bind(("127.0.0.1", PROBE))
        while True:
            ready, _, _ = select.select([taken, sys.stdin], [], [])
            if taken in ready:
                given.sendto(taken.recv(65535), ("127.0.0.1", COLLECTOR))
                while queue_of(COLLECTOR)[0] > 0:
                    time.sleep(0.0005)
            elif sys.stdin in ready:
                break
        print(queue_of(PROBE)[1] + queue_of(COLLECTOR)[1])


class Collector:
    """softflowd on an interface, nfcapd and the relay between them, running inside a with block."""

    def __init__(self, folder: pathlib.Path, interface: str):
        self.folder, self.interface = folder, interface
        self.records = folder / "records"
        self.control = folder / "control"
        self.processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self):
        self.records.mkdir()
        # All records go to one file, which is written when nfcapd ends.
        self.start(
            "nfcapd",
            "-w",
            self.records,
            "-b",
            "127.0.0.1",
            "-p",
            COLLECTOR,
            "-t",
            "3600",
            "-B",
            8 << 20,
        )
        script = [sys.executable, pathlib.Path(__file__).resolve(), "--relay"]
        self.start(*script, name="relay", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for port in [COLLECTOR, PROBE]:
            wait(
                f"who listens on UDP port {port}",
                lambda: f":{port} " in run(*inside("ss", "-lun")) + " ",
            )
        # No flow expires, neither by time nor because of the number of flows.
        never = [
            f"-t{name}=1d"
            for name in ["general", "tcp", "tcp.rst", "tcp.fin", "udp", "icmp", "maxlife"]
        ] + ["-texpint=0"]
        self.start(
            "softflowd", "-d", "-i", self.interface, "-n", f"127.0.0.1:{PROBE}", "-v", "9", "-m", "200000",
            # libpcap's queue must hold all packets of the test, however late softflowd reads them.
            "-B", 64 << 20, "-c", self.control, "-p", self.folder / "softflowd.pid", *never,
        )  # fmt: skip
        wait("softflowd", self.control.exists)
        return self

    def start(self, *command: object, name: str | None = None, **streams: int) -> None:
        log = (self.folder / f"{name or command[0]}.log").open("wb")
        self.processes.append(
            subprocess.Popen(inside(*command), **{"stdout": log, "stderr": log} | streams)
        )

    def softflowd_packets(self) -> int:
        reported = run(*inside("softflowctl", "-c", self.control, "statistics"))
        line = next(line for line in reported.splitlines() if line.startswith("Packets processed:"))
        return int(line.split(":")[1].split()[0])

    def flows(self) -> list[dict[str, str]]:
        """Return the exported records."""
        run(*inside("softflowctl", "-c", self.control, "expire-all"))
        run(*inside("softflowctl", "-c", self.control, "shutdown"))
        nfcapd, relay, softflowd = self.processes
        softflowd.wait(timeout=60)
        dropped, _ = relay.communicate(timeout=60)
        same("datagrams dropped on the way to nfcapd", dropped.strip(), b"0")
        nfcapd.send_signal(signal.SIGTERM)
        nfcapd.wait(timeout=60)
        text = run(
            "nfdump",
            "-R",
            self.records,
            "-6",
            "-q",
            "-N",
            "-o",
            "fmt:%sa,%da,%sp,%dp,%pr,%pkt,%byt",
        )
        names = ["src", "dst", "src_port", "dst_port", "protocol", "packets", "octets"]
        rows = [
            [word.strip() for word in line.split(",")]
            for line in text.splitlines()
            if line.count(",") == 6
        ]
        return [dict(zip(names, row, strict=True)) for row in rows]

    def __exit__(self, *_):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()


# --- the test
# ------------------------------------------------------------------------------------------------------


def replayed(
    folder: pathlib.Path, pcap: pathlib.Path, *options: str
) -> tuple[dict, list[dict[str, str]]]:
    """Compare the flows of the report with those of the collector."""
    folder.mkdir()
    report = folder / "report.json"
    with Collector(folder, "b0") as collector:
        replay = [
            SQUALL,
            "replay",
            pcap,
            "--port",
            "af_packet:a0",
            "--pps",
            10000,
            "-l",
            LOOPS,
            "-q",
            "--json",
            report,
        ]
        run(*inside(*replay, *options))
        flows = json.loads(report.read_text())["replays"][0]["flows"]
        # libpcap delivers a block when it is full or old: frames that belong to no flow fill the
        # last block.
        others = [
            SQUALL,
            "send",
            "--port",
            "af_packet:a0",
            "--packet",
            "eth/arp",
            "-n",
            2000,
            "--rate",
            "20kpps",
            "-q",
        ]

        def all_there() -> bool:
            run(*inside(*others))
            return collector.softflowd_packets() >= flows["flow_packets"]

        wait("softflowd has all packets", all_there)
        return flows, collector.flows()


def check(what: str, reported: dict, found: list[dict[str, str]], packets: int, flows: int) -> None:
    same(f"{what}: flow packets", reported["flow_packets"], packets * LOOPS)
    same(f"{what}: other packets", reported["non_flow_packets"], LOOPS)
    same(f"{what}: flows reported", reported["flows"], flows)
    same(f"{what}: flows in the collector", len(found), reported["flows"])
    tuples = {(f["src"], f["dst"], f["src_port"], f["dst_port"], f["protocol"]) for f in found}
    same(f"{what}: different flows in the collector", len(tuples), reported["unique"])
    same(
        f"{what}: packets in the collector",
        sum(int(f["packets"]) for f in found),
        reported["flow_packets"],
    )
    print(
        f"{what}: {reported['flows']} flows and {reported['flow_packets']} packets reported, and found by nfdump"
    )


def test(folder: pathlib.Path) -> None:
    pcap = folder / "in.pcap"
    packets, flows = capture(pcap)
    reported, found = replayed(folder / "unique", pcap, "--unique-ip")
    check("fresh addresses", reported, found, packets, flows * LOOPS)
    # Each direction of a conversation has its reverse, because answers go to the requesting host.
    ways = collections.Counter((f["src"], f["dst"], f["src_port"], f["dst_port"]) for f in found)
    alone = [way for way in ways if (way[1], way[0], way[3], way[2]) not in ways]
    same("flows that nobody answers", len(alone) % LOOPS, 0)
    reported, found = replayed(
        folder / "slow", pcap, "--unique-ip", "--unique-ip-loops", "10", "--preload"
    )
    check("fresh addresses every ten loops", reported, found, packets, flows * LOOPS // 10)
    reported, found = replayed(folder / "same", pcap)
    check("the same addresses", reported, found, packets, flows)


def main() -> None:
    for tool in ["softflowd", "softflowctl", "nfcapd", "nfdump", "ip", "ss"]:
        if not shutil.which(tool) and not shutil.which(tool, path="/usr/sbin:/sbin"):
            print(f"SKIPPED: needs {tool} (apt-get install softflowd nfdump iproute2)")
            return
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    made = subprocess.run(["ip", "netns", "add", NAMESPACE], capture_output=True, text=True)
    if made.returncode != 0:
        print(f"SKIPPED: needs root: {made.stderr.strip()}")
        return
    try:
        for step in [
            # No other traffic on the link.
            "sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1",
            "ip link set lo up",
            "ip link add a0 type veth peer name b0",
            "ip link set a0 up",
            "ip link set b0 up",
        ]:
            run(*inside("sh", "-c", step))
        with tempfile.TemporaryDirectory(prefix="squall-netflow-") as folder:
            test(pathlib.Path(folder))
    except Failed as failed:
        print(f"FAILED: {failed}")
        sys.exit(1)
    finally:
        subprocess.run(["ip", "netns", "del", NAMESPACE], check=False)


if __name__ == "__main__":
    if sys.argv[1:] == ["--relay"]:
        relay()
    else:
        main()

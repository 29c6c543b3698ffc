"""A DNS64 server under test (RFC 6147), of known capacity: answers a query for an AAAA record with one
that is made of a fixed IPv4 address, and drops queries beyond its rate. It shares no code with Squall:
its counters are the truth for tests.

    dns64_server.py ADDRESS --rate 500 --burst 5
    dns64_server.py ADDRESS --rate 500 --empty 100     # every 100th answer has no AAAA record

Prints one line, "ready", when it answers, and its counters as JSON when its standard input ends or on
SIGTERM.
"""

import argparse
import collections
import ipaddress
import json
import socket
import struct
import sys

from bridge import turns

SO_TIMESTAMPNS = 35
AAAA = 28
PREFIX = ipaddress.IPv6Address("64:ff9b::")
MADE = (int(PREFIX) | int(ipaddress.IPv4Address("198.51.100.7"))).to_bytes(16, "big")


class Server:
    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        self.socket = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self.socket.bind((given.address, 53))
        self.socket.setblocking(False)
        self.counts: collections.Counter[str] = collections.Counter()
        self.names: set[bytes] = set()
        self.tokens, self.refilled = float(given.burst), 0.0

    def turn(self) -> None:
        while True:
            try:
                query, control, _, client = self.socket.recvmsg(4096, 64)
            except BlockingIOError:
                return
            # The kernel's time of arrival: a late turn of this process drops no query.
            seconds, nanos = struct.unpack("qq", control[0][2])
            self.take(query, seconds + nanos / 1e9, client)

    def take(self, query: bytes, at: float, client: tuple) -> None:
        self.counts["queries"] += 1
        name, kind, end = question(query)
        self.names.add(name)
        if kind != AAAA:
            self.counts["other_types"] += 1
            return
        refill = (at - self.refilled) * self.given.rate
        self.tokens = min(float(self.given.burst), self.tokens + refill)
        self.refilled = at
        if self.tokens < 1:
            self.counts["dropped"] += 1
            return
        self.tokens -= 1
        empty = self.given.empty and self.counts["queries"] % self.given.empty == 0
        self.counts["empty" if empty else "answered"] += 1
        header = query[:2] + struct.pack(
            "!HHHHH", 0x8180, 1, 0 if empty else 1, 1 if empty else 0, 0
        )
        record = struct.pack("!HHHIH", 0xC00C, AAAA, 1, 60, 16) + MADE
        if empty:
            # A start of authority: the name has no such record (RFC 2308 section 2.2).
            soa = b"\0\0" + struct.pack("!IIIII", 1, 60, 60, 60, 60)
            record = struct.pack("!HHHIH", 0xC00C, 6, 1, 60, len(soa)) + soa
        self.socket.sendto(header + query[12:end] + record, client)

    def figures(self) -> dict:
        return dict(self.counts) | {"names": len(self.names)}


def question(query: bytes) -> tuple[bytes, int, int]:
    """Name and type of a query's question, and where it ends."""
    at = 12
    while query[at]:
        at += 1 + query[at]
    (kind,) = struct.unpack("!H", query[at + 1 : at + 3])
    return query[12:at], kind, at + 5


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("address", help="IPv6 address")
    parser.add_argument("--rate", type=float, required=True, help="queries/s that are answered")
    parser.add_argument("--burst", type=int, default=5, help="queries at once beyond that")
    parser.add_argument("--empty", type=int, help="leave the record out of every Nth answer")
    return parser.parse_args()


def main() -> int:
    server = Server(arguments())
    for _ in turns([server.socket], lambda: 0.5):
        server.turn()
    print(json.dumps(server.figures()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Drives Ostinato's drone without its GUI: the few RPC messages that a stream needs, encoded by
hand.

A message is a header (type, method, length; big endian) and a protobuf body. Field numbers are
those of the `.proto` files of Ostinato 1.2.
"""

import socket
import struct

REQUEST, ERROR, NOTIFICATION = 1, 4, 5
METHOD = {
    "getPortIdList": 0,
    "getPortConfig": 1,
    "addStream": 5,
    "modifyStream": 7,
    "startTransmit": 8,
    "checkVersion": 15,
    "build": 27,
}
# Protocol numbers of a stream's layers.
MAC, ETH2, IP4, UDP, PAYLOAD = 100, 200, 301, 401, 101
GO_TO_NEXT, GO_TO_FIRST = 1, 2


class Drone:
    def __init__(self, port: int = 7878) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self._call("checkVersion", text(1, "1.2.0") + text(2, "bench"))

    def transmit(
        self, interface: str, frame_lens: list[tuple[int, int]], pps: float, addresses: "Addresses"
    ) -> None:
        """Repeat frames of given (length without FCS, number of frames), one after the other; `pps`
        0 sends as fast as possible.
        """
        port = message(1, number(1, self._port(interface)))
        last = len(frame_lens) - 1
        streams = [
            stream(i, frame_len, frames, pps, GO_TO_FIRST if i == last else GO_TO_NEXT, addresses)
            for i, (frame_len, frames) in enumerate(frame_lens)
        ]
        self._call(
            "addStream", port + b"".join(message(2, number(1, i)) for i in range(len(streams)))
        )
        self._call("modifyStream", port + b"".join(message(2, s) for s in streams))
        self._call("build", port)
        self._call("startTransmit", port)

    def _port(self, interface: str) -> int:
        ids = self._call("getPortIdList", b"")
        for _, port in decode(self._call("getPortConfig", ids)):
            config = dict(decode(port))
            if config.get(2) == interface.encode():
                return dict(decode(config[1]))[1]
        raise LookupError(f"drone has no port {interface}")

    def _call(self, method: str, body: bytes) -> bytes:
        self._socket.sendall(struct.pack(">HHI", REQUEST, METHOD[method], len(body)) + body)
        while True:
            kind, _, length = struct.unpack(">HHI", self._receive(8))
            reply = self._receive(length)
            if kind == ERROR:
                raise RuntimeError(f"drone: {method}: {reply!r}")
            if kind != NOTIFICATION:
                return reply

    def _receive(self, length: int) -> bytes:
        octets = b""
        while len(octets) < length:
            more = self._socket.recv(length - len(octets))
            if not more:
                raise ConnectionError("drone closed the connection")
            octets += more
        return octets


Addresses = tuple[int, int, int, int]
"""Source and destination MAC, source and destination IPv4, as integers."""


def stream(
    i: int, frame_len: int, frames: int, pps: float, then: int, addresses: Addresses
) -> bytes:
    src_mac, dst_mac, src_ip, dst_ip = addresses
    enabled, with_fcs = number(2, 1), number(15, frame_len + 4)
    core = text(1, f"s{i}") + enabled + number(3, i) + number(14, 0) + with_fcs
    control = number(1, 0) + number(2, 0) + number(3, frames) + number(6, then) + double(9, pps)
    return (
        message(1, number(1, i))
        + message(2, core)
        + message(3, control)
        + layer(MAC, number(1, dst_mac) + number(2, 0) + number(5, src_mac) + number(6, 0))
        + layer(ETH2)
        + layer(IP4, fixed32(14, src_ip) + fixed32(18, dst_ip))
        + layer(UDP)
        + layer(PAYLOAD)
    )


def layer(protocol: int, fields: bytes = b"") -> bytes:
    return message(4, message(1, number(1, protocol)) + message(protocol, fields))


def varint(n: int) -> bytes:
    low, n = n & 0x7F, n >> 7
    return bytes([low | 0x80]) + varint(n) if n else bytes([low])


def number(field: int, n: int) -> bytes:
    return varint(field << 3) + varint(n)


def message(field: int, body: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(body)) + body


def text(field: int, s: str) -> bytes:
    return message(field, s.encode())


def double(field: int, x: float) -> bytes:
    return varint(field << 3 | 1) + struct.pack("<d", x)


def fixed32(field: int, n: int) -> bytes:
    return varint(field << 3 | 5) + struct.pack("<I", n)


def decode(body: bytes) -> list[tuple[int, int | bytes]]:
    """Return the (field, value) pairs of a message; nested messages remain octets."""
    at, pairs = 0, []

    def read_varint() -> int:
        nonlocal at
        n = shift = 0
        while True:
            octet = body[at]
            at += 1
            n |= (octet & 0x7F) << shift
            shift += 7
            if octet < 0x80:
                return n

    while at < len(body):
        key = read_varint()
        if key & 7 == 0:
            value: int | bytes = read_varint()
        else:
            length = {1: 8, 5: 4}.get(key & 7) or read_varint()
            value, at = body[at : at + length], at + length
        pairs.append((key >> 3, value))
    return pairs

#!/usr/bin/env python3
"""An access concentrator of PPPoE on an interface, made with Scapy: it answers PADI and PADR, demands
PAP or CHAP, gives addresses by IPCP, answers echo requests of LCP and ICMP, and keeps the memberships of
multicast groups. It shares no code with Squall. On SIGTERM it prints its counters as JSON.

Usage: pppoe_server.py INTERFACE pap|chap PASSWORD
"""

import hashlib
import json
import os
import signal
import socket
import struct
import sys

from scapy.all import ICMP, IP, Ether, Raw
from scapy.layers.ppp import PPP, PPPoE, PPPoED, PPPoED_Tags, PPPoETag

OWN = "10.78.0.1"
LCP, IPCP, PAP, CHAP, IPV4 = 0xC021, 0x8021, 0xC023, 0xC223, 0x0021
REQUEST, ACK, NAK, REJECT = 1, 2, 3, 4


def control(code, number, data=b""):
    return struct.pack("!BBH", code, number, 4 + len(data)) + data


def options(data):
    while len(data) >= 2:
        yield data[0], data[2 : data[1]]
        data = data[data[1] :]


class Server:
    """The sessions, each with the MAC address of its client as the key."""

    def __init__(self, interface, method, password):
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.socket.bind((interface, 0))
        self.mac = self.socket.getsockname()[4]
        self.method, self.password = method, password.encode()
        self.sessions, self.counts = {}, {}
        # Addresses with their groups: ever joined, and joined now.
        self.joined, self.members = set(), set()

    def count(self, name):
        self.counts[name] = self.counts.get(name, 0) + 1

    def send(self, client, packet, kind):
        frame = Ether(src=self.mac, dst=client, type=kind) / packet
        self.socket.send(bytes(frame))

    def ppp(self, client, protocol, data):
        number = self.sessions[client]["number"]
        packet = PPPoE(code=0, sessionid=number) / PPP(proto=protocol) / Raw(data)
        self.send(client, packet, 0x8864)

    def discovery(self, client, packet):
        tags = (
            {tag.tag_type: bytes(tag.tag_value) for tag in packet[PPPoED_Tags].tag_list}
            if (PPPoED_Tags in packet)
            else {}
        )
        kept = [
            PPPoETag(tag_type=kind, tag_value=tags[kind]) for kind in (0x101, 0x103) if kind in tags
        ]
        if packet.code == 0x09:
            self.count("padi")
            more = [
                PPPoETag(tag_type=0x102, tag_value=b"scapy"),
                PPPoETag(tag_type=0x104, tag_value=client.encode()),
            ]
            self.send(client, PPPoED(code=0x07) / PPPoED_Tags(tag_list=kept + more), 0x8863)
        elif packet.code == 0x19:
            self.count("padr" if tags.get(0x104) == client.encode() else "wrong_cookie")
            number = len(self.sessions) + 100
            address = f"10.78.1.{len(self.sessions) + 1}"
            self.sessions[client] = {"number": number, "address": address, "open": False}
            answer = PPPoED(code=0x65, sessionid=number) / PPPoED_Tags(tag_list=kept)
            self.send(client, answer, 0x8863)
            auth = (
                struct.pack("!BBH", 3, 4, PAP) if self.method == "pap" else b"\x03\x05\xc2\x23\x05"
            )
            self.ppp(client, LCP, control(REQUEST, 1, auth + b"\x05\x06\x0b\x0b\x0b\x0b"))
        elif packet.code == 0xA7:
            self.count("padt")
            self.sessions.pop(client, None)

    def session(self, client, packet):
        session = self.sessions.get(client)
        if session is None or packet.sessionid != session["number"]:
            self.count("wrong_session")
            return
        payload = bytes(packet.payload)[: packet.len]
        protocol, data = struct.unpack("!H", payload[:2])[0], payload[2:]
        if protocol == IPV4:
            self.ping(client, session, data)
            return
        code, number, size = struct.unpack("!BBH", data[:4])
        data = data[4:size]
        match protocol, code:
            case (0xC021, 1):
                self.ppp(client, LCP, control(ACK, number, data))
                session["lcp"] = True
                self.authenticate(client, session)
            case (0xC021, 2):
                session["acked"] = True
                self.authenticate(client, session)
            case (0xC021, 5):
                self.count("terminate")
                self.ppp(client, LCP, control(6, number))
            case (0xC021, 9):
                self.count("echo")
                self.ppp(client, LCP, control(10, number, b"\x0b\x0b\x0b\x0b" + data[4:]))
            case (0xC023, 1):
                size = data[0]
                name, given = data[1 : 1 + size].decode(), data[2 + size :][: data[1 + size]]
                self.judge(client, session, PAP, number, name, given == self.expected(name), b"\0")
            case (0xC223, 2):
                name = data[17:].decode()
                digest = hashlib.md5(bytes([number]) + self.expected(name) + session["challenge"])
                good = digest.digest() == data[1:17]
                self.judge(client, session, CHAP, number, name, good, b"")
            case (0x8021, 1):
                self.address(client, session, number, data)
            case _:
                self.count(f"{protocol:04x}_{code}")

    def expected(self, name):
        return self.password.replace(b"{}", name.removeprefix("user").encode())

    def authenticate(self, client, session):
        both = session.get("lcp") and session.get("acked")
        if both and self.method == "chap" and "challenge" not in session:
            session["challenge"] = os.urandom(21)
            self.ppp(client, CHAP, control(1, 77, b"\x15" + session["challenge"] + b"scapy"))

    def judge(self, client, session, protocol, number, name, good, text):
        self.count("accepted" if good else "rejected")
        codes = {(PAP, True): 2, (PAP, False): 3, (CHAP, True): 3, (CHAP, False): 4}
        self.ppp(client, protocol, control(codes[protocol, good], number, text))
        if good and not session.get("name"):
            session["name"] = name
            own = b"\x03\x06" + socket.inet_aton(OWN)
            self.ppp(client, IPCP, control(REQUEST, 1, own))

    def address(self, client, session, number, data):
        wanted = {3: session["address"], 129: "10.78.0.53", 131: "10.78.0.54"}
        better = b""
        for kind, value in options(data):
            if value != socket.inet_aton(wanted[kind]):
                better += bytes([kind, 6]) + socket.inet_aton(wanted[kind])
        self.ppp(client, IPCP, control(NAK if better else ACK, number, better or data))
        session["open"] = session["open"] or not better

    def ping(self, client, session, data):
        packet = IP(data)
        if packet.proto == 2 and packet.src == session["address"]:
            self.membership(session, packet.ttl, data)
            return
        if ICMP not in packet or packet.src != session["address"]:
            self.count("wrong_source")
            return
        self.count("pings")
        reply = IP(src=packet.dst, dst=packet.src) / ICMP(
            type=0, id=packet[ICMP].id, seq=packet[ICMP].seq
        )
        self.ppp(client, IPV4, bytes(reply / Raw(bytes(packet[ICMP].payload))))

    def membership(self, session, ttl, data):
        """A report of IGMPv3, with Router Alert (RFC 3376 section 4.2)."""
        header = (data[0] & 15) * 4
        report, at = data[header:], 8
        if ttl != 1 or data[20:24] != b"\x94\x04\0\0" or report[0] != 0x22:
            self.count("wrong_report")
            return
        for _ in range(struct.unpack_from("!H", report, 6)[0]):
            kind, _, sources = struct.unpack_from("!BBH", report, at)
            member = (session["address"], socket.inet_ntoa(report[at + 4 : at + 8]))
            if kind in (2, 4):  # all sources
                self.joined.add(member)
                self.members.add(member)
            else:
                self.members.discard(member)
            at += 8 + 4 * sources

    def run(self):
        while True:
            frame = Ether(self.socket.recv(2048))
            if frame.src == self.mac:
                continue
            if frame.type == 0x8863:
                self.discovery(frame.src, frame.payload)
            elif frame.type == 0x8864:
                self.session(frame.src, frame.payload)


def main():
    server = Server(*sys.argv[1:4])

    def end(_number, _frame):
        names = sorted(one.get("name", "") for one in server.sessions.values() if one["open"])
        groups = {"joined": sorted(server.joined), "members": sorted(server.members)}
        print(json.dumps({"counts": server.counts, "open": names, **groups}), flush=True)
        sys.exit(0)

    signal.signal(signal.SIGTERM, end)
    print("ready", flush=True)
    server.run()


if __name__ == "__main__":
    main()

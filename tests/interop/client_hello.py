#!/usr/bin/env python3
"""Hellos of browsers: Squall's clients send the hello of each browser in the list over a loop, and
curl_cffi, a client with a patched BoringSSL, sends its own to a socket of this script. They are equal
octet by octet, except in the fields with new values for each session. ja4plus computes JA4 of 1,000
of Squall's connections, which are the published ones; the order of extensions, which JA3 shows,
changes only where the browser's does. Squall sends the hellos of its own capture, and of their
JA4_ro, again. Each of 50 flows requests its own name, and gets a certificate for it.

Needs curl_cffi and ja4plus; $SQUALL is target/debug/squall unless set.
"""

import collections
import json
import os
import pathlib
import re
import socket
import struct
import sys
import tempfile
import threading

from tools import Failed, run, same

ROOT = pathlib.Path(__file__).resolve().parents[2]
SQUALL = pathlib.Path(os.environ.get("SQUALL", ROOT / "target/debug/squall")).absolute()
CONNECTIONS = 1000
NAME = "www.example.com"
# Names of curl_cffi for hellos that have other names here, because the browser of that name sends
# another one, or its own is not there.
IMPERSONATE = {
    "edge-151": "chrome151",
    "firefox-151": "firefox153",
    "safari-18.2": "safari180",
    "safari-18.2-ios": "safari180_ios",
    "safari-26.1": "safari2601",
    "safari-26.1-ios": "safari270_ios",
}
PROFILE = """schema = 1
ports = { A = "loop:hello", B = "loop:hello" }
flows = { clients = "A", servers = "B" }
[[pool]]
name = "clients"
addresses = ["16.0.0.0/24"]
[[pool]]
name = "servers"
addresses = ["48.0.0.1"]
"""
SERVER_NAME, GROUPS, SIGNATURES, PADDING, VERSIONS = 0, 10, 13, 21, 43
KEY_SHARE, ECH = 51, 0xFE0D


def is_grease(value):
    return value & 0x0F0F == 0x0A0A and value >> 8 == value & 0xFF


def number(octets):
    return int.from_bytes(octets, "big")


def numbers(octets):
    return [number(octets[i : i + 2]) for i in range(0, len(octets), 2)]


def plain(octets):
    """Numbers, with all values of GREASE as one."""
    return [0x0A0A if is_grease(value) else value for value in numbers(octets)]


def counted(octets, at, width):
    """Octets after their length, and where they end."""
    begin = at + width
    end = begin + number(octets[at:begin])
    return octets[begin:end], end


class Hello:
    """A ClientHello in a record."""

    def __init__(self, octets):
        self.header, message = octets[:3], octets[5:]
        same("octets of the record", number(octets[3:5]), len(message))
        same("octets of the message", number(message[1:4]), len(message) - 4)
        self.length = len(message)
        self.version = message[4:6]
        session, at = counted(message, 38, 1)
        self.session = len(session)
        self.suites, at = counted(message, at, 2)
        self.compressions, at = counted(message, at, 1)
        extensions, end = counted(message, at, 2)
        same("octets after the extensions", len(message) - end, 0)
        self.extensions, at = [], 0
        while at < len(extensions):
            kind = number(extensions[at : at + 2])
            content, at = counted(extensions, at + 2, 2)
            self.extensions.append((kind, content))

    def order(self):
        """Kinds of extensions as in JA3."""
        return tuple(k for k, _ in self.extensions if not is_grease(k) and k != PADDING)

    def rest(self):
        """All octets, except the new values of each session."""
        return (
            self.header,
            self.version,
            self.session,
            plain(self.suites),
            self.compressions,
            # The payload of ECH grease has one of four lengths.
            None if ECH in self.order() else self.length,
            [rest_of(*one) for one in self.extensions],
        )


def rest_of(kind, content):
    if kind == SERVER_NAME:
        return kind, content.decode()
    if kind == GROUPS:
        return kind, content[:2], plain(content[2:])
    if kind == VERSIONS:
        return kind, content[:1], plain(content[1:])
    if kind == KEY_SHARE:
        shares, at = [], 2
        while at < len(content):
            group = plain(content[at : at + 2])
            key, at = counted(content, at + 2, 2)
            shares.append((group, len(key)))
        return kind, content[:2], shares
    if kind == ECH:
        enc, at = counted(content, 6, 2)
        payload, _ = counted(content, at, 2)
        # 239: NSS up to Firefox 154. The others are BoringSSL's, with which curl_cffi sends Firefox's.
        if len(payload) not in (144, 176, 208, 240, 239):
            raise Failed(f"a payload of ECH grease with {len(payload)} octets")
        return kind, content[:5], len(enc)
    return 0x0A0A if is_grease(kind) else kind, content


def of_curl(names):
    """A hello of each name of curl_cffi."""
    from curl_cffi import CurlError, CurlOpt, requests

    found = {}
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def accept():
            for name in names:
                connection, _ = server.accept()
                with connection:
                    octets = b""
                    while len(octets) < 5 or len(octets) < 5 + number(octets[3:5]):
                        more = connection.recv(65536)
                        if not more:
                            break
                        octets += more
                    found[name] = octets

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        for name in names:
            try:
                resolve = {CurlOpt.RESOLVE: [f"{NAME}:{port}:127.0.0.1"]}
                url = f"https://{NAME}:{port}/"
                requests.get(url, impersonate=name, timeout=60, curl_options=resolve)
            except (CurlError, OSError):
                # The connection is closed after the hello.
                pass
        thread.join(60)
    if missing := set(names) - set(found):
        raise Failed(f"curl_cffi sent no hello as {', '.join(sorted(missing))}")
    return {name: Hello(octets) for name, octets in found.items()}


def segments(capture):
    """Segments of TCP: addresses, both ports, and the segment from its header on."""
    octets, at = capture.read_bytes(), 24
    while at < len(octets):
        # pcap, little-endian: time, octets of the frame here and on the wire; Ethernet, IPv4, TCP.
        end = at + 16 + struct.unpack_from("<I", octets, at + 8)[0]
        packet, at = octets[at + 16 + 14 : end], end
        if packet[:1] == b"\x45" and packet[9] == 6:
            tcp = packet[20 : number(packet[2:4])]
            yield packet[12:20], numbers(tcp[:4]), tcp


def hellos(capture):
    """Return the port of the server and the octets of the hello of each connection, in the order in
    which they began."""
    flows = {}
    for addresses, ports, tcp in segments(capture):
        first, flags = number(tcp[4:8]), tcp[13]
        ends = (addresses, *ports)
        if flags & 0x12 == 0x02:
            flows[ends] = (first + 1, {})
        elif ends in flows and (data := tcp[tcp[12] >> 4 << 2 :]):
            flows[ends][1].setdefault((first - flows[ends][0]) % 2**32, data)
    found = []
    for (_, _, port), (_, parts) in flows.items():
        sent = b""
        for offset in sorted(parts):
            sent += parts[offset] if offset == len(sent) else b""
        found.append((port, sent[: 5 + number(sent[3:5])]))
    return found


def ja4(octets):
    from ja4plus import generate_ja4
    from ja4plus.utils.tls_utils import parse_tls_handshake

    return generate_ja4(parse_tls_handshake(octets))


def play(folder, browsers, connections):
    """Run clients with these hellos. Return the octets that were sent for each, and the capture
    with them."""
    texts = [PROFILE]
    for nth, hello in enumerate(browsers, 1):
        texts.append(
            f'[[template]]\nname = "{nth}"\nclients = "clients"\nservers = "servers"\n'
            f'app = "http"\nlisten = {4000 + nth}\nusers = 2\nlimit = {connections}\n'
            f"tls = {{ server_name = {json.dumps(NAME)}, hello = {json.dumps(hello)} }}\n"
        )
    profile, capture = folder / "hellos.toml", folder / "hellos.pcap"
    report = folder / "report.json"
    profile.write_text("".join(texts))
    options = ["-d", "60s", "--capture", capture, "--force", "-q", "--json", report]
    run(SQUALL, "run", profile, *options)
    client = json.loads(report.read_text())["flows"]["total"]["client"]
    total = connections * len(browsers)
    same("flows", (client["completed"], client["failed"]), (total, {}))
    same("handshakes", client["tls"]["handshakes"], total)
    found = collections.defaultdict(list)
    for port, octets in hellos(capture):
        found[port].append(octets)
    ports = [4000 + nth for nth in range(1, len(browsers) + 1)]
    same(
        "connections", {port: len(found[port]) for port in found}, dict.fromkeys(ports, connections)
    )
    return [found[port] for port in ports], capture


def one_for_each_name(folder):
    """Each flow requests its own name, for which the server makes a certificate. TLS 1.2 shows it."""
    capture = folder / "names.pcap"
    name = "server_name=host${flow:3}.example.net"
    options = [name, "certificate_per_name=true", "versions=1.2"]
    tls = [word for option in options for word in ("--tls-option", option)]
    ports = ["--port", "loop:names", "--port2", "loop:names"]
    ends = ["--clients", "16.0.0.0/24", "--servers", "48.0.0.1", "--users", 2, "--flows", 50]
    run(
        SQUALL, "flows", "app", "http", *ports, *ends, *tls, "-d", "60s", "--capture", capture, "-q"
    )
    pattern = re.compile(rb"host\d{3}\.example\.net")
    names = {ports: set() for ports in ("client", "server")}
    for _, ports, tcp in segments(capture):
        names["server" if ports[0] == 443 else "client"].update(pattern.findall(tcp))
    expected = {f"host{flow:03}.example.net".encode() for flow in range(50)}
    same("names", names, {"client": expected, "server": expected})


def main():
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        listed = run(SQUALL, "flows", "apps").stdout.partition("\nhello of TLS\n")[2]
        published = {
            line.split()[0]: set(re.findall(r"t13d\w+", line)) for line in listed.splitlines()
        }
        names = list(published)
        if len(names) < 10:
            raise Failed(f"browsers: {names}")
        of = {
            name: IMPERSONATE.get(name)
            or re.sub("-(android|ios)$", r"_\1", name).replace("-", "").replace(".", "")
            for name in names
        }
        sent, capture = play(folder, names, -(-CONNECTIONS // len(names)))
        expected = of_curl([of[name] for name in names])
        sequences = {}
        for name, octets in zip(names, sent):
            reference = expected[of[name]]
            sent_hellos = [Hello(one) for one in octets]
            sequences[name] = {hello.order() for hello in sent_hellos}
            shuffles = len(sequences[name]) > 1
            for hello in [*sent_hellos, reference]:
                hello.extensions = [one for one in hello.extensions if one[0] != PADDING]
                if shuffles:
                    hello.extensions[1:-1] = sorted(hello.extensions[1:-1])
            for hello in sent_hellos:
                same(f"{name}: octets", hello.rest(), reference.rest())
            found = {ja4(one) for one in octets}
            if not found <= published[name] or not found:
                raise Failed(f"{name}: JA4 {found}, published {published[name]}")
        shuffled = [name for name in names if len(sequences[name]) > 1]
        version = re.compile(r"(?:chrome|edge)-(\d+)")
        chromium = [n for n in names if (m := version.match(n)) and int(m[1]) >= 110]
        same("browsers that shuffle", shuffled, chromium)
        print(f"{sum(map(len, sent))} hellos of {len(names)} browsers, as of curl_cffi; JA4: ok")

        # Each hello of a capture keeps its JA4, and so does its text.
        capture = capture.rename(folder / "first.pcap")
        captured = [ja4(octets) for _, octets in hellos(capture)]
        picked = [1, 1 + captured.index(ja4(sent[names.index("safari-15.3")][0]))]
        firefox = Hello(sent[names.index("firefox-135")][0])
        signatures = numbers(dict(firefox.extensions)[SIGNATURES][2:])
        lists = [
            ",".join(f"{value:04x}" for value in values)
            for values in (numbers(firefox.suites), firefox.order(), signatures)
        ]
        (value,) = published["firefox-135"]
        texts = [f"{capture}:{nth}" for nth in picked]
        texts.append("_".join([value.partition("_")[0], *lists]))
        again, _ = play(folder, texts, 5)
        wanted = [{captured[nth - 1]} for nth in picked] + [{value}]
        same("JA4 of a capture and of JA4_ro", [set(map(ja4, of)) for of in again], wanted)
        print("hellos of a capture and of JA4_ro: ok")

        one_for_each_name(folder)
        print("names of flows, each with its certificate: ok")


if __name__ == "__main__":
    try:
        main()
    except Failed as failed:
        sys.exit(f"client_hello.py: {failed}")

#!/usr/bin/env python3
"""HTTP/3 of squall flows against aioquic, over a veth pair that loses frames and changes their
order: Squall's clients with an aioquic server, and aioquic clients with Squall's servers. Requests,
bodies, tables of QPACK, Retry, Version Negotiation, early data, clients that move to other ports
and addresses, and what each end has to ignore or to refuse; tshark reads the requests in a capture,
with the secrets that Squall has written.

With --full, also Squall's clients with a server of quinn (quinn_server), which is built first.

Needs root, openssl, tcpdump, tshark and the Python package aioquic; $SQUALL is target/debug/squall
unless set.
"""

import ast
import asyncio
import hashlib
import importlib.util
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile

PORTS = {"plain": 443, "retry": 444, "grease": 445}
PAGE = b"page" * 8192
ANOTHER = "::ffff:10.77.0.9"
# A number of the form 31 n + 33, which means nothing (RFC 9114 section 9).
GREASE = 31 * 7 + 33


def serve(folder):
    """Serve HTTP/3 with aioquic on all ports. Log each request: its port, method, path and the
    octets of its body; and each new address and port of a connection's client."""
    from aioquic.asyncio import QuicConnectionProtocol, serve
    from aioquic.buffer import encode_uint_var
    from aioquic.h3.connection import H3Connection, encode_frame
    from aioquic.h3.events import DataReceived, HeadersReceived
    from aioquic.quic.configuration import QuicConfiguration
    from aioquic.quic.events import ProtocolNegotiated

    log, tickets = (folder / "requests.log").open("a", buffering=1), {}
    ports = (folder / "ports.log").open("a", buffering=1)

    class Server(QuicConnectionProtocol):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            self.clients = set()

        def datagram_received(self, data, addr):
            if addr not in self.clients:
                self.clients.add(addr)
                ports.write(f"{addr}\n")
            super().datagram_received(data, addr)

        def quic_event_received(self, event):
            if isinstance(event, ProtocolNegotiated):
                self.http, self.requests = H3Connection(self._quic), {}
                if self.name == "grease":
                    self.send_grease()
            if not hasattr(self, "http"):
                return
            for got in self.http.handle_event(event):
                if isinstance(got, HeadersReceived):
                    self.requests.setdefault(got.stream_id, [dict(got.headers), 0])
                elif isinstance(got, DataReceived):
                    self.requests[got.stream_id][1] += len(got.data)
                else:
                    continue
                if got.stream_ended:
                    self.answer(got.stream_id, *self.requests.pop(got.stream_id))
            self.transmit()

        def answer(self, stream, fields, octets):
            method, path = fields[b":method"].decode(), fields[b":path"].decode()
            log.write(f"{self.name} {method} {path} {octets}\n")
            length = (b"content-length", str(len(PAGE)).encode())
            trailers = self.name == "grease"
            if trailers:
                self.http.send_headers(stream, [(b":status", b"103"), (b"link", b"</a>")])
                self._quic.send_stream_data(stream, encode_frame(GREASE, b"nothing"))
            self.http.send_headers(stream, [(b":status", b"200"), length])
            self.http.send_data(stream, PAGE, end_stream=not trailers)
            if trailers:
                self.http.send_headers(stream, [(b"x-sum", b"0")], end_stream=True)

        def send_grease(self):
            control = self.http._local_control_stream_id
            self._quic.send_stream_data(control, encode_frame(GREASE, b"nothing"))
            stream = self._quic.get_next_available_stream_id(is_unidirectional=True)
            self._quic.send_stream_data(stream, encode_uint_var(GREASE) + b"nothing")

    async def run():
        for name, port in PORTS.items():
            settings = QuicConfiguration(is_client=False, alpn_protocols=["h3"])
            settings.load_cert_chain(folder / "server.pem", folder / "server.key")
            protocol = type(name, (Server,), {"name": name})
            await serve(
                "0.0.0.0",
                port,
                configuration=settings,
                create_protocol=protocol,
                session_ticket_fetcher=lambda label: tickets.pop(label, None),
                session_ticket_handler=lambda ticket: tickets.update({ticket.ticket: ticket}),
                retry=name == "retry",
            )
        await asyncio.Event().wait()

    asyncio.run(run())


def fetch(folder, what):
    """Fetch from Squall's server with aioquic. Print the results as JSON."""
    from aioquic.asyncio import QuicConnectionProtocol, connect
    from aioquic.h3.connection import ErrorCode, H3Connection, StreamType, encode_frame
    from aioquic.h3.events import DataReceived, HeadersReceived
    from aioquic.quic.configuration import QuicConfiguration
    from aioquic.quic.events import ConnectionTerminated

    class Client(QuicConnectionProtocol):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            self.http, self.waiting, self.ended_by = H3Connection(self._quic), {}, None

        def quic_event_received(self, event):
            if isinstance(event, ConnectionTerminated):
                self.ended_by = event.error_code
            for got in self.http.handle_event(event):
                if not isinstance(got, (HeadersReceived, DataReceived)):
                    continue
                answer = self.waiting[got.stream_id]
                if isinstance(got, HeadersReceived):
                    answer["status"] = dict(got.headers).get(b":status", b"").decode()
                else:
                    answer["sha256"].update(got.data)
                if got.stream_ended:
                    answer["done"].set_result(None)

        async def get(self, body=b""):
            stream = self._quic.get_next_available_stream_id()
            answer = {"sha256": hashlib.sha256(), "done": self._loop.create_future()}
            self.waiting[stream] = answer
            fields = [(b":method", b"POST" if body else b"GET"), (b":scheme", b"https")]
            fields += [(b":authority", b"squall.test"), (b":path", b"/"), (b"x-client", b"aioquic")]
            self.http.send_headers(stream, fields, end_stream=not body)
            if body:
                self.http.send_data(stream, body, end_stream=True)
            self.transmit()
            await answer["done"]
            return answer["status"], answer["sha256"].hexdigest()

    def connection(ticket=None, taken=None, wait=True, **options):
        settings = QuicConfiguration(
            alpn_protocols=["h3"],
            cafile=folder / "server.pem",
            server_name="squall.test",
            **options,
        )
        settings.session_ticket = ticket
        return connect(
            "10.77.2.1",
            443,
            configuration=settings,
            create_protocol=Client,
            session_ticket_handler=taken,
            wait_connected=wait,
        )

    async def requests():
        """Four connections, of ten requests each, five at a time."""

        async def one():
            async with connection() as client:
                first = await asyncio.gather(*[client.get() for _ in range(5)])
                return first + await asyncio.gather(*[client.get(b"q" * 20_000) for _ in range(5)])

        found = [
            answer for all in await asyncio.gather(*[one() for _ in range(4)]) for answer in all
        ]
        return {"answers": len(found), "different": sorted(set(found))}

    async def versions():
        """A version that the server does not know comes first."""
        async with connection(supported_versions=[0x1A2A3A4A, 1]) as client:
            await client.get()
            return {"version": client._quic._version}

    async def early():
        """Two connections; the second begins with a request, under the ticket of the first."""
        tickets = []
        async with connection(taken=tickets.append) as client:
            await client.get()
        async with connection(ticket=tickets[0], wait=False) as client:
            await client.get()
            tls = client._quic.tls
            return {"resumed": tls.session_resumed, "accepted": tls.early_data_accepted}

    async def moves():
        """Connections that go on from another port, with the same connection ID and with another,
        from another address, and from the port of a connection that the client has lost."""

        def bound(address="::"):
            sock = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            sock.bind((address, 0, 0, 0))
            return sock

        async def one(changes, sock):
            async with connection() as client:
                first, before = await client.get(), client._transport
                await client._loop.create_datagram_endpoint(lambda: client, sock=sock)
                if changes:
                    client.change_connection_id()
                return first == await client.get() and client._transport is not before

        async def lose():
            async with connection() as client:
                await client.get()
                # Its later packets, also its close, are lost. The port stays in use: the
                # kernel would answer the server's packets with ICMP errors, which end the flow.
                sock = client._transport.get_extra_info("socket").dup()
                client._transport.abort()
                client._transport = Nothing()
                return sock

        sockets = [bound(), bound(), bound(ANOTHER), await lose()]
        return [await one(at > 0, sock) for at, sock in enumerate(sockets)]

    class Nothing(asyncio.DatagramTransport):
        def sendto(self, data, addr=None):
            pass

        def close(self):
            pass

    async def broken():
        """Actions that RFC 9114 forbids, one connection each."""

        async def one(name):
            async with connection() as client:
                stream = client._quic.get_next_available_stream_id()
                if name == "a frame":
                    client._quic.send_stream_data(stream, encode_frame(0x4, b""))
                elif name == "a stream":
                    client.http._create_uni_stream(StreamType.CONTROL)
                elif name == "fields":
                    client._quic.send_stream_data(stream, encode_frame(0x1, b"\0\0\xff\x24"))
                else:
                    encoder = client.http._local_encoder_stream_id
                    client._quic.send_stream_data(encoder, b"\x3f\xe1\x1f")
                client.transmit()
                await asyncio.wait_for(client.wait_closed(), 60)
                return ErrorCode(client.ended_by).name

        names = ["a frame", "a stream", "fields", "a table"]
        return dict(zip(names, await asyncio.gather(*map(one, names))))

    async def run():
        chosen = {"requests": [requests], "others": [versions, early, moves, broken]}[what]
        found = await asyncio.gather(*[case() for case in chosen])
        return {case.__name__: result for case, result in zip(chosen, found)}

    print(json.dumps(asyncio.run(run())))


if __name__ == "__main__" and sys.argv[1:2] in (["serve"], ["fetch"]):
    {"serve": serve, "fetch": fetch}[sys.argv[1]](pathlib.Path(sys.argv[2]), *sys.argv[3:])
    sys.exit()

from flows import LOCAL, REMOTE, SQUALL, V4, Served, counted, flows, hash_of_body, inside, network
from hosts import captured, server
from tools import Failed, run, same

ROOT = pathlib.Path(__file__).resolve().parents[2]
LOSSY = "af_packet:va,drop=0.01,reorder=0.01,seed=3"
BODY = 20_000
# The pattern of which Squall's servers send a body.
FILLER = b"squall serves octets\n"

SERVERS = """
schema = 1
[ports]
A = "{port}"
[flows]
servers = "A"
[[pool]]
name = "servers"
addresses = ["10.77.2.1"]
[[pool]]
name = "clients"
addresses = ["0.0.0.1"]
[[template]]
name = "http"
clients = "clients"
servers = "servers"
app = "http"
options = {{ body = "{body}" }}
http = {{ version = "3", {settings} }}
tls = {{ certificate = "{folder}/server.pem", key = "{folder}/server.key", resumption = true }}
"""


class Http3(Served):
    """Squall's servers of a profile, running inside a with block."""

    def __init__(self, folder, port, settings, body=100):
        super().__init__(folder, port)
        profile = folder / "servers.toml"
        text = SERVERS.format(folder=folder, port=port, settings=settings, body=body)
        profile.write_text(text)
        self.argv = inside(LOCAL, SQUALL, "run", profile, "-q", "--json", self.file)
        self.folder = folder

    def fetch(self, what):
        found = run(*inside(REMOTE, sys.executable, __file__, "fetch", self.folder, what))
        return json.loads(found.stdout)


def certificate(folder):
    """Make a certificate for squall.test, signed by itself."""
    files = ["-keyout", folder / "server.key", "-out", folder / "server.pem"]
    new = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    names = ["subjectAltName=DNS:squall.test", "basicConstraints=critical,CA:FALSE"]
    more = [word for name in names for word in ("-addext", name)]
    run(*new, "-nodes", "-days", 2, "-subj", "/CN=squall.test", *more, *files)


def clients(folder, url, length, count, *argv, port="af_packet:va", users=5, settings=""):
    """Run Squall's clients, with more settings of the profile's `http`. Return their report."""
    url = ["--url", url, "--http3", "--port", port, "--check", f"length {length}"]
    options = [f"ca={folder}/server.pem", "server_name=squall.test", "resumption=true"]
    url += [word for option in options for word in ("--tls-option", option)]
    url += ["--clients", "10.77.1.1-10.77.1.50", "--flows", count]
    argv = [*url, "-d", "90s", "--users", users, *argv]
    if not settings:
        return flows(folder, "http", *argv)
    text = run(SQUALL, "flows", "http", *argv, "--print-profile").stdout
    profile, file = folder / "clients.toml", folder / "report.json"
    more = f'http = {{ version = "3", {settings} }}'
    profile.write_text(re.sub('http = .*"3".*', more, text))
    run(*inside(LOCAL, SQUALL, "run", profile, "-d", "90s", "-q", "--json", file))
    return json.loads(file.read_text())


def squall_clients(folder):
    log = folder / "requests.log"

    def get(count, *argv, name="plain", **options):
        log.write_text("")
        url = f"https://{V4}:{PORTS[name]}/page"
        report = clients(folder, url, len(PAGE), count, *argv, **options)
        return report["flows"]["total"]["client"], report, log.read_text().splitlines()

    def listens():
        return ":445 " in run(*inside(REMOTE, "ss", "-lun")).stdout

    argv = [sys.executable, __file__, "serve", folder]
    with server(argv, folder / "server.log", listens):
        what = "1 % lost and out of order"
        role, report, found = get(10, "--requests", 8, "--streams", 4, port=LOSSY)
        counted(what, report, "client", 10, 80)
        same(f"{what}: aioquic says", found, ["plain GET /page 0"] * 80)
        http3 = role["http3"]
        same(f"{what}: figures", (http3["connections"], http3["streams"]), (10, 80))
        same(f"{what}: violations", (http3["violations"], http3["resets_received"]), ({}, {}))

        what, settings = "bodies of 100 kB, after Version Negotiation", "reserved_version = true"
        argv = ["--post", 100_000, "--requests", 2]
        role, report, found = get(5, *argv, port=LOSSY, settings=settings)
        counted(what, report, "client", 5, 10)
        same(f"{what}: aioquic says", found, ["plain POST /page 100000"] * 10)
        same(f"{what}: packets were lost", role["http3"]["packets_lost"] > 0, True)
        same(f"{what}: figures", role["http3"]["version_negotiations"] >= 5, True)

        what = "early data, and tables of QPACK"
        settings = "early_data = true, qpack_table = 4096"
        role, report, found = get(5, "--requests", 3, users=1, settings=settings)
        counted(what, report, "client", 5, 15)
        same(f"{what}: aioquic says", found, ["plain GET /page 0"] * 15)
        http3 = role["http3"]
        same(f"{what}: figures", (http3["early_accepted"], http3["early_refused"]), (4, 0))
        same(f"{what}: violations", http3["violations"], {})

        for end in ["port", "address"]:
            what, settings = f"moves to another {end}", "migrate_after = 3, rebind_after = 5"
            (folder / "ports.log").write_text("")
            more = f'{settings}, migrate_to = "{end}"'
            role, report, found = get(5, "--requests", 9, settings=more)
            counted(what, report, "client", 5, 45)
            same(f"{what}: aioquic says", found, ["plain GET /page 0"] * 45)
            http3 = role["http3"]
            # At requests 3, 6 and 9 of each, and at request 5.
            same(f"{what}: figures", (http3["migrations"], http3["rebindings"]), (15, 5))
            same(f"{what}: none was impossible", http3["not_moved"], {})
            found = (folder / "ports.log").read_text().splitlines()
            same(f"{what}: aioquic says", (len(found), len(set(found))), (25, 25))
            addresses = {ast.literal_eval(client)[0] for client in found}
            same(f"{what}: addresses", len(addresses) > 5, end == "address")

        what = "Retry"
        role, report, found = get(5, name="retry")
        counted(what, report, "client", 5, 5)
        same(f"{what}: aioquic says", found, ["retry GET /page 0"] * 5)
        same(f"{what}: figures", role["http3"]["retries"], 5)

        what = "frames and streams that mean nothing, interim answers and trailers"
        role, report, found = get(5, "--requests", 2, name="grease")
        counted(what, report, "client", 5, 10)
        same(f"{what}: aioquic says", found, ["grease GET /page 0"] * 10)
        # A frame and a stream of each connection, and a frame of each answer.
        same(f"{what}: ignored", role["http3"]["ignored"], 20)

        what, capture, keys = "secrets", folder / "http3.pcap", folder / "keys.txt"
        with captured(capture, "udp port 443"):
            _, report, _ = get(2, "--requests", 2, "--key-log", keys)
        counted(what, report, "client", 2, 4)
        read = ["tshark", "-r", capture, "-o", f"tls.keylog_file:{keys}", "-Y", "quic"]
        fields = [
            "http3.frame_type",
            "quic.stream.stream_id",
            "_ws.malformed",
            "_ws.expert.severity",
        ]
        read += ["-T", "fields", *[word for name in fields for word in ("-e", name)]]
        packets = [line.split("\t") for line in run(*read).stdout.splitlines()]
        heads = {
            id for packet in packets if "1" in packet[0].split(",") for id in packet[1].split(",")
        }
        same(f"{what}: streams with heads", {"0", "4"} <= heads, True)
        error = str(0x00800000)
        wrong = [packet for packet in packets if packet[2] or error in packet[3].split(",")]
        same(f"{what}: malformed", wrong, [])
    print("ok: our clients and aioquic")


def quinn_server():
    """Build quinn_server, in a folder of its own: it is not of this workspace."""
    target = ROOT / "target/quinn"
    argv = ["cargo", "build", "--quiet", "--release", "--locked", "--target-dir", target]
    subprocess.run(argv, cwd=ROOT / "tests/interop/quinn_server", check=True)
    return target / "release/quinn-server"


def squall_clients_of_quinn(folder, program):
    octets, log = 30_000, folder / "quinn.log"
    argv = [program, "0.0.0.0", folder / "server.pem", folder / "server.key", octets]

    def get(what, count, requests, *more, name="plain", **options):
        """Run clients. Return their figures, and the counts of quinn."""
        url = f"https://{V4}:{PORTS[name]}/"
        with server(argv, log, lambda: "ready" in log.read_text()):
            more = [*more, "--requests", requests]
            report = clients(folder, url, octets, count, *more, **options)
        http3 = counted(what, report, "client", count, count * requests)["http3"]
        same(f"{what}: violations", http3["violations"], {})
        found = json.loads(log.read_text().splitlines()[-1])
        same(f"{what}: connections of quinn", found.pop("connections"), count)
        return http3, found

    nothing = {"retries": 0, "gets": 0, "posts": 0, "received": 0, "migrations": 0}
    what = "quinn, 1 % lost and out of order"
    http3, found = get(what, 10, 8, "--streams", 4, port=LOSSY)
    same(f"{what}: quinn says", found, {**nothing, "gets": 80})
    same(f"{what}: streams", http3["streams"], 80)

    what, settings = "quinn, bodies of 100 kB, after Version Negotiation", "reserved_version = true"
    http3, found = get(what, 5, 2, "--post", 100_000, port=LOSSY, settings=settings)
    same(f"{what}: quinn says", found, {**nothing, "posts": 10, "received": 1_000_000})
    same(f"{what}: figures", http3["version_negotiations"] >= 5, True)

    what, settings = "quinn, early data", "early_data = true, qpack_table = 4096"
    http3, found = get(what, 5, 3, users=1, settings=settings)
    same(f"{what}: quinn says", found, {**nothing, "gets": 15})
    same(f"{what}: figures", (http3["early_accepted"], http3["early_refused"]), (4, 0))

    for end in ["port", "address"]:
        what, settings = f"quinn, moves to another {end}", "migrate_after = 3, rebind_after = 5"
        http3, found = get(what, 5, 9, settings=f'{settings}, migrate_to = "{end}"')
        # quinn looks when a request ends: if that is late, two moves are one.
        found["migrations"] = 5 < found["migrations"] <= 20
        same(f"{what}: quinn says", found, {**nothing, "gets": 45, "migrations": True})
        same(f"{what}: figures", (http3["migrations"], http3["rebindings"]), (15, 5))

    what = "quinn, Retry"
    http3, found = get(what, 5, 1, name="retry")
    same(f"{what}: quinn says", found, {**nothing, "gets": 5, "retries": 5})
    same(f"{what}: figures", http3["retries"], 5)
    print("ok: our clients and quinn")


def squall_servers(folder):
    with Http3(folder, LOSSY, "qpack_table = 4096, retry = true", BODY) as served:
        found = served.fetch("requests")["requests"]
    what = "requests, 1 % lost and out of order, after Retry"
    expected = ["200", hash_of_body(BODY, FILLER)]
    same(what, found, {"answers": 40, "different": [expected]})
    http3 = counted(what, served.report, "server", 4)["http3"]
    same(f"{what}: figures", (http3["connections"], http3["streams"]), (4, 40))
    same(f"{what}: violations", http3["violations"], {})
    # One that is lost is sent again.
    same(f"{what}: packets of Retry", http3["retries"] >= 4, True)
    plain, coded = http3["head_octets_received"], http3["compressed_octets_received"]
    same(f"{what}: compressed to less than a third", coded * 3 < plain, True)

    address = ANOTHER.removeprefix("::ffff:")
    run("ip", "-n", REMOTE, "addr", "add", f"{address}/16", "dev", "vb")
    with Http3(folder, "af_packet:va", "early_data = true") as served:
        found = served.fetch("others")
    same("Version Negotiation", found["versions"], {"version": 1})
    same("early data", found["early"], {"resumed": True, "accepted": True})
    same("moves", found["moves"], [True] * 4)
    expected = {
        "a frame": "H3_FRAME_UNEXPECTED",
        "a stream": "H3_STREAM_CREATION_ERROR",
        "fields": "QPACK_DECOMPRESSION_FAILED",
        "a table": "QPACK_ENCODER_STREAM_ERROR",
    }
    same("what is forbidden", found["broken"], expected)
    role = served.report["flows"]["total"]["server"]
    http3, errors = role["http3"], role["protocol_errors"]
    same("flows", (role["completed"], role["failed"], errors), (8, {"unfinished": 4}, {"http3": 4}))
    same("Version Negotiation: figures", http3["version_negotiations"], 1)
    same("early data: figures", http3["early_accepted"], 1)
    moved = (http3["migrations"], http3["paths_failed"])
    same("moves: figures", moved, (4, 0))
    names = ["unexpected_frame", "stream_creation", "compression", "instruction"]
    same("what is forbidden: figures", http3["violations"], dict.fromkeys(names, 1))
    print("ok: our servers and aioquic")


def main():
    if os.geteuid() != 0:
        return print("SKIPPED: needs root")
    full = "--full" in sys.argv
    for tool in ["openssl", "tcpdump", "tshark", *(["cargo"] if full else [])]:
        if shutil.which(tool) is None:
            return print(f"SKIPPED: needs {tool}")
    if importlib.util.find_spec("aioquic") is None:
        return print("SKIPPED: needs the Python package aioquic")
    with tempfile.TemporaryDirectory(prefix="squall-http3-") as name:
        folder = pathlib.Path(name)
        try:
            certificate(folder)
            program = quinn_server() if full else None
            network()
            squall_clients(folder)
            squall_servers(folder)
            if program:
                squall_clients_of_quinn(folder, program)
        except Failed as failed:
            sys.exit(f"FAILED: {failed}")
        finally:
            for namespace in [LOCAL, REMOTE]:
                subprocess.run(["ip", "netns", "del", namespace], check=False)


if __name__ == "__main__":
    main()

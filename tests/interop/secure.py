#!/usr/bin/env python3
"""Attacks the daemon from its network: no token and wrong ones, leases of other users, paths
outside its directory, malformed and endless requests (HTTP, WebSocket, gRPC, TLS), peers that send
nothing or one octet at a time, more connections than it accepts, pages of other origins; and
schemathesis on its API description. Each attack is refused, no secret leaks, the daemon's memory
stays small, and another user's traffic is not affected. Everything runs in a lab; grpcio is that of
target/otg/snappi-1.62.0, schemathesis that of target/otg/schemathesis (scripts/setup otg). An
argument names a single step.
"""

import base64
import contextlib
import http.client
import json
import os
import pathlib
import random
import re
import resource
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
import traceback
import warnings

from tools import Failed, in_a_lab, slowness

ROOT = pathlib.Path(__file__).resolve().parents[2]
SQUALL = os.path.abspath(os.environ.get("SQUALL", str(ROOT / "target/debug/squall")))
GRPC_PYTHON = ROOT / "target/otg/snappi-1.62.0/bin/python"
SCHEMATHESIS = ROOT / "target/otg/schemathesis/bin/schemathesis"
SEED = int(os.environ.get("SEED", "7"))
HOST = "192.0.2.1"
API = "/squall/v1"
RATE = 1000
JSON = {"content-type": "application/json"}
OCTETS = {"content-type": "application/octet-stream"}
# The name of alice's stream, which clients without a right to the run must not see.
SECRET = "a-stream-of-alice"
# Seconds within which a client must present the token, whatever it sends.
TIMEOUT_S = 15
CONNECTIONS = 1024


def expect(good, what):
    if not good:
        raise Failed(what)


# Errors of the current step. The step continues after an error, because later checks may fail as
# well.
wrong = []


def check(good, what):
    if not good:
        wrong.append(what)


def profile(a, b=None, name="s", rate=RATE):
    ports = f'[ports]\nA = "{a}"\n' + (f'B = "{b}"\n' if b else "")
    # Only the number of frames is checked: a machine under attack does not send evenly.
    stream = f'name = "{name}"\nport = "A"\npacket = "eth/ipv4/udp"\nrate = "{rate} pps"\nlatency = true\nlate = "catch-up"\n'
    return f"{ports}[[stream]]\n{stream}"


class Reply:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)

    def code(self):
        try:
            return self.json()["error"]["code"]
        except (ValueError, KeyError, TypeError):
            return None

    def __str__(self):
        return f"{self.status} {self.body[:300]!r}"


class Daemon:
    def __init__(self, folder, *options, tls=True):
        self.data, self.tls = pathlib.Path(folder), tls
        self.stderr_text = open(self.data.with_suffix(".said"), "w+")
        serve = [
            SQUALL,
            "serve",
            "--data",
            str(folder),
            "--json",
            *([] if tls else ["--plain"]),
            *options,
        ]
        # The usual limit on open files in shells and services.
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        few = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, hard), hard))  # noqa: E731
        self.process = subprocess.Popen(
            serve, stdout=subprocess.PIPE, stderr=self.stderr_text, text=True, preexec_fn=few
        )
        line = self.process.stdout.readline()
        expect(line.startswith("{"), f"the daemon does not start: {line}{self.words()}")
        bound = json.loads(line)
        host, port = bound["https"].split("://")[1].rsplit(":", 1)
        self.at, self.name = (host, int(port)), f"{host}:{port}"
        grpc = bound["grpc"] and bound["grpc"].rsplit(":", 1)
        self.grpc = grpc and (grpc[0], int(grpc[1]))
        self.token = pathlib.Path(bound["token_file"]).read_text().strip()
        self.needs_token = bound["token_required"]
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.context.check_hostname, self.context.verify_mode = False, ssl.CERT_NONE
        key = self.data / "key.pem"
        self.secrets = [
            self.token.encode(),
            f"{self.data}/".encode(),
            b"/src/",
            b"panicked at",
            b"RUST_BACKTRACE",
        ]
        if key.exists():
            self.secrets.append(key.read_text().splitlines()[1].encode())

    def words(self):
        self.stderr_text.seek(0)
        return self.stderr_text.read()

    def connect(self, timeout=10, at=None, tls=None):
        plain = socket.create_connection(at or self.at, timeout)
        return self.context.wrap_socket(plain) if (self.tls if tls is None else tls) else plain

    def headers(self, token=True):
        return {"authorization": f"Bearer {self.token}"} if token and self.needs_token else {}

    def ask(self, method, path, body=None, headers=None, token=True, timeout=20, sock=None):
        """Send `path` and `headers` unchanged. Checks that the answer contains no secret."""
        if isinstance(body, (dict, list)):
            body, headers = json.dumps(body).encode(), {**JSON, **(headers or {})}
        headers = {
            "host": self.name,
            "connection": "close",
            **self.headers(token),
            **(headers or {}),
        }
        if body is not None and "transfer-encoding" not in headers:
            headers.setdefault("content-length", str(len(body)))
        head = (
            f"{method} {path} HTTP/1.1\r\n"
            + "".join(f"{k}: {v}\r\n" for k, v in headers.items() if v is not None)
            + "\r\n"
        )
        own = sock is None
        sock = sock or self.connect(timeout)
        try:
            try:
                sock.sendall(head.encode("latin-1") + (body or b""))
            except OSError:
                pass  # A server that refuses early stops reading.
            return self.reply(sock, method)
        finally:
            if own:
                sock.close()

    def reply(self, sock, method="GET"):
        response = http.client.HTTPResponse(sock, method=method)
        response.begin()
        got = Reply(
            response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()
        )
        self.clean(got)
        return got

    def clean(self, reply):
        answer = reply.body + repr(reply.headers).encode()
        for secret in self.secrets:
            check(
                secret not in answer,
                f"{secret!r} in an answer: {answer[max(0, answer.find(secret) - 200) :][:500]!r}",
            )
        check(reply.status < 500, f"an answer of {reply}")

    def status(self):
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        number = lambda key: int(re.search(rf"^{key}:\s+(\d+)", text, re.MULTILINE)[1])  # noqa: E731
        return {
            "MiB": number("VmRSS") // 1024,
            "most MiB": number("VmHWM") // 1024,
            "threads": number("Threads"),
            "files": len(os.listdir(f"/proc/{self.process.pid}/fd")),
        }

    def cpu_s(self):
        """Return the CPU seconds of the process without those of threads that send and receive,
        which may spin.
        """

        def ticks(folder):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            return int(fields[11]) + int(fields[12])

        process = pathlib.Path(f"/proc/{self.process.pid}")
        used = ticks(process)
        for thread in (process / "task").iterdir():
            with contextlib.suppress(OSError):
                if re.fullmatch(r"squall-\d+", (thread / "comm").read_text().strip()):
                    used -= ticks(thread)
        return used / os.sysconf("SC_CLK_TCK")

    def alive(self):
        expect(
            self.process.poll() is None,
            f"the daemon ended with {self.process.poll()}: {self.words()[-2000:]}",
        )

    def until(self, path, good, timeout_s=60):
        deadline = time.monotonic() + timeout_s
        while True:
            found = self.ask("GET", path).json()
            if good(found):
                return found
            expect(time.monotonic() < deadline, f"{path} after {timeout_s} s: {str(found)[:500]}")
            time.sleep(0.1)

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()


class WebSocket:
    """The part of a WebSocket client that these steps need."""

    def __init__(self, daemon, query, headers=None, token=True, receive=None):
        self.sock = daemon.connect()
        if receive:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
        key = base64.b64encode(random.randbytes(16)).decode()
        upgrade = {
            "connection": "upgrade",
            "upgrade": "websocket",
            "sec-websocket-version": "13",
            "sec-websocket-key": key,
        }
        wanted = {"host": daemon.name, **daemon.headers(token), **upgrade, **(headers or {})}
        head = (
            f"GET {API}/watch?{query} HTTP/1.1\r\n"
            + "".join(f"{k}: {v}\r\n" for k, v in wanted.items())
            + "\r\n"
        )
        self.sock.sendall(head.encode())
        self.rest = b""
        while b"\r\n\r\n" not in self.rest:
            more = self.sock.recv(65536)
            if not more:
                break
            self.rest += more
        head, _, self.rest = self.rest.partition(b"\r\n\r\n")
        self.status = int(head.split(b" ")[1])

    def send_text(self, text):
        self.frame(0x81, text.encode())

    def frame(self, first, data, mask=b"\1\2\3\4"):
        length = len(data)
        size = bytes([0x80 | length]) if length < 126 else struct.pack("!BH", 0xFE, length)
        self.sock.sendall(
            bytes([first])
            + size
            + mask
            + bytes(octet ^ mask[i % 4] for i, octet in enumerate(data))
        )

    def take(self, count):
        while len(self.rest) < count:
            more = self.sock.recv(65536)
            if not more:
                raise EOFError
            self.rest += more
        taken, self.rest = self.rest[:count], self.rest[count:]
        return taken

    def receive_json(self):
        while True:
            first, length = self.take(2)
            if length == 126:
                length = struct.unpack("!H", self.take(2))[0]
            elif length == 127:
                length = struct.unpack("!Q", self.take(8))[0]
            data = self.take(length)
            if first & 15 == 8:
                raise EOFError
            if first & 15 == 1:
                return json.loads(data)

    def until(self, kind, timeout_s=60):
        self.sock.settimeout(timeout_s)
        while (message := self.receive_json())["type"] != kind:
            pass
        return message

    def close(self):
        self.sock.close()


class Alice:
    """A user who sends continuously at a given rate, and renews the lease."""

    def __init__(self, daemon):
        self.daemon = daemon
        lease = daemon.ask(
            "POST",
            f"{API}/leases",
            {"ports": ["af_packet:veth-a", "af_packet:veth-b"], "owner": "alice", "ttl_s": 20},
        )
        expect(lease.status == 201, f"alice's lease: {lease}")
        self.lease = lease.json()["id"]
        new = {
            "profile": profile("af_packet:veth-a", "af_packet:veth-b", SECRET),
            "owner": "alice",
            "lease": self.lease,
        }
        run = daemon.ask("POST", f"{API}/runs", new)
        expect(run.status == 201, f"alice's run: {run}")
        self.run = run.json()["run"]["id"]
        self.over, self.missed, self.longest = threading.Event(), [], 0
        self.threads = [
            threading.Thread(target=self.renew, daemon=True),
            threading.Thread(target=self.look, daemon=True),
        ]
        for thread in self.threads:
            thread.start()

    def renew(self):
        while not self.over.wait(1):
            try:
                got = self.daemon.ask("POST", f"{API}/leases/{self.lease}/renew", timeout=5)
                if got.status != 200:
                    self.missed.append(str(got))
            except (OSError, http.client.HTTPException):
                pass  # No connection is free at the moment: the lease has 20 s left.

    def look(self):
        """Update the longest time without a frame on the interface."""
        counter = pathlib.Path("/sys/class/net/veth-a/statistics/tx_packets")
        # Count polls at intervals of 20 ms instead of time: a machine that is stopped meanwhile
        # does not poll either.
        last, looks = counted(counter), None
        while not self.over.wait(0.02):
            now = counted(counter)
            if now != last:
                last, looks = now, 0
            elif looks is not None:
                looks += 1
                self.longest = max(self.longest, looks * 0.02)

    def end(self):
        lease = self.daemon.ask("GET", f"{API}/leases/{self.lease}").json()
        expect(
            (lease["owner"], lease["ending"], lease["runs"]) == ("alice", False, [self.run]),
            f"alice's lease is {lease}",
        )
        row = self.daemon.ask("GET", f"{API}/runs/{self.run}").json()
        expect(row["state"] == "running", f"alice's run is {row}")
        self.over.set()
        for thread in self.threads:
            thread.join()
        self.daemon.ask("POST", f"{API}/runs/{self.run}/stop")
        row = self.daemon.until(f"{API}/runs/{self.run}", lambda row: row["state"] == "done")
        expect(
            row["error"] is None and not self.missed,
            f"alice's run ended with {row}; renewals: {self.missed}",
        )
        report = self.daemon.ask("GET", f"{API}/runs/{self.run}/report").json()
        seconds, (stream,) = report["duration_s"], report["streams"]
        sent, rx = stream["tx_packets"], stream["rx"]
        expect(
            0.98 <= sent / (seconds * RATE) <= 1.02,
            f"alice sent {sent} in {seconds} s at {RATE} a second",
        )
        # On a busy machine the receiver may lose frames for a while; the report then counts them as
        # drops of its port.
        dropped = sum(sum(port["rx"]["drops"].values()) for port in report["ports"])
        lost = (rx["packets"], rx["lost"], rx["duplicates"], rx["reordered"])
        expect(
            rx["lost"] <= min(dropped, 0.05 * sent)
            and lost == (sent - rx["lost"], rx["lost"], 0, 0),
            f"of alice's {sent} frames came, were lost, twice, late: {lost}; dropped: {dropped}",
        )
        # More than a busy machine causes, and less than an attack would.
        check(self.longest < 2, f"alice's traffic paused for {self.longest:.2f} s")
        return f"{sent} frames in {seconds:.0f} s, {rx['lost']} lost at the receiver, the longest pause {self.longest * 1000:.0f} ms"


def counted(path):
    return int(path.read_text())


# The steps. `d` needs a token; `local` is on loopback and needs none.


def no_answer_without_the_token(d, local, alice):
    token = d.token
    paths = [
        f"{API}/{what}"
        for what in [
            "runs",
            f"runs/{alice.run}",
            f"runs/{alice.run}/report",
            "leases",
            "files",
            "requests",
        ]
    ]
    for path in [
        *paths,
        f"{API}/openapi.json",
        f"{API}/watch",
        "/metrics",
        "/config",
        "/otg/alice/config",
        f"{API}/no",
        "/no",
    ]:
        got = d.ask("GET", path, token=False)
        check(
            (got.status, got.code()) == (401, "unauthorized") and SECRET.encode() not in got.body,
            f"{path}: {got}",
        )
    others = [
        {"authorization": f"Bearer {value}"}
        for value in [
            "",
            "x",
            "0" * 64,
            token[:-1],
            token + "0",
            token[1:],
            token.upper() + "x",
            token * 2,
            f"{token},{token}",
            f"x {token}",
            "\xe9" * 64,
            f"Bearer {token}",
            "A" * 60_000,
        ]
    ]
    others += [
        {"authorization": token},
        {"authorization": "Basic " + base64.b64encode(f":{token}".encode()).decode()},
        {"authorization": f"Token {token}"},
        {"x-authorization": f"Bearer {token}"},
        {"proxy-authorization": f"Bearer {token}"},
        {"cookie": f"squall={token}"},
        {"cookie": f"token={token}; authorization=Bearer {token}"},
        {"x-api-key": token},
    ]
    for headers in others:
        got = d.ask("GET", f"{API}/runs", headers=headers, token=False)
        check(got.status == 401, f"{str(headers)[:200]}: {got}")
    for path in [
        f"{API}/runs?token={token}",
        f"{API}/runs?access_token={token}",
        f"{API}/runs?authorization=Bearer%20{token}",
    ]:
        # Answers never contain the token, and the log has paths without query strings.
        check(d.ask("GET", path, token=False).status == 401, f"the token in a query: {path[:40]}")
    got = d.ask("POST", f"{API}/runs/{alice.run}/stop", {}, token=False)
    check(got.status == 401, f"stop: {got}")
    for body in [
        {"token": ""},
        {"token": "0" * 64},
        {"token": token[:-1]},
        {},
        [],
        {"token": None},
        {"token": [token]},
    ]:
        got = d.ask("POST", f"{API}/login", body, token=False)
        check(
            got.status in (400, 401) and "set-cookie" not in got.headers,
            f"login with {str(body)[:40]}: {got}",
        )
    cookie = d.ask("POST", f"{API}/login", {"token": token}, token=False).headers["set-cookie"]
    check(
        all(word in cookie for word in ["HttpOnly", "SameSite=Strict", "Secure", "Path=/"]), cookie
    )
    cookie = {"cookie": cookie.split(";")[0]}
    check(
        d.ask("GET", f"{API}/runs", headers=cookie, token=False).status == 200,
        "the cookie of a login",
    )
    d.ask("POST", f"{API}/logout", headers=cookie, token=False)
    check(
        d.ask("GET", f"{API}/runs", headers=cookie, token=False).status == 401,
        "a cookie that was given back",
    )
    for headers in [{}, {"authorization": "Bearer " + "0" * 64}, {"sec-websocket-protocol": token}]:
        socket_of_none = WebSocket(d, "runs=all", headers, token=False)
        socket_of_none.close()
        check(
            socket_of_none.status == 401,
            f"a WebSocket with {str(headers)[:60]}: {socket_of_none.status}",
        )
    for name in ["token", "key.pem", "history.sqlite", "lock"]:
        mode = (d.data / name).stat().st_mode & 0o777
        check(
            mode & (0o077 if name in ("token", "key.pem") else 0o022) == 0,
            f"{name} has mode {mode:o}",
        )
    for folder in [d.data]:
        check(
            folder.stat().st_mode & 0o077 == 0,
            f"{folder.name} has mode {folder.stat().st_mode & 0o777:o}",
        )
    # The daemon's message about a token file that others can read.
    bad = d.data.parent / "bad-token"
    bad.write_text("0" * 64)
    bad.chmod(0o644)
    serve = [
        SQUALL,
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--grpc",
        "off",
        "--data",
        str(d.data.parent / "bad"),
        "--token",
        str(bad),
    ]
    done = subprocess.run(serve, capture_output=True, text=True, timeout=10)
    check(
        done.returncode == 3 and "chmod 600" in done.stderr and "0" * 64 not in done.stderr,
        f"{done.returncode}: {done.stderr}",
    )
    log = d.ask("GET", f"{API}/requests?limit=1000")
    check(b"Bearer" not in log.body, "the log has tokens")


# Raw gRPC calls by a stock library, whose payload need not be a message.
GRPC = r"""
import json, os, random, sys, grpc
where, token, seed = sys.argv[1], os.environ["SQUALL_TOKEN"], int(sys.argv[2])
channel = grpc.insecure_channel(where, options=[("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)])
def call(method, data=b"", token=None, compression=None, **metadata):
    name = "/" + method if "/" in method else "/otg.Openapi/" + method
    ask = channel.unary_unary(name, request_serializer=lambda x: x, response_deserializer=lambda x: x)
    meta = [(k.replace("_", "-"), v) for k, v in metadata.items()]
    if token is not None: meta.append(("authorization", token))
    try:
        return ["OK", ask(data, metadata=meta, timeout=20, compression=compression).hex()[:2000]]
    except grpc.RpcError as error:
        return [error.code().name, error.details()[:2000]]
right, out = "Bearer " + token, {}
def tell(name, *a, **k): out[name] = call(*a, **k)
if sys.argv[3] == "token":
    tell("right", "GetVersion", token=right)
    wrong = {"none": None, "wrong": "Bearer " + "0" * 64, "short": right[:-1], "long": right + "0", "bare": token, "empty": ""}
    for name, value in wrong.items():
        tell(name, "GetConfig", token=value)
    tell("elsewhere", "GetConfig", token_=token, squall_token=token, cookie="squall=" + token)
    tell("stop", "SetControlState", b"\x0a\x00", squall_session="alice")
    tell("reflection", "grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
else:
    of = dict(token=right, squall_session="mallory")
    dice = random.Random(seed)
    varint = lambda n: bytes([n & 127 | 128]) + varint(n >> 7) if n > 127 else bytes([n])
    def nested(depth, tag=0x0a):
        data = b""
        for _ in range(depth): data = bytes([tag]) + varint(len(data)) + data
        return data
    for i in range(30):
        method = dice.choice(["SetConfig", "SetControlState", "GetMetrics", "GetCapture", "UpdateConfig"])
        tell(f"may random {i}", method, dice.randbytes(dice.choice([1, 10, 1000, 50_000])), **of)
        method, inner = dice.choice(["SetConfig", "SetControlState", "GetMetrics"]), dice.randbytes(dice.choice([1, 20, 2000]))
        tell(f"may wrapped {i}", method, b"\x0a" + varint(len(inner)) + inner, **of)
    for name, data in {
        "truncated": b"\x0a\x40abc", "long": b"\x0a\xff\xff\xff\xff\x0f", "longer": b"\x0a" + b"\xff" * 9 + b"\x01",
        "endless varint": b"\x0a" + b"\xff" * 64,
        "groups": b"\x0b" * 100_000, "field 0": b"\x02\x00", "wire 7": b"\x0f", "wire 6": b"\x0e\x00",
    }.items():
        tell(name, "SetConfig", data, **of)
    for depth in (90, 200, 20_000): tell(f"may nested {depth}", "SetConfig", nested(depth), **of)
    tell("not UTF-8", "SetConfig", b"\x0a\x08\x0a\x06\x0a\x04\xff\xfe\xfd\xfc", **of)
    tell("large", "SetConfig", b"\x0a" + varint(70 << 20) + bytes(70 << 20), **of)
    tell("bomb", "SetConfig", b"\x0a" + varint(100 << 20) + bytes(100 << 20), compression=grpc.Compression.Gzip, **of)
    tell("session", "GetConfig", token=right, squall_session="../alice")
    tell("sessions", "GetConfig", token=right, squall_session="x" * 4000)
    tell("method", "../GetConfig", token=right)
    tell("no method", "Nothing", token=right)
    tell("right", "GetVersion", token=right)
print(json.dumps(out))
"""


def by_grpc(d, what):
    if not GRPC_PYTHON.exists():
        print("SKIPPED: no grpcio: scripts/setup otg")
        return {}
    command = [str(GRPC_PYTHON), "-c", GRPC, f"{d.grpc[0]}:{d.grpc[1]}", str(SEED), what]
    # Passed in the environment, because all users can read arguments.
    environment = {**os.environ, "SQUALL_TOKEN": d.token, "GRPC_VERBOSITY": "NONE"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    expect(done.returncode == 0, f"gRPC: {done.stderr[-2000:]}")
    d.clean(Reply(200, {}, done.stdout.encode()))
    found = json.loads(done.stdout)
    check(found.pop("right")[0] == "OK", "a call with the token")
    return found


def grpc_wants_the_token_too(d, local, alice):
    for name, (code, answer) in by_grpc(d, "token").items():
        check(
            code == "UNAUTHENTICATED" and SECRET not in answer,
            f"gRPC, token {name}: {code} {answer}",
        )


def what_is_no_protobuf_is_refused(d, local, alice):
    for name, (code, answer) in by_grpc(d, "broken").items():
        refused = code in (
            "INVALID_ARGUMENT",
            "OUT_OF_RANGE",
            "RESOURCE_EXHAUSTED",
            "UNIMPLEMENTED",
        )
        # Random octets may be a message with unknown fields.
        check(
            refused or (name.startswith("may ") and code == "OK"), f"gRPC, {name}: {code} {answer}"
        )


def h2(kind, flags, stream, data=b"", length=None):
    return (
        struct.pack("!I", len(data) if length is None else length)[1:]
        + bytes([kind, flags])
        + struct.pack("!I", stream)
        + data
    )


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + h2(4, 0, 0)


def hpack(**fields):
    """Encode literals without indexing; `_` stands for the colon."""
    out = b""
    for name, value in fields.items():
        name, value = (
            name.replace("_", ":", 1) if name.startswith("_") else name.replace("_", "-"),
            value,
        )
        out += b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
    return out


def head_of_grpc(d):
    return hpack(
        _method="POST",
        _scheme="http",
        _path="/otg.Openapi/GetConfig",
        _authority=d.name,
        content_type="application/grpc",
        te="trailers",
    )


def frames_of_http2_that_are_wrong(d, local, alice):
    head = head_of_grpc(d)
    dice = random.Random(SEED)
    attacks = {
        "another preface": b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n",
        "settings too long": PREFACE + h2(4, 0, 0, bytes(6), length=0xFFFFFF),
        "settings of no length": PREFACE + h2(4, 0, 0, bytes(5)),
        "a window of none": PREFACE + h2(8, 0, 0, bytes(4)),
        "a window too large": PREFACE + h2(8, 0, 0, b"\x7f\xff\xff\xff") * 2,
        "data of no stream": PREFACE + h2(0, 0, 0, b"x"),
        "data of an idle stream": PREFACE + h2(0, 0, 7, b"x"),
        "an even stream": PREFACE + h2(1, 5, 2, head),
        "headers that are none": PREFACE + h2(1, 5, 1, b"\xff" * 200),
        "an index of no header": PREFACE + h2(1, 5, 1, b"\xff\xff\xff\xff\x0f"),
        "continuation without headers": PREFACE + h2(9, 4, 1, head),
        "headers cut by another stream": PREFACE + h2(1, 1, 1, head) + h2(1, 5, 3, head),
        "endless continuation": PREFACE
        + h2(1, 1, 1, head)
        + h2(9, 0, 1, hpack(a="b" * 120) * 100) * 400,
        "resets": PREFACE
        + b"".join(h2(1, 5, n, head) + h2(3, 0, n, bytes(4)) for n in range(1, 20_000, 2)),
        "pings": PREFACE + h2(6, 0, 0, bytes(8)) * 20_000,
        "settings again and again": PREFACE + h2(4, 0, 0, b"\0\4\0\0\xff\xff") * 20_000,
        "empty data": PREFACE + h2(1, 4, 1, head) + h2(0, 0, 1) * 50_000,
        "a padding longer than its frame": PREFACE + h2(1, 0xD, 1, b"\xff" + head),
        "unknown frames": PREFACE + h2(0xEE, 0xFF, 1, b"x" * 100) * 1000,
        "chance": dice.randbytes(20_000),
        "preface, chance": PREFACE + dice.randbytes(20_000),
        "TLS on a port without": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
        + dice.randbytes(500),
    }
    for name, data in attacks.items():
        sock = d.connect(5, d.grpc, tls=False)
        try:
            sock.settimeout(2)
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            got = b""
            while more := sock.recv(65536):
                got += more
                check(len(got) < 8 << 20, f"{name}: {len(got)} octets came back")
            d.clean(Reply(200, {}, got))
        except OSError:
            pass  # It closed the connection early.
        finally:
            sock.close()
        d.alive()
    # A page of another origin that has found the port.
    for kind in ["text/plain", "application/x-www-form-urlencoded"]:
        sock = local.connect(5, local.grpc, tls=False)
        got = local.ask(
            "POST", "/otg.Openapi/SetControlState", b"\0\0\0\0\0", {"content-type": kind}, sock=sock
        )
        sock.close()
        check(got.status == 415, f"gRPC as {kind}: {got}")


def leases_that_are_over_do_nothing(d, local, alice):
    new = lambda owner, ttl: d.ask(
        "POST", f"{API}/leases", {"ports": ["loop:x"], "owner": owner, "ttl_s": ttl}
    )  # noqa: E731
    # The next request needs the lease, and a busy machine takes long for it.
    old = new("bob", 3).json()["id"]
    body = {"profile": profile("loop:x"), "owner": "bob", "lease": old}
    run = d.ask("POST", f"{API}/runs", body).json()["run"]["id"]
    # Polling the list of leases renews none of them.
    d.until(
        f"{API}/leases", lambda all_of: not any(lease["id"] == old for lease in all_of["leases"])
    )
    row = d.until(f"{API}/runs/{run}", lambda row: row["state"] == "interrupted")
    check("lease has expired" in row["error"], f"the run of an expired lease: {row}")
    carol = new("carol", 60)
    check(carol.status == 201, f"the port of an expired lease: {carol}")
    carols = d.ask(
        "POST", f"{API}/runs", {**body, "owner": "carol", "lease": carol.json()["id"]}
    ).json()["run"]["id"]
    gone = {
        "renewed": d.ask("POST", f"{API}/leases/{old}/renew"),
        "looked at": d.ask("GET", f"{API}/leases/{old}"),
        "given back": d.ask("DELETE", f"{API}/leases/{old}"),
        "used": d.ask("POST", f"{API}/runs", body),
        "used for a capture": d.ask("POST", f"{API}/captures", {"ports": ["loop:x"], "lease": old}),
    }
    for what, got in gone.items():
        check((got.status, got.code()) == (404, "not_found"), f"an expired lease is {what}: {got}")
    for what, body in {
        "pause": {},
        "resume": {},
        "rate": {"mult": 2},
        "change": {"profile": profile("loop:x")},
    }.items():
        got = d.ask("POST", f"{API}/runs/{run}/{what}", body)
        check((got.status, got.code()) == (409, "run_over"), f"{what} of a run that is over: {got}")
    watch = WebSocket(d, "runs=all")
    watch.send_text(json.dumps({"type": "renew", "lease": old}))
    check(old in watch.until("error")["error"]["message"], "renewed by a WebSocket")
    watch.close()
    d.ask("POST", f"{API}/runs/{run}/stop")
    check(
        d.ask("GET", f"{API}/runs/{carols}").json()["state"] == "running",
        "carol's run was stopped by bob's old lease",
    )
    check(
        d.ask("DELETE", f"{API}/leases/{carol.json()['id']}").status == 204, "carol gives hers back"
    )
    for lease in [
        "l-0",
        "l-99999999999999999999999",
        "../leases",
        "l-1%00",
        "",
        "%2e%2e",
        "l-" + "1" * 5000,
    ]:
        got = d.ask("POST", f"{API}/leases/{lease}/renew")
        check(got.status in (400, 404, 405), f"lease {lease[:30]}: {got}")


def ports_of_other_users_are_protected(d, local, alice):
    interfaces = [
        "veth-a",
        "af_packet:veth-a",
        "af_packet:veth-a,blocks=8",
        "af_xdp:veth-a",
        "xdp_live:veth-a",
    ]
    # Another name of the same interface is the same port.
    altname = subprocess.run(
        ["ip", "link", "property", "add", "dev", "veth-a", "altname", "another"],
        capture_output=True,
    )
    if altname.returncode == 0:
        interfaces += ["another", "af_packet:another"]
    for address in interfaces:
        if "another" not in address:
            got = d.ask("POST", f"{API}/leases", {"ports": [address], "owner": "mallory"})
            check((got.status, got.code()) == (409, "port_in_use"), f"a lease of {address}: {got}")
        got = d.ask("POST", f"{API}/runs", {"profile": profile(address), "owner": "alice"})
        check(
            got.status >= 400 and ("another" in address or got.code() == "port_in_use"),
            f"a run on {address}: {got}",
        )
        got = d.ask("POST", f"{API}/captures", {"ports": [address]})
        check(
            got.status >= 400 and ("another" in address or got.code() == "port_in_use"),
            f"a capture on {address}: {got}",
        )
    got = d.ask(
        "POST", f"{API}/runs", {"profile": {"ports": {"A": "veth-a"}, "replay": [{"files": []}]}}
    )
    check(got.status in (400, 409), f"a replay: {got}")
    own = d.ask("POST", f"{API}/runs", {"profile": profile("loop:m"), "owner": "mallory"}).json()[
        "run"
    ]
    for text in [profile("af_packet:veth-a"), profile("loop:m", "af_packet:veth-b")]:
        got = d.ask("POST", f"{API}/runs/{own['id']}/change", {"profile": text})
        check(got.status in (400, 409), f"a run is changed to ports of another: {got}")
    got = d.ask("POST", f"{API}/runs", {"profile": profile("veth-a"), "lease": own["lease"]})
    check(got.status in (404, 409), f"a lease that does not hold the port: {got}")
    d.ask("POST", f"{API}/runs/{own['id']}/stop")
    for session in ["mallory", "alice"]:
        config = {"ports": [{"name": "p", "location": "veth-a"}]}
        config["flows"] = [{"name": "f", "tx_rx": {"choice": "port", "port": {"tx_name": "p"}}}]
        got = d.ask("POST", f"/otg/{session}/config", config)
        start = {
            "choice": "traffic",
            "traffic": {"choice": "flow_transmit", "flow_transmit": {"state": "start"}},
        }
        started = d.ask("POST", f"/otg/{session}/control/state", start)
        check(
            got.status == 400 and b"held by alice" in got.body,
            f"OTG on a port of alice: {got}, {started}",
        )
        d.ask("POST", f"/otg/{session}/config", {})
    for session in ["a%2fb", "a/b", "x" * 65, "a%00", "%ff"]:
        got = d.ask("GET", f"/otg/{session}/config")
        check(got.status in (400, 404), f"session {session}: {got}")
    got = d.ask("DELETE", f"{API}/runs/{alice.run}")
    check((got.status, got.code()) == (409, "run_live"), f"a run that goes on is removed: {got}")


def a_name_gives_no_power_over_a_session_of_otg(d, local, alice):
    """Check that a session is identified by its connections, not by the name that a client
    sends."""
    keep = d.connect()
    flow = {
        "name": "f",
        "tx_rx": {"choice": "port", "port": {"tx_name": "p"}},
        "rate": {"choice": "pps", "pps": 500},
    }
    config = {"ports": [{"name": "p", "location": "loop:dave"}], "flows": [flow]}
    start = {
        "choice": "traffic",
        "traffic": {"choice": "flow_transmit", "flow_transmit": {"state": "start"}},
    }
    for path, body in [("config", config), ("control/state", start)]:
        got = d.ask("POST", f"/otg/dave/{path}", body, {"connection": "keep-alive"}, sock=keep)
        check(got.status == 200, f"dave's {path}: {got}")
    for owner in ["otg/dave", "otg dave", "otgdave", "otg"]:
        new = d.ask("POST", f"{API}/leases", {"ports": ["loop:spoof"], "owner": owner, "ttl_s": 60})
        if new.status == 201:
            d.ask("DELETE", f"{API}/leases/{new.json()['id']}")
    time.sleep(1)
    runs = d.ask("GET", f"{API}/runs?state=live&kind=otg").json()["runs"]
    check(
        [run["state"] for run in runs] == ["running"],
        f"who calls himself otg/dave has stopped dave's traffic: {runs}",
    )
    d.ask("POST", "/otg/dave/config", {}, sock=keep)
    keep.close()


OUT = [
    "../token",
    "..",
    ".",
    "/etc/passwd",
    "a/../../token",
    "./../token",
    "a/./../../token",
    "link",
    "up/token",
    "nowhere",
    "a\0b",
    "a" * 600,
    "/".join(["a"] * 400),
    "a" * 256,
    "",
    "//etc/passwd",
    "up/files/../token",
    "C:\\x",
    "..\\token",
]


def escaped(name):
    every = "".join(f"%{octet:02x}" for octet in name.encode())
    return [
        every,
        every.replace("%2e", "."),
        name.replace("..", "%2e%2e").replace("/", "%2f").replace("\0", "%00"),
        name.replace("..", "%252e%252e"),
        name.replace("..", "%c0%ae%c0%ae"),
    ]


def paths_lead_nowhere_else(d, local, alice):
    files = d.data / "files"
    for name, target in {
        "link": d.data / "token",
        "up": d.data,
        "nowhere": "/nowhere/at/all",
        "root": "/",
    }.items():
        (files / name).symlink_to(target)
    os.mkfifo(files / "pipe")
    mine = sorted(path.name for path in files.iterdir())
    outside = {
        path.name: path.stat().st_mtime_ns
        for path in d.data.iterdir()
        if path.name in ("token", "key.pem", "cert.pem")
    }
    token, passwd = d.token.encode(), b"root:"

    def refused(what, got):
        check(got.status in (400, 401, 403, 404, 405, 413, 414, 422, 431), f"{what[:120]!r}: {got}")
        check(token not in got.body and passwd not in got.body, f"{what[:120]!r}: {got}")

    for name in [*OUT, "pipe", "root/etc/passwd"]:
        for form in {*escaped(name), name.replace("\0", "%00").replace("\\", "%5c")}:
            for method, path in [
                ("GET", f"files/{form}"),
                ("PUT", f"files/{form}"),
                ("DELETE", f"files/{form}"),
                ("GET", f"captures/{form}/packets"),
                ("GET", f"captures/{form}/packets/1"),
            ]:
                inside = method == "PUT" and (
                    name in ("C:\\x", "..\\token", "pipe", "nowhere")
                    or "%25" in form
                    or set(form) <= set("a/")
                )
                if inside:
                    continue  # Here these are ordinary names; a pipe is replaced.
                refused(
                    f"{method} {path}",
                    d.ask(method, f"{API}/{path}", b"x" if method == "PUT" else None, OCTETS),
                )
    for target in [
        "/../../../etc/passwd",
        "/assets/../../../etc/passwd",
        "/assets/..%2f..%2f..%2fCargo.toml",
        "/assets/%2e%2e/index.html",
        "/assets/%2fetc%2fpasswd",
        "/assets//etc/passwd",
        "/squall.svg/../../x",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/assets/%00",
        "/assets/%ff",
        f"{API}/runs/..%2f..%2ftoken",
        f"{API}/runs/%00",
        f"{API}/runs/../../token/report",
        f"{API}/attacks/jobs/%2e%2e",
    ]:
        refused(target, d.ask("GET", target))
    for name in OUT + ["root/etc/passwd"]:
        if name in ("a" * 256, "C:\\x", "..\\token"):
            continue
        attack = f'[ports]\nA = "null:"\n[[attack]]\nname = "a"\nrate = 1\nrules = [{json.dumps(name)}]\n'
        bodies = {
            "runs": [
                {
                    "profile": profile(f"pcap:{name}".replace("\0", "\\u0000")),
                    "options": {"packets": 1},
                },
                {"profile": profile(f"pcap:{name},read=true".replace("\0", "\\u0000"))},
                {"profile": {"ports": {"A": "null:"}, "replay": [{"files": name}]}},
                {"profile": attack},
                {"profile": profile("null:") + f"departures = {{ file = {json.dumps(name)} }}\n"},
                {"profile": profile("null:"), "options": {"packets": 1, "labels": name}}
                if name
                else None,
                {"profile": profile("null:"), "options": {"packets": 1, "capture": {"file": name}}},
            ],
            "captures": [{"ports": ["loop:y"], "file": name}],
            "import": [{"kind": kind, "file": name} for kind in ("pcap", "otg", "scapy")],
            "attacks/score": [{"labels": name, "alerts": name}],
            "leases": [{"ports": [f"pcap:{name}"]}],
        }
        for path, list_of in bodies.items():
            for body in filter(None, list_of):
                refused(f"{path} {body}", d.ask("POST", f"{API}/{path}", body))
        for path, body in {
            "packets/parse": {"packet": f"eth/ipv4/udp/file({json.dumps(name)})"},
            "profiles/check": {"text": attack},
            "plan": {"text": attack},
            "attacks/solve": {"file": name},
        }.items():
            got = d.ask("POST", f"{API}/{path}", body)
            check(
                got.status in (200, 400, 404, 422)
                and token not in got.body
                and passwd not in got.body,
                f"{path} {name[:50]!r}: {got}",
            )
            if got.status == 200:
                check(b'"problems":[{' in got.body, f"{path} {name[:50]!r} has no problems: {got}")
    now = sorted(path.name for path in files.iterdir())
    check(set(now) - set(mine) <= {"a"}, f"files are {now}, and were {mine}")
    for name, before in outside.items():
        check((d.data / name).stat().st_mtime_ns == before, f"{name} was written")
    check(not list((d.data / "unfinished").iterdir()), "what was refused is still there")
    # Answers contain names of stored files, not their location.
    run = d.ask(
        "POST", f"{API}/runs", {"profile": profile("pcap:own.pcap"), "options": {"packets": 5}}
    ).json()["run"]["id"]
    d.until(f"{API}/runs/{run}", lambda row: row["state"] == "done")
    for what in ["", "/stats", "/report", "/report.html", "/profile", "/profile?format=json"]:
        d.ask("GET", f"{API}/runs/{run}{what}")
    # A request that spells the name of a stored file differently gets an error that shows the
    # correct spelling, or the file.
    for name in ["b//c", "b/./d"]:
        got = d.ask("PUT", f"{API}/files/{name}", b"x", OCTETS)
        stored = (files / name).exists()
        check(
            (got.status == 201) == stored,
            f"PUT {name} said {got}, and the file is {'' if stored else 'not '}there",
        )


def bodies_too_large_too_deep_too_long(d, local, alice):
    def refused(what, got, *statuses):
        check(got.status in (statuses or (400, 413)), f"{what}: {got}")

    def half(path, headers, data=b"", timeout_s=5):
        """Send a request whose body never arrives. Return the answer, or None if there is none."""
        sock = d.connect(timeout_s)
        try:
            return d.ask("POST", path, data, {**JSON, **headers}, sock=sock)
        except (TimeoutError, ConnectionError, http.client.HTTPException):
            return None
        finally:
            sock.close()

    # A request is refused by its announced length, before any body is sent; clients without the
    # token may send very little.
    for length in [str(1 << 62), str(100 << 20)]:
        for path in ["/config", f"{API}/files/big"]:
            got = half(
                path, {"content-length": length} | (OCTETS if "files" in path else {}), timeout_s=2
            )
            check(got is None or got.status in (405, 413), f"{path} of {length} octets: {got}")
    for length in ["-1", "1e9", "0x10", "99999999999999999999999", "1,2"]:
        got = half(f"{API}/leases", {"content-length": length}, b"{}")
        check(got is None or got.status == 400, f"content-length: {length}: {got}")
    before = d.status()["MiB"]
    got = d.ask("POST", f"{API}/login", b'{"token":"' + b"a" * (1 << 20) + b'"}', JSON, token=False)
    refused("a login of 1 MiB", got, 413)
    refused(
        "a body of 70 MiB",
        d.ask("POST", f"{API}/profiles/check", b" " * (70 << 20), JSON, timeout=30),
        413,
    )
    refused(
        "a config of 70 MiB",
        d.ask("POST", "/otg/mallory/config", b" " * (70 << 20), JSON, timeout=30),
        413,
    )
    sock = d.connect(20)
    d_headers = {**JSON, "transfer-encoding": "chunked"}
    head = (
        f"POST {API}/profiles/check HTTP/1.1\r\nhost: {d.name}\r\n"
        + "".join(f"{k}: {v}\r\n" for k, v in {**d.headers(), **d_headers}.items())
        + "\r\n"
    )
    chunk, sent = b"100000\r\n" + b" " * (1 << 20) + b"\r\n", 0
    try:
        sock.sendall(head.encode())
        while sent < 200:
            sock.sendall(chunk)
            sent += 1
    except OSError:
        pass
    sock.close()
    check(sent < 150, f"chunks without an end: {sent} MiB were taken")
    # 10 MiB are accepted if they are a configuration.
    config = {
        "ports": [
            {"name": f"port {i}" + "x" * 1000, "location": f"loop:{i}"} for i in range(10_000)
        ]
    }
    refused("10 MiB of OTG", d.ask("POST", "/otg/mallory/config", config, timeout=30), 200)
    d.ask("POST", "/otg/mallory/config", {})
    for size, status in [(7, 200), (10, 413)]:
        text = "# " + "x" * (size << 20) + "\n" + profile("null:")
        got = d.ask("POST", f"{API}/profiles/check", {"text": text}, timeout=30)
        refused(f"{size} MiB of a profile", got, status)
    deep = 200_000
    for what, path, body in [
        ("arrays", "leases", b"[" * deep),
        ("arrays that end", "runs", b'{"profile":' + b"[" * deep + b"]" * deep + b"}"),
        ("objects", "runs", b'{"profile":' + b'{"a":' * deep + b"1" + b"}" * deep + b"}"),
        ("numbers", "leases", b'{"ports":["loop:y"],"ttl_s":' + b"9" * 1_000_000 + b"}"),
        ("an exponent", "leases", b'{"ports":["loop:y"],"ttl_s":1e999999999}'),
        ("no UTF-8", "leases", b'{"ports":["\xff\xfe"]}'),
        ("half a surrogate", "leases", b'{"ports":["loop:y"],"owner":"\\ud800"}'),
        ("a key twice", "leases", b'{"ports":["loop:y"],"ports":["loop:z"]}'),
        ("more behind it", "leases", b'{"ports":["loop:y"]} {}'),
        ("a byte order mark", "leases", b'\xef\xbb\xbf{"ports":["loop:y"]}'),
        ("UTF-16", "leases", '{"ports":["loop:y"]}'.encode("utf-16")),
        ("nothing", "leases", b""),
        ("a word", "leases", b"NaN"),
        ("a million ports", "leases", b'{"ports":[' + b",".join([b'"null:"'] * 1_000_000) + b"]}"),
        (
            "a million variations",
            "packets/variations",
            b'{"packet":"eth","vary":[' + b",".join([b"1"] * 1_000_000) + b"]}",
        ),
        ("a control sign", "leases", b'{"ports":["loop:y"],"owner":"a\\u0000b"}'),
        (
            "nested fail_if",
            "runs",
            json.dumps({"profile": profile("null:"), "fail_if": ["(" * deep]}).encode(),
        ),
        (
            "a nested filter",
            "captures",
            json.dumps({"ports": ["loop:y"], "filter": "(" * deep + "udp" + ")" * deep}).encode(),
        ),
        (
            "a filter of nots",
            "captures",
            json.dumps({"ports": ["loop:y"], "filter": "not " * deep + "udp"}).encode(),
        ),
        (
            "a long sum as filter",
            "captures",
            json.dumps({"ports": ["loop:y"], "filter": "ip[0] = 1" + "+1" * deep}).encode(),
        ),
        (
            "a thousand workers",
            "runs",
            json.dumps(
                {"profile": profile("null:"), "options": {"cores": 1024, "packets": 1}}
            ).encode(),
        ),
    ]:
        # Measure CPU time of this process as a unit, because others may use the CPUs meanwhile: the
        # time to parse a list of a million numbers.
        since = d.cpu_s()
        got = d.ask("POST", f"{API}/{path}", body, JSON, timeout=60)
        took, most = d.cpu_s() - since, 4 * slowness(time.thread_time)
        check(got.status in (400, 409, 413), f"{what}: {got}")
        check(took < most, f"{what}: {took:.1f} s of a CPU, expected less than {most:.1f} s")
        check(len(got.body) < 2 << 20, f"{what}: an answer of {len(got.body)} octets")
    for what, body in {
        "OTG, arrays": b'{"flows":' + b"[" * deep + b"]" * deep + b"}",
        "OTG, no UTF-8": b'{"ports":[{"name":"\xff"}]}',
        "OTG, half": b'{"ports":[',
        "OTG, a word": b"nothing",
        "OTG, 100,000 flows of nothing": b'{"flows":[' + b",".join([b"{}"] * 100_000) + b"]}",
    }.items():
        refused(what, d.ask("POST", "/otg/mallory/config", body, JSON, timeout=20), 400)
    for text, kind in [
        ("[" * deep, "json"),
        ("- " * deep, "yaml"),
        ("a = " + "[" * deep, "toml"),
        ("a" + ".a" * deep + " = 1", "toml"),
        (
            "a0: &a0 [x,x,x,x,x,x,x,x,x]\n"
            + "".join(f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 15)),
            "yaml",
        ),
    ]:
        got = d.ask("POST", f"{API}/profiles/check", {"text": text, "format": kind})
        check(got.status == 200 and not got.json()["ok"], f"{text[:20]!r} as {kind}: {got}")
    watch = WebSocket(d, "runs=all")
    for text in [
        "{",
        "[]",
        '{"type":"renew"}',
        '{"type":"watch","runs":' + json.dumps([f"r-{i}" for i in range(2000)]) + "}",
        "\0",
        '{"type":"' + "x" * 60_000 + '"}',
    ]:
        watch.send_text(text)
        watch.until("error")
    watch.close()
    for what, send in {
        "a frame of 2^63 octets": lambda w: w.sock.sendall(
            b"\x81\xff" + b"\x7f" + b"\xff" * 7 + b"\1\2\3\4" + b"x" * 1000
        ),
        "pieces without an end": lambda w: [
            w.frame(0x01 if i == 0 else 0x00, b"x" * 60_000) for i in range(300)
        ],
        "no mask": lambda w: w.sock.sendall(b"\x81\x02{}"),
        "no UTF-8": lambda w: w.frame(0x81, b"\xff\xfe"),
        "an unknown opcode": lambda w: w.frame(0x8F, b""),
        "a long ping": lambda w: w.sock.sendall(b"\x89\xfe\xff\xff\1\2\3\4" + b"x" * 65535),
    }.items():
        watch = WebSocket(d, "runs=all&every_ms=60000")
        watch.sock.settimeout(5)
        try:
            send(watch)
            while True:
                watch.receive_json()
        except (EOFError, ConnectionError, ssl.SSLError):
            pass
        except TimeoutError:
            raise Failed(f"a WebSocket that said {what} stays open") from None
        watch.close()
    return f"{before} -> {d.status()['MiB']} MiB"


def requests_that_are_none(d, local, alice):
    dice = random.Random(SEED)
    host = f"host: {d.name}\r\n".encode()
    auth = f"authorization: Bearer {d.token}\r\n".encode()
    post = (
        b"POST /squall/v1/leases HTTP/1.1\r\n" + host + auth + b"content-type: application/json\r\n"
    )
    for what, data in {
        "chance": dice.randbytes(5000),
        "zeros": bytes(5000),
        "HTTP/0.9": b"GET /\r\n\r\n",
        "HTTP/3.0": b"GET / HTTP/3.0\r\n" + host + b"\r\n",
        "no host": b"GET /squall/v1/runs HTTP/1.1\r\n" + auth + b"\r\n",
        "two hosts": b"GET /squall/v1/runs HTTP/1.1\r\nhost: evil.example\r\n"
        + host
        + auth
        + b"\r\n",
        "long method": b"A" * 70_000 + b" / HTTP/1.1\r\n" + host + b"\r\n",
        "long target": b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n" + host + b"\r\n",
        "a NUL in the target": b"GET /\0 HTTP/1.1\r\n" + host + b"\r\n",
        "a line of its own": b"GET / HTTP/1.1\r\n" + host + b"x: a\rb: c\r\n\r\n",
        "a NUL in a header": b"GET / HTTP/1.1\r\n" + host + b"x: \0\r\n\r\n",
        "many headers": b"GET / HTTP/1.1\r\n" + host + b"x: y\r\n" * 5000 + b"\r\n",
        "a long header": b"GET / HTTP/1.1\r\n" + host + b"x: " + b"y" * 200_000 + b"\r\n\r\n",
        "two lengths": post + b"content-length: 2\r\ncontent-length: 40\r\n\r\n{}" + b"x" * 38,
        "length and chunks": post
        + b"content-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n",
        "unknown coding": post + b"transfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
        "a chunk too long": post
        + b"transfer-encoding: chunked\r\n\r\nffffffffffffffffff\r\n{}\r\n",
        "a chunk of no length": post + b"transfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
        "expectation": post + b"content-length: 2\r\nexpect: a-wonder\r\n\r\n{}",
        "another server's": b"GET http://evil.example/squall/v1/runs HTTP/1.1\r\n"
        + host
        + auth
        + b"\r\n",
        "a tunnel": b"CONNECT 127.0.0.1:22 HTTP/1.1\r\n" + host + auth + b"\r\n",
    }.items():
        sock = d.connect(5)
        got = b""
        try:
            sock.sendall(data)
            sock.settimeout(0.3)
            while more := sock.recv(65536):
                got += more
        except (OSError, ssl.SSLError):
            pass
        finally:
            sock.close()
        d.clean(Reply(200, {}, got))
        statuses = [int(s) for s in re.findall(rb"^HTTP/1\.[01] (\d\d\d)", got, re.MULTILINE)]
        check(all(400 <= status < 500 for status in statuses), f"{what}: {got[:300]!r}")
        d.alive()
    for what, data in {
        "chance": dice.randbytes(3000),
        "HTTP without TLS": b"GET / HTTP/1.1\r\nhost: x\r\n\r\n",
    }.items():
        sock = d.connect(5, tls=False)
        try:
            sock.sendall(data)
            sock.settimeout(2)
            while sock.recv(65536):
                pass
        except TimeoutError:
            raise Failed(f"TLS, {what}: the connection stays") from None
        except OSError:
            pass
        finally:
            sock.close()
    version = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    version.check_hostname, version.verify_mode = False, ssl.CERT_NONE
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        version.minimum_version, version.maximum_version = (
            ssl.TLSVersion.TLSv1,
            ssl.TLSVersion.TLSv1_1,
        )
    try:
        version.wrap_socket(socket.create_connection(d.at, 5)).close()
        raise Failed("TLS 1.1 is spoken")
    except (ssl.SSLError, OSError):
        pass


def pages_of_others_may_not_ask(d, local, alice):
    for daemon in [d, local]:
        scheme = "https" if daemon.tls else "http"
        own, port = f"{scheme}://{daemon.name}", daemon.at[1]
        origins = [
            "http://evil.example",
            "null",
            f"{scheme}://evil.example:{port}",
            f"{scheme}://{daemon.at[0]}:1",
            f"{scheme}://{daemon.name}.evil.example",
            f"{scheme}://evil.example/{daemon.name}",
            f"{scheme}://{daemon.name}@evil.example",
            "",
            "file://",
            f"{scheme}://{daemon.at[0]}",
        ]
        for origin in origins:
            for method, path, body in [
                ("GET", "runs", None),
                ("POST", f"runs/{alice.run}/stop", None),
                ("POST", "leases", {"ports": ["loop:y"]}),
                ("DELETE", "leases/l-1", None),
            ]:
                got = daemon.ask(method, f"{API}/{path}", body, {"origin": origin})
                check(
                    (got.status, got.code()) == (403, "forbidden"),
                    f"{method} {path} of origin {origin!r}: {got}",
                )
                check(
                    not any(name.startswith("access-control") for name in got.headers),
                    f"{origin!r}: {got.headers}",
                )
            got = daemon.ask(
                "OPTIONS",
                f"{API}/runs",
                None,
                {
                    "origin": origin,
                    "access-control-request-method": "POST",
                    "access-control-request-headers": "authorization",
                },
                token=False,
            )
            check(
                got.status >= 400
                and not any(name.startswith("access-control") for name in got.headers),
                f"preflight of {origin!r}: {got.headers}",
            )
            of_page = WebSocket(daemon, "runs=all", {"origin": origin})
            of_page.close()
            check(of_page.status == 403, f"a WebSocket of {origin!r}: {of_page.status}")
        for host in [
            "evil.example",
            f"evil.example:{port}",
            f"{daemon.at[0]}.evil.example",
            "localhost.evil.example",
            "",
            "127.1.evil",
            "2130706433",
            f"evil@{daemon.name}",
            "[::1].evil.example",
        ]:
            got = daemon.ask("GET", f"{API}/runs", None, {"host": host})
            check(got.status in (400, 403), f"asked as {host!r}: {got}")
            # DNS rebinding: a page whose host name now resolves to this address has the same
            # origin.
            got = daemon.ask(
                "POST",
                f"{API}/leases",
                {"ports": ["loop:y"]},
                {"host": host, "origin": f"{scheme}://{host}"},
            )
            check(got.status in (400, 403), f"asked as {host!r} by its page: {got}")
        check(daemon.ask("GET", f"{API}/runs", None, {"origin": own}).status == 200, "its own page")
        check(
            daemon.ask(
                "GET",
                f"{API}/runs",
                None,
                {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"},
            ).status
            == 403,
            "cross-site",
        )
        for kind in [
            "text/plain",
            "text/plain;charset=application/json",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=x",
            "",
            None,
        ]:
            for path in [f"{API}/leases", f"{API}/runs", "/config", "/control/state"]:
                got = daemon.ask("POST", path, b'{"ports":["loop:y"]}', {"content-type": kind})
                check(
                    (got.status, got.code()) == (415, "content_type"), f"{path} as {kind!r}: {got}"
                )
        check(
            not any(
                lease["ports"] == ["loop:y"]
                for lease in daemon.ask("GET", f"{API}/leases").json()["leases"]
            ),
            "one was leased all the same",
        )
        page = daemon.ask("GET", "/", token=False)
        check(
            page.status == 200 and "default-src 'none'" in page.headers["content-security-policy"],
            f"the page: {page.headers}",
        )
        check(
            "frame-ancestors 'none'" in page.headers["content-security-policy"],
            "the page can be framed",
        )


class Silent:
    """Peers that hold a connection without sending a request: each kind must be disconnected within
    TIMEOUT_S."""

    def __init__(self, d):
        self.d, self.since, self.open, self.late = d, time.monotonic(), [], []
        hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
        ask = f"GET {API}/runs HTTP/1.1\r\nhost: {d.name}\r\n\r\n".encode()
        head = head_of_grpc(d)
        settled = PREFACE + h2(4, 1, 0)
        plain, grpc = d.at, d.grpc
        self.kinds = {
            "nothing to TLS": (plain, False, b"", None),
            "half a hello to TLS": (plain, False, hello, b"x"),
            "nothing behind TLS": (plain, True, b"", None),
            "a header octet by octet": (plain, True, b"GET / HTTP/1.1\r\n", b"a"),
            "header lines without an end": (plain, True, b"GET / HTTP/1.1\r\n", b"x: y\r\n"),
            "a refused request, then nothing": (plain, True, ask, None),
            "a refused request, then half of one": (plain, True, ask, b"G"),
            "empty lines": (plain, True, b"\r\n", b"\r\n"),
            "nothing to gRPC": (grpc, False, b"", None),
            "half a preface": (grpc, False, PREFACE[:9], None),
            "a preface octet by octet": (grpc, False, b"", PREFACE),
            "a preface, then nothing": (grpc, False, settled, None),
            "a preface, then pings": (grpc, False, settled, h2(6, 0, 0, bytes(8))),
            "half a header of gRPC": (grpc, False, settled + h2(1, 0, 1, head), None),
            "a body that does not come, refused": (
                grpc,
                False,
                settled + h2(1, 4, 1, head),
                h2(0, 0, 1, b"x"),
            ),
            "a refused call, then nothing": (grpc, False, settled + h2(1, 5, 1, head), None),
        }
        for name, (at, tls, first, then) in self.kinds.items():
            sock = d.connect(5, at, tls)
            sock.sendall(first)
            self.open.append((name, sock, then))
        # A client with the token has more time, but no more than its body takes at 10 kB/s.
        body = (
            b"POST /squall/v1/profiles/check HTTP/1.1\r\nhost: "
            + d.name.encode()
            + b"\r\ncontent-type: application/json\r\ncontent-length: 100000\r\n"
        )
        sock = d.connect(5)
        sock.sendall(body + f"authorization: Bearer {d.token}\r\n\r\n".encode())
        self.open.append(("a body octet by octet", sock, b" "))
        self.over = {}
        self.thread = threading.Thread(target=self.drip, daemon=True)
        self.thread.start()

    def drip(self):
        left = {name: (sock, then) for name, sock, then in self.open}
        turn = 0
        while left and time.monotonic() - self.since < 2 * TIMEOUT_S:
            for name, (sock, then) in list(left.items()):
                try:
                    if then:
                        sock.settimeout(1)
                        sock.sendall(
                            then[turn : turn + 1] if name == "a preface octet by octet" else then
                        )
                    sock.settimeout(0.001)
                    while sock.recv(65536):
                        pass
                except (TimeoutError, ssl.SSLWantReadError):
                    continue
                except OSError:
                    pass
                self.over[name] = time.monotonic() - self.since
                del left[name]
                sock.close()
            turn += 1
            time.sleep(1)
        for sock, _ in left.values():
            sock.close()

    def check(self):
        self.thread.join()
        late = []
        for name, _, _ in self.open:
            most = 25 if name == "a body octet by octet" else TIMEOUT_S
            took = self.over.get(name)
            if took is None or took > most * slowness():
                late.append(f"{name}: {f'{took:.0f} s' if took else 'still open'}")
        expect(not late, f"connections that should have been closed: {'; '.join(late)}")


def slow_readers(d, local, alice):
    """Check slow readers of large WebSocket messages and files: nothing is buffered for them, and
    other clients do not wait for them."""
    d.ask("PUT", f"{API}/files/big.bin", bytes(30 << 20), OCTETS, timeout=30)
    before = d.status()["MiB"]
    lazy = [WebSocket(d, "runs=all&every_ms=100&log=1", receive=4096) for _ in range(30)]
    socks = []
    for _ in range(20):
        sock = d.connect()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.sendall(
            f"GET {API}/files/big.bin HTTP/1.1\r\nhost: {d.name}\r\nauthorization: Bearer {d.token}\r\n\r\n".encode()
        )
        socks.append(sock)
    keen = WebSocket(d, f"runs={alice.run}&every_ms=100")
    expect(keen.status == 101, f"a WebSocket: {keen.status}")
    # Long paths, which are sent to all clients that read the log.
    for i in range(40):
        d.ask("GET", f"{API}/none/{i}" + "x" * 40_000)
    last = time.monotonic()
    for _ in range(4):
        keen.until("sample")
        took, most = time.monotonic() - last, 3 * slowness()
        expect(took < most, f"samples came {took:.1f} s apart, expected less than {most:.1f} s")
        last = time.monotonic()
    now = d.status()["MiB"]
    expect(now - before < 150, f"{before} MiB before slow readers, {now} MiB with them")
    for each in [*lazy, keen, *socks]:
        each.close()
    d.ask("DELETE", f"{API}/files/big.bin")


def more_connections_than_there_are_places(d, local, alice):
    """Check that too many connections without the token do not affect a client connected with the
    token, and that others with the token can connect at once.
    """
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    known, socks = d.connect(), []
    keep = {"connection": "keep-alive"}
    expect(
        d.ask("GET", f"{API}/runs", headers=keep, sock=known).status == 200,
        "a connection of somebody who may",
    )
    # Half of them send a request, and are refused.
    ask = f"GET {API}/runs HTTP/1.1\r\nhost: {d.name}\r\n\r\n".encode()
    for i in range(CONNECTIONS + 100):
        try:
            sock = socket.create_connection(d.grpc if i % 2 else d.at, 5)
            if i % 4 == 1:
                sock.sendall(ask)
            socks.append(sock)
        except OSError:
            pass
    since = time.monotonic()
    new = {
        "profile": profile("loop:few"),
        "options": {"packets": 10, "capture": {"file": "few.pcapng"}},
    }
    run = d.ask("POST", f"{API}/runs", new, keep, sock=known)
    check(run.status == 201, f"a run beside them: {run}")
    if run.status == 201:
        row = None
        while not row or (row["state"] not in ("done", "failed") and time.monotonic() < since + 60):
            row = d.ask(
                "GET", f"{API}/runs/{run.json()['run']['id']}", headers=keep, sock=known
            ).json()
            time.sleep(0.1)
        check(row["state"] == "done" and not row["error"], f"a run beside them is {row}")
    known.close()
    files = d.status()["files"]
    check(files < CONNECTIONS + 100, f"the daemon has {files} files open")
    while True:
        try:
            check(d.ask("GET", f"{API}/info", timeout=3).status == 200, "info")
            break
        except (OSError, http.client.HTTPException) as error:
            # The daemon closes idle connections first, so a new connection need not wait.
            took = time.monotonic() - since
            expect(took < 8 * slowness(), f"nobody else gets through in {took:.0f} s: {error!r}")
            time.sleep(0.25)
    took = time.monotonic() - since
    for sock in socks:
        sock.close()
    return f"another got through after {took:.1f} s"


# Names of objects that exist: without them, most generated requests would end with 404.
KNOWN = """
[[operations]]
include-path-regex = "^/squall/v1/runs/[{]id[}]/(stats|report|profile|pause|resume|rate|change|step|trigger)$"
parameters = { id = "LIVE" }
[[operations]]
include-path-regex = "^/squall/v1/runs/[{]id[}](/stop|/report.html)?$"
exclude-method = "DELETE"
parameters = { id = "OVER" }
[[operations]]
include-path-regex = "^/squall/v1/leases/[{]id[}]"
exclude-method = "DELETE"
parameters = { id = "LEASE" }
[[operations]]
include-path-regex = "^/squall/v1/captures/"
parameters = { file = "known.pcap", n = "0" }
[[operations]]
include-path-regex = "^/squall/v1/files/"
exclude-method = ["PUT", "DELETE"]
parameters = { name = "known.pcap" }
"""


class Schemathesis:
    """Tests every request that openapi.json describes, and invalid ones. Runs concurrently with the
    other steps, which mostly wait.
    """

    def __init__(self, daemon, folder):
        self.daemon, self.process, self.since = daemon, None, time.monotonic()
        if not SCHEMATHESIS.exists():
            print("SKIPPED: no schemathesis: scripts/setup otg")
            return
        ask = lambda what, body: daemon.ask("POST", f"{API}/{what}", body).json()  # noqa: E731
        quick = {"profile": profile("null:"), "detached": True}
        live = ask("runs", quick | {"options": {"duration": 300}})["run"]["id"]
        over = ask("runs", quick | {"options": {"packets": 1}})["run"]["id"]
        lease = ask("leases", {"ports": ["loop:known"], "ttl_s": 300})["id"]
        packet = bytes(60)
        pcap = (
            struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
            + struct.pack("<IIII", 0, 0, 60, 60)
            + packet
        )
        daemon.ask("PUT", f"{API}/files/known.pcap", pcap, OCTETS)
        (folder / "schemathesis.toml").write_text(
            KNOWN.replace("LIVE", live).replace("OVER", over).replace("LEASE", lease)
        )
        self.log = open(folder / "schemathesis.log", "w+")
        url = f"http://{daemon.name}"
        # Not every request that fits a schema succeeds: a port may be in use, and a profile may be
        # empty.
        checks = ["--checks", "all", "--exclude-checks", "positive_data_acceptance"]
        options = [
            "--phases",
            "examples,coverage,fuzzing",
            "--max-examples",
            os.environ.get("EXAMPLES_EACH", "5"),
        ]
        command = [
            str(SCHEMATHESIS),
            "--config-file",
            str(folder / "schemathesis.toml"),
            "--no-color",
            "run",
        ]
        command += [
            f"{url}{API}/openapi.json",
            "--url",
            url,
            *checks,
            *options,
            "--seed",
            str(SEED),
            "--continue-on-failure",
        ]
        command += ["--request-timeout", "10"]
        heeds = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731
        self.process = subprocess.Popen(
            command,
            stdout=self.log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            cwd=folder,
            preexec_fn=heeds,
        )

    def check(self):
        if not self.process:
            return "skipped"
        # On a busy machine this time limit may end schemathesis early.
        most = 40 * slowness()
        left, early = self.since + most - time.monotonic(), ""
        try:
            status = self.process.wait(max(left, 0))
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGINT)
            self.process.wait(60)
            status, early = 0, f"interrupted after {most:.0f} s: "
        self.log.seek(0)
        report = self.log.read()
        self.daemon.alive()
        expect(
            status == 0 and "= FAILURES =" not in report and "= ERRORS =" not in report,
            f"{early}schemathesis: {status}\n{report[-8000:]}",
        )
        # With fewer cases, the test would be meaningless.
        generated = re.search(r"Test cases:\s+(\d+) generated", report)
        expect(generated and int(generated[1]) > 300, f"{early}schemathesis: {report[-2000:]}")
        return f"{early}{generated[1]} requests"


STEPS = [
    no_answer_without_the_token,
    grpc_wants_the_token_too,
    leases_that_are_over_do_nothing,
    ports_of_other_users_are_protected,
    a_name_gives_no_power_over_a_session_of_otg,
    paths_lead_nowhere_else,
    pages_of_others_may_not_ask,
    requests_that_are_none,
    frames_of_http2_that_are_wrong,
    what_is_no_protobuf_is_refused,
    bodies_too_large_too_deep_too_long,
    slow_readers,
]


def in_steps(name, what, daemons=()):
    """Run a step, and print its time and its errors. Return whether there were none."""
    since, result = time.monotonic(), None
    wrong.clear()
    try:
        result = what()
        for daemon in daemons:
            daemon.alive()
    except Failed as error:
        wrong.insert(0, str(error))
    except Exception as error:  # An answer may lack anything; the other steps still run.
        places = [
            f"{frame.name}:{frame.lineno}"
            for frame in traceback.extract_tb(error.__traceback__)[1:]
        ]
        wrong.insert(0, f"{type(error).__name__} {error} ({', '.join(places)})")
    shown = "\n        ".join(
        wrong[:20] + ([f"and {len(wrong) - 20} more"] if len(wrong) > 20 else [])
    )
    print(
        f"{'FAILED ' if wrong else 'ok     '} {name} ({time.monotonic() - since:.1f} s)"
        + (f": {shown or result}" if shown or result else ""),
        flush=True,
    )
    return not wrong


def inside(folder, only):
    """Run the steps in the lab, with the daemons."""
    for command in ["ip link set lo up", f"ip addr add {HOST}/24 dev veth-a"]:
        subprocess.run(command.split(), check=True, timeout=20)
    failed, daemons, fuzz = 0, [], None

    def step(name, what):
        nonlocal failed
        failed += not in_steps(name, what, daemons)

    try:
        grpc = ["--grpc", f"{HOST}:40051", "--grpc-plain"]
        d = Daemon(folder / "d", "--listen", f"{HOST}:8443", *grpc, "--lease", "20s")
        daemons.append(d)
        local = Daemon(
            folder / "local",
            "--listen",
            "127.0.0.1:0",
            "--grpc",
            "127.0.0.1:0",
            "--token",
            "none",
            tls=False,
        )
        daemons.append(local)
        fuzzed = Daemon(
            folder / "fuzzed",
            "--listen",
            "127.0.0.1:0",
            "--grpc",
            "off",
            "--token",
            "none",
            "--lease",
            "1s",
            tls=False,
        )
        daemons.append(fuzzed)
        expect(d.needs_token and not local.needs_token, "who needs a token")
        alice = Alice(d)
        time.sleep(1)
        start = d.status()
        most = []
        watching = threading.Event()

        def watch():
            while not watching.wait(0.2):
                try:
                    most.append(d.status())
                except (OSError, TypeError):
                    return  # It has ended.

        threading.Thread(target=watch, daemon=True).start()
        wanted = lambda name: not only or name in only  # noqa: E731
        silent = Silent(d) if wanted("connections_that_say_nothing") else None
        fuzz = Schemathesis(fuzzed, folder) if wanted("schemathesis") else None
        for attack in STEPS:
            if wanted(attack.__name__):
                step(attack.__name__, lambda attack=attack: attack(d, local, alice))
        if silent:
            step("connections_that_say_nothing", silent.check)
        if wanted("more_connections_than_there_are_places"):
            step(
                "more_connections_than_there_are_places",
                lambda: more_connections_than_there_are_places(d, local, alice),
            )
        if fuzz:
            step("schemathesis", fuzz.check)
        step("alice's traffic is as it was", alice.end)
        watching.set()

        def small():
            deadline = time.monotonic() + 60
            while (end := d.status())["files"] > start[
                "files"
            ] + 10 and time.monotonic() < deadline:
                time.sleep(0.2)
            expect(
                end["files"] <= start["files"] + 10,
                f"files that are open: {start['files']} at first, {end['files']} at last",
            )
            peak = {
                key: max(one[key] for one in most)
                for key in ("MiB", "most MiB", "threads", "files")
            }
            expect(
                peak["most MiB"] < start["MiB"] + 600,
                f"memory: {start['MiB']} MiB at first, {peak['most MiB']} MiB at most",
            )
            expect(
                end["MiB"] < start["MiB"] + 350,
                f"memory: {start['MiB']} MiB at first, {end['MiB']} MiB at last",
            )
            expect(
                peak["threads"] < start["threads"] + 100,
                f"threads: {start['threads']} at first, {peak['threads']} at most",
            )
            return f"{start} at first, {end} at last; at most {peak}"

        step("the daemon stays small", small)
    finally:
        if fuzz and fuzz.process and fuzz.process.poll() is None:
            fuzz.process.kill()
        for daemon in daemons:
            daemon.end()
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(in_a_lab(SQUALL, __file__, inside))

#!/usr/bin/env python3
"""One profile with haproxy between Squall's clients and servers, with logins at a Python server
whose tokens and cookies the next request must carry, and with 10,000 users from a CSV file, each
used once. It runs on af_packet with one worker per port and with two, and on af_xdp, in the
presence of broadcasts. The counts of haproxy, the Python server and both of Squall's sides agree. A
login that extracts the wrong value from an answer fails the run. haproxy also reads the headers of
the PROXY protocol that Squall's clients send, and sends its own to Squall's servers. WebSocket over
HTTP/2 comes from Squall's clients and goes to Squall's servers, with Python at the other end.

Needs root and haproxy; $SQUALL is target/debug/squall unless set.
"""

import collections
import contextlib
import csv
import http.server
import importlib.util
import json
import os
import pathlib
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading

from flows import inside, wait
from mix import link
from tools import Failed, background, run, same

ROOT = pathlib.Path(__file__).resolve().parents[2]
SQUALL = pathlib.Path(os.environ.get("SQUALL", ROOT / "target/debug/squall")).absolute()
FLOWS = ROOT / "tests/interop/flows.py"
LOCAL = f"sq-proxy-{os.getpid()}"
REMOTE = f"{LOCAL}-peer"
VIP = "16.0.1.1"  # address of haproxy and of the Python server
USERS, LOGINS, WEB, PAGES = 10_000, 300, 200, 5

HAPROXY = """
global
  # Of two threads that write to the log at the same instant one loses its line.
  nbthread 1
  log stdout format raw local0
  stats socket {folder}/haproxy.sock level admin
defaults
  mode http
  # It keeps connections with clients, and asks servers to close theirs.
  option http-server-close
  timeout connect 30s
  timeout client 30s
  timeout server 30s
frontend web
  bind {vip}:80
  default_backend ours
frontend users
  bind {vip}:81
  http-request capture req.hdr(X-User) len 32
  log global
  log-format "%ST %[capture.req.hdr(0)]"
  default_backend ours
frontend proxied
  bind {vip}:82 accept-proxy
  log global
  log-format "%ST %ci"
  use_backend with-v1 if {{ path /v1 }}
  default_backend with-v2
backend with-v1
  server one 48.0.0.1:81 send-proxy
backend with-v2
  server one 48.0.0.1:81 send-proxy-v2 proxy-v2-options crc32c,unique-id,authority
frontend websockets
  bind {vip}:83 proto h2
  use_backend ours-over-http2 if {{ path /ours }}
  default_backend python
frontend websockets-over-http1
  bind {vip}:84
  default_backend ours-over-http2
backend python
  server one {vip}:8082
backend ours-over-http2
  server one 48.0.0.1:83 proto h2 ws h2
backend ours
  balance roundrobin
  server one 48.0.0.1:80
  server two 48.0.0.2:80
"""

PORTS = """
[ports]
A = "{kind}:va"
B = "{kind}:vb"

[flows]
clients  = "A"
servers  = "B"
max_delay = "60 s"

[[pool]]
name      = "inside"
addresses = "16.0.0.0/24"
"""

PROXIED = """
[[template]]
name    = "web"
play    = "clients"
clients = "inside"
servers = "{vip}"
app     = "http"
cps     = 200
limit   = {web}
options = {{ url = "http://{vip}/page", requests = {pages}, check = ["status 200", "length 1000"] }}

[[template]]
name    = "users"
play    = "clients"
clients = "inside"
servers = "{vip}"
app     = "http"
users   = 20
data    = {{ file = "users.csv", order = "once" }}
options = {{ url = "http://{vip}:81/${{data:user}}", header = "X-User: ${{data:user}}", check = "status 200" }}

[[template]]
name    = "backends"
play    = "servers"
servers = "48.0.0.1-48.0.0.2"
app     = "http"
options = {{ body = 1000 }}
"""

LOGIN = """
[[template]]
name    = "login"
play    = "clients"
clients = "inside"
servers = "{vip}"
listen  = 8080
users   = 5
limit   = {logins}
data    = "users.csv"
client  = [
    "send login", "http_response", "check status 200", 'extract token = {extract}',
    "send page", "http_response", "check status 200", 'check regex "welcome"',
]

[template.messages]
login = '''
POST /login HTTP/1.1\\r\\nHost: ${{server}}\\r\\nContent-Type: application/json\\r\\n\
Content-Length: ${{content_length}}\\r\\n\\r\\n\
{{"user": "${{data:user}}", "password": "${{data:password}}"}}'''
page = '''
GET /of/${{data:user}} HTTP/1.1\\r\\nHost: ${{server}}\\r\\n\
Authorization: Bearer ${{value:token}}\\r\\n${{cookies}}\\r\\n'''
"""
WITH_HEADERS = """
[[template]]
name    = "v1"
play    = "clients"
clients = "inside"
servers = "{vip}"
app     = "http"
cps     = 100
limit   = 20
options = {{ url = "http://{vip}:82/v1", check = "status 200" }}
proxy_protocol = {{ version = "v1", sources = "203.0.113.10-203.0.113.29" }}

[[template]]
name    = "v2"
play    = "clients"
clients = "inside"
servers = "{vip}"
app     = "http"
cps     = 100
limit   = 20
options = {{ url = "http://{vip}:82/v2", check = "status 200" }}

[template.proxy_protocol]
sources   = "203.0.113.30-203.0.113.49"
alpn      = "http/1.1"
authority = "www.example.net"
unique_id = true
checksum  = true

[[template]]
name    = "backends"
play    = "servers"
servers = "48.0.0.1"
listen  = 81
app     = "http"
options = {{ body = 1000 }}
proxy_protocol = "v2"
"""
# Through haproxy to Python's server, and to Squall's.
WEBSOCKETS = """
[[template]]
name    = "python"
play    = "clients"
clients = "inside"
servers = "{vip}"
listen  = 83
app     = "websocket"
users   = 4
limit   = 10
http    = {{ streams = 3 }}
options = {{ path = "/python", messages = 5, size = 20_000, ping = true }}

[[template]]
name    = "ours"
play    = "clients"
clients = "inside"
servers = "{vip}"
listen  = 83
app     = "websocket"
users   = 4
limit   = 10
http    = {{ streams = 2 }}
options = {{ path = "/ours", messages = 5, size = 100, binary = true }}

[[template]]
name    = "backends"
play    = "servers"
servers = "48.0.0.1"
listen  = 83
app     = "websocket"
http    = "2"
"""
CLIENTS_FAILED = "web.failed > 0 or users.failed > 0 or login.failed > 0"
# Reasons for an invalid run that a busy machine can cause. They do not affect the counts.
BUSY = {"generator-bound", "starved", "port-bound", "receiver-bound", "burst"}


def network():
    for namespace in [LOCAL, REMOTE]:
        run("ip", "netns", "add", namespace)
        for which in ["all", "default"]:
            run(*inside(namespace, "sysctl", "-qw", f"net.ipv6.conf.{which}.disable_ipv6=1"))
    run("ip", "-n", REMOTE, "link", "set", "lo", "up")
    link("va", LOCAL, "ra", REMOTE)
    link("vb", LOCAL, "rb", REMOTE)
    run("ip", "-n", REMOTE, "addr", "add", f"{VIP}/16", "dev", "ra")
    run("ip", "-n", REMOTE, "addr", "add", "48.0.1.1/16", "brd", "+", "dev", "rb")
    for name in ["ra", "rb"]:
        # Prevent the kernel from revalidating an address, which could happen at the end of a run.
        known = f"net.ipv4.neigh.{name}.base_reachable_time_ms=600000"
        run(*inside(REMOTE, "sysctl", "-qw", known))
    # Each request is a connection from haproxy to Squall's servers.
    run(*inside(REMOTE, "sysctl", "-qw", "net.ipv4.ip_local_port_range=1024 65535"))


BROADCASTS = """
import socket, time
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
while True:
    sender.sendto(b"anybody?", ("48.0.255.255", 9))
    time.sleep(0.005)
"""


@contextlib.contextmanager
def broadcasts():
    """Send frames to Squall's server port before, during and after a run, as on any network."""
    process = subprocess.Popen(inside(REMOTE, sys.executable, "-c", BROADCASTS))
    try:
        yield
    finally:
        process.terminate()
        process.wait(10)


class Haproxy:
    def __init__(self, folder):
        self.folder, self.log = folder, folder / "haproxy.log"
        (folder / "haproxy.cfg").write_text(HAPROXY.format(folder=folder, vip=VIP))

    def __enter__(self):
        command = pathlib.Path(shutil.which("haproxy")).resolve()
        # The libraries of an unpacked package are in the same directory tree.
        libraries = ":".join(map(str, command.parents[1].glob("lib/*-linux-gnu")))
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                inside(REMOTE, command, "-db", "-f", self.folder / "haproxy.cfg"),
                env={**os.environ, "LD_LIBRARY_PATH": libraries},
                stdout=log,
                stderr=subprocess.PIPE,
                text=True,
            )
        listening = lambda: f"{VIP}:81 " in run(*inside(REMOTE, "ss", "-ltn")).stdout
        wait("haproxy listens", lambda: self.process.poll() is not None or listening())
        if self.process.poll() is not None:
            raise Failed(f"haproxy: {self.process.communicate()[1]}")
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.communicate(timeout=10)

    def ask(self, command):
        with socket.socket(socket.AF_UNIX) as asked:
            asked.connect(str(self.folder / "haproxy.sock"))
            asked.sendall(f"{command}\n".encode())
            return asked.makefile().read()

    def begin(self):
        """Reset counters and log."""
        self.ask("clear counters all")
        self.old = self.log.stat().st_size

    def lines(self):
        return self.log.read_text()[self.old :].splitlines()

    def counts(self):
        """Return counts by (proxy, server), once no connection is open."""
        counts = {}

        def quiet():
            rows = csv.DictReader(self.ask("show stat").removeprefix("# ").splitlines())
            counts.update({(row["pxname"], row["svname"]): row for row in rows})
            return all(int(row["scur"]) == 0 for row in counts.values())

        wait("haproxy has ended all", quiet, 10)
        return counts


class LoginHandler(http.server.BaseHTTPRequestHandler):
    """Handles a connection. The first request is a login, and its answer has a token and a cookie.
    The next request must carry both, and uses them up."""

    protocol_version, disable_nagle_algorithm = "HTTP/1.1", True
    given = None

    def do_POST(self):
        login = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        known = self.server.passwords.get(login["user"]) == login["password"]
        if (
            self.path != "/login"
            or not known
            or not (self.given is None or self.carried(login["user"]))
        ):
            return self.refuse()
        token, session = secrets.token_hex(16), secrets.token_hex(8)
        self.given = (login["user"], token, session)
        with self.server.lock:
            self.server.counts["issued"].append(token)
            self.server.counts["users"].append(login["user"])
        answer = {"auth": {"user": login["user"], "token": token}}
        self.answer(200, json.dumps(answer), ("Set-Cookie", f"session={session}; Path=/; HttpOnly"))

    def do_GET(self):
        user = self.path.removeprefix("/of/")
        if self.carried(user):
            self.answer(200, json.dumps({"text": f"welcome, {user}"}))
        else:
            self.refuse()

    def carried(self, user):
        """Return whether the request has the token and the cookie of the last answer to the same
        user."""
        output = (self.headers["Authorization"], self.headers["Cookie"])
        (user_of, token, session), self.given = self.given or ("", "", ""), None
        if user_of != user or output != (f"Bearer {token}", f"session={session}"):
            return False
        with self.server.lock:
            self.server.counts["used"].append(token)
        return True

    def refuse(self):
        with self.server.lock:
            self.server.counts["refused"] += 1
        self.answer(401, json.dumps({"auth": {"user": "nobody"}}))

    def answer(self, status, text, *headers):
        self.send_response(status)
        for name, value in [*headers, ("Content-Type", "application/json")]:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


class LoginServer(http.server.ThreadingHTTPServer):
    daemon_threads, request_queue_size = True, 128

    def __init__(self, users):
        super().__init__((VIP, 8080), LoginHandler)
        with open(users, newline="") as file:
            self.passwords = {one["user"]: one["password"] for one in csv.DictReader(file)}
        self.lock = threading.Lock()
        # Tokens that were issued and used, users that logged in, and the number of refused
        # requests.
        self.counts = {"issued": [], "used": [], "users": [], "refused": 0}

    def handle_error(self, *_):
        """Ignore an error: clients whose flows fail on purpose reset their connections."""


def serve_logins(users):
    """Serve until the input ends, then print the counts; runs in the other namespace."""
    server = LoginServer(users)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print("ready", flush=True)
    sys.stdin.read()
    with server.lock:
        print(json.dumps(server.counts), flush=True)


@contextlib.contextmanager
def logins(folder):
    """Run a login server during the block. After the block, the result has its counts."""
    counts = {}
    argv = inside(REMOTE, sys.executable, __file__, "logins", folder / "users.csv")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with background(argv, **pipes) as server:
        same("the server of logins", server.stdout.readline(), "ready\n")
        yield counts
        server.stdin.close()
        counts.update(json.loads(server.stdout.readline()))


def squall(folder, *argv, ok=0):
    report = folder / "report.json"
    report.unlink(missing_ok=True)
    output = run(*inside(LOCAL, SQUALL, *argv, "-q", "--json", report), ok=(ok,)).stderr
    return json.loads(report.read_text()), output


def done(what, role, flows, requests):
    """Check that all flows are complete, with all answers, and that nothing failed."""
    keys = ["attempted", "established", "completed", "active", "failed", "protocol_errors", "http"]
    found = {key: role[key] for key in keys}
    clean = {"active": 0, "failed": {}, "protocol_errors": {}, "http": {"2xx": requests}}
    same(what, found, {"attempted": flows, "established": flows, "completed": flows} | clean)
    same(f"{what}: not begun", role["not_begun"], {})


def proxied(folder, haproxy, kind, *argv):
    what = " ".join([kind, *argv])
    profile = folder / "proxy.toml"
    values = {"kind": kind, "vip": VIP, "web": WEB, "pages": PAGES, "logins": LOGINS}
    text = PORTS + PROXIED + LOGIN
    profile.write_text(text.format(**values, extract="json auth.token"))
    haproxy.begin()
    with logins(folder) as at_logins:
        report, _ = squall(folder, "run", profile, *argv, "--fail-if", CLIENTS_FAILED)
    remote = haproxy.counts()
    verdict = report["verdict"]
    same(f"{what}: it ended by itself", verdict["ended_by"], "done")
    reasons = [reason for reason in verdict["reasons"] if reason["code"] not in BUSY]
    same(f"{what}: reasons against it", reasons, [])

    by_name = {one["name"]: one for one in report["flows"]["templates"]}
    requests = {"web": WEB * PAGES, "users": USERS}
    for name, flows in [("web", WEB), ("users", USERS)]:
        done(f"{what}, {name}", by_name[name]["client"], flows, requests[name])
        frontend = remote[name, "FRONTEND"]
        found = [int(frontend[key]) for key in ["stot", "req_tot", "hrsp_2xx"]]
        same(f"{what}, {name}: haproxy says", found, [flows, requests[name], requests[name]])
    both = sum(requests.values())
    backends = by_name["backends"]["server"]
    done(f"{what}, backends", backends, both, both)
    backend = remote["ours", "BACKEND"]
    errors = [int(backend[key]) for key in ["econ", "eresp", "wretr", "wredis"]]
    same(f"{what}, backends: haproxy says", (int(backend["hrsp_2xx"]), errors), (both, [0] * 4))
    shares = [int(remote["ours", name]["hrsp_2xx"]) for name in ["one", "two"]]
    same(f"{what}, backends: each has its share", shares, [both // 2] * 2)
    total = report["flows"]["total"]
    same(f"{what}: answers of our servers", total["server"]["http"], {"2xx": both})
    same(f"{what}: answers to our clients", total["client"]["http"], {"2xx": both + 2 * LOGINS})
    once_each(what, haproxy)

    done(f"{what}, login", by_name["login"]["client"], LOGINS, 2 * LOGINS)
    same(f"{what}, login: tokens", len(set(at_logins["issued"])), LOGINS)
    same(f"{what}, login: used", sorted(at_logins["used"]), sorted(at_logins["issued"]))
    same(f"{what}, login: users", sorted(at_logins["users"]), [user(i) for i in range(LOGINS)])
    same(f"{what}, login: refused", at_logins["refused"], 0)
    print(f"ok: {what}: haproxy, logins and {USERS} users by one profile")


def once_each(what, haproxy):
    """Check that haproxy has logged each user in the file once."""
    wait(f"{what}: users in the log", lambda: len(haproxy.lines()) >= USERS, 10)
    logged = collections.Counter(haproxy.lines())
    same(f"{what}: logged twice", [line for line, count in logged.items() if count > 1], [])
    same(f"{what}: users", sorted(logged), [f"200 {user(i)}" for i in range(USERS)])


def with_headers(folder, haproxy):
    """Check that haproxy takes the addresses of clients from the headers of Squall's clients, and
    that Squall's servers take haproxy's headers, of both versions.
    """
    profile = folder / "headers.toml"
    profile.write_text((PORTS + WITH_HEADERS).format(kind="af_packet", vip=VIP))
    haproxy.begin()
    report, _ = squall(folder, "run", profile, "--fail-if", "v1.failed > 0 or v2.failed > 0")
    remote = haproxy.counts()
    by_name = {one["name"]: one for one in report["flows"]["templates"]}
    for name in ["v1", "v2"]:
        done(f"headers, {name}", by_name[name]["client"], 20, 20)
        found = int(remote[f"with-{name}", "BACKEND"]["hrsp_2xx"])
        same(f"headers, {name}: haproxy says", found, 20)
    done("headers, backends", by_name["backends"]["server"], 40, 40)
    wait("haproxy logs the requests", lambda: len(haproxy.lines()) >= 40, 10)
    expected = [f"200 203.0.113.{last}" for last in range(10, 50)]
    same("headers: addresses that haproxy says", sorted(haproxy.lines()), expected)
    print("ok: headers of the PROXY protocol to and from haproxy")


def websockets(folder, haproxy):
    """Check WebSocket over HTTP/2 (RFC 8441): from Squall's clients through haproxy to Python's
    server and to Squall's, and from Python's client through haproxy to Squall's servers.
    """
    profile = folder / "websockets.toml"
    profile.write_text((PORTS + WEBSOCKETS).format(kind="af_packet", vip=VIP))
    argv = inside(REMOTE, sys.executable, FLOWS, "echo")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    haproxy.begin()
    with background(argv, **pipes) as server:
        same("the server of WebSocket", server.stdout.readline(), "ready\n")
        argv = ["--fail-if", "python.failed > 0 or ours.failed > 0"]
        report, _ = squall(folder, "run", profile, *argv)
        server.stdin.close()
        found = json.loads(server.stdout.readline())
        same("WebSocket over HTTP/2: Python says", found, [10 * 3 * 5, 0])
    by_name = {one["name"]: one for one in report["flows"]["templates"]}
    for name, streams in [("python", 3), ("ours", 2)]:
        what, role = f"WebSocket over HTTP/2, {name}", by_name[name]["client"]
        done(what, role, 10, 10 * streams)
        same(f"{what}: streams", role["http2"]["streams"], 10 * streams)
        counts = {key: n for key, n in role["counters"].items() if n and "ws_p" not in key}
        messages = {f"ws_messages_{way}": 50 * streams for way in ["sent", "received"]}
        same(f"{what}: messages", counts, messages | {"ws_close_1000": 10 * streams})
        same(f"{what}: violations", role["http2"]["violations"], {})
    backends = by_name["backends"]["server"]
    counts = backends["counters"]
    found = (counts["ws_messages_received"], counts["ws_close_1000"], backends["protocol_errors"])
    same("WebSocket over HTTP/2, backends", found, (100, 20, {}))

    report = folder / "served.json"
    argv = ["--app", "websocket", "--http2", "--servers", "48.0.0.1", "--listen", 83]
    argv = ["flows", "serve", "--port", "af_packet:vb", *argv, "-q", "--json", report]
    probe = "import socket; socket.create_connection(('48.0.0.1', 83), 1).close()"
    connect = inside(REMOTE, sys.executable, "-c", probe)

    def answers():
        return subprocess.run(connect, stderr=subprocess.DEVNULL, check=False).returncode == 0

    with background(inside(LOCAL, SQUALL, *argv)) as process:
        wait("our servers answer", answers)
        python = inside(REMOTE, sys.executable, FLOWS, "echoed", f"{VIP}:84")
        same("Python over HTTP/2", run(*python).stdout.split(), ["True"] * 5 + ["1001"])
        process.send_signal(signal.SIGINT)
        process.wait(30)
    role = json.loads(report.read_text())["flows"]["total"]["server"]
    same("Python over HTTP/2: closes", role["counters"]["ws_close_1001"], 1)
    same("Python over HTTP/2: errors", role["protocol_errors"], {})
    print("ok: WebSocket over HTTP/2 with haproxy and Python")


def wrong_values(folder):
    """Check that a missing value, or one that is not a token, fails the flows, and these the
    run."""
    profile = folder / "login.toml"
    values = {"kind": "af_packet", "vip": VIP, "logins": 20}
    for extract, error, refused in [
        ("json auth.tokn", "no_value", 0),
        ("json auth.user", "check_status", 20),
    ]:
        profile.write_text((PORTS + LOGIN).format(**values, extract=extract))
        with logins(folder) as at_logins:
            report, output = squall(folder, "run", profile, "--fail-if", "login.failed > 0", ok=1)
        role = report["flows"]["total"]["client"]
        found = (role["attempted"], role["completed"], role["protocol_errors"])
        same(f"{extract}: flows", found, (20, 0, {error: 20}))
        criterion = "failed = 20 (fail if login.failed > 0)"
        same(
            f"{extract}: why it failed",
            output.strip(),
            f'squall: failed: template "login" (client): {criterion}',
        )
        found = [len(at_logins["issued"]), len(at_logins["used"]), at_logins["refused"]]
        same(f"{extract}: the server says", found, [20, 0, refused])

    # The same with options: in each of three logins over a connection, the request has the token of
    # the previous login.
    login = '{"user": "${data:user}", "password": "${data:password}"}'
    common = ["--url", f"http://{VIP}:8080/login", "--content", login, "--requests", 3, "--cookies"]
    common += ["-H", "Authorization: Bearer ${value:token}", "--clients", "16.0.0.0/24"]
    common += ["--csv", folder / "few.csv", "--csv-order", "once", "--users", 5]
    common += ["--port", "af_packet:va"]
    for path, check, (completed, errors, answers), reported in [
        ("auth.token", ["--check", "status 200"], (50, {}, {"2xx": 150}), [150, 100, 0]),
        ("auth.user", [], (50, {}, {"2xx": 100, "4xx": 50}), [100, 0, 50]),
        (
            "auth.user",
            ["--check", "status 200"],
            (0, {"check_status": 50}, {"2xx": 50, "4xx": 50}),
            [50, 0, 50],
        ),
    ]:
        criterion = ["--fail-if", "total.failed > 0 or total.http.4xx > 0"]
        good = path == "auth.token"
        argv = ["flows", "http", *common, *check, "--extract", f"token = json {path}", *criterion]
        with logins(folder) as at_logins:
            report, output = squall(folder, *argv, ok=0 if good else 1)
        role = report["flows"]["total"]["client"]
        same(f"{path} {check}: criteria", output.count("squall: failed: "), 0 if good else 1)
        found = (role["completed"], role["protocol_errors"], role["http"])
        same(f"{path} {check}: flows", found, (completed, errors, answers))
        found = [len(at_logins["issued"]), len(at_logins["used"]), at_logins["refused"]]
        same(f"{path} {check}: the server says", found, reported)
    print("ok: a login with the wrong value fails the run")


def user(number):
    return f"user{number:05}"


def main():
    match sys.argv[1:]:
        case ["logins", users]:
            return serve_logins(users)
    if os.geteuid() != 0:
        return print("SKIPPED: needs root")
    for tool in ["haproxy", "ss"]:
        if shutil.which(tool) is None:
            return print(f"SKIPPED: needs {tool}")
    with tempfile.TemporaryDirectory(prefix="squall-proxy-") as name:
        folder = pathlib.Path(name)
        for file, count in [("users.csv", USERS), ("few.csv", 50)]:
            records = [f"{user(i)},{i * 7919 % 100_003:05}" for i in range(count)]
            (folder / file).write_text("\n".join(["user,password", *records, ""]))
        try:
            network()
            with broadcasts(), Haproxy(folder) as haproxy:
                proxied(folder, haproxy, "af_packet")
                proxied(folder, haproxy, "af_packet", "--cores", "4")
                proxied(folder, haproxy, "af_xdp")
                with_headers(folder, haproxy)
                if importlib.util.find_spec("websockets") is None:
                    print("SKIPPED: WebSocket needs the Python package websockets")
                else:
                    websockets(folder, haproxy)
            wrong_values(folder)
        except Failed as failed:
            sys.exit(f"FAILED: {failed}")
        finally:
            for namespace in [LOCAL, REMOTE]:
                subprocess.run(["ip", "netns", "del", namespace], check=False)


if __name__ == "__main__":
    main()

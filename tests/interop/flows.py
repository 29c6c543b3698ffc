#!/usr/bin/env python3
"""squall flows against the kernel's TCP, nginx, curl, wrk and Python, over a veth pair in private
namespaces: Squall's clients with nginx, and other clients with Squall's servers, over IPv4 and
IPv6, by af_packet and by af_xdp, with frames deliberately lost, duplicated, delayed and reordered.
The counts of both sides agree, all octets are correct, and no flow is left open. WebSocket is between
Squall and Python's websockets, and Node.js.

Needs root, nginx, curl, wrk and the Python package websockets; $SQUALL is target/debug/squall unless set.
"""

import contextlib
import hashlib
import http.client
import http.server
import importlib.util
import json
import os
import pathlib
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from tools import Failed, background, run, same, slowness, wait_idle

ROOT = pathlib.Path(__file__).resolve().parents[2]
SQUALL = pathlib.Path(os.environ.get("SQUALL", ROOT / "target/debug/squall")).absolute()
LOCAL = f"sq-flows-{os.getpid()}"
REMOTE = f"{LOCAL}-peer"
V4, V6 = "10.77.0.1", "fd77::1"  # addresses of the kernel's side
MEGABYTES = 64

NGINX = """
daemon off; worker_processes 1; master_process off; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 4096; }}
http {{
  access_log {folder}/access.log; keepalive_requests 100000; client_body_temp_path {folder}/body; proxy_temp_path {folder}/p;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  server {{ listen 80; listen [::]:80; root {folder}/www; }}
  {more}
}}
"""


def inside(namespace, *argv):
    return ["ip", "netns", "exec", namespace, *[str(word) for word in argv]]


def network():
    for namespace in [LOCAL, REMOTE]:
        run("ip", "netns", "add", namespace)
    run(
        "ip",
        "link",
        "add",
        "va",
        "netns",
        LOCAL,
        "type",
        "veth",
        "peer",
        "name",
        "vb",
        "netns",
        REMOTE,
    )
    # Prevent packets that the kernel on Squall's side would send by itself: they would be counted.
    run(*inside(LOCAL, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1"))
    run("ip", "-n", LOCAL, "link", "set", "va", "up")
    run("ip", "-n", REMOTE, "link", "set", "vb", "up")
    run("ip", "-n", REMOTE, "link", "set", "lo", "up")
    run("ip", "-n", REMOTE, "addr", "add", f"{V4}/16", "dev", "vb")
    run("ip", "-n", REMOTE, "addr", "add", f"{V6}/64", "dev", "vb", "nodad")


def wait(what, come, seconds=30):
    seconds *= slowness()
    until = time.monotonic() + seconds
    while not come():
        if time.monotonic() > until:
            raise Failed(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.05)


def flows(folder, *argv):
    """Run squall flows to its end. Return its report."""
    report = folder / "report.json"
    run(*inside(LOCAL, SQUALL, "flows", *argv, "-q", "--json", report))
    return json.loads(report.read_text())


def counted(what, report, side, flows, requests=None):
    """Check that every flow has begun, has completed and is closed; on a busy machine, flows that
    did not begin must be counted as late.
    """
    role = report["flows"]["total"][side]
    late = role["not_begun"].get("late", 0)
    same(f"{what}: not begun", sum(role["not_begun"].values()), late)
    flows -= late
    if requests is not None and late:
        requests = requests * flows // (flows + late)
    found = {
        key: role[key] for key in ["attempted", "established", "completed", "active", "failed"]
    }
    same(
        what,
        found,
        {"attempted": flows, "established": flows, "completed": flows, "active": 0, "failed": {}},
    )
    if requests is not None:
        same(f"{what}: answers", role["http"], {"2xx": requests})
    return role


class Nginx:
    def __init__(self, folder, more=""):
        self.folder = folder
        (folder / "www").mkdir()
        for name, octets in [("small", 100), ("page", 32 * 1024), ("big", MEGABYTES << 20)]:
            (folder / "www" / name).write_bytes(os.urandom(octets))
        (folder / "nginx.conf").write_text(NGINX.format(folder=folder, more=more))
        os.chmod(folder, 0o755)

    def __enter__(self):
        argv = inside(
            REMOTE, "nginx", "-p", self.folder, "-c", self.folder / "nginx.conf", "-g", "user root;"
        )
        self.process = subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        listening = lambda: ":80 " in run(*inside(REMOTE, "ss", "-ltn")).stdout  # noqa: E731
        wait("nginx listens", lambda: self.process.poll() is not None or listening())
        if self.process.poll() is not None:
            raise Failed(f"nginx: {self.process.communicate()[0]}")
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(10)

    def log(self, expected=0):
        """Return (path, status, octets of the body) of all requests since the previous call. Wait
        until as many are logged as `expected`: nginx logs a request after it has sent the answer.
        """
        log = self.folder / "access.log"
        if expected:
            wait("nginx logs the requests", lambda: log.read_text().count("\n") >= expected)
        text = log.read_text() if log.exists() else ""
        log.write_text("")
        return [
            (m[1], m[2], int(m[3]))
            for m in re.finditer(r'"[A-Z]+ (\S+) HTTP/1.1" (\d+) (\d+)', text)
        ]


def established(address):
    """Return open flows between the kernel and Squall, without those in TIME-WAIT."""
    listed = run(*inside(REMOTE, "ss", "-Htan", "src", address)).stdout
    return [line for line in listed.splitlines() if line.split()[0] not in ("LISTEN", "TIME-WAIT")]


FAULTS = {
    "as it is": "",
    "1 % lost": ",drop=0.01,seed=3",
    "5 % lost, 2 % out of order, 2 % twice": ",drop=0.05,reorder=0.02,dup=0.02,seed=4",
    "50 ms late": ",delay=50000000",
}
# The stack gets the same frames on all kinds of ports, so on the second kind only every second
# fault is tested.
BY_PORT = {"af_packet": list(FAULTS), "af_xdp": list(FAULTS)[::2]}


def squall_clients(folder, nginx):
    for family, server, clients in [
        ("v4", V4, "10.77.1.1-10.77.1.50"),
        ("v6", f"[{V6}]", "fd77::1:1-fd77::1:50"),
    ]:
        for kind, fault in [(kind, fault) for kind, faults in BY_PORT.items() for fault in faults]:
            what = f"clients, {kind}, {family}, {fault}"
            url, port = f"http://{server}", f"{kind}:va{FAULTS[fault]}"
            common = ["--port", port, "--clients", clients, "-d", "30s"]
            nginx.log()
            report = flows(
                folder,
                "http",
                "--url",
                f"{url}/small",
                "--cps",
                400,
                "--flows",
                200,
                "-o",
                "close=true",
                *common,
            )
            role = counted(f"{what}, close", report, "client", 200, 200)
            same(f"{what}: nginx says", nginx.log(), [("/small", "200", 100)] * role["completed"])
            report = flows(
                folder,
                "http",
                "--url",
                f"{url}/page",
                "--users",
                10,
                "--requests",
                5,
                "--flows",
                50,
                *common,
            )
            role = counted(f"{what}, keep-alive", report, "client", 50, 250)
            same(f"{what}: nginx says", nginx.log(), [("/page", "200", 32 * 1024)] * 250)
            if role["received_octets"] < 250 * 32 * 1024:
                raise Failed(f"{what}: {role['received_octets']} octets received")
            mended = sum(
                n
                for name, n in role["tcp"].items()
                if "retransmit" in name or "out_of_order" in name
            )
            if "5 %" in fault and not mended:
                raise Failed(
                    f"{what}: frames were lost, and nothing had to be mended: {role['tcp']}"
                )
            wait(f"{what}: flows left in the kernel", lambda: not established(server), 10)
    for family, host, clients in [
        ("v4", V4, "10.77.1.1-10.77.1.50"),
        ("v6", f"[{V6}]", "fd77::1:1-fd77::1:50"),
    ]:
        for count, each, load in [
            (100, 1, ["--cps", 400, "-o", "close=true"]),
            (50, 5, ["--users", 10, "--requests", 5]),
        ]:
            what = f"clients, {family}, two workers, {each} requests each"
            nginx.log()
            url = ["--url", f"http://{host}/small", "--clients", clients]
            ports = ["--port", "af_packet:va", "--cores", 2, "-d", "30s"]
            report = flows(folder, "http", *url, *load, "--flows", count, *ports)
            role = counted(what, report, "client", count, each * count)
            logged = [("/small", "200", 100)] * each * role["completed"]
            same(f"{what}: nginx says", nginx.log(), logged)
            shared_by_two(what, report)
    print("ok: our clients and nginx")


def shared_by_two(what, report):
    """Check that two workers serve the port, each with the frames that the kernel assigns to it."""
    shares = [worker["tx_packets"] for worker in report["workers"]]
    same(f"{what}: workers", len(shares), 2)
    # A worker without a CPU when flows were due has begun fewer of them, and counted the others.
    late = report["flows"]["total"]["client"]["not_begun"].get("late", 0)
    if not late and min(shares) < 0.3 * sum(shares):
        raise Failed(f"{what}: one worker has nearly all: {shares}")
    counters = report["flows"]["links"][0]["counters"]
    if counters["relayed"] > 0.01 * counters["frames_received"]:
        raise Failed(f"{what}: frames came to the wrong worker: {counters}")
    same(f"{what}: frames dropped on the way to theirs", counters["relay_dropped"], 0)


class Uploads(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        left, digest = int(self.headers["Content-Length"]), hashlib.sha256()
        while left:
            octets = self.rfile.read(min(left, 1 << 20))
            if not octets:
                break
            digest.update(octets)
            left -= len(octets)
        print(digest.hexdigest(), flush=True)
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_):
        pass


def large_transfers(folder, nginx):
    """Check that 64 MB in each direction, with Squall at either end, arrive complete, even over a
    network that loses 1 %.
    """
    ports = [
        ("af_packet:va", MEGABYTES),
        ("af_xdp:va", MEGABYTES),
        ("af_packet:va,drop=0.01,reorder=0.01,seed=5", 8),
    ]
    for port, megabytes in ports:
        if megabytes == MEGABYTES:
            report = flows(
                folder,
                "http",
                "--url",
                f"http://{V4}/big",
                "--users",
                1,
                "--flows",
                1,
                "--port",
                port,
                "--clients",
                "10.77.1.1",
                "-d",
                "120s",
            )
            role = counted("64 MB from nginx", report, "client", 1, 1)
            if role["received_octets"] < MEGABYTES << 20:
                raise Failed(f"64 MB from nginx: {role['received_octets']} octets")
        argv = inside(REMOTE, sys.executable, __file__, "uploads")
        with background(argv, stdout=subprocess.PIPE, text=True) as sink:
            same("uploads", sink.stdout.readline(), "ready\n")
            octets = megabytes << 20
            report = flows(
                folder,
                "http",
                "--url",
                f"http://{V4}:8081/",
                "--users",
                1,
                "--flows",
                1,
                "--post",
                octets,
                "--port",
                port,
                "--clients",
                "10.77.1.1",
                "-d",
                "120s",
            )
            counted(f"{megabytes} MB to Python", report, "client", 1, 1)
            sha256 = sink.stdout.readline().strip()
            sink.terminate()
        same(f"{megabytes} MB to Python, {port}: SHA-256", sha256, hash_of_body(octets))
        with Served(folder, port, "--body", octets) as served:
            copy = folder / "copy"
            run(
                *inside(
                    REMOTE, "curl", "-sS", "--max-time", 120, "-o", copy, f"http://{served.v4}/"
                )
            )
            found = hashlib.sha256(copy.read_bytes()).hexdigest()
            same(f"{megabytes} MB to curl: octets", copy.stat().st_size, octets)
            same(
                f"{megabytes} MB to curl, {port}: SHA-256",
                found,
                hash_of_body(octets, b"squall serves octets\n"),
            )
        counted(f"{megabytes} MB to curl", served.report, "server", 1, 1)
    print(f"ok: {MEGABYTES} MB each way")


def hash_of_body(octets, text=b"squall sends octets\n"):
    """Return the digest of a body that Squall's clients post; Squall's servers answer with another
    body."""
    return hashlib.sha256((text * (octets // len(text) + 1))[:octets]).hexdigest()


class Served:
    """Squall's servers, running inside a with block."""

    v4, v6 = "10.77.2.1", "fd77::2:1"

    def __init__(self, folder, port, *argv, servers=v4):
        self.file, self.address = folder / "served.json", servers.split("-")[0]
        self.argv = inside(
            LOCAL,
            SQUALL,
            "flows",
            "serve",
            "--port",
            port,
            "--servers",
            servers,
            *argv,
            "-q",
            "--json",
            self.file,
        )

    def __enter__(self):
        self.process = subprocess.Popen(self.argv, stderr=subprocess.PIPE, text=True)
        address = self.address
        # A datagram makes the kernel resolve the address, which no host has.
        poke = f"import socket; socket.socket({'socket.AF_INET6' if ':' in address else 'socket.AF_INET'}, 2).sendto(b'?', ({address!r}, 9))"

        def answers():
            run(*inside(REMOTE, sys.executable, "-c", poke))
            return "lladdr" in run("ip", "-n", REMOTE, "neigh", "show", address).stdout

        try:
            wait("our servers answer", lambda: self.process.poll() is not None or answers())
        except Failed:
            self.process.kill()
            raise
        if self.process.poll() is not None:
            raise Failed(f"squall flows serve: {self.process.communicate()[1]}")
        return self

    def __exit__(self, kind, *_):
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise Failed("our servers did not end")
        if kind is None:
            self.report = json.loads(self.file.read_text())


def squall_servers(folder):
    for family, address, host in [
        ("v4", Served.v4, Served.v4),
        ("v6", Served.v6, f"[{Served.v6}]"),
    ]:
        for port in [
            "af_packet:va",
            "af_packet:va,drop=0.01,dup=0.01,seed=6",
            "af_xdp:va,drop=0.01,dup=0.01,seed=6",
        ]:
            what = f"servers, {family}, {port}"
            with Served(folder, port, "--body", "32KiB", servers=address) as served:
                for _ in range(5):
                    done = run(
                        *inside(
                            REMOTE,
                            "curl",
                            "-sS",
                            "-g",
                            "--max-time",
                            30,
                            "-w",
                            "%{http_code} %{size_download}",
                            "-o",
                            "/dev/null",
                            f"http://{host}/x",
                        )
                    )
                    same(f"{what}: curl", done.stdout, f"200 {32 * 1024}")
                # Several requests over one connection, by another implementation.
                done = run(*inside(REMOTE, sys.executable, __file__, "client", address))
                same(f"{what}: Python", done.stdout.split(), [str(32 * 1024)] * 20)
            counted(f"{what}: curl and Python", served.report, "server", 6, 25)
        for kind in BY_PORT:
            against_wrk(folder, kind, family, address, host)
    print("ok: our servers, curl, wrk and Python")


def against_wrk(folder, kind, family, address, host):
    what = f"wrk, {kind}, {family}"
    with Served(folder, f"{kind}:va", "--body", "100", servers=address) as served:
        done = run(*inside(REMOTE, "wrk", "-t1", "-c20", "-d1s", f"http://{host}/"))
        requests = int(re.search(r"(\d+) requests in", done.stdout)[1])
        same(f"{what}: errors", "Socket errors" in done.stdout or "Non-2xx" in done.stdout, False)
    role = served.report["flows"]["total"]["server"]
    answered = role["http"]["2xx"]
    # wrk stops when its time is over, with requests still open.
    if not requests <= answered <= requests + 20:
        raise Failed(f"{what}: it counts {requests} answers, our server {answered}")
    same(
        f"{what}: flows left",
        (role["attempted"], role["active"]),
        (role["completed"] + sum(role["failed"].values()), 0),
    )


def client(address):
    """Send 20 requests over one connection; runs in the other namespace."""
    connection = http.client.HTTPConnection(address, 80, timeout=30)
    for _ in range(20):
        connection.request("GET", "/")
        print(len(connection.getresponse().read()))
    connection.close()


def echo():
    """Return messages of WebSocket; runs in the other namespace. At the end of the input, print how
    many texts and how many octets came.
    """
    from websockets.sync.server import serve

    texts, octets = [], []

    def handle(connection):
        for message in connection:
            (texts if isinstance(message, str) else octets).append(len(message))
            connection.send(message)

    with serve(handle, "", 8082) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print("ready", flush=True)
        sys.stdin.read()
        print(json.dumps([len(texts), sum(octets)]), flush=True)
        server.shutdown()


def echoed(address):
    """Send messages over WebSocket and compare the answers; runs in the other namespace."""
    from websockets.sync.client import connect

    with connect(f"ws://{address}/") as connection:
        parts = ["κόσμε ", "x" * 70_000, "!"]
        for sent in ["hello", b"\0\xff" * 40_000, "", parts]:
            connection.send(sent)
            expected = "".join(sent) if isinstance(sent, list) else sent
            print(connection.recv(timeout=30) == expected)
        print(connection.ping(b"payload").wait(30))
        connection.close(1001)
        print(connection.close_code)


def pushed(address):
    """Get the messages that a server sends to two connections at the same times, until five are
    equal; runs in the other namespace.
    """
    from websockets.sync.client import connect

    with connect(f"ws://{address}/") as one, connect(f"ws://{address}/") as other:
        first, second = set(), set()
        while len(first & second) < 5:
            first.add(one.recv(timeout=30))
            second.add(other.recv(timeout=30))
        print({len(message) for message in first | second})


def fanned_out(address):
    """Send a message to three connections over one of them; runs in the other namespace."""
    from websockets.sync.client import connect

    with contextlib.ExitStack() as stack:
        members = [stack.enter_context(connect(f"ws://{address}/")) for _ in range(3)]
        # A member gets its own messages once the server has added it.
        for member in members:
            member.send("here")
            while member.recv(timeout=30) != "here":
                pass
        members[0].send(b"x" * 70_000)
        for member in members:
            while (found := member.recv(timeout=30)) == "here":
                pass
            print(found == b"x" * 70_000)


NODE = """
const socket = new WebSocket(process.argv[1]);
const sent = ["hello", "x".repeat(100000), "κόσμε"];
let at = 0;
socket.onopen = () => socket.send(sent[0]);
socket.onmessage = (event) => {
  console.log(event.data === sent[at]);
  at += 1;
  at < sent.length ? socket.send(sent[at]) : socket.close(1000);
};
socket.onclose = (event) => console.log(event.code, event.wasClean);
"""


def websockets(folder):
    """WebSocket between Squall's clients and Python's server, and between clients of Python and
    Node.js and Squall's servers, over a link that loses frames.
    """
    lossy = "af_packet:va,drop=0.01,reorder=0.01,seed=7"
    argv = inside(REMOTE, sys.executable, __file__, "echo")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with background(argv, **pipes) as server:
        same("the server of WebSocket", server.stdout.readline(), "ready\n")
        for what, options in [
            ("texts", ["-o", "size=20000", "-o", "fragment=1000", "-o", "ping=true"]),
            ("binary", ["-o", "size=70000", "-o", "binary=true"]),
        ]:
            common = ["--servers", V4, "--listen", 8082, "--clients", "10.77.1.1-10.77.1.50"]
            common += ["--users", 5, "--flows", 20, "-o", "messages=5", "-d", "30s"]
            report = flows(folder, "app", "websocket", "--port", lossy, *common, *options)
            role = counted(f"WebSocket, {what}", report, "client", 20)
            counts = {key: n for key, n in role["counters"].items() if n}
            same(
                f"WebSocket, {what}: messages",
                counts,
                {"ws_messages_sent": 100, "ws_messages_received": 100, "ws_close_1000": 20}
                | ({"ws_pings_sent": 100, "ws_pongs_received": 100} if what == "texts" else {}),
            )
            same(f"WebSocket, {what}: round trips", role["transaction_ns"]["count"], 100)
        server.stdin.close()
        same("WebSocket: the server says", json.loads(server.stdout.readline()), [100, 7_000_000])

    with Served(folder, lossy, "--app", "websocket") as served:
        done = run(*inside(REMOTE, sys.executable, __file__, "echoed", Served.v4)).stdout
        same("WebSocket: Python", done.split(), ["True"] * 5 + ["1001"])
        closed = {"ws_close_1001": 1}
        if shutil.which("node"):
            node = ["node", "--experimental-websocket", "-e", NODE, f"ws://{Served.v4}/"]
            done = run(*inside(REMOTE, *node)).stdout
            same("WebSocket: Node.js", done.split(), ["true"] * 3 + ["1000", "true"])
            closed["ws_close_1000"] = 1
    role = served.report["flows"]["total"]["server"]
    same("WebSocket: servers", (role["completed"], role["failed"]), (len(closed), {}))
    found = {key: n for key, n in role["counters"].items() if "close" in key and n}
    same("WebSocket: closes", found, closed)
    for what, options, expected in [
        ("pushed", ["push=50ms", "size=300"], "{300}"),
        ("fanned_out", ["fan_out=true"], "True True True"),
    ]:
        options = [word for option in options for word in ("-o", option)]
        with Served(folder, "af_packet:va", "--app", "websocket", *options) as served:
            done = run(*inside(REMOTE, sys.executable, __file__, what, Served.v4)).stdout
            same(f"WebSocket: {what}", " ".join(done.split()), expected)
        role = served.report["flows"]["total"]["server"]
        same(f"WebSocket: {what}: failed", (role["failed"], role["protocol_errors"]), ({}, {}))
    print("ok: WebSocket with Python and Node.js")


def uploads():
    """Accept POSTs and print the hash of each body; runs in the other namespace."""
    server = http.server.HTTPServer(("", 8081), Uploads)
    print("ready", flush=True)
    server.serve_forever()


def played_again(folder, nginx):
    """Repeat with Squall's clients a conversation with nginx that tcpdump has captured between curl
    and nginx.
    """
    capture, report = folder / "curl.pcap", folder / "report.json"
    nginx.log()
    argv = inside(
        REMOTE, *"tcpdump -i lo --immediate-mode -B 65536 -U -w".split(), capture, "tcp port 80"
    )
    tcpdump = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)
    while "listening on" not in (line := tcpdump.stderr.readline()):
        if not line:
            raise Failed("tcpdump does not listen")
    curl = inside(REMOTE, "curl", "-s", "-o", "/dev/null", "-o", "/dev/null")
    try:
        for path in ["small", "page", "small?a=1", "none"]:
            run(*curl, f"http://{V4}/{path}", f"http://{V4}/{path}&again")
        run(*curl, "-d", "x" * 5000, f"http://{V4}/posted")
        wait_idle(tcpdump)
    finally:
        tcpdump.terminate()
        tcpdump.communicate(timeout=10)
    requests = nginx.log(expected=9)
    same("requests that curl made", len(requests), 9)
    argv = [
        "replay",
        "--stateful",
        capture,
        "-i",
        "af_packet:va",
        "--server",
        V4,
        "--clients",
        "10.77.2.1-10.77.2.9",
    ]
    for loops, speed in [(1, ["-x", "2"]), (3, ["-t"])]:
        run(
            *inside(
                LOCAL,
                SQUALL,
                *argv,
                "-l",
                loops,
                *speed,
                "--duration",
                "20",
                "-q",
                "--json",
                report,
            )
        )
        load = json.loads(report.read_text())["flows"]
        played = load["conversations"]
        what = {
            key: played[key]
            for key in ["found", "playable", "not_played", "failed_first", "octets_as_captured"]
        }
        expected = {
            "found": 5,
            "playable": 5,
            "not_played": {},
            "failed_first": [],
            "octets_as_captured": True,
        }
        same(f"a capture, played {loops} times", what, expected)
        same(f"conversations, {loops} times", load["total"]["client"]["completed"], 5 * loops)
        logged = sorted(nginx.log(expected=9 * loops))
        same(f"requests, {loops} times: nginx says", logged, sorted(requests * loops))
    print("ok: a capture's conversations and nginx")


def closing_early(folder):
    """Check that clients report it when nginx closes a connection after three requests."""
    more = "server { listen 81; root %s/www; keepalive_requests 3; }" % folder
    for requests, missing in [(3, 0), (4, 6)]:
        web = folder / f"early-{requests}"
        web.mkdir()
        os.chmod(web, 0o755)
        with Nginx(web, more.replace(str(folder), str(web))):
            argv = ["--flows", 6, "--requests", requests, "--cps", 50, "--allow-invalid"]
            argv += ["--port", "af_packet:va", "--clients", "10.77.1.1"]
            report = flows(folder, "http", "--url", f"http://{V4}:81/small", *argv)
            client = report["flows"]["total"]["client"]
            asked = {"asked": 6 * requests, "sent": 18, "answered": 18}
            same(f"{requests} requests of three", client["requests"], asked)
            failed = {"unfinished": missing} if missing else {}
            same(f"{requests} requests of three: failed", client["failed"], failed)
            codes = {reason["code"] for reason in report["verdict"]["reasons"]}
            same("not done", "not-done" in codes, missing > 0)
    print("ok: a server that closes after three requests")


def whole(frame):
    """Return a TCP/IPv4 frame with a correct checksum."""
    header = 14 + (frame[14] & 15) * 4
    end = 14 + int.from_bytes(frame[16:18], "big")
    segment = bytearray(frame[header:end])
    segment[16:18] = b"\0\0"
    octets = frame[26:34] + bytes([0, 6]) + len(segment).to_bytes(2, "big") + bytes(segment)
    octets += bytes(len(octets) % 2)
    total = sum(int.from_bytes(octets[i : i + 2], "big") for i in range(0, len(octets), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    frame[header + 16 : header + 18] = (~total & 0xFFFF).to_bytes(2, "big")


def device(mode):
    """Copy frames between va and vd: unchanged, with completed checksums, or with completed
    checksums and a bit flipped in the payload of every tenth segment. Print the number of damaged
    segments."""
    sides = []
    for name in ["va", "vd"]:
        side = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        side.bind((name, 0))
        sides.append(side)
    print("ready", flush=True)
    segments = changed = 0
    stop = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
    while not stop:
        ready, _, _ = select.select(sides, [], [], 0.05)
        for side in ready:
            octets, address = side.recvfrom(1 << 16)
            if address[2] == socket.PACKET_OUTGOING:
                continue
            frame = bytearray(octets)
            if mode != "copies" and frame[12:14] == b"\x08\0" and frame[23] == 6:
                whole(frame)
                data = 14 + (frame[14] & 15) * 4 + (frame[46] >> 4) * 4
                end = 14 + int.from_bytes(frame[16:18], "big")
                segments += data < end
                if mode == "damages" and data < end and segments % 10 == 0:
                    frame[end - 1] ^= 1
                    changed += 1
            sides[side is sides[0]].send(frame)
    print(changed, flush=True)


def damaged_on_the_way(folder, nginx):
    """Check with a device between nginx and Squall's clients that damaged segments are not
    accepted, while copies with a partial checksum (offload) are."""
    run("ip", "-n", LOCAL, "link", "add", "vc", "type", "veth", "peer", "name", "vd")
    run("ip", "-n", LOCAL, "link", "set", "vc", "up")
    run("ip", "-n", LOCAL, "link", "set", "vd", "up")
    body = hashlib.sha256((nginx.folder / "www" / "small").read_bytes()).hexdigest()
    argv = ["http", "--url", f"http://{V4}/small", "--check", f"sha256 {body}", "--port"]
    argv += ["af_packet:vc", "--clients", "10.77.1.1", "--cps", 50, "--flows", 20]
    for mode, good in [("copies", False), ("completes", True), ("damages", True)]:
        between = subprocess.Popen(
            inside(LOCAL, sys.executable, __file__, "device", mode),
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            same("the device", between.stdout.readline(), "ready\n")
            few = [] if good else ["--tcp", "syn_retries=1", "--allow-invalid"]
            report = flows(folder, *argv, "--requests", 5, *few)
        finally:
            between.send_signal(signal.SIGTERM)
            changed = int(between.communicate()[0])
        bad = report["flows"]["links"][0]["counters"]["bad_tcp_checksum"]
        if good:
            counted(f"a device that {mode}", report, "client", 20, 100)
            # The kernel counts the damaged segments that nginx received.
            if not (changed > 0) == (bad > 0) == (mode == "damages") or bad > changed:
                raise Failed(f"a device that {mode}: {changed} changed, {bad} bad")
        else:
            client = report["flows"]["total"]["client"]
            same("what is copied without a checksum", client["completed"], 0)
            if bad == 0:
                raise Failed("frames without a checksum are not counted")
    run("ip", "-n", LOCAL, "link", "del", "vc")
    print("ok: a device that damages what it forwards")


def main():
    match sys.argv[1:]:
        case ["device", mode]:
            return device(mode)
        case ["client", address]:
            return client(address)
        case ["uploads"]:
            return uploads()
        case ["echo"]:
            return echo()
        case ["echoed", address]:
            return echoed(address)
        case ["pushed", address]:
            return pushed(address)
        case ["fanned_out", address]:
            return fanned_out(address)
    if os.geteuid() != 0:
        return print("SKIPPED: needs root")
    for tool in ["nginx", "curl", "wrk", "ss", "tcpdump"]:
        if shutil.which(tool) is None:
            return print(f"SKIPPED: needs {tool}")
    with tempfile.TemporaryDirectory(prefix="squall-flows-") as name:
        folder = pathlib.Path(name)
        try:
            network()
            with Nginx(folder) as nginx:
                squall_clients(folder, nginx)
                large_transfers(folder, nginx)
                played_again(folder, nginx)
                damaged_on_the_way(folder, nginx)
            closing_early(folder)
            if importlib.util.find_spec("websockets") is None:
                print("SKIPPED: WebSocket needs the Python package websockets")
            else:
                websockets(folder)
            squall_servers(folder)
        except Failed as failed:
            sys.exit(f"FAILED: {failed}")
        finally:
            for namespace in [LOCAL, REMOTE]:
                subprocess.run(["ip", "netns", "del", namespace], check=False)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""gRPC between Squall and Python's grpcio, over a veth pair in private namespaces that loses or
reorders frames, with and without TLS: Squall's clients with grpcio's server, and grpcio's client with
Squall's servers. The cases have the names of gRPC's interoperability tests. The counts of both sides
agree, and no flow is left open.

With --full, also with grpc-go (grpc_go/main.go), which is built first.

Needs root and the Python package grpcio; $SQUALL is target/debug/squall unless set.
"""

import collections
import contextlib
import importlib.util
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
from concurrent import futures

from flows import LOCAL, REMOTE, SQUALL, V4, Served, inside, network, wait
from tools import Failed, background, run, same

ROOT = pathlib.Path(__file__).resolve().parents[2]
GRPCIO = [sys.executable, __file__]
LOSSY = "af_packet:va,drop=0.01,reorder=0.01,seed=7"
# A peer that ends may reset its connections; without that segment, a server would wait.
REORDERS = "af_packet:va,reorder=0.01,seed=7"
LARGE, ANSWER = 271_828, 314_159
PROTO = """
syntax = "proto3";
package squall;
message Sized { int32 size = 1; bytes body = 2; }
message Empty {}
service Test {
  rpc Empty(Empty) returns (Empty);
  rpc Unary(Sized) returns (Sized);
  rpc Up(stream Sized) returns (Sized);
  rpc Down(Sized) returns (stream Sized);
  rpc Chat(stream Sized) returns (stream Sized);
  rpc Talk(stream Sized) returns (stream Sized);
  rpc Sleep(stream Sized) returns (stream Sized);
  rpc Status(Sized) returns (Sized);
  rpc Echo(Sized) returns (Sized);
}
"""


def serve(address, certificate, key):
    """Serve all methods of PROTO, whose messages are octets, until the input ends; then print what
    came, by method. Runs in the other namespace."""
    import grpc

    calls = collections.Counter()
    lock = threading.Lock()

    def count(name, messages):
        with lock:
            calls[name] += 1
            calls[f"{name} messages"] += messages

    def unary(name, answer):
        def handle(request, context):
            if name != "Echo":
                count(name, 1)
            return answer(request, context)

        return grpc.unary_unary_rpc_method_handler(handle)

    def status(request, context):
        context.abort(grpc.StatusCode.NOT_FOUND, "no such ☺")

    def echo(request, context):
        metadata = dict(context.invocation_metadata())
        if (metadata.get("x-id"), metadata.get("x-bin-bin")) != ("000007", b"\xab\xab\xab"):
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(metadata))
        count("Echo", 1)
        context.send_initial_metadata([("x-initial", "1")])
        context.set_trailing_metadata([("x-trailing", "2")])
        return request

    def up(requests, context):
        count("Up", sum(1 for _ in requests))
        return b"y" * 100

    def down(request, context):
        count("Down", 1)
        for size in [31_415, 9, 2_653, 58_979]:
            yield b"z" * size

    def chat(requests, context):
        messages = 0
        for request in requests:
            messages += 1
            yield request
        count("Chat", messages)

    def talk(requests, context):
        yield from requests

    def sleep(requests, context):
        done = threading.Event()
        if context.add_callback(done.set):
            done.wait(10)
        count("Sleep", 0)
        yield b""

    handlers = {
        "Empty": unary("Empty", lambda request, context: b""),
        "Unary": unary("Unary", lambda request, context: b"x" * ANSWER),
        "Status": unary("Status", status),
        "Echo": unary("Echo", echo),
        "Up": grpc.stream_unary_rpc_method_handler(up),
        "Down": grpc.unary_stream_rpc_method_handler(down),
        "Chat": grpc.stream_stream_rpc_method_handler(chat),
        "Talk": grpc.stream_stream_rpc_method_handler(talk),
        "Sleep": grpc.stream_stream_rpc_method_handler(sleep),
    }
    server = grpc.server(futures.ThreadPoolExecutor(40))
    generic = grpc.method_handlers_generic_handler("squall.Test", handlers)
    server.add_generic_rpc_handlers([generic])
    server.add_insecure_port(f"{address}:50051")
    pair = (pathlib.Path(key).read_bytes(), pathlib.Path(certificate).read_bytes())
    server.add_secure_port(f"{address}:50052", grpc.ssl_server_credentials([pair]))
    server.start()
    print("ready", flush=True)
    sys.stdin.read()
    server.stop(None).wait()
    print(json.dumps(calls), flush=True)
    # Handlers of canceled calls may still wait for messages.
    os._exit(0)


PORTS = """
[ports]
A = "{port}"

[flows]
{side} = "A"
"""
CLIENT = """
[[template]]
name    = "{name}"
play    = "clients"
clients = "inside"
servers = "{address}"
listen  = {listen}
app     = "grpc"
cps     = 500
limit   = 5
http    = {{ streams = 4 }}
tls     = {tls}
options = {{ method = "/squall.Test/{method}", calls = 8, {options} }}
"""
INSIDE = """
[[pool]]
name      = "inside"
addresses = "10.77.1.1-10.77.1.20"
"""
# For each of 40 calls: the name of the case, the method, options, and calls by status; and messages
# each way of all calls.
CASES = [
    ("empty_unary", "Empty", 'proto = "test.proto"', {"ok": 40}, (40, 40)),
    ("large_unary", "Unary", 'proto = "test.proto", file = "large"', {"ok": 40}, (40, 40)),
    ("client_streaming", "Up", "messages = 4, size = 27_182", {"ok": 40}, (160, 40)),
    (
        "server_streaming",
        "Down",
        """proto = "test.proto", answers = 4, json = '{ "size": 7 }'""",
        {"ok": 40},
        (40, 160),
    ),
    ("ping_pong", "Chat", "lockstep = true, messages = 4, size = 5_000", {"ok": 40}, (160, 160)),
    ("both_streams", "Chat", "messages = 9, answers = 9", {"ok": 40}, (360, 360)),
    ("empty_stream", "Chat", "messages = 0, answers = 0", {"ok": 40}, (0, 0)),
    ("cancel_after_begin", "Up", "cancel = 0", {"cancelled": 40}, (0, 0)),
    (
        "cancel_after_first_response",
        "Talk",
        "cancel = 1, lockstep = true",
        {"cancelled": 40},
        (40, 40),
    ),
    (
        "timeout_on_sleeping_server",
        "Sleep",
        'deadline = "20 ms", expect = "DEADLINE_EXCEEDED"',
        {"deadline_exceeded": 40},
        (40, 0),
    ),
    ("status_code_and_message", "Status", 'status = "NOT_FOUND"', {"not_found": 40}, (40, 0)),
    (
        "custom_metadata",
        "Echo",
        'metadata = ["X-Id: ${flow:5}7", "x-bin-bin: q6ur"], expect = "OK INVALID_ARGUMENT"',
        # Only the first stream has the number that the server asks for.
        {"ok": 2, "invalid_argument": 38},
        (40, 2),
    ),
    (
        "unimplemented_method",
        "None",
        'expect = "UNIMPLEMENTED"',
        {"unimplemented": 40},
        (40, 0),
    ),
]
MESSAGES = ("grpc_messages_sent", "grpc_messages_received")


def counters(role):
    """Return the calls by status, and the messages sent and received."""
    found = dict(role["counters"])
    messages = tuple(found.pop(name) for name in MESSAGES)
    return {name.removeprefix("grpc_"): n for name, n in found.items() if n}, messages


def squall_clients(folder, peer, what):
    """Squall's clients call the peer's server."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    run(
        *["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"],
        *["-nodes", "-subj", "/CN=grpc.test", "-keyout", key, "-out", certificate],
    )
    (folder / "test.proto").write_text(PROTO)
    (folder / "large").write_bytes(b"w" * LARGE)
    templates = [
        CLIENT.format(
            name=name,
            address=V4,
            listen=50051 + i % 2,
            tls="true" if i % 2 else "false",
            method=method,
            options=options,
        )
        for i, (name, method, options, *_) in enumerate(CASES)
    ]
    profile, report = folder / "clients.toml", folder / "clients.json"
    profile.write_text(PORTS.format(port=LOSSY, side="clients") + INSIDE + "".join(templates))
    argv = inside(REMOTE, *peer, "serve", V4, certificate, key)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with background(argv, **pipes) as server:
        same(f"the server of {what}", server.stdout.readline(), "ready\n")
        argv = inside(LOCAL, SQUALL, "run", profile, "-d", "60s", "-q", "--json", report)
        run(*argv, cwd=folder)
        server.stdin.close()
        found = json.loads(server.stdout.readline())
    by_name = {of["name"]: of for of in json.loads(report.read_text())["flows"]["templates"]}
    for name, _, _, statuses, messages in CASES:
        role = by_name[name]["client"]
        same(name, (role["completed"], role["failed"]), (5, {}))
        same(name, counters(role), (statuses, messages))
        same(f"{name}: streams", role["http2"]["streams"], 40)
        same(f"{name}: violations", role["http2"]["violations"], {})
    expected = {"Empty": 40, "Unary": 40, "Up messages": 160, "Down": 40, "Status": 40}
    expected |= {"Echo": 2, "Chat": 120, "Chat messages": 160 + 360}
    same(f"the server of {what} counts", {key: found.get(key) for key in expected}, expected)
    print(f"ok: Squall's clients with the server of {what}")


def call(address):
    """Call Squall's servers and print the results; runs in the other namespace."""
    import grpc

    def status(call):
        try:
            return call()
        except grpc.RpcError as error:
            return [error.code().name, error.details()]

    def waits():
        yield b"a"
        threading.Event().wait(30)

    with grpc.insecure_channel(f"{address}:50051") as channel:
        path, found = "/squall.Test/Call", {}
        unary = channel.unary_unary(path)
        found["empty_unary"] = len(unary(b"", timeout=30))
        found["large_unary"] = len(unary(b"x" * LARGE, timeout=30))
        up = channel.stream_unary(path)
        found["client_streaming"] = len(up(iter([b"a"] * 20), timeout=30))
        found["empty_stream"] = len(up(iter([]), timeout=30))
        metadata = [("x-id", "7"), ("x-bin-bin", b"\0\xff")]
        found["custom_metadata"] = len(unary(b"a", timeout=30, metadata=metadata))
    with grpc.insecure_channel(f"{address}:50052") as channel:
        down = channel.unary_stream(path)
        found["server_streaming"] = [len(one) for one in down(b"a", timeout=30)]
    with grpc.insecure_channel(f"{address}:50053") as channel:
        chat = channel.stream_stream(path)
        found["ping_pong"] = [len(one) for one in chat(iter([b"a"] * 5), timeout=30)]
        begun = chat(waits(), timeout=30)
        next(begun)
        begun.cancel()
        found["cancel_after_first_response"] = status(lambda: list(begun))[0]
    with grpc.insecure_channel(f"{address}:50054") as channel:
        unary = channel.unary_unary(path)
        found["status_code_and_message"] = status(lambda: unary(b"a", timeout=30))
    with grpc.insecure_channel(f"{address}:50055") as channel:
        unary = channel.unary_unary(path)
        # The first call waits for the connection, so a short time would not be enough for it.
        other = channel.unary_unary("/squall.Test/Other")
        found["unimplemented_method"] = status(lambda: other(b"a", timeout=30))[0]
        found["timeout_on_sleeping_server"] = status(lambda: unary(b"a", timeout=1))[0]
    print(json.dumps(found))


SERVER = """
[[template]]
play    = "servers"
servers = "{address}"
app     = "grpc"
listen  = {listen}
options = {{ {options} }}
"""


@contextlib.contextmanager
def serving(folder, profile):
    """Run Squall's servers during the block. After the block, the result is their report."""
    report, found = folder / "servers.json", {}
    # A datagram makes the kernel resolve the address, which no host has.
    poke = f"import socket; socket.socket(2, 2).sendto(b'?', ({Served.v4!r}, 9))"

    def answers():
        run(*inside(REMOTE, sys.executable, "-c", poke))
        return "lladdr" in run("ip", "-n", REMOTE, "neigh", "show", Served.v4).stdout

    argv = inside(LOCAL, SQUALL, "run", profile, "-q", "--json", report)
    process = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, cwd=folder)
    try:
        wait("Squall's servers answer", lambda: process.poll() is not None or answers())
        if process.poll() is not None:
            raise Failed(f"squall run: {process.communicate()[1]}")
        yield found
        process.send_signal(signal.SIGINT)
        process.wait(30)
        found.update(json.loads(report.read_text()))
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def squall_servers(folder, peer, what):
    """The peer's client calls Squall's servers."""
    (folder / "one.proto").write_text(
        'syntax = "proto3"; package squall; message M {} service Test { rpc Call(M) returns (M); }'
    )
    options = [
        "answer_size = 314_159",
        'answers = 4, answer_size = "31 kB"',
        "lockstep = true, answer_size = 9",
        'status = "NOT_FOUND", status_text = "no such ☺"',
        'delay = "60 s", proto = "one.proto"',
    ]
    templates = [
        SERVER.format(address=Served.v4, listen=50051 + i, options=of)
        for i, of in enumerate(options)
    ]
    profile = folder / "servers.toml"
    profile.write_text(PORTS.format(port=REORDERS, side="servers") + "".join(templates))
    with serving(folder, profile) as report:
        found = run(*inside(REMOTE, *peer, "call", Served.v4)).stdout
    expected = {
        "empty_unary": ANSWER,
        "large_unary": ANSWER,
        "client_streaming": ANSWER,
        "empty_stream": ANSWER,
        "custom_metadata": ANSWER,
        "server_streaming": [31_000] * 4,
        "ping_pong": [9] * 5,
        "cancel_after_first_response": "CANCELLED",
        "status_code_and_message": ["NOT_FOUND", "no such ☺"],
        "timeout_on_sleeping_server": "DEADLINE_EXCEEDED",
        "unimplemented_method": "UNIMPLEMENTED",
    }
    same(f"the client of {what}", json.loads(found), expected)
    role = report["flows"]["total"]["server"]
    statuses = {"ok": 7, "cancelled": 2, "not_found": 1, "unimplemented": 1}
    # The request of a method that does not exist is not read.
    same("Squall's servers", counters(role), (statuses, (15, 32)))
    same("Squall's servers: failed", role["failed"], {})
    print(f"ok: the client of {what} with Squall's servers")


def grpc_go():
    """Build grpc_go/main.go. Its modules are those of tests/otg/gosnappi/run."""
    built = ROOT / "target/otg/go"
    caches = {"GOCACHE": str(built / "build"), "GOMODCACHE": str(built / "mod")}
    # Otherwise only root can remove the folder.
    environment = {**os.environ, **caches, "GOFLAGS": "-modcacherw"}
    folder = pathlib.Path(__file__).resolve().parent / "grpc_go"
    run("go", "build", "-o", built / "grpc_calls", ".", cwd=folder, env=environment)
    return built / "grpc_calls"


def main():
    match sys.argv[1:]:
        case ["serve", address, certificate, key]:
            return serve(address, certificate, key)
        case ["call", address]:
            return call(address)
    if os.geteuid() != 0:
        return print("SKIPPED: needs root")
    if importlib.util.find_spec("grpc") is None:
        return print("SKIPPED: needs the Python package grpcio")
    peers = {"grpcio": GRPCIO}
    if "--full" in sys.argv:
        peers["grpc-go"] = [grpc_go()]
    with tempfile.TemporaryDirectory(prefix="squall-grpc-") as name:
        folder = pathlib.Path(name)
        try:
            network()
            for what, peer in peers.items():
                squall_clients(folder, peer, what)
                squall_servers(folder, peer, what)
        except Failed as failed:
            sys.exit(f"FAILED: {failed}")
        finally:
            for namespace in [LOCAL, REMOTE]:
                subprocess.run(["ip", "netns", "del", namespace], check=False)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Congestion controls of `squall flows` compared with those of Linux: each sends to the same Linux
receiver, through the same bridge.py, whose rate, queue, delay and losses make the path. The ratio
of their goodputs is printed. With --full each control runs over twelve paths, several times in
turn. The median ratio has to be within 5 % where the path decides. It is only printed where chance
or versions do: with random losses, and for BBR (here version 3, in Linux version 1, which ignores
losses) with a queue that is too short for its probes.

Needs root and ethtool; $SQUALL is target/debug/squall unless set.
"""

import contextlib
import json
import os
import pathlib
import shutil
import socket
import statistics
import subprocess
import sys
import time

from tools import Failed, run

HERE = pathlib.Path(__file__).resolve()
SQUALL = pathlib.Path(os.environ.get("SQUALL", HERE.parents[2] / "target/debug/squall")).absolute()
PREFIX = f"sq-congestion-{os.getpid()}"
SENDER, DEVICE, RECEIVER = (f"{PREFIX}-{name}" for name in ("sender", "device", "receiver"))
KERNEL, OWN, TARGET, PORT = "10.88.0.1", "10.88.1.1", "10.88.0.2", 9000

# Frames per second: 20 Mbit/s of full frames.
RATE = 1650
FRAME, PAYLOAD = 1514, 1448
# The time that goodput is measured for begins after slow start.
WARM_S = 2.0


def inside(namespace, *argv):
    return ["ip", "netns", "exec", namespace, *[str(word) for word in argv]]


def network():
    for namespace in (SENDER, DEVICE, RECEIVER):
        run("ip", "netns", "add", namespace)
    for name, namespace in (("a", SENDER), ("b", RECEIVER)):
        peer = ["peer", "name", f"{name}1", "netns", DEVICE]
        run("ip", "link", "add", f"{name}0", "netns", namespace, "type", "veth", *peer)
        for where, end in ((namespace, f"{name}0"), (DEVICE, f"{name}1")):
            run(*inside(where, "sysctl", "-qw", f"net.ipv6.conf.{end}.disable_ipv6=1"))
            # The bridge copies frames, so they must be cut and have their checksums.
            off = ["tso", "off", "gso", "off", "gro", "off", "tx", "off"]
            run(*inside(where, "ethtool", "-K", end, *off))
            run("ip", "-n", where, "link", "set", end, "up")
    run("ip", "-n", SENDER, "addr", "add", f"{KERNEL}/16", "dev", "a0")
    run("ip", "-n", RECEIVER, "addr", "add", f"{TARGET}/16", "dev", "b0")


@contextlib.contextmanager
def bridge(queue, delay_ms, loss, seed):
    """A path from a to b with a bottleneck; the way back is free. Yields a list to which its
    counters are added at the end."""
    argv = [sys.executable, HERE.parent / "bridge.py", "a1", "b1", "--direction", "a"]
    argv += ["--rate", RATE, "--queue", queue, "--delay-ms", delay_ms]
    argv += ["--random-loss", loss, "--seed", seed, "--from", 1000]
    pipe = subprocess.PIPE
    device = subprocess.Popen(inside(DEVICE, *argv), stdin=pipe, stdout=pipe, text=True)
    counters = []
    try:
        if device.stdout.readline() != "ready\n":
            raise Failed("the bridge does not start")
        yield counters
    finally:
        counters.append(json.loads(device.communicate(timeout=30)[0])["a"])


def receive(seconds):
    """Take a connection's octets. Print the number in the measured time."""
    with socket.create_server((TARGET, PORT)) as listener:
        print("ready", flush=True)
        connection, _ = listener.accept()
    start, octets = time.monotonic(), 0
    connection.settimeout(0.1)
    while (now := time.monotonic() - start) < seconds:
        try:
            taken = len(connection.recv(1 << 20))
        except TimeoutError:
            continue
        if taken == 0:
            break
        octets += taken if now >= WARM_S else 0
    print(octets, flush=True)


def send(control, seconds):
    """Send for a time through the kernel."""
    with socket.socket() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
        connection.connect((TARGET, PORT))
        until = time.monotonic() + seconds
        with contextlib.suppress(ConnectionError):
            while time.monotonic() < until:
                connection.sendall(bytes(1 << 16))


def sender(kind, control, seconds):
    if kind == "linux":
        return inside(SENDER, sys.executable, HERE, "send", control, seconds)
    argv = ["flows", "http", "--url", f"http://{TARGET}:{PORT}/", "--post", 500_000_000]
    argv += ["--port", "af_packet:a0", "--clients", OWN, "--users", 1, "--flows", 1]
    argv += ["--tcp", f"congestion={control}", "-d", f"{seconds}s", "-q"]
    return inside(SENDER, SQUALL, *argv)


def goodput(kind, control, seconds, path, seed):
    """Payload in bit/s, and the counters of the bridge."""
    pipe = subprocess.PIPE
    queue, delay_ms, loss = path
    with bridge(queue, delay_ms, loss, seed) as counters:
        argv = inside(RECEIVER, sys.executable, HERE, "receive", seconds)
        receiver = subprocess.Popen(argv, stdout=pipe, text=True)
        try:
            if receiver.stdout.readline() != "ready\n":
                raise Failed("the receiver does not start")
            argv = sender(kind, control, seconds + 1)
            with subprocess.Popen(argv, stdout=pipe, stderr=pipe, text=True) as sending:
                octets = int(receiver.communicate(timeout=60)[0])
                sending.terminate()
                _, errors = sending.communicate(timeout=30)
        finally:
            receiver.kill()
            receiver.wait()
    if octets == 0:
        raise Failed(f"{kind}, {control}: nothing arrived: {errors}")
    counted = counters[0]
    # Nothing but whole frames of the sender can have made the octets.
    if octets > counted["forwarded_octets"]:
        raise Failed(f"{kind}, {control}: {octets} octets of {counted}")
    return octets * 8 / (seconds - WARM_S), counted


def path_of(rtt_ms, loss, bdps):
    bdp = RATE * rtt_ms / 1000
    return max(2, round(bdp * bdps)), rtt_ms, loss


def compare(control, rtt_ms, loss, bdps, seconds, times):
    """The ratios of Squall's goodput to Linux's over a path, with the same losses."""
    path, ratios, figures = path_of(rtt_ms, loss, bdps), [], []
    for seed in range(times):
        found = {}
        # In turn, so that the load of the machine meets both.
        for kind in ("linux", "squall") if seed % 2 == 0 else ("squall", "linux"):
            found[kind], counted = goodput(kind, control, seconds, path, seed)
            figures.append((kind, found[kind], counted.get("dropped_queue", 0)))
        ratios.append(found["squall"] / found["linux"])
    median = statistics.median(ratios)
    each = {kind: statistics.median(f[1] for f in figures if f[0] == kind) for kind in found}
    print(
        f"{control}, RTT {rtt_ms} ms, loss {loss:.1%}, queue {bdps} BDP: {median:.3f} "
        f"({min(ratios):.3f} to {max(ratios):.3f}); "
        f"Linux {each['linux'] / 1e6:.2f} Mbit/s, Squall {each['squall'] / 1e6:.2f} Mbit/s",
        flush=True,
    )
    return median


def main():
    match sys.argv[1:]:
        case ["receive", seconds]:
            return receive(float(seconds))
        case ["send", control, seconds]:
            return send(control, float(seconds))
    if os.geteuid() != 0:
        return print("SKIPPED: needs root")
    if shutil.which("ethtool") is None:
        return print("SKIPPED: needs ethtool")
    full = "--full" in sys.argv[1:]
    if full:
        # The bridge, the senders and the receiver run before other programs. Not in the sample, at
        # whose time other tests run.
        with contextlib.suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    try:
        network()
        if full:
            wide = []
            for control in sys.argv[2:] or ("reno", "cubic", "bbr"):
                for rtt_ms in (10, 50):
                    for loss in (0, 0.001, 0.01):
                        for bdps in (1, 0.25):
                            median = compare(control, rtt_ms, loss, bdps, 12, 3)
                            decided = loss == 0 and (control != "bbr" or bdps == 1)
                            if decided and abs(median - 1) > 0.05:
                                wide.append((control, rtt_ms, loss, bdps, round(median, 3)))
            if wide:
                raise Failed(f"more than 5 %: {wide}")
        else:
            # Any control fills a path without losses; the machine may be busy.
            ratio = compare("bbr", 10, 0, 1, 4, 1)
            if not 0.25 < ratio < 4:
                raise Failed(f"{ratio}: both should fill most of the path")
    except Failed as failed:
        sys.exit(f"FAILED: {failed}")
    finally:
        for namespace in (SENDER, DEVICE, RECEIVER):
            subprocess.run(["ip", "netns", "del", namespace], check=False)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Runs on three nodes with the real Ray, each in namespaces that simulate a machine
(`squall.testing.local_cluster`). Totals are exact; delays and starts hold within the clocks'
bounds, although two nodes have wrong clocks on purpose; and after a kill, a stop or a cut link,
traffic ends within the lease, the report names what is missing, and no process or file is left. By
default it tests traffic of each kind and one fault, with --full everything. An argument names a
single step.
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

from tools import Failed, same, slowness

import squall
from squall._errors import PortError
from squall.testing import local_cluster

ROOT = pathlib.Path(__file__).resolve().parents[2]
SQUALL = os.environ.get("SQUALL") or str(ROOT / "target/debug/squall")
LEASE_S = 2.0
#: Seconds beyond the lease that the last frame may take on a busy machine.
MORE_S = 0.5
#: All nodes are on one machine, so the true offset of a clock is the error added to it.
OFFSETS = {"node1": 0, "node2": 5_000_000_000, "node3": -70_000_000_000}
SKEWED = {
    "node2": "clock_offset_ns = 5000000000\nclock_drift_ppb = 30000\n",
    "node3": "clock_offset_ns = -70000000000\nclock_drift_ppb = -20000\n",
}
PORTS = {name: f"node{i}/af_packet:eth1" for i, name in enumerate("ABC", 1)}
ONE_TWO = ("node1", "node2")
PACKET = "eth(src={src},dst={dst})/ipv4(src=10.0.0.1,dst=10.0.0.2)/udp(sport=1000,dport={port})"


def expect(true, what):
    if not true:
        raise Failed(what() if callable(what) else what)


class RestoredLate(Failed):
    """This script restored a link too late to see the effect of a short cut."""


class Rig:
    """The cluster and its runs."""

    def __init__(self, cluster):
        self.cluster, self.runs = cluster, 0
        # Only slightly more than the drift added to the clocks below: a small limit makes the
        # bounds narrow.
        text = cluster.inventory.read_text().replace(
            "[cluster]\n", "[cluster]\nmax_drift_ppm = 35\n"
        )
        for node, lines in SKEWED.items():
            text = text.replace(f"[node.{node}]\n", f"[node.{node}]\n{lines}")
        cluster.inventory.write_text(text)

    def mac(self, port):
        return self.cluster.nodes[f"node{'ABC'.index(port) + 1}"].mac

    def packet(self, sender, receiver, port=9):
        return PACKET.format(src=self.mac(sender), dst=self.mac(receiver), port=port)

    def profile(self, **table):
        """Write a profile as JSON. Return its path."""
        self.runs += 1
        file = self.cluster.folder / f"profile-{self.runs}.json"
        ports = {name: "null:" for name in table.pop("names", "ABC")}
        file.write_text(json.dumps({"ports": ports, **table}))
        return file

    def ring(self, packets=1000, rate="1 kpps", **table):
        """A profile in which the node of each port sends to the next."""
        names = table.get("names", "ABC")
        streams = [
            {
                "name": f"{a} to {b}",
                "port": a,
                "packet": self.packet(a, b),
                "rate": rate,
                "latency": True,
                **({} if packets is None else {"mode": {"burst": packets}}),
            }
            for a, b in zip(names, names[1:] + names[0])
        ]
        return self.profile(stream=streams, **table)

    def command(self, profile, *more, places=PORTS):
        """Return arguments for `squall`, the report's file, and the directory for reports of
        nodes."""
        self.runs += 1
        report, kept = (self.cluster.folder / f"{what}-{self.runs}" for what in ("report", "kept"))
        inventory = self.cluster.ports(**places)
        words = ["run", str(profile), "--nodes", str(inventory), "--keep", str(kept)]
        words += ["--json", str(report), "--live", "off", "--allow-invalid", *more]
        return words, report, kept

    def run(self, profile, *more, places=PORTS, status=0):
        """Run a profile. Return the report of the whole run and those of the nodes."""
        words, report, kept = self.command(profile, *more, places=places)
        done = self.cluster.run(SQUALL, *words, timeout=120)
        if done.returncode != status:
            raise Failed(f"squall run: {done.returncode}\n{done.stdout}{done.stderr}")
        parts = {file.stem: json.loads(file.read_text()) for file in kept.glob("*.json")}
        return json.loads(report.read_text()), parts, done.stderr

    def sent(self):
        """Return the frames that each node's port has sent, counted at the other end of its
        cable."""
        count = self.cluster.switch.counter
        return {f"node{i}": count(f"test-{i}") for i in (1, 2, 3)}

    def pids(self, node, what):
        listed = self.cluster.nodes[node].run("ps", "axo", "pid,args").splitlines()[1:]
        rows = (line.split(None, 1) for line in listed)
        return [int(pid) for pid, words in rows if what in words and "_keeper.py" not in words]

    def end_controllers(self):
        """End controllers that outlived a failed step."""
        for pid in self.pids("node1", "--nodes"):
            self.kill("node1", 9, pid)

    def signal(self, node, what, number):
        found = self.pids(node, what)
        expect(found, f"no process {what!r} on {node}")
        for pid in found:
            self.kill(node, number, pid)

    def kill(self, node, number, pid):
        with contextlib.suppress(PortError):
            # The process may have ended together with another one.
            self.cluster.nodes[node].run("kill", f"-{number}", str(pid))


# Runs


def status(rig):
    """Check that all nodes answer, and that each clock's true offset is within its bound, also on
    the node that UDP does not reach."""
    inventory = rig.cluster.ports(**PORTS)
    rig.cluster.python("up", str(inventory))
    walled = rig.cluster.nodes["node3"]
    walled.run("nft", "add table inet wall")
    walled.run("nft", "add chain inet wall in { type filter hook input priority 0; }")
    walled.run("nft", "add rule inet wall in meta l4proto udp drop")
    done = rig.cluster.run(SQUALL, "cluster", "status", str(inventory), "--json")
    table = json.loads(done.stdout)
    same("nodes that are up", [node["state"] for node in table["nodes"]], ["up"] * 3)
    walled.run("nft", "delete table inet wall")
    by = {node["name"]: node["clock_by"] for node in table["nodes"]}
    same("ways to the clocks", by, {"node1": "udp", "node2": "udp", "node3": "ray"})
    for node in table["nodes"]:
        # The drift added to a clock counts from the start of its node, less than a minute ago.
        true, slack = -OFFSETS[node["name"]], 60 * 30_000
        error = abs(node["clock_shift_ns"] - true)
        expect(
            error <= node["clock_bound_ns"] + (slack if true else 0),
            f"{node['name']}: the clock's shift {node['clock_shift_ns']} is off by {error} ns",
        )
    down = rig.cluster.run(SQUALL, "cluster", "down", str(inventory), timeout=120)
    same("exit status of down", down.returncode, 0)
    expect(all(STEP.match(line) for line in down.stdout.splitlines()), f"no steps:\n{down.stdout}")
    nothing_of_ray(rig)
    failed_up(rig, inventory)
    up = rig.cluster.python("up", str(inventory), "--only-ray", timeout=200)
    same(f"exit status of up: {up.stderr}", up.returncode, 0)
    expect(all(STEP.match(line) for line in up.stdout.splitlines()), f"no steps:\n{up.stdout}")


#: A step of `up`, `run` or `down`: seconds since the start of the command, and a message.
STEP = re.compile(r" *\d+\.\d s  \S")


def nothing_of_ray(rig):
    """No process, session, log or state of Ray is left."""
    for node in rig.cluster.nodes:
        same(f"processes left on {node}", rig.pids(node, "ray") + rig.pids(node, "squall"), [])
        left = rig.cluster.nodes[node].run("find", "/tmp/ray", "-mindepth", "1", "-maxdepth", "1")
        same(f"left in /tmp/ray on {node}", left.splitlines(), [])
    state = rig.cluster.folder / "state"
    same("left of the state", [str(file) for file in state.rglob("*") if not file.is_dir()], [])


def failed_up(rig, inventory):
    """A failed `up` prints one error, and leaves nothing running."""
    wrong = rig.cluster.folder / "wrong.toml"
    wrong.write_text(re.sub(r"(?m)^python = .*", 'python = "/bin/false"', inventory.read_text()))
    done = rig.cluster.run(SQUALL, "cluster", "up", str(wrong), timeout=200)
    same(f"exit status of a failed up: {done.stderr}", done.returncode, 3)
    lines = done.stderr.splitlines()
    expect(len(lines) <= 2 and lines[0].startswith("squall: node 'node"), f"not one error: {lines}")
    expect("head 100.90.0.1 is down" in done.stdout, f"the head is not stopped:\n{done.stdout}")
    down = rig.cluster.run(SQUALL, "cluster", "down", str(inventory), timeout=120)
    same("exit status of down after a failed up", down.returncode, 0)
    nothing_of_ray(rig)


def wait_for_traffic(rig, process, before, nodes):
    """Wait until each of these nodes has sent 500 frames more than `before`."""
    until = time.monotonic() + 60
    while min(rig.sent()[node] - before[node] for node in nodes) < 500:
        expect(process.poll() is None, lambda: f"the run ended: {process.stdout.read()}")
        expect(time.monotonic() < until, "no traffic within 60 s")
        time.sleep(0.05)


def repair(rig):
    """`up` replaces a dead node while two others send, and leaves those alone."""
    inventory = rig.cluster.ports(**PORTS)
    for what, number in (("serve --json", 9), ("ray start", 9)):
        up = rig.cluster.run(SQUALL, "cluster", "up", str(inventory), timeout=200)
        same(f"exit status of up: {up.stderr}", up.returncode, 0)
        before = nodes_up(rig, inventory)
        frames = 20_000
        words, report, _ = rig.command(rig.ring(frames, names="AB"), places=PORTS)
        sent = rig.sent()
        process = rig.cluster.popen(
            SQUALL, *words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        try:
            wait_for_traffic(rig, process, sent, ONE_TWO)
            rig.signal("node3", what, number)
            began = time.monotonic()
            up = rig.cluster.run(SQUALL, "cluster", "up", str(inventory), timeout=200)
            took = time.monotonic() - began
            same(f"exit status of up: {up.stderr}", up.returncode, 0)
            expect("node3 is up" in up.stdout, f"node3 is not replaced:\n{up.stdout}")
            for node in ONE_TWO:
                expect(f"node {node} is up" not in up.stdout, f"{node} was, too:\n{up.stdout}")
            text, _ = process.communicate(timeout=120)
        finally:
            rig.end_controllers()
            process.wait(10)
            process.stdout.close()
        after = nodes_up(rig, inventory)
        for node in ONE_TWO:
            same(f"daemon of {node}", after[node], before[node])
        expect(after["node3"] != before["node3"], "node3 has its old daemon")
        expect("missing" not in text, f"a node is missing:\n{text}")
        for stream in json.loads(report.read_text())["streams"]:
            received = (stream["rx"]["packets"], stream["rx"]["lost"])
            same(f"{stream['name']}: received, lost", received, (frames, 0))
        print(f"  after kill -{number} of {what!r}: repaired in {took:.1f} s")
    only_ray(rig, inventory)


def nodes_up(rig, inventory):
    """The process of each node's daemon; all are up."""
    done = rig.cluster.run(SQUALL, "cluster", "status", str(inventory), "--json")
    nodes = json.loads(done.stdout)["nodes"]
    same("nodes that are up", [node["state"] for node in nodes], ["up"] * 3)
    return {node["name"]: (node["pid"], node["daemon_pid"]) for node in nodes}


def streams(rig):
    """Check that in a ring all sent frames arrive, according to the reports and to the counters of
    the switch.
    """
    before = rig.sent()
    whole, parts, _ = rig.run(rig.ring())
    after = rig.sent()
    same("reports", sorted(parts), ["node1", "node2", "node3"])
    for stream in whole["streams"]:
        name, received = stream["name"], stream["rx"]
        same(f"{name}: sent", stream["tx_packets"], 1000)
        same(f"{name}: received", (received["packets"], received["lost"]), (1000, 0))
        same(f"{name}: duplicates", received["duplicates"], 0)
    for node in rig.cluster.nodes:
        same(f"{node}: frames at the switch", after[node] - before[node], 1000)
    delays(whole, parts)
    starts(parts)


def delays(whole, parts):
    """Check delays: all nodes share one clock, so they must be right within the bounds of two
    nodes."""
    bound = max(part["clock"]["bound_ns"] for part in parts.values())
    for stream in whole["streams"]:
        least, most = (stream["rx"]["latency_ns"][key] for key in ("min", "max"))
        expect(
            -2 * bound <= least and least < 100_000_000 + 2 * bound,
            f"{stream['name']}: a delay of {least} to {most} ns is impossible within {bound} ns",
        )


def starts(parts):
    """Return the largest difference between the starts of nodes: their own errors plus the bounds
    of their clocks."""
    errors = [part["start"]["error_ns"] for part in parts.values()]
    bounds = [part["clock"]["bound_ns"] for part in parts.values()]
    return max(errors) - min(errors) + sum(sorted(bounds)[-2:])


@contextlib.contextmanager
def first_frames(rig):
    """Return when the first frame of each node arrived at the switch, in seconds on a single
    clock."""
    # Do not enter the PID namespace, for which nsenter would fork.
    argv = ["nsenter", "-t", str(rig.cluster.switch.pid), "-n", "--", "tcpdump", "-i", "any", "-n"]
    argv += ["-tt", "--nano", "--immediate-mode", "-B", "65536", "-l"]
    argv.append("inbound and udp src port 1000")
    found = {}
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        while "listening" not in process.stderr.readline():
            expect(process.poll() is None, "tcpdump has ended")
        try:
            yield found
            time.sleep(0.1)
        finally:
            process.terminate()
        for line in process.stdout:
            if seen := re.match(r"([0-9.]+) +(test-[0-9])", line):
                found.setdefault(seen[2], float(seen[1]))


def spread(rig):
    """Check twenty starts from outside: first frames differ no more than the reports state."""
    found, stated = [], []
    for _ in range(20):
        with first_frames(rig) as first:
            # Slow enough that three senders, which spin ahead of departures, can share two CPUs.
            _, parts, _ = rig.run(rig.ring(packets=5, rate="100 pps"))
        same("ports that sent", sorted(first), ["test-1", "test-2", "test-3"])
        found.append((max(first.values()) - min(first.values())) * 1e3)
        stated.append(starts(parts) / 1e6)
        expect(found[-1] <= stated[-1], f"{found[-1]} ms apart, stated {stated[-1]} ms")
    middle = statistics.median(found)
    print(
        f"  starts {middle:.3f} ms apart (median of 20; {max(found):.3f} at most), stated are"
        f" {statistics.median(stated):.3f} ms"
    )
    most = slowness()
    expect(middle <= most, f"the median of the starts' spread is {middle:.3f} ms, not {most:.3f}")


def flows(rig):
    """Run clients on two nodes, and servers on the third."""
    places = {
        "clients": ["node1/af_packet:eth1", "node2/af_packet:eth1"],
        "servers": "node3/af_packet:eth1",
    }
    profile = rig.profile(
        names=["clients", "servers"],
        flows={"clients": "clients", "servers": "servers", "max_delay": "5 s"},
        template=[
            {
                "name": "web",
                "clients": "16.0.0.1-16.0.0.100",
                "servers": "48.0.0.1-48.0.0.4",
                "app": "http",
                "options": {"url": "http://48.0.0.1/", "body": "4 KiB"},
                "cps": 200,
                "limit": 400,
            }
        ],
    )
    whole, parts, _ = rig.run(profile, places=places)
    same("reports", sorted(parts), ["node1", "node2", "node3"])
    [web] = whole["flows"]["templates"]
    for what in ("asked", "attempted", "completed"):
        same(f"flows of clients, {what}", web["client"][what], 400)
    same("flows of servers, completed", web["server"]["completed"], 400)
    shares = [parts[node]["flows"]["templates"][0]["client"]["completed"] for node in ONE_TWO]
    expect(all(shares) and sum(shares) == 400, f"shares of the nodes: {shares}")


def replay(rig):
    """Replay a capture, with its clients on one node and its servers on another."""
    capture = rig.cluster.folder / "web.pcap"
    make_capture(capture)
    profile = rig.profile(
        names="AB",
        replay=[
            {"name": "web", "files": [str(capture)], "port": "A", "port2": "B", "rate": "500 pps"}
        ],
    )
    before = rig.sent()
    whole, _, _ = rig.run(profile, places={key: PORTS[key] for key in "AB"})
    after = rig.sent()
    sent = {port["name"]: port["tx"]["packets"] for port in whole["ports"]}
    same("packets of both sides", sent, {"A": 300, "B": 200})
    same("frames of node1 at the switch", after["node1"] - before["node1"], 300)
    same("frames of node2 at the switch", after["node2"] - before["node2"], 200)


def make_capture(file):
    from scapy.layers.inet import IP, TCP
    from scapy.layers.l2 import Ether
    from scapy.utils import wrpcap

    packets = []
    for i in range(100):
        there = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / IP(
            src=f"10.1.0.{i + 1}", dst="10.2.0.1"
        )
        back = Ether(src="02:00:00:00:00:02", dst="02:00:00:00:00:01") / IP(
            src="10.2.0.1", dst=f"10.1.0.{i + 1}"
        )
        packets += [
            there / TCP(sport=1000 + i, dport=80, flags="S"),
            back / TCP(sport=80, dport=1000 + i, flags="SA"),
            there / TCP(sport=1000 + i, dport=80, flags="A"),
            there / TCP(sport=1000 + i, dport=80, flags="PA") / b"x",
            back / TCP(sport=80, dport=1000 + i, flags="A"),
        ]
    for number, packet in enumerate(packets):
        packet.time = 1_000_000 + number / 1000
    wrpcap(str(file), packets)


def attacks(rig):
    """Check that two nodes together make the attacks that one node would make."""
    rules = rig.cluster.folder / "web.rules"
    rules.write_text((ROOT / "examples/rules/web.rules").read_text())
    attack = {"name": "rules", "rules": str(rules), "port": "A", "rate": 50}
    places = {"A": ["node1/af_packet:eth1", "node2/af_packet:eth1"]}
    one, _, _ = rig.run(rig.profile(names="A", attack=[attack]), places={"A": PORTS["A"]})
    two, parts, _ = rig.run(rig.profile(names="A", attack=[attack]), places=places)
    same("reports", sorted(parts), ["node1", "node2"])
    packets = [sum(port["tx"]["packets"] for port in report["ports"]) for report in (one, two)]
    same("packets of the attacks on two nodes and on one", packets[1], packets[0])
    expect(all(p["ports"][0]["tx"]["packets"] for p in parts.values()), "a node sent nothing")


# Tests


def methods(rig):
    """Test throughput and latency (RFC 2544) through a known queue in front of the receiving node,
    with errors added to the nodes' clocks."""
    served, buffer, most = 2000, 16, 4000
    profile = rig.profile(
        names="AB",
        stream=[{"name": "A to B", "port": "A", "packet": rig.packet("A", "B"), "rate": "1 kpps"}],
    )
    places = {"A": PORTS["A"], "B": f"{PORTS['B']},drain={served}pps,buffer={buffer}"}
    result, words = rig.cluster.folder / "result.json", ["rfc2544", str(profile), "--quick"]
    words += ["--tests", "throughput,latency", "--frame-sizes", "128", "--resolution", "0.02"]
    words += ["--latency-trials", "1", "--latency-s", "1", "--trial-s", "1", "--linger", "200 ms"]
    words += ["--max-rate", f"{most}pps", "--repeats", "20", "--json", str(result), "--quiet"]
    inventory = rig.cluster.ports(**places)
    done = rig.cluster.run(SQUALL, "test", *words, "--nodes", str(inventory), timeout=400)
    same(f"exit status of squall test: {done.stderr}", done.returncode, 0)
    outcome = json.loads(result.read_text())
    figures = {figure["name"]: figure for figure in outcome["figures"]}
    throughput = figures["throughput/128"]
    error = abs(throughput["value"] - served)
    # A burst fills the queue during the trial, so the rate can be this much higher.
    more = buffer / 1.0
    expect(error <= throughput["uncertainty"] + more, f"{throughput}, and not {served}")
    latency(figures["latency.min/128"], served, outcome)


def latency(figure, served, outcome):
    """Check a latency: a frame waits 1 / rate in the queue, plus the time on the link. All nodes
    share one clock, so the error of the measurement is known."""
    alone, way = 1e9 / served, 1e6
    low, high = (figure["value"] + sign * figure["uncertainty"] for sign in (-1, 1))
    expect(low <= alone + way and alone <= high, f"{figure}, and not {alone} ns")
    notes = [note for note in outcome["notes"] if "between nodes" in note]
    same(f"notes about clocks: {outcome['notes']}", len(notes), 1)
    print(f"  {figure['value'] / 1e3:.0f} us within {figure['uncertainty'] / 1e3:.0f} us")


# Faults


@contextlib.contextmanager
def running(rig, *more):
    """Start an endless run, to be ended by a fault or a stop."""
    words, report, kept = rig.command(rig.ring(packets=None, duration="12 s"), *more)
    before = rig.sent()
    process = rig.cluster.popen(SQUALL, *words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        wait_for_traffic(rig, process, before, before)
        yield process, report, kept
    finally:
        rig.end_controllers()
        process.wait(10)
        process.stdout.close()


def quiet_after(rig, node, since, within):
    """Return when a node's port was last observed to send, in seconds after `since`."""
    last, count = since, rig.sent()[node]
    while time.monotonic() - last < 1.5:
        now = rig.sent()[node]
        if now != count:
            count, last = now, time.monotonic()
        expect(time.monotonic() - since < within + 5, f"{node} sends on after {within + 5} s")
        time.sleep(0.02)
    most = within * slowness()
    expect(
        last - since <= most,
        f"{node} sent for {last - since:.2f} s after the fault, expected at most {most:.2f} s",
    )
    return last - since


def ends(process, report, kept, *, missing, seconds=30):
    """Check that the controller ends, names the lost nodes, and reports that the whole run is not
    valid."""
    limit = seconds * slowness()
    try:
        text, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        raise Failed(f"the controller goes on {limit:.0f} s after the fault") from None
    expect(f"node {missing!r} is missing" in text, f"{missing} is not named:\n{text}")
    whole = json.loads(report.read_text())
    expect(not whole["verdict"]["valid"], "the report of the others is VALID")
    same("reports", sorted(f.stem for f in kept.glob("*.json") if f.stem == missing), [])
    return whole, text


def fault(rig, hit, *more, missing="node3", within=LEASE_S + MORE_S):
    with running(rig, *more) as (process, report, kept):
        since = time.monotonic()
        hit()
        took = quiet_after(rig, missing, since, within)
        ends(process, report, kept, missing=missing)
    print(f"  {missing} was quiet {took:.2f} s after the fault")


def daemon(rig):
    """Kill a node's daemon (kill -9): the runs of the other nodes are ended."""
    fault(rig, lambda: rig.signal("node3", "serve --json", 9))


def daemon_continue(rig):
    """Kill a node's daemon (kill -9): the runs of the other nodes continue to their end."""
    fault(rig, lambda: rig.signal("node3", "serve --json", 9), "--on-loss", "continue")


def actor(rig):
    """Kill a node's actor (kill -9): its daemon ends with it."""
    fault(rig, lambda: rig.signal("node3", "ray::SquallNode", 9))


def head(rig):
    """Kill Ray's head with all its processes (kill -9): the node on its machine is lost."""
    fault(rig, lambda: rig.signal("node1", "ray start", 9), missing="node1")


def cut(rig):
    """Cut the control link of a node: its traffic ends within the lease."""
    try:
        fault(rig, lambda: rig.cluster.cut("node3"))
    finally:
        rig.cluster.mend("node3")


#: Renewals of a lease: two of them may be missing from a lease before a cut ends traffic.
RENEW_S = 0.05


@contextlib.contextmanager
def dropping(rig, node):
    """The switch drops all control frames of a node, whose link stays up."""
    port = f"control-{list(rig.cluster.nodes).index(node) + 1}"
    rig.cluster.switch.run("nft", "add table bridge cut")
    try:
        rig.cluster.switch.run(
            *("nft", "add chain bridge cut forward { type filter hook forward priority 0; }"),
        )
        for side in ("iifname", "oifname"):
            rig.cluster.switch.run("nft", f"add rule bridge cut forward {side} {port} drop")
        yield
    finally:
        rig.cluster.switch.run("nft", "delete table bridge cut")


@contextlib.contextmanager
def unplugged(rig, node):
    """A node's control link is down."""
    rig.cluster.cut(node)
    try:
        yield
    finally:
        rig.cluster.mend(node)


def cut_for(rig, seconds, how=unplugged, on_loss="end"):
    """The control link of a node is cut for some seconds and restored, during a run. A cut that is
    shorter than the lease less two renewals changes nothing. A longer one ends or pauses the node's
    traffic within the lease, and ends that of the others if so asked."""
    frames = round(1000 * (4 + seconds))
    words, report, kept = rig.command(rig.ring(frames), "--on-loss", on_loss)
    before = rig.sent()
    process = rig.cluster.popen(SQUALL, *words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        wait_for_traffic(rig, process, before, before)
        since = time.monotonic()
        with how(rig, "node3"):
            cut_s = time.monotonic()
            stalled = longest_stall(rig, "node3", cut_s + seconds)
        lasted = time.monotonic() - since
        text, _ = process.communicate(timeout=60 + seconds)
    finally:
        rig.end_controllers()
        process.wait(10)
        process.stdout.close()
    whole, after = json.loads(report.read_text()), rig.sent()
    sent = {node: after[node] - before[node] for node in before}
    if lasted < LEASE_S - 2 * RENEW_S:
        same(f"frames at the switch:\n{text}", sent, dict.fromkeys(sent, frames))
        expect("missing" not in text, f"a node is missing:\n{text}")
        for stream in whole["streams"]:
            received = (stream["rx"]["packets"], stream["rx"]["lost"])
            same(f"{stream['name']}: received, lost", received, (frames, 0))
        expect(stalled < slowness(), f"node3 sent nothing for {stalled:.2f} s")
        return stalled
    if seconds <= LEASE_S + MORE_S:
        raise RestoredLate(f"a cut of {seconds} s took {lasted:.2f} s")
    expect(stalled > 0, f"node3 sends on without its controller: {sent}")
    ended = cut_s + seconds - stalled - since
    most = (LEASE_S + MORE_S) * slowness()
    expect(ended < most, f"node3 was quiet {ended:.2f} s after the cut, not {most:.2f} s")
    expect("node 'node3' is missing" in text, f"node3 is not named:\n{text}")
    expect(not whole["verdict"]["valid"], "the report is VALID")
    if on_loss == "resume":
        # All streams go on where they were.
        same(f"frames at the switch:\n{text}", sent, dict.fromkeys(sent, frames))
        for stream in whole["streams"]:
            received = (stream["rx"]["packets"], stream["rx"]["lost"])
            same(f"{stream['name']}: received, lost", received, (frames, 0))
        return ended
    expect(sent["node3"] < frames, f"node3 has sent all: {sent}")
    others = {node: count for node, count in sent.items() if node != "node3"}
    if on_loss == "continue":
        same(f"frames of the others:\n{text}", others, dict.fromkeys(others, frames))
    else:
        expect(max(others.values()) < frames, f"the others have sent all: {sent}")
    return ended


def cut_in_time(*arguments, **more):
    """As `cut_for`, again if a machine without a free CPU made the cut too long. Only the commands
    of this script decide that, so it excuses no node."""
    for left in range(4, -1, -1):
        try:
            return cut_for(*arguments, **more)
        except RestoredLate as error:
            if not left:
                raise
            print(f"  {error}: once more")


def longest_stall(rig, node, until):
    """The longest time without a frame of a node, in seconds, until `until` and including it."""
    longest, last, count = 0.0, time.monotonic(), rig.sent()[node]
    while (now := time.monotonic()) < until:
        if (sent := rig.sent()[node]) != count:
            count, last = sent, now
        longest = max(longest, now - last)
        time.sleep(0.02)
    return longest


def short_cut(rig):
    """A cut of 1 s changes nothing, and one of 3 s pauses traffic within the lease."""
    print(f"  1 s: at most {cut_in_time(rig, 1.0):.2f} s without a frame")
    print(f"  3 s: quiet after {cut_for(rig, 3.0, on_loss='resume'):.2f} s")


def cuts(rig):
    """Cuts of all lengths, each ten times: the link is down, or the switch drops frames. After a
    cut that fails, the others follow."""
    failed = []
    with nodes_stay_up(rig):
        for seconds in (0.5, 1.0, 1.8, 3.0, 10.0):
            found = []
            for i in range(10):
                how, on_loss = (unplugged, dropping)[i % 2], ("end", "continue", "resume")[i % 3]
                try:
                    found.append(cut_in_time(rig, seconds, how, on_loss))
                except Failed as error:
                    failed.append(f"{seconds:g} s, {how.__name__}, {on_loss}: {error}")
            what = "longest stall" if seconds < LEASE_S else "quiet after"
            if found:
                what += f" {min(found):.2f} to {max(found):.2f} s"
            print(f"  {seconds:g} s: {len(found)} of 10 as asked, {what}", flush=True)
    expect(not failed, "\n".join(failed))


@contextlib.contextmanager
def nodes_stay_up(rig):
    """Nodes stay up between the runs of the block, which then begin sooner."""
    inventory = rig.cluster.ports(**PORTS)
    up = rig.cluster.run(SQUALL, "cluster", "up", str(inventory), timeout=200)
    same(f"exit status of up: {up.stderr}", up.returncode, 0)
    try:
        yield inventory
    finally:
        only_ray(rig, inventory)


def only_ray(rig, inventory):
    """Only Ray stays up, as for the other steps."""
    rig.cluster.run(SQUALL, "cluster", "down", str(inventory), timeout=120)
    up = rig.cluster.python("up", str(inventory), "--only-ray", timeout=200)
    same(f"exit status of up: {up.stderr}", up.returncode, 0)


def controller(rig):
    """Kill the controller (kill -9): traffic ends within the lease on all nodes."""
    with running(rig) as (process, _, _):
        since = time.monotonic()
        rig.signal("node1", "--nodes", 9)
        for node in rig.cluster.nodes:
            quiet_after(rig, node, since, LEASE_S + MORE_S)
        process.wait(10)


def stopped(rig):
    """Stop a node for 5 s (SIGSTOP): its run is interrupted, and its silence is reported."""
    with running(rig, "--on-loss", "continue") as (process, report, _):
        for number, wait in (("STOP", 5), ("CONT", 0)):
            rig.signal("node3", "serve --json", number)
            rig.signal("node3", "ray::SquallNode", number)
            time.sleep(wait)
        since = time.monotonic()
        quiet_after(rig, "node3", since, LEASE_S)
        text, _ = process.communicate(timeout=30)
        expect("node 'node3' is missing" in text and "silent for" in text, f"unnamed:\n{text}")
        expect(not json.loads(report.read_text())["verdict"]["valid"], "the report is VALID")


def interrupted(rig):
    """Interrupt (SIGINT): all nodes end, and all report."""
    with running(rig) as (process, report, kept):
        rig.signal("node1", "--nodes", "INT")
        for node in rig.cluster.nodes:
            quiet_after(rig, node, time.monotonic(), LEASE_S)
        process.wait(30)
        same("exit status", process.returncode, 130)
        same("reports", len(list(kept.glob("*.json"))), 3)
        whole = json.loads(report.read_text())
        expect(all(stream["tx_packets"] for stream in whole["streams"]), "a stream has no figures")


# In the daemon


@contextlib.contextmanager
def serving(rig):
    """Run the daemon on the controller's machine. Yields its process, a client, and a reader of
    /metrics."""
    data = pathlib.Path(tempfile.mkdtemp(prefix="daemon-", dir=rig.cluster.folder))
    words = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--grpc",
        "off",
        "--data",
        str(data),
        "--lease",
        "5s",
    ]
    words += ["--inventory", str(rig.cluster.ports(**PORTS)), "--json"]
    log = (data / "log").open("w")
    process = rig.cluster.popen(SQUALL, *words, stdout=subprocess.PIPE, stderr=log)
    try:
        expect(process.stdout.readline(), f"no daemon: {(data / 'log').read_text()}")
        socket = data / "socket"
        curl = ("curl", "-s", "--unix-socket", str(socket), "http://localhost/metrics")
        with squall.connect(f"unix:{socket}") as client:
            yield process, client, lambda: rig.cluster.run(*curl).stdout
    finally:
        for pid in rig.pids("node1", str(data)):
            rig.kill("node1", 15, pid)
        process.wait(10)
        process.stdout.close()
        log.close()


def seen(run, what, seconds=60):
    """Return the row of a run on nodes, as soon as `what` is true for each of the three nodes."""
    until = time.monotonic() + seconds
    while True:
        info = run.info()
        nodes = info.cluster["nodes"]
        if len(nodes) == 3 and all(map(what, nodes)):
            return info
        expect(not info.over, f"the run is {info.state}: {info.error}")
        expect(time.monotonic() < until, f"not within {seconds} s: {nodes}")
        time.sleep(0.1)


def in_daemon(rig):
    """Run a profile on the nodes through the daemon: rows and metrics during the run, and one
    report; a stop reports; kill -9 of the daemon ends everything."""
    with serving(rig) as (process, client, metrics):
        (inventory,) = client.inventories()
        same("nodes", inventory.nodes, ("node1", "node2", "node3"))
        before = rig.sent()
        run = client.session(rig.ring(5000), nodes=inventory.name).start()
        seen(run, lambda node: node["tx_packets"] > 0 and node["clock_bound_ns"])
        text = metrics()
        for node in inventory.nodes:
            label = f'{{run="{run.id}",node="{node}"}}'
            expect(f"squall_node_up{label} 1" in text, f"{node} is not up in /metrics:\n{text}")
            sent = re.search(rf"squall_node_tx_packets_total{re.escape(label)} (\d+)", text)
            expect(sent and int(sent[1]) > 0, f"{node} has sent nothing in /metrics")
        report, row = run.finish(), run.info()
        after = rig.sent()
        for stream in report.streams:
            figures = (stream.tx_packets, stream.rx.packets, stream.rx.lost)
            same(f"{stream.name}: sent, received, lost", figures, (5000, 5000, 0))
        same("state", (row.state, row.error), ("done", None))
        same("sent by the row", row.cluster["all"]["tx_packets"], 15000)
        same("states", {node["state"] for node in row.cluster["nodes"]}, {"done"})
        for node in rig.cluster.nodes:
            same(f"{node}: frames at the switch", after[node] - before[node], 5000)

        run = client.session(rig.ring(None), nodes=inventory.name).start()
        seen(run, lambda node: node["tx_packets"] > 500)
        run.stop()
        for node in rig.cluster.nodes:
            quiet_after(rig, node, time.monotonic(), LEASE_S)
        report = run.finish()
        same("state after a stop", run.info().state, "done")
        expect(all(stream.tx_packets > 500 for stream in report.streams), "a stream has no figures")

        run = client.session(rig.ring(None), nodes=inventory.name).start()
        seen(run, lambda node: node["tx_packets"] > 500)
        since = time.monotonic()
        for pid in rig.pids("node1", "serve --listen"):
            rig.kill("node1", 9, pid)
        for node in rig.cluster.nodes:
            quiet_after(rig, node, since, LEASE_S + MORE_S)
        process.wait(10)


SAMPLE = [streams, flows, replay, attacks, daemon, short_cut]
#: `head` is last, because it breaks the cluster.
FULL = [
    *(status, repair, streams, spread, flows, replay, attacks, methods, in_daemon),
    *(interrupted, daemon, daemon_continue, actor, cut, short_cut, cuts, controller, stopped, head),
]


def nothing_left(rig, before):
    """Check that the nodes that were up remain, and that everything else a step has started has
    ended."""
    until = time.monotonic() + 40
    while (left := others(rig) - before) and time.monotonic() < until:
        time.sleep(0.2)
    expect(not left, f"left behind: {left}")


def others(rig):
    """Return the processes of controllers, actors and daemons on all nodes."""
    found = set()
    for node in rig.cluster.nodes:
        for what in ("serve --json", "ray::SquallNode", "squall.cluster", "--nodes"):
            found |= {(node, what, pid) for pid in rig.pids(node, what)}
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--full", action="store_true")
    parser.add_argument("steps", nargs="*")
    args = parser.parse_args()
    steps = FULL if args.full else SAMPLE
    if args.steps:
        steps = [step for step in FULL if step.__name__ in args.steps]
    try:
        import ray
    except ImportError as error:
        print(f"SKIPPED: no Ray: {error}")
        return 0
    del ray
    os.environ["SQUALL"] = SQUALL
    with contextlib.ExitStack() as stack:
        try:
            rig = Rig(stack.enter_context(local_cluster(3, up=False)))
        except PortError as error:
            print(f"SKIPPED: {error}")
            return 0
        return 1 if failures(rig, steps) else 0


def failures(rig, steps):
    """Run the steps. Return the number of failed ones."""
    failed, before = 0, others(rig)
    for step in steps:
        since = time.monotonic()
        try:
            step(rig)
            nothing_left(rig, before)
            print(f"ok      {step.__name__} ({time.monotonic() - since:.1f} s)", flush=True)
        except (Failed, PortError, subprocess.TimeoutExpired, KeyError) as error:
            failed += 1
            rig.end_controllers()
            print(f"FAILED  {step.__name__}: {error!r}\n{error}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())

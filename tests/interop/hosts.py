#!/usr/bin/env python3
"""Hosts of squall against Linux, dnsmasq, radvd and Kea over a veth pair: leases in the servers' files
are the leases of the report, the kernel's neighbors are the hosts, dnsmasq has the questions that the
report has, a server has live attacks from the leases in their labels, and tshark finds nothing
malformed.

Needs root and ip; the DHCP parts also need dnsmasq or Kea, tcpdump and tshark, and the part on routers
radvd; $SQUALL is target/debug/squall unless set.
"""

import contextlib
import csv
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from flows import LOCAL, REMOTE, SQUALL, V4, V6, inside, network, wait
from tools import MALFORMED, Failed, run, same

CLIENTS = 200
CLIENTS_OF_KEA = 50


class Dnsmasq:
    """A DHCP server in the peer's namespace."""

    def __init__(self, folder, binary):
        self.leases, self.log = folder / "leases", folder / "dnsmasq.log"
        self.argv = inside(
            REMOTE,
            binary,
            "--keep-in-foreground",
            "--conf-file=/dev/null",
            "--port=0",
            "--user=root",
            "--no-ping",
            "--log-dhcp",
            f"--log-facility={self.log}",
            f"--pid-file={folder / 'dnsmasq.pid'}",
            f"--dhcp-leasefile={self.leases}",
            "--dhcp-range=10.77.4.0,10.77.7.255,255.255.0.0,1h",
            "--dhcp-lease-max=2000",
            "--dhcp-authoritative",
            "--interface=vb",
        )

    def __enter__(self):
        self.process = subprocess.Popen(self.argv, stderr=subprocess.PIPE, text=True)
        wait(
            "dnsmasq starts",
            lambda: (
                self.process.poll() is not None
                or (self.log.exists() and "started" in self.log.read_text())
            ),
        )
        if self.process.poll() is not None:
            raise Failed(f"dnsmasq: {self.process.communicate()[1]}")
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(10)

    def rows(self):
        """MAC address to address, of all leases."""
        lines = [line.split() for line in self.leases.read_text().splitlines()]
        return {fields[1]: fields[2] for fields in lines if len(fields) >= 3}


@contextlib.contextmanager
def server(argv, log, ready, env=None):
    """A process in the peer's namespace, from when it is ready."""
    with log.open("w") as output:
        process = subprocess.Popen(
            inside(REMOTE, *argv), stdout=output, stderr=output, env={**os.environ, **(env or {})}
        )
    try:
        wait(f"{argv[0]} starts", lambda: process.poll() is not None or ready())
        if process.poll() is not None:
            raise Failed(f"{argv[0]}: {log.read_text()}")
        yield
    finally:
        process.terminate()
        process.wait(10)


@contextlib.contextmanager
def captured(capture, expression):
    """Frames at the peer's end go to a file, in which tshark then finds nothing malformed."""
    # An earlier capture with this name would look like a tcpdump that has started.
    capture.unlink(missing_ok=True)
    # The default buffer has room for 32 frames in this mode.
    argv = [*"tcpdump -i vb --immediate-mode -B 65536 -U -w".split(), capture, expression]
    tcpdump = subprocess.Popen(inside(REMOTE, *argv), stderr=subprocess.PIPE, text=True)
    try:
        wait("tcpdump starts", capture.exists)
        yield
    finally:
        tcpdump.terminate()
        _, summary = tcpdump.communicate(timeout=10)
    same("frames that tcpdump missed", re.findall(r"(\d+) packets dropped", summary), ["0"])
    same("malformed frames", run("tshark", "-r", capture, "-Y", MALFORMED).stdout, "")


def has_link_local():
    argv = ["ip", "-n", REMOTE, "-6", "addr", "show", "dev", "vb", "scope", "link"]
    text = run(*argv).stdout
    return "fe80" in text and "tentative" not in text


class Kea:
    """Kea as a server for one subnet."""

    def __init__(self, folder, version, subnet):
        name = f"kea-dhcp{version}"
        self.version, self.leases = version, folder / f"{name}.leases"
        log = folder / f"{name}.log"
        settings = {
            "interfaces-config": {"interfaces": ["vb"]},
            "lease-database": {"type": "memfile", "name": str(self.leases), "lfc-interval": 0},
            f"subnet{version}": [{"id": 1, "interface": "vb", **subnet}],
            "loggers": [
                {"name": name, "severity": "INFO", "output_options": [{"output": "stdout"}]}
            ],
        }
        if version == 6:
            # Otherwise, Kea writes its DUID to a folder of the system.
            settings["server-id"] = {"type": "LL", "persist": False}
        config = folder / f"{name}.json"
        config.write_text(json.dumps({f"Dhcp{version}": settings}))
        # The package may be unpacked and not installed.
        libraries = pathlib.Path(shutil.which(name)).parents[1].glob("lib/*-linux-gnu")
        env = {
            "KEA_PIDFILE_DIR": str(folder),
            "KEA_LOCKFILE_DIR": str(folder),
            "LD_LIBRARY_PATH": ":".join(map(str, libraries)),
        }
        started = f"DHCP{version}_STARTED"
        self.process = server(
            [name, "-c", config], log, lambda: started in log.read_text(), env=env
        )

    def __enter__(self):
        if self.version == 6:
            # Kea opens its socket once, which fails while the kernel examines the address.
            wait("vb has a link-local address", has_link_local)
        self.process.__enter__()
        return self

    def __exit__(self, *exception):
        return self.process.__exit__(*exception)

    def rows(self):
        """Leases by client and kind: 0 is an address, 2 a prefix. Kea appends a row for each change;
        a lifetime of 0 is the end of a lease."""
        last = {}
        with self.leases.open() as file:
            for row in csv.DictReader(file):
                last[row["duid" if self.version == 6 else "hwaddr"], row.get("lease_type")] = row
        return {key: row["address"] for key, row in last.items() if row["valid_lifetime"] != "0"}


def kea_leases(folder):
    """Leases in Kea's files are those of the report, one for one."""
    count = CLIENTS_OF_KEA
    argv = ["-i", "af_packet:va", "--count", count, "--rate", "200/s"]
    macs = {f"02:53:00:00:00:{i + 1:02x}" for i in range(count)}
    subnet = {"subnet": "10.77.0.0/16", "pools": [{"pool": "10.77.4.0 - 10.77.7.255"}]}
    with Kea(folder, 4, subnet) as kea:
        group = hosts(folder, "dhcp", *argv, "--silent")
        same("bound by Kea", group["states"], {"bound": count})
        same("clients in Kea's file", {client for client, _ in kea.rows()}, macs)
        same("addresses in Kea's file", len(set(kea.rows().values())), count)
    subnet = {
        "subnet": "fd77::/64",
        "pools": [{"pool": "fd77::1000 - fd77::1fff"}],
        "pd-pools": [{"prefix": "2001:db8:100::", "prefix-len": 40, "delegated-len": 56}],
    }
    with captured(folder / "dhcp6.pcap", "udp port 547 or icmp6"), Kea(folder, 6, subnet) as kea:
        group = hosts(folder, "dhcp6", *argv, "--first-offer", "--prefix", 56)["ipv6"]
        same("bound by Kea over IPv6", group["states"], {"bound": count})
        dhcp = group["dhcp"]
        same("leases, prefixes", (dhcp["bound"], dhcp["prefixes"]), (count, count))
        expected = {(f"00:03:00:01:{mac}", kind) for mac in macs for kind in "02"}
        same("clients in Kea's file over IPv6", set(kea.rows()), expected)
        same("leases in Kea's file", len(set(kea.rows().values())), 2 * count)
        release = [*argv, "--first-offer", "--prefix", 56, "--release"]
        group = hosts(folder, "dhcp6", *release)["ipv6"]
        same("released", group["states"], {"released": count})
        same("leases that Kea still has", kea.rows(), {})
        # Each host gets its lease, and confirms it a second later.
        flaps = ["dhcp6", "-i", "af_packet:va", "--count", count, "--first-offer", "--flap", "1s"]
        group = hosts(folder, *flaps, "-d", "6s")["ipv6"]
        same("bound, and confirmed by Kea", group["states"], {"bound": count})
        dhcp = group["dhcp"]
        same("unconfirmed, refused", (dhcp["unconfirmed"], dhcp["refused"]), (0, 0))
        if dhcp["confirm_ns"]["count"] < count:
            raise Failed(f"{dhcp}: fewer confirmations than hosts")


def kea_requests(folder):
    """Client identifiers, option 82, a reboot and a declined address, in Kea's file and log."""
    macs = [f"02:78:00:00:00:{i + 1:02x}" for i in range(20)]
    port = ["dhcp", "-i", "af_packet:va", "--silent", "--option", "61=0x01{mac}"]
    relayed = ["--relay", "10.77.9.9", "--circuit", "ge-0/0/{n}", "--remote", "{mac}"]
    subnet = {"subnet": "10.77.0.0/16", "pools": [{"pool": "10.77.4.0 - 10.77.7.255"}]}
    with Kea(folder, 4, subnet | {"store-extended-info": True}) as kea:
        group = hosts(folder, *port, "--count", len(macs), "--mac", macs[0], *relayed)
        same("bound through a relay agent", group["states"], {"bound": len(macs)})
        with kea.leases.open() as file:
            rows = {row["hwaddr"]: row for row in csv.DictReader(file)}
        for number, mac in enumerate(macs, 1):
            circuit = f"ge-0/0/{number}"
            option = f"01{len(circuit):02x}{circuit.encode().hex()}0211{mac.encode().hex()}"
            if option not in rows[mac]["user_context"].lower():
                raise Failed(f"{mac}: {option} is not in Kea's {rows[mac]}")
            same(f"identifier of {mac}", rows[mac]["client_id"], f"01:{mac}")
        one = ["--mac", macs[0], "--requested", rows[macs[0]]["address"], "--begin", "reboot"]
        group = hosts(folder, *port, *one, "--release")
        same("messages of a reboot", group["sent"], {"request": 1, "release": 1})
        # Enough for a lease on a busy machine; the next one comes 10 s after the decline.
        declines = ["--mac", "02:99:00:00:00:01", "--fault", "decline", "-d", "3s"]
        group = hosts(folder, *port, *declines)
        same("declined", (group["sent"]["decline"], group["faults"]["decline"]), (1, 1))
        log = folder / "kea-dhcp4.log"
        wait("Kea notes the decline", lambda: "DHCP4_DECLINE_LEASE" in log.read_text())


def routed(folder):
    """Hosts have addresses with radvd's prefix."""
    count = CLIENTS_OF_KEA
    config, log, pid = folder / "radvd.conf", folder / "radvd.log", folder / "radvd.pid"
    config.write_text(
        "interface vb { AdvSendAdvert on; MinRtrAdvInterval 3; MaxRtrAdvInterval 4;"
        " prefix fd77::/64 { AdvOnLink on; AdvAutonomous on; }; };\n"
    )
    config.chmod(0o644)
    run(*inside(REMOTE, "sysctl", "-qw", "net.ipv6.conf.all.forwarding=1"))
    argv = ["radvd", "--nodaemon", "-m", "stderr", "-d", "1", "-C", config, "-p", pid]
    with captured(folder / "nd.pcap", "icmp6"), server(argv, log, pid.exists):
        group = hosts(folder, *["nd", "-i", "af_packet:va", "--count", count, "--rate", "200/s"])[
            "ipv6"
        ]
    same("hosts with radvd's prefix", group["states"], {"bound": count})
    same("addresses with radvd's prefix", group["addresses"], count)
    if group["nd"]["probes"] != 2 * count:
        raise Failed(f"{group['nd']}: not one probe for each address")


def hosts(folder, *argv):
    """Run squall hosts to its end; return the group of its report."""
    report = folder / "report.json"
    run(*inside(LOCAL, SQUALL, "hosts", *argv, "-q", "--json", report), ok=(0, 4))
    return json.loads(report.read_text())["hosts"][0]


def leases(folder, binary):
    capture = folder / "dhcp.pcap"
    common = ["dhcp", "-i", "af_packet:va", "--count", CLIENTS, "--rate", "400/s"]
    with Dnsmasq(folder, binary) as server:
        argv = inside(REMOTE, "tcpdump", "-i", "vb", "-U", "-w", capture, "udp port 67")
        tcpdump = subprocess.Popen(argv, stderr=subprocess.DEVNULL)
        wait("tcpdump starts", capture.exists)
        group = hosts(folder, *common, "--silent", "--vendor", "squall")
        wait("tcpdump has the last frames", lambda: kinds(capture).count("5") >= CLIENTS)
        tcpdump.terminate()
        tcpdump.wait(10)
        same("bound", group["states"], {"bound": CLIENTS})
        macs = {f"02:53:00:00:{(i + 1) >> 8:02x}:{(i + 1) & 255:02x}" for i in range(CLIENTS)}
        rows = server.rows()
        same("MAC addresses in dnsmasq's file", set(rows), macs)
        same("addresses in dnsmasq's file", len(set(rows.values())), CLIENTS)
        acknowledged = len(re.findall(r"DHCPACK\(vb\)", server.log.read_text()))
        same("ACKs in dnsmasq's log", acknowledged, group["received"]["ack"])
        # Addresses that were given back are not in its file.
        group = hosts(folder, *common, "--silent", "--release")
        same("released", group["states"], {"released": CLIENTS})
        wait("dnsmasq forgets the leases", lambda: not server.rows())


# Writes the end of each connection, and whether its payload is that of the attack.
ATTACKED = """
import socket, sys
with socket.create_server((sys.argv[1], 8080), backlog=64) as listener, open(sys.argv[2], "w") as rows:
    while True:
        connection, (address, port) = listener.accept()
        with connection:
            octets = b"".join(iter(lambda: connection.recv(4096), b""))
        print(address, port, b"squall" in octets, file=rows, flush=True)
"""


def attacks(folder, binary):
    """A server of the kernel has live attacks from the addresses that dnsmasq gave, and the labels
    have these."""
    # The log has the leases of this run alone.
    folder = folder / "attacks"
    folder.mkdir()
    # One each: they have the same ports.
    count, seen, report = 10, folder / "attacked.txt", folder / "report.json"
    rules, profile, labels = (folder / name for name in ["a.rules", "a.toml", "labels.csv"])
    rules.write_text(
        f'alert tcp any any -> {V4} 8080 (flow:to_server,established; content:"squall"; sid:1;)\n'
    )
    profile.write_text(
        f"""
        duration = "8 s"
        [ports]
        A = "af_packet:va"
        [[host]]
        name = "subscribers"
        port = "A"
        count = {count}
        setup = "100/s"
        arp = "silent"
        release = true
        [[attack]]
        name = "live"
        port = "A"
        clients = "host:subscribers"
        rules = "{rules}"
        live = true
        start = "6 s"
        rate = 40
        repeat = {count}
        """
    )
    argv = [sys.executable, "-c", ATTACKED, V4, seen]
    with Dnsmasq(folder, binary) as dhcp, server(argv, folder / "attacked.log", seen.exists):
        argv = [SQUALL, "run", profile, "-q", "--labels", labels, "--json", report]
        run(*inside(LOCAL, *argv), ok=(0, 4))
        rows = lambda: [line.split() for line in seen.read_text().splitlines()]
        wait("all attacks arrive", lambda: len(rows()) >= count)
        given = set(re.findall(r"DHCPACK\(vb\) (\S+)", dhcp.log.read_text()))
    with labels.open() as file:
        labeled = [(row["source"], row["source_port"], "True") for row in csv.DictReader(file)]
    same("unsent", json.loads(report.read_text())["attacks"][0]["unsent"], {})
    same("attacks at the server", sorted(map(tuple, rows())), sorted(labeled))
    same("clients", {source for source, *_ in labeled}, given)
    same("leases", len(given), count)


def names(folder, binary):
    """Dnsmasq's log has the hosts' questions, and their outcomes are those of its table."""
    log, count = folder / "dns.log", 20
    argv = [
        *[binary, "--keep-in-foreground", "--conf-file=/dev/null", "--user=root", "--no-resolv"],
        *["--no-hosts", "--log-queries", f"--log-facility={log}", "--local=/test/"],
        *[f"--pid-file={folder / 'dns.pid'}", "--listen-address=10.77.0.1,fd77::1"],
        *["--bind-interfaces", "--no-ping", "--host-record=www.test,10.77.9.9,fd77::99"],
        *["--dhcp-range=10.77.4.0,10.77.7.255,255.255.0.0,1h", "--dhcp-authoritative"],
        f"--dhcp-leasefile={folder / 'dns.leases'}",
    ]
    ready = lambda: log.exists() and "started" in log.read_text()
    common = [
        "dns",
        "-i",
        "af_packet:va",
        "--count",
        count,
        "--rate",
        500,
        "--requests",
        6,
        "--timeout",
        "1s",
    ]
    asked = ["--name", "www.test", "--name", "none.test", "--name", "h{q}.other"]
    started = server(argv, folder / "dns.out", ready)
    with captured(folder / "dns.pcap", "port 53"), started:
        for more in [
            ["--address", "10.77.8.1/16", "--server", V4, "--type", "a"],
            ["--type", "both"],  # with addresses, and the server, of DHCP
        ]:
            before = log.read_text().count("query[")
            dns = hosts(folder, *common, *asked, *more)["dns"]
            same("questions", (dns["asked"], dns["answered"] + dns["nxdomain"]), (120, 80))
            same("names that exist", dns["answered"], 40)
            same("refused, because dnsmasq has no server to ask", dns["failed"], {"refused": 40})
            new = lambda before=before: log.read_text().count("query[") - before
            # A question that was repeated can be logged after the answer to the first one.
            wait("dnsmasq logs the questions", lambda new=new, sent=dns["sent"]: new() >= sent)
            same("questions in dnsmasq's log", new(), dns["sent"])


def responders(folder):
    """The peer resolves names by hosts that are DNS servers, and by their own multicast names."""
    profile, report = folder / "names.toml", folder / "names.json"
    profile.write_text("""
        duration = "60 s"
        [ports]
        A = "af_packet:va"

        [[host]]
        name = "servers"
        count = 3
        ipv4 = "10.77.11.1/16"
        answers = ["*.test=10.77.9.9", "v6.test=fd77::99"]

        [[host]]
        name = "named"
        count = 3
        ipv4 = "10.77.12.1/16"
        mdns = "squall-{}"
    """)
    argv = inside(LOCAL, SQUALL, "run", profile, "-q", "--json", report)
    ask = folder / "ask.py"
    ask.write_text(QUESTION)

    def answer(server, port, name):
        return run(*inside(REMOTE, sys.executable, ask, server, port, name)).stdout.split()

    with captured(folder / "mdns.pcap", "port 53 or port 5353"):
        process = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)
        try:
            for i in range(3):
                own = f"10.77.12.{i + 1}"
                found = lambda name=f"squall-{i + 1}.local": answer("224.0.0.251", 5353, name)
                wait("a host has its name", lambda own=own, found=found: found() == ["0", own])
            for i in range(3):
                same("answer", answer(f"10.77.11.{i + 1}", 53, "a.b.test"), ["0", "10.77.9.9"])
            same("a name without IPv4", answer("10.77.11.1", 53, "v6.test"), ["0"])
            same("no such name", answer("10.77.11.1", 53, "www.example"), ["3"])
        finally:
            process.terminate()
            process.wait(30)
    groups = {group["name"]: group for group in json.loads(report.read_text())["hosts"]}
    served, named = groups["servers"]["dns_server"], groups["named"]["mdns"]
    same("served", (served["answered"], served["empty"], served["nxdomain"]), (3, 1, 1))
    same("names, announcements, last ones", (named["owned"], named["goodbyes"]), (3, 3))
    same("probes", named["probes"], 9)


def refused(folder):
    """The kernel tells a program that the host's port is closed, if hosts send errors of ICMP."""
    own, report = "10.77.3.1", folder / "refused.json"
    argv = ["arp", "-i", "af_packet:va", "--address", f"{own}/16", "--icmp-errors", "-d", "60s"]
    argv = inside(LOCAL, SQUALL, "hosts", *argv, "-q", "--json", report)
    poke = "import socket; s = socket.socket(2, 2); s.settimeout(1)\n"
    poke += f"s.connect(('{own}', 9)); s.send(b'?'); s.recv(9)"
    ask = inside(REMOTE, sys.executable, "-c", poke)
    running = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)
    try:
        wait(
            "the port is closed",
            lambda: "ConnectionRefusedError" in run(*ask, ok=(0, 1)).stderr,
        )
    finally:
        running.terminate()
        running.wait(30)
    echo = json.loads(report.read_text())["hosts"][0]["echo"]
    if echo["errors_sent"] < 1:
        raise Failed(f"{echo}: no error of ICMP")


# A question for an address, by the format of RFC 1035: prints the response code and the addresses.
QUESTION = """
import socket, sys
server, port, name = sys.argv[1], int(sys.argv[2]), sys.argv[3]
labels = b"".join(bytes([len(x)]) + x.encode() for x in name.split(".")) + bytes(1)
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
# Only a question to a host that is there by then is asked once.
s.settimeout(30 if port == 53 else 2)
s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("10.77.0.1"))
s.sendto(bytes([1, 2, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0]) + labels + bytes([0, 1, 0, 1]), (server, port))
try:
    data = s.recv(2000)
except TimeoutError:
    sys.exit()
assert data[:2] == bytes([1, 2])
print(data[3] & 15)
at = 12 + len(labels) + 4
for _ in range(int.from_bytes(data[6:8])):
    length = int.from_bytes(data[at + 10 : at + 12])
    print(socket.inet_ntoa(data[at + 12 : at + 12 + length]))
    at += 12 + length
"""


def failures(folder):
    group = hosts(
        folder,
        *["dhcp", "-i", "af_packet:va", "--count", 3, "--retry", "200ms", "--tries", 2],
    )
    same("hosts without a server", group["failed"], {"no_offer": 3})
    same("repeated messages", group["retransmissions"], 3)


def neighbors(folder, command, address, silent=()):
    """The kernel's neighbors are the hosts that it talked to. `address`: that of a host by its number."""
    count = 50
    length = 64 if ":" in address(1) else 16
    argv = [command, "-i", "af_packet:va", "--address", f"{address(1)}/{length}", "--count", count]
    report = folder / "report.json"
    argv = ["hosts", *argv, *silent, "-d", "60s", "-q", "--json", report]
    running = subprocess.Popen(inside(LOCAL, SQUALL, *argv), stderr=subprocess.PIPE, text=True)
    expected = {address(i + 1): f"02:53:00:00:00:{i + 1:02x}" for i in range(count)}
    family = "socket.AF_INET6" if length == 64 else "socket.AF_INET"
    poke = f"import socket; s = socket.socket({family}, socket.SOCK_DGRAM)\n"
    poke += f"for a in {list(expected)}: s.sendto(b'?', (a, 9))"

    def known():
        run(*inside(REMOTE, sys.executable, "-c", poke))
        rows = run("ip", "-n", REMOTE, "-j", "neigh", "show", "dev", "vb").stdout
        found = {row["dst"]: row.get("lladdr") for row in json.loads(rows or "[]")}
        return all(found.get(host) == mac for host, mac in expected.items())

    try:
        wait("the kernel knows all hosts", lambda: running.poll() is not None or known())
    finally:
        running.terminate()
        running.wait(30)
    group = json.loads(report.read_text())["hosts"][0]
    answered = (group["ipv6"]["nd"] if length == 64 else group["arp"])["answered"]
    if answered < count:
        raise Failed(f"{answered} answers of {count} hosts")


def pings(folder, own, target, counters, name):
    """The kernel has counted the hosts' echo requests, in its file `counters`."""

    def requests():
        text = run(*inside(REMOTE, "cat", f"/proc/net/{counters}")).stdout
        rows = [line.split() for line in text.splitlines() if line.startswith("Icmp")]
        # The file of IPv4 has a line of names, then one of values; that of IPv6 has a pair a line.
        pairs = rows if counters == "snmp6" else list(zip(rows[0], rows[1], strict=True))
        return int(dict(pair[:2] for pair in pairs)[name])

    before = requests()
    group = hosts(
        folder,
        *["ping", "-i", "af_packet:va", "--address", own, "--count", 20, "--to", target],
        *["--rate", 500, "--requests", 5],
    )
    echo = group["echo"]
    same("echo requests", (echo["sent"], echo["received"] + echo["lost"]), (100, 100))
    # A reply may be late on a busy machine, but the kernel has counted the request.
    same("requests that the kernel got", requests() - before, 100)
    if echo["received"] < 50:
        raise Failed(f"{echo}: fewer than half of the replies")


def kinds(capture):
    """The types of the DHCP messages in a capture."""
    argv = ["-r", capture, "-Y", "dhcp", "-T", "fields", "-e", "dhcp.option.dhcp"]
    # A capture that is still written may end in the middle of a packet.
    return run("tshark", *argv, ok=(0, 2)).stdout.split()


def well_formed(capture):
    """Tshark sees the four messages of each client, and nothing malformed."""
    bad = run("tshark", "-r", capture, "-Y", MALFORMED).stdout
    same("malformed frames", bad, "")
    found = kinds(capture)
    for kind in "1235":
        if found.count(kind) < CLIENTS:
            raise Failed(f"{found.count(kind)} messages of type {kind} for {CLIENTS} clients")


def main():
    if os.geteuid() != 0:
        print("SKIPPED: needs root for network namespaces")
        return
    dnsmasq = shutil.which("dnsmasq")
    with tempfile.TemporaryDirectory(prefix="squall-hosts-") as folder:
        folder = pathlib.Path(folder)
        try:
            network()
            failures(folder)
            neighbors(folder, "arp", lambda number: f"10.77.1.{number}", ["--silent"])
            neighbors(folder, "nd", lambda number: f"fd77::1:{number:x}")
            pings(folder, "10.77.2.1/16", V4, "snmp", "InEchos")
            pings(folder, "fd77::2:1/64", V6, "snmp6", "Icmp6InEchos")
            refused(folder)
            if dnsmasq is None:
                print("SKIPPED: dnsmasq is not installed (scripts/setup system)")
            else:
                leases(folder, dnsmasq)
                well_formed(folder / "dhcp.pcap")
                attacks(folder, dnsmasq)
                names(folder, dnsmasq)
            responders(folder)
            if shutil.which("kea-dhcp4") is None or shutil.which("kea-dhcp6") is None:
                print("SKIPPED: Kea is not installed (scripts/setup system)")
            else:
                kea_leases(folder)
                kea_requests(folder)
            if shutil.which("radvd") is None:
                print("SKIPPED: radvd is not installed (scripts/setup system)")
            else:
                routed(folder)
        finally:
            for namespace in [LOCAL, REMOTE]:
                subprocess.run(["ip", "netns", "del", namespace], check=False)
    print("hosts: leases, neighbors and echo requests as the peers have them")


if __name__ == "__main__":
    main()

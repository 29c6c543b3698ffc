#!/usr/bin/env python3
"""Hosts of squall against Linux, dnsmasq and Kea over a veth pair: leases in the servers' files are the
leases of the report, the kernel's neighbors are the hosts, and tshark finds nothing malformed.

Needs root and ip; the DHCP parts also need dnsmasq, tcpdump and tshark, or kea-dhcp4; $SQUALL is
target/debug/squall unless set.
"""

import csv
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from flows import LOCAL, REMOTE, SQUALL, V4, inside, network, wait
from tools import Failed, run, same

CLIENTS = 200


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


KEA = """{{ "Dhcp4": {{
  "interfaces-config": {{ "interfaces": [ "vb" ], "dhcp-socket-type": "raw" }},
  "lease-database": {{ "type": "memfile", "persist": true, "name": "{leases}", "lfc-interval": 0 }},
  "store-extended-info": true, "valid-lifetime": 3600, "renew-timer": 900, "rebind-timer": 1800,
  "subnet4": [
    {{ "subnet": "10.77.0.0/16", "id": 1, "pools": [ {{ "pool": "10.77.8.0-10.77.11.255" }} ],
      "option-data": [ {{ "name": "routers", "data": "10.77.0.1" }} ] }},
    {{ "subnet": "10.78.0.0/16", "id": 2, "pools": [ {{ "pool": "10.78.8.0-10.78.11.255" }} ] }} ],
  "loggers": [ {{ "name": "kea-dhcp4", "severity": "INFO",
    "output_options": [ {{ "output": "{log}" }} ] }} ] }} }}"""


class Kea:
    """Kea's DHCPv4 server in the peer's namespace."""

    def __init__(self, folder, binary):
        self.leases, self.log = folder / "kea.csv", folder / "kea.log"
        config = folder / "kea.json"
        config.write_text(KEA.format(leases=self.leases, log=self.log))
        libraries = pathlib.Path(binary).parents[1].glob("lib/*-linux-gnu")
        self.environment = os.environ | {
            "KEA_PIDFILE_DIR": str(folder),
            "KEA_LOCKFILE_DIR": "none",
            # The package may be unpacked and not installed.
            "LD_LIBRARY_PATH": ":".join(map(str, libraries)),
        }
        self.argv = inside(REMOTE, binary, "-c", config)

    def __enter__(self):
        silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen(self.argv, env=self.environment, text=True, **silent)
        wait(
            "kea starts",
            lambda: (
                self.process.poll() is not None
                or (self.log.exists() and "DHCP4_STARTED" in self.log.read_text())
            ),
        )
        if self.process.poll() is not None:
            raise Failed(f"kea-dhcp4: {self.process.communicate()[1]}")
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(10)

    def rows(self):
        """The last entry of each address, if its lease is neither declined nor over."""
        entries = csv.DictReader(self.leases.read_text().splitlines())
        last = {entry["address"]: entry for entry in entries}
        return [
            one for one in last.values() if one["state"] == "0" and one["valid_lifetime"] != "0"
        ]


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


def kea_leases(folder, binary):
    """Leases, options of a relay agent, reboots, releases and declined addresses, in Kea's file."""
    count = 100
    own = [f"02:53:00:00:00:{i + 1:02x}" for i in range(count)]
    common = ["dhcp", "-i", "af_packet:va", "--count", count, "--rate", "400/s"]
    with Kea(folder, binary) as server:
        group = hosts(folder, *common, "--silent", "--option", "61=0x01{mac}")
        same("bound by Kea", group["states"], {"bound": count})
        rows = server.rows()
        same("MAC addresses in Kea's file", sorted(row["hwaddr"] for row in rows), own)
        ids = sorted(row["client_id"] for row in rows)
        same("client identifiers in Kea's file", ids, [f"01:{mac}" for mac in own])
        in_order = sorted(rows, key=lambda row: row["hwaddr"])
        first = in_order[0]["address"]

        # One host again, which knows its address.
        same_host = [*common[:3], "--silent", "--option", "61=0x01{mac}", "--requested", first]
        group = hosts(folder, *same_host, "--begin", "reboot", "--release")
        same("messages of a reboot", group["sent"], {"request": 1, "release": 1})
        wait("Kea forgets the lease", lambda: len(server.rows()) == count - 1)

        # Through a relay agent of another network.
        relayed = ["--relay", "10.78.0.1", "--circuit", "ge-0/0/{n}", "--remote", "{mac}"]
        group = hosts(folder, *common, "--mac", "02:78:00:00:00:01", "--silent", *relayed)
        same("bound through a relay agent", group["states"], {"bound": count})
        rows = [row for row in server.rows() if row["subnet_id"] == "2"]
        agents = {row["hwaddr"]: row["user_context"].replace("&#x2c", ",") for row in rows}
        same("relayed MAC addresses", sorted(agents), [mac.replace("53", "78", 1) for mac in own])
        for number, mac in enumerate(sorted(agents), 1):
            circuit = f"ge-0/0/{number}"
            option = f"01{len(circuit):02X}{circuit.encode().hex()}0211{mac.encode().hex()}"
            if option.lower() not in agents[mac].lower():
                raise Failed(f"{mac}: {option} is not in Kea's {agents[mac]}")

        # Kea keeps a declined address from others.
        faulty = ["--mac", "02:99:00:00:00:01", "--count", 1, "--silent", "--fault", "decline"]
        group = hosts(folder, *common[:3], *faulty, "-d", "1s")
        same("declined", (group["sent"]["decline"], group["faults"]["decline"]), (1, 1))
        wait("Kea notes the decline", lambda: "DHCP4_DECLINE_LEASE" in server.log.read_text())


def failures(folder):
    group = hosts(
        folder,
        *["dhcp", "-i", "af_packet:va", "--count", 3, "--retry", "200ms", "--tries", 2],
    )
    same("hosts without a server", group["failed"], {"no_offer": 3})
    same("repeated messages", group["retransmissions"], 3)


def neighbors(folder):
    """The kernel's neighbors are the hosts that it talked to."""
    count = 50
    argv = ["arp", "-i", "af_packet:va", "--address", "10.77.1.1/16", "--count", count, "--silent"]
    report = folder / "report.json"
    command = inside(LOCAL, SQUALL, "hosts", *argv, "-d", "60s", "-q", "--json", report)
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    poke = "import socket; s = socket.socket(2, 2)\n"
    poke += f"for i in range({count}): s.sendto(b'?', (f'10.77.1.{{i + 1}}', 9))"
    expected = {f"10.77.1.{i + 1}": f"02:53:00:00:00:{i + 1:02x}" for i in range(count)}

    def known():
        run(*inside(REMOTE, sys.executable, "-c", poke))
        rows = run("ip", "-n", REMOTE, "-j", "neigh", "show", "dev", "vb").stdout
        found = {row["dst"]: row.get("lladdr") for row in json.loads(rows or "[]")}
        return all(found.get(address) == mac for address, mac in expected.items())

    try:
        wait("the kernel knows all hosts", lambda: running.poll() is not None or known())
    finally:
        running.terminate()
        running.wait(30)
    group = json.loads(report.read_text())["hosts"][0]
    if group["arp"]["answered"] < count:
        raise Failed(f"{group['arp']}: fewer answers than hosts")


def pings(folder):
    group = hosts(
        folder,
        *["ping", "-i", "af_packet:va", "--address", "10.77.2.1/16", "--count", 20, "--to", V4],
        *["--rate", 500, "--requests", 5],
    )
    echo = group["echo"]
    same("echo requests", (echo["sent"], echo["received"] + echo["lost"]), (100, 100))
    # A reply may be late on a busy machine, but the kernel has counted the request.
    names, values = [
        line.split()
        for line in run(*inside(REMOTE, "cat", "/proc/net/snmp")).stdout.splitlines()
        if line.startswith("Icmp:")
    ]
    same("requests that the kernel got", dict(zip(names, values, strict=True))["InEchos"], "100")
    if echo["received"] < 50:
        raise Failed(f"{echo}: fewer than half of the replies")


def kinds(capture):
    """The types of the DHCP messages in a capture."""
    argv = ["-r", capture, "-Y", "dhcp", "-T", "fields", "-e", "dhcp.option.dhcp"]
    # A capture that is still written may end in the middle of a packet.
    return run("tshark", *argv, ok=(0, 2)).stdout.split()


def well_formed(capture):
    """Tshark sees the four messages of each client, and nothing malformed."""
    bad = run("tshark", "-r", capture, "-Y", "_ws.malformed").stdout
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
            neighbors(folder)
            pings(folder)
            if dnsmasq is None:
                print("SKIPPED: dnsmasq is not installed (scripts/setup system)")
            else:
                leases(folder, dnsmasq)
                well_formed(folder / "dhcp.pcap")
            kea = shutil.which("kea-dhcp4")
            if kea is None:
                print("SKIPPED: kea-dhcp4 is not installed (scripts/setup system)")
            else:
                kea_leases(folder, kea)
        finally:
            for namespace in [LOCAL, REMOTE]:
                subprocess.run(["ip", "netns", "del", namespace], check=False)
    print("hosts: leases, neighbors and echo requests as the peers have them")


if __name__ == "__main__":
    main()

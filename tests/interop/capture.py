#!/usr/bin/env python3
"""squall capture against other tools: capinfos and tshark read as many packets as the report
claims; kill -9 at any time leaves a readable file; a full disk is an error that leaves all earlier
packets intact. Needs root, to create interfaces and disks.
"""

import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from tools import Failed, run, same

SQUALL = os.environ.get("SQUALL", "target/debug/squall")
ROUNDS = int(os.environ.get("ROUNDS", "6"))
NAMESPACE = f"sq-capture-{os.getpid()}"
PACKET = ["--packet", "eth(dst=02:00:00:00:00:01)/ipv4/udp(dport=9)", "--size", "64-1518"]


def packets_of(path):
    """Return the number of packets that capinfos counts; a file that ends within a packet is read
    up to that packet.
    """
    text = run("capinfos", "-c", "-M", "-T", "-r", path, ok=(0, 1, 2)).stdout
    return int(text.split("\t")[-1]) if text.strip() else 0


def readable(path):
    """Return the number of packets that tshark reads, whether or not the file ends with a complete
    packet."""
    done = run("tshark", "-n", "-r", path, "-T", "fields", "-e", "frame.number", ok=(0, 1, 2))
    return len(done.stdout.split())


def wait(come, what):
    """Wait until a packet has arrived, without a timeout: how long that takes depends on the
    machine."""
    until = time.monotonic() + 60
    while not come():
        if time.monotonic() > until:
            raise Failed(f"{what}: not within a minute")
        time.sleep(0.05)


def forms(folder):
    """Check that 3000 packets are captured in every format."""
    source = folder / "in.pcap"
    run(
        SQUALL,
        "send",
        "--port",
        f"pcap:{source}",
        *PACKET,
        "--rate",
        "10kpps",
        "--count",
        "3000",
        "-q",
    )
    for name in ["a.pcapng", "b.pcap", "c.pcapng.zst", "d.pcapng.gz", "e.pcap.lz4"]:
        for more in [[], ["--rotate-count", "700"], ["--rotate-size", "300kB"], ["-s", "96"]]:
            for old in folder.glob("[a-e]*"):
                old.unlink()
            report = folder / "report.json"
            argv = [
                SQUALL,
                "capture",
                "--port",
                f"pcap:{source},read",
                "-w",
                folder / name,
                "--json",
                report,
                "-q",
                *more,
            ]
            run(*argv, "--fail-if", "loss > 0")
            capture = json.loads(report.read_text())["capture"]
            what = f"{name} {' '.join(more)}"
            same(
                f"{what}: written",
                (capture["received"], capture["written_packets"], capture["lost"]),
                (3000, 3000, 0),
            )
            for file in capture["files"]:
                same(
                    f"{what}: {file['name']}: octets", os.path.getsize(file["name"]), file["octets"]
                )
                same(f"{what}: {file['name']}: packets", packets_of(file["name"]), file["packets"])
            same(f"{what}: files", sum(file["packets"] for file in capture["files"]), 3000)
    print("forms: capinfos counts what the report says")


def network():
    run("ip", "netns", "add", NAMESPACE)
    run("ip", "-n", NAMESPACE, "link", "add", "va", "type", "veth", "peer", "name", "vb")
    for link in ["va", "vb"]:
        run("ip", "-n", NAMESPACE, "link", "set", link, "up")


def inside(*argv):
    return ["ip", "netns", "exec", NAMESPACE, *[str(a) for a in argv]]


def sent_and_captured(folder):
    """Check over a veth pair that each sent packet is written, or counted as lost with a reason,
    and that the statistics in the file agree."""
    report, sent, file = folder / "report.json", folder / "sent.json", folder / "veth.pcapng"
    argv = inside(
        SQUALL,
        "capture",
        "--port",
        "af_packet:vb",
        "-w",
        file,
        "--json",
        report,
        "--filter",
        "udp port 9",
    )
    capture = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    # One line per second since the start of the capture.
    while "pps" not in (line := capture.stderr.readline()):
        same("it runs", line != "", True)
    run(
        *inside(
            SQUALL,
            "send",
            "--port",
            "af_packet:va",
            *PACKET,
            "--rate",
            "20kpps",
            "--count",
            "20000",
            "-q",
            "--json",
            sent,
        )
    )
    # For the last frames to arrive, also on a busy machine.
    time.sleep(2)
    capture.send_signal(signal.SIGINT)
    same("exit status", capture.wait(timeout=30), 0)
    tx = json.loads(sent.read_text())["ports"][0]["tx"]["packets"]
    reported = json.loads(report.read_text())["capture"]
    same("received and sent", reported["received"], tx)
    same("written and lost", reported["written_packets"] + reported["lost"], tx)
    same("in the file", packets_of(file), reported["written_packets"])
    statistics = run("capinfos", "-A", file).stdout
    same("the statistics are there", "Number of stat entries = 1" in statistics, True)
    print(f"veth: {tx} sent, {reported['written_packets']} written, {reported['lost']} lost")


def killed(folder):
    for name in ["k.pcapng", "k.pcap", "k.pcapng.zst"] * max(1, ROUNDS // 3):
        file = folder / name
        file.unlink(missing_ok=True)
        capture = subprocess.Popen(
            inside(SQUALL, "capture", "--port", "af_packet:vb", "-w", file, "-q")
        )
        wait(lambda: file.exists(), f"{name} is begun")
        begun = file.stat().st_size
        send = inside(
            SQUALL,
            "send",
            "--port",
            "af_packet:va",
            *PACKET,
            "--rate",
            "20kpps",
            "--duration",
            "60s",
            "-q",
        )
        sender = subprocess.Popen(send)
        # More than a hundred packets: none takes more than 1,560 octets with its header.
        wait(lambda: file.stat().st_size > begun + 160_000, f"packets come to {name}")
        time.sleep(random.random())
        capture.kill()
        capture.wait()
        sender.send_signal(signal.SIGINT)
        sender.wait(timeout=30)
        found = readable(file)
        same(f"{name}: packets can be read", found > 100, True)
        reported = folder / "read.json"
        run(SQUALL, "info", file, "--json", reported, "-q", ok=(0, 1, 2, 3))
        print(f"kill -9: {found} packets in {name}")


def full_disk(folder):
    disk = folder / "disk"
    disk.mkdir()
    run("mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk)
    try:
        for name in ["f.pcapng", "f.pcap"]:
            file, report = disk / name, folder / "report.json"
            argv = [
                SQUALL,
                "capture",
                "--port",
                f"pcap:{folder / 'random.pcap'},read",
                "-w",
                file,
                "--json",
                report,
                "-q",
            ]
            same(f"{name}: exit status", run(*argv, ok=(0, 3)).returncode, 3)
            capture = json.loads(report.read_text())["capture"]
            same(f"{name}: the error is reported", "no space left" in capture["error"], True)
            same(
                f"{name}: all counted",
                capture["written_packets"] + capture["dropped"]["write_error"],
                capture["received"],
            )
            same(f"{name}: readable", readable(file), capture["written_packets"])
            same(f"{name}: something was written", capture["written_packets"] > 0, True)
            print(
                f"full disk: {capture['written_packets']} of {capture['received']} packets are in {name}"
            )
            file.unlink()
    finally:
        run("umount", disk)


def main():
    for tool in ["capinfos", "tshark"]:
        if not shutil.which(tool):
            print(f"SKIPPED: {tool} is not installed, try scripts/setup")
            return 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        forms(folder)
        if os.geteuid() != 0:
            print("SKIPPED: interfaces and disks of its own need root")
            return 0
        random_packets = ["--packet", "eth/ipv4/udp/payload(random)", "--size", "1000"]
        run(
            SQUALL,
            "send",
            "--port",
            f"pcap:{folder / 'random.pcap'}",
            *random_packets,
            "--rate",
            "10kpps",
            "--count",
            "3000",
            "-q",
        )
        full_disk(folder)
        network()
        try:
            sent_and_captured(folder)
            killed(folder)
        finally:
            run("ip", "netns", "del", NAMESPACE)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as failed:
        sys.exit(f"FAILED: {failed}")

#!/usr/bin/env python3
"""The DHCPv4 server Kea beyond its largest rate, asked by `squall hosts dhcp` and by `perfdhcp -4 -B`.

Both run on a veth pair, one after the other at each rate, with a new server and an empty file of leases
each time, so that a ratio compares two figures of the same minute. Neither repeats a message: an
exchange without an answer within a second is lost. The peer's interface counts the frames, so that
frames that a generator did not send are seen. Server and generator share the CPUs of the machine.

    dhcp.py [--rates 500,1000,2000,3000,4000,6000,8000] [--seconds 10] [--out FILE] [--plot FILE.svg]

Needs root, kea-dhcp4 and perfdhcp (kea-admin). $SQUALL is target/release/squall unless set.
"""

import argparse
import datetime
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
SQUALL = os.environ.get("SQUALL", str(ROOT / "target/release/squall"))
NEAR = f"sq-dhcp-{os.getpid()}"
FAR = f"{NEAR}-kea"
KEA = """{{ "Dhcp4": {{
  "interfaces-config": {{ "interfaces": [ "vb" ], "dhcp-socket-type": "raw" }},
  "lease-database": {{ "type": "memfile", "persist": {persist}, "name": "{folder}/leases.csv",
    "lfc-interval": 0 }},
  "valid-lifetime": 3600,
  "subnet4": [ {{ "subnet": "10.0.0.0/8", "pools": [ {{ "pool": "10.1.0.0-10.254.255.255" }} ] }} ],
  "loggers": [ {{ "name": "kea-dhcp4", "severity": "INFO",
    "output_options": [ {{ "output": "{folder}/kea.log" }} ] }} ] }} }}"""


def run(*argv, ok=(0,), **options):
    argv = [str(word) for word in argv]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, **options)
    if done.returncode not in ok:
        sys.exit(f"dhcp.py: {' '.join(argv)}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def inside(namespace, *argv):
    return ["ip", "netns", "exec", namespace, *argv]


def network():
    for namespace in [NEAR, FAR]:
        run("ip", "netns", "add", namespace)
    pair = ["va", "netns", NEAR, "type", "veth", "peer", "name", "vb", "netns", FAR]
    run("ip", "link", "add", *pair)
    for namespace, name, address in [(NEAR, "va", "10.0.0.2/8"), (FAR, "vb", "10.0.0.1/8")]:
        run(*inside(namespace, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1"))
        run("ip", "-n", namespace, "link", "set", name, "up")
        run("ip", "-n", namespace, "addr", "add", address, "dev", name)


def received():
    links = json.loads(run("ip", "-n", FAR, "-j", "-s", "link", "show", "dev", "vb"))
    return links[0]["stats64"]["rx"]["packets"]


class Kea:
    def __init__(self, folder, persist):
        self.folder = pathlib.Path(folder)
        config = self.folder / "kea.json"
        config.write_text(KEA.format(folder=folder, persist=str(persist).lower()))
        environment = os.environ | {"KEA_PIDFILE_DIR": folder, "KEA_LOCKFILE_DIR": "none"}
        argv = inside(FAR, "kea-dhcp4", "-c", str(config))
        silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen(argv, env=environment, text=True, **silent)

    def __enter__(self):
        log = self.folder / "kea.log"
        until = time.monotonic() + 20
        while not (log.exists() and "DHCP4_STARTED" in log.read_text()):
            if self.process.poll() is not None or time.monotonic() > until:
                sys.exit(f"dhcp.py: kea-dhcp4 does not start\n{self.process.communicate()[1]}")
            time.sleep(0.05)
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(20)


def squall(rate, seconds, folder):
    report = pathlib.Path(folder) / "report.json"
    argv = ["hosts", "dhcp", "-i", "af_packet:va", "--count", str(rate * seconds)]
    argv += ["--rate", f"{rate}/s", "--retry", "1s", "--tries", "1", "--silent", "-q"]
    run(*inside(NEAR, SQUALL, *argv, "--json", str(report)), ok=(0, 4))
    whole = json.loads(report.read_text())
    group = whole["hosts"][0]
    times = group["dora_ns"] or {}
    return {
        "sent": group["sent"].get("discover", 0),
        "offered": group["received"].get("offer", 0),
        "bound": group["bound"],
        "rate": group["bound_rate"] or 0.0,
        "mean_ms": times.get("mean", 0) / 1e6,
        "max_ms": times.get("max", 0) / 1e6,
        "frames": group["sent"].get("discover", 0) + group["sent"].get("request", 0),
        "not_sent": sum(sum(p["tx"]["not_sent"].values()) for p in whole["ports"]),
        "valid": whole["verdict"]["valid"],
    }


def perfdhcp(rate, seconds, _folder):
    count = rate * seconds
    argv = ["perfdhcp", "-4", "-B", "-l", "va", "-r", str(rate), "-n", str(count)]
    argv += ["-R", str(count), "-p", str(seconds + 2), "-d", "1"]
    # 3: exchanges were lost.
    text = run(*inside(NEAR, *argv), ok=(0, 3))

    def of(section, name):
        part = text.split(f"Statistics for: {section}", 1)[-1].split("Statistics for:", 1)[0]
        found = re.search(rf"{name}: ([\d.]+)", part)
        return float(found[1]) if found else 0.0

    found = re.search(r"^Rate: ([\d.]+)", text, re.MULTILINE)
    first, second = "DISCOVER-OFFER", "REQUEST-ACK"
    return {
        "sent": int(of(first, "sent packets")),
        "offered": int(of(first, "received packets")),
        "bound": int(of(second, "received packets")),
        "rate": float(found[1]) if found else 0.0,
        "mean_ms": of(first, "avg delay") + of(second, "avg delay"),
        "max_ms": of(first, "max delay") + of(second, "max delay"),
        "frames": int(of(first, "sent packets") + of(second, "sent packets")),
        "not_sent": count - int(of(first, "sent packets")),
    }


def measure(tool, rate, seconds, persist):
    with tempfile.TemporaryDirectory(prefix="squall-dhcp-") as folder, Kea(folder, persist):
        before = received()
        figures = {"squall": squall, "perfdhcp": perfdhcp}[tool](rate, seconds, folder)
        figures["at_server"] = received() - before
    lost = 1 - figures["bound"] / max(1, figures["sent"])
    return {"tool": tool, "asked": rate, "seconds": seconds, "lost": lost} | figures


def row(one):
    cells = [
        one["tool"],
        f"{one['asked']}/s",
        f"{one['sent'] / one['seconds']:.0f}/s",
        f"{one['rate']:.0f}/s",
        f"{100 * one['lost']:.1f} %",
        f"{one['mean_ms']:.2f} ms",
        f"{one['max_ms']:.0f} ms",
        str(one["not_sent"]),
        str(one["frames"] - one["at_server"]),
    ]
    return "| " + " | ".join(cells) + " |"


def plot(path, figures):
    try:
        from matplotlib import pyplot
    except ModuleNotFoundError:
        sys.exit(
            "dhcp.py: no matplotlib for --plot: scripts/setup python, and use .venv/bin/python"
        )
    pyplot.switch_backend("agg")
    figure, (above, below) = pyplot.subplots(2, sharex=True, figsize=(7, 7))
    for tool, mark in [("squall", "o-"), ("perfdhcp", "s--")]:
        of = [one for one in figures if one["tool"] == tool]
        asked = [one["asked"] for one in of]
        above.plot(asked, [one["rate"] for one in of], mark, label=tool)
        below.plot(asked, [one["mean_ms"] for one in of], mark, label=tool)
    above.plot(asked, asked, ":", color="gray", label="asked")
    above.set_ylabel("leases per second")
    below.set_ylabel("mean time to the lease, ms")
    below.set_yscale("log")
    below.set_xlabel("clients that begin per second")
    above.set_title("Kea, one veth pair")
    above.legend()
    figure.savefig(path, bbox_inches="tight")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    rates = "500,1000,2000,3000,4000,6000,8000"
    parser.add_argument("--rates", default=rates, help="exchanges per second")
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--persist", action="store_true", help="Kea writes its file of leases")
    parser.add_argument("--out", help="a line of JSON for each measurement")
    parser.add_argument("--plot", help="an SVG or PNG file, which needs matplotlib")
    args = parser.parse_args()
    for needed in ["kea-dhcp4", "perfdhcp"]:
        if shutil.which(needed) is None:
            print(f"SKIPPED: no {needed} (apt-get install kea-dhcp4-server kea-admin)")
            return
    figures = []
    print("| tool | asked | sent | leases | lost | mean | max | not sent | lost on the way |")
    print("|---|---|---|---|---|---|---|---|---|")
    try:
        network()
        for rate in map(int, args.rates.split(",")):
            for tool in ["perfdhcp", "squall"]:
                figures.append(measure(tool, rate, args.seconds, args.persist))
                print(row(figures[-1]), flush=True)
    finally:
        for namespace in [NEAR, FAR]:
            subprocess.run(["ip", "netns", "del", namespace], check=False)
    if args.out:
        now = datetime.datetime.now(datetime.UTC).strftime("%FT%TZ")
        lines = [{"started": now, "command": sys.argv}, *figures]
        pathlib.Path(args.out).write_text("".join(json.dumps(line) + "\n" for line in lines))
    if args.plot:
        plot(args.plot, figures)


if __name__ == "__main__":
    main()

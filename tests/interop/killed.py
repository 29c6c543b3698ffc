#!/usr/bin/env python3
"""kill -9 at any time leaves no trace: interfaces (flags, promiscuity, addresses, XDP programs,
offloads), BPF programs, maps and links, huge pages and their files, shared memory, namespaces and
processes are as before; and the killed command can be started again at once. Covers every kind of
port in this build that works on a veth pair on this machine, sending, receiving and both, and kinds
that create their own devices; the demo, the probe and labs. Needs root; for a kind that does not
work, the reason is printed.
"""

import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROUNDS = int(os.environ.get("ROUNDS", "4"))
SEED = int(os.environ.get("SEED", str(time.time_ns() % 1_000_000)))
# The kernel frees a process's resources after a grace period, which is longer on a busy machine.
TIMEOUT_S = 60
PACKET = ["--packet", "eth/ipv4/udp(dport=9)", "--size", "64"]
NAMESPACE = f"sq-killed-{os.getpid()}"


class Failed(Exception):
    pass


def run(*argv, **options):
    return subprocess.run(
        [str(a) for a in argv], capture_output=True, text=True, timeout=60, **options
    )


def inside(*argv):
    """Run a command in the namespace of the test."""
    return ["ip", "netns", "exec", NAMESPACE, *[str(a) for a in argv]]


def interfaces():
    links = {}
    for link in json.loads(run(*inside("ip", "-j", "-d", "addr")).stdout):
        keep = "mtu flags operstate promiscuity allmulti qdisc xdp group addr_info gso_max_size num_tx_queues"
        links[link["ifname"]] = {key: link.get(key) for key in keep.split()}
        links[link["ifname"]]["offloads"] = run(*inside("ethtool", "-k", link["ifname"])).stdout
        links[link["ifname"]]["channels"] = run(*inside("ethtool", "-l", link["ifname"])).stdout
    return links


def bpf():
    """Return the IDs of each kind that no living process holds. Those that one holds are ignored:
    another process on this machine may load some meanwhile.
    """
    held = {"prog": set(), "map": set(), "link": set()}
    for entry in pathlib.Path("/proc").glob("[0-9]*/fdinfo/*"):
        try:
            for kind, number in re.findall(
                r"^(prog|map|link)_id:\s*(\d+)", entry.read_text(), re.MULTILINE
            ):
                held[kind].add(int(number))
        except OSError:
            continue
    found = {}
    if shutil.which("bpftool"):
        for kind, numbers in held.items():
            listed = json.loads(run("bpftool", "-j", kind, "show").stdout or "[]")
            objects = {o["id"]: o.get("name", "") for o in listed if "id" in o}
            found[kind] = {
                number: name for number, name in objects.items() if number not in numbers
            }
    return found


def files(*patterns):
    return sorted(
        str(path) for pattern in patterns for path in pathlib.Path("/").glob(pattern.lstrip("/"))
    )


def huge_pages():
    """Return files and counts of huge pages; nothing if a living process has some."""
    memory = pathlib.Path("/proc/meminfo").read_text()
    mounts = re.findall(r"^hugetlbfs (\S+)", pathlib.Path("/proc/mounts").read_text(), re.MULTILINE)
    counts = re.findall(r"^(HugePages_(?:Free|Rsvd|Surp)): +(\d+)", memory, re.MULTILINE)
    used = False
    for status in pathlib.Path("/proc").glob("[0-9]*/status"):
        try:
            used |= (
                re.search(r"^HugetlbPages:\s+[1-9]", status.read_text(), re.MULTILINE) is not None
            )
        except OSError:
            continue
    return {"counts": None if used else counts, "files": files(*[f"{mount}/*" for mount in mounts])}


def differs(what, before, now):
    if what == "huge pages" and None in (before["counts"], now["counts"]):
        return before["files"] != now["files"]
    if isinstance(before, list):
        # Objects may be missing now: other programs may have removed them.
        return not set(now) <= set(before)
    return before != now


def processes(state):
    """Return the processes of this test that are still running, identified by their environment:
    (number, network namespace, name).
    """
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            environment = (entry / "environ").read_bytes()
            if f"XDG_RUNTIME_DIR={state}".encode() in environment.split(b"\0"):
                found.append(
                    (
                        int(entry.name),
                        os.readlink(entry / "ns/net"),
                        (entry / "comm").read_text().strip(),
                    )
                )
        except OSError:
            continue
    return [process for process in found if process[0] != os.getpid()]


def snapshot(state):
    return {
        "interfaces": interfaces(),
        "bpf": bpf(),
        "huge pages": huge_pages(),
        "shared memory": files("/dev/shm/*", "/run/dpdk/*/*"),
        "namespaces with names": files("/run/netns/*sq-*", "/run/netns/*squall*"),
        "processes": processes(state),
    }


def difference(before, state):
    """Return the difference from `before`, after the kernel has had time to clean up; None if there
    is none."""
    until, wait = time.monotonic() + TIMEOUT_S, 0.02
    while True:
        now = snapshot(state)
        changed = [
            what for what in before if what != "bpf" and differs(what, before[what], now[what])
        ]
        differences = [f"{what}: {before[what]}\n  now {now[what]}" for what in changed]
        # Other programs may have removed objects.
        for kind, objects in now["bpf"].items():
            new = {
                number: name
                for number, name in objects.items()
                if number not in before["bpf"][kind]
            }
            if new:
                differences.append(f"bpf {kind}: {new} are new")
        if not differences or time.monotonic() > until:
            return "\n  ".join(differences) or None
        time.sleep(wait)
        wait = min(wait * 1.5, 0.5)


def rows(squall):
    """(name, command, load that keeps it busy)"""
    listed = json.loads(run(*inside(squall, "ports", "b0", "--json", "-")).stdout)
    send = lambda address, *more: [
        squall,
        "send",
        "-p",
        address,
        *PACKET,
        "-r",
        "100kpps",
        "-q",
        *more,
    ]  # noqa: E731
    for kind, why in listed["interfaces"][0]["why_not"].items():
        print(f"SKIPPED: {kind}: {' '.join(why.split())}")
    for kind in listed["interfaces"][0]["ports"]:
        yield f"{kind} sends", inside(*send(f"{kind}:a0")), None
        if kind == "xdp_live":
            yield (
                f"{kind}, seen by af_packet",
                inside(*send(f"{kind}:a0", "--to", "af_packet:b0", "--latency")),
                None,
            )
            continue
        yield (
            f"{kind} receives",
            inside(squall, "recv", "-p", f"{kind}:b0", "-q"),
            inside(*send("af_packet:a0")),
        )
        yield (
            f"{kind} does both",
            inside(*send(f"{kind}:a0", "--to", f"{kind}:b0", "--latency")),
            None,
        )
    dpdk = next((kind for kind in listed["kinds"] if kind["kind"] == "dpdk"), None)
    if dpdk and dpdk.get("why_not"):
        print(f"SKIPPED: dpdk: {' '.join(dpdk['why_not'].split())}")
    elif dpdk:
        for device in [
            "net_null0",
            "net_ring0",
            "net_af_packet0;iface=a0",
            "net_tap0;iface=sqtap0",
        ]:
            yield f"dpdk {device}", inside(*send(f"dpdk:vdev={device}")), None
    yield "a bare name", inside(*send("a0")), None
    yield "demo", [squall, "demo", "-d", "60s", "-q", "--report", "/dev/null"], None
    yield "probe", [squall, "ports", "--probe"], None
    yield "probe of an interface", inside(squall, "ports", "--probe", "a0"), None


def kill_at(command, after_s, environment):
    """Start a command and kill it. Return its output if it ended by itself before."""
    process = subprocess.Popen(
        [str(word) for word in command],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        _, output = process.communicate(timeout=after_s)
        return output or f"exit status {process.returncode}"
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return None


def moments():
    """Yield delays before the kill: some are within the start, some within the run."""
    chance = random.Random(SEED)
    for i in range(ROUNDS):
        yield chance.uniform(0.002, 0.12) if i % 2 == 0 else chance.uniform(0.12, 0.9)


def check(name, command, load, state, environment):
    before = snapshot(state)
    for after_s in moments():
        busy = subprocess.Popen(load, env=environment, stderr=subprocess.DEVNULL) if load else None
        try:
            output = kill_at(command, after_s, environment)
        finally:
            if busy:
                busy.kill()
                busy.wait()
        if output is not None:
            print(f"SKIPPED: {name}: it ended by itself: {' '.join(output.split())}")
            return False
        left = difference(before, state)
        if left:
            raise Failed(f"{name}, killed after {after_s * 1000:.0f} ms (SEED={SEED}):\n  {left}")
    return True


def works_after(squall):
    """Check that a run after the kill is complete."""
    both = ["-p", "af_packet:a0", "--to", "af_packet:b0", "--latency"]
    done = run(
        *inside(squall, "send", *both, *PACKET, "-r", "10kpps", "-n", 1000, "--json", "-", "-q")
    )
    if done.returncode != 0 or json.loads(done.stdout)["streams"][0]["rx"]["packets"] != 1000:
        raise Failed(f"a run afterwards: {done.stdout}{done.stderr}")


def sees(state):
    """Check that this test would find a difference."""
    before = snapshot(state)
    subprocess.run(inside("ip", "link", "set", "a0", "promisc", "on"), check=True)
    different = snapshot(state)["interfaces"] != before["interfaces"]
    subprocess.run(inside("ip", "link", "set", "a0", "promisc", "off"), check=True)
    if not different:
        raise Failed(
            "an interface that was left promiscuous does not show: this test proves nothing"
        )


def labs(squall, state, environment):
    """Check that a lab whose creator is killed is either up, with its name, or does not exist; and
    that it remains if one of its users is killed."""
    before = snapshot(state)
    for after_s in moments():
        process = subprocess.Popen(
            [squall, "lab", "up", "killed"], env=environment, stdout=subprocess.DEVNULL
        )
        time.sleep(after_s / 20)
        process.kill()
        process.wait()
        # The other process either continues and creates the lab, which takes longer on a busy
        # machine, or has not started to.
        time.sleep(0.3)
        listed = lambda: "killed" in run(squall, "lab", "list", env=environment).stdout
        until = time.monotonic() + TIMEOUT_S
        while not (up := listed()) and processes(state) and time.monotonic() < until:
            time.sleep(0.05)
        if up:
            in_lab = [
                squall,
                "lab",
                "exec",
                "killed",
                "--",
                squall,
                "send",
                "-p",
                "veth-a",
                "--to",
                "veth-b",
            ]
            kill_at([*in_lab, *PACKET, "-r", "10kpps", "-q"], after_s, environment)
            ports = run(squall, "lab", "exec", "killed", "--", squall, "ports", env=environment)
            if "veth-b" not in ports.stdout:
                raise Failed(f"a lab after one in it was killed: {ports.stdout}{ports.stderr}")
            down = run(squall, "lab", "down", "killed", env=environment)
            if down.returncode != 0:
                raise Failed(f"lab down: {down.stderr}")
        left = difference(before, state)
        if left:
            raise Failed(f"lab up, killed after {after_s * 50:.1f} ms (SEED={SEED}):\n  {left}")
    if files(f"{state}/squall/lab-*"):
        raise Failed(f"{files(f'{state}/squall/lab-*')} were left")


def main():
    squall = os.path.abspath(os.environ.get("SQUALL", "target/debug/squall"))
    for tool in ["ip", "ethtool"]:
        if not shutil.which(tool):
            print(f"SKIPPED: needs {tool}")
            return
    made = run("ip", "netns", "add", NAMESPACE)
    if made.returncode != 0:
        print(f"SKIPPED: needs root: {made.stderr.strip()}")
        return
    try:
        with tempfile.TemporaryDirectory(prefix="squall-killed-") as state:
            # As in labs, prevent frames other than those of the test.
            for step in [
                "ip link set lo up",
                "ip link add a0 type veth peer name b0",
                "ip link set a0 up",
                "ip link set b0 up",
                # A veth accepts frames of XDP only while its peer polls.
                "ethtool -K a0 gro on; ethtool -K b0 gro on",
            ]:
                subprocess.run(
                    inside("sh", "-c", f"sysctl -qw net.ipv6.conf.all.disable_ipv6=1; {step}"),
                    check=True,
                )
            time.sleep(0.3)
            environment = {**os.environ, "XDG_RUNTIME_DIR": state}
            sees(state)
            tried = [
                check(name, command, load, state, environment)
                for name, command, load in rows(squall)
            ]
            labs(squall, state, environment)
            works_after(squall)
            print(
                f"{sum(tried)} ways to run, each killed {ROUNDS} times (SEED={SEED}), left nothing behind"
            )
    except Failed as failed:
        print(f"FAILED: {failed}")
        sys.exit(1)
    finally:
        run("ip", "netns", "del", NAMESPACE)


if __name__ == "__main__":
    main()

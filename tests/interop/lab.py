#!/usr/bin/env python3
"""Squall against the kernel and tcpdump, in private labs: the frames that tcpdump sees on the other
end of the link match the golden capture of the same profile, octet for octet, in order; a lab
leaves nothing on the machine. As root, labs are also tried as the user nobody, but without tcpdump:
in a lab of an ordinary user, tcpdump believes it is root and fails to drop privileges.
"""

import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

from tools import background

HERE = pathlib.Path(__file__).resolve()
UNPRIVILEGED_UID = 65534
# Profiles whose frames do not depend on time, and that are not limited by time.
PROFILES = "headers-ethernet headers-ipv4 headers-ipv6 tunnels payloads sizes fields modes many wrong".split()


class Failed(Exception):
    pass


def expect(good, what):
    if not good:
        raise Failed(what)


def frames(path):
    """Yield the frames of a little-endian pcap."""
    data, at, found = path.read_bytes(), 24, []
    while at + 16 <= len(data):
        length = struct.unpack_from("<I", data, at + 8)[0]
        found.append(data[at + 16 : at + 16 + length])
        at += 16 + length
    return found


def on_one_cpu():
    """Run on one CPU: each CPU delivers veth's frames on its own, so on a busy machine one may
    overtake another."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


class Lab:
    """A lab that is up inside a with block."""

    def __init__(self, squall):
        self.squall, self.name = squall, f"interop-{os.getpid()}"

    def run(self, *arguments, **options):
        return subprocess.run(
            [self.squall, "lab", *arguments], capture_output=True, text=True, timeout=60, **options
        )

    def command(self, *argv):
        return [self.squall, "lab", "exec", self.name, "--", *argv]

    def __enter__(self):
        up = self.run("up", self.name)
        if up.returncode == 3:
            print(f"SKIPPED: no lab for {user_name()}: {up.stderr.strip()}")
            sys.exit(0)
        expect(up.returncode == 0, f"lab up: {up.stderr}")
        return self

    def __exit__(self, *_):
        self.run("down", self.name)


def user_name():
    return "nobody (as nobody)" if os.getuid() == UNPRIVILEGED_UID else f"user {os.getuid()}"


def tcpdump_sees_the_golden_frames(squall, golden, folder):
    with Lab(squall) as lab:
        for name in PROFILES:
            seen, profile = folder / f"{name}.pcap", golden / f"{name}.toml"
            # -Z: tcpdump must not switch to the user tcpdump, which cannot write here. -B: in KiB;
            # in immediate mode each frame takes 64 of them.
            dump = [
                "tcpdump",
                "-i",
                "veth-b",
                "-Z",
                "root",
                "-U",
                "--immediate-mode",
                "-B",
                "32768",
                "-w",
                str(seen),
            ]
            with background(lab.command(*dump), stderr=subprocess.PIPE, text=True) as listener:
                # tcpdump prints "listening on veth-b ..." when it captures.
                for line in listener.stderr:
                    if "listening on" in line:
                        break
                else:
                    raise Failed(f"tcpdump ended with {listener.wait()}")
                run = [
                    "run",
                    str(profile),
                    "--port",
                    "A=af_packet:veth-a",
                    "--json",
                    "-",
                    "--quiet",
                ]
                command = lab.command(squall, *run)
                sent = subprocess.run(
                    command, capture_output=True, text=True, timeout=60, preexec_fn=on_one_cpu
                )
                wanted = frames(golden / f"{name}.pcap")
                deadline = time.monotonic() + 30
                while len(frames(seen)) < len(wanted) and time.monotonic() < deadline:
                    time.sleep(0.05)
                time.sleep(0.1)  # for frames that must not arrive
                listener.send_signal(signal.SIGINT)
                output = listener.stderr.read()
            expect(sent.returncode == 0, f"{name}: exit status {sent.returncode}: {sent.stderr}")
            expect("0 packets dropped by kernel" in output, f"{name}: tcpdump lost some: {output}")
            report, got = json.loads(sent.stdout)["ports"][0], frames(seen)
            counts = (report["tx"]["packets"], report["interface"]["tx_packets"], len(got))
            expect(
                counts == (len(wanted),) * 3,
                f"{name}: report, interface, tcpdump {counts}, expected {len(wanted)}",
            )
            if name == "modes":
                # On a busy machine, late frames change the order in which streams alternate.
                wanted, got = sorted(wanted), sorted(got)
            for number, (expected, found) in enumerate(zip(wanted, got), 1):
                expect(
                    expected == found,
                    f"{name}: frame {number}:\n  sent {expected.hex()}\n  seen {found.hex()}",
                )


def a_lab_comes_and_goes(squall, _golden, _folder):
    lab = Lab(squall)
    with lab:
        expect(holders(lab.name), "no process holds the lab")
        expect(lab.name in lab.run("list").stdout, "lab list does not have it")
        expect(lab.run("up", lab.name).returncode != 0, "up twice")
        seven = subprocess.run(lab.command("sh", "-c", "exit 7"), timeout=60)
        expect(seven.returncode == 7, f"exec passes on {seven.returncode}")
        links = subprocess.run(
            lab.command("cat", "/proc/net/dev"), capture_output=True, text=True, timeout=60
        ).stdout
        expect("veth-a" in links and "veth-b" in links, f"interfaces are {links}")
        expect(
            "veth-a" not in pathlib.Path("/proc/net/dev").read_text(),
            "a link of the lab is outside",
        )
        down = lab.run("down", lab.name)
        expect(down.returncode == 0, f"down: {down.stderr}")
        expect(lab.name not in lab.run("list").stdout, "still listed")
        gone = subprocess.run(lab.command("true"), capture_output=True, text=True, timeout=60)
        expect(
            gone.returncode in (2, 3) and lab.name in gone.stderr,
            f"exec in none: {gone.returncode} {gone.stderr}",
        )
        expect(lab.run("down", lab.name).returncode != 0, "down twice")
    deadline = time.monotonic() + 30
    while holders(lab.name) and time.monotonic() < deadline:
        time.sleep(0.05)
    expect(not holders(lab.name), "a process of the lab is left")


def of_two_at_once_one_is_refused(squall, _golden, _folder):
    name = f"interop-two-{os.getpid()}"
    pipe = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    both = [subprocess.Popen([squall, "lab", "up", name], **pipe) for _ in range(2)]
    errors = "".join(one.communicate(timeout=60)[1] for one in both)
    try:
        statuses = sorted(one.returncode for one in both)
        if 3 in statuses:
            print(f"SKIPPED: no lab for {user_name()}: {errors.strip()}")
            return
        expect(statuses == [0, 2], f"exit statuses {statuses}: {errors}")
        expect("setting it up" in errors or "is up already" in errors, errors)
        expect(len(holders(name)) == 1, f"held by {holders(name)}")
    finally:
        subprocess.run([squall, "lab", "down", name], capture_output=True, timeout=60)


def holders(lab):
    """Return the processes whose command line contains the lab's name."""
    found = []
    for process in pathlib.Path("/proc").iterdir():
        try:
            if process.name.isdigit() and lab.encode() in (process / "cmdline").read_bytes().split(
                b"\0"
            ):
                found.append(process.name)
        except OSError:
            pass
    return found


def listens(lab):
    """Whether a process in the lab has a packet socket. The first line has the names of columns."""
    command = lab.command("cat", "/proc/net/packet")
    listed = subprocess.run(command, capture_output=True, text=True, timeout=60).stdout
    return len(listed.splitlines()) > 1


def both_ways_and_measured(squall, _golden, folder):
    """Send in one process at one end, and receive the same frames in another at the other end and
    measure them.
    """
    with Lab(squall) as lab:
        received = folder / "heard.json"
        receive = [
            "recv",
            "--port",
            "veth-b",
            "-n",
            "2000",
            "--duration",
            "60s",
            "--json",
            str(received),
            "--quiet",
        ]
        with background(lab.command(squall, *receive)) as listener:
            deadline = time.monotonic() + 30
            while not listens(lab) and time.monotonic() < deadline:
                time.sleep(0.05)
            # It also has to bind its socket, and to make a ring for it.
            time.sleep(0.7)
            send = [
                "send",
                "--port",
                "veth-a",
                "--packet",
                "eth/ipv4/udp",
                "--size",
                "100",
                "--rate",
                "2kpps",
                "-n",
                "2000",
            ]
            sent = subprocess.run(
                lab.command(squall, *send, "--latency", "--quiet", "--json", "-"),
                capture_output=True,
                text=True,
                timeout=60,
            )
            expect(sent.returncode == 0, f"send: {sent.stderr}")
            expect(listener.wait(90) == 0, "recv failed")
        report = json.loads(received.read_text())
        stream = report["streams"][0]["rx"]
        expect(
            (stream["packets"], stream["lost"], stream["duplicates"], stream["reordered"])
            == (2000, 0, 0, 0),
            stream,
        )
        expect(0 < stream["latency_ns"]["p50"] < 1e9, stream["latency_ns"])
        expect(
            json.loads(sent.stdout)["ports"][0]["interface"]["tx_packets"] == 2000,
            "the interface's count",
        )


TESTS = [
    tcpdump_sees_the_golden_frames,
    a_lab_comes_and_goes,
    of_two_at_once_one_is_refused,
    both_ways_and_measured,
]


def main():
    squall = os.environ.get("SQUALL") or str(HERE.parents[2] / "target/debug/squall")
    golden = pathlib.Path(os.environ.get("GOLDEN") or HERE.parents[1] / "golden")
    if shutil.which("tcpdump") is None:
        print("SKIPPED: tcpdump is not installed (apt-get install tcpdump)")
        return 0
    if os.getuid() not in (0, UNPRIVILEGED_UID):
        print("SKIPPED: tcpdump needs root")
    failed = 0
    with tempfile.TemporaryDirectory() as temporary:
        for test in TESTS if os.getuid() == 0 else TESTS[1:]:
            try:
                test(squall, golden, pathlib.Path(temporary))
                print(f"ok      {test.__name__} ({user_name()})")
            except (Failed, subprocess.TimeoutExpired) as error:
                failed += 1
                print(f"FAILED  {test.__name__} ({user_name()}): {error}")
    if os.getuid() == 0:
        failed += as_other_user(squall, golden)
    return int(failed > 0)


def as_other_user(squall, golden):
    """Repeat as another user, with copies of the files: the other user may not have permission to
    read the originals.
    """
    with tempfile.TemporaryDirectory() as temporary:
        place = pathlib.Path(temporary)
        shutil.copy(squall, place / "squall")
        shutil.copy(HERE, place / "lab.py")
        shutil.copy(HERE.parent / "tools.py", place / "tools.py")
        shutil.copytree(golden, place / "golden")
        (place / "tmp").mkdir()
        for path in [place, *place.rglob("*")]:
            path.chmod(0o755)
        (place / "tmp").chmod(0o777)
        places = {"SQUALL": place / "squall", "GOLDEN": place / "golden", "TMPDIR": place / "tmp"}
        known = {"PATH": os.environ["PATH"], "SQUALL_ALLOW_INVALID": "1"} | {
            name: str(path) for name, path in places.items()
        }

        def become_other_user():
            os.setgroups([])
            os.setgid(UNPRIVILEGED_UID)
            os.setuid(UNPRIVILEGED_UID)

        # The default Python interpreter may be in root's home, which the other user cannot read.
        python = shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable
        try:
            done = subprocess.run(
                [python, place / "lab.py"], env=known, cwd="/", preexec_fn=become_other_user
            )
        except OSError as error:
            print(f"SKIPPED: python3 for nobody (as nobody): {error}")
            return 0
        return int(done.returncode != 0)


if __name__ == "__main__":
    sys.exit(main())

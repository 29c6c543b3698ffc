"""Commands with which each tool sends UDP frames from vA to an unused address, at maximum speed or
at a given rate.

A tool is a function (lab, kind, pps) -> Process; `kind` is a frame length without FCS, or "imix";
`pps` None is maximum speed. All tools send the same frames (except mgen, see there), on one CPU.
"""

import argparse
import datetime
import itertools
import os
import pathlib
import platform
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Callable

from drone import Drone
from lab import IP_A, IP_SINK, MAC_A, MAC_SINK, PORT_A, Lab, Process

# Simple IMIX, 7:4:1 of 64, 594 and 1518 octets with FCS, in a mixed order.
IMIX = [60, 590, 60, 60, 590, 60, 1514, 60, 590, 60, 590, 60]
SPORT, DPORT = 5001, 5002


def host(**more: object) -> dict[str, object]:
    """Return the first line of a result file: the machine and versions."""
    cpu = next(
        (l.partition(":")[2].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")),
        "unknown",
    )
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        capture_output=True,
        text=True,
        cwd=pathlib.Path(__file__).parent,
        check=False,
    )
    return {
        "what": "host",
        "started": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "cpu": cpu,
        "cpus": len(os.sched_getaffinity(0)),
        "load": os.getloadavg(),
        "kernel": platform.release(),
        "commit": commit.stdout.strip(),
        "command": " ".join([pathlib.Path(sys.argv[0]).name, *sys.argv[1:]]),
    } | more


class Unsuited(Exception):
    """The tool cannot send this kind of traffic."""


def squall(lab: Lab, kind: str, pps: int | None, port: str = "af_packet") -> Process:
    packet = f"eth(src={MAC_A},dst={MAC_SINK})/ipv4(src={IP_A},dst={IP_SINK})/udp(sport={SPORT},dport={DPORT})"
    size = "imix" if kind == "imix" else str(int(kind) + 4)
    rate = f"{pps}pps" if pps else "max"
    return lab.sender(
        *(
            squall_binary(),
            "send",
            "--port",
            f"{port}:{PORT_A}",
            "--packet",
            packet,
            "--size",
            size,
            "--rate",
            rate,
        ),
        *("--duration", "600s", "--cores", "1", "--quiet"),
    )


def squall_af_xdp(lab: Lab, kind: str, pps: int | None) -> Process:
    return squall(lab, kind, pps, "af_xdp")


def tcpreplay(lab: Lab, kind: str, pps: int | None) -> Process:
    rate = ["--pps", str(pps)] if pps else ["--topspeed"]
    return lab.sender(
        "tcpreplay", "-i", PORT_A, "--preload-pcap", "--loop", "0", *rate, str(capture(lab, kind))
    )


def trafgen(lab: Lab, kind: str, pps: int | None, *options: str) -> Process:
    config = lab.folder / f"trafgen-{kind}"
    config.write_text("".join("{ " + ", ".join(map(str, frame)) + " }\n" for frame in frames(kind)))
    rate = ["--rate", f"{pps}pps"] if pps else []
    fixed = [
        "--dev",
        PORT_A,
        "--conf",
        str(config),
        "--cpus",
        "1",
        "--no-cpu-stats",
        "--notouch-irq",
    ]
    return lab.sender("trafgen", *fixed, *rate, *options)


def trafgen_qdisc(lab: Lab, kind: str, pps: int | None) -> Process:
    return trafgen(lab, kind, pps, "--qdisc-path")


def trafgen_sendto(lab: Lab, kind: str, pps: int | None) -> Process:
    # With any gap, even 0, trafgen does not use its transmit ring.
    return trafgen(lab, kind, pps, "--gap", "0ns")


def ostinato(lab: Lab, kind: str, pps: int | None) -> Process:
    home = lab.folder / "home"
    (home / ".config/Ostinato").mkdir(parents=True, exist_ok=True)
    (home / ".config/Ostinato/drone.ini").write_text(
        f"RateAccuracy=High\n[RpcServer]\nAddress=127.0.0.1\n[PortList]\nInclude={PORT_A}\n"
    )
    drone = lab.sender(
        "drone", env={**os.environ, "HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config")}
    )
    # The RPC port is on the namespace's loopback, so a child process enters the namespace to
    # connect.
    rows = [(60, 7), (590, 4), (1514, 1)] if kind == "imix" else [(int(kind), 1000)]
    for _ in range(50):
        time.sleep(0.2)
        if _in_namespace(lab.a, lambda: Drone().transmit(PORT_A, rows, pps or 0, _addresses())):
            return drone
        if not drone.running():
            break
    drone.stop()
    raise RuntimeError(f"drone does not answer: {drone.output().strip()[-300:]}")


def mgen(lab: Lab, kind: str, pps: int | None) -> Process:
    if kind == "imix":
        raise Unsuited("one size a flow")
    # A message has at least 28 octets, so the smallest frame has 70. A rate of -1 is maximum speed.
    message_len = max(28, int(kind) - 42)
    script = lab.folder / "script.mgn"
    rate = pps or -1
    script.write_text(
        f"0.0 ON 1 UDP SRC {SPORT} DST {IP_SINK}/{DPORT} PERIODIC [{rate} {message_len}]\n"
    )
    return lab.sender("mgen", "input", str(script), "nolog")


Tool = Callable[[Lab, str, int | None], Process]
SPEED: dict[str, Tool] = {
    "squall": squall,
    "squall-af_xdp": squall_af_xdp,
    "trafgen": trafgen,
    "trafgen-qdisc": trafgen_qdisc,
    "trafgen-sendto": trafgen_sendto,
    "tcpreplay": tcpreplay,
    "ostinato": ostinato,
    "mgen": mgen,
}
ACCURACY: dict[str, Tool] = {
    "squall": squall,
    "tcpreplay": tcpreplay,
    "ostinato": ostinato,
    "mgen": mgen,
    "trafgen": trafgen,
}


def program(tool: str) -> str:
    """Return the program that a tool name stands for."""
    name = tool.partition("-")[0]
    return {"squall": squall_binary(), "ostinato": "drone"}.get(name, name)


def installed(tool: str) -> bool:
    return shutil.which(program(tool)) is not None


BUILT = pathlib.Path(__file__).resolve().parents[2] / "target/release/squall"


def add_binaries(parser: argparse.ArgumentParser) -> None:
    """Add --squall and --old, for `binaries`."""
    parser.add_argument("--squall", type=pathlib.Path, default=BUILT)
    parser.add_argument("--old", type=pathlib.Path, help="another binary of squall, by turns")


def binaries(options: argparse.Namespace) -> dict[str, pathlib.Path]:
    """Return the binaries of squall to measure by turns, by name."""
    named = {"squall": options.squall, "old": options.old}
    return {name: path for name, path in named.items() if path}


def squall_binary() -> str:
    return os.environ.get("SQUALL", str(BUILT))


def frames(kind: str) -> list[bytes]:
    """Return one round of the frames of `kind`."""
    return [udp_frame(frame_len) for frame_len in (IMIX if kind == "imix" else [int(kind)])]


def udp_frame(frame_len: int) -> bytes:
    udp_len = frame_len - 34
    udp = struct.pack(">HHHH", SPORT, DPORT, udp_len, 0) + bytes(udp_len - 8)
    pseudo = _ip(IP_A) + _ip(IP_SINK) + struct.pack(">BBH", 0, 17, udp_len)
    udp = udp[:6] + struct.pack(">H", checksum(pseudo + udp) or 0xFFFF) + udp[8:]
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + udp_len, 0, 0, 64, 17, 0) + _ip(IP_A) + _ip(IP_SINK)
    ip = ip[:10] + struct.pack(">H", checksum(ip)) + ip[12:]
    return _mac(MAC_SINK) + _mac(MAC_A) + b"\x08\x00" + ip + udp


def checksum(octets: bytes) -> int:
    words = struct.unpack(f">{(len(octets) + 1) // 2}H", octets + bytes(len(octets) % 2))
    total = sum(words)
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def capture(lab: Lab, kind: str, count: int = 1200) -> pathlib.Path:
    """Write a pcap of `count` frames, long enough that the cost of restarting it is negligible."""
    path = lab.folder / f"{kind}.pcap"
    with path.open("wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for i, frame in enumerate(itertools.islice(itertools.cycle(frames(kind)), count)):
            file.write(struct.pack("<IIII", 1_600_000_000, i, len(frame), len(frame)) + frame)
    return path


def _mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))


def _ip(text: str) -> bytes:
    return bytes(map(int, text.split(".")))


def _addresses() -> tuple[int, int, int, int]:
    octets = (_mac(MAC_A), _mac(MAC_SINK), _ip(IP_A), _ip(IP_SINK))
    return tuple(int.from_bytes(o, "big") for o in octets)


def _in_namespace(name: str, call: Callable[[], None]) -> bool:
    """Run `call` in the namespace, and return whether it succeeded. Uses a child process, because
    setns is not undone in this process."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            # os.setns exists from Python 3.12 on; CLONE_NEWNET is 0x40000000.
            import ctypes

            with open(f"/run/netns/{name}", "rb") as namespace:
                if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), 0x40000000) == 0:
                    call()
                    status = 0
        except (OSError, RuntimeError, LookupError):
            pass  # drone is not ready: the caller tries again
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1] == 0

#!/usr/bin/env python3
"""`squall info` compared to cat, capinfos and tcpdump on large captures in the page cache: user and
system time, alternating.

    info.py [--squall FILE] [--old FILE] [--rounds 5] [--gb 4] [--sizes 64,imix,1518] [--many]
            [--tools cat,squall,capinfos,tcpdump,replay] [--dir DIR]

`squall send` makes each capture; each tool reads it once per round; then it is deleted. The measure
is CPU time: a tool's speed is the ratio of cat's time to its own within a round, as the median over
the rounds. With --many, nearly every packet has addresses of its own, instead of 1,023 flows; with
--old, another binary of squall takes turns. The tool `replay` is `squall replay -t` to `null:`.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile
import time

from tools import add_binaries, binaries

# Octets of a record in the file: a header of 16, and the frame without FCS.
RECORD = {"64": 76, "imix": 373, "1518": 1530}
# With TRex's weights 7:4:1 of 64, 594 and 1518 octets, the mean frame has 357 octets without FCS.


def make(
    squall: pathlib.Path, size: str, gb: float, many: bool, directory: pathlib.Path
) -> pathlib.Path:
    path = directory / f"{size}.pcap"
    count = int(gb * 1e9 / RECORD[size])
    packet = "eth/ipv4(src=10.0.0.1,dst=10.0.0.2)/udp(sport=1000,dport=2000)"
    vary = ["--vary", "ipv4.src=increment:10.0.0.1-10.0.3.255"]
    if many:
        vary = ["--vary", "ipv4.src=random:10.0.0.0-10.255.255.255"]
        vary += ["--vary", "udp.sport=random:1024-65000"]
    command = [
        squall,
        "send",
        "--quiet",
        "--port",
        f"pcap:{path}",
        "--packet",
        packet,
        "--size",
        size,
    ]
    subprocess.run(
        [*map(str, command), *vary, "--rate", "1Mpps", "--count", str(count)], check=True
    )
    return path


def measure(command: list[str]) -> tuple[float, float]:
    """Return wall clock seconds and CPU seconds."""
    began = time.monotonic()
    pid = os.posix_spawn(
        shutil.which(command[0]) or command[0],
        command,
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, "/dev/null", os.O_WRONLY, 0),
        ],
    )
    _, status, used = os.wait4(pid, 0)
    if status != 0:
        raise SystemExit(f"{' '.join(command)}: status {status}")
    return time.monotonic() - began, used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_binaries(parser)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--gb", type=float, default=4.0)
    parser.add_argument("--sizes", default="64,imix,1518")
    parser.add_argument("--tools", default="cat,squall,capinfos,tcpdump")
    parser.add_argument("--many", action="store_true")
    parser.add_argument("--dir", type=pathlib.Path)
    o = parser.parse_args()
    for size in o.sizes.split(","):
        with tempfile.TemporaryDirectory(dir=o.dir) as directory:
            path = make(o.squall, size, o.gb, o.many, pathlib.Path(directory))
            commands = {"cat": ["cat", str(path)]}
            for name, squall in binaries(o).items():
                commands[name] = [str(squall), "info", "--quiet", str(path)]
                sending = ["replay", "-t", "-q", "--allow-invalid", "-i", "null:", str(path)]
                commands[f"{name} replay"] = [str(squall), *sending]
            commands |= {
                "capinfos": ["capinfos", "-c", "-d", "-u", "-o", "-K", str(path)],
                "tcpdump": ["tcpdump", "-n", "-r", str(path), "-w", "/dev/null"],
            }
            result = subprocess.run(
                [o.squall, "info", "-q", "--json", "-", path],
                check=True,
                capture_output=True,
                text=True,
            )
            peak = json.loads(result.stdout)["memory"]["peak_rss_octets"]
            print(json.dumps({"size": size, "tool": "squall", "peak_rss_octets": peak}), flush=True)
            asked = o.tools.split(",")
            asked += ["old"] if o.old and "squall" in asked else []
            if "replay" in asked:
                asked.remove("replay")
                asked += [name for name in commands if name.endswith(" replay")]
            chosen = [name for name in asked if shutil.which(commands[name][0])]
            measure(commands["cat"])
            rounds = [{name: measure(commands[name]) for name in chosen} for _ in range(o.rounds)]
            for name in chosen:
                walls, cpus = zip(*(r[name] for r in rounds), strict=True)
                print(
                    json.dumps(
                        {
                            "size": size,
                            "octets": path.stat().st_size,
                            "tool": name,
                            "wall_s": round(statistics.median(walls), 3),
                            "cpu_s": round(statistics.median(cpus), 3),
                            "gb_per_cpu_s": round(
                                path.stat().st_size / 1e9 / statistics.median(cpus), 2
                            ),
                            "speed_of_cat": round(
                                statistics.median(r["cat"][1] / r[name][1] for r in rounds), 2
                            ),
                        }
                    ),
                    flush=True,
                )


if __name__ == "__main__":
    main()

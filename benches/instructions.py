#!/usr/bin/env python3
"""Counts instructions per frame, or per flow, of squall-bench's cases with callgrind. They show the
effect of a change where times are noisy.

    instructions.py CASE...

Start-up costs cancel out: the figure is the difference between a longer and a shorter run.
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys

BENCH = pathlib.Path(__file__).resolve().parents[1] / "target/release/squall-bench"
FEW, MANY = 200_000, 1_000_000
# Cases that are limited by time; under valgrind they are about fifty times slower.
BY_TIME = {
    "engine": (200_000_000, 800_000_000),
    "loop": (50_000_000, 200_000_000),
    "flows": (1_000_000, 4_000_000),
    "control": (1_000_000, 4_000_000),
}


def main(cases: list[str]) -> None:
    if not shutil.which("valgrind"):
        sys.exit("instructions: no valgrind: apt-get install valgrind")
    for case in cases:
        sizes = BY_TIME.get(case.partition("-")[0], (FEW, MANY))
        (few, of_few), (many, of_many) = [counted(case, size) for size in sizes]
        per_frame = (of_many - of_few) / (many - few)
        print(json.dumps({"case": case, "instructions_per_frame": round(per_frame, 1)}), flush=True)


def counted(case: str, frames: int) -> tuple[int, int]:
    """Return the number of frames, and the number of instructions."""
    command = [
        "valgrind",
        "--tool=callgrind",
        "--callgrind-out-file=/dev/null",
        str(BENCH),
        "--once",
        case,
        str(frames),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode != 0 or not found:
        sys.exit(f"instructions: {' '.join(command)}: {done.stderr.strip()[-300:]}")
    return int(done.stdout), int(found[1])


if __name__ == "__main__":
    main(sys.argv[1:])

#!/usr/bin/env python3
"""Instructions per frame of squall-bench's cases, counted by callgrind: they tell what a change did
where times are noisy.

    instructions.py CASE...

Start-up costs cancel out, as the figure is the difference between a longer and a shorter run.
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys

BENCH = pathlib.Path(__file__).resolve().parents[1] / "target/release/squall-bench"
FEW, MANY = 20_000, 60_000


def main(cases: list[str]) -> None:
    if not shutil.which("valgrind"):
        sys.exit("instructions: no valgrind: apt-get install valgrind")
    for case in cases:
        per_frame = (counted(case, MANY) - counted(case, FEW)) / (MANY - FEW)
        print(json.dumps({"case": case, "instructions_per_frame": round(per_frame, 1)}), flush=True)


def counted(case: str, frames: int) -> int:
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
    return int(found[1])


if __name__ == "__main__":
    main(sys.argv[1:])

#!/usr/bin/env python3
"""Captures of TRex's own simulator against what `squall run --trex` writes into a file, octet for
octet and within 5 us.

The client's library, its profiles and the captures are not part of this project: TREX_ORACLE names
the folder (its README says what is in it). Without it this is skipped.
"""

import json
import os
import pathlib
import random
import shlex
import subprocess
import sys
import tarfile
import tempfile

SQUALL = os.environ.get("SQUALL", "target/debug/squall")
ROOT = pathlib.Path(__file__).resolve().parents[2]
ORACLE = pathlib.Path(os.environ.get("TREX_ORACLE", ROOT.parent / "shared/oracle/trex"))
# With hardware checksums the simulator leaves the fields to a NIC, which it has not.
HARDWARE = "fix_cs_hw"
# Of those that are compared without --full.
SOME, SEED = 12, 7


def frames(path):
    """(time in ns, octets) of a capture."""
    data = path.read_bytes()
    magic = data[:4]
    order = "little" if magic in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1") else "big"
    nano = magic in (b"\x4d\x3c\xb2\xa1", b"\xa1\xb2\x3c\x4d")
    at, found = 24, []
    while at + 16 <= len(data):
        sec, part, caplen, _ = (
            int.from_bytes(data[at + i : at + i + 4], order) for i in (0, 4, 8, 12)
        )
        found.append((sec * 10**9 + part * (1 if nano else 1000), data[at + 16 : at + 16 + caplen]))
        at += 16 + caplen
    return found


def unchecked(octets):
    """An IPv4 frame without the checksums of IP and TCP or UDP."""
    at = 14 + 4 * (octets[14] & 15) + (16 if octets[23] == 6 else 6)
    return octets[:24] + bytes(2) + octets[26:at] + bytes(2) + octets[at + 2 :]


def masked(octets):
    """Without padding: of a frame shorter than 60 octets what is behind its IP packet is anything."""
    if len(octets) != 60:
        return octets
    at = 12
    while octets[at : at + 2] in (b"\x81\x00", b"\x88\xa8"):
        at += 4
    if octets[at : at + 2] == b"\x08\x00":
        return octets[: at + 2 + int.from_bytes(octets[at + 4 : at + 6], "big")]
    return octets


def compare(ours, theirs, hardware):
    if len(ours) != len(theirs):
        return f"{len(ours)} frames instead of {len(theirs)}"
    if hardware:
        ours, theirs = ([(t, unchecked(o)) for t, o in side] for side in (ours, theirs))
    first = [min(t for t, _ in side) for side in (ours, theirs)]
    ours, theirs = (
        sorted((t - zero, o) for t, o in side) for side, zero in zip((ours, theirs), first)
    )
    for number, ((t, o), (u, p)) in enumerate(zip(ours, theirs), 1):
        if abs(t - u) > 5000:
            return f"frame {number} at {t / 1e3} us instead of {u / 1e3} us"
    # Frames due at one instant leave in any order.
    left = list(theirs)
    for number, (t, o) in enumerate(ours, 1):
        match = next(
            (one for one in left if abs(one[0] - t) <= 5000 and masked(one[1]) == masked(o)), None
        )
        if match is None:
            near = next((p for u, p in left if abs(u - t) <= 5000), left[0][1])
            where = next(
                (i for i, (a, b) in enumerate(zip(o, near)) if a != b), min(len(o), len(near))
            )
            return (
                f"frame {number} ({len(o)} octets, {len(near)} in TRex) differs at octet {where}: "
                f"{o[where : where + 8].hex()} instead of {near[where : where + 8].hex()}"
            )
        left.remove(match)
    return None


def main():
    if not (ORACLE / "goldens").is_dir():
        print(
            "SKIPPED: TRex's client and captures (not in this project): TREX_ORACLE names no folder with them"
        )
        return 0
    failed = done = 0
    only = [word for word in sys.argv[1:] if word != "--full"]
    cores = 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        with tarfile.open(next(ORACLE.glob("*.tar.xz"))) as archive:
            archive.extractall(folder, filter="data")
        library = folder / "automation/trex_control_plane/interactive"
        goldens = json.loads((ORACLE / "goldens/manifest.json").read_text())
        if not only and "--full" not in sys.argv:
            goldens = random.Random(SEED).sample(goldens, len(goldens))[: 2 * SOME]
        for golden in goldens:
            if golden["k"] not in ("stl", "hlt"):
                continue
            name = golden["golden"]
            if only and not any(word in name for word in only):
                continue
            options = shlex.split(golden["o"])
            given = dict(zip(options[::2], options[1::2]))
            if "-c" in given and given["-c"] == "2":
                cores += 1
                continue
            out = folder / "out.pcap"
            command = [
                SQUALL,
                "run",
                "--quiet",
                "--allow-invalid",
                str(folder / golden["prof"]),
                "--trex",
            ]
            command += [
                "--trex-lib",
                str(library),
                "-i",
                f"pcap:{out}",
                "--count",
                str(golden["pkts"]),
            ]
            if "dependent_vars_all" in name:
                op, size, step = name.removesuffix(".pcap").split("_")[3:]
                command += ["-t", f"op={op},size={size},step={step}"]
            if "-m" in given:
                command += ["--mult", given["-m"]]
            ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
            if ran.returncode != 0:
                wrong = (ran.stderr or ran.stdout).strip()[:300]
            else:
                golden_file = ORACLE / "goldens" / golden["k"] / name
                wrong = compare(frames(out), frames(golden_file), HARDWARE in name)
            done += 1
            if wrong:
                failed += 1
                print(f"{golden['prof']} ({name}): {wrong}")
    print(f"{done} captures, {failed} different; {cores} of two cores not compared")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

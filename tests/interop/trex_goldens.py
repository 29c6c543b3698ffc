#!/usr/bin/env python3
"""Compare captures of TRex's own simulator to the files of `squall run --trex`: streams octet for
octet, and in time within 5 us; for flows the flags and lengths of every segment, the payload, and
the options of SYNs, in time within 1 s.

Profiles are read as JSON that the stock client created (trex_oracle.py). Profiles with tunables,
and those whose captures were not available then, need the client itself.
"""

import json
import pathlib
import random
import shlex
import subprocess
import sys
import tempfile

from trex_oracle import ORACLE, SQUALL, captures, has_client, has_data, made_profiles, unpack

# With hardware checksums, the simulator leaves the checksum fields to a NIC, which it does not
# have.
HARDWARE = "fix_cs_hw"
# Only payload and offered options of these flows are compared, not port owners, start times and
# single segments: one profile has random delays; in the other the templates alternate randomly, and
# every acknowledgment of a batch triggers a segment before the next one is read.
LOOSE = {"astf/http_manual_commands_pipeline4.py", "astf/tcp_param_change.py"}
# Number of profiles that are compared without --full.
SOME, SEED = 12, 7


def frames(path):
    """Yield (time in ns, octets) for each packet of a capture."""
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
    """Return an IPv4 frame without the checksums of IP and TCP or UDP."""
    at = 14 + 4 * (octets[14] & 15) + (16 if octets[23] == 6 else 6)
    return octets[:24] + bytes(2) + octets[26:at] + bytes(2) + octets[at + 2 :]


def masked(octets):
    """Return a frame without padding: in a frame shorter than 60 octets, any octets may follow the
    IP packet."""
    if len(octets) != 60:
        return octets
    at = 12
    while octets[at : at + 2] in (b"\x81\x00", b"\x88\xa8"):
        at += 4
    if octets[at : at + 2] == b"\x08\x00":
        return octets[: at + 2 + int.from_bytes(octets[at + 4 : at + 6], "big")]
    return octets


def compare(by_squall, by_trex, hardware):
    if len(by_squall) != len(by_trex):
        return f"{len(by_squall)} frames instead of {len(by_trex)}"
    if hardware:
        by_squall, by_trex = ([(t, unchecked(o)) for t, o in side] for side in (by_squall, by_trex))
    first = [min(t for t, _ in side) for side in (by_squall, by_trex)]
    by_squall, by_trex = (
        sorted((t - zero, o) for t, o in side) for side, zero in zip((by_squall, by_trex), first)
    )
    for number, ((t, o), (u, p)) in enumerate(zip(by_squall, by_trex), 1):
        if abs(t - u) > 5000:
            return f"frame {number} at {t / 1e3} us instead of {u / 1e3} us"
    # Frames due at the same time can leave in any order.
    left = list(by_trex)
    for number, (t, o) in enumerate(by_squall, 1):
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


class Flow:
    """The segments of each side of a capture, in order, as (from the first sender, flags,
    octets)."""

    def __init__(self, begin):
        self.begin, self.parts, self.octets, self.syns = begin, [], [b"", b""], []


def flows_of(captured):
    """Return flows by the client's address and the server's port, in the order of their start."""
    found, order = {}, []
    for time, octets in captured:
        at = 14
        while octets[at - 2 : at] == b"\x81\x00":
            at += 4
        v6 = octets[at] >> 4 == 6
        protocol = octets[at + 6] if v6 else octets[at + 9]
        if protocol not in (6, 17):
            continue
        head = 40 if v6 else 4 * (octets[at] & 15)
        length = int.from_bytes(octets[at + 4 : at + 6] if v6 else octets[at + 2 : at + 4], "big")
        end = at + length + (40 if v6 else 0)
        ends = octets[at + 8 : at + 40] if v6 else octets[at + 12 : at + 20]
        half, l4 = len(ends) // 2, at + head
        ends = [(ends[:half], octets[l4 : l4 + 2]), (ends[half:], octets[l4 + 2 : l4 + 4])]
        flags = octets[l4 + 13] if protocol == 6 else 0
        data = l4 + (4 * (octets[l4 + 12] >> 4) if protocol == 6 else 8)
        key = (protocol, *sorted(ends))
        # A new flow with the same addresses and ports begins with a SYN.
        if key not in found or flags & 0x12 == 2:
            flow = found[key] = Flow(time), ends[0]
            order.append((protocol, ends[0][0], ends[1][1], flow[0]))
        flow, first = found[key]
        mine = ends[0] == first
        flow.parts.append((mine, flags, end - data, time - flow.begin))
        flow.octets[not mine] += octets[data:end]
        if flags & 2:
            flow.syns.append(unstamped(octets[l4 + 20 : data]))
    grouped = {}
    for protocol, address, port, flow in order:
        grouped.setdefault((protocol, address, port), []).append(flow)
    return grouped


def by_port(flows):
    found = {}
    for (protocol, _, port), some in flows.items():
        found.setdefault((protocol, b"", port), []).extend(some)
    return found


def unstamped(options):
    """Return the options of a SYN without timestamp values."""
    at = options.find(b"\x08\x0a")
    return options if at < 0 else options[: at + 2] + options[at + 10 :]


def compare_flows(by_squall, by_trex, loose):
    starts = [side[0][0] for side in (by_squall, by_trex)]
    by_squall, by_trex = flows_of(by_squall), flows_of(by_trex)
    if loose:
        by_squall, by_trex = by_port(by_squall), by_port(by_trex)
        for key in by_squall.keys() & by_trex.keys():
            number = min(len(by_squall[key]), len(by_trex[key]))
            by_squall[key], by_trex[key] = by_squall[key][:number], by_trex[key][:number]
    for key, flows in by_trex.items():
        client = f"{key[1].hex()} to port {int.from_bytes(key[2], 'big')}"
        mine = by_squall.pop(key, [])
        if len(mine) != len(flows):
            return f"{len(mine)} flows of {client} instead of {len(flows)}"
        for number, (a, b) in enumerate(zip(mine, flows), 1):
            where = f"flow {number} of {client}"
            if not loose and abs((a.begin - starts[0]) - (b.begin - starts[1])) > 10**9:
                return (
                    f"{where} begins at {a.begin - starts[0]} ns instead of {b.begin - starts[1]}"
                )
            if a.syns != b.syns:
                return f"{where}: options {[o.hex() for o in a.syns]} instead of {[o.hex() for o in b.syns]}"
            if a.octets != b.octets:
                return f"{where}: {[len(o) for o in a.octets]} octets instead of {[len(o) for o in b.octets]}, or others"
            if loose:
                continue
            for at, (one, other) in enumerate(zip(a.parts, b.parts), 1):
                if one[:3] != other[:3] or abs(one[3] - other[3]) > 10**9:
                    return f"{where}: segment {at} is {one} instead of {other} (sender, flags, length, ns)"
            if len(a.parts) != len(b.parts):
                return f"{where}: {len(a.parts)} segments instead of {len(b.parts)}"
    return f"{len(by_squall)} clients more" if by_squall else None


def of_streams(golden, given, out):
    command = ["-i", f"pcap:{out}", "--count", str(golden["pkts"])]
    name = golden["golden"]
    if "dependent_vars_all" in name:
        op, size, step = name.removesuffix(".pcap").split("_")[3:]
        command += ["-t", f"op={op},size={size},step={step}"]
    if "-m" in given:
        command += ["--mult", given["-m"]]
    return command, lambda by_squall, by_trex: compare(by_squall, by_trex, HARDWARE in name)


def of_flows(golden, given, out):
    # The simulator stops with open flows, and before an arrival that is due at the end.
    ports = "loop:g,virtual,max_frame=9018"
    command = ["-i", ports, "--capture", str(out), "-d", "4.999s"]
    if "limit" in golden["golden"]:
        command[-1] = "30s"
    loose = golden["prof"] in LOOSE
    return command, lambda by_squall, by_trex: compare_flows(by_squall, by_trex, loose)


def main():
    if not has_data():
        return 0
    failed = done = 0
    only = [word for word in sys.argv[1:] if word != "--full"]
    cores = lacking = 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        library, root, made = None, folder, made_profiles()
        if has_client(quiet=True):
            library, root = unpack(folder), folder / "trex"
            captures(folder)
        goldens = json.loads((ORACLE / "goldens/manifest.json").read_text())
        # The client takes a second to load a profile.
        if library and not only and "--full" not in sys.argv:
            goldens = random.Random(SEED).sample(goldens, SOME)
        for golden in goldens:
            name = golden["golden"]
            if only and not any(word in name for word in only):
                continue
            options = shlex.split(golden["o"].replace("(", "'").replace(")", "'"))
            given = dict(zip(options[::2], options[1::2]))
            if "-c" in given and given["-c"] == "2":
                cores += 1
                continue
            out = folder / "out.pcap"
            out.unlink(missing_ok=True)
            build = of_flows if golden["k"] == "astf" else of_streams
            own, compared = build(golden, given, out)
            profile = root / golden["prof"]
            if library is None:
                value = made.get(golden["prof"], {"error": []})
                if "error" in value or "-t" in own:
                    lacking += 1
                    continue
                profile = folder / "profile.json"
                profile.write_text(json.dumps(value))
            command = [SQUALL, "run", "--quiet", "--allow-invalid", str(profile), "--trex", *own]
            if library is not None:
                command += ["--trex-lib", str(library)]
            ran = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120)
            if ran.returncode != 0:
                wrong = (ran.stderr or ran.stdout).strip()[:300]
            else:
                golden_file = ORACLE / "goldens" / golden["k"] / name
                wrong = compared(frames(out), frames(golden_file))
            done += 1
            if wrong:
                failed += 1
                print(f"{golden['prof']} ({name}): {wrong}")
    print(
        f"{done} captures, {failed} different; {cores} of two cores not compared, {lacking} need the client"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Check that `squall compare trex` finds no difference for TRex's shipped profiles and captures, and
that profiles create the same streams and flows with and without TRex's client library.

Skipped unless the client library, its profiles and the captures are present (trex_oracle.py).
"""

import json
import os
import pathlib
import random
import shlex
import subprocess
import sys
import tempfile

from trex_oracle import ORACLE, ROOT, SQUALL, captures, has_client, unpack

# Number of profiles that are compared without --full.
SOME, SEED = 6, 11
# Profiles without streams: for another API, or settings of tagged packet groups.
NONE = {"imix_wlc.py", "tpg_tags_conf.py"}
# Packets that depend on the scapy version: a query without a question, fragments.
OF_SCAPY = {"udp_1pkt_dns.py", "udp_1pkt_frag.py"}
# Number of flow profiles that are compared without --full.
SOME_FLOWS = 12
# For each profile, print its streams or flows as JSON, created by the library in argv[1] or by
# Squall's replacement.
DUMP = """
import importlib, json, sys, types
library, stand_ins, profiles = sys.argv[1], sys.argv[2], sys.argv[3:]
out, sys.stdout = sys.stdout, sys.stderr
if library:
    sys.path.insert(0, library)
else:
    sys.modules["stand_ins"] = package = types.ModuleType("stand_ins")
    package.__path__ = [stand_ins]
def loaded(path):
    flows = path.startswith("astf/")
    names = ("stand_ins._stl", "stand_ins._astf")
    names = names if not library else ("trex.stl.api", "trex.astf.api")
    api = importlib.import_module(names[flows])
    if flows:
        return json.loads(api.ASTFProfile.load(path).to_json_str(pretty=False, sort_keys=True))
    return [stream.to_json() for stream in api.STLProfile.load(path).get_streams()]
found = {}
for path in profiles:
    try:
        found[path] = loaded(path)
    except BaseException as error:
        found[path] = str(error)
print(json.dumps(found), file=out)
"""
# Settings of a flow variable for several cores; and the seed, which is random by default.
IGNORED = {"core_id", "meta", "split_to_cores", "vxlan", "ieee_1588", "seed"}


def plain(value):
    """Return a value without its empty members: defaults that only one side includes."""
    if isinstance(value, dict):
        kept = {k: plain(v) for k, v in value.items() if k not in IGNORED and v is not None}
        return {k: v for k, v in kept.items() if v not in (0, False, "", None) or k == "enabled"}
    if isinstance(value, list):
        return [plain(v) for v in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def dump(root, library, profiles):
    argv = [sys.executable, "-W", "ignore", "-c", DUMP, library]
    argv += [str(ROOT / "python/squall"), *profiles]
    done = subprocess.run(argv, cwd=root, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise SystemExit(f"cannot load the profiles: {done.stderr[-1000:]}")
    return json.loads(done.stdout)


def same_streams(root, library, profiles):
    """Return the profiles whose streams differ without TRex's library."""
    by_library, by_squall = dump(root, str(library), profiles), dump(root, "", profiles)
    failed = 0
    for path, streams in by_library.items():
        if isinstance(streams, str):
            continue
        mine = by_squall[path]
        if isinstance(mine, str):
            failed += 1
            print(f"{path}: {mine}")
        elif plain(mine) != plain(streams) and pathlib.Path(path).name not in OF_SCAPY:
            failed += 1
            print(f"{path}: other streams without TRex's library")
            for one, other in zip(plain(mine), plain(streams)):
                print(
                    *(
                        f"  {k}: {one.get(k)} in place of {other.get(k)}"
                        for k in one.keys() | other.keys()
                        if one.get(k) != other.get(k)
                    ),
                    sep="\n",
                )
    return failed


def same_flows(root, library, profiles):
    """Check the flow profiles that TRex's library loads; return those whose JSON differs without
    it."""
    by_library, by_squall = dump(root, str(library), profiles), dump(root, "", profiles)
    loaded = {path: flows for path, flows in by_library.items() if not isinstance(flows, str)}
    if not loaded:
        print("TRex's library loads no profile of flows")
        return 1
    failed = 0
    for path, flows in loaded.items():
        mine = by_squall[path]
        if isinstance(mine, str):
            failed += 1
            print(f"{path}: {mine}")
            continue
        other = sorted(k for k in flows.keys() | mine.keys() if flows.get(k) != mine.get(k))
        failed += bool(other)
        for key in other:
            found, wanted = json.dumps(mine.get(key)), json.dumps(flows.get(key))
            at = len(os.path.commonprefix([found, wanted]))
            at = slice(max(at - 40, 0), at + 80)
            print(f"{path}: {key}: {found[at]} in place of {wanted[at]}")
    print(f"{len(loaded)} profiles of flows without TRex's library, {failed} different")
    return failed


def compared(root, arguments):
    """Return the result of `squall compare trex`, and its exit status."""
    command = [SQUALL, "compare", "trex", *arguments, "--json", "-"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=900)
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


def goldens(root, library, all_of_them):
    failed = 0
    manifest = json.loads((ORACLE / "goldens/manifest.json").read_text())
    one_core = [g for g in manifest if "-c 2" not in g["o"] and "--cc" not in g["o"]]
    chosen = one_core if all_of_them else random.Random(SEED).sample(one_core, SOME)
    for golden in chosen:
        name = golden["golden"]
        arguments = [golden["prof"], "--trex-lib", str(library)]
        arguments += ["--golden", str(ORACLE / "goldens" / golden["k"] / name)]
        if "dependent_vars_all" in name:
            op, size, step = name.removesuffix(".pcap").split("_")[3:]
            arguments += ["-t", f"op={op},size={size},step={step}"]
        status, _, output = compared(root, arguments)
        if status:
            failed += 1
            print(f"{shlex.join(arguments)}: exit status {status} {output[:500]}")
    print(f"{len(chosen)} captures, {failed} different")
    return failed


def altered(root, library, folder):
    """Check that a capture with one octet changed differs, and that a profile that cannot be loaded
    is an error."""
    golden = bytearray((ORACLE / "goldens/stl/imix.pcap").read_bytes())
    golden[24 + 16 + 40] ^= 1
    wrong = folder / "wrong.pcap"
    wrong.write_bytes(golden)
    arguments = ["stl/imix.py", "--trex-lib", str(library)]
    status, result, _ = compared(root, [*arguments, "--golden", str(wrong)])
    found = result["profiles"][0]["golden"]["differences"]
    if status != 1 or not any(text.startswith("capture") for text in found):
        print(f"a changed capture: exit status {status}, {found}")
        return 1
    (root / "none.py").write_text("def register(: pass")
    status, *_ = compared(root, ["none.py", "--trex-lib", str(library)])
    if status != 2:
        print(f"a profile that is none: exit status {status}")
    return int(status != 2)


def main():
    if not has_client():
        return 0
    full = "--full" in sys.argv
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        library = unpack(folder)
        # If scapy is not installed, the library's own copy is used.
        os.environ.pop("PYTHONPATH", None)
        captures(folder)
        root = folder / "trex"
        paths = sorted(root.glob("stl/*.py")) + sorted(root.glob("stl/*.yaml"))
        if full:
            paths += sorted(root.glob("stl/hlt/*.py"))
        profiles = [str(p.relative_to(root)) for p in paths if p.name not in NONE]
        failed = same_streams(
            root, library, [p for p in profiles if p.endswith(".py") and "hlt" not in p]
        )
        flows = sorted(str(p.relative_to(root)) for p in root.glob("astf/*.py"))
        flows = flows if full else random.Random(SEED).sample(flows, SOME_FLOWS)
        failed += same_flows(root, library, flows)
        chosen = profiles if full else random.Random(SEED).sample(profiles, SOME)
        status, result, output = compared(root, [*chosen, "--trex-lib", str(library)])
        for profile in result.get("profiles", []):
            print(
                *(f"{profile['profile']}: {text}" for text in profile["differences"]),
                sep="\n",
                end="",
            )
        print(f"{len(chosen)} profiles, {result.get('differ')} different")
        if status:
            failed += 1
            print(f"exit status {status}: {output[:1000]}")
        failed += goldens(root, library, full) + altered(root, library, folder)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""Loads a profile with the library of TRex's client, and prints what it compiles to.

Without the library, profiles of streams are loaded with a module that stands in for it.
"""

import importlib
import json
import os
import sys
import types


def main():
    library, path, directions, tunables, source = (
        sys.argv[1],
        sys.argv[2],
        int(sys.argv[3]),
        json.loads(sys.argv[4]),
        sys.argv[5],
    )
    if library:
        sys.path.insert(0, library)
    # What a profile prints is not for us.
    out, sys.stdout = sys.stdout, sys.stderr
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    flows = "ASTFProfile" in text or "trex.astf" in text
    try:
        api = importlib.import_module("trex.astf.api" if flows else "trex.stl.api")
    except ImportError as error:
        if library or flows:
            print(json.dumps({"library": str(error), "flows_only": flows}), file=out)
            return
        api = stand_in(source)
    try:
        loaded = of_flows(api, path, tunables) if flows else {"ports": []}
        for port in range(0 if flows else directions):
            loaded["ports"].append(of_streams(api, path, port, tunables))
    except BaseException as error:
        lines = [
            line.strip() for line in str(getattr(error, "msg", error)).splitlines() if line.strip()
        ]
        loaded = {"error": lines or [type(error).__name__]}
    print(json.dumps(loaded), file=out)


def stand_in(source):
    module = types.ModuleType("squall_stl")
    sys.modules["squall_stl"] = module
    exec(compile(source, "squall_stl", "exec"), vars(module))
    return module


def of_flows(api, path, tunables):
    profile = api.ASTFProfile.load(path, **tunables)
    return {"flows": json.loads(profile.to_json_str(pretty=False, sort_keys=True))}


def of_streams(api, path, port, tunables):
    profile = api.STLProfile.load(path, direction=port % 2, port_id=port, **tunables)
    if profile is None:
        raise ValueError(f"it does not take these tunables: {tunables}")
    streams = [stream.to_json() for stream in profile.get_streams()]
    for stream in streams:
        # Older clients number a stream that is named only.
        stream.setdefault("name", None)
    return streams


sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[2])))
main()

"""Loads a profile with TRex's client library and prints the compiled streams or flows.

Without the library, replacement modules load the profile.
"""

import importlib.util
import json
import os
import sys
import types


def main():
    library, path, directions, tunables, *sources = sys.argv[1:]
    directions, tunables = int(directions), json.loads(tunables)
    if library:
        sys.path.insert(0, library)
    # Keep stdout for the result: a profile may print.
    out, sys.stdout = sys.stdout, sys.stderr
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    flows = "ASTFProfile" in text or "trex.astf" in text
    try:
        api = importlib.import_module("trex.astf.api" if flows else "trex.stl.api")
    except ImportError as error:
        if library:
            print(json.dumps({"library": str(error)}), file=out)
            return
        api = stand_in(sources, "_astf" if flows else "_stl")
    try:
        loaded = of_flows(api, path, tunables) if flows else {"ports": []}
        for port in range(0 if flows else directions):
            loaded["ports"].append(of_streams(api, path, port, tunables))
    except BaseException as error:
        lines = [
            line.strip() for line in str(getattr(error, "msg", error)).splitlines() if line.strip()
        ]
        loaded = {"error": lines or [type(error).__name__]}
        missing = isinstance(error.__cause__ or error, (NameError, ImportError))
        if missing and not importlib.util.find_spec("scapy"):
            # The library brings its own scapy; without both, Ether, IP and so on are not defined.
            loaded["scapy"] = sys.executable
    print(json.dumps(loaded), file=out)


def stand_in(sources, name):
    """The module `name` of a package of these names and texts; one may need those before it."""
    package = sys.modules["squall_trex"] = types.ModuleType("squall_trex")
    package.__path__ = []
    for part, source in zip(sources[::2], sources[1::2], strict=True):
        full = f"squall_trex.{part}"
        module = sys.modules[full] = types.ModuleType(full)
        setattr(package, part, module)
        module.__package__ = "squall_trex"
        exec(compile(source, f"{part}.py", "exec"), vars(module))
        if part == name:
            return module
    raise ValueError(f"no module is called {name}")


def of_flows(api, path, tunables):
    profile = api.ASTFProfile.load(path, **tunables)
    return {"flows": json.loads(profile.to_json_str(pretty=False, sort_keys=True))}


def of_streams(api, path, port, tunables):
    profile = api.STLProfile.load(path, direction=port % 2, port_id=port, **tunables)
    if profile is None:
        raise ValueError(f"it does not take these tunables: {tunables}")
    streams = [stream.to_json() for stream in profile.get_streams()]
    for stream in streams:
        # Older clients number a stream that has only a name.
        stream.setdefault("name", None)
    return streams


sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[2])))
main()

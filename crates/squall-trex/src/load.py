"""Loads a stateless profile with the library of TRex's client, and prints what it compiles to."""

import importlib
import json
import os
import sys


def main():
    library, path, directions, tunables = (
        sys.argv[1],
        sys.argv[2],
        int(sys.argv[3]),
        json.loads(sys.argv[4]),
    )
    if library:
        sys.path.insert(0, library)
    # What a profile prints is not for us.
    out, sys.stdout = sys.stdout, sys.stderr
    try:
        api = importlib.import_module("trex.stl.api")
    except ImportError as error:
        print(json.dumps({"library": str(error)}), file=out)
        return
    ports = []
    for port in range(directions):
        try:
            profile = api.STLProfile.load(path, direction=port % 2, port_id=port, **tunables)
            streams = [stream.to_json() for stream in profile.get_streams()]
        except BaseException as error:
            lines = [
                line.strip()
                for line in str(getattr(error, "msg", error)).splitlines()
                if line.strip()
            ]
            print(json.dumps({"error": lines or [type(error).__name__]}), file=out)
            return
        for stream in streams:
            # Older clients number a stream that is named only.
            stream.setdefault("name", None)
        ports.append(streams)
    print(json.dumps({"ports": ports}), file=out)


sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[2])))
main()

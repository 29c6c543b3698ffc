"""ExaBGP as a device: it announces routes, and writes the messages that it receives to a file."""

import contextlib
import json
import os
import pathlib
import shutil

from flows import ROOT, V4
from hosts import server

# Routes of ExaBGP. It withdraws the second one as soon as the file "withdraw" exists.
KEPT, WITHDRAWN = "203.0.113.0/24", "198.18.7.0/24"

CONFIG = """
process device {{
  run {script};
  encoder json;
}}
neighbor {router} {{
  router-id {own};
  local-address {own};
  local-as {asn};
  peer-as {peer_asn};
  hold-time 90;
  family {{ ipv4 unicast; }}
  static {{ route {kept} next-hop self; {more} }}
  api {{ processes [ device ]; receive {{ parsed; update; }} }}
}}
"""

# ExaBGP reads commands from the script, and writes messages to it. It takes the end of the script's
# output for its death: descriptor 3 keeps that open. $$ is the number of cat.
SCRIPT = """#!/bin/sh
echo "announce route {withdrawn} next-hop self"
(
  until [ -e "{folder}/withdraw" ]; do sleep 0.1; kill -0 $$ || exit; done
  echo "withdraw route {withdrawn} next-hop self"
) &
exec 3>&1
exec cat > "{folder}/messages"
"""


def program():
    """ExaBGP, or None: it is not installed."""
    own = ROOT / "target/tools/exabgp/bin/exabgp"
    return own if own.exists() else shutil.which("exabgp")


class Device:
    """The messages and routes of ExaBGP."""

    def __init__(self, folder):
        self.folder = folder

    def updates(self):
        """The UPDATEs, in order."""
        lines = (self.folder / "messages").read_text().splitlines(keepends=True)
        # ExaBGP also answers commands, and the last line may not be whole.
        messages = [json.loads(line) for line in lines if line[0] == "{" and line[-1] == "\n"]
        parts = [one["neighbor"]["message"] for one in messages if one["type"] == "update"]
        return [part["update"] for part in parts if "update" in part]

    def routes(self):
        """The announced routes that are not withdrawn, with the attributes of each."""
        routes = {}
        for update in self.updates():
            for withdrawn in update.get("withdraw", {}).get("ipv4 unicast", []):
                routes.pop(withdrawn["nlri"], None)
            for prefixes in update.get("announce", {}).get("ipv4 unicast", {}).values():
                routes.update((one["nlri"], update["attribute"]) for one in prefixes)
        return routes

    def withdraw(self):
        """Let ExaBGP withdraw one of its routes."""
        (self.folder / "withdraw").touch()


@contextlib.contextmanager
def device(folder, router, asns, more=""):
    """ExaBGP with a session to `router`. `asns`: its own number and that of the router; `more`: further
    routes."""
    folder = pathlib.Path(folder, "exabgp")
    folder.mkdir()
    script, config = folder / "script", folder / "exabgp.conf"
    script.write_text(SCRIPT.format(folder=folder, withdrawn=WITHDRAWN))
    script.chmod(0o755)
    own, peer = asns
    config.write_text(
        CONFIG.format(
            script=script, router=router, own=V4, asn=own, peer_asn=peer, kept=KEPT, more=more
        )
    )
    # By default it gives up root's rights, and looks for pipes of its command line.
    environment = {
        "exabgp_daemon_user": "root",
        "exabgp_api_cli": "false",
        "exabgp_log_level": "WARNING",
        "PATH": os.environ["PATH"],
    }
    begun = (folder / "messages").exists
    argv = [program(), config]
    with server(argv, folder / "log", begun, env=environment):
        yield Device(folder)

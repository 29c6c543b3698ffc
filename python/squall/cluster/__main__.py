"""``python -m squall.cluster``: the Python side of `squall cluster`, `squall run --nodes` and
`squall test --nodes`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence

from .._errors import Error, ProfileError
from . import _host
from ._inventory import Inventory, InventoryError
from ._node import Refused

#: Exit statuses of the command line tool: invalid input, environment.
WRONG, ENVIRONMENT = 2, 3
#: Maximum time for which the nodes of a run keep running after the daemon that started it has died.
ORPHAN_S = 10.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; return its exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["host"] and len(arguments) == 2:
        return _host.main(arguments[1])
    # Arguments after `--` go to squall report.
    end = arguments.index("--") if "--" in arguments else len(arguments)
    args = _parser().parse_args(arguments[:end])
    args.report = arguments[end + 1 :]
    if args.limit_s is not None:
        _at_most(args.limit_s)
    try:
        status: int = args.command(args)
        return status
    except (InventoryError, ProfileError) as error:
        # As the command line tool does: an error with a position starts with the position, so
        # editors can jump to it. An error for a profile that cannot be read has no position.
        placed = isinstance(error, ProfileError) and all(one.origin for one in error.diagnostics)
        print(error if placed else f"squall: {error}", file=sys.stderr)
        return WRONG
    except Error as error:
        print(f"squall: {error}", file=sys.stderr)
        asked = isinstance(error, Refused) and error.status == 400
        return WRONG if asked else ENVIRONMENT
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="squall cluster", description="Runs over machines")
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    for name, command, limit_s, about in (
        ("up", _up, 300.0, "Start Ray where the inventory asks for it, and the nodes"),
        ("status", _status, 60.0, "Show machines, nodes and clocks"),
        ("down", _down, 120.0, "Stop the nodes, and Ray if `up` has started it"),
    ):
        action = actions.add_parser(name, help=about, description=about)
        action.add_argument("inventory", metavar="INVENTORY.toml")
        action.add_argument("--json", action="store_true", help="print JSON")
        action.set_defaults(command=command, limit_s=limit_s)
        if command is _up:
            action.add_argument("--only-ray", action="store_true", help="start no nodes")
    run = actions.add_parser("run", help="Run a profile over the nodes")
    run.add_argument("profile", metavar="PROFILE")
    run.add_argument("--nodes", required=True, metavar="INVENTORY.toml")
    run.add_argument("--options", default="{}", metavar="JSON", help="options of the run")
    run.add_argument("--on-loss", choices=("end", "continue"), default="end")
    run.add_argument("--keep", metavar="FOLDER", help="keep reports and logs of each node there")
    run.add_argument("--live", choices=("text", "json", "off"), default="text")
    run.add_argument(
        "--for-daemon", metavar="FOLDER", help="end with standard input; files are from there"
    )
    run.set_defaults(command=_run, limit_s=None)
    trials = actions.add_parser("trials", help="Run trials as they come on standard input")
    trials.add_argument("inventory", metavar="INVENTORY.toml")
    trials.add_argument("--profile", metavar="FILE", default="the test", help="for messages")
    trials.add_argument("--port", action="append", metavar="NAME", help="only these ports")
    trials.add_argument("--dry-run", action="store_true", help="say only where ports are")
    trials.set_defaults(command=_trials, limit_s=None)
    return parser


def _up(args: argparse.Namespace) -> int:
    inventory = _loaded(args.inventory)
    from ._ray import Connected, bring_up

    for line in bring_up(inventory):
        _tell(args, line)
    if args.only_ray:
        return 0
    with Connected(inventory) as cluster:
        peers = cluster.peers(inventory.nodes, stays=True)
    _tell(args, f"{len(peers)} nodes are up: {', '.join(peer.name for peer in peers)}")
    if args.json:
        print(json.dumps({"nodes": [peer.name for peer in peers]}))
    return 0


def _status(args: argparse.Namespace) -> int:
    inventory = _loaded(args.inventory)
    from ._ray import Connected
    from ._status import status, text

    with Connected(inventory) as cluster:
        table = asyncio.run(status(cluster, inventory))
    print(json.dumps(table) if args.json else text(table))
    return 0 if all(node["state"] == "up" for node in table["nodes"]) else 1


def _down(args: argparse.Namespace) -> int:
    inventory = _loaded(args.inventory)
    from ._ray import Connected, bring_down

    ended: list[str] = []
    try:
        with Connected(inventory) as cluster:
            peers = [peer for entry in inventory.nodes.values() if (peer := cluster.found(entry))]
            cluster.end(peers)
            ended = [peer.name for peer in peers]
            _tell(args, f"{len(ended)} nodes have ended: {', '.join(ended)}")
    except Error:
        # Even if the cluster does not respond, Ray on this machine is stopped.
        if inventory.start is None:
            raise
    for line in bring_down(inventory):
        _tell(args, line)
    if args.json:
        print(json.dumps({"ended": ended}))
    return 0


def _run(args: argparse.Namespace) -> int:
    if args.for_daemon is not None:
        _until_input_ends()
    inventory = _loaded(args.nodes)
    from ._runs import command

    return command(args, inventory)


def _trials(args: argparse.Namespace) -> int:
    inventory = _loaded(args.inventory)
    from ._trials import command

    limit = _at_most(240.0)
    return command(args, inventory, limit.cancel)


def _loaded(path: str) -> Inventory:
    """Load an inventory, and set the environment variables that Ray reads on import."""
    inventory = Inventory.load(path)
    os.environ.update(_host.environment(inventory))
    return inventory


def _at_most(seconds: float) -> threading.Timer:
    """End this process at a deadline, unless the timer is canceled: some calls of Ray wait forever
    for a head that has died."""

    def end() -> None:
        print(f"squall: Ray does not answer within {seconds:.0f} s", file=sys.stderr, flush=True)
        os._exit(ENVIRONMENT)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    return timer


def _until_input_ends() -> None:
    """End this process and its children when its standard input ends, that is, when the process at
    the other end exits or is killed."""

    def end() -> None:
        while os.read(0, 4096):
            pass
        # Allow the nodes a few seconds to stop, as after Ctrl-C.
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(ORPHAN_S)
        os._exit(ENVIRONMENT)

    threading.Thread(target=end, name="squall-input", daemon=True).start()


def _tell(args: argparse.Namespace, line: str) -> None:
    if not args.json:
        print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())

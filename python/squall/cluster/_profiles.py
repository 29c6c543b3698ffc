"""The profile of each node: all ports, those of other nodes as ``elsewhere:``, and the files that
the profile refers to.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import os
import pathlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .._errors import ProfileError
from .._profile import Profile
from ._control import Part
from ._inventory import Inventory

__all__ = ["Job", "check_ports", "divided", "job"]

#: Maximum octets of a file; the same as the daemon's upload limit.
LARGEST = 512 << 20


@dataclasses.dataclass(frozen=True)
class Job:
    """The parts of a profile, and the files that the nodes need.

    Attributes
    ----------
    parts : tuple of Part
    files : mapping of str to Path
        Files on this machine, by their names in the nodes' profiles.
    """

    parts: tuple[Part, ...]
    files: Mapping[str, pathlib.Path]


def job(
    inventory: Inventory,
    path: str | os.PathLike[str],
    options: Mapping[str, Any],
    name: str,
    within: str | os.PathLike[str] | None = None,
) -> Job:
    """Split a profile into parts. Nodes get the files that it refers to; with `within`, only those
    in that directory.

    Raises
    ------
    ProfileError
        The profile has errors, or ports that the inventory lacks.
    """
    table = Profile.load(path).to_dict()
    check_ports(inventory, table["ports"], os.fspath(path))
    folder = pathlib.Path(path).parent if within is None else pathlib.Path(within)
    return divided(inventory, table, folder.resolve(), options, name, within is not None)


def check_ports(inventory: Inventory, ports: Iterable[str], origin: str) -> None:
    """Check that the inventory has these ports; errors refer to `origin`.

    Raises
    ------
    ProfileError
        The inventory lacks one.
    """
    missing = [port for port in ports if port not in inventory.ports]
    if missing:
        known = ", ".join(inventory.ports) or "none"
        raise ProfileError(
            f"{origin}: the inventory has no port {missing[0]!r}: it has {known}\n"
            f'  try {missing[0]} = "NODE/ADDRESS" below [ports] of the inventory'
        )


def divided(
    inventory: Inventory,
    table: Mapping[str, Any],
    folder: pathlib.Path,
    options: Mapping[str, Any],
    name: str,
    only_within: bool = False,
) -> Job:
    """Split a profile into its parts. The profile must be valid, and its file names relative to
    `folder`. With `only_within` the files must be in that directory."""
    files: dict[str, pathlib.Path] = {}
    table = _named(table, lambda text: _file(text, folder, files, only_within))
    used = set(table["ports"])
    nodes = [node for node in inventory.senders() if used & set(inventory.own_ports(node))]
    return Job(tuple(_part(inventory, node, table, options, name) for node in nodes), files)


def _part(
    inventory: Inventory, node: str, table: Mapping[str, Any], options: Mapping[str, Any], name: str
) -> Part:
    profile = copy.deepcopy(dict(table))
    addresses = inventory.ports_of(node)
    profile["ports"] = {port: addresses[port] for port in table["ports"]}
    number, parts = inventory.part_of(node)
    share = {} if parts == 1 else {"part": f"{number}/{parts}"}
    body = {"profile": profile, "name": name, "owner": "squall cluster", "node": node}
    body = {**body, **share, "options": dict(options)}
    return Part(node, body, sends=bool(_senders(table) & set(inventory.own_ports(node))))


def _senders(table: Mapping[str, Any]) -> set[str]:
    """Return the ports that send; others only receive, or answer."""
    keys = ("port", "port2")
    kinds = ("stream", "replay", "attack")
    rows = [row for kind in kinds for row in table.get(kind, ())]
    rows += [group for group in table.get("host", ()) if _asks(group)]
    found = {row[key] for row in rows for key in keys if row.get(key) is not None}
    if any("port" not in row for row in rows):
        # A part without a port name uses the first port.
        found.add(next(iter(table["ports"])))
    if flows := table.get("flows"):
        found.add(flows["clients"])
    return found


def _asks(group: Mapping[str, Any]) -> bool:
    """Return whether hosts ask for something, so that their run ends with the answers. Other hosts
    only answer, until they are stopped. The same as `GroupSettings::only_answers` in the engine.
    """
    ipv6 = group.get("ipv6")
    # By default hosts have DHCP, or sessions of PPPoE.
    dhcp = group.get("ipv4", "dhcp" if ipv6 is None else "none") == "dhcp"
    slaac = ipv6 == "slaac" and "advertise" not in group
    return (
        dhcp
        or slaac
        or ipv6 in ("stateless", "dhcp")
        or group.get("dhcp") == "inform"
        or group.get("auth", "none") != "none"
        or any(key in group for key in ("ping", "resolve"))
        or ("join" in group and "join_time" in group)
    )


def _named(value: Any, name: Callable[[str], str]) -> Any:
    """Return a copy of a value, with `name` applied to every string."""
    if isinstance(value, dict):
        return {key: _named(item, name) for key, item in value.items()}
    if isinstance(value, list):
        return [_named(item, name) for item in value]
    return name(value) if isinstance(value, str) else value


def _file(text: str, folder: pathlib.Path, files: dict[str, pathlib.Path], inside: bool) -> str:
    """Return the daemon's name for a file on this machine. If `inside`, the file must be in the
    folder."""
    if len(text) > 4096 or "\n" in text or not text.strip("./ "):
        return text
    file, hash_mark, packet = text.partition("#")
    path = folder / file
    if not ("." in path.name or os.sep in file) or not path.is_file():
        return text
    # Any string in a profile may name a file, and its author may not be permitted to read all
    # files.
    if inside and not path.resolve().is_relative_to(folder):
        return text
    if path.stat().st_size > LARGEST:
        raise ProfileError(f"{path}: more than 512 MiB, the most that a node takes in")
    # The digest distinguishes files with the same base name.
    digest = hashlib.sha256(str(path).encode()).hexdigest()[:8]
    name = f"cluster-{digest}-{path.name}"
    files[name] = path
    return name + hash_mark + packet

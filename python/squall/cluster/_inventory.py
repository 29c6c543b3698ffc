"""The inventory: nodes, how to reach them, and their ports."""

from __future__ import annotations

import dataclasses
import difflib
import ipaddress
import os
import pathlib
import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from .._errors import Error

__all__ = ["Inventory", "InventoryError", "NodeEntry", "Place", "Start", "Tls"]

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
TIME = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m)\s*")
SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0}
#: Default lease of runs: traffic ends within this time after the controller has disappeared.
LEASE_S = 2.0


class InventoryError(Error, ValueError):
    """An inventory is invalid; nothing was started."""


@dataclasses.dataclass(frozen=True)
class NodeEntry:
    """A node.

    Attributes
    ----------
    name : str
    address : str or None
        The address by which Ray identifies its machine.
    ray_id : str or None
        Ray's ID of its machine.
    resource : str or None
        A custom Ray resource that only its machine has.
    allow : tuple of str
        Interfaces that its daemon may use, as with ``squall serve --allow``. The ports in the
        inventory are always allowed.
    squall : str or None
        Path of the program on its machine. Default: that in its Python package.
    data : str or None
        Directory of its daemon. Default: a temporary one.
    clock_port : int
        UDP port of its clock echo server. 0: any free port.
    clock_offset_ns, clock_drift_ppb
        Artificial error of its clock, for tests: results must not depend on it.
    """

    name: str
    address: str | None = None
    ray_id: str | None = None
    resource: str | None = None
    allow: tuple[str, ...] = ()
    squall: str | None = None
    data: str | None = None
    clock_port: int = 0
    clock_offset_ns: int = 0
    clock_drift_ppb: float = 0.0


@dataclasses.dataclass(frozen=True)
class Place:
    """A port of a node, as written in the inventory."""

    node: str
    address: str


@dataclasses.dataclass(frozen=True)
class Start:
    """How `squall cluster up` starts a Ray cluster on the nodes.

    Attributes
    ----------
    head : str
        This machine's address, to which the nodes connect.
    port : int
        TCP port of Ray's head. If set, the ports of its other services follow it.
    reach : str
        Prefix of commands to run on a node; ``{name}`` and ``{address}`` are replaced.
    python : str
        Python with squall[cluster] on the nodes.
    dashboard : bool
        Whether to start Ray's dashboard, on loopback of this machine.
    worker_ports : tuple of int, or None
        First and last TCP port of Ray's workers, to open in firewalls.
    object_store_mb : int
    """

    head: str
    port: int = 6379
    reach: str = "ssh -o BatchMode=yes {address}"
    python: str = "python3"
    dashboard: bool = False
    worker_ports: tuple[int, int] | None = None
    object_store_mb: int = 80


@dataclasses.dataclass(frozen=True)
class Tls:
    """Certificates for all connections of Ray: each side must have one from this authority."""

    cert: str
    key: str
    ca: str

    def environment(self) -> dict[str, str]:
        """Return the environment variables from which Ray reads them."""
        return {
            "RAY_USE_TLS": "1",
            "RAY_TLS_SERVER_CERT": self.cert,
            "RAY_TLS_SERVER_KEY": self.key,
            "RAY_TLS_CA_CERT": self.ca,
        }


@dataclasses.dataclass(frozen=True)
class Inventory:
    """Nodes and ports, as read from TOML.

    Examples
    --------
    >>> inventory = Inventory.parse('''
    ... [cluster]
    ... ray = "10.0.0.1:6379"
    ... [node.one]
    ... address = "10.0.0.11"
    ... [node.two]
    ... address = "10.0.0.12"
    ... [node.three]
    ... address = "10.0.0.13"
    ... [ports]
    ... A = ["one/af_packet:eth1", "two/af_packet:eth1"]
    ... B = "three/af_packet:eth1"
    ... ''')
    >>> inventory.ports_of("one"), inventory.part_of("one")
    ({'A': 'af_packet:eth1', 'B': 'elsewhere:three'}, (1, 2))
    """

    name: str
    nodes: Mapping[str, NodeEntry]
    ports: Mapping[str, tuple[Place, ...]]
    ray: str | None = None
    start: Start | None = None
    tls: Tls | None = None
    lease_s: float = LEASE_S
    max_drift_ppm: float = 100.0

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Inventory:
        """Read an inventory from a file.

        Raises
        ------
        InventoryError
            The message has the file, the key, and what to try.
        """
        file = pathlib.Path(path)
        try:
            text = file.read_text(encoding="utf-8")
        except OSError as error:
            missing = isinstance(error, FileNotFoundError)
            why = "there is no such file" if missing else error.strerror
            raise InventoryError(f"cannot read {file}: {why}\n  try --nodes FILE.toml") from None
        return cls.parse(text, str(file), file.stem)

    @classmethod
    def parse(cls, text: str, origin: str = "<inventory>", name: str = "cluster") -> Inventory:
        """Parse the text of an inventory."""
        try:
            return _inventory(_Table(_toml(text, origin), origin, ""), name)
        except _Wrong as wrong:
            raise InventoryError(f"{origin}: {wrong}") from None

    def ports_of(self, node: str) -> dict[str, str]:
        """Return the addresses for a node's profile: its own ports, and those of other nodes as
        ``elsewhere:NODE``.
        """
        return {port: _seen_by(node, places) for port, places in self.ports.items()}

    def part_of(self, node: str) -> tuple[int, int]:
        """Return the node's part of its ports: (I, N) for part I of N; ``(1, 1)`` is the whole.

        Raises
        ------
        InventoryError
            Two of the node's ports would have different parts.
        """
        shares = {
            (tuple(place.node for place in places).index(node) + 1, len(places)): port
            for port, places in self.ports.items()
            if any(place.node == node for place in places)
        }
        if len(shares) > 1:
            (one, a), (other, b) = list(shares.items())[:2]
            raise InventoryError(
                f"node {node!r} has part {one[0]}/{one[1]} of port {a!r}, and part"
                f" {other[0]}/{other[1]} of port {b!r}\n"
                "  try the same nodes in the same order for both ports"
            )
        return next(iter(shares), (1, 1))

    def own_ports(self, node: str) -> tuple[str, ...]:
        """Return the names of the node's own ports."""
        return tuple(
            port for port, places in self.ports.items() if any(p.node == node for p in places)
        )

    def senders(self) -> tuple[str, ...]:
        """Nodes with at least one port, in the order of the inventory."""
        return tuple(name for name in self.nodes if self.own_ports(name))

    def near(self, node: str) -> str:
        """Return nodes with names similar to `node`, for error messages."""
        return _near(node, self.nodes)


class _Wrong(Exception):
    """An error in an inventory: key, message, hint."""


class _Table:
    """A TOML table whose keys are consumed one by one, so that unknown keys remain."""

    def __init__(self, values: Mapping[str, Any], origin: str, path: str) -> None:
        self._values, self._origin, self.path = dict(values), origin, path
        self._known: list[str] = []

    def take(self, key: str, kind: type[Any] | tuple[type[Any], ...], expected: str) -> Any:
        """Consume a key and return its value; None if it is missing."""
        self._known.append(key)
        value = self._values.pop(key, None)
        # isinstance(True, int) is true in Python.
        wrong = isinstance(value, bool) and kind is not bool
        if value is not None and (wrong or not isinstance(value, kind)):
            raise _Wrong(f"{self.key(key)} = {value!r}: expected {expected}")
        return value

    def text(self, key: str, expected: str) -> str | None:
        value: str | None = self.take(key, str, expected)
        return value

    def table(self, key: str) -> _Table | None:
        value = self.take(key, dict, f"a table, [{self.key(key)}]")
        return None if value is None else _Table(value, self._origin, self.key(key))

    def rest(self) -> Iterable[tuple[str, Any]]:
        """Consume the remaining keys."""
        rest, self._values = self._values, {}
        return rest.items()

    def end(self) -> None:
        """Raise an error if unknown keys are left."""
        for key in self._values:
            raise _Wrong(f"{self.key(key)}: unknown key\n  try {_near(key, self._known)}")

    def key(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key


def _toml(text: str, origin: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        try:
            import tomli as tomllib
        except ImportError:
            raise InventoryError(
                f"{origin}: cannot read TOML with this Python\n  try pip install tomli"
            ) from None
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InventoryError(f"{origin}: {error}") from None


def _inventory(table: _Table, name: str) -> Inventory:
    cluster = table.table("cluster") or _Table({}, "", "cluster")
    nodes = _nodes(table.table("node"))
    ports = _ports(table.table("ports"), nodes)
    table.end()
    found = Inventory(
        name=cluster.text("name", "a name") or name,
        nodes=nodes,
        ports=ports,
        ray=_ray(cluster),
        start=_start(cluster.table("start"), nodes),
        tls=_tls(cluster.table("tls")),
        lease_s=_time(cluster, "lease", LEASE_S),
        max_drift_ppm=_number(cluster, "max_drift_ppm", 100.0),
    )
    cluster.end()
    if found.lease_s < 1:
        raise _Wrong(f"cluster.lease: {found.lease_s:g} s is too short\n  try 1 s or more")
    if found.ray is not None and found.start is not None:
        raise _Wrong("cluster: both ray and start\n  try only one: an existing cluster, or a new")
    if found.ray is None and found.start is None:
        raise _Wrong(
            'cluster: neither ray nor start\n  try ray = "HEAD:6379" for a Ray cluster that is up,'
            ' or [cluster.start] with head = "THIS MACHINE\'S ADDRESS"'
        )
    for node in nodes:
        try:
            found.part_of(node)
        except InventoryError as error:
            raise _Wrong(f"ports: {error}") from None
    return found


def _ray(cluster: _Table) -> str | None:
    address = cluster.text("ray", '"HOST:PORT" of the head')
    if address is not None and not re.fullmatch(r"(auto|[^\s/]+:\d+)", address):
        raise _Wrong(f'cluster.ray = {address!r}: expected "HOST:PORT" of Ray\'s head, or "auto"')
    return address


def _start(table: _Table | None, nodes: Mapping[str, NodeEntry]) -> Start | None:
    if table is None:
        return None
    head = table.text("head", "this machine's address")
    if head is None:
        raise _Wrong("cluster.start.head is missing\n  try this machine's address, as nodes see it")
    _address("cluster.start.head", head)
    for node in nodes.values():
        if node.address is None:
            raise _Wrong(
                f"node.{node.name}: no address, which [cluster.start] needs\n  try address = ..."
            )
    ports = table.take("worker_ports", list, "[FIRST, LAST]")
    if ports is not None and not (
        len(ports) == 2 and all(isinstance(p, int) and 1023 < p < 65536 for p in ports)
    ):
        raise _Wrong(f"cluster.start.worker_ports = {ports!r}: expected [FIRST, LAST]")
    found = Start(
        head=head,
        port=int(_number(table, "port", 6379)),
        reach=table.text("reach", "a command") or Start.reach,
        python=table.text("python", "a path") or Start.python,
        dashboard=bool(table.take("dashboard", bool, "true or false")),
        worker_ports=None if ports is None else (ports[0], ports[1]),
        object_store_mb=int(_number(table, "object_store_mb", 80)),
    )
    table.end()
    return found


def _tls(table: _Table | None) -> Tls | None:
    if table is None:
        return None
    files = {key: table.text(key, "a file") for key in ("cert", "key", "ca")}
    table.end()
    for key, file in files.items():
        if file is None:
            raise _Wrong(f"cluster.tls.{key} is missing\n  try the path of a file in PEM")
    return Tls(**files)  # type: ignore[arg-type]


def _nodes(table: _Table | None) -> dict[str, NodeEntry]:
    if table is None:
        raise _Wrong('no node\n  try [node.one] with address = "10.0.0.11"')
    nodes = {}
    for name, values in table.rest():
        if not NAME.fullmatch(name):
            raise _Wrong(f"node.{name}: expected a name of letters, digits, '.', '_' and '-'")
        if not isinstance(values, dict):
            raise _Wrong(f"node.{name} = {values!r}: expected a table, [node.{name}]")
        nodes[name] = _node(name, _Table(values, "", f"node.{name}"))
    return nodes


def _node(name: str, table: _Table) -> NodeEntry:
    where = {key: table.text(key, "a text") for key in ("address", "ray_id", "resource")}
    given = [key for key, value in where.items() if value is not None]
    if len(given) != 1:
        found = " and ".join(given) or "nothing"
        raise _Wrong(
            f"node.{name}: {found} to find it by\n  try one of: address (by which Ray knows the"
            " machine), ray_id, resource"
        )
    if where["address"] is not None:
        _address(f"node.{name}.address", where["address"])
    port = int(_number(table, "clock_port", 0, least=0))
    if port > 65_535:
        raise _Wrong(f"node.{name}.clock_port = {port}: expected a UDP port, at most 65535")
    allow = table.take("allow", list, "a list of interfaces")
    if not all(isinstance(one, str) for one in allow or ()):
        raise _Wrong(f"node.{name}.allow = {allow!r}: expected a list of interfaces")
    node = NodeEntry(
        name=name,
        **where,
        allow=tuple(allow or ()),
        squall=table.text("squall", "a path"),
        data=table.text("data", "a folder"),
        clock_port=port,
        clock_offset_ns=int(_number(table, "clock_offset_ns", 0, least=float("-inf"))),
        clock_drift_ppb=_number(table, "clock_drift_ppb", 0, least=float("-inf")),
    )
    table.end()
    return node


def _ports(table: _Table | None, nodes: Mapping[str, NodeEntry]) -> dict[str, tuple[Place, ...]]:
    ports: dict[str, tuple[Place, ...]] = {}
    seen: dict[Place, str] = {}
    for name, given in [] if table is None else table.rest():
        texts = [given] if isinstance(given, str) else given
        if not isinstance(texts, list) or not texts:
            raise _Wrong(f'ports.{name} = {given!r}: expected "NODE/ADDRESS", or a list of them')
        places = tuple(_place(name, text, nodes) for text in texts)
        for place in places:
            if place in seen and not place.address.startswith("null:"):
                shown = f"{place.node}/{place.address}"
                raise _Wrong(f"ports.{name}: {shown} is also port {seen[place]!r}")
            seen[place] = name
        if len({place.node for place in places}) < len(places):
            raise _Wrong(f"ports.{name} = {given!r}: a node twice\n  try a port for each interface")
        ports[name] = places
    return ports


def _place(port: str, text: object, nodes: Mapping[str, NodeEntry]) -> Place:
    node, slash, address = text.partition("/") if isinstance(text, str) else ("", "", "")
    if not slash or not node or not address:
        raise _Wrong(f'ports.{port} = {text!r}: expected "NODE/ADDRESS": "one/af_packet:eth1"')
    if node not in nodes:
        raise _Wrong(f"ports.{port}: there is no node {node!r}\n  try {_near(node, nodes)}")
    return Place(node, address)


def _seen_by(node: str, places: Iterable[Place]) -> str:
    known = {place.node: place.address for place in places}
    return known.get(node) or f"elsewhere:{'+'.join(known)}"


def _address(key: str, text: str) -> None:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        # Ray does not resolve host names in some of its arguments.
        raise _Wrong(f"{key} = {text!r}: expected an IP address, such as 10.0.0.11") from None


def _time(table: _Table, key: str, default: float) -> float:
    text = table.text(key, 'a time, such as "2 s"')
    if text is None:
        return default
    found = TIME.fullmatch(text)
    if not found or float(found[1]) == 0:
        raise _Wrong(f'{table.key(key)} = {text!r}: expected a time above 0, such as "2 s"')
    return float(found[1]) * SECONDS[found[2]]


def _number(table: _Table, key: str, default: float, least: float = 1e-9) -> float:
    value = table.take(key, (int, float), "a number")
    if value is None:
        return default
    if not value >= least:
        raise _Wrong(f"{table.key(key)} = {value!r}: expected a number above 0")
    return float(value)


def _near(name: str, known: Iterable[str]) -> str:
    names = list(known)
    return ", ".join(difflib.get_close_matches(name, names) or names[:10])

"""Profiles: the traffic to send, its ports and its schedule."""

from __future__ import annotations

import datetime
import ipaddress
import json
import math
import operator
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, SupportsBytes

from . import _native
from ._tables import (
    LISTS,
    Attack as Attack,
    Frame as Frame,
    HostGroup as HostGroup,
    Number as Number,
    Pool as Pool,
    ProfileTables,
    Replay as Replay,
    Router as Router,
    Stream as Stream,
    Table,
    Template as Template,
    Time as Time,
    Vary as Vary,
)


def vary(
    field: str | None,
    op: Literal["increment", "decrement", "list", "random", "weighted", "file", "tuple"],
    **more: Any,
) -> Vary:
    """Describe a field that changes from frame to frame.

    Parameters
    ----------
    field : str or None
        Name of a packet field: ``"ipv4.src"``, ``"vlan[1].id"``. None for ``op="tuple"``, and with
        ``offset``.
    op : str
        Operation that yields the next value: ``"increment"``, ``"decrement"``, ``"list"``,
        ``"random"``, ``"weighted"``, ``"file"`` or ``"tuple"``.
    **more
        Further keys of `Vary`: ``min``, ``max``, ``step``, ``values`` ...

    Examples
    --------
    >>> import squall
    >>> sources = squall.vary("ipv4.src", "random", min="16.0.0.0", max="18.0.0.254")
    >>> sources.max
    '18.0.0.254'
    """
    return Vary(field=field, op=op, **more)


@dataclass
class Profile(ProfileTables):
    """The traffic to send: streams and flows, with their ports and times.

    Its parameters are the keys of the schema; lists of tables have plural names. `add` and
    ``profile.streams`` modify the lists passed to the constructor.

    Examples
    --------
    >>> import squall
    >>> profile = squall.Profile(ports={"A": "loop:profile,virtual"}, duration="1 s")
    >>> profile.add(squall.Stream(name="web", packet="eth/ipv4/udp", rate="1 kpps"))
    >>> print(profile.to_toml())  # doctest: -NORMALIZE_WHITESPACE
    schema = 1
    duration = "1 s"
    <BLANKLINE>
    [ports]
    A = "loop:profile,virtual"
    <BLANKLINE>
    [[stream]]
    name = "web"
    port = "A"
    packet = "eth/ipv4/udp"
    rate = "1 kpps"
    <BLANKLINE>
    """

    # The parsed text, and the table built from it: while the table is unchanged, errors refer to
    # positions in the text.
    _read: tuple[_native.Profile, dict[str, Any]] | None = field(
        default=None, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        self.ports = dict(self.ports)
        for name, _ in LISTS.values():
            setattr(self, name, list(getattr(self, name)))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Profile:
        """Read a profile from a file: TOML, YAML or JSON, by its extension. Disabled streams are
        left out.

        Raises
        ------
        ProfileError
            The file cannot be read, or has errors.
        """
        return cls._from(_native.Profile.load(os.fspath(path)))

    @classmethod
    def from_toml(cls, text: str, origin: str = "<python>") -> Profile:
        """Read a profile from text. Messages refer to it as `origin`, and relative file names are
        resolved against the directory of `origin`.

        Raises
        ------
        ProfileError
            The profile has errors.
        """
        return cls._from(_native.Profile.parse(text, origin, "toml"))

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> Profile:
        """Create a profile from a table of the schema, as returned by `to_dict`.

        Raises
        ------
        ProfileError
            The profile has errors.
        """
        return cls._from(_native.Profile.from_json(json.dumps(_plain(table)), "<python>"))

    @classmethod
    def _from(cls, read: _native.Profile) -> Profile:
        table = json.loads(read.to_json())
        for key, (name, kind) in LISTS.items():
            table[name] = [_made(kind, one) for one in table.pop(key, ())]
        profile = cls(**table)
        profile._read = read, profile._table()
        return profile

    def add(self, *more: Table) -> None:
        """Append streams, replays, pools, templates, attacks, hosts and routers, each to its list.

        Raises
        ------
        TypeError
            An object is none of these; then nothing is appended.
        """
        found: list[tuple[str, Table]] = []
        for one in more:
            names = [name for name, kind in LISTS.values() if isinstance(one, kind)]
            if not names:
                kinds = ", ".join(kind.__name__ for _, kind in LISTS.values())
                raise TypeError(f"cannot add {type(one).__name__} to a profile: expected {kinds}")
            found += [(name, one) for name in names]
        for name, one in found:
            getattr(self, name).append(one)

    def check(self) -> None:
        """Check everything that can be checked without opening ports; a `Session` does the same.

        Raises
        ------
        ProfileError
            The profile has errors; the exception has all of them.
        """
        self._checked()

    def to_toml(self) -> str:
        """Return the profile as TOML, with every value in its usual notation.

        Raises
        ------
        ProfileError
            The profile has errors.
        """
        return self._checked().to_toml()

    def to_python(self) -> str:
        """Return Python code that builds the profile with this package.

        Examples
        --------
        >>> import squall
        >>> stream = squall.Stream(packet="eth/ipv4/udp", rate="1 kpps")
        >>> profile = squall.Profile(ports={"A": "null:"}, streams=[stream])
        >>> print(profile.to_python())  # doctest: +ELLIPSIS
        import squall
        <BLANKLINE>
        profile = squall.Profile(
            ports={"A": "null:"},
        ...

        Raises
        ------
        ProfileError
            The profile has errors.
        """
        return self._checked().to_python()

    def to_dict(self) -> dict[str, Any]:
        """Return the profile as a table of the schema.

        Raises
        ------
        ProfileError
            The profile has errors.
        """
        table: dict[str, Any] = json.loads(self._checked().to_json())
        return table

    @staticmethod
    def schema() -> dict[str, Any]:
        """Return the JSON schema of profiles, with a description of every key."""
        schema: dict[str, Any] = json.loads(_native.Profile.schema())
        return schema

    def _checked(self) -> _native.Profile:
        table = self._table()
        if self._read is not None and self._read[1] == table:
            return self._read[0]
        return _native.Profile.from_json(json.dumps(table), "<python>")

    def _table(self) -> dict[str, Any]:
        table = _table(self)
        for key, (name, _) in LISTS.items():
            entries = table.pop(name)
            if entries:
                table[key] = entries
        return table


def _made(kind: type[Table], table: dict[str, Any]) -> Table:
    """Return a table as a dataclass, with its nested tables."""
    if "vary" in table:
        table["vary"] = [Vary(**one) for one in table["vary"]]
    return kind(**table)


def _table(value: ProfileTables | Table) -> dict[str, Any]:
    """Return the values that are set, by their names in the schema."""
    given = {f.name: getattr(value, f.name) for f in fields(value) if not f.name.startswith("_")}  # type: ignore[arg-type]
    table = {key: _plain(value) for key, value in given.items() if value is not None}
    if isinstance(value, Stream) and value.packet is not None and not isinstance(value.packet, str):
        if "hex" in table:
            raise TypeError("a stream has packet or hex, not both")
        table["hex"] = table.pop("packet")
    return table


def _plain(value: Any) -> Any:
    """Return a value that JSON can represent."""
    match value:
        case None | bool() | str():
            return value
        case int():
            # JSON readers lose digits of numbers above 64 bits (IPv6 addresses), so these become
            # text.
            return value if abs(value) < 2**63 else str(value)
        case float():
            return value if math.isfinite(value) else str(value)
        case Table():
            return _table(value)
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case datetime.timedelta():
            return f"{value // datetime.timedelta(microseconds=1)} us"
        case ipaddress.IPv4Address() | ipaddress.IPv6Address():
            return str(value)
        case os.PathLike():
            return os.fspath(value)
        # This case precedes iterables: octets and scapy packets are iterable, too.
        case bytes() | bytearray() | memoryview() | SupportsBytes():
            return bytes(value).hex()
    if isinstance(value, Iterable):
        return [_plain(item) for item in value]
    # Integers of numpy and other packages.
    if hasattr(value, "__index__"):
        return _plain(operator.index(value))
    if hasattr(value, "__float__"):
        return _plain(float(value))
    raise TypeError(f"a profile cannot contain {type(value).__name__}: {value!r}")

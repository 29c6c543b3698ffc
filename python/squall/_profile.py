"""Profiles: descriptions of what to send."""

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
from ._options import RunOptions
from ._tables import Attack, Frame, Number, Pool, Replay, Stream, Template, Time, Vary

__all__ = [
    "Attack",
    "Frame",
    "Number",
    "Pool",
    "Profile",
    "Replay",
    "Stream",
    "Template",
    "Time",
    "Vary",
    "vary",
]


def vary(
    field: str | None,
    op: Literal["increment", "decrement", "list", "random", "weighted", "file", "tuple"],
    **more: Any,
) -> Vary:
    """A field that changes from frame to frame.

    Parameters
    ----------
    field : str or None
        Name of a field of the packet: ``"ipv4.src"``, ``"vlan[1].id"``. None for ``op="tuple"``,
        and with ``offset``.
    op : str
        Operation that gives the next value: ``"increment"``, ``"decrement"``, ``"list"``,
        ``"random"``, ``"weighted"``, ``"file"`` or ``"tuple"``.
    **more
        The other keys of `Vary`: ``min``, ``max``, ``step``, ``values`` ...

    Examples
    --------
    >>> import squall
    >>> sources = squall.vary("ipv4.src", "random", min="16.0.0.0", max="18.0.0.254")
    >>> sources.max
    '18.0.0.254'
    """
    return Vary(field=field, op=op, **more)


@dataclass
class Profile:
    """A profile: what to send, on which ports, and when.

    Parameters
    ----------
    ports : mapping of str to str
        Names for addresses: ``{"A": "af_packet:eth1", "B": "loop:0"}``.
    streams : iterable of Stream
        Streams to send; `add` and ``profile.streams`` change the list.
    templates : iterable of Template
        Kinds of flows, and their load.
    pools : iterable of Pool
        Addresses that templates use.
    flows : mapping, optional
        Settings of all templates: ``[flows]`` of the schema.
    attacks : iterable of Attack
        Attacks made from intrusion detection rules.
    replays : iterable of Replay
        Captures to send again.
    seed : int
        Seed of all random choices: the same profile and seed send the same octets. Default 1.
    duration : str, seconds or timedelta
        Stop the run after this time.
    packets, octets : int or str
        Stop the run after this number of frames, or octets of frames with FCS, counted over all
        ports.
    run : RunOptions
        Default options of its runs: ``{"cores": 2, "linger": "1 s"}``.

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

    ports: dict[str, str] = field(default_factory=dict)
    streams: list[Stream] = field(default_factory=list)
    seed: int | None = None
    duration: Time | None = None
    packets: int | str | None = None
    octets: int | str | None = None
    run: RunOptions | None = None
    templates: list[Template] = field(default_factory=list)
    pools: list[Pool] = field(default_factory=list)
    flows: Mapping[str, Any] | None = None
    attacks: list[Attack] = field(default_factory=list)
    replays: list[Replay] = field(default_factory=list)
    # What was read, and the table it had then: as long as that is so, mistakes are named by their
    # place in the text.
    _read: tuple[_native.Profile, dict[str, Any]] | None = field(
        default=None, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        self.ports = dict(self.ports)
        self.streams = list(self.streams)
        self.templates = list(self.templates)
        self.pools = list(self.pools)
        self.attacks = list(self.attacks)
        self.replays = list(self.replays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Profile:
        """Read a profile from a file: TOML, YAML or JSON, by its extension. Streams that are not
        enabled are left out.

        Raises
        ------
        ProfileError
            The file cannot be read, or has mistakes.
        """
        return cls._from(_native.Profile.load(os.fspath(path)))

    @classmethod
    def from_toml(cls, text: str, origin: str = "<python>") -> Profile:
        """Read a profile from text. Messages call it `origin`, and relative names of files are
        looked up in the folder of `origin`.

        Raises
        ------
        ProfileError
            The profile has mistakes.
        """
        return cls._from(_native.Profile.parse(text, origin, "toml"))

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> Profile:
        """Make a profile from a table of the schema, as `to_dict` returns it.

        Raises
        ------
        ProfileError
            The profile has mistakes.
        """
        return cls._from(_native.Profile.from_json(json.dumps(_plain(table)), "<python>"))

    @classmethod
    def _from(cls, read: _native.Profile) -> Profile:
        table = json.loads(read.to_json())
        streams = [
            Stream(**{**stream, "vary": [Vary(**v) for v in stream.get("vary", ())] or None})
            for stream in table.pop("stream", ())
        ]
        templates = [Template(**template) for template in table.pop("template", ())]
        pools = [Pool(**pool) for pool in table.pop("pool", ())]
        attacks = [Attack(**attack) for attack in table.pop("attack", ())]
        replays = [Replay(**replay) for replay in table.pop("replay", ())]
        profile = cls(
            streams=streams,
            templates=templates,
            pools=pools,
            attacks=attacks,
            replays=replays,
            **table,
        )
        profile._read = read, profile._table()
        return profile

    def add(self, *more: Stream | Template | Pool | Attack | Replay) -> None:
        """Add streams, templates, pools, attacks and replays, each at the end of its list."""
        for one in more:
            match one:
                case Stream():
                    self.streams.append(one)
                case Template():
                    self.templates.append(one)
                case Pool():
                    self.pools.append(one)
                case Attack():
                    self.attacks.append(one)
                case Replay():
                    self.replays.append(one)

    def check(self) -> None:
        """Check everything that can be checked without the ports; a `Session` does the same.

        Raises
        ------
        ProfileError
            The profile has mistakes; the exception has all of them.
        """
        self._checked()

    def to_toml(self) -> str:
        """The profile as TOML, with every value as a person would write it.

        Raises
        ------
        ProfileError
            The profile has mistakes.
        """
        return self._checked().to_toml()

    def to_python(self) -> str:
        """Code that makes the profile with this package.

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
            The profile has mistakes.
        """
        return self._checked().to_python()

    def to_dict(self) -> dict[str, Any]:
        """The profile as the schema describes it.

        Raises
        ------
        ProfileError
            The profile has mistakes.
        """
        table: dict[str, Any] = json.loads(self._checked().to_json())
        return table

    @staticmethod
    def schema() -> dict[str, Any]:
        """The JSON schema of profiles, with every key explained."""
        schema: dict[str, Any] = json.loads(_native.Profile.schema())
        return schema

    def _checked(self) -> _native.Profile:
        table = self._table()
        if self._read is not None and self._read[1] == table:
            return self._read[0]
        return _native.Profile.from_json(json.dumps(table), "<python>")

    def _table(self) -> dict[str, Any]:
        table = _table(self)
        for key, given in [
            ("stream", "streams"),
            ("template", "templates"),
            ("pool", "pools"),
            ("attack", "attacks"),
            ("replay", "replays"),
        ]:
            entries = table.pop(given)
            if entries:
                table[key] = entries
        return table


def _table(value: Profile | Stream | Template | Pool | Attack | Replay | Vary) -> dict[str, Any]:
    """What was given, under the names of the schema."""
    given = {f.name: getattr(value, f.name) for f in fields(value) if not f.name.startswith("_")}
    table = {key: _plain(value) for key, value in given.items() if value is not None}
    if isinstance(value, Stream) and value.packet is not None and not isinstance(value.packet, str):
        if "hex" in table:
            raise TypeError("a stream has packet or hex, not both")
        table["hex"] = table.pop("packet")
    return table


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    match value:
        case None | bool() | str():
            return value
        case int():
            # Beyond 64 bits JSON readers lose digits (addresses of IPv6).
            return value if abs(value) < 2**63 else str(value)
        case float():
            return value if math.isfinite(value) else str(value)
        case Stream() | Vary() | Template() | Pool() | Attack() | Replay():
            return _table(value)
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case datetime.timedelta():
            return f"{value // datetime.timedelta(microseconds=1)} us"
        case ipaddress.IPv4Address() | ipaddress.IPv6Address():
            return str(value)
        case os.PathLike():
            return os.fspath(value)
        # Before iterables, which octets and packets of scapy are, too.
        case bytes() | bytearray() | memoryview() | SupportsBytes():
            return bytes(value).hex()
    if isinstance(value, Iterable):
        return [_plain(item) for item in value]
    # Numbers of numpy and other packages.
    if hasattr(value, "__index__"):
        return _plain(operator.index(value))
    if hasattr(value, "__float__"):
        return _plain(float(value))
    raise TypeError(f"a profile cannot contain {type(value).__name__}: {value!r}")

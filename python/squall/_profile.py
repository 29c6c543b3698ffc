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
from typing import Any, Literal, SupportsBytes, TypeAlias

from . import _native
from ._options import RunOptions

__all__ = ["Attack", "Pool", "Profile", "Stream", "Template", "Vary", "vary"]

Number: TypeAlias = int | str | ipaddress.IPv4Address | ipaddress.IPv6Address
"""A number, an IP address or a MAC address."""
Time: TypeAlias = float | str | datetime.timedelta
"""Seconds, or text with a unit: ``"10 s"``, ``"1.5 ms"``."""
Frame: TypeAlias = str | bytes | bytearray | memoryview | SupportsBytes
"""Layers as text, or anything whose ``bytes()`` is a frame without FCS: octets, a scapy packet."""


@dataclass(kw_only=True)
class Vary:
    """A field that changes from frame to frame: ``[[stream.vary]]`` of the schema, which explains
    each key.

    Give ``field``, or ``offset`` and ``octets``. `vary` is a shorter way to write it.
    """

    op: Literal["increment", "decrement", "list", "random", "weighted", "file", "tuple"]
    name: str | None = None
    field: str | None = None
    offset: int | None = None
    octets: int | None = None
    mask: Number | None = None
    add: int | None = None
    shift: int | None = None
    little_endian: bool | None = None
    min: Number | None = None
    max: Number | None = None
    init: Number | None = None
    step: Number | None = None
    values: Iterable[Number] | None = None
    weights: Iterable[int] | None = None
    limit: int | None = None
    seed: int | None = None
    path: str | os.PathLike[str] | None = None
    after: str | None = None
    fields: Iterable[str] | None = None
    ip_min: Number | None = None
    ip_max: Number | None = None
    port_min: Number | None = None
    port_max: Number | None = None


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


@dataclass(kw_only=True)
class Stream:
    """Frames of one kind, at one rate, on one port: ``[[stream]]`` of the schema. None: left out.

    The values are checked when the profile is used, because they depend on its other parts.

    Attributes
    ----------
    name : str
        Unique; reports and ``next`` use it. Default ``"stream 1"`` and so on.
    port : str
        A name from the profile's ports. Optional if there is only one.
    group : str
        Reports add up the streams of a group.
    packet : str, bytes or packet
        The headers as text, outermost first (``"eth/ipv4(dst=48.0.0.1)/udp(dport=53)"``), or
        anything whose ``bytes()`` is a frame without FCS: octets, a scapy packet.
    hex, pcap : str
        Instead of ``packet``: a frame as hexadecimal digits; a frame of a capture,
        ``"file.pcap#3"``.
    size : int, str, list or dict
        Octets with FCS: ``64``, ``[64, 1518]``, ``"imix"``, ``"64-1518"``, ``{"weights": [[64, 7],
        [1518, 1]]}``.
    segment : int
        GSO frames, cut into frames with this many octets of TCP or UDP payload; rates and counters
        are those of the frames on the wire. Without a size, as many whole segments as fit.
    rate : str or number
        ``"1 Mpps"``, ``"2 Gbps"`` (L2), ``"2 Gbps l1"``, ``"30 %"`` of the port, ``"max"``; a
        number is frames per second. The only default is the highest rate of ``stages``.
    stages : list of dict
        Changes of the rate: ``[{"duration": "10 s", "to": "10 kpps"}, {"duration": "1 min"}]``
        rises to 10 kpps in 10 s and stays for a minute; without ``duration`` at once.
    departures : str or dict
        The law of the gaps: ``"constant"``, ``"exponential"``, ``{"pareto": 1.5}`` ...
    mode : str or dict
        ``"continuous"``, ``{"burst": 1000}``, or ``{"bursts": 5, "packets": 4, "gap": "1 s"}``.
    start_delay : str, seconds or timedelta
        Delay from the start of the run, from the end of the source that it comes ``after``, or from
        the end of the stream that has this one as ``next``.
    duration : str, seconds or timedelta
        Stop the stream this long after its start.
    after : str
        Start when this stream, replay, template or attack has ended, on any port.
    recompute : bool or list of str
        Which length and checksum fields follow what varies: all of them, none, or these fields
        (``["ipv4.checksum"]``). The others stay as they are in the packet.
    burst_end : {"gap", "frame"}
        A burst ends one gap after its last frame, or with its last frame.
    self_start : bool
        False: wait until a stream has this one as ``next``.
    next : str or dict
        The stream on the same port that starts when this one has ended, or ``{"stream": "web",
        "times": 3}``.
    latency : bool
        Sign the frames, so that the receiver measures loss, order and delay.
    trex_hw_id : int, 0 to 127
        With ``latency``: frames end with the header of TRex's latency streams instead of Squall's
        signature, with this hw_id, which no other stream has.
    trex_flow_seq : int, 0 to 255
        The flow_seq of that header. Default 1.
    trex_group : int, 0 to 1022
        Without ``latency``: frames have the mark of this packet group of TRex, which no other
        stream has, and the receiver counts them by it.
    late : str
        What to do with late frames: ``"smooth"``, ``"catch-up"``, ``"drop"``,
        ``"stretch"``.
    enabled : bool
        False: ignore the stream.
    vary : list of Vary
        Fields that change from frame to frame.

    Examples
    --------
    >>> import squall
    >>> web = squall.Stream(
    ...     name="web",
    ...     packet="eth/ipv4(dst=48.0.0.1)/tcp(dport=80,flags=S)",
    ...     size="imix",
    ...     rate="10 kpps",
    ...     vary=[squall.vary("ipv4.src", "increment", min="16.0.0.1", max="16.0.0.254")],
    ... )
    """

    name: str | None = None
    port: str | None = None
    group: str | None = None
    packet: Frame | None = None
    hex: str | None = None
    pcap: str | os.PathLike[str] | None = None
    size: int | str | Iterable[int] | Mapping[str, Any] | None = None
    segment: int | None = None
    rate: float | str | None = None
    stages: Iterable[Mapping[str, Any]] | None = None
    departures: str | Mapping[str, Any] | None = None
    mode: str | Mapping[str, Any] | None = None
    start_delay: Time | None = None
    duration: Time | None = None
    after: str | None = None
    recompute: bool | Iterable[str] | None = None
    burst_end: Literal["gap", "frame"] | None = None
    self_start: bool | None = None
    next: str | Mapping[str, Any] | None = None
    latency: bool | None = None
    trex_hw_id: int | None = None
    trex_flow_seq: int | None = None
    trex_group: int | None = None
    late: Literal["smooth", "catch-up", "drop", "stretch"] | None = None
    enabled: bool | None = None
    vary: Iterable[Vary] | None = None

    def _table(self) -> dict[str, Any]:
        table = _table(self)
        if self.packet is not None and not isinstance(self.packet, str):
            if "hex" in table:
                raise TypeError("a stream has packet or hex, not both")
            table["hex"] = table.pop("packet")
        return table


@dataclass(kw_only=True)
class Pool:
    """Addresses of clients or servers: ``[[pool]]`` of the schema. None: left out.

    Attributes
    ----------
    name : str
        Name that templates use.
    addresses : str or list of str
        ``"16.0.0.1-16.0.0.254"``, ``"16.0.0.0/24"``, ``"fd00::1-fd00::ff"``, or several of one
        family.
    ports : str
        Ports of clients. Default ``"1024-65535"``.
    order : str
        Order in which flows use addresses and ports: ``"sequential"``, ``"random"`` (shuffled) or
        ``"hash"``.
    """

    name: str | None = None
    addresses: Number | Iterable[Number] | None = None
    ports: str | None = None
    order: Literal["sequential", "random", "hash"] | None = None


@dataclass(kw_only=True)
class Template:
    """A kind of flows: ``[[template]]`` of the schema. None: left out.

    The contents of a flow are ``app`` (built in), or ``client`` and ``server`` (instructions), or
    ``capture``; the load is ``cps``, ``weight`` or ``users``, or ``called``.

    Attributes
    ----------
    name : str
        Unique; reports use it. Default ``"template 1"`` and so on.
    clients, servers : str or list of str
        A pool's name, or addresses.
    listen : int
        TCP or UDP port that servers listen on. Default: the application's usual one.
    transport : str
        ``"tcp"`` or ``"udp"``, for instructions.
    app, options : str, dict
        ``"http"``, ``"dns"`` ..., and its options.
    client, server : list of str
        Instructions, one each: ``'send "hello"'``, ``"recv 100"``, ``"delay 10 ms"`` ...
    messages : dict
        Data that instructions send by name, with marks such as ``${random:hex:8}``.
    capture, delays : str, str or float
        A conversation ``"file.pcap#3"``, and how to treat its delays: ``"keep"``, ``"drop"``, or a
        factor.
    play : str
        ``"clients"`` or ``"servers"``: Squall runs only these, for example with a proxy in between.
        Default ``"both"``.
    data : dict
        Records of a CSV file with a header, one for each flow: ``{"file": "users.csv", "order":
        "once"}``; instructions and options can use the columns as ``${data:name}``. Orders are
        ``"circular"``, ``"once"``, ``"random"``.
    cps : float
        Flows to start per second, however many are still open (open loop).
    weight : int
        Share of the total load that the profile's ``flows`` sets.
    users, think : int, time
        Number of users; each starts a flow when their last one has ended and this time has passed
        (closed loop).
    called : bool
        True: flows start only where instructions of other flows have ``begin NAME``.
    spacing : str
        ``"constant"`` or ``"poisson"``.
    stages : list of dict
        Changes of ``cps`` or ``users``:
        ``[{"duration": "10 s", "to": 500}, {"duration": "1 min"}]`` rises to 500 in 10 s and
        stays for a minute; without ``duration`` at once.
    limit : int
        Maximum number of flows of this template.
    start, duration : str, seconds or timedelta
        When the first flow can start; how long after that flows can still start.
    after : str
        Start when this stream, replay, template or attack has ended; ``start`` is counted from
        then.
    tcp : dict
        Options of TCP: ``{"mss": 1400, "time_wait": "1 s"}``; the schema has the names.
    client_tcp, server_tcp : dict
        The same of one side alone, in addition to ``tcp``.
    tls : bool or dict
        True: its flows are TLS 1.3 sessions. A dict has options: ``{"server_name": "a.test",
        "resumption": True}``; the schema has the names.
    enabled : bool
        False: ignore the template.

    Examples
    --------
    >>> import squall
    >>> ping = squall.Template(
    ...     name="ping", clients="16.0.0.1-16.0.0.9", servers="48.0.0.1", listen=7, cps=100, limit=50,
    ...     client=['send "ping"', "recv 4"], server=["recv 4", 'send "pong"'],
    ... )
    """

    name: str | None = None
    clients: Number | Iterable[Number] | None = None
    servers: Number | Iterable[Number] | None = None
    listen: int | None = None
    transport: Literal["tcp", "udp"] | None = None
    app: str | None = None
    options: Mapping[str, Any] | None = None
    client: Iterable[str] | None = None
    server: Iterable[str] | None = None
    messages: Mapping[str, str] | None = None
    capture: str | os.PathLike[str] | None = None
    delays: Literal["keep", "drop"] | float | None = None
    play: Literal["both", "clients", "servers"] | None = None
    data: Mapping[str, Any] | None = None
    cps: float | str | None = None
    weight: int | None = None
    users: int | None = None
    think: Time | None = None
    called: bool | None = None
    spacing: Literal["constant", "poisson"] | None = None
    stages: Iterable[Mapping[str, Any]] | None = None
    limit: int | None = None
    start: Time | None = None
    duration: Time | None = None
    after: str | None = None
    tcp: Mapping[str, Any] | None = None
    client_tcp: Mapping[str, Any] | None = None
    server_tcp: Mapping[str, Any] | None = None
    tls: bool | Mapping[str, Any] | None = None
    enabled: bool | None = None


@dataclass(kw_only=True)
class Attack:
    """Attacks that start one after the other: made from intrusion detection rules, or from a
    template.

    Parameters
    ----------
    name : str, optional
        Unique; reports use it.
    rules : path or iterable of paths
        Files of rules of Snort 2, Snort 3 or Suricata, or folders of files.
    config : path
        A suricata.yaml or snort.conf from which to take variables.
    variables : dict
        ``{"HOME_NET": "10.0.0.0/8"}``
    sid, classtype, msg
        Use only these rules: ``"1000-1999"``, one or more classes, a regular expression.
    engine : {"suricata7", "suricata8", "snort2", "snort3"}, optional
        Engine whose alerts the labels promise. Rules that it does not load are refused. Default:
        rules of all engines are converted, and match as in Suricata 8.
    template, options
        Instead of rules: ``"syn-scan"``, with ``{"ports": "1-1024"}``.
    port, port2 : str, optional
        Names of the profile's ports: clients run on `port`, servers on `port2` if it is given.
    live : bool, optional
        With `port2`: run conversations on Squall's own TCP/UDP stack (the default), or send all
        attacks as prepared frames.
    rate : number or str
        Attacks to start per second. Default 100.
    share : str
        With `background`: the attacks' share of all octets, ``"1 %"``.
    start, gap : str, seconds or timedelta
        When the first attack starts; the gap between the frames of an attack.
    duration : str, seconds or timedelta, optional
        No attack starts later than this after the start.
    after : str
        Start when this stream, replay, template or attack has ended; ``start`` is counted from
        then. Not for live attacks.
    repeat, samples : int
        How often to repeat all attacks; how many different attacks to send for each rule.
    shuffle, every_branch : bool
    near_miss : {"no", "also", "only"}
        Twins that differ in one octet and must not raise the alert.
    evasion, inside, outside, wrap
        ``"segments=8"``; hosts of the protected network and others; ``"vlan 7"``. One or several.
    family : int
        4 or 6.
    background : path
        A capture without attacks to mix in.
    client_network, server_network : dict
        As in ``[flows]``.
    enabled : bool
        False: ignore these attacks.
    """

    name: str | None = None
    rules: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None = None
    config: str | os.PathLike[str] | None = None
    variables: Mapping[str, str] | None = None
    sid: str | int | Iterable[str | int] | None = None
    classtype: str | Iterable[str] | None = None
    msg: str | None = None
    engine: Literal["suricata7", "suricata8", "snort2", "snort3"] | None = None
    template: str | None = None
    options: Mapping[str, Any] | None = None
    port: str | None = None
    port2: str | None = None
    live: bool | None = None
    rate: float | str | None = None
    share: str | None = None
    start: Time | None = None
    duration: Time | None = None
    after: str | None = None
    repeat: int | None = None
    shuffle: bool | None = None
    samples: int | None = None
    every_branch: bool | None = None
    near_miss: Literal["no", "also", "only"] | None = None
    evasion: str | Iterable[str] | None = None
    inside: str | Iterable[str] | None = None
    outside: str | Iterable[str] | None = None
    family: Literal[4, 6] | None = None
    wrap: str | Iterable[str] | None = None
    client_network: Mapping[str, Any] | None = None
    server_network: Mapping[str, Any] | None = None
    gap: Time | None = None
    background: str | os.PathLike[str] | None = None
    enabled: bool | None = None


@dataclass(kw_only=True)
class Replay:
    """Captures to send again, together with the other sources of the profile.

    Parameters
    ----------
    name : str, optional
        Unique; reports, `Run.pause` and `Run.resume` use it.
    files : path or iterable of paths
        pcap or pcapng, compressed or not; one after the other, or by their timestamps with
        `merge`.
    port, port2 : str, optional
        Names of the profile's ports: packets of clients leave on `port`, packets of servers on
        `port2` if it is given.
    multiplier, rate, mbps, ramp
        At most one; by default as captured. ``rate`` is ``"10 kpps"``, ``"1 Gbps"`` (with FCS) or
        ``"max"``; ``mbps`` counts frames without FCS; ``ramp`` is ``"1kpps..10kpps:30s"``.
    together : int
        With a rate: number of frames sent at once.
    longest_gap : str, seconds or timedelta
        Shorten captured gaps to at most this.
    late : str
        The policy for late frames: ``"smooth"`` (default), ``"catch-up"``, ``"drop"`` or
        ``"stretch"``.
    start, duration, loop_delay, flow_expiry : str, seconds or timedelta
        When the first frame is due; how long after that to stop; the time between two loops; the
        idle time after which a flow has ended.
    after : str
        Start when this stream, replay, template or attack has ended; ``start`` is counted from
        then.
    loops, limit : int
        How often to send (0: without end); frames in total.
    preload, held, reverse, flow_stats : bool
        Read everything into memory first; send frames step by step (over the daemon's API);
        exchange the ports; count flows.
    split : dict
        Rule that splits packets over two ports: ``{"auto": "first"}``, ``{"cidr": "10.0.0.0/8"}``.
    unique_ip : int
        Change the addresses in every N-th loop.
    max_flows : int
        Maximum number of flows counted separately.
    filter, include, exclude : str
        Packets to send: by a filter (tcpdump's language), and by number (``"1-5,9"``).
    too_long : {"skip", "truncate", "fragment"}
        How to treat frames longer than the port allows.
    edit : dict
        Edits of the frames: names and values as in `squall.edit`.
    enabled : bool
        False: ignore the replay.
    """

    name: str | None = None
    files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None = None
    merge: bool | None = None
    port: str | None = None
    port2: str | None = None
    multiplier: float | str | None = None
    rate: str | None = None
    mbps: float | str | None = None
    ramp: str | None = None
    together: int | None = None
    longest_gap: Time | None = None
    late: str | None = None
    start: Time | None = None
    duration: Time | None = None
    after: str | None = None
    loops: int | None = None
    loop_delay: Time | None = None
    limit: int | None = None
    preload: bool | None = None
    held: bool | None = None
    split: Mapping[str, str | bool] | None = None
    reverse: bool | None = None
    unique_ip: int | None = None
    flow_stats: bool | None = None
    flow_expiry: Time | None = None
    max_flows: int | None = None
    filter: str | None = None
    include: str | None = None
    exclude: str | None = None
    too_long: Literal["skip", "truncate", "fragment"] | None = None
    edit: Mapping[str, Any] | None = None
    enabled: bool | None = None


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
    return {key: _plain(value) for key, value in given.items() if value is not None}


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
        case Stream():
            return value._table()
        case Vary() | Template() | Pool() | Attack() | Replay():
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

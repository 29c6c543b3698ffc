"""TRex's flow profiles (ASTF) in Python: their classes, and the JSON that TRex's clients send.

This module needs neither Squall's native library nor TRex's: where TRex's library is not installed,
`squall run --trex` loads profiles with it. Only captures need scapy.
"""

from __future__ import annotations

import base64
import contextlib
import importlib
import importlib.util
import ipaddress
import json
import os
import pathlib
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from . import _stl
from ._stl import TRexArgumentError

#: Names that profiles import from ``trex.astf.api``.
API = [
    "ASTFAssociation",
    "ASTFAssociationRule",
    "ASTFCapInfo",
    "ASTFCmdDelay",
    "ASTFCmdDelayRnd",
    "ASTFError",
    "ASTFErrorBadIp",
    "ASTFErrorBadIpRange",
    "ASTFErrorBadParamCombination",
    "ASTFErrorBadTG",
    "ASTFErrorMissingParam",
    "ASTFErrorOverlapIP",
    "ASTFErrorWrongType",
    "ASTFGlobalInfo",
    "ASTFGlobalInfoPerTemplate",
    "ASTFIPGen",
    "ASTFIPGenDist",
    "ASTFIPGenGlobal",
    "ASTFProfile",
    "ASTFProgram",
    "ASTFTCPClientTemplate",
    "ASTFTCPServerTemplate",
    "ASTFTemplate",
]


class ASTFError(TRexArgumentError):
    """An error in an ASTF profile."""


class ASTFErrorBadIp(ASTFError):
    """A string is not an IPv4 address."""


class ASTFErrorBadIpRange(ASTFError):
    """A range of addresses is not valid."""


class ASTFErrorBadParamCombination(ASTFError):
    """Two parameters exclude each other."""


class ASTFErrorBadTG(ASTFError):
    """A template group does not exist, or its name is invalid."""


class ASTFErrorMissingParam(ASTFError):
    """A parameter is missing."""


class ASTFErrorOverlapIP(ASTFError):
    """Two pools have addresses in common."""


class ASTFErrorWrongType(ASTFError, TypeError):
    """A parameter has the wrong type."""


def _typed(where: str, allowed: tuple[type, ...], **given: Any) -> None:
    """Check that each parameter that is not None has one of these types."""
    for name, value in given.items():
        # bool is a subclass of int in Python, but True is not a number in a profile.
        is_one = isinstance(value, allowed) and (bool in allowed or not isinstance(value, bool))
        if value is not None and not is_one:
            expected = " or ".join(one.__name__ for one in allowed)
            raise ASTFErrorWrongType(f"{where}: {name} = {value!r}: expected {expected}")


def _needed(where: str, **given: Any) -> None:
    for name, value in given.items():
        if value is None:
            raise ASTFErrorMissingParam(f"{where}: {name} is missing")


def _one_of(where: str, **given: Any) -> None:
    """Check that at most one of these parameters is given."""
    names = [name for name, value in given.items() if value is not None]
    if len(names) > 1:
        raise ASTFErrorBadParamCombination(f"{where}: {' and '.join(names)}: expected one of them")


def _listed(where: str, name: str, value: Any, kind: type) -> list[Any]:
    """Return the items of an argument that may be one object or a list."""
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    if not values:
        raise ASTFErrorMissingParam(f"{where}: {name} is empty")
    for one in values:
        _needed(where, **{name: one})
        _typed(where, (kind,), **{name: one})
    return values


# Programs


@dataclass(frozen=True)
class _Buffer:
    """Octets, and the fill pattern that pads them to a size."""

    base: bytes
    size: int = 0
    fill: bytes | None = None

    def to_json(self) -> Any:
        base = base64.b64encode(self.base).decode()
        if self.size <= len(self.base):
            return base
        filled: dict[str, Any] = {"base": base, "size": self.size}
        if self.fill is not None:
            filled["fill"] = base64.b64encode(self.fill).decode()
        return filled


@dataclass(frozen=True)
class _Named:
    """A name in a command that is replaced by a number in the profile: a ``variable``, a ``tick``
    variable, a ``label`` or a template ``group``.
    """

    kind: str
    name: str


class ASTFCmd:
    """A program command. `stream` is True for TCP-only commands, False for UDP-only ones."""

    def __init__(self, name: str, stream: bool | None = None, **fields: Any) -> None:
        self.name, self.stream, self.fields = name, stream, fields


class ASTFCmdDelay(ASTFCmd):
    """Wait `usec` microseconds."""

    def __init__(self, usec: float) -> None:
        _needed("delay", usec=usec)
        _typed("delay", (int, float), usec=usec)
        super().__init__("delay", usec=usec)


class ASTFCmdDelayRnd(ASTFCmd):
    """Wait for a random time, in microseconds."""

    def __init__(self, min_usec: float, max_usec: float) -> None:
        _typed("delay_rand", (int, float), min_usec=min_usec, max_usec=max_usec)
        if min_usec > max_usec:
            raise ASTFError(f"delay_rand: max_usec = {max_usec} is below min_usec = {min_usec}")
        super().__init__("delay_rnd", min_usec=min_usec, max_usec=max_usec)


class ASTFProgram:
    """The messages that one side of a flow sends and expects.

    Parameters
    ----------
    file : str, optional
        A capture with one flow, from which the commands are derived.
    side : {"c", "s"}
        Which side of the capture.
    stream : bool
        TCP if true, otherwise UDP. Ignored with a capture, whose flow has a transport.
    s_delay : ASTFCmdDelay or ASTFCmdDelayRnd, optional
        Time that the server waits before it answers.
    udp_mtu : int, optional
        Maximum octets per packet; longer UDP payload is truncated.
    addon : str, optional
    """

    def __init__(
        self,
        file: str | None = None,
        side: str = "c",
        *,
        stream: bool = True,
        s_delay: ASTFCmd | None = None,
        udp_mtu: int | None = None,
        addon: str | None = None,
    ) -> None:
        if side not in ("c", "s"):
            raise ASTFError(f'ASTFProgram: side = {side!r}: expected "c" or "s"')
        _typed("ASTFProgram", (bool,), stream=stream)
        _typed("ASTFProgram", (ASTFCmdDelay, ASTFCmdDelayRnd), s_delay=s_delay)
        _typed("ASTFProgram", (int,), udp_mtu=udp_mtu)
        _typed("ASTFProgram", (str,), file=file, addon=addon)
        self.stream, self._addon = stream, addon
        self._commands: list[ASTFCmd] = []
        self._labels: dict[str, int] = {}
        # Keepalive for a capture with long silences, in TRex's units.
        self._keepalive: int | None = None
        # Total octets and messages expected so far; TRex's receive commands have the running total.
        self._received = {"rx": 0, "rx_msg": 0}
        if file is not None:
            self._play(_Capture(file, udp_mtu), side, s_delay)

    def is_stream(self) -> bool:
        return self.stream

    # Data

    def send(self, buf: bytes | str, size: int = 0, fill: bytes | str | None = None) -> None:
        """Send `buf`, padded with `fill` to `size` octets."""
        self._add("tx", True, buf_index=_buffer("send", buf, size, fill))

    def send_msg(self, buf: bytes | str, size: int = 0, fill: bytes | str | None = None) -> None:
        """Send a datagram."""
        self._add("tx_msg", False, buf_index=_buffer("send_msg", buf, size, fill))

    def send_chunk(self, l7_buf: bytes | str, chunk_size: int, delay_usec: float) -> None:
        """Send chunks of `chunk_size` octets, and wait after each."""
        _typed("send_chunk", (int,), chunk_size=chunk_size)
        if chunk_size < 1:
            raise ASTFError(f"send_chunk: chunk_size = {chunk_size}: expected 1 or more")
        for start in range(0, len(l7_buf), chunk_size):
            self.send(l7_buf[start : start + chunk_size])
            if delay_usec:
                self.delay(delay_usec)

    def recv(self, bytes: int, clear: bool = False) -> None:  # noqa: A002: TRex's name
        """Wait until this number of further octets is received. `clear` restarts the count at 0."""
        _needed("recv", bytes=bytes)
        _typed("recv", (int,), bytes=bytes)
        self._wait("rx", True, "min_bytes", bytes, clear)

    def recv_msg(self, pkts: int, clear: bool = False) -> None:
        """Wait until this number of further datagrams is received."""
        _needed("recv_msg", pkts=pkts)
        _typed("recv_msg", (int,), pkts=pkts)
        self._wait("rx_msg", False, "min_pkts", pkts, clear)

    def set_send_blocking(self, block: bool) -> None:
        """Choose whether `send` blocks until its last octet is acknowledged."""
        _needed("set_send_blocking", block=block)
        _typed("set_send_blocking", (bool,), block=block)
        self._add("tx_mode", flags=int(not block))

    def set_keepalive_msg(self, msec: int, rx_mode: bool = False) -> None:
        """Set the idle time after which a UDP flow ends, in milliseconds."""
        _typed("set_keepalive_msg", (int,), msec=msec)
        _typed("set_keepalive_msg", (bool,), rx_mode=rx_mode)
        self._add("keepalive", False, msec=msec, **({"rx_mode": True} if rx_mode else {}))

    # Connections

    def connect(self) -> None:
        """Wait until the connection is established."""
        self._add("connect", True)

    def accept(self) -> None:
        """Wait until the connection is established, on the server side."""
        self._add("connect", True)

    def reset(self) -> None:
        """Send a RST."""
        self._add("reset", True)

    def wait_for_peer_close(self) -> None:
        """Close the connection after the peer has closed."""
        self._add("nc", True)

    def close_msg(self) -> None:
        """Close a UDP flow."""
        self._add("close_msg", False)

    # Time

    def delay(self, usec: float) -> None:
        """Wait `usec` microseconds."""
        self._commands.append(ASTFCmdDelay(usec))

    def delay_rand(self, min_usec: float, max_usec: float) -> None:
        """Wait for a random time, in microseconds."""
        self._commands.append(ASTFCmdDelayRnd(min_usec, max_usec))

    # Variables, counters, jumps

    def set_var(self, var_id: str, val: int) -> None:
        self._add("set_var", id=_name("set_var", "variable", var_id), val=val)

    def add_var(self, var_id: str, val: int) -> None:
        self._add("add_var", id=_name("add_var", "variable", var_id), val=val)

    def set_tick_var(self, var_id: str) -> None:
        """Set a variable to the current time."""
        self._add("set_tick_var", id=_name("set_tick_var", "tick", var_id))

    def add_tick_var(self, var_id: str, duration: float) -> None:
        """Add `duration` seconds to a variable."""
        self._add("add_tick_var", id=_name("add_tick_var", "tick", var_id), duration=duration)

    def add_stats(self, stats_id: int | str, val: int) -> None:
        """Add to a counter: 0, 1, ... or "A", "B", ..."""
        self._add("add_stats", stats_id=_counter(stats_id), val=val)

    def add_tick_stats(self, stats_id: int | str, var_id: str) -> None:
        """Add the time since a variable was set to a counter."""
        tick = _name("add_tick_stats", "tick", var_id)
        self._add("add_tick_stats", stats_id=_counter(stats_id), var_id=tick)

    def set_label(self, label: str) -> None:
        """Label the next command as a jump target."""
        if label in self._labels:
            raise ASTFError(f"set_label: {label!r} is there twice")
        self._labels[label] = len(self._commands)

    def jmp_nz(self, var_id: str, label: str) -> None:
        """Decrement a variable, and jump if it is then not 0."""
        self._add("jmp_nz", id=_name("jmp_nz", "variable", var_id), offset=_label(label))

    def jmp_dp(self, var_id: str, label: str, duration: float) -> None:
        """Jump while less than `duration` seconds have passed since a variable was set."""
        tick = _name("jmp_dp", "tick", var_id)
        self._add("jmp_dp", id=tick, offset=_label(label), duration=float(duration))

    def jmp_cmp(self, var_id: str, label: str, cmp_op: str, cmp_val: int) -> None:
        """Jump if a variable compares to a value by `cmp_op`: ``lt``, ``gt``, ``eq``, ``ge``,
        ``le`` or ``ne``.
        """
        if cmp_op not in ("lt", "gt", "eq", "ge", "le", "ne"):
            raise ASTFError(f"jmp_cmp: cmp_op = {cmp_op!r}: expected lt, gt, eq, ge, le or ne")
        variable = _name("jmp_cmp", "variable", var_id)
        to = _label(label)
        self._add("jmp_cmp", id=variable, offset=to, cmp_op=cmp_op, cmp_val=cmp_val)

    def jmp(self, label: str) -> None:
        self._add("jmp_cmp", offset=_label(label))

    def jmp_lt(self, var_id: str, label: str, value: int) -> None:
        self.jmp_cmp(var_id, label, "lt", value)

    def jmp_gt(self, var_id: str, label: str, value: int) -> None:
        self.jmp_cmp(var_id, label, "gt", value)

    def jmp_eq(self, var_id: str, label: str, value: int) -> None:
        self.jmp_cmp(var_id, label, "eq", value)

    def jmp_ge(self, var_id: str, label: str, value: int) -> None:
        self.jmp_cmp(var_id, label, "ge", value)

    def jmp_le(self, var_id: str, label: str, value: int) -> None:
        self.jmp_cmp(var_id, label, "le", value)

    def jmp_ne(self, var_id: str, label: str, value: int) -> None:
        self.jmp_cmp(var_id, label, "ne", value)

    def set_next_template(self, tg_id: str) -> None:
        """Select the template group from which `exec_template` starts a flow."""
        self._add("set_template", tg_id=_name("set_next_template", "group", tg_id))

    def exec_template(self) -> None:
        """Start a flow of the template, and wait until it ends."""
        self._add("exec_template")

    def to_json(
        self,
        buffer: Callable[[_Buffer], int | None] = lambda _: None,
        groups: Mapping[str, int] | None = None,
    ) -> dict[str, Any]:
        """Return the command in the JSON of TRex's clients, with the buffer numbers that `buffer`
        assigns."""
        numbers = {"group": groups or {}, **self._variables()}
        commands: list[dict[str, Any]] = []
        for at, command in enumerate(self._commands):
            fields = {
                key: self._number(value, at, buffer, numbers)
                for key, value in command.fields.items()
            }
            commands.append({"name": command.name, **fields})
        program: dict[str, Any] = {"commands": commands}
        if not self.stream:
            program["stream"] = False
        if self._addon is not None:
            program["addon"] = self._addon
        self._check()
        return program

    def _number(
        self,
        value: Any,
        at: int,
        buffer: Callable[[_Buffer], int | None],
        numbers: Mapping[str, Mapping[str, int]],
    ) -> Any:
        match value:
            case _Buffer():
                return buffer(value)
            case _Named(kind="label", name=name):
                return self._found("label", name, self._labels) - at
            case _Named(kind=kind, name=name):
                return self._found(kind, name, numbers[kind])
        return value

    @staticmethod
    def _found(kind: str, name: str, there: Mapping[str, int]) -> int:
        if name not in there:
            error = ASTFErrorBadTG if kind == "group" else ASTFError
            known = ", ".join(map(repr, there)) or "none"
            raise error(f"no {kind} is called {name!r}: there is {known}")
        return there[name]

    def _variables(self) -> dict[str, dict[str, int]]:
        """Return the variables' numbers, in the order in which they are first set."""
        numbers: dict[str, dict[str, int]] = {"variable": {}, "tick": {}}
        for command in self._commands:
            if command.name in ("set_var", "set_tick_var"):
                of = numbers[command.fields["id"].kind]
                of.setdefault(command.fields["id"].name, len(of))
        return numbers

    def _check(self) -> None:
        for command in self._commands:
            if command.stream not in (None, self.stream):
                expected, found = ("TCP", "UDP") if self.stream else ("UDP", "TCP")
                raise ASTFError(
                    f"the program of {expected} has the command {command.name} of {found}\n"
                    f"  try stream={command.stream}, or another command"
                )

    def _add(self, name: str, stream: bool | None = None, **fields: Any) -> None:
        self._commands.append(ASTFCmd(name, stream, **fields))

    def _wait(self, name: str, stream: bool, field: str, count: int, clear: bool) -> None:
        self._received[name] += count
        fields: dict[str, Any] = {field: self._received[name]}
        if clear:
            self._received[name], fields["clear"] = 0, True
        self._add(name, stream, **fields)

    def _play(self, capture: _Capture, side: str, s_delay: ASTFCmd | None) -> None:
        """Add the commands of one side of a capture."""
        self.stream = capture.stream
        for message in capture.messages:
            if message.of_client == (side == "c"):
                self._add_send(message, s_delay if side == "s" else None)
            else:
                self._add_receive(message)
        if side == "s" and self.stream and self._commands[:1] and self._commands[0].name == "tx":
            self._commands.insert(0, ASTFCmd("connect", True))
        longest = max((m.gap for m in capture.messages if m.of_client == (side == "c")), default=0)
        self._keepalive = 2 * longest if longest > LONGEST_SILENCE else None
        self._keep(self._keepalive)

    def _add_send(self, message: _Message, s_delay: ASTFCmd | None) -> None:
        after = self._commands[-1].name if self._commands else None
        if after in ("rx", "rx_msg") and s_delay is not None:
            self._commands.append(s_delay)
        if message.gap > SHORTEST_GAP:
            self.delay(message.gap)
        (self.send if self.stream else self.send_msg)(message.octets)

    def _add_receive(self, message: _Message) -> None:
        """Wait for a message; consecutive messages become one command."""
        name, field = ("rx", "min_bytes") if self.stream else ("rx_msg", "min_pkts")
        if self._commands and self._commands[-1].name == name:
            self._commands.pop()
        self._wait(name, self.stream, field, len(message.octets) if self.stream else 1, False)

    def _keep(self, msec: int | None) -> None:
        if msec is not None:
            self._commands.insert(0, ASTFCmd("keepalive", False, msec=msec))


def _name(where: str, kind: str, name: str) -> _Named:
    _needed(where, name=name)
    _typed(where, (str,), name=name)
    return _Named(kind, name)


def _label(label: str) -> _Named:
    return _Named("label", label)


def _counter(stats_id: int | str) -> int:
    _typed("add_stats", (int, str), stats_id=stats_id)
    if isinstance(stats_id, int):
        return stats_id
    if len(stats_id) != 1 or not ("A" <= stats_id.upper() <= "Z"):
        raise ASTFError(f"add_stats: stats_id = {stats_id!r}: expected a number or a letter")
    return ord(stats_id.upper()) - ord("A")


def _buffer(where: str, buf: bytes | str, size: int, fill: bytes | str | None) -> _Buffer:
    _needed(where, buf=buf)
    _typed(where, (bytes, str), buf=buf, fill=fill)
    _typed(where, (int,), size=size)
    base, more = _octets(where, buf), None if fill is None else _octets(where, fill)
    return _Buffer(base, size, more) if size > len(base) else _Buffer(base)


def _octets(where: str, text: bytes | str) -> bytes:
    if isinstance(text, bytes):
        return text
    try:
        return text.encode("ascii")
    except UnicodeEncodeError:
        raise ASTFError(f"{where}: a text of ASCII is expected\n  try bytes") from None


# Captures

#: In microseconds: shorter gaps between datagrams are dropped, longer ones are shortened.
SHORTEST_GAP, LONGEST_GAP = 50, 700_000
#: In microseconds: TRex would end a flow after a longer silence.
LONGEST_SILENCE = 500_000
#: Octets of the Ethernet, IPv4 and UDP headers.
_HEADERS = 42


@dataclass
class _Message:
    """A message of one side. The microseconds since the previous message are set only if that was
    from the same side.
    """

    of_client: bool
    octets: bytes
    gap: int = 0


@dataclass(frozen=True)
class _Packet:
    """A TCP or UDP packet: both endpoints as (address, port), and the seconds since the start of
    the capture."""

    source: tuple[bytes, int]
    destination: tuple[bytes, int]
    payload: bytes
    at: float
    #: TCP only: flags, sequence number.
    flags: int | None = None
    seq: int = 0


class _Capture:
    """The single flow of a capture: its messages, and the server's port."""

    def __init__(self, file: str, udp_mtu: int | None = None) -> None:
        self.path = _found(file)
        packets = [self._dissected(*one) for one in enumerate(self._packets())]
        if not packets:
            raise ASTFError(f"the capture {self.path} is empty")
        self.stream = packets[0].flags is not None
        self.client, self.port = packets[0].source, packets[0].destination[1]
        self._check(packets)
        if self.stream:
            self.messages = self._segments(packets)
        else:
            self.messages = self._datagrams(packets, udp_mtu)

    @property
    def octets(self) -> int:
        return sum(len(message.octets) for message in self.messages)

    def _packets(self) -> Iterator[tuple[bytes, float]]:
        try:
            # Registers scapy's Ethernet layer: without it, scapy warns about each capture.
            importlib.import_module("scapy.layers.l2")
            from scapy.utils import PcapReader

            with PcapReader(str(self.path)) as reader:
                for packet in reader:
                    # The timestamp is a decimal; converted to float it would lose microseconds.
                    whole, part = divmod(packet.time, 1)
                    yield bytes(packet.original), int(whole) + float(part)
        except ImportError:
            raise ASTFError("captures need scapy\n  try pip install scapy") from None
        except Exception as error:
            raise ASTFError(f"cannot read the capture {self.path}: {error}") from error

    def _error(self, number: int, what: str) -> ASTFError:
        return ASTFError(f"the capture {self.path}, packet {number + 1}: {what}")

    def _dissected(self, number: int, packet: tuple[bytes, float]) -> _Packet:
        octets, at = packet
        kind, rest = int.from_bytes(octets[12:14], "big"), octets[14:]
        while kind in (0x8100, 0x88A8, 0x9100):
            kind, rest = int.from_bytes(rest[2:4], "big"), rest[4:]
        if kind == 0x0800 and len(rest) >= 20:
            header, protocol, ends = (rest[0] & 15) * 4, rest[9], (rest[12:16], rest[16:20])
            end = int.from_bytes(rest[2:4], "big")
        elif kind == 0x86DD and len(rest) >= 40:
            header, protocol, ends = 40, rest[6], (rest[8:24], rest[24:40])
            end = 40 + int.from_bytes(rest[4:6], "big")
        else:
            raise self._error(number, "expected IPv4 or IPv6")
        return self._of_transport(number, protocol, rest[header:end], ends, at)

    def _of_transport(
        self, number: int, protocol: int, data: bytes, ends: tuple[bytes, bytes], at: float
    ) -> _Packet:
        if protocol not in (6, 17) or len(data) < (20 if protocol == 6 else 8):
            raise self._error(number, "expected TCP or UDP")
        source = (ends[0], int.from_bytes(data[0:2], "big"))
        destination = (ends[1], int.from_bytes(data[2:4], "big"))
        if protocol == 17:
            return _Packet(source, destination, data[8:], at)
        seq, header = int.from_bytes(data[4:8], "big"), (data[12] >> 4) * 4
        return _Packet(source, destination, data[header:], at, data[13], seq)

    def _check(self, packets: list[_Packet]) -> None:
        ends = {packets[0].source, packets[0].destination}
        for number, packet in enumerate(packets):
            if {packet.source, packet.destination} != ends:
                raise self._error(number, "it is of another flow\n  try a capture with one flow")
            if (packet.flags is None) == self.stream:
                raise self._error(number, "it is of another protocol")

    def _datagrams(self, packets: list[_Packet], udp_mtu: int | None) -> list[_Message]:
        if udp_mtu is not None and udp_mtu <= _HEADERS:
            raise ASTFError(f"udp_mtu = {udp_mtu}: expected more than {_HEADERS}, the headers")
        most = None if udp_mtu is None else udp_mtu - _HEADERS
        messages: list[_Message] = []
        before = 0.0
        for packet in packets:
            of_client, gap = packet.source == self.client, 0
            if messages and messages[-1].of_client == of_client:
                gap = min(int((packet.at - before) * 1e6), LONGEST_GAP)
            messages.append(_Message(of_client, packet.payload[:most], gap))
            before = packet.at
        return messages

    def _segments(self, packets: list[_Packet]) -> list[_Message]:
        """Return the octets of each side, until the other side answers."""
        handshake = [(packet.flags or 0) & 0x12 for packet in packets[:2]]
        if handshake != [0x02, 0x12]:
            raise ASTFError(f"the capture {self.path}: expected a SYN and its answer first")
        expected = [(packet.seq + 1) & 0xFFFFFFFF for packet in packets[:2]]
        messages: list[_Message] = []
        for number, packet in enumerate(packets[2:], 2):
            of_client = packet.source == self.client
            flags, side = packet.flags or 0, 0 if of_client else 1
            if flags & 0x02:
                raise self._error(number, "a second SYN\n  try a capture with one flow")
            # Acknowledgments and keepalive probes repeat sequence numbers, so they prove no gap.
            # The sequence number of a FIN shows whether data before it is missing.
            if (packet.payload or flags & 0x01) and packet.seq != expected[side]:
                what = f"sequence number {packet.seq}, expected {expected[side]}"
                raise self._error(number, f"{what}\n  try a capture without loss")
            expected[side] = (expected[side] + len(packet.payload)) & 0xFFFFFFFF
            if not packet.payload:
                continue
            if messages and messages[-1].of_client == of_client:
                messages[-1].octets += packet.payload
            else:
                messages.append(_Message(of_client, packet.payload))
        return messages


#: Directory of the profile that is being loaded: file names are relative to it.
_folder: pathlib.Path | None = None


def _found(file: str) -> pathlib.Path:
    path = (_folder or pathlib.Path()) / file
    if not path.is_file():
        raise ASTFError(f"cannot find the capture {path}")
    return path


# Addresses


def _address(where: str, text: Any) -> int:
    try:
        return int(ipaddress.IPv4Address(text))
    except ValueError:
        raise ASTFErrorBadIp(f"{where} = {text!r}: expected an IPv4 address") from None


class ASTFIPGenDist:
    """An address range and its order: ``seq`` or ``rand``."""

    def __init__(
        self,
        ip_range: list[str],
        distribution: str = "seq",
        per_core_distribution: str | None = None,
    ) -> None:
        if not isinstance(ip_range, (list, tuple)) or len(ip_range) != 2:
            raise ASTFErrorBadIpRange(f"ip_range = {ip_range!r}: expected two addresses")
        self.first, self.last = (_address("ip_range", text) for text in ip_range)
        if self.first > self.last:
            raise ASTFErrorBadIpRange(f"ip_range = {ip_range!r}: the last is below the first")
        if distribution not in ("seq", "rand"):
            raise ASTFError(f"distribution = {distribution!r}: expected seq or rand")
        if per_core_distribution not in (None, "seq", "default"):
            raise ASTFError(
                f"per_core_distribution = {per_core_distribution!r}: expected seq or default"
            )
        self._fields: dict[str, Any] = {"ip_start": ip_range[0], "ip_end": ip_range[1]}
        self._fields["distribution"] = distribution
        if per_core_distribution is not None:
            self._fields["per_core_distribution"] = per_core_distribution

    def _place(self, side: str, offset: str) -> None:
        """Assign the range to clients (``c``) or servers (``s``)."""
        self._fields |= {"dir": side, "ip_offset": offset}

    def _overlaps(self, other: ASTFIPGenDist) -> bool:
        both_servers = self._fields["dir"] == other._fields["dir"] == "s"
        return not both_servers and self.first <= other.last and other.first <= self.last

    def to_json(self) -> dict[str, Any]:
        return dict(self._fields)


class ASTFIPGenGlobal:
    """Address increments for each additional pair of ports."""

    def __init__(self, ip_offset: str = "1.0.0.0", ip_offset_server: str | None = None) -> None:
        _address("ip_offset", ip_offset)
        if ip_offset_server is not None:
            _address("ip_offset_server", ip_offset_server)
        self.ip_offset = ip_offset
        self.ip_offset_server = ip_offset if ip_offset_server is None else ip_offset_server


class ASTFIPGen:
    """Client and server addresses."""

    def __init__(
        self,
        dist_client: ASTFIPGenDist,
        dist_server: ASTFIPGenDist,
        glob: ASTFIPGenGlobal | None = None,
    ) -> None:
        _typed("ASTFIPGen", (ASTFIPGenDist,), dist_client=dist_client, dist_server=dist_server)
        _typed("ASTFIPGen", (ASTFIPGenGlobal,), glob=glob)
        glob = glob or ASTFIPGenGlobal()
        self.dist_client, self.dist_server = dist_client, dist_server
        dist_client._place("c", glob.ip_offset)
        dist_server._place("s", glob.ip_offset_server)


# Settings

_INTEGERS = {
    "ip": ["tos", "ttl", "dont_use_inbound_mac"],
    "ipv6": ["enable"],
    "tcp": ["initwnd", "mss", "no_delay", "no_delay_counter", "rxbufsize", "txbufsize"],
}
_OF_ALL = {
    "scheduler": ["rampup_sec"],
    "tcp": ["rexmtthresh", "do_rfc1323", "keepinit", "keepidle", "keepintvl", "blackhole"],
}
_OF_ALL["tcp"] += ["delay_ack_msec", "do_sack", "do_ecn", "cc_algo", "reass_maxqlen"]
_PREFIXES = {"ipv6": ["src_msb", "dst_msb"]}


class _Section:
    """Settings of ``tcp``, ``ip``, ...; each is validated when it is set."""

    def __init__(self, name: str, names: list[str]) -> None:
        vars(self).update(_name=name, _names=names, _values={})

    def __setattr__(self, name: str, value: Any) -> None:
        self._known(name)
        if name in _PREFIXES.get(self._name, []):
            try:
                value = list(ipaddress.IPv6Address(value).packed)
            except ValueError:
                raise ASTFErrorBadIp(f"{name} = {value!r}: expected an IPv6 address") from None
        else:
            _needed(self._name, **{name: value})
            _typed(self._name, (int, bool), **{name: value})
            value = int(value)
        self._values[name] = value

    def __getattr__(self, name: str) -> Any:
        self._known(name)
        if name not in self._values:
            raise ASTFErrorMissingParam(f"{self._name}.{name} is not set")
        return self._values[name]

    def _known(self, name: str) -> None:
        if name not in self._names:
            raise AttributeError(f"{self._name}.{name}: expected one of {', '.join(self._names)}")


class ASTFGlobalInfoPerTemplate:
    """Settings of one side of a template: ``info.tcp.mss = 1400``."""

    _more: Mapping[str, list[str]] = {}

    def __init__(self) -> None:
        sections = {}
        for name in {**_INTEGERS, **self._more}:
            names = _INTEGERS.get(name, []) + self._more.get(name, []) + _PREFIXES.get(name, [])
            sections[name] = _Section(name, names)
        vars(self)["_sections"] = sections

    def __getattr__(self, name: str) -> _Section:
        sections: dict[str, _Section] = vars(self)["_sections"]
        if name not in sections:
            raise AttributeError(f"{name}: expected one of {', '.join(sections)}")
        return sections[name]

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{name}: expected a section and a setting, such as tcp.mss")

    def to_json(self) -> dict[str, Any]:
        sections = vars(self)["_sections"].items()
        return {name: dict(section._values) for name, section in sections if section._values}


class ASTFGlobalInfo(ASTFGlobalInfoPerTemplate):
    """Settings of one side of all templates."""

    _more = _OF_ALL


# Templates


class ASTFAssociationRule:
    """Selects the flows that a server template accepts: by port, addresses, first payload
    octets."""

    def __init__(
        self,
        port: int = 80,
        ip_start: str | None = None,
        ip_end: str | None = None,
        l7_map: list[int] | dict[str, Any] | None = None,
        assoc_id: int | None = None,
    ) -> None:
        _typed("ASTFAssociationRule", (list, dict), l7_map=l7_map)
        for name, value in (("ip_start", ip_start), ("ip_end", ip_end)):
            if value is not None:
                _address(name, value)
        self.port = port
        more: dict[str, Any] = {"ip_start": ip_start, "ip_end": ip_end, "assoc_id": assoc_id}
        more["l7_map"] = {"offset": l7_map} if isinstance(l7_map, list) else l7_map
        self._more = {name: value for name, value in more.items() if value is not None}

    @property
    def of_port(self) -> bool:
        """Whether the rule matches by port alone."""
        return not self._more

    def to_json(self) -> dict[str, Any]:
        return {"port": self.port, **self._more}


class ASTFAssociation:
    """Rules, at least one of which must match."""

    def __init__(self, rules: Any = None) -> None:
        rules = ASTFAssociationRule() if rules is None else rules
        self.rules = _listed("ASTFAssociation", "rules", rules, ASTFAssociationRule)

    @property
    def port(self) -> int:
        return int(self.rules[0].port)

    def to_json(self) -> list[dict[str, Any]]:
        return [rule.to_json() for rule in self.rules]


def _association(where: str, assoc: Any) -> ASTFAssociation:
    _typed(where, (ASTFAssociation, ASTFAssociationRule), assoc=assoc)
    return assoc if isinstance(assoc, ASTFAssociation) else ASTFAssociation(assoc)


class ASTFTCPClientTemplate:
    """The clients of a template, over TCP or UDP.

    Parameters
    ----------
    ip_gen : ASTFIPGen
    program : ASTFProgram
    port : int
        Destination port.
    cps : float
        New flows per second.
    glob_info : ASTFGlobalInfoPerTemplate, optional
    limit : int, optional
        Number of flows.
    cont : bool, optional
        Start a new flow whenever one ends, up to the limit.
    core_base : int, optional
        Has no effect.
    """

    def __init__(
        self,
        ip_gen: ASTFIPGen,
        program: ASTFProgram | None = None,
        port: int = 80,
        cps: float = 1,
        glob_info: ASTFGlobalInfoPerTemplate | None = None,
        limit: int | None = None,
        cont: bool | None = None,
        core_base: int | None = None,
    ) -> None:
        where = "ASTFTCPClientTemplate"
        _needed(where, program=program)
        _typed(where, (ASTFIPGen,), ip_gen=ip_gen)
        _typed(where, (ASTFProgram,), program=program)
        _typed(where, (int,), limit=limit, core_base=core_base)
        _typed(where, (bool,), cont=cont)
        _settings(where, ASTFGlobalInfoPerTemplate, glob_info=glob_info)
        self.ip_gen, self.program, self._info = ip_gen, program, glob_info
        fields = {"cps": cps, "limit": limit, "cont": cont if limit else None}
        self._fields = {"port": port, **{name: value for name, value in fields.items() if value}}

    def to_json(self, program: int, client: int, server: int) -> dict[str, Any]:
        pools = {"dist_client": {"index": client}, "dist_server": {"index": server}}
        fields = {"program_index": program, "ip_gen": pools, "cluster": {}, **self._fields}
        return fields | ({} if self._info is None else {"glob_info": self._info.to_json()})


class ASTFTCPServerTemplate:
    """The servers of a template, over TCP or UDP."""

    def __init__(
        self,
        program: ASTFProgram | None = None,
        assoc: ASTFAssociation | ASTFAssociationRule | None = None,
        glob_info: ASTFGlobalInfoPerTemplate | None = None,
    ) -> None:
        where = "ASTFTCPServerTemplate"
        _needed(where, program=program)
        _typed(where, (ASTFProgram,), program=program)
        _settings(where, ASTFGlobalInfoPerTemplate, glob_info=glob_info)
        self.program, self.assoc, self._info = program, _association(where, assoc), glob_info

    def to_json(self, program: int) -> dict[str, Any]:
        fields = {"program_index": program, "assoc": self.assoc.to_json()}
        return fields | ({} if self._info is None else {"glob_info": self._info.to_json()})


def _settings(where: str, kind: type, **given: Any) -> None:
    """Check that settings are for one template or for all: the two types cannot be mixed."""
    for name, value in given.items():
        if value is not None and type(value) is not kind:
            found = type(value).__name__
            raise ASTFErrorWrongType(f"{where}: {name} is {found}: expected {kind.__name__}")


#: Maximum length of a group name, in characters.
_LONGEST_NAME = 20


class ASTFTemplate:
    """Clients and their servers; templates with the same `tg_name` are counted together."""

    def __init__(
        self,
        client_template: ASTFTCPClientTemplate | None = None,
        server_template: ASTFTCPServerTemplate | None = None,
        tg_name: str | None = None,
    ) -> None:
        where = "ASTFTemplate"
        _needed(where, client_template=client_template, server_template=server_template)
        _typed(where, (ASTFTCPClientTemplate,), client_template=client_template)
        _typed(where, (ASTFTCPServerTemplate,), server_template=server_template)
        _typed(where, (str,), tg_name=tg_name)
        if tg_name is not None and not 0 < len(tg_name) <= _LONGEST_NAME:
            raise ASTFErrorBadTG(f"tg_name = {tg_name!r}: expected 1 to {_LONGEST_NAME} characters")
        assert client_template and server_template
        assert client_template.program and server_template.program
        if client_template.program.stream != server_template.program.stream:
            raise ASTFError("ASTFTemplate: one side has a program of TCP, the other of UDP")
        self.client, self.server, self.tg_name = client_template, server_template, tg_name


class ASTFCapInfo:
    """A template made from the flow in a capture.

    Parameters
    ----------
    file : str
        Relative to the profile.
    cps : float, optional
        New flows per second. Default: 1.
    assoc : ASTFAssociation or ASTFAssociationRule, optional
    ip_gen : ASTFIPGen, optional
        Default: that of the profile.
    port : int, optional
        Destination port. Default: that of the capture.
    l7_percent : float, optional
        An alternative to `cps`: for all captures, or for none.
    s_glob_info, c_glob_info : ASTFGlobalInfoPerTemplate, optional
    limit, cont, tg_name
        As in templates.
    s_delay, udp_mtu
        As in programs.
    """

    def __init__(
        self,
        file: str | None = None,
        cps: float | None = None,
        assoc: ASTFAssociation | ASTFAssociationRule | None = None,
        ip_gen: ASTFIPGen | None = None,
        port: int | None = None,
        l7_percent: float | None = None,
        s_glob_info: ASTFGlobalInfoPerTemplate | None = None,
        c_glob_info: ASTFGlobalInfoPerTemplate | None = None,
        limit: int | None = None,
        cont: bool | None = None,
        tg_name: str | None = None,
        s_delay: ASTFCmd | None = None,
        udp_mtu: int | None = None,
    ) -> None:
        where = "ASTFCapInfo"
        _needed(where, file=file)
        _one_of(where, cps=cps, l7_percent=l7_percent)
        _one_of(where, port=port, assoc=assoc)
        _typed(where, (str,), file=file)
        _typed(where, (int, float), cps=cps, l7_percent=l7_percent)
        _typed(where, (int,), port=port, udp_mtu=udp_mtu)
        _typed(where, (ASTFIPGen,), ip_gen=ip_gen)
        _typed(where, (ASTFCmdDelay, ASTFCmdDelayRnd), s_delay=s_delay)
        self.file, self.l7_percent, self.ip_gen = file, l7_percent, ip_gen
        self.s_delay, self.udp_mtu, self.tg_name = s_delay, udp_mtu, tg_name
        self._cps = 1 if cps is None else cps
        self._assoc = None if assoc is None else _association(where, assoc)
        self._port, self._infos = port, (c_glob_info, s_glob_info)
        self._fields: dict[str, Any] = {"limit": limit, "cont": cont}

    def _read(self, udp_mtu: int | None) -> None:
        self._capture = _Capture(str(self.file), self.udp_mtu or udp_mtu)

    def _template(self, ip_gen: ASTFIPGen, s_delay: ASTFCmd | None, octets: int) -> ASTFTemplate:
        """Return the template. `octets` is the total of all captures of the profile."""
        client, server = ASTFProgram(), ASTFProgram()
        client._play(self._capture, "c", None)
        server._play(self._capture, "s", self.s_delay or s_delay)
        _keep_both(client, server)
        # As in TRex, only the sizes of the flows matter: the value of the percentage has no effect.
        share = self.l7_percent is not None
        cps = 100 * self._capture.octets / octets if share else self._cps
        rule = ASTFAssociationRule(port=self._port or self._capture.port)
        assoc = self._assoc or ASTFAssociation(rule)
        info = self._infos
        return ASTFTemplate(
            ASTFTCPClientTemplate(
                self.ip_gen or ip_gen, client, assoc.port, cps, info[0], **self._fields
            ),
            ASTFTCPServerTemplate(server, assoc, info[1]),
            self.tg_name,
        )


def _keep_both(client: ASTFProgram, server: ASTFProgram) -> None:
    """Set the keepalive of both sides to that of the side with the longer silence."""
    longest = client._keepalive or server._keepalive
    client._keep(longest)
    server._keep(client._keepalive)


# Profiles


class ASTFProfile:
    """Flows from templates, from captures, or from both.

    Parameters
    ----------
    default_ip_gen : ASTFIPGen
        Addresses for captures that have none.
    default_c_glob_info, default_s_glob_info : ASTFGlobalInfo, optional
        Settings of clients and of servers.
    templates : ASTFTemplate or list of them, optional
    cap_list : ASTFCapInfo or list of them, optional
    s_delay, udp_mtu
        Defaults for captures that have none.
    """

    def __init__(
        self,
        default_ip_gen: ASTFIPGen,
        default_c_glob_info: ASTFGlobalInfo | None = None,
        default_s_glob_info: ASTFGlobalInfo | None = None,
        templates: Any = None,
        cap_list: Any = None,
        s_delay: ASTFCmd | None = None,
        udp_mtu: int | None = None,
    ) -> None:
        where = "ASTFProfile"
        _needed(where, default_ip_gen=default_ip_gen)
        _typed(where, (ASTFIPGen,), default_ip_gen=default_ip_gen)
        _typed(where, (ASTFCmdDelay, ASTFCmdDelayRnd), s_delay=s_delay)
        _typed(where, (int,), udp_mtu=udp_mtu)
        infos = {"default_c_glob_info": default_c_glob_info}
        _settings(where, ASTFGlobalInfo, **infos, default_s_glob_info=default_s_glob_info)
        if templates is None and cap_list is None:
            raise ASTFErrorMissingParam(f"{where}: templates or cap_list is missing")
        self._infos = {"c_glob_info": default_c_glob_info, "s_glob_info": default_s_glob_info}
        self._templates: list[ASTFTemplate] = []
        if templates is not None:
            self._templates = _listed(where, "templates", templates, ASTFTemplate)
            _distinct(self._templates)
        if cap_list is not None:
            caps = _listed(where, "cap_list", cap_list, ASTFCapInfo)
            made = _of_captures(caps, default_ip_gen, s_delay, udp_mtu)
            _distinct(made)
            self._templates = self._templates + made

    def to_json(self) -> dict[str, Any]:
        """Return the profile in the JSON of TRex's clients."""
        return _Compiled(self._templates).to_json(self._infos)

    def to_json_str(self, pretty: bool = True, sort_keys: bool = False) -> str:
        return json.dumps(self.to_json(), indent=4 if pretty else None, sort_keys=sort_keys)

    @staticmethod
    def load_py(python_file: str | os.PathLike[str], **tunables: Any) -> ASTFProfile:
        """Load the flows of a TRex Python profile from its ``register().get_profile``.

        While the profile is loaded, ``trex.astf.api`` refers to this module.

        Raises
        ------
        TRexError
            The file cannot be read, or is not such a profile.
        """
        path = pathlib.Path(python_file)

        def profile(module: Any, tunables: Mapping[str, Any]) -> ASTFProfile:
            made: ASTFProfile = module.register().get_profile(**tunables)
            return made

        with _as_trex(path):
            return _stl._called(path, tunables, profile)

    @staticmethod
    def load(filename: str | os.PathLike[str], **tunables: Any) -> ASTFProfile:
        return ASTFProfile.load_py(filename, **tunables)


def _of_captures(
    caps: list[ASTFCapInfo],
    ip_gen: ASTFIPGen,
    s_delay: ASTFCmd | None,
    udp_mtu: int | None,
) -> list[ASTFTemplate]:
    if len({cap.l7_percent is None for cap in caps}) > 1:
        raise ASTFError("ASTFProfile: l7_percent: expected of all captures, or of none")
    for cap in caps:
        cap._read(udp_mtu)
    octets = sum(cap._capture.octets for cap in caps)
    return [cap._template(ip_gen, s_delay, octets) for cap in caps]


def _distinct(templates: Iterable[ASTFTemplate]) -> None:
    """Check that templates whose first rule selects by port alone have different ports."""
    taken: set[int] = set()
    for template in templates:
        first = template.server.assoc.rules[0]
        if first.of_port and first.port in taken:
            raise ASTFError(f"two templates have port {first.port}\n  try port=, or assoc=")
        if first.of_port:
            taken.add(first.port)


class _Compiled:
    """Templates with their shared parts (buffers, programs, pools and groups) listed once."""

    def __init__(self, templates: list[ASTFTemplate]) -> None:
        self._buffers: dict[_Buffer, int] = {}
        self._programs: list[dict[str, Any]] = []
        self._pools: list[ASTFIPGenDist] = []
        names = [template.tg_name for template in templates if template.tg_name is not None]
        self._groups = {name: number for number, name in enumerate(dict.fromkeys(names), 1)}
        self._templates = [self._template(template) for template in templates]

    def to_json(self, infos: Mapping[str, ASTFGlobalInfo | None]) -> dict[str, Any]:
        return {
            "buf_list": [buffer.to_json() for buffer in self._buffers],
            "ip_gen_dist_list": [pool.to_json() for pool in self._pools],
            "program_list": self._programs,
            **{name: info.to_json() for name, info in infos.items() if info is not None},
            "templates": self._templates,
            "tg_names": list(self._groups),
        }

    def _template(self, template: ASTFTemplate) -> dict[str, Any]:
        client, server = (
            self._program(side.program) for side in (template.client, template.server)
        )
        pools = template.client.ip_gen
        of_clients, of_servers = self._pool(pools.dist_client), self._pool(pools.dist_server)
        made: dict[str, Any] = {
            "client_template": template.client.to_json(client, of_clients, of_servers),
            "server_template": template.server.to_json(server),
        }
        if template.tg_name is not None:
            made["tg_id"] = self._groups[template.tg_name]
        return made

    def _program(self, program: ASTFProgram | None) -> int:
        assert program is not None
        made = program.to_json(self._buffer, self._groups)
        if made not in self._programs:
            self._programs.append(made)
        return self._programs.index(made)

    def _buffer(self, buffer: _Buffer) -> int:
        return self._buffers.setdefault(buffer, len(self._buffers))

    def _pool(self, pool: ASTFIPGenDist) -> int:
        for number, other in enumerate(self._pools):
            if other.to_json() == pool.to_json():
                return number
            if pool._overlaps(other):
                ranges = [
                    f"{one['ip_start']} to {one['ip_end']}" for one in (pool._fields, other._fields)
                ]
                raise ASTFErrorOverlapIP(f"pools share addresses: {' and '.join(ranges)}")
        self._pools.append(pool)
        return len(self._pools) - 1


@contextlib.contextmanager
def _as_trex(path: pathlib.Path) -> Iterator[None]:
    """Make ``trex.astf.api`` refer to this module, for a profile at this path."""
    global _folder
    api = types.ModuleType("trex.astf.api")
    vars(api).update({name: importlib.import_module(name) for name in _stl._MODULES})
    vars(api).update({name: globals()[name] for name in API})
    modules = {"trex.astf": types.ModuleType("trex.astf"), "trex.astf.api": api}
    before, _folder = _folder, path.absolute().parent
    try:
        with _stl._as_trex(modules):
            yield
    finally:
        _folder = before

"""TRex's streams (STL) in Python: their classes, and the JSON that TRex's clients send.

This module does not translate, and needs neither Squall's native library nor TRex's: where TRex's
library is not installed, `squall run --trex` loads profiles with it. Packets are scapy packets or
octets.
"""

from __future__ import annotations

import base64
import contextlib
import importlib
import importlib.util
import ipaddress
import os
import pathlib
import random
import re
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

try:
    from ._errors import Error
except ImportError:
    # Without Squall's native library, errors of this module derive directly from `Exception`.
    Error = Exception  # type: ignore[assignment, misc]

_T = TypeVar("_T")

#: Names that profiles import from ``trex.stl.api``.
API = [
    "CTRexVmInsFixHwCs",
    "STLArgumentError",
    "STLError",
    "STLFlowLatencyStats",
    "STLFlowStats",
    "STLPktBuilder",
    "STLProfile",
    "STLScVmRaw",
    "STLStream",
    "STLStreamDstMAC_ARP",
    "STLStreamDstMAC_CFG_FILE",
    "STLStreamDstMAC_PKT",
    "STLTXCont",
    "STLTXMultiBurst",
    "STLTXSingleBurst",
    "STLTaggedPktGroup",
    "STLTimeoutError",
    "STLVM",
    "STLVmFixChecksumHw",
    "STLVmFixIcmpv6",
    "STLVmFixIpv4",
    "STLVmFlowVar",
    "STLVmFlowVarRepeatableRandom",
    "STLVmFlowVarRepetableRandom",
    "STLVmTrimPktSize",
    "STLVmTupleGen",
    "STLVmWrFlowVar",
    "STLVmWrMaskFlowVar",
    "TRexArgumentError",
    "TRexError",
    "TRexTimeoutError",
]

#: How the destination MAC address is set: from the port's configuration, the packet, or by ARP.
STLStreamDstMAC_CFG_FILE, STLStreamDstMAC_PKT, STLStreamDstMAC_ARP = 0, 1, 2


class TRexError(Error):
    """An error; ``msg`` has its text, as in TRex."""

    @property
    def msg(self) -> str:
        return str(self)

    def brief(self) -> str:
        """Return the first line."""
        return str(self).partition("\n")[0]


class TRexArgumentError(TRexError, ValueError):
    """An argument is wrong."""


class TRexTimeoutError(TRexError, TimeoutError):
    """Traffic did not end within the timeout."""


STLError = TRexError
STLArgumentError = TRexArgumentError
STLTimeoutError = TRexTimeoutError


class STLTXMode:
    """The rate: in frames per second, bits per second (with or without gap and preamble), or
    percent of the port's speed.
    """

    def __init__(
        self,
        pps: float | None = None,
        bps_L1: float | None = None,  # noqa: N803: TRex's name
        bps_L2: float | None = None,  # noqa: N803
        percentage: float | None = None,
    ) -> None:
        given = {"pps": pps, "bps_L1": bps_L1, "bps_L2": bps_L2, "percentage": percentage}
        rates = [(unit, value) for unit, value in given.items() if value is not None]
        if len(rates) > 1:
            raise TRexArgumentError(
                f"expected one of pps, bps_L1, bps_L2, percentage: found {', '.join(u for u, _ in rates)}"
            )
        self.unit, self.value = rates[0] if rates else ("pps", 1.0)
        if not self.value > 0:
            raise TRexArgumentError(f"{self.unit} = {self.value}: expected more than 0")

    def to_json(self) -> dict[str, Any]:
        return {"rate": {"type": self.unit, "value": float(self.value)}, **self._kind()}

    def _kind(self) -> dict[str, Any]:
        return {"type": "continuous"}


class STLTXCont(STLTXMode):
    """Send endlessly."""


class STLTXSingleBurst(STLTXMode):
    """Send `total_pkts` frames."""

    def __init__(self, total_pkts: int = 1, **rate: Any) -> None:
        super().__init__(**rate)
        self.total_pkts = _whole("total_pkts", total_pkts)

    def _kind(self) -> dict[str, Any]:
        return {"type": "single_burst", "total_pkts": self.total_pkts}


class STLTXMultiBurst(STLTXMode):
    """Send `count` bursts of `pkts_per_burst` frames, `ibg` microseconds apart."""

    def __init__(
        self, pkts_per_burst: int = 1, ibg: float = 0.0, count: int = 1, **rate: Any
    ) -> None:
        super().__init__(**rate)
        self.pkts_per_burst = _whole("pkts_per_burst", pkts_per_burst)
        self.count = _whole("count", count)
        self.ibg = ibg

    def _kind(self) -> dict[str, Any]:
        burst = {"pkts_per_burst": self.pkts_per_burst, "ibg": self.ibg, "count": self.count}
        return {"type": "multi_burst", **burst}


class STLFlowStats:
    """Count sent and received frames and octets of the streams with this packet group ID."""

    _latency = False

    def __init__(self, pg_id: int, **_: Any) -> None:
        self.pg_id = pg_id

    def to_json(self) -> dict[str, Any]:
        rule = "latency" if self._latency else "stats"
        return {"enabled": True, "stream_id": self.pg_id, "rule_type": rule}


class STLFlowLatencyStats(STLFlowStats):
    """Like `STLFlowStats`, and measure latency, jitter, loss and reordering."""

    _latency = True


class STLTaggedPktGroup(STLFlowStats):
    """Count received frames by this tagged packet group and their VLAN tags."""

    def __init__(self, tpgid: int) -> None:
        super().__init__(tpgid)

    def to_json(self) -> dict[str, Any]:
        return {"enabled": True, "stream_id": self.pg_id, "rule_type": "tpg"}


class _Instruction:
    """A field engine instruction."""

    def to_json(self, packet: STLPktBuilder) -> dict[str, Any]:
        raise NotImplementedError


class _Variable(_Instruction):
    name: str
    next_var: str | None = None


class STLVmFlowVar(_Variable):
    """A number that is incremented, decremented or random per frame. Values may be IPv4 addresses
    as text."""

    def __init__(
        self,
        name: str,
        init_value: int | str | None = None,
        min_value: int | str = 0,
        max_value: int | str = 255,
        size: int = 4,
        step: int | str = 1,
        op: str = "inc",
        value_list: Sequence[int | str] | None = None,
        split_to_cores: bool = True,
        next_var: str | None = None,
    ) -> None:
        _size(name, size)
        if op not in ("inc", "dec", "random"):
            raise TRexArgumentError(f"variable {name!r}: op = {op!r}: expected inc, dec or random")
        if next_var is not None and (op == "random" or next_var == name):
            raise TRexArgumentError(
                f"variable {name!r}: next_var = {next_var!r}: expected another variable, and not a random one before it"
            )
        self.name, self.next_var = name, next_var
        self._fields: dict[str, Any] = {"name": name, "size": size, "op": op}
        self._fields |= {"step": _number(step), "split_to_cores": split_to_cores}
        if value_list is not None:
            self._fields["value_list"] = [_number(value) for value in value_list]
            return
        low, high = _number(min_value), _number(max_value)
        if low > high:
            raise TRexArgumentError(f"variable {name!r}: max_value {high} is below min_value {low}")
        first = (high if op == "dec" else low) if init_value is None else _number(init_value)
        self._fields |= {"init_value": first, "min_value": low, "max_value": high}

    def to_json(self, packet: STLPktBuilder) -> dict[str, Any]:
        return {"type": "flow_var", **self._fields, "next_var": self.next_var}


class STLVmFlowVarRepeatableRandom(_Variable):
    """`limit` random numbers, repeated in the same order."""

    def __init__(
        self,
        name: str,
        size: int = 4,
        limit: int = 100,
        seed: int | None = None,
        min_value: int | str | None = 0,
        max_value: int | str | None = None,
        split_to_cores: bool = True,
        next_var: str | None = None,
    ) -> None:
        _size(name, size)
        self.name, self.next_var = name, next_var
        self._fields = {
            "name": name,
            "size": size,
            "limit": _whole("limit", limit),
            "seed": random.randint(1, 32_000) if seed is None else seed,
            "min_value": _number(min_value or 0),
            "max_value": (1 << (8 * size)) - 1 if max_value is None else _number(max_value),
            "split_to_cores": split_to_cores,
        }

    def to_json(self, packet: STLPktBuilder) -> dict[str, Any]:
        return {"type": "flow_var_rand_limit", **self._fields, "next_var": self.next_var}


#: Misspelled name of older TRex versions.
STLVmFlowVarRepetableRandom = STLVmFlowVarRepeatableRandom


class STLVmTupleGen(_Instruction):
    """Client addresses and ports: every address with one port, then with the next port."""

    def __init__(
        self,
        name: str,
        ip_min: int | str = "0.0.0.1",
        ip_max: int | str = "0.0.0.10",
        port_min: int = 1025,
        port_max: int = 65535,
        limit_flows: int = 100_000,
        flags: int = 0,
    ) -> None:
        self.name = name
        self._fields = {"name": name, "ip_min": _number(ip_min), "ip_max": _number(ip_max)}
        self._fields |= {"port_min": port_min, "port_max": port_max}
        self._fields |= {"limit_flows": limit_flows, "flags": flags}

    def to_json(self, packet: STLPktBuilder) -> dict[str, Any]:
        return {"type": "tuple_flow_var", **self._fields}


class STLVmWrFlowVar(_Instruction):
    """Write a variable into the frame at ``"IP.src"``, ``"UDP:1.sport"`` or an octet offset."""

    def __init__(
        self,
        fv_name: str,
        pkt_offset: int | str,
        offset_fixup: int = 0,
        add_val: int = 0,
        is_big: bool = True,
    ) -> None:
        self.name, self.place, self.fixup, self.add, self.is_big = (
            fv_name,
            pkt_offset,
            offset_fixup,
            add_val,
            is_big,
        )

    def to_json(self, packet: STLPktBuilder) -> dict[str, Any]:
        return {"type": "write_flow_var", **self._write(packet)}

    def _write(self, packet: STLPktBuilder) -> dict[str, Any]:
        offset = packet._field(self.place) + self.fixup
        write = {"name": self.name, "pkt_offset": offset, "add_value": self.add}
        return {**write, "is_big_endian": self.is_big}


class STLVmWrMaskFlowVar(STLVmWrFlowVar):
    """Like `STLVmWrFlowVar`, with a size and a mask, and the variable shifted: left, or right with
    a negative `shift`.
    """

    def __init__(
        self,
        fv_name: str,
        pkt_offset: int | str,
        pkt_cast_size: int = 1,
        mask: int = 0xFF,
        shift: int = 0,
        add_value: int = 0,
        offset_fixup: int = 0,
        is_big: bool = True,
    ) -> None:
        super().__init__(fv_name, pkt_offset, offset_fixup, add_value, is_big)
        self._fields = {"pkt_cast_size": pkt_cast_size, "mask": mask, "shift": shift}

    def to_json(self, packet: STLPktBuilder) -> dict[str, Any]:
        return {"type": "write_mask_flow_var", **self._write(packet), **self._fields}


class STLVmFixIpv4(_Instruction):
    """Update an IPv4 header checksum: at ``"IP"``, ``"IP:1"`` or an octet offset."""

    def __init__(self, offset: int | str) -> None:
        self.offset = offset

    def to_json(self, packet: STLPktBuilder) -> dict[str, Any]:
        return {"type": "fix_checksum_ipv4", "pkt_offset": packet._layer(self.offset)}


class CTRexVmInsFixHwCs:
    """Kinds of checksums of `STLVmFixChecksumHw`."""

    L4_TYPE_UDP, L4_TYPE_TCP, L4_TYPE_IP = 11, 13, 17


class STLVmFixIcmpv6(_Instruction):
    """Update the ICMPv6 checksum."""

    _type: dict[str, Any] = {"type": "fix_checksum_icmpv6"}

    def __init__(self, l3_offset: int | str, l4_offset: int | str) -> None:
        self.l3_offset, self.l4_offset = l3_offset, l4_offset

    def to_json(self, packet: STLPktBuilder) -> dict[str, Any]:
        l3, l4 = packet._layer(self.l3_offset), packet._layer(self.l4_offset)
        return {**self._type, "l2_len": l3, "l3_len": max(l4 - l3, 0) if l4 else 0}


class STLVmFixChecksumHw(STLVmFixIcmpv6):
    """Update the IPv4 checksum and that of the TCP or UDP header after it, like NIC offload."""

    def __init__(self, l3_offset: int | str, l4_offset: int | str, l4_type: int) -> None:
        super().__init__(l3_offset, l4_offset)
        self._type = {"type": "fix_checksum_hw", "l4_type": l4_type}


class STLVmTrimPktSize(_Instruction):
    """Set the frame length, without FCS, from a variable."""

    def __init__(self, fv_name: str) -> None:
        self.name = fv_name

    def to_json(self, packet: STLPktBuilder) -> dict[str, Any]:
        return {"type": "trim_pkt_size", "name": self.name}


class STLScVmRaw:
    """Field engine instructions, in order. With `cache_size`, this number of frames is generated
    once and repeated."""

    def __init__(
        self,
        list_of_commands: Sequence[_Instruction] | None = None,
        cache_size: int | None = None,
    ) -> None:
        self.commands = list(list_of_commands or ())
        self.cache_size = cache_size

    def add_cmd(self, command: _Instruction) -> None:
        self.commands.append(command)

    def _ordered(self) -> list[_Instruction]:
        """Return the instructions with variables first, each before its successor, in the order in
        which TRex's client sends them."""
        variables = {one.name: one for one in self.commands if isinstance(one, _Variable)}
        followed = {one.next_var for one in variables.values() if one.next_var}
        unknown = followed - set(variables)
        if unknown:
            raise TRexArgumentError(f"next_var: no variable is called {sorted(unknown)[0]!r}")
        ordered: list[_Instruction] = []
        for name, one in variables.items():
            if name in followed:
                continue
            chain: _Variable | None = one
            while chain is not None and chain not in ordered:
                ordered.append(chain)
                chain = variables.get(chain.next_var or "")
        if len(ordered) < len(variables):
            raise TRexArgumentError("next_var: variables name each other in a circle")
        return ordered + [one for one in self.commands if not isinstance(one, _Variable)]

    def to_json(self, packet: STLPktBuilder) -> dict[str, Any]:
        names = {name for one in self.commands for name in _names(one)}
        for one in self.commands:
            wanted = getattr(one, "name", None)
            if not _names(one) and wanted is not None and wanted not in names:
                there_is = ", ".join(map(repr, sorted(names))) or "none"
                raise TRexArgumentError(f"no variable is called {wanted!r}: there is {there_is}")
        vm: dict[str, Any] = {"instructions": [one.to_json(packet) for one in self._ordered()]}
        if self.cache_size:
            vm["cache"] = self.cache_size
        return vm


def _names(instruction: _Instruction) -> list[str]:
    """Return the variables that an instruction defines."""
    match instruction:
        case STLVmTupleGen():
            return [f"{instruction.name}.ip", f"{instruction.name}.port"]
        case _Variable():
            return [instruction.name]
    return []


class STLVM(STLScVmRaw):
    """Field engine instructions, added by methods."""

    def set_cached(self, cache_size: int) -> None:
        self.cache_size = cache_size

    def var(self, name: str, min_value: Any, max_value: Any, size: int, op: str, **k: Any) -> None:
        self.add_cmd(
            STLVmFlowVar(name, min_value=min_value, max_value=max_value, size=size, op=op, **k)
        )

    def write(self, fv_name: str, pkt_offset: int | str, byte_order: str = "big", **k: Any) -> None:
        self.add_cmd(STLVmWrFlowVar(fv_name, pkt_offset, is_big=byte_order == "big", **k))

    def write_mask(
        self, fv_name: str, pkt_offset: int | str, byte_order: str = "big", **k: Any
    ) -> None:
        k["add_value"] = k.pop("add_val", 0)
        self.add_cmd(STLVmWrMaskFlowVar(fv_name, pkt_offset, is_big=byte_order == "big", **k))

    def tuple_var(self, name: str, limit_flows: int = 0, **k: Any) -> None:
        self.add_cmd(STLVmTupleGen(name, limit_flows=limit_flows, **k))

    def repeatable_random_var(self, fv_name: str, **k: Any) -> None:
        self.add_cmd(STLVmFlowVarRepeatableRandom(fv_name, **k))

    def fix_chksum(self, offset: int | str = "IP") -> None:
        self.add_cmd(STLVmFixIpv4(offset))

    def fix_chksum_hw(self, l3_offset: int | str, l4_offset: int | str, l4_type: int) -> None:
        self.add_cmd(STLVmFixChecksumHw(l3_offset, l4_offset, l4_type))

    def fix_chksum_icmpv6(self, l3_offset: int | str, l4_offset: int | str) -> None:
        self.add_cmd(STLVmFixIcmpv6(l3_offset, l4_offset))

    def trim(self, fv_name: str) -> None:
        self.add_cmd(STLVmTrimPktSize(fv_name))


class STLPktBuilder:
    """A frame, and its variable fields.

    Parameters
    ----------
    pkt : scapy packet, bytes or str
        A str is a capture file, of which the first packet is used, or Squall's packet text:
        ``"eth/ipv4(dst=48.0.0.1)/udp"``.
    pkt_buffer : bytes
        An alternative to `pkt`.
    vm : STLScVmRaw or list of instructions
    path_relative_to_profile : bool
        Resolve the capture's path relative to the file that creates the packet.
    remove_fcs : bool
        If instructions refer to fields by name, remove octets after the last layer of `pkt_buffer`.
    """

    def __init__(
        self,
        pkt: Any = None,
        pkt_buffer: bytes | None = None,
        vm: Any = None,
        path_relative_to_profile: bool = False,
        remove_fcs: bool = True,
        **_: Any,
    ) -> None:
        self.remove_fcs = remove_fcs
        if pkt is None and pkt_buffer is None:
            raise TRexArgumentError("STLPktBuilder: expected pkt or pkt_buffer")
        self.packet: Any = pkt_buffer if pkt is None else pkt
        if isinstance(pkt, str) and pkt.endswith((".pcap", ".cap", ".pcapng")):
            folder = pathlib.Path()
            if path_relative_to_profile:
                folder = pathlib.Path(sys._getframe(1).f_code.co_filename).parent
            self.packet = _first_of(folder / pkt)
        self.vm = vm if isinstance(vm, STLScVmRaw) or vm is None else STLScVmRaw(vm)
        self._of_profile = _loading

    def octets(self) -> bytes:
        """Return the frame without FCS."""
        if isinstance(self.packet, str):
            self.packet = _built(self.packet)
        if self._of_profile and hasattr(self.packet, "fields_desc"):
            return bytes(_with_defaults(self.packet))
        return bytes(self.packet)

    def to_json(self) -> dict[str, Any]:
        # Compile instructions before the packet is built: scapy removes padding when fields are set
        # by name.
        vm = {"instructions": []} if self.vm is None else self.vm.to_json(self)
        binary = base64.b64encode(self.octets()).decode()
        return {"packet": {"binary": binary, "meta": ""}, "vm": vm}

    def _given(self, field: str) -> bool:
        """Return whether this field is set explicitly in the packet's Ethernet layer."""
        fields = getattr(self.packet, "fields", {})
        return type(self.packet).__name__ == "Ether" and field in fields

    def _layers(self) -> Iterator[tuple[Any, int]]:
        """Yield layers with their offsets. If the packet was given as octets, TRex's client drops
        trailing padding, such as a captured FCS, after it has searched for a layer.
        """
        if not hasattr(self.packet, "fields_desc"):
            octets = self.octets()
            packet = _ether()(octets)
            padding = packet.lastlayer()
            if self.remove_fcs and padding.name == "Padding":
                self.packet = octets[: len(octets) - len(padding.load)]
            yield from self._walk(packet)
        else:
            yield from self._walk(self.packet)

    @staticmethod
    def _walk(layer: Any) -> Iterator[tuple[Any, int]]:
        offset = 0
        while layer.fields_desc:
            yield layer, offset
            offset += len(bytes(layer)) - len(bytes(layer.payload))
            layer = layer.payload

    def _layer(self, place: int | str) -> int:
        """Return the offset of a layer such as ``"IP:1"``."""
        if isinstance(place, int):
            return place
        wanted, _, nth = place.partition(":")
        return self._nth(place, wanted, int(nth or 0))[1]

    def _nth(self, place: str, wanted: str, nth: int) -> tuple[Any, int]:
        for layer, offset in self._layers():
            if wanted.replace("|", ".") in (type(layer).__name__, layer.name):
                if nth == 0:
                    return layer, offset
                nth -= 1
        raise TRexArgumentError(f"{place!r}: the packet has no such layer")

    def _field(self, place: int | str) -> int:
        """Return the offset of a field such as ``"IP:1.src"``."""
        if isinstance(place, int):
            return place
        named = re.fullmatch(r"(.+?)(?::(\d+))?\.(\w+)", place)
        if not named:
            raise TRexArgumentError(
                f"{place!r}: expected Layer.field or Layer:NUMBER.field, such as IP.src or IP:1.src"
            )
        layer, offset = self._nth(place, named[1], int(named[2] or 0))
        octets: Any = b""
        for desc in layer.fields_desc:
            if desc.name == named[3]:
                return offset + len(octets[0] if isinstance(octets, tuple) else octets)
            octets = desc.addfield(layer, octets, layer.getfieldval(desc.name))
        raise TRexArgumentError(f"{place!r}: {named[1]} has no field {named[3]!r}")


class STLStream:
    """A stream: packet, rate, statistics, and next stream.

    Parameters
    ----------
    name : str, optional
        Name by which the ``next`` of other streams refers to it.
    packet : STLPktBuilder, optional
        Default: 60 octets of UDP.
    mode : STLTXCont, STLTXSingleBurst or STLTXMultiBurst
    enabled, self_start : bool
    isg : float
        Delay before the first frame, in microseconds.
    flow_stats : STLFlowStats or STLFlowLatencyStats, optional
    next : str, optional
        The stream that starts when this one has ended.
    action_count : int
        Number of times that the stream runs until its chain ends; 0: no limit.
    random_seed : int
        Seed of the random variables; 0: a random one.
    mac_src_override_by_pkt, mac_dst_override_mode
        Take MAC addresses from the packet. Default: if the packet sets them explicitly.
    dummy_stream : bool
        Send no frames, but occupy the time that they would need.
    start_paused : bool
        Start paused: send nothing until resumed.
    size
        Squall extension: sizes as in `squall.Stream`.
    """

    def __init__(
        self,
        name: str | int | None = None,
        packet: STLPktBuilder | None = None,
        mode: STLTXMode | None = None,
        enabled: bool = True,
        self_start: bool = True,
        isg: float = 0.0,
        flow_stats: STLFlowStats | None = None,
        next: str | int | None = None,  # noqa: A002: TRex's name
        stream_id: int | None = None,
        action_count: int = 0,
        random_seed: int = 0,
        mac_src_override_by_pkt: bool | int | None = None,
        mac_dst_override_mode: int | None = None,
        dummy_stream: bool = False,
        start_paused: bool = False,
        core_id: int = -1,
        size: Any = None,
    ) -> None:
        self.name, self.enabled, self.next, self.id = name, enabled, next, stream_id
        self.packet = packet or STLPktBuilder(pkt_buffer=_DEFAULT)
        self.mode = mode or STLTXCont()
        self.flow_stats, self.size = flow_stats, size
        self._macs = (mac_src_override_by_pkt, mac_dst_override_mode)
        self._fields = {"enabled": enabled, "self_start": self_start, "isg": float(isg)}
        self._fields |= {"action_count": action_count, "random_seed": random_seed}
        self._fields |= {"start_paused": start_paused, "core_id": core_id}
        self._dummy = dummy_stream

    def get_name(self) -> str | int | None:
        return self.name

    def get_id(self) -> int | None:
        return self.id

    def to_json(self) -> dict[str, Any]:
        """Return the stream in the JSON of TRex's clients."""
        source, destination = self._macs
        if source is None:
            source = self.packet._given("src")
        if destination is None:
            destination = int(self.packet._given("dst"))
        flags = int(source) & 1 | (int(destination) & 3) << 1 | int(self._dummy) << 3
        stats = {"enabled": False} if self.flow_stats is None else self.flow_stats.to_json()
        stream = {**self._fields, "flags": flags, "mode": self.mode.to_json()}
        stream |= {**self.packet.to_json(), "flow_stats": stats}
        named = {"name": self.name, "next": self.next}
        return stream | {key: value for key, value in named.items() if value is not None}


class STLProfile:
    """Several streams. They can be loaded from files."""

    def __init__(self, streams: STLStream | Sequence[STLStream] | None = None) -> None:
        self.streams = [streams] if isinstance(streams, STLStream) else list(streams or ())

    def get_streams(self) -> list[STLStream]:
        return list(self.streams)

    @staticmethod
    def load_py(
        python_file: str | os.PathLike[str], direction: int = 0, port_id: int = 0, **tunables: Any
    ) -> STLProfile:
        """Load the streams of a TRex Python profile from its ``register().get_streams``.

        While the profile is loaded, ``trex_stl_lib.api`` and ``trex.stl.api`` refer to this module,
        and include scapy's names as in TRex.

        Raises
        ------
        TRexError
            The file cannot be read, or is not such a profile.
        """
        path = pathlib.Path(python_file)

        def streams(module: Any, tunables: Mapping[str, Any]) -> Any:
            return module.register().get_streams(direction=direction, port_id=port_id, **tunables)

        with _as_trex():
            return STLProfile(_called(path, tunables, streams))

    @staticmethod
    def load_pcap(
        pcap_file: str | os.PathLike[str],
        ipg_usec: float | None = None,
        speedup: float = 1.0,
        loop_count: int = 1,
        vm: Any = None,
        packet_hook: Callable[[bytes], bytes] | None = None,
        split_mode: str | None = None,
        min_ipg_usec: float | None = None,
        src_mac_pcap: bool = False,
        dst_mac_pcap: bool = False,
    ) -> STLProfile | tuple[STLProfile, STLProfile]:
        """Convert a capture to a chain of streams with one packet each.

        For large captures use `squall replay`, which needs no stream per packet.

        Parameters
        ----------
        pcap_file : path
        ipg_usec : float, optional
            Gap between packets, in microseconds. Default: as captured.
        speedup : float
            Divisor of the gaps.
        loop_count : int
            Number of times that the capture is sent; 0: without limit.
        vm : STLScVmRaw or list of instructions
            Instructions for every packet.
        packet_hook : callable, optional
            Called with each packet's octets; returns the octets to send.
        split_mode : {"MAC", "IP"}, optional
            Return two profiles, one per side of the conversations, distinguished by these
            addresses.
        min_ipg_usec : float, optional
            Minimum gap, in microseconds. With `ipg_usec`: the gap.
        src_mac_pcap, dst_mac_pcap : bool
            Take MAC addresses from the capture.

        Raises
        ------
        TRexError
            The capture cannot be read, is empty or cannot be split, or an argument is invalid.
        """
        path = pathlib.Path(pcap_file)
        _checked_gaps(ipg_usec, min_ipg_usec, speedup, loop_count)
        packets = _departures(path, ipg_usec, min_ipg_usec, speedup)
        sides = [packets] if split_mode is None else _split(path, packets, split_mode)
        macs = (src_mac_pcap, STLStreamDstMAC_PKT if dst_mac_pcap else STLStreamDstMAC_CFG_FILE)
        # Both sides start together, and repeat only after both have ended.
        ends = max(side[-1][1] for side in sides)
        delay = 0.0 if split_mode is None else _first_delay(ipg_usec, min_ipg_usec, speedup)
        profiles = []
        for side in sides:
            hooked = [(packet_hook(octets) if packet_hook else octets, at) for octets, at in side]
            profiles.append(
                STLProfile(_chain(hooked, delay, ends - side[-1][1], loop_count, vm, macs))
            )
        return profiles[0] if split_mode is None else (profiles[0], profiles[1])

    @staticmethod
    def load(
        filename: str | os.PathLike[str], direction: int = 0, port_id: int = 0, **tunables: Any
    ) -> STLProfile:
        """Load the streams of a file: a Python profile, or a capture sent at one packet per second.

        Raises
        ------
        TRexError
            The file cannot be read, or is neither.
        """
        if pathlib.Path(filename).suffix in (".pcap", ".cap", ".pcapng"):
            profile = STLProfile.load_pcap(filename, ipg_usec=1e6)
            assert isinstance(profile, STLProfile)
            return profile
        return STLProfile.load_py(filename, direction, port_id, **tunables)


#: An Ethernet, IPv4 and UDP header, padded.
_DEFAULT = bytes.fromhex(
    "ffffffffffff00000000000008004500001c0001000040117ccd7f0000017f0000010035003500080172"
).ljust(60, b"\0")


#: TRex's defaults for fields that scapy would take from this machine.
_DEFAULTS = {
    "Ether": {"dst": "00:00:00:01:00:00", "src": "00:00:00:02:00:00"},
    "IP": {"src": "16.0.0.1", "dst": "48.0.0.1"},
    "IPv6": {"src": "::2"},
}
#: Modules that profiles find with ``from trex_stl_lib.api import *``.
_MODULES = ["base64", "binascii", "collections", "copy", "inspect", "json", "math", "os", "random"]
_MODULES += ["re", "socket", "string", "struct", "sys", "time"]
#: Whether a profile is being loaded.
_loading = False


def _with_defaults(packet: Any) -> Any:
    packet = packet.copy()
    layer = packet
    while layer.fields_desc:
        for name, value in _DEFAULTS.get(type(layer).__name__, {}).items():
            if name not in layer.fields:
                setattr(layer, name, value)
        layer = layer.payload
    return packet


def _called(
    path: pathlib.Path,
    tunables: dict[str, Any],
    call: Callable[[Any, Mapping[str, Any]], _T],
) -> _T:
    """Return the streams that a profile's module creates with its tunables."""
    spec = importlib.util.spec_from_file_location(f"_squall_trex_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise TRexError(f"{path}: expected a Python file (.py)")
    module = importlib.util.module_from_spec(spec)
    # Profiles parse their tunables as command line options.
    words = [word for key, value in tunables.items() for word in (f"--{key}", str(value))]
    try:
        spec.loader.exec_module(module)
        return call(module, {"tunables": words, **tunables})
    except TRexError:
        raise
    except SystemExit as error:
        raise TRexError(f"{path}: it does not take these tunables: {words}") from error
    except ImportError as error:
        raise TRexError(
            f"{path}: {error}\n  try --trex-lib FOLDER: TRex's library may have it"
        ) from error
    except Exception as error:
        raise TRexError(f"{path}: {type(error).__name__}: {error}") from error


@contextlib.contextmanager
def _as_trex(more: Mapping[str, types.ModuleType] | None = None) -> Iterator[None]:
    """Make this module importable under the names of TRex's modules, and `more` as well."""
    global _loading
    names = ["trex_stl_lib", "trex_stl_lib.api", "trex", "trex.stl", "trex.stl.api"]
    # Flow profiles use address functions of this module.
    names.append("trex.stl.trex_stl_packet_builder_scapy")
    api = types.ModuleType("trex_stl_lib.api")
    # Modules that profiles expect to be included in a star import from TRex.
    vars(api).update({name: importlib.import_module(name) for name in _MODULES})
    with contextlib.suppress(ImportError):
        import scapy.all

        vars(api).update(
            {name: what for name, what in vars(scapy.all).items() if not name.startswith("_")}
        )
    vars(api).update({name: globals()[name] for name in API})
    vars(api).update(is_valid_ipv4=_is_of(4), is_valid_ipv6=_is_of(6))
    vars(api).update(ip2int=_number, int2ip=lambda number: str(ipaddress.IPv4Address(number)))
    packages = ["trex_stl_lib", "trex", "trex.stl"]
    modules = {name: types.ModuleType(name) if name in packages else api for name in names}
    modules.update(more or {})
    before = {name: sys.modules.get(name) for name in modules}
    _loading = True
    sys.modules.update(modules)
    try:
        yield
    finally:
        _loading = False
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


def _is_of(version: int) -> Callable[[str], bool]:
    """Return a check whether a string is an address of this IP version."""

    def valid(text: str) -> bool:
        try:
            return ipaddress.ip_address(text).version == version
        except ValueError:
            return False

    return valid


def numbered(streams: Mapping[int, STLStream]) -> dict[str, Any]:
    """Return the streams as in TRex's JSON, by their number."""
    return {str(number): stream.to_json() for number, stream in streams.items()}


def _ether() -> Any:
    try:
        from scapy.layers.l2 import Ether
    except ImportError:
        raise TRexArgumentError(
            "names of fields need scapy, which is not installed\n  try pip install scapy, or offsets in octets"
        ) from None
    return Ether


#: Name of the stream that sends nothing until the other side of a capture has ended.
PAUSE = "delay_stream"
#: A packet's octets, and its departure time in microseconds.
_Departure = tuple[bytes, float]


def _captured(path: pathlib.Path) -> Iterator[_Departure]:
    """Return the packets of a capture with their capture times."""
    try:
        from scapy.utils import PcapReader

        with PcapReader(str(path)) as reader:
            for packet in reader:
                yield bytes(packet.original), float(packet.time) * 1e6
    except Exception as error:
        raise TRexArgumentError(f"cannot read the capture {path}: {error}") from error


def _first_of(path: pathlib.Path) -> bytes:
    """Return the first packet of a capture."""
    for octets, _ in _captured(path):
        return octets
    raise TRexArgumentError(f"the capture {path} is empty")


def _checked_gaps(
    gap: float | None, smallest: float | None, speedup: float, loop_count: int
) -> None:
    if not speedup > 0:
        raise TRexArgumentError(f"speedup = {speedup}: expected more than 0")
    if smallest is not None and smallest < 0:
        raise TRexArgumentError(f"min_ipg_usec = {smallest}: expected 0 or more")
    if gap is not None and gap / speedup < 0.001 and (smallest is None or smallest < 0.001):
        raise TRexArgumentError(f"ipg_usec = {gap}: expected 0.001 or more, after the speedup")
    if loop_count < 0:
        raise TRexArgumentError(f"loop_count = {loop_count}: expected 0 or more")


def _departures(
    path: pathlib.Path, gap: float | None, smallest: float | None, speedup: float
) -> list[_Departure]:
    """Return packets with their departure times: with a fixed gap before each packet (also the
    first), or as captured."""
    packets, at, before = [], 0.0, None
    for octets, captured in _captured(path):
        if gap is not None:
            at += smallest or gap / speedup
        else:
            own = 0.0 if before is None else (captured - before) / speedup
            at += max(own, smallest or own)
        before = captured
        packets.append((octets, at))
    if not packets:
        raise TRexArgumentError(f"the capture {path} is empty")
    return packets


def _first_delay(gap: float | None, smallest: float | None, speedup: float) -> float:
    """Return the delay in microseconds before both sides of a capture start, so both are ready."""
    return max(gap / speedup if gap else 1000.0, smallest or 0.0)


def _split(path: pathlib.Path, packets: list[_Departure], mode: str) -> list[list[_Departure]]:
    """Split packets into the two sides of the conversations; the side of the first packet is
    first."""
    if mode not in ("MAC", "IP"):
        raise TRexArgumentError(f"split_mode = {mode!r}: expected 'MAC' or 'IP'")
    ends = [_ends(octets, mode) for octets, _ in packets]
    second = _second_side(path, [pair for pair in ends if pair])
    sides: list[list[_Departure]] = [[], []]
    for packet, pair in zip(packets, ends, strict=True):
        sides[pair is not None and pair[0] in second].append(packet)
    if not all(sides):
        raise TRexArgumentError(f"the capture {path} has one direction only")
    return sorted(sides, key=lambda side: side[0][1])


def _ends(octets: bytes, mode: str) -> tuple[str, str] | None:
    """Return source and destination address; None if the packet has no such addresses."""
    packet = _ether()(octets)
    layer = packet if mode == "MAC" else packet.getlayer("IP") or packet.getlayer("IPv6")
    return None if layer is None else (layer.src, layer.dst)


def _second_side(path: pathlib.Path, pairs: list[tuple[str, str]]) -> set[str]:
    """Return the addresses on the opposite side of the first address, among those that exchange
    packets."""
    peers: dict[str, set[str]] = {}
    for source, destination in pairs:
        if source != destination:
            peers.setdefault(source, set()).add(destination)
            peers.setdefault(destination, set()).add(source)
    side: dict[str, bool] = {}
    for first in peers:
        reached = [first]
        side.setdefault(first, False)
        while reached:
            one = reached.pop()
            for peer in peers[one]:
                if side.get(peer) == side[one]:
                    raise TRexArgumentError(
                        f"the capture {path} cannot be split: {one} and {peer} are on one side"
                    )
                if peer not in side:
                    side[peer] = not side[one]
                    reached.append(peer)
    return {address for address, second in side.items() if second}


def _chain(
    packets: list[_Departure],
    delay: float,
    rest: float,
    loop_count: int,
    vm: Any,
    macs: tuple[bool, int],
) -> list[STLStream]:
    """Return a chain of streams with one packet each: each stream starts the next one, and the last
    starts the first.
    """
    common: dict[str, Any] = {
        "mac_src_override_by_pkt": macs[0],
        "mac_dst_override_mode": macs[1],
    }
    streams, before = [], 0.0
    for number, (octets, at) in enumerate(packets, 1):
        ends: dict[str, Any] = {"next": number + 1}
        if number == len(packets):
            ends = {"next": PAUSE} if rest else {"next": 1, "action_count": loop_count}
        streams.append(
            STLStream(
                name=number,
                packet=STLPktBuilder(pkt_buffer=octets, vm=vm),
                mode=STLTXSingleBurst(total_pkts=1, percentage=100),
                self_start=number == 1,
                isg=at - before + (delay if number == 1 else 0),
                **ends,
                **common,
            )
        )
        before = at
    if rest:
        # Waits for the end of the other side, at the same positions as TRex's client has this
        # stream.
        pause = STLStream(
            name=PAUSE,
            mode=STLTXSingleBurst(total_pkts=1, percentage=100),
            self_start=False,
            isg=rest,
            dummy_stream=True,
            next=1,
            action_count=loop_count,
            **common,
        )
        streams.insert(-1, pause)
    return streams


def _built(text: str) -> bytes:
    """Build the frame of a packet text."""
    try:
        from ._profile import Profile, Stream
        from ._session import Session
    except ImportError:
        raise TRexArgumentError(f"{text!r}: expected a scapy packet, or octets") from None
    profile = Profile(ports={"A": "null:,virtual"}, streams=[Stream(packet=text, rate=1)])
    return Session(profile).plan().frames(1)[0].octets


def _number(value: int | str) -> int:
    if isinstance(value, int):
        return value
    try:
        return int(ipaddress.ip_address(value))
    except ValueError:
        raise TRexArgumentError(f"{value!r}: expected a number or an address") from None


def _size(name: str, size: int) -> None:
    if size not in (1, 2, 4, 8):
        raise TRexArgumentError(f"variable {name!r}: size = {size}: expected 1, 2, 4 or 8")


def _whole(name: str, value: int) -> int:
    if not isinstance(value, int) or value < 1:
        raise TRexArgumentError(f"{name} = {value!r}: expected 1 or more")
    return value

"""Network interfaces of this machine."""

from __future__ import annotations

import json
from dataclasses import dataclass

from . import _native
from ._values import ByName, read

__all__ = ["Interface", "ports"]


@dataclass(frozen=True)
class Interface:
    """A network interface of this machine, and the port kinds that it supports.

    Attributes
    ----------
    name : str
        As in an address after the kind: ``"af_packet:eth1"``.
    driver, mac : str or None
    state : {"up", "down", "no carrier"}
    mtu : int
        The largest IP packet, in octets.
    speed_bps : int or None
        Link speed, if the driver reports it.
    tx_queues, rx_queues : int
    ports : tuple of str
        Supported port kinds: ``("xdp_live", "af_packet")``.
    why_not : dict of str to str
        The other port kinds, each with the reason why it is not supported.
    """

    name: str
    driver: str | None
    mac: str | None
    state: str
    mtu: int
    speed_bps: int | None
    tx_queues: int
    rx_queues: int
    ports: tuple[str, ...]
    why_not: dict[str, str]


def ports(interface: str | None = None) -> ByName[Interface]:
    """List the interfaces of this machine and the port kinds that they support.

    Parameters
    ----------
    interface : str, optional
        List only this interface.

    Returns
    -------
    ByName of Interface
        In the kernel's order.

    Raises
    ------
    PortError
        There is no such interface, or the kernel does not list the interfaces.

    Examples
    --------
    >>> import squall
    >>> squall.ports("lo").names
    ('lo',)
    """
    listed = json.loads(_native.ports(interface))
    return ByName(read(Interface, one) for one in listed["interfaces"])

"""What there is to send on."""

from __future__ import annotations

import json
from dataclasses import dataclass

from . import _native
from ._values import ByName, read

__all__ = ["Interface", "ports"]


@dataclass(frozen=True)
class Interface:
    """A network interface of this machine, and which kinds of ports work on it.

    Attributes
    ----------
    name : str
        What an address has after its kind: ``"af_packet:eth1"``.
    driver, mac : str or None
    state : {"up", "down", "no carrier"}
    mtu : int
        Octets of a packet.
    speed_bps : int or None
        Of the link, where the driver tells it.
    tx_queues, rx_queues : int
    ports : tuple of str
        Kinds that work: ``("xdp_live", "af_packet")``.
    why_not : dict of str to str
        The other kinds, and what each is missing.
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
    """List the interfaces of this machine and which kinds of ports work on them.

    Parameters
    ----------
    interface : str, optional
        Only this one.

    Returns
    -------
    ByName of Interface
        In the order of the kernel.

    Raises
    ------
    PortError
        There is no such interface, or the kernel does not list any.

    Examples
    --------
    >>> import squall
    >>> squall.ports("lo").names
    ('lo',)
    """
    listed = json.loads(_native.ports(interface))
    return ByName(read(Interface, one) for one in listed["interfaces"])

"""snappi without a server: ``snappi.api(ext="squall")`` runs Squall's engine in this process.

A port's ``location`` is an address of Squall: ``veth-a``, ``af_packet:eth1``, ``loop:0``.

>>> import snappi
>>> api = snappi.api(ext="squall")
>>> config = snappi.Config()
>>> _ = config.ports.port(name="p1", location="loop:doc-snappi").port(name="p2", location="loop:doc-snappi")
>>> flow = config.flows.flow(name="f1")[-1]
>>> flow.tx_rx.port.tx_name, flow.tx_rx.port.rx_names = "p1", ["p2"]
>>> flow.duration.fixed_packets.packets = 10
>>> flow.metrics.enable = True
>>> _ = flow.packet.ethernet()
>>> api.set_config(config).warnings
[]
"""

from .snappi_api import Api

__all__ = ["Api"]

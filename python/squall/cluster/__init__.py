"""Runs on several machines: Ray places a node on each machine and carries messages; Squall's
daemons send and measure.

Needs Ray (``pip install '.[cluster]'`` in the source folder); nothing else of `squall` imports Ray.

>>> from squall.cluster import Inventory
>>> inventory = Inventory.parse('''
... [cluster]
... ray = "10.0.0.1:6379"
... [node.one]
... address = "10.0.0.11"
... [ports]
... A = "one/af_packet:eth1"
... ''')
>>> list(inventory.nodes), inventory.lease_s
(['one'], 2.0)
"""

from ._runs import run as run
from ._inventory import Inventory as Inventory, InventoryError as InventoryError
from ._control import NodeLost as NodeLost
from ._node import Refused as Refused

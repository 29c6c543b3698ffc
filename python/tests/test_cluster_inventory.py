"""Inventories: their meaning, and messages about errors."""

import json
import pathlib

import pytest

from squall.cluster import Inventory, InventoryError

HEAD = '[cluster]\nray = "10.0.0.1:6379"\n'
NODES = "".join(f'[node.{name}]\naddress = "10.0.0.{i}"\n' for i, name in enumerate("xyz", 11))


def test_nodes_that_share_a_port_have_parts_and_the_others_the_whole() -> None:
    ports = '[ports]\nA = ["x/af_packet:eth1", "y/af_packet:eth1"]\nB = "z/af_packet:eth2"\n'
    inventory = Inventory.parse(HEAD + NODES + ports)
    assert [inventory.part_of(node) for node in "xyz"] == [(1, 2), (2, 2), (1, 1)]
    assert inventory.ports_of("y") == {"A": "af_packet:eth1", "B": "elsewhere:z"}
    assert inventory.ports_of("z") == {"A": "elsewhere:x+y", "B": "af_packet:eth2"}
    assert inventory.senders() == ("x", "y", "z")


def test_all_of_it_is_read() -> None:
    inventory = Inventory.parse(
        """
        [cluster]
        name = "lab"
        lease = "1500 ms"
        max_drift_ppm = 20
        [cluster.start]
        head = "10.0.0.1"
        port = 6380
        reach = "ip netns exec {name}"
        worker_ports = [20000, 20100]
        [cluster.tls]
        cert = "c.pem"
        key = "k.pem"
        ca = "ca.pem"
        [node.one]
        address = "10.0.0.1"
        allow = ["eth9"]
        clock_offset_ns = -5000
        clock_drift_ppb = 12.5
        """
    )
    assert (inventory.name, inventory.lease_s, inventory.max_drift_ppm) == ("lab", 1.5, 20)
    assert inventory.start is not None and inventory.tls is not None
    assert (inventory.start.port, inventory.start.worker_ports) == (6380, (20000, 20100))
    assert inventory.tls.environment()["RAY_USE_TLS"] == "1"
    one = inventory.nodes["one"]
    assert (one.allow, one.clock_offset_ns, one.clock_drift_ppb) == (("eth9",), -5000, 12.5)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[cluster", "Expected ']' at the end of a table"),
        ("[cluster]\n" + NODES, "neither ray nor start\n  try ray ="),
        ('[cluster]\nray = "10.0.0.1"\n' + NODES, "cluster.ray = '10.0.0.1': expected"),
        (HEAD, "no node\n  try [node.one]"),
        (HEAD + "[node.x]\n", "node.x: nothing to find it by\n  try one of: address"),
        (HEAD + '[node.x]\naddress = "h"\n', "node.x.address = 'h': expected an IP address"),
        (HEAD + '[node.x]\nadress = "1.2.3.4"\n', "node.x: nothing to find it by"),
        (HEAD + NODES + "[nodes.x]\n", "nodes: unknown key\n  try node"),
        (HEAD + 'leas = "2 s"\n' + NODES, "cluster.leas: unknown key\n  try lease"),
        (HEAD + 'lease = "2"\n' + NODES, "cluster.lease = '2': expected a time above 0"),
        (HEAD + 'lease = "900 ms"\n' + NODES, "0.9 s is too short\n  try 1 s or more"),
        (HEAD + NODES + '[ports]\nA = "eth1"\n', "ports.A = 'eth1': expected \"NODE/ADDRESS\""),
        (HEAD + NODES + '[ports]\nA = "xx/eth1"\n', "there is no node 'xx'\n  try x"),
        (HEAD + NODES + '[ports]\nA = "x/eth1"\nB = "x/eth1"\n', "x/eth1 is also port 'A'"),
        (HEAD + NODES + '[ports]\nA = ["x/eth1", "x/eth2"]\n', "a node twice"),
        (
            HEAD + NODES + '[ports]\nA = ["x/eth1", "y/eth1"]\nB = "x/eth2"\n',
            "node 'x' has part 1/2 of port 'A', and part 1/1 of port 'B'",
        ),
        (
            '[cluster]\n[cluster.start]\n[node.x]\naddress="1.1.1.1"',
            "cluster.start.head is missing",
        ),
        (
            '[cluster.start]\nhead = "10.0.0.1"\n[node.x]\nray_id = "ab"\n',
            "node.x: no address, which [cluster.start] needs",
        ),
        (HEAD + '[cluster.tls]\ncert = "c"\n' + NODES, "cluster.tls.key is missing"),
    ],
)
def test_mistakes_are_named_with_what_to_try(text: str, expected: str) -> None:
    with pytest.raises(InventoryError) as caught:
        Inventory.parse(text, "lab.toml")
    assert str(caught.value).startswith("lab.toml: ")
    assert expected in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(InventoryError, match=r"lab\.toml: there is no such file"):
        Inventory.load(tmp_path / "lab.toml")


EXAMPLES = pathlib.Path(__file__).parents[2] / "examples/cluster"


def test_the_example_is_an_inventory() -> None:
    inventory = Inventory.load(EXAMPLES / "inventory.toml")
    assert [inventory.part_of(node) for node in inventory.nodes] == [(1, 2), (2, 2), (1, 1)]


def test_the_launchers_example_has_the_form_that_ray_wants() -> None:
    autoscaler = pytest.importorskip("ray.autoscaler", reason="SKIPPED: no Ray")
    import jsonschema
    import yaml

    schema = json.loads((pathlib.Path(autoscaler.__file__).parent / "ray-schema.json").read_text())
    jsonschema.validate(yaml.safe_load((EXAMPLES / "launcher.yaml").read_text()), schema)

"""The part of a profile that each node gets."""

import pathlib

import pytest

import squall
from squall.cluster import Inventory
from squall.cluster._profiles import job

HEAD = '[cluster]\nray = "10.0.0.1:6379"\n'
NODES = "".join(f'[node.{name}]\naddress = "10.0.0.{i}"\n' for i, name in enumerate("xyz", 11))
PORTS = (
    '[ports]\nA = ["x/af_packet:eth1", "y/af_packet:eth2"]\nB = "z/null:"\nC = "z/af_packet:e"\n'
)
INVENTORY = Inventory.parse(HEAD + NODES + PORTS)


def profile(tmp_path: pathlib.Path, text: str) -> pathlib.Path:
    file = tmp_path / "load.toml"
    file.write_text(text)
    return file


def test_each_node_has_its_ports_its_part_and_the_same_streams(tmp_path: pathlib.Path) -> None:
    text = """
        seed = 7
        [ports]
        A = "null:"
        B = "null:"
        [[stream]]
        name = "web"
        port = "A"
        packet = "eth/ipv4/udp"
        rate = "1 kpps"
    """
    done = job(INVENTORY, profile(tmp_path, text), {"duration": "2 s"}, "web")
    x, y, z = (part.body for part in done.parts)
    assert x["profile"]["ports"] == {"A": "af_packet:eth1", "B": "elsewhere:z"}
    assert z["profile"]["ports"] == {"A": "elsewhere:x+y", "B": "null:"}
    assert (x["part"], y["part"], "part" in z) == ("1/2", "2/2", False)
    assert x["profile"]["stream"] == y["profile"]["stream"] == z["profile"]["stream"]
    assert all(body["options"] == {"duration": "2 s"} for body in (x, y, z))
    assert [body["node"] for body in (x, y, z)] == ["x", "y", "z"]
    assert [part.sends for part in done.parts] == [True, True, False]


@pytest.mark.parametrize(
    ("client", "asks"),
    [
        ("", True),
        ('ipv6 = "slaac"', True),
        ('ipv6 = "2001:db8::2/64"', False),
        ('ipv4 = "10.0.0.2/16"\ngateway = "10.0.0.1"', False),
        ('ipv4 = "10.0.0.2/16"\ngateway = "10.0.0.1"\ndhcp = "inform"', True),
        ('ipv4 = "10.0.0.2/16"\ngateway = "10.0.0.1"\nping = "gateway"', True),
        ('pppoe = "none"', True),
        ('ipv4 = "none"\nlldp = "30 s"', False),
    ],
)
def test_hosts_that_ask_for_something_send_and_others_answer(
    tmp_path: pathlib.Path, client: str, asks: bool
) -> None:
    server = '[[host]]\nport = "B"\nipv4 = "10.0.0.1/16"\nserve = "10.0.1.0-10.0.1.9"\n'
    text = f'[ports]\nB = "null:"\nC = "null:"\n{server}[[host]]\nport = "C"\n{client}\n'
    inventory = Inventory.parse(HEAD + NODES + '[ports]\nB = "x/null:"\nC = "y/null:"\n')
    done = job(inventory, profile(tmp_path, text), {}, "")
    assert [(part.node, part.sends) for part in done.parts] == [("x", False), ("y", asks)]


def test_a_node_whose_ports_are_not_used_does_not_take_part(tmp_path: pathlib.Path) -> None:
    text = '[ports]\nB = "null:"\n[[stream]]\npacket = "eth/ipv4/udp"\nrate = "1 kpps"\n'
    assert [part.node for part in job(INVENTORY, profile(tmp_path, text), {}, "").parts] == ["z"]


def test_files_that_the_profile_names_are_taken_along(tmp_path: pathlib.Path) -> None:
    (tmp_path / "web.pcap").write_bytes(b"")
    (tmp_path / "A").write_bytes(b"not meant, although the port has this name")
    text = '[ports]\nA = "null:"\n[[replay]]\nfiles = ["web.pcap"]\nport = "A"\nmax_rate = 1\n'
    text = text.replace("max_rate = 1\n", "")
    done = job(INVENTORY, profile(tmp_path, text), {}, "")
    [(name, path)] = done.files.items()
    assert path == tmp_path / "web.pcap" and name.endswith("-web.pcap") and "/" not in name
    assert done.parts[0].body["profile"]["replay"][0]["files"] == [name]
    assert done.parts[0].body["profile"]["replay"][0]["port"] == "A"


def test_a_daemon_sends_its_own_files_alone(tmp_path: pathlib.Path) -> None:
    files, work = tmp_path / "files", tmp_path / "work"
    for folder in (files, work):
        folder.mkdir()
    for file in ("token", "files/web.pcap", "work/token"):
        (tmp_path / file).write_bytes(b"")
    (files / "link.pcap").symlink_to(tmp_path / "token")
    # A name may be any text, and therefore a path.
    for text, sent in (
        (str(tmp_path / "token"), False),
        ("../token", False),
        ("./token", False),
        (str(files / "link.pcap"), False),
        (str(files / "web.pcap"), True),
    ):
        stream = f'name = "{text}"\npacket = "eth/ipv4/udp"\nrate = "1 kpps"\n'
        named = profile(work, f'[ports]\nA = "null:"\n[[stream]]\n{stream}')
        done = job(INVENTORY, named, {}, "", files)
        assert bool(done.files) == sent, text
        assert sent or done.parts[0].body["profile"]["stream"][0]["name"] == text


def test_a_port_that_the_inventory_lacks_is_named(tmp_path: pathlib.Path) -> None:
    text = '[ports]\nD = "null:"\n[[stream]]\npacket = "eth/ipv4/udp"\nrate = "1 kpps"\n'
    with pytest.raises(squall.ProfileError, match="no port 'D': it has A, B, C\n  try D ="):
        job(INVENTORY, profile(tmp_path, text), {}, "")


def test_a_mistake_in_the_profile_has_its_line(tmp_path: pathlib.Path) -> None:
    with pytest.raises(squall.ProfileError) as caught:
        job(INVENTORY, profile(tmp_path, '[ports]\nA = "null:"\n[[stream]]\nrat = 1\n'), {}, "")
    assert caught.value.diagnostics[0].line == 3

"""Record conversations of TRex's stock client with `squall serve --trex`, for
crates/squall-trex/tests/conversations.rs, which plays the requests again and compares the answers.
The recorder is between the client and the daemon and writes one exchange a line. Values that
differ from run to run are replaced:

- `<handle>`, `<handler 0>`: secrets that the server gives out and the client sends back
- `<number>`, `<text>`, `<list>`, `<object>`: any value of this type, of keys in VOLATILE, and of
  keys in COUNTERS while traffic runs
- MAC addresses of the ports by 02:00:00:00:00:00 and 02:00:00:00:00:01
- the client's session ids by 1, 2, ...

Events are gathered, because a client polls for them at any time; they have no `seq`, and only the order
of those of one port counts.

Usage: python3 tests/interop/trex_record.py [CONVERSATION...], where the client and its profiles are
(trex_oracle.py). It is no test: after a change of an answer, `BLESS=1` of that test is enough.
"""

import base64
import contextlib
import ipaddress
import json
import os
import struct
import sys
import threading
import time
import warnings
import zlib

from tools import Failed, in_a_lab, same
from trex_oracle import ASYNC, ROOT, SQUALL, SYNC, VETH, daemon, has_client, unpack

warnings.simplefilter("ignore")
TO = ROOT / "crates/squall-trex/tests/conversations"
RECORDER = SYNC + 10
MAGIC = b"\xab\xe8\x5c\xea"
# Keys whose values depend on the machine or on time.
VOLATILE = {
    *("hostname", "core_type", "uptime", "ts", "start_ts", "cpu_util_raw"),
    *("m_cpu_util", "m_cpu_util_raw", "m_rx_cpu_util", "m_bw_per_core", "m_rx_core_pps"),
    *("m_tx_bps", "m_rx_bps", "m_tx_pps", "m_rx_pps", "m_rx_drop_bps", "m_tx_cps"),
    *("m_total_tx_bps", "m_total_tx_pps", "m_total_rx_bps", "m_total_rx_pps"),
    *("rps", "rbs", "tps", "tbs", "history"),
    *("average", "total_max", "total_min", "last_max", "jit", "histogram", "hdrh"),
    *("m_active_flows", "m_open_flows", "m_active_sockets", "m_socket_util"),
}
# Keys whose values grow while traffic runs.
COUNTERS = {
    *("opackets", "obytes", "ipackets", "ibytes", "xstats_values", "rp", "rb", "tp", "tb"),
    *("m_total_tx_pkts", "m_total_rx_pkts", "m_total_tx_bytes", "m_total_rx_bytes"),
    *("m_total_queue_full", "m_total_queue_drop", "client", "server", "drp", "epoch"),
    *("count", "bytes", "matched", "data", "cpu"),
}


class Recorder:
    """Pass requests on to the daemon and keep them with their answers."""

    def __init__(self, zmq):
        self.zmq, self.exchanges, self.sessions, self.macs = zmq, [], {}, {}
        self.handlers, self.handle = {}, None
        self.running = self.paused = self.over = False
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        context = self.zmq.Context()
        front, back = context.socket(self.zmq.REP), context.socket(self.zmq.REQ)
        front.setsockopt(self.zmq.RCVTIMEO, 200)
        front.bind(f"tcp://127.0.0.1:{RECORDER}")
        back.connect(f"tcp://127.0.0.1:{SYNC}")
        while not self.over:
            try:
                ask = front.recv()
            except self.zmq.ZMQError:
                continue
            back.send(ask)
            answer = back.recv()
            if not self.paused:
                self.keep(unpacked(ask), unpacked(answer))
            front.send(answer)
        front.close()
        back.close()

    def end(self):
        self.over = True
        self.thread.join(10)

    @contextlib.contextmanager
    def traffic(self):
        """Counters are not compared in this block, as traffic runs."""
        self.running = True
        yield
        self.running = False

    def keep(self, asks, answers):
        single = isinstance(asks, dict)
        asks, answers = ([asks], [answers]) if single else (asks, answers)
        self.learn(asks, answers)
        kept = []
        for ask, answer in zip(asks, answers):
            method, params = ask["method"], dict(ask.get("params") or {})
            if method == "get_async_events":
                self.events(self.session(params["session_id"]), answer["result"]["data"])
                continue
            found = {key: answer[key] for key in ("result", "error") if key in answer}
            kept.append({"method": method, "params": self.fixed(params), **self.made(found)})
        if kept:
            self.exchanges.append(kept[0] if single else {"batch": kept})

    def events(self, session, events):
        """Events of polls without another request between them are one list."""
        events = [{k: v for k, v in self.fixed(event).items() if k != "seq"} for event in events]
        last = self.exchanges[-1] if self.exchanges else {}
        known = any(one.get("session") == session for one in self.exchanges)
        if last.get("session") == session:
            last["events"] += events
        elif events or not known:
            self.exchanges.append({"session": session, "events": events})

    def session(self, number):
        return self.sessions.setdefault(number, len(self.sessions) + 1)

    def learn(self, asks, answers):
        """Note secrets and addresses in the answers."""
        for ask, answer in zip(asks, answers):
            result = answer.get("result")
            if ask["method"] == "api_sync_v2" and result:
                self.handle = result["api_h"]
            if ask["method"] == "acquire" and result:
                handlers = [result]
                if isinstance(result, dict):
                    handlers = [result["handler"], *result["ports"].values()]
                for handler in handlers:
                    self.handlers.setdefault(handler, f"<handler {len(self.handlers)}>")
            if ask["method"] == "get_system_info":
                for number, port in enumerate(result["ports"]):
                    self.macs[port["hw_mac"]] = f"02:00:00:00:00:{number:02x}"

    def fixed(self, value):
        """`value` of requests and events, which are the same in each run, whatever is counted."""
        running, self.running = self.running, False
        value, self.running = self.made(value), running
        return value

    def made(self, value, key=None):
        """`value` without what differs from run to run."""
        if key in VOLATILE or (self.running and key in COUNTERS):
            return {str: "<text>", list: "<list>", dict: "<object>"}.get(type(value), "<number>")
        # That of the server. A tunnel's version is a number.
        if key == "version" and isinstance(value, str):
            return "<text>"
        if key == "session_id":
            return self.session(value)
        if key == "specific_err":
            for session, number in self.sessions.items():
                value = value.replace(str(session), str(number))
        if key == "handler" and isinstance(value, dict):
            return {port: self.made(handler) for port, handler in value.items()}
        if isinstance(value, dict):
            return {name: self.made(one, name) for name, one in value.items()}
        if isinstance(value, list):
            return [self.made(one) for one in value]
        if isinstance(value, str):
            return self.text(value, key)
        return value

    def text(self, text, key):
        if text == self.handle:
            return "<handle>"
        if text in self.handlers:
            return self.handlers[text]
        for mac, name in self.macs.items():
            text = text.replace(mac, name)
            if key == "binary":
                octets = base64.b64decode(text).replace(packed(mac), packed(name))
                text = base64.b64encode(octets).decode()
        return text


def packed(mac):
    return bytes.fromhex(mac.replace(":", ""))


def unpacked(message):
    if message[:4] == MAGIC:
        message = zlib.decompress(message[8:])
    return json.loads(message)


def capture_file(packets):
    """A pcap file of these frames, 1 ms apart."""
    out = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    for number, octets in enumerate(packets):
        out += struct.pack("<IIII", 1, number * 1000, len(octets), len(octets)) + octets
    return out


def erf_file(interfaces):
    """An ERF file with a frame of each of these interfaces."""
    out = b""
    for number, interface in enumerate(interfaces):
        out += struct.pack("<II", number << 20, 1)
        out += struct.pack(">BBHHHH", 2, 4 + interface, 88, 0, len(FRAME) + 4, 0)
        out += FRAME + bytes(10)
    return out


class Talk:
    """The client, and what the conversations need with it."""

    def __init__(self, api, recorder, folder, mode):
        self.api, self.recorder, self.folder, self.mode = api, recorder, folder, mode
        self.client = self.other("ann")
        self.client.connect()

    def other(self, user):
        make = self.api.ASTFClient if self.mode == "astf" else self.api.STLClient
        ports = {"sync_port": RECORDER, "async_port": ASYNC}
        return make(username=user, verbose_level="critical", **ports)

    def packet(self, octets=30, dport=12):
        api = self.api
        packet = api.Ether() / api.IP(src="16.0.0.1", dst="48.0.0.1")
        return packet / api.UDP(sport=1025, dport=dport) / (b"x" * octets)

    def stream(self, mode, **more):
        vm, octets = more.pop("vm", None), more.pop("octets", 30)
        packet = self.api.STLPktBuilder(pkt=self.packet(octets), vm=vm)
        return self.api.STLStream(packet=packet, mode=mode, **more)

    def refused(self, what, *arguments, **options):
        try:
            what(*arguments, **options)
        except self.api.TRexError:
            return
        raise Failed(f"{what} was not refused")

    def settled(self, port, packets):
        """Wait until the counters are final, by requests that are not recorded."""
        self.recorder.paused, until = True, time.monotonic() + 20
        while self.client.get_stats(ports=[port])[port]["ipackets"] != packets:
            if time.monotonic() > until:
                raise Failed(f"port {port} has not received {packets} packets")
            time.sleep(0.1)
        self.recorder.paused = False


def streams(talk):
    """A burst with variables, a packet group and latency; its statistics; streams read back."""
    api, client = talk.api, talk.client
    client.reset(ports=[0, 1])
    variables = api.STLScVmRaw(
        [
            api.STLVmFlowVar("host", None, "16.0.0.1", "16.0.0.9", size=4),
            api.STLVmWrFlowVar("host", pkt_offset="IP.src"),
            api.STLVmFixIpv4(offset="IP"),
        ]
    )
    burst = lambda packets: api.STLTXSingleBurst(pps=1000, total_pkts=packets)
    client.add_streams(
        [
            talk.stream(burst(40), name="one", vm=variables),
            talk.stream(burst(30), flow_stats=api.STLFlowStats(pg_id=5)),
            talk.stream(burst(20), octets=60, flow_stats=api.STLFlowLatencyStats(pg_id=6)),
        ],
        ports=[0],
    )
    chain = [
        talk.stream(burst(25), next="z", name="y"),
        talk.stream(burst(15), self_start=False, name="z"),
    ]
    client.add_streams(chain, ports=[1])
    client.ports[0].validate()
    client.ports[0].sync()
    client.clear_stats()
    client.start(ports=[0, 1], mult="1", force=True)
    client.wait_on_traffic(ports=[0, 1], timeout=20)
    talk.settled(1, 90)
    client.get_stats()
    client.get_pgid_stats([5, 6])
    client.get_xstats(0)
    client.get_active_pgids()
    client.clear_stats()
    client.get_stats()
    client.remove_all_streams(ports=[0, 1])


def control(talk):
    """Pause, resume, update and stop of ports, profiles and single streams."""
    api, client = talk.api, talk.client
    client.reset(ports=[0, 1])
    steady = lambda: talk.stream(api.STLTXCont(pps=100))
    numbers = client.add_streams([steady(), steady()], ports=[0])
    client.add_streams(steady(), ports=["1.video", "1.voice"])
    client.clear_stats()
    with talk.recorder.traffic():
        client.start(ports=[0, "1.video", "1.voice"], force=True)
        client.pause(ports=[0, "1.video"])
        client.resume(ports=[0, "1.video"])
        client.update(ports=[0], mult="2")
        client.update(ports=["1.voice"], mult="10kbps")
        client.update_streams(port=0, mult="50pps", stream_ids=numbers[:1])
        client.pause_streams(port=0, stream_ids=numbers[:1])
        client.resume_streams(port=0, stream_ids=numbers[:1])
        talk.refused(client.start, ports=[0])
        client.get_stats()
        client.get_util_stats()
        client.stop(ports=["1.voice"])
        client.stop(ports=[0, 1])
        client.remove_streams(numbers[0], ports=[0])
        client.remove_all_streams(ports=["1.voice"])
        client.reset(ports=[0, 1])
        client.disconnect()


def tags(talk):
    """Tagged packet groups: enabled, sent, counted, changed, cleared and disabled."""
    api, client = talk.api, talk.client
    client.reset(ports=[0, 1])
    vlan = lambda number: {"type": "Dot1Q", "value": {"vlan": number}}
    talk.refused(client.add_streams, tagged(talk, 0), ports=[0])
    client.enable_tpg(2, [vlan(5), vlan(6)], rx_ports=[1])
    client.get_tpg_status()
    client.add_streams(tagged(talk, 0), ports=[0])
    talk.refused(client.add_streams, tagged(talk, 0), ports=[0])
    talk.refused(client.add_streams, tagged(talk, 2), ports=[0])
    client.clear_stats()
    client.start(ports=[0], force=True)
    client.wait_on_traffic(ports=[0], timeout=20)
    talk.settled(1, 20)
    client.get_tpg_stats(1, 0, 0, 2, unknown_tag=True, untagged=True)
    client.get_tpg_tx_stats(0, 0)
    client.get_tpg_unknown_tags(1)
    client.update_tpg_tags([{**vlan(7), "tag_id": 0}, {"type": None, "tag_id": 1}], clear=True)
    client.get_tpg_tags()
    client.get_tpg_stats(1, 0, 0, 2)
    client.clear_tpg_stats(1, 0, tag_list=[0], untagged=True)
    client.clear_tpg_tx_stats(0, 0)
    client.get_tpg_tx_stats(0, 0)
    client.clear_tpg_unknown_tags(1)
    client.remove_all_streams(ports=[0])
    client.disable_tpg()


def tagged(talk, group):
    """A burst of a tagged packet group in VLAN 5."""
    api = talk.api
    packet = api.Ether() / api.Dot1Q(vlan=5) / api.IP(src="16.0.0.1", dst="48.0.0.1")
    packet = api.STLPktBuilder(pkt=packet / api.UDP(sport=1025, dport=12) / (b"x" * 30))
    stats, mode = api.STLTaggedPktGroup(tpgid=group), api.STLTXSingleBurst(pps=1000, total_pkts=20)
    return api.STLStream(packet=packet, mode=mode, flow_stats=stats)


def owners(talk):
    """Two clients, attributes of ports, and refusals."""
    client = talk.client
    client.release()
    client.acquire(ports=[0])
    other = talk.other("bob")
    other.connect()
    talk.refused(other.acquire, ports=[0])
    other.acquire(ports=[1])
    other.acquire(ports=[0], force=True)
    other.set_port_attr(ports=[0, 1], promiscuous=True, multicast=True)
    other.get_port_info(ports=[0, 1])
    other.set_port_attr(ports=[0, 1], promiscuous=False, multicast=False)
    talk.refused(other.start, ports=[0])
    talk.refused(other.set_service_mode, ports=[7])
    other.get_server_version()
    other.get_server_system_info()
    other.disconnect()
    client.acquire(ports=[0, 1], force=True)


def services(talk):
    """Service mode, captures, receive queues, single packets, addresses, and a capture file that the
    server sends; on network interfaces."""
    api, client = talk.api, talk.client
    client.reset(ports=[0, 1])
    talk.refused(client.start_capture, rx_ports=[1])
    client.set_service_mode(ports=[0, 1])
    sent = client.start_capture(tx_ports=[0], limit=100, bpf_filter="udp port 12")
    came = client.start_capture(rx_ports=[1], limit=5, mode="cyclic", bpf_filter="udp port 12")
    client.set_rx_queue(ports=[1], size=8)
    burst = api.STLTXSingleBurst(pps=1000, total_pkts=10)
    client.add_streams(talk.stream(burst), ports=[0])
    client.start(ports=[0], force=True)
    client.wait_on_traffic(ports=[0], timeout=20)
    talk.settled(1, 10)
    time.sleep(0.5)
    client.get_capture_status()
    for capture, count in ((sent, 10), (came, 5)):
        packets = []
        client.stop_capture(capture["id"], packets)
        same("captured packets", len(packets), count)
    client.ports[1].sync()
    client.ports[1].get_rx_queue_pkts()
    client.push_packets([talk.packet(dport=13)], ports=[0])
    client.remove_rx_queue(ports=[1])
    client.ports[1].set_l3_mode("10.0.0.2", "10.0.0.1")
    client.ports[0].set_l3_mode("10.0.0.1", "10.0.0.2", "02:00:00:00:00:01")
    client.set_l2_mode(port=1, dst_mac="00:00:00:02:00:00")
    client.set_vlan(ports=[1], vlan=[100, 5])
    client.clear_vlan(ports=[1])
    client.conf_ipv6(port=0, enabled=True)
    client.conf_ipv6(port=0, enabled=False)
    commands = api.NSCmds()
    commands.add_node("02:00:00:00:07:01")
    commands.set_ipv4("02:00:00:00:07:01", "10.0.0.7", "10.0.0.2")
    commands.set_vlan("02:00:00:00:07:01", [7])
    client.set_namespace_start(0, commands)
    client.wait_for_async_results(0)
    client.set_namespace(0, method="get_nodes")
    client.set_namespace(0, method="get_nodes_info", macs_list=["02:00:00:00:07:01"])
    talk.refused(client.set_namespace, 0, method="add_shared_ns")
    client.namespace_remove_all(ports=[0])
    client.set_service_mode(ports=[0, 1], enabled=False)
    client.remove_all_streams(ports=[0])
    client.push_remote("four.pcap", ports=[0], ipg_usec=1000)
    client.wait_on_traffic(ports=[0], timeout=20)
    client.clear_stats()
    client.push_remote("both.erf", ports=[0], ipg_usec=1000, is_dual=True)
    client.wait_on_traffic(ports=[0], timeout=20)
    talk.settled(0, 3)
    client.get_stats()
    # A capture of what a port sends that sends already.
    client.add_streams(talk.stream(api.STLTXSingleBurst(pps=100, total_pkts=300)), ports=[0])
    client.clear_stats()
    with talk.recorder.traffic():
        client.start(ports=[0], force=True)
        client.set_service_mode(ports=[0])
        capture = client.start_capture(tx_ports=[0], limit=5, bpf_filter="udp port 12")
        talk.recorder.paused, until = True, time.monotonic() + 20
        while client.get_capture_status()[capture["id"]]["matched"] < 5:
            if time.monotonic() > until:
                raise Failed("nothing is captured of what port 0 sends")
            time.sleep(0.1)
        talk.recorder.paused = False
    client.get_capture_status()
    client.stop_capture(capture["id"], [])
    client.wait_on_traffic(ports=[0], timeout=20)
    talk.settled(1, 300)
    client.get_stats()
    client.disconnect()


def flows(talk):
    """A profile in fragments, started, updated, counted and stopped; latency streams."""
    client = talk.client
    client.reset()
    client.load_profile("astf/udp1.py")
    client.clear_stats()
    # The counters of the server do not change after flows have ended.
    with talk.recorder.traffic():
        client.start(mult=20, duration=1, latency_pps=100)
        client.update(10)
        client.wait_on_traffic(timeout=30)
        client.get_stats()
        client.get_latency_stats()
        client.get_tg_names()
        client.get_profiles()
        client.get_flow_info()
        client.load_profile("astf/udp1.py", pid_input="web")
        client.start(mult=5, duration=3600, pid_input="web", nc=True)
        client.get_stats(pid_input="web")
        talk.refused(client.start, mult=1, pid_input="none")
        client.stop(pid_input="web")
        client.start_latency(mult=10)
        client.update_latency(20)
        client.stop_latency()
        client.clear_profile(pid_input="web")
        client.set_ignored_macs_ips(ip_list=["16.0.0.9"])
        client.get_ignored_macs_ips()
        client.set_ignored_macs_ips()
        client.set_service_mode(enabled=False, filtered=True, mask=3)
        client.set_service_mode(enabled=False)
        client.reset()
        client.disconnect()


def topologies(talk):
    """Topologies of clients and of tunnels: sent in parts, read back, refused and cleared; records of
    tunnels, and latency in one of them, while flows are active."""
    from trex.astf.trex_astf_client import Tunnel
    from trex.astf.tunnels_topo import TunnelsTopo

    api, client = talk.api, talk.client
    number = lambda ip: int(ipaddress.ip_address(ip))
    client.reset()
    topology = api.ASTFTopology()
    topology.add_vif("0.1", "02:00:00:00:07:01", src_ipv4="5.5.5.5", vlan=7)
    for last in range(10):
        ip, port = f"16.0.0.{last}", "0.1" if last < 5 else "0"
        topology.add_gw(port, ip, ip, f"02:00:00:00:08:{last:02x}")
    client.topo_load(topology)
    client.topo_resolve()
    # The server knows this topology from the first part on.
    client.topo_resolve()
    other = talk.other("bob")
    other.connect()
    same("a topology that is read back", other.topo_mngr.get_merged_data(), topology.get_data())
    other.disconnect()
    talk.refused(client.activate_tunnel, loopback=True)
    client.load_profile("astf/udp1.py")
    with talk.recorder.traffic():
        client.start(mult=10, duration=3600, nc=True)
        talk.refused(client.topo_clear)
        client.stop()
    client.clear_profile()
    client.topo_clear()
    tunnels = TunnelsTopo()
    context = {"src_ip": "1.1.1.11", "dst_ip": "12.2.2.2", "sport": 5000, "version": 4}
    context |= {"teid_jump": 2, "tunnel_type": 1}
    for first in range(0, 256, 32):
        ips = [f"16.0.0.{last}" for last in (first, first + 31)]
        tunnels.add_tunnel_ctx(*ips, initial_teid=first * 100, activate=first < 224, **context)
    tunnels.add_tunnel_latency(0, "16.0.0.3", "48.0.0.7")
    talk.refused(client.tunnels_topo_load, tunnels)
    client.activate_tunnel(loopback=True)
    client.tunnels_topo_load(tunnels)
    client.tunnels_topo.sync_with_server()
    same("tunnels that are read back", client.tunnels_topo.get_data(), tunnels.get_data())
    talk.refused(client.tunnels_topo_load, tunnels)
    client.load_profile("astf/udp1.py")
    with talk.recorder.traffic():
        client.start(mult=20, duration=3600, latency_pps=100, nc=True)
        record = Tunnel("fd00::1", "fd00::2", 0, 99, 6)
        client.update_tunnel_client_record({number("16.0.0.1"): record}, 1)
        wrong = Tunnel("1.1.1.1", "fd00::2", 5000, 99, 4)
        talk.refused(client.update_tunnel_client_record, {number("16.0.0.1"): wrong}, 1)
        client.get_clients_info([number("16.0.0.1"), number("16.0.0.224"), number("16.0.1.0")])
        client.set_client_enable([number("16.0.0.224")], True)
        client.get_clients_info_range(number("16.0.0.223"), number("16.0.0.225"))
        talk.refused(client.tunnels_topo_clear)
        talk.refused(client.activate_tunnel, activate=False)
        client.stop()
        client.get_stats()
        client.reset()
        client.tunnels_topo_clear()
        client.activate_tunnel(activate=False)
        record = Tunnel("1.1.1.1", "2.2.2.2", 5000, 1, 4)
        talk.refused(client.update_tunnel_client_record, {number("16.0.0.1"): record}, 1)
        client.disconnect()


FRAME = bytes.fromhex("000000020000000000010000080045") + bytes(45)
# The mode, the ports, files of the daemon, and the parts.
LOOP = ["loop:trex", "loop:trex"]
CONVERSATIONS = {
    "stl": ("stl", LOOP, [streams, tags, owners, control]),
    "services": ("stl", VETH, [services]),
    "astf": ("astf", LOOP, [flows]),
    "topologies": ("astf", LOOP, [topologies]),
}


def record(folder, name, api, zmq):
    mode, ports, parts = CONVERSATIONS[name]
    files = {
        "four.pcap": capture_file([FRAME] * 4),
        "both.erf": erf_file([0, 1, 1, 0, 1]),
    }
    with daemon(folder, mode, ports=ports):
        for file, octets in files.items():
            (folder / "data/files" / file).write_bytes(octets)
        recorder = Recorder(zmq)
        try:
            talk = Talk(api, recorder, folder, mode)
            for part in parts:
                part(talk)
        finally:
            recorder.end()
    head = {"mode": mode, "ports": ports}
    if ports is VETH:
        head["files"] = {name: base64.b64encode(octets).decode() for name, octets in files.items()}
    return [head, *recorder.exchanges]


def inside(folder, argv):
    library = unpack(folder)
    os.chdir(folder / "trex")
    sys.path.insert(0, str(library))
    for name in argv or CONVERSATIONS:
        if CONVERSATIONS[name][0] == "astf":
            from trex.astf import api
        else:
            from trex.stl import api
        import zmq

        lines = [json.dumps(line, sort_keys=True) for line in record(folder, name, api, zmq)]
        (TO / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
        print(f"{name}: {len(lines)} exchanges, {sum(map(len, lines)):,} octets")
    return 0


if __name__ == "__main__":
    if not has_client():
        sys.exit(0)
    sys.exit(in_a_lab(SQUALL, __file__, inside))

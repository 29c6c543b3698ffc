"""Fixtures of the tests of Open Traffic Generator: clients over both transports, and a pair of
interfaces.

They run inside a lab (tests/otg/run makes it, with a daemon in it): veth-a is port p1, veth-b port
p2.
"""

import collections
import os
import struct
import time
import zlib

import pytest
import snappi

HTTPS, GRPC = os.environ.get("OTG_HTTPS"), os.environ.get("OTG_GRPC")


@pytest.fixture(scope="session", params=["https", "grpc"])
def api(request):
    """A stock client."""
    if not HTTPS:
        pytest.fail("there is no daemon: use tests/otg/run")
    if request.param == "https":
        made = snappi.api(location=HTTPS, verify=False, version_check=True)
    else:
        made = snappi.api(location=GRPC, transport="grpc", version_check=True)
        made.request_timeout = 30
    yield made
    made.set_config(made.config())  # the ports are free for the other transport
    made.close()


@pytest.fixture
def otg(api):
    """Clients and steps for a test; stops all traffic after it."""
    made = Otg(api)
    yield made
    made.transmit("stop")


@pytest.fixture(scope="session")
def shared(api):
    """As `otg`, for runs that several tests examine."""
    return Otg(api)


Frame = collections.namedtuple("Frame", "time_ns octets length")


class Otg:
    """The steps that tests share."""

    def __init__(self, api):
        self.api = api

    def config(self, capture=False):
        """Return a configuration with two ports, and optionally a capture on the second one."""
        config = self.api.config()
        config.ports.add(name="p1", location="veth-a")
        config.ports.add(name="p2", location="veth-b")
        if capture:
            config.captures.add(name="all", port_names=["p2"], format="pcap")
        return config

    def flow(self, config, name="f", packets=10, pps=2000, size=100, metrics=True):
        """Add a flow from p1 to p2."""
        flow = config.flows.add(name=name)
        flow.tx_rx.port.tx_name = "p1"
        flow.tx_rx.port.rx_names = ["p2"]
        flow.size.fixed = size
        flow.rate.pps = pps
        if packets:
            flow.duration.fixed_packets.packets = packets
        flow.metrics.enable = metrics
        return flow

    def transmit(self, state, *names):
        control = self.api.control_state()
        control.traffic.flow_transmit.state = state
        if names:
            control.traffic.flow_transmit.flow_names = list(names)
        return self.api.set_control_state(control)

    def capture(self, state, *ports):
        control = self.api.control_state()
        control.port.capture.state = state
        control.port.capture.port_names = list(ports) or ["p2"]
        return self.api.set_control_state(control)

    def flows(self, *names, **request):
        asked = self.api.metrics_request()
        asked.flow.flow_names = list(names)
        for key, value in request.items():
            setattr(asked.flow, key, value)
        return {metric.name: metric for metric in self.api.get_metrics(asked).flow_metrics}

    def ports(self, *names):
        asked = self.api.metrics_request()
        asked.port.port_names = list(names)
        return {metric.name: metric for metric in self.api.get_metrics(asked).port_metrics}

    def until(self, good, what, timeout_s=60):
        """Wait until `good` returns a true value, and return that value."""
        deadline = time.monotonic() + timeout_s
        while True:
            found = good()
            if found:
                return found
            assert time.monotonic() < deadline, f"waited {timeout_s} s until {what}"
            time.sleep(0.05)

    def finished(self, *names):
        """Return metrics of flows, once they have sent everything and their frames have arrived."""

        def over():
            found = self.flows(*names)
            return found if found and all(m.transmit == "stopped" for m in found.values()) else None

        self.until(over, "the flows stop")
        return self.settled(*names)

    def settled(self, *names):
        """Return metrics of flows, once all sent frames have arrived, or none has arrived for
        1.8 s: on a busy machine the receiver is late."""
        before, same = None, 0
        for _ in range(100):
            found = self.flows(*names)
            counts = [(m.frames_tx, m.frames_rx) for m in found.values()]
            same = same + 1 if counts == before else 0
            if same >= 15 or (same >= 1 and all(sent == came for sent, came in counts)):
                break
            before = counts
            time.sleep(0.12)
        return found

    def run(self, config):
        """Send everything, with a capture on p2. Return metrics and frames."""
        self.api.set_config(config)
        self.capture("start")
        self.transmit("start")
        metrics = self.finished()
        self.capture("stop")
        return metrics, self.frames()

    def frames(self, port="p2"):
        request = self.api.capture_request()
        request.port_name = port
        return frames(self.api.get_capture(request).read())


def frames(octets):
    """Return the frames of a pcap, with their FCS. Checks that each is intact."""
    magic = struct.unpack_from("<I", octets)[0]
    assert magic in (0xA1B2C3D4, 0xA1B23C4D), hex(magic)
    unit = 1 if magic == 0xA1B23C4D else 1000
    found, at = [], 24
    while at < len(octets):
        seconds, part, kept, length = struct.unpack_from("<IIII", octets, at)
        frame = octets[at + 16 : at + 16 + kept]
        assert len(frame) == kept, "the capture is cut off"
        if kept == length:
            assert zlib.crc32(frame[:-4]) == int.from_bytes(frame[-4:], "little"), (
                "the FCS is wrong"
            )
        found.append(Frame(seconds * 10**9 + part * unit, frame, length))
        at += 16 + kept
    return found


def mac(number):
    return f"02:00:00:00:00:{number:02x}"


def from_mac(found, number):
    """Return the frames sent from mac(number), in order."""
    wanted = bytes.fromhex(mac(number).replace(":", ""))
    return [frame for frame in found if frame.octets[6:12] == wanted]


def interface(name, field):
    """Return a kernel counter of an interface: rx_packets, tx_packets, rx_bytes, tx_bytes."""
    columns = {"rx_bytes": 0, "rx_packets": 1, "tx_bytes": 8, "tx_packets": 9}
    with open("/proc/self/net/dev") as lines:
        for line in lines:
            if line.strip().startswith(f"{name}:"):
                return int(line.split(":")[1].split()[columns[field]])
    raise KeyError(name)


def refused(call):
    """Return the error that a call raises."""
    with pytest.raises(Exception) as caught:
        call()
    error = caught.value.args[0]
    assert hasattr(error, "errors"), repr(caught.value)
    return error

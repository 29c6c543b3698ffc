"""snappi's own objects, with the engine in this process, on links in memory."""

import io
import struct
from typing import Any

import pytest
import snappi

from conftest import Address, until


@pytest.fixture
def api() -> Any:
    return snappi.api(ext="squall")


def two_ports(address: str, packets: int = 100) -> Any:
    config = snappi.Config()
    config.ports.port(name="p1", location=address).port(name="p2", location=address)
    flow = config.flows.flow(name="f1")[-1]
    flow.tx_rx.port.tx_name, flow.tx_rx.port.rx_names = "p1", ["p2"]
    flow.size.fixed = 128
    flow.rate.pps = 5000
    flow.duration.fixed_packets.packets = packets
    flow.metrics.enable = flow.metrics.loss = flow.metrics.timestamps = (
        flow.metrics.latency.enable
    ) = True
    eth, ip, udp = flow.packet.ethernet().ipv4().udp()
    eth.src.value, eth.dst.value = "00:00:00:00:00:01", "00:00:00:00:00:02"
    ip.src.value, ip.dst.values = "10.0.0.1", ["10.0.0.2", "10.0.0.3"]
    udp.dst_port.increment.start = 5000
    udp.dst_port.increment.count = 10
    return config


def transmit(api: Any, state: str, names: list[str] | None = None) -> Any:
    control = snappi.ControlState()
    control.traffic.flow_transmit.state = state
    if names:
        control.traffic.flow_transmit.flow_names = names
    return api.set_control_state(control)


def capture(api: Any, state: str) -> None:
    control = snappi.ControlState()
    control.port.capture.state = state
    api.set_control_state(control)


def flow_metrics(api: Any) -> Any:
    request = snappi.MetricsRequest()
    request.flow.flow_names = []
    return api.get_metrics(request).flow_metrics


def test_a_flow_arrives_and_is_measured(api: Any, loop: Address) -> None:
    assert api.set_config(two_ports(loop())).warnings == []
    transmit(api, "start")
    until(
        lambda: flow_metrics(api)[0].transmit == "stopped" and flow_metrics(api)[0].frames_rx == 100
    )
    metric = flow_metrics(api)[0]
    assert (metric.frames_tx, metric.bytes_rx, metric.loss) == (100, 12800, 0)
    assert metric.latency.minimum_ns <= metric.latency.average_ns <= metric.latency.maximum_ns
    assert isinstance(metric.timestamps.first_timestamp_ns, int | float)
    request = snappi.MetricsRequest()
    request.port.port_names = ["p2"]
    ports = api.get_metrics(request).port_metrics
    assert [(p.name, p.frames_tx, p.frames_rx) for p in ports] == [("p2", 0, 100)]


def test_a_capture_has_the_frames_with_fcs(api: Any, loop: Address) -> None:
    config = two_ports(loop(), packets=5)
    config.captures.capture(name="c", port_names=["p2"], format="pcap")
    api.set_config(config)
    capture(api, "start")
    transmit(api, "start")
    until(lambda: flow_metrics(api)[0].frames_rx == 5)
    transmit(api, "stop")
    capture(api, "stop")
    request = snappi.CaptureRequest()
    request.port_name = "p2"
    octets = api.get_capture(request)
    assert isinstance(octets, io.BytesIO)
    file = octets.read()
    assert struct.unpack("<I", file[:4]) == (0xA1B2C3D4,)
    assert len(file) == 24 + 5 * (16 + 128)


def test_requests_may_be_text_and_get_config_returns_the_config(api: Any, loop: Address) -> None:
    config = two_ports(loop())
    api.set_config(config.serialize())
    config_of = api.get_config()
    assert config_of.ports[0].location == config.ports[0].location
    assert config_of.flows[0].packet[2].dst_port.increment.count == 10
    assert api.get_metrics('{"choice": "flow"}').flow_metrics[0].frames_tx == 0
    append = snappi.ConfigAppend()
    other = config.flows[0].clone()
    other.name = "f2"
    append.config_append_list.add().flows.append(other)
    api.append_config(append)
    assert [flow.name for flow in api.get_config().flows] == ["f1", "f2"]
    delete = snappi.ConfigDelete()
    delete.config_delete_list.add().flows = ["f1"]
    api.delete_config(delete)
    assert [flow.name for flow in api.get_config().flows] == ["f2"]
    update = snappi.ConfigUpdate()
    update.flows.property_names = ["rate"]
    other.rate.pps = 7
    update.flows.flows.append(other)
    api.update_config(update)
    assert api.get_config().flows[0].rate.pps == 7


def test_a_refusal_is_snappis_error(api: Any, loop: Address) -> None:
    config = two_ports(loop())
    config.flows[0].tx_rx.port.tx_name = "p9"
    with pytest.raises(Exception, match="p9") as refused:
        api.set_config(config)
    error = refused.value.args[0]
    assert isinstance(error, snappi.Error)
    assert (error.code, error.kind) == (400, "validation")


def test_the_version_is_one_that_snappi_takes() -> None:
    api = snappi.api(ext="squall", version_check=True)
    api.set_config(snappi.Config())
    assert api.get_version().app_version


def test_flows_start_and_stop_by_name(api: Any, loop: Address) -> None:
    config = two_ports(loop())
    other = config.flows[0].clone()
    other.name = "f2"
    other.duration.choice = "continuous"
    config.flows.append(other)
    api.set_config(config)
    transmit(api, "start", ["f2"])
    until(lambda: flow_metrics(api)[1].frames_rx > 10)
    assert flow_metrics(api)[0].frames_tx == 0
    transmit(api, "start", ["f1"])
    until(
        lambda: flow_metrics(api)[0].transmit == "stopped" and flow_metrics(api)[0].frames_rx == 100
    )
    assert flow_metrics(api)[1].transmit == "started"
    transmit(api, "stop")
    assert flow_metrics(api)[1].transmit == "stopped"

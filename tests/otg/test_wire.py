"""The wire protocols: messages that no stock client sends, and the sessions of connections."""

import email
import json
import re
from importlib import metadata

import grpc
import pytest
import requests
import snappi
from conftest import GRPC, HTTPS, refused
from snappi import otg_pb2

requests.packages.urllib3.disable_warnings()


def post(path, body, **headers):
    headers = {"content-type": "application/json", **headers}
    return requests.post(HTTPS + path, data=body, headers=headers, verify=False, timeout=60)


@pytest.fixture(scope="module")
def channel():
    with grpc.insecure_channel(GRPC) as opened:
        yield opened


def call(channel, method, octets, **options):
    return channel.unary_unary(f"/otg.Openapi/{method}")(octets, timeout=30, **options)


def grpc_error(channel, method, octets, **options):
    with pytest.raises(grpc.RpcError) as caught:
        call(channel, method, octets, **options)
    return caught.value


def test_errors_of_malformed_json_name_the_place():
    reply = post("/config", '{"ports": [')
    assert reply.status_code == 400
    error = reply.json()
    assert (error["code"], error["kind"]) == (400, "validation") and "line 1" in error["errors"][0]


def test_errors_of_unknown_fields_and_wrong_types_name_their_paths():
    reply = post(
        "/config", json.dumps({"flows": [{"name": "f", "rat": {}, "size": {"fixed": "big"}}]})
    )
    assert reply.status_code == 400
    messages = "\n".join(reply.json()["errors"])
    assert "flows[0].rat" in messages and "flows[0].size.fixed" in messages


def test_a_body_that_is_too_large_is_refused_before_it_is_read():
    def body():
        for _ in range(70):
            yield b" " * (1 << 20)

    try:
        assert post("/config", body()).status_code == 413
    except requests.exceptions.ConnectionError:
        pass  # the server closed the connection during the request
    assert requests.get(HTTPS + "/capabilities/version", verify=False, timeout=10).ok


def test_a_path_that_is_not_of_the_schema_is_not_found():
    assert post("/monitor/nothing", "{}").status_code == 404
    assert requests.delete(HTTPS + "/config", verify=False, timeout=10).status_code == 405


def test_malformed_protobuf_is_refused(channel):
    for octets in (b"\x0a\xff", b"\x0a\x02\x0a\x05", b"\xff" * 40):
        error = grpc_error(channel, "SetConfig", octets)
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert json.loads(error.details())["kind"] == "validation"


def test_a_call_that_is_not_of_the_service_is_unimplemented(channel):
    assert grpc_error(channel, "Nothing", b"").code() == grpc.StatusCode.UNIMPLEMENTED


def test_compressed_messages_are_read(channel):
    config = otg_pb2.Config(ports=[otg_pb2.Port(name="p", location="null:")])
    request = otg_pb2.SetConfigRequest(config=config).SerializeToString()
    call(channel, "SetConfig", request, compression=grpc.Compression.Gzip)
    reply = otg_pb2.GetConfigResponse.FromString(call(channel, "GetConfig", b""))
    assert reply.config == config


def test_many_errors_fit_into_a_status(channel):
    flows = [otg_pb2.Flow(name=f"flow {'x' * 40} {n}") for n in range(200)]
    octets = otg_pb2.SetConfigRequest(config=otg_pb2.Config(flows=flows)).SerializeToString()
    error = grpc_error(channel, "SetConfig", octets)
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert json.loads(error.details())["errors"][-1].startswith("and ")


def test_configs_and_replies_go_in_pieces():
    api = snappi.api(location=GRPC, transport="grpc")
    api.enable_grpc_streaming = True
    api._chunk_size = 100
    config = api.config()
    for number in range(50):
        config.ports.add(name=f"port {number}", location=f"loop:{900 + number}")
    api.set_config(config)
    assert api.get_config().serialize("dict") == config.serialize("dict")
    asked = api.metrics_request()
    asked.port.port_names = []
    assert len(api.get_metrics(asked).port_metrics) == 50
    api.set_config(api.config())
    api.close()


def test_sessions_have_configs_of_their_own():
    made = [snappi.api(location=f"{HTTPS}/otg/{name}") for name in ("alice", "bob")]
    for number, api in enumerate(made):
        config = api.config()
        config.ports.add(name=f"mine {number}", location=f"loop:{800 + number}")
        api.set_config(config)
    assert [api.get_config().ports[0].name for api in made] == ["mine 0", "mine 1"]


def test_a_port_that_another_session_has_is_refused_until_it_is_given_back():
    alice, bob = (snappi.api(location=f"{HTTPS}/otg/{name}") for name in ("alice", "bob"))
    config = alice.config()
    config.ports.add(name="p", location="veth-a")
    alice.set_config(config)
    messages = "".join(refused(lambda: bob.set_config(config)).errors)
    assert "veth-a" in messages and "alice" in messages
    alice.set_config(alice.config())
    bob.set_config(config)
    bob.set_config(bob.config())


def test_a_session_of_grpc_is_named_by_metadata(channel):
    config = otg_pb2.Config(ports=[otg_pb2.Port(name="hers", location="loop:777")])
    request = otg_pb2.SetConfigRequest(config=config).SerializeToString()
    call(channel, "SetConfig", request, metadata=[("squall-session", "carol")])
    assert snappi.api(location=f"{HTTPS}/otg/carol").get_config().ports[0].name == "hers"


def test_the_quick_start_of_snappis_readme_runs():
    """The example runs as PyPI shows it, except for the daemon's address. It calls transmit_state,
    which snappi has replaced by control_state without changing its README, so the client gets the
    two old names again."""
    readme = email.message_from_string(
        metadata.distribution("snappi").read_text("METADATA")
    ).get_payload()
    (script,) = re.findall(r"```python\n(.*?def test_quickstart.*?)```", readme, re.DOTALL)
    assert script.count("https://localhost:8443") == 1
    script = script.replace("https://localhost:8443", HTTPS)

    class State:
        START = "start"

    def set_transmit_state(api, state):
        control = api.control_state()
        control.traffic.flow_transmit.state = state.state
        return api.set_control_state(control)

    space = {"__name__": "quickstart"}
    old = (
        {}
        if hasattr(snappi.Api, "transmit_state")
        else {"transmit_state": lambda _: State(), "set_transmit_state": set_transmit_state}
    )
    for name, what in old.items():
        setattr(snappi.Api, name, what)
    try:
        exec(compile(script, "README.md", "exec"), space)
        space["test_quickstart"]()
        api = snappi.api(location=HTTPS)
        asked = api.metrics_request()
        asked.flow.flow_names = ["flow"]
        assert api.get_metrics(asked).flow_metrics[0].frames_tx == 100
        api.set_config(api.config())
    finally:
        for name in old:
            delattr(snappi.Api, name)

"""The class that ``snappi.api(ext="squall")`` instantiates."""

import io
import json
from collections.abc import Callable
from typing import Any, TypeVar

import snappi
from squall._native import Otg

from ._errors import Refused

T = TypeVar("T")


class Api(snappi.Api):  # type: ignore[misc]  # snappi has no types
    """Squall in this process. Payloads are snappi objects, or their JSON or YAML.

    Every method raises an ``Exception`` with a ``snappi.Error``, as over HTTP. ``location`` and
    other arguments of ``snappi.api()`` for a server are ignored.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._otg = Otg()

    def set_config(self, payload: Any) -> Any:
        return self._reply(self.warning(), self._otg.set_config, snappi.Config, payload)

    def get_config(self) -> Any:
        self._do_version_check_once()
        return self.config().deserialize(json.loads(self._call(self._otg.get_config)))

    def append_config(self, payload: Any) -> Any:
        return self._reply(self.warning(), self._otg.append_config, snappi.ConfigAppend, payload)

    def update_config(self, payload: Any) -> Any:
        return self._reply(self.warning(), self._otg.update_config, snappi.ConfigUpdate, payload)

    def delete_config(self, payload: Any) -> Any:
        return self._reply(self.warning(), self._otg.delete_config, snappi.ConfigDelete, payload)

    def set_control_state(self, payload: Any) -> Any:
        return self._reply(
            self.warning(), self._otg.set_control_state, snappi.ControlState, payload
        )

    def set_control_action(self, payload: Any) -> Any:
        return self._reply(
            self.control_action_response(),
            self._otg.set_control_action,
            snappi.ControlAction,
            payload,
        )

    def get_metrics(self, payload: Any) -> Any:
        return self._reply(
            self.metrics_response(), self._otg.get_metrics, snappi.MetricsRequest, payload
        )

    def get_states(self, payload: Any) -> Any:
        return self._reply(
            self.states_response(), self._otg.get_states, snappi.StatesRequest, payload
        )

    def get_capture(self, payload: Any) -> io.BytesIO:
        self._do_version_check_once()
        return io.BytesIO(
            self._call(self._otg.get_capture, _message(snappi.CaptureRequest, payload))
        )

    def get_version(self) -> Any:
        return self.version().deserialize(json.loads(self._call(self._otg.get_version)))

    def _reply(self, reply: Any, method: Callable[[str], str], request: Any, payload: Any) -> Any:
        self._do_version_check_once()
        return reply.deserialize(json.loads(self._call(method, _message(request, payload))))

    def _call(self, method: Callable[..., T], *args: str) -> T:
        try:
            return method(*args)
        except Refused as refused:
            error = snappi.Error()
            error.code, error.kind, error.errors = refused.code, refused.kind, refused.errors
            raise Exception(error) from None


def _message(request: Any, payload: Any) -> str:
    """Return the payload as JSON. Text must describe a `request`; snappi validates it."""
    message = request().deserialize(payload) if isinstance(payload, str) else payload
    return json.dumps(message.serialize(message.DICT))

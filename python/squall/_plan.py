"""Plans: the frames that a session would send, without sending."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from . import _native
from ._values import ByName, Streams, read

__all__ = ["Plan", "PlanFrame", "PlanPort", "PlanStream", "PlanWorker"]


@dataclass(frozen=True)
class PlanPort:
    """A port name and its address."""

    name: str
    address: str


@dataclass(frozen=True)
class PlanStream:
    """A stream as it would be sent.

    Attributes
    ----------
    asked_pps : float or None
        Mean frames per second while active, including the session's multiplier; None for ``max``.
    mean_size : float
        Octets with FCS.
    packets : int or None
        Frames in total, each time the stream runs; None: endless.
    start_ns : int
        Delay from the start of the run, or from the end of the previous stream of a chain.
    self_start : bool
        False: started by another stream.
    latency : bool
        Whether its frames are signed.
    variables : int
        Fields that change from frame to frame.
    workers : tuple of int
        The workers that send it, as indexes of `Plan.workers`.
    """

    name: str
    port: str
    group: str | None
    asked_pps: float | None
    mean_size: float
    packets: int | None
    start_ns: int
    self_start: bool
    latency: bool
    variables: int
    workers: tuple[int, ...]


@dataclass(frozen=True)
class PlanWorker:
    """A worker thread, on a CPU core of its own.

    Attributes
    ----------
    tx, rx : tuple of (str, int)
        Ports and queues on which it sends and receives.
    cpu : int or None
        The CPU that it is bound to; None: the system schedules it.
    """

    tx: tuple[tuple[str, int], ...]
    rx: tuple[tuple[str, int], ...]
    cpu: int | None


@dataclass(frozen=True)
class PlanFrame:
    """A frame that would be sent.

    Attributes
    ----------
    stream : str
        Name of its stream.
    index : int
        Number in its stream, 0-based.
    due_ns : int
        Time since the start of the run.
    octets : bytes
        The frame without FCS. A signature holds the due time in place of the departure time.
    summary : str
        The frame as decoded by ``tcpdump -n``.
    """

    stream: str
    index: int
    due_ns: int
    octets: bytes
    summary: str

    def __bytes__(self) -> bytes:
        return self.octets


@dataclass(frozen=True)
class Plan:
    """The plan of a session: the frames that it would send. No port is left open, and nothing is
    sent.

    Attributes
    ----------
    seed : int
    duration_s, packets, octets : number or None
        The limits of the run; whichever is reached first ends it.
    virtual_time : bool
        The run takes as little time as the machine allows, and its timestamps are deterministic.
    ports : ByName of PlanPort
    streams : ByName of PlanStream
    workers : tuple of PlanWorker
    notes : tuple of str
        Notes for the user: a rate that was replaced, a core without work.

    Examples
    --------
    >>> import squall
    >>> profile = squall.Profile(ports={"A": "loop:plan,virtual"})
    >>> profile.add(squall.Stream(name="web", packet="eth/ipv4/udp", rate="1 Mpps", mode={"burst": 10}))
    >>> plan = squall.Session(profile).plan()
    >>> plan.streams["web"].asked_pps, plan.streams["web"].mean_size, plan.streams["web"].packets
    (1000000.0, 64.0, 10)
    >>> [(frame.stream, frame.index, frame.due_ns, len(frame.octets)) for frame in plan.frames(3)]
    [('web', 0, 0, 60), ('web', 1, 1000, 60), ('web', 2, 2000, 60)]
    """

    seed: int
    duration_s: float | None
    packets: int | None
    octets: int | None
    virtual_time: bool
    ports: ByName[PlanPort]
    streams: Streams[PlanStream]
    workers: tuple[PlanWorker, ...]
    notes: tuple[str, ...]
    _inner: _native.Plan = field(init=False, repr=False, compare=False)

    @classmethod
    def _from(cls, native: _native.Plan) -> Plan:
        plan = read(cls, json.loads(native.to_json()))
        object.__setattr__(plan, "_inner", native)
        return plan

    def frames(self, count: int) -> list[PlanFrame]:
        """Return the first `count` frames in order of departure; fewer if the plan has fewer.

        Streams at maximum rate take turns at time 0; streams started by other streams are not
        included.
        """
        return [
            PlanFrame(self.streams[stream].name, index, due_ns, octets, summary)
            for stream, index, due_ns, octets, summary in self._inner.frames(count)
        ]

    def summary(self, frames: int = 10, *, hex: bool = False) -> str:
        """Return the text of ``squall plan``: ports, workers, streams, flows, and the first
        `frames` frames decoded, with their octets if `hex`.
        """
        return self._inner.summary(frames, hex)

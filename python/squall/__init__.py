"""Generate and measure network traffic from Python.

Everything is decided by the engine in Rust; this package converts what goes in and what comes out.

>>> import squall
>>> profile = squall.Profile(ports={"A": "loop:squall,virtual"})
>>> profile.add(squall.Stream(name="web", packet="eth/ipv4/udp", rate="1 Mpps", mode={"burst": 1000}, latency=True))
>>> report = squall.run(profile)
>>> report.ports["A"].tx.packets, report.streams["web"].rx.lost
(1000, 0)

A packet may be one of scapy, or any other object whose ``bytes()`` is a frame. Histograms and series are numpy arrays.
"""

from ._capture import capture
from ._errors import Diagnostic, Error, PortError, ProfileError, UnknownStream
from ._info import (
    ChecksumCount,
    FileFault,
    FileInfo,
    FlowRow,
    Flows,
    HostShare,
    Info,
    InterfaceInfo,
    LengthBin,
    Lengths,
    Order,
    PortShare,
    ProtocolShare,
    Traffic,
    TrafficSeries,
    info,
)
from ._native import __version__
from ._plan import Plan, PlanFrame, PlanPort, PlanStream, PlanWorker
from ._profile import Profile, Stream, Vary, vary
from ._report import (
    Bursts,
    CaptureFile,
    CaptureReport,
    Cpu,
    Distribution,
    EqualBins,
    FlowReport,
    FlowsReport,
    Host,
    InterfaceReport,
    Memory,
    Patterns,
    PortReport,
    PortSample,
    PortSeries,
    Reason,
    Report,
    RestReport,
    RxReport,
    Sample,
    SequenceReport,
    Series,
    SourceReport,
    StreamReport,
    StreamRx,
    StreamSample,
    StreamSeries,
    TxReport,
    Verdict,
    WorkerReport,
)
from ._session import Interrupted, Run, Session, recv, run, send
from ._values import ByName

__all__ = [
    "Bursts",
    "ByName",
    "CaptureFile",
    "CaptureReport",
    "ChecksumCount",
    "Cpu",
    "Diagnostic",
    "Distribution",
    "EqualBins",
    "Error",
    "FileFault",
    "FileInfo",
    "FlowReport",
    "FlowRow",
    "Flows",
    "FlowsReport",
    "Host",
    "HostShare",
    "Info",
    "InterfaceInfo",
    "InterfaceReport",
    "Interrupted",
    "LengthBin",
    "Lengths",
    "Memory",
    "Order",
    "Patterns",
    "Plan",
    "PlanFrame",
    "PlanPort",
    "PlanStream",
    "PlanWorker",
    "PortError",
    "PortReport",
    "PortSample",
    "PortSeries",
    "PortShare",
    "Profile",
    "ProfileError",
    "ProtocolShare",
    "Reason",
    "Report",
    "RestReport",
    "Run",
    "RxReport",
    "Sample",
    "SequenceReport",
    "Series",
    "Session",
    "SourceReport",
    "Stream",
    "StreamReport",
    "StreamRx",
    "StreamSample",
    "StreamSeries",
    "Traffic",
    "TrafficSeries",
    "TxReport",
    "UnknownStream",
    "Vary",
    "Verdict",
    "WorkerReport",
    "__version__",
    "capture",
    "info",
    "recv",
    "run",
    "send",
    "vary",
]

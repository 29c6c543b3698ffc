"""Results. The fields are those of ``schemas/report.schema.json``; units are in the names, octets
are L2 with FCS.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from . import _native
from ._errors import printable
from ._values import Arrays, ByName, Figures, Streams, read

__all__ = [
    "Bursts",
    "BusiestSecond",
    "CaptureFile",
    "CaptureReport",
    "CaptureSample",
    "CaptureSeries",
    "Cpu",
    "Distribution",
    "EqualBins",
    "FlowReport",
    "FlowsReport",
    "Host",
    "InterfaceReport",
    "LinkEvent",
    "Memory",
    "Patterns",
    "PortReport",
    "PortSample",
    "PortSeries",
    "Reason",
    "Report",
    "RestReport",
    "RxReport",
    "Sample",
    "SequenceReport",
    "Series",
    "SourceReport",
    "SteadyReport",
    "StreamReport",
    "StreamRx",
    "StreamSample",
    "StreamSeries",
    "TemplateSample",
    "TemplateSeries",
    "TxReport",
    "Verdict",
    "WorkerReport",
]

Counts = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float64]
S = TypeVar("S")


@dataclass(frozen=True)
class Host:
    """The machine that the run was on."""

    name: str
    os: str
    kernel: str
    cpu_model: str
    cpus: int


@dataclass(frozen=True)
class Reason:
    """Why a run is not valid.

    Attributes
    ----------
    code : str
        ``generator-bound``, ``starved``, ``burst``, ``not-done``, ``one-sided``, ``link-down``,
        ``port-bound``, ``port-refused``, ``port-lost``, ``receiver-bound``, ``counters-differ`` or
        ``clocks-differ``.
    text : str
        What it is about, with figures.
    hint : str
        What to try; empty where nothing is known.
    """

    code: str
    text: str
    hint: str

    def __str__(self) -> str:
        return printable(f"{self.code}: {self.text}" + (f"; try: {self.hint}" if self.hint else ""))


@dataclass(frozen=True)
class Verdict:
    """The generator's audit of itself.

    Attributes
    ----------
    status : str
        ``valid``, ``not-valid``, or ``interrupted``: as valid for what ran, stopped before the end
        that was asked for.
    valid : bool
        Whether `status` is ``valid``: the generator offered what was asked for, and no counter
        disagrees with another.
    ended_by : str
        ``done``, ``duration``, ``packets``, ``octets``, ``stopped``, ``sigint``, ``sigterm``,
        ``sighup``, ``killed``; ``running`` while it runs.
    reasons : tuple of Reason
        Why it is not valid.
    """

    status: str
    valid: bool
    ended_by: str
    reasons: tuple[Reason, ...]


@dataclass(frozen=True)
class Asked:
    """The end of a run as it was asked for; None: none was.

    Attributes
    ----------
    duration_s : float or None
        Seconds.
    packets, octets : int or None
        On all ports together; octets with FCS.
    """

    duration_s: float | None
    packets: int | None
    octets: int | None


@dataclass(frozen=True)
class Excess:
    """The window in which most was offered beyond the profile's own law.

    Attributes
    ----------
    window_s : float
        Windows of this length, up to twice as long, were looked at: 10 ms, or 10 gaps of a slower
        source.
    at_s, over_s : float
        When the worst one begins, since the start, and its length.
    packets, surplus_packets : int
        What left in it, and how much of that is beyond what was due in such a time.
    beyond_s, allowed_s : float
        Schedule that left in it less its length, and how much of that is allowed.
    largest_burst_packets : int
        Most that left within 1 ms beyond what was due in it.
    """

    window_s: float
    at_s: float
    over_s: float
    packets: int
    surplus_packets: int
    beyond_s: float
    allowed_s: float
    largest_burst_packets: int


@dataclass(frozen=True)
class SourceRecord:
    """What was asked of a source of traffic, and what it did: the streams of a port, its replay,
    the flows of a template.

    Attributes
    ----------
    name : str
        The port's or the template's.
    kind : str
        ``streams``, ``replay``, ``flows`` or ``attacks``.
    ports : tuple of str
        The ports that it sends by.
    unit : str
        What its counts are of: ``packets`` or ``flows``.
    asked, sent : int
        Due until the run ended; taken by the port, or begun.
    not_sent : dict
        Due and not sent, by reason.
    not_sent_ratio : float
        Of those that were due, 0 to 1.
    asked_rate : float or None
        A second; None where the port, a capture or a closed loop decides.
    unpaced : bool
        It sends as fast as the port goes.
    rate : float
        Sent a second, over the run.
    completed : int or None
        Flows that ended as they should.
    failed : dict
        Flows that did not, by reason.
    late_p99_ns, late_max_ns : int or None
        Actual minus due instant of departure.
    excess : Excess or None
        Where most left beyond what the profile asked for; None where there is no schedule.
    lag_s, moved_s : float
        By how much the schedule was behind in the end, and all that stalls moved it by, regained or
        not.
    starved_s, longest_stall_s : float
        Time in which the sending thread wanted to run and did not, and the longest part of it.
    blocked_s, sending_s : float
        The port took no frames though some were due; it was taking them.
    unread_s : float
        For so long before the end captures had not been read in time.
    fault : str or None
        Why a capture could not be read to its end.
    one_sided : int
        Conversations of a capture that is played, of which it has one direction only.
    ended_by : str
        As of the verdict, or ``port-lost``.
    """

    name: str
    kind: str
    ports: tuple[str, ...]
    unit: str
    asked: int
    sent: int
    not_sent: dict[str, int]
    not_sent_ratio: float
    asked_rate: float | None
    unpaced: bool
    rate: float
    completed: int | None
    failed: dict[str, int]
    late_p99_ns: int | None
    late_max_ns: int | None
    excess: Excess | None
    lag_s: float
    moved_s: float
    starved_s: float
    longest_stall_s: float
    blocked_s: float
    sending_s: float
    unread_s: float
    fault: str | None
    one_sided: int
    ended_by: str


@dataclass(frozen=True, eq=False)
class Distribution(Arrays):
    """Summary and histogram of nanoseconds.

    Attributes
    ----------
    count : int
        Values seen.
    min, max, p50, p90, p99, p999 : int
        ns. Percentiles are those of the histogram: at most 0.8 % above the exact value.
    mean, stddev : float
        ns; of the population, exact.
    bins : ndarray of uint64, shape (n, 3)
        The bins that are not empty, ascending: lower edge, upper edge (exclusive), count.
        Read-only.

    Examples
    --------
    >>> import squall
    >>> report = squall.send("loop:bins,virtual", "eth/ipv4/udp", rate="1 kpps", count=100, latency=True)
    >>> gaps = report.streams[0].rx.arrival_gap_ns
    >>> gaps.count, gaps.min, gaps.max
    (99, 1000000, 1000000)
    >>> counts, edges = gaps.histogram()
    >>> counts, edges.shape, edges.dtype
    (array([99], dtype=uint64), (2,), dtype('uint64'))
    """

    count: int
    min: int
    mean: float
    stddev: float
    p50: int
    p90: int
    p99: int
    p999: int
    max: int
    bins: Counts = field(repr=False)

    def histogram(self) -> tuple[Counts, Counts]:
        """As ``numpy.histogram`` gives it, and ``matplotlib.pyplot.stairs`` takes it.

        Returns
        -------
        counts : ndarray of uint64, shape (n,)
            Between bins that touch not there is one with count 0.
        edges : ndarray of uint64, shape (n + 1,)
            ns, ascending.
        """
        lower, upper, count = self.bins.T
        edges = np.unique(np.concatenate([lower, upper]))
        counts = np.zeros(len(edges) - 1, np.uint64)
        counts[np.searchsorted(edges, lower)] = count
        return counts, edges


@dataclass(frozen=True, eq=False)
class EqualBins(Arrays):
    """Counts in equal bins from 0 on, for sessions with ``gap_bins``.

    Attributes
    ----------
    width_ns : int
    counts : ndarray of uint64, shape (n,)
        Number i is that of the values from i times the width to below the next.
    beyond : int
        Values above the last bin.
    """

    width_ns: int
    counts: Counts
    beyond: int


@dataclass(frozen=True)
class TxReport:
    """Frames that the port took for good.

    Attributes
    ----------
    packets, octets, errors : int
    pps, bps_l1, bps_l2 : float
        Means over the run's duration.
    super_frames, segments : int
        Super-frames that were handed over whole, to be cut on the way, and the frames that became
        of them, which are among ``packets``.
    not_sent : dict of str to int
        Frames that were due and did not leave, by reason.
    blocked_s : float
        Time during which the port took no frames though some were due.
    sending_s : float
        Time in which the port was taking frames: copies and system calls. Of several workers, that
        of the busiest.
    departure_error_ns : Distribution or None
        Actual minus due instant of departure, over all streams.
    fingerprint : str or None
        Hash over all frames' octets, whatever their order; only where the session has
        ``fingerprint=True``.
    """

    packets: int
    octets: int
    pps: float
    bps_l1: float
    bps_l2: float
    super_frames: int
    segments: int
    errors: int
    not_sent: dict[str, int]
    blocked_s: float
    sending_s: float
    departure_error_ns: Distribution | None
    fingerprint: str | None


@dataclass(frozen=True)
class RxReport:
    """Frames that reached the process.

    Attributes
    ----------
    packets, octets : int
    pps, bps_l1, bps_l2 : float
        Means over the run's duration.
    super_frames, segments : int
        Super-frames that came whole, because the kernel or the NIC had joined frames or not cut
        them yet, and the frames in them, which are among ``packets``.
    unsigned_packets : int
        Frames without our signature: of streams without ``latency``, or foreign.
    drops : dict of str to int
        Frames lost between the interface and the process, by reason.
    fingerprint : str or None
        As that of `TxReport`.
    arrival_gap_ns : Distribution or None
        Gaps between consecutive frames; None if there are not two.
    arrival_gap_bins : EqualBins or None
        The same gaps in equal bins; only where the session has ``gap_bins``.
    timestamp_resolution_ns : int or None
        What the arrival instants are multiples of, as far as they show it; where flows are looked
        at.
    peak_pps, peak_bps_l2 : float or None
        Of the busiest interval; where flows are looked at and one queue receives.
    bursts : Bursts or None
    """

    packets: int
    octets: int
    pps: float
    bps_l1: float
    bps_l2: float
    super_frames: int
    segments: int
    unsigned_packets: int
    drops: dict[str, int]
    fingerprint: str | None
    arrival_gap_ns: Distribution | None
    arrival_gap_bins: EqualBins | None
    timestamp_resolution_ns: int | None
    peak_pps: float | None
    peak_bps_l2: float | None
    bursts: Bursts | None


@dataclass(frozen=True)
class Bursts:
    """Two frames or more, each at most `FlowsReport.burst_gap_ns` behind the one before it.

    Attributes
    ----------
    count : int
    mean_packets, max_packets : float, int
        Frames in a burst.
    max_ns : int
        From first to last frame.
    """

    count: int
    mean_packets: float
    max_packets: int
    max_ns: int


@dataclass(frozen=True)
class Patterns:
    """How losses are spread, and how late frames are late: distributions of frames, not of times.

    Attributes
    ----------
    loss_period_packets, loss_distance_packets : Distribution or None
        RFC 3357: frames lost in a row; from each lost frame to the one before it, in sequence
        numbers.
    reordering_extent_packets, n_reordering_packets : Distribution or None
        RFC 4737 sections 4.2.1 and 5.
    """

    loss_period_packets: Distribution | None
    loss_distance_packets: Distribution | None
    reordering_extent_packets: Distribution | None
    n_reordering_packets: Distribution | None


@dataclass(frozen=True)
class SequenceReport:
    """What the numbers in a flow's packets tell.

    Attributes
    ----------
    kind : str
        ``squall``, ``mgen``, ``crude``, ``trex``, ``iperf3`` or ``rtp``.
    stream : int or None
        Of frames of ours: the stream, which has the figures; there are none here.
    unnumbered_packets, unique_packets : int
        Packets without a number; first copies.
    lost, loss_ratio : int, float
        Missing between the first and the last number.
    duplicates, reordered, reordering_ratio, max_reordering_extent, too_old : int or float
    restarts : int
        How often the sender began to count anew.
    clock : str
        Whose clock the send times are of: ``wall``, ``receiver``, ``other`` or ``none``.
    latency_ns : Distribution or None
        One-way delay; where the clocks are one.
    ipdv_ns, jitter_ns : Distribution or None, float or None
        RFC 3393, and RFC 3550 at the end.
    """

    kind: str
    stream: int | None
    unnumbered_packets: int
    unique_packets: int
    lost: int
    loss_ratio: float
    duplicates: int
    reordered: int
    reordering_ratio: float
    max_reordering_extent: int
    too_old: int
    restarts: int
    clock: str
    latency_ns: Distribution | None
    negative_latency: int
    ipdv_ns: Distribution | None
    jitter_ns: float | None
    patterns: Patterns | None


@dataclass(frozen=True)
class FlowReport:
    """One flow, or one source.

    Attributes
    ----------
    name, port, src, dst, protocol : str
        ``10.0.0.1:5000 > 10.0.0.2:6000 UDP``; the port that it was received on; addresses.
    src_port, dst_port : int or None
    packets, octets : int
    first_s, last_s : float
        Instants of the first and the last frame, since the first frame of all.
    pps, bps_l2 : float
        Means from the first to the last frame.
    peak_pps, peak_bps_l2 : float
        Of the busiest interval.
    bursts : Bursts
    arrival_gap_ns, arrival_gap_bins : Distribution or None, EqualBins or None
    gap_floor_ns, gap_stddev_corrected_ns : float or None
        The receiver's own part of the gaps' standard deviation, where it was measured, and what
        remains.
    sequence : SequenceReport or None
        Where its packets are numbered in a way that is known.
    """

    name: str
    port: str
    src: str
    dst: str
    src_port: int | None
    dst_port: int | None
    protocol: str
    packets: int
    octets: int
    first_s: float
    last_s: float
    pps: float
    bps_l2: float
    peak_pps: float
    peak_bps_l2: float
    bursts: Bursts
    arrival_gap_ns: Distribution | None
    arrival_gap_bins: EqualBins | None
    gap_floor_ns: float | None
    gap_stddev_corrected_ns: float | None
    sequence: SequenceReport | None


@dataclass(frozen=True)
class SourceReport:
    """The flows of one source together; ``lost`` is that of those whose packets are numbered."""

    name: str
    flows: int
    packets: int
    octets: int
    pps: float
    bps_l2: float
    lost: int | None


@dataclass(frozen=True)
class RestReport:
    """Frames of flows that were too many to have an entry."""

    packets: int
    octets: int


@dataclass(frozen=True)
class FlowsReport:
    """What was received flow by flow, or source by source.

    Attributes
    ----------
    by : str
        ``flow``, ``source`` or ``none``.
    limit : int
        Entries at most; the frames of others are in ``rest``.
    interval_ns, burst_gap_ns : int
        Of peaks, and in bursts.
    flows : ByName of FlowReport
        Most octets first.
    sources : ByName of SourceReport
        Most octets first; where `by` is ``flow``.
    rest : RestReport or None
    memory_octets : int

    Examples
    --------
    >>> import squall
    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "flows.pcap"
    >>> report = squall.send(f"pcap:{file}", "eth/ipv4/udp(dport=53)", rate="1 kpps", count=10)
    >>> flows = squall.recv(f"pcap:{file},read").flows
    >>> flows.flows[0].dst_port, flows.flows[0].packets, flows.column("pps").round()
    (53, 10, array([1000.]))
    """

    by: str
    limit: int
    interval_ns: int
    burst_gap_ns: int
    flows: ByName[FlowReport]
    sources: ByName[SourceReport]
    rest: RestReport | None
    memory_octets: int

    def column(self, name: str) -> Floats:
        """A field of all flows, float64[n]; NaN where it is None. ``sequence.lost`` and such reach
        into what they have.

        Raises
        ------
        AttributeError
            Flows have no such field.
        """

        def value(flow: FlowReport) -> float:
            item: Any = flow
            for part in name.split("."):
                if item is None:
                    return float("nan")
                item = getattr(item, part)
            return float("nan") if item is None else float(item)

        return np.fromiter(map(value, self.flows), np.float64, len(self.flows))


@dataclass(frozen=True)
class InterfaceReport:
    """Counters of the interface itself, octets without FCS, difference over the run."""

    tx_packets: int
    tx_octets: int
    tx_dropped: int
    tx_errors: int
    rx_packets: int
    rx_octets: int
    rx_dropped: int
    rx_errors: int
    rx_missed: int
    rx_fifo: int


@dataclass(frozen=True)
class LinkEvent:
    """A port's link went down, or came up: `t_s` seconds after the first departure was due, 0
    before.
    """

    t_s: float
    up: bool


@dataclass(frozen=True)
class PortReport:
    """One port.

    Attributes
    ----------
    timestamps : str
        Where receive instants come from: ``none``, ``process``, ``kernel``, ``hardware``,
        ``virtual``.
    interface : InterfaceReport or None
        What the interface counted during the run, where there is one.
    link_events : tuple of LinkEvent
        When the link went down, and when it came up again.
    """

    name: str
    address: str
    timestamps: str
    tx: TxReport
    rx: RxReport
    interface: InterfaceReport | None
    link_events: tuple[LinkEvent, ...]


@dataclass(frozen=True)
class StreamRx:
    """A stream as its receivers saw it, from signatures.

    Attributes
    ----------
    ports : tuple of str
        Where it was seen.
    packets, octets : int
        Duplicates included.
    lost : int
        Sent and never seen, duplicates not counted as seen (RFC 7680).
    loss_ratio : float
        lost / sent, 0 to 1.
    duplicates : int
        RFC 5560.
    reordered : int
        Sequence number below the next expected (RFC 4737 section 3).
    max_reordering_extent : int
        Packets (RFC 4737 section 4.2.1).
    latency_ns : Distribution or None
        One-way delay (RFC 7679), both ends on one clock.
    ipdv_ns : Distribution or None
        Magnitude of the delay's variation between consecutive sequence numbers (RFC 3393).
    arrival_gap_ns : Distribution or None
        Gaps between consecutive frames of the stream.
    jitter_ns : float or None
        Smoothed interarrival jitter at the end (RFC 3550).
    reordering_ratio : float
        reordered / received, duplicates left out (RFC 4737).
    restarts : int
        How often the sender began to count anew; of streams that are sent elsewhere.
    patterns : Patterns or None
        How losses are spread, and how late frames are late; where there are any.
    """

    ports: tuple[str, ...]
    packets: int
    octets: int
    lost: int
    loss_ratio: float
    duplicates: int
    reordered: int
    max_reordering_extent: int
    latency_ns: Distribution | None
    ipdv_ns: Distribution | None
    arrival_gap_ns: Distribution | None
    jitter_ns: float | None
    reordering_ratio: float
    restarts: int
    patterns: Patterns | None


@dataclass(frozen=True)
class StreamReport:
    """One stream.

    Attributes
    ----------
    port : str
        The port that sends it.
    tx_pps : float
        Mean over the stream's own active time.
    asked_pps : float or None
        The rate that was asked for, frames a second; None for ``max``.
    not_sent : dict of str to int
        Frames that were due and did not leave, by reason.
    departure_error_ns : Distribution or None
        Actual minus due instant of departure.
    rx : StreamRx or None
        The receiver's view; only of streams with ``latency``.
    """

    name: str
    port: str
    group: str | None
    tx_packets: int
    tx_octets: int
    tx_pps: float
    asked_pps: float | None
    not_sent: dict[str, int]
    departure_error_ns: Distribution | None
    rx: StreamRx | None


@dataclass(frozen=True)
class PortSample:
    """Rates of a port since the sample before."""

    name: str
    tx_pps: float
    tx_bps_l1: float
    tx_bps_l2: float
    rx_pps: float
    rx_bps_l1: float
    rx_bps_l2: float


@dataclass(frozen=True)
class StreamSample:
    """Rates and percentiles of a stream since the sample before.

    Attributes
    ----------
    tx_pps, rx_pps : float
    lost : int
        Gaps in the sequence so far; what is on its way is not lost.
    latency_p50_ns, latency_p99_ns, late_p99_ns : int or None
        None where nothing was measured, and with more than 64 streams.
    """

    name: str
    tx_pps: float
    rx_pps: float
    lost: int
    latency_p50_ns: int | None
    latency_p99_ns: int | None
    late_p99_ns: int | None


@dataclass(frozen=True)
class CaptureSample:
    """What a capture wrote, and what it lost.

    Attributes
    ----------
    written_pps, written_bps : float
        Since the sample before; bits of the packets as captured.
    files, file_octets : int
        So far, files that the ring has removed included.
    dropped_by_kernel, dropped : int
        Lost so far, before and in the process.
    """

    written_pps: float
    written_bps: float
    files: int
    file_octets: int
    dropped_by_kernel: int
    dropped: int


@dataclass(frozen=True)
class TemplateSample:
    """Flows of one template at one end.

    Attributes
    ----------
    name, side : str
        Behind several templates their sum, ``"all templates"``; ``client`` or ``server``.
    active : int
        Open.
    attempted_cps, completed_cps, goodput_bps : float
        Begun, ended as they should, and application data received, since the sample before.
    failed, not_begun, late : int
        So far; late is among not_begun.
    setup_p99_ns, transaction_p99_ns : int or None
        Since the sample before.
    """

    name: str
    side: str
    active: int
    attempted_cps: float
    completed_cps: float
    failed: int
    not_begun: int
    late: int
    goodput_bps: float
    setup_p99_ns: int | None
    transaction_p99_ns: int | None


@dataclass(frozen=True)
class Sample:
    """One instant of a run.

    Attributes
    ----------
    t_s : float
        Since the first frame was due; 0 on virtual time.
    ports : ByName of PortSample
    streams : ByName of StreamSample
    capture : CaptureSample or None
        Only of a capture.
    load : tuple of TemplateSample
        Only of flows.
    """

    t_s: float
    ports: ByName[PortSample]
    streams: Streams[StreamSample]
    capture: CaptureSample | None
    load: tuple[TemplateSample, ...]


@dataclass(frozen=True)
class Cpu:
    """CPU time of the process during the run; ``per_mpkt_s`` is that of a million frames sent and
    received.
    """

    user_s: float
    system_s: float
    per_mpkt_s: float | None


@dataclass(frozen=True)
class Contention:
    """What the kernel says of CPU time that was wanted during the run and not had.

    Attributes
    ----------
    involuntary_switches : int
        Times that a sending or receiving thread was taken off its CPU though it wanted to go on.
    throttled_s : float
        Time for which the control group had used up its quota.
    pressure_s, steal_s : float
        Of the machine: time in which something waited for a CPU (PSI), CPU time that the hypervisor
        took.
    """

    involuntary_switches: int
    throttled_s: float
    pressure_s: float
    steal_s: float


@dataclass(frozen=True)
class ReplayRead:
    """Packets of captures by what became of them before they were sent; octets as captured."""

    packets: int
    octets: int
    unwanted: int
    sideless: int
    edited_out: int
    too_long: int
    not_ethernet: int
    cut: int
    backward: int


@dataclass(frozen=True)
class ReplayPort:
    """Frames of one port in tcpreplay's words: ``attempted`` is the sum of ``successful`` and
    ``failed``.
    """

    port: str
    attempted: int
    successful: int
    failed: int
    truncated: int
    retried: int


@dataclass(frozen=True)
class ReplayShare:
    """What left of one protocol, host or flow; octets without FCS."""

    name: str
    packets: int
    octets: int


@dataclass(frozen=True)
class ReplayFlows:
    """What flows left; ``flows`` is the sum of ``unique`` and ``expired``."""

    flows: int
    unique: int
    expired: int
    flows_per_second: float
    flow_packets: int
    non_flow_packets: int
    invalid_packets: int
    overflow_packets: int
    protocols: tuple[ReplayShare, ...]
    talkers: tuple[ReplayShare, ...]
    top_flows: tuple[ReplayShare, ...]


@dataclass(frozen=True)
class ReplayEdits:
    """Packets that were edited on the way."""

    changed: int
    dropped: int
    added: int


@dataclass(frozen=True)
class TlsReport:
    """TLS sessions of flows.

    Attributes
    ----------
    handshakes, resumed : int
        That were completed; of these, those that went on with an earlier session.
    handshakes_per_second : float
    handshake_ns : Distribution or None
        From the end of TCP's handshake to that of TLS.
    failed : dict of str to int
        Sessions that failed, in the handshake or later, by what was wrong.
    truncated : int
        The peer closed the flow without closing the session.
    ciphers : dict of str to int
        Handshakes by cipher suite.
    """

    handshakes: int
    resumed: int
    handshakes_per_second: float
    handshake_ns: Distribution | None
    failed: dict[str, int]
    truncated: int
    ciphers: dict[str, int]


@dataclass(frozen=True)
class RoleReport:
    """Flows at one end. ``attempted`` is the sum of ``completed``, ``failed`` and ``active``;
    ``asked`` is those and ``not_begun``, and while the run goes on those that are due and wait.

    Attributes
    ----------
    asked : int or None
        Due so far, by the schedule alone; of clients.
    attempted, established, completed : int
        Begun (client) or accepted (server); with the handshake done; ended as they should.
    failed, not_begun : dict of str to int
        Ended otherwise, and due but not begun, by reason.
    protocol_errors : dict of str to int
        What peers did that the programs do not say.
    active, peak_active : int
        Open when the run ended, and at once at most.
    cps : float
        Begun a second, over ``LoadReport.arrivals_s``.
    asked_cps : float or None
        Flows a second that were asked for, as it was last.
    steady : SteadyReport or None
        While all of the load was asked for; of clients.
    busiest_second : BusiestSecond or None
        Of all templates together.
    setup_ns, first_byte_ns, transaction_ns : Distribution or None
        SYN to handshake; a request to the first octet of its answer, and to its last.
    duration_ns, duration_from_due_ns : Distribution or None
        Of flows that completed: from the beginning, and from the instant at which they were due
        (coordinated omission).
    received_octets, sent_octets, goodput_bps
        Of application data; what was received, bits a second.
    http : dict of str to int
        Responses by class of their status: ``"2xx"``.
    tcp : dict of str to int
        What the stack counted.
    tls : TlsReport or None
        Of templates with TLS.
    """

    asked: int | None
    attempted: int
    established: int
    completed: int
    failed: dict[str, int]
    protocol_errors: dict[str, int]
    not_begun: dict[str, int]
    active: int
    peak_active: int
    cps: float
    asked_cps: float | None
    steady: SteadyReport | None
    busiest_second: BusiestSecond | None
    setup_ns: Distribution | None
    first_byte_ns: Distribution | None
    transaction_ns: Distribution | None
    duration_ns: Distribution | None
    duration_from_due_ns: Distribution | None
    received_octets: int
    sent_octets: int
    goodput_bps: float
    http: dict[str, int]
    tcp: dict[str, int]
    tls: TlsReport | None


@dataclass(frozen=True)
class SteadyReport:
    """The part of a run behind the ramp up and before the ramp down, the drain, and whatever ended
    it.

    Attributes
    ----------
    duration_s : float
    attempted_cps, completed_cps : float
        Flows that began, and that ended as they should, a second.
    goodput_bps : float
        Application data received.
    """

    duration_s: float
    attempted_cps: float
    completed_cps: float
    goodput_bps: float


@dataclass(frozen=True)
class BusiestSecond:
    """Most flows that began, and most that completed, in a second of the run."""

    attempted: int
    completed: int


@dataclass(frozen=True)
class RolesReport:
    """Both ends of flows, as far as they were ours."""

    client: RoleReport | None
    server: RoleReport | None


@dataclass(frozen=True)
class TemplateReport:
    """Flows of one template, at both ends as far as they were ours."""

    name: str
    client: RoleReport | None
    server: RoleReport | None


@dataclass(frozen=True)
class LinkReport:
    """Frames of a side that were no flow's, or got lost on the way to one."""

    port: str
    counters: dict[str, int]


@dataclass(frozen=True)
class ExhaustedReport:
    """A pool of which ``addresses`` had all their ports busy at some time, for which ``flows`` were
    not begun.
    """

    pool: str
    addresses: int
    flows: int


@dataclass(frozen=True)
class KindReport:
    """Conversations of one kind, as they were captured; octets are of application data."""

    name: str
    conversations: int
    octets_to_server: int
    octets_to_client: int


@dataclass(frozen=True)
class ConversationNote:
    """A conversation of a capture (``number`` from 1) and what is to be said of it."""

    number: int
    flow: str
    reason: str


@dataclass(frozen=True)
class ConversationsReport:
    """A capture whose conversations were played.

    Attributes
    ----------
    capture : str
    packets : int
        Of those that the filter took; ``packets_left_out`` are in no conversation, by reason.
    found, playable : int
        Conversations that there are, and those of them that are played.
    one_sided : int
        Those of which the capture has one direction only.
    loops : int or None
        None: until the run ended.
    not_played : dict of str to int
        By reason: ``mid_stream``, ``holes``, ``no_free_port``, ``no_client_address``,
        ``other_family``.
    not_played_first, failed_first : tuple of ConversationNote
    kinds : tuple of KindReport
        In the order of the load's templates.
    octets_as_captured : bool or None
        Each side of ours received as many octets as in the capture; None if not all were played to
        their ends.
    """

    capture: str
    packets: int
    packets_left_out: dict[str, int]
    found: int
    playable: int
    one_sided: int
    loops: int | None
    not_played: dict[str, int]
    not_played_first: tuple[ConversationNote, ...]
    kinds: tuple[KindReport, ...]
    failed_first: tuple[ConversationNote, ...]
    octets_as_captured: bool | None


@dataclass(frozen=True)
class UnsolvedRule:
    """A rule for which no attack was found, and why."""

    gid: int
    sid: int
    msg: str
    reason: str
    text: str


@dataclass(frozen=True)
class RulePassage:
    """Conversations of one rule's attacks through a device."""

    gid: int
    sid: int
    msg: str
    attacks: int
    passed: int
    blocked: int
    near_misses: int
    near_misses_passed: int


@dataclass(frozen=True)
class PassageReport:
    """Attacks between two ports of ours with a device between. ``blocked``: by what their clients,
    or else their servers, say, ``not_received`` and ``partly_received``. ``as_frames``: those that
    left as prepared frames; ``altered``: those of them that passed with other octets.
    """

    conversations: int
    as_frames: int
    passed: int
    altered: int
    blocked: dict[str, int]
    near_misses: int
    near_misses_passed: int
    rules: tuple[RulePassage, ...]


@dataclass(frozen=True)
class AttackReport:
    """What one attack of the profile came to.

    Attributes
    ----------
    name : str
    rules : int
        Of the files; ``problems`` are lines that gave none, by reason.
    chosen, solved : int
        Rules that were asked for, and those for which an attack was found and verified.
    unsolved : dict of str to int
        By reason; each is in ``unsolved_rules``.
    attacks, near_misses : int
        Of the run.
    unseen : int
        Attacks whose rule the evaluator does not see as they are sent: no alert is owed for them.
    without_twin : int
        Rules for which no near miss was found.
    varied : int
        Rules whose messages are said otherwise, as evasions ask for.
    left_out : dict of str to int
        Attacks that are not part of the run, by reason.
    frames, octets : int
        Of all attacks, without FCS.
    duration_s : float
        To the last frame, as planned.
    passage : PassageReport or None
        Of a run with two ports that receive.
    """

    name: str
    rules: int
    problems: dict[str, int]
    problems_first: tuple[str, ...]
    chosen: int
    solved: int
    unsolved: dict[str, int]
    unsolved_rules: tuple[UnsolvedRule, ...]
    attacks: int
    near_misses: int
    unseen: int
    without_twin: int
    varied: int
    left_out: dict[str, int]
    frames: int
    octets: int
    duration_s: float
    passage: PassageReport | None


@dataclass(frozen=True)
class LoadReport:
    """Flows that were begun and served.

    Attributes
    ----------
    duration_s : float
        From the beginning of the load until the last flow was gone.
    arrivals_s : float
        Of these, until the last flow was due (one gap behind it): what is left is the drain. Where
        no clients are ours, all.
    templates : ByName of TemplateReport
    total : RolesReport
        All templates together.
    links : tuple of LinkReport
    exhausted : tuple of ExhaustedReport
    conversations : ConversationsReport or None
        Of a capture whose conversations were played: ``templates`` are their kinds.
    """

    duration_s: float
    arrivals_s: float
    templates: ByName[TemplateReport]
    total: RolesReport
    links: tuple[LinkReport, ...]
    exhausted: tuple[ExhaustedReport, ...]
    conversations: ConversationsReport | None


@dataclass(frozen=True)
class ReplayReport:
    """Captures that were sent again.

    Attributes
    ----------
    files : tuple of str
    loops : int
        Sent to their ends.
    packets, octets : int
        That left, on all ports; octets without FCS.
    read : ReplayRead
        What was read, each loop anew unless it was preloaded.
    ports : tuple of ReplayPort
    flows : ReplayFlows or None
        None if they were not counted.
    edited : ReplayEdits or None
    starved_s : float
        How long the sender had nothing to send, because reading was behind.
    fault : str or None
        Captures could not be read to their end: what is before the fault was sent.
    """

    files: tuple[str, ...]
    loops: int
    packets: int
    octets: int
    read: ReplayRead
    ports: tuple[ReplayPort, ...]
    flows: ReplayFlows | None
    edited: ReplayEdits | None
    starved_s: float
    fault: str | None


@dataclass(frozen=True)
class CaptureFile:
    """A file of a capture; ``first`` and ``last`` packet in RFC 3339, UTC, None if it has none."""

    name: str
    packets: int
    octets: int
    first: str | None
    last: str | None


@dataclass(frozen=True)
class CaptureReport:
    """What was captured: ``received`` is the sum of what was written, lost and not wanted.

    Attributes
    ----------
    format : str
        ``pcapng``, or ``pcap`` with its resolution.
    arrived : int or None
        Frames that came to the interfaces by their own counters; None where there are none.
    accepted : int or None
        Frames that the filter took as the ports count them, a super-frame as one; None where a port
        does not count.
    received : int
        Packets that the filter took on all interfaces, lost ones included.
    dropped_by_interface : dict of str to int
        By counter of the interfaces; not among the lost.
    dropped_by_kernel, dropped : dict of str to int
        Lost before and in the process, by reason.
    unwanted : dict of str to int
        Came before or after what was asked for, by reason; not lost.
    lost : int
        All that were lost.
    loss_ratio : float
        PLR: lost / (received - unwanted).
    truncated : int
        Written packets of which octets were cut off because the buffer was filling.
    written_packets, written_octets, file_octets : int
        In all files; octets of packets as captured, and of the files.
    files : tuple of CaptureFile
        The newest, at most 1000.
    removed_files, removed_packets, removed_octets : int
        What the ring has removed; among the written.
    super_frames, segments : int
        Super-frames that came joined, and the frames in them.
    out_of_order : int
        Stretches of packets behind a later packet of another queue.
    triggered : str or None
        When the trigger came; RFC 3339, UTC.
    ended_by : str or None
        What ended the capture before it was stopped.
    error : str or None
        Why not everything could be written.
    """

    format: str
    snaplen: int
    arrived: int | None
    accepted: int | None
    received: int
    dropped_by_interface: Mapping[str, int]
    dropped_by_kernel: Mapping[str, int]
    dropped: Mapping[str, int]
    unwanted: Mapping[str, int]
    lost: int
    loss_ratio: float
    truncated: int
    written_packets: int
    written_octets: int
    file_octets: int
    files: tuple[CaptureFile, ...]
    files_written: int
    removed_files: int
    removed_packets: int
    removed_octets: int
    super_frames: int
    segments: int
    out_of_order: int
    buffer_octets: int
    buffer_peak_octets: int
    triggered: str | None
    ended_by: str | None
    error: str | None


@dataclass(frozen=True)
class WorkerReport:
    """What one thread did; ``cpu`` is the CPU that it was bound to, None where the system moved it
    as it liked.
    """

    cpu: int | None
    cpu_s: float
    tx_packets: int
    rx_packets: int


@dataclass(frozen=True)
class Memory:
    """``peak_rss_octets``: the most memory that the process ever had."""

    peak_rss_octets: int


@dataclass(frozen=True, eq=False)
class PortSeries(Arrays):
    """The columns of `PortSample`, each float64[n]; NaN where the port was not there."""

    tx_pps: Floats
    tx_bps_l1: Floats
    tx_bps_l2: Floats
    rx_pps: Floats
    rx_bps_l1: Floats
    rx_bps_l2: Floats


@dataclass(frozen=True, eq=False)
class StreamSeries(Arrays):
    """The columns of `StreamSample`, each float64[n]; NaN where there was no such stream or value."""

    tx_pps: Floats
    rx_pps: Floats
    lost: Floats
    latency_p50_ns: Floats
    latency_p99_ns: Floats
    late_p99_ns: Floats


@dataclass(frozen=True, eq=False)
class CaptureSeries(Arrays):
    """The columns of `CaptureSample`, each float64[n]."""

    written_pps: Floats
    written_bps: Floats
    files: Floats
    file_octets: Floats
    dropped_by_kernel: Floats
    dropped: Floats


@dataclass(frozen=True, eq=False)
class TemplateSeries(Arrays):
    """The columns of `TemplateSample`, each float64[n]; NaN where there was no such value."""

    active: Floats
    attempted_cps: Floats
    completed_cps: Floats
    failed: Floats
    not_begun: Floats
    late: Floats
    goodput_bps: Floats
    setup_p99_ns: Floats
    transaction_p99_ns: Floats


@dataclass(frozen=True, eq=False)
class Series:
    """All samples of a run as columns, row i of each at ``t_s[i]``.

    Attributes
    ----------
    t_s : ndarray of float64, shape (n,)
        Seconds since the first frame was due, ascending.
    ports : dict of str to PortSeries
    streams : dict of str to StreamSeries
        Of two streams of one name (removed and added again) the later counts.
    capture : CaptureSeries or None
        Only of a capture.
    load : dict of str to TemplateSeries
        Only of flows: by template and end, ``"web (client)"``.
    """

    t_s: Floats
    ports: Mapping[str, PortSeries]
    streams: Mapping[str, StreamSeries]
    capture: CaptureSeries | None
    load: Mapping[str, TemplateSeries]


@dataclass(frozen=True, eq=False, repr=False)
class Report(Figures[_native.Report]):
    """What a run came to.

    Attributes
    ----------
    schema : str
        The version of this structure.
    command : str
        The command line, or ``python``.
    started : str
        RFC 3339, UTC.
    duration_s : float
        First departure due to last frame out.
    filter : str or None
        Which frames were received, in the language of tcpdump; None: all that came.
    verdict : Verdict
        Whether the figures can be trusted, and if not, why.
    asked : Asked
        The end that was asked for.
    cut_short : bool
        It was stopped before that end.
    sources : tuple of SourceRecord
        What was asked of each source of traffic, and what it did.
    ports : ByName of PortReport
        By name or index: ``report.ports["A"].tx.packets``.
    streams : ByName of StreamReport
        By name or index: ``report.streams["web"].rx.latency_ns.p99``.
    capture : CaptureReport or None
        What was written to files; only of a capture.
    replay : ReplayReport or None
        What was read of captures and sent again; only of `replay`.
    load : LoadReport or None
        Flows that were begun and served; only of profiles with templates.
    flows : FlowsReport or None
        What was received flow by flow; only of `recv`.
    workers : tuple of WorkerReport
        The threads that sent and received.
    notes : tuple of str
        What the user should know: a fallback taken, a rate clamped.

    Examples
    --------
    >>> import squall
    >>> report = squall.send("loop:report,virtual", "eth/ipv4/udp", rate="1 Mpps", count=1000, latency=True)
    >>> report
    <squall.Report: 1 port, 1 stream, 1000 packets sent, valid>
    >>> stream = report.streams["stream 1"]
    >>> stream.tx_packets, stream.rx.lost, report.ports["A"].rx.octets
    (1000, 0, 64000)
    """

    schema: str
    command: str
    squall_version: str
    started: str
    duration_s: float
    seed: int
    filter: str | None
    host: Host
    verdict: Verdict
    asked: Asked
    cut_short: bool
    sources: tuple[SourceRecord, ...]
    ports: ByName[PortReport]
    streams: Streams[StreamReport]
    capture: CaptureReport | None
    replay: ReplayReport | None
    load: LoadReport | None
    attacks: tuple[AttackReport, ...]
    flows: FlowsReport | None
    workers: tuple[WorkerReport, ...]
    cpu: Cpu
    contention: Contention
    memory: Memory
    notes: tuple[str, ...]
    _inner: _native.Report = field(init=False, repr=False, compare=False)
    _core = _native.Report

    @classmethod
    def _from(cls, native: _native.Report) -> Report:
        text, octets = native.parts()
        rows = np.frombuffer(octets, np.uint64).reshape(-1, 3)
        report = read(cls, json.loads(text, object_hook=functools.partial(_with_bins, rows)))
        object.__setattr__(report, "_inner", native)
        return report

    @functools.cached_property
    def series(self) -> tuple[Sample, ...]:
        """The samples taken during the run. Many of them are handier as `series_arrays`."""
        return tuple(read(Sample, sample) for sample in self.to_dict()["series"])

    def series_arrays(self) -> Series:
        """The samples taken during the run, as columns.

        Examples
        --------
        >>> import squall
        >>> profile = squall.Profile(ports={"A": "loop:series"}, duration="0.2 s")
        >>> profile.add(squall.Stream(name="web", packet="eth/ipv4/udp", rate="1 kpps"))
        >>> series = squall.run(profile, every=0.05).series_arrays()
        >>> series.t_s.dtype, series.t_s.shape == series.streams["web"].tx_pps.shape
        (dtype('float64'), True)
        """
        t_s, ports, streams, capture, load = self._inner.series()
        return Series(
            np.frombuffer(t_s, np.float64),
            _columns(PortSeries, ports),
            _columns(StreamSeries, streams),
            # A capture has no name.
            _columns(CaptureSeries, capture).get(""),
            _columns(TemplateSeries, load),
        )

    def summary(self, width: int = 100, color: bool = False) -> str:
        """The report as text tables, `width` columns (at least 60), with ANSI colours or without."""
        return self._inner.summary(width, color)

    def __str__(self) -> str:
        return self.summary()

    def __repr__(self) -> str:
        def some(n: int, what: str) -> str:
            return f"{n} {what}" if n == 1 else f"{n} {what}s"

        sent = sum(port.tx.packets for port in self.ports)
        verdict = (
            "valid"
            if self.verdict.valid
            else "NOT valid: " + "; ".join(map(str, self.verdict.reasons))
        )
        counts = [
            some(len(self.ports), "port"),
            some(len(self.streams), "stream"),
            some(sent, "packet") + " sent",
        ]
        return f"<squall.Report: {', '.join(counts)}, {verdict}>"


def _with_bins(rows: Counts, table: dict[str, Any]) -> dict[str, Any]:
    """Puts a histogram's rows in the place of what says where they are."""
    if "bins" in table:
        [[first, end, _]] = table["bins"]
        table["bins"] = rows[first:end]
    return table


def _columns(kind: type[S], table: Iterable[tuple[str, str, bytes]]) -> dict[str, S]:
    columns: dict[str, dict[str, Floats]] = {}
    for name, quantity, octets in table:
        columns.setdefault(name, {})[quantity] = np.frombuffer(octets, np.float64)
    known = [f.name for f in fields(kind)]  # type: ignore[arg-type]
    return {name: kind(**{q: values[q] for q in known}) for name, values in columns.items()}

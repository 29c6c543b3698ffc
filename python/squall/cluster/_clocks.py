"""Offset and drift of a node's clock relative to the controller's, with guaranteed error bounds.

Pure functions: times are integers in nanoseconds.

The controller sends at `c0`, the node reads its clock at `n_in` and again at `n_out`, and the
controller receives the answer at `c1`. With any delays, the controller's clock was past `c0` at
`n_in`, and had not reached `c1` at `n_out`. So an exchange bounds the shift (controller's time
minus node's) from below at `n_in` and from above at `n_out`. Delays may differ between the
directions, and may vary.

A clock that runs at a steady rate is a line between all these bounds. The possible lines form a
polygon in the (shift, drift) plane; the estimate is its center, and the error at any time is at
most the distance to the farthest corner.

>>> exchanges = [Exchange(c0=1_000, n_in=51_200, n_out=51_300, c1=1_500)]
>>> mapping = fit(exchanges).mapping(at_ns=51_250)
>>> mapping.shift_ns, mapping.bound_ns
(-50000, 201)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

__all__ = ["Clock", "Exchange", "Fit", "Mapping", "NoLine", "fit"]

#: Maximum difference of two clock rates before it is measured: free-running crystals are specified
#: to 50 ppm or better, and two may deviate in opposite directions.
MAX_DRIFT_PPB = 100_000
#: Maximum change of a rate within the window, caused by temperature and by NTP adjustments.
WANDER_PPB = 200
#: Length and number of the periods from each of which only the narrowest exchange is kept: a long
#: time base for the drift, without wide exchanges that would blur the offset.
STRETCH_NS, STRETCHES = 4_000_000_000, 16


@dataclasses.dataclass(frozen=True)
class Exchange:
    """A clock question and its answer, in nanoseconds: `c0` and `c1` are read on the controller's
    clock, `n_in` and `n_out` on the node's."""

    c0: int
    n_in: int
    n_out: int
    c1: int

    @property
    def width_ns(self) -> int:
        """Network time: the round trip without the processing time of the node."""
        return (self.c1 - self.c0) - (self.n_out - self.n_in)


@dataclasses.dataclass(frozen=True)
class Mapping:
    """Maps local time to cluster time: ``local + shift_ns + drift_ppb * 1e-9 * (local - at_ns)``,
    with an error of at most `bound_ns`.
    """

    shift_ns: int
    drift_ppb: float
    at_ns: int
    bound_ns: int

    def cluster(self, local_ns: int) -> int:
        """Convert a node's local time to cluster time."""
        return local_ns + self.shift_ns + round(self.drift_ppb * 1e-9 * (local_ns - self.at_ns))

    def local(self, cluster_ns: int) -> int:
        """Convert a cluster time to the node's local time."""
        since = cluster_ns - self.shift_ns - self.at_ns
        return self.at_ns + round(since / (1 + self.drift_ppb * 1e-9))

    def table(self) -> dict[str, float]:
        """Return the mapping as in requests to the daemon."""
        return dataclasses.asdict(self)

    def perturbed(self, offset_ns: int, drift_ppb: float, at_ns: int) -> Mapping:
        """Return the mapping for a clock that reads `local` when this mapping's clock reads ``local
        + offset_ns + drift_ppb * 1e-9 * (local - at_ns)``.
        """

        def read(local: int) -> int:
            return local + offset_ns + round(drift_ppb * 1e-9 * (local - at_ns))

        here = self.at_ns - offset_ns
        rate = (1 + drift_ppb * 1e-9) * (1 + self.drift_ppb * 1e-9) - 1
        return Mapping(self.cluster(read(here)) - here, rate * 1e9, here, self.bound_ns + 2)


class NoLine(ValueError):
    """No steady rate fits the exchanges: a clock was set, its rate changed, or the node was
    suspended."""


#: A line as (shift - reference in ns, drift in ppb).
_Line = tuple[float, float]


@dataclasses.dataclass(frozen=True)
class Fit:
    """All lines between the bounds, given by the corners of their polygon. Shifts are taken at the
    node's time `base_ns`, relative to the shift `reference_ns`.
    """

    base_ns: int
    reference_ns: int
    corners: tuple[_Line, ...]
    wander_ppb: float

    def mapping(self, at_ns: int, horizon_ns: int = 0) -> Mapping:
        """Return the estimate for the node's times from `at_ns` until `horizon_ns` later."""
        low_drift, high_drift = _range(drift for _, drift in self.corners)
        drift = (low_drift + high_drift) / 2
        low, high = self._shifts(at_ns)
        shift = self.reference_ns + round((low + high) / 2)
        widest = 0.0
        # The distance to each line is linear in time, so it is largest at one of the two ends.
        for when in (at_ns, at_ns + horizon_ns):
            estimate = (shift - self.reference_ns) + drift * 1e-9 * (when - at_ns)
            low, high = self._shifts(when)
            widest = max(widest, high - estimate, estimate - low)
        # Plus 1 for the rounding error of the shift.
        return Mapping(shift, drift, at_ns, int(widest) + 1)

    def _shifts(self, when_ns: int) -> tuple[float, float]:
        since = when_ns - self.base_ns
        low, high = _range(shift + drift * 1e-9 * since for shift, drift in self.corners)
        wandered = self.wander_ppb * 1e-9 * max(since, 0)
        return low - wandered, high + wandered


def fit(
    exchanges: Sequence[Exchange],
    max_drift_ppb: float = MAX_DRIFT_PPB,
    wander_ppb: float = WANDER_PPB,
) -> Fit:
    """Find all steady rates that are consistent with the exchanges.

    Parameters
    ----------
    exchanges : sequence of Exchange
        At least one, in order of time.
    max_drift_ppb : float
        Maximum difference of the clock rates.
    wander_ppb : float
        Maximum change of the rate during the exchanges, and until the mapping is used.

    Raises
    ------
    NoLine
        No rate is consistent with all exchanges.
    """
    newest = exchanges[-1]
    base = newest.n_in
    reference = newest.c0 - newest.n_in
    # Wide enough for every line that the newest exchange allows, which is clipped against it first.
    room = float(abs(newest.width_ns) + max_drift_ppb * 1e-9 * (newest.n_out - newest.n_in) + 1e3)
    corners: list[_Line] = [
        (-room, -max_drift_ppb),
        (room, -max_drift_ppb),
        (room, max_drift_ppb),
        (-room, max_drift_ppb),
    ]
    for exchange in reversed(exchanges):
        age_in, age_out = exchange.n_in - base, exchange.n_out - base
        low = exchange.c0 - exchange.n_in - reference - wander_ppb * 1e-9 * abs(age_in)
        high = exchange.c1 - exchange.n_out - reference + wander_ppb * 1e-9 * abs(age_out)
        corners = _cut(corners, 1.0, age_in * 1e-9, low)
        corners = _cut(corners, -1.0, -age_out * 1e-9, -high)
        if not corners:
            raise NoLine("no steady rate fits the exchanges with the node's clock")
    return Fit(base, reference, tuple(corners), wander_ppb)


def _cut(corners: list[_Line], p: float, q: float, least: float) -> list[_Line]:
    """Clip a convex polygon to ``p * x + q * y >= least`` (Sutherland-Hodgman)."""
    kept: list[_Line] = []
    # With a small tolerance, so that bounds that only touch still leave a point.
    over = [p * x + q * y - least + 1e-3 for x, y in corners]
    for i, (x, y) in enumerate(corners):
        if over[i] >= 0:
            kept.append((x, y))
        j = (i + 1) % len(corners)
        if (over[i] >= 0) != (over[j] >= 0):
            share = over[i] / (over[i] - over[j])
            kept.append((x + share * (corners[j][0] - x), y + share * (corners[j][1] - y)))
    return kept


def _range(values: Iterable[float]) -> tuple[float, float]:
    all_of_them = list(values)
    return min(all_of_them), max(all_of_them)


class Clock:
    """The running estimate of a node's clock: takes exchanges, returns mappings."""

    def __init__(
        self, max_drift_ppb: float = MAX_DRIFT_PPB, wander_ppb: float = WANDER_PPB
    ) -> None:
        self._max_drift_ppb, self._wander_ppb = max_drift_ppb, wander_ppb
        self._best: list[Exchange] = []
        #: Number of times that an exchange contradicted all earlier ones, which were then dropped.
        self.jumps = 0
        self.width_ns: int | None = None

    def add(self, exchange: Exchange) -> None:
        """Add an exchange. Only the narrowest exchange of each period is kept."""
        stretch = exchange.n_in // STRETCH_NS
        if self._best and self._best[-1].n_in // STRETCH_NS == stretch:
            if exchange.width_ns <= self._aged(self._best[-1], exchange.n_in):
                self._best[-1] = exchange
        else:
            self._best = [*self._best[1 - STRETCHES :], exchange]
        self.width_ns = min(one.width_ns for one in self._best[-2:])

    def mapping(self, at_ns: int, horizon_ns: int = 0) -> Mapping:
        """Return the estimate from the node's time `at_ns` until `horizon_ns` later.

        Raises
        ------
        NoLine
            There has been no exchange yet.
        """
        if not self._best:
            raise NoLine("the node's clock has not been read yet")
        try:
            line = fit(self._best, self._max_drift_ppb, self._wander_ppb)
        except NoLine:
            # The earlier exchanges are no longer valid.
            self.jumps += 1
            self._best = self._best[-1:]
            line = fit(self._best, self._max_drift_ppb, self._wander_ppb)
        return line.mapping(at_ns, horizon_ns)

    def _aged(self, exchange: Exchange, now_ns: int) -> float:
        """Return the width of an exchange, plus its growth with age: the drift is uncertain."""
        return exchange.width_ns + 2e-9 * self._max_drift_ppb * (now_ns - exchange.n_in)

"""Which renewals of leases a node accepts. Pure functions: times are integers in nanoseconds.

A renewal is accepted once, in the order of departure, and only if its time in transit was short: a
recorded renewal, or one that waited in a queue, must not keep the traffic of a dead controller
alive.

>>> renewals = Renewals(limit_ns=1_000)
>>> ticket = renewals.add("r-1", Mapping(shift_ns=0, drift_ppb=0.0, at_ns=0, bound_ns=10))
>>> [renewals.accept(ticket, sent_ns, 5_000) for sent_ns in (4_500, 4_500, 4_400, 4_600)]
['r-1', None, None, 'r-1']
"""

from __future__ import annotations

import dataclasses
import secrets
import threading

from ._clocks import Mapping

__all__ = ["Renewals", "is_late"]


def is_late(mapping: Mapping, sent_ns: int, came_ns: int, limit_ns: float) -> bool:
    """Return whether a message was certainly in transit for longer than a limit.

    Parameters
    ----------
    mapping : Mapping
        From the node's clock to the controller's.
    sent_ns, came_ns : int
        Departure time on the controller's clock, and arrival time on the node's.
    limit_ns : float
    """
    return mapping.cluster(came_ns) - mapping.bound_ns - sent_ns > limit_ns


@dataclasses.dataclass
class _Ticket:
    run: str
    mapping: Mapping
    last_ns: int = 0


class Renewals:
    """Tickets of runs, with which the controller renews leases.

    Parameters
    ----------
    limit_ns : float
        Maximum time in transit of an accepted renewal.
    """

    def __init__(self, limit_ns: float) -> None:
        self._limit_ns = limit_ns
        self._tickets: dict[int, _Ticket] = {}
        # Calls of the controller add tickets, and the thread of the UDP port uses them.
        self._lock = threading.Lock()

    def add(self, run: str, mapping: Mapping) -> int:
        """Return a new ticket for a run."""
        # Random, so a renewal of an earlier controller matches no later run.
        ticket = secrets.randbits(63)
        with self._lock:
            self._tickets[ticket] = _Ticket(run, mapping)
        return ticket

    def remove(self, run: str) -> None:
        """Invalidate the ticket of a run that is over."""
        with self._lock:
            self._tickets = {t: one for t, one in self._tickets.items() if one.run != run}

    def measured(self, run: str, mapping: Mapping) -> None:
        """Replace the node clock mapping of a run."""
        with self._lock:
            for ticket in self._tickets.values():
                if ticket.run == run:
                    ticket.mapping = mapping

    def accept(self, ticket: int, sent_ns: int, came_ns: int) -> str | None:
        """Return the run whose lease this renewal renews; None if it is not accepted."""
        with self._lock:
            known = self._tickets.get(ticket)
            if known is None or sent_ns <= known.last_ns:
                return None
            known.last_ns = sent_ns
            if is_late(known.mapping, sent_ns, came_ns, self._limit_ns):
                return None
            return known.run

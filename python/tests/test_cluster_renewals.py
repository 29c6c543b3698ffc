"""Which renewals of leases are accepted: each once, in order, and none that was under way for long."""

import pytest

from squall.cluster._clocks import Mapping
from squall.cluster._renewals import Renewals

LIMIT_NS = 1_000_000_000
#: The controller's clock is 5 s ahead of the node's.
AHEAD = Mapping(shift_ns=5_000_000_000, drift_ppb=0.0, at_ns=0, bound_ns=1_000)
SAME = Mapping(shift_ns=0, drift_ppb=0.0, at_ns=0, bound_ns=1_000)


@pytest.fixture
def renewals() -> Renewals:
    return Renewals(LIMIT_NS)


def test_a_renewal_is_accepted_once_and_in_order(renewals: Renewals) -> None:
    ticket = renewals.add("r-1", SAME)
    for sent_ns, run in ((10, "r-1"), (10, None), (9, None), (11, "r-1"), (10, None)):
        assert renewals.accept(ticket, sent_ns, 100) == run


def test_a_renewal_that_was_under_way_for_long_is_not_accepted(renewals: Renewals) -> None:
    ticket = renewals.add("r-1", AHEAD)
    arrival_ns = 10_000_000_000
    on_time = arrival_ns + AHEAD.shift_ns - LIMIT_NS
    # Within the bound of the clock it may have been in time.
    for sent_ns, run in ((on_time - 2_000, None), (on_time - 500, "r-1"), (on_time, "r-1")):
        assert renewals.accept(ticket, sent_ns, arrival_ns) == run


def test_a_held_back_renewal_is_used_up(renewals: Renewals) -> None:
    ticket = renewals.add("r-1", SAME)
    assert renewals.accept(ticket, 10, 10 + 2 * LIMIT_NS) is None
    assert renewals.accept(ticket, 10, 100) is None


def test_each_run_has_its_own_ticket_and_order(renewals: Renewals) -> None:
    one, other = renewals.add("r-1", SAME), renewals.add("r-2", SAME)
    assert renewals.accept(one, 1_000, 1_000) == "r-1"
    assert renewals.accept(other, 10, 1_000) == "r-2"
    assert renewals.accept(one ^ other, 2_000, 2_000) is None
    renewals.remove("r-1")
    assert renewals.accept(one, 2_000, 2_000) is None
    assert renewals.accept(other, 2_000, 2_000) == "r-2"


def test_a_newer_mapping_of_the_clock_is_used(renewals: Renewals) -> None:
    ticket = renewals.add("r-1", SAME)
    came_ns = 20_000_000_000
    assert renewals.accept(ticket, came_ns - 2 * LIMIT_NS, came_ns) is None
    renewals.measured("r-1", Mapping(-2 * LIMIT_NS, 0.0, 0, 1_000))
    assert renewals.accept(ticket, came_ns - 2 * LIMIT_NS + 1, came_ns) == "r-1"

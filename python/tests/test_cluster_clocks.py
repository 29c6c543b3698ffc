"""Clocks of nodes: the true offset lies within the bound, for any delays."""

import random
from collections.abc import Callable

import pytest

from squall.cluster._clocks import Clock, Exchange, Mapping, NoLine, fit

S = 1_000_000_000
SEEDS = range(40)


class World:
    """A controller's clock as the reference, and a node's with an offset and a rate."""

    def __init__(self, rng: random.Random, drift: Callable[[int], float]) -> None:
        self.rng, self.drift = rng, drift
        self.now = rng.randrange(1, 10**6) * S
        self.node = rng.randrange(0, 10**6) * S

    def passes(self, ns: int) -> None:
        # The rate of the controller relative to the node: the drift of the mapping.
        self.now += ns
        self.node += round(ns / (1 + self.drift(self.now) * 1e-9))

    def exchange(self, there: int, inside: int, back: int) -> Exchange:
        c0 = self.now
        self.passes(there)
        n_in = self.node
        self.passes(inside)
        n_out = self.node
        self.passes(back)
        return Exchange(c0, n_in, n_out, self.now)

    def error(self, mapping: Mapping) -> int:
        return abs(mapping.cluster(self.node) - self.now)


def delays(rng: random.Random) -> tuple[int, int, int]:
    """Return delays of both directions: sometimes one takes a hundred times as long."""

    def one() -> int:
        return rng.randrange(20_000, 200_000) * rng.choice((1, 1, 1, 10, 100))

    return one(), rng.randrange(0, 3_000_000), one()


@pytest.mark.parametrize("seed", SEEDS)
def test_the_true_offset_is_within_the_bound_for_any_offset_drift_and_delays(seed: int) -> None:
    rng = random.Random(seed)
    drift = rng.uniform(-100_000, 100_000)
    world, clock = World(rng, lambda _: drift), Clock()
    for _ in range(200):
        clock.add(world.exchange(*delays(rng)))
        mapping = clock.mapping(world.node, horizon_ns=S)
        assert world.error(mapping) <= mapping.bound_ns
        # The bound holds until the end of the requested horizon, too.
        world.passes(rng.randrange(0, S))
        assert world.error(mapping) <= mapping.bound_ns
    assert clock.jumps == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_a_rate_that_wanders_within_its_limit_stays_within_the_bound(seed: int) -> None:
    rng = random.Random(seed)
    middle, wave = rng.uniform(-50_000, 50_000), rng.uniform(5, 200)

    def drift(now: int) -> float:
        return middle + 100 * (1 if (now // S) % round(wave) * 2 < wave else -1)

    world, clock = World(rng, drift), Clock(wander_ppb=200)
    for _ in range(200):
        clock.add(world.exchange(*delays(rng)))
        mapping = clock.mapping(world.node, horizon_ns=S)
        world.passes(rng.randrange(0, S))
        assert world.error(mapping) <= mapping.bound_ns
    assert clock.jumps == 0


def test_the_bound_of_one_exchange_is_half_the_time_under_way() -> None:
    world = World(random.Random(1), lambda _: 0.0)
    exchange = world.exchange(100_000, 5_000_000, 300_000)
    mapping = fit([exchange], max_drift_ppb=0, wander_ppb=0).mapping(exchange.n_out)
    assert abs(mapping.bound_ns - 200_000) <= 2
    # The delays differ by 200 us, so the estimate is off by half of that.
    assert abs(world.error(mapping) - 100_000) <= 2


def test_drift_is_found_over_time_and_narrows_the_bound() -> None:
    rng = random.Random(2)
    world, clock = World(rng, lambda _: 20_000.0), Clock()
    widths = []
    for _ in range(60):
        clock.add(world.exchange(100_000, 0, 100_000 + rng.randrange(50_000)))
        widths.append(clock.mapping(world.node, horizon_ns=10 * S).bound_ns)
        world.passes(S)
    mapping = clock.mapping(world.node)
    assert abs(mapping.drift_ppb - 20_000) < 4_000
    # At first the drift may be anything up to its limit: 1 ms in 10 s.
    assert widths[0] > 1_000_000
    assert widths[-1] < 250_000


def test_a_clock_that_was_set_forgets_its_past() -> None:
    world, clock = World(random.Random(3), lambda _: 0.0), Clock()
    for _ in range(20):
        clock.add(world.exchange(100_000, 0, 100_000))
        world.passes(S)
    world.node += 10_000_000
    for _ in range(10):
        world.passes(S)
        clock.add(world.exchange(100_000, 0, 100_000))
    mapping = clock.mapping(world.node)
    assert clock.jumps == 1
    assert world.error(mapping) <= mapping.bound_ns < 1_000_000


def test_exchanges_of_two_different_clocks_have_no_line() -> None:
    one = Exchange(c0=0, n_in=50, n_out=50, c1=100)
    other = Exchange(c0=S, n_in=S + 10_000_000, n_out=S + 10_000_000, c1=S + 100)
    with pytest.raises(NoLine):
        fit([one, other])
    with pytest.raises(NoLine, match="not been read"):
        Clock().mapping(0)


@pytest.mark.parametrize("seed", SEEDS)
def test_local_is_the_inverse_of_cluster(seed: int) -> None:
    rng = random.Random(seed)
    mapping = Mapping(rng.randrange(-(10**15), 10**15), rng.uniform(-1e5, 1e5), 10**15, 5)
    for _ in range(50):
        local = 10**15 + rng.randrange(-(10**12), 10**12)
        assert abs(mapping.local(mapping.cluster(local)) - local) <= 1


@pytest.mark.parametrize("seed", SEEDS)
def test_a_mapping_goes_through_an_artificial_clock_to_the_one_below_it(seed: int) -> None:
    rng = random.Random(seed)
    offset, drift, since = rng.randrange(-(10**12), 10**12), rng.uniform(-1e5, 1e5), 10**15

    def shown(local: int) -> int:
        return local + offset + round(drift * 1e-9 * (local - since))

    at = shown(since + 5 * S)
    mapping = Mapping(-offset + 77, 1234.5, at, 500)
    below = mapping.perturbed(offset, drift, since)
    for _ in range(50):
        local = since + rng.randrange(0, 100 * S)
        assert abs(below.cluster(local) - mapping.cluster(shown(local))) <= 3

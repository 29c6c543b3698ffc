import itertools
import time
from collections.abc import Callable

import pytest

_number = itertools.count()

Address = Callable[..., str]


def until(true: Callable[[], object], seconds: float = 60) -> None:
    """Wait for an effect of other threads or processes, however busy the machine is."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)


def still(count: Callable[[], object]) -> None:
    """Wait until a count no longer changes: on a busy machine, a worker obeys a pause late."""

    def same() -> bool:
        before = count()
        time.sleep(0.1)
        return count() == before

    until(same)


@pytest.fixture
def loop() -> Address:
    """Return addresses of unused links in memory; ``loop("virtual", drop="1/10")`` for one with
    options."""
    name = f"loop:test-{next(_number)}"

    def address(*flags: str, **options: object) -> str:
        return ",".join([name, *flags, *(f"{key}={value}" for key, value in options.items())])

    return address

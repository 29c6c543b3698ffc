import itertools
from collections.abc import Callable

import pytest

_number = itertools.count()

Address = Callable[..., str]


@pytest.fixture
def loop() -> Address:
    """Addresses of loops that nobody else has; ``loop("virtual", drop="1/10")`` for one with options."""
    name = f"loop:test-{next(_number)}"

    def address(*flags: str, **options: object) -> str:
        return ",".join([name, *flags, *(f"{key}={value}" for key, value in options.items())])

    return address

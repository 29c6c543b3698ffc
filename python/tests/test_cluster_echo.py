"""Clock exchanges over UDP: the bounds of an exchange, and the senders that get no answer."""

import asyncio
import socket
import time
from collections.abc import Iterator

import pytest

import squall
from squall.cluster._echo import MESSAGE, Echo, Where, ask

WRONG_NS = 7_000_000_000


def wrong() -> int:
    return time.monotonic_ns() + WRONG_NS


@pytest.fixture(params=["127.0.0.1", "::1"])
def echo(request: pytest.FixtureRequest) -> Iterator[Echo]:
    echo = Echo(request.param, 0, wrong)
    yield echo
    echo.close()


def test_an_exchange_bounds_the_error_of_the_clock(echo: Echo) -> None:
    for _ in range(20):
        exchange = asyncio.run(ask(echo.where, 5))
        assert exchange.c0 <= exchange.n_in - WRONG_NS <= exchange.n_out - WRONG_NS <= exchange.c1


def test_many_at_once_get_their_own_answers(echo: Echo) -> None:
    async def all_at_once() -> None:
        exchanges = await asyncio.gather(*(ask(echo.where, 5) for _ in range(50)))
        assert len({exchange.n_in for exchange in exchanges}) == 50

    asyncio.run(all_at_once())


def test_who_lacks_the_key_is_not_answered(echo: Echo) -> None:
    with pytest.raises(asyncio.TimeoutError):
        asyncio.run(ask(echo.where._replace(key=bytes(32)), 0.2))
    family = socket.AF_INET6 if ":" in echo.where.address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as stranger:
        stranger.connect((echo.where.address, echo.where.port))
        stranger.settimeout(0.2)
        for noise in (b"", b"x", bytes(40), bytes(1000)):
            stranger.send(noise)
        with pytest.raises(TimeoutError):
            stranger.recv(100)
    # The echo still answers a sender with the key.
    asyncio.run(ask(echo.where, 5))


def test_who_lacks_the_key_is_not_believed() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as impostor:
        impostor.bind(("127.0.0.1", 0))
        where = Where("127.0.0.1", impostor.getsockname()[1], bytes(32))

        async def forged() -> None:
            asked = asyncio.create_task(ask(where, 0.3))
            await asyncio.sleep(0.05)
            question, asker = impostor.recvfrom(100)
            changed = question[:-1] + bytes([question[-1] ^ 1])
            # The client's own question, also with a wrong code, an answer without a code, and one
            # that is too short.
            for answer in (question, changed, bytes(MESSAGE.size + 16), question[:10]):
                impostor.sendto(answer, asker)
            await asked

        with pytest.raises(asyncio.TimeoutError):
            asyncio.run(forged())


def test_a_closed_port_is_an_error_at_once() -> None:
    echo = Echo("127.0.0.1", 0, time.monotonic_ns)
    echo.close()
    began = time.monotonic()
    with pytest.raises(ConnectionRefusedError):
        asyncio.run(ask(echo.where, 5))
    assert time.monotonic() - began < 4


def test_a_taken_port_is_named() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(squall.Error, match=rf"UDP 127\.0\.0\.1:{port}: .*\n.*clock_port"):
            Echo("127.0.0.1", port, time.monotonic_ns)

"""Clock exchanges over UDP: the bounds of an exchange, and the senders that get no answer."""

import asyncio
import socket
import time
from collections.abc import Iterator

import pytest

import squall
from squall.cluster._clocks import Exchange
from squall.cluster._echo import ANSWER, MESSAGE, QUESTION, Echo, Where, _sealed, ask, renew

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


@pytest.fixture
def renewals() -> Iterator[tuple[Echo, list[tuple[int, int, int]]]]:
    came: list[tuple[int, int, int]] = []
    echo = Echo("127.0.0.1", 0, wrong, lambda *renewal: came.append(renewal))
    yield echo, came
    echo.close()


def renewed(where: Where, ticket: int, seconds: float) -> list[Exchange]:
    exchanges: list[Exchange] = []

    async def some() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(renew(where, ticket, 0.01, exchanges.append), seconds)

    asyncio.run(some())
    return exchanges


def test_a_renewal_arrives_with_its_ticket_and_reads_the_clock(
    renewals: tuple[Echo, list[tuple[int, int, int]]],
) -> None:
    echo, came = renewals
    exchanges = renewed(echo.where, 42, 0.5)
    # The answers to the last ones may still be on their way.
    assert 5 <= len(exchanges) <= len(came)
    assert all(ticket == 42 for ticket, _, _ in came)
    for (_, sent_ns, came_ns), one in zip(came, exchanges):
        assert (sent_ns, came_ns) == (one.c0, one.n_in)
        assert one.c0 <= one.n_in - WRONG_NS <= one.n_out - WRONG_NS <= one.c1


def test_only_a_renewal_with_the_key_renews(
    renewals: tuple[Echo, list[tuple[int, int, int]]],
) -> None:
    echo, came = renewals
    assert renewed(echo.where._replace(key=bytes(32)), 42, 0.2) == []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        for kind in (QUESTION, ANSWER):
            # A question of the clock, or an answer, renews nothing.
            stranger.sendto(_sealed(echo.where.key, kind, 1, 42, 0), echo.where[:2])
    asyncio.run(ask(echo.where, 5))
    assert came == []


def test_renewals_go_on_while_nobody_answers() -> None:
    echo = Echo("127.0.0.1", 0, time.monotonic_ns)
    where, port = echo.where, echo.where.port
    echo.close()
    exchanges: list[Exchange] = []

    async def some() -> None:
        task = asyncio.create_task(renew(where, 42, 0.01, exchanges.append))
        await asyncio.sleep(0.1)
        assert not exchanges and not task.done()
        again = Echo("127.0.0.1", port, time.monotonic_ns)
        again.where = where
        for _ in range(2000):
            if exchanges:
                break
            await asyncio.sleep(0.01)
        task.cancel()
        again.close()

    asyncio.run(some())
    assert exchanges


def test_copies_of_an_answer_count_once() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as node:
        node.bind(("127.0.0.1", 0))
        node.setblocking(False)
        where = Where("127.0.0.1", node.getsockname()[1], bytes(32))
        exchanges: list[Exchange] = []

        async def some() -> None:
            task = asyncio.create_task(renew(where, 42, 10, exchanges.append))
            await asyncio.sleep(0.1)
            question, asker = node.recvfrom(100)
            number, _, _ = MESSAGE.unpack_from(question)
            for _ in range(3):
                node.sendto(_sealed(where.key, ANSWER, number, 1, 2), asker)
            node.sendto(_sealed(where.key, ANSWER, number + 1, 1, 2), asker)
            await asyncio.sleep(0.1)
            task.cancel()

        asyncio.run(some())
        assert [(one.n_in, one.n_out) for one in exchanges] == [(1, 2)]


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

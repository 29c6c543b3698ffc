"""A node's clock and the leases of its runs, over UDP.

Answers are sent by a thread that does nothing else, and received by a callback that reads the clock
first: the round trip is then that of the network instead of that of messages between workers, so
the error bound of the clock is narrower. A question may also renew a lease: TCP waits longer after
each lost packet, UDP does not, so a lease is renewed as soon as the network works again.

Both sides have a key, which they received over another channel: messages without a valid code are
ignored. Questions are as long as answers, so the echo cannot be used for amplification with forged
source addresses.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from .._errors import Error
from ._clocks import Exchange

__all__ = ["Echo", "Where", "ask", "renew"]

#: Fields before the authentication code: a number and two times. In an answer, the number is that
#: of the question, followed by the node's times of the question's arrival and of the answer's
#: departure. In a renewal, the number is the controller's departure time, followed by the run's
#: ticket and 0.
MESSAGE = struct.Struct("!Qqq")
CODE = 16
#: Personalizations of the authentication code: without them a reflected question would pass for its
#: own answer, and a recorded question for a renewal.
QUESTION, RENEWAL, ANSWER = b"question", b"renewal", b"answer"
#: Maximum length of a message; longer ones are ignored.
LARGEST = 128
#: Maximum number of unanswered renewals that are remembered; older ones are dropped.
UNANSWERED = 100


class Where(NamedTuple):
    """Address and key of a clock echo server."""

    address: str
    port: int
    key: bytes


class Echo:
    """Clock echo server on a UDP port of `address`.

    Parameters
    ----------
    address : str
    port : int
        0: any free port.
    now : callable
        Reads the clock, in ns.
    renewed : callable, optional
        Called with each renewal: the ticket, the controller's departure time and this clock's
        arrival time, in ns. It must return quickly, because the thread answers only after it
        returns.

    Raises
    ------
    Error
        The port is in use.
    """

    def __init__(
        self,
        address: str,
        port: int,
        now: Callable[[], int],
        renewed: Callable[[int, int, int], object] = lambda *_: None,
    ) -> None:
        self._now, self._renewed, self._socket = now, renewed, _socket(address)
        try:
            self._socket.bind((address, port))
        except OSError as error:
            self._socket.close()
            raise Error(
                f"cannot answer for the clock at UDP {address}:{port}: {error}\n"
                "  try another clock_port of the node, or none"
            ) from None
        key = secrets.token_bytes(32)
        self.where = Where(address, self._socket.getsockname()[1], key)
        self._closing = False
        self._thread = threading.Thread(target=self._serve, name="clock", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread and close the port."""
        self._closing = True
        # shutdown() of an unconnected socket fails, but it wakes up a thread that is blocked in it.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        # Wait for the thread before the descriptor is closed and can be reused.
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        while not self._closing:
            with contextlib.suppress(OSError):
                question, asker = self._socket.recvfrom(LARGEST)
                came = self._now()
                number = _number(question, self.where.key, QUESTION)
                if number is None:
                    number = _number(question, self.where.key, RENEWAL)
                    if number is None:
                        continue
                    _, ticket, _ = MESSAGE.unpack_from(question)
                    self._renewed(ticket, number, came)
                answer = _sealed(self.where.key, ANSWER, number, came, self._now())
                self._socket.sendto(answer, asker)


async def ask(where: Where, timeout: float) -> Exchange:
    """Exchange clock readings once.

    Raises
    ------
    OSError
        There is no route, or the UDP port is closed.
    asyncio.TimeoutError
        No answer came within `timeout` seconds.
    """
    loop = asyncio.get_running_loop()
    number = secrets.randbits(64)
    question = _sealed(where.key, QUESTION, number, 0, 0)
    done: asyncio.Future[Exchange] = loop.create_future()
    with _socket(where.address) as asking:
        asking.setblocking(False)
        asking.connect((where.address, where.port))

        def came() -> None:
            try:
                answer = asking.recv(LARGEST)
            except BlockingIOError:
                return
            except OSError as error:
                if not done.done():
                    done.set_exception(error)
                return
            c1 = time.monotonic_ns()
            if _number(answer, where.key, ANSWER) == number and not done.done():
                _, n_in, n_out = MESSAGE.unpack_from(answer)
                done.set_result(Exchange(c0, n_in, n_out, c1))

        loop.add_reader(asking, came)
        try:
            c0 = time.monotonic_ns()
            asking.send(question)
            return await asyncio.wait_for(done, timeout)
        finally:
            loop.remove_reader(asking)


async def renew(
    where: Where, ticket: int, every_s: float, heard: Callable[[Exchange], object]
) -> None:
    """Renew the lease of a run every `every_s` seconds, until the task is canceled. Calls `heard`
    with each answer, also with late and reordered ones.
    """
    loop = asyncio.get_running_loop()
    sent: dict[int, None] = {}
    with _socket(where.address) as asking:
        asking.setblocking(False)
        asking.connect((where.address, where.port))

        def came() -> None:
            # The kernel reports errors of earlier packets here, such as "no route to host" while
            # the network is down. The next renewal may get through.
            with contextlib.suppress(OSError):
                answer = asking.recv(LARGEST)
                c1 = time.monotonic_ns()
                number = _number(answer, where.key, ANSWER)
                # Each renewal has at most one answer; duplicates and answers to others are ignored.
                if number in sent:
                    del sent[number]
                    _, n_in, n_out = MESSAGE.unpack_from(answer)
                    heard(Exchange(number, n_in, n_out, c1))

        loop.add_reader(asking, came)
        try:
            due = loop.time()
            while True:
                c0 = time.monotonic_ns()
                sent[c0] = None
                if len(sent) > UNANSWERED:
                    del sent[next(iter(sent))]
                with contextlib.suppress(OSError):
                    asking.send(_sealed(where.key, RENEWAL, c0, ticket, 0))
                # After a stall of this process, resume the interval from now instead of sending the
                # missed renewals.
                due = max(due + every_s, loop.time())
                await asyncio.sleep(due - loop.time())
        finally:
            loop.remove_reader(asking)


def _socket(address: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.socket(family, socket.SOCK_DGRAM)


def _sealed(key: bytes, kind: bytes, number: int, one: int, other: int) -> bytes:
    message = MESSAGE.pack(number, one, other)
    return message + _code(key, kind, message)


def _number(message: bytes, key: bytes, kind: bytes) -> int | None:
    """Return the number of a message; None if it is not of `kind`, or not authenticated by
    `key`."""
    content, code = message[: MESSAGE.size], message[MESSAGE.size :]
    if not hmac.compare_digest(code, _code(key, kind, content)):
        return None
    number, _, _ = MESSAGE.unpack(content)
    return int(number)


def _code(key: bytes, kind: bytes, content: bytes) -> bytes:
    return hashlib.blake2b(content, key=key, person=kind, digest_size=CODE).digest()

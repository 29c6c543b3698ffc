"""A device under test: forwards frames between two interfaces, with configurable limits and
outages, and counts them. It shares no code with Squall, so tests use its counters as ground truth.

    bridge.py IF_A IF_B --rate 1000 --queue 50 --delay-ms 2 --outage 0.5:0.217 --direction a

Prints the line "ready" when it starts to forward, and its counters as JSON when its standard input
ends or on SIGTERM. Outage times are relative to the first test frame (of at least --from octets) in
each direction.
"""

import argparse
import collections
import json
import random
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator

SOL_PACKET, PACKET_ADD_MEMBERSHIP, PACKET_MR_PROMISC, PACKET_IGNORE_OUTGOING = 263, 1, 1, 23
EVERYTHING = 3
BATCH = 64
# Pause between test frames, in seconds, that separates two trials.
PAUSE_S = 0.3


def opened(interface: str) -> socket.socket:
    found = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(EVERYTHING))
    found.bind((interface, EVERYTHING))
    promiscuous = struct.pack("iHH8s", socket.if_nametoindex(interface), PACKET_MR_PROMISC, 0, b"")
    found.setsockopt(SOL_PACKET, PACKET_ADD_MEMBERSHIP, promiscuous)
    found.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    found.setblocking(False)
    return found


class Limits:
    def __init__(self, given: argparse.Namespace, side: str) -> None:
        impaired = given.direction in (side, "both")
        self.dead = given.dead in (side, "both")
        rate = (given.rate or {}).get(side) if impaired else None
        self.gap = 1 / rate if rate else 0.0
        self.queue = given.queue
        self.delay = given.delay_ms / 1000 if impaired else 0.0
        self.outages = [tuple(map(float, o.split(":"))) for o in given.outage if impaired]
        self.frames = [tuple(map(int, o.split(":"))) for o in given.drop if impaired]
        self.skip = given.skip
        self.of_trials = [tuple(map(int, o.split(":"))) for o in given.lose if impaired]
        self.police, self.burst = given.policer if impaired and given.policer else (0.0, 0.0)
        self.smallest = getattr(given, "from")
        self.loss = given.random_loss if impaired else 0.0
        self.random = random.Random(given.seed)


class Direction:
    """One direction: a policer, outages, a queue that is drained at a rate, then a delay."""

    def __init__(self, source: socket.socket, sink: socket.socket, limits: Limits) -> None:
        self.source, self.sink, self.limits = source, sink, limits
        self.waiting: collections.deque[tuple[float, bytes]] = collections.deque()
        self.free_at = 0.0
        self.tokens, self.refilled = limits.burst, 0.0
        self.first: float | None = None
        self.test_frames = 0
        self.skipped = 0
        # Test frames per trial, and when the last one arrived.
        self.trials: list[int] = []
        self.latest = 0.0
        self.counts: collections.Counter[str] = collections.Counter()
        #: Length, in frames and in seconds, of each series of consecutive test frames that was
        #: lost.
        self.periods: list[dict] = []
        self.losing: dict | None = None
        self.last_passed: float | None = None

    def receive(self, now: float) -> None:
        for _ in range(BATCH):
            try:
                frame = self.source.recv(65536)
            except (BlockingIOError, OSError):
                return
            self.take(frame, now)

    def take(self, frame: bytes, now: float) -> None:
        self.counts["received"] += 1
        self.counts["received_octets"] += len(frame)
        tested = len(frame) >= self.limits.smallest
        if tested and self.skipped < self.limits.skip:
            self.skipped += 1
            tested = False
        if tested:
            self.first = now if self.first is None else self.first
            self.test_frames += 1
            self.count_in_trial(now)
        reason = self.refuses(now, tested)
        if tested:
            self.note(reason, now)
        if reason:
            self.counts[f"dropped_{reason}"] += 1
            return
        at = max(now, self.free_at) if self.limits.gap else now
        self.free_at = at + self.limits.gap
        self.waiting.append((at + self.limits.delay, frame))

    def count_in_trial(self, now: float) -> None:
        if not self.trials or now - self.latest > PAUSE_S:
            self.trials.append(0)
            self.losing, self.last_passed = None, None
        self.trials[-1] += 1
        self.latest = now

    def refuses(self, now: float, tested: bool) -> str | None:
        limits = self.limits
        if limits.dead:
            return "dead"
        if tested and any(a <= self.test_frames - 1 < b for a, b in limits.frames):
            return "frames"
        if tested and any(s <= now - self.first < s + length for s, length in limits.outages):
            return "outage"
        trial, number = len(self.trials) - 1, (self.trials or [0])[-1] - 1
        if tested and any(t == trial and a <= number < b for t, a, b in limits.of_trials):
            return "trial"
        if tested and limits.loss and limits.random.random() < limits.loss:
            return "random"
        if limits.police:
            self.tokens = min(limits.burst, self.tokens + (now - self.refilled) * limits.police)
            self.refilled = now
            if self.tokens < 1:
                return "policer"
            self.tokens -= 1
        if limits.gap and self.free_at - now >= limits.queue * limits.gap:
            return "queue"
        return None

    def note(self, reason: str | None, now: float) -> None:
        if reason is None:
            if self.losing:
                self.losing["until_s"] = now - self.first
            self.losing, self.last_passed = None, now
            return
        if self.losing is None:
            since = None if self.last_passed is None else self.last_passed - self.first
            at = {"trial": len(self.trials) - 1, "from": self.trials[-1] - 1}
            self.losing = at | {"frames": 0, "since_s": since, "until_s": None}
            self.periods.append(self.losing)
        self.losing["frames"] += 1

    def send(self, now: float) -> None:
        while self.waiting and self.waiting[0][0] <= now:
            frame = self.waiting.popleft()[1]
            try:
                self.sink.send(frame)
            except OSError as error:
                self.counts[f"dropped_{error.strerror}"] += 1
                continue
            self.counts["forwarded"] += 1
            self.counts["forwarded_octets"] += len(frame)

    def figures(self) -> dict:
        found = dict(self.counts) | {"loss_periods": self.periods, "trials": self.trials}
        found["not_yet_forwarded"] = len(self.waiting)
        return found


def rates(text: str) -> dict[str, float]:
    a, _, b = text.partition(":")
    return {"a": float(a), "b": float(b or a)}


def policer(text: str) -> tuple[float, float]:
    rate, _, burst = text.partition(":")
    return float(rate), float(burst or 1)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("a", help="interface")
    parser.add_argument("b", help="interface")
    parser.add_argument(
        "--rate", type=rates, help="frames/s to which each direction is shaped, or FROM-A:FROM-B"
    )
    parser.add_argument("--queue", type=int, default=50, help="frames that wait at --rate")
    parser.add_argument("--policer", type=policer, help="RATE:BURST in frames/s and frames")
    parser.add_argument("--delay-ms", type=float, default=0)
    parser.add_argument("--outage", action="append", default=[], help="START:LENGTH in seconds")
    parser.add_argument("--drop", action="append", default=[], help="FIRST:LAST+1, test frames")
    parser.add_argument(
        "--lose", action="append", default=[], help="TRIAL:FIRST:LAST+1, test frames of a trial"
    )
    parser.add_argument(
        "--random-loss", type=float, default=0.0, help="share of the test frames that is lost"
    )
    parser.add_argument("--seed", type=int, default=0, help="of --random-loss")
    parser.add_argument("--from", type=int, default=0, help="octets of a test frame at least")
    parser.add_argument("--skip", type=int, default=0, help="such frames before the test begins")
    parser.add_argument(
        "--direction",
        choices=["a", "b", "both"],
        default="both",
        help="which frames the limits are for: those from a, from b, or both",
    )
    parser.add_argument(
        "--dead", choices=["a", "b", "both"], help="drop all frames from this side, of any kind"
    )
    return parser.parse_args()


def turns(sockets: list[socket.socket], wait_s: Callable[[], float]) -> Iterator[list]:
    """Print "ready", and yield the sockets that are readable, at least every `wait_s()` seconds, until
    standard input ends, or until SIGTERM or SIGINT."""
    running = True

    def stop(*_: object) -> None:
        nonlocal running
        running = False

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    print("ready", flush=True)
    while running:
        ready, _, _ = select.select([*sockets, sys.stdin], [], [], wait_s())
        # Frames that arrived before the end of the input count.
        if ready == [sys.stdin] and not sys.stdin.buffer.read1(1):
            return
        yield ready


def main() -> int:
    given = arguments()
    a, b = opened(given.a), opened(given.b)
    ways = {
        "a": Direction(a, b, Limits(given, "a")),
        "b": Direction(b, a, Limits(given, "b")),
    }

    def wait_s() -> float:
        due = [way.waiting[0][0] for way in ways.values() if way.waiting]
        return max(0.0, min(due) - time.monotonic()) if due else 0.5

    for ready in turns([a, b], wait_s):
        now = time.monotonic()
        for way in ways.values():
            if way.source in ready:
                way.receive(now)
        now = time.monotonic()
        for way in ways.values():
            way.send(now)
    print(json.dumps({name: way.figures() for name, way in ways.items()}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

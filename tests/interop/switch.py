"""A switch under test: learns MAC addresses, and forwards frames between interfaces through a queue
at each egress port. It shares no code with Squall: its counters are the truth for tests.

    switch.py IF IF IF ... --rate 1000 --queue 50 [--ingress 20]

Decides on each frame by the kernel's time of its arrival, so that a late turn of this process loses
none. With --ingress a frame to a full queue waits at the head of its ingress port and blocks the
frames after it (head-of-line blocking); without, it is dropped. Broadcasts and frames to unknown
addresses go to all other ports.

Prints one line, "ready", when it forwards, and its counters as JSON when its standard input ends or
on SIGTERM.
"""

import argparse
import collections
import heapq
import json
import socket
import struct
import sys
import time

from bridge import opened, turns

SO_TIMESTAMPNS = 35
BATCH = 64
# Frames without an address of its own for the other end: they bypass the queues, so that a queue has
# room for test frames only.
BROADCAST = b"\xff" * 6


class Port:
    def __init__(self, interface: str) -> None:
        self.name, self.socket = interface, opened(interface)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self.counts: collections.Counter[str] = collections.Counter()
        #: When the egress has sent all frames of its queue.
        self.free_at = 0.0
        #: The most frames that the egress queue has held.
        self.deepest = 0.0
        #: When each frame of the ingress leaves for its egress queue.
        self.ingress: collections.deque[float] = collections.deque()

    def received(self) -> list[tuple[float, bytes]]:
        frames = []
        for _ in range(BATCH):
            try:
                frame, control, _, _ = self.socket.recvmsg(65536, 64)
            except (BlockingIOError, OSError):
                break
            seconds, nanos = struct.unpack("qq", control[0][2])
            frames.append((seconds + nanos / 1e9, frame))
        return frames


class Switch:
    def __init__(self, given: argparse.Namespace) -> None:
        self.ports = [Port(name) for name in given.interfaces]
        self.gap, self.queue, self.fifo = 1 / given.rate, given.queue, given.ingress
        self.known: dict[bytes, Port] = {}
        self.waiting: list[tuple[float, int, Port, bytes]] = []
        self.taken = 0

    def take(self, source: Port, at: float, frame: bytes) -> None:
        source.counts["received"] += 1
        self.known[frame[6:12]] = source
        sink = self.known.get(frame[:6])
        if frame[:6] == BROADCAST or sink is None:
            for port in self.ports:
                if port is not source:
                    self.hold(at, port, frame)
        elif sink is not source:
            self.enqueue(source, sink, at, frame)

    def enqueue(self, source: Port, sink: Port, at: float, frame: bytes) -> None:
        if self.fifo:
            while source.ingress and source.ingress[0] <= at:
                source.ingress.popleft()
            if len(source.ingress) >= self.fifo:
                source.counts["dropped_ingress"] += 1
                return
            head = max(at, source.ingress[-1] if source.ingress else 0.0)
            at = max(head, sink.free_at - (self.queue - 1) * self.gap)
            source.ingress.append(at)
        elif sink.free_at - at >= self.queue * self.gap:
            sink.counts["dropped_queue"] += 1
            return
        leaves = max(at, sink.free_at)
        sink.free_at = leaves + self.gap
        sink.deepest = max(sink.deepest, (sink.free_at - at) / self.gap)
        self.hold(leaves, sink, frame)

    def hold(self, at: float, sink: Port, frame: bytes) -> None:
        self.taken += 1
        heapq.heappush(self.waiting, (at, self.taken, sink, frame))

    def send(self, now: float) -> None:
        while self.waiting and self.waiting[0][0] <= now:
            _, _, sink, frame = heapq.heappop(self.waiting)
            try:
                sink.socket.send(frame)
            except OSError as error:
                sink.counts[f"dropped_{error.strerror}"] += 1
                continue
            sink.counts["forwarded"] += 1

    def turn(self) -> None:
        """Takes the frames of all ports in the order of their arrival."""
        arrived = [(at, i, f) for i, port in enumerate(self.ports) for at, f in port.received()]
        for at, i, frame in sorted(arrived, key=lambda one: one[0]):
            self.take(self.ports[i], at, frame)
        self.send(time.time())

    def wait_s(self) -> float:
        return max(0.0, self.waiting[0][0] - time.time()) if self.waiting else 0.5

    def figures(self) -> dict:
        return {port.name: dict(port.counts) | {"deepest": port.deepest} for port in self.ports}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("interfaces", nargs="+", help="interfaces")
    parser.add_argument("--rate", type=float, required=True, help="frames/s of each egress port")
    parser.add_argument("--queue", type=int, default=50, help="frames of each egress port")
    parser.add_argument(
        "--ingress", type=int, default=0, help="frames that wait at an ingress port for an egress"
    )
    return parser.parse_args()


def main() -> int:
    switch = Switch(arguments())
    for _ in turns([port.socket for port in switch.ports], switch.wait_s):
        switch.turn()
    print(json.dumps(switch.figures()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The wire between the machines of a simulation: one task that delivers, at the times that the links draw.

Machines have addresses (`10.0.0.1`); what may happen from one to another is set as in the heap simulation
(`gossipkv.testing.network.Link`), for all links or for one direction of one.  Datagrams are lost, late, doubled, out
of order, damaged.  Segments of connections are never: what is lost or meets a cut is sent again, later each time
(`streams.py`).
"""

from __future__ import annotations

from dataclasses import replace
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Final, Protocol, final

import trio

from gossipkv.testing.network import MOST_DELAY_US, REORDER_US, Link

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterable

    from gossipkv.address import Address
    from gossipkv.testing.nodes.streams import StreamEnd
    from gossipkv.testing.nodes.trace import Trace
    from gossipkv.testing.streams import Streams

# TCP's, as Linux has them: the first time that a segment is sent again, and the longest pause between two times.
LEAST_AGAIN_S: Final = 0.2
MOST_AGAIN_S: Final = 120.0

_US: Final = 1e-6


class Listening(Protocol):
    """A listening socket, as the wire sees it."""

    def knock(self, stream: StreamEnd) -> None:
        """Somebody has connected."""
        ...


class Receiving(Protocol):
    """A datagram socket, as the wire sees it."""

    def arrive(self, packet: bytes, source: Address) -> None:
        """A datagram came."""
        ...


@final
class Network:
    """All machines' wires."""

    def __init__(self, streams: Streams, struck: Counter[str], trace: Trace) -> None:
        self._streams = streams
        self.struck = struck
        self.trace = trace
        self.usual = Link()
        self._links: dict[tuple[str, str], Link] = {}
        self.running: set[str] = set()  # The machines that have power.
        self.listening: dict[Address, Listening] = {}
        self.receiving: dict[Address, Receiving] = {}
        self.names: dict[str, tuple[str, ...]] = {}  # What the name service knows.
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._earlier = trio.Event()

    # Links

    def link(self, source: str, target: str) -> Link:
        """The link of one direction, to be set."""
        return self._links.setdefault((source, target), replace(self.usual))

    def partition(self, *sides: Iterable[str], one_way: bool = False, datagrams_only: bool = False) -> None:
        """Cut all links between different sides; `one_way`: only those from an earlier to a later one."""
        groups = [tuple(side) for side in sides]
        for here, side in enumerate(groups):
            for there, other in enumerate(groups):
                if here == there or (one_way and here > there):
                    continue
                for link in (self.link(source, target) for source in side for target in other):
                    link.cut, link.datagrams_cut = not datagrams_only, True
        self.trace.note("network", "partition", f"{groups} {one_way} {datagrams_only}")

    def heal(self) -> None:
        """Every link is as good as new."""
        self.usual = Link()
        self._links.clear()
        self.trace.note("network", "heal")

    # Delivering

    async def run(self) -> None:
        """Deliver, until cancelled."""
        while True:
            while self._events and self._events[0][0] <= trio.current_time():
                heappop(self._events)[2]()
            self._earlier = trio.Event()
            with trio.move_on_at(self._events[0][0] if self._events else float("inf")):
                await self._earlier.wait()

    def after(self, delay_s: float, do: Callable[[], None]) -> None:
        """Do it a little later."""
        at = trio.current_time() + delay_s
        if not self._events or at < self._events[0][0]:
            self._earlier.set()
        heappush(self._events, (at, next(self._numbers), do))

    def send_datagram(self, source: Address, target: Address, packet: bytes) -> None:
        """One datagram: it may be lost, doubled, late, damaged."""
        link = self._link(source.host, target.host)
        self.trace.note(str(source), "datagram", target, packet)
        if link.cut or link.datagrams_cut:
            self.struck["cut"] += 1
        elif len(packet) > link.mtu_bytes:
            self.struck["mtu"] += 1
        elif not self._happens("loss", link.loss):
            for _ in range(2 if self._happens("duplicate", link.duplicate) else 1):
                self._deliver(source, target, link, packet)

    def _deliver(self, source: Address, target: Address, link: Link, packet: bytes) -> None:
        delay_s = self.delay_s(link)
        if self._happens("reorder", link.reorder):
            delay_s += self._streams["network/reorder"].random() * REORDER_US * _US
        if self._happens("corrupt", link.corrupt):
            bit = self._streams["network/corrupt"].randrange(8 * len(packet))
            damaged = bytearray(packet)
            damaged[bit // 8] ^= 1 << bit % 8
            packet = bytes(damaged)

        def arrive() -> None:
            receiver = self.receiving.get(target)
            if receiver is not None:
                receiver.arrive(packet, source)

        self.after(delay_s, arrive)

    # What streams ask

    def segment_s(self, source: str, target: str) -> float | None:
        """How long one segment takes; None: it does not arrive."""
        link = self._link(source, target)
        if link.cut:
            self.struck["cut"] += 1
            return None
        if self._happens("loss", link.loss):
            return None
        return self.delay_s(link)

    def delay_s(self, link: Link) -> float:
        """How long one packet takes on this link."""
        delay_us = link.least_delay_us + int(self._streams["network/delay"].random() * link.delay_spread_us)
        if self._happens("heavy_delay", link.heavy_delay):
            tail_us = int(1000 / (1 - self._streams["network/heavy_delay"].random()))
            delay_us = min(MOST_DELAY_US, delay_us + tail_us)
        return max(delay_us * _US, link.clogged_until_us * _US - trio.current_time())

    def _link(self, source: str, target: str) -> Link:
        return self._links.get((source, target), self.usual)

    def _happens(self, name: str, chance: float) -> bool:
        if chance and self._streams[f"network/{name}?"].random() < chance:
            self.struck[name] += 1
            return True
        return False

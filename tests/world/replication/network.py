"""Connections between nodes, each dialled by one of the two: ordered messages, delayed, and held back by cuts.

Messages are packed as on the wire.  A cut holds the messages of its direction until it heals, as a kernel that
retransmits; a broken connection loses all messages under way, and its dialler hears of that.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, Protocol, final

import msgpack
import trio

from gossipkv.errors import GossipKVError, Unavailable, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from gossipkv.table.controllers.load_stats import LoadStats
    from gossipkv.wire.results import Completion
    from gossipkv.wire.rpc import Value

NO_ROWS: Final = [0, msgpack.packb([])]  # The parameters of a `replica_tell` that only asks for the time.


class Life(Protocol):
    """One life of a node, as the network sees it."""

    @property
    def node(self) -> bytes: ...

    @property
    def is_over(self) -> bool: ...

    @property
    def measuring(self) -> LoadStats: ...

    def answer(self, method: str, params: list[Value], told: Callable[[Value], object]) -> None: ...

    def disconnected(self, node: bytes) -> None:
        """Handle the break of the connection to a node."""
        ...


@final
@dataclass(eq=False)
class Link:
    source: Life
    to: Life
    is_broken: bool = False
    last: dict[bytes, float] = field(default_factory=dict)  # By side: when its last message arrives.
    held: list[tuple[bytes, Callable[[], None]]] = field(default_factory=list)
    pending: dict[int, Completion[Value]] = field(default_factory=dict)


@final
class Network:
    def __init__(self, random: Random, counts: Counter[str]) -> None:
        self.lives: dict[bytes, Life] = {}  # The lives of nodes that are up.
        self.cuts: set[tuple[bytes, bytes]] = set()  # Pairs of source and target.
        self.wrongly_dead: set[bytes] = set()  # Nodes that seem to be down to all others.
        self.links: dict[tuple[bytes, bytes], Link] = {}
        self.delay_s = 0.0005, 0.003
        self.counts = counts
        self.times_asked: Counter[tuple[bytes, bytes]] = Counter()  # By asker and asked: questions for the time alone.
        self._random = random
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self._sooner = trio.Event()

    async def run(self) -> None:
        while True:
            self._sooner = trio.Event()
            with trio.move_on_at(self._heap[0][0] if self._heap else math.inf):
                await self._sooner.wait()
            while self._heap and self._heap[0][0] <= trio.current_time():
                heappop(self._heap)[2]()

    def at(self, time: float, do: Callable[[], None]) -> None:
        self._number += 1
        heappush(self._heap, (time, self._number, do))
        if self._heap[0][1] == self._number:
            self._sooner.set()

    # # -- connections -------------------------------------------------------------------------------------------------

    def connect(self, source: Life, to: bytes) -> bool:
        """Dial a node; return True if there is a new connection."""
        life = self.lives.get(to)
        if (
            life is None
            or source.is_over
            or (source.node, to) in self.links
            or {(source.node, to), (to, source.node)} & self.cuts
        ):
            return False
        self.links[source.node, to] = Link(source, life)
        return True

    def breaks(self, link: Link) -> None:
        if link.is_broken:
            return
        link.is_broken = True
        self.at(trio.current_time() + self._random.uniform(0.001, 0.05), partial(self._broken, link))

    def _broken(self, link: Link) -> None:
        del self.links[link.source.node, link.to.node]
        if not link.source.is_over:
            pending, link.pending = link.pending, {}
            for complete in pending.values():
                complete(Unknown("the connection broke"))
            link.source.disconnected(link.to.node)

    def ended(self, life: Life) -> None:
        self.lives.pop(life.node, None)
        for link in self.links.values():
            if life in (link.source, link.to):
                self.breaks(link)

    def heal(self, cuts: set[tuple[bytes, bytes]]) -> None:
        self.cuts -= cuts
        for link in self.links.values():
            held, link.held = link.held, []
            for source, deliver in held:
                self._deliver(link, source, deliver)

    # # -- messages ----------------------------------------------------------------------------------------------------

    def ask(
        self,
        source: Life,
        to: bytes,
        method: str,
        params: list[Value],
        *,
        timeout_s: float,
        complete: Completion[Value],
    ) -> None:
        """Ask a node; `complete` is called once, unless the asker's life ends first."""
        link = self.links.get((source.node, to))
        if link is None or link.is_broken:
            self.at(trio.current_time(), partial(self._no_way, source, complete))
            return
        if method == "replica_tell" and params[-2:] == NO_ROWS:
            self.times_asked[source.node, to] += 1
        else:
            self.counts[method] += 1
        self._number += 1
        number = self._number
        link.pending[number] = complete
        packed = msgpack.packb(params)
        self.counts[f"{method} bytes"] += len(packed)
        self._send(link, source.node, partial(self._arrived, link, number, method, packed))
        self.at(trio.current_time() + timeout_s, partial(self._answered, link, number, None))

    @staticmethod
    def _no_way(source: Life, complete: Completion[Value]) -> None:
        if not source.is_over:
            complete(Unavailable("no way"))

    def _send(self, link: Link, source: bytes, deliver: Callable[[], None]) -> None:
        time = max(link.last.get(source, 0.0), trio.current_time() + self._random.uniform(*self.delay_s))
        link.last[source] = time
        self.at(time, partial(self._deliver, link, source, deliver))

    def _deliver(self, link: Link, source: bytes, deliver: Callable[[], None]) -> None:
        to = link.to.node if source == link.source.node else link.source.node
        if link.is_broken:
            return
        if (source, to) in self.cuts or any(held is source for held, _ in link.held):
            link.held.append((source, deliver))
        else:
            deliver()

    def _arrived(self, link: Link, number: int, method: str, packed: bytes) -> None:
        def told(value: Value) -> None:
            if not link.to.is_over:
                answer = msgpack.packb(value)
                self.counts["answer bytes"] += len(answer)
                self._send(link, link.to.node, partial(self._answered, link, number, answer))

        def refused(error: GossipKVError) -> None:
            self.counts[f"{method} {error.code}"] += 1
            self._send(link, link.to.node, partial(self._answered, link, number, error))

        try:
            link.to.answer(method, msgpack.unpackb(packed), told)
        except GossipKVError as error:
            refused(error)

    @staticmethod
    def _answered(link: Link, number: int, answer: bytes | GossipKVError | None) -> None:
        complete = link.pending.pop(number, None)
        if complete is None or link.source.is_over:
            return
        if isinstance(answer, bytes):
            complete(msgpack.unpackb(answer))
        else:
            complete(Unknown("no answer in time") if answer is None else answer)

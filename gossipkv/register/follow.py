"""Following: each map is polled at two of its acceptors, by one long poll for all maps that a node is polled for.

A decision reaches an acceptor with the next value, or with the answer of a poll. An acceptor that has accepted a value
and hears nothing of its decision for `UNDECIDED_S` reads the register by a quorum (`maps.py`). So one frozen acceptor,
also the one that has decided, delays nobody: each map is polled at another one as well. A poll without an answer, or
with one that is no map, goes to another node.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, final

import trio

from gossipkv.errors import GossipKVError, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from random import Random

    from gossipkv.register.configuration import Acceptors
    from gossipkv.register.maps import MapNews, Maps

    Wanted = Mapping[bytes, Sequence[bytes]]  # By register: the nodes that may be polled for it.

COPIES: Final = 2  # Nodes that are polled for a map.
WAIT_S: Final = 60.0  # A node without news answers after this time.
SILENCE_S: Final = 0.5  # Beyond that time a node counts as silent.
AVOID_S: Final = 5.0  # A silent node is polled again after this time.
PAUSE_S: Final = 0.1  # From an answer to the next poll: a map that changes all the time costs ten answers a second.


def choose(wanted: Wanted, before: Collection[bytes], avoided: Collection[bytes]) -> dict[bytes, frozenset[bytes]]:
    """Return the nodes to poll, each with its registers: two for each register if it has two, and few in all.

    `before`: the nodes that are polled now; `avoided`: silent ones, which are polled if a register has no others.
    """
    left = {register: COPIES for register, nodes in wanted.items() if nodes}
    counts = Counter(node for nodes in wanted.values() for node in nodes)
    chosen: dict[bytes, frozenset[bytes]] = {}
    by_node: dict[bytes, list[bytes]] = {node: [] for node in counts}
    for register, nodes in wanted.items():
        for node in nodes:
            by_node[node].append(register)
    order = sorted(by_node, key=lambda node: (node in avoided, -counts[node], node not in before))
    for node in order:
        mine = [register for register in by_node[node] if left[register]]
        if node in avoided:
            mine = [register for register in mine if left[register] == COPIES]
        for register in mine:
            left[register] -= 1
        if mine:
            chosen[node] = frozenset(mine)
    return chosen


@final
class Follower:
    """The polls of one node."""

    def __init__(self, maps: Maps, wanted: Callable[[], Wanted], random: Random) -> None:
        """`wanted`: returns the registers to follow, each with the other nodes that may be polled."""
        self._maps = maps
        self._wanted = wanted
        self._random = random
        self._chosen: dict[bytes, frozenset[bytes]] = {}
        self._polls: dict[bytes, trio.CancelScope] = {}  # The poll under way at each node.
        self._silent: dict[bytes, float] = {}  # By node: the time until which it is avoided.
        self._acceptors: dict[bytes, Acceptors] = {}  # By register, as last known.
        self._news = trio.Event()

    def look_at(self, register: bytes) -> None:
        """Choose again soon if the acceptors of a map that has become known are others than before."""
        base = self._maps.known.get(register)
        if not self._maps.has(register):  # It was forgotten. A node that does not know its end must not bring it back.
            self._chosen = {node: registers - {register} for node, registers in self._chosen.items()}
        acceptors = None if base is None else base.acceptors
        if acceptors != self._acceptors.get(register):
            self._acceptors = {of: known.acceptors for of, known in self._maps.known.items() if known.acceptors}
            self.look()

    def look(self) -> None:
        """Choose again soon, since members or tables have changed."""
        self._news.set()

    async def run(self) -> None:
        """Follow all maps, until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                self._news = trio.Event()
                self._choose(nursery)
                with trio.move_on_at(min(self._silent.values(), default=trio.current_time() + WAIT_S)):
                    await self._news.wait()
                await trio.sleep(PAUSE_S)

    def _choose(self, nursery: trio.Nursery) -> None:
        now_s = trio.current_time()
        self._silent = {node: until_s for node, until_s in self._silent.items() if until_s > now_s}
        wanted = {register: [*nodes] for register, nodes in self._wanted().items()}
        for nodes in wanted.values():
            self._random.shuffle(nodes)
        before, self._chosen = self._chosen, choose(wanted, self._chosen, self._silent)
        for node, registers in before.items():
            if self._chosen.get(node) != registers and node in self._polls:
                self._polls[node].cancel()
        for node in [node for node in self._chosen if node not in self._polls]:
            self._polls[node] = trio.CancelScope()
            nursery.start_soon(self._poll, node)

    async def _poll(self, node: bytes) -> None:
        """Poll a node, as long as it is chosen and answers."""
        try:
            while (registers := self._chosen.get(node)) is not None:
                positions = {register: self._maps.position(register) for register in sorted(registers)}
                self._polls[node] = trio.CancelScope()
                with self._polls[node]:
                    for news in await self._maps.ask(node, positions, WAIT_S, silence_s=SILENCE_S):
                        if news.register in self._chosen.get(node, ()):
                            await self._take(node, news)
                await trio.sleep(PAUSE_S)
        except GossipKVError:
            self._silent[node] = trio.current_time() + AVOID_S
        finally:
            del self._polls[node]
            self.look()

    async def _take(self, node: bytes, news: MapNews) -> None:
        """Take news of a node. Raises ProtocolError: it sends what is no map, so it counts as silent."""
        try:
            await self._maps.take(node, news)
        except ProtocolError:
            raise
        except GossipKVError:
            pass  # The next poll asks again.

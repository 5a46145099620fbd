"""A simulated METADATA: maps that are decided at one place, and each node's knowledge of them.

The maps are production's, and production's operations are judged on them in turn (`register.metadata`); only the
agreement on their edits is simulated.  A node reads and changes a map while it reaches a majority of the servers.  A
transaction may be slow, lost, or done without an answer; and a node's knowledge lags.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import trio

from gossipkv.errors import NotReady, Unavailable, UnknownDatabase
from gossipkv.register.configuration import AcceptorId, Acceptors
from gossipkv.register.entries import EntryMap
from gossipkv.register.metadata import partitions, tables
from gossipkv.register.metadata.known import KnownMap, MapView, config_id
from gossipkv.register.metadata.nodes import Nodes
from gossipkv.register.metadata.operations import OperationAnswer, OperationOutcome, judge
from gossipkv.register.metadata.tables import END_OF_NODES, NamedTable, decode_named
from gossipkv.register.state import Base
from gossipkv.replication.replica.token_keys import token_keys
from tests.world.metadata.chance import happens

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from random import Random

    from gossipkv.register.edits import Edit
    from gossipkv.register.metadata.nodes import NodeList
    from gossipkv.register.metadata.operations import Functions, Operation
    from tests.world.replication.network import Network

CATALOGUE: Final = bytes(16)  # The catalogue's register, which is the cluster's id.
TOKEN_KEYS: Final = token_keys(CATALOGUE, [(b"ring", b"secret")])
FIRST: Final = config_id(0, 1)
RETRY_S: Final = 0.1
LOST: Final = 0.06  # The share of lost transactions while the register is unwell;
UNANSWERED: Final = 0.06  # the share of done transactions without an answer.


@final
class Register:
    """All maps as they are decided."""

    def __init__(self, network: Network, random: Random, counts: Counter[str]) -> None:
        self.maps: dict[bytes, KnownMap] = {}
        self.deaf: set[bytes] = set()  # Nodes that reach none of the servers.
        self.is_unwell = False
        self.is_elsewhere = False  # Its servers are outside the table's nodes, and up.
        self.withholds: Callable[[Operation], bool] = lambda _: False  # True for an operation that must wait.
        self.transactions = 0
        self.unanswered = 0  # Transactions with an open answer.
        self.news = trio.Event()  # Set and replaced with each change of a table's map.
        # Called with a register, its map before and now, and the done operations.
        self.on_changed: Callable[[bytes, MapView, MapView, Sequence[Operation]], object] = lambda *_: None
        self._servers = Acceptors((), ())
        self._network = network
        self._random = random
        self._counts = counts
        self._bases: dict[bytes, Base] = {}
        self._edits: dict[bytes, list[Sequence[Edit]]] = {}  # The transactions of each map, from the first one.

    def serve(self, nodes: Iterable[bytes]) -> None:
        """Make these nodes the servers of all maps."""
        self._servers = Acceptors.of(AcceptorId(node, 1) for node in nodes)

    def found(self, register: bytes, edits: Sequence[Edit]) -> None:
        self._decide(register, Base(acceptors=self._servers), edits)
        self.on_changed(register, MapView(EntryMap(), 0), self.view(register), ())

    def end(self, register: bytes) -> None:
        self._decide(register, self._bases[register]._replace(ended=True), ())

    def _decide(self, register: bytes, before: Base, edits: Sequence[Edit]) -> None:
        base = self._bases[register] = before.after(edits)
        self.maps[register] = KnownMap(base)
        self._edits.setdefault(register, []).append(edits)

    def edits(self, register: bytes, known: KnownMap, newer: KnownMap) -> list[Edit]:
        """Return the edits that lead from one map to a newer one."""
        return [edit for edits in self._edits[register][known.sequence : newer.sequence] for edit in edits]

    def view(self, register: bytes, known: KnownMap | None = None) -> MapView:
        """Return a map: the present one, or the known one."""
        return (known or self.maps[register]).view

    def reaches(self, node: bytes) -> bool:
        """Return True if a node and a majority of the servers reach each other."""
        if self.is_elsewhere:
            return node not in self.deaf
        cuts, lives = self._network.cuts, self._network.lives
        reached = {
            one for one in self._servers.new if one.node in lives and not {(node, one.node), (one.node, node)} & cuts
        }
        return node not in self.deaf and self._servers.is_quorum(reached)

    def judge(self, register: bytes, operations: Sequence[Operation]) -> list[OperationAnswer]:
        base, before = self._bases[register], self.view(register)
        if base.ended:
            raise UnknownDatabase("the table was dropped")
        functions: Functions = (tables if register == CATALOGUE else partitions).OPERATIONS
        judgement = judge(before, base.size_bytes, operations, config_id(0, base.sequence + 1), functions)
        if judgement.edits:
            self._decide(register, base, judgement.edits)
            self.transactions += 1
            if register != CATALOGUE:
                self.news.set()
                self.news = trio.Event()
            pairs = zip(operations, judgement.answers, strict=True)
            done = [operation for operation, answer in pairs if answer.outcome is OperationOutcome.DONE]
            for operation, answer in zip(operations, judgement.answers, strict=True):
                self._counts[f"{operation.name} {answer.outcome.name}"] += 1
            self.on_changed(register, before, self.view(register), done)
        return judgement.answers


@final
class Maps:
    """A node's knowledge of the maps; see `register.metadata.server.Metadata`."""

    def __init__(self, register: Register, node: bytes, random: Random, known: dict[bytes, KnownMap]) -> None:
        self.me = AcceptorId(node, 1)
        self.catalogue = CATALOGUE
        self.known = known
        self.on_forgotten: Callable[[bytes], object] | None = None
        self.on_edits: Callable[[bytes, Sequence[Edit] | None], object] = lambda *_: None
        self._register = register
        self._random = random

    def view(self, register: bytes) -> MapView:
        """Return a register's map, as known here.  Raises NotReady, UnknownDatabase."""
        known = self.known.get(register)
        if known is None:
            raise NotReady("this node does not know the state of this table yet")
        if known.ended:
            raise UnknownDatabase("the table was dropped")
        return known.view

    def behind(self) -> list[bytes]:
        """Return the registers with newer maps, without ended ones that are forgotten here."""
        return [
            register
            for register, newest in self._register.maps.items()
            if self.known.get(register) is not newest and (register in self.known or not newest.ended)
        ]

    async def quorum_read(self, register: bytes) -> KnownMap:
        """Learn the map of a full round, or a newer one.  Raises Unavailable, UnknownDatabase."""
        await trio.sleep(self._random.uniform(0, 0.01))
        if not self._register.reaches(self.me.node):
            raise Unavailable("too few servers are reached")
        shown = self._register.maps[register]
        await trio.sleep(self._random.choice((0.001, 0.01, 0.2)) if self._register.is_unwell else 0.001)
        self._learn(register, shown)
        if shown.ended:
            raise UnknownDatabase("the table was dropped")
        return self.known[register]

    def _learn(self, register: bytes, shown: KnownMap) -> None:
        known = self.known.get(register)
        if known is None or known.config < shown.config:
            self.known[register] = shown
            self.on_edits(register, None if known is None else self._register.edits(register, known, shown))

    def forget_ended(self) -> None:
        """Forget dropped tables that the catalogue does not name."""
        named = {table.id for table in tables_of(self).values()}
        for register in [one for one, known in self.known.items() if known.ended and one not in named]:
            if self.on_forgotten is not None:
                self.on_forgotten(register)
            del self.known[register]

    async def transact(
        self, register: bytes, operations: Sequence[Operation], timeout_s: float
    ) -> list[OperationAnswer]:
        """Run operations; late outcomes are UNKNOWN.  Raises UnknownDatabase."""
        self._register.unanswered += 1
        try:
            with trio.move_on_after(timeout_s):
                return await self._transact(register, operations)
        finally:
            self._register.unanswered -= 1
        return [OperationAnswer(operation.id, OperationOutcome.UNKNOWN) for operation in operations]

    async def _transact(self, register: bytes, operations: Sequence[Operation]) -> list[OperationAnswer]:
        is_unwell = self._register.is_unwell
        await trio.sleep(self._random.choice((0.002, 0.02, 0.4)) if is_unwell else 0.002)
        while not self._register.reaches(self.me.node) or any(map(self._register.withholds, operations)):
            await trio.sleep(RETRY_S)
        if is_unwell and happens(self._random, LOST):
            await trio.sleep_forever()
        answers = self._register.judge(register, operations)
        newest = self._register.maps[register]
        if is_unwell and happens(self._random, UNANSWERED):
            await trio.sleep_forever()
        await trio.sleep(self._random.choice((0.002, 0.02, 0.2)) if is_unwell else 0.002)
        self._learn(register, newest)
        return answers


def tables_of(maps: Maps) -> Mapping[str, NamedTable]:
    if CATALOGUE not in maps.known:
        return {}
    return {entry.key.decode(): decode_named(entry.record) for entry in maps.view(CATALOGUE).scan(END_OF_NODES)}


@final
class Catalogue:
    """The catalogue, at a node; see `register.metadata.catalogue.Catalogue`."""

    def __init__(self, maps: Maps, members: NodeList) -> None:
        self._maps = maps
        self.nodes = Nodes(maps, members, self.tables)  # type: ignore[arg-type]  # Nodes uses only these methods.
        self.transact = maps.transact

    def tables(self) -> Mapping[str, NamedTable]:
        return tables_of(self._maps)

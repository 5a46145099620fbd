"""The methods by which people change where a range table's ranges begin.

split       [table, key, {timeout_ms}]          the range that the key is in is two, the second begins at the key
force_join  [table, key, node, {copy, timeout_ms}]   a range whose hosts are all gone begins anew (`refounding`)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from gossipkv.errors import BadRequest, Conflict
from gossipkv.placement.partition import MOST_FORMER, ends_of_move
from gossipkv.register.metadata.deadline import Deadline
from gossipkv.register.metadata.partitions import HASH, decode_table, range_of
from gossipkv.table import requests as table_requests
from gossipkv.table.changing import Changing, soon
from gossipkv.table.refounding import Refounding
from gossipkv.table.route import Route
from gossipkv.table.splitting import DIVIDE, division, has_too_many_former
from gossipkv.wire.results import Waiting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from random import Random

    from gossipkv.errors import Detail
    from gossipkv.placement.partition import Partition
    from gossipkv.placement.spread import Node
    from gossipkv.register.metadata.tree import Tree
    from gossipkv.table.changing import Change
    from gossipkv.table.deciding import Deciding
    from gossipkv.table.splitting import Division
    from gossipkv.wire.arguments import Arguments
    from gossipkv.wire.rpc import Value


@final
class RangeMethods:
    """The door for people who look after ranges."""

    def __init__(self, deciding: Deciding, random: Random) -> None:
        self._deciding = deciding
        self._changing = Changing(deciding, random)
        self._random = random
        self.methods: dict[bytes, Callable[[Arguments], Waiting]] = {
            b"split": self._split,
            b"force_join": self._force_join,
        }

    def _split(self, arguments: Arguments) -> Waiting:
        wanted = table_requests.split(arguments)

        async def split() -> Value:
            deadline = Deadline(wanted.timeout_ms / 1000)
            await self._check_divides(deadline)
            asked: list[Division] = []

            def argued(tree: Tree, _nodes: list[Node]) -> Change:
                asked[:] = [division(*self._divisible(tree, wanted), wanted.key, self._random)]
                return *DIVIDE, asked[0]

            await self._changing.change_map(wanted.table, argued, deadline, is_shown=True)
            (divided,) = asked
            rows = _rows((child.first, child.partition) for child in divided.children)
            return {"table": wanted.table, "partition": divided.partition, "partitions": rows}

        return Waiting(split)

    async def _check_divides(self, deadline: Deadline) -> None:
        """See that all nodes know what becomes of ranges.  Raises Unavailable."""

        async def check() -> None:
            self._deciding.asking.check_divides()

        with deadline.step("looking at what nodes run"):
            await soon(check)

    def _force_join(self, arguments: Arguments) -> Waiting:
        wanted = table_requests.force_join(arguments)

        async def force_join() -> Value:
            deadline = Deadline(wanted.timeout_ms / 1000)
            await self._check_divides(deadline)
            return await Refounding(self._deciding, self._changing, self._random).force_join(wanted, deadline)

        return Waiting(force_join)

    def _divisible(self, tree: Tree, wanted: table_requests.Split) -> tuple[bytes, Partition]:
        """The range that a key is in, which may be divided there, and its first key.  Raises BadRequest, Conflict."""
        key, name_of, alive = wanted.key, self._deciding.name_of, self._deciding.alive()
        if decode_table(tree.root.meta).kind == HASH:
            raise BadRequest(f"{wanted.table} has shards, which are never cut: ranges are divided")
        first, partition = range_of(tree, key)
        if first == key:
            before = Route(tree).before(key)
            rows = _rows([(before.first, before.partition), (first, partition.id)])
            words = f"{wanted.table} is divided at {key[:40]!r} already: a range begins there"
            raise Conflict(words, {"table": wanted.table, "partition": None, "partitions": rows})
        ends = ends_of_move(partition)
        if any(ends):
            told = [
                f"{way} {name_of(node)}" for way, node in zip(("from", "to"), ends, strict=True) if node is not None
            ]
            raise Conflict(f"the range that {key[:40]!r} is in moves {' '.join(told)}: divide it afterwards")
        if has_too_many_former(partition):
            hosts = [one.node for one in partition.assignments]
            told = [name_of(node) + ("" if node in alive else " (which is down)") for node in hosts]
            words = f"{len(partition.named)} assignments of the range that {key[:40]!r} is in are not settled"
            raise Conflict(f"{words}, {MOST_FORMER} may be: all that hold it have to answer: {', '.join(told)}")
        return first, partition


def _rows(ranges: Iterable[tuple[bytes, int]]) -> list[Detail]:
    """Ranges, as they are told."""
    return [{"id": id_, "start": first} for first, id_ in ranges]

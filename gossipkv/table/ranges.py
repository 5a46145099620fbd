"""The methods by which people change where a range table's ranges begin and who holds each, and see what there is.

split       [table, key, {timeout_ms}]          the range that the key is in is two, the second begins at the key
join        [table, key, node, {timeout_ms}]    a slot of it moves to the node
leave       [table, key, node, {timeout_ms}]    the slot that the node has of it moves to another, which is picked
force_join  [table, key, node, {copy, timeout_ms}]   a range whose hosts are all gone begins anew (`refounding`)
partitions  [table, {start, limit}]             a page of partitions, of ranges and of shards

Who joins or leaves does so by a move (`stepping`), which nobody waits for here: what is begun is told.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, final

from gossipkv.errors import BadRequest, Conflict, Unavailable
from gossipkv.placement.partition import MOST_FORMER, State, ends_of_move
from gossipkv.placement.picking import Picking
from gossipkv.register.ballot import draw_id
from gossipkv.register.metadata.deadline import Deadline
from gossipkv.register.metadata.partitions import HASH, RANGE, decode_partition, decode_table, range_of
from gossipkv.table import requests as table_requests
from gossipkv.table.changing import Changing, soon
from gossipkv.table.refounding import Refounding
from gossipkv.table.route import Route
from gossipkv.table.splitting import DIVIDE, division
from gossipkv.wire.results import Waiting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from random import Random

    from gossipkv.errors import Detail
    from gossipkv.placement.measures import Measure
    from gossipkv.placement.partition import Assignment, Partition
    from gossipkv.placement.spread import Node
    from gossipkv.register.metadata.tree import Tree
    from gossipkv.table.changing import Change
    from gossipkv.table.deciding import Deciding
    from gossipkv.table.splitting import Division
    from gossipkv.wire.arguments import Arguments
    from gossipkv.wire.rpc import Value

    Moved = Callable[[table_requests.OfRange, Partition, int, Picking], "_Move"]


COMING: Final = frozenset({State.PROPOSED, State.INITIALIZING})


class _Move(NamedTuple):
    """What becomes of a slot, and by which operation on its partition; None: nothing is left to be done."""

    slot: int
    source: bytes | None
    target: bytes | None
    operation: tuple[str, tuple[object, ...]] | None


@final
class RangeMethods:
    """The door for people who look after ranges."""

    def __init__(self, deciding: Deciding, random: Random) -> None:
        self._deciding = deciding
        self._changing = Changing(deciding, random)
        self._random = random
        self.methods: dict[bytes, Callable[[Arguments], Waiting]] = {
            b"split": self._split,
            b"join": partial(self._move, self._joined),
            b"leave": partial(self._move, self._left),
            b"force_join": self._force_join,
            b"partitions": self._partitions,
        }

    # -- divisions -----------------------------------------------------------------------------------------------------

    def _split(self, arguments: Arguments) -> Waiting:
        wanted = table_requests.split(arguments)

        async def split() -> Value:
            deadline = Deadline(wanted.timeout_ms / 1000)
            await self._check_divides(deadline)
            asked: list[Division] = []

            def argued(tree: Tree, _nodes: list[Node]) -> Change:
                asked[:] = [division(*self._divisible(tree, wanted), [wanted.key], self._random)]
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
        wanted = table_requests.hosting(arguments, "copy")

        async def force_join() -> Value:
            deadline = Deadline(wanted.timeout_ms / 1000)
            await self._check_divides(deadline)
            return await Refounding(self._deciding, self._changing, self._random).force_join(wanted, deadline)

        return Waiting(force_join)

    def _divisible(self, tree: Tree, wanted: table_requests.OfRange) -> tuple[bytes, Partition]:
        """The range that a key is in, which may be divided there, and its first key.  Raises BadRequest, Conflict."""
        key, name_of, alive = wanted.key, self._deciding.name_of, self._deciding.alive()
        first, partition = _range_of(tree, key, f"{wanted.table} has shards, which are never cut: ranges are divided")
        if first == key:
            before = Route(tree).before(key)
            rows = _rows([(before.first, before.partition), (first, partition.id)])
            words = f"{wanted.table} is divided at {key[:40]!r} already: a range begins there"
            raise Conflict(words, {"table": wanted.table, "partition": None, "partitions": rows})
        self._check_rests(key, partition, "divide it")
        if partition.has_too_many_former:
            hosts = [one.node for one in partition.assignments]
            told = [name_of(node) + ("" if node in alive else " (which is down)") for node in hosts]
            words = f"{len(partition.named)} assignments of the range that {key[:40]!r} is in are not settled"
            raise Conflict(f"{words}, {MOST_FORMER} may be: all that hold it have to answer: {', '.join(told)}")
        return first, partition

    def _check_rests(self, key: bytes, partition: Partition, what: str) -> None:
        """Raise Conflict where a range moves, saying between whom."""
        ends = ends_of_move(partition)
        if any(ends):
            names = [None if node is None else self._deciding.name_of(node) for node in ends]
            told = [f"{way} {name}" for way, name in zip(("from", "to"), names, strict=True) if name is not None]
            raise Conflict(f"the range that {key[:40]!r} is in moves {' '.join(told)}: {what} afterwards")

    # -- who holds a range ---------------------------------------------------------------------------------------------

    def _move(self, moved: Moved, arguments: Arguments) -> Waiting:
        wanted = table_requests.hosting(arguments)

        async def move() -> Value:
            deadline = Deadline(wanted.timeout_ms / 1000)
            held = await self._held(wanted.table, deadline)
            told: dict[str, Value] = {}

            def argued(tree: Tree, nodes: list[Node]) -> Change | None:
                words = f"{wanted.table} has shards: `gossipkv node` commands move them"
                first, partition = _range_of(tree, wanted.key, words)
                picking = Picking({node.id: node for node in nodes}, held, self._deciding.alive())
                made = moved(wanted, partition, decode_table(tree.root.meta).replication, picking)
                told.update(
                    {"table": wanted.table, "partition": partition.id, "slot": made.slot},
                    changed=made.operation is not None,
                    **{"from": self._name_of(made.source), "to": self._name_of(made.target)},
                )
                if made.operation is None:
                    return None
                name, argument = made.operation
                return name, 1, (first, partition.id, *argument)

            await self._changing.change_map(wanted.table, argued, deadline, is_shown=True)
            return told

        return Waiting(move)

    def _joined(
        self, wanted: table_requests.OfRange, partition: Partition, replication: int, picking: Picking
    ) -> _Move:
        """Who is to come takes a slot.  Raises BadRequest, Conflict, Unavailable."""
        node = self._node(wanted.node)
        seat = _seat(partition, node)
        if seat is not None and seat.state is not State.LEAVING and not _is_replaced(partition, seat):
            return _Move(seat.slot, _other(partition, seat), node, None)
        self._check_rests(wanted.key, partition, "say it")
        if node not in picking.nodes:
            words = f"{wanted.node} was taken out, and no table is laid on it: `gossipkv node add` puts it in"
            raise BadRequest(words)
        if node not in picking.alive:
            raise Unavailable(f"{wanted.node} cannot hold a range: it is no member of this cluster that is alive")
        slot = picking.slot_to_take(partition, node, replication)
        source = next((one.node for one in partition.assignments if one.slot == slot), None)
        return _Move(slot, source, node, ("assign", (draw_id(self._random), node, slot)))

    def _left(self, wanted: table_requests.OfRange, partition: Partition, replication: int, picking: Picking) -> _Move:
        """Who is to go has its slot taken by another; who is on its way yet is called back.  Raises Conflict."""
        node = self._node(wanted.node)
        seat = _seat(partition, node)
        told: dict[str, Detail] = {"table": wanted.table, "partition": partition.id, "slot": None}
        if seat is None:
            words = (
                f"{wanted.node} holds nothing of the range that {wanted.key[:40]!r} is in, and none is on its way there"
            )
            raise Conflict(words, {**told, "from": wanted.node, "to": None, "changed": False})
        other = _other(partition, seat)
        if seat.state in COMING:
            return _Move(seat.slot, node, other, ("unassign", (seat.id,)))
        if seat.state is State.LEAVING or _is_replaced(partition, seat):
            return _Move(seat.slot, node, other, None)
        self._check_rests(wanted.key, partition, "say it")
        target = picking.successor(partition, node)
        if target is None:
            words = f"no other node of tables that lives is left for the range that {wanted.key[:40]!r} is in"
            raise Conflict(f"{words}: leave would take it below {replication}; `gossipkv node add` a node first")
        return _Move(seat.slot, node, target, ("assign", (draw_id(self._random), target, seat.slot)))

    def _node(self, name: str) -> bytes:
        """A node that the catalogue names.  Raises BadRequest."""
        _, catalogue = self._deciding.taking_part()
        try:
            return self._changing.named(catalogue.nodes.named(), name)
        except BadRequest as error:
            raise BadRequest(f"{error.message}; `gossipkv node add` puts one in") from error

    def _name_of(self, node: bytes | None) -> str | None:
        return None if node is None else self._deciding.name_of(node)

    async def _held(self, table: str, deadline: Deadline) -> Counter[bytes]:
        """How many partitions of a table each node has, as known here."""
        metadata, catalogue = await self._changing.informed(deadline)
        await self._changing.read(metadata, catalogue, deadline)
        tree = metadata.tree(catalogue.table(table).id)
        return await self._deciding.asking.beside(partial(_held_of, tree))

    # -- what there is -------------------------------------------------------------------------------------------------

    def _partitions(self, arguments: Arguments) -> Waiting:
        wanted = table_requests.page(arguments)

        async def tell() -> Value:
            metadata, catalogue = self._deciding.taking_part()
            table = catalogue.table(wanted.table).id
            tree = metadata.tree(table)
            is_hash = decode_table(tree.root.meta).kind == HASH
            entries = [*islice(tree.scan(wanted.start), wanted.limit + 1)]
            partitions = [decode_partition(entry.record) for entry in entries[: wanted.limit]]
            found = await self._deciding.works().measuring.lately(table, self._deciding.alive())
            firsts = [*(entry.key for entry in entries), None]
            rows: list[Value] = [
                self._row(partition, first, None if is_hash else end, found.get(partition.id))
                for partition, first, end in zip(partitions, firsts, firsts[1:], strict=False)
            ]
            kind = HASH if is_hash else RANGE
            return {"table": wanted.table, "kind": kind, "partitions": rows, "next": firsts[len(partitions)]}

        return Waiting(tell)

    def _row(
        self, partition: Partition, first: bytes | None, end: bytes | None, has: Measure | None
    ) -> dict[str, Value]:
        hosts: list[Value] = [
            {"node": self._deciding.name_of(one.node), "slot": one.slot, "state": one.state.name}
            for one in partition.assignments
        ]
        told: dict[str, Value] = {"id": partition.id, "start": first, "end": end, "hosts": hosts}
        size_bytes, rows, rate = (None, None, None) if has is None else has
        return {**told, "bytes": size_bytes, "rows": rows, "rate": rate}


def _range_of(tree: Tree, key: bytes, of_shards: str) -> tuple[bytes, Partition]:
    """The range that a key is in, and its first key.  Raises BadRequest: the table has shards."""
    if decode_table(tree.root.meta).kind == HASH:
        raise BadRequest(of_shards)
    return range_of(tree, key)


def _seat(partition: Partition, node: bytes) -> Assignment | None:
    return next((one for one in partition.assignments if one.node == node), None)


def _other(partition: Partition, seat: Assignment) -> bytes | None:
    """Who is in the same slot: the other end of a move."""
    return next((one.node for one in partition.assignments if one.slot == seat.slot and one is not seat), None)


def _is_replaced(partition: Partition, seat: Assignment) -> bool:
    """Whether another one comes to its slot."""
    return any(one.slot == seat.slot and one.state in COMING and one is not seat for one in partition.assignments)


def _held_of(tree: Tree) -> Counter[bytes]:
    partitions = (decode_partition(entry.record) for entry in tree.scan())
    return Counter(one.node for each in partitions for one in each.assignments if one.state is not State.LEAVING)


def _rows(ranges: Iterable[tuple[bytes, int]]) -> list[Detail]:
    """Ranges, as they are told."""
    return [{"id": id_, "start": first} for first, id_ in ranges]

"""The splitter: divides large ranges of this node in two, each at its middle key, and retires old ones.

Any AVAILABLE host may divide a range. By convention the first live host in the order of slots begins at once, and each
other host some time after its predecessor. Two attempts at once are harmless: the second finds no such partition. A
range is not divided while it moves, if its children would name too many former assignments, or if it has one key.

A division is one operation on the map (`register.metadata.partitions`); hosts divide their replicas when they adopt it.

A range of a table with a retention (M3) is retired once all its times are older: one operation replaces the range, and
the older one before it, by an empty range. So the ranges of a series stay as many as the retention needs, and one more.
The additional range takes writes of old times, and is retired again if it got some.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple, final

import trio

from gossipkv.errors import GossipKVError, NotReady, NotServed
from gossipkv.log import Log
from gossipkv.register.ballot import draw_id
from gossipkv.register.metadata.operations import (
    MAX_KEY_BYTES,
    MAX_OPERATIONS,
    OPERATION_ID_BYTES,
    Operation,
    OperationOutcome,
)
from gossipkv.register.metadata.partitions import NOT_FOUND, RANGE, ChildRange, decode_table, range_before, range_of
from gossipkv.replication.replica.keys import KeyBounds
from gossipkv.table.controllers.pause import Pause

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from random import Random

    from gossipkv.placement.partition import Partition
    from gossipkv.register.metadata.known import MapView
    from gossipkv.register.metadata.partitions import TableMeta
    from gossipkv.replication.replica.replica import Replica
    from gossipkv.table.controllers.local_tables import LocalTables

DIVIDE: Final = "divide"  # Names of the operations.
RETIRE: Final = "retire"

LOOK_S: Final = 2.0  # Usual time between two rounds while no map changes.
MAX_MEASURED: Final = 512  # Replicas measured in `LOOK_S`, however many maps come: ten thousand take forty seconds.
FEW_MEASURED: Final = 16  # Replicas measured in any round, and before other tasks run: about a millisecond.
TURN_S: Final = 10.0  # Time for one host to divide a range, and for the next host to hear of the division.
RETRY_S: Final = 10.0  # Delay before the next attempt to divide a range.
DONE_S: Final = 5.0  # Timeout of a transaction.


class SplitArgument(NamedTuple):
    """The argument of `divide`."""

    key: bytes
    partition: int
    children: tuple[ChildRange, ...]


class RetireArgument(NamedTuple):
    """The argument of `retire`."""

    key: bytes
    partitions: tuple[int, ...]
    new: int
    assignments: tuple[int, ...]


def division(key: bytes, partition: Partition, firsts: Sequence[bytes], random: Random) -> SplitArgument:
    """Return the division of a partition at these keys; the first child begins at the partition's `key`."""
    children = (
        ChildRange(first, draw_id(random), tuple(draw_id(random) for _ in partition.assignments))
        for first in (key, *firsts)
    )
    return SplitArgument(key, partition.id, tuple(children))


def turn_of(replica: Replica, alive: Collection[bytes]) -> int | None:
    """Return the number of live hosts before this node in the order of splitters; None if this node must not split."""
    own = replica.role
    if own is None or not replica.originates or replica.barred is not None:
        return None
    before = (seat for seat in replica.roles if seat.available and seat.counts and seat.slot < own.slot)
    return sum(seat.node in alive for seat in before)


@final
class Splitter:
    """The splitter of a node."""

    def __init__(self, tables: LocalTables) -> None:
        self._metadata, self._catalogue, self._replication = tables.metadata, tables.catalogue, tables.replication
        self._alive, self._look_at, self._random = tables.alive, tables.look_at, tables.random
        self._limits, self._skew_ms = tables.split_limits, tables.settings.max_clock_skew
        self._round: list[Replica] = []  # Replicas to be measured, from the end.
        self._is_watching = True  # True if a table has ranges to be measured.
        self._measured_at = -inf
        self._retained: dict[bytes, TableMeta] = {}  # Tables with a retention.
        self._large: dict[Replica, float] = {}  # Time of the next attempt for each large or old replica.
        self._said: dict[Replica, str] = {}  # Last logged reason why a replica is not divided.
        self.pause = Pause(LOOK_S)
        self._log = Log("gossipkv.node")

    async def run(self) -> None:
        """Divide large ranges, and retire old ones, until cancelled."""
        why = ""
        while True:
            began = trio.current_time()
            try:
                await self.look()
                why = ""
            except GossipKVError as error:
                if error.message != why:  # Log a reason once: it may last for days.
                    self._log.warning("division_waits", partition=None, reason=error.message)
                why = error.message
            await self.pause.rest(began, is_quiet=not (self._is_watching or self._large))

    async def look(self) -> None:
        """Measure some replicas; divide the large ones, and retire the old ones, that are due.

        Raises:
            Unavailable: not all nodes know of divisions.
            NotReady: a page of the catalogue is missing here.
        """
        await self._measure_some()
        now = trio.current_time()
        self._large = {replica: at for replica, at in self._large.items() if self._is_here(replica)}
        self._said = {replica: why for replica, why in self._said.items() if self._is_here(replica)}
        due = [replica for replica, at in self._large.items() if at <= now]
        if not due:
            return
        asked: dict[bytes, list[tuple[Replica, Operation]]] = defaultdict(list)
        for replica in due:
            self._large[replica] = now + RETRY_S
            with self._logging_errors(replica):
                is_old = self._is_old(replica.partition[0], replica.bounds)
                if (operation := self._operation(replica, retires=is_old)) is not None:
                    asked[replica.partition[0]].append((replica, operation))
                elif replica not in self._said and not is_old:
                    self._large[replica] = now  # Divide a moving range as soon as its move is over.
        for table, divisions in asked.items():
            for at in range(0, len(divisions), MAX_OPERATIONS):
                with contextlib.suppress(GossipKVError):  # A later round tries again.
                    await self._transact(table, divisions[at : at + MAX_OPERATIONS])

    async def divide(self, table: bytes, partition: int) -> bool:
        """Request the division of a partition of this node, whatever its size; return False if impossible now.

        Raises:
            NotServed: the partition is not AVAILABLE here.
            Unavailable: the map cannot be changed now.
        """
        replica = self._replication.replicas.by_partition.get((table, partition))
        if replica is None or turn_of(replica, ()) is None:
            raise NotServed("the node does not hold the partition, or not yet", {"partition": partition})
        operation = self._operation(replica, retires=False)
        if operation is None:
            return False
        await self._transact(table, [(replica, operation)])
        return True

    def _meta(self, table: bytes) -> TableMeta | None:
        """Return the description of a table; None if its map is not here."""
        with contextlib.suppress(NotReady):
            if table in self._metadata.known:
                return decode_table(self._metadata.view(table).meta)
        return None

    def _is_here(self, replica: Replica) -> bool:
        return self._replication.replicas.by_partition.get(replica.partition) is replica

    async def _measure_some(self) -> None:
        """Measure the next replicas, and schedule the large ones for this node's turn."""
        if not self._round:
            ranges = {table.id for table in self._catalogue.tables().values() if table.kind == RANGE}
            here = self._replication.replicas.by_partition.values()
            metas = ((table, self._meta(table)) for table in ranges)
            self._retained = {table: meta for table, meta in metas if meta is not None and meta.retention_ms}
            watched = ranges if any(self._limits) else self._retained.keys()
            self._round = [replica for replica in here if replica.partition[0] in watched]
            self._is_watching = bool(watched)
        alive = {*self._alive()}
        share = min((trio.current_time() - self._measured_at) / LOOK_S, 1.0)
        self._measured_at = trio.current_time()
        for number in range(min(len(self._round), max(FEW_MEASURED, int(share * MAX_MEASURED)))):
            replica = self._round.pop()
            turn = turn_of(replica, alive) if self._is_here(replica) else None
            with self._logging_errors(replica):
                is_old = self._is_old(replica.partition[0], replica.bounds)
                if turn is not None and (is_old or self._limits.are_exceeded(self._replication.measure(replica))):
                    self._large.setdefault(replica, trio.current_time() + turn * TURN_S)
                else:
                    self._large.pop(replica, None)
            if number % FEW_MEASURED == FEW_MEASURED - 1:
                await trio.lowlevel.checkpoint()

    def _operation(self, replica: Replica, *, retires: bool) -> Operation | None:
        """Return the operation that divides or retires a replica's partition; None if that is impossible now."""
        table, _ = replica.partition
        known_map = self._metadata.known.get(table)
        if known_map is None or known_map.ended:
            return None
        tree = self._metadata.view(table)
        argument = self._retirement(replica, tree) if retires else self._division(replica, tree)
        if argument is None:
            return None
        name = RETIRE if retires else DIVIDE
        return Operation(self._random.randbytes(OPERATION_ID_BYTES), known_map.config, name, 1, argument)

    def _division(self, replica: Replica, tree: MapView) -> SplitArgument | None:
        middle = self._replication.middle_of(replica)
        # A truncated key is in the same partition, since bounds are no longer than that.
        at = replica.bounds.first if middle is None else middle[:MAX_KEY_BYTES]
        key, partition = range_of(tree, at)
        if partition.id != replica.partition[1] or partition.moves:
            return None  # The partition moves, or the replica has not adopted a division yet.
        if at == key:  # All keys are equal within the length of a bound.
            self._say(replica, "")
            return None
        if partition.has_too_many_former:
            self._say(replica, f"{len(partition.named)} assignments must be settled first")
            return None
        return division(key, partition, [at], self._random)

    def _is_old(self, table: bytes, bounds: KeyBounds) -> bool:
        """Return True if a range is older than the retention by the clocks of all hosts."""
        meta = self._retained.get(table)
        return meta is not None and meta.is_over(bounds, self._replication.now_ms() - self._skew_ms)

    def _retirement(self, replica: Replica, tree: MapView) -> RetireArgument | None:
        """Return the retirement of an old range; None if the range moves, or is not adopted, or is empty and alone."""
        table, id_ = replica.partition
        first, partition = range_of(tree, replica.bounds.first)
        if partition.id != id_ or partition.moves:
            return None
        retired = [id_]
        older = range_before(tree, first)
        if older is not None and self._is_old(table, KeyBounds(older[0], first)) and not older[1].moves:
            first, retired = older[0], [older[1].id, id_]
        elif not self._replication.measure(replica).rows:
            return None
        ids = tuple(draw_id(self._random) for _ in partition.assignments)
        return RetireArgument(first, tuple(retired), draw_id(self._random), ids)

    async def _transact(self, table: bytes, asked: Sequence[tuple[Replica, Operation]]) -> None:
        answers = await self._catalogue.transact(table, [operation for _, operation in asked], DONE_S)
        for (replica, operation), answer in zip(asked, answers, strict=True):
            if answer.outcome is OperationOutcome.DONE:
                if operation.name == RETIRE:
                    self._log.info("range_retired", partition=replica.partition[1])
                else:
                    self._log.info("range_divided", partition=replica.partition[1])
            elif answer.outcome is OperationOutcome.CONFLICT and replica in self._large:
                self._large[replica] = trio.current_time()  # Another change came first: divide by the map that has it.
            elif answer.outcome is OperationOutcome.REFUSED and answer.code != NOT_FOUND:
                self._say(replica, answer.message)
        self._look_at(table)

    @contextlib.contextmanager
    def _logging_errors(self, replica: Replica) -> Iterator[None]:
        """Log an error that concerns one replica, so that the others are still divided."""
        try:
            yield
        except GossipKVError as error:
            self._say(replica, error.message)

    def _say(self, replica: Replica, why: str) -> None:
        """Log once why a partition waits; an empty reason: it cannot be divided at all."""
        if self._said.get(replica) == why:
            return
        self._said[replica] = why
        if why:
            self._log.warning("division_waits", partition=replica.partition[1], reason=why)
        else:
            self._log.warning("range_not_divided", partition=replica.partition[1])

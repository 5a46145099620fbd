"""Clients of the nodes: they create and drop tables, move and split partitions, and change acceptors.

Each client is a task that asks one node after another.  If the node crashes meanwhile, the client asks for the outcome
by the operation's id.  All reported outcomes are recorded, and judged at the end.
"""

from __future__ import annotations

import contextlib
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final, final

import trio

from gossipkv.errors import BadRequest, Conflict, GossipKVError, Unavailable, UnknownDatabase
from gossipkv.placement.partition import AssignmentState, Partition
from gossipkv.register.metadata.catalogue import WantedTable, keys_of
from gossipkv.register.metadata.known import config_id, generation_of
from gossipkv.register.metadata.operations import OPERATION_ID_BYTES, Operation, OperationAnswer, OperationOutcome
from gossipkv.register.metadata.partitions import HASH, RANGE, decode_partition, decode_table
from tests.world.metadata.chance import happens
from tests.world.metadata.deciding_node import CATALOGUE
from tests.world.metadata.witness import Answered

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from gossipkv.register.metadata.known import MapEntry, MapView
    from tests.world.metadata.deciding_node import Life, Node
    from tests.world.metadata.witness import Witness

NAMES: Final = ("apples", "bees", "cats", "dogs")
WHOLE_S: Final = 4.0
MAX_PARTITIONS: Final = 12
NEWER: Final = 9  # The version of operations that no node knows yet.


@final
class Clients:
    def __init__(self, nodes: Sequence[Node], witness: Witness, random: Random, ids: Random) -> None:
        self._nodes = nodes
        self._witness = witness
        self._random = random
        self._ids = ids
        self._again = ids.choice((0.0, 0.3))  # The share of operations that reuse an earlier id.
        self._wanted: dict[bytes, deque[Operation]] = {}  # The latest operations on each register.
        self._bases: dict[bytes, list[int]] = {}  # The config ids that were seen of each register.
        self.unknown: list[tuple[bytes, bytes, int]] = []  # Register, operation, base.

    async def run(self, *, pause_s: float) -> None:
        wishes = (
            *4 * (self.change,), self.create, self.drop, self.move, self.replace, self.inquire
        )  # fmt: skip
        while True:
            await trio.sleep(self._random.expovariate(1 / pause_s))
            life = self._random.choice(self._nodes).life
            if life is not None:
                with contextlib.suppress(GossipKVError):
                    await self._random.choice(wishes)(life)

    # -- operations --------------------------------------------------------------------------------------------------

    async def change(self, life: Life) -> None:
        """Run operations on some table, based on this node's config id or on another one."""
        tables = life.catalogue.tables()
        if not tables:
            return
        table = tables[self._random.choice(sorted(tables))]
        view = life.metadata.view(table.id)
        bases = self._bases.setdefault(table.id, [])
        bases.append(life.metadata.known[table.id].config)
        base = bases[-1] if happens(self._random, 0.7) else self._old_base(bases)
        count = 1 if happens(self._random, 0.7) else self._random.randint(2, 12)
        operations = [self._operation(table.id, view, base) for _ in range(count)]
        await self.transact(life, table.id, operations)

    def _old_base(self, bases: list[int]) -> int:
        """Return an earlier config id, or one that is too old, or one that never existed."""
        newest = max(bases)
        strange = (max(0, newest - self._random.randrange(80)), newest + 3, config_id(generation_of(newest), 0))
        return self._random.choice([*bases[-20:], *bases[-20:], *strange])

    def _operation(self, register: bytes, view: MapView, base: int) -> Operation:
        entries = [*view.scan()]
        entry = self._random.choice(entries)
        partition = decode_partition(entry.record)
        id_ = self._random.randbytes(OPERATION_ID_BYTES)
        name, argument = self._wish(view, entry, partition)
        before = self._wanted.setdefault(register, deque(maxlen=8))
        version = NEWER if happens(self._ids, 0.03) else 1
        operation = Operation(id_, base, name, version, (entry.key, partition.id, *argument))
        if before and happens(self._ids, self._again):
            other = self._ids.choice(before)
            again = operation._replace(id=other.id, base=self._ids.choice((other.base, self._bases[register][-1])))
            is_another = again.digest not in {one.digest for one in self._witness.wanted[other.id]}
            operation = again if is_another else operation
        before.append(operation)
        self._witness.wanted.setdefault(operation.id, []).append(operation)
        return operation

    def _wish(self, view: MapView, entry: MapEntry, partition: Partition) -> tuple[str, tuple[object, ...]]:
        draw = self._random
        moving = [one for one in partition.assignments if one.state is not AssignmentState.AVAILABLE]
        if decode_table(view.meta).kind == RANGE and not moving and len(view) < MAX_PARTITIONS and happens(draw, 0.3):
            firsts = [entry.key, entry.key + draw.randbytes(2)]
            children = tuple(
                (first, draw.getrandbits(64), tuple(draw.getrandbits(64) for _ in partition.assignments))
                for first in firsts
            )
            return "divide", (children,)
        if moving and happens(draw, 0.8):
            one = draw.choice(moving)
            if one.state is AssignmentState.LEAVING or happens(draw, 0.2):
                return "unassign", (one.id,)
            return "advance", (one.id, min(one.state + 1, AssignmentState.AVAILABLE))
        if partition.former and happens(draw, 0.5):
            return "settle", (tuple((one, 0) for one in partition.former),)
        slot = draw.choice(partition.assignments).slot
        return "assign", (draw.getrandbits(64), draw.choice(self._nodes).uuid, slot)

    async def transact(self, life: Life, register: bytes, operations: list[Operation]) -> list[OperationAnswer]:
        """Run operations through a node; return the reported outcomes, after recording them."""
        answers: list[OperationAnswer] = []
        is_twice = happens(self._random, 0.1)  # An impatient client sends twice.

        async def ask(life: Life) -> list[OperationAnswer]:
            return await life.catalogue.transact(register, operations, WHOLE_S)

        async def told(by: Life) -> None:
            try:
                got = await by.have(ask)
            except GossipKVError:
                got = [OperationAnswer(one.id, OperationOutcome.UNKNOWN) for one in operations]
            for operation, answer in zip(operations, got, strict=True):
                assert answer.operation == operation.id, (answer, operation)
                self._tell(register, operation, answer.outcome, "answer")
            answers[:] = got

        async with trio.open_nursery() as nursery:
            nursery.start_soon(told, life)
            other = self._random.choice(self._nodes).life
            if is_twice and other is not None:
                nursery.start_soon(told, other)
        return answers

    def _tell(self, register: bytes, operation: Operation, outcome: OperationOutcome, by: str) -> None:
        self._witness.told.append(Answered(register, operation.id, outcome, by, operation.digest))
        if outcome is OperationOutcome.UNKNOWN:
            self.unknown.append((register, operation.id, operation.base))

    async def inquire(self, life: Life) -> None:
        self._random.shuffle(self.unknown)
        for register, id_, base in self.unknown[:3]:

            async def ask(
                life: Life, register: bytes = register, id_: bytes = id_, base: int = base
            ) -> OperationOutcome:
                return await life.metadata.outcome(register, id_, base)

            outcome = await life.have(ask)
            self._witness.told.append(Answered(register, id_, outcome, "ask"))

    # -- tables ------------------------------------------------------------------------------------------------------

    async def create(self, life: Life) -> None:
        """Create a table; or let several clients create one each under the same id."""
        id_ = self._random.randbytes(OPERATION_ID_BYTES)
        others = self._ids.sample(self._nodes, 2) if happens(self._ids, self._again) else []
        async with trio.open_nursery() as nursery:
            for by in [life, *(node.life for node in others)]:
                if by is not None:
                    nursery.start_soon(self._create, by, id_, "create of many" if others else "create")

    async def _create(self, life: Life, id_: bytes, by: str) -> None:
        draw = self._random
        kind = draw.choice((HASH, RANGE))
        bounds = sorted({draw.randbytes(1) for _ in range(draw.randrange(4))}) if kind == RANGE else []
        keys = keys_of(kind, draw.randint(1, 6), [bound for bound in bounds if bound])
        wanted = WantedTable(draw.choice(NAMES), kind, draw.randint(1, 3), keys)
        outcome, digest = OperationOutcome.UNKNOWN, b""
        try:
            made = await life.have(lambda life: life.catalogue.create(wanted, id_, WHOLE_S))
        except (Unavailable, Conflict, BadRequest, UnknownDatabase):
            outcome = OperationOutcome.REFUSED
        except GossipKVError:
            pass
        else:
            outcome = OperationOutcome.DONE
            digest = Operation(id_, 0, "add_table", 1, (wanted.name.encode(), *made)).digest
        self._witness.counts[f"{by} {outcome.name}"] += 1
        self._witness.told.append(Answered(CATALOGUE, id_, outcome, by, digest))

    async def drop(self, life: Life) -> None:
        tables = sorted(life.catalogue.tables())
        if not tables or happens(self._random, 0.5):
            return
        name, id_ = self._random.choice(tables), self._random.randbytes(OPERATION_ID_BYTES)
        await life.have(lambda life: life.catalogue.drop(name, id_, WHOLE_S))
        self._witness.counts["dropped"] += 1

    # # -- acceptors ---------------------------------------------------------------------------------------------------

    async def move(self, life: Life) -> None:
        """Add or remove an acceptor of a table or of the catalogue."""
        tables = life.catalogue.tables()
        register = self._random.choice([CATALOGUE, *(table.id for _, table in sorted(tables.items()))])
        node = self._random.choice(self._nodes)
        joins = happens(self._random, 0.6)

        async def move(life: Life) -> bool:
            known = await life.metadata.quorum_read(register)
            members = {one for one in known.acceptors.new if one.node != node.uuid and one not in self._witness.lost}
            if joins:
                members.add(await life.invite(node.uuid))
            if len(members) > 1:
                await life.catalogue.reconfigure(register, sorted(members), known.acceptors.new)
            return len(members) > 1

        self._witness.moves += 1
        try:
            if await life.have(move):
                self._witness.counts["joined" if joins else "left"] += 1
        finally:
            self._witness.moves -= 1

    async def replace(self, life: Life) -> None:
        """Replace a node by another, or by itself on another disk."""
        leaver, comer = self._random.sample(self._nodes, 2)
        lost = {one.node for one in self._witness.lost}
        again = [node for node in self._nodes if node.uuid in lost]
        await self.replace_all(life, *((again[0], again[0]) if again else (leaver, comer)))

    async def replace_all(self, life: Life, leaver: Node, comer: Node) -> None:
        """Replace a node by another on all registers, as the command does; failures are ignored.

        The node that does it may crash meanwhile.
        """

        async def replace(life: Life, register: bytes) -> bool:
            return await life.catalogue.replace(register, leaver.uuid, await life.invite(comer.uuid))

        self._witness.moves += 1
        try:
            for register in [CATALOGUE, *(table.id for _, table in sorted(life.catalogue.tables().items()))]:
                with contextlib.suppress(GossipKVError):
                    is_new = await life.have(partial(replace, register=register))
                    self._witness.counts["replaced"] += is_new
        finally:
            self._witness.moves -= 1


def burst_of(count: int, view: MapView, base: int, random: Random) -> list[Operation]:
    """Return operations that change nothing: each is recorded as done."""
    entry = next(view.scan())
    nowhere = (entry.key, decode_partition(entry.record).id, 0)
    return [Operation(random.randbytes(OPERATION_ID_BYTES), base, "unassign", 1, nowhere) for _ in range(count)]

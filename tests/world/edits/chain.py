"""The checks of a run: one chain of decided transactions in each generation, and operations that happened as told."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Final, final

from gossipkv.register.edits import EMPTY, decode_value
from tests.world.edits.operations import DONE, UNKNOWN, UNSUPPORTED, writes_in

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gossipkv.register.ballot import Ballot
    from gossipkv.register.configuration import Value
    from gossipkv.register.edits import MapValue, Transaction
    from gossipkv.register.state import Base
    from tests.world.edits.operations import Operation


ENDED: Final = b"ended"  # Stands for the digest of an ended map.


class BrokenError(Exception):
    """A promise was broken."""


def mark_of(value: MapValue | Base) -> bytes:
    return ENDED if value.ended else value.digest


def line_of(value: MapValue) -> dict[int, bytes]:
    """Return the digests of a value's transactions, by sequence."""
    return {one.sequence: one.digest for one in value.tail} | {value.sequence: mark_of(value)}


@final
class Chain:
    def __init__(self) -> None:
        self.lines: dict[int, dict[int, bytes]] = {0: {0: EMPTY}}  # By generation and sequence: the decided digests.
        self.bases: dict[int, Base] = {}  # By generation: the last base that any node had.
        self.told: dict[tuple[int, int], str] = {}  # By generation and operation.
        self._told_at: dict[tuple[int, int], int] = {}  # The last sequence known when the outcome was told.
        self.last: dict[int, int] = {0: 0}  # By generation: the last sequence that a quorum has accepted.
        self.ends: dict[int, int] = {}  # By generation: the sequence at which the map has ended.
        self._asked: Counter[int] = Counter()  # By operation: the requests that were not refused.

    def decide(self, value: MapValue, generation: int) -> None:
        """Note a value that a quorum has accepted, and so all its transactions."""
        line = self.lines.get(generation)
        if line is None:
            raise BrokenError(f"generation {generation} was decided on before a force wrote in it")
        self.last[generation] = max(self.last[generation], value.sequence)
        for sequence, digest in line_of(value).items():
            if line.setdefault(sequence, digest) != digest:
                raise BrokenError(f"two transactions of sequence {sequence} were decided in generation {generation}")
        if value.ended:
            self.ends[generation] = value.sequence
        if value.sequence > self.ends.get(generation, value.sequence):
            raise BrokenError(f"transaction {value.sequence} was decided after the map had ended")

    def force(self, ballot: Ballot, value: Value, known: Iterable[Base]) -> None:
        """Note the value that a force writes; `known`: the bases of the survivors."""
        held, generation = decode_value(value.payload), ballot.generation
        if generation in self.lines:
            return  # It is sent to each survivor.
        parent = value.forces[-2].generation if len(value.forces) > 1 else 0
        first = held.tail[0].sequence if held.tail else held.sequence
        line = {sequence: digest for sequence, digest in self.lines[parent].items() if sequence < first}
        line |= line_of(held)
        self.lines[generation], self.last[generation] = line, held.sequence
        if held.ended:
            self.ends[generation] = held.sequence
        for base in known:
            if line.get(base.sequence) != mark_of(base):
                raise BrokenError(f"transaction {base.sequence} is lost, which a survivor knew as decided")

    def reach(self, number: int, base: Base) -> None:
        """Note the base of a node: all of it is decided."""
        if self.lines.get(base.generation, {}).get(base.sequence) != mark_of(base):
            raise BrokenError(f"the base of node {number}, {base.place}, is not the decided map")
        if base.ended:
            return  # It may have the entries of an earlier transaction.
        last = self.bases.setdefault(base.generation, base)
        if base.sequence > last.sequence:
            self.bases[base.generation] = base

    def show(self, value: MapValue, asked: int) -> None:
        """Note a value that is told; `asked`: the last sequence that was decided before it was asked for."""
        if value.sequence < asked:
            raise BrokenError(f"transaction {value.sequence} is told, and {asked} was decided before it was asked for")

    def give(self, base: Base, sequence: int, steps: Iterable[Transaction]) -> None:
        """Note the transactions from a sequence to a base that a node gives to another one."""
        if [step.sequence for step in steps] != [*range(sequence + 1, base.sequence + 1)]:
            raise BrokenError(f"some of the transactions after {sequence} are not given")

    def ask(self, operations: Iterable[Operation]) -> None:
        self._asked.update([operation.id for operation in operations])

    def refuse(self, operations: Iterable[Operation]) -> None:
        """Note that a request for operations was refused: it will never be done."""
        self._asked.subtract([operation.id for operation in operations])

    def tell(self, generation: int, operation: Operation, outcome: str) -> None:
        if outcome in {UNKNOWN, UNSUPPORTED}:
            return
        known = self.told.setdefault((generation, operation.id), outcome)
        self._told_at.setdefault((generation, operation.id), self.last[generation])
        if known != outcome:
            raise BrokenError(f"operation {operation.id} is {outcome}, and was told to be {known}")

    def check(self) -> None:
        """Check that each operation happened once at most, as told, and saw the ones before."""
        for generation, base in self.bases.items():
            entries = writes_in(base.entries)
            for writes in entries:
                if any(later[1] < earlier[2] for earlier, later in pairwise(writes)):
                    raise BrokenError("an operation did not see the one before")
            ids = [write[0] for writes in entries for write in writes]
            if len(ids) != len(set(ids)):
                raise BrokenError("an operation happened twice")
            if not all(self._asked[id_] for id_ in ids):
                raise BrokenError("an operation happened of which every request was refused")
            for (of, id_), outcome in self.told.items():
                # A lost majority may decide without a node that shows the map.
                is_shown = of == generation and base.sequence >= self._told_at[of, id_]
                if is_shown and (outcome == DONE) != (id_ in ids):
                    raise BrokenError(f"operation {id_} was told to be {outcome}, and the map says otherwise")

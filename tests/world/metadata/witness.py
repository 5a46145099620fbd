"""A witness of all commits: it sees the synced records of all disks, and the maps that nodes show.

A value is committed when a quorum of its acceptors has synced its acceptance.  Each promise is one checker:

one_value: a ballot has one value
one_chain: the map of a value follows from the one before it, until the map is ended; a force may go back
held: each acceptor that accepted a value can build its map from its disk; a majority can build a committed one
decided: a base on a disk is a committed map, and so is the map up to which a value calls transactions decided
committed: a shown map was committed, and has its content
rising: the map that a node shows never falls, nor the one on its disk
judged: transactions are judged as the model judges them; each operation is judged once, and only one of several under
    one id; reported outcomes are true
replaced: once faults have ended, a replaced acceptor decides on nothing
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, final

import trio

from gossipkv.errors import ProtocolError
from gossipkv.register.configuration import AcceptorId
from gossipkv.register.edits import decode_value
from gossipkv.register.messages import REGISTER_BYTES, decode_record
from gossipkv.register.metadata import operations, partitions, tables
from gossipkv.register.metadata.known import sequence_of
from gossipkv.register.metadata.operations import KeptOutcome, OperationOutcome
from gossipkv.register.metadata.tables import NamedTable, decode_named
from gossipkv.register.seen import positions_in
from gossipkv.register.space import MAP, RECORD
from tests.world.metadata.maps import NO_MAP, DiskMap, States, is_held, map_of
from tests.world.metadata.model import content_of, replay, rows_of

if TYPE_CHECKING:
    from gossipkv.register.ballot import Ballot
    from gossipkv.register.configuration import Value
    from gossipkv.register.edits import MapValue, Transaction
    from gossipkv.register.messages import AcceptorRecord
    from gossipkv.register.metadata.operations import Operation
    from gossipkv.register.metadata.server import Metadata
    from gossipkv.register.seen import Position
    from tests.world.metadata.maps import Entries, State
    from tests.world.metadata.store import Disk

    _Places = dict[tuple[AcceptorId, bytes], tuple[int, int]]


class Violation(NamedTuple):
    checker: str
    at_s: float
    what: str

    def __str__(self) -> str:
        return f"{self.at_s:8.3f} s  {self.checker}: {self.what}"


class Answered(NamedTuple):
    """An outcome of an operation that a client was told."""

    register: bytes
    operation: bytes
    outcome: OperationOutcome
    by: str  # "answer", "ask", "create", or "create of many" (several creations under one id).
    digest: bytes = b""  # The operation's digest; empty: that of any operation with the id.


class Top(NamedTuple):
    """The highest committed value of a register."""

    ballot: Ballot
    value: Value
    map: MapValue
    at_s: float = 0.0  # The time at which its map and its acceptors were committed first.

    @property
    def place(self) -> tuple[int, int]:
        return self.ballot.generation, self.map.sequence

    @property
    def state(self) -> State:
        return self.map.sequence, self.map.digest


@final
@dataclass(eq=False)
class Chain:
    """The commits of one register."""

    values: dict[Ballot, Value] = field(default_factory=dict)
    accepted: dict[Ballot, set[AcceptorId]] = field(default_factory=dict)
    states: States = field(default_factory=States)
    top: Top | None = None
    # By operation: the config id of its transaction, and the outcome.
    judged: dict[bytes, tuple[int, KeptOutcome]] = field(default_factory=dict)
    is_forced: bool = False  # True once the register was forced: earlier reported outcomes may be lost.

    @property
    def entries(self) -> Entries | None:
        """The content of the top."""
        return None if self.top is None else self.states.maps[self.top.state]


@final
class Witness:
    """The observer of all disks and of the maps that nodes show."""

    def __init__(self, catalogue: bytes) -> None:
        self.violations: list[Violation] = []
        self.counts: Counter[str] = Counter()
        self.chains: dict[bytes, Chain] = {}
        self.disks: dict[AcceptorId, Disk] = {}
        self.lost: set[AcceptorId] = set()
        self.put_back: set[AcceptorId] = set()  # Stores that went back to an earlier copy; they count as lost too.
        self.damaged: set[tuple[AcceptorId, bytes]] = set()  # Maps with a damaged record, until they are replaced.
        self.wanted: dict[bytes, list[Operation]] = {}  # All operations that clients asked for, by id.
        self.told: list[Answered] = []
        self.moves = 0  # Changes of acceptors under way.
        # By store: the positions of stores that its node must know.
        self.sightings: dict[AcceptorId, set[tuple[AcceptorId, Position]]] = {}
        # Reported positions, with the number of batches synced since.
        self._hearing: dict[AcceptorId, list[tuple[int, bytes]]] = {}
        self._catalogue = catalogue
        self._shown: _Places = {}
        self._kept: _Places = {}
        self._maps: dict[tuple[AcceptorId, bytes], DiskMap] = {}  # The bases on disks.
        self._named: frozenset[bytes] = frozenset()  # The tables of the committed catalogue.

    def found(self, checker: str, what: str) -> None:
        self.violations.append(Violation(checker, trio.current_time(), what))

    def chain(self, register: bytes) -> Chain:
        return self.chains.setdefault(register, Chain())

    # -- synced records ----------------------------------------------------------------------------------------------

    def synced(self, disk: Disk, records: list[tuple[bytes, bytes | None]]) -> None:
        """Check a synced batch, in order; None: a deletion."""
        who = AcceptorId(disk.node, disk.store)
        self._takes_along(who)
        changed: dict[bytes, None] = {}
        for key, _ in records:
            if key[:1] == MAP:
                changed[key[1 : 1 + REGISTER_BYTES]] = None
        for register in changed:
            self.read(disk, register)
        for key, value in records:
            if key[:1] == RECORD and value is not None:
                changed[key[1:]] = None
                self._accepted(key[1:], who, decode_record(value))
        for register in changed:
            self._check_base(register, who)
            self._check_record(register, disk)

    def read(self, disk: Disk, register: bytes) -> None:
        """Read the base of a map from a disk, on which it may have changed."""
        prefix = MAP + register
        size = len(prefix)
        records = {key[size:]: record for key, record in disk.records.items() if key.startswith(prefix)}
        before, after = self._maps.get((AcceptorId(disk.node, disk.store), register), NO_MAP), map_of(records)
        self.counts["snapshots"] += after.slot != before.slot
        self.counts["forgotten"] += bool(before.entries) and not after.entries
        self._maps[AcceptorId(disk.node, disk.store), register] = after

    def base(self, who: AcceptorId, register: bytes) -> DiskMap:
        """Return the base of a map on a disk."""
        return self._maps.get((who, register), NO_MAP)

    def _accepted(self, register: bytes, who: AcceptorId, record: AcceptorRecord) -> None:
        ballot, value = record.accepted, record.value
        if ballot is None or value is None:
            return
        chain = self.chain(register)
        if chain.values.setdefault(ballot, value) != value:
            self.found("one_value", f"{register.hex()[:8]} has two values in {ballot}")
        accepted = chain.accepted.setdefault(ballot, set())
        held = decode_value(value.payload)
        if not any(state[0] == held.decided for state in chain.states.maps):
            self.found("decided", f"{who} accepted {_said(held)} of {register.hex()[:8]}: {held.decided} is undecided")
        is_new = not value.acceptors.is_quorum(accepted)
        accepted.add(who)
        if is_new and value.acceptors.is_quorum(accepted):
            self._committed(register, chain, Top(ballot, value, held))

    def _committed(self, register: bytes, chain: Chain, top: Top) -> None:
        self.counts["commits"] += 1
        before, ballot, name = chain.top, top.ballot, register.hex()[:8]
        is_new = top.state not in chain.states.maps
        try:
            state = chain.states.commit(top.map)
        except ProtocolError as error:
            self.found("one_chain", f"{name}: {_said(top.map)} in {ballot}: {error.message}")
            return
        if before is not None and ballot < before.ballot:
            # In one generation the last sync is late.  In an older one, an old majority has not heard of a force.
            if ballot.generation == before.ballot.generation and is_new:
                self.found("one_chain", f"{name}: {_said(top.map)} is committed below {before.ballot}")
            self.counts["lost" if is_new else "late"] += 1
            return
        chain.top = top
        is_forced = before is not None and ballot.generation > before.ballot.generation
        path = None if before is None else chain.states.path(before.state, state)
        if before is not None and not is_forced:
            if path is None:
                self.found("one_chain", f"{name}: {_said(top.map)} does not follow {_said(before.map)}")
            if before.map.ended and (path or not top.map.ended):
                self.found("one_chain", f"{name} was ended, and {_said(top.map)} follows")
        is_same = before is not None and path == [] and before.value.acceptors == top.value.acceptors
        chain.top = top._replace(at_s=before.at_s if before is not None and is_same else trio.current_time())
        if path == []:
            return
        self.counts["steps"] += 1
        self._check_held(register, f"{_said(top.map)} is committed")
        self._judge(register, chain, path, before)

    def heard(self, disk: Disk, seen: bytes) -> None:
        """Note the positions that a node was told: it must know them from the second later batch on."""
        self._hearing.setdefault(AcceptorId(disk.node, disk.store), []).append((0, seen))

    def forgets(self, disk: Disk) -> None:
        """Note the end of a life: unsynced positions that it heard are lost."""
        self._hearing.pop(AcceptorId(disk.node, disk.store), None)

    def _takes_along(self, who: AcceptorId) -> None:
        heard = [(batches + 1, seen) for batches, seen in self._hearing.pop(who, [])]
        self._hearing[who] = [(batches, seen) for batches, seen in heard if batches < 2]
        for batches, seen in heard:
            if batches == 2:
                self.sightings.setdefault(who, set()).update(positions_in(seen))

    # -- bases -------------------------------------------------------------------------------------------------------

    def goes_back(self, disk: Disk) -> None:
        """Note that a disk has other records than before."""
        who = AcceptorId(disk.node, disk.store)
        self._maps = {of: base for of, base in self._maps.items() if of[0] != who}
        for register in {key[1 : 1 + REGISTER_BYTES]: None for key in disk.records if key[:1] == MAP}:
            self.read(disk, register)

    def damages(self, disk: Disk, register: bytes) -> None:
        """Note that a record of a map was damaged: a base that replaces it may be older."""
        who = AcceptorId(disk.node, disk.store)
        self.damaged.add((who, register))
        self.read(disk, register)
        self._shown.pop((who, register), None)
        self._kept.pop((who, register), None)

    def _check_base(self, register: bytes, who: AcceptorId) -> None:
        base = self.base(who, register)
        if (who, register) in self.damaged:
            if not base.is_whole:
                return
            self.damaged.discard((who, register))
            self.counts["damage replaced"] += 1
        if base.sequence:  # Otherwise the map was forgotten; a late message of its register may begin it.
            self._rises(self._kept, who, register, base.place, "on its disk")
        if not base.is_whole:
            self.found("decided", f"{who} has a base of {register.hex()[:8]} that does not have its digest")
        if base.state not in self.chain(register).states.maps and not base.ended:
            said = f"{base.place} {base.digest.hex()[:8]}"
            self.found("decided", f"{who} has the base {said} of {register.hex()[:8]}, which was never committed")

    def _has(self, register: bytes, top: Top, who: AcceptorId) -> bool:
        """Return True if a disk shows the top's map, or one that follows from it."""
        base, disk = self.base(who, register), self.disks[who]
        if base.place >= top.place and base.is_whole:
            return True
        data = disk.records.get(RECORD + register)
        record = None if data is None else decode_record(data)
        if record is None or record.accepted is None or record.value is None or record.accepted < top.ballot:
            return False
        return is_held(base, record.accepted.generation, decode_value(record.value.payload))

    def _check_held(self, register: bytes, when: str) -> None:
        """Check that a majority of the top's acceptors has its map, unless the register is not named."""
        top = self.chain(register).top
        if top is None or top.map.ended or (register != self._catalogue and register not in self._named):
            return
        everyone = top.value.acceptors.everyone
        holders = {one for one in everyone if one in self.disks and self._has(register, top, one)}
        excused = self.lost | {who for who, of in self.damaged if of == register}
        if not top.value.acceptors.is_quorum(holders | (everyone & excused)):
            said = f"{register.hex()[:8]}: {_said(top.map)} is held by {len(holders)} of {len(everyone)}"
            self.found("held", f"{said} when {when}")

    def _check_record(self, register: bytes, disk: Disk) -> None:
        """Check that an acceptor can build the map of the value in its own record."""
        data, who = disk.records.get(RECORD + register), AcceptorId(disk.node, disk.store)
        record = None if data is None else decode_record(data)
        if record is None or record.value is None or record.accepted is None:
            return
        held, top = decode_value(record.value.payload), self.chain(register).top
        if top is not None and top.map.ended:
            return
        is_named = register == self._catalogue or register in self._named
        is_excused = not is_named or (who, register) in self.damaged
        if not is_excused and not is_held(self.base(who, register), record.accepted.generation, held):
            self.found("held", f"{register.hex()[:8]}: {who} accepted {_said(held)}, and cannot build its map")

    def tables(self) -> dict[str, NamedTable]:
        entries = self.chain(self._catalogue).entries
        found = content_of(entries).entries.values() if entries is not None else ()
        return {
            one.key.decode(): decode_named(one.record)
            for one in sorted(found, key=lambda one: one.key)
            if one.key >= tables.END_OF_NODES
        }

    def is_ended(self, register: bytes) -> bool:
        """Return True if a table's register says that the table was dropped."""
        top = self.chain(register).top
        return top is not None and bool(top.map.ended)

    # -- judged operations -------------------------------------------------------------------------------------------

    def _judge(self, register: bytes, chain: Chain, path: list[Transaction] | None, before: Top | None) -> None:
        """Judge the transactions that lead from one top to the next; None: the map began, or a force went back."""
        assert chain.top is not None
        maps, steps = chain.states.maps, chain.states.steps
        rows = rows_of(maps[chain.top.state])
        if path is None or before is None:
            chain.judged = {id_: (row.config, kept) for row in rows.values() for id_, kept in row.kept.items()}
        for transaction in path or ():
            state = transaction.sequence, transaction.digest
            self._judge_step(register, chain, maps[steps[state][0]], maps[state], transaction)
        if register == self._catalogue:
            self._name()

    def _judge_step(
        self, register: bytes, chain: Chain, before: Entries, after: Entries, transaction: Transaction
    ) -> None:
        name, sequence = f"{register.hex()[:8]} {transaction.sequence}", transaction.sequence
        old, rows = rows_of(before), rows_of(after)
        row = rows.pop(sequence, None)
        kept_from = sequence - operations.KEPT
        if any(number > kept_from and rows.get(number) != old[number] for number in old) or rows.keys() - old.keys():
            self.found("judged", f"{name} changes outcomes of earlier transactions")
        if row is None:
            if content_of(before) != content_of(after) and not _is_first(before):
                self.found("judged", f"{name} changes the map without an operation")
            return
        if sequence_of(row.config) != sequence:
            self.found("judged", f"{name} has the config id {row.config}")
        for id_, kept in row.kept.items():
            if id_ in chain.judged:
                self.found("judged", f"{id_.hex()[:8]} is judged in {chain.judged[id_]} and in {name}")
            chain.judged[id_] = row.config, kept
        judged = [*row.kept.items()]
        self.counts["operations"] += len(judged)
        self.counts.update(kept.outcome.name for _, kept in judged)
        wanted = {id_: one for id_, kept in judged for one in self.wanted.get(id_, []) if kept.digest == one.digest}
        self.counts["ids used again"] += sum(len(self.wanted[id_]) > 1 for id_ in wanted)
        if len(wanted) == len(judged):
            self.counts["replayed"] += 1
            functions = (tables if register == self._catalogue else partitions).OPERATIONS
            told = [(wanted[id_], kept.outcome) for id_, kept in judged]
            expected, wrong = replay(content_of(before), told, row.config, functions)
            for what in wrong:
                self.found("judged", f"{what} in {name}")
            if expected != content_of(after):
                self.found("judged", f"{name} is not what its operations make")

    def _name(self) -> None:
        """Check that the maps of newly named tables are held."""
        named = frozenset(table.id for table in self.tables().values())
        before, self._named = self._named, named
        for one in sorted(named - before):
            self._check_held(one, "the catalogue names it")

    def check_told(self) -> None:
        """Check the reported outcomes of operations, now that the world is quiet."""
        for register, id_, outcome, by, digest in self.told:
            chain = self.chain(register)
            if chain.is_forced:
                continue
            kept = chain.judged[id_][1] if id_ in chain.judged else KeptOutcome(OperationOutcome.UNKNOWN, b"")
            found = kept.outcome if digest in {b"", kept.digest} else OperationOutcome.UNKNOWN
            is_so = found is outcome or (outcome is OperationOutcome.REFUSED and found is OperationOutcome.UNKNOWN)
            if by.startswith("create"):  # A failed creation is reported in different ways.
                is_so = (found is OperationOutcome.DONE) == (outcome is OperationOutcome.DONE)
            if by == "create of many":  # A creation may be refused in favour of another under the same id.
                is_so |= outcome is not OperationOutcome.DONE
            self.counts[f"told {outcome.name} by {by}"] += 1
            if not is_so and outcome is not OperationOutcome.UNKNOWN:
                self.found("judged", f"{id_.hex()[:8]} was told {outcome.name} by {by}, and is {found.name}")

    # -- shown maps --------------------------------------------------------------------------------------------------

    def shown(self, disk: Disk, metadata: Metadata) -> None:
        who = AcceptorId(disk.node, disk.store)
        for register, base in metadata.maps.known.items():
            if self._shown.get((who, register)) == base.place:
                continue
            self._rises(self._shown, who, register, base.place, "shown")
            self.counts["shown"] += 1
            known = metadata.known.get(register)
            if known is None or (known.generation, known.sequence) != base.place:
                self.found("committed", f"{who} shows another map of {register.hex()[:8]} than it knows")
            if base.ended:
                continue
            name = f"{base.place} {base.digest.hex()[:8]} of {register.hex()[:8]}"
            entries = self.chain(register).states.maps.get((base.sequence, base.digest))
            if entries is None:
                self.found("committed", f"{who} shows {name}, which never was")
            elif dict(base.entries.scan()) != entries:
                self.found("committed", f"{who} shows {name} with another content")

    def _rises(self, seen: _Places, who: AcceptorId, register: bytes, place: tuple[int, int], where: str) -> None:
        before = seen.get((who, register), (0, 0))
        seen[who, register] = max(before, place)
        if place < before and who not in self.put_back:
            self.found("rising", f"{register.hex()[:8]} falls from {before} to {place} {where} of {who}")


def _is_first(entries: Entries) -> bool:
    """Return True if a map may still be written by its creator, in parts: no operation was judged on it."""
    return not rows_of(entries)


def _said(value: MapValue) -> str:
    end = " (ended)" if value.ended else ""
    return f"{value.sequence} {value.digest.hex()[:8]}{end}"

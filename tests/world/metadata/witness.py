"""A witness of all commits: it sees the synced records of all disks, and the maps that nodes show.

A value is committed when a quorum of its acceptors has synced its acceptance.  Each promise is one checker:

one_value: a ballot has one value
one_chain: the head of a map follows from the one before it, until the map is ended; a force may go back
held: a committed head's pages are on a majority of its acceptors, from before it is named until it is old; and on each
    acceptor that accepted it
names: a page's name matches its content
committed: a shown map was committed, and can be read or reports that its pages are missing
rising: the config id that a node shows of a map never falls, nor the one on its disk
judged: transactions are judged as the model judges them; each operation is judged once, and only one of several under
    one id; reported outcomes are true
replaced: once faults have ended, a replaced acceptor decides on nothing
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, final

import trio

from gossipkv.errors import NotReady, UnknownDatabase
from gossipkv.register.configuration import AcceptorId
from gossipkv.register.messages import REGISTER_BYTES, decode_record
from gossipkv.register.metadata import partitions, tables
from gossipkv.register.metadata.head import MapHead, Past, decode_head
from gossipkv.register.metadata.known import KNOWN, known_of
from gossipkv.register.metadata.pages import (
    KeptOutcome,
    MissingPage,
    OperationOutcome,
    generation_of,
    name_of,
    sequence_of,
)
from gossipkv.register.metadata.tables import NamedTable, decode_named
from gossipkv.register.metadata.tree import MapTree, pages_of
from gossipkv.register.seen import BEHIND, POSITION, SEEN, positions_in
from gossipkv.register.space import MAP, RECORD
from tests.world.metadata.model import Content, content_of, replay

if TYPE_CHECKING:
    from gossipkv.register.ballot import Ballot
    from gossipkv.register.configuration import Value
    from gossipkv.register.messages import AcceptorRecord
    from gossipkv.register.metadata.known import KnownMap
    from gossipkv.register.metadata.operations import Operation
    from gossipkv.register.metadata.server import Metadata
    from gossipkv.register.seen import Position
    from tests.world.metadata.store import Disk

    _Places = dict[tuple[AcceptorId, bytes], tuple[int, int, bool]]

PIN: Final = b"\0"
PAGE: Final = b"\1"


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


@final
@dataclass(eq=False)
class Chain:
    """The commits of one register."""

    values: dict[Ballot, Value] = field(default_factory=dict)
    accepted: dict[Ballot, set[AcceptorId]] = field(default_factory=dict)
    heads: set[Past] = field(default_factory=set)  # Every committed head.
    top: tuple[Ballot, Value, MapHead] | None = None
    content: Content | None = None  # The content of the top.
    # By operation: the config id of its transaction, and the outcome.
    judged: dict[bytes, tuple[int, KeptOutcome]] = field(default_factory=dict)
    is_forced: bool = False  # True once the register was forced: earlier reported outcomes may be lost.


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
        self._roots: dict[bytes, tuple[bytes, ...]] = {}
        self._named: frozenset[bytes] = frozenset()  # The tables of the committed catalogue.

    def found(self, checker: str, what: str) -> None:
        self.violations.append(Violation(checker, trio.current_time(), what))

    def chain(self, register: bytes) -> Chain:
        return self.chains.setdefault(register, Chain())

    # # -- synced records ----------------------------------------------------------------------------------------------

    def synced(self, disk: Disk, records: list[tuple[bytes, bytes | None]]) -> None:
        """Check a synced batch, in order; None: a deletion."""
        who = AcceptorId(disk.node, disk.store)
        self._takes_along(who)
        changed: dict[bytes, bool] = {}  # Registers; True if some of their records were deleted.
        for key, value in records:
            register, rest = key[1 : 1 + REGISTER_BYTES], key[1 + REGISTER_BYTES :]
            if key[:1] in (POSITION, SEEN, BEHIND):
                continue
            if value is None:
                changed[register] = True
            elif key[:1] == RECORD:
                changed.setdefault(register, False)
                self._accepted(register, who, decode_record(value))
            elif key[:1] == KNOWN:
                self._rises(self._kept, who, register, known_of(value), "on its disk")
            elif rest[:1] == PAGE and name_of(value) != rest[1:]:
                self.found("names", f"{who} has a page under the name {rest[1:].hex()[:16]}, which is another's")
        for register, is_less in changed.items():
            if is_less:
                self.counts["collections"] += 1
                self._check_held(register, "something was collected")
            self._check_record(register, disk)

    def _accepted(self, register: bytes, who: AcceptorId, record: AcceptorRecord) -> None:
        ballot, value = record.accepted, record.value
        if ballot is None or value is None:
            return
        chain = self.chain(register)
        if chain.values.setdefault(ballot, value) != value:
            self.found("one_value", f"{register.hex()[:8]} has two values in {ballot}")
        accepted = chain.accepted.setdefault(ballot, set())
        is_new = not value.acceptors.is_quorum(accepted)
        accepted.add(who)
        if is_new and value.acceptors.is_quorum(accepted):
            self._committed(register, chain, ballot, value)

    def _committed(self, register: bytes, chain: Chain, ballot: Ballot, value: Value) -> None:
        self.counts["commits"] += 1
        head = decode_head(value.payload)
        # The value is as before, under the drop's id.
        if head.ended and head.last and head.last[0].config == head.config:
            chain.heads.add(Past(*head[:3]))
            head = MapHead(*head.last[0], head.last[1:], ended=True)
        before = chain.top
        name = register.hex()[:8]
        is_known = Past(*head[:3]) in chain.heads
        chain.heads |= {Past(*head[:3]), *head.last}
        if before is not None and ballot < before[0]:
            # In one generation the last sync is late.  In an older one, an old majority has not heard of a force.
            if ballot.generation == before[0].generation and not is_known:
                self.found("one_chain", f"{name}: {_said(head)} is committed below {before[0]}, and not on its chain")
            self.counts["late" if is_known else "lost"] += 1
            return
        chain.top = ballot, value, head
        is_forced = before is not None and ballot.generation > before[0].generation
        if before is not None and before[2][:3] == head[:3]:
            if before[2].ended and not head.ended and not is_forced:
                self.found("one_chain", f"{name} was ended, and goes on")
            return
        if before is not None and not is_forced:
            past = before[2]
            if head.last[:1] != (Past(*past[:3]),) or sequence_of(head.config) != sequence_of(past.config) + 1:
                self.found("one_chain", f"{name}: {_said(head)} does not follow {_said(past)}")
            if past.ended:
                self.found("one_chain", f"{name} was ended, and {_said(head)} follows")
        if before is not None and generation_of(head.config) != ballot.generation and not is_forced:
            self.found("one_chain", f"{name}: {_said(head)} in the generation {ballot.generation}")
        self.counts["heads"] += 1
        self._check_held(register, f"{_said(head)} is committed")
        self._judge(register, chain, head, is_anew=before is None or is_forced)

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

    # # -- held pages --------------------------------------------------------------------------------------------------

    def holds(self, disk: Disk, register: bytes, root: bytes) -> bool:
        """Return True if a root is pinned on a disk, with all its pages."""
        prefix = MAP + register

        def read(name: bytes) -> bytes:
            page = disk.records.get(prefix + PAGE + name)
            if page is None:
                raise MissingPage(name)
            return page

        if prefix + PAGE + root not in disk.records or prefix + PIN + root not in disk.records:
            return False
        names = self._roots.get(root) or pages_of(read, root)
        if not all(prefix + PAGE + name in disk.records for name in names):
            return False
        self._roots[root] = names  # None is missing, so these are the names of all pages.
        return True

    def _check_held(self, register: bytes, when: str) -> None:
        """Check that the top's pages are on a majority of its acceptors, unless the register is not named."""
        top = self.chain(register).top
        if top is None or top[2].ended or (register != self._catalogue and register not in self._named):
            return
        _, value, head = top
        everyone = value.acceptors.everyone
        holders = {one for one in everyone if one in self.disks and self.holds(self.disks[one], register, head.root)}
        if not value.acceptors.is_quorum(holders | (everyone & self.lost)):
            said = f"{register.hex()[:8]}: {_said(head)} is held by {len(holders)} of {len(everyone)}"
            self.found("held", f"{said} when {when}")

    def _check_record(self, register: bytes, disk: Disk) -> None:
        """Check that an acceptor holds the pages of the value in its own record."""
        data = disk.records.get(RECORD + register)
        record = None if data is None else decode_record(data)
        if record is None or record.value is None:
            return
        head = decode_head(record.value.payload)
        top = self.chain(register).top
        if head.ended or (top is not None and top[2].ended) or self.holds(disk, register, head.root):
            return
        if register == self._catalogue or register in self._named:
            who = AcceptorId(disk.node, disk.store)
            self.found("held", f"{register.hex()[:8]}: {who} accepted {_said(head)}, and does not hold it")

    def page(self, register: bytes, name: bytes) -> bytes:
        key = MAP + register + PAGE + name
        for disk in self.disks.values():
            if key in disk.records:
                return disk.records[key]
        raise MissingPage(name)

    def tree(self, register: bytes, root: bytes) -> MapTree:
        kind = tables.CATALOGUE if register == self._catalogue else partitions.MAP
        return MapTree.opened(lambda name: self.page(register, name), root, kind.name)

    def tables(self) -> dict[str, NamedTable]:
        chain = self.chain(self._catalogue)
        entries = chain.content.entries.values() if chain.content is not None else ()
        return {one.key.decode(): decode_named(one.record) for one in entries if one.key >= tables.END_OF_NODES}

    def is_ended(self, register: bytes) -> bool:
        """Return True if a table's register says that the table was dropped."""
        top = self.chain(register).top
        return top is not None and top[2].ended

    # # -- judged operations -------------------------------------------------------------------------------------------

    def _judge(self, register: bytes, chain: Chain, head: MapHead, *, is_anew: bool) -> None:
        try:
            tree = self.tree(register, head.root)
            after = content_of(tree)
        except MissingPage as missing:
            if not head.ended:  # After a swap and a drop in one round the pages may be gone.
                self.found("held", f"{_said(head)} is committed, and nobody has page {missing.name.hex()[:8]}")
            return
        before, chain.content = chain.content, after
        rows = [row for page in tree.root.ids for row in tree.judged(page)]
        judged = [*rows[-1].kept.items()] if rows and rows[-1].config == head.config else []
        if is_anew:
            chain.judged = {id_: (row.config, kept) for row in rows for id_, kept in row.kept.items()}
        else:
            for id_, kept in judged:
                if id_ in chain.judged:
                    self.found("judged", f"{id_.hex()[:8]} is judged in {chain.judged[id_]} and in {_said(head)}")
                chain.judged[id_] = head.config, kept
        self.counts["operations"] += len(judged)
        self.counts.update(kept.outcome.name for _, kept in judged)
        wanted = {id_: one for id_, kept in judged for one in self.wanted.get(id_, []) if kept.digest == one.digest}
        self.counts["ids used again"] += sum(len(self.wanted[id_]) > 1 for id_ in wanted)
        if before is not None and not is_anew and len(wanted) == len(judged):
            self.counts["replayed"] += 1
            functions = (tables if register == self._catalogue else partitions).OPERATIONS
            told = [(wanted[id_], kept.outcome) for id_, kept in judged]
            expected, wrong = replay(before, told, head.config, functions)
            for what in wrong:
                self.found("judged", f"{register.hex()[:8]}: {what} in {_said(head)}")
            if expected != after:
                self.found("judged", f"{register.hex()[:8]}: {_said(head)} is not what its operations make")
        if register == self._catalogue:
            self._name()

    def _name(self) -> None:
        """Check that the pages of newly named tables are held."""
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

    # # -- shown maps --------------------------------------------------------------------------------------------------

    def shown(self, disk: Disk, metadata: Metadata) -> None:
        who = AcceptorId(disk.node, disk.store)
        for register, known in metadata.known.items():
            head = known.head
            if self._shown.get((who, register)) == known.place:
                continue
            self._rises(self._shown, who, register, known, "shown")
            self.counts["shown"] += 1
            if Past(*head[:3]) not in self.chain(register).heads:
                self.found("committed", f"{who} shows {_said(head)} of {register.hex()[:8]}, which never was")
            if head.ended:
                continue
            try:
                for _ in metadata.tree(register).scan():
                    pass
            except (NotReady, UnknownDatabase) as error:
                self.counts[f"not shown: {error.code}"] += 1

    def _rises(self, seen: _Places, who: AcceptorId, register: bytes, known: KnownMap, where: str) -> None:
        before = seen.get((who, register), (0, 0, False))
        seen[who, register] = max(before, known.place)
        if known.place < before and who not in self.put_back:
            self.found("rising", f"{register.hex()[:8]} falls from {before} to {known.place} {where} of {who}")


def _said(head: MapHead) -> str:
    end = " (ended)" if head.ended else ""
    return f"{generation_of(head.config)}/{sequence_of(head.config)} {head.transaction.hex()[:6]}{end}"

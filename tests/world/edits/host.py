"""One process of a node: production's acceptor, proposer, force and map, over a disk and a network of the world.

It does what the shell does, without Trio. A process that starts has what is on its disk.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final, final

import msgpack

from gossipkv.errors import ProtocolError
from gossipkv.register.acceptor import Acceptor, AcceptorAnswer, Keep
from gossipkv.register.ballot import BELOW
from gossipkv.register.changes import Applied, CannotJudge, ChangeRefused, read
from gossipkv.register.configuration import AcceptorId
from gossipkv.register.edits import decode_value, transactions_of
from gossipkv.register.force import Force
from gossipkv.register.messages import RegisterRequest, RequestKind, decode_record
from gossipkv.register.proposal import ChangeEnd, ProposalOutcome, Reconfigure
from gossipkv.register.proposer import Proposer
from gossipkv.register.seen import BEHIND, POSITION, SEEN, SeenPositions, positions_in
from gossipkv.register.snapshot import SnapshotReader, page_of, snapshot_page_of
from gossipkv.register.state import read_map
from tests.world.edits.operations import Judged, Operation, judge_all

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from gossipkv.register.ballot import Ballot
    from gossipkv.register.changes import RegisterChange
    from gossipkv.register.configuration import Value
    from gossipkv.register.messages import AcceptorRecord, Reply
    from gossipkv.register.seen import Opening
    from gossipkv.register.state import Base
    from tests.world.edits.disk import Disk, Heard
    from tests.world.edits.world import World

    Core = Proposer | Force
    Position = tuple[int, int, Ballot]  # The place of a base, and the ballot of the acceptors that it knows.

REGISTER: Final = bytes(16)
RECORD: Final = b"r"  # The key of the acceptor's record.
MAP: Final = b"m"  # The prefix of the map's records.
MAX_MAP_BYTES: Final = 1 << 20
READING_MS: Final = 1000  # A snapshot that takes longer is begun again.


def acceptor_of_node(number: int, store: int = 1) -> AcceptorId:
    return AcceptorId(bytes((number,)) * 16, store)


def node_of(acceptor: AcceptorId) -> int:
    return acceptor.node[0]


def positions_on(records: Mapping[bytes, bytes], of: AcceptorId, drawn: int = 0) -> SeenPositions:
    """Return the positions of stores on a disk, as an acceptor has them that opens the disk and draws an id."""
    kept = [(key, record) for key, record in records.items() if key[:1] in {POSITION, SEEN, BEHIND}]
    return SeenPositions(of, kept, Random(drawn))


def end(value: Value, generation: int) -> Applied:
    """End the map of a register, for good."""
    del generation
    return Applied(decode_value(value.payload).ended_by(b"end").encode())


@dataclass(slots=True, eq=False)
class Change:
    """A change that waits for its outcome."""

    operations: list[Operation]
    asked: dict[int, int]  # By generation: the last sequence that was decided when the change was asked for.
    judged: Judged | None = None


@dataclass(slots=True, eq=False)
class Reading:
    """A snapshot that is read from another node."""

    source: int
    reader: SnapshotReader
    since_ms: int


@final
class Host:
    def __init__(self, world: World, number: int, disk: Disk) -> None:
        self.number, self.me = number, world.nodes[number].me
        self.world, self.disk = world, disk
        self.seen = positions_on(disk.durable, self.me, world.random.getrandbits(64))
        self._heard: set[Heard] = set()  # Positions of stores that were heard since the last batch.
        self.map, strange = read_map(disk.scan(MAP))
        self._append({MAP + key: None for key in strange})
        self.acceptor = Acceptor(self.me, lambda _: disk.durable.get(RECORD), self._holds)
        self.proposer = Proposer(REGISTER, Random(world.random.getrandbits(64)), world.founders)
        self.force: Force | None = None
        self.pulled: set[int] = set()  # Nodes whose base, if it is newer than this one, was taken here.
        self._changes: dict[int, Change] = {}
        self._tokens = 0
        self._askers: dict[int, tuple[int, Core | None, Mapping[Opening, int]]] = {}
        self._lacks = False
        self._reading: Reading | None = None
        self.heard: set[tuple[int, int]] = set()  # The generations in replies, with the ids of their forces.
        self._generation = 0  # The newest one whose acceptors the proposer was told to ask.
        record = self.record
        if record is not None:
            self.proposer.learn(record)
            self._note(record)
            if record.accepted is not None and record.value is not None:
                value = decode_value(record.value.payload)
                self.map.decide(value, record.accepted.generation, value.decided)
        if self.map.base is not None:
            self._hint(self.map.base)

    @property
    def record(self) -> AcceptorRecord | None:
        return self.acceptor.record(REGISTER)

    @property
    def position(self) -> Position:
        base = self.map.base
        return (0, -1, BELOW) if base is None else (*base.place, base.shown)

    # -- the acceptor --------------------------------------------------------------------------------------------------

    def _holds(self, register: bytes, payload: bytes) -> bool:
        del register
        try:
            holds = self.map.holds(decode_value(payload))
        except ProtocolError:
            holds = False
        self._lacks = not holds
        return holds

    def on_ask(
        self, source: int, core: Core | None, request: RegisterRequest, told: Mapping[Opening, int], seen: bytes = b""
    ) -> None:
        """Process a request of a node's proposer or force.

        `told`: the positions of this store that the request tells; `seen`: all positions in it, unless it is local.
        """
        self._hear(seen)
        self._tokens += 1
        self._askers[self._tokens] = source, core, told
        self._lacks = False
        try:
            self._receive(request)
        except ProtocolError:
            self.world.send(self, source, "refusal", core, request)
        if self._lacks:
            self.poll([source])
        self._perform()

    def _receive(self, request: RegisterRequest) -> None:
        if self.seen.behind:
            raise ProtocolError(self.seen.behind)
        self.acceptor.receive(self._tokens, request)

    def _perform(self) -> None:
        for effect in self.acceptor.take():
            match effect:
                case Keep(serial, _, record):
                    self._keep(serial, record)
                case AcceptorAnswer(token, reply):
                    source, core, told = self._askers.pop(token)
                    if core is not None and not self.seen.behind:
                        kept = self.record
                        others = sorted(kept.value.acceptors.everyone) if kept and kept.value else ()
                        seen = b"" if source == self.number else self.seen.tell(others)
                        self.world.send(self, source, "reply", core, reply, told, seen)

    def _keep(self, serial: int, data: bytes) -> None:
        record = decode_record(data)
        if record.accepted is not None and record.value is not None:
            value = decode_value(record.value.payload)
            self.map.decide(value, record.accepted.generation, value.decided)
            self.world.watch(self)
        self._append({RECORD: data, **self._map_records()}, serial)

    def _map_records(self) -> dict[bytes, bytes | None]:
        return {MAP + key: record for key, record in self.map.records().items()}

    def _append(self, records: dict[bytes, bytes | None], serial: int = 0) -> None:
        if records:
            self.disk.append({**records, **self.seen.records()}, serial, self._heard)
            self._heard = set()

    def flush(self) -> None:
        """Append the base as it is."""
        self._append(self._map_records())

    def sync(self, count: int) -> None:
        serial = self.disk.sync(count)
        for _ in range(count):
            self.seen.synced()
        if serial:
            self.acceptor.synced(serial)
            self._perform()

    def on_notice(self, source: int, ballot: Ballot) -> None:
        """Process that the value of a ballot was decided."""
        record = self.record
        if record is None or record.value is None or record.accepted != ballot:
            self.poll([source])
            return
        value = decode_value(record.value.payload)
        if not self.map.decide(value, ballot.generation, value.sequence, record.value.acceptors, ballot):
            self.poll([source])
        self.world.watch(self)

    # -- the proposer --------------------------------------------------------------------------------------------------

    def submit(self, operations: list[Operation], patience_ms: int) -> None:
        """Ask for operations, all in one transaction."""
        change = Change(operations, dict(self.world.chain.last))
        self.world.chain.ask(operations)
        self._submit(change, partial(self._judge, change), patience_ms)

    def read(self, patience_ms: int) -> None:
        """Read the register by a quorum."""
        self._submit(Change([], dict(self.world.chain.last)), read, patience_ms)

    def end(self, patience_ms: int) -> None:
        """End the map for good."""
        self._submit(Change([], dict(self.world.chain.last)), end, patience_ms)

    def reconfigure(self, numbers: Iterable[int], patience_ms: int) -> None:
        members = tuple(self.world.nodes[number].me for number in numbers)
        self._submit(Change([], {}), Reconfigure(members), patience_ms)

    def _submit(self, change: Change, want: RegisterChange | Reconfigure, patience_ms: int) -> None:
        self._tokens += 1
        self._changes[self._tokens] = change
        if self.map.base is not None:
            self._hint(self.map.base)
        now_ms = self.world.now_ms
        self.proposer.submit(self._tokens, want, now_ms=now_ms, deadline_ms=now_ms + patience_ms)
        self._act(self.proposer)

    def _judge(self, change: Change, value: Value, generation: int) -> Applied | ChangeRefused | CannotJudge:
        found, base = decode_value(value.payload), self.map.base
        if base is not None and base.generation > generation:
            self._generation = generation
            self._hint(base)
            return CannotJudge("a force has begun a newer generation")
        if found.ended:
            return ChangeRefused("GONE", "the map has ended")
        state = self.map.state_of(found)
        if state is None:
            self.poll(map(node_of, value.acceptors.everyone))
            return CannotJudge("the map is not here")
        if self.map.is_full(found):
            change.judged = None
            return Applied(value.payload)
        knows_new = self.number in self.world.newer
        change.judged = judge_all(change.operations, state.entries, found.sequence + 1, generation, knows_new=knows_new)
        edits, _ = change.judged
        return Applied(self.map.next_value(found, state, edits).encode() if edits else value.payload)

    def on_reply(self, source: int, core: Core, reply: Reply, told: Mapping[Opening, int], seen: bytes) -> None:
        del source
        if core not in {self.proposer, self.force}:
            return  # An earlier process asked.
        self._hear(seen)
        if seen and not self.seen.is_counted(reply.by, told, seen):
            self.unreachable(core, reply.by, reply.number)
            return
        if reply.record is not None and core is self.proposer:
            self._note(reply.record)
        core.receive(reply, now_ms=self.world.now_ms)
        self._act(core)

    def _note(self, record: AcceptorRecord) -> None:
        """Note the generations that the proposer learns."""
        self.heard |= {ballot[:2] for ballot in (record.promise, record.accepted) if ballot is not None}

    def on_refusal(self, source: int, core: Core, request: RegisterRequest) -> None:
        del source
        self.unreachable(core, request.to, request.number)

    def _hear(self, seen: bytes) -> None:
        """Process the positions of stores that another node tells."""
        self._heard |= {row for row in (positions_in(seen) if seen else ()) if row[1].batches}
        was_behind, is_news = self.seen.behind, bool(seen) and self.seen.hear(seen)
        if self.seen.behind and not was_behind:
            self.world.found_behind(self)
            self._append({BEHIND + self.me.store.to_bytes(8, "big"): self.seen.behind.encode()})
        if is_news:
            self.proposer.begin_anew("news of a store", now_ms=self.world.now_ms)
            self._act(self.proposer)

    def unreachable(self, core: Core, to: AcceptorId, number: int) -> None:
        if core in {self.proposer, self.force}:
            core.unreachable(to, number, "lost", now_ms=self.world.now_ms)
            self._act(core)

    def stop_proposing(self) -> None:
        """Drop all waiting changes."""
        self.proposer.end("the node proposes nothing")
        self._act(self.proposer)

    def cores(self) -> list[Core]:
        return [self.proposer] if self.force is None else [self.proposer, self.force]

    def wake(self) -> None:
        for core in self.cores():
            if core.wakes_at_ms <= self.world.now_ms:
                core.wake(self.world.now_ms)
                self._act(core)

    def _act(self, core: Core) -> None:
        for effect in core.take():
            match effect:
                case RegisterRequest():
                    self.world.ask(self, core, effect)
                case ProposalOutcome():
                    self._end(core, effect)

    def _end(self, core: Core, outcome: ProposalOutcome) -> None:
        change = self._changes.pop(outcome.ticket)
        value, ballot = outcome.value, outcome.ballot
        if value is not None and ballot is not None:
            self._decided(value, ballot)
            self.world.chain.show(decode_value(value.payload), change.asked.get(ballot.generation, 0))
        if outcome.end is ChangeEnd.REFUSED:
            self.world.chain.refuse(change.operations)
        if isinstance(core, Force):
            record = self.record
            if record is not None:
                self.proposer.learn(record)
                self._note(record)
            self.world.forced(outcome)
        if outcome.end is ChangeEnd.DONE and change.operations and ballot is not None:
            if change.judged is None:  # The tail was full: the found value was decided as it was.
                self.submit(change.operations, READING_MS)
                return
            for operation, told in zip(change.operations, change.judged[1], strict=True):
                self.world.tell(ballot.generation, operation, told)

    def _decided(self, value: Value, ballot: Ballot) -> None:
        held = decode_value(value.payload)
        self.world.chain.decide(held, ballot.generation)
        is_news = self.map.base is None or self.map.base.shown < ballot
        if not self.map.decide(held, ballot.generation, held.sequence, value.acceptors, ballot):
            self.poll(map(node_of, value.acceptors.everyone))
        self.world.watch(self)
        for acceptor in sorted(value.acceptors.everyone - {self.me}) if is_news else ():
            self.world.send(self, node_of(acceptor), "notice", ballot)

    def _hint(self, base: Base) -> None:
        """Let the proposer ask acceptors that it does not know, since those that it knows may all be gone.

        After a force it asks all of them, so that it hears of the newer generation.
        """
        known, acceptors = self.proposer.acceptors, base.acceptors
        if acceptors is None:
            return
        is_heard = known is not None and base.generation <= self._generation
        self._generation = max(self._generation, base.generation)
        for acceptor in sorted(acceptors.everyone - (known.everyone if known is not None and is_heard else set())):
            self.world.ask(self, self.proposer, RegisterRequest(RequestKind.READ, REGISTER, acceptor, 0))

    # -- force ---------------------------------------------------------------------------------------------------------

    def begin_force(self, survivors: Collection[int]) -> None:
        self._tokens += 1
        self._changes[self._tokens] = Change([], {})
        ids, chance = [self.world.nodes[number].me for number in survivors], Random(self.world.random.getrandbits(64))
        acceptors, now_ms = self.proposer.acceptors, self.world.now_ms
        self.force = Force(REGISTER, self._tokens, ids, acceptors, chance, now_ms=now_ms, highest=self._highest)
        self._act(self.force)

    def _highest(self, accepted: Ballot, payload: bytes) -> bytes:
        return self.map.highest(accepted, decode_value(payload)).encode()

    # -- other nodes' maps ---------------------------------------------------------------------------------------------

    def poll(self, numbers: Iterable[int]) -> None:
        """Ask one of these nodes for a newer map."""
        others = sorted(set(numbers) - {self.number})
        if others:
            self.world.send(self, self.world.random.choice(others), "poll", self.position)

    def poll_next(self, turn: int) -> None:
        """Poll another acceptor each turn, of those that this node knows."""
        base = self.map.base
        known = self.proposer.acceptors if base is None or base.acceptors is None else base.acceptors
        others = [] if known is None else sorted({*map(node_of, known.everyone)} - {self.number})
        if others:
            self.poll([others[turn % len(others)]])

    def on_poll(self, source: int, position: Position) -> None:
        base, (generation, sequence, shown) = self.map.base, position
        is_newer = base is not None and (base.place > (generation, sequence) or base.shown > shown)
        self.world.send(self, source, "news", *(self._since(generation, sequence) if is_newer else (None, None)))

    def _since(self, generation: int, sequence: int) -> tuple[Base | None, bytes | None]:
        """Return this node's base, and the transactions since an older one if the history reaches back so far."""
        steps = None if sequence < 0 else self.map.since(generation, sequence)
        if self.map.base is not None and steps is not None:
            self.world.chain.give(self.map.base, sequence, steps)
        return self.map.base, None if steps is None else msgpack.packb(steps)

    def on_news(self, source: int, theirs: Base | None, data: bytes | None) -> None:
        base = self.map.base
        if theirs is None or not self.map.takes(theirs.place):
            self.pulled.add(source)
            return
        if theirs.ended:
            self.map.end(*theirs.place, theirs.acceptors, theirs.shown)
            self._rose(source)
            return
        if data is not None and base is not None:
            transactions = transactions_of(msgpack.unpackb(data))
            last = transactions[-1] if transactions else base
            is_whole = (last.sequence, last.digest) == (theirs.sequence, theirs.digest)
            if is_whole and self.map.follow(theirs.generation, transactions, theirs.acceptors, theirs.shown):
                self._rose(source)
                return
        reading, now_ms = self._reading, self.world.now_ms
        if reading is None or reading.source != source or now_ms - reading.since_ms > READING_MS:
            self._read(source)

    def _rose(self, source: int) -> None:
        self.pulled.add(source)
        self.world.watch(self)
        if self.map.base is not None:
            self._hint(self.map.base)

    def _read(self, source: int) -> None:
        self._reading = Reading(source, SnapshotReader(MAX_MAP_BYTES), self.world.now_ms)
        self.world.send(self, source, "page", self._reading, b"")

    def on_page(self, source: int, reading: Reading, start: bytes) -> None:
        base = self.map.base
        page = None if base is None or base.ended else page_of(base, start)
        self.world.send(self, source, "paged", reading, start, msgpack.packb(page))

    def on_paged(self, source: int, reading: Reading, start: bytes, data: bytes) -> None:
        reader = reading.reader
        if self._reading is not reading or reader.start != start:
            return
        try:
            reader.take(snapshot_page_of(msgpack.unpackb(data)))
        except ProtocolError:
            self._reading = None
            return
        following, first = reading.reader.start, reader.first
        if following is not None:
            self.world.send(self, source, "page", reading, following)
        elif first is not None:
            self.world.send(self, source, "rest", reading, *first[:2])

    def on_rest(self, source: int, reading: Reading, generation: int, sequence: int) -> None:
        self.world.send(self, source, "rested", reading, *self._since(generation, sequence))

    def on_rested(self, source: int, reading: Reading, theirs: Base | None, data: bytes | None) -> None:
        """Take the history from a snapshot's first page on, which completes the snapshot."""
        first = reading.reader.first
        assert first is not None
        if self._reading is not reading:
            return
        self._reading = None
        if theirs is None or data is None or theirs.generation != first.generation:
            self._read(source)
            return
        try:
            base = reading.reader.finish(transactions_of(msgpack.unpackb(data)), theirs.digest)
        except ProtocolError:
            return
        if not self.map.takes(base.place):
            self.pulled.add(source)
            return
        written, gone = self.map.replace(base._replace(acceptors=theirs.acceptors, shown=theirs.shown))
        for batch in (*written, self.map.records(), *gone):
            self._append({MAP + key: record for key, record in batch.items()})
        self._rose(source)

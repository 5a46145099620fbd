"""Acceptors and proposers of one register, and a scheduler that applies random faults to them.

All messages under way lie in one bag, from which they are taken in any order, twice, or not at all. Syncs come later; a
crash loses unsynced records, and is aimed right after an answer; disks are lost and put back; time jumps. Each step and
all of a run follow from its seed. `History` judges the outcomes, `Watch` the messages and records.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from gossipkv.register.ballot import ZERO
from gossipkv.register.changes import Applied, ChangeRefused, read
from gossipkv.register.configuration import Acceptors, Value
from gossipkv.register.force import Force
from gossipkv.register.messages import AcceptorRecord, RequestKind, decode_request
from gossipkv.register.proposal import ChangeEnd, Reconfigure
from gossipkv.register.proposer import NEVER_MS, Proposer
from tests.unit.register.inhabitants import REGISTER, Message, Node, Party

if TYPE_CHECKING:
    from gossipkv.register.ballot import Ballot
    from gossipkv.register.configuration import AcceptorId
    from gossipkv.register.proposal import ProposalOutcome


ID_BYTES = 4

Line = tuple[int, int]  # Generation and force id: values of one line follow each other.


class History:
    """The outcomes: each line is one chain, in real-time order, without refused changes."""

    def __init__(self) -> None:
        self.longest: dict[Line, bytes] = {}
        self.ends: dict[int, ChangeEnd] = {}
        self.committed: dict[Ballot, Value] = {}
        self._asked: dict[int, tuple[bytes | None, dict[Line, bytes]]] = {}
        self._refused: set[bytes] = set()

    def asked(self, ticket: int, id_: bytes | None) -> None:
        """Record a request for this id, or a read."""
        self._asked[ticket] = id_, dict(self.longest)

    def told(self, outcome: ProposalOutcome) -> None:
        id_, before = self._asked[outcome.ticket]
        assert outcome.ticket not in self.ends, "it was told twice"
        self.ends[outcome.ticket] = outcome.end
        if outcome.value is not None:
            line, payload = outcome.ballot[:2], outcome.value.payload
            longest = self.longest.get(line, b"")
            assert payload.startswith(longest) or longest.startswith(payload), "a fork"
            assert payload.startswith(before.get(line, b"")), "it shows less than what was shown before it was asked"
            assert self.committed.setdefault(outcome.ballot, outcome.value) == outcome.value, "two values of one ballot"
            self.longest[line] = max(longest, payload, key=len)
            if id_ is not None:
                is_there = id_ in ids_of(payload)
                assert is_there == (outcome.end is ChangeEnd.DONE), f"{outcome.end}, and it is there: {is_there}"
        if outcome.end is ChangeEnd.REFUSED and id_ is not None:
            self._refused.add(id_)
        for payload in self.longest.values():
            assert not self._refused.intersection(ids_of(payload)), "what was refused is there"

    def end(self, watch: Watch) -> None:
        """Check forces: values that a survivor accepted and a user saw are in the line that goes on."""
        for ballot, value in self.committed.items():
            if value.forces:
                forced = value.forces[-1]
                line = forced.generation, forced.force
                assert ballot[:2] == line, "a value of another force"
                parents = [(force.generation, force.force) for force in value.forces[:-1]]
                parent = parents[-1] if parents else (0, 0)
                for other, told in self.committed.items():
                    if other[:2] == parent and watch.accepted[other] & watch.survivors[line]:
                        assert value.payload.startswith(told.payload), "a survivor had it, and it is lost"


class Watch:
    """The messages and records: one value per ballot, no forbidden generation, no retraction."""

    def __init__(self) -> None:
        self.forces: dict[Force, frozenset[AcceptorId]] = {}
        self.survivors: dict[Line, frozenset[AcceptorId]] = {}
        self.accepted: dict[Ballot, set[AcceptorId]] = defaultdict(set)  # Acceptors that accepted and stored a ballot.
        self._values: dict[Ballot, Value] = {}
        self._records: dict[AcceptorId, AcceptorRecord] = {}
        self._heard: dict[Proposer | Force, set[Line]] = defaultdict(set)
        self._seen: dict[Proposer | Force, set[Line]] = defaultdict(lambda: {(0, 0)})

    def sent(self, core: Proposer | Force, data: bytes) -> None:
        request = decode_request(data)
        if request.kind is RequestKind.READ:
            return
        ballot, line = request.ballot, request.ballot[:2]
        if request.kind is RequestKind.ACCEPT:
            assert self._values.setdefault(ballot, request.value) == request.value, "one ballot, two values"
        if core in self.forces:
            assert self.survivors.setdefault(line, self.forces[core]) == self.forces[core]
            return
        heard = self._heard[core]
        assert all(generation <= line[0] for generation, _ in heard), "a generation below one that was heard of"
        assert line in self._seen[core], "a generation of which no value was seen"
        assert all(other == line for other in heard if other[0] == line[0]), "one of two forces"

    def heard(self, core: Proposer | Force, record: AcceptorRecord | None) -> None:
        if record is not None:
            self._heard[core].add(record.promise[:2])
            if record.value is not None:
                self._heard[core].add(record.accepted[:2])
                self._seen[core].add(record.accepted[:2])

    def kept(self, acceptor: AcceptorId, record: AcceptorRecord) -> None:
        before = self._records.get(acceptor)
        if before is not None:
            assert record.promise >= before.promise, "a promise is taken back"
            taken_back = before.accepted is not None and (record.accepted is None or record.accepted < before.accepted)
            assert not taken_back, "what was accepted is taken back"
        self._records[acceptor] = record
        if record.accepted is not None:
            self.accepted[record.accepted].add(acceptor)


def ids_of(payload: bytes) -> list[bytes]:
    """Return the ids in a payload of a small world, in order."""
    return [payload[at : at + ID_BYTES] for at in range(0, len(payload), ID_BYTES)]


LIVE_MS = 5000  # The time after healing.
MAX_MESSAGES = 20_000  # The limit in that time; proposers without success ask all again each 60 ms.


def append(id_: bytes, value: Value, generation: int) -> Applied | ChangeRefused:
    return Applied(value.payload if id_ in ids_of(value.payload) else value.payload + id_)


def append_to_even(id_: bytes, value: Value, generation: int) -> Applied | ChangeRefused:
    """Append an id if the number of ids is even."""
    if len(ids_of(value.payload)) % 2 and id_ not in ids_of(value.payload):
        return ChangeRefused("CONFLICT", "odd")
    return append(id_, value, generation)


def append_to_none(id_: bytes, value: Value, generation: int) -> Applied | ChangeRefused:
    """Append an id if there is none, without remembering earlier appends."""
    return ChangeRefused("CONFLICT", "there are ids") if value.payload else Applied(id_)


@dataclass(frozen=True)
class Odds:
    """How often each event happens in a thousand steps; deliveries take the rest."""

    submit: int = 60
    sync: int = 160
    pass_time: int = 60
    reconfigure: int = 12
    crash: int = 8
    restart: int = 4  # Restart a proposer.
    stop: int = 6  # Stop a node, or start it again.
    lose: int = 0  # Lose a disk.
    put_back: int = 0  # Put back an older disk under a new id.
    go_back: int = 0  # Copy a disk under its id, or put the copy back (`older_copies.py`).
    lag: int = 4  # An acceptor lacks the bodies, or has them again.
    force: int = 0
    dropped: float = 0.05  # Shares of messages.
    doubled: float = 0.05
    crash_after_answer: float = 0.01


class SmallWorld:
    node_of: type[Node] = Node
    party_of: type[Party] = Party

    def __init__(self, seed: int, odds: Odds, *, nodes: int = 5, parties: int = 3, founders: int | None = None) -> None:
        self.seed, self.odds = seed, odds
        self.random = Random(seed)
        self.now_ms = 0
        self.bag: list[Message] = []
        self.tokens: list[Message] = []  # The requests by their token, an index.
        self.watch, self.history = Watch(), History()
        self.nodes = [self.node_of(self, number) for number in range(1, nodes + 1)]
        first = [node.id for node in self.nodes[: founders or self.random.choice((1, 2, 3, 3, 3, 4, 5))]]
        self.hints = [Acceptors.of(first)]
        for node in self.nodes[: len(first)]:
            node.create(Value(self.hints[0], b""))
        self.disks = [(node, dict(node.disk)) for node in self.nodes]  # Older contents of disks.
        self.parties = [self.party_of(self, self._proposer()) for _ in range(parties)]
        self.forces: list[Party] = []
        self.tickets = 0
        happens = {name: count for name, count in vars(odds).items() if hasattr(self, f"_{name}")}
        self._happens = [*(getattr(self, f"_{name}") for name in happens), self._deliver]
        self._odds = [*happens.values(), 1000 - sum(happens.values())]

    def run(self, steps: int = 400) -> None:
        """Run random events, heal the world, and check history and liveness."""
        for happening in self.random.choices(self._happens, self._odds, k=steps):
            happening()
        self.heal()
        self.history.end(self.watch)

    def heal(self) -> None:
        """Stop all faults; every able proposer must get its change done in time."""
        self.odds = Odds(dropped=0, doubled=0, crash_after_answer=0)
        for node in self.nodes:
            node.is_up = node.holds = True
        waiting = {self._submit(party): party for party in self.parties}
        ends_ms, delivered = self.now_ms + LIVE_MS, 0
        while self.now_ms <= ends_ms:
            while self.bag or any(node.unsynced for node in self.nodes):
                self._sync()
                self._deliver()
                delivered += 1
                assert delivered < MAX_MESSAGES, "it never comes to rest"
            wakes_ms = min(party.core.wakes_at_ms for party in self.parties)
            self.now_ms = min(max(self.now_ms, wakes_ms), ends_ms + 1)
            self._wake()
        for ticket, party in waiting.items():
            assert self.history.ends.get(ticket) is ChangeEnd.DONE or not self._is_able(party), (
                "nothing is done any more"
            )

    def _is_able(self, party: Party) -> bool:
        """Return True if live acceptors suffice and this proposer can find them."""
        live = {node.id: node.record or AcceptorRecord(ZERO) for node in self.nodes}
        accepted = [record for record in live.values() if record.value is not None]
        if not accepted:
            return False
        top = max(accepted, key=lambda record: record.accepted)
        known = set(party.core.acceptors.everyone)
        for _ in self.nodes:
            known |= {
                other for one in known & live.keys() if live[one].value for other in live[one].value.acceptors.everyone
            }
        return (
            top.value.acceptors.is_quorum(live.keys())
            and any(live[one].value is not None for one in known & live.keys() & top.value.acceptors.everyone)
            and max(record.promise.generation for record in live.values()) == top.accepted.generation
            and all(record.conflict == 0 or record.conflict < top.accepted.generation for record in live.values())
            and len({record.accepted[:2] for record in accepted if record.accepted[0] == top.accepted[0]}) == 1
        )

    # -- events -----------------------------------------------------------------------------------------------------

    def _deliver(self) -> None:
        if not self.bag:
            (self._sync if self.random.random() < 0.5 else self._pass_time)()
            return
        at = self.random.randrange(len(self.bag))
        message = self.bag[at]
        if self.random.random() >= self.odds.doubled:
            self.bag[at] = self.bag[-1]
            self.bag.pop()
        if self.random.random() < self.odds.dropped:
            if self.random.random() < 0.5:
                message.party.unreachable(message)
        elif message.is_reply:
            message.party.receive(message)
        else:
            self.nodes[message.acceptor.node[0] - 1].receive(message)

    def _sync(self) -> None:
        nodes = [node for node in self.nodes if node.unsynced]
        if nodes:
            node = self.random.choice(nodes)
            node.sync(self.random.randint(1, len(node.unsynced)))

    def _pass_time(self) -> None:
        wakes_ms = min(party.core.wakes_at_ms for party in (*self.parties, *self.forces))
        jump_ms = self.random.choices((1, 5, 40, 1000, 60_000, wakes_ms - self.now_ms), (20, 20, 10, 2, 0.2, 10))[0]
        self.now_ms += max(0, jump_ms) if jump_ms < NEVER_MS // 2 else 1
        self._wake()

    def _wake(self) -> None:
        for party in (*self.parties, *self.forces):
            party.wake()

    def _submit(self, party: Party | None = None) -> int:
        self.tickets += 1
        id_ = self.tickets.to_bytes(ID_BYTES, "big")
        kinds = (read, partial(append, id_), partial(append_to_even, id_))
        change = self.random.choices(kinds, (2, 3, 1))[0] if party is None else kinds[1]
        patience_ms = LIVE_MS if party is not None else self.random.choice((50, 1000, 30_000, 30_000))
        party = party or self.random.choice(self.parties)
        self.history.asked(self.tickets, None if change is read else id_)
        party.core.submit(self.tickets, change, now_ms=self.now_ms, deadline_ms=self.now_ms + patience_ms)
        party.perform()
        return self.tickets

    def _reconfigure(self) -> None:
        self.tickets += 1
        self.history.asked(self.tickets, None)
        members = tuple(node.id for node in self.random.sample(self.nodes, self.random.choice((1, 2, 3, 3, 3, 4))))
        self.hints.append(Acceptors.of(members))
        party = self.random.choice(self.parties)
        deadline_ms = self.now_ms + self.random.choice((1000, 30_000))
        party.core.submit(self.tickets, Reconfigure(members), now_ms=self.now_ms, deadline_ms=deadline_ms)
        party.perform()

    def _crash(self) -> None:
        self.random.choice(self.nodes).crash()

    def _restart(self) -> None:
        self.random.choice(self.parties).core = self._proposer()

    def _proposer(self) -> Proposer:
        return Proposer(REGISTER, Random(self.random.getrandbits(64)), self.random.choice(self.hints))

    def _stop(self) -> None:
        node = self.random.choice(self.nodes)
        node.is_up = self.random.random() < 0.7

    def _lose(self) -> None:
        self.random.choice(self.nodes).become({})

    def _put_back(self) -> None:
        self.disks.append((node := self.random.choice(self.nodes), dict(node.disk)))
        node, disk = self.random.choice(self.disks)
        node.become(disk)

    def _lag(self) -> None:
        node = self.random.choice(self.nodes)
        node.holds = self.random.random() < 0.7

    def _force(self) -> None:
        known = self.random.choice(self.parties).core.acceptors
        members = [node for node in self.nodes if node.id in known.everyone]
        if not members:
            return
        survivors = self.random.sample(members, self.random.randint(1, len(members)))
        if self.random.random() < 0.7:  # The other members are lost, and may come back.
            for node in members:
                node.is_up = node in survivors
        self.tickets += 1
        self.history.asked(self.tickets, None)
        ids = [node.id for node in survivors]
        random = Random(self.random.getrandbits(64))
        self.forces = [
            *self.forces[-3:],
            self.party_of(self, Force(REGISTER, self.tickets, ids, known, random, now_ms=self.now_ms)),
        ]
        self.watch.forces[self.forces[-1].core] = frozenset(ids)
        self.forces[-1].perform()

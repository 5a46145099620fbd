"""Judges of scripted registers: `History` judges the outcomes, `Watch` the messages and records."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from gossipkv.register.messages import AcceptorRecord, RegisterRequest, RequestKind
from gossipkv.register.proposal import ChangeEnd

if TYPE_CHECKING:
    from gossipkv.register.ballot import Ballot
    from gossipkv.register.configuration import AcceptorId, Value
    from gossipkv.register.force import Force
    from gossipkv.register.proposal import ProposalOutcome
    from gossipkv.register.proposer import Proposer

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

    def sent(self, core: Proposer | Force, request: RegisterRequest) -> None:
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
    """Return the ids in a payload, in order."""
    return [payload[at : at + ID_BYTES] for at in range(0, len(payload), ID_BYTES)]

"""Acceptors and proposers of one register; the test decides the order and the time of every message."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING

from gossipkv.register.changes import Applied, CannotJudge, ChangeRefused, read
from gossipkv.register.configuration import Acceptors, Value
from gossipkv.register.force import Force
from gossipkv.register.messages import RegisterRequest, RequestKind
from gossipkv.register.proposal import Reconfigure
from gossipkv.register.proposer import Proposer
from tests.unit.register.inhabitants import REGISTER, Message, Node, Party
from tests.unit.register.judges import ID_BYTES, History, Watch, ids_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.register.ballot import Ballot
    from gossipkv.register.changes import RegisterChange
    from gossipkv.register.messages import AcceptorRecord
    from gossipkv.register.proposal import ProposalOutcome


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


class Scripted:
    """Nothing happens by itself. `a` to `e` are nodes, of which the first `founders` accept."""

    def __init__(self, founders: int = 3, nodes: int = 5) -> None:
        self.random, self.now_ms, self.tickets = Random(0), 0, 0
        self.bag: list[Message] = []
        self.tokens: list[Message] = []  # The requests by their token, an index.
        self.watch, self.history = Watch(), History()
        self.parties: list[Party] = []
        self.forces: list[Party] = []
        self.nodes = [Node(self, number) for number in range(1, nodes + 1)]
        self.founders = Acceptors.of(node.id for node in self.nodes[:founders])
        for node in self.nodes[:founders]:
            node.create(Value(self.founders, b""))
        self.outcomes: dict[int, ProposalOutcome] = {}
        self.proposers = 0
        told = self.history.told

        def tell(outcome: ProposalOutcome) -> None:
            told(outcome)
            self.outcomes[outcome.ticket] = outcome

        self.history.told = tell

    def party(self, *known: Node) -> Party:
        """Return a proposer that assumes these acceptors, or the founders."""
        acceptors = Acceptors.of(node.id for node in known) if known else self.founders
        self.proposers += 1
        self.parties.append(Party(self, Proposer(REGISTER, Random(self.proposers), acceptors)))
        return self.parties[-1]

    def append(self, party: Party, patience_ms: int = 60_000) -> int:
        """Append an id; return the ticket, which is the id as well."""
        return self._want(party, partial(append, id_ := self._next()), patience_ms, id_)

    def append_to_even(self, party: Party, patience_ms: int = 60_000) -> int:
        """Append an id if the number of ids is even."""
        return self._want(party, partial(append_to_even, id_ := self._next()), patience_ms, id_)

    def append_when(self, can: list[bool], party: Party) -> int:
        """Append an id once `can` is not empty: until then the change cannot be judged."""
        id_ = self._next()

        def change(value: Value, generation: int) -> Applied | ChangeRefused | CannotJudge:
            return append(id_, value, generation) if can else CannotJudge("the map is not here")

        return self._want(party, change, 60_000, id_)

    def append_to_none(self, party: Party, patience_ms: int = 60_000) -> int:
        """Append an id if there is none; the test judges the outcome."""
        return self._want(party, partial(append_to_none, self._next()), patience_ms, b"")

    def read(self, party: Party, patience_ms: int = 60_000) -> int:
        return self._want(party, read, patience_ms)

    def reconfigure(self, party: Party, *nodes: Node, patience_ms: int = 60_000) -> int:
        return self._want(party, Reconfigure(tuple(node.id for node in nodes)), patience_ms)

    def force(self, *survivors: Node, known: Acceptors | None = None) -> Party:
        """Begin a force; its ticket is the last."""
        self.tickets += 1
        self.history.asked(self.tickets, None)
        ids = [node.id for node in survivors]
        core = Force(REGISTER, self.tickets, ids, known or self.founders, Random(self.tickets), now_ms=self.now_ms)
        self.forces.append(Party(self, core))
        self.watch.forces[core] = frozenset(ids)
        self.forces[-1].perform()
        return self.forces[-1]

    def carry(self, *nodes: Node, which: Callable[[Message], bool] = lambda message: True, sync: bool = True) -> None:
        """Deliver requests to these nodes (default: all) and their replies until none is left."""
        among = {node.id.node for node in nodes or self.nodes}
        while found := [one for one in self.bag if one.acceptor.node in among and (one.is_reply or which(one))]:
            for message in found:
                self.bag.remove(message)
                self.carry_one(message, sync=sync)

    def carry_one(self, message: Message, *, sync: bool = True) -> None:
        """Deliver one message, and sync the appended records."""
        if message.is_reply:
            message.party.receive(message)
            return
        node = self.nodes[message.acceptor.node[0] - 1]
        node.receive(message)
        if sync and node.unsynced:
            node.sync(len(node.unsynced))

    def lose_all(self) -> None:
        self.bag.clear()

    def refuse_all(self, *nodes: Node) -> None:
        """Report to the senders that these nodes are unreachable."""
        among = {node.id.node for node in nodes}
        for message in [message for message in self.bag if message.acceptor.node in among]:
            self.bag.remove(message)
            message.party.unreachable(message)

    def wait(self, ms: int) -> None:
        self.now_ms += ms
        for party in (*self.parties, *self.forces):
            party.wake()

    def settle(self, *nodes: Node, ms: int = 5000) -> None:
        """Deliver all messages of these nodes for a time; no other node answers."""
        ends_ms = self.now_ms + ms
        others = [node for node in self.nodes if nodes and node not in nodes]
        while self.now_ms < ends_ms:
            self.carry(*nodes)
            self.refuse_all(*others)
            if not self.bag:
                self.wait(10)

    def record(self, node: Node) -> AcceptorRecord | None:
        return node.core.record(REGISTER)

    def teach(self, party: Party, node: Node) -> None:
        """Show a node's record to a proposer."""
        self.watch.heard(party.core, self.record(node))
        party.core.learn(self.record(node))
        party.perform()

    def promise(self, node: Node, ballot: Ballot, holding: Value | None = None) -> None:
        """Let a node promise an invented ballot."""
        party = Party(self, Proposer(REGISTER, Random(0), self.founders))
        request = RegisterRequest(RequestKind.PREPARE, REGISTER, node.id, 0, ballot, holding=holding)
        self.carry_one(Message(party, node.id, 0, request, is_reply=False))
        self.bag = [message for message in self.bag if message.party is not party]

    def payload(self, ticket: int) -> bytes:
        """Return the register's payload at the end of this ticket."""
        return self.outcomes[ticket].value.payload

    def _want(
        self, party: Party, want: RegisterChange | Reconfigure, patience_ms: int, id_: bytes | None = None
    ) -> int:
        """Submit a change; `id_`: the id that it appends, empty if the test judges the outcome."""
        if id_ is None:
            self._next()
        self.history.asked(self.tickets, id_ or None)
        party.core.submit(self.tickets, want, now_ms=self.now_ms, deadline_ms=self.now_ms + patience_ms)
        party.perform()
        return self.tickets

    def _next(self) -> bytes:
        self.tickets += 1
        return id_of(self.tickets)


def id_of(ticket: int) -> bytes:
    """Return the id that an append of this ticket appends."""
    return ticket.to_bytes(ID_BYTES, "big")


def is_a(kind: RequestKind) -> Callable[[Message], bool]:
    """Return a test for requests of this kind."""
    return lambda message: not message.is_reply and message.content.kind is kind

"""The requests of a register's clients with their outcomes, and the acceptors' synced records, for the checkers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, final

from tests.world.scheduler import NEVER

if TYPE_CHECKING:
    from gossipkv.register.ballot import Ballot
    from gossipkv.register.configuration import AcceptorId, Acceptors, Value
    from gossipkv.register.messages import AcceptorRecord
    from tests.world.register.linearizable import Call, Outcome

Branch = tuple[int, int]  # Generation and force id: the values since one force, or since the creation.


class Asked(NamedTuple):
    """A client's operation, and its reported outcome."""

    operation: int
    call: Call
    invoked_us: int
    completed_us: int = NEVER
    outcome: Outcome = None
    value: bytes | None = None  # The name of the reported value.
    branch: Branch | None = None  # The branch of that value.


@final
class History:
    def __init__(self, created: Acceptors) -> None:
        self.asked: dict[int, Asked] = {}  # By operation.
        self.values: dict[Ballot, Value] = {}  # The value that any acceptor has appended under each ballot.
        self.accepted: dict[Ballot, set[AcceptorId]] = {}  # The acceptors that had it on the disk.
        self.committed: dict[Ballot, Value] = {}
        self.created = created
        self.acceptors = created  # The acceptors of the highest committed value.
        self.top: Ballot | None = None  # The ballot of that value.
        self.forces: dict[Branch, int] = {}  # Completed forces, with the times at which they were asked for.
        self.forces_asked = 0

    def note_synced(self, acceptor: AcceptorId, record: AcceptorRecord) -> None:
        ballot, value = record.accepted, record.value
        if ballot is None or value is None:
            return
        by = self.accepted.setdefault(ballot, set())
        by.add(acceptor)
        if ballot not in self.committed and value.acceptors.is_quorum(by):
            self.note_committed(ballot, value)

    def note_committed(self, ballot: Ballot, value: Value) -> None:
        """Note a value that a quorum has accepted, or that a client was told as committed."""
        self.committed.setdefault(ballot, value)
        if self.top is None or ballot > self.top:
            self.top, self.acceptors = ballot, value.acceptors

"""What clients of a register asked for and were told, and what acceptors have on their disks: what checkers go by."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, final

from tests.world.scheduler import NEVER

if TYPE_CHECKING:
    from gossipkv.register.ballot import Ballot
    from gossipkv.register.configuration import AcceptorId, Acceptors, Value
    from gossipkv.register.messages import AcceptorRecord
    from tests.world.register.linearizable import Call, Outcome

Branch = tuple[int, int]  # Generation and force id: what one force, or creation, has begun.


class Asked(NamedTuple):
    """An operation of a client, and what it was told."""

    operation: int
    call: Call
    invoked_us: int
    completed_us: int = NEVER
    outcome: Outcome = None
    value: bytes | None = None  # The name of the value that was told.
    branch: Branch | None = None  # Of that value.


@final
class History:
    """What happened to one register."""

    def __init__(self, created: Acceptors) -> None:
        self.asked: dict[int, Asked] = {}  # By operation.
        self.values: dict[Ballot, Value] = {}  # What any acceptor has appended under each ballot.
        self.accepted: dict[Ballot, set[AcceptorId]] = {}  # Who had it on the disk.
        self.committed: dict[Ballot, Value] = {}
        self.created = created
        self.acceptors = created  # Of the highest value that was committed.
        self.top: Ballot | None = None  # Its ballot.
        self.forces: dict[Branch, int] = {}  # Those that were done, and when they were asked for.
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
        """A quorum has accepted a value, or a client was told so."""
        self.committed.setdefault(ballot, value)
        if self.top is None or ballot > self.top:
            self.top, self.acceptors = ballot, value.acceptors

"""A peer node as local replicas know it: statuses sent and received on its links."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Final, final

from gossipkv.errors import ProtocolError
from gossipkv.replication._replication import counters_of, show_confirmed
from gossipkv.replication.replica import clock
from gossipkv.replication.stream.messages import ReplicaState, span_row

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gossipkv.replication.replica.replica import Replica
    from gossipkv.replication.replica.status import ReplicaStatus
    from gossipkv.replication.stream.messages import StatusRow
    from gossipkv.replication.stream.sender import LogSender
    from gossipkv.wire.rpc import Value

FEW_ROWS: Final = 4096
MAX_ROWS: Final = 1 << 17  # Rows that a peer may number on a link: more than a node can hold.


@final
@dataclass(slots=True, eq=False)
class PeerReplica:
    """A replica as a peer reports it on its link; this node may hold none."""

    partition: tuple[bytes, int]
    assignment: int  # Assignment of the peer.
    ids: tuple[int, ...]  # Assignments of the counters of its clocks.
    answered: ReplicaState | None = None  # Status of the local replica in the last answer to a feed.
    is_new: bool = True  # No answer was sent yet.


@final
@dataclass(slots=True, eq=False)
class ReplicaPeer:
    """A peer node and the state of both links with it."""

    node: bytes
    sender: LogSender
    link: int = 0  # Number drawn for the outgoing link; 0: there is none.
    greeted: bool = False  # The peer has answered the first report on the link.
    due: float = 0.0  # Time at which `ReplicaSet.pump` looks at the peer again; 0: something has happened.
    restart_at: float | None = None  # Time at which the link restarts.
    numbers: dict[Replica, int] = field(default_factory=dict)  # Numbers of replicas on the outgoing link.
    # Replicas by these numbers, and the assignments of their clocks at that time; two lists are smaller than pairs.
    numbered: list[Replica] = field(default_factory=list)
    ids: list[tuple[int, ...]] = field(default_factory=list)
    is_littered: bool = False  # Most of these are obsolete: the link restarts once the peer has caught up.
    # By number: status in the peer's last answer to a feed.
    states: dict[int, ReplicaState] = field(default_factory=dict)
    unreported: dict[Replica, None] = field(default_factory=dict)  # Replicas with unreported changes, oldest first.
    report_at: float = inf  # Time of the next report, to a greeted peer.
    clock_at: float = inf  # Time at which an otherwise silent peer is asked for its time.
    asked: float = 0.0  # Time of the question to which the peer answers.
    their_link: int = 0
    rows: dict[int, PeerReplica] = field(default_factory=dict)  # Rows by the peer's numbers.
    # By the peer's number: its config, if newer than the local one.
    newer: dict[int, int] = field(default_factory=dict)

    def connected(self, statuses: Mapping[Replica, ReplicaStatus], now: float, *, goes_back: bool) -> None:
        """Begin to feed the peer; see `LogSender.connected`."""
        before = self.sender.statuses
        self.sender.connected(statuses, now, goes_back=goes_back)
        for replica in before:
            self.show_confirmed(replica)

    def hears(self, replica: Replica, status: ReplicaStatus, now: float) -> None:
        """Apply a replica's status."""
        self.sender.hears(replica, status, now)
        self.show_confirmed(replica)

    def lacks(self, replica: Replica) -> None:
        """Take note that the peer holds nothing of a replica's partition."""
        self.sender.divided(replica, (replica,))
        self.show_confirmed(replica)

    def show_confirmed(self, replica: Replica) -> None:
        """Show to the serving loops the writes that the peer has confirmed."""
        show_confirmed(replica, self.node, self.sender.statuses.get(replica))

    def let_go(self, replica: Replica) -> None:
        """Forget a local replica."""
        self.sender.let_go(replica)
        self.unreported.pop(replica, None)
        self.numbers.pop(replica, None)
        self.due = 0.0

    def begin_link(self, link: int) -> None:
        """Begin an outgoing link: nothing is numbered yet."""
        self.link, self.restart_at = link, None
        self.numbers, self.numbered, self.ids, self.states, self.is_littered = {}, [], [], {}, False

    def end_link(self) -> None:
        """End the outgoing link."""
        self.link, self.greeted = 0, False
        self.sender.disconnected()

    def hears_link(self, link: int) -> None:
        """Begin the peer's link."""
        self.their_link = link
        self.rows.clear()
        self.newer.clear()

    def changed(self, replicas: Iterable[Replica], report_at: float) -> None:
        """Report the changed status of replicas to the peer by that time."""
        self.report_at = min(report_at, self.report_at if self.unreported else self.clock_at)
        self.unreported |= dict.fromkeys(replicas)
        if self.greeted:
            self.due = min(self.due, self.report_at)

    def is_named(self, replica: Replica) -> bool:
        """Return True if a replica has a number with its present assignments."""
        number = self.numbers.get(replica)
        return number is not None and self.ids[number] == replica.named

    def row_of(self, report: StatusRow, by_partition: Mapping[tuple[bytes, int], Replica]) -> PeerReplica | None:
        """Return the peer's replica that a row describes. Raises ProtocolError: too many rows."""
        row = self.rows.get(report.number)
        if report.whole is not None:
            if len(self.rows) >= MAX_ROWS:
                raise ProtocolError(f"a link has at most {MAX_ROWS} rows")
            partition, id_, named = report.whole
            replica = by_partition.get(partition)
            if replica is None:
                row = PeerReplica(partition, id_, named)
            else:  # Known values are shared, not kept twice.
                ids = replica.named if replica.named == named else named
                row = PeerReplica(replica.partition, replica.id_here(id_), ids)
            self.rows[report.number] = row
        replica = None if row is None else by_partition.get(row.partition)
        if replica is None or report.config > replica.config:
            self.newer[report.number] = report.config
        else:
            self.newer.pop(report.number, None)
        return row


def rows_of(peer: ReplicaPeer, replicas: Iterable[Replica]) -> list[Value]:
    """Return the status rows of replicas for a peer, and mark these as reported."""
    rows: list[Value] = []
    for replica in replicas:
        below = peer.sender.is_below(replica)
        counters: list[Value] = [count for _, count in clock.entries(replica.reported_clock)]
        span = span_row(replica, replica.host_at(peer.node), replica.named)
        if peer.is_named(replica):
            rows.append([peer.numbers[replica], replica.synced_config, counters, not replica.is_frozen, below, *span])
        else:
            number = peer.numbers[replica] = len(peer.numbered)
            peer.numbered.append(replica)
            peer.ids.append(replica.named)
            whole: list[Value] = [*replica.partition, replica.assignment, replica.synced_config, [*replica.named]]
            rows.append([number, *whole, counters, not replica.is_frozen, below, *span])
            peer.is_littered = len(peer.numbered) > 2 * len(peer.numbers) + FEW_ROWS
        peer.unreported.pop(replica, None)
    return rows


def answer_row(peer: ReplicaPeer, number: int, row: PeerReplica, replica: Replica, *, is_fed: bool = False) -> Value:
    """Return the answer to a peer's row about a local replica, and mark that as reported."""
    peer.unreported.pop(replica, None)
    state = replica.assignment, replica.synced_config, not replica.is_frozen
    counters = counters_of(replica.reported_clock, row.ids)
    if is_fed and row.answered == state and replica.synced_joining is None:
        return [number, counters]
    row.answered = ReplicaState(*state) if is_fed else row.answered
    return [number, counters, *state, *span_row(replica, row.assignment, row.ids)]

"""The interface of the replication core to its store and to other nodes, as a Protocol."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gossipkv.replication.replica.replica import Replica
    from gossipkv.replication.stream.cursors import LogRead
    from gossipkv.storage.engine.log_reader import Operations
    from gossipkv.storage.engine.shell import Batch
    from gossipkv.wire.results import Completion
    from gossipkv.wire.rpc import Value

    # Gets batches of a part of the log and the position behind them; None: the log no longer has that position.
    OnLog = Callable[[Sequence[tuple[int, Operations]] | None, int], object]
    # Gets a table, a node that follows a newer placement, and the config id of that placement.
    OnNewer = Callable[[bytes, bytes, int], object]


class ReplicationLimits(NamedTuple):
    """Times and rates of replication."""

    relay_s: float  # Idle entries are relayed after this time.
    stall_s: float = 60.0  # Longest wait of a bulk load for its source, and for open spans to close.
    transfer: float = inf  # Bytes per second that bulk loads write here, and that those of other nodes read here.


class ReplicationPorts(Protocol):
    """The store and the other nodes, as the replicas of a node see them."""

    def append(self, batch: Batch, on_synced: Callable[[], object]) -> int:
        """Append a batch, and return its position.  Raises Overloaded, LimitExceeded, StorageError."""

    def extend(self, batch: Batch, more: Batch, /) -> bool:
        """Add operations to an appended batch that is open; False: it has no room, and nothing has changed."""

    def get(self, space: int, key: bytes) -> bytes | None:
        """Return the synced value of a key."""

    def scan(
        self, space: int, start: bytes | None, end: bytes | None, *, reverse: bool, limit: int
    ) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
        """Return a page of synced rows, and the start of the next page."""

    def synced(self) -> int:
        """Return the position up to which the log is synced."""

    def log_floor(self) -> int:
        """Return the position behind which the log begins."""

    def read_log(self, spaces: frozenset[int], position: int, on_log: OnLog) -> None:
        """Read a part of the log of spaces behind a position."""

    def reserve_space(self) -> int:
        """Return the number of a space that a batch may create."""

    def ask(self, node: bytes, method: str, params: list[Value], complete: Completion[Value]) -> None:
        """Send a request to a node; `complete` gets the result or the error."""

    def look(self, node: bytes, look: LogRead) -> None:
        """Read the log for a node's log sender."""

    def wake(self) -> None:
        """Call `ReplicaSet.pump` soon."""

    def now(self) -> float:
        """Return the time in seconds of a clock that never goes back."""

    def now_ms(self) -> int:
        """Return the time of day in milliseconds."""

    def barred(self, replica: Replica) -> None:
        """Report that a replica originates nothing any more."""

    def loads(self, replica: Replica, source: bytes, what: str) -> None:
        """Report that a bulk load began, is done, or was aborted."""

    def differs(self, replica: Replica, node: bytes) -> None:
        """Report that a node's replica has other live records at the same clock."""

    def log_too_small(self, replica: Replica) -> None:
        """Report that logs keep less than is written during a load of the replica."""

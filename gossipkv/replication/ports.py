"""The world of a node's copies, as a Protocol: its store, and the other nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gossipkv.replication.replica.replica import Replica
    from gossipkv.replication.stream.cursors import LogRead
    from gossipkv.storage.engine.log_reader import Operations
    from gossipkv.storage.engine.shell import Batch
    from gossipkv.wire.rpc import Value

    OnReply = Callable[[Value], object]
    # Batches of a part of the log, and the position behind them; None: the log has left the place.
    OnLog = Callable[[Sequence[tuple[int, Operations]] | None, int], object]
    OnNewer = Callable[[bytes, bytes], object]  # A node goes by a newer map of a table: the table and the node.


class ReplicationPorts(Protocol):
    """The world of a node's copies: its store, and the other nodes."""

    def append(self, batch: Batch, on_synced: Callable[[], object]) -> int:
        """Append a batch, and return its position.  Raises Overloaded, StorageError."""
        ...

    def get(self, space: int, key: bytes) -> bytes | None:
        """What is synced under a key."""
        ...

    def scan(
        self, space: int, start: bytes | None, end: bytes | None, *, reverse: bool, limit: int
    ) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
        """A page of what is synced, and where the next one begins."""
        ...

    def synced(self) -> int:
        """Up to which position all is synced."""
        ...

    def read_log(self, space: int, position: int, on_log: OnLog) -> None:
        """Read what the log has of a space behind a position, a part of it."""
        ...

    def reserve_space(self) -> int:
        """The number of a space that a batch may make."""
        ...

    def ask(self, node: bytes, method: str, params: list[Value], on_reply: OnReply) -> None:
        """Ask a node; None is replied where no result came in time."""
        ...

    def look(self, node: bytes, look: LogRead) -> None:
        """Have the log read for the feed to a node."""
        ...

    def wake(self) -> None:
        """Have `pump` called soon."""
        ...

    def now(self) -> float:
        """A clock in seconds that never goes back."""
        ...

    def now_ms(self) -> int:
        """The time of day."""
        ...

    def set_aside(self, copy: Replica) -> None:
        """Tell people that a copy originates nothing any more."""
        ...

    def loads(self, copy: Replica, source: bytes, what: str) -> None:
        """Tell people how a load goes on: it began, is done, or was torn."""
        ...

    def differs(self, copy: Replica, node: bytes) -> None:
        """Tell people that a node's copy has other live records at the same clock."""
        ...

    def log_too_small(self, copy: Replica) -> None:
        """Tell people that logs keep less than what is written while the copy loads."""
        ...

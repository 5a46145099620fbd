"""The space of decisions in a node's store: records of registers, and pages of maps.

The space is the first that is made in a store, and is never dropped, so it has the lowest number. Keys begin with a
letter:

    a <register>          promises and accepted values of this node (`acceptor.py`)
    m <register> …        the local pages of the register's map (`metadata/ledger.py`)
    k <register>          the head that a full round has shown last (`metadata/known.py`)
    p, s, b …             positions of this store and of others (`seen.py`)

Appends are written in order, one batch at a time; appends during a write go together into the next batch. While the
store has no room, all writes wait; a closed store fails them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import trio

from gossipkv.errors import GossipKVError, Overloaded, StorageError, Unavailable
from gossipkv.log import Log
from gossipkv.storage.engine.shell import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gossipkv.register.seen import SeenPositions
    from gossipkv.register.store import RegisterStore

RECORD: Final = b"a"
MAP: Final = b"m"

MAX_BATCH_BYTES: Final = 256 << 10  # Bounds a batch; the smallest log takes two of them.
RETRY_S: Final = 0.5  # Delay before a write without room is repeated.


@final
class Space:
    """The space of decisions in an open store."""

    def __init__(self, store: RegisterStore) -> None:
        self.closed: str | None = None  # Why nothing is written any more.
        self._waits: str | None = None  # Why writes wait for room.
        self._store = store
        self._space = store.first_space  # None until the first batch makes the space.
        self._appended: list[tuple[Mapping[bytes, bytes | None], Callable[[], object]]] = []
        self._more = trio.Event()
        self._closing: list[Callable[[], object]] = []
        self._along: SeenPositions | None = None  # Its records go along with every batch.
        self._log = Log("gossipkv.register")

    def get(self, key: bytes) -> bytes | None:
        """Return the synced record of a key. Raises Unavailable: the store is closed, or cannot be read."""
        try:
            return None if self._space is None else self._store.get(self._space, key)
        except StorageError as error:
            raise _unreadable(error) from error

    def scan(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        """Return the synced keys with a prefix and their records, in order. Raises as `get`."""
        found: list[tuple[bytes, bytes]] = []
        start: bytes | None = prefix
        end = (int.from_bytes(prefix, "big") + 1).to_bytes(len(prefix), "big")
        try:
            while self._space is not None and start is not None:
                records, start = self._store.scan(self._space, start, end)
                found += records
        except StorageError as error:
            raise _unreadable(error) from error
        return found

    def append(self, records: Mapping[bytes, bytes | None], on_synced: Callable[[], object]) -> None:
        """Append records atomically, after earlier appends; a value of None deletes its key.

        Raises:
            Unavailable: the space is closed.
        """
        self.check_open()
        self._appended.append((records, on_synced))
        self._more.set()

    async def write(
        self, records: Mapping[bytes, bytes | None], on_synced: Callable[[], object] = lambda: None
    ) -> None:
        """Append records, and return when they are synced; a cancelled call is written all the same.

        Raises:
            Unavailable: the space is closed.
        """
        done = trio.Event()

        def synced() -> None:
            on_synced()
            done.set()

        self.append(records, synced)
        self._closing.append(done.set)
        try:
            await done.wait()
        finally:
            self._closing.remove(done.set)
        self.check_open()

    def take_along(self, seen: SeenPositions) -> None:
        """Add the records of seen positions to every batch from now on."""
        self._along = seen

    def close(self, why: str, last: Mapping[bytes, bytes | None]) -> None:
        """Write these records last, after earlier appends, and accept no more."""
        if self.closed is None:
            self.append(last, lambda: None)
            self._close(why)

    def on_closed(self, callback: Callable[[], object]) -> None:
        """Call `callback` when the space is closed."""
        self._closing.append(callback)

    def check_open(self) -> None:
        """Raise `Unavailable` if the space is closed."""
        if self.closed is not None:
            raise self.closed_error()

    def closed_error(self) -> Unavailable:
        """Return the error that `check_open` raises once the space is closed."""
        return Unavailable(f"this node takes no part in decisions: {self.closed}", {"reason": self.closed})

    def check_room(self) -> None:
        """Raise `Unavailable` if the space is closed, or writes wait for room."""
        self.check_open()
        if self._waits is not None:
            raise Unavailable(f"this node takes no part in decisions now: {self._waits}", {"reason": self._waits})

    def check_free(self) -> None:
        """Raise `Unavailable` as `check_room`, and while the store keeps its last room for what gives room back."""
        self.check_room()
        if (lack := self.lack) is not None:
            raise Unavailable(f"this node takes no new table now: {lack}", {"reason": lack})

    @property
    def lack(self) -> str | None:
        """The missing room, while the store keeps its last room for what gives room back; None: there is room."""
        return self._store.lack

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write appended records, until cancelled or until the store is closed."""
        task_status.started()
        while True:
            await self._more.wait()
            count, size_bytes = 0, 0
            while count < len(self._appended):
                size_bytes += sum([len(value or b"") for value in self._appended[count][0].values()])
                if count and size_bytes > MAX_BATCH_BYTES:
                    break
                count += 1
            appends, self._appended = self._appended[:count], self._appended[count:]
            if not self._appended:
                self._more = trio.Event()
            try:
                await self._write(self._batch([records for records, _ in appends]))
                self._space = self._store.first_space
                if self._along is not None:
                    self._along.synced()
            except (GossipKVError, OSError) as error:
                self._close(str(error))
                return
            for _, on_synced in appends:
                on_synced()

    def _batch(self, records_list: list[Mapping[bytes, bytes | None]]) -> Batch:
        batch = Batch()
        # Decisions are small and replace each other, and no drop and no move works without them.
        batch.relieves = True
        space = self._space
        if space is None:
            space = self._store.reserve_space()
            batch.new_space(space)
        latest: dict[bytes, bytes | None] = {}  # Only the last record of a key is written.
        for records in records_list:
            latest |= records
        if self._along is not None:
            latest |= self._along.records()
        for key, value in latest.items():
            if value is None:
                batch.delete(space, key)
            else:
                batch.put(space, key, value)
        return batch

    async def _write(self, batch: Batch) -> None:
        attempts = 0
        while True:
            attempts += 1
            try:
                await self._store.write(batch)
            except Overloaded as error:
                if self._waits is None:
                    self._log.warning("decisions_wait_for_room", reason=error.message)
                self._waits = error.message
                await trio.sleep(RETRY_S)
            else:
                if self._waits is not None:
                    self._log.info("decisions_have_room", attempts=attempts)
                self._waits = None
                return

    def _close(self, why: str) -> None:
        self.closed = self.closed or why
        self._log.error("decisions_closed", reason=why)
        for callback in [*self._closing]:
            callback()


def _unreadable(error: StorageError) -> Unavailable:
    """Return the error for a store that cannot be read: this node's own trouble, and no fault of the request."""
    return Unavailable(f"this node's tables cannot be read: {error.message}")

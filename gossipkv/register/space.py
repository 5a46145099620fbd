"""The space of a node's store that has what was decided: records of registers, and pages of maps.

It is the first space that is made in a store, and never dropped: so it is the one with the lowest number.  Keys begin
with a letter:

    a <register>          what this node has promised and accepted there (`acceptor.py`)
    m <register> …        what it holds of the map whose heads are in that register (`metadata/ledger.py`)
    k <register>          what a full round has shown of it last (`metadata/server.py`)
    p, s, b …             where this store is, and where others were seen (`seen.py`)

What is appended is written in that order, one batch at a time; what comes meanwhile goes together in the next, as in
the log below.  While there is no room it waits, and so do all who wait for it; when the store is closed, it is over.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, Protocol, final

import trio

from gossipkv.errors import GossipKVError, Overloaded, StorageError, Unavailable
from gossipkv.log import Log
from gossipkv.storage.engine.shell import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from gossipkv.register.store import Store

RECORD: Final = b"a"
MAP: Final = b"m"

MOST_BATCH_BYTES: Final = 256 << 10  # Of what goes together; the smallest log takes two of them.
RETRY_S: Final = 0.5  # Until what the store had no room for is tried again.


class Along(Protocol):
    """Whose records go along with every batch."""

    def records(self) -> Mapping[bytes, bytes | None]:
        """Those for the batch that is written next."""
        ...

    def synced(self) -> None:
        """Hear that this batch is synced, before who waits for it does."""
        ...


@final
class Space:
    """The space of decisions in an open store."""

    def __init__(self, store: Store) -> None:
        self.closed: str | None = None  # Why, once nothing is written any more.
        self._waits: str | None = None  # Why, while what is written waits for room.
        self._store = store
        self._space = store.first_space  # None: it is made with the first batch.
        self._appended: list[tuple[Mapping[bytes, bytes | None], Callable[[], object]]] = []
        self._more = trio.Event()
        self._closing: list[Callable[[], object]] = []
        self._along: Along | None = None
        self._log = Log("gossipkv.register")

    def get(self, key: bytes) -> bytes | None:
        """The synced record of a key.  Raises Unavailable: the store is closed, or cannot be read."""
        with self._reading():
            return None if self._space is None else self._store.get(self._space, key)

    def scan(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        """The synced keys with a prefix and their records, in order.  Raises as `get`."""
        found: list[tuple[bytes, bytes]] = []
        start: bytes | None = prefix
        end = (int.from_bytes(prefix, "big") + 1).to_bytes(len(prefix), "big")
        with self._reading():
            while self._space is not None and start is not None:
                records, start = self._store.scan(self._space, start, end)
                found += records
        return found

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except StorageError as error:  # Which is this node's own trouble, and nobody's request.
            raise Unavailable(f"this node's tables cannot be read: {error.message}") from error

    def append(self, records: Mapping[bytes, bytes | None], on_synced: Callable[[], object]) -> None:
        """Have records put, all or none, and those that are None deleted, behind what was appended before.

        Raises:
            Unavailable: the space is closed.
        """
        self.check_open()
        self._appended.append((records, on_synced))
        self._more.set()

    async def write(
        self, records: Mapping[bytes, bytes | None], on_synced: Callable[[], object] = lambda: None
    ) -> None:
        """Append records, and return when they are synced; cancelled, they are written all the same.

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

    def take_along(self, along: Along) -> None:
        """Have these records go along with every batch from now on."""
        self._along = along

    def close(self, why: str, last: Mapping[bytes, bytes | None]) -> None:
        """Write this last, after what was appended, and take nothing more."""
        if self.closed is None:
            self.append(last, lambda: None)
            self._close(why)

    def on_closed(self, told: Callable[[], object]) -> None:
        """Have this called when the space is closed."""
        self._closing.append(told)

    def check_open(self) -> None:
        """Raise `Unavailable` when the space is closed."""
        if self.closed is not None:
            raise Unavailable(f"this node decides nothing: {self.closed}", {"reason": self.closed})

    def check_room(self) -> None:
        """Raise `Unavailable` when the space is closed, or what is written waits for room."""
        self.check_open()
        if self._waits is not None:
            raise Unavailable(f"this node decides nothing now: {self._waits}", {"reason": self._waits})

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write what is appended, until cancelled, or until the store is closed."""
        task_status.started()
        while True:
            await self._more.wait()
            taken, size_bytes = 0, 0
            while taken < len(self._appended):
                size_bytes += sum(len(value or b"") for value in self._appended[taken][0].values())
                if taken and size_bytes > MOST_BATCH_BYTES:
                    break
                taken += 1
            together, self._appended = self._appended[:taken], self._appended[taken:]
            if not self._appended:
                self._more = trio.Event()
            try:
                await self._write(self._batch([records for records, _ in together]))
                self._space = self._store.first_space
                if self._along is not None:
                    self._along.synced()
            except (GossipKVError, OSError) as error:
                self._close(str(error))
                return
            for _, on_synced in together:
                on_synced()

    def _batch(self, together: list[Mapping[bytes, bytes | None]]) -> Batch:
        batch = Batch()
        # Decisions are small and replace each other, and no drop and no move goes on without them.
        batch.relieves = True
        space = self._space
        if space is None:
            space = self._store.reserve_space()
            batch.new_space(space)
        latest: dict[bytes, bytes | None] = {}  # Of a key that was appended twice the last is enough.
        for records in together:
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
        for told in [*self._closing]:
            told()

"""What a store answers, the same for whoever waits how: all of it at once, of what is synced."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from gossipkv.errors import LocalError
from gossipkv.storage.directories import storage_error
from gossipkv.storage.engine._engine import PAGE_BYTES as SCAN_PAGE_BYTES
from gossipkv.storage.engine.log_reader import Cursor, LogReader
from gossipkv.storage.engine.policy import debt_bytes
from gossipkv.storage.engine.segments import is_damage

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from gossipkv.environment.seam import Files
    from gossipkv.storage.engine.engine import Engine
    from gossipkv.storage.engine.log_reader import Operations, Read, Slice
    from gossipkv.storage.engine.manifest import Manifest

Records = list[tuple[bytes, bytes]]


class BelowFloor(LocalError):
    """The log does not reach back to a position any more: who reads it needs all records instead."""


class Reading:
    """An open store, as its readers see it."""

    def __init__(self, files: Files, engine: Engine) -> None:
        self.files = files
        self.engine = engine
        self._log = LogReader(engine.directory, engine.manifest.store)

    @property
    def manifest(self) -> Manifest:
        """What the store consists of."""
        return self.engine.manifest

    @property
    def closed(self) -> str | None:
        """Why the store is closed; None: it is open."""
        return self.engine.closed

    @property
    def refusal(self) -> str | None:
        """Why it takes no writes now; None: it does."""
        return self.engine.closed or self.engine.pressure().refusal

    @property
    def log_damage(self) -> str | None:
        """For what damage the log begins later than it would; None: for none."""
        return self.engine.log_damage

    def describe(self) -> dict[str, int]:
        """Return what it has counted since it was opened, and how it stands."""
        engine = self.engine
        state = engine.state()
        return {
            **asdict(engine.counts),
            "memtable_bytes": engine.memtable_bytes,
            "young_runs": len(state.young),
            "debt_bytes": debt_bytes(state),
            "run_bytes": state.oldest.size_bytes + sum(run.size_bytes for run in state.young),
            "log_kept_bytes": sum(segment.size_bytes for segment in engine.log()),
        }

    @property
    def first_space(self) -> int | None:
        """The lowest space that was made and not dropped, as of the last sync; None: there is none."""
        return self.engine.first_space

    @property
    def log_floor(self) -> int:
        """The position behind which the log can be read."""
        return self.engine.log_floor

    @property
    def synced_position(self) -> int:
        """Up to which position all is synced."""
        return self.engine.synced_position

    def spaces(self) -> list[int]:
        """The spaces that were made and not dropped, as of the last sync, ascending."""
        return sorted(self.engine.spaces)

    def reserve_space(self) -> int:
        """Return the number of a space that a batch may make; see `Engine.reserve_space`."""
        return self.engine.reserve_space()

    def get(self, space: int, key: bytes) -> bytes | None:
        """The value of a key, or None.

        Raises:
            Corrupt: a page that it needs is damaged.
            StorageError: the store is closed.
            ValueError: there is no such space.
        """
        self._check(space)
        return self.engine.view.get(space, key)

    def get_many(self, space: int, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of keys, in their order.  Raises as `get`."""
        self._check(space)
        return self.engine.view.get_many(space, keys)

    def scan(
        self,
        space: int,
        start: bytes | None = None,
        end: bytes | None = None,
        *,
        reverse: bool = False,
        limit: int | None = None,
        most_bytes: int = SCAN_PAGE_BYTES,
    ) -> tuple[Records, bytes | None]:
        """One page of the records from `start` (inclusive) to `end` (exclusive), or backwards, all of one moment.

        Returns them, and the key at which the next page begins (backwards: before which); None when there is none.
        Raises as `get`.
        """
        self._check(space)
        most = -1 if limit is None else limit
        return self.engine.view.scan(space, start, end, reverse=reverse, limit=most, most_bytes=most_bytes)

    def size_bytes(self, space: int, start: bytes = b"", end: bytes | None = None) -> int:
        """Return how many bytes of a space lie from `start` (inclusive) to `end` (exclusive; None: all that follow).

        Records that were replaced or deleted count until a merge leaves them out, and count where they lie: memtables
        and runs store the same record in a few bytes more or less.  Bounds that do not ascend have nothing between
        them.  Raises as `get`.
        """
        self._check(space)
        return self.engine.view.size_bytes(space, start, end)

    def rows(self, space: int, start: bytes = b"", end: bytes | None = None) -> int:
        """Return about how many records lie within bounds; what counts, and what is raised, is as in `size_bytes`.

        0 only where none lies.  Exact but for the files of runs that a bound cuts, two of a run at most: of those
        records count by their bytes, as if all of a file were of one size, so each is off by fewer than it has.
        """
        self._check(space)
        return self.engine.view.rows(space, start, end)

    def middle_key(self, space: int, start: bytes = b"", end: bytes | None = None) -> bytes | None:
        """A key above `start` and below `end`, with about half of the bytes between them before it.

        It halves the largest of the memtables and runs: where that has a share of those bytes, either side has at least
        half of this share, but for one record.  Either side has a record; None: there is only one key within bounds,
        or none.  Raises as `get`.
        """
        self._check(space)
        return self.engine.view.middle_key(space, start, end)

    def follow(self, spaces: Collection[int], position: int) -> Cursor:
        """Return a cursor for one who follows the log: for whole synced batches behind `position` that touch `spaces`.

        A shell reads for it, a slice at a time (`read_log`).
        """
        return Cursor(frozenset(spaces), position)

    def _next_slice(self, cursor: Cursor, most_bytes: int) -> Slice | None:
        """What is to be read next for a cursor, which may be done in any thread; None: it has all that is synced.

        Raises:
            BelowFloor: the log begins behind its position.
            StorageError: the store is closed.
        """
        self.engine.check_open()
        self._check_floor(cursor)
        return self._log.next(cursor, self.engine.log(), self.engine.synced_position, most_bytes)

    def _took(self, cursor: Cursor, read: Read) -> tuple[list[tuple[int, Operations]], int] | None:
        """Have a cursor go on behind what was read for it; None: its position was not come to yet.

        Returns the batches, in order, each with its operations in the cursor's spaces, and the position to go on from.

        Raises:
            BelowFloor: the log was let go of meanwhile, or for damage that was met.
            Corrupt: a frame is damaged that is in no run yet.
            StorageError: the system refused.
        """
        if read.trouble is not None:
            if is_damage(read.trouble):
                self.engine.lose_log(read.place.number, read.trouble)
            self._check_floor(cursor)
            if isinstance(read.trouble, OSError):
                raise storage_error(read.trouble, self.engine.directory, "the log cannot be read") from read.trouble
            raise read.trouble
        is_new = self._log.took(cursor, read.place, self.engine.log_floor)
        return (read.batches, cursor.position) if is_new else None

    def _check_floor(self, cursor: Cursor) -> None:
        floor = self.engine.log_floor
        if cursor.position < floor:
            raise BelowFloor(
                f"the log begins behind position {floor}, and {cursor.position} is asked for", {"floor": floor}
            )

    def _check(self, space: int) -> None:
        self.engine.check_readable()
        if not self.engine.has_space(space):
            raise ValueError(f"there is no space {space}: it was never made, or is dropped")

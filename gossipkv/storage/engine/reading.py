"""The read methods of an open store, shared by its shells: they answer at once, from synced batches."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from gossipkv.errors import LocalError
from gossipkv.storage.directories import storage_error
from gossipkv.storage.engine._engine import PAGE_BYTES as SCAN_PAGE_BYTES
from gossipkv.storage.engine.log_reader import LogCursor, LogReader
from gossipkv.storage.engine.policy import debt_bytes
from gossipkv.storage.engine.segments import is_damage

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from gossipkv.environment.seam import Files
    from gossipkv.storage.engine._engine import ReadGate, View
    from gossipkv.storage.engine.engine import Engine
    from gossipkv.storage.engine.log_reader import Operations, Read, Slice
    from gossipkv.storage.engine.manifest import StoreManifest

Records = list[tuple[bytes, bytes]]


class BelowFloor(LocalError):
    """The log no longer reaches back to a position; its reader needs all records instead."""


class StoreReading:
    """An open store, as its readers see it."""

    def __init__(self, files: Files, engine: Engine) -> None:
        self.files = files
        self.engine = engine
        self._log = LogReader(engine.directory, engine.manifest.store)

    @property
    def manifest(self) -> StoreManifest:
        return self.engine.manifest

    @property
    def closed(self) -> str | None:
        return self.engine.closed

    @property
    def refusal(self) -> str | None:
        """The reason for which the store takes no writes now; None: it takes writes."""
        return self.engine.closed or self.engine.pressure().refusal

    @property
    def lack(self) -> str | None:
        """The missing room in words, while the store takes only writes that free room; None if there is room."""
        return self.engine.pressure().refusal if self.engine.is_scarce else None

    @property
    def log_damage(self) -> str | None:
        """The damage that made the log begin later; None: there is none."""
        return self.engine.log_damage

    def describe(self) -> dict[str, int]:
        """Return the counters since the opening, and the current sizes."""
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
        return self.engine.first_space

    @property
    def log_floor(self) -> int:
        return self.engine.log_floor

    @property
    def synced_position(self) -> int:
        return self.engine.synced_position

    @property
    def gate(self) -> ReadGate:
        """The records, for serving loops."""
        return self.engine.gate

    def serve(self, guards: Sequence[object]) -> None:
        """Let further serving loops read; see `Engine.serve`. Raises StorageError if the store is closed."""
        self.engine.serve(guards)

    def spaces(self) -> list[int]:
        """Return the live spaces, as of the last sync, in ascending order."""
        return sorted(self.engine.spaces)

    def reserve_space(self) -> int:
        """Return the number of a space that a batch may make; see `Engine.reserve_space`."""
        return self.engine.reserve_space()

    def get(self, space: int, key: bytes) -> bytes | None:
        """Return the value of a key, or None.

        Raises:
            Corrupt: a page of the lookup is damaged.
            StorageError: the store is closed.
            ValueError: there is no such space.
        """
        engine = self.engine
        if engine.closed is not None or space not in engine.spaces:
            engine.check_readable(space)
        return engine.view.get(space, key)

    def get_many(self, space: int, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of keys, in their order. Raises as `get`."""
        self.engine.check_readable(space)
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
        """Return one page of the records from `start` (inclusive) to `end` (exclusive), or backwards.

        Also returns the key at which the next page begins (backwards: before which it begins); None when there is none.
        All records of a page are of one moment. Raises as `get`.
        """
        self.engine.check_readable(space)
        most = -1 if limit is None else limit
        return self.engine.view.scan(space, start, end, reverse=reverse, limit=most, most_bytes=most_bytes)

    def view(self, spaces: Iterable[int]) -> View:
        """Return the view of all records, for reads of these spaces before anything changes. Raises as `get`."""
        for space in spaces:
            self.engine.check_readable(space)
        return self.engine.view

    def size_bytes(self, space: int, start: bytes = b"", end: bytes | None = None) -> int:
        """Return how many bytes of a space lie from `start` (inclusive) to `end` (exclusive; None: all that follow).

        Replaced and deleted records count until a merge drops them. Memtables and runs store the same record in
        slightly different sizes, and each record counts by its place. Bounds that do not ascend contain 0 bytes. Raises
        as `get`.
        """
        self.engine.check_readable(space)
        return self.engine.view.size_bytes(space, start, end)

    def rows(self, space: int, start: bytes = b"", end: bytes | None = None) -> int:
        """Return about how many records lie within bounds; counts and raises as `size_bytes`.

        The result is 0 only if there are none. It is exact except for files of runs that a bound cuts, at most two per
        run. Their records are estimated by bytes, as if all in a file had one size; so each file is off by less than
        its count.
        """
        self.engine.check_readable(space)
        return self.engine.view.rows(space, start, end)

    def middle_key(self, space: int, start: bytes = b"", end: bytes | None = None) -> bytes | None:
        """Return a key above `start` and below `end`, with about half of the bytes between them before it.

        It halves the largest memtable or run. If that has a share of those bytes, each side has at least half of that
        share, except for one record. Each side has a record; None: at most one key lies within bounds. Raises as `get`.
        """
        self.engine.check_readable(space)
        return self.engine.view.middle_key(space, start, end)

    def follow(self, spaces: Collection[int], position: int) -> LogCursor:
        """Return a cursor that follows the log: whole synced batches behind `position` that touch `spaces`.

        The shell's `read_log` reads for it, a slice at a time.
        """
        return LogCursor(frozenset(spaces), position)

    def _next_slice(self, cursor: LogCursor, most_bytes: int) -> Slice | None:
        """Return the next slice for a cursor, to be read in any thread; None: the cursor has all that is synced.

        Raises:
            BelowFloor: the log begins behind its position.
            StorageError: the store is closed.
        """
        self.engine.check_open()
        self._check_floor(cursor)
        return self._log.next(cursor, self.engine.log(), self.engine.synced_position, most_bytes)

    def _advance(self, cursor: LogCursor, read: Read) -> tuple[list[tuple[int, Operations]], int] | None:
        """Move a cursor behind a slice that was read for it; None: the slice ended before the cursor's position.

        Returns the batches, in order, each with its operations in the cursor's spaces, and the position to go on from.

        Raises:
            BelowFloor: the log was removed meanwhile, or was cut off because of damage.
            Corrupt: a damaged frame is in no run yet.
            StorageError: the system refused.
        """
        if read.trouble is not None:
            if is_damage(read.trouble):
                self.engine.lose_log(read.place.number, read.trouble)
            self._check_floor(cursor)
            if isinstance(read.trouble, OSError):
                raise storage_error(read.trouble, self.engine.directory, "the log cannot be read") from read.trouble
            raise read.trouble
        is_new = self._log.advance(cursor, read.place, self.engine.log_floor)
        return (read.batches, cursor.position) if is_new else None

    def _check_floor(self, cursor: LogCursor) -> None:
        floor = self.engine.log_floor
        if cursor.position < floor:
            raise BelowFloor(
                f"the log begins after position {floor}, and position {cursor.position} was requested",
                {"floor": floor},
            )

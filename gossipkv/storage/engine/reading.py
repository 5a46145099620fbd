"""What a store answers, the same for whoever waits how: all of it at once, of what is synced."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from gossipkv.errors import LocalError
from gossipkv.storage.directories import storage_error
from gossipkv.storage.engine._log import operations
from gossipkv.storage.engine._view import PAGE_BYTES as SCAN_PAGE_BYTES
from gossipkv.storage.engine.log_reader import LogReader
from gossipkv.storage.engine.policy import debt_bytes

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from gossipkv.environment.seam import Files
    from gossipkv.storage.engine.engine import Engine
    from gossipkv.storage.engine.manifest import Manifest

Records = list[tuple[bytes, bytes]]
Operations = list[tuple[int, int, bytes, bytes]]

# Of a page of the log, unless it is told.
PAGE_BYTES = 1 << 20


class BelowFloor(LocalError):
    """The log does not reach back to a position any more: who reads it needs all records instead."""


class Reading:
    """An open store, as its readers see it."""

    def __init__(self, files: Files, engine: Engine) -> None:
        self.files = files
        self.engine = engine
        self._log = LogReader(files, engine.directory, engine.manifest.store)

    @property
    def manifest(self) -> Manifest:
        """What the store consists of."""
        return self.engine.manifest

    @property
    def closed(self) -> str | None:
        """Why the store is closed; None: it is open."""
        return self.engine.closed

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

    def size_bytes(self, space: int) -> int:
        """Return about how many bytes a space takes.  Raises as `get`."""
        self._check(space)
        return self.engine.view.size_bytes(space)

    def middle_key(self, space: int) -> bytes | None:
        """A key with about as much before as behind it; None when there is none.  Raises as `get`."""
        self._check(space)
        return self.engine.view.middle_key(space)

    def read_log(
        self, spaces: Collection[int], position: int, *, most_bytes: int = PAGE_BYTES
    ) -> tuple[list[tuple[int, Operations]], int]:
        """Whole synced batches behind `position`, each with its operations in `spaces`; those without any are left out.

        Returns them, in order, and the position to go on from.

        Raises:
            BelowFloor: the log begins behind it.
            Corrupt: a frame is damaged.
            StorageError: the store is closed, or the system refused.
        """
        self.engine.check_open()
        log = self.engine.log()
        floor = self.engine.log_floor
        if position < floor:
            raise BelowFloor(f"the log begins behind position {floor}, and {position} is asked for", {"floor": floor})
        wanted, found = frozenset(spaces), []
        try:
            batches = self._log.read(log, position, self.engine.synced_position, most_bytes)
        except OSError as error:
            raise storage_error(error, self.engine.directory, "the log cannot be read") from error
        for at, payload in batches:
            position = at
            if touching := [one for one in operations(payload) if one[1] in wanted]:
                found.append((at, touching))
        return found, position

    def _check(self, space: int) -> None:
        self.engine.check_readable()
        if not self.engine.has_space(space):
            raise ValueError(f"there is no space {space}: it was never made, or is dropped")

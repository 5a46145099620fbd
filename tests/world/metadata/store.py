"""A simulated store with the interface that `register.space` needs: syncs take time, crashes lose unsynced data.

A `Disk` outlives the lives of its node; a lost disk is replaced by another with another id.  Synced records are shown
to a witness at that very moment, before any answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, final

import trio
import trio.lowlevel

from gossipkv.errors import Overloaded, StorageError
from gossipkv.storage.engine.shell import DELETE, PUT, operations
from tests.world.metadata.chance import happens

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from gossipkv.storage.engine.shell import Batch

SPACE: Final = 1
PAGE_RECORDS: Final = 7  # The records of one page of a scan.


@final
@dataclass(eq=False)
class Disk:
    """The state that survives a crash."""

    node: bytes
    store: int  # The store's id.
    has_space: bool = False
    records: dict[bytes, bytes] = field(default_factory=dict)


@final
@dataclass
class Mood:
    """The present behaviour of a node's disk."""

    is_full: bool = False
    fails: bool = False
    slow_s: float = 0.0


class Witness(Protocol):
    """The observer of synced batches."""

    def synced(self, disk: Disk, records: list[tuple[bytes, bytes | None]]) -> None:
        """Observe a synced batch, in order; None: a deletion."""
        ...


@final
class SimulatedStore:
    def __init__(self, disk: Disk, mood: Mood, random: Random, witness: Witness, strike: Callable[[str], None]) -> None:
        """`strike(when)` is called around each sync; it may end this life."""
        self.disk = disk
        self.is_over = False  # True once this life has ended: nothing is written any more.
        self.closed: str | None = None
        self._mood = mood
        self._random = random
        self._witness = witness
        self._strike = strike

    @property
    def first_space(self) -> int | None:
        return SPACE if self.disk.has_space else None

    @property
    def lack(self) -> str | None:
        return "the disk is full" if self._mood.is_full else None

    def reserve_space(self) -> int:
        """Return the number for the space that a batch may create."""
        return SPACE

    def get(self, space: int, key: bytes) -> bytes | None:
        assert space == SPACE, space
        return self.disk.records.get(key)

    def scan(
        self, space: int, start: bytes | None = None, end: bytes | None = None
    ) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
        """Return one page of records, and the first key of the next page."""
        assert space == SPACE, space
        keys = sorted(key for key in self.disk.records if key >= (start or b"") and (end is None or key < end))
        page = [(key, self.disk.records[key]) for key in keys[:PAGE_RECORDS]]
        return page, keys[PAGE_RECORDS] if len(keys) > PAGE_RECORDS else None

    async def write(self, batch: Batch) -> int:
        """Write a batch; return once it is synced.

        Raises:
            Overloaded: there is no room; nothing was written.
            StorageError: the store is closed; the last batch may or may not be written.
        """
        if self._mood.is_full:
            await trio.lowlevel.checkpoint()
            raise Overloaded("the disk is full")
        await trio.sleep(self._random.uniform(0.0002, 0.003) + self._mood.slow_s)
        self._strike("before a sync")
        if self._mood.fails or self.closed is not None:
            self.closed = "the disk failed"
            if happens(self._random, 0.5):  # A batch whose sync failed may be on the disk.
                self._apply(batch)
            raise StorageError(self.closed)
        if self.is_over:
            if happens(self._random, 0.3):
                self._apply(batch)
            await trio.sleep_forever()
        self._apply(batch)
        self._strike("after a sync")
        await trio.sleep(0.0001)
        return 0

    def _apply(self, batch: Batch) -> None:
        records = [
            (key, value if kind == PUT else None)
            for kind, _, key, value in operations(batch.payload)
            if kind in (PUT, DELETE)
        ]
        self.disk.has_space = True
        for key, value in records:
            if value is None:
                self.disk.records.pop(key, None)
            else:
                self.disk.records[key] = value
        self._witness.synced(self.disk, records)

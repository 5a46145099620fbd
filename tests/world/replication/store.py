"""The store of one life of a node: production's engine over files that forget unsynced data.

Appended batches are written and synced in groups, each after a random time.  A process that ends leaves its written
data; a power loss leaves the synced data, and any part of the rest.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final, Protocol, final

import trio

from gossipkv.errors import Overloaded, StorageError
from gossipkv.storage.engine.options import EngineOptions
from tests.world.blocking_store import Store
from tests.world.simulated_files import SimulatedFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from random import Random

    from gossipkv.storage.engine.log_reader import LogCursor, Operations
    from gossipkv.storage.engine.merge import ExpiryRule
    from gossipkv.storage.engine.shell import Batch, View

    OnSynced = Callable[[StorageError | None], object]

PLACE: Final = PurePosixPath("/data")
OPTIONS: Final = EngineOptions(segment_bytes=64 << 10, table_log=1, file_bytes=1 << 20, stretch_bytes=1 << 20)


@final
class Disk:
    """The state that outlives a life."""

    def __init__(self) -> None:
        self.files = SimulatedFiles()
        self.files.make_directory(PLACE)
        self.files.sync_directory("/")

    def end(self, power_seed: int | None) -> None:
        """End the process; with a seed, the power fails too."""
        self.files.close_all()
        if power_seed is not None:
            self.files = self.files.power_loss(power_seed)


@final
@dataclass
class Mood:
    """The present behaviour of a disk."""

    is_full: bool = False
    sync_s: tuple[float, float] = (0.0003, 0.003)


class Heard(Protocol):
    """The observer of appended and synced batches."""

    def appended(self, position: int, batch: Batch) -> None: ...

    def synced(self, position: int) -> None: ...

    def merged(self, store: RunningStore) -> None: ...


@final
@dataclass(eq=False)
class RunningStore:
    """The store of one life; see `replication.store.FollowedStore`."""

    disk: Disk
    mood: Mood
    random: Random
    heard: Heard
    strike: Callable[[], bool]  # Called around each sync; returns True if this life is over.
    options: EngineOptions = OPTIONS
    is_over: bool = False
    appends: int = 0
    is_writing: bool = False  # No writes are held back.
    _waiting: deque[tuple[int, OnSynced]] = field(default_factory=deque)
    _more: trio.Event = field(default_factory=trio.Event)

    def __post_init__(self) -> None:
        self.opened = Store.open(
            PLACE / "store", files=self.disk.files, random=self.random, options=self.options, maintains=False
        )
        self.opened.maintain()

    @property
    def synced_position(self) -> int:
        return self.opened.synced_position

    def found(self, spaces: frozenset[int], position: int) -> int:
        """Return the last position after `position` of a batch that touches these spaces; else `position`."""
        found, cursor = position, self.opened.follow(spaces, position)
        while batches := self.opened.read_next(cursor)[0]:
            found = batches[-1][0]
        return found

    @property
    def refusal(self) -> str | None:
        return "the disk is full" if self.mood.is_full else None

    lack = refusal

    @property
    def first_space(self) -> int | None:
        return self.opened.first_space

    @property
    def log_floor(self) -> int:
        return self.opened.log_floor

    def get(self, space: int, key: bytes) -> bytes | None:
        return self.opened.get(space, key)

    def scan(
        self,
        space: int,
        start: bytes | None = None,
        end: bytes | None = None,
        *,
        reverse: bool = False,
        limit: int | None = None,
    ) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
        return self.opened.scan(space, start, end, reverse=reverse, limit=limit)

    def view(self, spaces: Iterable[int]) -> View:
        return self.opened.view(spaces)

    def fail(self, why: str) -> None:
        self.opened.engine.fail(why)

    def spaces(self) -> list[int]:
        return self.opened.spaces()

    def size_bytes(self, space: int, start: bytes = b"", end: bytes | None = None) -> int:
        return self.opened.size_bytes(space, start, end)

    def rows(self, space: int, start: bytes = b"", end: bytes | None = None) -> int:
        return self.opened.rows(space, start, end)

    def middle_key(self, space: int, start: bytes = b"", end: bytes | None = None) -> bytes | None:
        """Return a key in the middle of the data within bounds."""
        return self.opened.middle_key(space, start, end)

    def reserve_space(self) -> int:
        """Return the number for a space that a batch may create."""
        return self.opened.reserve_space()

    def follow(self, spaces: frozenset[int], position: int) -> LogCursor:
        return self.opened.follow(spaces, position)

    async def read_log(self, cursor: LogCursor) -> tuple[list[tuple[int, Operations]], int]:
        await trio.sleep(self.random.uniform(0, 0.002))
        return self.opened.read_next(cursor)

    def append(self, batch: Batch, on_synced: OnSynced) -> int:
        if self.is_over:
            raise StorageError("the process is over")
        if (refusal := self.refusal) is not None:
            raise Overloaded(refusal)
        position = self.opened.engine.append(batch)
        self.appends += 1
        self.heard.appended(position, batch)
        self._waiting.append((position, on_synced))
        self._more.set()
        return position

    def expire_by(self, rule: ExpiryRule) -> None:
        self.opened.engine.expiry = rule

    def extend(self, batch: Batch, more: Batch) -> bool:
        return not self.is_over and self.refusal is None and self.opened.engine.extend(batch, more)

    async def run(self) -> None:
        while True:
            await self._more.wait()
            self._more = trio.Event()
            while (group := self.opened.engine.group()) is not None:
                if self.strike():
                    return
                self.opened.files.pwrite(group.descriptor, group.data, group.offset)
                await trio.sleep(self.random.uniform(*self.mood.sync_s))
                self.opened.files.sync(group.descriptor)
                self.opened.engine.synced(group.position)
                if group.ends:
                    self.opened.files.close(group.descriptor)
                self.heard.synced(group.position)
                if self.strike():
                    return
                switches = self.opened.engine.counts.switches
                self.opened.maintain()
                if self.opened.engine.counts.switches > switches:
                    self.heard.merged(self)
                while self._waiting and self._waiting[0][0] <= group.position:
                    self._waiting.popleft()[1](None)
                    if self.is_over:
                        return

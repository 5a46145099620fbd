"""Paging: applies the decision on residency by advising the kernel on files and warming resident ones.

A look, every few seconds and after changes of versions, measures the room, decides, and advises each file whose state
differs.  A second task warms: it reads resident files into memory, active versions first, then the indexes of paged
ones, as far as there is room.  The task pauses after each piece for as long as the piece took, so that reads get at
least half of the disk.  Each look replaces the list, so no outdated warming continues, and a file is pinned for one
piece.

Blocking work runs in worker threads on pinned files; closing a pinned file must be retried.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, final

import trio

from gossipkv.dataset.memory.residency import Level, Mapped, Residency
from gossipkv.environment.ticks import rest

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from gossipkv.dataset.local.version import Version
    from gossipkv.environment.memory import Room
    from gossipkv.environment.seam import MemoryProbe, Threads
    from gossipkv.errors import Detail
    from gossipkv.log import Log
    from gossipkv.storage.sorted_file import SortedFile

LOOK_S: Final = 5.0  # A look takes about half a millisecond.
# An open version is switched to within some milliseconds.  The wait ensures that the old version is paged, not the new.
SETTLE_S: Final = 0.2

PIECE_BYTES: Final = 2 << 20  # One large page, which a slow disk reads in a tenth of a second.
MIN_PAUSE_S: Final = 0.002  # At this pause, data already in memory is passed at a gigabyte per second.


class OpenVersion(NamedTuple):
    """An open version; `is_active` if it is the active one of its database."""

    version: Version
    is_active: bool

    @property
    def files(self) -> list[SortedFile]:
        return [file for file in self.version.files if file is not None]

    @property
    def is_compressed(self) -> bool:
        return self.version.manifest.compression != "none"

    def is_paged(self, level: Level) -> bool:
        return self.is_compressed or level < (Level.ACTIVE if self.is_active else Level.ALL)


class PagedRange(NamedTuple):
    """Bytes of a file, from the first to the one before the end."""

    file: SortedFile
    first: int
    end: int


def measure(versions: Iterable[OpenVersion]) -> Mapped:
    """Measure the sizes of versions, in bytes."""
    active = uncompressed = compressed = 0
    for version in versions:
        size_bytes = sum(file.size_bytes for file in version.files)
        if version.is_compressed:
            compressed += size_bytes
        else:
            uncompressed += size_bytes
            active += size_bytes * version.is_active
    return Mapped(active, uncompressed, compressed)


def to_warm(versions: Iterable[OpenVersion], level: Level, room_bytes: int | None) -> Iterator[PagedRange]:
    """Yield the ranges to warm, the most important first, as far as there is room.

    Resident files come first, then the indexes of paged ones.
    """
    taken_bytes = 0
    for version in sorted(versions, key=lambda version: (version.is_paged(level), not version.is_active)):
        for file in version.files:
            first, size_bytes = file.index_range if version.is_paged(level) else (0, file.size_bytes)
            taken_bytes += size_bytes
            if room_bytes is not None and taken_bytes > room_bytes:
                return
            yield PagedRange(file, first, first + size_bytes)


@final
class Paging:
    """The residency of a node's files."""

    def __init__(
        self,
        setting: str,
        *,
        versions: Callable[[], list[OpenVersion]],
        memory: MemoryProbe,
        reserve: Callable[[], int],
        threads: Threads,
        chance: random.Random,
        log: Log,
    ) -> None:
        """Create it; `reserve` returns the bytes that the node and its builds may still take."""
        self._residency = Residency(setting, chance)
        self._setting = setting
        self._versions = versions
        self._memory = memory
        self._reserve = reserve
        self._threads = threads
        self._log = log
        self._mapped = Mapped(0, 0, 0)
        self._room: Room | None = None  # The room at the last look, less the reserve.
        self._changed = trio.Event()
        self._to_warm: deque[PagedRange] = deque()
        self._warmed: dict[SortedFile, int] = {}  # The end of the warmed bytes.
        self._listed = trio.Event()  # Set when ranges are listed to be warmed.

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look and warm until cancelled; report the start after the first look."""
        await self._look()
        task_status.started()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._warm)
            while True:
                if await rest(LOOK_S, self._changed):
                    await trio.sleep(SETTLE_S)
                self._changed = trio.Event()
                await self._look()

    def versions_changed(self) -> None:
        """Note that versions changed; warming stops until the next look."""
        self._mapped = measure(self._versions())
        self._to_warm.clear()
        self._changed.set()

    def to_map(self) -> dict[str, Detail]:
        mapped, room = self._mapped, self._room
        return {
            "residency": self._setting,
            "resident": self._residency.level.name.lower(),
            "mapped_bytes": mapped.all,
            "active_bytes": mapped.active,
            "compressed_bytes": mapped.compressed,
            "room_bytes": None if room is None else room.size_bytes,
            "limit": None if room is None else room.limit,
        }

    # Looking

    async def _look(self) -> None:
        room = await self._threads.run(self._memory.room)
        if room is not None:
            room = room._replace(size_bytes=max(0, room.size_bytes - self._reserve()))
        self._room, room_bytes = room, None if room is None else room.size_bytes
        versions = self._versions()
        self._mapped = measure(versions)
        now_ms = int(trio.current_time() * 1000)
        if self._residency.decide(self._mapped, room_bytes, now_ms=now_ms):
            self._log.info("residency", **self.to_map())
        level = self._residency.level
        paged = {file: version.is_paged(level) for version in versions for file in version.files}
        self._to_warm.clear()
        self._warmed = {file: end for file, end in self._warmed.items() if paged.get(file) == file.paged}
        await self._advise({file: is_paged for file, is_paged in paged.items() if file.paged != is_paged})
        if not self._changed.is_set():
            self._to_warm = deque(to_warm(versions, level, room_bytes))
            self._listed.set()

    async def _advise(self, paged: Mapping[SortedFile, bool]) -> None:
        if not paged:
            return
        for file in paged:
            file.pin()
        try:
            await self._threads.run(_set_paged, paged)
        finally:
            for file in paged:
                file.unpin()

    # Warming

    async def _warm(self) -> None:
        """Warm the listed ranges piece by piece, until cancelled."""
        while True:
            piece = self._next_piece()
            if piece is None:
                self._listed = trio.Event()
                await self._listed.wait()
                continue
            began_s = trio.current_time()
            try:
                piece.file.pin()
            except ValueError:  # The file was closed just now.
                continue
            try:
                await self._threads.run(piece.file.prewarm, piece.first, piece.end - piece.first)
            finally:
                piece.file.unpin()
            await trio.sleep(max(MIN_PAUSE_S, trio.current_time() - began_s))

    def _next_piece(self) -> PagedRange | None:
        while self._to_warm:
            file, first, end = self._to_warm[0]
            first = max(first, self._warmed.get(file, 0))
            if first < end:
                self._warmed[file] = min(end, first + PIECE_BYTES)
                return PagedRange(file, first, self._warmed[file])
            self._to_warm.popleft()
        return None


def _set_paged(paged: Mapping[SortedFile, bool]) -> None:
    for file, is_paged in paged.items():
        file.set_paged(is_paged)

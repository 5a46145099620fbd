"""The schedule of the scrub: forgets page checks in slices, and reads versions back in turn.

A version is due three quarters of a period after it was built or last read back; all due versions are read within the
remaining quarter.  So at most a period lies between two readings of one byte, and small data is not read much more
often than that, however many versions there are.

Everything but waiting for the disk runs on Trio's thread.  Reading back stops when its version is dropped or rebuilt,
as the state of its files no longer matters.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, final

import trio

from gossipkv.dataset.local.scrubbed import Scrubbed, write_scrubbed
from gossipkv.dataset.scrub.parent import ReadBackError
from gossipkv.dataset.scrub.read_back import Job

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gossipkv.dataset.local.store import VersionStore
    from gossipkv.dataset.local.version import Version
    from gossipkv.dataset.scrub.parent import ReadBack
    from gossipkv.dataset.scrub.read_back import ReadBackOutcome
    from gossipkv.environment.seam import EnvironmentClock, Threads
    from gossipkv.errors import Corrupt, Detail
    from gossipkv.log import Log

# A slice of 10 GB is 10 MB: checking a slice again takes about a millisecond, spread over the reads of the next minute
# and a half.
MAX_SLICES: Final = 1024
MIN_SLICE_MS: Final = 100

# Bounds of the period at which due versions are looked for.
LONGEST_LOOK_S: Final = 60.0
LOOKS_A_PERIOD: Final = 40

# A pass over little data need not take a quarter of a day: even an old disk reads thirty times as fast.
MIN_BYTES_PER_SECOND: Final = 4 << 20
# A pass over very much data exceeds the period rather than take the disk's whole bandwidth.
MAX_BYTES_PER_SECOND: Final = 256 << 20

RETRIES_A_PERIOD: Final = 16


def due_ms(version: Version, period_ms: int) -> int:
    """Return when the version is due to be read back, by the wall clock."""
    return version.checked_ms + period_ms * 3 // 4


def put_off(version: Version, now_ms: int, period_ms: int) -> None:
    """Make the version due again soon after a refusal, so that others have their turn meanwhile."""
    version.checked_ms = now_ms - period_ms * 3 // 4 + period_ms // RETRIES_A_PERIOD


def next_due(versions: Iterable[Version], now_ms: int, period_ms: int) -> Version | None:
    """Return the version that has been due the longest, if any; a clock that was set back delays none for long."""
    waiting: dict[Version, int] = {}
    for version in versions:
        version.checked_ms = min(version.checked_ms, now_ms)
        waiting[version] = due_ms(version, period_ms)
    first = min(waiting, key=lambda version: (waiting[version], version.database, version.name), default=None)
    return first if first is not None and waiting[first] <= now_ms else None


def bytes_per_second(size_bytes: int, period_ms: int) -> int:
    """Return the reading rate for this amount of data."""
    return min(MAX_BYTES_PER_SECOND, max(MIN_BYTES_PER_SECOND, size_bytes * 4_000 // period_ms))


@final
@dataclass(slots=True)
class ScrubCounts:
    """Totals of the read back since the start."""

    versions: int = 0
    size_bytes: int = 0
    damaged_files: int = 0


@final
class Scrub:
    """Detects damage that occurs after the first reading of served data."""

    def __init__(
        self,
        period_ms: int,
        *,
        versions: Callable[[], list[Version]],
        on_damage: Callable[[Version, Corrupt], None],
        read_back: ReadBack,
        store: VersionStore,
        threads: Threads,
        clock: EnvironmentClock,
        log: Log,
    ) -> None:
        self.counts = ScrubCounts()
        self._reading: Version | None = None
        self._scope = trio.CancelScope()  # The scope of the current reading.
        self._period_ms = period_ms
        self._versions = versions
        self._on_damage = on_damage
        self._read_back = read_back
        self._store = store
        self._threads = threads
        self._clock = clock
        self._log = log
        self._look_s = min(LONGEST_LOOK_S, period_ms / 1000 / LOOKS_A_PERIOD)

    async def run(self) -> None:
        """Run both halves until cancelled; without a period, do nothing."""
        if self._period_ms > 0:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._forget_in_slices)
                nursery.start_soon(self._read_back_in_turn)

    def versions_changed(self) -> None:
        if self._reading is not None and self._reading not in self._versions():
            self._scope.cancel()

    def report(self, version: Version) -> dict[str, Detail]:
        """Return the entry of `status`; nil if the version was never read back."""
        last = version.scrubbed
        return {
            "last_s": None if last is None else max(0, self._clock.wall_ms() - last.at_ms) // 1000,
            "bypassed_cache": None if last is None else last.bypassed_cache,
            "damaged_files": None if last is None else last.damaged_files,
            "running": version is self._reading,
        }

    # In the cache

    async def _forget_in_slices(self) -> None:
        slices = max(1, min(MAX_SLICES, self._period_ms // MIN_SLICE_MS))
        pause_s = self._period_ms / 1000 / slices
        at, slice_ = trio.current_time(), 0
        while True:
            at += pause_s
            await trio.sleep_until(at)
            for version in self._versions():
                # Most slices of small files are empty, so databases of one file take their slices at different times.
                begin = zlib.crc32(f"{version.database}/{version.name}".encode())
                version.forget_checks((begin + slice_) % slices, slices)
            slice_ += 1

    # On the disk

    async def _read_back_in_turn(self) -> None:
        while True:
            version = next_due(self._versions(), self._clock.wall_ms(), self._period_ms)
            if version is None:
                await trio.sleep(self._look_s)
                continue
            self._reading = version
            with trio.CancelScope() as self._scope:
                await self._read_back_whole(version)
            self._reading = None

    async def _read_back_whole(self, version: Version) -> None:
        """Read a version back, and set when it is due again."""
        directory = self._store.version_path(version.database, version.name)
        rate = bytes_per_second(sum(other.size_bytes for other in self._versions()), self._period_ms)
        damaged: list[Corrupt] = []

        def hear(damage: Corrupt) -> None:
            if version in self._versions():
                damaged.append(damage)
                self.counts.damaged_files += 1
                self._on_damage(version, damage)

        log = self._log.bind(database=version.database, version=version.name)
        began_ms = self._clock.wall_ms()
        try:
            outcome = await self._read_back(Job(str(directory), version.database, version.name, rate), hear)
        except (ReadBackError, OSError) as error:
            log.warning("scrub_failed", reason=str(error))
            put_off(version, self._clock.wall_ms(), self._period_ms)
            return
        self._note(version, outcome, len(damaged))
        log.info(
            "scrubbed", files=outcome.files, size_bytes=outcome.size_bytes, damaged_files=len(damaged),
            bypassed_cache=outcome.bypassed_cache, took_ms=self._clock.wall_ms() - began_ms,
        )  # fmt: skip
        if not damaged and version in self._versions():
            assert version.scrubbed is not None
            try:
                await self._threads.run(partial(write_scrubbed, self._store.files, directory, version.scrubbed))
            except OSError as error:  # After a restart the version is read back sooner than necessary.
                log.warning("cannot_note_scrub", reason=str(error))

    def _note(self, version: Version, outcome: ReadBackOutcome, damaged_files: int) -> None:
        now_ms = self._clock.wall_ms()
        self.counts.versions += 1
        self.counts.size_bytes += outcome.size_bytes
        version.scrubbed = Scrubbed(now_ms, outcome.bypassed_cache, damaged_files)
        version.checked_ms = now_ms  # A damaged version is not read again while it is rebuilt, either.

"""When a version is read back, and how fast: each byte once within a period, however many versions there are.

A version is due three quarters of a period after it was built or last read back; all that are due at once are read
within the quarter that is left.  So between two readings of one byte there is at most a period, and small data is not
read much more often than that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gossipkv.dataset.local.version import Version

# A pass over little data need not take a quarter of a day: even an old disk has thirty times as much to give,
LEAST_BYTES_PER_SECOND: Final = 4 << 20
# and one over very much data takes longer than the period rather than all that a disk has.
MOST_BYTES_PER_SECOND: Final = 256 << 20

RETRIES_A_PERIOD: Final = 16


def due_ms(version: Version, period_ms: int) -> int:
    """When it is to be read back, by the wall clock."""
    return version.checked_ms + period_ms * 3 // 4


def put_off(version: Version, now_ms: int, period_ms: int) -> None:
    """Make it due again soon, since the system refused; meanwhile others have their turn."""
    version.checked_ms = now_ms - period_ms * 3 // 4 + period_ms // RETRIES_A_PERIOD


def next_due(versions: Iterable[Version], now_ms: int, period_ms: int) -> Version | None:
    """The version that is due for the longest time, if any is.  A clock that was set back puts none off for long."""
    waiting: dict[Version, int] = {}
    for version in versions:
        version.checked_ms = min(version.checked_ms, now_ms)
        waiting[version] = due_ms(version, period_ms)
    first = min(waiting, key=lambda version: (waiting[version], version.database, version.name), default=None)
    return first if first is not None and waiting[first] <= now_ms else None


def bytes_per_second(size_bytes: int, period_ms: int) -> int:
    """How fast to read if there are so many bytes in all."""
    return min(MOST_BYTES_PER_SECOND, max(LEAST_BYTES_PER_SECOND, size_bytes * 4_000 // period_ms))

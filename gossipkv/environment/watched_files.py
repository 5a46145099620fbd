"""Whether files have changed since somebody looked."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from gossipkv.environment.seam import Threads


@final
class WatchedFiles:
    """A few files by what changes with them: ctime (content, owner and mode), size and inode, or that none is there."""

    def __init__(self, paths: Collection[Path], threads: Threads) -> None:
        self._paths, self._threads = paths, threads
        self._seen: list[tuple[int, int, int] | None] = []

    async def have_changed(self) -> bool:
        """Whether one is another than at the last look; at the first, whether there are any."""
        before, self._seen = self._seen, await self._threads.run(self._look)
        return self._seen != before

    def _look(self) -> list[tuple[int, int, int] | None]:
        return [_state_of(path) for path in self._paths]


def _state_of(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ctime_ns, found.st_size, found.st_ino

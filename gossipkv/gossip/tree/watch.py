"""Watchers: they are notified that keys below a path changed, but not which.

Notifications are level-triggered and coalesced: a watcher is notified once, and again only after its reader called
`look`. The reader calls `look` and then lists, so it never misses the last state, and a slow reader costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


@final
class TreeWatch:
    """A flag for changes below one path since its reader looked."""

    __slots__ = ("_looked_at", "path", "revision", "wake")

    def __init__(self, path: str, wake: Callable[[], None] | None = None) -> None:
        self.path = path
        self.revision = 0  # Grows with every visible step.
        self.wake = wake  # Called when `changed` becomes true; it must not raise or wait.
        self._looked_at = 0

    @property
    def changed(self) -> bool:
        """True if there was a step since `look`."""
        return self.revision != self._looked_at

    def look(self) -> int:
        """Mark that the reader lists now; return the revision that the list includes at least."""
        self._looked_at = self.revision
        return self.revision


@final
class Watches:
    """All watchers, by path."""

    __slots__ = ("_at",)

    def __init__(self) -> None:
        self._at: dict[str, list[TreeWatch]] = {}

    def __bool__(self) -> bool:
        return bool(self._at)

    def add(self, watch: TreeWatch) -> None:
        """Start to notify a watcher."""
        self._at.setdefault(watch.path, []).append(watch)

    def step(self, paths: Iterable[str]) -> None:
        """Notify watchers of one visible step, in which these keys changed."""
        if not self._at:
            return
        touched: dict[str, None] = {}
        for path in paths:
            for place in _above(path):
                if place in touched:
                    break  # All paths above were touched, too.
                touched[place] = None
        for place in touched:
            for watch in tuple(self._at.get(place, ())):
                looked = not watch.changed
                watch.revision += 1
                if looked and watch.wake is not None:
                    watch.wake()


def _above(path: str) -> Iterator[str]:
    """Yield the path itself and all above it, up to the root."""
    yield path
    while path:
        path = path.rpartition("/")[0]
        yield path

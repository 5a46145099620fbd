"""Watchers: told that something below a path changed, never what.

Level-triggered and coalesced: a watcher that changed is told once, and again only after its reader has said that it
looks.  The reader looks and then lists, so the last state is never missed, and a slow one costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


@final
class Watch:
    """What changed below one path since its reader looked."""

    __slots__ = ("_looked_at", "path", "revision", "wake")

    def __init__(self, path: str, wake: Callable[[], None] | None = None) -> None:
        self.path = path
        self.revision = 0  # Grows with every visible step.
        self.wake = wake  # Called when `changed` becomes true; must not raise or wait.
        self._looked_at = 0

    @property
    def changed(self) -> bool:
        """Whether there was a step since `look`."""
        return self.revision != self._looked_at

    def look(self) -> int:
        """Say that the reader lists now, and get the revision that it then has seen at least."""
        self._looked_at = self.revision
        return self.revision


@final
class Watches:
    """All watchers, by path."""

    __slots__ = ("_at",)

    def __init__(self) -> None:
        self._at: dict[str, list[Watch]] = {}

    def __bool__(self) -> bool:
        return bool(self._at)

    def add(self, watch: Watch) -> None:
        """Begin to tell it."""
        self._at.setdefault(watch.path, []).append(watch)

    def step(self, paths: Iterable[str]) -> None:
        """One visible step, in which these keys changed."""
        if not self._at:
            return
        touched: dict[str, None] = {}
        for path in paths:
            for place in _above(path):
                if place in touched:
                    break  # And so is all above it.
                touched[place] = None
        for place in touched:
            for watch in tuple(self._at.get(place, ())):
                looked = not watch.changed
                watch.revision += 1
                if looked and watch.wake is not None:
                    watch.wake()


def _above(path: str) -> Iterator[str]:
    """The path itself and all above it, up to the root."""
    yield path
    while path:
        path = path.rpartition("/")[0]
        yield path

"""Which names stand below which path, of the keys that are shown.

For each owner its paths in order: a word a key, whatever a path looks like.  (A tree of segments costs a liar's key of
sixteen of them fifteen times of what it is counted with.)  What stands below a path stands together, and what is
deeper than its children is stepped over by bisection: a list of children costs a step for each name at each owner.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

BEHIND: Final = "0"  # The character after "/": what is below a name stands before that.


@final
class Index:
    """Paths and their owners."""

    __slots__ = ("_paths",)

    def __init__(self) -> None:
        self._paths: dict[bytes, list[str]] = {}

    def add(self, owner: bytes, paths: Iterable[str]) -> None:
        """An owner has these keys now."""
        mine = self._paths.setdefault(owner, [])
        for path in paths:
            insort(mine, path)

    def remove(self, owner: bytes, paths: Iterable[str]) -> None:
        """An owner has these keys no more."""
        mine = self._paths.get(owner, [])
        for path in paths:
            place = bisect_left(mine, path)
            assert mine[place : place + 1] == [path], (mine[place : place + 1], path)
            del mine[place]
        if not mine:
            self._paths.pop(owner, None)

    def names(self, path: str) -> set[str]:
        """The names directly below."""
        return {name for name, _, _ in self._below(path)}

    def leaves(self, path: str) -> list[tuple[str, bytes]]:
        """The names of the keys directly below and who has them."""
        return [(name, owner) for name, owner, is_key in self._below(path) if is_key]

    def _below(self, path: str) -> Iterator[tuple[str, bytes, bool]]:
        """Each name directly below, whose it is, and whether it is a key; a key with keys below it comes twice."""
        prefix = f"{path}/" if path else ""
        begin = len(prefix)
        for owner, mine in self._paths.items():
            place = bisect_left(mine, prefix)
            end = bisect_left(mine, path + BEHIND, place) if path else len(mine)
            while place < end:
                name, slash, _ = mine[place][begin:].partition("/")
                yield name, owner, not slash
                place = bisect_left(mine, prefix + name + BEHIND, place, end) if slash else place + 1

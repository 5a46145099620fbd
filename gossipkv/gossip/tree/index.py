"""Which names stand below which path, of the keys that are shown.

A tree of dictionaries, one for each segment; a leaf knows the owners that publish its path.  So a list of children
costs what it lists, and hiding a branch costs its keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Iterable


@final
class _Segment:
    __slots__ = ("below", "owners")

    def __init__(self) -> None:
        self.below: dict[str, _Segment] = {}
        self.owners: set[bytes] | None = None  # None instead of an empty one: most places below the root are leaves.


@final
class Index:
    """Paths and their owners."""

    __slots__ = ("_root",)

    def __init__(self) -> None:
        self._root = _Segment()

    def add(self, owner: bytes, paths: Iterable[str]) -> None:
        """An owner has these keys now."""
        for path in paths:
            place = self._root
            for name in path.split("/"):
                below = place.below.get(name)
                if below is None:
                    below = place.below[name] = _Segment()
                place = below
            if place.owners is None:
                place.owners = {owner}
            else:
                place.owners.add(owner)

    def remove(self, owner: bytes, paths: Iterable[str]) -> None:
        """An owner has these keys no more."""
        for path in paths:
            names = path.split("/")
            way = [self._root]
            for name in names:
                way.append(way[-1].below[name])
            place = way.pop()
            assert place.owners is not None
            place.owners.discard(owner)
            if not place.owners:
                place.owners = None
            while names and place.owners is None and not place.below:
                place = way.pop()
                del place.below[names.pop()]

    def names(self, path: str) -> list[str]:
        """The names directly below, sorted."""
        place = self._find(path)
        return [] if place is None else sorted(place.below)

    def leaves(self, path: str) -> list[tuple[str, set[bytes]]]:
        """The names of the keys directly below and who has them, sorted."""
        place = self._find(path)
        if place is None:
            return []
        return [(name, below.owners) for name, below in sorted(place.below.items()) if below.owners is not None]

    def _find(self, path: str) -> _Segment | None:
        place = self._root
        if path:
            for name in path.split("/"):
                below = place.below.get(name)
                if below is None:
                    return None
                place = below
        return place

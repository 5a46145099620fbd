"""One object for equal values: of thousands of copies most go by one config, and have the same few nodes as hosts."""

from __future__ import annotations

from typing import Final, TypeVar, cast

MAX_SHARED: Final = 4096  # Then it is begun anew: what is shared already stays so.

_T = TypeVar("_T")
_shared: dict[object, object] = {}


def shared(value: _T) -> _T:
    """An equal value, of which there is one.  Requires: it never changes, and no other type has one that equals it."""
    if len(_shared) >= MAX_SHARED:
        _shared.clear()
    return cast("_T", _shared.setdefault(value, value))

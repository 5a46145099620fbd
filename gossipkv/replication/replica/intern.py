"""Interning: one object for equal values, since thousands of replicas share configs and hosts."""

from __future__ import annotations

from typing import Final, TypeVar, cast

MAX_SHARED: Final = 4096  # The table is emptied beyond; shared objects stay shared.

_T = TypeVar("_T")
_shared: dict[object, object] = {}


def shared(value: _T) -> _T:
    """Return one object for all equal values. Requires: they are immutable, and equal no value of another type."""
    if len(_shared) >= MAX_SHARED:
        _shared.clear()
    return cast("_T", _shared.setdefault(value, value))

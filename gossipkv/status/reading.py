"""Answers of a node, of which any part may be missing: a node may be older, or newer, than the reader."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gossipkv.placement.partition_set import PartitionSet

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gossipkv.wire.rpc import Value


def list_of(value: Value) -> list[Value]:
    """Return a list; an empty one for other values."""
    return value if isinstance(value, list) else []


def map_of(value: Value) -> dict[str, Value]:
    """Return a map; an empty one for other values."""
    return value if isinstance(value, dict) else {}


def maps_of(value: Value) -> dict[str, dict[str, Value]]:
    """Return a map of maps."""
    return {name: map_of(each) for name, each in map_of(value).items()}


def text_of(value: Value) -> str | None:
    """Return a value as text; None for no value."""
    return None if value is None else str(value)


def whole_of(value: Value) -> int | None:
    """Return a whole number; None for other values."""
    return value if isinstance(value, int) else None


def number_of(value: Value) -> float | None:
    """Return a number; None for other values."""
    return float(value) if isinstance(value, (int, float)) else None


def count_of(some: Value | Mapping[str, Value]) -> int:
    """Return the number of partitions in a set."""
    return whole_of(some.get("count")) or 0 if isinstance(some, dict) else 0


def partitions_of(some: Value, partitions: int) -> PartitionSet:
    """Return a set that was reported as a bitmap of `partitions`; empty if it is malformed."""
    bitmap = map_of(some).get("bitmap")
    try:
        return PartitionSet.from_bytes(partitions, bitmap if isinstance(bitmap, bytes) else b"")
    except ValueError:
        return PartitionSet.empty(partitions)

"""Answers of a node, of which any part may be missing: a node may be older, or newer, than whoever reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gossipkv.placement.partition_set import PartitionSet

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gossipkv.wire.rpc import Value


def list_of(value: Value) -> list[Value]:
    """A list; an empty one, if it is none."""
    return value if isinstance(value, list) else []


def map_of(value: Value) -> dict[str, Value]:
    """A map; an empty one, if it is none."""
    return value if isinstance(value, dict) else {}


def maps_of(value: Value) -> dict[str, dict[str, Value]]:
    """A map of maps."""
    return {name: map_of(each) for name, each in map_of(value).items()}


def text_of(value: Value) -> str | None:
    """Text, if anything is told."""
    return None if value is None else str(value)


def whole_of(value: Value) -> int | None:
    """A whole number, if one is told."""
    return value if isinstance(value, int) else None


def number_of(value: Value) -> float | None:
    """A number, if one is told."""
    return float(value) if isinstance(value, (int, float)) else None


def count_of(some: Value | Mapping[str, Value]) -> int:
    """How many partitions a set has."""
    return whole_of(some.get("count")) or 0 if isinstance(some, dict) else 0


def partitions_of(some: Value, partitions: int) -> PartitionSet:
    """A set that was told as a bitmap, of so many partitions; the empty one, if it is none of so many."""
    bitmap = map_of(some).get("bitmap")
    try:
        return PartitionSet.from_bytes(partitions, bitmap if isinstance(bitmap, bytes) else b"")
    except ValueError:
        return PartitionSet.empty(partitions)

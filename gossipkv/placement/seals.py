"""Checksums ("seals") of a version's files: the CRC-32 of a file's footer, by kind and partition.

A kind is `<format>/<compression>`. Files of one kind with equal checksums are equal; files of two kinds cannot be
compared. The bytes of a kind are a pair: a bitmap of its partitions, and their checksums in ascending order of the
partitions, four bytes each, little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from gossipkv.placement.partition_set import PartitionSet

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gossipkv.placement.identity import VersionIdentity

Seals = Mapping[str, Mapping[int, int]]

SEAL_BYTES: Final = 4
MAX_KINDS: Final = 16  # Formats and compressions in one version.


class Sealed(NamedTuple):
    """An identity, and the checksums of the files that a node serves it from."""

    identity: VersionIdentity
    seals: Seals


def pack(seals: Seals, partitions: int) -> dict[str, tuple[bytes, bytes]]:
    """Return the pair of each kind."""
    packed = {}
    for kind, of_kind in seals.items():
        which = sorted(of_kind)
        bitmap = PartitionSet.of(partitions, which).to_bytes()
        packed[kind] = bitmap, struct.pack(f"<{len(which)}I", *(of_kind[partition] for partition in which))
    return packed


def unpack(pairs: Iterable[tuple[object, object]], partitions: int) -> Seals:
    """Return the checksums from kinds and their pairs. Raises `ValueError`: the data is malformed."""
    seals: dict[str, dict[int, int]] = {}
    for kind, pair in pairs:
        match kind, pair:
            case str(name), [bytes(bitmap), bytes(packed)] if len(seals) < MAX_KINDS:
                which = PartitionSet.from_bytes(partitions, bitmap)
                if len(packed) != SEAL_BYTES * len(which):
                    raise ValueError(f"{len(packed)} bytes of checksums do not fit {len(which)} partitions")
                seals[name] = dict(zip(which, struct.unpack(f"<{len(which)}I", packed), strict=True))
            case _:
                raise ValueError(f"unknown kind of checksums: {kind!r}")
    return seals


def differing(seals: Seals, other_seals: Seals, partitions: int) -> PartitionSet:
    """Return the partitions of which both have a file of one kind, with different checksums."""
    found = [
        partition
        for kind in seals.keys() & other_seals.keys()
        if seals[kind] != other_seals[kind]
        for partition in seals[kind].keys() & other_seals[kind].keys()
        if seals[kind][partition] != other_seals[kind][partition]
    ]
    return PartitionSet.of(partitions, found)

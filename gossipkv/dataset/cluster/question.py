"""The direct question of a gate: which partitions of this identity do you serve, with which seals?

What a member has published may be seconds old, and the member gone.  So before a version is switched to, its owners are
asked over a connection: method `serves`, params `[database, wire id (16 bytes)]`.  The result is a map:

    ready     the partitions that are served, as a bitmap (bit p & 7 of byte p >> 3 is partition p)
    dropping  whether the asked node is about to let them go: then it counts in no gate
    seals     by kind, `<format>/<compression>` of the files: the partitions of that kind as a bitmap, and their seals
              in ascending order of the partitions, four bytes each, little-endian

One that holds nothing of the identity answers with an empty bitmap.  A field that is not known is passed over; what is
malformed is no answer.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from gossipkv.placement.partition_set import PartitionSet

if TYPE_CHECKING:
    from collections.abc import Mapping

    Packed = None | bool | int | float | str | bytes | list["Packed"] | dict[str, "Packed"]
    Seals = Mapping[str, Mapping[int, int]]  # By kind and partition: the CRC-32 of the footer.

METHOD: Final = "serves"
SEAL_BYTES: Final = 4
MAX_KINDS: Final = 16  # Formats and compressions in one version.


# What is answered of an identity of which nothing is here, whatever its N.
NOTHING: Final[dict[str, Packed]] = {"ready": b"", "dropping": False, "seals": {}}


class Answer(NamedTuple):
    """What a member serves of one identity."""

    ready: PartitionSet
    seals: Seals
    dropping: bool = False


def encode(answer: Answer) -> dict[str, Packed]:
    """Return the result of the question, for MessagePack."""
    seals: dict[str, Packed] = {}
    for kind, of_kind in answer.seals.items():
        partitions = sorted(of_kind)
        bitmap = PartitionSet.of(answer.ready.partitions, partitions).to_bytes()
        seals[kind] = [bitmap, struct.pack(f"<{len(partitions)}I", *(of_kind[each] for each in partitions))]
    return {"ready": answer.ready.to_bytes(), "dropping": answer.dropping, "seals": seals}


def decode(result: Packed, partitions: int) -> Answer | None:
    """Return the answer about a version of so many partitions; None: it cannot be read."""
    match result:
        case {"ready": bytes(ready), "dropping": bool(dropping), "seals": dict(seals)} if len(seals) <= MAX_KINDS:
            pass
        case _:
            return None
    try:
        by_kind = {_kind(kind): _seals(told, partitions) for kind, told in seals.items()}
        return Answer(PartitionSet.from_bytes(partitions, ready), by_kind, dropping)
    except ValueError:
        return None


def _kind(kind: Packed) -> str:
    if isinstance(kind, str):
        return kind
    raise ValueError(kind)


def _seals(told: Packed, partitions: int) -> dict[int, int]:
    match told:
        case [bytes(bitmap), bytes(packed)]:
            which = PartitionSet.from_bytes(partitions, bitmap)
            if len(packed) == SEAL_BYTES * len(which):
                return dict(zip(which, struct.unpack(f"<{len(which)}I", packed), strict=True))
    raise ValueError(told)

"""The direct question of a gate: which partitions of an identity a member serves, with which file checksums.

A published statement may be seconds old, and its member gone.  Before a switch, owners are therefore asked over a
connection: method `serves`, params `[database, wire id (16 bytes)]`.  The result is a map:

    ready     the served partitions, as a bitmap (bit p & 7 of byte p >> 3 is partition p)
    dropping  true if the asked node is about to drop them: then it counts in no gate
    seals     the checksums of its files (`placement.seals`)
    fixed     the checksums on which its clients have the identity, of all partitions; null: they do not yet
    records   the number of records of each partition in `ready`, in order; empty or absent: not reported

A node without files of the identity answers with an empty bitmap.  Unknown fields are ignored; a malformed result is no
answer.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from gossipkv.placement import seals as packing
from gossipkv.placement.partition_set import PartitionSet

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gossipkv.placement.seals import Seals

    Packed = None | bool | int | float | str | bytes | list["Packed"] | dict[str, "Packed"]

METHOD: Final = "serves"

# The answer about an identity of which nothing is here, whatever its number of partitions.
NOTHING: Final[dict[str, Packed]] = {"ready": b"", "dropping": False, "seals": {}, "fixed": None, "records": []}


class MemberAnswer(NamedTuple):
    """The partitions that a member serves of one identity."""

    ready: PartitionSet
    seals: Seals
    dropping: bool = False
    fixed: Seals | None = None  # Checksums on which its clients have the identity; None: they do not.
    # The number of records of each partition; it is empty if not reported.
    records: Mapping[int, int] = MappingProxyType({})


def encode(answer: MemberAnswer) -> dict[str, Packed]:
    """Encode the result of the question, for MessagePack."""
    partitions = answer.ready.partitions
    fixed = None if answer.fixed is None else _packed(answer.fixed, partitions)
    seals = _packed(answer.seals, partitions)
    counts = [answer.records[partition] for partition in answer.ready if partition in answer.records]
    records: list[Packed] = [*counts] if len(counts) == len(answer.ready) else []
    ready = answer.ready.to_bytes()
    return {"ready": ready, "dropping": answer.dropping, "seals": seals, "fixed": fixed, "records": records}


def decode(result: Packed, partitions: int) -> MemberAnswer | None:
    """Decode the answer about a version with this number of partitions; None if it is malformed."""
    match result:
        case {
            "ready": bytes(ready),
            "dropping": bool(dropping),
            "seals": dict(seals),
            "fixed": None | dict() as fixed,
            **more,
        }:
            pass
        case _:
            return None
    try:
        served = PartitionSet.from_bytes(partitions, ready)
        return MemberAnswer(
            served,
            packing.unpack(seals.items(), partitions),
            dropping,
            None if fixed is None else packing.unpack(fixed.items(), partitions),
            _records(more.get("records"), served),
        )
    except ValueError:
        return None


def _records(counts: object, ready: PartitionSet) -> Mapping[int, int]:
    """Return the records of each partition.  Raises ValueError if they are malformed."""
    if not counts:
        return {}
    checked = [count for count in counts if type(count) is int and count >= 0] if isinstance(counts, list) else []
    return dict(zip(ready, checked, strict=True))


def _packed(seals: Mapping[str, Mapping[int, int]], partitions: int) -> dict[str, Packed]:
    return {kind: [*pair] for kind, pair in packing.pack(seals, partitions).items()}

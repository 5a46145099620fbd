"""The direct question of a gate: which partitions of this identity do you serve, with which seals?

What a member has published may be seconds old, and the member gone.  So before a version is switched to, its owners are
asked over a connection: method `serves`, params `[database, wire id (16 bytes)]`.  The result is a map:

    ready     the partitions that are served, as a bitmap (bit p & 7 of byte p >> 3 is partition p)
    dropping  whether the asked node is about to let them go: then it counts in no gate
    seals     of its files (`placement.seals`)
    fixed     likewise, on which it lets its clients have the identity, of all partitions; null: it does not yet
    records   how many records each of the partitions in `ready` has, in their order; empty or not there: not told

One that holds nothing of the identity answers with an empty bitmap.  A field that is not known is passed over; what is
malformed is no answer.
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

# What is answered of an identity of which nothing is here, whatever its N.
NOTHING: Final[dict[str, Packed]] = {"ready": b"", "dropping": False, "seals": {}, "fixed": None, "records": []}


class Answer(NamedTuple):
    """What a member serves of one identity."""

    ready: PartitionSet
    seals: Seals
    dropping: bool = False
    fixed: Seals | None = None  # On which its clients have the identity; None: they do not.
    records: Mapping[int, int] = MappingProxyType({})  # By partition; empty: not told.


def encode(answer: Answer) -> dict[str, Packed]:
    """Return the result of the question, for MessagePack."""
    partitions = answer.ready.partitions
    fixed = None if answer.fixed is None else _packed(answer.fixed, partitions)
    seals = _packed(answer.seals, partitions)
    told = [answer.records[each] for each in answer.ready if each in answer.records]
    records: list[Packed] = [*told] if len(told) == len(answer.ready) else []
    ready = answer.ready.to_bytes()
    return {"ready": ready, "dropping": answer.dropping, "seals": seals, "fixed": fixed, "records": records}


def decode(result: Packed, partitions: int) -> Answer | None:
    """Return the answer about a version of so many partitions; None: it cannot be read."""
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
        return Answer(
            served,
            packing.unpack(seals.items(), partitions),
            dropping,
            None if fixed is None else packing.unpack(fixed.items(), partitions),
            _records(more.get("records"), served),
        )
    except ValueError:
        return None


def _records(told: object, ready: PartitionSet) -> Mapping[int, int]:
    """Return the records of each partition.  Raises `ValueError`: they are none."""
    if not told:
        return {}
    counts = [each for each in told if type(each) is int and each >= 0] if isinstance(told, list) else []
    return dict(zip(ready, counts, strict=True))


def _packed(seals: Mapping[str, Mapping[int, int]], partitions: int) -> dict[str, Packed]:
    return {kind: [*pair] for kind, pair in packing.pack(seals, partitions).items()}

"""What a sorted file says it is, in its metadata: one partition, of so many, by a function.

A build says also whether it regrouped all records or relied on the source's files.  Where one build of a source met a
stray and regrouped, what another one has made that relied on the same function lacks that record: their files are not
of one version, though function and number agree.  Files that say nothing of it count as having relied: those of
`write_partition`, whose records a job has grouped.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeGuard

from gossipkv.dataset.source.listing import MAX_FILES
from gossipkv.errors import SourceError
from gossipkv.keyspace.partitioner import FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gossipkv.storage.document import Json
    from gossipkv.storage.label import Label


@dataclass(frozen=True, slots=True)
class PartitionClaim:
    """Which partition a sorted file says it is."""

    function: str
    partitions: int
    partition: int
    regrouped: bool = False


def claim_of(label: Label) -> PartitionClaim | None:
    """What a sorted file's metadata says, or None when they are not of this program."""
    try:
        told: Json = json.loads(label.metadata)
    except (ValueError, RecursionError):
        return None
    if not isinstance(told, dict):
        return None
    function, partitions, partition = (told.get(field) for field in ("function", "partitions", "partition"))
    regrouped = told.get("regrouped", False)
    if not isinstance(function, str) or function not in FUNCTIONS:
        return None
    if not _is_below(partitions, MAX_FILES + 1) or not partitions:
        return None
    if not _is_below(partition, partitions) or not isinstance(regrouped, bool):
        return None
    return PartitionClaim(function, partitions, partition, regrouped)


def refuse_strayed(claims: Mapping[str, PartitionClaim]) -> None:
    """Take files, by their names, whose builds either all regrouped or all relied.

    Raises:
        SourceError: some did the one and some the other; names one of each.
    """
    regrouped = next((name for name, claim in claims.items() if claim.regrouped), None)
    relied = next((name for name, claim in claims.items() if not claim.regrouped), None)
    if regrouped is not None and relied is not None:
        reason = (
            f"was built relying on the source's files, and {regrouped} regrouping them, as after a stray: a record "
            "may be in neither; build again what relied, with --presharded never"
        )
        raise SourceError(f"{relied}: {reason}", {"file": relied, "reason": reason})


def _is_below(number: Json, end: int) -> TypeGuard[int]:
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number < end

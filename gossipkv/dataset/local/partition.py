"""The claim in a sorted file's metadata: one partition of a number of partitions, by a function.

A build also says if it regrouped all records or relied on the source's files.  Suppose one build met a stray and
regrouped, and another relied on the same function: the latter lacks that record.  The files of both do not form one
version, although function and number agree.  Files without this statement count as having relied, such as those of
`write_partition`, whose records a job has grouped.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gossipkv.dataset.source.listing import MAX_FILES
from gossipkv.errors import SourceError
from gossipkv.keyspace.partitioner import FUNCTIONS
from gossipkv.storage.typed import typed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gossipkv.storage.label import Label


@dataclass(frozen=True, slots=True)
class PartitionClaim:
    """The partition that a sorted file claims to hold."""

    function: str
    partitions: int
    partition: int
    regrouped: bool = False

    def to_metadata(self) -> bytes:
        """Return the metadata of a file whose writer checked every key; `claim_of` reads them."""
        claim = {"function": self.function, "partitions": self.partitions, "partition": self.partition}
        return json.dumps(claim, sort_keys=True).encode()


def claim_of(label: Label) -> PartitionClaim | None:
    """Return the claim in a sorted file's metadata, or None if another program wrote them."""
    try:
        claim = typed(PartitionClaim, json.loads(label.metadata))
    except (ValueError, RecursionError):
        return None
    is_possible = claim.function in FUNCTIONS and 0 <= claim.partition < claim.partitions <= MAX_FILES
    return claim if is_possible else None


def refuse_strayed(claims: Mapping[str, PartitionClaim]) -> None:
    """Check that the builds of the files, by name, either all regrouped or all relied.

    Raises:
        SourceError: some regrouped and some relied; names one of each.
    """
    regrouped = next((name for name, claim in claims.items() if claim.regrouped), None)
    relied = next((name for name, claim in claims.items() if not claim.regrouped), None)
    if regrouped is not None and relied is not None:
        reason = (
            f"this file relies on the partitions of the source's files, but {regrouped} was regrouped after a stray "
            "key, so a record may be in neither; build this file again with --presharded never"
        )
        raise SourceError(f"{relied}: {reason}", {"file": relied, "reason": reason})

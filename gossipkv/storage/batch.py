"""Many records at once, without a Python object for each: how a source's records reach the builder.

A batch that somebody yields is valid until the next one is asked for: its memory may be used again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gossipkv.storage._storage import Batch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["Batch", "batched"]


def batched(records: Iterable[tuple[bytes, bytes, int]]) -> Iterator[Batch]:
    """Records (key, value, offset in their source) in batches: one, used again and again."""
    batch = Batch()
    for record in records:
        if not batch.append(*record):
            yield batch
            batch.clear()
            batch.append(*record)
    if batch:
        yield batch

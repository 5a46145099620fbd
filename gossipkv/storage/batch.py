"""Batches of records, without a Python object for each, on their way from a source to the builder.

A batch that an iterator yields is valid until the next one is requested, since its memory is reused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gossipkv.storage._storage import Batch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["Batch", "batched"]


def batched(records: Iterable[tuple[bytes, bytes, int]]) -> Iterator[Batch]:
    """Yield records (key, value, offset in their source) in batches, reusing one `Batch`."""
    batch = Batch()
    for record in records:
        if not batch.append(*record):
            yield batch
            batch.clear()
            batch.append(*record)
    if batch:
        yield batch

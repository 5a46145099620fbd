"""Batches of records, without a Python object for each, on their way from a source to the builder.

A batch that an iterator yields is valid until the next one is requested, since its memory is reused.
"""

from __future__ import annotations

from gossipkv.storage._storage import RecordBatch

__all__ = ["RecordBatch"]

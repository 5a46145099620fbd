"""The values of columns, as another library reads them."""

from __future__ import annotations

import pyarrow as pa

from gossipkv.client._client import Column, Records


def values_of(found: object) -> object:
    """Return a column as a list, and records as a list of lists; anything else as it is."""
    if isinstance(found, Records):
        return [list(row.values()) for row in pa.record_batch(found).to_pylist()]
    return pa.array(found).to_pylist() if isinstance(found, Column) else found

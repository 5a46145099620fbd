"""How a source's files are to be read: what differs between databases, and the limits that bound memory."""

from __future__ import annotations

from dataclasses import dataclass

# The limits of the sorted file.
MAX_KEY_BYTES = 65_535
MAX_VALUE_BYTES = 16 << 20

# Most that one compressed block may become: jobs write blocks of 1 MiB or less, some up to 64 MiB.
MAX_BLOCK_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Reading:
    """What a format has to know."""

    key: str = "key"  # The fields of JSON lines and Parquet.
    value: str = "value"
    max_value_bytes: int = MAX_VALUE_BYTES
    max_block_bytes: int = MAX_BLOCK_BYTES

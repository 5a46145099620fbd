"""Common parts of all formats: the bytes of one file, the options, and one kind of error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from gossipkv.errors import SourceError
from gossipkv.storage import label

if TYPE_CHECKING:
    from collections.abc import Iterator

# The limits of the sorted file.
MAX_KEY_BYTES = 65_535
MAX_VALUE_BYTES = 16 << 20

# Jobs write blocks of 1 MiB or less, some up to 64 MiB.
MAX_BLOCK_BYTES = 64 << 20

# In a node the largest block is this part of `build_memory`.
BLOCKS_IN_MEMORY = 12

# Advice for a block of unknown size; `enough_memory` is for known sizes.
MORE_MEMORY = "in a node, more build_memory allows larger ones"


@dataclass(frozen=True, slots=True)
class FileReading:
    """Options for reading the files of a database."""

    key: str = "key"  # The field names, for formats with named fields.
    value: str = "value"
    max_value_bytes: int = MAX_VALUE_BYTES
    max_block_bytes: int = MAX_BLOCK_BYTES  # The decompressed size of one block, which is in memory as a whole.


class Readable(label.RandomAccess, Protocol):
    """The bytes of one listed file; `gossipkv.dataset.source.reader` lists the errors of reading."""

    def chunks(self, start: int = 0, /) -> Iterator[bytes]:
        """Yield all bytes from `start` on."""


def enough_memory(block_bytes: int) -> str:
    """Name the `build_memory` that allows a block of this size."""
    return f"in a node, build_memory = {-(-block_bytes * BLOCKS_IN_MEMORY >> 20)}MiB would do"


def refusal(name: str, offset: int, reason: str) -> SourceError:
    """Return the error for a wrong file: the place and the reason."""
    return SourceError(f"{name}: byte {offset:,}: {reason}", {"file": name, "offset": offset, "reason": reason})

"""What every format is given, and how every format refuses: the bytes of one file, the options, one kind of error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from gossipkv.errors import SourceError
from gossipkv.storage import label

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gossipkv.errors import Detail

# The limits of the sorted file.
MAX_KEY_BYTES = 65_535
MAX_VALUE_BYTES = 16 << 20

# Jobs write blocks of 1 MiB or less, some up to 64 MiB.
MAX_BLOCK_BYTES = 64 << 20

# In a node the largest block is this part of `build_memory`.
BLOCKS_IN_MEMORY = 12

# What to say of a block whose size is not known; `enough_memory` is for others.
MORE_MEMORY = "in a node, more build_memory allows larger ones"


@dataclass(frozen=True, slots=True)
class Reading:
    """How the files of a database are read."""

    key: str = "key"  # The fields, for formats that name theirs.
    value: str = "value"
    max_value_bytes: int = MAX_VALUE_BYTES
    max_block_bytes: int = MAX_BLOCK_BYTES  # What one compressed block may become: all of it is in memory at once.


class Readable(label.RandomAccess, Protocol):
    """The bytes of one listed file; see `gossipkv.dataset.source.reader`, which says what reading raises."""

    def chunks(self, start: int = 0, /) -> Iterator[bytes]:
        """All bytes from `start` on."""


def enough_memory(block_bytes: int) -> str:
    """Say which `build_memory` allows a block of so many bytes."""
    return f"in a node, build_memory = {-(-block_bytes * BLOCKS_IN_MEMORY >> 20)}MiB would do"


def refusal(name: str, offset: int, reason: str, *, line: int | None = None) -> SourceError:
    """The one error that a wrong file is: what, where, why."""
    details: dict[str, Detail] = {"file": name, "offset": offset, "reason": reason}
    if line is None:
        return SourceError(f"{name}: byte {offset:,}: {reason}", details)
    return SourceError(f"{name}: line {line:,}, byte {offset:,}: {reason}", details | {"line": line})

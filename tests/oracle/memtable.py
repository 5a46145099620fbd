"""The memtable in plain Python: operations as in the log, and a dict that is sorted for each look-up."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Record = tuple[bytes, bytes]
Operation = tuple[int, int, bytes, bytes]  # Kind, space, key, value.

VALUE, TOMBSTONE, NEW_SPACE, DROPPED_SPACE = 1, 2, 3, 4
HEADER = struct.Struct("<BHI")
RECORD_HEADER_BYTES = 6


def internal(space: int, key: bytes) -> bytes:
    return space.to_bytes(4, "big") + key


def encode(operations: Iterable[Operation]) -> bytes:
    payload = bytearray()
    for kind, space, key, value in operations:
        payload += HEADER.pack(kind, 4 + len(key), len(value)) + internal(space, key) + value
    return bytes(payload)


def decode(payload: bytes) -> Iterator[Record]:
    """Yield the records that a payload puts: internal keys, and values after their flag."""
    at = 0
    while at < len(payload):
        kind, key_bytes, value_bytes = HEADER.unpack_from(payload, at)
        at += HEADER.size
        key, value = payload[at : at + key_bytes], payload[at + key_bytes : at + key_bytes + value_bytes]
        at += key_bytes + value_bytes
        if kind in {VALUE, TOMBSTONE}:
            yield key, bytes([kind]) + value


class Memtable:
    """The records, and the bytes of every put, replaced records included."""

    def __init__(self) -> None:
        self.contents: dict[bytes, bytes] = {}
        self.put_bytes = 0

    def apply(self, payload: bytes) -> None:
        for key, value in decode(payload):
            self.contents[key] = value
            self.put_bytes += RECORD_HEADER_BYTES + len(key) + len(value)

    def list_records(self, bound: bytes | None = None, *, reverse: bool = False) -> list[Record]:
        """Return the records from the first not below `bound` on, or from the last below it back."""
        records = sorted(self.contents.items(), reverse=reverse)
        return [record for record in records if bound is None or (record[0] < bound) == reverse]

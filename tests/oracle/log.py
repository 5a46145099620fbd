"""The log in plain Python: its bytes, and the batches that count after a crash.

The code is slow and is meant to be compared with the document by eye. It imports nothing from the package. A log is a
dict from segment numbers to the bytes of their files; `recover` walks along the log as the document says, all in
memory.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tests.oracle.sorted_file import crc32c

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

HEADER_BYTES = 4096
BATCH, MARK, NEXT, BEGIN = 1, 2, 3, 4
VALUE, TOMBSTONE, NEW_SPACE, DROPPED_SPACE = 1, 2, 3, 4

Operation = tuple[int, int, bytes, bytes]  # kind, space, key, value
Name = tuple[int, int]  # number, salt


class Damaged(Exception):
    """Synced bytes do not hold."""

    def __init__(self, number: int, offset: int | None) -> None:
        super().__init__(number, offset)
        self.number = number
        self.offset = offset


class Frame(NamedTuple):
    """The fields of a frame, and its place."""

    offset: int
    end: int
    position: int
    synced: int
    kind: int
    payload: bytes


class LifeEnd(NamedTuple):
    number: int
    position: int
    continued: Name


@dataclass
class Outcome:
    batches: list[tuple[int, bytes]]
    cut: int  # The segment whose frames are written anew,
    end: int  # up to this offset.
    position: int  # The last position that counts.
    last_position: int  # The highest position that was seen.


# Bytes --------------------------------------------------------------------------------------------------------------


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)


def operation(kind: int, space: int, key: bytes, value: bytes) -> bytes:
    return struct.pack("<BHI", kind, 4 + len(key), len(value)) + struct.pack(">I", space) + key + value


def batch(operations: Sequence[Operation]) -> bytes:
    return b"".join(operation(*one) for one in operations)


def frame(salt: int, kind: int, position: int, synced: int, payload: bytes) -> bytes:
    covered = struct.pack("<IQQB7x", len(payload), position, synced, kind) + payload
    return padded(struct.pack("<I", crc32c(covered, crc32c(struct.pack("<Q", salt)))) + covered)


def header(
    store: int, number: int, salt: int, life: int, size: int, *, is_synced: int = 1, format_number: int = 1
) -> bytes:
    covered = b"GKVLOG\r\n" + struct.pack("<IIQQQQQI", format_number, is_synced, store, number, salt, life, size, 0)
    return (covered + struct.pack("<I", crc32c(covered))).ljust(HEADER_BYTES, b"\0")


# Reading ------------------------------------------------------------------------------------------------------------


def frame_at(data: bytes, offset: int, salt: int) -> Frame | None:
    """Return the whole frame at a place, whatever its position."""
    if offset + 32 > len(data):
        return None
    checksum, size, position, synced, kind, zero = struct.unpack_from("<IIQQB7s", data, offset)
    end = offset + len(padded(bytes(32 + size))) if size <= len(data) else len(data) + 1
    if end > len(data) or any(zero) or synced >= position:
        return None
    if not {BATCH: size > 0, MARK: size == 0, NEXT: size == 16, BEGIN: size == 8}.get(kind, False):
        return None
    if any(data[offset + 32 + size : end]):
        return None
    if crc32c(data[offset + 4 : offset + 32 + size], crc32c(struct.pack("<Q", salt))) != checksum:
        return None
    return Frame(offset, end, position, synced, kind, data[offset + 32 : offset + 32 + size])


def frames(data: bytes, salt: int, offset: int = HEADER_BYTES, position: int = 0) -> Iterator[Frame]:
    """Yield consecutive frames; nothing follows a `next`."""
    while (found := frame_at(data, offset, salt)) is not None:
        follows = found.position > position if found.kind == BEGIN else found.position == position + 1
        if position and not follows:
            return
        yield found
        offset, position = found.end, found.position
        if found.kind == NEXT:
            return


def claim(data: bytes, salt: int, offset: int) -> int:
    """Return the highest synced position that a whole frame at or after a place claims."""
    starts = range(offset + -offset % 8, len(data), 8)
    return max((found.synced for at in starts if (found := frame_at(data, at, salt)) is not None), default=0)


def header_of(data: bytes) -> tuple[int, int, int, int] | None:
    """Return store, number, salt and size from a valid segment header."""
    if len(data) < HEADER_BYTES or any(data[64:HEADER_BYTES]) or data[:8] != b"GKVLOG\r\n":
        return None
    format_number, is_synced, store, number, salt, _, size, zero, checksum = struct.unpack_from("<IIQQQQQII", data, 8)
    if checksum != crc32c(data[:60]) or format_number != 1 or is_synced != 1 or zero or size != len(data):
        return None
    return store, number, salt, size


# Recovery -----------------------------------------------------------------------------------------------------------


def recover(log: Mapping[int, bytes], store: int, floor: Name, lives: Sequence[LifeEnd] = ()) -> Outcome:
    """Return the outcome from the segment `floor` on. Raises `Damaged`."""
    synced = max((end.position for end in lives), default=0)
    batches: list[tuple[int, bytes]] = []
    walked: list[list[Frame]] = []
    numbers: list[int] = []
    position, named = 0, floor
    while True:
        continued = {end.number: end.continued for end in lives}
        while named[0] in continued:
            named = continued[named[0]]
        number, salt = named
        data = log.get(number, b"")
        if header_of(data) != (store, number, salt, len(data)):
            raise Damaged(number, None)
        found = [*frames(data, salt, position=position)]
        numbers.append(number)
        walked.append(found)
        batches += [(one.position, one.payload) for one in found if one.kind == BATCH]
        position = found[-1].position if found else position
        if not found or found[-1].kind != NEXT:
            break
        named = struct.unpack("<QQ", found[-1].payload)
    end = walked[-1][-1].end if walked[-1] else HEADER_BYTES
    claims = [synced, claim(data, salt, end)]
    for other, bytes_of_other in log.items():
        told = header_of(bytes_of_other)
        if other > number and told is not None and told[:2] == (store, other):
            claims.append(claim(bytes_of_other, told[2], HEADER_BYTES))
    if max(claims) > position:
        raise Damaged(number, end)
    last_position = max(position, synced, *(one.synced for found in walked for one in found), 0)
    while not walked[-1] and len(walked) > 1:
        walked.pop()
        numbers.pop()
        walked[-1] = walked[-1][:-1]  # Drop the frame that names the empty segment.
    kept = walked[-1]
    return Outcome(
        batches,
        numbers[-1],
        kept[-1].end if kept else HEADER_BYTES,
        kept[-1].position if kept else synced,
        last_position,
    )

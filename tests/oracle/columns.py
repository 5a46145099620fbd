"""Arrow's layout of byte strings, value by value."""

from __future__ import annotations


def values(data: bytes, offsets: bytes | None, offset_bytes: int, width: int, rows: range) -> list[bytes]:
    """Return the values; raises IndexError if one is not within the data."""
    found = []
    for number in rows:
        start, end = number * width, (number + 1) * width
        if offsets is not None:
            start, end = (
                int.from_bytes(offsets[offset_bytes * i : offset_bytes * (i + 1)], "little", signed=True)
                for i in (number, number + 1)
            )
        if not 0 <= start <= end <= len(data):
            raise IndexError(number)
        found.append(data[start:end])
    return found


def chosen(found: list[bytes], indices: bytes, index_bytes: int, first: int, count: int) -> list[bytes]:
    numbers = [
        int.from_bytes(indices[index_bytes * i : index_bytes * (i + 1)], "little", signed=True)
        for i in range(first, first + count)
    ]
    if any(not 0 <= number < len(found) for number in numbers):
        raise IndexError
    return [found[number] for number in numbers]

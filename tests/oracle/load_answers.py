"""The counts of a load generator in plain Python: one pass over all bytes from a server on one connection.

It uses the slow scanner and msgpack's own decoder. Every request was sent before the first answer.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import msgpack

from tests.oracle import msgpack_scanner

LIMITS = {"max_size": 32 << 20, "max_depth": 32, "max_elements": 131_072}
LONGEST_CODE = 40
LARGEST_ID = 2**32 - 1


class Pairs(list):
    """A map, as its pairs in order."""


@dataclass
class Counted:
    """The counts, and the reason why the connection broke, if it did."""

    answered: int = 0
    wrong: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    broken: str | None = None


def count(stream: bytes, asked: dict[int, list[bytes | None]], *, batched: bool) -> Counted:
    """Count the answers; `asked` has the expected values of each id in flight, and answered ids are removed."""
    counted = Counted()
    while stream and counted.broken is None:
        end = msgpack_scanner.scan(stream, **LIMITS)
        if end is None:
            break
        if isinstance(end, tuple):
            counted.broken = "garbage"
            break
        count_one(decode(stream[:end]), asked, counted, batched=batched)
        stream = stream[end:]
    return counted


def decode(data: bytes) -> object:
    """Decode one value: `str` and `bin` stay apart, a map becomes its pairs."""
    return msgpack.unpackb(
        data, raw=False, unicode_errors="surrogateescape", strict_map_key=False, object_pairs_hook=Pairs
    )


def count_one(message: object, asked: dict[int, list[bytes | None]], counted: Counted, *, batched: bool) -> None:
    if not is_array(message, 4) or not is_number(message[0]) or message[0] != 1 or not is_id(message[1]):
        counted.broken = "garbage"
    elif message[1] not in asked:
        counted.broken = "unasked"
    elif message[2] is not None:
        del asked[message[1]]
        counted.errors[code_of(message[2])] += 1
    else:
        counted.answered += 1
        counted.wrong += wrong_in(message[3], asked.pop(message[1]), batched=batched)


def wrong_in(result: object, expected: list[bytes | None], *, batched: bool) -> int:
    """Return how many values are wrong."""
    if not is_array(result, 2):
        return len(expected)
    values = result[0] if batched else [result[0]]
    if not is_array(values):
        return len(expected)
    different = sum(type(got) is not type(value) or got != value for got, value in zip(values, expected, strict=False))
    return different + abs(len(values) - len(expected))


def code_of(error: object) -> str:
    first = error[0] if is_array(error) and error else None
    text = first.encode("utf-8", "surrogateescape") if isinstance(first, str) else first
    if not isinstance(text, bytes) or not 0 < len(text) <= LONGEST_CODE:
        return "other"
    return text.decode("utf-8", "backslashreplace")


def is_array(value: object, length: int | None = None) -> bool:
    return type(value) is list and (length is None or len(value) == length)


def is_number(value: object) -> bool:
    return type(value) is int and value >= 0


def is_id(value: object) -> bool:
    return is_number(value) and value <= LARGEST_ID


def draws(seed: int, number: int, count: int) -> list[int]:
    """Return the first so many keys of a seed: splitmix64, the upper half scaled to the number of records."""
    drawn = []
    state = seed
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        mixed = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB % 2**64
        mixed ^= mixed >> 31
        drawn.append((mixed >> 32) * number >> 32)
    return drawn

"""Frames that are almost valid: mutated in bytes and in structure.

Each frame has its own generator, seeded by its number, so that a failure can be replayed alone: `FUZZ_NUMBER=4711
python -m pytest tests/nightly/fuzz/test_frames_core.py`, with the number that the failure prints. `FUZZ_FRAMES` sets
the number of frames per test.
"""

from __future__ import annotations

import copy
import os
import struct
from typing import TYPE_CHECKING

import msgpack

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable

FRAMES = int(os.environ.get("FUZZ_FRAMES", "100000"))
SEEDS = [
    msgpack.packb([0, 1, "get", ["db", b"key"]]),
    msgpack.packb([0, 70_000, b"get_many", [b"db", [b"a", b"bc", "d"], {"version": "1"}]]),
    msgpack.packb([2, "note", [None, True, 1.5, -1, 2**40]]),
    msgpack.packb([1, 3, ["CODE", "text", {"a": [1, [2, [3]]]}], None]),
    msgpack.packb({"k" * 40: b"v" * 90}),
    b"\x94\x00\xce\x00\x00\x00\x07\xd9\x03get\xdc\x00\x02\xdb\x00\x00\x00\x01x\xc5\x00\x01y",
]
METHODS = ["get", "get_many", "scan", "ping", "info", "status", "refresh", "databases", "", "put", "Get", "get\0"]
ODD = [
    None, True, False, 0, 1, -1, 127, 128, 2**32 - 1, 2**32, 2**63, 2**64 - 1, -(2**63), 1.5, float("nan"), "", "db",
    b"", b"key1", b"\xff\xfe", "v1", [], [b"key1"], [[]], {}, {"version": "v1"}, {"nope": 1}, [None], {"limit": 0},
]  # fmt: skip
OPTIONS = [
    "version", "min_version", "timeout_ms", "start", "end", "prefix", "reverse", "limit", "cursor", "", "nope", b"\xff",
    "explain", "explain", "local",
]  # fmt: skip


def numbers(count: int) -> Iterable[int]:
    """Return all numbers, or only the number to replay."""
    one = os.environ.get("FUZZ_NUMBER")
    return range(count) if one is None else [int(one)]


def replay(number: int, data: bytes) -> str:
    return f"replay with FUZZ_NUMBER={number}; the bytes: {data!r}"


def mutate(draw: random.Random, data: bytes) -> bytes:
    """Make one to four flips, cuts, insertions, repetitions and lying lengths."""
    changed = bytearray(data)
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(changed) + 1)
        match draw.randrange(6):
            case 0 if changed:
                changed[at % len(changed)] ^= 1 << draw.randrange(8)
            case 1 if changed:
                changed[at % len(changed)] = draw.randrange(0x80, 0xE0)
            case 2:
                del changed[at:]
            case 3:
                changed[at:at] = draw.randbytes(draw.randint(1, 5))
            case 4:
                changed[at:at] = changed[: draw.randrange(len(changed) + 1)]
            case _:
                changed[at:at] = bytes([draw.choice([0xC6, 0xDB, 0xDD, 0xDF])]) + draw.randbytes(4)
    return bytes(changed[:400])


class Pairs(list):
    """A map as its pairs, so that a name can occur twice."""


def restructure(draw: random.Random, data: bytes) -> bytes:
    """Change the message one to three times and encode it with heads of any width, one in forty with a wrong length."""
    message = msgpack.unpackb(data, raw=False, strict_map_key=False, object_pairs_hook=Pairs)
    for _ in range(draw.randint(1, 3)):
        message = change(draw, message)
    return encode(draw, message)[:2000]


def odd(draw: random.Random) -> object:
    """Return a misplaced value as a new object, sometimes deeply nested."""
    value = copy.copy(draw.choice(ODD))
    for _ in range(draw.randint(1, 40) if draw.random() < 0.05 else 0):
        value = [value]
    return value


def change(draw: random.Random, message: object) -> object:
    """Change the envelope, a parameter or an option."""
    if not isinstance(message, list) or len(message) < 3:
        return odd(draw)
    params = message[3] if len(message) > 3 and isinstance(message[3], list) else None
    match draw.randrange(10):
        case 0:
            message[1] = draw.choice([1, 9, 10, odd(draw)])
        case 1 | 2:
            message[2] = draw.choice(METHODS)
        case 3:
            message[draw.randrange(len(message))] = odd(draw)
        case 4:
            message.insert(draw.randrange(len(message) + 1), odd(draw))
        case 5:
            del message[draw.randrange(len(message))]
        case 6 | 7 if params:
            params[draw.randrange(len(params))] = odd(draw)
        case 8 if params and isinstance(params[-1], Pairs):
            params[-1].append((draw.choice(OPTIONS), odd(draw)))
        case _ if params is not None:
            params.append(Pairs([(draw.choice(OPTIONS), odd(draw))]))
    return message


def encode(draw: random.Random, value: object) -> bytes:
    """Encode as MessagePack, with heads of any sufficient width."""
    if isinstance(value, str | bytes):
        data = value.encode() if isinstance(value, str) else value
        text = isinstance(value, str) != (draw.random() < 0.2)
        short = 0xA0 if text and len(data) < 32 else None
        return head(draw, len(data), short, [0xD9, 0xDA, 0xDB] if text else [0xC4, 0xC5, 0xC6]) + data
    if isinstance(value, Pairs | dict):
        pairs = list(value.items() if isinstance(value, dict) else value)
        parts = b"".join(encode(draw, part) for pair in pairs for part in pair)
        return head(draw, len(pairs), 0x80 if len(pairs) < 16 else None, [None, 0xDE, 0xDF]) + parts
    if isinstance(value, list):
        parts = b"".join(encode(draw, part) for part in value)
        return head(draw, len(value), 0x90 if len(value) < 16 else None, [None, 0xDC, 0xDD]) + parts
    if type(value) is int and 0 <= value < 2**32 and draw.random() < 0.2:
        return draw.choice([b"\xce" + struct.pack(">I", value), b"\xcf" + struct.pack(">Q", value)])
    return msgpack.packb(value)


def head(draw: random.Random, length: int, short: int | None, wide: list[int | None]) -> bytes:
    """Return a head, the shortest in three of four cases, and sometimes with a wrong length."""
    if draw.random() < 0.025:
        length = draw.choice([max(0, length - 1), length + 1, 0, 15, 255, 65_535, 2**32 - 1])
    if short is not None and length < (32 if short == 0xA0 else 16) and draw.random() < 0.75:
        return bytes([short + length])
    fitting = [at for at, first in enumerate(wide) if first is not None and length < 256 ** (1 << at)]
    at = fitting[0] if draw.random() < 0.75 else draw.choice(fitting)
    return bytes([wide[at]]) + length.to_bytes(1 << at, "big")

"""100,000 mutated frames through the scanner: it agrees with the oracle, or a bug of one of them is found."""

from __future__ import annotations

import random

import msgpack

from gossipkv.errors import ProtocolError
from gossipkv.wire.frames import FrameReader
from tests.oracle import msgpack_scanner

SEED = 20_010_001
FRAMES = 100_000
LIMITS = {"max_size": 200, "max_depth": 6, "max_elements": 40}

SEEDS = [
    msgpack.packb([0, 1, "get", ["db", b"key"]]),
    msgpack.packb([0, 70_000, b"get_many", [b"db", [b"a", b"bc", "d"], {"version": "1"}]]),
    msgpack.packb([2, "note", [None, True, 1.5, -1, 2**40]]),
    msgpack.packb([1, 3, ["CODE", "text", {"a": [1, [2, [3]]]}], None]),
    msgpack.packb({"k" * 40: b"v" * 90}),
    b"\x94\x00\xce\x00\x00\x00\x07\xd9\x03get\xdc\x00\x02\xdb\x00\x00\x00\x01x\xc5\x00\x01y",
]


def mutate(draw: random.Random, data: bytes) -> bytes:
    """One to four flips, cuts, insertions, repetitions and lying lengths."""
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


def test_mutated_frames_are_judged_as_by_the_oracle() -> None:
    """Each is complete, short, or refused with the same reason at the same offset; all three really occur."""
    draw = random.Random(SEED)
    seen = {"complete": 0, "partial": 0, "refused": 0}
    for number in range(FRAMES):
        data = mutate(draw, SEEDS[number % len(SEEDS)])
        reader = FrameReader(LIMITS["max_size"], max_depth=LIMITS["max_depth"], max_elements=LIMITS["max_elements"])
        cut = draw.randrange(len(data) + 1)
        try:
            reader.feed(data[:cut])
            frame = reader.next()
            if frame is None:
                reader.feed(data[cut:])
                frame = reader.next()
            result: int | tuple[str, int] | None = None if frame is None else len(frame)
        except ProtocolError as error:
            result = error.details["reason"], error.details["offset"]
        expected = msgpack_scanner.scan(data, **LIMITS)
        assert result == expected, (SEED, number, data)
        seen["complete" if isinstance(expected, int) else "partial" if expected is None else "refused"] += 1
    assert min(seen.values()) > FRAMES // 20, seen

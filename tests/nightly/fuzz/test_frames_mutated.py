"""FUZZ_FRAMES mutated frames through the scanner: it agrees with the oracle, or either has a bug."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from gossipkv.errors import ProtocolError
from gossipkv.wire.frames import FrameReader
from tests.nightly.fuzz.frames import FRAMES, SEEDS, mutate, numbers, replay, restructure
from tests.oracle import msgpack_scanner

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.timeout(7200)

SEED = 20_010_001
LIMITS = {"max_size": 200, "max_depth": 6, "max_elements": 40}


def read(data: bytes, cut: int) -> int | tuple[str, int] | None:
    """Return the scanner's verdict on a frame that comes in two pieces."""
    reader = FrameReader(LIMITS["max_size"], max_depth=LIMITS["max_depth"], max_elements=LIMITS["max_elements"])
    try:
        reader.feed(data[:cut])
        frame = reader.next()
        if frame is None:
            reader.feed(data[cut:])
            frame = reader.next()
    except ProtocolError as error:
        return error.details["reason"], error.details["offset"]
    return None if frame is None else len(frame)


def test_mutated_frames_are_judged_as_by_the_oracle(record_property: Callable[[str, str], None]) -> None:
    """Each frame is complete, short, or refused with the same reason and offset, and all of these occur."""
    seen: Counter[str] = Counter()
    for number in numbers(FRAMES):
        draw = random.Random(SEED + number)
        seed = SEEDS[number % len(SEEDS)]
        data = (restructure if draw.random() < 0.4 else mutate)(draw, seed)
        expected = msgpack_scanner.scan(data, **LIMITS)
        assert read(data, draw.randrange(len(data) + 1)) == expected, replay(number, data)
        seen["complete" if isinstance(expected, int) else "partial" if expected is None else expected[0]] += 1
    record_property("measured", f"{seen.total():,} frames: {dict(seen)}")
    if seen.total() > 1:
        assert min(seen[end] for end in ("complete", "partial", "size", "depth", "elements")) > 100, seen
        assert min(seen[end] for end in ("extension", "reserved")) > 100, seen
        assert seen.total() == FRAMES

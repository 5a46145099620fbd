"""The writes of a load, and the values that may be read at the end, by the definitions alone."""

from __future__ import annotations

from typing import NamedTuple

from tests.oracle.load_keys import Stream

APART_MS = 20


class Write(NamedTuple):
    """A write of one key: when it was begun and ended, whether it was acknowledged, and whether it deletes."""

    begun_ms: int
    ended_ms: int
    is_done: bool
    deletes: bool = False


def value(run: int, key: int, write: int, sizes: tuple[int, int]) -> bytes:
    """Return the value of a write: its run, its key, its number, and bytes that follow from these."""
    seed = run ^ (key << 32 | write)
    least, most = sizes
    size = least + Stream(seed ^ (2**64 - 1)).below(most - least + 1)
    stream = Stream(seed)
    rest = b"".join(stream.draw().to_bytes(8, "little") for _ in range(0, size - 16, 8))
    head = run.to_bytes(8, "little") + key.to_bytes(4, "little") + write.to_bytes(4, "little")
    return (head + rest)[:size]


def is_before(one: Write, other: Write) -> bool:
    return other.begun_ms - one.ended_ms >= APART_MS


def may_be_last(writes: list[Write], read: int) -> bool:
    """True if the write of this number, from 1 on, may be the last; 0 stands for a state before them all."""
    done = [write for write in writes if write.is_done]
    if read == 0:
        return not done
    found = writes[read - 1]
    return not found.is_done or not any(is_before(found, other) for other in done)

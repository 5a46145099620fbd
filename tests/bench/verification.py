"""Every engine answers every question right before any is timed.

This also pre-faults them equally: afterwards each mapped page that an answer needs has been touched, each block cache
is full and each page checksum has been checked, so no round pays for another's first touch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.bench.measurement import WrongAnswerError

if TYPE_CHECKING:
    from tests.bench.data import Data, Record
    from tests.bench.peers.base import Engine

BATCH = 100
RANGES = 1000
RANGE = 10


def check(engine: Engine, data: Data) -> None:
    """Check all answers. Raises WrongAnswerError with the engine, the operation and the key."""
    get = engine.get
    for key, value in data.records:
        if get(key) != value:
            raise WrongAnswerError(f"{engine.name}: get({key!r})")
    for key in data.absent:
        if get(key) is not None:
            raise WrongAnswerError(f"{engine.name}: get({key!r}) found an absent key")
    if engine.batched:
        _check_batches(engine, data)
    if engine.ordered:
        _check_order(engine, data.in_order)


def values_of(found: list[bytes | Record | None]) -> list[bytes | None]:
    """Return the values of a batched get: LMDB answers with pairs, the others with values."""
    return [each[1] if isinstance(each, tuple) else each for each in found]


def _check_batches(engine: Engine, data: Data) -> None:
    for begin in range(0, data.count, BATCH):
        records = data.records[begin : begin + BATCH]
        if values_of(engine.get_many([key for key, _ in records])) != [value for _, value in records]:
            raise WrongAnswerError(f"{engine.name}: get_many from {records[0][0]!r}")


def _check_order(engine: Engine, in_order: list[Record]) -> None:
    count = 0
    for count, (got, expected) in enumerate(zip(engine.scan(), in_order, strict=True), start=1):
        if tuple(got) != expected:
            raise WrongAnswerError(f"{engine.name}: scan, record {count}: expected {expected[0]!r}, got {got[0]!r}")
    for begin in range(0, count, max(1, count // RANGES)):
        expected_range = in_order[begin : begin + RANGE]
        if [*map(tuple, engine.first(expected_range[0][0], len(expected_range)))] != expected_range:
            raise WrongAnswerError(f"{engine.name}: range from {expected_range[0][0]!r}")

"""Work with the package of one build, in a separate process: a turn for each line read, a line for each turn.

    python tests/bench/one_build.py blocking|trio|lookup PLACE COUNT

`tests.bench.builds` starts it with that build on the module path, so it imports only names that builds have in common.
PLACE is the address of a node, or the path for the file of lookups. Every value is compared.
"""

from __future__ import annotations

import random
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import trio

import gossipkv
from gossipkv.storage.sorted_file import SortedFile
from tests.bench import data
from tests.world.sorted_files import build

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DATABASE = "db"
KEYS = 100_000
TASKS = 64


class WrongValueError(Exception):
    """A build that returns a wrong value is not measured."""


def check(found: object, expected: object) -> None:
    if found != expected:
        raise WrongValueError(f"expected {expected!r}, got {found!r}")


@contextmanager
def blocking(place: str, asked: list[data.Record]) -> Iterator[Callable[[], None]]:
    """Read with the blocking client, a value at a time."""
    with gossipkv.blocking.connect(place) as client:
        get = client.dataset(DATABASE).get

        def turn() -> None:
            for key, value in asked:
                check(get(key), value)

        yield turn


@contextmanager
def tasks(place: str, asked: list[data.Record]) -> Iterator[Callable[[], None]]:
    """Read with the Trio client: each task reads its share, a value at a time."""

    async def run() -> None:
        async with gossipkv.connect(place) as client, trio.open_nursery() as nursery:
            dataset = client.dataset(DATABASE)

            async def read(share: list[data.Record]) -> None:
                for key, value in share:
                    check(await dataset.get(key), value)

            for number in range(TASKS):
                nursery.start_soon(read, asked[number::TASKS])

    yield lambda: trio.run(run)


@contextmanager
def lookup(place: str, asked: list[data.Record]) -> Iterator[Callable[[], None]]:
    """Read from a sorted file of this build, a value at a time."""
    path = Path(place)
    path.unlink(missing_ok=True)
    build(path, data.make(KEYS, data.SMALL_VALUE_BYTES).records)
    with SortedFile(path) as file:
        get = file.get

        def turn() -> None:
            for key, value in asked:
                check(get(key), value)

        yield turn


WORK = {"blocking": blocking, "trio": tasks, "lookup": lookup}


def main(work: str, place: str, count: int) -> None:
    records = data.make(KEYS, data.SMALL_VALUE_BYTES).records
    with WORK[work](place, random.Random(data.SEED).choices(records, k=count)) as turn:
        for line in sys.stdin:
            turn()
            sys.stdout.write(line)
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))

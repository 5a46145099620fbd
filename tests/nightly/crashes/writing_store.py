"""Write batches to a store until killed, and acknowledge each when it is synced: HOW DIRECTORY SEED FIRST...

HOW is `alone`, with writers in turn in one thread, or `together`, with concurrent writers under Trio and merges in
child processes. Each writer has its own keys. Batch N of a writer is `RECORDS` records with the value N, and the
writer's newest key says N. FIRST is the number with which each writer continues, and "WRITER N" on stdout acknowledges
a batch.
"""

from __future__ import annotations

import random
import sys

import trio

from gossipkv.environment.trio_world import real
from gossipkv.storage.engine._engine import Batch
from gossipkv.storage.engine.options import EngineOptions
from gossipkv.storage.engine.shell import open_store
from tests.world.blocking_store import Store

OPTIONS = EngineOptions(segment_bytes=64 << 10, table_log=128 << 10, file_bytes=32 << 10, stretch_bytes=32 << 10)
SPACE = 1
RECORDS = 4
KEYS = 100
WRITERS = 5


def batch_of(writer: int, number: int) -> Batch:
    batch = Batch()
    for key in keys_of(writer, number):
        batch.put(SPACE, key, value_of(number))
    batch.put(SPACE, newest_of(writer), b"%d" % number)
    return batch


def newest_of(writer: int) -> bytes:
    """Return the key that holds a writer's newest number."""
    return b"%d newest" % writer


def keys_of(writer: int, number: int) -> list[bytes]:
    """Return the other keys that a batch writes."""
    drawn = random.Random(number * WRITERS + writer).sample(range(KEYS), RECORDS)
    return [b"%d %d" % (writer, key) for key in drawn]


def value_of(number: int) -> bytes:
    return b"%d " % number * (1 + number % 97)


def say(writer: int, number: int) -> None:
    sys.stdout.write(f"{writer} {number}\n")
    sys.stdout.flush()


def write_alone(directory: str, seed: int, numbers: list[int]) -> None:
    """Write with several writers in turn, and sync now and then."""
    chance = random.Random(seed)
    with Store.open(directory, options=OPTIONS) as store:
        begin(store)
        waiting = []
        while True:
            writer = chance.randrange(WRITERS)
            store.append(batch_of(writer, numbers[writer]))
            waiting.append((writer, numbers[writer]))
            numbers[writer] += 1
            if chance.random() < 0.3:
                store.commit()
                for acknowledged in waiting:
                    say(*acknowledged)
                waiting = []
            if chance.random() < 0.02:
                store.maintain()


def begin(store: Store) -> None:
    """Make the space, unless an earlier life has made it."""
    batch = Batch()
    if SPACE not in store.engine.spaces:
        batch.new_space(store.reserve_space())
        store.write(batch)


async def write_together(directory: str, numbers: list[int]) -> None:
    async def write(writer: int) -> None:
        while True:
            await store.write(batch_of(writer, numbers[writer]))
            say(writer, numbers[writer])
            numbers[writer] += 1

    with Store.open(directory, options=OPTIONS) as alone:
        begin(alone)
    async with open_store(directory, real(), OPTIONS) as store, trio.open_nursery() as nursery:
        for writer in range(WRITERS):
            nursery.start_soon(write, writer)


def main(how: str, directory: str, seed: str, *first: str) -> None:
    numbers = [int(number) for number in first]
    if how == "alone":
        write_alone(directory, int(seed), numbers)
    else:
        trio.run(write_together, directory, numbers)


if __name__ == "__main__":
    main(*sys.argv[1:])

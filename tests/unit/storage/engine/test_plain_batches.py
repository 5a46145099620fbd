"""What most batches take: the short way into the log, and one sync for all who write at once."""

from __future__ import annotations

import random
from collections import Counter

import pytest
import trio

from gossipkv.environment import trio_world
from gossipkv.errors import StorageError
from gossipkv.storage.engine import shell
from gossipkv.storage.engine._log import PUT, Batch
from gossipkv.storage.engine.blocking import Store
from gossipkv.storage.engine.options import Options
from tests.oracle import log as oracle
from tests.world.simulated_files import SimulatedFiles

SMALL = Options(sync=False, segment_bytes=32 << 10, file_bytes=1 << 20, table_log=1 << 20)


def with_spaces(store, count):
    """So many new spaces."""
    batch, spaces = Batch(), [store.reserve_space() for _ in range(count)]
    for space in spaces:
        batch.new_space(space)
    store.write(batch)
    return spaces


def drawn(chance, spaces):
    """A batch, mostly a plain one, and what it does: spaces, keys, values or None."""
    batch, done = Batch(), []
    mixed = chance.random() < 0.2
    space = chance.choice(spaces)
    for _ in range(chance.choice((1, 1, 1, 5, 40))):
        space = chance.choice(spaces) if mixed else space
        key = b"%d" % chance.randrange(200)
        value = None if chance.random() < 0.2 else chance.randbytes(chance.randrange(60))
        if value is None:
            batch.delete(space, key)
        else:
            batch.put(space, key, value)
        done.append((space, key, value))
    return batch, done


@pytest.mark.parametrize("seed", range(3))
def test_what_is_written_straight_is_in_the_log(seed, tmp_path):
    """Past segments and memtables that are full: every batch is in the log once, in order, and there after a kill."""
    chance, history, expected = random.Random(seed), [], {}
    store = Store.open(tmp_path / "s", options=SMALL)
    spaces = with_spaces(store, 3)
    begin = store.engine.position
    for number in range(500):
        batch, done = drawn(chance, spaces)
        assert store.write(batch) == store.engine.synced_position
        history.append(done)
        expected.update({(space, key): value for space, key, value in done})
        if number % 50 == 0:
            assert all(store.get(space, key) == value for (space, key), value in expected.items())
    counts = store.engine.counts
    assert counts.batches == 501
    assert counts.records == sum(map(len, history))
    store._let_go()
    with Store.open(tmp_path / "s", options=SMALL) as again:
        assert all(again.get(space, key) == value for (space, key), value in expected.items())
        position, found = max(begin, again.engine.log_floor), []
        while page := again.read_log(spaces, position):
            batches, position = page
            if not batches:
                break
            found += [
                [(space, key, value if kind == PUT else None) for kind, space, key, value in of] for _, of in batches
            ]
        assert found == history[len(history) - len(found) :]
        assert found


def test_frames_that_are_written_straight_are_as_any_others(tmp_path):
    """Each holds, with the next position, and says what was put."""
    chance, payloads = random.Random(7), []
    store = Store.open(tmp_path / "s", options=Options(sync=False, segment_bytes=1 << 20))
    spaces = with_spaces(store, 2)
    for _ in range(300):
        batch, done = drawn(chance, spaces)
        payloads.append(
            oracle.batch(
                [
                    (oracle.TOMBSTONE if value is None else oracle.VALUE, space, key, value or b"")
                    for space, key, value in done
                ]
            )
        )
        store.write(batch)
    store._let_go()
    data = (tmp_path / "s" / "log" / "0000000000000001.log").read_bytes()
    salt = store.engine.log()[-1].name.salt
    begun, made, *frames = oracle.frames(data, salt)
    assert (begun.kind, made.kind) == (oracle.BEGIN, oracle.BATCH)
    assert [frame.payload for frame in frames] == payloads
    assert [frame.position for frame in frames] == [*range(made.position + 1, made.position + 301)]
    assert {(frame.kind, frame.synced) for frame in frames} == {(oracle.BATCH, 0)}


def test_most_batches_take_the_short_way(tmp_path):
    """The long way is for those that need it: what is not plain, and a look at the pressure now and then."""
    with Store.open(tmp_path / "s", options=Options(sync=False)) as store:
        (space,) = with_spaces(store, 1)
        ways = Counter()
        for number in range(2000):
            batch = Batch()
            batch.put(space, b"%d" % number, bytes(100))
            position = store.engine.write_straight(batch)
            ways["straight" if position else "planned"] += 1
            if not position:
                store.write(batch)
            assert store.get(space, b"%d" % number) == bytes(100)
        assert ways["straight"] > 1990
        other = Batch()
        other.put(space + 1, b"k", b"v")
        assert store.engine.write_straight(other) == 0
        with pytest.raises(ValueError, match="no space"):
            store.write(other)
    with pytest.raises(StorageError, match="closed"):
        store.write(batch)


def test_what_is_synced_or_simulated_is_never_written_straight():
    """A seam with other files, and a store that syncs, have every write go through them."""
    for files, options in ((SimulatedFiles(), Options(sync=False)), (SimulatedFiles(), Options())):
        files.make_directory("/d")
        with Store.open("/d/s", files=files, options=options) as store:
            (space,) = with_spaces(store, 1)
            batch = Batch()
            batch.put(space, b"k", b"v")
            store.write(batch)
            assert store.get(space, b"k") == b"v"
            batches, _ = store.read_log([space], 0)
            assert batches[-1][1] == [(PUT, space, b"k", b"v")]
            if options.sync:
                assert store.engine.write_straight(batch) == 0


async def test_those_who_are_woken_share_the_next_sync(tmp_path):
    """Sixteen tasks that write one batch after the other: a group has all sixteen, but for the first ones."""
    async with shell.open_store(tmp_path / "s", trio_world.real(), Options(segment_bytes=1 << 20)) as store:
        space, batch = store.reserve_space(), Batch()
        batch.new_space(space)
        await store.write(batch)

        async def write(number: int) -> None:
            for turn in range(20):
                await store.put(space, b"%d-%d" % (number, turn), b"v")
                assert store.get(space, b"%d-%d" % (number, turn)) == b"v"

        before = store.engine.counts.groups
        async with trio.open_nursery() as nursery:
            for number in range(16):
                nursery.start_soon(write, number)
        assert store.engine.counts.groups - before <= 20 + 4

"""The store under Trio: waiting, slowed and refused writers, and a failing disk."""

from __future__ import annotations

import errno
import itertools
from collections import Counter
from dataclasses import replace

import msgpack
import pytest
import trio

from gossipkv.errors import Overloaded, StorageError
from gossipkv.replication._replication import ExpiryFilter
from gossipkv.storage.engine._engine import MARK
from gossipkv.storage.engine.merge import ExpiryRule, merge
from gossipkv.storage.engine.options import MAX_WAITING_BYTES
from gossipkv.storage.engine.shell import MARK_AFTER_S, PATIENCE_S, ROWS_AT_ONCE
from tests.unit.storage.engine.shell_world import DIRECTORY, TINY, World, made_space, put
from tests.world.faulty_files import Action, Fault, FaultyFiles
from tests.world.simulated_files import SimulatedFiles

MIB = 1 << 20


async def test_a_failed_sync_of_the_frame_that_names_the_next_segment(autojump_clock):
    """The frame may be on the disk, so the named segment stays after the close, for the next start."""
    disk = SimulatedFiles()
    faulty = FaultyFiles(disk)
    world, kept = World(faulty), []
    async with world.open() as store:
        space = await made_space(store)
        await trio.sleep(3)
        while store.engine._writer.fits(2100, 0):
            kept.append(b"%d" % len(kept))
            await store.write(put(space, kept[-1], bytes(2000)))
        faulty.strike(Fault(0, Action.FAIL, kinds={"sync"}))
        with pytest.raises(StorageError, match="cannot be written"):
            await store.write(put(space, b"lost", bytes(2000)))
        assert faulty.struck
    disk.close_all()
    async with World(disk).open() as store:
        assert all(store.get(space, key) == bytes(2000) for key in kept)


async def test_writers_are_slowed_then_refused_and_served_again(autojump_clock):
    """Without merges the waits grow until the refusal, which has the reason; a merge ends both."""
    world = World()
    may_merge = trio.Event()

    async def merge_later(order, manner):
        await may_merge.wait()
        return await world.merge_here(order, manner)

    async with world.open(run_merge=merge_later) as store:
        space = await made_space(store)
        waits = []
        for number in itertools.count():
            began = trio.current_time()
            try:
                await store.write(put(space, b"%d" % number, bytes(2000)))
            except Overloaded as refusal:
                assert "memtables are full" in refusal.details["reason"]
                assert trio.current_time() - began >= PATIENCE_S
                break
            waits.append(trio.current_time() - began)
        assert waits[0] < waits[-1]
        assert store.get(space, b"0") == bytes(2000)
        assert store.describe()["memtable_bytes"] <= 2 * TINY.memtable_bytes
        may_merge.set()
        await store.write(put(space, b"after", b"1"))
        assert world.merges
        assert store.get(space, b"after") == b"1"
        assert store.get(space, b"%d" % (number - 1)) == bytes(2000)


async def test_who_waits_for_the_disk_goes_on_when_it_has_caught_up(autojump_clock):
    """Writers wait while too many bytes wait for the disk; none is refused."""
    world = World(options=replace(TINY, segment_bytes=64 * MIB))
    async with world.open() as store:
        space = await made_space(store)
        world.threads.hold()
        async with trio.open_nursery() as nursery:
            for number in range(6):
                nursery.start_soon(store.write, put(space, b"%d" % number, bytes(5 * MIB)))
            await trio.sleep(PATIENCE_S / 2)
            assert store.engine.position < store.engine.synced_position + 6
            assert 0 < store.engine._writer.waiting_bytes <= MAX_WAITING_BYTES
            world.threads.let_go()
        assert all(store.get(space, b"%d" % number) is not None for number in range(6))


async def test_who_waits_for_room_is_told_when_the_store_fails(autojump_clock):
    """The error is the store's failure, not the lack of room, and comes at once."""
    faulty = FaultyFiles(SimulatedFiles())
    world = World(faulty, replace(TINY, segment_bytes=64 * MIB))
    told = []

    async def write(store, space, number):
        with pytest.raises(StorageError, match="closed"):
            await store.write(put(space, b"%d" % number, bytes(5 * MIB)))
        told.append(number)

    async with world.open() as store:
        space = await made_space(store)
        world.threads.hold()
        with trio.fail_after(PATIENCE_S * 0.9):
            async with trio.open_nursery() as nursery:
                for number in range(6):
                    nursery.start_soon(write, store, space, number)
                await trio.sleep(PATIENCE_S / 2)
                faulty.strike(Fault(0, Action.FAIL, kinds={"sync"}))
                world.threads.let_go()
        assert sorted(told) == [0, 1, 2, 3, 4, 5]


async def test_a_mark_follows_in_a_pause_and_only_one(autojump_clock):
    """The mark comes within a second after the last write."""
    world = World()
    async with world.open() as store:
        space = await made_space(store)
        position = await store.write(put(space, b"a", b"1"))
        await trio.sleep(2 * MARK_AFTER_S)
        assert store.engine.synced_position == position + 1
        await trio.sleep(20)
        assert store.engine.synced_position == position + 1
        last = world.frames()[-1]
        assert (last.kind, last.position) == (MARK, position + 1)
        assert last.synced == position


async def test_closing_while_a_merge_runs(autojump_clock):
    """The merge is cancelled; its inputs are there at the next start, and its output is removed."""
    world = World()
    begun = trio.Event()

    async def endless(order, manner):
        begun.set()
        await trio.sleep_forever()

    async with world.open(run_merge=endless) as store:
        space = await made_space(store)
        for number in itertools.count():
            await store.write(put(space, b"%d" % number, bytes(2000)))
            if begun.is_set():
                break
    async with world.open() as store:
        assert store.get(space, b"0") == bytes(2000)
        await trio.sleep(10)
        assert world.merges
        assert store.get(space, b"0") == bytes(2000)
        assert store.describe()["young_runs"] == 1


async def test_merges_that_fail_are_tried_again_in_pauses_that_grow(autojump_clock):
    """The pauses grow, and a successful merge ends the retries."""
    world, began = World(), []

    async def failing(order, manner):
        began.append(trio.current_time())
        if len(began) < 6:
            raise StorageError("not yet")
        return await world.merge_here(order, manner)

    async with world.open(run_merge=failing) as store:
        space = await made_space(store)
        for number in range(12):
            await store.write(put(space, b"%d" % number, bytes(2000)))
        await trio.sleep(100)
        pauses = [later - earlier for earlier, later in itertools.pairwise(began[:6])]
        assert pauses == sorted(pauses)
        assert pauses[-1] >= 1.8 * pauses[-2] > 0
        assert store.describe()["young_runs"] == 1
        assert store.describe()["put_off"] == 5


async def test_a_merge_whose_output_is_not_what_was_said(autojump_clock):
    """A false output is removed, the merge is repeated, and no record is lost."""
    world, lies = World(), 3

    async def lying(order, manner):
        nonlocal lies
        await trio.lowlevel.checkpoint()
        output = merge(world.files, order)
        if lies:
            lies -= 1
            file = output.files[0]
            wrong = (file._replace(seal=file.seal ^ 1), file._replace(first=b"\0" * 4), file._replace(records=1))
            output = output._replace(files=(wrong[lies], *output.files[1:]))
        return output

    async with world.open(run_merge=lying) as store:
        space = await made_space(store)
        for number in range(12):
            await store.write(put(space, b"%d" % number, bytes(2000)))
        await trio.sleep(100)
        assert lies == 0
        assert store.describe()["young_runs"] == 1
        assert len(world.files.list_directory(DIRECTORY / "runs")) == len(list(store.manifest.run_files))
        assert store.get(space, b"0") == bytes(2000)
    async with world.open() as store:
        assert store.get(space, b"0") == bytes(2000)


async def test_the_rows_of_a_merge_are_made_between_the_turns_of_others(autojump_clock):
    """A node of many replicas gives a merge as many rows: others run after each `ROWS_AT_ONCE`."""
    world, turns, made = World(), 0, []

    async def other():
        nonlocal turns
        while len(made) < 10 * ROWS_AT_ONCE:
            turns += 1
            await trio.lowlevel.checkpoint()

    def rows(keys):
        yield msgpack.packb((b"", b"", b"", None, 0))
        while len(made) < 10 * ROWS_AT_ONCE:
            made.append(turns)
            yield b""

    async with world.open() as store, trio.open_nursery() as nursery:
        store.expire_by(ExpiryRule(ExpiryFilter.__module__, ExpiryFilter.__name__, lambda: 1, rows))
        nursery.start_soon(other)
        await write_many(store, await made_space(store), 12)
        await trio.sleep(10)
    assert world.merges
    assert max(Counter(made).values()) <= 2 * ROWS_AT_ONCE  # Trio may run either task first in each round.


async def write_many(store, space, count):
    for number in range(count):
        await store.write(put(space, b"%d" % number, bytes(2000)))


async def test_room_that_is_made_by_removing_is_used(autojump_clock):
    """While no segment can be allocated, removals and merges go on, and free the room."""
    faulty = FaultyFiles(SimulatedFiles())
    world = World(faulty)
    async with world.open() as store:
        space = await made_space(store)
        for number in range(8):
            await store.write(put(space, b"%d" % number, bytes(2000)))
        await trio.sleep(10)
        store.engine.upkeep.abandon([12345])
        faulty.strike(Fault(0, Action.FAIL, kinds={"allocate"}, error=errno.ENOSPC, lasting=True))
        merges = world.merges
        with pytest.raises(Overloaded, match="not allocated"):
            await write_many(store, space, 30)
        assert store.engine.upkeep.next_removal() is None, "all is removed"
        assert world.merges > merges
        faulty.strike()
        await trio.sleep(3)
        await store.write(put(space, b"again", b"1"))
        assert store.get(space, b"again") == b"1"

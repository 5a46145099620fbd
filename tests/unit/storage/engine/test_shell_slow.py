"""Tests over real processes, sockets, threads or time; `test_shell.py` has the others."""

from __future__ import annotations

import errno
from collections import Counter

import pytest
import trio

from gossipkv.errors import GossipKVError, StorageError
from gossipkv.storage.engine import shell
from gossipkv.storage.engine._engine import MARK
from tests.unit.storage.engine.shell_world import DIRECTORY, World, made_space, put
from tests.world.faulty_files import CHANGING, Action, Fault, FaultyFiles
from tests.world.simulated_files import SimulatedFiles


async def test_nothing_is_read_before_its_sync_and_a_group_has_what_came_meanwhile():
    """Writes during one group's sync share the next group; each writer wakes when its record is readable."""
    world, woken = World(), []
    async with world.open() as store:
        space = await made_space(store)
        groups = store.describe()["groups"]

        async def write(number):
            key = b"%d" % number
            position = await store.write(put(space, key, key))
            assert store.engine.synced_position >= position
            assert store.get(space, key) == key
            woken.append(position)

        world.threads.hold()
        async with trio.open_nursery() as nursery:
            for number in range(6):
                nursery.start_soon(write, number)
            await trio.testing.wait_all_tasks_blocked()
            assert world.threads.held == 1
            assert store.scan(space) == ([], None)
            assert not woken
            world.threads.let_go()
        assert len(woken) == len(set(woken)) == 6
        assert store.describe()["groups"] == groups + 2, "the first, and all that came while it was written"
        assert [key for key, _ in store.scan(space)[0]] == [b"%d" % number for number in range(6)]


async def test_who_waits_for_less_is_not_held_up_by_who_waits_for_more():
    """Each waiter wakes when its position is synced, in any order of the waits."""
    world, woken = World(), []
    async with world.open() as store:
        space = await made_space(store)
        world.threads.hold()
        position = store.engine.position

        async def wait(place):
            await store.wait(place)
            woken.append(place - position)

        async with trio.open_nursery() as nursery:
            for place in (3, 1, 2):
                nursery.start_soon(wait, position + place)
                await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(store.write, put(space, b"a", b"1"))
            await trio.testing.wait_all_tasks_blocked()
            world.threads.let_go()
            await trio.testing.wait_all_tasks_blocked()
            assert woken == [1]
            await store.write(put(space, b"b", b"1"))
            await store.write(put(space, b"c", b"1"))
        assert woken == [1, 2, 3]


async def test_syncs_are_counted():
    async with World().open() as store:
        await made_space(store)
        told = store.describe()
        assert told["groups"] == told["syncs"] == 2
        assert told["sync_ns"] > 0


async def test_a_cancelled_writer():
    """The batch is written or not, and no other writer is delayed."""
    world = World()
    async with world.open() as store:
        space = await made_space(store)
        world.threads.hold()
        async with trio.open_nursery() as nursery:
            with trio.CancelScope() as gone:
                nursery.start_soon(store.write, put(space, b"first", b"1"))
                await trio.testing.wait_all_tasks_blocked()
                gone.cancel()
                await store.write(put(space, b"gone", b"1"))
            assert gone.cancelled_caught
            nursery.start_soon(store.write, put(space, b"last", b"1"))
            await trio.testing.wait_all_tasks_blocked()
            world.threads.let_go()
        assert [store.get(space, key) for key in (b"first", b"last")] == [b"1", b"1"]
        assert store.get(space, b"gone") in {None, b"1"}


@pytest.mark.parametrize("kind", ["pwrite", "sync"])
async def test_a_failed_write_or_sync_ends_the_store_and_nobody_else(kind):
    """Writers and waiters get the reason, and nothing is retried; synced records are readable, even after the end."""
    disk = SimulatedFiles()
    faulty = FaultyFiles(disk)
    world, told = World(faulty), []
    async with world.open() as store:
        space = await made_space(store)
        await store.write(put(space, b"kept", b"1"))

        async def write(number):
            with pytest.raises(StorageError, match=r"closed: its log cannot be written: .*put/output|I/O") as refusal:
                await store.write(put(space, b"lost %d" % number, b"1"))
            told.append(refusal.value.message)

        world.threads.hold()
        async with trio.open_nursery() as nursery:
            for number in range(4):
                nursery.start_soon(write, number)
            await trio.testing.wait_all_tasks_blocked()
            faulty.strike(Fault(0, Action.FAIL_HALFWAY, kinds={kind}))
            syncs = faulty.counts["sync"]
            world.threads.let_go()
        assert len(told) == 4
        assert store.closed is not None
        await store.failed()
        assert store.scan(space) == ([(b"kept", b"1")], None)
        with pytest.raises(StorageError, match="cannot be written"):
            store.reserve_space()
        with pytest.raises(StorageError, match="cannot be written"):
            await store.write(put(space, b"later", b"1"))
        with pytest.raises(StorageError, match="cannot be written"):
            await store.read_log(store.follow({space}, 0))
    assert faulty.counts["sync"] == syncs + (kind == "sync"), "no sync is tried again"
    assert store.get(space, b"kept") == b"1"
    async with World(disk).open() as again:
        assert again.get(space, b"kept") == b"1"
        assert again.manifest.life == store.manifest.life + 1
    with pytest.raises(StorageError, match="closed"):
        again.get(space, b"kept")


class PlannedError(Exception):
    """An error of the code that uses the store."""


def fail():
    raise PlannedError


@pytest.mark.parametrize("way", ["left", "failed", "cancelled"])
async def test_a_mark_is_the_last_thing_however_the_block_ends(way):
    """The block ends normally, by an error, or by cancellation; unneeded files are removed."""
    world = World()

    with trio.CancelScope() as scope:
        try:
            async with world.open() as store:
                space = await made_space(store)
                position = await store.write(put(space, b"a", b"1"))
                if way == "failed":
                    fail()
                if way == "cancelled":
                    scope.cancel()
                    await trio.lowlevel.checkpoint()
        except* PlannedError:
            assert way == "failed"
    last = world.frames()[-1]
    assert last.kind == MARK
    assert last.synced >= position
    assert len(world.files.list_directory(DIRECTORY / "log")) == 1, "the segment that was prepared is not needed"
    async with world.open() as store:
        assert store.removed == ()
        assert store.torn is None
        assert store.get(space, b"a") == b"1"


async def test_cancelled_while_it_closes():
    """A cancelled close waits for the last group to be written, and no longer."""
    world = World()
    ended = trio.Event()

    async def use(scope):
        with scope:
            async with world.open() as store:
                await made_space(store)
                store.engine.append(put(1, b"a", b"1"))
                world.threads.hold()
                store._begin()
        ended.set()

    scope = trio.CancelScope()
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(use, scope)
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
            await trio.testing.wait_all_tasks_blocked()
            assert not ended.is_set()
            world.threads.let_go()
    assert world.frames()[-1].kind == MARK


async def test_a_thread_that_cannot_be_had_leaves_nothing_open(monkeypatch):
    world = World()

    def refuse(_environment):
        raise OSError(errno.EMFILE, "too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(shell, "committing", refuse)
        with pytest.raises(OSError, match="too many"):
            async with world.open():
                raise AssertionError
    async with world.open() as store:
        await made_space(store)


async def test_a_second_one_is_refused_and_may_come_later():
    """Two stores in one process exclude each other as two processes do."""
    world = World()
    async with world.open():
        with pytest.raises(GossipKVError, match="another process"):
            async with world.open():
                raise AssertionError
    async with world.open():
        pass


async def a_life(world, kept):
    """Open, write through some segments, close; `kept` collects the acknowledged records."""
    async with world.open() as store:
        space = 1
        if space not in store.engine.spaces:
            await made_space(store)
        for number in range(70):
            key = b"%d" % (number % 30)
            value = b"%d" % number * 300
            try:
                await store.write(put(space, key, value))
            except GossipKVError:
                if store.closed:
                    return
                continue
            kept[key] = value


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
async def test_a_failure_at_every_change_of_the_disk(error, autojump_clock):
    """After any single failure writers are served or get an error, the block ends, and acknowledged data stay."""
    kinds = CHANGING | {"open", "free_bytes"}
    calm = FaultyFiles(SimulatedFiles())
    await a_life(World(calm), {})
    outcomes = Counter()
    for at in range(0, sum(calm.counts[kind] for kind in kinds), 7 if error == errno.EIO else 23):
        disk, kept = SimulatedFiles(), {}
        faulty = FaultyFiles(disk, Fault(at, Action.FAIL_HALFWAY, kinds=kinds, error=error))
        try:
            await a_life(World(faulty), kept)
            outcomes["opened"] += 1
        except* (GossipKVError, OSError):
            outcomes["not opened"] += 1
        assert faulty.struck
        disk.close_all()
        async with World(disk).open() as store:
            for key, value in kept.items():
                found = store.get(1, key)
                assert found is not None
                assert int(found[: len(found) // 300]) >= int(value[: len(value) // 300])
    assert outcomes["opened"]
    assert outcomes["not opened"]

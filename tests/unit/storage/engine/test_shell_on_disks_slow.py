"""The store under Trio on a real disk: the writing thread, merging children, and their leftovers."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

import pytest
import trio

from gossipkv.environment.trio_world import real
from gossipkv.errors import StorageError
from gossipkv.storage.engine import parent
from gossipkv.storage.engine.committing import CommitThread
from gossipkv.storage.engine.manifest import RUNS
from gossipkv.storage.engine.options import EngineOptions
from gossipkv.storage.engine.parent import MergeError, merge_in_child
from gossipkv.storage.engine.shell import open_store
from tests.unit.storage.engine.shell_world import made_space, put
from tests.world.blocking_store import Store

SMALL = EngineOptions(segment_bytes=256 << 10, table_log=256 << 10, file_bytes=128 << 10, stretch_bytes=128 << 10)
TINY = EngineOptions(segment_bytes=32 << 10, table_log=32 << 10)


async def briskly(order, manner):
    """Merge in a child with normal priority, since other tests would delay a yielding one."""
    return await merge_in_child(order, lambda: manner()._replace(gives_way=False))


def opened(tmp_path, options=SMALL, *, run_merge=briskly):
    return open_store(tmp_path / "store", real(), options, run_merge=run_merge)


async def until(condition):
    with trio.fail_after(60):
        while not condition():
            await trio.sleep(0.01)


def descriptors():
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0


async def test_many_writers_and_the_thread_in_c(tmp_path):
    """Acknowledged writes are readable at once and after a restart; many share a sync; no descriptor leaks."""
    before = descriptors()
    async with opened(tmp_path) as store:
        assert isinstance(store._committing, CommitThread)
        space = await made_space(store)

        async def write(writer):
            for number in range(8):
                key = b"%d %d" % (writer, number)
                await store.write(put(space, key, key))
                assert store.get(space, key) == key

        async with trio.open_nursery() as nursery:
            for writer in range(32):
                nursery.start_soon(write, writer)
        told = store.describe()
        assert told["batches"] == 32 * 8 + 1
        assert told["groups"] < 100
        assert told["syncs"] == told["groups"]
    del store
    assert descriptors() <= before + 1  # Trio's cache of threads may hold one.
    async with opened(tmp_path) as store:
        assert len(store.scan(space)[0]) == 256


async def test_a_failed_write_of_the_thread(tmp_path):
    """A bad descriptor fails the writer with the reason; the block goes on."""
    async with opened(tmp_path) as store:
        space = await made_space(store)
        await store.write(put(space, b"kept", b"1"))
        await until(lambda: store.engine._writer.prepared is not None)
        await store.settled(mark=True)
        null = os.open("/dev/null", os.O_RDONLY)
        os.dup2(null, store.engine._writer.active.descriptor)
        os.close(null)
        with pytest.raises(StorageError, match="cannot be written: Bad file descriptor"):
            await store.write(put(space, b"lost", b"1"))
        assert "Bad file" in store.closed
    async with opened(tmp_path) as store:
        assert store.get(space, b"kept") == b"1"
        assert store.get(space, b"lost") is None


async def filled(store, count=20, size=20_000):
    space = await made_space(store)
    for number in range(count):
        await store.write(put(space, b"%d" % number, b"%05d" % number * (size // 5)))
    return space


def holds(store, space, count=20, size=20_000):
    return all(store.get(space, b"%d" % number) == b"%05d" % number * (size // 5) for number in range(count))


async def test_children_merge(tmp_path):
    """Children merge full segments during writes, and every record stays, also after a restart."""
    async with opened(tmp_path) as store:
        space = await filled(store)
        await until(lambda: not store.engine.upkeep.closed and store.describe()["young_runs"])
        assert holds(store, space)
        told = store.describe()
        assert told["merged_bytes"] >= told["run_bytes"] > 200_000
        assert told["switches"] >= 1
        files = {file.name for file in store.manifest.run_files}
    assert {entry.name for entry in (tmp_path / "store" / RUNS).iterdir()} == files
    with Store.open(tmp_path / "store", options=SMALL) as store:
        assert store.removed == ()
        assert holds(store, space)


async def test_a_child_that_is_killed_costs_what_it_wrote(tmp_path, monkeypatch):
    """Another child repeats the merge, and reads do not change meanwhile."""
    killed = []

    async def killing(order, manner):
        if len(killed) < 1:
            killed.append(order)
            with monkeypatch.context() as patched:
                patched.setattr(parent, "give_way", lambda process: os.kill(process, signal.SIGKILL) or True)
                patched.setattr(parent, "take_back", lambda process: os.kill(process, signal.SIGKILL) or True)
                with pytest.raises(MergeError, match="killed by signal 9"):
                    await merge_in_child(replace(order, bytes_per_second=1), manner)
            raise MergeError("killed")
        return await briskly(order, manner)

    async with opened(tmp_path, TINY, run_merge=killing) as store:
        space = await filled(store, 7, 5000)
        await until(lambda: store.describe()["young_runs"])
        assert killed
        assert store.describe()["put_off"] >= 1
        assert holds(store, space, 7, 5000)
    async with opened(tmp_path, TINY) as store:
        assert holds(store, space, 7, 5000)


async def test_closing_while_a_child_merges(tmp_path, monkeypatch):
    """The child ends with the store, and the next opening merges again."""
    processes = []
    monkeypatch.setattr(parent, "give_way", lambda process: processes.append(process) or True)
    monkeypatch.setattr(parent, "take_back", lambda process: processes.append(process) or True)

    async def slow(order, manner):
        return await merge_in_child(replace(order, bytes_per_second=1), lambda: manner()._replace(bytes_per_second=1))

    async with opened(tmp_path, TINY, run_merge=slow) as store:
        space = await filled(store, 7, 5000)
        await until(lambda: processes)
    with pytest.raises(ProcessLookupError):
        os.kill(processes[0], 0)
    async with opened(tmp_path, TINY) as store:
        assert holds(store, space, 7, 5000)
        await until(lambda: store.describe()["young_runs"])
        assert holds(store, space, 7, 5000)

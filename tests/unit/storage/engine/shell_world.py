"""Worlds for stores under Trio: simulated disks whose syncs can be held up, and merges in this process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath

import trio

from gossipkv.environment.trio_world import real
from gossipkv.storage.engine._engine import Batch
from gossipkv.storage.engine.committing import write_group
from gossipkv.storage.engine.manifest import SegmentName, read_manifest, segment_path
from gossipkv.storage.engine.merge import merge
from gossipkv.storage.engine.options import EngineOptions
from gossipkv.storage.engine.segments import SegmentReader, read_segment
from gossipkv.storage.engine.shell import open_store
from tests.world.simulated_files import SimulatedFiles

DIRECTORY = PurePosixPath("/store")
TINY = EngineOptions(segment_bytes=24 << 10, table_log=48 << 10, file_bytes=16 << 10, stretch_bytes=16 << 10)


class Inline:
    """Runs jobs without threads, so that a jumping clock waits for them; writes of the log can be held up."""

    def __init__(self):
        self.gate = trio.Event()
        self.gate.set()
        self.held = 0

    async def run(self, function, *arguments, limiter=None, abandon_on_cancel=False):
        """Run the function at once, or a log write when the gate opens."""
        await trio.lowlevel.checkpoint_if_cancelled()
        with trio.CancelScope(shield=True):
            if function is write_group:
                self.held += 1
                await self.gate.wait()
                self.held -= 1
            result = function(*arguments)
            await trio.lowlevel.checkpoint()
        return result

    def hold(self):
        self.gate = trio.Event()

    def let_go(self):
        self.gate.set()


class World:
    def __init__(self, files=None, options=TINY):
        self.files = SimulatedFiles() if files is None else files
        self.options = options
        self.threads = Inline()
        self.merges = 0

    def open(self, *, run_merge=None, **more):
        """Open the store for the duration of a block."""
        environment = replace(real(), files=self.files, threads=self.threads)
        return open_store(DIRECTORY, environment, self.options, run_merge=run_merge or self.merge_here, **more)

    async def merge_here(self, order, manner):
        await trio.lowlevel.checkpoint()
        self.merges += 1
        return merge(self.files, order)

    def frames(self):
        """Return the frames of the newest segment that has any."""
        store = read_manifest(self.files, DIRECTORY).store
        newest = []
        for entry in self.files.list_directory(DIRECTORY / "log"):
            number = int(entry.name.partition(".")[0])
            newest = list(frames_of(self.files, number, store)) or newest
        return newest


def frames_of(files, number, store):
    """Return the frames of a segment with any salt."""
    with SegmentReader(files, segment_path(DIRECTORY, number)) as reader:
        name = SegmentName(number, reader.header.salt)
    return read_segment(files, DIRECTORY, name, store)


async def made_space(store):
    space = store.reserve_space()
    batch = Batch()
    batch.new_space(space)
    await store.write(batch)
    return space


def put(space, key, value):
    batch = Batch()
    batch.put(space, key, value)
    return batch

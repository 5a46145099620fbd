"""A log read for an earlier state of a cursor takes nothing from the read after its reset."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import trio

from gossipkv.environment.trio_world import real
from gossipkv.replication._replication import LogEntry
from gossipkv.replication.deadlines import ParkedRequests
from gossipkv.replication.ports import ReplicationLimits
from gossipkv.replication.shell import Replication
from gossipkv.replication.stream.cursors import LogRead
from gossipkv.storage.engine.shell import Batch, open_store

NODE = b"n" * 16
RECORDS = 4
TIMES = 12  # Tasks are scheduled in a random order.
LONG = bytes(16 << 10)  # Such values are read in another thread, which takes time.


@dataclass(frozen=True)
class Held:
    """The part of a replica that a log read uses."""

    space: int


@pytest.mark.parametrize("has_begun", [False, True])
async def test_a_look_that_is_done_anew_misses_nothing(tmp_path, has_begun):
    """The second read gets all entries, whether the first one waits for its thread or for its turn."""
    async with open_store(tmp_path / "store", real()) as store:
        space = store.reserve_space()
        made = Batch()
        made.new_space(space)
        await store.write(made)
        copy = Held(space)
        written = [await store.put(space, b"%d" % number, LONG) for number in range(RECORDS)]
        replication = Replication(
            store, None, real(), b"m" * 16, ReplicationLimits(relay_s=1.0), waiting=ParkedRequests(1)
        )
        replication.replicas.spaces.read = lambda page, _: [
            LogEntry(copy, (), b"", b"", is_own=False, position=at) for at, _ in page
        ]
        feed = replication.replicas._peer(NODE).sender
        feed.statuses[copy] = None
        lane = feed._shared
        for _ in range(TIMES):
            lane.restart(0)
            async with trio.open_nursery() as nursery:
                lane.is_reading = True
                nursery.start_soon(replication._read_for_sender, NODE, LogRead(lane, lane.serial, written[0] - 1))
                if has_begun:
                    await trio.lowlevel.checkpoint()
                lane.look_anew()
                lane.is_reading = True
                nursery.start_soon(replication._read_for_sender, NODE, LogRead(lane, lane.serial, written[0] - 1))
            assert [entry.position for entry in lane.read] == written
            assert not lane.is_reading

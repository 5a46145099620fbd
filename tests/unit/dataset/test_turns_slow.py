"""Concurrent builds and reads: turns and priorities."""

import os
import signal

import trio

from gossipkv.dataset import library as library_module
from gossipkv.dataset.build import parent
from gossipkv.dataset.build.parent import build_in_child
from gossipkv.dataset.lifecycle import version_build
from gossipkv.dataset.source.reader import CHUNK_BYTES
from gossipkv.processes.niceness import NICENESS
from gossipkv.processes.usage import activity_of
from tests.unit.dataset.world import SLOW_FILES, SLOWLY, active, builds, children, lift_the_throttle, state, until


def niceness(process):
    return os.getpriority(os.PRIO_PROCESS, process)


async def stopped_build(watched, *others):
    """Return the process of a build besides others, stopped after its node has seen it."""
    await until(lambda: watched & {*builds()} - {*others})
    (build,) = {*builds()} - {*others}
    os.kill(build, signal.SIGSTOP)
    return build


async def test_builds_give_way_once_something_is_served(world, monkeypatch):
    """Before that builds keep their priority, so that a small one beside busy neighbours is soon done."""
    monkeypatch.setattr(parent, "FREE_S", 0.0)
    monkeypatch.setattr(parent, "FREE_PART", 0.0)
    watched = set()
    monkeypatch.setattr(parent, "activity_of", lambda process: watched.add(process) or activity_of(process))
    world.put("v1", *SLOW_FILES, database="slow")
    async with world.node(throttle_loads=SLOWLY) as library:
        slow = await stopped_build(watched)
        assert niceness(slow) == os.nice(0)
        world.put("v1", database="quick")
        await library.rescan()
        await active(library, "v1", "quick")
        await until(lambda: niceness(slow) == max(NICENESS, os.nice(0)))
        world.put("v2", *SLOW_FILES, database="quick")
        await library.rescan()
        next_ = await stopped_build(watched, slow)
        await until(lambda: niceness(next_) == max(NICENESS, os.nice(0)))
        assert {niceness(child) for child in children()} == {os.nice(0)}, "what is built next begins as they are"
        lift_the_throttle(library)
        for build in (slow, next_):
            os.kill(build, signal.SIGCONT)
        await active(library, "v1", "slow")


async def test_only_so_many_are_built_at_once_and_share_what_may_be_read(world):
    """`max_parallel_loads` and `throttle_loads` apply."""
    for database in "abcd":
        world.put("v1", b"a\t1\n" * 400_000, database=database)
    most, began = 0, trio.current_time()
    async with world.node(max_parallel_loads=2, throttle_loads=2 << 20) as library:
        while any(library.active(database) is None for database in "abcd"):
            most = max(most, len(children()))
            await trio.sleep(0.01)
        took = trio.current_time() - began
    assert most == 2
    # 6.4 MB at 2 MiB a second, less the first chunk of each build, which is not waited for.
    assert took > (6_400_000 - 4 * CHUNK_BYTES) / (2 << 20)


async def test_a_build_whose_source_hangs_holds_up_no_other(world, monkeypatch):
    """The silent build gives up the only place without ending."""
    ends = []

    async def hanging(job, **means):
        if job.database != "slow":
            return await build_in_child(job, **means)
        try:
            await trio.sleep_forever()
        finally:
            ends.append(trio.current_time())

    monkeypatch.setattr(library_module, "build_in_child", hanging)
    monkeypatch.setattr(version_build, "LOOK_PERIOD_S", 0.03)
    world.put("v1", database="slow")
    async with world.node(max_parallel_loads=1) as library:
        await until(lambda: state(library, "v1", "slow") == "BUILDING")
        world.put("v1", database="quick")
        await library.rescan()
        await active(library, "v1", database="quick")
        assert state(library, "v1", "slow") == "BUILDING"
        assert ends == []


async def test_a_build_that_gets_no_processor_keeps_its_turn(world, monkeypatch):
    """A stopped build is not one whose source hangs, so no further build starts."""
    looks = []
    monkeypatch.setattr(parent, "activity_of", lambda process: looks.append(activity_of(process)) or looks[-1])
    world.put("v1", *SLOW_FILES, database="slow")
    async with world.node(max_parallel_loads=1, throttle_loads=SLOWLY) as library:
        await until(children)
        (slow,) = children()
        os.kill(slow, signal.SIGSTOP)
        monkeypatch.setattr(version_build, "LOOK_PERIOD_S", 0.02)  # A busy machine may be silent for longer before.
        monkeypatch.setattr(parent, "WATCH_PERIOD_S", 0.01)
        world.put("v1", database="quick")
        await library.rescan()
        await until(lambda: len(looks) > 10 * version_build.SILENT_LOOKS)
        assert state(library, "v1", "slow") == "BUILDING"
        assert state(library, "v1", "quick") == "SEEN"
        assert children() == [slow]
        lift_the_throttle(library)
        os.kill(slow, signal.SIGCONT)
        await active(library, "v1", database="quick")

"""A disk error in any task of the tables ends the tables with their store; the node continues."""

from __future__ import annotations

import errno
from types import SimpleNamespace

import pytest
import trio

from gossipkv.errors import Corrupt, StorageError
from gossipkv.table.controllers.supervisor import Controllers

TASKS = ("reconciler", "migrator", "rebalancer", "splitter", "load_stats", "smear_buffer")
ERRORS = (StorageError("the store is closed"), Corrupt("/a", 0, "a page"), OSError(errno.EIO, "Input/output error"))


def works(failing, error, *, begins=True):
    """Return controllers with one failing task, and the list of errors that reach the store."""

    async def run(name, *, task_status=trio.TASK_STATUS_IGNORED):
        if name == failing and not begins:
            raise error
        task_status.started()
        await trio.sleep(1)
        if name == failing:
            raise error
        await trio.sleep_forever()

    def task(name):
        async def its(*, task_status=trio.TASK_STATUS_IGNORED):
            await run(name, task_status=task_status)

        return SimpleNamespace(run=its)

    made, told = Controllers.__new__(Controllers), []
    for name in TASKS:
        setattr(made, name, task(name))
    made.reconciler.look = trio.lowlevel.checkpoint
    catalogue = SimpleNamespace(follower=task("follower"))
    made._tables = SimpleNamespace(metadata=task("metadata"), replication=task("replication"), catalogue=catalogue)
    made._tables.replication.fail = told.append
    return made, told


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("failing", [*TASKS, "metadata", "replication"])
async def test_an_error_of_the_disk_ends_the_store_alone(failing, error, autojump_clock):
    made, told = works(failing, error)
    async with trio.open_nursery() as nursery:
        await nursery.start(made.run, trio.CancelScope())
    assert told == [error]


@pytest.mark.parametrize("failing", ["metadata", "replication"])
async def test_works_that_cannot_begin(failing, autojump_clock):
    """The caller gets the error itself, not an exception group."""
    made, told = works(failing, ERRORS[0], begins=False)
    async with trio.open_nursery() as nursery:
        with pytest.raises(StorageError, match="closed"):
            await nursery.start(made.run, trio.CancelScope())
    assert told == [ERRORS[0]]


async def test_replicas_are_placed_before_a_peer_may_feed_them(autojump_clock):
    """A replica without a placement takes no entry, and the peer would send all behind that in vain."""
    made, _ = works("", None)
    at = []

    async def look():
        await trio.sleep(3)
        at.append(trio.current_time())
        raise ERRORS[0]  # The next round tries again.

    made.reconciler.look = look
    async with trio.open_nursery() as nursery:
        await nursery.start(made.run, scope := trio.CancelScope())
        assert at == [trio.current_time()]
        scope.cancel()


async def test_a_defect_is_no_error_of_the_disk(autojump_clock):
    made, told = works("rebalancer", AssertionError("a defect"))
    with pytest.RaisesGroup(AssertionError, flatten_subgroups=True):
        async with trio.open_nursery() as nursery:
            await nursery.start(made.run, trio.CancelScope())
    assert told == []

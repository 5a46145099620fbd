"""Appends call back once each, in order, when they are synced or the store is closed."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
import trio

from gossipkv.errors import Overloaded, StorageError
from gossipkv.storage.engine import policy
from gossipkv.storage.engine.options import MAX_WAITING_BYTES
from tests.unit.storage.engine.shell_world import TINY, World, made_space, put
from tests.world.faulty_files import Action, Fault, FaultyFiles
from tests.world.logs import capture_logs
from tests.world.simulated_files import SimulatedFiles

MIB = 1 << 20


class Told:
    """Appends, with the results that their callbacks received."""

    def __init__(self, store, space):
        self.store = store
        self.space = space
        self.errors = {}  # By position, in the order of the callbacks.

    def append(self, key, size_bytes=1):
        def on_synced(error):
            assert position not in self.errors, "told once"
            assert (self.store.get(self.space, key) is not None) == (error is None)
            self.errors[position] = error

        position = self.store.append(put(self.space, key, bytes(size_bytes)), on_synced)
        assert position not in self.errors, "not from within"
        return position


async def test_who_appended_is_told_in_order_of_what_shares_a_sync():
    """Hundreds of appends during a group's write join the next group, without a task, even if one callback raises."""
    world = World()
    async with world.open() as store:
        told = Told(store, await made_space(store))
        groups = store.describe()["groups"]
        world.threads.hold()
        tasks = trio.lowlevel.current_statistics().tasks_living
        positions = [told.append(b"%03d" % number) for number in range(300)]
        wrong = store.append(put(told.space, b"wrong", b"1"), int)  # int(None) raises.
        positions.append(told.append(b"last"))
        await trio.testing.wait_all_tasks_blocked()
        assert trio.lowlevel.current_statistics().tasks_living == tasks
        assert not told.errors
        with capture_logs() as logs:
            world.threads.let_go()
            await store.settled()
        assert [*told.errors.items()] == [(position, None) for position in positions]
        assert store.describe()["groups"] == groups + 2
        assert [(line["event"], line["position"]) for line in logs] == [("callback_defect", wrong)]


async def test_callbacks_that_append_again():
    """The appends of all callbacks join one group."""
    world = World()
    async with world.open() as store:
        space, left = await made_space(store), {b"a": 3, b"b": 3, b"c": 3}
        groups = store.describe()["groups"]

        def begin(key):
            left[key] -= 1
            store.append(put(space, key, b"1"), lambda error: left[key] and begin(key))

        world.threads.hold()
        Told(store, space).append(b"before")
        for key in left:
            begin(key)
        world.threads.let_go()
        while any(left.values()):
            await store.settled()
        await store.settled()
        assert store.describe()["groups"] == groups + 4, "one for each round, and that before"


@pytest.mark.parametrize("kind", ["pwrite", "sync"])
async def test_a_failed_sync_is_told_to_all_who_have_appended(kind):
    """Appends of the failed group and later ones get the reason in order; new appends are refused at once."""
    faulty = FaultyFiles(SimulatedFiles())
    world = World(faulty)
    async with world.open() as store:
        told = Told(store, await made_space(store))
        kept = told.append(b"kept")
        await store.settled()
        world.threads.hold()
        lost = [told.append(b"lost %d" % number) for number in range(5)]
        faulty.strike(Fault(0, Action.FAIL_HALFWAY, kinds={kind}))
        world.threads.let_go()
        await store.failed()
        assert [*told.errors] == [kept, *lost]
        assert told.errors.pop(kept) is None
        assert all(isinstance(error, StorageError) and "its log" in str(error) for error in told.errors.values())
        with pytest.raises(StorageError, match="its log cannot be written"):
            told.append(b"later")
    assert len(told.errors) == len(lost)


async def test_what_is_appended_while_the_store_closes():
    """The callback gets the sync or the store's closing; a later append is refused."""
    world, errors = World(), []
    async with world.open() as store:
        space = await made_space(store)

        def again(error):
            errors.append(error)
            try:
                store.append(put(space, b"%d" % len(errors), b"1"), again)
            except StorageError as refusal:
                assert str(refusal) == str(error)

        again(None)
    assert isinstance(errors.pop(), StorageError)
    assert set(errors) == {None}
    async with world.open() as store:
        assert all(store.get(space, b"%d" % number) is not None for number in range(1, len(errors)))


async def test_an_append_that_finds_no_room_is_refused_at_once():
    """A refused append writes nothing; there is room again after the waiting groups are written."""
    world = World(options=replace(TINY, segment_bytes=64 * MIB))
    async with world.open() as store:
        told = Told(store, await made_space(store))
        world.threads.hold()
        count = 1 + MAX_WAITING_BYTES // (5 * MIB)  # One of them is being written.
        positions = [told.append(b"%d" % number, 5 * MIB) for number in range(count)]
        with pytest.raises(Overloaded, match="wait to be written to the disk"):
            told.append(b"refused", 5 * MIB)
        world.threads.let_go()
        await store.settled()
        positions.append(told.append(b"again", 5 * MIB))
        await store.settled()
        assert [*told.errors] == positions


@pytest.mark.parametrize("pressure", [policy.Pressure(3600.0, None), policy.Pressure(0.0, "as planned")])
async def test_an_append_is_not_slowed_but_refused(monkeypatch, pressure):
    """A delay does not apply to appends; only a refusal does."""
    async with World().open() as store:
        told = Told(store, await made_space(store))
        monkeypatch.setattr(policy, "pressure", lambda *_: pressure)
        store.engine.free_bytes = MIB  # Forces a new look at the pressure.
        with pytest.raises(Overloaded, match="as planned") if pressure.refusal else contextlib.nullcontext():
            told.append(b"a")
        await store.settled()
        assert len(told.errors) == (pressure.refusal is None)


async def test_the_spaces_are_those_that_are_synced():
    """A space that is made or dropped counts from its sync on."""
    world = World()
    async with world.open() as store:
        assert store.spaces() == []
        spaces = [await made_space(store) for _ in range(3)]
        assert store.spaces() == spaces == sorted(spaces)
        batch = put(spaces[0], b"a", b"1")
        batch.drop_space(spaces[1])
        store.append(batch, lambda error: None)
        assert store.spaces() == spaces
        await store.settled()
        assert store.spaces() == [spaces[0], spaces[2]]
    async with world.open() as store:
        assert store.spaces() == [spaces[0], spaces[2]]

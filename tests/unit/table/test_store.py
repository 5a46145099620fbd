"""The store of a node's tables: its opening, the reasons to stay closed, and crashes."""

from __future__ import annotations

import contextlib
import random
from pathlib import PurePath
from types import SimpleNamespace

import pytest
import trio

from gossipkv.environment.trio_world import real
from gossipkv.errors import Corrupt, StorageError, Unavailable, UnsupportedFormat
from gossipkv.node.directory import DataDirectory
from gossipkv.table.store import FORGET, ClosedStore, OpenedStore, TableStore, decide
from tests.unit.storage.engine.shell_world import Inline
from tests.unit.table.fake_store import FakeStores, put_store
from tests.world.faulty_files import CHANGING, Action, Fault, FaultyFiles
from tests.world.logs import capture_logs
from tests.world.simulated_files import SimulatedFiles

WORLD = real()
PLACE = PurePath("/n/tables")


@pytest.mark.parametrize(("store", "life", "found", "expected"), [
    (0, 0, None, None),
    (0, 0, (7, 1), OpenedStore(7, 1)),
    (0, 0, (7, 2), "not belong to this node, which has no store"),
    (5, 0, None, "missing"),
    (5, 3, None, "missing"),
    (5, 3, (5, 3), OpenedStore(5, 3)),
    (5, 3, (5, 4), OpenedStore(5, 4)),
    (5, 3, (5, 5), "an older copy of NODE"),
    (5, 3, (5, 2), "an older copy of the store"),
    (5, 1, (5, 1), OpenedStore(5, 1)),
    (5, 2, (5, 1), "an older copy of the store"),
    (5, 3, (7, 1), "not belong to this node, whose store is 0000000000000005"),
    (5, 3, (7, 3), "not belong to this node"),
    (5, 3, (7, 4), "not belong to this node"),
])  # fmt: skip
def test_what_becomes_of_a_store(store, life, found, expected):
    """NODE and the manifest decide; a refusal names path, reason and remedy."""
    decision = decide(store, life, found, PLACE)
    if isinstance(expected, str):
        assert isinstance(decision, ClosedStore)
        assert expected in decision.why
        assert decision.why.startswith("/n/tables: ")
        assert decision.why.endswith(FORGET)
    else:
        assert decision == expected


@contextlib.contextmanager
def directory_in(path, files=WORLD.files):
    with DataDirectory.open(path, files, cluster="test", random=random.Random(1)) as directory:
        yield directory


@contextlib.asynccontextmanager
async def running(directory, stores, files=WORLD.files):
    """Run the tables of the directory during the block, and end them properly."""
    environment = SimpleNamespace(files=files, threads=WORLD.threads)
    tables = TableStore(directory.path / "tables", directory, environment, stores)
    async with trio.open_nursery() as nursery:
        await nursery.start(tables.run)
        yield tables
        await tables.end()


async def test_no_tables(tmp_path):
    """No store is made without a request, and the error says that there is none."""
    stores = FakeStores()
    with directory_in(tmp_path) as directory:
        async with running(directory, stores) as tables:
            assert tables.to_map() == {"state": "none", "why": None, "lost": False, "store": None, "life": 0}
            with pytest.raises(Unavailable, match="this node has no tables"):
                tables.opened()
    assert not (tmp_path / "tables").exists()


async def test_made_on_demand_and_opened_from_then_on(tmp_path):
    """Concurrent requests make one store; each start is a life, which NODE records."""
    stores = FakeStores()
    with directory_in(tmp_path) as directory:
        async with running(directory, stores) as tables:
            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(tables.create)
            assert len(stores.open) == 1
            assert tables.opened() is stores.open[0] is await tables.create()
            assert (directory.record.store, directory.record.life) == (0xABC, 1)
    for life in (2, 3, 4):
        with directory_in(tmp_path) as directory:
            async with running(directory, stores) as tables:
                assert tables.opened().manifest.life == life
                assert (directory.record.store, directory.record.life) == (0xABC, life)
                assert tables.to_map() == {
                    "state": "open", "why": None, "lost": False, "store": "0000000000000abc", "life": life,
                    "log_damage": None, "counters": {"groups": 3, "syncs": 2, "sync_ns": 1_000},
                }  # fmt: skip
    assert stores.ends == [1, 2, 3, 4]
    assert not stores.open


async def test_a_store_that_cannot_be_made_is_a_trouble(tmp_path):
    """The reason stays until a store is made, though no table needs the store."""
    stores = FakeStores()
    with directory_in(tmp_path) as directory:
        async with running(directory, stores) as tables:
            assert tables.trouble is None
            stores.refuses = [OSError(28, "No space left on device")]
            with pytest.raises(Unavailable, match="No space left"):
                await tables.create()
            assert (tables.state, "No space left" in tables.trouble) == ("none", True)
            await tables.create()
            assert tables.trouble is None


async def test_damage_in_log_that_only_readers_need_is_told(tmp_path):
    """The damage is logged and shown in `info`, and the tables are open."""
    stores = FakeStores()
    stores.damage = "a bit"
    with directory_in(tmp_path) as directory, capture_logs() as lines:
        async with running(directory, stores) as tables:
            await tables.create()
            assert (tables.to_map()["state"], tables.to_map()["log_damage"]) == ("open", "a bit")
    told = [line for line in lines if line["event"] == "tables_log_damaged"]
    assert [(line["log_level"], line["reason"]) for line in told] == [("warning", "a bit")]


async def test_a_closed_store_is_left_as_it_is(tmp_path):
    """The reason is reported and logged, and nothing is made or changed, even on a request for tables."""
    stores = FakeStores()
    put_store(WORLD.files, tmp_path / "tables", 7, 4)
    manifest = (tmp_path / "tables" / "MANIFEST").read_bytes()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "tables").rename(tmp_path / "elsewhere" / "tables")
    with directory_in(tmp_path / "data") as directory:
        (tmp_path / "elsewhere" / "tables").rename(tmp_path / "data" / "tables")
        with capture_logs() as lines:
            async with running(directory, stores) as tables:
                told = tables.to_map()
                assert (told["state"], told["store"]) == ("closed", None)
                assert "not belong to this node" in told["why"]
                with pytest.raises(Unavailable, match=r"the tables of this node are closed: .*--forget-tables") as no:
                    tables.opened()
                assert no.value.details == {"reason": told["why"]}
                with pytest.raises(Unavailable, match="the tables of this node are closed"):
                    await tables.create()
        assert [line["event"] for line in lines] == ["tables_closed"]
        assert (directory.record.store, directory.record.life) == (0, 0)
    assert (tmp_path / "data" / "tables" / "MANIFEST").read_bytes() == manifest


@pytest.mark.parametrize(("error", "told"), [
    (Corrupt("/t/log/1", 4096, "torn"), r"/t/log/1: damaged at byte 4096: torn: .*--forget-tables"),
    (StorageError("/t/log: no room"), "no room; start the node again after the repair"),
    (OSError(5, "Input/output error"), "the store of this node's tables cannot be opened: Input/output error; start"),
    (UnsupportedFormat("/t/MANIFEST: a newer one"), "/t/MANIFEST: a newer one$"),
])  # fmt: skip
@pytest.mark.parametrize("is_grouped", [False, True])
async def test_what_cannot_be_opened_stays_closed(tmp_path, error, told, is_grouped):
    """The error has the reason and the remedy; the node continues, and the next start may open the store."""
    stores = FakeStores()
    with directory_in(tmp_path) as directory:
        async with running(directory, stores) as tables:
            await tables.create()
    stores.refuses = [ExceptionGroup("a nursery", [error]) if is_grouped else error]
    with directory_in(tmp_path) as directory:
        async with running(directory, stores) as tables:
            with pytest.raises(Unavailable, match=told):
                tables.opened()
            assert directory.record.life == 1
    with directory_in(tmp_path) as directory:
        async with running(directory, stores) as tables:
            assert tables.opened().manifest.life == 2


async def test_a_defect_ends_the_node(tmp_path):
    """Only disk errors close the store."""
    stores = FakeStores()
    with directory_in(tmp_path) as directory:
        async with running(directory, stores) as tables:
            await tables.create()
        stores.refuses = [ZeroDivisionError()]
        with pytest.raises(ExceptionGroup) as caught:
            async with running(directory, stores):
                pytest.fail("it did not begin")
    assert caught.group_contains(ZeroDivisionError, depth=None)


async def test_a_damaged_manifest_is_named(tmp_path):
    """Any flipped byte closes the store, with the file in the reason."""
    stores = FakeStores()
    with directory_in(tmp_path) as directory:
        async with running(directory, stores) as tables:
            await tables.create()
        path = tmp_path / "tables" / "MANIFEST"
        whole = path.read_bytes()
        for at in range(0, len(whole), 7):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            async with running(directory, stores) as tables:
                assert tables.closed is not None
                assert tables.closed.startswith(str(path))
        path.write_bytes(whole)
        async with running(directory, stores) as tables:
            assert tables.closed is None


EIO = "/t/log/1: cannot be synced: Input/output error"


async def state_after(tables, seconds):
    await trio.sleep(seconds)
    return tables.state


@contextlib.asynccontextmanager
async def open_on(files, stores):
    """Run tables with an open store in simulated time, and yield them with their directory."""
    environment = SimpleNamespace(files=files, threads=Inline())
    with directory_in(PurePath("/n"), files) as directory:
        tables = TableStore(PLACE, directory, environment, stores)
        async with trio.open_nursery() as nursery:
            await nursery.start(tables.run)
            await tables.create()
            yield tables, directory
            await tables.end()


async def test_a_store_that_fails(autojump_clock):
    """The store is reopened in a new life, which NODE records; until then errors give the reason."""
    stores = FakeStores()
    async with open_on(SimulatedFiles(), stores) as (tables, directory):
        stores.open[0].fail(EIO)
        assert tables.state == "closed"
        with pytest.raises(Unavailable, match=r"cannot be synced.*tries again to open"):
            tables.opened()
        with pytest.raises(Unavailable, match="cannot be synced"):
            await tables.create()
        assert await state_after(tables, 0.9) == "closed"
        assert await state_after(tables, 0.2) == "open"
        assert tables.opened().manifest.life == directory.record.life == 2


async def test_a_store_that_fails_again_and_again(autojump_clock):
    """Pauses double up to a minute, for failures in use and at opening; after a good minute they are short."""
    stores = FakeStores()
    async with open_on(SimulatedFiles(), stores) as (tables, _):
        for pause_s in (1, 2, 4, 8, 16, 32, 60, 60):
            stores.open[0].fail(EIO)
            assert await state_after(tables, pause_s - 0.1) == "closed"
            assert await state_after(tables, 0.2) == "open"
        assert await state_after(tables, 61) == "open"
        stores.open[0].fail(EIO)
        stores.fails = [StorageError("/t/MANIFEST: cannot be written")]
        assert await state_after(tables, 1.1) == "closed"
        assert "MANIFEST" in tables.closed
        assert await state_after(tables, 1.8) == "closed"
        assert await state_after(tables, 0.2) == "open"


@pytest.mark.parametrize("error", [Corrupt("/t/log/1", 4096, "torn"), UnsupportedFormat("/t: a newer one")])
async def test_a_store_that_failed_and_is_found_damaged(autojump_clock, error):
    """The store stays closed, since acknowledged data are missing."""
    stores = FakeStores()
    async with open_on(SimulatedFiles(), stores) as (tables, _):
        stores.open[0].fail(EIO)
        stores.fails = [error]
        assert await state_after(tables, 600) == "closed"
        assert error.message in tables.closed
        assert not stores.fails


async def test_a_store_that_cannot_be_made(tmp_path):
    """The caller gets the reason; there is still no store, and a later attempt may succeed."""
    stores = FakeStores()
    stores.refuses = [StorageError("/t: no room")] * 2
    with directory_in(tmp_path) as directory:
        async with running(directory, stores) as tables:
            for _ in range(2):
                with pytest.raises(Unavailable, match=r"/t: no room; the next request to create a table tries again$"):
                    await tables.create()
                assert tables.state == "none"
            assert (await tables.create()).manifest.life == 1


async def test_a_silent_start_opens_it_when_it_can_write(tmp_path):
    """A store that was closed because nothing could be written opens at the next look after the repair."""
    stores = FakeStores()
    with directory_in(tmp_path) as directory:
        async with running(directory, stores) as tables:
            await tables.create()
    files = FaultyFiles(WORLD.files, Fault(0, Action.FAIL, kinds=CHANGING, lasting=True))
    with directory_in(tmp_path, files) as directory:
        assert directory.silence is not None
        async with running(directory, stores, files) as tables:
            assert tables.state == "closed"
            files.faults = ()
            directory.begin()
            tables.look_again()
            while tables.state != "open":
                await trio.lowlevel.checkpoint()
            assert directory.record.life == 2
            tables.look_again()
            await trio.testing.wait_all_tasks_blocked()
            assert len(stores.open) == 1, "what is open stays so"


async def test_copies_of_store_and_node_that_are_put_back(tmp_path):
    """Copies of one moment, or with a store one life ahead, open; other combinations stay closed."""
    stores = FakeStores()
    copies = []
    for _ in range(3):
        with directory_in(tmp_path) as directory:
            async with running(directory, stores) as tables:
                await tables.create()
        copies.append([(tmp_path / name).read_bytes() for name in ("NODE", "tables/MANIFEST")])
    states = {}
    for of_node, (node, _) in enumerate(copies):
        for of_store, (_, manifest) in enumerate(copies):
            (tmp_path / "NODE").write_bytes(node)
            (tmp_path / "tables" / "MANIFEST").write_bytes(manifest)
            with directory_in(tmp_path) as directory:
                async with running(directory, stores) as tables:
                    states[of_node, of_store] = tables.state
    assert states == {
        (0, 0): "open", (0, 1): "open", (0, 2): "closed",
        (1, 0): "closed", (1, 1): "open", (1, 2): "open",
        (2, 0): "closed", (2, 1): "closed", (2, 2): "open",
    }  # fmt: skip

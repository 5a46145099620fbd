"""Datasets with names of tables: served and built datasets keep their names, others are refused."""

import pytest
import trio.testing

from tests.unit.dataset.world import SLOW_FILES, SLOWLY, active, amid_its_build, lift_the_throttle, until


def seen(library, name="db"):
    """Return whether a library knows, lists, serves and refuses a name."""
    listed = [told["name"] for told in library.databases()]
    is_held = any(held.database == name for held in library.held())
    return library.known(name), name in listed, is_held, name in library.refused()


KEPT, REFUSED = (True, True, True, False), (False, False, False, True)


@pytest.fixture
def tables(world):
    """Return the set of names of tables."""
    world.tables = set()
    return world.tables


async def test_a_dataset_under_the_name_of_a_table_is_not_built(world, tables):
    """The dataset is refused over restarts until the table is gone; other datasets go on."""
    tables.add("db")
    world.put("v1")
    world.put("v1", database="other")
    for _ in range(2):
        async with world.node() as library:
            await active(library, "v1", "other")
            assert await library.rescan() == {"other": ["v1"]}
            assert await library.rescan("db") == {}
            assert library.status().keys() == library.by_database().keys() == {"other"}
            assert (library.known("db"), library.refused()) == (False, ["db"])
            assert {held.database for held in library.held()} == {"other"}
            assert library._databases["db"].lives == {}  # Without lives nothing is published either.
    async with world.node() as library:
        tables.clear()
        library.names_changed()
        await active(library, "v1")
        assert seen(library) == KEPT


async def test_what_was_built_keeps_its_name(world, tables):
    """The name is kept over restarts, whatever the source has by then."""
    world.put("v1")
    async with world.node() as library:
        await active(library, "v1")
        tables.add("db")
        library.names_changed()
        world.put("v2")
        library.refresh("db")
        await active(library, "v2")
        assert seen(library) == KEPT
    for _ in range(2):
        async with world.node(source=None) as library:
            assert seen(library) == KEPT
            assert library.active("db").name == "v2"


async def test_what_is_being_built_keeps_its_name(world, tables):
    """Otherwise reads would go to the table until the build ends, and then to the dataset."""
    world.put("v1", *SLOW_FILES)
    async with world.node(throttle_loads=SLOWLY) as library:
        await amid_its_build(library, "v1")
        tables.add("db")
        library.names_changed()
        assert library.known("db")
        lift_the_throttle(library)
        await active(library, "v1")
        assert seen(library) == KEPT


async def test_what_was_only_seen_gives_way(world, tables):
    """A version that waits for its build gives way as soon as a table has the name."""
    world.put("v1", *SLOW_FILES, database="a")
    async with world.node(throttle_loads=SLOWLY, max_parallel_loads=1) as library:
        await until(lambda: library.status().get("a", {"versions": {}})["versions"].get("v1", {}).get("progress"))
        world.put("v1")
        await library.rescan("db")
        await until(lambda: library.status()["db"]["versions"])
        tables.add("db")  # The library has not been told yet.
        lift_the_throttle(library)
        await active(library, "v1", "a")
        for _ in range(10):
            await trio.testing.wait_all_tasks_blocked(0.01)
        assert (library.active("db"), seen(library)) == (None, REFUSED)
        await library.rescan()
        assert not any(life.source for life in library._databases["db"].lives.values())

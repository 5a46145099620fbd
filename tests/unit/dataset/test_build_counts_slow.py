"""Builds are counted: each begun build is done, failed, stopped or running."""

from dataclasses import fields

from gossipkv.dataset.shared_resources import BuildCounts
from tests.unit.dataset.sources import lines
from tests.unit.dataset.world import active, state, until


def builds(library):
    counters = library.counters()
    return [counters[f"builds_{what}"] for what in ("begun", "done", "failed", "stopped")]


async def test_what_was_built_and_what_was_not(world):
    """Successful builds count their bytes; a failed one has none, and its retry counts again."""
    world.put("v1", lines(a="v1"), lines(b="v1"))
    async with world.node() as library:
        assert builds(library)[2:] == [0, 0]
        await active(library, "v1")
        assert builds(library) == [1, 1, 0, 0]
        told = library.status()["db"]["versions"]["v1"]
        counters = library.counters()
        assert counters["built_bytes"] == told["size_bytes"]
        assert counters["built_source_bytes"] == told["source_bytes"] == len(lines(a="v1")) + len(lines(b="v1"))
        world.put("v2", b"no tab in it\n")
        await library.rescan()
        await until(lambda: state(library, "v2") == "ERROR")
        assert builds(library) == [2, 1, 1, 0]
        assert library.counters()["built_bytes"] == told["size_bytes"]
        (world.source / "db/v2/part-0").write_bytes(lines(a="v2"))
        await library.rescan()
        await active(library, "v2")
        assert builds(library) == [3, 2, 1, 0]
        assert library.counters()["built_bytes"] > told["size_bytes"]


def test_each_count_has_its_name():
    numbers = [2**at for at in range(len(fields(BuildCounts)))]
    told = BuildCounts(*numbers).to_map()
    assert [told[name] for name in (
        "builds_begun", "builds_done", "builds_failed", "builds_stopped", "built_bytes", "built_source_bytes",
    )] == numbers  # fmt: skip

"""A library that may not write serves the active version and does nothing else."""

import errno

from gossipkv.dataset.local.active import ActiveDocument
from gossipkv.environment.real_files import RealFiles
from tests.unit.dataset.world import active, get, state, until
from tests.world.faulty_files import CHANGING, Action, Fault, FaultyFiles


def content(path):
    return {str(place): place.read_bytes() for place in path.rglob("*") if place.is_file()}


async def test_nothing_is_built_switched_or_removed(world):
    """A newer version is built, the newest is at the source, and an old one has retired: all stay so."""
    world.put("v1")
    async with world.node() as library:
        await active(library, "v1")
        world.put("v2")
        await library.rescan()
        await active(library, "v2")
        library._shared.store.set_active(
            "db", ActiveDocument("v1", "v1")
        )  # The node seems to have crashed before it switched.
    world.put("v3")
    before = content(world.root / "data")
    read_only = Fault(0, Action.FAIL, kinds=CHANGING, error=errno.EROFS, lasting=True)
    world.files = FaultyFiles(RealFiles(), read_only)
    async with world.node(retire_after=1) as library:
        world.files.strike()  # Writing fails even where it is possible.
        assert get(library, b"a") == b"v1"
        for _ in range(20):
            library._databases["db"]._switch_not_before_ms = 0  # No pause after an illegal attempt.
            library._databases["db"].wake()
            await library.rescan()
        assert library.active("db").name == "v1"
        assert library.version("db", "v2") is not None
        assert state(library, "v3") == "SEEN"
        assert content(world.root / "data") == before
        assert set(world.files.trace) == {f"create {world.root}/data/LOCK"}, "something tried to write"
        world.put("v1", database="new")
        await library.rescan()
        assert "cannot write to its data directory" in library.unready("new")
        assert not library.coming("new"), "a client would wait for it"
        library.resume()
        await active(library, "v1", "new")
        await active(library, "v3")
        await until(lambda: library.version("db", "v1") is None)

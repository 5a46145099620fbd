"""One database of a node with damaged files, a refusing system, or a defect in the code."""

import errno
import os
import shutil
import traceback

import pytest

from gossipkv.dataset.database import Database
from gossipkv.dataset.lifecycle import copy_states
from gossipkv.environment.real_files import RealFiles
from gossipkv.environment.seam import READ
from gossipkv.errors import Corrupt
from gossipkv.storage.document import encode, read_document
from tests.unit.dataset.world import active, get, state, until
from tests.world.faulty_files import Action, Fault, FaultyFiles
from tests.world.logs import capture_logs


@pytest.mark.parametrize("name", ["_MANIFEST", "part-00000.gkv"])
async def test_a_version_found_damaged_is_set_aside_and_built_again(world, name):
    """The version is named and not served until it is rebuilt; then the damaged one is deleted."""
    world.put("v1")
    async with world.node() as library:
        await active(library, "v1")
    path = world.root / "data/datasets/db/v1" / name
    path.write_bytes(path.read_bytes()[:-1])
    with capture_logs() as logs:
        async with world.node() as library:
            await active(library, "v1")
            assert get(library, b"a") == b"v1"
            assert os.listdir(world.root / "data/damaged/db") == []
            await until(lambda: state(library, "v1") == "ACTIVE")
    events = [line["event"] for line in logs]
    assert ("serves_again" in events, "switched" in events) == (True, False)
    assert str(path) in next(line["error"] for line in logs if line["event"] == "damaged")


async def test_a_damaged_version_without_a_source_stays_an_error_and_nothing_older_answers(world):
    """Answers never go back; the older version is served only by name."""
    world.put("v1")
    async with world.node() as library:
        await active(library, "v1")
        world.put("v2")
        await library.rescan()
        await active(library, "v2")
    shutil.rmtree(world.source / "db/v2")
    (world.root / "data/datasets/db/v2/_MANIFEST").unlink()
    async with world.node() as library:
        await library.rescan()
        assert library.active("db") is None
        assert state(library, "v2") == "ERROR"
        assert library.version("db", "v1").files[0].get(b"a") == b"v1"
        assert (world.root / "data/damaged/db/v2").exists()
        world.put("v3")
        await library.rescan()
        await active(library, "v3")


@pytest.mark.parametrize(
    "damage",
    [b"", b"GOSSIPKV 1", b"\0" * 100, encode("NODE", {})],
    ids=["empty", "another magic", "zeroed", "another document"],
)
async def test_a_damaged_active_document_does_not_lead_back(world, damage):
    """The newest built version is the answered one, or newer."""
    world.put("v1")
    async with world.node() as library:
        await active(library, "v1")
        world.put("v2")
        await library.rescan()
        await active(library, "v2")
    (world.root / "data/active/db").write_bytes(damage)
    with capture_logs() as logs:
        async with world.node() as library:
            assert library.active("db").name == "v2"
            world.put("v3")
            await library.rescan()
            await active(library, "v3")
    assert "active_damaged" in [line["event"] for line in logs]
    assert read_document(RealFiles(), world.root / "data/active/db", "ACTIVE")["version"] == "v3"


async def test_damage_met_by_a_read_is_built_again_under_the_readers(world):
    """The status shows the damage at once; intact files are served until the new ones are there."""
    world.put("v1")
    async with world.node(retire_after=100) as library:
        await active(library, "v1")
        damaged = library.active("db")
        library.damaged("db", "v1", Corrupt("part-00000.gkv", 4096, "checksum"))
        assert library.active("db") is damaged
        assert "4096" in str(library.status()["db"]["versions"]["v1"]["error"])
        await until(lambda: library.active("db") is not damaged)
        assert get(library, b"a") == b"v1"
        assert "error" not in library.status()["db"]["versions"]["v1"]
        await until(lambda: damaged.files == [None])


async def test_nothing_of_a_damaged_version_is_taken_on_trust(world):
    """Pages that were checked may come again from a disk that lost another page, so each read checks them."""
    world.put("v1")
    async with world.node() as library:
        await active(library, "v1")
        for retires in (False, True):
            version = library.active("db")
            if retires:
                world.put("v2")
                await library.rescan()
                await active(library, "v2")
            assert version.files[0].get(b"a") == b"v1"
            assert version.files[0].is_checked(0)
            library.damaged("db", "v1", Corrupt("part-00000.gkv", 4096, "checksum"))
            assert version.files[0].get(b"a") == b"v1"
            assert not version.files[0].is_checked(0)
            if not retires:
                await until(lambda damaged=version: library.active("db") is not damaged)


async def test_a_damaged_version_that_is_superseded_retires_as_others_do(world):
    """Readers by name continue, although the source has lost the version."""
    world.put("v1")
    async with world.node(retire_after=600) as library:
        await active(library, "v1")
        shutil.rmtree(world.source / "db/v1")
        await library.rescan()
        damaged = library.active("db")
        library.damaged("db", "v1", Corrupt("part-00000.gkv", 4096, "checksum"))
        world.put("v2")
        await library.rescan()
        await active(library, "v2")
        assert await world.read_for_a_while(library, "v1") is damaged
        assert state(library, "v1") == "RETIRING"
        await until(lambda: library.version("db", "v1") is None)


async def test_what_was_set_aside_goes_when_something_newer_serves(world):
    """The damaged copy is kept for an operator to inspect until then."""
    world.put("v1")
    async with world.node() as library:
        await active(library, "v1")
    shutil.rmtree(world.source / "db/v1")
    (world.root / "data/datasets/db/v1/_MANIFEST").unlink()
    aside = world.root / "data/damaged/db"
    async with world.node() as library:
        assert os.listdir(aside) == ["v1"]
        world.put("v2")
        await library.rescan()
        await active(library, "v2")
        await until(lambda: os.listdir(aside) == [])


async def test_what_was_set_aside_goes_at_the_next_start(world):
    """Versions older than the active one and rebuilt ones go; missing ones stay."""
    world.put("v2")
    async with world.node() as library:
        await active(library, "v2")
    aside = world.root / "data/damaged/db"
    for name in ("v1", "v2", "v3"):
        (aside / name).mkdir(parents=True)
    async with world.node():
        assert os.listdir(aside) == ["v3"]


async def test_a_switch_that_cannot_be_made_durable_is_not_made(world):
    """While the disk is full the old version answers and the error is shown; the switch follows later."""
    world.put("v1")
    async with world.node() as library:
        await active(library, "v1")
    world.files = FaultyFiles(RealFiles())
    async with world.node() as library:
        refused = 0

        class Full(RealFiles):
            def rename(self, source, target):
                nonlocal refused
                if "/active/" in str(target) and refused < 2:
                    refused += 1
                    raise OSError(28, os.strerror(28), str(target))
                super().rename(source, target)

        world.files.inner = Full()
        world.put("v2")
        await library.rescan()
        await until(lambda: "No space left" in str(library.status()["db"]["error"]))
        assert library.active("db").name == "v1"
        await active(library, "v2")
        assert library.status()["db"]["error"] is None
        assert refused == 2


@pytest.mark.parametrize("error", ["EIO", "ENOSPC", "EMFILE"])
async def test_a_publication_that_fails_leaves_the_old_version(world, monkeypatch, error):
    """The status shows the error, nothing is left over, and a retry succeeds."""
    number = getattr(errno, error)
    monkeypatch.setattr(copy_states, "FIRST_RETRY_MS", 1_000_000)
    monkeypatch.setattr(copy_states, "LAST_RETRY_MS", 1_000_000)
    world.put("v1")
    async with world.node() as library:
        await active(library, "v1")
    world.files = FaultyFiles(RealFiles(), Fault(0, Action.FAIL, kinds={"rename"}, error=number))
    async with world.node() as library:
        world.put("v2")
        await library.rescan()
        await until(lambda: state(library, "v2") == ("SEEN" if error == "ENOSPC" else "ERROR") and world.files.struck)
        told = library.status()["db"]["versions"]["v2"]
        assert os.strerror(number) in (told["waiting_for"] if error == "ENOSPC" else told["error"]["message"])
        assert get(library, b"a") == b"v1"
        assert os.listdir(world.root / "data/building/db") == []
        library._databases["db"].lives[
            "v2"
        ].copy.not_before_ms = 0  # Skip the pause, which a busy machine could exceed.
        library._databases["db"].wake()
        await active(library, "v2")


class Refusing(RealFiles):
    """Files below a path that cannot be opened for a while."""

    def __init__(self, path, error):
        self.path = str(path)
        self.error = error

    def refuse(self, path):
        if self.error and str(path).startswith(self.path):
            raise OSError(self.error, os.strerror(self.error), str(path))

    def open(self, path, flags=READ, mode=0o644):
        self.refuse(path)
        return super().open(path, flags, mode)

    def list_directory(self, path):
        self.refuse(path)
        return super().list_directory(path)


@pytest.mark.parametrize("place", ["active/db", "datasets/db"])
async def test_a_database_that_cannot_be_read_stops_nobody_else(world, place):
    """The database shows its error, recovers once it can be read, and never goes back; other databases serve."""
    world.put("v1")
    world.put("v1", database="other")
    async with world.node() as library:
        await active(library, "v1", "other")
        await active(library, "v1")
        world.put("v2")
        await library.rescan()
        await active(library, "v2")
    shutil.rmtree(world.source / "db")
    world.files = Refusing(world.root / "data" / place, errno.EIO)
    async with world.node() as library:
        assert library.active("other").name == "v1"
        await library.rescan()
        assert library.known("db")
        assert library.active("db") is None
        assert "Input/output error" in library.status()["db"]["error"]
        assert "Input/output error" in library.unready("db")
        assert not library.opened
        world.files.error = 0
        await active(library, "v2")
        assert library.status()["db"]["error"] is None
        assert library.opened


@pytest.mark.parametrize("error", [errno.EMFILE, errno.EIO])
async def test_a_version_that_cannot_be_opened_is_tried_again(world, error):
    """The retry opens the files again, since there is no source."""
    world.put("v1")
    async with world.node() as library:
        await active(library, "v1")
    stamp = os.stat(world.root / "data/datasets/db/v1/part-00000.gkv").st_mtime_ns
    world.files = Refusing(world.root / "data/datasets/db/v1/part-00000.gkv", error)
    async with world.node(source=None) as library:
        assert state(library, "v1") == "ERROR"
        assert not library.opened
        world.files.error = 0
        await active(library, "v1")
        assert get(library, b"a") == b"v1"
        await until(lambda: state(library, "v1") == "ACTIVE")
        await until(lambda: library.opened)
    assert os.stat(world.root / "data/datasets/db/v1/part-00000.gkv").st_mtime_ns == stamp


async def test_a_version_that_can_never_be_opened_is_built_again(world):
    """The source has the version."""
    world.put("v1")
    async with world.node() as library:
        await active(library, "v1")
    first = world.root / "data/datasets/db/v1"

    class FirstFile(Refusing):
        def rename(self, source, target):
            """Let the rebuilt version be readable."""
            if str(source) == str(first):
                self.error = 0
            super().rename(source, target)

    world.files = FirstFile(first / "part-00000.gkv", errno.EIO)
    with capture_logs() as logs:
        async with world.node() as library:
            assert state(library, "v1") == "ERROR"
            await active(library, "v1")
            assert get(library, b"a") == b"v1"
    assert "built" in [line["event"] for line in logs]


@pytest.mark.parametrize(("where", "served"), [("_open_built", False), ("_settle", True), ("_look", True)])
async def test_a_defect_ends_its_database_alone(world, monkeypatch, where, served):
    """The defect is logged and shown; serving goes on, and other databases are built and switched."""
    world.put("v1")
    world.put("v1", database="broken")
    async with world.node() as library:
        await active(library, "v1")
        await active(library, "v1", "broken")
    real = getattr(Database, where)

    async def planted(self, *args):
        assert self.name != "broken", "planted"
        return await real(self, *args)

    monkeypatch.setattr(Database, where, planted)
    world.defects = ["broken"]
    world.put("v2")
    world.put("v2", database="broken")
    with capture_logs() as logs:
        async with world.node() as library:
            await active(library, "v2")
            await library.rescan()
            assert "the node has a defect" in library.status("broken")["broken"]["error"]
            assert (library.active("broken") is not None) == served
            assert not served or get(library, b"a", "broken") == b"v1"
            assert served or "the node has a defect" in library.unready("broken")
    (line,) = [line for line in logs if line["event"] == "internal_error"]
    assert line["database"] == "broken"
    assert "planted" in "".join(traceback.format_exception(line["exc_info"]))

"""A version with a file lost from its map is opened anew if the disk recovers, else rebuilt."""

import errno
import os
import shutil

import pytest

from gossipkv.environment.real_files import RealFiles
from gossipkv.errors import Corrupt
from gossipkv.storage import sigbus
from tests.unit.dataset.sources import lines
from tests.unit.dataset.world import active, get, state, until
from tests.unit.storage.lost_pages import lose_page
from tests.world.logs import capture_logs

FILES = 3


@pytest.fixture(autouse=True)
def _outlive():
    """Keep lost maps from ending this process."""
    sigbus.install()


@pytest.fixture
def put(world):
    """Return a function that puts three files at the source, one for each partition, with every key in each."""

    def put(name):
        world.put(name, *(lines(a=name, b=f"{name} {number}") for number in range(FILES)))

    return put


class FailingFiles(RealFiles):
    """Files that fail to be read, as from a failing disk, while `fails` is set."""

    fails = False

    def pread(self, descriptor, size_bytes, offset):
        if self.fails and os.readlink(f"/proc/self/fd/{descriptor}").endswith(".gkv"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().pread(descriptor, size_bytes, offset)


def part(world, name):
    """Return the file of the first partition that a version has on the disk."""
    return next((world.root / "data/datasets/db" / name).glob("*.gkv"))


def meet(library, name, path):
    """Read the lost page as a request does."""
    version = library.version("db", name)
    (file,) = (file for file in version.files if file is not None and file.name == str(path))
    with pytest.raises(Corrupt) as error:
        file.get(b"a")
    library.damaged("db", name, error.value)
    return version


def said(library, name):
    """Return the error of a version in `status`."""
    return library.status()["db"]["versions"][name].get("error", {})


def events(logs):
    return [line["event"] for line in logs]


async def test_what_can_be_read_again_is_served_without_a_build(world, put):
    """The status names file and offset until then; the other files stay open."""
    put("v1")
    with capture_logs() as logs:
        async with world.node() as library:
            await active(library, "v1")
            path = part(world, "v1")
            lose_page(path, 0)
            lost = meet(library, "v1", path)
            assert said(library, "v1")["file"] == str(path)
            assert said(library, "v1")["offset"] < path.stat().st_size
            assert state(library, "v1") == "ACTIVE"
            await until(lambda: library.active("db") is not lost)
            assert get(library, b"a") == b"v1"
            assert said(library, "v1") == {}
            anew = [file for file in library.active("db").files if file not in lost.files]
            assert [file.name for file in anew] == [str(path)]
            (file,) = (file for file in lost.files if file not in library.active("db").files)
            await until(lambda: not is_open(file))
    assert (events(logs).count("building"), events(logs).count("damaged"), events(logs).count("opened")) == (1, 1, 1)


async def test_other_damage_is_built_again_whatever_is_lost_beside_it(world, put):
    """Damage that the scrub finds in a mapped file is not mended by opening it anew."""
    put("v1")
    async with world.node() as library:
        await active(library, "v1")
        path = part(world, "v1")
        version = library.active("db")
        other = next(file for file in version.files if file is not None and file.name != str(path))
        lose_page(path, 0)
        with pytest.raises(Corrupt):
            next(file for file in version.files if file is not None and file.name == str(path)).get(b"a")
        assert version.lost_names == {str(path)}
        library.damaged("db", "v1", Corrupt(other.name, 4096, "checksum"))
        assert state(library, "v1") == "ERROR"
        assert not other.is_checked(0)
        await until(lambda: library.active("db") is not version and state(library, "v1") == "ACTIVE")
        assert get(library, b"a") == b"v1"


async def test_what_is_cut_short_is_built_again(world, put):
    """Intact files answer meanwhile; the log has the damage that a read met, then the state of the file."""
    put("v1")
    with capture_logs() as logs:
        async with world.node() as library:
            await active(library, "v1")
            path = part(world, "v1")
            os.truncate(path, path.stat().st_size - 1)
            lost = meet(library, "v1", path)
            await until(lambda: "the size differs from the manifest's" in said(library, "v1").get("message", ""))
            await until(lambda: state(library, "v1") == "ACTIVE" and library.active("db") is not lost)
            assert get(library, b"a") == b"v1"
            await until(lambda: lost.files == [None] * len(lost.files))
    assert (events(logs).count("building"), events(logs).count("serves_again")) == (2, 1)
    told = [line["error"] for line in logs if line["event"] == "damaged"]
    expected = ("its disk failed", "the size differs")
    assert [words in line for words, line in zip(expected, told, strict=True)] == [True] * 2


async def test_while_the_disk_fails_it_is_built_again(world, put):
    """The build does not wait for the disk; then the version is served again, rebuilt or from the recovered disk."""
    world.files = FailingFiles()
    put("v1")
    with capture_logs() as logs:
        async with world.node() as library:
            await active(library, "v1")
            path = part(world, "v1")
            lose_page(path, 0)
            world.files.fails = True
            lost = meet(library, "v1", path)
            await until(lambda: events(logs).count("building") == 2)
            world.files.fails = False
            await until(lambda: library.active("db") is not lost)
            assert get(library, b"a") == b"v1"


async def test_without_a_source_it_waits_for_the_disk(world, put):
    """The version cannot be rebuilt, so opening is retried."""
    world.files = FailingFiles()
    put("v1")
    with capture_logs() as logs:
        async with world.node() as library:
            await active(library, "v1")
            shutil.rmtree(world.source / "db/v1")
            await library.rescan()
            path = part(world, "v1")
            lose_page(path, 0)
            world.files.fails = True
            lost = meet(library, "v1", path)
            await until(lambda: state(library, "v1") == "ERROR")
            assert "Input/output error" in said(library, "v1")["message"]
            world.files.fails = False
            await until(lambda: state(library, "v1") == "ACTIVE")
            assert library.active("db") is not lost
            assert get(library, b"a") == b"v1"
    assert "serves_again" in events(logs)


async def test_what_else_is_wrong_with_it_stays_wrong(world, put):
    """Opening one file anew does not mend a damaged page of another."""
    put("v1")
    async with world.node() as library:
        await active(library, "v1")
        shutil.rmtree(world.source / "db/v1")
        await library.rescan()
        path = part(world, "v1")
        library.damaged("db", "v1", Corrupt("another file", 4096, "checksum"))
        await until(lambda: state(library, "v1") == "ERROR")
        lose_page(path, 0)
        lost = meet(library, "v1", path)
        await until(lambda: library.version("db", "v1") is not lost)
        assert get(library, b"a") == b"v1"
        assert (state(library, "v1"), said(library, "v1")["file"]) == ("ERROR", "another file")


async def test_many_reads_of_what_is_lost_are_one_damage(world, put):
    """The damage is logged once, also for a retiring version, which is not rebuilt."""
    put("v1")
    with capture_logs() as logs:
        async with world.node(retire_after=1_000_000) as library:
            await active(library, "v1")
            put("v2")
            await library.rescan()
            await active(library, "v2")
            path = part(world, "v1")
            os.truncate(path, 100)
            for _ in range(20):
                meet(library, "v1", path)
                await library.rescan()
            assert (state(library, "v1"), state(library, "v2")) == ("RETIRING", "ACTIVE")
            assert said(library, "v1")["file"] == str(path)
    assert events(logs).count("damaged") == 1


def is_open(file):
    try:
        len(file)
    except ValueError:
        return False
    return True

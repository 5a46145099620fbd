"""A full disk: a small tmpfs."""

import random
import subprocess
from contextlib import asynccontextmanager

import pytest
import trio

from gossipkv.dataset.build.job import BuildJob
from gossipkv.dataset.build.steps import BuildResources, perform
from gossipkv.dataset.library import Library, LibraryPorts
from gossipkv.environment.real_files import RealFiles
from gossipkv.environment.trio_world import real
from gossipkv.errors import StorageError
from gossipkv.node.directory import DataDirectory
from gossipkv.settings.datasets import DatasetSettings
from tests.unit.dataset.sources import BUILD_MEMORY, MEMORY_BYTES
from tests.unit.dataset.world import active, get, until
from tests.world.logs import capture_logs


@pytest.fixture
def small_disk(tmp_path):
    """Mount a file system of 6 MiB; `grow(size)` enlarges it."""
    path = tmp_path / "disk"
    path.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", path], capture_output=True, check=False
    )  # fmt: skip
    if mount.returncode != 0:
        pytest.skip("needs the right to mount a tmpfs")
    yield path, lambda size: subprocess.run(["mount", "-o", f"remount,size={size}", path], check=True)
    subprocess.run(["umount", path], check=True)


def records(count, size):
    """Return records with incompressible values."""
    rng = random.Random(count)
    return b"".join(b"%d\t%s\n" % (number, rng.randbytes(size // 2).hex().encode()) for number in range(count))


@asynccontextmanager
async def node(tmp_path, disk, files=None, **settings):
    usual = {"source": str(tmp_path / "source"), "refresh_period": 0, "build_memory": BUILD_MEMORY, "build_lanes": 1}
    with DataDirectory.open(disk / "data", files or RealFiles(), cluster="test", random=random.Random(1)) as directory:
        library = Library(directory.store, DatasetSettings(**usual | settings), real(), LibraryPorts())
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(library.run)
                yield library
                nursery.cancel_scope.cancel()
        finally:
            library.close()


def told(library, name):
    return library.status()["db"]["versions"].get(name, {})


async def test_a_node_says_what_it_needs_and_goes_on_when_there_is_room(put, tmp_path, small_disk, monkeypatch):
    """The version waits in SEEN without an attempt, and the old version answers."""
    disk, grow = small_disk
    put("v1", [records(100, 1000)])
    monkeypatch.setattr("gossipkv.dataset.lifecycle.copies.POLL_MS", 20)
    with capture_logs() as logs:
        async with node(tmp_path, disk) as library:
            await active(library, "v1")
            put("v2", [records(4000, 1000)])
            await library.rescan()
            await until(lambda: "needed_bytes" in told(library, "v2"))
            version = told(library, "v2")
            assert version["state"] == "SEEN"
            assert "error" not in version
            assert version["needed_bytes"] > version["free_bytes"] > 0
            needed, free = version["needed_bytes"], version["free_bytes"]
            assert version["waiting_for"] == f"disk space: about {needed:,} bytes are needed, {free:,} bytes are free"
            assert get(library, b"7") is not None
            grow("8m")
            await until(lambda: told(library, "v2")["free_bytes"] > version["free_bytes"])
            await library.rescan()
            assert told(library, "v2")["state"] == "SEEN"
            grow("64m")
            await active(library, "v2")
            assert "needed_bytes" not in told(library, "v2")
    events = [line["event"] for line in logs]
    assert (events.count("no_room"), events.count("build_failed")) == (1, 0)


async def test_builds_do_not_count_on_the_same_room(put, tmp_path, small_disk, monkeypatch):
    """Two builds that do not fit together run one after the other, and neither fails halfway."""
    disk, grow = small_disk
    grow("16m")
    monkeypatch.setattr("gossipkv.dataset.lifecycle.copies.POLL_MS", 20)
    for database in ("db", "other"):
        put("v1", [records(4000, 1000)], database)
    with capture_logs() as logs:
        async with node(tmp_path, disk) as library:
            await active(library, "v1")
            await active(library, "v1", "other")
    assert [line["event"] for line in logs].count("no_room") == 1
    assert "No space left" not in str(logs)


def test_a_disk_that_fills_up_in_the_middle_is_one_clear_error(put, small_disk):
    """The space seemed enough at first; the files of the build are removed."""

    class Optimist(RealFiles):
        def free_bytes(self, path):
            return 1 << 40

    disk, grow = small_disk
    directory = disk / "build"
    directory.mkdir()
    one = BuildJob.of(put("v1", [records(20_000, 1000)]), str(directory))
    with pytest.raises(StorageError, match="No space left on device"):
        perform(one, Optimist(), BuildResources(MEMORY_BYTES))
    assert list(directory.iterdir()) == []
    grow("128m")
    assert perform(one, RealFiles(), BuildResources(MEMORY_BYTES)).records == 20_000

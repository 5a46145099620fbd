"""A disk that is really full: a small tmpfs."""

import random
import subprocess

import pytest
import trio

from gossipkv.dataset.build_job import BuildJob, perform
from gossipkv.dataset.library import Library, LibrarySettings
from gossipkv.dataset.store import DataDirectory
from gossipkv.environment import RealFiles
from gossipkv.errors import StorageError
from tests.unit.dataset.sources import MEMORY_BYTES


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 6 MiB; `grow(size)` makes it larger."""
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
    """Records with values that say nothing to a compressor."""
    rng = random.Random(count)
    return b"".join(b"%d\t%s\n" % (number, rng.randbytes(size // 2).hex().encode()) for number in range(count))


async def test_a_node_says_what_it_needs_and_goes_on_when_there_is_room(put, tmp_path, small_disk):
    """The old version answers meanwhile; nothing is left of the attempt."""
    disk, grow = small_disk
    put("v1", [records(100, 1000)])
    files = RealFiles()
    settings = LibrarySettings(source=str(tmp_path / "source"), refresh_period_ms=0, build_memory=64 << 20)
    with DataDirectory.open(disk / "data", files, cluster="test", random=random.Random(1)) as directory:
        library = Library(directory, settings)
        async with trio.open_nursery() as nursery:
            await nursery.start(library.run)
            with trio.fail_after(60):
                while library.active("db") is None:
                    await trio.sleep(0.01)
                put("v2", [records(4000, 1000)])
                await library.rescan()
                while library.status()["db"]["versions"]["v2"]["state"] != "ERROR":
                    await trio.sleep(0.01)
                error = library.status()["db"]["versions"]["v2"]["error"]
                assert error["needed_bytes"] > error["free_bytes"] > 0
                assert f"{error['needed_bytes']:,} bytes are needed" in error["message"]
                assert library.active("db").name == "v1"
                assert library.active("db").files[0].get(b"7") is not None
                grow("64m")
                while library.active("db").name != "v2":
                    await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
        library.close()


def test_a_disk_that_fills_up_in_the_middle_is_one_clear_error(put, small_disk):
    """Though there seemed to be room at first; what was written is removed, so that others have room."""

    class Optimist(RealFiles):
        def free_bytes(self, path):
            """Somebody else will take it meanwhile."""
            return 1 << 40

    disk, grow = small_disk
    directory = disk / "build"
    directory.mkdir()
    one = BuildJob.of(put("v1", [records(20_000, 1000)]), str(directory))
    with pytest.raises(StorageError, match="No space left on device"):
        perform(one, Optimist(), memory_bytes=MEMORY_BYTES)
    assert list(directory.iterdir()) == []
    grow("128m")
    assert perform(one, RealFiles(), memory_bytes=MEMORY_BYTES).records == 20_000

"""Reads past the cache return the file's bytes, and a file system without support is reported."""

import errno
import os
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.environment.real_files import BUFFER_BYTES, DirectFiles, RealFiles

SIZE = 2 * BUFFER_BYTES + 12_345


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Return a file of two buffers and a bit, synced."""
    found = tmp_path_factory.mktemp("direct") / "file"
    found.write_bytes(random.randbytes(SIZE))
    os.sync()
    return found


class Refusing(DirectFiles):
    """Files on a file system without `O_DIRECT`."""

    def __init__(self):
        super().__init__(direct=1 << 40)
        self._direct = Flag(self._direct)


class Flag(int):
    """A flag that makes every open fail."""

    def __ror__(self, flags):
        raise OSError(errno.EINVAL, "Invalid argument")


@pytest.mark.parametrize("kind", [DirectFiles, Refusing])
@given(offset=st.integers(0, SIZE + 9000), size_bytes=st.integers(0, SIZE))
def test_any_range_is_what_the_file_holds(path, kind, offset, size_bytes):
    """Ranges may be unaligned, beyond the end, and in one buffer or several."""
    files = kind()
    descriptor = files.open(path)
    try:
        assert files.size(descriptor) == SIZE
        assert files.pread(descriptor, size_bytes, offset) == path.read_bytes()[offset : offset + size_bytes]
    finally:
        files.close(descriptor)


def test_a_file_system_that_refuses_is_told_of(path):
    """A caller that needs the disk itself can see that the cache may have answered."""
    direct, refused = DirectFiles(), Refusing()
    for files in (direct, refused):
        files.close(files.open(path))
    assert (direct.bypasses_cache, refused.bypasses_cache) == (True, False)
    with pytest.raises(FileNotFoundError):
        direct.open(path.with_name("none"))


def test_the_disk_is_read_though_the_cache_holds_something_else(path, monkeypatch):
    """Every descriptor is opened once with the flag."""
    flags = []
    monkeypatch.setattr(RealFiles, "open", lambda _self, _path, given, _mode: flags.append(given) or 0)
    DirectFiles().open(path)
    assert flags == [os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT]

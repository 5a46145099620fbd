"""Failing lanes and builds larger than memory; the fast tests are in `test_lanes.py`."""

from __future__ import annotations

import random
import threading

import pytest

from gossipkv.environment.real_files import RealFiles
from gossipkv.errors import SourceError, StorageError
from gossipkv.storage.sorted_file import SortedFile
from tests.unit.dataset.build.lane_build import Build, some_lines
from tests.world.faulty_files import Action, Fault, FaultyFiles


class Failures:
    """Fail in one lane while another has begun, which then reads until it is stopped."""

    def __init__(self, error):
        self.error = error
        self.begun = threading.Event()
        self.failing = threading.Event()

    def begin(self):
        self.begun.set()
        assert self.failing.wait(60)

    def fail(self):
        assert self.begun.wait(60)
        self.failing.set()
        raise self.error


@pytest.mark.parametrize(
    "error",
    [
        SourceError("part-2: byte 7: wrong", {"file": "part-2", "offset": 7}),
        FileNotFoundError(2, "No such file", "part-2"),
        KeyError("a defect"),
        MemoryError(),
    ],
)
def test_what_one_lane_fails_with_ends_all(tmp_path, error):
    """The error is the one raised, even by a later lane, and nothing is left."""
    trouble = Failures(error)
    build = Build(tmp_path, [some_lines(number, 300) for number in range(4)])
    build.troubles = {0: trouble.begin, 2: trouble.fail}
    with pytest.raises(type(error)) as caught:
        build.run(2)
    assert caught.value is error
    assert build.left() == []


def test_a_lane_that_is_behind_reads_no_more(tmp_path, monkeypatch):
    """The slow lane is at its second piece when another fails, and takes no third."""
    trouble, pieces, stopped = Failures(SourceError("wrong", {})), [], threading.Event()
    monkeypatch.setattr("gossipkv.dataset.build.lanes.Event", lambda: stopped)
    build = Build(tmp_path, [some_lines(0, 5000), some_lines(1, 5000)], {1: trouble.fail})

    def pace(size_bytes):
        pieces.append(size_bytes)
        if len(pieces) == 2:
            trouble.begin()
            assert stopped.wait(60)

    with pytest.raises(SourceError):
        build.run(2, pace=pace)
    assert len(pieces) == 2
    assert build.left() == []


def test_more_than_memory_holds(tmp_path):
    """Each lane writes runs and reads those of all lanes."""
    source = random.Random(3)
    lines = [(b"%08d" % source.randrange(10**8), source.randbytes(300).hex().encode()) for _ in range(60_000)]
    build = Build(tmp_path, [lines[at::4] for at in range(4)])
    assert sum(build.sizes) > build.task.memory_bytes
    build.run(2)
    found = {}
    for name in build.names:
        with SortedFile(build.directory / name) as file:
            file.verify()
            found.update(file.scan())
    assert found == dict(lines[at] for start in range(4) for at in range(start, len(lines), 4))


@pytest.mark.parametrize("kind", ["pwrite", "sync", "create", "pread"])
def test_what_the_file_system_refuses_a_lane(tmp_path, kind):
    """Any of the first operations fails in any lane: the error is raised and nothing is left."""
    source = random.Random(4)
    lines = [(b"%08d" % source.randrange(10**8), source.randbytes(300).hex().encode()) for _ in range(16_000)]
    for number in range(0, 12, 3):
        root = tmp_path / f"{number}"
        root.mkdir()
        build = Build(root, [lines[::2], lines[1::2]])
        files = FaultyFiles(RealFiles(), Fault(number, Action.FAIL, kinds={kind}, error=28))
        try:
            build.run(2, files)
        except StorageError as error:
            assert error.details["errno"] == 28
            assert build.left() == []
        else:
            assert not files.struck

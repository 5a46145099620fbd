"""Tests over real processes, sockets, threads or time; `test_lanes.py` has the others."""

from __future__ import annotations

import threading

import pytest

from gossipkv.errors import SourceError
from tests.unit.dataset.build.lane_build import Build, some_lines


class Failures:
    """What goes wrong in one lane, once the other has begun, which then reads until it is stopped."""

    def __init__(self, error):
        self.error = error
        self.begun = threading.Event()
        self.failing = threading.Event()

    def begin(self):
        """At a file of the first lane."""
        self.begun.set()
        assert self.failing.wait(60)

    def fail(self):
        """At a file of the second."""
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
    """The same error, though another lane comes before it; nothing is left."""
    trouble = Failures(error)
    build = Build(tmp_path, [some_lines(number, 300) for number in range(4)])
    build.troubles = {0: trouble.begin, 2: trouble.fail}
    with pytest.raises(type(error)) as caught:
        build.run(2)
    assert caught.value is error
    assert build.left() == []


def test_a_lane_that_is_behind_reads_no_more(tmp_path, monkeypatch):
    """It is at its second piece when another fails, and takes no third."""
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

"""Builds in several threads: the files of one lane, all or none, and no thread left behind."""

from __future__ import annotations

import threading

import pytest

from gossipkv.dataset.build.lanes import SMALL_SOURCE_BYTES, LaneProgress, useful_lanes
from gossipkv.environment.real_files import RealFiles
from gossipkv.errors import StorageError
from gossipkv.storage.builder import SortedFileBuilder
from tests.unit.dataset.build.lane_build import METADATA, Build, group_of, some_lines
from tests.world.faulty_files import Action, Fault, FaultyFiles


@pytest.mark.parametrize("lanes", [1, 2, 3])
def test_the_files_are_the_oracles(tmp_path, lanes):
    """Keys repeat across files, and the counts are those of a single build."""
    build = Build(tmp_path, [some_lines(number, 300) for number in range(4)])
    result = build.run(lanes)
    assert build.left() == sorted(build.names)
    assert build.built() == build.expected()
    assert len(result.counted) == lanes
    assert [place for places, _ in result.counted for place in places] == [0, 1, 2, 3]
    assert sum(records for _, records in result.counted) == 1200
    assert sum(report.records for report in result.reports) == len({key for key, _ in build.records})
    assert sum(report.records + report.duplicates for report in result.reports) == 1200
    assert [report.size_bytes for report in result.reports] == [len(image) for image in build.built()]


def test_files_that_are_partitioned_already(tmp_path):
    """Each lane writes its own records; the third file is empty, and so is group 4."""
    contents = [[(b"%d|%d" % (group, number), b"v") for number in range(99)] for group in (3, 0, 1, 2)]
    build = Build(tmp_path, [*contents[:2], [], *contents[2:]])
    build.run(2)
    assert build.built() == build.expected()


def test_progress_is_the_sum_and_reaches_the_end(tmp_path):
    """Progress only rises, comes from one lane at a time, and reaches all bytes and records."""
    told, telling = [], threading.Lock()

    def hear(progress: LaneProgress):
        assert telling.acquire(blocking=False)
        told.append(progress)
        telling.release()

    build = Build(tmp_path, [some_lines(number, 3000, keys=10**6) for number in range(3)])
    build.run(3, on_progress=hear)
    for name in ("read_bytes", "read_records", "written_records"):
        values = [getattr(progress, name) for progress in told]
        assert values == sorted(values)
    last = told[-1]
    assert (last.read_bytes, last.read_records) == (sum(build.sizes), 9000)
    assert 9000 > last.written_records >= len({key for key, _ in build.records})


def test_leftovers_go_before_a_build(tmp_path):
    build = Build(tmp_path, [some_lines(0, 10), some_lines(1, 10)])
    for name in ("run-0-3.tmp", "1.gkv.tmp"):
        (build.directory / name).write_bytes(b"left")
    build.run(2)
    assert build.left() == sorted(build.names)


def test_an_interruption_leaves_nothing(tmp_path):
    """Any end of the wait, such as Ctrl-C, stops all lanes."""
    build = Build(tmp_path, [some_lines(0, 5000), some_lines(1, 5000)])

    def interrupt(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build.run(2, on_progress=interrupt)
    assert build.left() == []


@pytest.mark.parametrize("kind", ["rename", "sync_directory", "list_directory", "unlink"])
def test_what_the_file_system_refuses_in_the_end(tmp_path, kind):
    """There is one error, and a file is complete or absent."""
    build = Build(tmp_path, [some_lines(0, 10), some_lines(1, 10)])
    (build.directory / "run-1.tmp").write_bytes(b"left")
    with pytest.raises(StorageError, match="cannot build sorted files: Input/output error"):
        build.run(2, FaultyFiles(RealFiles(), Fault(0, Action.FAIL, kinds={kind}, error=5)))
    if kind == "sync_directory":
        assert build.built() == build.expected()


def test_how_many_lanes_are_of_use():
    """A small source or a single file needs one lane; else each non-empty file may have one."""
    large = SMALL_SOURCE_BYTES
    assert useful_lanes([large - 1], 8) == useful_lanes([1] * 99, 8) == useful_lanes([], 8) == 1
    assert useful_lanes([10 * large], 8) == useful_lanes([large, 0, 0], 8) == useful_lanes([large] * 9, 1) == 1
    assert useful_lanes([large, 1, 0], 8) == 2
    assert useful_lanes([large] * 9, 8) == 8


def test_several_lanes_make_what_one_makes(tmp_path):
    build = Build(tmp_path, [some_lines(number, 500) for number in range(3)])
    build.run(2)
    (tmp_path / "one").mkdir()
    with SortedFileBuilder(tmp_path / "one", build.names, metadata=METADATA) as building:
        for key, value in build.records:
            building.add(key, value, group_of(key))
        building.finish()
    assert build.built() == [(tmp_path / "one" / name).read_bytes() for name in build.names]

"""Whole builds in several lanes, from real formats: the version is the one of a single lane."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from gossipkv.dataset.build import lanes
from gossipkv.dataset.build.job import BuildProgress
from gossipkv.dataset.build.memory import share_of_lanes
from gossipkv.dataset.build.steps import BuildResources, Lanes, perform
from gossipkv.dataset.formats.reading import FileReading
from gossipkv.dataset.local.version import open_version
from gossipkv.environment.real_files import RealFiles
from gossipkv.errors import SourceChanged, SourceError
from gossipkv.keyspace.partitioner import partition
from gossipkv.storage.builder import MIN_MEMORY_BYTES

MEMORY_BYTES = 3 * MIN_MEMORY_BYTES


@pytest.fixture
def eager(monkeypatch):
    """Use lanes even for the smallest source."""
    monkeypatch.setattr(lanes, "SMALL_SOURCE_BYTES", 0)


def partitioned(count, files, function="sequins"):
    """Return files whose keys are where the function puts them."""
    contents = [[] for _ in range(files)]
    for number in range(count):
        key = b"key %d" % number
        contents[partition(function, key, files)].append(b"%s\t%d\n" % (key, number))
    return [b"".join(lines) for lines in contents]


def scattered(count, files):
    contents = [[] for _ in range(files)]
    for number in range(2 * count):
        contents[number % files].append(b"key %d\t%d\n" % (number * 7 % count, number))
    return [b"".join(lines) for lines in contents]


def strayed(count, files):
    """Return files with every key in place except the last key of the last file."""
    contents = partitioned(count, files)
    key = next(key for key in (b"stray %d" % n for n in range(99)) if partition("sequins", key, files) == 0)
    return [*contents[:-1], contents[-1] + key + b"\there\n"]


def built(job, count, **options):
    """Return the manifest of a build in so many lanes."""
    shared = Lanes(count, MEMORY_BYTES, job.reading)
    return perform(job, RealFiles(), BuildResources(MEMORY_BYTES, **{"lanes": shared} | options))


def outcome(job, count):
    """Return the manifest and all files of a build in so many lanes."""
    manifest = built(job, count)
    names = sorted(os.listdir(job.directory))
    return manifest, {name: (Path(job.directory) / name).read_bytes() for name in names if name.endswith(".gkv")}


@pytest.mark.parametrize("make", [partitioned, scattered, strayed])
def test_the_same_version_as_one_lane_makes(job, eager, make):
    """The cases: lanes exchange records, lanes keep the recognised partitions, and a stray forces a second reading."""
    contents = make(3000, 5)
    one, several = (job(contents, name=name) for name in ("v1", "v2"))
    several = replace(several, version=one.version, digest=one.digest)
    expected, found = outcome(one, 1), outcome(several, 3)
    assert len(found[1]) == 5
    assert found[1] == expected[1]
    stray = expected[0].first_stray
    if stray is not None:
        expected = (replace(expected[0], first_stray=replace(stray, file=stray.file.replace("/v1/", "/v2/"))), None)
    assert found[0] == replace(expected[0], source_ms=several.source_ms)  # The second source was written later.
    assert (found[0].voided, found[0].strays) == (("sequins", 1) if make is strayed else (None, 0))
    open_version(RealFiles(), Path(several.directory), "db", "v1").close()


def test_a_share_of_the_partitions(job, eager):
    """Skipped files hardly count when the lanes' shares are made."""
    one = replace(job(partitioned(3000, 6), partitions=6), wanted=(1, 4, 5))
    manifest = built(one, 3)
    assert [file is not None for file in manifest.files] == [False, True, False, False, True, True]
    assert manifest.records == sum(partition("sequins", b"key %d" % n, 6) in {1, 4, 5} for n in range(3000))


def test_a_wrong_line_is_the_same_error(job, eager):
    """The error has file, line and offset, and nothing is left."""
    one = job([b"a\t1\n", b"b\t1\nwrong\n", b"c\t1\n"])
    with pytest.raises(SourceError) as caught:
        built(one, 3)
    assert (caught.value.details["line"], caught.value.details["offset"]) == (2, 4)
    assert caught.value.details["file"].endswith("part-1")
    assert os.listdir(one.directory) == []


def test_a_source_that_changed_is_the_same_error(job, eager, tmp_path):
    """A changed source makes the node begin anew."""
    one = replace(job([b"a\t1\n", b"b\t1\n"]), function="sequins", format="tsv")
    (tmp_path / "source/db/v1/part-1").write_bytes(b"b\t12\n")
    with pytest.raises(SourceChanged):
        built(one, 2)


def test_progress_of_lanes_ends_at_all(job, eager):
    told = []
    one = job(scattered(3000, 4))
    built(one, 2, on_progress=told.append)
    done = [progress.done for progress in told]
    assert done == sorted(done)
    assert told[-1] == BuildProgress(one.source_bytes, one.source_bytes, 6000, 6000)


def test_what_is_too_long_for_a_lane_is_built_alone(job, eager, monkeypatch):
    """A lane of several may hold less; a single lane accepts the value or reports its own limit."""
    contents = [b"a\t1\n", b"b\t" + b"v" * 50_000 + b"\n"]
    tight = Lanes(2, MEMORY_BYTES, FileReading(max_value_bytes=20_000))
    assert built(job(contents), 2, lanes=tight).records == 2
    with pytest.raises(SourceError) as caught:
        built(replace(job(contents, name="v2"), reading=FileReading(max_value_bytes=40_000)), 2, lanes=tight)
    assert caught.value.details["line"] == 1
    assert "40,000" in caught.value.message


def test_the_memory_says_how_many_lanes(job, eager):
    """Each lane has enough memory to build and to read."""
    one = job(partitioned(100, 4))
    mib = 1 << 20
    found = []
    for memory_bytes in range(40 * mib, 600 * mib, 10 * mib):
        shared = share_of_lanes(one, memory_bytes, process_bytes=25 * mib, most_lanes=4)
        if shared is not None:
            most = memory_bytes - 25 * mib
            assert shared.lanes * MIN_MEMORY_BYTES <= shared.builders_bytes < most
        found.append(0 if shared is None else shared.lanes)
    assert found == sorted(found)
    assert set(found) == {0, 2, 3, 4}
    assert share_of_lanes(one, 600 * mib, process_bytes=25 * mib, most_lanes=1) is None

"""A preview: what a node would make of files, told by the reader of builds."""

from dataclasses import replace

import pytest

from gossipkv.dataset import finish_version, partition_of, write_partition
from gossipkv.dataset.build.job import BuildJob
from gossipkv.dataset.build.steps import BuildResources, perform
from gossipkv.dataset.offline.preview import preview
from gossipkv.dataset.source.listing import SourceRoot
from gossipkv.environment.real_files import RealFiles
from gossipkv.errors import SourceError

RECORDS = [(b"key %d" % n, b"value %d" % n) for n in range(300)]


@pytest.fixture
def job(tmp_path):
    """Return a function that writes files and makes the job that would build them."""

    def make(files):
        place = tmp_path / "v"
        place.mkdir(exist_ok=True)
        for name, data in files.items():
            (place / name).write_bytes(data)
        return BuildJob.of(SourceRoot(str(tmp_path), RealFiles()).listed(str(place), "geo", "1"), str(tmp_path / "to"))

    return make


def text(records):
    return b"".join(b"%s\t%s\n" % record for record in records)


def by(function, partitions):
    found = [
        [record for record in RECORDS if partition_of(record[0], partitions, function) == n] for n in range(partitions)
    ]
    return {f"part-{n}": text(records) for n, records in enumerate(found)}


def built(job, tmp_path):
    (tmp_path / "to").mkdir()
    return perform(job, RealFiles(), BuildResources(8 << 20))


@pytest.mark.parametrize(("files", "function", "relies"), [
    (by("sequins", 3), "sequins", True),
    (by("text", 3), "text", True),
    ({"part-0": text(RECORDS[:150]), "part-1": text(RECORDS[150:])}, "sequins", False),
])  # fmt: skip
def test_it_says_what_a_build_makes(job, tmp_path, files, function, relies):
    read = []
    found = preview(job(files), RealFiles(), on_bytes=read.append)
    manifest = built(job(files), tmp_path)
    assert (found.format, found.function, found.relies) == ("tsv", function, relies)
    assert (manifest.identity.function, not manifest.identity.regrouped) == (function, relies)
    assert (found.records, found.source_bytes) == (manifest.records, manifest.source_bytes) == (300, sum(read))
    assert found.files == len(files)
    assert len(found.first) == 3
    assert set(found.first) <= set(RECORDS)
    assert found.warnings == ()


def test_it_tells_the_doubts_of_a_build(job, tmp_path):
    found = replace(job({"part-0.csv": b"key,value\na,1\n\xe9,2\n"}), format="csv")
    (warning,) = preview(found, RealFiles()).warnings
    assert "part-0.csv: line 3 is not UTF-8" in warning
    assert built(found, tmp_path).warnings == (warning,)


def test_a_key_that_strays_is_told(job, tmp_path):
    """Like a build, it goes on by the function that still fits, or by ours."""
    files = by("text", 3)
    files["part-0"] += files["part-1"]
    found = preview(job(files), RealFiles())
    manifest = built(job(files), tmp_path)
    assert (found.function, found.relies) == (manifest.identity.function, not manifest.identity.regrouped)
    assert found.relies is False
    assert "belongs to another file by 'text'" in found.warnings[0]


def test_sorted_files_are_taken_over_or_sorted_anew(tmp_path):
    """A node that cannot take them over says why, and so does the preview."""
    place = tmp_path / "v"
    for n in range(2):
        held = [record for record in RECORDS if partition_of(record[0], 2, "text") == n]
        write_partition(place, n, 2, held, function="text")
    finish_version(place, 2)
    listed = SourceRoot(str(tmp_path), RealFiles()).listed(str(place), "geo", "1")
    found = preview(BuildJob.of(listed, "."), RealFiles())
    assert (found.format, found.function, found.relies, found.records) == ("sorted", "text", True, 300)
    write_partition(tmp_path / "other", 0, 1, RECORDS)
    (tmp_path / "other" / "part-00000.gkv").rename(place / "part-9.gkv")
    listed = SourceRoot(str(tmp_path), RealFiles()).listed(str(place), "geo", "1")
    found = preview(BuildJob.of(listed, "."), RealFiles())
    assert (found.relies, found.records) == (False, 600)
    assert "a node sorts these files again: the 3 files are partitioned in different ways" in found.warnings[0]
    (place / "part-00001.gkv").unlink()
    listed = SourceRoot(str(tmp_path), RealFiles()).listed(str(place), "geo", "1")
    with pytest.raises(SourceError, match="partition 1 is missing beside it"):
        preview(BuildJob.of(listed, "."), RealFiles())


def test_what_cannot_be_read_is_the_builds_error(job, tmp_path):
    broken = job({"part-0": b"a\tb\nno tab here\n"})
    with pytest.raises(SourceError) as expected:
        built(broken, tmp_path)
    with pytest.raises(SourceError) as caught:
        preview(broken, RealFiles())
    assert caught.value.message == expected.value.message

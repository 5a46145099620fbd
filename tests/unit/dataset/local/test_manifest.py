"""The manifest of a built version."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from gossipkv.dataset.local.manifest import (
    PartitionFile,
    VersionManifest,
    from_body,
    partition_name,
    read_manifest,
    to_body,
    write_manifest,
)
from gossipkv.environment.real_files import RealFiles
from gossipkv.errors import Corrupt
from gossipkv.placement.identity import VersionIdentity
from gossipkv.placement.partition_set import PartitionSet
from tests.golden import make_golden

GOLDEN = Path(__file__).parents[3] / "golden"
MANIFEST = VersionManifest(
    VersionIdentity("db", "v1", "d" * 64, 2, "sequins", regrouped=True),
    3,
    1000,
    "lz4",
    (PartitionFile("part-00000.gkv", 10, 1, 500, 7), PartitionFile("part-00001.gkv", 20, 2, 600, 8)),
    source_ms=1_767_225_600_000,
    refuted=("sequins", "text"),
)


def test_it_reads_back_as_written(tmp_path):
    """The sums are right, too; warnings may be missing, as they are in older manifests."""
    doubtful = replace(MANIFEST, warnings=("f: the first line looks like a header",))
    assert from_body(to_body(doubtful), "x") == doubtful
    write_manifest(RealFiles(), tmp_path, MANIFEST)
    assert read_manifest(RealFiles(), tmp_path) == MANIFEST
    assert (MANIFEST.records, MANIFEST.duplicates, MANIFEST.size_bytes) == (30, 3, 1100)


def test_files_are_named_by_partition():
    assert [partition_name(number) for number in (0, 16_383, 123_456)] == [
        "part-00000.gkv",
        "part-16383.gkv",
        "part-123456.gkv",
    ]


@pytest.mark.parametrize("field", list(to_body(MANIFEST)))
def test_every_field_is_needed(field):
    """Each field must be present and have its type."""
    for value in (None, [1], -1, {"x": 1}, ...):
        if value is None and field in {"voided", "first_stray", "share"}:
            continue  # Most versions have it so.
        body = to_body(MANIFEST)
        if value is ...:
            del body[field]
        else:
            body[field] = value
        with pytest.raises(Corrupt, match=field):
            from_body(body, "x")


def test_a_time_is_one_that_other_nodes_can_be_told():
    """A time beyond any clock is damage."""
    assert from_body({**to_body(MANIFEST), "source_ms": 1 << 53}, "x").source_ms == 1 << 53
    with pytest.raises(Corrupt, match="source_ms"):
        from_body({**to_body(MANIFEST), "source_ms": (1 << 53) + 1}, "x")


@pytest.mark.parametrize("share", [[], [0], [0, 1]])
def test_the_share_is_kept(tmp_path, share):
    """The share is kept whatever is present, even if it is empty."""
    told = replace(MANIFEST, files=(MANIFEST.files[0], None), share=PartitionSet.of(2, share))
    write_manifest(RealFiles(), tmp_path, told)
    assert read_manifest(RealFiles(), tmp_path) == told
    assert told.here == PartitionSet.of(2, [0])


@pytest.mark.parametrize("share", ["4", "04", "0300", "xx", "0G"])
def test_a_share_is_of_as_many_partitions_as_there_are(share):
    with pytest.raises(Corrupt, match="share"):
        from_body({**to_body(MANIFEST), "share": share}, "x")


def test_two_builds_of_one_version_are_joined():
    """Each keeps its own files; functions that every key fits are those that fit in both builds."""
    one, other = MANIFEST.files
    first = replace(MANIFEST, files=(one, None), alike=("sequins", "string", "spark"), share=PartitionSet.of(2, [0]))
    second = replace(MANIFEST, files=(None, other), alike=("sequins", "spark"), refuted=("cascading", "text"))
    both = first.joined(second)
    assert (both.files, both.alike, both.share) == ((one, other), ("sequins", "spark"), None)
    assert both.refuted == ("cascading", "sequins", "text")
    assert [first.joined(replace(second, source_ms=at)).source_ms for at in (0, first.source_ms + 5)] == [
        first.source_ms, first.source_ms + 5,
    ]  # fmt: skip
    assert both.without(PartitionSet.of(2, [1])).files == (one, None)
    with pytest.raises(AssertionError):
        first.joined(replace(second, identity=replace(second.identity, digest="e" * 64)))


@pytest.mark.parametrize("refuted", [["sequins"], ["text", "sequins"]])
def test_what_is_refuted_is_not_relied_on(refuted):
    """Only a faulty program writes such a manifest; ours asserts that it does not."""
    body = {**to_body(MANIFEST), "regrouped": False, "refuted": refuted}
    with pytest.raises(Corrupt, match="'refuted' contains 'sequins', on which the build relied"):
        from_body(body, "x")
    with pytest.raises(AssertionError):
        replace(MANIFEST, identity=replace(MANIFEST.identity, regrouped=False), refuted=tuple(refuted))


@pytest.mark.parametrize("name", ["whole", "shared"])
def test_manifests_are_as_the_oracle_writes_them(tmp_path, name):
    """The golden document is read, and written again byte for byte."""
    golden = GOLDEN / f"manifest-{name}.document"
    assert golden.read_bytes() == make_golden.document("MANIFEST", make_golden.MANIFESTS[name])
    shutil.copy(golden, tmp_path / "_MANIFEST")
    found = read_manifest(RealFiles(), tmp_path)
    assert found.source_ms == make_golden.MANIFESTS[name]["source_ms"]
    write_manifest(RealFiles(), tmp_path, found)
    assert (tmp_path / "_MANIFEST").read_bytes() == golden.read_bytes()


GOOD = [1, 1, 1, 1]


@pytest.mark.parametrize(
    "files",
    [[], [GOOD], [GOOD] * 3, [GOOD[1:]] * 2, [GOOD, [1, "1", 1, 1]], [GOOD, [1, 1, -1, 1]], [GOOD, {"a": 1}]],
)
def test_there_is_one_file_for_each_partition(files):
    """Each file has four numbers."""
    with pytest.raises(Corrupt, match="files"):
        from_body({**to_body(MANIFEST), "files": files}, "x")

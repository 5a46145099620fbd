"""One build, from source files to sorted files and a manifest."""

import contextlib
import dataclasses
import json
import os
import shutil
from pathlib import Path

import pytest

from gossipkv.dataset.build.job import BuildJob, BuildProgress, space_needed_bytes
from gossipkv.dataset.build.reading_in import PROBE_KEYS
from gossipkv.dataset.build.steps import BuildResources, perform
from gossipkv.dataset.formats.reading import FileReading
from gossipkv.dataset.local.manifest import read_manifest
from gossipkv.dataset.local.version import open_version
from gossipkv.dataset.source.listing import SourceRoot
from gossipkv.dataset.source.reader import CHUNK_BYTES
from gossipkv.environment.real_files import RealFiles
from gossipkv.errors import SourceChanged, SourceError, StorageError
from gossipkv.processes.program import order_line, read_order
from tests.oracle import hashing as oracle
from tests.unit.dataset.sources import MEMORY_BYTES, lines
from tests.world.faulty_files import FaultyFiles


def build(job, files=None, **options):
    return perform(job, files or RealFiles(), BuildResources(MEMORY_BYTES, **options))


def opened(job):
    return open_version(RealFiles(), Path(job.directory), job.database, job.version)


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_every_record_is_in_its_partition(job, compression):
    """The oracle computes the partition of each key; no record is lost or added."""
    contents = [b"".join(b"k%d\t%d\n" % (n, n * n) for n in range(1000 * at, 1000 * at + 1000)) for at in range(3)]
    one = job(contents, compression=compression)
    manifest = build(one)
    version = opened(one)
    expected = {b"k%d" % n: b"%d" % (n * n) for n in range(3000)}
    found = {}
    for partition, file in enumerate(version.files):
        for key, value in file.scan():
            assert (oracle.sequins(key) & 0x7FFFFFFF) % 3 == partition
            found[key] = value
    assert found == expected
    assert manifest == version.manifest == read_manifest(RealFiles(), Path(one.directory))
    assert (version.records, version.duplicates, version.partitions) == (3000, 0, 3)
    assert version.function == "sequins"
    assert version.manifest.compression == compression
    assert version.size_bytes == sum(path.stat().st_size for path in Path(one.directory).glob("*.gkv"))
    assert json.loads(version.files[0].metadata)["digest"] == one.digest
    version.close()


def test_of_duplicates_the_last_in_file_order_is_served_and_the_others_are_counted(job):
    """Files count in the byte order of their names, lines in their order."""
    one = job([lines(a=1, b=1) + lines(a=2), lines(c=1, a=3), lines(b=2)], partitions=1)
    manifest = build(one)
    version = opened(one)
    assert list(version.files[0].scan()) == [(b"a", b"3"), (b"b", b"2"), (b"c", b"1")]
    assert (manifest.records, manifest.duplicates) == (3, 3)
    assert manifest.source_files == 3
    version.close()


def test_doubtful_text_is_served_and_the_manifest_says_so(job):
    """The first file with any bytes is looked at; none of its data is told."""
    one = job([b"", b"user_id\tname\nu1\tAda\n", b""])
    manifest = build(one)
    assert manifest.records == 2
    (warning,) = manifest.warnings
    assert warning.startswith(
        f"{one.files[1].path}: the first line looks like a header; if the file is CSV, or text of another encoding"
    )
    assert read_manifest(RealFiles(), Path(one.directory)) == manifest


def test_columns_of_directories_are_columns(tmp_path, put):
    """A version of JSON lines in Hive's directories is built; one of tab-separated lines would lose the columns."""
    place = tmp_path / "source" / "db" / "v1"
    for country in ("DE", "FR"):
        (place / f"c={country}").mkdir(parents=True)
        (place / f"c={country}" / "part-0").write_bytes(b'{"id":7}\n')
    version = SourceRoot(tmp_path / "source", RealFiles()).version("db", "v1")
    for name, form in (("a", "json"), ("b", "tsv")):
        (tmp_path / name).mkdir()
        one = BuildJob.of(version, str(tmp_path / name))
        one = dataclasses.replace(one, format=form, reading=FileReading(("c", "id"), "*", separator="/"))
        if form == "tsv":
            with pytest.raises(SourceError, match=r"the columns of its directories \(c\) would be lost"):
                build(one)
            continue
        build(one)
        with contextlib.closing(opened(one)) as built:
            found = dict(pair for file in built.files for pair in file.scan())
    assert found == {b"DE/7": b'{"id":7,"c":"DE"}', b"FR/7": b'{"id":7,"c":"FR"}'}


def test_empty_files_make_empty_partitions(job):
    one = job([b"", b"\n", b""])
    assert build(one).records == 0
    version = opened(one)
    assert [len(file) for file in version.files] == [0, 0, 0]
    version.close()


def test_progress_goes_from_nothing_to_all(job):
    told = []
    one = job([b"".join(b"k%d\t%s\n" % (n, b"x" * 90) for n in range(10_000))] * 2)
    build(one, on_progress=told.append)
    done = [progress.done for progress in told]
    assert done == sorted(done)
    assert done[-1] == 1.0
    assert told[-1] == BuildProgress(one.source_bytes, one.source_bytes, 20_000, 20_000)


def test_telling_progress_takes_no_longer_for_many_files(job, monkeypatch):
    """The sizes are summed a few times a build, and not at every step of each file."""
    sums = []
    one = job([lines(**{f"k{n}": n}) for n in range(100)])
    size_bytes = one.source_bytes

    def source_bytes(_job):
        sums.append(1)
        return size_bytes

    monkeypatch.setattr(type(one), "source_bytes", property(source_bytes))
    build(one)
    assert len(sums) < 10


def test_each_chunk_is_paced_before_it_is_used(job):
    one = job([b"a\t1\n" * 300_000, b"b\t1\n"])
    sizes = []
    build(one, pace=sizes.append)
    assert sum(sizes) == one.source_bytes
    assert max(sizes) == CHUNK_BYTES


def test_a_wrong_line_leaves_no_manifest_and_no_files(job):
    """The error names file and line."""
    one = job([lines(a=1), b"wrong\n"])
    with pytest.raises(SourceError) as caught:
        build(one)
    assert caught.value.details["file"].endswith("part-1")
    assert caught.value.details["line"] == 1
    assert os.listdir(one.directory) == []


def test_a_source_that_changed_is_no_storage_error(job, tmp_path):
    """A changed source makes the node begin anew."""
    one = job([lines(a=1)])
    (tmp_path / "source/db/v1/part-0").write_bytes(b"a\t12\n")
    with pytest.raises(SourceChanged):
        build(one)


def test_a_full_disk_is_told_before_anything_is_written(job):
    """The error has the needed space, the free space and the place."""

    class Full(RealFiles):
        def free_bytes(self, path):
            return 1000

    one = job([b"k\t" + b"v" * 1_000_000])
    with pytest.raises(StorageError, match="2,265,540 bytes are needed, 1,000 bytes are free") as caught:
        build(one, Full())
    assert caught.value.details == {
        "file": one.directory, "needed_bytes": space_needed_bytes(one), "free_bytes": 1000,
    }  # fmt: skip
    assert os.listdir(one.directory) == []


# The function that made the files


def partitioned(function, count, keys):
    """Return the text of each file as a job with that function writes it."""
    found = [[] for _ in range(count)]
    for key in keys:
        found[oracle.partition(function, key, count)].append(b"%s\tv%s\n" % (key, key))
    return [b"".join(one) for one in found]


KEYS = [f"{n * 7919:x}é{'x' * (n % 5)}".encode() for n in range(3000)]


@pytest.mark.parametrize("function", ["sequins", "text", "string", "spark", "cascading"])
def test_a_version_is_built_by_the_function_that_made_it(job, function):
    """The version uses that function, or one with the same files under other numbers; no key strays."""
    contents = partitioned(function, 5, KEYS)
    one = job(contents)
    manifest = build(one)
    found = manifest.identity.function
    assert found == manifest.alike[0] == ("string" if function == "cascading" else function)
    assert function in manifest.alike
    assert (manifest.strays, manifest.voided, manifest.first_stray) == (0, None, None)
    assert sorted(file.records for file in manifest.files) == sorted(content.count(b"\n") for content in contents)
    version = opened(one)
    for key in KEYS:
        assert version.files[oracle.partition(found, key, 5)].get(key) == b"v" + key
    version.close()


def test_functions_that_differ_in_one_late_key_are_told_apart(job):
    """The samples fit both; the deciding key selects the next function and is no stray."""
    positive = [key for key in (b"%d" % n for n in range(5000)) if oracle.string(key) >= 0]
    negative = next(key for key in (b"zzzzzz%d" % n for n in range(5000)) if oracle.string(key) < 0)
    contents = partitioned("spark", 5, [*positive, negative])
    manifest = build(job(contents))
    assert (manifest.identity.function, manifest.alike, manifest.strays) == ("spark", ("spark",), 0)


@pytest.mark.parametrize("function", ["sequins", "text", "spark"])
@pytest.mark.parametrize("late", [True, False])
def test_a_stray_key_is_no_error_but_is_named_and_everything_is_grouped_anew(job, function, late):
    """Early or late, the stray is named with key, file and offset, and no record is lost."""
    contents = partitioned(function, 5, KEYS)
    stray = f"stray{'é' if late else ''}".encode()
    home = oracle.partition(function, stray, 5)
    wrong = (home + 2) % 5
    lines_before = contents[wrong].split(b"\n")
    at = len(lines_before) - 2 if late else 3
    lines_before.insert(at, stray + b"\tlost")
    contents[wrong] = b"\n".join(lines_before)
    one = job(contents)
    manifest = build(one)
    assert manifest.identity.function == "sequins"
    assert (manifest.voided, manifest.strays, manifest.alike) == (function, 1, ("sequins",))
    assert manifest.first_stray.key == stray
    assert manifest.first_stray.file == one.files[wrong].path
    assert manifest.first_stray.offset == contents[wrong].index(stray)
    version = opened(one)
    for key in KEYS:
        assert version.files[oracle.partition("sequins", key, 5)].get(key) == b"v" + key
    assert version.files[oracle.partition("sequins", stray, 5)].get(stray) == b"lost"
    version.close()


def test_files_of_no_function_are_grouped_by_our_own(job):
    """Contiguous slices, as a sort writes them, fit no function."""
    ordered = sorted(KEYS)
    contents = [b"".join(b"%s\tv\n" % key for key in ordered[at : at + 1000]) for at in range(0, 3000, 1000)]
    manifest = build(job(contents))
    assert (manifest.identity.function, manifest.alike, manifest.voided) == ("sequins", ("sequins",), None)
    assert manifest.records == 3000


def test_only_the_wanted_partitions_are_built(job):
    """Other files are skipped after a probe or read to the end; no wanted record is lost."""
    contents = partitioned("text", 4, [b"%d" % n for n in range(40_000)])
    for presharded, most in (("probe", 5), ("never", 100)):
        one = dataclasses.replace(job(contents, name=presharded), wanted=(2,), presharded=presharded)
        read = []
        manifest = build(one, pace=read.append)
        assert [file is not None for file in manifest.files] == [False, False, True, False]
        assert manifest.records == contents[2].count(b"\n")
        assert sum(read) <= sum(map(len, contents)) * most
        version = opened(one)
        assert version.files[0] is None
        assert version.files[2].get(b"7") == (b"v7" if oracle.partition("text", b"7", 4) == 2 else None)
        version.close()


def with_a_deep_stray(function="sequins", count=4):
    """Return files with one record at the end of file 0 that belongs into partition 2, and its key."""
    contents = partitioned(function, count, [b"%0100d" % n for n in range(40_000)])
    assert contents[0].count(b"\n") > PROBE_KEYS + 3000  # The probe ends with a batch.
    stray = next(b"stray%d" % n for n in range(99) if oracle.partition(function, b"stray%d" % n, count) == 2)
    contents[0] += stray + b"\tlost\n"
    return contents, stray


def only(one, *partitions, **options):
    """Return the job for some partitions, in a directory of its own."""
    place = f"{one.directory}-{'-'.join(map(str, [*partitions, *options]))}"
    os.mkdir(place)
    return dataclasses.replace(one, directory=place, wanted=partitions, **options)


def test_who_regrouped_and_who_relied_have_no_version_in_common(job):
    """The identities differ, because the records do.

    A node that builds few partitions may rely on a function that another node has seen refuted: one build meets the
    stray and regroups; the other skips its file, relies on `sequins`, and lacks the record.
    """
    contents, stray = with_a_deep_stray()
    one = job(contents)
    met, skipped = only(one, 0), only(one, 2)
    regrouped, relied = build(met).identity, build(skipped).identity
    assert (regrouped.regrouped, relied.regrouped) == (True, False)
    assert regrouped != relied == dataclasses.replace(regrouped, regrouped=False)
    assert regrouped.wire_id != relied.wire_id
    version = opened(skipped)
    assert version.files[2].get(stray) is None
    assert json.loads(version.files[2].metadata)["regrouped"] is False
    version.close()


def test_who_is_told_of_a_stray_follows_who_met_it(job):
    """The finder names the refuted functions; a follower relies on none of them and has the record."""
    contents, stray = with_a_deep_stray()
    one = job(contents)
    found = build(only(one, 0))
    assert set(found.refuted) >= {"sequins"}
    told = only(one, 2, refuted=found.refuted)
    manifest = build(told)
    assert manifest.identity == found.identity
    assert (manifest.refuted, manifest.voided, manifest.strays) == (found.refuted, "sequins", 1)
    assert manifest.first_stray.key == stray
    version = opened(told)
    assert version.files[2].get(stray) == b"lost"
    version.close()


def test_all_take_the_first_function_that_is_not_refuted(job):
    """A build that finds the late key and one that is told of it make the same version."""
    positive = [key for key in (b"%d" % n for n in range(5000)) if oracle.string(key) >= 0]
    negative = next(key for key in (b"zzzzzz%d" % n for n in range(5000)) if oracle.string(key) < 0)
    one = job(partitioned("spark", 5, [*positive, negative]))
    found = build(only(one, *range(5)))
    assert (found.identity.function, found.identity.regrouped) == ("spark", False)
    assert "spark" not in found.refuted
    assert "string" in found.refuted
    told = build(only(one, 1, refuted=found.refuted))
    assert told.identity == found.identity
    assert told.refuted == found.refuted
    assert build(only(one, 2, refuted=(*found.refuted, "spark"))).identity.regrouped


def test_a_function_that_strays_beside_the_one_that_holds_is_refuted(job):
    """No node may take it later, if the function that holds here is refuted elsewhere."""
    positive = [key for key in (b"%d" % n for n in range(5000)) if oracle.string(key) >= 0]
    negative = next(key for key in (b"zzzzzz%d" % n for n in range(5000)) if oracle.string(key) < 0)
    manifest = build(job(partitioned("string", 5, [*positive, negative])))
    assert (manifest.identity.function, manifest.identity.regrouped) == ("sequins", False)
    assert "spark" in manifest.refuted
    assert not set(manifest.refuted) & set(manifest.alike)


@pytest.mark.parametrize("partitions", [None, 7])
def test_what_nothing_made_is_regrouped(job, partitions):
    """No function fits, or there are more partitions than files: everything is read and nothing is refuted."""
    ordered = sorted(KEYS)
    contents = [b"".join(b"%s\tv\n" % key for key in ordered[at : at + 1000]) for at in range(0, 3000, 1000)]
    manifest = build(job(contents, partitions=partitions))
    assert (manifest.identity.regrouped, manifest.refuted) == (True, ())


def test_a_function_over_text_refuses_a_key_that_is_none(job):
    """The function was requested by name; the error has the key and its place."""
    one = dataclasses.replace(job([b"a\t1\n\xff\t2\n"], partitions=3), function="string", format="tsv")
    with pytest.raises(SourceError, match=r"byte 4: the key b'\\xff' is not UTF-8, so it has no partition by 'string'"):
        build(one)


def declare(one, function, held):
    """Put a declaration of the job beside its files."""
    place = Path(one.files[0].path).parent
    (place / "_PARTITIONS.json").write_text(json.dumps({"function": function, "partitions": len(held), "files": held}))
    version = SourceRoot(place.parent.parent, RealFiles()).version(one.database, one.version)
    return dataclasses.replace(one, declaration=version.declaration)


def test_declared_files_of_unwanted_partitions_are_not_read(job):
    """Only with `declared` does the declaration suffice to skip files."""
    contents = partitioned("text", 4, [b"%d" % n for n in range(40_000)])
    one = job(contents, name="v1")
    one = declare(one, "text", {file.name: place for place, file in enumerate(one.files)})
    one = dataclasses.replace(one, wanted=(1,))
    for presharded, read_files in (("declared", {1}), ("never", {0, 1, 2, 3})):
        files = FaultyFiles(RealFiles())
        wanted = dataclasses.replace(one, presharded=presharded)
        shutil.rmtree(wanted.directory)
        os.mkdir(wanted.directory)
        read = []
        manifest = build(wanted, files, pace=read.append)
        assert manifest.records == contents[1].count(b"\n")
        assert sum(read) == sum(len(contents[place]) for place in read_files)


def test_a_wrong_declaration_is_found_out_by_the_keys(job):
    """A declared function counts only if the keys agree."""
    contents = partitioned("text", 5, KEYS)
    one = job(contents)
    manifest = build(declare(one, "spark", {file.name: place for place, file in enumerate(one.files)}))
    assert (manifest.identity.function, manifest.records) == ("text", len(KEYS))


def test_a_declared_function_is_the_one_among_those_that_fit(job):
    """The declaration decides where keys do not."""
    contents = partitioned("spark", 8, KEYS)
    one = job(contents)
    manifest = build(declare(one, "spark", {file.name: place for place, file in enumerate(one.files)}))
    assert (manifest.identity.function, manifest.alike[:2]) == ("spark", ("spark", "string"))


def following(one, function, *, regrouped=False):
    """Return the job of a node that follows another node's identity of these files."""
    return dataclasses.replace(one, follow=one.identity(function, regrouped=regrouped))


@pytest.mark.parametrize("declared", [None, "cascading"])
def test_what_others_have_made_of_the_files_is_made_of_them_here(job, declared):
    """The identity decides where keys do not, against the node's own preference."""
    one = job(partitioned("spark", 8, KEYS))
    if declared is not None:
        one = declare(one, declared, {file.name: place for place, file in enumerate(one.files)})
    one = read_order(order_line(following(one, "spark")), BuildJob)
    assert build(one).identity == one.follow


def test_what_others_have_regrouped_is_regrouped_here(job):
    """The followed identity is enough, without a reason in the files."""
    contents = partitioned("text", 5, KEYS)
    one = following(job(contents), "sequins", regrouped=True)
    manifest = build(one)
    assert manifest.identity == one.follow
    assert (manifest.voided, manifest.strays, manifest.records) == ("text", 0, len(KEYS))


@pytest.mark.parametrize("wrong", ["sequins", "nonsense"])
def test_what_these_files_refute_is_not_followed(job, wrong):
    """An unknown function is not followed either."""
    one = job(partitioned("text", 5, KEYS))
    manifest = build(following(one, wrong))
    assert manifest.identity == one.identity("text", regrouped=False)


def test_another_number_of_partitions_is_not_followed(job):
    """The other identity belongs to another version of the files."""
    one = job(partitioned("text", 5, KEYS))
    other = dataclasses.replace(one, partitions=4).identity("sequins", regrouped=True)
    assert build(dataclasses.replace(one, follow=other)).identity == one.identity("text", regrouped=False)

"""Versions of sorted files through a build and a node: adopted, or built after all."""

import dataclasses
import json
import os
import uuid
from pathlib import Path

import fsspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.dataset import finish_version, partition_of, write_partition
from gossipkv.dataset.build.job import BuildJob, BuildProgress
from gossipkv.dataset.build.steps import BuildResources, perform
from gossipkv.dataset.local.manifest import Stray, read_manifest
from gossipkv.dataset.local.version import open_version
from gossipkv.dataset.source.listing import SourceRoot
from gossipkv.environment.real_files import RealFiles
from gossipkv.errors import Corrupt, SourceError
from tests.oracle import sorted_file as oracle
from tests.unit.dataset.sources import MEMORY_BYTES
from tests.world.sorted_files import build

RECORDS = {b"key %05d" % n: b"value %d" % n * 5 for n in range(3000)}


def write(place, partitions=3, function="sequins", records=RECORDS, **options):
    for partition in range(partitions):
        held = [record for record in records.items() if partition_of(record[0], partitions, function) == partition]
        write_partition(place, partition, partitions, held, function=function, memory_bytes=MEMORY_BYTES, **options)
    finish_version(place, partitions)


def job_of(root, directory, **options):
    """Return the build of the version `db/v1` below a root."""
    source = SourceRoot.open(str(root), RealFiles(), {})
    os.mkdir(directory)
    one = BuildJob.of(source.version("db", "v1"), str(directory), remote=source.remote)
    return dataclasses.replace(one, **options)


def answers(one):
    """Return all records that a node would serve, and assert their partitions."""
    version = open_version(RealFiles(), Path(one.directory), "db", "v1")
    found = {}
    for partition, file in enumerate(version.files):
        for key, value in file.scan() if file is not None else ():
            assert partition_of(key, version.partitions, version.function) == partition
            assert file.get(key) == value
            found[key] = value
    version.close()
    return found


def made(one, **options):
    return perform(one, RealFiles(), BuildResources(MEMORY_BYTES, **options))


@pytest.fixture
def memory():
    """Yield the URL of a source root in memory."""
    name = f"/{uuid.uuid4().hex}"
    yield f"memory:/{name}"
    fsspec.filesystem("memory").rm(name, recursive=True)


@pytest.mark.parametrize("function", ["sequins", "text", "cascading"])
def test_a_finished_version_is_taken_over(tmp_path, function):
    """Files are copied byte for byte, by their own function; the manifest is a build's."""
    write(tmp_path / "root/db/v1", function=function)
    one = job_of(tmp_path / "root", tmp_path / "build")
    told = []
    manifest = made(one, on_progress=told.append)
    assert answers(one) == RECORDS
    assert manifest == read_manifest(RealFiles(), Path(one.directory))
    assert (manifest.identity.function, manifest.alike, manifest.format) == (function, (function,), "sorted")
    assert (manifest.records, manifest.strays, manifest.voided) == (3000, 0, None)
    assert (manifest.source_files, manifest.source_bytes) == (3, manifest.size_bytes)
    for file in manifest.files_here:
        assert (tmp_path / "build" / file.name).read_bytes() == (tmp_path / "root/db/v1" / file.name).read_bytes()
    assert told[-1] == BuildProgress(one.source_bytes, one.source_bytes, 3000, 3000)
    assert [state.done for state in told] == sorted(state.done for state in told)


def test_a_remote_version_is_taken_over(tmp_path, memory):
    """Files are copied through this process, and paced."""
    write(f"{memory}/db/v1", compression="lz4")
    one = job_of(memory, tmp_path / "build")
    paced = []
    manifest = made(one, pace=paced.append)
    assert answers(one) == RECORDS
    assert (manifest.format, manifest.compression) == ("sorted", "lz4")
    assert sum(paced) >= one.source_bytes


def test_only_the_wanted_partitions_are_taken_over(tmp_path):
    """Other partitions have no entry in the manifest."""
    write(tmp_path / "root/db/v1")
    one = job_of(tmp_path / "root", tmp_path / "build", wanted=(2,))
    manifest = made(one)
    assert [file is not None for file in manifest.files] == [False, False, True]
    assert answers(one) == {key: value for key, value in RECORDS.items() if partition_of(key, 3) == 2}


@pytest.mark.parametrize("function", ["sequins", "text"])
def test_a_stray_has_the_version_partitioned_anew(tmp_path, function):
    """The new partitions are Sequins' own; the stray is served, and the manifest names it."""
    place = tmp_path / "root/db/v1"
    write(place, function=function)
    stray = next(key for key in RECORDS if partition_of(key, 3, function) == 1)
    held = [record for record in RECORDS.items() if partition_of(record[0], 3, function) == 2]
    metadata = json.dumps({"function": function, "partition": 2, "partitions": 3}).encode()
    build(place / "part-00002.gkv", [(stray, b"stray"), *held], metadata=metadata)
    one = job_of(tmp_path / "root", tmp_path / "build")
    manifest = made(one)
    assert answers(one) == RECORDS | {stray: b"stray"}  # The later file.
    assert (manifest.identity.function, manifest.voided, manifest.strays) == ("sequins", function, 1)
    at = sorted([stray, *(key for key, _ in held)]).index(stray)
    offset = 64 + sum(len(oracle.encode(key, value)) for key, value in sorted(held)[:at])
    assert manifest.first_stray == Stray(stray, str(place / "part-00002.gkv"), offset)
    assert manifest.duplicates == 1


def test_who_takes_over_and_who_meets_a_stray_have_no_version_in_common(tmp_path):
    """A node checks only its partitions; a node that is told of the stray regroups as its finder did."""
    place = tmp_path / "root/db/v1"
    write(place)
    stray = next(key for key in RECORDS if partition_of(key, 3) == 2)
    held = [record for record in RECORDS.items() if partition_of(record[0], 3) == 0]
    metadata = json.dumps({"function": "sequins", "partition": 0, "partitions": 3}).encode()
    build(place / "part-00000.gkv", [(stray, b"first"), *held], metadata=metadata)
    met = made(job_of(tmp_path / "root", tmp_path / "met", wanted=(0,)))
    took = made(job_of(tmp_path / "root", tmp_path / "took", wanted=(2,)))
    assert (met.identity.regrouped, met.refuted) == (True, ("sequins",))
    assert (took.identity.regrouped, took.refuted) == (False, ())
    assert met.identity.function == took.identity.function == "sequins"
    told = made(job_of(tmp_path / "root", tmp_path / "told", wanted=(2,), refuted=met.refuted))
    assert (told.identity, told.refuted) == (met.identity, met.refuted)
    assert (told.voided, told.strays, told.first_stray.key) == ("sequins", 1, stray)


def test_files_of_builds_that_met_a_stray_and_that_did_not_are_refused(tmp_path):
    """Together they may lack a record; files without a mark count as relied on."""
    place = tmp_path / "root/db/v1"
    write(place)
    held = [record for record in RECORDS.items() if partition_of(record[0], 3) == 1]
    claim = {"function": "sequins", "partition": 1, "partitions": 3}
    build(place / "part-00001.gkv", held, metadata=json.dumps(claim | {"regrouped": False}).encode())
    assert made(job_of(tmp_path / "root", tmp_path / "relied")).records == 3000
    build(place / "part-00001.gkv", held, metadata=json.dumps(claim | {"regrouped": True}).encode())
    with pytest.raises(SourceError, match=r"relies on .*part-00001\.gkv was regrouped .*--presharded never") as caught:
        made(job_of(tmp_path / "root", tmp_path / "mixed"))
    assert caught.value.details["file"] == str(place / "part-00000.gkv")
    (place / "_SUCCESS").unlink()
    with pytest.raises(SourceError, match=r"relies on .*part-00001\.gkv was regrouped "):
        finish_version(place, 3)


def test_sorted_files_without_a_claim_are_read(tmp_path):
    """Their function is recognised as in any other format."""
    place = tmp_path / "root/db/v1"
    place.mkdir(parents=True)
    for partition in range(3):
        held = [record for record in RECORDS.items() if partition_of(record[0], 3, "text") == partition]
        build(place / f"any{partition}.gkv", held)
    one = job_of(tmp_path / "root", tmp_path / "build")
    manifest = made(one)
    assert answers(one) == RECORDS
    assert (manifest.identity.function, manifest.format) == ("text", "sorted")


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_damage_is_named_and_leaves_no_manifest(tmp_path, compression):
    """The error has file and offset at the source; a missing partition is named too."""
    place = tmp_path / "root/db/v1"
    write(place, compression=compression)
    path = place / "part-00001.gkv"
    whole = path.read_bytes()
    path.write_bytes(whole[:5000] + b"?" + whole[5001:])
    one = job_of(tmp_path / "root", tmp_path / "build")
    with pytest.raises(Corrupt, match=rf"{path}: damaged at byte 4096: a page's checksum does not match"):
        made(one)
    assert os.listdir(one.directory) == []
    path.unlink()
    with pytest.raises(SourceError, match="partition 1 is missing beside it"):
        made(job_of(tmp_path / "root", tmp_path / "build2"))


@given(
    st.dictionaries(st.binary(max_size=6), st.binary(max_size=9), max_size=60),
    st.integers(1, 5),
    st.sampled_from(["sequins", "text"]),
    st.sampled_from(["none", "lz4"]),
)
def test_a_version_of_tasks_answers_as_a_dict_does(tmp_path_factory, records, partitions, function, compression):
    """Every record is served from its partition."""
    root = tmp_path_factory.mktemp("world")
    write(root / "db/v1", partitions, function, records, compression=compression)
    one = job_of(root, root / "_build")
    assert made(one).identity.function == function
    assert answers(one) == records

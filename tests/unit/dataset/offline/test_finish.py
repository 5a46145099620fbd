"""`finish_version`: a version needs all partitions of one kind and nothing else."""

import json
import os
import uuid

import fsspec
import pytest

from gossipkv.dataset import VersionReport, finish_version, partition_of, write_partition
from gossipkv.dataset.local.partition import PartitionClaim, claim_of
from gossipkv.dataset.offline.destinations import RemoteDestination
from gossipkv.dataset.source.declared_partitions import Declared, read_declared
from gossipkv.environment.real_files import RealFiles
from gossipkv.errors import Corrupt, SourceError, StorageError, UnsupportedFormat
from gossipkv.storage.label import read_label
from tests.oracle import sorted_file as oracle
from tests.unit.dataset.formats.cut_reader import CutReader
from tests.world.faulty_files import CHANGING, Action, Crash, Fault, FaultyFiles
from tests.world.sorted_files import build

MEMORY_BYTES = 8 << 20
RECORDS = [(b"key %d" % n, b"value %d" % n) for n in range(300)]
_REGROUPED = PartitionClaim("text", 4, 3, regrouped=True)


def write(place, *partitions, of=3, function="sequins", **options):
    for partition in partitions:
        held = [record for record in RECORDS if partition_of(record[0], of, function) == partition]
        write_partition(place, partition, of, held, function=function, memory_bytes=MEMORY_BYTES, **options)


@pytest.fixture
def memory():
    """Return a directory of fsspec's file system in memory, with its name and URL."""
    name = f"/{uuid.uuid4().hex}"
    system = fsspec.filesystem("memory")
    yield system, name, f"memory:/{name}"
    if system.exists(name):
        system.rm(name, recursive=True)


def test_a_whole_version_is_declared(tmp_path):
    """The declaration lists the files, and `_SUCCESS` comes last; a repetition changes nothing."""
    write(tmp_path, 0, 1, 2, function="text")
    files = FaultyFiles(RealFiles())
    report = finish_version(tmp_path, 3, files=files)
    size_bytes = sum((tmp_path / f"part-0000{n}.gkv").stat().st_size for n in range(3))
    assert report == VersionReport(3, "text", 300, 0, size_bytes)
    assert read_declared(CutReader((tmp_path / "_PARTITIONS.json").read_bytes())) == Declared(
        "text", 3, {"part-00000.gkv": (0,), "part-00001.gkv": (1,), "part-00002.gkv": (2,)}
    )
    renames = [line.rpartition("/")[2] for line in files.trace if line.startswith("rename")]
    assert renames == ["_PARTITIONS.json", "_SUCCESS"]
    kinds = [line.split()[0] for line in files.trace]
    assert [kind for kind in kinds if kind in {"sync", "rename"}] == ["sync", "rename"] * 2
    assert files.trace[-1] == f"sync_directory {tmp_path}"
    assert finish_version(tmp_path, 3, function="text") == report


@pytest.mark.parametrize(
    ("spoil", "what"),
    [
        (lambda place: os.unlink(place / "part-00001.gkv"), "has no part-00001.gkv; check that every task ran"),
        (lambda place: write(place, 3, of=4), "has part-00003.gkv beside its 3 partitions"),
        (lambda place: (place / "notes.txt").write_text("x"), "has notes.txt beside its 3 partitions"),
        (lambda place: write(place, 1, of=4), "part-00001.gkv: the file holds partition 1 of 4 by"),
        (lambda place: write(place, 2, function="text"), "part-00002.gkv: the file holds partition 2 of 3 by 'text'"),
        (lambda place: os.replace(place / "part-00000.gkv", place / "part-00002.gkv"), "has no part-00000.gkv"),
        (lambda place: build(place / "part-00001.gkv", RECORDS), "part-00001.gkv: the file names no partition"),
    ],
)  # fmt: skip
def test_what_is_not_whole_is_not_declared(tmp_path, spoil, what):
    write(tmp_path, 0, 1, 2)
    spoil(tmp_path)
    with pytest.raises(SourceError, match=what) as caught:
        finish_version(tmp_path, 3)
    assert str(tmp_path) in caught.value.details["file"]
    assert not {"_SUCCESS", "_PARTITIONS.json"} & set(os.listdir(tmp_path))


def test_many_that_are_missing_are_counted(tmp_path):
    """At most five are listed; a missing directory has no files."""
    with pytest.raises(SourceError, match=r"part-00004\.gkv and 95 more"):
        finish_version(tmp_path / "none", 100)
    with pytest.raises(ValueError, match="partitions must be from 1"):
        finish_version(tmp_path, 0)


def test_damaged_files_are_named(tmp_path):
    """The file was cut off, or is no sorted file."""
    write(tmp_path, 0, 1, 2)
    path = tmp_path / "part-00001.gkv"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(Corrupt, match=r"part-00001\.gkv: damaged"):
        finish_version(tmp_path, 3)
    path.write_bytes(b"SEQ\x06" + whole)
    with pytest.raises((UnsupportedFormat, Corrupt), match=r"part-00001\.gkv"):
        finish_version(tmp_path, 3)
    path.write_bytes(whole)
    finish_version(tmp_path, 3)


def test_the_function_may_be_demanded(tmp_path):
    """The driver may know the function."""
    write(tmp_path, 0, of=1)
    with pytest.raises(SourceError, match="holds partition 0 of 1 by 'sequins', but partition 0 of 1 by 'spark' is"):
        finish_version(tmp_path, 1, function="spark")
    assert finish_version(tmp_path, 1).function == "sequins"


@pytest.mark.parametrize("action", [Action.FAIL, Action.CRASH_HALFWAY, Action.CRASH_AFTER])
def test_a_driver_may_be_interrupted_at_any_moment(tmp_path, action):
    """`_SUCCESS` exists only with all the rest; a second driver completes the first one's work."""
    write(tmp_path / "calm", 0, of=1)
    calm = FaultyFiles(RealFiles())
    finish_version(tmp_path / "calm", 1, files=calm)
    for at in range(sum(calm.counts[kind] for kind in CHANGING)):
        place = tmp_path / str(at)
        write(place, 0, of=1)
        with pytest.raises((Crash, StorageError)):
            finish_version(place, 1, files=FaultyFiles(RealFiles(), Fault(at, action, kinds=CHANGING)))
        if (place / "_SUCCESS").exists():
            read_declared(CutReader((place / "_PARTITIONS.json").read_bytes()))
        finish_version(place, 1)
        assert sorted(os.listdir(place)) == ["_PARTITIONS.json", "_SUCCESS", "part-00000.gkv"]


def test_a_remote_version_is_like_a_local_one(memory, tmp_path):
    """The files are equal byte for byte, after repeated writes and with leftovers of killed uploads removed."""
    system, name, url = memory
    write(url, 0, 1, 2)
    write(url, 1)
    system.pipe_file(f"{name}/_attempt-dead-part-00001.gkv", b"half")
    report = finish_version(url, 3)
    write(tmp_path, 0, 1, 2)
    assert finish_version(tmp_path, 3) == report
    names = sorted(path.rpartition("/")[2] for path in system.ls(name, detail=False))
    assert names == sorted(os.listdir(tmp_path))
    for each in names:
        assert system.cat_file(f"{name}/{each}") == (tmp_path / each).read_bytes()
    with pytest.raises(StorageError, match=rf"{url}/part-00000\.gkv: the version is finished"):
        write(url, 0)


def test_what_is_wrong_with_a_remote_version_is_named_by_its_url(memory):
    system, name, url = memory
    with pytest.raises(SourceError, match=f"{url}: the directory has no part-00000.gkv"):
        finish_version(url, 1)
    write(url, 0, of=1)
    whole = system.cat_file(f"{name}/part-00000.gkv")
    system.pipe_file(f"{name}/part-00000.gkv", whole[:-9])
    with pytest.raises(Corrupt, match=rf"{url}/part-00000\.gkv: damaged at byte {len(whole) - 9}"):
        finish_version(url, 1)
    assert not system.exists(f"{name}/_SUCCESS")


def test_a_store_without_whole_uploads_gets_a_rename(tmp_path):
    """A name appears only with its complete file, and a failed upload leaves nothing."""
    destination = RemoteDestination(f"file://{tmp_path}/v", {})
    seen = []

    class Watched(type(destination._system)):
        cachable = False
        broken = False

        def put_file(self, source, target, **options):
            seen.append((os.path.basename(target), os.listdir(tmp_path / "v")))
            super().put_file(source, target, **options)
            if self.broken:
                raise OSError("connection reset")

        def mv(self, source, target, **options):
            if os.path.exists(target):
                raise FileExistsError(target)
            super().mv(source, target, **options)

    destination._system = Watched()
    for data in (b"one", b"two"):
        destination.put("x", data)
        assert (tmp_path / "v" / "x").read_bytes() == data
    assert [name.startswith("_attempt-") for name, _ in seen] == [True, True]
    assert [names for _, names in seen] == [[], ["x"]]
    destination._system.broken = True
    with pytest.raises(StorageError, match=r"file://.*/v: cannot write a version: connection reset"):
        destination.put("x", b"three")
    assert os.listdir(tmp_path / "v") == ["x"]
    assert (tmp_path / "v" / "x").read_bytes() == b"two"


def test_an_unknown_scheme_is_a_clear_error():
    """The error lists the known schemes."""
    with pytest.raises(StorageError, match="nonsense://x: cannot write a version: Protocol not known: nonsense"):
        write_partition("nonsense://x", 0, 1, [])


@pytest.mark.parametrize(
    ("metadata", "claim"),
    [
        (b'{"function": "text", "partitions": 4, "partition": 3, "more": 1}', PartitionClaim("text", 4, 3)),
        (b'{"function": "text", "partitions": 4, "partition": 3, "regrouped": true}', _REGROUPED),
        (b'{"function": "text", "partitions": 4, "partition": 3, "regrouped": 1}', None),
        (b"", None), (b"\xff", None), (b"[" * 9999, None), (b"[]", None), (b"{}", None),
        (b'{"function": "murmur", "partitions": 4, "partition": 3}', None),
        (b'{"function": ["text"], "partitions": 4, "partition": 3}', None),
        (b'{"function": "text", "partitions": 4, "partition": 4}', None),
        (b'{"function": "text", "partitions": 4, "partition": -1}', None),
        (b'{"function": "text", "partitions": 4, "partition": true}', None),
        (b'{"function": "text", "partitions": 4}', None),
        (b'{"function": "text", "partitions": 0, "partition": 0}', None),
        (b'{"function": "text", "partitions": 16385, "partition": 0}', None),
        (b'{"function": "text", "partitions": true, "partition": 0}', None),
        (json.dumps({"function": "text", "partitions": 4.0, "partition": 0}).encode(), None),
    ],
)  # fmt: skip
def test_metadata_are_a_claim_when_they_are_whole(metadata, claim):
    """Builders of sorted files may store other metadata with them."""
    assert claim_of(read_label(CutReader(oracle.write([], metadata=metadata)))) == claim


def test_what_is_secret_in_a_url_is_not_told(monkeypatch):
    """Users, passwords and options are removed, even from the file system's own message."""
    system = type(fsspec.filesystem("memory"))

    def refuse(self, path, **options):
        raise PermissionError("no access for key hunter2hunter2 and password s3cr3t-s3cr3t")

    monkeypatch.setattr(system, "exists", refuse)
    with pytest.raises(StorageError, match=r"^memory://\*\*\*@host/v/?.*cannot write a version: no access") as caught:
        write_partition("memory://me:s3cr3t-s3cr3t@host/v", 0, 1, [], storage_options={"secret": "hunter2hunter2"})
    assert "hunter2" not in f"{caught.value} {caught.value.details}"
    assert "s3cr3t" not in f"{caught.value} {caught.value.details}"
    assert caught.value.__cause__ is None

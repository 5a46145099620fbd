"""Publication: a version appears whole, and the same publication again completes an interrupted one."""

import contextlib
import os
import uuid
import zlib
from dataclasses import replace
from datetime import UTC, datetime

import fsspec
import pytest

from gossipkv.dataset.offline.publishing import (
    Receipt,
    SourceDatabase,
    content_of,
    next_version,
    refuse_unfinished,
)
from gossipkv.dataset.source.listing import SourceRoot
from gossipkv.dataset.source.remote import files_of
from gossipkv.environment.real_files import RealFiles
from gossipkv.errors import BadRequest, Conflict, SourceChanged, SourceError, StorageError
from tests.world.faulty_files import CHANGING, Action, Crash, Fault, FaultyFiles

NOW = datetime(2026, 11, 20, 10, 15, 30, tzinfo=UTC)
CRC = b"crc\0" + (512).to_bytes(4, "big") + zlib.crc32(b"peru\tLima\n").to_bytes(4, "big")
DATA = {"part-0": b"france\tParis\n", "part-1": b"peru\tLima\n", ".part-1.crc": CRC, "_PARTITIONS.json": b"{}"}


@pytest.fixture
def job(tmp_path):
    """Return a function that writes a job's directory and lists it."""

    def write(data=DATA, name="out"):
        place = tmp_path / name
        place.mkdir(exist_ok=True)
        for file, content in data.items():
            (place / file).write_bytes(content)
        return SourceRoot(str(tmp_path), RealFiles()).listed(str(place), "", "")

    return write


def receipt(listed):
    return Receipt(content_of(listed), 2, listed.size_bytes)


def publish(root, listed, version=None, *, known=(), files=None, **options):
    """Do what the command does, once; return the version."""
    target = SourceDatabase(str(root), "geo", files=files)
    name = target.choose(content_of(listed), version, known, NOW)
    target.put(name, listed, RealFiles(), receipt(listed), **options)
    return name


def held(root, version):
    place = root / "geo" / version
    return {name: (place / name).read_bytes() for name in os.listdir(place)}


@pytest.mark.parametrize("link", [False, True])
def test_a_version_appears_with_all_its_files(tmp_path, job, link):
    """It is declared whole, and has a receipt; files are copies unless links are asked for."""
    listed = job()
    root = tmp_path / "root"
    name = publish(root, listed, link=link)
    files = held(root, name)
    assert name == "2026-11-20-101530"
    assert Receipt.of_bytes(files.pop("_PUBLISHED.json")) == receipt(listed)
    assert files == DATA | {"_SUCCESS": b""}
    assert os.listdir(root / "geo") == [name]
    assert (os.stat(root / "geo" / name / "part-0").st_nlink == 2) == link
    found = SourceRoot(str(root), RealFiles(), require_success_file=True).version("geo", name)
    assert [file.name for file in found.files] == ["part-0", "part-1"]
    assert found.waiting_for is None


@pytest.mark.parametrize("action", [Action.FAIL, Action.CRASH_HALFWAY, Action.CRASH_AFTER])
def test_the_same_publication_again_completes_an_interrupted_one(tmp_path, job, action):
    """Nodes see nothing of it or all of it at every moment, and in the end there is one version."""
    listed = job()
    calm = FaultyFiles(RealFiles())
    publish(tmp_path / "calm", listed, files=calm)
    steps = sum(calm.counts[kind] for kind in CHANGING)
    assert steps > 20
    for at in range(steps):
        root = tmp_path / str(at)
        files = FaultyFiles(RealFiles(), Fault(at, action, kinds=CHANGING))
        with contextlib.suppress(Crash, StorageError):  # Leftovers that stay are no failure.
            publish(root, listed, files=files)
        assert files.struck
        for version in SourceDatabase(str(root), "geo").versions():
            assert held(root, version).keys() == {*DATA, "_SUCCESS", "_PUBLISHED.json"}
        assert publish(root, listed, known=()) == "2026-11-20-101530"
        assert os.listdir(root / "geo") == ["2026-11-20-101530"]
        assert held(root, "2026-11-20-101530").items() >= DATA.items()


def test_an_interrupted_publication_keeps_its_name_and_what_it_has_copied(tmp_path, job):
    """A later moment would give another name, and a file that is in place is not read again."""
    listed = job()
    faulty = FaultyFiles(RealFiles(), Fault(0, Action.CRASH_BEFORE, kinds={"rename"}))
    target = SourceDatabase(str(tmp_path), "geo", files=faulty)
    with pytest.raises(Crash):
        target.put("7", listed, RealFiles(), receipt(listed))
    again = FaultyFiles(RealFiles())
    assert publish(tmp_path, listed, files=again) == "7"
    third = FaultyFiles(RealFiles())
    assert publish(tmp_path, listed, files=third) == "7"
    assert not third.trace


def test_other_files_are_another_version(tmp_path, job):
    """A version never changes: a name that is taken by other files is refused, and so is one that sorts before."""
    first = job()
    publish(tmp_path, first, "2")
    second = job({"part-0": b"chile\tSantiago\n"}, "second")
    with pytest.raises(Conflict, match="geo/2: the version exists with other files"):
        publish(tmp_path, second, "2")
    with pytest.raises(BadRequest, match="version 1 sorts before version 2"):
        publish(tmp_path, second, "1")
    with pytest.raises(BadRequest, match="version 3 sorts before version 4"):
        publish(tmp_path, second, "3", known=["4"])
    assert publish(tmp_path, first, "2") == "2"
    assert publish(tmp_path, second) == "2026-11-20-101530"
    assert publish(tmp_path, first) == "2026-11-20-101530-2026-11-20-101530"


def test_the_quicker_of_two_publications_of_one_version_stays(tmp_path, job):
    first, second = job(), job({"part-0": b"chile\tSantiago\n"}, "second")
    slow = SourceDatabase(str(tmp_path), "geo")
    assert slow.choose(content_of(second), "2", (), NOW) == "2"
    with pytest.raises(Crash):
        publish(tmp_path, second, "2", files=FaultyFiles(RealFiles(), Fault(3, Action.CRASH_BEFORE, kinds={"rename"})))
    publish(tmp_path, first, "2")
    assert os.listdir(tmp_path / "geo") == ["2"]
    assert held(tmp_path, "2").items() >= DATA.items()


def test_files_may_lie_in_directories(tmp_path, job):
    """Partitions of Hive's tables do."""
    listed = job({"part-0": b"france\tParis\n"})
    (file,) = listed.files
    nested = replace(listed, files=(replace(file, name="c=fr/d=1/part-0"), replace(file, name="c=pe/d=1/part-0")))
    name = publish(tmp_path / "root", nested)
    for country in ("fr", "pe"):
        path = tmp_path / "root" / "geo" / name / f"c={country}" / "d=1" / "part-0"
        assert path.read_bytes() == b"france\tParis\n"


def test_a_file_that_changes_while_it_is_copied_is_named(tmp_path, job):
    listed = job()
    (tmp_path / "out" / "part-1").write_bytes(b"peru\tCusco or so\n")
    with pytest.raises(SourceChanged, match="part-1: the file changed"):
        publish(tmp_path / "root", listed)
    assert SourceDatabase(str(tmp_path / "root"), "geo").versions() == []


@pytest.mark.parametrize(("newest", "name"), [
    (None, "2026-11-20-101530"),
    ("2026-11-19", "2026-11-20-101530"),
    ("2026-11-20", "2026-11-20-101530"),
    ("20261119", "20261120-101530"),
    ("20261120-101530", "20261120-101530-20261120-101530"),
    ("2026-11-20-101530", "2026-11-20-101530-2026-11-20-101530"),
    ("7", "7-2026-11-20-101530"),
    ("7-2026-11-19-000000", "7-2026-11-20-101530"),
    ("7-2026-11-20-235959", "7-2026-11-20-235959-2026-11-20-101530"),
    ("v12", "v12-2026-11-20-101530"),
])  # fmt: skip
def test_a_name_sorts_after_the_newest_one(newest, name):
    assert next_version(newest, NOW) == name
    assert newest is None or name > newest


def test_a_version_that_a_job_wrote_in_place_is_declared(tmp_path, job):
    """It needs no copy, however its directory is named."""
    (tmp_path / "geo").mkdir()
    listed = job(name="geo/9")
    target = SourceDatabase(str(tmp_path), "geo")
    os.symlink(tmp_path, tmp_path / "elsewhere")
    assert target.version_at(f"{tmp_path}/elsewhere/geo/9") == target.version_at(f"{tmp_path}/geo/9/") == "9"
    assert target.version_at(f"{tmp_path}/geo/8") is None
    assert not target.put("9", listed, RealFiles(), receipt(listed))
    assert sorted(os.listdir(tmp_path / "geo" / "9")) == [
        ".part-1.crc",
        "_PARTITIONS.json",
        "_SUCCESS",
        "part-0",
        "part-1",
    ]


def test_a_directory_that_a_job_still_writes_is_refused(tmp_path, job):
    job()
    refuse_unfinished(str(tmp_path / "out"))
    (tmp_path / "out" / "_temporary").mkdir()
    with pytest.raises(SourceError, match="not finished: it has _temporary"):
        refuse_unfinished(str(tmp_path / "out"))
    (tmp_path / "out" / "_SUCCESS").touch()
    refuse_unfinished(str(tmp_path / "out"))


def test_a_store_gets_the_success_file_last(tmp_path, job):
    """An interrupted upload goes on under its own name; a version that is whole is not touched."""
    name, listed = uuid.uuid4().hex, job()
    system = fsspec.filesystem("memory")
    root = f"memory:///{name}"
    target = SourceDatabase(root, "geo")
    assert target.versions() == []
    version = target.choose(content_of(listed), None, (), NOW)
    (tmp_path / "out" / "part-1").rename(tmp_path / "kept")
    with pytest.raises(SourceChanged):
        target.put(version, listed, RealFiles(), receipt(listed))
    assert not system.exists(f"/{name}/geo/{version}/_SUCCESS")
    (tmp_path / "kept").rename(tmp_path / "out" / "part-1")
    assert target.choose(content_of(listed), None, (), NOW) == version
    assert target.put(version, listed, RealFiles(), receipt(listed))
    assert not target.put(version, listed, RealFiles(), receipt(listed))
    names = {path.rpartition("/")[2] for path in system.ls(f"/{name}/geo/{version}", detail=False)}
    assert names == {*DATA, "_SUCCESS", "_PUBLISHED.json"}
    assert system.cat_file(f"/{name}/geo/{version}/part-1") == DATA["part-1"]
    assert target.version_at(f"{root}/geo/{version}") == version
    other = SourceRoot.open(root, RealFiles(), {})
    copied = SourceDatabase(f"{root}-copy", "geo")
    origin = files_of(other.remote, RealFiles())
    again = other.version("geo", version)
    assert copied.put("2", again, origin, receipt(again))
    assert system.cat_file(f"/{name}-copy/geo/2/part-1") == DATA["part-1"]
    system.rm(f"/{name}-copy", recursive=True)
    system.rm(f"/{name}", recursive=True)

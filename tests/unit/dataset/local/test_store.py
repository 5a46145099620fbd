"""The data directory: whose it is, what is in it, and what it refuses."""

import errno
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from gossipkv.dataset.local.store import Active, DataDirectory
from gossipkv.environment.real_files import RealFiles
from gossipkv.environment.seam import WRITE_NEW
from gossipkv.errors import Corrupt, DirectoryInUse, StorageError, UnsupportedFormat
from gossipkv.storage.document import read_document, write_document
from gossipkv.testing.faulty_files import Action, Fault, FaultyFiles
from gossipkv.testing.simulated_files import SimulatedFiles

FILES = RealFiles()


def opened(path, files=FILES, cluster="test", node=None, seed=1):
    """Opens the directory."""
    return DataDirectory.open(path, files, cluster=cluster, random=random.Random(seed), node=node)


def make_version(data, database, version, text="x"):
    """Something that looks like a built version, published."""
    path = data.begin_build(database, version)
    descriptor = data.files.open(path / "part-00000.gkv", WRITE_NEW)
    data.files.pwrite(descriptor, text.encode(), 0)
    data.files.close(descriptor)
    return data.publish(database, version)


def path_of(path):
    """A pure path as one of this machine."""
    return Path(path)


def test_a_new_directory_is_made_with_those_above_it(tmp_path):
    """And holds what docs/operators/data-directory.md says."""
    with opened(tmp_path / "a" / "b") as data:
        assert data.databases() == []
        assert sorted(os.listdir(tmp_path / "a" / "b")) == [
            "LOCK", "NODE", "active", "building", "damaged", "datasets", "removing",
        ]  # fmt: skip
        assert len(data.record.uuid) == 32
        assert data.record.node == f"node-{data.record.uuid[:8]}"


def test_who_a_node_is_stays_and_its_name_can_be_changed(tmp_path):
    """The uuid is for life."""
    with opened(tmp_path) as data:
        uuid, name = data.record.uuid, data.record.node
    with opened(tmp_path, seed=2) as data:
        assert (data.record.uuid, data.record.node) == (uuid, name)
    with opened(tmp_path, node="alpha") as data:
        assert (data.record.uuid, data.record.node) == (uuid, "alpha")
    with opened(tmp_path) as data:
        assert (data.record.uuid, data.record.node) == (uuid, "alpha")


def test_two_nodes_cannot_have_the_same_directory(tmp_path):
    """The second is told which process has it; the first goes on; then it is free."""
    with opened(tmp_path):
        with pytest.raises(DirectoryInUse, match=f"in use by process {os.getpid()}"):
            opened(tmp_path)
        with pytest.raises(DirectoryInUse):
            opened(tmp_path)
    opened(tmp_path).close()


def test_the_lock_holds_between_processes_and_ends_with_one(tmp_path):
    """However it ends."""
    script = (
        "import sys, random, time; from gossipkv.dataset.local.store import DataDirectory\n"
        "from gossipkv.environment.real_files import RealFiles\n"
        "data = DataDirectory.open(sys.argv[1], RealFiles(), cluster='test', random=random.SystemRandom())\n"
        "print('locked', flush=True); time.sleep(60)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", script, tmp_path], stdout=subprocess.PIPE, env=environment) as holder:
        assert holder.stdout.readline() == b"locked\n"
        with pytest.raises(DirectoryInUse, match=f"process {holder.pid}"):
            opened(tmp_path)
        holder.kill()
    opened(tmp_path).close()


def test_a_directory_of_another_cluster_is_refused_and_untouched(tmp_path):
    """Both names are told."""
    opened(tmp_path, cluster="one").close()
    (tmp_path / "building" / "x").mkdir()
    with pytest.raises(UnsupportedFormat, match="belongs to cluster 'one', and this node is to join 'two'"):
        opened(tmp_path, cluster="two")
    assert (tmp_path / "building" / "x").exists()
    opened(tmp_path, cluster="one").close()


def test_a_directory_of_a_newer_format_is_refused(tmp_path):
    """It names the formats."""
    opened(tmp_path).close()
    body = read_document(FILES, tmp_path / "NODE", "NODE", newest_format=2)
    write_document(FILES, tmp_path / "NODE", "NODE", body, format_number=3)
    with pytest.raises(UnsupportedFormat, match="format 3, and this program reads up to 2"):
        opened(tmp_path)


def test_a_directory_of_somebody_else_is_refused(tmp_path):
    """It would be cleared of what looks left over."""
    (tmp_path / "building").mkdir()
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UnsupportedFormat, match=r"not a data directory.*thesis.tex"):
        opened(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["building", "thesis.tex"]


def test_a_path_that_is_a_file_is_refused(tmp_path):
    """With the system's words."""
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(StorageError, match="cannot be used as a data directory"):
            opened(path)


def test_every_damaged_byte_of_the_node_document_is_named(tmp_path):
    """Never another node, never a new one."""
    opened(tmp_path).close()
    whole = (tmp_path / "NODE").read_bytes()
    for at in range(len(whole)):
        (tmp_path / "NODE").write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        with pytest.raises((Corrupt, UnsupportedFormat), match="NODE"):
            opened(tmp_path)
    (tmp_path / "NODE").write_bytes(whole)
    opened(tmp_path).close()


def test_a_version_is_published_listed_and_removed(tmp_path):
    """By one rename in, and one out."""
    with opened(tmp_path) as data:
        for version in ("v2", "v1"):
            make_version(data, "db", version)
        assert data.databases() == ["db"]
        assert data.versions("db") == ["v1", "v2"]
        assert data.versions("none") == []
        data.remove_version("db", "v1")
        assert data.versions("db") == ["v2"]
        assert os.listdir(tmp_path / "removing" / "db") == os.listdir(tmp_path / "building" / "db") == []


def test_a_name_that_a_database_and_our_own_files_have_is_no_trouble(tmp_path):
    """Every legal name is one."""
    with opened(tmp_path) as data:
        for name in ("ACTIVE", "NODE", "MANIFEST", "active", "a" * 200):
            make_version(data, name, name)
            data.set_active(name, name)
        assert [data.active(name).version for name in data.databases()] == data.databases()
        assert len(data.databases()) == 5


def test_the_active_version_is_remembered(tmp_path):
    """Per database."""
    with opened(tmp_path) as data:
        assert data.active("db") is None
        data.set_active("db", "v1")
        data.set_active("db", "v2")
        data.set_active("other", "v1")
    with opened(tmp_path) as data:
        assert (data.active("db"), data.active("other")) == (Active("v2", "v2"), Active("v1", "v1"))
        assert data.databases() == ["db", "other"]


def test_a_way_back_does_not_forget_what_was_left(tmp_path):
    """The newest that ever was active stands in the document; one that is newer takes its place."""
    with opened(tmp_path) as data:
        data.set_active("db", "v3")
        data.set_active("db", "v1", "v3")
        assert data.active("db") == Active("v1", "v3")
        data.set_active("db", "v4", "v3")
        assert data.active("db") == Active("v4", "v4")


@pytest.mark.parametrize("body", [
    {"database": "db", "version": "v3", "newest": "v1"},
    {"database": "db", "version": "v3"},
    {"database": "db", "version": "../x", "newest": "v1"},
    {"database": "other", "version": "v1", "newest": "v1"},
])  # fmt: skip
def test_an_active_document_that_makes_no_sense_is_damage(tmp_path, body):
    """Though its checksum is right."""
    with opened(tmp_path) as data:
        data.set_active("db", "v1")
        write_document(RealFiles(), data.path / "active/db", "ACTIVE", body)
        with pytest.raises(Corrupt):
            data.active("db")


def test_an_active_document_about_something_else_is_damage(tmp_path):
    """Somebody copied a file."""
    with opened(tmp_path) as data:
        data.set_active("db", "v1")
        (tmp_path / "active" / "other").write_bytes((tmp_path / "active" / "db").read_bytes())
        with pytest.raises(Corrupt, match="not about a version of other"):
            data.active("other")


def test_an_active_document_of_a_newer_format_is_refused(tmp_path):
    """What a newer program has written must not be guessed at: it may have answered from a newer version."""
    with opened(tmp_path) as data:
        body = {"database": "db", "version": "v1"}
        write_document(FILES, tmp_path / "active" / "db", "ACTIVE", body, format_number=2)
        with pytest.raises(UnsupportedFormat, match="format 2, and this program reads up to 1"):
            data.active("db")


def test_leftovers_of_a_crash_are_removed_at_opening(tmp_path):
    """And nothing else; links are not followed."""
    with opened(tmp_path) as data:
        make_version(data, "db", "v1")
    precious = tmp_path.parent / f"{tmp_path.name}-precious"
    precious.mkdir()
    (precious / "file").write_text("x")
    for place in ("building", "removing"):
        deep = tmp_path / place / "db" / "v2"
        deep.mkdir(parents=True)
        (deep / "run-1.tmp").write_text("x")
        (deep / "link").symlink_to(precious)
    (tmp_path / "damaged" / "db" / "v0").mkdir(parents=True)
    with opened(tmp_path) as data:
        assert os.listdir(tmp_path / "building") == os.listdir(tmp_path / "removing") == []
        assert os.listdir(tmp_path / "damaged" / "db") == ["v0"]
        assert data.versions("db") == ["v1"]
    assert os.listdir(precious) == ["file"]


def test_a_build_begins_in_an_empty_directory(tmp_path):
    """Whatever an earlier attempt left."""
    with opened(tmp_path) as data:
        path = path_of(data.begin_build("db", "v1"))
        (path / "run-1.tmp").write_text("x")
        assert os.listdir(data.begin_build("db", "v1")) == []
        (path / "run-1.tmp").write_text("x")
        data.discard_build("db", "v1")
        assert not path.exists()


def test_a_damaged_version_is_kept_aside_until_it_is_built_again(tmp_path):
    """A second time it takes the first one's place."""
    with opened(tmp_path) as data:
        for text in ("one", "two"):
            make_version(data, "db", "v1", text)
            aside = path_of(data.set_aside("db", "v1"))
            assert (aside / "part-00000.gkv").read_text() == text
            assert data.versions("db") == []
        make_version(data, "db", "v1")
        assert not aside.exists()


def test_publishing_over_a_version_replaces_it(tmp_path):
    """One that was found damaged while it served."""
    with opened(tmp_path) as data:
        make_version(data, "db", "v1", "damaged")
        place = path_of(make_version(data, "db", "v1", "whole"))
        assert (place / "part-00000.gkv").read_text() == "whole"
        assert os.listdir(tmp_path / "damaged" / "db") == []


@pytest.mark.parametrize("error", [errno.EACCES, errno.EROFS, errno.EMFILE, errno.EIO, errno.ENOSPC])
def test_what_the_system_refuses_is_one_clear_error(error):
    """At every operation of the first opening; the lock is free again afterwards."""
    calm = FaultyFiles(SimulatedFiles())
    opened("/a/data", calm).close()
    total = sum(calm.counts.values()) - 1  # The last one closes the lock.
    for at in range(total):
        files = SimulatedFiles()
        faulty = FaultyFiles(files, Fault(at, Action.FAIL, error=error))
        with pytest.raises(StorageError, match=os.strerror(error)) as caught:
            opened("/a/data", faulty)
        assert caught.value.message.startswith("/")
        opened("/a/data", files).close()


@pytest.mark.parametrize("error", [errno.EACCES, errno.ENOSPC, errno.EIO])
def test_every_step_in_a_versions_life_is_refused_clearly(error):
    """Each operation of each step."""
    struck = 0
    for at in range(80):
        files = SimulatedFiles()
        with opened("/data", files) as data:
            make_version(data, "db", "v1")
            faulty = FaultyFiles(files, Fault(at, Action.FAIL, error=error))
            data.files = faulty
            try:
                data.set_active("db", "v1")
                data.active("db")
                data.versions("db")
                data.databases()
                data.begin_build("db", "v2")
                data.publish("db", "v2")
                data.set_aside("db", "v1")
                data.remove_version("db", "v2")
                data.discard_build("db", "v3")
            except StorageError as caught:
                assert os.strerror(error) in caught.message
                assert caught.message.startswith("/data/")
            struck += len(faulty.struck)
            data.files = files
    assert 40 < struck < 80  # Every operation, and the last rounds were over before theirs came.

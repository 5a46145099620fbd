"""The store of a node's built versions: its contents across crashes, and its refusals."""

import errno
import os
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path, PurePath

import pytest

from gossipkv.address import Address
from gossipkv.dataset.local.active import ActiveDocument, to_body
from gossipkv.dataset.local.store import VersionStore
from gossipkv.environment.real_files import RealFiles
from gossipkv.environment.seam import WRITE_NEW
from gossipkv.errors import Corrupt, StorageError, UnsupportedFormat
from gossipkv.placement.identity import VersionIdentity
from gossipkv.placement.ownership import Owner, Ownership
from gossipkv.placement.partition_set import PartitionSet
from gossipkv.placement.seals import Sealed
from gossipkv.storage.document import write_document
from tests.world.faulty_files import Action, Fault, FaultyFiles
from tests.world.simulated_files import SimulatedFiles

FILES = RealFiles()


@contextmanager
def opened(path, files=FILES):
    """Open the store as a start of a node does."""
    store = VersionStore(PurePath(path), files)
    store.prepare()
    yield store


def make_version(data, database, version, text="x"):
    """Publish a version with one file."""
    path = data.begin_build(database, version)
    descriptor = data.files.open(path / "part-00000.gkv", WRITE_NEW)
    data.files.pwrite(descriptor, text.encode(), 0)
    data.files.close(descriptor)
    return data.publish(database, version)


def path_of(path):
    """Return a pure path as a path of this machine."""
    return Path(path)


def test_a_version_is_published_listed_and_removed(tmp_path):
    """One rename publishes a version, and one removes it."""
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
    """Every legal name works, even the names of our own files."""
    with opened(tmp_path) as data:
        for name in ("ACTIVE", "NODE", "MANIFEST", "active", "a" * 200):
            make_version(data, name, name)
            data.set_active(name, ActiveDocument(name, name))
        assert [data.active(name).version for name in data.databases()] == data.databases()
        assert len(data.databases()) == 5


def test_the_active_version_is_remembered(tmp_path):
    with opened(tmp_path) as data:
        assert data.active("db") is None
        data.set_active("db", ActiveDocument("v1", "v1"))
        data.set_active("db", ActiveDocument("v2", "v2"))
        data.set_active("other", ActiveDocument("v1", "v1"))
    with opened(tmp_path) as data:
        assert (data.active("db"), data.active("other")) == (ActiveDocument("v2", "v2"), ActiveDocument("v1", "v1"))
        assert data.databases() == ["db", "other"]


def test_a_way_back_does_not_forget_what_was_left(tmp_path):
    """The document keeps the newest version that was ever active, until a newer one is."""
    with opened(tmp_path) as data:
        data.set_active("db", ActiveDocument("v3", "v3"))
        data.set_active("db", ActiveDocument("v1", "v3"))
        assert data.active("db") == ActiveDocument("v1", "v3")
        data.set_active("db", ActiveDocument("v4", "v4"))
        assert data.active("db") == ActiveDocument("v4", "v4")


IDENTITY = VersionIdentity("db", "v1", "d" * 64, 9, "sequins", regrouped=True)
HOLDERS = (
    Ownership(Owner("one", bytes(range(16)), Address("10.0.0.1", 7070)), PartitionSet.of(9, [0, 8])),
    Ownership(Owner("two", bytes(16), Address("::1", 7071)), PartitionSet.empty(9)),
)
SEALED = (
    Sealed(replace(IDENTITY, version="v0", partitions=1, regrouped=False), {}),
    Sealed(IDENTITY, {"1/none": {0: 7, 8: 2**32 - 1}, "1/lz4": {8: 0}}),
)


def test_what_is_active_and_who_held_it_are_remembered(tmp_path):
    """Every field is kept, and an unknown holder is no holder."""
    with opened(tmp_path) as data:
        data.set_active("db", ActiveDocument("v1", "v3", IDENTITY, HOLDERS, SEALED))
        assert data.active("db") == ActiveDocument("v1", "v3", IDENTITY, HOLDERS, SEALED)
        data.set_active("db", ActiveDocument("v2", "v3"))
        assert data.active("db") == ActiveDocument("v2", "v3")


@pytest.mark.parametrize(("field", "value"), [
    ("identity", ...), ("identity", "x"), ("identity", {}), ("identity", {"regrouped": 1}), ("identity", None),
    ("identity", {"digest": "d", "partitions": 0, "function": "f", "regrouped": True}),
    ("identity", {"digest": "d", "partitions": 8, "function": "f", "regrouped": True}),
    ("identity", {"digest": "d", "function": "f", "regrouped": True}),
    ("holders", ...), ("holders", None), ("holders", {}), ("holders", [1]), ("holders", [["00", "n", "a:1"]]),
    ("holders", [["0", "n", "a:1", "00"]]), ("holders", [["00", "n", "a", "00"]]),
    ("holders", [["00", "n", "a:1", "x"]]),
    ("holders", [["00", "n", "a:1", "000000"]]), ("holders", [["00", "n", "a:1", "0002"]]), ("sealed", ...),
])  # fmt: skip
def test_an_active_document_of_another_form_is_damage(tmp_path, field, value):
    """Only a faulty program writes such a document."""
    body = to_body("db", ActiveDocument("v1", "v3", IDENTITY, HOLDERS))
    body = {key: told for key, told in (body | {field: value}).items() if told is not ...}
    with opened(tmp_path) as data:
        write_document(FILES, tmp_path / "active" / "db", "ACTIVE", body)
        with pytest.raises(Corrupt):
            data.active("db")


def test_what_strays_have_refuted_is_kept(tmp_path):
    """Refutations are kept by database; a database without any has none."""
    told = {"e" * 64: ("sequins", "text"), "d" * 64: ("spark",)}
    with opened(tmp_path) as data:
        data.set_refuted("db", told)
    with opened(tmp_path) as data:
        assert (data.refuted("db"), data.refuted("other")) == (told, {})
        assert list(data.refuted("db")) == list(told)


@pytest.mark.parametrize("body", [
    {"database": "other", "refuted": []}, {"database": "db"}, {"database": "db", "refuted": {}},
    {"database": "db", "refuted": [["d"]]}, {"database": "db", "refuted": [["d", [1]]]},
    {"database": "db", "refuted": [["d", "x"]]},
])  # fmt: skip
def test_a_document_of_what_is_refuted_of_another_form_is_damage(tmp_path, body):
    """The checksum is right."""
    with opened(tmp_path) as data:
        write_document(FILES, tmp_path / "refuted" / "db", "REFUTED", body)
        with pytest.raises(Corrupt):
            data.refuted("db")


@pytest.mark.parametrize("body", [
    {"database": "db", "version": "v3", "newest": "v1"},
    {"database": "db", "version": "v3"},
    {"database": "db", "version": "../x", "newest": "v1"},
    {"database": "other", "version": "v1", "newest": "v1"},
])  # fmt: skip
def test_an_active_document_that_makes_no_sense_is_damage(tmp_path, body):
    """The checksum is right."""
    with opened(tmp_path) as data:
        data.set_active("db", ActiveDocument("v1", "v1"))
        write_document(RealFiles(), data.path / "active/db", "ACTIVE", body)
        with pytest.raises(Corrupt):
            data.active("db")


def test_an_active_document_about_something_else_is_damage(tmp_path):
    """The document was copied from another database."""
    with opened(tmp_path) as data:
        data.set_active("db", ActiveDocument("v1", "v1"))
        (tmp_path / "active" / "other").write_bytes((tmp_path / "active" / "db").read_bytes())
        with pytest.raises(Corrupt, match="does not describe a version of other"):
            data.active("other")


def test_an_active_document_of_a_newer_format_is_refused(tmp_path):
    """A newer program may have answered from a newer version, so nothing is guessed."""
    with opened(tmp_path) as data:
        body = {"database": "db", "version": "v1"}
        write_document(FILES, tmp_path / "active" / "db", "ACTIVE", body, format_number=2)
        with pytest.raises(UnsupportedFormat, match="format 2, and this program reads format 1: a newer GossipKV"):
            data.active("db")


def test_leftovers_of_a_crash_are_removed_at_opening(tmp_path):
    """Other files stay, and links are not followed."""
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
    """Files of an earlier attempt are removed."""
    with opened(tmp_path) as data:
        path = path_of(data.begin_build("db", "v1"))
        (path / "run-1.tmp").write_text("x")
        assert os.listdir(data.begin_build("db", "v1")) == []
        (path / "run-1.tmp").write_text("x")
        data.discard_build("db", "v1")
        assert not path.exists()


def test_a_damaged_version_is_kept_aside_until_it_is_built_again(tmp_path):
    """A second damaged version replaces the first."""
    with opened(tmp_path) as data:
        for text in ("one", "two"):
            make_version(data, "db", "v1", text)
            aside = path_of(data.set_aside("db", "v1"))
            assert (aside / "part-00000.gkv").read_text() == text
            assert data.versions("db") == []
        make_version(data, "db", "v1")
        assert not aside.exists()


def test_publishing_over_a_version_replaces_it(tmp_path):
    """The version was found damaged while it was served."""
    with opened(tmp_path) as data:
        make_version(data, "db", "v1", "damaged")
        place = path_of(make_version(data, "db", "v1", "whole"))
        assert (place / "part-00000.gkv").read_text() == "whole"
        assert os.listdir(tmp_path / "damaged" / "db") == []


@pytest.mark.parametrize("error", [errno.EACCES, errno.ENOSPC, errno.EIO])
def test_every_step_in_a_versions_life_is_refused_clearly(error):
    """Each operation of each step is refused once."""
    struck = 0
    for at in range(80):
        files = SimulatedFiles()
        with opened("/data", files) as data:
            make_version(data, "db", "v1")
            faulty = FaultyFiles(files, Fault(at, Action.FAIL, error=error))
            data.files = faulty
            try:
                data.set_active("db", ActiveDocument("v1", "v1"))
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
                assert caught.message.startswith("/data")
            struck += len(faulty.struck)
            data.files = files
    assert 40 < struck < 80  # Every operation fails once, and the last rounds end before their fault.

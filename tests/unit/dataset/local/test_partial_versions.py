"""Adding and dropping partitions of a version, across a crash at every operation."""

import random
from contextlib import suppress
from dataclasses import replace

import pytest

from gossipkv.dataset.build.job import BuildJob
from gossipkv.dataset.build.steps import BuildResources, perform
from gossipkv.dataset.local.manifest import read_manifest
from gossipkv.dataset.local.store import AnotherIdentity
from gossipkv.dataset.local.version import open_partitions, open_version
from gossipkv.dataset.source.listing import SourceRoot
from gossipkv.environment.real_files import RealFiles
from gossipkv.errors import Corrupt, StorageError, UnsupportedFormat
from gossipkv.node.directory import DataDirectory
from gossipkv.placement.partition_set import PartitionSet
from tests.unit.dataset.sources import MEMORY_BYTES, lines, put_version
from tests.world.faulty_files import Action, Fault, FaultyFiles
from tests.world.simulated_files import SimulatedFiles

KEYS = [f"k{number}" for number in range(60)]
N = 4
WHOLE = PartitionSet.whole(N)


def directory(files, root=""):
    return DataDirectory.open(f"{root}/data", files, cluster="test", random=random.Random(1))


def build(data, files, *wanted, root="", **options):
    listed = SourceRoot(f"{root}/source", files).version("db", "v1")
    path = data.store.begin_build("db", "v1")
    job = replace(BuildJob.of(listed, str(path), partitions=N), wanted=wanted, **options)
    return perform(job, files, BuildResources(MEMORY_BYTES))


def prepare(files, root=""):
    """Make a node with two of four partitions."""
    put_version(files, f"{root}/source", "v1", [lines(**{key: f"{key}'s" for key in KEYS})])
    with directory(files, root) as data:
        build(data, files, 0, 2, root=root)
        data.store.publish("db", "v1")


def change(files, root=""):
    with directory(files, root) as data:
        build(data, files, 1, root=root)
        data.store.add_partitions("db", "v1", WHOLE)
        data.store.drop_partitions("db", "v1", PartitionSet.of(N, [2]))


def found(files, root=""):
    """Return the partitions after a restart, each complete and without leftovers; or the damage."""
    with directory(files, root) as data:
        place = data.store.version_path("db", "v1")
        assert files.list_directory(f"{root}/data/building") == []
        try:
            version = open_version(files, place, "db", "v1")
        except (Corrupt, UnsupportedFormat) as error:
            return error.message
        data.store.remove_unlisted("db", "v1", version.manifest)
        names = {entry.name for entry in files.list_directory(place)}
        assert names == {"_MANIFEST", *(f"part-0000{partition}.gkv" for partition in version.here)}
        held = {key: value for file in version.files if file is not None for key, value in file.scan()}
        for file in version.files:
            if file is not None:
                file.verify()
        here = tuple(version.here)
        version.close()
        assert all(value == key + b"'s" for key, value in held.items())
        assert len(held) == version.records
        return here


def simulated():
    """Return a disk with a node that has two of four partitions."""
    files = SimulatedFiles()
    files.make_directory("/source")
    files.sync_directory("/")
    prepare(files)
    return files


def test_partitions_come_and_go():
    """Other partitions keep their files, and every listed file is there."""
    files = simulated()
    assert found(files) == (0, 2)
    change(files)
    assert found(files) == (0, 1)
    with directory(files) as data:
        manifest = data.store.drop_partitions("db", "v1", WHOLE)
        assert manifest.files_here == []
        assert open_version(files, data.store.version_path("db", "v1"), "db", "v1").here == PartitionSet.empty(N)


def test_a_file_that_the_manifest_lists_is_never_missing():
    """No power loss leaves a manifest ahead of its files."""
    for seed in range(40):
        files = simulated()
        with directory(files) as data:
            build(data, files, 1, 3)
            data.store.add_partitions("db", "v1", WHOLE)
        assert found(files.power_loss(seed)) == (0, 1, 2, 3)


@pytest.mark.parametrize("forgets", ["sync", "sync_directory"])
def test_a_forgotten_sync_is_caught(forgets, monkeypatch):
    """The test above would notice it."""
    real, bad = getattr(SimulatedFiles, forgets), 0
    for seed in range(40):
        files = simulated()
        with directory(files) as data:
            build(data, files, 1, 3)
            with monkeypatch.context() as patch:
                patch.setattr(SimulatedFiles, forgets, lambda *_: None)
                data.store.add_partitions("db", "v1", WHOLE)
            assert getattr(SimulatedFiles, forgets) is real
        bad += found(files.power_loss(seed)) != (0, 1, 2, 3)
    assert bad > 0


def test_what_is_of_another_identity_is_not_added():
    files = simulated()
    with directory(files) as data:
        build(data, files, 1, function="spark")
        with suppress(AnotherIdentity):
            data.store.add_partitions("db", "v1", WHOLE)
    assert found(files) == (0, 2)


@pytest.mark.parametrize("kind", ["rename", "unlink", "sync_directory"])
def test_what_the_system_refuses_changes_nothing_that_is_listed(kind):
    """After a full or failing disk the error says so, and another attempt succeeds."""

    def attempt(data):
        data.store.add_partitions("db", "v1", WHOLE)
        data.store.drop_partitions("db", "v1", PartitionSet.of(N, [2]))
        data.store.begin_build("db", "v1")

    files = simulated()
    for at in range(3):
        faulty = FaultyFiles(files)
        with directory(files) as data:
            build(data, files, 1)
            data.store.files = faulty
            faulty.strike(Fault(at, Action.FAIL, kinds={kind}, error=5))
            with pytest.raises(StorageError):
                attempt(data)
        assert 0 in found(files)
    change(files)
    assert found(files) == (0, 1)


def test_an_open_version_takes_partitions_and_gives_them_up(tmp_path):
    """A new version object replaces the old one: other files are shared, and dropped ones are closed separately."""
    (tmp_path / "source").mkdir()
    files = RealFiles()
    prepare(files, tmp_path)
    with directory(files, tmp_path) as data:
        place = data.store.version_path("db", "v1")
        first = open_version(files, place, "db", "v1")
        build(data, files, 1, root=tmp_path)
        built = data.store.add_partitions("db", "v1", WHOLE)
        second = first.with_partitions(built, open_partitions(files, place, built, [1]))
        assert (first.here, second.here) == (PartitionSet.of(N, [0, 2]), PartitionSet.of(N, [0, 1, 2]))
        assert second.files[0] is first.files[0]
        third, gone = second.without_partitions(PartitionSet.of(N, [2]))
        gone.files[2].pin()
        data.store.drop_partitions("db", "v1", PartitionSet.of(N, [2]))
        with pytest.raises(BufferError):
            gone.close()
        assert len(list(gone.files[2].scan())) == len(gone.files[2])  # A read that is under way is not disturbed.
        gone.files[2].unpin()
        gone.close()
        assert third.manifest == read_manifest(files, place)
        assert third.here == PartitionSet.of(N, [0, 1])
        third.close()

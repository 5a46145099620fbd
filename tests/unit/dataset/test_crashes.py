"""A kill at every operation of build, publication, switch and removal leaves the old or the new version complete."""

import random

import pytest

from gossipkv.dataset.build.job import BuildJob
from gossipkv.dataset.build.steps import BuildResources, perform
from gossipkv.dataset.local.active import ActiveDocument
from gossipkv.dataset.local.version import open_version
from gossipkv.dataset.source.listing import SourceRoot
from gossipkv.errors import Corrupt, UnsupportedFormat
from gossipkv.node.directory import DataDirectory
from tests.unit.dataset.sources import MEMORY_BYTES, lines, put_version
from tests.world.faulty_files import CHANGING, FaultyFiles
from tests.world.simulated_files import SimulatedFiles

OLD = [lines(a=1, b=1), lines(c=1)]
NEW = [lines(a=2, b=2), lines(c=2), lines(d=2)]
CONTENT = {
    "v1": {b"a": b"1", b"b": b"1", b"c": b"1"},
    "v2": {b"a": b"2", b"b": b"2", b"c": b"2", b"d": b"2"},
}


def directory(files, root):
    return DataDirectory.open(f"{root}/data", files, cluster="test", random=random.Random(1))


def raise_to(files, root, name, said=None):
    """Build, publish and activate a version, then remove older ones, as a node does over time."""
    with directory(files, root) as data:
        if name not in data.store.versions("db"):
            source = SourceRoot(f"{root}/source", files).version("db", name)
            path = data.store.begin_build("db", name)
            perform(BuildJob.of(source, str(path)), files, BuildResources(MEMORY_BYTES))
            data.store.publish("db", name)
        data.store.set_active("db", ActiveDocument(name, name))
        if said is not None:
            said.append(name)
        for older in data.store.versions("db"):
            if older < name:
                data.store.remove_version("db", older)


def prepare(files, root):
    """Make a node that serves the first version, with the second at its source."""
    put_version(files, f"{root}/source", "v1", OLD)
    raise_to(files, root, "v1")
    put_version(files, f"{root}/source", "v2", NEW)


def what_is_served(files, root):
    """Return the active version after a restart, and assert that every version is complete."""
    with directory(files, root) as data:
        for leftover in ("building", "removing", "damaged"):
            assert files.list_directory(f"{root}/data/{leftover}") == []
        active = data.store.active("db").version
        assert active in data.store.versions("db")
        for name in data.store.versions("db"):
            version = open_version(files, data.store.version_path("db", name), "db", name)
            found = {key: value for file in version.files for key, value in file.scan()}
            for file in version.files:
                file.verify()
            version.close()
            assert found == CONTENT[name]
        return active


def operations():
    """Count the operations of each kind that an upgrade performs on the disk."""
    files = SimulatedFiles()
    files.make_directory("/source")
    files.sync_directory("/")
    prepare(files, "")
    calm = FaultyFiles(files)
    raise_to(calm, "", "v2")
    # Adopted versions copy, and have their own faults; no version allocates or links.
    return {kind: calm.counts[kind] for kind in CHANGING - {"allocate", "copy_range", "link"}}


def test_an_upgrade_performs_every_kind_of_operation():
    """A kind without operations would not be tested below."""
    assert min(operations().values()) > 0
    assert sum(operations().values()) >= 45


class Careless(FaultyFiles):
    """Files under a program that omits one kind of sync: the planted bugs."""

    forgets = "sync"

    def sync(self, descriptor):
        if self.forgets != "sync":
            super().sync(descriptor)

    def sync_directory(self, path):
        if self.forgets != "sync_directory":
            super().sync_directory(path)


@pytest.mark.parametrize("forgets", ["sync", "sync_directory"])
def test_a_forgotten_sync_is_caught(forgets):
    """The tests above would notice it: some power loss after the switch does not find the new version complete."""
    bad = 0
    for seed in range(40):
        files = SimulatedFiles()
        files.make_directory("/source")
        files.sync_directory("/")
        prepare(files, "")
        careless = Careless(files)
        careless.forgets = forgets
        raise_to(careless, "", "v2")
        try:
            bad += what_is_served(files.power_loss(seed), "") != "v2"
        except (AssertionError, Corrupt, UnsupportedFormat):
            bad += 1
    assert bad > 0

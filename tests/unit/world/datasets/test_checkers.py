"""The checkers of datasets report each promise to clients that is broken, and nothing else."""

from __future__ import annotations

import pytest

from gossipkv.gossip.profile import LOCAL
from gossipkv.placement.identity import VersionIdentity
from gossipkv.placement.partition_set import PartitionSet
from tests.world.datasets.answer import Answer
from tests.world.datasets.checkers import DatasetCheckers
from tests.world.datasets.contents import DATABASE, FUNCTION, KEY_NAMES, Sources
from tests.world.datasets.disk import DatasetDisk, Stored
from tests.world.datasets.sharing_cluster import TERMS, content_of
from tests.world.gossip.members import program
from tests.world.scheduler import SECOND
from tests.world.world import World


class Watched:
    """A world of two machines, with versions 1 and 2 at the source, and a checker."""

    def __init__(self, least=1):
        self.world = World(1)
        self.sources = Sources()
        self.contents = {version: content_of(version) for version in "12"}
        for content in self.contents.values():
            self.sources.add(content)
        self.machines = [self.world.add(name, program(LOCAL)) for name in ("m0", "m1")]
        self.disks = {machine.name: DatasetDisk() for machine in self.machines}
        self.checkers = DatasetCheckers(
            self.world, self.sources, self.disks, least=least, age_ms=TERMS.probe_interval_ms
        )  # fmt: skip

    def identity(self, version="1", *, regrouped=False):
        return VersionIdentity(DATABASE, version, self.contents[version].source.digest, 6, FUNCTION, regrouped)

    def answer(self, of="1", **more):
        """Check an answer that is correct except for `more`; return the promises that it breaks."""
        key = KEY_NAMES[0]
        right = Answer("m0", of, self.identity(of), key, self.contents[of].value(key), None, None)
        self.checkers.answered(right._replace(**more))
        return set(self.checkers.result())

    def put(self, machine, *partitions):
        files = dict.fromkeys(partitions, self.contents["1"])
        self.disks[machine.name].versions["1"] = Stored(self.identity(), PartitionSet.of(6, partitions), files)

    def switch(self):
        """Let a machine begin to switch to version 1."""
        self.checkers.switching(Doing(self.machines[0]), self.identity())
        return set(self.checkers.result())


class Doing:
    """A machine in the middle of an operation, as the checkers see it."""

    def __init__(self, machine, *, withdrawn=True):
        self.machine = machine
        self.core = self
        self.withdrawn = withdrawn

    def is_withdrawn(self, version, partitions):
        return self.withdrawn


def test_what_is_right_is_right():
    """Values and misses of successive versions, and of an old version that was asked for by name, break no promise."""
    watched = Watched()
    absent = next(key for key in KEY_NAMES if watched.contents["1"].value(key) is None)
    assert watched.answer() == set()
    assert watched.answer(key=absent, value=None) == set()
    assert watched.answer("2", floor="1") == set()
    assert watched.answer("1", floor="2", pinned="1") == set()
    assert watched.answer("1", machine="m1") == set()


@pytest.mark.parametrize(
    "wrong",
    [
        {"value": None},
        {"value": b"another"},
        {"version": "2"},
        {"pinned": "2"},
    ],
)
def test_an_untruth_is_seen(wrong):
    assert "truth" in Watched().answer(**wrong)


def test_a_value_of_another_version_is_seen():
    watched = Watched()
    assert watched.answer("2", identity=watched.identity("1")) >= {"truth"}


def test_a_step_back_is_seen():
    watched = Watched()
    watched.answer("2")
    assert watched.checkers.floor("m0") == "2"
    assert watched.answer("1", floor=None) == set()
    assert watched.checkers.floor("m0") == "2"
    assert watched.answer("1", floor="2") == {"monotonic"}


def test_two_contents_by_one_name_are_seen():
    watched = Watched()
    watched.answer()
    assert watched.answer(machine="m1", identity=watched.identity(regrouped=True)) == {"identities"}


def test_a_switch_without_owners_is_seen():
    """A switch needs owners of all partitions that are up; a crashed owner counts only as long as its answers do."""
    watched = Watched()
    first, second = watched.machines
    for machine in watched.machines:
        machine.start()
    watched.world.run(SECOND)
    watched.put(first, 0, 1, 2)
    watched.put(second, 3, 4, 5)
    assert watched.switch() == set()
    second.crash()
    assert watched.switch() == set()
    watched.world.run(SECOND)
    assert watched.switch() == {"gates"}


def test_a_switch_with_too_few_owners_is_seen():
    watched = Watched(least=2)
    for machine in watched.machines:
        machine.start()
    watched.world.run(SECOND)
    watched.put(watched.machines[0], *range(6))
    watched.put(watched.machines[1], *range(5))
    assert watched.switch() == {"gates"}


@pytest.mark.parametrize("withdrawn", [True, False])
def test_a_drop_of_what_is_published_is_seen(withdrawn):
    """A copy may be dropped only when the node has withdrawn it."""
    watched = Watched()
    watched.put(watched.machines[0], 1)
    stored = watched.disks["m0"].versions["1"]
    watched.checkers.dropping(Doing(watched.machines[0], withdrawn=withdrawn), stored)
    assert set(watched.checkers.result()) == ({"withdrawn"} if not withdrawn else set())

"""A node that holds parts of versions and answers for more, step by step over a simulated disk and clock."""

from pathlib import PurePath

import pytest

from gossipkv.dataset.library import REASSIGN_AFTER_MS
from gossipkv.dataset.lifecycle.version_states import VersionWord
from gossipkv.dataset.local.manifest import read_manifest
from gossipkv.dataset.local.store import VersionStore
from gossipkv.errors import Corrupt
from gossipkv.placement.identity import VersionIdentity
from gossipkv.placement.partition_set import PartitionSet
from tests.unit.dataset.simulated_node import DATABASE, SimulatedNode
from tests.unit.dataset.sources import lines

N = 4
KEYS = [f"k{number}" for number in range(40)]


def share_of(*some):
    return PartitionSet.of(N, some)


class Cluster:
    """The decisions of the cluster, by name of version."""

    def __init__(self):
        self.shares, self.stray = {}, ()
        self.had, self.gates, self.needed, self.short = set(), set(), set(), set()

    def share(self, name):
        return self.shares.get(name)

    def passed(self, name):
        return name in self.had

    def may_switch(self, name):
        return name in self.gates

    def is_short(self, name):
        return name in self.short

    def may_retire(self, name):
        return name not in self.needed

    def refuted(self, digest):
        assert digest
        return self.stray


@pytest.fixture
def cluster():
    return Cluster()


@pytest.fixture
def node(cluster):
    """Start a node with an empty source."""
    node = SimulatedNode(cluster)
    node.start()
    yield node
    node.close()


def put(node, name, *, files=N):
    """Put a version at the source, in files that fit no function, and let the node look."""
    parts = [lines(**dict.fromkeys(KEYS[at::files], name)) for at in range(files)]
    node.put(name, parts)
    node.look()


def held(node, name):
    found = [one for one in node.library.held() if one.name == name]
    return found[0] if found else None


def here(node, name):
    found = held(node, name)
    return None if found is None else tuple(found.here)


def manifest(node, name):
    return read_manifest(node.disk, VersionStore(PurePath("/data"), node.disk).version_path(DATABASE, name))


def files_of(node, name):
    entries = node.disk.list_directory(f"/data/datasets/{DATABASE}/{name}")
    return {entry.name for entry in entries} - {"_MANIFEST"}


def test_nothing_is_built_before_the_share_is_known(node, cluster):
    """Exactly the share is built, and it is kept in the manifest."""
    put(node, "v1")
    assert (node.builds, node.states) == ([], {"v1": VersionWord.SEEN})
    cluster.shares["v1"] = share_of(1, 3)
    node.decide_again()
    node.finish()
    assert here(node, "v1") == (1, 3)
    assert manifest(node, "v1").share == share_of(1, 3)
    assert files_of(node, "v1") == {"part-00001.gkv", "part-00003.gkv"}
    assert node.states == {"v1": VersionWord.AVAILABLE}


def test_what_is_ready_is_switched_to_when_the_gate_holds(node, cluster):
    """Before that, clients do not get the version by name either."""
    cluster.shares["v1"] = share_of(0)
    put(node, "v1")
    node.finish()
    assert (held(node, "v1").passed, held(node, "v1").active, node.on_disk()[0]) == (False, False, None)
    cluster.gates, cluster.had = {"v1"}, {"v1"}
    node.decide_again()
    assert (held(node, "v1").passed, held(node, "v1").active, node.on_disk()[0]) == (True, True, "v1")


def test_a_version_is_switched_to_before_its_build_has_ended(node, cluster):
    """Other members have all of it; the build continues, and its result is added to the answered partitions."""
    cluster.shares = dict.fromkeys(("v1", "v2"), share_of(0, 2))
    cluster.had = cluster.gates = {"v1"}
    put(node, "v1")
    node.finish()
    put(node, "v2")
    identity = VersionIdentity(DATABASE, "v2", "d" * 64, N, "sequins", regrouped=True)
    cluster.had = cluster.gates = {"v1", "v2"}
    node.hear(v2=identity)
    assert (held(node, "v2").identity, held(node, "v2").active, here(node, "v2")) == (identity, True, ())
    assert tuple(held(node, "v2").building) == (0, 2)
    assert node.states == {"v1": VersionWord.RETIRING, "v2": VersionWord.BUILDING}
    node.finish()
    assert (here(node, "v2"), node.states["v2"], len(node.builds)) == ((0, 2), VersionWord.ACTIVE, 2)


def test_a_node_without_source_or_share_follows_the_cluster(node, cluster):
    """The node follows versions forward, and back under a hold; a restart remembers the active version."""
    for name, before in (("v1", None), ("v2", "v1")):
        identity = VersionIdentity(DATABASE, name, "d" * 64, N, "sequins", regrouped=True)
        cluster.had |= {name}
        cluster.gates |= {name}
        node.hear(**{name: identity} | ({before: held(node, before).identity} if before else {}))
        assert (held(node, name).active, list(held(node, name).files)) == (True, [None] * N)
    assert node.states == {"v1": VersionWord.RETIRING, "v2": VersionWord.ACTIVE}
    assert node.status["active"] == "v2"
    (told,) = node.library.databases()
    assert (told["version"], told["partitions"]) == ("v2", N)
    assert told["states"] == {"v1": "RETIRING", "v2": "ACTIVE"}
    node.hold("v1")
    assert (node.status["active"], node.on_disk()[:2]) == ("v1", ("v1", "v2"))
    node.hold(None)
    assert node.status["active"] == "v2"
    cluster.needed = {"v1"}
    for _ in range(8):
        node.wait()
    assert node.states["v1"] is VersionWord.RETIRING
    cluster.needed = set()
    node.decide_again()
    assert node.states == {"v2": VersionWord.ACTIVE}
    assert node.builds == []


def test_an_older_version_that_others_still_answer_is_answered_by_name(node, cluster):
    """A cursor continues at a node that came later; versions that clients may not have are skipped."""
    names = ("v1", "v2", "v3")
    known = {name: VersionIdentity(DATABASE, name, "d" * 64, N, "sequins", regrouped=True) for name in names}
    cluster.had, cluster.gates = {"v3"}, {"v3"}
    node.hear(v3=known["v3"])
    cluster.had = {"v2", "v3"}
    cluster.needed = {"v2"}
    node.hear(**known)
    assert node.states == {"v2": VersionWord.RETIRING, "v3": VersionWord.ACTIVE}
    assert (held(node, "v2").passed, held(node, "v2").active) == (True, False)


def test_an_empty_share_builds_nothing(node, cluster):
    """The source is visible, but the node answers from other members."""
    cluster.shares["v1"] = share_of()
    put(node, "v1")
    assert (node.builds, node.states, node.status["versions"]["v1"].get("waited_s")) == (
        [],
        {"v1": VersionWord.SEEN},
        None,
    )
    cluster.had = cluster.gates = {"v1"}
    node.hear(v1=VersionIdentity(DATABASE, "v1", "d" * 64, N, "sequins", regrouped=True))
    assert (node.states, node.builds) == ({"v1": VersionWord.ACTIVE}, [])


def test_more_partitions_are_added_under_the_readers(node, cluster):
    """Open files stay open, the manifest lists all, and a restart builds nothing."""
    cluster.shares["v1"] = share_of(0)
    cluster.had = cluster.gates = {"v1"}
    put(node, "v1")
    node.finish()
    first = held(node, "v1").files[0]
    first.pin()
    cluster.shares["v1"] = share_of(0, 1, 2)
    node.decide_again()
    assert node.states["v1"] is VersionWord.BUILDING
    assert tuple(held(node, "v1").building) == (1, 2)
    assert here(node, "v1") == (0,)
    node.finish()
    assert here(node, "v1") == (0, 1, 2)
    assert held(node, "v1").files[0] is first
    assert (manifest(node, "v1").share, tuple(manifest(node, "v1").here)) == (share_of(0, 1, 2), (0, 1, 2))
    found = {key.decode() for file in held(node, "v1").files if file is not None for key, _ in file.scan()}
    assert found < set(KEYS)
    first.unpin()
    node.stop()
    builds = len(node.builds)
    node.start()
    assert (here(node, "v1"), node.states["v1"], len(node.builds)) == ((0, 1, 2), VersionWord.ACTIVE, builds)


def test_what_is_dropped_is_not_served_and_is_closed_after_the_last_read(node, cluster):
    """The file leaves service and disk at once; partitions of the share are then rebuilt."""
    cluster.shares["v1"] = share_of(0, 1)
    cluster.had = cluster.gates = {"v1"}
    put(node, "v1")
    node.finish()
    gone = held(node, "v1").files[1]
    gone.pin()
    node.drop("v1", share_of(1, 3))
    assert here(node, "v1") == (0,)
    assert held(node, "v1").files[1] is None
    assert files_of(node, "v1") == {"part-00000.gkv"}
    assert len(list(gone.scan())) == len(gone)
    node.finish()
    assert here(node, "v1") == (0, 1)
    assert files_of(node, "v1") == {"part-00000.gkv", "part-00001.gkv"}
    assert held(node, "v1").files[1] is not gone
    gone.unpin()
    node.wait()
    with pytest.raises(ValueError, match="closed"):
        len(gone)


def test_what_is_dropped_while_all_is_built_anew_is_built_as_well(node, cluster):
    """The old file goes, and the rebuilt one is not mistaken for it."""
    cluster.shares["v1"] = share_of(0, 2)
    cluster.had = cluster.gates = {"v1"}
    put(node, "v1")
    node.finish()
    node.damaged("v1", Corrupt("part-00000.gkv", 4096, "checksum"))
    node.drop("v1", share_of(2))
    assert (node.states["v1"], here(node, "v1"), files_of(node, "v1")) == (
        VersionWord.BUILDING,
        (0,),
        {"part-00000.gkv"},
    )
    node.finish()
    assert (node.states["v1"], here(node, "v1"), len(files_of(node, "v1"))) == (VersionWord.ACTIVE, (0, 2), 2)


def test_a_partial_copy_that_is_damaged_is_built_anew(node, cluster):
    """Exactly its share is rebuilt."""
    cluster.shares["v1"] = share_of(0, 2)
    cluster.had = cluster.gates = {"v1"}
    put(node, "v1")
    node.finish()
    before = list(held(node, "v1").files)
    node.damaged("v1", Corrupt("part-00000.gkv", 4096, "checksum"))
    assert (node.states["v1"], here(node, "v1")) == (VersionWord.BUILDING, (0, 2))
    node.finish()
    assert (node.states["v1"], here(node, "v1")) == (VersionWord.ACTIVE, (0, 2))
    assert all(old is None or old is not new for old, new in zip(before, held(node, "v1").files, strict=True))
    assert manifest(node, "v1").share == share_of(0, 2)


def test_what_relied_on_a_refuted_function_is_dropped_and_built_anew(node, cluster):
    """None of it is answered meanwhile, and the new build does not rely on that function."""
    cluster.shares["v1"] = PartitionSet.of(1, [0])
    cluster.had = cluster.gates = {"v1"}
    put(node, "v1", files=1)
    node.finish()
    relied = held(node, "v1").identity
    assert not relied.regrouped
    cluster.stray = (relied.function,)
    node.decide_again()
    assert held(node, "v1") is None
    assert node.states["v1"] is VersionWord.BUILDING
    node.finish()
    assert here(node, "v1") == (0,)
    assert held(node, "v1").identity.function != relied.function or held(node, "v1").identity.regrouped


def test_a_partial_copy_becomes_whole_on_a_node_that_is_alone(cluster):
    """A node alone builds the rest after a while, and serves its part meanwhile if it was active."""
    node = SimulatedNode(cluster)
    cluster.shares["v1"] = share_of(2)
    cluster.had = cluster.gates = {"v1"}
    node.start()
    try:
        put(node, "v1")
        node.finish()
        node.stop()
        node.verdicts = None
        node.start()
        assert (node.states["v1"], here(node, "v1"), node.active) == (VersionWord.ACTIVE, (2,), "v1")
        node.wait(REASSIGN_AFTER_MS / 1000 + 1)
        assert (node.states["v1"], here(node, "v1"), node.active) == (VersionWord.BUILDING, (2,), "v1")
        node.finish()
        assert (node.states["v1"], here(node, "v1")) == (VersionWord.ACTIVE, (0, 1, 2, 3))
    finally:
        node.close()


def test_what_others_had_and_nobody_has_is_forgotten(node):
    """A version that clients have is kept."""
    node.hear(v1=VersionIdentity(DATABASE, "v1", "d" * 64, N, "sequins", regrouped=True))
    assert node.states == {"v1": VersionWord.SEEN}
    assert "this node has no partition of it" in node.library.unready(DATABASE)
    node.hear()
    assert node.states == {}
    assert not node.library.known(DATABASE)

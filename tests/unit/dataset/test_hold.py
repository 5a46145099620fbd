"""Holding a version, the way back from a bad one, step by step over a simulated disk and clock."""

from contextlib import contextmanager

import pytest

from gossipkv.dataset.lifecycle.version_states import VersionWord
from gossipkv.errors import Conflict, Corrupt, UnknownVersion
from tests.unit.dataset.simulated_node import DATABASE, SimulatedNode


@pytest.fixture
def node():
    """Start a node with an empty source."""
    node = SimulatedNode()
    node.start()
    yield node
    node.close()


def put(node, *names):
    for name in names:
        node.put(name, [b"name\t%s\n" % name.encode()])
        node.look()


def upgrade(node, *names):
    """Let each version be built and activated before the next one appears."""
    for name in names:
        put(node, name)
        node.finish()
        assert node.active == name


@contextmanager
def no_builds(node):
    before = list(node.builds)
    yield
    assert node.builds == before


def test_a_newer_one_that_appears_during_a_build_comes_next(node):
    """The build ends and is activated; versions in between are skipped."""
    put(node, "v1", "v2", "v3", "v4")
    assert node.states == {
        "v1": VersionWord.BUILDING,
        "v2": VersionWord.SEEN,
        "v3": VersionWord.SEEN,
        "v4": VersionWord.SEEN,
    }
    node.finish()
    assert node.active == "v1"
    assert node.states["v4"] is VersionWord.BUILDING
    node.finish()
    assert node.active == "v4"
    assert node.builds == ["v1", "v4"]
    assert node.states == {"v1": VersionWord.RETIRING, "v4": VersionWord.ACTIVE}


def test_a_hold_leads_back_at_once_while_the_version_is_here(node):
    """There is no build; the version left behind is served by name, retires, and is not rebuilt."""
    upgrade(node, "v1", "v2")
    with no_builds(node):
        node.hold("v1")
        assert node.active == "v1"
        assert node.value(b"name") == b"v1"
        assert node.states == {"v1": VersionWord.ACTIVE, "v2": VersionWord.RETIRING}
        for _ in range(8):
            node.requests["v2"] += 1
            node.wait()
            assert node.kept == {"v1", "v2"}
        for _ in range(5):
            node.wait()
        assert node.kept == {"v1"}
        node.look()
        put(node, "v3")
        assert node.states == {"v1": VersionWord.ACTIVE, "v2": VersionWord.SEEN, "v3": VersionWord.SEEN}
    assert node.status["hold"] == "v1"
    assert node.status["error"] is None


def test_a_hold_builds_what_is_only_at_the_source(node):
    """The active version serves meanwhile."""
    upgrade(node, "v1", "v2")
    for _ in range(6):
        node.wait()
    assert node.kept == {"v2"}
    node.hold("v1")
    assert (node.active, node.states["v1"]) == ("v2", VersionWord.BUILDING)
    node.finish()
    assert node.active == "v1"
    assert node.builds == ["v1", "v2", "v1"]


def test_a_hold_looks_at_the_source_before_it_builds(node):
    """A listing from before the hold may be outdated."""
    put(node, "v1", "v2", "v3")
    node.put("v2", [])
    node.hold("v2")
    assert node.states["v2"] is VersionWord.SEEN
    assert node.status["versions"]["v2"]["waiting_for"] == "a data file"
    assert node.builds == ["v1"]


def test_a_hold_on_a_newer_one_skips_what_is_newer_still(node):
    """A hold pins a version; it is more than a way back."""
    upgrade(node, "v1")
    node.hold("v2")
    put(node, "v3")
    assert node.states == {"v1": VersionWord.ACTIVE, "v3": VersionWord.SEEN}
    put(node, "v2")
    assert node.states["v2"] is VersionWord.BUILDING
    node.finish()
    assert node.active == "v2"
    assert "v3" not in node.builds


def test_a_hold_breaks_off_the_build_of_another(node):
    """A build may take hours, so it is stopped for the hold, without leftovers."""
    upgrade(node, "v1")
    put(node, "v2")
    assert node.states["v2"] is VersionWord.BUILDING
    node.hold("v1")
    assert node.states == {"v1": VersionWord.ACTIVE, "v2": VersionWord.SEEN}
    assert node.disk.list_directory(f"/data/building/{DATABASE}") == []
    counters = node.library.counters()
    assert [counters[f"builds_{what}"] for what in ("begun", "done", "failed", "stopped")] == [2, 1, 0, 1]
    node.hold(None)
    assert node.states["v2"] is VersionWord.BUILDING


def test_a_hold_that_is_nowhere_leaves_what_is_served_and_says_so(node):
    upgrade(node, "v1")
    node.hold("v0")
    assert node.active == "v1"
    assert (
        node.status["error"]
        == "the held version v0 is neither on this node nor at the source; version v1 is still served"
    )
    with no_builds(node):
        put(node, "v2")
    put(node, "v0")
    assert node.status["error"] is None
    node.finish()
    assert node.active == "v0"


def test_a_hold_that_is_nowhere_at_the_first_start(node):
    """Nothing is built or served, and requests get the reason."""
    node.hold("v2")
    put(node, "v1")
    assert node.active is None
    assert node.status["error"] == "the held version v2 is neither on this node nor at the source; nothing is served"
    assert node.library.unready(DATABASE) == node.status["error"]
    assert node.builds == []


def test_a_held_version_that_is_wrong_is_an_error_and_the_active_one_serves(node):
    """The error names the place, and no other version is built."""
    upgrade(node, "v1", "v3")
    node.put("v2", [b"wrong\n"])
    node.hold("v2")
    node.finish()
    assert (node.active, node.states["v2"]) == ("v3", VersionWord.ERROR)
    assert "part-0" in node.status["versions"]["v2"]["error"]["message"]
    assert "v2" in node.library.unready(DATABASE)


def test_without_the_hold_the_newest_serves_again(node):
    """The newest version serves at once if it is here, and is rebuilt if not."""
    upgrade(node, "v1", "v2")
    node.hold("v1")
    with no_builds(node):
        node.hold(None)
        assert node.active == "v2"
    node.hold("v1")
    for _ in range(6):
        node.wait()
    assert node.kept == {"v1"}
    node.hold(None)
    assert node.states["v2"] is VersionWord.BUILDING
    node.finish()
    assert node.active == "v2"


def test_a_version_that_was_withdrawn_does_not_come_back(node):
    """The version returns neither after the hold nor after a restart; the next good one is activated."""
    upgrade(node, "v1", "v2")
    node.hold("v1")
    node.withdraw("v2")
    node.look()
    node.hold(None)
    assert (node.active, node.kept) == ("v1", {"v1", "v2"})
    node.stop()
    node.start()
    assert (node.active, node.states["v2"]) == ("v1", VersionWord.RETIRING)
    upgrade(node, "v3")


def test_a_restart_under_a_hold_serves_what_is_held(node):
    """The held version serves at once without a build or a source; the one left behind stays so."""
    upgrade(node, "v1", "v2")
    node.hold("v1")
    for name in ("v1", "v2"):
        node.withdraw(name)
    node.stop()
    with no_builds(node):
        node.start()
        assert node.active == "v1"
        assert node.states == {"v1": VersionWord.ACTIVE, "v2": VersionWord.RETIRING}


def test_a_restart_after_the_hold_has_gone(node):
    """The usual rules continue from the held version."""
    upgrade(node, "v1", "v2")
    node.hold("v1")
    node.stop()
    node.databases = {}
    with no_builds(node):
        node.start()
        assert node.active == "v2"


def test_a_restart_with_a_new_hold_answers_from_it_at_once(node):
    """No request is answered from the other version first."""
    upgrade(node, "v1", "v2")
    node.stop()
    node.hold_from_now("v1")
    answers = len(node.answers)
    node.start()
    assert node.active == "v1"
    assert node.on_disk()[:2] == ("v1", "v2")
    assert node.answers[-1] == ("v1", "v1")
    assert len(node.answers) > answers


def test_a_damaged_active_document_leads_to_what_is_held(node):
    """Without a hold the newest version here is activated."""
    upgrade(node, "v1", "v2")
    node.hold("v1")
    for hold, expected in (("v1", "v1"), (None, "v2")):
        node.stop()
        node.spoil(f"/data/active/{DATABASE}")
        node.hold_from_now(hold)
        node.start()
        assert node.active == expected


def test_damage_found_while_it_retired_is_known_when_it_is_held(node):
    """The version is activated and rebuilt while it is read."""
    upgrade(node, "v1", "v2")
    node.damaged("v1", Corrupt("00000.gkv", 4096, "checksum"))
    assert node.states["v1"] is VersionWord.RETIRING
    node.hold("v1")
    assert (node.active, node.states["v1"]) == ("v1", VersionWord.BUILDING)
    assert "4096" in node.status["versions"]["v1"]["error"]["message"]
    node.finish()
    assert (node.active, node.states["v1"]) == ("v1", VersionWord.ACTIVE)
    assert "error" not in node.status["versions"]["v1"]


def test_a_version_is_built_again_only_when_its_removal_is_done(node):
    """A long read delays the removal, so that a rebuilt version is not deleted in its place."""
    upgrade(node, "v1", "v2")
    pinned = node.library.version(DATABASE, "v1").files[0]
    pinned.pin()
    for _ in range(6):
        node.wait()
    assert node.kept == {"v2"}
    node.hold("v1")
    assert node.states["v1"] is VersionWord.BUILDING
    assert node.builds == ["v1", "v2"]
    pinned.unpin()
    node.wait()
    node.finish()
    assert node.active == "v1"
    assert node.on_disk()[2] == {"v1", "v2"}


def test_an_order_leads_back_and_is_kept(node):
    """The order survives a power loss until it is released; then the newest newer version serves."""
    upgrade(node, "v1", "v2")
    assert node.order("v1") == {"database": DATABASE, "hold": "v1", "before": None}
    assert (node.active, node.status["hold"], node.status["held_by"]) == ("v1", "v1", "cluster")
    node.lose_power(1)
    node.start()
    put(node, "v3")
    assert (node.active, node.status["hold"]) == ("v1", "v1")
    assert node.order(None) == {"database": DATABASE, "hold": None, "before": "v1"}
    node.finish()
    assert (node.active, node.status["hold"], node.status["held_by"]) == ("v3", None, None)


def test_an_order_about_what_is_nowhere_is_refused(node):
    """Nothing changes; a version at the source that was not listed yet is found."""
    upgrade(node, "v2")
    refused = node.order("v9")
    assert type(refused) is UnknownVersion
    assert "no node and no source has version v9 of db; the last known versions are: v2" in refused.message
    assert node.status["hold"] is None
    node.put("v1", [b"name\tv1\n"])
    assert node.order("v1")["hold"] == "v1"
    node.finish()
    assert node.active == "v1"


def test_the_settings_of_a_node_go_before_an_order(node):
    """The settings win, and an order is refused with that reason."""
    upgrade(node, "v1", "v2")
    node.order("v2")
    node.hold("v1")
    assert (node.active, node.status["held_by"]) == ("v1", "settings")
    assert type(node.order(None)) is Conflict
    node.hold(None)
    assert (node.active, node.status["held_by"]) == ("v2", "cluster")


def test_an_order_to_this_node_alone(node):
    """The order counts until a later one to all nodes, or until its release here."""
    upgrade(node, "v1", "v2")
    node.order("v2")
    assert node.order("v1", here=True)["before"] == "v2"
    assert (node.active, node.status["held_by"]) == ("v1", "node")
    node.order(None, here=True)
    assert (node.active, node.status["held_by"]) == ("v2", "cluster")
    node.order("v1", here=True)
    node.order(None)
    assert (node.active, node.status["held_by"]) == ("v2", None)


def test_a_damaged_document_of_orders(node):
    """The document counts as empty and the loss is logged; other nodes repeat the order."""
    upgrade(node, "v1", "v2")
    node.order("v1")
    node.stop()
    node.spoil(f"/data/held/{DATABASE}")
    node.start()
    assert (node.active, node.status["hold"]) == ("v2", None)
    assert len(node.log("orders_damaged")) == 1


def test_a_source_that_went_back_is_told_until_a_hold_or_a_newer_version(node):
    """The newest version was removed there, and P2 forbids to follow; a source without any version tells nothing."""
    upgrade(node, "v1", "v2")
    node.withdraw("v2")
    node.look()
    assert node.active == "v2"
    assert "its newest version is v1, and the active version v2 is not there" in node.status["error"]
    assert f"run `gossipkv rollback {DATABASE} v1`" in node.status["error"]
    node.hold("v1")
    assert (node.active, node.status["error"]) == ("v1", None)
    node.hold(None)
    assert (node.active, node.status["error"]) == ("v1", None)
    upgrade(node, "v3")
    node.withdraw("v3")
    node.look()
    assert "v3 is not there" in node.status["error"]
    upgrade(node, "v4")
    assert node.status["error"] is None

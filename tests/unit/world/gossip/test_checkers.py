"""Each checker of gossip reports the violation that is planted for it, and nothing before."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gossipkv.errors import LocalError
from gossipkv.gossip.effects import Complain
from gossipkv.gossip.member import MemberState
from gossipkv.gossip.profile import LOCAL
from tests.unit.world.test_disk import begun, damage
from tests.world.gossip.checkers import Checkers, shows_the_truth
from tests.world.gossip.history import History
from tests.world.gossip.members import formed, gossip
from tests.world.gossip.rig import rig_of
from tests.world.scheduler import SECOND


class Tampered:
    """A core that gives other answers to some questions."""

    def __init__(self, real, **answers):
        self._real = real
        self.__dict__.update(answers)

    def __getattr__(self, name):
        return getattr(self._real, name)


@pytest.fixture
def scene():
    """Return three members that publish, and checkers that have found nothing so far."""
    world = formed(1, 3, LOCAL, settle_us=SECOND)
    history = History(world)
    checkers = Checkers(world, history, LOCAL)
    for machine in world.machines:
        for number in range(3):
            history.publish(machine, f"keys/{number}", b"%d" % number)
    world.run(3 * SECOND)
    checkers.look_at_all()
    world.run(SECOND)
    checkers.look_at_all()
    assert checkers.violations == []
    assert shows_the_truth(world, history) is None
    return SimpleNamespace(world=world, history=history, checkers=checkers, first=world.machines[0])


def complaints(scene):
    scene.checkers.look_at_all()
    return {violation.checker for violation in scene.checkers.violations}


def show(scene, *change, drop=(), add=()):
    """Let the first machine change m1 in its list, omit and add members; return the complaints."""
    core = gossip(scene.first)
    listed = [
        member._replace(**dict(change)) if member.name == "m1" else member
        for member in core.members.list()
        if member.name not in drop
    ]
    core.members = Tampered(core.members, list=lambda: [*listed, *add])
    return complaints(scene)


def test_a_member_shown_twice(scene):
    twice = gossip(scene.first).members.list()[2]
    assert "each_member_once" in show(scene, add=[twice])


def test_a_member_that_does_not_know_itself(scene):
    assert "knows_itself" in show(scene, drop={"m0"})


def test_an_epoch_that_nobody_began(scene):
    assert "only_real_epochs" in show(scene, ("epoch", 7))


def test_an_incarnation_that_nobody_said(scene):
    assert "only_own_incarnations" in show(scene, ("incarnation", 3))


def test_a_member_that_did_not_leave(scene):
    assert "only_the_leaver_leaves" in show(scene, ("state", MemberState.LEFT))


def test_a_place_that_is_nobodys(scene):
    assert "only_real_places" in show(scene, ("uuid", bytes(16)))


def test_a_member_that_vanishes(scene):
    assert "nobody_vanishes" in show(scene, drop={"m1"})


def test_a_rank_that_falls(scene):
    show(scene, ("state", MemberState.DEAD))
    scene.checkers.violations.clear()
    core = gossip(scene.first)
    core.members = core.members._real
    assert "ranks_never_fall" in complaints(scene)


def tamper_entries(scene, change):
    core = gossip(scene.first)
    real = core.tree
    core.tree = Tampered(real, entries=lambda path, **how: change(real.entries(path, **how), how.get("all", False)))
    return complaints(scene)


def test_a_state_that_nobody_had(scene):
    assert "only_real_states" in tamper_entries(scene, lambda found, _: [one for one in found if one.name != "1"])


def test_a_branch_that_goes_back(scene):
    history, other = scene.history, scene.world.machines[1]
    core = gossip(scene.first)
    before = core.tree.entries("keys", now_ms=0), core.tree.entries("keys", now_ms=0, all=True)
    history.withdraw(other, "keys/2")
    scene.world.run(2 * SECOND)
    assert complaints(scene) == set()
    tampered = tamper_entries(scene, lambda found, whole: before[whole] if found else found)
    assert "branches_never_go_back" in tampered


def test_entries_of_a_stranger(scene):
    added = tamper_entries(scene, lambda found, _: [*found, *(one._replace(owner="nobody") for one in found[:1])])
    assert "only_members_publish" in added


def test_entries_of_a_suspect(scene):
    assert "only_the_live_are_shown" in show(scene, ("state", MemberState.SUSPECT))


def test_children_that_are_not_there(scene):
    core = gossip(scene.first)
    core.tree = Tampered(core.tree, children=lambda path: ["0", "1", "2", "3"])
    assert "children_are_the_visible" in complaints(scene)


def test_a_watch_that_sleeps(scene):
    scene.checkers.forget(scene.first)
    core = gossip(scene.first)
    core.tree = Tampered(core.tree, watch=lambda path: SimpleNamespace(revision=0))
    assert complaints(scene) == set()
    scene.history.publish(scene.world.machines[1], "keys/9", b"new")
    scene.world.run(2 * SECOND)
    assert complaints(scene) == {"watchers_miss_nothing"}


@pytest.mark.parametrize("silent", [True, False])
def test_an_isolated_flag_that_lies(scene, silent):
    core = gossip(scene.first)
    if silent:
        scene.first.heard_ms -= 60_000
    else:
        core.members = Tampered(core.members, list=lambda: [core.members.own])
        scene.checkers.forget(scene.first)  # Otherwise the other members would have vanished.
        scene.world.scheduler.now_us += 60 * SECOND
    assert "isolated_says_so" in complaints(scene)


def test_a_packet_that_does_not_fit(scene):
    scene.world.network.send(scene.first, scene.world.machines[1].address, bytes(1401))
    assert complaints(scene) == {"packets_fit"}


def test_a_complaint_of_what_is_not_so(scene):
    """Nobody may answer at an address; a foreign id must be real; a twin never is."""
    tell = scene.world.told
    tell(scene.first, Complain(LocalError("no member answers at x, an address of `join`; the node retries")))
    assert not complaints(scene)
    tell(scene.first, Complain(LocalError("two nodes are called 'm0', this one at a and another at b")))
    assert complaints(scene) == {"complains_of_what_is_so"}
    scene.checkers.violations.clear()
    other = Complain(
        LocalError(f"x belongs to another cluster named 'simulated', of the id {'ab' * 8} instead of this")
    )
    tell(scene.first, other)
    assert complaints(scene) == {"complains_of_what_is_so"}
    scene.checkers.violations.clear()
    rig_of(scene.world.machines[1]).cluster_id = b"\xab" * 8
    scene.world.look_closely(scene.world.machines[1])
    tell(scene.first, other)
    assert not scene.checkers.violations


def test_places_that_are_wrong(scene):
    """A place that a node does not publish and a place that two nodes claim are both reported."""
    places = gossip(scene.first).tree.children("nodes")
    own = next(place for place in places if place.endswith(str(scene.first.address)))
    gossip(scene.first).tree.withdraw(f"nodes/{own}")
    scene.world.run(3 * SECOND)
    assert "3 members claim the places" in shows_the_truth(scene.world, scene.history)
    taken = gossip(scene.world.machines[1]).tree.published()
    shard_id = next(path for path in taken if path.startswith("nodes/")).partition("@")[0]
    gossip(scene.first).tree.publish(f"{shard_id}@{scene.first.address}", b"")
    assert "3 members claim the places" in shows_the_truth(scene.world, scene.history)


def test_views_that_differ_in_the_end(scene):
    """A member that is unknown, suspected or outdated, missing entries, and a node that is down are reported."""
    core = gossip(scene.first)
    real = core.members
    for tampered, why in (
        ([one for one in real.list() if one.name != "m2"], "does not know m2"),
        ([one._replace(state=MemberState.SUSPECT) for one in real.list()], "SUSPECT, which is up"),
        ([one._replace(incarnation=9) for one in real.list()], "which is at"),
    ):
        core.members = Tampered(real, list=lambda tampered=tampered: tampered)
        assert why in shows_the_truth(scene.world, scene.history)
    core.members = real
    tree = core.tree
    core.tree = Tampered(tree, entries=lambda path, **how: [])
    assert "does not show what" in shows_the_truth(scene.world, scene.history)
    core.tree = tree
    scene.world.machines[1].crash()
    assert shows_the_truth(scene.world, scene.history) == "m1 is down"


def come_back(scene, machine, **change):
    """Crash a machine and let its next process state changed facts about itself."""
    machine.crash()
    record = begun(machine.disk, machine.name, scene.world.streams["test"], least_epoch=1)
    machine.disk.keep(record._replace(**change))
    machine.start()
    scene.world.run(SECOND)


def test_a_process_that_forgot_its_epoch(scene):
    scene.first.clocks.wall_offset_ms = -(1 << 41)
    come_back(scene, scene.first, epoch=gossip(scene.first).members.own.epoch - 1)
    assert "comes_back_as_itself" in complaints(scene)


def test_a_process_that_forgot_who_it_is(scene):
    come_back(scene, scene.first, uuid="f" * 32)
    assert "comes_back_as_itself" in complaints(scene)


def test_a_process_that_cannot_read_its_disk(scene):
    """A node with a damaged disk stays down."""
    scene.first.crash()
    damage(scene.first.disk)
    scene.first.start()
    scene.world.run(SECOND)
    assert "comes_back_as_itself" in complaints(scene)
    assert "m0 is down" in shows_the_truth(scene.world, scene.history)


def test_whoever_comes_back_as_itself_is_right(scene):
    """A restart, a power loss and a lost disk cause no complaint."""
    for lost in (False, True, False):
        scene.first.crash(power=True)
        if lost:
            scene.first.disk.wipe()
        scene.first.start()
        scene.world.run(20 * SECOND)
        assert complaints(scene) == set()

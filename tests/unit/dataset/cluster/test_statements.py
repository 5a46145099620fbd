"""Statements of members over their epochs, and the resulting routes of the serving loop."""

from __future__ import annotations

from gossipkv.dataset.cluster.effects import KeepActive, OpenRoute, ReadContents
from gossipkv.dataset.cluster.members import MemberStanding
from gossipkv.placement.holders import HolderState
from gossipkv.placement.seals import Sealed
from gossipkv.placement.statement import DatabaseStatement
from tests.unit.dataset.cluster.scene import Node, active, answer, held, identity, member, statement

ONE, TWO = identity("1"), identity("2")
SEALS = answer(0, 1, 2, 3).seals


class Loop:
    """The routes of the serving loop, from the effects of the core."""

    def __init__(self, node):
        self.node = node

    def __call__(self, of=ONE):
        """Return the partitions that each member may be asked for."""
        routes = {}
        for effect in self.node.effects:
            if isinstance(effect, OpenRoute) and effect.identity == of:
                assert effect.partitions or effect.owner.name in routes, effect
                routes.pop(effect.owner.name, None)
                if effect.partitions:
                    routes[effect.owner.name] = set(effect.partitions)
        return routes


def told(name, *said, epoch=1):
    """Return the statement of a member that has published all its copies."""
    return {"name": name, "said": said, "database": DatabaseStatement(is_complete=True), "epoch": epoch}


def test_who_says_so_may_be_asked():
    """The route covers exactly the published partitions until they are withdrawn."""
    node = Node("b", "c")
    routes = Loop(node)
    node.hear("b", statement("b", (0, 1), (2,)))
    node.hear("c", statement("c", (1,)))
    assert routes() == {"b": {0, 1}, "c": {1}}
    node.hear("b", statement("b", (1, 2)))
    assert routes() == {"b": {1, 2}, "c": {1}}
    node.hear("b")
    assert routes() == {"c": {1}}


def test_a_state_changes_no_route():
    """Suspects and the dead keep their routes; the loop learns their states separately."""
    node = Node("b")
    routes = Loop(node)
    node.hear("b", statement("b", (0,)))
    before = len(node.effects)
    for state in (MemberStanding.SUSPECT, MemberStanding.DEAD, MemberStanding.ALIVE):
        node.state("b", state)
        node.step()
    assert routes() == {"b": {0}}
    assert not [effect for effect in node.effects[before:] if isinstance(effect, OpenRoute)]


def test_who_has_left_may_be_asked():
    """A member that has left comes last, but may answer for a moment, before its successors are known."""
    node = Node("b")
    routes = Loop(node)
    node.hear("b", statement("b", (0,)))
    node.state("b", MemberStanding.LEFT)
    node.step()
    assert routes() == {"b": {0}}
    assert node.membership.get("b").standing is HolderState.DEAD
    node.state("b", MemberStanding.ALIVE, epoch=2)
    node.step()
    assert routes() == {"b": {0}}


def test_a_newer_epoch_is_no_withdrawal():
    """Statements of a former epoch stay until the new one has published all its copies."""
    node = Node("b")
    routes = Loop(node)
    node.hear("b", statement("b", (0, 1)), statement("b", (0,), of=TWO))
    node.state("b", MemberStanding.ALIVE, epoch=2)
    node.hear("b", epoch=2)
    assert routes() == {"b": {0, 1}}
    node.hear("b", statement("b", (2,)), epoch=2, database=DatabaseStatement())
    assert routes() == {"b": {0, 1, 2}}
    assert routes(TWO) == {"b": {0}}
    node.hear("b", statement("b", (2,)), epoch=2, database=DatabaseStatement(is_complete=True))
    assert routes() == {"b": {2}}
    assert routes(TWO) == {}


def test_an_older_life_is_passed_over():
    node = Node("b")
    node.state("b", MemberStanding.ALIVE, epoch=2)
    node.hear("b", statement("b", (1,)), epoch=2, database=DatabaseStatement(is_complete=True))
    node.hear("b", statement("b", (0,)), epoch=1)
    assert Loop(node)() == {"b": {1}}


def test_a_name_that_another_node_has_now():
    """Another uuid is another disk, without the former copies."""
    node = Node("b")
    routes = Loop(node)
    node.hear("b", statement("b", (0,)))
    node.tell(member("b", epoch=2)._replace(uuid=bytes(16)))
    node.step()
    assert routes() == {}
    node.core.hear("b", bytes(16), 2, {}, None, wall_ms=0)
    node.step()
    assert routes() == {}


def test_another_address_is_told():
    """The node is dialled at its new address."""
    node = Node("b")
    node.hear("b", statement("b", (0,)))
    node.tell(member("b")._replace(address=member("c").address))
    node.step()
    last = [effect for effect in node.effects if isinstance(effect, OpenRoute)][-2:]
    assert [(effect.owner.address, len(effect.partitions)) for effect in last] == [
        (member("b").address, 0),
        (member("c").address, 1),
    ]


def test_the_forgotten_are_not_asked():
    node = Node("b")
    node.hear("b", statement("b", (0,)))
    node.membership.forget("b")
    node.core.forget("b")
    node.step()
    assert Loop(node)() == {}


def test_a_restart_that_hears_nobody_knows_whom_to_ask():
    """The active document makes the version active without a gate, with owners that are no members yet."""
    node = Node()
    node.core.remember(ONE, [held("a", 0), held("b", 1, 2), held("c", 3)], [])
    node.step()
    assert Loop(node)() == {"b": {1, 2}, "c": {3}}
    assert node.core.passed("1")
    assert not node.passes("1")
    assert node.core.identity("1") == ONE
    assert node.database.active.wire_id == ONE.wire_id


def test_what_is_remembered_gives_way_to_what_is_said():
    """Remembered owners are replaced when the owner has published all its copies."""
    node = Node()
    node.core.remember(ONE, [held("b", 1, 2)], [])
    node.tell(member("b", epoch=5))
    node.hear("b", statement("b", (3,)), epoch=5)
    assert Loop(node)() == {"b": {1, 2}}, "what it has besides is not known to be the same"
    node.answered("b", answer(1, 2, 3), epoch=5)
    assert Loop(node)() == {"b": {1, 2, 3}}
    node.hear("b", statement("b", (3,)), epoch=5, database=active())
    assert Loop(node)() == {"b": {3}}


def test_who_is_remembered_and_is_another_now():
    """A new disk does not have the remembered partitions."""
    node = Node()
    node.core.remember(ONE, [held("b", 1, 2)], [])
    node.tell(member("b")._replace(uuid=bytes(16)))
    node.step()
    assert Loop(node)() == {}


def test_owners_are_kept_as_they_change():
    """A new version is kept at once; new owners at most every few seconds."""
    node = Node("b", "c")
    node.settle()
    node.hear("b", statement("b", (0, 1, 2, 3)))
    node.answered("b", answer(0, 1, 2, 3))
    node.core.activate(ONE)
    node.step()
    kept = [effect for effect in node.effects if isinstance(effect, KeepActive)]
    assert kept == [KeepActive(ONE, (held("b", 0, 1, 2, 3),), (Sealed(ONE, SEALS),))]
    node.hear("c", statement("c", (1,)))
    node.hear("c", statement("c", (1, 2)))
    node.answered("c", answer(1, 2))
    kept = [effect for effect in node.effects if isinstance(effect, KeepActive)]
    node.step(5_000)
    (*_, last) = [effect for effect in node.effects if isinstance(effect, KeepActive)]
    assert last == KeepActive(ONE, (held("b", 0, 1, 2, 3), held("c", 1, 2)), (Sealed(ONE, SEALS),))
    assert len([effect for effect in node.effects if isinstance(effect, KeepActive)]) <= len(kept) + 1


def test_a_newer_version_is_looked_for_once():
    """Each unknown version is looked for once, whichever member mentions it."""
    node = Node("b", "c")
    node.copy("2", digest=TWO.digest, partitions=4)
    node.hear("b", database=DatabaseStatement(newest="2"))
    node.hear("b", database=DatabaseStatement(newest="4"))
    node.hear("c", database=DatabaseStatement(newest="4"))
    node.hear("c", statement("c", (0,), of=identity("3")))
    node.hear("c", statement("c", (0,), of=identity("5")))
    assert [effect.version for effect in node.effects if isinstance(effect, ReadContents)] == ["4", "5"]
    assert node.core.is_known_elsewhere


def test_a_newer_active_version_is_found():
    """Reads with a `min_version` use the version once each partition has an owner; nothing becomes active."""
    node = Node("b", "c")
    node.hear("b", statement("b", (0,), of=TWO), database=active(TWO))
    assert node.core.active_elsewhere("2") is None
    node.hear("c", statement("c", (1, 2, 3), of=TWO))
    assert node.core.active_elsewhere("2") is None, "b has not said yet what its clients get"
    node.answered("b", answer(0)._replace(fixed=SEALS), of=TWO)
    assert node.core.active_elsewhere("2") == TWO
    assert Loop(node)(TWO) == {"b": {0}}
    node.answered("c", answer(1, 2, 3, seals={"1/none": {1: 7, 2: 8, 3: 7}}), of=TWO)
    assert Loop(node)(TWO) == {"b": {0}, "c": {1, 3}}
    assert node.core.active_elsewhere("3") is None
    assert not node.core.passed("2")

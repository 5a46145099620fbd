"""Functions that a stray has refuted: versions that relied on them are not counted, asked for or answered."""

from __future__ import annotations

from gossipkv.dataset.cluster.effects import KeepRefuted
from gossipkv.dataset.cluster.refutations import MAX_DIGESTS, Refutations
from gossipkv.placement.statement import DatabaseStatement, Named
from tests.unit.dataset.cluster.scene import DIGEST, TERMS, Node, active, answer, identity, some, statement
from tests.unit.dataset.cluster.test_statements import Loop

RELIED, REGROUPED = identity(), identity(regrouped=True)
HEARD = DatabaseStatement(refuted={DIGEST: ("sequins",)})


def kept(node):
    return [effect for effect in node.effects if isinstance(effect, KeepRefuted)]


def test_what_is_found_is_kept_and_published():
    """The refutation is kept and published at once, and only once."""
    node = Node("b")
    node.settle()
    node.core.found_stray(DIGEST, "sequins")
    node.core.found_stray(DIGEST, "sequins")
    node.step()
    assert kept(node) == [KeepRefuted(DIGEST, ("sequins",))]
    assert node.database.refuted == {DIGEST: ("sequins",)}
    assert node.core.refuted(DIGEST) == ("sequins",)
    assert node.core.refuted("cd" * 32) == ()


def test_what_is_heard_is_kept_and_published_too():
    """The refutation survives its finder and a restart."""
    node = Node("b")
    node.hear("b", database=HEARD)
    assert kept(node) == [KeepRefuted(DIGEST, ("sequins",))]
    assert node.database.refuted == HEARD.refuted
    node.core.found_stray(DIGEST, "spark")
    node.step()
    assert kept(node)[-1] == KeepRefuted(DIGEST, ("sequins", "spark"))
    again = Node("b", refuted={DIGEST: ("sequins",)})
    again.step()
    assert again.database.refuted == HEARD.refuted
    assert again.core.refuted(DIGEST) == ("sequins",)


def test_nothing_refuted_is_counted():
    """No statement and no answer counts in a gate, and the own copy is withdrawn."""
    node = Node("b")
    node.settle()
    node.has(0, 1)
    node.hear("b", statement("b", (2, 3)))
    node.answered("b", answer(2, 3))
    assert node.passes()
    node.core.found_stray(DIGEST, "sequins")
    node.step()
    assert not node.passes()
    assert not node.core.passed("1")
    assert node.published == {}
    assert node.core.identity("1") is None


def test_nothing_refuted_is_asked_or_answered():
    """Neither the serving loop nor the direct question uses the version, even if it is active."""
    node = Node("b")
    node.settle()
    node.has(0, 1)
    node.hear("b", statement("b", (2, 3)))
    node.answered("b", answer(2, 3))
    node.core.activate(RELIED)
    node.step()
    assert Loop(node)() == {"b": {2, 3}}
    assert node.core.answer("b", RELIED.wire_id, now_ms=node.now_ms) is not None
    node.hear("b", statement("b", (2, 3)), database=HEARD)
    assert Loop(node)() == {}
    assert node.core.answer("b", RELIED.wire_id, now_ms=node.now_ms) is None
    assert not node.core.passed("1")


def test_what_was_regrouped_stands():
    """A regrouped version has read all files, and becomes active again when its gate passes."""
    node = Node("b")
    node.settle()
    node.has(0, 1)
    node.hear("b", statement("b", (2, 3)))
    node.answered("b", answer(2, 3))
    node.core.activate(RELIED)
    node.core.found_stray(DIGEST, "sequins")
    node.step()
    node.has(0, 1, of=REGROUPED)
    node.hear("b", statement("b", (2, 3), of=REGROUPED), database=active(REGROUPED))
    assert not node.passes()
    node.step(TERMS.probe_interval_ms)
    node.answered("b", answer(2, 3), REGROUPED)
    assert node.passes()
    assert node.core.identity("1") == REGROUPED
    node.core.activate(REGROUPED)
    node.step()
    assert node.database.active == Named("1", REGROUPED.wire_id)


def test_a_build_follows_what_is_published():
    """Among identities of these files an active one is followed first, then the smallest; refuted ones never."""
    node = Node("b", "c", "d")
    node.settle()
    node.copy(digest=DIGEST, partitions=4)
    assert node.core.to_follow("1") is None
    other = identity(digest="cd" * 32)
    node.hear("d", statement("d", (0,), of=other), database=active(other))
    assert node.core.to_follow("1") is None
    spark = identity(function="spark")
    first, second = sorted((RELIED, spark), key=lambda each: each.wire_id)
    node.hear("b", statement("b", (), (0,), of=second))
    assert node.core.to_follow("1") == second
    node.hear("c", statement("c", (), (1,), of=first))
    assert node.core.to_follow("1") == first
    node.hear("b", statement("b", (0,), of=second), database=active(second))
    assert node.core.to_follow("1") == second
    node.core.found_stray(DIGEST, second.function)
    node.step()
    assert node.core.to_follow("1") == first


def test_a_build_that_waits_its_turn_says_what_it_is_to_come_to():
    """The identity keeps other members from taking its partitions."""
    node = Node("b")
    node.settle()
    node.copy(digest=DIGEST, partitions=4, share=some(0), building=some(0))
    node.hear("b", statement("b", (1,)))
    node.step()
    assert node.published["1"].building == some(0)
    assert node.published["1"].identity == RELIED


def test_what_others_say_is_bounded():
    """Digests that are in use are dropped last."""
    refutations = Refutations()
    assert refutations.learn(DIGEST, ["sequins"], ())
    for number in range(2 * MAX_DIGESTS):
        assert refutations.learn(f"{number:064x}", ["spark"], {DIGEST})
    assert len(refutations.all()) == MAX_DIGESTS
    assert refutations.of(DIGEST) == ("sequins",)

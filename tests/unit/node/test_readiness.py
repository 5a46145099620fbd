"""Readiness tells a balancer when a node may get clients."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from gossipkv.dataset.cluster.convergence import Convergence
from gossipkv.dataset.cluster.core import DatasetCluster
from gossipkv.dataset.cluster.members import Membership, MemberStanding
from gossipkv.dataset.cluster.terms import Terms
from gossipkv.node.readiness import NodeReadiness
from tests.unit.dataset.cluster.scene import HOUR_MS, SETTLE_MS, member


@dataclass
class MadeUpLibrary:
    """A library whose state the test sets."""

    opened: bool = True
    serves_any: bool = False


class Scene:
    """One node `a`, which expects others by default."""

    def __init__(self, *, expects_others: bool = True) -> None:
        self.library = MadeUpLibrary()
        self.membership = Membership(
            member("a", "1"), expects_others=expects_others, retire_max_ms=HOUR_MS, now_ms=0
        )  # fmt: skip
        self.convergence = Convergence(self.membership, settle_ms=SETTLE_MS, now_ms=0)
        terms = Terms(1, 1, 0, 0, 1000, 0)
        cluster = DatasetCluster(self.membership, self.convergence, terms, lambda _core, _effects: None)
        self.readiness = NodeReadiness(self.library, cluster, settle_ms=SETTLE_MS, now_ms=0)
        self.readiness.tables_opened = True

    def joined(self, now_ms: int) -> bool:
        return self.readiness.to_map(now_ms)["joined"]


def test_who_was_told_of_nobody_waits_for_nobody() -> None:
    """The first node of a cluster expects no other members."""
    assert Scene(expects_others=False).readiness.to_map(0) == {"joined": True, "opened": True, "draining": False}


def test_joined_when_the_members_were_still() -> None:
    """A node stays joined, even after all others are gone."""
    scene = Scene()
    scene.membership.tell(member("b", "2"), now_ms=0)
    for now_ms in (0, SETTLE_MS - 1):
        scene.convergence.step(now_ms)
        assert not scene.joined(now_ms)
    scene.convergence.step(SETTLE_MS)
    assert scene.joined(SETTLE_MS)
    scene.membership.isolate(isolated=True, now_ms=SETTLE_MS)
    scene.convergence.step(SETTLE_MS)
    assert scene.convergence.ids is None
    assert scene.joined(SETTLE_MS)


@pytest.mark.parametrize("reason", ["heard", "serves", "neither", "dead"])
def test_nobody_is_kept_out_for_ever(reason: str) -> None:
    """After twice the convergence time it suffices to hear a member or to serve restored data."""
    scene = Scene()
    scene.library.serves_any = reason == "serves"
    if reason in {"heard", "dead"}:
        scene.membership.tell(
            member("b", state=MemberStanding.DEAD if reason == "dead" else MemberStanding.ALIVE), now_ms=0
        )
    assert not scene.joined(2 * SETTLE_MS - 1)
    assert scene.joined(2 * SETTLE_MS) is (reason in {"heard", "serves"})
    scene.library.serves_any = False
    assert scene.joined(3 * SETTLE_MS) is (reason in {"heard", "serves"})


def test_opened_and_draining_are_as_they_are() -> None:
    scene = Scene(expects_others=False)
    scene.library.opened, scene.readiness.draining = False, True
    assert scene.readiness.to_map(0) == {"joined": True, "opened": False, "draining": True}
    scene.library.opened = True
    assert scene.readiness.to_map(0)["opened"]
    scene.readiness.tables_opened = False
    assert not scene.readiness.to_map(0)["opened"]

"""Defects planted in whole nodes: a scenario finds each of them by the nodes' answers to clients.

For defects in dataset code the table names the checker, or the demand of the scenario, that finds each.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING

import pytest
import trio

from gossipkv.dataset.cluster import core
from gossipkv.dataset.cluster.members import Membership
from gossipkv.dataset.cluster.view import DatabaseView
from gossipkv.dataset.database import Database
from gossipkv.dataset.lifecycle.version_states import VersionState
from gossipkv.gossip.core import Gossip
from gossipkv.gossip.membership.beliefs import Beliefs
from gossipkv.gossip.membership.namesakes import Namesakes
from gossipkv.gossip.shell.agent import Agent
from gossipkv.gossip.tree.tree import GossipTree
from gossipkv.node.directory import DataDirectory
from gossipkv.node.gossip import Gossiping
from gossipkv.node.peers.connections import NodePeers
from gossipkv.placement.identity import VersionIdentity
from gossipkv.serving.pump import Pump
from tests.world.nodes.replay import WholePlan, run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gossipkv.dataset.held import Held
    from gossipkv.node.peers.connections import NodePeer

SEEDS = range(6)


def nothing(*_: object, **__: object) -> None:
    """Do nothing, in place of an important method."""


def never(*_: object, **__: object) -> bool:
    return False


async def cut(self: Pump, timeout_s: float) -> bool:
    assert timeout_s > 0
    self._drained.set()
    return True


PLANTED: dict[str, tuple[str, type, str, Callable[..., object]]] = {
    "who leaves does not say so": ("leave", Gossip, "leave", nothing),
    "a drain answers nobody": ("leave", Pump, "drain", cut),
    "a request that has failed is forgotten": ("death", Gossiping, "suspect_hint", nothing),
    "a suspicion never ends": ("restarts", Beliefs, "unanswered", nothing),
    "what the dead have published stays": ("restarts", GossipTree, "_hide", nothing),
    "peers are not remembered": ("blackout", DataDirectory, "remember", nothing),
    "who hears of another of its name does not care": ("twins", Namesakes, "hear_claim", nothing),
    "what is withdrawn stays": ("tree", Gossiping, "withdraw", nothing),
    "a node never says that it is alone": ("partition", Gossip, "isolated", never),
    "answers of other nodes are not heard": ("join", Agent, "reply", nothing),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_defect_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An assertion of the scenario fails with one of a few seeds."""
    scenario, owner, method, instead = PLANTED[name]
    monkeypatch.setattr(owner, method, instead)

    def some() -> None:
        for seed in SEEDS:
            run(WholePlan(scenario, 3, seed))

    with pytest.raises(AssertionError):
        some()


def name_alone(self: VersionIdentity) -> bytes:
    """Give two contents of one name the same identity on the wire."""
    return sha256(f"{self.database}/{self.version}".encode()).digest()[:16]


_tell = NodePeers.tell


def another_partition(held: Held, _: Database) -> Held:
    """Look up partitions of other nodes in a local file."""
    here = next((file for file in held.files if file is not None), None)
    return replace(held, files=[here if file is None else file for file in held.files])


def now_and_then_the_retired(held: Held, database: Database) -> Held:
    """In every other second, answer requests without a version from a retired version, if any."""
    lives = database.lives.values()
    left = [one.name for one in lives if one.state is VersionState.RETIRING and database.view.passed(one.name)]
    chosen = left[-1] if left and int(trio.current_time()) % 2 else database.switching.active
    return replace(held, active=held.passed and held.name == chosen)


def holding(change: Callable[[Held, Database], Held]) -> Callable[[Database], list[Held]]:
    original = Database.held
    return lambda database: [change(one, database) for one in original(database)]


def knows(self: DatabaseView, version: str) -> bool:
    """Accept a version whose identity alone is known."""
    return self.identity(version) is not None


def tell_of_the_living(self: NodePeers, peers: Iterable[NodePeer]) -> None:
    """Hide dead peers from the serving loop."""
    _tell(self, [peer for peer in peers if peer.state <= 1])


# Each defect has a name, the scenario, the owner and name of the attribute, its replacement, and the report of the
# finder.
PLANTED_IN_SHARING: dict[str, tuple[str, object, str, object, str]] = {
    "the identity is a name": ("another_disk", VersionIdentity, "wire_id", property(name_alone), "identities|truth"),
    "what is elsewhere is absent": ("one_version", Database, "held", holding(another_partition), "truth"),
    # Either the answers of these nodes step back, or they keep the old version in use.
    "the retired is answered": (
        "upgrade",
        Database,
        "held",
        holding(now_and_then_the_retired),
        "monotonic|101 is gone",
    ),
    "a switch waits for no gate": ("slow_source", DatabaseView, "may_switch", knows, "reads failed"),
    "the dead are not asked": ("wrong_dead", NodePeers, "tell", tell_of_the_living, "reads failed"),
    "laggards are not waited for": ("laggard", core, "needed_by", lambda *_: [], "let 101 go"),
    "who is stopped is gone at once": ("owner_stopped", DatabaseView, "is_missed", never, "reads failed"),
    "who is stopped amid an upgrade, too": ("stopped_amid_upgrades", DatabaseView, "is_missed", never, "reads failed"),
    "who hears nobody goes on": ("all_cut_off", Membership, "waits_to_be_heard", never, "switched|let go"),
}


@pytest.mark.parametrize("name", PLANTED_IN_SHARING)
def test_a_defect_in_sharing_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The expected finder reports the defect with one of a few seeds."""
    scenario, owner, attribute, instead, said = PLANTED_IN_SHARING[name]
    monkeypatch.setattr(owner, attribute, instead)

    def some() -> None:
        for seed in SEEDS:
            run(WholePlan(scenario, 3, seed))

    with pytest.raises(AssertionError, match=said):
        some()

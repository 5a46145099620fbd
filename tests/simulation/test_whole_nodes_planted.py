"""Defects planted in whole nodes: a scenario finds each of them, by what the nodes show to clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gossipkv.gossip.core import Gossip
from gossipkv.gossip.membership.beliefs import Beliefs
from gossipkv.gossip.membership.namesakes import Namesakes
from gossipkv.gossip.shell.agent import Agent
from gossipkv.gossip.tree.tree import Tree
from gossipkv.node.directory import DataDirectory
from gossipkv.node.gossip import Gossiping
from gossipkv.node.pump import Pump
from gossipkv.testing.nodes.replay import WholePlan, run

if TYPE_CHECKING:
    from collections.abc import Callable

SEEDS = range(6)


def nothing(*_: object, **__: object) -> None:
    """In the place of something that matters."""


def never(*_: object, **__: object) -> bool:
    """False."""
    return False


async def cut(self: Pump, timeout_s: float) -> bool:
    """A drain that waits for nobody."""
    assert timeout_s > 0
    self._drained.set()
    return True


PLANTED: dict[str, tuple[str, type, str, Callable[..., object]]] = {
    "who leaves does not say so": ("leave", Gossip, "leave", nothing),
    "a drain answers nobody": ("leave", Pump, "drain", cut),
    "a suspicion never ends": ("restarts", Beliefs, "unanswered", nothing),
    "what the dead have published stays": ("restarts", Tree, "_hide", nothing),
    "peers are not remembered": ("blackout", DataDirectory, "remember", nothing),
    "who hears of another of its name does not care": ("twins", Namesakes, "hear_claim", nothing),
    "what is withdrawn stays": ("tree", Gossiping, "withdraw", nothing),
    "a node never says that it is alone": ("partition", Gossip, "isolated", never),
    "answers of other nodes are not heard": ("join", Agent, "reply", nothing),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_defect_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By an assertion of the scenario, with one seed of a few."""
    scenario, owner, method, instead = PLANTED[name]
    monkeypatch.setattr(owner, method, instead)

    def some() -> None:
        for seed in SEEDS:
            run(WholePlan(scenario, 3, seed))

    with pytest.raises(AssertionError):
        some()

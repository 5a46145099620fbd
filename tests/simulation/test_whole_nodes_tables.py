"""Whole nodes that decide on tables, with their real shells and stores: some seeds of each scenario, one twice."""

from __future__ import annotations

import pytest

from gossipkv.node.deciding import Deciding
from gossipkv.register.metadata.catalogue import Catalogue
from gossipkv.testing.nodes.cluster import Violation
from gossipkv.testing.nodes.replay import WholePlan, run
from gossipkv.testing.nodes.scenarios import DECIDING

PLANS = [WholePlan(name, members, seed) for name in sorted(DECIDING) for members, seed in ((3, 0), (5, 1))]


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: f"{plan.scenario}-{plan.members}-{plan.seed}")
def test_a_scenario(plan: WholePlan) -> None:
    """It comes to a good end, and with the first seed twice to the same."""
    first = run(plan)
    if plan.seed == 0:
        assert run(plan).trace == first.trace, plan.command


def found(scenario: str, members: int, seeds: int) -> list[str]:
    """What is said of a defect that was planted, by the runs that find it."""
    said = []
    for seed in range(seeds):
        try:
            run(WholePlan(scenario, members, seed))
        except (AssertionError, Violation) as error:
            said.append(str(error))
    return said


def test_a_catalogue_that_anybody_founds_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """All say that they may, or somebody does it although it was not its to found."""
    monkeypatch.setattr(Deciding, "may_not_found", lambda self: None if self.register else "no cluster yet")
    assert found("founder_lost", 3, 1)


def test_a_table_that_is_made_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who does not know its own operation again tells whoever repeats it that another was faster."""
    monkeypatch.setattr(Catalogue, "_made", lambda *_: None)
    monkeypatch.setattr("gossipkv.register.metadata.tree.Tree.outcome", lambda *_: None)
    assert any("cannot be made" in words for words in found("cut_while_founding", 5, 4))

"""Defects planted in whole nodes that decide on tables: a scenario finds each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gossipkv.register.metadata.catalogue import Catalogue
from gossipkv.table.participant.participant import MetadataParticipant
from tests.world.nodes.replay import WholePlan, run
from tests.world.nodes.whole_cluster import Violation

if TYPE_CHECKING:
    import pytest


def found(scenario: str, members: int, seeds: int) -> list[str]:
    """Return the reports of a planted defect by the runs that find it."""
    said = []
    for seed in range(seeds):
        try:
            run(WholePlan(scenario, members, seed))
        except (AssertionError, Violation) as error:
            said.append(str(error))
    return said


def test_a_catalogue_that_anybody_founds_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The defect shows as several permitted founders, or as a founding by a node that may not found."""
    monkeypatch.setattr(
        MetadataParticipant, "may_not_found", lambda self: None if self.service.register else "no cluster yet"
    )
    assert found("founder_lost", 3, 1)


def test_a_table_that_is_made_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that does not recognise its own operation answers its repetition with a conflict."""
    monkeypatch.setattr(Catalogue, "_made", lambda *_: None)
    monkeypatch.setattr("gossipkv.register.metadata.operations.kept_outcome", lambda *_: None)
    assert any("cannot be made" in words for words in found("cut_while_founding", 5, 4))

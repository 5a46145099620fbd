"""Tests that cost seconds; `test_swarm.py` has the others."""

from __future__ import annotations

import pytest

from gossipkv.register import proposer
from gossipkv.register.acceptor import Acceptor
from gossipkv.register.configuration import Acceptors
from gossipkv.register.proposal import ChangeEnd
from gossipkv.register.proposer import Proposer
from tests.world.register.swarm import RegisterPlan

MAX_SEEDS = 60


def found():
    """The checkers that complain in the first run that is not right."""
    for seed in range(MAX_SEEDS):
        outcome = RegisterPlan(seed).run()
        if not outcome.is_right:
            assert f"python -m tests.world --seed {seed} --registers" in outcome.plan.command
            return {violation.checker for violation in outcome.violations}
    return set()


def answer_at_once(self, register, answer):
    """Tell of a record that is not synced."""
    del register
    self._effects.append(answer)


def refuse(self, pending):
    """Say that a change is not done, though some may have accepted it."""
    self._tell(pending, proposer.ProposalOutcome(pending.ticket, ChangeEnd.REFUSED, b"", "UNAVAILABLE", "late"))


@pytest.mark.parametrize(
    ("where", "name", "planted", "by"),
    [
        (Acceptor, "_answer", answer_at_once, "answered_is_synced"),
        (Acceptors, "is_quorum", lambda self, of: not self.everyone.isdisjoint(of), "one_chain"),
        (proposer, "draw_id", lambda random: 7, "one_value_a_ballot"),
        (Proposer, "_give_up", refuse, "one_chain"),
    ],
)
def test_what_is_planted_is_found(monkeypatch, where, name, planted, by):
    """A rule of the core is broken, and a checker says so."""
    monkeypatch.setattr(where, name, planted)
    assert by in found()

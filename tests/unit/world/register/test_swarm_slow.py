"""Slow tests of runs of registers; the fast ones are in `test_swarm.py`."""

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
    """Return the checkers that complain in the first failing run."""
    for seed in range(MAX_SEEDS):
        outcome = RegisterPlan(seed).run()
        if not outcome.is_right:
            assert f"python -m tests.world --seed {seed} --registers" in outcome.plan.command
            return {violation.checker for violation in outcome.violations}
    return set()


def answer_at_once(self, register, answer):
    """Report a record that is not synced."""
    del register
    self._effects.append(answer)


def refuse(self, pending):
    """Report a change as refused, though acceptors may have accepted it."""
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
    monkeypatch.setattr(where, name, planted)
    assert by in found()

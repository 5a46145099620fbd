"""The model of ranges that begin anew: right as its rules are, and each of them is needed."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.world.models.refounding import PLANTED, Run

STRUCK = ("begun anew again", "begun empty", "forced", "kept", "moved", "refused", "settled", "told that it is lost")


def test_the_rules_keep_what_is_promised():
    """With divisions, moves, hosts that come back and people who ask twice; and they struck what they are for."""
    counts: Counter[str] = Counter()
    for seed in range(60):
        run = Run(seed)
        assert run.verdict() == "right", f"python -m tests.world.models.refounding {seed} 1"
        counts += run.counts
    assert [name for name in STRUCK if not counts[name]] == []


@pytest.mark.parametrize(("bug", "found"), PLANTED.items())
def test_each_rule_is_needed(bug, found):
    """Without it, the run of a known seed breaks a promise, which it keeps with it."""
    seed, verdict = found
    assert Run(seed, frozenset({bug})).verdict() == verdict
    assert Run(seed).verdict() == "right"

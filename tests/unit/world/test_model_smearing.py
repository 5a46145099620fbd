"""The model of smearing: right as its rules are, and each of them is needed."""

from __future__ import annotations

import pytest

from tests.world.models.smearing import PLANTED, Run, main


@pytest.mark.parametrize("seed", range(8))
def test_the_rules_keep_what_is_promised(seed):
    """With crashes, lost answers, hosts that nobody reaches: what was accepted is there, over nothing later."""
    assert Run(seed).verdict() == "right"


@pytest.mark.parametrize(("bug", "found"), PLANTED.items())
def test_each_rule_is_needed(bug, found):
    """Without it, the run of a known seed breaks a promise."""
    seed, verdict = found
    assert Run(seed, frozenset({bug})).verdict() == verdict


def test_a_run_has_all_that_it_is_for(capsys):
    """Verdicts and what has happened are counted."""
    main(["0", "2"])
    said = capsys.readouterr().out
    assert said.startswith("{'right': 2}")
    assert all(f"'{what}'" in said for what in ("replayed", "late", "collected", "lost to what stood"))

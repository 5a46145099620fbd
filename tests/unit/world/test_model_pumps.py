"""The model of pumps: right as its rules are, and each of them is needed."""

from __future__ import annotations

import pytest

from tests.world.models.pumps import PLANTED, Run, main


@pytest.mark.parametrize("seed", range(30))
def test_the_rules_keep_what_is_promised(seed):
    """Whatever thread goes on: no step back, nothing torn, nothing freed that is read, nobody starved or stuck."""
    assert Run(seed).verdict() == "right"


@pytest.mark.parametrize(("bug", "found"), PLANTED.items())
def test_each_rule_is_needed(bug, found):
    """Without it, the run of a known seed breaks a promise."""
    seed, verdict = found
    assert Run(seed, frozenset({bug})).verdict() == verdict


def test_a_run_has_all_that_it_is_for(capsys):
    """Verdicts and what has happened are counted."""
    main(["0", "20"])
    said = capsys.readouterr().out
    assert said.startswith("{'right': 20}")
    assert all(f"'{what}'" in said for what in ("published", "answered by Python", "batch", "cursors of what is gone"))

"""The model of moves: right as its rules are, and each of them is needed."""

from __future__ import annotations

import pytest

from tests.world.models import aimed
from tests.world.models.moves import PLANTED, Run, main


@pytest.mark.parametrize("seed", range(20))
def test_the_rules_keep_what_is_promised(seed):
    """Moves, forced replacements, late adoption and sessions in a storm: right, as wanted, and quiet afterwards."""
    assert Run(seed).verdict() == "right"


@pytest.mark.parametrize(("bug", "found"), PLANTED.items())
def test_each_rule_is_needed(bug, found):
    """Without it, the run of a known seed breaks a promise, which it keeps with it."""
    seed, verdict = found
    assert Run(seed, frozenset({bug})).verdict() == verdict
    assert Run(seed).verdict() == "right"


@pytest.mark.parametrize(("bug", "found"), aimed.PLANTED.items())
def test_each_rule_is_needed_where_it_is_aimed_at(bug, found):
    """Rules that storms strike too seldom, or whose breach only costs time, have schedules of their own."""
    schedule, verdict = found
    assert aimed.verdict(schedule, frozenset({bug})) == verdict
    assert aimed.verdict(schedule) == "right"


def test_a_run_follows_from_its_number():
    """The same seed, the same run, to the last operation."""
    one, other = Run(4), Run(4)
    assert (one.verdict(), one.configs, one.counts) == (other.verdict(), other.configs, other.counts)


def test_verdicts_are_counted(capsys):
    """The command names the first seed of what is not right."""
    main(["1", "2", "available_confirms_merged"])
    assert capsys.readouterr().out.startswith("{'ahead': 1, 'right': 1} first {'ahead': 1}")

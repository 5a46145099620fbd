"""The model of division in place: right as its rules are, and each of them is needed."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.world.models import divided_aimed
from tests.world.models.division import PLANTED, Run, main

STRUCK = (
    "acked majority",
    "collected",
    "divided before all had heard",
    "divisions of children",
    "divisions skipped",
    "entries read as a child's",
    "loads",
    "lost",
    "moved",
    "parents refused",
    "settled",
    "writes unheard",
)


def test_the_rules_keep_what_is_promised():
    """Divisions, late adoption, moves and sessions in storms: right, then quiet; and they struck what they are for."""
    counts: Counter[str] = Counter()
    for seed in range(150):
        run = Run(seed)
        assert run.verdict() == "right", f"python -m tests.world.models.division {seed} 1"
        counts += run.counts
    assert [name for name in STRUCK if not counts[name]] == []


@pytest.mark.parametrize(("bug", "found"), PLANTED.items())
def test_each_rule_is_needed(bug, found):
    """Without it, the run of a known seed breaks a promise, which it keeps with it."""
    seed, verdict = found
    assert Run(seed, frozenset({bug})).verdict() == verdict
    assert Run(seed).verdict() == "right"


@pytest.mark.parametrize(("bug", "found"), divided_aimed.PLANTED.items())
def test_each_rule_is_needed_where_it_is_aimed_at(bug, found):
    """Rules that storms strike too seldom have schedules of their own."""
    schedule, verdict = found
    assert divided_aimed.verdict(schedule, frozenset({bug})) == verdict
    assert divided_aimed.verdict(schedule) == "right"


def test_a_run_follows_from_its_number():
    """The same seed, the same run, to the last operation."""
    one, other = Run(4), Run(4)
    assert (one.verdict(), one.maps, one.counts) == (other.verdict(), other.maps, other.counts)


def test_verdicts_are_counted(capsys):
    """The command says how to see what is not right again, and names its first seed."""
    main(["22", "2", "time_not_inherited"])
    shown = capsys.readouterr().out
    assert shown.startswith("backwards: python -m tests.world.models.division 23 1 time_not_inherited\n")
    assert "{'right': 1, 'backwards': 1} first {'backwards': 23}" in shown

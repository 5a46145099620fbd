"""The model of feeds and loading: right as its rules are, and each of them is needed."""

from __future__ import annotations

import pytest

from tests.world.models.feed import PLANTED, Run, main


@pytest.mark.parametrize("seed", range(8))
def test_the_rules_keep_what_is_promised(seed):
    """Calm, with a link cut, a disk put back, short logs and storms: right, and quiet afterwards."""
    assert Run(seed).verdict() == "right"


@pytest.mark.parametrize(("bug", "found"), PLANTED.items())
def test_each_rule_is_needed(bug, found):
    """Without it, the run of a known seed breaks a promise."""
    seed, verdict = found
    assert Run(seed, frozenset({bug})).verdict() == verdict


def test_a_run_follows_from_its_number():
    """The same seed, the same run, to the last record that is sent."""
    one, other = Run(4), Run(4)
    assert (one.verdict(), one.counts) == (other.verdict(), other.counts)


def test_verdicts_are_counted(capsys):
    """The command names the first seed of what is not right."""
    main(["1", "2", "never_like_own"])
    assert capsys.readouterr().out.startswith("{'slow': 1, 'right': 1} first {'slow': 1}")

"""The tables of docs/users/load-test.md are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gossipkv.cli import loadtest as command
from gossipkv.loadtest import limits
from gossipkv.loadtest.compare import chance

PAGE = (Path(__file__).parents[3] / "docs" / "users" / "load-test.md").read_text(encoding="utf-8")


def table(head):
    """Return the rows of the table that begins with this head, as lists of cells."""
    rows = PAGE.split(head, 1)[1].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows]


def test_the_options_of_the_page_exist():
    named = set(re.findall(r"`(--[\w-]+)", PAGE))
    assert len(named) > 10
    assert named - {"--help"} <= {option for each in command.loadtest.params for option in each.opts}


def test_every_metric_is_listed():
    """The metrics of limits are listed too, each in its exact form; the quantities are examples."""
    listed = []
    for metrics, quantities, _ in table("| metric | quantity |"):
        for name in re.findall(r"`([\w.]+)`", metrics):
            listed.append(name)
            for quantity in re.findall(r"`([^`]+)`", quantities):
                assert limits.parse(f"{name}>{quantity}").metric == name
    assert set(listed) == set(limits.METRICS)


@pytest.mark.parametrize("share", ["10 %", "3 %", "0.8 %"])
def test_the_rule_is_that_of_the_code(share):
    """The page states the chances that the comparison uses."""
    rounds = {"10 %": 3, "3 %": 4, "0.8 %": 5}[share]
    assert re.search(rf"in {share} (of all cases )?with {rounds}", " ".join(PAGE.split()))
    assert 100 * chance(rounds, rounds) == pytest.approx(float(share.split()[0]), rel=0.06)

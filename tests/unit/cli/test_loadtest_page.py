"""The tables of docs/users/load-test.md are those of the code."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from gossipkv.cli import loadtest as command
from gossipkv.loadtest import limits
from gossipkv.loadtest.compare import chance
from gossipkv.loadtest.result import (
    Event,
    LatencyResult,
    OfRound,
    OfStep,
    OfTarget,
    OfVersion,
    Result,
    RunTotals,
    Second,
)

PAGE = (Path(__file__).parents[3] / "docs" / "users" / "load-test.md").read_text(encoding="utf-8")


def table(head):
    """Return the rows of the table that begins with this head, as lists of cells."""
    rows = PAGE.split(head, 1)[1].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows]


def named(cell):
    return re.findall(r"`([a-z_]\w*)`", cell)


def names_of(kind):
    return {field.name for field in fields(kind)}


def test_every_option_is_listed():
    listed = {name for row in table("| option | meaning |") for name in re.findall(r"--[\w-]+", row[0])}
    assert listed == {option for each in command.loadtest.params for option in each.opts if option.startswith("--")}


def test_every_metric_is_listed():
    """The metrics of limits are listed too, each in its exact form; the quantities are examples."""
    listed = []
    for metrics, quantities, _ in table("| metric | quantity |"):
        for name in re.findall(r"`([\w.]+)`", metrics):
            listed.append(name)
            for quantity in re.findall(r"`([^`]+)`", quantities):
                assert limits.parse(f"{name}>{quantity}").metric == name
    assert set(listed) == set(limits.METRICS)


def test_every_field_of_the_document_is_listed():
    """The fields of each part are listed beside it."""
    rows = {row[0]: row[1] for row in table("| field | |")}
    assert {name for cell in rows for name in named(cell)} == names_of(Result) | {"limits"}
    assert {name for row in table("| of `totals` | |") for name in named(row[0])} == names_of(RunTotals)
    assert {*named(rows["`targets`"])} == names_of(OfTarget)
    assert {*named(rows["`steps`"])} == names_of(OfStep)
    assert {*named(rows["`seconds`"])} == names_of(Second)
    assert {*named(rows["`rounds`"])} == names_of(OfRound)
    assert {*named(rows["`by_version`"])} == names_of(OfVersion)
    assert {*named(rows["`latency`"])} >= names_of(LatencyResult)
    assert {*named(rows["`events`"])} >= names_of(Event)


@pytest.mark.parametrize("share", ["10 %", "3 %", "0.8 %"])
def test_the_rule_is_that_of_the_code(share):
    """The page states the chances that the comparison uses."""
    rounds = {"10 %": 3, "3 %": 4, "0.8 %": 5}[share]
    assert f"in {share} with {rounds}" in PAGE or f"in {share} of all cases with {rounds} rounds" in PAGE
    assert 100 * chance(rounds, rounds) == pytest.approx(float(share.split()[0]), rel=0.06)

"""`table delete-range` against a fake node: pages, the number, and failures."""

from __future__ import annotations

import json

import pytest

from gossipkv.cli import range_deletion
from gossipkv.cli.range_deletion import PATIENCE_S
from gossipkv.errors import BadRequest, NotReady, Overloaded, TimedOut, Unavailable, Unknown, UnknownDatabase
from tests.unit.cli.asked_node import answering, raising

COMMAND = ("table", "delete-range", "t", "a")


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """Let time pass by pauses alone; return the pauses."""
    pauses = []
    monkeypatch.setattr(range_deletion, "sleep", pauses.append)
    monkeypatch.setattr(range_deletion, "monotonic", lambda: sum(pauses))
    return pauses


def test_a_range_is_deleted(ask):
    """Each page goes on at the cursor of the one before, and the numbers add up."""
    bounds, level = {"start": b"a", "end": b"c", "prefix": b"a"}, {"level": "all", "timeout_ms": 9000}
    done, asked = ask(
        *COMMAND, "c", "--prefix", "a", "--level", "all",
        delete_range=answering([1000, b"x", b""], [0, b"y", b""], [234, None, b""]),
    )  # fmt: skip
    assert (done.status, done.out, done.err) == (0, "t: 1,234 records deleted\n", "")
    assert asked == [
        ("delete_range", ["t", bounds, {**level, **more}]) for more in ({}, {"cursor": b"x"}, {"cursor": b"y"})
    ]
    done, _ = ask(*COMMAND, "--json", delete_range=answering([1, None, b""]))
    assert json.loads(done.out) == {"table": "t", "deleted": 1, "exact": True}


def test_what_fails_for_now(ask, clock):
    """The same page is asked for again, and counts once."""
    errors = [NotReady("no"), Overloaded("no"), Unavailable("no"), TimedOut("no")]
    done, asked = ask(*COMMAND, delete_range=answering([2, b"x", b""], *errors, [3, None, b""]))
    assert (done.status, done.out) == (0, "t: 5 records deleted\n")
    assert [params[2].get("cursor") for _, params in asked] == [None, *[b"x"] * 5]
    assert len(clock) == 4


def test_an_unknown_outcome_makes_the_number_a_least_one(ask):
    """The number in the error is counted, and the deletion goes on behind that."""
    told, lost = Unknown("late", {"deleted": 4, "cursor": b"y"}), EOFError()
    done, asked = ask(*COMMAND, "--json", delete_range=answering([2, b"x", b""], told, lost, [1, None, b""]))
    assert json.loads(done.out) == {"table": "t", "deleted": 7, "exact": False}
    assert [params[2].get("cursor") for _, params in asked] == [None, b"x", b"y", b"y"]
    done, _ = ask(*COMMAND, delete_range=answering(lost, [1, None, b""]))
    assert (done.status, done.out) == (0, "t: at least 1 record deleted\n")


@pytest.mark.parametrize(("error", "status"), [(BadRequest("t is a dataset"), 2), (UnknownDatabase("no table t"), 1)])
def test_a_deletion_that_ends_early(ask, error, status):
    """The output says how far the deletion came, unless it has not begun."""
    done, _ = ask(*COMMAND, delete_range=answering([2, b"x", b""], error))
    assert (done.status, done.out) == (status, "")
    assert done.err == f"gossipkv: 2 records deleted; the same command deletes the rest\ngossipkv: {error}\n"
    done, _ = ask(*COMMAND, delete_range=raising(error))
    assert (done.status, done.err) == (status, f"gossipkv: {error}\n")


def test_patience_ends(ask, clock):
    """The command fails after PATIENCE_S without progress; each page starts that time anew."""
    failing = [NotReady("no")] * 50
    pages = answering([1, b"x", b""], *failing, [1, b"y", b""], *failing * 2)
    done, _ = ask(*COMMAND, delete_range=pages)
    assert (done.status, "2 records deleted" in done.err, done.err.endswith("gossipkv: no\n")) == (3, True, True)
    assert sum(clock) > 25 + PATIENCE_S

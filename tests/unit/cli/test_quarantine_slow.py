"""`table quarantine` against a fake node: questions, output and exit status."""

from __future__ import annotations

import json

import pytest

from gossipkv.errors import BadRequest, Unavailable
from tests.unit.cli.asked_node import AskedNode, answering, raising

WHY = "its assignment was removed by force"


def row(node, copy, table="carts", size=2048):
    """Return a quarantined replica as a node reports it."""
    told = {"node": node, "copy": copy, "table": table, "partition": 255, "assignment": "ab" * 8}
    return {**told, "bytes": size, "why": WHY}


@pytest.fixture
def ask(run, monkeypatch):
    """Run a command line against a node with these methods; return the result and the questions."""

    def command(*arguments, **methods):
        with AskedNode(**methods) as node:
            monkeypatch.setenv("GOSSIPKV_NODE", node.address)
            return run("table", "quarantine", *arguments), node.asked

    return command


def test_copies_are_listed(ask):
    """Each replica has a row, sorted by node and table; an unreadable size is a dash."""
    told = [row("n3", "2a"), row("n1", "7", "logs", None), row("n3", "1f", "a[b]")]
    done, asked = ask("list", quarantine_list=lambda: told)
    assert (done.status, done.err, asked) == (0, "", [("quarantine_list", [])])
    assert [line.split()[:5] for line in done.out.splitlines()] == [
        ["node", "copy", "table", "partition", "size"],
        ["n1", "7", "logs", "255", "-"],
        ["n3", "1f", "a[b]", "255", "2.0"],
        ["n3", "2a", "carts", "255", "2.0"],
    ]
    assert done.out.count(WHY) == 3
    done, asked = ask("list", "n3", "--json", quarantine_list=lambda _: told[:1])
    assert (json.loads(done.out), asked) == (told[:1], [("quarantine_list", [{"node": "n3"}])])


def test_nothing_is_set_aside(ask):
    """A note says so, and --json has an empty list."""
    done, _ = ask("list", quarantine_list=list)
    assert (done.status, done.out, done.err) == (0, "", "no quarantined replicas\n")
    done, _ = ask("list", "--json", quarantine_list=list)
    assert (done.status, done.out, done.err) == (0, "[]\n", "")


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_node_that_does_not_answer(ask, more):
    """The other nodes are listed, the silent one is named, and the status marks the list as incomplete."""
    silent = {"node": "n2", "error": "it has not answered"}
    done, _ = ask("list", *more, quarantine_list=lambda: [silent, row("n3", "2a")])
    assert (done.status, "2a" in done.out) == (3, True)
    assert done.err == "gossipkv: n2: its quarantined replicas are not known: it has not answered\n"
    assert not more or silent in json.loads(done.out)


def test_a_drop_says_first_what_may_be_lost(ask):
    """Nothing is done, no node is asked, and the status is 2."""
    for copies, words in (["2a"], "The replica at n3"), (["2a", "1f"], "2 replicas at n3"):
        done, asked = ask("drop", "n3", *copies)
        assert (done.status, done.out, asked) == (2, "", [])
        for part in "nothing was done", words, "would be deleted", "--yes":
            assert part in done.err


def test_copies_are_dropped(ask):
    """Each replica is one question and one line; --json gives one list."""
    done, asked = ask("drop", "n3", "2a", "1f", "--yes", quarantine_drop=lambda *_: {})
    assert (done.status, done.out, done.err) == (0, "n3: 2a: dropped\nn3: 1f: dropped\n", "")
    assert asked == [("quarantine_drop", ["n3", "2a"]), ("quarantine_drop", ["n3", "1f"])]
    done, _ = ask("drop", "n3", "2a", "--yes", "--json", quarantine_drop=lambda *_: {})
    assert json.loads(done.out) == [{"node": "n3", "copy": "2a"}]


def test_what_is_unknown_is_asked_again(ask):
    """A lost answer repeats the question, once; a node that has dropped the replica no longer has it."""
    gone = BadRequest("n3 has no copy 2a that is set aside")
    for second in {}, gone:
        answers = answering(EOFError(), second)
        done, asked = ask("drop", "n3", "2a", "--yes", quarantine_drop=answers)
        assert (done.status, done.out, asked[0]) == (0, "n3: 2a: dropped\n", asked[1])
        assert "asking for the outcome" in done.err
        assert (f"{gone}" in done.err) is (second is gone)


@pytest.mark.parametrize(("error", "status"), [(BadRequest("n3 has no copy 2a"), 2), (Unavailable("no member n9"), 3)])
def test_what_the_node_refuses(ask, error, status):
    """The first error ends the command, with one line."""
    done, asked = ask("drop", "n3", "2a", "1f", "--yes", quarantine_drop=raising(error))
    assert (done.status, done.out, done.err, len(asked)) == (status, "", f"gossipkv: {error}\n", 1)
    done, asked = ask("list", "n3", quarantine_list=raising(error))
    assert (done.status, done.out, done.err, len(asked)) == (status, "", f"gossipkv: {error}\n", 1)


@pytest.mark.parametrize("arguments", ["", "drop", "drop n3", "drop n3 --yes", "list n3 n4", "keep"])
def test_wrong_use(ask, arguments):
    done, asked = ask(*arguments.split())
    assert (done.status, done.out, asked) == (2, "", [])

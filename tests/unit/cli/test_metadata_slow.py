"""`metadata` against a fake node: questions, output and exit status."""

from __future__ import annotations

import json

import pytest

from gossipkv.cli.metadata import RegisterReport, decides
from gossipkv.errors import Unavailable, UnknownDatabase
from gossipkv.status.codec import decode
from tests.unit.cli.asked_node import AskedNode


def acceptor(node, *, answers=True, store="1", why=None):
    return {"node": node, "store": store, "answers": answers, "why": why}


def register(old, new=None, table=None, **more):
    told = {"table": table, "generation": 1, "sequence": 42, "digest": bytes(range(32)), **more}
    return {**told, "old": old, "new": old if new is None else new}


HEALTHY = register([acceptor("n1"), acceptor("n2"), acceptor("n3")])
CHANGING = register([acceptor("n1"), acceptor("n2")], [acceptor("n1"), acceptor("n[3]")], table="carts")
STUCK = register([acceptor("n1"), acceptor("n2", answers=False, why="no answer"), acceptor("n3", answers=False)])


@pytest.fixture
def ask(run, monkeypatch):
    """Run a command line against a node with these methods; return the result and the questions."""

    def command(*arguments, **methods):
        with AskedNode(**methods) as node:
            monkeypatch.setenv("GOSSIPKV_NODE", node.address)
            return run("metadata", *arguments), node.asked

    return command


def test_status(ask):
    """Each present, joining and leaving acceptor has a row; its register is named once."""
    done, asked = ask("status", metadata_status=lambda *_: [HEALTHY, CHANGING])
    assert (done.status, done.err, asked) == (0, "", [("metadata_status", [None, {"timeout_ms": 1000}])])
    rows = [line.split() for line in done.out.splitlines()]
    assert rows[0] == ["register", "generation", "sequence", "digest", "node", "store", "answers"]
    assert rows[1] == ["catalogue", "1", "42", "000102030405", "n1", "1", "yes"]
    assert rows[2:4] == [["n2", "1", "yes"], ["n3", "1", "yes"]]
    assert rows[4] == ["carts", "1", "42", "000102030405", "n1", "1", "yes"]
    assert rows[5:] == [["n2", "1", "yes", "leaves"], ["n[3]", "1", "yes", "joins"]]
    done, asked = ask("status", "carts", "--json", metadata_status=lambda *_: [CHANGING])
    assert asked == [("metadata_status", ["carts", {"timeout_ms": 1000}])]
    assert [each["node"] for each in json.loads(done.out)[0]["new"]] == ["n1", "n[3]"]


def test_status_of_what_is_stuck(ask):
    """With too few answers the status is 3, with --json too, and the advice is shown."""
    for as_json in ([], ["--json"]):
        done, _ = ask("status", *as_json, metadata_status=lambda *_: [STUCK])
        assert done.status == 3
        assert "the catalogue: too few acceptors answer" in done.err
        assert "gossipkv metadata force" in done.err
    done, _ = ask("status", metadata_status=lambda *_: [STUCK])
    assert done.out.splitlines()[2].split() == ["n2", "1", "no", "no", "answer"]


def test_status_before_there_are_tables(ask):
    done, _ = ask("status", metadata_status=lambda *_: [])
    assert (done.status, done.out) == (0, "")
    assert "no table was ever created" in done.err


@pytest.mark.parametrize(("old", "new", "expected"), [
    ("y", "y", True), ("n", "n", False), ("yn", "yn", False), ("yyn", "yyn", True), ("yyn", "ynn", False),
    ("ynn", "yyn", False), ("", "y", False), ("yynn", "yyynn", False),
])  # fmt: skip
def test_a_majority_of_both(old, new, expected):
    """Half the acceptors are no majority, and an empty set has none."""
    sides = ([acceptor(str(at), answers=one == "y") for at, one in enumerate(side)] for side in (old, new))
    assert decides(decode(RegisterReport, register(*sides))) is expected


@pytest.mark.parametrize("word", ["join", "leave"])
def test_membership(ask, word):
    """The catalogue or a table changes, and the output lists the new acceptors."""
    method = f"metadata_{word}"
    done, asked = ask(word, "n3", **{method: lambda *_: HEALTHY})
    assert (done.status, done.out) == (0, "the catalogue: the acceptors are n1, n2, n3\n")
    assert asked == [(method, [None, "n3"])]
    done, asked = ask(word, "n3", "--table", "carts", **{method: lambda *_: CHANGING})
    assert done.out == "carts: the acceptors are n1, n2 (leaves), n[3] (joins)\n"
    assert asked == [(method, ["carts", "n3"])]
    done, _ = ask(word, "n3", "--json", **{method: lambda *_: HEALTHY})
    assert json.loads(done.out)["sequence"] == 42


def refuse(*_):
    raise Unavailable("no majority answers")


def test_membership_that_is_refused(ask):
    done, _ = ask("join", "n3", metadata_join=refuse)
    assert (done.status, done.out, done.err) == (3, "", "gossipkv: no majority answers\n")


def replaced(table, *, has_changed=True):
    return {"table": table, "replaced": has_changed, "nodes": ["n1", "n2", "n4"]}


TABLES = [{"name": "geo", "kind": "dataset"}, {"name": "carts", "kind": "hash"}, {"name": "logs", "kind": "range"}]


def test_replacing(ask):
    """The catalogue comes first, then every table, new ones included; a dropped table is skipped."""
    lists = [[*TABLES[:2]], TABLES, TABLES]

    def change(table, *_):
        if table == "carts":
            raise UnknownDatabase("there is no table carts")
        return replaced(table, has_changed=table is None)

    done, asked = ask("replace", "n3", "n4", metadata_replace=change, databases=lambda: lists.pop(0))
    assert [params for method, params in asked if method == "metadata_replace"] == [
        [table, "n3", "n4"] for table in (None, "carts", "logs")
    ]
    assert (done.status, done.out, done.err) == (0, "the catalogue: the acceptors are n1, n2, n4\n", "")
    done, _ = ask("replace", "n3", "n4", "--json", metadata_replace=replaced_all, databases=lambda: TABLES)
    assert [register["table"] for register in json.loads(done.out)] == [None, "carts", "logs"]


def replaced_all(table, *_):
    return replaced(table, has_changed=False)


def test_replacing_twice(ask):
    done, _ = ask("replace", "n3", "n4", metadata_replace=replaced_all, databases=lambda: TABLES)
    assert (done.status, done.out) == (0, "")
    assert "nothing to do: there are 3 registers, and n3 is an acceptor of none" in done.err
    done, _ = ask("replace", "n3", "n3", metadata_replace=replaced_all, databases=lambda: TABLES)
    assert "n3 is an acceptor with its present store" in done.err


def test_replacing_where_something_stands_in_the_way(ask):
    """A register without a majority is named and the rest change, with status 3; other errors end the command."""

    def change(table, *_):
        if table == "carts":
            raise Unavailable("carts: too few answer: see `gossipkv metadata force --help`", {"register": "carts"})
        return replaced(table)

    done, _ = ask("replace", "n3", "n4", metadata_replace=change, databases=lambda: TABLES)
    assert (done.status, len(done.out.splitlines())) == (3, 2)
    assert done.err.splitlines()[0] == "gossipkv: carts: too few answer: see `gossipkv metadata force --help`"
    assert "1 of 3 registers are unchanged; repeat the command" in done.err
    done, asked = ask("replace", "n3", "n9", metadata_replace=refuse)
    assert (done.status, done.err, len(asked)) == (3, "gossipkv: no majority answers\n", 1)


def test_force_says_first_what_may_be_lost(ask):
    """Nothing is done: the nodes that would be left out are named as far as known, with status 2."""
    done, asked = ask("force", "--survivor", "n1", metadata_status=lambda *_: [STUCK])
    assert (done.status, done.out, asked) == (2, "", [("metadata_status", [None, {"timeout_ms": 10_000}])])
    for words in (
        "nothing was done",
        "n1 alone would decide on the catalogue",
        "only n2, n3 and any other node",
        "--yes",
    ):
        assert words in done.err
    done, asked = ask("force", "--survivor", "n1", "--survivor", "n2", "--table", "carts", metadata_status=refuse)
    assert (done.status, asked) == (2, [("metadata_status", ["carts", {"timeout_ms": 10_000}])])
    for words in (
        "the present acceptors are not known: no majority answers",
        "n1, n2 alone would decide on carts",
        "--yes",
    ):
        assert words in done.err


def test_force(ask):
    """With --yes it is done, and the output names the loss and the new acceptors."""
    after = register([acceptor("n1")], generation=2, lost="what n2 and n3 alone knew")
    done, asked = ask("force", "--survivor", "n1", "--yes", metadata_force=lambda *_: after)
    assert asked == [("metadata_force", [None, ["n1"]])]
    assert (done.status, done.out) == (0, "the catalogue: the acceptors are n1\n")
    assert done.err == "gossipkv: what n2 and n3 alone knew\n"
    done, _ = ask("force", "--survivor", "n1", "--yes", "--json", metadata_force=lambda *_: after)
    assert json.loads(done.out)["generation"] == 2
    done, asked = ask("force", "--survivor", "n1", "--yes", "--table", "carts", metadata_force=refuse)
    assert (done.status, asked) == (3, [("metadata_force", ["carts", ["n1"]])])


@pytest.mark.parametrize(
    "arguments", [["force"], ["force", "--yes"], ["join"], ["leave"], ["replace", "n3"], ["status", "a", "b"], []]
)
def test_wrong_use(ask, arguments):
    done, asked = ask(*arguments)
    assert (done.status, done.out, asked) == (2, "", [])


def test_a_replacement_without_a_candidate_says_what_to_do(ask):
    """No node is asked: the line names the nodes that fit, and the way without one."""
    done, asked = ask("replace", "n4")
    assert (done.status, asked) == (2, [])
    assert "name the node that takes the place of n4: a live node that is no acceptor" in done.err
    assert "if there is none, take n4 out with `gossipkv metadata leave n4`" in done.err

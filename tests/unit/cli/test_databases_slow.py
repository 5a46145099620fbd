"""`databases hold`, `databases release` and `rollback`, against a node that records the questions."""

from __future__ import annotations

import json

import pytest

from gossipkv.errors import Conflict, UnknownVersion
from tests.unit.cli.asked_node import AskedNode

STATUS = {"geo": {"active": "3", "versions": {"1": {}, "3": {}, "4": {}}}}


def told(hold, before=None):
    """Return a method that answers as a node does."""
    return lambda *_: {"database": "geo", "hold": hold, "before": before}


@pytest.fixture
def ask(run):
    """Run a command line against a node with these methods; return the result and the questions."""

    def command(*arguments, **methods):
        with AskedNode(**{"databases": lambda: [{"name": "geo", "kind": "dataset"}]} | methods) as node:
            return run(*arguments, "--node", node.address), node.asked

    return command


SOURCE = {"status": lambda *_: STATUS, "refresh": lambda *_: {"geo": ["1", "2", "3", "4"]}}


@pytest.mark.parametrize(("line", "methods", "asked", "said"), [
    ("databases hold geo 2", {"hold": told("2", "1")}, ("hold", ["geo", "2", {"local": False}]),
     "all nodes hold 2 until it is released; 1 was held before"),
    ("databases hold geo 2 --local", {"hold": told("2")}, ("hold", ["geo", "2", {"local": True}]),
     "this node holds 2 until it is released"),
    ("databases release geo", {"release": told(None, "2")}, ("release", ["geo", {"local": False}]),
     "no version is held; 2 was held before"),
    ("rollback geo", {"hold": told("2"), **SOURCE}, ("hold", ["geo", "2", {"local": False}]),
     "all nodes hold 2 until it is released"),
    ("rollback geo 1", {"hold": told("1")}, ("hold", ["geo", "1", {"local": False}]),
     "all nodes hold 1 until it is released"),
])  # fmt: skip
def test_an_order_is_given(ask, line, methods, asked, said):
    """`rollback` without a version takes the newest version before the active one, here or at the source."""
    done, all_asked = ask(*line.split(), **methods)
    assert (done.status, done.out, done.err, all_asked[-1]) == (0, f"geo: {said}\n", "", asked)
    done, _ = ask(*line.split(), "--json", **methods)
    assert json.loads(done.out)["database"] == "geo"


def refuse(error):
    def method(*_):
        raise error

    return method


@pytest.mark.parametrize(("error", "status"), [(UnknownVersion("it is nowhere"), 1), (Conflict("settings hold it"), 3)])
def test_an_order_is_refused(ask, error, status):
    done, _ = ask("databases", "hold", "geo", "2", hold=refuse(error))
    assert (done.status, done.out, done.err) == (status, "", f"gossipkv: {error.message}\n")


def test_there_is_nothing_to_go_back_to(ask):
    """No hold is requested."""
    oldest = {"geo": {"active": "1", "versions": {"1": {}}}}
    done, asked = ask("rollback", "geo", status=lambda *_: oldest, refresh=lambda *_: {"geo": ["1", "2"]})
    assert (done.status, [method for method, _ in asked]) == (1, ["databases", "status", "refresh"])
    assert "no version of geo before 1 is known" in done.err


@pytest.mark.parametrize("version", [[], ["1"]])
def test_a_table_cannot_be_rolled_back(ask, version):
    done, asked = ask("rollback", "carts", *version, databases=lambda: [{"name": "carts", "kind": "hash"}])
    assert (done.status, len(asked)) == (2, 1)
    assert done.err == (
        "gossipkv: carts is a table, which has no versions to return to; `gossipkv restore` brings back the records of "
        "a backup\n"
    )

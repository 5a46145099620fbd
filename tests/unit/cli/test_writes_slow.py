"""`put`, `delete` and the reading commands, against a node with a table."""

from __future__ import annotations

import io
import json
import sys
from types import SimpleNamespace

import pytest

from gossipkv.errors import BadRequest, Overloaded, Unknown, UnknownDatabase
from tests.unit.cli.asked_node import AskedNode

WRITE = {"level": "majority", "timeout_ms": 54_000}
PUT = {"timeout_ms": 54_000}


@pytest.fixture
def ask(run, monkeypatch):
    """Run a command line against a node with these methods; return the result and the questions."""

    def command(*arguments, stdin=b"", **methods):
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(stdin)))
        with AskedNode(**methods) as node:
            return run(*arguments, "--node", node.address), node.asked

    return command


@pytest.mark.parametrize(
    ("arguments", "stdin", "sent"),
    [
        (["put", "carts", "k", "v"], b"unread", [b"k", b"v", PUT]),
        (["put", "carts", "k", ""], b"unread", [b"k", b"", PUT]),
        (["put", "carts", "k"], b"\xffv\n", [b"k", b"\xffv\n", PUT]),
        (["put", "carts", "k", "-"], b"", [b"k", b"", PUT]),
        (["put", "carts", "-", "v"], b"\xff\n", [b"\xff", b"v", PUT]),
        (["put", "carts", "k", "v", "--no-smear"], b"", [b"k", b"v", WRITE]),
        (["put", "carts", "k", "v", "--level", "all"], b"", [b"k", b"v", {**WRITE, "level": "all"}]),
        (["put", "carts", "k", "v", "--ttl", "2m"], b"", [b"k", b"v", {**PUT, "ttl_ms": 120_000}]),
        (["delete", "carts", "k"], b"unread", [b"k", WRITE]),
        (["delete", "carts", "-", "--level", "one"], b"k\n\n", [b"k\n", {**WRITE, "level": "one"}]),
    ],
)  # fmt: skip
def test_a_record_is_written(ask, arguments, stdin, sent):
    """The value is the argument or all of standard input; success is silent."""
    done, asked = ask(*arguments, stdin=stdin, put=lambda *_: b"", delete=lambda *_: b"")
    assert asked == [(arguments[0], ["carts", *sent])]
    assert (done.status, done.out, done.err) == (0, "", "")


class Endless(io.RawIOBase):
    """Standard input that never ends, such as `/dev/zero`; `taken` counts the bytes read."""

    taken = 0

    def readable(self):
        return True

    def readinto(self, buffer):
        buffer[:] = bytes(len(buffer))
        self.taken += len(buffer)
        return len(buffer)


@pytest.mark.parametrize(
    ("arguments", "limit", "what"),
    [
        (["put", "carts", "k"], 16_711_616, "a value of a table"),
        (["put", "carts", "-", "v"], 65_522, "a key"),
        (["delete", "carts", "-"], 65_522, "a key"),
        (["get", "carts", "-"], 65_535, "a key"),
        (["mget", "carts", "-"], 65_535, "a key"),
    ],
)
def test_input_is_read_to_the_limit_and_no_further(ask, monkeypatch, arguments, limit, what):
    """Longer input is refused, and no node is asked."""
    source = Endless()
    monkeypatch.setattr(io, "BytesIO", lambda _: io.BufferedReader(source))
    done, asked = ask(*arguments)
    assert (done.status, done.out, asked) == (2, "", [])
    assert done.err == f"gossipkv: standard input: more than the {limit:,} bytes that {what} may have\n"
    assert limit < source.taken < limit + 100_000


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (EOFError(), 3, "put may or may not have been done"), (Unknown("short of its level"), 3, "short of its level"),
        (Overloaded("later"), 3, "later"), (UnknownDatabase("no table"), 1, "no table"),
        (BadRequest("wrong"), 2, "wrong"),
    ],
)  # fmt: skip
def test_a_write_that_fails_is_asked_once(ask, error, status, said):
    """One line says what is known of the write."""

    def put(*_):
        raise error

    done, asked = ask("put", "carts", "k", "v", put=put)
    assert (done.status, done.out, len(asked)) == (status, "", 1)
    assert said in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["put", "t"],
        ["put", "t", "-"],
        ["put", "t", "k", "v", "w"],
        ["put", "t", "k", "v", "--level", "two"],
        ["delete", "t"],
    ],
)
def test_wrong_use(ask, arguments):
    done, asked = ask(*arguments)
    assert (done.status, asked) == (2, [])


def test_a_table_is_read_as_a_dataset_is(ask):
    """`get`, `mget` and `scan` show a token, or nothing, in place of a dataset's version."""
    pages = [[[[b"a", b"1"]], b"more", b"t"], [[[b"b", b"2"]], None, b"t"]]
    node = {
        "get": lambda _, key: [b"1" if key == b"a" else None, b"\xff"],
        "get_many": lambda _, keys: [[b"1" if key == b"a" else None for key in keys], b"t"],
        "scan": lambda *_: pages.pop(0),
    }
    assert ask("get", "carts", "a", **node)[0].out == "1"
    told = json.loads(ask("get", "carts", "a", "--json", **node)[0].out)
    assert told == {"key": "a", "value": "1", "token": {"base64": "/w=="}}
    done, _ = ask("get", "carts", "b", **node)
    assert (done.status, done.err) == (1, "not found: 'b' in carts\n")
    done, asked = ask("mget", "carts", "-", stdin=b"a\n" * 501 + b"b\n", **node)
    assert (done.status, done.out, done.err) == (1, "a\t1\n" * 501, "not found: 'b' in carts\n")
    assert [len(params) for _, params in asked] == [2, 2]  # No request names a version.
    done, asked = ask("scan", "carts", **node)
    assert (done.status, done.out) == (0, "a\t1\nb\t2\n")
    assert [params for _, params in asked] == [["carts"], ["carts", {"cursor": b"more"}]]


@pytest.mark.parametrize("command", [["get", "carts", "k"], ["mget", "carts", "k"], ["scan", "carts"]])
def test_a_table_has_no_versions(ask, command):
    """`--version` has an error of its own; other errors of the node are passed on."""
    for details, said in ({"option": "version"}, "carts is a table, which has no versions"), ({}, "unknown option"):

        def refuse(*_, details=details):
            raise BadRequest("unknown option version", details)

        done, _ = ask(*command, "--version", "1", get=refuse, get_many=refuse, scan=refuse)
        assert (done.status, done.out) == (2, "")
        assert said in done.err

"""The range commands of `table` against a fake node: questions, output and exit status."""

from __future__ import annotations

import json

import pytest

from gossipkv.errors import BadRequest, Conflict, NotReady, Unavailable, UnknownDatabase
from tests.unit.cli.asked_node import answering, raising

DIVIDED = {"table": "t", "partition": 7, "partitions": [{"id": 8, "start": b""}, {"id": 9, "start": b"k"}]}


def test_a_split(ask):
    """The output names the key and the children; --json passes on the answer."""
    done, asked = ask("table", "split", "t", "k", "--timeout", "3s", split=lambda *_: DIVIDED)
    assert (done.status, asked) == (0, [("split", ["t", b"k", {"timeout_ms": 3000}])])
    assert done.out == "t: split at 'k' into 8 and 9\n"
    done, asked = ask("table", "split", "t", "0x00ff", "--hex", split=lambda *_: DIVIDED)
    assert (asked[0][1][1], done.out) == (b"\x00\xff", "t: split at 0x00ff into 8 and 9\n")
    done, asked = ask("table", "split", "t", "0x00ff", split=lambda *_: DIVIDED)
    assert (asked[0][1][1], done.out) == (b"0x00ff", "t: split at '0x00ff' into 8 and 9\n")
    done, asked = ask("table", "split", "--hex", "t", "0x0", split=lambda *_: DIVIDED)
    assert (done.status, asked, "pairs of hexadecimal digits after 0x" in done.err) == (2, [], True)
    done, _ = ask("table", "split", "t", "k", "--json", split=lambda *_: DIVIDED)
    assert [one["id"] for one in json.loads(done.out)["partitions"]] == [8, 9]


def test_a_split_of_which_nothing_is_known(ask):
    """The split is requested again; a range that begins at the key then means success, other conflicts are errors."""
    there = Conflict("divided already", {**DIVIDED, "partition": None})
    for error, status, out in (
        (there, 0, "t: split at 'k' into 8 and 9\n"), (Conflict("it moves"), 3, ""), (EOFError(), 3, ""),
    ):  # fmt: skip
        done, asked = ask("table", "split", "t", "k", split=answering(EOFError(), error))
        assert (done.status, done.out, asked[0]) == (status, out, asked[1])
        assert "asking for the outcome" in done.err
    done, _ = ask("table", "split", "t", "k", split=raising(there))
    assert (done.status, done.err) == (3, "gossipkv: divided already\n")


MOVE = {"table": "t", "partition": 7, "slot": 2, "from": "n1", "to": "n4", "changed": True}


@pytest.mark.parametrize("method", ["join", "leave"])
def test_a_slot_moves(ask, method):
    """The line names slot, source and target; a repeated command has a note, and --json passes on the answer."""
    command = ["table", method, "t", "k", "n4"]
    done, asked = ask(*command, "--timeout", "3s", **{method: lambda *_: MOVE})
    assert (done.status, asked) == (0, [(method, ["t", b"k", "n4", {"timeout_ms": 3000}])])
    assert (done.out, done.err) == ("t: slot 2 of the range with 'k' moves from n1 to n4\n", "")
    done, _ = ask(*command, **{method: lambda *_: {**MOVE, "from": None, "changed": False}})
    assert done.out == "t: slot 2 of the range with 'k' is on n4\n"
    assert done.err == "nothing to do: no change was needed\n"
    done, _ = ask(*command, "--json", **{method: lambda *_: MOVE})
    assert json.loads(done.out) == MOVE


def test_a_leave_of_which_nothing_is_known(ask):
    """The leave is requested again; a node that holds nothing then means success."""
    gone = Conflict("n1 holds nothing", {**MOVE, "slot": None, "to": None, "changed": False})
    done, asked = ask("table", "leave", "t", "k", "n1", leave=answering(EOFError(), gone))
    assert (done.status, done.out, len(asked)) == (0, "t: the range with 'k' moves from n1\n", 2)
    done, asked = ask("table", "leave", "t", "k", "n1", leave=raising(gone))
    assert (done.status, done.err, len(asked)) == (3, "gossipkv: n1 holds nothing\n", 1)


def test_force_join_says_first_what_may_be_lost(ask):
    """Without --yes nothing is done, with status 2; with it the possible loss is named."""
    for copy, begins in (
        (None, "quarantined replica there, or empty"),
        ("5", "from the replica 5"),
        ("none", "n4, empty"),
    ):
        more = [] if copy is None else ["--copy", copy]
        done, asked = ask("table", "force-join", "t", "k", "n4", *more)
        assert (done.status, done.out, asked) == (2, "", [])
        for words in "nothing was done", begins, "would be lost", "--yes":
            assert words in done.err
    told = {"table": "t", "partition": 9, "node": "n4", "copy": "5", "may_be_lost": "all that only n1 had"}
    for more, options in (["--copy", "5"], {"copy": "5"}), (["--copy", "none"], {"copy": ""}), ([], {}):
        done, asked = ask("table", "force-join", "t", "k", "n4", *more, "--yes", force_join=lambda *_: told)
        assert (done.status, asked) == (0, [("force_join", ["t", b"k", "n4", options])])
        assert (done.out, done.err) == ("t: partition 9 on n4: all that only n1 had\n", "")
    done, _ = ask("table", "force-join", "t", "k", "n4", "--yes", force_join=lambda *_: {**told, "changed": False})
    assert (done.status, done.err) == (0, "nothing to do: no change was needed\n")
    done, _ = ask("table", "force-join", "t", "k", "n4", "--yes", "--json", force_join=lambda *_: told)
    assert json.loads(done.out) == told


def test_force_join_names_a_shard_by_its_number(ask):
    told = {"table": "t", "partition": 9, "node": "n4", "copy": None, "may_be_lost": "all"}
    done, asked = ask("table", "force-join", "t", "258", "n4", "--shard", "--yes", force_join=lambda *_: told)
    assert (done.status, asked) == (0, [("force_join", ["t", b"\0\0\1\2", "n4", {"shard": True}])])
    done, _ = ask("table", "force-join", "t", "258", "n4", "--shard")
    assert (done.status, "Shard 258 of t would be re-created on n4" in done.err) == (2, True)
    for wrong in "k", "-1", "131072":
        done, asked = ask("table", "force-join", "t", "--shard", "--yes", "--", wrong, "n4")
        assert (done.status, "is not the number of a shard" in done.err, asked) == (2, True, [])


def partition(start, end, **more):
    hosts = [{"node": node, "slot": slot, "state": "AVAILABLE"} for slot, node in enumerate(("n1", "n2"))]
    return {"id": 7, "start": start, "end": end, "hosts": hosts, "bytes": 2048, "rows": 1500, "rate": 12.34, **more}


def test_partitions(ask):
    """Each partition has a row, over all pages, with moves and unknown sizes; a hash table shows the shard."""
    moving = [{"node": "n3", "slot": 0, "state": "PROPOSED"}]
    pages = [
        {"kind": "range", "partitions": [partition(b"", b"k")], "next": b"k"},
        {"kind": "range", "partitions": [partition(b"k", None, hosts=moving, bytes=None, rows=None, rate=None)],
         "next": None},
    ]  # fmt: skip
    done, asked = ask("table", "partitions", "t", partitions=answering(*pages))
    assert (done.status, done.err, asked) == (
        0,
        "",
        [("partitions", ["t", {}]), ("partitions", ["t", {"start": b"k"}])],
    )
    assert [line.split() for line in done.out.splitlines()] == [
        ["partition", "start", "end", "hosts", "size", "rows", "rate"],
        ["7", "''", "'k'", "n1", "n2", "2.0", "KiB", "1,500", "12.3"],
        ["7", "'k'", "-", "n3(PROPOSED)", "-", "-", "-"],
    ]
    done, _ = ask("table", "partitions", "t", "--json", partitions=answering(*pages))
    assert [one["start"] for one in json.loads(done.out)["partitions"]] == ["", "k"]
    page = {"kind": "hash", "partitions": [partition(b"\0\0\0\x0b", None)], "next": None}
    done, _ = ask("table", "partitions", "t", partitions=lambda *_: page)
    assert [line.split()[:3] for line in done.out.splitlines()] == [["partition", "shard", "hosts"], ["7", "11", "n1"]]


@pytest.mark.parametrize(("error", "status"), [
    (Conflict("it moves"), 3), (BadRequest("n9 is not a node of tables"), 2), (Unavailable("n4 is down"), 3),
    (NotReady("no table was ever created here"), 3), (UnknownDatabase("there is no table t"), 1),
])  # fmt: skip
def test_what_the_node_refuses(ask, error, status):
    for arguments, method in (
        ("split t k", "split"), ("join t k n4", "join"), ("leave t k n4", "leave"),
        ("force-join t k n4 --yes", "force_join"), ("partitions t", "partitions"),
    ):  # fmt: skip
        done, asked = ask("table", *arguments.split(), **{method: raising(error)})
        assert (done.status, done.out, done.err, len(asked)) == (status, "", f"gossipkv: {error}\n", 1)


@pytest.mark.parametrize("arguments", [
    "split t", "split t k l", "join t k", "join t k n4 n5", "leave t", "force-join t k", "partitions", "partitions t u",
    "delete-range t a b c", "delete-range t a --level two",
])  # fmt: skip
def test_wrong_use(ask, arguments):
    done, asked = ask("table", *arguments.split())
    assert (done.status, done.out, asked) == (2, "", [])

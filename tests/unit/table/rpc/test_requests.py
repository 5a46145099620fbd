"""Requests about tables: their parsed form, and the refusal of invalid ones."""

from __future__ import annotations

import msgpack
import pytest

from gossipkv.errors import BadRequest
from gossipkv.keyspace.time_key import TimeKey
from gossipkv.table.rpc import requests as table_requests
from gossipkv.table.rpc.requests import DEFAULT_PARTITIONS, CreateTableArguments
from gossipkv.wire.arguments import Arguments

ID = bytes(range(20))


def arguments(*params: object) -> Arguments:
    return Arguments(b"m", msgpack.packb(params))


@pytest.mark.parametrize(("options", "expected"), [
    ({"kind": "hash"}, CreateTableArguments("t", "hash", DEFAULT_PARTITIONS, 0, (), None)),
    ({"kind": b"hash", "partitions": 8, "replication": 2, "bounds": [], "operation": ID},
     CreateTableArguments("t", "hash", 8, 2, (), ID)),
    ({"kind": "range"}, CreateTableArguments("t", "range", 1, 0, (), None)),
    ({"kind": "range", "bounds": [b"a", "b", b"b\0"], "partitions": 4},
     CreateTableArguments("t", "range", 4, 0, (b"a", b"b", b"b\0"), None)),
    ({"kind": "range", "bounds": [b"\xff" * 255], "partitions": None},
     CreateTableArguments("t", "range", 2, 0, (b"\xff" * 255,), None)),
    ({"kind": "range", "time_key": [0, 8, "ms"]},
     CreateTableArguments("t", "range", 1, 0, (), None, time_key=TimeKey(0, 8, "ms"), smears=True)),
    ({"kind": "range", "time_key": [4, 2, b"s"], "smear": False},
     CreateTableArguments("t", "range", 1, 0, (), None, time_key=TimeKey(4, 2, "s"))),
    ({"kind": "range", "time_key": None, "smear": False}, CreateTableArguments("t", "range", 1, 0, (), None)),
    ({"kind": "range", "ttl_ms": 5}, CreateTableArguments("t", "range", 1, 0, (), None, ttl_ms=5)),
    ({"kind": "range", "time_key": [4, 2, "s"], "smear": False, "retention_ms": 9},
     CreateTableArguments("t", "range", 1, 0, (), None, time_key=TimeKey(4, 2, "s"), retention_ms=9)),
    ({"kind": "hash", "partitions": 1 << 17}, CreateTableArguments("t", "hash", 1 << 17, 0, (), None)),
])  # fmt: skip
def test_a_table_that_is_to_be(options, expected):
    """Options that are not given get their defaults."""
    made = table_requests.create_table(arguments("t", options))
    assert made == expected
    assert table_requests.create_table(arguments("t", made.options())) == made._replace(operation=None)


@pytest.mark.parametrize(("params", "message"), [
    ([], "m: the table is missing"),
    ([1], "m: the table must be a string"),
    (["a b", {"kind": "hash"}], "m: 'a b' cannot be a table's name: names match"),
    (["x" * 201, {"kind": "hash"}], "cannot be a table's name"),
    (["", {"kind": "hash"}], "cannot be a table's name"),
    (["t"], "m: the kind must be hash or range, not None"),
    (["t", {"kind": "tree"}], "m: the kind must be hash or range, not tree"),
    (["t", {"kind": "hash", "shards": 1}], "unknown option shards"),
    (["t", {"kind": "hash"}, 1], "m takes 2 parameters"),
    (["t", {"kind": "hash", "partitions": 0}], "must be at least 1"),
    (["t", {"kind": "hash", "partitions": (1 << 17) + 1}], "must be at most 131072"),
    (["t", {"kind": "hash", "replication": 10}], "must be at most 9"),
    (["t", {"kind": "range", "bounds": [b"%05d" % one for one in range(10_001)]}], "at most 10,000 bounds, not 10,001"),
    (["t", {"kind": "hash", "replication": 0}], "must be at least 1"),
    (["t", {"kind": "hash", "bounds": [b"a"]}], "a hash table has no bounds"),
    (["t", {"kind": "range", "bounds": [b"a"], "partitions": 3}], "1 bounds make 2 partitions, not 3"),
    (["t", {"kind": "range", "bounds": [b"b", b"a"]}], "the bounds must ascend"),
    (["t", {"kind": "range", "bounds": [b"a", b"a"]}], "the bounds must ascend"),
    (["t", {"kind": "range", "bounds": [b""]}], "the first must not be empty"),
    (["t", {"kind": "range", "bounds": b"a"}], "the option bounds must be an array, not"),
    (["t", {"kind": "range", "bounds": [1]}], "the option bounds must be an array of bytes"),
    (["t", {"kind": "range", "bounds": [b"a" * 256]}], "more than the 255"),
    (["t", {"kind": "range", "time_key": [0, 8]}], "m: a time key is OFFSET:WIDTH:UNIT, such as 0:8:ms; WIDTH"),
    (["t", {"kind": "range", "time_key": [0, 8, b"\xff"]}], "m: a time key is"),
    (["t", {"kind": "range", "time_key": "0:8:ms"}], "the option time_key must be an array, not"),
    (["t", {"kind": "range", "time_key": [65515, 8, "ms"]}], "within the first 65,522 bytes of a key"),
    (["t", {"kind": "hash", "time_key": [0, 8, "ms"]}], "only a range table can have a time key"),
    (["t", {"kind": "range", "smear": True}], "smearing needs a time key"),
    (["t", {"kind": "range", "time_key": [0, 8, "ms"], "smear": 1}], "the option smear must be true or false"),
    (["t", {"kind": "hash", "ttl_ms": (1 << 42) + 1}], "ttl_ms must be at most 4398046511104"),
    (["t", {"kind": "range", "retention_ms": 1}], "only a table with a time key has a retention"),
    (["t", {"kind": "hash", "operation": b"x" * 19}], "the operation must be 20 bytes, not 19"),
    (["t", {"kind": "hash", "operation": 1}], "the option operation must be bytes"),
])  # fmt: skip
def test_a_table_that_cannot_be(params, message):
    with pytest.raises(BadRequest) as caught:
        table_requests.create_table(arguments(*params))
    assert message in caught.value.message


def test_who_decides():
    """A register belongs to a table or, without a table, to the catalogue."""
    assert table_requests.membership(arguments("t", "n1")) == ("t", "n1")
    assert table_requests.membership(arguments(None, b"n1")) == (None, "n1")
    assert table_requests.force(arguments(None, ["n1", b"n2"])) == (None, ("n1", "n2"))
    assert table_requests.force(arguments("t", [f"n{i}" for i in range(16)]))[0] == "t"


@pytest.mark.parametrize(("read", "params", "message"), [
    (table_requests.membership, ["t"], "m: the node is missing"),
    (table_requests.membership, [1, "n"], "m: the table must be a string"),
    (table_requests.membership, [None, None], "m: the node must be a string, not nil"),
    (table_requests.membership, [None, "n", 1], "m takes 2 parameters"),
    (table_requests.force, [None], "m: the list of survivors is missing"),
    (table_requests.force, [None, []], "1 to 16 survivors must be named, not 0"),
    (table_requests.force, [None, [f"n{i}" for i in range(17)]], "1 to 16 survivors must be named, not 17"),
    (table_requests.force, [None, ["a", b"a"]], "a survivor is named twice"),
    (table_requests.force, [None, "n1"], "m: the list of survivors must be an array, not"),
    (table_requests.force, [None, ["n1", 1]], "m: list of survivors[1] must be a string, not an integer"),
    (table_requests.force, [None, ["n1"], 1], "m takes 2 parameters"),
])  # fmt: skip
def test_who_cannot_decide(read, params, message):
    with pytest.raises(BadRequest) as caught:
        read(arguments(*params))
    assert message in caught.value.message

"""`table` against a fake node: questions, output and exit status."""

from __future__ import annotations

import json
import os
import signal

import pytest

from gossipkv.cli.table import config_text
from gossipkv.errors import BadRequest, Conflict, TooOld, Unavailable, Unknown, UnknownDatabase
from tests.unit.cli.asked_node import answering, raising

MADE = {"table": "ab" * 16, "config": (1 << 48) + 7}


@pytest.mark.parametrize(("arguments", "expected"), [
    (["--kind", "hash"], {"kind": "hash", "partitions": None, "replication": None, "bounds": []}),
    (["--kind", "hash", "--partitions", "8", "--replication", "3"],
     {"kind": "hash", "partitions": 8, "replication": 3, "bounds": []}),
    (["--kind", "range", "--bound", "m", "--bound", "b"],
     {"kind": "range", "partitions": None, "replication": None, "bounds": [b"b", b"m"]}),
    (["--kind", "range", "--time-key", "0:8:ms"],
     {"kind": "range", "partitions": None, "time_key": [0, 8, "ms"], "replication": None, "bounds": []}),
    (["--kind", "range", "--time-key", "4:4:s", "--retention", "30d"],
     {"kind": "range", "partitions": None, "time_key": [4, 4, "s"], "retention_ms": 2_592_000_000, "replication": None,
      "bounds": []}),
    (["--kind", "range", "--time-key", "4:4:s", "--no-smear"],
     {"kind": "range", "partitions": None, "time_key": [4, 4, "s"], "smear": False, "replication": None, "bounds": []}),
])  # fmt: skip
def test_a_table_is_made(ask, arguments, expected):
    """The options are sent under a unique operation id of 20 bytes, and the result is shown."""
    operations = []
    for as_json in ([], ["--json"]):
        done, asked = ask("table", "create", "carts", *arguments, *as_json, create_table=lambda *_: MADE)
        ((method, (name, options)),) = asked
        assert (method, name) == ("create_table", "carts")
        operations.append(options.pop("operation"))
        assert options == expected
        assert (done.status, done.err) == (0, "")
        if as_json:
            assert json.loads(done.out) == MADE
        else:
            assert done.out == f"carts: made, table {'ab' * 16}, config 1.7\n"
    assert len(set(operations)) == 2
    assert {len(operation) for operation in operations} == {20}


@pytest.mark.parametrize(("arguments", "words"), [
    (["--kind", "range", "--time-key", "0:8"], "a time key is"),
    (["--kind", "range", "--time-key", "x"], "OFFSET:WIDTH"),
    (["--kind", "hash", "--time-key", "0:8:ms"], "--time-key is for range tables"),
    (["--kind", "range", "--smear"], "--smear is for tables with a --time-key"),
    (["--kind", "range", "--retention", "1d"], "--retention is for tables with a --time-key"),
])  # fmt: skip
def test_a_time_key_that_cannot_be(ask, arguments, words):
    done, asked = ask("table", "create", "t", *arguments)
    assert (done.status, asked) == (2, [])
    assert words in done.err


@pytest.mark.parametrize(("more", "words"), [
    ({"replicas": 3, "left_out": []}, "3 replicas"),
    ({"replicas": 2, "left_out": ["n3"]}, "2 of 3 wanted replicas; without a replica: n3"),
])  # fmt: skip
def test_the_replicas_of_a_new_table_are_shown(ask, more, words):
    """The line says how many replicas each partition has, and names the members that were late."""
    made = {**MADE, "replication": 3, "partition_count": 64, **more}
    done, asked = ask("table", "create", "carts", "--kind", "hash", "--timeout", "10s", create_table=lambda *_: made)
    assert done.out == f"carts: made, table {'ab' * 16}, config 1.7; each of 64 partitions has {words}\n"
    assert asked[0][1][1]["timeout_ms"] == 10_000


def test_what_is_unknown_is_asked_about(ask):
    """A lost answer repeats the question, once, under the same id."""
    done, asked = ask("table", "create", "carts", "--kind", "hash", create_table=answering(EOFError(), MADE))
    assert (done.status, len(asked)) == (0, 2)
    assert asked[0] == asked[1]
    assert done.err.count("\n") == 1
    assert "asking for the outcome" in done.err
    done, asked = ask("table", "create", "carts", "--kind", "hash", create_table=answering(EOFError(), EOFError()))
    assert (done.status, len(asked)) == (3, 2)


@pytest.mark.parametrize("arguments", [
    [], ["carts"], ["carts", "--kind", "tree"], ["carts", "--kind", "hash", "--partitions", "0"],
    ["carts", "--kind", "hash", "--bound", "a"], ["carts", "--kind", "range", "--partitions", "2"],
    ["carts", "--kind", "hash", "--replication", "0"],
])  # fmt: skip
def test_a_table_that_cannot_be(ask, arguments):
    done, asked = ask("table", "create", *arguments, create_table=lambda *_: MADE)
    assert (done.status, done.out, asked) == (2, "", [])
    assert done.err.startswith("gossipkv: ")


@pytest.mark.parametrize(("error", "status"), [
    (Conflict("there is a table carts"), 3), (BadRequest("no"), 2), (Unavailable("no majority"), 3),
    (UnknownDatabase("no table carts"), 1),
])  # fmt: skip
def test_what_the_node_refuses(ask, error, status):
    for arguments, method in (
        (("create", "carts", "--kind", "hash"), "create_table"),
        (("drop", "carts"), "drop_table"),
        (("show", "carts"), "partition_map"),
    ):
        done, asked = ask("table", *arguments, **{"partition_map": lambda _: MADE, method: raising(error)})
        words = error
        if method == "drop_table" and status == 1:
            words = "there is no table carts; nothing was dropped"
        assert (done.status, done.out, done.err) == (status, "", f"gossipkv: {words}\n")
        assert [name for name, _ in asked].count(method) == 1


def test_a_table_is_dropped(ask):
    methods = {"partition_map": lambda _: MADE, "drop_table": lambda *_: MADE}
    done, asked = ask("table", "drop", "carts", **methods)
    assert (done.status, done.out) == (0, "carts: dropped\n")
    assert asked == [("partition_map", ["carts"]), ("drop_table", ["carts", {"table": MADE["table"]}])]
    done, _ = ask("table", "drop", "carts", "--json", **methods)
    assert json.loads(done.out) == MADE
    _, asked = ask("table", "drop", "carts", "--timeout", "2s", **methods)
    assert asked[-1] == ("drop_table", ["carts", {"table": MADE["table"], "timeout_ms": 2000}])
    _, asked = ask("table", "create", "carts", "--kind", "hash", "--timeout", "2s", create_table=lambda *_: MADE)
    assert asked[-1][1][1]["timeout_ms"] == 2000


def test_a_table_that_the_node_has_not_heard_of_is_dropped(ask):
    """The name alone is sent, and the node reads the catalogue."""
    unheard = raising(UnknownDatabase("no table carts"))
    done, asked = ask("table", "drop", "carts", partition_map=unheard, drop_table=lambda *_: MADE)
    assert (done.status, asked[-1]) == (0, ("drop_table", ["carts", {"table": None}]))


def test_a_drop_that_may_or_may_not_be_done(ask):
    """The drop is sent again with the table's id; if another table or none has the name, it is done."""
    answers = [Unknown("no answer"), UnknownDatabase("the name carts now belongs to another table")]
    methods = {"partition_map": lambda _: MADE, "drop_table": lambda *_: raising(answers.pop(0))()}
    done, asked = ask("table", "drop", "carts", **methods)
    assert (done.status, done.out, "asking for the outcome" in done.err) == (0, "carts: dropped\n", True)
    assert asked[1] == asked[2] == ("drop_table", ["carts", {"table": MADE["table"]}])


def partition(number, start, *assignments):
    return {"id": number, "start": start, "assignments": list(assignments)}


def assignment(node, slot, state="active"):
    return {"node": node, "slot": slot, "state": state, "id": f"{slot:016x}"}


@pytest.mark.parametrize(("kind", "start"), [("range", "0x6dff"), ("hash", "28159")])
def test_a_table_is_shown(ask, kind, start):
    """Each assignment has a row, and so has a partition without any; its start is a key or a number."""
    told = {**MADE, "kind": kind, "partitions": [
        partition(0, b"", assignment("n1", 0), assignment("[n2]", 1, "loading")), partition(1, b"m\xff"),
    ]}  # fmt: skip
    done, asked = ask("table", "show", "carts", partition_map=lambda _: told)
    assert asked == [("partition_map", ["carts"])]
    lines = done.out.splitlines()
    assert lines[0] == f"carts: {kind}, 2 partitions, table {'ab' * 16}, config 1.7"
    rows = [line.split() for line in lines[2:]]
    assert rows[0] == ["partition", "shard" if kind == "hash" else "start", "node", "slot", "state", "assignment"]
    assert rows[1][-4:] == ["n1", "0", "active", "0" * 16]
    assert rows[2] == ["[n2]", "1", "loading", "0" * 15 + "1"]
    assert rows[3] == ["1", start]
    done, _ = ask("table", "show", "carts", "--json", partition_map=lambda _: told)
    assert json.loads(done.out)["partitions"][0]["assignments"][1]["node"] == "[n2]"


def test_a_dataset_is_shown(ask):
    """The line refers to `gossipkv status`."""
    told = {"kind": "dataset", "partitioner": "sequins", "partitions": 8, "owners": {}}
    done, _ = ask("table", "show", "geo", partition_map=lambda _: told)
    assert done.out == "geo: dataset, 8 partitions; `gossipkv status geo` shows their nodes\n"


@pytest.mark.parametrize(("config", "told"), [
    (0, "0.0"), (1, "0.1"), ((3 << 48) - 1, f"2.{(1 << 48) - 1}"), (None, "-"),
])  # fmt: skip
def test_a_config_id_for_people(config, told):
    assert config_text(config) == told


def test_tables_are_listed(ask):
    """Names and kinds are sorted, without datasets."""
    told = [{"name": "geo", "kind": "dataset"}, {"name": "orders", "kind": "range"}, {"name": "carts", "kind": "hash"}]
    done, asked = ask("table", "list", databases=lambda: told)
    assert asked == [("databases", [])]
    assert (done.status, done.out.split("\n")) == (0, ["table   kind", "carts   hash", "orders  range", ""])
    done, _ = ask("table", "list", "--json", databases=lambda: told)
    assert json.loads(done.out) == [{"name": "carts", "kind": "hash"}, {"name": "orders", "kind": "range"}]
    done, _ = ask("table", "list", databases=lambda: told[:1])
    assert (done.status, done.out, done.err) == (0, "", "no tables\n")


def test_changes_are_lines_and_the_token_goes_on(ask):
    """Errors that pass are waited for; the token of the last line is told on standard error."""
    pages = {None: ([[b"a", b"1", None], [b"\xff", None, 7]], b"t1"), b"t1": ([[b"b", b"", 9]], b"t2")}

    def changes(_name, options):
        page, token = pages[options.get("token")]
        return [page, token]

    start = ("table", "changes", "carts", "--start", "snapshot", "--prefix", "p", "--limit", "3")
    done, asked = ask(*start, changes=changes)
    assert done.status == 0, done.err
    assert [json.loads(line) for line in done.out.splitlines()] == [
        {"key": "a", "value": "1", "expires_at": None},
        {"key": {"base64": "/w=="}, "value": None, "expires_at": 7},
        {"key": "b", "value": "", "expires_at": 9},
    ]
    assert "to go on: --token dDI=" in done.err
    assert [(options.get("start"), options.get("token")) for _, (_, options) in asked[:2]] == [
        ("snapshot", None), (None, b"t1"),
    ]  # fmt: skip
    done, asked = ask("table", "changes", "carts", "--token", "dDE=", "--limit", "1", changes=changes)
    assert (done.status, json.loads(done.out)["key"]) == (0, "b")
    done, asked = ask("table", "changes", "carts", changes=raising(TooOld("begin anew")))
    assert done.status != 0
    assert "begin anew" in done.err

    def ending(_name, options):
        if options.get("token") == b"t2":
            os.kill(os.getpid(), signal.SIGTERM)  # A supervisor does this.
        return changes(_name, {**options, "token": options.get("token", b"t1")})

    pages[b"t2"] = [], b"t2"
    done, asked = ask("table", "changes", "carts", changes=ending)
    assert (done.status, "to go on: --token dDI=" in done.err) == (130, True)
    for wrong in (["--token", "*"], ["--token", "dDE=", "--start", "snapshot"]):
        done, asked = ask("table", "changes", "carts", *wrong)
        assert (done.status, asked) == (2, [])

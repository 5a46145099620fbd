"""Typical errors as a user sees them: the whole output of a command, word for word."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import pytest

from gossipkv.errors import UnknownDatabase, UnknownVersion, no_table
from tests.unit.cli.asked_node import raising


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("gett geo paris", "no such command 'gett'; the nearest is get (see gossipkv --help)"),
        ("get geo", "KEY is missing (see gossipkv get --help)"),
        ("get geo paris x", "unexpected extra argument (x) (see gossipkv get --help)"),
        ("get geo paris --timout 5s", "no such option --timout; the nearest is --timeout (see gossipkv get --help)"),
        ("get geo paris --timeout", "--timeout needs a value (see gossipkv get --help)"),
        ("get geo paris --json=x", "--json takes no value (see gossipkv get --help)"),
        ("get geo paris --ca none", "--ca: file 'none' does not exist (see gossipkv get --help)"),
        ("scan geo --limit ten", "--limit: 'ten': expected a whole number, at least 0 (see gossipkv scan --help)"),
        ("scan geo --limit=-1", "--limit: -1: expected a whole number, at least 0 (see gossipkv scan --help)"),
        (
            "loadtest --misses some",
            "--misses: 'some': expected a share, such as 5% or 0.05 (see gossipkv loadtest --help)",
        ),
        ("table create t", "--kind is missing: expected hash or range (see gossipkv table create --help)"),
        (
            "table create t --kind rang",
            "--kind: 'rang': expected hash or range; the nearest is range (see gossipkv table create --help)",
        ),
        (
            "table import t /dev/null --key name",
            "--key: file 'name' does not exist; or did you mean --key-field? (see gossipkv table import --help)",
        ),
        (
            "table import t /dev/null --value name",
            "no such option --value; the nearest is --value-field (see gossipkv table import --help)",
        ),
        (
            "get geo paris --timeout 5",
            (
                "--timeout: '5': expected a number with a unit (ms, s, m, h, d), such as \"5s\" "
                "(see gossipkv get --help)"
            ),
        ),
        (
            "get geo paris --node here",
            ("--node: expected HOST:PORT, for example 127.0.0.1:7070, got 'here' (see gossipkv get --help)"),
        ),
        ("verify", "give either PATH or --table TABLE (see gossipkv verify --help)"),
    ],
)
def test_wrong_use(run, line, expected):
    done = run(*line.split())
    assert (done.status, done.out, done.err) == (2, "", f"gossipkv: {expected}\n")


def test_a_refused_connection(run):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # A bound port that does not listen refuses connections.
        node = f"127.0.0.1:{closed.getsockname()[1]}"
        done = run("get", "geo", "paris", "--node", node)
    words = f"gossipkv: no node could be reached: {node}: Connection refused\n"
    assert (done.status, done.out, done.err) == (3, "", words)


def test_nothing_listens_at_the_default_address(run, monkeypatch):
    """The error says how to start a node, and how to name another one."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        node = f"127.0.0.1:{closed.getsockname()[1]}"
        monkeypatch.setattr("gossipkv.cli.options.DEFAULT_NODE", node)
        monkeypatch.delenv("GOSSIPKV_NODE", raising=False)
        done = run("get", "geo", "paris")
    words = f"gossipkv: no node could be reached: {node}: Connection refused; start a node with `gossipkv serve`, "
    assert (done.status, done.out, done.err) == (3, "", f"{words}or name one with --node or GOSSIPKV_NODE\n")


KNOWN = [{"name": "capitals", "kind": "dataset"}, {"name": "carts", "kind": "hash"}]
CREATE = "create it with `gossipkv table create crats --kind hash`"


@pytest.mark.parametrize(
    ("line", "error", "known", "words"),
    [
        ("get captials x", "no such", KNOWN, "no such; the nearest is capitals"),
        ("get zz x", "no such", KNOWN, "no such; the node has capitals and carts"),
        ("get zz x", "no such", [{"name": f"name-{number}"} for number in range(6)], "no such"),
        ("get zz x", "no such", [], "no such; the node has no database yet"),
        (
            "delete crats x",
            no_table("crats").message,
            KNOWN,
            f"there is no table crats; {CREATE}; the nearest is carts",
        ),
        ("drop crats", "no such", KNOWN, "there is no table crats; nothing was dropped; the nearest is carts"),
        ("drop capitals", "no such", KNOWN, "capitals is a dataset, not a table"),
        ("refresh carts", "no such", KNOWN, "carts is a table, not a dataset"),
    ],
)
def test_an_error_about_an_unknown_database_names_those_that_the_node_has(ask, line, error, known, words):
    command, name, *rest = line.split()
    failing = raising(UnknownDatabase(error, {"database": name}))
    methods = dict.fromkeys(("get", "delete", "drop_table", "partition_map", "refresh"), failing)
    group = ["table"] if command == "drop" else []
    done, _ = ask(*group, command, name, *rest, **methods, databases=lambda: known)
    assert (done.status, done.out, done.err) == (1, "", f"gossipkv: {words}\n")


def test_an_import_into_an_unknown_table(ask, tmp_path):
    """Nothing was put, so the error tells of no record; a file without the field names the option for it."""
    file = tmp_path / "file.jsonl"
    file.write_text('{"key": "a", "value": "b", "name": "c"}\n')
    failing = raising(no_table("crats"))
    done, _ = ask("table", "import", "crats", file, put_many=failing, partition_map=failing, databases=lambda: KNOWN)
    assert (done.status, done.err) == (1, f"gossipkv: there is no table crats; {CREATE}; the nearest is carts\n")
    done, _ = ask("table", "import", "carts", file, "--key-field", "id", databases=lambda: KNOWN)
    assert done.status == 3
    assert done.err.endswith("the line has no field 'id'; if the key has another name, set --key-field\n")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (UnknownDatabase("no database 'geo' here or at the source"), "no database 'geo' here or at the source"),
        (UnknownVersion("geo has no version 3 on this node"), "geo has no version 3 on this node"),
    ],
)
def test_something_unknown(ask, error, words):
    def get(*_):
        raise error

    done, _ = ask("get", "geo", "paris", get=get)
    assert (done.status, done.out, done.err) == (1, "", f"gossipkv: {words}\n")


def test_a_read_only_disk(run, tmp_path, monkeypatch):
    source = tmp_path / "source.tsv"
    source.write_text("paris\t48\n", encoding="utf-8")

    def refuse(self, *_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), os.fspath(self))

    monkeypatch.setattr(Path, "mkdir", refuse)
    done = run("build", source, tmp_path / "sorted")
    expected = f"gossipkv: {tmp_path}/sorted: Read-only file system\n"
    assert (done.status, done.out, done.err) == (3, "", expected)

"""Typical errors as a user sees them: the whole output of a command, word for word."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import pytest

from gossipkv.errors import UnknownDatabase, UnknownVersion


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("gett geo paris", "no such command 'gett'; the nearest is 'get' (see gossipkv --help)"),
        ("get geo", "Missing argument 'KEY'. (see gossipkv get --help)"),
        (
            "get geo paris --timeout 5",
            (
                "Invalid value for '--timeout': '5': expected a number with a unit (ms, s, m, h, d), such as \"5s\" "
                "(see gossipkv get --help)"
            ),
        ),
        (
            "get geo paris --node here",
            (
                "Invalid value for '--node': expected HOST:PORT, for example 127.0.0.1:7070, got 'here' "
                "(see gossipkv get --help)"
            ),
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

"""Polls of change feeds at a connection: few enough that its other requests are read."""

from __future__ import annotations

from unittest.mock import MagicMock

import msgpack
import pytest

from gossipkv.errors import Overloaded, UnknownDatabase
from gossipkv.node.data_methods import DataMethods
from gossipkv.serving.loop import Caller
from gossipkv.wire.arguments import Arguments
from gossipkv.wire.results import DeferredResult, Later


def methods_of(read):
    part, datasets = MagicMock(), MagicMock()
    datasets.known.return_value = False
    tables = MagicMock(methods={})
    tables.read = read
    return DataMethods(datasets, part, tables, part, cluster=part, verdicts=part, max_polls=2)


def poll(methods, connection):
    return methods.changes(Arguments(b"changes", msgpack.packb(["t", {}])), Caller(connection, 0, 0, 0))


def test_a_connection_has_so_many_polls_open_and_another_one_as_many():
    waiting, answers = [], []
    methods = methods_of(lambda *_: Later(waiting.append))
    for connection in (1, 1, 2, 2):
        poll(methods, connection).begin(answers.append)
    with pytest.raises(Overloaded, match=r"this connection has 2 polls of change feeds open.*further connections"):
        poll(methods, 1)
    waiting[0]("page")
    assert answers == ["page"]
    poll(methods, 1).begin(answers.append)


async def test_polls_that_fail_or_are_forwarded_count_until_they_end():
    def fails(_):
        raise UnknownDatabase("there is no table t")

    async def page():
        with pytest.raises(Overloaded):
            poll(methods, 1)
        return "page"

    kinds = [Later(fails), DeferredResult(page), DeferredResult(page)]
    methods = methods_of(lambda *_: kinds.pop(0) if kinds else Later(lambda _: None))
    with pytest.raises(UnknownDatabase):
        poll(methods, 1).begin(lambda _: None)
    methods._max_polls = 1
    for _ in range(2):
        assert await poll(methods, 1).result() == "page"
    assert not methods._polls

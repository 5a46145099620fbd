"""Change feeds of the clients: they go on where they were, at another node if they must."""

from __future__ import annotations

from itertools import islice

import pytest

import gossipkv
from gossipkv.client import changes as polls
from gossipkv.errors import TooOld
from tests.unit.client.fake_node import FakeNode
from tests.unit.client.table_node import TableNode

KEYS = [b"a", b"b", b"c", b"d", b"e"]


def a_table(fails=None):
    table = TableNode(fails)
    table.records = {key: key * 2 for key in KEYS}
    return table


def test_changes_come_with_the_token_that_goes_on_after_them():
    """A change amid a page has the token of the page before: it may come again."""
    with FakeNode(a_table()) as node, gossipkv.blocking.connect(node.address) as client:
        found = [*islice(client.table("t").changes(start="snapshot"), 5)]
        assert [(change.key, change.value, change.token) for change in found] == [
            (b"a", b"aa", b""), (b"b", b"bb", b"2"), (b"c", b"cc", b"2"), (b"d", b"dd", b"4"), (b"e", b"ee", b"5"),
        ]  # fmt: skip
        again = client.table("t").changes(token=found[2].token)
        assert [change.key for change in islice(again, 3)] == [b"c", b"d", b"e"]


def test_a_poll_that_fails_is_repeated_and_the_start_is_not(monkeypatch):
    monkeypatch.setattr(polls, "FIRST_PAUSE_S", 0.0)
    table = a_table({1: ["NOT_READY", "soon", {}], 3: ["UNAVAILABLE", "no host", {}]})
    with FakeNode(table) as node, gossipkv.blocking.connect(node.address) as client:
        assert [change.key for change in islice(client.table("t").changes(start="snapshot"), 4)] == KEYS[:4]
    assert [("start" in options, options.get("token")) for _, (options,) in table.asked] == [
        (True, None), (True, None), (False, b"2"), (False, b"2"),
    ]  # fmt: skip


def test_a_token_that_is_too_old_ends_the_loop():
    table = a_table({1: ["TOO_OLD", "begin anew", {}]})
    with FakeNode(table) as node, gossipkv.blocking.connect(node.address) as client, pytest.raises(TooOld):
        next(iter(client.table("t").changes(token=b"0")))


async def test_tasks_follow_changes_as_threads_do(monkeypatch):
    monkeypatch.setattr(polls, "FIRST_PAUSE_S", 0.0)
    with FakeNode(a_table({2: ["NOT_READY", "soon", {}]})) as node:
        async with gossipkv.connect(node.address) as client, client.table("t").changes(prefix="a") as feed:
            found = []
            async for change in feed:
                found.append(change.key)
                if len(found) == len(KEYS):
                    break
    assert found == KEYS

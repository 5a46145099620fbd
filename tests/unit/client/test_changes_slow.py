"""Change feeds of the clients: they go on where they were, at another node if they must."""

from __future__ import annotations

from itertools import islice

import pytest

import gossipkv
from gossipkv.client import changes as polls
from gossipkv.errors import TooOld, Unavailable, UnknownDatabase
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
            (b"a", b"aa", b"0"), (b"b", b"bb", b"2"), (b"c", b"cc", b"2"), (b"d", b"dd", b"4"), (b"e", b"ee", b"5"),
        ]  # fmt: skip
        for amid, keys in ((0, KEYS), (2, KEYS[2:])):
            again = client.table("t").changes(token=found[amid].token)
            assert [change.key for change in islice(again, len(keys))] == keys


def test_a_poll_that_fails_is_repeated_and_the_start_is_not(monkeypatch):
    monkeypatch.setattr(polls, "FIRST_PAUSE_S", 0.0)
    table = a_table({1: ["NOT_READY", "soon", {}], 4: ["UNAVAILABLE", "no host", {}]})
    with FakeNode(table) as node, gossipkv.blocking.connect(node.address) as client:
        assert [change.key for change in islice(client.table("t").changes(start="snapshot"), 4)] == KEYS[:4]
    assert [("start" in options, options.get("token")) for _, (options,) in table.asked] == [
        (True, None), (True, None), (False, b"0"), (False, b"2"), (False, b"2"),
    ]  # fmt: skip


def test_errors_that_do_not_pass_end_the_loop():
    for final in (TooOld, UnknownDatabase):
        table = a_table({1: [final.code, "begin anew", {}]})
        with FakeNode(table) as node, gossipkv.blocking.connect(node.address) as client, pytest.raises(final):
            next(iter(client.table("t").changes(token=b"0")))


def test_a_closed_client_ends_its_feeds():
    with FakeNode(a_table()) as node, gossipkv.blocking.connect(node.address) as client:
        feed = iter(client.table("t").changes(token=b"0"))
        assert [next(feed).key for _ in range(2)] == KEYS[:2]
        client.close()
        with pytest.raises(Unavailable, match="the client is closed"):
            next(feed)


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

"""Reads wait within their deadline for data that is being built; other errors are raised at once."""

from __future__ import annotations

import pytest

from gossipkv.client import blocking, patience
from gossipkv.client._client import call_request
from gossipkv.client.patience import FIRST_PAUSE_S, LONGEST_PAUSE_S, pause_s
from gossipkv.errors import NotReady, TimedOut, UnknownDatabase
from tests.unit.client.fake_node import Connection, FakeNode
from tests.unit.client.under_trio import LONG_MS, connected

COMING = ["NOT_READY", "version 1 is being built, 40% done", {"coming": True}]
STANDS = ["NOT_READY", "version 1 is in error", {"coming": False}]
ANSWERS = {"get": [b"value", "1"], "get_many": [[b"value", None], "1"], "scan": [[[b"key", b"value"]], None, "1"]}
MANY = 20  # Requests in flight in `iter_get`.


def built_after(count: int, asked: list[str], error: object = None) -> FakeNode:
    """Return a node that answers the first `count` requests with an error, and the others with data."""

    def serve(connection: Connection) -> None:
        while (request := connection.next_request()) is not None:
            asked.append(request[1])
            if len(asked) <= count:
                connection.answer(request[0], None, error or COMING)
            else:
                connection.answer(request[0], ANSWERS[request[1]])

    return FakeNode(serve)


@pytest.mark.parametrize("method", sorted(ANSWERS))
def test_a_blocking_read_waits(method):
    """The read is repeated over one connection until it is answered."""
    asked = []
    with built_after(3, asked) as node, blocking.connect(node.address, timeout_ms=LONG_MS) as client:
        data = client.dataset("geo")
        if method == "get":
            assert data.get("key") == b"value"
        elif method == "get_many":
            assert data.get_many(["key", "none"]) == [b"value", None]
        else:
            assert list(data.scan()) == [(b"key", b"value")]
        assert asked == [method] * 4
        assert node.accepted == 1


def test_many_reads_on_their_way_wait():
    """Each request is repeated in its turn, and answers come in the order of the keys."""
    asked = []
    with built_after(MANY + 2, asked) as node, blocking.connect(node.address, timeout_ms=LONG_MS) as client:
        keys = [str(number) for number in range(2 * MANY)]
        found = list(client.dataset("geo").iter_get(keys, in_flight=MANY))
        assert found == [(key, b"value", "1") for key in keys]
        assert len(asked) == len(keys) + MANY + 2


@pytest.mark.parametrize("method", sorted(ANSWERS))
async def test_a_read_under_trio_waits(method):
    """Reads wait as in the blocking client, also for a page that is read ahead."""
    asked = []
    with built_after(3, asked) as node:
        async with connected(node) as (_, data):
            if method == "get":
                assert await data.get("key") == b"value"
            elif method == "get_many":
                assert await data.get_many(["key", "none"]) == [b"value", None]
            else:
                assert [record async for record in data.scan()] == [(b"key", b"value")]
        assert asked == [method] * 4
        assert node.accepted == 1


async def test_the_deadline_ends_it(monkeypatch):
    """At the deadline the node's last error is raised, which states the progress."""
    monkeypatch.setattr(patience, "MIN_LEFT_S", LONG_MS / 1000 - 0.2)
    asked = []
    with built_after(1_000_000, asked) as node:
        with blocking.connect(node.address, timeout_ms=LONG_MS) as client:
            with pytest.raises(NotReady, match="40% done"):
                client.dataset("geo").get("key")
            with pytest.raises(NotReady, match="40% done"):
                list(client.dataset("geo").iter_get(["key"]))
        count = len(asked)
        async with connected(node) as (_, data):
            with pytest.raises(NotReady, match="40% done"):
                await data.get("key")
        assert 2 <= count < len(asked)


async def test_what_will_not_come_is_not_waited_for():
    """A version with an error is reported at once."""
    asked = []
    with built_after(1_000_000, asked, STANDS) as node:
        with blocking.connect(node.address, timeout_ms=LONG_MS) as client, pytest.raises(NotReady):
            client.dataset("geo").get("key")
        async with connected(node) as (_, data):
            with pytest.raises(NotReady):
                await data.get("key")
    assert len(asked) == 2


def test_pauses():
    """Pauses grow to a bound and leave time for an answer; other errors cause none."""
    coming = NotReady("", {"coming": True})
    assert pause_s(coming, 0.0, 60.0) == FIRST_PAUSE_S
    assert pause_s(coming, 0.5, 60.0) == 0.25
    assert pause_s(coming, 30.0, 60.0) == LONGEST_PAUSE_S
    assert pause_s(coming, 30.0, 0.5) == 0.25
    assert pause_s(coming, 30.0, 0.09) is None
    for other in (None, NotReady(""), NotReady("", {"coming": False}), TimedOut(""), UnknownDatabase("")):
        assert pause_s(other, 0.0, 60.0) is None


def test_a_request_is_asked_again_as_if_it_were_new():
    request = call_request("ping", [])
    request.fail(NotReady("not yet"))
    request.reopen()
    assert (request.is_done, request.error, request.result) == (False, None, None)
    request.fail(TimedOut("late"))
    with pytest.raises(TimedOut):
        request.take()

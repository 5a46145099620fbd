"""Slow tests of sessions; the fast ones are in `test_sessions.py`."""

from __future__ import annotations

import pytest
import trio

import gossipkv
from gossipkv.client import blocking
from tests.unit.client.fake_node import FakeNode

TIMEOUT_MS = 20_000


class Counting:
    """A node whose tokens and versions count its answers; it records methods and options."""

    def __init__(self):
        self.asked = []

    def __call__(self, connection):
        while (request := connection.next_request()) is not None:
            message_id, method, params = request
            options = params[-1] if isinstance(params[-1], dict) else {}
            self.asked.append((method, options.get("token"), options.get("min_version")))
            stamp = f"v{len(self.asked)}" if params[0] == "geo" else b"<%d>" % len(self.asked)
            if method == "get":
                connection.answer(message_id, [b"value", stamp])
            elif method == "get_many":
                connection.answer(message_id, [[b"value"] * len(params[1]), stamp])
            elif method == "scan":
                connection.answer(message_id, [[[b"k", b"v"]], None if "cursor" in options else b"on", stamp])
            else:
                connection.answer(message_id, stamp)


def by_threads(address, *calls):
    """Return the session's state after each call by a blocking client, on the table or the dataset `geo`."""
    with blocking.connect(address, timeout_ms=TIMEOUT_MS) as client:
        session, found = client.session(), []
        for database, method, *params in calls:
            handle = client.dataset("geo") if database == "geo" else client.table("t")
            answer = getattr(handle, method)(*params, session=session)
            assert method != "scan" or len([*answer]) == 2
            found.append((session.tokens, session.version("geo")))
        return found


def by_tasks(address, *calls):
    async def ask():
        async with gossipkv.connect(address, timeout_ms=TIMEOUT_MS) as client:
            session, found = client.session(), []
            for database, method, *params in calls:
                handle = client.dataset("geo") if database == "geo" else client.table("t")
                answer = getattr(handle, method)(*params, session=session)
                assert method != "scan" or len([record async for record in answer]) == 2
                if method != "scan":
                    await answer
                found.append((session.tokens, session.version("geo")))
            return found

    return trio.run(ask)


@pytest.mark.parametrize("ask", [by_threads, by_tasks])
def test_a_session_goes_on_from_answer_to_answer(ask):
    """A request to a table carries the last token, one to a dataset the last version; a scan's page its own."""
    node = Counting()
    with FakeNode(node) as listening:
        calls = [
            ("t", "put", b"k", b"v"), ("t", "get", b"k"), ("t", "get_many", [b"k"]), ("t", "scan"),
            ("t", "delete", b"k"), ("t", "put_many", [(b"k", b"v")]), ("t", "get", b"k"),
            ("geo", "get", b"k"), ("geo", "get_with_version", b"k"), ("geo", "get_many", [b"k"]), ("geo", "scan"),
        ]  # fmt: skip
        found = ask(listening.address, *calls)
    tokens = [tokens for tokens, _ in found]
    assert tokens[:7] == [(b"<1>",), (b"<2>",), (b"<3>",), (b"<5>",), (b"<6>",), (b"<7>",), (b"<8>",)]
    assert [version for _, version in found[7:]] == ["v9", "v9", "v9", "v9"]  # Text order puts v10 before v9.
    sent = [token for method, token, _ in node.asked]
    assert sent[:8] == [None, b"<1>", b"<2>", b"<3>", b"<3>", b"<5>", b"<6>", b"<7>"]
    assert [least for _, _, least in node.asked[8:12]] == [None, "v9", "v9", "v9"]

"""The launcher reports databases that cannot be read yet."""

from __future__ import annotations

from contextlib import ExitStack

from gossipkv.client import patience
from gossipkv.launcher import NodeStatus, status
from tests.unit.client.fake_node import Connection, FakeNode, answering
from tests.unit.client.under_trio import LONG_MS

DATABASES = [{"name": "geo", "kind": "dataset"}, {"name": "names"}, {"name": "records", "kind": "hash"}]
STUCK = ("NOT_READY", "version 1 is in error", {})
COMING = ("NOT_READY", "version 1 is being built", {"coming": True})


def test_each_node_is_asked_for_a_key_of_each_dataset(monkeypatch):
    """Tables are skipped; a silent node gives no status, a dead node none."""
    assert status.READ_MS < 1000 * patience.MIN_LEFT_S  # The client must not wait for a coming version.
    monkeypatch.setattr(status, "READ_MS", LONG_MS)
    monkeypatch.setattr(patience, "MIN_LEFT_S", LONG_MS / 1000)
    answers = {"geo": [[None, "1"]], "names": STUCK}
    info = ("info", {"source_error": None})
    first = answering(info, ("databases", [DATABASES]), ("get", lambda database, *_: answers[database]))
    second = answering(("info", {"source_error": "/s: gone"}), ("databases", [DATABASES[:1]]), ("get", [COMING]))
    silent = FakeNode(Connection.ignore)
    gone = FakeNode(first)
    gone.close()
    with ExitStack() as stack:
        fakes = [*(stack.enter_context(each) for each in (FakeNode(first), FakeNode(second), silent)), gone]
        nodes = [NodeStatus(at, f"n{at}", each.address, "ready") for at, each in enumerate(fakes, 1)]

        def asked():
            for node in nodes:
                monkeypatch.setattr(status, "ANSWER_MS", 200 if node.address == silent.address else LONG_MS)
                yield node

        found = [*status.unread(asked())]
    assert [each[:3] for each in found[:3]] == [
        ("names", "n1", STUCK[1]), ("the source", "n2", "/s: gone"), ("geo", "n2", COMING[1]),
    ]  # fmt: skip
    assert [(each.database, each.node, each.is_coming) for each in found] == [
        ("names", "n1", False),
        ("the source", "n2", False),
        ("geo", "n2", True),
        ("the status", "n3", True),
        ("the status", "n4", False),
    ]

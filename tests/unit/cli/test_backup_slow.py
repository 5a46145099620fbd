"""`backup` over a socket; the fast tests are in `test_backup.py`."""

from __future__ import annotations

import json

from tests.unit.client.fake_node import FakeNode

TOLD = {"directory": "/b/monday", "linked_bytes": 3 << 30, "copied_bytes": 5 << 20, "position": 9}


def answering(asked, told):
    """Answer `backup` alone, and record the questions."""

    def behave(connection):
        while (request := connection.next_request()) is not None:
            message_id, method, params = request
            asked.append((method, params))
            connection.answer(message_id, told)

    return behave


def test_backup(run, tmp_path, monkeypatch):
    """The node gets an absolute path; a warning says that linked files share the node's disk."""
    monkeypatch.chdir(tmp_path)
    asked = []
    with FakeNode(answering(asked, TOLD)) as node:
        done = run("backup", "monday", "--node", node.address)
        assert (done.status, done.out) == (0, "/b/monday: 5.0 MiB copied, 3.0 GiB linked\n")
        assert "the node's own disk" in done.err
        assert json.loads(run("backup", "/b/monday", "--json", "--node", node.address).out) == TOLD
    assert asked == [("backup", [str(tmp_path / "monday")]), ("backup", ["/b/monday"])]
    with FakeNode(answering([], {**TOLD, "linked_bytes": 0})) as node:
        assert run("backup", "/b/monday", "--node", node.address).err == ""

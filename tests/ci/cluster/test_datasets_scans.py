"""Scans on clusters of real processes: any node returns all records in order, page by page, also after a kill."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.ci.cluster.test_datasets import TOGETHER, connect, publish, running, wait_for, wait_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gossipkv.wire.rpc import Value


def pages(
    addresses: Sequence[str], options: dict[str, Value], at: int = -1, event: Callable[[], None] | None = None
) -> list[Value]:
    """Return all records, each page from the next address; call `event` before the page `at`."""
    clients = [connect(address) for address in addresses]
    found: list[Value] = []
    cursor: Value = None
    turn = 0
    while True:
        if turn == at and event is not None:
            event()
        answer = clients[turn % len(clients)].call("scan", "geo", {**options, "cursor": cursor, "timeout_ms": 30_000})
        assert isinstance(answer, list)
        records, cursor, version = answer
        assert isinstance(records, list)
        assert version == "v1"
        found += records
        turn += 1
        if cursor is None:
            break
    for client in clients:
        client.close()
    return found


@pytest.mark.parametrize(("nodes", "replication"), [(2, 1), (3, 1), (3, 2)])
def test_any_node_scans_everything(tmp_path, nodes, replication):
    held = publish(tmp_path / "source", "v1")
    truth = [(key, value) for key, value in sorted(held.items())]
    with running(tmp_path, nodes, replication) as cluster:
        wait_for(cluster, "v1")
        addresses = [node.address for node in cluster.status()]
        for address in addresses:
            with connect(address) as client:
                data = client.dataset("geo")
                assert [*data.scan()] == truth
                assert [*data.scan(reverse=True)] == truth[::-1]
                assert [*data.scan(prefix=b"key01", limit=777)] == [
                    record for record in truth if record[0].startswith(b"key01")
                ][:777]
        wanted: list[Value] = [[key, value] for key, value in truth]
        assert pages(addresses, {}) == wanted
        assert pages(addresses, {"limit": 300, "reverse": True}) == wanted[::-1]


def test_a_killed_holder_fails_no_scan(tmp_path):
    """With two replicas on three nodes, survivors return every record, whenever the third dies."""
    held = publish(tmp_path / "source", "v1")
    wanted: list[Value] = [[key, value] for key, value in sorted(held.items())]
    with running(tmp_path, 3, 2, TOGETHER) as cluster:
        wait_for(cluster, "v1")
        wait_whole(cluster, "v1")
        survivors = [node.address for node in cluster.status()[:2]]
        assert pages(survivors, {"limit": 100}) == wanted
        assert pages(survivors, {"limit": 100}, 20, lambda: cluster.kill(3)) == wanted
        for _ in range(20):
            assert pages(survivors, {"limit": 100}) == wanted

"""A Delta table as the source of two nodes: they agree on each snapshot, and any node answers any key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from gossipkv.dataset.snapshots.table_source import Snapshot
from tests.ci.cluster.test_datasets import connect, running, wait_for

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

ROWS = 2_000
DELETED = 500


def test_two_nodes_serve_the_same_snapshots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them answers each key as the table has it, before and after a deletion."""
    table, file = tmp_path / "table", tmp_path / "node.toml"
    parts = [row % 4 for row in range(ROWS)]
    rows = pa.table({"key": [f"k{row}" for row in range(ROWS)], "value": range(ROWS), "part": parts})
    write_deltalake(table, rows, partition_by=["part"])
    file.write_text(f'[databases.geo]\nformat = "delta"\ntable = "{table}"\n', encoding="utf-8")
    monkeypatch.setenv("GOSSIPKV_CONFIG", str(file))
    with running(tmp_path, nodes=2, replication=1) as cluster:
        for number, first in enumerate((0, DELETED)):
            if first:
                DeltaTable(table).delete(f"value < {first}")
            wait_for(cluster, Snapshot(number, DeltaTable(table).history(1)[0]["timestamp"], number).name)
            expected = [None] * first + [b"%d" % row for row in range(first, ROWS)]
            for node in cluster.status():
                with connect(node.address) as client:
                    assert client.dataset("geo").get_many([b"k%d" % row for row in range(ROWS)]) == expected

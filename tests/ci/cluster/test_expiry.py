"""Expired records on a real node: no column has them."""

from __future__ import annotations

import pyarrow as pa

from gossipkv.client import blocking
from gossipkv.launcher import Cluster
from tests.ci.cluster.views import LOGGED

PAST_MS, FUTURE_MS = 1 << 40, 1 << 44


def test_columns_have_no_expired_records(tmp_path):
    """Columns of a get and of a scan have what lists have: null, and no row."""
    with (
        Cluster(tmp_path, nodes=1, settings={**LOGGED, "refresh_period": "off"}) as cluster,
        blocking.connect(cluster.addresses, timeout_ms=30_000) as client,
    ):
        client.call("create_table", "t", {"kind": "hash", "partitions": 4, "replication": 1})
        table = client.table("t")
        keys = [b"k%d" % number for number in range(30)]
        for number, key in enumerate(keys):
            table.put(key, b"v", expires_at=(None, PAST_MS, FUTURE_MS)[number % 3])
        present = [None if number % 3 == 1 else b"v" for number in range(30)]
        assert pa.array(table.get_many(keys, into="arrow")).to_pylist() == table.get_many(keys) == present
        rows = pa.table(table.scan(into="arrow")).to_pydict()
        assert {*rows["key"]} == {key for number, key in enumerate(keys) if number % 3 != 1}

"""Reads of 100 entities with 10 features by Feast's store of tables beside its store of Redis, in turns.

    FEAST_NODE=HOST:PORT python beside_redis.py REDIS_HOST:PORT

The last line has two ratios to Redis: of the median time, and of this process' CPU.
"""

from __future__ import annotations

import os
import random
import statistics
import sys
import tempfile
import time
from datetime import UTC, datetime

import pandas as pd
from feast import Entity, FeatureStore, FeatureView, Field, FileSource, RepoConfig, ValueType
from feast.types import Float64, Int64

ENTITIES, ASKED, FEATURES, ROUNDS, READS = 10_000, 100, 10, 20, 20
NAMES = [f"feature_{number}" for number in range(FEATURES)]


def opened(directory: str, name: str, online: dict[str, object]) -> FeatureStore:
    config = RepoConfig(
        project="beside",
        provider="local",
        registry=f"{directory}/{name}.db",
        online_store=online,
        offline_store={"type": "file"},
        entity_key_serialization_version=3,
    )
    store, entity = FeatureStore(config=config), Entity(name="id", join_keys=["id"], value_type=ValueType.INT64)
    schema = [Field(name="id", dtype=Int64), *(Field(name=name, dtype=Float64) for name in NAMES)]
    source = FileSource(path=f"{directory}/rows.parquet", timestamp_field="event")
    store.apply([entity, FeatureView(name="view", entities=[entity], schema=schema, source=source)])
    return store


def main(redis: str) -> None:
    draw = random.Random(1)
    values = {name: [draw.random() for _ in range(ENTITIES)] for name in NAMES}
    rows = pd.DataFrame({"id": range(ENTITIES), "event": [datetime.now(UTC)] * ENTITIES, **values})
    with tempfile.TemporaryDirectory() as directory:
        rows.to_parquet(f"{directory}/rows.parquet")
        node = {
            "type": "gossipkv.feast.GossipKVOnlineStore",
            "addresses": [os.environ["FEAST_NODE"]],
            "timeout_ms": 30_000,
        }
        peers = {"gossipkv": node, "redis": {"type": "redis", "connection_string": redis}}
        stores = [opened(directory, name, online) for name, online in peers.items()]
        for store in stores:
            store.write_to_online_store("view", rows)
        times: list[list[float]] = [[], []]
        cpu = [0.0, 0.0]
        for _ in range(ROUNDS):
            for place, store in enumerate(stores):
                began = time.process_time()
                for _ in range(READS):
                    asked = draw.sample(range(ENTITIES), ASKED)
                    start = time.perf_counter()
                    answer = store.get_online_features(
                        features=[f"view:{name}" for name in NAMES], entity_rows=[{"id": number} for number in asked]
                    )
                    times[place].append(time.perf_counter() - start)
                    assert answer.to_dict()[NAMES[3]] == [values[NAMES[3]][number] for number in asked]
                cpu[place] += time.process_time() - began
        ours, theirs = map(statistics.median, times)
        sys.stdout.write(f"{ours * 1000:.1f} ms to {theirs * 1000:.1f} ms\n{ours / theirs:.3f} {cpu[0] / cpu[1]:.3f}\n")


main(sys.argv[1])

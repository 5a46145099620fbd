"""The rows about Feast: reads of 100 entities with 10 features through its store of tables, and through that of Redis.

All reads are `get_online_features` of one process, which is charged its processor time; a node and a redis-server run
on the same machine.  Feast wants pandas below 3, so this part runs in an environment of its own.
"""

from __future__ import annotations

import random
from functools import partial
from importlib.util import find_spec
from statistics import median
from time import perf_counter, process_time
from typing import TYPE_CHECKING

from tests.bench import data, goals
from tests.bench.cluster import nodes
from tests.bench.measurement import OURS, WrongAnswerError
from tests.bench.network import servers

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd
    from feast import FeatureStore

    from tests.bench.measurement import Bench, Row

ASKED = 100
ANY_RECORD = (b"any", b"record")  # Feast's records come by its own client.
NAMES = [f"feature_{number}" for number in range(10)]
WANTED = [f"view:{name}" for name in NAMES]
TIMEOUT_MS = 30_000
MILLISECONDS = 1e3


def missing() -> str | None:
    """Return what must be installed, or None."""
    if not all(map(find_spec, ("feast", "redis"))):
        return "pip install -e '.[feast,bench]' in an environment of its own"
    return servers.redis_missing()


def measure(bench: Bench, *, entities: int = 10_000, reads: int = 50, rounds: int = 9) -> None:
    import pandas as pd  # noqa: PLC0415  # It need not be installed.

    chance = random.Random(data.SEED)
    features = {name: [chance.random() for _ in range(entities)] for name in NAMES}
    rows = pd.DataFrame({"id": range(entities), "event": pd.Timestamp.now("UTC"), **features})
    rows.to_parquet(bench.directory / "rows.parquet")
    with nodes.running(bench.directory / "node", 1) as cluster, servers.redis([ANY_RECORD], None) as redis:
        ours = {
            "type": "gossipkv.feast.GossipKVOnlineStore", "addresses": list(cluster.addresses),
            "timeout_ms": TIMEOUT_MS,
        }  # fmt: skip
        online = {OURS: ours, goals.FEAST_REDIS: {"type": "redis", "connection_string": str(redis.address)}}
        stores = {name: _store(bench.directory / name, settings) for name, settings in online.items()}
        for store in stores.values():
            store.write_to_online_store("view", rows)
        sides = {name: partial(_read_ms, store, rows, chance, reads) for name, store in stores.items()}
        bench.compare(goals.FEAST_P50, sides, rounds)
    bench.notes.append(f"{entities:,} entities of {len(NAMES)} floats; {reads} reads a round, every value checked")


def _store(registry: Path, online: dict[str, object]) -> FeatureStore:
    from feast import Entity, FeatureStore, FeatureView, Field, FileSource, RepoConfig, ValueType  # noqa: PLC0415  # It need not be installed.
    from feast.types import Float64, Int64  # noqa: PLC0415  # This, too.

    store = FeatureStore(
        config=RepoConfig(
            project="bench", provider="local", registry=str(registry), online_store=online,
            offline_store={"type": "file"}, entity_key_serialization_version=3,
        )
    )  # fmt: skip
    entity = Entity(name="id", join_keys=["id"], value_type=ValueType.INT64)
    schema = [Field(name="id", dtype=Int64), *(Field(name=name, dtype=Float64) for name in NAMES)]
    source = FileSource(path=str(registry.with_name("rows.parquet")), timestamp_field="event")
    store.apply([entity, FeatureView(name="view", entities=[entity], schema=schema, source=source)])
    return store


def _read_ms(store: FeatureStore, rows: pd.DataFrame, chance: random.Random, reads: int) -> dict[Row, float]:
    """Return the median time and the mean processor time of a read."""
    times, cpu_s = [], 0.0
    for _ in range(reads):
        asked = chance.sample(range(len(rows)), ASKED)
        begin, begin_cpu = perf_counter(), process_time()
        answer = store.get_online_features(WANTED, [{"id": number} for number in asked])
        times.append(perf_counter() - begin)
        cpu_s += process_time() - begin_cpu
        if answer.to_dict() != {"id": asked, **{name: list(rows[name][asked]) for name in NAMES}}:
            raise WrongAnswerError(f"wrong features of {asked}")
    return {goals.FEAST_P50: median(times) * MILLISECONDS, goals.FEAST_CPU: cpu_s / reads * MILLISECONDS}

"""Cases of Feast's online store; `test_feast.py` runs them where Feast is installed, with the nodes' address.

Each case has a project of its own, and so tables of its own.
"""

from __future__ import annotations

import asyncio
import os
import re
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pandas as pd
import pytest
from feast import Entity, FeatureStore, FeatureView, Field, FileSource, RepoConfig, ValueType
from feast.protos.feast.types.EntityKey_pb2 import EntityKey
from feast.protos.feast.types.Value_pb2 import Value
from feast.types import Float64, Int64, String

import gossipkv
from gossipkv.errors import BadRequest, ProtocolError
from gossipkv.feast import GossipKVOnlineStoreConfig, write_view

NODE = os.environ["FEAST_NODE"]
SOURCE = os.environ["FEAST_SOURCE"]
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
FEATURES = ["drivers:trips", "drivers:rating", "drivers:name"]


@pytest.fixture(name="store")
def new_store(tmp_path):
    with_options = made(tmp_path)
    yield with_options
    with_options.teardown()


def made(tmp_path, **options):
    """Return a store with the view `drivers`."""
    store = FeatureStore(
        config=RepoConfig(
            project=f"p{uuid.uuid4().hex[:12]}",
            provider="local",
            registry=str(tmp_path / "registry.db"),
            online_store={
                "type": "gossipkv.feast.GossipKVOnlineStore",
                "addresses": [NODE],
                "timeout_ms": 30_000,
                "partitions": 2,
                **options,
            },
            offline_store={"type": "file"},
            entity_key_serialization_version=3,
        )
    )
    store.apply([DRIVER, view(tmp_path)])
    return store


DRIVER = Entity(name="driver", join_keys=["driver"], value_type=ValueType.INT64)


def view(tmp_path, name="drivers", ttl=None):
    return FeatureView(
        name=name,
        ttl=ttl,
        entities=[DRIVER],
        schema=[
            Field(name="driver", dtype=Int64),
            Field(name="trips", dtype=Int64),
            Field(name="rating", dtype=Float64),
            Field(name="name", dtype=String),
        ],
        source=FileSource(
            path=str(tmp_path / "rows.parquet"), timestamp_field="event", created_timestamp_column="made"
        ),
    )


def rows(*drivers, at=NOON, created=NOON, name="ana"):
    return pd.DataFrame({
        "driver": drivers, "trips": [10 * driver for driver in drivers], "rating": [0.5] * len(drivers),
        "name": [f"{name} {driver}" for driver in drivers], "event": [at] * len(drivers),
        "made": [created] * len(drivers),
    })  # fmt: skip


def names(store, *drivers):
    answer = store.get_online_features(features=FEATURES, entity_rows=[{"driver": driver} for driver in drivers])
    return answer.to_dict()["name"]


def entity(driver):
    return EntityKey(join_keys=["driver"], entity_values=[Value(int64_val=driver)])


def parts(store):
    """Return what Feast hands to an online store."""
    return store.config, store.get_feature_view("drivers"), store._get_provider().online_store


def write(store, driver, at=NOON, created=None, **values):
    config, of, online = parts(store)
    online.online_write_batch(config, of, [(entity(driver), values, at, created)], None)


def read(store, *drivers, wanted=None):
    config, of, online = parts(store)
    return online.online_read(config, of, [entity(driver) for driver in drivers], wanted)


def text(value):
    return Value(string_val=value)


def test_rows_come_back_as_they_were_written(store):
    store.write_to_online_store("drivers", rows(1, 2))
    answer = store.get_online_features(features=FEATURES, entity_rows=[{"driver": 2}, {"driver": 3}]).to_dict()
    assert answer == {"driver": [2, 3], "trips": [20, None], "rating": [0.5, None], "name": ["ana 2", None]}
    (at, values), absent = read(store, 1, 3, wanted=["name", "rating"])
    assert (at, values, absent) == (NOON, {"name": text("ana 1"), "rating": Value(double_val=0.5)}, (None, None))


def test_an_older_event_changes_nothing(store):
    write(store, 1, NOON, name=text("noon"))
    write(store, 1, NOON - HOUR, name=text("eleven"), trips=Value(int64_val=11))
    assert read(store, 1) == [(NOON, {"name": text("noon")})]


def test_an_event_of_the_same_time_is_replaced_by_what_was_created_later(store):
    write(store, 1, NOON, NOON + HOUR, name=text("mended"))
    write(store, 1, NOON, NOON, name=text("wrong"))
    assert read(store, 1) == [(NOON, {"name": text("mended")})]
    write(store, 1, NOON, NOON + HOUR, name=text("again"))
    assert read(store, 1) == [(NOON, {"name": text("again")})]


def test_features_that_a_row_lacks_stay(store):
    write(store, 1, NOON, name=text("ana"), trips=Value(int64_val=1))
    write(store, 1, NOON + HOUR, trips=Value(int64_val=2))
    assert read(store, 1) == [(NOON + HOUR, {"name": text("ana"), "trips": Value(int64_val=2)})]


def test_of_two_rows_of_one_batch_the_later_event_counts(store):
    config, of, online = parts(store)
    batch = [
        (entity(1), {"name": text("late")}, NOON + HOUR, None),
        (entity(1), {"name": text("early")}, NOON, None),
        (entity(2), {"name": text("naive")}, NOON.replace(tzinfo=None), None),
    ]
    told = []
    online.online_write_batch(config, of, batch, told.append)
    assert read(store, 1, 2) == [(NOON + HOUR, {"name": text("late")}), (NOON, {"name": text("naive")})]
    assert sum(told) == 3


@pytest.mark.parametrize("expire", [True, False])
def test_rows_expire_with_the_ttl_of_their_view(tmp_path, expire):
    """The lifetime counts from the event, so a row of an event long ago is never there."""
    store, now = made(tmp_path, expire=expire), datetime.now(UTC).replace(microsecond=0)
    store.apply([DRIVER, view(tmp_path, ttl=HOUR)])
    write(store, 1, now, name=text("live"))
    write(store, 2, now - 2 * HOUR, name=text("over"))
    there = {"live"} if expire else {"live", "over"}
    assert {row["name"].string_val for _, row in read(store, 1, 2) if row} == there
    with gossipkv.blocking.connect(NODE, timeout_ms=30_000) as client:
        table = client.table(f"{store.project}_drivers")
        expiries = {table.get_with_expiry(key)[1] for key, _ in table.scan()}
    assert expiries == ({int((now + HOUR).timestamp() * 1000)} if expire else {None})
    store.teardown()


def test_the_page(tmp_path, monkeypatch):
    """The configuration and the program of `docs/users/feast.md` work."""
    page = (Path(__file__).parents[3] / "docs" / "users" / "feast.md").read_text("utf-8")
    (settings,) = re.findall(r"^```yaml\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    (program,) = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    settings = re.sub(r"addresses: .*", f"addresses: [{NODE}]\n  datasets: {{drivers: taxis-drivers}}", settings)
    (tmp_path / "feature_store.yaml").write_text(settings)
    monkeypatch.chdir(tmp_path)
    now = datetime.now(UTC)
    rows(1, 2, at=now - HOUR, created=now).to_parquet(tmp_path / "rows.parquet")
    store = FeatureStore(".")
    store.apply([DRIVER, view(tmp_path)])
    exec(program.replace("/srv/source", SOURCE), {})
    with gossipkv.blocking.connect(NODE, timeout_ms=30_000) as client:
        client.refresh("taxis-drivers")
    assert names(store, 1, 2, 3) == ["ana 1", "ana 2", None]


def test_many_rows_and_an_empty_batch(store):
    config, of, online = parts(store)
    online.online_write_batch(config, of, [], None)
    store.write_to_online_store("drivers", rows(*range(25_000)))
    assert names(store, *range(0, 25_000, 7)) == [f"ana {driver}" for driver in range(0, 25_000, 7)]


def test_views_come_and_go_with_their_tables(store, tmp_path):
    with gossipkv.blocking.connect(NODE, timeout_ms=30_000) as client:

        def tables():
            return {entry["name"] for entry in client.databases() if entry["name"].startswith(store.project)}

        store.apply([DRIVER, view(tmp_path), view(tmp_path, "others")])
        assert tables() == {f"{store.project}_drivers", f"{store.project}_others"}
        store.delete_feature_view("others")
        store.apply([DRIVER, view(tmp_path)])
        store.teardown()
        assert f"{store.project}_drivers" not in tables()


def test_views_whose_names_no_table_may_have(store, tmp_path):
    """Each has a table of its own, also where their names differ in such characters alone."""
    names = ["my drivers", "my.drivers", "my/drivers", "fahrer_ä", "d" * 200, "d" * 201]
    store.apply([DRIVER, view(tmp_path), *(view(tmp_path, name) for name in names)])
    config, _, online = parts(store)
    for name in names:
        row = (entity(1), {"name": text(name)}, NOON, None)
        online.online_write_batch(config, store.get_feature_view(name), [row], None)
    for name in names:
        found = store.get_online_features(features=[f"{name}:name"], entity_rows=[{"driver": 1}]).to_dict()
        assert found["name"] == [name]
    with gossipkv.blocking.connect(NODE, timeout_ms=30_000) as client:
        tables = {entry["name"] for entry in client.databases() if entry["name"].startswith(store.project)}
        assert f"{store.project}_drivers" in tables
        assert len(tables) == len(names) + 1
        store.teardown()
        assert not tables & {entry["name"] for entry in client.databases()}


def test_event_loops_and_threads_share_a_store(store):
    config, of, online = parts(store)

    async def ask(driver):
        await online.initialize(config)
        await online.online_write_batch_async(config, of, [(entity(driver), {"name": text("x")}, NOON, None)], None)
        found = await online.online_read_async(config, of, [entity(driver)])
        await online.close()
        return found

    for driver in (1, 2):
        assert asyncio.run(ask(driver)) == [(NOON, {"name": text("x")})]
    store.write_to_online_store("drivers", rows(*range(16)))
    with ThreadPoolExecutor(16) as threads:
        assert list(threads.map(lambda driver: names(store, driver), range(16))) == [[f"ana {n}"] for n in range(16)]


def test_a_view_is_read_from_a_dataset(tmp_path):
    database = f"d{uuid.uuid4().hex[:12]}"
    pd.concat([rows(*range(1000)), rows(*range(500), at=NOON + HOUR, name="newer")]).to_parquet(
        tmp_path / "rows.parquet"
    )
    store = made(tmp_path, datasets={"drivers": database})
    report = write_view(
        store, "drivers", f"{SOURCE}/{database}/1", start=NOON - HOUR, end=NOON + 2 * HOUR, partitions=4
    )
    assert report.records == 1000
    with gossipkv.blocking.connect(NODE, timeout_ms=30_000) as client:
        client.refresh(database)
    assert names(store, 1, 999, 1000) == ["newer 1", "ana 999", None]
    with pytest.raises(BadRequest, match=f"read from the dataset {database}"):
        write(store, 1, name=text("x"))
    store.teardown()
    with gossipkv.blocking.connect(NODE, timeout_ms=30_000) as client:
        assert len([*client.dataset(database).scan()]) == 1000


@pytest.mark.parametrize("record", [b"", b"\xc1", b"\x93\x01\x02\x03", b"\x94\x01\x02\x91\xa1a\xa3???"])
def test_a_record_of_somebody_else_is_refused(store, record):
    write(store, 1, name=text("x"))
    with gossipkv.blocking.connect(NODE, timeout_ms=30_000) as client:
        table = client.table(f"{store.project}_drivers")
        ((key, _),) = table.scan()
        table.put(key, record)
    with pytest.raises(ProtocolError, match="is not a row of a feature view"):
        read(store, 1)


@pytest.mark.parametrize("wrong", [{"addresses": []}, {"level": "most"}, {"timeout_ms": 0}, {"partitions": 0}])
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        GossipKVOnlineStoreConfig(**wrong)


def test_a_token_is_not_shown():
    assert "secret" not in repr(GossipKVOnlineStoreConfig(token="secret"))

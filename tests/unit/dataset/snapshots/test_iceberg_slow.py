"""Iceberg tables that pyiceberg wrote, served by a node, compared with what pyiceberg reads of each snapshot."""

import json
import shutil
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyarrow import parquet as pq
from pyiceberg.catalog import load_catalog
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, StringType

from gossipkv.settings.databases import DatabaseSettings
from tests.unit.dataset.snapshots.iceberg_tables import commit_deletes, puffin
from tests.unit.dataset.world import active, get, until

MEMORY = 256 << 20
AT = datetime(2024, 1, 31, 12, 30, tzinfo=UTC)


@pytest.fixture
def lake(world):
    """Yield a catalog in SQLite."""
    (world.root / "warehouse").mkdir()
    uris = {"uri": f"sqlite:///{world.root}/catalog.db", "warehouse": f"file://{world.root}/warehouse"}
    catalog = load_catalog("lake", type="sql", **uris)
    catalog.create_namespace("web")
    yield catalog
    catalog.close()


@pytest.fixture
def databases(world, lake):
    properties = {"name": "lake", "type": "sql"} | {name: lake.properties[name] for name in ("uri", "warehouse")}
    return {"db": DatabaseSettings(format="iceberg", table="web.users", catalog=properties, value="*", nulls="null")}


def version(table):
    """Return the version that the newest snapshot is."""
    snapshot = table.refresh().current_snapshot()
    at = datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC)
    return f"{snapshot.sequence_number:012}-{at:%Y%m%dT%H%M%S}{snapshot.timestamp_ms % 1000:03}Z"


async def serve(library, table, count):
    """Wait until the newest snapshot is served, and compare its rows."""
    name = version(table)
    await library.rescan()
    await active(library, name)
    snapshot = table.current_snapshot().snapshot_id
    rows = {row["key"]: row for row in table.scan(snapshot_id=snapshot).to_arrow().to_pylist()}
    assert library.status()["db"]["versions"][name]["records"] == len(rows) == count
    found = {key: json.loads(get(library, key.encode())) for key in rows}
    assert found == json.loads(json.dumps(rows, default=lambda at: f"{at:%Y-%m-%dT%H:%M:%S.%f}Z"))


async def test_each_snapshot_of_a_table_in_a_catalog_is_a_version(world, lake, databases):
    """Append, partitions, renamed, added, nested and wider columns, overwrite, delete."""
    rows = pa.table({
        "key": ["a", "b", "c"], "n": pa.array([1, 2, 3], pa.int32()), "day": ["x", "x", None],
        "at": pa.array([AT] * 3, pa.timestamp("us", "UTC")), "in": [{"p": 1}, None, {"p": 3}],
        "all": [[{"p": 1}], [], None],
    })  # fmt: skip
    table = lake.create_table("web.users", rows.schema)
    with table.update_spec() as update:
        update.add_field("day", IdentityTransform())
    table.append(rows)
    async with world.node(build_memory=MEMORY, databases=databases) as library:
        await serve(library, table, 3)
        with table.update_schema() as update:
            update.update_column("n", LongType())
            update.rename_column("n", "number")
            update.rename_column(("in", "p"), "q")
            update.rename_column(("all", "element", "p"), "q")
            update.add_column(("all", "element", "new"), StringType())
            update.add_column("more", StringType())
        # pyiceberg reads a null list that it wrote as an empty one, so none is compared.
        new = pa.array([[{"q": 4, "new": "w"}]])
        table.append(pa.table({"key": ["d"], "day": ["y"], "more": ["yes"], "in": [{"q": 4}], "all": new}))
        await serve(library, table, 4)
        table.delete("key = 'a'")
        await serve(library, table, 3)
        table.overwrite(table.scan().to_arrow().slice(0, 2))
        await serve(library, table, 2)
        with table.maintenance.expire_snapshots() as expiry:
            expiry.older_than(datetime.now())  # noqa: DTZ005  # pyiceberg has it so.
        await serve(library, table, 2)
        assert library._databases["db"].seen == (version(table),)


@pytest.mark.parametrize("kind", ["positions", "puffin"])
async def test_deleted_rows(world, lake, databases, kind):
    """A file of deletes has the rows of two data files."""
    rows = pa.table({"key": [f"k{row:05}" for row in range(40_000)], "n": range(40_000)})
    table = lake.create_table("web.users", rows.schema)
    table.append(rows.slice(0, 30_000))
    table.append(rows.slice(30_000))
    large, small = sorted((task.file for task in table.scan().plan_files()), key=lambda file: -file.record_count)
    gone = {large.file_path: [0, 16_384, *range(20_000, 29_000)], small.file_path: [1, 9_999]}
    async with world.node(build_memory=MEMORY, databases=databases) as library:
        place = world.root / "warehouse" / "web" / "users" / "data" / "deletes"
        if kind == "puffin":
            puffin(place, gone)
        else:
            names, positions = zip(*[(name, row) for name, rows in gone.items() for row in rows], strict=True)
            pq.write_table(pa.table({"file_path": names, "pos": positions}), place)
        form = FileFormat.PUFFIN if kind == "puffin" else FileFormat.PARQUET
        commit_deletes(table, f"file://{place}", large, kind=form)
        await serve(library, table, 40_000 - 9_002 - 2)
        assert get(library, b"k30001") is get(library, b"k16384") is None


async def test_equality_deletes_are_refused_by_name(world, lake, databases):
    rows = pa.table({"key": ["a"], "n": [1]})
    table = lake.create_table("web.users", rows.schema)
    table.append(rows)
    async with world.node(build_memory=MEMORY, databases=databases) as library:
        await serve(library, table, 1)
        place = world.root / "warehouse" / "web" / "users" / "data" / "deletes"
        pq.write_table(rows.select(["key"]), place)
        (task,) = table.scan().plan_files()
        commit_deletes(table, f"file://{place}", task.file, DataFileContent.EQUALITY_DELETES)
        await library.rescan()
        error = library.status()["db"]["versions"][version(table)]["error"]
        assert "equality deletes" in error["message"]
        assert json.loads(get(library, b"a")) == {"key": "a", "n": 1}


async def test_metadata_files_and_copies_of_a_table(world, lake):
    """A metadata file that is named, and the newest of a Hadoop table in the source, which was copied there."""
    rows = pa.table({"key": ["a", "b"], "n": [1, 2]})
    table = lake.create_table("web.users", rows.schema)
    table.append(rows.slice(0, 1))
    first = table.metadata_location.removeprefix("file://")
    table.append(rows.slice(1))
    shutil.copytree(world.root / "warehouse" / "web" / "users", world.source / "copy")
    newest = table.metadata_location.rpartition("/")[2]
    databases = {
        "db": DatabaseSettings(format="iceberg", table=first, value="n"),
        "copy": DatabaseSettings(format="iceberg", value="n"),
    }
    async with world.node(build_memory=MEMORY, databases=databases) as library:
        await active(library, library.status()["db"]["versions"].popitem()[0])
        assert (get(library, b"a"), get(library, b"b")) == (b"1", None)
        assert "set `table` to a metadata file" in str(library.status()["copy"])
        metadata = world.source / "copy" / "metadata"
        (metadata / newest).rename(metadata / "v10.metadata.json")
        shutil.copy(first, metadata / "v9.metadata.json")
        await library.rescan("copy")
        await active(library, version(table), "copy")
        assert get(library, b"b", "copy") == b"2"


async def test_snapshots_without_a_number_are_ordered_by_time(world, lake, databases):
    """Tables of Iceberg's first format have none."""
    rows = pa.table({"key": ["a", "b"], "n": [1, 2]})
    table = lake.create_table("web.users", rows.schema, properties={"format-version": "1"})
    for number in range(2):
        table.append(rows.slice(number, 1))
    async with world.node(build_memory=MEMORY, databases=databases) as library:
        await serve(library, table, 2)
        assert version(table).startswith(f"{0:012}-")
        assert len(library._databases["db"].seen) == 2


async def test_files_without_ids_are_read_by_the_names_of_the_table(world, lake, databases):
    """Their columns may have been renamed since; a value of a partition may stand in the metadata alone."""
    table = lake.create_table("web.users", pa.schema([("key", pa.string()), ("n", pa.int64())]))
    place = world.root / "warehouse" / "web" / "users" / "data"
    place.mkdir(exist_ok=True)
    pq.write_table(pa.table({"key": ["a"], "n": [1]}), place / "old.parquet")
    table.add_files([f"file://{place}/old.parquet"])
    with table.update_schema() as update:
        update.rename_column("n", "number")
    table.append(pa.table({"key": ["b"], "number": [2]}))
    async with world.node(build_memory=MEMORY, databases=databases) as library:
        await serve(library, table, 2)
        with table.transaction() as change:
            change.remove_properties("schema.name-mapping.default")
        table.append(pa.table({"key": ["c"], "number": [3]}))
        await library.rescan()
        await until(lambda: "error" in library.status()["db"]["versions"][version(table)])
        assert "have no ids" in library.status()["db"]["versions"][version(table)]["error"]["message"]


async def test_a_snapshot_without_rows_and_a_way_back_at_the_source(world, lake, databases):
    """Deleted rows are no longer served where that is allowed; a table that was rolled back is told."""
    table = lake.create_table("web.users", pa.schema([("key", pa.string()), ("n", pa.int64())]))
    table.append(pa.table({"key": ["a"], "n": [1]}))
    first = table.current_snapshot().snapshot_id
    databases["db"] = replace(databases["db"], minimum={"allow_empty": True})
    async with world.node(build_memory=MEMORY, databases=databases) as library:
        await serve(library, table, 1)
        table.delete("n = 1")
        await serve(library, table, 0)
        assert get(library, b"a") is None
        table.manage_snapshots().rollback_to_snapshot(first).commit()
        await library.rescan()
        await until(lambda: library.status()["db"]["error"] is not None)
        assert f"run `gossipkv rollback db {version(table)}`" in library.status()["db"]["error"]
        assert library.status()["db"]["active"] > version(table)
        table.append(pa.table({"key": ["b"], "n": [2]}))
        await serve(library, table, 2)
        assert library.status()["db"]["error"] is None

"""Delta tables that `deltalake` wrote, served by a node, compared with what `deltalake` reads of each snapshot."""

import json
import os
import threading
from dataclasses import replace
from datetime import UTC, date, datetime

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow import parquet as pq

from gossipkv.dataset.snapshots.table_source import TableOptions, open_table
from gossipkv.environment.real_files import RealFiles
from gossipkv.settings.databases import DatabaseSettings
from gossipkv.settings.stores import Stores
from tests.unit.dataset.snapshots.delta_tables import actions, commit, evolve, inline_vector, vector_in_file
from tests.unit.dataset.world import active, get, until

MEMORY = 256 << 20
WRITES = 30
ROWS = DatabaseSettings(format="delta", value="*", nulls="null")


@pytest.fixture
def root(world):
    return world.source / "db"


def read(root, number):
    """Return the rows that `deltalake` reads, by key."""
    rows = pa.table(DeltaTable(root, version=number).scan()).to_pylist()
    return {row["key"].encode(): json.loads(json.dumps(row, default=str)) for row in rows}


async def serve(library, root, number):
    """Wait until a snapshot is served, and compare its rows."""
    await until(lambda: any(name.startswith(f"{number:012}-") for name in library.status()["db"]["versions"]))
    name = next(name for name in library.status()["db"]["versions"] if name.startswith(f"{number:012}-"))
    await active(library, name)
    expected = read(root, number)
    assert library.status()["db"]["versions"][name]["records"] == len(expected)
    assert {key: json.loads(get(library, key)) for key in expected} == expected


async def test_each_snapshot_is_a_version(world, root):
    """Append, delete, a new column, a partition that is null, overwrite, and a checkpoint."""
    rows = pa.table({"key": ["a", "b", "c"], "value": ["1", "2", "3"], "day": [1, 1, 2]})
    write_deltalake(root, rows, partition_by=["day"])
    async with world.node(build_memory=MEMORY, databases={"db": ROWS}) as library:
        await serve(library, root, 0)
        write_deltalake(root, pa.table({"key": ["d x/é"], "value": ["4"], "day": [7]}), mode="append")
        await library.rescan()
        await serve(library, root, 1)
        DeltaTable(root).delete("key = 'a'")
        await library.rescan()
        await serve(library, root, 2)
        grown = pa.table({"key": ["e"], "value": [None], "day": pa.array([None], pa.int64()), "more": [{"x": [1]}]})
        write_deltalake(root, grown.cast(pa.schema([*rows.schema, grown.schema.field("more")])), mode="append",
                        schema_mode="merge")  # fmt: skip
        DeltaTable(root).create_checkpoint()
        await library.rescan()
        await serve(library, root, 3)
        write_deltalake(root, rows.slice(1), mode="overwrite", schema_mode="overwrite", partition_by=["value"])
        await library.rescan()
        await serve(library, root, 4)
        DeltaTable(root).vacuum(0, dry_run=False, enforce_retention_duration=False)
        await library.rescan()
        await serve(library, root, 4)
        assert library.trouble() is None


@pytest.mark.parametrize("kind", ["inline", "file"])
async def test_deleted_rows_and_other_names_in_files(world, root, kind):
    """A vector of deleted rows replaces the file's entry in the log; values of partitions are those of the log."""
    rows = pa.table(
        {"key": [f"k{row:05}" for row in range(40_000)], "n": range(40_000), "day": [date(2024, 1, 31)] * 40_000}
    )
    write_deltalake(root, rows, partition_by=["day"])
    evolve(root, {"n": "number", "day": "date"}, ["columnMapping", "deletionVectors"])
    (added,) = [action["add"] for action in actions(root, 0) if "add" in action]
    gone = [0, 16_383, 16_384, *range(20_000, 30_000), 39_999]
    vector = inline_vector(*gone) if kind == "inline" else vector_in_file(root, *gone)
    removed = {
        "path": added["path"],
        "deletionTimestamp": 1,
        "dataChange": True,
        "partitionValues": added["partitionValues"],
    }
    number = commit(root, {"remove": removed}, {"add": added | {"deletionVector": vector}})
    async with world.node(build_memory=MEMORY, databases={"db": ROWS}) as library:
        await serve(library, root, number)
        assert get(library, b"k16383") is get(library, b"k25000") is None
        row = json.loads(get(library, b"k16385"))
        assert row == {"key": "k16385", "number": 16_385, "date": "2024-01-31"}


def test_a_look_amid_writes_sees_whole_snapshots(tmp_path):
    write_deltalake(tmp_path, pa.table({"key": ["0"], "value": ["0"]}))
    source = open_table(
        DatabaseSettings(format="delta", table=str(tmp_path)), None, "db", RealFiles(), TableOptions(None, Stores({}))
    )
    seen = set()

    def write():
        for row in range(1, WRITES):
            write_deltalake(tmp_path, pa.table({"key": [str(row)], "value": ["1"]}), mode="append")

    writer = threading.Thread(target=write)
    writer.start()
    while writer.is_alive() or not seen:
        newest = source.versions("db").names[-1]
        assert len(source.version("db", newest).files) == int(newest[:12]) + 1
        seen.add(newest)
    writer.join()
    assert len(source.versions("db").names) == WRITES


async def test_types_of_partitions_and_of_columns(world, root):
    """Texts of the log become values of their types; a later snapshot has wider types; there is no other source."""
    at = datetime(9999, 12, 31, 12, 30, 0, 500_000, UTC)
    rows = pa.table({
        "key": ["a"], "n": pa.array([7], pa.int32()), "at": pa.array([at], pa.timestamp("us", "UTC")),
        "p_at": pa.array([at], pa.timestamp("us", "UTC")), "p_flag": [True], "p_n": [-3], "p_text": ["a/b=c %"],
    })  # fmt: skip
    write_deltalake(root, rows, partition_by=["p_at", "p_flag", "p_n", "p_text"])
    metadata = next(action["metaData"] for action in actions(root, 0) if "metaData" in action)
    wider = metadata["schemaString"].replace('"integer"', '"long"')
    features = {"readerFeatures": ["typeWidening"], "writerFeatures": ["typeWidening"]}
    commit(root, {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7} | features},
           {"metaData": metadata | {"schemaString": wider}})  # fmt: skip
    settings = {"source": None, "databases": {"db": replace(ROWS, table=str(root))}}
    async with world.node(build_memory=MEMORY, **settings) as library:
        await until(lambda: library.active("db") is not None)
        assert json.loads(get(library, b"a")) == {
            "key": "a", "n": 7, "at": "9999-12-31T12:30:00.500000Z", "p_at": "9999-12-31T12:30:00.500000Z",
            "p_flag": True, "p_n": -3, "p_text": "a/b=c %",
        }  # fmt: skip


async def test_a_snapshot_that_cannot_be_read_leaves_the_served_one(world, root):
    """Its files are gone, its vector is damaged, or it has an unknown feature: the error names it."""
    write_deltalake(root, pa.table({"key": ["a"], "value": ["1"]}))
    async with world.node(build_memory=MEMORY, databases={"db": ROWS}) as library:
        await serve(library, root, 0)
        write_deltalake(root, pa.table({"key": ["b"], "value": ["2"]}), mode="append")
        (added,) = [action["add"] for action in actions(root, 1) if "add" in action]
        (root / added["path"]).unlink()
        await fails(library, 1, "the table's snapshot lists the file, but it does not exist")
        vector = {"storageType": "i", "pathOrInlineDv": "00000", "sizeInBytes": 4, "cardinality": 1}
        (kept,) = [action["add"] for action in actions(root, 0) if "add" in action]
        gone = [{"remove": {"path": action["path"]}} for action in (kept, added)]
        commit(root, *gone, {"add": kept | {"deletionVector": vector}})
        await fails(library, 2, "it begins with")
        commit(root, {"add": added | {"path": "../x.parquet"}})
        await fails(library, 3, "not below the table's directory")
        commit(root, {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["catalogManaged"]}})
        await fails(library, 4, "its features cannot be read: catalogManaged")
        assert json.loads(get(library, b"a")) == {"key": "a", "value": "1"}


async def test_a_file_of_another_size_than_the_snapshot_says_is_damaged(world, root):
    """A build would fail again for as long as the file stays, so it is not repeated as after a change."""
    write_deltalake(root, pa.table({"key": ["a"], "value": ["1"]}))
    async with world.node(build_memory=MEMORY, databases={"db": ROWS}) as library:
        await serve(library, root, 0)
        write_deltalake(root, pa.table({"key": ["b"], "value": ["2"]}), mode="append")
        (added,) = [action["add"] for action in actions(root, 1) if "add" in action]
        os.truncate(root / added["path"], 100)
        await fails(library, 1, "it is damaged; restore it, or commit a snapshot without it")


async def fails(library, number, message):
    await library.rescan()

    def found():
        versions = library.status()["db"]["versions"].items()
        return [version["error"]["message"] for name, version in versions
                if name.startswith(f"{number:012}-") and "error" in version]  # fmt: skip

    await until(found)
    assert message in found()[0]


async def test_a_snapshot_without_rows_is_served_empty_if_that_is_allowed(world, root):
    """Otherwise the rows stay, and the reason is told; so it is at the first snapshot."""
    write_deltalake(root, pa.table({"key": ["a"], "value": ["1"]}))
    async with world.node(build_memory=MEMORY, databases={"db": ROWS}) as library:
        await serve(library, root, 0)
        DeltaTable(root).delete()
        await library.rescan()
        await until(lambda: any("withheld" in version for version in library.conditions()["db"]["versions"].values()))
        assert json.loads(get(library, b"a")) == {"key": "a", "value": "1"}
    allowing = replace(ROWS, minimum={"allow_empty": True})
    async with world.node(build_memory=MEMORY, databases={"db": allowing}) as library:
        await serve(library, root, 1)
        assert get(library, b"a") is None
        write_deltalake(root, pa.table({"key": ["b"], "value": ["2"]}), mode="append")
        await library.rescan()
        await serve(library, root, 2)


async def test_deletion_vectors_of_deltalake(world, root):
    """It names the feature of variants too, which no column has; a column that has one is refused where it is read."""
    rows = pa.table({"key": ["a", "b", "c"], "value": ["1", "2", "3"]})
    write_deltalake(root, rows, configuration={"delta.enableDeletionVectors": "true"})
    assert "variantType" in DeltaTable(root).protocol().reader_features
    DeltaTable(root).delete("key = 'b'")
    plain = replace(ROWS, value="value", table=str(root))
    async with world.node(build_memory=MEMORY, databases={"db": ROWS, "plain": plain}) as library:
        await serve(library, root, 1)
        assert get(library, b"b") is None
        metadata = next(action["metaData"] for action in actions(root, 0) if "metaData" in action)
        schema = json.loads(metadata["schemaString"])
        for kind in ("variant", {"type": "array", "elementType": "variant", "containsNull": True}):
            schema["fields"].append({"name": f"v{kind}"[:2], "type": kind, "nullable": True, "metadata": {}})
        number = commit(root, {"metaData": metadata | {"schemaString": json.dumps(schema)}})
        await fails(library, number, "has the type variant, which cannot be read")
        await library.rescan("plain")
        await until(lambda: library.active("plain").name.startswith(f"{number:012}-"))
        assert get(library, b"a", "plain") == b"1"


@pytest.mark.parametrize("form", ["whole", "parts", "json", "parquet"])
async def test_a_cleaned_log_is_read_as_deltalake_reads_it(world, root, form):
    """Its newest snapshot is in a checkpoint alone: of one file, in parts, and with a sidecar."""
    for number in range(3):
        write_deltalake(root, pa.table({"key": [f"k{number}"], "value": ["1"]}), mode="append")
    DeltaTable(root).create_checkpoint()
    log, name = root / "_delta_log", f"{2:020}.checkpoint"
    for path in [*log.glob("0*.json"), log / "_last_checkpoint"]:
        path.unlink()
    if form != "whole":
        rewrite_checkpoint(log, name, form)
    expected = {row["key"].encode(): row for row in pa.table(DeltaTable(root).scan()).to_pylist()}
    async with world.node(build_memory=MEMORY, databases={"db": ROWS}) as library:
        await active(library, "000000000002-checkpoint")
        assert library.status()["db"]["versions"]["000000000002-checkpoint"]["records"] == len(expected) == 3
        assert {key: json.loads(get(library, key)) for key in expected} == expected


def rewrite_checkpoint(log, name, form):
    """Write a checkpoint of one file in another form."""
    rows = pq.read_table(log / f"{name}.parquet")
    (log / f"{name}.parquet").unlink()
    if form == "parts":
        for part in (1, 2):
            half = rows.slice((part - 1) * 2, 2 if part == 1 else None)
            pq.write_table(half, log / f"{name}.{part:010}.{2:010}.parquet")
        return
    (log / "_sidecars").mkdir()
    adds = pc.is_valid(rows["add"])
    pq.write_table(rows.filter(adds).select(["add", "remove"]), log / "_sidecars" / "7.parquet")
    size = (log / "_sidecars" / "7.parquet").stat().st_size
    rest = rows.filter(pc.invert(adds)).drop_columns(["add", "remove"])
    lines = [{kind: action for kind, action in row.items() if action is not None}
             for row in rest.to_pylist(maps_as_pydicts="strict")]  # fmt: skip
    for line in lines:
        if "protocol" in line:
            features = {"readerFeatures": ["v2Checkpoint"], "writerFeatures": ["v2Checkpoint"]}
            line["protocol"] = {"minReaderVersion": 3, "minWriterVersion": 7} | features
    lines = [{"checkpointMetadata": {"version": 2}}, *lines]
    lines.append({"sidecar": {"path": "7.parquet", "sizeInBytes": size, "modificationTime": 1}})
    path = log / f"{name}.80a083e8-7026-4e79-81be-64bd76c43a11.{form}"
    if form == "json":
        path.write_text("\n".join(map(json.dumps, lines)))
        return
    schema = rest.schema.append(pa.field("checkpointMetadata", pa.struct([("version", pa.int64())])))
    pq.write_table(pa.Table.from_pylist([dict.fromkeys(schema.names) | line for line in lines], schema), path)

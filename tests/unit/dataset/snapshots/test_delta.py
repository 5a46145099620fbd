"""The log of a Delta table: snapshots, checkpoints, the last action on a file, and refusals."""

import json
import os
import shutil

import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from gossipkv.dataset.snapshots.delta import DeltaTable
from gossipkv.dataset.snapshots.table_source import MAX_SNAPSHOTS, TableOptions, TablePlace
from gossipkv.environment.real_files import RealFiles
from gossipkv.errors import SourceError
from gossipkv.settings.stores import Stores
from tests.unit.dataset.snapshots.delta_tables import commit

SCHEMA = {"type": "struct", "fields": [
    {"name": "key", "type": "string", "nullable": True, "metadata": {}},
    {"name": "n", "type": "decimal(9,2)", "nullable": True, "metadata": {}},
    {"name": "all", "type": {"type": "array", "elementType": {"type": "map", "keyType": "string", "valueType": "date"}},
     "nullable": True, "metadata": {}},
]}  # fmt: skip
PROTOCOL = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
METADATA = {"metaData": {"id": "7", "format": {"provider": "parquet"}, "schemaString": json.dumps(SCHEMA),
                         "partitionColumns": ["n"], "configuration": {}}}  # fmt: skip
VECTOR = {"storageType": "i", "pathOrInlineDv": "00000", "sizeInBytes": 4, "cardinality": 1}


@pytest.fixture
def root(tmp_path):
    (tmp_path / "table" / "_delta_log").mkdir(parents=True)
    commit(tmp_path / "table", PROTOCOL, METADATA, add("a"), add("b"))
    return tmp_path / "table"


def add(path, **others):
    values = {"n": f"{len(path)}.00"}
    return {"add": {"path": path, "partitionValues": values, "size": 5, "modificationTime": 7} | others}


def remove(path, **others):
    return {"remove": {"path": path} | others}


def opened(root):
    return DeltaTable(TablePlace(str(root), RealFiles(), None, RealFiles(), TableOptions(None, Stores({}))))


def read(root, number=None):
    """Return the schema and the files of a snapshot, the newest unless told."""
    table = opened(root)
    *_, snapshot = [found for found in table.snapshots() if number in {None, found.number}]
    return table.read(snapshot)


def names(root, number=None):
    return sorted(file.name for file in read(root, number)[1])


def test_the_newest_snapshots_have_the_same_names_everywhere(root, tmp_path):
    """The time is the log's, not the file's; a commit that is being written is no snapshot."""
    for _ in range(MAX_SNAPSHOTS):
        commit(root)
    (root / "_delta_log" / f"{101:020}.json.tmp").write_text("{")
    shutil.copytree(root, tmp_path / "copy")
    for path in (tmp_path / "copy" / "_delta_log").iterdir():
        os.utime(path, (1, 1))
    found = opened(root).snapshots()
    assert found == opened(tmp_path / "copy").snapshots()
    assert [snapshot.number for snapshot in found] == list(range(1, 101))
    assert found[-1].name == "000000000100-20231114T221320100Z"
    assert sorted(snapshot.name for snapshot in found) == [snapshot.name for snapshot in found]


def test_the_last_action_on_a_file_counts(root):
    """With another deletion vector it is another entry; all snapshots stay."""
    commit(root, remove("a"), add("c%20d/e", modificationTime=9))
    commit(root, add("b", deletionVector=VECTOR), remove("b"))
    commit(root, add("a"), remove("b", deletionVector=VECTOR))
    assert [names(root, number) for number in range(4)] == [["a", "b"], ["b", "c d/e"], ["b", "c d/e"], ["a", "c d/e"]]
    (deleted,) = [file.table.deleted for file in read(root, 2)[1] if file.name == "b"]
    assert len(deleted) == 1
    (file,) = [file for file in read(root)[1] if file.name == "c d/e"]
    assert (file.path, file.size_bytes, file.modified_ns) == (f"{root}/c d/e", 5, 9_000_000)
    assert file.table.values == (("n", "7.00"),)


@pytest.mark.parametrize("kind", ["whole", "parts", "sidecars"])
def test_checkpoints_stand_for_the_commits_before(root, kind):
    """Incomplete ones do not count."""
    commit(root, add("c"))
    log = root / "_delta_log"
    rows = [PROTOCOL, METADATA, add("a"), add("c")]
    match kind:
        case "whole":
            checkpoint(log / f"{1:020}.checkpoint.parquet", rows)
        case "parts":
            checkpoint(log / f"{1:020}.checkpoint.{1:010}.{2:010}.parquet", rows[:3])
            assert names(root) == ["a", "b", "c"]
            checkpoint(log / f"{1:020}.checkpoint.{2:010}.{2:010}.parquet", rows[3:])
        case "sidecars":
            (log / "_sidecars").mkdir()
            checkpoint(log / "_sidecars" / "x.parquet", rows[2:])
            size = (log / "_sidecars" / "x.parquet").stat().st_size
            lines = [*rows[:2], {"sidecar": {"path": "x.parquet", "sizeInBytes": size, "modificationTime": 1}}]
            name = f"{1:020}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"
            (log / name).write_text("\n".join(map(json.dumps, lines)))
    assert names(root) == ["a", "c"]
    (log / f"{0:020}.json").unlink()
    (log / f"{2:020}.json").write_text(json.dumps(add("d")))
    assert names(root) == ["a", "c", "d"]
    commit(root)
    (log / f"{4:020}.json").write_text("{}")
    (log / f"{2:020}.json").unlink()
    with pytest.raises(SourceError, match="commit 2 is missing"):
        names(root)


@pytest.mark.parametrize(("files", "hint", "reason"), [
    ({}, None, "neither commits nor a checkpoint"),
    ({}, 1, "_last_checkpoint in its log names checkpoint 1, which is missing"),
    ({"checkpoint": 1}, 2, "_last_checkpoint in its log names checkpoint 2, which is missing"),
    ({f"checkpoint.{1:010}.{2:010}": 1}, None, "only 1 of 2 parts of checkpoint 1, and no commit from it on"),
    ({f"checkpoint.{1:010}.{2:010}": 1, "checkpoint": 0}, 0, "only 1 of 2 parts of checkpoint 1"),
])  # fmt: skip
def test_a_cleaned_log_without_its_end_is_refused(root, files, hint, reason):
    log = root / "_delta_log"
    (log / f"{0:020}.json").unlink()
    for kind, number in files.items():
        checkpoint(log / f"{number:020}.{kind}.parquet", [PROTOCOL, METADATA, add("a")])
    if hint is not None:
        (log / "_last_checkpoint").write_text(json.dumps({"version": hint, "size": 3}))
    with pytest.raises(SourceError, match=reason):
        opened(root).snapshots()


@pytest.mark.parametrize("hint", [None, {}, {"version": 1}, {"version": 2}])
def test_the_newest_checkpoint_of_a_cleaned_log_is_a_snapshot(root, hint):
    """Until its commit or a later one is there; what names the last checkpoint may be missing or old."""
    log = root / "_delta_log"
    commit(root, add("c"))
    checkpoint(log / f"{2:020}.checkpoint.parquet", [PROTOCOL, METADATA, add("a"), add("c"), add("d")])
    if hint is not None:
        (log / "_last_checkpoint").write_text(json.dumps(hint))
    found = opened(root).snapshots()
    assert [snapshot.name[:13] for snapshot in found] == ["000000000000-", "000000000001-", "000000000002-"]
    assert found[-1].name == "000000000002-checkpoint"
    assert (names(root, 1), names(root)) == (["a", "b", "c"], ["a", "c", "d"])
    for path in log.glob("*.json"):
        path.unlink()
    assert opened(root).snapshots() == found[-1:]
    (log / f"{3:020}.json").write_text(json.dumps(add("e")))
    assert [snapshot.number for snapshot in opened(root).snapshots()] == [3]
    assert names(root) == ["a", "c", "d", "e"]


def checkpoint(path, actions):
    columns = {name: [action.get(name) for action in actions] for action in actions for name in action}
    maps = pa.map_(pa.string(), pa.string())
    kinds = {
        "add": pa.struct([("path", pa.string()), ("partitionValues", maps), ("size", pa.int64()),
                          ("modificationTime", pa.int64()), ("stats", pa.string())]),
        "metaData": pa.struct([("id", pa.string()), ("format", pa.struct([("provider", pa.string())])),
                               ("schemaString", pa.string()), ("partitionColumns", pa.list_(pa.string())),
                               ("configuration", maps)]),
    }  # fmt: skip
    pq.write_table(pa.table({name: pa.array(rows, kinds.get(name)) for name, rows in columns.items()}), path)


@pytest.mark.parametrize(("action", "reason"), [
    ({"protocol": {"minReaderVersion": 3, "readerFeatures": ["variantType", "catalogManaged"]}},
     "cannot be read: catalogManaged$"),
    ({"protocol": {"minReaderVersion": 4}}, "those of reader version 4"),
    ({"metaData": METADATA["metaData"] | {"format": {"provider": "orc"}}}, "its files have the format orc"),
    (add("s3://other/x"), "not below the table's directory"),
    (add("d/../../x"), "not below the table's directory"),
    (add("d", deletionVector=VECTOR | {"storageType": "p"}), "the deletion vector '00000' is not below"),
    ({"metaData": {"id": "7", "partitionColumns": []}}, "an entry of its log lacks 'schemaString'"),
    ({"protocol": {"readerFeatures": []}}, "an entry of its log lacks 'minReaderVersion'"),
    ({"add": {"path": "d"}}, "an entry of its log lacks 'size'"),
])  # fmt: skip
def test_tables_that_are_not_read_are_refused_by_name(root, action, reason):
    commit(root, action)
    with pytest.raises(SourceError, match=f"{root}: .*{reason}"):
        read(root)
    assert names(root, 0) == ["a", "b"]

"""Iceberg tables of the tests: deletes of rows, which pyiceberg reads and does not write."""

import json
import zlib

from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate
from pyiceberg.typedef import Record

from tests.unit.dataset.snapshots.delta_tables import vector


class _DeletesWriter(ManifestWriterV2):
    def content(self):
        return ManifestContent.DELETES

    @property
    def _meta(self):
        return {**super()._meta, "content": "deletes"}


def commit_deletes(table, path, data_file, content=DataFileContent.POSITION_DELETES, kind=FileFormat.PARQUET):
    """Commit a snapshot that has the file at `path` as its deletes, in the partition of a data file."""
    before = table.current_snapshot()
    number, sequence = before.snapshot_id + 1, before.sequence_number + 1
    io, place = PyArrowFileIO(), f"{table.location()}/metadata"
    manifest = io.new_output(f"{place}/deletes-{number}.avro")
    entry = DataFile.from_args(
        content=content, file_path=path, file_format=kind, partition=data_file.partition or Record(), record_count=1,
        file_size_in_bytes=len(io.new_input(path)), equality_ids=[1] if content.value == 2 else None,
    )  # fmt: skip
    writer = _DeletesWriter(table.spec(), table.schema(), manifest, number, "null")
    with writer:
        writer.add_entry(ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=number, data_file=entry))
    listed = f"{place}/snap-{number}.avro"
    with write_manifest_list(2, io.new_output(listed), number, before.snapshot_id, sequence, "null") as writer_of_list:
        writer_of_list.add_manifests([*before.manifests(table.io), writer.to_manifest_file()])
    snapshot = Snapshot(
        snapshot_id=number, parent_snapshot_id=before.snapshot_id, sequence_number=sequence, manifest_list=listed,
        timestamp_ms=before.timestamp_ms + 1, summary=Summary(Operation.DELETE), schema_id=before.schema_id,
    )  # fmt: skip
    pointer = SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=number)
    table._do_commit((AddSnapshotUpdate(snapshot=snapshot), pointer), ())


def puffin(path, vectors):
    """Write a Puffin file with a deletion vector for each data file."""
    data, blobs = b"PFA1", []
    for name, rows in vectors.items():
        data_of = vector(rows)
        framed = len(data_of).to_bytes(4, "big") + data_of + zlib.crc32(data_of).to_bytes(4, "big")
        properties = {"referenced-data-file": name, "cardinality": str(len(rows))}
        blobs.append({"type": "deletion-vector-v1", "fields": [], "snapshot-id": -1, "sequence-number": -1,
                      "offset": len(data), "length": len(framed), "properties": properties})  # fmt: skip
        data += framed
    footer = json.dumps({"blobs": blobs, "properties": {}}).encode()
    path.write_bytes(data + b"PFA1" + footer + len(footer).to_bytes(4, "little") + bytes(4) + b"PFA1")
    return str(path)

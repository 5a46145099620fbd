"""The snapshots of an Iceberg table, through pyiceberg, and the data files and schema of each.

The table's metadata come from a catalog (`catalog` in the settings), from a metadata file that is named, or from the
newest `v<number>.metadata.json` of a Hadoop table, which appears whole.  Names that catalogs give to metadata files say
not which file counts, so a directory with such files alone is refused.

The snapshots are those that led to the current one of the main branch.  pyiceberg reads manifests through the source's
own reader (`_Io`), and plans which deletes apply to which data file.  Paths are taken relative to the table's location:
a copy of the table elsewhere can be read as well.
"""

from __future__ import annotations

import gzip
import io
import json
import re
from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn, final

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io import FileIO, InputFile
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import FileFormat
from pyiceberg.table import StaticTable
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import ListType, MapType, StructType

from gossipkv.dataset.formats.columns.table_rows import FIELD_ID, NAMES_WITHOUT_ID, schema_text, table_column
from gossipkv.dataset.snapshots.table_source import MAX_SNAPSHOTS, Snapshot, TablePlace
from gossipkv.dataset.source.files import DeletedRows, SourceFile, TableFile
from gossipkv.dataset.source.reader import SourceReader
from gossipkv.errors import SourceError
from gossipkv.settings.masking import leaves
from gossipkv.settings.stores import plain_place

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.name_mapping import MappedField
    from pyiceberg.types import IcebergType, NestedField

METADATA: Final = "metadata"
MAX_METADATA_BYTES: Final = 256 << 20  # One file of metadata, or a manifest.
_HADOOP: Final = re.compile(r"v(\d+)(?:\.gz)?\.metadata\.json(?:\.gz)?")


@final
class IcebergTable:
    """An Iceberg table; see `table_source.SnapshotTable`."""

    def __init__(self, place: TablePlace) -> None:
        self.place = place
        self._metadata: TableMetadata | None = None

    def snapshots(self) -> list[Snapshot]:
        metadata = self._metadata = self._load()
        by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
        found: list[Snapshot] = []
        at = by_id.get(metadata.current_snapshot_id or -1)
        while at is not None and len(found) < MAX_SNAPSHOTS:
            found.append(Snapshot(at.sequence_number or 0, at.timestamp_ms, at.snapshot_id))
            at = by_id.get(at.parent_snapshot_id or -1)
        return found[::-1]

    def read(self, snapshot: Snapshot) -> tuple[str, list[SourceFile]]:
        metadata = self._metadata
        assert metadata is not None, "snapshots come first"
        reader = _Io(self.place, metadata.location)
        table = StaticTable(("table",), metadata, metadata.location, reader, NoopCatalog("none"))
        scan = table.scan(snapshot_id=snapshot.id)
        names = _names(mapping) if (mapping := metadata.name_mapping()) is not None else {}
        schema = scan.projection()
        text = schema_text(
            pa.schema([table_column(field.name, partial(_field, field, names)) for field in schema.fields])
        )
        modified_ns = (snapshot.time_ms or 0) * 1_000_000
        return text, [self._data_file(task, metadata, schema, reader, modified_ns) for task in scan.plan_files()]

    def _data_file(
        self, task: FileScanTask, metadata: TableMetadata, schema: Schema, reader: _Io, modified_ns: int
    ) -> SourceFile:
        file = task.file
        if file.file_format != FileFormat.PARQUET:
            self._refuse(f"its file {file.file_path} has the format {file.file_format}; only Parquet can be read")
        columns = {field.field_id: field for field in schema.fields}
        spec = metadata.specs()[file.spec_id]
        values = []
        for number, part in enumerate(spec.fields):
            column = columns.get(part.source_id)
            if column is not None and isinstance(part.transform, IdentityTransform):
                value = file.partition[number]
                text = None if value is None else part.transform.to_human_string(column.field_type, value)
                values.append((column.name, text))
        deleted = tuple(self._deleted(delete, file, reader) for delete in task.delete_files)
        name = reader.relative(file.file_path)
        path = self.place.inner(name, "a data file")
        return SourceFile(name, path, file.file_size_in_bytes, modified_ns, table=TableFile(tuple(values), deleted))

    def _deleted(self, delete: DataFile, file: DataFile, reader: _Io) -> DeletedRows:
        path = self.place.inner(reader.relative(delete.file_path), "a file of deletes")
        if delete.file_format not in {FileFormat.PARQUET, FileFormat.PUFFIN}:
            self._refuse(
                f"its file of deletes {path} has the format {delete.file_format}; only Parquet and Puffin can be read"
            )
        return DeletedRows(path, row_file=file.file_path)

    # -- metadata ------------------------------------------------------------------------------------------------------

    def _load(self) -> TableMetadata:
        if self.place.catalog is not None:
            properties = {name: str(value) for name, value in leaves(self.place.catalog)}
            # A catalog that is kept keeps connections of the thread of this look.
            with load_catalog(properties.pop("name", "default"), **properties) as catalog:
                metadata = catalog.load_table(self.place.name).metadata
            self.place = self.place.moved(plain_place(_plain(metadata.location)))
            return metadata
        name = self.place.name or self._newest()
        data = _read(self.place, self.place.inner(f"{METADATA}/{name}", "a metadata file"))
        if data.startswith(b"\x1f\x8b"):
            data = gzip.GzipFile(fileobj=io.BytesIO(data)).read(MAX_METADATA_BYTES + 1)
            if len(data) > MAX_METADATA_BYTES:
                self._refuse(f"the metadata file {name} has more than {MAX_METADATA_BYTES:,} bytes when it is unpacked")
        return TableMetadataUtil.parse_raw(data.decode())

    def _newest(self) -> str:
        directory = f"{self.place.root}/{METADATA}"
        names = [entry.name for entry in self.place.files.list_directory(directory)]
        numbers = {int(found[1]): name for name in names if (found := _HADOOP.fullmatch(name))}
        if not numbers:
            self._refuse(
                f"no file in {directory} has a name of the form v<number>.metadata.json, so the newest is unknown; set "
                "`table` to a metadata file, or set `catalog`"
            )
        return numbers[max(numbers)]

    def _refuse(self, reason: str) -> NoReturn:
        raise SourceError(f"{self.place.root}: the Iceberg table cannot be read: {reason}", {"file": self.place.root})


# -- the schema --------------------------------------------------------------------------------------------------------


def _names(fields: Iterable[MappedField]) -> dict[int, list[str]]:
    """Return the names of columns, by id, in files that have no ids."""
    found: dict[int, list[str]] = {}
    for field in fields:
        found |= _names(field.fields)
        if field.field_id is not None:
            found[field.field_id] = field.names
    return found


def _field(field: NestedField, names: Mapping[int, list[str]]) -> pa.Field:
    if field.initial_default is not None:
        raise ValueError(f"{field.field_type} with a default for older rows")
    metadata: dict[bytes, str] = {FIELD_ID: str(field.field_id)}
    if names:
        metadata[NAMES_WITHOUT_ID] = json.dumps(names.get(field.field_id, []))
    return pa.field(field.name, _type(field.field_type, names), metadata=metadata)


def _type(kind: IcebergType, names: Mapping[int, list[str]]) -> pa.DataType:
    match kind:
        case StructType():
            return pa.struct([_field(inner, names) for inner in kind.fields])
        case ListType():
            return pa.list_(_type(kind.element_type, names))
        case MapType():
            return pa.map_(_type(kind.key_type, names), _type(kind.value_type, names))
    return schema_to_pyarrow(kind, include_field_ids=False)


# -- files -------------------------------------------------------------------------------------------------------------


@final
class _Io(FileIO):
    """The files of the table, for pyiceberg; any thread may use it."""

    def __init__(self, place: TablePlace, location: str) -> None:
        super().__init__()
        self._place = place
        self._location = f"{_plain(location).rstrip('/')}/"

    def relative(self, path: str) -> str:
        """Return the name below the table's directory; a path elsewhere stays whole, and is then refused."""
        return _plain(path).removeprefix(self._location)

    def new_input(self, location: str) -> InputFile:
        return _Input(location, self._place, self._place.inner(self.relative(location), "a manifest"))

    def new_output(self, location: str) -> NoReturn:
        raise NotImplementedError(location)

    def delete(self, location: object) -> NoReturn:
        raise NotImplementedError(location)


@final
class _Input(InputFile):
    def __init__(self, location: str, place: TablePlace, path: str) -> None:
        super().__init__(location)
        self._place = place
        self._path = path

    def __len__(self) -> int:
        return self._place.files.stat(self._path).size_bytes

    def exists(self) -> bool:
        return True

    def open(self, seekable: bool = True) -> io.BytesIO:  # noqa: FBT001, FBT002  # pyiceberg has it so.
        del seekable
        return io.BytesIO(_read(self._place, self._path))


def _read(place: TablePlace, path: str) -> bytes:
    entry = place.files.stat(path)
    if entry.size_bytes > MAX_METADATA_BYTES:
        raise SourceError(
            f"{path}: the file has {entry.size_bytes:,} bytes; the limit is {MAX_METADATA_BYTES:,} bytes",
            {"file": path},
        )
    file = SourceFile(path, path, entry.size_bytes, entry.modified_ns, entry.tag)
    with SourceReader(place.files, file) as reader:
        return reader.read_at(0, entry.size_bytes)


def _plain(path: str) -> str:
    """Return a location in the one form that writers give it: `file:` is a path, `s3a:` is `s3:`."""
    return re.sub(r"^s3[an]:", "s3:", re.sub(r"^file:(//)?(?=/)", "", path))

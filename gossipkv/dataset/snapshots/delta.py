"""The log of a Delta table, read by its protocol, and the data files and schema of a snapshot.

    _delta_log/00000000000000000012.json                 a commit: lines of actions
    _delta_log/00000000000000000010.checkpoint*.parquet  all actions up to a commit; one file, parts, or with sidecars

A commit appears whole, so a look finds either the old or the new snapshot.  A snapshot is a checkpoint and the commits
after it: the last action on a file counts.  Its files, and which of their rows are deleted, stand in the log alone.
The newest checkpoint is a snapshot of its own if a cleaned log has no commit from it on.  `_last_checkpoint` may be
missing or stale; it only tells such a log from one that has lost its end.

The tests compare with the `deltalake` package.

Source: https://github.com/delta-io/delta/blob/master/PROTOCOL.md
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, final  # Any: the values of JSON.
from urllib.parse import unquote
from uuid import UUID

import pyarrow as pa
from pyarrow import parquet as pq

from gossipkv.dataset.formats.columns.arrow_file import ArrowFile
from gossipkv.dataset.formats.columns.table_rows import FIELD_ID, STORED_NAME, schema_text, table_column
from gossipkv.dataset.snapshots.table_source import MAX_SNAPSHOTS, Snapshot
from gossipkv.dataset.source.files import DeletedRows, SourceFile, TableFile
from gossipkv.dataset.source.reader import SourceReader
from gossipkv.dataset.source.remote import announced
from gossipkv.errors import SourceChanged, SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gossipkv.dataset.snapshots.table_source import TablePlace

    Action = Mapping[str, Any]  # type: ignore[explicit-any]  # JSON, as the protocol has it.

LOG: Final = "_delta_log"
LAST_CHECKPOINT: Final = "_last_checkpoint"
MAX_READER_VERSION: Final = 3
# Variants count where a column has them: some writers name the feature in every table.
FEATURES: Final = frozenset({
    "columnMapping", "deletionVectors", "timestampNtz", "typeWidening", "typeWidening-preview", "v2Checkpoint",
    "vacuumProtocolCheck", "variantShredding", "variantShredding-preview", "variantType", "variantType-preview",
})  # fmt: skip
MAX_ADDED: Final = 1 << 17  # The data files that a log may list, before too many for a version are refused.
MAX_JSON_BYTES: Final = 256 << 20
CHECKPOINT_ROWS: Final = 1024

_COMMIT: Final = re.compile(r"(\d{20})\.json")
_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10})|\.([-0-9a-f]{36}))?\.(?:parquet|json)")
# The columns of a checkpoint that are read; statistics are most of its bytes.
_COLUMNS: Final = [
    "protocol", "metaData", "sidecar", "add.path", "add.partitionValues", "add.size", "add.modificationTime",
    "add.deletionVector",
]  # fmt: skip
# The alphabets of ZeroMQ's and of Python's base 85.
_Z85: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_UUID_CHARACTERS: Final = 20

_TYPES: Final = {
    "string": pa.string(), "long": pa.int64(), "integer": pa.int32(), "short": pa.int16(), "byte": pa.int8(),
    "float": pa.float32(), "double": pa.float64(), "boolean": pa.bool_(), "binary": pa.binary(), "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us"), "void": pa.null(),
}  # fmt: skip


@final
class DeltaTable:
    """A Delta table; see `table_source.SnapshotTable`."""

    def __init__(self, place: TablePlace) -> None:
        self.place = place
        self._times: dict[int, int] = {}  # The times of commits.

    def snapshots(self) -> list[Snapshot]:
        commits, checkpoints = self._log()
        newest = {number: commits[number] for number in sorted(commits)[-MAX_SNAPSHOTS:]}
        self._times = {number: time for number, time in self._times.items() if number in newest}
        unknown = [number for number in newest if number not in self._times]
        announced(self.place.files, [newest[number] for number in unknown])
        for number in unknown:
            try:
                self._times[number] = self._time_of(newest[number])
            except SourceChanged:  # It is being deleted with the oldest part of the log.
                continue
        found = [Snapshot(number, time, number) for number, time in self._times.items()]
        last = max(checkpoints, default=-1)
        return found if last <= max(commits, default=-1) else [*found, Snapshot(last, None, last)]

    def read(self, snapshot: Snapshot) -> tuple[str, list[SourceFile]]:
        commits, checkpoints = self._log()
        base = max((number for number in checkpoints if number <= snapshot.id), default=-1)
        missing = next((number for number in range(base + 1, snapshot.id + 1) if number not in commits), None)
        if missing is not None:
            raise self._refusal(f"commit {missing} is missing in its log, so snapshot {snapshot.name} cannot be read")
        state = _State()
        parts = [*checkpoints.get(base, ()), *(commits[number] for number in range(base + 1, snapshot.id + 1))]
        announced(self.place.files, parts)
        for part in parts:
            for action in self._actions(part):
                if (sidecar := action.get("sidecar")) is not None:
                    for inner in self._actions(self._sidecar(sidecar)):
                        state.take(inner)
                state.take(action)
            if len(state.added) > MAX_ADDED:
                raise self._refusal(f"it has more than {MAX_ADDED:,} data files; compact it (OPTIMIZE)")
        try:
            schema, partitions = self._schema(state)
            return schema, [self._data_file(add, partitions) for add in state.added.values()]
        except KeyError as error:
            raise self._refusal(f"an entry of its log lacks {error}") from error

    # -- the log -------------------------------------------------------------------------------------------------------

    def _log(self) -> tuple[dict[int, SourceFile], dict[int, list[SourceFile]]]:
        """Return the files of the commits, and of complete checkpoints, by number; refuse a log without its end."""
        directory = f"{self.place.root}/{LOG}"
        commits: dict[int, SourceFile] = {}
        checkpoints: dict[int, list[SourceFile]] = {}
        parts: dict[tuple[str, int, str], list[SourceFile]] = {}
        hint: SourceFile | None = None
        for entry in self.place.files.list_directory(directory):
            path = f"{directory}/{entry.name}"
            file = SourceFile(entry.name, path, entry.size_bytes, entry.modified_ns, entry.tag)
            if found := _COMMIT.fullmatch(entry.name):
                commits[int(found[1])] = file
            elif found := _CHECKPOINT.fullmatch(entry.name):
                count = int(found[3] or 1)
                together = parts.setdefault((found[1], count, found[4]), [])
                together.append(file)
                if len(together) == count:
                    checkpoints[int(found[1])] = together
            elif entry.name == LAST_CHECKPOINT:
                hint = file
        newest = max(commits | checkpoints, default=-1)
        for (number, count, _), together in parts.items():
            if int(number) > newest:
                here = f"{len(together)} of {count} parts of checkpoint {int(number)}"
                raise self._refusal(f"its log has only {here}, and no commit from it on")
        last = -1 if hint is None or newest in commits else next(self._actions(hint), {}).get("version", -1)
        if last > newest:
            raise self._refusal(f"{LAST_CHECKPOINT} in its log names checkpoint {last}, which is missing")
        if newest < 0:
            raise self._refusal("its log has neither commits nor a checkpoint")
        return commits, checkpoints

    def _sidecar(self, action: Action) -> SourceFile:
        name = str(action["path"])
        path = f"{self.place.root}/{LOG}/_sidecars/{name.rpartition('/')[2]}"
        return SourceFile(name, path, int(action["sizeInBytes"]), 0, table=TableFile())

    def _time_of(self, commit: SourceFile) -> int:
        """Return the time that a commit tells, in milliseconds since 1970; 0 if it tells none."""
        for action in self._actions(commit):
            if (info := action.get("commitInfo")) is not None:
                return int(info.get("inCommitTimestamp") or info.get("timestamp") or 0)
        return 0

    def _actions(self, file: SourceFile) -> Iterator[Action]:
        is_json = not file.name.endswith(".parquet")
        if is_json and file.size_bytes > MAX_JSON_BYTES:
            raise self._refusal(
                f"{file.name} in its log has {file.size_bytes:,} bytes; the limit is {MAX_JSON_BYTES:,} bytes"
            )
        try:
            with SourceReader(self.place.files, file) as reader:
                if is_json:
                    yield from map(json.loads, _lines(reader))
                else:
                    rows = pq.ParquetFile(ArrowFile(reader), pre_buffer=False)
                    for batch in rows.iter_batches(CHECKPOINT_ROWS, columns=_COLUMNS, use_threads=False):
                        yield from batch.to_pylist(maps_as_pydicts="strict")
        except ValueError as error:  # JSON and Arrow do not say which file it was.
            raise self._refusal(f"{file.name} in its log cannot be read: {error}") from error

    # -- a snapshot ----------------------------------------------------------------------------------------------------

    def _schema(self, state: _State) -> tuple[str, dict[str, str]]:
        """Return the schema, and the names of partition columns in the log, by name."""
        protocol, metadata = state.protocol, state.metadata
        if protocol is None or metadata is None:
            raise self._refusal("its log has no protocol or no schema")
        unknown = sorted({*(protocol.get("readerFeatures") or ())} - FEATURES)
        if protocol["minReaderVersion"] > MAX_READER_VERSION or unknown:
            features = ", ".join(unknown) or f"those of reader version {protocol['minReaderVersion']}"
            raise self._refusal(f"its features cannot be read: {features}")
        if (provider := metadata.get("format", {}).get("provider", "parquet")) != "parquet":
            raise self._refusal(f"its files have the format {provider}; only Parquet can be read")
        mapping = (metadata.get("configuration") or {}).get("delta.columnMapping.mode", "none")
        columns = {field["name"]: field for field in json.loads(metadata["schemaString"])["fields"]}
        partitions = {name: _stored_name(columns[name], mapping) for name in metadata["partitionColumns"]}
        fields = [table_column(name, partial(_field, field, mapping)) for name, field in columns.items()]
        # The values of partition columns are those of the log, whatever a file has.
        fields = [field.with_metadata({STORED_NAME: b""}) if field.name in partitions else field for field in fields]
        return schema_text(pa.schema(fields)), partitions

    def _data_file(self, add: Action, partitions: Mapping[str, str]) -> SourceFile:
        name = unquote(str(add["path"]))
        values = add.get("partitionValues") or {}
        texts = tuple((column, values.get(stored) or None) for column, stored in partitions.items())
        deleted = add.get("deletionVector")
        table = TableFile(texts, () if deleted is None else (self._deleted(deleted),))
        modified_ns = int(add.get("modificationTime") or 0) * 1_000_000
        return SourceFile(name, self.place.inner(name, "a data file"), int(add["size"]), modified_ns, table=table)

    def _deleted(self, vector: Action) -> DeletedRows:
        text = str(vector["pathOrInlineDv"])
        match vector["storageType"]:
            case "i":
                return DeletedRows(inline=base64.b64encode(_z85(text)).decode())
            case "u":
                above, number = text[:-_UUID_CHARACTERS], UUID(bytes=_z85(text[-_UUID_CHARACTERS:]))
                name = f"{above}/deletion_vector_{number}.bin".lstrip("/")
                return DeletedRows(self.place.inner(name, "a deletion vector"), int(vector.get("offset") or 0))
        raise self._refusal(f"the deletion vector {text!r} is not below the table's directory; write a deep clone")

    def _refusal(self, reason: str) -> SourceError:
        return SourceError(f"{self.place.root}: the Delta table cannot be read: {reason}", {"file": self.place.root})


@dataclass(slots=True)
class _State:
    """The sum of actions."""

    protocol: Action | None = None
    metadata: Action | None = None
    added: dict[tuple[str, str], Action] = field(default_factory=dict)  # By path and deletion vector.

    def take(self, action: Action) -> None:
        """Apply the next action; a row of a checkpoint has all kinds, and one that is not null."""
        if (add := action.get("add")) is not None:
            self.added[_key(add)] = add
        elif (remove := action.get("remove")) is not None:
            self.added.pop(_key(remove), None)
        self.protocol = action.get("protocol") or self.protocol
        self.metadata = action.get("metaData") or self.metadata


def _key(action: Action) -> tuple[str, str]:
    vector = action.get("deletionVector")
    text = "" if vector is None else f"{vector['storageType']}{vector['pathOrInlineDv']}@{vector.get('offset') or 0}"
    return action["path"], text


def _lines(reader: SourceReader) -> Iterator[bytes]:
    rest = b""
    for chunk in reader.chunks():
        *lines, rest = (rest + chunk).split(b"\n")
        yield from filter(bytes.strip, lines)
    if rest.strip():
        yield rest


def _z85(text: str) -> bytes:
    return base64.b85decode(text.translate(str.maketrans(_Z85, _B85)))


# -- the schema --------------------------------------------------------------------------------------------------------


def _stored_name(column: Action, mapping: str) -> str:
    return str(column["name"] if mapping == "none" else column["metadata"]["delta.columnMapping.physicalName"])


def _field(column: Action, mapping: str) -> pa.Field:
    """Return a field that says by what it is found in a file."""
    found = {STORED_NAME: _stored_name(column, mapping)}
    if mapping == "id":
        found = {FIELD_ID: str(column["metadata"]["delta.columnMapping.id"])}
    return pa.field(column["name"], _type(column["type"], mapping), metadata=found)


def _type(kind: str | Action, mapping: str) -> pa.DataType:
    if isinstance(kind, str):
        if decimal := re.fullmatch(r"decimal\((\d+), ?(\d+)\)", kind):
            return pa.decimal128(int(decimal[1]), int(decimal[2]))
        if kind not in _TYPES:
            raise ValueError(kind)
        return _TYPES[kind]
    match kind["type"]:
        case "struct":
            return pa.struct([_field(inner, mapping) for inner in kind["fields"]])
        case "array":
            return pa.list_(_type(kind["elementType"], mapping))
        case "map":
            return pa.map_(_type(kind["keyType"], mapping), _type(kind["valueType"], mapping))
    raise ValueError(kind["type"])

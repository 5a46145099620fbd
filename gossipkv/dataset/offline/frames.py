"""Versions from data frames: anything that exports Arrow's stream becomes sorted files.

Rows are read batch by batch and sorted within a fixed memory; what does not fit goes through scratch files.  pandas,
polars, DuckDB and pyarrow export the stream (`__arrow_c_stream__`); of Dask, Ray and others each part does.

An engine's tasks do the same in two steps: each sorts its rows into runs, one for each partition, and the runs of a
partition are merged.  A run is an attempt (`destinations`), so whatever killed tasks leave is removed at the end.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from itertools import repeat
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from gossipkv.dataset.build.reading_in import Assigner
from gossipkv.dataset.formats.excerpt import excerpt
from gossipkv.dataset.formats.reading import FileReading
from gossipkv.dataset.formats.sorted_files import walk
from gossipkv.dataset.local.manifest import partition_name
from gossipkv.dataset.local.partition import PartitionClaim
from gossipkv.dataset.offline.destinations import attempt_name, destination
from gossipkv.dataset.offline.finish import finish_version
from gossipkv.dataset.offline.writer import check_partitioning, refuse_finished
from gossipkv.errors import SourceError
from gossipkv.keyspace import partitioner
from gossipkv.storage.batch import RecordBatch
from gossipkv.storage.builder import DEFAULT_MEMORY_BYTES, SortedFileBuilder
from gossipkv.storage.label import CheckedBody, read_label

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from types import ModuleType

    import pyarrow as pa

    from gossipkv.dataset.formats.columns.arrow_rows import ArrowRows
    from gossipkv.dataset.offline.destinations import Destination
    from gossipkv.dataset.offline.finish import VersionReport
    from gossipkv.environment.seam import Files
    from gossipkv.settings.masking import Option

PARTITIONS: Final = 16
_NAME: Final = "the frame"
BATCH_ROWS: Final = 16_384  # Few enough to stay in the cache between their conversion and their sorting.


@runtime_checkable
class ArrowStream(Protocol):
    """An object that exports Arrow's stream of record batches."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...


def write_frame(
    frame: ArrowStream | Iterable[ArrowStream],
    path: str | os.PathLike[str],
    *,
    key: str | Sequence[str] = "key",
    value: str | Sequence[str] = "value",
    separator: str | None = None,
    encoding: str = "json",
    nulls: str = "omit",
    partitions: int = PARTITIONS,
    function: str = "sequins",
    compression: str = "none",
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
    storage_options: Mapping[str, Option] | None = None,
    files: Files | None = None,
) -> VersionReport:
    """Write a data frame as a version of sorted files, and declare it complete.

    Args:
        frame: a data frame that exports Arrow's stream, or several, one after the other; each is read once.
        path: the version, as for `write_partition`; it must not be finished yet.
        key: the column of keys; several make a MessagePack array, or are joined by the `separator`.
        value: the column of values; several, or "*" for all, make a row.
        separator: joins the columns of a key.
        encoding: of rows, "json" or "msgpack".
        nulls: "omit" leaves null columns of rows out, "null" keeps them.
        partitions: the number of files.
        function: the partition function, a name from `gossipkv.keyspace.partitioner.FUNCTIONS`.
        compression: "none" or "lz4" (for data larger than memory).
        memory_bytes: for sorting, from 8 MiB; more rows than fit go through scratch files.
        storage_options: options of fsspec for a URL.
        files: the file operations to use.

    Raises:
        SourceError: a row cannot be served; names it.
        TypeError: the frame exports no stream.
        ValueError: an argument is out of its range.
        StorageError: the version is finished, or the file system refuses.
    """
    reading = FileReading(fields(key), fields(value), separator=separator, encoding=encoding, nulls=nulls)
    writing = FrameWriting(path, reading, partitions, function, compression, memory_bytes, storage_options, files)
    place = writing.begin()
    names = [partition_name(partition) for partition in range(partitions)]
    with place.workspace() as workspace:
        writing.sort(_arrow_batches(frame), workspace, names)
        for name in names:
            place.publish(workspace / name, name)
    return writing.finish()


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs of one task, sorted."""

    task: int
    attempt: str
    partitions: tuple[int, ...]  # Those that have records.


@dataclass(frozen=True, slots=True)
class FrameWriting:
    """How rows become a version; any task may have a copy of it."""

    path: str | os.PathLike[str]
    reading: FileReading
    partitions: int = PARTITIONS
    function: str = "sequins"
    compression: str = "none"
    memory_bytes: int = DEFAULT_MEMORY_BYTES
    storage_options: Mapping[str, Option] | None = field(default=None, repr=False)
    files: Files | None = None

    def begin(self) -> Destination:
        """Return the destination, if the version may still be written.  Raises as `write_frame`."""
        check_partitioning(0, self.partitions, self.function)
        place = destination(self.path, self.storage_options, files=self.files)
        refuse_finished(place, partition_name(0))
        return place

    def finish(self) -> VersionReport:
        """Declare the version complete.  Raises as `finish_version`."""
        return finish_version(
            self.path,
            self.partitions,
            function=self.function,
            storage_options=self.storage_options,
            files=self.files,
        )

    def sort(self, rows: Iterable[pa.RecordBatch], workspace: Path, names: Sequence[str]) -> list[int]:
        """Write the rows of each partition into a sorted file of the workspace; return their numbers of records."""
        with self._builder(workspace, range(self.partitions), names) as builder:
            for batch in self._assigned(rows):
                builder.add_batch(batch)
            return [report.records for report in builder.finish()]

    def partitions_of(self, rows: pa.RecordBatch) -> list[int]:
        """Return the partition of each row."""
        return [partition for batch in self._assigned([rows]) for partition in batch.groups()]

    def write_runs(self, rows: Iterable[pa.RecordBatch], task: int) -> Runs:
        """Sort the rows of one task into runs."""
        place, attempt = self.begin(), attempt_name()
        names = [f"{attempt}-{partition_name(partition)}" for partition in range(self.partitions)]
        with place.workspace() as workspace:
            records = self.sort(rows, workspace, names)
            held = [partition for partition, count in enumerate(records) if count]
            for partition in held:
                place.publish(workspace / names[partition], names[partition])
        return Runs(task, attempt, tuple(held))

    def merge(self, partition: int, runs: Iterable[Runs]) -> None:
        """Write a partition from the runs of all tasks; of equal keys that of the last task stays."""
        place, name = self.begin(), partition_name(partition)
        found = [run for run in sorted(runs, key=lambda run: run.task) if partition in run.partitions]
        with place.workspace() as workspace:
            with self._builder(workspace, [partition], [name]) as builder:
                for run in found:
                    with place.open(f"{run.attempt}-{name}") as file:
                        label = read_label(file)
                        for batch in walk(CheckedBody(file, label.body_bytes), label):
                            builder.add_batch(batch)
                builder.finish()
            place.publish(workspace / name, name)

    def write_partition(self, rows: Iterable[pa.RecordBatch], partition: int) -> None:
        """Write a partition from rows that are all of it."""
        place, name = self.begin(), partition_name(partition)
        with place.workspace() as workspace:
            with self._builder(workspace, [partition], [name]) as builder:
                for batch in self._assigned(rows, only=partition):
                    builder.add_batch(batch)
                builder.finish()
            place.publish(workspace / name, name)

    def _builder(self, workspace: Path, partitions: Iterable[int], names: Sequence[str]) -> SortedFileBuilder:
        return SortedFileBuilder(
            workspace,
            names,
            files=self.files,
            memory_bytes=self.memory_bytes,
            compression=self.compression,
            metadata=[
                PartitionClaim(self.function, self.partitions, partition).to_metadata() for partition in partitions
            ],
        )

    def _assigned(self, rows: Iterable[pa.RecordBatch], *, only: int | None = None) -> Iterator[RecordBatch]:
        """Yield the records with their partition as the number of their file; with `only` there is one file."""
        function = partitioner.code(self.function)
        if only is None:
            assigner = Assigner(function, range(self.partitions))
        else:
            assigner = Assigner(function, list(repeat(0, self.partitions)), [function])
            assigner.begin_file([only])
        for batch in _batches(rows, self.reading):
            strays = assigner.assign(batch)
            if assigner.homeless >= 0:
                homeless = excerpt(batch.keys(assigner.homeless + 1)[-1])
                reason = f"the key {homeless} is not UTF-8, but {self.function!r} hashes only UTF-8 text"
                raise SourceError(f"the frame: {reason}", {"reason": reason})
            assert all(stray < 0 for stray in strays), (only, strays)
            yield batch


def fields(names: str | Iterable[str]) -> str | tuple[str, ...]:
    """Return the names of columns in the form for reading."""
    return names if isinstance(names, str) else tuple(names)


def _arrow_batches(frame: ArrowStream | Iterable[ArrowStream]) -> Iterator[pa.RecordBatch]:
    arrow = _load("pyarrow")
    for each in [frame] if isinstance(frame, ArrowStream) else frame:
        yield from arrow.RecordBatchReader.from_stream(each)


def _load(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        reason = "frames need pyarrow, which is not installed; run `pip install 'gossipkv[parquet]'`"
        raise SourceError(reason, {"reason": reason}) from error


def _batches(rows: Iterable[pa.RecordBatch], reading: FileReading) -> Iterator[RecordBatch]:
    """Yield the records of Arrow's batches, by the rules for columns of files."""
    arrow_rows = _load("gossipkv.dataset.formats.columns.arrow_rows")
    batch, before = RecordBatch(), 0
    converters: dict[str, ArrowRows] = {}
    for whole in rows:
        schema = str(whole.schema)
        if schema not in converters:
            converters[schema] = _converter(arrow_rows, whole.schema, reading)
        for first in range(0, whole.num_rows, BATCH_ROWS):
            part = whole.slice(first, BATCH_ROWS).select(converters[schema].columns)
            place = arrow_rows.FramePlace(_NAME, 0, "frame", before)
            yield from converters[schema].records(part, place, batch)
            before += part.num_rows


def _converter(arrow_rows: ModuleType, schema: pa.Schema, reading: FileReading) -> ArrowRows:
    try:
        converter: ArrowRows = arrow_rows.ArrowRows(_NAME, schema, reading)
    except SourceError as error:  # It names a byte, and a frame has none.
        reason = str(error.details["reason"])
        raise SourceError(f"{_NAME}: {reason}", {"reason": reason}) from None
    return converter

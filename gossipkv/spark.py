"""Datasets from Spark, and as its DataFrames: `import gossipkv.spark` needs PySpark 4.1, and nothing of a node.

    gossipkv.spark.write(frame, "/srv/out/geo", key="country", value="city")       the fast way

    gossipkv.spark.register(spark)
    frame.write.format("gossipkv").option("path", "/srv/out/geo").option("key", "country").mode("append").save()
    spark.read.format("gossipkv").load("/srv/out/geo")

`write` repartitions by our hash, and each task sorts one partition.  A data source cannot ask for that: each of its
tasks sorts its rows into a run for each partition, and the driver merges them.  A task that is killed or runs twice
does no harm: its files have names of their own, and only those of tasks that Spark counts are merged.

A version never changes, so the only mode is "append", into a directory that is not finished.
"""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.functions import arrow_udf

from gossipkv.dataset.formats.columns.arrow_rows import ArrowRows
from gossipkv.dataset.formats.reading import FileReading
from gossipkv.dataset.formats.sorted_files import walk
from gossipkv.dataset.local.manifest import partition_name
from gossipkv.dataset.offline.destinations import destination
from gossipkv.dataset.offline.frames import PARTITIONS, FrameWriting, Runs, fields
from gossipkv.settings import quantity
from gossipkv.storage.builder import DEFAULT_MEMORY_BYTES, MIN_MEMORY_BYTES
from gossipkv.storage.label import CheckedBody, read_label

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from gossipkv.dataset.offline.finish import VersionReport
    from gossipkv.settings.masking import Option

FORMAT: Final = "gossipkv"
MERGES_AT_ONCE: Final = 4
_STORAGE: Final = "storage."  # Options that begin so are those of the store.


def register(spark: SparkSession) -> None:
    """Make the format "gossipkv" known to a session."""
    spark.dataSource.register(GossipKVDataSource)


def write(
    frame: DataFrame,
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
) -> VersionReport:
    """Write a DataFrame as a version of sorted files, each by a task of its own, and declare it complete.

    The arguments are those of `gossipkv.dataset.write_frame`; every executor and the driver reach `path`.
    """
    reading = FileReading(fields(key), fields(value), separator=separator, encoding=encoding, nulls=nulls)
    writing = FrameWriting(os.fspath(path), reading, partitions, function, compression, memory_bytes, storage_options)
    place = writing.begin()
    columns = frame.select(*ArrowRows.wanted(reading, frame.columns))
    names = [key] if isinstance(key, str) else list(key)
    of_keys = replace(writing, reading=replace(reading, value=names[0]))

    def partition_of(*keys: pa.Array) -> pa.Array:  # Values stay in Spark meanwhile.
        return pa.array(of_keys.partitions_of(pa.record_batch([*keys], names)), pa.int32())

    def sort(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        writing.write_partition(batches, context.partitionId())
        yield pa.record_batch({"partition": pa.array([context.partitionId()], pa.int32())})

    assigned = columns.repartitionById(partitions, arrow_udf(partition_of, "int")(*names))
    done = {row.partition for row in assigned.mapInArrow(sort, "partition int").collect()}
    for partition in set(range(partitions)) - done:
        writing.write_partition([], partition)
    assert set(place.names()) >= {partition_name(partition) for partition in range(partitions)}
    return writing.finish()


class GossipKVDataSource(DataSource):
    """The format "gossipkv": writes a version from rows of keys and values, and reads one."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return "key binary, value binary"

    def reader(self, schema: StructType) -> VersionReader:
        return VersionReader(self._path(), self._storage_options(), [field.dataType.typeName() for field in schema])

    def writer(self, schema: StructType, overwrite: bool) -> VersionWriter:  # noqa: FBT001  # Spark's form.
        del schema
        if overwrite:
            raise ValueError(
                'a version cannot change; write with mode("append") into a directory that does not exist yet'
            )
        options = self.options
        memory_bytes = quantity.parse(options.get("memory", "256MiB"), quantity.SIZE)
        if memory_bytes < MIN_MEMORY_BYTES:
            raise ValueError(f"the option memory must be at least {quantity.show(MIN_MEMORY_BYTES, quantity.SIZE)}")
        writing = FrameWriting(
            self._path(),
            FileReading(
                _fields(options.get("key", "key")),
                _fields(options.get("value", "value")),
                separator=options.get("separator"),
                encoding=options.get("encoding", "json"),
                nulls=options.get("nulls", "omit"),
            ),
            int(options.get("partitions", PARTITIONS)),
            options.get("function", "sequins"),
            options.get("compression", "none"),
            memory_bytes,
            self._storage_options(),
        )
        writing.begin()
        return VersionWriter(writing)

    def _path(self) -> str:
        if "path" not in self.options:
            raise ValueError(
                'the path of the version is missing; give it as option("path", …) or as the argument of load or save'
            )
        return str(self.options["path"])

    def _storage_options(self) -> dict[str, Option]:
        return {name.removeprefix(_STORAGE): value for name, value in self.options.items() if name.startswith(_STORAGE)}


def _fields(text: str) -> str | tuple[str, ...]:
    """Read a name, or a list of names as JSON."""
    return tuple(map(str, json.loads(text))) if text.startswith("[") else text


class TaskRuns(WriterCommitMessage):
    """The runs of a task, on their way to the driver."""

    def __init__(self, runs: Runs) -> None:
        self.runs = runs


class VersionWriter(DataSourceArrowWriter):
    """Writes the rows of tasks as runs, and merges them at the end."""

    def __init__(self, writing: FrameWriting) -> None:
        self._writing = writing

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskRuns:
        context = TaskContext.get()
        assert context is not None
        return TaskRuns(self._writing.write_runs(iterator, context.partitionId()))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        writing = self._writing
        runs = [message.runs for message in messages if isinstance(message, TaskRuns)]
        at_once = min(MERGES_AT_ONCE, max(1, writing.memory_bytes // MIN_MEMORY_BYTES))
        each = replace(writing, memory_bytes=max(MIN_MEMORY_BYTES, writing.memory_bytes // at_once))
        with ThreadPoolExecutor(at_once) as merges:
            list(merges.map(lambda partition: each.merge(partition, runs), range(writing.partitions)))
        writing.finish()

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        del messages  # Tasks that failed have told nothing.
        self._writing.begin().remove_attempts()


class VersionFile(InputPartition):
    """One sorted file of a version."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class VersionReader(DataSourceReader):
    """Reads a version of sorted files, a task each."""

    def __init__(self, path: str, storage_options: Mapping[str, Option], types: list[str]) -> None:
        self._path, self._options = path, storage_options
        self._types = [pa.string() if name == "string" else pa.binary() for name in types]

    def partitions(self) -> list[InputPartition]:
        names = destination(self._path, self._options).names()
        return [VersionFile(name) for name in names if not name.startswith(("_", "."))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, VersionFile)
        with destination(self._path, self._options).open(partition.name) as file:
            label = read_label(file)
            for batch in walk(CheckedBody(file, label.body_bytes), label):
                columns = zip(*batch, strict=True)
                arrays = [
                    pa.array(column, pa.binary()).cast(kind) for column, kind in zip(columns, self._types, strict=True)
                ]
                yield pa.record_batch(arrays, names=["key", "value"])

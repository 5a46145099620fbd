"""The writer of sorted files beside the data: a plain function for tasks of Spark, Dask or any pool of processes.

    write_partition(directory, partition, partitions, records)     in each task, on any machine
    finish_version(directory, partitions)                          once, when all tasks are done

Each task writes the sorted file of one partition, `part-00003.gkv`; a node that finds only such files copies and checks
them instead of sorting everything again.

Invariant: `part-NNNNN.gkv` is complete or absent, and every key in it belongs to partition NNNNN. Engines repeat a task
after a lost machine, or run it twice.  Each attempt uses a name of its own, and the last to finish stays, with the same
records.  Writes after `finish_version` are refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gossipkv.dataset.formats.excerpt import excerpt
from gossipkv.dataset.local.manifest import partition_name
from gossipkv.dataset.local.partition import PartitionClaim
from gossipkv.dataset.offline.destinations import destination
from gossipkv.dataset.source.listing import MAX_FILES, SUCCESS_FILE
from gossipkv.errors import SourceError, StorageError
from gossipkv.keyspace import partitioner
from gossipkv.storage.builder import DEFAULT_MEMORY_BYTES, SortedFileBuilder

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Mapping

    from gossipkv.dataset.offline.destinations import Destination
    from gossipkv.environment.seam import Files
    from gossipkv.settings.masking import Option

Bytes = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """The result of a task."""

    name: str
    partition: int
    partitions: int
    function: str
    records: int
    duplicates: int  # A later record with the same key replaced these records.
    size_bytes: int


def partition_of(key: Bytes, partitions: int, function: str = "sequins") -> int:
    """Return the partition of a key, by which records must be partitioned before they are written.

    Raises:
        TypeError: the key is not bytes.
        ValueError: no function has that name, the number is out of range, or the function needs text and the key is
            not UTF-8.
    """
    check_partitioning(0, partitions, function)
    return partitioner.partition(function, _bytes(key, "a key"), partitions)


def write_partition(
    directory: str | os.PathLike[str],
    partition: int,
    partitions: int,
    records: Iterable[tuple[Bytes, Bytes]],
    *,
    function: str = "sequins",
    compression: str = "none",
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
    storage_options: Mapping[str, Option] | None = None,
    files: Files | None = None,
) -> PartitionReport:
    """Write the sorted file of one partition; return when it is in place, durably.

    Args:
        directory: the version, `<root>/<database>/<version>`; made if necessary.  A path that every task and the nodes
            reach, or a URL that fsspec opens; for a URL the file is made in `TMPDIR` and uploaded.
        partition: its number, from 0.
        partitions: the number of partitions.
        records: keys and values in any order; of equal keys the last one stays.  Every key is checked.
        function: the partition function, a name from `gossipkv.keyspace.partitioner.FUNCTIONS`.
        compression: "none" or "lz4" (for data larger than memory).
        memory_bytes: for sorting, from 8 MiB; more records than fit go through scratch files.
        storage_options: options of fsspec for a URL.
        files: the file operations to use.

    Raises:
        SourceError: a key belongs to another partition, or has none.
        TypeError: a key or a value is not bytes.
        ValueError: an argument is out of its range.
        LimitExceeded: a key, a value or the file is over the sorted file's limits.
        StorageError: the version is finished, or the file system refuses.
    """
    check_partitioning(partition, partitions, function)
    place = destination(directory, storage_options, files=files)
    name = partition_name(partition)
    refuse_finished(place, name)
    with place.workspace() as workspace:
        with SortedFileBuilder(
            workspace,
            [name],
            files=files,
            memory_bytes=memory_bytes,
            compression=compression,
            metadata=PartitionClaim(function, partitions, partition).to_metadata(),
        ) as builder:
            builder.add_all(_checked(records, partition, partitions, function, f"{place.name}/{name}"))
            report = builder.finish()[0]
        refuse_finished(place, name)
        place.publish(workspace / name, name)
    return PartitionReport(name, partition, partitions, function, report.records, report.duplicates, report.size_bytes)


def check_partitioning(partition: int, partitions: int, function: str) -> None:
    """Raise ValueError if an argument is out of its range."""
    partitioner.code(function)
    if not 0 < partitions <= MAX_FILES:
        raise ValueError(f"partitions must be from 1 to {MAX_FILES:,}, got {partitions}")
    if not 0 <= partition < partitions:
        raise ValueError(f"partition must be from 0 to {partitions - 1}, got {partition}")


def refuse_finished(place: Destination, name: str) -> None:
    """Refuse to change a finished version: nodes may be reading it, and would see damage or begin anew."""
    if place.exists(SUCCESS_FILE):
        raise StorageError(
            f"{place.name}/{name}: the version is finished, because it has a file {SUCCESS_FILE}; write a version "
            "under another name",
            {"file": f"{place.name}/{name}"},
        )


def _checked(
    records: Iterable[tuple[Bytes, Bytes]], partition: int, partitions: int, function: str, name: str
) -> Iterator[tuple[bytes, bytes]]:
    """Yield the records as bytes, each checked for its partition."""
    of = partitioner.partition
    for key, value in records:
        found, data = _bytes(key, "a key"), _bytes(value, "a value")
        try:
            belongs = of(function, found, partitions)
        except ValueError as error:
            raise _misplaced(
                name, found, None, f"has no partition by {function!r}, which hashes only UTF-8 text"
            ) from error
        if belongs != partition:
            reason = f"belongs to partition {belongs} of {partitions} by {function!r}, not to {partition}"
            raise _misplaced(name, found, belongs, reason)
        yield found, data


def _misplaced(name: str, key: bytes, partition: int | None, reason: str) -> SourceError:
    return SourceError(
        f"{name}: the key {excerpt(key)} {reason}; partition the records by gossipkv.dataset.partition_of first",
        {"file": name, "key": key, "partition": partition, "reason": reason},
    )


def _bytes(data: Bytes, what: str) -> bytes:
    """Convert the bytes types of engines: Spark makes a bytearray of a BytesWritable."""
    if type(data) is bytes:
        return data
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    raise TypeError(f"{what} must be bytes, not {type(data).__name__}; encode text, for example as UTF-8")

"""The rows about answers as columns, beside the same answers as objects."""

from __future__ import annotations

from time import perf_counter_ns, process_time_ns
from typing import TYPE_CHECKING

import pyarrow as pa

from gossipkv.client import blocking
from tests.bench import data, goals, machine
from tests.bench.cluster import nodes
from tests.bench.measurement import WrongAnswerError
from tests.bench.processes import DATABASE
from tests.bench.sources import by_hash, write_database

if TYPE_CHECKING:
    from tests.bench.measurement import Bench

FILES = 16
MANY = 10_000
PAGE_TIMEOUT_MS = 30_000


def measure(bench: Bench, *, records: int = 10_000_000, batches: int = 200, rounds: int = 5) -> None:
    """Scan all records of a node, and read many keys, by a blocking client."""
    source = bench.directory / "source"
    write_database(source, DATABASE, data.numbered(records), FILES, by_hash(FILES))
    keys = [data.key_of(number * 7919 % records) for number in range(MANY)]
    with (
        nodes.running(bench.directory / "node", 1, source=source, replication=1) as cluster,
        blocking.connect(cluster.addresses[0], timeout_ms=PAGE_TIMEOUT_MS) as client,
        machine.uncollected(),
    ):
        nodes.wait_for_copies(nodes.addresses(cluster), [DATABASE])
        dataset = client.dataset(DATABASE)
        _check(dataset, records, keys)
        scans = {goals.COLUMNS: lambda: _column_scan_ns(dataset, records), goals.OBJECTS: lambda: _scan_ns(dataset)}
        bench.compare(goals.COLUMNS_SCAN, scans, rounds)
        many = {
            goals.COLUMNS: lambda: _get_ns(dataset, keys, batches, into="arrow"),
            goals.OBJECTS: lambda: _get_ns(dataset, keys, batches),
        }
        bench.compare(goals.COLUMNS_MANY, many, rounds)
    bench.notes.append(
        f"columns: {records:,} records of {data.RECORD_BYTES} bytes on one node, every record of one scan and every "
        f"value of one get_many compared before; get_many of {MANY:,} keys"
    )


def _scan_ns(dataset: blocking.Dataset) -> float:
    begin_ns = perf_counter_ns()
    found = sum(1 for _ in dataset.scan())
    return (perf_counter_ns() - begin_ns) / found


def _column_scan_ns(dataset: blocking.Dataset, records: int) -> float:
    begin_ns = perf_counter_ns()
    found = sum(map(len, dataset.scan(into="arrow")))
    taken_ns = perf_counter_ns() - begin_ns
    if found != records:
        raise WrongAnswerError(f"{found:,} records instead of {records:,}")
    return taken_ns / records


def _get_ns(dataset: blocking.Dataset, keys: list[bytes], batches: int, **options: str) -> float:
    begin_ns = process_time_ns()
    for _ in range(batches):
        dataset.get_many(keys, **options)
    return (process_time_ns() - begin_ns) / batches / len(keys)


def _check(dataset: blocking.Dataset, records: int, keys: list[bytes]) -> None:
    """Raise WrongAnswerError if columns have anything but the records."""
    objects = dataset.scan()
    count = 0
    for batch in dataset.scan(into="arrow"):
        for key, value in zip(*(column.to_pylist() for column in pa.record_batch(batch).columns), strict=True):
            count += 1
            if (key, value) != next(objects, None):
                raise WrongAnswerError(f"a batch has a wrong record at {key!r}")
    if count != records or next(objects, None) is not None:
        raise WrongAnswerError(f"{count:,} records instead of {records:,}")
    if pa.array(dataset.get_many(keys, into="arrow")).to_pylist() != dataset.get_many(keys):
        raise WrongAnswerError("a column of get_many is not as the list of it")

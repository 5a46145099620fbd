"""A scan with half of the records on another node, beside a scan of a node that has all of them."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from time import perf_counter_ns
from typing import TYPE_CHECKING

from gossipkv.client import blocking
from tests.bench import data, goals, machine
from tests.bench.cluster import nodes
from tests.bench.measurement import WrongAnswerError
from tests.bench.processes import DATABASE
from tests.bench.sources import by_hash, write_database

if TYPE_CHECKING:
    from tests.bench.measurement import Bench

FILES = 16
PAGE_TIMEOUT_MS = 30_000


def measure(bench: Bench, *, records: int = 1_000_000, rounds: int = 5) -> None:
    """Scan both through the client, as a program does."""
    source = bench.directory / "source"
    write_database(source, DATABASE, data.numbered(records), FILES, by_hash(FILES))
    sides = {}
    with ExitStack() as stack:
        for name, count in ((goals.HALF, 2), (goals.WHOLE, 1)):
            place = bench.directory / f"of-{count}"
            cluster = stack.enter_context(nodes.running(place, count, source=source, replication=1))
            nodes.wait_for_copies(nodes.addresses(cluster), [DATABASE])
            client = stack.enter_context(blocking.connect(cluster.addresses[0], timeout_ms=PAGE_TIMEOUT_MS))
            _check(client, records)
            sides[name] = partial(_record_ns, client, records)
        stack.enter_context(machine.uncollected())
        bench.compare(goals.CLUSTER_SCAN, sides, rounds)
    bench.notes.append(
        f"scan: {records:,} records of {data.RECORD_BYTES} bytes in {FILES} partitions, two nodes that have half of "
        "them each beside one that has all, every record checked before"
    )


def _record_ns(client: blocking.Client, records: int) -> float:
    """Return the nanoseconds for each record of a full scan, by a loop that only counts."""
    begin_ns = perf_counter_ns()
    found = sum(1 for _ in client.dataset(DATABASE).scan())
    taken_ns = perf_counter_ns() - begin_ns
    if found != records:
        raise WrongAnswerError(f"{found:,} records instead of {records:,}")
    return taken_ns / records


def _check(client: blocking.Client, records: int) -> None:
    """Raise WrongAnswerError if a record is wrong, missing or out of order."""
    expected = sorted(data.numbered(records))
    if [tuple(record) for record in client.dataset(DATABASE).scan()] != expected:
        raise WrongAnswerError("a scan is not as it should be")

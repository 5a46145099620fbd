"""A scan of which half the records are on another node, beside one of a node that has all of them.

Once as a program reads it, through the client's `scan`, and once pages alone, one after the other, by a client that
only takes them apart: every record is looked at between two pages, while no clock runs.
"""

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
from tests.bench.sources import VERSION, by_hash, write_database

if TYPE_CHECKING:
    from tests.bench.measurement import Bench, Row

FILES = 16
PAGE_TIMEOUT_MS = 30_000


def measure(bench: Bench, *, records: int = 1_000_000, rounds: int = 5) -> None:
    """Both rows."""
    source = bench.directory / "source"
    write_database(source, DATABASE, data.numbered(records), FILES, by_hash(FILES))
    sides = {}
    with ExitStack() as stack:
        for name, count in ((goals.HALF, 2), (goals.WHOLE, 1)):
            place = bench.directory / f"of-{count}"
            cluster = stack.enter_context(nodes.running(place, count, source=source, replication=1))
            nodes.wait_for_copies(nodes.addresses(cluster), [DATABASE])
            client = stack.enter_context(blocking.connect(cluster.addresses[0], timeout_ms=PAGE_TIMEOUT_MS))
            sides[name] = partial(_figures, client, records)
        stack.enter_context(machine.uncollected())
        bench.compare(goals.CLUSTER_SCAN, sides, rounds)
    bench.notes.append(
        f"scan: {records:,} records of {data.RECORD_BYTES} bytes in {FILES} partitions, two nodes that have half of "
        "them each beside one that has all, every record checked; pages alone: each is asked when the one before came"
    )


def _figures(client: blocking.Client, records: int) -> dict[Row, float]:
    """Nanoseconds a record: of a scan by a loop that only counts, and of its pages."""
    begin_ns = perf_counter_ns()
    found = sum(1 for _ in client.dataset(DATABASE).scan())
    taken_ns = perf_counter_ns() - begin_ns
    if found != records:
        raise WrongAnswerError(f"{found:,} records instead of {records:,}")
    return {goals.CLUSTER_SCAN: taken_ns / records, goals.CLUSTER_PAGES: _pages_ns(client, records) / records}


def _pages_ns(client: blocking.Client, expected: int) -> int:
    """Nanoseconds in which all pages came; every record is right, and they are in order, else it raises."""
    taken_ns = found = 0
    cursor, last = None, b""
    while True:
        begin_ns = perf_counter_ns()
        page, cursor, version = client.call("scan", DATABASE, {"cursor": cursor})
        taken_ns += perf_counter_ns() - begin_ns
        for key, value in page:
            if key <= last or value != data.value_of(key) or version != VERSION:
                raise WrongAnswerError(f"a wrong record behind {last!r}: {key!r}: {value!r}")
            last = key
        found += len(page)
        if cursor is None:
            break
    if found != expected:
        raise WrongAnswerError(f"{found:,} records instead of {expected:,}")
    return taken_ns

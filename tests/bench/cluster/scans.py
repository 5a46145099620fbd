"""A scan of which half the records are on another node, beside one of a node that has all of them.

Once as a program reads it, through the client's `scan`, and once pages alone, one after the other, by a client that
only takes them apart: every record is looked at between two pages, while no clock runs.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from time import perf_counter_ns
from typing import TYPE_CHECKING

from gossipkv.client import blocking
from tests.bench import data, goals, machine
from tests.bench.cluster import nodes
from tests.bench.datasets import records
from tests.bench.measurement import Measurement

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DATABASE, VERSION = "db", "1"
FILES = 16
PAGE_TIMEOUT_MS = 30_000


@dataclass(frozen=True)
class Load:
    """How many records, how often."""

    records: int = 1_000_000
    rounds: int = 5


def measure(directory: Path, load: Load, notes: list[str]) -> Iterator[Measurement]:
    """The row."""
    staged = directory / "staged"
    source = directory / "source"
    written = records.numbered(load.records, data.SMALL_VALUE_BYTES)
    records.write_tab_separated(staged, written, FILES, records.by_hash(FILES))
    (source / DATABASE).mkdir(parents=True)
    staged.rename(source / DATABASE / VERSION)
    samples: dict[str, list[float]] = {goals.HALF: [], goals.WHOLE: []}
    pages: dict[str, list[float]] = {goals.HALF: [], goals.WHOLE: []}
    with ExitStack() as stack:
        scanned = {}
        for name, count in ((goals.HALF, 2), (goals.WHOLE, 1)):
            cluster = stack.enter_context(nodes.running(directory / f"of-{count}", source, nodes=count, replication=1))
            nodes.wait_for_answers(nodes.addresses(cluster), [DATABASE], VERSION)
            nodes.wait_for_copies(nodes.addresses(cluster), [DATABASE], VERSION)
            scanned[name] = stack.enter_context(blocking.connect(cluster.addresses[0], timeout_ms=PAGE_TIMEOUT_MS))
        stack.enter_context(machine.uncollected())
        for number in range(load.rounds + 1):
            for name, client in sorted(scanned.items(), reverse=number % 2 == 0):
                taken_ns = scan(client, load.records) / load.records
                pages_ns = scan_pages(client, load.records) / load.records
                machine.say(f"    {name}: {1e9 / taken_ns:,.0f} records/s, pages alone {1e9 / pages_ns:,.0f}")
                if number > 0:
                    samples[name].append(taken_ns)
                    pages[name].append(pages_ns)
    yield Measurement(goals.CLUSTER_SCAN, "ns", goals.HALF, samples)
    yield Measurement(goals.CLUSTER_PAGES, "ns", goals.HALF, pages)
    notes.append(
        f"scan: {load.records:,} records of {records.KEY_BYTES + data.SMALL_VALUE_BYTES} bytes in {FILES} partitions, "
        "two nodes that have half of them each (`replication` 1) beside one that has all, every record checked; the "
        "goal is half the rate, so twice the time; pages alone: each is asked when the one before has come"
    )


def scan(client: blocking.Client, expected: int) -> int:
    """Nanoseconds in which the client gives all records to a loop that only counts them."""
    begin_ns = perf_counter_ns()
    found = sum(1 for _ in client.dataset(DATABASE).scan())
    taken_ns = perf_counter_ns() - begin_ns
    if found != expected:
        raise RuntimeError(f"{found:,} records instead of {expected:,}")
    return taken_ns


def scan_pages(client: blocking.Client, expected: int) -> int:
    """Nanoseconds in which all pages came; every record is right, and they are in order, else it raises."""
    taken_ns = found = 0
    cursor, last = None, b""
    while True:
        begin_ns = perf_counter_ns()
        answer = client.call("scan", DATABASE, {"cursor": cursor})
        taken_ns += perf_counter_ns() - begin_ns
        assert isinstance(answer, list)
        page, cursor, version = answer
        assert isinstance(page, list)
        assert version == VERSION, version
        for record in page:
            assert isinstance(record, list)
            key, value = record
            assert isinstance(key, bytes)
            if key <= last or value != records.value_of(key, data.SMALL_VALUE_BYTES):
                raise RuntimeError(f"a wrong record behind {last!r}: {key!r}: {value!r}")
            last = key
        found += len(page)
        if cursor is None:
            break
    if found != expected:
        raise RuntimeError(f"{found:,} records instead of {expected:,}")
    return taken_ns

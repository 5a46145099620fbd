"""The rows about puts: a single writer beside disk and network, many beside Redis, and bytes between nodes."""

from __future__ import annotations

from contextlib import ExitStack, closing
from functools import partial
from itertools import count
from statistics import median
from time import perf_counter_ns, sleep
from typing import TYPE_CHECKING

from tests.bench import goals, machine
from tests.bench.cluster import nodes
from tests.bench.measurement import OURS
from tests.bench.processes import REQUEST_TIMEOUT_MS, cpu_ns, wait_for
from tests.bench.register.disk import Disk
from tests.bench.tables import writing

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.address import Address
    from tests.bench.cluster.nodes import Nodes
    from tests.bench.data import Record
    from tests.bench.measurement import Bench, Row
    from tests.bench.tables.writing import Spoken

HEAD_BYTES = 24 + 1 + 1  # The overhead of a record without dependencies: its order, its kind, and their number.
SETTLE_S = 0.5  # The time until the last bytes are on their way.
MILLISECOND_NS = 1e6
MICROSECOND_NS = 1e3


def alone(bench: Bench, *, partitions: int = 16, puts: int = 200, rounds: int = 9) -> None:
    """Measure a single writer at its own node; each round's puts are compared with its syncs and pings."""
    turns = count()
    with (
        writing.tables(bench.directory / "cluster", partitions) as asked,
        closing(Disk(bench.directory / "disk")) as disk,
        asked.cluster.connect(1, timeout_ms=REQUEST_TIMEOUT_MS) as client,
        asked.cluster.connect(2, timeout_ms=REQUEST_TIMEOUT_MS) as other,
    ):
        table = client.table(writing.TABLE)
        for _ in range(rounds):
            records = writing.records_of(next(turns), puts)
            sync_ms = disk.sync_ms(puts)
            ping_ms = median(_took_ms(client.ping) for _ in range(puts))
            put_ms = median(_took_ms(partial(table.put, key, value)) for key, value in records)
            writing.wait_for_records(other, records)
            bench.add(goals.PUT_ALONE, put_ms)
            bench.add(goals.PUT_ALONE, 2 * sync_ms + 2 * ping_ms + 1, goals.SYNCS_AND_TRIPS)
    bench.notes.append(
        f"A put alone: {partitions} partitions, {puts} puts a round by one blocking client, beside the median "
        "`fdatasync` of the same disk and the median `ping` by the same client, one after the other; 1 ms is added"
    )


def _took_ms(do: Callable[[], object]) -> float:
    begin_ns = perf_counter_ns()
    do()
    return (perf_counter_ns() - begin_ns) / MILLISECOND_NS


def many(bench: Bench, *, partitions: int = 16, connections: int = 64, puts: int = 5_000, rounds: int = 5) -> None:
    """Measure the processor time of the asked node and of a follower, beside Redis'; then bytes between nodes."""
    turns = count()
    with ExitStack() as stack:
        asked = stack.enter_context(writing.tables(bench.directory / "cluster", partitions))
        servers = stack.enter_context(writing.redis(bench.directory))
        addresses, numbers = nodes.addresses(asked.cluster), nodes.processes(asked.cluster)
        masters = [process for process, _ in servers[:2]]

        def ours() -> dict[Row, float]:
            records = writing.records_of(next(turns), puts)
            figures = _cpu_us(writing.TABLES, addresses[0], numbers[:2], records, connections)
            _check_all(asked, records)
            return figures

        def theirs() -> dict[Row, float]:
            records = writing.records_of(next(turns), puts)
            return _cpu_us(writing.REDIS, servers[0][1], masters, records, connections)

        sides = {OURS: ours, goals.REDIS: theirs}
        bench.compare(goals.PUT_ORIGIN, sides, rounds)
        machine.say(f"  {goals.PUT_BYTES}")
        for _ in range(rounds):
            records = writing.records_of(next(turns), puts)
            before = _sent(asked)
            _, answered = writing.write(writing.TABLES, addresses, records, connections // len(addresses))
            sleep(SETTLE_S)
            bench.add(goals.PUT_BYTES, (_sent(asked) - before - answered) / puts)
            bench.add(goals.PUT_BYTES, 2 * _record_bytes(records[0]), goals.TWICE_THE_RECORD)
            _check_all(asked, records)
    bench.notes.append(
        f"Puts of many: {partitions} partitions, {connections} connections with one in flight, {puts:,} puts of "
        f"{len(records[0][0])} + {len(records[0][1])} B a round, all to one node; redis-server with "
        "`appendfsync always`, two replicas, and `WAIT 1 0` after each SET. Bytes: to three nodes at once, what all "
        "serving loops sent but for the answers to clients (`bytes_sent` of `info`)"
    )


def _cpu_us(
    spoken: Spoken, address: Address, numbers: list[int], records: list[Record], connections: int
) -> dict[Row, float]:
    """Return the processor time per put of the asked node and of another."""
    puts = len(records)
    before_ns = [cpu_ns(number) for number in numbers]
    writing.write(spoken, [address], records, connections)
    used_us = [(cpu_ns(number) - ns) / MICROSECOND_NS / puts for number, ns in zip(numbers, before_ns, strict=True)]
    return {goals.PUT_ORIGIN: used_us[0], goals.PUT_TARGET: used_us[1]}


def _check_all(asked: Nodes, records: list[Record]) -> None:
    """Return when each node's own replicas have all of these."""
    keys, values = [key for key, _ in records], [value for _, value in records]

    def has_all(number: int) -> bool:
        told = asked.call(number, "get_many", writing.TABLE, keys, {"local": True})
        return isinstance(told, list) and told[0] == values

    for number in asked.numbers:
        wait_for(partial(has_all, number), f"all values at node {number}")


def _sent(asked: Nodes) -> int:
    """Return the bytes that the serving loops of all nodes have sent."""
    told = [asked.call(number, "info") for number in asked.numbers]
    return sum(one["counters"]["bytes_sent"] for one in told if isinstance(one, dict))


def _record_bytes(record: Record) -> int:
    key, value = record
    return len(key) + HEAD_BYTES + len(value)

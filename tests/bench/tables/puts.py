"""The rows about puts: many writers beside Redis, gets beside writers, and one beside disk, network and etcd."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from time import perf_counter_ns, sleep
from typing import TYPE_CHECKING

from tests.bench import compiled, data, goals, machine
from tests.bench.cluster import nodes
from tests.bench.measurement import OURS
from tests.bench.network import rows
from tests.bench.network.rows import Shape
from tests.bench.network.servers import protocols, redis_missing, redis_version, waitaof_missing
from tests.bench.processes import REQUEST_TIMEOUT_MS
from tests.bench.register import etcd
from tests.bench.register.disk import Disk
from tests.bench.tables import writing
from tests.load import Load, RpcDialect, Traffic

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.bench.cluster.nodes import Nodes
    from tests.bench.measurement import Bench, Row
    from tests.bench.tables.writing import Writing, Written

HEAD_BYTES = 24 + 1 + 1  # The overhead of a record without dependencies: its order, its kind, and their number.
SETTLE_S = 0.5  # The time until the last bytes are on their way.
MILLISECOND_NS = 1e6
CONNECTIONS = 64
GET_CONNECTIONS, GETS_A_SECOND, READ = 8, 500, 1_000
GETS_FOR = 3  # Times a run: a percentile needs many.
SYNC_MS = 50


def alone(bench: Bench, puts: int, rounds: int) -> None:
    """Measure a single writer at its own node; each round's puts are compared with its syncs and pings."""
    turns = count()
    with ExitStack() as stack:
        asked = stack.enter_context(writing.tables(bench.directory / "alone", writing.PARTITIONS))
        disk = stack.enter_context(closing(Disk(bench.directory / "disk")))
        client, other = (
            stack.enter_context(asked.cluster.connect(number, timeout_ms=REQUEST_TIMEOUT_MS)) for number in (1, 2)
        )
        peer = None
        if bench.takes_part(goals.ETCD, etcd.missing()):
            peer = stack.enter_context(etcd.running(bench.directory / "etcd"))
            bench.notes.append(etcd.settings())
        table = client.table(writing.TABLE)
        machine.say(f"  {goals.PUT_ALONE}")
        for _ in range(rounds):
            records = writing.records_of(next(turns), puts)
            sync_ms = disk.sync_ms(puts)
            ping_ms = median(_took_ms(client.ping) for _ in range(puts))
            put_ms = median(_took_ms(partial(table.put, key, value)) for key, value in records)
            writing.wait_for_records(other, records)
            bench.add(goals.PUT_ALONE, put_ms)
            bench.add(goals.PUT_ALONE, 2 * sync_ms + 2 * ping_ms + 0.3, goals.SYNCS_AND_TRIPS)
            if peer is not None:
                bench.add(goals.PUT_ALONE, peer.transact(puts)[0], goals.ETCD)
    bench.notes.append(
        f"A put alone: {puts} puts a round by one blocking client, beside the median `fdatasync` of the same disk and "
        "the median `ping` by the same client, one after the other; 0.3 ms are added"
    )


def _took_ms(do: Callable[[], object]) -> float:
    begin_ns = perf_counter_ns()
    do()
    return (perf_counter_ns() - begin_ns) / MILLISECOND_NS


def many(bench: Bench, puts: int, rounds: int) -> None:
    """Measure the processor time of all nodes while one is asked, beside Redis'; then bytes between nodes."""
    with ExitStack() as stack:
        asked = stack.enter_context(writing.tables(bench.directory / "cluster", writing.PARTITIONS))
        address, numbers = nodes.addresses(asked.cluster)[0], nodes.processes(asked.cluster)
        peers: list[Writing] = []
        for name, servers, missing in (
            (goals.REDIS, 1, redis_missing()),
            (goals.REDIS_WAITAOF, writing.REPLICAS, waitaof_missing()),
        ):
            if bench.takes_part(name, missing):
                running = stack.enter_context(writing.redis(bench.directory, servers))
                processes, dialect = [number for number, _ in running], protocols().SetDialect(0, waits=servers > 1)
                opened = writing.opened(name, dialect, running[0][1], processes, Shape(CONNECTIONS))
                peers.append(stack.enter_context(opened))
        if peers:
            bench.notes.append(
                f"redis-server {redis_version()} with `appendfsync always`: alone, and with two replicas and "
                "`WAITAOF 1 1 0` after each SET; one SET in flight"
            )
        for in_flight, figures in FIGURES.items():
            dialect, shape = writing.puts(in_flight << 40), Shape(CONNECTIONS, in_flight)
            writer = stack.enter_context(writing.opened(OURS, dialect, address, numbers, shape))
            sides = {OURS: partial(_ours, asked, writer, puts, figures)}
            sides |= {peer.name: partial(_theirs, peer, puts, figures) for peer in peers}
            bench.compare(next(iter(figures)), sides, rounds)
        machine.say(f"  {goals.PUT_BYTES}")
        for number in range(rounds):
            sent_bytes = _between_nodes(asked, puts, 1 + number)
            bench.add(goals.PUT_BYTES, sent_bytes)
            bench.add(goals.PUT_BYTES, 2 * (data.RECORD_BYTES + HEAD_BYTES), goals.TWICE_THE_RECORD)
    bench.notes.append(
        f"Puts of many: {writing.PARTITIONS} partitions, {CONNECTIONS} connections, {puts:,} puts a round, of "
        f"{data.RECORD_BYTES} B, all to one node. Bytes: to three nodes at once, what all serving loops sent but for "
        "the answers to clients (`bytes_sent` of `info`)"
    )


def _origin_us(written: Written) -> float:
    return written.used_us[0]


def _target_us(written: Written) -> float:
    return written.used_us[-1]


def _all_us(written: Written) -> float:
    return sum(written.used_us)


def _took_us(written: Written) -> float:
    return written.took_us


# By the requests in flight; a server alone is compared with origin and target.
FIGURES: dict[int, dict[Row, Callable[[Written], float]]] = {
    1: {
        goals.PUT_ORIGIN: _origin_us,
        goals.PUT_TARGET: _target_us,
        goals.PUT_ALL: _all_us,
        goals.PUT_TIME: _took_us,
    },
    16: {goals.PUT_ORIGIN_PIPELINED: _origin_us, goals.PUT_TARGET_PIPELINED: _target_us},
}


def _ours(asked: Nodes, writer: Writing, puts: int, figures: dict[Row, Callable[[Written], float]]) -> dict[Row, float]:
    written = writer.run(puts)
    for address in nodes.addresses(asked.cluster):
        writing.wait_for_numbered(address, written.numbers)
    return {row: figure(written) for row, figure in figures.items()}


def _theirs(peer: Writing, puts: int, figures: dict[Row, Callable[[Written], float]]) -> dict[Row, float]:
    written = peer.run(puts)
    return {row: figure(written) for row, figure in figures.items() if peer.name in row.limits}


def _between_nodes(asked: Nodes, puts: int, turn: int) -> float:
    """Return the bytes that the serving loops of all nodes send each other for a put, while all are asked."""
    with ExitStack() as stack:
        writers = [
            stack.enter_context(
                writing.opened(OURS, writing.puts((turn * 3 + number) << 32), address, [], Shape(CONNECTIONS // 3))
            )
            for number, address in enumerate(nodes.addresses(asked.cluster))
        ]
        pool = stack.enter_context(ThreadPoolExecutor())
        before = _sent(asked)
        written = [*pool.map(lambda writer: writer.run(puts // 3), writers)]
        sleep(SETTLE_S)
        sent = _sent(asked) - before
    for each in written:
        for address in nodes.addresses(asked.cluster):
            writing.wait_for_numbered(address, each.numbers)
    return sent / (3 * (puts // 3)) - sum(each.answer_bytes for each in written) / 3


def _sent(asked: Nodes) -> int:
    """Return the bytes that the serving loops of all nodes have sent."""
    told = [asked.call(number, "info") for number in asked.numbers]
    return sum(one["counters"]["bytes_sent"] for one in told if isinstance(one, dict))


def beside(bench: Bench, run_s: float, rounds: int) -> None:
    """Measure gets at a rate that leaves a node at rest, beside the puts of many writers, and slow syncs."""
    library = compiled.from_c(Path(__file__).with_name("slow_sync.c"), "-shared", "-fPIC", "-ldl")
    slow = bench.directory / "slow"
    environ = {"LD_PRELOAD": str(library), "SLOW_SYNC": str(slow), "SLOW_SYNC_MS": str(SYNC_MS)}
    records = data.make(READ).records
    with ExitStack() as stack:
        asked = stack.enter_context(writing.tables(bench.directory / "beside", writing.PARTITIONS, environ))
        address = nodes.addresses(asked.cluster)[0]
        with asked.cluster.connect(1, timeout_ms=REQUEST_TIMEOUT_MS) as client:
            client.table(writing.TABLE).put_many(records)
        load = Load(connections=GET_CONNECTIONS, rate=GETS_A_SECOND, timeout_s=rows.TIMEOUT_S, seed=data.SEED)
        gets = stack.enter_context(Traffic(address, RpcDialect(writing.TABLE, records), load))
        opened = writing.opened(OURS, writing.puts(0), address, [], Shape(CONNECTIONS))
        writer = stack.enter_context(opened)
        pool = stack.enter_context(ThreadPoolExecutor())

        def p99_us() -> float:
            return (
                rows.checked(gets.run(duration_s=GETS_FOR * run_s), OURS).latency.quantile(0.99) / rows.MICROSECOND_NS
            )

        def beside_us() -> float:
            is_over = threading.Event()
            puts = pool.submit(writer.traffic.run, duration_s=10 * run_s, until=is_over.is_set)
            found = p99_us()
            is_over.set()
            rows.checked(puts.result(), OURS)
            return found

        for row in (goals.GET_BESIDE, goals.GET_BESIDE_SYNCS):
            bench.compare(row, {goals.AT_REST: p99_us, OURS: beside_us}, rounds)
            slow.touch()
    bench.notes.append(
        f"gets beside puts: {GETS_A_SECOND} gets a second over {GET_CONNECTIONS} connections, at a node that "
        f"{CONNECTIONS} writers ask as fast as it answers; the three nodes, the writers and the gets share the cores"
    )

"""The rows over the wire: a node with a third of the memory that its records take, asked by a loop with its own."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from statistics import median
from threading import Thread
from time import sleep
from typing import TYPE_CHECKING, NamedTuple

import msgpack

from gossipkv.loadtest._generator import Generator
from gossipkv.loadtest._keys import KeyChooser
from gossipkv.loadtest.load_child import dial
from tests.bench import data, goals, machine
from tests.bench.datasets.restart import forget
from tests.bench.measurement import OURS, WrongAnswerError
from tests.bench.memory import cgroup, disk
from tests.bench.memory.library import LEAST_BYTES, RATIO
from tests.bench.memory.reader import MICROSECOND_NS, SECOND_NS, UNIFORM, ZIPF, pages_read
from tests.bench.network.servers import protocols
from tests.bench.processes import (
    DATABASE,
    MANY_CONNECTIONS,
    anonymous_bytes,
    call,
    cpu_ns,
    serve,
    serving,
    wait_for_records,
)
from tests.bench.sources import write_database
from tests.load import RpcDialect

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gossipkv.address import Address
    from gossipkv.loadtest._dialect import Dialect
    from tests.bench.data import Record
    from tests.bench.measurement import Bench, Row

TIMEOUT_S = 60.0  # Of an answer: the machine may do something else, and a disk may be slow.
SLICE_MS = 50
DEPTHS = {goals.DISK_8: 8, goals.DISK_16: 16}
HOT_KEYS = 64
SETTLE_S = 0.5


class Turn(NamedTuple):
    """What one run of a load found."""

    requests: int
    get_us: float  # Of the wall's clock, a request.
    cpu_us: float  # Of the node, all of its threads, a request.
    p50_us: float
    p99_us: float
    pages: float  # Read from the disk, a request.


@dataclass(frozen=True)
class Server:
    """A node within its memory, and how to speak to it."""

    number: int
    address: Address
    truth: Dialect

    def ask(
        self,
        seconds: float,
        seed: int,
        *,
        shape: str = UNIFORM,
        dialect: Dialect | None = None,
        connections: int = 64,
        rate: float = 0,
    ) -> Turn:
        """Random keys, one in flight on each connection; every answer is right, else it raises."""
        spoken = dialect or self.truth
        with ExitStack() as stack:
            sockets = [
                stack.enter_context(dial(self.address, TIMEOUT_S, number, connections)) for number in range(connections)
            ]
            chooser = KeyChooser(shape, len(spoken), seed=seed)
            timeout_ms = int(TIMEOUT_S * 1000)
            generator = Generator(
                spoken, sockets, in_flight=1, batch=1, timeout_ms=timeout_ms, seed=seed, chooser=chooser
            )
            stack.callback(generator.close)
            before_pages, before_ns = pages_read(self.number), cpu_ns(self.number)
            generator.begin(rate=rate, duration_ns=int(seconds * SECOND_NS))
            while generator.step(SLICE_MS):
                pass
            tally = generator.tally
            if tally.wrong or tally.errors() or tally.lost or tally.broken() or not tally.answered:
                raise WrongAnswerError(
                    f"{tally.answered} answered, {tally.wrong} wrong ({tally.first_wrong()}), errors {tally.errors()}, "
                    f"{tally.lost} lost, connections {tally.broken()}"
                )
            return Turn(
                requests=tally.answered,
                get_us=generator.duration_ns / MICROSECOND_NS / tally.answered,
                cpu_us=(cpu_ns(self.number) - before_ns) / MICROSECOND_NS / tally.answered,
                p50_us=tally.histogram.quantile(0.5) / MICROSECOND_NS,
                p99_us=tally.histogram.quantile(0.99) / MICROSECOND_NS,
                pages=(pages_read(self.number) - before_pages) / tally.answered,
            )


@contextmanager
def _serving(directory: Path, made: list[Record], *options: str) -> Iterator[tuple[Server, int]]:
    """A node that has built these records with all the memory it liked, and now has a third of what they take."""
    write_database(directory / "source", DATABASE, made)
    command = serve(directory / "data", *MANY_CONNECTIONS, *options, source=directory / "source")
    with serving(command) as builder:
        wait_for_records(builder.address, [(DATABASE, made[0])])
        own_bytes = anonymous_bytes(builder.pid)
    raw_bytes = sum(path.stat().st_size for path in directory.glob("data/**/*.gkv"))
    memory_bytes = max(raw_bytes // RATIO, LEAST_BYTES)
    forget(directory)
    with cgroup.made("node") as group:
        group.limit(memory_bytes + own_bytes)
        with serving(group.command(*command)) as node:
            wait_for_records(node.address, [(DATABASE, made[0])])
            yield Server(node.pid, node.address, RpcDialect(DATABASE, made)), memory_bytes


def measure(
    bench: Bench,
    *,
    records: int = 3_000_000,
    connections: int = 64,
    cold_rate: int = 10_000,
    warm_s: float = 8.0,
    turn_s: float = 2.0,
    rounds: int = 5,
) -> None:
    """Plain, then in lz4."""
    made = data.mixed(records)
    with _serving(bench.directory / "plain", made) as (server, memory_bytes):
        file = max(bench.directory.glob("plain/data/**/*.gkv"), key=lambda path: path.stat().st_size)
        how = {"file": file, "connections": connections, "warm_s": warm_s, "turn_s": turn_s, "rounds": rounds}
        _measure(bench, server, goals.LARGER_NODE, goals.LARGER_NODE_CPU, goals.LARGER_NODE_PAGES, **how)
        _measure(bench, server, goals.LARGER_NODE_ZIPF, shape=ZIPF, **how)
        _strain(bench, server, others=connections - 1, rate=cold_rate, turn_s=turn_s, rounds=rounds)
    with _serving(bench.directory / "lz4", made, "--compression", "lz4") as (server, packed_bytes):
        _measure(bench, server, goals.LARGER_NODE_LZ4, goals.LARGER_NODE_LZ4_CPU, goals.LARGER_NODE_LZ4_PAGES, **how)
    bench.notes.append(
        f"{goals.LARGER_NODE}: {records:,} records of {data.RECORD_BYTES} bytes; beyond what a node takes "
        f"at its start it has {memory_bytes >> 20:,} MiB, in lz4 {packed_bytes >> 20:,} MiB"
    )


def _measure(
    bench: Bench,
    server: Server,
    row: Row,
    cpu: Row | None = None,
    pages: Row | None = None,
    *,
    file: Path,
    connections: int,
    warm_s: float,
    turn_s: float,
    rounds: int,
    shape: str = UNIFORM,
) -> None:
    """The node, then the yardstick at each depth, round by round."""
    machine.say(f"  {row}")
    server.ask(warm_s, 0, shape=shape, connections=connections)
    for number in range(1, rounds + 1):
        turn = server.ask(turn_s, number, shape=shape, connections=connections)
        bench.add(row, turn.get_us)
        bench.add(goals.LARGER_P50[row], turn.p50_us)
        bench.add(goals.LARGER_P99[row], turn.p99_us)
        if cpu is not None and pages is not None:
            bench.add(cpu, turn.cpu_us)
            bench.add(pages, turn.pages)
        for name, depth in DEPTHS.items():
            read = disk.read(file, depth, turn_s, number)
            bench.add(row, read.wall_us, name)
            if cpu is not None:
                bench.add(cpu, read.cpu_us, name)


def _strain(bench: Bench, server: Server, *, others: int, rate: int, turn_s: float, rounds: int) -> None:
    """A hot key, and a ping, beside gets that wait for the disk."""
    hot = RpcDialect(DATABASE, [server.truth.record(number) for number in range(HOT_KEYS)])
    key = RpcDialect(DATABASE, [server.truth.record(0)])
    ping = protocols().CallDialect(b"ping", msgpack.packb(call(server.address, "ping")))
    rates: list[float] = []
    seeds = count()

    def beside(asked: Dialect, around: Dialect) -> float:
        """The p99 of one connection that asks what is in memory, while so many others ask of all keys or of a few."""
        seed, told = next(seeds), []
        seconds = turn_s + 2 * SETTLE_S
        thread = Thread(
            target=lambda: told.append(server.ask(seconds, seed, dialect=around, connections=others, rate=rate))
        )
        thread.start()
        try:
            sleep(SETTLE_S)
            p99_us = server.ask(turn_s, seed, dialect=asked, connections=1).p99_us
        finally:
            thread.join()
        if not told:
            raise WrongAnswerError("what was asked beside failed")
        if around is server.truth:
            rates.append(SECOND_NS / MICROSECOND_NS / told[0].get_us)
        return p99_us

    sides = {OURS: partial(beside, key, server.truth), goals.HOT_BESIDE: partial(beside, key, hot)}
    bench.compare(goals.LARGER_HOT, sides, rounds, warm=0)
    bench.compare(goals.LARGER_PING, {OURS: partial(beside, ping, server.truth)}, rounds, warm=0)
    bench.notes.append(f"{goals.LARGER_HOT}: {median(rates):,.0f} cold gets a second were answered meanwhile")

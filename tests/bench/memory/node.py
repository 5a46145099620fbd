"""The rows over the wire: a node with a third of the memory that its records take, asked by a loop with its own."""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from statistics import median
from threading import Thread
from time import sleep
from typing import TYPE_CHECKING, NamedTuple

import msgpack

from gossipkv.address import Address
from gossipkv.loadtest._generator import Generator
from gossipkv.loadtest._keys import KeyChooser
from gossipkv.loadtest.load_child import dial
from tests.bench import goals, machine
from tests.bench.datasets.restart import forget
from tests.bench.measurement import Measurement
from tests.bench.memory import cgroup, disk, records
from tests.bench.memory.library import LEAST_BYTES, RATIO, anonymous_bytes
from tests.bench.memory.reader import MICROSECOND_NS, SECOND_NS, UNIFORM, ZIPF, pages_read
from tests.bench.network import compiled, servers
from tests.bench.network.rows import WrongAnswerError
from tests.bench.serving import Client, node_get, node_value, process, wait_for
from tests.bench.sources import write_database
from tests.load import RpcDialect

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gossipkv.loadtest._dialect import Dialect
    from tests.bench.data import Record

NAME, DATABASE = "GossipKV", "db"
TIMEOUT_S = 60.0  # Of an answer: the machine may do something else, and a disk may be slow.
SLICE_MS = 50
DEPTHS = {goals.DISK_8: 8, goals.DISK_16: 16}
HOT_KEYS = 64
SETTLE_S = 0.5


@dataclass(frozen=True)
class Load:
    """How much is asked, for how long each time, how often."""

    records: int = 3_000_000
    connections: int = 64
    cold_rate: int = 10_000
    warm_s: float = 8.0
    turn_s: float = 2.0
    rounds: int = 5


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
            before_pages, before_ns = pages_read(self.number), servers.cpu_ns(self.number)
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
                cpu_us=(servers.cpu_ns(self.number) - before_ns) / MICROSECOND_NS / tally.answered,
                p50_us=tally.histogram.quantile(0.5) / MICROSECOND_NS,
                p99_us=tally.histogram.quantile(0.99) / MICROSECOND_NS,
                pages=(pages_read(self.number) - before_pages) / tally.answered,
            )


@contextmanager
def _started(
    directory: Path, options: tuple[str, ...], group: cgroup.MemoryGroup | None
) -> Iterator[tuple[int, Address]]:
    """A node, in a group or outside of all."""
    command = [sys.executable, "-m", "gossipkv", "serve", "--source", str(directory / "source")]
    command += ["--data", str(directory / "data"), "--listen", "127.0.0.1:0", "--log-level", "warning", *options]
    command += ["--max-connections-per-address", "off"]
    if group is not None:
        command = group.command(*command)
    with process(command, ready=lambda line: line.startswith("ready ")) as (running, line):
        host, _, port = line.split()[1].rpartition(":")
        yield running.pid, Address(host, int(port))


def _wait_for_answer(address: Address, record: Record) -> None:
    client = Client(*address)
    wait_for(lambda: client.exchange(node_get(DATABASE, record[0]), node_value) == record[1], DATABASE)
    client.close()


@contextmanager
def _serving(directory: Path, made: list[Record], *options: str) -> Iterator[tuple[Server, int]]:
    """A node that has built these records with all the memory it liked, and now has a third of what they take."""
    machine.say(f"    building {' '.join(options)}")
    directory.mkdir()
    (directory / "source").mkdir()
    write_database(directory / "source", DATABASE, iter(made))
    with _started(directory, options, None) as (number, address):
        _wait_for_answer(address, made[0])
        own_bytes = anonymous_bytes(number)
    raw_bytes = sum(path.stat().st_size for path in directory.glob("data/**/*.gkv"))
    memory_bytes = max(raw_bytes // RATIO, LEAST_BYTES)
    forget(directory)
    with cgroup.made("node") as group:
        group.limit(memory_bytes + own_bytes)
        with _started(directory, options, group) as (number, address):
            _wait_for_answer(address, made[0])
            yield Server(number, address, RpcDialect(DATABASE, made)), memory_bytes


class Rows(NamedTuple):
    """Names, of which some may be empty: those have no row."""

    get: str
    p50: str
    p99: str
    cpu: str = ""
    pages: str = ""


def _measured(server: Server, load: Load, shape: str, file: Path, rows: Rows) -> Iterator[Measurement]:
    """The node, then the yardstick at each depth, round by round."""
    machine.say(f"  {rows.get}")
    turns: list[Turn] = []
    disks: dict[str, list[disk.Read]] = {name: [] for name in DEPTHS}
    server.ask(load.warm_s, 0, shape=shape, connections=load.connections)
    for number in range(1, load.rounds + 1):
        turns.append(server.ask(load.turn_s, number, shape=shape, connections=load.connections))
        for name, depth in DEPTHS.items():
            disks[name].append(disk.read(file, depth, load.turn_s, number))
    middle = sorted(turns, key=lambda turn: turn.get_us)[len(turns) // 2]
    machine.say(
        f"    {middle.get_us:.1f} us a get, CPU {middle.cpu_us:.1f} us, p50 {middle.p50_us:.0f}, "
        f"p99 {middle.p99_us:.0f} us, {middle.pages:.3f} pages"
    )
    wall_us = {name: [read.wall_us for read in reads] for name, reads in disks.items()}
    yield Measurement(rows.get, "us", NAME, {NAME: [turn.get_us for turn in turns], **wall_us})
    yield Measurement(rows.p50, "us", NAME, {NAME: [turn.p50_us for turn in turns]})
    yield Measurement(rows.p99, "us", NAME, {NAME: [turn.p99_us for turn in turns]})
    if rows.cpu:
        cpu_us = {name: [read.cpu_us for read in reads] for name, reads in disks.items()}
        yield Measurement(rows.cpu, "us", NAME, {NAME: [turn.cpu_us for turn in turns], **cpu_us})
    if rows.pages:
        yield Measurement(rows.pages, "pages", NAME, {NAME: [turn.pages for turn in turns]})


def _beside(server: Server, load: Load, asked: Dialect, seed: int, *, cold: bool) -> tuple[Turn, Turn]:
    """One connection that asks what is in memory, and what so many others asked meanwhile of all keys or of a few."""
    hot = RpcDialect(DATABASE, [server.truth.record(number) for number in range(HOT_KEYS)])
    others: list[Turn] = []

    def ask_others() -> None:
        dialect = server.truth if cold else hot
        seconds = load.turn_s + 2 * SETTLE_S
        others.append(server.ask(seconds, seed, dialect=dialect, connections=load.connections - 1, rate=load.cold_rate))

    beside = Thread(target=ask_others)
    beside.start()
    sleep(SETTLE_S)
    try:
        return server.ask(load.turn_s, seed, dialect=asked, connections=1), _joined(beside, others)
    finally:
        beside.join()


def _joined(beside: Thread, others: list[Turn]) -> Turn:
    beside.join()
    if not others:
        raise WrongAnswerError("what was asked beside failed")
    return others[0]


def _strained(server: Server, load: Load, notes: list[str]) -> Iterator[Measurement]:
    """A hot key, and a ping, beside gets that wait for the disk."""
    machine.say(f"  {goals.LARGER_HOT}")
    key = RpcDialect(DATABASE, [server.truth.record(0)])
    client = Client(*server.address)
    pong = client.exchange(msgpack.packb([0, 1, "ping", []]), _whole)
    client.close()
    assert isinstance(pong, bytes)
    ping = compiled.protocols().CallDialect(b"ping", pong[4:])
    hot: dict[str, list[float]] = {NAME: [], goals.HOT_BESIDE: []}
    pinged: list[float] = []
    rates: list[float] = []
    for number in range(load.rounds):
        for cold in (True, False):
            turn, others = _beside(server, load, key, number, cold=cold)
            hot[NAME if cold else goals.HOT_BESIDE].append(turn.p99_us)
            if cold:
                rates.append(SECOND_NS / MICROSECOND_NS / others.get_us)
        turn, _ = _beside(server, load, ping, number, cold=True)
        pinged.append(turn.p99_us)
    machine.say(f"    hot {hot}, ping {pinged}, cold gets a second {rates}")
    notes.append(f"{goals.LARGER_HOT}: {median(rates):,.0f} cold gets a second were answered meanwhile")
    yield Measurement(goals.LARGER_HOT, "us", NAME, hot)
    yield Measurement(goals.LARGER_PING, "us", NAME, {NAME: pinged})


def _whole(reply: bytes) -> bytes:
    """The answer as it is, if it is whole and no error."""
    _, _, error, _ = msgpack.unpackb(reply)
    assert error is None
    return reply


PLAIN = Rows(
    goals.LARGER_NODE, goals.LARGER_NODE_P50, goals.LARGER_NODE_P99, goals.LARGER_NODE_CPU, goals.LARGER_NODE_PAGES
)
PLAIN_ZIPF = Rows(goals.LARGER_NODE_ZIPF, goals.LARGER_NODE_ZIPF_P50, goals.LARGER_NODE_ZIPF_P99)
COMPRESSED = Rows(
    goals.LARGER_NODE_LZ4,
    goals.LARGER_NODE_LZ4_P50,
    goals.LARGER_NODE_LZ4_P99,
    goals.LARGER_NODE_LZ4_CPU,
    goals.LARGER_NODE_LZ4_PAGES,
)


def measure(directory: Path, load: Load, notes: list[str]) -> Iterator[Measurement]:
    """Plain, then in lz4."""
    made = records.make(load.records)
    with _serving(directory / "plain", made) as (server, memory_bytes):
        file = max(directory.glob("plain/data/**/*.gkv"), key=lambda path: path.stat().st_size)
        yield from _measured(server, load, UNIFORM, file, PLAIN)
        yield from _measured(server, load, ZIPF, file, PLAIN_ZIPF)
        yield from _strained(server, load, notes)
    with _serving(directory / "lz4", made, "--compression", "lz4") as (server, packed_bytes):
        yield from _measured(server, load, UNIFORM, file, COMPRESSED)
    notes.append(
        f"{goals.LARGER_NODE}: {load.records:,} records of {records.RECORD_BYTES} bytes; beyond what a node takes "
        f"at its start it has {memory_bytes >> 20:,} MiB, in lz4 {packed_bytes >> 20:,} MiB"
    )

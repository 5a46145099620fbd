"""The rows about a server on one core, part by part.

A node and redis-server hold the same records and are asked the same shapes by the same loop, every value checked; the
server that answers a constant of the same size shows what of it is the kernel's.
"""

from __future__ import annotations

import signal
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from statistics import median
from time import sleep
from typing import TYPE_CHECKING

import msgpack

from gossipkv.address import Address
from tests.bench import data, goals, machine
from tests.bench.measurement import Measurement
from tests.bench.network import compiled, inline_pump, pings, rows, servers
from tests.bench.network.rows import Shape
from tests.bench.serving import Client, node_get, node_value, process, redis_get, redis_value
from tests.bench.sources import VERSION
from tests.load import RpcDialect

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

    from tests.bench.data import Record
    from tests.bench.network.servers import Cores, Server

KIB = 1024
SETTLE_S = 0.2
BATCH = 100
ID = 0xFFFF  # As long as those of most requests of a run.
MILLISECOND_NS = 1e6
MILLISECOND_US = 1e3
LONG_KEY = b"long"
LONG_SHARE = 10  # Chunks of a run of short requests to one pair: a long answer takes its time.
LONG_VALUE_BYTES = 8 << 20
LONG_TAILS = (VERSION.encode(), b"\r\n")  # Of a node's answer, and of redis'.
KEY, VALUE = b"k" * 16, b"v" * data.SMALL_VALUE_BYTES
GET_BYTES = len(msgpack.packb([0, ID, "get", [servers.DATABASE, KEY]]))
ANSWER_BYTES = len(msgpack.packb([1, ID, None, [VALUE, VERSION]]))
GET_MANY_BYTES = len(msgpack.packb([0, ID, "get_many", [servers.DATABASE, [KEY] * BATCH]]))
MANY_ANSWER_BYTES = len(msgpack.packb([1, ID, None, [[VALUE] * BATCH, VERSION]]))


@dataclass(frozen=True)
class Load:
    """How much is asked, and how often."""

    keys: int = 100_000
    cold_keys: int = 2_000_000
    connections: tuple[int, int, int] = (256, 1_000, 10_000)
    chunks: int = 200  # Of one run of the single connection.
    chunk_requests: int = 50
    run_s: float = 1.0
    idle_s: float = 5.0
    rounds: int = 7
    pings: pings.Load = field(default_factory=pings.Load)


@dataclass(frozen=True)
class Stage:
    """What every part is given."""

    directory: Path
    load: Load
    notes: list[str]
    cores: Cores

    def shape(self, row: str, connections: int, in_flight: int = 1, batch: int = 1) -> Shape:
        """One row's."""
        return Shape(row, connections, in_flight, batch, self.load.run_s)

    def measure(self, shape: Shape, contestants: list[Server]) -> Measurement:
        """Processor time a request."""
        machine.say(f"  {shape.row}")
        return rows.interleaved(shape, contestants, self.load.rounds, lambda figure: figure.cpu_us)

    @contextmanager
    def peers(self, records: list[Record]) -> Iterator[list[Server]]:
        """A node and, where there is one, redis."""
        with (
            servers.node(self.directory / "node", records, self.cores, "--busy-poll", "off") as node,
            servers.redis(records, self.cores) as redis,
            machine.pinned(self.cores.load),
        ):
            yield [node] if redis is None else [node, redis]

    @contextmanager
    def floors(self) -> Iterator[tuple[Server, Server]]:
        """The constants of a get and of a get_many."""
        with (
            servers.floor(GET_BYTES, ANSWER_BYTES, self.cores) as one,
            servers.floor(GET_MANY_BYTES, MANY_ANSWER_BYTES, self.cores) as many,
        ):
            yield one, many


def hot(stage: Stage) -> Iterator[Measurement]:
    """Records that a processor's cache holds."""
    with stage.floors() as (one, many), stage.peers(_records(stage.load.keys)) as peers:
        yield stage.measure(stage.shape(goals.NETWORK_ONE, 64), [*peers, one])
        yield stage.measure(stage.shape(goals.NETWORK_PIPELINED, 64, 16), [*peers, one])
        yield stage.measure(stage.shape(goals.NETWORK_BATCHED, 16, 1, BATCH), [*peers, many])


def forwarded(stage: Stage) -> Iterator[Measurement]:
    """Records of which a node has none: what it uses to have others answer, beside answering and beside redis."""
    records = _records(stage.load.keys)
    with (
        stage.floors() as (one, many),
        stage.peers(records) as peers,
        servers.asker(stage.directory / "asker", records, stage.cores, 1) as asker,
        servers.asker(stage.directory / "asker-of-two", records, stage.cores, 2) as asker_of_two,
    ):
        yield stage.measure(stage.shape(goals.NETWORK_FORWARDED_ONE, 64), [asker, asker_of_two, *peers, one])
        yield stage.measure(stage.shape(goals.NETWORK_FORWARDED_PIPELINED, 64, 16), [asker, asker_of_two, *peers, one])
        shape = stage.shape(goals.NETWORK_FORWARDED_BATCHED, 16, 1, BATCH)
        yield stage.measure(shape, [asker_of_two, asker, *peers, many])
    stage.notes.append(
        f"forwarded: {stage.load.keys:,} records, which another node has, or two others by halves, on the core of the "
        "node that is asked, which has none; a get_many is of two; the figure is of the node that is asked alone"
    )


def behind(stage: Stage) -> Iterator[Measurement]:
    """How long a get takes that is asked right after a long value, each by a client of its own.

    Between two nodes they share a connection.  Beside it the same with nothing before it, and servers that have both.
    """
    machine.say(f"  {goals.NETWORK_BEHIND}")
    records = [*_records(stage.load.keys), (LONG_KEY, b"v" * LONG_VALUE_BYTES)]
    key, value = records[0]
    samples: dict[str, list[float]] = {}
    with (
        stage.peers(records) as peers,
        servers.asker(stage.directory / "asker", records, stage.cores, 1) as asker,
    ):
        for server in (asker, *peers):
            pair = _Pair(server)
            samples[server.name] = pair.times(stage.load, pair.request(LONG_KEY), pair.request(key), value)
            if server is asker:
                samples[goals.FIRST] = pair.times(stage.load, b"", pair.request(key), value)
            pair.close()
    for name, found in samples.items():
        machine.say(f"    {name:14} {median(found):8.3f} ms")
    yield Measurement(goals.NETWORK_BEHIND, "ms", servers.ASKERS[1], samples)


class _Pair:
    """Two clients of one server: one for what is long, one for what comes behind it."""

    def __init__(self, server: Server) -> None:
        self._long, self._short = (Client(server.address.host, server.address.port) for _ in range(2))
        self._is_redis = server.name == servers.REDIS

    def request(self, key: bytes) -> bytes:
        """A get."""
        return redis_get(key) if self._is_redis else node_get(servers.DATABASE, key)

    def times(self, load: Load, long: bytes, short: bytes, value: bytes) -> list[float]:
        """Milliseconds of the short one in each round."""
        pairs = 1 + load.chunks // LONG_SHARE
        return [median(self._time(long, short, value) for _ in range(pairs)) for _ in range(load.rounds)]

    def _time(self, long: bytes, short: bytes, value: bytes) -> float:
        if long:
            self._long.send(long)
        elapsed_ns = self._short.time(short, value, redis_value if self._is_redis else node_value)
        if long:
            self._long.receive(_long_answer)
        return elapsed_ns / MILLISECOND_NS

    def close(self) -> None:
        """Hang up."""
        self._long.close()
        self._short.close()


def _long_answer(reply: bytes) -> bytes:
    """The answer with the long value, when all of it is there."""
    if len(reply) < LONG_VALUE_BYTES or not reply.endswith(LONG_TAILS):
        raise ValueError("half an answer")
    return reply


def cold(stage: Stage) -> Iterator[Measurement]:
    """So many records that each is fetched from memory."""
    with stage.floors() as (one, many), stage.peers(_records(stage.load.cold_keys)) as peers:
        yield stage.measure(stage.shape(goals.NETWORK_COLD_PIPELINED, 64, 16), [*peers, one])
        yield stage.measure(stage.shape(goals.NETWORK_COLD_BATCHED, 16, 1, BATCH), [*peers, many])


def connections(stage: Stage) -> Iterator[Measurement]:
    """Many of them, busy and idle."""
    with stage.floors() as (one, _), stage.peers(_records(stage.load.keys)) as peers:
        yield _memory(stage, peers)
        for row, count in zip(goals.NETWORK_CONNECTIONS, stage.load.connections, strict=True):
            yield stage.measure(stage.shape(row, count), [*peers, one])


def _memory(stage: Stage, peers: list[Server]) -> Measurement:
    """What a process grows by for each connection that has been asked once and is idle."""
    machine.say(f"  {goals.NETWORK_MEMORY}")
    few, many = stage.shape("", 64, 16), stage.shape("", max(stage.load.connections))
    samples: dict[str, list[float]] = {}
    for server in peers:
        with rows.open_traffic(server, few):  # What a server allocates once for all.
            sleep(SETTLE_S)
            before_bytes = server.resident_bytes()
        with rows.opened_for_once(server, many):
            sleep(SETTLE_S)
            samples[server.name] = [(server.resident_bytes() - before_bytes) / KIB / many.connections]
    return Measurement(goals.NETWORK_MEMORY, "KiB", servers.NODE, samples)


def round_trip(stage: Stage) -> Iterator[Measurement]:
    """One connection, one request at a time: how long it takes, and what it costs; and what it costs with a few."""
    records = _records(stage.load.keys)
    with ExitStack() as stack:
        polling = stack.enter_context(
            servers.node(stage.directory / "polling", records, stage.cores, "--busy-poll", "on")
        )
        peers = stack.enter_context(stage.peers(records))
        one, _ = stack.enter_context(stage.floors())
        yield _time(stage, goals.NETWORK_ROUND_TRIP, [*peers, one])
        yield _time(stage, goals.NETWORK_BUSY_POLL, [polling, *peers[1:]])
        yield stage.measure(stage.shape(goals.NETWORK_ROUND_TRIP_CPU, 1), [*peers, one])
        yield stage.measure(stage.shape(goals.NETWORK_BUSY_POLL_CPU, 1), [polling, *peers[1:]])
        yield stage.measure(stage.shape(goals.NETWORK_FEW_CPU, 8), [*peers, one])


def _time(stage: Stage, row: str, contestants: list[Server]) -> Measurement:
    """The median of many short runs, so that what interrupts one of them does not count."""
    machine.say(f"  {row}")
    shape = stage.shape(row, 1)
    samples: dict[str, list[float]] = {server.name: [] for server in contestants}
    with ExitStack() as stack:
        traffic = {server.name: stack.enter_context(rows.open_traffic(server, shape)) for server in contestants}
        for number in range(stage.load.rounds + 1):
            for server in contestants if number % 2 else reversed(contestants):
                runs = [
                    rows.checked(traffic[server.name].run(requests=stage.load.chunk_requests), server.name)
                    for _ in range(stage.load.chunks)
                ]
                if number > 0:
                    samples[server.name].append(
                        median(rows.MICROSECONDS * run.duration_s / run.requests for run in runs)
                    )
    for name, found in samples.items():
        machine.say(f"    {name:14} {median(found):8.1f} us")
    return Measurement(row, "us", contestants[0].name, samples)


def thread(stage: Stage) -> Iterator[Measurement]:
    """A node in which a thread computes: what a read waits for, and what needs the interpreter's lock."""
    shape = stage.shape(goals.NETWORK_THREAD, 1)
    module = ("tests.bench.network.node_with_thread", "0")
    records = _records(stage.load.keys)
    place = stage.directory / "node"
    with servers.node(place, records, stage.cores, "--busy-poll", "off", module=module) as node:
        servers.spread(node.process.pid)  # The thread may have a core: it is the lock that is measured.
        with machine.pinned(stage.cores.load):
            yield _beside_thread(stage, node, shape)
            yield _beside_thread(stage, called_databases(node), replace(shape, row=goals.NETWORK_THREAD_PYTHON))


def _beside_thread(stage: Stage, node: Server, shape: Shape) -> Measurement:
    machine.say(f"  {shape.row}")
    figures: dict[str, list[rows.Figure]] = {servers.NODE: [], goals.WITHOUT: []}
    with rows.open_traffic(node, shape) as traffic:
        for number in range(2 * (stage.load.rounds + 1)):
            figure = rows.run(node, traffic, shape.run_s)
            if number > 1:
                figures[servers.NODE if number % 2 else goals.WITHOUT].append(figure)
            node.process.send_signal(signal.SIGUSR1)
            sleep(SETTLE_S)
    for name, found in figures.items():
        rows.say(name, found)
    samples = {name: [figure.p99_us / MILLISECOND_US for figure in found] for name, found in figures.items()}
    return Measurement(shape.row, "ms", servers.NODE, samples)


def lone(stage: Stage) -> Iterator[Measurement]:
    """What a node uses that nobody asks anything."""
    machine.say(f"  {goals.NETWORK_LONE}")
    samples = []
    with servers.node(stage.directory / "node", _records(stage.load.keys), stage.cores) as node:
        sleep(stage.load.run_s)
        for _ in range(stage.load.rounds):
            before_ns = node.cpu_ns()
            sleep(stage.load.idle_s)
            samples.append((node.cpu_ns() - before_ns) / MILLISECOND_NS / stage.load.idle_s)
    machine.say(f"    {servers.NODE:14} {median(samples):8.2f} ms")
    yield Measurement(goals.NETWORK_LONE, "ms", servers.NODE, {servers.NODE: samples})


def behind_others(stage: Stage) -> Iterator[Measurement]:
    """What a ping waits for that comes last."""
    records = _records(stage.load.keys)
    with (
        servers.node(stage.directory / "node", records, stage.cores, "--busy-poll", "off") as node,
        machine.pinned(stage.cores.load),
    ):
        yield from pings.measure(node, stage.load.pings, records, stage.load.rounds)


def handed_off(stage: Stage) -> Iterator[Measurement]:
    """Requests that Python answers: with the least that it can do, and a real method of a node."""
    command = [sys.executable, "-m", "tests.bench.network.inline_pump"]
    shape = stage.shape(goals.NETWORK_HANDED_OFF, 64, 16)
    with process(command, ready=lambda line: line.startswith("ready ")) as (running, line):
        yield _answered_by_python(stage, shape, running, line)
    shape = stage.shape(goals.NETWORK_DATABASES, 64, 16)
    with servers.node(stage.directory / "node", _records(100), stage.cores, "--busy-poll", "off") as node:
        called = called_databases(node)
        with machine.pinned(stage.cores.load):
            yield stage.measure(shape, [called])


def called_databases(node: Server) -> Server:
    """The node, asked for its databases."""
    client = Client(*node.address)
    answer = client.exchange(msgpack.packb([0, 1, "databases", []]), _whole)
    client.close()
    assert isinstance(answer, bytes)
    return replace(node, dialect=compiled.protocols().CallDialect(b"databases", answer[4:]))


def _answered_by_python(stage: Stage, shape: Shape, running: subprocess.Popen[str], line: str) -> Measurement:
    host, _, port = line.split()[1].rpartition(":")
    dialect = RpcDialect(inline_pump.DATABASE, inline_pump.RECORDS)
    server = servers.Server(servers.NODE, running, Address(host, int(port)), dialect)
    server.pin(stage.cores.server)
    with machine.pinned(stage.cores.load):
        return stage.measure(shape, [server])


def _whole(reply: bytes) -> bytes:
    """The answer itself, if it is whole and no error."""
    _, _, error, _ = msgpack.unpackb(reply)
    assert error is None
    return reply


def _records(count: int) -> list[Record]:
    return data.make(count, data.SMALL_VALUE_BYTES).records


PARTS = {
    "network-behind": behind,
    "network-hot": hot,
    "network-cold": cold,
    "network-forwarded": forwarded,
    "network-connections": connections,
    "network-round-trip": round_trip,
    "network-thread": thread,
    "network-lone": lone,
    "network-pings": behind_others,
    "network-handed-off": handed_off,
}


def measure(part: str, directory: Path, load: Load, notes: list[str]) -> Iterator[Measurement]:
    """The rows of one part."""
    servers.allow_descriptors()
    yield from PARTS[part](Stage(directory, load, notes, servers.Cores.of_this_machine()))

"""The rows about a server on one core.

A node and redis-server hold the same records and are asked the same shapes by the same loop, every value checked; the
server that answers a constant of the same size shows what of it is the kernel's.
"""

from __future__ import annotations

import signal
import sys
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from statistics import median
from time import sleep
from typing import TYPE_CHECKING

import msgpack

from gossipkv.address import Address
from tests.bench import data, goals, machine
from tests.bench.asking import Client, node_get, node_value, redis_get, redis_value
from tests.bench.measurement import OURS
from tests.bench.network import inline_pump, rows, servers
from tests.bench.network.rows import Shape
from tests.bench.processes import DATABASE, NO_POLLING, Cores, call, free_port, node, pin, serving
from tests.bench.sources import VERSION
from tests.load import RedisDialect, RpcDialect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.bench.data import Record
    from tests.bench.measurement import Bench
    from tests.bench.processes import Server
    from tests.load import Traffic

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
GET_BYTES = len(msgpack.packb([0, ID, "get", [DATABASE, KEY]]))
ANSWER_BYTES = len(msgpack.packb([1, ID, None, [VALUE, VERSION]]))
GET_MANY_BYTES = len(msgpack.packb([0, ID, "get_many", [DATABASE, [KEY] * BATCH]]))
MANY_ANSWER_BYTES = len(msgpack.packb([1, ID, None, [[VALUE] * BATCH, VERSION]]))
CORES = Cores.of_this_machine()
KEYS, RUN_S, ROUNDS = 100_000, 1.0, 7
CHUNKS, CHUNK_REQUESTS = 200, 50  # Of one run of a single connection.


@contextmanager
def peers(bench: Bench, records: list[Record]) -> Iterator[list[Server]]:
    """A node and, where there is one, redis."""
    with ExitStack() as stack:
        found = [stack.enter_context(node(bench.directory / "node", records, CORES, *NO_POLLING))]
        if bench.takes_part(goals.REDIS, servers.redis_missing()):
            found.append(stack.enter_context(servers.redis(records, CORES.server)))
        stack.enter_context(machine.pinned(CORES.load))
        yield found


@contextmanager
def floors() -> Iterator[tuple[Server, Server]]:
    """The constants of a get and of a get_many."""
    with (
        servers.floor(GET_BYTES, ANSWER_BYTES, CORES) as one,
        servers.floor(GET_MANY_BYTES, MANY_ANSWER_BYTES, CORES) as many,
    ):
        yield one, many


def hot(bench: Bench, *, keys: int = KEYS, run_s: float = RUN_S, rounds: int = ROUNDS) -> None:
    """Records that a processor's cache holds."""
    with floors() as (one, many), peers(bench, data.make(keys).records) as both:
        rows.compare(bench, goals.NETWORK_ONE, [*both, one], Shape(64, run_s=run_s), rounds)
        rows.compare(bench, goals.NETWORK_PIPELINED, [*both, one], Shape(64, 16, run_s=run_s), rounds)
        rows.compare(bench, goals.NETWORK_BATCHED, [*both, many], Shape(16, 1, BATCH, run_s), rounds)


def resp(bench: Bench, *, keys: int = KEYS, run_s: float = RUN_S, rounds: int = ROUNDS) -> None:
    """The same node asked as Redis is, beside itself asked as clients of its own ask, and beside Redis."""
    records = data.make(keys).records
    address = Address("127.0.0.1", free_port())
    listens = ("--resp-listen", str(address), "--resp-databases", DATABASE)
    with ExitStack() as stack:
        plain = stack.enter_context(node(bench.directory / "node", records, CORES, *NO_POLLING, *listens))
        asked = [replace(plain, address=address, dialect=RedisDialect(records, database=1))]
        asked += [replace(plain, name=goals.MESSAGEPACK)]
        if bench.takes_part(goals.REDIS, servers.redis_missing()):
            asked.append(stack.enter_context(servers.redis(records, CORES.server)))
        stack.enter_context(machine.pinned(CORES.load))
        rows.compare(bench, goals.RESP_ONE, asked, Shape(64, run_s=run_s), rounds)
        rows.compare(bench, goals.RESP_PIPELINED, asked, Shape(64, 16, run_s=run_s), rounds)
        rows.compare(bench, goals.RESP_BATCHED, asked, Shape(16, 1, BATCH, run_s), rounds)


def cold(bench: Bench, *, keys: int = 2_000_000, run_s: float = RUN_S, rounds: int = ROUNDS) -> None:
    """So many records that each is fetched from memory."""
    with floors() as (one, many), peers(bench, data.make(keys).records) as both:
        rows.compare(bench, goals.NETWORK_COLD_PIPELINED, [*both, one], Shape(64, 16, run_s=run_s), rounds)
        rows.compare(bench, goals.NETWORK_COLD_BATCHED, [*both, many], Shape(16, 1, BATCH, run_s), rounds)


def forwarded(bench: Bench, *, keys: int = KEYS, run_s: float = RUN_S, rounds: int = ROUNDS) -> None:
    """Records of which a node has none: what it uses to have others answer, beside answering and beside redis."""
    records = data.make(keys).records
    with (
        floors() as (one, many),
        peers(bench, records) as both,
        servers.asker(bench.directory / "asker", records, CORES, 1) as asker,
        servers.asker(bench.directory / "asker-of-two", records, CORES, 2) as asker_of_two,
    ):
        asked = [asker, asker_of_two, *both, one]
        rows.compare(bench, goals.NETWORK_FORWARDED_ONE, asked, Shape(64, run_s=run_s), rounds)
        rows.compare(bench, goals.NETWORK_FORWARDED_PIPELINED, asked, Shape(64, 16, run_s=run_s), rounds)
        asked = [asker_of_two, asker, *both, many]
        rows.compare(bench, goals.NETWORK_FORWARDED_BATCHED, asked, Shape(16, 1, BATCH, run_s), rounds)
    bench.notes.append(
        f"forwarded: {keys:,} records, which another node has, or two others by halves, on the core of the "
        "node that is asked, which has none; a get_many is of two; the figure is of the node that is asked alone"
    )


def behind(bench: Bench, *, keys: int = KEYS, chunks: int = CHUNKS, rounds: int = ROUNDS) -> None:
    """How long a get takes that is asked right after a long value, each by a client of its own.

    Between two nodes they share a connection.  Beside it the same with nothing before it, and servers that have both.
    """
    records = [*data.make(keys).records, (LONG_KEY, b"v" * LONG_VALUE_BYTES)]
    key, value = records[0]
    with (
        ExitStack() as stack,
        peers(bench, records) as both,
        servers.asker(bench.directory / "asker", records, CORES, 1) as asker,
    ):

        def side(server: Server, *, waits: bool = True) -> Callable[[], float]:
            long, short = (stack.enter_context(closing(Client(server.address))) for _ in range(2))
            is_redis = server.name == goals.REDIS
            ask = redis_get if is_redis else partial(node_get, DATABASE)
            decode = redis_value if is_redis else node_value

            def time_ms() -> float:
                if waits:
                    long.send(ask(LONG_KEY))
                elapsed_ns = short.time(ask(key), value, decode)
                if waits:
                    long.receive(_long_answer)
                return elapsed_ns / MILLISECOND_NS

            return lambda: median(time_ms() for _ in range(1 + chunks // LONG_SHARE))

        sides = {asker.name: side(asker), goals.FIRST: side(asker, waits=False)}
        sides |= {server.name: side(server) for server in both}
        bench.compare(goals.NETWORK_BEHIND, sides, rounds)


def _long_answer(reply: bytes) -> bytes:
    """The answer with the long value, when all of it is there."""
    if len(reply) < LONG_VALUE_BYTES or not reply.endswith(LONG_TAILS):
        raise ValueError("half an answer")
    return reply


def connections(
    bench: Bench,
    *,
    keys: int = KEYS,
    counts: tuple[int, ...] = (256, 1_000, 10_000),
    run_s: float = RUN_S,
    rounds: int = ROUNDS,
) -> None:
    """Many of them, busy and idle."""
    servers.allow_descriptors()
    with floors() as (one, _), peers(bench, data.make(keys).records) as both:
        sides = {server.name: partial(_memory_kib, server, max(counts)) for server in both}
        bench.compare(goals.NETWORK_MEMORY, sides, 1, warm=0)
        for row, count in zip(goals.NETWORK_CONNECTIONS, counts, strict=True):
            rows.compare(bench, row, [*both, one], Shape(count, run_s=run_s), rounds)


def _memory_kib(server: Server, count: int) -> float:
    """What a process grows by for each connection that has been asked once and is idle."""
    with rows.open_traffic(server, Shape(64, 16)):  # What a server allocates once for all.
        sleep(SETTLE_S)
        before_bytes = server.resident_bytes()
    with rows.opened_for_once(server, Shape(count)):
        sleep(SETTLE_S)
        return (server.resident_bytes() - before_bytes) / KIB / count


def round_trip(
    bench: Bench,
    *,
    keys: int = KEYS,
    run_s: float = RUN_S,
    chunks: int = CHUNKS,
    chunk_requests: int = CHUNK_REQUESTS,
    rounds: int = ROUNDS,
) -> None:
    """One connection, one request at a time: how long it takes, and what it costs; and what it costs with a few."""
    records = data.make(keys).records
    with ExitStack() as stack:
        polling = stack.enter_context(node(bench.directory / "polling", records, CORES, "--busy-poll", "on"))
        plain, *redis = stack.enter_context(peers(bench, records))
        one, _ = stack.enter_context(floors())

        def time_us(server: Server) -> Callable[[], float]:
            traffic = stack.enter_context(rows.open_traffic(server, Shape(1)))

            def chunk_us() -> float:
                outcome = rows.checked(traffic.run(requests=chunk_requests), server.name)
                return rows.MICROSECONDS * outcome.duration_s / outcome.requests

            # The median of many short runs, so that what interrupts one of them does not count.
            return lambda: median(chunk_us() for _ in range(chunks))

        for row, asked in (
            (goals.NETWORK_ROUND_TRIP, [plain, *redis, one]),
            (goals.NETWORK_BUSY_POLL, [polling, *redis]),
        ):
            bench.compare(row, {server.name: time_us(server) for server in asked}, rounds)
        for row, asked, count in (
            (goals.NETWORK_ROUND_TRIP_CPU, [plain, *redis, one], 1),
            (goals.NETWORK_BUSY_POLL_CPU, [polling, *redis], 1),
            (goals.NETWORK_FEW_CPU, [plain, *redis, one], 8),
        ):
            rows.compare(bench, row, asked, Shape(count, run_s=run_s), rounds)


def thread(bench: Bench, *, keys: int = KEYS, run_s: float = RUN_S, rounds: int = ROUNDS) -> None:
    """A node in which a thread computes: what a read waits for, and what needs the interpreter's lock."""
    module = ("-m", "tests.bench.network.node_with_thread")
    with node(bench.directory / "node", data.make(keys).records, CORES, *NO_POLLING, module=module) as server:
        pin(server.pid, None)  # The thread may have a core: it is the lock that is measured.
        with machine.pinned(CORES.load):
            for row, asked in (
                (goals.NETWORK_THREAD, server),
                (goals.NETWORK_THREAD_PYTHON, called_databases(server)),
            ):
                with rows.open_traffic(asked, Shape(1)) as traffic:
                    quiet = partial(_p99_ms, asked, traffic, run_s)
                    beside = partial(_beside_thread, server, quiet)
                    bench.compare(row, {OURS: beside, goals.WITHOUT: quiet}, rounds)


def _p99_ms(server: Server, traffic: Traffic, run_s: float) -> float:
    return rows.run(server, traffic, run_s).p99_us / MILLISECOND_US


def _beside_thread(server: Server, run: Callable[[], float]) -> float:
    server.process.send_signal(signal.SIGUSR1)
    sleep(SETTLE_S)
    figure = run()
    server.process.send_signal(signal.SIGUSR1)
    sleep(SETTLE_S)
    return figure


def lone(bench: Bench, *, keys: int = KEYS, idle_s: float = 5.0, rounds: int = ROUNDS) -> None:
    """What a node uses that nobody asks anything."""
    with node(bench.directory / "node", data.make(keys).records, CORES) as server:

        def used_ms() -> float:
            before_ns = server.cpu_ns()
            sleep(idle_s)
            return (server.cpu_ns() - before_ns) / MILLISECOND_NS / idle_s

        bench.compare(goals.NETWORK_LONE, {OURS: used_ms}, rounds)


def handed_off(bench: Bench, *, run_s: float = RUN_S, rounds: int = ROUNDS) -> None:
    """Requests that Python answers: with the least that it can do, and a real method of a node."""
    shape = Shape(64, 16, run_s=run_s)
    command = [sys.executable, "-m", "tests.bench.network.inline_pump"]
    dialect = RpcDialect(inline_pump.DATABASE, inline_pump.RECORDS)
    with serving(command, dialect=dialect, core=CORES.server) as server, machine.pinned(CORES.load):
        rows.compare(bench, goals.NETWORK_HANDED_OFF, [server], shape, rounds)
    with node(bench.directory / "node", data.make(100).records, CORES, *NO_POLLING) as server:
        called = called_databases(server)
        with machine.pinned(CORES.load):
            rows.compare(bench, goals.NETWORK_DATABASES, [called], shape, rounds)


def called_databases(server: Server) -> Server:
    """The node, asked for its databases."""
    answer = msgpack.packb(call(server.address, "databases"))
    return replace(server, dialect=servers.protocols().CallDialect(b"databases", answer))

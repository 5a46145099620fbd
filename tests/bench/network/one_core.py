"""The rows about a server on one core.

A node and redis-server hold the same records and get the same load from the same loop, with every value checked; a
server that answers a constant of the same size shows the kernel's share.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from statistics import median
from time import sleep
from typing import TYPE_CHECKING

import msgpack

from gossipkv.address import Address
from tests.bench import data, goals, machine
from tests.bench.measurement import OURS
from tests.bench.network import rows, servers
from tests.bench.network.rows import Shape
from tests.bench.processes import DATABASE, NO_POLLING, Cores, call, free_port, node
from tests.bench.sources import VERSION
from tests.load import RedisDialect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.bench.data import Record
    from tests.bench.measurement import Bench
    from tests.bench.processes import Server

KIB = 1024
SETTLE_S = 0.2
BATCH = 100
ID = 0xFFFF  # The length of most ids of a run.
MILLISECOND_NS = 1e6
KEY, VALUE = b"k" * 16, b"v" * data.SMALL_VALUE_BYTES
GET_BYTES = len(msgpack.packb([0, ID, "get", [DATABASE, KEY]]))
ANSWER_BYTES = len(msgpack.packb([1, ID, None, [VALUE, VERSION]]))
GET_MANY_BYTES = len(msgpack.packb([0, ID, "get_many", [DATABASE, [KEY] * BATCH]]))
MANY_ANSWER_BYTES = len(msgpack.packb([1, ID, None, [[VALUE] * BATCH, VERSION]]))
CORES = Cores.of_this_machine()
KEYS, RUN_S, ROUNDS = 100_000, 1.0, 7
CHUNKS, CHUNK_REQUESTS = 200, 50  # The short runs of a single connection.


@contextmanager
def peers(bench: Bench, records: list[Record]) -> Iterator[list[Server]]:
    """Run a node and, if installed, redis."""
    with ExitStack() as stack:
        found = [stack.enter_context(node(bench.directory / "node", records, CORES, *NO_POLLING))]
        if bench.takes_part(goals.REDIS, servers.redis_missing()):
            found.append(stack.enter_context(servers.redis(records, CORES.server)))
        stack.enter_context(machine.pinned(CORES.load))
        yield found


@contextmanager
def floors() -> Iterator[tuple[Server, Server]]:
    """Run servers of constants for a get and a get_many."""
    with (
        servers.floor(GET_BYTES, ANSWER_BYTES, CORES) as one,
        servers.floor(GET_MANY_BYTES, MANY_ANSWER_BYTES, CORES) as many,
    ):
        yield one, many


def hot(bench: Bench, *, keys: int = KEYS, run_s: float = RUN_S, rounds: int = ROUNDS) -> None:
    with floors() as (one, many), peers(bench, data.make(keys).records) as both:
        rows.compare(bench, goals.NETWORK_ONE, [*both, one], Shape(64, run_s=run_s), rounds)
        rows.compare(bench, goals.NETWORK_PIPELINED, [*both, one], Shape(64, 16, run_s=run_s), rounds)
        rows.compare(bench, goals.NETWORK_BATCHED, [*both, many], Shape(16, 1, BATCH, run_s), rounds)


def resp(bench: Bench, *, keys: int = KEYS, run_s: float = RUN_S, rounds: int = ROUNDS) -> None:
    """Compare a node asked by Redis' protocol with itself asked by its own, and with Redis."""
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
    """Measure so many records that each is fetched from memory."""
    with floors() as (one, many), peers(bench, data.make(keys).records) as both:
        rows.compare(bench, goals.NETWORK_COLD_PIPELINED, [*both, one], Shape(64, 16, run_s=run_s), rounds)
        rows.compare(bench, goals.NETWORK_COLD_BATCHED, [*both, many], Shape(16, 1, BATCH, run_s), rounds)


def forwarded(bench: Bench, *, keys: int = KEYS, run_s: float = RUN_S, rounds: int = ROUNDS) -> None:
    """Measure a node that forwards all reads, beside answering nodes and redis."""
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


def connections(
    bench: Bench,
    *,
    keys: int = KEYS,
    counts: tuple[int, ...] = (256, 1_000, 10_000),
    run_s: float = RUN_S,
    rounds: int = ROUNDS,
) -> None:
    servers.allow_descriptors()
    with floors() as (one, _), peers(bench, data.make(keys).records) as both:
        sides = {server.name: partial(_memory_kib, server, max(counts)) for server in both}
        bench.compare(goals.NETWORK_MEMORY, sides, 1, warm=0)
        for row, count in zip(goals.NETWORK_CONNECTIONS, counts, strict=True):
            rows.compare(bench, row, [*both, one], Shape(count, run_s=run_s), rounds)


def _memory_kib(server: Server, count: int) -> float:
    """Return a process' memory growth per connection that was used once and is idle."""
    with rows.open_traffic(server, Shape(64, 16)):  # This triggers a server's one-time allocations.
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
    """Measure time and processor time of one request at a time on one connection, and processor time with a few."""
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

            # The median of many short runs ignores interrupted ones.
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


def lone(bench: Bench, *, keys: int = KEYS, idle_s: float = 5.0, rounds: int = ROUNDS) -> None:
    with node(bench.directory / "node", data.make(keys).records, CORES) as server:

        def used_ms() -> float:
            before_ns = server.cpu_ns()
            sleep(idle_s)
            return (server.cpu_ns() - before_ns) / MILLISECOND_NS / idle_s

        bench.compare(goals.NETWORK_LONE, {OURS: used_ms}, rounds)


def called_databases(server: Server) -> Server:
    answer = msgpack.packb(call(server.address, "databases"))
    return replace(server, dialect=servers.protocols().CallDialect(b"databases", answer))

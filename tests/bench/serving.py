"""The rows about a node: what a reader notices while the node builds another database, and what a get costs at rest.

One client asks one get at a time over one connection, as fast as it is answered (a closed loop), and checks each
answer after its clock has stopped.  It speaks MessagePack-RPC by itself, so no code of ours is on its side.  Nothing is
pinned: where node, build and client run is up to the node and the system, as it is for a user.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from statistics import median
from time import monotonic, perf_counter_ns, sleep
from typing import TYPE_CHECKING

import msgpack

from tests.bench import data, goals, machine
from tests.bench.measurement import Measurement
from tests.bench.sources import bulk, write_database

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.bench.data import Record

READY_TIMEOUT_S = 60.0
BUILD_TIMEOUT_S = 300.0
SOCKET_TIMEOUT_S = 10.0
POLL_PERIOD_S = 0.05
MICROSECOND_NS = 1e3
RECEIVE_BYTES = 1 << 16
SERVED = "served"


@dataclass(frozen=True)
class Load:
    """How much is served, how much is built beside it, how often."""

    served_records: int = 100_000
    built_bytes: int = 400 << 20
    small_builds: int = 20  # Each too small to give way before it is done.
    small_bytes: int = 64 << 10
    idle_s: float = 4.0
    rounds: int = 5


class Client:
    """A connection that has one request in flight."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), timeout=SOCKET_TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def exchange(self, request: bytes, decode: Callable[[bytes], object]) -> object:
        """Send one request; `decode` raises ValueError for half an answer."""
        self.send(request)
        return self.receive(decode)

    def send(self, request: bytes) -> None:
        """Ask, and do not wait."""
        self._socket.sendall(request)

    def receive(self, decode: Callable[[bytes], object]) -> object:
        """What was asked; `decode` raises ValueError for half an answer."""
        reply = self._receive()
        while True:
            try:
                return decode(reply)
            except ValueError:
                reply += self._receive()

    def _receive(self) -> bytes:
        received = self._socket.recv(RECEIVE_BYTES)
        if not received:
            raise ConnectionError("the server closed the connection")
        return received

    def time(self, request: bytes, value: bytes, decode: Callable[[bytes], object]) -> int:
        """Nanoseconds of one get that must answer `value`."""
        begin = perf_counter_ns()
        self._socket.sendall(request)
        reply = self._receive()
        elapsed = perf_counter_ns() - begin
        assert decode(reply) == value
        return elapsed

    def close(self) -> None:
        """Hang up."""
        self._socket.close()


def node_get(database: str, key: bytes) -> bytes:
    """A get as MessagePack-RPC."""
    return msgpack.packb([0, 1, "get", [database, key]])


def node_value(reply: bytes) -> object:
    """The value in an answer; None for any error."""
    _, _, error, result = msgpack.unpackb(reply)
    return None if error is not None else result[0]


def redis_get(key: bytes) -> bytes:
    """A get in redis' own protocol."""
    return b"*2\r\n$3\r\nGET\r\n$%d\r\n%b\r\n" % (len(key), key)


def redis_set(key: bytes, value: bytes) -> bytes:
    """A set in redis' own protocol."""
    return b"*3\r\n$3\r\nSET\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (len(key), key, len(value), value)


def redis_value(reply: bytes) -> object:
    """The value in an answer."""
    size, _, rest = reply.partition(b"\r\n")
    if not reply.endswith(b"\r\n") or (size.startswith(b"$") and size != b"$-1" and not rest):
        raise ValueError("half an answer")
    return rest[:-2]


@contextmanager
def process(command: list[str], *, ready: Callable[[str], bool]) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server that says on its standard output when it is ready; ended with SIGTERM."""
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        deadline = monotonic() + READY_TIMEOUT_S
        line = ""
        while not ready(line):
            line = server.stdout.readline()
            if not line or monotonic() > deadline:
                raise RuntimeError(f"{' '.join(command[:4])} … was not ready within {READY_TIMEOUT_S:.0f} s")
        yield server, line
    finally:
        server.send_signal(signal.SIGTERM)
        try:
            server.wait(READY_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        server.stdout.close()


@contextmanager
def node(source: Path, directory: Path, *options: str) -> Iterator[tuple[str, int]]:
    """A node as a user starts it, on a free port."""
    command = [sys.executable, "-m", "gossipkv", "serve", "--source", str(source), "--data", str(directory)]
    command += options
    with process([*command, "--listen", "127.0.0.1:0"], ready=lambda line: line.startswith("ready ")) as (_, line):
        host, _, port = line.split()[1].rpartition(":")
        yield host, int(port)


@contextmanager
def redis(records: list[Record]) -> Iterator[tuple[str, int] | None]:
    """redis-server without persistence, holding the same records; None where it is not installed."""
    if shutil.which("redis-server") is None:
        machine.say("  redis-server takes no part: it is not installed")
        yield None
        return
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = ["redis-server", "--save", "", "--appendonly", "no", "--bind", "127.0.0.1", "--port", str(port)]
    with process(command, ready=lambda line: "eady to accept connections" in line):
        client = Client("127.0.0.1", port)
        for key, value in records:
            client.exchange(redis_set(key, value), redis_value)
        client.close()
        yield "127.0.0.1", port


def percentile(samples: list[int], share: float) -> float:
    """Microseconds that `share` of the samples do not exceed."""
    return sorted(samples)[min(len(samples) - 1, int(share * len(samples)))] / MICROSECOND_NS


@dataclass(frozen=True)
class Reader:
    """A client, the requests it repeats in random order, and how it reads an answer."""

    client: Client
    questions: list[tuple[bytes, bytes]]  # Request and the value that must come back.
    decode: Callable[[bytes], object]
    rng: random.Random

    def read(self, until: Callable[[], bool]) -> list[int]:
        """Ask until `until()`, which is looked at now and then, says so; nanoseconds of each get."""
        samples = []
        next_look = monotonic() + POLL_PERIOD_S
        while True:
            request, value = self.rng.choice(self.questions)
            samples.append(self.client.time(request, value, self.decode))
            if monotonic() >= next_look:
                if until():
                    return samples
                next_look = monotonic() + POLL_PERIOD_S

    def read_for(self, seconds: float) -> list[int]:
        """Ask for so long."""
        end = monotonic() + seconds
        return self.read(lambda: monotonic() >= end)


def wait_for(served: Callable[[], bool], what: str) -> None:
    """Sleep until a database is served."""
    deadline = monotonic() + BUILD_TIMEOUT_S
    while not served():
        if monotonic() > deadline:
            raise RuntimeError(f"{what} was not served within {BUILD_TIMEOUT_S:.0f} s")
        sleep(POLL_PERIOD_S)


@dataclass
class Scene:
    """A node that serves one database, and the means to give it another."""

    source: Path
    control: Client
    reader: Reader
    load: Load

    def served(self, database: str, key: bytes) -> bool:
        """Whether a key of this database is answered."""
        return self.control.exchange(node_get(database, key), node_value) is not None

    def during_a_build(self, name: str) -> list[int]:
        """Reads while a new database is built, from its appearance until it answers."""
        first_key, _ = next(bulk(self.load.built_bytes, data.LARGE_VALUE_BYTES, name))
        write_database(self.source, name, bulk(self.load.built_bytes, data.LARGE_VALUE_BYTES, name))
        os.sync()
        self.control.exchange(msgpack.packb([0, 1, "refresh", [name]]), msgpack.unpackb)
        deadline = monotonic() + BUILD_TIMEOUT_S
        samples = self.reader.read(lambda: self.served(name, first_key) or monotonic() > deadline)
        wait_for(lambda: self.served(name, first_key), name)
        return samples

    def during_small_builds(self, name: str) -> list[int]:
        """Reads while many small databases are built, from their appearance until all of them answer."""
        first_keys = {}
        for number in range(self.load.small_builds):
            database = f"{name}-{number}"
            first_keys[database], _ = next(bulk(self.load.small_bytes, data.SMALL_VALUE_BYTES, database))
            write_database(self.source, database, bulk(self.load.small_bytes, data.SMALL_VALUE_BYTES, database))
        os.sync()
        self.control.exchange(msgpack.packb([0, 1, "refresh", [None]]), msgpack.unpackb)

        def all_served() -> bool:
            return all(self.served(database, key) for database, key in first_keys.items())

        deadline = monotonic() + BUILD_TIMEOUT_S
        samples = self.reader.read(lambda: all_served() or monotonic() > deadline)
        wait_for(all_served, name)
        return samples


def measure(directory: Path, load: Load) -> Iterator[Measurement]:
    """The rows with a goal, then the one beside redis."""
    records = data.make(load.served_records, data.SMALL_VALUE_BYTES).records
    source = directory / "source"
    source.mkdir()
    write_database(source, SERVED, iter(records))
    rng = random.Random(data.SEED)
    with ExitStack() as stack:
        address = stack.enter_context(node(source, directory / "data"))
        redis_address = stack.enter_context(redis(records))
        clients = [Client(*address), Client(*address)] + ([Client(*redis_address)] if redis_address else [])
        for client in clients:
            stack.callback(client.close)
        scene = Scene(
            source=source,
            control=clients[0],
            reader=Reader(clients[1], [(node_get(SERVED, key), value) for key, value in records], node_value, rng),
            load=load,
        )
        beside = [Reader(client, [(redis_get(k), v) for k, v in records], redis_value, rng) for client in clients[2:]]
        wait_for(lambda: scene.served(SERVED, records[0][0]), SERVED)
        stack.enter_context(machine.uncollected())
        yield from _rounds(scene, beside)


def _rounds(scene: Scene, beside: list[Reader]) -> Iterator[Measurement]:
    building: dict[str, list[float]] = {"GossipKV": [], goals.IDLE: []}
    building_small: dict[str, list[float]] = {"GossipKV": [], goals.IDLE: []}
    resting: dict[str, list[float]] = {"GossipKV": [], "redis-server": []}
    scene.reader.read_for(scene.load.idle_s)  # Not counted: everything is touched for the first time.
    for number in count(1):
        idle = scene.reader.read_for(scene.load.idle_s)
        resting["GossipKV"].append(percentile(idle, 0.5))
        for redis_reader in beside:
            resting["redis-server"].append(percentile(redis_reader.read_for(scene.load.idle_s), 0.5))
        busy = scene.during_a_build(f"bulk-{number}")
        crowded = scene.during_small_builds(f"small-{number}")
        for samples, beside_builds in ((building, busy), (building_small, crowded)):
            samples["GossipKV"].append(percentile(beside_builds, 0.99))
            samples[goals.IDLE].append(percentile(idle, 0.99))
        machine.say(f"    {len(idle):,} gets at rest, {len(busy):,} beside a build; median {median(busy) / 1e3:.1f} us")
        machine.say(f"    {len(crowded):,} beside small builds; median {median(crowded) / 1e3:.1f} us")
        if number == scene.load.rounds:
            break
    yield Measurement(goals.SERVING, "us", "GossipKV", building)
    yield Measurement(goals.SERVING_SMALL, "us", "GossipKV", building_small)
    if beside:
        yield Measurement(goals.ROUND_TRIP, "us", "GossipKV", resting)

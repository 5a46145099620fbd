"""Tables that the benchmark writes, on one node or three, and Redis servers that sync as they do.

Both are asked by the same loop for the same records, those of `data.numbered`, each once.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from gossipkv.address import Address
from tests.bench import data
from tests.bench.cluster import nodes
from tests.bench.network import rows
from tests.bench.network.servers import protocols
from tests.bench.processes import Server, connect, cpu_ns, free_port, process, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from gossipkv.client import blocking
    from gossipkv.loadtest._loadtest import Dialect
    from tests.bench.cluster.nodes import Nodes
    from tests.bench.data import Record
    from tests.bench.network.rows import Shape
    from tests.load import Traffic

TABLE = "t"
PARTITIONS = 16
REPLICAS = 3
BATCH = 1_000  # The records that are checked by one request.


@dataclass(frozen=True)
class Writing:
    """Open connections that put records, and the processes whose time counts."""

    name: str
    traffic: Traffic
    processes: list[int]
    numbers: Callable[[], int]  # Returns the number of the next record.

    def run(self, puts: int) -> Written:
        """Put so many new records; raise if an answer is wrong."""
        first, before_ns = self.numbers(), [*map(cpu_ns, self.processes)]
        outcome = rows.checked(self.traffic.run(requests=puts), self.name)
        used_ns = [after - before for after, before in zip(map(cpu_ns, self.processes), before_ns, strict=True)]
        return Written(
            range(first, self.numbers()),
            [ns / rows.MICROSECOND_NS / puts for ns in used_ns],
            outcome.duration_s * rows.MICROSECONDS / puts,
            outcome.bytes_received / puts,
        )


class Written(NamedTuple):
    """The numbers of the records, and for each the processor time by process, the time, and the answer's size."""

    numbers: range
    used_us: list[float]
    took_us: float
    answer_bytes: float


@contextmanager
def opened(name: str, dialect: Dialect, address: Address, processes: list[int], shape: Shape) -> Iterator[Writing]:
    with rows.open_traffic(Server(name, None, address, dialect), shape) as traffic:
        yield Writing(name, traffic, processes, lambda: dialect.next)


def puts(first: int) -> Dialect:
    return protocols().PutDialect(TABLE.encode(), first)


@contextmanager
def tables(
    directory: Path, partitions: int, environ: Mapping[str, str] | None = None, **settings: str
) -> Iterator[Nodes]:
    """Run three nodes that take writes of a new table at all of its replicas."""
    with nodes.running(directory, REPLICAS, refresh_period="off", environ=environ, **settings) as cluster:
        asked = nodes.Nodes(cluster)
        try:
            asked.wait_alive()
            make(asked, partitions)
            yield asked
        finally:
            asked.close()


def fill(address: Address, records: Sequence[Record], partitions: int, *, replication: int = 1) -> None:
    """Make the table with these records, through one node."""
    with connect(address) as client:
        options = {"kind": "hash", "partitions": partitions, "replication": replication}
        wait_for(lambda: client.call("create_table", TABLE, options) is not None, "a table")
        wait_for(lambda: client.call("put", TABLE, b"first", b"", {"level": "all"}) is not None, "a first put")
        client.table(TABLE).put_many(records)


def make(asked: Nodes, partitions: int, name: str = TABLE, **more: int) -> None:
    """Make a table, and return when it exists on all nodes."""
    options = {"kind": "hash", "partitions": partitions, "replication": REPLICAS, **more}
    asked.call(1, "create_table", name, options)
    for number in asked.numbers:
        wait_for(partial(_puts, asked, number, name), f"puts at {number}")


def _puts(asked: Nodes, number: int, name: str) -> bool:
    return asked.call(number, "put", name, b"first", b"", {"level": "all"}) is not None


def wait_for_records(client: blocking.Client, records: Sequence[Record]) -> None:
    keys, values = [key for key, _ in records], [value for _, value in records]
    wait_for(lambda: client.table(TABLE).get_many(keys) == values, "values that were put")


def wait_for_numbered(address: Address, numbers: range) -> None:
    """Return when a node's own replicas have the records of these numbers."""
    keys = [data.key_of(number) for number in numbers]
    values = [data.value_of(key) for key in keys]
    with connect(address) as client:
        for first in range(0, len(keys), BATCH):
            part = slice(first, first + BATCH)
            wait_for(partial(_has, client, keys[part], values[part]), f"all values at {address}")


def _has(client: blocking.Client, keys: list[bytes], values: list[bytes]) -> bool:
    found = client.call("get_many", TABLE, keys, {"local": True})
    return isinstance(found, list) and found[0] == values


def records_of(turn: int, count: int) -> list[Record]:
    """Return the records of a turn, with keys that no other turn has."""
    keys = map(data.key_of, range(turn * count, (turn + 1) * count))
    return [(key, data.value_of(key)) for key in keys]


@contextmanager
def redis(directory: Path, count: int) -> Iterator[list[tuple[int, Address]]]:
    """Run a master and replicas, all of which sync before they answer; yield their processes and addresses."""
    found: list[tuple[int, Address]] = []
    with ExitStack() as stack:
        for number in range(count):
            port = free_port()
            place = directory / f"redis-{number}-of-{count}"
            place.mkdir(parents=True)
            command = ["redis-server", "--save", "", "--appendonly", "yes", "--appendfsync", "always"]
            command += ["--bind", "127.0.0.1", "--port", str(port), "--dir", str(place)]
            command += ["--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0"]
            if found:
                command += ["--replicaof", "127.0.0.1", str(found[0][1].port)]
            ready = _is_replica if found else _is_master
            running, _ = stack.enter_context(process(command, ready=ready))
            found.append((running.pid, Address("127.0.0.1", port)))
        yield found


def _is_master(line: str) -> bool:
    return "eady to accept connections" in line


def _is_replica(line: str) -> bool:
    return "Finished with success" in line

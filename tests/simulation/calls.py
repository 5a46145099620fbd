"""Counts of the Python calls that requests, transactions and an idle second cost each node of a simulated cluster.

`python -m tests.simulation.calls` prints them. A call counts if its function is the package's; an entry into a
suspended coroutine or generator is a re-entry. The counts of idle nodes over the same virtual time are subtracted, so
the rest belongs to the requests: from the arrival of a request to its answer, and the feed of its record.
"""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

import gossipkv
from gossipkv.node.identity import read_node
from gossipkv.register.metadata.operations import OPERATION_ID_BYTES, Operation, OperationOutcome
from tests.world.datasets.contents import DATABASE
from tests.world.datasets.sharing_cluster import content_of
from tests.world.nodes.machine import SPEAKER
from tests.world.nodes.phases import begin
from tests.world.nodes.sharing import PARTITIONS, SharedDatabase
from tests.world.nodes.sources import upload
from tests.world.nodes.table_clients import TableClients
from tests.world.nodes.whole_cluster import USUAL, simulate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from gossipkv.wire.rpc import Value
    from tests.world.nodes.whole_cluster import Connection, SimulatedCluster

SEED: Final = 0  # Python answers all requests of tables at the first node.
GATHERING_SEED: Final = 2  # Its serving loop gathers plain writes.
SEEDS: Final = (0, 1, 3)  # The runs of which the cheapest counts, where looks of each second weigh much.
REQUESTS: Final = 64
BURSTS: Final = 4  # Requests in flight together: a look of each second that falls among them then hardly counts.
PACKAGE: Final = f"{Path(gossipkv.__file__).parent}/"
TABLE: Final = "t"
VALUE: Final = b"v" * 100
SETTLED_S: Final = 5.0  # The time until the creation of the table and the first puts have no more effect.
NODES: Final = 20  # The cluster that a verdict is made over.
DATASETS: Final = (DATABASE, *(f"dataset-{number}" for number in range(4)))
TABLES: Final = tuple(f"table-{number}" for number in range(5))
WELL_S: Final = 120.0  # The time until everything serves.
QUIET_S: Final = 30.0  # The time until all nodes have reported what they hold.
IDLE_S: Final = 20  # Several periods of each task, among them the looks at the source.
MISSED: Final = 1024  # The records that a node lacks.
RANGES: Final = 48  # The ranges of which a node takes its share.
LONGEST: Final = 25  # The functions in a message.
NOBODY: Final = b"n" * 16  # The uuid of a node that is down.
USUALLY: Final = 0.5  # A file counts if each second request calls one of its functions.
RESUMED: Final = 3  # The bits of the argument of RESUME that are zero at the start of a function.


class Function(NamedTuple):
    file: str
    name: str

    def __str__(self) -> str:
        return f"{self.file}: {self.name}"


@dataclass(frozen=True)
class Calls:
    """The calls of one node for each request."""

    by_function: dict[Function, float]
    reentries: float

    @property
    def total(self) -> float:
        return sum(self.by_function.values())

    @property
    def files(self) -> set[str]:
        by_file: Counter[str] = Counter()
        for function, calls in self.by_function.items():
            by_file[function.file] += calls
        return {file for file, calls in by_file.items() if calls >= USUALLY}

    def __str__(self) -> str:
        most = sorted(self.by_function.items(), key=lambda item: -item[1])[:LONGEST]
        lines = [f"{calls:8.2f}  {function}" for function, calls in most]
        return "\n".join(
            [f"{self.total:.1f} calls in {len(self.files)} files, {self.reentries:.1f} re-entries; most often:", *lines]
        )


class _Profile:
    """Entries by machine, function, and True for re-entries."""

    def __init__(self) -> None:
        self.entries: Counter[tuple[str, Function, bool]] = Counter()

    @contextmanager
    def running(self) -> Iterator[None]:
        before = sys.getprofile()
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(before)

    def _note(self, frame: FrameType, event: str, argument: object) -> None:
        del argument
        code = frame.f_code
        machine = SPEAKER.get() if event == "call" and code.co_filename.startswith(PACKAGE) else None
        if machine is not None:
            function = Function(code.co_filename.removeprefix(PACKAGE), code.co_qualname)
            self.entries[machine.name, function, code.co_code[frame.f_lasti + 1] & RESUMED != 0] += 1


async def ask_all(connections: list[Connection], method: str, *value: bytes) -> None:
    """Send `REQUESTS` requests with keys of their own, one at a time over each connection."""

    async def ask(connection: Connection, numbers: range) -> None:
        for number in numbers:
            await connection.send(method, TABLE, b"key %d" % number, *value)
            response = await connection.read()
            if response.error is not None:
                raise response.error

    async with trio.open_nursery() as nursery:
        for first, connection in enumerate(connections):
            nursery.start_soon(ask, connection, range(first, REQUESTS, len(connections)))


async def _count(cluster: SimulatedCluster, method: str, *value: bytes, in_flight: int) -> dict[str, Calls]:
    """Return the calls of each node while the first is asked, without gossip: its packets come at drawn times."""
    asked, idle, rounds = _Profile(), _Profile(), BURSTS if in_flight > 1 else 1
    async with AsyncExitStack() as stack:
        origin = cluster.machines[0]
        connections = [await stack.enter_async_context(cluster.connected(origin)) for _ in range(in_flight)]
        await ask_all(connections, method, *value)  # Fills what the node keeps for later requests.
        await trio.sleep(SETTLED_S)
        began_s = trio.current_time()
        with asked.running():
            for _ in range(rounds):
                await ask_all(connections, method, *value)
        took_s = trio.current_time() - began_s
        with idle.running():
            await trio.sleep(took_s)
    asked.entries.subtract(idle.entries)
    for key in [key for key in asked.entries if key[1].file.startswith("gossip/")]:
        del asked.entries[key]
    return {machine.name: _of(machine.name, asked.entries, rounds * REQUESTS) for machine in cluster.machines}


def _of(machine: str, entries: Counter[tuple[str, Function, bool]], requests: int) -> Calls:
    mine = [
        (function, again, number / requests) for (name, function, again), number in entries.items() if name == machine
    ]
    return Calls(
        {function: number for function, again, number in mine if not again},
        sum(number for _, again, number in mine if again),
    )


def _note_fewer(found: dict[str, Calls], name: str, calls: Calls) -> None:
    found[name] = min(calls, found.get(name, calls), key=attrgetter("total"))


def count_calls() -> dict[str, Calls]:
    """Return the calls by request and node: three nodes, three replicas, and the level `majority`."""
    found: dict[str, Calls] = {}

    async def scenario(put: str, get: str, cluster: SimulatedCluster) -> None:
        await begin(cluster)
        await TableClients(cluster).create(TABLE, replication=len(cluster.machines))
        for in_flight in (1, REQUESTS):
            of_puts = await _count(cluster, "put", VALUE, in_flight=in_flight)
            found[f"{put}, {in_flight} in flight, origin"] = of_puts["n1"]
            found[f"{put}, {in_flight} in flight, target"] = of_puts["n2"]
        found[get] = (await _count(cluster, "get", in_flight=1))["n1"]

    for seed, put, get in ((SEED, "put in Python", "get in Python"), (GATHERING_SEED, "put", "get")):
        simulate(partial(scenario, put, get), seed, machines=3)
    return found


def count_transactions() -> dict[str, Calls]:
    """Return the calls of one METADATA transaction, one after another, at three servers of which one is asked.

    They are the fewest of some drawn runs: nodes follow a map in steps, and each step costs a look at all partitions.
    """
    found: dict[str, Calls] = {}

    async def scenario(cluster: SimulatedCluster) -> None:
        await begin(cluster)
        first, other, _ = cluster.machines
        bounds: Value = [b"%02d" % number for number in range(1, REQUESTS)]
        wanted: Value = {"kind": "range", "bounds": bounds, "replication": 3}
        table = await cluster.ask(first, "create_table", TABLE, wanted, timeout_s=WELL_S)
        told = await cluster.ask(first, "partition_map", TABLE, {"limit": REQUESTS})
        assert isinstance(table, dict)
        assert isinstance(told, dict)
        await trio.sleep(QUIET_S)
        register, asked = bytes.fromhex(table["table"]), _Profile()
        record = read_node(first.disk, first.config.data)
        assert record is not None
        async with cluster.connected(first) as connection:

            async def transact(register: bytes, number: int, base: int, name: str, argument: object) -> None:
                operation = Operation(number.to_bytes(OPERATION_ID_BYTES, "big"), base, name, 1, argument)
                await connection.send("metadata_transact", register, [operation.encode()], 60_000)
                response = await connection.read()
                assert response.result[0][1] == OperationOutcome.DONE, response

            [catalogue, *_] = await cluster.ask(first, "metadata_status", None)
            # The servers leave moves to a node that is down to operators, since the catalogue names the node.
            down = NOBODY, "down", "", 1, None, 0
            await transact(2 * bytes.fromhex(record.cluster_id), 0, catalogue["sequence"], "set_node", down)
            await trio.sleep(QUIET_S)
            with asked.running():
                for number, place in enumerate(told["partitions"], 1):
                    argument = place["start"], place["id"], number, NOBODY, 0
                    await transact(register, number, told["config"] + number - 1, "assign", argument)
        _note_fewer(found, "transaction, the asked server", _of(first.name, asked.entries, REQUESTS))
        _note_fewer(found, "transaction, another server", _of(other.name, asked.entries, REQUESTS))

    for seed in SEEDS:
        simulate(scenario, seed, machines=3, config=replace(USUAL, planner="off"))
    return found


def count_verdict() -> dict[str, Calls]:
    """Return the calls of one verdict, and of an idle second: twenty nodes, five datasets, five tables; all is well."""
    found: dict[str, Calls] = {}

    async def scenario(cluster: SimulatedCluster) -> None:
        first, other, *_ = cluster.machines
        shared = SharedDatabase(cluster, replication=2)
        for machine in cluster.machines:
            for name in DATASETS:
                upload(machine.disk, content_of("101"), range(PARTITIONS), database=name)
        await shared.start()

        async def is_well(databases: int) -> bool:
            """Everything serves at all nodes."""
            verdict = await cluster.ask(first, "verdict")
            assert isinstance(verdict, dict)
            return (verdict["level"], verdict["databases"], verdict["reasons"]) == ("well", databases, [])

        await cluster.until(partial(is_well, len(DATASETS)), within_s=WELL_S, every_s=1)
        for name in TABLES:
            table: Value = {"kind": "hash", "partitions": 8, "replication": 3}
            await cluster.ask(first, "create_table", name, table, timeout_s=WELL_S)
        await cluster.until(partial(is_well, len(DATASETS) + len(TABLES)), within_s=WELL_S, every_s=1)
        await trio.sleep(QUIET_S)
        async with cluster.connected(first) as connection:
            asked = _Profile()
            with asked.running():  # For a few milliseconds, in which an idle node does next to nothing.
                await connection.send("verdict")
                await connection.read()
        found["verdict, the asked node"] = _of(first.name, asked.entries, 1)
        found["verdict, another node"] = _of(other.name, asked.entries, 1)
        idle = _Profile()
        with idle.running():
            await trio.sleep(IDLE_S)
        found["idle second"] = _of(other.name, idle.entries, IDLE_S)

    simulate(scenario, SEED, machines=NODES)
    return found


def _part(value: Value, *path: str) -> Value:
    """Return a part of nested maps; None if a name is missing."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def count_catch_up() -> dict[str, Calls]:
    """Return the calls for each record that a node has missed among many partitions, until the node has all."""
    found: dict[str, Calls] = {}

    async def scenario(cluster: SimulatedCluster) -> None:
        await begin(cluster)
        feeder, other, away = cluster.machines
        table: Value = {"kind": "hash", "partitions": MISSED // 4, "replication": len(cluster.machines)}
        await cluster.ask(feeder, "create_table", TABLE, table, timeout_s=WELL_S)
        await trio.sleep(SETTLED_S)
        await away.stop()
        for first in range(0, MISSED, REQUESTS):
            rows: Value = [[b"key %d" % number, VALUE] for number in range(first, first + REQUESTS)]
            await cluster.ask(feeder, "put_many", TABLE, rows)

        async def has_all() -> bool:
            """The node lacks nothing."""
            return _part(await cluster.ask(feeder, "info"), "tables", "lag_records", TABLE, away.name) == 0

        caught = _Profile()
        with caught.running():
            await away.start()
            await cluster.until(has_all, within_s=WELL_S)
        for name, machine in (("a feeder", feeder), ("another node", other), ("the node", away)):
            found[f"catch-up, {name}"] = _of(machine.name, caught.entries, MISSED)

    simulate(scenario, SEED, machines=3)
    return found


def count_moves() -> dict[str, Calls]:
    """Return the calls for each range that moves to an added node, at the node that decides and at the added one.

    They are the fewest of some drawn runs: gossip and polls of a run that waits longer count as well.
    """
    found: dict[str, Calls] = {}

    async def scenario(cluster: SimulatedCluster) -> None:
        *machines, added = cluster.machines
        await begin(cluster, added)
        bounds: Value = [b"%04d" % number for number in range(1, RANGES)]
        table: Value = {"kind": "range", "replication": len(machines), "bounds": bounds}
        await cluster.ask(machines[0], "create_table", TABLE, table, timeout_s=WELL_S)
        added.config = replace(added.config, join=(machines[0].address,))
        await added.start()
        await trio.sleep(QUIET_S)
        held = 0

        async def has_moved() -> bool:
            """Nothing moves, and the added node has its share."""
            nonlocal held
            ranges = _part(await cluster.ask(machines[0], "partition_map", TABLE), "partitions")
            assert isinstance(ranges, list)
            rows = [_part(range_, "assignments") for range_ in ranges]
            hosts = [row for some in rows if isinstance(some, list) for row in some]
            held = sum(_part(row, "node") == added.name for row in hosts)
            return held > RANGES / 2 and all(_part(row, "state") == "AVAILABLE" for row in hosts)

        moved = _Profile()
        with moved.running():
            await cluster.ask(machines[0], "add_node", added.name, timeout_s=WELL_S)
            await cluster.until(has_moved, within_s=WELL_S)
        calls = {machine: _of(machine.name, moved.entries, held) for machine in cluster.machines}
        busiest = max((calls[machine] for machine in machines), key=attrgetter("total"))
        _note_fewer(found, "a move, the busiest node", busiest)
        _note_fewer(found, "a move, the added node", calls[added])

    for seed in SEEDS:
        simulate(scenario, seed, machines=4)
    return found


def main() -> None:
    found = count_calls() | count_transactions() | count_verdict() | count_catch_up() | count_moves()
    lines = ["| request | calls | re-entries | files |", "|---|---|---|---|"]
    lines += [
        f"| {name} | {calls.total:.0f} | {calls.reentries:.0f} | {len(calls.files)} |" for name, calls in found.items()
    ]
    sys.stdout.write("\n".join([*lines, *(f"\n{name}: {calls}" for name, calls in found.items()), ""]))


if __name__ == "__main__":
    main()

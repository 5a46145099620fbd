"""Gets of what is here, where most of a large table is elsewhere, beside a node that knows no other."""

from __future__ import annotations

import random
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gossipkv.address import Address
from gossipkv.keyspace.partitioner import partition
from gossipkv.storage.builder import build
from tests.bench import data, goals, machine
from tests.bench.cluster import table_node
from tests.bench.datasets import records
from tests.bench.network import rows, servers
from tests.bench.network.rows import Shape
from tests.bench.serving import process
from tests.load import RpcDialect

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.bench.data import Record
    from tests.bench.measurement import Measurement
    from tests.bench.network.servers import Cores, Server


@dataclass(frozen=True)
class Load:
    """How large the table is, and how much of it is here."""

    partitions: tuple[int, ...] = (65_536, 34_464)  # As many as a version may have, and the rest of 100,000.
    here: int = 1_024  # All of the first.
    keys: int = 100_000
    run_s: float = 1.0
    rounds: int = 9


def measure(directory: Path, load: Load, notes: list[str]) -> Iterator[Measurement]:
    """The rows."""
    cores = servers.Cores.of_this_machine()
    chosen = frozenset(random.Random(data.SEED).sample(range(load.partitions[0]), load.here))
    held = held_records(load, chosen)
    with ExitStack() as stack:
        contestants = [
            stack.enter_context(serving(directory / name, name, counts, held, cores, others=name == servers.NODE))
            for name, counts in (
                (servers.NODE, load.partitions),
                (goals.WITHOUT, (load.here,)),
                (goals.NOBODY, load.partitions),
            )
        ]
        stack.enter_context(machine.pinned(cores.load))
        for row, in_flight in ((goals.CLUSTER_LOCAL, 1), (goals.CLUSTER_LOCAL_PIPELINED, 16)):
            machine.say(f"  {row}")
            shape = Shape(row, 64, in_flight, run_s=load.run_s)
            yield rows.interleaved(shape, contestants, load.rounds, lambda figure: figure.cpu_us)
    notes.append(
        f"gets of what is here: databases of {' and '.join(f'{count:,}' for count in load.partitions)} partitions, of "
        f"which {load.here:,} of the first are here, chosen at random, and another node is stated as owner of all "
        f"others in the loop's table of routes; beside it the same loop without other nodes and with the same "
        f"{load.keys:,} records in {load.here:,} partitions, and with the large table alone; 64 connections to the "
        "first database, every value checked"
    )


def held_records(load: Load, chosen: frozenset[int]) -> list[Record]:
    """Records whose keys are in the partitions chosen."""
    found: list[Record] = []
    number = 0
    while len(found) < load.keys:
        key = records.key_of(number)
        number += 1
        if partition(table_node.FUNCTION, key, load.partitions[0]) in chosen:
            found.append((key, records.value_of(key, data.SMALL_VALUE_BYTES)))
    return found


@contextmanager
def serving(
    directory: Path, name: str, counts: tuple[int, ...], held: list[Record], cores: Cores, *, others: bool
) -> Iterator[Server]:
    """The loop with these tables, and the records in partitions of the first; `others` have all that is not here."""
    directory.mkdir()
    groups: dict[int, list[Record]] = {}
    for key, value in held:
        groups.setdefault(partition(table_node.FUNCTION, key, counts[0]), []).append((key, value))
    for number, group in groups.items():
        build(directory / f"{number}.gkv", group)
    command = [sys.executable, "-m", "tests.bench.cluster.table_node", str(directory)]
    command += [str(int(others)), *map(str, counts)]
    with process(command, ready=lambda line: line.startswith("ready ")) as (running, line):
        host, _, port = line.split()[1].rpartition(":")
        dialect = RpcDialect(table_node.database(0), held)
        server = servers.Server(name, running, Address(host, int(port)), dialect)
        server.pin(cores.server)
        yield server

"""Gets of what is here, where most of a large table is elsewhere, beside a node that knows no other."""

from __future__ import annotations

import random
import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from gossipkv.keyspace.partitioner import partition
from gossipkv.storage.builder import build
from tests.bench import data, goals, machine
from tests.bench.cluster import table_node
from tests.bench.measurement import OURS
from tests.bench.network import rows
from tests.bench.network.rows import Shape
from tests.bench.processes import Cores, serving
from tests.load import RpcDialect

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from tests.bench.data import Record
    from tests.bench.measurement import Bench
    from tests.bench.processes import Server


def measure(
    bench: Bench,
    *,
    partitions: tuple[int, ...] = (65_536, 34_464),
    here: int = 1_024,
    keys: int = 100_000,
    run_s: float = 1.0,
    rounds: int = 9,
) -> None:
    """The rows: as many partitions as a version may have, of which some are here, and the rest of 100,000."""
    cores = Cores.of_this_machine()
    held = held_records(chosen(partitions[0], here), partitions[0], keys)
    with ExitStack() as stack:
        contestants = [
            stack.enter_context(serving_tables(bench, name, counts, held, cores, others=name == OURS))
            for name, counts in ((OURS, partitions), (goals.WITHOUT, (here,)), (goals.NOBODY, partitions))
        ]
        stack.enter_context(machine.pinned(cores.load))
        for row, in_flight in ((goals.CLUSTER_LOCAL, 1), (goals.CLUSTER_LOCAL_PIPELINED, 16)):
            rows.compare(bench, row, contestants, Shape(64, in_flight, run_s=run_s), rounds)
    bench.notes.append(
        f"gets of what is here: databases of {' and '.join(f'{count:,}' for count in partitions)} partitions, of "
        f"which {here:,} of the first are here; {keys:,} records, every value checked"
    )


def chosen(partitions: int, here: int) -> frozenset[int]:
    """Which of the partitions are here."""
    return frozenset(random.Random(data.SEED).sample(range(partitions), here))


def held_records(here: Collection[int], partitions: int, count: int) -> list[Record]:
    """Records whose keys are in the partitions that are here."""
    found: list[Record] = []
    number = 0
    while len(found) < count:
        key = data.key_of(number)
        number += 1
        if partition(table_node.FUNCTION, key, partitions) in here:
            found.append((key, data.value_of(key)))
    return found


@contextmanager
def serving_tables(
    bench: Bench, name: str, counts: tuple[int, ...], held: list[Record], cores: Cores, *, others: bool
) -> Iterator[Server]:
    """The loop with these tables, and the records in partitions of the first; `others` have all that is not here."""
    directory: Path = bench.directory / name
    directory.mkdir()
    groups: dict[int, list[Record]] = {}
    for key, value in held:
        groups.setdefault(partition(table_node.FUNCTION, key, counts[0]), []).append((key, value))
    for number, group in groups.items():
        build(directory / f"{number}.gkv", group)
    command = [sys.executable, "-m", "tests.bench.cluster.table_node", str(directory)]
    command += [str(int(others)), *map(str, counts)]
    dialect = RpcDialect(table_node.database(0), held)
    with serving(command, name=name, dialect=dialect, core=cores.server) as server:
        yield server

"""The rows about tables that move under load: a node is added to four, then a dead one is replaced."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import quantiles
from time import monotonic, sleep
from typing import TYPE_CHECKING, NamedTuple

from gossipkv.keyspace.partitioner import TABLE_HASHES
from tests.bench import data, goals, machine
from tests.bench.cluster import nodes
from tests.bench.measurement import WrongAnswerError
from tests.bench.processes import wait_for
from tests.bench.tables import steady, writing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.cluster.nodes import Nodes
    from tests.bench.measurement import Bench

NODES, REPLICAS = 4, 3
BATCH = 1_000
LOST = 2  # The node that is replaced.
MIN_RATE = 64 << 10
LOGGED = {"log_level": "info", "log_format": "json"}  # The log shows the loaded partitions.
WARM_S = 1.0


class Asked(NamedTuple):
    is_put: bool
    began_s: float
    took_s: float
    failed: str


class Steady:
    """The requests of the load, once it has ended."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.acknowledged: dict[str, int] = {}

    def puts(self, begin_s: float, end_s: float) -> list[Asked]:
        return [one for one in self.asked if one.is_put and begin_s <= one.began_s < end_s]


def measure(
    bench: Bench,
    *,
    records: int = 1_000_000,
    partitions: int = 64,
    copying_s: float = 30.0,
    before_s: float = 10.0,
    rounds: int = 3,
) -> None:
    """Measure both in each round, in a new cluster; `copying_s` is the time of the moves at `table_transfer`."""
    ideal_bytes = records * data.RECORD_BYTES * REPLICAS / (NODES + 1)
    rate = max(MIN_RATE, int(ideal_bytes / copying_s))
    for number in range(1, rounds + 1):
        machine.say(f"  round {number} of {rounds}")
        directory = bench.directory / f"moves-{number}"
        _round(bench, directory, rate, records=records, partitions=partitions, before_s=before_s)
        shutil.rmtree(directory)
    bench.notes.append(
        f"Moves: {rounds} rounds, each in a new cluster; {records:,} records of 16 + 100 B, {partitions} partitions "
        f"with {REPLICAS} replicas; `table_transfer` {rate >> 10:,} KiB/s, "
        f"so that what is to move takes {ideal_bytes / rate:.0f} s; {steady.CLIENTS} clients "
        f"by the table's map, each with a session, write and read in turn, {steady.PAUSE_S * 1000:g} ms between two "
        "requests, every value checked, and no read or later write failed. Replaced: killed with its disk, and by "
        "force when all knew. Bytes: of the records of each partition that the newcomer began to load, however often. "
        "Time: from the command until the map is as wanted, and nothing moves"
    )


def _round(bench: Bench, directory: Path, rate: int, *, records: int, partitions: int, before_s: float) -> None:
    settings = {"refresh_period": "off", "table_transfer": f"{rate >> 10}KiB/s", **LOGGED}
    with nodes.running(directory, NODES, **settings) as cluster, closing(nodes.Nodes(cluster)) as asked:
        asked.wait_alive()
        options = {"kind": "hash", "partitions": partitions, "replication": REPLICAS}
        asked.call(1, "create_table", writing.TABLE, options)
        fill(asked, records)
        asked.numbers = range(1, 1 + cluster.add().index)
        asked.wait_alive()
        _moves(bench, goals.ADDED, asked, records, before_s)
        asked.numbers = range(1, 1 + cluster.add().index)
        asked.wait_alive()
        last = _moves(bench, goals.REPLACED, asked, records, before_s)  # The second load writes the same keys again.
        _copied(bench, asked, records, partitions, rate)
        if (lost := _lost(asked, records, last)) > 0:
            raise WrongAnswerError(f"{lost} records are lost")


def _moves(bench: Bench, how: str, asked: Nodes, records: int, before_s: float) -> dict[str, int]:
    """Measure one of the moves under load; return the acknowledged writes."""
    machine.say(f"  {how}")
    comer = f"n{asked.numbers[-1]}"
    with load(asked, records) as loaded:
        sleep(WARM_S)
        before = monotonic()
        sleep(before_s)
        after = monotonic()
        if how == goals.REPLACED:
            _lose(asked, LOST)
        began_s = monotonic()
        if how == goals.REPLACED:
            asked.call(1, "replace_node", f"n{LOST}", comer, {"force": True})
        else:
            asked.call(1, "add_node", comer)
        wait_for(lambda: _has_moved(asked, comer), f"moves to {comer}")
        ended_s = monotonic()
    puts = loaded.puts(began_s, ended_s)
    if failed := [one.failed for one in loaded.asked if one.failed and (one in puts or not one.is_put)]:
        raise WrongAnswerError(f"{len(failed)} requests failed: {failed[0]}")
    bench.add(goals.MOVED_P99[how], p99_us(puts))
    bench.add(goals.MOVED_P99[how], p99_us(loaded.puts(before, after)), goals.BEFORE)
    bench.add(goals.MOVED_TIME[how], ended_s - began_s)
    return loaded.acknowledged


def _copied(bench: Bench, asked: Nodes, records: int, partitions: int, rate: int) -> None:
    """Add the new nodes' loaded bytes beside their share, and the time of loading at this rate."""
    sizes = Counter(TABLE_HASHES["murmur3"](data.key_of(number)) % partitions for number in range(records))
    told = asked.call(1, "partition_map", writing.TABLE)
    assert isinstance(told, dict)
    numbers = {partition["id"]: number for number, partition in enumerate(told["partitions"])}
    for how, comer in ((goals.ADDED, NODES + 1), (goals.REPLACED, NODES + 2)):
        lines = [json.loads(line) for line in asked.cluster.log(comer).splitlines() if line.startswith("{")]
        began = [line["partition"] for line in lines if line["event"] == "copy_loads" and line["what"] == "began"]
        copied = sum(sizes[numbers[one]] for one in began) * data.RECORD_BYTES
        bench.add(goals.MOVED_BYTES[how], copied / 1e6)
        bench.add(goals.MOVED_BYTES[how], records * data.RECORD_BYTES * REPLICAS / (NODES + 1) / 1e6, goals.IDEAL)
        bench.add(goals.MOVED_TIME[how], copied / rate, goals.COPYING)


def fill(asked: Nodes, records: int, table: str = writing.TABLE) -> None:
    wait_for(lambda: asked.call(1, "delete", table, b"first", {"level": "all"}) is not None, "a first write")
    with closing(asked.cluster.connect(1, timeout_ms=60_000)) as client:
        handle = client.table(table)
        for first in range(0, records, BATCH):
            some = map(data.key_of, range(first, min(first + BATCH, records)))
            handle.put_many([(key, data.value_of(key)) for key in some])


@contextmanager
def load(asked: Nodes, records: int) -> Iterator[Steady]:
    """Run clients of all running nodes until the block ends."""
    running = [node.address for node in asked.cluster.status() if node.state == "ready"]
    command = [sys.executable, "-m", "tests.bench.tables.steady", writing.TABLE, str(records), *running]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        loaded = Steady()
        try:
            yield loaded
            said, _ = process.communicate()
        finally:
            process.kill()
    if process.returncode:
        raise WrongAnswerError("a client of the load has failed")
    asked_, loaded.acknowledged = json.loads(said)
    loaded.asked = [Asked(*one) for one in asked_]


def _lose(asked: Nodes, number: int) -> None:
    """Kill a node, remove its disk, and return when all others know."""
    data_ = Path(asked.cluster.kill(number).data)
    shutil.rmtree(data_)
    asked.forget(number)
    running = [node.index for node in asked.cluster.status() if node.state == "ready"]
    for other in running:
        wait_for(lambda other=other: _living(asked, other) == len(running), f"node {other} to see who is dead")


def _living(asked: Nodes, number: int) -> int:
    told = asked.call(number, "members")
    assert isinstance(told, list)
    return sum(member["state"] == "alive" for member in told)


def _has_moved(asked: Nodes, comer: str) -> bool:
    """True if no move is under way or planned, and that node has a part of the table."""
    told, plans = asked.call(1, "partition_map", writing.TABLE), asked.call(1, "plan", writing.TABLE)
    assert isinstance(told, dict)
    assert isinstance(plans, list)
    found = [(one["node"], one["state"]) for row in told["partitions"] for one in row["assignments"]]
    is_still = {state for _, state in found} == {"AVAILABLE"} and len(found) == REPLICAS * len(told["partitions"])
    return is_still and comer in {node for node, _ in found} and plans[0]["moves_count"] == 0


def p99_us(some: list[Asked]) -> float:
    """Return the 99th percentile of the answered requests."""
    took = [one.took_s * 1e6 for one in some if not one.failed]
    return quantiles(took, n=100)[98]


def _lost(asked: Nodes, records: int, acknowledged: dict[str, int]) -> int:
    """Return how many initial or acknowledged records cannot be read any more."""
    with closing(asked.cluster.connect(1, timeout_ms=60_000)) as client:
        table, lost = client.table(writing.TABLE), 0
        for first in range(0, records, BATCH):
            keys = [data.key_of(number) for number in range(first, min(first + BATCH, records))]
            found = table.get_many(keys)
            lost += sum(value != data.value_of(key) for key, value in zip(keys, found, strict=True))
        for key, number in acknowledged.items():
            value = table.get(key)
            lost += value is None or int(value) < number
    return lost

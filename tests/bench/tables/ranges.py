"""The rows about ranges that are divided: under load, and what is read of many beside what is read of one."""

from __future__ import annotations

import json
from contextlib import closing
from random import Random
from statistics import median
from time import monotonic, perf_counter, sleep
from typing import TYPE_CHECKING

from gossipkv.placement.lately import Lately
from gossipkv.placement.measures import Limits, Measure
from gossipkv.placement.partition import Assignment, Partition, State
from gossipkv.placement.ranges import Situation, plan
from gossipkv.placement.spread import Node
from gossipkv.register.metadata.partitions import MAP, RANGE, Table, first_body
from gossipkv.register.metadata.tree import Tree
from gossipkv.table.route import Route
from tests.bench import data, goals, machine
from tests.bench.cluster import nodes
from tests.bench.measurement import WrongAnswerError
from tests.bench.processes import cpu_ns
from tests.bench.tables import moves, writing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gossipkv.wire.rpc import Value
    from tests.bench.cluster.nodes import Nodes
    from tests.bench.measurement import Bench

NODES = 3
SECOND_S = 0.5  # Before the answer of a division, and after it.
AROUND_S = 5.0
WHOLE = "undivided"
PAGE = 1_000


def measure(
    bench: Bench, *, records: int = 1_000_000, splits: int = 8, before_s: float = 10.0, rounds: int = 5
) -> None:
    """One table is divided under load, then read beside one with the same records that is not."""
    settings = {"refresh_period": "off", "split_bytes": "off", "split_rows": "off", "planner": "off", **moves.LOGGED}
    running = nodes.running(bench.directory / "ranges", NODES, **settings)
    with running as cluster, closing(nodes.Nodes(cluster)) as asked:
        asked.wait_alive()
        for table in (writing.TABLE, WHOLE):
            asked.call(1, "create_table", table, {"kind": "range", "replication": NODES})
            moves.fill(asked, records, table)
        _divide(bench, asked, records, splits, before_s)
        for _ in range(rounds):
            _read(bench, asked, records)
    bench.notes.append(
        f"Ranges: {records:,} records of 16 + 100 B in one range of {NODES} nodes, which `split` divides into "
        f"{splits + 1} under the load of `moves`; the second of a division is that around its answer, of all of them; "
        f"before: {before_s:g} s. A copy that loads would be in the nodes' logs. Read beside a table of the same "
        f"records that was never divided: gets one by one at a node, CPU of that node; scans of all, "
        "every key and value checked"
    )


def _divide(bench: Bench, asked: Nodes, records: int, splits: int, before_s: float) -> None:
    machine.say(f"  {goals.DIVIDED_P99}")
    answered, in_order = list[float](), sorted(map(data.key_of, range(records)))
    with moves.load(asked, records) as loaded:
        sleep(moves.WARM_S)
        before = monotonic()
        sleep(before_s)
        after = monotonic()
        for number in range(splits):
            at = in_order[records * (number + 1) // (splits + 1)]  # What the load writes lies behind all of them.
            asked.call(1 + number % NODES, "split", writing.TABLE, at)
            answered.append(monotonic())
            sleep(AROUND_S / 2)
        ended = monotonic()
    puts = loaded.puts(after, ended)
    bench.count(goals.DIVIDED_READS, sum(bool(one.failed) for one in loaded.asked if not one.is_put), len(loaded.asked))
    bench.count(goals.DIVIDED_WRITES, sum(bool(one.failed) for one in puts), len(puts))
    amid = [one for at in answered for one in loaded.puts(at - SECOND_S, at + SECOND_S)]
    for row, some in ((goals.DIVIDED_P99, puts), (goals.DIVIDED_SECOND, amid)):
        bench.add(row, moves.p99_us(some))
        bench.add(row, moves.p99_us(loaded.puts(before, after)), goals.BEFORE)
    lines = [line for number in range(1, NODES + 1) for line in asked.cluster.log(number).splitlines()]
    loads = [line for line in lines if line.startswith("{") and json.loads(line)["event"] == "copy_loads"]
    bench.count(goals.DIVIDED_COPIED, len(loads), splits)


def _read(bench: Bench, asked: Nodes, records: int) -> None:
    """Gets and scans of both tables, in turn."""
    machine.say(f"  {goals.DIVIDED_GET}")
    for row, measured in ((goals.DIVIDED_GET, _get_us), (goals.DIVIDED_SCAN, _scan_us)):
        bench.add(row, measured(asked, records, writing.TABLE))
        bench.add(row, measured(asked, records, WHOLE), goals.UNDIVIDED)


def _get_us(asked: Nodes, records: int, table: str, count: int = 5_000) -> float:
    """Microseconds of the processor that a node takes for a get."""
    process = asked.cluster.node(1).process
    assert process is not None
    with closing(asked.cluster.connect(1)) as client:
        handle, began = client.table(table), cpu_ns(process)
        for number in range(0, records, max(1, records // count)):
            if handle.get(data.key_of(number)) != data.value_of(data.key_of(number)):
                raise WrongAnswerError(f"{data.key_of(number)!r} has another value")
        return (cpu_ns(process) - began) / 1e3 / count


def _scan_us(asked: Nodes, records: int, table: str) -> float:
    """Microseconds for each record of a scan of all."""
    with closing(asked.cluster.connect(1, timeout_ms=60_000)) as client:
        began, count, last = perf_counter(), 0, b""
        for key, value in client.table(table).scan(end=b"s"):  # What the load wrote lies behind.
            if not key > last:
                raise WrongAnswerError(f"{key!r} comes behind {last!r}")
            last = key
            count += value == data.value_of(key)
        if count != records:
            raise WrongAnswerError(f"a scan found {count} records of {records}")
        return (perf_counter() - began) * 1e6 / records


def spread(bench: Bench, *, records: int = 1_000_000, ranges: int = 16, rounds: int = 5) -> None:
    """A table of many ranges, each at one node of three, scanned beside one of one range."""
    settings = {"refresh_period": "off", "split_bytes": "off", "split_rows": "off", "planner": "off", **moves.LOGGED}
    in_order = sorted(map(data.key_of, range(records)))
    bounds: list[Value] = [in_order[records * number // ranges] for number in range(1, ranges)]
    with (
        nodes.running(bench.directory / "spread", NODES, **settings) as cluster,
        closing(nodes.Nodes(cluster)) as asked,
    ):
        asked.wait_alive()
        for table, first in ((writing.TABLE, bounds), (WHOLE, [])):
            asked.call(1, "create_table", table, {"kind": "range", "replication": 1, "bounds": first})
            moves.fill(asked, records, table)
        for _ in range(rounds):
            machine.say(f"  {goals.SPREAD_SCAN}")
            for table, side in ((writing.TABLE, ""), (WHOLE, goals.ONE_RANGE)):
                bench.add(goals.SPREAD_SCAN, _scan_us(asked, records, table), side)
                bench.add(goals.SPREAD_PAGE, _page_us(asked, in_order, table), side)


def _page_us(asked: Nodes, in_order: Sequence[bytes], table: str, count: int = 50) -> float:
    """Microseconds for the first page of a scan that begins anywhere."""
    took = []
    with closing(asked.cluster.connect(1)) as client:
        for number in range(count):
            at = len(in_order) * number // count
            began = perf_counter()
            found = [*client.table(table).scan(start=in_order[at], limit=PAGE)]
            took.append(perf_counter() - began)
            if [key for key, _ in found] != [*in_order[at : at + PAGE]]:
                raise WrongAnswerError(f"a page from {in_order[at]!r} on has other keys")
    return median(took) * 1e6


def planned(bench: Bench, *, partitions: int = 100_000, many: int = 100, rounds: int = 3) -> None:
    """What a table of very many ranges asks for, of uneven sizes, after a node has come."""
    machine.say(f"  {goals.PLANNED}")
    rng = Random(1)
    held = [rng.sample(range(many - 1), 3) for _ in range(partitions)]
    table = [
        Partition(number, tuple(Assignment(3 * number + slot, _node(one), slot, State.AVAILABLE)
                                for slot, one in enumerate(some)))
        for number, some in enumerate(held)
    ]  # fmt: skip
    there = [Node(_node(one), "", 1) for one in range(many)]
    situation = Situation(
        partitions=table,
        replication=3,
        nodes=there,
        alive={node.id for node in there},
        measures={one.id: Measure(rng.randrange(1 << 29), 1000, rng.expovariate(1.0)) for one in table},
        limits=Limits(1 << 29, 2_000_000),
        lately=Lately(),
        now=0.0,
    )
    for _ in range(rounds):
        began = perf_counter()
        made = plan(situation)
        bench.add(goals.PLANNED, perf_counter() - began)
        if not any(move.target == _node(many - 1) for move in made.moves):
            raise WrongAnswerError("nothing moves to the node that has come")


def _node(number: int) -> bytes:
    return number.to_bytes(16, "big")


def route(bench: Bench, *, partitions: int = 100_000, few: int = 16, gets: int = 20_000, rounds: int = 5) -> None:
    """Which partition a key is in, of many ranges and of few."""
    machine.say(f"  {goals.ROUTE}")
    many_, few_ = _ranges(partitions), _ranges(few)
    keys = [data.key_of(number * 7919) for number in range(gets)]
    for _ in range(rounds):
        for ranges, side in ((many_, ""), (few_, goals.FEW_RANGES)):
            took = []
            for key in keys:
                began = perf_counter()
                place = ranges.place(key)
                took.append(perf_counter() - began)
                if not place.first <= key:
                    raise WrongAnswerError(f"{key!r} is not in the range from {place.first!r} on")
            bench.add(goals.ROUTE, median(took) * 1e6, side)


def _ranges(count: int) -> Route:
    keys = sorted({data.key_of(number) for number in range(count - 1)})
    partitions = {}
    for number, first in enumerate([b"", *keys]):
        hosts = (Assignment(3 * number + slot, bytes([slot]) * 16, slot, State.AVAILABLE) for slot in range(3))
        partitions[first] = Partition(number, tuple(hosts))
    changed = first_body(Table(bytes(16), "t", RANGE, 3, 0), partitions, 1 << 48 | 1)
    return Route(Tree.opened(changed.pages.__getitem__, changed.root, MAP.name))

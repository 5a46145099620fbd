"""The rows about tables of very many ranges: a split of one, the memory of each, and the lookup of a key's range.

The ranges are made by splits into 64, many in a transaction, as no request to make a table holds so many bounds.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from contextlib import ExitStack, closing
from functools import partial
from random import Random
from statistics import median
from time import perf_counter, sleep
from typing import TYPE_CHECKING

import msgpack

from gossipkv.errors import GossipKVError
from gossipkv.placement.partition import Assignment, AssignmentState, Partition
from gossipkv.register.entries import EntryMap
from gossipkv.register.metadata.known import MapView
from gossipkv.register.metadata.operations import OPERATION_ID_BYTES, Operation
from gossipkv.register.metadata.partitions import MAX_CHILDREN, RANGE, TableMeta, first_edits
from gossipkv.table.controllers.splitter import DIVIDE, division
from gossipkv.table.records.router import TableRoute
from tests.bench import data, goals, machine
from tests.bench.cluster import nodes
from tests.bench.measurement import WrongAnswerError
from tests.bench.processes import anonymous_bytes, cpu_ns, wait_for
from tests.bench.tables import writing

if TYPE_CHECKING:
    from gossipkv.wire.rpc import Value
    from tests.bench.cluster.nodes import Nodes
    from tests.bench.measurement import Bench

SERVERS, NODES = 3, 4  # One node is no metadata server: it polls for changes.
NUMBER = 3  # The node whose memory is measured.
TOGETHER = 12  # The splits of one request.
TIMEOUT_MS = 60_000
QUIET_S = 5.0  # After so long without a change of the map, the split ranges have settled.
SETTLES_S = 3600.0
AFTER_S = 3.0  # The time in which a split's children settle.
MEASURED_S = 40.0  # The time in which a new table's ranges are measured.
MIN_SHARE = 0.8  # The planner leaves a difference of loads that is not worth a move.
KIB = 1024
SETTINGS = {"refresh_period": "off", "split_bytes": "off", "split_rows": "off", "planner": "off"}


class Ranges:
    """A table whose ranges begin at these keys."""

    def __init__(self, asked: Nodes, ranges: int, replication: int) -> None:
        self.keys = sorted(map(data.key_of, range(ranges - 1)))
        self._asked, self._random = asked, Random(data.SEED)
        made = asked.call(1, "create_table", writing.TABLE, {"kind": "range", "replication": replication})
        self._register, self._replication = bytes.fromhex(made["table"]), replication
        serves = {number: self._serves(number) for number in asked.numbers}
        self._server = next(number for number, does in serves.items() if does)
        self.other = next((number for number, does in serves.items() if not does), 0)
        while (count := len(told := self._read())) < ranges:
            machine.say(f"    {count:,} ranges")
            self._divide(told)
        self.wait_quiet()

    def _serves(self, number: int) -> bool:
        """True if a node is a metadata server of the table: it judges requests."""
        try:
            return self._transact([Operation(self._id(), 0, "none", 1, ())], number) is not None
        except GossipKVError:
            return False

    def _id(self) -> bytes:
        return self._random.randbytes(OPERATION_ID_BYTES)

    def _transact(self, operations: list[Operation], number: int = 0) -> object:
        encoded: list[Value] = [one.encode() for one in operations]
        params = [self._register, encoded, TIMEOUT_MS]
        return self._asked.call(number or self._server, "metadata_transact", *params)

    def _read(self) -> list[dict[str, object]]:
        found: list[dict[str, object]] = []
        start: bytes | None = b""
        while start is not None:
            told = self._asked.call(self._server, "partition_map", writing.TABLE, {"start": start})
            found += told["partitions"]
            start, self._config = told["next"], told["config"]
        return found

    def _divide(self, told: list[dict[str, object]]) -> None:
        """Split all ranges that are to be split once, into at most 64; late operations are left for the next pass."""
        firsts = [*(row["start"] for row in told), None]
        held = [Assignment(0, bytes(16), slot, AssignmentState.AVAILABLE) for slot in range(self._replication)]
        asked: list[Operation] = []
        for row, end in zip(told, firsts[1:], strict=True):
            low = bisect_right(self.keys, row["start"])
            inside = self.keys[low : None if end is None else bisect_left(self.keys, end)]
            step = 1
            while step * MAX_CHILDREN <= len(inside):
                step *= MAX_CHILDREN
            if cuts := inside[step - 1 :: step]:
                argument = division(row["start"], Partition(int(row["id"]), tuple(held)), cuts, self._random)
                asked.append(Operation(self._id(), self._config, DIVIDE, 1, argument))
        for at in range(0, min(len(asked), 16 * TOGETHER), TOGETHER):
            self._transact(asked[at : at + TOGETHER])

    def wait_quiet(self) -> None:
        """Return when the map does not change any more."""
        wait_for(self._is_quiet, "the ranges to settle", SETTLES_S)

    def _is_quiet(self) -> bool:
        before = self._place(self._server)
        sleep(QUIET_S)
        return all(self._place(number) == before for number in self._asked.numbers)

    def _place(self, number: int) -> tuple[int, int]:
        """Return the generation and the sequence of a node's map."""
        _, generation, sequence, *_ = self._news(number, (0, -1))
        return generation, sequence

    def _news(self, number: int, place: tuple[int, int]) -> list[Value]:
        """Return a node's answer to a poll of a node whose map has that place."""
        (news,) = self._asked.call(number, "map_changes", [[self._register, *place, None]], 0)
        return [*news]

    def split(self, number: int, at: bytes) -> tuple[float, float, float]:
        """Return the milliseconds of a split, the seconds until all maps have it, and the KiB of news of the map."""
        before = self._place(self.other)
        began = perf_counter()
        self._asked.call(number, "split", writing.TABLE, at)
        answered = perf_counter()
        for each in self._asked.numbers:
            wait_for(partial(self._begins_at, each, at), f"node {each} to know of {at!r}")
        shown = perf_counter()
        sleep(AFTER_S)
        news = self._news(self._server, before)
        if news[-1] is None:
            raise WrongAnswerError("the history of a map does not reach back for a few seconds")
        return (answered - began) * 1e3, shown - answered, len(msgpack.packb(news)) / KIB

    def _begins_at(self, number: int, at: bytes) -> bool:
        told = self._asked.call(number, "partition_map", writing.TABLE, {"start": at, "limit": 1})
        return bool(told["partitions"][0]["start"] == at)


def split(bench: Bench, *, ranges: int = 100_000, splits: int = 20) -> None:
    """Measure repeated splits of one range among very many, each while the cluster is idle."""
    machine.say(f"  {goals.SPLIT_MANY}")
    with (
        nodes.running(bench.directory / "many", NODES, **SETTINGS) as cluster,
        closing(nodes.Nodes(cluster)) as asked,
    ):
        asked.wait_alive()
        table, rng = Ranges(asked, ranges, 1), Random(data.SEED)
        found = [table.split(1 + number % NODES, rng.choice(table.keys) + b"\0") for number in range(splits)]
        for took_ms, shown_s, kib in found:
            bench.add(goals.SPLIT_SHOWN, shown_s)
            bench.add(goals.SPLIT_FETCHED, kib)
            bench.add(goals.SPLIT_MANY, took_ms)
    bench.notes.append(
        f"Many ranges: {ranges:,} with one replica each on {NODES} nodes, {SERVERS} of which decide, made by divisions "
        "into 64 and settled; fetched: the edits that the fourth node is told until "
        f"{AFTER_S:g} s later, the children settled"
    )


def fourth(bench: Bench, *, ranges: int = 2_000, measured_s: float = MEASURED_S) -> None:
    """Measure the moves of empty ranges to a node that is added to three, each of which has all ranges."""
    machine.say(f"  {goals.FOURTH}")
    settings = SETTINGS | {"planner": "on"}
    with (
        nodes.running(bench.directory / "fourth", SERVERS, **settings) as cluster,
        closing(nodes.Nodes(cluster)) as asked,
    ):
        asked.wait_alive()
        bounds = sorted(map(data.key_of, range(ranges - 1)))
        asked.call(1, "create_table", writing.TABLE, {"kind": "range", "replication": SERVERS, "bounds": bounds})
        wait_for(lambda: _replicas(asked, SERVERS) == ranges, "all replicas", SETTLES_S)
        asked.numbers = range(1, 1 + cluster.add().index)
        asked.wait_alive()
        sleep(measured_s)
        share, began_s, cpu_s = ranges * SERVERS // NODES, perf_counter(), nodes.cpu_s(cluster)
        asked.call(1, "add_node", f"n{NODES}")
        wait_for(partial(_has_share, asked, int(share * MIN_SHARE)), "the moves", SETTLES_S)
        moves, took_s = _replicas(asked, NODES), perf_counter() - began_s
        bench.add(goals.FOURTH, took_s)
        bench.add(goals.FOURTH_CPU, (nodes.cpu_s(cluster) - cpu_s) * 1e3 / moves)
    bench.notes.append(
        f"Fourth node: {ranges:,} empty ranges with {SERVERS} replicas on as many nodes; {moves:,} of {share:,} "
        "replicas moved until the planner left the rest; the CPU includes what the nodes cost otherwise in that time"
    )


def _replicas(asked: Nodes, number: int) -> int:
    return int(asked.call(number, "info")["tables"]["copies"])


def _has_share(asked: Nodes, least: int) -> bool:
    """True if the fourth node has so many replicas, and no range moves."""
    sleep(1.0)  # Each look costs the nodes time.
    states, start = set[str](), b""
    while _replicas(asked, NODES) >= least and start is not None:
        told = asked.call(1, "partition_map", writing.TABLE, {"start": start})
        states |= {one["state"] for row in told["partitions"] for one in row["assignments"]}
        start = told["next"]
    return states == {"AVAILABLE"}


def memory(bench: Bench, *, ranges: int = 10_000, settle_s: float = 30.0, rounds: int = 3) -> None:
    """Measure the same node of clusters with many ranges and with one, after a restart."""
    machine.say(f"  {goals.RANGES_MEMORY}")
    with ExitStack() as stack:
        looked: list[Nodes] = []
        for count in (ranges, 1):
            directory = bench.directory / str(count)
            asked = nodes.Nodes(stack.enter_context(nodes.running(directory, SERVERS, **SETTINGS)))
            stack.enter_context(closing(asked)).wait_alive()
            Ranges(asked, count, SERVERS)
            looked.append(asked)
        for _ in range(rounds):
            many, one = (_memory_kib(asked, settle_s) for asked in looked)
            bench.add(goals.RANGES_MEMORY, (many - one) / (ranges - 1))
    bench.notes.append(
        f"Memory of ranges: {ranges:,} with {SERVERS} replicas on as many nodes, made by divisions, beside one; "
        f"without pages of files and without memtables, which hold maps that were, {settle_s:g} s after a start"
    )


def idle(bench: Bench, ranges: int, idle_s: float, rounds: int) -> None:
    """Measure the processor time of a node whose ranges nobody asks for."""
    machine.say(f"  {goals.RANGES_IDLE}")
    with (
        nodes.running(bench.directory / "idle", SERVERS, **SETTINGS) as cluster,
        closing(nodes.Nodes(cluster)) as asked,
    ):
        asked.wait_alive()
        Ranges(asked, ranges, SERVERS)
        process = nodes.processes(cluster)[NUMBER - 1]
        for _ in range(rounds):
            before_ns = cpu_ns(process)
            sleep(idle_s)
            bench.add(goals.RANGES_IDLE, (cpu_ns(process) - before_ns) / 1e6 / idle_s)
    bench.notes.append(f"idle: {ranges:,} ranges with {SERVERS} replicas on as many nodes, for {idle_s:g} s a round")


def _memory_kib(asked: Nodes, settle_s: float) -> float:
    """Return the memory of a restarted node, without its memtable."""
    asked.cluster.stop(NUMBER)
    asked.forget(NUMBER)
    asked.cluster.start(NUMBER)
    wait_for(lambda: asked.call(NUMBER, "partition_map", writing.TABLE, {"limit": 1}) is not None, "an answer")
    sleep(settle_s)
    process = asked.cluster.node(NUMBER).process
    assert process is not None
    memtable = asked.call(NUMBER, "info")["tables"]["counters"]["memtable_bytes"]
    return float((anonymous_bytes(process) - memtable) / KIB)


def route(bench: Bench, *, partitions: int = 100_000, few: int = 16, gets: int = 20_000, rounds: int = 5) -> None:
    """Measure the lookup of a key's partition, among many ranges and few."""
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


def _ranges(count: int) -> TableRoute:
    keys = sorted({data.key_of(number) for number in range(count - 1)})
    partitions = {}
    for number, first in enumerate([b"", *keys]):
        hosts = (
            Assignment(3 * number + slot, bytes([slot]) * 16, slot, AssignmentState.AVAILABLE) for slot in range(3)
        )
        partitions[first] = Partition(number, tuple(hosts))
    edits = first_edits(TableMeta(bytes(16), "t", RANGE, 3, 0), partitions, 1)
    return TableRoute(MapView(EntryMap().edited(edits), 1))

"""Sizes and request rates of local replicas, measured at each host and reported to the rebalancer.

Each replica counts the keys that clients read or write there, and the pages of scans. The request rate is smoothed over
five minutes. A node may hold ten thousand replicas, so each loop here yields to other tasks after a small batch.
"""

from __future__ import annotations

import contextlib
from math import exp, inf
from typing import TYPE_CHECKING, Final, final

import trio

from gossipkv.environment.ticks import rest
from gossipkv.errors import GossipKVError
from gossipkv.placement.measures import HostMeasures, RangeMeasure, SeriesWrites
from gossipkv.replication.stream.messages import unpacked

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import TypeAlias

    from gossipkv.replication.replica.replica import Replica
    from gossipkv.table.controllers.local_tables import LocalTables
    from gossipkv.table.controllers.write_stats import WriteStats
    from gossipkv.wire.rpc import Value

    Row: TypeAlias = list[bytes | int | float]

COUNT_S: Final = 10.0  # Interval at which the request counters are read.
SMOOTHED_S: Final = 300.0
MIN_RATE: Final = 0.001  # A replica with fewer requests a second is idle.
FEW_COUNTED: Final = 1024  # Replicas counted before other tasks run: less than a millisecond.
FEW_MEASURED: Final = 16  # Replicas measured before other tasks run: about a millisecond.
FEW_TAKEN: Final = 256  # Rows of an answer read before other tasks run.
ANSWER_S: Final = 5.0  # Nodes must report their sizes within this time.
FRESH_S: Final = 10.0  # Reports are reused for this time while an operator pages through a table.


@final
class LoadStats:
    """Sizes and request rates of the replicas on this node."""

    def __init__(self, tables: LocalTables, last_hour: WriteStats) -> None:
        self._replication, self._ask = tables.replication, tables.ask
        self._last_hour = last_hour
        self._rates: dict[Replica, float] = {}  # Requests a second; idle replicas are absent.
        self._turn = trio.Lock()
        self._lately: tuple[bytes, float, Mapping[int, RangeMeasure]] = b"", -inf, {}  # Table, time, measures.

    async def run(self) -> None:
        """Count requests, until cancelled."""
        while True:
            began = trio.current_time()
            await rest(COUNT_S)
            await self.count(trio.current_time() - began)

    async def count(self, within_s: float) -> None:
        """Update the rates from the requests counted in the last `within_s` seconds, and reset the counters."""
        kept = exp(-within_s / SMOOTHED_S)
        before, copies = dict(self._rates), self._replication.replicas.by_partition
        divided = [replica for replica in before if replica.children]
        while divided:  # The children's shares of the load are unknown, so each child gets an equal part.
            replica = divided.pop()
            rate = before.pop(replica) / len(replica.children)
            before |= dict.fromkeys(replica.children, rate)
            divided += [child for child in replica.children if child.children]
        rates: dict[Replica, float] = {}
        is_read = False
        for number, replica in enumerate([*copies.values()]):
            counted, replica.requests = replica.requests, 0
            counted += 0 if replica.calm is None else replica.calm.take_requests()
            is_read = is_read or counted > 0
            if counted or replica in before:
                rates[replica] = before.get(replica, 0.0) * kept + counted / within_s * (1 - kept)
            if number % FEW_COUNTED == FEW_COUNTED - 1:
                await trio.lowlevel.checkpoint()
        self._rates = {replica: rate for replica, rate in rates.items() if rate > MIN_RATE}
        if is_read:
            with contextlib.suppress(GossipKVError):
                self._replication.keep_places(is_read=True)

    async def rows(self, table: bytes) -> list[Row]:
        """Return a row for each readable replica: partition, approximate bytes and records, requests a second.

        Rows for the last hour's writes here to each time series follow: prefix, oldest time, newest time, bytes,
        duration in seconds.
        """
        found: list[Row] = []
        for number, replica in enumerate(
            [replica for replica in self._replication.replicas.by_partition.values() if replica.partition[0] == table]
        ):
            with contextlib.suppress(GossipKVError):
                size_bytes, rows = self._replication.measure(replica)
                found.append([replica.partition[1], size_bytes, rows, round(self._rates.get(replica, 0.0), 2)])
            if number % FEW_MEASURED == FEW_MEASURED - 1:
                await trio.lowlevel.checkpoint()
        written = self._last_hour.of(table, trio.current_time())
        found.extend([series.prefix, series.low, series.high, series.bytes, series.seconds] for series in written)
        return found

    async def of(self, table: bytes, nodes: Collection[bytes]) -> HostMeasures:
        """Return the combined measures of a table's partitions from these nodes; unreported partitions are missing."""
        found: dict[int, RangeMeasure] = {}
        series: dict[bytes, SeriesWrites] = {}

        async def ask(node: bytes) -> None:
            with contextlib.suppress(GossipKVError):
                if node == self._replication.replicas.me:
                    answer: Value = [[*row] for row in await self.rows(table)]
                else:
                    answer = unpacked(await self._ask(node, "table_sizes", [table], ANSWER_S))
                for number, row in enumerate(answer if isinstance(answer, list) else ()):
                    take(found, row)
                    _take_series(series, row)
                    if number % FEW_TAKEN == FEW_TAKEN - 1:
                        await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            for node in nodes:
                nursery.start_soon(ask, node)
        return HostMeasures(found, [writes for _, writes in sorted(series.items())])

    async def lately(self, table: bytes, nodes: Collection[bytes]) -> Mapping[int, RangeMeasure]:
        """Return the measures of a table as `of` does, from a report of at most `FRESH_S` ago."""
        async with self._turn:
            measured, at, _ = self._lately
            if measured != table or trio.current_time() >= at + FRESH_S:
                self._lately = table, trio.current_time(), (await self.of(table, nodes)).measures
            return self._lately[2]


def take(found: dict[int, RangeMeasure], row: Value) -> None:
    """Add one host's measure of a partition to `found`; ignore a malformed row."""
    match row:
        case [int(partition), int(size_bytes), int(rows), int() | float() as rate, *_]:
            pass
        case _:
            return
    if size_bytes < 0 or rows < 0 or not 0 <= rate < inf:
        return
    found[partition] = RangeMeasure(size_bytes, rows, rate).beside(found.get(partition))


def _take_series(series: dict[bytes, SeriesWrites], row: Value) -> None:
    match row:
        case [bytes(prefix), int(low), int(high), int(size_bytes), int(seconds)] if low <= high:
            written, before = SeriesWrites(prefix, low, high, size_bytes, seconds), series.get(prefix)
            series[prefix] = written if before is None else written.beside(before)

"""What copies have, and what is asked of them: measured at each host, told to whoever plans.

Each copy counts the keys that clients read and write there, and pages of scans.  From that follows a rate, smoothed
over five minutes.  A node may hold ten thousand copies: they are looked at by portions, so that others have a turn.
"""

from __future__ import annotations

import contextlib
from math import exp, inf
from typing import TYPE_CHECKING, Final, final

import trio

from gossipkv.errors import GossipKVError
from gossipkv.placement.measures import HostMeasures, RangeMeasure, SeriesWrites
from gossipkv.replication.stream.messages import unpacked

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import TypeAlias

    from gossipkv.register.metadata.ledger import AskNode
    from gossipkv.replication.replica.replica import Replica
    from gossipkv.replication.shell import Replication
    from gossipkv.table.controllers.write_stats import WriteStats
    from gossipkv.wire.rpc import Value

    Row: TypeAlias = list[bytes | int | float]

COUNT_S: Final = 10.0  # Between two looks at what copies have counted.
SMOOTHED_S: Final = 300.0
MIN_RATE: Final = 0.001  # Below, a copy is idle.
FEW_COUNTED: Final = 1024  # Copies before others have a turn: less than a millisecond.
FEW_MEASURED: Final = 16  # Likewise.
FEW_TAKEN: Final = 256  # Rows of an answer, likewise.
ANSWER_S: Final = 5.0  # In which nodes say how much they have.
FRESH_S: Final = 10.0  # What was said counts so long where people go through a table page by page.


@final
class LoadStats:
    """What the copies of a node have, and the requests that they get."""

    def __init__(self, replication: Replication, ask: AskNode, last_hour: WriteStats) -> None:
        self._replication = replication
        self._ask = ask
        self._last_hour = last_hour
        self._rates: dict[Replica, float] = {}  # Requests a second; who is not there gets none.
        self._turn = trio.Lock()
        self._lately: tuple[bytes, float, Mapping[int, RangeMeasure]] = b"", -inf, {}  # Of which table, when, and what.

    async def run(self) -> None:
        """Count requests, until cancelled."""
        while True:
            began = trio.current_time()
            await trio.sleep(COUNT_S)
            await self.count(trio.current_time() - began)

    async def count(self, within_s: float) -> None:
        """Take in what copies have counted in so many seconds."""
        kept = exp(-within_s / SMOOTHED_S)
        before, copies = dict(self._rates), self._replication.replicas.copies
        divided = [copy for copy in before if copy.heirs]
        while divided:  # Nobody knows into how busy ones.
            copy = divided.pop()
            rate = before.pop(copy) / len(copy.heirs)
            before |= dict.fromkeys(copy.heirs, rate)
            divided += [heir for heir in copy.heirs if heir.heirs]
        rates: dict[Replica, float] = {}
        for number, copy in enumerate([*copies.values()]):
            counted, copy.requests = copy.requests, 0
            if counted or copy in before:
                rates[copy] = before.get(copy, 0.0) * kept + counted / within_s * (1 - kept)
            if number % FEW_COUNTED == FEW_COUNTED - 1:
                await trio.lowlevel.checkpoint()
        self._rates = {copy: rate for copy, rate in rates.items() if rate > MIN_RATE}

    async def rows(self, table: bytes) -> list[Row]:
        """Of each copy of a table that can be read its partition, bytes, records, and requests a second, about.

        Behind them what was written here to each time series in the last hour: prefix, oldest time, newest, bytes, and
        for how many seconds.
        """
        found: list[Row] = []
        for number, copy in enumerate(
            [one for one in self._replication.replicas.copies.values() if one.partition[0] == table]
        ):
            with contextlib.suppress(GossipKVError):
                size_bytes, rows = self._replication.measure(copy)
                found.append([copy.partition[1], size_bytes, rows, round(self._rates.get(copy, 0.0), 2)])
            if number % FEW_MEASURED == FEW_MEASURED - 1:
                await trio.lowlevel.checkpoint()
        written = self._last_hour.of(table, trio.current_time())
        found.extend([one.prefix, one.low, one.high, one.bytes, one.seconds] for one in written)
        return found

    async def of(self, table: bytes, nodes: Collection[bytes]) -> HostMeasures:
        """What these nodes say that the partitions of a table have; of what nobody says there is nothing."""
        found: dict[int, RangeMeasure] = {}
        series: dict[bytes, SeriesWrites] = {}

        async def ask(node: bytes) -> None:
            with contextlib.suppress(GossipKVError):
                if node == self._replication.replicas.me:
                    told: Value = [[*row] for row in await self.rows(table)]
                else:
                    told = unpacked(await self._ask(node, "table_sizes", [table], ANSWER_S))
                for number, row in enumerate(told if isinstance(told, list) else ()):
                    take(found, row)
                    _take_series(series, row)
                    if number % FEW_TAKEN == FEW_TAKEN - 1:
                        await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            for node in nodes:
                nursery.start_soon(ask, node)
        return HostMeasures(found, [one for _, one in sorted(series.items())])

    async def lately(self, table: bytes, nodes: Collection[bytes]) -> Mapping[int, RangeMeasure]:
        """The same, where need be as it was said some seconds ago."""
        async with self._turn:
            known, at, _ = self._lately
            if known != table or trio.current_time() >= at + FRESH_S:
                self._lately = table, trio.current_time(), (await self.of(table, nodes)).measures
            return self._lately[2]


def take(found: dict[int, RangeMeasure], row: Value) -> None:
    """Add what one host says of a partition."""
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
            written, known = SeriesWrites(prefix, low, high, size_bytes, seconds), series.get(prefix)
            series[prefix] = written if known is None else written.beside(known)

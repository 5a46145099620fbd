"""The rows about records that expire: their puts beside plain ones, and the space that expired ones keep taking.

The space is that of one store whose records have the form of a replica's and lifetimes by which half of all records
expire each hour of a virtual clock. Merges run in this process, with the filter of a node.
"""

from __future__ import annotations

import heapq
import os
import random
from functools import partial
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Final

import msgpack

from gossipkv.replication._replication import ExpiryFilter
from gossipkv.replication.replica import record
from gossipkv.storage.engine._engine import Batch
from gossipkv.storage.engine.merge import ExpiryRule
from gossipkv.storage.engine.options import EngineOptions
from tests.bench import data, goals, machine
from tests.bench.cluster import nodes
from tests.bench.measurement import OURS
from tests.bench.network.rows import Shape, checked, open_traffic
from tests.bench.network.servers import protocols
from tests.bench.processes import Server, cpu_ns
from tests.bench.tables import writing
from tests.world.blocking_store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.measurement import Bench
    from tests.load import Traffic

MIB: Final = 1 << 20
CONNECTIONS: Final = 64
IN_FLIGHT: Final = 16
SETTLE_S: Final = 2.0  # Until a flush that began with the last puts has ended.
EXPIRING: Final = "expiring"
TTL_MS: Final = 30 * 86_400_000
CHILDREN: Final = slice(13, 15)  # Fields of /proc/PID/stat behind the name: time of awaited children, in ticks.

HOUR_MS: Final = 3_600_000
STEP_MS: Final = 60_000
SKEW_MS: Final = 60_000  # The default of `max_clock_skew`.
HOURS: Final = 4
BATCH: Final = 500
ORIGIN: Final = 1


def measure(
    bench: Bench, *, puts: int = 1_000_000, memtable_bytes: int = 2 * MIB, memtables: int = 16, rounds: int = 3
) -> None:
    """Measure rounds of puts into two tables, and some hours of a store of so many memtables."""
    _puts(bench, puts, rounds)
    for row, are_new in ((goals.EXPIRED_SPACE, False), (goals.EXPIRED_SPACE_WRITTEN, True)):
        machine.say(f"  {row}")
        most, present = _space(bench.directory / f"space-{are_new}", memtable_bytes, memtables, are_new=are_new)
        bench.add(row, most)
        bench.add(row, 1.0, goals.PRESENT)
        bench.notes.append(f"{row}: {present / MIB:.0f} MiB of present records in the end")
    bench.notes.append(
        f"Puts: {puts:,} a round, 16 in flight, of {data.RECORD_BYTES} B; the CPU is that of three nodes and "
        f"their merges. Space: {memtables} memtables of {memtable_bytes // MIB} MiB, then {HOURS} hours of a virtual "
        "clock, looked at each minute before merges; compared with a store that was given the present records alone"
    )


def _puts(bench: Bench, puts: int, rounds: int) -> None:
    with writing.tables(bench.directory / "cluster", writing.PARTITIONS) as asked:
        writing.make(asked, writing.PARTITIONS, EXPIRING, ttl_ms=TTL_MS)
        address, numbers = nodes.addresses(asked.cluster)[0], nodes.processes(asked.cluster)
        tables = {goals.PLAIN_PUT: writing.TABLE, OURS: EXPIRING}
        dialects = {side: protocols().PutDialect(table.encode(), 0) for side, table in tables.items()}

        def used_us(traffic: Traffic, side: str) -> float:
            before = sum(map(_used_ns, numbers))
            checked(traffic.run(requests=puts), side)
            sleep(SETTLE_S)
            return (sum(map(_used_ns, numbers)) - before) / 1000 / puts

        shape = Shape(CONNECTIONS, IN_FLIGHT)
        with (
            open_traffic(Server(goals.PLAIN_PUT, None, address, dialects[goals.PLAIN_PUT]), shape) as plain,
            open_traffic(Server(OURS, None, address, dialects[OURS]), shape) as ours,
        ):
            sides = {goals.PLAIN_PUT: partial(used_us, plain, goals.PLAIN_PUT), OURS: partial(used_us, ours, OURS)}
            bench.compare(goals.EXPIRING_PUT, sides, rounds)


def _used_ns(process: int) -> int:
    """Return the processor time of a process and its awaited children."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return cpu_ns(process) + sum(map(int, fields[CHILDREN])) * 10**9 // os.sysconf("SC_CLK_TCK")


class _Hours:
    """A store at a virtual time, and the expiries of its present records."""

    def __init__(self, directory: Path, memtable_bytes: int) -> None:
        options = EngineOptions(segment_bytes=memtable_bytes, table_log=0, file_bytes=memtable_bytes)
        self.now_ms, self.puts = 1 << 40, 0
        self.ends: list[int] = []
        self.chance, self.values = random.Random(data.SEED), data.Noise()
        self.store = Store.open(directory, options=options)
        self.space = self.store.reserve_space()
        batch = Batch()
        batch.new_space(self.space)
        self.store.write(batch)
        self.store.engine.expiry = ExpiryRule(
            ExpiryFilter.__module__, ExpiryFilter.__name__, lambda: self.now_ms, lambda _: self._rows()
        )

    def _rows(self) -> Iterator[bytes]:
        space, horizon_ms = self.space.to_bytes(4, "big"), self.now_ms - SKEW_MS
        settled = ORIGIN.to_bytes(8, "big") + self.puts.to_bytes(8, "big")
        yield msgpack.packb((b"", b"", b"", None, horizon_ms))
        yield msgpack.packb((space + b"\1", space + b"\2", settled, None, horizon_ms))

    def put(self, count: int) -> None:
        for first in range(0, count, BATCH):
            batch = Batch()
            for _ in range(min(BATCH, count - first)):
                self.puts += 1
                end_ms = self.now_ms + 1 + int(self.chance.expovariate(0.693147) * HOUR_MS)
                value = self.values.of(self.puts)
                head = self.now_ms << 16, ORIGIN, self.puts, record.EXPIRING, b""
                batch.put(self.space, b"\1" + data.key_of(self.puts), record.encode(*head, value, end_ms))
                heapq.heappush(self.ends, end_ms)
            self.store.write(batch)

    def pass_ms(self, ms: int) -> int:
        """Let time pass; return the number of records that expire."""
        self.now_ms += ms
        before = len(self.ends)
        while self.ends and self.ends[0] <= self.now_ms:
            heapq.heappop(self.ends)
        return before - len(self.ends)

    @property
    def run_bytes(self) -> int:
        return sum(file.size_bytes for file in self.store.manifest.run_files)


def _space(directory: Path, memtable_bytes: int, memtables: int, *, are_new: bool) -> tuple[float, float]:
    """Return the most space, in parts of the present records', and their bytes in the end."""
    hours = _Hours(directory, memtable_bytes)
    count = memtables * memtable_bytes // data.RECORD_BYTES
    hours.put(count)
    record_bytes = hours.run_bytes / sum(file.records for file in hours.store.manifest.run_files)
    most = 0.0
    for _ in range(HOURS * HOUR_MS // STEP_MS):
        expired = hours.pass_ms(STEP_MS)
        most = max(most, hours.run_bytes / (len(hours.ends) * record_bytes))
        hours.put(expired if are_new else 0)
        hours.store.maintain()
    hours.store.close()
    return most, len(hours.ends) * record_bytes

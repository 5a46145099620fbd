"""Copies one partition from one replica into a sorted file.

1. Hosts of a majority of slots report their clocks. Together these cover every write that was acknowledged at
   `majority` or `all` before. A write at `one` may be missing.
2. One of these hosts gives its records page by page, and then its log since the first page (`replica_load`, as for a
   bulk load), until its clock covers the reported ones. The pages together with that log are the replica's state at
   this clock.
3. A sorted file is built from the pages and the log; the later record of a key stays.

For a backup since another one, the source leaves out the values that the other one has. All keys still come, so a key
that has been deleted is found by comparing keys, even if its tombstone is gone.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, final

import msgpack
import trio

from gossipkv.backup.archive import DELETED, EXPIRING, EXPIRY_BYTES, PRESENT
from gossipkv.errors import GossipKVError, ProtocolError, Unavailable
from gossipkv.replication.replica import clock, record
from gossipkv.replication.replica.acks import MAJORITY, slots_needed
from gossipkv.replication.replica.keys import RECORD, decode_state
from gossipkv.storage.builder import SortedFileBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from gossipkv.environment.seam import Environment
    from gossipkv.table.records.router import PartitionRoute, TableRoute
    from gossipkv.wire.rpc import Value

ANSWER_S: Final = 10.0  # Longer than a source delays a page to keep to `table_transfer`.
COVER_S: Final = 30.0  # Time for the source to get the records that the other hosts have.
LOOK_S: Final = 0.05
BUILD_BYTES: Final = 32 << 20  # Memory of one build; more records are sorted on disk.


class AskNode(Protocol):
    """Asks a node, maybe this one."""

    async def __call__(self, node: bytes, method: str, params: list[Value], timeout_s: float, /) -> Value: ...


class Page(NamedTuple):
    """A part of a replica: some of its records, or of its log."""

    records: bytes  # Keys, each before its record; nil in place of a record that the earlier backup has.
    more: bytes | None  # The key at which the next page begins; None: the page is the last one.
    is_log: bool


@final
class PartitionReader:
    """Reads a consistent copy of a partition from one of its hosts."""

    def __init__(self, ask: AskNode, me: bytes, route: TableRoute, place: PartitionRoute) -> None:
        self._ask, self._me = ask, me
        self._route, self._place = route, place
        self._space = self._position = 0
        self.clock = b""  # Clock of the source after the last page.

    async def clocks(self) -> dict[bytes, bytes]:
        """Return the clocks of hosts, of a majority of slots at least.  Raises Unavailable: too few answer."""
        found: dict[bytes, bytes] = {}
        async with trio.open_nursery() as nursery:
            for node in self._place.hosts:
                nursery.start_soon(self._report, node, found)
        if len(found) < hosts_needed(self._route, self._place):
            raise Unavailable(lacking(self._route, self._place, len(found)))
        return found

    async def _report(self, node: bytes, found: dict[bytes, bytes]) -> None:
        partition = self._place.partition
        asked: list[Value] = [self._me, self._route.table.id, msgpack.packb([partition])]
        try:
            answer = await self._ask(node, "replica_report", asked, ANSWER_S)
        except GossipKVError:
            return
        match msgpack.unpackb(answer) if isinstance(answer, bytes) else None:
            case [[number, _, int(config), bytes(own), True]] if number == partition and config >= self._place.version:
                clock.check(own)
                found[node] = own

    async def pages(self, source: bytes, covering: bytes, since: bytes, send: trio.MemorySendChannel[Page]) -> None:
        """Send the pages of a source, until its clock covers `covering`.

        Raises:
            Unavailable: the source's clock does not cover that in time.
            GossipKVError: the source refuses, or is lost.
        """
        async with send:
            start: bytes | None = RECORD + (b"" if self._route.is_hash else self._place.first)
            while start is not None:
                page = await self._page(source, start, since)
                await send.send(page)
                start = page.more
            give_up_at = trio.current_time() + COVER_S
            while True:
                page = await self._page(source, b"", b"")
                await send.send(page)
                if page.more is None:
                    if clock.covers(self.clock, covering):
                        return
                    if trio.current_time() > give_up_at:
                        raise Unavailable("the replica lags behind the other replicas of its partition")
                    await trio.sleep(LOOK_S)

    async def _page(self, source: bytes, start: bytes, since: bytes) -> Page:
        asked: list[Value] = [self._me, self._route.table.id, self._place.partition, self._space, self._position, start]
        answer = await self._ask(source, "replica_load", [*asked, since] if since else asked, ANSWER_S)
        match answer:
            case [int(space), int(position), None | bytes() as state, bytes(packed), None | bytes() as more]:
                if not self._space or not start:  # Pages of records stay before the position of the first one.
                    self._position = position
                self._space = space
                if state is not None and (not start or not self.clock):
                    self.clock = decode_state(state)[2]
                return Page(packed, more, is_log=not start)
        raise ProtocolError("the answer of a replica is not a page")


@final
class PartitionBuilder:
    """Builds the sorted file of a partition; everything blocks."""

    def __init__(
        self, environment: Environment, workspace: Path, name: str, old: Iterator[tuple[bytes, bytes]] | None
    ) -> None:
        """`old`: the records of the earlier backup, in order; None: the backup is a full one."""
        self._path = workspace / name
        self._builder = SortedFileBuilder(workspace, [name], files=environment.files, memory_bytes=BUILD_BYTES)
        self._builder.__enter__()
        self._old = old
        self._next_old: bytes | None = None if old is None else _next_key(old)

    def take(self, page: Page) -> None:
        """Add a page.  Raises StorageError."""
        flat = msgpack.unpackb(page.records)
        if self._old is not None and not page.is_log:
            self._add_deleted(flat, None if page.more is None else page.more[len(RECORD) :])
        self._builder.add_all(_marked(flat, keeps_deleted=page.is_log))

    def _add_deleted(self, flat: Sequence[bytes | None], end: bytes | None) -> None:
        """Add the keys before `end` that the earlier backup has and this page has not."""
        present = {key for key, data in _pairs(flat) if data is None or not record.is_deleted(data)}
        while self._next_old is not None and (end is None or self._next_old < end):
            if self._next_old not in present:
                self._builder.add(self._next_old, DELETED)
            assert self._old is not None
            self._next_old = _next_key(self._old)

    def finish(self) -> tuple[Path, int, int] | None:
        """Write the file; return its path, size and number of records; None: it would have none."""
        if not self._builder.added:
            self._builder.abort()
            return None
        (report,) = self._builder.finish()
        return self._path, report.size_bytes, report.records

    def abort(self) -> None:
        """Remove what was written."""
        self._builder.abort()


def hosts_needed(route: TableRoute, place: PartitionRoute) -> int:
    """Return the number of hosts of a partition that must report their clocks."""
    return max(1, min(slots_needed(MAJORITY, route.table.replication), len(place.hosts)))


def lacking(route: TableRoute, place: PartitionRoute, count: int) -> str:
    """Return the error of a partition of which only so many hosts answer."""
    needed, words = hosts_needed(route, place), f"partition {place.partition:016x} of {route.table.name}"
    return f"a backup needs {needed} of the {len(place.hosts)} replicas of {words}, and {count} answer"


def best_source(clocks: Mapping[bytes, bytes], avoided: set[bytes], number: int) -> tuple[bytes, bytes]:
    """Return the host to copy from, and the clock that the copy must cover.

    Hosts that cover it already come first, then those that have not failed; partitions take turns among equal ones.
    """
    covering = reduce(clock.merge, clocks.values())
    ranked = sorted(clocks, key=lambda node: (node in avoided, not clock.covers(clocks[node], covering), node))
    first = (ranked[0] in avoided, clock.covers(clocks[ranked[0]], covering))
    equal = [node for node in ranked if (node in avoided, clock.covers(clocks[node], covering)) == first]
    return equal[number % len(equal)], covering


def _pairs(flat: Sequence[bytes | None]) -> Iterator[tuple[bytes, bytes | None]]:
    for key, data in zip(flat[::2], flat[1::2], strict=True):
        assert key is not None, "a page begins with a key"
        yield key, data


def _marked(flat: Sequence[bytes | None], *, keeps_deleted: bool) -> Iterator[tuple[bytes, bytes]]:
    for key, data in _pairs(flat):
        if data is None:
            continue
        value, expires_ms = record.value(data), record.expires_ms(data)
        if value is not None:
            mark = EXPIRING + expires_ms.to_bytes(EXPIRY_BYTES, "big") if expires_ms else PRESENT
            yield key, mark + value
        elif keeps_deleted:
            yield key, DELETED


def _next_key(records: Iterator[tuple[bytes, bytes]]) -> bytes | None:
    return next((key for key, _ in records), None)

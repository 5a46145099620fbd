"""The smear buffer: keeps accepted puts in the store, and forwards them when they are due by `smear_schedule`.

The puts lie in a space of their own, after the key `SMEARED`. Puts that cannot be kept are forwarded at once.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Final, final

import trio

from gossipkv.environment.ticks import rest
from gossipkv.errors import GossipKVError, LimitExceeded, Overloaded, StorageError, Unknown, UnknownDatabase
from gossipkv.log import Log
from gossipkv.replication.replica.hlc import check_left
from gossipkv.replication.shell import SMEARED
from gossipkv.storage.engine.shell import Batch
from gossipkv.table.controllers.smear_schedule import FIRST, MAX_SENT, put_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gossipkv.errors import Detail
    from gossipkv.table.controllers.local_tables import LocalTables
    from gossipkv.table.controllers.smear_schedule import SmearedPut, SmearSchedule
    from gossipkv.wire.results import Completion
    from gossipkv.wire.rpc import Value

    # Takes puts that were forwarded together, and None or the reason why no host has confirmed them.
    OnForwarded = Callable[[Sequence[SmearedPut], GossipKVError | None], object]
    # Sends puts of one table to their hosts, in parts; calls back for each part.
    Forward = Callable[[bytes, Sequence[SmearedPut], OnForwarded], object]

LOOK_S: Final = 0.1  # Interval between looks for due puts: short compared with the wait of a put.
PAGE: Final = 256
END: Final = bytes([FIRST[0] + 1])
ACCEPTED: Final = "accepted"


@final
class SmearBuffer:
    """The smear buffer of one incarnation of a store."""

    def __init__(self, tables: LocalTables, smearing: SmearSchedule, forward: Forward) -> None:
        self._replication = tables.replication
        self._smearing = smearing
        self._forward = forward
        self._start = FIRST  # The next row to be counted.
        self._news = trio.Event()  # Set when a put is accepted.
        self._is_made = False  # True if the space exists, and can be read.
        self._done: list[SmearedPut] = []  # Puts to be deleted.
        self._log = Log("gossipkv.node")
        self.accepted, self.forwarded, self.dropped = 0, 0, 0

    async def run(self) -> None:
        """Forward due puts until cancelled."""
        while True:
            try:
                while not self._smearing.is_counted:
                    self.count()
                    await trio.lowlevel.checkpoint()
                self.look()
            except GossipKVError as error:  # For example, a page of the store is damaged.
                self._log.error("smeared_not_forwarded", reason=error.message)
                await trio.sleep(LOOK_S * 100)
            if self.waiting:
                await rest(LOOK_S)
            else:
                self._news = trio.Event()
                await self._news.wait()

    def drain(self) -> int:
        """Make all puts due, and accept no more; return the number of puts that still wait."""
        self._smearing.drains = True
        return self.waiting

    @property
    def waiting(self) -> int:
        """The number of puts that wait."""
        return self._smearing.puts

    # -- new puts ----------------------------------------------------------------------------------------------------

    def accept(
        self,
        table: bytes,
        row: tuple[bytes, bytes, int],
        deadline: float,
        complete: Completion[Value],
        or_else: Callable[[], None],
        *,
        hosts: Iterable[bytes],
    ) -> None:
        """Keep a put to a range of these hosts, and answer once the put is synced; call `or_else` if it is not kept.

        `row`: key, value and expiry as in `RecordWrite`. The put's time follows the fastest of the hosts' clocks, like
        the times of the hosts' own writes.

        Raises:
            TimedOut, Overloaded: the put is not kept.
        """
        replication, smearing, (key, value, expiry) = self._replication, self._smearing, row
        skew, now, size_bytes = replication.replicas.skew, replication.now(), len(key) + len(value)
        wall_ms = skew.time_ms(hosts)
        check_left(deadline - now)
        if not smearing.admits(size_bytes, wall_ms, skew.most_ms):
            or_else()
            return
        put = smearing.accept(table, key, value, now, wall_ms, expiry=expiry)
        self._news.set()
        batch, space = Batch(), replication.smeared
        if space is None:
            space = replication.reserve_space()
            batch.new_space(space)
            batch.put(space, SMEARED, b"")
        batch.put(space, *put.row())

        def late() -> None:
            complete(Unknown("the put was not synced in time, and may become visible", {"table": table.hex()}))

        def on_synced(error: StorageError | None) -> None:
            is_late = waiter.on_late is None
            replication.waiting.end(waiter)
            if error is not None:
                smearing.forget(put)
            else:
                self._is_made = True
                smearing.is_there(put)
                self.accepted += 1
            if not is_late:
                complete({ACCEPTED: True}) if error is None else or_else()

        try:
            waiter = replication.waiting.begin(deadline, size_bytes, late)
        except Overloaded:
            smearing.forget(put)
            raise
        try:
            replication.append_told(batch, on_synced)
        except (LimitExceeded, Overloaded, StorageError):
            replication.waiting.end(waiter)
            smearing.forget(put)
            or_else()
            return
        replication.smeared = space

    # -- due puts ----------------------------------------------------------------------------------------------------

    def count(self) -> None:
        """Count a page of puts of a former incarnation.  Raises GossipKVError: the store cannot be read."""
        replication, smearing, space = self._replication, self._smearing, self._replication.smeared
        if space is not None and self._start == FIRST:
            self._begin(space)
            self._is_made = True
        elif self._start == FIRST:
            smearing.begin(replication.now(), replication.now_ms(), None)
        more = None
        if space is not None:
            rows, more = replication.scan(space, self._start, END, reverse=False, limit=PAGE)
            for row in rows:
                smearing.count(put_of(*row))
        self._start = more or self._start
        smearing.is_counted = more is None

    def _begin(self, space: int) -> None:
        replication = self._replication
        last, _ = replication.scan(space, FIRST, END, reverse=True, limit=1)
        self._smearing.begin(replication.now(), replication.now_ms(), last[0][0] if last else None)

    def look(self) -> None:
        """Delete the confirmed puts, and forward the due ones.  Raises GossipKVError: the store cannot be read."""
        self._delete()
        replication, smearing, space = self._replication, self._smearing, self._replication.smeared
        for _ in range(MAX_SENT // PAGE):
            span = smearing.span(replication.now())
            if space is None or span is None or not self._is_made:
                return
            rows, more = replication.scan(space, *span, reverse=False, limit=PAGE)
            by_table: dict[bytes, list[SmearedPut]] = {}
            for put in smearing.send(put_of(*row) for row in rows):
                by_table.setdefault(put.table, []).append(put)
            for table, puts in by_table.items():
                self._forward(table, puts, self._forwarded)
            if more is None:
                return

    def _forwarded(self, puts: Sequence[SmearedPut], error: GossipKVError | None) -> None:
        self._smearing.answered(puts[0].table, None if error is None else error.message)
        match error:
            case None:
                self.forwarded += len(puts)
                self._done += puts
            case UnknownDatabase():  # The table was dropped.
                self.dropped += len(puts)
                self._log.warning("smeared_dropped", table=puts[0].table.hex(), puts=len(puts))
                self._done += puts
            case _:
                self._put_off(puts)

    def _put_off(self, puts: Sequence[SmearedPut]) -> None:
        batch, space, now = Batch(), self._replication.smeared, self._replication.now()
        assert space is not None
        again = [self._smearing.later(put, now) for put in puts]
        for put, later in zip(puts, again, strict=True):
            batch.delete(space, put.at)
            batch.put(space, *later.row())

        def are(instead: Sequence[SmearedPut]) -> None:
            for put, later in zip(puts, instead, strict=True):
                self._smearing.is_put_off(put, later)

        try:
            self._replication.append(batch, partial(are, again))
        except (Overloaded, StorageError):
            are(puts)

    def _delete(self) -> None:
        if not self._done:
            return
        batch, space, done = Batch(), self._replication.smeared, self._done
        assert space is not None
        for put in done:
            batch.delete(space, put.at)

        def deleted() -> None:
            for put in done:
                self._smearing.forget(put)

        with contextlib.suppress(Overloaded, StorageError):  # The next look tries again.
            self._replication.append(batch, deleted)
            self._done = []

    # -- status ------------------------------------------------------------------------------------------------------

    def backlog_of(self, table: bytes) -> dict[str, Detail] | None:
        """Return the backlog of a table for `status`: puts, bytes, longest wait, reason; None if no put waits."""
        waits = self._smearing.tables.get(table)
        if waits is None:
            return None
        until_s = self._smearing.until_s(waits, self._replication.now())
        return {"puts": waits.puts, "bytes": waits.bytes, "until_s": until_s, "why": waits.why}

    def to_map(self) -> dict[str, Detail]:
        """Return the counters of the buffer for `info`."""
        return {
            "smeared_waiting": self._smearing.puts,
            "smeared_bytes": self._smearing.bytes,
            "smeared": self.accepted,
            "smeared_forwarded": self.forwarded,
            "smeared_dropped": self.dropped,
        }

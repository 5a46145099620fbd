"""Puts that this node accepts and forwards later: `controllers.smear_schedule` on the store of its tables.

They lie in a space of their own, under keys behind that by which the space is known; beside that stands the id of the
store, so what a backup has is not forwarded again by another one.  What cannot be kept is forwarded at once.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Final, final

import trio

from gossipkv.errors import GossipKVError, LimitExceeded, Overloaded, StorageError, Unknown, UnknownDatabase
from gossipkv.log import Log
from gossipkv.replication.replica.hlc import check_left
from gossipkv.replication.shell import SMEARED
from gossipkv.storage.engine.shell import Batch
from gossipkv.table.controllers.smear_schedule import FIRST, MAX_SENT, put_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gossipkv.errors import Detail
    from gossipkv.replication.shell import Replication
    from gossipkv.table.controllers.smear_schedule import SmearedPut, SmearSchedule
    from gossipkv.wire.results import OnResult

    # What becomes of puts that were forwarded together: None, or why nobody has answered that they are written.
    OnForwarded = Callable[[Sequence[SmearedPut], GossipKVError | None], object]
    Forward = Callable[
        [bytes, Sequence[SmearedPut], OnForwarded], object
    ]  # Has hosts write puts of one table, in parts.

LOOK_S: Final = 0.1  # Between two looks at what is due: short beside two minutes.
IDLE_S: Final = 1.0  # Where nothing waits.
PAGE: Final = 256
END: Final = bytes([FIRST[0] + 1])
ACCEPTED: Final = "accepted"


@final
class SmearBuffer:
    """What was accepted and waits, in one life of a store."""

    def __init__(self, replication: Replication, smearing: SmearSchedule, forward: Forward, *, store: int) -> None:
        """`store`: its id."""
        self._replication = replication
        self._smearing = smearing
        self._forward = forward
        self._store = store.to_bytes(8, "big")
        self._start = FIRST  # From where it is counted on.
        self._is_made = False  # The space is there, and can be read.
        self._done: list[SmearedPut] = []  # What is to be deleted.
        self._log = Log("gossipkv.node")
        self.accepted, self.forwarded, self.dropped = 0, 0, 0

    async def run(self) -> None:
        """Forward what is due, until cancelled."""
        while True:
            try:
                while not self._smearing.is_counted:
                    self.count()
                    await trio.lowlevel.checkpoint()
                self.look()
            except GossipKVError as error:  # A page of the store is damaged, say.
                self._log.error("smeared_not_forwarded", reason=error.message)
                await trio.sleep(LOOK_S * 100)
            await trio.sleep(LOOK_S if self.waiting else IDLE_S)

    def drain(self) -> int:
        """Forward all that waits as soon as can be, and accept nothing more; how many puts wait still."""
        self._smearing.drains = True
        return self.waiting

    @property
    def waiting(self) -> int:
        """How many puts wait."""
        return self._smearing.puts

    # -- what comes --------------------------------------------------------------------------------------------------

    def accept(
        self,
        table: bytes,
        row: tuple[bytes, bytes],
        deadline: float,
        on_result: OnResult,
        or_else: Callable[[], None],
        *,
        hosts: Iterable[bytes],
    ) -> None:
        """Keep a put of a range of these hosts, and answer once it is synced; `or_else` is called if it cannot be kept.

        Its time is by the fastest of their clocks, as are those of what they write themselves.

        Raises:
            TimedOut, Overloaded: it is not kept.
        """
        replication, smearing = self._replication, self._smearing
        skew, now, size_bytes = replication.replicas.skew, replication.now(), sum(map(len, row))
        wall_ms = replication.now_ms() + skew.ahead_ms(hosts)
        check_left(deadline - now)
        if not smearing.admits(size_bytes, wall_ms, skew.most_ms):
            or_else()
            return
        put = smearing.accept(table, *row, now, wall_ms)
        batch, space = Batch(), replication.smeared
        if space is None:
            space = replication.reserve_space()
            batch.new_space(space)
            batch.put(space, SMEARED, self._store)
        batch.put(space, *put.row())

        def late() -> None:
            on_result(Unknown("the put was not synced in time: it may become visible", {"table": table.hex()}))

        def told(error: StorageError | None) -> None:
            is_late = waiter.on_late is None
            replication.waiting.end(waiter)
            if error is not None:
                smearing.forget(put)
            else:
                self._is_made = True
                smearing.is_there(put)
                self.accepted += 1
            if not is_late:
                on_result({ACCEPTED: True}) if error is None else or_else()

        try:
            waiter = replication.waiting.begin(deadline, size_bytes, late)
        except Overloaded:
            smearing.forget(put)
            raise
        try:
            replication.append_told(batch, told)
        except (LimitExceeded, Overloaded, StorageError):
            replication.waiting.end(waiter)
            smearing.forget(put)
            or_else()
            return
        replication.smeared = space

    # -- what goes ---------------------------------------------------------------------------------------------------

    def count(self) -> None:
        """Count a page of what a former life has left.  Raises GossipKVError: the store cannot be read."""
        replication, smearing, space = self._replication, self._smearing, self._replication.smeared
        if space is not None and self._start == FIRST:
            self._begin(space)
            space = replication.smeared  # It may be another store's.
            self._is_made = space is not None
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
        if replication.get(space, SMEARED) != self._store:
            self._log.warning("smeared_of_another_store")
            batch = Batch()
            batch.drop_space(space)
            replication.append(batch, lambda: None)
            replication.smeared = None

    def look(self) -> None:
        """Forward what is due now, and delete what was answered.  Raises GossipKVError: the store cannot be read."""
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

        with contextlib.suppress(Overloaded, StorageError):  # Else the next time.
            self._replication.append(batch, deleted)
            self._done = []

    # -- for people --------------------------------------------------------------------------------------------------

    def told(self, table: bytes) -> dict[str, Detail] | None:
        """What `status` tells of a table: how much waits here, and for how long at most; None: nothing does."""
        waits = self._smearing.tables.get(table)
        if waits is None:
            return None
        until_s = self._smearing.until_s(waits, self._replication.now())
        return {"puts": waits.puts, "bytes": waits.bytes, "until_s": until_s, "why": waits.why}

    def to_map(self) -> dict[str, Detail]:
        """What `info` tells."""
        return {
            "smeared_waiting": self._smearing.puts,
            "smeared_bytes": self._smearing.bytes,
            "smeared": self.accepted,
            "smeared_forwarded": self.forwarded,
            "smeared_dropped": self.dropped,
        }

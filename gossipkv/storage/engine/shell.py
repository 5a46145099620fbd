"""The store under Trio: waiting for syncs, throttling of writers, background work.

    async with open_store(path, environment) as store:
        position = await store.write(batch)         # returns when the batch is synced
        position = store.append(batch, on_synced)   # returns at once, and calls back when it is synced
        value = store.get(space, key)               # answers at once, from synced batches

There are three tasks. The first hears of each written group and begins the next; the second makes room (segments,
merges, switches); the third marks the synced position when writing pauses. If the log fails, nothing is written any
more, and every caller gets the reason. Only the store's tasks end then.
"""

from __future__ import annotations

import contextlib
from collections import deque
from dataclasses import dataclass
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Final, Protocol, final

import outcome
import trio

from gossipkv.environment.ticks import rest
from gossipkv.errors import GossipKVError, Overloaded, StorageError
from gossipkv.log import Log
from gossipkv.storage.engine import works
from gossipkv.storage.engine._engine import (
    DELETE,
    KEY_LIMIT,
    PUT,
    VALUE_LIMIT,
    Batch,
    MergeFilter,
    ReadGate,
    View,
    operations,
)
from gossipkv.storage.engine.committing import committing
from gossipkv.storage.engine.log_reader import SLICE_BYTES
from gossipkv.storage.engine.opening import Opened
from gossipkv.storage.engine.opening import open_store as open_blocking
from gossipkv.storage.engine.options import EngineOptions
from gossipkv.storage.engine.parent import merge_in_child
from gossipkv.storage.engine.reading import StoreReading
from gossipkv.storage.engine.works import Reserve, RunningMerge, Switch

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterator, Callable

    from gossipkv.environment.seam import Environment
    from gossipkv.storage.engine.committing import Committing
    from gossipkv.storage.engine.log_reader import LogCursor, Operations
    from gossipkv.storage.engine.merge import ExpiryRule, MergeOrder, MergeOutput
    from gossipkv.storage.engine.policy import Manner
    from gossipkv.storage.engine.works import Short, Work

__all__ = [
    "DELETE",
    "KEY_LIMIT",
    "PUT",
    "VALUE_LIMIT",
    "Batch",
    "EngineShell",
    "MergeFilter",
    "ReadGate",
    "View",
    "open_store",
    "operations",
]

# A pause in writing after which the log records that its tail is synced. Damage of an unmarked tail cannot be told from
# an interrupted write.
MARK_AFTER_S: Final = 0.5

# A batch waits this long for room before it is refused.
PATIENCE_S: Final = 1.0

# Period of measuring the disk's free space, and delay before retrying what the disk refused.
LOOK_PERIOD_S: Final = 5.0
RETRY_AFTER_S: Final = 1.0

# The pause doubles after each failed merge: each retry would read all of a damaged file.
MAX_RETRY_AFTER_S: Final = 60.0

ROWS_AT_ONCE: Final = 64  # Rows of a merge's filter that are made before other tasks run.

EVENTS: Final = Log("gossipkv.storage")


class RunMerge(Protocol):
    """Runs merges: `merge_in_child`, or a simulation's substitute."""

    async def __call__(self, order: MergeOrder, manner: Callable[[], Manner]) -> MergeOutput:
        """Run a merge to its end.  Raises `MergeError`, `Corrupt` or OSError."""
        ...


@contextlib.asynccontextmanager
async def open_store(
    path: str | os.PathLike[str],
    environment: Environment,
    options: EngineOptions | None = None,
    *,
    expected: tuple[int, int] | None = None,
    create: bool = True,
    run_merge: RunMerge = merge_in_child,
) -> AsyncIterator[EngineShell]:
    """Open the store at `path` for the duration of the block; arguments and errors as in `opening.open_store`."""
    with contextlib.closing(committing(environment)) as thread:
        arguments = environment.files, PurePath(path), options or EngineOptions(), environment.random
        opened = await environment.threads.run(partial(open_blocking, *arguments, expected=expected, create=create))
        store = EngineShell(environment, opened, thread, run_merge)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(store.run)
                try:
                    await store.settled()
                    yield store
                finally:
                    with trio.CancelScope(shield=True):
                        await store.end()
        finally:
            store.let_go()


@final
@dataclass(eq=False, slots=True)
class SyncWaiter:
    """A task or callback that is told once that a position is synced, or why it never will be."""

    position: int
    tell: Callable[[StorageError | None], object] | None  # None: it no longer waits.


@final
class EngineShell(StoreReading):
    """An open store under Trio."""

    def __init__(self, environment: Environment, opened: Opened, thread: Committing, run_merge: RunMerge) -> None:
        super().__init__(environment.files, opened.engine)
        self.extend = opened.engine.extend
        self.removed, self.torn = opened.removed, opened.torn
        self._environment = environment
        self._lock = opened.lock
        self._run_merge = run_merge
        self._committing = thread
        self._began_ns = 0
        self._ends: int | None = None  # Descriptor of a segment whose last group is under way.
        self._position = 0  # Last position of the group under way; 0: none is under way.
        # Called when a group is written, before the next one begins, and when the tasks end.
        self.on_written: Callable[[], object] = lambda: None
        self._waiting: deque[SyncWaiter] = deque()
        self._more = trio.Event()  # Set when there may be background work.
        self._room = trio.Event()  # Set when room may have been made.
        self._idle_from = 0.0
        self._may_mark = trio.Event()  # Set by a write, and by a measurement of the disk.
        self._merges_failed = 0  # Count of failed merges since the last switch.
        self._merges_from = 0.0  # No merge is begun before this time, so that each is chosen by the state then.
        self._scope = trio.CancelScope(shield=True)  # Shields the tasks from cancellation until `end`.
        self._has_ended = trio.Event()
        self._gathers = False  # True while woken waiters get their turn to write again.

    # -- writing -----------------------------------------------------------------------------------------------------

    async def write(self, batch: Batch) -> int:
        """Write a batch, which must not be changed from now on; returns its position once synced and readable.

        If cancelled, the batch may or may not be written.

        Raises:
            Overloaded: there was no room for it for `PATIENCE_S`; nothing was written.
            LimitExceeded, ValueError: see `Engine.append`.
            StorageError: the store is closed; the batch may or may not be written.
        """
        position = await self._append(batch)
        await self.wait(position)
        return position

    async def put(self, space: int, key: bytes, value: bytes) -> int:
        """Write one record.  Raises as `write`."""
        batch = Batch()
        batch.put(space, key, value)
        return await self.write(batch)

    async def _append(self, batch: Batch) -> int:
        delay_s = self.engine.pressure().delay_s
        if delay_s:
            await trio.sleep(delay_s)
        deadline = trio.current_time() + PATIENCE_S
        while True:
            try:
                return self._plan(batch)
            except Overloaded:
                with trio.move_on_at(deadline) as patience:
                    await self._room.wait()
                if patience.cancelled_caught:
                    raise

    def append(self, batch: Batch, on_synced: Callable[[StorageError | None], object]) -> int:
        """Write a batch, which only `extend` may change from now on, without a waiting task; returns its position.

        `on_synced` is called exactly once, in order of positions and never during this call: with None when the batch
        is synced and readable, or with the error that closed the store first. It may append again. An exception in it
        is a defect, which is logged and does not affect other waiters. Unlike `write`, this call is not slowed
        (`pressure().delay_s`), since it may not wait; it is refused like `write`.

        Raises:
            Overloaded: there is no room for it now; nothing was written.
            LimitExceeded, ValueError, StorageError: see `Engine.append`.
        """
        self.engine.pressure()  # Computes the pressure anew when that is due.
        position = self._plan(batch)
        self._enqueue(SyncWaiter(position, on_synced))
        return position

    def _plan(self, batch: Batch) -> int:
        """Plan a batch for the next group; returns its position. Raises as `Engine.append`."""
        try:
            position = self.engine.append(batch)
        except Overloaded:
            if batch.relieves:
                self._more.set()  # The batch may free room, once background work makes way for it.
            raise
        self._begin()
        return position

    async def wait(self, position: int) -> None:
        """Return when everything up to `position` is synced.  Raises `StorageError` when the store is closed first."""
        if self.engine.synced_position < position:
            self.engine.check_open()
            task = trio.lowlevel.current_task()

            def resume(error: StorageError | None) -> None:
                trio.lowlevel.reschedule(task, outcome.Value(None) if error is None else outcome.Error(error))

            def abort(_raise_cancel: object) -> trio.lowlevel.Abort:
                waiter.tell = None
                return trio.lowlevel.Abort.SUCCEEDED

            waiter = SyncWaiter(position, resume)
            self._enqueue(waiter)
            await trio.lowlevel.wait_task_rescheduled(abort)

    @property
    def is_writing(self) -> bool:
        """True if a batch has to wait for a group under way, so further ones can still join the next group."""
        return self.engine.closed is None and (self._gathers or self._position > 0)

    def _enqueue(self, waiter: SyncWaiter) -> None:
        place = len(self._waiting)
        while place and self._waiting[place - 1].position > waiter.position:
            place -= 1
        self._waiting.insert(place, waiter)

    def _begin(self) -> None:
        """Submit the next group, unless none waits, one is under way, or more batches are about to come."""
        group = None if self._gathers else self.engine.group()
        if group is not None:
            self._position = group.position
            self._ends = group.descriptor if group.ends else None
            self._began_ns = self._environment.clock.monotonic_ns()
            self._committing.submit(group)

    def _wake(self) -> None:
        """Tell waiters whose batch is synced, or all of them if the store is closed."""
        is_closed = self.engine.closed is not None
        synced = self.engine.synced_position
        while self._waiting and (is_closed or self._waiting[0].position <= synced):
            waiter = self._waiting.popleft()
            if waiter.tell is None:
                continue
            try:
                waiter.tell(None if waiter.position <= synced else self.engine.closed_error())
            except Exception as defect:  # noqa: BLE001  # The waiter's defect: the store and other waiters go on.
                EVENTS.error("callback_defect", position=waiter.position, exc_info=defect)
        self._made_room()  # Batches that waited for the disk are written, or never will be.

    # -- following the log -------------------------------------------------------------------------------------------

    async def read_log(
        self, cursor: LogCursor, *, most_bytes: int = SLICE_BYTES
    ) -> tuple[list[tuple[int, Operations]], int]:
        """Return the next batches for a cursor, and its new position; that is unchanged at the end of the synced log.

        Batches come whole and in order, each with its operations in the cursor's spaces; batches without any are left
        out. About `most_bytes` of the log are read at a time, in worker threads, except for the end of the most recent
        write. `wait` returns when there is more.

        Raises:
            BelowFloor: the log begins behind its position.
            Corrupt: a frame is damaged.
            StorageError: the store is closed, or the system refused.
        """
        run = self._environment.threads.run
        while (part := self._next_slice(cursor, most_bytes)) is not None:
            read = part.read(self.files) if part.is_short else await run(part.read, self.files)
            if (batches := self._advance(cursor, read)) is not None:
                return batches
        return [], cursor.position

    def expire_by(self, rule: ExpiryRule) -> None:
        """Let expired records leave with merges from now on."""
        self.engine.expiry = rule

    # -- its tasks ---------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run the background tasks until `end`, or until the store is closed."""
        with self._scope:
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._mark_in_pauses)
                    nursery.start_soon(self._maintain, nursery)
                    self._begin()
                    await self._hear()
                    nursery.cancel_scope.cancel()
            except BaseException as error:  # Even the end of the process must wake all waiters.
                if not _is_cancelled(error):
                    self.engine.close(f"a defect of the program stopped it: {error!r}")
                raise
            finally:
                self._has_ended.set()
                self._wake()
                self.on_written()

    async def _hear(self) -> None:
        """Apply each group when it is synced, and begin the next."""
        while self.engine.closed is None:
            try:
                await self._committing.wait()
            except OSError as error:
                self.engine.failed(error)
                self._wake()
                return
            self.engine.counts.count_sync(self._environment.clock.monotonic_ns() - self._began_ns)
            writes = self.engine.synced(self._position)
            self._position = 0
            if self._ends is not None:
                with contextlib.suppress(OSError):  # All of the segment is synced already.
                    self.files.close(self._ends)
                self._more.set()
            await self._gather(writes)
            self._idle_from = trio.current_time()
            self._may_mark.set()

    async def _gather(self, writes: int) -> None:
        """Begin the next group after the woken writers had their turn, so that it carries their next writes.

        Otherwise the first writer would get a sync of its own, and all others would wait for it.
        """
        self._gathers = True
        try:
            self._wake()
            if writes > 1:
                for _ in range(2):  # The first checkpoint lets them run, in any order.
                    await trio.lowlevel.checkpoint()
            self.on_written()
        finally:
            self._gathers = False
        self._begin()

    async def _mark_in_pauses(self) -> None:
        while True:
            await self._may_mark.wait()
            await rest(MARK_AFTER_S)
            if trio.current_time() - self._idle_from >= MARK_AFTER_S / 2:
                self._may_mark = trio.Event()
                if self.engine.relieve() or self.engine.mark():
                    self._begin()

    async def settled(self, *, mark: bool = False) -> None:
        """Return when nothing waits to be synced; with `mark`, once the log records that too."""
        if self.engine.closed is None:
            await self.wait(self.engine.position)
        if mark and self.engine.mark():
            self._begin()
            await self.wait(self.engine.position)

    async def end(self) -> None:
        """Mark the synced position in the log, stop the tasks, and remove files that nothing will need."""
        with contextlib.suppress(StorageError):  # The waiters were told already.
            await self.settled(mark=True)
        self._scope.cancel()
        await self._has_ended.wait()
        if self.engine.closed is None:  # After a failure a frame may exist that names the next segment.
            self.engine.close()
            with contextlib.suppress(OSError):  # The next opening removes them.
                await self._environment.threads.run(works.remove, self.files, self.engine.leftovers())

    async def _maintain(self, nursery: trio.Nursery) -> None:
        """Perform background work, one piece after the other; merges run beside it."""
        while True:
            self._more = trio.Event()
            with contextlib.suppress(OSError):  # The last measurement stays valid then.
                self.engine.free_bytes = await self._environment.threads.run(
                    self.files.free_bytes, self.engine.directory
                )
            self._may_mark.set()
            self._made_room()
            failed: set[type[Work]] = {RunningMerge, Reserve} if trio.current_time() < self._merges_from else set()
            while (work := self.engine.next_work(failed)) is not None:
                if isinstance(work, RunningMerge):
                    nursery.start_soon(self._merge, work)
                elif not await self._perform(work):
                    failed.add(type(work))
                self._made_room()
            await rest(RETRY_AFTER_S if failed else LOOK_PERIOD_S, self._more)

    async def _perform(self, work: Short) -> bool:
        """Perform one `Work` in a worker thread, and tell the core; returns True if it was done."""
        engine = self.engine
        try:
            with trio.CancelScope(shield=True):  # Disk and core must agree.
                run = self._environment.threads.run
                engine.done(work, await run(works.perform, self.files, engine.directory, work))
        except (OSError, StorageError) as error:
            engine.put_off(work, error)
            return False
        except GossipKVError as error:
            self._merge_failed(work, error)  # The merge's output is not as it reported.
            return False
        if isinstance(work, Switch):
            self._merges_failed = 0
        return True

    async def _merge(self, work: RunningMerge) -> None:
        order, rule = work.order, self.engine.expiry
        if rule is not None:
            rows: list[bytes] = []
            for row in rule.rows(order.expiring):
                rows.append(row)
                if len(rows) % ROWS_AT_ONCE == 0:
                    await trio.lowlevel.checkpoint()
            order = order.with_expiry(rule, rows)
        try:
            output = await self._run_merge(order, partial(self.engine.manner, is_flush=work.is_flush))
        except (OSError, GossipKVError) as error:
            self._merge_failed(work, error)
        else:
            self.engine.merged(work, output)
        self._more.set()

    def _merge_failed(self, work: Work, error: Exception) -> None:
        self._merges_failed += 1
        pause_s = min(RETRY_AFTER_S * 2.0 ** (self._merges_failed - 1), MAX_RETRY_AFTER_S)
        self._merges_from = trio.current_time() + pause_s
        self.engine.put_off(work, error)

    def fail(self, why: str) -> None:
        """End the life of the store: its user met an error that does not let it go on."""
        self.engine.fail(why)
        self._scope.cancel()

    async def failed(self) -> None:
        """Return when the store's log has failed; synced records can still be read."""
        await self._has_ended.wait()

    def _made_room(self) -> None:
        room, self._room = self._room, trio.Event()
        room.set()

    def let_go(self) -> None:
        """Close all descriptors; nothing is written any more."""
        self.engine.close()
        self._wake()
        self._committing.close()  # The thread may still be writing to one of these descriptors.
        for descriptor in (*self.engine.descriptors, self._lock):
            self.files.close(descriptor)


def _is_cancelled(error: BaseException) -> bool:
    """Return True if the tasks ended only because they were cancelled."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(trio.Cancelled)[1] is None
    return isinstance(error, trio.Cancelled)

"""The store under Trio: who waits for a sync, who is slowed, and what is done beside the writing.

    async with open_store(path, environment) as store:
        position = await store.write(batch)         # returns when it is synced
        position = store.append(batch, on_synced)   # returns at once, and calls back when it is synced
        value = store.get(space, key)               # at once, of what is synced

Three tasks: one hears of each group that is written and begins the next, one makes room (segments, merges, switches),
one marks what is synced when the writing pauses.  When the log fails nothing is written any more, and the store says
why to whoever asks; the tasks end, and nobody else does.
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

from gossipkv.errors import GossipKVError, Overloaded, StorageError
from gossipkv.log import Log
from gossipkv.storage.engine import works
from gossipkv.storage.engine._engine import DELETE, KEY_LIMIT, PUT, VALUE_LIMIT, Batch, operations
from gossipkv.storage.engine.backup import back_up
from gossipkv.storage.engine.committing import committing
from gossipkv.storage.engine.log_reader import SLICE_BYTES
from gossipkv.storage.engine.opening import Opened
from gossipkv.storage.engine.opening import open_store as open_blocking
from gossipkv.storage.engine.options import Options
from gossipkv.storage.engine.parent import merge_in_child
from gossipkv.storage.engine.reading import Reading
from gossipkv.storage.engine.works import Merge, Reserve, Switch

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterator, Callable

    from gossipkv.environment.seam import Environment
    from gossipkv.storage.engine.backup import BackedUp
    from gossipkv.storage.engine.committing import Committing
    from gossipkv.storage.engine.log_reader import Cursor, Operations
    from gossipkv.storage.engine.merge import MergeOrder, Output
    from gossipkv.storage.engine.policy import Manner
    from gossipkv.storage.engine.works import Short, Work

__all__ = ["DELETE", "KEY_LIMIT", "PUT", "VALUE_LIMIT", "Batch", "Store", "open_store", "operations"]

# After the last write, until the log says that it is synced: of a tail that is shorter, damage cannot be told from an
# interrupted write.
MARK_AFTER_S: Final = 0.5

# How long a batch waits for room before it is refused.
PATIENCE_S: Final = 1.0

# Between two looks at the room on the disk, and two attempts at what the disk refused.
LOOK_PERIOD_S: Final = 5.0
RETRY_AFTER_S: Final = 1.0

# Merges that fail one after the other come in pauses that double: of a damaged file they would read all, each second.
MOST_RETRY_AFTER_S: Final = 60.0

EVENTS: Final = Log("gossipkv.storage")


class RunMerge(Protocol):
    """How merges are run: `merge_in_child`, or what a simulation has in its place."""

    async def __call__(self, order: MergeOrder, manner: Callable[[], Manner]) -> Output:
        """Run a merge to its end.  Raises `MergeError`, `Corrupt` or OSError."""
        ...


@contextlib.asynccontextmanager
async def open_store(
    path: str | os.PathLike[str],
    environment: Environment,
    options: Options | None = None,
    *,
    expected: tuple[int, int] | None = None,
    create: bool = True,
    run_merge: RunMerge = merge_in_child,
) -> AsyncIterator[Store]:
    """Have the store at `path` open as long as the block lasts; takes what `opening.open_store` does, and raises so."""
    with contextlib.closing(committing(environment)) as thread:
        chosen = options or Options()
        opened = await environment.threads.run(
            partial(_open, path, environment, chosen, expected=expected, create=create)
        )
        store = Store(environment, opened, thread, run_merge)
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


def _open(
    path: str | os.PathLike[str],
    environment: Environment,
    options: Options,
    *,
    expected: tuple[int, int] | None,
    create: bool,
) -> Opened:
    return open_blocking(
        environment.files, PurePath(path), options, environment.random, expected=expected, create=create
    )


@final
@dataclass(eq=False, slots=True)
class Waiter:
    """Who is told once that a position is synced, or why it never will be: a task that waits, or a callback."""

    position: int
    tell: Callable[[StorageError | None], object] | None  # None: it does not wait any more.


@final
class Store(Reading):
    """An open store under Trio."""

    def __init__(self, environment: Environment, opened: Opened, thread: Committing, run_merge: RunMerge) -> None:
        super().__init__(environment.files, opened.engine)
        self.removed, self.torn = opened.removed, opened.torn
        self._environment = environment
        self._lock = opened.lock
        self._run_merge = run_merge
        self._committing = thread
        self._began_ns = 0
        self._ends: int | None = None  # The descriptor of a segment that the group under way is the last of.
        self._position = 0  # The last one of the group under way; 0: none is.
        self._waiting: deque[Waiter] = deque()
        self._more = trio.Event()  # There may be something to do beside the writing.
        self._room = trio.Event()  # Something was done that may have made room.
        self._idle_from = 0.0
        self._merges_failed = 0  # Since the last switch.
        self._merges_from = 0.0  # Until then none is begun: what is chosen then is chosen by how the store is then.
        self._scope = trio.CancelScope(shield=True)  # Around its tasks: whoever is cancelled has them until `end`.
        self._has_ended = trio.Event()
        self._gathers = False  # Those who waited are told, and may write again.

    # -- writing -----------------------------------------------------------------------------------------------------

    async def write(self, batch: Batch) -> int:
        """Write a batch, which is not changed from now on; returns its position once it is synced, and can be read.

        Cancelled, it is written or not.

        Raises:
            Overloaded: there was no room for it for `PATIENCE_S`; nothing was written.
            LimitExceeded, ValueError: see `Engine.append`.
            StorageError: the store is closed; whether it was written is not known.
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
        """Write a batch, which is not changed from now on, without a task that waits; returns its position at once.

        `on_synced` is called once, in the order of positions and never from within: with None when the batch is synced
        and can be read, or with why the store was closed first.  It may append again.  One that raises is a defect,
        which is logged and holds up nobody.  Where `write` is slowed (`pressure().delay_s`) this is not, since it may
        not wait; where writers are refused it is, too.

        Raises:
            Overloaded: there is no room for it now; nothing was written.
            LimitExceeded, ValueError, StorageError: see `Engine.append`.
        """
        self.engine.pressure()  # When it is time to, it looks whether batches are taken.
        position = self._plan(batch)
        self._enqueue(Waiter(position, on_synced))
        return position

    def _plan(self, batch: Batch) -> int:
        """Have a batch written with the next group; returns its position.  Raises as `Engine.append`."""
        try:
            position = self.engine.append(batch)
        except Overloaded:
            if batch.relieves:
                self._more.set()  # It may give room back, and wait for what is to be done first.
            raise
        self._begin()
        return position

    async def wait(self, position: int) -> None:
        """Return when everything up to `position` is synced.  Raises `StorageError` when the store is closed first."""
        if self.engine.synced_position < position:
            self.engine.check_open()
            task = trio.lowlevel.current_task()

            def go_on(error: StorageError | None) -> None:
                trio.lowlevel.reschedule(task, outcome.Value(None) if error is None else outcome.Error(error))

            def abort(_raise_cancel: object) -> trio.lowlevel.Abort:
                waiter.tell = None
                return trio.lowlevel.Abort.SUCCEEDED

            waiter = Waiter(position, go_on)
            self._enqueue(waiter)
            await trio.lowlevel.wait_task_rescheduled(abort)

    def _enqueue(self, waiter: Waiter) -> None:
        place = len(self._waiting)
        while place and self._waiting[place - 1].position > waiter.position:
            place -= 1
        self._waiting.insert(place, waiter)

    def _begin(self) -> None:
        """Hand the next group over, if there is one, none is under way, and no more is about to come."""
        group = None if self._gathers else self.engine.group()
        if group is not None:
            self._position = group.position
            self._ends = group.descriptor if group.ends else None
            self._began_ns = self._environment.clock.monotonic_ns()
            self._committing.submit(group)

    def _wake(self) -> int:
        """Tell those whose batch is synced; all of them, when the store is closed.  Returns how many were told."""
        is_closed = self.engine.closed is not None
        synced = self.engine.synced_position
        woken = 0
        while self._waiting and (is_closed or self._waiting[0].position <= synced):
            waiter = self._waiting.popleft()
            if waiter.tell is None:
                continue
            woken += 1
            try:
                waiter.tell(None if waiter.position <= synced else self.engine.closed_error())
            except Exception as defect:  # noqa: BLE001  # It is of who waited: the store and the others go on.
                EVENTS.error("callback_defect", position=waiter.position, exc_info=defect)
        self._made_room()  # What waited for the disk is written, or never will be.
        return woken

    # -- following the log -------------------------------------------------------------------------------------------

    async def read_log(
        self, cursor: Cursor, *, most_bytes: int = SLICE_BYTES
    ) -> tuple[list[tuple[int, Operations]], int]:
        """Return what comes next for a cursor, and its position then: the same again when it has all that is synced.

        Whole batches in order, each with its operations in the cursor's spaces; those without any are left out.  They
        are read about `most_bytes` of the log at a time, in worker threads but for the end of what was just written.
        `wait` tells when there is more.

        Raises:
            BelowFloor: the log begins behind its position.
            Corrupt: a frame is damaged.
            StorageError: the store is closed, or the system refused.
        """
        run = self._environment.threads.run
        while (part := self._next_slice(cursor, most_bytes)) is not None:
            read = part.read(self.files) if part.is_short else await run(part.read, self.files)
            if (taken := self._took(cursor, read)) is not None:
                return taken
        return [], cursor.position

    # -- its tasks ---------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Do all that goes on beside who writes and reads, until `end`, or until the store is closed."""
        with self._scope:
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._mark_in_pauses)
                    nursery.start_soon(self._maintain, nursery)
                    self._begin()
                    await self._hear()
                    nursery.cancel_scope.cancel()
            except BaseException as error:  # Also what ends the process: nobody may wait for it then.
                if not _is_cancelled(error):
                    self.engine.close(f"it met a defect: {error!r}")
                raise
            finally:
                self._has_ended.set()
                self._wake()

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
            self.engine.synced(self._position)
            if self._ends is not None:
                with contextlib.suppress(OSError):  # All of it is synced.
                    self.files.close(self._ends)
                self._more.set()
            await self._gather()
            self._idle_from = trio.current_time()

    async def _gather(self) -> None:
        """Begin the next group, once those who waited have had their turn: what they write next goes with it.

        Else the first of them would have a sync for itself, and all others would wait for it.
        """
        self._gathers = True
        try:
            if self._wake() > 1:
                for _ in range(2):  # The first turn is theirs, in any order.
                    await trio.lowlevel.checkpoint()
        finally:
            self._gathers = False
        self._begin()

    async def _mark_in_pauses(self) -> None:
        while True:
            await trio.sleep(MARK_AFTER_S)
            is_pause = trio.current_time() - self._idle_from >= MARK_AFTER_S / 2
            if is_pause and (self.engine.relieve() or self.engine.mark()):
                self._begin()

    async def settled(self, *, mark: bool = False) -> None:
        """Return when nothing waits to be synced; with `mark`, when the log says so, too."""
        if self.engine.closed is None:
            await self.wait(self.engine.position)
        if mark and self.engine.mark():
            self._begin()
            await self.wait(self.engine.position)

    async def end(self) -> None:
        """Have the log say what is synced, end what goes on, and remove what nobody will need."""
        with contextlib.suppress(StorageError):  # Whoever waited is told.
            await self.settled(mark=True)
        self._scope.cancel()
        await self._has_ended.wait()
        if self.engine.closed is None:  # Else a frame may be there that names the next segment.
            self.engine.close()
            with contextlib.suppress(OSError):  # The next opening does it.
                await self._environment.threads.run(works.remove, self.files, self.engine.leftovers())

    async def _maintain(self, nursery: trio.Nursery) -> None:
        """Do what there is to do beside the writing, one thing after the other; merges run beside that."""
        while True:
            self._more = trio.Event()
            with contextlib.suppress(OSError):  # Then what was known of it counts.
                self.engine.free_bytes = await self._environment.threads.run(
                    self.files.free_bytes, self.engine.directory
                )
            self._made_room()
            failed: set[type[Work]] = {Merge, Reserve} if trio.current_time() < self._merges_from else set()
            while (work := self.engine.next_work(failed)) is not None:
                if isinstance(work, Merge):
                    nursery.start_soon(self._merge, work)
                elif not await self._perform(work):
                    failed.add(type(work))
                self._made_room()
            with trio.move_on_after(RETRY_AFTER_S if failed else LOOK_PERIOD_S):
                await self._more.wait()

    async def _perform(self, work: Short) -> bool:
        """Do one thing in a worker thread, and tell the core; whether it could be done."""
        engine = self.engine
        try:
            with trio.CancelScope(shield=True):  # The disk and the core are to agree.
                run = self._environment.threads.run
                engine.done(work, await run(works.perform, self.files, engine.directory, work))
        except (OSError, StorageError) as error:
            engine.put_off(work, error)
            return False
        except GossipKVError as error:
            self._merge_failed(work, error)  # What it wrote is not what it said.
            return False
        if isinstance(work, Switch):
            self._merges_failed = 0
        return True

    async def _merge(self, work: Merge) -> None:
        try:
            output = await self._run_merge(work.order, partial(self.engine.manner, is_flush=work.is_flush))
        except (OSError, GossipKVError) as error:
            self._merge_failed(work, error)
        else:
            self.engine.merged(work, output)
        self._more.set()

    def _merge_failed(self, work: Work, error: Exception) -> None:
        self._merges_failed += 1
        pause_s = min(RETRY_AFTER_S * 2.0 ** (self._merges_failed - 1), MOST_RETRY_AFTER_S)
        self._merges_from = trio.current_time() + pause_s
        self.engine.put_off(work, error)

    def fail(self, why: str) -> None:
        """End its life here: who works with it has met what does not let it go on."""
        self.engine.fail(why)
        self._scope.cancel()

    async def failed(self) -> None:
        """Return when its log has failed: nothing is written any more, and what was synced is still read."""
        await self._has_ended.wait()

    def _made_room(self) -> None:
        room, self._room = self._room, trio.Event()
        room.set()

    async def backup(self, path: str | os.PathLike[str]) -> BackedUp:
        """Copy the store, as of now, to a directory that is made; meanwhile it goes on.

        Raises:
            StorageError: the store is closed, or the directory is there already.
            Corrupt: a file of the store is damaged.
            OSError: the system refused.
        """
        await self.settled(mark=True)
        self.engine.check_open()
        self.engine.upkeep.hold()
        try:
            return await self._environment.threads.run(
                back_up, self.files, self.engine.directory, self.engine.manifest, self.engine.unmerged(), PurePath(path)
            )
        finally:
            self.engine.upkeep.release()

    def let_go(self) -> None:
        """Close what is open; nothing is written any more."""
        self.engine.close()
        self._wake()
        self._committing.close()  # It may still be writing to one of these.
        for descriptor in (*self.engine.descriptors, self._lock):
            self.files.close(descriptor)


def _is_cancelled(error: BaseException) -> bool:
    """Whether tasks ended because they were cancelled, and for no other reason."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(trio.Cancelled)[1] is None
    return isinstance(error, trio.Cancelled)

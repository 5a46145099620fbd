"""The store for a single thread that may block: for simulations, tests and benchmarks.

A node runs the store under Trio instead (`shell`).  Here the same thread does the background work, in `maintain` or
when a batch finds no room without it; merges run in this process.
"""

from __future__ import annotations

import contextlib
import random as _random
import time
from pathlib import PurePath
from typing import TYPE_CHECKING, Self, final

from gossipkv.environment.real_files import RealFiles
from gossipkv.errors import GossipKVError, Overloaded, StorageError
from gossipkv.storage.engine import works
from gossipkv.storage.engine._engine import Batch
from gossipkv.storage.engine.log_reader import SLICE_BYTES
from gossipkv.storage.engine.merge import merge
from gossipkv.storage.engine.opening import open_store
from gossipkv.storage.engine.options import EngineOptions
from gossipkv.storage.engine.reading import StoreReading
from gossipkv.storage.engine.works import RunningMerge

if TYPE_CHECKING:
    import os
    import random
    from collections.abc import Collection
    from types import TracebackType

    from gossipkv.environment.seam import Files
    from gossipkv.storage.engine.engine import Engine
    from gossipkv.storage.engine.log_reader import LogCursor, Operations
    from gossipkv.storage.engine.works import Work


@final
class Store(StoreReading):
    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        files: Files | None = None,
        random: random.Random | None = None,
        options: EngineOptions | None = None,
        expected: tuple[int, int] | None = None,
        create: bool = True,
        maintains: bool = True,
    ) -> Self:
        """Open the store at `path`; `create` permits making a new one.

        `maintains`: do the background work after each written batch; otherwise only in `maintain`.

        Raises:
            DirectoryInUse, Corrupt, UnsupportedFormat, StorageError: see `opening.open_store`.
        """
        seam: Files = RealFiles() if files is None else files
        opened = open_store(
            seam,
            PurePath(path),
            options or EngineOptions(),
            random or _random.SystemRandom(),
            expected=expected,
            create=create,
        )
        store = cls(seam, opened.engine)
        store.removed, store.torn = opened.removed, opened.torn
        store._lock = opened.lock
        store._maintains = maintains
        try:
            store.commit()
        except BaseException:
            store._let_go()
            raise
        return store

    def __init__(self, files: Files, engine: Engine) -> None:
        super().__init__(files, engine)
        self.removed: tuple[str, ...] = ()
        self.torn: tuple[str, int] | None = None
        self._lock: int | None = None
        self._maintains = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- writing -----------------------------------------------------------------------------------------------------

    def append(self, batch: Batch) -> int:
        """Append a batch without writing it; return its position.  Reads see the batch only after `commit`.

        Raises:
            Overloaded, LimitExceeded, ValueError, StorageError: see `Engine.append`.
        """
        while True:
            try:
                return self.engine.append(batch)
            except Overloaded:
                self.commit()
                if not self._maintains or not self.maintain():
                    raise

    def commit(self) -> None:
        """Write and sync everything that was appended, and make it readable.

        Raises:
            StorageError: the disk refused, and the store is closed.
        """
        while (group := self.engine.group()) is not None:
            began = time.perf_counter_ns()
            try:
                self.files.pwrite(group.descriptor, group.data, group.offset)
                self.files.sync(group.descriptor)
            except OSError as error:
                self.engine.failed(error)
                break
            self.engine.counts.count_sync(time.perf_counter_ns() - began)
            self.engine.synced(group.position)
            if group.ends:
                self.files.close(group.descriptor)
        self.engine.check_open()

    def write(self, batch: Batch) -> int:
        """Append a batch and commit it; return its position.  Raises the errors of both."""
        position = self.append(batch)
        self.commit()
        if self._maintains:
            self.maintain()
        return position

    def put(self, space: int, key: bytes, value: bytes) -> int:
        batch = Batch()
        batch.put(space, key, value)
        return self.write(batch)

    def mark(self) -> None:
        """Record in the log the position up to which it is synced, unless the log already says so."""
        self.engine.mark()
        self.commit()

    # -- following the log -------------------------------------------------------------------------------------------

    def read_next(
        self, cursor: LogCursor, *, most_bytes: int = SLICE_BYTES
    ) -> tuple[list[tuple[int, Operations]], int]:
        while (part := self._next_slice(cursor, most_bytes)) is not None:
            if (taken := self._advance(cursor, part.read(self.files))) is not None:
                return taken
        return [], cursor.position

    def read_log(
        self, spaces: Collection[int], position: int, *, most_bytes: int = SLICE_BYTES
    ) -> tuple[list[tuple[int, Operations]], int]:
        return self.read_next(self.follow(spaces, position), most_bytes=most_bytes)

    # # -- background work
    # ----------------------------------------------------------------------------------------------

    def maintain(self) -> bool:
        """Do the background work; return True if there was some and all of it succeeded.

        Raises:
            Corrupt: a merge met damage; the next call tries the merge again.
        """
        with contextlib.suppress(OSError):  # On an error the last known figure stays in use.
            self.engine.free_bytes = self.files.free_bytes(self.engine.directory)
        done = self.engine.relieve()
        if done:
            self.commit()
        failed: set[type[Work]] = set()
        while (work := self.engine.next_work(failed)) is not None:
            try:
                self.perform(work)
            except (OSError, StorageError) as error:  # Some errors name their file; in both cases the system refused.
                self.engine.put_off(work, error)
                failed.add(type(work))
            except GossipKVError as error:
                self.engine.put_off(work, error)
                raise
            done = True
        return done and not failed

    def perform(self, work: Work) -> None:
        engine = self.engine
        if isinstance(work, RunningMerge):
            order, rule = work.order, engine.expiry
            if rule is not None:
                order = order.with_expiry(rule, rule.rows(order.expiring))
            engine.merged(work, merge(self.files, order))
        else:
            engine.done(work, works.perform(self.files, engine.directory, work))

    def close(self) -> None:
        """Mark the synced position and release everything.  A second call does nothing.

        Raises:
            StorageError: appended batches could not be written.
        """
        if self._lock is None:
            return
        try:
            if self.engine.closed is None:
                self.commit()
                self.mark()
                with contextlib.suppress(OSError):  # The next opening removes the leftovers.
                    works.remove(self.files, self.engine.leftovers())
        finally:
            self._let_go()

    def _let_go(self) -> None:
        self.engine.close()
        lock, self._lock = self._lock, None
        for descriptor in (*self.engine.descriptors, *([] if lock is None else [lock])):
            self.files.close(descriptor)

"""Opens the store of a node's tables if id and life agree with NODE, keeps it open, and reopens it after a failure.

The store has an id and a *life*, which rises with each opening. NODE, the node's record on disk, repeats both. So a
foreign or an older store is detected:

    NODE         MANIFEST of the store       then
    no store     none                        there are no tables; `create` makes a store
    no store     any, in life 1              a crash came between the two writes at its creation: adopted
    no store     any, in a later life        foreign
    store s      none                        lost
    store s      another                     foreign
    store s, n   s in life n or n + 1        opened: a crash may come between the two writes of an opening
    store s, n   s, before life n            an older copy
    store s, n   s, beyond life n + 1        NODE is an older copy
    store s, n   s in life n or n + 1        an older copy, if other nodes saw a later state (`register.seen`): NODE and
                                             the store were restored together

The manifest takes the next life first, and NODE follows before the life rises again, so they differ by one at most. In
all other cases, and on damage or an error of the system, the store *stays closed*: requests for tables get the reason
and the remedy, and datasets work on. Nothing on disk changes. If a node went on with older data, it would reuse
numbers that other nodes know for other writes. Only a node with a new uuid may go on so (`node.forgotten`).

A store that fails while open takes no more writes, and still answers reads from synced data. It is reopened by recovery
from disk, in another life, after a second; after further failures the delay doubles.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, final

import trio

from gossipkv.errors import Corrupt, GossipKVError, StorageError, Unavailable, first_of
from gossipkv.log import Log
from gossipkv.storage.directories import storage_error
from gossipkv.storage.engine.manifest import read_manifest
from gossipkv.storage.engine.options import EngineOptions
from gossipkv.storage.engine.shell import open_store

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import PurePath

    from gossipkv.environment.seam import Environment
    from gossipkv.errors import Detail
    from gossipkv.settings.tables import TableSettings
    from gossipkv.table.ports import NodeIdentity, OpenStore, OpenStores, ServingLoops

FORGET: Final = (
    "put the right store back; only if it is lost, start the node without its tables (`--forget-tables`), and then "
    "run `gossipkv metadata replace NODE NODE`"
)

AGAIN: Final = "the node tries again to open the store"
RESTART: Final = "start the node again after the repair"

NONE, OPEN, CLOSED = "none", "open", "closed"

# The first and the longest delay until a failed store is reopened.
REOPEN_S: Final = 1.0
MAX_REOPEN_S: Final = 60.0


class OpenedStore(NamedTuple):
    """The decision that the store may be opened once NODE has this id and life."""

    store: int
    life: int


class ClosedStore(NamedTuple):
    """The decision that the store stays closed, and the reason."""

    why: str
    may_pass: bool = False  # True: an error of the system, which may pass.


Decision = OpenedStore | ClosedStore | None  # None: no store exists, and none should.


def decide(store: int, life: int, found: tuple[int, int] | None, path: PurePath) -> Decision:
    """Decide on the store at `path` by id and life in NODE (0: none) and in the manifest (None: no store)."""
    if found is None:
        return ClosedStore(f"{path}: the store of this node's tables is missing: {FORGET}") if store else None
    is_adopted = not store and found[1] <= 1
    if not is_adopted and found[0] != store:
        mine = f"whose store is {store:016x}" if store else "which has no store"
        return ClosedStore(f"{path}: the store {found[0]:016x} does not belong to this node, {mine}: {FORGET}")
    if found[1] < life:
        return ClosedStore(f"{path}: an older copy of the store: its life is {found[1]}, and was {life}: {FORGET}")
    if found[1] > life + 1:
        return ClosedStore(
            f"{path}: an older copy of NODE: the life of the store is {found[1]}, and NODE has {life}: {FORGET}"
        )
    return OpenedStore(*found)


@final
class TableStore:
    """The store of a node's tables, or the reason why it is closed."""

    def __init__(
        self, path: PurePath, identity: NodeIdentity, environment: Environment, open_store: OpenStores
    ) -> None:
        """`path`: the directory of the store, present or future, in the data directory."""
        self.path = path
        self._identity = identity
        self._environment = environment
        self._open_store = open_store
        self._log = Log("gossipkv.node")
        self.loops: ServingLoops | None = None  # They read calm replicas; None: Python answers all reads.
        self._store: OpenStore | None = None
        self._why: str | None = None  # The reason why the store stays closed.
        self._failures = 0  # Failures of the open store, and of reopening it, in a row.
        self._reopens = False  # True: the store failed, and is retried.
        self._wanted = False  # True: make a store if there is none.
        self._refused: str | None = None  # The reason why no store could be made.
        self._unmade: str | None = None  # The same, until one is made.
        self._look = trio.Event()  # Set to try another opening.
        self._settled = trio.Event()  # Set when an attempt to open has ended.
        self._end, self._ended = trio.Event(), trio.Event()
        self.on_settled: Callable[[], object] = lambda: None  # Called when an attempt to open has ended.
        self._starting: trio.TaskStatus[None] | None = None  # Reports that `run` has begun.

    # Lifecycle

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the store open until `end` or cancellation; report the start once it is open, or stays closed."""
        self._starting = task_status
        try:
            while not self._end.is_set():
                self._look = trio.Event()
                await self._open_and_keep()
                self._settle()
                with trio.move_on_after(self._pause_s()):
                    await self._look.wait()
        finally:
            self._ended.set()

    def _pause_s(self) -> float:
        return min(REOPEN_S * 2.0 ** (self._failures - 1), MAX_REOPEN_S) if self._reopens else math.inf

    async def end(self) -> None:
        """Close the store with all writes, and return when it is closed. Requires: `run` was begun."""
        self._end.set()
        self._look.set()
        await self._ended.wait()

    def refuse(self, why: str) -> None:
        """Refuse requests to the open store from now on, since other nodes have seen a later state of it."""
        self._why = f"{self.path}: {why}: {FORGET}"
        self._log.error("tables_closed", reason=self._why)

    def look_again(self) -> None:
        """Try again to open a closed store: the data directory may be writable now."""
        self._look.set()

    async def _open_and_keep(self) -> None:
        """Open the store if that is allowed, and keep it open until the end or a failure."""
        decision = await self._environment.threads.run(self._decide)
        if isinstance(decision, ClosedStore):
            self._stay_closed(decision.why, may_pass=decision.may_pass)
            return
        if not self._reopens:
            self._why = None
        if decision is None and not self._wanted:
            return
        try:
            async with self._open_store(
                self.path, self._environment, expected=decision, create=decision is None
            ) as store:
                manifest = store.manifest
                await self._environment.threads.run(
                    partial(self._identity.keep, store=manifest.store, life=manifest.life)
                )
                self._log.info("tables_open", store=f"{manifest.store:016x}", life=manifest.life)
                if store.log_damage is not None:
                    self._log.warning("tables_log_damaged", reason=store.log_damage)
                self._store, self._why, self._unmade, self._reopens = store, None, None, False
                self._settle()
                opened_at = trio.current_time()
                if await self._has_failed(store):
                    self._failures = 0 if trio.current_time() - opened_at >= MAX_REOPEN_S else self._failures
                    self._reopens = True
                    self._stay_closed(f"{store.closed}; {AGAIN}", may_pass=True)
        except* (GossipKVError, OSError) as errors:
            self._fail(first_of(errors), was_there=decision is not None)
        finally:
            self._store = None

    async def _has_failed(self, store: OpenStore) -> bool:
        """Wait for the end or a failure; return True if the store has failed."""
        async with trio.open_nursery() as nursery:

            async def watch() -> None:
                await store.failed()
                nursery.cancel_scope.cancel()

            nursery.start_soon(watch)
            await self._end.wait()
            nursery.cancel_scope.cancel()
        return not self._end.is_set()

    def _stay_closed(self, why: str, *, may_pass: bool) -> None:
        self._why = why
        self._reopens &= may_pass
        self._failures += 1
        self._log.error("tables_closed", reason=why)

    def _decide(self) -> Decision:
        """Decide on the store, and write its id and life to NODE if it may be opened; this blocks."""
        identity = self._identity
        try:
            try:
                manifest = read_manifest(self._environment.files, self.path)
            except FileNotFoundError:
                manifest = None
            found = None if manifest is None else (manifest.store, manifest.life)
            noted = identity.record.store, identity.record.life
            decision = decide(*noted, found, self.path)
            if isinstance(decision, OpenedStore) and decision != noted:
                identity.keep(store=decision.store, life=decision.life)
        except (GossipKVError, OSError) as error:
            return ClosedStore(self._words(error), may_pass=_may_pass(error))
        return decision

    def _fail(self, error: GossipKVError | OSError, *, was_there: bool) -> None:
        if was_there or self._store is not None:
            self._stay_closed(self._words(error), may_pass=_may_pass(error))
        else:
            self._refused = self._unmade = self._words(error, "the next request to create a table tries again")

    def _words(self, error: GossipKVError | OSError, remedy: str = RESTART) -> str:
        if isinstance(error, OSError):
            error = storage_error(error, self.path, "the store of this node's tables cannot be opened")
        match error:
            case Corrupt():
                return f"{error.message}: {FORGET}"
            case StorageError():
                return f"{error.message}; {AGAIN if self._reopens else remedy}"
        return error.message

    def _settle(self) -> None:
        self._wanted = False
        self._settled.set()
        self.on_settled()
        if self._starting is not None:
            self._starting.started()
            self._starting = None

    # Requests to the store

    async def create(self) -> OpenStore:
        """Return the store, and make it first if there is none.

        Raises:
            Unavailable: the store stays closed, or cannot be made; the message has the reason.
        """
        self._refused = None
        while self._store is None:
            self._refuse_closed()
            self._refuse_unmade()
            self._wanted = True
            if self._settled.is_set():
                self._settled = trio.Event()
            self._look.set()
            await self._settled.wait()
        return self.opened()

    def opened(self) -> OpenStore:
        """Return the store.

        Raises:
            Unavailable: there is no store, or it is closed; the message has the reason and the remedy.
        """
        self._refuse_closed()
        if self._store is None:
            raise Unavailable("this node has no tables")
        return self._store

    def _refuse_closed(self) -> None:
        why = self.closed
        if why is not None:
            raise Unavailable(f"the tables of this node are closed: {why}", {"reason": why})

    def _refuse_unmade(self) -> None:
        if self._refused is not None:
            raise Unavailable(self._refused)

    @property
    def closed(self) -> str | None:
        """The reason why the store is closed, and the remedy; None: it is open, or there is none."""
        if self._store is not None and self._store.closed is not None:
            return f"{self._store.closed}; {AGAIN}"
        return self._why

    @property
    def trouble(self) -> str | None:
        """The reason why the store is closed, or why the last attempt to make one failed."""
        return self.closed or self._unmade

    @property
    def state(self) -> str:
        """The state of the store: `none`, `open` or `closed`."""
        if self.closed is not None:
            return CLOSED
        return NONE if self._store is None else OPEN

    @property
    def is_lost(self) -> bool:
        """True if only a restored or a forgotten store helps."""
        return FORGET in (self.closed or "")

    @property
    def log_damage(self) -> str | None:
        """The damage that made the log begin later; None: there is none, or the store is closed."""
        return None if self._store is None else self._store.log_damage

    def to_map(self) -> dict[str, Detail]:
        """Return the section of `info` about the store."""
        record, store = self._identity.record, self._store
        entries: dict[str, Detail] = {
            "state": self.state,
            "why": self.closed,
            "lost": self.is_lost,
            "store": f"{record.store:016x}" if record.store else None,
            "life": record.life,
        }
        if store is None:
            return entries
        return {**entries, "log_damage": store.log_damage, "counters": {**store.describe()}}


def memory_bytes(settings: TableSettings) -> int:
    """Return the most memory of a store and its merge process; a segment is in memory up to three times."""
    return 3 * settings.table_segment + settings.table_merge_memory


def open_tables(settings: TableSettings) -> OpenStores:
    """Return a function that opens the store of a node's tables by its settings."""
    options = EngineOptions(
        table_log=settings.table_log,
        segment_bytes=settings.table_segment,
        file_bytes=settings.table_segment,
        merge_memory=settings.table_merge_memory,
    )
    return partial(open_store, options=options)


def _may_pass(error: GossipKVError | OSError) -> bool:
    """Return True for an error of the system, which may pass; a damaged or foreign store stays so."""
    return isinstance(error, OSError | StorageError)

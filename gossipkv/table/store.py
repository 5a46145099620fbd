"""The part of a node that owns the store of its tables: whether it may be opened, and that it is.

The store carries an id and a *life*, which rises with each opening, and NODE says both.  So a store that lies here and
is not the one in which this node has kept what it told others, or not all of it, is known for what it is:

    NODE         MANIFEST of the store       then
    no store     none                        there are no tables; `create` makes a store
    no store     any, in life 1              a crash came between the two, at its creation: it is this node's
    no store     any, in a later life        foreign
    store s      none                        lost
    store s      another                     foreign
    store s, n   s in life n or n + 1        it is opened: a crash comes between the two at any opening
    store s, n   s, before life n            an older copy
    store s, n   s, beyond life n + 1        NODE is an older copy
    store s, n   s in life n or n + 1        an older copy, too, where others have seen more of it (`register.seen`):
                                             NODE and the store were put back together

The manifest takes the next life first, and NODE is brought level before another is taken; so they are never further
apart.  In all other cases, and where the store is damaged or the system refuses, the store *stays closed*: whoever asks
for tables is told why, and what to do; the datasets go on.  Nothing that is there is changed.  To go on with less than
what was told would be to tell something else under the same numbers: that is for a node with another uuid
(`forgotten`).

A store that fails while it is open takes no more writes, says why, and goes on answering from what was synced.  It is
opened again as at a start, by recovery from what is on the disk, in another life: first after a second, and when that
fails, or it fails again soon, after pauses that double.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, final

import trio

from gossipkv.errors import BadRequest, Corrupt, GossipKVError, LocalError, StorageError, Unavailable
from gossipkv.log import Log
from gossipkv.storage.directories import storage_error
from gossipkv.storage.engine.manifest import read_manifest

if TYPE_CHECKING:
    from pathlib import PurePath

    from gossipkv.environment.seam import Environment
    from gossipkv.errors import Detail
    from gossipkv.table.ports import NodeIdentity
    from gossipkv.table.stores import OpenStore, OpenStores

FORGET: Final = (
    "put back what was there; only if that is lost, start the node as another one, without its tables "
    "(`--forget-tables`), and have it take its own place (`gossipkv metadata replace NODE NODE`)"
)

AGAIN: Final = "it is opened again by and by"

NONE, OPEN, CLOSED = "none", "open", "closed"

# Until a store that failed is opened again.
REOPEN_S: Final = 1.0
MAX_REOPEN_S: Final = 60.0


@final
@dataclass(frozen=True, slots=True)
class NoStore:
    """There is no store, and there should be none."""


@final
@dataclass(frozen=True, slots=True)
class OpenedStore:
    """The store may be opened, once NODE says this id and life."""

    store: int
    life: int


@final
@dataclass(frozen=True, slots=True)
class ClosedStore:
    """The store stays closed."""

    why: str
    may_pass: bool = False  # The system refused, and may not the next time.


Decision = NoStore | OpenedStore | ClosedStore


def decide(store: int, life: int, found: tuple[int, int] | None, path: PurePath) -> Decision:
    """What becomes of the store at `path`, by id and life in NODE (0: none) and in its manifest (None: no store)."""
    if found is None:
        return NoStore() if not store else ClosedStore(f"{path}: the store of this node's tables is missing: {FORGET}")
    is_adopted = not store and found[1] <= 1
    if not is_adopted and found[0] != store:
        mine = f"{store:016x} is this node's" if store else "this node has none"
        return ClosedStore(f"{path}: the store {found[0]:016x} is not of this node, {mine}: {FORGET}")
    if found[1] < life:
        return ClosedStore(f"{path}: an older copy of the store: it is in life {found[1]}, and was in {life}: {FORGET}")
    if found[1] > life + 1:
        return ClosedStore(
            f"{path}: the store is in life {found[1]}, and NODE knows of {life}: an older copy of NODE was put back: "
            f"{FORGET}"
        )
    return OpenedStore(*found)


@final
class TableStore:
    """The store of a node's tables, or why there is none."""

    def __init__(
        self, path: PurePath, identity: NodeIdentity, environment: Environment, open_store: OpenStores
    ) -> None:
        """`path`: where the store is, or will be, in the data directory."""
        self.path = path
        self._identity = identity
        self._environment = environment
        self._open_store = open_store
        self._log = Log("gossipkv.node")
        self._store: OpenStore | None = None
        self._why: str | None = None  # It stays closed.
        self._failures = 0  # Of one that was open, and of its openings since.
        self._reopens = False  # It failed, and is opened again by and by.
        self._wanted = False  # One is to be made.
        self._refused: str | None = None  # Why it was not.
        self._look = trio.Event()  # There is something to do: again, if it is not open.
        self._settled = trio.Event()  # It is done, or cannot be.
        self._end, self._ended = trio.Event(), trio.Event()
        self._starting: trio.TaskStatus[None] | None = None  # Who waits for `run` to have begun.

    # Its life

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Have the store open until `end`, or until cancelled; reports when it is open, or will not be."""
        self._starting = task_status
        try:
            while not self._end.is_set():
                self._look = trio.Event()
                await self._have_open()
                self._settle()
                with trio.move_on_after(self._pause_s()):
                    await self._look.wait()
        finally:
            self._ended.set()

    def _pause_s(self) -> float:
        """How long a store that failed stays closed."""
        return min(REOPEN_S * 2.0 ** (self._failures - 1), MAX_REOPEN_S) if self._reopens else math.inf

    async def end(self) -> None:
        """Close the store, all that was written in it; returns when that is done.  Requires: `run` was begun."""
        self._end.set()
        self._look.set()
        await self._ended.wait()

    def refuse(self, why: str) -> None:
        """Say no more of an open store than why it is closed: others have seen more of it."""
        self._why = f"{self.path}: {why}: {FORGET}"
        self._log.error("tables_closed", reason=self._why)

    def look_again(self) -> None:
        """Try again to open it, if it is closed: the data directory can be written now."""
        self._look.set()

    async def _have_open(self) -> None:
        """Open the store if that may be, and have it open until the end."""
        decision = await self._environment.threads.run(self._decide)
        if isinstance(decision, ClosedStore):
            self._stay_closed(decision.why, may_pass=decision.may_pass)
            return
        if not self._reopens:
            self._why = None
        expected = (decision.store, decision.life) if isinstance(decision, OpenedStore) else None
        if expected is None and not self._wanted:
            return
        try:
            async with self._open_store(
                self.path, self._environment, expected=expected, create=expected is None
            ) as store:
                known = store.manifest
                await self._environment.threads.run(partial(self._identity.keep, store=known.store, life=known.life))
                self._log.info("tables_open", store=f"{known.store:016x}", life=known.life)
                if store.log_damage is not None:
                    self._log.warning("tables_log_damaged", reason=store.log_damage)
                self._store, self._why, self._reopens = store, None, False
                self._settle()
                opened_at = trio.current_time()
                if await self._has_failed(store):
                    self._failures = 0 if trio.current_time() - opened_at >= MAX_REOPEN_S else self._failures
                    self._reopens = True
                    self._stay_closed(f"{store.closed}; {AGAIN}", may_pass=True)
        except* (GossipKVError, OSError) as errors:
            self._fail(first_of(errors), was_there=expected is not None)
        finally:
            self._store = None

    async def _has_failed(self, store: OpenStore) -> bool:
        """Return at the end, or when the store has failed; whether it has."""
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
        """Decide what becomes of the store, and have NODE say what it is, if it may be opened; it blocks."""
        identity = self._identity
        try:
            try:
                manifest = read_manifest(self._environment.files, self.path)
            except FileNotFoundError:
                manifest = None
            found = None if manifest is None else (manifest.store, manifest.life)
            decision = decide(identity.record.store, identity.record.life, found, self.path)
            if isinstance(decision, OpenedStore) and decision != OpenedStore(
                identity.record.store, identity.record.life
            ):
                identity.keep(store=decision.store, life=decision.life)
        except (GossipKVError, OSError) as error:
            return ClosedStore(self._words(error), may_pass=_may_pass(error))
        return decision

    def _fail(self, error: GossipKVError | OSError, *, was_there: bool) -> None:
        words = self._words(error)
        if was_there or self._store is not None:
            self._stay_closed(words, may_pass=_may_pass(error))
        else:
            self._refused = words

    def _words(self, error: GossipKVError | OSError) -> str:
        if isinstance(error, OSError):
            error = storage_error(error, self.path, "the store of this node's tables cannot be opened")
        match error:
            case Corrupt():
                return f"{error.message}: {FORGET}"
            case StorageError():
                return f"{error.message}; {AGAIN if self._reopens else 'start the node again when that is mended'}"
        return error.message

    def _settle(self) -> None:
        self._wanted = False
        self._settled.set()
        if self._starting is not None:
            self._starting.started()
            self._starting = None

    # What others ask of it

    async def create(self) -> OpenStore:
        """Return the store, which is made if there is none.

        Raises:
            Unavailable: it stays closed, or cannot be made; why.
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
            Unavailable: it is closed, with the reason and what to do; or there is none.
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

    async def backup(self, path: PurePath) -> dict[str, Detail]:
        """Copy the store to a directory, which is made, while it goes on; what was copied.

        Raises:
            BadRequest: the directory may not be there: it is relative, or within the data directory.
            Unavailable: the store is closed, or there is none; or the system refused.
            Corrupt: a file of the store is damaged.
        """
        if not path.is_absolute():
            raise BadRequest(f"backup: {str(path)!r} should be an absolute path, on the node's own machine")
        if ".." in path.parts or path.is_relative_to(self.path.parent):
            raise BadRequest(f"backup: {path} should be a plain path outside the data directory {self.path.parent}")
        store = self.opened()
        try:
            return (await store.backup(path))._asdict()
        except OSError as error:
            raise Unavailable(storage_error(error, path, "the backup cannot be made").message) from error
        except LocalError as error:
            raise Unavailable(error.message, error.details) from error

    @property
    def closed(self) -> str | None:
        """Why it is closed, and what to do; None: it is open, or there is none."""
        if self._store is not None and self._store.closed is not None:
            return f"{self._store.closed}; {AGAIN}"
        return self._why

    @property
    def state(self) -> str:
        """`none`, `open` or `closed`."""
        if self.closed is not None:
            return CLOSED
        return NONE if self._store is None else OPEN

    def to_map(self) -> dict[str, Detail]:
        """Return what `info` tells of it."""
        record, store = self._identity.record, self._store
        told: dict[str, Detail] = {
            "state": self.state,
            "why": self.closed,
            "lost": FORGET in (self.closed or ""),  # Nothing else can help.
            "store": f"{record.store:016x}" if record.store else None,
            "life": record.life,
        }
        if store is None:
            return told
        return {**told, "log_damage": store.log_damage, "counters": {**store.describe()}}


def _may_pass(error: GossipKVError | OSError) -> bool:
    """Whether the system refused, and may not the next time; what is damaged, or another's, stays so."""
    return isinstance(error, OSError | StorageError)


def first_of(errors: BaseExceptionGroup[GossipKVError | OSError]) -> GossipKVError | OSError:
    """Return what ended a nursery: the first error in its groups."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, GossipKVError | OSError), error
    return error

"""The active version of a database, which clients get: read at the start, and switched durably.

This order keeps promise P2: the copy is open, or others hold it; then the ACTIVE document is written and synced.  Only
then the served version changes, in one step, and the node is notified.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import trio

from gossipkv.dataset.lifecycle.version_states import VersionEvent, VersionState
from gossipkv.dataset.local.active import ActiveDocument
from gossipkv.dataset.rewriting import Rewriting
from gossipkv.errors import Corrupt, StorageError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from gossipkv.dataset.lifecycle.decisions import VersionDecisions
    from gossipkv.dataset.lifecycle.version_states import Life
    from gossipkv.dataset.shared_resources import SharedResources
    from gossipkv.placement.ownership import Ownership

# The pause between two attempts that the system refused to write down.
RETRY_MS = 1_000


def _now_ms() -> int:
    return int(trio.current_time() * 1000)


@final
class Switching:
    """The active version of one database, and the retiring versions."""

    def __init__(
        self, database: str, lives: Mapping[str, Life], verdicts: VersionDecisions, shared: SharedResources
    ) -> None:
        self.active: str | None = None  # The version that was made active last, served or not.
        # The newest version that was ever active; newer than `active` only after a hold.
        self.newest: str | None = None
        self.trouble: str | None = None  # The reason why the last switch could not be written down.
        self.not_before_ms = 0  # When the switch may be tried again.
        self.switched_ms: int | None = None  # When the last switch happened, since this node started.
        self._database = database
        self._lives = lives
        self._verdicts = verdicts
        self._shared = shared
        self._log = shared.log.bind(database=database)
        self.remembered: ActiveDocument | None = None  # The content of the ACTIVE document.
        self.rewriting = Rewriting(self._rewrite, shared.may_write, self._log)
        self._owners: dict[str, tuple[Ownership, ...]] = {}
        self._writing = trio.Lock()
        self._counts: dict[str, int] = {}  # Last seen request counts of retiring versions.

    async def read(self, built: Collection[str], hold: str | None) -> None:
        """Read the version that was active last; if the document is damaged, guess among the built versions.

        Raises:
            StorageError: the system refused the read.
        """
        store = self._shared.store
        try:
            document = await self._shared.threads.run(store.active, self._database)
        except Corrupt as error:
            # The lost active version was none of those newer than the newest built version.
            self.newest = max(built, default=None)
            self.active = hold if hold in built else self.newest
            self._log.error("active_damaged", error=error.message, taken=self.active)
            return
        self.remembered = document
        if document is not None:
            self.active, self.newest = document.version, document.newest
            self._owners[document.version] = document.owners

    def restore(self) -> None:
        """Restore the active version, and retire the versions that a hold had left behind."""
        if self.active is None or self.newest is None:
            return
        if self.remembered is not None:
            self._lives[self.active].heard = self.remembered.identity
        self._lives[self.active].take(VersionEvent.SWITCH)
        for life in self._lives.values():
            if life.open and self.active < life.name <= self.newest:
                self.supersede(life)

    async def switch(self, name: str, hold: str | None) -> bool:
        """Make the version active, durably; if False, the caller must decide anew."""
        assert self._verdicts.may_switch(name), f"{name} may not be switched to"
        if self._writing.locked():  # The gate's answers would grow old during the wait.
            async with self._writing:
                return False
        assert hold == name or self.active is None or name >= self.active, (self.active, name)
        identity = self._lives[name].identity
        if identity is not None:  # The gate has just counted the answers of these owners.
            self._owners[name] = self._verdicts.owners(identity) or self._owners.get(name, ())
        try:
            async with self._writing:
                await self._write(self._document(name))
        except StorageError as error:
            if self.trouble != error.message:
                self._log.error("cannot_switch", version=name, error=error.message)
            self.trouble = error.message
            self.not_before_ms = _now_ms() + RETRY_MS
            return False
        self.trouble = None
        before, self.active, self.switched_ms = self.active, name, _now_ms()
        self.newest = max(name, self.newest or name)
        if before != name:  # If equal, the active version was of a wrong function, and is repaired.
            self._lives[name].take(VersionEvent.SWITCH)
            for life in self._lives.values():
                if life.superseded(name, hold):
                    self._leave(life)
        self._shared.on_change()
        self._log.info("switched", version=name, before=before, hold=hold is not None)
        return True

    def note_owners(self, name: str, owners: tuple[Ownership, ...]) -> None:
        """Remember the owners of a version for a restart without peers; an active version is written soon."""
        self._owners[name] = owners
        self.note_change()

    def note_change(self) -> None:
        """Rewrite the ACTIVE document if its content has changed."""
        life = self._lives.get(self.active or "")
        if life is not None and life.identity is not None and self._document(life.name) != self.remembered:
            self.rewriting.note()

    def _document(self, name: str) -> ActiveDocument:
        """Return the content of the ACTIVE document for this active version."""
        identity = self._lives[name].identity
        owners = tuple(
            ownership
            for ownership in self._owners.get(name, ())
            if identity is not None and ownership.partitions.partitions == identity.partitions
        )
        records = None if identity is None else self._verdicts.records(identity)
        return ActiveDocument(name, max(name, self.newest or name), identity, owners, self._verdicts.sealed(), records)

    async def _write(self, document: ActiveDocument) -> None:
        await self._shared.threads.run(self._shared.store.set_active, self._database, document)
        self.remembered = document

    async def _rewrite(self) -> None:
        """Write down the active version at the time of the write: a switch may have come between."""
        async with self._writing:
            document = self._document(self.active) if self.active is not None and self.active in self._lives else None
            if document is not None and document != self.remembered:
                await self._write(document)

    def supersede(self, life: Life) -> None:
        life.take(VersionEvent.SUPERSEDE)
        life.asked_ms = _now_ms()
        self._counts[life.name] = self._shared.requests(self._database, life.name)

    def count_requests(self) -> None:
        for life in self._lives.values():
            if life.state is VersionState.RETIRING:
                count = self._shared.requests(self._database, life.name)
                if count != self._counts.get(life.name):
                    self._counts[life.name] = count
                    life.asked_ms = _now_ms()

    def let_go(self, life: Life, event: VersionEvent) -> None:
        """End a version towards clients."""
        life.take(event)
        self._counts.pop(life.name, None)
        self._owners.pop(life.name, None)

    def _leave(self, life: Life) -> None:
        """Retire a version after a switch to another, or forget it if it cannot be answered."""
        if life.open or self._verdicts.passed(life.name):
            self.supersede(life)
        elif life.state is VersionState.ACTIVE:
            life.heard = None
            life.take(VersionEvent.LOSE)

"""The states of a version's copy on this node, as a table.

    WANTED ──begin──► BUILDING ──finish──► READY ──drop──► GONE

    WANTED      incomplete and not being built (not yet, no disk space, or an incomplete source)
    BUILDING    a child process builds it
    READY       its whole share is here, and open
    ERROR       a build failed, or damage was found and it will be rebuilt; open files are served meanwhile
    GONE        closed, and deleted from the disk

`NEXT` has the other transitions; a test compares it with `docs/development/version-states.md`.  Damage is repaired at
once, repeated damage after a pause that doubles from a second to an hour.  A share grows and never shrinks.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gossipkv.dataset.build.disk_space import Shortage
    from gossipkv.dataset.build.trouble import Trouble
    from gossipkv.dataset.source.listing import SourceVersion
    from gossipkv.placement.identity import VersionIdentity
    from gossipkv.placement.partition_set import PartitionSet

FIRST_RETRY_MS = 1_000
LAST_RETRY_MS = 60_000
# The second build after damage waits `FIRST_RETRY_MS`, and later pauses double up to this.  A build is much work, and a
# bad disk stays bad.
LAST_DAMAGE_PAUSE_MS = 3_600_000
# A copy that was whole for this long starts its pauses from the first again.
DAMAGE_FORGOTTEN_MS = 4 * LAST_DAMAGE_PAUSE_MS
# A refusal gives only a guess of the disk space that a build needs; the guess is used for this long.
SHORTAGE_RETRY_MS = 600_000


class CopyState(enum.StrEnum):
    """A state of a copy."""

    WANTED = "WANTED"
    BUILDING = "BUILDING"
    READY = "READY"
    ERROR = "ERROR"
    GONE = "GONE"


class CopyEvent(enum.StrEnum):
    """An event in the life of a copy."""

    BEGIN = "begin"  # A build was started.
    FINISH = "finish"  # The copy is built, published and open.
    INTERRUPT = "interrupt"  # The source changed under the build, or another version is held; the build may start anew.
    WAIT = "wait"  # The disk has no room for the copy.
    FAIL = "fail"  # The copy could not be built.
    OPEN = "open"  # The files, which the system had refused to open, are open.
    DAMAGE = "damage"  # A file was found damaged; whole pages are served while the copy is built again.
    WANT = "want"  # The share has grown beyond the partitions that are here.
    # A stray has refuted the function that groups the records: nothing of the copy is served any more.
    REFUTE = "refute"
    DROP = "drop"  # The copy is no longer wanted here.


NEXT: dict[tuple[CopyState, CopyEvent], CopyState] = {
    (CopyState.WANTED, CopyEvent.BEGIN): CopyState.BUILDING,
    (CopyState.WANTED, CopyEvent.FAIL): CopyState.ERROR,
    (CopyState.WANTED, CopyEvent.REFUTE): CopyState.WANTED,
    (CopyState.WANTED, CopyEvent.DROP): CopyState.GONE,
    (CopyState.BUILDING, CopyEvent.FINISH): CopyState.READY,
    (CopyState.BUILDING, CopyEvent.INTERRUPT): CopyState.WANTED,
    (CopyState.BUILDING, CopyEvent.WAIT): CopyState.WANTED,
    (CopyState.BUILDING, CopyEvent.FAIL): CopyState.ERROR,
    (CopyState.READY, CopyEvent.DAMAGE): CopyState.ERROR,
    (CopyState.READY, CopyEvent.WANT): CopyState.WANTED,
    (CopyState.READY, CopyEvent.REFUTE): CopyState.WANTED,
    (CopyState.READY, CopyEvent.DROP): CopyState.GONE,
    (CopyState.ERROR, CopyEvent.BEGIN): CopyState.BUILDING,
    (CopyState.ERROR, CopyEvent.FAIL): CopyState.ERROR,
    (CopyState.ERROR, CopyEvent.OPEN): CopyState.READY,
    (CopyState.ERROR, CopyEvent.REFUTE): CopyState.WANTED,
    (CopyState.ERROR, CopyEvent.DROP): CopyState.GONE,
}  # fmt: skip


@dataclass(slots=True)
class VersionCopy:
    """The copy of one version on this node: its state, its share and its open partitions."""

    state: CopyState = CopyState.WANTED
    trouble: Trouble | None = None
    tried: str | None = None  # The fingerprint of the source at the start of the last build.
    failures: int = 0  # Only consecutive failures count.
    not_before_ms: int = 0  # The end of the pause after a failure.
    shortage: Shortage | None = None  # The lack of disk space that the copy waits for.
    shortage_until_ms: int = 0  # A refusal's estimate counts until then; afterwards the build is retried.
    needed_bytes: int = 0  # The disk space that earlier attempts showed to be necessary.
    share: PartitionSet | None = None  # The partitions that should be here; None: not known yet.
    # Identity of the open files, which are served in ERROR and during a rebuild as well.
    identity: VersionIdentity | None = None
    here: PartitionSet | None = None  # The open partitions.
    damaged: bool = False  # The open files are incomplete or wrong: the whole share is built anew.
    differs: bool = False  # The source shows other files than the copy was built from.
    waits_since_ms: int = 0  # When the copy was first wanted, or found damaged.
    damages: int = 0  # How often the copy was found damaged, counted while the gaps are short.
    damaged_ms: int = 0  # When the copy was last found damaged.

    @property
    def open(self) -> bool:
        return self.here is not None

    @property
    def lacks(self) -> PartitionSet | None:
        """Return the partitions that the next build makes; None: the share is not known yet."""
        if self.share is None or self.here is None or self.damaged:
            return self.share
        return self.share - self.here

    @property
    def ready_ms(self) -> int:
        """Return when time alone allows the next attempt."""
        return self.not_before_ms if self.shortage is None else max(self.not_before_ms, self.shortage_until_ms)

    def take(self, event: CopyEvent) -> None:
        """Follow the transition of the table; a missing transition is a bug of ours."""
        self.state = NEXT[self.state, event]

    def begin(self, source: SourceVersion) -> None:
        """Begin a build of the version that the source shows now."""
        self.tried = source.fingerprint
        if self.shortage is not None:  # The estimate was not free for ten minutes: the first estimate counts again.
            self.shortage, self.needed_bytes = None, 0
        self.take(CopyEvent.BEGIN)

    def fail(self, trouble: Trouble, now_ms: int) -> None:
        self.trouble = trouble
        self._pause(now_ms)
        self.take(CopyEvent.FAIL)

    def interrupt(self, now_ms: int) -> None:
        """Note that the source changed under the build, and set the pause."""
        self._pause(now_ms)
        self.stop()

    def stop(self) -> None:
        """Stop the build since another version is held; this is no failure."""
        self.tried = None
        self.take(CopyEvent.INTERRUPT)

    def wait(self, shortage: Shortage, now_ms: int) -> None:
        """Wait for disk space; a build refused halfway also pauses, since a build is much work."""
        if shortage.reason is not None:
            self._pause(now_ms)
            self.needed_bytes = shortage.needed_bytes
        self.shortage, self.shortage_until_ms = shortage, now_ms + SHORTAGE_RETRY_MS
        self.tried = None
        self.take(CopyEvent.WAIT)

    def find_space(self, free_bytes: int, now_ms: int) -> None:
        """Note the free space: it may suffice, but the pause after a refusal is kept."""
        if self.shortage is not None:
            enough = free_bytes >= self.shortage.needed_bytes and now_ms >= self.not_before_ms
            self.shortage = None if enough else replace(self.shortage, free_bytes=free_bytes)

    def begin_open(self, identity: VersionIdentity, here: PartitionSet) -> None:
        """Note that the copy was found whole on the disk."""
        self.identity, self.here = identity, here

    def finish(self, identity: VersionIdentity, here: PartitionSet) -> None:
        """Note that the copy was built anew and is open."""
        self._opened(CopyEvent.FINISH, identity, here)

    def add(self, built: PartitionSet) -> None:
        """Note that the lacking partitions were built, and are open beside the rest."""
        assert self.identity is not None, self
        assert self.here is not None, self
        assert not self.here & built, (self, built)
        damage = self.trouble if self.damaged else None  # The other files were found damaged during the build.
        self._opened(CopyEvent.FINISH, self.identity, self.here | built)
        if damage is not None:
            self.trouble, self.damaged = damage, True
            self.take(CopyEvent.DAMAGE)

    def opened(self, identity: VersionIdentity, here: PartitionSet) -> None:
        """Note that the copy could be opened after all, and need not be built again."""
        self._opened(CopyEvent.OPEN, identity, here)

    def want(self, share: PartitionSet) -> None:
        self.share = share
        self._want_rest()

    def let_go(self, partitions: PartitionSet) -> None:
        """Note that these partitions were dropped; those of the share are built again."""
        assert self.here is not None, self
        self.here -= partitions
        self._want_rest()

    def outdate(self) -> None:
        """Note that the built partitions do not fit the others: the whole share is built anew."""
        self.damaged = True
        self.stop()

    def refute(self) -> None:
        self.identity = self.here = self.tried = self.trouble = None
        self.damaged = False
        self.take(CopyEvent.REFUTE)

    def damage(self, trouble: Trouble, now_ms: int) -> None:
        """Note that a file was found damaged, and set the pause."""
        self.trouble = trouble
        self.damaged = True
        if now_ms - self.damaged_ms > DAMAGE_FORGOTTEN_MS:
            self.damages = 0
        if self.damages > 0:
            pause_ms = min(LAST_DAMAGE_PAUSE_MS, FIRST_RETRY_MS << min(self.damages - 1, 16))
            self.not_before_ms = now_ms + pause_ms
        self.damages += 1
        self.damaged_ms = self.waits_since_ms = now_ms
        # During a build, `add` takes this transition after adding the built partitions.
        if self.state is not CopyState.BUILDING:
            self.take(CopyEvent.DAMAGE)

    def damageable(self) -> bool:
        """True if damage in the copy is news."""
        return self.state in {CopyState.READY, CopyState.BUILDING} and self.open and not self.damaged

    def openable(self) -> bool:
        """True if files on the disk should be opened."""
        return self.state is CopyState.ERROR and not self.open

    def buildable(self, source: SourceVersion, now_ms: int) -> bool:
        """True if a build should be started, were this the only version.

        A copy in ERROR is retried once its source has changed.  If the trouble was ours (a killed child, a refusing
        disk), the copy is also retried after a pause.
        """
        if source.waiting_for is not None or now_ms < self.ready_ms:
            return False
        if self.state is CopyState.WANTED:
            return True
        if self.state is not CopyState.ERROR:
            return False
        lasting = self.trouble is not None and self.trouble.lasting
        return not lasting or self.tried != source.fingerprint

    def _opened(self, event: CopyEvent, identity: VersionIdentity, here: PartitionSet) -> None:
        self.trouble = None
        self.failures = 0
        self.needed_bytes = 0
        self.damaged = False
        self.identity, self.here = identity, here
        self.take(event)
        self._want_rest()

    def _want_rest(self) -> None:
        if self.state is CopyState.READY and self.lacks:
            self.take(CopyEvent.WANT)

    def _pause(self, now_ms: int) -> None:
        self.not_before_ms = now_ms + min(LAST_RETRY_MS, FIRST_RETRY_MS << min(self.failures, 16))
        self.failures += 1

"""The life of a copy, as a table: what is here of a version, or is to be.

    WANTED ──begin──► BUILDING ──finish──► READY ──drop──► GONE

    WANTED      not all that is to be here is, and it is not being built (yet, or for want of room, or because the
                source is not complete)
    BUILDING    a child process builds it
    READY       what is to be here is, and is open
    ERROR       it could not be built; or it was found damaged, and is to be built again
    GONE        closed, and deleted from the disk

`NEXT` has every other transition; `docs/operators/life-of-a-version.md` draws them all, and a test compares the two.

The rules:

* One that is damaged is built again at once; if it was damaged not long before, after a pause that doubles from a
  second to an hour: what a bad disk holds is bad again soon.
* One in ERROR is tried again when its source has changed; if the trouble was ours (a killed child, a refusing disk)
  also after a pause that doubles.
* One that the disk has no room for waits in WANTED until there is room.
* What is open is served whatever the state: whole pages of a damaged copy, and all of it while it is built again.
* What is to be here is the copy's share of the partitions, which grows and does not shrink.  What it lacks of that is
  built and added to it; one that is damaged is built anew, all of its share.
* One whose records were grouped by a function that a stray has refuted is of no use: it is dropped at once, and built
  anew.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gossipkv.dataset.build.disk_space import Shortage
    from gossipkv.dataset.build.trouble import Trouble
    from gossipkv.dataset.source.listing import SourceVersion
    from gossipkv.placement.identity import Identity
    from gossipkv.placement.partition_set import PartitionSet

FIRST_RETRY_MS = 1_000
LAST_RETRY_MS = 60_000
# Before what was damaged is built for the second time, the pause is the first of those above, and doubles on to this: a
# build is much work, and a bad disk stays bad.
LAST_DAMAGE_PAUSE_MS = 3_600_000
# One that was whole for so long begins from the first again.
DAMAGE_FORGOTTEN_MS = 4 * LAST_DAMAGE_PAUSE_MS
# What a refusal teaches about the room that a build needs is a guess: so long it is believed.
SHORTAGE_RETRY_MS = 600_000


class CopyState(enum.StrEnum):
    """A state in the life of a copy."""

    WANTED = "WANTED"
    BUILDING = "BUILDING"
    READY = "READY"
    ERROR = "ERROR"
    GONE = "GONE"


class CopyEvent(enum.StrEnum):
    """An event in the life of a copy."""

    BEGIN = "begin"  # a build was started
    FINISH = "finish"  # it is built, published and open
    INTERRUPT = "interrupt"  # the source changed under the build, or another version is held; it may begin anew
    WAIT = "wait"  # the disk has no room for it
    FAIL = "fail"  # it could not be built
    OPEN = "open"  # its files, which the system had refused to open, are open
    DAMAGE = "damage"  # a file of it was found damaged; what is whole is served while it is built again
    WANT = "want"  # more of its partitions are to be here than are
    REFUTE = "refute"  # a stray has refuted the function that its records are grouped by: none is served any more
    DROP = "drop"  # it is no longer to be here


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
class Copy:
    """What is here of one version, or is to be."""

    state: CopyState = CopyState.WANTED
    trouble: Trouble | None = None
    tried: str | None = None  # The fingerprint of the source that the last build began with.
    failures: int = 0  # in a row
    not_before_ms: int = 0  # The pause after a failure.
    shortage: Shortage | None = None  # What it waits for.
    shortage_until_ms: int = 0  # When what the refusals have taught is forgotten, and it is tried again.
    needed_bytes: int = 0  # What an attempt has taught about the room it needs.
    share: PartitionSet | None = None  # What is to be here; None: that is not known yet.
    identity: Identity | None = None  # What is open: that is served, in ERROR and while it is built again too;
    here: PartitionSet | None = None  # and its partitions.
    damaged: bool = False  # What is open is not whole, or not what it should be: all of the share is built anew.
    differs: bool = False  # The source shows other files than it was built from.
    waits_since_ms: int = 0  # When it was first wanted, or found damaged: since then it is to be built.
    damages: int = 0  # How often it was found damaged, none long after the one before,
    damaged_ms: int = 0  # and when it was last.

    @property
    def open(self) -> bool:
        """Whether files of it are."""
        return self.here is not None

    @property
    def lacks(self) -> PartitionSet | None:
        """What the next build is to make; None: the share is not known yet."""
        if self.share is None or self.here is None or self.damaged:
            return self.share
        return self.share - self.here

    @property
    def ready_ms(self) -> int:
        """When time alone allows the next attempt."""
        return self.not_before_ms if self.shortage is None else max(self.not_before_ms, self.shortage_until_ms)

    def take(self, event: CopyEvent) -> None:
        """Goes where the table says; an event that the table does not have is a bug of ours."""
        self.state = NEXT[self.state, event]

    def begin(self, source: SourceVersion) -> None:
        """A build of what the source shows now was started."""
        self.tried = source.fingerprint
        if self.shortage is not None:  # So much was not there in ten minutes: the first estimate counts again.
            self.shortage, self.needed_bytes = None, 0
        self.take(CopyEvent.BEGIN)

    def fail(self, trouble: Trouble, now_ms: int) -> None:
        """It could not be built; sets the pause."""
        self.trouble = trouble
        self._pause(now_ms)
        self.take(CopyEvent.FAIL)

    def interrupt(self, now_ms: int) -> None:
        """The source changed under the build."""
        self._pause(now_ms)
        self.stop()

    def stop(self) -> None:
        """Another version is held: the build is broken off, through no fault of its own."""
        self.tried = None
        self.take(CopyEvent.INTERRUPT)

    def wait(self, shortage: Shortage, now_ms: int) -> None:
        """The disk has no room.  What was refused halfway is not tried again too soon: a build is much work."""
        if shortage.reason is not None:
            self._pause(now_ms)
            self.needed_bytes = shortage.needed_bytes
        self.shortage, self.shortage_until_ms = shortage, now_ms + SHORTAGE_RETRY_MS
        self.tried = None
        self.take(CopyEvent.WAIT)

    def find_space(self, free_bytes: int, now_ms: int) -> None:
        """Take in how much room there is: it may be enough; the pause after a refusal is kept nevertheless."""
        if self.shortage is not None:
            enough = free_bytes >= self.shortage.needed_bytes and now_ms >= self.not_before_ms
            self.shortage = None if enough else replace(self.shortage, free_bytes=free_bytes)

    def begin_open(self, identity: Identity, here: PartitionSet) -> None:
        """It was found whole on the disk."""
        self.identity, self.here = identity, here

    def finish(self, identity: Identity, here: PartitionSet) -> None:
        """Built anew and open."""
        self._opened(CopyEvent.FINISH, identity, here)

    def add(self, built: PartitionSet) -> None:
        """Take in that what it lacked was built, and is open beside the rest."""
        assert self.identity is not None, self
        assert self.here is not None, self
        assert not self.here & built, (self, built)
        damage = self.trouble if self.damaged else None  # Of the rest; it was found meanwhile.
        self._opened(CopyEvent.FINISH, self.identity, self.here | built)
        if damage is not None:
            self.trouble, self.damaged = damage, True
            self.take(CopyEvent.DAMAGE)

    def opened(self, identity: Identity, here: PartitionSet) -> None:
        """Open after all; it need not be built again."""
        self._opened(CopyEvent.OPEN, identity, here)

    def want(self, share: PartitionSet) -> None:
        """So much is to be here."""
        self.share = share
        self._want_rest()

    def let_go(self, partitions: PartitionSet) -> None:
        """These were dropped, and are built again if they are of its share."""
        assert self.here is not None, self
        self.here -= partitions
        self._want_rest()

    def outdate(self) -> None:
        """Take in that what was built to be added does not fit the rest: all is built anew."""
        self.damaged = True
        self.stop()

    def refute(self) -> None:
        """Nothing of it is served any more."""
        self.identity = self.here = self.tried = self.trouble = None
        self.damaged = False
        self.take(CopyEvent.REFUTE)

    def damage(self, trouble: Trouble, now_ms: int) -> None:
        """A file of it was found damaged; sets the pause."""
        self.trouble = trouble
        self.damaged = True
        if now_ms - self.damaged_ms > DAMAGE_FORGOTTEN_MS:
            self.damages = 0
        if self.damages > 0:
            pause_ms = min(LAST_DAMAGE_PAUSE_MS, FIRST_RETRY_MS << min(self.damages - 1, 16))
            self.not_before_ms = now_ms + pause_ms
        self.damages += 1
        self.damaged_ms = self.waits_since_ms = now_ms
        if self.state is not CopyState.BUILDING:  # Else it is, when what is built has been added.
            self.take(CopyEvent.DAMAGE)

    def damageable(self) -> bool:
        """Whether damage in it is news."""
        return self.state in {CopyState.READY, CopyState.BUILDING} and self.open and not self.damaged

    def openable(self) -> bool:
        """Whether files of it that are on the disk are to be opened."""
        return self.state is CopyState.ERROR and not self.open

    def buildable(self, source: SourceVersion, now_ms: int) -> bool:
        """Whether a build of what the source shows should be started, were it the only version."""
        if source.waiting_for is not None or now_ms < self.ready_ms:
            return False
        if self.state is CopyState.WANTED:
            return True
        if self.state is not CopyState.ERROR:
            return False
        lasting = self.trouble is not None and self.trouble.lasting
        return not lasting or self.tried != source.fingerprint

    def _opened(self, event: CopyEvent, identity: Identity, here: PartitionSet) -> None:
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

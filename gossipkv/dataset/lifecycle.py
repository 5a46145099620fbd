"""The life of a version on a node, as a table, and the decisions over a database's versions, as a pure function.

    SEEN ──begin──► BUILDING ──finish──► AVAILABLE ──switch──► ACTIVE ──supersede──► RETIRING ──quiet──► GONE

    SEEN        the source has it; it is not being built (yet, or for want of room, or because it is not complete)
    BUILDING    a child process builds it
    AVAILABLE   built and open: requests that name it are served
    ACTIVE      requests that name no version get it
    RETIRING    another one is active; requests that name it are served
    ERROR       it could not be built, and the older one serves; or it was found damaged, and is to be built again
    GONE        forgotten, and deleted from the disk

`NEXT` has every other transition; `docs/operators/life-of-a-version.md` draws them all, and a test compares the two.

The rules, and the invariant that they keep (promise P2: answers go from N-1 to N once and never back, but by a hold):

* Versions are ordered as strings.  The newest AVAILABLE one becomes active if it is newer than the active one;
  versions between are skipped, built or not.
* One version of a database is built at a time: the newest complete one.  When a newer one appears meanwhile, the build
  goes on: a source that is faster than the builds would otherwise never be served.
* A hold names the one version that is to be active, older or newer: it is switched to as soon as it is here, and no
  other is built or switched to; the build of another is broken off.  It is the only way back.  When it goes, the rules
  above hold again, from the active one on: so a version that was left behind is switched to again, or built again, if
  the source still shows it.  One that was withdrawn there, as bad versions are, does not come back.
* One that is damaged is built again at once; if it was damaged not long before, after a pause that doubles from a
  second to an hour: what a bad disk holds is bad again soon.
* A version in ERROR is tried again when its source has changed; if the trouble was ours (a killed child, a refusing
  disk) also after a pause that doubles.  Meanwhile an older one that is newer than the active one may be built.
* One that the disk has no room for waits in SEEN until there is room.
* A RETIRING version goes when no request has asked for it for `retire_after`; one in ERROR whose files are held, since
  a read found damage in them, retires in the same way.
* What vanishes at the source stays as it is here, unless it was not built yet.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gossipkv.dataset.source.listing import SourceVersion

FIRST_RETRY_MS = 1_000
LAST_RETRY_MS = 60_000
# Before what was damaged is built for the second time, the pause is the first of those above, and doubles on to this: a
# build is much work, and a bad disk stays bad.
LAST_DAMAGE_PAUSE_MS = 3_600_000
# One that was whole for so long begins from the first again.
DAMAGE_FORGOTTEN_MS = 4 * LAST_DAMAGE_PAUSE_MS
# What a refusal teaches about the room that a build needs is a guess: so long it is believed.
SHORTAGE_RETRY_MS = 600_000


class State(enum.StrEnum):
    """Where a version is in its life."""

    SEEN = "SEEN"
    BUILDING = "BUILDING"
    AVAILABLE = "AVAILABLE"
    ACTIVE = "ACTIVE"
    RETIRING = "RETIRING"
    ERROR = "ERROR"
    GONE = "GONE"


class Event(enum.StrEnum):
    """What can happen to it."""

    BEGIN = "begin"  # a build was started
    FINISH = "finish"  # it is built, published and open
    INTERRUPT = "interrupt"  # the source changed under the build, or another version is held; it may begin anew
    WAIT = "wait"  # the disk has no room for it
    FAIL = "fail"  # it could not be built
    SWITCH = "switch"  # it became the active version, durably
    SUPERSEDE = "supersede"  # another one did
    QUIET = "quiet"  # nobody has asked for it for long enough
    SKIP = "skip"  # it is older than the active one, or has vanished, and was never built
    OPEN = "open"  # its files, which the system had refused to open, are open
    DAMAGE = "damage"  # a file of it was found damaged; what is whole is served while it is built again


NEXT: dict[tuple[State, Event], State] = {
    (State.SEEN, Event.BEGIN): State.BUILDING,
    (State.SEEN, Event.SKIP): State.GONE,
    (State.SEEN, Event.FAIL): State.ERROR,
    (State.SEEN, Event.SUPERSEDE): State.RETIRING,
    (State.ERROR, Event.BEGIN): State.BUILDING,
    (State.ERROR, Event.SKIP): State.GONE,
    (State.ERROR, Event.FAIL): State.ERROR,
    (State.ERROR, Event.OPEN): State.AVAILABLE,
    (State.ERROR, Event.SUPERSEDE): State.RETIRING,
    (State.BUILDING, Event.FINISH): State.AVAILABLE,
    (State.BUILDING, Event.INTERRUPT): State.SEEN,
    (State.BUILDING, Event.WAIT): State.SEEN,
    (State.BUILDING, Event.FAIL): State.ERROR,
    (State.AVAILABLE, Event.SWITCH): State.ACTIVE,
    (State.AVAILABLE, Event.SUPERSEDE): State.RETIRING,
    (State.AVAILABLE, Event.DAMAGE): State.ERROR,
    (State.ACTIVE, Event.SUPERSEDE): State.RETIRING,
    (State.ACTIVE, Event.DAMAGE): State.ERROR,
    (State.RETIRING, Event.SWITCH): State.ACTIVE,
    (State.RETIRING, Event.QUIET): State.GONE,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a version is in ERROR."""

    message: str
    details: dict[str, str | int] = field(default_factory=dict)  # `file`, `line`, `offset` where known
    lasting: bool = True  # Only another source can help; else it is tried again after a pause.


@dataclass(frozen=True, slots=True)
class Shortage:
    """What a build needs on the disk, and does not have."""

    needed_bytes: int
    free_bytes: int  # less what the builds that run will still take
    reason: str | None = None  # What the system said, if the disk was full in the middle of it.

    def __str__(self) -> str:
        found = "" if self.reason is None else f" ({self.reason})"
        return f"room on the disk: about {self.needed_bytes:,} bytes are needed, {self.free_bytes:,} are free{found}"


@dataclass(slots=True)
class Life:
    """One version's life."""

    name: str
    state: State = State.SEEN
    source: SourceVersion | None = None  # What the source shows now; None: nothing (any more).
    trouble: Trouble | None = None
    tried: str | None = None  # The fingerprint of the source that the last build began with.
    failures: int = 0  # in a row
    not_before_ms: int = 0  # The pause after a failure.
    shortage: Shortage | None = None  # What it waits for.
    shortage_until_ms: int = 0  # When what the refusals have taught is forgotten, and it is tried again.
    needed_bytes: int = 0  # What an attempt has taught about the room it needs.
    open: bool = False  # Its files are: requests that name it are served, in ERROR and while it is built again too.
    differs: bool = False  # The source shows other files than it was built from.
    asked_ms: int = 0  # When it began to retire, or was last asked for since.
    waits_since_ms: int = 0  # When it was first seen, or found damaged: since then it is to be built.
    damages: int = 0  # How often it was found damaged, none long after the one before,
    damaged_ms: int = 0  # and when it was last.

    @property
    def is_waiting(self) -> bool:
        """Whether it is to be built, or is being built."""
        return self.state in {State.SEEN, State.BUILDING, State.ERROR}

    @property
    def waiting_for(self) -> str | None:
        """What it waits for, in words: the source, or the disk."""
        if self.state is not State.SEEN or self.source is None:
            return None
        return self.source.waiting_for or (None if self.shortage is None else str(self.shortage))

    @property
    def ready_ms(self) -> int:
        """When time alone allows the next attempt."""
        return self.not_before_ms if self.shortage is None else max(self.not_before_ms, self.shortage_until_ms)

    def take(self, event: Event) -> None:
        """Goes where the table says; an event that the table does not have is a bug of ours."""
        self.state = NEXT[self.state, event]

    def begin(self) -> None:
        """A build of what the source shows now was started."""
        assert self.source is not None
        self.tried = self.source.fingerprint
        if self.shortage is not None:  # So much was not there in ten minutes: the first estimate counts again.
            self.shortage, self.needed_bytes = None, 0
        self.take(Event.BEGIN)

    def fail(self, trouble: Trouble, now_ms: int) -> None:
        """It could not be built; sets the pause."""
        self.trouble = trouble
        self._pause(now_ms)
        self.take(Event.FAIL)

    def interrupt(self, now_ms: int) -> None:
        """The source changed under the build."""
        self._pause(now_ms)
        self.stop()

    def stop(self) -> None:
        """Another version is held: the build is broken off, through no fault of its own."""
        self.tried = None
        self.take(Event.INTERRUPT)

    def wait(self, shortage: Shortage, now_ms: int) -> None:
        """The disk has no room.  What was refused halfway is not tried again too soon: a build is much work."""
        if shortage.reason is not None:
            self._pause(now_ms)
            self.needed_bytes = shortage.needed_bytes
        self.shortage, self.shortage_until_ms = shortage, now_ms + SHORTAGE_RETRY_MS
        self.tried = None
        self.take(Event.WAIT)

    def find_space(self, free_bytes: int, now_ms: int) -> None:
        """What it waits for may be there; the pause after a refusal is kept nevertheless."""
        if self.shortage is not None:
            enough = free_bytes >= self.shortage.needed_bytes and now_ms >= self.not_before_ms
            self.shortage = None if enough else replace(self.shortage, free_bytes=free_bytes)

    def finish(self) -> None:
        """Built and open."""
        self._opened(Event.FINISH)

    def opened(self) -> None:
        """Open after all; it need not be built again."""
        self._opened(Event.OPEN)

    def damage(self, now_ms: int) -> None:
        """A file of it was found damaged; sets the pause."""
        if now_ms - self.damaged_ms > DAMAGE_FORGOTTEN_MS:
            self.damages = 0
        if self.damages > 0:
            pause_ms = min(LAST_DAMAGE_PAUSE_MS, FIRST_RETRY_MS << min(self.damages - 1, 16))
            self.not_before_ms = now_ms + pause_ms
        self.damages += 1
        self.damaged_ms = self.waits_since_ms = now_ms
        self.take(Event.DAMAGE)

    def superseded(self, active: str | None, hold: str | None) -> bool:
        """Whether it is to retire, once `active` is the active version."""
        if self.name == active:
            return False
        if self.state is State.ACTIVE:
            return True
        if self.name == hold or (hold is None and (active is None or self.name > active)):
            return False
        return self.state is State.AVAILABLE or (self.open and self.state in {State.SEEN, State.ERROR})

    def switchable(self, active: str | None, hold: str | None) -> bool:
        """Whether it is here, and may be switched to."""
        if self.state not in {State.AVAILABLE, State.RETIRING}:
            return False
        if hold is not None:
            return self.name == hold
        if active is not None and self.name < active:
            return False
        # One that a hold left behind comes back only if the source still shows it.
        return self.state is State.AVAILABLE or (self.source is not None and self.source.waiting_for is None)

    def openable(self) -> bool:
        """Whether files of it that are on the disk are to be opened."""
        return self.state is State.ERROR and not self.open

    def buildable(self, now_ms: int) -> bool:
        """Whether a build should be started, were it the only version."""
        if self.source is None or self.source.waiting_for is not None or now_ms < self.ready_ms:
            return False
        if self.state is State.SEEN:
            return True
        if self.state is not State.ERROR:
            return False
        lasting = self.trouble is not None and self.trouble.lasting
        return not lasting or self.tried != self.source.fingerprint

    def _opened(self, event: Event) -> None:
        self.trouble = None
        self.failures = 0
        self.needed_bytes = 0
        self.open = True
        self.take(event)

    def _pause(self, now_ms: int) -> None:
        self.not_before_ms = now_ms + min(LAST_RETRY_MS, FIRST_RETRY_MS << min(self.failures, 16))
        self.failures += 1


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do now; nothing, when all are empty."""

    skip: tuple[str, ...] = ()
    supersede: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    switch: str | None = None
    build: str | None = None
    stop: str | None = None  # A build to be broken off.
    look_again_ms: int | None = None  # When time alone may change the decision.

    def __post_init__(self) -> None:
        """Asserts that no two parts of it are about one version, and that at most one is built."""
        gone = self.skip + self.supersede + self.remove
        assert len(set(gone)) == len(gone), self
        assert self.switch not in gone, self
        assert self.build not in gone, self
        assert self.build is None or self.stop is None, self


def decide(
    lives: Iterable[Life], *, active: str | None, hold: str | None, now_ms: int, retire_after_ms: int
) -> Decision:
    """What to do with a database's versions.

    `active` is the version that was made active last, served or not; `hold` the one that is pinned, known or not.
    """
    ordered = sorted(lives, key=lambda life: life.name)
    switch = next((life.name for life in reversed(ordered) if life.switchable(active, hold)), None)
    floor = switch if switch is not None else active
    skip = tuple(life.name for life in ordered if _is_skipped(life, floor, hold))
    supersede = tuple(life.name for life in ordered if life.superseded(floor, hold))
    retiring = [life for life in ordered if life.state is State.RETIRING and life.name != switch]
    remove = tuple(life.name for life in retiring if life.asked_ms + retire_after_ms <= now_ms)
    waits = [life.asked_ms + retire_after_ms for life in retiring if life.name not in remove]
    build = stop = None
    candidates = [
        life
        for life in ordered
        if life.state in {State.SEEN, State.ERROR}
        and life.name not in skip + supersede
        and hold in {None, life.name}
    ]  # fmt: skip
    building = next((life.name for life in ordered if life.state is State.BUILDING), None)
    if building is None:
        ready = [life.name for life in candidates if life.buildable(now_ms)]
        build = ready[-1] if ready else None
        waits += [life.ready_ms for life in candidates if now_ms < life.ready_ms and life.buildable(life.ready_ms)]
    elif hold not in {None, building} or (hold is None and floor is not None and building < floor):
        stop = building
    return Decision(skip, supersede, remove, switch, build, stop, min(waits, default=None))


def _is_skipped(life: Life, floor: str | None, hold: str | None) -> bool:
    """Older than what is active, or vanished, and not open; a lost active version stays, to be built again."""
    if life.open or life.state not in {State.SEEN, State.ERROR}:
        return False
    if floor is not None and life.name < floor and life.name != hold:
        return True
    return life.source is None and life.name != floor


def check(lives: Iterable[Life], active: str | None, *, switching: bool) -> None:
    """Asserts what holds whenever nothing is left to do at once.

    At most one version is active, and it is the one that was made so last; at most one is built; every other that is
    built retires, unless a switch is still to be done since the system refused to write it down.
    """
    lives = tuple(lives)
    states = [life.state for life in lives]
    assert [life.name for life in lives if life.state is State.ACTIVE] in ([], [active]), (active, states)
    assert states.count(State.BUILDING) <= 1, states
    assert switching or State.AVAILABLE not in states, states
    assert State.GONE not in states, states
    for life in lives:
        assert life.open or life.state not in {State.AVAILABLE, State.ACTIVE, State.RETIRING}, life
        assert life.state is not State.ERROR or life.trouble is not None, life

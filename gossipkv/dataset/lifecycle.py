"""The life of a version on a node, as a table, and the decisions over a database's versions, as a pure function.

    SEEN ──begin──► BUILDING ──finish──► AVAILABLE ──switch──► ACTIVE ──supersede──► RETIRING ──quiet──► GONE

    SEEN        the source has it; it is not being built (yet, or because it is not complete)
    BUILDING    a child process builds it
    AVAILABLE   built and open: requests that name it are served
    ACTIVE      requests that name no version get it
    RETIRING    a newer one is active; requests that name it are served
    ERROR       it could not be built, and the older one serves; or it was found damaged, and is to be built again
    GONE        forgotten, and deleted from the disk

The rules, and the invariant that they keep (promise P2: answers go from N-1 to N once and never back):

* Versions are ordered as strings.  The newest AVAILABLE one becomes active if it is newer than every one that was
  ever active; versions between are skipped, built or not.
* One version of a database is built at a time: the newest complete one.  When a newer one appears meanwhile, the build
  goes on: a source that is faster than the builds would otherwise never be served.
* A version in ERROR is tried again when its source has changed; if the trouble was ours (a full disk, a killed child)
  also after a pause that doubles.  Meanwhile an older one that is newer than the active one may be built.
* A RETIRING version goes when no request has asked for it for `retire_after`; one in ERROR whose files are held, since
  a read found damage in them, retires in the same way.
* What vanishes at the source stays as it is here, unless it was not built yet.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gossipkv.dataset.source import SourceVersion

FIRST_RETRY_MS = 1_000
LAST_RETRY_MS = 60_000


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
    INTERRUPT = "interrupt"  # the source changed under the build; it begins anew
    FAIL = "fail"  # it could not be built
    SWITCH = "switch"  # it became the active version, durably
    SUPERSEDE = "supersede"  # a newer one did
    QUIET = "quiet"  # nobody has asked for it for long enough
    SKIP = "skip"  # it is older than the active one, or has vanished, and was never built
    OPEN = "open"  # its files, which the system had refused to open, are open
    DAMAGE = "damage"  # a read found a file of it damaged; what is whole is served while it is built again


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
    (State.BUILDING, Event.FAIL): State.ERROR,
    (State.AVAILABLE, Event.SWITCH): State.ACTIVE,
    (State.AVAILABLE, Event.SUPERSEDE): State.RETIRING,
    (State.AVAILABLE, Event.DAMAGE): State.ERROR,
    (State.ACTIVE, Event.SUPERSEDE): State.RETIRING,
    (State.ACTIVE, Event.DAMAGE): State.ERROR,
    (State.RETIRING, Event.QUIET): State.GONE,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a version is in ERROR."""

    message: str
    details: dict[str, str | int] = field(default_factory=dict)  # `file`, `line`, `offset` where known
    lasting: bool = True  # Only another source can help; else it is tried again after a pause.


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
    held: bool = (
        False  # Its files are open: requests that name it are served, in ERROR and while it is built again too.
    )
    differs: bool = False  # The source shows other files than it was built from.
    asked_ms: int = 0  # When it began to retire, or was last asked for since.

    def take(self, event: Event) -> None:
        """Goes where the table says; an event that the table does not have is a bug of ours."""
        self.state = NEXT[self.state, event]

    def begin(self) -> None:
        """A build of what the source shows now was started."""
        assert self.source is not None
        self.tried = self.source.fingerprint
        self.take(Event.BEGIN)

    def fail(self, trouble: Trouble, now_ms: int) -> None:
        """It could not be built; sets the pause."""
        self.trouble = trouble
        self._pause(now_ms)
        self.take(Event.FAIL)

    def interrupt(self, now_ms: int) -> None:
        """The source changed under the build."""
        self._pause(now_ms)
        self.tried = None
        self.take(Event.INTERRUPT)

    def finish(self) -> None:
        """Built and open."""
        self._hold(Event.FINISH)

    def open(self) -> None:
        """Open after all; it need not be built again."""
        self._hold(Event.OPEN)

    def superseded(self, floor: str | None) -> bool:
        """Whether it is to retire, once `floor` is the active version."""
        if floor is None or self.name >= floor:
            return False
        return self.state in {State.AVAILABLE, State.ACTIVE} or (self.held and self.state in {State.SEEN, State.ERROR})

    def openable(self) -> bool:
        """Whether files of it that are on the disk are to be opened."""
        return self.state is State.ERROR and not self.held

    def buildable(self, now_ms: int) -> bool:
        """Whether a build should be started, were it the only version."""
        if self.source is None or self.source.waiting_for is not None or now_ms < self.not_before_ms:
            return False
        if self.state is State.SEEN:
            return True
        if self.state is not State.ERROR:
            return False
        lasting = self.trouble is not None and self.trouble.lasting
        return not lasting or self.tried != self.source.fingerprint

    def _hold(self, event: Event) -> None:
        self.trouble = None
        self.failures = 0
        self.held = True
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
    look_again_ms: int | None = None  # When time alone may change the decision.


def decide(lives: Iterable[Life], *, active: str | None, now_ms: int, retire_after_ms: int) -> Decision:
    """What to do with a database's versions; `active` is the newest one that was ever active, served or not."""
    ordered = sorted(lives, key=lambda life: life.name)
    available = [life.name for life in ordered if life.state is State.AVAILABLE]
    switch = available[-1] if available and (active is None or available[-1] >= active) else None
    floor = switch if switch is not None else active
    skip = tuple(life.name for life in ordered if _is_skipped(life, floor))
    supersede = tuple(life.name for life in ordered if life.superseded(floor))
    retiring = [life for life in ordered if life.state is State.RETIRING]
    remove = tuple(life.name for life in retiring if life.asked_ms + retire_after_ms <= now_ms)
    waits = [life.asked_ms + retire_after_ms for life in retiring if life.name not in remove]
    build = None
    candidates = [
        life
        for life in ordered
        if life.state in {State.SEEN, State.ERROR} and life.name not in skip + supersede
    ]  # fmt: skip
    if not any(life.state is State.BUILDING for life in ordered):
        ready = [life.name for life in candidates if life.buildable(now_ms)]
        build = ready[-1] if ready else None
        waits += [
            life.not_before_ms
            for life in candidates
            if now_ms < life.not_before_ms and life.buildable(life.not_before_ms)
        ]
    return Decision(skip, supersede, remove, switch, build, min(waits, default=None))


def _is_skipped(life: Life, floor: str | None) -> bool:
    """Older than what is active, or vanished, and not held; a lost active version stays, to be built again."""
    if life.held or life.state not in {State.SEEN, State.ERROR}:
        return False
    if floor is not None and life.name < floor:
        return True
    return life.source is None and life.name != floor

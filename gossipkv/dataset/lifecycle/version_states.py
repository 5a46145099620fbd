"""The life of a version towards clients, as a table; and both lives of a version together.

    KNOWN ──switch──► ACTIVE ──supersede──► RETIRING ──quiet──► GONE

    KNOWN       the source has it, or another node: requests that name no version do not get it
    ACTIVE      requests that name no version get it
    RETIRING    another one is active; requests that name it are served
    GONE        forgotten

`NEXT` has every other transition; `docs/operators/life-of-a-version.md` draws them all, and a test compares the two.

The rules, and the invariant that they keep (promise P2: answers go from N-1 to N once and never back, but by a hold):

* Versions are ordered as strings.  The newest one that may be switched to becomes active if it is newer than the active
  one; versions between are skipped, built or not.
* A hold names the one version that is to be active, older or newer, and is the only way back.
* One that was left behind is switched to again only if it is still to be had: at the source, or from others.  One that
  was withdrawn there, as bad versions are, does not come back.
* What vanishes at the source stays as it is here, unless nothing of it can be answered.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gossipkv.dataset.lifecycle.copy_states import Copy, CopyState

if TYPE_CHECKING:
    from gossipkv.dataset.source.listing import SourceVersion
    from gossipkv.placement.identity import Identity


class VersionState(enum.StrEnum):
    """A state in the life of a version towards clients."""

    KNOWN = "KNOWN"
    ACTIVE = "ACTIVE"
    RETIRING = "RETIRING"
    GONE = "GONE"


class VersionEvent(enum.StrEnum):
    """An event in the life of a version towards clients."""

    SWITCH = "switch"  # it became the active version, durably
    SUPERSEDE = "supersede"  # another one did
    QUIET = "quiet"  # nobody has asked for it for long enough, or nobody has anything of it any more
    LOSE = "lose"  # another one became active, and nothing of it can be answered
    SKIP = "skip"  # nothing of it can be answered, and it is older than the active one, or has vanished


NEXT: dict[tuple[VersionState, VersionEvent], VersionState] = {
    (VersionState.KNOWN, VersionEvent.SWITCH): VersionState.ACTIVE,
    (VersionState.KNOWN, VersionEvent.SUPERSEDE): VersionState.RETIRING,
    (VersionState.KNOWN, VersionEvent.SKIP): VersionState.GONE,
    (VersionState.ACTIVE, VersionEvent.SUPERSEDE): VersionState.RETIRING,
    (VersionState.ACTIVE, VersionEvent.LOSE): VersionState.KNOWN,
    (VersionState.RETIRING, VersionEvent.SWITCH): VersionState.ACTIVE,
    (VersionState.RETIRING, VersionEvent.QUIET): VersionState.GONE,
}  # fmt: skip


class Word(enum.StrEnum):
    """What `status` says of a version: one word for both lives."""

    SEEN = "SEEN"
    BUILDING = "BUILDING"
    AVAILABLE = "AVAILABLE"
    ACTIVE = "ACTIVE"
    RETIRING = "RETIRING"
    ERROR = "ERROR"


_WORDS = {CopyState.WANTED: Word.SEEN, CopyState.BUILDING: Word.BUILDING, CopyState.ERROR: Word.ERROR}


@dataclass(slots=True)
class Life:
    """One version's two lives."""

    name: str
    state: VersionState = VersionState.KNOWN  # Towards clients.
    copy: Copy | None = None  # None: nothing of it is here, or is to be.
    source: SourceVersion | None = None  # What the source shows now; None: nothing (any more).
    heard: Identity | None = None  # What other nodes have by this name; None: nobody has it (any more).
    asked_ms: int = 0  # When it began to retire, or was last asked for since.

    @property
    def is_elsewhere(self) -> bool:
        """Whether nothing of it is here, or is to be."""
        copy = self.copy
        return copy is None or (not copy.open and copy.share is not None and not copy.share)

    @property
    def identity(self) -> Identity | None:
        """What it is: what is here of it, else what other nodes have."""
        return self.heard if self.copy is None or self.copy.identity is None else self.copy.identity

    @property
    def word(self) -> Word:
        """Both lives in one word: while a copy that is to be here is not whole, what becomes of that."""
        if self.state is VersionState.RETIRING:
            return Word.RETIRING
        if self.copy is not None and self.copy.state in _WORDS and not self.is_elsewhere:
            return _WORDS[self.copy.state]
        if self.state is VersionState.ACTIVE:
            return Word.ACTIVE
        return Word.SEEN if self.is_elsewhere else Word.AVAILABLE

    @property
    def open(self) -> bool:
        """Whether files of it are."""
        return self.copy is not None and self.copy.open

    @property
    def is_building(self) -> bool:
        """Whether a copy of it is being built."""
        return self.copy is not None and self.copy.state is CopyState.BUILDING

    @property
    def is_ready(self) -> bool:
        """Whether all that is to be here is."""
        return self.copy is not None and self.copy.state is CopyState.READY

    @property
    def is_waiting(self) -> bool:
        """Whether a copy is to be built, or is being built."""
        return not self.is_elsewhere and self.word in _WORDS.values()

    @property
    def waiting_for(self) -> str | None:
        """What its copy waits for, in words: the source, or the disk."""
        if self.copy is None or self.word is not Word.SEEN or self.source is None:
            return None
        return self.source.waiting_for or (None if self.copy.shortage is None else str(self.copy.shortage))

    def take(self, event: VersionEvent) -> None:
        """Goes where the table says; an event that the table does not have is a bug of ours."""
        self.state = NEXT[self.state, event]

    def buildable(self, now_ms: int) -> bool:
        """Whether a build of what it lacks should be started, were it the only version."""
        if self.copy is None or self.source is None or not self.copy.lacks:
            return False
        return self.copy.lacks.partitions == len(self.source.files) and self.copy.buildable(self.source, now_ms)

    def superseded(self, active: str | None, hold: str | None) -> bool:
        """Whether it is to be left behind, once `active` is the active version."""
        if self.state is VersionState.RETIRING or self.name == active:
            return False
        if self.state is VersionState.ACTIVE:
            return True
        return self.name != hold and (hold is not None or (active is not None and self.name < active))

    def switchable(self, active: str | None, hold: str | None) -> bool:
        """Whether it is one to be switched to, if it may be."""
        if self.state not in {VersionState.KNOWN, VersionState.RETIRING}:
            return False
        if hold is not None:
            return self.name == hold
        if active is not None and self.name < active:
            return False
        # One that a hold left behind comes back only if it is still to be had.
        return self.state is VersionState.KNOWN or self.is_shown

    @property
    def is_shown(self) -> bool:
        """Whether the source shows it whole; if none of it is to be here, whether others have it."""
        if self.is_elsewhere:
            return self.heard is not None
        return self.source is not None and self.source.waiting_for is None

"""The states of a version towards clients, as a table; and their combination with the states of its copy.

    KNOWN ──switch──► ACTIVE ──supersede──► RETIRING ──quiet──► GONE

    KNOWN       the source has it, or another node: requests that name no version do not get it
    ACTIVE      requests that name no version get it
    RETIRING    another version is active; requests that name this one are served
    GONE        forgotten

`NEXT` has the other transitions; a test compares it with `docs/development/version-states.md`.  Promise P2: answers go
from N-1 to N once, and back only by a hold.  Versions are ordered as strings, and the newest switchable one becomes
active if it is above the active one.  A version left behind returns only while the source or a node has it.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gossipkv.dataset.lifecycle.copy_states import CopyState, VersionCopy

if TYPE_CHECKING:
    from gossipkv.dataset.source.listing import SourceVersion
    from gossipkv.placement.identity import VersionIdentity


class VersionState(enum.StrEnum):
    """A state of a version towards clients."""

    KNOWN = "KNOWN"
    ACTIVE = "ACTIVE"
    RETIRING = "RETIRING"
    GONE = "GONE"


class VersionEvent(enum.StrEnum):
    """An event in the life of a version towards clients."""

    SWITCH = "switch"  # The version became active, durably.
    SUPERSEDE = "supersede"  # Another version became active.
    QUIET = "quiet"  # No request has come for long enough, or no node has files of it any more.
    LOSE = "lose"  # Another version became active, and this one cannot be answered.
    SKIP = "skip"  # The version cannot be answered, and is older than the active one, or has vanished.


NEXT: dict[tuple[VersionState, VersionEvent], VersionState] = {
    (VersionState.KNOWN, VersionEvent.SWITCH): VersionState.ACTIVE,
    (VersionState.KNOWN, VersionEvent.SUPERSEDE): VersionState.RETIRING,
    (VersionState.KNOWN, VersionEvent.SKIP): VersionState.GONE,
    (VersionState.ACTIVE, VersionEvent.SUPERSEDE): VersionState.RETIRING,
    (VersionState.ACTIVE, VersionEvent.LOSE): VersionState.KNOWN,
    (VersionState.RETIRING, VersionEvent.SWITCH): VersionState.ACTIVE,
    (VersionState.RETIRING, VersionEvent.QUIET): VersionState.GONE,
}  # fmt: skip


class VersionWord(enum.StrEnum):
    """The one word of `status` for both states of a version."""

    SEEN = "SEEN"
    BUILDING = "BUILDING"
    AVAILABLE = "AVAILABLE"
    ACTIVE = "ACTIVE"
    RETIRING = "RETIRING"
    ERROR = "ERROR"


_WORDS = {
    CopyState.WANTED: VersionWord.SEEN,
    CopyState.BUILDING: VersionWord.BUILDING,
    CopyState.ERROR: VersionWord.ERROR,
}


@dataclass(slots=True)
class Life:
    """The two states of one version: of its copy, and towards clients."""

    name: str
    state: VersionState = VersionState.KNOWN  # The state towards clients.
    copy: VersionCopy | None = None  # None: no partition is here, and none should be.
    source: SourceVersion | None = None  # The version at the source now; None: it is not there (any more).
    # The identity that other nodes have under this name; None: no node has it (any more).
    heard: VersionIdentity | None = None
    asked_ms: int = 0  # When it began to retire, or was last requested since.

    @property
    def is_elsewhere(self) -> bool:
        copy = self.copy
        return copy is None or (not copy.open and copy.share is not None and not copy.share)

    @property
    def identity(self) -> VersionIdentity | None:
        """Return the identity of the copy, else the one that other nodes have."""
        return self.heard if self.copy is None or self.copy.identity is None else self.copy.identity

    @property
    def word(self) -> VersionWord:
        """Return one word for both states; an incomplete copy determines the word."""
        if self.state is VersionState.RETIRING:
            return VersionWord.RETIRING
        if self.copy is not None and self.copy.state in _WORDS and not self.is_elsewhere:
            return _WORDS[self.copy.state]
        if self.state is VersionState.ACTIVE:
            return VersionWord.ACTIVE
        return VersionWord.SEEN if self.is_elsewhere else VersionWord.AVAILABLE

    @property
    def open(self) -> bool:
        return self.copy is not None and self.copy.open

    @property
    def is_building(self) -> bool:
        return self.copy is not None and self.copy.state is CopyState.BUILDING

    @property
    def is_ready(self) -> bool:
        """True if the whole share is here."""
        return self.copy is not None and self.copy.state is CopyState.READY

    @property
    def is_waiting(self) -> bool:
        """True if a copy should be built, or is being built."""
        return not self.is_elsewhere and self.word in _WORDS.values()

    @property
    def waiting_for(self) -> str | None:
        """Return the cause for which the copy waits, in words: the source, or the disk."""
        if self.copy is None or self.word is not VersionWord.SEEN or self.source is None:
            return None
        return self.source.waiting_for or (None if self.copy.shortage is None else str(self.copy.shortage))

    def take(self, event: VersionEvent) -> None:
        """Follow the transition of the table; a missing transition is a bug of ours."""
        self.state = NEXT[self.state, event]

    def buildable(self, now_ms: int) -> bool:
        """True if a build of the lacking partitions should be started, were this the only version."""
        if self.copy is None or self.source is None or not self.copy.lacks:
            return False
        return self.copy.lacks.partitions == self.source.partitions and self.copy.buildable(self.source, now_ms)

    def superseded(self, active: str | None, hold: str | None) -> bool:
        """True if the version should be left behind once `active` is the active version."""
        if self.state is VersionState.RETIRING or self.name == active:
            return False
        if self.state is VersionState.ACTIVE:
            return True
        return self.name != hold and (hold is not None or (active is not None and self.name < active))

    def switchable(self, active: str | None, hold: str | None) -> bool:
        """True if the version should be switched to once its gate allows it."""
        if self.state not in {VersionState.KNOWN, VersionState.RETIRING}:
            return False
        if hold is not None:
            return self.name == hold
        if active is not None and self.name < active:
            return False
        # A version that a hold left behind returns only while the source or other nodes have it.
        return self.state is VersionState.KNOWN or self.is_shown

    @property
    def is_shown(self) -> bool:
        """True if the source shows the version whole, or if other nodes have it and no partition should be here."""
        if self.is_elsewhere:
            return self.heard is not None
        return self.source is not None and self.source.waiting_for is None

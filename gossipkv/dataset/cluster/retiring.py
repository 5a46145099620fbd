"""Retirement: the conditions under which an old version may leave this node.

No client here has asked for it for `retire_after`, and no other node can come to need it.  Every member that has not
left has stated its active version, and none has this one active, held or next.  Dead members, and members silent about
the database, are waited for up to `retire_max`.  A member that is not ALIVE may have switched unheard.  Such a member
may need any version from its active one to the newest that it published or asked about.

    KEPT ──quiet, and no member needs it──► LEAVING ──a grace later──► FREE
      ▲                                        │
      └──── requested, or needed after all ────┘

A LEAVING version is withdrawn and still answered, since other nodes may not have heard, and reads may be on their way.
Client requests and a member's question return it to KEPT: the member's gate may pass by the answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, final

if TYPE_CHECKING:
    from collections.abc import Iterable


class Needs(NamedTuple):
    """The versions that a member needs, or may come to need."""

    member: str
    active: str | None  # None: no version is active, or the member has not said.
    next: str | None = None
    hold: str | None = None
    newest: str | None = None  # The member may have switched unheard to any version from `active` to this one.

    def has(self, version: str) -> bool:
        if self.active is None or version in {self.active, self.next, self.hold}:
            return True
        return self.newest is not None and self.active < version <= self.newest


def needed_by(version: str, needs: Iterable[Needs]) -> list[str]:
    """Return the members that need this version, or may come to need it, sorted."""
    return sorted(member_needs.member for member_needs in needs if member_needs.has(version))


@final
class Retiring:
    """The old versions of one database."""

    def __init__(self, *, retire_after_ms: int, grace_ms: int) -> None:
        """Create it; within `grace_ms` all nodes hear of a withdrawal, and earlier requests are answered."""
        self.retire_after_ms = retire_after_ms
        self._grace_ms = grace_ms
        self._leaving: dict[str, int] = {}  # When each version became LEAVING.
        self._noted_ms: dict[str, int] = {}  # When a member last asked about a version.

    def note(self, version: str, *, now_ms: int) -> None:
        """Note that a member asked about a version, and may switch to it."""
        self._noted_ms[version] = now_ms

    def is_leaving(self, version: str) -> bool:
        """True if the version is withdrawn and counts in no gate."""
        return version in self._leaving

    def is_free(self, version: str, *, now_ms: int) -> bool:
        since_ms = self._leaving.get(version)
        return since_ms is not None and now_ms >= since_ms + self._grace_ms

    def step(self, version: str, *, asked_ms: int, is_needed: bool, now_ms: int) -> None:
        """Update an old version from its last request and the members' needs."""
        quiet_ms = max(asked_ms, self._noted_ms.get(version, asked_ms)) + self.retire_after_ms
        if is_needed or now_ms < quiet_ms:
            self._leaving.pop(version, None)
        else:
            self._leaving.setdefault(version, now_ms)

    def keep(self, version: str) -> None:
        """Note that a version is not old any more, or not here."""
        self._leaving.pop(version, None)
        self._noted_ms.pop(version, None)

    def wakes_at_ms(self, version: str, *, asked_ms: int, is_needed: bool) -> int | None:
        """Return when time alone changes the version's state."""
        since_ms = self._leaving.get(version)
        if since_ms is not None:
            return since_ms + self._grace_ms
        if is_needed:
            return None
        return max(asked_ms, self._noted_ms.get(version, asked_ms)) + self.retire_after_ms

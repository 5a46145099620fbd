"""When an old version may go from this node.

Nobody here has asked for it for `retire_after`, and nobody elsewhere can come to need it: every member that has not
left has said which version is active there, and none has this one active, held, or as the one that it would switch to
next.  The dead are waited for for `retire_max`, and so is who says nothing of the database: it takes no part in it.  So
a laggard that cannot pass the next gate keeps its version on all nodes.  Who is not ALIVE may have switched without a
word of it that was heard: what it had active is needed, and all that is newer, up to the newest that it published or
asked about.  Its word may be lost with it, its question is not: who answered is an owner by whose answer it switched.

    KEPT ──quiet and needed by nobody──► LEAVING ──a grace later──► FREE
      ▲                                     │
      └──── asked for, or needed after all ─┘

While it is LEAVING its statement is withdrawn, and it is still answered: others may not have heard that yet, and a read
may be on its way.  Whoever asks meanwhile keeps it, and so does a member that asks what is served of it: its gate may
pass by that answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, final

if TYPE_CHECKING:
    from collections.abc import Iterable


class Needs(NamedTuple):
    """The versions that a member needs, or may come to need."""

    member: str
    active: str | None  # None: none yet, or it has not said so.
    next: str | None = None
    hold: str | None = None
    newest: str | None = None  # What it may have switched to unheard: anything from `active` to this.

    def has(self, version: str) -> bool:
        """Whether it needs this version."""
        if self.active is None or version in {self.active, self.next, self.hold}:
            return True
        return self.newest is not None and self.active < version <= self.newest


def needed_by(version: str, needs: Iterable[Needs]) -> list[str]:
    """Return the members that need this version, or may come to need it, sorted."""
    return sorted(each.member for each in needs if each.has(version))


@final
class Retiring:
    """The old versions of one database."""

    def __init__(self, *, retire_after_ms: int, grace_ms: int) -> None:
        """`grace_ms`: until everybody has heard of a withdrawal, and what was on its way then is answered."""
        self.retire_after_ms = retire_after_ms
        self._grace_ms = grace_ms
        self._leaving: dict[str, int] = {}  # Since when.
        self._noted_ms: dict[str, int] = {}  # When a member last asked what is served of a version.

    def note(self, version: str, *, now_ms: int) -> None:
        """Take in that a member asked what is served of a version: it may switch to it."""
        self._noted_ms[version] = now_ms

    def is_leaving(self, version: str) -> bool:
        """Whether nothing of it is published any more, and it counts in no gate."""
        return version in self._leaving

    def is_free(self, version: str, *, now_ms: int) -> bool:
        """Whether it may go."""
        since_ms = self._leaving.get(version)
        return since_ms is not None and now_ms >= since_ms + self._grace_ms

    def step(self, version: str, *, asked_ms: int, is_needed: bool, now_ms: int) -> None:
        """Look at a version that is old here: when it was last asked for, and whether a member needs it."""
        quiet_ms = max(asked_ms, self._noted_ms.get(version, asked_ms)) + self.retire_after_ms
        if is_needed or now_ms < quiet_ms:
            self._leaving.pop(version, None)
        else:
            self._leaving.setdefault(version, now_ms)

    def keep(self, version: str) -> None:
        """Take in that it is not old any more, or not here."""
        self._leaving.pop(version, None)
        self._noted_ms.pop(version, None)

    def wakes_at_ms(self, version: str, *, asked_ms: int, is_needed: bool) -> int | None:
        """When time alone takes it further."""
        since_ms = self._leaving.get(version)
        if since_ms is not None:
            return since_ms + self._grace_ms
        if is_needed:
            return None
        return max(asked_ms, self._noted_ms.get(version, asked_ms)) + self.retire_after_ms

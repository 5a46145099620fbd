"""The statements that this node publishes of its versions, and when.

The first statement of a version goes out at once, and so does the one with which a build ends: this node counts on it
at once, and may switch.  What else follows is told once a second, and what only says how far a build is, more seldom: a
cluster hears of each change on every node.  What takes something back goes out at once, since a copy is dropped only
when it is published no more.

A branch has room for so much.  What it has no room for is left out, the versions that matter least first: the active
one comes before the one that is to be next, and newer ones before older.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, final

from gossipkv.dataset.cluster.effects import Publish, PublishDatabase, Withdraw

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gossipkv.placement.statement import DatabaseStatement, Statement

COALESCED_MS: Final = 1_000
PROGRESS_MS: Final = 10_000
AGAIN_MS: Final = 10_000  # After a refusal: others of this node's keys may have gone.


@final
class Publication:
    """The statements of one database."""

    def __init__(self) -> None:
        self._shown: dict[str, Statement] = {}
        self._before: dict[str, Statement | None] = {}  # What stands in the tree if the last was refused.
        self._told_ms: dict[str, int] = {}
        self._refused_ms: dict[str, int] = {}
        self._due_ms: int | None = None

    @property
    def wakes_at_ms(self) -> int | None:
        """When to call `step`, besides after each change."""
        return self._due_ms

    @property
    def left_out(self) -> list[str]:
        """Versions that there is no room for, in whole or in their latest state."""
        return sorted(self._refused_ms)

    def shown(self, version: str) -> Statement | None:
        """Return what the tree shows of a version."""
        return self._shown.get(version)

    def step(
        self, wanted: Mapping[str, Statement], priority: Iterable[str], *, now_ms: int
    ) -> list[Publish | Withdraw]:
        """Return what is to be published now.

        `wanted`: what may be said now, by version; `priority`: all of these versions, what matters most first.
        """
        self._due_ms = None
        gone = [version for version in self._shown if version not in wanted]
        effects: list[Publish | Withdraw] = [self._withdraw(version) for version in gone]
        for version in priority:
            statement = wanted[version]
            due_ms = self._when(version, statement, now_ms)
            if due_ms is None:
                continue
            if due_ms > now_ms:
                self._due_ms = due_ms if self._due_ms is None else min(self._due_ms, due_ms)
                continue
            self._before[version] = self._shown.get(version)
            self._shown[version] = statement
            self._told_ms[version] = now_ms
            self._refused_ms.pop(version, None)
            effects.append(Publish(version, statement))
        return effects

    def refused(self, version: str, priority: Iterable[str], *, now_ms: int) -> list[Publish | Withdraw]:
        """Take in that there is no room for what was to be published; returns what makes room for it."""
        statement, before = self._shown.pop(version), self._before.pop(version, None)
        if before is not None:
            self._shown[version] = before
        self._told_ms.pop(version, None)
        shown = [each for each in priority if each in self._shown or each == version]
        if shown[-1] != version:
            self._refused_ms[shown[-1]] = now_ms
            withdrawn = self._withdraw(shown[-1])
            self._before[version], self._shown[version], self._told_ms[version] = before, statement, now_ms
            return [withdrawn, Publish(version, statement)]
        self._refused_ms[version] = now_ms
        if before is not None and (before.ready - statement.ready or before.identity != statement.identity):
            return [self._withdraw(version)]  # What is said must not be more than what is so.
        return []

    def make_room(self, priority: Iterable[str], *, now_ms: int) -> list[Withdraw]:
        """Return the withdrawal of what matters least, to be tried again; none, if only what matters most is shown."""
        shown = [each for each in priority if each in self._shown]
        if len(shown) <= 1:
            return []
        self._refused_ms[shown[-1]] = now_ms
        return [self._withdraw(shown[-1])]

    def _withdraw(self, version: str) -> Withdraw:
        del self._shown[version]
        self._told_ms.pop(version, None)
        return Withdraw(version)

    def _when(self, version: str, statement: Statement, now_ms: int) -> int | None:
        """When it may be told; None: it is."""
        shown = self._shown.get(version)
        refused_ms = self._refused_ms.get(version)
        if shown == statement:
            self._refused_ms.pop(version, None)
            return None
        if shown is not None and (shown.identity != statement.identity or shown.ready - statement.ready):
            return now_ms
        if refused_ms is not None:
            return refused_ms + AGAIN_MS
        if shown is None or (shown.building and not statement.building):
            return now_ms
        is_progress = replace(shown, progress=statement.progress) == statement
        return self._told_ms[version] + (PROGRESS_MS if is_progress else COALESCED_MS)


@final
class DatabasePublication:
    """What this node says of the database as a whole: at once, but for what it might switch to next."""

    def __init__(self) -> None:
        self._shown: DatabaseStatement | None = None
        self._shown_ms = 0
        self._not_before_ms = 0  # There was no room.
        self.wakes_at_ms: int | None = None  # When to call `step`, besides after each change.

    def step(self, said: DatabaseStatement, *, now_ms: int) -> list[PublishDatabase]:
        """Return what is to be published now."""
        self.wakes_at_ms = None
        shown = self._shown
        if shown == said:
            return []
        if now_ms < self._not_before_ms:
            self.wakes_at_ms = self._not_before_ms
            return []
        if shown is not None and replace(said, next=shown.next, newest=shown.newest) == shown:
            due_ms = self._shown_ms + COALESCED_MS
            if due_ms > now_ms:
                self.wakes_at_ms = due_ms
                return []
        self._shown, self._shown_ms = said, now_ms
        return [PublishDatabase(said)]

    def refused(self, *, now_ms: int) -> None:
        """Take in that the tree has no room for it: what it shows is older, or nothing."""
        self._shown, self._not_before_ms = None, now_ms + AGAIN_MS

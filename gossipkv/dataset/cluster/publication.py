"""The statements that this node publishes of its versions, and their timing.

The first statement of a version goes out at once.  So does the one that ends a build, since this node counts on it and
may switch.  Other changes go out once a second, and mere progress every ten seconds, as each change reaches every node.
Withdrawals go out at once: a copy is dropped only when it is no longer published.

A branch of the tree has limited room.  The least important versions are left out: the active version comes first, then
the next one, then newer before older.
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
RETRY_MS: Final = 10_000  # Retry after a refusal, as other keys of this node may have gone.


@final
class Publication:
    """The statements of one database."""

    def __init__(self) -> None:
        self._shown: dict[str, Statement] = {}
        # The previous statement, which the tree still shows if the last one is refused.
        self._before: dict[str, Statement | None] = {}
        self._published_ms: dict[str, int] = {}
        self._refused_ms: dict[str, int] = {}
        self._due_ms: int | None = None

    @property
    def wakes_at_ms(self) -> int | None:
        """Return when to call `step`, besides after each change."""
        return self._due_ms

    @property
    def left_out(self) -> list[str]:
        """Return the versions whose latest statement does not fit into the tree."""
        return sorted(self._refused_ms)

    def shown(self, version: str) -> Statement | None:
        return self._shown.get(version)

    def step(
        self, wanted: Mapping[str, Statement], priority: Iterable[str], *, now_ms: int
    ) -> list[Publish | Withdraw]:
        """Return the statements to publish and to withdraw now.

        `wanted`: the present statements by version; `priority`: all of these versions, the most important first.
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
            self._published_ms[version] = now_ms
            self._refused_ms.pop(version, None)
            effects.append(Publish(version, statement))
        return effects

    def refused(self, version: str, priority: Iterable[str], *, now_ms: int) -> list[Publish | Withdraw]:
        """Note that the tree has no room for a statement; return the effects that make room."""
        statement, before = self._shown.pop(version), self._before.pop(version, None)
        if before is not None:
            self._shown[version] = before
        self._published_ms.pop(version, None)
        shown = [candidate for candidate in priority if candidate in self._shown or candidate == version]
        if shown[-1] != version:
            self._refused_ms[shown[-1]] = now_ms
            withdrawn = self._withdraw(shown[-1])
            self._before[version], self._shown[version], self._published_ms[version] = before, statement, now_ms
            return [withdrawn, Publish(version, statement)]
        self._refused_ms[version] = now_ms
        if before is not None and (before.ready - statement.ready or before.identity != statement.identity):
            return [self._withdraw(version)]  # A statement must not claim more than is true.
        return []

    def make_room(self, priority: Iterable[str], *, now_ms: int) -> list[Withdraw]:
        """Return the withdrawal of the least important statement, before a retry; none if at most one is shown."""
        shown = [version for version in priority if version in self._shown]
        if len(shown) <= 1:
            return []
        self._refused_ms[shown[-1]] = now_ms
        return [self._withdraw(shown[-1])]

    def _withdraw(self, version: str) -> Withdraw:
        del self._shown[version]
        self._published_ms.pop(version, None)
        return Withdraw(version)

    def _when(self, version: str, statement: Statement, now_ms: int) -> int | None:
        """Return when the statement may be published; None: it is shown already."""
        shown = self._shown.get(version)
        refused_ms = self._refused_ms.get(version)
        if shown == statement:
            self._refused_ms.pop(version, None)
            return None
        if shown is not None and (shown.identity != statement.identity or shown.ready - statement.ready):
            return now_ms
        if refused_ms is not None:
            return refused_ms + RETRY_MS
        if shown is None or (shown.building and not statement.building):
            return now_ms
        is_progress = replace(shown, progress=statement.progress) == statement
        return self._published_ms[version] + (PROGRESS_MS if is_progress else COALESCED_MS)


@final
class DatabasePublication:
    """The statement about the database as a whole: published at once, but for news of the next or newest version."""

    def __init__(self) -> None:
        self._shown: DatabaseStatement | None = None
        self._shown_ms = 0
        self._not_before_ms = 0  # The end of the pause after a refusal.
        self.wakes_at_ms: int | None = None  # When to call `step`, besides after each change.

    def step(self, statement: DatabaseStatement, *, now_ms: int) -> list[PublishDatabase]:
        self.wakes_at_ms = None
        shown = self._shown
        if shown == statement:
            return []
        if now_ms < self._not_before_ms:
            self.wakes_at_ms = self._not_before_ms
            return []
        if shown is not None and replace(statement, next=shown.next, newest=shown.newest) == shown:
            due_ms = self._shown_ms + COALESCED_MS
            if due_ms > now_ms:
                self.wakes_at_ms = due_ms
                return []
        self._shown, self._shown_ms = statement, now_ms
        return [PublishDatabase(statement)]

    def refused(self, *, now_ms: int) -> None:
        """Note that the tree has no room for the statement, and shows an older one or none."""
        self._shown, self._not_before_ms = None, now_ms + RETRY_MS

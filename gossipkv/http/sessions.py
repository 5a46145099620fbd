"""What a gateway that stands alone remembers of each database, so that what it answers never steps back."""

from __future__ import annotations

from typing import final


@final
class Session:
    """The newest version that was answered from, by database; versions compare as strings.

    It remembers databases that nodes have answered for, so it does not grow by what clients invent.
    """

    def __init__(self) -> None:
        self._newest: dict[str, str] = {}

    def min_version(self, database: str) -> str | None:
        """Return what an answer must not be older than, or None before the first."""
        return self._newest.get(database)

    def saw(self, database: str, version: str) -> None:
        """Remember that a version has answered."""
        if version > self._newest.get(database, ""):
            self._newest[database] = version

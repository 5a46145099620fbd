"""The store in which decisions are kept, as a Protocol: whoever only speaks of one loads none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from gossipkv.storage.engine.shell import Batch


class Store(Protocol):
    """The methods that are needed of the store under the tables."""

    def get(self, space: int, key: bytes) -> bytes | None:
        """Return what is synced under a key."""
        ...

    @property
    def first_space(self) -> int | None:
        """The lowest space that was made and not dropped, as of the last sync."""
        ...

    def scan(
        self, space: int, start: bytes | None = None, end: bytes | None = None
    ) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
        """Return one page of records, and where the next one begins."""
        ...

    def reserve_space(self) -> int:
        """Return the number of a space that a batch may make."""
        ...

    async def write(self, batch: Batch) -> int:
        """Write a batch; returns when it is synced."""
        ...

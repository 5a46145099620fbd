"""The interface of the store of decisions, so that its users need not import a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from gossipkv.storage.engine.shell import Batch


class RegisterStore(Protocol):
    """The methods of a table store that registers need."""

    def get(self, space: int, key: bytes) -> bytes | None:
        """Return the synced value of a key."""

    @property
    def first_space(self) -> int | None:
        """The lowest space that was made and not dropped, as of the last sync."""

    @property
    def lack(self) -> str | None:
        """The missing room in words, while the store takes only writes that free room; None if there is room."""

    def scan(
        self, space: int, start: bytes | None = None, end: bytes | None = None
    ) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
        """Return one page of records, and the start of the next."""

    def reserve_space(self) -> int:
        """Return the number of a space that a batch may make."""

    async def write(self, batch: Batch) -> int:
        """Write a batch; return when it is synced."""

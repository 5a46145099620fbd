"""The store in which copies are kept, as a Protocol: whoever only speaks of one loads none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.errors import StorageError
    from gossipkv.storage.engine.log_reader import Cursor, Operations
    from gossipkv.storage.engine.shell import Batch


class FollowedStore(Protocol):
    """What is needed of the store under the tables; see `storage.engine.shell.Store`."""

    @property
    def synced_position(self) -> int: ...
    @property
    def refusal(self) -> str | None: ...
    @property
    def first_space(self) -> int | None: ...
    @property
    def log_floor(self) -> int: ...
    def get(self, space: int, key: bytes, /) -> bytes | None: ...
    def scan(
        self,
        space: int,
        start: bytes | None = None,
        end: bytes | None = None,
        /,
        *,
        reverse: bool = False,
        limit: int | None = None,
    ) -> tuple[list[tuple[bytes, bytes]], bytes | None]: ...
    def spaces(self) -> list[int]: ...
    def size_bytes(self, space: int, /) -> int: ...
    def reserve_space(self) -> int: ...
    def append(self, batch: Batch, on_synced: Callable[[StorageError | None], object], /) -> int: ...
    def follow(self, spaces: frozenset[int], position: int, /) -> Cursor: ...
    async def read_log(self, cursor: Cursor, /) -> tuple[list[tuple[int, Operations]], int]: ...

from collections.abc import Iterable, Sequence
from typing import final

from gossipkv.storage.engine._memtable import Memtable
from gossipkv.storage.sorted_file import SortedFile

PAGE_BYTES: int

@final
class View:
    def __new__(cls, memtables: Iterable[Memtable], runs: Iterable[Sequence[tuple[bytes, SortedFile]]]) -> View: ...
    def get(self, space: int, key: bytes) -> bytes | None: ...
    def get_many(self, space: int, keys: Sequence[bytes]) -> list[bytes | None]: ...
    def scan(
        self,
        space: int,
        start: bytes | None = None,
        end: bytes | None = None,
        *,
        reverse: bool = False,
        limit: int = -1,
        most_bytes: int = ...,
    ) -> tuple[list[tuple[bytes, bytes]], bytes | None]: ...
    def size_bytes(self, space: int, start: bytes = b"", end: bytes | None = None) -> int: ...
    def rows(self, space: int, start: bytes = b"", end: bytes | None = None) -> int: ...
    def middle_key(self, space: int, start: bytes = b"", end: bytes | None = None) -> bytes | None: ...
    def close(self) -> None: ...

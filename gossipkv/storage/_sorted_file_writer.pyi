from collections.abc import Callable
from typing import final

from gossipkv.environment.seam import Files

WRITE_NEW: int
HEADER_MAGIC: bytes
FOOTER_MAGIC: bytes

@final
class SortedFileWriter:
    path: str
    def __new__(
        cls,
        files: Files,
        path: str,
        *,
        memory_bytes: int,
        compression: int,
        seed: int,
        common_prefix: bytes,
        metadata: bytes,
        on_write: Callable[[int], object] | None = None,
    ) -> SortedFileWriter: ...
    @property
    def size_bytes(self) -> int: ...
    def finish(self, duplicates: int = 0) -> int: ...
    def abort(self) -> None: ...

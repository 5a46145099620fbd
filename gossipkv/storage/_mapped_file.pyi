from os import PathLike
from types import TracebackType
from typing import Self

from _typeshed import ReadableBuffer
from typing_extensions import disjoint_base

from gossipkv.environment.seam import Files

READ: int
HEADER_MAGIC: bytes
FOOTER_MAGIC: bytes

@disjoint_base
class MappedFile:
    name: str
    def __new__(
        cls,
        source: str | PathLike[str] | ReadableBuffer,
        *,
        files: Files | None = None,
        name: str | None = None,
        cache_bytes: int = ...,
    ) -> Self: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def metadata(self) -> bytes: ...
    @property
    def lost_at(self) -> int | None: ...
    def pin(self) -> None: ...
    def unpin(self) -> None: ...
    def forget_checks(self, part: int = 0, parts: int = 1) -> None: ...
    def distrust(self) -> None: ...
    def is_checked(self, page: int) -> bool: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

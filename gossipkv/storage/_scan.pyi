from collections.abc import Iterator
from typing import final

from gossipkv.storage._records import RecordReader

__pyx_capi__: dict[str, object]

@final
class Scan(Iterator[tuple[bytes, bytes]]):
    def __new__(cls, file: RecordReader, start: bytes | None, end: bytes | None, reverse: bool, limit: int) -> Scan: ...
    def __next__(self) -> tuple[bytes, bytes]: ...
    def close(self) -> None: ...

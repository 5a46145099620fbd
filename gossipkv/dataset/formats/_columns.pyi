from typing import Self, final

from typing_extensions import Buffer

from gossipkv.storage.batch import Batch

@final
class Memory:
    def __new__(cls, buffer: Buffer) -> Self: ...

@final
class Column:
    def __new__(
        cls,
        data: Buffer | None,
        count: int,
        *,
        first: int = 0,
        width: int = 0,
        offsets: Buffer | None = None,
        offset_bytes: int = 4,
    ) -> Self: ...
    @property
    def count(self) -> int: ...
    def chosen(self, indices: Buffer | None, index_bytes: int, *, first: int = 0, count: int = 0) -> Column: ...
    def longest(self) -> int: ...
    def size_of(self, row: int) -> int | None: ...

def fill(batch: Batch, keys: Column, values: Column, row: int, max_value_bytes: int, offset: int) -> int: ...

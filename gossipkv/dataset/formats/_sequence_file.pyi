from typing import final

from gossipkv.dataset.formats.codecs import Bytes, Decompress
from gossipkv.storage.batch import Batch

KINDS: dict[str, int]
REASONS: dict[int, str]

def sum_of_lengths(lengths: Bytes, count: int, name: str, offset: int) -> int: ...

@final
class Block:
    def __new__(
        cls,
        buffers: list[Bytes],
        count: int,
        key_class: str,
        value_class: str,
        max_value_bytes: int,
        name: str,
        offset: int,
    ) -> Block: ...
    def fill(self, batch: Batch) -> bool: ...

@final
class RecordDecoder:
    def __new__(
        cls,
        sync: bytes,
        key_class: str,
        value_class: str,
        max_value_bytes: int,
        name: str,
        decompress: Decompress | None = None,
    ) -> RecordDecoder: ...
    @property
    def wanted(self) -> int: ...
    def fill(self, batch: Batch, buffer: bytes, start: int, offset: int) -> int: ...

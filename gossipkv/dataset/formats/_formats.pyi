from collections.abc import Sequence
from typing import Self, final

from typing_extensions import Buffer, disjoint_base

from gossipkv.dataset.formats.codecs import Bytes, Decompress
from gossipkv.storage.batch import RecordBatch

__pyx_capi__: dict[str, object]

@disjoint_base
class Lines:
    def __new__(cls, name: str, max_value_bytes: int, *_args: object) -> Self: ...
    @property
    def line(self) -> int: ...
    @property
    def max_value_bytes(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def offset(self) -> int: ...
    def feed(self, chunk: bytes) -> None: ...
    def fill(self, batch: RecordBatch) -> bool: ...
    def finish(self, batch: RecordBatch) -> bool: ...

@final
class JsonLines(Lines):
    def __new__(
        cls,
        name: str,
        max_value_bytes: int,
        max_line_bytes: int,
        keys: str | Sequence[str],
        values: str | Sequence[str],
        constants: dict[str, bytes] | None = None,
        separator: bytes | None = None,
        omits_nulls: bool = True,
    ) -> Self: ...

@final
class HeldBuffer:
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
        valid: Buffer | None = None,
    ) -> Self: ...
    @property
    def count(self) -> int: ...
    def chosen(self, indices: Buffer | None, index_bytes: int, *, first: int = 0, count: int = 0) -> Column: ...
    def longest(self) -> int: ...
    def size_of(self, row: int) -> int | None: ...

def fill_columns(
    batch: RecordBatch, keys: Column, values: Column, row: int, max_value_bytes: int, offset: int
) -> int: ...

LAYOUTS: dict[str, int]
PART_KINDS: dict[str, int]

@final
class EncodedRows: ...

@final
class RowEncoder:
    def __new__(
        cls, layout: int, kinds: list[int], prefixes: list[bytes], separator: bytes = b"", omits_nulls: bool = False
    ) -> Self: ...
    @property
    def fault(self) -> int: ...
    def encode(self, columns: list[Column], first: int, limit_bytes: int) -> Column: ...

def end_of_rows(data: bytes, delimiter: int, quote: int, escape: int, first: bool = False) -> int: ...
def uuid_texts(uuids: Column) -> Column: ...

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
    def fill(self, batch: RecordBatch) -> bool: ...

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
    def fill(self, batch: RecordBatch, buffer: bytes, start: int, offset: int) -> int: ...

def fill_records(batch: RecordBatch, data: bytes, at: int, offset: int, step: int) -> int: ...
def first_longer(batch: RecordBatch, limit: int) -> int: ...
def record_span(data: bytes, at: int) -> int: ...
def decompress_block(data: bytes, start: int, end: int, capacity: int) -> bytes | None: ...

@final
class Placement:
    def __new__(cls, function: int, partition: int, partitions: int) -> Placement: ...
    def first_wrong(self, batch: RecordBatch) -> int: ...

@final
class TabSeparatedLines(Lines):
    def __new__(cls, name: str, max_value_bytes: int) -> Self: ...

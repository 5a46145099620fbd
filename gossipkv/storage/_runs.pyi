from collections.abc import Callable, Iterator
from typing import Self, final

from typing_extensions import disjoint_base

from gossipkv.storage._scratch import Scratch
from gossipkv.storage._sorted_file_writer import SortedFileWriter

@disjoint_base
class OrderedRecords:
    def write_group(self, writer: SortedFileWriter, group: int, limit: int) -> int: ...

@disjoint_base
class Source: ...

@final
class OrderedSource(Source):
    def __new__(cls, records: OrderedRecords) -> OrderedSource: ...

@disjoint_base
class Merge(OrderedRecords):
    def __new__(cls, *args: object, **kwargs: object) -> Self: ...

@final
class RunReader(Source):
    def __new__(
        cls,
        scratch: Scratch,
        places: bytes,
        largest_part: int,
        level: int = 0,
        first_group: int = 0,
        end_group: int = 0xFFFFFFFF,
        borrowed: bool = False,
    ) -> RunReader: ...
    def share(self, first_group: int, end_group: int) -> RunReader: ...
    def close(self) -> None: ...

@final
class Runs(Merge):
    def __new__(cls, make_scratch: Callable[[], Scratch], memory_bytes: int) -> Runs: ...
    def __len__(self) -> int: ...
    def add(self, run: RunReader) -> None: ...
    def __iter__(self) -> Iterator[RunReader]: ...
    def start(self, newest: Source | None = None) -> None: ...
    def close(self) -> None: ...

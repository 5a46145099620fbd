from collections.abc import Iterable, Sequence
from typing import Self, final

from gossipkv.storage.sorted_file import SortedFile

__pyx_capi__: dict[str, object]

@final
class PublishedTable:
    def __new__(
        cls,
        databases: Iterable[
            tuple[str, str | None, Sequence[tuple[str, int, Sequence[SortedFile | None], bytes | None, int]]]
        ],
    ) -> Self: ...
    def release(self) -> None: ...
    def count(self, database: str, version: str, by_name: bool) -> None: ...
    def requests(self) -> dict[tuple[str, str], tuple[int, int, int, int]]: ...
    def requests_of(self, database: str, version: str) -> int: ...
    def inherit(self, older: PublishedTable) -> None: ...

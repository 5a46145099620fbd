from collections.abc import Iterable, Sequence
from typing import Self, TypeAlias, final

from gossipkv.storage.sorted_file import SortedFile

__pyx_capi__: dict[str, object]

# Name, partition function, files, identity, who may have it; and the line of HTTP that says when it was modified.
_Version: TypeAlias = (
    tuple[str, int, Sequence[SortedFile | None], bytes | None, int]
    | tuple[str, int, Sequence[SortedFile | None], bytes | None, int, bytes]
)

@final
class PublishedTable:
    def __new__(
        cls,
        databases: Iterable[tuple[str, str | None, Sequence[_Version]]],
    ) -> Self: ...
    def release(self) -> None: ...
    def count(self, database: str, version: str, by_name: bool) -> None: ...
    def reads(self) -> dict[str, dict[str, int]]: ...
    def requests(self) -> dict[tuple[str, str], tuple[int, int, int, int]]: ...
    def requests_of(self, database: str, version: str) -> int: ...
    def inherit(self, older: PublishedTable) -> None: ...

from collections.abc import Iterable, Mapping, Sequence
from types import EllipsisType
from typing import Self, final

@final
class Records:
    def __new__(
        cls,
        keys: Iterable[bytes],
        values: Mapping[str | None, Sequence[bytes | EllipsisType | None]],
        *,
        present: int | None = None,
        ordered: bool = False,
        whole: bool = False,
    ) -> Self: ...
    @property
    def count(self) -> int: ...
    @property
    def present(self) -> int: ...
    def __len__(self) -> int: ...
    def record(self, number: int, version: str | None = None) -> tuple[bytes, bytes | EllipsisType | None]: ...

def as_records(records: Records | Iterable[tuple[bytes, bytes | EllipsisType | None]]) -> Records: ...

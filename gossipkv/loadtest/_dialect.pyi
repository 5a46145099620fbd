from types import EllipsisType
from typing import Self

from typing_extensions import disjoint_base

from gossipkv.loadtest._records import Records

KIND_NAMES: tuple[str, ...]

@disjoint_base
class Dialect:
    def __new__(cls) -> Self: ...
    @property
    def truth(self) -> Records: ...
    @property
    def count(self) -> int: ...
    def __len__(self) -> int: ...
    def record(self, number: int) -> tuple[bytes, bytes | EllipsisType | None]: ...

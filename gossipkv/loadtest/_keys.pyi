from collections.abc import Iterable, Sequence
from typing import Self, final

from gossipkv.loadtest._dialect import Dialect

SHAPE_NAMES: tuple[str, ...]

@final
class KeyChooser:
    def __new__(
        cls,
        shape: str,
        size: int,
        *,
        seed: int,
        population: Sequence[int] | None = None,
        theta: float = 0.99,
        hot_requests: float = 0.9,
        hot_keys: float = 0.1,
        first: int = 0,
        stride: int = 1,
        absent_first: int = 0,
        absent_count: int = 0,
        misses: float = 0,
    ) -> Self: ...
    def draws(self, count: int) -> list[int]: ...

@final
class KeysAhead:
    def __new__(cls, chooser: KeyChooser, dialect: Dialect) -> Self: ...
    def draws(self, count: int) -> list[int]: ...

@final
class KindChooser:
    def __new__(cls, weights: Sequence[float], *, seed: int) -> Self: ...
    def draws(self, count: int) -> list[int]: ...

def shuffled(numbers: Iterable[int], seed: int) -> list[int]: ...

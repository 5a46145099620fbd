"""What a round asks of an engine, ours or a peer's: the same few operations, with as little Python as can be."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.bench.data import Record


class Engine(ABC):
    """One open store.  `get` is the engine's own bound function, so that no frame of ours is in the figure."""

    name: ClassVar[str]
    settings: ClassVar[str]  # Printed beside the figures, with the reason.
    batched: ClassVar[bool] = True  # Has a call for many keys.
    ordered: ClassVar[bool] = True  # Has scans in key order.
    get: Callable[[bytes], bytes | None]

    @classmethod
    def missing(cls) -> str | None:
        """What must be installed before this engine can run here."""
        return None

    @classmethod
    @abstractmethod
    def build(cls, path: Path, records: list[Record]) -> None:
        """Write all records, given unsorted, the way an expert of this engine would; on the disk when it returns."""

    @classmethod
    @abstractmethod
    def open(cls, path: Path, records: list[Record]) -> Engine:
        """Open what `build` wrote at `path`; the records are for an engine that lives in memory."""

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        """The values in the order asked, or only those found where the engine's API is so."""
        raise NotImplementedError(keys)

    def scan(self) -> Iterator[Record]:
        """Every record in key order."""
        raise NotImplementedError

    def first(self, start: bytes, count: int) -> list[Record]:
        """The first `count` records from `start` on."""
        raise NotImplementedError(start, count)

    @abstractmethod
    def close(self) -> None:
        """Let go of files and memory."""

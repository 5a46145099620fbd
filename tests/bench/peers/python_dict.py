"""A dict: the cost of a lookup in a Python program that has everything as objects in its own memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.bench.peers.base import Engine

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

    from tests.bench.data import Record


class PythonDict(Engine):
    """A dict has no file, no order, and takes about 300 bytes of memory for a record of 116."""

    name = "dict"
    settings = "dict(records); no file, so it takes no part in builds"
    batched = False
    ordered = False

    def __init__(self, records: list[Record]) -> None:
        self._dict = dict(records)
        self.get = self._dict.get

    @classmethod
    def build(cls, path: Path, records: list[Record]) -> None:
        del path, records

    @classmethod
    def open(cls, path: Path, records: list[Record]) -> Self:
        del path
        return cls(records)

    def close(self) -> None:
        self._dict = {}
        self.get = self._dict.get

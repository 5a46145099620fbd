"""tinycdb: a constant hash file, the smallest engine that answers a get from a map.

PyPI has no binding that builds on Python 3, so a binding of a few lines (`_tinycdb.pyx`) is compiled on first use into
the build directory, against Debian's libcdb.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench import compiled
from tests.bench.peers.base import Engine

if TYPE_CHECKING:
    from tests.bench.data import Record

_binding = partial(compiled.from_cython, Path(__file__).with_name("_tinycdb.pyx"), "-O3", "-lcdb")


class TinyCDB(Engine):
    """Hash tables behind the records, no order, no checksum."""

    name = "tinycdb"
    settings = "Debian's libcdb behind a Cython binding of one call; its builds neither sort nor sync, so no goal there"
    batched = False
    ordered = False

    def __init__(self, path: Path) -> None:
        self._reader = _binding().Reader(str(path))
        self.get = self._reader.get

    @classmethod
    def missing(cls) -> str | None:
        try:
            _binding()
        except ImportError as error:
            return f"apt install libcdb-dev, pip install cython, and a C compiler ({error})"
        return None

    @classmethod
    def build(cls, path: Path, records: list[Record]) -> None:
        _binding().build(str(path), records)

    def close(self) -> None:
        del self.get
        self._reader.close()

"""LMDB: a mapped B+ tree, and the closest relative of a sorted file that is read in place."""

from __future__ import annotations

from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING

from tests.bench.peers.base import Engine

try:
    import lmdb
except ImportError:
    lmdb = None

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.bench.data import Record

MAP_BYTES = 16 << 30


class Lmdb(Engine):
    """LMDB with one read transaction for the whole run, as in a read-only process."""

    name = "LMDB"
    settings = (
        "read-only, lock=False and one long read transaction (no lock table to touch), txn.get, cursor.getmulti, "
        "iter over a cursor; built by sorting (itemgetter: the quicker of Python's ways) and appending in one "
        "transaction over a writable map, synced"
    )

    def __init__(self, path: Path, **options: bool) -> None:
        self._environment = lmdb.open(str(path), subdir=False, readonly=True, lock=False, map_size=MAP_BYTES, **options)
        self._transaction = self._environment.begin()
        self.cursor = self._transaction.cursor()
        self.get = self._transaction.get

    @classmethod
    def missing(cls) -> str | None:
        return "pip install lmdb" if lmdb is None else None

    @classmethod
    def build(cls, path: Path, records: list[Record]) -> None:
        environment = lmdb.open(str(path), subdir=False, map_size=MAP_BYTES, writemap=True)
        with environment.begin(write=True) as transaction:
            transaction.cursor().putmulti(sorted(records, key=itemgetter(0)), dupdata=False, append=True)
        environment.sync(True)  # noqa: FBT003  # Positional only.
        environment.close()

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        return self.cursor.getmulti(keys)

    def scan(self) -> Iterator[Record]:
        self.cursor.first()
        return iter(self.cursor)

    def first(self, start: bytes, count: int) -> list[Record]:
        cursor = self.cursor
        cursor.set_range(start)
        return list(islice(cursor, count))

    def close(self) -> None:
        self.cursor.close()
        self._transaction.abort()
        self._environment.close()

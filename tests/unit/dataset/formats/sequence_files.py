"""SequenceFiles of every kind, and the shortest way to read them."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from gossipkv.dataset.formats.reading import FileReading
from gossipkv.dataset.formats.sequence_file import batches
from tests.oracle import sequence_file as oracle
from tests.unit.dataset.formats.readers import MemoryReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

CLASSES = (oracle.TEXT, oracle.BYTES)
CODECS = tuple(oracle.COMPRESS)


def short(codec: str) -> str:
    """Return the name of a codec without its package."""
    return codec.rpartition(".")[2]


def kinds(*, pieces: Iterable[int] = (1, 3), **others: object) -> Iterator[oracle.Kind]:
    """Yield every kind; without compression there is no codec and there are no pieces."""
    for version, key_class, value_class in itertools.product((5, 6), CLASSES, CLASSES):
        metadata = ((b"written by", b"a test"), (b"", b"")) if version > 5 else ()
        alike = {"metadata": metadata, **others}
        yield oracle.Kind(version, key_class, value_class, oracle.NONE, **alike)
        for compression, codec, number in itertools.product((oracle.RECORD, oracle.BLOCK), CODECS, pieces):
            yield oracle.Kind(version, key_class, value_class, compression, codec, pieces=number, **alike)


def read(data: bytes, **options: int) -> list[tuple[bytes, bytes]]:
    return [record for batch in batches(MemoryReader(data), FileReading(**options)) for record in batch]

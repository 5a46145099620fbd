"""Which format a file has, and the reader of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gossipkv.dataset.formats import tab_separated

if TYPE_CHECKING:
    from collections.abc import Generator

    from gossipkv.dataset.formats.reading import Reading
    from gossipkv.dataset.source_reader import SourceReader
    from gossipkv.storage.batch import Batch

HEAD_BYTES = 512
FORMATS = ("tsv",)


def detect(name: str, head: bytes) -> str:
    """The format of a file with that name and those first bytes."""
    del name, head
    return "tsv"


def batches(form: str, reader: SourceReader, options: Reading) -> Generator[Batch]:
    """The records of a file of that format."""
    assert form in FORMATS
    yield from tab_separated.batches(reader, options)

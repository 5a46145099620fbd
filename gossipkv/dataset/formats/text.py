"""The text of a file, whatever it is compressed with."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gossipkv.dataset.formats.reading import Reading
    from gossipkv.dataset.source_reader import SourceReader


def chunks(reader: SourceReader, options: Reading) -> Iterator[bytes]:
    """The text, piece by piece."""
    return reader.chunks()

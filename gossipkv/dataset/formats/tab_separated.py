r"""Tab-separated text: one record a line, the key before the first TAB, the value after it.

    line   = key TAB value LF
    key    = any bytes but TAB and LF
    value  = any bytes but LF

Bytes between the separators are served as they are, without decoding, quoting or escaping.  The last line may lack its
LF.  A CR before the LF belongs to the value, since a store of bytes must not drop any (`sed 's/\r$//'` converts Windows
files).  A byte order mark at the start of the file is not part of the first key.  Empty lines are skipped, since no
record looks like one.  Other lines without TAB are errors, and so are keys and values over their limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gossipkv.dataset.formats import lines, text
from gossipkv.dataset.formats._formats import TabSeparatedLines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gossipkv.dataset.formats.reading import FileReading, Readable
    from gossipkv.storage.batch import RecordBatch


def batches(reader: Readable, options: FileReading) -> Iterator[RecordBatch]:
    """Yield the records of a file in order; their offsets are those of their lines.

    Raises:
        SourceError: with `file`, `line` (from 1) and `offset` (of the line's first byte) in its details.
    """
    return lines.batches(TabSeparatedLines(reader.name, options.max_value_bytes), text.chunks(reader, options))

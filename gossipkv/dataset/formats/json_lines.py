"""JSON lines: one object a line, with one field for the key and another for the value.

    {"key": "paris", "value": "48.9 2.4"}

* Key: a string, served as UTF-8, or `{"base64": "..."}`, the form in which our own `--json` writes other bytes.
* Value: the same forms; anything else but null is served as its JSON text without the space between its parts.  Numbers
  (`1.0`, `1e400`), escapes, the order of members and repeated members are served as written.
* Other fields are checked and ignored.  Blank lines are skipped, and so is a byte order mark at the start of the file.

Anything else is an error: a missing, null or repeated field, invalid UTF-8 or JSON, half a surrogate pair, NaN.  Our
own scanner reads the lines: libraries drop the written form (`json`, `orjson`) or check too little (`msgspec`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gossipkv.dataset.formats import lines, text
from gossipkv.dataset.formats._formats import JsonLines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gossipkv.dataset.formats.reading import FileReading, Readable
    from gossipkv.storage.batch import RecordBatch


def batches(reader: Readable, options: FileReading) -> Iterator[RecordBatch]:
    """Yield the records of a file in order; their offsets are those of their lines.

    A line, the block of this format, is held whole and has at most `max_block_bytes`.

    Raises:
        SourceError: with `file`, `line` (from 1) and `offset` (of the line's first byte) in its details.
    """
    assert isinstance(options.key, str)
    assert isinstance(options.value, str)
    scanner = JsonLines(reader.name, options.max_value_bytes, options.max_block_bytes, options.key, options.value)
    return lines.batches(scanner, text.chunks(reader, options))

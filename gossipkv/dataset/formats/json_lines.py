"""JSON lines: one object a line, with one field for the key and another for the value.

    {"key": "paris", "value": "48.9 2.4"}

* Key: a string, served as UTF-8, or `{"base64": "..."}`, the form in which our own `--json` writes other bytes.
* Value: the same forms; anything else but null is served as its JSON text without the space between its parts.  Numbers
  (`1.0`, `1e400`), escapes, the order of members and repeated members are served as written.
* Several fields of a key are joined by the `separator`, or a MessagePack array.  Whole numbers of 64 bits, true and
  false may be keys, as they are written.
* Several fields of a value, or `*` for all, are an object of their texts.  A missing field is null in it.  MessagePack
  (`encoding`) is made of that object by Python, which takes several times as long.
* Other fields are checked and ignored.  Blank lines are skipped, and so is a byte order mark at the start of the file.

Anything else is an error: a missing, null or repeated field, invalid UTF-8 or JSON, half a surrogate pair, NaN.  Our
own scanner reads the lines: libraries drop the written form (`json`, `orjson`) or check too little (`msgspec`).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgpack

from gossipkv.dataset.formats import lines, text
from gossipkv.dataset.formats._formats import JsonLines
from gossipkv.dataset.formats.reading import ALL_COLUMNS, refusal
from gossipkv.storage.batch import RecordBatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gossipkv.dataset.formats.reading import FileReading, Readable


def batches(reader: Readable, options: FileReading) -> Iterator[RecordBatch]:
    """Yield the records of a file in order; their offsets are those of their lines.

    A line, the block of this format, is held whole and has at most `max_block_bytes`.

    Raises:
        SourceError: with `file`, `line` (from 1) and `offset` (of the line's first byte) in its details.
    """
    constants = {name: json.dumps(text, ensure_ascii=False).encode() for name, text in options.partition}
    scanner = JsonLines(
        reader.name,
        options.max_value_bytes,
        options.max_block_bytes,
        options.key,
        () if options.value == ALL_COLUMNS else options.value,
        constants,
        None if options.separator is None else options.separator.encode(),
        options.nulls == "omit",
    )
    found = lines.batches(scanner, text.chunks(reader, options))
    is_row = options.value == ALL_COLUMNS or not isinstance(options.value, str)
    return _packed(found, reader, options) if is_row and options.encoding == "msgpack" else found


def _packed(found: Iterator[RecordBatch], reader: Readable, options: FileReading) -> Iterator[RecordBatch]:
    """Yield the records with MessagePack instead of JSON."""
    packed = RecordBatch()
    for batch in found:
        for (key, value), offset in zip(batch, batch.offsets(), strict=True):
            try:
                row = msgpack.packb(json.loads(value))
            except (OverflowError, ValueError) as error:
                raise refusal(reader.name, offset, f"MessagePack cannot encode the line: {error}") from error
            if len(row) > options.max_value_bytes:
                reason = f"the value has {len(row):,} bytes; the limit is {options.max_value_bytes:,} bytes"
                raise refusal(reader.name, offset, reason)
            packed.append(key, row, offset)
        yield packed
        packed.clear()

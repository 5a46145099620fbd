"""JSON lines: one object a line, a field of which is the key and another one the value.

    {"key": "paris", "value": "48.9 2.4"}

* Key: a string, which is served as UTF-8, or `{"base64": "..."}`, which is how our own `--json` writes other bytes.
* Value: a string or `{"base64": "..."}`, as a key; anything else but null is served as the JSON text that stands
  there, without the space between its parts.  Nothing in it is converted: `1.0`, `1e400` and twenty digits are served
  as they are written, and so are escapes in strings, the order of members and repeated ones.
* Other fields are checked and passed over.  A line of nothing but space is skipped, and so is a byte order mark at the
  beginning of the file.

Everything else is an error: a field that is missing, null or there twice, text that is not JSON in UTF-8, half a
surrogate pair, NaN, an object over several lines.

The lines are read by a scanner of our own rather than by a library.  The libraries at hand make objects and drop what
was written (`json`, `orjson`), or accept repeated fields in silence and check no surrogates (`msgspec`); the grammar
is small, and the standard library's reader is the oracle that the scanner is compared with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gossipkv.dataset.formats import lines, text
from gossipkv.dataset.formats._formats import JsonLines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gossipkv.dataset.formats.reading import Readable, Reading
    from gossipkv.storage.batch import Batch


def batches(reader: Readable, options: Reading) -> Iterator[Batch]:
    """The records of a file in order; their offsets are those of their lines.

    A line is at most `max_block_bytes` long: it is the block of this format, held whole.

    Raises:
        SourceError: with `file`, `line` (from 1) and `offset` (of the line's first byte) in its details.
    """
    scanner = JsonLines(reader.name, options.max_value_bytes, options.max_block_bytes, options.key, options.value)
    return lines.batches(scanner, text.chunks(reader, options))

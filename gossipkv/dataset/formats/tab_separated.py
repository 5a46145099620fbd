r"""Tab-separated text: one record a line, the key before the first TAB, the value after it.

    line   = key TAB value LF
    key    = any bytes but TAB and LF
    value  = any bytes but LF

Nothing is decoded, quoted or escaped: what stands between the separators is what is served.

* The last line may lack its LF.
* A CR before the LF belongs to the value, as every other byte does.  (Text mode readers would drop it; a store of
  bytes that drops one is not one.  `sed 's/\r$//'` is the way for files from Windows.)
* A byte order mark at the beginning of the file is no part of the first key.
* An empty line is skipped: no record can look like it, and it ends many a file.
* Every other line without a TAB is an error, and so is a key or value over its limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gossipkv.dataset.formats import lines, text
from gossipkv.dataset.formats._formats import TabSeparatedLines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gossipkv.dataset.formats.reading import Readable, Reading
    from gossipkv.storage.batch import Batch


def batches(reader: Readable, options: Reading) -> Iterator[Batch]:
    """The records of a file in order; their offsets are those of their lines.

    Raises:
        SourceError: with `file`, `line` (from 1) and `offset` (of the line's first byte) in its details.
    """
    return lines.batches(TabSeparatedLines(reader.name, options.max_value_bytes), text.chunks(reader, options))

r"""Signs in the first lines of tab-separated text that a job meant another dialect than ours.

Our reader serves bytes as they are, so quotes, headers, index columns and `\N` of other writers would become keys and
values in silence.  These signs never end a build: text may look like this on purpose.
"""

from __future__ import annotations

import codecs
import itertools
import re
from typing import TYPE_CHECKING, Final

from gossipkv.dataset.formats import text

if TYPE_CHECKING:
    from gossipkv.dataset.formats.reading import FileReading, Readable

HEAD_BYTES: Final = 4096
MAX_LINES: Final = 20
# Fewer lines than this show no rule.
MIN_LINES: Final = 3

_HEADER_WORD: Final = re.compile(rb"(?:key|id|uid|uuid|guid|name|code|[a-z][a-z0-9]*_(?:id|key|code))", re.IGNORECASE)
_NAME: Final = re.compile(rb"[A-Za-z_][A-Za-z0-9_ ]*")
_NUMBER: Final = re.compile(rb"[-+]?[0-9]+(?:\.[0-9]+)?")

_CONTROL: Final = re.compile(rb"[\0-\x08\x0b\x0c\x0e-\x1f\x7f]")

ADVICE: Final = (
    'if the file is CSV, or text of another encoding, set format = "csv" and csv = { delimiter = "\\t" }, with an '
    "`encoding`, in the settings of the database"
)


def signs(reader: Readable, options: FileReading) -> list[str]:
    """Return signs of another format in the first lines, in words; empty if they look like plain tab-separated text.

    Raises:
        SourceError: the file is compressed, and its beginning is damaged.
    """
    head = b"".join(itertools.islice(text.chunks(reader, options), 1))[: HEAD_BYTES + 1]
    lines = head.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if len(head) > HEAD_BYTES and len(lines) > 1:
        del lines[-1]  # It may be cut.
    rows = [line.rstrip(b"\r").split(b"\t") for line in lines[:MAX_LINES] if line.strip()]
    rows = [row for row in rows if len(row) > 1]
    return [*_of_encoding(head), *_of_lines(rows)] if rows else []


def _of_encoding(head: bytes) -> list[str]:
    """Return a sign of text that is not UTF-8; keys and values that no text is have control characters."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError as error:
        line = head.count(b"\n", 0, error.start) + 1
        return [] if _CONTROL.search(head) else [f"line {line} is not UTF-8"]
    return []


def _of_lines(rows: list[list[bytes]]) -> list[str]:
    found = []
    is_header = _is_header(rows)
    if is_header:
        found.append("the first line looks like a header")
    if any(_is_quoted(row) for row in rows):
        found.append("keys or values look quoted")
    first = [row[0].strip(b'"') for row in (rows[1:] if is_header else rows)]
    if len(first) >= MIN_LINES and first in [[b"%d" % (begin + at) for at in range(len(first))] for begin in (0, 1)]:
        found.append("the first column looks like an index")
    if any(b"\\N" in row for row in rows):
        found.append("a field is \\N, which other programs write for null")
    return found


def _is_header(rows: list[list[bytes]]) -> bool:
    first = [cell.strip(b'"') for cell in rows[0]]
    if not all(_NAME.fullmatch(cell) for cell in first[1:]):
        return False
    if not first[0] or _HEADER_WORD.fullmatch(first[0]):
        return True
    rest = [row[0].strip(b'"') for row in rows[1:]]
    return len(rest) >= MIN_LINES and not _NUMBER.fullmatch(first[0]) and all(map(_NUMBER.fullmatch, rest))


def _is_quoted(row: list[bytes]) -> bool:
    """Return True if the key has quotes around it, or a value has them and doubles those within, as CSV does."""
    if len(row[0]) > 1 and row[0][:1] == row[0][-1:] == b'"':
        return True
    return any(cell[:1] == cell[-1:] == b'"' and b'""' in cell[1:-1] for cell in row[1:])

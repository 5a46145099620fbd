r"""Which format a file has, by its first bytes, then by its name; all files of a version have one.

    first bytes                               format
    GKVSORT\n                                 sorted
    SEQ, then a byte up to 8                  sequence
    PAR1, then a control character            parquet
    ends in .seq .parquet .json(l) .tsv …     what it says, a compression's extension (`.json.gz`) aside
    { then " or }, with space between         json
    anything else                             tsv

Magic numbers count before names, since they are what a reader needs; each is taken together with the byte after it,
which no line of text has there: a key of tab-separated text may begin with SEQ.  An empty file of text says nothing.
"""

from __future__ import annotations

import itertools
import re
from importlib import import_module
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Protocol

from gossipkv.dataset.formats import text

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from gossipkv.dataset.formats.reading import Readable, Reading
    from gossipkv.storage.batch import Batch

# Of a file: enough for a magic number, and for space before a line of JSON.
HEAD_BYTES = 4096

_MAGIC = (
    (re.compile(rb"GKVSORT\n"), "sorted"),
    (re.compile(rb"SEQ[\0-\x08]"), "sequence"),
    (re.compile(rb"PAR[1E][\0-\x08\x0b-\x1f]"), "parquet"),
)
_JSON = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{\s*["}]')
_EXTENSIONS = {
    ".seq": "sequence", ".sequence": "sequence", ".parquet": "parquet", ".json": "json", ".jsonl": "json",
    ".ndjson": "json", ".tsv": "tsv", ".tab": "tsv", ".gkv": "sorted",
}  # fmt: skip
_MODULES = {
    "sequence": "sequence_file", "tsv": "tab_separated", "json": "json_lines", "parquet": "parquet",
    "sorted": "sorted_files",
}  # fmt: skip


class Format(Protocol):
    """A module that reads a format."""

    def batches(self, reader: Readable, options: Reading) -> Iterator[Batch]:
        """The records of a file, in order."""


def detect_file(reader: Readable, options: Reading) -> str | None:
    """The format of a file; None when it says nothing, as an empty one does.

    Raises:
        SourceError: it is compressed, and damaged where it begins.
    """
    head = reader.read_at(0, min(HEAD_BYTES, reader.size_bytes))
    if text.compression(reader.name) is not None and _magic(head) is None:
        head = b"".join(itertools.islice(text.chunks(reader, options), 1))[:HEAD_BYTES]
    return _told(reader.name, head)


def batches(form: str, reader: Readable, options: Reading) -> Generator[Batch]:
    """The records of a file of a format, one of `gossipkv.settings.databases.FORMATS`.

    What reads a format is imported when the first file of it is read: pyarrow takes 60 MB.

    Raises:
        SourceError: the file cannot be read as that.
    """
    yield from load(form).batches(reader, options)


def load(form: str) -> Format:
    """What reads a format, imported now."""
    module: Format = import_module(f"gossipkv.dataset.formats.{_MODULES[form]}")
    return module


def _magic(head: bytes) -> str | None:
    return next((found for magic, found in _MAGIC if magic.match(head)), None)


def _told(name: str, head: bytes) -> str | None:
    """The format, if the file says anything about it."""
    found = _magic(head)
    if found is not None:
        return found
    path = PurePosixPath(name.lower())
    if text.compression(name) is not None:
        path = path.with_suffix("")
    if path.suffix in _EXTENSIONS:
        return _EXTENSIONS[path.suffix]
    if _JSON.match(head):
        return "json"
    return "tsv" if head.strip() else None

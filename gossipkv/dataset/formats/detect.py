r"""Detection of a file's format, by its first bytes, then by its name; all files of a version have one format.

    GKVSORT\n; SEQ and a byte up to 8; PAR1 and a control character    sorted; sequence; parquet
    Avro's, ORC's, Arrow's magic numbers and the like                  refused by name
    name ends in .seq .parquet .json(l) .tsv …                         as named, also before `.gz` and the like
    { then " or }, with space between                                  json
    UTF-8 without NUL                                                  tsv
    anything else                             refused: only a setting can declare such bytes to be tsv

Magic numbers precede names, since readers need them.  Each includes the next byte, which no line of text has there: a
key of tab-separated text may begin with SEQ.  An empty text file has no format.  Unknown bytes are never taken for
text.
"""

from __future__ import annotations

import codecs
import itertools
import re
from importlib import import_module
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Protocol

from gossipkv.dataset.formats import text
from gossipkv.dataset.formats.excerpt import excerpt
from gossipkv.dataset.formats.reading import COLUMN_FORMATS, refusal
from gossipkv.errors import GossipKVError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from gossipkv.dataset.formats.reading import FileReading, Readable
    from gossipkv.storage.batch import RecordBatch

# This suffices for a magic number, and for space before a line of JSON.
HEAD_BYTES = 4096

_MAGIC = (
    (re.compile(rb"GKVSORT\n"), "sorted"),
    (re.compile(rb"SEQ[\0-\x08]"), "sequence"),
    (
        re.compile(rb"PAR[1E](?:[\0-\x08\x0b-\x1f]|..\0\0)", re.DOTALL),
        "parquet",
    ),  # Encrypted parts begin with their size.
    (re.compile(rb"Obj\x01"), "avro"),
    (re.compile(rb"ARROW1\0\0|\xff{4}(?!\0{4})"), "arrow"),
)
_FOREIGN = (
    (
        re.compile(rb"SEQ[\5\6].org.apache.hadoop.io.NullWritable.org.apache.hadoop.io.BytesWritable", re.DOTALL),
        "an RDD of pickled or serialized objects",
    ),
    (re.compile(rb"FEA1"), "a Feather file of version 1"),
    (re.compile(rb"RCF\x01"), "an RCFile"),
    (re.compile(rb"SQLite format 3\0"), "an SQLite database"),
    (re.compile(rb"\x89HDF\r\n\x1a\n"), "HDF5"),
    (re.compile(rb"PK(?:\x03\x04|\x05\x06|\x07\x08)"), "a zip archive (such as .xlsx, .npz or .jar)"),
    (re.compile(rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"), "an old Microsoft Office file"),
    (re.compile(rb"\x80[\x02-\x05]|[]})]q\0|\(lp[0-9]+\n|\(dp[0-9]+\n|c[a-z_]+\n[A-Za-z_]+\n"), "a Python pickle"),
    (re.compile(rb"\x93NUMPY"), "a NumPy array"),
    (re.compile(rb".{257}ustar", re.DOTALL), "a tar archive"),
    (re.compile(rb"%PDF-"), "a PDF"),
    (re.compile(rb"\x7fELF|MZ\x90\0"), "a program"),
    (re.compile(rb"\xca\xfe\xba\xbe|\xac\xed\0\x05"), "a Java class or serialized object"),
)
_ORC = re.compile(rb"ORC")  # The footer repeats it.
_JSON = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{\s*["}]')
_EXTENSIONS = {
    ".seq": "sequence", ".sequence": "sequence", ".parquet": "parquet", ".json": "json", ".jsonl": "json",
    ".ndjson": "json", ".tsv": "tsv", ".tab": "tsv", ".csv": "csv", ".gkv": "sorted", ".arrow": "arrow",
    ".arrows": "arrow", ".feather": "arrow", ".ipc": "arrow", ".orc": "orc", ".avro": "avro",
}  # fmt: skip
_MODULES = {
    "sequence": "sequence_file", "tsv": "tab_separated", "csv": "columns.csv", "json": "json_lines",
    "parquet": "columns.parquet", "arrow": "columns.arrow_ipc", "orc": "columns.orc", "avro": "columns.avro",
    "sorted": "sorted_files",
}  # fmt: skip

# Formats whose packages are extras of ours.
_EXTRAS = {
    "parquet": ("Parquet", "pyarrow", "parquet"), "arrow": ("Arrow", "pyarrow", "parquet"),
    "orc": ("ORC", "pyarrow", "parquet"), "csv": ("CSV", "pyarrow", "parquet"),
    "avro": ("Avro", "fastavro and pyarrow", "avro"),
}  # fmt: skip


class Format(Protocol):
    """A module that reads a format."""

    def batches(self, reader: Readable, options: FileReading) -> Iterator[RecordBatch]:
        """Yield the records of a file, in order."""


def detect_file(reader: Readable, options: FileReading) -> str | None:
    """Detect the format of a file; None if it gives no evidence, such as an empty file.

    Raises:
        SourceError: the format is not read here, or the file is compressed and its beginning is damaged.
    """
    head = reader.read_at(0, min(HEAD_BYTES, reader.size_bytes))
    _refuse_foreign(reader, head)
    for magic, format_name in _MAGIC:
        if magic.match(head):
            return format_name
    if _ORC.match(head) and reader.read_at(max(0, reader.size_bytes - 4), min(4, reader.size_bytes))[:3] == b"ORC":
        return "orc"
    complete = len(head) == reader.size_bytes
    if text.compression(reader.name, head) is not None:
        head = b"".join(itertools.islice(text.chunks(reader, options), 1))[: HEAD_BYTES + 1]
        head, complete = head[:HEAD_BYTES], len(head) <= HEAD_BYTES
        _refuse_foreign(reader, head)
    return _by_name_or_text(reader.name, head, complete=complete)


def batches(format_name: str, reader: Readable, options: FileReading) -> Generator[RecordBatch]:
    """Yield the records of a file in a format, one of `gossipkv.settings.databases.FORMATS`.

    A format's module is imported when its first file is read: pyarrow takes 60 MB.

    Raises:
        SourceError: the file cannot be read in this format.
    """
    if options.partition and format_name not in {*COLUMN_FORMATS, "json"}:
        columns = ", ".join(column for column, _ in options.partition)
        reason = f"the columns of its directories ({columns}) would be lost, because {format_name} has no columns"
        raise refusal(reader.name, 0, reason)
    try:
        module = load(format_name)
    except ImportError as error:
        raise refusal(reader.name, 0, str(error)) from error
    try:
        yield from module.batches(reader, options)
    except (GossipKVError, GeneratorExit):
        raise
    except Exception as error:
        reason = f"the reader of {format_name} failed: {type(error).__name__}: {' '.join(str(error).split())}"
        raise refusal(reader.name, 0, reason) from error


def load(format_name: str) -> Format:
    """Import and return the module that reads a format.

    Raises:
        ImportError: a package is not installed; the message says which, and how to install it.
    """
    try:
        module: Format = import_module(f"gossipkv.dataset.formats.{_MODULES[format_name]}")
    except ImportError as error:
        extra = _EXTRAS.get(format_name)
        if extra is None:
            raise
        name, packages, extra_name = extra
        raise ImportError(
            f"{name} needs {packages}, and a package is missing; run `pip install 'gossipkv[{extra_name}]'`"
        ) from error
    return module


def _refuse_foreign(reader: Readable, head: bytes) -> None:
    kind = next((kind for magic, kind in _FOREIGN if magic.match(head)), None)
    if kind is not None:
        reason = (
            f"the file is {kind}, which cannot be read; "
            "write Parquet, Arrow, ORC, Avro, SequenceFiles, JSON lines, CSV or TSV"
        )
        raise refusal(reader.name, 0, reason)


def _is_text(head: bytes, *, complete: bool) -> bool:
    """True if it is UTF-8 without NUL; unless `complete`, its last character may be cut."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head, final=complete)
    except UnicodeDecodeError:
        return False
    return b"\0" not in head


def _by_name_or_text(name: str, head: bytes, *, complete: bool) -> str | None:
    """Return the format if there is evidence; `head` is the text of the file, or its beginning."""
    path = PurePosixPath(name.lower())
    if text.extension(name) is not None:
        path = path.with_suffix("")
    if path.suffix in _EXTENSIONS:
        return _EXTENSIONS[path.suffix]
    if _JSON.match(head):
        return "json"
    if not _is_text(head, complete=complete):
        raise refusal(
            name, 0,
            f"the format is unknown: the file is not UTF-8 text and begins with {excerpt(head)}; if it has lines of "
            'key, TAB and value as bytes, set format = "tsv" in the settings of the database',
        )  # fmt: skip
    return "tsv" if head.strip() else None

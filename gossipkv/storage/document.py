"""Small checked documents: one JSON object with its kind, format and checksum, always replaced as a whole.

They hold a node's decisions: its identity, the active version, the files of a built version. They are text, so that
people can read them with `cat`. Every damaged byte is noticed:

    offset size field
    0      9    "GossipKV "
    9      8    checksum: CRC-32 (zlib's) of everything from byte 17 on, as lower-case hexadecimal digits
    17     1    space
    18     k    kind, upper-case letters
    18+k   1    space
    19+k   d    format of the body, a decimal number from 1
    19+k+d 1    line feed
    20+k+d n    body: one JSON object, keys sorted, no spaces, ASCII
    ...    1    line feed, the last byte of the file

The invariant: at any moment, across crashes too, the path holds the whole old document or the whole new one. Hence a
write goes to a temporary file, which is synced and renamed; then the directory is synced.

The checksum covers kind and format, so a flipped digit of the format is reported as damage and not as a newer format.
It is zlib's CRC-32, not CRC-32C: anyone with Python or gzip can verify and repair a document. Speed does not matter.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from gossipkv.environment.seam import WRITE_NEW
from gossipkv.errors import Corrupt, UnsupportedFormat, other_format
from gossipkv.storage.typed import Json, typed

if TYPE_CHECKING:
    from gossipkv.environment.seam import Files
    from gossipkv.environment.seam import Path as AnyPath

Body = dict[str, Json]
T = TypeVar("T")

MAGIC = b"GossipKV "
CHECKSUM_AT = len(MAGIC)
COVERED_AT = CHECKSUM_AT + 8
# The largest document in practice is the manifest of a version with 16,384 files, about 3 MiB.
MAX_DOCUMENT_BYTES = 64 << 20

FORMAT = 1
_HEAD = re.compile(rb" ([A-Z]{1,32}) ([1-9][0-9]{0,8})\n")


def encode(kind: str, body: Body, *, format_number: int = FORMAT) -> bytes:
    """Return the bytes of a document."""
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)
    covered = f" {kind} {format_number}\n{text}\n".encode("ascii")
    assert _HEAD.match(covered), kind
    return MAGIC + b"%08x" % zlib.crc32(covered) + covered


def decode(data: bytes, name: str, kind: str) -> Body:
    """Return the body of a document; errors call the document `name`.

    Raises:
        Corrupt: a byte differs from what was written, or is missing, or is extra.
        UnsupportedFormat: not a document, or a document of another kind or format.
    """
    if not data:
        raise Corrupt(name, 0, "the file is empty", expected=kind)
    if not data.startswith(MAGIC):
        if MAGIC.startswith(data):
            raise Corrupt(name, len(data), "the file is cut short")
        raise UnsupportedFormat(
            f"{name}: not a GossipKV document: it begins with {data[:9]!r} instead of {MAGIC!r}",
            {"file": name, "offset": 0},
        )
    expected = data[CHECKSUM_AT:COVERED_AT]
    got = b"%08x" % zlib.crc32(data[COVERED_AT:])
    if expected != got:
        shown = expected.decode("ascii", "backslashreplace")
        raise Corrupt(name, CHECKSUM_AT, "the checksum does not match the content", expected=shown, got=got.decode())
    head = _HEAD.match(data, COVERED_AT)
    if head is None:
        raise Corrupt(name, COVERED_AT, "the checksum is not followed by a kind and a format")
    found, format_number = head[1].decode(), int(head[2])
    if found != kind:
        raise UnsupportedFormat(f"{name}: the document is of kind {found}, not {kind}", {"file": name})
    if format_number != FORMAT:
        do = "run that release, or use another directory"
        raise other_format(f"{name}: {kind}", format_number, FORMAT, do, file=name)
    return _parse(data, head.end(), name)


def _parse(data: bytes, start: int, name: str) -> Body:
    """Parse the JSON object. The checksum matched, so only a defective writer can make this fail."""
    if not data.endswith(b"}\n"):
        raise Corrupt(name, len(data), "the body does not end with '}' and a line feed")
    try:
        body: Json = json.loads(data[start:-1])
    except (ValueError, RecursionError) as error:
        raise Corrupt(name, start, f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise Corrupt(name, start, "the body is not a JSON object")
    return body


def read_document(files: Files, path: AnyPath, kind: str) -> Body:
    """Return the body of the document at `path`.

    Raises:
        FileNotFoundError: there is no file at `path`.
        Corrupt, UnsupportedFormat: see `decode`; both name the file.
        OSError: the system refused.
    """
    return decode(read_file(files, path), os.fspath(path), kind)


def read_file(files: Files, path: AnyPath) -> bytes:
    """Return the content of a file of at most `MAX_DOCUMENT_BYTES`.

    Raises:
        Corrupt: the file is larger.
        OSError: the system refused.
    """
    descriptor = files.open(path)
    try:
        size_bytes = files.size(descriptor)
        if size_bytes > MAX_DOCUMENT_BYTES:
            reason = f"the document has {size_bytes:,} bytes; the limit is {MAX_DOCUMENT_BYTES:,}"
            raise Corrupt(os.fspath(path), MAX_DOCUMENT_BYTES, reason)
        return files.pread(descriptor, size_bytes, 0)
    finally:
        files.close(descriptor)


def write_document(files: Files, path: AnyPath, kind: str, body: Body, *, format_number: int = FORMAT) -> None:
    """Replace the document at `path`; returns when the new one is durable.

    Raises:
        OSError: the system refused; the old document remains, or (if the last step failed) the new one.
    """
    replace_file(files, path, encode(kind, body, format_number=format_number))


def replace_file(files: Files, path: AnyPath, data: bytes) -> None:
    """Replace the file at `path` by one with this content; as `write_document`."""
    target = os.fspath(path)
    beside = f"{target}.tmp"
    with contextlib.suppress(FileNotFoundError):
        files.unlink(beside)  # A crash left the file.
    descriptor = files.open(beside, WRITE_NEW)
    try:
        try:
            files.pwrite(descriptor, data, 0)
            files.sync(descriptor)
        finally:
            files.close(descriptor)
        files.rename(beside, target)
    except OSError:
        with contextlib.suppress(OSError):
            files.unlink(beside)
        raise
    files.sync_directory(Path(target).parent)


def field(body: Body, key: str, kind: type[T], name: str) -> T:
    """Return the value at `key`, which must have that type.  Raises Corrupt."""
    if key not in body:
        raise Corrupt(name, COVERED_AT, f"{key!r} is missing")
    return checked(kind, body[key], name, key)


def checked(kind: type[T], value: Json, name: str, path: str = "") -> T:
    """Return a value of the document `name`, which must have that type, as `typed` reads it.  Raises Corrupt."""
    try:
        return typed(kind, value, path)
    except ValueError as error:
        raise Corrupt(name, COVERED_AT, str(error)) from error


def whole(body: Body, key: str, name: str) -> int:
    """Return the non-negative integer at `key`."""
    value = field(body, key, int, name)
    if value < 0:
        raise Corrupt(name, COVERED_AT, f"{key!r} must not be below 0", got=str(value))
    return value


def text(body: Body, key: str, name: str) -> str:
    """Return the string at `key`."""
    return field(body, key, str, name)


def flag(body: Body, key: str, name: str) -> bool:
    """Return the truth value at `key`."""
    return field(body, key, bool, name)

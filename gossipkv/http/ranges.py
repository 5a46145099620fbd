"""Parts of a value: what `Range` asks for, and how several are sent (RFC 9110, 14).

A header that is malformed, names another unit, asks for more than `MAX_RANGES` parts or for more bytes than the value
has is ignored, and the value sent whole: so no header makes an answer larger than the value by more than the heads of
`MAX_RANGES` parts.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final, NamedTuple

MAX_RANGES: Final = 16  # A player or a reader of columns asks for one to five; hundreds are an attack.

_SPECIFIER: Final = re.compile(rb"[ \t]*bytes[ \t]*=(.*)", re.IGNORECASE)
_ONE: Final = re.compile(rb"(\d*)-(\d*)")
_DIGITS: Final = 18  # More are beyond the end of any value.


class Part(NamedTuple):
    """Bytes of a value from `first` to `last`, both among them."""

    first: int
    last: int

    @property
    def size(self) -> int:
        """How many bytes that is."""
        return self.last - self.first + 1


def wanted(header: bytes, size: int) -> list[Part] | None:
    """Return the parts that `Range` asks for of a value of `size` bytes, in the order asked.

    None: it is to be ignored.  An empty list: none of them is within the value.
    """
    asked = _asked(header)
    if asked is None:
        return None
    if size == 0 and any(first is None and last for first, last in asked):
        return None  # The last bytes of nothing are all of it, and no `Content-Range` can say so.
    parts = [part for each in asked if (part := _part(*each, size)) is not None]
    return None if sum(part.size for part in parts) > size else parts


def _asked(header: bytes) -> list[tuple[int | None, int | None]] | None:
    """The pairs of numbers in a header, or None where it is none that counts."""
    specifier = _SPECIFIER.fullmatch(header)
    if specifier is None or specifier[1].count(b",") >= 2 * MAX_RANGES:
        return None
    asked = []
    for item in specifier[1].split(b","):
        stripped = item.strip(b" \t")
        if not stripped:
            continue  # A list may have empty elements.
        one = _ONE.fullmatch(stripped)
        if one is None:
            return None
        first, last = _number(one[1]), _number(one[2])
        if (first is None and last is None) or (first is not None and last is not None and last < first):
            return None
        asked.append((first, last))
    return asked if 0 < len(asked) <= MAX_RANGES else None


def _part(first: int | None, last: int | None, size: int) -> Part | None:
    """One pair within a value of `size` bytes, or None where nothing of it is."""
    if first is None:
        assert last is not None
        return Part(max(0, size - last), size - 1) if last and size else None
    return Part(first, size - 1 if last is None else min(last, size - 1)) if first < size else None


def _number(digits: bytes) -> int | None:
    if not digits:
        return None
    significant = digits.lstrip(b"0")
    return int(significant or b"0") if len(significant) <= _DIGITS else 10**_DIGITS


def content_range(part: Part | None, size: int) -> bytes:
    """Return the value of `Content-Range`; without a part, of an answer that none could be given."""
    return b"bytes */%d" % size if part is None else b"bytes %d-%d/%d" % (part.first, part.last, size)


def several(value: bytes, parts: list[Part], content_type: bytes) -> tuple[bytes, bytes]:
    """Return several parts as one body, and its `Content-Type`."""
    boundary = _boundary(value, parts)
    pieces = []
    for part in parts:
        about = content_range(part, len(value))
        pieces.append(b"--%b\r\nContent-Type: %b\r\nContent-Range: %b\r\n\r\n" % (boundary, content_type, about))
        pieces += [value[part.first : part.last + 1], b"\r\n"]
    pieces.append(b"--%b--\r\n" % boundary)
    return b"".join(pieces), b"multipart/byteranges; boundary=" + boundary


def _boundary(value: bytes, parts: list[Part]) -> bytes:
    """A line that is not in the value; the same each time, so that nodes answer alike."""
    boundary = hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest().encode()
    while boundary in value:
        boundary = hashlib.blake2b(boundary, digest_size=16).hexdigest().encode()
    return boundary

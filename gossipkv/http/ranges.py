"""Partial values: parsing of `Range`, and the encoding of several parts (RFC 9110, 14).

A header is ignored, and the whole value sent, if it is malformed or names another unit.  The same holds for more than
`MAX_RANGES` parts, or more bytes than the value has.  So no header makes an answer larger than the value by more than
the heads of `MAX_RANGES` parts.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final, NamedTuple

MAX_RANGES: Final = 16  # A player or a reader of columns asks for one to five; hundreds are an attack.

_SPECIFIER: Final = re.compile(rb"[ \t]*bytes[ \t]*=(.*)", re.IGNORECASE)
_ONE: Final = re.compile(rb"(\d*)-(\d*)")
_DIGITS: Final = 18  # Longer numbers are beyond the end of any value.


class BodyPart(NamedTuple):
    """Bytes of a value from `first` to `last`, inclusive."""

    first: int
    last: int

    @property
    def size(self) -> int:
        """Return the number of bytes."""
        return self.last - self.first + 1


def wanted(header: bytes, size: int) -> list[BodyPart] | None:
    """Return the parts that `Range` requests of a value of `size` bytes, in the requested order.

    None: the header is ignored.  An empty list: no part lies within the value.
    """
    asked = _asked(header)
    if asked is None:
        return None
    if size == 0 and any(first is None and last for first, last in asked):
        return None  # The last bytes of an empty value are all of it, which no `Content-Range` can express.
    parts = [part for pair in asked if (part := _part(*pair, size)) is not None]
    return None if sum(part.size for part in parts) > size else parts


def _asked(header: bytes) -> list[tuple[int | None, int | None]] | None:
    """Return the pairs of numbers in a header, or None if it is ignored."""
    specifier = _SPECIFIER.fullmatch(header)
    if specifier is None or specifier[1].count(b",") >= 2 * MAX_RANGES:
        return None
    asked = []
    for item in specifier[1].split(b","):
        stripped = item.strip(b" \t")
        if not stripped:
            continue  # A list may have empty elements.
        bounds = _ONE.fullmatch(stripped)
        if bounds is None:
            return None
        first, last = _number(bounds[1]), _number(bounds[2])
        if (first is None and last is None) or (first is not None and last is not None and last < first):
            return None
        asked.append((first, last))
    return asked if 0 < len(asked) <= MAX_RANGES else None


def _part(first: int | None, last: int | None, size: int) -> BodyPart | None:
    """Return a pair as part of a value of `size` bytes, or None if it lies outside."""
    if first is None:
        assert last is not None
        return BodyPart(max(0, size - last), size - 1) if last and size else None
    return BodyPart(first, size - 1 if last is None else min(last, size - 1)) if first < size else None


def _number(digits: bytes) -> int | None:
    if not digits:
        return None
    significant = digits.lstrip(b"0")
    return int(significant or b"0") if len(significant) <= _DIGITS else 10**_DIGITS


def content_range(part: BodyPart | None, size: int) -> bytes:
    """Return the value of `Content-Range`; without a part, the one for an unsatisfiable range."""
    return b"bytes */%d" % size if part is None else b"bytes %d-%d/%d" % (part.first, part.last, size)


def several(value: bytes, parts: list[BodyPart], content_type: bytes) -> tuple[bytes, bytes]:
    """Return several parts as one body, and its `Content-Type`."""
    boundary = _boundary(value, parts)
    pieces = []
    for part in parts:
        about = content_range(part, len(value))
        pieces.append(b"--%b\r\nContent-Type: %b\r\nContent-Range: %b\r\n\r\n" % (boundary, content_type, about))
        pieces += [value[part.first : part.last + 1], b"\r\n"]
    pieces.append(b"--%b--\r\n" % boundary)
    return b"".join(pieces), b"multipart/byteranges; boundary=" + boundary


def _boundary(value: bytes, parts: list[BodyPart]) -> bytes:
    """Return a line that is not in the value; it is deterministic, so that nodes answer alike."""
    boundary = hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest().encode()
    while boundary in value:
        boundary = hashlib.blake2b(boundary, digest_size=16).hexdigest().encode()
    return boundary

"""Conditional requests and partial answers for an existing value, in the order of RFC 9110 (13.2.2).

    1. If-Match, else If-Unmodified-Since      if false: 412
    2. If-None-Match, else If-Modified-Since   if false: 304
    3. Range, without If-Range or if it holds, for GET only: 206, or 416
    4. the value: 200

Malformed headers are ignored where the RFC says so: times, and `Range`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gossipkv.http import ranges
from gossipkv.http.answers import HttpAnswer, text
from gossipkv.storage.checksum import crc32c
from gossipkv.wire import http_date

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gossipkv.http.answers import Header

CONDITIONAL: Final = frozenset({
    b"if-match", b"if-none-match", b"if-modified-since", b"if-unmodified-since", b"if-range", b"range",
})  # fmt: skip

_TAG: Final = re.compile(rb'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"')
_ANY: Final = b"*"


@dataclass(frozen=True, slots=True)
class FoundValue:
    """A value and its metadata.

    Attributes:
        value: All of it.
        tag: Its strong validator, in quotes.
        time_s: When it was last modified, in seconds since the epoch; None: unknown.
        content_type: Its media type.
        about: Headers of every answer about it.
    """

    value: bytes
    tag: bytes
    time_s: int | None
    content_type: bytes
    about: list[Header]

    def headers(self) -> list[Header]:
        """Return the headers of every answer about the value."""
        time_s = self.time_s
        modified = [] if time_s is None else [(b"Last-Modified", http_date.write(time_s))]
        return [(b"ETag", self.tag), *modified, *self.about]


def entity_tag(version: str, value: bytes) -> bytes:
    """Return a strong validator; it covers the bytes, since a version may be published anew under its name.

    A table has no versions; there the number of bytes comes first.
    """
    return b'"%b-%08x"' % (version.encode(), crc32c(value))


def answer(method: bytes, headers: Mapping[bytes, bytes], found: FoundValue) -> HttpAnswer:
    """Return the answer to GET or HEAD for an existing value."""
    if not CONDITIONAL.isdisjoint(headers):
        if _has_failed(headers, found):
            return text(412, "the value does not match If-Match", headers=found.headers())
        if _is_known(headers, found):
            return HttpAnswer(304, found.headers())
        if method == b"GET" and b"range" in headers and _is_unchanged(headers, found):
            return _parts(headers[b"range"], found)
    return _whole(found)


def _has_failed(headers: Mapping[bytes, bytes], found: FoundValue) -> bool:
    if (tags := headers.get(b"if-match")) is not None:
        return not is_among(found.tag, tags)
    since = _time(headers, b"if-unmodified-since")
    return since is not None and found.time_s is not None and found.time_s > since


def _is_known(headers: Mapping[bytes, bytes], found: FoundValue) -> bool:
    if (tags := headers.get(b"if-none-match")) is not None:
        return is_among(found.tag, tags, weakly=True)
    since = _time(headers, b"if-modified-since")
    return since is not None and found.time_s is not None and found.time_s <= since


def _is_unchanged(headers: Mapping[bytes, bytes], found: FoundValue) -> bool:
    """True if `If-Range` holds: the exact tag or the exact time.  A weak tag never does."""
    validator = headers.get(b"if-range")
    if validator is None or validator.strip() == found.tag:
        return True
    return found.time_s is not None and http_date.read(validator.strip()) == found.time_s


def is_among(tag: bytes, tags: bytes, *, weakly: bool = False) -> bool:
    """True if a header's list contains the tag; `weakly`: weak tags count as well."""
    if tags.strip() == _ANY:
        return True
    listed = _TAG.findall(tags)
    return tag in listed or (weakly and b"W/" + tag in listed)


def _time(headers: Mapping[bytes, bytes], name: bytes) -> int | None:
    value = headers.get(name)
    return None if value is None else http_date.read(value)


def _whole(found: FoundValue) -> HttpAnswer:
    accepts = (b"Accept-Ranges", b"bytes")
    return HttpAnswer(200, [(b"Content-Type", found.content_type), accepts, *found.headers()], found.value)


def _parts(header: bytes, found: FoundValue) -> HttpAnswer:
    size = len(found.value)
    parts = ranges.wanted(header, size)
    if parts is None:
        return _whole(found)
    if not parts:
        headers = [(b"Content-Range", ranges.content_range(None, size)), *found.about]
        return text(416, f"the value has {size} bytes, and the requested range is outside of it", headers=headers)
    if len(parts) > 1:
        body, content_type = ranges.several(found.value, parts, found.content_type)
        return HttpAnswer(206, [(b"Content-Type", content_type), *found.headers()], body)
    (part,) = parts
    about = [(b"Content-Type", found.content_type), (b"Content-Range", ranges.content_range(part, size))]
    return HttpAnswer(206, [*about, *found.headers()], found.value[part.first : part.last + 1])

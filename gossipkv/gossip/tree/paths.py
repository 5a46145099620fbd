"""Paths: at most 16 segments joined by `/`, none empty, of at most 255 bytes each and 1024 together.

The root is empty.
"""

from __future__ import annotations

import re
from functools import lru_cache

from gossipkv.errors import BadRequest
from gossipkv.gossip.packets.messages import MAX_PATH_BYTES

MAX_SEGMENT_BYTES = 255  # As in a file name.
MAX_SEGMENTS = 16  # Each may be a place of its own in the index, which takes more than a path of short ones.

_SEGMENT = rf"[^/\0]{{1,{MAX_SEGMENT_BYTES}}}"
_PLAIN = re.compile(rf"(?:{_SEGMENT}/){{0,{MAX_SEGMENTS - 1}}}{_SEGMENT}").fullmatch


def wrong(path: str) -> str | None:
    """Why this is no path of a key; None: it is one."""
    if len(path) <= MAX_PATH_BYTES and path.isascii() and _PLAIN(path):
        return None
    return _why(path)


def _why(path: str) -> str | None:
    try:
        whole = path.encode()
    except UnicodeEncodeError:
        return "is not UTF-8"
    if len(whole) > MAX_PATH_BYTES:
        return f"has {len(whole)} of at most {MAX_PATH_BYTES} bytes"
    if b"\0" in whole:
        return "has a NUL"
    return _why_of(whole.split(b"/"))


def _why_of(segments: list[bytes]) -> str | None:
    if len(segments) > MAX_SEGMENTS:
        return f"has {len(segments)} segments, at most {MAX_SEGMENTS} are allowed"
    if not all(segments):
        return "has an empty segment"
    longest = max(map(len, segments))
    if longest > MAX_SEGMENT_BYTES:
        return f"has a segment of {longest} bytes, at most {MAX_SEGMENT_BYTES} are allowed"
    return None


def check(path: str, *, root: bool = False) -> str:
    """The path, if it may name a key; with `root`, or the root.

    Raises:
        BadRequest: it may not.
    """
    why = None if root and not path else wrong(path)
    if why is not None:
        raise BadRequest(f"the path {path[:100]!r} {why}", {"path": path[:100].encode(errors="replace").decode()})
    return path


@lru_cache(maxsize=4096)  # Publishers of one kind share their prefixes.
def above(path: str) -> tuple[str, ...]:
    """The path itself and all above it, up to the root."""
    found = [path]
    while path:
        path = path.rpartition("/")[0]
        found.append(path)
    return tuple(found)

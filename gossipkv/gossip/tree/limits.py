"""Limits of published keys: their paths and sizes.

A path has at most 16 segments joined by `/`, none empty, of at most 255 bytes each and 1024 together. The root is
empty.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import final

from gossipkv.errors import BadRequest
from gossipkv.gossip.packets.messages import MAX_PATH_BYTES

MAX_SEGMENT_BYTES = 255  # File names have the same limit.
MAX_SEGMENTS = 16  # Bounds the steps from a path to the root.
ITEM_OVERHEAD_BYTES = 256  # Cost of a key beside its path and value: objects of the branch, a word of the index.
# Bounds a branch on every node, tombstones included, so that all nodes decide alike. A branch fits one reply over TCP.
MAX_BRANCH_BYTES = 256 << 10

_SEGMENT = rf"[^/\0]{{1,{MAX_SEGMENT_BYTES}}}"
_PLAIN = re.compile(rf"(?:{_SEGMENT}/){{0,{MAX_SEGMENTS - 1}}}{_SEGMENT}").fullmatch


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TreeLimits:
    """Limits of the keys published by this node, and the protocol's limit of any branch."""

    max_entry_bytes: int = 4096  # Path and value: an entry names a thing, and does not carry it.
    max_branch_bytes: int = MAX_BRANCH_BYTES  # Bounds the keys; tombstones use the rest of the protocol's limit.
    protocol_branch_bytes: int = MAX_BRANCH_BYTES  # Differs only in tests, and there on every node.

    def __post_init__(self) -> None:
        assert self.max_branch_bytes <= self.protocol_branch_bytes, self


def item_bytes(path: str, value: bytes | None) -> int:
    """Return the cost of a key, or of a tombstone if `value` is None: a rule of the protocol.

    The cost is a little more than the memory that the item takes, and always more than its bytes on the wire.
    """
    size_bytes = ITEM_OVERHEAD_BYTES + (len(path) if path.isascii() else 4 * len(path))
    return size_bytes if value is None else size_bytes + len(value)


def wrong_path(path: str) -> str | None:
    """Return the reason why this is no path of a key; None if it is one."""
    if len(path) <= MAX_PATH_BYTES and path.isascii() and _PLAIN(path):
        return None
    return _why(path)


def _why(path: str) -> str | None:
    try:
        whole = path.encode()
    except UnicodeEncodeError:
        return "is not UTF-8"
    if len(whole) > MAX_PATH_BYTES:
        return f"has {len(whole)} bytes, at most {MAX_PATH_BYTES} are allowed"
    if b"\0" in whole:
        return "has a NUL byte"
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


def check_path(path: str, *, root: bool = False) -> str:
    """Return the path if it may name a key, or, with `root`, the root.

    Raises:
        BadRequest: it may not.
    """
    why = None if root and not path else wrong_path(path)
    if why is not None:
        raise BadRequest(f"the path {path[:100]!r} {why}", {"path": path[:100].encode(errors="replace").decode()})
    return path

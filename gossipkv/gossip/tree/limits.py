"""What may be published: under which paths, and how much.

A path has at most 16 segments joined by `/`, none empty, of at most 255 bytes each and 1024 together.  The root is
empty.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import final

from gossipkv.errors import BadRequest
from gossipkv.gossip.packets.messages import MAX_PATH_BYTES

MAX_SEGMENT_BYTES = 255  # As in a file name.
MAX_SEGMENTS = 16  # Each may be a place of its own in the index, which takes more than a path of short ones.
ITEM_OVERHEAD_BYTES = 256  # What a key costs beside its path and value: objects of the branch and of the index.

_SEGMENT = rf"[^/\0]{{1,{MAX_SEGMENT_BYTES}}}"
_PLAIN = re.compile(rf"(?:{_SEGMENT}/){{0,{MAX_SEGMENTS - 1}}}{_SEGMENT}").fullmatch


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TreeLimits:
    """Bounds; a publisher is refused beyond them, a peer's branch stays at the last state within them."""

    max_branch_keys: int = 10_000  # Sequins' largest clusters publish a few thousand partitions a node.
    max_entry_bytes: int = 4096  # Path and value: an entry names a thing, it does not carry it.
    max_tree_bytes: int = 64 << 20  # All branches, what is staged and remembered of the dead included.
    max_tombstones: int = 1000  # Of one branch; beyond it the older half goes, and who missed it gets the branch anew.

    @property
    def max_branch_bytes(self) -> int:
        """No branch alone may take more than half of the whole."""
        return self.max_tree_bytes // 2

    @property
    def max_staged_changes(self) -> int:
        """What a transfer of a branch within its limits has at most: all keys and all tombstones."""
        return self.max_branch_keys + self.max_tombstones

    @property
    def max_staged_bytes(self) -> int:
        """What they cost at most: what a transfer replaces is still told as tombstones."""
        return self.max_branch_bytes + self.max_tombstones * (ITEM_OVERHEAD_BYTES + MAX_PATH_BYTES)


def item_bytes(path: str, value: bytes | None) -> int:
    """What one key costs."""
    return ITEM_OVERHEAD_BYTES + len(path) + (0 if value is None else len(value))


def wrong_path(path: str) -> str | None:
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


def check_path(path: str, *, root: bool = False) -> str:
    """Return the path, if it may name a key; with `root`, or the root.

    Raises:
        BadRequest: it may not.
    """
    why = None if root and not path else wrong_path(path)
    if why is not None:
        raise BadRequest(f"the path {path[:100]!r} {why}", {"path": path[:100].encode(errors="replace").decode()})
    return path

"""The choice between several identities that share one version's name.

Several exist while news of a stray spreads, when sources differ, or when a source was overwritten.  Each node answers
its clients from one identity, never from two, and `status` shows all of them.  An identity that is active or has passed
its gate stays.  Otherwise this order decides: all partitions have live owners, it is here, it is active at a member,
its wire id is the smallest.

A build follows the identity that other nodes published for its files: an active one first, else the smallest wire id.
Nodes with the same source thus agree on one identity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection

    from gossipkv.placement.identity import VersionIdentity


class KnownContents(NamedTuple):
    """One identity with a version's name."""

    identity: VersionIdentity
    is_covered: bool = False  # Each partition has enough live owners, by their statements.
    is_here: bool = False
    is_active: bool = False  # A member has it active.


def choose(candidates: Collection[KnownContents]) -> VersionIdentity | None:
    """Return the identity that clients get if none has passed its gate yet; None if there is none."""
    first = min(
        candidates,
        key=lambda content: (
            not content.is_covered,
            not content.is_here,
            not content.is_active,
            content.identity.wire_id,
        ),
        default=None,
    )
    return None if first is None else first.identity


def to_follow(candidates: Collection[KnownContents], digest: str) -> VersionIdentity | None:
    """Return the identity that a build of these files should reach; None: the build recognises it."""
    of_these = [content for content in candidates if content.identity.digest == digest]
    first = min(of_these, key=lambda content: (not content.is_active, content.identity.wire_id), default=None)
    return None if first is None else first.identity

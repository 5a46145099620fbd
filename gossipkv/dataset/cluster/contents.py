"""Which of the identities that go by one version's name this node takes.

Usually there is one.  There are several while a stray is heard of, when sources differ, or when one was overwritten:
then each node answers its clients from one of them, never from two, and who has more than one is told so in `status`.

    once a gate has passed, or the version is active, its identity stays
    else one whose partitions all have live owners goes first, then the one that is here, then one that is active at
    a member, then the smallest by its wire id

Who is about to build is told which function to go by, so that nodes with one source come to one identity: the one that
others have published for these files, an active one first, else the smallest by its wire id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection

    from gossipkv.placement.identity import Identity


class Known(NamedTuple):
    """One identity that goes by a version's name."""

    identity: Identity
    is_covered: bool = False  # Each of its partitions has enough owners that live, as they say.
    is_here: bool = False
    is_active: bool = False  # At a member.


def choose(known: Collection[Known]) -> Identity | None:
    """Return the one that clients are to get, when nothing has passed its gate yet; None: there is none."""
    first = min(
        known,
        key=lambda each: (not each.is_covered, not each.is_here, not each.is_active, each.identity.wire_id),
        default=None,
    )
    return None if first is None else first.identity


def to_follow(known: Collection[Known], digest: str) -> Identity | None:
    """Return the identity that a build of these files is to come to; None: it finds out for itself."""
    of_these = [each for each in known if each.identity.digest == digest]
    first = min(of_these, key=lambda each: (not each.is_active, each.identity.wire_id), default=None)
    return None if first is None else first.identity

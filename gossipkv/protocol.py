"""The versions of the protocol between nodes that this release speaks.

Members announce their versions in gossip and in hello. Two nodes use the lower of their newest versions. A new format
of packets, messages or files belongs to a version, and is written only once all known members announce that version.
"""

from __future__ import annotations

from typing import Final, NamedTuple

PROTOCOL_MIN: Final = 1
PROTOCOL_MAX: Final = 1


class ProtocolVersions(NamedTuple):
    """A range of versions, both ends included."""

    oldest: int
    newest: int

    def __contains__(self, version: object, /) -> bool:
        """Return True for a version of the range."""
        return isinstance(version, int) and self.oldest <= version <= self.newest

    def fits(self, other: ProtocolVersions) -> bool:
        """Return True if both ranges have a version in common."""
        return max(self.oldest, other.oldest) <= min(self.newest, other.newest)

    def __str__(self) -> str:
        """Return the versions in words."""
        if self.oldest == self.newest:
            return f"protocol version {self.oldest}"
        return f"protocol versions {self.oldest} to {self.newest}"


OURS: Final = ProtocolVersions(PROTOCOL_MIN, PROTOCOL_MAX)
FIRST: Final = ProtocolVersions(1, 1)  # Members that announce no versions speak this one.


def versions_of(fields: object) -> ProtocolVersions | None:
    """Return the range that `[oldest, newest]` of another node states; None if it is none."""
    match fields:
        case [int(oldest), int(newest)] if 0 < oldest <= newest < 256:  # noqa: PLR2004  # A byte of each packet.
            return ProtocolVersions(oldest, newest)
    return None

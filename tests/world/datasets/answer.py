"""The answers of simulated clients, which the checkers look at."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from gossipkv.placement.identity import VersionIdentity


class Answer(NamedTuple):
    """One answer that a client got."""

    machine: str
    version: str  # The label.
    identity: VersionIdentity | None  # None: it is not told, as on the wire.
    key: bytes
    value: bytes | None
    pinned: str | None  # The version that it asked for.
    floor: str | None  # The newest that clients of this machine had got when it asked.
    least: str | None = None  # The oldest version that it would have; wherever that is, the machine does not move.

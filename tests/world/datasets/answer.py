"""The answers of simulated clients, which the checkers judge."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from gossipkv.placement.identity import VersionIdentity


class Answer(NamedTuple):
    machine: str
    version: str  # The version's label.
    identity: VersionIdentity | None  # None: the answer does not tell it, as on the wire.
    key: bytes
    value: bytes | None
    pinned: str | None  # The version that the client asked for.
    floor: str | None  # The newest version that clients of this machine had got when it asked.
    # The oldest version that the client accepts; such an answer does not raise the floor.
    least: str | None = None

"""The place of a feed in a partition: everything up to a clock was delivered.

A clock depends on no node, so each replica can continue: it reads its log from the first entry that the clock does not
cover. Clocks name the assignments of a config, and those of two configs differ: an assignment that only the older one
names has ended by the newer one, and one that only the newer names had no records by the older.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, NamedTuple, final

from gossipkv.errors import BadRequest
from gossipkv.replication.replica import clock

if TYPE_CHECKING:
    from gossipkv.wire.rpc import Raw, Value


class ConfigClock(NamedTuple):
    """A packed clock, and the config by which it names assignments."""

    counters: bytes
    config: int

    def named(self, counters: bytes) -> bytes:
        """Return a clock's counters of the assignments that this clock names."""
        return clock.named(counters, tuple(origin for origin, _ in clock.entries(self.counters)))

    def covers(self, other: ConfigClock) -> bool:
        """Return True if no record of the other clock is missing; assignments that have ended do not count."""
        theirs = other.counters if other.config >= self.config else self.named(other.counters)
        return clock.covers(self.counters, theirs)

    def has_all(self, other: ConfigClock) -> bool:
        """Return True if also nothing of an assignment is missing that has ended by the other clock's newer config."""
        return self.config >= other.config and self.covers(other)

    def merge(self, other: ConfigClock) -> ConfigClock:
        """Return the clock of both, by the newer config."""
        newer, older = (self, other) if self.config >= other.config else (other, self)
        return newer._replace(counters=clock.merge(newer.counters, newer.named(older.counters)))


@final
@dataclass(slots=True)
class FeedPlace:
    """The place of a feed in a partition."""

    partition: int
    first: bytes  # The first key of a range, or the number of a shard.
    counters: bytes = b""  # All up to this clock was delivered, and nothing else.
    config: int = 0  # The clock's config; 0: the feed is about to begin.
    cursor: bytes | None = None  # The next key of the snapshot; None: the snapshot is over.
    # A position in the log of the node that answered last: it has nothing before that the feed lacks.
    node: bytes = b""
    space: int = 0  # The replica's space there; 0: an entry behind the position must prove it.
    position: int = 0

    @property
    def delivered(self) -> ConfigClock:
        """All up to this clock was delivered, and nothing else."""
        return ConfigClock(self.counters, self.config)

    @delivered.setter
    def delivered(self, delivered: ConfigClock) -> None:
        self.counters, self.config = delivered

    def encode(self) -> list[Value]:
        """Return the row of the place."""
        return [*astuple(self)]


def decode_place(row: Raw) -> FeedPlace:
    """Read a row. Raises BadRequest, ProtocolError."""
    match row:
        case [
            int(partition), bytes(first), bytes(counters), int(config), None | bytes() as cursor,
            bytes(node), int(space), int(position),
        ]:  # fmt: skip
            clock.check(counters)
            return FeedPlace(partition, first, counters, config, cursor, node, space, position)
    raise BadRequest("the place of a feed is [partition, first key, clock, config, key, node, space, position]")

"""The place of a feed in a partition: everything up to a clock was delivered.

A clock depends on no node, so each replica can continue: it reads its log from the first entry that the clock does not
cover. Clocks name the assignments of a config, and those of two configs differ: an assignment that only the older one
names has ended by the newer one, and one that only the newer names had no records by the older.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, final

from gossipkv.errors import BadRequest
from gossipkv.replication.replica import clock

if TYPE_CHECKING:
    from gossipkv.wire.rpc import Raw, Value


class ConfigClock(NamedTuple):
    """A packed clock, and the config by which it names assignments."""

    counters: bytes
    config: int

    @property
    def names(self) -> tuple[int, ...]:
        """The assignments that the clock names."""
        return tuple(origin for origin, _ in clock.entries(self.counters))

    def covers(self, other: ConfigClock) -> bool:
        """Return True if no record of the other clock is missing; assignments that have ended do not count."""
        theirs = other.counters
        if other.config < self.config:
            theirs = clock.named(theirs, self.names)
        return clock.covers(self.counters, theirs)

    def has_all(self, other: ConfigClock) -> bool:
        """Return True if also nothing of an assignment is missing that has ended by the other clock's newer config."""
        return self.config >= other.config and self.covers(other)

    def merge(self, other: ConfigClock) -> ConfigClock:
        """Return the clock of both, by the newer config."""
        newer = max(self, other, key=lambda one: one.config)
        merged = clock.merge(self.counters, other.counters)
        if self.config != other.config:
            merged = clock.named(merged, newer.names)
        return ConfigClock(merged, newer.config)


NOTHING: Final = ConfigClock(b"", 0)


@final
@dataclass(slots=True)
class FeedPlace:
    """The place of a feed in a partition, as nodes exchange it."""

    partition: int
    delivered: ConfigClock | None = None  # All up to here was delivered; None: the feed is about to begin.
    # Some up to here may have been delivered, so no older record of such a key may follow.
    shown: ConfigClock = NOTHING
    cursor: bytes | None = None  # The next key of the snapshot; None: the snapshot is over.
    # A position in the log of the node that answered last: it has nothing before that the feed lacks.
    space: int = 0
    position: int = 0

    def encode(self) -> list[Value]:
        """Return the row of the place."""
        delivered = [None, 0] if self.delivered is None else [*self.delivered]
        return [self.partition, *delivered, *self.shown, self.cursor, self.space, self.position]


def decode_place(row: Raw) -> FeedPlace:
    """Read a row. Raises BadRequest, ProtocolError."""
    match row:
        case [
            int(partition),
            None | bytes() as counters,
            int(config),
            bytes(shown),
            int(shown_config),
            None | bytes() as cursor,
            int(space),
            int(position),
        ]:
            for packed in (counters or b"", shown):
                clock.check(packed)
            delivered = None if counters is None else ConfigClock(counters, config)
            return FeedPlace(partition, delivered, ConfigClock(shown, shown_config), cursor, space, position)
    raise BadRequest("the place of a feed is [partition, clock, config, clock, config, key, space, position]")

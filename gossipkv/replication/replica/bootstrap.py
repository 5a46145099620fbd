"""Bootstrap state of an incomplete replica: the target of a move until it has loaded.

Once the other hosts have adopted its config, they feed the replica. It merges their entries in order, although its
clock does not cover the earlier ones. For each source it keeps a *span*: the source's clock before the first merged
entry and after the last. An entry that does not continue the span restarts it.

A bulk load gives the replica a clock. If the clock reaches the start of a span, it advances to the span's end, since
all before is here. When all spans are reached, the replica is complete. Until then it reports no clock, as open spans
may still be discarded and reloaded; it confirms by its spans. It feeds no host: its log lacks the earlier entries.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Final, NamedTuple

import msgpack

from gossipkv.errors import ProtocolError
from gossipkv.replication.replica import clock
from gossipkv.replication.replica.keys import JOINING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gossipkv.storage.engine.shell import Batch


class Span(NamedTuple):
    """The entries merged from one source: packed clocks before the first and after the last."""

    source: int  # The source's assignment.
    before: bytes
    after: bytes


class Bootstrap(NamedTuple):
    """The spans of an incomplete replica."""

    is_loaded: bool = False  # The bulk load is done; only open spans are left.
    spans: tuple[Span, ...] = ()
    is_over: bool = False  # The replica is complete.

    def span(self, source: int) -> Span | None:
        """Return the span of a source."""
        return next((span for span in self.spans if span.source == source), None)

    def taken(self, source: int, before: bytes, after: bytes) -> Bootstrap:
        """Extend or restart a source's span by a merged entry."""
        span, rest = self.span(source), tuple(other for other in self.spans if other.source != source)
        if span is not None and clock.covers(span.after, before):
            span = Span(source, span.before, clock.merge(span.after, after))
        else:
            span = Span(source, before, after)
        return self._replace(spans=(*rest, span))

    def closed(self, reached: bytes, names: Sequence[int]) -> tuple[Bootstrap, bytes]:
        """Close the spans that a clock reaches; return the new state and the advanced clock.

        Origins outside `names` have ended. Closed spans stay until all are closed: they confirm records to their
        sources.
        """
        spans = tuple(Span(span.source, *(clock.named(end, names) for end in span[1:])) for span in self.spans)
        if not self.is_loaded:
            return self._replace(spans=spans), reached
        left = [*spans]
        while closed := [span for span in left if clock.covers(reached, span.before)]:
            reached = reduce(clock.merge, (span.after for span in closed), reached)
            left = [span for span in left if span not in closed]
        return (self._replace(spans=spans) if left else WHOLE), reached

    def put(self, batch: Batch, space: int) -> None:
        """Store the state in a space, or delete it there once it is over."""
        if self.is_over:
            batch.delete(space, JOINING)
        else:
            batch.put(space, JOINING, msgpack.packb(self[:2]))


WHOLE: Final = Bootstrap(is_loaded=True, is_over=True)


def decode_joining(value: bytes) -> Bootstrap:
    """Decode the value under `JOINING`. Raises ProtocolError."""
    match msgpack.unpackb(value):
        case [bool(is_loaded), list(rows)]:
            return Bootstrap(is_loaded, tuple(map(_span_of, rows)))
    raise ProtocolError("an incomplete replica has the form [is loaded, [[assignment, before, after], ...]]")


def _span_of(row: object) -> Span:
    match row:
        case [int(source), bytes(before), bytes(after)]:
            clock.check(before)
            clock.check(after)
            return Span(source, before, after)
    raise ProtocolError("a span has the form [assignment, clock before, clock after]")

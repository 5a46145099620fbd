r"""What a copy has that is not whole yet: the target of a move, until it has loaded.

From the adoption of the config that names it on it is fed by all hosts, in the order of their logs, and merges what
comes, though its clock does not cover what came before.  Of each source it keeps a *span*: the source's clock before
the first entry and after the last.  An entry that does not go on from there begins the span anew.

Loading gives it a clock.  Where that reaches the beginning of a span, all that the source has up to its end is here,
and the clock takes that as well; when it has reached all of them, the copy is whole.  Until then it tells no clock, for
what stays open is let go of with all else, and loaded anew; it confirms by its spans.  It feeds nobody: its log has
records by themselves, and not what they go on from.
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
    """What was merged of one source: packed clocks of it, before the first entry and after the last."""

    source: int  # Its assignment.
    before: bytes
    after: bytes


class Bootstrap(NamedTuple):
    """What a copy has beside its clock."""

    is_loaded: bool = False  # It was; then only spans that are open are left.
    spans: tuple[Span, ...] = ()
    is_over: bool = False  # The copy is whole.

    def span(self, source: int) -> Span | None:
        """What was merged of a source."""
        return next((span for span in self.spans if span.source == source), None)

    def taken(self, source: int, before: bytes, after: bytes) -> Bootstrap:
        """An entry of a source was merged."""
        span, others = self.span(source), tuple(one for one in self.spans if one.source != source)
        if span is not None and clock.covers(span.after, before):
            span = Span(source, span.before, clock.merge(span.after, after))
        else:
            span = Span(source, before, after)
        return self._replace(spans=(*others, span))

    def closed(self, reached: bytes, names: Sequence[int]) -> tuple[Bootstrap, bytes]:
        """What is left by a clock, and the clock with what it leads up to; what `names` lacks has ended.

        A span that is closed stays until all are: it tells its source what is confirmed.
        """
        spans = tuple(Span(one.source, *(clock.named(end, names) for end in one[1:])) for one in self.spans)
        if not self.is_loaded:
            return self._replace(spans=spans), reached
        left = [*spans]
        while closed := [span for span in left if clock.covers(reached, span.before)]:
            reached = reduce(clock.merge, (span.after for span in closed), reached)
            left = [span for span in left if span not in closed]
        return (self._replace(spans=spans) if left else WHOLE), reached

    def put(self, batch: Batch, space: int) -> None:
        """Have it stand in a space; nothing, once it is over."""
        if self.is_over:
            batch.delete(space, JOINING)
        else:
            batch.put(space, JOINING, msgpack.packb(self[:2]))


WHOLE: Final = Bootstrap(is_loaded=True, is_over=True)


def decode_joining(value: bytes) -> Bootstrap:
    """Read what stands under `JOINING`.  Raises ProtocolError."""
    match msgpack.unpackb(value):
        case [bool(is_loaded), list(rows)]:
            return Bootstrap(is_loaded, tuple(map(_span_of, rows)))
    raise ProtocolError("what a copy has that is not whole is [is loaded, [[assignment, before, after], ...]]")


def _span_of(row: object) -> Span:
    match row:
        case [int(source), bytes(before), bytes(after)]:
            clock.check(before)
            clock.check(after)
            return Span(source, before, after)
    raise ProtocolError("a span is [assignment, clock before, clock after]")

"""Many requests on their way at once over one link, answered in the order asked.

The window is refilled when half of it is answered, so that many requests share one packet and one system call.  When
the link breaks, whatever has no answer yet is sent again on the next one: the caller sees no seam.  An answer that
arrived before the break counts.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING, final

from gossipkv.client.link import Link, LinkError
from gossipkv.errors import TimedOut

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gossipkv.client.route import Failures, Route
    from gossipkv.wire.rpc import Response, Value


@final
class Pipeline:
    """The requests of one method that are open; at most `in_flight` of them.

    Each has `timeout_s` from the moment it is the oldest.
    """

    def __init__(
        self, route: Route, method: str, requests: Iterator[Sequence[Value]], *, in_flight: int, timeout_s: float
    ) -> None:
        self._route = route
        self._method = method
        self._requests = requests
        self._in_flight = in_flight
        self._timeout_s = timeout_s
        self._open: deque[Sequence[Value]] = deque()
        self._message_ids: deque[int] = deque()  # Of the first so many of `_open`: those sent on `_link`.
        self._link: Link | None = None
        self._proven = route.held  # Links that break are held against their address until they answered once.
        self._failures: Failures = {}

    def results(self) -> Iterator[Value]:
        """The results in order.

        Raises:
            GossipKVError: what `Client.call` raises, at the request that failed.
        """
        try:
            while self._refill():
                answer = self._oldest_answer()
                if answer.error is not None:
                    raise answer.error
                yield answer.result
        finally:
            if self._link is not None:
                for message_id in self._message_ids:
                    self._link.abandon(message_id)

    def _refill(self) -> bool:
        """Take more requests when half of the window is free; False when all are answered."""
        if len(self._open) <= self._in_flight // 2:
            self._open.extend(islice(self._requests, self._in_flight - len(self._open)))
        return bool(self._open)

    def _oldest_answer(self) -> Response:
        deadline = monotonic() + self._timeout_s
        while True:
            link = self._link
            if link is None:
                link = self._link = self._route.link(deadline, self._failures)
                self._message_ids.clear()
            try:
                if len(self._message_ids) < len(self._open):
                    unsent = list(islice(self._open, len(self._message_ids), None))
                    self._message_ids.extend(link.send(self._method, unsent, deadline))
                answer = link.wait(self._message_ids[0], self._method, deadline)
            except LinkError as broken:
                self._route.leave(link, broken, self._failures, is_new=link is not self._proven)
                self._link = None
            except TimedOut:
                self._route.prefer_another(link.address)
                raise
            else:
                self._message_ids.popleft()
                self._open.popleft()
                self._proven = link
                self._failures.clear()
                return answer

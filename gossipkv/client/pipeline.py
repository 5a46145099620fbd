"""Many requests in flight over one link, answered in the order asked.

The window is refilled when half of it is answered, so that many requests share one packet and one system call.  When
the link breaks, all requests without an answer are sent again on the next link, unnoticed by the caller.  An answer
that arrived before the break counts.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from time import monotonic, sleep
from typing import TYPE_CHECKING, Generic, TypeVar, final

from gossipkv.client.link import BlockingLink, LinkError
from gossipkv.client.patience import pause_s
from gossipkv.errors import TimedOut

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gossipkv.client._client import Request
    from gossipkv.client.dialler import Dialler
    from gossipkv.client.route import Failures


_Result = TypeVar("_Result")


@final
class Pipeline(Generic[_Result]):
    """Repeatable requests, of which at most `in_flight` are open.

    Each has `timeout_s` from the moment it is the oldest.
    """

    def __init__(
        self, dialler: Dialler, requests: Iterator[Request[_Result]], *, in_flight: int, timeout_s: float
    ) -> None:
        self._dialler = dialler
        self._requests = requests
        self._in_flight = in_flight
        self._timeout_s = timeout_s
        self._open: deque[Request[_Result]] = deque()
        self._unsent: list[Request[_Result]] = []  # Requests of `_open` that `_link` was not given yet.
        self._link: BlockingLink | None = None
        self._proven = dialler.held  # A link that breaks before its first answer counts as a failure of its address.
        self._failures: Failures = {}

    def results(self) -> Iterator[_Result]:
        """Yield the results in order.

        Raises:
            GossipKVError: as `Client.call`, at the request that failed.
        """
        try:
            while self._refill():
                self._dialler.acquire()
                try:
                    request = self._oldest()
                finally:
                    self._dialler.release()
                yield request.take()
        finally:
            for request in self._open:
                request.fail(None)

    def _refill(self) -> bool:
        """Take more requests when half of the window is free; return False when all are answered."""
        if len(self._open) <= self._in_flight // 2:
            more = list(islice(self._requests, self._in_flight - len(self._open)))
            self._open.extend(more)
            self._unsent.extend(more)
        return bool(self._open)

    def _oldest(self) -> Request[_Result]:
        """Return the oldest request, done and removed; repeat it while the node still builds its data."""
        since = monotonic()
        deadline = since + self._timeout_s
        self._attempt(deadline)
        while (pause := pause_s(self._open[0].error, (now := monotonic()) - since, deadline - now)) is not None:
            sleep(pause)
            self._open[0].reopen()
            self._unsent.insert(0, self._open[0])
            self._attempt(deadline)
        return self._open.popleft()

    def _attempt(self, deadline: float) -> None:
        while not self._open[0].is_done:
            link = self._link
            if link is None:
                link = self._link = self._dialler.link(deadline, self._failures)
                self._unsent = [request for request in self._open if not request.is_done]
            try:
                if self._unsent:
                    link.send(self._unsent, deadline)
                    self._unsent = []
                link.wait(self._open[0], deadline)
            except LinkError as broken:
                self._dialler.leave(link, broken, self._failures, is_new=link is not self._proven)
                self._link = None
            except TimedOut:
                self._dialler.prefer_another(link)
                raise
        self._proven = self._link
        self._failures.clear()

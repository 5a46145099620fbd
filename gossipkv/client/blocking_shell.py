"""The client of plain threads without its methods."""

from __future__ import annotations

import random
from collections import deque
from itertools import islice
from math import inf
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final, Self, cast

from gossipkv.client import reads
from gossipkv.client._client import call_request
from gossipkv.client.backoff import Backoff
from gossipkv.client.channel import Channel
from gossipkv.client.channels import Channels
from gossipkv.client.credentials import PLAIN, Credentials
from gossipkv.client.pages import Batches
from gossipkv.client.reads import REPEATABLE, TIMEOUT_MS
from gossipkv.client.route import AddressRoute, addresses_of
from gossipkv.errors import GossipKVError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
    from typing import TypeVar

    from gossipkv.address import Address
    from gossipkv.client._client import Records, Request
    from gossipkv.client.asking import Scanned
    from gossipkv.client.changes import ChangePages
    from gossipkv.client.pages import ScanPages
    from gossipkv.client.reads import Record
    from gossipkv.client.route import Named
    from gossipkv.wire.rpc import Value

    _Result = TypeVar("_Result")
    _Whole = TypeVar("_Whole")

IN_FLIGHT: Final = 100  # Hides a round trip of 1 ms at 100,000 requests a second.


class BlockingShell:
    """The services of `asking.Shell` for plain threads."""

    __slots__ = ("_channels", "_timeout_ms")

    def __init__(
        self,
        addresses: Iterable[Named | Iterable[Named]],
        *,
        timeout_ms: int = TIMEOUT_MS,
        stage_timeout_ms: int | None = None,
        credentials: Credentials = PLAIN,
        follows: bool = True,
    ) -> None:
        """Begin without a connection; `follows`: members of the cluster are asked when the given nodes are gone."""
        route, backoff = AddressRoute(addresses_of(addresses)), Backoff(random.random)
        stage_s = reads.stage_s(stage_timeout_ms)
        self._timeout_ms = reads.number("timeout_ms", timeout_ms)
        self._channels = Channels(lambda: Channel(route, backoff, credentials, stage_s=stage_s, follows=follows))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def address(self) -> Address | None:
        """The node in use, or None while there is no connection."""
        return self._channels.address

    def close(self) -> None:
        """End the connections.  A closed client answers every request with `Unavailable`, also those that are open."""
        self._channels.close()

    def dial(self) -> Self:
        """Connect now, if not connected, and return the client; requests also do it.  Raises as `connect`."""
        due = self.deadline(None)
        place, channel = self._channels.take(due)
        try:
            channel.dial(due)
        except BaseException:
            self._channels.drop(place)
            raise
        self._channels.give(place)
        return self

    def deadline(self, timeout_ms: int | None) -> float:
        """Return the deadline of a request that starts now, by `time.monotonic`."""
        return monotonic() + self.allowed_ms(timeout_ms) / 1000

    def allowed_ms(self, timeout_ms: int | None) -> int:
        """Return the time of a request with this `timeout_ms`, or the client's if None."""
        return self._timeout_ms if timeout_ms is None else reads.number("timeout_ms", timeout_ms)

    def now(self) -> float:
        return monotonic()

    def ask(
        self,
        request: Request[_Result],
        timeout_ms: int | None,
        finish: Callable[[_Result], _Whole],
        otherwise: Callable[[GossipKVError], Generator[Request[object], object, _Result]] | None = None,
    ) -> _Whole:
        deadline = self.deadline(timeout_ms)
        try:
            result = self._asked(request, deadline)
        except GossipKVError as error:
            if otherwise is None:
                raise
            steps = otherwise(error)
        else:
            return finish(result)
        return finish(self._driven(steps, deadline))

    def ask_steps(self, steps: Generator[Request[_Result], _Result, _Whole], timeout_ms: int | None) -> _Whole:
        return self._driven(steps, self.deadline(timeout_ms))

    def _driven(self, steps: Generator[Request[_Result], _Result, _Whole], deadline: float) -> _Whole:
        try:
            request = next(steps)
            while True:
                try:
                    answer = self._asked(request, deadline)
                except GossipKVError as error:
                    request = steps.throw(error)
                else:
                    request = steps.send(answer)
        except StopIteration as end:
            whole: _Whole = end.value
            return whole

    def scanned(self, pages: ScanPages | ChangePages, timeout_ms: int | None) -> Scanned:
        items = self._items(pages, timeout_ms)
        return Batches(cast("Iterator[Records]", items), as_text=pages.as_text) if pages.has_columns else items

    def _items(self, pages: ScanPages | ChangePages, timeout_ms: int | None) -> Iterator[Record]:
        while (request := pages.next_request()) is not None:
            try:
                page = self._asked(request, self.deadline(timeout_ms))
            except GossipKVError as error:
                pause_s = pages.pause_s(error)
                if pause_s is None:
                    raise
                sleep(pause_s)
            else:
                yield from cast("Sequence[Record]", pages.items(page))

    def _asked(self, request: Request[_Result], deadline: float) -> _Result:
        channels = self._channels
        place, channel = channels.take(deadline)
        try:
            channel.ask(request, deadline)
        except BaseException:
            channels.drop(place)
            raise
        channels.give(place)
        return request.take()

    def pipeline(self, method: str, requests: Iterable[Sequence[Value]], in_flight: int = IN_FLIGHT) -> Iterator[Value]:
        """Yield the results of `requests` (each the parameters of a repeatable method), in order.

        At most `in_flight` are open at once; `requests` is consumed as they are sent, and may be endless.  Each has the
        client's timeout from the moment it is the oldest.  The loop may be left early, and may make other requests
        inside. Raises as `call`, at the request that failed.
        """
        reads.check_text("the method", method)
        if method not in REPEATABLE:
            raise ValueError(
                f"{method} cannot be pipelined, because repeating it may not be safe; send one request at a time"
            )
        asked = reads.several(requests, "requests")
        return self.ask_all((call_request(method, params) for params in asked), in_flight)

    def ask_all(self, requests: Iterator[Request[_Result]], in_flight: int) -> Iterator[_Result]:
        """Do the same as `pipeline` for ready-made requests, all of them repeatable."""
        return self._answers(requests, int(reads.number("in_flight", in_flight)))

    def _answers(self, requests: Iterator[Request[_Result]], in_flight: int) -> Iterator[_Result]:
        window: deque[Request[_Result]] = deque()
        place, channel = self._channels.take(self.deadline(None))
        is_whole = True
        try:
            while True:
                if len(window) <= in_flight // 2:  # Many requests share one packet and one system call.
                    more = list(islice(requests, in_flight - len(window)))
                    is_whole = False
                    for request in more:
                        channel.dispatcher.submit(request, inf)
                    channel.flush()
                    is_whole = True
                    window.extend(more)
                if not window:
                    return
                if not window[0].is_done:
                    is_whole = False
                    channel.dispatcher.hurry(window[0], self.deadline(None))
                    channel.run(window[0])
                    is_whole = True
                yield window.popleft().take()
        finally:
            if is_whole:
                for request in window:
                    channel.dispatcher.cancel(request)
                self._channels.give(place)
            else:
                self._channels.drop(place)

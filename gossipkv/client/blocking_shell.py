"""The blocking client without its methods."""

from __future__ import annotations

from time import monotonic, sleep
from typing import TYPE_CHECKING, Final, Self, cast

from gossipkv.client import reads
from gossipkv.client._client import call_request
from gossipkv.client.credentials import PLAIN, Credentials
from gossipkv.client.dialler import Dialler
from gossipkv.client.link import LinkError
from gossipkv.client.pages import Batches
from gossipkv.client.patience import pause_s
from gossipkv.client.pipeline import Pipeline
from gossipkv.client.reads import REPEATABLE, TIMEOUT_MS
from gossipkv.client.route import Failures, addresses_of, unknown
from gossipkv.errors import GossipKVError, ProtocolError, TimedOut

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
    from types import TracebackType
    from typing import TypeVar

    from gossipkv.address import Address
    from gossipkv.client._client import Records, Request
    from gossipkv.client.link import BlockingLink
    from gossipkv.client.pages import ScanPages
    from gossipkv.client.reads import Record
    from gossipkv.client.route import Named
    from gossipkv.wire.rpc import Value

    _Result = TypeVar("_Result")
    _Whole = TypeVar("_Whole")

IN_FLIGHT: Final = 100  # Hides a round trip of 1 ms at 100,000 requests a second.


class BlockingShell:
    """The services of `asking.Shell` for plain threads."""

    __slots__ = ("_credentials", "_dialler", "_nodes", "_timeout_ms")

    def __init__(
        self,
        addresses: Iterable[Named | Iterable[Named]],
        *,
        timeout_ms: int = TIMEOUT_MS,
        credentials: Credentials = PLAIN,
    ) -> None:
        self._dialler = Dialler(addresses_of(addresses), credentials)
        self._credentials = credentials
        self._nodes: dict[Address, BlockingShell] = {}  # Clients of one node each, for tables that use their map.
        self._timeout_ms = reads.positive(timeout_ms)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def address(self) -> Address | None:
        """The node in use, or None while there is no connection."""
        link = self._dialler.held
        return None if link is None or not link.is_open else link.address

    def close(self) -> None:
        """End the connection.  A closed client answers every request with `Unavailable`."""
        self._dialler.close()
        for client in self._nodes.values():
            client.close()

    def dial(self) -> None:
        """Connect now, if not connected; requests also do it.  Raises as `connect`."""
        self._dialler.acquire()
        try:
            self._dialler.link(self.deadline(None), {})
        finally:
            self._dialler.release()

    def deadline(self, timeout_ms: int | None) -> float:
        """Return the deadline of a request that starts now, by `time.monotonic`."""
        return monotonic() + self.allowed_ms(timeout_ms) / 1000

    def allowed_ms(self, timeout_ms: int | None) -> int:
        """Return the time of a request with this `timeout_ms`, or the client's if None."""
        return self._timeout_ms if timeout_ms is None else reads.positive(timeout_ms)

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

    def scanned(self, pages: ScanPages, timeout_ms: int | None = None) -> Iterator[Record] | Batches:
        items = self._items(pages, timeout_ms)
        return Batches(cast("Iterator[Records]", items), as_text=pages.as_text) if pages.has_columns else items

    def _items(self, pages: ScanPages, timeout_ms: int | None) -> Iterator[Record]:
        while (request := pages.next_request()) is not None:
            yield from cast("Sequence[Record]", pages.items(self._asked(request, self.deadline(timeout_ms))))

    def _asked(self, request: Request[_Result], deadline: float) -> _Result:
        if request.at is not None:
            node = self._nodes.get(request.at)
            if node is None:
                node = self._nodes[request.at] = BlockingShell(
                    [request.at], timeout_ms=self._timeout_ms, credentials=self._credentials
                )
            request.at = None
            return node._asked(request, deadline)
        self._dialler.acquire()
        try:
            self._attempt(request, deadline)
            if request.error is not None:
                since = monotonic()
                while (pause := pause_s(request.error, (now := monotonic()) - since, deadline - now)) is not None:
                    sleep(pause)
                    request.reopen()
                    self._attempt(request, deadline)
            return request.take()
        finally:
            self._dialler.release()

    def _attempt(self, request: Request[object], deadline: float) -> None:
        dialler = self._dialler
        before = dialler.held
        failures: Failures = {}
        while True:
            link = dialler.link(deadline, failures)
            if link is before and not request.is_repeatable and link.has_ended():
                link.close()  # Nothing was sent on it yet, and bytes sent now would be lost.
                continue
            try:
                link.ask(request, deadline)
            except LinkError as broken:
                dialler.leave(link, broken, failures, is_new=link is not before)
                self._check_outcome(request, link, broken)
            except TimedOut as late:
                dialler.prefer_another(link)
                self._check_outcome(request, link, late)
                raise
            except ProtocolError as odd:
                self._check_outcome(request, link, odd)
                raise
            else:
                return

    @staticmethod
    def _check_outcome(request: Request[object], link: BlockingLink, error: Exception) -> None:
        """Raise `Unknown` if `request` may have been done and may not be repeated."""
        if not request.is_repeatable and link.has_begun(request):
            raise unknown(request, link.address, error, error)

    def pipeline(self, method: str, requests: Iterable[Sequence[Value]], in_flight: int = IN_FLIGHT) -> Iterator[Value]:
        """Yield the results of `requests` (each the parameters of a repeatable method), in order.

        At most `in_flight` are open at once; `requests` is consumed as they are sent, and may be endless.  Each has the
        client's timeout from the moment it is the oldest.  The loop may be left early, and may make other requests
        inside. Raises as `call`, at the request that failed.
        """
        if method not in REPEATABLE:
            raise ValueError(f"{method} is not known to be repeatable, so it cannot be pipelined")
        return self.ask_all((call_request(method, params) for params in requests), in_flight)

    def ask_all(self, requests: Iterator[Request[_Result]], in_flight: int) -> Iterator[_Result]:
        """Do the same as `pipeline` for ready-made requests, all of them repeatable."""
        if in_flight < 1:
            raise ValueError(f"in_flight must be at least 1, not {in_flight}")
        return Pipeline(self._dialler, requests, in_flight=in_flight, timeout_s=self._timeout_ms / 1000).results()

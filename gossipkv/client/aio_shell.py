"""The client under asyncio without its methods: each waiting task has a future until its request is done."""

from __future__ import annotations

import asyncio
import random
from math import inf
from typing import TYPE_CHECKING, ClassVar, Self

from gossipkv.client import forks, reads
from gossipkv.client.aio_link import AioLink, wake
from gossipkv.client.backoff import Backoff
from gossipkv.client.credentials import PLAIN, REFUSALS, Credentials
from gossipkv.client.dispatcher import Dispatcher
from gossipkv.client.patience import pause_s
from gossipkv.client.reads import TIMEOUT_MS
from gossipkv.client.route import AddressRoute, Failures, addresses_of, reason_of, too_late, unreachable
from gossipkv.client.scan import Scan
from gossipkv.errors import GossipKVError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable
    from types import TracebackType
    from typing import TypeVar

    from gossipkv.address import Address
    from gossipkv.client._client import Records, Request
    from gossipkv.client.pages import ScanPages
    from gossipkv.client.reads import Record
    from gossipkv.client.route import Named

    _Result = TypeVar("_Result")
    _Whole = TypeVar("_Whole")


class AioShell:
    """What `asking.Shell` promises, under asyncio.

    There is no task but while a node is dialled.
    """

    BUSY: ClassVar[type[Exception]] = RuntimeError

    def __init__(
        self,
        addresses: Iterable[Named | Iterable[Named]],
        *,
        timeout_ms: int = TIMEOUT_MS,
        credentials: Credentials = PLAIN,
        draw: Callable[[], float] = random.random,
    ) -> None:
        """Begin without a connection; `draw` returns numbers from 0 to 1 that spread reconnects."""
        self._route = AddressRoute(addresses_of(addresses))
        self._timeout_ms = reads.positive(timeout_ms)
        self._credentials = credentials
        self.dispatcher = Dispatcher(self._route, Backoff(draw), self)
        self._generation = forks.generation
        self._loop: asyncio.AbstractEventLoop | None = None  # Set at the first use.
        self.now: Callable[[], float]
        self._future: Callable[[], asyncio.Future[None]]
        self._dialling: asyncio.Task[None] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._nodes: dict[Address, AioShell] = {}  # Clients of one node each, for tables that use their map.

    def __await__(self) -> Generator[None, None, Self]:
        """Connect now: `client = await gossipkv.aio.connect(…)`, which `aclose` ends."""
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Self:
        self.deadline(None)
        if self.dispatcher.link is None:
            self._start(await self._first_link())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End the connection and every request.  A closed client answers each request with `Unavailable`."""
        self.deadline(None)
        for client in (self, *self._nodes.values()):
            client.end()
        await asyncio.sleep(0)  # Transports end in the next turn of the loop.

    def end(self) -> None:
        """End every link and every request."""
        self.dispatcher.close()
        if self._dialling is not None:
            self._dialling.cancel()
        if self._alarm is not None:
            self._alarm.cancel()

    @property
    def address(self) -> Address | None:
        """The node in use, or None while there is no connection."""
        link = self.dispatcher.link
        return None if link is None else link.address

    def _at(self, address: Address) -> Dispatcher:
        """Return the dispatcher of a client of one node, which ends with this one."""
        client = self._nodes.get(address)
        if client is None:
            client = self._nodes[address] = AioShell(
                [address], timeout_ms=self._timeout_ms, credentials=self._credentials
            )
            client.deadline(None)
        return client.dispatcher

    def deadline(self, timeout_ms: int | None) -> float:
        """Return the deadline of a request that starts now, by the loop's time.

        Raises:
            RuntimeError: the client is used where it does not belong.
        """
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise self._misplaced() from None
        if loop is not self._loop:
            if self._loop is not None or self._generation != forks.generation:
                raise self._misplaced()
            self._loop, self.now, self._future = loop, loop.time, loop.create_future
        return self.now() + self.allowed_ms(timeout_ms) / 1000

    def allowed_ms(self, timeout_ms: int | None) -> int:
        return self._timeout_ms if timeout_ms is None else reads.positive(timeout_ms)

    def _misplaced(self) -> RuntimeError:
        if self._generation != forks.generation:
            return RuntimeError("the client belongs to the process that this one was forked from; connect again")
        if self._loop is None:
            return RuntimeError(
                "gossipkv.aio.connect is for asyncio, and no event loop runs here; under Trio use gossipkv.connect, in "
                "plain threads gossipkv.blocking.connect"
            )
        if self._loop.is_closed():
            return RuntimeError("the client belongs to an event loop that is closed; connect in each asyncio.run")
        return RuntimeError("the client belongs to another thread or event loop; connect in each")

    async def ask(
        self,
        request: Request[_Result],
        timeout_ms: int | None,
        finish: Callable[[_Result], _Whole],
        otherwise: Callable[[GossipKVError], Generator[Request[object], object, _Result]] | None = None,
    ) -> _Whole:
        # This repeats `_asked`: on the path of every read a further coroutine would be felt.
        due = self.deadline(timeout_ms)
        dispatcher = self.dispatcher if request.at is None else self._at(request.at)
        waiter = request.owner = self._future()
        dispatcher.submit(request, due)
        try:
            await waiter
        except asyncio.CancelledError:
            self._drop(request, dispatcher)
            raise
        if request.error is None:
            return finish(request.take())
        try:
            result = await self._once_built(request, dispatcher)
        except GossipKVError as error:
            if otherwise is None:
                raise
            steps = otherwise(error)
        else:
            return finish(result)
        return finish(await self._driven(steps, due))

    async def ask_steps(self, steps: Generator[Request[_Result], _Result, _Whole], timeout_ms: int | None) -> _Whole:
        return await self._driven(steps, self.deadline(timeout_ms))

    async def _driven(self, steps: Generator[Request[_Result], _Result, _Whole], due: float) -> _Whole:
        try:
            request = next(steps)
            while True:
                try:
                    answer = await self._asked(request, due)
                except GossipKVError as error:
                    request = steps.throw(error)
                else:
                    request = steps.send(answer)
        except StopIteration as end:
            whole: _Whole = end.value
            return whole

    async def _asked(self, request: Request[_Result], due: float) -> _Result:
        dispatcher = self.dispatcher if request.at is None else self._at(request.at)
        dispatcher.submit(request, due)
        await self._done(request, dispatcher)
        return await self._once_built(request, dispatcher)

    def scanned(self, pages: ScanPages, timeout_ms: int | None) -> Scan[Record] | Scan[Records]:
        return Scan(self, pages, timeout_ms)

    def submit(self, request: Request[object], timeout_ms: int | None) -> None:
        self.dispatcher.submit(request, self.deadline(timeout_ms))

    async def answer(self, request: Request[_Result]) -> _Result:
        if request.is_done:
            await asyncio.sleep(0)
        else:
            await self._done(request, self.dispatcher)
        return await self._once_built(request, self.dispatcher)

    def abandon(self, request: Request[object]) -> None:
        if not request.is_done:
            self.dispatcher.cancel(request)

    async def checkpoint(self) -> None:
        await asyncio.sleep(0)

    async def _done(self, request: Request[object], dispatcher: Dispatcher) -> None:
        waiter = request.owner = self._future()
        try:
            await waiter
        except asyncio.CancelledError:
            self._drop(request, dispatcher)
            raise

    @staticmethod
    def _drop(request: Request[object], dispatcher: Dispatcher) -> None:
        """Drop a request whose task was cancelled; the answer may have come in between."""
        request.owner = None
        if not request.is_done:
            dispatcher.cancel(request)

    async def _once_built(self, request: Request[_Result], dispatcher: Dispatcher) -> _Result:
        """Return the result of a request that is done; repeat it while its data is being built."""
        since = self.now()
        while (pause := pause_s(request.error, (now := self.now()) - since, request.due - now)) is not None:
            await asyncio.sleep(pause)
            request.reopen()
            dispatcher.submit(request, request.due)
            await self._done(request, dispatcher)
        return request.take()

    def wake(self, owner: object) -> None:
        """Wake a task whose request is done (called by the dispatcher)."""
        wake(owner)

    def want_link(self) -> None:
        """Make a link (called by the dispatcher)."""
        if self._dialling is None or self._dialling.done():
            assert self._loop is not None
            self._dialling = self._loop.create_task(self._dial())

    def set_alarm(self, at: float) -> None:
        """Note that the earliest deadline came nearer (called by the dispatcher)."""
        assert self._loop is not None
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self._loop.call_at(at, self._loop.call_soon, self._loop.call_soon, self._on_time)

    def _on_time(self) -> None:
        """Give up what is due, two turns of the loop after the alarm, so that what has arrived is read first."""
        at = self.dispatcher.on_time(self.now())
        self._alarm = None
        if at < inf:
            self.set_alarm(at)

    async def _first_link(self) -> AioLink:
        failures: Failures = {}
        due = self.deadline(None)
        untried = self._route.untried(failures)
        for position, address in enumerate(untried):
            remaining_s = due - self.now()
            if remaining_s <= 0:
                raise too_late(failures)
            try:
                return await self._link(address, remaining_s / (len(untried) - position))
            except OSError as error:
                failures[str(address)] = reason_of(error)
                self._route.prefer_another(address)
        raise unreachable(failures)

    async def _link(self, address: Address, timeout_s: float) -> AioLink:
        """Return an authenticated link to a node.  Raises as `AioLink.dial`."""
        link = AioLink(
            address,
            self._credentials,
            on_received=self.dispatcher.on_received,
            on_broken=lambda link, reason: self.dispatcher.on_broken(link, reason, self.now()),
        )
        return await link.dial(timeout_s)

    def _start(self, link: AioLink) -> None:
        self.dispatcher.on_connected(link)

    async def _dial(self) -> None:
        """Make a link while one is wanted; one attempt at a time."""
        while (target := self.dispatcher.target(self.now())) is not None:
            if isinstance(target, float):
                await asyncio.sleep(target - self.now())
                continue
            try:
                link = await self._link(target, self._timeout_ms / 1000 / len(self._route))
            except REFUSALS as error:
                self.dispatcher.on_refused(target, error, self.now())
            except OSError as error:
                self.dispatcher.on_dial_failed(target, reason_of(error), self.now())
            else:
                self._start(link)

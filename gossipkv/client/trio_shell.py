"""The client under Trio without its methods: tasks are parked until their requests are done."""

from __future__ import annotations

import random
from math import inf
from threading import get_ident
from typing import TYPE_CHECKING, ClassVar, Self

import trio
from trio.lowlevel import current_task, wait_task_rescheduled

from gossipkv.client import forks, reads
from gossipkv.client.backoff import Backoff
from gossipkv.client.credentials import PLAIN, REFUSALS, Credentials
from gossipkv.client.dispatcher import Dispatcher
from gossipkv.client.patience import pause_s
from gossipkv.client.reads import TIMEOUT_MS
from gossipkv.client.route import AddressRoute, Failures, addresses_of, reason_of, too_late, unreachable
from gossipkv.client.scan import Scan
from gossipkv.client.trio_link import WOKEN, TrioLink, dial
from gossipkv.errors import GossipKVError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterable
    from types import TracebackType
    from typing import TypeVar

    from gossipkv.address import Address
    from gossipkv.client._client import Records, Request
    from gossipkv.client.pages import ScanPages
    from gossipkv.client.reads import Record
    from gossipkv.client.route import Named
    from gossipkv.client.trio_link import Dialled

    # Connects within that many seconds.  Raises OSError.
    Dial = Callable[[Address, float, Credentials], Awaitable[Dialled]]

    _Result = TypeVar("_Result")
    _Whole = TypeVar("_Whole")


class TrioShell:
    """What `asking.Shell` promises, under Trio."""

    BUSY: ClassVar[type[Exception]] = trio.BusyResourceError

    def __init__(
        self,
        addresses: Iterable[Named | Iterable[Named]],
        *,
        timeout_ms: int = TIMEOUT_MS,
        credentials: Credentials = PLAIN,
        draw: Callable[[], float] = random.random,
        patient: bool = False,
        stays: bool = False,
        dial: Dial = dial,
    ) -> None:
        """Begin without a connection; `draw` returns numbers from 0 to 1 that spread reconnects, `dial` connects.

        `patient`: connect only on demand, as for a gateway that starts before its node.  `stays`: the connection can be
        dialled only once, so it is kept after a silence.
        """
        self._route = AddressRoute(addresses_of(addresses))
        self._timeout_ms = reads.positive(timeout_ms)
        self._credentials = credentials
        self.dispatcher = Dispatcher(self._route, Backoff(draw), self, stays=stays)
        self._is_patient, self._connect = patient, dial
        self._generation = forks.generation
        self._thread: int | None = None
        self.now: Callable[[], float] = trio.current_time
        self._nursery: trio.Nursery | None = None
        self._alarm = trio.CancelScope()
        self._wanted = trio.Event()
        self._nodes: dict[Address, TrioShell] = {}  # Clients of one node each, for tables that use their map.

    async def __aenter__(self) -> Self:
        if self._thread is not None:
            raise RuntimeError("a client is entered once; connect again")
        if not trio.lowlevel.in_trio_task():
            raise RuntimeError(
                "gossipkv.connect is for Trio, and this is no task of trio.run; under asyncio use "
                "gossipkv.aio.connect, in plain threads gossipkv.blocking.connect"
            )
        self._thread = get_ident()
        self.now = trio.lowlevel.current_clock().current_time
        link = None if self._is_patient else await self._first_link()
        self._manager = trio.open_nursery()
        self.begin_within(await self._manager.__aenter__())
        if link is not None:
            self._start(link)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The nursery is not told of the caller's exception, so the exception leaves as it is and not in a group.
        assert self._nursery is not None
        self.end()
        self._nursery.cancel_scope.shield = True
        self._nursery.cancel_scope.cancel()
        await self._manager.__aexit__(None, None, None)

    @property
    def address(self) -> Address | None:
        """The node in use, or None while there is no connection."""
        link = self.dispatcher.link
        return None if link is None else link.address

    def _at(self, address: Address) -> Dispatcher:
        """Return the dispatcher of a client of one node, which ends with this one."""
        client = self._nodes.get(address)
        if client is None:
            assert self._nursery is not None
            client = self._nodes[address] = TrioShell(
                [address], timeout_ms=self._timeout_ms, credentials=self._credentials, patient=True
            )
            client.begin_within(self._nursery)
        return client.dispatcher

    def begin_within(self, nursery: trio.Nursery) -> None:
        """Run in a nursery of another client, which also ends this one, in place of `async with`."""
        self._thread, self._nursery = get_ident(), nursery
        self.now = trio.lowlevel.current_clock().current_time  # This avoids a lookup of the clock for each request.
        nursery.start_soon(self._dial)
        nursery.start_soon(self._sweep)

    def end(self) -> None:
        """End every link and every request."""
        self.dispatcher.close()
        for client in self._nodes.values():
            client.end()

    def deadline(self, timeout_ms: int | None) -> float:
        """Return the deadline of a request that starts now, by `trio.current_time`.

        Raises:
            RuntimeError: the client is used where it does not belong.
        """
        # A thread is in one `trio.run` at a time, and this client is closed before its own ends.
        if self._thread != get_ident() or self._generation != forks.generation:
            raise self._misplaced()
        return self.now() + self.allowed_ms(timeout_ms) / 1000

    def allowed_ms(self, timeout_ms: int | None) -> int:
        return self._timeout_ms if timeout_ms is None else reads.positive(timeout_ms)

    def _misplaced(self) -> RuntimeError:
        if self._generation != forks.generation:
            return RuntimeError("the client belongs to the process that this one was forked from; connect again")
        if self._thread is None:
            return RuntimeError("enter the client first: async with gossipkv.connect(...) as client")
        return RuntimeError("the client belongs to another thread and its trio.run; connect in each")

    async def ask(
        self,
        request: Request[_Result],
        timeout_ms: int | None,
        finish: Callable[[_Result], _Whole],
        otherwise: Callable[[GossipKVError], Generator[Request[object], object, _Result]] | None = None,
    ) -> _Whole:
        # This repeats `_asked`: on the path of every read a further coroutine would be felt.
        due = self.deadline(timeout_ms)
        if not request.is_repeatable:
            await trio.lowlevel.checkpoint_if_cancelled()
        request.owner = current_task()
        dispatcher = self.dispatcher if request.at is None else self._at(request.at)
        dispatcher.submit(request, due)

        def abort(_: Callable[[], None]) -> trio.lowlevel.Abort:
            request.owner = None
            dispatcher.cancel(request)
            return trio.lowlevel.Abort.SUCCEEDED

        await wait_task_rescheduled(abort)
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
        await trio.lowlevel.checkpoint_if_cancelled()
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
            await trio.lowlevel.checkpoint()
        else:
            await self._done(request, self.dispatcher)
        return await self._once_built(request, self.dispatcher)

    def abandon(self, request: Request[object]) -> None:
        if not request.is_done:
            self.dispatcher.cancel(request)

    async def checkpoint(self) -> None:
        await trio.lowlevel.checkpoint()

    async def _done(self, request: Request[object], dispatcher: Dispatcher) -> None:
        def abort(_: Callable[[], None]) -> trio.lowlevel.Abort:
            request.owner = None
            dispatcher.cancel(request)
            return trio.lowlevel.Abort.SUCCEEDED

        request.owner = current_task()
        await wait_task_rescheduled(abort)

    async def _once_built(self, request: Request[_Result], dispatcher: Dispatcher) -> _Result:
        """Return the result of a request that is done; repeat it while its data is being built."""
        since = self.now()
        while (pause := pause_s(request.error, (now := self.now()) - since, request.due - now)) is not None:
            await trio.sleep(pause)
            request.reopen()
            dispatcher.submit(request, request.due)
            await self._done(request, dispatcher)
        return request.take()

    def wake(self, owner: object) -> None:
        """Wake a task whose request is done (called by the dispatcher)."""
        assert isinstance(owner, trio.lowlevel.Task)
        trio.lowlevel.reschedule(owner, WOKEN)

    def want_link(self) -> None:
        """Make a link (called by the dispatcher)."""
        self._wanted.set()

    def set_alarm(self, at: float) -> None:
        """Note that the earliest deadline came nearer (called by the dispatcher)."""
        self._alarm.deadline = at

    async def _first_link(self) -> TrioLink:
        failures: Failures = {}
        due = self.deadline(None)
        untried = self._route.untried(failures)
        for position, address in enumerate(untried):
            remaining_s = due - trio.current_time()
            if remaining_s <= 0:
                raise too_late(failures)
            try:
                return await self._link(address, remaining_s / (len(untried) - position))
            except OSError as error:
                failures[str(address)] = reason_of(error)
                self._route.prefer_another(address)
        raise unreachable(failures)

    async def _link(self, address: Address, timeout_s: float) -> TrioLink:
        """Return an authenticated link to a node.

        Raises:
            OSError: it cannot be reached in time, or its certificate is wrong.
            Unauthorized, RequestError: it refuses the token.
        """
        return TrioLink(
            address,
            await self._connect(address, timeout_s, self._credentials),
            on_received=self.dispatcher.on_received,
            on_broken=lambda link, reason: self.dispatcher.on_broken(link, reason, trio.current_time()),
        )

    def _start(self, link: TrioLink) -> None:
        assert self._nursery is not None
        self._nursery.start_soon(link.run)
        self.dispatcher.on_connected(link)

    async def _dial(self) -> None:
        """Make a link whenever one is wanted; one attempt at a time."""
        while True:
            target = self.dispatcher.target(trio.current_time())
            if target is None or isinstance(target, float):
                self._wanted = trio.Event()
                with trio.CancelScope(deadline=inf if target is None else target):
                    await self._wanted.wait()
            else:
                try:
                    link = await self._link(target, self._timeout_ms / 1000 / len(self._route))
                except REFUSALS as error:
                    self.dispatcher.on_refused(target, error, trio.current_time())
                except OSError as error:
                    self.dispatcher.on_dial_failed(target, reason_of(error), trio.current_time())
                else:
                    self._start(link)

    async def _sweep(self) -> None:
        while True:
            with trio.CancelScope(deadline=self.dispatcher.on_time(trio.current_time())) as self._alarm:
                await trio.sleep_forever()

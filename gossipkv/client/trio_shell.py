"""The client under Trio without its methods: tasks are parked until their requests are done."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from math import inf
from threading import get_ident
from typing import TYPE_CHECKING, ClassVar, Self, cast

import trio
from trio.lowlevel import current_task, reschedule, wait_task_rescheduled

from gossipkv import name_service
from gossipkv.address import Address
from gossipkv.client import forks
from gossipkv.client.scan import Scan
from gossipkv.client.task_shell import TaskShell
from gossipkv.client.trio_link import WOKEN, TrioLink, dial

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable, Generator
    from typing import TypeVar

    from gossipkv.client._client import Request
    from gossipkv.client.asking import Scanned
    from gossipkv.client.changes import ChangePages
    from gossipkv.client.credentials import Credentials
    from gossipkv.client.link import Opening
    from gossipkv.client.pages import ScanPages
    from gossipkv.errors import GossipKVError

    # Connects to an address, whose certificate has that name, within that many seconds.  Raises OSError.
    Dial = Callable[[Address, str, float, Credentials], Awaitable[tuple[socket.socket, Opening]]]

    _Result = TypeVar("_Result")
    _Whole = TypeVar("_Whole")


class TrioShell(TaskShell):
    """The services of `asking.Shell` under Trio."""

    BUSY: ClassVar[type[Exception]] = trio.BusyResourceError

    def _begin(self) -> None:
        self.dial: Dial = dial
        self._thread: int | None = None
        self.now: Callable[[], float] = trio.current_time
        # A method would cost a call of Python for each answer.
        self.wake: Callable[[object], None] = cast("Callable[[object], None]", partial(reschedule, next_send=WOKEN))
        self._nursery: trio.Nursery | None = None
        self._alarm = trio.CancelScope()
        self._wanted = trio.Event()

    async def __aenter__(self) -> Self:
        if self._thread is not None:
            raise RuntimeError("a client can be entered only once; connect again")
        if not trio.lowlevel.in_trio_task():
            raise RuntimeError(
                "gossipkv.connect must be used within trio.run; under asyncio, use "
                "gossipkv.aio.connect; in plain threads, use gossipkv.blocking.connect"
            )
        self._thread, self._token = get_ident(), trio.lowlevel.current_trio_token()
        self.now = trio.lowlevel.current_clock().current_time  # This avoids a lookup of the clock for each request.
        self._manager = trio.open_nursery()
        self._nursery = await self._manager.__aenter__()
        self._nursery.start_soon(self._dial)
        self._nursery.start_soon(self._sweep)
        if not self._is_patient:
            try:
                await self.answer(self._dispatcher.open(self.deadline(None)))
            except BaseException:
                await self.__aexit__()
                raise
        return self

    async def __aexit__(self, *_: object) -> None:
        # The nursery is not told of the caller's exception, so the exception leaves as it is and not in a group.
        assert self._nursery is not None
        self._dispatcher.close()
        self._nursery.cancel_scope.shield = True
        self._nursery.cancel_scope.cancel()
        await self._manager.__aexit__(None, None, None)

    def deadline(self, timeout_ms: int | None) -> float:
        """Return the deadline of a request that starts now, by `trio.current_time`.

        Raises:
            RuntimeError: the client is used where it does not belong.
        """
        # A thread is in one `trio.run` at a time, and this client is closed before its own ends.
        if self._thread != get_ident() or self._generation != forks.generation:
            raise self._misplaced()
        return self.now() + self.allowed_ms(timeout_ms) / 1000

    def _misplaced(self) -> RuntimeError:
        if self._generation != forks.generation:
            return RuntimeError("the client was opened before this process was forked; connect again in this process")
        if self._thread is None:
            return RuntimeError("the client is not entered; write `async with gossipkv.connect(...) as client`")
        return RuntimeError("the client belongs to the trio.run of another thread; connect once in each trio.run")

    async def ask(
        self,
        request: Request[_Result],
        timeout_ms: int | None,
        finish: Callable[[_Result], _Whole],
        otherwise: Callable[[GossipKVError], Generator[Request[object], object, _Result]] | None = None,
    ) -> _Whole:
        # This repeats `answer`: on the path of every read a further coroutine would be felt.
        due = self.deadline(timeout_ms)
        if not request.is_repeatable:
            await trio.lowlevel.checkpoint_if_cancelled()
        request.owner = current_task()
        self._dispatcher.submit(request, due)
        await wait_task_rescheduled(partial(self._abort, request))
        if request.error is None or otherwise is None:
            return finish(request.take())
        return finish(await self._driven(otherwise(request.error), due))

    async def _asked(self, request: Request[_Result], due: float) -> _Result:
        await trio.lowlevel.checkpoint_if_cancelled()
        return await super()._asked(request, due)

    async def answer(self, request: Request[_Result]) -> _Result:
        if request.is_done:
            await trio.lowlevel.checkpoint()
        else:
            request.owner = current_task()
            await wait_task_rescheduled(partial(self._abort, request))
        return request.take()

    def _abort(self, request: Request[object], _: Callable[[], None]) -> trio.lowlevel.Abort:
        """Drop a request whose task is cancelled."""
        request.owner = None
        self._dispatcher.cancel(request)
        return trio.lowlevel.Abort.SUCCEEDED

    def abandon_soon(self, request: Request[object]) -> None:
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self.abandon, request)

    def scanned(self, pages: ScanPages | ChangePages, timeout_ms: int | None) -> Scanned:
        return Scan(self, pages, timeout_ms)

    async def checkpoint(self, pause_s: float = 0.0) -> None:
        await trio.sleep(pause_s)

    def want_link(self) -> None:
        """Make a link (called by the dispatcher)."""
        self._wanted.set()

    def set_alarm(self, at: float) -> None:
        """Note that the earliest deadline came nearer (called by the dispatcher)."""
        self._alarm.deadline = at

    async def _dial(self) -> None:
        """Dial whenever a link is wanted; several addresses at once, for requests that name them."""
        assert self._nursery is not None
        while True:
            target = self._dispatcher.target(self.now())
            if isinstance(target, Address):
                self._nursery.start_soon(self._reach, target)
                continue
            self._wanted = trio.Event()
            with trio.CancelScope(deadline=inf if target is None else target):
                await self._wanted.wait()

    async def _linked(self, address: Address, timeout_s: float) -> TrioLink:
        assert self._nursery is not None
        dialled = await self.dial(address, self._dispatcher.host_of(address), timeout_s, self._credentials)
        link = TrioLink(address, *dialled, self._dispatcher)
        self._nursery.start_soon(link.run)
        return link

    async def _sweep(self) -> None:
        while True:
            with trio.CancelScope(deadline=self._dispatcher.on_time(trio.current_time())) as self._alarm:
                await trio.sleep_forever()

    async def _resolved(self, name: Address, timeout_s: float) -> list[Address]:
        query = name_service.query(name)
        done, token = trio.Event(), trio.lowlevel.current_trio_token()

        def tell(_: object) -> None:
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(done.set)

        query.add_done_callback(tell)
        with trio.move_on_after(timeout_s):
            await done.wait()
        return name_service.addresses_in(name_service.result(query, 0))

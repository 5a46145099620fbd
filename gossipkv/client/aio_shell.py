"""The client under asyncio without its methods: each waiting task has a future until its request is done."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, ClassVar, Self

from gossipkv import name_service
from gossipkv.client import forks
from gossipkv.client.aio_link import AioLink, dial
from gossipkv.client.scan import Scan
from gossipkv.client.task_shell import TaskShell

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import TypeVar

    from gossipkv.address import Address
    from gossipkv.client._client import Request
    from gossipkv.client.asking import Scanned
    from gossipkv.client.changes import ChangePages
    from gossipkv.client.pages import ScanPages
    from gossipkv.errors import GossipKVError

    _Result = TypeVar("_Result")
    _Whole = TypeVar("_Whole")


class AioShell(TaskShell):
    """The services of `asking.Shell` under asyncio.

    There is no task but while a node is dialled.
    """

    BUSY: ClassVar[type[Exception]] = RuntimeError

    def _begin(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None  # Set at the first use.
        self.now: Callable[[], float]
        self._future: Callable[[], asyncio.Future[None]]
        self._dials: set[asyncio.Task[None]] = set()
        self._dialling: asyncio.TimerHandle | None = None  # The next look at what is to be dialled.
        self._alarm: asyncio.TimerHandle | None = None

    def __await__(self) -> Generator[None, None, Self]:
        """Connect now: `client = await gossipkv.aio.connect(…)`, which `aclose` ends."""
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Self:
        due = self.deadline(None)
        if self._dispatcher.link is None and not self._is_patient:
            try:
                await self.answer(self._dispatcher.open(due))
            except BaseException:
                self._end()
                raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End the connection and every request.  A closed client answers each request with `Unavailable`."""
        self.deadline(None)
        self._end()
        await asyncio.sleep(0)  # Transports end in the next turn of the loop.

    def _end(self) -> None:
        self._dispatcher.close()
        for waiting in (self._dialling, self._alarm, *self._dials):
            if waiting is not None:
                waiting.cancel()

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

    def _misplaced(self) -> RuntimeError:
        if self._generation != forks.generation:
            return RuntimeError("the client was opened before this process was forked; connect again in this process")
        if self._loop is None:
            return RuntimeError(
                "gossipkv.aio.connect needs a running asyncio event loop; under Trio, use gossipkv.connect; in "
                "plain threads, use gossipkv.blocking.connect"
            )
        if self._loop.is_closed():
            return RuntimeError("the event loop of the client is closed; connect once in each asyncio.run")
        return RuntimeError("the client belongs to another thread or event loop; connect once in each event loop")

    async def ask(
        self,
        request: Request[_Result],
        timeout_ms: int | None,
        finish: Callable[[_Result], _Whole],
        otherwise: Callable[[GossipKVError], Generator[Request[object], object, _Result]] | None = None,
    ) -> _Whole:
        # This repeats `answer`: on the path of every read a further coroutine would be felt.
        due = self.deadline(timeout_ms)
        waiter = request.owner = self._future()
        self._dispatcher.submit(request, due)
        try:
            await waiter
        except asyncio.CancelledError:
            self._drop(request)
            raise
        if request.error is None or otherwise is None:
            return finish(request.take())
        return finish(await self._driven(otherwise(request.error), due))

    async def answer(self, request: Request[_Result]) -> _Result:
        if request.is_done:
            await asyncio.sleep(0)
        else:
            waiter = request.owner = self._future()
            try:
                await waiter
            except asyncio.CancelledError:
                self._drop(request)
                raise
        return request.take()

    def abandon_soon(self, request: Request[object]) -> None:
        assert self._loop is not None
        with suppress(RuntimeError):  # The loop is closed.
            self._loop.call_soon_threadsafe(self.abandon, request)

    def scanned(self, pages: ScanPages | ChangePages, timeout_ms: int | None) -> Scanned:
        return Scan(self, pages, timeout_ms)

    async def checkpoint(self, pause_s: float = 0.0) -> None:
        await asyncio.sleep(pause_s)

    def _drop(self, request: Request[object]) -> None:
        """Drop a request whose task was cancelled; the answer may have come in between."""
        request.owner = None
        self.abandon(request)

    def wake(self, owner: object) -> None:
        """Wake a task whose request is done, unless it is cancelled (called by the dispatcher and its links)."""
        assert isinstance(owner, asyncio.Future)
        if not owner.done():
            owner.set_result(None)

    def want_link(self) -> None:
        """Dial soon (called by the dispatcher)."""
        assert self._loop is not None
        if self._dialling is not None:
            self._dialling.cancel()
        self._dialling = self._loop.call_later(0, self._dial)

    def set_alarm(self, at: float) -> None:
        """Note that the earliest deadline came nearer (called by the dispatcher)."""
        assert self._loop is not None
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self._loop.call_at(at, self._loop.call_soon, self._loop.call_soon, self._on_time)

    def _on_time(self) -> None:
        """Give up what is due, two turns of the loop after the alarm, so that what has arrived is read first."""
        at = self._dispatcher.on_time(self.now())
        self._alarm = None
        if at < inf:
            self.set_alarm(at)

    def _dial(self) -> None:
        """Dial what is wanted; several addresses at once, for requests that name them."""
        assert self._loop is not None
        self._dialling = None
        while (target := self._dispatcher.target(self.now())) is not None:
            if isinstance(target, float):
                self._dialling = self._loop.call_at(target, self._dial)
                return
            task = self._loop.create_task(self._reach(target))
            self._dials.add(task)
            task.add_done_callback(self._dials.discard)

    async def _linked(self, address: Address, timeout_s: float) -> AioLink:
        dispatcher = self._dispatcher
        return await dial(address, dispatcher.host_of(address), timeout_s, self._credentials, dispatcher)

    async def _resolved(self, name: Address, timeout_s: float) -> list[Address]:
        async with asyncio.timeout(timeout_s):
            found = await asyncio.wrap_future(name_service.query(name))
        return name_service.addresses_in(found)

"""The parts of a client that are the same under Trio and asyncio: its shells await requests by `_asked`."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, ClassVar, Self

from gossipkv.client import forks, reads
from gossipkv.client.backoff import Backoff
from gossipkv.client.credentials import PLAIN, REFUSALS, Credentials
from gossipkv.client.dispatcher import Dispatcher
from gossipkv.client.reads import STAGE_TIMEOUT_MS, TIMEOUT_MS
from gossipkv.client.route import AddressRoute, addresses_of, is_name, reason_of
from gossipkv.errors import GossipKVError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable
    from ssl import SSLContext
    from typing import TypeVar

    from gossipkv.address import Address
    from gossipkv.client._client import Request
    from gossipkv.client.dispatcher import Link
    from gossipkv.client.route import Named

    _Result = TypeVar("_Result")
    _Whole = TypeVar("_Whole")


class TaskShell:
    """Services of `asking.Shell` and to `scan.Scan`, for tasks of an event loop."""

    BUSY: ClassVar[type[Exception]]  # Raised if two tasks wait for a page of one scan.

    if TYPE_CHECKING:

        def now(self) -> float: ...
        @property
        def wake(self) -> Callable[[object], None]: ...
        def want_link(self) -> None: ...
        def set_alarm(self, at: float) -> None: ...
        def _begin(self) -> None: ...
        def deadline(self, timeout_ms: int | None) -> float: ...
        def abandon_soon(self, request: Request[object]) -> None:
            """Call `abandon` from a finalizer, which may run in any thread and amid anything."""

        async def _linked(self, address: Address, timeout_s: float) -> Link: ...
        async def _resolved(self, name: Address, timeout_s: float) -> list[Address]: ...
        async def answer(self, request: Request[_Result]) -> _Result:
            """Return the result of a submitted request.  Raises as `Calls.call`."""

        async def checkpoint(self, pause_s: float = 0.0) -> None:
            """Let other tasks run, for that time at least, and raise if this task is cancelled."""

    def __init__(
        self,
        addresses: Iterable[Named | Iterable[Named]],
        *,
        timeout_ms: int = TIMEOUT_MS,
        stage_timeout_ms: int | None = STAGE_TIMEOUT_MS,
        credentials: Credentials = PLAIN,
        draw: Callable[[], float] = random.random,
        patient: bool = False,
        stays: bool = False,
    ) -> None:
        """Begin without a connection; `draw` returns numbers from 0 to 1 that spread reconnects.

        `patient`: connect only on demand, as for a gateway that starts before its node.  `stays`: the connection can be
        dialled only once, so it is kept after a silence.
        """
        self._timeout_ms = reads.number("timeout_ms", timeout_ms)
        self._credentials = credentials
        self._is_patient = patient
        self._generation = forks.generation
        self._begin()
        route, stage_s = AddressRoute(addresses_of(addresses)), reads.stage_s(stage_timeout_ms)
        self._dispatcher = Dispatcher(route, Backoff(draw), self, stage_s=stage_s, stays=stays)

    @classmethod
    def connect(
        cls,
        *addresses: Named | Iterable[Named],
        timeout_ms: int = TIMEOUT_MS,
        stage_timeout_ms: int | None = STAGE_TIMEOUT_MS,
        tls: SSLContext | bool = False,
        token: str | None = None,
    ) -> Self:
        """Return a client, which connects to the first of `addresses` (`host:port`) that can be reached.

        It does so in `async with`.  Under asyncio it also does so when it is awaited, and otherwise with the first
        request.

        Args:
            addresses: Some nodes of one cluster, or lists of them, in order of preference; shuffle them to spread many
                clients.
            timeout_ms: Time allowed for connecting, and for each request without a time of its own.
            stage_timeout_ms: Time after which a read that is not answered is asked of another node as well; None:
                never.
            tls: True: TLS, with certificates of the nodes' hosts that this system trusts; a context: TLS with that
                context.
            token: The user's token, if nodes have users.

        Raises:
            Unavailable: on connecting, no node can be reached; the message and `details` list each address and why.
            Unauthorized: on connecting, a node does not know the token.
            ValueError: no address, one that is not `host:port`, a timeout that is not positive, or an invalid token.
        """
        return cls(
            addresses, timeout_ms=timeout_ms, stage_timeout_ms=stage_timeout_ms, credentials=Credentials(tls, token)
        )

    @property
    def address(self) -> Address | None:
        """The node in use, or None while there is no connection."""
        return self._dispatcher.address

    def allowed_ms(self, timeout_ms: int | None) -> int:
        return self._timeout_ms if timeout_ms is None else reads.number("timeout_ms", timeout_ms)

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
        self._dispatcher.submit(request, due)
        return await self.answer(request)

    def submit(self, request: Request[object], timeout_ms: int | None) -> None:
        """Send a request; `answer` waits for it.  A request that no task waits for does no harm."""
        self._dispatcher.submit(request, self.deadline(timeout_ms))

    def abandon(self, request: Request[object]) -> None:
        """Drop a request whose task no longer waits."""
        if not request.is_done:
            self._dispatcher.cancel(request)

    async def _reach(self, address: Address) -> None:
        """Make a link to an address, or resolve a name."""
        dispatcher = self._dispatcher
        timeout_s = dispatcher.dial_s(address, self.now())
        try:
            if is_name(address):
                dispatcher.on_resolved(address, await self._resolved(address, timeout_s))
            else:
                dispatcher.on_connected(await self._linked(address, timeout_s))
        except REFUSALS as error:
            dispatcher.on_refused(address, error, self.now())
        except (OSError, UnicodeError) as error:  # UnicodeError: no name service could know the name.
            dispatcher.on_dial_failed(address, reason_of(error), self.now())

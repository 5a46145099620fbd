"""The client under Trio: one connection, any number of tasks.

    async with gossipkv.connect("127.0.0.1:7070") as client:
        geo = client.dataset("geo")
        await geo.get("paris")

All tasks share one connection to the first of the addresses that answers.  When it breaks, the requests in flight that
may be repeated (every read) are repeated at once at the next address, within their own deadline; one that may not be
repeated raises `Unknown` if any of it was sent.  A node that says nothing until a deadline is left for the next.

A request waits without a lock, an event or a cancel scope of its own: its task is parked, and the answer, the deadline
(one heap, one task that sleeps until the earliest) or Trio's cancellation wakes it.  A cancelled request's bytes go
out whole and its late answer is dropped, so the connection stays usable.

A client belongs to the `trio.run` in which it was entered; anywhere else it raises `RuntimeError`.
"""

from __future__ import annotations

import random
from math import inf
from threading import get_ident
from typing import TYPE_CHECKING, NoReturn, Self, final

import trio
from trio.lowlevel import current_task, wait_task_rescheduled

from gossipkv.client import forks, parts, reads, sessions
from gossipkv.client._client import call_request, get_request
from gossipkv.client.backoff import Backoff
from gossipkv.client.credentials import PLAIN, REFUSALS, Credentials
from gossipkv.client.dispatcher import Dispatcher
from gossipkv.client.owners import ByMap
from gossipkv.client.pages import ScanPages
from gossipkv.client.patience import pause_s
from gossipkv.client.reads import TIMEOUT_MS
from gossipkv.client.route import AddressRoute, Failures, addresses_of, reason_of, too_late, unreachable
from gossipkv.client.sessions import Session
from gossipkv.client.trio_link import WOKEN, TrioLink, dial
from gossipkv.client.trio_scan import Scan
from gossipkv.client.trio_table import Table
from gossipkv.errors import GossipKVError, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterable
    from ssl import SSLContext
    from types import TracebackType
    from typing import TypeVar

    from gossipkv.address import Address
    from gossipkv.client._client import Request
    from gossipkv.client.reads import Key
    from gossipkv.client.route import Named
    from gossipkv.client.trio_link import Dialled
    from gossipkv.wire.rpc import Value

    Dial = Callable[[Address, float, Credentials], Awaitable[Dialled]]  # Within so many seconds.  Raises OSError.

    _Result = TypeVar("_Result")
    _Whole = TypeVar("_Whole")


def connect(
    *addresses: Named | Iterable[Named],
    timeout_ms: int = TIMEOUT_MS,
    tls: SSLContext | bool = False,
    token: str | None = None,
) -> Client:
    """A client for `async with`, which connects to the first of `addresses` (`host:port`) that can be reached.

    Args:
        addresses: Some nodes of one cluster, or lists of them, in order of preference; shuffle them to spread many
            clients.
        timeout_ms: Time allowed for connecting, and for each request unless it says otherwise.
        tls: True: nodes speak TLS, and have certificates of their hosts that this system trusts; a context: as it says.
        token: Who asks, where nodes have users.

    Raises:
        Unavailable: on entering, none can be reached; the message and `details` list each address and why.
        Unauthorized: on entering, a node does not know the token.
        ValueError: no address, one that is not `host:port`, a timeout that is not positive, or what is no token.
    """
    return Client(addresses, timeout_ms=timeout_ms, credentials=Credentials(tls, token))


@final
class Client:
    """A connection to a cluster, for all tasks of one `trio.run`; `connect` makes one.

    It is entered once, with `async with`; every request raises `RuntimeError` outside of that block, in another thread
    and in a child after `fork`.
    """

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
        """`draw` gives numbers from 0 to 1; it spreads the attempts to connect again.  `dial` makes each connection.

        One that is `patient` does not connect before it is asked: a gateway starts beside a node that is not there yet.
        One that `stays` can be dialled for once, and goes on with that connection when it was silent.
        """
        self._route = AddressRoute(addresses_of(addresses))
        self._timeout_ms = reads.positive(timeout_ms)
        self._credentials = credentials
        self._dispatcher = Dispatcher(self._route, Backoff(draw), self, stays=stays)
        self._is_patient, self._connect = patient, dial
        self._generation = forks.generation
        self._thread: int | None = None
        self._now: Callable[[], float] = trio.current_time
        self._nursery: trio.Nursery | None = None
        self._alarm = trio.CancelScope()
        self._wanted = trio.Event()
        self._at: dict[Address, Client] = {}  # Clients of one node each, for tables that go by their map.

    async def __aenter__(self) -> Self:
        if self._thread is not None:
            raise RuntimeError("a client is entered once; connect again")
        if not trio.lowlevel.in_trio_task():
            raise RuntimeError(
                "gossipkv.connect is for Trio, and this is no task of trio.run; under asyncio and elsewhere use "
                "gossipkv.blocking.connect, with asyncio.to_thread for what it asks"
            )
        self._thread = get_ident()
        self._now = trio.lowlevel.current_clock().current_time
        link = None if self._is_patient else await self._first_link()
        self._manager = trio.open_nursery()
        self.begin_within(await self._manager.__aenter__())
        if link is not None:
            self._start(link)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The nursery is told nothing of the caller's exception, so that it comes out as it is and in no group.
        assert self._nursery is not None
        self.end()
        self._nursery.cancel_scope.shield = True
        self._nursery.cancel_scope.cancel()
        await self._manager.__aexit__(None, None, None)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a client cannot be pickled: connect where it is used, in each process or task")

    def __repr__(self) -> str:
        where = "not connected" if self.address is None else f"connected to {self.address}"
        return f"<gossipkv.Client {where}>"

    @property
    def address(self) -> Address | None:
        """The node in use, or None while there is no connection."""
        link = self._dispatcher.link
        return None if link is None else link.address

    def dataset(self, name: str) -> Dataset:
        """The dataset `name`; nothing is asked of the node before the first read."""
        return Dataset(self, name)

    def table(self, name: str, *, by_map: bool = False) -> Table:
        """The table `name`; nothing is asked of the node before the first read or write.

        With `by_map`, requests for one key go to an owner of it, over a connection to each node that owns any.
        """
        return Table(self, name, ByMap(name, trio.current_time) if by_map else None)

    def at(self, address: Address) -> Client:
        """The client of one node, which ends with this one."""
        client = self._at.get(address)
        if client is None:
            assert self._nursery is not None
            client = self._at[address] = Client(
                [address], timeout_ms=self._timeout_ms, credentials=self._credentials, patient=True
            )
            client.begin_within(self._nursery)
        return client

    def begin_within(self, nursery: trio.Nursery) -> None:
        """Work by tasks of another client, which ends this one; instead of being entered."""
        self._thread, self._nursery = get_ident(), nursery
        self._now = trio.lowlevel.current_clock().current_time  # Without looking up the clock each time.
        nursery.start_soon(self._dial)
        nursery.start_soon(self._sweep)

    def end(self) -> None:
        """End every link and every request."""
        self._dispatcher.close()
        for client in self._at.values():
            client.end()

    def session(self, text: str | None = None) -> Session:
        """A new session, for reads and writes by any client of this cluster.

        Args:
            text: What `Session.to_text` gave of an earlier one, which goes on.

        Raises:
            BadRequest: the text is not of a session.
        """
        return Session(text)

    async def ping(self) -> None:
        """Return if the node answers.  Raises as `call` does, and so does all that asks."""
        if (answer := await self.call("ping")) != "pong":
            raise ProtocolError(f"ping was answered with {answer!r}")

    async def info(self) -> dict[str, Value]:
        """What the node says of itself: `version`, `cluster`, `node`, `counters` and more (`docs/users/wire.md`)."""
        return reads.map_of("info", await self.call("info"))

    async def databases(self) -> list[dict[str, Value]]:
        """The databases that the node knows, by name: `name`, `kind`, and of a dataset `version` and `partitions`."""
        return reads.maps_of("databases", await self.call("databases"))

    async def status(self, database: str | None = None) -> dict[str, Value]:
        """What the live nodes hold, build and serve, of one database or all: by database, version and partition."""
        options: list[Value] = [] if database is None else [{"database": database}]
        return reads.map_of("status", await self.call("status", *options))

    async def verdict(self, database: str | None = None) -> dict[str, Value]:
        """Whether the cluster is well, or one database in it: `level` (well, attention, trouble), `text`, `reasons`.

        The node asks all members; whichever node is asked, the answer is the same.
        """
        options: list[Value] = [] if database is None else [{"database": database}]
        return reads.map_of("verdict", await self.call("verdict", *options))

    async def members(self) -> list[dict[str, Value]]:
        """The members of the cluster, the dead and the left among them: `node`, `address`, `state`, `epoch`."""
        return reads.maps_of("members", await self.call("members"))

    async def children(self, path: str = "", *, everything: bool = False) -> list[str]:
        """The names below a path of the tree that live nodes publish; `everything`: that any node does."""
        options: list[Value] = [{"all": True}] if everything else []
        return reads.texts_of("children", await self.call("children", path, *options))

    async def entries(self, path: str = "", *, everything: bool = False) -> list[dict[str, Value]]:
        """The keys below a path of the tree: `name`, `owner`, `value`, `age_s`, `state`; `everything`: all nodes'."""
        options: list[Value] = [{"all": True}] if everything else []
        return reads.maps_of("entries", await self.call("entries", path, *options))

    async def refresh(self, database: str | None = None) -> Value:
        """Have the node look at its source, at one database or all: a map of names to versions seen.  Builds follow."""
        return await self.call("refresh", database)

    async def call(self, method: str, *params: Value, timeout_ms: int | None = None) -> Value:
        """Any method of the protocol (`docs/users/wire.md`), and its result as it came.

        Raises:
            GossipKVError: the node answered with an error, which has its class in `gossipkv.errors`.
            Unavailable, TimedOut, ProtocolError: there was no answer.
            Unknown: there was none, of a method that may not be repeated: it may have been done.
        """
        return await self.ask_unless_cancelled(call_request(method, params), self.deadline(timeout_ms))

    def deadline(self, timeout_ms: int | None) -> float:
        """When a request that starts now must be done, by `trio.current_time`.

        Raises:
            RuntimeError: the client is used where it does not belong.
        """
        # A thread is in one `trio.run` at a time, and this client is closed before its own ends.
        if self._thread != get_ident() or self._generation != forks.generation:
            raise self._misplaced()
        return self._now() + self.allowed_ms(timeout_ms) / 1000

    def allowed_ms(self, timeout_ms: int | None) -> int:
        """The time that a request has which says so."""
        return self._timeout_ms if timeout_ms is None else reads.positive(timeout_ms)

    def _misplaced(self) -> RuntimeError:
        if self._generation != forks.generation:
            return RuntimeError("the client belongs to the process that this one was forked from; connect again")
        if self._thread is None:
            return RuntimeError("enter the client first: async with gossipkv.connect(...) as client")
        return RuntimeError("the client belongs to another thread and its trio.run; connect in each")

    async def ask(self, request: Request[_Result], due: float) -> _Result:
        """The result of `request`; of what is still being built, once it is there.  Raises as `call` does."""
        # `answer`, written out: this is the path of every read, and a coroutine more is felt.
        request.owner = current_task()
        self._dispatcher.submit(request, due)

        def abort(_: Callable[[], None]) -> trio.lowlevel.Abort:
            self.abandon(request)
            return trio.lowlevel.Abort.SUCCEEDED

        await wait_task_rescheduled(abort)
        return request.take() if request.error is None else await self._once_built(request)

    async def ask_unless_cancelled(self, request: Request[_Result], due: float) -> _Result:
        """`ask`; of a task that is cancelled already nothing is sent, since it may be a write."""
        await trio.lowlevel.checkpoint_if_cancelled()
        return await self.ask(request, due)

    async def ask_in_parts(self, steps: Generator[Request[_Result], _Result, _Whole], due: float) -> _Whole:
        """What `steps` (`parts`) makes of the answers to the requests that it yields."""
        try:
            request = next(steps)
            while True:
                try:
                    answer = await self.ask_unless_cancelled(request, due)
                except GossipKVError as error:
                    request = steps.throw(error)
                else:
                    request = steps.send(answer)
        except StopIteration as end:
            whole: _Whole = end.value
            return whole

    def submit(self, request: Request[object], due: float) -> None:
        """Send `request`; `answer` waits for it.  One that nobody waits for does no harm."""
        self._dispatcher.submit(request, due)

    async def answer(self, request: Request[_Result]) -> _Result:
        """The result of a request that was submitted."""
        if request.is_done:
            await trio.lowlevel.checkpoint()
        else:
            await self._done(request)
        return request.take() if request.error is None else await self._once_built(request)

    async def _done(self, request: Request[object]) -> None:
        """Return when a request that was submitted is done."""

        def abort(_: Callable[[], None]) -> trio.lowlevel.Abort:
            self.abandon(request)
            return trio.lowlevel.Abort.SUCCEEDED

        request.owner = current_task()
        await wait_task_rescheduled(abort)

    async def _once_built(self, request: Request[_Result]) -> _Result:
        """The result of a request that was answered with an error; what is still being built is asked for again."""
        since = self._now()
        while (pause := pause_s(request.error, (now := self._now()) - since, request.due - now)) is not None:
            await trio.sleep(pause)
            request.reopen()
            self._dispatcher.submit(request, request.due)
            await self._done(request)
        return request.take()

    def abandon(self, request: Request[object]) -> None:
        """Nobody waits for it any more."""
        request.owner = None
        if not request.is_done:
            self._dispatcher.cancel(request)

    def wake(self, owner: object) -> None:
        """A request of this task is done (the dispatcher calls)."""
        assert isinstance(owner, trio.lowlevel.Task)
        trio.lowlevel.reschedule(owner, WOKEN)

    def want_link(self) -> None:
        """A link is needed (the dispatcher calls)."""
        self._wanted.set()

    def set_alarm(self, at: float) -> None:
        """The earliest deadline came nearer (the dispatcher calls)."""
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
        """A link to a node that knows who asks.

        Raises:
            OSError: it cannot be reached, not in time, or is not who it should be.
            Unauthorized, RequestError: it does not take the token.
        """
        return TrioLink(
            address,
            await self._connect(address, timeout_s, self._credentials),
            on_received=self._dispatcher.on_received,
            on_broken=lambda link, reason: self._dispatcher.on_broken(link, reason, trio.current_time()),
        )

    def _start(self, link: TrioLink) -> None:
        assert self._nursery is not None
        self._nursery.start_soon(link.run)
        self._dispatcher.on_connected(link)

    async def _dial(self) -> None:
        """Make a link whenever one is wanted; one attempt at a time, whoever waits."""
        while True:
            target = self._dispatcher.target(trio.current_time())
            if target is None or isinstance(target, float):
                self._wanted = trio.Event()
                with trio.CancelScope(deadline=inf if target is None else target):
                    await self._wanted.wait()
            else:
                try:
                    link = await self._link(target, self._timeout_ms / 1000 / len(self._route))
                except REFUSALS as error:
                    self._dispatcher.on_refused(target, error, trio.current_time())
                except OSError as error:
                    self._dispatcher.on_dial_failed(target, reason_of(error), trio.current_time())
                else:
                    self._start(link)

    async def _sweep(self) -> None:
        while True:
            with trio.CancelScope(deadline=self._dispatcher.on_time(trio.current_time())) as self._alarm:
                await trio.sleep_forever()


@final
class Dataset(reads.ReadOnly):
    """A dataset's reads; `Client.dataset` makes one.

    A key is bytes, or text, which means its UTF-8 bytes.  Reads take `version` (exactly that one) and all but `scan`
    `min_version` (that one or a newer one).  With a `session` none is older than what the session has seen.
    """

    __slots__ = ("_client", "_database", "name")

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self._database = reads.name_bytes(name)
        self.name = name

    def __repr__(self) -> str:
        return f"<gossipkv.Dataset {self.name!r} of {self._client!r}>"

    async def get(
        self,
        key: Key,
        *,
        version: str | None = None,
        min_version: str | None = None,
        timeout_ms: int | None = None,
        session: Session | None = None,
    ) -> bytes | None:
        """The value of `key`, or None if there is none (an empty value is `b""`).

        Raises:
            UnknownDatabase, UnknownVersion, NotReady, Corrupt: what the node says of it.
            Unavailable, TimedOut, ProtocolError: there was no answer.
        """
        options = sessions.read_options(session, self.name, version, min_version)
        client = self._client
        request = get_request(self._database, key, options)
        answer = await client.ask(request, client.deadline(timeout_ms))
        return sessions.saw_version(session, self.name, answer)[0]

    async def get_with_version(
        self,
        key: Key,
        *,
        version: str | None = None,
        min_version: str | None = None,
        timeout_ms: int | None = None,
        session: Session | None = None,
    ) -> tuple[bytes | None, str]:
        """As `get`, with the version that answered."""
        request = get_request(self._database, key, sessions.read_options(session, self.name, version, min_version))
        answer = await self._client.ask(request, self._client.deadline(timeout_ms))
        return sessions.saw_version(session, self.name, answer)

    async def get_many(
        self,
        keys: Iterable[Key],
        *,
        version: str | None = None,
        min_version: str | None = None,
        timeout_ms: int | None = None,
        session: Session | None = None,
    ) -> list[bytes | None]:
        """The values of `keys`, in the order asked, all from one version.

        Any number of keys: what does not fit into one frame is asked for in parts (`docs/users/client.md`), within one
        timeout.  Raises as `get` does.
        """
        found, _ = await self.get_many_with_version(
            keys, version=version, min_version=min_version, timeout_ms=timeout_ms, session=session
        )
        return found

    async def get_many_with_version(
        self,
        keys: Iterable[Key],
        *,
        version: str | None = None,
        min_version: str | None = None,
        timeout_ms: int | None = None,
        session: Session | None = None,
    ) -> tuple[list[bytes | None], str]:
        """As `get_many`, with the version that answered."""
        options = sessions.read_options(session, self.name, version, min_version)
        reading = parts.reading(self._database, keys, options, version)
        answer = await self._client.ask_in_parts(reading, self._client.deadline(timeout_ms))
        return sessions.saw_version(session, self.name, answer)

    def scan(
        self,
        *,
        start: Key | None = None,
        end: Key | None = None,
        prefix: Key | None = None,
        reverse: bool = False,
        limit: int | None = None,
        version: str | None = None,
        session: Session | None = None,
        timeout_ms: int | None = None,
    ) -> Scan:
        """The records with `start <= key < end` and `prefix`, in key order, for `async for`.

        All pages come from the version that answered the first; the next is on its way while one is consumed.  `limit`
        bounds the records in all, `timeout_ms` each page.  What `get` raises comes where a page begins.
        """
        pages = ScanPages(
            self.name, start, end, prefix, reverse=reverse, limit=limit, version=version,
            check=lambda answer: sessions.saw_version(session, self.name, answer),
            least=None if session is None else session.version(self.name),
        )  # fmt: skip
        return Scan(self._client, pages, timeout_ms)

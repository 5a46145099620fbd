"""The client under Trio: one connection, any number of tasks.

    async with gossipkv.connect("127.0.0.1:7070") as client:
        geo = client.dataset("geo")
        await geo.get("paris")

All tasks share one connection to the first address that answers.  When it breaks, requests in flight that may be
repeated (every read) are repeated at once at the next address, within their own deadline.  A request that may not be
repeated raises `Unknown` if any of it was sent.  A node that is silent until a deadline is left for the next.

A waiting request needs no lock, event or cancel scope of its own.  Its task is parked until the answer, the deadline
(one heap, one task that sleeps until the earliest) or Trio's cancellation wakes it.  A cancelled request's bytes go out
whole and its late answer is dropped, so the connection stays usable.

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

    # Connects within that many seconds.  Raises OSError.
    Dial = Callable[[Address, float, Credentials], Awaitable[Dialled]]

    _Result = TypeVar("_Result")
    _Whole = TypeVar("_Whole")


def connect(
    *addresses: Named | Iterable[Named],
    timeout_ms: int = TIMEOUT_MS,
    tls: SSLContext | bool = False,
    token: str | None = None,
) -> Client:
    """Return a client for `async with`, which connects to the first of `addresses` (`host:port`) that can be reached.

    Args:
        addresses: Some nodes of one cluster, or lists of them, in order of preference; shuffle them to spread many
            clients.
        timeout_ms: Time allowed for connecting, and for each request without a time of its own.
        tls: True: TLS, with certificates of the nodes' hosts that this system trusts; a context: TLS with that context.
        token: The user's token, if nodes have users.

    Raises:
        Unavailable: on entering, no node can be reached; the message and `details` list each address and why.
        Unauthorized: on entering, a node does not know the token.
        ValueError: no address, one that is not `host:port`, a timeout that is not positive, or an invalid token.
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
        """Begin without a connection; `draw` returns numbers from 0 to 1 that spread reconnects, `dial` connects.

        `patient`: connect only on demand, as for a gateway that starts before its node.  `stays`: the connection can be
        dialled only once, so it is kept after a silence.
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
        self._at: dict[Address, Client] = {}  # Clients of one node each, for tables that use their map.

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
        # The nursery is not told of the caller's exception, so the exception leaves as it is and not in a group.
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
        """Return the dataset `name`; the first read is the first request to the node."""
        return Dataset(self, name)

    def table(self, name: str, *, by_map: bool = False) -> Table:
        """Return the table `name`; the first read or write is the first request to the node.

        With `by_map`, requests for one key go to one of its owners, over a connection to each owning node.
        """
        return Table(self, name, ByMap(name, trio.current_time) if by_map else None)

    def at(self, address: Address) -> Client:
        """Return the client of one node, which ends with this one."""
        client = self._at.get(address)
        if client is None:
            assert self._nursery is not None
            client = self._at[address] = Client(
                [address], timeout_ms=self._timeout_ms, credentials=self._credentials, patient=True
            )
            client.begin_within(self._nursery)
        return client

    def begin_within(self, nursery: trio.Nursery) -> None:
        """Run in a nursery of another client, which also ends this one, in place of `async with`."""
        self._thread, self._nursery = get_ident(), nursery
        self._now = trio.lowlevel.current_clock().current_time  # This avoids a lookup of the clock for each request.
        nursery.start_soon(self._dial)
        nursery.start_soon(self._sweep)

    def end(self) -> None:
        """End every link and every request."""
        self._dispatcher.close()
        for client in self._at.values():
            client.end()

    def session(self, text: str | None = None) -> Session:
        """Return a new session, for reads and writes by any client of this cluster.

        Args:
            text: The result of `Session.to_text`, to continue that session.

        Raises:
            BadRequest: the text is not of a session.
        """
        return Session(text)

    async def ping(self) -> None:
        """Return if the node answers.  Raises as `call`, like every request."""
        if (answer := await self.call("ping")) != "pong":
            raise ProtocolError(f"ping was answered with {answer!r}")

    async def info(self) -> dict[str, Value]:
        """Return the node's own state: `version`, `cluster`, `node`, `counters` and more (`docs/users/wire.md`)."""
        return reads.map_of("info", await self.call("info"))

    async def databases(self) -> list[dict[str, Value]]:
        """Return the databases that the node knows: `name`, `kind`, and for datasets `version` and `partitions`."""
        return reads.maps_of("databases", await self.call("databases"))

    async def status(self, database: str | None = None) -> dict[str, Value]:
        """Return all that live nodes hold, build and serve of one database or all: by name, version and partition."""
        options: list[Value] = [] if database is None else [{"database": database}]
        return reads.map_of("status", await self.call("status", *options))

    async def verdict(self, database: str | None = None) -> dict[str, Value]:
        """Return the verdict on the cluster or one database: `level` (well, attention, trouble), `text`, `reasons`.

        The node asks all members, so every node gives the same answer.
        """
        options: list[Value] = [] if database is None else [{"database": database}]
        return reads.map_of("verdict", await self.call("verdict", *options))

    async def members(self) -> list[dict[str, Value]]:
        """Return the members of the cluster, including dead and left ones: `node`, `address`, `state`, `epoch`."""
        return reads.maps_of("members", await self.call("members"))

    async def children(self, path: str = "", *, everything: bool = False) -> list[str]:
        """Return the names below a path of the tree that live nodes publish; with `everything`, those of all nodes."""
        options: list[Value] = [{"all": True}] if everything else []
        return reads.texts_of("children", await self.call("children", path, *options))

    async def entries(self, path: str = "", *, everything: bool = False) -> list[dict[str, Value]]:
        """Return the keys below a path: `name`, `owner`, `value`, `age_s`, `state`; `everything`: of all nodes."""
        options: list[Value] = [{"all": True}] if everything else []
        return reads.maps_of("entries", await self.call("entries", path, *options))

    async def refresh(self, database: str | None = None) -> Value:
        """Make the node scan its source, for one database or all; return the versions seen by name.  Builds follow."""
        return await self.call("refresh", database)

    async def call(self, method: str, *params: Value, timeout_ms: int | None = None) -> Value:
        """Call any method of the protocol (`docs/users/wire.md`), and return its result as it came.

        Raises:
            GossipKVError: the node answered with an error, which has its class in `gossipkv.errors`.
            Unavailable, TimedOut, ProtocolError: there was no answer.
            Unknown: there was no answer, and the method may not be repeated: the request may have been done.
        """
        return await self.ask_unless_cancelled(call_request(method, params), self.deadline(timeout_ms))

    def deadline(self, timeout_ms: int | None) -> float:
        """Return the deadline of a request that starts now, by `trio.current_time`.

        Raises:
            RuntimeError: the client is used where it does not belong.
        """
        # A thread is in one `trio.run` at a time, and this client is closed before its own ends.
        if self._thread != get_ident() or self._generation != forks.generation:
            raise self._misplaced()
        return self._now() + self.allowed_ms(timeout_ms) / 1000

    def allowed_ms(self, timeout_ms: int | None) -> int:
        """Return the time of a request with this `timeout_ms`, or the client's if None."""
        return self._timeout_ms if timeout_ms is None else reads.positive(timeout_ms)

    def _misplaced(self) -> RuntimeError:
        if self._generation != forks.generation:
            return RuntimeError("the client belongs to the process that this one was forked from; connect again")
        if self._thread is None:
            return RuntimeError("enter the client first: async with gossipkv.connect(...) as client")
        return RuntimeError("the client belongs to another thread and its trio.run; connect in each")

    async def ask(self, request: Request[_Result], due: float) -> _Result:
        """Return the result of `request`; wait for data that is still being built.  Raises as `call`."""
        # This repeats `answer`: on the path of every read a further coroutine would be felt.
        request.owner = current_task()
        self._dispatcher.submit(request, due)

        def abort(_: Callable[[], None]) -> trio.lowlevel.Abort:
            self.abandon(request)
            return trio.lowlevel.Abort.SUCCEEDED

        await wait_task_rescheduled(abort)
        return request.take() if request.error is None else await self._once_built(request)

    async def ask_unless_cancelled(self, request: Request[_Result], due: float) -> _Result:
        """Do the same as `ask`, but send nothing for a cancelled task, since the request may be a write."""
        await trio.lowlevel.checkpoint_if_cancelled()
        return await self.ask(request, due)

    async def ask_in_parts(self, steps: Generator[Request[_Result], _Result, _Whole], due: float) -> _Whole:
        """Return the result of `steps` (`parts`), asking each request that it yields."""
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
        """Send `request`; `answer` waits for it.  A request that no task waits for does no harm."""
        self._dispatcher.submit(request, due)

    async def answer(self, request: Request[_Result]) -> _Result:
        """Return the result of a submitted request."""
        if request.is_done:
            await trio.lowlevel.checkpoint()
        else:
            await self._done(request)
        return request.take() if request.error is None else await self._once_built(request)

    async def _done(self, request: Request[object]) -> None:
        def abort(_: Callable[[], None]) -> trio.lowlevel.Abort:
            self.abandon(request)
            return trio.lowlevel.Abort.SUCCEEDED

        request.owner = current_task()
        await wait_task_rescheduled(abort)

    async def _once_built(self, request: Request[_Result]) -> _Result:
        """Return the result of a request with an error; repeat it while its data is being built."""
        since = self._now()
        while (pause := pause_s(request.error, (now := self._now()) - since, request.due - now)) is not None:
            await trio.sleep(pause)
            request.reopen()
            self._dispatcher.submit(request, request.due)
            await self._done(request)
        return request.take()

    def abandon(self, request: Request[object]) -> None:
        """Drop a request whose task no longer waits."""
        request.owner = None
        if not request.is_done:
            self._dispatcher.cancel(request)

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
            on_received=self._dispatcher.on_received,
            on_broken=lambda link, reason: self._dispatcher.on_broken(link, reason, trio.current_time()),
        )

    def _start(self, link: TrioLink) -> None:
        assert self._nursery is not None
        self._nursery.start_soon(link.run)
        self._dispatcher.on_connected(link)

    async def _dial(self) -> None:
        """Make a link whenever one is wanted; one attempt at a time."""
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

    A key is bytes, or text, which means its UTF-8 bytes.  Reads take `version` (exactly that one), and all but `scan`
    take `min_version` (that one or a newer one).  With a `session` no answer is older than the session has seen.
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
        """Return the value of `key`, or None if there is none (an empty value is `b""`).

        Raises:
            UnknownDatabase, UnknownVersion, NotReady, Corrupt: the node's answer.
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
        """Return the same as `get`, with the version that answered."""
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
        """Return the values of `keys`, in the order asked, all from one version.

        Any number of keys is allowed: the read is split into frames (`docs/users/client.md`), within one timeout.
        Raises as `get`.
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
        """Return the same as `get_many`, with the version that answered."""
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
        """Return the records with `start <= key < end` and `prefix`, in key order, for `async for`.

        All pages come from the version that answered the first; the next page is requested while one is consumed.
        `limit` bounds all records together, `timeout_ms` each page.  Errors of `get` are raised where a page begins.
        """
        pages = ScanPages(
            self.name, reads.span_options(start, end, prefix, reverse=reverse), limit=limit, version=version,
            check=lambda answer: sessions.saw_version(session, self.name, answer),
            least=None if session is None else session.version(self.name),
        )  # fmt: skip
        return Scan(self._client, pages, timeout_ms)

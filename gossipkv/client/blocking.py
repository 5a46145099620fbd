"""The blocking client: plain threads, scripts, Spark tasks; any operating system, no event loop.

    with gossipkv.blocking.connect("127.0.0.1:7070") as client:
        geo = client.dataset("geo")
        geo.get("paris")

There is one connection at a time, to the first address that answers.  When it breaks, requests in flight that may be
repeated (every read) are repeated at once at the next address, within their own deadline.  A request that may not be
repeated raises `Unknown` if any of it was sent, since its outcome is not known.  A node that is silent until the
deadline is left for the next address, so a frozen node costs one request its time and no more.

Threads: a client serves one thread at a time; a second thread gets a `RuntimeError` during a request, without harm.
Give each thread a client of its own.

Fork: a child may use the inherited client; its first request makes a new connection, and the parent's is left alone.  A
client cannot be pickled.
"""

from __future__ import annotations

from collections import deque
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final, NoReturn, Self, final

from gossipkv.client import parts, reads, sessions
from gossipkv.client._client import call_request, get_request
from gossipkv.client.blocking_table import Table
from gossipkv.client.credentials import PLAIN, Credentials
from gossipkv.client.dialler import Dialler
from gossipkv.client.link import LinkError
from gossipkv.client.owners import ByMap
from gossipkv.client.pages import ScanPages
from gossipkv.client.patience import pause_s
from gossipkv.client.pipeline import Pipeline
from gossipkv.client.reads import REPEATABLE, TIMEOUT_MS
from gossipkv.client.route import Failures, addresses_of, unknown
from gossipkv.client.sessions import Session
from gossipkv.errors import GossipKVError, ProtocolError, TimedOut

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence
    from ssl import SSLContext
    from types import TracebackType
    from typing import TypeVar

    from gossipkv.address import Address
    from gossipkv.client._client import Request
    from gossipkv.client.link import BlockingLink
    from gossipkv.client.reads import Key, OneKey, Record, Stamp
    from gossipkv.client.route import Named
    from gossipkv.wire.rpc import Value

    _Result = TypeVar("_Result")
    _Whole = TypeVar("_Whole")

__all__ = ["Client", "Dataset", "Table", "connect"]

IN_FLIGHT: Final = 100  # Hides a round trip of 1 ms at 100,000 requests a second.


def __dir__() -> list[str]:
    """Return the public names: this module is `gossipkv.blocking`."""
    return [*__all__, "__doc__"]


def connect(
    *addresses: Named | Iterable[Named],
    timeout_ms: int = TIMEOUT_MS,
    tls: SSLContext | bool = False,
    token: str | None = None,
) -> Client:
    """Return a client connected to the first of `addresses` (`host:port`) that can be reached.

    Args:
        addresses: Some nodes of one cluster, or lists of them, in order of preference; shuffle them to spread many
            clients.
        timeout_ms: Time allowed for connecting, and for each request without a time of its own.
        tls: True: TLS, with certificates of the nodes' hosts that this system trusts; a context: TLS with that context.
        token: The user's token, if nodes have users.

    Raises:
        Unavailable: no node can be reached; the message and `details` list each address and why.
        Unauthorized: a node does not know the token.
        ValueError: no address, one that is not `host:port`, a timeout that is not positive, or an invalid token.
    """
    client = Client(addresses, timeout_ms=timeout_ms, credentials=Credentials(tls, token))
    client.dial()
    return client


@final
class Client:
    """A connection to a cluster, for one thread at a time; `connect` makes one.

    Use it as a context manager, or call `close`.  Every request raises `RuntimeError` during a request of another
    thread.
    """

    __slots__ = ("_at", "_credentials", "_dialler", "_timeout_ms")

    def __init__(
        self,
        addresses: Iterable[Named | Iterable[Named]],
        *,
        timeout_ms: int = TIMEOUT_MS,
        credentials: Credentials = PLAIN,
    ) -> None:
        self._dialler = Dialler(addresses_of(addresses), credentials)
        self._credentials = credentials
        self._at: dict[Address, Client] = {}  # Clients of one node each, for tables that use their map.
        self._timeout_ms = reads.positive(timeout_ms)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a client cannot be pickled: connect where it is used, in each process or task")

    def __repr__(self) -> str:
        where = "not connected" if self.address is None else f"connected to {self.address}"
        return f"<gossipkv.blocking.Client {where}>"

    @property
    def address(self) -> Address | None:
        """The node in use, or None while there is no connection."""
        link = self._dialler.held
        return None if link is None or not link.is_open else link.address

    def close(self) -> None:
        """End the connection.  A closed client answers every request with `Unavailable`."""
        self._dialler.close()
        for client in self._at.values():
            client.close()

    def dial(self) -> None:
        """Connect now, if not connected; requests also do it.  Raises as `connect`."""
        self._dialler.acquire()
        try:
            self._dialler.link(self.deadline(None), {})
        finally:
            self._dialler.release()

    def dataset(self, name: str) -> Dataset:
        """Return the dataset `name`; the first read is the first request to the node."""
        return Dataset(self, name)

    def table(self, name: str, *, by_map: bool = False) -> Table:
        """Return the table `name`; the first read or write is the first request to the node.

        With `by_map`, requests for one key go to one of its owners, over a connection to each owning node.
        """
        return Table(self, name, ByMap(name, monotonic) if by_map else None)

    def at(self, address: Address) -> Client:
        """Return the client of one node, which ends with this one."""
        client = self._at.get(address)
        if client is None:
            client = self._at[address] = Client([address], timeout_ms=self._timeout_ms, credentials=self._credentials)
        return client

    def session(self, text: str | None = None) -> Session:
        """Return a new session, for reads and writes by any client of this cluster.

        Args:
            text: The result of `Session.to_text`, to continue that session.

        Raises:
            BadRequest: the text is not of a session.
        """
        return Session(text)

    def ping(self) -> None:
        """Return if the node answers.  Raises as `call`, like every request."""
        if (answer := self.call("ping")) != "pong":
            raise ProtocolError(f"ping was answered with {answer!r}")

    def info(self) -> dict[str, Value]:
        """Return the node's own state: `version`, `cluster`, `node`, `counters` and more (`docs/users/wire.md`)."""
        return reads.map_of("info", self.call("info"))

    def databases(self) -> list[dict[str, Value]]:
        """Return the databases that the node knows: `name`, `kind`, and for datasets `version` and `partitions`."""
        return reads.maps_of("databases", self.call("databases"))

    def status(self, database: str | None = None) -> dict[str, Value]:
        """Return all that live nodes hold, build and serve of one database or all: by name, version and partition."""
        options: list[Value] = [] if database is None else [{"database": database}]
        return reads.map_of("status", self.call("status", *options))

    def verdict(self, database: str | None = None) -> dict[str, Value]:
        """Return the verdict on the cluster or one database: `level` (well, attention, trouble), `text`, `reasons`.

        The node asks all members, so every node gives the same answer.
        """
        options: list[Value] = [] if database is None else [{"database": database}]
        return reads.map_of("verdict", self.call("verdict", *options))

    def members(self) -> list[dict[str, Value]]:
        """Return the members of the cluster, including dead and left ones: `node`, `address`, `state`, `epoch`."""
        return reads.maps_of("members", self.call("members"))

    def children(self, path: str = "", *, everything: bool = False) -> list[str]:
        """Return the names below a path of the tree that live nodes publish; with `everything`, those of all nodes."""
        options: list[Value] = [{"all": True}] if everything else []
        return reads.texts_of("children", self.call("children", path, *options))

    def entries(self, path: str = "", *, everything: bool = False) -> list[dict[str, Value]]:
        """Return the keys below a path: `name`, `owner`, `value`, `age_s`, `state`; `everything`: of all nodes."""
        options: list[Value] = [{"all": True}] if everything else []
        return reads.maps_of("entries", self.call("entries", path, *options))

    def refresh(self, database: str | None = None) -> Value:
        """Make the node scan its source, for one database or all; return the versions seen by name.  Builds follow."""
        return self.call("refresh", database)

    def call(self, method: str, *params: Value, timeout_ms: int | None = None) -> Value:
        """Call any method of the protocol (`docs/users/wire.md`), and return its result as it came.

        Raises:
            GossipKVError: the node answered with an error, which has its class in `gossipkv.errors`.
            Unavailable, TimedOut, ProtocolError: there was no answer.
            Unknown: there was no answer, and the method may not be repeated: the request may have been done.
        """
        return self.ask(call_request(method, params), self.deadline(timeout_ms))

    def deadline(self, timeout_ms: int | None) -> float:
        """Return the deadline of a request that starts now, by `time.monotonic`."""
        return monotonic() + self.allowed_ms(timeout_ms) / 1000

    def allowed_ms(self, timeout_ms: int | None) -> int:
        """Return the time of a request with this `timeout_ms`, or the client's if None."""
        return self._timeout_ms if timeout_ms is None else reads.positive(timeout_ms)

    def ask(self, request: Request[_Result], deadline: float) -> _Result:
        """Return the result of `request`; wait for data that is still being built.  Raises as `call`."""
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

    def ask_in_parts(self, steps: Generator[Request[_Result], _Result, _Whole], deadline: float) -> _Whole:
        """Return the result of `steps` (`parts`), asking each request that it yields."""
        try:
            request = next(steps)
            while True:
                try:
                    answer = self.ask(request, deadline)
                except GossipKVError as error:
                    request = steps.throw(error)
                else:
                    request = steps.send(answer)
        except StopIteration as end:
            whole: _Whole = end.value
            return whole

    def records(self, pages: ScanPages, timeout_ms: int | None = None) -> Iterator[Record]:
        """Yield the records of a scan; `timeout_ms` is for each page."""
        while (request := pages.next_request()) is not None:
            yield from pages.take(self.ask(request, self.deadline(timeout_ms)))

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
        return f"<gossipkv.blocking.Dataset {self.name!r} of {self._client!r}>"

    def get(
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
        return self.get_with_version(
            key, version=version, min_version=min_version, timeout_ms=timeout_ms, session=session
        )[0]

    def get_with_version(
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
        answer = self._client.ask(request, self._client.deadline(timeout_ms))
        return sessions.saw_version(session, self.name, answer)

    def get_many(
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
        return self.get_many_with_version(
            keys, version=version, min_version=min_version, timeout_ms=timeout_ms, session=session
        )[0]

    def get_many_with_version(
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
        answer = self._client.ask_in_parts(reading, self._client.deadline(timeout_ms))
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
    ) -> Iterator[Record]:
        """Yield the records with `start <= key < end` and `prefix`, in key order; pages are fetched on demand.

        All pages come from the version that answered the first.  `limit` bounds all records together.  Errors of `get`
        are raised where a page begins.
        """
        pages = ScanPages(
            self.name, reads.span_options(start, end, prefix, reverse=reverse), limit=limit, version=version,
            check=lambda answer: sessions.saw_version(session, self.name, answer),
            least=None if session is None else session.version(self.name),
        )  # fmt: skip
        return self._client.records(pages)

    def iter_get(
        self,
        keys: Iterable[OneKey],
        in_flight: int = IN_FLIGHT,
        *,
        version: str | None = None,
        min_version: str | None = None,
    ) -> Iterator[tuple[OneKey, bytes | None, str]]:
        """Yield `(key, value, version)` for each of `keys`, in order, with up to `in_flight` requests open.

        `keys` may be endless; they are consumed as requests are sent.  Each answer is from the version it names, so
        neighbours may differ while the node switches; `get_many` and `scan` are from one version.  Raises as `get`, at
        the key that failed.
        """
        asked: deque[OneKey] = deque()
        options = reads.read_options(version, min_version)

        def requests() -> Iterator[Request[tuple[bytes | None, Stamp]]]:
            for key in reads.several(keys):
                asked.append(key)
                yield get_request(self._database, key, options)

        for answer in self._client.ask_all(requests(), in_flight):
            yield asked.popleft(), *reads.versioned(answer)

"""A table of the blocking client; `trio_table` is the same with `await`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, final

from gossipkv.client import parts, reads, tables
from gossipkv.client._client import get_request
from gossipkv.client.pages import ScanPages
from gossipkv.client.sessions import SessionTurn, watched
from gossipkv.errors import GossipKVError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator
    from typing import TypeVar

    from gossipkv.address import Address
    from gossipkv.client._client import Request
    from gossipkv.client.owners import ByMap
    from gossipkv.client.reads import Key, Record, Stamp
    from gossipkv.client.sessions import Session
    from gossipkv.client.tables import Level
    from gossipkv.wire.rpc import Value

    _Result = TypeVar("_Result")
    _Whole = TypeVar("_Whole")


class BlockingRequests(Protocol):
    """A client, as tables see it; `blocking.Client` documents the methods."""

    def deadline(self, timeout_ms: int | None) -> float: ...
    def allowed_ms(self, timeout_ms: int | None) -> int: ...
    def ask(self, request: Request[_Result], deadline: float) -> _Result: ...
    def ask_in_parts(self, steps: Generator[Request[_Result], _Result, _Whole], deadline: float) -> _Whole: ...
    def records(self, pages: ScanPages, timeout_ms: int | None = None) -> Iterator[Record]: ...
    def at(self, address: Address) -> BlockingRequests: ...


@final
class Table:
    """A table's reads and writes; `Client.table` makes one.

    A key is bytes, or text, which means its UTF-8 bytes.  A write returns when as many replicas as its `level` says
    (`one`, a `majority` or `all`) have it synced.  It is sent once, and raises `Unknown` if its outcome is not known.
    `wait_ms` is the time that a node may wait until it can serve a request.  With a `session` it can serve once it has
    all that the session has seen.
    """

    __slots__ = ("_by_map", "_client", "_database", "name")

    def __init__(self, client: BlockingRequests, name: str, by_map: ByMap | None = None) -> None:
        self._client = client
        self._by_map = by_map  # None: all requests go to the node in use.
        self._database = reads.name_bytes(name)
        self.name = name

    def __repr__(self) -> str:
        return f"<gossipkv.blocking.Table {self.name!r} of {self._client!r}>"

    def get(
        self, key: Key, *, wait_ms: int = 0, timeout_ms: int | None = None, session: Session | None = None
    ) -> bytes | None:
        """Return the value of `key`, or None if there is none (an empty value is `b""`).

        Raises:
            UnknownDatabase, NotReady, Corrupt: the node's answer.
            Unavailable, TimedOut, ProtocolError: there was no answer.
        """
        turn = SessionTurn(session)

        def make(config: int) -> Request[tuple[bytes | None, Stamp]]:
            return get_request(self._database, key, self._packed(turn, wait_ms, timeout_ms, config))

        value, token = reads.tokened(self._asked(key, make, timeout_ms))
        turn.saw(token)
        return value

    def get_many(
        self, keys: Iterable[Key], *, wait_ms: int = 0, timeout_ms: int | None = None, session: Session | None = None
    ) -> list[bytes | None]:
        """Return the values of `keys`, in the order asked, each as of its own reading: there is no snapshot.

        Any number of keys is allowed: the read is split into frames, within one timeout.  Raises as `get`.
        """
        client, turn = self._client, SessionTurn(session)
        reading = parts.reading(self._database, keys, self._packed(turn, wait_ms, timeout_ms))
        steps = watched(reading, lambda answer: turn.saw(reads.tokened(answer)[1]))
        return reads.tokened(client.ask_in_parts(steps, client.deadline(timeout_ms)))[0]

    def scan(
        self,
        *,
        start: Key | None = None,
        end: Key | None = None,
        prefix: Key | None = None,
        reverse: bool = False,
        limit: int | None = None,
        wait_ms: int = 0,
        timeout_ms: int | None = None,
        session: Session | None = None,
    ) -> Iterator[Record]:
        """Yield the records with `start <= key < end` and `prefix`, in key order; pages are fetched on demand.

        Each record is as of the reading of its page: there is no snapshot.  `limit` bounds all records together,
        `timeout_ms` each page.
        """
        turn = SessionTurn(session)
        options = tables.read_options(turn.token, wait_ms, self._client.allowed_ms(timeout_ms))
        options |= reads.span_options(start, end, prefix, reverse=reverse)
        pages = ScanPages(self.name, options, limit=limit, check=turn.saw_page)
        return self._client.records(pages, timeout_ms)

    def put(
        self,
        key: Key,
        value: bytes,
        *,
        level: Level | None = None,
        smear: bool = True,
        wait_ms: int = 0,
        timeout_ms: int | None = None,
        session: Session | None = None,
    ) -> None:
        """Set the value of `key`.

        Without a session and a `level` a table with a time key may smear the put, unless `smear` is false.  Then it
        returns when one node has it synced, which forwards it within two minutes or so.  Otherwise the level is a
        `majority`.

        Raises:
            Unknown: the put may have been applied, or may yet be: readers may see it or not.
            Unavailable, Overloaded, NotReady: nothing was applied; try again later.
            UnknownDatabase, BadRequest, TooLarge: nothing was applied, and never will be.
        """
        turn, smears = SessionTurn(session), smear and level is None and session is None
        wanted = None if smears else level or "majority"

        def make(config: int) -> Request[Value]:
            return tables.put(self.name, key, value, self._written(turn, wanted, wait_ms, timeout_ms, config))

        turn.saw(tables.token_of("put", self._asked(key, make, timeout_ms, smears=smears)))

    def delete(
        self,
        key: Key,
        *,
        level: Level = "majority",
        wait_ms: int = 0,
        timeout_ms: int | None = None,
        session: Session | None = None,
    ) -> None:
        """Delete `key`, if it exists.  Raises as `put`."""
        turn = SessionTurn(session)

        def make(config: int) -> Request[Value]:
            return tables.delete(self.name, key, self._written(turn, level, wait_ms, timeout_ms, config))

        turn.saw(tables.token_of("delete", self._asked(key, make, timeout_ms)))

    def put_many(
        self,
        records: Iterable[tuple[Key, bytes]],
        *,
        level: Level = "majority",
        wait_ms: int = 0,
        timeout_ms: int | None = None,
        session: Session | None = None,
    ) -> None:
        """Put each of `records`.  This is not atomic: others may see a part of them, for ever if it fails.

        Any number of records is allowed: they are sent in parts, one after the other, within one timeout.  Raises as
        `put`, for the first part that fails.  If there are several parts, `details` have the number of records `put`
        before that part and `unsent` after it; the error itself is about the records between.
        """
        client, turn = self._client, SessionTurn(session)
        writing = parts.writing(self.name, records, self._written(turn, level, wait_ms, timeout_ms))
        steps = watched(writing, lambda answer: turn.saw(tables.token_of("put_many", answer)))
        client.ask_in_parts(steps, client.deadline(timeout_ms))

    def _asked(
        self, key: Key, make: Callable[[int], Request[_Result]], timeout_ms: int | None, *, smears: bool = False
    ) -> _Result:
        """Return the answer to a request for one key, from the node in use or the nodes that `owners` names."""
        deadline = self._client.deadline(timeout_ms)
        if self._by_map is None:
            return self._client.ask(make(0), deadline)
        of, failed = reads.key_bytes(key), None
        if (owner := self._by_map.owner(of, smears=smears)) is not None:
            try:
                return self._client.at(owner).ask(make(self._by_map.config), deadline)
            except GossipKVError as error:
                failed = owner, error
        steps = self._by_map.asking(of, make, failed, smears=smears)
        try:
            address, request = next(steps)
            while True:
                client = self._client if address is None else self._client.at(address)
                try:
                    answer = client.ask(request, deadline)
                except GossipKVError as error:
                    address, request = steps.throw(error)
                else:
                    address, request = steps.send(answer)
        except StopIteration as end:
            whole: _Result = end.value
            return whole

    def _packed(self, turn: SessionTurn, wait_ms: int, timeout_ms: int | None, config: int = 0) -> bytes | None:
        token = turn.token
        if config and not (token or wait_ms):
            return tables.packed_config(config)
        return tables.packed(tables.read_options(token, wait_ms, self._client.allowed_ms(timeout_ms), config))

    def _written(
        self, turn: SessionTurn, level: Level | None, wait_ms: int, timeout_ms: int | None, config: int = 0
    ) -> dict[str, Value]:
        return tables.write_options(turn.token, level, wait_ms, self._client.allowed_ms(timeout_ms), config)

"""A table of the blocking client; `trio_table` is the same, awaited."""

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
    """A client, as tables see it: `blocking.Client` says what each method does."""

    def deadline(self, timeout_ms: int | None) -> float: ...
    def allowed_ms(self, timeout_ms: int | None) -> int: ...
    def ask(self, request: Request[_Result], deadline: float) -> _Result: ...
    def ask_in_parts(self, steps: Generator[Request[_Result], _Result, _Whole], deadline: float) -> _Whole: ...
    def records(self, pages: ScanPages, timeout_ms: int | None = None) -> Iterator[Record]: ...
    def at(self, address: Address) -> BlockingRequests: ...


@final
class Table:
    """A table's reads and writes; `Client.table` makes one.

    A key is bytes, or text, which means its UTF-8 bytes.  A write returns when as many copies as its `level` says have
    it, synced: `one`, a `majority` or `all`.  It is sent once: when nobody can say whether it was applied it raises
    `Unknown`.  `wait_ms` is how long a node may wait until it is ready for a request.  With a `session` it is ready
    once it has all that the session has seen.
    """

    __slots__ = ("_by_map", "_client", "_database", "name")

    def __init__(self, client: BlockingRequests, name: str, by_map: ByMap | None = None) -> None:
        self._client = client
        self._by_map = by_map  # None: whatever is asked goes to the node in use.
        self._database = reads.name_bytes(name)
        self.name = name

    def __repr__(self) -> str:
        return f"<gossipkv.blocking.Table {self.name!r} of {self._client!r}>"

    def get(
        self, key: Key, *, wait_ms: int = 0, timeout_ms: int | None = None, session: Session | None = None
    ) -> bytes | None:
        """The value of `key`, or None if there is none (an empty value is `b""`).

        Raises:
            UnknownDatabase, NotReady, Corrupt: what the node says of it.
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
        """The values of `keys`, in the order asked, each as it was when it was read: there is no snapshot.

        Any number of keys: what does not fit into one frame is asked for in parts, within one timeout.  Raises as `get`
        does.
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
        """The records with `start <= key < end` and `prefix`, in key order; fetched page by page as they are taken.

        Each is as it was when its page was read: there is no snapshot.  `limit` bounds the records in all, `timeout_ms`
        each page.
        """
        turn = SessionTurn(session)
        options = tables.read_options(turn.token, wait_ms, self._client.allowed_ms(timeout_ms))
        pages = ScanPages(
            self.name, start, end, prefix, reverse=reverse, limit=limit, check=turn.saw_page, options=options
        )
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
        """Let `key` have this value.

        Without a session and a `level` a table with a time key may smear it, unless `smear` is false: then it returns
        when one node has it, synced, which forwards it within two minutes or so.  Else the level is a `majority`.

        Raises:
            Unknown: it may have been applied, or may yet be: whoever reads may see it or not.
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
        """Let there be no `key`, whether there is one or not.  Raises as `put` does."""
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
        """Put each of `records`.  This is not atomic: others may see some and not the rest, for ever if it fails.

        Any number of records: what does not fit into one frame is sent in parts, one after the other, within one
        timeout.  Raises as `put` does, of the first part that fails; where there are several, `details` say how many
        records are `put` and how many `unsent`, and what the error says is of those between.
        """
        client, turn = self._client, SessionTurn(session)
        writing = parts.writing(self.name, records, self._written(turn, level, wait_ms, timeout_ms))
        steps = watched(writing, lambda answer: turn.saw(tables.token_of("put_many", answer)))
        client.ask_in_parts(steps, client.deadline(timeout_ms))

    def _asked(
        self, key: Key, make: Callable[[int], Request[_Result]], timeout_ms: int | None, *, smears: bool = False
    ) -> _Result:
        """The answer to a request for one key: of the node in use, or of whom `owners` has asked."""
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

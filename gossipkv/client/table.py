"""The reads and writes of a table, written once for every shell."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING

from gossipkv.client import parts, reads, tables
from gossipkv.client._client import call_request, get_request
from gossipkv.client.changes import WAIT_MS, ChangePages
from gossipkv.client.pages import ScanPages
from gossipkv.client.range_deletion import PAGE_MS, DeletionPages
from gossipkv.client.sessions import SessionTurn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Literal, TypeVar

    from gossipkv.client._client import Column, Request
    from gossipkv.client.asking import Asked, Followed, Scanned, Shell
    from gossipkv.client.owners import ByMap
    from gossipkv.client.reads import Key, Keys, Stamp
    from gossipkv.client.sessions import Session
    from gossipkv.client.tables import Level
    from gossipkv.wire.rpc import Value

    _Default = TypeVar("_Default")
    _Result = TypeVar("_Result")
    _Whole = TypeVar("_Whole")


class Table(reads.Container):
    """A table's reads and writes; `Client.table` makes one.

    A key is bytes, a text (its UTF-8 bytes) or an integer (its digits).  A write returns when as many replicas as its
    `level` says (`one`, a `majority` or `all`) have it synced.  It is sent once, and raises `Unknown` if its outcome is
    not known.  `wait_ms` is the time that a node may wait until it can serve a request.  With a `session` it can serve
    once it has all that the session has seen.
    """

    __slots__ = ("_by_map", "_client", "_database", "name")

    def __init__(self, client: Shell, name: str, by_map: ByMap | None = None) -> None:
        self._client = client
        self._by_map = by_map  # None: all requests go to the node in use.
        self._database = reads.name_bytes(name)
        self.name = name

    def __repr__(self) -> str:
        return f"<{self._client.PLACE}.Table {self.name!r} of {self._client!r}>"

    def __getitem__(self, key: Key) -> Asked[bytes]:
        """Return the value of `key`; raise KeyError if there is none."""
        turn = SessionTurn(None)
        return self._read(key, turn, lambda answer: reads.there(turn.found(answer), key))

    def get(
        self,
        key: Key,
        default: _Default | None = None,
        *,
        wait_ms: int = 0,
        timeout_ms: int | None = None,
        session: Session | None = None,
    ) -> Asked[bytes | _Default | None]:
        """Return the value of `key`, or `default` if there is none (an empty value is `b""`).

        Raises:
            UnknownDatabase, NotReady, Corrupt: the node's answer.
            Unavailable, TimedOut, ProtocolError: there was no answer.
        """
        turn = SessionTurn(session)
        finish = turn.found if default is None else reads.or_default(turn.found, default)
        return self._read(key, turn, finish, wait_ms, timeout_ms)

    def has(
        self, key: Key, *, wait_ms: int = 0, timeout_ms: int | None = None, session: Session | None = None
    ) -> Asked[bool]:
        """Return True if there is a value of `key`.  Raises as `get`."""
        turn = SessionTurn(session)
        return self._read(key, turn, lambda answer: turn.found(answer) is not None, wait_ms, timeout_ms)

    def get_with_expiry(
        self, key: Key, *, wait_ms: int = 0, timeout_ms: int | None = None, session: Session | None = None
    ) -> Asked[tuple[bytes | None, int | None]]:
        """Return the same as `get`, with the time of the record's expiry in ms since 1970, or None if it has none."""
        turn, sent = SessionTurn(session), reads.key_bytes(key)

        def make(config: int) -> Request[Value]:
            options = tables.read_options(turn.token, wait_ms, self._client.allowed_ms(timeout_ms), config)
            return call_request("get", [self.name, sent, {**options, "explain": True}])

        def finish(result: Value) -> tuple[bytes | None, int | None]:
            return turn.found(tables.explained(result))

        return self._asked(sent, make, timeout_ms, finish)

    def get_many(
        self,
        keys: Keys,
        *,
        wait_ms: int = 0,
        timeout_ms: int | None = None,
        session: Session | None = None,
        into: Literal["arrow"] | None = None,
        as_text: bool = False,
    ) -> Asked[list[bytes | None] | Column]:
        """Return the values of `keys`, in the order asked, each as of its own reading: there is no snapshot.

        Any number of keys is allowed: the read is split into frames, within one timeout.  `into="arrow"`: return a
        column, which pyarrow, polars, DuckDB and pandas take over; `as_text`: a column of texts.  Raises as `get`.
        """
        turn = SessionTurn(session)
        options = tables.read_options(turn.token, wait_ms, self._client.allowed_ms(timeout_ms))
        steps = parts.reading(self._database, keys, options, turn.found, into=into, as_text=as_text)
        return self._client.ask_steps(parts.finished(steps, itemgetter(0)), timeout_ms)

    def changes(
        self,
        *,
        token: bytes | None = None,
        prefix: Key | None = None,
        start: Literal["snapshot"] | None = None,
        wait_ms: int = WAIT_MS,
        timeout_ms: int | None = None,
    ) -> Followed:
        """Return the changes of the records with `prefix`, to loop over without an end.

        Each acknowledged change comes at least once, and those of a key in their order.  `token`: go on after a change,
        by its token; `start="snapshot"`: begin with all present records; without either, begin now.  Errors that may
        pass are waited for.  A poll waits at a node for `wait_ms`, and `timeout_ms` is the time beyond that.

        Raises:
            TooOld: where a poll begins: the nodes do not keep the changes since that token any more.
            UnknownDatabase, BadRequest, Unauthorized: likewise.
            Overloaded: where the feed begins: the node, or the connection, has too many feeds.
        """
        pages = ChangePages(self.name, token, prefix, start, wait_ms)
        return self._client.scanned(pages, pages.wait_ms + self._client.allowed_ms(timeout_ms))

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
        into: Literal["arrow"] | None = None,
        as_text: bool = False,
    ) -> Scanned:
        """Return the records with `start <= key < end` and `prefix`, in key order, to loop over.

        Each record is as of the reading of its page: there is no snapshot.  `limit` bounds all records together,
        `timeout_ms` each page.  `into="arrow"`: loop over batches, which libraries take over as tables, one by one or
        all together; `as_text`: of texts.
        """
        turn = SessionTurn(session)
        options = tables.read_options(turn.token, wait_ms, self._client.allowed_ms(timeout_ms))
        options |= reads.span_options(start, end, prefix, reverse=reverse)
        pages = ScanPages(self.name, options, limit=limit, check=turn.saw_page, into=into, as_text=as_text)
        return self._client.scanned(pages, timeout_ms)

    def put(
        self,
        key: Key,
        value: bytes,
        *,
        level: Level | None = None,
        smear: bool = True,
        ttl_ms: int | None = None,
        expires_at: int | None = None,
        wait_ms: int = 0,
        timeout_ms: int | None = None,
        session: Session | None = None,
    ) -> Asked[None]:
        """Set the value of `key`.

        The record expires `ttl_ms` after the put (0: never) or at `expires_at`, in ms since 1970; without either, as
        the table says.

        Without a session and a `level` a table with a time key may smear the put, unless `smear` is false.  Then it
        returns when one node has it synced, which forwards it within two minutes or so.  Otherwise the level is a
        `majority`.

        Raises:
            Unknown: the put may have been applied, or may yet be: readers may see it or not.
            Unavailable, Overloaded, NotReady: nothing was applied; try again later.
            UnknownDatabase, BadRequest, TooLarge: nothing was applied, and never will be.
        """
        turn, smears = SessionTurn(session), smear and level is None and session is None
        options = self._written(turn, None if smears else level or "majority", wait_ms, timeout_ms)
        options |= reads.given({"ttl_ms": ttl_ms, "expires_at": expires_at})
        sent = [reads.key_bytes(key), tables.value_bytes(value)]
        return self._write("put", sent, options, timeout_ms, turn, smears=smears)

    def delete(
        self,
        key: Key,
        *,
        level: Level = "majority",
        wait_ms: int = 0,
        timeout_ms: int | None = None,
        session: Session | None = None,
    ) -> Asked[None]:
        """Delete `key`, if it exists.  Raises as `put`."""
        turn = SessionTurn(session)
        options = self._written(turn, level, wait_ms, timeout_ms)
        return self._write("delete", [reads.key_bytes(key)], options, timeout_ms, turn)

    def put_many(
        self,
        records: Iterable[tuple[Key, bytes] | tuple[Key, bytes, int]],
        *,
        level: Level = "majority",
        ttl_ms: int | None = None,
        expires_at: int | None = None,
        wait_ms: int = 0,
        timeout_ms: int | None = None,
        session: Session | None = None,
    ) -> Asked[None]:
        """Put each of `records`.  This is not atomic: others may see a part of them, for ever if it fails.

        A record may have its own time of expiry behind the value; the options are for all others.

        Any number of records is allowed: they are sent in parts, one after the other, within one timeout.  Raises as
        `put`, for the first part that fails.  If there are several parts, `details` have the number of records `put`
        before that part and `unsent` after it; the error itself is about the records between.
        """
        turn = SessionTurn(session)
        options = self._written(turn, level, wait_ms, timeout_ms)
        options |= reads.given({"ttl_ms": ttl_ms, "expires_at": expires_at})
        return self._client.ask_steps(parts.writing(self.name, records, options, turn.saw), timeout_ms)

    def delete_many(
        self,
        keys: Keys,
        *,
        level: Level = "majority",
        wait_ms: int = 0,
        timeout_ms: int | None = None,
        session: Session | None = None,
    ) -> Asked[None]:
        """Delete each of `keys` that exists, as `put_many` puts records; `details` have the number `deleted`."""
        turn = SessionTurn(session)
        options = self._written(turn, level, wait_ms, timeout_ms)
        return self._client.ask_steps(parts.deleting(self.name, keys, options, turn.saw), timeout_ms)

    def delete_range(
        self,
        *,
        start: Key | None = None,
        end: Key | None = None,
        prefix: Key | None = None,
        level: Level = "majority",
        wait_ms: int = 0,
        timeout_ms: int | None = None,
        session: Session | None = None,
    ) -> Asked[int]:
        """Delete the records with `start <= key < end` and `prefix`; return their exact number.

        Records that are put meanwhile may be deleted or not.  A node deletes a page of some thousand records at a time,
        and `timeout_ms` is for all pages together.  After an error, whose `details` have the number `deleted` so far,
        the same call deletes the rest.

        Raises:
            Unknown: perhaps more than that number is deleted, or may yet be.
            BadRequest: there are no bounds.
            GossipKVError: as `put`.
        """
        turn, span = SessionTurn(session), reads.span_options(start, end, prefix, reverse=False)
        options = self._written(turn, level, wait_ms, min(self._client.allowed_ms(timeout_ms), PAGE_MS))
        deletion = DeletionPages(self.name, span, options)
        return self._client.ask_steps(parts.deleting_range(deletion, turn.saw), timeout_ms)

    def _read(
        self,
        key: Key,
        turn: SessionTurn,
        finish: Callable[[tuple[bytes | None, Stamp]], _Whole],
        wait_ms: int = 0,
        timeout_ms: int | None = None,
    ) -> Asked[_Whole]:
        """Return `finish` of the answer to a `get`."""
        if self._by_map is None:
            request = get_request(self._database, key, self._packed(turn, wait_ms, timeout_ms))
            return self._client.ask(request, timeout_ms, finish)

        def make(config: int) -> Request[tuple[bytes | None, Stamp]]:
            return get_request(self._database, key, self._packed(turn, wait_ms, timeout_ms, config))

        return self._asked(reads.key_bytes(key), make, timeout_ms, finish)

    def _write(
        self,
        method: str,
        sent: list[bytes],
        options: dict[str, Value],
        timeout_ms: int | None,
        turn: SessionTurn,
        *,
        smears: bool = False,
    ) -> Asked[None]:
        """Ask for a write of one record; `sent`: its key, and the value of a put."""

        def make(config: int) -> Request[Value]:
            return call_request(method, [self.name, *sent, {**options, "config": config} if config else options])

        def finish(result: Value) -> None:
            turn.saw(tables.token_of(method, result))

        return self._asked(sent[0], make, timeout_ms, finish, smears=smears)

    def _asked(
        self,
        key: bytes,
        make: Callable[[int], Request[_Result]],
        timeout_ms: int | None,
        finish: Callable[[_Result], _Whole],
        *,
        smears: bool = False,
    ) -> Asked[_Whole]:
        """Return `finish` of the answer to a request for one key, from the nodes that `owners` names."""
        by_map = self._by_map
        if by_map is None:
            return self._client.ask(make(0), timeout_ms, finish)
        owner = by_map.owner(key, smears=smears)
        if owner is None:
            return self._client.ask_steps(parts.finished(by_map.asking(key, make, smears=smears), finish), timeout_ms)
        request = make(by_map.config)
        request.at = owner
        return self._client.ask(
            request, timeout_ms, finish, lambda error: by_map.asking(key, make, (owner, error), smears=smears)
        )

    def _packed(self, turn: SessionTurn, wait_ms: int, timeout_ms: int | None, config: int = 0) -> bytes | None:
        token = turn.token
        if not (token or wait_ms):
            return tables.packed_config(config) if config else None
        return reads.packed(tables.read_options(token, wait_ms, self._client.allowed_ms(timeout_ms), config))

    def _written(
        self, turn: SessionTurn, level: Level | None, wait_ms: int, timeout_ms: int | None
    ) -> dict[str, Value]:
        return tables.write_options(turn.token, level, wait_ms, self._client.allowed_ms(timeout_ms))

"""The reads of a dataset, written once for every shell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gossipkv.client import parts, reads, sessions
from gossipkv.client._client import get_request
from gossipkv.client.pages import ScanPages

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal, TypeVar

    from gossipkv.client._client import Column, Request
    from gossipkv.client.asking import Asked, Scanned, Shell
    from gossipkv.client.reads import Key, Keys, Stamp
    from gossipkv.client.sessions import Session

    _Default = TypeVar("_Default")
    _Found = TypeVar("_Found")


class Dataset(reads.ReadOnly):
    """A dataset's reads; `Client.dataset` makes one.

    A key is bytes, a text (its UTF-8 bytes) or an integer (its digits).  Reads take `version` (exactly that), and all
    but `scan` take `min_version` (that or a newer one).  With a `session` no answer is older than it has seen.
    """

    __slots__ = ("_client", "_database", "name")

    def __init__(self, client: Shell, name: str) -> None:
        self._client = client
        self._database = reads.name_bytes(name)
        self.name = name

    def __repr__(self) -> str:
        return f"<{self._client.PLACE}.Dataset {self.name!r} of {self._client!r}>"

    def __getitem__(self, key: Key) -> Asked[bytes]:
        """Return the value of `key`; raise KeyError if there is none."""
        return self._client.ask(
            self._request(key, None), None, lambda answer: reads.there(reads.of_dataset(answer), key)
        )

    def get(
        self,
        key: Key,
        default: _Default | None = None,
        *,
        version: str | None = None,
        min_version: str | None = None,
        timeout_ms: int | None = None,
        session: Session | None = None,
    ) -> Asked[bytes | _Default | None]:
        """Return the value of `key`, or `default` if there is none (an empty value is `b""`).

        Raises:
            UnknownDatabase, UnknownVersion, NotReady, Corrupt: the node's answer.
            Unavailable, TimedOut, ProtocolError: there was no answer.
        """
        found = self._found(session)
        finish = found if default is None else reads.or_default(found, default)
        return self._client.ask(self._request(key, session, version, min_version), timeout_ms, finish)

    def has(self, key: Key, *, timeout_ms: int | None = None, session: Session | None = None) -> Asked[bool]:
        """Return True if there is a value of `key`.  Raises as `get`."""
        found = self._found(session)
        return self._client.ask(self._request(key, session), timeout_ms, lambda answer: found(answer) is not None)

    def get_with_version(
        self,
        key: Key,
        *,
        version: str | None = None,
        min_version: str | None = None,
        timeout_ms: int | None = None,
        session: Session | None = None,
    ) -> Asked[tuple[bytes | None, str]]:
        """Return the same as `get`, with the version that answered."""
        return self._client.ask(self._request(key, session, version, min_version), timeout_ms, self._saw(session))

    def get_many(
        self,
        keys: Keys,
        *,
        version: str | None = None,
        min_version: str | None = None,
        timeout_ms: int | None = None,
        session: Session | None = None,
        into: Literal["arrow"] | None = None,
        as_text: bool = False,
    ) -> Asked[list[bytes | None] | Column]:
        """Return the values of `keys`, in the order asked, all from one version.

        Any number of keys is allowed: the read is split into frames (`docs/users/client.md`), within one timeout.
        `into="arrow"`: return a column, which pyarrow, polars, DuckDB and pandas take over; `as_text`: a column of
        texts.  Raises as `get`.
        """
        options = sessions.read_options(session, self.name, version, min_version)
        steps = parts.reading(self._database, keys, options, into=into, as_text=as_text)
        return self._client.ask_steps(parts.finished(steps, self._found(session)), timeout_ms)

    def get_many_with_version(
        self,
        keys: Keys,
        *,
        version: str | None = None,
        min_version: str | None = None,
        timeout_ms: int | None = None,
        session: Session | None = None,
        into: Literal["arrow"] | None = None,
        as_text: bool = False,
    ) -> Asked[tuple[list[bytes | None] | Column, str]]:
        """Return the same as `get_many`, with the version that answered."""
        options = sessions.read_options(session, self.name, version, min_version)
        steps = parts.reading(self._database, keys, options, into=into, as_text=as_text)
        return self._client.ask_steps(parts.finished(steps, self._saw(session)), timeout_ms)

    def scan(
        self,
        *,
        start: Key | None = None,
        end: Key | None = None,
        prefix: Key | None = None,
        reverse: bool = False,
        limit: int | None = None,
        version: str | None = None,
        timeout_ms: int | None = None,
        session: Session | None = None,
        into: Literal["arrow"] | None = None,
        as_text: bool = False,
    ) -> Scanned:
        """Return the records with `start <= key < end` and `prefix`, in key order, to loop over.

        All pages come from the version that answered the first.  `limit` bounds all records together, `timeout_ms` each
        page.  Errors of `get` are raised where a page begins.  `into="arrow"`: loop over batches, which libraries take
        over as tables, one by one or all together; `as_text`: of texts.
        """
        options = sessions.read_options(session, self.name, version)
        options |= reads.span_options(start, end, prefix, reverse=reverse)
        pages = ScanPages(self.name, options, limit=limit, check=self._saw(session), into=into, as_text=as_text)
        return self._client.scanned(pages, timeout_ms)

    def _request(
        self, key: Key, session: Session | None, version: str | None = None, min_version: str | None = None
    ) -> Request[tuple[bytes | None, Stamp]]:
        if session is None and version is None and min_version is None:
            return get_request(self._database, key)
        options = sessions.read_options(session, self.name, version, min_version)
        return get_request(self._database, key, reads.packed(options))

    def _found(self, session: Session | None) -> Callable[[tuple[_Found, Stamp]], _Found]:
        if session is None:
            return reads.of_dataset
        return lambda answer: sessions.saw_version(session, self.name, answer)[0]

    def _saw(self, session: Session | None) -> Callable[[tuple[_Found, Stamp]], tuple[_Found, str]]:
        return lambda answer: sessions.saw_version(session, self.name, answer)

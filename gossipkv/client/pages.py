"""A scan, page by page: the next request, and the contents of an answer; shared by both clients, without any I/O.

All pages of a dataset come from the version of the first page, which each later request names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from gossipkv.client import reads
from gossipkv.client._client import call_request
from gossipkv.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.client._client import Request
    from gossipkv.client.reads import Record, Stamp
    from gossipkv.wire.rpc import Value


@final
class ScanPages:
    """At most `limit` records; `options`, with the bounds, are sent with each request.

    `check` raises if an answer is of the wrong kind of database.

    Raises:
        BadRequest: a negative limit.
    """

    __slots__ = ("_check", "_cursor", "_database", "_is_complete", "_least", "_left", "_options", "_version")

    def __init__(
        self,
        database: str,
        options: dict[str, Value],
        *,
        limit: int | None,
        version: str | None = None,
        least: str | None = None,
        check: Callable[[tuple[Value, Stamp]], object] = lambda _: None,
    ) -> None:
        if limit is not None and limit < 0:
            raise BadRequest(f"limit must not be negative, got {limit}")
        self._database = database
        self._check = check
        self._options = options
        self._left = limit
        self._version = version
        self._least = least  # Least version of the first page.
        self._cursor: Value = None
        self._is_complete = limit == 0

    def next_request(self) -> Request[Value] | None:
        """Return the request for the next page; None after the last one."""
        if self._is_complete:
            return None
        least = self._least if self._version is None else None
        given = {"limit": self._left, "cursor": self._cursor, "version": self._version, "min_version": least}
        options: dict[str, Value] = self._options | {name: value for name, value in given.items() if value is not None}
        return call_request("scan", [self._database, options] if options else [self._database])

    def take(self, result: Value) -> list[Record]:
        """Return the records of the page that answered the last request.

        Raises:
            ProtocolError: the answer is not a page.
            BadRequest: it is of another kind of database.
        """
        records, self._cursor, stamp = reads.page_of(result)
        self._check((None, stamp))
        if isinstance(stamp, str):
            self._version = stamp
        if self._left is not None:
            records = records[: self._left]
            self._left -= len(records)
            assert self._left >= 0, self._left
        self._is_complete = self._cursor is None or self._left == 0
        return records

    def close(self) -> None:
        """End the scan."""
        self._is_complete = True

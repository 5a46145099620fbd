"""A scan, page by page: the next request, and the contents of an answer; shared by both clients, without any I/O.

All pages of a dataset come from the version of the first page, which each later request names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from gossipkv.client import reads
from gossipkv.client._client import Records, call_request, page_request, stream_of
from gossipkv.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Literal, Self

    from typing_extensions import CapsuleType

    from gossipkv.client._client import Request
    from gossipkv.client.reads import Record, Stamp
    from gossipkv.errors import GossipKVError
    from gossipkv.wire.rpc import Value

    Page = Value | tuple[Records, Value, Stamp]


@final
class Batches:
    """Batches of records from a scan, to loop over or to hand to a library as one stream: each batch once.

    Libraries see a table with the columns `key` and `value`.
    """

    __slots__ = ("_as_text", "_batches")

    def __init__(self, batches: Iterator[Records], *, as_text: bool) -> None:
        self._batches = batches
        self._as_text = as_text

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Records:
        """Return the next batch.  Raises as `Calls.call`."""
        return next(self._batches)

    def __arrow_c_stream__(self, requested_schema: object = None) -> CapsuleType:
        """Return the batches that are left as a stream of Arrow's C interface, which asks for each when it is read."""
        return stream_of(self._batches, is_text=self._as_text)


@final
class ScanPages:
    """At most `limit` records; `options`, with the bounds, are those of the first request.

    `check` raises if an answer is of the wrong kind of database.  With `into` a page is one batch of columns, `as_text`
    of texts.

    Raises:
        BadRequest: a negative limit, or `into` or `as_text` is not valid.
    """

    __slots__ = ("_check", "_database", "_is_complete", "_left", "_options", "as_text", "has_columns")

    def __init__(
        self,
        database: str,
        options: dict[str, Value],
        *,
        limit: int | None,
        check: Callable[[tuple[Value, Stamp]], object] = lambda _: None,
        into: Literal["arrow"] | None = None,
        as_text: bool = False,
    ) -> None:
        self.has_columns, self.as_text = reads.into_columns(into, as_text=as_text), as_text
        if limit is not None and reads.number("limit", limit, least=-(1 << 63)) < 0:
            raise BadRequest(f"limit must not be negative, got {limit}")
        self._database = database
        self._check = check
        self._options = reads.given({**options, "limit": limit})
        self._left = limit
        self._is_complete = limit == 0

    def next_request(self) -> Request[Page] | None:
        """Return the request for the next page; None after the last one."""
        if self._is_complete:
            return None
        params: list[Value] = [self._database, self._options] if self._options else [self._database]
        return page_request(params) if self.has_columns else call_request("scan", params)

    def items(self, result: Page) -> Sequence[Record] | Sequence[Records]:
        """Return the records of the page that answered the last request, or one batch of them.

        Raises:
            ProtocolError: the answer is not a page.
            BadRequest: it is of another kind of database, or has no texts.
        """
        if not isinstance(result, tuple):
            return self.take(result)
        records, cursor, stamp = result
        records = records.first(self._turn(cursor, stamp, len(records)))
        return [records.as_text() if self.as_text else records]

    def take(self, result: Value) -> list[Record]:
        """Return the records of a page without columns.  Raises as `items`."""
        records, cursor, stamp = reads.page_of(result)
        return records[: self._turn(cursor, stamp, len(records))]

    def _turn(self, cursor: Value, stamp: Stamp, count: int) -> int:
        """Note a page of `count` records; return how many of them are wanted."""
        self._check((None, stamp))
        self._options["cursor"] = cursor
        if isinstance(stamp, str):
            self._options["version"] = stamp
            self._options.pop("min_version", None)
        if self._left is not None:
            count = min(count, self._left)
            self._options["limit"] = self._left = self._left - count
        self._is_complete = cursor is None or self._left == 0
        return count

    def pause_s(self, _error: GossipKVError) -> None:
        """Let every error end the scan."""

    def close(self) -> None:
        """End the scan."""
        self._is_complete = True

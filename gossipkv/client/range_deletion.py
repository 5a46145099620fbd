"""The deletion of a range, page by page: the next call, and the contents of an answer; without any I/O.

An answer has the number of records that its page deleted, and a cursor with the rest.  A page of which the outcome is
unknown may have deleted more than is counted; the deletion can go on, since it is idempotent, with a count that is no
longer exact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from gossipkv.client import reads

if TYPE_CHECKING:
    from gossipkv.errors import Unknown
    from gossipkv.wire.rpc import Value

PAGE_MS: Final = 10_000  # A page ends in half of its time, and has some thousand records.


@final
class DeletionPages:
    """The deletion of the keys within `bounds`, as of `reads.span_options`, with `options` of writes."""

    __slots__ = ("_bounds", "_cursor", "_is_begun", "_options", "_table", "deleted", "is_exact")

    def __init__(self, table: str, bounds: dict[str, Value], options: dict[str, Value]) -> None:
        self._table, self._bounds, self._options = table, bounds, options
        self._cursor: Value = None
        self._is_begun = False
        self.deleted = 0
        self.is_exact = True

    def next_call(self) -> tuple[str, Value, Value, Value] | None:
        """Return the method and the parameters for the next page; None after the last one."""
        if self._is_begun and self._cursor is None:
            return None
        cursor: dict[str, Value] = {} if self._cursor is None else {"cursor": self._cursor}
        return "delete_range", self._table, self._bounds, self._options | cursor

    def take(self, result: Value) -> bytes:
        """Count the records of the page that answered the last call; return its token.  Raises ProtocolError."""
        match result:
            case [int(deleted), None | bytes() as cursor, bytes(token)]:
                self._is_begun, self._cursor = True, cursor
                self.deleted += deleted
                return token
        raise reads.unexpected("delete_range", "[deleted, cursor, token]", result)

    def take_unknown(self, error: Unknown) -> None:
        """Count what is known of a page with an unknown outcome; the next call takes up the rest of that page."""
        match error.details:
            case {"deleted": int(deleted), "cursor": bytes(cursor)}:
                self._is_begun, self._cursor = True, cursor
                self.deleted += deleted
        self.is_exact = False

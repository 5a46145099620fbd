"""A change feed, poll by poll: the next request, and the changes in an answer; shared by every shell, without any I/O.

A poll that fails for a reason that may pass is asked again after a pause, of another node where the first is lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, cast, final

from gossipkv.client import reads
from gossipkv.client._client import call_request
from gossipkv.client.route import ClientClosed
from gossipkv.errors import BadRequest, NotReady, NotServed, Overloaded, TimedOut, Unavailable, Unknown

if TYPE_CHECKING:
    from typing import Literal

    from gossipkv.client._client import Request
    from gossipkv.client.pages import Page
    from gossipkv.client.reads import Key
    from gossipkv.errors import GossipKVError
    from gossipkv.wire.rpc import Value

WAIT_MS: Final = 2000  # A node parks a poll for so long; one that is frozen is left after that and the timeout.
# Errors after which a poll is asked again, since each of them passes. All others are final: so does the client show
# UnknownDatabase (the table was dropped) and TooOld (the token is of no use any more) at once.
PASSING: Final = (
    NotReady,  # The node has just started, or lacks the table's newest map, which it fetches.
    NotServed,  # A partition moves.
    Overloaded,  # Other requests and feeds end; at the first poll the error is final, as many feeds rarely end soon.
    TimedOut,  # Nodes are slow or silent; another one is asked.
    Unavailable,  # Hosts of a partition are down, or an operator re-creates it: then the next error is TooOld.
    Unknown,  # The connection broke under the poll; a poll changes nothing, so it may be repeated.
)
FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 2.0


class Change(NamedTuple):
    """A change of a table."""

    key: bytes
    value: bytes | None  # None: the record was deleted.
    expires_ms: int | None  # The time at which the record expires, in milliseconds since 1970; None: never.
    token: bytes  # A feed with this token goes on after the change; it may begin with some earlier ones again.


@final
class ChangePages:
    """The polls of a feed."""

    __slots__ = ("_failures", "_has_begun", "_is_over", "_options", "_table", "token", "wait_ms")
    has_columns = as_text = False

    def __init__(
        self, table: str, token: bytes | None, prefix: Key | None, start: Literal["snapshot"] | None, wait_ms: int
    ) -> None:
        if token is not None and not token:
            raise BadRequest("an empty token is none: omit it to begin now, or give start='snapshot'")
        self._table = table
        self._options: dict[str, Value] = {} if prefix is None else {"prefix": reads.key_bytes(prefix)}
        if start is not None:
            self._options["start"] = start
        self.token, self.wait_ms = token or b"", int(reads.number("wait_ms", wait_ms, least=0))
        self._failures = 0
        self._has_begun = self._is_over = False

    def next_request(self) -> Request[Value] | None:
        """Return the next poll; None after `close`."""
        if self._is_over:
            return None
        options = {**self._options, "wait_ms": self.wait_ms}
        if self.token:
            options.pop("start", None)
            options["token"] = self.token
        else:
            options["limit"] = 0  # So each change has a token before it, also those of the first page.
        return call_request("changes", [self._table, options])

    def items(self, result: Page) -> list[Change]:
        """Return the changes that answered the last poll. Raises ProtocolError: the answer is malformed."""
        self._failures, self._has_begun = 0, True
        match result:
            case [list(rows), bytes(token)]:
                before, self.token = self.token, token
                changes = [change for row in rows if (change := _change_of(row, before)) is not None]
                if len(changes) == len(rows):
                    return [*changes[:-1], *(last._replace(token=token) for last in changes[-1:])]
        raise reads.unexpected("changes", "[[[key, value or nil, expires or nil], ...], token]", cast("Value", result))

    def pause_s(self, error: GossipKVError) -> float | None:
        """Return the pause before the poll is asked again; None: the error does not pass, or the feed cannot begin."""
        is_final = isinstance(error, ClientClosed) or (isinstance(error, Overloaded) and not self._has_begun)
        if is_final or not isinstance(error, PASSING):
            return None
        self._failures += 1
        return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(self._failures - 1, 10))

    def close(self) -> None:
        """End the feed."""
        self._is_over = True


def _change_of(row: Value, token: bytes) -> Change | None:
    match row:
        case [bytes(key), bytes() | None as value, int() | None as expires_ms]:
            return Change(key, value, expires_ms, token)
    return None

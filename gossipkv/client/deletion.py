"""Deletes a range of a table's keys: what a scan shows, page by page, many deletes on their way at once.

Nothing stands in the store but those deletes: what is put there meanwhile may be deleted or not.  A page's keys are all
that is held.  What fails for now, such as a host that is down while a range moves, is tried again from the first key
of which no answer came: a delete that may have been done is sent once more, since that key is to go.
"""

from __future__ import annotations

from time import monotonic, sleep
from typing import TYPE_CHECKING, Final, final

from gossipkv.client import tables
from gossipkv.client.pages import Pages
from gossipkv.errors import BadRequest, NotReady, Overloaded, TimedOut, Unavailable, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gossipkv.client.blocking import Client
    from gossipkv.client.tables import Level

IN_FLIGHT: Final = 64  # Deletes; each waits for a sync of its hosts, which many share.
PATIENCE_S: Final = 30.0  # Without an answer: a node that dies is known to be dead sooner.
PAUSE_S: Final = 0.5
FOR_NOW: Final = (NotReady, Overloaded, TimedOut, Unavailable, Unknown)


@final
class RangeDeletion:
    """The deletion of all keys with `start <= key < end` and `prefix`, and how far it is."""

    def __init__(
        self,
        client: Client,
        table: str,
        *,
        start: bytes | None = None,
        end: bytes | None = None,
        prefix: bytes | None = None,
        level: Level = "majority",
        pause: Callable[[float], object] = sleep,
    ) -> None:
        """Raises BadRequest: nothing bounds it, or no key is within its bounds."""
        if not (start or prefix) and end is None:
            raise BadRequest(f"all of {table} would be deleted: say from which key, before which, or a prefix")
        if end is not None and (start or b"") >= end:
            raise BadRequest(f"no key is at {(start or b'')[:40]!r} or behind it, and before {end[:40]!r}")
        self._client, self._table, self._pause = client, table, pause
        self._start, self._end, self._prefix = start, end, prefix
        self._options = tables.write_options(b"", level, 0, client.allowed_ms(None))
        self.deleted = 0  # Records.
        self.last: bytes | None = None  # The key up to which they are deleted.

    def run(self) -> Iterator[int]:
        """Delete; how many are deleted, after each page.  Raises GossipKVError: what stays so is not to be deleted."""
        since = None
        while True:
            before = self.deleted
            try:
                yield from self._pass()
            except FOR_NOW:
                now = monotonic()
                since = now if since is None or self.deleted > before else since
                if now - since > PATIENCE_S:
                    raise
                self._pause(PAUSE_S)
            else:
                return

    def _pass(self) -> Iterator[int]:
        """Go through what is left, until something fails."""
        start = self._start if self.last is None else self.last
        pages = Pages(self._table, start, self._end, self._prefix, reverse=False, limit=None)
        while (page := pages.next_request()) is not None:
            keys = [key for key, _ in pages.take(self._client.ask(page, self._client.deadline(None)))]
            requests = (tables.delete(self._table, key, self._options) for key in keys)
            for key, answer in zip(keys, self._client.ask_all(requests, IN_FLIGHT), strict=True):
                tables.token_of("delete", answer)
                self.deleted += 1
                self.last = key
            yield self.deleted

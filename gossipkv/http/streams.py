"""The event streams of a gateway: no address may have too many, and all of them end when the gateway drains."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar, final

import trio

from gossipkv.access.users import address_group
from gossipkv.errors import Overloaded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator

_Result = TypeVar("_Result")


@final
class EventStreams:
    """The open streams, and their waits for a node; `max_of_address`: of one address, 0 for no limit."""

    def __init__(self, max_of_address: int = 0) -> None:
        self._max_of_address = max_of_address
        self._open = Counter[str]()
        self._waits: set[trio.CancelScope] = set()
        self._is_over = False

    def check(self, address: str) -> None:
        """Check that an address may have one more stream.  Raises Overloaded."""
        limit = self._max_of_address
        if limit and self._open[address_group(address)] >= limit:
            raise Overloaded(
                f"{limit} event streams from this address are open at this node, as many as one address may have; "
                "close some, or use another node",
                {"limit": limit},
            )

    @contextmanager
    def counted(self, address: str) -> Iterator[None]:
        """Count a stream while the block runs."""
        group = address_group(address)
        self._open[group] += 1
        try:
            yield
        finally:
            self._open[group] -= 1
            if not self._open[group]:
                del self._open[group]

    async def wait(self, answer: Awaitable[_Result]) -> _Result | None:
        """Return a node's answer; None once the streams end."""
        with trio.CancelScope() as scope:
            self._waits.add(scope)
            if self._is_over:
                scope.cancel()
            try:
                return await answer
            finally:
                self._waits.discard(scope)
        return None

    def end(self) -> None:
        """End all waits, and those that begin later."""
        self._is_over = True
        for scope in self._waits:
            scope.cancel()

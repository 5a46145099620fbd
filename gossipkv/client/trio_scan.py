"""The records of a scan under Trio, and the methods of a client that it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, Self, final

import trio

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from typing import TypeVar

    from gossipkv.address import Address
    from gossipkv.client._client import Request
    from gossipkv.client.pages import ScanPages
    from gossipkv.client.reads import Record
    from gossipkv.wire.rpc import Value

    _Result = TypeVar("_Result")
    _Whole = TypeVar("_Whole")


class TrioRequests(Protocol):
    """A client, as datasets and tables see it; `trio_client.Client` documents the methods."""

    def deadline(self, timeout_ms: int | None) -> float: ...
    def allowed_ms(self, timeout_ms: int | None) -> int: ...
    async def ask(self, request: Request[_Result], due: float) -> _Result: ...
    async def ask_unless_cancelled(self, request: Request[_Result], due: float) -> _Result: ...
    async def ask_in_parts(self, steps: Generator[Request[_Result], _Result, _Whole], due: float) -> _Whole: ...
    def submit(self, request: Request[object], due: float) -> None: ...
    async def answer(self, request: Request[_Result]) -> _Result: ...
    def at(self, address: Address) -> TrioRequests: ...
    def abandon(self, request: Request[object]) -> None: ...


@final
class Scan:
    """The records of a scan, in order; `scan` of a dataset or a table makes one.

    There is no generator and no task behind it.  A loop that is left early leaves only one request behind, whose answer
    is dropped; `aclose` and `async with` drop the request at once.
    """

    __slots__ = ("_ahead", "_client", "_is_turning", "_pages", "_records", "_timeout_ms")

    def __init__(self, client: TrioRequests, pages: ScanPages, timeout_ms: int | None) -> None:
        self._client = client
        self._pages = pages
        self._timeout_ms = timeout_ms
        self._records: Iterator[Record] = iter(())
        self._ahead: Request[Value] | None = None
        self._is_turning = False  # A task waits for a page.

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Record:
        """Return the next record.  Only the beginning of a page is a checkpoint.

        Raises:
            GossipKVError: as `Client.call`; the next call asks for the same page again.
            trio.BusyResourceError: another task waits for a page of this scan.
        """
        for record in self._records:
            return record
        while await self._turn():
            for record in self._records:
                return record
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """End the scan.

        Raises:
            trio.BusyResourceError: another task waits for a page of this scan.
        """
        self._check_free()
        self._records = iter(())
        self._pages.close()
        self._abandon()

    async def _turn(self) -> bool:
        """Take the next page and ask for the one after it; return False if there is none."""
        self._check_free()
        self._ask_ahead()
        request = self._ahead
        if request is None:
            await trio.lowlevel.checkpoint()
            return False
        self._is_turning = True
        try:
            page = await self._client.answer(request)
        finally:
            self._is_turning = False
            self._ahead = None
        self._records = iter(self._pages.take(page))
        self._ask_ahead()
        return True

    def _check_free(self) -> None:
        if self._is_turning:
            raise trio.BusyResourceError("another task waits for a page of this scan")

    def _ask_ahead(self) -> None:
        if self._ahead is None and (request := self._pages.next_request()) is not None:
            self._client.submit(request, self._client.deadline(self._timeout_ms))
            self._ahead = request

    def _abandon(self) -> None:
        if self._ahead is not None:
            self._client.abandon(self._ahead)
            self._ahead = None

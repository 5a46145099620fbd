"""The records of a scan, or the changes of a feed, for `async for`, under Trio or asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Self, TypeVar, cast, final

from gossipkv.client.pages import Batches
from gossipkv.errors import BadRequest, GossipKVError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gossipkv.client._client import Records, Request
    from gossipkv.client.changes import ChangePages
    from gossipkv.client.pages import Page, ScanPages
    from gossipkv.client.task_shell import TaskShell

_Item = TypeVar("_Item")


@final
class Scan(Generic[_Item]):
    """The records of a scan, in order, or batches of them, or the changes of a feed.

    There is no generator and no task behind it.  A loop that is left early leaves only one request behind, which is
    dropped with this object, or at once by `aclose` and `async with`.
    """

    __slots__ = ("_ahead", "_client", "_is_turning", "_pages", "_records", "_timeout_ms")

    def __init__(self, client: TaskShell, pages: ScanPages | ChangePages, timeout_ms: int | None) -> None:
        self._client = client
        self._pages = pages
        self._timeout_ms = timeout_ms
        self._records: Iterator[_Item] = iter(())
        self._ahead: Request[Page] | None = None
        self._is_turning = False  # A task waits for a page.

    def __del__(self) -> None:
        if self._ahead is not None:
            self._client.abandon_soon(self._ahead)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> _Item:
        """Return the next record or batch.  Only the beginning of a page is a checkpoint.

        Raises:
            GossipKVError: as `Client.call`; the next call asks for the same page again.
            trio.BusyResourceError, RuntimeError (asyncio): another task is waiting for a page of this scan.
        """
        for record in self._records:
            return record
        while await self._turn():
            for record in self._records:
                return record
        raise StopAsyncIteration

    async def read_all(self) -> Batches:
        """Return all batches that are left of a scan with `into="arrow"`, for libraries, which cannot await them.

        Raises:
            BadRequest: this scan has no columns.
        """
        if not self._pages.has_columns:
            raise BadRequest("read_all needs a scan with into='arrow'; loop over this scan instead")
        return Batches(iter([cast("Records", batch) async for batch in self]), as_text=self._pages.as_text)

    async def aclose(self) -> None:
        """End the scan.

        Raises:
            trio.BusyResourceError, RuntimeError (asyncio): another task is waiting for a page of this scan.
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
            await self._client.checkpoint()
            return False
        self._is_turning = True
        try:
            page = await self._client.answer(request)
        except GossipKVError as error:
            pause_s = self._pages.pause_s(error)
            if pause_s is None:
                raise
            await self._client.checkpoint(pause_s)
            return True
        finally:
            self._is_turning = False
            self._ahead = None
        self._records = cast("Iterator[_Item]", iter(self._pages.items(page)))
        self._ask_ahead()
        return True

    def _check_free(self) -> None:
        if self._is_turning:
            raise self._client.BUSY("another task is waiting for a page of this scan; use each scan in one task")

    def _ask_ahead(self) -> None:
        if self._ahead is None and (request := self._pages.next_request()) is not None:
            self._client.submit(request, self._timeout_ms)
            self._ahead = request

    def _abandon(self) -> None:
        if self._ahead is not None:
            self._client.abandon(self._ahead)
            self._ahead = None

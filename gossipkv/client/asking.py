"""The services of a shell (Trio's, asyncio's or that of plain threads) to the methods of clients, datasets and tables.

A method is written once, as a plain function that makes a request or the steps to an answer.  A shell returns an
awaitable of the answer, or the answer itself.  What is to be done with the answer is passed along.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol, TypeVar

_Result = TypeVar("_Result")
_Whole = TypeVar("_Whole")

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterator
    from typing import TypeAlias

    from gossipkv.address import Address
    from gossipkv.client._client import Records, Request
    from gossipkv.client.changes import Change, ChangePages
    from gossipkv.client.pages import Batches, ScanPages
    from gossipkv.client.reads import Record
    from gossipkv.client.scan import Scan
    from gossipkv.errors import GossipKVError

    # In the stubs of the clients (`.ci/stubs.py`) each is one of the two.
    Asked: TypeAlias = Awaitable[_Whole] | _Whole
    Scanned: TypeAlias = Scan[Record] | Scan[Records] | Scan[Change] | Iterator[Record] | Iterator[Change] | Batches
    Followed: TypeAlias = Scanned


class Shell(Protocol):
    """A client without its methods.  A request goes to its address `at`; without one, to the node in use."""

    __slots__ = ()
    PLACE: ClassVar[str]  # The module that users name.

    @property
    def address(self) -> Address | None:
        """The node in use, or None while there is no connection."""
        ...

    def now(self) -> float:
        """Return the time by the clock of the deadlines."""
        ...

    def allowed_ms(self, timeout_ms: int | None) -> int:
        """Return the time of a request with this `timeout_ms`, or the client's if None."""
        ...

    def ask(
        self,
        request: Request[_Result],
        timeout_ms: int | None,
        finish: Callable[[_Result], _Whole],
        otherwise: Callable[[GossipKVError], Generator[Request[object], object, _Result]] | None = None,
    ) -> Asked[_Whole]:
        """Return `finish` of the result of `request`; wait for data that is still being built.

        After an error the steps that `otherwise` returns have the result, if it is given, within the same time.  A
        request that may not be repeated is not sent for a cancelled task.  Raises as `Calls.call`.
        """
        ...

    def ask_steps(self, steps: Generator[Request[_Result], _Result, _Whole], timeout_ms: int | None) -> Asked[_Whole]:
        """Return the result of `steps`, asking each request that it yields."""
        ...

    def scanned(self, pages: ScanPages | ChangePages, timeout_ms: int | None) -> Scanned:
        """Return the records of a scan, or the changes of a feed; `timeout_ms` is for each page or poll."""
        ...

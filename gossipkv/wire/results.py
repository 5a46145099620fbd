"""Results of methods that are not plain values: encoded already, with a user, awaited, or from another node.

Two kinds take time: `DeferredResult` runs in a task, `Later` calls back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeVar, final

from gossipkv.errors import Unavailable, Unknown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

    from gossipkv.errors import GossipKVError
    from gossipkv.wire.rpc import Value

    T = TypeVar("T")
    # Takes the result of a request, or the error for its absence; called once.
    Completion = Callable[[T | GossipKVError], object]


class Packed(NamedTuple):
    """A result that is encoded as MessagePack already."""

    data: bytes


class ProvenUser(NamedTuple):
    """A result for a client that proved to be a user; from now on the connection belongs to that user, by number."""

    user: int
    result: Value


@final
@dataclass(frozen=True, slots=True)
class DeferredResult:
    """A result to await; requests with equal `shared_by` share it until it begins.

    With `may_end`, which is not shared, it ends with its request: it changes nothing, or only asks another node to.
    """

    result: Callable[[], Awaitable[Value | Packed | ProvenUser]]
    shared_by: Hashable | None = None
    may_end: bool = False


@final
@dataclass(frozen=True, slots=True)
class Later:
    """A result without a task: `begin` gets a completion, and calls it once.

    The completion may be called at once. The owner of the pending results bounds their number. If `begin` returns a
    function, a call of that frees what the request holds: the client is gone, or has cancelled the request. A
    completion after that is dropped.
    """

    begin: Callable[[Completion[Value | Packed]], object]


class NodeAnswer(NamedTuple):
    """Another node's result, as MessagePack, and the epoch of that node."""

    data: bytes
    epoch: int


class NotReached(Unavailable):
    """A node was not asked: there is no connection to it."""


class NotAnswered(Unknown):
    """A node was asked, and no answer came."""

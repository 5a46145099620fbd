"""Results of methods that are not plain values: encoded already, with a user, awaited, or from another node.

Two kinds take time: `DeferredResult` runs in a task, `Later` calls back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeVar, final

import msgpack
import trio

from gossipkv.errors import GossipKVError, Unavailable, Unknown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

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
    """A result to await; requests with equal `shared_by` share it until it begins."""

    result: Callable[[], Awaitable[Value | Packed | ProvenUser]]
    shared_by: Hashable | None = None


@final
@dataclass(frozen=True, slots=True)
class Later:
    """A result without a task: `begin` gets a completion, and calls it once.

    The completion may be called at once. The owner of the pending results bounds their number. If `begin` returns a
    function, a call of that ends the wait and calls the completion: the client is gone, or has cancelled the request.
    """

    begin: Callable[[Completion[Value | Packed]], object]


async def awaited(begin: Callable[[Completion[T]], object]) -> T:
    """Begin a request that calls back, and return its result.  Raises GossipKVError: its error."""
    answered = trio.Event()
    answers: list[T | GossipKVError] = []

    def complete(answer: T | GossipKVError) -> None:
        answers.append(answer)
        answered.set()

    begin(complete)
    if not answers:
        await answered.wait()
    (answer,) = answers
    if isinstance(answer, GossipKVError):
        raise answer
    return answer


async def value_of(result: Value | Packed | DeferredResult | Later) -> Value:
    """Return the decoded result of a method that was called.  Raises GossipKVError."""
    found: Value | Packed | ProvenUser
    match result:
        case DeferredResult():
            found = await result.result()
        case Later():
            found = await awaited(result.begin)
        case _:
            found = result
    assert not isinstance(found, ProvenUser), "only `auth` and `hello` prove a user"
    value: Value = msgpack.unpackb(found.data) if isinstance(found, Packed) else found
    return value


class NodeAnswer(NamedTuple):
    """Another node's result, as MessagePack, and the epoch of that node."""

    data: bytes
    epoch: int


class NotReached(Unavailable):
    """A node was not asked: there is no connection to it."""


class NotAnswered(Unknown):
    """A node was asked, and no answer came."""

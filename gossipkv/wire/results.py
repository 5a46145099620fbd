"""Results that are no plain values: MessagePack already, who somebody is, one to be waited for, one of another node.

Two kinds take time: `Waiting` has a task, `Later` calls back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

    from gossipkv.errors import GossipKVError
    from gossipkv.wire.rpc import Value


class Packed(NamedTuple):
    """A result as MessagePack."""

    data: bytes


class Known(NamedTuple):
    """A result for whoever has proved to be a user: the connection is of that one, by its number, from now on."""

    user: int
    result: Value


@final
@dataclass(frozen=True, slots=True)
class Waiting:
    """A result that takes time; `shared_by`: the same for all that ask before it is begun, named by this."""

    result: Callable[[], Awaitable[Value | Packed | Known]]
    shared_by: Hashable | None = None


class OnResult(Protocol):
    """Where a result goes, or why there is none."""

    def __call__(self, result: Value | Packed | GossipKVError, /) -> object: ...


@final
@dataclass(frozen=True, slots=True)
class Later:
    """A result that comes by a callback, without a task: `begin` is given what is to be called with it, once.

    It may be called at once.  How many may be under way is bounded by whoever has begun them.
    """

    begin: Callable[[OnResult], object]


class OnAnswer(Protocol):
    """What becomes of a question to another node: its result or its error, as MessagePack, and that node's epoch.

    Neither: none came; no epoch: it was not asked.
    """

    def __call__(self, result: bytes | None, error: bytes | None, epoch: int | None) -> None: ...

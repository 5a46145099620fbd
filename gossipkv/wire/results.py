"""Results that are no plain values: one that is MessagePack already, one to be waited for, one of another node."""

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


@final
@dataclass(frozen=True, slots=True)
class Waiting:
    """A result that takes time; `shared_by`: the same for all that ask before it is begun, named by this."""

    result: Callable[[], Awaitable[Value | Packed]]
    shared_by: Hashable | None = None


class OnResult(Protocol):
    """Where a result goes, or why there is none: called once."""

    def __call__(self, result: Value | Packed | GossipKVError) -> None: ...


@final
@dataclass(frozen=True, slots=True)
class Later:
    """A result that comes by a callback, without a task: `begin` is called once, with where it goes."""

    begin: Callable[[OnResult], object]


class OnAnswer(Protocol):
    """What becomes of a question to another node: its result or its error, as MessagePack, and that node's epoch.

    Neither: none came; no epoch: it was not asked.
    """

    def __call__(self, result: bytes | None, error: bytes | None, epoch: int | None) -> None: ...

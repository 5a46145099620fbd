"""The vocabulary of the proposer: changes of acceptors, outcomes of changes, and effects."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from gossipkv.register.messages import RegisterRequest

if TYPE_CHECKING:
    from gossipkv.register.ballot import Ballot
    from gossipkv.register.configuration import AcceptorId, Value


class Reconfigure(NamedTuple):
    """A change of the acceptors, if they are `instead`: of two concurrent changes of a set one is refused."""

    members: tuple[AcceptorId, ...]
    instead: tuple[AcceptorId, ...] | None = None  # None allows any acceptors.


class ChangeEnd(Enum):
    """The three ends of a change."""

    DONE = "done"
    REFUSED = "refused"
    UNKNOWN = "unknown"


class ProposalOutcome(NamedTuple):
    """The end of a change, and what was committed with it."""

    ticket: int
    end: ChangeEnd
    result: bytes = b""  # The result of the change, if done.
    code: str = ""  # A code of `errors`, if refused.
    message: str = ""  # The reason, if not done.
    value: Value | None = None  # The value that was committed with the change.
    ballot: Ballot | None = None


# A request is to be sent; then `receive` is called with the reply, or `unreachable` if none will come.
Effect = RegisterRequest | ProposalOutcome

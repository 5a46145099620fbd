"""Changes of a register's payload.

A change is a function of the value that a round has found, and of the generation of the round's ballot. It returns the
next payload and a result, or refuses, or cannot judge yet, since this node lacks what the value stands for. It may run
again on a later value after some acceptors have accepted its first result. So a change names the ids of new objects,
and one that finds its objects reports success and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gossipkv.register.configuration import Value


class Applied(NamedTuple):
    """The next payload and the result of a change; the same payload if nothing was left to do."""

    payload: bytes
    result: bytes = b""


class ChangeRefused(NamedTuple):
    """The refusal of a change: a code of `errors`, and a message."""

    code: str
    message: str


class CannotJudge(NamedTuple):
    """The change needs what this node does not have yet: another round tries again."""

    why: str


RegisterChange = Callable[[Value, int], Applied | ChangeRefused | CannotJudge]


def read(value: Value, generation: int) -> Applied:
    """Leave the payload as it is."""
    del generation
    return Applied(value.payload)

"""Change functions: named changes of a register's payload.

A function is pure, has a name and a version, and maps (payload, argument, generation of the ballot) to the next payload
and a result, or refuses. The function may run again on a later payload after some acceptors have accepted its first
result. So a change names the ids of new objects, and a function that finds its objects reports success and changes
nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from gossipkv.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Mapping


class RegisterChange(NamedTuple):
    """A requested change."""

    name: str
    version: int
    argument: bytes = b""


class Applied(NamedTuple):
    """The next payload and the result of a function; the same payload if nothing was left to do."""

    payload: bytes
    result: bytes = b""


class ChangeRefused(NamedTuple):
    """A function's refusal: a code of `errors`, and a message."""

    code: str
    message: str


READ: Final = RegisterChange("read", 1)

Function = Callable[[bytes, bytes, int], Applied | ChangeRefused]  # Maps a payload, an argument and a generation.
Functions = dict[tuple[str, int], Function]
READING: Final[Functions] = {READ[:2]: lambda payload, _argument, _generation: Applied(payload)}


def function_of(functions: Mapping[tuple[str, int], Function], change: RegisterChange) -> Function:
    """Return the function that a change names.

    Raises:
        BadRequest: no function has that name and version.
    """
    function = functions.get((change.name, change.version))
    if function is None:
        names = ", ".join(f"{name} {version}" for name, version in sorted(functions))
        raise BadRequest(f"this node has no change {change.name!r} of version {change.version}; it has {names}")
    return function

"""Change functions: what is proposed to a register, by name.

A function is pure, has a name and a version, and takes (payload, argument, generation of the ballot) to the next
payload and a result, or refuses.  It may be applied again after it was accepted by some, and then on any later payload:
so a change names the ids of what it creates, and a function that finds them done says so and changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from gossipkv.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Mapping


class Change(NamedTuple):
    """A change that is wanted."""

    name: str
    version: int
    argument: bytes = b""


class Applied(NamedTuple):
    """A function's next payload and result; the same payload: it had nothing to do."""

    payload: bytes
    result: bytes = b""


class Refused(NamedTuple):
    """A function refuses to change the payload: a code of `errors`, and words."""

    code: str
    message: str


class Function(Protocol):
    """A change function."""

    def __call__(self, payload: bytes, argument: bytes, generation: int) -> Applied | Refused:
        """Apply the change."""
        ...


READ: Final = Change("read", 1)


def read(payload: bytes, argument: bytes, generation: int) -> Applied | Refused:
    """Leave the payload as it is."""
    del argument, generation
    return Applied(payload)


Functions = dict[tuple[str, int], Function]
READING: Final[Functions] = {READ[:2]: read}


def function_of(functions: Mapping[tuple[str, int], Function], change: Change) -> Function:
    """Find the function that a change names.

    Raises:
        BadRequest: there is none of that name and version.
    """
    function = functions.get((change.name, change.version))
    if function is None:
        known = ", ".join(f"{name} {version}" for name, version in sorted(functions))
        raise BadRequest(f"there is no change {change.name!r} of version {change.version} here; there are {known}")
    return function
